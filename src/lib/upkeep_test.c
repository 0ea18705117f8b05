/* upkeep_test.c - a handle for markers alone; the rest of upkeep.c is what the command's tests ask for. */
#include <once/once.h>

#include <criterion/criterion.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

static char dir[] = "/tmp/upkeep-test-XXXXXX", path[64], url[80];
static struct once_error error;

static void heard(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

static void say(const char *sql)
{
    sqlite3 *db;
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s: %s", sql,
                 sqlite3_errmsg(db));
    sqlite3_close(db);
}

static void setup(void)
{
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/shop.db", dir);
    snprintf(url, sizeof url, "sqlite:%s", path);
    cr_assert_eq(once_migrate(url, ONCE_MIGRATE_MUTATIONS, heard, NULL, &error), 0, "%s",
                 error.text);
}

static void teardown(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(markers_alone, .init = setup, .fini = teardown);

static int opens(unsigned flags, struct once **ret)
{
    struct once_config config = ONCE_CONFIG_INIT;
    config.ledger = url;
    config.flags = flags;
    return once_open(&config, ret, &error);
}

Test(markers_alone, are_looked_at_and_swept)
{
    struct once *once;
    struct once_markers m;
    uint64_t removed = 0;
    say("INSERT INTO once_mutations (user_id, request_id) VALUES ('u', 'new');"
        "INSERT INTO once_mutations (user_id, request_id, created_at_ms) VALUES ('u', 'old', "
        "1)");
    cr_assert_eq(opens(ONCE_MARKERS, &once), 0, "%s", error.text);
    cr_assert_eq(once_markers(once, &m, &error), 0, "%s", error.text);
    cr_assert(m.installed && m.ttl_ms == 3600000 && m.oldest_ms > 0);
    cr_assert_eq(once_sweep_markers(once, 10, &removed, &error), 0, "%s", error.text);
    cr_assert_eq(removed, 1);
    once_close(once);
}

Test(markers_alone, is_all_that_the_handle_does)
{
    struct once *once;
    struct once_claim in = ONCE_CLAIM_INIT;
    struct once_answer answer;
    struct once_stats stats;
    in.scope = once_str("s");
    in.key = once_str("k");
    cr_assert_eq(opens(ONCE_MARKERS, &once), 0, "%s", error.text);
    cr_assert_eq(once_claim(once, &in, &answer), ONCE_EUNSUPPORTED);
    cr_assert_eq(once_sweep(once, 1, NULL, &error), ONCE_EUNSUPPORTED);
    cr_assert_eq(once_stats(once, &stats, &error), ONCE_EUNSUPPORTED);
    once_close(once);
}

Test(markers_alone, go_with_a_ledger_only)
{
    struct once *once;
    cr_assert_eq(opens(ONCE_MARKERS | ONCE_EPHEMERAL, &once), ONCE_EINVAL);
    cr_assert_eq(opens(ONCE_MARKERS | ONCE_RUNS, &once), ONCE_EINVAL);
}

Test(markers_alone, settings_that_cannot_be_meant_are_refused)
{
    struct once_marker_settings s = ONCE_MARKER_SETTINGS_INIT;
    s.ttl_ms = 0;
    cr_assert_eq(once_migrate_mutations(url, 0, &s, heard, NULL, &error), ONCE_EINVAL);
    s.ttl_ms = 999;
    cr_assert_eq(once_migrate_mutations(url, 0, &s, heard, NULL, &error), ONCE_EINVAL);
    s.ttl_ms = -2;
    cr_assert_eq(once_migrate_mutations(url, 0, &s, heard, NULL, &error), ONCE_EINVAL);
    s.ttl_ms = 1000;
    cr_assert_eq(once_migrate_mutations(url, 0, &s, heard, NULL, &error), 0, "%s", error.text);
}
