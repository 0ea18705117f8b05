/* redis.c - records in Redis: one atomic step per op, decided by redis.lua in the server.
 *
 * Guarantees: the rules, by the server's clock; ops on one key in submit order (but for a slot that
 * a cluster is just moving); every op finished within its deadline (timeout_ms), at once while the
 * server is known not to answer; a watcher is told by the step that changes the record. Does not:
 * survive what the server's persistence does not survive (so it may be coord, never the ledger), or
 * ask again by itself.
 *
 * What waits when a connection is free goes out as one step with up to BATCH_MAX records:
 *
 *   submit --> lane.queued --batch--> conn.sent --reply--> finished --next turn--> the caller
 *                 ^  (again, asking: not carried out)  |
 *                 '------------------------------------'
 *
 * A watch leaves the process's inbox (redis_inbox.c) in the record, in the same step that sees that there is nothing
 * to tell yet; whoever changes the record writes to the inboxes. One subscription per process. */
#include "store/redis.h"

#include "base/check.h"
#include "base/map.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    BATCHES_SINGLE = 2, /* in flight on a connection: while two are under way, more gathers */
    BATCHES_CLUSTER = 256,
    TAKE_MAX = 256, /* how far to look for records of the same shard */
    OP_BYTES = 44,
    RUN_BYTES = 21,
    DUE_LISTS = 12, /* of what lives for a minute, four, sixteen ... ten years */
    DUE_MS_FIRST = 60000,
    GRACE_MS = 60000,
    GRACE_TEST_MS = 86400000, /* of tests that move the clock, back, too */
    KEY_BYTES = 100,          /* of a shard */
    FLAG_FORCE = 1,
    FLAG_VALUE = 2,
    REPLY_OPS = 4, /* where the answers to the ops begin */
    STATUS_OUTCOME = 15,
    STATUS_CHANGED = 16,
    STATUS_TAKEN_OVER = 32,
    STATUS_FAILED = 255,
    SLOTS_AGAIN_MS = 1000,
};

/* ---- finishing ---- */

void redis_finish(struct redis *r, struct op *op)
{
    CHECK(r->in_flight > 0);
    r->in_flight--;
    r->base.loop->owed--;
    list_append(&r->finished, &op->link);
    redis_flush_later(r);
}

void redis_refuse(struct redis *r, struct op *op, int code, const char *text)
{
    op_clear_answer(op);
    err_set(&op->err, code, "%s", text);
    redis_finish(r, op);
}

/* A command that was sent may have counted, unless it could not change anything. */
static void refuse_sent(struct redis *r, struct op *op, const struct err *why)
{
    bool maybe = why->code == ERR_AMBIGUOUS && verb_info[op->verb].writes;
    int code = why->code == ERR_AMBIGUOUS && !maybe ? ERR_UNAVAILABLE : why->code;
    redis_refuse(r, op, code, why->text);
}

static void tell_finished(struct redis *r)
{
    struct list finished;
    list_init(&finished);
    list_take(&finished, &r->finished);
    for (struct link *at; (at = list_pop(&finished));)
        op_finish(container_of(at, struct op, link));
}

/* ---- records and answers ---- */

static uint64_t le(const uint8_t *at, size_t bytes)
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
                                   .done_at_ms = (int64_t)le(d + 4, 8),
                                   .fence = le(d + 12, 8),
                                   .claimed_at_ms = (int64_t)le(d + 20, 8),
                                   .lease_until_ms = (int64_t)le(d + 28, 8),
                                   .retain_ms = (int64_t)le(d + 36, 8),
                                   .lease_ms = (int64_t)le(d + 44, 8) };
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

static void answer_op(struct redis *r, struct op *op, const redisReply *reply, struct moment at)
{
    op_clear_answer(op);
    struct bytes packed = bytes_of(reply->str, reply->len);
    if (reply->type != REDIS_REPLY_STRING || packed.len == 0)
        err_set(&op->err, ERR_CORRUPT, "redis: the script gave an answer of another kind");
    else if (packed.data[0] == STATUS_FAILED)
        err_set(&op->err, ERR_CORRUPT, "redis: the key of this record: %.*s",
                (int)packed.len - 1, packed.data + 1);
    else if (is_whole_frame(op->frame))
        answer_whole(r, op, packed, at);
    else if (op->verb == VERB_CLAIM && packed.len == 1 && packed.data[0] & STATUS_CHANGED)
        answer_granted(r, op, at);
    else if (op->verb == VERB_PUBLISH && packed.data[0] == RECORD_PENDING)
        answer_published(op, packed, at);
    else
        answer_take(op, packed, at);
    if (op->out.outcome != OUTCOME_IN_PROGRESS) op->heard = 0;
    if (op->wants_facts) facts_tell(op, &r->facts);
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

/* ---- batches ---- */

struct batch {
    struct command command;
    struct lane *lane;
    unsigned shard, count;
    bool asking;
    struct op *ops[BATCH_MAX];
};

/* A WATCH that found nothing new, while word came that could be newer. */
static bool is_doubtful(const struct op *op)
{
    if (!op->polled || op->canceled || op->err.code) return false;
    return op->out.version == op->seen;
}

void redis_ask_again(struct redis *r, struct op *op)
{
    op->polled = false;
    op->submitted_ms = r->base.loop->now_ms;
    list_append(&lane_of(r, op)->queued, &op->link);
    redis_flush_later(r);
}

/* A finished or parked op is not awaited any more. */
static void settle(struct redis *r, struct op *op)
{
    struct list out;
    list_init(&out);
    link_remove(&op->link); /* a WATCH in flight is on `asked` */
    if (is_doubtful(op)) {
        redis_ask_again(r, op);
        return;
    }
    watches_settle(&r->watches, op, &out);
    if (op->parked) {
        r->base.loop->owed--;
        inbox_net(r);
    }
    for (struct link *at; (at = list_pop(&out));) {
        struct op *done = container_of(at, struct op, link);
        if (done != op) r->base.loop->owed++; /* it was parked */
        redis_finish(r, done);
    }
}

static void batch_done(struct batch *b, const redisReply *reply)
{
    struct redis *r = b->lane->node->redis;
    struct moment at = { .now_ms = reply->element[0]->integer };
    learn_epoch(r, b->shard, reply->element[1]);
    r->fence_floor = (uint64_t)reply->element[2]->integer;
    r->fence = (uint64_t)reply->element[3]->integer;
    for (unsigned i = 0; i < b->count; i++) {
        answer_op(r, b->ops[i], reply->element[REPLY_OPS + i], at);
        settle(r, b->ops[i]);
    }
}

static void batch_failed(struct batch *b, const struct err *why)
{
    struct redis *r = b->lane->node->redis;
    for (unsigned i = 0; i < b->count; i++) {
        link_remove(&b->ops[i]->link);
        refuse_sent(r, b->ops[i], why);
    }
}

/* None of them was carried out. */
static void batch_requeue(struct batch *b, struct lane *l, struct list *queue)
{
    struct redis *r = l->node->redis;
    for (unsigned i = 0; i < b->count; i++) {
        link_remove(&b->ops[i]->link);
        list_append(queue, &b->ops[i]->link);
    }
    timer_stop(r->base.loop, &l->overdue); /* they are older than what waits there */
    redis_flush_later(r);
}

static void refuse_list(struct redis *r, struct list *ops, int code, const char *text)
{
    for (struct link *at; (at = list_pop(ops));)
        redis_refuse(r, container_of(at, struct op, link), code, text);
}

static void reloaded(struct command *command, struct conn *c, const redisReply *reply,
                     const struct err *why)
{
    struct lane *l = container_of(command, struct lane, reload);
    (void)c;
    if (why) return;
    if (reply->type == REDIS_REPLY_ERROR)
        refuse_list(l->node->redis, &l->again, ERR_UNAVAILABLE, reply->str);
    else
        snprintf(l->conn.sha, sizeof l->conn.sha, "%s", reply->str ? reply->str : "");
}

static void reload_over(struct command *command)
{
    struct lane *l = container_of(command, struct lane, reload);
    l->reloading = false;
    redis_flush_later(l->node->redis);
}

/* SCRIPT FLUSH, or a restart behind a proxy. Every batch that is under way will say the same; the
 * answer to this comes after theirs. */
static void batch_without_script(struct batch *b)
{
    struct lane *l = b->lane;
    batch_requeue(b, l, &l->again);
    if (l->reloading) return;
    l->reloading = true;
    const char *argv[] = { "SCRIPT", "LOAD", redis_script };
    size_t lens[] = { 6, 4, strlen(redis_script) };
    l->reload.deadline_ms =
        l->node->redis->base.loop->now_ms + l->node->redis->options.timeout_ms;
    conn_send(&l->conn, &l->reload, 3, argv, lens);
    conn_flush(&l->conn); /* nothing else will: no batch goes out before the answer */
    conn_watch_deadlines(&l->conn);
}

static void ask_for_slots(struct lane *l);

static void batch_redirected(struct batch *b, const char *text)
{
    struct redis *r = b->lane->node->redis;
    unsigned slot;
    struct node *to = redirected(&b->lane->conn, text, &slot);
    if (!to) {
        batch_failed(b,
                     &(struct err){ .code = ERR_UNAVAILABLE, .text = "redis: moved nowhere" });
        return;
    }
    if (strncmp(text, "ASK", 3) == 0) {
        struct lane *there = &to->lanes[b->lane - b->lane->node->lanes];
        batch_requeue(b, there, &there->asking);
        return;
    }
    r->slots[slot] = to;
    batch_requeue(b, b->lane, &b->lane->again);
    ask_for_slots(b->lane);
}

/* What an error is about. Until 6.2 a script's errors came wrapped: "ERR Error running script (call
 * to f_...): @user_script:9: @user_script: 9: -OOM command not allowed". */
static const char *error_itself(const char *text)
{
    static const char wrapping[] = "ERR Error running script";
    if (strncmp(text, wrapping, strlen(wrapping)) != 0) return text;
    const char *inner = strstr(text, ": -");
    return inner ? inner + 3 : text;
}

bool error_is(const char *text, const char *word)
{
    text = error_itself(text);
    size_t len = strlen(word);
    return strncmp(text, word, len) == 0 && (text[len] == ' ' || !text[len]);
}

/* Said before the script has begun, or by its first write (Redis looks at memory, disk and role
 * then and not again), or by its first read. Anything else may have come after a write, and Redis
 * does not take writes back. */
bool error_did_nothing(const char *text)
{
    static const char *const words[] = { "LOADING",    "BUSY",        "NOAUTH",   "NOPERM",
                                         "READONLY",   "OOM",         "MISCONF",  "NOREPLICAS",
                                         "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "CROSSSLOT",
                                         "WRONGTYPE",  "NOSCRIPT" };
    if (error_is(text, "NOPERM") && strstr(text, "user_script")) return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (error_is(text, words[i])) return true;
    return false;
}

static void batch_refused(struct batch *b, const char *text)
{
    struct err why;
    if (error_is(text, "NOSCRIPT")) {
        batch_without_script(b);
        return;
    }
    if (error_is(text, "MOVED") || error_is(text, "ASK")) {
        batch_redirected(b, text);
        return;
    }
    int code = error_did_nothing(text) ? ERR_UNAVAILABLE : ERR_AMBIGUOUS;
    if (error_is(text, "CORRUPT")) code = ERR_CORRUPT;
    err_set(&why, code, "redis: %.160s", text);
    batch_failed(b, &why);
    /* The name may lead to the new master by now. */
    if (error_is(text, "READONLY"))
        conn_drop(&b->lane->conn, ERR_UNAVAILABLE, "it is a replica");
}

static void batch_answered(struct command *command, struct conn *c, const redisReply *reply,
                           const struct err *why)
{
    struct batch *b = container_of(command, struct batch, command);
    (void)c;
    if (why)
        batch_failed(b, why);
    else if (reply->type == REDIS_REPLY_ERROR)
        batch_refused(b, reply->str);
    else if (reply->type != REDIS_REPLY_ARRAY ||
             reply->elements != REPLY_OPS + (size_t)b->count)
        batch_failed(b, &(struct err){ .code = ERR_AMBIGUOUS,
                                       .text = "redis: an answer of another kind" });
    else
        batch_done(b, reply);
}

static void batch_gone(struct command *command)
{
    struct batch *b = container_of(command, struct batch, command);
    b->lane->batches--;
    redis_flush_later(b->lane->node->redis);
    free(b);
}

/* ---- a batch as a command ---- */

static uint8_t *put_le(uint8_t *at, uint64_t v, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++, v >>= 8) *at++ = (uint8_t)v;
    return at;
}

static uint8_t *put_bytes(uint8_t *at, struct bytes content)
{
    if (content.len) memcpy(at, content.data, content.len);
    return at + content.len;
}

/* The arguments of one command, and the bytes of those that are made for it. */
struct argv {
    const char *at[6 + DUE_LISTS + BATCH_MAX * 4];
    size_t lens[6 + DUE_LISTS + BATCH_MAX * 4];
    int count;
    size_t used;
    uint8_t memory[KEY_BYTES * 2 + DUE_LISTS * 2 +
                   BATCH_MAX * (RUN_BYTES + 2 + OP_BYTES + FINGERPRINT_BYTES_MAX)];
};

static void argv_add(struct argv *a, const void *data, size_t len)
{
    a->at[a->count] = data ? data : "";
    a->lens[a->count++] = len;
}

/* Where the next made one begins. */
static uint8_t *argv_room(struct argv *a)
{
    return a->memory + a->used;
}

static void argv_made(struct argv *a, const uint8_t *end)
{
    size_t len = (size_t)(end - argv_room(a));
    argv_add(a, argv_room(a), len);
    a->used += len;
    CHECK(a->used <= sizeof a->memory);
}

static void put_shard(struct argv *a, const struct redis *r, unsigned shard)
{
    char *at = (char *)argv_room(a);
    argv_made(a, (uint8_t *)at + sprintf(at, "%s:{%u}", r->options.prefix, shard));
}

/* In which list of its shard the script notes what an op leaves behind. A list is in the order of its
 * notes, so what is in it should live about as long. */
static unsigned due_list(const struct op *op)
{
    int64_t life_ms = op->verb == VERB_CLAIM ? op->in.lease_ms + op->in.retain_ms : 0;
    unsigned list = 0;
    for (int64_t ms = DUE_MS_FIRST; ms < life_ms && list < DUE_LISTS - 1; ms *= 4) list++;
    return list;
}

static bool is_noted(const struct op *op)
{
    return op->verb == VERB_CLAIM || op->verb == VERB_WATCH;
}

/* Which lists a batch needs, counted from 1. */
static unsigned lists_number(const struct batch *b, uint8_t number_of[DUE_LISTS])
{
    unsigned count = 0;
    memset(number_of, 0, DUE_LISTS);
    for (unsigned i = 0; i < b->count; i++) {
        unsigned list = due_list(b->ops[i]);
        if (is_noted(b->ops[i]) && !number_of[list]) number_of[list] = (uint8_t)++count;
    }
    return count;
}

static void put_head(struct argv *a, const struct batch *b, unsigned lists)
{
    struct redis *r = b->lane->node->redis;
    int64_t now_ms = r->env.wall_rules ? clock_now_ms(&r->env.wall) : 0;
    size_t prefix_len = strlen(r->options.prefix);
    uint8_t *at = put_le(argv_room(a), (uint64_t)now_ms, 8);
    at = put_le(at, r->env.wall_rules ? GRACE_TEST_MS : GRACE_MS, 8);
    at = put_le(at, rng_u64(r->env.rng) | 1, 8);
    at = put_bytes(at, bytes_of(r->inbox, INBOX_BYTES));
    at = put_le(at, prefix_len, 1);
    at = put_le(at, lists, 1);
    at = put_le(at, b->count, 2);
    argv_made(a, put_bytes(at, bytes_of(r->options.prefix, prefix_len)));
}

static void put_fields(struct argv *a, const struct batch *b,
                       const uint8_t number_of[DUE_LISTS], unsigned lists)
{
    argv_add(a, "", 0);
    for (unsigned number = 1; number <= lists; number++)
        for (unsigned list = 0; list < DUE_LISTS; list++)
            if (number_of[list] == number) argv_made(a, put_le(argv_room(a), list << 8, 2));
    for (unsigned i = 0; i < b->count; i++)
        argv_add(a, b->ops[i]->frame.data, b->ops[i]->frame.len);
}

/* ---- runs: ops that the script can go through without looking at each ---- */

enum run_kind { RUN_CLAIM, RUN_PUBLISH, RUN_OTHER };

static enum run_kind kind_of(const struct op *op)
{
    if (op->verb == VERB_CLAIM && !op->in.force) return RUN_CLAIM;
    if (op->verb == VERB_PUBLISH && op->in.value && op->in.retain_ms < 0) return RUN_PUBLISH;
    return RUN_OTHER;
}

static bool is_alike(const struct op *a, const struct op *b)
{
    enum run_kind kind = kind_of(a);
    if (kind != kind_of(b)) return false;
    if (kind != RUN_CLAIM) return true;
    return a->in.lease_ms == b->in.lease_ms && a->in.retain_ms == b->in.retain_ms &&
           a->waits == b->waits;
}

/* Behind the op at `first` come those that are like it; returns where they end. */
static unsigned run_gather(struct batch *b, unsigned first)
{
    unsigned end = first + 1;
    for (unsigned i = end; i < b->count; i++) {
        if (!is_alike(b->ops[first], b->ops[i])) continue;
        struct op *op = b->ops[i];
        b->ops[i] = b->ops[end];
        b->ops[end++] = op;
    }
    return end;
}

static void put_claim(struct argv *a, const struct op *op)
{
    const struct request *in = &op->in;
    uint8_t *at = put_le(argv_room(a), (uint64_t)in->retain_ms, 8);
    at = put_le(at, (uint64_t)in->lease_ms, 8);
    at = put_bytes(at, bytes_of(in->token.bytes, 16));
    at = put_le(at, in->fingerprint.len, 1);
    argv_made(a, put_bytes(at, in->fingerprint));
}

static void put_value(struct argv *a, const struct op *op)
{
    struct bytes value = blob_bytes(op->in.value);
    argv_add(a, value.data, value.len);
}

static void put_publish(struct argv *a, const struct op *op)
{
    argv_add(a, op->in.token.bytes, sizeof op->in.token.bytes);
    put_value(a, op);
}

static void put_other(struct argv *a, const struct op *op, unsigned list)
{
    const struct request *in = &op->in;
    unsigned flags = (in->force ? FLAG_FORCE : 0) | (in->value ? FLAG_VALUE : 0);
    uint8_t *at = put_le(argv_room(a), op->verb, 1);
    at = put_le(at, flags, 1);
    at = put_le(at, list, 1);
    at = put_bytes(at, bytes_of(in->token.bytes, 16));
    at = put_le(at, (uint64_t)in->lease_ms, 8);
    at = put_le(at, (uint64_t)in->retain_ms, 8);
    at = put_le(at, op->seen, 8);
    at = put_le(at, in->fingerprint.len, 1);
    argv_made(a, put_bytes(at, in->fingerprint));
    if (in->value) put_value(a, op);
}

static void put_run(struct argv *a, const struct batch *b, unsigned first, unsigned end,
                    const uint8_t number_of[DUE_LISTS])
{
    const struct op *op = b->ops[first];
    enum run_kind kind = kind_of(op);
    uint8_t *at = put_le(argv_room(a), kind, 1);
    at = put_le(at, op->waits, 1);
    at = put_le(at, number_of[due_list(op)], 1);
    at = put_le(at, (uint64_t)op->in.lease_ms, 8);
    at = put_le(at, (uint64_t)op->in.retain_ms, 8);
    at = put_le(at, end - first, 2);
    for (unsigned i = first; i < end && kind == RUN_CLAIM; i++)
        at = put_le(at, b->ops[i]->frame.len, 2);
    argv_made(a, at);
    for (unsigned i = first; i < end; i++) {
        op = b->ops[i];
        if (kind == RUN_CLAIM)
            put_claim(a, op);
        else if (kind == RUN_PUBLISH)
            put_publish(a, op);
        else
            put_other(a, op, number_of[due_list(op)]);
    }
}

static void batch_send(struct batch *b)
{
    struct argv a;
    uint8_t number_of[DUE_LISTS];
    unsigned lists = lists_number(b, number_of), ends[BATCH_MAX], runs = 0;
    for (unsigned at = 0; at < b->count; at = ends[runs++]) ends[runs] = run_gather(b, at);
    a.count = 0;
    a.used = 0;
    argv_add(&a, "EVALSHA", 7);
    argv_add(&a, b->lane->conn.sha, strlen(b->lane->conn.sha));
    argv_add(&a, "1", 1);
    put_shard(&a, b->lane->node->redis, b->shard);
    put_head(&a, b, lists);
    put_fields(&a, b, number_of, lists);
    for (unsigned i = 0; i < runs; i++) put_run(&a, b, i ? ends[i - 1] : 0, ends[i], number_of);
    conn_send(&b->lane->conn, &b->command, a.count, a.at, a.lens);
}

static void sent_nothing(struct command *command, struct conn *c, const redisReply *reply,
                         const struct err *why)
{
    (void)command, (void)c, (void)reply, (void)why;
}

static void free_command(struct command *command)
{
    free(command);
}

/* A command whose answer does not matter. */
static void send_plain(struct conn *c, int argc, const char **argv)
{
    size_t lens[4];
    struct command *command = malloc(sizeof *command);
    if (!command) return;
    *command = (struct command){ .answered = sent_nothing,
                                 .gone = free_command,
                                 .deadline_ms = c->redis->base.loop->now_ms +
                                                c->redis->options.timeout_ms };
    link_init(&command->link);
    for (int i = 0; i < argc; i++) lens[i] = strlen(argv[i]);
    conn_send(c, command, argc, argv, lens);
}

/* The frames of a batch. */
struct frames {
    const struct op *ops[BATCH_MAX * 2]; /* by hash; at most half of them are taken */
};

/* False: it was there already. */
static bool frames_add(struct frames *f, const struct redis *r, const struct op *op)
{
    if (op->frame.len == 0) return true; /* about no record */
    size_t slots = sizeof f->ops / sizeof f->ops[0];
    size_t at = (size_t)siphash13(r->seed, op->frame) % slots;
    for (; f->ops[at]; at = (at + 1) % slots)
        if (bytes_eq(f->ops[at]->frame, op->frame)) return false;
    f->ops[at] = op;
    return true;
}

/* Takes the first op and those of its shard, one per record: what is decided twice in a step would
 * have to be read twice. Who is about the whole shard goes alone. */
static void batch_fill(struct batch *b, struct list *queue)
{
    struct redis *r = b->lane->node->redis;
    struct frames frames = { 0 };
    unsigned looked = 0;
    bool alone = false;
    list_each (queue, at) {
        struct op *op = container_of(at, struct op, link);
        unsigned shard = shard_of(r, op->frame);
        bool whole = is_whole_frame(op->frame);
        if (b->count == 0) {
            b->shard = shard;
            alone = whole;
        }
        if (shard == b->shard && (b->count == 0 || !whole) && frames_add(&frames, r, op)) {
            link_remove(at);
            b->ops[b->count++] = op;
            if (op->verb == VERB_WATCH) list_append(&r->asked, &op->link);
            if (op->waits) op->heard = inbox_heard(r);
        }
        if (alone || b->count == BATCH_MAX || ++looked == TAKE_MAX) break;
    }
}

static bool send_some(struct lane *l, struct list *queue, bool asking)
{
    struct batch *b = malloc(sizeof *b);
    if (!b) {
        refuse_list(l->node->redis, queue, ERR_NOMEM, "out of memory; nothing was changed");
        return false;
    }
    *b = (struct batch){ .lane = l, .asking = asking };
    b->command = (struct command){ .answered = batch_answered, .gone = batch_gone };
    link_init(&b->command.link);
    batch_fill(b, queue);
    const struct op *first = b->ops[0];
    b->command.deadline_ms = first->submitted_ms + l->node->redis->options.timeout_ms;
    l->batches++;
    if (asking) send_plain(&l->conn, 1, (const char *[]){ "ASKING" });
    batch_send(b);
    return true;
}

/* ---- lanes ---- */

static bool lane_waits(struct lane *l)
{
    return !list_empty(&l->queued) || !list_empty(&l->asking);
}

static bool lane_holds(struct lane *l)
{
    return lane_waits(l) || !list_empty(&l->again);
}

/* What was sent before and not carried out is older than what waits. */
static void lane_resume(struct lane *l)
{
    if (l->reloading || list_empty(&l->again)) return;
    list_take(&l->again, &l->queued);
    list_take(&l->queued, &l->again);
}

/* Ops that belong elsewhere by now go there. */
static void lane_forward(struct lane *l)
{
    struct redis *r = l->node->redis;
    if (!r->clustered) return;
    list_each (&l->queued, at) {
        struct op *op = container_of(at, struct op, link);
        struct lane *to = lane_of(r, op);
        if (to == l) continue;
        link_remove(at);
        list_append(&to->queued, at);
        timer_stop(r->base.loop, &to->overdue);
        redis_flush_later(r);
    }
}

static void lane_refuse(struct lane *l, const char *text)
{
    struct redis *r = l->node->redis;
    refuse_list(r, &l->again, ERR_UNAVAILABLE, text);
    refuse_list(r, &l->asking, ERR_UNAVAILABLE, text);
    refuse_list(r, &l->queued, ERR_UNAVAILABLE, text);
}

static int64_t first_deadline_ms(const struct redis *r, struct list *ops)
{
    struct link *first = list_first(ops);
    if (!first) return INT64_MAX;
    return container_of(first, struct op, link)->submitted_ms + r->options.timeout_ms;
}

static void lane_watch_deadlines(struct lane *l)
{
    struct redis *r = l->node->redis;
    if (!lane_holds(l) || timer_is_set(&l->overdue)) return;
    int64_t at_ms = first_deadline_ms(r, &l->queued);
    int64_t asking_ms = first_deadline_ms(r, &l->asking);
    int64_t again_ms = first_deadline_ms(r, &l->again);
    if (asking_ms < at_ms) at_ms = asking_ms;
    if (again_ms < at_ms) at_ms = again_ms;
    timer_set(r->base.loop, &l->overdue, at_ms);
}

static void lane_send(struct lane *l)
{
    struct redis *r = l->node->redis;
    unsigned most = r->clustered ? BATCHES_CLUSTER : BATCHES_SINGLE;
    bool sent = false;
    while (!l->reloading && l->batches < most && lane_waits(l)) {
        bool asking = !list_empty(&l->asking);
        if (!send_some(l, asking ? &l->asking : &l->queued, asking)) break;
        sent = true;
    }
    if (!sent) return;
    conn_flush(&l->conn);
    conn_watch_deadlines(&l->conn);
}

static void lane_flush(struct lane *l)
{
    lane_resume(l);
    lane_forward(l);
    if (!lane_holds(l)) {
        timer_stop(l->node->redis->base.loop, &l->overdue);
        return;
    }
    if (conn_refuses(&l->conn)) {
        bool silent = l->conn.state == CONN_READY;
        lane_refuse(l, silent ? "redis: it does not answer now" : l->conn.why.text);
        return;
    }
    conn_use(&l->conn);
    if (l->conn.state == CONN_READY) lane_send(l);
    lane_watch_deadlines(l);
}

/* Were there any? */
static bool drop_overdue(struct redis *r, struct list *ops)
{
    bool any = false;
    list_each (ops, at) {
        struct op *op = container_of(at, struct op, link);
        if (r->base.loop->now_ms < op->submitted_ms + r->options.timeout_ms) continue;
        link_remove(at);
        redis_refuse(r, op, ERR_UNAVAILABLE, "redis: not reached within the deadline");
        any = true;
    }
    return any;
}

static void lane_overdue(struct timer *timer)
{
    struct lane *l = container_of(timer, struct lane, overdue);
    struct redis *r = l->node->redis;
    bool any = drop_overdue(r, &l->again);
    any = drop_overdue(r, &l->asking) || any;
    any = drop_overdue(r, &l->queued) || any;
    if (any) conn_missed(&l->conn);
    redis_flush_later(r);
}

static void ask_for_slots(struct lane *l);

/* A server is away: others know whether one of them has taken its place. */
static void look_for_slots(struct redis *r)
{
    list_each (&r->nodes, at) {
        struct lane *l = &container_of(at, struct node, link)->lanes[0];
        if (l->conn.state == CONN_READY && !l->conn.silent) {
            ask_for_slots(l);
            return;
        }
        conn_use(&l->conn); /* they tell with their greeting */
    }
}

static void lane_ready(struct conn *c)
{
    redis_flush_later(c->redis);
}

static void lane_down(struct conn *c)
{
    struct lane *l = container_of(c, struct lane, conn);
    if (conn_refuses(c)) lane_refuse(l, c->why.text);
    if (c->redis->clustered) look_for_slots(c->redis);
    redis_flush_later(c->redis);
}

static const struct conn_events lane_events = { .ready = lane_ready, .down = lane_down };

void lane_init(struct lane *l, struct node *n)
{
    conn_init(&l->conn, n->redis, &lane_events);
    l->node = n;
    l->conn.host = n->host;
    l->conn.port = n->port;
    if (!*n->host) l->conn.path = n->redis->options.path;
    list_init(&l->queued);
    list_init(&l->asking);
    list_init(&l->again);
    timer_init(&l->overdue, lane_overdue);
    l->reload = (struct command){ .answered = reloaded, .gone = reload_over };
    link_init(&l->reload.link);
}

void lane_fini(struct lane *l)
{
    CHECK(!lane_holds(l));
    timer_stop(l->node->redis->base.loop, &l->overdue);
    conn_fini(&l->conn);
}

static void slots_answered(struct command *command, struct conn *c, const redisReply *reply,
                           const struct err *why)
{
    (void)command;
    if (!why) slots_learn(c, reply);
}

static void ask_for_slots(struct lane *l)
{
    struct redis *r = l->node->redis;
    if (r->base.loop->now_ms < r->slots_asked_ms + SLOTS_AGAIN_MS) return;
    struct command *command = malloc(sizeof *command);
    if (!command) return;
    r->slots_asked_ms = r->base.loop->now_ms;
    *command = (struct command){ .answered = slots_answered,
                                 .gone = free_command,
                                 .deadline_ms = r->base.loop->now_ms + r->options.timeout_ms };
    link_init(&command->link);
    conn_send(&l->conn, command, 2, (const char *[]){ "CLUSTER", "SLOTS" },
              (const size_t[]){ 7, 5 });
    conn_flush(&l->conn); /* what was redirected goes out elsewhere */
    conn_watch_deadlines(&l->conn);
}

/* ---- the store ---- */

static void redis_turn(struct task *task)
{
    struct redis *r = container_of(task, struct redis, turn);
    list_each (&r->nodes, at) {
        struct node *n = container_of(at, struct node, link);
        for (unsigned i = 0; i < r->options.lanes; i++) lane_flush(&n->lanes[i]);
    }
    tell_finished(r);
}

void redis_flush_later(struct redis *r)
{
    task_post(r->base.loop, &r->turn);
}

void redis_enqueue(struct redis *r, struct op *op)
{
    r->in_flight++;
    r->base.loop->owed++;
    op->submitted_ms = r->base.loop->now_ms;
    list_append(&lane_of(r, op)->queued, &op->link);
    redis_flush_later(r);
}

/* A WATCH that has nothing to find. */
static void park(struct redis *r, struct op *op)
{
    r->in_flight++;
    r->base.loop->owed++;
    op_clear_answer(op);
    op->out.version = op->seen;
    op->epoch = r->base.epoch;
    settle(r, op);
}

static void redis_submit(struct store *s, struct op *op)
{
    struct redis *r = (struct redis *)s;
    if (op->verb == VERB_SCAN || op->verb == VERB_STATS || op->verb == VERB_EXPIRE) {
        r->in_flight++;
        s->loop->owed++;
        walk_start(r, op);
        return;
    }
    if (op->verb == VERB_WATCH || op->waits) conn_use(&r->inbox_conn);
    if (op->verb == VERB_WATCH && op->heard && op->heard == inbox_heard(r))
        park(r, op);
    else
        redis_enqueue(r, op);
}

static void redis_cancel(struct store *s, struct op *op)
{
    struct redis *r = (struct redis *)s;
    if (op->verb != VERB_WATCH) return;
    op->canceled = true; /* if it is under way, it will not be parked */
    if (!op->parked) return;
    struct list out;
    list_init(&out);
    watches_cancel(&r->watches, op, &out);
    link_remove(&op->link);
    s->loop->owed++;
    redis_finish(r, op);
}

static void redis_close(struct store *s)
{
    struct redis *r = (struct redis *)s;
    CHECK(r->in_flight == 0 && list_empty(&r->finished));
    nodes_fini(r);
    conn_fini(&r->inbox_conn);
    timer_stop(s->loop, &r->net);
    task_stop(&r->turn);
    redis_options_fini(&r->options);
    free(r);
}

static void redis_init(struct redis *r, const struct store_env *env)
{
    r->env = *env;
    r->base =
        (struct store){ .class = &redis_class, .caps = redis_class.caps, .loop = env->loop };
    r->base.epoch = rng_u64(env->rng);
    r->heard = 1;
    r->slots_asked_ms = -SLOTS_AGAIN_MS;
    env->rng->fill(env->rng, r->inbox, sizeof r->inbox);
    env->rng->fill(env->rng, r->seed, sizeof r->seed);
    list_init(&r->nodes);
    list_init(&r->asked);
    list_init(&r->finished);
    task_init(&r->turn, redis_turn);
    watches_init(&r->watches, (uint64_t[2]){ rng_u64(env->rng), rng_u64(env->rng) });
    inbox_init(r);
}

/* Does not wait for the server: coord may be away, and everything has to go on without it. */
static int redis_open(const char *rest, const struct store_env *env, struct store **ret_store,
                      struct err *reterr)
{
    struct redis *r = calloc(1, sizeof *r);
    if (!r) return err_set(reterr, ERR_NOMEM, "out of memory opening redis:");
    redis_init(r, env);
    int code = redis_options_parse(rest, &r->options, reterr);
    r->base.timeout_ms = r->options.timeout_ms;
    if (!code && env->loop->fd < 0)
        code = err_set(reterr, ERR_UNSUPPORTED, "redis: needs a loop with descriptors");
    if (!code) {
        r->seed_node = node_at(r, r->options.host ? r->options.host : "", r->options.port);
        if (!r->seed_node) code = err_set(reterr, ERR_NOMEM, "out of memory opening redis:");
    }
    if (code) {
        redis_close(&r->base);
        return code;
    }
    r->inbox_conn.host = r->options.host;
    r->inbox_conn.port = r->options.port;
    r->inbox_conn.path = r->options.path;
    *ret_store = &r->base;
    return 0;
}

const struct store_class redis_class = {
    .scheme = "redis",
    .usage = "redis://[user:password@]host[:port][/db]",
    .caps = CAP_CLAIMS | CAP_SHARED | CAP_NOTIFY,
    .open = redis_open,
    .close = redis_close,
    .submit = redis_submit,
    .cancel = redis_cancel,
};
