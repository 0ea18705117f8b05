/* lanes_test.c - several stores behind one: who gets what, and who is told. */
#include "store/store.h"

#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum {
    WRITERS = 3,
    READERS = 1,
    SWEEPERS = 1,
    LANES = WRITERS + READERS + SWEEPERS,
    KEYS = 200
};

/* Memory that counts what it is asked for. */
struct counted {
    struct store base;
    struct store *memory;
    size_t keyed, other;
};

static struct world world;
static struct counted counted[LANES];
static struct store *store;

static void counted_exec(struct store *s, struct op **ops, size_t count)
{
    struct counted *c = (struct counted *)s;
    for (size_t i = 0; i < count; i++) {
        if (verb_info[ops[i]->verb].keyed)
            c->keyed++;
        else
            c->other++;
    }
    if (ops[0]->verb <= VERB_PING) c->memory->class->exec(c->memory, ops, count);
}

static void counted_close(struct store *s)
{
    store_close(((struct counted *)s)->memory);
}

static const struct store_class counted_class = { .scheme = "counted",
                                                  .close = counted_close,
                                                  .exec = counted_exec };

static void setup(void)
{
    struct err err;
    struct store *lanes[LANES];
    world_init(&world, 1);
    for (size_t i = 0; i < LANES; i++) {
        counted[i] = (struct counted){ .base = { .class = &counted_class,
                                                 .caps = CAP_CLAIMS | CAP_RUNS | CAP_MARKERS |
                                                         CAP_NOTIFY,
                                                 .loop = &world.loop,
                                                 .epoch = 7 } };
        cr_assert(store_open_bare("memory:", &world.env, &counted[i].memory, &err) == 0);
        cr_assert(direct_open(&counted[i].base, &world.env, &lanes[i], &err) == 0);
    }
    cr_assert(lanes_open(lanes, (struct lane_counts){ LANES, READERS, SWEEPERS }, &world.env,
                         &store, &err) == 0);
}

static void teardown(void)
{
    world_close(&world, store);
    world_fini(&world);
}

TestSuite(lanes, .init = setup, .fini = teardown);

static enum outcome claim(unsigned n, uint8_t who)
{
    char name[16];
    snprintf(name, sizeof name, "k%u", n);
    struct key key = key_of("s", name);
    struct request in = { .token = token_of(who), .lease_ms = 1000, .retain_ms = 1000 };
    struct op *op = op_new(VERB_CLAIM, &key, &in);
    world_run(&world, store, op);
    enum outcome outcome = op->out.outcome;
    op_free(op);
    return outcome;
}

Test(lanes, keys_are_spread_and_stay_where_they_are)
{
    for (unsigned n = 0; n < KEYS; n++) cr_assert(claim(n, 1) == OUTCOME_CLAIMED);
    for (size_t i = 0; i < WRITERS; i++) cr_assert(counted[i].keyed > KEYS / LANES / 4);
    cr_assert(counted[WRITERS].keyed == 0, "it is for those who look at runs");
    for (unsigned n = 0; n < KEYS; n++) cr_assert(claim(n, 2) == OUTCOME_IN_PROGRESS);
}

Test(lanes, what_has_no_key_goes_to_the_first)
{
    for (int i = 0; i < 10; i++) {
        struct op *op = op_new(VERB_PING, NULL, NULL);
        world_run(&world, store, op);
        cr_assert(op->err.code == 0);
        op_free(op);
    }
    cr_assert(counted[0].other == 10);
    for (size_t i = 1; i < LANES; i++) cr_assert(counted[i].other == 0);
}

static void ask_markers(size_t limit)
{
    struct op *op = op_new(VERB_MARKERS_SWEEP, NULL, NULL);
    op->limit = limit;
    world_run(&world, store, op);
    op_free(op);
}

Test(lanes, sweep_of_markers_has_its_own_and_a_look_at_them_has_not)
{
    ask_markers(0);
    ask_markers(10);
    ask_markers(10);
    cr_assert(counted[0].other == 1 && counted[WRITERS + READERS].other == 2);
}

static void ask_run(enum verb verb, const char *place)
{
    struct run_ask ask = { 0 };
    struct op *op = op_new(verb, NULL, NULL);
    op->run = &ask;
    op->lane = bytes_str(place);
    world_run(&world, store, op);
    op_free(op);
}

Test(lanes, who_looks_at_runs_does_not_wait_for_those_who_write)
{
    size_t written = 0;
    for (unsigned n = 0; n < KEYS; n++) {
        char place[16];
        snprintf(place, sizeof place, "run%u", n);
        ask_run(VERB_RUN_GET, place);
        ask_run(VERB_RUN_LIST, "");
        ask_run(VERB_RUN_PUT, place);
    }
    cr_assert(counted[WRITERS].other == 2 * KEYS);
    for (size_t i = 0; i < WRITERS; i++) {
        cr_assert(counted[i].other > KEYS / LANES / 4);
        written += counted[i].other;
    }
    cr_assert(written == KEYS);
}

static void count_done(struct op *op, void *ctx)
{
    (void)op;
    ++*(unsigned *)ctx;
}

Test(lanes, watch_stands_where_its_key_is_changed)
{
    unsigned done = 0;
    struct op *watches[KEYS];
    for (unsigned n = 0; n < KEYS; n++) {
        char name[16];
        snprintf(name, sizeof name, "k%u", n);
        struct key key = key_of("s", name);
        watches[n] = op_new(VERB_WATCH, &key, NULL);
        op_push(watches[n], count_done, &done);
        store_submit(store, watches[n]);
    }
    world_settle(&world);
    cr_assert(done == 0);
    for (unsigned n = 0; n < KEYS / 2; n++) {
        cr_assert(claim(n, 1) == OUTCOME_CLAIMED);
        cr_assert(done == n + 1);
    }
    for (unsigned n = KEYS / 2; n < KEYS; n++) store_cancel(store, watches[n]);
    world_settle(&world);
    cr_assert(done == KEYS);
    for (unsigned n = 0; n < KEYS; n++) op_free(watches[n]);
}

Test(lanes, it_looks_like_one_of_them)
{
    cr_assert(store->epoch == 7 &&
              store->caps == (CAP_CLAIMS | CAP_RUNS | CAP_MARKERS | CAP_NOTIFY));
    cr_assert(store_idle(store));
}
