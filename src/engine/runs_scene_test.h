/* runs_scene_test.h - what the tests of runs share: an engine on planes of its own, a clock that only
 * the test moves, and questions that are asked and answered. */
#ifndef ENGINE_RUNS_SCENE_TEST_H
#define ENGINE_RUNS_SCENE_TEST_H

#include "base/sha256.h"
#include "base/text.h"
#include "engine/runs.h"
#include "tests/support/faulty.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

struct scene {
    struct world world;
    struct store *store;
    struct engine *engine;
    struct runs_config config;
};

/* What answers have shown lives until the scene is closed. */
static struct run_rows shown_rows;
static struct run ***shown_lists;
static size_t shown_count;

/* One question and what came of it. */
struct asked {
    unsigned finished;
    int error;
    enum outcome outcome;
    bool buffered, degraded;
    const char *reason;
    struct run_call *call;
    struct run_rows rows;
};

static inline void scene_open_on(struct scene *s, const char *planes)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct err err;
    config.sweep_ms = 0;
    config.runs = &s->config;
    world_init(&s->world, 7);
    s->store = world_open(&s->world, planes);
    cr_assert(engine_open(s->store, &s->world.env, &config, &s->engine, &err) == 0, "%s",
              err.text);
}

/* The gate is closed for everybody after `threshold`; nothing is drained unless asked. */
static inline void scene_open(struct scene *s, int64_t threshold)
{
    s->config = (struct runs_config)RUNS_CONFIG_INIT;
    s->config.gate.threshold = threshold;
    s->config.gate.window_ms = 2000;
    s->config.gate.hold_ms = 10000;
    scene_open_on(s, "embedded");
}

static inline void scene_close(struct scene *s)
{
    engine_stop(s->engine);
    world_settle(&s->world);
    cr_assert(engine_idle(s->engine));
    engine_free(s->engine);
    world_close(&s->world, s->store);
    world_fini(&s->world);
    run_rows_clear(&shown_rows);
    while (shown_count) free(shown_lists[--shown_count]);
    free(shown_lists);
    shown_lists = NULL;
}

/* A drainer in a process of its own; rate 0: as many as it can. */
static inline struct engine *drainer_open(struct scene *s, int64_t rate)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct runs_config runs = RUNS_CONFIG_INIT;
    struct engine *drainer;
    struct err err;
    config.sweep_ms = 0;
    config.runs = &runs;
    runs.drains = true;
    runs.drain_rate = rate;
    cr_assert(engine_open(s->store, &s->world.env, &config, &drainer, &err) == 0);
    return drainer;
}

static inline struct run_stats drainer_close(struct scene *s, struct engine *drainer)
{
    struct run_stats stats = engine_run_stats(drainer);
    engine_stop(drainer);
    world_settle(&s->world);
    cr_assert(engine_idle(drainer));
    engine_free(drainer);
    return stats;
}

static inline struct run_stats drain_for(struct scene *s, int64_t ms, int64_t rate)
{
    struct engine *drainer = drainer_open(s, rate);
    world_advance(&s->world, ms);
    return drainer_close(s, drainer);
}

/* Until nothing is left. */
static inline struct run_stats drain(struct scene *s)
{
    return drain_for(s, 1500, 0);
}

static inline void asked_done(struct run_call *call, void *ctx)
{
    struct asked *a = ctx;
    const struct run_answer *out = run_call_answer(call);
    a->finished++;
    a->call = NULL;
    a->error = run_call_error(call)->code;
    a->outcome = out->outcome;
    a->buffered = out->buffered;
    a->degraded = out->degraded;
    a->reason = out->reason;
    a->rows.rows = calloc(out->rows.count + 1, sizeof *a->rows.rows);
    for (size_t i = 0; i < out->rows.count; i++) {
        cr_assert(run_rows_add(&shown_rows, out->rows.rows[i]) == 0);
        a->rows.rows[a->rows.count++] = shown_rows.rows[shown_rows.count - 1];
    }
    shown_lists = realloc(shown_lists, (shown_count + 1) * sizeof *shown_lists);
    shown_lists[shown_count++] = a->rows.rows;
    a->rows.more = out->rows.more;
}

static inline void ask_start(struct scene *s, struct run_args *args, struct asked *a)
{
    struct err err;
    *a = (struct asked){ 0 };
    if (!args->env.len) args->env = bytes_str("test");
    args->done = asked_done;
    args->ctx = a;
    int r = engine_run(s->engine, args, &a->call, &err);
    cr_assert(r == 0, "%s", err.text);
    cr_assert(a->finished == 0, "told inside engine_run()");
}

static inline struct asked ask(struct scene *s, struct run_args args)
{
    struct asked a;
    ask_start(s, &args, &a);
    world_settle(&s->world);
    cr_assert(a.finished == 1, "not answered");
    return a;
}

static inline struct run_args trigger_args(const char *key, const char *payload)
{
    struct run_args args = RUN_ARGS_INIT;
    args.question = ASK_TRIGGER;
    args.run.task = bytes_str("mail");
    args.run.payload = bytes_str(payload);
    args.run.key = bytes_str(key);
    return args;
}

static inline struct asked trigger(struct scene *s, const char *key, const char *payload)
{
    return ask(s, trigger_args(key, payload));
}

static inline struct run_args about(enum run_question question, const struct run_id *id)
{
    struct run_args args = RUN_ARGS_INIT;
    args.question = question;
    args.id = *id;
    return args;
}

static inline struct asked get(struct scene *s, const struct run_id *id)
{
    return ask(s, about(ASK_GET, id));
}

static inline struct asked change(struct scene *s, const struct run_id *id,
                                  struct run_change change)
{
    struct run_args args = about(ASK_CHANGE, id);
    args.change = change;
    if (change.kind == RUN_SET_METADATA && !change.version)
        args.change.version = RUN_ANY_VERSION;
    return ask(s, args);
}

static inline struct run_args lease_args(size_t limit, int64_t wait_ms)
{
    struct run_args args = RUN_ARGS_INIT;
    args.question = ASK_LEASE;
    args.queue = bytes_str("mail");
    args.limit = limit;
    args.wait_ms = wait_ms;
    return args;
}

#define expect(question, want)                                                                 \
    ({                                                                                         \
        struct asked expect_a = (question);                                                    \
        cr_assert(expect_a.error == 0, "%s: error %s", #question, err_name(expect_a.error));   \
        cr_assert(expect_a.outcome == (want), "%s: %s, expected %s", #question,                \
                  outcome_name(expect_a.outcome), outcome_name(want));                         \
        expect_a;                                                                              \
    })

static inline struct run_id id_of(const struct asked *a)
{
    cr_assert(a->rows.count >= 1);
    return a->rows.rows[0]->id;
}

static inline struct key claim_of(const char *key, char name[65])
{
    uint8_t hash[SHA256_BYTES];
    struct bytes pieces[] = { bytes_str("key"), bytes_str("mail"), bytes_str(key) };
    cr_assert(sha256_pieces(pieces, 3, hash));
    hex_encode(bytes_of(hash, sizeof hash), name);
    return (struct key){ bytes_str("@test"), bytes_str(name) };
}

static inline void fingerprint_of(const char *payload, uint8_t out[SHA256_BYTES])
{
    struct bytes pieces[] = { bytes_str("mail"), bytes_str(payload) };
    cr_assert(sha256_pieces(pieces, 2, out));
}

/* What somebody else does to the claim of a trigger with this key and the payload "1". */
static inline void plant(struct scene *s, enum verb verb, const char *key, const char *value,
                         int64_t lease_ms)
{
    char name[65];
    uint8_t hash[SHA256_BYTES];
    fingerprint_of("1", hash);
    struct key k = claim_of(key, name);
    struct request in = { .token = token_of(9),
                          .lease_ms = lease_ms,
                          .retain_ms = 30000,
                          .fingerprint = bytes_of(hash, sizeof hash) };
    if (value) in.value = blob_new(bytes_str(value));
    struct op *op = op_new(verb, &k, &in);
    world_run(&s->world, s->store, op);
    cr_assert(!op->err.code);
    op_free(op);
    blob_unref(in.value);
}

#endif
