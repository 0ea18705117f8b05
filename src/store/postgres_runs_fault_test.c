/* postgres_runs_fault_test.c - what the ledger of runs says when the server, or somebody else, is in
 * its way; its clock, its plans, its schema. */
#include "store/postgres_runs_scene_test.h"

TestSuite(postgres_runs_fault, .init = setup, .fini = teardown, .timeout = 120);

/* ---- commits ---- */

static const char *named(const char *more)
{
    static char text[160];
    snprintf(text, sizeof text, "&application_name=%s%s", ledger.room.name, more);
    return text;
}

static void until_it_waits_for_a_lock(void)
{
    char sql[200];
    snprintf(sql, sizeof sql,
             "SELECT coalesce(bool_or(wait_event_type = 'Lock'), false) FROM pg_stat_activity"
             " WHERE application_name = '%s'",
             ledger.room.name);
    ledger_until(&ledger, sql);
}

struct batch {
    pthread_t thread;
    struct store *store;
    struct question *q[4];
    size_t count;
};

static void *batch_run(void *ctx)
{
    struct batch *b = ctx;
    exec(b->store, b->q, b->count);
    return NULL;
}

static void batch_start(struct batch *b)
{
    cr_assert(pthread_create(&b->thread, NULL, batch_run, b) == 0);
}

static void batch_join(struct batch *b)
{
    cr_assert(pthread_join(b->thread, NULL) == 0);
}

static void batch_free(struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) question_free(b->q[i]);
}

/* What a deferred trigger does, it does in the COMMIT. */
static void wait_at_commit(void)
{
    ledger_sql(&ledger,
               "CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
               " PERFORM pg_advisory_xact_lock(hashtext('%s')); RETURN NULL; END $$;"
               "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE ON runs"
               " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit()",
               ledger.room.name);
    ledger_sql(&ledger, "SELECT pg_advisory_lock(hashtext('%s'))", ledger.room.name);
}

static void end_its_session(void)
{
    ledger_sql(&ledger,
               "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE"
               " application_name = '%s'",
               ledger.room.name);
}

Test(postgres_runs_fault, commit_without_an_answer_is_ambiguous_and_may_be_asked_again)
{
    struct batch b = { .store = ledger_open(&ledger, named("")), .count = 4 };
    expect(b.store, put_of(9, NULL), OUTCOME_OK);
    wait_at_commit();
    b.q[0] = put_of(1, "k");
    b.q[1] = put_of(2, "k");
    b.q[2] = increment_of(9);
    b.q[3] = get_of(5);
    batch_start(&b);
    until_it_waits_for_a_lock();
    end_its_session();
    batch_join(&b);
    cr_assert(b.q[0]->op->err.code == ERR_AMBIGUOUS, "%s", b.q[0]->op->err.text);
    cr_assert(b.q[1]->op->err.code == ERR_UNAVAILABLE, "%s", b.q[1]->op->err.text);
    cr_assert(b.q[2]->op->err.code == ERR_AMBIGUOUS, "%s", b.q[2]->op->err.text);
    cr_assert(outcome_of(b.q[3]) == OUTCOME_ABSENT);
    ledger_sql(&ledger, "SELECT pg_advisory_unlock_all()");
    exec(b.store, b.q, 2); /* on a new connection */
    cr_assert(outcome_of(b.q[0]) == OUTCOME_OK && outcome_of(b.q[1]) == OUTCOME_CACHED);
    batch_free(&b);
    store_close(b.store);
}

Test(postgres_runs_fault, put_that_was_committed_without_an_answer_is_the_same_run)
{
    struct store *s = ledger_open(&ledger, ""), *other = ledger_open(&ledger, "");
    struct question *q = put_of(1, "k");
    expect(other, put_of(1, "k"), OUTCOME_OK); /* its commit was made */
    asked(s, q);
    cr_assert(outcome_of(q) == OUTCOME_OK && q->ask.put == PUT_SAME);
    question_free(q);
    store_close(s);
    store_close(other);
}

Test(postgres_runs_fault, lease_without_an_answer_is_ambiguous)
{
    struct batch b = { .store = ledger_open(&ledger, named("")), .count = 2 };
    expect(b.store, put_of(1, NULL), OUTCOME_OK);
    wait_at_commit();
    b.q[0] = lease_of(1, 1);
    b.q[1] = lease_of(1, 2);
    batch_start(&b);
    until_it_waits_for_a_lock();
    end_its_session();
    batch_join(&b);
    for (size_t i = 0; i < 2; i++)
        cr_assert(b.q[i]->op->err.code == ERR_AMBIGUOUS, "%s", b.q[i]->op->err.text);
    ledger_sql(&ledger, "SELECT pg_advisory_unlock_all()");
    exec(b.store, b.q, 2);
    cr_assert(outcome_of(b.q[0]) == OUTCOME_OK && b.q[0]->ask.rows.count == 1);
    cr_assert(outcome_of(b.q[1]) == OUTCOME_OK && b.q[1]->ask.rows.count == 0);
    batch_free(&b);
    store_close(b.store);
}

/* ---- somebody else's transaction ---- */

Test(postgres_runs_fault, key_that_appears_while_it_is_inserted_is_decided_again)
{
    struct store *first = ledger_open(&ledger, "");
    expect(first, put_of(9, "old"), OUTCOME_OK);
    struct batch b = { .store = ledger_open(&ledger, named("")), .count = 2 };
    put_many(b.store, 100);
    b.q[0] = put_of(1, "k");
    b.q[1] = put_of(2, "j");
    ledger_sql(&ledger, "BEGIN; UPDATE runs SET key = 'k', rev = rev + 1 WHERE key = 'old'");
    batch_start(&b);
    until_it_waits_for_a_lock();
    ledger_sql(&ledger, "COMMIT");
    batch_join(&b);
    cr_assert(outcome_of(b.q[0]) == OUTCOME_CACHED && outcome_of(b.q[1]) == OUTCOME_OK);
    batch_free(&b);
    store_close(b.store);
    store_close(first);
}

Test(postgres_runs_fault, row_that_changes_while_it_is_updated_is_decided_again)
{
    struct batch b = { .store = ledger_open(&ledger, named("")), .count = 2 };
    expect(b.store, put_of(1, NULL), OUTCOME_OK);
    expect(b.store, put_of(2, NULL), OUTCOME_OK);
    ledger_sql(&ledger,
               "BEGIN; UPDATE runs SET rev = rev + 1, metadata_version = 1,"
               " metadata = '{\"n\":41}' WHERE id = '%s'",
               id_of(1).text);
    b.q[0] = increment_of(1);
    b.q[1] = increment_of(2);
    batch_start(&b);
    until_it_waits_for_a_lock();
    ledger_sql(&ledger, "COMMIT");
    batch_join(&b);
    cr_assert(outcome_of(b.q[0]) == OUTCOME_OK && outcome_of(b.q[1]) == OUTCOME_OK);
    cr_assert(row_of(b.q[0])->metadata_version == 2 && row_of(b.q[1])->metadata_version == 1);
    batch_free(&b);
    store_close(b.store);
}

Test(postgres_runs_fault, op_that_poisons_a_batch_fails_alone)
{
    struct store *s = ledger_open(&ledger, "");
    put_many(s, 100);
    ledger_sql(&ledger, "ALTER TABLE runs ADD CHECK (key <> 'poison')");
    struct question *q[] = { put_of(1, "a"), put_of(2, "poison"), put_of(3, "b"),
                             increment_of(1) };
    exec(s, q, 4);
    cr_assert(outcome_of(q[0]) == OUTCOME_OK && outcome_of(q[2]) == OUTCOME_OK);
    cr_assert(q[1]->op->err.code == ERR_CORRUPT, "%s", q[1]->op->err.text);
    cr_assert(outcome_of(q[3]) == OUTCOME_OK && row_of(q[3])->metadata_version == 1);
    for (size_t i = 0; i < 4; i++) question_free(q[i]);
    store_close(s);
}

/* A restore, another database behind the pooler: nothing is wrong with the run. */
Test(postgres_runs_fault, table_that_is_away_is_an_outage)
{
    struct store *s = ledger_open(&ledger, "");
    struct question *q[] = { put_of(1, "a"), put_of(2, "b") };
    ledger_sql(&ledger, "ALTER TABLE runs RENAME TO runs_away");
    exec(s, q, 2);
    for (size_t i = 0; i < 2; i++) {
        cr_assert(q[i]->op->err.code == ERR_UNAVAILABLE, "%s", q[i]->op->err.text);
        cr_assert(strstr(q[i]->op->err.text, "runs"), "%s", q[i]->op->err.text);
    }
    ledger_sql(&ledger, "ALTER TABLE runs_away RENAME TO runs");
    exec(s, q, 2);
    for (size_t i = 0; i < 2; i++) {
        cr_assert(outcome_of(q[i]) == OUTCOME_OK);
        question_free(q[i]);
    }
    store_close(s);
}

Test(postgres_runs_fault, what_a_trigger_misses_is_an_outage_for_its_op_alone)
{
    struct store *s = ledger_open(&ledger, "");
    put_many(s, 100);
    ledger_sql(&ledger, "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                        " IF NEW.key = 'bad' THEN INSERT INTO not_there VALUES (1); END IF;"
                        " RETURN NEW; END $$;"
                        "CREATE TRIGGER audit BEFORE INSERT ON runs"
                        " FOR EACH ROW EXECUTE FUNCTION audit()");
    struct question *q[] = { put_of(1, "a"), put_of(2, "bad"), put_of(3, "b") };
    exec(s, q, 3);
    cr_assert(outcome_of(q[0]) == OUTCOME_OK && outcome_of(q[2]) == OUTCOME_OK);
    cr_assert(q[1]->op->err.code == ERR_UNAVAILABLE, "%s", q[1]->op->err.text);
    for (size_t i = 0; i < 3; i++) question_free(q[i]);
    store_close(s);
}

Test(postgres_runs_fault, row_that_makes_no_sense_is_an_error_of_its_op_alone)
{
    struct store *s = ledger_open(&ledger, "");
    expect(s, put_of(1, "bad"), OUTCOME_OK);
    ledger_sql(&ledger, "UPDATE runs SET state = 9");
    struct question *q[] = { get_of(1), put_of(2, "bad"), put_of(3, "good") };
    exec(s, q, 3);
    cr_assert(q[0]->op->err.code == ERR_CORRUPT && q[1]->op->err.code == ERR_CORRUPT);
    cr_assert(outcome_of(q[2]) == OUTCOME_OK);
    for (size_t i = 0; i < 3; i++) question_free(q[i]);
    store_close(s);
}

Test(postgres_runs_fault, row_that_was_moved_is_found_again)
{
    struct batch b = { .store = ledger_open(&ledger, named("")), .count = 1 };
    put_many(b.store, 100);
    b.q[0] = increment_of(131);
    ledger_sql(&ledger, "BEGIN; LOCK runs IN SHARE MODE"); /* may be read, not written */
    batch_start(&b);
    until_it_waits_for_a_lock();
    ledger_sql(&ledger, "DELETE FROM runs WHERE id < '%s'", id_of(120).text);
    ledger_sql(&ledger, "CLUSTER runs USING runs_pkey; COMMIT");
    batch_join(&b);
    cr_assert(outcome_of(b.q[0]) == OUTCOME_OK);
    cr_assert(number("SELECT metadata_version FROM runs ORDER BY id DESC LIMIT 1") == 1);
    cr_assert(number("SELECT sum(metadata_version) FROM runs") == 1);
    batch_free(&b);
    store_close(b.store);
}

/* ---- the clock of the server ---- */

/* What is decided in time may wait for a lock until it is not. The drainer's lease lapses meanwhile, by
 * its clock and by the server's, which is moved by whoever holds the lock. */
Test(postgres_runs_fault, put_that_came_in_time_is_not_written_too_late)
{
    ledger.world.env.wall_rules = false;
    struct batch b = { .store = ledger_open(&ledger, named("&timeout_ms=60000")), .count = 2 };
    expect(b.store, put_of(9, "k"), OUTCOME_OK);
    ledger_sql(&ledger,
               "CREATE TABLE later (ms bigint); INSERT INTO later VALUES (0);"
               "CREATE OR REPLACE FUNCTION clock_ms() RETURNS bigint LANGUAGE sql VOLATILE"
               " AS $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
               " + (SELECT ms FROM %s.later) $$",
               ledger.room.name);
    b.q[0] = drain_of(1, NULL, 0);
    b.q[1] = drain_of(2, "k", 1); /* an alias, and an increment of the other */
    for (size_t i = 0; i < 2; i++) b.q[i]->ask.until_ms = ledger.world.mono_ms + 20000;
    ledger_sql(&ledger, "BEGIN; LOCK runs IN SHARE MODE; UPDATE later SET ms = 30000");
    batch_start(&b);
    until_it_waits_for_a_lock();
    ledger.world.mono_ms += 30000;
    ledger_sql(&ledger, "COMMIT");
    batch_join(&b);
    for (size_t i = 0; i < 2; i++) cr_assert(outcome_of(b.q[i]) == OUTCOME_LOST);
    cr_assert(number("SELECT count(*) FROM runs") == 1);
    cr_assert(number("SELECT sum(metadata_version) FROM runs") == 0);
    batch_free(&b);
    store_close(b.store);
}

Test(postgres_runs_fault, server_clock_rules)
{
    ledger.world.env.wall_rules = false;
    struct store *s = ledger_open(&ledger, "");
    struct question *q = put_of(1, NULL);
    q->run.available_at_ms = 0;
    expect(s, q, OUTCOME_OK);
    q = asked(s, lease_of(1, 1));
    cr_assert(outcome_of(q) == OUTCOME_OK && row_of(q)->started_at_ms == q->ask.now_ms);
    cr_assert(number("SELECT count(*) FROM runs WHERE abs(started_at_ms - clock_ms()) < 60000"
                     " AND lease_until_ms = started_at_ms + 60000") == 1);
    struct run_change done = { .kind = RUN_COMPLETE, .token = row_of(q)->token };
    question_free(q);
    expect(s, change_of(1, done), OUTCOME_OK);
    cr_assert(
        number("SELECT count(*) FROM runs WHERE abs(finished_at_ms - clock_ms()) < 60000") ==
        1);
    put_many(s, 100); /* guessed, by a clock that is reckoned */
    struct op *sweep = ledger_op(VERB_EXPIRE, "", 0, NULL);
    ledger_sql(&ledger, "UPDATE runs SET gone_at_ms = clock_ms() - 30000 WHERE state = 3");
    ledger_exec(s, &sweep, 1);
    cr_assert(sweep->err.code == 0 && sweep->count == 0, "not before a minute has passed");
    ledger_sql(&ledger, "UPDATE runs SET gone_at_ms = clock_ms() - 60001 WHERE state = 3");
    ledger_exec(s, &sweep, 1);
    cr_assert(sweep->err.code == 0 && sweep->count == 1);
    op_free(sweep);
    store_close(s);
}

/* ---- plans ---- */

static long long index_reads(const char *index)
{
    char sql[160];
    snprintf(sql, sizeof sql,
             "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelid = '%s'::regclass",
             index);
    return number(sql);
}

/* Everything was planned when the table was empty, and nobody has told the planner that it is not. */
Test(postgres_runs_fault, plans_that_were_made_for_an_empty_table_find_rows_in_a_large_one)
{
    enum { MANY = 20000, TIMES = 20 };
    struct store *s = ledger_open(&ledger, "");
    ledger_sql(&ledger, "ALTER TABLE runs SET (autovacuum_enabled = off)");
    struct question *q = put_of(1, "k");
    q->run.ordering_key = bytes_str("line");
    expect(s, q, OUTCOME_OK);
    expect(s, drain_of(2, "k", 1), OUTCOME_OK);
    expect(s, get_of(2), OUTCOME_OK);
    question_free(asked(s, lease_of(1, 1)));
    ledger_sql(
        &ledger,
        "INSERT INTO runs (rev, state, env, id, task, queue, key, key_held, key_until_ms,"
        " due_at_ms, created_at_ms, ordering_key) SELECT 1, 1, 'e',"
        " convert_to('run_' || lpad(i::text, 26, '0'), 'UTF8'), 't', 'q',"
        " convert_to('key-' || i, 'UTF8'), true, %lld, %lld, 1,"
        " CASE WHEN i %% 2 = 0 THEN convert_to('l-' || i, 'UTF8') ELSE '' END"
        " FROM generate_series(1, %d) AS i",
        (long long)ledger.world.wall_ms + 1000, (long long)ledger.world.wall_ms + 1000, MANY);
    ledger_sql(&ledger, "SELECT pg_stat_reset()");
    for (unsigned i = 0; i < TIMES; i++) {
        expect(s, put_of(100 + i, "key-777"), OUTCOME_MISMATCH);
        expect(s, get_of(2), OUTCOME_OK);
        expect(s, increment_of(1), OUTCOME_OK);
        question_free(asked(s, lease_of(1, 1)));
    }
    world_advance(&ledger.world, 1000);
    for (unsigned i = 0; i < TIMES; i++) {
        q = asked(s, lease_of(4, 1));
        cr_assert(outcome_of(q) == OUTCOME_OK && q->ask.rows.count == 4);
        question_free(q);
    }
    store_close(s); /* sends its counts */
    ledger_until(&ledger, "SELECT idx_scan >= 20 FROM pg_stat_user_indexes WHERE indexrelid ="
                          " 'runs_pkey'::regclass");
    static const char *const indexes[] = { "runs_pkey", "runs_key", "runs_due", "runs_ordered",
                                           "runs_aliases" };
    for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++)
        cr_assert(index_reads(indexes[i]) < MANY, "%s: %lld rows were read", indexes[i],
                  index_reads(indexes[i]));
    cr_assert(number("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relid ="
                     " 'runs'::regclass") == 0);
}

/* ---- the schema ---- */

extern const char postgres_001_claims[];

static void migrate_to_one(void)
{
    ledger_sql(&ledger, "CREATE SCHEMA %s", ledger.room.name);
    PGresult *result = PQexec(ledger.admin, postgres_001_claims);
    cr_assert(PQresultStatus(result) == PGRES_COMMAND_OK, "%s", PQerrorMessage(ledger.admin));
    PQclear(result);
}

Test(postgres_runs_fault, claims_of_version_one_are_kept)
{
    migrate_to_one();
    ledger_sql(&ledger,
               "INSERT INTO claims VALUES (1, 77, 1, 1, 1, 1, 1, %lld, 1, 2, 's k',"
               " decode(repeat('01', 16), 'hex'), '', 'A')",
               (long long)ledger.world.wall_ms + 1000000);
    struct store *s = ledger_open(&ledger, "");
    cr_assert(number("SELECT max(version) FROM versions") == 2);
    cr_assert(ledger_number(&ledger, "SELECT fence FROM claims") == 77);
    expect(s, put_of(1, "k"), OUTCOME_OK);
    store_close(s);
}

static void find_table(void *ctx, const char *text)
{
    *(bool *)ctx = strstr(text, "CREATE TABLE IF NOT EXISTS runs") != NULL;
}

Test(postgres_runs_fault, printed_sql_has_them)
{
    struct err err;
    bool found = false;
    cr_assert(store_migrate(ledger.url, &ledger.world.env, true, find_table, &found, &err) ==
              0);
    cr_assert(found);
}
