/* redis_buffer.c - what is asked of the buffer and of the gate as calls of scripts, and what their
 * answers say of each op.
 *
 * Here and in redis_buffer.lua, redis_gate.lua and the last part of redis.lua are the two ends of one
 * format. Entries are bytes to all of them. */
#include "store/redis.h"

#include "base/check.h"

#include <stdio.h>

enum {
    FLAG_UNCLAIMED = 1, /* of an accept */
    FLAG_VALUE = 2,
    FLAG_FRESH = 4,
    FLAG_BY_KEY = 1,    /* of a get */
    FLAG_FREES_KEY = 1, /* of an append */
    ENTRY_HEAD_BYTES = 26,
    ROWS_MAX = 10000, /* in one step */
    REPLY_BUFFER_OPS = 2,
    REPLY_ENTRIES = 4,
    REPLY_GATE_OPS = 1,
};

/* ---- what is accepted: a part of redis.lua ---- */

/* The value is the id, as a rule: then it need not be told twice. */
static struct bytes value_of(const struct op *op)
{
    struct bytes value = blob_bytes(op->in.value);
    return bytes_eq(value, run_id_bytes(&op->buffer->id)) ? bytes_of(NULL, 0) : value;
}

void accept_put(struct argv *a, const struct op *op)
{
    const struct buffer_ask *ask = op->buffer;
    const struct request *in = &op->in;
    CHECK(strlen(ask->id.text) == RUN_ID_BYTES);
    CHECK(!ask->fresh || (ask->unclaimed && op->frame.len && ask->key_frame.len));
    unsigned flags = (ask->unclaimed ? FLAG_UNCLAIMED : 0) | (in->value ? FLAG_VALUE : 0) |
                     (ask->fresh ? FLAG_FRESH : 0);
    uint8_t *at = bytes_put(argv_room(a), bytes_of(in->token.bytes, sizeof in->token.bytes));
    at = le_put(at, (uint64_t)in->retain_ms, 8);
    argv_made(a, le_put(at, flags, 1));
    argv_add(a, run_id_bytes(&ask->id));
    argv_add(a, ask->key_frame);
    argv_add(a, value_of(op));
    argv_add(a, ask->run);
}

/* ---- entries ---- */

static bool entry_unpack(struct bytes packed, struct entry *ret)
{
    const uint8_t *d = packed.data;
    if (packed.len < ENTRY_HEAD_BYTES) return false;
    size_t env_len = d[21], run_len = le_take(d + 22, 4);
    if (packed.len < ENTRY_HEAD_BYTES + env_len + RUN_ID_BYTES + run_len) return false;
    const uint8_t *env = d + ENTRY_HEAD_BYTES, *id = env + env_len, *run = id + RUN_ID_BYTES;
    *ret = (struct entry){ .env = bytes_of(env, env_len),
                           .state = d[0],
                           .rev = le_take(d + 1, 8),
                           .attempts = (uint32_t)le_take(d + 9, 4),
                           .accepted_at_ms = (int64_t)le_take(d + 13, 8),
                           .run = bytes_of(run, run_len) };
    const uint8_t *changes = run + run_len;
    ret->changes = bytes_of(changes, (size_t)(d + packed.len - changes));
    memcpy(ret->id.text, id, RUN_ID_BYTES);
    return d[0] >= ENTRY_QUEUED && d[0] <= ENTRY_WRITTEN;
}

bool entry_answer(struct op *op, struct bytes packed)
{
    struct entry entry;
    if (!entry_unpack(packed, &entry)) return false;
    if (entries_add(&op->buffer->entries, &entry) == 0) return true;
    /* What was leased stays so until that lapses, told or not. */
    err_set(&op->err, op->verb == VERB_DRAIN_LEASE ? ERR_AMBIGUOUS : ERR_NOMEM,
            "out of memory for the answer");
    return false;
}

/* A buffer that was there and is not any more has another epoch, too, though none is told. */
void buffer_learn_epoch(struct redis *r, unsigned shard, const redisReply *reply)
{
    uint64_t epoch = 0;
    if (reply->type != REDIS_REPLY_STRING) return;
    if (reply->len == sizeof epoch) memcpy(&epoch, reply->str, sizeof epoch);
    if (r->buffer_epochs[shard] && r->buffer_epochs[shard] != epoch)
        r->base.epoch = epoch ? epoch : rng_u64(r->env.rng);
    r->buffer_epochs[shard] = epoch;
}

/* ---- steps of the buffer ---- */

static size_t limit_of(const struct buffer_ask *ask)
{
    if (ask->id.text[0]) return 1;
    return ask->limit < ROWS_MAX ? ask->limit : ROWS_MAX;
}

static unsigned flags_of(const struct op *op)
{
    const struct buffer_ask *ask = op->buffer;
    if (op->verb == VERB_ENTRY_GET) return ask->id.text[0] ? 0 : FLAG_BY_KEY;
    return op->verb == VERB_APPEND && ask->frees_key ? FLAG_FREES_KEY : 0;
}

/* The script numbers them as they are listed. */
_Static_assert(VERB_ENTRY_GET - VERB_ACCEPT == 1 && VERB_BUFFER_STATS - VERB_ACCEPT == 6,
               "redis_buffer.lua: kinds");

static void put_op(struct argv *a, const struct op *op)
{
    const struct buffer_ask *ask = op->buffer;
    uint8_t *at = le_put(argv_room(a), op->verb - VERB_ACCEPT, 1);
    at = le_put(at, flags_of(op), 1);
    at = le_put(at, ask->rev, 8);
    at = le_put(at, (uint64_t)ask->lease_ms, 8);
    at = bytes_put(at, bytes_of(ask->token.bytes, sizeof ask->token.bytes));
    at = le_put(at, limit_of(ask), 4);
    argv_made(a, le_put(at, ask->env_limit < ROWS_MAX ? ask->env_limit : ROWS_MAX, 4));
}

/* What is behind it: who is asked for. */
static struct bytes subject_of(const struct op *op)
{
    const struct buffer_ask *ask = op->buffer;
    if (op->verb == VERB_ENTRY_LIST) return run_id_bytes(&ask->before);
    if (flags_of(op) == FLAG_BY_KEY && op->verb == VERB_ENTRY_GET) return ask->key_frame;
    return run_id_bytes(&ask->id);
}

void buffer_send(struct batch *b)
{
    struct argv a;
    argv_begin(&a, b, SCRIPT_BUFFER, 2);
    argv_key(&a, b, BUFFER_KEY);
    argv_key(&a, b, INDEX_KEY);
    argv_made(&a, le_put(argv_room(&a), (uint64_t)step_now_ms(b->lane->node->redis), 8));
    for (unsigned i = 0; i < b->count; i++) {
        const struct op *op = b->ops[i];
        put_op(&a, op);
        argv_add(&a, op->buffer->env);
        argv_add(&a, subject_of(op));
        argv_add(&a, op->verb == VERB_SETTLE ? blob_bytes(op->in.value) : op->buffer->change);
    }
    argv_send(&a, b);
}

static void answer_numbers(struct op *op, const redisReply *reply)
{
    struct buffer_ask *ask = op->buffer;
    uint64_t first = (uint64_t)reply->element[1]->integer;
    op->out.outcome = (enum outcome)reply->element[0]->integer;
    op->changed = verb_info[op->verb].writes && op->out.outcome == OUTCOME_OK;
    if (op->verb == VERB_DRAIN_LEASE) op->changed = reply->elements > REPLY_ENTRIES;
    if (op->verb == VERB_DRAIN_LEASE || op->verb == VERB_ENTRY_LIST) ask->entries.more = first;
    if (op->verb == VERB_SETTLE) ask->settled = first;
    if (op->verb != VERB_BUFFER_STATS) return;
    ask->queued = first;
    ask->leased = (uint64_t)reply->element[2]->integer;
    ask->oldest_ms = reply->element[3]->integer;
}

static void answer_buffer(struct redis *r, struct op *op, const redisReply *reply,
                          int64_t now_ms)
{
    op_clear_answer(op);
    bool alone = reply->type == REDIS_REPLY_INTEGER;
    bool rows = reply->type == REDIS_REPLY_ARRAY && reply->elements >= REPLY_ENTRIES;
    bool fits = alone || rows;
    if (alone) op->out.outcome = (enum outcome)reply->integer;
    if (rows) answer_numbers(op, reply);
    for (size_t i = REPLY_ENTRIES; rows && fits && i < reply->elements; i++) {
        const redisReply *row = reply->element[i];
        fits =
            row->type == REDIS_REPLY_STRING && entry_answer(op, bytes_of(row->str, row->len));
    }
    if (!fits && !op->err.code)
        err_set(&op->err, ERR_CORRUPT, "redis: the script gave an answer of another kind");
    op->buffer->now_ms = now_ms;
    op->epoch = r->base.epoch;
}

bool buffer_done(struct batch *b, const redisReply *reply)
{
    struct redis *r = b->lane->node->redis;
    if (reply->elements != REPLY_BUFFER_OPS + (size_t)b->count) return false;
    buffer_learn_epoch(r, b->shard, reply->element[1]);
    for (unsigned i = 0; i < b->count; i++) {
        answer_buffer(r, b->ops[i], reply->element[REPLY_BUFFER_OPS + i],
                      reply->element[0]->integer);
        redis_settle(r, b->ops[i]);
    }
    return true;
}

/* ---- the gate ---- */

bool gate_mates(const struct op *a, const struct op *b)
{
    const struct gate_config *x = &a->gate->config, *y = &b->gate->config;
    return bytes_eq(a->gate->env, b->gate->env) && x->threshold == y->threshold &&
           x->window_ms == y->window_ms && x->hold_ms == y->hold_ms;
}

void gate_send(struct batch *b)
{
    struct argv a;
    struct redis *r = b->lane->node->redis;
    const struct gate_ask *ask = b->ops[0]->gate;
    char what[sizeof GATE_KEY + ENV_BYTES_MAX];
    snprintf(what, sizeof what, GATE_KEY "%.*s", (int)ask->env.len,
             ask->env.len ? (const char *)ask->env.data : "");
    argv_begin(&a, b, SCRIPT_GATE, 1);
    argv_key(&a, b, what);
    uint8_t *at = le_put(argv_room(&a), (uint64_t)step_now_ms(r), 8);
    at = le_put(at, (uint64_t)ask->config.threshold, 8);
    at = le_put(at, (uint64_t)ask->config.window_ms, 8);
    at = le_put(at, (uint64_t)ask->config.hold_ms, 8);
    argv_made(&a, le_put(at, (uint64_t)step_grace_ms(r), 8));
    for (unsigned i = 0; i < b->count; i++) {
        char *count = (char *)argv_room(&a);
        argv_made(&a, (uint8_t *)count + sprintf(count, "%zu", b->ops[i]->gate->count));
    }
    argv_send(&a, b);
}

bool gate_done(struct batch *b, const redisReply *reply)
{
    struct redis *r = b->lane->node->redis;
    if (reply->elements != REPLY_GATE_OPS + (size_t)b->count) return false;
    for (unsigned i = 0; i < b->count; i++) {
        struct op *op = b->ops[i];
        op_clear_answer(op);
        op->out.outcome = OUTCOME_OK;
        op->gate->tripped_ms = reply->element[0]->integer;
        op->gate->passed = (size_t)reply->element[REPLY_GATE_OPS + i]->integer;
        op->epoch = r->base.epoch;
        redis_settle(r, op);
    }
    return true;
}
