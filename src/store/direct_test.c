/* direct_test.c - one turn's ops are one batch, finished in order, in the next turn. */
#include "store/store.h"

#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { MANY = 600 };

/* A store that notes the batches it is given and answers OK to everything. */
struct noting {
    struct store base;
    size_t batches[8], batch_count, total;
};

static struct world world;
static struct noting *noting;
static struct store *store;
static size_t order[MANY], order_count;

static void noting_exec(struct store *s, struct op **ops, size_t count)
{
    struct noting *n = (struct noting *)s;
    cr_assert(n->batch_count < 8);
    n->batches[n->batch_count++] = count;
    for (size_t i = 0; i < count; i++) {
        op_clear_answer(ops[i]);
        ops[i]->out.outcome = OUTCOME_OK;
        ops[i]->count = n->total++;
    }
}

static void noting_close(struct store *s)
{
    free(s);
}

static const struct store_class noting_class = { .scheme = "noting",
                                                 .close = noting_close,
                                                 .exec = noting_exec };

static void setup(void)
{
    struct err err;
    world_init(&world, 1);
    noting = calloc(1, sizeof *noting);
    noting->base = (struct store){ .class = &noting_class, .caps = CAP_CLAIMS | CAP_NOTIFY };
    cr_assert(direct_open(&noting->base, &world.env, &store, &err) == 0);
}

static void teardown(void)
{
    world_close(&world, store);
    world_fini(&world);
}

TestSuite(direct, .init = setup, .fini = teardown);

static void finished(struct op *op, void *ctx)
{
    (void)ctx;
    order[order_count++] = op->count;
    op_free(op);
}

static void submit_pings(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct op *op = op_new(VERB_PING, NULL, NULL);
        op_push(op, finished, NULL);
        store_submit(store, op);
    }
}

Test(direct, one_turn_is_one_batch)
{
    submit_pings(10);
    cr_assert(noting->batch_count == 0 && order_count == 0, "nothing happens inside submit");
    loop_turn(&world.loop, world.mono_ms);
    cr_assert(noting->batch_count == 1 && noting->batches[0] == 10 && order_count == 10);
}

Test(direct, a_crowd_is_cut_into_batches_and_keeps_its_order)
{
    submit_pings(MANY);
    world_settle(&world);
    cr_assert(noting->batch_count == 3);
    cr_assert(noting->batches[0] == 256 && noting->batches[1] == 256 &&
              noting->batches[2] == 88);
    cr_assert(order_count == MANY);
    for (size_t i = 0; i < MANY; i++) cr_assert(order[i] == i);
}

static void resubmit(struct op *op, void *ctx)
{
    unsigned *left = ctx;
    if (--*left == 0) {
        op_free(op);
        return;
    }
    op_push(op, resubmit, ctx);
    store_submit(store, op);
}

Test(direct, an_op_submitted_from_done_runs_in_a_later_turn)
{
    unsigned left = 3;
    struct op *op = op_new(VERB_PING, NULL, NULL);
    op_push(op, resubmit, &left);
    store_submit(store, op);
    loop_turn(&world.loop, world.mono_ms);
    cr_assert(left == 2 && noting->batch_count == 1);
    loop_turn(&world.loop, world.mono_ms);
    cr_assert(left == 1 && noting->batch_count == 2);
    loop_turn(&world.loop, world.mono_ms);
    cr_assert(left == 0);
}
