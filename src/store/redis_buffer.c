/* redis_buffer.c - what is asked of the buffer and of the gate as calls of scripts, and what their
 * answers say of each op.
 *
 * Here and in redis_buffer.lua, redis_chunk.lua, redis_gate.lua and the last part of redis.lua are the
 * two ends of one format. Entries are bytes to all of them. */
#include "store/redis.h"

#include "base/check.h"

#include <stdio.h>

enum {
    FLAG_UNCLAIMED = 1, /* of an accept */
    FLAG_VALUE = 2,
    FLAG_FRESH = 4,
    FLAG_KEYED = 8,
    FLAG_BY_KEY = 1,    /* of a get */
    FLAG_FREES_KEY = 1, /* of an append */
    CHUNK_BYTES_MAX = 64 * 1024,
    CHUNK_SPAN_MS = 1000,
    RANGE_HEAD_BYTES = 15,
    MARK_HEAD_BYTES = 6, /* as it is told, and then as it is stored: */
    MARK_BYTES = 13,
    ROWS_MAX = 10000, /* in one step */
    LISTED_MAX = 200, /* each may be in a chunk of its own, which is read as a whole */
    REPLY_BUFFER_OPS = 2,
    REPLY_ENTRIES = 4,
    REPLY_GATE_OPS = 1,
};

/* ---- names of fields ---- */

static uint8_t *env_put(uint8_t *at, struct bytes env)
{
    CHECK(env.len <= ENV_BYTES_MAX);
    at = le_put(at, env.len, 1);
    return bytes_put(at, env);
}

uint8_t *entry_name_put(uint8_t *at, struct bytes env, const struct run_id *id)
{
    CHECK(strlen(id->text) == RUN_ID_BYTES);
    at = env_put(le_put(at, 'h', 1), env);
    return bytes_put(at, run_id_bytes(id));
}

static uint8_t *key_name_put(uint8_t *at, const struct buffer_ask *ask)
{
    CHECK(ask->key_frame.len <= RUN_KEY_FRAME_BYTES_MAX);
    return bytes_put(env_put(le_put(at, 'k', 1), ask->env), ask->key_frame);
}

/* ---- what is accepted: a part of redis.lua ---- */

/* So many bytes; and ids that say about the same, so that a listing need not look far. */
bool chunk_takes(struct chunk *c, const struct op *op)
{
    int64_t ms = run_id_ms(&op->buffer->id);
    struct chunk more = { .entries = c->entries + 1,
                          .bytes = c->bytes + op->buffer->run.len,
                          .first_ms = c->entries && c->first_ms < ms ? c->first_ms : ms,
                          .last_ms = c->entries && c->last_ms > ms ? c->last_ms : ms };
    if (c->entries && more.bytes > CHUNK_BYTES_MAX) return false;
    if (more.last_ms - more.first_ms > CHUNK_SPAN_MS) return false;
    *c = more;
    return true;
}

unsigned accept_flags(const struct op *op)
{
    const struct buffer_ask *ask = op->buffer;
    CHECK(!ask->fresh || (ask->unclaimed && op->frame.len && ask->key_frame.len));
    unsigned flags = ask->key_frame.len ? FLAG_KEYED : 0;
    if (ask->fresh) flags |= FLAG_FRESH;
    if (ask->unclaimed) return flags | FLAG_UNCLAIMED;
    return flags | (op->in.value ? FLAG_VALUE : 0);
}

bool accept_alike(const struct op *a, const struct op *b)
{
    return accept_flags(a) == accept_flags(b) && a->in.retain_ms == b->in.retain_ms &&
           bytes_eq(a->buffer->env, b->buffer->env);
}

uint8_t *accept_bounds(uint8_t *at, struct op *const *ops, unsigned count)
{
    const struct run_id *highest = &ops[0]->buffer->id, *lowest = highest;
    for (unsigned i = 1; i < count; i++) {
        const struct run_id *id = &ops[i]->buffer->id;
        if (strcmp(id->text, highest->text) > 0) highest = id;
        if (strcmp(id->text, lowest->text) < 0) lowest = id;
    }
    return bytes_put(bytes_put(at, run_id_bytes(highest)), run_id_bytes(lowest));
}

/* Each of them an argument; one behind the other in memory. */
static struct bytes put_names(struct argv *a, struct op *const *ops, unsigned count)
{
    const uint8_t *from = argv_room(a);
    for (unsigned i = 0; i < count; i++)
        argv_made(a, entry_name_put(argv_room(a), ops[i]->buffer->env, &ops[i]->buffer->id));
    return bytes_of(from, (size_t)(argv_room(a) - from));
}

static struct bytes put_keys(struct argv *a, struct op *const *ops, unsigned count)
{
    const uint8_t *from = argv_room(a);
    for (unsigned i = 0; i < count; i++)
        argv_made(a, key_name_put(argv_room(a), ops[i]->buffer));
    return bytes_of(from, (size_t)(argv_room(a) - from));
}

static void put_key_ends(struct argv *a, struct op *const *ops, unsigned count)
{
    uint8_t *at = argv_room(a);
    size_t end = 0;
    for (unsigned i = 0; i < count; i++) {
        end += 2 + ops[i]->buffer->env.len + ops[i]->buffer->key_frame.len;
        at = le_put(at, end, 4);
    }
    argv_made(a, at);
}

static void put_runs(struct argv *a, struct op *const *ops, unsigned count)
{
    uint8_t *at = argv_room(a);
    size_t end = 0;
    for (unsigned i = 0; i < count; i++) at = le_put(at, end += ops[i]->buffer->run.len, 4);
    argv_made(a, at);
    for (unsigned i = 0; i < count; i++) {
        argv_join(a);
        argv_add(a, ops[i]->buffer->run);
    }
}

static void put_claimed(struct argv *a, struct op *const *ops, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        argv_add(a, bytes_of(ops[i]->in.token.bytes, sizeof ops[i]->in.token.bytes));
    for (unsigned i = 0; i < count; i++) argv_add(a, blob_bytes(ops[i]->in.value));
}

/* What the script looks for, and what it stores if nothing of that is there. */
void accept_put(struct argv *a, struct op *const *ops, unsigned count)
{
    unsigned flags = accept_flags(ops[0]);
    struct bytes keys = { 0 };
    argv_add(a, bytes_of(NULL, 0));
    struct bytes names = put_names(a, ops, count);
    if (flags & FLAG_KEYED) keys = put_keys(a, ops, count);
    argv_add(a, names);
    if (flags & FLAG_KEYED) {
        put_key_ends(a, ops, count);
        argv_join(a);
        argv_add(a, keys);
    }
    put_runs(a, ops, count);
    if (!(flags & FLAG_UNCLAIMED)) put_claimed(a, ops, count);
}

/* ---- entries ---- */

/* Some entries of a chunk, as the script tells them: a head, and marks of those that are not as they
 * came; their names; where each run ends, counted from `base`, and the runs. */
struct range {
    struct entry like; /* what is the same in all of them */
    size_t count, base;
    const uint8_t *names, *ends, *runs, *marks, *end;
};

static size_t end_of(const struct range *r, size_t i)
{
    return le_take(r->ends + 4 * i, 4) - r->base;
}

static size_t name_bytes(const struct range *r)
{
    return 2 + r->like.env.len + RUN_ID_BYTES;
}

static bool range_unpack(struct bytes head, struct bytes names, struct bytes runs,
                         struct range *ret)
{
    const uint8_t *d = head.data;
    if (head.len < RANGE_HEAD_BYTES || d[0] < ENTRY_QUEUED || d[0] > ENTRY_WRITTEN)
        return false;
    struct range r = { .count = le_take(d + 1, 2),
                       .base = le_take(d + 11, 4),
                       .names = names.data,
                       .ends = runs.data,
                       .marks = d + RANGE_HEAD_BYTES,
                       .end = d + head.len };
    if (r.count == 0 || names.len < 2 || runs.len < 4 * r.count) return false;
    r.like = (struct entry){ .state = d[0],
                             .accepted_at_ms = (int64_t)le_take(d + 3, 8),
                             .env = bytes_of(names.data + 2, names.data[1]) };
    r.runs = r.ends + 4 * r.count;
    if (names.len != r.count * name_bytes(&r)) return false;
    if (runs.len - 4 * r.count != end_of(&r, r.count - 1)) return false;
    *ret = r;
    return true;
}

/* Marks are in the order of the entries: is the next one about this? False: it is none. */
static bool take_mark(struct range *r, size_t i, struct entry *e)
{
    size_t left = (size_t)(r->end - r->marks);
    if (left == 0) return true;
    if (left < MARK_HEAD_BYTES + MARK_BYTES) return false;
    if (le_take(r->marks, 2) != i) return true;
    size_t len = le_take(r->marks + 2, 4);
    const uint8_t *mark = r->marks + MARK_HEAD_BYTES;
    if (len < MARK_BYTES || len > left - MARK_HEAD_BYTES) return false;
    e->rev = le_take(mark, 8);
    e->attempts = (uint32_t)le_take(mark + 8, 4);
    e->changes = bytes_of(mark + MARK_BYTES, len - MARK_BYTES);
    r->marks = mark + len;
    return true;
}

static bool take_entry(struct range *r, size_t i, struct entry *ret)
{
    size_t from = i ? end_of(r, i - 1) : 0, to = end_of(r, i);
    if (from > to || to > end_of(r, r->count - 1)) return false;
    *ret = r->like;
    ret->run = bytes_of(r->runs + from, to - from);
    memcpy(ret->id.text, r->names + (i + 1) * name_bytes(r) - RUN_ID_BYTES, RUN_ID_BYTES);
    ret->id.text[RUN_ID_BYTES] = '\0';
    return take_mark(r, i, ret);
}

static bool is_range(redisReply *const *parts)
{
    for (unsigned i = 0; i < RANGE_PARTS; i++)
        if (parts[i]->type != REDIS_REPLY_STRING) return false;
    return true;
}

bool range_answer(struct op *op, redisReply *const parts[RANGE_PARTS])
{
    struct range range;
    struct entry entry;
    if (!is_range(parts) || !range_unpack(bytes_of(parts[0]->str, parts[0]->len),
                                          bytes_of(parts[1]->str, parts[1]->len),
                                          bytes_of(parts[2]->str, parts[2]->len), &range))
        return false;
    for (size_t i = 0; i < range.count; i++) {
        if (!take_entry(&range, i, &entry)) return false;
        if (entries_add(&op->buffer->entries, &entry) == 0) continue;
        /* What was leased stays so until that lapses, told or not. */
        err_set(&op->err, op->verb == VERB_DRAIN_LEASE ? ERR_AMBIGUOUS : ERR_NOMEM,
                "out of memory for the answer");
        return false;
    }
    return true;
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

static size_t limit_of(const struct op *op)
{
    const struct buffer_ask *ask = op->buffer;
    size_t most = op->verb == VERB_ENTRY_LIST ? LISTED_MAX : ROWS_MAX;
    if (ask->id.text[0]) return 1;
    return ask->limit < most ? ask->limit : most;
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
    bool settles = op->verb == VERB_SETTLE;
    uint8_t *at = le_put(argv_room(a), op->verb - VERB_ACCEPT, 1);
    at = le_put(at, flags_of(op), 1);
    at = le_put(at, settles ? (uint64_t)ask->back_pause_ms : ask->rev, 8);
    at = le_put(at, (uint64_t)(settles ? ask->failed_pause_ms : ask->lease_ms), 8);
    at = bytes_put(at, bytes_of(ask->token.bytes, sizeof ask->token.bytes));
    at = le_put(at, limit_of(op), 4);
    argv_made(a, le_put(at, ask->env_limit < ROWS_MAX ? ask->env_limit : ROWS_MAX, 4));
}

/* The first id that is too late: a chunk that may have it, or a later one, has none that is asked for.
 * Without an id, there is none. */
static uint8_t *list_from_put(uint8_t *at, const struct buffer_ask *ask)
{
    static const uint8_t none[10] = { 0 };
    struct run_id from;
    at = env_put(at, ask->env);
    int64_t ms = run_id_ms(&ask->before) + CHUNK_SPAN_MS + 1;
    if (!ask->before.text[0] || ms >> RUN_ID_TIME_BITS) return at;
    run_id_make(ms, none, &from);
    return bytes_put(at, run_id_bytes(&from));
}

/* What is behind it: who is asked for. */
static uint8_t *subject_put(uint8_t *at, const struct op *op)
{
    const struct buffer_ask *ask = op->buffer;
    if (op->verb == VERB_ENTRY_LIST) return list_from_put(at, ask);
    if (op->verb == VERB_ENTRY_GET && flags_of(op) == FLAG_BY_KEY) return key_name_put(at, ask);
    return ask->id.text[0] ? entry_name_put(at, ask->env, &ask->id) : at;
}

static struct bytes content_of(const struct op *op)
{
    if (op->verb == VERB_SETTLE || op->verb == VERB_DRAIN_LEASE)
        return blob_bytes(op->in.value);
    if (op->verb == VERB_ENTRY_LIST) return run_id_bytes(&op->buffer->before);
    return op->buffer->change;
}

void buffer_send(struct batch *b)
{
    struct argv *a = argv_begin(b, SCRIPT_BUFFER, 2);
    argv_key(a, b, BUFFER_KEY);
    argv_key(a, b, INDEX_KEY);
    argv_made(a, le_put(argv_room(a), (uint64_t)step_now_ms(b->lane->node->redis), 8));
    for (unsigned i = 0; i < b->count; i++) {
        put_op(a, b->ops[i]);
        argv_made(a, subject_put(argv_room(a), b->ops[i]));
        argv_add(a, content_of(b->ops[i]));
    }
    argv_send(a, b);
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
    for (size_t i = REPLY_ENTRIES; rows && fits && i < reply->elements; i += RANGE_PARTS)
        fits = i + RANGE_PARTS <= reply->elements && range_answer(op, reply->element + i);
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
    struct redis *r = b->lane->node->redis;
    const struct gate_ask *ask = b->ops[0]->gate;
    char what[sizeof GATE_KEY + ENV_BYTES_MAX];
    snprintf(what, sizeof what, GATE_KEY "%.*s", (int)ask->env.len,
             ask->env.len ? (const char *)ask->env.data : "");
    struct argv *a = argv_begin(b, SCRIPT_GATE, 1);
    argv_key(a, b, what);
    uint8_t *at = le_put(argv_room(a), (uint64_t)step_now_ms(r), 8);
    at = le_put(at, (uint64_t)ask->config.threshold, 8);
    at = le_put(at, (uint64_t)ask->config.window_ms, 8);
    at = le_put(at, (uint64_t)ask->config.hold_ms, 8);
    argv_made(a, le_put(at, (uint64_t)step_grace_ms(r), 8));
    for (unsigned i = 0; i < b->count; i++) {
        char *count = (char *)argv_room(a);
        argv_made(a, (uint8_t *)count + sprintf(count, "%zu", b->ops[i]->gate->count));
    }
    argv_send(a, b);
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
