/* redis_step.c - a batch as a call of a script, and what its answer says of each op.
 *
 * Here and in redis.lua are the two ends of one format: ARGV, a packed record, an answer. */
#include "store/redis.h"

#include "base/check.h"

#include <stdio.h>

enum {
    GRACE_MS = 60000,
    GRACE_TEST_MS = 86400000, /* of tests that move the clock, back, too */
    REPLY_OPS = 4,            /* where the answers to the ops begin */
    FLAG_FORCE = 1,
    FLAG_VALUE = 2,
    STATUS_OUTCOME = 15,
    STATUS_CHANGED = 16,
    STATUS_TAKEN_OVER = 32,
    STATUS_STORED = 64,
    STATUS_FAILED = 255,
};

/* ---- answers ---- */

uint64_t le_take(const uint8_t *at, size_t bytes)
{
    uint64_t v = 0;
    for (size_t i = bytes; i-- > 0;) v = v << 8 | at[i];
    return v;
}

bool record_unpack(struct bytes packed, struct record *ret_record, struct bytes *ret_value,
                   bool *ret_kept)
{
    const uint8_t *d = packed.data;
    if (packed.len < HEADER_BYTES) return false;
    *ret_record = (struct record){ .state = d[0],
                                   .done_at_ms = (int64_t)le_take(d + 4, 8),
                                   .fence = le_take(d + 12, 8),
                                   .claimed_at_ms = (int64_t)le_take(d + 20, 8),
                                   .lease_until_ms = (int64_t)le_take(d + 28, 8),
                                   .retain_ms = (int64_t)le_take(d + 36, 8),
                                   .lease_ms = (int64_t)le_take(d + 44, 8) };
    memcpy(ret_record->token.bytes, d + 52, 16);
    *ret_kept = d[1];
    *ret_value = bytes_of(d + HEADER_BYTES, packed.len - HEADER_BYTES);
    return d[0] == RECORD_PENDING || d[0] == RECORD_DONE;
}

/* What the script says of one op: status, header, value. */
static int answer_take(struct op *op, struct bytes packed, struct moment at)
{
    struct record record;
    struct bytes value = { 0 };
    bool kept = false;
    unsigned status = packed.data[0];
    struct verdict v = { .outcome = status & STATUS_OUTCOME,
                         .taken_over = status & STATUS_TAKEN_OVER };
    bool there =
        record_unpack(bytes_of(packed.data + 1, packed.len - 1), &record, &value, &kept);
    if (there && kept) {
        record.value = v.outcome == OUTCOME_OK ? blob_ref(op->in.value) : blob_new(value);
        if (!record.value) return err_set(&op->err, ERR_NOMEM, "out of memory for the answer");
    }
    op->changed = status & STATUS_CHANGED;
    if (op->changed) v.change = there ? CHANGE_PUT : CHANGE_DROP;
    if (there) v.next = record;
    op->out = rules_answer(&v, there ? &record : NULL, &op->in, at);
    if (there && !op->out.value) blob_unref(record.value);
    return 0;
}

static void answer_changed(struct op *op, enum outcome outcome, struct record record,
                           struct moment at)
{
    struct verdict v = { .outcome = outcome, .change = CHANGE_PUT, .next = record };
    op->changed = true;
    op->out = rules_answer(&v, &record, &op->in, at);
}

/* A claim of a new key: the status alone. */
static void answer_granted(struct redis *r, struct op *op, struct moment at)
{
    const struct request *in = &op->in;
    struct record record = { .state = RECORD_PENDING,
                             .token = in->token,
                             .fence = r->fence,
                             .claimed_at_ms = at.now_ms,
                             .lease_ms = in->lease_ms,
                             .lease_until_ms = at.now_ms + in->lease_ms,
                             .retain_ms = in->retain_ms };
    answer_changed(op, OUTCOME_CLAIMED, record, at);
}

/* A publish: what was pending until then. */
static void answer_published(struct op *op, struct bytes packed, struct moment at)
{
    struct record record;
    struct bytes none;
    bool kept;
    if (!record_unpack(packed, &record, &none, &kept)) {
        err_set(&op->err, ERR_CORRUPT, "redis: the script gave an answer of another kind");
        return;
    }
    record.state = RECORD_DONE;
    record.done_at_ms = at.now_ms;
    if (op->in.retain_ms >= 0) record.retain_ms = op->in.retain_ms;
    record.value = blob_ref(op->in.value);
    answer_changed(op, OUTCOME_OK, record, at);
    if (!op->out.value) blob_unref(record.value);
}

/* What the script says of a whole shard is for the walk. */
static void answer_whole(struct redis *r, struct op *op, struct bytes packed, struct moment at)
{
    op->out.outcome = OUTCOME_OK;
    op->stats.now_ms = at.now_ms;
    op->stats.fence_floor = r->fence_floor;
    op->out.value = blob_new(bytes_of(packed.data + 1, packed.len - 1));
    if (!op->out.value) err_set(&op->err, ERR_NOMEM, "out of memory for the answer");
}

static void answer_accepted(struct op *op, struct bytes packed, struct moment at)
{
    op->buffer->now_ms = at.now_ms;
    if (packed.data[0] == RECORD_PENDING) {
        answer_published(op, packed, at);
        return;
    }
    answer_take(op, packed, at);
    op->changed = packed.data[0] & (STATUS_CHANGED | STATUS_STORED);
}

/* Another entry has the key. */
static void answer_has_key(struct op *op, const redisReply *reply, struct moment at)
{
    op->buffer->now_ms = at.now_ms;
    op->out.outcome = OUTCOME_CACHED;
    bool fits = reply->elements == RANGE_PARTS && range_answer(op, reply->element);
    if (!fits && !op->err.code)
        err_set(&op->err, ERR_CORRUPT, "redis: the script gave an answer of another kind");
}

static void step_answer(struct redis *r, struct op *op, const redisReply *reply,
                        struct moment at)
{
    op_clear_answer(op);
    struct bytes packed = bytes_of(reply->str, reply->len);
    if (op->verb == VERB_ACCEPT && reply->type == REDIS_REPLY_ARRAY)
        answer_has_key(op, reply, at);
    else if (reply->type != REDIS_REPLY_STRING || packed.len == 0)
        err_set(&op->err, ERR_CORRUPT, "redis: the script gave an answer of another kind");
    else if (packed.data[0] == STATUS_FAILED)
        err_set(&op->err, ERR_CORRUPT, "redis: the key of this record: %.*s",
                (int)packed.len - 1, packed.data + 1);
    else if (op->verb == VERB_ACCEPT)
        answer_accepted(op, packed, at);
    else if (is_whole_frame(op->frame))
        answer_whole(r, op, packed, at);
    else if (op->verb == VERB_CLAIM && packed.len == 1 && packed.data[0] & STATUS_CHANGED)
        answer_granted(r, op, at);
    else if (op->verb == VERB_PUBLISH && packed.data[0] == RECORD_PENDING)
        answer_published(op, packed, at);
    else
        answer_take(op, packed, at);
    if (op->out.outcome != OUTCOME_IN_PROGRESS) op->heard = 0;
    if (op->wants_facts) facts_tell_all(op, r);
    op->epoch = r->base.epoch;
}

/* The epoch of a shard goes with its records: another one means that they were forgotten. */
static void learn_epoch(struct redis *r, unsigned shard, const redisReply *reply)
{
    uint64_t epoch;
    if (reply->type != REDIS_REPLY_STRING || reply->len != sizeof epoch) return;
    memcpy(&epoch, reply->str, sizeof epoch);
    if (r->epochs[shard] && r->epochs[shard] != epoch) r->base.epoch = epoch;
    r->epochs[shard] = epoch;
}

/* Of an accept, the epoch of the buffer comes last. */
bool claims_done(struct batch *b, const redisReply *reply)
{
    struct redis *r = b->lane->node->redis;
    bool accepts = b->kind == STEP_ACCEPT;
    if (reply->elements != REPLY_OPS + (size_t)b->count + accepts) return false;
    struct moment at = { .now_ms = reply->element[0]->integer };
    learn_epoch(r, b->shard, reply->element[1]);
    if (accepts) {
        buffer_learn_epoch(r, b->shard, reply->element[REPLY_OPS + b->count]);
        r->work[b->shard] = true;
    }
    r->fence_floor = (uint64_t)reply->element[2]->integer;
    r->fence = (uint64_t)reply->element[3]->integer;
    for (unsigned i = 0; i < b->count; i++) {
        step_answer(r, b->ops[i], reply->element[REPLY_OPS + i], at);
        redis_settle(r, b->ops[i]);
    }
    return true;
}

/* ---- arguments ---- */

extern const char redis_script[], redis_buffer_script[], redis_gate_script[];
const char *const redis_scripts[SCRIPTS] = { redis_script, redis_buffer_script,
                                             redis_gate_script };

uint8_t *le_put(uint8_t *at, uint64_t v, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++, v >>= 8) *at++ = (uint8_t)v;
    return at;
}

uint8_t *bytes_put(uint8_t *at, struct bytes content)
{
    if (content.len) memcpy(at, content.data, content.len);
    return at + content.len;
}

void argv_add(struct argv *a, struct bytes content)
{
    CHECK((size_t)a->count < sizeof a->at / sizeof a->at[0]);
    a->at[a->count] = content.data ? (const char *)content.data : "";
    a->lens[a->count++] = content.len;
}

uint8_t *argv_room(struct argv *a)
{
    return a->memory + a->used;
}

void argv_made(struct argv *a, const uint8_t *end)
{
    size_t len = (size_t)(end - argv_room(a));
    argv_add(a, bytes_of(argv_room(a), len));
    a->used += len;
    CHECK(a->used <= sizeof a->memory);
}

void argv_join(struct argv *a)
{
    a->lens[a->count - 1] |= ARG_GOES_ON;
}

void argv_key(struct argv *a, const struct batch *b, const char *what)
{
    char *at = (char *)argv_room(a);
    const char *prefix = b->lane->node->redis->options.prefix;
    argv_made(a, (uint8_t *)at + sprintf(at, "%s:{%u}%s", prefix, b->shard, what));
}

struct argv *argv_begin(const struct batch *b, enum script script, unsigned keys)
{
    struct argv *a = &b->lane->node->redis->argv;
    a->count = 0;
    a->used = 0;
    argv_add(a, bytes_of("EVALSHA", 7));
    argv_add(a, bytes_str(b->lane->conn.sha[script]));
    argv_made(a, le_put(argv_room(a), '0' + keys, 1));
    return a;
}

void argv_send(struct argv *a, struct batch *b)
{
    conn_send(&b->lane->conn, &b->command, a->count, a->at, a->lens);
}

int64_t step_now_ms(const struct redis *r)
{
    return r->env.wall_rules ? clock_now_ms(&r->env.wall) : 0;
}

int64_t step_grace_ms(const struct redis *r)
{
    return r->env.wall_rules ? GRACE_TEST_MS : GRACE_MS;
}

static void put_head(struct argv *a, const struct batch *b)
{
    struct redis *r = b->lane->node->redis;
    size_t prefix_len = strlen(r->options.prefix);
    uint8_t *at = le_put(argv_room(a), (uint64_t)step_now_ms(r), 8);
    at = le_put(at, (uint64_t)step_grace_ms(r), 8);
    at = le_put(at, rng_u64(r->env.rng) | 1, 8);
    at = bytes_put(at, bytes_of(r->inbox, INBOX_BYTES));
    at = le_put(at, prefix_len, 1);
    at = le_put(at, b->count, 2);
    argv_made(a, bytes_put(at, bytes_of(r->options.prefix, prefix_len)));
}

static void put_fields(struct argv *a, const struct batch *b)
{
    argv_add(a, bytes_of(NULL, 0));
    for (unsigned i = 0; i < b->count; i++) argv_add(a, b->ops[i]->frame);
}

/* ---- runs: ops that the script can go through without looking at each ---- */

enum run_kind { RUN_CLAIM, RUN_PUBLISH, RUN_OTHER, RUN_ACCEPT };

static enum run_kind kind_of(const struct op *op)
{
    if (op->verb == VERB_CLAIM && !op->in.force) return RUN_CLAIM;
    if (op->verb == VERB_PUBLISH && op->in.value && op->in.retain_ms < 0) return RUN_PUBLISH;
    if (op->verb == VERB_ACCEPT) return RUN_ACCEPT;
    return RUN_OTHER;
}

static bool is_alike(const struct op *a, const struct op *b)
{
    enum run_kind kind = kind_of(a);
    if (kind != kind_of(b)) return false;
    if (kind == RUN_ACCEPT) return accept_alike(a, b);
    if (kind != RUN_CLAIM) return true;
    return a->in.lease_ms == b->in.lease_ms && a->in.retain_ms == b->in.retain_ms &&
           a->waits == b->waits;
}

/* Behind the op at `first` come those that are like it; returns where they end. All others, too, stay in
 * their order: it is that of an env's entries. */
static unsigned run_gather(struct batch *b, unsigned first)
{
    unsigned end = first + 1;
    bool accepts = b->kind == STEP_ACCEPT;
    struct chunk chunk = { 0 };
    if (accepts) chunk_takes(&chunk, b->ops[first]);
    for (unsigned i = end; i < b->count; i++) {
        struct op *op = b->ops[i];
        if (!is_alike(b->ops[first], op)) continue;
        if (accepts && !chunk_takes(&chunk, op)) break;
        memmove(b->ops + end + 1, b->ops + end, (i - end) * sizeof *b->ops);
        b->ops[end++] = op;
    }
    return end;
}

static void put_claim(struct argv *a, const struct op *op)
{
    const struct request *in = &op->in;
    uint8_t *at = le_put(argv_room(a), (uint64_t)in->retain_ms, 8);
    at = le_put(at, (uint64_t)in->lease_ms, 8);
    at = bytes_put(at, bytes_of(in->token.bytes, 16));
    at = le_put(at, in->fingerprint.len, 1);
    argv_made(a, bytes_put(at, in->fingerprint));
}

static void put_value(struct argv *a, const struct op *op)
{
    argv_add(a, blob_bytes(op->in.value));
}

static void put_publish(struct argv *a, const struct op *op)
{
    argv_add(a, bytes_of(op->in.token.bytes, sizeof op->in.token.bytes));
    put_value(a, op);
}

static void put_other(struct argv *a, const struct op *op)
{
    const struct request *in = &op->in;
    unsigned flags = (in->force ? FLAG_FORCE : 0) | (in->value ? FLAG_VALUE : 0);
    uint8_t *at = le_put(argv_room(a), op->verb, 1);
    at = le_put(at, flags, 1);
    at = bytes_put(at, bytes_of(in->token.bytes, 16));
    at = le_put(at, (uint64_t)in->lease_ms, 8);
    at = le_put(at, (uint64_t)in->retain_ms, 8);
    at = le_put(at, op->verb == VERB_FORGET ? in->seen : op->seen, 8);
    at = le_put(at, in->fingerprint.len, 1);
    argv_made(a, bytes_put(at, in->fingerprint));
    if (in->value) put_value(a, op);
}

static void put_run(struct argv *a, const struct batch *b, unsigned first, unsigned end)
{
    const struct op *op = b->ops[first];
    enum run_kind kind = kind_of(op);
    uint8_t *at = le_put(argv_room(a), kind, 1);
    at = le_put(at, kind == RUN_ACCEPT ? accept_flags(op) : op->waits, 1);
    at = le_put(at, (uint64_t)op->in.lease_ms, 8);
    at = le_put(at, (uint64_t)op->in.retain_ms, 8);
    at = le_put(at, end - first, 2);
    for (unsigned i = first; i < end; i++) at = le_put(at, b->ops[i]->frame.len, 2);
    if (kind == RUN_ACCEPT) at = accept_bounds(at, b->ops + first, end - first);
    argv_made(a, at);
    if (kind == RUN_ACCEPT) {
        accept_put(a, b->ops + first, end - first);
        return;
    }
    for (unsigned i = first; i < end; i++) {
        if (kind == RUN_CLAIM)
            put_claim(a, b->ops[i]);
        else if (kind == RUN_PUBLISH)
            put_publish(a, b->ops[i]);
        else
            put_other(a, b->ops[i]);
    }
}

/* The buffer is named by those who need it: a step of claims alone has one key, which is always
 * whole. */
static void claims_send(struct batch *b)
{
    unsigned ends[BATCH_MAX], runs = 0;
    for (unsigned at = 0; at < b->count; at = ends[runs++]) ends[runs] = run_gather(b, at);
    struct argv *a = argv_begin(b, SCRIPT_CLAIMS, b->kind == STEP_ACCEPT ? 3 : 1);
    argv_key(a, b, "");
    if (b->kind == STEP_ACCEPT) {
        argv_key(a, b, BUFFER_KEY);
        argv_key(a, b, INDEX_KEY);
    }
    put_head(a, b);
    put_fields(a, b);
    for (unsigned i = 0; i < runs; i++) put_run(a, b, i ? ends[i - 1] : 0, ends[i]);
    argv_send(a, b);
}

/* ---- kinds of steps ---- */

enum step_kind step_kind(enum verb verb)
{
    if (verb == VERB_ACCEPT) return STEP_ACCEPT;
    if (verb == VERB_GATE) return STEP_GATE;
    return verb_is_buffer(verb) ? STEP_BUFFER : STEP_CLAIMS;
}

static const struct {
    enum script script;
    void (*send)(struct batch *);
    bool (*done)(struct batch *, const redisReply *);
} steps[] = {
    [STEP_CLAIMS] = { SCRIPT_CLAIMS, claims_send, claims_done },
    [STEP_ACCEPT] = { SCRIPT_CLAIMS, claims_send, claims_done },
    [STEP_BUFFER] = { SCRIPT_BUFFER, buffer_send, buffer_done },
    [STEP_GATE] = { SCRIPT_GATE, gate_send, gate_done },
};

enum script step_script(enum step_kind kind)
{
    return steps[kind].script;
}

void step_send(struct batch *b)
{
    steps[b->kind].send(b);
}

bool step_done(struct batch *b, const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && steps[b->kind].done(b, reply);
}
