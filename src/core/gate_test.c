/* gate_test.c - the boundaries, the burst that a fixed window lets pass, and random times against a
 * count that looks at everything that ever happened. */
#include "core/gate.h"

#include "base/random.h"

#include <criterion/criterion.h>

enum { ROOM = 256 };

struct scene {
    int64_t times[ROOM];
    struct gate gate;
    struct gate_config config;
};

static void scene_init(struct scene *s, int64_t threshold, int64_t window_ms, int64_t hold_ms)
{
    *s = (struct scene){
        .config = { .threshold = threshold, .window_ms = window_ms, .hold_ms = hold_ms }
    };
    s->gate.times = s->times;
}

static size_t pass(struct scene *s, size_t count, int64_t now_ms)
{
    return gate_pass(&s->gate, &s->config, count, now_ms);
}

Test(gate, defaults)
{
    struct gate_config config = GATE_CONFIG_INIT;
    cr_assert_eq(config.mode, GATE_ON);
    cr_assert(config.threshold == 100 && config.window_ms == 200 && config.hold_ms == 500);
}

Test(gate, what_it_may_be)
{
    static const struct {
        int64_t threshold, window_ms, hold_ms;
        int code;
    } rows[] = {
        { 1, 1, 1, 0 },           { GATE_THRESHOLD_MAX, GATE_MS_MAX, GATE_MS_MAX, 0 },
        { 0, 1, 1, ERR_INVALID }, { GATE_THRESHOLD_MAX + 1, 1, 1, ERR_INVALID },
        { 1, 0, 1, ERR_INVALID }, { 1, GATE_MS_MAX + 1, 1, ERR_INVALID },
        { 1, 1, 0, ERR_INVALID }, { 1, 1, GATE_MS_MAX + 1, ERR_INVALID },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gate_config c = { .threshold = rows[i].threshold,
                                 .window_ms = rows[i].window_ms,
                                 .hold_ms = rows[i].hold_ms };
        struct err err;
        cr_expect_eq(gate_check(&c, &err), rows[i].code, "row %zu", i);
    }
}

Test(gate, as_many_as_the_threshold_pass_and_one_more_trips_it)
{
    struct scene s;
    scene_init(&s, 3, 200, 500);
    cr_assert_eq(pass(&s, 3, 1000), 3);
    cr_assert_eq(s.gate.tripped_until_ms, 0);
    cr_assert_eq(pass(&s, 1, 1199), 0, "the first is still within the window");
    cr_assert_eq(s.gate.tripped_until_ms, 1699);
    cr_assert_eq(pass(&s, 1, 1698), 0);
    cr_assert_eq(pass(&s, 1, 1699), 1);
}

Test(gate, what_is_a_whole_window_old_does_not_count)
{
    struct scene s;
    scene_init(&s, 3, 200, 500);
    cr_assert_eq(pass(&s, 3, 1000), 3);
    cr_assert_eq(pass(&s, 3, 1200), 3);
    cr_assert_eq(pass(&s, 1, 1399), 0);
}

Test(gate, of_many_at_once_the_first_pass)
{
    struct scene s;
    scene_init(&s, 3, 200, 500);
    cr_assert_eq(pass(&s, 10, 1000), 3);
    cr_assert_eq(s.gate.tripped_until_ms, 1500);
    cr_assert_eq(pass(&s, 0, 1000), 0);
}

/* Nobody who is diverted is forgotten: the gate opens `hold_ms` after the last one too many. */
Test(gate, stays_tripped_while_the_storm_lasts)
{
    struct scene s;
    scene_init(&s, 3, 200, 500);
    cr_assert_eq(pass(&s, 4, 1000), 3);
    for (int64_t now_ms = 1040; now_ms < 10000; now_ms += 40)
        cr_assert_eq(pass(&s, 1, now_ms), 0, "at %d", (int)now_ms);
    cr_assert_eq(s.gate.tripped_until_ms, 9960 + 500);
}

Test(gate, opens_although_some_still_come_if_they_are_few)
{
    struct scene s;
    scene_init(&s, 3, 200, 500);
    cr_assert_eq(pass(&s, 4, 1000), 3);
    for (int64_t now_ms = 1200; now_ms < 1500; now_ms += 100)
        cr_assert_eq(pass(&s, 1, now_ms), 0);
    cr_assert_eq(pass(&s, 1, 1500), 1);
}

Test(gate, without_hold_only_what_is_too_many_is_diverted)
{
    struct scene s;
    scene_init(&s, 2, 100, 0);
    cr_assert_eq(pass(&s, 5, 1000), 2);
    cr_assert_eq(pass(&s, 1, 1099), 0, "those that were diverted count");
    cr_assert_eq(pass(&s, 1, 1199), 1);
}

Test(gate, a_threshold_of_one)
{
    struct scene s;
    scene_init(&s, 1, 200, 500);
    cr_assert_eq(pass(&s, 1, 0), 1);
    cr_assert_eq(pass(&s, 1, 200), 1);
    cr_assert_eq(pass(&s, 1, 399), 0);
}

/* A counter that starts again every 200 ms lets 199 of 200 pass that come within 2 ms around its
 * boundary: 100 at its end, 99 at the beginning of the next. */
Test(gate, the_burst_around_a_boundary_does_not_pass)
{
    for (int64_t boundary_ms = 1000; boundary_ms <= 1200; boundary_ms++) {
        struct scene s;
        scene_init(&s, 100, 200, 500);
        size_t passed = pass(&s, 1, boundary_ms - 200); /* the one that starts the window */
        passed += pass(&s, 99, boundary_ms - 1);
        passed += pass(&s, 100, boundary_ms);
        cr_assert_eq(passed, 101, "one a whole window ago, and a hundred");
    }
}

Test(gate, a_clock_that_goes_back_does_not_shut_it)
{
    struct scene s;
    scene_init(&s, 3, 200, 500);
    cr_assert_eq(pass(&s, 4, 3600000), 3);
    cr_assert_eq(pass(&s, 1, 1000), 1);
    cr_assert_eq(pass(&s, 1, 2000), 1);
}

/* ---- against a count of everything ---- */

enum { EVENTS = 400 };

struct history {
    int64_t at_ms[EVENTS];
    bool passed[EVENTS];
    size_t count;
};

static size_t within(const struct history *h, size_t upto, int64_t window_ms, bool passed_only)
{
    size_t n = 0;
    for (size_t i = upto + 1; i > 0 && h->at_ms[i - 1] > h->at_ms[upto] - window_ms; i--)
        n += !passed_only || h->passed[i - 1];
    return n;
}

/* Diverted: it is too many itself, or one within the last `hold_ms` was. */
static bool expected(const struct history *h, size_t at, const struct gate_config *c)
{
    for (size_t i = at + 1; i > 0; i--) {
        bool now = i == at + 1;
        if (!now && h->at_ms[i - 1] + c->hold_ms <= h->at_ms[at]) break;
        if (within(h, i - 1, c->window_ms, false) > (size_t)c->threshold) return false;
    }
    return true;
}

static void play(uint64_t seed, struct scene *s, struct history *h)
{
    struct rng_seeded random;
    int64_t now_ms = 1000;
    rng_seeded_init(&random, seed);
    h->count = 0;
    while (h->count < EVENTS) {
        bool calm = rng_below(&random.base, 4) == 0;
        now_ms += (int64_t)rng_below(&random.base, calm ? 400 : 20);
        h->at_ms[h->count] = now_ms;
        h->passed[h->count] = pass(s, 1, now_ms) == 1;
        h->count++;
    }
}

Test(gate, random_times_as_a_count_of_everything_has_it)
{
    static struct history h;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct scene s;
        scene_init(&s, (int64_t)(1 + seed % 17), 50 + (int64_t)(seed % 7) * 50,
                   (int64_t)(seed % 5) * 100);
        play(seed, &s, &h);
        for (size_t i = 0; i < h.count; i++) {
            cr_assert_eq(h.passed[i], expected(&h, i, &s.config), "seed %d, event %zu",
                         (int)seed, i);
            cr_assert_leq(within(&h, i, s.config.window_ms, true), (size_t)s.config.threshold);
        }
    }
}

/* Many at once are the same as one after another at the same time. */
Test(gate, many_at_once_are_as_many_one_by_one)
{
    struct scene together, apart;
    struct rng_seeded random;
    int64_t now_ms = 0;
    rng_seeded_init(&random, 7);
    scene_init(&together, 20, 200, 300);
    scene_init(&apart, 20, 200, 300);
    for (int i = 0; i < 2000; i++) {
        size_t count = rng_below(&random.base, 12), passed = 0;
        now_ms += (int64_t)rng_below(&random.base, 150);
        for (size_t k = 0; k < count; k++) passed += pass(&apart, 1, now_ms);
        cr_assert_eq(pass(&together, count, now_ms), passed, "step %d", i);
    }
}
