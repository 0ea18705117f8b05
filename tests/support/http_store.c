/* http_store.c - see http_store.h.
 *
 * Guarantees: ops are carried out in submit order, one after the other; each by a request of its own
 * on a connection that does nothing else meanwhile. Watches are long polls, and do not hold up what
 * is behind them. What HTTP has no words for (expire, stats, ping) is asked of the daemon's store, in
 * its turn.
 *
 *   submit --> queued --> busy, on a connection --answer--> finished --next turn--> the caller */
#include "tests/support/http_store.h"

#include "base/check.h"
#include "tests/support/http_client.h"
#include "tests/support/http_wire.h"

#include <stdlib.h>

struct http_store {
    struct store base;
    struct daemon *daemon;
    struct list queued, finished; /* struct op */
    struct list idle, busy;       /* struct lane */
    const struct op *current;     /* what is queued waits for it; NULL: for nothing */
    struct task turn;
    size_t in_flight;
};

struct lane {
    struct link link;
    struct http_client client;
    struct http_store *store;
    struct op *op; /* of a busy one */
};

/* ---- finishing ---- */

static void finish(struct http_store *h, struct op *op)
{
    h->in_flight--;
    op->watch_id = -1;
    op->epoch = h->base.epoch;
    if (h->current == op) h->current = NULL;
    list_append(&h->finished, &op->link);
    task_post(h->base.loop, &h->turn);
}

static void refuse(struct http_store *h, struct op *op, int code, const char *text)
{
    op_clear_answer(op);
    err_set(&op->err, code, "%s", text);
    finish(h, op);
}

static void lose(struct http_store *h, struct op *op, const char *text)
{
    refuse(h, op, verb_info[op->verb].writes ? ERR_AMBIGUOUS : ERR_UNAVAILABLE, text);
}

/* ---- connections ---- */

static void lane_free(struct lane *l)
{
    link_remove(&l->link);
    http_client_close(&l->client);
    free(l);
}

static void heard(struct http_client *c, int status, uint8_t *content, size_t len)
{
    struct lane *l = container_of(c, struct lane, client);
    struct op *op = l->op;
    l->op = NULL;
    link_remove(&l->link);
    list_append(&l->store->idle, &l->link);
    if (http_wire_answer(op, status, content, len))
        finish(l->store, op);
    else
        lose(l->store, op, "the answer of the daemon cannot be read");
}

static void lost(struct http_client *c)
{
    struct lane *l = container_of(c, struct lane, client);
    if (l->op) lose(l->store, l->op, "the connection was lost, or is not HTTP");
    lane_free(l);
}

static struct lane *lane_new(struct http_store *h)
{
    struct lane *l = calloc(1, sizeof *l);
    CHECK(l);
    l->store = h;
    l->client.heard = heard;
    l->client.lost = lost;
    link_init(&l->link);
    http_client_open(&l->client, h->base.loop, daemon_http_socket(h->daemon));
    return l;
}

static struct lane *lane_of(struct http_store *h, const struct op *op)
{
    list_each (&h->busy, at) {
        struct lane *l = container_of(at, struct lane, link);
        if (l->op == op) return l;
    }
    return NULL;
}

/* ---- asking ---- */

static void ask_door(struct http_store *h, struct op *op)
{
    struct link *at = list_pop(&h->idle);
    struct lane *l = at ? container_of(at, struct lane, link) : lane_new(h);
    l->op = op;
    list_append(&h->busy, &l->link);
    http_wire_request(&l->client.out, op);
    http_client_send(&l->client);
}

static void behind_done(struct op *op, void *ctx)
{
    finish(ctx, op);
}

static void ask_behind(struct http_store *h, struct op *op)
{
    op_push(op, behind_done, h);
    store_submit(daemon_store(h->daemon), op);
}

static void turn(struct task *task)
{
    struct http_store *h = container_of(task, struct http_store, turn);
    struct list finished;
    list_init(&finished);
    list_take(&finished, &h->finished);
    for (struct link *at; !h->current && (at = list_pop(&h->queued));) {
        struct op *op = container_of(at, struct op, link);
        if (op->verb != VERB_WATCH) h->current = op;
        op->watch_id = 1;
        if (http_wire_says(op->verb))
            ask_door(h, op);
        else
            ask_behind(h, op);
    }
    for (struct link *at; (at = list_pop(&finished));)
        op_finish(container_of(at, struct op, link));
}

/* ---- the store ---- */

static void http_store_submit(struct store *s, struct op *op)
{
    struct http_store *h = (struct http_store *)s;
    h->in_flight++;
    op->watch_id = 0;
    list_append(&h->queued, &op->link);
    task_post(s->loop, &h->turn);
}

/* Hanging up is how HTTP cancels. */
static void http_store_cancel(struct store *s, struct op *op)
{
    struct http_store *h = (struct http_store *)s;
    if (op->verb != VERB_WATCH || op->watch_id < 0) return;
    struct lane *l = lane_of(h, op);
    if (l) lane_free(l);
    link_remove(&op->link);
    refuse(h, op, ERR_CANCELED, "the watch was canceled");
}

static void http_store_close(struct store *s)
{
    struct http_store *h = (struct http_store *)s;
    CHECK(h->in_flight == 0 && list_empty(&h->finished) && list_empty(&h->busy));
    for (struct link *at; (at = list_first(&h->idle));)
        lane_free(container_of(at, struct lane, link));
    task_stop(&h->turn);
    free(h);
}

static const struct store_class http_class = {
    .scheme = "http",
    .usage = "for tests",
    .caps = CAP_CLAIMS | CAP_SHARED | CAP_NOTIFY,
    .close = http_store_close,
    .submit = http_store_submit,
    .cancel = http_store_cancel,
};

struct store *http_store_open(struct daemon *d, const struct store_env *env)
{
    struct http_store *h = calloc(1, sizeof *h);
    CHECK(h);
    h->base = (struct store){ .class = &http_class,
                              .caps = http_class.caps,
                              .loop = env->loop,
                              .epoch = rng_u64(env->rng) | 1 };
    h->daemon = d;
    list_init(&h->queued);
    list_init(&h->finished);
    list_init(&h->idle);
    list_init(&h->busy);
    task_init(&h->turn, turn);
    return &h->base;
}
