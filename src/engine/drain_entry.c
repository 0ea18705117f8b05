/* drain_entry.c - one entry of a round: from the buffer into the ledger.
 *
 * Guarantees: the id makes the write idempotent, whoever else does it again, and what was changed
 * meanwhile is applied once (U4). Nothing is written when the lease may have lapsed: the entry may have
 * been canceled since. An entry that the ledger refuses for good becomes a FAILED run with the reason and
 * all that can be read of it. Should the ledger not take that either, it stays in the buffer: nothing
 * vanishes. That includes an entry whose id, which its caller has chosen, is that of another run in the
 * ledger: it is written under another one, FAILED. Each ends with how its round is to settle it, once. */
#include "engine/drain_internal.h"

enum {
    ATTEMPTS_MAX = 5,
    /* Before the lease ends: what is not written by then is not any more, and what is not known goes
     * back. PostgreSQL may take as long to carry out what it has begun. */
    LEASE_MARGIN_MS = 5000,
};

static void put(struct item *item);

static void tell_poison(const struct item *item, int code, const char *why)
{
    trace_emit(drainer_engine(item->round->drainer)->trace,
               (struct trace_event){ .kind = TRACE_POISON,
                                     .scope = item->entry->env,
                                     .key = run_id_bytes(&item->entry->id),
                                     .number = code,
                                     .text = why });
}

static void written(struct item *item)
{
    struct drainer *d = item->round->drainer;
    struct engine *e = drainer_engine(d);
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
    drain_item_done(item, SETTLE_WRITTEN);
}

static void item_timer(struct timer *t)
{
    put(container_of(t, struct item, timer));
}

static bool retries(struct item *item)
{
    struct drainer *d = item->round->drainer;
    struct engine *e = drainer_engine(d);
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
    drain_item_done(item, SETTLE_BACK);
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
    int64_t now_ms = wall_ms(drainer_engine(item->round->drainer));
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
        drain_item_done(item, SETTLE_FAILED);
        return;
    }
    item->parked = parked_run(item, err);
    if (item->parked)
        put(item);
    else
        not_taken(item, &drain_no_memory);
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
        drain_item_done(item, SETTLE_FAILED);
        return;
    }
    if (another_id(item->entry, &id)) item->parked = parked_run(item, &why);
    if (!item->parked) {
        not_taken(item, &drain_no_memory);
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
    trace_emit(drainer_engine(d)->trace,
               (struct trace_event){ .kind = TRACE_LOST,
                                     .scope = item->entry->env,
                                     .key = run_id_bytes(&item->entry->id),
                                     .text = "drain" });
    drain_item_done(item, SETTLE_BACK);
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
    struct engine *e = drainer_engine(item->round->drainer);
    struct op *op = op_new(VERB_RUN_PUT, NULL, NULL);
    if (!op) {
        not_taken(item, &drain_no_memory);
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

void drain_item_init(struct item *item, struct round *r, const struct entry *entry)
{
    *item = (struct item){ .round = r, .entry = entry };
    timer_init(&item->timer, item_timer);
}

void drain_item_begin(struct item *item)
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
