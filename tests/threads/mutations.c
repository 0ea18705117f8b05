/* mutations.c - many threads, one handle, a connection to one file for each: every mutation once. */
#include "tests/threads/threads.h"

#include "base/check.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 6, MUTATIONS = 24 };

struct shop {
    struct once *once;
    char path[160];
    atomic_uint told[MUTATIONS]; /* by so many threads that it is done */
};

static void heard(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

static sqlite3 *shop_enter(const struct shop *s)
{
    sqlite3 *db;
    CHECK(sqlite3_open(s->path, &db) == SQLITE_OK);
    sqlite3_busy_timeout(db, 60000);
    return db;
}

static int use_item(void *ctx, struct once_db db, struct once_bytes *ret_response)
{
    char sql[80];
    snprintf(sql, sizeof sql, "INSERT INTO applied VALUES ('%s')", (const char *)ctx);
    *ret_response = once_str(ctx);
    return sqlite3_exec(db.sqlite, sql, NULL, NULL, NULL);
}

/* Until there is a definite answer. */
static void mutate(struct shop *s, sqlite3 *db, unsigned n)
{
    struct once_mutation in = ONCE_MUTATION_INIT;
    struct once_mutation_answer answer;
    char name[24];
    snprintf(name, sizeof name, "r-%u", n);
    in.user = once_str("user-1");
    in.request = once_str(name);
    do {
        struct once_db on = { .sqlite = db };
        if (!EXPECT(once_mutate(s->once, on, &in, use_item, name, &answer) == 0)) return;
    } while (answer.outcome == ONCE_IN_PROGRESS);
    EXPECT(answer.outcome == ONCE_OK || answer.outcome == ONCE_CACHED ||
           answer.outcome == ONCE_ALREADY_DONE);
    EXPECT(answer.value.len == strlen(name) && !memcmp(answer.value.data, name, strlen(name)));
    atomic_fetch_add(&s->told[n], 1);
    once_mutation_answer_clear(&answer);
}

static void mutate_all(struct crew *crew, unsigned me)
{
    struct shop *s = crew->ctx;
    sqlite3 *db = shop_enter(s);
    for (unsigned i = 0; i < MUTATIONS; i++) mutate(s, db, me % 2 ? i : MUTATIONS - 1 - i);
    CHECK(sqlite3_close(db) == SQLITE_OK);
}

static int count(const struct shop *s, const char *sql)
{
    sqlite3 *db = shop_enter(s);
    sqlite3_stmt *statement;
    CHECK(sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK);
    CHECK(sqlite3_step(statement) == SQLITE_ROW);
    int n = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return n;
}

static void shop_open(struct shop *s, const struct place *p)
{
    char url[192];
    snprintf(s->path, sizeof s->path, "%.*s.%s", (int)strcspn(p->ledger + 7, "?"),
             p->ledger + 7, p->name);
    snprintf(url, sizeof url, "sqlite:%s", s->path);
    CHECK(once_migrate(url, ONCE_MIGRATE_MUTATIONS, heard, NULL, NULL) == 0);
    sqlite3 *db = shop_enter(s);
    CHECK(sqlite3_exec(db, "PRAGMA journal_mode = WAL; CREATE TABLE applied (r)", NULL, NULL,
                       NULL) == SQLITE_OK);
    sqlite3_close(db);
    s->once = place_open(p, 0);
}

void test_mutations(const struct place *p)
{
    static struct shop s;
    memset(&s, 0, sizeof s);
    shop_open(&s, p);
    crew_run(&(struct crew){ .count = THREADS, .work = mutate_all, .ctx = &s });
    for (unsigned i = 0; i < MUTATIONS; i++) EXPECT(atomic_load(&s.told[i]) == THREADS);
    EXPECT(count(&s, "SELECT count(*) FROM applied") == MUTATIONS);
    EXPECT(count(&s, "SELECT count(DISTINCT r) FROM applied") == MUTATIONS);
    once_close(s.once);
}
