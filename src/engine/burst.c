/* burst.c - triggers before the gate.
 *
 * Whoever comes in one turn, or while an answer is under way, is asked for together: a storm costs
 * one question per round trip and env, however many it brings. The first to come are the first to
 * pass. A gate that cannot be asked lets pass: the ledger is the slow way, never the wrong one. */
#include "base/check.h"
#include "engine/runs_internal.h"

#include <stdlib.h>

enum { BURSTS_MAX = 10000, ASK_MAX = 10000 };

/* The gate of an env, as this process sees it. */
struct burst {
    struct map_node node;
    struct runs *runs;
    struct task send;
    struct list waiting, asked; /* struct run_call, by trigger.at_gate */
    bool asking;
    bool own; /* the env has its own configuration */
    struct gate_config config;
    struct gate_ask ask;
    size_t asked_count;
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
    struct rng *rng = r->engine->rng;
    return map_init(&r->bursts, burst_env, (uint64_t[2]){ rng_u64(rng), rng_u64(rng) });
}

static bool drop(struct map_node *n, void *ctx)
{
    struct runs *r = ctx;
    struct burst *b = container_of(n, struct burst, node);
    CHECK(!b->asking && list_empty(&b->waiting));
    map_remove(&r->bursts, n);
    task_stop(&b->send);
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
    bool idle = !b->asking && list_empty(&b->waiting) && !b->own;
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

static void answered(struct op *op, void *ctx)
{
    struct burst *b = ctx;
    struct runs *r = b->runs;
    bool failed = op->err.code, shadow = b->config.mode == GATE_SHADOW;
    size_t passed = failed ? b->asked_count : b->ask.passed;
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
                                .count = b->asked_count };
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

void burst_ask(struct run_call *c)
{
    struct burst *b = burst_for(c->engine->runs, c->args.env);
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
    return 0;
}

struct gate_config engine_gate(const struct engine *e, struct bytes env)
{
    struct map_node *n = map_find(&e->runs->bursts, env);
    return n ? container_of(n, struct burst, node)->config : e->runs->config.gate;
}
