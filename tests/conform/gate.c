/* gate.c - a gate that lets no window of its length pass more than its threshold, wherever it
 * begins, and stays tripped for as long as it holds after the last one that was too many. */
#include "tests/conform/buffer.h"

enum { ASKED_MAX = 512 };

#define HOUR_MS INT64_C(3600000)

static struct gate_ask asked[ASKED_MAX];
static size_t asked_count;

static const struct gate_config usual = GATE_CONFIG_INIT; /* 100 in 200 ms, holds 500 ms */

static const struct gate_ask *gate_with(const char *env, struct gate_config config,
                                        size_t count)
{
    cr_assert(asked_count < ASKED_MAX);
    struct gate_ask *g = &asked[asked_count++];
    *g = (struct gate_ask){ .env = bytes_str(env), .config = config, .count = count };
    struct op *op = op_new(VERB_GATE, NULL, NULL);
    cr_assert(op);
    op->gate = g;
    op->lane = g->env;
    struct waiting *w = submit(op);
    world_settle(&world);
    cr_assert(w->finished == 1);
    cr_assert(op->err.code == 0, "%s", op->err.text);
    expect(op, OUTCOME_OK);
    return g;
}

static const struct gate_ask *gate(const char *env, size_t count)
{
    return gate_with(env, usual, count);
}

static void expect_gate(const struct gate_ask *g, size_t passed, int64_t tripped_ms)
{
    cr_assert(g->passed == passed, "%zu of %zu passed, expected %zu", g->passed, g->count,
              passed);
    cr_assert(g->tripped_ms == tripped_ms, "tripped for %lld ms, expected %lld",
              (long long)g->tripped_ms, (long long)tripped_ms);
}

GATE_CASE(gate, exactly_the_threshold_passes)
{
    for (int i = 0; i < 100; i++) expect_gate(gate("e", 1), 1, 0);
}

GATE_CASE(gate, one_more_trips)
{
    for (int i = 0; i < 100; i++) gate("e", 1);
    expect_gate(gate("e", 1), 0, 500);
    expect_gate(gate("e", 1), 0, 500);
}

GATE_CASE(gate, many_at_once_pass_as_if_one_by_one)
{
    expect_gate(gate("e", 60), 60, 0);
    expect_gate(gate("e", 60), 40, 500);
    expect_gate(gate("e", 60), 0, 500);
    expect_gate(gate("f", 100), 100, 0);
    expect_gate(gate("g", 101), 100, 500);
    expect_gate(gate("h", 1000), 100, 500);
}

GATE_CASE(gate, what_left_the_window_does_not_count)
{
    expect_gate(gate("e", 100), 100, 0);
    world_advance(&world, 200);
    expect_gate(gate("e", 100), 100, 0);
    world_advance(&world, 199);
    expect_gate(gate("e", 1), 0, 500);
}

GATE_CASE(gate, slides)
{
    expect_gate(gate("e", 50), 50, 0);
    world_advance(&world, 100);
    expect_gate(gate("e", 50), 50, 0);
    world_advance(&world, 100);
    expect_gate(gate("e", 50), 50, 0);
    world_advance(&world, 99);
    expect_gate(gate("e", 1), 0, 500);
}

/* A counter that starts again with every window would let 199 pass within 2 ms. */
GATE_CASE(gate, burst_around_a_boundary_does_not_pass)
{
    int64_t to_boundary_ms = 200 - world.wall_ms % 200;
    world_advance(&world, to_boundary_ms - 1);
    size_t passed = gate("e", 99)->passed;
    world_advance(&world, 2);
    passed += gate("e", 100)->passed;
    cr_assert(passed == 100, "%zu passed within 2 ms", passed);
}

GATE_CASE(gate, no_window_lets_more_than_the_threshold_pass)
{
    size_t passed[1000] = { 0 };
    for (int ms = 0; ms < 1000; ms += 7) {
        passed[ms] = gate("e", 1 + (size_t)(ms % 13))->passed;
        world_advance(&world, 7);
        size_t in_window = 0;
        for (int i = ms; i > ms - 200 && i >= 0; i--) in_window += passed[i];
        cr_assert(in_window <= 100, "%zu in the window that ends at %d ms", in_window, ms);
    }
}

GATE_CASE(gate, is_tripped_until_it_has_held)
{
    gate("e", 101);
    world_advance(&world, 250);
    expect_gate(gate("e", 1), 0, 250);
    world_advance(&world, 249);
    expect_gate(gate("e", 1), 0, 1);
    world_advance(&world, 1);
    expect_gate(gate("e", 1), 1, 0);
}

GATE_CASE(gate, holds_from_the_last_that_was_too_many)
{
    gate("e", 101);
    world_advance(&world, 100);
    expect_gate(gate("e", 1), 0, 500);
    world_advance(&world, 499);
    expect_gate(gate("e", 1), 0, 1);
    world_advance(&world, 1);
    expect_gate(gate("e", 1), 1, 0);
}

GATE_CASE(gate, diverted_ones_count)
{
    gate("e", 101);
    for (int i = 0; i < 10; i++) {
        world_advance(&world, 400);
        expect_gate(gate("e", 101), 0, 500);
    }
}

GATE_CASE(gate, envs_are_independent)
{
    gate("e", 101);
    expect_gate(gate("f", 100), 100, 0);
    expect_gate(gate("", 100), 100, 0);
    expect_gate(gate("", 1), 0, 500);
    expect_gate(gate("g", 1), 1, 0);
    expect_gate(gate("e", 1), 0, 500);
}

GATE_CASE(gate, asks_in_flight_together_are_counted_together)
{
    static struct gate_ask together[120];
    for (size_t i = 0; i < 120; i++) {
        together[i] = (struct gate_ask){ .env = bytes_str("e"), .config = usual, .count = 1 };
        struct op *op = op_new(VERB_GATE, NULL, NULL);
        cr_assert(op);
        op->gate = &together[i];
        op->lane = together[i].env;
        submit(op);
    }
    world_settle(&world);
    size_t passed = 0;
    for (size_t i = 0; i < 120; i++) passed += together[i].passed;
    cr_assert(passed == 100, "%zu passed", passed);
}

GATE_CASE(gate, threshold_of_one)
{
    struct gate_config one = { .threshold = 1, .window_ms = 50, .hold_ms = 10 };
    expect_gate(gate_with("e", one, 1), 1, 0);
    expect_gate(gate_with("e", one, 1), 0, 10);
    world_advance(&world, 49);
    expect_gate(gate_with("e", one, 1), 0, 10);
    world_advance(&world, 50);
    expect_gate(gate_with("e", one, 2), 1, 10);
}

GATE_CASE(gate, without_hold_only_those_too_many_are_diverted)
{
    struct gate_config brief = { .threshold = 10, .window_ms = 100, .hold_ms = 0 };
    expect_gate(gate_with("e", brief, 15), 10, 0);
    world_advance(&world, 100);
    expect_gate(gate_with("e", brief, 10), 10, 0);
}

GATE_CASE(gate, threshold_may_be_raised)
{
    struct gate_config low = { .threshold = 10, .window_ms = 200, .hold_ms = 500 };
    struct gate_config high = { .threshold = 20, .window_ms = 200, .hold_ms = 500 };
    expect_gate(gate_with("e", low, 10), 10, 0);
    expect_gate(gate_with("e", high, 11), 10, 500);
}

GATE_CASE(gate, threshold_may_be_lowered)
{
    struct gate_config low = { .threshold = 10, .window_ms = 200, .hold_ms = 500 };
    struct gate_config high = { .threshold = 20, .window_ms = 200, .hold_ms = 500 };
    expect_gate(gate_with("e", high, 5), 5, 0);
    world_advance(&world, 100);
    expect_gate(gate_with("e", high, 8), 8, 0);
    world_advance(&world, 100);
    expect_gate(gate_with("e", low, 3), 2, 500);
}

GATE_CASE(gate, highest_threshold)
{
    struct gate_config high = { .threshold = GATE_THRESHOLD_MAX,
                                .window_ms = GATE_MS_MAX,
                                .hold_ms = GATE_MS_MAX };
    for (int i = 0; i < 10; i++) expect_gate(gate_with("e", high, 10000), 10000, 0);
    expect_gate(gate_with("e", high, 1), 0, GATE_MS_MAX);
}

/* ---- a clock that goes back: what was counted is as if it had been counted now ---- */

GATE_CASE(gate_clock_back, what_passed_still_counts)
{
    expect_gate(gate("e", 60), 60, 0);
    world.wall_ms -= HOUR_MS;
    expect_gate(gate("e", 60), 40, 500);
}

GATE_CASE(gate_clock_back, does_not_trip_for_ever)
{
    gate("e", 100);
    world.wall_ms -= HOUR_MS;
    expect_gate(gate("e", 1), 0, 500);
    world_advance(&world, 700);
    expect_gate(gate("e", 100), 100, 0);
}

GATE_CASE(gate_clock_back, does_not_hold_for_ever)
{
    gate("e", 101);
    world.wall_ms -= HOUR_MS;
    const struct gate_ask *g = gate("e", 1);
    cr_assert(g->passed == 0 && g->tripped_ms <= 500, "%lld", (long long)g->tripped_ms);
    world_advance(&world, 700);
    expect_gate(gate("e", 1), 1, 0);
}

GATE_CASE(gate_clock_back, shorter_than_the_window)
{
    expect_gate(gate("e", 100), 100, 0);
    world.wall_ms -= 50;
    expect_gate(gate("e", 1), 0, 500);
    world_advance(&world, 500);
    expect_gate(gate("e", 100), 100, 0);
}
