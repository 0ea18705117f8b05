/* markers.c - deletes markers that have expired, in every process whose ledger has some.
 *
 * Only garbage collection: a marker past its time counts as absent before it is deleted. A full batch is
 * followed by the next one at once, so that the sweep keeps up with whatever is inserted; otherwise
 * by a pause with jitter, so that the processes of a fleet do not sweep in step. Where no markers are
 * installed, that is found out once and looked at again rarely. A batch that fails, because it took too
 * long for instance, is followed by a smaller one. */
#include "engine/internal.h"

enum {
    BATCH_MAX = 50000,
    BATCH_MIN = 1000,
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

static void swept(struct op *op, void *ctx)
{
    struct engine *e = ctx;
    bool failed = op->err.code, only_looked = !op->limit;
    bool more = !failed && (op->markers.more || (only_looked && op->markers.installed));
    if (!failed) count(e, op);
    op_free(op);
    if (failed) e->markers_batch = BATCH_MIN;
    if (more && e->markers_batch < BATCH_MAX)
        e->markers_batch = e->markers_batch < BATCH_MAX / 2 ? e->markers_batch * 2 : BATCH_MAX;
    if (more && !e->stopping)
        timer_set(e->loop, &e->markers_timer, e->loop->now_ms);
    else
        plan(e, failed ? REST_FAILED : e->stats.markers_installed ? 1 : REST_ABSENT);
}

static void markers_timer(struct timer *t)
{
    struct engine *e = container_of(t, struct engine, markers_timer);
    struct op *op = op_new(VERB_MARKERS_SWEEP, NULL, NULL);
    if (!op) {
        plan(e, 1);
        return;
    }
    op->limit = e->stats.markers_installed ? e->markers_batch : 0;
    op->routine = true;
    engine_submit(e, op, swept, e);
}

void markers_init(struct engine *e)
{
    e->markers_batch = BATCH_MAX;
    timer_init(&e->markers_timer, markers_timer);
    if (e->config.markers_ms > 0 && (e->store->caps & CAP_MARKERS)) plan(e, 1);
}

void markers_stop(struct engine *e)
{
    timer_stop(e->loop, &e->markers_timer);
}
