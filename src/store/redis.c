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

void redis_refuse_all(struct redis *r, struct list *ops, int code, const char *text)
{
    for (struct link *at; (at = list_pop(ops));)
        redis_refuse(r, container_of(at, struct op, link), code, text);
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
    redis_refuse_all(r, &l->again, ERR_UNAVAILABLE, text);
    redis_refuse_all(r, &l->asking, ERR_UNAVAILABLE, text);
    redis_refuse_all(r, &l->queued, ERR_UNAVAILABLE, text);
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

/* B1: what was accepted is nowhere else, so a server that may drop it is not given it. */
static void refuse_evictable(struct redis *r, struct list *ops)
{
    list_each (ops, at) {
        struct op *op = container_of(at, struct op, link);
        if (op->verb != VERB_ACCEPT) continue;
        link_remove(at);
        redis_refuse(
            r, op, ERR_UNSUPPORTED,
            "redis: it may evict what is accepted: set maxmemory-policy to noeviction, "
            "or say evictable=1 in the URL");
    }
}

static void lane_send(struct lane *l)
{
    struct redis *r = l->node->redis;
    unsigned most = r->clustered ? BATCHES_CLUSTER : BATCHES_SINGLE;
    bool sent = false;
    if (facts_evicts(&l->conn.facts) && !r->options.evictable) {
        refuse_evictable(r, &l->asking);
        refuse_evictable(r, &l->queued);
    }
    if (l->held && l->batches > 0) return;
    while (!l->reloading && l->batches < most && lane_waits(l)) {
        bool asking = !list_empty(&l->asking), second = l->held;
        if (!batch_send(l, asking ? &l->asking : &l->queued, asking)) break;
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

static void lane_ready(struct conn *c)
{
    redis_flush_later(c->redis);
}

static void lane_down(struct conn *c)
{
    struct lane *l = container_of(c, struct lane, conn);
    if (conn_refuses(c)) lane_refuse(l, c->why.text);
    if (c->redis->clustered) slots_look(c->redis);
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
    reload_init(l);
}

void lane_fini(struct lane *l)
{
    CHECK(!lane_holds(l));
    timer_stop(l->node->redis->base.loop, &l->overdue);
    conn_fini(&l->conn);
}

/* ---- the store ---- */

static void redis_turn(struct task *task)
{
    struct redis *r = container_of(task, struct redis, turn);
    list_each (&r->nodes, at) {
        struct node *n = container_of(at, struct node, link);
        for (unsigned i = 0; i < r->options.lanes; i++) lane_flush(&n->lanes[i]);
    }
    ops_finish(&r->finished);
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
    redis_settle(r, op);
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
    if (fan_takes(op)) {
        r->in_flight++;
        s->loop->owed++;
        fan_start(r, op);
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

static void redis_meters(struct store *s, const char *plane, meter_say *say, void *ctx)
{
    const struct redis *r = (const struct redis *)s;
    say(ctx, &(struct meter){ .id = METER_BATCH, .plane = plane, .histogram = &r->batches });
    say(ctx, &(struct meter){ .id = METER_CONNECTS, .plane = plane, .value = r->connects });
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
    r->slots_asked_ms = r->looked_ms = INT64_MIN / 2; /* never */
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
    .caps = CAP_CLAIMS | CAP_SHARED | CAP_NOTIFY | CAP_BUFFER | CAP_GATE | CAP_FRESH,
    .open = redis_open,
    .close = redis_close,
    .submit = redis_submit,
    .cancel = redis_cancel,
    .meters = redis_meters,
};
