/* sqlite_markers_test.c - markers in a SQLite file: the documented statements, installing, sweeping. */
#include "store/sqlite_scene_test.h"

SQLITE_SUITE(sqlite_markers);

static char said[1024];

static void hear(void *ctx, const char *text)
{
    (void)ctx;
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", text);
}

static int install(const char *where, struct marker_settings settings, struct err *reterr)
{
    said[0] = '\0';
    return store_migrate_markers(where, &env, &settings, hear, NULL, reterr);
}

static void installed(const char *where, int64_t ttl_ms)
{
    struct err err;
    struct marker_settings settings = { .ttl_ms = ttl_ms, .partitions = -1 };
    int r = install(where, settings, &err);
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
    exec(s, &op, 1);
    cr_assert(op->err.code == 0, "%s", op->err.text);
    cr_assert(op->out.outcome == OUTCOME_OK && op->changed == (op->count > 0));
    struct result result = { op->markers, op->count };
    op_free(op);
    return result;
}

static void add(int count, int64_t created_at_ms)
{
    char sql[400];
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
             "INSERT INTO once_mutations (user_id, request_id, created_at_ms) "
             "SELECT 'u%lld', i, %lld FROM n",
             count, (long long)created_at_ms, (long long)created_at_ms);
    raw(sql);
}

/* ---- installing ---- */

Test(sqlite_markers, are_installed_once_and_say_so)
{
    installed(url, 0);
    cr_assert(strstr(said, "installed markers in ") && strstr(said, "counts for 3600 s"), "%s",
              said);
    int64_t epoch = raw_number("SELECT length(epoch) FROM once_mutation_meta");
    cr_assert(epoch == 16);
    raw("UPDATE once_mutation_meta SET epoch = 'mine'");
    installed(url, 0);
    cr_assert(strstr(said, "nothing to do"), "%s", said);
    cr_assert(raw_number("SELECT epoch = 'mine' FROM once_mutation_meta") == 1);
    installed(url, 2000);
    cr_assert(strstr(said, "counts for 2 s") && !strstr(said, "nothing"), "%s", said);
    cr_assert(raw_number("SELECT ttl_ms FROM once_mutation_meta WHERE epoch = 'mine'") == 2000);
}

Test(sqlite_markers, may_be_there_before_the_ledger_and_after_it)
{
    installed(url, 0);
    struct store *s = open_store();
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    cr_assert(sweep(s, 0).markers.installed);
    store_close(s);
    installed(url, 0);
    cr_assert(strstr(said, "nothing to do"), "%s", said);
}

Test(sqlite_markers, go_into_a_database_of_another_program)
{
    raw("CREATE TABLE items (id INTEGER PRIMARY KEY); PRAGMA application_id = 77");
    installed(url, 0);
    cr_assert(raw_number("PRAGMA application_id") == 77);
    expect_refused(url, ERR_INVALID, "another program");
}

Test(sqlite_markers, printed_change_nothing)
{
    struct err err;
    struct marker_settings settings = { .ttl_ms = 5000, .partitions = -1, .print = true };
    cr_assert(install(url, settings, &err) == 0);
    cr_assert(access(path, F_OK) != 0);
    settings = (struct marker_settings){ .partitions = 4 };
    cr_assert(install(url, settings, &err) == ERR_UNSUPPORTED);
    cr_assert(strstr(err.text, "no partitions"), "%s", err.text);
}

Test(sqlite_markers, of_a_newer_version_are_left_alone)
{
    struct err err;
    installed(url, 0);
    raw("UPDATE once_mutation_meta SET version = 9");
    struct marker_settings settings = { .ttl_ms = 5000, .partitions = -1 };
    cr_assert(install(url, settings, &err) == ERR_VERSION, "%s", said);
    cr_assert(raw_number("SELECT ttl_ms FROM once_mutation_meta") == 3600000);
}

/* ---- the statements ---- */

#define BEGIN_SQL(created_at)                                                                  \
    "INSERT INTO once_mutations (user_id, request_id, created_at_ms, method) VALUES ('u', "    \
    "'r', " created_at                                                                         \
    ", 'm') ON CONFLICT DO UPDATE SET created_at_ms = excluded.created_at_ms,"                 \
    " method = excluded.method, fingerprint = excluded.fingerprint,"                           \
    " attempt = excluded.attempt, outcome = NULL WHERE created_at_ms + (SELECT ttl_ms FROM"    \
    " once_mutation_meta) <= excluded.created_at_ms RETURNING created_at_ms"

static bool begins(const char *sql)
{
    sqlite3 *db = raw_open();
    sqlite3_stmt *q;
    cr_assert(sqlite3_prepare_v2(db, sql, -1, &q, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(db));
    bool row = sqlite3_step(q) == SQLITE_ROW;
    sqlite3_finalize(q);
    sqlite3_close(db);
    return row;
}

Test(sqlite_markers, begin_is_refused_until_the_marker_has_expired)
{
    installed(url, 1000);
    cr_assert(begins(BEGIN_SQL("10000")));
    raw("UPDATE once_mutations SET outcome = 'old'");
    cr_assert(!begins(BEGIN_SQL("10000")));
    cr_assert(!begins(BEGIN_SQL("10999")));
    cr_assert(raw_number("SELECT count(*) FROM once_mutations WHERE outcome = 'old'") == 1);
    cr_assert(begins(BEGIN_SQL("11000")));
    cr_assert(raw_number("SELECT count(*) FROM once_mutations WHERE outcome IS NULL") == 1);
}

Test(sqlite_markers, are_stamped_with_the_time_in_milliseconds)
{
    installed(url, 0);
    raw("INSERT INTO once_mutations (user_id, request_id) VALUES ('u', 'r')");
    cr_assert(raw_number("SELECT abs(created_at_ms - 1000 * strftime('%s', 'now')) < 5000"
                         " FROM once_mutations") == 1);
}

Test(sqlite_markers, have_limits)
{
    static const char *const bad[] = {
        "INSERT INTO once_mutations (user_id, request_id) VALUES ('', 'r')",
        "INSERT INTO once_mutations (user_id, request_id) VALUES ('u', NULL)",
        "INSERT INTO once_mutations (user_id, request_id) VALUES (hex(zeroblob(129)), 'r')",
        "INSERT INTO once_mutations (user_id, request_id, method) VALUES ('u', 'r', "
        "hex(zeroblob(65)))",
        "INSERT INTO once_mutations (user_id, request_id, fingerprint) VALUES ('u', 'r', "
        "zeroblob(65))",
        "INSERT INTO once_mutations (user_id, request_id, outcome) VALUES ('u', 'r', "
        "zeroblob(8193))",
    };
    installed(url, 0);
    sqlite3 *db = raw_open();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_expect(sqlite3_exec(db, bad[i], NULL, NULL, NULL) == SQLITE_CONSTRAINT, "%s",
                  bad[i]);
    sqlite3_close(db);
}

/* ---- sweeping ---- */

Test(sqlite_markers, not_installed_are_nothing)
{
    struct store *s = open_store();
    struct result r = sweep(s, 100);
    cr_assert(!r.markers.installed && !r.markers.more && r.count == 0);
    store_close(s);
}

Test(sqlite_markers, sweep_takes_what_has_expired_oldest_first)
{
    installed(url, 100000);
    struct store *s = open_store();
    add(3, now_ms - 100000);
    add(3, now_ms - 100007);
    add(3, now_ms - 99999);
    struct result r = sweep(s, 0);
    cr_assert(r.markers.installed && r.markers.ttl_ms == 100000 && r.markers.oldest_ms == 7);
    cr_assert(r.count == 0 && !r.markers.more);
    r = sweep(s, 3);
    cr_assert(r.count == 3 && r.markers.more);
    cr_assert(raw_number("SELECT count(*) FROM once_mutations WHERE created_at_ms = 899993") ==
              0);
    r = sweep(s, 100);
    cr_assert(r.count == 3 && !r.markers.more);
    r = sweep(s, 100);
    cr_assert(r.count == 0 && r.markers.oldest_ms == 0);
    cr_assert(raw_number("SELECT count(*) FROM once_mutations") == 3);
    store_close(s);
}

Test(sqlite_markers, sweep_does_not_hold_the_file_for_long)
{
    installed(url, 1000);
    struct store *s = open_store();
    add(6000, 0); /* the first moment of all counts as any other */
    struct result r = sweep(s, 50000);
    cr_assert(r.count == 5000 && r.markers.more, "%zu", r.count);
    r = sweep(s, 50000);
    cr_assert(r.count == 1000 && !r.markers.more);
    store_close(s);
}

Test(sqlite_markers, in_another_file_are_swept_there)
{
    char elsewhere[200];
    installed(url, 1000);
    add(2, 1);
    snprintf(elsewhere, sizeof elsewhere, "sqlite:%s/ledger.db?markers=%s", dir, path);
    struct store *s = open_url(elsewhere);
    cr_assert(sweep(s, 10).count == 2);
    cr_assert(raw_number("SELECT count(*) FROM once_mutations") == 0);
    store_close(s);
}

Test(sqlite_markers, in_a_batch_are_carried_out_beside_the_claims)
{
    installed(url, 1000);
    struct store *s = open_store();
    add(2, 1);
    struct op *ops[] = { op_on(VERB_CLAIM, "a", owner(1)),
                         op_new(VERB_MARKERS_SWEEP, NULL, NULL),
                         op_on(VERB_CLAIM, "b", owner(1)) };
    ops[1]->limit = 10;
    exec(s, ops, 3);
    cr_assert(ops[0]->out.outcome == OUTCOME_CLAIMED && ops[2]->out.outcome == OUTCOME_CLAIMED);
    cr_assert(ops[1]->count == 2);
    for (int i = 0; i < 3; i++) op_free(ops[i]);
    store_close(s);
}
