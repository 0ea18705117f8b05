/* sqlite_runs_test.c - what only the sqlite store promises about runs: old files, rows that make no
 * sense, ops that fail half-way, processes, the head of a line. The rest is in tests/conform. */
#include "store/sqlite_scene_test.h"

enum { MANY_PROCESSES = 8 };

SQLITE_SUITE(sqlite_runs);

/* ---- asking ---- */

static struct run_id id_nr(unsigned n)
{
    struct run_id id;
    uint8_t random[10] = { [8] = (uint8_t)(n >> 8), [9] = (uint8_t)n };
    run_id_make(1700000000000, random, &id);
    return id;
}

static struct run run_nr(unsigned n)
{
    static const uint8_t fingerprint[RUN_FINGERPRINT_BYTES];
    return (struct run){ .id = id_nr(n),
                         .env = bytes_str("e"),
                         .task = bytes_str("t"),
                         .queue = bytes_str("q"),
                         .fingerprint = bytes_of(fingerprint, sizeof fingerprint),
                         .state = RUN_QUEUED,
                         .created_at_ms = now_ms,
                         .available_at_ms = now_ms,
                         .attempts_max = 3 };
}

static struct run run_keyed(unsigned n, const char *key)
{
    struct run r = run_nr(n);
    r.key = bytes_str(key);
    r.key_held = true;
    r.key_until_ms = now_ms + 60000;
    return r;
}

static struct op *op_about(enum verb verb, struct run_ask *ask)
{
    struct op *op = op_new(verb, NULL, NULL);
    cr_assert(op);
    op->run = ask;
    return op;
}

static struct run_ask put_ask(const struct run *r)
{
    return (struct run_ask){ .env = r->env, .id = r->id, .run = r };
}

static struct run_ask get_ask(unsigned n)
{
    return (struct run_ask){ .env = bytes_str("e"), .id = id_nr(n) };
}

static struct run_ask lease_ask(size_t limit)
{
    static struct token tokens[16];
    static uint8_t last;
    cr_assert(limit <= 16);
    for (size_t i = 0; i < limit; i++) tokens[i].bytes[0] = ++last;
    return (struct run_ask){ .env = bytes_str("e"),
                             .queue = bytes_str("q"),
                             .limit = limit,
                             .lease_ms = 1000,
                             .tokens = tokens };
}

/* Asks alone; the caller clears the ask. */
static struct err ask_alone(struct store *s, enum verb verb, struct run_ask *ask,
                            enum outcome *ret_outcome)
{
    struct op *op = op_about(verb, ask);
    exec(s, &op, 1);
    struct err err = op->err;
    *ret_outcome = op->out.outcome;
    op_free(op);
    return err;
}

static void ask_ok(struct store *s, enum verb verb, struct run_ask *ask)
{
    enum outcome outcome;
    struct err err = ask_alone(s, verb, ask, &outcome);
    cr_assert(err.code == 0, "%s: %s", verb_info[verb].name, err.text);
    cr_assert(outcome == OUTCOME_OK, "%s: %s", verb_info[verb].name, outcome_name(outcome));
}

static void ask_fails(struct store *s, enum verb verb, struct run_ask ask, int code)
{
    enum outcome outcome;
    struct err err = ask_alone(s, verb, &ask, &outcome);
    cr_assert(err.code == code, "%s: %d %s", verb_info[verb].name, err.code,
              err.code ? err.text : outcome_name(outcome));
    cr_assert(ask.rows.count == 0, "a refusal has no rows");
    run_ask_clear(&ask);
}

static void put(struct store *s, struct run r)
{
    struct run_ask ask = put_ask(&r);
    ask_ok(s, VERB_RUN_PUT, &ask);
    run_ask_clear(&ask);
}

static enum run_state state_of(struct store *s, unsigned n)
{
    struct run_ask ask = get_ask(n);
    ask_ok(s, VERB_RUN_GET, &ask);
    enum run_state state = ask.rows.rows[0]->state;
    run_ask_clear(&ask);
    return state;
}

/* ---- a process that is stopped in the middle of a batch ---- */

static int64_t leap_after; /* so many looks at the clock, half a minute passes */

static int64_t leaping_ms(void *ctx)
{
    (void)ctx;
    return leap_after-- > 0 ? now_ms : now_ms + 30000;
}

Test(sqlite_runs, put_that_came_in_time_is_not_committed_too_late)
{
    env.monotonic.now_ms = leaping_ms;
    struct store *s = open_store();
    struct run drained = run_nr(1), other = run_nr(2);
    struct run_ask asks[] = { put_ask(&drained), put_ask(&other) };
    asks[0].drains = true;
    asks[0].until_ms = now_ms + 20000;
    struct op *ops[] = { op_about(VERB_RUN_PUT, &asks[0]), op_about(VERB_RUN_PUT, &asks[1]) };
    leap_after = 1;
    exec(s, ops, 2);
    cr_assert(!ops[0]->err.code && ops[0]->out.outcome == OUTCOME_LOST);
    cr_assert(!ops[1]->err.code && ops[1]->out.outcome == OUTCOME_OK);
    leap_after = 1;
    exec(s, ops, 1);
    cr_assert(ops[0]->err.code == ERR_UNAVAILABLE, "%s", ops[0]->err.text);
    leap_after = 2;
    exec(s, ops, 1);
    cr_assert(!ops[0]->err.code && ops[0]->out.outcome == OUTCOME_OK);
    cr_assert(asks[0].put == PUT_INSERT, "it was there already");
    for (size_t i = 0; i < 2; i++) {
        op_free(ops[i]);
        run_ask_clear(&asks[i]);
    }
    store_close(s);
}

/* ---- old files ---- */

static const char *const version_1 =
    "CREATE TABLE meta (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL,"
    " fence_floor INTEGER NOT NULL) STRICT;"
    "INSERT INTO meta VALUES (1, 4711, 12345);"
    "CREATE TABLE claims (id INTEGER PRIMARY KEY, scope BLOB NOT NULL, name BLOB NOT NULL,"
    " state INTEGER NOT NULL, token BLOB NOT NULL, fence INTEGER NOT NULL,"
    " claimed_at_ms INTEGER NOT NULL, lease_ms INTEGER NOT NULL,"
    " lease_until_ms INTEGER NOT NULL, retain_ms INTEGER NOT NULL,"
    " done_at_ms INTEGER NOT NULL, gone_at_ms INTEGER NOT NULL, fingerprint BLOB NOT NULL,"
    " value BLOB, UNIQUE (scope, name)) STRICT;"
    "CREATE INDEX claims_gone ON claims (gone_at_ms);"
    "INSERT INTO claims (scope, name, state, token, fence, claimed_at_ms, lease_ms,"
    " lease_until_ms, retain_ms, done_at_ms, gone_at_ms, fingerprint, value) VALUES"
    " (x'73', x'6b', 2, x'01000000000000000000000000000000', 77, 999000, 30000, 1029000,"
    "  60000, 999500, 1059500, x'', x'41');"
    "PRAGMA application_id = 0x6f6e6365; PRAGMA user_version = 1;";

Test(sqlite_runs, a_file_from_before_runs_keeps_its_claims_and_takes_runs)
{
    raw(version_1);
    struct store *s = open_store();
    cr_expect(s->epoch == 4711);
    struct op *op = op_on(VERB_CLAIM, "k", owner(2));
    exec(s, &op, 1);
    cr_expect(op->out.outcome == OUTCOME_CACHED && op->out.fence == 77);
    cr_expect(bytes_eq(blob_bytes(op->out.value), bytes_str("A")));
    op_free(op);
    cr_expect(stats(s).fence_floor == 12345);
    put(s, run_nr(1));
    cr_expect(state_of(s, 1) == RUN_QUEUED);
    store_close(s);
    cr_expect(raw_number("PRAGMA user_version") == SCHEMA_NOW);
}

Test(sqlite_runs, a_migration_that_fails_leaves_the_old_file_as_it_was)
{
    raw(version_1);
    raw("CREATE TABLE aliases (x)");
    int64_t objects = raw_number("SELECT count(*) FROM sqlite_master");
    expect_refused(url, ERR_CORRUPT, "aliases");
    cr_expect(raw_number("PRAGMA user_version") == 1);
    cr_expect(raw_number("SELECT count(*) FROM sqlite_master") == objects);
    cr_expect(raw_number("SELECT count(*) FROM claims") == 1);
}

/* ---- rows that make no sense ---- */

static const char *const nonsense[] = {
    "state = 0",
    "state = 9",
    "key_held = 2",
    "token = x'00'",
    "token = x'0000000000000000000000000000000000'",
    "tags = x'0541'",
    "tags = zeroblob(100000)",
    "env = zeroblob(65)",
    "task = zeroblob(129)",
    "queue = zeroblob(129)",
    "key = zeroblob(513)",
    "ordering_key = zeroblob(129)",
    "metadata = zeroblob(300000)",
    "metadata_version = -1",
    "created_at_ms = -1",
    "available_at_ms = -1",
    "delay_until_ms = -1",
    "lease_until_ms = -1",
    "lease_ms = 1 << 62",
    "finished_at_ms = 1 << 62",
    "attempts = -1",
    "attempts_max = 1 << 40",
    "stalls = -1",
    "fence = -1",
    "changes = -1",
    "id = x'72756e5f'",
};

static void spoil(unsigned n, const char *how)
{
    char sql[160];
    snprintf(sql, sizeof sql, "UPDATE runs SET %s WHERE id = CAST('%s' AS BLOB)", how,
             id_nr(n).text);
    raw(sql);
}

Test(sqlite_runs, a_row_that_makes_no_sense_is_corrupt_and_not_a_crash)
{
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        struct store *s = open_store();
        raw("DELETE FROM runs");
        put(s, run_keyed(1, "k"));
        spoil(1, nonsense[i]);
        struct bytes of = bytes_str("e");
        char zeros[65] = { 0 };
        if (strncmp(nonsense[i], "env", 3) == 0) of = bytes_of(zeros, sizeof zeros);
        struct run_ask list = { .env = of, .limit = 10 };
        enum outcome outcome;
        struct err err = ask_alone(s, VERB_RUN_LIST, &list, &outcome);
        cr_expect(err.code == ERR_CORRUPT, "%s: %d", nonsense[i], err.code);
        cr_expect(list.rows.count == 0);
        run_ask_clear(&list);
        store_close(s);
    }
}

Test(sqlite_runs, every_verb_meets_nonsense_alone)
{
    struct store *s = open_store();
    put(s, run_keyed(1, "k"));
    put(s, run_keyed(2, "other"));
    spoil(1, "state = 9");
    struct run again = run_keyed(1, "k"), same_key = run_keyed(3, "k");
    struct run_ask by_key = { .env = bytes_str("e"),
                              .task = bytes_str("t"),
                              .key = bytes_str("k") };
    struct run_ask change = get_ask(1);
    change.change = (struct run_change){ .kind = RUN_CANCEL };
    ask_fails(s, VERB_RUN_GET, get_ask(1), ERR_CORRUPT);
    ask_fails(s, VERB_RUN_GET, by_key, ERR_CORRUPT);
    ask_fails(s, VERB_RUN_RESET, by_key, ERR_CORRUPT);
    ask_fails(s, VERB_RUN_CHANGE, change, ERR_CORRUPT);
    ask_fails(s, VERB_RUN_PUT, put_ask(&again), ERR_CORRUPT);
    ask_fails(s, VERB_RUN_PUT, put_ask(&same_key), ERR_CORRUPT);
    ask_fails(s, VERB_RUN_LEASE, lease_ask(1), ERR_CORRUPT);
    cr_expect(state_of(s, 2) == RUN_QUEUED);
    store_close(s);
}

Test(sqlite_runs, an_alias_that_leads_nowhere_is_corrupt)
{
    struct store *s = open_store();
    char sql[200];
    snprintf(sql, sizeof sql,
             "INSERT INTO aliases (env, id, canonical_id, changes, made_at_ms)"
             " VALUES (x'65', CAST('%s' AS BLOB), CAST('%s' AS BLOB), 0, 0)",
             id_nr(2).text, id_nr(1).text);
    raw(sql);
    struct run r = run_nr(2);
    ask_fails(s, VERB_RUN_GET, get_ask(2), ERR_CORRUPT);
    ask_fails(s, VERB_RUN_PUT, put_ask(&r), ERR_CORRUPT);
    put(s, run_nr(1));
    cr_expect(state_of(s, 2) == RUN_QUEUED, "now it leads somewhere");
    raw("UPDATE aliases SET changes = -1");
    ask_fails(s, VERB_RUN_GET, get_ask(2), ERR_CORRUPT);
    raw("UPDATE aliases SET changes = 0, canonical_id = x'00'");
    ask_fails(s, VERB_RUN_GET, get_ask(2), ERR_CORRUPT);
    store_close(s);
}

Test(sqlite_runs, a_row_that_says_it_is_due_and_is_not_is_no_endless_loop)
{
    struct store *s = open_store();
    put(s, run_nr(1));
    spoil(1, "available_at_ms = available_at_ms + 5000");
    ask_fails(s, VERB_RUN_LEASE, lease_ask(1), ERR_CORRUPT);
    store_close(s);
}

/* ---- ops that fail half-way (S4) ---- */

Test(sqlite_runs, a_lease_that_fails_has_leased_nothing_and_its_batch_goes_on)
{
    struct store *s = open_store();
    for (unsigned n = 1; n <= 3; n++) put(s, run_nr(n));
    spoil(2, "state = 9");
    struct run r = run_nr(4);
    struct run_ask put_before = put_ask(&r), lease = lease_ask(3), get = get_ask(4);
    struct op *ops[] = { op_about(VERB_RUN_PUT, &put_before), op_about(VERB_RUN_LEASE, &lease),
                         op_about(VERB_RUN_GET, &get), op_on(VERB_CLAIM, "k", owner(1)) };
    exec(s, ops, 4);
    cr_expect(ops[0]->err.code == 0 && ops[0]->out.outcome == OUTCOME_OK);
    cr_expect(put_before.put == PUT_INSERT, "it was carried out once");
    cr_expect(ops[1]->err.code == ERR_CORRUPT && !ops[1]->changed && lease.rows.count == 0);
    cr_expect(ops[2]->err.code == 0 && get.rows.count == 1);
    cr_expect(ops[3]->out.outcome == OUTCOME_CLAIMED);
    for (size_t i = 0; i < 4; i++) op_free(ops[i]);
    run_ask_clear(&put_before);
    run_ask_clear(&lease);
    run_ask_clear(&get);
    cr_expect(state_of(s, 1) == RUN_QUEUED, "it was leased by an op that failed");
    store_close(s);
}

Test(sqlite_runs, a_run_that_could_not_be_read_back_is_refused_alone)
{
    struct store *s = open_store();
    struct run bad = run_keyed(1, "k"), good = run_nr(2);
    bad.available_at_ms = -1;
    struct run_ask put_bad = put_ask(&bad), put_good = put_ask(&good);
    struct op *ops[] = { op_about(VERB_RUN_PUT, &put_bad), op_about(VERB_RUN_PUT, &put_good) };
    exec(s, ops, 2);
    cr_expect(ops[0]->err.code == ERR_INVALID, "%d", ops[0]->err.code);
    cr_expect(ops[1]->err.code == 0 && ops[1]->out.outcome == OUTCOME_OK);
    op_free(ops[0]);
    op_free(ops[1]);
    run_ask_clear(&put_bad);
    run_ask_clear(&put_good);
    cr_expect(raw_number("SELECT count(*) FROM runs") == 1);
    store_close(s);
}

/* The loser of the key was written before the insert failed. */
Test(sqlite_runs, a_put_that_fails_takes_no_key)
{
    struct store *s = open_store();
    put(s, run_keyed(1, "k"));
    now_ms += 60000;
    struct run bad = run_keyed(2, "k");
    bad.available_at_ms = -1;
    ask_fails(s, VERB_RUN_PUT, put_ask(&bad), ERR_INVALID);
    cr_expect(raw_number("SELECT count(*) FROM runs WHERE key_held = 1") == 1);
    store_close(s);
}

Test(sqlite_runs, changes_that_make_no_sense_are_the_op_s_own_error)
{
    struct store *s = open_store();
    struct run r = run_nr(1);
    struct run_ask ask = put_ask(&r);
    ask.drains = true;
    ask.changes = bytes_str("nonsense");
    ask_fails(s, VERB_RUN_PUT, ask, ERR_CORRUPT);
    cr_expect(raw_number("SELECT count(*) FROM runs") == 0);
    store_close(s);
}

Test(sqlite_runs, a_lease_has_to_last)
{
    struct store *s = open_store();
    put(s, run_nr(1));
    struct run_ask ask = lease_ask(2);
    ask.lease_ms = 0;
    ask_fails(s, VERB_RUN_LEASE, ask, ERR_INVALID);
    ask.lease_ms = INT64_MAX;
    ask_fails(s, VERB_RUN_LEASE, ask, ERR_INVALID);
    cr_expect(state_of(s, 1) == RUN_QUEUED);
    store_close(s);
}

/* ---- several processes ---- */

Test(sqlite_runs, a_change_of_a_run_is_heard)
{
    struct store *a = open_store(), *b = open_store();
    a->class->foreign_wrote(a);
    cr_expect(!a->class->foreign_wrote(a));
    put(b, run_nr(1));
    cr_expect(a->class->foreign_wrote(a));
    cr_expect(state_of(b, 1) == RUN_QUEUED);
    cr_expect(!a->class->foreign_wrote(a), "a read is not a write");
    store_close(a);
    store_close(b);
}

static struct store *volatile held; /* what is held is not a leak */

static int put_and_die(void)
{
    held = open_store();
    put(held, run_keyed(1, "k"));
    raise(SIGKILL);
    return 0;
}

Test(sqlite_runs, what_was_put_survives_its_process)
{
    cr_expect(exit_of(spawn(put_and_die)) == -SIGKILL);
    struct store *s = open_store();
    cr_expect(state_of(s, 1) == RUN_QUEUED);
    store_close(s);
}

static unsigned process_number;

/* Exits with 1 if it made the run, 0 if it was told of another's. */
static int put_the_one_key(void)
{
    struct store *s;
    struct err err;
    enum outcome outcome;
    rng_system_init(&rng);
    if (store_open_bare(url, &env, &s, &err)) return 2;
    struct run r = run_keyed(process_number, "k");
    struct run_ask ask = put_ask(&r);
    err = ask_alone(s, VERB_RUN_PUT, &ask, &outcome);
    int made = err.code ? 3 : outcome == OUTCOME_OK;
    if (!err.code && ask.rows.count != 1) made = 4;
    run_ask_clear(&ask);
    store_close(s);
    return made;
}

Test(sqlite_runs, many_processes_with_one_key_make_one_run)
{
    pid_t pids[MANY_PROCESSES];
    int made = 0;
    for (unsigned i = 0; i < MANY_PROCESSES; i++) {
        process_number = i;
        pids[i] = spawn(put_the_one_key);
    }
    for (unsigned i = 0; i < MANY_PROCESSES; i++) {
        int status = exit_of(pids[i]);
        cr_expect(status == 0 || status == 1, "process %u: %d", i, status);
        made += status == 1;
    }
    cr_expect(made == 1, "%d made one", made);
    cr_expect(raw_number("SELECT count(*) FROM runs") == 1);
}

/* ---- lines ---- */

/* Every line with active runs has one head: what executes, else the lowest id. */
static const char *const bad_lines =
    "SELECT count(*) FROM (SELECT count(due_at_ms) AS heads, sum(state = 2) AS executing,"
    " max(id) FILTER (WHERE due_at_ms IS NOT NULL) AS head,"
    " max(id) FILTER (WHERE state = 2) AS at_it, min(id) AS first"
    " FROM runs WHERE state <= 2 AND ordering_key <> x'' GROUP BY env, queue, ordering_key)"
    " WHERE heads <> 1 OR executing > 1 OR head <> ifnull(at_it, first)";

static struct run held_runs[16];
static size_t held_count;

static void lease_some(struct store *s, size_t limit)
{
    struct run_ask ask = lease_ask(limit);
    ask_ok(s, VERB_RUN_LEASE, &ask);
    for (size_t i = 0; i < ask.rows.count && held_count < 16; i++)
        held_runs[held_count++] = *ask.rows.rows[i];
    run_ask_clear(&ask);
}

static void end_one(struct store *s, size_t which, enum run_change_kind kind)
{
    enum outcome outcome;
    struct run_ask ask = { .env = bytes_str("e"),
                           .id = held_runs[which].id,
                           .change = { .kind = kind, .token = held_runs[which].token } };
    struct err err = ask_alone(s, VERB_RUN_CHANGE, &ask, &outcome);
    cr_assert(err.code == 0, "%s", err.text);
    run_ask_clear(&ask);
    held_runs[which] = held_runs[--held_count];
}

static void random_step(struct store *s, struct rng_seeded *dice, unsigned *next)
{
    static const char *const names[] = { "a", "b", "c" };
    struct run r =
        run_nr((*next)++ ^ (unsigned)rng_below(&dice->base, 8)); /* also out of order */
    r.ordering_key = bytes_str(names[rng_below(&dice->base, 3)]);
    if (rng_below(&dice->base, 4) == 0)
        r.delay_until_ms = r.available_at_ms = now_ms + (int64_t)rng_below(&dice->base, 500);
    struct run_ask ask = put_ask(&r);
    ask.drains = true; /* so that an id that is there already is fine */
    ask_ok(s, VERB_RUN_PUT, &ask);
    run_ask_clear(&ask);
    lease_some(s, rng_below(&dice->base, 3));
    static const enum run_change_kind ends[] = { RUN_COMPLETE, RUN_FAIL, RUN_CANCEL,
                                                 RUN_HEARTBEAT };
    if (held_count && rng_below(&dice->base, 2))
        end_one(s, rng_below(&dice->base, held_count), ends[rng_below(&dice->base, 4)]);
    now_ms += (int64_t)rng_below(&dice->base, 400);
}

Test(sqlite_runs, a_line_has_one_head_whatever_happens)
{
    struct store *s = open_store();
    struct rng_seeded dice;
    unsigned next = 0;
    rng_seeded_init(&dice, 7);
    for (unsigned i = 0; i < 600; i++) {
        random_step(s, &dice, &next);
        if (i % 4) continue;
        cr_assert(raw_number(bad_lines) == 0, "step %u", i);
    }
    cr_expect(raw_number("SELECT count(*) FROM runs WHERE state = 3") > 20);
    cr_expect(raw_number("SELECT count(*) FROM runs WHERE stalls > 0") > 20);
    store_close(s);
}
