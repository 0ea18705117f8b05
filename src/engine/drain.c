/* drain.c - moves the buffer into the ledger, in rounds: lease some entries, put each into the ledger
 * (the store makes one statement of them), settle all.
 *
 * Guarantees: an entry is settled as written only after the ledger has it; whatever happens in
 * between, its lease lapses and somebody else does it again: the id makes the write idempotent, and
 * what was changed meanwhile is applied once (U4). Nothing is written when the lease may have lapsed:
 * the entry may have been canceled since. A ledger that is away costs no attempts: its
 * entries go back, and the next round waits, longer every time. An entry that the ledger refuses goes
 * back, too, with a pause that is longer every time, and nobody else waits for it; one that is refused
 * for good becomes a FAILED run with the reason and all that can be read of it. Should the ledger not
 * take that either, it stays in the buffer: nothing vanishes. That includes an entry whose id, which its
 * caller has chosen, is that of another run in the ledger: it is written under another one, FAILED.
 *
 *   lease --> put, put, put --> settle --> the next, at once if there was more than fits a round
 *     '--none: look again in a while, or when something is accepted here */
#include "base/check.h"
#include "engine/runs_internal.h"

#include <stdlib.h>

enum {
    ROUNDS_AT_ONCE = 3, /* while one is at the ledger, others are on their way there and back */
    LOOK_MS_FIRST = 50,
    LOOK_MS_MAX = 1000,
    AWAY_MS_FIRST = 100,
    AWAY_MS_MAX = 30000,
    RETRY_MS_FIRST = 20,
    RETRY_MS_MAX = 1000,
    PAUSE_MS_FIRST = 500, /* of what was refused, by its attempts */
    PAUSE_MS_MAX = 30000,
    ATTEMPTS_MAX = 5,
    COUNT_MS = 1000,
    EARNED_MS_MAX = 50, /* with a rate: what is not taken for so long is lost */
    SLICE_MS = 50,      /* with a rate: what was written is counted by slices of time, ... */
    SLICES = 1000 / SLICE_MS + 1, /* ... a second of them, and the one that it began in */
    /* Before the lease ends: what is not written by then is not any more, and what is not known goes
     * back. PostgreSQL may take as long to carry out what it has begun. */
    LEASE_MARGIN_MS = 5000,
};

struct round;

struct item {
    struct round *round;
    const struct entry *entry;
    struct run run;
    struct run_ask ask;
    struct timer timer; /* ambiguous: ask again */
    unsigned tries;
    struct run *parked; /* FAILED, because it was refused for good; NULL: it was not */
    enum settle_how how;
};

struct round {
    struct link link;
    struct drainer *drainer;
    bool regular;            /* not of one entry that somebody asked for */
    struct buffer_ask lease; /* its entries live as long as the round */
    struct buffer_ask settle;
    struct timer timer; /* the settle has failed: once more */
    unsigned tries;
    struct item *items;
    size_t open; /* items at the ledger */
    size_t written;
    int64_t until_ms;
    struct err away; /* why the ledger did not take something; code 0: that was not so */
    uint8_t env[ENV_BYTES_MAX];
};

struct drainer {
    struct runs *runs;
    struct list rounds; /* struct round */
    unsigned regular;   /* of them */
    struct timer timer; /* the next round */
    struct timer count_timer;
    bool stopping, counting, looking;
    drain_done *done; /* somebody wants all of it now; NULL: nobody */
    void *done_ctx;
    uint64_t drained_before;
    int64_t asked_at_ms, wait_ms, give_up_ms; /* `done`: since when, for how long, until when */
    struct buffer_ask rest;                   /* what is left then ... */
    int64_t looked_at_ms;                     /* ... as asked for at this time */
    struct buffer_ask count;
    unsigned looks;       /* that found nothing, in a row */
    unsigned away;        /* rounds that did not reach the ledger, in a row */
    int64_t hold_ms;      /* not before */
    int64_t earned_at_ms; /* with a rate: until then it is counted what may be taken, ... */
    int64_t earned;       /* ... in thousandths of an entry */
    int64_t at_ledger;    /* leased, or about to be */
    int64_t slice;        /* since when those are counted that came back from there: */
    int64_t slices[SLICES];
};

static void next(struct drainer *d);
static void put(struct item *item);
static void settle_send(struct round *r);

static struct engine *engine_of(const struct drainer *d)
{
    return d->runs->engine;
}

/* ---- how many in a second ---- */

/* What was written longer than a second ago counts no more. */
static void forget_written(struct drainer *d)
{
    int64_t slice = engine_of(d)->loop->now_ms / SLICE_MS;
    if (slice - d->slice > SLICES) d->slice = slice - SLICES;
    while (d->slice < slice) d->slices[++d->slice % SLICES] = 0;
}

static void count_written(struct drainer *d, bool regular)
{
    if (!d->runs->config.drain_rate) return;
    forget_written(d);
    d->slices[d->slice % SLICES]++;
    d->at_ledger -= regular;
}

/* What was not taken in time is not made up for: it is taken evenly. */
static void earn(struct drainer *d, int64_t rate)
{
    int64_t now_ms = engine_of(d)->loop->now_ms, since_ms = now_ms - d->earned_at_ms;
    int64_t most = rate * EARNED_MS_MAX > 1000 ? rate * EARNED_MS_MAX : 1000;
    d->earned_at_ms = now_ms;
    d->earned += rate * (since_ms < 1000 ? since_ms : 1000);
    if (d->earned > most) d->earned = most;
}

/* How many may be taken now; 0: none, and the timer is set. No second of the ledger sees more than the
 * rate, however late it is: what is on its way there, or came back within a second, counts. */
static size_t allowance(struct drainer *d)
{
    struct engine *e = engine_of(d);
    int64_t may = (int64_t)d->runs->config.drain_batch, rate = d->runs->config.drain_rate;
    if (!rate) return (size_t)may;
    earn(d, rate);
    forget_written(d);
    int64_t left = rate - d->at_ledger;
    for (int i = 0; i < SLICES; i++) left -= d->slices[i];
    if (left < 1) {
        timer_set(e->loop, &d->timer, (d->slice + 1) * SLICE_MS);
        return 0;
    }
    if (d->earned < 1000) {
        timer_set(e->loop, &d->timer, e->loop->now_ms + (1000 - d->earned + rate - 1) / rate);
        return 0;
    }
    if (may > d->earned / 1000) may = d->earned / 1000;
    if (may > left) may = left;
    d->earned -= may * 1000;
    d->at_ledger += may;
    return (size_t)may;
}

static void give_back(struct drainer *d, size_t not_taken)
{
    if (!d->runs->config.drain_rate) return;
    d->earned += (int64_t)not_taken * 1000;
    d->at_ledger -= (int64_t)not_taken;
}

/* ---- the end of a round ---- */

static void round_free(struct round *r)
{
    struct drainer *d = r->drainer;
    link_remove(&r->link);
    d->regular -= r->regular;
    free((void *)r->lease.weights);
    free((void *)r->settle.settles);
    for (size_t i = 0; r->items && i < r->lease.entries.count; i++)
        run_free(r->items[i].parked);
    buffer_ask_clear(&r->lease);
    free(r->items);
    free(r);
}

/* Whoever wants all of it is told that nothing is left, or why it does not go on. */
static void tell(struct drainer *d, const struct err *err)
{
    drain_done *done = d->done;
    if (!done) return;
    d->done = NULL;
    done(d->runs->stats.drained - d->drained_before, err, d->done_ctx);
}

static void look_later(struct drainer *d)
{
    struct engine *e = engine_of(d);
    if (!d->runs->config.drains && !d->done) return;
    int64_t at_ms =
        e->loop->now_ms + back_off_ms(e->rng, ++d->looks, LOOK_MS_FIRST, LOOK_MS_MAX);
    if (!timer_is_set(&d->timer)) timer_set(e->loop, &d->timer, at_ms);
}

static const struct err no_memory = {
    ERR_NOMEM, "out of memory moving the buffer; what is not moved stays there"
};

/* It is tried again like a look that found nothing; what was leased lapses. */
static void out_of_memory(struct drainer *d)
{
    tell(d, &no_memory);
    if (!d->stopping) look_later(d);
}

/* All that it has goes back: the next one waits. */
static void hold(struct drainer *d, const struct err *why)
{
    struct engine *e = engine_of(d);
    int64_t now_ms = e->loop->now_ms;
    if (d->hold_ms > now_ms) return; /* another round has found out just now */
    d->hold_ms = now_ms + back_off_ms(e->rng, ++d->away, AWAY_MS_FIRST, AWAY_MS_MAX);
    trace_emit(e->trace, (struct trace_event){ .kind = TRACE_DRAIN_AWAY,
                                               .number = why->code,
                                               .text = err_name(why->code),
                                               .detail = why->text });
}

/* A ledger that took some of it is there. */
static bool is_away(const struct round *r)
{
    return r->away.code && !r->written;
}

static void round_timer(struct timer *t)
{
    settle_send(container_of(t, struct round, timer));
}

static bool settles_again(struct round *r)
{
    struct drainer *d = r->drainer;
    struct engine *e = engine_of(d);
    int64_t at_ms =
        e->loop->now_ms + back_off_ms(e->rng, ++r->tries, RETRY_MS_FIRST, RETRY_MS_MAX);
    if (d->stopping || at_ms >= r->until_ms) return false;
    timer_set(e->loop, &r->timer, at_ms);
    return true;
}

/* What was not settled lapses, and is written again: no harm, but it takes as long as the lease. */
static void settled(struct op *op, void *ctx)
{
    struct round *r = ctx;
    struct drainer *d = r->drainer;
    struct err err = op->err;
    op_free(op);
    if (err.code && settles_again(r)) return;
    if (is_away(r)) {
        err_set(&err, ERR_UNAVAILABLE, "what is not moved stays in the buffer: %.140s",
                r->away.text);
        hold(d, &r->away);
        tell(d, &err);
    } else {
        d->away = 0;
    }
    round_free(r);
    next(d);
}

static int64_t pause_ms(const struct round *r, unsigned tries)
{
    if (!tries) return 0;
    return back_off_ms(engine_of(r->drainer)->rng, tries, PAUSE_MS_FIRST, PAUSE_MS_MAX);
}

/* Of the one that was tried most often. */
static unsigned tries_of_refused(const struct round *r)
{
    unsigned tries = 0;
    for (size_t i = 0; i < r->lease.entries.count; i++) {
        const struct item *item = &r->items[i];
        unsigned tried = item->how == SETTLE_FAILED ? item->entry->attempts + 1 : 0;
        if (tried > tries) tries = tried;
    }
    return tries;
}

static void settle_send(struct round *r)
{
    struct drainer *d = r->drainer;
    struct op *op = r->settle.settles ? op_new(VERB_SETTLE, NULL, NULL) : NULL;
    if (!op) {
        hold(d, &no_memory);
        round_free(r);
        out_of_memory(d);
        return;
    }
    op->buffer = &r->settle;
    engine_submit(engine_of(d), op, settled, r);
}

static void settle(struct round *r)
{
    size_t count = r->lease.entries.count;
    struct settle *rows = malloc(count * sizeof *rows);
    for (size_t i = 0; rows && i < count; i++) {
        const struct item *item = &r->items[i];
        rows[i] =
            (struct settle){ .id = item->entry->id, .env = item->entry->env, .how = item->how };
    }
    /* What was not taken although others were is tried again later, and so is what was refused. */
    r->settle = (struct buffer_ask){ .token = r->lease.token,
                                     .settles = rows,
                                     .settle_count = count,
                                     .back_pause_ms = pause_ms(r, r->away.code && r->written),
                                     .failed_pause_ms = pause_ms(r, tries_of_refused(r)) };
    settle_send(r);
}

static void item_done(struct item *item, enum settle_how how)
{
    struct round *r = item->round;
    item->how = how;
    r->written += how == SETTLE_WRITTEN;
    run_ask_clear(&item->ask);
    count_written(r->drainer, r->regular);
    CHECK(r->open > 0);
    if (--r->open == 0) settle(r);
}

/* ---- one entry ---- */

static void tell_poison(const struct item *item, int code, const char *why)
{
    trace_emit(engine_of(item->round->drainer)->trace,
               (struct trace_event){ .kind = TRACE_POISON,
                                     .scope = item->entry->env,
                                     .key = run_id_bytes(&item->entry->id),
                                     .number = code,
                                     .text = why });
}

static void written(struct item *item)
{
    struct drainer *d = item->round->drainer;
    struct engine *e = engine_of(d);
    struct run_stats *stats = &d->runs->stats;
    const struct run *run = item->ask.rows.count ? item->ask.rows.rows[0] : NULL;
    int64_t lag_ms = item->round->lease.now_ms - item->entry->accepted_at_ms;
    stats->drained++;
    d->give_up_ms = e->loop->now_ms + d->wait_ms;
    stats->parked += item->parked || item->ask.put == PUT_FAILED;
    histogram_add(&stats->drain_lag, &histogram_us, lag_ms > 0 ? (uint64_t)lag_ms * 1000 : 0);
    if (item->ask.put == PUT_ALIAS) {
        stats->aliased++;
        trace_emit(e->trace, (struct trace_event){ .kind = TRACE_ALIAS,
                                                   .scope = item->entry->env,
                                                   .key = run_id_bytes(&item->entry->id) });
    }
    if (item->ask.put == PUT_FAILED) tell_poison(item, 0, outcome_name(OUTCOME_MISMATCH));
    if (run) work_ring(e, run->env, run->queue);
    item_done(item, SETTLE_WRITTEN);
}

static void item_timer(struct timer *t)
{
    put(container_of(t, struct item, timer));
}

static bool retries(struct item *item)
{
    struct drainer *d = item->round->drainer;
    struct engine *e = engine_of(d);
    int64_t at_ms =
        e->loop->now_ms + back_off_ms(e->rng, ++item->tries, RETRY_MS_FIRST, RETRY_MS_MAX);
    if (d->stopping || at_ms >= item->round->until_ms - LEASE_MARGIN_MS) return false;
    d->runs->stats.drain_retried++;
    timer_set(e->loop, &item->timer, at_ms);
    return true;
}

/* The ledger did not take it, and not because of it. */
static void not_taken(struct item *item, const struct err *err)
{
    struct round *r = item->round;
    if (!r->away.code) r->away = *err;
    r->drainer->runs->stats.drain_retried++;
    item_done(item, SETTLE_BACK);
}

/* Of an entry that is no run: enough to be found. */
static struct run unreadable_run(const struct entry *entry)
{
    struct bytes unknown = bytes_str("unreadable");
    return (struct run){ .id = entry->id,
                         .env = entry->env,
                         .task = unknown,
                         .queue = unknown,
                         .state = RUN_QUEUED,
                         .attempts_max = 1,
                         .created_at_ms = entry->accepted_at_ms };
}

/* With all that was done to it, unless that makes no sense either. NULL: out of memory. */
static struct run *parked_run(const struct item *item, const struct err *why)
{
    int64_t now_ms = wall_ms(engine_of(item->round->drainer));
    struct run_scratch scratch;
    struct run run = item->run, *copy = NULL;
    struct err err;
    run_scratch_init(&scratch);
    int r = run_fold(&item->run, item->entry->changes, &scratch, &run, &err);
    if (r != ERR_NOMEM) r = rules_run_park(&run, why->text, now_ms, &scratch, &run, &err);
    if (!r) copy = run_copy(&run);
    run_scratch_fini(&scratch);
    return copy;
}

/* The ledger has refused it. After some attempts, which are counted, it is written as a FAILED run; if
 * that is refused, too, it stays in the buffer, and is tried again, for ever but seldom. */
static void poisoned(struct item *item, const struct err *err)
{
    struct drainer *d = item->round->drainer;
    d->runs->stats.drain_failed++;
    tell_poison(item, err->code, err_name(err->code));
    if (item->parked || item->entry->attempts + 1 < ATTEMPTS_MAX) {
        item_done(item, SETTLE_FAILED);
        return;
    }
    item->parked = parked_run(item, err);
    if (item->parked)
        put(item);
    else
        not_taken(item, &no_memory);
}

/* The same id for every drainer that finds the entry. False: out of memory. */
static bool another_id(const struct entry *entry, struct run_id *ret_id)
{
    uint8_t hash[SHA256_BYTES];
    struct bytes pieces[] = { run_id_bytes(&entry->id), entry->run };
    if (!sha256_pieces(pieces, 2, hash)) return false;
    run_id_make(run_id_ms(&entry->id), hash, ret_id);
    return true;
}

/* Two were acknowledged with one id, one here and one in the ledger, which did not know of each other.
 * The id leads to that one; what this one is about must not be lost without a word. */
static void id_taken(struct item *item)
{
    static const struct err why = { ERR_INVALID,
                                    "its id is that of a run about something else" };
    struct run_id id;
    tell_poison(item, 0, outcome_name(OUTCOME_MISMATCH));
    if (item->parked) {
        item_done(item, SETTLE_FAILED);
        return;
    }
    if (another_id(item->entry, &id)) item->parked = parked_run(item, &why);
    if (!item->parked) {
        not_taken(item, &no_memory);
        return;
    }
    item->parked->id = id;
    run_ask_clear(&item->ask); /* which has the other one */
    put(item);
}

/* Whatever else is wrong, is wrong with the ledger. */
static bool is_poison(int code)
{
    return code == ERR_CORRUPT || code == ERR_INVALID || code == ERR_LIMIT;
}

/* It came to the ledger when its lease was about to lapse. From then on others may change the entry, and
 * are told that it counts: what was read before must not be written. */
static void too_late(struct item *item)
{
    struct drainer *d = item->round->drainer;
    d->runs->stats.drain_retried++;
    trace_emit(engine_of(d)->trace, (struct trace_event){ .kind = TRACE_LOST,
                                                          .scope = item->entry->env,
                                                          .key = run_id_bytes(&item->entry->id),
                                                          .text = "drain" });
    item_done(item, SETTLE_BACK);
}

static void put_answered(struct op *op, void *ctx)
{
    struct item *item = ctx;
    struct err err = op->err;
    enum outcome outcome = op->out.outcome;
    op_free(op);
    if (!err.code) {
        if (outcome == OUTCOME_LOST)
            too_late(item);
        else if (outcome == OUTCOME_MISMATCH)
            id_taken(item);
        else
            written(item);
        return;
    }
    if (err.code == ERR_AMBIGUOUS && retries(item)) return;
    if (is_poison(err.code))
        poisoned(item, &err);
    else
        not_taken(item, &err);
}

static void put(struct item *item)
{
    struct engine *e = engine_of(item->round->drainer);
    struct op *op = op_new(VERB_RUN_PUT, NULL, NULL);
    if (!op) {
        not_taken(item, &no_memory);
        return;
    }
    item->ask =
        (struct run_ask){ .env = item->entry->env,
                          .run = item->parked ? item->parked : &item->run,
                          .changes = item->parked ? bytes_of(NULL, 0) : item->entry->changes,
                          .drains = true,
                          .until_ms = item->round->until_ms - LEASE_MARGIN_MS };
    op->run = &item->ask;
    op->lane = item->run.key.len ? item->run.key : run_id_bytes(&item->entry->id);
    engine_submit(e, op, put_answered, item);
}

static void begin(struct item *item)
{
    const struct entry *entry = item->entry;
    bool readable = run_decode(entry->run, &item->run);
    bool same =
        readable && bytes_eq(item->run.env, entry->env) && run_id_eq(&item->run.id, &entry->id);
    if (same) {
        put(item);
        return;
    }
    if (!readable) item->run = unreadable_run(entry);
    item->run.env = entry->env;
    item->run.id = entry->id;
    poisoned(item, readable ? &(struct err){ ERR_CORRUPT, "the run is another one" }
                            : &(struct err){ ERR_CORRUPT, "what was accepted is no run" });
}

/* ---- what is left ---- */

/* What came since it was asked for does not count: what is younger than that when it is looked at. */
static bool all_moved(const struct drainer *d)
{
    if (d->rest.queued + d->rest.leased == 0) return true;
    return d->rest.oldest_ms < d->looked_at_ms - d->asked_at_ms;
}

static void rest_counted(struct op *op, void *ctx)
{
    struct drainer *d = ctx;
    struct err err = op->err;
    d->looking = false;
    op_free(op);
    if (!err.code && !all_moved(d) && engine_of(d)->loop->now_ms >= d->give_up_ms)
        err_set(&err, ERR_UNAVAILABLE,
                "%llu left in the buffer: another drainer has them, or they were refused "
                "and are tried again later",
                (unsigned long long)(d->rest.queued + d->rest.leased));
    if (err.code || all_moved(d)) tell(d, &err);
    if (!d->stopping) look_later(d);
}

/* Nothing could be leased. That is not all that there may be: who has leased it may be dead. */
static void look_for_rest(struct drainer *d)
{
    if (d->looking) return;
    struct op *op = op_new(VERB_BUFFER_STATS, NULL, NULL);
    if (!op) {
        out_of_memory(d);
        return;
    }
    op->buffer = &d->rest;
    d->looking = true;
    d->looked_at_ms = engine_of(d)->loop->now_ms;
    engine_submit(engine_of(d), op, rest_counted, d);
}

/* ---- a round ---- */

static void leased(struct op *op, void *ctx)
{
    struct round *r = ctx;
    struct drainer *d = r->drainer;
    size_t count = r->lease.entries.count;
    struct err err = op->err;
    op_free(op);
    if (count && !err.code) r->items = calloc(count, sizeof *r->items);
    if (r->regular) give_back(d, r->lease.limit - (r->items ? count : 0));
    if (count && !err.code && !r->items) {
        round_free(r);
        out_of_memory(d);
        return;
    }
    if (err.code || !count) {
        bool regular = r->regular;
        round_free(r);
        if (err.code) tell(d, &err);
        if (d->done && d->regular) return; /* the other round goes on, and nobody has to wait */
        if (d->done && regular)
            look_for_rest(d);
        else if (!d->stopping)
            look_later(d);
        return;
    }
    d->looks = 0;
    r->open = count;
    for (size_t i = 0; i < count; i++) {
        r->items[i] = (struct item){ .round = r, .entry = r->lease.entries.rows[i] };
        timer_init(&r->items[i].timer, item_timer);
    }
    for (size_t i = 0; i < count; i++) begin(&r->items[i]);
    next(d);
}

static struct round *round_new(struct drainer *d, bool regular)
{
    struct engine *e = engine_of(d);
    struct round *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->drainer = d;
    r->regular = regular;
    r->until_ms = e->loop->now_ms + d->runs->config.drain_lease_ms;
    r->lease.lease_ms = d->runs->config.drain_lease_ms;
    r->lease.env_limit = d->runs->config.drain_env_max;
    r->lease.weights = burst_weights(d->runs, &r->lease.weight_count);
    timer_init(&r->timer, round_timer);
    e->rng->fill(e->rng, r->lease.token.bytes, sizeof r->lease.token.bytes);
    link_init(&r->link);
    list_append(&d->rounds, &r->link);
    d->regular += regular;
    return r;
}

static void round_start(struct round *r)
{
    struct op *op = op_new(VERB_DRAIN_LEASE, NULL, NULL);
    if (!op) {
        struct drainer *d = r->drainer;
        if (r->regular) give_back(d, r->lease.limit);
        round_free(r);
        out_of_memory(d);
        return;
    }
    op->buffer = &r->lease;
    engine_submit(engine_of(r->drainer), op, leased, r);
}

static void next(struct drainer *d)
{
    struct engine *e = engine_of(d);
    if (d->stopping || (!d->runs->config.drains && !d->done)) return;
    if (d->regular >= ROUNDS_AT_ONCE || timer_is_set(&d->timer)) return;
    if (d->hold_ms > e->loop->now_ms) {
        timer_set(e->loop, &d->timer, d->hold_ms);
        return;
    }
    size_t may = allowance(d);
    if (!may) return;
    struct round *r = round_new(d, true);
    if (!r) {
        give_back(d, may);
        out_of_memory(d);
        return;
    }
    r->lease.limit = may;
    round_start(r);
}

static void timer_fired(struct timer *t)
{
    next(container_of(t, struct drainer, timer));
}

void drainer_wake(struct engine *e)
{
    struct drainer *d = e->runs->drainer;
    if (!d || d->hold_ms > e->loop->now_ms || d->runs->config.drain_rate) return;
    d->looks = 0;
    if (timer_is_set(&d->timer)) timer_set(e->loop, &d->timer, e->loop->now_ms);
}

int engine_drain(struct engine *e, int64_t wait_ms, drain_done *done, void *ctx,
                 struct err *reterr)
{
    struct drainer *d = e->runs->drainer;
    if (!d) return err_set(reterr, ERR_UNSUPPORTED, "there is no buffer to be drained");
    if (d->stopping || d->done)
        return err_set(reterr, ERR_CANCELED, "the buffer is being drained already, or closing");
    d->done = done;
    d->done_ctx = ctx;
    d->drained_before = d->runs->stats.drained;
    d->asked_at_ms = e->loop->now_ms;
    d->wait_ms = wait_ms;
    d->give_up_ms = e->loop->now_ms + wait_ms;
    d->hold_ms = 0;
    timer_set(e->loop, &d->timer, e->loop->now_ms);
    return 0;
}

void drainer_take(struct engine *e, struct bytes env, const struct run_id *id)
{
    struct drainer *d = e->runs->drainer;
    struct round *r = d && !d->stopping ? round_new(d, false) : NULL;
    if (!r) return; /* its turn comes anyway */
    memcpy(r->env, env.data, env.len);
    r->lease.env = bytes_of(r->env, env.len);
    r->lease.id = *id;
    r->lease.limit = 1;
    round_start(r);
}

/* ---- how much there is ---- */

static void counted(struct op *op, void *ctx)
{
    struct drainer *d = ctx;
    struct engine *e = engine_of(d);
    struct run_stats *stats = &d->runs->stats;
    d->counting = false;
    stats->buffer_known = !op->err.code;
    if (!op->err.code) {
        stats->buffer_queued = d->count.queued;
        stats->buffer_leased = d->count.leased;
        stats->buffer_oldest_ms = d->count.oldest_ms;
    }
    op_free(op);
    if (!d->stopping) timer_set(e->loop, &d->count_timer, e->loop->now_ms + COUNT_MS);
}

static void count_timer(struct timer *t)
{
    struct drainer *d = container_of(t, struct drainer, count_timer);
    struct engine *e = engine_of(d);
    struct op *op = op_new(VERB_BUFFER_STATS, NULL, NULL);
    if (!op) {
        timer_set(e->loop, t, e->loop->now_ms + COUNT_MS);
        return;
    }
    op->buffer = &d->count;
    d->counting = true;
    engine_submit(e, op, counted, d);
}

/* ---- life ---- */

int drainer_init(struct runs *r)
{
    struct engine *e = r->engine;
    if (!has(e, CAP_BUFFER) || !has(e, CAP_RUNS)) return 0;
    struct drainer *d = calloc(1, sizeof *d);
    if (!d) return ERR_NOMEM;
    r->drainer = d;
    d->runs = r;
    list_init(&d->rounds);
    timer_init(&d->timer, timer_fired);
    timer_init(&d->count_timer, count_timer);
    int64_t first_ms = e->loop->now_ms + r->config.drain_after_ms;
    if (r->config.drains) timer_set(e->loop, &d->timer, first_ms);
    if (r->config.watches) timer_set(e->loop, &d->count_timer, first_ms);
    return 0;
}

/* What is at the ledger is settled; what waits to be asked again goes back, or lapses. */
void drainer_stop(struct engine *e)
{
    struct drainer *d = e->runs->drainer;
    if (!d) return;
    d->stopping = true;
    tell(d, &(struct err){ ERR_CANCELED, "the handle is closing" });
    timer_stop(e->loop, &d->timer);
    timer_stop(e->loop, &d->count_timer);
    list_each (&d->rounds, at) {
        struct round *r = container_of(at, struct round, link);
        if (timer_is_set(&r->timer)) timer_set(e->loop, &r->timer, e->loop->now_ms);
        for (size_t i = 0; r->items && i < r->lease.entries.count; i++)
            if (timer_is_set(&r->items[i].timer))
                timer_set(e->loop, &r->items[i].timer, e->loop->now_ms);
    }
}

bool drainer_idle(const struct engine *e)
{
    const struct drainer *d = e->runs->drainer;
    return !d || (list_empty(&d->rounds) && !d->counting && !d->looking);
}

void drainer_fini(struct runs *r)
{
    struct drainer *d = r->drainer;
    if (!d) return;
    CHECK(list_empty(&d->rounds));
    timer_stop(r->engine->loop, &d->timer);
    timer_stop(r->engine->loop, &d->count_timer);
    free(d);
    r->drainer = NULL;
}
