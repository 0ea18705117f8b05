/* metrics.c - see metrics.h. One table: a row is a family, its help and where its numbers are. */
#include "daemon/metrics.h"

#include "base/check.h"
#include "daemon/process.h"
#include "engine/runs.h"
#include "proto/exposition.h"

#include <once/once.h>

#include <stddef.h>
#include <stdlib.h>

enum {
    RECORDS_MS_MIN = 5000, /* between two counts ... */
    RECORDS_REST = 1000,   /* ... and so many times as long as the last one took */
    METER_SAMPLES_MAX = 256,
};

/* ---- one reading ---- */

struct meter_sample {
    struct meter meter; /* its histogram is the copy below */
    struct histogram histogram;
};

struct reading {
    const struct metrics *metrics;
    struct buf *out;
    struct engine_stats engine;
    struct run_stats runs;
    struct process process;
    struct auth_counts {
        uint64_t logins, wrong, denied;
    } auth;
    uint64_t waiters, held, bound, connections_max, started_ms;
    struct meter_sample meters[METER_SAMPLES_MAX];
    size_t meter_count;
};

struct family {
    const char *name;
    enum exposition_kind kind;
    const char *help;
    void (*write)(struct reading *r, const struct family *f);
    size_t at;         /* of the number in the reading, or which meter */
    uint64_t per_unit; /* of the number */
};

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* What several stores of a plane say is added. */
static void take_meter(void *ctx, const struct meter *m)
{
    struct reading *r = ctx;
    struct meter_sample *s = r->meters, *end = s + r->meter_count;
    while (s < end && (s->meter.id != m->id || !same(s->meter.plane, m->plane) ||
                       !same(s->meter.label, m->label)))
        s++;
    if (s == end) {
        CHECK(r->meter_count < METER_SAMPLES_MAX);
        r->meter_count++;
        s->meter = (struct meter){ .id = m->id, .plane = m->plane, .label = m->label };
    }
    s->meter.value += m->value;
    if (m->histogram) histogram_merge(&s->histogram, m->histogram);
}

static void read_all(struct reading *r, const struct metrics *m, struct buf *out)
{
    r->metrics = m;
    r->out = out;
    r->engine = engine_stats(m->engine);
    r->runs = engine_run_stats(m->engine);
    r->waiters = r->engine.waiters;
    r->held = r->engine.held;
    r->bound = m->bounds ? m->bounds->by_token.count : 0;
    r->connections_max = m->conns ? m->conns->count_max : 0;
    r->started_ms = m->started_ms;
    if (m->auth)
        r->auth = (struct auth_counts){ m->auth->logins, m->auth->wrong, m->auth->denied };
    r->process = process_look();
    store_meters(m->store, m->plane, take_meter, r);
}

/* ---- the ways to write a family ---- */

static void write_number(struct reading *r, const struct family *f)
{
    uint64_t value;
    memcpy(&value, (const char *)r + f->at, sizeof value);
    exposition_sample(r->out, f->name, NULL, value, f->per_unit);
}

static void write_labeled(struct reading *r, const struct family *f, const char *name,
                          const char *value, uint64_t number)
{
    struct exposition_label labels[] = { { name, value }, { 0 } };
    exposition_sample(r->out, f->name, labels, number, 1);
}

static void write_build(struct reading *r, const struct family *f)
{
    write_labeled(r, f, "version", once_version(), 1);
}

/* Those behind `lost` are of other verbs. */
static void write_outcomes(struct reading *r, const struct family *f, const uint64_t *counts)
{
    for (int o = 1; o < OUTCOME_LOST; o++)
        write_labeled(r, f, "outcome", outcome_name((enum outcome)o), counts[o]);
}

static void write_claims(struct reading *r, const struct family *f)
{
    write_outcomes(r, f, r->engine.outcomes);
}

static void write_mutations(struct reading *r, const struct family *f)
{
    write_outcomes(r, f, r->engine.mutations);
}

/* What callers can ask; the rest is the engine's own. */
static bool is_asked(enum verb verb)
{
    return verb_info[verb].keyed ? verb != VERB_WATCH : verb == VERB_SCAN;
}

static void write_times(struct reading *r, const struct family *f)
{
    for (int v = 0; v < CLAIM_VERBS; v++) {
        struct exposition_label labels[] = { { "verb", verb_info[v].name }, { 0 } };
        if (is_asked((enum verb)v))
            exposition_histogram(r->out, f->name, labels, &r->engine.times[v], &histogram_us);
    }
}

/* ---- of runs ---- */

static void write_triggers(struct reading *r, const struct family *f)
{
    const uint64_t *n = r->runs.triggers;
    write_labeled(r, f, "outcome", "created", n[OUTCOME_OK]);
    write_labeled(r, f, "outcome", "cached", n[OUTCOME_CACHED]);
    write_labeled(r, f, "outcome", "mismatch", n[OUTCOME_MISMATCH]);
    write_labeled(r, f, "outcome", "timed_out", n[OUTCOME_TIMED_OUT]);
}

static void write_decisions(struct reading *r, const struct family *f)
{
    write_labeled(r, f, "decision", "pass", r->runs.passed);
    write_labeled(r, f, "decision", "divert", r->runs.diverted);
    write_labeled(r, f, "decision", "shadow", r->runs.shadowed);
    write_labeled(r, f, "decision", "unreachable", r->runs.gate_failed);
}

static void write_entries(struct reading *r, const struct family *f)
{
    if (!r->runs.buffer_known) return;
    write_labeled(r, f, "state", "queued", r->runs.buffer_queued);
    write_labeled(r, f, "state", "leased", r->runs.buffer_leased);
}

static void write_oldest(struct reading *r, const struct family *f)
{
    if (r->runs.buffer_known)
        exposition_sample(r->out, f->name, NULL, (uint64_t)r->runs.buffer_oldest_ms,
                          f->per_unit);
}

static void write_spooled(struct reading *r, const struct family *f)
{
    if (r->runs.spool_known)
        exposition_sample(r->out, f->name, NULL, r->runs.spool_entries, f->per_unit);
}

static void write_spool_oldest(struct reading *r, const struct family *f)
{
    if (r->runs.spool_known)
        exposition_sample(r->out, f->name, NULL, (uint64_t)r->runs.spool_oldest_ms,
                          f->per_unit);
}

static void write_lag(struct reading *r, const struct family *f)
{
    exposition_histogram(r->out, f->name, NULL, &r->runs.drain_lag, &histogram_us);
}

/* ---- of markers ---- */

static void write_cleanup(struct reading *r, const struct family *f)
{
    exposition_histogram(r->out, f->name, NULL, &r->engine.markers_batches, &histogram_us);
}

static void write_expired(struct reading *r, const struct family *f)
{
    if (r->engine.markers_installed)
        exposition_sample(r->out, f->name, NULL, r->engine.markers_oldest_ms, f->per_unit);
}

static void write_waits(struct reading *r, const struct family *f)
{
    exposition_histogram(r->out, f->name, NULL, &r->engine.waits, &histogram_us);
}

static void write_records(struct reading *r, const struct family *f)
{
    const struct store_stats *s = &r->metrics->records;
    if (!r->metrics->records_known) return;
    write_labeled(r, f, "state", "pending", s->pending);
    write_labeled(r, f, "state", "lapsed", s->lapsed);
    write_labeled(r, f, "state", "done", s->done);
    write_labeled(r, f, "state", "gone", s->gone);
}

static void write_bytes(struct reading *r, const struct family *f)
{
    if (r->metrics->records_known)
        exposition_sample(r->out, f->name, NULL, r->metrics->records.bytes, 1);
}

static void write_age(struct reading *r, const struct family *f)
{
    const struct metrics *m = r->metrics;
    if (m->records_known)
        exposition_sample(r->out, f->name, NULL, (uint64_t)(m->loop->now_ms - m->records_ms),
                          f->per_unit);
}

static const char *const door_names[DOORS] = { [DOOR_RESP] = "resp", [DOOR_HTTP] = "http" };

/* A number of each door; `at` says which. */
static void write_doors(struct reading *r, const struct family *f)
{
    for (int d = 0; r->metrics->conns && d < DOORS; d++) {
        uint64_t value;
        memcpy(&value, (const char *)&r->metrics->conns->stats[d] + f->at, sizeof value);
        write_labeled(r, f, "door", door_names[d], value);
    }
}

static void write_closed(struct reading *r, const struct family *f)
{
    for (int d = 0; r->metrics->conns && d < DOORS; d++)
        for (int why = 0; why < CLOSE_REASONS; why++) {
            struct exposition_label labels[] = { { "door", door_names[d] },
                                                 { "reason", close_name(why) },
                                                 { 0 } };
            exposition_sample(r->out, f->name, labels, r->metrics->conns->stats[d].closed[why],
                              1);
        }
}

static void write_answered(struct reading *r, const struct family *f)
{
    static const char *const classes[] = { NULL, "1xx", "2xx", "3xx", "4xx", "5xx" };
    for (int i = 1; r->metrics->http_answered && i < 6; i++)
        write_labeled(r, f, "status", classes[i], r->metrics->http_answered[i]);
}

static const struct {
    enum meter_kind kind;
    const char *label;
} meter_info[METERS] = {
#define METER_INFO(id, name, kind, label, help) [id] = { kind, label },
    METER_LIST(METER_INFO)
#undef METER_INFO
};

static void write_meter(struct reading *r, const struct family *f)
{
    for (size_t i = 0; i < r->meter_count; i++) {
        const struct meter_sample *s = &r->meters[i];
        if (s->meter.id != f->at) continue;
        struct exposition_label labels[] = { { "plane", s->meter.plane },
                                             { meter_info[f->at].label, s->meter.label },
                                             { 0 } };
        if (meter_info[f->at].kind == METER_HISTOGRAM_US)
            exposition_histogram(r->out, f->name, labels, &s->histogram, &histogram_us);
        else if (meter_info[f->at].kind == METER_HISTOGRAM_MANY)
            exposition_histogram(r->out, f->name, labels, &s->histogram, &histogram_many);
        else
            exposition_sample(r->out, f->name, labels, s->meter.value, 1);
    }
}

/* ---- the table ---- */

#define COUNTER(name, field, help)                                                             \
    {                                                                                          \
        name, EXPOSITION_COUNTER, help, write_number, offsetof(struct reading, field), 1       \
    }
#define GAUGE(name, field, help)                                                               \
    {                                                                                          \
        name, EXPOSITION_GAUGE, help, write_number, offsetof(struct reading, field), 1         \
    }
#define DOOR_COUNTER(name, field, help)                                                        \
    {                                                                                          \
        name, EXPOSITION_COUNTER, help, write_doors, offsetof(struct door_stats, field), 1     \
    }
#define METER_FAMILY_KIND(kind)                                                                \
    ((kind) == METER_COUNTER ? EXPOSITION_COUNTER                                              \
     : (kind) == METER_GAUGE ? EXPOSITION_GAUGE                                                \
                             : EXPOSITION_HISTOGRAM)
#define METER_FAMILY(id, name, kind, label, help)                                              \
    { "once_" name, METER_FAMILY_KIND(kind), help ", by plane", write_meter, id, 1 },

static const struct family families[] = {
    { "once_build_info", EXPOSITION_GAUGE, "1, with the version as a label", write_build, 0,
      1 },

    { "once_claims_total", EXPOSITION_COUNTER, "Claims that were answered, by outcome",
      write_claims, 0, 1 },
    COUNTER("once_degraded_answers_total", engine.degraded,
            "Answers that coord had no part in: right, but slower"),
    COUNTER("once_takeovers_total", engine.takeovers,
            "Claims of keys whose owner's lease had lapsed"),
    COUNTER("once_promotions_total", engine.promoted, "Waiters that became the owner"),
    COUNTER("once_lost_total", engine.lost,
            "Publishes, renewals and releases of somebody who was not the owner any more"),
    COUNTER("once_renewals_total", engine.renewals, "Leases renewed for connected owners"),
    COUNTER("once_ambiguous_total", engine.ambiguous,
            "Answers of the ledger that were lost and asked for again with the same token"),
    COUNTER("once_failed_calls_total", engine.failed, "Calls that got an error, not an answer"),
    COUNTER("once_canceled_calls_total", engine.canceled,
            "Calls that were given up: the caller hung up, or the daemon stops"),
    COUNTER("once_swept_records_total", engine.swept, "Records removed after their retention"),
    GAUGE("once_waiters", waiters, "Callers that wait for somebody else's answer"),
    GAUGE("once_held_leases", held, "Leases that this process renews"),
    GAUGE("once_bound_claims", bound, "Claims that end with the connection that made them"),
    { "once_call_duration_seconds", EXPOSITION_HISTOGRAM,
      "From the question to the answer, by verb; claims that waited are left out", write_times,
      0, 1 },
    { "once_wait_duration_seconds", EXPOSITION_HISTOGRAM,
      "The same, of claims that waited for somebody else", write_waits, 0, 1 },

    { "once_mutations_total", EXPOSITION_COUNTER,
      "Mutations that were begun at the replay cache, by outcome", write_mutations, 0, 1 },
    COUNTER("once_mutations_degraded_total", engine.mutations_degraded,
            "Steps of mutations that coord had no part in: the database decides"),
    COUNTER("once_mutations_stale_total", engine.mutations_stale,
            "Responses that were not replayed: of another epoch of the database"),

    { "once_triggers_total", EXPOSITION_COUNTER, "Triggers that were answered, by outcome",
      write_triggers, 0, 1 },
    { "once_gate_decisions_total", EXPOSITION_COUNTER,
      "What became of triggers at the gate; in shadow, those that would have been diverted",
      write_decisions, 0, 1 },
    COUNTER("once_trigger_claims_total", runs.claims, "Claims that triggers have won"),
    COUNTER("once_trigger_waits_total", runs.claim_waits,
            "Triggers that waited for another one of the same key"),
    COUNTER("once_trigger_timeouts_total", runs.claim_timeouts,
            "Triggers that waited for too long, and were told to try again"),
    COUNTER("once_trigger_ownership_lost_total", runs.ownership_lost,
            "Triggers that were so slow that another one of the same key took over"),
    COUNTER("once_trigger_hints_dropped_total", runs.hints_dropped,
            "What coord remembered of a key and was not true any more"),
    { "once_buffer_entries", EXPOSITION_GAUGE,
      "Runs in the buffer, by state, as they were counted last", write_entries, 0, 1 },
    { "once_buffer_oldest_age_seconds", EXPOSITION_GAUGE,
      "How long the oldest of them has waited; 0: there is none", write_oldest, 0, 1000 },
    COUNTER("once_drained_total", runs.drained, "Runs moved from the buffer into the ledger"),
    { "once_drain_lag_seconds", EXPOSITION_HISTOGRAM, "How long they were in the buffer",
      write_lag, 0, 1 },
    COUNTER(
        "once_drain_retries_total", runs.drain_retried,
        "Runs that stayed in the buffer because the ledger could not be reached, or was late"),
    COUNTER("once_drain_failures_total", runs.drain_failed,
            "Attempts to write a run that failed because of the run"),
    COUNTER("once_drain_parked_total", runs.parked,
            "Runs that could not be written, or whose key is another run's, and are FAILED "
            "runs instead"),
    COUNTER("once_aliases_total", runs.aliased,
            "Runs that turned out to have another one's key, and are its aliases now"),
    { "once_spool_entries", EXPOSITION_GAUGE,
      "Runs that this daemon has accepted and keeps until the ledger has them, as counted last",
      write_spooled, 0, 1 },
    { "once_spool_oldest_age_seconds", EXPOSITION_GAUGE,
      "How long the oldest of them has been kept; 0: there is none", write_spool_oldest, 0,
      1000 },
    COUNTER("once_spool_reaccepted_total", runs.spool_reaccepted,
            "Runs that the buffer had lost, and that the spool has put there again"),
    COUNTER("once_leased_runs_total", runs.leased, "Runs handed out to workers"),
    COUNTER("once_returned_runs_total", runs.returned,
            "Runs given back because who had asked for them was gone"),

    COUNTER("idempotency_cleanup_rows_total", engine.markers_swept,
            "Markers of mutations removed after they had expired"),
    { "idempotency_cleanup_batch_duration_seconds", EXPOSITION_HISTOGRAM,
      "How long a batch of them took", write_cleanup, 0, 1 },
    { "idempotency_oldest_expired_age_seconds", EXPOSITION_GAUGE,
      "How long ago the oldest marker that was still there had expired, when it was looked for "
      "last",
      write_expired, 0, 1000 },

    { "once_records", EXPOSITION_GAUGE, "Records by state, as they were counted last",
      write_records, 0, 1 },
    { "once_records_bytes", EXPOSITION_GAUGE, "What they take, in memory or on disk",
      write_bytes, 0, 1 },
    { "once_records_age_seconds", EXPOSITION_GAUGE, "How long ago they were counted", write_age,
      0, 1000 },

    METER_LIST(METER_FAMILY)

        { "once_connections", EXPOSITION_GAUGE, "Connections that are open, by door",
          write_doors, offsetof(struct door_stats, open), 1 },
    GAUGE("once_connections_max", connections_max, "As many may be open, of all doors"),
    DOOR_COUNTER("once_connections_accepted_total", accepted,
                 "Connections accepted, by door; those refused for being too many, too"),
    DOOR_COUNTER("once_connections_refused_total", refused,
                 "Connections refused for being too many, by door"),
    { "once_connections_closed_total", EXPOSITION_COUNTER,
      "Connections closed, by door and reason", write_closed, 0, 1 },
    DOOR_COUNTER("once_requests_total", requests, "Commands and requests read, by door"),
    { "once_http_responses_total", EXPOSITION_COUNTER, "Answers over HTTP, by class of status",
      write_answered, 0, 1 },
    DOOR_COUNTER("once_received_bytes_total", in_bytes, "Bytes received, by door"),
    DOOR_COUNTER("once_sent_bytes_total", out_bytes, "Bytes sent, by door"),
    COUNTER("once_logins_total", auth.logins, "Tokens that were accepted"),
    COUNTER("once_login_failures_total", auth.wrong,
            "Tokens that were not: unknown, expired or revoked"),
    COUNTER("once_denied_total", auth.denied, "Questions that the token did not cover"),

    GAUGE("process_resident_memory_bytes", process.resident_bytes, "Resident memory"),
    GAUGE("process_open_fds", process.open_fds, "Open file descriptors"),
    GAUGE("process_max_fds", process.max_fds, "As many may be open"),
    { "process_cpu_seconds_total", EXPOSITION_COUNTER, "Processor time, user and system",
      write_number, offsetof(struct reading, process.cpu_us), 1000000 },
    { "process_start_time_seconds", EXPOSITION_GAUGE, "When it started, since 1970",
      write_number, offsetof(struct reading, started_ms), 1000 },
};

void metrics_write(struct metrics *m, struct buf *out)
{
    struct reading *r = calloc(1, sizeof *r);
    if (!r) {
        out->failed = ERR_NOMEM;
        return;
    }
    read_all(r, m, out);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const struct family *f = &families[i];
        exposition_family(out, f->name, f->kind, f->help);
        f->write(r, f);
    }
    free(r);
    metrics_refresh(m);
}

/* ---- records, counted in the background ---- */

static void records_counted(struct call *call, void *ctx)
{
    struct metrics *m = ctx;
    int64_t now_ms = m->loop->now_ms, rest_ms = RECORDS_REST * (now_ms - m->records_asked_ms);
    m->records_asked = false;
    m->records_next_ms = now_ms + (rest_ms > RECORDS_MS_MIN ? rest_ms : RECORDS_MS_MIN);
    if (call_error(call)->code) return;
    m->records = call_op(call)->stats;
    m->records_ms = now_ms;
    m->records_known = true;
}

void metrics_refresh(struct metrics *m)
{
    struct err err;
    struct call_args args = { .verb = VERB_STATS, .done = records_counted, .ctx = m };
    if (m->records_asked || m->loop->now_ms < m->records_next_ms) return;
    m->records_asked_ms = m->loop->now_ms;
    m->records_asked = engine_call(m->engine, &args, NULL, &err) == 0;
}

void metrics_init(struct metrics *m, const struct clock *wall)
{
    m->started_ms = (uint64_t)clock_now_ms(wall);
    m->records_next_ms = m->loop->now_ms;
}
