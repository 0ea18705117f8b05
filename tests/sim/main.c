/* main.c - runs seeds.
 *
 *   sim [--seeds N] [--from S]     N seeds from S on (2,000 from 1), after the self-tests
 *   sim --seed S [--verbose]       one seed; with every event
 *
 * Self-tests: a seed gives the same run twice, and each checker notices a lie told on purpose.
 */
#include "tests/sim/sim.h"
#include "tests/support/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS_PER_LINE = 100, PLANT_SEEDS = 300, REPEATED_SEEDS = 20 };

static const struct {
    const char *name, *rule, *text;
} plants[PLANTS] = {
#define PLANT_ROW(name, rule, text) [PLANT_##name] = { #name, rule, text },
    SIM_PLANT_LIST(PLANT_ROW)
#undef PLANT_ROW
};

static struct sim_totals totals;

static void add_totals(const struct sim_totals *t)
{
    totals.calls += t->calls;
    totals.claimed += t->claimed;
    totals.cached += t->cached;
    totals.takeovers += t->takeovers;
    totals.errors += t->errors;
    totals.ops += t->ops;
    totals.crashes += t->crashes;
    totals.faults += t->faults;
    totals.events += t->events;
    totals.virtual_ms += t->virtual_ms;
}

static bool run_seed(uint64_t seed, bool verbose)
{
    struct sim_result r = sim_run(seed, &(struct sim_options){ .verbose = verbose });
    add_totals(&r.totals);
    if (r.ok) return true;
    tap_note("seed %" PRIu64 " violates %s: %s", seed, r.rule, r.why);
    tap_note("repeat with: build/tests/sim --seed %" PRIu64 " --verbose", seed);
    return false;
}

static void run_seeds(uint64_t from, uint64_t count)
{
    for (uint64_t done = 0; done < count;) {
        uint64_t first = from + done, failed = 0, n = count - done;
        if (n > SEEDS_PER_LINE) n = SEEDS_PER_LINE;
        for (uint64_t i = 0; i < n; i++) failed += !run_seed(first + i, false);
        tap_result(failed == 0, "seeds %" PRIu64 " to %" PRIu64, first, first + n - 1);
        done += n;
    }
}

static void test_repeats(void)
{
    bool same = true, varied = false;
    uint64_t last = 0;
    for (uint64_t seed = 1; seed <= REPEATED_SEEDS; seed++) {
        struct sim_options options = { 0 };
        uint64_t hash = sim_run(seed, &options).hash;
        same = same && sim_run(seed, &options).hash == hash;
        varied = varied || (last && hash != last);
        last = hash;
    }
    tap_result(same && varied, "the same seed gives the same run, another one another");
}

static void test_plant(enum sim_plant plant)
{
    struct sim_options options = { .plant = plant };
    for (uint64_t seed = 1; seed <= PLANT_SEEDS; seed++) {
        struct sim_result r = sim_run(seed, &options);
        if (r.ok) continue;
        tap_result(strcmp(r.rule, plants[plant].rule) == 0, "%s notices: %s (seed %" PRIu64 ")",
                   r.rule, plants[plant].text, seed);
        return;
    }
    tap_result(false, "%s does not notice: %s", plants[plant].rule, plants[plant].text);
}

static void print_totals(void)
{
    tap_note("%" PRIu64 " calls, %" PRIu64 " executions, %" PRIu64 " replays, %" PRIu64
             " takeovers, %" PRIu64 " errors",
             totals.calls, totals.claimed, totals.cached, totals.takeovers, totals.errors);
    tap_note("%" PRIu64 " store ops, %" PRIu64 " events, %" PRIu64 " faults, %" PRIu64
             " crashes, %.1f days of simulated time",
             totals.ops, totals.events, totals.faults, totals.crashes,
             (double)totals.virtual_ms / 86400e3);
}

static uint64_t number(const char *text)
{
    return text ? strtoull(text, NULL, 10) : 0;
}

int main(int argc, char **argv)
{
    uint64_t seeds = 2000, from = 1, one = 0;
    bool verbose = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--seeds") == 0)
            seeds = number(value), i++;
        else if (strcmp(argv[i], "--from") == 0)
            from = number(value), i++;
        else if (strcmp(argv[i], "--seed") == 0)
            one = number(value), i++;
        else if (strcmp(argv[i], "--verbose") == 0)
            verbose = true;
        else
            return fprintf(stderr,
                           "usage: sim [--seeds N] [--from S] [--seed S] [--verbose]\n"),
                   2;
    }
    if (one) {
        tap_result(run_seed(one, verbose), "seed %" PRIu64, one);
        print_totals();
        return tap_end();
    }
    test_repeats();
    for (int p = PLANT_NONE + 1; p < PLANTS; p++) test_plant((enum sim_plant)p);
    run_seeds(from, seeds);
    print_totals();
    return tap_end();
}
