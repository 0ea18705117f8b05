/* postgres_fault_test.c - what the postgres store says when the server fails it: each failure is
 * made by a real one, at the moment that matters. */
#include "store/postgres_db.h"

#include "tests/support/ledger.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ledger ledger;

static void setup(void)
{
    ledger_init(&ledger, SERVER_POSTGRES);
}

static void teardown(void)
{
    ledger_fini(&ledger);
}

TestSuite(postgres_fault, .init = setup, .fini = teardown, .timeout = 120);

static int64_t now_ms(void)
{
    struct clock clock = clock_monotonic();
    return clock_now_ms(&clock);
}

/* The sessions of a store opened with this behind its URL can be told from others. */
static const char *named(const char *more)
{
    static char text[160];
    snprintf(text, sizeof text, "&application_name=%s%s", ledger.room.name, more);
    return text;
}

static long long backend(void)
{
    return atoll(ledger_sql(&ledger,
                            "SELECT pid FROM pg_stat_activity WHERE"
                            " application_name = '%s'",
                            ledger.room.name));
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

/* A batch on a thread of its own, as offload does it. */
struct batch {
    pthread_t thread;
    struct store *store;
    struct op *ops[4];
    size_t count;
};

static void *batch_run(void *ctx)
{
    struct batch *b = ctx;
    ledger_exec(b->store, b->ops, b->count);
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
    for (size_t i = 0; i < b->count; i++) op_free(b->ops[i]);
}

static enum outcome outcome_of(const struct op *op)
{
    cr_assert(op->err.code == 0, "%s", op->err.text);
    return op->out.outcome;
}

static void expect_claimable(const char *name)
{
    struct store *s = ledger_open(&ledger, "");
    cr_assert(ledger_do(s, VERB_CLAIM, name, 77, NULL).outcome == OUTCOME_CLAIMED);
    store_close(s);
}

/* What a deferred trigger does, it does in the COMMIT. */
static void at_commit(const char *body)
{
    ledger_sql(&ledger,
               "CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS"
               " $$ BEGIN %s; RETURN NULL; END $$;"
               "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE ON claims"
               " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit()",
               body);
}

/* ---- the commit ---- */

Test(postgres_fault, commit_without_an_answer_is_ambiguous_for_what_it_would_have_changed)
{
    struct batch b = { .store = ledger_open(&ledger, named("")), .count = 3 };
    cr_assert(ledger_do(b.store, VERB_CLAIM, "other", 1, NULL).outcome == OUTCOME_CLAIMED);
    at_commit("PERFORM pg_advisory_xact_lock(hashtext(current_schema()))");
    ledger_sql(&ledger, "SELECT pg_advisory_lock(hashtext('%s'))", ledger.room.name);
    ledger_sql(&ledger, "ALTER FUNCTION at_commit() SET search_path = %s", ledger.room.name);
    b.ops[0] = ledger_op(VERB_CLAIM, "k", 1, NULL);
    b.ops[1] = ledger_op(VERB_CLAIM, "k", 2, NULL);
    b.ops[2] = ledger_op(VERB_PEEK, "other", 0, NULL);
    batch_start(&b);
    until_it_waits_for_a_lock();
    ledger_sql(&ledger, "SELECT pg_terminate_backend(%lld)", backend());
    batch_join(&b);
    cr_assert(b.ops[0]->err.code == ERR_AMBIGUOUS, "%s", b.ops[0]->err.text);
    cr_assert(b.ops[1]->err.code == ERR_UNAVAILABLE, "%s", b.ops[1]->err.text);
    cr_assert(outcome_of(b.ops[2]) == OUTCOME_IN_PROGRESS);
    ledger_sql(&ledger, "SELECT pg_advisory_unlock_all()");
    ledger_exec(b.store, b.ops, 1); /* asked again with the token, on a new connection */
    cr_assert(outcome_of(b.ops[0]) == OUTCOME_CLAIMED);
    batch_free(&b);
    store_close(b.store);
}

Test(postgres_fault, commit_that_fails_has_changed_nothing)
{
    struct store *s = ledger_open(&ledger, "");
    at_commit("RAISE EXCEPTION 'not this time'");
    struct op *op = ledger_op(VERB_CLAIM, "k", 1, NULL);
    ledger_exec(s, &op, 1);
    cr_assert(op->err.code == ERR_CORRUPT && strstr(op->err.text, "not this time"));
    cr_assert(ledger_number(&ledger, "SELECT count(*) FROM claims") == 0);
    ledger_sql(&ledger, "DROP TRIGGER at_commit ON claims");
    ledger_exec(s, &op, 1);
    cr_assert(outcome_of(op) == OUTCOME_CLAIMED);
    op_free(op);
    store_close(s);
}

Test(postgres_fault, commit_is_durable_whatever_the_session_was_told)
{
    ledger_sql(&ledger, "CREATE TABLE IF NOT EXISTS public.%s (level text)", ledger.room.name);
    struct store *s = ledger_open(&ledger, "&options=-csynchronous_commit%3Doff");
    char body[160];
    snprintf(body, sizeof body,
             "INSERT INTO public.%s VALUES (current_setting('synchronous_commit'))",
             ledger.room.name);
    at_commit(body);
    cr_assert(ledger_do(s, VERB_CLAIM, "k", 1, NULL).outcome == OUTCOME_CLAIMED);
    cr_assert(strcmp(ledger_sql(&ledger, "SELECT level FROM public.%s", ledger.room.name),
                     "on") == 0);
    ledger_sql(&ledger, "DROP TABLE public.%s", ledger.room.name);
    store_close(s);
}

/* ---- somebody else's transaction ---- */

Test(postgres_fault, key_that_appears_while_it_is_inserted_is_decided_again)
{
    struct store *first = ledger_open(&ledger, "");
    cr_assert(ledger_do(first, VERB_CLAIM, "old", 9, NULL).outcome == OUTCOME_CLAIMED);
    struct batch b = { .store = ledger_open(&ledger, named("")), .count = 2 };
    b.ops[0] = ledger_op(VERB_CLAIM, "k", 1, NULL);
    b.ops[1] = ledger_op(VERB_CLAIM, "j", 1, NULL);
    ledger_sql(&ledger,
               "BEGIN; INSERT INTO claims SELECT rev, fence, claimed_at_ms, lease_ms,"
               " lease_until_ms, retain_ms, done_at_ms, gone_at_ms, sweep_at_ms, state,"
               " 's k', token, fingerprint, value FROM claims");
    batch_start(&b);
    until_it_waits_for_a_lock();
    ledger_sql(&ledger, "COMMIT");
    batch_join(&b);
    cr_assert(outcome_of(b.ops[0]) == OUTCOME_IN_PROGRESS);
    cr_assert(outcome_of(b.ops[1]) == OUTCOME_CLAIMED);
    batch_free(&b);
    store_close(b.store);
    store_close(first);
}

Test(postgres_fault, row_that_changes_while_it_is_updated_is_decided_again)
{
    struct batch b = { .store = ledger_open(&ledger, named("")), .count = 1 };
    cr_assert(ledger_do(b.store, VERB_CLAIM, "k", 1, NULL).outcome == OUTCOME_CLAIMED);
    ledger_sql(&ledger, "BEGIN; UPDATE claims SET rev = rev + 1, fence = fence + 1,"
                        " token = decode(repeat('02', 16), 'hex')");
    b.ops[0] = ledger_op(VERB_PUBLISH, "k", 1, "A");
    batch_start(&b);
    until_it_waits_for_a_lock();
    ledger_sql(&ledger, "COMMIT");
    batch_join(&b);
    cr_assert(outcome_of(b.ops[0]) == OUTCOME_LOST);
    batch_free(&b);
    store_close(b.store);
}

Test(postgres_fault, row_that_somebody_keeps_locked_is_refused_in_time_and_alone)
{
    struct store *s = ledger_open(&ledger, "&timeout_ms=5000");
    cr_assert(ledger_do(s, VERB_CLAIM, "k", 1, NULL).outcome == OUTCOME_CLAIMED);
    ledger_sql(&ledger, "BEGIN; SELECT * FROM claims FOR UPDATE");
    struct op *ops[] = { ledger_op(VERB_PUBLISH, "k", 1, "A"),
                         ledger_op(VERB_CLAIM, "j", 1, NULL) };
    ledger_exec(s, ops, 2);
    cr_assert(ops[0]->err.code == ERR_UNAVAILABLE && strstr(ops[0]->err.text, "lock"), "%s",
              ops[0]->err.text);
    cr_assert(outcome_of(ops[1]) == OUTCOME_CLAIMED);
    ledger_sql(&ledger, "COMMIT");
    ledger_exec(s, ops, 1);
    cr_assert(outcome_of(ops[0]) == OUTCOME_OK);
    op_free(ops[0]);
    op_free(ops[1]);
    store_close(s);
}

/* ---- one op of many ---- */

/* Sessions of this room that wait for a lock. */
static long long waiting(void)
{
    ledger_sql(&ledger, "SELECT pg_stat_clear_snapshot()"); /* the admin is in a transaction */
    return atoll(ledger_sql(&ledger,
                            "SELECT count(*) FROM pg_stat_activity"
                            " WHERE wait_event_type = 'Lock' AND query LIKE '%%%s%%'",
                            ledger.room.name));
}

static void expect_locked_out(struct store *s, enum verb verb)
{
    struct op *op = ledger_op(verb, "k", 0, NULL);
    op->limit = 10;
    ledger_exec(s, &op, 1);
    cr_expect(op->err.code == ERR_UNAVAILABLE, "%d %s", op->err.code, op->err.text);
    cr_expect(strstr(op->err.text, "lock timeout"), "%s", op->err.text);
    op_free(op);
}

/* Who gives up and goes leaves a session that waits until the lock is gone, if nothing ends it: a daemon
 * whose table was rebuilt (VACUUM FULL, ALTER TABLE) filled max_connections with them. */
static void read_locked_table(enum server server)
{
    static const enum verb reads[] = { VERB_PEEK, VERB_SCAN, VERB_STATS, VERB_PEEK, VERB_PING };
    ledger_fini(&ledger);
    ledger_init(&ledger, server);
    struct store *s = ledger_open(&ledger, named("&timeout_ms=1000"));
    for (uint8_t i = 0; i < 5; i++) ledger_do(s, VERB_PEEK, "k", i, NULL); /* prepared by now */
    ledger_sql(&ledger, "BEGIN; LOCK TABLE claims, meta, runs IN ACCESS EXCLUSIVE MODE");
    int64_t began_ms = now_ms();
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) expect_locked_out(s, reads[i]);
    cr_expect(now_ms() - began_ms < 5000, "%lld ms", (long long)(now_ms() - began_ms));
    cr_expect_eq(waiting(), 0);
    ledger_sql(&ledger, "COMMIT");
    cr_expect_eq(ledger_do(s, VERB_PEEK, "k", 0, NULL).outcome, OUTCOME_ABSENT);
    store_close(s);
}

Test(postgres_fault, reads_of_a_locked_table_are_ended_by_the_server)
{
    read_locked_table(SERVER_POSTGRES);
}

Test(postgres_fault, reads_of_a_locked_table_are_ended_behind_a_pooler)
{
    read_locked_table(SERVER_PGBOUNCER);
}

static void expect_setting(struct pgdb *db, const char *name, const char *want)
{
    char sql[64];
    snprintf(sql, sizeof sql, "SHOW %s", name);
    PGresult *result = PQexec(db->conn, sql);
    cr_assert_eq(PQresultStatus(result), PGRES_TUPLES_OK, "%s", PQerrorMessage(db->conn));
    cr_expect_str_eq(PQgetvalue(result, 0, 0), want);
    PQclear(result);
}

static void open_db(struct pgdb *db)
{
    struct err err;
    const char *rest = strchr(ledger_url(&ledger, named("&timeout_ms=1000")), ':') + 1;
    cr_assert_eq(postgres_options_parse(rest, &db->options, &err), 0, "%s", err.text);
    cr_assert_eq(pgdb_open(db, ledger.world.env.rng, &err), 0, "%s", err.text);
}

/* A statement that names the table waits for it already when it is prepared, which is done when it is
 * used often. */
Test(postgres_fault, read_that_is_prepared_while_the_table_is_locked_is_ended_too)
{
    struct pgdb db = { .conn = NULL };
    struct err err;
    struct pg_statement ask = { PGSQL_VERSION };
    store_close(ledger_open(&ledger, ""));
    open_db(&db);
    ledger_sql(&ledger, "BEGIN; LOCK TABLE versions IN ACCESS EXCLUSIVE MODE");
    for (int i = 0; i < 6; i++) {
        cr_expect_eq(pgdb_query(&db, &ask, &err), ERR_UNAVAILABLE);
        cr_expect(strstr(err.text, "lock timeout"), "%s", err.text);
        cr_expect(db.failed == PG_REFUSED && !db.unnamed);
    }
    cr_expect_eq(waiting(), 0);
    ledger_sql(&ledger, "COMMIT");
    cr_assert_eq(pgdb_query(&db, &ask, &err), 0, "%s", err.text);
    cr_expect(db.prepared[PGSQL_VERSION]);
    PQclear(ask.result);
    pgdb_close(&db);
}

/* Behind a pooler the session is somebody else's next. */
Test(postgres_fault, limits_of_a_read_do_not_stay_with_the_session)
{
    struct pgdb db = { .conn = NULL };
    struct err err;
    struct pg_statement ask = { PGSQL_VERSION };
    store_close(ledger_open(&ledger, ""));
    open_db(&db);
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(pgdb_query(&db, &ask, &err), 0, "%s", err.text);
        PQclear(ask.result);
        expect_setting(&db, "lock_timeout", "0");
        expect_setting(&db, "statement_timeout", "0");
    }
    pgdb_close(&db);
}

Test(postgres_fault, op_that_poisons_a_batch_fails_alone)
{
    struct store *s = ledger_open(&ledger, "");
    ledger_sql(&ledger, "ALTER TABLE claims ADD CHECK (key <> 's poison')");
    struct op *ops[] = { ledger_op(VERB_CLAIM, "a", 1, NULL),
                         ledger_op(VERB_CLAIM, "poison", 1, NULL),
                         ledger_op(VERB_PUBLISH, "a", 1, "A"),
                         ledger_op(VERB_CLAIM, "b", 1, NULL) };
    ledger_exec(s, ops, 4);
    cr_assert(outcome_of(ops[0]) == OUTCOME_CLAIMED);
    cr_assert(ops[1]->err.code == ERR_CORRUPT, "%s", ops[1]->err.text);
    cr_assert(outcome_of(ops[2]) == OUTCOME_OK);
    cr_assert(outcome_of(ops[3]) == OUTCOME_CLAIMED);
    for (size_t i = 0; i < 4; i++) op_free(ops[i]);
    store_close(s);
}

Test(postgres_fault, statement_that_takes_too_long_is_ended_by_the_server)
{
    struct store *s = ledger_open(&ledger, "&timeout_ms=4000");
    ledger_sql(&ledger, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
                        " $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$;"
                        "CREATE TRIGGER slow BEFORE INSERT ON claims FOR EACH ROW"
                        " WHEN (NEW.key = 's slow') EXECUTE FUNCTION slow()");
    struct op *ops[] = { ledger_op(VERB_CLAIM, "slow", 1, NULL),
                         ledger_op(VERB_CLAIM, "k", 1, NULL) };
    ledger_exec(s, ops, 2);
    cr_assert(ops[0]->err.code == ERR_UNAVAILABLE && strstr(ops[0]->err.text, "timeout"));
    cr_assert(outcome_of(ops[1]) == OUTCOME_CLAIMED);
    cr_assert(ledger_number(&ledger, "SELECT count(*) FROM claims WHERE key = 's slow'") == 0);
    op_free(ops[0]);
    op_free(ops[1]);
    store_close(s);
}

/* ---- the connection ---- */

Test(postgres_fault, connection_that_was_ended_between_two_batches_is_replaced)
{
    struct store *s = ledger_open(&ledger, named(""));
    ledger_sql(&ledger, "SELECT pg_terminate_backend(%lld, 60000)", backend());
    cr_assert(ledger_do(s, VERB_CLAIM, "k", 1, NULL).outcome == OUTCOME_CLAIMED);
    store_close(s);
}

Test(postgres_fault, stopped_server_costs_the_time_out_and_not_more)
{
    struct store *s = ledger_open(&ledger, named("&timeout_ms=300"));
    cr_assert(ledger_do(s, VERB_CLAIM, "k", 1, NULL).outcome == OUTCOME_CLAIMED);
    pid_t pid = (pid_t)backend();
    struct op *read = ledger_op(VERB_PEEK, "k", 1, NULL);
    struct op *write = ledger_op(VERB_PUBLISH, "k", 1, "A");
    cr_assert(kill(pid, SIGSTOP) == 0, "may not stop the server's process");
    int64_t start_ms = now_ms();
    ledger_exec(s, &write, 1); /* its read is saved: the write is what is not answered */
    int64_t took_ms = now_ms() - start_ms;
    kill(pid, SIGCONT);
    cr_assert(write->err.code == ERR_AMBIGUOUS, "%s", write->err.text);
    cr_assert(took_ms >= 300 && took_ms < 20000, "%lld ms", (long long)took_ms);
    ledger_exec(s, &write, 1);
    cr_assert(outcome_of(write) == OUTCOME_OK);

    pid = (pid_t)backend();
    kill(pid, SIGSTOP);
    ledger_exec(s, &read, 1);
    kill(pid, SIGCONT);
    cr_assert(read->err.code == ERR_UNAVAILABLE, "%s", read->err.text);
    ledger_exec(s, &read, 1);
    cr_assert(outcome_of(read) == OUTCOME_CACHED);
    op_free(read);
    op_free(write);
    store_close(s);
}

Test(postgres_fault, session_that_may_only_read_is_refused)
{
    struct err err;
    struct store *s = NULL;
    store_close(ledger_open(&ledger, ""));
    const char *more = "&options=-cdefault_transaction_read_only%3Don";
    int r = store_open_bare(ledger_url(&ledger, more), &ledger.world.env, &s, &err);
    cr_assert(r == ERR_UNAVAILABLE && strstr(err.text, "read-only"), "%s", err.text);
    more = "&target_session_attrs=any&options=-cdefault_transaction_read_only%3Don";
    s = ledger_open(&ledger, more);
    struct op *op = ledger_op(VERB_CLAIM, "k", 1, NULL);
    ledger_exec(s, &op, 1);
    cr_assert(op->err.code == ERR_UNAVAILABLE && strstr(op->err.text, "read-only"));
    op_free(op);
    store_close(s);
    expect_claimable("k");
}

/* ---- opening ---- */

static const char *refusal_of(const char *more)
{
    static struct err err;
    struct store *s = NULL;
    int r = store_open_bare(ledger_url(&ledger, more), &ledger.world.env, &s, &err);
    cr_assert(r == ERR_UNAVAILABLE, "%d", r);
    return err.text;
}

Test(postgres_fault, refusal_says_why_and_no_password)
{
    const char *text = refusal_of("&password=not-the-one");
    cr_assert(strstr(text, "password authentication failed") && !strstr(text, "not-the-one"));
    text = refusal_of("&dbname=nothing_here");
    cr_assert(strstr(text, "\"nothing_here\" does not exist"), "%s", text);
    text = refusal_of("&port=1");
    cr_assert(strstr(text, "refused"), "%s", text);
}

Test(postgres_fault, too_many_connections_are_an_error_that_passes)
{
    char more[128];
    const char *room = ledger.room.name;
    store_close(ledger_open(&ledger, ""));
    ledger_sql(&ledger, "CREATE ROLE %s LOGIN PASSWORD 'pw' CONNECTION LIMIT 1", room);
    ledger_sql(&ledger, "GRANT USAGE ON SCHEMA %s TO %s", room, room);
    ledger_sql(&ledger, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %s",
               room, room);
    snprintf(more, sizeof more, "&user=%s&password=pw&application_name=%s", room, room);
    struct store *s = ledger_open(&ledger, more);
    cr_assert(strstr(refusal_of(more), "too many connections"));
    store_close(s);
    ledger_until(&ledger, "SELECT count(*) = 0 FROM pg_stat_activity"
                          " WHERE usename = current_schema()");
    s = ledger_open(&ledger, more);
    cr_assert(ledger_do(s, VERB_CLAIM, "k", 1, NULL).outcome == OUTCOME_CLAIMED);
    store_close(s);
    ledger_sql(&ledger, "DROP OWNED BY %s; DROP ROLE %s", room, room);
}

Test(postgres_fault, schema_that_is_away_is_an_error_that_passes)
{
    struct store *s = ledger_open(&ledger, named(""));
    ledger_sql(&ledger, "ALTER SCHEMA %s RENAME TO %s_away", ledger.room.name,
               ledger.room.name);
    struct op *op = ledger_op(VERB_PEEK, "k", 1, NULL);
    ledger_exec(s, &op, 1);
    cr_assert(op->err.code == ERR_UNAVAILABLE, "%s", op->err.text);
    ledger_sql(&ledger, "ALTER SCHEMA %s_away RENAME TO %s", ledger.room.name,
               ledger.room.name);
    ledger_exec(s, &op, 1);
    cr_assert(outcome_of(op) == OUTCOME_ABSENT);
    op_free(op);
    store_close(s);
}

/* ---- through a pooler ---- */

Test(postgres_fault, sessions_of_a_pooler_may_be_anybodys)
{
    ledger_fini(&ledger);
    ledger_init(&ledger, SERVER_PGBOUNCER);
    struct store *stores[4];
    char name[16];
    for (size_t i = 0; i < 4; i++) stores[i] = ledger_open(&ledger, "");
    for (int n = 0; n < 40; n++) {
        snprintf(name, sizeof name, "k%d", n);
        struct store *a = stores[n % 4], *b = stores[(n + 1) % 4];
        cr_assert(ledger_do(a, VERB_CLAIM, name, 1, NULL).outcome == OUTCOME_CLAIMED);
        cr_assert(ledger_do(b, VERB_CLAIM, name, 2, NULL).outcome == OUTCOME_IN_PROGRESS);
        cr_assert(ledger_do(a, VERB_PUBLISH, name, 1, "A").outcome == OUTCOME_OK);
        cr_assert(ledger_do(b, VERB_CLAIM, name, 2, NULL).outcome == OUTCOME_CACHED);
    }
    for (size_t i = 0; i < 4; i++) store_close(stores[i]);
}

/* ---- watching ---- */

static void watch_done(struct op *op, void *ctx)
{
    (void)op;
    *(bool *)ctx = true;
}

Test(postgres_fault, change_by_another_process_wakes_a_watch)
{
    struct err err;
    struct store *here, *there = ledger_open(&ledger, "");
    bool done = false;
    cr_assert(loop_open(&ledger.world.loop, &err) == 0);
    cr_assert(store_open(ledger.url, &ledger.world.env, &here, &err) == 0, "%s", err.text);
    struct answer claimed = ledger_do(there, VERB_CLAIM, "k", 1, NULL);
    struct op *watch = ledger_op(VERB_WATCH, "k", 0, NULL);
    watch->seen = claimed.version;
    op_push(watch, watch_done, &done);
    store_submit(here, watch);
    cr_assert(ledger_do(there, VERB_PUBLISH, "k", 1, "A").outcome == OUTCOME_OK);
    for (int64_t end_ms = now_ms() + 60000; !done && now_ms() < end_ms;) {
        loop_sleep(&ledger.world.loop, 1000);
        loop_turn(&ledger.world.loop, ledger.world.mono_ms);
    }
    cr_assert(done && watch->out.version != claimed.version);
    op_free(watch);
    store_close(here);
    store_close(there);
}
