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

/* In the order of `fields` in sqlite_run_rows.c: parameters 1 to 29 of INSERT and UPDATE. What
 * changes often comes before what is long. */
#define SQL_RUN                                                                                \
    "env, id, task, queue, ordering_key, fingerprint, key, key_held, key_until_ms, state, "    \
    "metadata_version, created_at_ms, delay_until_ms, available_at_ms, started_at_ms, "        \
    "finished_at_ms, attempts, attempts_max, stalls, token, fence, lease_ms, "                 \
    "lease_until_ms, changes, tags, metadata, error, output, payload"

/* Active runs with this ordering key; one of them has a due_at_ms. */
#define SQL_LINE                                                                               \
    " FROM runs WHERE env = ?1 AND queue = ?2 AND ordering_key = ?3"                           \
    " AND ordering_key <> x'' AND state <= 2"

#define SQL_RUNS_LIST(X)                                                                       \
    X(SQL_RUN_BY_ID, "SELECT " SQL_RUN ", row FROM runs WHERE env = ?1 AND id = ?2")           \
    X(SQL_RUN_BY_KEY, "SELECT " SQL_RUN ", row FROM runs"                                      \
                      " WHERE env = ?1 AND task = ?2 AND key = ?3 AND key_held = 1")           \
    X(SQL_RUN_INSERT, "INSERT INTO runs (" SQL_RUN ", gone_at_ms, due_at_ms)"                  \
                      " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,"  \
                      " ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28," \
                      " ?29, ?30, ?31)")                                                       \
    X(SQL_RUN_UPDATE, "UPDATE runs SET key_held = ?8, state = ?10, metadata_version = ?11,"    \
                      " delay_until_ms = ?13, available_at_ms = ?14, started_at_ms = ?15,"     \
                      " finished_at_ms = ?16, attempts = ?17, stalls = ?19, token = ?20,"      \
                      " fence = ?21, lease_ms = ?22, lease_until_ms = ?23, changes = ?24,"     \
                      " tags = ?25, metadata = ?26, error = ?27, output = ?28,"                \
                      " gone_at_ms = ?30, due_at_ms = iif(due_at_ms IS NULL, NULL, ?31)"       \
                      " WHERE row = ?32")                                                      \
    X(SQL_RUN_DUE, "SELECT " SQL_RUN ", row FROM runs WHERE env = ?1 AND queue = ?2"           \
                   " AND due_at_ms <= ?3 ORDER BY due_at_ms, id LIMIT 1")                      \
    X(SQL_RUN_NEXT_DUE, "SELECT due_at_ms FROM runs WHERE env = ?1 AND queue = ?2"             \
                        " AND due_at_ms > ?3 ORDER BY due_at_ms LIMIT 1")                      \
    X(SQL_RUN_LIST, "SELECT " SQL_RUN ", row FROM runs WHERE env = ?1 AND id < ?2"             \
                    " AND (?3 = x'' OR task = ?3) AND (?4 = x'' OR queue = ?4)"                \
                    " AND ?5 >> state & 1 AND (?6 = x'' OR instr(tags, ?6))"                   \
                    " ORDER BY id DESC")                                                       \
    X(SQL_LINE_HEAD, "SELECT row, id, state" SQL_LINE " AND due_at_ms IS NOT NULL LIMIT 1")    \
    X(SQL_LINE_NEXT, "SELECT row, id" SQL_LINE " AND due_at_ms IS NULL ORDER BY id LIMIT 1")   \
    X(SQL_LINE_WAITS, "UPDATE runs SET due_at_ms = NULL WHERE row = ?1")                       \
    X(SQL_LINE_GOES, "UPDATE runs SET due_at_ms = available_at_ms WHERE row = ?1")             \
    X(SQL_RUN_EXPIRE, "DELETE FROM runs WHERE row IN (SELECT row FROM runs WHERE"              \
                      " gone_at_ms <= ?1 AND NOT EXISTS (SELECT 1 FROM aliases WHERE"          \
                      " aliases.env = runs.env AND canonical_id = runs.id)"                    \
                      " ORDER BY gone_at_ms LIMIT ?2)")                                        \
    X(SQL_ALIAS_READ, "SELECT canonical_id, changes FROM aliases WHERE env = ?1 AND id = ?2")  \
    X(SQL_ALIAS_INSERT, "INSERT INTO aliases (env, id, canonical_id, changes, made_at_ms)"     \
                        " VALUES (?1, ?2, ?3, ?4, ?5)")                                        \
    X(SQL_ALIAS_COUNT, "UPDATE aliases SET changes = ?3 WHERE env = ?1 AND id = ?2")           \
    X(SQL_ALIAS_EXPIRE, "DELETE FROM aliases WHERE row IN (SELECT aliases.row FROM"            \
                        " (SELECT env, id FROM runs WHERE gone_at_ms <= ?1"                    \
                        " ORDER BY gone_at_ms LIMIT ?2) AS gone JOIN aliases"                  \
                        " ON aliases.env = gone.env AND canonical_id = gone.id LIMIT ?2)")

/* Of the buffer. A lease that begins later than now, by more than its own length, is over, too: the
 * clock went back. Which index is used is said: the rows that were written may be many more than
 * those that wait. */
#define SQL_ENTRY                                                                              \
    "env, id, state, leased_at_ms, lease_until_ms, attempts, accepted_at_ms, written_at_ms, "  \
    "rev, run, changes, seq, turn, token IS NULL"
#define SQL_LAPSED "(lease_until_ms <= ?1 OR leased_at_ms - ?1 > lease_until_ms - leased_at_ms)"

#define SQL_BUFFER_LIST(X)                                                                     \
    X(SQL_ENTRY_BY_ID, "SELECT " SQL_ENTRY " FROM entries WHERE env = ?1 AND id = ?2")         \
    X(SQL_ENTRY_BY_KEY, "SELECT " SQL_ENTRY " FROM entries WHERE env = ?1 AND key_frame = ?2") \
    X(SQL_ENTRY_ADD,                                                                           \
      "INSERT INTO entries (env, id, key_frame, state, turn, leased_at_ms, lease_until_ms,"    \
      " attempts, accepted_at_ms, written_at_ms, rev, run, changes)"                           \
      " VALUES (?1, ?2, ?3, 1, 1, 0, 0, 0, ?4, 0, 0, ?5, x'')")                                \
    X(SQL_ENTRY_APPEND, "UPDATE entries SET changes = CAST(changes || ?2 AS BLOB),"            \
                        " rev = rev + 1, turn = iif(state = 2, 0, turn), state = 1,"           \
                        " token = NULL, key_frame = iif(?3, NULL, key_frame) WHERE seq = ?1")  \
    X(SQL_ENTRY_LIST, "SELECT " SQL_ENTRY " FROM entries INDEXED BY entries_live"              \
                      " WHERE state < 3 AND env = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3")   \
    X(SQL_DRAIN_LAPSED, "UPDATE entries SET state = 1, turn = 0, token = NULL WHERE seq IN"    \
                        " (SELECT seq FROM entries INDEXED BY entries_leased"                  \
                        " WHERE state = 2 AND " SQL_LAPSED " LIMIT ?2)")                       \
    X(SQL_DRAIN_ENV, "SELECT env FROM entries INDEXED BY entries_queued"                       \
                     " WHERE state = 1 AND env > ?1 ORDER BY env LIMIT 1")                     \
    X(SQL_DRAIN_COUNT, "SELECT count(*) FROM (SELECT 1 FROM entries INDEXED BY entries_queued" \
                       " WHERE state = 1 AND env = ?1 LIMIT ?2)")                              \
    X(SQL_DRAIN_PICK, "SELECT " SQL_ENTRY " FROM entries INDEXED BY entries_queued"            \
                      " WHERE state = 1 AND env = ?1 ORDER BY turn, seq LIMIT ?2")             \
    X(SQL_DRAIN_TAKE, "UPDATE entries INDEXED BY entries_queued SET state = 2, turn = 1,"      \
                      " token = ?4, leased_at_ms = ?5, lease_until_ms = ?6"                    \
                      " WHERE state = 1 AND env = ?1 AND turn = ?2 AND seq <= ?3")             \
    X(SQL_DRAIN_TAKE_ONE, "UPDATE entries SET state = 2, turn = 1, token = ?2,"                \
                          " leased_at_ms = ?3, lease_until_ms = ?4 WHERE seq = ?1")            \
    X(SQL_SETTLE_WRITTEN, "UPDATE entries SET state = 3, token = NULL, key_frame = NULL,"      \
                          " written_at_ms = ?4"                                                \
                          " WHERE env = ?1 AND id = ?2 AND state = 2 AND token = ?3")          \
    X(SQL_SETTLE_BACK, "UPDATE entries SET state = 1, token = NULL, attempts = attempts + ?4"  \
                       " WHERE env = ?1 AND id = ?2 AND state = 2 AND token = ?3")             \
    X(SQL_SETTLE_PAUSE, "UPDATE entries SET token = NULL, attempts = attempts + ?4,"           \
                        " leased_at_ms = ?5, lease_until_ms = ?6"                              \
                        " WHERE env = ?1 AND id = ?2 AND state = 2 AND token = ?3")            \
    X(SQL_SPOOL_LIST, "SELECT " SQL_ENTRY " FROM entries WHERE seq > ?1 AND state = 1"         \
                      " ORDER BY seq LIMIT ?2")                                                \
    X(SQL_SPOOL_DROP, "DELETE FROM entries WHERE env = ?1 AND id = ?2 AND state = 1")          \
    X(SQL_BUFFER_SWEEP, "DELETE FROM entries WHERE seq IN (SELECT seq FROM entries"            \
                        " INDEXED BY entries_written WHERE state = 3 AND written_at_ms <= ?1"  \
                        " ORDER BY written_at_ms LIMIT ?2)")                                   \
    X(SQL_BUFFER_COUNT, "UPDATE buffer SET queued = queued + ?1, leased = leased + ?2"         \
                        " WHERE id = 1")                                                       \
    X(SQL_BUFFER_STATS, "SELECT queued, leased, (SELECT count(*) FROM entries"                 \
                        " INDEXED BY entries_leased WHERE state = 2 AND " SQL_LAPSED "),"      \
                        " (SELECT min(accepted_at_ms) FROM entries INDEXED BY entries_age"     \
                        " WHERE state < 3) FROM buffer WHERE id = 1")

#define SQL_ENUM(id, text) id,
enum sql { SQL_LIST(SQL_ENUM) SQL_RUNS_LIST(SQL_ENUM) SQL_BUFFER_LIST(SQL_ENUM) SQLS };
#undef SQL_ENUM

struct sqlite_options {
    char *path;
    const char *sync;    /* as PRAGMA synchronous takes it */
    const char *markers; /* behind the path, in the same memory; NULL: in the file itself */
    int64_t busy_ms;
    bool exclusive;
};

struct sqlite {
    struct store base;
    struct clock wall, monotonic;
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

    uint8_t drained[ENV_BYTES_MAX]; /* the env that had its turn last */
    size_t drained_len;
    int64_t more_queued, more_leased; /* by this transaction; the file is told before its end */

    sqlite3 *markers; /* where they are, if not in `db`; NULL: not open */
};

/* A batch under way. */
struct txn {
    struct moment at;
    uint64_t stored_floor; /* what the file has; written once, before the commit */
};

/* Carries out one op inside a transaction. If it fails after it has changed something, everything
 * in the transaction is undone. */
typedef int run_verb(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr);

/* The part of a URL behind "sqlite:". The caller frees path, also after an error. */
int sqlite_options_parse(const char *rest, struct sqlite_options *ret_options,
                         struct err *reterr);

/* Makes a file that only its owner can read, unless there is one. */
int db_file_create(const char *path, struct err *reterr);

int db_open(struct sqlite *s, struct rng *rng, struct err *reterr); /* wants options set */
void db_close(struct sqlite *s);                                    /* takes half-built ones */
const char *db_path(const struct sqlite *s);                        /* absolute */

/* Sets an error from SQLite's result and remembers it in `failed`. */
int db_fail(struct sqlite *s, int rc, struct err *reterr);

/* A prepared statement, reset and ready to be bound; NULL: reterr says why. */
sqlite3_stmt *db_statement(struct sqlite *s, enum sql which, struct err *reterr);

/* 1: a row, 0: no more rows, negative: error. The user resets it after the last row. */
int db_step(struct sqlite *s, sqlite3_stmt *statement, struct err *reterr);

/* Never binds NULL: an empty view is an empty blob. Stays the caller's until the reset. */
void bind_bytes(sqlite3_stmt *statement, int at, struct bytes view);
struct bytes column_bytes(sqlite3_stmt *statement, int column);

/* Runs a statement that returns no rows, and resets it. */
int db_finish(struct sqlite *s, sqlite3_stmt *statement, struct err *reterr);
int db_run(struct sqlite *s, enum sql which, struct err *reterr);

/* Ends whatever transaction is open; false: SQLite could not even do that. */
bool db_rollback(struct sqlite *s);

/* The first column of the only row. */
int db_number(struct sqlite *s, enum sql which, int64_t *ret_number, struct err *reterr);

/* Refuses to go on with a file that was removed or replaced: two files, two owners. */
int db_check_file(struct sqlite *s, struct err *reterr);

/* sqlite_buffer.c: ops of the buffer, and the sweep of entries that were written; inside a
 * transaction, which sets more_queued and more_leased to 0 when it begins, and ends with _count().
 * A refusal has changed nothing, or `failed` says that everything is to be undone. */
int sqlite_buffer_run(struct sqlite *s, struct op *op, int64_t now_ms, struct err *reterr);
int sqlite_buffer_sweep(struct sqlite *s, int64_t now_ms, size_t limit, size_t *ret_count,
                        struct err *reterr);
int sqlite_buffer_count(struct sqlite *s, struct err *reterr);

/* sqlite_markers.c: MARKERS_SWEEP, by itself and outside a transaction; installing them. */
int sqlite_markers_sweep(struct sqlite *s, struct op *op, struct err *reterr);
int sqlite_migrate_markers(const char *rest, const struct store_env *env,
                           const struct marker_settings *settings, store_say *say, void *ctx,
                           struct err *reterr);

#endif
