/* mutations.c - once_mutate() while memory runs out: what is said to have failed has changed nothing, what
 * was answered is there once, and the retry finds it so. */
#include "tests/oom/oom.h"

#include "base/check.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static unsigned files;

struct stage {
    struct once *once;
    sqlite3 *db;
};

static void heard(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

static void stage_open(struct stage *s)
{
    struct once_config config = ONCE_CONFIG_INIT;
    char url[160], *path = url + strlen("sqlite:");
    snprintf(url, sizeof url, "sqlite:%s/mutations-%u.db", oom_dir(), files++);
    CHECK(once_migrate(url, ONCE_MIGRATE_MUTATIONS, heard, NULL, NULL) == 0);
    CHECK(sqlite3_open(path, &s->db) == SQLITE_OK);
    CHECK(sqlite3_exec(s->db, "CREATE TABLE applied (n)", NULL, NULL, NULL) == SQLITE_OK);
    config.flags = ONCE_EPHEMERAL;
    config.patience_ms = 0;
    CHECK(once_open(&config, &s->once, NULL) == 0);
}

static void stage_close(struct stage *s)
{
    once_close(s->once);
    CHECK(sqlite3_close(s->db) == SQLITE_OK);
}

static int applied(struct stage *s)
{
    sqlite3_stmt *statement;
    CHECK(sqlite3_prepare_v2(s->db, "SELECT count(*) FROM applied", -1, &statement, NULL) == 0);
    CHECK(sqlite3_step(statement) == SQLITE_ROW);
    int n = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    return n;
}

static int apply(void *ctx, struct once_db db, struct once_bytes *ret_response)
{
    (void)ctx;
    *ret_response = once_str("done");
    return sqlite3_exec(db.sqlite, "INSERT INTO applied VALUES (1)", NULL, NULL, NULL);
}

static int mutate(struct stage *s, struct once *o, struct once_mutation_answer *ret_answer)
{
    struct once_mutation in = ONCE_MUTATION_INIT;
    in.user = once_str("user-1");
    in.request = once_str("req-9");
    in.lease_ms = 0; /* who could not give it back is no obstacle */
    return once_mutate(o, (struct once_db){ .sqlite = s->db }, &in, apply, NULL, ret_answer);
}

/* What was told is true. */
static void judge(struct stage *s, int r, const struct once_mutation_answer *a)
{
    if (r) {
        EXPECT(a->error.code == r);
        expect_error(r, a->error.text);
        EXPECT(r == ONCE_EAMBIGUOUS || applied(s) == 0);
        return;
    }
    EXPECT(a->outcome == ONCE_OK || a->outcome == ONCE_CLAIMED);
    EXPECT(applied(s) == (a->outcome == ONCE_OK));
    if (a->outcome == ONCE_OK)
        EXPECT(a->value.len == 4 && memcmp(a->value.data, "done", 4) == 0);
}

static bool mutate_only(const char *arg, enum oom_mode mode, size_t nth)
{
    struct stage s;
    struct once_mutation_answer first, again;
    bool with_coord = strcmp(arg, "memory") == 0;
    stage_open(&s);
    oom_arm(mode, nth);
    int r = mutate(&s, with_coord ? s.once : NULL, &first);
    bool fired = oom_disarm();
    judge(&s, r, &first);
    EXPECT(sqlite3_get_autocommit(s.db));
    EXPECT(mutate(&s, s.once, &again) == 0);
    EXPECT(again.outcome == ONCE_OK || again.outcome == ONCE_CACHED ||
           again.outcome == ONCE_ALREADY_DONE);
    EXPECT(applied(&s) == 1);
    once_mutation_answer_clear(&first);
    once_mutation_answer_clear(&again);
    stage_close(&s);
    return fired;
}

const struct scenario mutations_scenarios[] = {
    { "once_mutate", mutate_only, "memory" },
    { "once_mutate without coord", mutate_only, "none" },
    { NULL, NULL, NULL },
};
