/* http_batch.c - many triggers in one request.
 *
 *   all items checked --> all asked at once, but for those whose key another one has in front of them
 *                         '--the one in front is answered--> asked       all answered --> the answer
 *
 * Guarantees: nothing is asked unless every item is valid (C9); results are in the order of the items;
 * a key that is there twice is resolved by the first, whatever the stores would make of both at once.
 * The batch is freed when its last item is answered, whether or not anybody still waits for it. */
#include "base/check.h"
#include "daemon/http_runs.h"
#include "daemon/http_runs_args.h"

#include <stdlib.h>

enum { NOBODY = UINT32_MAX };

struct item {
    struct http_batch *batch;
    struct run_call *call; /* NULL: it is not asked, or answered */
    struct run_args *kept; /* NULL, or it waits for its turn */
    struct run *run;       /* what `kept` points into */
    uint32_t next;         /* with the same key; NOBODY: none */
    struct http_triggered result;
};

struct http_batch {
    struct http_exchange *exchange;
    bool canceled;
    size_t count, left; /* left: that are not answered yet */
    struct item items[];
};

/* ---- items that wait for another ---- */

static int keep(struct item *item, const struct run_args *args)
{
    struct run shape = args->run;
    shape.env = args->env;
    item->kept = malloc(sizeof *item->kept);
    item->run = run_copy(&shape);
    if (!item->kept || !item->run)
        return err_set(&item->result.err, ERR_NOMEM, "out of memory; nothing was changed");
    *item->kept = *args;
    item->kept->run = *item->run;
    item->kept->env = item->run->env;
    return 0;
}

static void forget(struct item *item)
{
    free(item->kept);
    run_free(item->run);
    item->kept = NULL;
    item->run = NULL;
}

struct place {
    struct bytes key;
    uint32_t index;
};

static int place_cmp(const void *a, const void *b)
{
    const struct place *one = a, *other = b;
    int order = bytes_cmp(one->key, other->key);
    if (order) return order;
    return one->index < other->index ? -1 : one->index > other->index;
}

/* Chains those of the same key, in their order. False: no memory. */
static bool chain(struct http_batch *b, const struct http_run_args *args, bool *follows)
{
    struct place *places = malloc(b->count * sizeof *places);
    if (!places) return false;
    size_t count = 0;
    for (uint32_t i = 0; i < b->count; i++)
        if (args[i].ask.run.key.len) places[count++] = (struct place){ args[i].ask.run.key, i };
    if (count) qsort(places, count, sizeof *places, place_cmp);
    for (size_t i = 1; i < count; i++) {
        if (!bytes_eq(places[i - 1].key, places[i].key)) continue;
        b->items[places[i - 1].index].next = places[i].index;
        follows[places[i].index] = true;
    }
    free(places);
    return true;
}

/* ---- answering ---- */

static void put_result(struct json_writer *j, const struct http_triggered *t)
{
    json_put_object(j);
    if (http_triggered_well(t)) {
        http_triggered_put(j, t);
    } else {
        struct http_problem p = http_triggered_problem(t);
        json_put_key(j, "error");
        json_put_object(j);
        http_put_problem(j, &p);
        json_end_object(j);
    }
    json_end_object(j);
}

static void answer(struct http_exchange *x, const struct http_batch *b)
{
    struct http_writer w;
    struct json_writer j;
    bool degraded = false;
    http_open(x, &w, 200);
    http_start_json(x, &j);
    json_put_key(&j, "results");
    json_put_array(&j);
    for (size_t i = 0; i < b->count; i++) {
        put_result(&j, &b->items[i].result);
        degraded |= b->items[i].result.degraded;
    }
    json_end_array(&j);
    json_put_key(&j, "degraded");
    json_put_boolean(&j, degraded);
    json_put_key(&j, "waited_ms");
    json_put_integer(&j, x->door->loop->now_ms - x->since_ms);
    http_close_json(x, &w, &j, http_json_type);
}

static void finish(struct http_batch *b)
{
    struct http_exchange *x = b->exchange;
    x->batch = NULL;
    if (x->session)
        answer(x, b);
    else
        http_exchange_drop(x);
    free(b);
}

/* ---- asking ---- */

static void item_over(struct run_call *call, void *ctx);

static bool ask(struct item *item, struct run_args *args)
{
    struct http_exchange *x = item->batch->exchange;
    args->done = item_over;
    args->ctx = item;
    bool gone = !x->session || x->session->conn->peer_ended;
    if (gone) args->wait_ms = 0;
    return engine_run(x->door->engine, args, &item->call, &item->result.err) == 0;
}

/* It was kept until now. False: it is answered, with an error. */
static bool ask_kept(struct item *item)
{
    bool asked = false;
    if (item->batch->canceled)
        err_set(&item->result.err, ERR_CANCELED, "%s", err_text(ERR_CANCELED));
    else if (item->kept)
        asked = ask(item, item->kept);
    forget(item);
    return asked;
}

/* One is answered: whoever waited for it is asked, until one is. */
static void over(struct item *item)
{
    struct http_batch *b = item->batch;
    for (; item; item = item->next == NOBODY ? NULL : &b->items[item->next]) {
        b->left--;
        if (item->next != NOBODY && ask_kept(&b->items[item->next])) return;
    }
}

static void item_over(struct run_call *call, void *ctx)
{
    struct item *item = ctx;
    struct http_batch *b = item->batch;
    item->call = NULL;
    http_triggered_take(call, &item->result);
    over(item);
    if (b->left == 0) finish(b);
}

void http_batch_cancel(struct http_batch *b)
{
    b->canceled = true;
    for (size_t i = 0; i < b->count; i++)
        if (b->items[i].call) run_call_cancel(b->items[i].call);
}

/* ---- the whole ---- */

static struct http_batch *batch_new(struct http_exchange *x, size_t count)
{
    struct http_batch *b = malloc(sizeof *b + count * sizeof b->items[0]);
    if (!b) return NULL;
    *b = (struct http_batch){ .exchange = x, .count = count, .left = count };
    for (size_t i = 0; i < count; i++)
        b->items[i] = (struct item){ .batch = b, .next = NOBODY };
    return b;
}

/* First everything is kept that has to be, then the others are asked, which may fail at once. */
static void ask_all(struct http_batch *b, struct http_run_args *args, const bool *follows)
{
    for (size_t i = 0; i < b->count; i++)
        if (follows[i] && keep(&b->items[i], &args[i].ask)) forget(&b->items[i]);
    for (size_t i = 0; i < b->count; i++)
        if (!follows[i] && !ask(&b->items[i], &args[i].ask)) over(&b->items[i]);
}

static int start(struct http_exchange *x, struct http_run_args *args, size_t count,
                 struct err *reterr)
{
    struct http_batch *b = batch_new(x, count);
    bool *follows = calloc(count, sizeof *follows);
    if (!b || !follows || !chain(b, args, follows)) {
        free(b);
        free(follows);
        return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    }
    x->may_wait = args[0].ask.wait_ms > WAIT_MS_DEFAULT;
    ask_all(b, args, follows);
    free(follows);
    if (b->left == 0) {
        finish(b);
        return 0;
    }
    x->batch = b;
    http_asked(x);
    return 0;
}

void http_batch(struct http_exchange *x, struct http_input *in)
{
    struct http_run_args *args;
    struct err err;
    size_t count;
    int r = http_parse_batch(x->door, in, &args, &count, &err);
    if (!r) {
        r = start(x, args, count, &err);
        free(args);
    }
    if (r) http_answer_error(x, &err);
}
