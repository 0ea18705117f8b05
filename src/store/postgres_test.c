/* postgres_test.c - what the postgres store does beyond the rules, on a real server. The rules
 * themselves are looked at by conform, model and schedule. */
#include "store/postgres_db.h"

#include "tests/support/ledger.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ledger ledger;

static void setup(void)
{
    ledger_init(&ledger, SERVER_POSTGRES);
}

static void teardown(void)
{
    ledger_fini(&ledger);
}

TestSuite(postgres, .init = setup, .fini = teardown, .timeout = 120);
TestSuite(postgres_schema, .init = setup, .fini = teardown, .timeout = 120);

static enum outcome outcome_of(struct store *s, enum verb verb, const char *name, uint8_t who)
{
    return ledger_do(s, verb, name, who, verb == VERB_PUBLISH ? "A" : NULL).outcome;
}

static long long rows(void)
{
    return ledger_number(&ledger, "SELECT count(*) FROM claims");
}

/* So that the next claim is guessed to be of a new key. */
static void claim_many(struct store *s)
{
    char name[16];
    for (int i = 0; i < 32; i++) {
        snprintf(name, sizeof name, "new-%d", i);
        cr_assert(outcome_of(s, VERB_CLAIM, name, 1) == OUTCOME_CLAIMED);
    }
}

/* ---- compare and set ---- */

Test(postgres, publish_after_a_takeover_by_another_process_is_lost)
{
    struct store *a = ledger_open(&ledger, ""), *b = ledger_open(&ledger, "");
    cr_assert(outcome_of(a, VERB_CLAIM, "k", 1) == OUTCOME_CLAIMED);
    world_advance(&ledger.world, LEDGER_LEASE_MS);
    struct answer taken = ledger_do(b, VERB_CLAIM, "k", 2, NULL);
    cr_assert(taken.outcome == OUTCOME_CLAIMED && taken.taken_over);
    cr_assert(outcome_of(a, VERB_PUBLISH, "k", 1) == OUTCOME_LOST);
    cr_assert(outcome_of(b, VERB_PUBLISH, "k", 2) == OUTCOME_OK);
    cr_assert(outcome_of(a, VERB_CLAIM, "k", 1) == OUTCOME_CACHED);
    store_close(a);
    store_close(b);
}

Test(postgres, renewal_by_another_process_does_not_stop_a_publish)
{
    struct store *a = ledger_open(&ledger, ""), *b = ledger_open(&ledger, "");
    cr_assert(outcome_of(a, VERB_CLAIM, "k", 1) == OUTCOME_CLAIMED);
    cr_assert(outcome_of(b, VERB_RENEW, "k", 1) == OUTCOME_OK);
    cr_assert(outcome_of(a, VERB_PUBLISH, "k", 1) == OUTCOME_OK);
    store_close(a);
    store_close(b);
}

Test(postgres, guess_that_a_key_is_new_is_checked)
{
    struct store *a = ledger_open(&ledger, ""), *b = ledger_open(&ledger, "");
    claim_many(a);
    cr_assert(outcome_of(b, VERB_CLAIM, "k", 2) == OUTCOME_CLAIMED);
    cr_assert(outcome_of(a, VERB_CLAIM, "k", 1) == OUTCOME_IN_PROGRESS);
    cr_assert(outcome_of(b, VERB_PUBLISH, "k", 2) == OUTCOME_OK);
    cr_assert(outcome_of(a, VERB_CLAIM, "k", 1) == OUTCOME_CACHED);
    cr_assert(rows() == 33);
    store_close(a);
    store_close(b);
}

Test(postgres, guess_that_was_wrong_undoes_nothing_of_the_others)
{
    struct store *a = ledger_open(&ledger, ""), *b = ledger_open(&ledger, "");
    claim_many(a);
    cr_assert(outcome_of(b, VERB_CLAIM, "taken", 2) == OUTCOME_CLAIMED);
    for (int round = 0; round < 4; round++) {
        char name[16];
        snprintf(name, sizeof name, "fresh-%d", round);
        struct op *ops[] = { ledger_op(VERB_CLAIM, name, 1, NULL),
                             ledger_op(VERB_CLAIM, "taken", 1, NULL),
                             ledger_op(VERB_PUBLISH, "new-0", 1, "A") };
        ledger_exec(a, ops, 3);
        cr_assert(ops[0]->out.outcome == OUTCOME_CLAIMED);
        cr_assert(ops[1]->out.outcome == OUTCOME_IN_PROGRESS);
        cr_assert(ops[2]->out.outcome == OUTCOME_OK);
        for (size_t i = 0; i < 3; i++) op_free(ops[i]);
    }
    cr_assert(ledger_number(&ledger, "SELECT count(*) FROM claims WHERE state = 1") == 36);
    store_close(a);
    store_close(b);
}

Test(postgres, batch_is_decided_in_order_and_written_once)
{
    struct store *s = ledger_open(&ledger, "");
    static const struct {
        enum verb verb;
        const char *name;
        uint8_t who;
        enum outcome outcome;
    } steps[] = {
        { VERB_CLAIM, "k", 1, OUTCOME_CLAIMED },  { VERB_CLAIM, "k", 2, OUTCOME_IN_PROGRESS },
        { VERB_CLAIM, "j", 2, OUTCOME_CLAIMED },  { VERB_PUBLISH, "k", 1, OUTCOME_OK },
        { VERB_CLAIM, "k", 3, OUTCOME_CACHED },   { VERB_RELEASE, "j", 2, OUTCOME_OK },
        { VERB_CLAIM, "j", 4, OUTCOME_CLAIMED },  { VERB_RELEASE, "j", 9, OUTCOME_LOST },
        { VERB_PEEK, "none", 1, OUTCOME_ABSENT },
    };
    enum { COUNT = sizeof steps / sizeof steps[0] };
    struct op *ops[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        ops[i] = ledger_op(steps[i].verb, steps[i].name, steps[i].who, "A");
    ledger_exec(s, ops, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        cr_assert(ops[i]->err.code == 0, "step %zu: %s", i, ops[i]->err.text);
        cr_assert(ops[i]->out.outcome == steps[i].outcome, "step %zu", i);
    }
    cr_assert(ops[6]->out.fence > ops[2]->out.fence);
    for (size_t i = 0; i < COUNT; i++) op_free(ops[i]);
    cr_assert(ledger_number(&ledger, "SELECT sum(rev) FROM claims") == 1 + 2); /* born so */
    store_close(s);
}

Test(postgres, duplicates_write_nothing)
{
    struct store *s = ledger_open(&ledger, "");
    cr_assert(outcome_of(s, VERB_CLAIM, "k", 1) == OUTCOME_CLAIMED);
    cr_assert(outcome_of(s, VERB_PUBLISH, "k", 1) == OUTCOME_OK);
    static const char *const stamp = "SELECT xmin || '-' || xmax || '-' || rev FROM claims";
    char before[64];
    snprintf(before, sizeof before, "%s", ledger_sql(&ledger, "%s", stamp));
    for (uint8_t who = 2; who < 20; who++)
        cr_assert(outcome_of(s, VERB_CLAIM, "k", who) == OUTCOME_CACHED);
    cr_assert(strcmp(before, ledger_sql(&ledger, "%s", stamp)) == 0);
    store_close(s);
}

Test(postgres, publish_leaves_the_indexes_alone)
{
    struct store *s = ledger_open(&ledger, "");
    claim_many(s);
    for (int i = 0; i < 32; i++) {
        char name[16];
        snprintf(name, sizeof name, "new-%d", i);
        cr_assert(outcome_of(s, VERB_PUBLISH, name, 1) == OUTCOME_OK);
    }
    store_close(s); /* sends its counts */
    ledger_until(&ledger, "SELECT n_tup_upd = 32 AND n_tup_hot_upd = 32 FROM"
                          " pg_stat_user_tables WHERE relid = 'claims'::regclass");
}

/* ---- rows are found by their place ---- */

Test(postgres, row_that_was_moved_is_found_again)
{
    struct store *s = ledger_open(&ledger, "");
    claim_many(s);
    cr_assert(outcome_of(s, VERB_CLAIM, "k", 1) == OUTCOME_CLAIMED);
    ledger_sql(&ledger, "DELETE FROM claims WHERE key <> 's k'");
    char before[32];
    snprintf(before, sizeof before, "%s", ledger_sql(&ledger, "SELECT ctid FROM claims"));
    ledger_sql(&ledger, "CLUSTER claims USING claims_pkey");
    cr_assert(strcmp(before, ledger_sql(&ledger, "SELECT ctid FROM claims")) != 0);
    cr_assert(outcome_of(s, VERB_PUBLISH, "k", 1) == OUTCOME_OK);
    cr_assert(ledger_number(&ledger, "SELECT state FROM claims") == 2);
    store_close(s);
}

/* Same place, rev and fence: only the key says that it is another one. */
Test(postgres, row_that_took_the_place_of_another_is_left_alone)
{
    struct store *a = ledger_open(&ledger, ""), *b = ledger_open(&ledger, "");
    static const char *const what = "SELECT ctid || '-' || rev || '-' || fence FROM claims";
    char before[64];
    cr_assert(outcome_of(a, VERB_CLAIM, "k", 1) == OUTCOME_CLAIMED);
    snprintf(before, sizeof before, "%s", ledger_sql(&ledger, "%s", what));
    ledger_sql(&ledger, "TRUNCATE claims");
    cr_assert(outcome_of(b, VERB_CLAIM, "j", 1) == OUTCOME_CLAIMED);
    cr_assert(strcmp(before, ledger_sql(&ledger, "%s", what)) == 0);
    cr_assert(outcome_of(a, VERB_PUBLISH, "k", 1) == OUTCOME_LOST);
    cr_assert(ledger_number(&ledger, "SELECT state FROM claims") == 1);
    cr_assert(outcome_of(b, VERB_PUBLISH, "j", 1) == OUTCOME_OK);
    store_close(a);
    store_close(b);
}

Test(postgres, each_row_of_a_batch_has_terms_of_its_own)
{
    struct store *s = ledger_open(&ledger, "");
    enum { COUNT = 3 };
    static const char *const names[COUNT] = { "c", "a",
                                              "b" }; /* not in the order of the keys */
    struct op *claims[COUNT], *publishes[COUNT];
    for (int i = 0; i < COUNT; i++) {
        claims[i] = ledger_op(VERB_CLAIM, names[i], (uint8_t)i, NULL);
        claims[i]->in.lease_ms = 1000 + i;
        claims[i]->in.retain_ms = 20000 + i;
        publishes[i] = ledger_op(VERB_PUBLISH, names[i], (uint8_t)i, i == 1 ? NULL : names[i]);
        if (i == 2) publishes[i]->in.retain_ms = 70000;
    }
    ledger_exec(s, claims, COUNT);
    cr_assert(ledger_number(&ledger, "SELECT count(*) FROM claims WHERE"
                                     " lease_until_ms = claimed_at_ms + lease_ms AND"
                                     " (key, lease_ms, retain_ms) IN (('s c', 1000, 20000),"
                                     " ('s a', 1001, 20001), ('s b', 1002, 20002))") == 3);
    ledger_exec(s, publishes, COUNT);
    cr_assert(strcmp(ledger_sql(&ledger, "SELECT string_agg(concat(convert_from(key, 'UTF8'),"
                                         " ':', retain_ms, ':', gone_at_ms - done_at_ms, ':',"
                                         " convert_from(value, 'UTF8')), ' ' ORDER BY key)"
                                         " FROM claims WHERE state = 2"),
                     "s a:20001:20001: s b:70000:70000:b s c:20000:20000:c") == 0);
    for (int i = 0; i < COUNT; i++) op_free(claims[i]), op_free(publishes[i]);
    store_close(s);
}

/* ---- fences outlive keys ---- */

Test(postgres, fence_grows_across_release_and_a_clock_that_went_back)
{
    struct store *s = ledger_open(&ledger, "");
    uint64_t first = ledger_do(s, VERB_CLAIM, "k", 1, NULL).fence;
    cr_assert(outcome_of(s, VERB_RELEASE, "k", 1) == OUTCOME_OK);
    cr_assert(ledger_number(&ledger, "SELECT state FROM claims") == 0);
    ledger.world.wall_ms -= 3600000;
    store_close(s);
    s = ledger_open(&ledger, ""); /* a process that has not seen it */
    cr_assert(outcome_of(s, VERB_PEEK, "k", 1) == OUTCOME_ABSENT);
    cr_assert(ledger_do(s, VERB_CLAIM, "k", 2, NULL).fence > first);
    store_close(s);
}

Test(postgres, fence_grows_across_a_sweep)
{
    struct store *s = ledger_open(&ledger, "");
    uint64_t first = ledger_do(s, VERB_CLAIM, "k", 1, NULL).fence;
    cr_assert(outcome_of(s, VERB_RELEASE, "k", 1) == OUTCOME_OK);
    world_advance(&ledger.world, LEDGER_LEASE_MS);
    cr_assert(outcome_of(s, VERB_EXPIRE, "", 0) == OUTCOME_OK);
    cr_assert(rows() == 0);
    ledger.world.wall_ms -= 3600000;
    store_close(s);
    s = ledger_open(&ledger, "");
    cr_assert(ledger_do(s, VERB_CLAIM, "k", 2, NULL).fence > first);
    store_close(s);
}

Test(postgres, sweep_of_another_process_is_noticed_by_a_guess)
{
    struct store *a = ledger_open(&ledger, ""), *b = ledger_open(&ledger, "");
    uint64_t first = ledger_do(b, VERB_CLAIM, "k", 1, NULL).fence;
    cr_assert(outcome_of(b, VERB_RELEASE, "k", 1) == OUTCOME_OK);
    claim_many(a);
    world_advance(&ledger.world, LEDGER_LEASE_MS);
    cr_assert(outcome_of(b, VERB_EXPIRE, "", 0) == OUTCOME_OK);
    ledger.world.wall_ms -= 3600000;
    cr_assert(ledger_do(a, VERB_CLAIM, "k", 2, NULL).fence > first);
    store_close(a);
    store_close(b);
}

Test(postgres, server_clock_rules_and_the_sweep_lets_a_minute_pass)
{
    ledger.world.env.wall_rules = false;
    struct store *s = ledger_open(&ledger, "");
    struct op *op = ledger_op(VERB_CLAIM, "k", 1, NULL);
    op->in.retain_ms = 0;
    ledger_exec(s, &op, 1);
    cr_assert(op->out.outcome == OUTCOME_CLAIMED);
    op_free(op);
    cr_assert(ledger_number(&ledger, "SELECT count(*) FROM claims WHERE abs(claimed_at_ms -"
                                     " clock_ms()) < 60000") == 1);
    cr_assert(outcome_of(s, VERB_PUBLISH, "k", 1) == OUTCOME_OK);
    cr_assert(outcome_of(s, VERB_PEEK, "k", 1) == OUTCOME_ABSENT);
    cr_assert(outcome_of(s, VERB_EXPIRE, "", 0) == OUTCOME_OK);
    cr_assert(rows() == 1);
    ledger_sql(&ledger, "UPDATE claims SET gone_at_ms = gone_at_ms - 60001,"
                        " sweep_at_ms = sweep_at_ms - 60001");
    cr_assert(outcome_of(s, VERB_EXPIRE, "", 0) == OUTCOME_OK);
    cr_assert(rows() == 0);
    store_close(s);
}

Test(postgres, row_that_makes_no_sense_is_an_error_of_its_op_alone)
{
    struct store *s = ledger_open(&ledger, "");
    cr_assert(outcome_of(s, VERB_CLAIM, "bad", 1) == OUTCOME_CLAIMED);
    ledger_sql(&ledger, "UPDATE claims SET state = 7");
    struct op *ops[] = { ledger_op(VERB_PEEK, "bad", 1, NULL),
                         ledger_op(VERB_CLAIM, "good", 1, NULL) };
    ledger_exec(s, ops, 2);
    cr_assert(ops[0]->err.code == ERR_CORRUPT);
    cr_assert(ops[1]->err.code == 0 && ops[1]->out.outcome == OUTCOME_CLAIMED);
    op_free(ops[0]);
    op_free(ops[1]);
    store_close(s);
}

Test(postgres, says_what_it_stands_on)
{
    struct store *s = ledger_open(&ledger, "");
    struct op *op = ledger_op(VERB_PING, "", 0, NULL);
    op->wants_facts = true;
    ledger_exec(s, &op, 1);
    cr_assert(op->err.code == 0 && op->facts && op->facts->count >= 4, "%s", op->err.text);
    cr_assert(strstr(op->facts->rows[0].text, ledger.room.name) != NULL);
    op_free(op);
    store_close(s);
}

/* ---- schema ---- */

static int open_code(const char *more, struct err *ret_err)
{
    struct store *s = NULL;
    int r = store_open_bare(ledger_url(&ledger, more), &ledger.world.env, &s, ret_err);
    if (!r) store_close(s);
    return r;
}

Test(postgres_schema, eight_processes_at_once_make_it_once)
{
    pid_t children[8];
    struct err err;
    for (size_t i = 0; i < 8; i++) {
        children[i] = fork();
        if (children[i] == 0) _exit(open_code("", &err) ? 1 : 0);
    }
    for (size_t i = 0; i < 8; i++) {
        int status;
        cr_assert(waitpid(children[i], &status, 0) == children[i]);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    cr_assert(ledger_number(&ledger, "SELECT count(*) FROM versions") == 2);
    cr_assert(ledger_number(&ledger, "SELECT count(*) FROM meta") == 1);
}

Test(postgres_schema, newer_one_is_refused)
{
    struct err err;
    cr_assert(open_code("", &err) == 0);
    ledger_sql(&ledger, "INSERT INTO versions VALUES (99)");
    cr_assert(open_code("", &err) == ERR_VERSION);
    cr_assert(strstr(err.text, "99") != NULL, "%s", err.text);
}

/* A program of today waits for one of tomorrow, which is making its schema: it must not put its own
 * functions in the place of newer ones, whatever it says afterwards. */
Test(postgres_schema, newer_one_that_appears_while_this_one_waits_is_left_alone)
{
    struct err err;
    cr_assert(open_code("", &err) == 0);
    ledger_sql(&ledger, "DELETE FROM versions");
    ledger_sql(&ledger, "BEGIN; SELECT pg_advisory_xact_lock(hashtext('once migrate %s'))",
               ledger.room.name);
    pid_t child = fork();
    if (child == 0) {
        int r = open_code("", &err);
        _exit(r == ERR_VERSION && strstr(err.text, "99") ? 0 : 1);
    }
    ledger_until(&ledger, "SELECT count(*) = 1 FROM pg_locks AS theirs JOIN pg_locks AS ours"
                          " USING (locktype, database, classid, objid, objsubid)"
                          " WHERE locktype = 'advisory' AND NOT theirs.granted"
                          " AND ours.pid = pg_backend_pid()");
    ledger_sql(&ledger, "CREATE OR REPLACE FUNCTION clock_ms() RETURNS bigint LANGUAGE sql"
                        " AS 'SELECT 99::bigint';"
                        "INSERT INTO versions VALUES (1), (2), (99); COMMIT");
    int status;
    cr_assert(waitpid(child, &status, 0) == child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_expect_eq(ledger_number(&ledger, "SELECT clock_ms()"), 99);
}

Test(postgres_schema, missing_one_is_refused_if_it_may_not_be_made)
{
    struct err err;
    cr_assert(open_code("&migrate=no", &err) == ERR_UNSUPPORTED);
    cr_assert(strstr(err.text, "once migrate") != NULL, "%s", err.text);
    cr_assert(open_code("", &err) == 0);
    cr_assert(open_code("&migrate=no", &err) == 0);
}

static void count_lines(void *ctx, const char *text)
{
    (void)text;
    ++*(int *)ctx;
}

static void keep_script(void *ctx, const char *text)
{
    snprintf(ctx, 32768, "%s", text);
}

Test(postgres_schema, migrate_says_what_it_did_and_does_it_once)
{
    struct err err;
    int lines = 0;
    cr_assert(store_migrate(ledger.url, &ledger.world.env, false, count_lines, &lines, &err) ==
              0);
    cr_assert(lines == 3);
    cr_assert(store_migrate(ledger.url, &ledger.world.env, false, count_lines, &lines, &err) ==
              0);
    cr_assert(lines == 4);
}

Test(postgres_schema, printed_sql_makes_it_and_may_be_run_again)
{
    static char script[32768];
    struct err err;
    cr_assert(store_migrate(ledger.url, &ledger.world.env, true, keep_script, script, &err) ==
              0);
    for (int i = 0; i < 2; i++) {
        PGresult *result = PQexec(ledger.admin, script);
        cr_assert(PQresultStatus(result) == PGRES_COMMAND_OK, "%s",
                  PQerrorMessage(ledger.admin));
        PQclear(result);
    }
    cr_assert(open_code("&migrate=no", &err) == 0);
}

Test(postgres_schema, role_that_may_not_create_works_with_what_it_may)
{
    struct err err;
    char more[128];
    const char *room = ledger.room.name;
    ledger_sql(&ledger, "CREATE ROLE %s LOGIN PASSWORD 'pw'", room);
    snprintf(more, sizeof more, "&user=%s&password=pw", room);
    cr_assert(open_code(more, &err) == ERR_UNAVAILABLE);
    cr_assert(strstr(err.text, "once migrate") != NULL, "%s", err.text);
    cr_assert(open_code("", &err) == 0);
    ledger_sql(&ledger, "GRANT USAGE ON SCHEMA %s TO %s", room, room);
    ledger_sql(&ledger, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %s",
               room, room);
    struct store *s = ledger_open(&ledger, more);
    cr_assert(outcome_of(s, VERB_CLAIM, "k", 1) == OUTCOME_CLAIMED);
    cr_assert(outcome_of(s, VERB_PUBLISH, "k", 1) == OUTCOME_OK);
    cr_assert(outcome_of(s, VERB_EXPIRE, "", 0) == OUTCOME_OK);
    cr_assert(outcome_of(s, VERB_STATS, "", 0) == OUTCOME_OK);
    store_close(s);
    ledger_sql(&ledger, "DROP OWNED BY %s; DROP ROLE %s", room, room);
}

/* ---- a server that is away ---- */

Test(postgres_db, server_that_is_away_is_asked_seldom)
{
    struct pgdb db = { .conn = NULL };
    struct rng_seeded rng;
    struct err first, again;
    rng_seeded_init(&rng, 1);
    cr_assert(postgres_options_parse("//127.0.0.1:1/d", &db.options, &first) == 0);
    cr_assert(pgdb_open(&db, &rng.base, &first) == ERR_UNAVAILABLE);
    cr_assert(db.refusals == 1 && db.retry_at_ms > 0);
    db.retry_at_ms = INT64_MAX;
    cr_assert(pgdb_begin(&db, &again) == ERR_UNAVAILABLE);
    cr_assert(db.refusals == 1 && strcmp(first.text, again.text) == 0);
    for (unsigned tries = 2; tries < 20; tries++) {
        db.retry_at_ms = 0;
        int64_t before_ms = pgdb_now_ms();
        cr_assert(pgdb_begin(&db, &again) == ERR_UNAVAILABLE);
        cr_assert(db.refusals == tries && db.retry_at_ms >= before_ms);
        cr_assert(db.retry_at_ms <= pgdb_now_ms() + 1000);
    }
    pgdb_close(&db);
}

/* ---- URLs ---- */

static const char *refusal_of(const char *rest)
{
    static struct err err;
    struct postgres_options o;
    err.text[0] = '\0';
    postgres_options_parse(rest, &o, &err);
    postgres_options_clear(&o);
    return err.text;
}

Test(postgres_url, our_parameters_are_taken_out)
{
    struct postgres_options o;
    struct err err;
    const char *url = "//u:p?w@h:1/d?schema=jobs&sslmode=require&connections=3&timeout_ms=2s";
    cr_assert(postgres_options_parse(url, &o, &err) == 0, "%s", err.text);
    cr_assert(strcmp(o.conninfo, "postgresql://u:p?w@h:1/d?sslmode=require") == 0);
    cr_assert(strcmp(o.schema, "jobs") == 0 && o.connections == 3 && o.timeout_ms == 2000);
    postgres_options_clear(&o);
    const char *words = "host=/tmp schema=jobs password='a schema=b' migrate=no";
    cr_assert(postgres_options_parse(words, &o, &err) == 0, "%s", err.text);
    cr_assert(strcmp(o.conninfo, "host=/tmp password='a schema=b' ") == 0);
    cr_assert(!o.migrate && o.connections == 2);
    postgres_options_clear(&o);
}

Test(postgres_url, wrong_parameters_are_named)
{
    cr_assert(strstr(refusal_of("//h/d?connections=0"), "1 to 64"));
    cr_assert(strstr(refusal_of("//h/d?schema=a;b"), "letters"));
    cr_assert(strstr(refusal_of("//h/d?migrate=maybe"), "yes or no"));
    cr_assert(strstr(refusal_of("//u:secret@h/d?nonsense=1"), "nonsense"));
    cr_assert(strstr(refusal_of("host=h nonsense=1 password=secret"), "nonsense"));
}

Test(postgres_url, no_error_shows_a_password)
{
    static const char *const rests[] = {
        "//u:secret@h/d?nonsense=1",
        "//u:sec/secret@h/d",
        "//u:sec%zzsecret@h/d",
        "host=h password=secret nonsense=1",
        "host=h nonsense=1 password=secret",
        "host=h password='secret",
        "//u@h/d?password=secret&x=1",
        "//u:secret@[::1/d",
    };
    for (size_t i = 0; i < sizeof rests / sizeof rests[0]; i++) {
        const char *text = refusal_of(rests[i]);
        cr_assert(*text, "%s was taken", rests[i]);
        cr_assert(!strstr(text, "sec"), "%s: %s", rests[i], text);
    }
}
