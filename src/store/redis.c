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
 * A watch leaves the process's inbox (redis_inbox.c) in the record, in the same step that sees that
 * there is nothing to tell yet; whoever changes the record writes to the inboxes. One subscription
 * per process. */
#include "store/redis.h"

#include "base/check.h"
#include "base/map.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    BATCHES_SINGLE = 2, /* in flight on a connection: while two are under way, more gathers */
    BATCHES_CLUSTER = 256,
    HALVES_MIN = 16,
    TAKE_MAX = 256, /* how far to look for records of the same shard */
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

/* ---- epochs ---- */

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
        step_answer(r, b->ops[i], reply->element[REPLY_OPS + i], at);
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

/* ---- filling a batch ---- */

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

/* Takes the first op and those of its shard, one per record: what is decided twice in a step would
 * have to be read twice. Who is about the whole shard goes alone. */
static void batch_fill(struct batch *b, struct list *queue)
{
    struct redis *r = b->lane->node->redis;
    struct frames frames = { 0 };
    unsigned looked = 0, most = batch_most(b->lane, queue);
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
        if (alone || b->count == most || ++looked == TAKE_MAX) break;
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
    step_send(b);
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
    if (l->held && l->batches > 0) return;
    while (!l->reloading && l->batches < most && lane_waits(l)) {
        bool asking = !list_empty(&l->asking), second = l->held;
        if (!send_some(l, asking ? &l->asking : &l->queued, asking)) break;
        sent = true;
        if (second) l->held = false;
        if (l->held) break;
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
