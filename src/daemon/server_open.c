/* server_open.c - a server from its configuration, and its end; see server_parts.h. */
#include "base/check.h"
#include "base/text.h"
#include "daemon/server_parts.h"
#include "lib/planes.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum {
    DESCRIPTORS_OTHERS = 64, /* for stores, listeners and the loop */
    OWED_MAX = 256,
    OUT_BYTES_HIGH = 1024 * 1024,
    COMMAND_MS = 30000,
    SEND_MS = 30000,
    LINGER_MS = 1000,
    HANDSHAKE_MS = 10000,
};

/* ---- planes ---- */

static void show_planes(struct server *s, const struct planes_config *config)
{
    char ledger[PLANES_TEXT_BYTES / 2 - 32], coord[sizeof ledger];
    if (config->ephemeral)
        snprintf(ledger, sizeof ledger, "none");
    else if (config->ledger)
        url_shown(config->ledger, ledger, sizeof ledger);
    else
        snprintf(ledger, sizeof ledger, "sqlite:%.100s/once.db",
                 config->data_dir ? config->data_dir : ".");
    url_shown(config->coord ? config->coord : "memory:", coord, sizeof coord);
    snprintf(s->planes, sizeof s->planes, "ledger %s, coord %s%s", ledger, coord,
             planes_spooled(config) ? ", with a spool" : "");
}

static int take_gate(const struct server_config *config, struct runs_config *runs,
                     struct err *reterr)
{
    static const char *const modes[] = {
        [GATE_ON] = "on", [GATE_SHADOW] = "shadow", [GATE_OFF] = "off"
    };
    for (int mode = GATE_ON; mode <= GATE_OFF; mode++)
        if (strcmp(config->gate, modes[mode]) == 0) runs->gate.mode = (enum gate_mode)mode;
    runs->gate.threshold = config->gate_threshold;
    runs->gate.window_ms = runs->all_gate.window_ms = config->gate_window_ms;
    runs->gate.hold_ms = runs->all_gate.hold_ms = config->gate_hold_ms;
    runs->all_gate.threshold = config->gate_all_threshold;
    runs->drains = config->drainer;
    runs->watches = true; /* also where nobody drains: that is when somebody has to be told */
    runs->drain_rate = config->drainer_rate;
    runs->drain_env_max = (size_t)config->drainer_env_max;
    int r = gate_check(&runs->gate, reterr);
    return r || !runs->all_gate.threshold ? r : gate_check(&runs->all_gate, reterr);
}

static int open_planes(struct server *s, const struct server_config *config, struct err *reterr)
{
    struct planes_config planes = { .ledger = config->ledger,
                                    .coord = config->coord,
                                    .data_dir = config->data_dir,
                                    .runs = true,
                                    .buffer = config->buffer };
    struct runs_config runs = RUNS_CONFIG_INIT;
    int r = planes_settle(&planes, reterr);
    if (!r) r = take_gate(config, &runs, reterr);
    if (r) return r;
    show_planes(s, &planes);
    s->ephemeral = planes.ephemeral;
    r = planes_open(&planes, &s->env, &s->store, reterr);
    if (r) return r;
    struct engine_config engine = { .value_bytes_max = config->value_bytes_max,
                                    .waiters_max = config->waiters_max,
                                    .patience_ms = config->patience_ms,
                                    .sweep_ms = config->sweep_ms,
                                    .markers_ms = config->sweep_ms ? ENGINE_MARKERS_MS : 0,
                                    .runs = &runs };
    return engine_open(s->store, &s->env, &engine, &s->engine, reterr);
}

/* ---- connections and doors ---- */

/* As many as asked for, if the process may have so many descriptors. */
static size_t connections_max(size_t wish)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return wish;
    if (limit.rlim_cur < limit.rlim_max && limit.rlim_cur < wish + DESCRIPTORS_OTHERS) {
        rlim_t more = wish + DESCRIPTORS_OTHERS;
        limit.rlim_cur = more < limit.rlim_max ? more : limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0) getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= wish + DESCRIPTORS_OTHERS) return wish;
    return limit.rlim_cur > 2 * DESCRIPTORS_OTHERS ? limit.rlim_cur - DESCRIPTORS_OTHERS
                                                   : DESCRIPTORS_OTHERS;
}

/* Of a run, besides what is as large as a value. */
enum { RUN_MORE_BYTES_MAX = METADATA_BYTES_MAX + RUN_ERROR_BYTES_MAX + 16 * 1024 };

static void open_conns(struct server *s, const struct server_config *config)
{
    size_t value_bytes_max = (size_t)config->value_bytes_max;
    struct conn_limits limits = {
        .in_bytes_max = 2 * value_bytes_max + METADATA_BYTES_MAX + RESP_INLINE_BYTES_MAX +
                        2 * CONN_INPUT_BYTES,
        .out_bytes_high = OUT_BYTES_HIGH,
        .out_bytes_max = OUT_BYTES_HIGH + (OWED_MAX + 1) * (value_bytes_max + 4096) +
                         PULL_COUNT_MAX * (value_bytes_max + RUN_MORE_BYTES_MAX),
        .owed_max = OWED_MAX,
        .command_ms = COMMAND_MS,
        .send_ms = SEND_MS,
        .linger_ms = LINGER_MS,
        .handshake_ms = HANDSHAKE_MS,
    };
    conns_init(&s->conns, &s->uv, &s->loop, &limits, connections_max(config->connections_max));
    s->conns.trace = config->trace;
    s->conns_ready = true;
}

static int init_doors(struct server *s, const struct server_config *config, struct err *reterr)
{
    int r = bounds_init(&s->bounds, s->engine, &s->loop, &s->rng.base, reterr);
    if (r) return r;
    s->http.engine = s->engine;
    s->http.loop = &s->loop;
    s->http.conns = &s->conns;
    s->http.bounds = &s->bounds;
    s->http.auth = &s->guard.auth;
    s->http.log = config->log;
    s->http.metrics = &s->metrics;
    s->http.wall = s->env.wall;
    http_door_init(&s->http, config->value_bytes_max, &s->rng.base);
    s->resp.engine = s->engine;
    s->resp.loop = &s->loop;
    s->resp.conns = &s->conns;
    s->resp.bounds = &s->bounds;
    s->resp.auth = &s->guard.auth;
    s->resp.planes = s->planes;
    s->resp.durable = server_durable(s);
    r = resp_door_init(&s->resp, config->value_bytes_max, &s->rng.base, reterr);
    if (r) bounds_fini(&s->bounds);
    s->doors_ready = !r;
    return r;
}

static void init_metrics(struct server *s)
{
    s->metrics = (struct metrics){ .loop = &s->loop,
                                   .engine = s->engine,
                                   .store = s->store,
                                   .plane = s->ephemeral ? "coord" : "ledger",
                                   .conns = &s->conns,
                                   .bounds = &s->bounds,
                                   .auth = &s->guard.auth,
                                   .http_answered = s->http.answered };
    metrics_init(&s->metrics, &s->env.wall);
}

static bool is_off(const char *address)
{
    return strcmp(address, "off") == 0;
}

static int open_door(struct server *s, const char *address, const struct door *door, void *ctx,
                     struct err *reterr)
{
    if (is_off(address)) return 0;
    CHECK(s->listener_count < DOORS_MAX);
    struct listener *l = &s->listeners[s->listener_count++];
    l->conns = &s->conns;
    l->door = door;
    l->door_ctx = ctx;
    l->keys = guard_keys(&s->guard);
    return listener_open(l, address, reterr);
}

/* ---- all of it ---- */

static int open_parts(struct server *s, const struct server_config *config, struct err *reterr)
{
    s->clock = clock_monotonic();
    s->drain_ms = config->drain_ms;
    s->notify_socket = config->notify_socket;
    s->on_fact = config->on_fact;
    s->on_fact_ctx = config->on_fact_ctx;
    s->on_reloaded = config->on_reloaded;
    s->on_reloaded_ctx = config->on_reloaded_ctx;
    loop_init(&s->loop, server_now_ms(s));
    s->loop.read_us = clock_measure_us;
    s->loop_ready = true;
    rng_system_init(&s->rng);
    s->env = (struct store_env){ .loop = &s->loop,
                                 .wall = clock_wall(),
                                 .monotonic = s->clock,
                                 .rng = &s->rng.base,
                                 .trace = config->trace };
    int r = loop_open(&s->loop, reterr);
    if (!r) r = server_carry(s, reterr);
    if (!r) r = open_planes(s, config, reterr);
    if (!r) open_conns(s, config);
    if (!r) r = init_doors(s, config, reterr);
    if (!r) init_metrics(s);
    if (!r) r = open_door(s, config->http, &http_door, &s->http, reterr);
    if (!r) r = open_door(s, config->resp, &resp_door, &s->resp, reterr);
    return r;
}

/* Before anything is created on disk. */
static int open_guard(struct server *s, const struct server_config *config, struct err *reterr)
{
    struct guard_config guard = { .tokens = config->tokens,
                                  .tokens_needed = config->tokens_needed,
                                  .tls_cert = config->tls_cert,
                                  .tls_key = config->tls_key,
                                  .insecure = config->insecure };
    if (is_off(config->http) && is_off(config->resp))
        return err_set(reterr, ERR_INVALID, "every door is off: nobody could ask anything");
    int r = guard_open(&s->guard, &guard, reterr);
    s->guard.auth.trace = config->trace;
    if (!r && !is_off(config->http)) r = guard_check(&s->guard, config->http, reterr);
    if (!r && !is_off(config->resp)) r = guard_check(&s->guard, config->resp, reterr);
    return r;
}

int server_open(const struct server_config *config, struct server **ret_server,
                struct err *reterr)
{
    struct server *s = calloc(1, sizeof *s);
    if (!s) return err_set(reterr, ERR_NOMEM, "out of memory opening the server");
    int r = open_guard(s, config, reterr);
    if (!r) r = open_parts(s, config, reterr);
    if (r) {
        server_close(s);
        return r;
    }
    *ret_server = s;
    return 0;
}

/* ---- what it says of itself ---- */

const char *server_address(const struct server *s, const char *door)
{
    for (size_t i = 0; i < s->listener_count; i++)
        if (strcmp(s->listeners[i].door->name, door) == 0) return s->listeners[i].shown;
    return NULL;
}

const char *server_planes(const struct server *s)
{
    return s->planes;
}

bool server_durable(const struct server *s)
{
    return s->store->caps & CAP_DURABLE;
}

bool server_wants_tokens(const struct server *s)
{
    return auth_required(&s->guard.auth);
}

bool server_speaks_tls(const struct server *s)
{
    return guard_keys(&s->guard);
}

/* ---- closing ---- */

/* Opening failed half-way: nothing was asked yet, but the engine may have begun to sweep. */
static void stop_unused_engine(struct server *s)
{
    engine_stop(s->engine);
    do {
        loop_turn(&s->loop, server_now_ms(s));
        int64_t next_ms = loop_next_ms(&s->loop, server_now_ms(s));
        bool idle = engine_idle(s->engine) && store_idle(s->store);
        if (!idle && next_ms != 0) loop_sleep(&s->loop, next_ms);
    } while (!engine_idle(s->engine) || !store_idle(s->store));
}

void server_close(struct server *s)
{
    if (!s) return;
    CHECK(!s->stuck);
    if (s->engine && s->state != DONE) stop_unused_engine(s);
    server_drop(s);
    if (s->doors_ready) {
        http_door_fini(&s->http);
        resp_door_fini(&s->resp);
        bounds_fini(&s->bounds);
    }
    if (s->conns_ready) conns_fini(&s->conns);
    guard_close(&s->guard);
    engine_free(s->engine);
    store_close(s->store);
    if (s->loop_ready) loop_fini(&s->loop);
    free(s);
}
