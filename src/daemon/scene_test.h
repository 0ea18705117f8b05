/* scene_test.h - a door in the process of a test: an engine on a store that fails as it is told to,
 * a listener on a path, clients, and time that the test moves. */
#ifndef DAEMON_SCENE_TEST_H
#define DAEMON_SCENE_TEST_H

#include "daemon/http_door.h"
#include "daemon/listen.h"
#include "daemon/metrics.h"
#include "daemon/resp_door.h"
#include "tests/support/faulty.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SCENE_VALUE_BYTES_MAX = 1024 };

struct scene {
    struct world world;
    struct store *store; /* faulty, on the one that was named */
    struct engine *engine;
    uv_loop_t uv;
    struct conns conns;
    struct listener listener;
    struct bounds bounds;
    struct resp_door door;
    struct http_door http;
    struct metrics metrics;
    char dir[32];
};

static inline int64_t scene_now_ms(void *ctx)
{
    return ((struct scene *)ctx)->world.mono_ms;
}

static inline void scene_open_on(struct scene *s, const struct door *door, const char *store)
{
    struct err err;
    char address[64];
    struct conn_limits limits = { 1 << 18, 65536, 1 << 20, 16, 30000, 30000, 1000 };
    struct engine_config config = ENGINE_CONFIG_INIT;
    config.value_bytes_max = SCENE_VALUE_BYTES_MAX;
    signal(SIGPIPE, SIG_IGN); /* as server_run() does */
    world_init(&s->world, 1);
    s->store = faulty_open(world_open(&s->world, store), &s->world.env);
    cr_assert_eq(engine_open(s->store, &s->world.env, &config, &s->engine, &err), 0);
    cr_assert_eq(uv_loop_init(&s->uv), 0);
    conns_init(&s->conns, &s->uv, &s->world.loop, &limits, 100);
    s->conns.clock = (struct clock){ .now_ms = scene_now_ms, .ctx = s };
    s->door.engine = s->engine;
    s->door.loop = &s->world.loop;
    s->door.conns = &s->conns;
    s->door.bounds = &s->bounds;
    s->door.planes = "memory";
    cr_assert_eq(bounds_init(&s->bounds, s->engine, &s->world.loop, &s->world.rng.base, &err),
                 0);
    cr_assert_eq(resp_door_init(&s->door, SCENE_VALUE_BYTES_MAX, &s->world.rng.base, &err), 0);
    s->http.engine = s->engine;
    s->http.loop = &s->world.loop;
    s->http.conns = &s->conns;
    s->http.bounds = &s->bounds;
    s->http.wall = s->conns.clock;
    s->metrics = (struct metrics){
        .loop = &s->world.loop, .engine = s->engine, .store = s->store, .plane = "ledger"
    };
    metrics_init(&s->metrics, &s->conns.clock);
    s->http.metrics = &s->metrics;
    http_door_init(&s->http, SCENE_VALUE_BYTES_MAX, &s->world.rng.base);
    s->listener.conns = &s->conns;
    s->listener.door = door;
    s->listener.door_ctx = door == &http_door ? (void *)&s->http : &s->door;
    snprintf(s->dir, sizeof s->dir, "/tmp/door-test-XXXXXX");
    cr_assert(mkdtemp(s->dir));
    snprintf(address, sizeof address, "unix:%s/s", s->dir);
    cr_assert_eq(listener_open(&s->listener, address, &err), 0, "%s", err.text);
}

static inline void scene_open_door(struct scene *s, const struct door *door)
{
    scene_open_on(s, door, "memory");
}

/* Everything that can be done without time passing. */
static inline void go(struct scene *s)
{
    for (int i = 0; i < 8; i++) {
        uv_run(&s->uv, UV_RUN_NOWAIT);
        world_settle(&s->world);
        conns_settle(&s->conns);
    }
}

static inline void pass_ms(struct scene *s, int64_t ms)
{
    world_advance(&s->world, ms);
    go(s);
}

static inline void scene_close(struct scene *s)
{
    conns_close(&s->conns, CLOSE_SHUTDOWN);
    listener_close(&s->listener);
    uv_run(&s->uv, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&s->uv), 0);
    engine_stop(s->engine);
    world_settle(&s->world);
    cr_assert(engine_idle(s->engine));
    resp_door_fini(&s->door);
    http_door_fini(&s->http);
    bounds_fini(&s->bounds);
    conns_fini(&s->conns);
    engine_free(s->engine);
    world_close(&s->world, s->store);
    world_fini(&s->world);
    rmdir(s->dir);
}

static inline int dial(struct scene *s)
{
    struct sockaddr_un path = { .sun_family = AF_UNIX };
    snprintf(path.sun_path, sizeof path.sun_path, "%s/s", s->dir);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&path, sizeof path), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    go(s);
    return fd;
}

static inline void say(struct scene *s, int fd, const char *text)
{
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    go(s);
}

static inline void hang_up(struct scene *s, int fd)
{
    close(fd);
    go(s);
}

static inline const char *hear(int fd)
{
    static char got[65536];
    ssize_t n = read(fd, got, sizeof got - 1);
    got[n > 0 ? n : 0] = '\0';
    return got;
}

static inline void hears(int fd, const char *start)
{
    const char *got = hear(fd);
    if (*start)
        cr_assert(strncmp(got, start, strlen(start)) == 0, "%s", got);
    else
        cr_assert_str_eq(got, "");
}

#endif
