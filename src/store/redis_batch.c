/* redis_batch.c - what goes out together, and what its answer does to each op.
 *
 * A batch is filled from a queue of its lane and sent as one step (redis_step.c). Its ops are
 * answered, or failed, or put back: not carried out, because the script was not there or their slot
 * had moved. */
#include "store/redis.h"

#include "base/map.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    HALVES_MIN = 16,
    TAKE_MAX = 256, /* how far to look for records of the same shard */
};

/* ---- what was answered ---- */

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
void redis_settle(struct redis *r, struct op *op)
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

/* A command that was sent may have counted, unless it could not change anything. */
static void refuse_sent(struct redis *r, struct op *op, const struct err *why)
{
    bool maybe = why->code == ERR_AMBIGUOUS && verb_info[op->verb].writes;
    int code = why->code == ERR_AMBIGUOUS && !maybe ? ERR_UNAVAILABLE : why->code;
    redis_refuse(r, op, code, why->text);
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

static void reloaded(struct command *command, struct conn *c, const redisReply *reply,
                     const struct err *why)
{
    struct lane *l = container_of(command, struct lane, reload);
    (void)c;
    if (why) return;
    if (reply->type == REDIS_REPLY_ERROR)
        redis_refuse_all(l->node->redis, &l->again, ERR_UNAVAILABLE, reply->str);
    else
        snprintf(l->conn.sha[l->reloaded], SHA_BYTES, "%s", reply->str ? reply->str : "");
}

static void reload_over(struct command *command)
{
    struct lane *l = container_of(command, struct lane, reload);
    l->reloading = false;
    redis_flush_later(l->node->redis);
}

void reload_init(struct lane *l)
{
    l->reload = (struct command){ .answered = reloaded, .gone = reload_over };
    link_init(&l->reload.link);
}

/* SCRIPT FLUSH, or a restart behind a proxy. Every batch that is under way will say the same; the
 * answer to this comes after theirs. */
static void batch_without_script(struct batch *b)
{
    struct lane *l = b->lane;
    batch_requeue(b, l, &l->again);
    if (l->reloading) return;
    l->reloading = true;
    l->reloaded = step_script(b->kind);
    const char *argv[] = { "SCRIPT", "LOAD", redis_scripts[l->reloaded] };
    size_t lens[] = { 6, 4, strlen(argv[2]) };
    l->reload.deadline_ms =
        l->node->redis->base.loop->now_ms + l->node->redis->options.timeout_ms;
    conn_send(&l->conn, &l->reload, 3, argv, lens);
    conn_flush(&l->conn); /* nothing else will: no batch goes out before the answer */
    conn_watch_deadlines(&l->conn);
}

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
    slots_ask(b->lane);
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
    else if (!step_done(b, reply))
        batch_failed(b, &(struct err){ .code = ERR_AMBIGUOUS,
                                       .text = "redis: an answer of another kind" });
}

static void batch_gone(struct command *command)
{
    struct batch *b = container_of(command, struct batch, command);
    b->lane->batches--;
    redis_flush_later(b->lane->node->redis);
    free(b);
}

/* ---- filling a batch ---- */

static void nothing_to_do(struct command *command, struct conn *c, const redisReply *reply,
                          const struct err *why)
{
    (void)command, (void)c, (void)reply, (void)why;
}

/* The frames of a batch. */
struct frames {
    const struct op *ops[BATCH_MAX * 2]; /* by hash; at most half of them are taken */
};

/* False: it was there already. */
static bool frames_add(struct frames *f, const struct redis *r, const struct op *op)
{
    if (op->frame.len == 0) return true; /* about no record */
    if (op->verb == VERB_ACCEPT && op->buffer->unclaimed) return true;
    size_t slots = sizeof f->ops / sizeof f->ops[0];
    size_t at = (size_t)siphash13(r->seed, op->frame) % slots;
    for (; f->ops[at]; at = (at + 1) % slots)
        if (bytes_eq(f->ops[at]->frame, op->frame)) return false;
    f->ops[at] = op;
    return true;
}

/* What starts from nothing under way is sent in two halves, the second when the first is answered.
 * Sent together, they would be answered together, and from then on all would be under way or here at
 * the same time: of server and client one would always be idle. */
static unsigned batch_most(struct lane *l, struct list *queue)
{
    unsigned known = 0;
    if (l->held || l->batches > 0 || l->node->redis->clustered) return BATCH_MAX;
    list_each (queue, at)
        if (++known == 2 * BATCH_MAX) break;
    l->held = known >= HALVES_MIN;
    return l->held ? known / 2 : BATCH_MAX;
}

/* May they share a step? */
static bool is_mate(const struct batch *b, const struct op *op)
{
    if (step_kind(op->verb) != b->kind) return false;
    return b->kind != STEP_GATE || gate_mates(b->ops[0], op);
}

/* Takes the first op and its mates of the same shard, one per record: what is decided twice in a step
 * would have to be read twice. Who is about the whole shard, or lists, goes alone: nobody else waits for
 * all that a step does. */
static void batch_fill(struct batch *b, struct list *queue)
{
    struct redis *r = b->lane->node->redis;
    struct frames frames = { 0 };
    unsigned looked = 0, most = batch_most(b->lane, queue);
    bool alone = false;
    list_each (queue, at) {
        struct op *op = container_of(at, struct op, link);
        unsigned shard = shard_of_op(r, op);
        bool whole = is_whole_frame(op->frame) || op->verb == VERB_ENTRY_LIST;
        if (b->count == 0) {
            b->shard = shard;
            b->kind = step_kind(op->verb);
            alone = whole;
        }
        bool fits = b->count == 0 || (!whole && is_mate(b, op));
        if (shard == b->shard && fits && frames_add(&frames, r, op)) {
            link_remove(at);
            b->ops[b->count++] = op;
            if (op->verb == VERB_WATCH) list_append(&r->asked, &op->link);
            if (op->waits) op->heard = inbox_heard(r);
        }
        if (alone || b->count == most || ++looked == TAKE_MAX) break;
    }
}

bool batch_send(struct lane *l, struct list *queue, bool asking)
{
    struct batch *b = malloc(sizeof *b);
    if (!b) {
        redis_refuse_all(l->node->redis, queue, ERR_NOMEM,
                         "out of memory; nothing was changed");
        return false;
    }
    *b = (struct batch){ .lane = l, .asking = asking };
    b->command = (struct command){ .answered = batch_answered, .gone = batch_gone };
    link_init(&b->command.link);
    batch_fill(b, queue);
    histogram_add(&l->node->redis->batches, &histogram_many, b->count);
    const struct op *first = b->ops[0];
    b->command.deadline_ms = first->submitted_ms + l->node->redis->options.timeout_ms;
    l->batches++;
    if (asking) conn_ask(&l->conn, nothing_to_do, 1, (const char *[]){ "ASKING" });
    step_send(b);
    return true;
}
