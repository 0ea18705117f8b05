/* sqlite_db.h - one connection to one SQLite file; private to the sqlite store.
 *
 * Opening checks that the file is ours, brings its schema up to date and settles WAL, however
 * many processes do the same at that moment. Statements are prepared once and reset after each
 * use. A failure of SQLite itself is remembered in `failed`, so that the owner of the
 * transaction can tell it from an op that was merely refused. One thread at a time. */
#ifndef STORE_SQLITE_DB_H
#define STORE_SQLITE_DB_H

#include "store/store.h"

#include <sqlite3.h>
#include <sys/types.h>

#define SQL_RECORD                                                                             \
    "state, token, fence, claimed_at_ms, lease_ms, lease_until_ms, retain_ms, done_at_ms, "    \
    "fingerprint"

#define SQL_LIST(X)                                                                            \
    X(SQL_BEGIN_READ, "BEGIN")                                                                 \
    X(SQL_BEGIN_WRITE, "BEGIN IMMEDIATE")                                                      \
    X(SQL_COMMIT, "COMMIT")                                                                    \
    X(SQL_ROLLBACK, "ROLLBACK")                                                                \
    X(SQL_EPOCH, "SELECT epoch FROM meta WHERE id = 1")                                        \
    X(SQL_FLOOR, "SELECT fence_floor FROM meta WHERE id = 1")                                  \
    X(SQL_RAISE, "UPDATE meta SET fence_floor = ?1 WHERE id = 1")                              \
    X(SQL_READ, "SELECT " SQL_RECORD ", value, id FROM claims WHERE scope = ?1 AND name = ?2") \
    X(SQL_INSERT, "INSERT INTO claims (" SQL_RECORD ", value, gone_at_ms, scope, name)"        \
                  " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)")          \
    X(SQL_UPDATE, "UPDATE claims SET (" SQL_RECORD ", value, gone_at_ms)"                      \
                  " = (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) WHERE id = ?12")          \
    X(SQL_DELETE, "DELETE FROM claims WHERE id = ?1")                                          \
    X(SQL_EXPIRE, "DELETE FROM claims WHERE id IN (SELECT id FROM claims"                      \
                  " WHERE gone_at_ms <= ?1 ORDER BY gone_at_ms LIMIT ?2) RETURNING fence")     \
    X(SQL_SCAN, "SELECT " SQL_RECORD ", length(value), scope, name FROM claims"                \
                " WHERE scope = ?1 AND name > ?2 AND gone_at_ms > ?3"                          \
                " ORDER BY scope, name LIMIT ?4")                                              \
    X(SQL_SCAN_ALL, "SELECT " SQL_RECORD ", length(value), scope, name FROM claims"            \
                    " WHERE (scope, name) > (?1, ?2) AND gone_at_ms > ?3"                      \
                    " ORDER BY scope, name LIMIT ?4")                                          \
    X(SQL_STATS, "SELECT count(*) FILTER (WHERE state = 1 AND lease_until_ms > ?1"             \
                 " AND gone_at_ms > ?1), count(*) FILTER (WHERE state = 1"                     \
                 " AND lease_until_ms <= ?1 AND gone_at_ms > ?1), count(*) FILTER"             \
                 " (WHERE state = 2 AND gone_at_ms > ?1), count(*) FILTER"                     \
                 " (WHERE gone_at_ms <= ?1), (SELECT page_count * page_size"                   \
                 " FROM pragma_page_count, pragma_page_size) FROM claims")                     \
    X(SQL_DATA_VERSION, "PRAGMA data_version")

#define SQL_ENUM(id, text) id,
enum sql { SQL_LIST(SQL_ENUM) SQLS };
#undef SQL_ENUM

struct sqlite_options {
    char *path;
    const char *sync; /* as PRAGMA synchronous takes it */
    int64_t busy_ms;
    bool exclusive;
};

struct sqlite {
    struct store base;
    struct clock wall;
    struct sqlite_options options;
    sqlite3 *db;
    sqlite3_stmt *statements[SQLS];
    int failed; /* SQLite's own code of the last failure; whoever uses it clears it first */

    struct rng_seeded jitter; /* its own: the shell's is used on another thread */
    int64_t busy_since_ms, waited_ms;

    dev_t dev; /* the file that was opened */
    ino_t ino;

    int notify_fd; /* -1: not armed, or not to be had */
    bool notify_tried;
    int64_t data_version;
};

/* The part of a URL behind "sqlite:". The caller frees path, also after an error. */
int sqlite_options_parse(const char *rest, struct sqlite_options *ret_options,
                         struct err *reterr);

int db_open(struct sqlite *s, struct rng *rng, struct err *reterr); /* wants options set */
void db_close(struct sqlite *s);                                    /* takes half-built ones */
const char *db_path(const struct sqlite *s);                        /* absolute */

/* Sets an error from SQLite's result and remembers it in `failed`. */
int db_fail(struct sqlite *s, int rc, struct err *reterr);

/* A prepared statement, reset and ready to be bound; NULL: reterr says why. */
sqlite3_stmt *db_statement(struct sqlite *s, enum sql which, struct err *reterr);

/* 1: a row, 0: no more rows, negative: error. The user resets it after the last row. */
int db_step(struct sqlite *s, sqlite3_stmt *statement, struct err *reterr);

/* Runs a statement that returns no rows, and resets it. */
int db_finish(struct sqlite *s, sqlite3_stmt *statement, struct err *reterr);
int db_run(struct sqlite *s, enum sql which, struct err *reterr);

/* Ends whatever transaction is open; false: SQLite could not even do that. */
bool db_rollback(struct sqlite *s);

/* The first column of the only row. */
int db_number(struct sqlite *s, enum sql which, int64_t *ret_number, struct err *reterr);

/* Refuses to go on with a file that was removed or replaced: two files, two owners. */
int db_check_file(struct sqlite *s, struct err *reterr);

#endif
