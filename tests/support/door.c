/* door.c - see door.h. */
#include "tests/support/door.h"

#include "base/check.h"
#include "daemon/http_door.h"
#include "daemon/listen.h"
#include "daemon/resp_door.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 400 };

struct daemon {
    struct carried carried;
    struct world *world;
    struct store *store;
    struct daemon_options options;
    struct engine *engine;
    bool running;
    uv_loop_t uv;
    struct io io; /* libuv's descriptor: something has come for the daemon */
    struct conns conns;
    struct bounds bounds;
    struct resp_door resp;
    struct http_door http;
    struct listener listeners[DOORS];
    uint64_t accepted; /* as last seen */
    char path[96], http_path[96], url[DAEMON_URL_BYTES];
};

static int64_t now_ms(void *ctx)
{
    return ((struct daemon *)ctx)->world->mono_ms;
}

static void io_ready(struct io *io, unsigned events)
{
    (void)io, (void)events; /* to be awake is enough */
}

/* Did it do anything? */
static bool daemon_go(struct carried *carried)
{
    struct daemon *d = container_of(carried, struct daemon, carried);
    if (!d->running) return false;
    uv_run(&d->uv, UV_RUN_NOWAIT);
    bool accepted = d->accepted != d->conns.ids, dirty = !list_empty(&d->conns.dirty);
    d->accepted = d->conns.ids;
    conns_settle(&d->conns);
    return accepted || dirty || !list_empty(&d->conns.dirty);
}

static void listen_at(struct daemon *d, const struct door *door, void *ctx, const char *path)
{
    struct err err;
    char address[128];
    struct listener *l = &d->listeners[door->id];
    *l = (struct listener){ .conns = &d->conns, .door = door, .door_ctx = ctx };
    snprintf(address, sizeof address, "unix:%s", path);
    int r = listener_open(l, address, &err);
    if (r) fprintf(stderr, "door: %s\n", err.text);
    CHECK(r == 0);
}

static void open_doors(struct daemon *d)
{
    struct err err;
    d->resp = (struct resp_door){ .engine = d->engine,
                                  .loop = &d->world->loop,
                                  .conns = &d->conns,
                                  .bounds = &d->bounds,
                                  .auth = d->options.auth,
                                  .planes = "a test",
                                  .durable = d->store->caps & CAP_DURABLE };
    CHECK(bounds_init(&d->bounds, d->engine, &d->world->loop, &d->world->rng.base, &err) == 0);
    CHECK(resp_door_init(&d->resp, d->options.value_bytes_max, &d->world->rng.base, &err) == 0);
    d->http = (struct http_door){ .engine = d->engine,
                                  .loop = &d->world->loop,
                                  .conns = &d->conns,
                                  .bounds = &d->bounds,
                                  .auth = d->options.auth,
                                  .wall = d->world->env.wall };
    http_door_init(&d->http, d->options.value_bytes_max, &d->world->rng.base);
    listen_at(d, &resp_door, &d->resp, d->path);
    listen_at(d, &http_door, &d->http, d->http_path);
}

void daemon_resume(struct daemon *d)
{
    struct err err;
    struct engine_config config = ENGINE_CONFIG_INIT;
    size_t value_bytes_max = (size_t)d->options.value_bytes_max;
    struct conn_limits limits = { 2 * value_bytes_max + 256 * 1024,
                                  1024 * 1024,
                                  257 * (value_bytes_max + 4096),
                                  256,
                                  30000,
                                  30000,
                                  1000 };
    config.sweep_ms = 0; /* what is swept, the test sweeps */
    config.value_bytes_max = d->options.value_bytes_max;
    config.patience_ms = d->options.patience_ms;
    CHECK(engine_open(d->store, &d->world->env, &config, &d->engine, &err) == 0);
    CHECK(uv_loop_init(&d->uv) == 0);
    conns_init(&d->conns, &d->uv, &d->world->loop, &limits, CONNECTIONS_MAX);
    d->conns.clock = (struct clock){ .now_ms = now_ms, .ctx = d };
    d->accepted = 0;
    open_doors(d);
    d->io = (struct io){ .fd = uv_backend_fd(&d->uv), .events = POLLIN, .ready = io_ready };
    CHECK(io_add(&d->world->loop, &d->io, &err) == 0);
    d->running = true;
}

void daemon_pause(struct daemon *d)
{
    if (!d->running) return;
    d->running = false;
    io_remove(&d->world->loop, &d->io);
    conns_close(&d->conns, CLOSE_SHUTDOWN);
    for (size_t i = 0; i < DOORS; i++) listener_close(&d->listeners[i]);
    uv_run(&d->uv, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&d->uv) == 0);
    engine_stop(d->engine);
    world_settle(d->world);
    CHECK(engine_idle(d->engine));
    resp_door_fini(&d->resp);
    http_door_fini(&d->http);
    bounds_fini(&d->bounds);
    conns_fini(&d->conns);
    engine_free(d->engine);
    d->engine = NULL;
    unlink(d->path);
    unlink(d->http_path);
}

static void daemon_end(struct carried *carried)
{
    struct daemon *d = container_of(carried, struct daemon, carried);
    daemon_pause(d);
    link_remove(&carried->link);
    world_close(d->world, d->store);
    free(d);
}

struct daemon *daemon_start(struct world *w, struct store *store,
                            const struct daemon_options *options)
{
    static const struct daemon_options usual;
    struct err err;
    struct daemon *d = calloc(1, sizeof *d);
    CHECK(d);
    signal(SIGPIPE, SIG_IGN); /* as server_run() does */
    if (w->loop.fd < 0) CHECK(loop_open(&w->loop, &err) == 0);
    d->world = w;
    d->store = store;
    d->options = options ? *options : usual;
    if (!d->options.value_bytes_max) d->options.value_bytes_max = VALUE_BYTES_MAX_DEFAULT;
    if (!d->options.patience_ms) d->options.patience_ms = 5000;
    snprintf(d->path, sizeof d->path, "%s/%zu.sock", world_dir(w), ++w->file_count);
    snprintf(d->http_path, sizeof d->http_path, "%s/%zu.http", world_dir(w), w->file_count);
    snprintf(d->url, sizeof d->url, "once://%s", d->path);
    d->carried = (struct carried){ .go = daemon_go, .end = daemon_end };
    link_init(&d->carried.link);
    list_append(&w->carried, &d->carried.link);
    daemon_resume(d);
    return d;
}

void daemon_stop(struct daemon *d)
{
    daemon_end(&d->carried);
}

const char *daemon_socket(const struct daemon *d)
{
    return d->path;
}

const char *daemon_http_socket(const struct daemon *d)
{
    return d->http_path;
}

struct store *daemon_store(const struct daemon *d)
{
    return d->store;
}

const char *daemon_url(const struct daemon *d)
{
    return d->url;
}

struct engine_stats daemon_stats(const struct daemon *d)
{
    return engine_stats(d->engine);
}

size_t daemon_connections(const struct daemon *d)
{
    return d->conns.count;
}

size_t daemon_watches(const struct daemon *d)
{
    return d->resp.watches.count;
}

void daemon_hang_up(struct daemon *d)
{
    conns_close(&d->conns, CLOSE_SHUTDOWN);
}
