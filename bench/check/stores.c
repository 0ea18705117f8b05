/* stores.c - claims, publishes and replays through an engine, a batch of them at a time, on the
 * stores that need no server. */
#include "base/check.h"
#include "bench/check/check.h"
#include "engine/engine.h"
#include "tests/support/world.h"

#include <stdio.h>

enum { BATCH = 64, NAME_BYTES = 24 };

struct bench {
    struct world world;
    struct store *store;
    struct engine *engine;
    struct blob *value;
    char names[NUMBERS][NAME_BYTES];
};

/* One call of a batch. */
struct asked {
    enum outcome outcome;
    struct token token;
    unsigned finished;
};

static void bench_open(struct bench *b, const char *store)
{
    struct err err;
    struct engine_config config = ENGINE_CONFIG_INIT;
    config.sweep_ms = 0;
    world_init(&b->world, 1);
    b->store = world_open(&b->world, store);
    CHECK(engine_open(b->store, &b->world.env, &config, &b->engine, &err) == 0);
    b->value = blob_new(bytes_str("the one and only answer, 32 byte"));
    CHECK(b->value);
    for (size_t i = 0; i < NUMBERS; i++) snprintf(b->names[i], NAME_BYTES, "order-%016zu", i);
}

static void bench_close(struct bench *b)
{
    engine_stop(b->engine);
    world_settle(&b->world);
    CHECK(engine_idle(b->engine));
    engine_free(b->engine);
    blob_unref(b->value);
    world_close(&b->world, b->store);
    world_fini(&b->world);
}

static void answered(struct call *call, void *ctx)
{
    struct asked *a = ctx;
    CHECK(call_error(call)->code == 0);
    a->outcome = call_answer(call)->outcome;
    a->token = *call_token(call);
    a->finished++;
}

static void ask(struct bench *b, enum verb verb, size_t number, struct asked *a)
{
    struct err err;
    struct call *call;
    struct call_args args = { .verb = verb,
                              .key = key_of("bench", b->names[number]),
                              .in = { .lease_ms = 30000, .retain_ms = 86400000 },
                              .done = answered,
                              .ctx = a };
    if (verb == VERB_PUBLISH) args.in.token = a->token;
    if (verb == VERB_PUBLISH) args.in.value = b->value;
    a->finished = 0;
    CHECK(engine_call(b->engine, &args, &call, &err) == 0);
}

static void ask_batch(struct bench *b, enum verb verb, size_t first, struct asked *batch,
                      enum outcome expected)
{
    for (size_t i = 0; i < BATCH; i++) ask(b, verb, first + i, &batch[i]);
    world_settle(&b->world);
    for (size_t i = 0; i < BATCH; i++)
        CHECK(batch[i].finished == 1 && batch[i].outcome == expected);
}

static void claim_and_publish(void *ctx, size_t first)
{
    struct asked batch[BATCH];
    for (size_t at = first; at < first + OPERATIONS; at += BATCH) {
        ask_batch(ctx, VERB_CLAIM, at, batch, OUTCOME_CLAIMED);
        ask_batch(ctx, VERB_PUBLISH, at, batch, OUTCOME_OK);
    }
}

static void replay(void *ctx, size_t first)
{
    struct asked batch[BATCH];
    for (size_t at = first; at < first + OPERATIONS; at += BATCH)
        ask_batch(ctx, VERB_CLAIM, at, batch, OUTCOME_CACHED);
}

static void check_store(const char *store, const char *pairs_name, const char *replay_name)
{
    static struct bench b;
    bench_open(&b, store);
    count_instructions(pairs_name, claim_and_publish, &b);
    count_instructions(replay_name, replay, &b);
    bench_close(&b);
}

void check_stores(void)
{
    check_store("memory", "memory-claim-publish", "memory-replay");
    check_store("sqlite", "sqlite-claim-publish", "sqlite-replay");
    check_store("tiered-sqlite", "tiered-claim-publish", "tiered-replay");
}
