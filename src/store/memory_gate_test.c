/* memory_gate_test.c - what only gates in memory promise: that they are forgotten when nobody would
 * miss them, and not before. The rest: tests/conform. */
#include "store/memory_gate.h"

#include "store/store.h"

#include <criterion/criterion.h>
#include <stdio.h>

static const uint64_t seed[2] = { 1, 2 };
static const struct gate_config usual = GATE_CONFIG_INIT;

static size_t passed(struct memory_gates *g, const char *env, struct gate_config config,
                     size_t count, int64_t now_ms)
{
    struct gate_ask ask = { .env = bytes_str(env), .config = config, .count = count };
    cr_assert(memory_gates_ask(g, &ask, now_ms) == 0);
    return ask.passed;
}

static void touch_many(struct memory_gates *g, unsigned count, int64_t now_ms)
{
    for (unsigned i = 0; i < count; i++) {
        char env[16];
        snprintf(env, sizeof env, "env-%u", i);
        cr_expect(passed(g, env, usual, 1, now_ms) == 1);
    }
}

Test(memory_gate, idle_ones_are_dropped_as_others_are_asked)
{
    struct memory_gates g;
    cr_assert(memory_gates_init(&g, seed) == 0);
    touch_many(&g, 1000, 5000);
    cr_expect(g.by_env.count == 1000);
    for (int i = 0; i < 300; i++) passed(&g, "busy", usual, 1, 5000 + usual.window_ms);
    cr_expect(g.by_env.count == 1, "%zu are left", g.by_env.count);
    memory_gates_fini(&g);
}

Test(memory_gate, none_is_dropped_that_still_counts)
{
    struct memory_gates g;
    cr_assert(memory_gates_init(&g, seed) == 0);
    cr_expect(passed(&g, "full", usual, 100, 5000) == 100);
    cr_expect(passed(&g, "tripped", usual, 101, 5000) == 100);
    int64_t just_before_ms = 5000 + usual.window_ms - 1;
    touch_many(&g, 100, just_before_ms);
    cr_expect(passed(&g, "full", usual, 1, just_before_ms) == 0);
    just_before_ms = 5000 + usual.hold_ms - 1;
    touch_many(&g, 100, just_before_ms);
    cr_expect(passed(&g, "tripped", usual, 1, just_before_ms) == 0);
    memory_gates_fini(&g);
}

/* Every size against every other, with a ring that has gone around: the newest are kept in order. */
Test(memory_gate, resizing_keeps_the_newest)
{
    for (int64_t from = 1; from <= 7; from++)
        for (int64_t to = 1; to <= 7; to++) {
            struct memory_gates g;
            cr_assert(memory_gates_init(&g, seed) == 0);
            struct gate_config config = { .threshold = from, .window_ms = 1000 };
            for (int64_t ms = 0; ms < 10; ms++) passed(&g, "e", config, 1, 5000 + ms);
            config.threshold = to;
            /* those of 5000 + ms count until 6000 + ms: one place is free with each */
            int64_t kept = from < to ? from : to;
            int64_t first_ms = 5010 - kept;
            size_t free_now = (size_t)(to - kept);
            cr_expect(passed(&g, "e", config, 10, first_ms + 999) == free_now, "%lld to %lld",
                      (long long)from, (long long)to);
            memory_gates_fini(&g);
        }
}

static int64_t wall_ms = 5000;

static int64_t test_now_ms(void *ctx)
{
    (void)ctx;
    return wall_ms;
}

static size_t ask_store(struct store *s, size_t count)
{
    struct gate_ask ask = { .env = bytes_str("e"), .config = usual, .count = count };
    struct op *op = op_new(VERB_GATE, NULL, NULL);
    cr_assert(op);
    op->gate = &ask;
    s->class->exec(s, &op, 1);
    cr_expect(op->err.code == 0 && op->out.outcome == OUTCOME_OK);
    cr_expect(op->epoch == s->epoch);
    op_free(op);
    return ask.passed;
}

Test(memory_gate, flush_forgets_them)
{
    struct loop loop;
    struct rng_seeded rng;
    struct err err;
    struct store *s;
    loop_init(&loop, 0);
    rng_seeded_init(&rng, 1);
    struct store_env env = { .loop = &loop,
                             .wall = { .now_ms = test_now_ms },
                             .rng = &rng.base };
    cr_assert(store_open_bare("memory:", &env, &s, &err) == 0);
    cr_expect(s->caps & CAP_GATE);
    cr_expect(ask_store(s, 101) == 100);
    cr_expect(ask_store(s, 1) == 0);
    memory_flush(s);
    cr_expect(ask_store(s, 1) == 1);
    store_close(s);
    loop_fini(&loop);
}
