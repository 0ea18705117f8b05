/* spool_test.c - what was accepted is not lost by a buffer that forgets, wherever it was then. */
#include "engine/runs_scene_test.h"

#include <sqlite3.h>

enum { MANY = 450 }; /* more than are looked for at once */

static struct scene s;
static struct store *buffer, *spool, *ledger; /* each fails as it is told to */

static void path_of(const char *name, char path[160])
{
    snprintf(path, 160, "%s/%s.db", world_dir(&s.world), name);
}

static struct store *open_file(const char *name)
{
    char path[160], url[200];
    struct store *bare, *store;
    struct err err;
    path_of(name, path);
    snprintf(url, sizeof url, "sqlite:%s?sync=off", path);
    cr_assert(store_open_bare(url, &s.world.env, &bare, &err) == 0, "%s", err.text);
    cr_assert(direct_open(bare, &s.world.env, &store, &err) == 0);
    return faulty_open(store, &s.world.env);
}

static void start_on(struct store *coord, struct store *buffer_of_its_own)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct tiered_options options = TIERED_OPTIONS_INIT;
    struct err err;
    options.buffer = buffer_of_its_own;
    options.spool = spool = open_file("spool");
    ledger = open_file("ledger");
    cr_assert(tiered_open(coord, ledger, &options, &s.world.env, &s.store, &err) == 0);
    config.sweep_ms = 0;
    config.runs = &s.config;
    cr_assert(engine_open(s.store, &s.world.env, &config, &s.engine, &err) == 0);
}

/* A process on the files that are there. */
static void start(void)
{
    buffer = open_file("buffer");
    start_on(world_open(&s.world, "memory"), buffer);
}

static void end(void)
{
    engine_stop(s.engine);
    world_settle(&s.world);
    cr_assert(engine_idle(s.engine));
    engine_free(s.engine);
    world_close(&s.world, s.store);
}

static void init(void)
{
    world_init(&s.world, 7);
    s.config = (struct runs_config)RUNS_CONFIG_INIT;
    s.config.gate.threshold = 1;
    s.config.gate.window_ms = 2000;
    s.config.gate.hold_ms = 1000000;
    s.config.watches = true;
}

/* The first one passes; the second is in the buffer, and so is everything after it. */
static void trip(void)
{
    expect(trigger(&s, "", "0"), OUTCOME_OK);
    expect(trigger(&s, "", "0"), OUTCOME_OK);
}

static void open_tripped(void)
{
    init();
    start();
    trip();
}

static void close_scene(void)
{
    scene_close(&s);
}

TestSuite(spool, .init = open_tripped, .fini = close_scene);

static struct run_id buffered_run(const char *key)
{
    struct asked a = expect(trigger(&s, key, "{\"n\":[]}"), OUTCOME_OK);
    cr_assert(a.buffered);
    return id_of(&a);
}

/* Redis was flushed: entries and claims are gone. */
static void flush(void)
{
    char path[160];
    sqlite3 *db;
    path_of("buffer", path);
    cr_assert(sqlite3_open(path, &db) == SQLITE_OK);
    cr_assert(sqlite3_exec(db,
                           "DELETE FROM entries; DELETE FROM claims;"
                           "UPDATE buffer SET queued = 0, leased = 0;",
                           NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
}

struct drained {
    unsigned told;
    uint64_t count;
    int error;
};

static void drain_over(uint64_t drained, const struct err *err, void *ctx)
{
    struct drained *d = ctx;
    d->told++;
    d->count = drained;
    d->error = err->code;
}

static uint64_t drain_here(void)
{
    struct drained d = { 0 };
    struct err err;
    cr_assert(engine_drain(s.engine, 32000, drain_over, &d, &err) == 0);
    for (int i = 0; i < 200 && !d.told; i++) world_advance(&s.world, 100);
    cr_assert(d.told == 1 && d.error == 0);
    return d.count;
}

static struct asked in_ledger(const struct run_id *id)
{
    struct asked got = expect(get(&s, id), OUTCOME_OK);
    cr_assert(!got.buffered, "still in the buffer");
    return got;
}

static uint64_t reaccepted(void)
{
    return engine_run_stats(s.engine).spool_reaccepted;
}

/* As it is counted every second. */
static uint64_t spooled(void)
{
    world_advance(&s.world, 1000);
    cr_assert(engine_run_stats(s.engine).spool_known);
    return engine_run_stats(s.engine).spool_entries;
}

/* Long enough for every entry to be looked for once more, wherever it is. */
static void look_around(void)
{
    world_advance(&s.world, 8000);
}

static bool op_finds(struct store *in, const struct run_id *id)
{
    struct buffer_ask look = { .env = bytes_str("test"), .id = *id };
    struct op *op = op_new(VERB_ENTRY_GET, NULL, NULL);
    op->buffer = &look;
    world_run(&s.world, in, op);
    bool there = !op->err.code && op->out.outcome == OUTCOME_OK;
    op_free(op);
    buffer_ask_clear(&look);
    return there;
}

/* The key leads to it, and it is what was triggered. */
static void expect_whole(const struct run_id *id, const char *key)
{
    struct asked got = in_ledger(id);
    cr_assert(bytes_eq(got.rows.rows[0]->payload, bytes_str("{\"n\":[]}")));
    struct asked again = expect(trigger(&s, key, "{\"n\":[]}"), OUTCOME_CACHED);
    struct run_id same = id_of(&again);
    cr_assert(run_id_eq(id, &same));
}

/* ---- accepting ---- */

Test(spool, nobody_is_told_before_it_is_in_both)
{
    struct asked a;
    struct run_args args = trigger_args("k", "1");
    faulty_set(spool, VERB_ACCEPT, FAULT_HOLD, 1);
    ask_start(&s, &args, &a);
    world_settle(&s.world);
    cr_assert(a.finished == 0 && faulty_held(spool) == 1);
    faulty_let_go(spool);
    world_settle(&s.world);
    expect(a, OUTCOME_OK);
    struct run_id id = id_of(&a);
    cr_assert(a.buffered && op_finds(buffer, &id) && op_finds(spool, &id));
}

static enum fact_level fact_of_spool(void)
{
    enum fact_level level = FACT_FAIL;
    struct op *op = op_new(VERB_PING, NULL, NULL);
    op->wants_facts = true;
    world_run(&s.world, s.store, op);
    for (size_t i = 0; op->facts && i < op->facts->count; i++)
        if (strcmp(op->facts->rows[i].name, "spool") == 0) level = op->facts->rows[i].level;
    op_free(op);
    return level;
}

Test(spool, what_the_spool_cannot_keep_is_put_into_the_ledger)
{
    cr_assert(fact_of_spool() == FACT_OK);
    faulty_set(spool, VERB_ACCEPT, FAULT_REFUSE, 1);
    struct asked a = expect(trigger(&s, "k", "{\"n\":[]}"), OUTCOME_OK);
    struct run_id id = id_of(&a);
    cr_assert(!a.buffered && op_finds(buffer, &id) && !op_finds(spool, &id));
    cr_assert(fact_of_spool() == FACT_WARN);
    flush();
    look_around();
    expect_whole(&id, "k");
}

Test(spool, what_was_put_there_for_it_is_drained_onto_itself)
{
    faulty_set(spool, VERB_ACCEPT, FAULT_LOSE_ANSWER, 1);
    struct asked a = expect(trigger(&s, "k", "{\"n\":[]}"), OUTCOME_OK);
    struct run_id id = id_of(&a);
    cr_assert(!a.buffered);
    cr_assert(drain_here() == 2 && engine_run_stats(s.engine).aliased == 0);
    expect_whole(&id, "k");
}

/* It is in the buffer, and will be a run. */
Test(spool, neither_spool_nor_ledger_is_not_nothing)
{
    faulty_set(spool, VERB_ACCEPT, FAULT_REFUSE, 1);
    faulty_set(ledger, VERB_RUN_PUT, FAULT_REFUSE, FAULTY_ALWAYS);
    struct run_args args = trigger_args("k", "1");
    struct asked a;
    ask_start(&s, &args, &a);
    world_advance(&s.world, 60000);
    cr_assert(a.finished == 1 && a.error == ERR_AMBIGUOUS, "%s", err_name(a.error));
    faulty_heal(ledger);
    cr_assert(drain_here() == 2);
    expect(trigger(&s, "k", "1"), OUTCOME_CACHED);
}

/* ---- nothing is lost ---- */

Test(spool, what_is_drained_leaves_it)
{
    struct run_id id = buffered_run("k");
    cr_assert(spooled() == 2);
    cr_assert(engine_run_stats(s.engine).spool_oldest_ms >= 1000);
    drain_here();
    look_around();
    cr_assert(spooled() == 0 && reaccepted() == 0);
    cr_assert(engine_run_stats(s.engine).spool_oldest_ms == 0);
    expect_whole(&id, "k");
}

/* While the buffer remembers that it was written, the ledger is not asked for it. */
Test(spool, what_is_drained_soon_is_looked_for_once)
{
    drain_here();
    world_advance(&s.world, 3900);
    buffered_run("k");
    unsigned asked = faulty_count(buffer, VERB_ENTRY_GET);
    unsigned at_ledger = faulty_count(ledger, VERB_RUN_GET);
    world_advance(&s.world, 300); /* it comes by, but not for one so young */
    drain_here();
    world_advance(&s.world, 20000);
    cr_assert(spooled() == 0);
    cr_assert(faulty_count(buffer, VERB_ENTRY_GET) == asked + 1);
    cr_assert(faulty_count(ledger, VERB_RUN_GET) == at_ledger);
}

/* While it only waits; but all that is lost of it is back without a pause. */
Test(spool, a_backlog_is_looked_at_slowly_and_is_back_at_once)
{
    for (unsigned i = 0; i < 5 * MANY; i++) buffered_run("");
    world_advance(&s.world, 3000);
    unsigned asked = faulty_count(buffer, VERB_ENTRY_GET);
    world_advance(&s.world, 10000);
    asked = faulty_count(buffer, VERB_ENTRY_GET) - asked;
    cr_assert(asked >= 5 * MANY && asked < 8 * 5 * MANY, "%u", asked);
    flush();
    world_advance(&s.world, 2500); /* to the end, and from the oldest on */
    cr_assert(reaccepted() == 5 * MANY + 1, "%llu", (unsigned long long)reaccepted());
    cr_assert(drain_here() == 5 * MANY + 1);
    world_advance(&s.world, 2000);
    cr_assert(spooled() == 0);
}

Test(spool, what_waits_stays_in_it_and_is_not_accepted_twice)
{
    buffered_run("k");
    world_advance(&s.world, 120000);
    cr_assert(spooled() == 2 && reaccepted() == 0);
    cr_assert(drain_here() == 2);
}

Test(spool, what_was_lost_is_accepted_again)
{
    struct run_id ids[MANY];
    char key[16];
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "k%u", i);
        ids[i] = buffered_run(key);
    }
    look_around();
    flush();
    expect(get(&s, &ids[0]), OUTCOME_ABSENT);
    look_around();
    cr_assert(reaccepted() == MANY + 1, "%llu", (unsigned long long)reaccepted());
    struct asked again = expect(trigger(&s, "k0", "{\"n\":[]}"), OUTCOME_CACHED);
    struct run_id same = id_of(&again);
    cr_assert(again.buffered && run_id_eq(&ids[0], &same));
    cr_assert(drain_here() == MANY + 1);
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "k%u", i);
        expect_whole(&ids[i], key);
    }
    look_around();
    cr_assert(spooled() == 0 && reaccepted() == MANY + 1);
}

/* It asks the ledger, because the buffer does not know any more that it was written. */
Test(spool, what_was_drained_before_the_flush_is_not)
{
    struct run_id id = buffered_run("k");
    drain_here();
    flush();
    look_around();
    cr_assert(reaccepted() == 0 && spooled() == 0);
    expect_whole(&id, "k");
}

Test(spool, a_settle_that_fails_is_made_up_for)
{
    faulty_set(spool, VERB_SETTLE, FAULT_REFUSE, FAULTY_ALWAYS);
    buffered_run("k");
    drain_here();
    world_advance(&s.world, 2000);
    cr_assert(spooled() == 2);
    faulty_heal(spool);
    world_advance(&s.world, 20000);
    cr_assert(spooled() == 0 && reaccepted() == 0);
}

Test(spool, it_is_found_again_by_the_next_process)
{
    struct run_id id = buffered_run("k");
    end();
    flush();
    start();
    world_advance(&s.world, 2000);
    cr_assert(reaccepted() == 2);
    cr_assert(drain_here() == 2);
    expect_whole(&id, "k");
}

Test(spool, the_next_process_does_not_wait)
{
    buffered_run("k");
    world_advance(&s.world, 1500);
    end();
    flush();
    start();
    world_settle(&s.world);
    cr_assert(reaccepted() == 2);
}

/* A drainer writes what it had leased before everything was forgotten. */
Test(spool, a_flush_while_a_drainer_has_it_makes_one_run)
{
    struct run_id id = buffered_run("k");
    struct drained d = { 0 };
    struct err err;
    world_advance(&s.world, 1500);
    faulty_set(ledger, VERB_RUN_PUT, FAULT_HOLD, 2);
    cr_assert(engine_drain(s.engine, 32000, drain_over, &d, &err) == 0);
    world_settle(&s.world);
    cr_assert(faulty_held(ledger) == 2);
    flush();
    look_around();
    cr_assert(reaccepted() == 2);
    faulty_let_go(ledger);
    world_advance(&s.world, 2000);
    cr_assert(d.told == 1 && d.count == 4, "%llu", (unsigned long long)d.count);
    cr_assert(engine_run_stats(s.engine).aliased == 0);
    expect_whole(&id, "k");
    struct run_args list = RUN_ARGS_INIT;
    list.question = ASK_LIST;
    list.limit = 10;
    cr_assert(expect(ask(&s, list), OUTCOME_OK).rows.count == 3);
}

/* Whoever triggered the same after the flush has the key. Both ids lead to one run. */
Test(spool, a_key_that_was_taken_meanwhile_makes_an_alias)
{
    struct run_id first = buffered_run("k");
    flush();
    struct run_id second = buffered_run("k");
    cr_assert(!run_id_eq(&first, &second));
    look_around();
    cr_assert(reaccepted() == 2);
    cr_assert(drain_here() == 3 && engine_run_stats(s.engine).aliased == 1);
    struct run_id a = in_ledger(&first).rows.rows[0]->id;
    struct run_id b = in_ledger(&second).rows.rows[0]->id;
    cr_assert(run_id_eq(&a, &b));
}

Test(spool, what_was_changed_in_the_buffer_is_not_kept)
{
    struct run_id id = buffered_run("k");
    struct run_change cancel = { .kind = RUN_CANCEL };
    expect(change(&s, &id, cancel), OUTCOME_OK);
    flush();
    look_around();
    drain_here();
    cr_assert(in_ledger(&id).rows.rows[0]->state == RUN_QUEUED);
}

/* A run is kept for a month after its end: it may be done, and must not be done again. */
Test(spool, what_is_older_than_runs_are_kept_is_not_made_again)
{
    struct run_id id = buffered_run("k");
    end();
    flush();
    s.world.wall_ms += RUN_RETAIN_MS_DEFAULT;
    start();
    world_advance(&s.world, 2000);
    cr_assert(reaccepted() == 0 && spooled() == 0);
    expect(get(&s, &id), OUTCOME_ABSENT);
}

/* ---- planes that are away ---- */

Test(spool, while_the_buffer_is_away_nothing_is_decided)
{
    struct run_id id = buffered_run("k");
    faulty_set(buffer, VERB_ENTRY_GET, FAULT_REFUSE, FAULTY_ALWAYS);
    flush();
    world_advance(&s.world, 60000);
    cr_assert(reaccepted() == 0 && spooled() == 2);
    unsigned asked = faulty_count(buffer, VERB_ENTRY_GET);
    cr_assert(asked < 2 * 60, "%u questions to a buffer that is away", asked);
    faulty_heal(buffer);
    world_advance(&s.world, 6000);
    cr_assert(reaccepted() == 2);
    drain_here();
    expect_whole(&id, "k");
}

Test(spool, while_the_ledger_is_away_nothing_is_accepted_again)
{
    struct run_id id = buffered_run("k");
    faulty_set(ledger, VERB_RUN_GET, FAULT_REFUSE, FAULTY_ALWAYS);
    flush();
    world_advance(&s.world, 60000);
    cr_assert(reaccepted() == 0 && spooled() == 2);
    faulty_heal(ledger);
    world_advance(&s.world, 6000);
    cr_assert(reaccepted() == 2);
    drain_here();
    expect_whole(&id, "k");
}

Test(spool, an_accept_whose_answer_is_lost_is_repeated)
{
    struct run_id id = buffered_run("k");
    flush();
    faulty_set(buffer, VERB_ACCEPT, FAULT_LOSE_ANSWER, 2);
    look_around();
    cr_assert(faulty_count(buffer, VERB_ACCEPT) >= 4);
    cr_assert(drain_here() == 2);
    expect_whole(&id, "k");
    look_around();
    cr_assert(spooled() == 0);
}

/* What is not written can be read by nobody: whoever drains it says so. */
Test(spool, an_entry_that_cannot_be_read_is_accepted_again_all_the_same)
{
    struct run_id id;
    uint8_t random[10] = { 3 };
    run_id_make(s.world.wall_ms, random, &id);
    struct buffer_ask accept = {
        .env = bytes_str("test"), .id = id, .run = bytes_str("\7nonsense"), .unclaimed = true
    };
    struct key key = { bytes_str("@test"), bytes_str("x") };
    struct op *op = op_new(VERB_ACCEPT, &key, NULL);
    op->buffer = &accept;
    world_run(&s.world, s.store, op);
    cr_assert(!op->err.code);
    op_free(op);
    flush();
    look_around();
    drain_here();
    cr_assert(in_ledger(&id).rows.rows[0]->state == RUN_FAILED);
}

Test(spool, it_can_be_closed_in_the_middle)
{
    buffered_run("k");
    faulty_set(buffer, VERB_ENTRY_GET, FAULT_HOLD, 2);
    world_advance(&s.world, 1500);
    cr_assert(faulty_held(buffer) == 2);
    engine_stop(s.engine);
    world_settle(&s.world);
    cr_assert(!engine_idle(s.engine));
    faulty_let_go(buffer);
}

/* ---- a real Redis ---- */

/* Without a drainer, so that nothing but the spool asks for what is in it. */
static void forget(const char *redis)
{
    if (!world_has(redis)) cr_skip_test("its server is not up: tests/with-servers");
    init();
    start_on(world_open(&s.world, redis), NULL);
    trip();
    struct run_id id = buffered_run("k");
    world_advance(&s.world, 2500);
    cr_assert(spooled() == 2 && reaccepted() == 0);
    room_clear(&s.world.rooms[0]);
    world_advance(&s.world, 1100);
    cr_assert(reaccepted() == 2, "%llu", (unsigned long long)reaccepted());
    cr_assert(drain_here() == 2);
    expect_whole(&id, "k");
    scene_close(&s);
}

Test(spool_redis, a_redis_that_forgets_is_noticed_at_once)
{
    forget("redis");
}

Test(spool_redis, a_cluster_that_forgets_is_noticed_at_once)
{
    forget("redis-cluster");
}
