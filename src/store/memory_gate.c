/* memory_gate.c - see memory_gate.h. */
#include "store/memory_gate.h"

#include "base/check.h"

#include <stdlib.h>

/* One ask makes one gate at most, and drops more than that if they are of no use. */
enum { GATES_DROPPED_MAX = 4 };

struct cell {
    struct map_node node;
    struct heap_node idle;
    struct gate gate;
    size_t room; /* for so many times */
    size_t env_len;
    uint8_t env[];
};

static struct bytes cell_env(const struct map_node *n)
{
    const struct cell *c = container_of(n, struct cell, node);
    return bytes_of(c->env, c->env_len);
}

int memory_gates_init(struct memory_gates *g, const uint64_t seed[2])
{
    heap_init(&g->by_idle);
    return map_init(&g->by_env, cell_env, seed);
}

static void cell_drop(struct memory_gates *g, struct cell *c)
{
    map_remove(&g->by_env, &c->node);
    heap_remove(&g->by_idle, &c->idle);
    free(c->gate.times);
    free(c);
}

void memory_gates_clear(struct memory_gates *g)
{
    for (struct heap_node *n; (n = heap_first(&g->by_idle));)
        cell_drop(g, container_of(n, struct cell, idle));
}

void memory_gates_fini(struct memory_gates *g)
{
    memory_gates_clear(g);
    map_fini(&g->by_env);
}

/* ---- a gate ---- */

/* The times in their order, the newest `room` of them, in a ring of that size. */
static int cell_resize(struct cell *c, size_t room)
{
    int64_t *times = malloc(room * sizeof *times);
    if (!times) return ERR_NOMEM;
    struct gate *g = &c->gate;
    size_t kept = g->count < room ? g->count : room;
    for (size_t i = 0, from = g->first + g->count - kept; i < kept; i++)
        times[i] = g->times[(from + i) % c->room];
    free(g->times);
    *g =
        (struct gate){ .times = times, .count = kept, .tripped_until_ms = g->tripped_until_ms };
    c->room = room;
    return 0;
}

/* Times only grow along the ring, so those in the future are the newest. */
static void cell_settle(struct cell *c, const struct gate_config *config, int64_t now_ms)
{
    struct gate *g = &c->gate;
    for (size_t i = g->count; i-- > 0;) {
        int64_t *at_ms = &g->times[(g->first + i) % c->room];
        if (*at_ms <= now_ms) break;
        *at_ms = now_ms;
    }
    int64_t longest_ms = now_ms + config->hold_ms;
    if (g->tripped_until_ms > longest_ms) g->tripped_until_ms = longest_ms;
}

static struct cell *cell_new(struct memory_gates *g, struct bytes env, size_t room)
{
    struct cell *c = malloc(sizeof *c + env.len);
    if (!c) return NULL;
    *c = (struct cell){ .env_len = env.len };
    if (env.len) memcpy(c->env, env.data, env.len);
    heap_node_init(&c->idle);
    if (cell_resize(c, room)) {
        free(c);
        return NULL;
    }
    map_insert(&g->by_env, &c->node);
    return c;
}

static struct cell *cell_for(struct memory_gates *g, struct bytes env, size_t room)
{
    struct map_node *n = map_find(&g->by_env, env);
    if (!n) return cell_new(g, env, room);
    struct cell *c = container_of(n, struct cell, node);
    if (c->room != room && cell_resize(c, room)) return NULL;
    return c;
}

/* A gate whose times have all left the window, and which is not tripped, is as good as a new one. */
static void drop_idle(struct memory_gates *g, int64_t now_ms)
{
    struct heap_node *n;
    for (int i = 0; i < GATES_DROPPED_MAX && (n = heap_first(&g->by_idle)); i++) {
        if (n->at_ms > now_ms) return;
        cell_drop(g, container_of(n, struct cell, idle));
    }
}

static int64_t idle_at_ms(const struct cell *c, const struct gate_config *config,
                          int64_t now_ms)
{
    int64_t left_ms = now_ms + config->window_ms;
    return left_ms > c->gate.tripped_until_ms ? left_ms : c->gate.tripped_until_ms;
}

int memory_gates_ask(struct memory_gates *g, struct gate_ask *ask, int64_t now_ms)
{
    const struct gate_config *config = &ask->config;
    CHECK(config->threshold >= 1 && config->threshold <= GATE_THRESHOLD_MAX);
    CHECK(config->window_ms >= 0 && config->hold_ms >= 0);
    drop_idle(g, now_ms);
    struct cell *c = cell_for(g, ask->env, (size_t)config->threshold);
    if (!c) return ERR_NOMEM;
    cell_settle(c, config, now_ms);
    ask->passed = gate_pass(&c->gate, config, ask->count, now_ms);
    int64_t left_ms = c->gate.tripped_until_ms - now_ms;
    ask->tripped_ms = left_ms > 0 ? left_ms : 0;
    if (heap_has(&g->by_idle, &c->idle)) heap_remove(&g->by_idle, &c->idle);
    heap_add(&g->by_idle, &c->idle, idle_at_ms(c, config, now_ms));
    return 0;
}
