/* offload_test.c - a real worker thread in front of a store that blocks when it is told to. */
#include "store/store.h"

#include "base/check.h"
#include "store/run_op.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MANY = 2001, BATCHES = 64 };

/* Memory behind a gate. Another process is an op that is executed when foreign_wrote() looks.
 */
struct gated {
    struct store base;
    struct store *memory;
    int fd;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool shut, inside; /* inside: the worker stands at the gate */
    size_t batches[BATCHES], batch_count;
    struct op *foreign;
    unsigned looks;
};

static struct world world;
static struct gated gated;
static struct store *store;
static pthread_t loop_thread;

static void gated_exec(struct store *s, struct op **ops, size_t count)
{
    struct gated *g = (struct gated *)s;
    pthread_mutex_lock(&g->lock);
    if (g->batch_count < BATCHES) g->batches[g->batch_count++] = count;
    g->inside = true;
    pthread_cond_broadcast(&g->changed);
    while (g->shut) pthread_cond_wait(&g->changed, &g->lock);
    g->inside = false;
    for (size_t i = 0; i < count; i++) /* it keeps no runs */
        if (ops[i]->verb != VERB_RUN_PUT) g->memory->class->exec(g->memory, &ops[i], 1);
    pthread_mutex_unlock(&g->lock);
}

static int gated_foreign_fd(struct store *s)
{
    return ((struct gated *)s)->fd;
}

static bool gated_foreign_wrote(struct store *s)
{
    struct gated *g = (struct gated *)s;
    uint64_t count;
    pthread_mutex_lock(&g->lock);
    g->looks++;
    struct op *op = g->foreign;
    g->foreign = NULL;
    if (op) g->memory->class->exec(g->memory, &op, 1);
    if (op && g->fd >= 0) CHECK(read(g->fd, &count, sizeof count) == sizeof count);
    pthread_mutex_unlock(&g->lock);
    if (op) op_free(op);
    return op != NULL;
}

static void gated_close(struct store *s)
{
    struct gated *g = (struct gated *)s;
    store_close(g->memory);
    if (g->fd >= 0) close(g->fd);
}

static const struct store_class gated_class = { .scheme = "gated",
                                                .close = gated_close,
                                                .exec = gated_exec,
                                                .foreign_fd = gated_foreign_fd,
                                                .foreign_wrote = gated_foreign_wrote };

/* Sleeps until the loop is woken, then turns it. */
static void turn(void)
{
    loop_sleep(&world.loop, -1);
    loop_turn(&world.loop, world.mono_ms);
}

static void open_with(int fd)
{
    struct err err;
    world_init(&world, 1);
    cr_assert(loop_open(&world.loop, &err) == 0);
    loop_thread = pthread_self();
    gated = (struct gated){ .fd = fd };
    pthread_mutex_init(&gated.lock, NULL);
    pthread_cond_init(&gated.changed, NULL);
    cr_assert(store_open_bare("memory:", &world.env, &gated.memory, &err) == 0);
    unsigned caps = CAP_CLAIMS | CAP_NOTIFY | CAP_SHARED | CAP_BLOCKS;
    gated.base = (struct store){ .class = &gated_class, .caps = caps, .loop = &world.loop };
    cr_assert(offload_open(&gated.base, &world.env, &store, &err) == 0);
}

static void setup(void)
{
    open_with(eventfd(0, EFD_CLOEXEC));
}

static void teardown(void)
{
    store_close(store);
    world_fini(&world);
}

TestSuite(offload, .init = setup, .fini = teardown, .timeout = 60);

static void gate(bool shut)
{
    pthread_mutex_lock(&gated.lock);
    gated.shut = shut;
    pthread_cond_broadcast(&gated.changed);
    pthread_mutex_unlock(&gated.lock);
}

static void wait_until_inside(void)
{
    pthread_mutex_lock(&gated.lock);
    while (!gated.inside) pthread_cond_wait(&gated.changed, &gated.lock);
    pthread_mutex_unlock(&gated.lock);
}

static unsigned finished_count;

static void finished(struct op *op, void *ctx)
{
    cr_assert(pthread_equal(pthread_self(), loop_thread), "ops finish on the loop's thread");
    size_t number = (size_t)(uintptr_t)ctx;
    cr_assert(number == 0 || number == finished_count + 1, "%zu after %u", number,
              finished_count);
    finished_count++;
    (void)op;
}

static struct op *submit(enum verb verb, const char *name, uint8_t who, size_t number)
{
    struct key key = key_of("s", name);
    struct request in = { .token = token_of(who), .lease_ms = 30000, .retain_ms = 60000 };
    struct op *op = op_new(verb, verb_info[verb].keyed ? &key : NULL, &in);
    op_push(op, finished, (void *)(uintptr_t)number); /* 0: in any order */
    store_submit(store, op);
    return op;
}

static void turn_until(unsigned count)
{
    while (finished_count < count) turn();
    cr_assert(finished_count == count);
}

Test(offload, answers_come_back_on_the_loop)
{
    struct op *op = submit(VERB_CLAIM, "k", 1, 1);
    cr_assert(finished_count == 0);
    turn_until(1);
    cr_assert(op->out.outcome == OUTCOME_CLAIMED);
    op_free(op);
}

Test(offload, what_waits_while_exec_runs_becomes_one_batch)
{
    struct op *ops[51];
    gate(true);
    ops[0] = submit(VERB_CLAIM, "k", 1, 1);
    wait_until_inside();
    for (uint8_t i = 1; i <= 50; i++)
        ops[i] = submit(VERB_CLAIM, "k", (uint8_t)(i + 1), i + 1u);
    gate(false);
    turn_until(51);
    cr_assert(gated.batch_count == 2 && gated.batches[0] == 1 && gated.batches[1] == 50);
    cr_assert(ops[0]->out.outcome == OUTCOME_CLAIMED);
    for (unsigned i = 0; i <= 50; i++) {
        if (i) cr_assert(ops[i]->out.outcome == OUTCOME_IN_PROGRESS);
        op_free(ops[i]);
    }
}

Test(offload, a_crowd_is_cut_into_batches_and_keeps_its_order)
{
    static struct op *ops[MANY];
    gate(true);
    ops[0] = submit(VERB_PEEK, "k", 0, 1);
    wait_until_inside();
    for (size_t i = 1; i < MANY; i++) ops[i] = submit(VERB_PEEK, "k", 0, i + 1);
    gate(false);
    turn_until(MANY);
    cr_assert(gated.batch_count == 3);
    cr_assert(gated.batches[1] == 1024 && gated.batches[2] == MANY - 1 - 1024);
    for (size_t i = 0; i < MANY; i++) op_free(ops[i]);
}

/* What is drained, while somebody waits for something else. */
Test(offload, what_nobody_waits_for_comes_last_and_a_little_at_a_time)
{
    static struct op *ops[102];
    struct run_ask drained = { .drains = true };
    store->caps |= CAP_RUNS;
    gate(true);
    ops[0] = submit(VERB_PEEK, "k", 0, 1);
    wait_until_inside();
    for (size_t i = 1; i <= 100; i++) {
        ops[i] = op_new(VERB_RUN_PUT, NULL, NULL);
        ops[i]->run = &drained;
        op_push(ops[i], finished, (void *)(uintptr_t)(i + 2));
        store_submit(store, ops[i]);
    }
    ops[101] = submit(VERB_PEEK, "k", 0, 2); /* the last to come is the next to be answered */
    gate(false);
    turn_until(102);
    cr_assert(gated.batches[1] == 65, "%zu", gated.batches[1]);
    for (size_t i = 0; i < 102; i++) op_free(ops[i]);
}

static struct op *second;

static void ask_again(struct op *op, void *ctx)
{
    (void)op, (void)ctx;
    finished_count++;
    second = submit(VERB_PEEK, "k", 0, 0);
}

/* The first is answered while another waits already, which is returned. */
static struct op *one_waits_behind(struct op **ret_first, op_done *done)
{
    struct key key = key_of("s", "k");
    *ret_first = op_new(VERB_PEEK, &key, NULL);
    op_push(*ret_first, done, NULL);
    gate(true);
    store_submit(store, *ret_first);
    wait_until_inside();
    struct op *waiting = submit(VERB_PEEK, "j", 0, 0);
    gate(false);
    return waiting;
}

Test(offload, who_asks_again_at_once_is_in_the_next_batch)
{
    gated.base.gather = (struct gather){ .ops = 8, .us = 3600 * INT64_C(1000000) };
    struct op *first, *waiting = one_waits_behind(&first, ask_again);
    turn_until(3);
    cr_assert(gated.batch_count == 2 && gated.batches[0] == 1 && gated.batches[1] == 2);
    op_free(first);
    op_free(second);
    op_free(waiting);
}

Test(offload, who_does_not_ask_again_is_not_waited_for_for_long)
{
    gated.base.gather = (struct gather){ .ops = 8, .us = 1000 };
    struct op *first, *waiting = one_waits_behind(&first, finished);
    turn_until(2);
    cr_assert(gated.batch_count == 2 && gated.batches[1] == 1);
    op_free(first);
    op_free(waiting);
}

/* The second time it would wait for an hour. */
Test(offload, what_was_not_worth_a_wait_is_not_waited_for_again_at_once)
{
    struct op *first, *waiting;
    gated.base.gather = (struct gather){ .ops = 8, .us = 1000 };
    waiting = one_waits_behind(&first, finished);
    turn_until(2);
    op_free(first);
    op_free(waiting);
    gated.base.gather = (struct gather){ .ops = 8, .us = 3600 * INT64_C(1000000) };
    waiting = one_waits_behind(&first, finished);
    turn_until(4);
    op_free(first);
    op_free(waiting);
}

Test(offload, enough_that_wait_already_wait_for_nobody)
{
    gated.base.gather = (struct gather){ .ops = 1, .us = 3600 * INT64_C(1000000) };
    struct op *first, *waiting = one_waits_behind(&first, finished);
    turn_until(2);
    op_free(first);
    op_free(waiting);
}

static void fire(struct timer *t)
{
    (void)t;
}

Test(offload, the_loop_goes_on_while_exec_blocks)
{
    struct timer timer;
    timer_init(&timer, fire);
    gate(true);
    struct op *op = submit(VERB_CLAIM, "k", 1, 1);
    wait_until_inside();
    timer_set(&world.loop, &timer, world.mono_ms + 1);
    loop_turn(&world.loop, ++world.mono_ms);
    cr_assert(!timer_is_set(&timer) && finished_count == 0);
    gate(false);
    turn_until(1);
    op_free(op);
}

/* ---- watches ---- */

static uint64_t claim_by_one(void)
{
    struct op *op = submit(VERB_CLAIM, "k", 1, 0);
    turn_until(1);
    uint64_t seen = op->out.version;
    op_free(op);
    return seen;
}

static struct op *submit_watch(uint64_t seen)
{
    struct key key = key_of("s", "k");
    struct op *op = op_new(VERB_WATCH, &key, NULL);
    op->seen = seen;
    op_push(op, finished, NULL);
    store_submit(store, op);
    return op;
}

/* An op behind the watch has come back: then the watch was executed, and is parked. */
static void pass_by(unsigned count)
{
    struct op *op = submit(VERB_PING, "", 0, 0);
    turn_until(count);
    op_free(op);
}

Test(offload, watch_is_woken_by_our_own_change)
{
    struct op *watch = submit_watch(claim_by_one());
    pass_by(2);
    cr_assert(watch->parked);
    struct op *release = submit(VERB_RELEASE, "k", 1, 0);
    turn_until(4);
    cr_assert(!watch->err.code && release->out.outcome == OUTCOME_OK);
    op_free(release);
    op_free(watch);
}

static void release_as_another_process(void)
{
    uint64_t one = 1;
    struct key key = key_of("s", "k");
    struct request in = { .token = token_of(1) };
    pthread_mutex_lock(&gated.lock);
    gated.foreign = op_new(VERB_RELEASE, &key, &in);
    pthread_mutex_unlock(&gated.lock);
    if (gated.fd >= 0) cr_assert(write(gated.fd, &one, sizeof one) == sizeof one);
}

Test(offload, watch_is_woken_by_anothers_change)
{
    struct op *watch = submit_watch(claim_by_one());
    pass_by(2);
    release_as_another_process();
    turn_until(3);
    cr_assert(!watch->err.code && watch->out.version == 0);
    op_free(watch);
}

Test(offload, watch_is_woken_by_anothers_change_without_a_descriptor)
{
    teardown();
    open_with(-1);
    struct op *watch = submit_watch(claim_by_one());
    pass_by(2);
    release_as_another_process();
    turn_until(3);
    cr_assert(!watch->err.code && watch->out.version == 0);
    op_free(watch);
}

Test(offload, nobody_looks_for_others_while_nobody_watches)
{
    claim_by_one();
    release_as_another_process();
    pass_by(2);
    pass_by(3);
    cr_assert(gated.looks == 0);
    op_free(gated.foreign);
}

Test(offload, canceled_watch_finishes_once)
{
    struct op *watch = submit_watch(claim_by_one());
    pass_by(2);
    store_cancel(store, watch);
    cr_assert(finished_count == 2, "not inside cancel");
    turn_until(3);
    cr_assert(watch->err.code == ERR_CANCELED);
    op_free(watch);
}

Test(offload, watch_canceled_while_it_is_executed_finishes_once)
{
    uint64_t seen = claim_by_one();
    gate(true);
    struct op *watch = submit_watch(seen);
    wait_until_inside();
    store_cancel(store, watch);
    gate(false);
    turn_until(2);
    cr_assert(!watch->parked);
    op_free(watch);
}

Test(offload, many_rounds_under_load_lose_nothing)
{
    enum { ROUNDS = 200, PER_ROUND = 20 };
    struct op *ops[PER_ROUND];
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (uint8_t i = 0; i < PER_ROUND; i++)
            ops[i] = submit(VERB_CLAIM, "k", (uint8_t)(i + 1), round * PER_ROUND + i + 1u);
        turn_until((round + 1) * PER_ROUND);
        for (unsigned i = 0; i < PER_ROUND; i++) op_free(ops[i]);
    }
}
