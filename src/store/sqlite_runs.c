/* sqlite_runs.c - runs in a SQLite file: rows are read, core/run_rules decides, rows are written.
 *
 * Guarantees: L1 and L2 of run_op.h, by the transaction around every op and by unique indexes. What a
 * row is, and which of a line is due, is in sqlite_run_rows.c. */
#include "store/sqlite_runs.h"

#include "store/sqlite_run_rows.h"

/* Neither a claim nor a drainer's lease must lapse between the look at the clock and the commit. */
enum { LATE_MARGIN_MS = 2000 };

static int tell(struct run_ask *a, const struct run *r, struct err *reterr)
{
    if (run_rows_add(&a->rows, r) == 0) return 0;
    return err_set(reterr, ERR_NOMEM, "out of memory answering about a run");
}

/* ---- get, change, reset ---- */

static int find_live_key(struct sqlite *s, const struct run_ask *a, struct run_found *ret_found,
                         struct err *reterr)
{
    struct run_found f = { 0 };
    int r = sqlite_run_find_by_key(s, a->env, a->task, a->key, &f, reterr);
    if (r == 1 && !run_holds_key(f.run, a->now_ms)) {
        run_found_fini(&f);
        return 0;
    }
    if (r == 1) *ret_found = f;
    return r;
}

static int find_asked(struct sqlite *s, const struct run_ask *a, struct run_found *ret_found,
                      struct err *reterr)
{
    if (!a->id.text[0]) return find_live_key(s, a, ret_found, reterr);
    return sqlite_run_find(s, a->env, &a->id, ret_found, reterr);
}

int sqlite_run_get(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    struct run_ask *a = op->run;
    struct run_found f = { 0 };
    a->now_ms = t->at.now_ms;
    int r = find_asked(s, a, &f, reterr);
    op->out.outcome = r == 1 ? OUTCOME_OK : OUTCOME_ABSENT;
    if (r == 1) r = tell(a, f.run, reterr);
    run_found_fini(&f);
    return r;
}

static int change_found(struct sqlite *s, struct op *op, const struct run_found *f,
                        const struct run_change *c, struct err *reterr)
{
    struct run_ask *a = op->run;
    struct run_verdict v;
    struct run_scratch scratch;
    run_scratch_init(&scratch);
    int r = rules_run_change(f->run, c, a->now_ms, &scratch, &v, reterr);
    if (!r && v.changed) r = sqlite_run_update(s, f, &v.next, reterr);
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
    struct run_found f = { 0 };
    a->now_ms = t->at.now_ms;
    op->out.outcome = OUTCOME_ABSENT;
    int r = find_asked(s, a, &f, reterr);
    if (r == 1) r = change_found(s, op, &f, &a->change, reterr);
    run_found_fini(&f);
    return r;
}

int sqlite_run_reset(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    struct run_ask *a = op->run;
    struct run_found f = { 0 };
    a->now_ms = t->at.now_ms;
    op->out.outcome = OUTCOME_ABSENT;
    int r = find_live_key(s, a, &f, reterr);
    if (r == 1)
        r = change_found(s, op, &f, &(struct run_change){ .kind = RUN_RESET_KEY }, reterr);
    run_found_fini(&f);
    return r;
}

/* ---- put ---- */

struct put {
    struct op *op;
    struct run_ask *ask;
    struct run incoming; /* with what was changed in the buffer */
    struct run_found by_id, by_key;
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
        int r = sqlite_run_update(s, &p->by_key, &loser, reterr);
        if (r) return r;
    }
    next->key_held = next->key_held && next->key.len && !taken;
    next->canonical = (struct run_id){ 0 };
    int r = sqlite_run_insert(s, next, reterr);
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
static int put_merge(struct sqlite *s, struct put *p, const struct run_found *canonical,
                     struct err *reterr)
{
    struct run next;
    int r = run_merge(canonical->run, p->ask->changes, canonical->merged, p->ask->now_ms,
                      &p->scratch, &next, reterr);
    if (!r) r = alias_write(s, p, &canonical->run->id, reterr);
    if (!r) r = sqlite_run_update(s, canonical, &next, reterr);
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
    if (!r) r = sqlite_run_update(s, &p->by_id, &next, reterr);
    if (r) return r;
    p->op->changed = true;
    return put_told(p, OUTCOME_OK, &next, reterr);
}

static int put_same(struct sqlite *s, struct put *p, struct err *reterr)
{
    const struct run_found *f = &p->by_id;
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
    if (!r) r = sqlite_run_find(s, in->env, &in->id, &p->by_id, reterr);
    if (r == 0 && in->key_held && in->key.len)
        r = sqlite_run_find_by_key(s, in->env, in->task, in->key, &p->by_key, reterr);
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
    run_found_fini(&p.by_id);
    run_found_fini(&p.by_key);
    run_scratch_fini(&p.scratch);
    return r;
}

/* ---- lease ---- */

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
static int lease_found(struct sqlite *s, struct run_ask *a, const struct run_found *f,
                       struct err *reterr)
{
    const struct token *token = &a->tokens[a->rows.count];
    struct run_verdict v = rules_run_lease(f->run, token, a->lease_ms, a->now_ms);
    if (!v.changed)
        return err_set(reterr, ERR_CORRUPT, "sqlite: a stored run is not due when it says");
    int r = sqlite_run_update(s, f, &v.next, reterr);
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
        struct run_found f = { 0 };
        int r = sqlite_run_find_due(s, a, &f, reterr);
        if (r == 0) return next_due(s, a, reterr);
        if (r == 1) r = lease_found(s, a, &f, reterr);
        run_found_fini(&f);
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
    int r = sqlite_run_row_decode(q, &view, reterr);
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
