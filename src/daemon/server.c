/* server.c - see server.h.
 *
 * libuv carries our loop: a poll handle on its descriptor, a timer for its next deadline, and a
 * prepare handle, which runs once per iteration of libuv, after all input was taken and before
 * anybody sleeps: there our loop is turned until it is quiet, and then everything that was
 * written meanwhile is sent.
 *
 *   SERVING --signal--> DRAINING --drain_ms--> CANCELING --1 s--> CLOSING --1 s--.
 *                          '------------ nobody is connected any more -----------v
 *                                                      DONE <--engine idle-- STOPPING */
#include "daemon/server.h"

#include "base/check.h"
#include "base/text.h"
#include "daemon/guard.h"
#include "daemon/http_door.h"
#include "daemon/listen.h"
#include "daemon/metrics.h"
#include "daemon/notify.h"
#include "daemon/resp_door.h"
#include "lib/planes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum {
    TURNS_MAX = 64,          /* of our loop in one of libuv's */
    DESCRIPTORS_OTHERS = 64, /* for stores, listeners and the loop */
    STEP_MS = 1000,          /* between the steps of shutting down that nobody should need */
    STUCK_MS = 10000,
    OWED_MAX = 256,
    OUT_BYTES_HIGH = 1024 * 1024,
    COMMAND_MS = 30000,
    SEND_MS = 30000,
    LINGER_MS = 1000,
    HANDSHAKE_MS = 10000,
    PLANES_TEXT_BYTES = 400,
    DOORS_MAX = 2,
};

enum server_state { SERVING, DRAINING, CANCELING, CLOSING, STOPPING, DONE };

struct server {
    enum server_state state;
    uv_loop_t uv;
    bool uv_ready;
    uv_prepare_t prepare;
    uv_poll_t poll;
    uv_timer_t timer;
    uv_signal_t term, interrupt, hangup;
    struct loop loop;
    struct clock clock;
    struct rng_system rng;
    struct store_env env;
    struct store *store;
    struct engine *engine;
    struct guard guard;
    struct conns conns;
    struct bounds bounds;
    struct metrics metrics;
    struct http_door http;
    struct resp_door resp;
    struct listener listeners[DOORS_MAX];
    size_t listener_count;
    struct timer step; /* of shutting down */
    int64_t drain_ms;
    const char *notify_socket;
    once_fact_fn *on_fact;
    void *on_fact_ctx;
    void (*on_reloaded)(void *ctx, const struct err *err);
    void *on_reloaded_ctx;
    bool ephemeral, loop_ready, doors_ready, conns_ready, stuck;
    char planes[PLANES_TEXT_BYTES];
};

static int64_t now_ms(const struct server *s)
{
    return clock_now_ms(&s->clock);
}

/* ---- shutting down ---- */

static const unsigned server_arrow[] = {
    [SERVING] = BIT(DRAINING),
    [DRAINING] = BIT(CANCELING) | BIT(CLOSING) | BIT(STOPPING),
    [CANCELING] = BIT(CLOSING) | BIT(STOPPING),
    [CLOSING] = BIT(STOPPING),
    [STOPPING] = BIT(DONE),
    [DONE] = 0,
};

static void set_state(struct server *s, enum server_state to, int64_t at_most_ms)
{
    static const char *const names[] = { "serving", "draining", "canceling",
                                         "closing", "stopping", "done" };
    CHECK(server_arrow[s->state] & BIT(to));
    s->state = to;
    trace_emit(s->env.trace,
               (struct trace_event){ .kind = TRACE_SERVER, .number = to, .text = names[to] });
    if (to == DONE)
        timer_stop(&s->loop, &s->step);
    else
        timer_set(&s->loop, &s->step, s->loop.now_ms + at_most_ms);
}

static void drain(struct server *s)
{
    notify_manager(s->notify_socket, "STOPPING=1");
    set_state(s, DRAINING, s->drain_ms);
    for (size_t i = 0; i < s->listener_count; i++) listener_close(&s->listeners[i]);
    conns_end(&s->conns, CLOSE_SHUTDOWN);
}

static void close_connections(struct server *s)
{
    set_state(s, CLOSING, STEP_MS);
    conns_close(&s->conns, CLOSE_SHUTDOWN);
}

static void stop_engine(struct server *s)
{
    set_state(s, STOPPING, STUCK_MS);
    engine_stop(s->engine);
}

static void close_handle(uv_handle_t *handle, void *ctx)
{
    (void)ctx;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

static void be_done(struct server *s)
{
    set_state(s, DONE, 0);
    uv_walk(&s->uv, close_handle, NULL);
}

/* It took too long: the next step, by force. */
static void step_over(struct timer *t)
{
    struct server *s = container_of(t, struct server, step);
    switch (s->state) {
    case DRAINING:
        set_state(s, CANCELING, STEP_MS);
        conns_cancel(&s->conns);
        return;
    case CANCELING:
        close_connections(s);
        return;
    case CLOSING:
        stop_engine(s);
        return;
    case STOPPING:
        s->stuck = true;
        uv_stop(&s->uv);
        return;
    case SERVING:
    case DONE:
        return;
    }
}

static void go_on_shutting_down(struct server *s)
{
    bool alone = s->conns.count == 0 && bounds_idle(&s->bounds);
    bool before_stop = s->state != SERVING && s->state < STOPPING;
    if (before_stop && alone) stop_engine(s);
    if (s->state == STOPPING && engine_idle(s->engine) && store_idle(s->store)) be_done(s);
}

/* The second time means now. */
static void on_signal(uv_signal_t *signal, int number)
{
    struct server *s = signal->data;
    (void)number;
    loop_update(&s->loop, now_ms(s));
    if (s->state == SERVING)
        drain(s);
    else if (s->state == DRAINING || s->state == CANCELING)
        close_connections(s);
}

/* ---- reloading ---- */

int server_reload(struct server *s, struct err *reterr)
{
    int r = guard_reload(&s->guard, reterr);
    resp_door_recheck(&s->resp);
    return r;
}

static void on_hangup(uv_signal_t *signal, int number)
{
    struct server *s = signal->data;
    struct err err = { 0 };
    (void)number;
    notify_reloading(s->notify_socket);
    server_reload(s, &err);
    notify_manager(s->notify_socket, "READY=1");
    if (s->on_reloaded) s->on_reloaded(s->on_reloaded_ctx, &err);
}

/* ---- the loop in the loop ---- */

static void on_timer(uv_timer_t *timer)
{
    (void)timer; /* to be awake is enough: on_prepare() follows */
}

static void arm_timer(struct server *s)
{
    bool again = !list_empty(&s->conns.dirty);
    int64_t next_ms = again ? 0 : loop_next_ms(&s->loop, now_ms(s));
    if (next_ms >= 0)
        uv_timer_start(&s->timer, on_timer, (uint64_t)next_ms, 0);
    else
        uv_timer_stop(&s->timer);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct server *s = prepare->data;
    int64_t at_ms = now_ms(s);
    for (int i = 0; i < TURNS_MAX; i++) {
        loop_turn(&s->loop, at_ms);
        if (loop_next_ms(&s->loop, at_ms) != 0) break;
    }
    conns_settle(&s->conns);
    go_on_shutting_down(s);
    if (s->state != DONE) arm_timer(s);
}

/* Takes the wake-ups of other threads off the descriptor. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct server *s = poll->data;
    (void)status, (void)events;
    loop_sleep(&s->loop, 0);
}

/* ---- opening ---- */

static int uv_failed(int code, const char *what, struct err *reterr)
{
    return err_set(reterr, ERR_UNAVAILABLE, "cannot %s: %s", what, uv_strerror(code));
}

static int open_uv(struct server *s, struct err *reterr)
{
    int r = uv_loop_init(&s->uv);
    if (r < 0) return uv_failed(r, "make an event loop", reterr);
    s->uv_ready = true;
    s->prepare.data = s->poll.data = s->term.data = s->interrupt.data = s->hangup.data = s;
    uv_prepare_init(&s->uv, &s->prepare);
    uv_timer_init(&s->uv, &s->timer);
    uv_signal_init(&s->uv, &s->term);
    uv_signal_init(&s->uv, &s->interrupt);
    uv_signal_init(&s->uv, &s->hangup);
    r = uv_poll_init(&s->uv, &s->poll, s->loop.fd);
    if (r < 0) return uv_failed(r, "watch the loop", reterr);
    uv_prepare_start(&s->prepare, on_prepare);
    r = uv_poll_start(&s->poll, UV_READABLE, on_readable);
    if (r == 0) r = uv_signal_start(&s->term, on_signal, SIGTERM);
    if (r == 0) r = uv_signal_start(&s->interrupt, on_signal, SIGINT);
    if (r == 0) r = uv_signal_start(&s->hangup, on_hangup, SIGHUP);
    return r < 0 ? uv_failed(r, "watch signals", reterr) : 0;
}

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
    snprintf(s->planes, sizeof s->planes, "ledger %s, coord %s", ledger, coord);
}

static int open_planes(struct server *s, const struct server_config *config, struct err *reterr)
{
    struct planes_config planes = { .ledger = config->ledger,
                                    .coord = config->coord,
                                    .data_dir = config->data_dir };
    int r = planes_settle(&planes, reterr);
    if (r) return r;
    show_planes(s, &planes);
    s->ephemeral = planes.ephemeral;
    r = planes_open(&planes, &s->env, &s->store, reterr);
    if (r) return r;
    struct engine_config engine = { .value_bytes_max = config->value_bytes_max,
                                    .waiters_max = config->waiters_max,
                                    .patience_ms = config->patience_ms,
                                    .sweep_ms = config->sweep_ms };
    return engine_open(s->store, &s->env, &engine, &s->engine, reterr);
}

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

static void open_conns(struct server *s, const struct server_config *config)
{
    size_t value_bytes_max = (size_t)config->value_bytes_max;
    struct conn_limits limits = {
        .in_bytes_max = 2 * value_bytes_max + RESP_INLINE_BYTES_MAX + 2 * CONN_INPUT_BYTES,
        .out_bytes_high = OUT_BYTES_HIGH,
        .out_bytes_max = OUT_BYTES_HIGH + (OWED_MAX + 1) * (value_bytes_max + 4096),
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

static int open_parts(struct server *s, const struct server_config *config, struct err *reterr)
{
    s->clock = clock_monotonic();
    s->drain_ms = config->drain_ms;
    s->notify_socket = config->notify_socket;
    s->on_fact = config->on_fact;
    s->on_fact_ctx = config->on_fact_ctx;
    s->on_reloaded = config->on_reloaded;
    s->on_reloaded_ctx = config->on_reloaded_ctx;
    timer_init(&s->step, step_over);
    loop_init(&s->loop, now_ms(s));
    s->loop.read_us = clock_measure_us;
    s->loop_ready = true;
    rng_system_init(&s->rng);
    s->env = (struct store_env){
        .loop = &s->loop, .wall = clock_wall(), .rng = &s->rng.base, .trace = config->trace
    };
    int r = loop_open(&s->loop, reterr);
    if (!r) r = open_uv(s, reterr);
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

/* ---- what it stands on ---- */

static void tell_fact(const struct server *s, const struct fact *f)
{
    struct once_fact fact = { .level = (int)f->level,
                              .plane = *f->plane      ? f->plane
                                       : s->ephemeral ? "coord"
                                                      : "ledger",
                              .name = f->name,
                              .text = f->text,
                              .advice = f->advice };
    s->on_fact(s->on_fact_ctx, &fact);
}

static void facts_known(struct call *call, void *ctx)
{
    const struct server *s = ctx;
    const struct err *err = call_error(call);
    const struct facts *facts = err->code ? NULL : call_op(call)->facts;
    struct fact away = { .level = FACT_FAIL,
                         .plane = "",
                         .name = "server",
                         .advice = "claims fail until it answers" };
    for (size_t i = 0; facts && i < facts->count; i++) tell_fact(s, &facts->rows[i]);
    if (!err->code || err->code == ERR_CANCELED) return;
    snprintf(away.text, sizeof away.text, "%.159s", err->text);
    tell_fact(s, &away);
}

/* An answer would be nice; without one it serves, too. */
static void ask_for_facts(struct server *s)
{
    struct err err;
    struct call_args args = {
        .verb = VERB_PING, .wants_facts = true, .done = facts_known, .ctx = s
    };
    if (s->on_fact) engine_call(s->engine, &args, NULL, &err);
}

/* ---- running and closing ---- */

int server_run(struct server *s, struct err *reterr)
{
    signal(SIGPIPE, SIG_IGN);         /* a peer that is gone is an error of write(), no more */
    loop_update(&s->loop, now_ms(s)); /* opening took a while, and deadlines begin now */
    ask_for_facts(s);
    metrics_refresh(&s->metrics);
    notify_manager(s->notify_socket, "READY=1");
    uv_run(&s->uv, UV_RUN_DEFAULT);
    if (s->stuck)
        return err_set(reterr, ERR_UNAVAILABLE, "a store did not give back what it was asked");
    return 0;
}

/* Opening failed half-way: nothing was asked yet, but the engine may have begun to sweep. */
static void stop_unused_engine(struct server *s)
{
    engine_stop(s->engine);
    do {
        loop_turn(&s->loop, now_ms(s));
        int64_t next_ms = loop_next_ms(&s->loop, now_ms(s));
        bool idle = engine_idle(s->engine) && store_idle(s->store);
        if (!idle && next_ms != 0) loop_sleep(&s->loop, next_ms);
    } while (!engine_idle(s->engine) || !store_idle(s->store));
}

void server_close(struct server *s)
{
    if (!s) return;
    CHECK(!s->stuck);
    if (s->engine && s->state != DONE) stop_unused_engine(s);
    if (s->uv_ready) {
        uv_walk(&s->uv, close_handle, NULL);
        uv_run(&s->uv, UV_RUN_DEFAULT);
        CHECK(uv_loop_close(&s->uv) == 0);
    }
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
