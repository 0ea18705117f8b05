/* drain_test.c - the drainer: what it may still write, what it does with what it cannot write. */
#include "engine/runs_scene_test.h"

#include <sqlite3.h>

static struct scene s;

/* Whatever is triggered after the first two goes to the buffer and stays there. */
static void open_tripped(void)
{
    scene_open(&s, 1);
    expect(trigger(&s, "", "0"), OUTCOME_OK);
    expect(trigger(&s, "", "0"), OUTCOME_OK);
    drain(&s);
}

static void close_scene(void)
{
    scene_close(&s);
}

TestSuite(drainer, .init = open_tripped, .fini = close_scene);

static struct run_id buffered_run(const char *key)
{
    struct asked a = expect(trigger(&s, key, "1"), OUTCOME_OK);
    cr_assert(a.buffered);
    return id_of(&a);
}

static struct run *in_ledger(const struct run_id *id)
{
    struct asked got = expect(get(&s, id), OUTCOME_OK);
    cr_assert(!got.buffered, "still in the buffer");
    return got.rows.rows[0];
}

static bool is_leased_by_a_worker(const struct run_id *id)
{
    bool leased = false;
    struct asked a = expect(ask(&s, lease_args(100, 0)), OUTCOME_OK);
    for (size_t i = 0; i < a.rows.count; i++) leased |= run_id_eq(&a.rows.rows[i]->id, id);
    return leased;
}

/* ---- a drainer that is late ---- */

enum { LEASE_MS = LEASE_MS_DEFAULT };

/* A drainer whose writes are on their way to the ledger, for as long as it takes. The engine of the
 * scene is somebody else. */
static struct engine *drainer_held(void)
{
    s.store = faulty_open(s.store, &s.world.env);
    faulty_set(s.store, VERB_RUN_PUT, FAULT_HOLD, FAULTY_ALWAYS);
    struct engine *drainer = drainer_open(&s, 0);
    world_settle(&s.world);
    cr_assert(faulty_held(s.store) > 0, "nothing is on its way");
    return drainer;
}

static void let_go(void)
{
    faulty_heal(s.store);
    faulty_let_go(s.store);
    world_settle(&s.world);
}

static const struct run_change cancel = { .kind = RUN_CANCEL };

/* Its lease has lapsed, so the cancel was taken by the buffer, and acknowledged: what the drainer has
 * read before that must not become a run. */
Test(drainer, what_was_canceled_since_its_lease_lapsed_is_not_written_as_it_was)
{
    struct run_id id = buffered_run("k");
    struct engine *drainer = drainer_held();
    world_advance(&s.world, LEASE_MS);
    struct asked canceled = expect(change(&s, &id, cancel), OUTCOME_OK);
    cr_assert(canceled.buffered);
    let_go();
    cr_assert(!is_leased_by_a_worker(&id));
    world_advance(&s.world, 2000);
    cr_assert(in_ledger(&id)->state == RUN_CANCELED);
    struct run_stats stats = drainer_close(&s, drainer);
    cr_assert(stats.drained == 1 && stats.drain_failed == 0, "it costs no attempt");
}

/* A commit takes its time: what is written when the lease is about to lapse may be there after it. */
Test(drainer, what_may_come_too_late_is_not_written_and_goes_back)
{
    struct run_id id = buffered_run("k");
    struct engine *drainer = drainer_held();
    world_advance(&s.world, LEASE_MS - 3000);
    faulty_heal(s.store);
    faulty_set(s.store, VERB_DRAIN_LEASE, FAULT_REFUSE, FAULTY_ALWAYS);
    faulty_let_go(s.store);
    world_settle(&s.world);
    struct asked got = expect(get(&s, &id), OUTCOME_OK);
    cr_assert(got.buffered, "it was written");
    got = expect(change(&s, &id, cancel), OUTCOME_OK);
    cr_assert(got.buffered, "its lease is over");
    faulty_heal(s.store);
    world_advance(&s.world, 2000);
    cr_assert(in_ledger(&id)->state == RUN_CANCELED);
    cr_assert(drainer_close(&s, drainer).drain_retried == 1);
}

/* The entry let go of its key before somebody else took it. */
Test(drainer, what_is_too_late_becomes_no_alias)
{
    struct run_id id = buffered_run("k");
    struct engine *drainer = drainer_held();
    world_advance(&s.world, LEASE_MS);
    struct run_args reset = RUN_ARGS_INIT;
    reset.question = ASK_RESET;
    reset.task = bytes_str("mail");
    reset.key = bytes_str("k");
    expect(ask(&s, reset), OUTCOME_OK);
    faulty_heal(s.store);
    struct asked other = expect(trigger(&s, "k", "1"), OUTCOME_OK); /* the gate has opened */
    cr_assert(!other.buffered);
    let_go();
    world_advance(&s.world, 2000);
    struct run *run = in_ledger(&id);
    cr_assert(run_id_eq(&run->id, &id) && !run->canonical.text[0]);
    cr_assert(drainer_close(&s, drainer).aliased == 0);
}

/* Several rounds are on their way, and each has its own lease. */
Test(drainer, rounds_that_are_in_time_are_written)
{
    struct run_id first = buffered_run("a");
    struct engine *drainer = drainer_held();
    world_advance(&s.world, LEASE_MS - 6000);
    for (int i = 0; i < 2; i++) expect(trigger(&s, "", "0"), OUTCOME_OK); /* another burst */
    struct run_id second = buffered_run("b");
    world_advance(&s.world, 2000);
    cr_assert(faulty_held(s.store) > 1, "there is one round only");
    let_go();
    cr_assert(expect(get(&s, &second), OUTCOME_OK).buffered == false);
    world_advance(&s.world, 2000);
    in_ledger(&first);
    drainer_close(&s, drainer);
}

/* ---- a ledger that is away ---- */

static unsigned told_away;
static char away_detail[256];

static void note_event(void *ctx, const struct trace_event *event)
{
    (void)ctx;
    if (event->kind != TRACE_DRAIN_AWAY) return;
    told_away++;
    cr_assert(event->number == ERR_UNAVAILABLE && strcmp(event->text, "unavailable") == 0);
    snprintf(away_detail, sizeof away_detail, "%s", event->detail);
}

static void listen_to_events(void)
{
    static const struct trace trace = { .emit = note_event };
    s.world.env.trace = &trace;
}

static uint32_t attempts_of(const struct run_id *id)
{
    struct buffer_ask look = { .env = bytes_str("test"), .id = *id };
    struct op *op = op_new(VERB_ENTRY_GET, NULL, NULL);
    op->buffer = &look;
    world_run(&s.world, s.store, op);
    cr_assert(!op->err.code && op->out.outcome == OUTCOME_OK);
    uint32_t attempts = look.entries.rows[0]->attempts;
    op_free(op);
    buffer_ask_clear(&look);
    return attempts;
}

Test(drainer, a_ledger_that_is_away_is_asked_less_and_less_and_costs_no_attempts)
{
    struct run_id id = buffered_run("k");
    listen_to_events();
    s.store = faulty_open(s.store, &s.world.env);
    faulty_set(s.store, VERB_RUN_PUT, FAULT_REFUSE, FAULTY_ALWAYS);
    struct engine *drainer = drainer_open(&s, 0);
    world_advance(&s.world, 600000);
    unsigned asked = faulty_count(s.store, VERB_RUN_PUT);
    cr_assert(asked >= 20 && asked <= 60, "%u times in ten minutes", asked);
    cr_assert(told_away == asked, "%u of %u are told", told_away, asked);
    cr_assert(strcmp(away_detail, "it was told to fail") == 0, "%s", away_detail);
    cr_assert(attempts_of(&id) == 0);
    faulty_heal(s.store);
    world_advance(&s.world, 30000);
    cr_assert(in_ledger(&id)->state == RUN_QUEUED);
    struct run_stats stats = drainer_close(&s, drainer);
    cr_assert(stats.drain_failed == 0 && stats.parked == 0 && stats.drain_retried == asked);
}

/* It took the others: it is there. */
Test(drainer, what_is_not_taken_alone_holds_up_nobody)
{
    struct run_id ids[] = { buffered_run("a"), buffered_run("b"), buffered_run("c") };
    listen_to_events();
    s.store = faulty_open(s.store, &s.world.env);
    faulty_set(s.store, VERB_RUN_PUT, FAULT_REFUSE, 1);
    struct engine *drainer = drainer_open(&s, 0);
    world_settle(&s.world);
    struct asked first = expect(get(&s, &ids[0]), OUTCOME_OK);
    cr_assert(first.buffered);
    for (size_t i = 1; i < 3; i++) in_ledger(&ids[i]);
    struct run_id later = buffered_run("d");
    world_advance(&s.world, 200);
    in_ledger(&later);
    cr_assert(faulty_count(s.store, VERB_RUN_PUT) == 4, "it was asked again at once");
    cr_assert(told_away == 0);
    world_advance(&s.world, 2500);
    in_ledger(&ids[0]);
    drainer_close(&s, drainer);
}

/* ---- entries that are refused ---- */

/* Of the file that the ledger is in: what somebody else may do to it. */
static void ledger_sql(const char *sql)
{
    char path[96], *why = NULL;
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/1.db", world_dir(&s.world));
    cr_assert(sqlite3_open(path, &db) == SQLITE_OK);
    cr_assert(sqlite3_exec(db, sql, NULL, NULL, &why) == SQLITE_OK, "%s", why);
    sqlite3_close(db);
}

#define REFUSES(which)                                                                         \
    "CREATE TRIGGER refuses BEFORE INSERT ON runs WHEN " which                                 \
    " BEGIN SELECT RAISE(ABORT, 'not with \"us\"'); END"

/* Enough for five attempts, and the pauses between them. */
enum { PARKED_MS = 20000 };

Test(drainer, a_run_that_is_refused_is_parked_with_all_that_it_has)
{
    struct run_args args = trigger_args("k", "{\"n\": [1, 2]}");
    args.run.queue = bytes_str("letters");
    args.run.tags = bytes_str("\1a");
    args.run.metadata = bytes_str("{\"m\":1}");
    struct asked made = expect(ask(&s, args), OUTCOME_OK);
    struct run_id id = id_of(&made);
    struct run_change more = { .kind = RUN_ADD_TAGS, .body = bytes_str("\1b") };
    expect(change(&s, &id, more), OUTCOME_OK);
    ledger_sql(REFUSES("NEW.key = CAST('k' AS BLOB) AND NEW.state <> 4"));
    struct run_stats stats = drain_for(&s, PARKED_MS, 0);
    cr_assert(stats.parked == 1 && stats.drain_failed == 5, "%llu attempts",
              (unsigned long long)stats.drain_failed);
    struct run *run = in_ledger(&id);
    cr_assert(run->state == RUN_FAILED && run->finished_at_ms > 0);
    cr_assert(bytes_eq(run->error,
                       bytes_str("\"it cannot be written: sqlite: not with \\\"us\\\"\"")),
              "%.*s", (int)run->error.len, (const char *)run->error.data);
    cr_assert(bytes_eq(run->payload, args.run.payload) && bytes_eq(run->key, bytes_str("k")));
    cr_assert(bytes_eq(run->tags, bytes_str("\1a\1b")));
    cr_assert(bytes_eq(run->metadata, bytes_str("{\"m\":1}")));
    cr_assert(bytes_eq(run->task, bytes_str("mail")) &&
              bytes_eq(run->queue, bytes_str("letters")));
    struct asked replayed = expect(ask(&s, about(ASK_REPLAY, &id)), OUTCOME_OK);
    cr_assert(bytes_eq(replayed.rows.rows[0]->payload, args.run.payload));
}

Test(drainer, a_run_that_is_refused_is_tried_less_and_less_and_holds_up_nobody)
{
    struct run_id bad = buffered_run("k");
    ledger_sql(REFUSES("NEW.key = CAST('k' AS BLOB)"));
    s.store = faulty_open(s.store, &s.world.env);
    struct engine *drainer = drainer_open(&s, 0);
    world_advance(&s.world, 200);
    cr_assert(faulty_count(s.store, VERB_RUN_PUT) == 1, "at full speed");
    cr_assert(attempts_of(&bad) == 1);
    struct run_id good = buffered_run("l");
    world_advance(&s.world, 800);
    in_ledger(&good);
    world_advance(&s.world, 1000);
    cr_assert(attempts_of(&bad) >= 2 && attempts_of(&bad) <= 3, "%u", attempts_of(&bad));
    drainer_close(&s, drainer);
}

/* Not even the FAILED run: it stays where it is, seen by everybody, and is tried now and then. */
Test(drainer, a_run_that_cannot_even_be_parked_stays_in_the_buffer)
{
    struct run_id id = buffered_run("k");
    ledger_sql(REFUSES("NEW.key = CAST('k' AS BLOB)"));
    s.store = faulty_open(s.store, &s.world.env);
    struct engine *drainer = drainer_open(&s, 0);
    world_advance(&s.world, 600000);
    unsigned asked = faulty_count(s.store, VERB_RUN_PUT);
    cr_assert(asked >= 20 && asked <= 100, "%u times in ten minutes", asked);
    struct asked got = expect(get(&s, &id), OUTCOME_OK);
    cr_assert(got.buffered && got.rows.rows[0]->state == RUN_QUEUED);
    struct run_change tag = { .kind = RUN_ADD_TAGS, .body = bytes_str("\1a") };
    got = expect(change(&s, &id, tag), OUTCOME_OK);
    cr_assert(got.buffered, "and takes changes");
    ledger_sql("DROP TRIGGER refuses");
    world_advance(&s.world, 31000);
    struct run *run = in_ledger(&id);
    cr_assert(run->state == RUN_QUEUED && bytes_eq(run->tags, bytes_str("\1a")));
    cr_assert(drainer_close(&s, drainer).parked == 0);
}

Test(drainer, a_run_that_is_refused_and_was_canceled_stays_canceled)
{
    struct run_id id = buffered_run("k");
    expect(change(&s, &id, cancel), OUTCOME_OK);
    ledger_sql(REFUSES("NEW.key = CAST('k' AS BLOB)"));
    struct engine *drainer = drainer_open(&s, 0);
    world_advance(&s.world, PARKED_MS);
    ledger_sql("DROP TRIGGER refuses");
    world_advance(&s.world, 31000);
    cr_assert(in_ledger(&id)->state == RUN_CANCELED);
    drainer_close(&s, drainer);
}

static struct run_id accept_bytes(struct bytes bytes)
{
    struct run_id id;
    uint8_t random[10] = { 3 };
    run_id_make(s.world.wall_ms, random, &id);
    struct buffer_ask accept = {
        .env = bytes_str("test"), .id = id, .run = bytes, .unclaimed = true
    };
    struct key key = { bytes_str("@test"), bytes_str("x") };
    struct op *op = op_new(VERB_ACCEPT, &key, NULL);
    op->buffer = &accept;
    world_run(&s.world, s.store, op);
    cr_assert(!op->err.code && op->out.outcome == OUTCOME_OK);
    op_free(op);
    buffer_ask_clear(&accept);
    return id;
}

Test(drainer, an_entry_that_cannot_be_read_becomes_a_failed_run)
{
    struct run_id id = accept_bytes(bytes_str("\7nonsense"));
    cr_assert(drain_for(&s, PARKED_MS, 0).parked == 1);
    struct run *run = in_ledger(&id);
    cr_assert(run->state == RUN_FAILED && run_id_eq(&run->id, &id));
    cr_assert(bytes_eq(run->error,
                       bytes_str("\"it cannot be written: what was accepted is no run\"")));
}

/* Something is wrong with it, but it says what was asked for. */
Test(drainer, an_entry_of_another_id_becomes_a_failed_run_with_its_payload)
{
    struct buf packed;
    struct run run = { .env = bytes_str("test"),
                       .task = bytes_str("mail"),
                       .queue = bytes_str("mail"),
                       .payload = bytes_str("[7]"),
                       .state = RUN_QUEUED,
                       .attempts_max = 3 };
    uint8_t random[10] = { 4 };
    run_id_make(s.world.wall_ms, random, &run.id);
    buf_init(&packed, 4096);
    run_encode(&run, &packed);
    struct run_id id = accept_bytes(buf_bytes(&packed));
    buf_fini(&packed);
    cr_assert(drain_for(&s, PARKED_MS, 0).parked == 1);
    struct run *got = in_ledger(&id);
    cr_assert(got->state == RUN_FAILED && run_id_eq(&got->id, &id));
    cr_assert(bytes_eq(got->payload, bytes_str("[7]")));
    expect(get(&s, &run.id), OUTCOME_ABSENT);
}

/* ---- whoever wants all of it, now ---- */

struct drained {
    unsigned told;
    uint64_t count;
    struct err err;
};

static void drain_over(uint64_t drained, const struct err *err, void *ctx)
{
    struct drained *d = ctx;
    d->told++;
    d->count = drained;
    d->err = *err;
}

static void drain_start(struct drained *d, int64_t wait_ms)
{
    struct err err;
    *d = (struct drained){ 0 };
    cr_assert(engine_drain(s.engine, wait_ms, drain_over, d, &err) == 0, "%s", err.text);
    world_settle(&s.world);
}

/* As a drainer does that is killed then. */
static void lease_and_die(void)
{
    struct buffer_ask lease = { .limit = 100, .token = token_of(77), .lease_ms = LEASE_MS };
    struct op *op = op_new(VERB_DRAIN_LEASE, NULL, NULL);
    op->buffer = &lease;
    world_run(&s.world, s.store, op);
    cr_assert(!op->err.code && lease.entries.count > 0);
    op_free(op);
    buffer_ask_clear(&lease);
}

Test(drainer, all_of_it_is_nothing_if_there_is_nothing)
{
    struct drained d;
    drain_start(&d, 0);
    cr_assert(d.told == 1 && d.count == 0 && !d.err.code);
}

Test(drainer, all_of_it_has_what_a_dead_drainer_had)
{
    struct drained d;
    struct run_id dead = buffered_run("a");
    lease_and_die();
    struct run_id other = buffered_run("b");
    drain_start(&d, LEASE_MS + 2000);
    in_ledger(&other);
    world_advance(&s.world, LEASE_MS - 1000);
    cr_assert(d.told == 0, "one is left");
    world_advance(&s.world, 2000);
    cr_assert(d.told == 1 && d.count == 2 && !d.err.code, "%s", d.err.text);
    in_ledger(&dead);
}

Test(drainer, all_of_it_is_not_claimed_when_others_have_some_of_it)
{
    struct drained d;
    buffered_run("a");
    buffered_run("b");
    lease_and_die();
    drain_start(&d, 5000);
    world_advance(&s.world, 4000);
    cr_assert(d.told == 0);
    world_advance(&s.world, 2000);
    cr_assert(d.told == 1 && d.count == 0 && d.err.code == ERR_UNAVAILABLE);
    cr_assert(strstr(d.err.text, "2 left in the buffer"), "%s", d.err.text);
}

Test(drainer, all_of_it_is_what_was_there)
{
    struct drained d;
    buffered_run("a");
    s.store = faulty_open(s.store, &s.world.env);
    faulty_set(s.store, VERB_RUN_PUT, FAULT_HOLD, 1);
    struct engine *other = drainer_open(&s, 0); /* has it, and lives */
    world_settle(&s.world);
    drain_start(&d, LEASE_MS);
    world_advance(&s.world, 3000);
    cr_assert(d.told == 0);
    buffered_run("b");
    let_go();
    faulty_set(s.store, VERB_RUN_PUT, FAULT_HOLD, FAULTY_ALWAYS);
    buffered_run("c");
    world_advance(&s.world, 1500);
    cr_assert(d.told == 1 && !d.err.code, "%s", d.err.text);
    faulty_heal(s.store);
    faulty_let_go(s.store);
    drainer_close(&s, other);
}

Test(drainer, all_of_it_waits_as_long_as_something_is_moved)
{
    struct drained d;
    struct run_id refused = buffered_run("k");
    ledger_sql(REFUSES("NEW.key = CAST('k' AS BLOB)"));
    drain_start(&d, 60000);
    for (int i = 0; i < 100; i++) {
        buffered_run("");
        world_advance(&s.world, 500);
        cr_assert(d.told == 0);
    }
    world_advance(&s.world, 62000);
    cr_assert(d.told == 1 && d.count == 100 && d.err.code == ERR_UNAVAILABLE);
    cr_assert(strstr(d.err.text, "1 left in the buffer"), "%s", d.err.text);
    cr_assert(expect(get(&s, &refused), OUTCOME_OK).buffered);
}

Test(drainer, all_of_it_is_told_what_is_wrong_with_the_ledger)
{
    struct drained d;
    buffered_run("a");
    ledger_sql("CREATE TRIGGER full BEFORE INSERT ON runs BEGIN"
               " SELECT RAISE(ABORT, 'no'); END");
    drain_start(&d, 0);
    cr_assert(d.told == 0 || d.err.code == ERR_UNAVAILABLE);
    world_advance(&s.world, 1000);
    cr_assert(d.told == 1 && d.err.code == ERR_UNAVAILABLE, "%s", d.err.text);
}

/* Else it would be waited for as for a dead drainer's. */
Test(drainer, a_settle_that_fails_is_sent_again)
{
    struct run_id id = buffered_run("a");
    s.store = faulty_open(s.store, &s.world.env);
    faulty_set(s.store, VERB_SETTLE, FAULT_REFUSE, 2);
    struct engine *drainer = drainer_open(&s, 0);
    world_advance(&s.world, 500);
    in_ledger(&id);
    cr_assert(faulty_count(s.store, VERB_SETTLE) == 3);
    struct run_stats stats = drainer_close(&s, drainer);
    cr_assert(stats.drained == 1);
    faulty_set(s.store, VERB_SETTLE, FAULT_REFUSE, FAULTY_ALWAYS);
    buffered_run("b");
    drainer = drainer_open(&s, 0);
    world_advance(&s.world, 500);
    drainer_close(&s, drainer); /* and nobody waits for it then */
}
