/* meter_test.c - what stores say that they have counted: exactly what happened, under the name of the
 * plane where it did. */
#include "store/store.h"

#include "tests/support/faulty.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <stdio.h>

static const struct trace trace = { 0 };
static struct world world;
static struct store *coord, *ledger, *store;

static struct store *traced(struct store *inner)
{
    struct store *s;
    struct err err;
    cr_assert(traced_open(inner, &world.env, &s, &err) == 0);
    return s;
}

static void setup(void)
{
    struct tiered_options options = TIERED_OPTIONS_INIT;
    struct err err;
    world_init(&world, 1);
    world.env.trace = &trace;
    coord = faulty_open(world_open(&world, "memory"), &world.env);
    ledger = faulty_open(world_open(&world, "memory"), &world.env);
    cr_assert(tiered_open(traced(coord), traced(ledger), &options, &world.env, &store, &err) ==
              0);
}

static void teardown(void)
{
    world_close(&world, store);
    world_fini(&world);
}

TestSuite(meter, .init = setup, .fini = teardown);

/* ---- asking ---- */

struct wanted {
    struct meter meter;
    uint64_t sum;
    unsigned said;
};

static void look(void *ctx, const struct meter *m)
{
    struct wanted *want = ctx;
    if (m->id != want->meter.id || strcmp(m->plane, want->meter.plane) != 0) return;
    if (want->meter.label && strcmp(want->meter.label, m->label) != 0) return;
    want->said++;
    want->sum += m->histogram ? histogram_count(m->histogram) : m->value;
}

static uint64_t meter(const char *plane, enum meter_id id, const char *label)
{
    struct wanted want = { .meter = { .id = id, .plane = plane, .label = label } };
    store_meters(store, "nobody", look, &want);
    cr_assert(want.said > 0, "nobody says %d of %s", id, plane);
    return want.sum;
}

static void ask(enum verb verb, uint8_t who)
{
    struct key key = key_of("s", "k");
    struct request in = { .token = token_of(who), .lease_ms = 1000, .retain_ms = 1000 };
    struct op *op = op_new(verb, &key, &in);
    world_run(&world, store, op);
    op_free(op);
}

/* ---- tests ---- */

Test(meter, a_life_is_counted_on_both_planes)
{
    ask(VERB_CLAIM, 1);
    ask(VERB_CLAIM, 2); /* coord says that somebody is on it */
    ask(VERB_PUBLISH, 1);
    cr_expect(meter("coord", METER_OPS, "claim") == 2);
    cr_expect(meter("ledger", METER_OPS, "claim") == 1);
    cr_expect(meter("coord", METER_OPS, "publish") == 1);
    cr_expect(meter("ledger", METER_OPS, "publish") == 1);
    cr_expect(meter("coord", METER_OP_TIME, NULL) == 3);
    cr_expect(meter("ledger", METER_OP_TIME, NULL) == 2);
    cr_expect(meter("coord", METER_UP, NULL) == 1 && meter("ledger", METER_UP, NULL) == 1);
    cr_expect(meter("coord", METER_FAILED, NULL) == 0);
}

Test(meter, failures_and_the_breaker)
{
    faulty_set(coord, VERBS, FAULT_REFUSE, FAULTY_ALWAYS);
    for (uint8_t i = 0; i < 3; i++) ask(VERB_RELEASE, i);
    cr_expect(meter("coord", METER_FAILED, "unavailable") == 3);
    cr_expect(meter("coord", METER_UP, NULL) == 0 && meter("ledger", METER_UP, NULL) == 1);
    cr_expect(meter("coord", METER_BREAKER, NULL) == 1);
    cr_expect(meter("coord", METER_OPENED, NULL) == 1);
    faulty_heal(coord);
    world_advance(&world, 1001); /* a probe finds out */
    cr_expect(meter("coord", METER_UP, NULL) == 1);
    cr_expect(meter("coord", METER_BREAKER, NULL) == 0);
    cr_expect(meter("coord", METER_OPENED, NULL) == 1);
}

static void finished(struct op *op, void *ctx)
{
    *(struct op **)ctx = op;
}

Test(meter, what_is_late_is_pending_until_it_comes)
{
    struct key key = key_of("s", "k");
    struct request in = { .token = token_of(1), .lease_ms = 1000, .retain_ms = 1000 };
    struct op *op = op_new(VERB_CLAIM, &key, &in), *done = NULL;
    faulty_set(coord, VERB_CLAIM, FAULT_HOLD, 1);
    op_push(op, finished, &done);
    store_submit(store, op);
    world_settle(&world);
    cr_expect(!done && meter("coord", METER_PENDING, NULL) == 1);
    cr_expect(meter("coord", METER_LATE, NULL) == 0);
    world_advance(&world, 100);
    cr_expect(done == op && op->out.degraded);
    cr_expect(meter("coord", METER_LATE, NULL) == 1);
    cr_expect(meter("coord", METER_PENDING, NULL) == 1);
    faulty_let_go(coord);
    world_settle(&world);
    cr_expect(meter("coord", METER_PENDING, NULL) == 0);
    op_free(op);
}

/* What a worker counts arrives here. */
Test(meter, batches_of_a_thread)
{
    struct world own;
    struct err err;
    char url[160];
    world_init(&own, 2);
    cr_assert(loop_open(&own.loop, &err) == 0);
    snprintf(url, sizeof url, "sqlite:%s/m.db", world_dir(&own));
    struct store *s;
    cr_assert(store_open(url, &own.env, &s, &err) == 0, "%s", err.text);
    struct op *op = op_new(VERB_PING, NULL, NULL), *done = NULL;
    op_push(op, finished, &done);
    store_submit(s, op);
    while (!done) {
        loop_sleep(&own.loop, 1000);
        loop_turn(&own.loop, own.mono_ms);
    }
    struct wanted want = { .meter = { .id = METER_BATCH, .plane = "ledger" } };
    store_meters(s, "ledger", look, &want);
    cr_expect(want.said == 1 && want.sum == 1);
    op_free(op);
    store_close(s);
    world_fini(&own);
}
