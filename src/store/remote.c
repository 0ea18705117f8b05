/* remote.c - a daemon as a store: every op is one command of its RESP door.
 *
 * Guarantees: what the daemon's planes guarantee; ops are carried out in submit order; each is
 * finished within its deadline (timeout_ms), at once while the daemon is known not to be there. A
 * write whose answer was lost with the connection is ambiguous, and its owner asks again with the
 * same token (S4). A watch is told by a push on the same connection; if that is lost, it fails, and
 * whoever waits asks again. Questions about runs (RUN_CALL) are told by a push, too, in no order with
 * anything; how long the daemon may wait for one is added to its deadline. The daemon judges leases,
 * by the clock of its planes. Does not: ask again by itself.
 *
 *   submit --> queued --connection--> sent --reply--> finished --end of the turn--> the caller
 *                                       '-- WATCH, RUN_CALL --> watches --push--^ */
#include "store/remote.h"

#include "base/check.h"

#include <stdlib.h>

/* A command whose reply has not come. */
struct sent {
    struct link link;
    struct op *op;    /* NULL: nobody waits for it, or it is told by a push */
    int64_t watch_id; /* of that */
    int64_t deadline_ms;
};

/* What is told by a push. */
struct watch {
    struct map_node node;
    struct remote *remote;
    struct op *op;
    int64_t id;
    struct timer overdue; /* RUN_CALL: a watch may take as long as it likes */
};

/* ---- finishing ---- */

static void flush_later(struct remote *r)
{
    task_post(r->base.loop, &r->turn);
}

/* Its err or out is set. */
static void finish(struct remote *r, struct op *op)
{
    CHECK(r->in_flight > 0);
    r->in_flight--;
    op->parked = false;
    op->watch_id = -1;
    op->epoch = r->base.epoch;
    list_append(&r->finished, &op->link);
    flush_later(r);
}

static void refuse(struct remote *r, struct op *op, int code, const char *text)
{
    op_clear_answer(op);
    err_set(&op->err, code, "%s", text);
    finish(r, op);
}

/* It was sent, and there is no answer. */
static void lose(struct remote *r, struct op *op, const char *text)
{
    refuse(r, op, remote_writes(op) ? ERR_AMBIGUOUS : ERR_UNAVAILABLE, text);
}

static void refuse_queued(struct remote *r, const char *text)
{
    for (struct link *at; (at = list_pop(&r->queued));)
        refuse(r, container_of(at, struct op, link), ERR_UNAVAILABLE, text);
}

/* ---- watches ---- */

static struct bytes watch_key(const struct map_node *n)
{
    const struct watch *w = container_of(n, struct watch, node);
    return bytes_of(&w->id, sizeof w->id);
}

static struct watch *watch_find(const struct remote *r, int64_t id)
{
    struct map_node *n = map_find(&r->watches, bytes_of(&id, sizeof id));
    return n ? container_of(n, struct watch, node) : NULL;
}

/* The op of it, which is nobody's watch any more. */
static struct op *watch_end(struct remote *r, struct watch *w)
{
    struct op *op = w->op;
    map_remove(&r->watches, &w->node);
    timer_stop(r->base.loop, &w->overdue);
    free(w);
    return op;
}

static void unwatch(struct remote *r, int64_t id);

/* The others on the connection may be fine. */
static void watch_overdue(struct timer *timer)
{
    struct watch *w = container_of(timer, struct watch, overdue);
    struct remote *r = w->remote;
    int64_t id = w->id;
    lose(r, watch_end(r, w), "the daemon does not answer in time");
    unwatch(r, id);
}

static bool watch_begin(struct remote *r, struct op *op)
{
    struct watch *w = malloc(sizeof *w);
    if (!w) return false;
    *w = (struct watch){ .remote = r, .op = op, .id = ++r->watch_ids };
    op->watch_id = w->id;
    map_insert(&r->watches, &w->node);
    timer_init(&w->overdue, watch_overdue);
    if (op->verb == VERB_RUN_CALL)
        timer_set(r->base.loop, &w->overdue,
                  op->submitted_ms + wire_run_wait_ms(op->call->args) + r->options.timeout_ms);
    return true;
}

static bool watch_lost(struct map_node *n, void *ctx)
{
    struct remote *r = ctx;
    struct op *op = watch_end(r, container_of(n, struct watch, node));
    lose(r, op, r->conn.why.text);
    return true;
}

/* The door has taken the watch, or has not. */
static void watch_answered(struct remote *r, int64_t id, const struct heard *h)
{
    struct watch *w = watch_find(r, id);
    if (!w) return; /* told or canceled already */
    if (h->nodes->type == REPLY_ERROR) {
        struct op *op = watch_end(r, w);
        wire_error(op, h);
        finish(r, op);
        return;
    }
    w->op->parked = w->op->verb == VERB_WATCH;
}

static void pushed(struct remote *r, const struct heard *h)
{
    int64_t id;
    struct watch *w = wire_pushed(h, &id) ? watch_find(r, id) : NULL;
    if (!w) return; /* it was canceled meanwhile */
    struct op *op = watch_end(r, w);
    if (wire_told(op, h))
        finish(r, op);
    else
        lose(r, op, "the push makes no sense");
}

/* ---- sending ---- */

static struct sent *sent_new(struct remote *r)
{
    struct sent *s = malloc(sizeof *s);
    if (!s) return NULL;
    *s = (struct sent){ 0 };
    link_init(&s->link);
    list_append(&r->sent, &s->link);
    return s;
}

static void sent_free(struct sent *s)
{
    link_remove(&s->link);
    free(s);
}

/* What this daemon would not take: 0, or why. */
static int check_op(const struct remote *r, const struct op *op, struct err *reterr)
{
    size_t value_bytes = op->verb == VERB_PUBLISH ? blob_bytes(op->in.value).len : 0;
    if (op->verb == VERB_RUN_CALL) return wire_run_check(op->call->args, &r->hello, reterr);
    if (op->verb == VERB_MUTATION)
        return wire_mutation_check(op->mutation->args, &r->hello, reterr);
    if (value_bytes <= (uint64_t)r->hello.value_bytes_max) return 0;
    return err_set(reterr, ERR_LIMIT,
                   "the value is longer than the daemon keeps: publish without it");
}

static void send_op(struct remote *r, struct op *op)
{
    bool later = op->verb == VERB_WATCH || op->verb == VERB_RUN_CALL;
    struct err err;
    if (check_op(r, op, &err)) {
        refuse(r, op, err.code, err.text);
        return;
    }
    struct sent *s = sent_new(r);
    if (s && later && !watch_begin(r, op)) {
        sent_free(s);
        s = NULL;
    }
    if (s && !wire_command(&r->conn.out, op, op->watch_id)) {
        if (later) watch_end(r, watch_find(r, op->watch_id));
        sent_free(s);
        s = NULL;
    }
    if (!s) {
        refuse(r, op, ERR_NOMEM, "out of memory; nothing was changed");
        return;
    }
    s->op = later ? NULL : op;
    s->watch_id = later ? op->watch_id : 0;
    s->deadline_ms = op->submitted_ms + r->options.timeout_ms;
}

static void watch_deadlines(struct remote *r)
{
    struct link *sent = list_first(&r->sent), *queued = list_first(&r->queued);
    int64_t at_ms = INT64_MAX;
    if (sent) at_ms = container_of(sent, struct sent, link)->deadline_ms;
    if (queued) {
        const struct op *op = container_of(queued, struct op, link);
        int64_t queued_ms = op->submitted_ms + r->options.timeout_ms;
        if (queued_ms < at_ms) at_ms = queued_ms;
    }
    if (at_ms == INT64_MAX)
        timer_stop(r->base.loop, &r->overdue);
    else
        timer_set(r->base.loop, &r->overdue, at_ms);
}

static void flush(struct remote *r)
{
    if (list_empty(&r->queued)) return;
    if (remote_conn_refuses(r)) {
        refuse_queued(r, r->conn.why.text);
        return;
    }
    remote_conn_use(r);
    if (r->conn.state != REMOTE_READY) return;
    for (struct link *at; (at = list_pop(&r->queued));)
        send_op(r, container_of(at, struct op, link));
    remote_conn_flush(r);
}

static void remote_turn(struct task *task)
{
    struct remote *r = container_of(task, struct remote, turn);
    flush(r);
    ops_finish(&r->finished);
    watch_deadlines(r);
}

/* ---- from the connection ---- */

void remote_ready(struct remote *r)
{
    r->base.caps &= ~(unsigned)CAP_DURABLE;
    if (r->hello.durable) r->base.caps |= CAP_DURABLE;
    flush_later(r);
}

void remote_down(struct remote *r)
{
    for (struct link *at; (at = list_first(&r->sent));) {
        struct sent *s = container_of(at, struct sent, link);
        if (s->op) lose(r, s->op, r->conn.why.text);
        sent_free(s);
    }
    map_each(&r->watches, watch_lost, r);
    flush_later(r);
}

static void answered(struct remote *r, struct op *op, const struct heard *h)
{
    if (wire_error(op, h) || wire_answer(op, h)) {
        finish(r, op);
        return;
    }
    lose(r, op, "the answer of the daemon cannot be read");
}

void remote_heard(struct remote *r, const struct heard *h)
{
    if (h->nodes->type == REPLY_PUSH) {
        pushed(r, h);
        return;
    }
    struct link *first = list_first(&r->sent);
    if (!first) {
        remote_conn_drop(r, "an answer that nobody asked for");
        return;
    }
    struct sent *s = container_of(first, struct sent, link);
    struct op *op = s->op;
    int64_t watch_id = s->watch_id;
    sent_free(s);
    if (op)
        answered(r, op, h);
    else if (watch_id)
        watch_answered(r, watch_id, h);
    flush_later(r);
}

/* What is not answered in time will not be: the answers come in order. */
static void overdue(struct timer *timer)
{
    struct remote *r = container_of(timer, struct remote, overdue);
    int64_t now_ms = r->base.loop->now_ms;
    struct link *first = list_first(&r->sent);
    if (first && now_ms >= container_of(first, struct sent, link)->deadline_ms)
        remote_conn_drop(r, "it does not answer in time");
    list_each (&r->queued, at) {
        struct op *op = container_of(at, struct op, link);
        if (now_ms < op->submitted_ms + r->options.timeout_ms) break;
        link_remove(at);
        refuse(r, op, ERR_UNAVAILABLE, "the daemon was not reached in time");
    }
    flush_later(r);
}

/* ---- the store ---- */

static void remote_submit(struct store *s, struct op *op)
{
    struct remote *r = (struct remote *)s;
    r->in_flight++;
    op->watch_id = 0;
    list_append(&r->queued, &op->link);
    flush_later(r);
}

/* The reply is not waited for by anybody. Without memory, the door pushes what nobody hears. */
static void unwatch(struct remote *r, int64_t id)
{
    struct sent *s = sent_new(r);
    if (!s) return;
    s->deadline_ms = r->base.loop->now_ms + r->options.timeout_ms;
    if (wire_unwatch(&r->conn.out, id))
        remote_conn_flush(r);
    else
        sent_free(s);
}

/* It may have leased something already: what the daemon says to this is its answer. */
static void cancel_lease(struct remote *r, struct watch *w)
{
    int64_t by_ms = r->base.loop->now_ms + r->options.timeout_ms;
    timer_set(r->base.loop, &w->overdue, by_ms);
    unwatch(r, w->id);
}

static void remote_cancel(struct store *s, struct op *op)
{
    struct remote *r = (struct remote *)s;
    bool call = op->verb == VERB_RUN_CALL;
    if ((op->verb != VERB_WATCH && !call) || op->canceled) return;
    op->canceled = true;
    int64_t id =
        op->watch_id; /* 0: it waits to be sent; -1: it is finished, and about to be told */
    if (id < 0) return;
    struct watch *w = id ? watch_find(r, id) : NULL;
    if (call && w) {
        if (op->call->args->question == ASK_LEASE) cancel_lease(r, w);
        return;
    }
    if (w) watch_end(r, w);
    link_remove(&op->link);
    refuse(r, op, ERR_CANCELED, "it was canceled");
    if (w) unwatch(r, id);
}

static void remote_close(struct store *s)
{
    struct remote *r = (struct remote *)s;
    CHECK(r->in_flight == 0 && list_empty(&r->finished) && r->watches.count == 0);
    remote_conn_fini(r);
    for (struct link *at; (at = list_first(&r->sent));)
        sent_free(container_of(at, struct sent, link));
    timer_stop(s->loop, &r->overdue);
    task_stop(&r->turn);
    map_fini(&r->watches);
    remote_tls_forget(r->tls);
    remote_options_fini(&r->options);
    free(r);
}

static void remote_init(struct remote *r, const struct store_class *class,
                        const struct store_env *env)
{
    r->env = *env;
    r->base = (struct store){ .class = class, .caps = class->caps, .loop = env->loop };
    r->base.epoch = rng_u64(env->rng) | 1;
    list_init(&r->queued);
    list_init(&r->sent);
    list_init(&r->finished);
    task_init(&r->turn, remote_turn);
    timer_init(&r->overdue, overdue);
    remote_conn_init(r);
}

static int settle_options(struct remote *r, const char *rest, bool tls, struct err *reterr)
{
    int code = remote_options_parse(rest, &r->options, reterr);
    if (code) return code;
    if (!tls && r->options.ca)
        return err_set(reterr, ERR_INVALID, "url: ca is for onces://, which is TLS");
    if (tls && r->options.path)
        return err_set(reterr, ERR_INVALID, "url: a socket needs no TLS: write once://PATH");
    return tls ? remote_tls_prepare(r->options.ca, &r->tls, reterr) : 0;
}

/* Does not wait for the daemon: the first op finds out. */
static int open_as(const struct store_class *class, const char *rest,
                   const struct store_env *env, struct store **ret_store, struct err *reterr)
{
    struct remote *r = calloc(1, sizeof *r);
    if (!r) return err_set(reterr, ERR_NOMEM, "out of memory opening once:");
    remote_init(r, class, env);
    int code = settle_options(r, rest, class == &remote_tls_class, reterr);
    r->base.timeout_ms = r->options.timeout_ms;
    if (!code && env->loop->fd < 0)
        code = err_set(reterr, ERR_UNSUPPORTED, "url: a daemon needs a loop with descriptors");
    uint64_t seed[2] = { rng_u64(env->rng), rng_u64(env->rng) };
    if (!code && map_init(&r->watches, watch_key, seed))
        code = err_set(reterr, ERR_NOMEM, "out of memory opening once:");
    if (code) {
        remote_close(&r->base);
        return code;
    }
    *ret_store = &r->base;
    return 0;
}

static int remote_open(const char *rest, const struct store_env *env, struct store **ret_store,
                       struct err *reterr)
{
    return open_as(&remote_class, rest, env, ret_store, reterr);
}

static int remote_tls_class_open(const char *rest, const struct store_env *env,
                                 struct store **ret_store, struct err *reterr)
{
    return open_as(&remote_tls_class, rest, env, ret_store, reterr);
}

const struct store_class remote_class = {
    .scheme = "once",
    .usage = "once://[token@]host[:port]",
    .caps = CAP_CLAIMS | CAP_SHARED | CAP_NOTIFY | CAP_CALLS,
    .open = remote_open,
    .close = remote_close,
    .submit = remote_submit,
    .cancel = remote_cancel,
};

const struct store_class remote_tls_class = {
    .scheme = "onces",
    .usage = "onces://[token@]host[:port][?ca=FILE]",
    .caps = CAP_CLAIMS | CAP_SHARED | CAP_NOTIFY | CAP_CALLS,
    .open = remote_tls_class_open,
    .close = remote_close,
    .submit = remote_submit,
    .cancel = remote_cancel,
};
