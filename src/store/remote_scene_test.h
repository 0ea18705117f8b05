/* remote_scene_test.h - a daemon in the process of a test, clients of it, and somebody between them who
 * cuts the line. */
#ifndef STORE_REMOTE_SCENE_TEST_H
#define STORE_REMOTE_SCENE_TEST_H

#include "base/check.h"
#include "engine/engine.h"
#include "store/remote.h"
#include "tests/support/door.h"
#include "tests/support/faulty.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- a client: an engine on a remote store ---- */

struct client {
    struct world *world;
    struct store *store;
    struct engine *engine;
};

static inline void client_open(struct client *c, struct world *w, const char *url)
{
    struct err err;
    struct engine_config config = ENGINE_CONFIG_INIT;
    config.sweep_ms = 0;
    c->world = w;
    cr_assert_eq(store_open(url, &w->env, &c->store, &err), 0, "%s", err.text);
    cr_assert_eq(engine_open(c->store, &w->env, &config, &c->engine, &err), 0);
}

static inline void client_close(struct client *c)
{
    engine_stop(c->engine);
    world_settle(c->world);
    cr_assert(engine_idle(c->engine));
    engine_free(c->engine);
    world_close(c->world, c->store);
}

/* ---- somebody between client and daemon who cuts the line ---- */

struct relay {
    struct carried carried;
    const char *to;
    int listener, client, daemon;
    size_t left_up, left_down; /* bytes that still pass; SIZE_MAX: all of them */
    unsigned cuts;
    char url[120];
};

static inline int unix_socket(const char *path, bool listens)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const struct sockaddr *to = (const struct sockaddr *)&at;
    int r = listens ? bind(fd, to, sizeof at) : connect(fd, to, sizeof at);
    if (r == 0 && listens) r = listen(fd, 8);
    if (r == 0) return fd;
    close(fd);
    return -1;
}

static inline void relay_cut(struct relay *r)
{
    close(r->client);
    if (r->daemon >= 0) close(r->daemon);
    r->client = r->daemon = -1;
    r->left_up = r->left_down = SIZE_MAX;
    r->cuts++;
}

/* False: there was nothing to pass on. */
static inline bool relay_pass(struct relay *r, int from, int to, size_t *left)
{
    char bytes[512];
    size_t most = *left < sizeof bytes ? *left : sizeof bytes;
    if (*left == 0) {
        relay_cut(r);
        return true;
    }
    ssize_t n = recv(from, bytes, most, 0);
    if (n < 0) return false;
    if (n == 0) {
        relay_cut(r);
        return true;
    }
    CHECK(send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n);
    if (*left != SIZE_MAX) *left -= (size_t)n;
    return true;
}

static inline bool relay_go(struct carried *carried)
{
    struct relay *r = container_of(carried, struct relay, carried);
    if (r->client < 0) {
        r->client = accept4(r->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (r->client < 0) return false;
        r->daemon = unix_socket(r->to, false);
        if (r->daemon < 0) relay_cut(r);
        return true;
    }
    bool any = relay_pass(r, r->client, r->daemon, &r->left_up);
    return (r->client >= 0 && relay_pass(r, r->daemon, r->client, &r->left_down)) || any;
}

static inline void relay_end(struct carried *carried)
{
    struct relay *r = container_of(carried, struct relay, carried);
    link_remove(&carried->link);
    close(r->listener);
    if (r->client >= 0) relay_cut(r);
}

static inline void relay_open(struct relay *r, struct world *w, struct daemon *d)
{
    char path[96];
    *r = (struct relay){ .carried = { .go = relay_go, .end = relay_end },
                         .to = daemon_socket(d),
                         .client = -1,
                         .daemon = -1,
                         .left_up = SIZE_MAX,
                         .left_down = SIZE_MAX };
    link_init(&r->carried.link);
    snprintf(path, sizeof path, "%s/relay", world_dir(w));
    snprintf(r->url, sizeof r->url, "once://%s", path);
    r->listener = unix_socket(path, true);
    cr_assert(r->listener >= 0, "%s", path);
    list_append(&w->carried, &r->carried.link);
}

struct scene {
    struct world world;
    struct daemon *daemon;
    const char *plane;    /* of the daemon; NULL: memory */
    struct store *behind; /* faulty, on that */
    struct relay relay;
    struct client client, direct; /* through the relay, and past it */
};

static inline void scene_open(struct scene *s)
{
    world_init(&s->world, 1);
    s->behind =
        faulty_open(world_open(&s->world, s->plane ? s->plane : "memory"), &s->world.env);
    s->daemon = daemon_start(&s->world, s->behind, NULL);
    relay_open(&s->relay, &s->world, s->daemon);
    client_open(&s->client, &s->world, s->relay.url);
    client_open(&s->direct, &s->world, daemon_url(s->daemon));
}

static inline void scene_close(struct scene *s)
{
    client_close(&s->client);
    client_close(&s->direct);
    world_fini(&s->world);
}

#endif
