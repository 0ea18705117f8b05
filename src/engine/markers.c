/* markers.c - deletes markers that have expired, in every process whose ledger has some.
 *
 * Only garbage collection: a marker past its time counts as absent before it is deleted. A full batch is
 * followed by the next one at once, so that the sweep keeps up with whatever is inserted; otherwise
 * by a pause with jitter, so that the processes of a fleet do not sweep in step. Where no markers are
 * installed, that is found out once and looked at again rarely. A batch that is too much for the
 * database is followed by half of it, and what fits by slowly more. One that fails is told of, and
 * followed by a look, so that the age of the oldest is known to grow, and a longer pause. */
#include "engine/internal.h"

enum {
    BATCH_MIN = 1000, /* after failures of which nobody knows the reason */
    REST_ABSENT = 60, /* pauses between two looks where there are none ... */
    REST_FAILED = 6,  /* ... and after a failure */
};

static void plan(struct engine *e, int64_t pauses)
{
    if (e->stopping) return;
    int64_t pause_ms = e->config.markers_ms * pauses;
    pause_ms = pause_ms / 2 + (int64_t)rng_below(e->rng, (uint64_t)pause_ms / 2 + 1);
    timer_set(e->loop, &e->markers_timer, e->loop->now_ms + pause_ms);
}

static void count(struct engine *e, const struct op *op)
{
    struct engine_stats *stats = &e->stats;
    uint64_t took_us = (uint64_t)(e->loop->now_us - op->submitted_us);
    stats->markers_installed = op->markers.installed;
    stats->markers_oldest_ms = (uint64_t)op->markers.oldest_ms;
    if (!op->count) return;
    stats->markers_swept += op->count;
    histogram_add(&stats->markers_batches, &histogram_us, took_us);
    trace_emit(e->trace, (struct trace_event){ .kind = TRACE_MARKERS_SWEPT,
                                               .number = (int64_t)op->count });
}

static void failed(struct engine *e, const struct op *op)
{
    trace_emit(e->trace, (struct trace_event){ .kind = TRACE_MARKERS_FAILED,
                                               .number = (int64_t)op->limit,
                                               .text = err_name(op->err.code),
                                               .detail = op->err.text });
    if (!op->limit) return;
    e->markers_failed = true;
    if (e->markers_batch > BATCH_MIN) e->markers_batch /= 2;
}

static void go_on(struct engine *e)
{
    if (!e->stopping) timer_set(e->loop, &e->markers_timer, e->loop->now_ms);
}

/* What to do next. A look that follows a failure is followed by the pause. */
static void next(struct engine *e, bool looked, bool worked, bool more)
{
    bool looks_now = e->markers_failed && !looked;
    bool rests = e->markers_failed || !worked;
    if (looked) e->markers_failed = false;
    if (looks_now || (more && !rests)) {
        go_on(e);
        return;
    }
    plan(e, rests ? REST_FAILED : e->stats.markers_installed ? 1 : REST_ABSENT);
}

static void swept(struct op *op, void *ctx)
{
    struct engine *e = ctx;
    bool looked = !op->limit, worked = !op->err.code;
    bool more = op->markers.more || (looked && op->markers.installed);
    if (worked) {
        count(e, op);
        e->markers_batch = markers_batch_next(e->markers_batch, &op->markers);
    } else {
        failed(e, op);
    }
    op_free(op);
    next(e, looked, worked, more);
}

static void markers_timer(struct timer *t)
{
    struct engine *e = container_of(t, struct engine, markers_timer);
    struct op *op = op_new(VERB_MARKERS_SWEEP, NULL, NULL);
    if (!op) {
        plan(e, 1);
        return;
    }
    bool looks = !e->stats.markers_installed || e->markers_failed;
    op->limit = looks ? 0 : e->markers_batch;
    op->routine = true;
    engine_submit(e, op, swept, e);
}

void markers_init(struct engine *e)
{
    e->markers_batch = MARKERS_BATCH_MAX;
    timer_init(&e->markers_timer, markers_timer);
    if (e->config.markers_ms > 0 && (e->store->caps & CAP_MARKERS)) plan(e, 1);
}

void markers_stop(struct engine *e)
{
    timer_stop(e->loop, &e->markers_timer);
}
