/* server_parts.h - what a server is made of: for server.c, which drives it, and server_open.c, which
 * puts it together and takes it apart. */
#ifndef DAEMON_SERVER_PARTS_H
#define DAEMON_SERVER_PARTS_H

#include "daemon/guard.h"
#include "daemon/http_door.h"
#include "daemon/listen.h"
#include "daemon/metrics.h"
#include "daemon/resp_door.h"
#include "daemon/server.h"
#include "engine/runs.h"

enum { PLANES_TEXT_BYTES = 400, DOORS_MAX = 2 };

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

static inline int64_t server_now_ms(const struct server *s)
{
    return clock_now_ms(&s->clock);
}

/* server.c: libuv, carrying the loop, which is open; signals; the timer of shutting down. */
int server_carry(struct server *s, struct err *reterr);
void server_drop(struct server *s); /* closes every handle of libuv, and libuv */

#endif
