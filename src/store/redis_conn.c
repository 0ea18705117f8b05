/* redis_conn.c - one connection to one Redis server, on the loop.
 *
 * Guarantees: commands are answered in the order they were sent, each exactly once, at the latest at
 * its deadline; a connection that was lost is made again with a growing, jittered pause; a server
 * that does not answer is dropped after a few deadlines. Does not: send a command again.
 *
 * The greeting (AUTH, SELECT, INFO, SCRIPT LOAD) goes out as one pipeline with the connection. */
#include "base/check.h"
#include "store/redis.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
    CONNECT_MS = 1000,
    AGAIN_MS_FIRST = 10,
    AGAIN_MS_MAX = 1000,
    HANG_DEADLINES = 3, /* so many deadlines of silence: the server hangs */
};

static const unsigned conn_arrow[] = {
    [CONN_DOWN] = BIT(CONN_CONNECTING),
    [CONN_CONNECTING] = BIT(CONN_GREETING) | BIT(CONN_DOWN),
    [CONN_GREETING] = BIT(CONN_READY) | BIT(CONN_DOWN),
    [CONN_READY] = BIT(CONN_DOWN),
};

static void set_state(struct conn *c, enum conn_state to)
{
    CHECK(conn_arrow[c->state] & BIT(to));
    c->state = to;
}

static int64_t now_ms(const struct conn *c)
{
    return c->redis->base.loop->now_ms;
}

/* ---- deadlines ---- */

static int64_t hang_ms(const struct conn *c)
{
    return c->redis->options.timeout_ms * HANG_DEADLINES;
}

void conn_watch_deadlines(struct conn *c)
{
    if (c->state != CONN_READY) return;
    struct link *first = list_first(&c->sent);
    if (!first) {
        timer_stop(c->redis->base.loop, &c->timer);
        return;
    }
    const struct command *front = container_of(first, struct command, link);
    int64_t at_ms = front->deadline_ms;
    if (front->overdue) at_ms += hang_ms(c);
    list_each (&c->sent, at) {
        const struct command *command = container_of(at, struct command, link);
        if (command->overdue) continue;
        if (command->deadline_ms < at_ms) at_ms = command->deadline_ms;
        break; /* they were sent in the order of their deadlines, but for a few */
    }
    timer_set(c->redis->base.loop, &c->timer, at_ms);
}

static void command_failed(struct conn *c, struct command *command, const struct err *why)
{
    if (command->overdue) return;
    command->overdue = true;
    command->answered(command, c, NULL, why);
}

static void deadlines_passed(struct conn *c)
{
    struct err why;
    err_set(&why, ERR_AMBIGUOUS, "redis: no answer within %lld ms",
            (long long)c->redis->options.timeout_ms);
    const struct command *front = container_of(list_first(&c->sent), struct command, link);
    bool hangs = now_ms(c) >= front->deadline_ms + hang_ms(c);
    list_each (&c->sent, at) {
        struct command *command = container_of(at, struct command, link);
        if (now_ms(c) < command->deadline_ms) continue;
        c->silent = true;
        command_failed(c, command, &why);
    }
    if (hangs)
        conn_drop(c, ERR_AMBIGUOUS, "it hangs");
    else
        conn_watch_deadlines(c);
}

/* ---- closing ---- */

static void close_socket(struct conn *c)
{
    if (!c->ctx) return;
    io_remove(c->redis->base.loop, &c->io);
    redisFree(c->ctx);
    c->ctx = NULL;
}

static void fail_sent(struct conn *c)
{
    struct list sent;
    list_init(&sent);
    list_take(&sent, &c->sent);
    for (struct link *at; (at = list_pop(&sent));) {
        struct command *command = container_of(at, struct command, link);
        command_failed(c, command, &c->why);
        if (command->gone) command->gone(command);
    }
}

static int64_t again_ms(struct conn *c)
{
    int64_t ms = AGAIN_MS_FIRST;
    for (unsigned i = 1; i < c->failures && ms < AGAIN_MS_MAX; i++) ms *= 2;
    if (ms > AGAIN_MS_MAX) ms = AGAIN_MS_MAX;
    return ms / 2 + (int64_t)rng_below(c->redis->env.rng, (uint64_t)ms / 2 + 1);
}

static void go_down(struct conn *c)
{
    close_socket(c);
    set_state(c, CONN_DOWN);
    c->subscribed = c->silent = false;
    timer_set(c->redis->base.loop, &c->timer, now_ms(c) + again_ms(c));
    fail_sent(c);
    c->events->down(c);
}

static void server_name(const struct conn *c, char *out, size_t len)
{
    if (c->path)
        snprintf(out, len, "%s", c->path);
    else
        snprintf(out, len, "%s:%d", c->host, c->port);
}

void conn_drop(struct conn *c, int code, const char *text)
{
    char name[100];
    server_name(c, name, sizeof name);
    err_set(&c->why, code, "redis: %s: %.70s", name, text);
    /* A connection that had worked is worth waiting for once; one that hangs is not. */
    bool had_worked = c->state == CONN_READY && !c->silent;
    c->failures = had_worked ? 0 : c->failures + 1;
    go_down(c);
}

/* ---- greeting ---- */

enum greeting_step {
    GREET_AUTH,
    GREET_SELECT,
    GREET_INFO,
    GREET_CONFIG,
    GREET_SCRIPT,
    GREET_SLOTS,
};

static void greet(struct conn *c, enum greeting_step step, int argc, const char **argv)
{
    size_t lens[4];
    for (int i = 0; i < argc; i++) lens[i] = strlen(argv[i]);
    struct greeting *g = &c->greetings[c->greetings_sent++];
    g->step = step;
    g->command.deadline_ms = now_ms(c) + CONNECT_MS;
    conn_send(c, &g->command, argc, argv, lens);
}

static void greeting_over(struct conn *c)
{
    set_state(c, CONN_READY);
    c->failures = 0;
    conn_watch_deadlines(c);
    c->events->ready(c);
}

static void greeted(struct command *command, struct conn *c, const redisReply *reply,
                    const struct err *why)
{
    const struct greeting *g = container_of(command, struct greeting, command);
    if (why) return; /* the connection is going down, and knows why */
    bool optional = g->step == GREET_INFO || g->step == GREET_CONFIG;
    if (reply->type == REDIS_REPLY_ERROR && !optional) {
        conn_drop(c, ERR_UNAVAILABLE, reply->str);
        return;
    }
    if (g->step == GREET_INFO && reply->type == REDIS_REPLY_STRING)
        facts_from_info(&c->redis->facts, reply->str);
    if (g->step == GREET_CONFIG) facts_from_config(&c->redis->facts, reply);
    if (g->step == GREET_INFO) c->redis->clustered = c->redis->facts.cluster;
    if (g->step == GREET_INFO && c->redis->clustered) {
        greet(c, GREET_SLOTS, 2, (const char *[]){ "CLUSTER", "SLOTS" });
        conn_flush(c);
        if (c->state != CONN_GREETING) return;
    }
    if (g->step == GREET_SCRIPT && reply->type == REDIS_REPLY_STRING)
        snprintf(c->sha, sizeof c->sha, "%s", reply->str);
    if (g->step == GREET_SLOTS) slots_learn(c->redis, reply);
    if (++c->greeted == c->greetings_sent) greeting_over(c);
}

static void greet_all(struct conn *c)
{
    const struct redis_options *o = &c->redis->options;
    char db[16];
    snprintf(db, sizeof db, "%d", o->db);
    set_state(c, CONN_GREETING);
    c->greeted = c->greetings_sent = 0;
    if (o->password && o->user)
        greet(c, GREET_AUTH, 3, (const char *[]){ "AUTH", o->user, o->password });
    else if (o->password)
        greet(c, GREET_AUTH, 2, (const char *[]){ "AUTH", o->password });
    if (o->db) greet(c, GREET_SELECT, 2, (const char *[]){ "SELECT", db });
    greet(c, GREET_INFO, 1, (const char *[]){ "INFO" });
    if (!c->events->pushed) {
        greet(c, GREET_CONFIG, 3, (const char *[]){ "CONFIG", "GET", "appendfsync" });
        greet(c, GREET_CONFIG, 3, (const char *[]){ "CONFIG", "GET", "save" });
        greet(c, GREET_SCRIPT, 3, (const char *[]){ "SCRIPT", "LOAD", redis_script });
    }
    io_want(c->redis->base.loop, &c->io, POLLIN);
    conn_flush(c);
}

/* ---- reading and writing ---- */

static void take_reply(struct conn *c, redisReply *reply)
{
    c->heard_ms = now_ms(c);
    c->silent = false;
    if (c->subscribed) {
        c->events->pushed(c, reply);
        return;
    }
    struct link *first = list_pop(&c->sent);
    if (!first) {
        conn_drop(c, ERR_AMBIGUOUS, "an answer that nobody asked for");
        return;
    }
    struct command *command = container_of(first, struct command, link);
    if (!command->overdue) {
        command->overdue = true;
        command->answered(command, c, reply, NULL);
    }
    if (command->gone) command->gone(command);
}

static void read_replies(struct conn *c)
{
    redisContext *ctx = c->ctx;
    if (redisBufferRead(ctx) != REDIS_OK) {
        conn_drop(c, ERR_AMBIGUOUS, ctx->errstr);
        return;
    }
    void *reply = NULL;
    while (c->ctx == ctx) {
        if (redisGetReplyFromReader(ctx, &reply) != REDIS_OK) {
            conn_drop(c, ERR_AMBIGUOUS, ctx->errstr);
            return;
        }
        if (!reply) break;
        take_reply(c, reply);
        freeReplyObject(reply);
    }
    if (c->ctx == ctx) conn_watch_deadlines(c);
}

void conn_flush(struct conn *c)
{
    if (!c->ctx) return;
    int done = 0;
    if (redisBufferWrite(c->ctx, &done) != REDIS_OK) {
        conn_drop(c, ERR_AMBIGUOUS, c->ctx->errstr);
        return;
    }
    io_want(c->redis->base.loop, &c->io, done ? POLLIN : POLLIN | POLLOUT);
}

void conn_send(struct conn *c, struct command *command, int argc, const char **argv,
               const size_t *lens)
{
    CHECK(c->state == CONN_READY || c->state == CONN_GREETING);
    command->overdue = false;
    if (redisAppendCommandArgv(c->ctx, argc, argv, lens) != REDIS_OK) {
        struct err why;
        err_set(&why, ERR_NOMEM, "out of memory; nothing was changed");
        command_failed(c, command, &why);
        if (command->gone) command->gone(command);
        return;
    }
    list_append(&c->sent, &command->link);
}

/* ---- connecting ---- */

static void connected(struct conn *c)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(c->io.fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0) error = errno;
    if (error)
        conn_drop(c, ERR_UNAVAILABLE, strerror(error));
    else
        greet_all(c);
}

static void conn_ready(struct io *io, unsigned events)
{
    struct conn *c = container_of(io, struct conn, io);
    if (c->state == CONN_CONNECTING) {
        connected(c);
        return;
    }
    redisContext *ctx = c->ctx;
    if (events & ~(unsigned)POLLOUT) read_replies(c);
    if (c->ctx == ctx && (events & POLLOUT)) conn_flush(c);
}

static void conn_connect(struct conn *c)
{
    struct err err;
    set_state(c, CONN_CONNECTING);
    redisContext *ctx =
        c->path ? redisConnectUnixNonBlock(c->path) : redisConnectNonBlock(c->host, c->port);
    if (!ctx || ctx->err) {
        char text[128];
        snprintf(text, sizeof text, "%s", ctx ? ctx->errstr : "out of memory");
        redisFree(ctx);
        conn_drop(c, ERR_UNAVAILABLE, text);
        return;
    }
    c->io = (struct io){ .fd = ctx->fd, .events = POLLOUT, .ready = conn_ready };
    if (io_add(c->redis->base.loop, &c->io, &err)) {
        redisFree(ctx);
        conn_drop(c, ERR_UNAVAILABLE, err.text);
        return;
    }
    c->ctx = ctx;
    timer_set(c->redis->base.loop, &c->timer, now_ms(c) + CONNECT_MS);
}

static void conn_timer(struct timer *timer)
{
    struct conn *c = container_of(timer, struct conn, timer);
    if (c->state == CONN_DOWN)
        conn_connect(c);
    else if (c->state == CONN_READY)
        deadlines_passed(c);
    else
        conn_drop(c, ERR_UNAVAILABLE, "it does not answer");
}

/* ---- life ---- */

void conn_init(struct conn *c, struct redis *r, const struct conn_events *events)
{
    *c = (struct conn){ .redis = r, .events = events };
    timer_init(&c->timer, conn_timer);
    list_init(&c->sent);
    for (size_t i = 0; i < sizeof c->greetings / sizeof c->greetings[0]; i++) {
        link_init(&c->greetings[i].command.link);
        c->greetings[i].command.answered = greeted;
    }
}

void conn_fini(struct conn *c)
{
    err_set(&c->why, ERR_AMBIGUOUS, "redis: the store is closing");
    close_socket(c);
    fail_sent(c);
    timer_stop(c->redis->base.loop, &c->timer);
}

/* The attempt itself is made from the loop: a name that resolves slowly must not block submit. */
void conn_use(struct conn *c)
{
    if (c->state == CONN_DOWN && !timer_is_set(&c->timer))
        timer_set(c->redis->base.loop, &c->timer, now_ms(c));
}

bool conn_refuses(const struct conn *c)
{
    if (c->state == CONN_READY) return c->silent;
    return c->failures > 0;
}
