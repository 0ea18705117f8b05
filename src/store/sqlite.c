/* sqlite.c - claims and runs in one SQLite file that several processes may share: the embedded
 * ledger.
 *
 * Guarantees: a batch is one transaction, decided by the rules and durable when exec() returns
 * (as far as `sync` promises); time is read once per batch, after the lock is held; the fence
 * floor is written in the transaction that drops the record; an op that poisons a batch fails
 * alone; a row that makes no sense is an error of the op that met it. Readers never wait for
 * writers. A waiter in another process is told after each commit, without polling.
 * Does not: start threads, or wait longer than busy_ms for another process.
 *
 * SQLite under the connection is in sqlite_db.c, runs are in sqlite_runs.c; here is what the store
 * does with them. */
#include "base/check.h"
#include "store/sqlite_db.h"
#include "store/sqlite_runs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

/* A flush takes the same time for one change and for many: a tenth of a millisecond, or several. */
enum { GATHER_OPS = 1024, GATHER_PART = 2 };

static struct sqlite *sqlite_of(struct store *s)
{
    return container_of(s, struct sqlite, base);
}

static const char *wal_path(const struct sqlite *s)
{
    return sqlite3_filename_wal(db_path(s));
}

/* ---- rows ---- */

/* A record as read, with its own copy of what SQLite only lends. */
struct row {
    struct record record;
    int64_t id;
    uint8_t fingerprint[FINGERPRINT_BYTES_MAX];
};

/* Of SQL_RECORD and what follows it. */
enum column {
    COL_STATE,
    COL_TOKEN,
    COL_FENCE,
    COL_CLAIMED_AT,
    COL_LEASE,
    COL_LEASE_UNTIL,
    COL_RETAIN,
    COL_DONE_AT,
    COL_FINGERPRINT,
    COL_VALUE, /* SQL_SCAN: its length */
    COL_ID,
    COL_SCOPE = COL_ID, /* SQL_SCAN */
    COL_NAME,
};

static int row_decode(sqlite3_stmt *q, struct row *ret_row, struct err *reterr)
{
    struct record r = {
        .state = (enum record_state)sqlite3_column_int(q, COL_STATE),
        .fence = (uint64_t)sqlite3_column_int64(q, COL_FENCE),
        .claimed_at_ms = sqlite3_column_int64(q, COL_CLAIMED_AT),
        .lease_ms = sqlite3_column_int64(q, COL_LEASE),
        .lease_until_ms = sqlite3_column_int64(q, COL_LEASE_UNTIL),
        .retain_ms = sqlite3_column_int64(q, COL_RETAIN),
        .done_at_ms = sqlite3_column_int64(q, COL_DONE_AT),
    };
    struct bytes token = column_bytes(q, COL_TOKEN);
    struct bytes fingerprint = column_bytes(q, COL_FINGERPRINT);
    const char *nonsense = record_nonsense(&r);
    if (token.len != sizeof r.token.bytes) nonsense = "token of the wrong length";
    if (fingerprint.len > FINGERPRINT_BYTES_MAX) nonsense = "fingerprint too long";
    if (nonsense)
        return err_set(reterr, ERR_CORRUPT, "sqlite: a stored claim has an %s", nonsense);
    memcpy(r.token.bytes, token.data, token.len);
    ret_row->record = r;
    if (fingerprint.len) memcpy(ret_row->fingerprint, fingerprint.data, fingerprint.len);
    ret_row->record.fingerprint = bytes_of(ret_row->fingerprint, fingerprint.len);
    return 0;
}

static int row_decode_value(sqlite3_stmt *q, struct row *row, struct err *reterr)
{
    if (sqlite3_column_type(q, COL_VALUE) == SQLITE_NULL) return 0;
    if (row->record.state != RECORD_DONE)
        return err_set(reterr, ERR_CORRUPT, "sqlite: a stored claim has an answer too early");
    row->record.value = blob_new(column_bytes(q, COL_VALUE));
    if (row->record.value) return 0;
    return err_set(reterr, ERR_NOMEM, "out of memory reading a stored answer");
}

/* 1: found, 0: there is none, negative: error. The caller drops the reference to the value. */
static int row_read(struct sqlite *s, const struct key *key, struct row *ret_row,
                    struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_READ, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, key->scope);
    bind_bytes(q, 2, key->name);
    int r = db_step(s, q, reterr);
    if (r == 1) {
        ret_row->id = sqlite3_column_int64(q, COL_ID);
        int bad = row_decode(q, ret_row, reterr);
        if (!bad) bad = row_decode_value(q, ret_row, reterr);
        if (bad) r = bad;
    }
    sqlite3_reset(q);
    return r;
}

/* Parameters 1-11 of SQL_INSERT and SQL_UPDATE. */
static void row_bind(sqlite3_stmt *q, const struct record *r)
{
    CHECK(r->fence >= 1 && r->fence <= (uint64_t)FENCE_MAX);
    CHECK(r->lease_ms >= 0 && r->retain_ms >= 0);
    CHECK(r->fingerprint.len <= FINGERPRINT_BYTES_MAX);
    sqlite3_bind_int(q, 1, (int)r->state);
    bind_bytes(q, 2, bytes_of(r->token.bytes, sizeof r->token.bytes));
    sqlite3_bind_int64(q, 3, (int64_t)r->fence);
    sqlite3_bind_int64(q, 4, r->claimed_at_ms);
    sqlite3_bind_int64(q, 5, r->lease_ms);
    sqlite3_bind_int64(q, 6, r->lease_until_ms);
    sqlite3_bind_int64(q, 7, r->retain_ms);
    sqlite3_bind_int64(q, 8, r->done_at_ms);
    bind_bytes(q, 9, r->fingerprint);
    if (r->value)
        bind_bytes(q, 10, blob_bytes(r->value));
    else
        sqlite3_bind_null(q, 10);
    sqlite3_bind_int64(q, 11, record_gone_at_ms(r));
}

static int row_insert(struct sqlite *s, const struct key *key, const struct record *next,
                      struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_INSERT, reterr);
    if (!q) return reterr->code;
    row_bind(q, next);
    bind_bytes(q, 12, key->scope);
    bind_bytes(q, 13, key->name);
    return db_finish(s, q, reterr);
}

static int row_update(struct sqlite *s, int64_t id, const struct record *next,
                      struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_UPDATE, reterr);
    if (!q) return reterr->code;
    row_bind(q, next);
    sqlite3_bind_int64(q, 12, id);
    return db_finish(s, q, reterr);
}

static int row_delete(struct sqlite *s, int64_t id, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_DELETE, reterr);
    if (!q) return reterr->code;
    sqlite3_bind_int64(q, 1, id);
    return db_finish(s, q, reterr);
}

/* ---- one op inside a transaction ---- */

static void raise_floor(struct txn *t, uint64_t fence)
{
    if (fence > t->at.fence_floor) t->at.fence_floor = fence;
}

static int carry_out(struct sqlite *s, struct txn *t, const struct op *op,
                     const struct row *row, const struct verdict *v, struct err *reterr)
{
    if (v->change == CHANGE_NONE) return 0;
    if (v->change == CHANGE_PUT && !row) return row_insert(s, &op->key, &v->next, reterr);
    if (v->change == CHANGE_PUT) return row_update(s, row->id, &v->next, reterr);
    raise_floor(t, row->record.fence);
    return row_delete(s, row->id, reterr);
}

static int run_keyed(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    struct row row;
    int found = row_read(s, &op->key, &row, reterr);
    if (found < 0) return found;
    struct verdict v = op_decide(op, found ? &row.record : NULL, t->at);
    int r = carry_out(s, t, op, found ? &row : NULL, &v, reterr);
    if (found) blob_unref(row.record.value);
    op->changed = v.change != CHANGE_NONE;
    return r;
}

static int64_t limit_of(const struct op *op)
{
    return op->limit < INT32_MAX ? (int64_t)op->limit : INT32_MAX;
}

/* A fence that makes no sense does not keep the row from being swept. */
static int run_expire(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_EXPIRE, reterr);
    if (!q) return reterr->code;
    sqlite3_bind_int64(q, 1, t->at.now_ms);
    sqlite3_bind_int64(q, 2, limit_of(op));
    int r;
    while ((r = db_step(s, q, reterr)) == 1) {
        int64_t fence = sqlite3_column_int64(q, 0);
        if (fence > 0 && fence <= FENCE_MAX) raise_floor(t, (uint64_t)fence);
        op->count++;
    }
    sqlite3_reset(q);
    size_t entries = 0;
    if (!r) r = sqlite_runs_expire(s, t, op, reterr);
    if (!r) r = sqlite_buffer_sweep(s, t->at.now_ms, op->limit - op->count, &entries, reterr);
    op->count += entries;
    op->changed = op->count > 0;
    op->out.outcome = OUTCOME_OK;
    return r;
}

static int scan_row(sqlite3_stmt *q, const struct txn *t, struct op *op, struct err *reterr)
{
    struct row row;
    struct key key = { column_bytes(q, COL_SCOPE), column_bytes(q, COL_NAME) };
    int r = row_decode(q, &row, reterr);
    if (r) return r;
    struct err bad_key;
    if (key_check(&key, &bad_key))
        return err_set(reterr, ERR_CORRUPT, "sqlite: a stored key is bad: %.120s",
                       bad_key.text);
    r = scan_add(&op->scan, &key, &row.record, t->at.now_ms);
    if (r) return err_set(reterr, r, "out of memory while listing");
    struct scan_row *added = &op->scan.rows[op->scan.count - 1];
    added->value_kept = sqlite3_column_type(q, COL_VALUE) != SQLITE_NULL;
    added->value_bytes = (size_t)sqlite3_column_int64(q, COL_VALUE);
    return 0;
}

static int run_scan(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, op->all_scopes ? SQL_SCAN_ALL : SQL_SCAN, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, op->key.scope);
    bind_bytes(q, 2, op->key.name);
    sqlite3_bind_int64(q, 3, t->at.now_ms);
    sqlite3_bind_int64(q, 4, limit_of(op) + 1);
    int r;
    while ((r = db_step(s, q, reterr)) == 1 && op->scan.count < op->limit) {
        int bad = scan_row(q, t, op, reterr);
        if (bad) r = bad;
        if (bad) break;
    }
    sqlite3_reset(q);
    op->scan.more = r == 1;
    op->out.outcome = OUTCOME_OK;
    return r < 0 ? r : 0;
}

static int run_stats(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_STATS, reterr);
    if (!q) return reterr->code;
    sqlite3_bind_int64(q, 1, t->at.now_ms);
    int r = db_step(s, q, reterr);
    if (r == 1)
        op->stats = (struct store_stats){ .pending = (uint64_t)sqlite3_column_int64(q, 0),
                                          .lapsed = (uint64_t)sqlite3_column_int64(q, 1),
                                          .done = (uint64_t)sqlite3_column_int64(q, 2),
                                          .gone = (uint64_t)sqlite3_column_int64(q, 3),
                                          .bytes = (uint64_t)sqlite3_column_int64(q, 4),
                                          .fence_floor = t->at.fence_floor,
                                          .now_ms = t->at.now_ms };
    sqlite3_reset(q);
    op->out.outcome = OUTCOME_OK;
    return r < 0 ? r : 0;
}

/* The transaction has read the fence floor: that was the ping. */
static int run_ping(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    (void)s, (void)t, (void)reterr;
    op->out.outcome = OUTCOME_OK;
    return 0;
}

/* Whoever has lost the claim accepts nothing; who has not publishes it in the same transaction. */
static int run_claimed_accept(struct sqlite *s, struct txn *t, struct op *op,
                              struct err *reterr)
{
    struct row row;
    int found = row_read(s, &op->key, &row, reterr);
    if (found < 0) return found;
    struct verdict v = op_decide(op, found ? &row.record : NULL, t->at);
    uint64_t version = op->out.version;
    int r = 0;
    if (v.outcome == OUTCOME_OK) {
        r = sqlite_buffer_run(s, op, t->at.now_ms, reterr);
        bool accepted = !r && op->out.outcome == OUTCOME_OK;
        if (accepted) r = carry_out(s, t, op, found ? &row : NULL, &v, reterr);
        op->changed |= accepted && v.change != CHANGE_NONE;
        op->out.version = version;
    }
    if (found) blob_unref(row.record.value);
    return r;
}

/* Where the claim of an ACCEPT is elsewhere, the key of the entry makes it the only one. */
static int run_buffer(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    bool claimed = op->verb == VERB_ACCEPT && op->buffer->claim_here && !op->buffer->unclaimed;
    if (claimed) return run_claimed_accept(s, t, op, reterr);
    return sqlite_buffer_run(s, op, t->at.now_ms, reterr);
}

static run_verb *const run_unkeyed[VERBS] = {
    [VERB_EXPIRE] = run_expire,
    [VERB_SCAN] = run_scan,
    [VERB_STATS] = run_stats,
    [VERB_PING] = run_ping,
    [VERB_RUN_PUT] = sqlite_run_put,
    [VERB_RUN_GET] = sqlite_run_get,
    [VERB_RUN_CHANGE] = sqlite_run_change,
    [VERB_RUN_RESET] = sqlite_run_reset,
    [VERB_RUN_LEASE] = sqlite_run_lease,
    [VERB_RUN_LIST] = sqlite_run_list,
};

static void op_refuse(struct op *op, const struct err *err)
{
    op_clear_answer(op);
    op->err = *err;
}

/* What an op has changed before it failed must not be committed with the rest of its batch (S4): the
 * transaction counts as failed, and the others are carried out again. */
static void run_op(struct sqlite *s, struct txn *t, struct op *op, struct err *reterr)
{
    op_clear_answer(op);
    op->epoch = s->base.epoch;
    run_verb *run = verb_info[op->verb].keyed ? run_keyed : run_unkeyed[op->verb];
    if (verb_is_buffer(op->verb)) run = run_buffer;
    CHECK(run);
    int before = sqlite3_total_changes(s->db);
    if (run(s, t, op, reterr) == 0) return;
    if (!s->failed && sqlite3_total_changes(s->db) != before) s->failed = SQLITE_ABORT;
    op_refuse(op, reterr);
}

/* ---- transactions ---- */

static int read_moment(struct sqlite *s, struct txn *ret_txn, struct err *reterr)
{
    int64_t floor = 0;
    int r = db_number(s, SQL_FLOOR, &floor, reterr); /* a reader's snapshot begins here */
    if (!r) r = db_check_file(s, reterr);
    if (r) return r;
    if (floor < 0 || floor > FENCE_MAX)
        return err_set(reterr, ERR_CORRUPT, "sqlite: the fence floor makes no sense");
    *ret_txn = (struct txn){
        .at = { .now_ms = clock_now_ms(&s->wall), .fence_floor = (uint64_t)floor },
        .stored_floor = (uint64_t)floor,
    };
    return 0;
}

static int txn_begin(struct sqlite *s, bool writes, struct txn *ret_txn, struct err *reterr)
{
    s->failed = 0;
    s->more_queued = s->more_leased = 0;
    if (!db_rollback(s))
        return err_set(reterr, ERR_UNAVAILABLE, "sqlite: a failed transaction cannot be ended");
    int r = db_run(s, writes ? SQL_BEGIN_WRITE : SQL_BEGIN_READ, reterr);
    if (r) return r;
    r = read_moment(s, ret_txn, reterr);
    if (r) db_rollback(s);
    return r;
}

static int keep_floor(struct sqlite *s, const struct txn *t, struct err *reterr)
{
    if (t->at.fence_floor == t->stored_floor) return 0;
    sqlite3_stmt *q = db_statement(s, SQL_RAISE, reterr);
    if (!q) return reterr->code;
    sqlite3_bind_int64(q, 1, (int64_t)t->at.fence_floor);
    return db_finish(s, q, reterr);
}

static bool any_writes(struct op **ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (verb_info[ops[i]->verb].writes) return true;
    return false;
}

static bool any_changed(struct op **ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ops[i]->changed) return true;
    return false;
}

static void refuse_all(struct op **ops, size_t count, const struct err *err)
{
    for (size_t i = 0; i < count; i++) op_refuse(ops[i], err);
}

/* The frames of the commit may be on disk although their sync failed; a recovery would find
 * them. What read along with it in the transaction gets no answer, but changed nothing. */
static void refuse_commit(struct op **ops, size_t count, const struct err *cause)
{
    struct err ambiguous;
    err_set(&ambiguous, ERR_AMBIGUOUS,
            "the commit failed, the change may have been made: %.120s", cause->text);
    for (size_t i = 0; i < count; i++) op_refuse(ops[i], ops[i]->changed ? &ambiguous : cause);
}

/* Tells waiters in other processes, who watch the WAL being closed. SQLite's own writes to it
 * would not do: they come before the commit can be seen. Touching the database would, but a
 * dirty inode costs a fifth of the commits; and opening it would drop SQLite's locks at the
 * close. */
static void announce(struct sqlite *s)
{
    if (!(s->base.caps & CAP_SHARED)) return;
    int fd = open(wal_path(s), O_RDONLY | O_CLOEXEC);
    if (fd >= 0) close(fd);
}

/* A process may be stopped in the middle of a batch, for longer than the claim or the lease lasts that
 * one of the ops was made under. */
static int be_in_time(struct sqlite *s, struct op **ops, size_t count, struct err *reterr)
{
    for (size_t i = 0; i < count; i++) {
        if (!ops[i]->changed || !sqlite_run_is_late(s, ops[i])) continue;
        s->failed = SQLITE_ABORT;
        return err_set(reterr, ERR_UNAVAILABLE,
                       "sqlite: it took too long; nothing was changed");
    }
    return 0;
}

/* False: SQLite failed in the middle, nothing was changed, one of the ops may be to blame. */
static bool exec_together(struct sqlite *s, struct op **ops, size_t count)
{
    struct txn t;
    struct err err;
    if (txn_begin(s, any_writes(ops, count), &t, &err)) {
        refuse_all(ops, count, &err);
        return true;
    }
    for (size_t i = 0; i < count && !s->failed; i++) run_op(s, &t, ops[i], &err);
    if (!s->failed) keep_floor(s, &t, &err);
    if (!s->failed) sqlite_buffer_count(s, &err);
    if (!s->failed) be_in_time(s, ops, count, &err);
    if (s->failed) {
        db_rollback(s);
        refuse_all(ops, count, &err);
        return false;
    }
    if (db_run(s, SQL_COMMIT, &err)) {
        db_rollback(s);
        refuse_commit(ops, count, &err);
        return true;
    }
    if (any_changed(ops, count)) announce(s);
    return true;
}

static void exec_batch(struct sqlite *s, struct op **ops, size_t count)
{
    if (exec_together(s, ops, count) || count == 1) return;
    for (size_t i = 0; i < count; i++) exec_together(s, ops + i, 1);
}

/* Markers may be in another file, and are no part of anybody's transaction. */
static void exec_markers(struct sqlite *s, struct op *op)
{
    struct err err;
    op_clear_answer(op);
    op->epoch = s->base.epoch;
    op->out.outcome = OUTCOME_OK;
    if (sqlite_markers_sweep(s, op, &err)) op_refuse(op, &err);
}

static void sqlite_exec(struct store *base, struct op **ops, size_t count)
{
    struct sqlite *s = sqlite_of(base);
    for (size_t i = 0, len; i < count; i += len ? len : 1) {
        for (len = 0; i + len < count && ops[i + len]->verb != VERB_MARKERS_SWEEP;) len++;
        if (len)
            exec_batch(s, ops + i, len);
        else
            exec_markers(s, ops[i]);
    }
}

/* ---- writes of other processes ---- */

/* The WAL lives as long as anybody, and so we, have the database open. It is closed by
 * announce() and by the end of a process, which may have been killed between its commit and
 * announce(), or may be a program that announces nothing. */
static int notify_arm(struct sqlite *s)
{
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0) return -1;
    if (inotify_add_watch(fd, wal_path(s), IN_CLOSE) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int sqlite_foreign_fd(struct store *base)
{
    struct sqlite *s = sqlite_of(base);
    if (s->notify_tried) return s->notify_fd;
    s->notify_tried = true;
    s->notify_fd = notify_arm(s);
    announce(s); /* makes it readable now: somebody may have written before it was armed */
    return s->notify_fd;
}

static void notify_drain(int fd)
{
    char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    while (read(fd, events, sizeof events) > 0) continue;
}

/* data_version changes when another connection has committed, never by our own. Unreadable
 * counts as written: a wake-up too many is allowed, a lost one is not. */
static bool sqlite_foreign_wrote(struct store *base)
{
    struct sqlite *s = sqlite_of(base);
    if (s->notify_fd >= 0) notify_drain(s->notify_fd);
    struct err ignored;
    int64_t version = 0;
    if (db_number(s, SQL_DATA_VERSION, &version, &ignored)) return true;
    bool wrote = version != s->data_version;
    s->data_version = version;
    return wrote;
}

/* ---- life ---- */

static void sqlite_close_store(struct store *base)
{
    struct sqlite *s = sqlite_of(base);
    if (s->notify_fd >= 0) close(s->notify_fd);
    db_close(s);
    free(s);
}

static int sqlite_open_store(const char *rest, const struct store_env *env,
                             struct store **ret_store, struct err *reterr)
{
    struct sqlite *s = calloc(1, sizeof *s);
    if (!s) return err_set(reterr, ERR_NOMEM, "out of memory opening sqlite:");
    s->base =
        (struct store){ .class = &sqlite_class, .caps = sqlite_class.caps, .loop = env->loop };
    s->wall = env->wall;
    s->monotonic = env->monotonic;
    s->notify_fd = -1;
    int r = sqlite_options_parse(rest, &s->options, reterr);
    if (s->options.exclusive) s->base.caps &= ~(unsigned)CAP_SHARED;
    s->base.gather = (struct gather){ .ops = GATHER_OPS, .part = GATHER_PART };
    if (env->markers) {
        s->base.caps = MARKERS_CAPS;
        if (!r && !s->options.markers) s->options.markers = s->options.path;
    } else if (!r) {
        r = db_open(s, env->rng, reterr);
    }
    if (r) {
        sqlite_close_store(&s->base);
        return r;
    }
    *ret_store = &s->base;
    return 0;
}

const struct store_class sqlite_class = {
    .scheme = "sqlite",
    .usage = "sqlite:PATH[?sync=full|normal|off][&busy_ms=N][&exclusive=1][&markers=PATH]",
    .caps = CAP_CLAIMS | CAP_DURABLE | CAP_SHARED | CAP_NOTIFY | CAP_BLOCKS | CAP_RUNS |
            CAP_BUFFER | CAP_MARKERS,
    .open = sqlite_open_store,
    .close = sqlite_close_store,
    .exec = sqlite_exec,
    .migrate_markers = sqlite_migrate_markers,
    .foreign_fd = sqlite_foreign_fd,
    .foreign_wrote = sqlite_foreign_wrote,
};
