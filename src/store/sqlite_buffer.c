/* sqlite_buffer.c - the buffer in a SQLite file: B1 to B6 of run_op.h.
 *
 * Guarantees: an op is decided and carried out inside the transaction of its batch, so it is as
 * durable and as alone as a claim; (env, id) and (env, key) are unique in the schema. What is asked
 * of a buffer costs what it returns, not what waits in it: how many wait is kept beside them.
 * Does not: look at claims, or know what is in an entry. Whose entries a lease hands out is in
 * sqlite_buffer_lease.c. */
#include "store/sqlite_buffer.h"

#include "base/check.h"

#define WRITTEN_KEEP_MS INT64_C(30000)

enum { SWEPT_MIN = 64 }; /* by a settle, at least, so that it also catches up */

/* ---- rows ---- */

enum column {
    COL_ENV,
    COL_ID,
    COL_STATE,
    COL_LEASED_AT,
    COL_LEASE_UNTIL,
    COL_ATTEMPTS,
    COL_ACCEPTED_AT,
    COL_WRITTEN_AT,
    COL_REV,
    COL_RUN,
    COL_CHANGES,
    COL_SEQ,
    COL_TURN,
    COL_NOBODYS,
};

static bool lease_lapsed(sqlite3_stmt *q, int64_t now_ms)
{
    int64_t from_ms = sqlite3_column_int64(q, COL_LEASED_AT);
    int64_t until_ms = sqlite3_column_int64(q, COL_LEASE_UNTIL);
    return until_ms <= now_ms ||
           from_ms - now_ms > until_ms - from_ms; /* the clock went back */
}

/* A lease that is nobody's is a pause. */
static enum entry_state state_now(sqlite3_stmt *q, int64_t now_ms)
{
    enum entry_state state = (enum entry_state)sqlite3_column_int(q, COL_STATE);
    bool nobodys = sqlite3_column_int(q, COL_NOBODYS);
    return state == ENTRY_LEASED && (nobodys || lease_lapsed(q, now_ms)) ? ENTRY_QUEUED : state;
}

static const char *row_nonsense(sqlite3_stmt *q)
{
    int64_t state = sqlite3_column_int64(q, COL_STATE);
    if (state < ENTRY_QUEUED || state > ENTRY_WRITTEN) return "unknown state";
    if (sqlite3_column_bytes(q, COL_ID) != RUN_ID_BYTES) return "id of the wrong length";
    if (sqlite3_column_bytes(q, COL_ENV) > ENV_BYTES_MAX) return "env that is too long";
    int64_t turn = sqlite3_column_int64(q, COL_TURN);
    if (turn != TURN_LAPSED && turn != TURN_USUAL) return "unknown turn";
    if (sqlite3_column_int64(q, COL_REV) < 0) return "negative revision";
    if (sqlite3_column_int64(q, COL_ATTEMPTS) < 0) return "negative number of attempts";
    return NULL;
}

int sqlite_entry_row_decode(sqlite3_stmt *q, int64_t now_ms, struct entry_row *ret_row,
                            struct err *reterr)
{
    const char *nonsense = row_nonsense(q);
    if (nonsense)
        return err_set(reterr, ERR_CORRUPT, "sqlite: a buffered entry has an %s", nonsense);
    *ret_row = (struct entry_row){
        .entry = { .env = column_bytes(q, COL_ENV),
                   .state = state_now(q, now_ms),
                   .rev = (uint64_t)sqlite3_column_int64(q, COL_REV),
                   .attempts = (uint32_t)sqlite3_column_int64(q, COL_ATTEMPTS),
                   .accepted_at_ms = sqlite3_column_int64(q, COL_ACCEPTED_AT),
                   .run = column_bytes(q, COL_RUN),
                   .changes = column_bytes(q, COL_CHANGES) },
        .seq = sqlite3_column_int64(q, COL_SEQ),
        .turn = sqlite3_column_int64(q, COL_TURN),
        .written_at_ms = sqlite3_column_int64(q, COL_WRITTEN_AT),
        .leased = sqlite3_column_int(q, COL_STATE) == ENTRY_LEASED,
    };
    memcpy(ret_row->entry.id.text, column_bytes(q, COL_ID).data, RUN_ID_BYTES);
    return 0;
}

int sqlite_entry_tell(struct buffer_ask *a, const struct entry *e, struct err *reterr)
{
    if (entries_add(&a->entries, e) == 0) return 0;
    return err_set(reterr, ERR_NOMEM, "out of memory reading the buffer");
}

size_t sqlite_entry_bytes(const struct entry *e)
{
    return e->run.len + e->changes.len;
}

/* Leaves the statement on the row: the caller resets it. 1: found, 0: there is none. */
static int row_find(struct sqlite *s, sqlite3_stmt *q, struct bytes env, struct bytes what,
                    int64_t now_ms, struct entry_row *ret_row, struct err *reterr)
{
    bind_bytes(q, 1, env);
    bind_bytes(q, 2, what);
    int r = db_step(s, q, reterr);
    if (r != 1) return r;
    int bad = sqlite_entry_row_decode(q, now_ms, ret_row, reterr);
    return bad ? bad : 1;
}

int sqlite_entry_row_tell(struct sqlite *s, enum sql which, struct buffer_ask *a,
                          struct bytes what, struct entry_row *ret_row, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, which, reterr);
    if (!q) return reterr->code;
    int r = row_find(s, q, a->env, what, a->now_ms, ret_row, reterr);
    if (r == 1) {
        int bad = sqlite_entry_tell(a, &ret_row->entry, reterr);
        if (bad) r = bad;
    }
    sqlite3_reset(q);
    return r;
}

/* Without its bytes: what an op needs to decide. */
static int row_look(struct sqlite *s, const struct buffer_ask *a, struct entry_row *ret_row,
                    struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_ENTRY_BY_ID, reterr);
    if (!q) return reterr->code;
    int r = row_find(s, q, a->env, run_id_bytes(&a->id), a->now_ms, ret_row, reterr);
    sqlite3_reset(q);
    return r;
}

/* ---- how many there are ---- */

void sqlite_buffer_more(struct sqlite *s, int64_t queued, int64_t leased)
{
    s->more_queued += queued;
    s->more_leased += leased;
}

int64_t sqlite_buffer_changed(struct sqlite *s)
{
    return sqlite3_changes(s->db);
}

int sqlite_buffer_count(struct sqlite *s, struct err *reterr)
{
    if (!s->more_queued && !s->more_leased) return 0;
    sqlite3_stmt *q = db_statement(s, SQL_BUFFER_COUNT, reterr);
    if (!q) return reterr->code;
    sqlite3_bind_int64(q, 1, s->more_queued);
    sqlite3_bind_int64(q, 2, s->more_leased);
    return db_finish(s, q, reterr);
}

static uint64_t sum(int64_t a, int64_t b)
{
    return a + b > 0 ? (uint64_t)(a + b) : 0;
}

static int run_stats(struct sqlite *s, struct op *op, struct err *reterr)
{
    struct buffer_ask *a = op->buffer;
    sqlite3_stmt *q = db_statement(s, SQL_BUFFER_STATS, reterr);
    if (!q) return reterr->code;
    sqlite3_bind_int64(q, 1, a->now_ms);
    int r = db_step(s, q, reterr);
    if (r == 1) {
        int64_t lapsed = sqlite3_column_int64(q, 2);
        int64_t age_ms = a->now_ms - sqlite3_column_int64(q, 3);
        bool any = sqlite3_column_type(q, 3) != SQLITE_NULL;
        a->queued = sum(sqlite3_column_int64(q, 0), s->more_queued + lapsed);
        a->leased = sum(sqlite3_column_int64(q, 1), s->more_leased - lapsed);
        a->oldest_ms = any && age_ms > 0 ? age_ms : 0;
    }
    sqlite3_reset(q);
    return r < 0 ? r : 0;
}

/* ---- accept ---- */

static int insert(struct sqlite *s, const struct buffer_ask *a, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_ENTRY_ADD, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, a->env);
    bind_bytes(q, 2, run_id_bytes(&a->id));
    if (a->key_frame.len)
        bind_bytes(q, 3, a->key_frame);
    else
        sqlite3_bind_null(q, 3);
    sqlite3_bind_int64(q, 4, a->now_ms);
    bind_bytes(q, 5, a->run);
    return db_finish(s, q, reterr);
}

/* Somebody else's, if it came with other bytes. */
static void met_by_id(struct op *op)
{
    struct buffer_ask *a = op->buffer;
    if (bytes_eq(a->entries.rows[0]->run, a->run))
        entries_clear(&a->entries);
    else
        op->out.outcome = OUTCOME_CACHED;
}

/* The id first: whoever repeats an ACCEPT is told that it is there, whatever became of its key. */
static int run_accept(struct sqlite *s, struct op *op, struct err *reterr)
{
    struct buffer_ask *a = op->buffer;
    CHECK(a->id.text[0] && a->key_frame.len <= RUN_KEY_FRAME_BYTES_MAX);
    struct entry_row row;
    int r = sqlite_entry_row_tell(s, SQL_ENTRY_BY_ID, a, run_id_bytes(&a->id), &row, reterr);
    if (r == 1) met_by_id(op);
    if (r) return r < 0 ? r : 0;
    if (a->key_frame.len)
        r = sqlite_entry_row_tell(s, SQL_ENTRY_BY_KEY, a, a->key_frame, &row, reterr);
    if (r == 1) op->out.outcome = OUTCOME_CACHED;
    if (r) return r < 0 ? r : 0;
    r = insert(s, a, reterr);
    if (!r) sqlite_buffer_more(s, 1, 0);
    op->changed = !r;
    return r;
}

/* ---- get, append, list ---- */

static bool kept(const struct entry_row *row, int64_t now_ms)
{
    return row->entry.state != ENTRY_WRITTEN || row->written_at_ms + WRITTEN_KEEP_MS > now_ms;
}

static int run_get(struct sqlite *s, struct op *op, struct err *reterr)
{
    struct buffer_ask *a = op->buffer;
    struct entry_row row;
    int r =
        a->id.text[0]
            ? sqlite_entry_row_tell(s, SQL_ENTRY_BY_ID, a, run_id_bytes(&a->id), &row, reterr)
            : sqlite_entry_row_tell(s, SQL_ENTRY_BY_KEY, a, a->key_frame, &row, reterr);
    if (r < 0) return r;
    if (r == 1 && kept(&row, a->now_ms)) return 0;
    entries_clear(&a->entries);
    op->out.outcome = OUTCOME_ABSENT;
    return 0;
}

static enum outcome append_outcome(const struct entry_row *row, const struct buffer_ask *a)
{
    if (row->entry.state == ENTRY_WRITTEN) return OUTCOME_ABSENT;
    if (row->entry.state == ENTRY_LEASED) return OUTCOME_IN_PROGRESS;
    if (row->entry.rev != a->rev) return OUTCOME_CONFLICT;
    return OUTCOME_OK;
}

/* A change to an entry whose lease has lapsed ends that lease: a drainer that is late has written
 * the run without it. */
static int run_append(struct sqlite *s, struct op *op, struct err *reterr)
{
    const struct buffer_ask *a = op->buffer;
    struct entry_row row;
    int r = row_look(s, a, &row, reterr);
    if (r < 0) return r;
    op->out.outcome = r ? append_outcome(&row, a) : OUTCOME_ABSENT;
    if (op->out.outcome != OUTCOME_OK) return 0;
    sqlite3_stmt *q = db_statement(s, SQL_ENTRY_APPEND, reterr);
    if (!q) return reterr->code;
    sqlite3_bind_int64(q, 1, row.seq);
    bind_bytes(q, 2, a->change);
    sqlite3_bind_int(q, 3, a->frees_key);
    r = db_finish(s, q, reterr);
    if (!r && row.leased) sqlite_buffer_more(s, 1, -1);
    op->changed = !r;
    return r;
}

int64_t sqlite_buffer_limit(size_t limit)
{
    return limit < INT32_MAX ? (int64_t)limit : INT32_MAX;
}

/* Sets `more` if it stops before the last of them, because that is enough. */
static int list_rows(struct sqlite *s, sqlite3_stmt *q, struct buffer_ask *a,
                     struct err *reterr)
{
    struct entry_row row;
    size_t bytes = 0;
    int r;
    while ((r = db_step(s, q, reterr)) == 1) {
        a->entries.more = a->entries.count == a->limit || bytes >= ANSWER_BYTES_MAX;
        if (a->entries.more) return 0;
        r = sqlite_entry_row_decode(q, a->now_ms, &row, reterr);
        if (!r) r = sqlite_entry_tell(a, &row.entry, reterr);
        if (r) return r;
        bytes += sqlite_entry_bytes(&row.entry);
        a->place = row.seq;
    }
    return r;
}

/* Of a spool: in the order in which they came. */
static int list_all(struct sqlite *s, struct buffer_ask *a, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_SPOOL_LIST, reterr);
    if (!q) return reterr->code;
    sqlite3_bind_int64(q, 1, a->behind);
    sqlite3_bind_int64(q, 2, sqlite_buffer_limit(a->limit) + 1);
    int r = list_rows(s, q, a, reterr);
    sqlite3_reset(q);
    return r;
}

static int run_list(struct sqlite *s, struct op *op, struct err *reterr)
{
    struct buffer_ask *a = op->buffer;
    static const struct run_id above_all = { "~" };
    if (!a->env.len) return list_all(s, a, reterr);
    sqlite3_stmt *q = db_statement(s, SQL_ENTRY_LIST, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, a->env);
    bind_bytes(q, 2, run_id_bytes(a->before.text[0] ? &a->before : &above_all));
    sqlite3_bind_int64(q, 3, sqlite_buffer_limit(a->limit) + 1);
    int r = list_rows(s, q, a, reterr);
    sqlite3_reset(q);
    return r;
}

/* ---- settle ---- */

int sqlite_buffer_sweep(struct sqlite *s, int64_t now_ms, size_t limit, size_t *ret_count,
                        struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_BUFFER_SWEEP, reterr);
    if (!q) return reterr->code;
    sqlite3_bind_int64(q, 1, now_ms - WRITTEN_KEEP_MS);
    sqlite3_bind_int64(q, 2, sqlite_buffer_limit(limit));
    int r = db_finish(s, q, reterr);
    if (!r) *ret_count = (size_t)sqlite_buffer_changed(s);
    return r;
}

static int settle_one(struct sqlite *s, struct buffer_ask *a, const struct settle *one,
                      struct err *reterr)
{
    bool written = one->how == SETTLE_WRITTEN;
    sqlite3_stmt *q = db_statement(s, written ? SQL_SETTLE_WRITTEN : SQL_SETTLE_BACK, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, one->env);
    bind_bytes(q, 2, run_id_bytes(&one->id));
    bind_bytes(q, 3, bytes_of(a->token.bytes, sizeof a->token.bytes));
    sqlite3_bind_int64(q, 4, written ? a->now_ms : one->how == SETTLE_FAILED);
    int r = db_finish(s, q, reterr);
    if (r) return r;
    sqlite_buffer_more(s, written ? 0 : sqlite_buffer_changed(s), -sqlite_buffer_changed(s));
    a->settled += (size_t)sqlite_buffer_changed(s);
    return 0;
}

static int64_t pause_of(const struct buffer_ask *a, const struct settle *one)
{
    if (one->how == SETTLE_BACK) return a->back_pause_ms;
    return one->how == SETTLE_FAILED ? a->failed_pause_ms : 0;
}

/* As many are leased as before: one of them by nobody. */
static int pause_one(struct sqlite *s, struct buffer_ask *a, const struct settle *one,
                     struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_SETTLE_PAUSE, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, one->env);
    bind_bytes(q, 2, run_id_bytes(&one->id));
    bind_bytes(q, 3, bytes_of(a->token.bytes, sizeof a->token.bytes));
    sqlite3_bind_int64(q, 4, one->how == SETTLE_FAILED);
    sqlite3_bind_int64(q, 5, a->now_ms);
    sqlite3_bind_int64(q, 6, a->now_ms + pause_of(a, one));
    int r = db_finish(s, q, reterr);
    if (!r) a->settled += (size_t)sqlite_buffer_changed(s);
    return r;
}

static int drop_one(struct sqlite *s, struct buffer_ask *a, const struct settle *one,
                    struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_SPOOL_DROP, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, one->env);
    bind_bytes(q, 2, run_id_bytes(&one->id));
    int r = db_finish(s, q, reterr);
    if (r) return r;
    sqlite_buffer_more(s, -sqlite_buffer_changed(s), 0);
    a->settled += (size_t)sqlite_buffer_changed(s);
    return 0;
}

static int run_settle(struct sqlite *s, struct op *op, struct err *reterr)
{
    struct buffer_ask *a = op->buffer;
    int r = 0;
    for (size_t i = 0; !r && i < a->settle_count; i++) {
        const struct settle *one = &a->settles[i];
        if (one->how == SETTLE_DROP)
            r = drop_one(s, a, one, reterr);
        else if (pause_of(a, one) > 0)
            r = pause_one(s, a, one, reterr);
        else
            r = settle_one(s, a, one, reterr);
    }
    size_t swept = 0;
    size_t limit = 2 * a->settle_count + SWEPT_MIN;
    if (!r) r = sqlite_buffer_sweep(s, a->now_ms, limit, &swept, reterr);
    op->changed = !r && (a->settled || swept);
    return r;
}

/* ---- the verbs ---- */

static int (*const run_of_verb[VERBS])(struct sqlite *, struct op *, struct err *) = {
    [VERB_ACCEPT] = run_accept,      [VERB_ENTRY_GET] = run_get,
    [VERB_APPEND] = run_append,      [VERB_DRAIN_LEASE] = sqlite_buffer_lease,
    [VERB_SETTLE] = run_settle,      [VERB_ENTRY_LIST] = run_list,
    [VERB_BUFFER_STATS] = run_stats,
};

int sqlite_buffer_run(struct sqlite *s, struct op *op, int64_t now_ms, struct err *reterr)
{
    CHECK(op->buffer && run_of_verb[op->verb]);
    op->buffer->now_ms = now_ms;
    op->out.outcome = OUTCOME_OK;
    return run_of_verb[op->verb](s, op, reterr);
}
