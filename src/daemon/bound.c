/* bound.c - see bound.h. A bound claim is on the list of its connection and in the map, or on the
 * list of those that are being released, or still with whoever asks for it. */
#include "daemon/bound.h"

#include "base/check.h"

#include <stdlib.h>

enum { RELEASE_RETRY_MS = 1000 };

struct bound {
    struct map_node node;
    struct link link;
    struct bounds *all;
    struct timer retry;
    struct token token;
    struct key key; /* views into `frame` */
    uint8_t frame[KEY_FRAME_BYTES_MAX];
};

static struct bytes token_bytes(const struct token *token)
{
    return bytes_of(token->bytes, sizeof token->bytes);
}

static struct bytes bound_token(const struct map_node *n)
{
    return token_bytes(&container_of(n, struct bound, node)->token);
}

static void bound_retry(struct timer *t);

struct bound *bound_new(struct bounds *all, const struct key *key)
{
    struct bound *b = malloc(sizeof *b);
    if (!b) return NULL;
    *b = (struct bound){ .all = all };
    link_init(&b->link);
    timer_init(&b->retry, bound_retry);
    b->key = key_unframe(bytes_of(b->frame, key_frame(key, b->frame)));
    return b;
}

void bound_free(struct bound *b)
{
    if (!b) return;
    link_remove(&b->link);
    timer_stop(b->all->loop, &b->retry);
    free(b);
}

/* ---- releasing ---- */

static void retry_later(struct bound *b)
{
    timer_set(b->all->loop, &b->retry, b->all->loop->now_ms + RELEASE_RETRY_MS);
}

static void released(struct call *call, void *ctx)
{
    struct bound *b = ctx;
    if (call_error(call)->code == 0)
        bound_free(b);
    else
        retry_later(b);
}

static void bound_release(struct bound *b)
{
    struct call_args args = { .verb = VERB_RELEASE,
                              .key = b->key,
                              .in = { .token = b->token },
                              .done = released,
                              .ctx = b };
    struct err err;
    int r = engine_call(b->all->engine, &args, NULL, &err);
    if (r == ERR_NOMEM)
        retry_later(b);
    else if (r)
        bound_free(b); /* the engine stops: nobody renews it any more */
}

static void bound_retry(struct timer *t)
{
    bound_release(container_of(t, struct bound, retry));
}

void bound_give_back(struct bound *b, const struct token *token)
{
    b->token = *token;
    list_append(&b->all->releasing, &b->link);
    bound_release(b);
}

void bounds_drop(struct bounds *all, struct list *of_connection)
{
    for (struct link *at; (at = list_pop(of_connection));) {
        struct bound *b = container_of(at, struct bound, link);
        struct token token = b->token;
        map_remove(&all->by_token, &b->node);
        bound_give_back(b, &token);
    }
}

/* ---- holding ---- */

void bound_hold(struct bound *b, const struct token *token, struct list *of_connection)
{
    b->token = *token;
    list_append(of_connection, &b->link);
    map_insert(&b->all->by_token, &b->node);
}

void bounds_unheard(struct bounds *all, struct call *call)
{
    if (call_error(call)->code || call_op(call)->verb != VERB_CLAIM) return;
    if (call_answer(call)->outcome != OUTCOME_CLAIMED) return;
    struct bound *b = bound_new(all, &call_op(call)->key);
    if (b) bound_give_back(b, call_token(call));
}

static void returned(struct run_call *call, void *ctx)
{
    struct bounds *all = ctx;
    (void)call;
    all->returning--;
}

static void return_run(struct bounds *all, const struct run *r)
{
    struct run_args args = RUN_ARGS_INIT;
    struct run_call *call;
    struct err err;
    args.question = ASK_CHANGE;
    args.env = r->env;
    args.id = r->id;
    args.change = (struct run_change){ .kind = RUN_RETURN, .token = r->token };
    args.done = returned;
    args.ctx = all;
    if (engine_run(all->engine, &args, &call, &err) == 0) all->returning++;
}

void bounds_return_runs(struct bounds *all, const struct run_call *call, size_t first)
{
    if (run_call_error(call)->code) return;
    const struct run_rows *rows = &run_call_answer(call)->rows;
    for (size_t i = first; i < rows->count; i++) return_run(all, rows->rows[i]);
}

void bounds_settled(struct bounds *all, const struct token *token)
{
    if (all->by_token.count == 0) return;
    struct map_node *n = map_find(&all->by_token, token_bytes(token));
    if (!n) return;
    map_remove(&all->by_token, n);
    bound_free(container_of(n, struct bound, node));
}

static void lost(const struct owner *owner, const struct token *token, uint64_t fence,
                 int64_t lease_ms, bool certain)
{
    (void)fence, (void)lease_ms;
    if (certain) bounds_settled(owner->shell, token);
}

struct owner bound_owner(struct bounds *all)
{
    return (struct owner){ .lost = lost, .shell = all };
}

/* ---- life ---- */

int bounds_init(struct bounds *all, struct engine *engine, struct loop *loop, struct rng *rng,
                struct err *reterr)
{
    uint64_t seed[2] = { rng_u64(rng), rng_u64(rng) };
    all->engine = engine;
    all->loop = loop;
    list_init(&all->releasing);
    int r = map_init(&all->by_token, bound_token, seed);
    return r ? err_set(reterr, r, "out of memory opening a door") : 0;
}

void bounds_fini(struct bounds *all)
{
    CHECK(all->by_token.count == 0);
    for (struct link *at; (at = list_first(&all->releasing));)
        bound_free(container_of(at, struct bound, link));
    map_fini(&all->by_token);
}

bool bounds_idle(const struct bounds *all)
{
    return list_empty(&all->releasing) && all->returning == 0;
}
