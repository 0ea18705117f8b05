/* marker_sqlite.c - markers in an SQLite file, by the statements of markers/sqlite.sql; see marker.h.
 *
 * A file has one writer at a time, so whoever is undecided is in the way of everybody: that is
 * IN_PROGRESS, after lock_ms and whatever the caller's own busy handler adds to it.
 *
 * SQLite has no name for a transaction, so the first bytes of an attempt are one: random ones of the
 * connection, which an SQL function of ours keeps for it, and the data version of its file, which
 * every commit changes. A marker that has both was written by the transaction that is open. */
#include "store/marker.h"

#include "base/clock.h"

#include <sqlite3.h>
#include <stdio.h>
#include <time.h>

#define FULL "2" /* of PRAGMA synchronous: below, power loss may take back what is committed */
#define BEGIN_SQL                                                                              \
    "INSERT INTO once_mutations (user_id, request_id, method, fingerprint, attempt)"           \
    " VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET"                                   \
    " created_at_ms = excluded.created_at_ms, method = excluded.method,"                       \
    " fingerprint = excluded.fingerprint, attempt = excluded.attempt, outcome = NULL"          \
    " WHERE created_at_ms + (SELECT ttl_ms FROM once_mutation_meta) <= excluded.created_at_ms" \
    " RETURNING (SELECT epoch FROM once_mutation_meta, pragma_synchronous"                     \
    " WHERE synchronous >= " FULL "), (SELECT ttl_ms FROM once_mutation_meta)"
#define LOOK_SQL                                                                               \
    "SELECT attempt, method, fingerprint, outcome FROM once_mutations"                         \
    " WHERE user_id = ?1 AND request_id = ?2"
#define OURS " WHERE user_id = ?1 AND request_id = ?2 AND substr(attempt, 1, 8) = ?3"
#define OURS_SQL "SELECT 1 FROM once_mutations" OURS
#define FINISH_SQL "UPDATE once_mutations SET outcome = coalesce(?4, outcome)" OURS
#define SESSION "once_mutation_session"

enum { PAUSE_US_FIRST = 500, PAUSE_US_MAX = 20000, SESSION_BYTES = 4, OWN_BYTES = 8 };

_Static_assert(OWN_BYTES == 8, "as OURS says");
_Static_assert(SESSION_BYTES + sizeof(unsigned) == OWN_BYTES, "session, version");

/* ---- statements ---- */

static bool is_busy(int code)
{
    return (code & 0xff) == SQLITE_BUSY || (code & 0xff) == SQLITE_LOCKED;
}

static int fail(struct sqlite3 *db, struct err *reterr)
{
    const char *text = sqlite3_errmsg(db);
    int code = sqlite3_extended_errcode(db);
    if (strstr(text, "no such table"))
        return err_set(reterr, ERR_UNSUPPORTED,
                       "there are no markers in this file: once migrate --mutations");
    if ((code & 0xff) == SQLITE_NOMEM) return err_set(reterr, ERR_NOMEM, "out of memory");
    if (is_busy(code))
        return err_set(reterr, ERR_UNAVAILABLE, "SQLite: somebody else has the file");
    bool away = (code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_FULL;
    return err_set(reterr, away ? ERR_UNAVAILABLE : ERR_INVALID, "SQLite: %.150s", text);
}

/* Empty is NULL, if it may be. */
static void bind(sqlite3_stmt *s, int at, struct bytes content, bool text)
{
    if (content.len == 0)
        sqlite3_bind_null(s, at);
    else if (text)
        sqlite3_bind_text(s, at, (const char *)content.data, (int)content.len, SQLITE_STATIC);
    else
        sqlite3_bind_blob(s, at, content.data, (int)content.len, SQLITE_STATIC);
}

static struct bytes column(sqlite3_stmt *s, int at)
{
    /* Text becomes UTF-8 first, where the file has it as UTF-16; the other way round it would move. */
    bool text = sqlite3_column_type(s, at) == SQLITE_TEXT;
    const void *data = text ? sqlite3_column_text(s, at) : sqlite3_column_blob(s, at);
    return bytes_of(data, (size_t)sqlite3_column_bytes(s, at));
}

/* NULL: it cannot be prepared, and that is told. */
static sqlite3_stmt *prepare(struct sqlite3 *db, const char *sql, const struct mutation *m,
                             struct err *reterr)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK) {
        fail(db, reterr);
        return NULL;
    }
    bind(s, 1, m->user, true);
    bind(s, 2, m->request, true);
    return s;
}

/* ---- the transaction ---- */

static bool is_open(struct marker_db db)
{
    return !sqlite3_get_autocommit(db.sqlite);
}

/* Some errors have ended it, but so may the caller have. */
static bool has_failed(struct marker_db db)
{
    (void)db;
    return false;
}

/* Again and again until lock_ms are over, as long as somebody is in the way. */
static int run_patiently(struct sqlite3 *db, const char *sql, int64_t lock_ms)
{
    int64_t until_us = clock_measure_us() + lock_ms * 1000, pause_us = PAUSE_US_FIRST;
    for (;;) {
        int code = sqlite3_exec(db, sql, NULL, NULL, NULL);
        if (!is_busy(code) || clock_measure_us() + pause_us > until_us) return code;
        nanosleep(&(struct timespec){ .tv_nsec = pause_us * 1000 }, NULL);
        if (pause_us < PAUSE_US_MAX) pause_us *= 2;
    }
}

static int open_transaction(struct marker_db db, int64_t lock_ms, struct marker_found *ret,
                            struct err *reterr)
{
    int code = run_patiently(db.sqlite, "BEGIN IMMEDIATE", lock_ms);
    if (code != SQLITE_OK && !is_busy(code)) return fail(db.sqlite, reterr);
    ret->outcome = code == SQLITE_OK ? OUTCOME_CLAIMED : OUTCOME_IN_PROGRESS;
    return 0;
}

/* Before anything is begun: without memory, what was begun could not be undone. */
static int prepare_undo(struct marker_db *db, struct err *reterr)
{
    int code = sqlite3_prepare_v2(db->sqlite, "ROLLBACK", -1, &db->undo, NULL);
    return code == SQLITE_OK ? 0 : fail(db->sqlite, reterr);
}

static void release(struct marker_db *db)
{
    sqlite3_finalize(db->undo);
    db->undo = NULL;
}

static void rollback(struct marker_db db)
{
    if (!is_open(db)) return;
    sqlite3_step(db.undo);
    sqlite3_reset(db.undo);
}

/* COMMIT would be SQLITE_BUSY, for as long as it is asked. */
static bool is_writing(struct sqlite3 *db)
{
    sqlite3_stmt *s = sqlite3_next_stmt(db, NULL);
    while (s && (!sqlite3_stmt_busy(s) || sqlite3_stmt_readonly(s)))
        s = sqlite3_next_stmt(db, s);
    return s != NULL;
}

/* An error of the disk says nothing about what is on it: look() does. Nor does another one that leaves no
 * transaction: an interrupt by a progress handler is also heard after it is committed. A hook that
 * refuses it is definite. */
static int commit(struct marker_db db, int64_t lock_ms, struct err *reterr)
{
    if (is_writing(db.sqlite)) {
        rollback(db);
        return err_set(reterr, ERR_INVALID,
                       "SQLite: a statement that writes was not reset or finalized");
    }
    int code = run_patiently(db.sqlite, "COMMIT", lock_ms);
    if (code == SQLITE_OK) return 0;
    int kind = code & 0xff;
    fail(db.sqlite, reterr);
    bool ended = !is_open(db) && kind != SQLITE_CONSTRAINT;
    if (ended || kind == SQLITE_IOERR || kind == SQLITE_FULL || kind == SQLITE_CORRUPT)
        reterr->code = ERR_AMBIGUOUS;
    rollback(db);
    return reterr->code;
}

/* ---- whose marker it is ---- */

static void tell_session(sqlite3_context *ctx, int count, sqlite3_value **values)
{
    (void)count, (void)values;
    sqlite3_result_blob(ctx, sqlite3_user_data(ctx), SESSION_BYTES, SQLITE_TRANSIENT);
}

/* It ends with the connection; no transaction undoes it. */
static int session_make(struct sqlite3 *db, const uint8_t *random, struct err *reterr)
{
    void *session = sqlite3_malloc(SESSION_BYTES);
    if (!session) return err_set(reterr, ERR_NOMEM, "out of memory");
    memcpy(session, random, SESSION_BYTES);
    int code = sqlite3_create_function_v2(db, SESSION, 0, SQLITE_UTF8 | SQLITE_DIRECTONLY,
                                          session, tell_session, NULL, NULL, sqlite3_free);
    return code == SQLITE_OK ? 0 : fail(db, reterr);
}

/* The one that the connection has; the first time, what is there becomes it. */
static int session_take(struct sqlite3 *db, uint8_t *session, struct err *reterr)
{
    sqlite3_stmt *s = NULL;
    int code = sqlite3_prepare_v2(db, "SELECT " SESSION "()", -1, &s, NULL), r = 0;
    if (code == SQLITE_ERROR) return session_make(db, session, reterr); /* no such function */
    if (code == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        memcpy(session, sqlite3_column_blob(s, 0), SESSION_BYTES);
    else
        r = fail(db, reterr);
    sqlite3_finalize(s);
    return r;
}

/* The first bytes of the attempt become those of the transaction that is open. */
static int own(struct marker_db db, struct marker *m, struct err *reterr)
{
    unsigned version = 0;
    int r = session_take(db.sqlite, m->attempt, reterr);
    if (r) return r;
    sqlite3_file_control(db.sqlite, "main", SQLITE_FCNTL_DATA_VERSION, &version);
    memcpy(m->attempt + SESSION_BYTES, &version, sizeof version);
    return 0;
}

/* NULL: it cannot be prepared, and that is told. */
static sqlite3_stmt *prepare_ours(struct sqlite3 *db, const char *sql, const struct marker *m,
                                  struct err *reterr)
{
    sqlite3_stmt *s = prepare(db, sql, &m->mutation, reterr);
    if (s) bind(s, 3, bytes_of(m->attempt, OWN_BYTES), false);
    return s;
}

/* Has this transaction begun it? */
static int refuse_ours(struct sqlite3 *db, const struct marker *m, struct err *reterr)
{
    sqlite3_stmt *s = prepare_ours(db, OURS_SQL, m, reterr);
    if (!s) return reterr->code;
    int code = sqlite3_step(s), r = 0;
    if (code == SQLITE_ROW)
        r = err_set(reterr, ERR_INVALID, "this transaction has begun this request already");
    else if (code != SQLITE_DONE)
        r = fail(db, reterr);
    sqlite3_finalize(s);
    return r;
}

/* ---- the marker ---- */

/* What is there. False: nothing. */
static int find(struct sqlite3 *db, const struct marker *m, struct marker_found *ret,
                struct err *reterr)
{
    sqlite3_stmt *s = prepare(db, LOOK_SQL, &m->mutation, reterr);
    if (!s) return reterr->code;
    int code = sqlite3_step(s), r = 0;
    ret->outcome = OUTCOME_ABSENT;
    if (code == SQLITE_ROW) {
        bool ours = bytes_eq(column(s, 0), bytes_of(m->attempt, sizeof m->attempt));
        ret->outcome =
            ours ? OUTCOME_OK : marker_judge(&m->mutation, column(s, 1), column(s, 2));
        bool kept = sqlite3_column_type(s, 3) != SQLITE_NULL;
        if (kept && ret->outcome == OUTCOME_ALREADY_DONE) ret->kept = blob_new(column(s, 3));
    } else if (is_busy(code)) {
        ret->outcome = OUTCOME_IN_PROGRESS;
    } else if (code != SQLITE_DONE) {
        r = fail(db, reterr);
    }
    sqlite3_finalize(s);
    return r;
}

static int begin(struct marker_db db, struct marker *m, struct marker_found *ret,
                 struct err *reterr)
{
    if (!is_open(db))
        return err_set(reterr, ERR_INVALID, "no transaction is open: BEGIN IMMEDIATE first");
    if (own(db, m, reterr)) return reterr->code;
    sqlite3_stmt *s = prepare(db.sqlite, BEGIN_SQL, &m->mutation, reterr);
    if (!s) return reterr->code;
    bind(s, 3, m->mutation.method, true);
    bind(s, 4, m->mutation.fingerprint, false);
    bind(s, 5, bytes_of(m->attempt, sizeof m->attempt), false);
    int code = sqlite3_step(s), r = 0;
    if (code == SQLITE_ROW) {
        ret->outcome = OUTCOME_CLAIMED;
        const char *epoch = (const char *)sqlite3_column_text(s, 0);
        snprintf(ret->epoch, sizeof ret->epoch, "%s", epoch ? epoch : "");
        ret->ttl_ms = sqlite3_column_int64(s, 1);
        /* An interrupt that comes here has rolled back all of the transaction. */
        if (sqlite3_step(s) != SQLITE_DONE) r = fail(db.sqlite, reterr);
    } else if (is_busy(code)) {
        ret->outcome = OUTCOME_IN_PROGRESS;
    } else if (code == SQLITE_DONE) {
        r = find(db.sqlite, m, ret, reterr);
    } else {
        r = fail(db.sqlite, reterr);
    }
    sqlite3_finalize(s);
    if (r || ret->outcome != OUTCOME_ALREADY_DONE) return r;
    r = refuse_ours(db.sqlite, m, reterr);
    if (!r) return 0;
    blob_unref(ret->kept);
    ret->kept = NULL;
    return r;
}

static int finish_with(struct marker_db db, struct marker *m, const struct bytes *outcome,
                       struct err *reterr)
{
    if (own(db, m, reterr)) return reterr->code;
    sqlite3_stmt *s = prepare_ours(db.sqlite, FINISH_SQL, m, reterr);
    if (!s) return reterr->code;
    if (outcome)
        sqlite3_bind_blob(s, 4, outcome->data ? (const void *)outcome->data : "",
                          (int)outcome->len, SQLITE_STATIC);
    int code = is_open(db) ? sqlite3_step(s) : SQLITE_DONE, r = 0;
    bool changed = is_open(db) && sqlite3_changes(db.sqlite) == 1;
    if (code != SQLITE_DONE)
        r = fail(db.sqlite, reterr);
    else if (!changed)
        r = err_set(reterr, ERR_INVALID, "this transaction has not begun this request");
    sqlite3_finalize(s);
    return r;
}

static int finish(struct marker_db db, struct marker *m, struct bytes outcome,
                  struct err *reterr)
{
    return finish_with(db, m, &outcome, reterr);
}

/* ---- the whole transaction ---- */

static int enter(struct marker_db db, struct marker *m, bool bare, struct marker_found *ret,
                 struct err *reterr)
{
    if (is_open(db))
        return err_set(reterr, ERR_INVALID, "a transaction is open on this connection already");
    int r = open_transaction(db, m->lock_ms, ret, reterr);
    if (!r && !bare && ret->outcome == OUTCOME_CLAIMED) r = begin(db, m, ret, reterr);
    if (r || ret->outcome != OUTCOME_CLAIMED) rollback(db);
    return r;
}

static int leave(struct marker_db db, struct marker *m, bool bare, const struct bytes *outcome,
                 struct marker_found *found, struct err *reterr)
{
    int r = bare ? 0 : finish_with(db, m, outcome, reterr);
    found->astray = r == ERR_INVALID; /* what is flushed cannot change inside a transaction */
    return r ? r : commit(db, m->lock_ms, reterr);
}

static int epoch(struct marker_db db, char *ret, struct err *reterr)
{
    static const struct mutation nobodys;
    sqlite3_stmt *s =
        prepare(db.sqlite, "SELECT epoch FROM once_mutation_meta", &nobodys, reterr);
    if (!s) return reterr->code;
    int r = sqlite3_step(s) == SQLITE_ROW ? 0 : fail(db.sqlite, reterr);
    if (!r)
        snprintf(ret, MUTATION_EPOCH_BYTES_MAX + 1, "%s",
                 (const char *)sqlite3_column_text(s, 0));
    sqlite3_finalize(s);
    return r;
}

static int look(struct marker_db db, const struct marker *m, struct marker_found *ret,
                struct err *reterr)
{
    return find(db.sqlite, m, ret, reterr);
}

const struct marker_class marker_sqlite = {
    .name = "SQLite",
    .prepare = prepare_undo,
    .release = release,
    .is_open = is_open,
    .has_failed = has_failed,
    .enter = enter,
    .leave = leave,
    .rollback = rollback,
    .begin = begin,
    .finish = finish,
    .epoch = epoch,
    .look = look,
};
