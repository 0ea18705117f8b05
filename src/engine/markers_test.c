/* markers_test.c - markers that have expired are deleted, in batches that keep up, and nothing is
 * asked of a ledger without any. */
#include "engine/engine.h"

#include "tests/support/faulty.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>

enum { BATCH = 50000 };

/* A ledger that has nothing but markers. */
struct ledger {
    struct store base;
    bool installed;
    size_t expired;
    int64_t oldest_ms;
    size_t fits;                  /* more than so many at once take too long; 0: nothing does */
    size_t asked[256], ask_count; /* limits, in order */
};

static struct world world;
static struct ledger ledger;
static struct store *store;
static struct engine *engine;
static unsigned failures; /* told of */

static void hear(void *ctx, const struct trace_event *event)
{
    (void)ctx;
    if (event->kind != TRACE_MARKERS_FAILED) return;
    failures++;
    cr_assert(event->text && event->detail && *event->detail, "what went wrong");
}

static const struct trace trace = { .emit = hear };

static void ledger_exec(struct store *s, struct op **ops, size_t count)
{
    struct ledger *l = (struct ledger *)s;
    for (size_t i = 0; i < count; i++) {
        struct op *op = ops[i];
        op_clear_answer(op);
        op->out.outcome = OUTCOME_OK;
        if (op->verb != VERB_MARKERS_SWEEP) continue;
        if (l->ask_count < 256) l->asked[l->ask_count++] = op->limit;
        if (!l->installed) continue;
        op->markers = (struct marker_stats){ .installed = true, .ttl_ms = 1000 };
        op->markers.oldest_ms = l->expired ? l->oldest_ms : 0;
        if (l->fits && op->limit > l->fits) {
            op->markers.fits = op->limit / 2;
            op->markers.more = true;
            continue;
        }
        op->count = l->expired < op->limit ? l->expired : op->limit;
        l->expired -= op->count;
        op->markers.more = op->limit && op->count == op->limit;
    }
}

static void ledger_close(struct store *s)
{
    (void)s;
}

static const struct store_class ledger_class = { .scheme = "ledger",
                                                 .close = ledger_close,
                                                 .exec = ledger_exec };

static void start(int64_t markers_ms, unsigned caps)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct store *direct;
    struct err err;
    config.sweep_ms = 0;
    config.markers_ms = markers_ms;
    world_init(&world, 1);
    world.env.trace = &trace;
    ledger = (struct ledger){
        .base = { .class = &ledger_class, .caps = CAP_CLAIMS | caps, .loop = &world.loop },
        .oldest_ms = 1234,
    };
    cr_assert(direct_open(&ledger.base, &world.env, &direct, &err) == 0);
    store = faulty_open(direct, &world.env);
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

TestSuite(markers, .fini = teardown);

static unsigned asked(void)
{
    return faulty_count(store, VERB_MARKERS_SWEEP);
}

Test(markers, are_swept_in_full_batches_without_a_pause)
{
    start(5000, CAP_MARKERS);
    ledger.installed = true;
    ledger.expired = 3 * BATCH + 7;
    world_advance(&world, 5000);
    struct engine_stats stats = engine_stats(engine);
    cr_assert(stats.markers_swept == 3 * BATCH + 7, "%llu",
              (unsigned long long)stats.markers_swept);
    cr_assert(ledger.asked[0] == 0 && ledger.asked[1] == BATCH && ledger.ask_count == 5);
    cr_assert(histogram_count(&stats.markers_batches) == 4, "batches that did something");
    cr_assert(stats.markers_installed && stats.markers_oldest_ms == 1234);
    world_advance(&world, 5000);
    cr_assert(engine_stats(engine).markers_oldest_ms == 0);
}

Test(markers, pause_with_jitter_when_there_is_nothing_to_do)
{
    start(1000, CAP_MARKERS);
    ledger.installed = true;
    world_advance(&world, 100000);
    cr_assert(asked() > 110 && asked() <= 202, "%u in a hundred seconds", asked());
}

Test(markers, of_those_who_sweep_are_looked_at_every_five_seconds)
{
    start(ENGINE_MARKERS_MS, CAP_MARKERS);
    ledger.installed = true;
    world_advance(&world, 500000);
    cr_assert(asked() >= 100 && asked() <= 202, "%u in a hundred times five", asked());
}

Test(markers, that_are_not_installed_are_looked_for_rarely)
{
    start(5000, CAP_MARKERS);
    world_advance(&world, 600000);
    cr_assert(asked() >= 2 && asked() <= 5, "%u in ten minutes", asked());
    for (size_t i = 0; i < ledger.ask_count; i++) cr_assert(ledger.asked[i] == 0);
    cr_assert(!engine_stats(engine).markers_installed);
    ledger.installed = true;
    ledger.expired = 3;
    world_advance(&world, 300000);
    cr_assert(engine_stats(engine).markers_swept == 3);
}

Test(markers, removed_by_somebody_are_no_longer_swept)
{
    start(5000, CAP_MARKERS);
    ledger.installed = true;
    world_advance(&world, 20000);
    ledger.installed = false;
    world_advance(&world, 10000);
    unsigned before = asked();
    world_advance(&world, 120000);
    cr_assert(asked() - before <= 1);
}

Test(markers, of_a_store_without_them_are_not_asked_for)
{
    start(5000, 0);
    world_advance(&world, 1000000);
    cr_assert(asked() == 0);
}

Test(markers, of_zero_is_never)
{
    start(0, CAP_MARKERS);
    world_advance(&world, 1000000);
    cr_assert(asked() == 0);
}

/* It is told of, how old they get is still known, and then half as many are tried. */
Test(markers, that_cannot_be_swept_are_told_of_and_looked_at)
{
    start(5000, CAP_MARKERS);
    ledger.installed = true;
    world_advance(&world, 5000);
    faulty_set(store, VERB_MARKERS_SWEEP, FAULT_REFUSE, 1);
    ledger.expired = 1000000;
    ledger.oldest_ms = 77000;
    ledger.ask_count = 0;
    world_advance(&world, 5000);
    cr_assert(failures == 1 && ledger.ask_count == 1 && ledger.asked[0] == 0);
    cr_assert(engine_stats(engine).markers_oldest_ms == 77000);
    world_advance(&world, 60000);
    cr_assert(ledger.asked[1] == BATCH / 2 && ledger.asked[2] == BATCH / 2 + 500);
    cr_assert(engine_stats(engine).markers_swept == 1000000 && failures == 1);
}

Test(markers, of_a_ledger_that_is_away_are_looked_for_after_a_longer_pause)
{
    start(5000, CAP_MARKERS);
    ledger.installed = true;
    world_advance(&world, 5000);
    faulty_set(store, VERB_MARKERS_SWEEP, FAULT_REFUSE, 2);
    ledger.ask_count = 0;
    unsigned before = asked();
    world_advance(&world, 14000);
    cr_assert(failures == 2 && asked() - before == 2);
    world_advance(&world, 30000);
    cr_assert(ledger.asked[0] == BATCH / 2, "the pause was instead of a second look");
}

Test(markers, that_are_too_many_at_once_are_swept_by_halves_that_grow_slowly)
{
    start(5000, CAP_MARKERS);
    ledger.installed = true;
    world_advance(&world, 5000);
    ledger.fits = 13400;
    ledger.expired = 100000;
    ledger.ask_count = 0;
    world_advance(&world, 5000);
    cr_assert(ledger.asked[0] == BATCH && ledger.asked[1] == 25000 && ledger.asked[2] == 12500);
    cr_assert(ledger.asked[3] == 13000 && ledger.asked[4] == 13500 && ledger.asked[5] == 6750);
    cr_assert(engine_stats(engine).markers_swept == 100000 && failures == 0);
    ledger.fits = 0;
    ledger.expired = 5000000;
    ledger.ask_count = 0;
    world_advance(&world, 5000);
    cr_assert(ledger.asked[ledger.ask_count - 1] == BATCH, "it grows to what it was");
    cr_assert(engine_stats(engine).markers_swept == 5100000);
}

Test(markers, sweep_in_flight_at_stop_comes_back_quietly)
{
    start(5000, CAP_MARKERS);
    ledger.installed = true;
    faulty_set(store, VERB_MARKERS_SWEEP, FAULT_HOLD, 1);
    world_advance(&world, 5000);
    cr_assert(faulty_held(store) == 1);
    engine_stop(engine);
    faulty_let_go(store);
    world_advance(&world, 100000);
    cr_assert(engine_idle(engine) && asked() == 1);
}
