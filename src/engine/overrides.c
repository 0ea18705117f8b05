/* overrides.c - gates that operators have set: answers in the scope once/gate, one per env, which every
 * process of a fleet looks up now and then. They are answers like any other: durable, listed by
 * `once ls once/gate`, and gone when somebody forgets them.
 *
 *   once/gate production = "on 500 200 500 1"     mode, threshold, window_ms, hold_ms, weight */
#include "engine/runs_internal.h"

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

enum { LOOK_MS = 2000, GATES_MAX = 1000, TEXT_BYTES = 80 };

/* One look: the list, then the values that are new. */
struct overrides {
    struct runs *runs;
    struct timer timer;
    bool looking, stopped;
    struct scan page;
    size_t at;
    struct gate_seen {
        struct bytes env;
        uint64_t fence;
        uint8_t memory[ENV_BYTES_MAX];
    } seen[GATES_MAX];
    size_t count;
};

static void look_later(struct overrides *g)
{
    struct engine *e = g->runs->engine;
    g->looking = false;
    scan_clear(&g->page);
    if (!g->stopped) timer_set(e->loop, &g->timer, e->loop->now_ms + LOOK_MS);
}

bool gate_parse(struct bytes text, struct gate_config *ret_config)
{
    static const char *const modes[] = {
        [GATE_ON] = "on", [GATE_SHADOW] = "shadow", [GATE_OFF] = "off"
    };
    char line[TEXT_BYTES], mode[8];
    struct gate_config c = { 0 };
    struct err ignored;
    long long threshold, window_ms, hold_ms, weight = 1;
    if (text.len >= sizeof line) return false;
    memcpy(line, text.data, text.len);
    line[text.len] = '\0';
    int read = sscanf(line, "%7s %lld %lld %lld %lld", mode, &threshold, &window_ms, &hold_ms,
                      &weight);
    if (read < 4 || weight < 1) return false; /* without a weight: 1 */
    for (int m = GATE_ON; m <= GATE_OFF; m++)
        if (strcmp(mode, modes[m]) == 0) {
            c = (struct gate_config){ (enum gate_mode)m, threshold, window_ms, hold_ms,
                                      weight };
            if (gate_check(&c, &ignored)) return false;
            *ret_config = c;
            return true;
        }
    return false;
}

static struct gate_seen *seen_of(struct overrides *g, struct bytes env)
{
    for (size_t i = 0; i < g->count; i++)
        if (bytes_eq(g->seen[i].env, env)) return &g->seen[i];
    return NULL;
}

static bool is_listed(const struct overrides *g, struct bytes env)
{
    for (size_t i = 0; i < g->page.count; i++)
        if (bytes_eq(g->page.rows[i].key.name, env)) return true;
    return false;
}

/* What is not there any more is as configured. */
static void drop_gone(struct overrides *g)
{
    struct err ignored;
    for (size_t i = 0; i < g->count;) {
        struct gate_seen *seen = &g->seen[i];
        if (is_listed(g, seen->env)) {
            i++;
            continue;
        }
        engine_gate_set(g->runs->engine, seen->env, NULL, &ignored);
        struct gate_seen *last = &g->seen[--g->count];
        if (seen == last) break;
        *seen = *last;
        seen->env = bytes_of(seen->memory, last->env.len);
    }
}

static void remember(struct overrides *g, struct bytes env, uint64_t fence)
{
    struct gate_seen *seen = seen_of(g, env);
    if (!seen && g->count < GATES_MAX) {
        seen = &g->seen[g->count++];
        memcpy(seen->memory, env.data, env.len);
        seen->env = bytes_of(seen->memory, env.len);
    }
    if (seen) seen->fence = fence;
}

static void look_at(struct overrides *g);

static void value_read(struct op *op, void *ctx)
{
    struct overrides *g = ctx;
    const struct scan_row *row = &g->page.rows[g->at++];
    struct gate_config config;
    struct err ignored;
    if (!op->err.code && op->out.value && row->key.name.len <= ENV_BYTES_MAX &&
        gate_parse(blob_bytes(op->out.value), &config) &&
        engine_gate_set(g->runs->engine, row->key.name, &config, &ignored) == 0)
        remember(g, row->key.name, row->fence);
    op_free(op);
    look_at(g);
}

static bool is_news(struct overrides *g, const struct scan_row *row)
{
    const struct gate_seen *seen = seen_of(g, row->key.name);
    return row->state == RECORD_DONE && (!seen || seen->fence != row->fence);
}

static void look_at(struct overrides *g)
{
    while (g->at < g->page.count && !is_news(g, &g->page.rows[g->at])) g->at++;
    struct op *op = NULL;
    if (g->at < g->page.count && !g->stopped)
        op = op_new(VERB_PEEK, &g->page.rows[g->at].key, NULL);
    if (op)
        engine_submit(g->runs->engine, op, value_read, g);
    else
        look_later(g);
}

static void listed(struct op *op, void *ctx)
{
    struct overrides *g = ctx;
    bool failed = op->err.code;
    if (!failed) {
        g->page = op->scan;
        op->scan = (struct scan){ 0 };
        g->at = 0;
        drop_gone(g);
    }
    op_free(op);
    if (failed)
        look_later(g);
    else
        look_at(g);
}

static void look(struct timer *t)
{
    struct overrides *g = container_of(t, struct overrides, timer);
    struct key all = { .scope = bytes_str(GATES_SCOPE) };
    struct op *op = op_new(VERB_SCAN, &all, NULL);
    if (!op) {
        look_later(g);
        return;
    }
    op->limit = GATES_MAX;
    g->looking = true;
    engine_submit(g->runs->engine, op, listed, g);
}

int overrides_init(struct runs *r)
{
    struct engine *e = r->engine;
    if (!r->config.watches || !has(e, CAP_GATE) || !has(e, CAP_RUNS)) return 0;
    struct overrides *g = calloc(1, sizeof *g);
    if (!g) return ERR_NOMEM;
    r->overrides = g;
    g->runs = r;
    timer_init(&g->timer, look);
    timer_set(e->loop, &g->timer, e->loop->now_ms);
    return 0;
}

void overrides_stop(struct engine *e)
{
    struct overrides *g = e->runs->overrides;
    if (!g) return;
    g->stopped = true;
    timer_stop(e->loop, &g->timer);
}

bool overrides_idle(const struct engine *e)
{
    return !e->runs->overrides || !e->runs->overrides->looking;
}

void overrides_fini(struct runs *r)
{
    struct overrides *g = r->overrides;
    if (!g) return;
    CHECK(!g->looking);
    timer_stop(r->engine->loop, &g->timer);
    scan_clear(&g->page);
    free(g);
    r->overrides = NULL;
}
