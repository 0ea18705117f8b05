/* sqlite_run_rows.c - runs as rows of a SQLite file: see sqlite_run_rows.h.
 *
 * Guarantees: a row that makes no sense is an error of the op that met it, and so is a run that could
 * not be read back.
 *
 * A line are the active runs of a queue with one ordering key. Its head, and nobody else in it, has a
 * due_at_ms, so that a lease finds what is due by one step in an index however long the lines are.
 * The head is the one that executes; else the one with the lowest id. It changes when a run is
 * inserted into the line, or the state of one of them changes (line_settle). */
#include "store/sqlite_run_rows.h"

#include <stddef.h>

/* ---- rows ---- */

enum field_kind {
    FIELD_BYTES,
    FIELD_ID,
    FIELD_TOKEN,
    FIELD_BOOL,
    FIELD_STATE,
    FIELD_MS,
    FIELD_U32,
    FIELD_U64,
};

struct field {
    enum field_kind kind;
    size_t at;
};

#define FIELD(kind, name)                                                                      \
    {                                                                                          \
        kind, offsetof(struct run, name)                                                       \
    }

/* In the order of SQL_RUN. */
static const struct field fields[] = {
    FIELD(FIELD_BYTES, env),
    FIELD(FIELD_ID, id),
    FIELD(FIELD_BYTES, task),
    FIELD(FIELD_BYTES, queue),
    FIELD(FIELD_BYTES, ordering_key),
    FIELD(FIELD_BYTES, fingerprint),
    FIELD(FIELD_BYTES, key),
    FIELD(FIELD_BOOL, key_held),
    FIELD(FIELD_MS, key_until_ms),
    FIELD(FIELD_STATE, state),
    FIELD(FIELD_U64, metadata_version),
    FIELD(FIELD_MS, created_at_ms),
    FIELD(FIELD_MS, delay_until_ms),
    FIELD(FIELD_MS, available_at_ms),
    FIELD(FIELD_MS, started_at_ms),
    FIELD(FIELD_MS, finished_at_ms),
    FIELD(FIELD_U32, attempts),
    FIELD(FIELD_U32, attempts_max),
    FIELD(FIELD_U32, stalls),
    FIELD(FIELD_TOKEN, token),
    FIELD(FIELD_U64, fence),
    FIELD(FIELD_MS, lease_ms),
    FIELD(FIELD_MS, lease_until_ms),
    FIELD(FIELD_U64, changes),
    FIELD(FIELD_BYTES, tags),
    FIELD(FIELD_BYTES, metadata),
    FIELD(FIELD_BYTES, error),
    FIELD(FIELD_BYTES, output),
    FIELD(FIELD_BYTES, payload),
};

/* Columns behind them in a SELECT; parameters behind them in an INSERT and an UPDATE. */
enum {
    FIELDS = sizeof fields / sizeof fields[0],
    COL_ROW = FIELDS,
    PARAM_GONE = FIELDS + 1,
    PARAM_DUE,
    PARAM_ROW,
};

static bool id_read(sqlite3_stmt *q, int column, struct run_id *ret_id)
{
    return run_id_parse(column_bytes(q, column), ret_id);
}

static bool token_read(sqlite3_stmt *q, int column, struct token *ret_token)
{
    struct bytes token = column_bytes(q, column);
    if (token.len != sizeof ret_token->bytes) return false;
    memcpy(ret_token->bytes, token.data, token.len);
    return true;
}

/* False: it cannot be what was written. */
static bool field_read(sqlite3_stmt *q, int column, struct run *r)
{
    void *to = (char *)r + fields[column].at;
    int64_t number = sqlite3_column_int64(q, column);
    switch (fields[column].kind) {
    case FIELD_BYTES:
        *(struct bytes *)to = column_bytes(q, column);
        return true;
    case FIELD_ID:
        return id_read(q, column, to);
    case FIELD_TOKEN:
        return token_read(q, column, to);
    case FIELD_BOOL:
        *(bool *)to = number;
        return number == 0 || number == 1;
    case FIELD_STATE:
        *(enum run_state *)to = (enum run_state)number;
        return number >= RUN_QUEUED && number <= RUN_CANCELED;
    case FIELD_MS:
        *(int64_t *)to = number;
        return true;
    case FIELD_U32:
        *(uint32_t *)to = (uint32_t)number;
        return number >= 0 && number <= UINT32_MAX;
    case FIELD_U64:
        *(uint64_t *)to = (uint64_t)number;
        return number >= 0;
    }
    return false;
}

static void field_bind(sqlite3_stmt *q, int column, const struct run *r)
{
    const void *from = (const char *)r + fields[column].at;
    int at = column + 1;
    switch (fields[column].kind) {
    case FIELD_BYTES:
        bind_bytes(q, at, *(const struct bytes *)from);
        break;
    case FIELD_ID:
        bind_bytes(q, at, run_id_bytes(from));
        break;
    case FIELD_TOKEN:
        bind_bytes(q, at, bytes_of(from, sizeof(struct token)));
        break;
    case FIELD_BOOL:
        sqlite3_bind_int(q, at, *(const bool *)from);
        break;
    case FIELD_STATE:
        sqlite3_bind_int(q, at, (int)*(const enum run_state *)from);
        break;
    case FIELD_MS:
        sqlite3_bind_int64(q, at, *(const int64_t *)from);
        break;
    case FIELD_U32:
        sqlite3_bind_int64(q, at, *(const uint32_t *)from);
        break;
    case FIELD_U64:
        sqlite3_bind_int64(q, at, (int64_t) * (const uint64_t *)from);
        break;
    }
}

int sqlite_run_row_decode(sqlite3_stmt *q, struct run *ret_run, struct err *reterr)
{
    struct run r = { 0 };
    const char *nonsense = NULL;
    for (int i = 0; i < FIELDS; i++)
        if (!field_read(q, i, &r)) nonsense = sqlite3_column_name(q, i);
    if (!nonsense) nonsense = run_nonsense(&r);
    if (nonsense)
        return err_set(reterr, ERR_CORRUPT, "sqlite: a stored run makes no sense: %s",
                       nonsense);
    *ret_run = r;
    return 0;
}

void run_found_fini(struct run_found *f)
{
    run_free(f->run);
}

/* Steps once and resets. 1: found, 0: there is none, negative: error. */
static int found_read(struct sqlite *s, sqlite3_stmt *q, struct run_found *ret_found,
                      struct err *reterr)
{
    struct run view;
    int r = db_step(s, q, reterr);
    int bad = r == 1 ? sqlite_run_row_decode(q, &view, reterr) : 0;
    if (r == 1 && !bad) {
        *ret_found = (struct run_found){ .run = run_copy(&view),
                                         .row = sqlite3_column_int64(q, COL_ROW) };
        if (!ret_found->run) bad = err_set(reterr, ERR_NOMEM, "out of memory reading a run");
    }
    sqlite3_reset(q);
    return bad ? bad : r;
}

/* ---- finding one ---- */

static int find_by_id(struct sqlite *s, struct bytes env, const struct run_id *id,
                      struct run_found *ret_found, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_RUN_BY_ID, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, env);
    bind_bytes(q, 2, run_id_bytes(id));
    return found_read(s, q, ret_found, reterr);
}

int sqlite_run_find_by_key(struct sqlite *s, struct bytes env, struct bytes task,
                           struct bytes key, struct run_found *ret_found, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_RUN_BY_KEY, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, env);
    bind_bytes(q, 2, task);
    bind_bytes(q, 3, key);
    return found_read(s, q, ret_found, reterr);
}

static int alias_read(struct sqlite *s, struct bytes env, const struct run_id *id,
                      struct run_id *ret_canonical, uint64_t *ret_merged, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_ALIAS_READ, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, env);
    bind_bytes(q, 2, run_id_bytes(id));
    int r = db_step(s, q, reterr);
    int64_t merged = r == 1 ? sqlite3_column_int64(q, 1) : 0;
    if (r == 1 && (!id_read(q, 0, ret_canonical) || merged < 0))
        r = err_set(reterr, ERR_CORRUPT, "sqlite: a stored alias makes no sense");
    *ret_merged = (uint64_t)merged;
    sqlite3_reset(q);
    return r;
}

int sqlite_run_find(struct sqlite *s, struct bytes env, const struct run_id *id,
                    struct run_found *ret_found, struct err *reterr)
{
    struct run_id canonical;
    uint64_t merged = 0;
    int r = find_by_id(s, env, id, ret_found, reterr);
    if (r) return r;
    r = alias_read(s, env, id, &canonical, &merged, reterr);
    if (r <= 0) return r;
    r = find_by_id(s, env, &canonical, ret_found, reterr);
    if (r == 0) return err_set(reterr, ERR_CORRUPT, "sqlite: an alias leads to no run");
    if (r < 0) return r;
    ret_found->run->canonical = canonical;
    ret_found->by_alias = true;
    ret_found->merged = merged;
    return 1;
}

int sqlite_run_find_due(struct sqlite *s, const struct run_ask *a, struct run_found *ret_found,
                        struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_RUN_DUE, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, a->env);
    bind_bytes(q, 2, a->queue);
    sqlite3_bind_int64(q, 3, a->now_ms);
    return found_read(s, q, ret_found, reterr);
}

/* ---- lines ---- */

struct place {
    int64_t row;
    struct run_id id;
};

/* 1: there is one, 0: none. `r` says which line. */
static int line_place(struct sqlite *s, enum sql which, const struct run *r,
                      struct place *ret_place, bool *ret_executes, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, which, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, r->env);
    bind_bytes(q, 2, r->queue);
    bind_bytes(q, 3, r->ordering_key);
    int found = db_step(s, q, reterr);
    if (found == 1) ret_place->row = sqlite3_column_int64(q, 0);
    if (found == 1 && !id_read(q, 1, &ret_place->id))
        found = err_set(reterr, ERR_CORRUPT, "sqlite: a stored run makes no sense: id");
    if (found == 1 && ret_executes) *ret_executes = sqlite3_column_int(q, 2) == RUN_EXECUTING;
    sqlite3_reset(q);
    return found;
}

static int line_set(struct sqlite *s, enum sql which, int64_t row, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, which, reterr);
    if (!q) return reterr->code;
    sqlite3_bind_int64(q, 1, row);
    return db_finish(s, q, reterr);
}

/* An older run may come late, from the buffer: it goes first, but not beside one that executes. Those
 * that wait are QUEUED, all of them, so they are due when they are available. */
static int line_settle(struct sqlite *s, const struct run *r, struct err *reterr)
{
    struct place head, next;
    bool executes = false;
    int waits = line_place(s, SQL_LINE_NEXT, r, &next, NULL, reterr);
    if (waits <= 0) return waits;
    int headed = line_place(s, SQL_LINE_HEAD, r, &head, &executes, reterr);
    if (headed < 0) return headed;
    if (headed && executes) return 0;
    if (headed && strcmp(head.id.text, next.id.text) < 0) return 0;
    int failed = headed ? line_set(s, SQL_LINE_WAITS, head.row, reterr) : 0;
    return failed ? failed : line_set(s, SQL_LINE_GOES, next.row, reterr);
}

/* ---- writing one ---- */

static void bind_time(sqlite3_stmt *q, int at, int64_t ms)
{
    if (ms == INT64_MAX)
        sqlite3_bind_null(q, at);
    else
        sqlite3_bind_int64(q, at, ms);
}

static int run_bind(sqlite3_stmt *q, const struct run *r, int64_t due_ms, struct err *reterr)
{
    const char *nonsense = run_nonsense(r);
    if (nonsense) return err_set(reterr, ERR_INVALID, "the run makes no sense: %s", nonsense);
    for (int i = 0; i < FIELDS; i++) field_bind(q, i, r);
    bind_time(q, PARAM_GONE, run_gone_ms(r));
    bind_time(q, PARAM_DUE, due_ms);
    return 0;
}

int sqlite_run_insert(struct sqlite *s, const struct run *r, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_RUN_INSERT, reterr);
    if (!q) return reterr->code;
    bool in_line = r->ordering_key.len && !run_is_final(r);
    int failed = run_bind(q, r, in_line ? INT64_MAX : run_due_ms(r), reterr);
    if (!failed) failed = db_finish(s, q, reterr);
    return failed || !in_line ? failed : line_settle(s, r, reterr);
}

int sqlite_run_update(struct sqlite *s, const struct run_found *was, const struct run *next,
                      struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_RUN_UPDATE, reterr);
    if (!q) return reterr->code;
    int failed = run_bind(q, next, run_due_ms(next), reterr);
    if (failed) return failed;
    sqlite3_bind_int64(q, PARAM_ROW, was->row);
    failed = db_finish(s, q, reterr);
    if (failed || !next->ordering_key.len || next->state == was->run->state) return failed;
    return line_settle(s, next, reterr);
}
