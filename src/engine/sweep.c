/* sweep.c - removes what is past retention, in small batches, without being asked.
 *
 * Only garbage collection: a record past its time counts as absent before it is swept. A full
 * batch is followed by the next one at once; otherwise by a pause with jitter, so that the
 * processes of a fleet do not sweep in step. */
#include "base/check.h"
#include "engine/internal.h"

enum { SWEEP_BATCH = 1000 };

static void plan(struct engine *e)
{
    if (e->stopping || e->config.sweep_ms <= 0) return;
    int64_t pause_ms = e->config.sweep_ms / 2 +
                       (int64_t)rng_below(e->rng, (uint64_t)e->config.sweep_ms / 2 + 1);
    timer_set(e->loop, &e->sweep_timer, e->loop->now_ms + pause_ms);
}

static void sweep_done(struct op *op, void *ctx)
{
    struct engine *e = ctx;
    bool full = !op->err.code && op->count == SWEEP_BATCH;
    if (op->count) {
        e->stats.swept += op->count;
        trace_emit(e->trace,
                   (struct trace_event){ .kind = TRACE_SWEPT, .number = (int64_t)op->count });
    }
    op_free(op);
    if (full && !e->stopping)
        timer_set(e->loop, &e->sweep_timer, e->loop->now_ms);
    else
        plan(e);
}

static void sweep_timer(struct timer *t)
{
    struct engine *e = container_of(t, struct engine, sweep_timer);
    struct op *op = op_new(VERB_EXPIRE, NULL, NULL);
    if (!op) {
        plan(e);
        return;
    }
    op->limit = SWEEP_BATCH;
    op->routine = true;
    engine_submit(e, op, sweep_done, e);
}

void sweep_init(struct engine *e)
{
    timer_init(&e->sweep_timer, sweep_timer);
    plan(e);
}

void sweep_stop(struct engine *e)
{
    timer_stop(e->loop, &e->sweep_timer);
}
