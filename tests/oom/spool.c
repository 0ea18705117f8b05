/* spool.c - the spool, while memory runs out: what was acknowledged is there after the buffer
 * has forgotten everything, once memory is back. */
#include "tests/oom/oom.h"

#include "base/check.h"
#include "engine/runs.h"
#include "tests/support/world.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

enum { RUNS = 3, HEAL_MS = 10000 };

struct rig {
    struct world world;
    struct store *store;
    struct engine *engine;
    struct runs_config config;
    char buffer_path[160];
    struct run_id ids[RUNS]; /* that were handed out */
    size_t acknowledged;
};

static unsigned rooms;

static struct store *open_file(struct rig *r, const char *name)
{
    char url[200];
    struct store *bare, *store;
    struct err err;
    snprintf(url, sizeof url, "sqlite:%s/spool-%u-%s.db?sync=off", oom_dir(), rooms, name);
    CHECK(store_open_bare(url, &r->world.env, &bare, &err) == 0);
    CHECK(direct_open(bare, &r->world.env, &store, &err) == 0);
    return store;
}

static void rig_open(struct rig *r, size_t nth)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct tiered_options options = TIERED_OPTIONS_INIT;
    struct err err;
    *r = (struct rig){ .config = RUNS_CONFIG_INIT };
    world_init(&r->world, nth);
    rooms++;
    snprintf(r->buffer_path, sizeof r->buffer_path, "%s/spool-%u-buffer.db", oom_dir(), rooms);
    options.buffer = open_file(r, "buffer");
    options.spool = open_file(r, "spool");
    struct store *ledger = open_file(r, "ledger"), *coord = world_open(&r->world, "memory");
    CHECK(tiered_open(coord, ledger, &options, &r->world.env, &r->store, &err) == 0);
    r->config.gate.threshold = 1;
    r->config.gate.window_ms = 2000;
    r->config.gate.hold_ms = 1000000;
    config.sweep_ms = 0;
    config.runs = &r->config;
    CHECK(engine_open(r->store, &r->world.env, &config, &r->engine, &err) == 0);
}

static void rig_close(struct rig *r)
{
    engine_stop(r->engine);
    world_settle(&r->world);
    CHECK(engine_idle(r->engine));
    engine_free(r->engine);
    world_close(&r->world, r->store);
    world_fini(&r->world);
}

static void triggered(struct run_call *call, void *ctx)
{
    struct rig *r = ctx;
    const struct err *err = run_call_error(call);
    if (err->code) {
        expect_error(err->code, err->text);
        return;
    }
    EXPECT(run_call_answer(call)->outcome == OUTCOME_OK);
    if (r->acknowledged < RUNS)
        r->ids[r->acknowledged++] = run_call_answer(call)->rows.rows[0]->id;
}

static void trigger(struct rig *r, const char *key)
{
    struct run_args args = RUN_ARGS_INIT;
    struct err err = { 0 };
    args.question = ASK_TRIGGER;
    args.env = bytes_str("e");
    args.run.task = bytes_str("t");
    args.run.payload = bytes_str("1");
    args.run.key = bytes_str(key);
    args.done = triggered;
    args.ctx = r;
    int code = engine_run(r->engine, &args, NULL, &err);
    if (code) expect_error(code, err.text);
    world_settle(&r->world);
}

/* The first is too many for nobody; from the second on all are buffered. */
static void trip(struct rig *r)
{
    trigger(r, "");
    trigger(r, "");
    r->acknowledged = 0;
}

static void flush(struct rig *r)
{
    sqlite3 *db;
    CHECK(sqlite3_open(r->buffer_path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db,
                       "DELETE FROM entries; DELETE FROM claims;"
                       "UPDATE buffer SET queued = 0, leased = 0;",
                       NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
}

static void found(struct run_call *call, void *ctx)
{
    bool *there = ctx;
    *there = !run_call_error(call)->code && run_call_answer(call)->outcome == OUTCOME_OK;
}

static void expect_all(struct rig *r)
{
    for (size_t i = 0; i < r->acknowledged; i++) {
        bool there = false;
        struct run_args args = RUN_ARGS_INIT;
        struct err err;
        args.question = ASK_GET;
        args.env = bytes_str("e");
        args.id = r->ids[i];
        args.done = found;
        args.ctx = &there;
        CHECK(engine_run(r->engine, &args, NULL, &err) == 0);
        world_settle(&r->world);
        EXPECT(there);
    }
}

static bool accepted(const char *arg, enum oom_mode mode, size_t nth)
{
    (void)arg;
    struct rig r;
    rig_open(&r, nth);
    trip(&r);
    oom_arm(mode, nth);
    trigger(&r, "k");
    bool fired = oom_disarm();
    size_t before = r.acknowledged;
    trigger(&r, "the next one");
    EXPECT(r.acknowledged == before + 1);
    flush(&r);
    world_advance(&r.world, HEAL_MS);
    expect_all(&r);
    rig_close(&r);
    return fired;
}

static bool accepted_again(const char *arg, enum oom_mode mode, size_t nth)
{
    (void)arg;
    static const char *const keys[RUNS] = { "", "a", "b" };
    struct rig r;
    rig_open(&r, nth);
    trip(&r);
    for (size_t i = 0; i < RUNS; i++) trigger(&r, keys[i]);
    CHECK(r.acknowledged == RUNS);
    flush(&r);
    oom_arm(mode, nth);
    world_advance(&r.world, 3000);
    bool fired = oom_disarm();
    world_advance(&r.world, HEAL_MS);
    expect_all(&r);
    rig_close(&r);
    return fired;
}

const struct scenario spool_scenarios[] = {
    { "accepted, with a spool", accepted, "sqlite" },
    { "accepted again from the spool", accepted_again, "sqlite" },
    { NULL, NULL, NULL },
};
