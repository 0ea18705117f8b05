/* lanes.c - several connections to one store, each with its own batches.
 *
 * Guarantees: an op about a key goes to the lane of that key, so ops on one key keep their
 * order and a watch stands where the changes to its key pass by; everything else goes to the
 * first lane. Which lane is a matter of this process alone.
 *
 * Who looks at a run does not wait for those who write some: there are lanes for that, too. What was
 * written before somebody asks is seen, whichever lane it was written by. A sweep of markers, which
 * deletes tens of thousands of rows, holds up nobody either. */
#include "base/map.h"
#include "store/store.h"

#include <stdlib.h>

struct lanes {
    struct store base;
    uint64_t seed[2];
    unsigned
        count; /* of the first ones; behind them are the readers, behind those the sweepers */
    unsigned readers, sweepers;
    struct store *lanes[STORE_LANES_MAX];
};

static unsigned lanes_count(const struct lanes *l)
{
    return l->count + l->readers + l->sweepers;
}

static struct store *lane_of(const struct lanes *l, const struct op *op)
{
    if (op->verb == VERB_MARKERS_SWEEP && op->limit && l->sweepers)
        return l->lanes[l->count + l->readers];
    struct bytes same = op->frame.len ? op->frame : op->lane;
    bool looks = op->verb == VERB_RUN_GET || op->verb == VERB_RUN_LIST;
    unsigned first = looks && l->readers ? l->count : 0;
    if (same.len == 0) return l->lanes[first];
    return l->lanes[first + siphash13(l->seed, same) % (first ? l->readers : l->count)];
}

static void lanes_submit(struct store *s, struct op *op)
{
    store_submit(lane_of((struct lanes *)s, op), op);
}

static void lanes_cancel(struct store *s, struct op *op)
{
    store_cancel(lane_of((struct lanes *)s, op), op);
}

static bool lanes_idle(const struct store *s)
{
    const struct lanes *l = (const struct lanes *)s;
    for (unsigned i = 0; i < lanes_count(l); i++)
        if (!store_idle(l->lanes[i])) return false;
    return true;
}

static void lanes_meters(struct store *s, const char *plane, meter_say *say, void *ctx)
{
    struct lanes *l = (struct lanes *)s;
    for (unsigned i = 0; i < lanes_count(l); i++) store_meters(l->lanes[i], plane, say, ctx);
}

static void lanes_close(struct store *s)
{
    struct lanes *l = (struct lanes *)s;
    for (unsigned i = 0; i < lanes_count(l); i++) store_close(l->lanes[i]);
    free(l);
}

static const struct store_class lanes_class = {
    .scheme = "lanes",
    .close = lanes_close,
    .submit = lanes_submit,
    .cancel = lanes_cancel,
    .idle = lanes_idle,
    .meters = lanes_meters,
};

int lanes_open(struct store **lanes, struct lane_counts counts, const struct store_env *env,
               struct store **ret_store, struct err *reterr)
{
    unsigned apart = counts.readers + counts.sweepers;
    CHECK(counts.count > apart && counts.count <= STORE_LANES_MAX);
    struct lanes *l = malloc(sizeof *l);
    if (!l) {
        for (unsigned i = 0; i < counts.count; i++) store_close(lanes[i]);
        return err_set(reterr, ERR_NOMEM, "out of memory opening a store");
    }
    *l = (struct lanes){ .seed = { rng_u64(env->rng), rng_u64(env->rng) },
                         .count = counts.count - apart,
                         .readers = counts.readers,
                         .sweepers = counts.sweepers };
    for (unsigned i = 0; i < counts.count; i++) l->lanes[i] = lanes[i];
    l->base = (struct store){ .class = &lanes_class,
                              .caps = lanes[0]->caps,
                              .loop = env->loop,
                              .epoch = lanes[0]->epoch };
    *ret_store = &l->base;
    return 0;
}
