/* drain.c - moves the buffer into the ledger, in rounds: lease some entries, put each into the ledger
 * (drain_entry.c; the store makes one statement of them), settle all. How many there are in a second is
 * reckoned in drain_rate.c.
 *
 * Guarantees: an entry is settled as written only after the ledger has it; whatever happens in
 * between, its lease lapses and somebody else does it again. A ledger that is away costs no attempts: its
 * entries go back, and the next round waits, longer every time. What the ledger refuses goes back, too,
 * with a pause that is longer every time, and nobody else waits for it.
 *
 *   lease --> put, put, put --> settle --> the next, at once if there was more than fits a round
 *     '--none: look again in a while, or when something is accepted here */
#include "base/check.h"
#include "engine/drain_internal.h"

#include <stdlib.h>

enum {
    ROUNDS_AT_ONCE = 3, /* while one is at the ledger, others are on their way there and back */
    LOOK_MS_FIRST = 50,
    LOOK_MS_MAX = 1000,
    AWAY_MS_FIRST = 100,
    AWAY_MS_MAX = 30000,
    PAUSE_MS_FIRST = 500, /* of what was refused, by its attempts */
    PAUSE_MS_MAX = 30000,
    COUNT_MS = 1000,
};

static void next(struct drainer *d);
static void settle_send(struct round *r);

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
    struct engine *e = drainer_engine(d);
    if (!d->runs->config.drains && !d->done) return;
    int64_t at_ms =
        e->loop->now_ms + back_off_ms(e->rng, ++d->looks, LOOK_MS_FIRST, LOOK_MS_MAX);
    if (!timer_is_set(&d->timer)) timer_set(e->loop, &d->timer, at_ms);
}

const struct err drain_no_memory = {
    ERR_NOMEM, "out of memory moving the buffer; what is not moved stays there"
};

/* It is tried again like a look that found nothing; what was leased lapses. */
static void out_of_memory(struct drainer *d)
{
    tell(d, &drain_no_memory);
    if (!d->stopping) look_later(d);
}

/* All that it has goes back: the next one waits. */
static void hold(struct drainer *d, const struct err *why)
{
    struct engine *e = drainer_engine(d);
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
    struct engine *e = drainer_engine(d);
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
    return back_off_ms(drainer_engine(r->drainer)->rng, tries, PAUSE_MS_FIRST, PAUSE_MS_MAX);
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
        hold(d, &drain_no_memory);
        round_free(r);
        out_of_memory(d);
        return;
    }
    op->buffer = &r->settle;
    engine_submit(drainer_engine(d), op, settled, r);
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

void drain_item_done(struct item *item, enum settle_how how)
{
    struct round *r = item->round;
    item->how = how;
    r->written += how == SETTLE_WRITTEN;
    run_ask_clear(&item->ask);
    drain_rate_written(&r->drainer->rate, r->regular, drainer_engine(r->drainer)->loop->now_ms);
    CHECK(r->open > 0);
    if (--r->open == 0) settle(r);
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
    if (!err.code && !all_moved(d) && drainer_engine(d)->loop->now_ms >= d->give_up_ms)
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
    d->looked_at_ms = drainer_engine(d)->loop->now_ms;
    engine_submit(drainer_engine(d), op, rest_counted, d);
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
    if (r->regular) drain_rate_give_back(&d->rate, r->lease.limit - (r->items ? count : 0));
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
    for (size_t i = 0; i < count; i++)
        drain_item_init(&r->items[i], r, r->lease.entries.rows[i]);
    for (size_t i = 0; i < count; i++) drain_item_begin(&r->items[i]);
    next(d);
}

static struct round *round_new(struct drainer *d, bool regular)
{
    struct engine *e = drainer_engine(d);
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
        if (r->regular) drain_rate_give_back(&d->rate, r->lease.limit);
        round_free(r);
        out_of_memory(d);
        return;
    }
    op->buffer = &r->lease;
    engine_submit(drainer_engine(r->drainer), op, leased, r);
}

/* How many may be taken now; 0: none, and the timer is set. */
static size_t allowance(struct drainer *d)
{
    struct loop *loop = drainer_engine(d)->loop;
    int64_t again_ms;
    size_t may =
        drain_rate_take(&d->rate, d->runs->config.drain_batch, loop->now_ms, &again_ms);
    if (!may) timer_set(loop, &d->timer, again_ms);
    return may;
}

static void next(struct drainer *d)
{
    struct engine *e = drainer_engine(d);
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
        drain_rate_give_back(&d->rate, may);
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
    struct engine *e = drainer_engine(d);
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
    struct engine *e = drainer_engine(d);
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
    d->rate.per_second = r->config.drain_rate;
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
