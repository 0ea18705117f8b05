/* postgres.c - claims in a PostgreSQL database: the ledger of a fleet. Runs are in postgres_runs.c.
 *
 * Guarantees: each op is decided by the rules on what was read, by the server's clock, and
 * carried out only if the row is still what was read: compare-and-set, never a lock held while
 * the server waits for us, so a stopped client blocks nobody. A batch is one read and, if
 * anything changed, one transaction, durable when exec() returns; what changes nothing writes,
 * locks and flushes nothing. A row that lost the race is read and decided again; every such
 * round means that somebody else got ahead. An op that poisons a batch fails alone. The fence of
 * a key outlives the key: a dropped row keeps it, the sweep moves it to the floor.
 * Does not: keep anything in the session (a pooler may share it), or take longer than timeout_ms
 * for a batch that changes up to CHUNK_BYTES.
 *
 *   read --> decide --nothing changed--> answer
 *     ^         '--changed--> write --written--> answer
 *     '---- somebody else was faster ---'  '--no answer--> AMBIGUOUS: asked again with the token
 *
 * The first round is tried without the read: a claim of a key that is probably new, a publish of
 * what this process claimed, by the server's clock as reckoned from the last read. The write
 * compares all of it with what is there, the clock included; what does not hold is read.
 *
 * The connection is in postgres_db.c, rows in postgres_rows.c, the schema in postgres/. */
#include "base/check.h"
#include "store/postgres_guess.h"
#include "store/postgres_memo.h"
#include "store/postgres_runs.h"

#include <stdlib.h>

enum {
    GRACE_MS =
        60000, /* how long a row is kept after it is gone: much longer than DECISION_MS */
    GATHER_OPS = 128,       /* beyond that, what a commit costs by itself is little per row */
    GATHER_US = 100,        /* a quarter of what a small commit takes */
    DROPPED_PER_CLAIM = 20, /* the sweep removes so many dropped ones beside each claim */
};

struct postgres {
    struct store base;
    struct pgdb db;
    struct clock wall;
    bool wall_rules;
    struct moment at;     /* of the decisions that are being made */
    int64_t epoch, floor; /* as last read */
    uint64_t used_fence;  /* the highest one that was dropped here */
    bool guessing;        /* in the first round: nothing was read */
    struct guess guess;   /* about claims of new keys */
    struct memos memos;
    size_t slot_count;
    struct slot slots[BATCH_MAX];
    struct slot *slot_of[BATCH_MAX]; /* by op */
    struct rows keys, writes;
    size_t new_rows; /* the first of `writes` */
    struct pgruns runs;
};

static struct postgres *postgres_of(struct store *s)
{
    return container_of(s, struct postgres, base);
}

/* ---- slots ---- */

struct numbered {
    struct op *op;
    size_t at;
};

static int numbered_cmp(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    int order = bytes_cmp(x->op->frame, y->op->frame);
    return order ? order : (x->at < y->at ? -1 : 1);
}

static struct slot slot_for(const struct op *op)
{
    return (struct slot){ .key = op->key, .frame = op->frame, .first = op->verb };
}

/* One slot per key, in the order of the keys: everybody takes row locks in the same order. */
static void slots_make(struct postgres *s, struct op **ops, size_t count)
{
    struct numbered sorted[BATCH_MAX];
    CHECK(count >= 1 && count <= BATCH_MAX);
    for (size_t i = 0; i < count; i++) sorted[i] = (struct numbered){ ops[i], i };
    qsort(sorted, count, sizeof sorted[0], numbered_cmp);
    s->slot_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || !bytes_eq(sorted[i].op->frame, sorted[i - 1].op->frame))
            s->slots[s->slot_count++] = slot_for(sorted[i].op);
        s->slot_of[sorted[i].at] = &s->slots[s->slot_count - 1];
    }
}

static void slots_clear(struct postgres *s)
{
    for (size_t i = 0; i < s->slot_count; i++) slot_forget(&s->slots[i]);
    s->slot_count = 0;
}

/* ---- read ---- */

static void raise_floor(struct postgres *s, uint64_t fence)
{
    if (fence > s->used_fence) s->used_fence = fence;
    if (fence > s->at.fence_floor) s->at.fence_floor = fence;
}

/* The moment of a decision: by the server's clock, above every fence that was given out. */
static void set_moment(struct postgres *s, int64_t now_ms)
{
    s->at.now_ms = s->wall_rules ? clock_now_ms(&s->wall) : now_ms;
    s->at.fence_floor = (uint64_t)s->floor;
    raise_floor(s, s->used_fence);
}

static int take_moment(struct postgres *s, const PGresult *q, struct err *reterr)
{
    if (PQntuples(q) == 0 || pg_number(q, 0, READ_FLOOR) < 0)
        return err_set(reterr, ERR_CORRUPT, "postgres: the row of the table meta is missing");
    s->epoch = pg_number(q, 0, READ_EPOCH);
    s->floor = pg_number(q, 0, READ_FLOOR);
    guess_anchor(&s->guess, pg_number(q, 0, READ_NOW));
    set_moment(s, s->guess.read_ms);
    return 0;
}

static int take_rows(struct postgres *s, const PGresult *q, struct err *reterr)
{
    for (int row = 0; s->keys.count && row < PQntuples(q); row++) {
        int64_t n = pg_number(q, row, READ_N);
        if (n < 1 || n > (int64_t)s->keys.count)
            return err_set(reterr, ERR_CORRUPT, "postgres: an answer to another question");
        struct slot *slot = s->keys.slots[n - 1];
        slot_decode(slot, q, row, READ_ROW);
        if (slot->first == VERB_CLAIM) guess_note(&s->guess, !slot->stored);
    }
    return 0;
}

/* Without unsettled slots only the moment. */
static int read_slots(struct postgres *s, struct err *reterr)
{
    rows_clear(&s->keys);
    for (size_t i = 0; i < s->slot_count; i++)
        if (!s->slots[i].settled) rows_add_key(&s->keys, &s->slots[i]);
    if (rows_failed(&s->keys))
        return err_set(reterr, rows_failed(&s->keys), "out of memory asking postgres:");
    struct pg_params params = { .count = 0 };
    rows_params(&s->keys, ROWS_KEY + 1, &params);
    struct pg_statement read = { PGSQL_READ, &params };
    int r = pgdb_read(&s->db, &read, reterr);
    if (!r) r = take_moment(s, read.result, reterr);
    if (!r) r = take_rows(s, read.result, reterr);
    PQclear(read.result);
    return r;
}

/* ---- decide ---- */

static void decide_op(struct postgres *s, struct slot *slot, struct op *op)
{
    op->epoch = (uint64_t)s->epoch;
    if (slot->bad.code) {
        op_refuse(op, &slot->bad);
        return;
    }
    struct moment at = s->at;
    if (slot->used_fence > at.fence_floor && !slot->present) at.fence_floor = slot->used_fence;
    struct verdict v = op_decide(op, slot_record(slot), at);
    if (v.change == CHANGE_DROP) raise_floor(s, slot->record.fence);
    slot_apply(slot, &v);
    op->changed = v.change != CHANGE_NONE;
}

static void decide(struct postgres *s, struct op **ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!s->slot_of[i]->settled) decide_op(s, s->slot_of[i], ops[i]);
    for (size_t i = 0; i < s->slot_count; i++)
        if (!s->slots[i].changed) s->slots[i].settled = true;
}

/* ---- guess ---- */

/* A claim is of a new key, if the last ones were; what we wrote is still there. If the write
 * finds it so, the read was saved; if not, it is made. */
static bool guess_slot(struct postgres *s, struct slot *slot)
{
    slot_forget(slot);
    if (slot->first == VERB_CLAIM)
        return guess_new(&s->guess) && !memo_has(&s->memos, slot->frame);
    if (!verb_info[slot->first].writes) return false;
    return memo_recall(&s->memos, slot);
}

/* Decides what can be decided without asking. What such a decision leaves as it was is no
 * answer: it has to be read. */
static void decide_guessed(struct postgres *s, struct op **ops, size_t count)
{
    int64_t now_ms;
    if (!guess_now_ms(&s->guess, s->wall_rules, &now_ms)) return;
    set_moment(s, now_ms);
    for (size_t i = 0; i < s->slot_count; i++)
        s->slots[i].guessed = guess_slot(s, &s->slots[i]);
    for (size_t i = 0; i < count; i++)
        if (s->slot_of[i]->guessed) decide_op(s, s->slot_of[i], ops[i]);
}

/* ---- write ---- */

static void add_changed(struct postgres *s, bool stored)
{
    for (size_t i = 0; i < s->slot_count; i++) {
        struct slot *slot = &s->slots[i];
        if (slot->changed && !slot->settled && slot->stored == stored)
            rows_add(&s->writes, slot, s->at.now_ms);
    }
}

static size_t changed_rows(struct postgres *s)
{
    rows_clear(&s->writes);
    add_changed(s, false);
    s->new_rows = s->writes.count;
    add_changed(s, true);
    return s->writes.count;
}

/* The numbers that come back are those of the rows that were written; a new row takes its
 * number for its first rev. */
static void settle_written(struct postgres *s, const PGresult *q)
{
    for (int row = 0; row < PQntuples(q); row++) {
        int64_t n = pg_number(q, row, 0);
        CHECK(n >= 1 && n <= (int64_t)s->writes.count);
        struct slot *slot = s->writes.slots[n - 1];
        slot->settled = true;
        memo_keep(&s->memos, slot, pg_place(q, row, 1), slot->stored ? slot->rev + 1 : n);
    }
}

/* Those that were not are not what we took them for; nor is anything if there was no answer. */
static void forget_unwritten(struct postgres *s)
{
    for (size_t i = 0; i < s->writes.count; i++) {
        struct slot *slot = s->writes.slots[i];
        if (slot->guessed && slot->first == VERB_CLAIM) guess_note(&s->guess, slot->settled);
        if (!slot->settled) memo_drop(&s->memos, slot->frame);
    }
}

static int64_t lowest_new_fence(const struct postgres *s)
{
    uint64_t lowest = INT64_MAX;
    for (size_t i = 0; i < s->new_rows; i++) {
        uint64_t fence = slot_fence(s->writes.slots[i]);
        if (fence < lowest) lowest = fence;
    }
    return (int64_t)lowest;
}

/* When the decision was made, and how old it may be; what it was based on; the rows. */
static void write_params(struct postgres *s, struct pg_params *p)
{
    bool surely = s->guessing && guess_surely(&s->guess);
    pg_param_number(p, s->wall_rules ? 0 : s->at.now_ms);
    pg_param_number(p, s->wall_rules ? INT64_MAX : DECISION_MS);
    pg_param_number(p, s->epoch);
    pg_param_number(p, lowest_new_fence(s));
    pg_param(p, PG_BOOL, bytes_of(surely ? "\1" : "\0", 1));
    pg_param_number(p, (int64_t)s->new_rows);
    rows_params(&s->writes, ROWS_COLUMNS, p);
}

static int write_rows(struct postgres *s, struct err *reterr)
{
    if (rows_failed(&s->writes)) {
        s->db.failed = PG_REFUSED;
        return err_set(reterr, ERR_NOMEM, "out of memory writing to postgres:");
    }
    struct pg_params params = { .count = 0 };
    write_params(s, &params);
    struct pg_statement write = { PGSQL_WRITE, &params };
    int r = pgdb_transact(&s->db, &write, 1, reterr);
    if (!r) settle_written(s, write.result);
    PQclear(write.result);
    if (!r || s->db.failed == PG_LOST) forget_unwritten(s);
    return r;
}

/* ---- what could not be carried out ---- */

/* An op on a row that was to be changed has seen what was not written. */
static void refuse_unsettled(struct postgres *s, struct op **ops, size_t count,
                             const struct err *cause)
{
    struct err ambiguous = *cause;
    if (s->db.failed == PG_LOST)
        err_set(&ambiguous, ERR_AMBIGUOUS,
                "the commit was not answered, the change may have been made: %.110s",
                cause->text);
    for (size_t i = 0; i < count; i++)
        if (!s->slot_of[i]->settled) op_refuse(ops[i], ops[i]->changed ? &ambiguous : cause);
}

/* ---- a batch of ops with keys ---- */

static bool any_unsettled(const struct postgres *s)
{
    for (size_t i = 0; i < s->slot_count; i++)
        if (!s->slots[i].settled) return true;
    return false;
}

/* 0: all are answered; 1: some have to be read, or read again; negative: error. */
static int write_changed(struct postgres *s, struct err *reterr)
{
    int r = changed_rows(s) ? write_rows(s, reterr) : 0;
    if (r && (s->db.failed == PG_AGAIN || s->db.failed == PG_TAKEN)) return 1;
    return r ? r : any_unsettled(s);
}

static int first_round(struct postgres *s, struct op **ops, size_t count, struct err *reterr)
{
    for (size_t i = 0; i < count; i++) op_clear_answer(ops[i]);
    decide_guessed(s, ops, count);
    s->guessing = true;
    int r = write_changed(s, reterr);
    s->guessing = false;
    guess_pace(&s->guess, r > 0 && s->db.failed == PG_TAKEN);
    return r;
}

static int next_round(struct postgres *s, struct op **ops, size_t count, struct err *reterr)
{
    int r = read_slots(s, reterr);
    if (r) {
        if (s->db.failed == PG_LOST) s->db.failed = PG_REFUSED; /* a read changes nothing */
        return r;
    }
    decide(s, ops, count);
    return write_changed(s, reterr);
}

/* False: nothing was written because of one of the ops; the unsettled ones are to be tried one
 * by one. */
static bool exec_together(struct postgres *s, struct op **ops, size_t count)
{
    struct err err = { 0 };
    int r = pgdb_begin(&s->db, &err);
    if (!r) r = first_round(s, ops, count, &err);
    for (int n = 1; r > 0 && (n < PG_ROUNDS_MIN || !pgdb_late(&s->db)); n++)
        r = next_round(s, ops, count, &err);
    if (r == 0) return true;
    if (r < 0 && s->db.failed == PG_BAD_OP && count > 1) return false;
    if (r > 0) {
        s->db.failed = PG_REFUSED;
        err_set(&err, ERR_UNAVAILABLE, "postgres: others were faster for %lld ms",
                (long long)s->db.options.timeout_ms);
    }
    refuse_unsettled(s, ops, count, &err);
    return true;
}

static void exec_one(struct postgres *s, struct op *op)
{
    slots_make(s, &op, 1);
    exec_together(s, &op, 1);
    slots_clear(s);
}

/* A lock that somebody keeps for long costs each op on it the lock time-out: not too many. */
static void exec_keyed(struct postgres *s, struct op **ops, size_t count)
{
    struct op *alone[BATCH_MAX];
    size_t alone_count = 0;
    int64_t until_ms = pgdb_now_ms() + 2 * s->db.options.timeout_ms;
    slots_make(s, ops, count);
    bool together = exec_together(s, ops, count);
    for (size_t i = 0; !together && i < count; i++)
        if (!s->slot_of[i]->settled) alone[alone_count++] = ops[i];
    slots_clear(s);
    struct err late;
    err_set(&late, ERR_UNAVAILABLE, "postgres: another session is in the way of this batch");
    for (size_t i = 0; i < alone_count; i++) {
        if (pgdb_now_ms() < until_ms)
            exec_one(s, alone[i]);
        else
            op_refuse(alone[i], &late);
    }
}

/* ---- ops about many rows ---- */

static int64_t limit_of(const struct op *op)
{
    return op->limit < INT32_MAX ? (int64_t)op->limit : INT32_MAX;
}

static int run_expire(struct postgres *s, struct op *op, struct err *reterr)
{
    struct pg_params params = { .count = 0 };
    pg_param_number(&params, s->wall_rules ? s->at.now_ms : s->at.now_ms - GRACE_MS);
    pg_param_number(&params, limit_of(op));
    pg_param_number(&params, limit_of(op) * DROPPED_PER_CLAIM);
    struct pg_statement sweep = { PGSQL_SWEEP, &params };
    int r = pgdb_transact(&s->db, &sweep, 1, reterr);
    if (r && s->db.failed == PG_LOST) reterr->code = ERR_AMBIGUOUS;
    if (r) return reterr->code;
    op->count = (size_t)pg_number(sweep.result, 0, 0);
    raise_floor(s, (uint64_t)pg_number(sweep.result, 0, 1));
    PQclear(sweep.result);
    op->changed = op->count > 0;
    return 0;
}

static int run_scan(struct postgres *s, struct op *op, struct err *reterr)
{
    struct pg_params params = { .count = 0 };
    uint8_t after[KEY_FRAME_BYTES_MAX], end[KEY_FRAME_BYTES_MAX];
    pg_param(&params, PG_BYTEA, key_column(&op->key, after));
    struct bytes past = key_column(&(struct key){ .scope = op->key.scope }, end);
    end[past.len - 1]++; /* the space: just behind the keys of this scope */
    if (!op->all_scopes) pg_param(&params, PG_BYTEA, past);
    pg_param_number(&params, s->at.now_ms);
    pg_param_number(&params, limit_of(op) + 1);
    struct pg_statement scan = { op->all_scopes ? PGSQL_SCAN_ALL : PGSQL_SCAN, &params };
    int r = pgdb_query(&s->db, &scan, reterr);
    int rows = r ? 0 : PQntuples(scan.result);
    for (int row = 0; !r && row < rows && op->scan.count < op->limit; row++)
        r = scan_decode(op, scan.result, row, s->at.now_ms, reterr);
    op->scan.more = (size_t)rows > op->limit;
    PQclear(scan.result);
    return r;
}

static int run_stats(struct postgres *s, struct op *op, struct err *reterr)
{
    struct pg_params params = { .count = 0 };
    pg_param_number(&params, s->at.now_ms);
    struct pg_statement stats = { PGSQL_STATS, &params };
    int r = pgdb_query(&s->db, &stats, reterr);
    if (r) return r;
    op->stats = (struct store_stats){ .pending = (uint64_t)pg_number(stats.result, 0, 0),
                                      .lapsed = (uint64_t)pg_number(stats.result, 0, 1),
                                      .done = (uint64_t)pg_number(stats.result, 0, 2),
                                      .gone = (uint64_t)pg_number(stats.result, 0, 3),
                                      .bytes = (uint64_t)pg_number(stats.result, 0, 4),
                                      .fence_floor = s->at.fence_floor,
                                      .now_ms = s->at.now_ms };
    PQclear(stats.result);
    return 0;
}

/* The moment was read: for a plain ping that is all. */
static int run_ping(struct postgres *s, struct op *op, struct err *reterr)
{
    return op->wants_facts ? postgres_facts(&s->db, op, reterr) : 0;
}

static int run_markers(struct postgres *s, struct op *op, struct err *reterr)
{
    return postgres_markers_sweep(&s->db, op, reterr);
}

typedef int run_verb(struct postgres *, struct op *, struct err *);

static run_verb *const run_unkeyed[VERBS] = {
    [VERB_EXPIRE] = run_expire,         [VERB_SCAN] = run_scan,
    [VERB_STATS] = run_stats,           [VERB_PING] = run_ping,
    [VERB_MARKERS_SWEEP] = run_markers,
};

static void exec_unkeyed(struct postgres *s, struct op *op)
{
    struct err err;
    op_clear_answer(op);
    int r = pgdb_begin(&s->db, &err);
    if (!r && op->verb != VERB_MARKERS_SWEEP) r = read_slots(s, &err);
    if (!r) r = run_unkeyed[op->verb](s, op, &err);
    op->epoch = (uint64_t)s->epoch;
    op->out.outcome = OUTCOME_OK;
    if (r) op_refuse(op, &err);
}

/* ---- exec ---- */

/* How many of them go into one transaction: keyed ones, up to a size. */
static size_t chunk_of(struct op **ops, size_t count)
{
    size_t len = 0, bytes = 0;
    for (; len < count && len < BATCH_MAX; len++) {
        if (!verb_info[ops[len]->verb].keyed) break;
        bytes += blob_bytes(ops[len]->in.value).len;
        if (len && bytes > CHUNK_BYTES) break;
    }
    return len;
}

static void exec_claims(struct postgres *s, struct op **ops, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t keyed = chunk_of(ops + i, count - i);
        CHECK(keyed);
        exec_keyed(s, ops + i, keyed);
        i += keyed;
    }
}

static bool is_about_all(const struct op *op)
{
    return !verb_info[op->verb].keyed && !verb_is_run(op->verb);
}

/* Claims and runs are strangers: in which order a batch does one and the other makes no
 * difference, and so each kind is together. */
static void exec_mixed(struct postgres *s, struct op **ops, size_t count)
{
    struct op *claims[BATCH_MAX], *runs[BATCH_MAX];
    size_t claim_count = 0, run_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (verb_is_run(ops[i]->verb))
            runs[run_count++] = ops[i];
        else
            claims[claim_count++] = ops[i];
    }
    exec_claims(s, claims, claim_count);
    pgruns_exec(&s->runs, runs, run_count);
}

static void postgres_exec(struct store *base, struct op **ops, size_t count)
{
    struct postgres *s = postgres_of(base);
    for (size_t i = 0; i < count;) {
        size_t len = 0;
        while (i + len < count && len < BATCH_MAX && !is_about_all(ops[i + len])) len++;
        if (len)
            exec_mixed(s, ops + i, len);
        else
            exec_unkeyed(s, ops[i]);
        i += len ? len : 1;
    }
    base->connects = s->db.connects;
}

/* ---- life ---- */

static void postgres_close(struct store *base)
{
    struct postgres *s = postgres_of(base);
    slots_clear(s);
    memos_fini(&s->memos);
    pgruns_fini(&s->runs);
    pgdb_close(&s->db);
    rows_fini(&s->keys);
    rows_fini(&s->writes);
    free(s);
}

static int settle(struct postgres *s, const struct store_env *env, struct err *reterr)
{
    if (memos_init(&s->memos, env->rng) || pgruns_init(&s->runs, &s->db, env))
        return err_set(reterr, ERR_NOMEM, "out of memory opening postgres:");
    if (env->later) return pgdb_init(&s->db, env->rng, reterr);
    int r = pgdb_open(&s->db, env->rng, reterr);
    if (r || env->markers) return r;
    r = postgres_schema_settle(&s->db, reterr);
    if (!r) r = read_slots(s, reterr);
    s->base.epoch = s->runs.epoch = (uint64_t)s->epoch;
    s->base.connects = s->db.connects;
    return r;
}

static int postgres_open(const char *rest, const struct store_env *env,
                         struct store **ret_store, struct err *reterr)
{
    struct postgres *s = calloc(1, sizeof *s);
    if (!s) return err_set(reterr, ERR_NOMEM, "out of memory opening postgres:");
    s->base = (struct store){ .class = &postgres_class,
                              .caps = postgres_class.caps,
                              .loop = env->loop };
    s->wall = env->wall;
    s->wall_rules = env->wall_rules;
    rows_init(&s->keys);
    rows_init(&s->writes);
    int r = postgres_options_parse(rest, &s->db.options, reterr);
    if (env->markers) {
        s->base.caps = MARKERS_CAPS;
        s->db.options.connections = 1;
    }
    s->base.lanes = (unsigned)s->db.options.connections;
    s->base.readers = env->runs && s->base.lanes > 1;
    s->base.sweepers = s->base.lanes > 1;
    if (s->base.lanes > 1) /* alone, the server would wait, too */
        s->base.gather = (struct gather){ .ops = GATHER_OPS, .us = GATHER_US };
    s->base.timeout_ms = s->db.options.timeout_ms;
    if (!r) r = settle(s, env, reterr);
    if (r) {
        postgres_close(&s->base);
        return r;
    }
    *ret_store = &s->base;
    return 0;
}

#define POSTGRES_CLASS(name)                                                                   \
    {                                                                                          \
        .scheme = name, .usage = name "://HOST/DATABASE",                                      \
        .caps = CAP_CLAIMS | CAP_RUNS | CAP_MARKERS | CAP_DURABLE | CAP_SHARED | CAP_NOTIFY |  \
                CAP_BLOCKS,                                                                    \
        .open = postgres_open, .close = postgres_close, .exec = postgres_exec,                 \
        .migrate = postgres_migrate, .migrate_markers = postgres_migrate_markers,              \
    }

const struct store_class postgres_class = POSTGRES_CLASS("postgres");
const struct store_class postgresql_class = POSTGRES_CLASS("postgresql");
