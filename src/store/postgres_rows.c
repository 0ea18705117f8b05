/* postgres_rows.c - see postgres_rows.h. */
#include "store/postgres_rows.h"

#include "base/check.h"

#include <string.h>

/* How far ahead of its time the sweep may look at a row. As long as the column stays the same,
 * a change leaves the indexes alone: measured, a publish then costs a third less. */
#define SWEEP_EARLY_MS INT64_C(3600000)
#define DROPPED_KEEP_MS INT64_C(86400000)

enum { STATE_DROPPED = 0 };

/* ---- slots ---- */

const struct record *slot_record(const struct slot *s)
{
    return s->present ? &s->record : NULL;
}

uint64_t slot_fence(const struct slot *s)
{
    return s->present ? s->record.fence : s->used_fence;
}

void slot_apply(struct slot *s, const struct verdict *v)
{
    if (v->change == CHANGE_NONE) return;
    s->changed = true;
    s->present = v->change == CHANGE_PUT;
    if (!s->present) return;
    s->record = v->next;
    if (v->next.fence > s->used_fence) s->used_fence = v->next.fence;
}

void slot_forget(struct slot *s)
{
    blob_unref(s->value);
    s->value = NULL;
    s->stored = s->present = s->changed = s->guessed = false;
    s->used_fence = 0;
    s->bad.code = 0;
}

/* ---- reading ---- */

enum {
    ROW_PLACE,
    ROW_REV,
    ROW_SWEEP_AT,
    ROW_STATE,
    ROW_TOKEN,
    ROW_FENCE,
    ROW_CLAIMED_AT,
    ROW_LEASE,
    ROW_LEASE_UNTIL,
    ROW_RETAIN,
    ROW_DONE_AT,
    ROW_FINGERPRINT,
    ROW_VALUE, /* PGSQL_SCAN: its length */
    ROW_KEY,   /* PGSQL_SCAN */
};

static bool bad(struct slot *s, const char *nonsense)
{
    err_set(&s->bad, ERR_CORRUPT, "postgres: a stored claim has an %s", nonsense);
    return false;
}

static bool decode_record(struct slot *s, const PGresult *q, int row, int column)
{
    struct record r = {
        .state = (enum record_state)pg_number(q, row, column + ROW_STATE),
        .fence = s->stored_fence,
        .claimed_at_ms = pg_number(q, row, column + ROW_CLAIMED_AT),
        .lease_ms = pg_number(q, row, column + ROW_LEASE),
        .lease_until_ms = pg_number(q, row, column + ROW_LEASE_UNTIL),
        .retain_ms = pg_number(q, row, column + ROW_RETAIN),
        .done_at_ms = pg_number(q, row, column + ROW_DONE_AT),
    };
    struct bytes token = pg_bytes(q, row, column + ROW_TOKEN);
    struct bytes fingerprint = pg_bytes(q, row, column + ROW_FINGERPRINT);
    const char *nonsense = record_nonsense(&r);
    if (nonsense) return bad(s, nonsense);
    if (token.len != sizeof r.token.bytes) return bad(s, "impossible token");
    if (fingerprint.len > FINGERPRINT_BYTES_MAX) return bad(s, "overlong fingerprint");
    memcpy(r.token.bytes, token.data, token.len);
    memcpy(s->fingerprint, fingerprint.data, fingerprint.len);
    r.fingerprint = bytes_of(s->fingerprint, fingerprint.len);
    s->record = r;
    s->present = true;
    return true;
}

/* The row is there, whatever it holds: a dropped one is absent, but its fence was used. */
static bool decode_row(struct slot *s, const PGresult *q, int row, int column)
{
    int64_t fence = pg_number(q, row, column + ROW_FENCE);
    if (fence < 1 || fence > FENCE_MAX) return bad(s, "impossible fence");
    s->stored = true;
    s->place = pg_place(q, row, column + ROW_PLACE);
    s->rev = pg_number(q, row, column + ROW_REV);
    s->sweep_at_ms = pg_number(q, row, column + ROW_SWEEP_AT);
    s->stored_fence = s->used_fence = (uint64_t)fence;
    if (pg_number(q, row, column + ROW_STATE) == STATE_DROPPED) return true;
    return decode_record(s, q, row, column);
}

bool slot_decode(struct slot *s, const PGresult *q, int row, int column)
{
    slot_forget(s);
    if (PQgetisnull(q, row, column + ROW_REV)) return true;
    if (!decode_row(s, q, row, column)) return false;
    if (!s->present || PQgetisnull(q, row, column + ROW_VALUE)) return true;
    if (s->record.state != RECORD_DONE) return bad(s, "answer too early");
    s->value = s->record.value = blob_new(pg_bytes(q, row, column + ROW_VALUE));
    if (s->value) return true;
    err_set(&s->bad, ERR_NOMEM, "out of memory reading a stored answer");
    return false;
}

/* Without a space it is all scope, which key_check() refuses. */
static struct key key_split(struct bytes column)
{
    const uint8_t *space = column.len ? memchr(column.data, ' ', column.len) : NULL;
    size_t scope_len = space ? (size_t)(space - column.data) : column.len;
    size_t name_at = space ? scope_len + 1 : scope_len;
    return (struct key){ bytes_of(column.data, scope_len),
                         bytes_of(column.data + name_at, column.len - name_at) };
}

int scan_decode(struct op *op, const PGresult *q, int row, int64_t now_ms, struct err *reterr)
{
    struct slot s = { .key = key_split(pg_bytes(q, row, ROW_KEY)) };
    struct err bad_key;
    if (!decode_row(&s, q, row, 0)) {
        *reterr = s.bad;
        return reterr->code;
    }
    if (key_check(&s.key, &bad_key))
        return err_set(reterr, ERR_CORRUPT, "postgres: a stored key is bad: %.120s",
                       bad_key.text);
    int r = scan_add(&op->scan, &s.key, &s.record, now_ms);
    if (r) return err_set(reterr, r, "out of memory while listing");
    struct scan_row *added = &op->scan.rows[op->scan.count - 1];
    added->value_kept = !PQgetisnull(q, row, ROW_VALUE);
    added->value_bytes = (size_t)pg_number(q, row, ROW_VALUE);
    return 0;
}

/* ---- writing ---- */

static const enum pg_type element_of[ROWS_COLUMNS] = {
    [ROWS_KEY] = PG_BYTEA,        [ROWS_PLACE] = PG_TID,       [ROWS_SEEN_REV] = PG_INT8,
    [ROWS_SEEN_FENCE] = PG_INT8,  [ROWS_STATE] = PG_INT2,      [ROWS_TOKEN] = PG_BYTEA,
    [ROWS_FENCE] = PG_INT8,       [ROWS_CLAIMED_AT] = PG_INT8, [ROWS_LEASE] = PG_INT8,
    [ROWS_LEASE_UNTIL] = PG_INT8, [ROWS_RETAIN] = PG_INT8,     [ROWS_DONE_AT] = PG_INT8,
    [ROWS_GONE_AT] = PG_INT8,     [ROWS_SWEEP_AT] = PG_INT8,   [ROWS_FINGERPRINT] = PG_BYTEA,
    [ROWS_VALUE] = PG_BYTEA,
};

void rows_init(struct rows *r)
{
    for (size_t i = 0; i < ROWS_COLUMNS; i++) pg_array_init(&r->columns[i], element_of[i]);
    r->count = 0;
}

void rows_fini(struct rows *r)
{
    for (size_t i = 0; i < ROWS_COLUMNS; i++) pg_array_fini(&r->columns[i]);
}

void rows_clear(struct rows *r)
{
    r->count = 0;
    for (size_t i = 0; i < ROWS_COLUMNS; i++) pg_array_clear(&r->columns[i]);
}

static void add_bytes(struct rows *r, enum rows_column at, struct bytes value)
{
    pg_array_add(&r->columns[at], value);
}

static void add_number(struct rows *r, enum rows_column at, int64_t value)
{
    pg_array_add_number(&r->columns[at], value);
}

static void add_value(struct rows *r, const struct blob *value)
{
    if (value)
        add_bytes(r, ROWS_VALUE, blob_bytes(value));
    else
        pg_array_add_null(&r->columns[ROWS_VALUE]);
}

struct bytes key_column(const struct key *key, uint8_t *out)
{
    CHECK(key->scope.len + 1 + key->name.len <= KEY_FRAME_BYTES_MAX);
    if (key->scope.len) memcpy(out, key->scope.data, key->scope.len);
    out[key->scope.len] = ' ';
    if (key->name.len) memcpy(out + key->scope.len + 1, key->name.data, key->name.len);
    return bytes_of(out, key->scope.len + 1 + key->name.len);
}

void rows_add_key(struct rows *r, struct slot *s)
{
    CHECK(r->count < BATCH_MAX);
    r->slots[r->count++] = s;
    uint8_t key[KEY_FRAME_BYTES_MAX];
    add_bytes(r, ROWS_KEY, key_column(&s->key, key));
}

static int64_t min_ms(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Never after the record is gone; before that it only costs the sweep a look. What a publish
 * and a renewal do not change is when the claim was made and how long its answer is kept. */
static int64_t sweep_at_ms(const struct slot *s, int64_t now_ms)
{
    int64_t kept_ms = s->sweep_at_ms;
    if (!s->present) return s->stored && kept_ms <= now_ms + DROPPED_KEEP_MS ? kept_ms : now_ms;
    int64_t due_ms =
        min_ms(s->record.claimed_at_ms + s->record.retain_ms, record_gone_at_ms(&s->record));
    if (s->stored && kept_ms > now_ms && kept_ms <= due_ms &&
        due_ms - kept_ms <= SWEEP_EARLY_MS)
        return kept_ms;
    return due_ms;
}

void rows_add(struct rows *r, struct slot *s, int64_t now_ms)
{
    static const struct record dropped;
    const struct record *now = s->present ? &s->record : &dropped;
    CHECK(s->used_fence >= 1 && s->used_fence <= (uint64_t)FENCE_MAX);
    CHECK(now->lease_ms >= 0 && now->retain_ms >= 0);
    rows_add_key(r, s);
    add_bytes(r, ROWS_PLACE, bytes_of(s->place.bytes, sizeof s->place.bytes));
    add_number(r, ROWS_SEEN_REV, s->rev);
    add_number(r, ROWS_SEEN_FENCE, (int64_t)s->stored_fence);
    add_number(r, ROWS_STATE, s->present ? (int64_t)now->state : STATE_DROPPED);
    add_bytes(r, ROWS_TOKEN, bytes_of(now->token.bytes, sizeof now->token.bytes));
    add_number(r, ROWS_FENCE, (int64_t)slot_fence(s));
    add_number(r, ROWS_CLAIMED_AT, now->claimed_at_ms);
    add_number(r, ROWS_LEASE, now->lease_ms);
    add_number(r, ROWS_LEASE_UNTIL, now->lease_until_ms);
    add_number(r, ROWS_RETAIN, now->retain_ms);
    add_number(r, ROWS_DONE_AT, now->done_at_ms);
    add_number(r, ROWS_GONE_AT, s->present ? record_gone_at_ms(now) : now_ms);
    s->sweep_at_ms = sweep_at_ms(s, now_ms);
    add_number(r, ROWS_SWEEP_AT, s->sweep_at_ms);
    add_bytes(r, ROWS_FINGERPRINT, now->fingerprint);
    add_value(r, now->value);
}

int rows_failed(const struct rows *r)
{
    for (size_t i = 0; i < ROWS_COLUMNS; i++)
        if (pg_array_failed(&r->columns[i])) return pg_array_failed(&r->columns[i]);
    return 0;
}

void rows_params(struct rows *r, size_t columns, struct pg_params *p)
{
    for (size_t i = 0; i < columns; i++) {
        CHECK(r->columns[i].count == r->count);
        pg_param_array(p, &r->columns[i]);
    }
}
