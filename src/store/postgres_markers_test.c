/* postgres_markers_test.c - markers in a real PostgreSQL: installing and sweeping them through the
 * store. What their functions do is looked at by tests/e2e/mutations_sql.sh. */
#include "store/postgres_db.h"

#include "tests/support/ledger.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct ledger ledger;
static char said[1024], where[64];

static void setup(void)
{
    ledger_init(&ledger, SERVER_POSTGRES);
    snprintf(where, sizeof where, "&markers=%s", ledger.room.name);
}

static void teardown(void)
{
    ledger_fini(&ledger);
}

TestSuite(postgres_markers, .init = setup, .fini = teardown, .timeout = 120);

static void hear(void *ctx, const char *text)
{
    (void)ctx;
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", text);
}

static int install(int64_t ttl_ms, int64_t partitions, struct err *reterr)
{
    struct marker_settings settings = { .ttl_ms = ttl_ms, .partitions = partitions };
    said[0] = '\0';
    return store_migrate_markers(ledger_url(&ledger, where), &ledger.world.env, &settings, hear,
                                 NULL, reterr);
}

static void installed(int64_t ttl_ms, int64_t partitions)
{
    struct err err;
    int r = install(ttl_ms, partitions, &err);
    cr_assert(r == 0, "%s", r ? err.text : "");
}

struct result {
    struct marker_stats markers;
    size_t count;
};

static struct result sweep(struct store *s, size_t limit)
{
    struct op *op = op_new(VERB_MARKERS_SWEEP, NULL, NULL);
    op->limit = limit;
    ledger_exec(s, &op, 1);
    cr_assert(op->err.code == 0, "%s", op->err.text);
    cr_assert(op->out.outcome == OUTCOME_OK && op->changed == (op->count > 0));
    struct result result = { op->markers, op->count };
    op_free(op);
    return result;
}

static void add(int count, const char *age)
{
    ledger_sql(&ledger,
               "INSERT INTO once_mutations (user_id, request_id, created_at) "
               "SELECT 'u' || i, '%s', clock_timestamp() - interval '%s' "
               "FROM generate_series(1, %d) AS i",
               age, age, count);
}

Test(postgres_markers, are_installed_once_and_say_so)
{
    installed(0, -1);
    cr_assert(strstr(said, "installed markers in schema") && strstr(said, "for 3600 s"), "%s",
              said);
    char epoch[64];
    snprintf(epoch, sizeof epoch, "%s", ledger_sql(&ledger, "SELECT once_mutation_epoch()"));
    installed(0, -1);
    cr_assert(strstr(said, "nothing to do"), "%s", said);
    installed(2500, 0);
    cr_assert(strstr(said, "counted for 3600 s"), "%s", said);
    cr_assert_str_eq(ledger_sql(&ledger, "SELECT once_mutation_ttl()"), "00:00:02.5");
    installed(0, -1);
    cr_assert_str_eq(ledger_sql(&ledger, "SELECT once_mutation_ttl()"), "00:00:02.5");
    cr_assert_str_eq(ledger_sql(&ledger, "SELECT once_mutation_epoch()"), epoch);
}

Test(postgres_markers, other_partitions_are_refused)
{
    struct err err;
    installed(0, 3);
    cr_assert(strstr(said, "partitioned by user_id"), "%s", said);
    cr_assert(ledger_number(&ledger, "SELECT count(*) FROM pg_inherits WHERE inhparent = "
                                     "'once_mutations'::regclass") == 3);
    installed(0, 3);
    cr_assert(strstr(said, "nothing to do"), "%s", said);
    cr_assert(install(0, 4, &err) == ERR_UNSUPPORTED);
    cr_assert(strstr(err.text, "with 3 partitions, and stays"), "%s", err.text);
    cr_assert(install(0, 0, &err) == ERR_UNSUPPORTED);
}

Test(postgres_markers, table_of_somebody_else_is_left_alone)
{
    struct err err;
    ledger_sql(&ledger, "CREATE SCHEMA IF NOT EXISTS %s", ledger.room.name);
    ledger_sql(&ledger, "CREATE TABLE once_mutations (id integer)");
    cr_assert(install(0, -1, &err) != 0);
    cr_assert(strstr(err.text, "of somebody else"), "%s", err.text);
    cr_assert(ledger_number(&ledger, "SELECT count(*) FROM pg_proc WHERE proname = "
                                     "'once_mutation_begin' AND pronamespace = "
                                     "current_schema()::regnamespace") == 0);
}

Test(postgres_markers, not_installed_are_nothing)
{
    struct store *s = ledger_open(&ledger, where);
    struct result r = sweep(s, 100);
    cr_assert(!r.markers.installed && r.count == 0);
    store_close(s);
}

static void sweeps(int64_t partitions)
{
    installed(60000, partitions);
    struct store *s = ledger_open(&ledger, where);
    add(30, "70 seconds");
    add(30, "90 seconds");
    add(30, "50 seconds");
    struct result r = sweep(s, 0);
    cr_assert(r.markers.installed && r.markers.ttl_ms == 60000 && r.count == 0);
    cr_assert(r.markers.oldest_ms >= 30000 && r.markers.oldest_ms < 60000);
    r = sweep(s, 20);
    cr_assert(r.count == 20 && r.markers.more);
    r = sweep(s, 100);
    cr_assert(r.count == 40 && !r.markers.more);
    r = sweep(s, 100);
    cr_assert(r.count == 0 && r.markers.oldest_ms == 0);
    cr_assert(ledger_number(&ledger, "SELECT count(*) FROM once_mutations") == 30);
    store_close(s);
}

Test(postgres_markers, sweep_takes_what_has_expired)
{
    sweeps(0);
}

Test(postgres_markers, sweep_takes_what_has_expired_of_all_partitions)
{
    sweeps(4);
}

Test(postgres_markers, sweep_leaves_what_others_have_locked)
{
    installed(60000, -1);
    struct store *s = ledger_open(&ledger, where);
    add(30, "70 seconds");
    ledger_sql(&ledger, "BEGIN; SELECT FROM once_mutations WHERE user_id IN ('u1', 'u2') "
                        "FOR UPDATE");
    cr_assert(sweep(s, 100).count == 28);
    ledger_sql(&ledger, "ROLLBACK");
    cr_assert(sweep(s, 100).count == 2);
    store_close(s);
}

/* Deletes take two milliseconds each, a statement has 200. */
Test(postgres_markers, sweep_that_takes_too_long_says_how_many_to_ask_for)
{
    char slow[96];
    installed(60000, -1);
    snprintf(slow, sizeof slow, "%s&timeout_ms=400ms", where);
    struct store *s = ledger_open(&ledger, slow);
    add(300, "70 seconds");
    ledger_sql(&ledger, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
                        "'BEGIN PERFORM pg_sleep(0.002); RETURN OLD; END'");
    ledger_sql(&ledger, "CREATE TRIGGER slow BEFORE DELETE ON once_mutations FOR EACH ROW "
                        "EXECUTE FUNCTION slow()");
    struct result r = sweep(s, 300);
    cr_assert(r.count == 0 && r.markers.fits == 150 && r.markers.more);
    cr_assert(r.markers.oldest_ms >= 10000, "how old they get is still known");
    for (size_t limit = 150; r.count == 0 && limit > 10; limit = r.markers.fits)
        r = sweep(s, limit);
    cr_assert(r.count > 0 && !r.markers.fits);
    store_close(s);
}

/* ---- a connection of its own ---- */

static long long connections(void)
{
    char sql[160];
    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM pg_stat_activity WHERE application_name = '%s'",
             ledger.room.name);
    return ledger_number(&ledger, sql);
}

static void count_it(struct op *op, void *ctx)
{
    (void)op;
    ++*(unsigned *)ctx;
}

/* While a sweep waits for a lock on the table, claims go on. */
Test(postgres_markers, sweep_holds_up_no_claim)
{
    struct err err;
    char more[128];
    struct store *s;
    installed(60000, -1);
    add(3, "70 seconds");
    snprintf(more, sizeof more, "%s&connections=2&application_name=%s", where,
             ledger.room.name);
    cr_assert(loop_open(&ledger.world.loop, &err) == 0);
    int r = store_open(ledger_url(&ledger, more), &ledger.world.env, &s, &err);
    cr_assert(r == 0, "%s", r ? err.text : "");
    cr_assert(connections() == 2, "the one for sweeps comes when it is needed");

    struct op *op = op_new(VERB_MARKERS_SWEEP, NULL, NULL);
    op->limit = 10;
    ledger_sql(&ledger, "BEGIN; LOCK TABLE once_mutations");
    unsigned finished = 0;
    op_push(op, count_it, &finished);
    store_submit(s, op);
    ledger_until(&ledger, "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = "
                          "'once_mutations'::regclass");
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        struct op *claim = ledger_op(VERB_CLAIM, name, 1, NULL);
        unsigned claimed = 0;
        op_push(claim, count_it, &claimed);
        store_submit(s, claim);
        world_await(&ledger.world, &claimed);
        cr_assert(claim->out.outcome == OUTCOME_CLAIMED);
        op_free(claim);
    }
    cr_assert(finished == 0);
    ledger_sql(&ledger, "ROLLBACK");
    world_await(&ledger.world, &finished);
    cr_assert(op->err.code == 0 && op->count == 3);
    cr_assert(connections() == 3);
    op_free(op);
    world_close(&ledger.world, s);
}
