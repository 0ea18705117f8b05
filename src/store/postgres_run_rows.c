/* postgres_run_rows.c - see postgres_run_rows.h. */
#include "store/postgres_run_rows.h"

#include "base/check.h"

/* ---- reading ---- */

enum row_column {
    ROW_REV,
    ROW_KEY_UNTIL,
    ROW_METADATA_VERSION,
    ROW_CREATED_AT,
    ROW_DELAY_UNTIL,
    ROW_AVAILABLE_AT,
    ROW_STARTED_AT,
    ROW_FINISHED_AT,
    ROW_FENCE,
    ROW_LEASE,
    ROW_LEASE_UNTIL,
    ROW_CHANGES,
    ROW_DUE_AT,
    ROW_GONE_AT,
    ROW_ATTEMPTS,
    ROW_ATTEMPTS_MAX,
    ROW_STALLS,
    ROW_STATE,
    ROW_KEY_HELD,
    ROW_ID,
    ROW_ENV,
    ROW_TASK,
    ROW_QUEUE,
    ROW_KEY,
    ROW_ORDERING_KEY,
    ROW_FINGERPRINT,
    ROW_TOKEN,
    ROW_TAGS,
    ROW_METADATA,
    ROW_OUTPUT,
    ROW_ERROR,
    ROW_PAYLOAD,
};

bool run_row_is_null(const PGresult *q, int row, int column)
{
    return PQgetisnull(q, row, column + ROW_REV);
}

static void decode_numbers(const PGresult *q, int row, int column, struct run *r)
{
    r->key_held = pg_number(q, row, column + ROW_KEY_HELD);
    r->key_until_ms = pg_number(q, row, column + ROW_KEY_UNTIL);
    r->state = (enum run_state)pg_number(q, row, column + ROW_STATE);
    r->metadata_version = (uint64_t)pg_number(q, row, column + ROW_METADATA_VERSION);
    r->created_at_ms = pg_number(q, row, column + ROW_CREATED_AT);
    r->delay_until_ms = pg_number(q, row, column + ROW_DELAY_UNTIL);
    r->available_at_ms = pg_number(q, row, column + ROW_AVAILABLE_AT);
    r->started_at_ms = pg_number(q, row, column + ROW_STARTED_AT);
    r->finished_at_ms = pg_number(q, row, column + ROW_FINISHED_AT);
    r->attempts = (uint32_t)pg_number(q, row, column + ROW_ATTEMPTS);
    r->attempts_max = (uint32_t)pg_number(q, row, column + ROW_ATTEMPTS_MAX);
    r->stalls = (uint32_t)pg_number(q, row, column + ROW_STALLS);
    r->fence = (uint64_t)pg_number(q, row, column + ROW_FENCE);
    r->lease_ms = pg_number(q, row, column + ROW_LEASE);
    r->lease_until_ms = pg_number(q, row, column + ROW_LEASE_UNTIL);
    r->changes = (uint64_t)pg_number(q, row, column + ROW_CHANGES);
}

static void decode_texts(const PGresult *q, int row, int column, struct run *r)
{
    r->env = pg_bytes(q, row, column + ROW_ENV);
    r->task = pg_bytes(q, row, column + ROW_TASK);
    r->queue = pg_bytes(q, row, column + ROW_QUEUE);
    r->payload = pg_bytes(q, row, column + ROW_PAYLOAD);
    r->ordering_key = pg_bytes(q, row, column + ROW_ORDERING_KEY);
    r->fingerprint = pg_bytes(q, row, column + ROW_FINGERPRINT);
    r->key = pg_bytes(q, row, column + ROW_KEY);
    r->tags = pg_bytes(q, row, column + ROW_TAGS);
    r->metadata = pg_bytes(q, row, column + ROW_METADATA);
    r->output = pg_bytes(q, row, column + ROW_OUTPUT);
    r->error = pg_bytes(q, row, column + ROW_ERROR);
}

bool run_row_decode(const PGresult *q, int row, int column, struct run *ret_run,
                    int64_t *ret_rev)
{
    struct run r = { .state = RUN_QUEUED };
    struct bytes token = pg_bytes(q, row, column + ROW_TOKEN);
    decode_numbers(q, row, column, &r);
    decode_texts(q, row, column, &r);
    if (!run_id_parse(pg_bytes(q, row, column + ROW_ID), &r.id)) return false;
    if (run_nonsense(&r)) return false;
    if (token.len && token.len != sizeof r.token.bytes) return false;
    if (token.len) memcpy(r.token.bytes, token.data, token.len);
    *ret_run = r;
    *ret_rev = pg_number(q, row, column + ROW_REV);
    return true;
}

/* ---- writing ---- */

static bool is_text(enum run_column c)
{
    return c <= RUN_COL_ID || (c >= RUN_COL_TOKEN && c <= RUN_COL_ERROR) || c >= RUN_COL_TASK;
}

static enum pg_type element_of(enum run_column c)
{
    if (c == RUN_COL_PLACE) return PG_TID;
    return is_text(c) ? PG_BYTEA : PG_INT8;
}

void run_columns_init(struct run_columns *c)
{
    for (unsigned i = 0; i < RUN_COLS_INSERT; i++)
        pg_array_init(&c->columns[i], element_of((enum run_column)i));
    run_columns_clear(c);
}

void run_columns_fini(struct run_columns *c)
{
    for (unsigned i = 0; i < RUN_COLS_INSERT; i++) pg_array_fini(&c->columns[i]);
}

void run_columns_clear(struct run_columns *c)
{
    for (unsigned i = 0; i < RUN_COLS_INSERT; i++) {
        pg_array_clear(&c->columns[i]);
        c->told[i] = false;
    }
    c->count = 0;
}

static void add_text(struct run_columns *c, enum run_column at, struct bytes value)
{
    pg_array_add(&c->columns[at], value);
    if (value.len) c->told[at] = true;
}

static void add_number(struct run_columns *c, enum run_column at, int64_t value)
{
    pg_array_add_number(&c->columns[at], value);
    if (value) c->told[at] = true;
}

static void add_time(struct run_columns *c, enum run_column at, int64_t ms)
{
    if (ms == INT64_MAX) {
        pg_array_add_null(&c->columns[at]);
        return;
    }
    pg_array_add_number(&c->columns[at], ms);
    c->told[at] = true; /* 0 is a time, too: a row has none */
}

/* As it is there already: need not be sent. */
static void add_large(struct run_columns *c, enum run_column at, struct bytes value,
                      const struct bytes *seen)
{
    if (seen && seen->data == value.data && seen->len == value.len)
        pg_array_add_null(&c->columns[at]);
    else
        add_text(c, at, value);
}

static void add_numbers(struct run_columns *c, const struct run *r)
{
    add_number(c, RUN_COL_KEY_HELD, r->key_held);
    add_number(c, RUN_COL_STATE, (int64_t)r->state);
    add_number(c, RUN_COL_METADATA_VERSION, (int64_t)r->metadata_version);
    add_number(c, RUN_COL_DELAY_UNTIL, r->delay_until_ms);
    add_number(c, RUN_COL_AVAILABLE_AT, r->available_at_ms);
    add_number(c, RUN_COL_STARTED_AT, r->started_at_ms);
    add_number(c, RUN_COL_FINISHED_AT, r->finished_at_ms);
    add_number(c, RUN_COL_ATTEMPTS, r->attempts);
    add_number(c, RUN_COL_STALLS, r->stalls);
    add_number(c, RUN_COL_FENCE, (int64_t)r->fence);
    add_number(c, RUN_COL_LEASE, r->lease_ms);
    add_number(c, RUN_COL_LEASE_UNTIL, r->lease_until_ms);
    add_number(c, RUN_COL_CHANGES, (int64_t)r->changes);
    add_time(c, RUN_COL_DUE_AT, run_due_ms(r));
    add_time(c, RUN_COL_GONE_AT, run_gone_ms(r));
}

static void add_row(struct run_columns *c, struct image_row *row)
{
    const struct run *r = &row->now;
    CHECK(c->count < IMAGE_ROWS_MAX && r->state >= RUN_QUEUED && r->state <= RUN_CANCELED);
    c->rows[c->count++] = row;
    static const struct token none;
    size_t token_len = token_eq(&r->token, &none) ? 0 : sizeof r->token.bytes;
    add_text(c, RUN_COL_ENV, r->env);
    add_text(c, RUN_COL_ID, run_id_bytes(&r->id));
    pg_array_add(&c->columns[RUN_COL_PLACE],
                 bytes_of(row->place.bytes, sizeof row->place.bytes));
    add_number(c, RUN_COL_REV, row->rev);
    add_numbers(c, r);
    add_text(c, RUN_COL_TOKEN, bytes_of(r->token.bytes, token_len));
    add_large(c, RUN_COL_TAGS, r->tags, row->rev ? &row->seen_tags : NULL);
    add_large(c, RUN_COL_METADATA, r->metadata, row->rev ? &row->seen_metadata : NULL);
    add_large(c, RUN_COL_OUTPUT, r->output, row->rev ? &row->seen_output : NULL);
    add_large(c, RUN_COL_ERROR, r->error, row->rev ? &row->seen_error : NULL);
}

void run_columns_add_update(struct run_columns *c, struct image_row *row)
{
    CHECK(row->rev);
    add_row(c, row);
}

void run_columns_add_insert(struct run_columns *c, struct image_row *row)
{
    const struct run *r = &row->now;
    CHECK(!row->rev);
    add_row(c, row);
    add_number(c, RUN_COL_KEY_UNTIL, r->key_until_ms);
    add_number(c, RUN_COL_CREATED_AT, r->created_at_ms);
    add_number(c, RUN_COL_ATTEMPTS_MAX, r->attempts_max);
    add_text(c, RUN_COL_TASK, r->task);
    add_text(c, RUN_COL_QUEUE, r->queue);
    add_text(c, RUN_COL_KEY, r->key);
    add_text(c, RUN_COL_ORDERING_KEY, r->ordering_key);
    add_text(c, RUN_COL_FINGERPRINT, r->fingerprint);
    add_text(c, RUN_COL_PAYLOAD, r->payload);
}

int run_columns_failed(const struct run_columns *c)
{
    for (unsigned i = 0; i < RUN_COLS_INSERT; i++)
        if (pg_array_failed(&c->columns[i])) return pg_array_failed(&c->columns[i]);
    return 0;
}

void run_columns_params_update(struct run_columns *c, struct pg_params *p)
{
    for (size_t i = 0; i < RUN_COLS_UPDATE; i++) {
        CHECK(c->columns[i].count == c->count);
        pg_param_array(p, &c->columns[i]);
    }
}

/* Most columns of most new runs say nothing: an array without elements stands for them. */
void run_columns_params_insert(struct run_columns *c, struct pg_params *p)
{
    for (size_t i = 0; i < RUN_COLS_INSERT; i++) {
        CHECK(c->columns[i].count == c->count);
        if (!c->told[i]) pg_array_clear(&c->columns[i]);
        pg_param_array(p, &c->columns[i]);
    }
}
