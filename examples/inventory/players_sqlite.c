/* players_sqlite.c - players in an SQLite file; see players.h. */
#include "players.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

enum { BUSY_MS = 5000 };

static int fail(struct once_db db)
{
    fprintf(stderr, "SQLite: %s\n", sqlite3_errmsg(db.sqlite));
    return -1;
}

static int sqlite_open(const char *url, struct once_db *ret_db)
{
    *ret_db = (struct once_db){ 0 };
    if (sqlite3_open(url + strlen("sqlite:"), &ret_db->sqlite) != SQLITE_OK)
        return fail(*ret_db);
    sqlite3_busy_timeout(ret_db->sqlite, BUSY_MS);
    return 0;
}

static void sqlite_close(struct once_db db)
{
    sqlite3_close(db.sqlite);
}

/* A file beside it. */
static void sqlite_ledger(const char *url, char *ret_url, size_t len)
{
    snprintf(ret_url, len, "%s-once?markers=%s", url, url + strlen("sqlite:"));
}

/* How many rows it changed. */
static int change(struct once_db db, const char *sql, const char *user,
                  const struct player *player, const long long *version)
{
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(db.sqlite, sql, -1, &s, NULL) != SQLITE_OK) return fail(db);
    sqlite3_bind_int64(s, 1, player->version);
    sqlite3_bind_int64(s, 2, player->potions);
    sqlite3_bind_int64(s, 3, player->health);
    sqlite3_bind_int64(s, 4, player->coins);
    sqlite3_bind_text(s, 5, user, -1, SQLITE_STATIC);
    if (version) sqlite3_bind_int64(s, 6, *version);
    int rows = sqlite3_step(s) == SQLITE_DONE ? sqlite3_changes(db.sqlite) : fail(db);
    sqlite3_finalize(s);
    return rows;
}

static int sqlite_create(struct once_db db, const char *user, const struct player *player)
{
    if (sqlite3_exec(db.sqlite, PLAYERS_TABLE, NULL, NULL, NULL) != SQLITE_OK) return fail(db);
    return change(db, PLAYERS_CREATE, user, player, NULL);
}

static int sqlite_read(struct once_db db, const char *user, struct player *ret_player)
{
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(db.sqlite, PLAYERS_READ, -1, &s, NULL) != SQLITE_OK) return fail(db);
    sqlite3_bind_text(s, 1, user, -1, SQLITE_STATIC);
    int r = sqlite3_step(s);
    int found = r == SQLITE_ROW ? 1 : r == SQLITE_DONE ? 0 : fail(db);
    if (found == 1)
        *ret_player = (struct player){ sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 1),
                                       sqlite3_column_int64(s, 2), sqlite3_column_int64(s, 3) };
    sqlite3_finalize(s);
    return found;
}

static int sqlite_write(struct once_db db, const char *user, long long version,
                        const struct player *player)
{
    return change(db, PLAYERS_WRITE, user, player, &version);
}

const struct players players_sqlite = {
    .scheme = "sqlite:",
    .open = sqlite_open,
    .close = sqlite_close,
    .ledger = sqlite_ledger,
    .create = sqlite_create,
    .read = sqlite_read,
    .write = sqlite_write,
};
