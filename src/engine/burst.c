/* burst.c - triggers before the gate.
 *
 * Whoever comes in one turn, or while an answer is under way, is asked for together: a storm costs
 * one question per round trip and env, however many it brings. The first to come are the first to
 * pass. A gate that cannot be asked lets pass: the ledger is the slow way, never the wrong one.
 *
 * A gate that is tripped says for how long, and nothing makes that shorter. Until then nobody has to ask:
 * those who were diverted meanwhile are counted with the next question. So are those who are not to be
 * diverted at all, because their order counts. */
#include "base/check.h"
#include "engine/runs_internal.h"

#include <stdlib.h>

enum { BURSTS_MAX = 10000, ASK_MAX = 10000 };
#define COUNT_MS INT64_C(10) /* those who did not ask are counted as often */

/* The gate of an env, as this process sees it. */
struct burst {
    struct map_node node;
    struct runs *runs;
    struct task send;
    struct timer count;         /* `unasked` are counted then, if nobody asks before */
    size_t unasked;             /* diverted, or let pass, without asking, and not counted yet */
    int64_t tripped_until_ms;   /* at least; monotonic */
    struct list waiting, asked; /* struct run_call, by trigger.at_gate */
    struct link weighted;       /* in runs->weighted: its weight is not 1 */
    bool asking;
    bool own; /* the env has its own configuration */
    struct gate_config config;
    struct gate_ask ask;
    int64_t asked_ms; /* monotonic */
    size_t asked_count,
        counted; /* of `ask`: those who wait for it, and those who did not ask */
    size_t env_len;
    uint8_t env[];
};

static struct bytes burst_env(const struct map_node *n)
{
    const struct burst *b = container_of(n, struct burst, node);
    return bytes_of(b->env, b->env_len);
}

int bursts_init(struct runs *r)
{
    list_init(&r->weighted);
    struct rng *rng = r->engine->rng;
    return map_init(&r->bursts, burst_env, (uint64_t[2]){ rng_u64(rng), rng_u64(rng) });
}

static bool drop(struct map_node *n, void *ctx)
{
    struct runs *r = ctx;
    struct burst *b = container_of(n, struct burst, node);
    CHECK(!b->asking && list_empty(&b->waiting));
    map_remove(&r->bursts, n);
    link_remove(&b->weighted);
    task_stop(&b->send);
    timer_stop(r->engine->loop, &b->count);
    free(b);
    return true;
}

void bursts_fini(struct runs *r)
{
    if (r->bursts.count) map_each(&r->bursts, drop, r);
    map_fini(&r->bursts);
}

static bool drop_idle(struct map_node *n, void *ctx)
{
    struct burst *b = container_of(n, struct burst, node);
    bool idle = !b->asking && list_empty(&b->waiting) && !b->unasked && !b->own;
    return idle ? drop(n, ctx) : true;
}

/* ---- answers ---- */

static bool wait_at(struct run_call *c, struct burst *b);
static struct burst *burst_for(struct runs *r, struct bytes env);

/* Whoever passed the gate of its env stands before the one of all, if there is one. */
static bool goes_on(struct run_call *c, const struct burst *passed)
{
    struct runs *r = c->engine->runs;
    if (!r->config.all_gate.threshold || (passed && passed->env_len == 0)) return false;
    struct burst *all = burst_for(r, bytes_of(NULL, 0));
    return all && wait_at(c, all);
}

static void pass(struct run_call *c, const struct burst *passed, bool diverted)
{
    struct run_stats *stats = &c->engine->runs->stats;
    if (!diverted && goes_on(c, passed)) return;
    if (diverted)
        stats->diverted++;
    else
        stats->passed++;
    c->trigger.diverted = diverted;
    c->then(c);
}

static void send_later(struct burst *b)
{
    if (!b->asking && !list_empty(&b->waiting)) task_post(b->runs->engine->loop, &b->send);
}

static void count_later(struct burst *b)
{
    struct loop *loop = b->runs->engine->loop;
    if (b->unasked && !timer_is_set(&b->count))
        timer_set(loop, &b->count, loop->now_ms + COUNT_MS);
}

static void count_now(struct timer *t)
{
    struct burst *b = container_of(t, struct burst, count);
    if (!b->asking && b->unasked) task_post(b->runs->engine->loop, &b->send);
}

static void learn(struct burst *b)
{
    if (b->config.mode == GATE_ON && b->ask.tripped_ms > 0)
        b->tripped_until_ms = b->asked_ms + b->ask.tripped_ms;
}

static void answered(struct op *op, void *ctx)
{
    struct burst *b = ctx;
    struct runs *r = b->runs;
    bool failed = op->err.code, shadow = b->config.mode == GATE_SHADOW;
    size_t passed = b->asked_count;
    if (!failed) passed = b->ask.passed > b->counted ? b->ask.passed - b->counted : 0;
    if (!failed) learn(b);
    op_free(op);
    if (failed) r->stats.gate_failed += b->asked_count;
    if (shadow) r->stats.shadowed += b->asked_count - passed;
    struct list now;
    list_init(&now);
    list_take(&now, &b->asked);
    size_t n = 0;
    for (struct link *at; (at = list_pop(&now)); n++)
        pass(container_of(at, struct run_call, trigger.at_gate), b, n >= passed && !shadow);
    b->asking = false; /* until now it could not be dropped */
    send_later(b);
    count_later(b);
}

static void all_pass(struct burst *b)
{
    struct list now;
    list_init(&now);
    list_take(&now, &b->asked);
    for (struct link *at; (at = list_pop(&now));)
        pass(container_of(at, struct run_call, trigger.at_gate), b, false);
}

static void send(struct task *task)
{
    struct burst *b = container_of(task, struct burst, send);
    b->asked_count = 0;
    for (struct link *at; b->asked_count < ASK_MAX && (at = list_pop(&b->waiting));) {
        list_append(&b->asked, at);
        b->asked_count++;
    }
    struct op *op = op_new(VERB_GATE, NULL, NULL);
    if (!op) {
        all_pass(b);
        return;
    }
    b->ask = (struct gate_ask){ .env = burst_env(&b->node),
                                .config = b->config,
                                .count = b->asked_count + b->unasked };
    b->counted = b->unasked;
    b->unasked = 0;
    b->asked_ms = b->runs->engine->loop->now_ms;
    op->gate = &b->ask;
    b->asking = true;
    engine_submit(b->runs->engine, op, answered, b);
}

/* ---- asking ---- */

static struct burst *burst_for(struct runs *r, struct bytes env)
{
    struct map_node *n = map_find(&r->bursts, env);
    if (n) return container_of(n, struct burst, node);
    if (r->bursts.count >= BURSTS_MAX) map_each(&r->bursts, drop_idle, r);
    struct burst *b = malloc(sizeof *b + env.len);
    if (!b) return NULL;
    *b = (struct burst){ .runs = r,
                         .config = env.len ? r->config.gate : r->config.all_gate,
                         .env_len = env.len };
    if (env.len) memcpy(b->env, env.data, env.len);
    task_init(&b->send, send);
    timer_init(&b->count, count_now);
    link_init(&b->weighted);
    list_init(&b->waiting);
    list_init(&b->asked);
    map_insert(&r->bursts, &b->node);
    return b;
}

/* False: it does not keep anybody. */
static bool wait_at(struct run_call *c, struct burst *b)
{
    if (b->config.mode == GATE_OFF) return false;
    list_append(&b->waiting, &c->trigger.at_gate);
    send_later(b);
    return true;
}

bool burst_keeps(const struct run_call *c)
{
    const struct runs *r = c->engine->runs;
    return r->config.all_gate.threshold || engine_gate(c->engine, c->args.env).mode != GATE_OFF;
}

static bool is_tripped(const struct burst *b)
{
    return b->runs->engine->loop->now_ms < b->tripped_until_ms;
}

static struct burst *tripped_burst(const struct run_call *c)
{
    struct map_node *n = map_find(&c->engine->runs->bursts, c->args.env);
    struct burst *b = n ? container_of(n, struct burst, node) : NULL;
    return b && is_tripped(b) ? b : NULL;
}

bool burst_is_tripped(const struct run_call *c)
{
    return tripped_burst(c);
}

static void count(struct burst *b)
{
    b->unasked++;
    count_later(b);
}

static void divert(struct run_call *c, struct burst *b)
{
    c->engine->runs->stats.diverted++;
    c->trigger.diverted = true;
    count(b);
}

void burst_diverted(struct run_call *c)
{
    struct burst *b = burst_for(c->engine->runs, c->args.env);
    if (b) divert(c, b);
}

static void count_at(struct runs *r, struct bytes env)
{
    struct burst *b = burst_for(r, env);
    if (b && b->config.mode != GATE_OFF) count(b);
}

void burst_passed(struct run_call *c)
{
    struct runs *r = c->engine->runs;
    r->stats.passed++;
    count_at(r, c->args.env);
    if (r->config.all_gate.threshold) count_at(r, bytes_of(NULL, 0));
}

void burst_ask(struct run_call *c)
{
    struct burst *b = burst_for(c->engine->runs, c->args.env);
    if (b && is_tripped(b)) {
        divert(c, b);
        c->then(c);
        return;
    }
    if (!b || !wait_at(c, b)) pass(c, NULL, false);
}

/* ---- configuration ---- */

int engine_gate_set(struct engine *e, struct bytes env, const struct gate_config *config,
                    struct err *reterr)
{
    int r = run_name_check(env, ENV_BYTES_MAX, "env", reterr);
    if (!r && config) r = gate_check(config, reterr);
    if (r) return r;
    struct burst *b = burst_for(e->runs, env);
    if (!b) return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    b->own = config;
    b->config = config ? *config : e->runs->config.gate;
    b->tripped_until_ms = 0; /* by the one before */
    link_remove(&b->weighted);
    if (b->config.weight > 1) list_append(&e->runs->weighted, &b->weighted);
    return 0;
}

struct env_weight *burst_weights(const struct runs *r, size_t *ret_count)
{
    size_t count = 0, n = 0;
    list_each (&r->weighted, at) count++;
    struct env_weight *weights = count ? malloc(count * sizeof *weights) : NULL;
    if (!weights) count = 0;
    list_each (&r->weighted, at) {
        if (n == count) break;
        const struct burst *b = container_of(at, struct burst, weighted);
        struct env_weight *w = &weights[n++];
        *w = (struct env_weight){ .env_len = (uint8_t)b->env_len,
                                  .weight = (uint8_t)b->config.weight };
        memcpy(w->env, b->env, b->env_len);
    }
    *ret_count = count;
    return weights;
}

struct gate_config engine_gate(const struct engine *e, struct bytes env)
{
    struct map_node *n = map_find(&e->runs->bursts, env);
    return n ? container_of(n, struct burst, node)->config : e->runs->config.gate;
}
