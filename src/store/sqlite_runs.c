/* sqlite_runs.c - runs in a SQLite file: rows are read, core/run_rules decides, rows are written.
 *
 * Guarantees: L1 and L2 of run_op.h, by the transaction around every op and by unique indexes; a row
 * that makes no sense is an error of the op that met it, and so is a run that could not be read back.
 *
 * A line are the active runs of a queue with one ordering key. Its head, and nobody else in it, has a
 * due_at_ms, so that a lease finds what is due by one step in an index however long the lines are.
 * The head is the one that executes; else the one with the lowest id. It changes when a run is
 * inserted into the line, or the state of one of them changes (line_settle). */
#include "store/sqlite_runs.h"

#include "base/check.h"

#include <stddef.h>

/* Neither a claim nor a drainer's lease must lapse between the look at the clock and the commit. */
enum { LATE_MARGIN_MS = 2000 };

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

/* Views that are valid until the statement is stepped or reset. */
static int run_view(sqlite3_stmt *q, struct run *ret_run, struct err *reterr)
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

/* A run as read, a copy; freed by found_fini(). */
struct found {
    struct run *run; /* NULL: none */
    int64_t row;
    bool by_alias;
    uint64_t merged; /* by_alias: so many of its changes are in the run */
};

static void found_fini(struct found *f)
{
    run_free(f->run);
}

/* Steps once and resets. 1: found, 0: there is none, negative: error. */
static int found_read(struct sqlite *s, sqlite3_stmt *q, struct found *ret_found,
                      struct err *reterr)
{
    struct run view;
    int r = db_step(s, q, reterr);
    int bad = r == 1 ? run_view(q, &view, reterr) : 0;
    if (r == 1 && !bad) {
        *ret_found =
            (struct found){ .run = run_copy(&view), .row = sqlite3_column_int64(q, COL_ROW) };
        if (!ret_found->run) bad = err_set(reterr, ERR_NOMEM, "out of memory reading a run");
    }
    sqlite3_reset(q);
    return bad ? bad : r;
}

/* ---- finding one ---- */

static int find_by_id(struct sqlite *s, struct bytes env, const struct run_id *id,
                      struct found *ret_found, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_RUN_BY_ID, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, env);
    bind_bytes(q, 2, run_id_bytes(id));
    return found_read(s, q, ret_found, reterr);
}

/* Who has it, whether or not by right. */
static int find_by_key(struct sqlite *s, struct bytes env, struct bytes task, struct bytes key,
                       struct found *ret_found, struct err *reterr)
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

/* By its id, or by that of an alias. */
static int find(struct sqlite *s, struct bytes env, const struct run_id *id,
                struct found *ret_found, struct err *reterr)
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

static int find_live_key(struct sqlite *s, const struct run_ask *a, struct found *ret_found,
                         struct err *reterr)
{
    struct found f = { 0 };
    int r = find_by_key(s, a->env, a->task, a->key, &f, reterr);
    if (r == 1 && !run_holds_key(f.run, a->now_ms)) {
        found_fini(&f);
        return 0;
    }
    if (r == 1) *ret_found = f;
    return r;
}

static int find_asked(struct sqlite *s, const struct run_ask *a, struct found *ret_found,
                      struct err *reterr)
{
    if (!a->id.text[0]) return find_live_key(s, a, ret_found, reterr);
    return find(s, a->env, &a->id, ret_found, reterr);
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

static int run_insert(struct sqlite *s, const struct run *r, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_RUN_INSERT, reterr);
    if (!q) return reterr->code;
    bool in_line = r->ordering_key.len && !run_is_final(r);
    int failed = run_bind(q, r, in_line ? INT64_MAX : run_due_ms(r), reterr);
    if (!failed) failed = db_finish(s, q, reterr);
    return failed || !in_line ? failed : line_settle(s, r, reterr);
}

static int run_update(struct sqlite *s, const struct found *was, const struct run *next,
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

static int tell(struct run_ask *a, const struct run *r, struct err *reterr)
{
    if (run_rows_add(&a->rows, r) == 0) return 0;
    return err_set(reterr, ERR_NOMEM, "out of memory answering about a run");
}

/* ---- get, change, reset ---- */

int sqlite_run_get(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    struct run_ask *a = op->run;
    struct found f = { 0 };
    a->now_ms = t->at.now_ms;
    int r = find_asked(s, a, &f, reterr);
    op->out.outcome = r == 1 ? OUTCOME_OK : OUTCOME_ABSENT;
    if (r == 1) r = tell(a, f.run, reterr);
    found_fini(&f);
    return r;
}

static int change_found(struct sqlite *s, struct op *op, const struct found *f,
                        const struct run_change *c, struct err *reterr)
{
    struct run_ask *a = op->run;
    struct run_verdict v;
    struct run_scratch scratch;
    run_scratch_init(&scratch);
    int r = rules_run_change(f->run, c, a->now_ms, &scratch, &v, reterr);
    if (!r && v.changed) r = run_update(s, f, &v.next, reterr);
    if (!r) r = tell(a, &v.next, reterr);
    if (!r) {
        op->out.outcome = v.outcome;
        op->changed = v.changed;
        a->reason = v.reason;
    }
    run_scratch_fini(&scratch);
    return r;
}

int sqlite_run_change(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    struct run_ask *a = op->run;
    struct found f = { 0 };
    a->now_ms = t->at.now_ms;
    op->out.outcome = OUTCOME_ABSENT;
    int r = find_asked(s, a, &f, reterr);
    if (r == 1) r = change_found(s, op, &f, &a->change, reterr);
    found_fini(&f);
    return r;
}

int sqlite_run_reset(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    struct run_ask *a = op->run;
    struct found f = { 0 };
    a->now_ms = t->at.now_ms;
    op->out.outcome = OUTCOME_ABSENT;
    int r = find_live_key(s, a, &f, reterr);
    if (r == 1)
        r = change_found(s, op, &f, &(struct run_change){ .kind = RUN_RESET_KEY }, reterr);
    found_fini(&f);
    return r;
}

/* ---- put ---- */

struct put {
    struct op *op;
    struct run_ask *ask;
    struct run incoming; /* with what was changed in the buffer */
    struct found by_id, by_key;
    struct run_scratch scratch;
};

static int put_told(struct put *p, enum outcome outcome, const struct run *r,
                    struct err *reterr)
{
    p->op->out.outcome = outcome;
    return tell(p->ask, r, reterr);
}

/* The key goes to the new run, unless that has no right to it any more either. */
static int put_insert(struct sqlite *s, struct put *p, struct err *reterr)
{
    struct run *next = &p->incoming;
    struct run *other = p->by_key.run;
    bool taken = other && run_holds_key(other, p->ask->now_ms);
    if (other && !taken) {
        struct run loser = *other;
        loser.key_held = false;
        int r = run_update(s, &p->by_key, &loser, reterr);
        if (r) return r;
    }
    next->key_held = next->key_held && next->key.len && !taken;
    next->canonical = (struct run_id){ 0 };
    int r = run_insert(s, next, reterr);
    if (r) return r;
    p->op->changed = true;
    return put_told(p, OUTCOME_OK, next, reterr);
}

/* How many of its changes are in the canonical run. */
static int alias_write(struct sqlite *s, struct put *p, const struct run_id *canonical,
                       struct err *reterr)
{
    bool is_new = p->ask->put == PUT_ALIAS;
    sqlite3_stmt *q = db_statement(s, is_new ? SQL_ALIAS_INSERT : SQL_ALIAS_COUNT, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, p->incoming.env);
    bind_bytes(q, 2, run_id_bytes(&p->incoming.id));
    sqlite3_bind_int64(q, is_new ? 4 : 3, (int64_t)p->incoming.changes);
    if (is_new) bind_bytes(q, 3, run_id_bytes(canonical));
    if (is_new) sqlite3_bind_int64(q, 5, p->ask->now_ms);
    return db_finish(s, q, reterr);
}

/* What its changes do to the run that has its key, but for those that did it before. */
static int put_merge(struct sqlite *s, struct put *p, const struct found *canonical,
                     struct err *reterr)
{
    struct run next;
    int r = run_merge(canonical->run, p->ask->changes, canonical->merged, p->ask->now_ms,
                      &p->scratch, &next, reterr);
    if (!r) r = alias_write(s, p, &canonical->run->id, reterr);
    if (!r) r = run_update(s, canonical, &next, reterr);
    if (r) return r;
    p->op->changed = true;
    next.canonical = next.id;
    return put_told(p, OUTCOME_OK, &next, reterr);
}

static int put_alias(struct sqlite *s, struct put *p, struct err *reterr)
{
    return put_merge(s, p, &p->by_key, reterr);
}

/* What the row has not seen yet of the changes in the buffer. */
static int put_rest(struct sqlite *s, struct put *p, struct err *reterr)
{
    struct run next;
    int r = run_fold(p->by_id.run, p->ask->changes, &p->scratch, &next, reterr);
    if (!r) r = run_update(s, &p->by_id, &next, reterr);
    if (r) return r;
    p->op->changed = true;
    return put_told(p, OUTCOME_OK, &next, reterr);
}

static int put_same(struct sqlite *s, struct put *p, struct err *reterr)
{
    const struct found *f = &p->by_id;
    uint64_t seen = f->by_alias ? f->merged : f->run->changes;
    bool is_news = p->ask->drains && p->incoming.changes > seen;
    if (is_news && f->by_alias) return put_merge(s, p, f, reterr);
    if (is_news) return put_rest(s, p, reterr);
    return put_told(p, OUTCOME_OK, f->run, reterr);
}

static int put_failed(struct sqlite *s, struct put *p, struct err *reterr)
{
    int r = rules_run_put_failed(&p->incoming, p->by_key.run, p->ask->now_ms, &p->scratch,
                                 &p->incoming, reterr);
    return r ? r : put_insert(s, p, reterr);
}

static int put_cached(struct sqlite *s, struct put *p, struct err *reterr)
{
    (void)s;
    return put_told(p, OUTCOME_CACHED, p->by_key.run, reterr);
}

static int put_mismatch(struct sqlite *s, struct put *p, struct err *reterr)
{
    (void)s;
    const struct run *r = p->by_id.run ? p->by_id.run : p->by_key.run;
    return put_told(p, OUTCOME_MISMATCH, r, reterr);
}

static int (*const put_how[])(struct sqlite *, struct put *, struct err *) = {
    [PUT_INSERT] = put_insert,     [PUT_SAME] = put_same,   [PUT_CACHED] = put_cached,
    [PUT_MISMATCH] = put_mismatch, [PUT_ALIAS] = put_alias, [PUT_FAILED] = put_failed,
};

/* The rules judge it as it is by now: one that gave up its key in the buffer wants none here. */
static int put_look(struct sqlite *s, struct put *p, struct err *reterr)
{
    const struct run_ask *a = p->ask;
    struct run *in = &p->incoming;
    *in = *a->run;
    int r = a->drains ? run_fold(a->run, a->changes, &p->scratch, in, reterr) : 0;
    if (!r) r = find(s, in->env, &in->id, &p->by_id, reterr);
    if (r == 0 && in->key_held && in->key.len)
        r = find_by_key(s, in->env, in->task, in->key, &p->by_key, reterr);
    return r < 0 ? r : 0;
}

bool sqlite_run_is_late(const struct sqlite *s, const struct op *op)
{
    int64_t until_ms = op->verb == VERB_RUN_PUT ? op->run->until_ms : 0;
    return until_ms && clock_now_ms(&s->monotonic) + LATE_MARGIN_MS > until_ms;
}

int sqlite_run_put(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    struct put p = { .op = op, .ask = op->run };
    struct run_ask *a = op->run;
    a->now_ms = t->at.now_ms;
    op->out.outcome = OUTCOME_LOST;
    if (sqlite_run_is_late(s, op)) return 0;
    run_scratch_init(&p.scratch);
    int r = put_look(s, &p, reterr);
    if (!r) {
        a->put = rules_run_put(p.by_id.run, p.by_key.run, &p.incoming, a->drains, a->now_ms);
        r = put_how[a->put](s, &p, reterr);
    }
    found_fini(&p.by_id);
    found_fini(&p.by_key);
    run_scratch_fini(&p.scratch);
    return r;
}

/* ---- lease ---- */

static int due_read(struct sqlite *s, const struct run_ask *a, struct found *ret_found,
                    struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_RUN_DUE, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, a->env);
    bind_bytes(q, 2, a->queue);
    sqlite3_bind_int64(q, 3, a->now_ms);
    return found_read(s, q, ret_found, reterr);
}

static int next_due(struct sqlite *s, struct run_ask *a, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_RUN_NEXT_DUE, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, a->env);
    bind_bytes(q, 2, a->queue);
    sqlite3_bind_int64(q, 3, a->now_ms);
    int r = db_step(s, q, reterr);
    if (r == 1) a->next_due_ms = sqlite3_column_int64(q, 0);
    sqlite3_reset(q);
    return r < 0 ? r : 0;
}

/* One that has stalled too often ends here, and is handed to nobody. */
static int lease_found(struct sqlite *s, struct run_ask *a, const struct found *f,
                       struct err *reterr)
{
    const struct token *token = &a->tokens[a->rows.count];
    struct run_verdict v = rules_run_lease(f->run, token, a->lease_ms, a->now_ms);
    if (!v.changed)
        return err_set(reterr, ERR_CORRUPT, "sqlite: a stored run is not due when it says");
    int r = run_update(s, f, &v.next, reterr);
    if (r || v.outcome != OUTCOME_OK) return r;
    return tell(a, &v.next, reterr);
}

int sqlite_run_lease(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    struct run_ask *a = op->run;
    a->now_ms = t->at.now_ms;
    op->out.outcome = OUTCOME_OK;
    if (a->lease_ms < 1 || a->lease_ms > DURATION_MS_MAX)
        return err_set(reterr, ERR_INVALID, "a lease is from 1 ms to ten years");
    while (a->rows.count < a->limit && a->rows.bytes < RUN_ROWS_BYTES_MAX) {
        struct found f = { 0 };
        int r = due_read(s, a, &f, reterr);
        if (r == 0) return next_due(s, a, reterr);
        if (r == 1) r = lease_found(s, a, &f, reterr);
        found_fini(&f);
        if (r) return r;
        op->changed = true;
    }
    return 0;
}

/* ---- list ---- */

/* As it stands in `tags`; 0: no run can have it. */
static size_t tag_frame(struct bytes tag, uint8_t out[1 + TAG_BYTES_MAX])
{
    if (tag.len == 0 || tag.len > TAG_BYTES_MAX) return 0;
    out[0] = (uint8_t)tag.len;
    memcpy(out + 1, tag.data, tag.len);
    return 1 + tag.len;
}

static void list_bind(sqlite3_stmt *q, const struct run_ask *a, struct bytes frame)
{
    bind_bytes(q, 1, a->env);
    bind_bytes(q, 2, a->before.text[0] ? run_id_bytes(&a->before) : bytes_str("run_~"));
    bind_bytes(q, 3, a->task);
    bind_bytes(q, 4, a->queue);
    sqlite3_bind_int64(q, 5, a->states ? (int64_t)a->states : -1);
    bind_bytes(q, 6, frame);
}

/* 1: the page is full, and there is more. SQLite finds the bytes of a tag also across two of them, so
 * that is looked at again. */
static int list_row(sqlite3_stmt *q, struct run_ask *a, struct err *reterr)
{
    struct run view;
    int r = run_view(q, &view, reterr);
    if (r) return r;
    if (a->tag.len && !tags_have(view.tags, a->tag)) return 0;
    a->rows.more = a->rows.count == a->limit || a->rows.bytes >= RUN_ROWS_BYTES_MAX;
    return a->rows.more ? 1 : tell(a, &view, reterr);
}

int sqlite_run_list(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    struct run_ask *a = op->run;
    uint8_t frame[1 + TAG_BYTES_MAX];
    size_t frame_len = tag_frame(a->tag, frame);
    a->now_ms = t->at.now_ms;
    op->out.outcome = OUTCOME_OK;
    if (a->tag.len && !frame_len) return 0;
    sqlite3_stmt *q = db_statement(s, SQL_RUN_LIST, reterr);
    if (!q) return reterr->code;
    list_bind(q, a, bytes_of(frame, frame_len));
    int r, end = 0;
    while (!end && (r = db_step(s, q, reterr)) == 1) end = list_row(q, a, reterr);
    sqlite3_reset(q);
    if (end < 0) return end;
    return r < 0 ? r : 0;
}

/* ---- the sweep ---- */

static int expire_by(struct sqlite *s, struct txn *t, enum sql which, struct op *op,
                     struct err *reterr)
{
    size_t left = op->limit > op->count ? op->limit - op->count : 0;
    sqlite3_stmt *q = db_statement(s, which, reterr);
    if (!q) return reterr->code;
    sqlite3_bind_int64(q, 1, t->at.now_ms);
    sqlite3_bind_int64(q, 2, left < INT32_MAX ? (int64_t)left : INT32_MAX);
    int r = db_finish(s, q, reterr);
    if (!r) op->count += (size_t)sqlite3_changes(s->db);
    return r;
}

/* A run goes after its aliases, so that none ever leads nowhere. */
int sqlite_runs_expire(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    int r = expire_by(s, t, SQL_ALIAS_EXPIRE, op, reterr);
    return r ? r : expire_by(s, t, SQL_RUN_EXPIRE, op, reterr);
}
