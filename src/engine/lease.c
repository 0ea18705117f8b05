/* lease.c - leases that this process holds, kept alive while it lives.
 *
 * A held lease is renewed when a third of it has passed, and again and again until it is
 * published, released or lost. The owner is told: `certain` when the store says that it is not
 * the owner any more, and that is the end of it; not certain, and only once, when the lease has
 * run out on our own monotonic clock (counted from before the request that granted it) and no
 * renewal got through.
 *
 * One timer per lease, recomputed from its state (lease_wake_ms). */
#include "base/check.h"
#include "base/museum.h"
#include "engine/internal.h"

#include <stdlib.h>

enum { RENEW_RETRY_MS_MIN = 10, RENEW_RETRY_MS_MAX = 1000 };

struct held {
    struct map_node node;
    struct engine *engine;
    struct op *op; /* the renewal: ours between two of them, the store's while renewing */
    struct timer timer;
    struct token token;
    uint64_t fence;
    int64_t lease_ms, until_ms, asked_ms, retry_ms; /* retry_ms 0: the last renewal worked */
    bool renewing, told, settling; /* settling: its owner is publishing or releasing it */
    bool ended;                    /* forgotten; lives until its renewal comes back */
    struct owner owner;
};

static struct bytes held_token(const struct map_node *n)
{
    const struct held *h = container_of(n, struct held, node);
    return bytes_of(h->token.bytes, sizeof h->token.bytes);
}

int leases_init(struct engine *e)
{
    return map_init(&e->held, held_token, (uint64_t[2]){ rng_u64(e->rng), rng_u64(e->rng) });
}

void leases_fini(struct engine *e)
{
    CHECK(e->held.count == 0);
    map_fini(&e->held);
}

static struct held *held_find(struct engine *e, const struct token *token)
{
    struct map_node *n = map_find(&e->held, bytes_of(token->bytes, sizeof token->bytes));
    return n ? container_of(n, struct held, node) : NULL;
}

static int64_t lease_wake_ms(const struct held *h)
{
    if (h->renewing) return h->until_ms;
    if (h->retry_ms) return h->retry_ms;
    int64_t third_ms = h->lease_ms / 3;
    if (third_ms < RENEW_RETRY_MS_MIN) third_ms = RENEW_RETRY_MS_MIN;
    return h->asked_ms + third_ms;
}

static void held_reset_timer(struct held *h)
{
    bool nothing_to_tell = h->renewing && h->told;
    /* Renewed to zero: over, until the owner renews it again. */
    bool given_up = h->lease_ms == 0 && !BUG(ZERO_RENEWED);
    if (nothing_to_tell || given_up)
        timer_stop(h->engine->loop, &h->timer);
    else
        timer_set(h->engine->loop, &h->timer, lease_wake_ms(h));
}

static void held_free(struct held *h)
{
    op_free(h->op);
    free(h);
}

static void held_end(struct held *h)
{
    struct engine *e = h->engine;
    timer_stop(e->loop, &h->timer);
    map_remove(&e->held, &h->node);
    e->stats.held--;
    h->ended = true;
    if (!h->renewing) held_free(h);
}

static void tell_lost(struct held *h, bool certain)
{
    if (h->told && !certain) return;
    h->told = true;
    if (h->owner.lost) h->owner.lost(&h->owner, &h->token, h->fence, h->lease_ms, certain);
}

static void renew_failed(struct held *h)
{
    struct engine *e = h->engine;
    trace_emit(e->trace, (struct trace_event){ .kind = TRACE_RENEW_FAILED,
                                               .scope = h->op->key.scope,
                                               .key = h->op->key.name,
                                               .number = h->op->err.code,
                                               .text = err_name(h->op->err.code) });
    int64_t pause_ms = h->lease_ms / 10;
    if (pause_ms < RENEW_RETRY_MS_MIN) pause_ms = RENEW_RETRY_MS_MIN;
    if (pause_ms > RENEW_RETRY_MS_MAX) pause_ms = RENEW_RETRY_MS_MAX;
    if (e->loop->now_ms >= h->until_ms) tell_lost(h, false);
    h->retry_ms = e->loop->now_ms + pause_ms;
    held_reset_timer(h);
}

/* Refused, but nothing is lost: the owner itself has just published or released it, and the
 * answer to that is on its way. */
static bool was_settled(const struct held *h)
{
    if (BUG(PUBLISH_LOOKS_LOST)) return false;
    bool gone = h->op->out.fence == 0;
    return h->op->out.mine || (h->settling && gone);
}

static void renew_refused(struct held *h)
{
    struct engine *e = h->engine;
    if (was_settled(h)) {
        held_end(h);
        return;
    }
    e->stats.lost++;
    trace_emit(e->trace, (struct trace_event){ .kind = TRACE_LOST,
                                               .scope = h->op->key.scope,
                                               .key = h->op->key.name,
                                               .number = (int64_t)h->fence,
                                               .text = "renew" });
    tell_lost(h, true);
    held_end(h);
}

static void renew_answered(struct held *h)
{
    struct engine *e = h->engine;
    if (h->op->out.outcome != OUTCOME_OK) {
        renew_refused(h);
        return;
    }
    e->stats.renewals++;
    h->retry_ms = 0;
    h->told = false;
    /* The store knows how long it is: the owner may have changed it without hearing so. */
    h->lease_ms = h->op->out.lease_left_ms;
    h->until_ms = h->asked_ms + h->lease_ms;
    held_reset_timer(h);
}

static void renew_done(struct op *op, void *ctx)
{
    struct held *h = ctx;
    CHECK(h->op == op && h->renewing);
    h->renewing = false;
    if (h->ended)
        held_free(h);
    else if (op->err.code)
        renew_failed(h);
    else
        renew_answered(h);
}

static void held_timer(struct timer *t)
{
    struct held *h = container_of(t, struct held, timer);
    struct engine *e = h->engine;
    if (h->renewing) {
        tell_lost(h, false); /* the answer is still out, the lease is over */
        return;
    }
    if (BUG(RENEWAL_STOPS)) return;
    h->renewing = true;
    h->asked_ms = e->loop->now_ms;
    held_reset_timer(h);
    engine_submit(e, h->op, renew_done, h);
}

/* A lease of zero is over before it could be renewed: it is not held.
 * Without memory the lease is not renewed and simply lapses: the owner is told so at once. */
void lease_hold(struct call *c)
{
    struct engine *e = c->engine;
    if (c->op->in.lease_ms == 0) return;
    struct request in = { .token = c->op->in.token, .lease_ms = -1 };
    struct held *h = malloc(sizeof *h);
    struct op *op = op_new(VERB_RENEW, &c->args.key, &in);
    if (!h || !op) {
        free(h);
        op_free(op);
        const struct owner *owner = &c->args.owner;
        if (owner->lost)
            owner->lost(owner, &in.token, c->op->out.fence, c->op->in.lease_ms, false);
        return;
    }
    *h = (struct held){ .engine = e,
                        .op = op,
                        .token = in.token,
                        .fence = c->op->out.fence,
                        .lease_ms = c->op->in.lease_ms,
                        .asked_ms = c->asked_ms,
                        .until_ms = c->asked_ms + c->op->out.lease_left_ms,
                        .owner = c->args.owner };
    timer_init(&h->timer, held_timer);
    map_insert(&e->held, &h->node);
    e->stats.held++;
    held_reset_timer(h);
}

void lease_extended(struct engine *e, const struct token *token, int64_t asked_ms,
                    int64_t until_ms)
{
    struct held *h = held_find(e, token);
    if (!h) return;
    h->lease_ms = until_ms - asked_ms;
    h->asked_ms = asked_ms;
    h->until_ms = until_ms;
    h->retry_ms = 0;
    h->told = false;
    held_reset_timer(h);
}

void lease_settling(struct engine *e, const struct token *token, bool settling)
{
    struct held *h = held_find(e, token);
    if (h) h->settling = settling;
}

void lease_end(struct engine *e, const struct token *token)
{
    struct held *h = held_find(e, token);
    if (h) held_end(h);
}

static bool stop_visit(struct map_node *n, void *ctx)
{
    (void)ctx;
    held_end(container_of(n, struct held, node));
    return true;
}

void leases_stop(struct engine *e)
{
    map_each(&e->held, stop_visit, NULL);
}
