/* run_codec.c - a run, and a change of one, as bytes.
 *
 * A version byte, then every field in the order of the struct; numbers have eight bytes, big endian,
 * bytes a length of four in front. To add a field: another version, which also reads the last one. */
#include "core/run_rules.h"

#include "base/check.h"

enum { RUN_FORMAT = 1, CHANGE_FORMAT = 1 };

static void put_bytes(struct buf *out, struct bytes content)
{
    buf_u32(out, (uint32_t)content.len);
    buf_add(out, content);
}

static void put_ms(struct buf *out, int64_t ms)
{
    buf_u64(out, (uint64_t)ms);
}

static struct bytes take_bytes(struct reader *in)
{
    return reader_take(in, reader_u32(in));
}

static int64_t take_ms(struct reader *in)
{
    return (int64_t)reader_u64(in);
}

static void put_token(struct buf *out, const struct token *t)
{
    buf_add(out, bytes_of(t->bytes, sizeof t->bytes));
}

static void take_token(struct reader *in, struct token *t)
{
    struct bytes content = reader_take(in, sizeof t->bytes);
    if (content.len == sizeof t->bytes) memcpy(t->bytes, content.data, content.len);
}

static void put_id(struct buf *out, const struct run_id *id)
{
    put_bytes(out, run_id_bytes(id));
}

/* Empty, or exactly as one is made. */
static bool take_id(struct reader *in, struct run_id *id)
{
    struct bytes text = take_bytes(in);
    *id = (struct run_id){ 0 };
    if (text.len == 0) return true;
    return run_id_parse(text, id) && bytes_eq(text, run_id_bytes(id));
}

void run_encode(const struct run *r, struct buf *out)
{
    CHECK(r->state >= RUN_QUEUED && r->state <= RUN_CANCELED);
    buf_byte(out, RUN_FORMAT);
    put_id(out, &r->id);
    put_bytes(out, r->env);
    put_bytes(out, r->task);
    put_bytes(out, r->queue);
    put_bytes(out, r->payload);
    put_bytes(out, r->ordering_key);
    put_bytes(out, r->fingerprint);
    put_bytes(out, r->key);
    buf_byte(out, r->key_held);
    put_ms(out, r->key_until_ms);
    buf_byte(out, (uint8_t)r->state);
    put_bytes(out, r->tags);
    put_bytes(out, r->metadata);
    buf_u64(out, r->metadata_version);
    put_bytes(out, r->output);
    put_bytes(out, r->error);
    put_ms(out, r->created_at_ms);
    put_ms(out, r->delay_until_ms);
    put_ms(out, r->available_at_ms);
    put_ms(out, r->started_at_ms);
    put_ms(out, r->finished_at_ms);
    buf_u32(out, r->attempts);
    buf_u32(out, r->attempts_max);
    buf_u32(out, r->stalls);
    put_token(out, &r->token);
    buf_u64(out, r->fence);
    put_ms(out, r->lease_ms);
    put_ms(out, r->lease_until_ms);
    buf_u64(out, r->changes);
    put_id(out, &r->canonical);
}

bool run_decode(struct bytes packed, struct run *ret_run)
{
    struct reader in = { .left = packed };
    struct run r = { 0 };
    if (reader_byte(&in) != RUN_FORMAT) return false;
    bool sane = take_id(&in, &r.id);
    r.env = take_bytes(&in);
    r.task = take_bytes(&in);
    r.queue = take_bytes(&in);
    r.payload = take_bytes(&in);
    r.ordering_key = take_bytes(&in);
    r.fingerprint = take_bytes(&in);
    r.key = take_bytes(&in);
    uint8_t key_held = reader_byte(&in);
    r.key_until_ms = take_ms(&in);
    r.state = (enum run_state)reader_byte(&in);
    r.tags = take_bytes(&in);
    r.metadata = take_bytes(&in);
    r.metadata_version = reader_u64(&in);
    r.output = take_bytes(&in);
    r.error = take_bytes(&in);
    r.created_at_ms = take_ms(&in);
    r.delay_until_ms = take_ms(&in);
    r.available_at_ms = take_ms(&in);
    r.started_at_ms = take_ms(&in);
    r.finished_at_ms = take_ms(&in);
    r.attempts = reader_u32(&in);
    r.attempts_max = reader_u32(&in);
    r.stalls = reader_u32(&in);
    take_token(&in, &r.token);
    r.fence = reader_u64(&in);
    r.lease_ms = take_ms(&in);
    r.lease_until_ms = take_ms(&in);
    r.changes = reader_u64(&in);
    sane = take_id(&in, &r.canonical) && sane;
    r.key_held = key_held;
    if (!sane || key_held > 1 || in.short_read || in.left.len) return false;
    if (run_nonsense(&r)) return false;
    *ret_run = r;
    return true;
}

/* ---- changes ---- */

void run_change_encode(const struct run_change *c, struct buf *out)
{
    CHECK(run_change_may_wait(c->kind));
    buf_byte(out, CHANGE_FORMAT);
    buf_byte(out, (uint8_t)c->kind);
    buf_u64(out, c->version);
    put_ms(out, c->at_ms);
    put_ms(out, c->made_at_ms);
    put_bytes(out, c->body);
}

bool run_change_next(struct bytes *changes, struct run_change *ret_change)
{
    struct reader in = { .left = *changes };
    struct run_change c = { 0 };
    if (changes->len == 0 || reader_byte(&in) != CHANGE_FORMAT) return false;
    c.kind = (enum run_change_kind)reader_byte(&in);
    c.version = reader_u64(&in);
    c.at_ms = take_ms(&in);
    c.made_at_ms = take_ms(&in);
    c.body = take_bytes(&in);
    if (in.short_read || !run_change_may_wait(c.kind)) return false;
    if (c.made_at_ms < 0 || c.made_at_ms > TIME_MS_MAX) return false;
    *changes = in.left;
    *ret_change = c;
    return true;
}
