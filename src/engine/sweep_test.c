/* sweep_test.c - what is past retention is removed without being asked, and nothing else. */
#include "engine/engine.h"

#include "tests/support/caller.h"
#include "tests/support/faulty.h"

#include <criterion/criterion.h>
#include <stdio.h>

static struct world world;
static struct store *store;
static struct engine *engine;

static void start(int64_t sweep_ms)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct err err;
    config.sweep_ms = sweep_ms;
    world_init(&world, 1);
    store = faulty_open(world_open(&world, "memory"), &world.env);
    cr_assert(engine_open(store, &world.env, &config, &engine, &err) == 0);
}

static void teardown(void)
{
    engine_stop(engine);
    faulty_let_go(store);
    world_settle(&world);
    engine_free(engine);
    world_close(&world, store);
    world_fini(&world);
}

TestSuite(sweep, .fini = teardown);

/* Published with a retention of 60 s. */
static void make_done(unsigned count)
{
    char name[16];
    for (unsigned i = 0; i < count; i++) {
        struct caller c, p;
        snprintf(name, sizeof name, "k%u", i);
        caller_claim(&c, engine, name, 0);
        world_settle(&world);
        caller_publish(&p, engine, name, &c.token, "A");
        world_settle(&world);
        cr_assert(p.outcome == OUTCOME_OK);
    }
}

Test(sweep, removes_what_is_past_retention)
{
    start(1000);
    make_done(10);
    world_advance(&world, 59999);
    cr_assert(engine_stats(engine).swept == 0);
    world_advance(&world, 1001);
    cr_assert(engine_stats(engine).swept == 10);
}

Test(sweep, pauses_with_jitter_between_half_and_the_whole)
{
    start(1000);
    world_advance(&world, 100000);
    unsigned sweeps = faulty_count(store, VERB_EXPIRE);
    cr_assert(sweeps >= 100 && sweeps <= 200, "%u sweeps in a hundred seconds", sweeps);
}

Test(sweep, goes_on_at_once_after_a_full_batch)
{
    start(600000);
    make_done(2500);
    world_advance(&world, 600000);
    cr_assert(engine_stats(engine).swept == 2500);
    cr_assert(faulty_count(store, VERB_EXPIRE) <= 4);
}

Test(sweep, of_zero_is_never)
{
    start(0);
    world_advance(&world, 1000000);
    cr_assert(faulty_count(store, VERB_EXPIRE) == 0);
}

Test(sweep, that_fails_is_tried_again_later)
{
    start(1000);
    make_done(3);
    faulty_set(store, VERB_EXPIRE, FAULT_REFUSE, FAULTY_ALWAYS);
    world_advance(&world, 70000);
    cr_assert(engine_stats(engine).swept == 0);
    faulty_heal(store);
    world_advance(&world, 1000);
    cr_assert(engine_stats(engine).swept == 3);
}

Test(sweep, in_flight_at_stop_comes_back_quietly)
{
    start(1000);
    faulty_set(store, VERB_EXPIRE, FAULT_HOLD, 1);
    world_advance(&world, 1000);
    cr_assert(faulty_held(store) == 1);
    engine_stop(engine);
    cr_assert(!engine_idle(engine));
    faulty_let_go(store);
    world_advance(&world, 10000);
    cr_assert(engine_idle(engine) && faulty_count(store, VERB_EXPIRE) == 1);
}
