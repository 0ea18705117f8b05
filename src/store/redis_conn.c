/* redis_conn.c - one connection to one Redis server, on the loop.
 *
 * Guarantees: commands are answered in the order they were sent, each exactly once, at the latest at
 * its deadline; a connection that was lost is made again with a growing, jittered pause; a server
 * that does not answer is dropped after a few deadlines; one that cannot do the work (too old, a
 * replica, will not say what it is) counts as down, with the reason; a resolver that hangs holds up
 * nobody. Does not: send a command again.
 *
 * A name is looked up for every attempt, because a failover may move it; if that fails or takes too
 * long, what was said last is tried. Of several addresses each is tried, from the last good one on.
 *
 * The greeting (AUTH, SELECT, INFO, SCRIPT LOADs) goes out as one pipeline with the connection.
 *
 * hiredis connects and parses. Commands are written here, because hiredis sends them by write(),
 * and a peer that has gone would end the program that hosts us by SIGPIPE. */
#include "base/check.h"
#include "proto/reply.h"
#include "store/redis.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
    CONNECT_MS = 1000,
    HANG_DEADLINES = 3, /* so many deadlines of silence: the server hangs */
    OUT_BYTES_MAX = 1 << 30,
    OUT_BYTES_KEPT = 1 << 20,
    PUT_OFF_MAX = 4, /* turns: told, asked again, sent */
};

static const struct pauses again = { .first_ms = 10, .most_ms = 1000 };

static const unsigned conn_arrow[] = {
    [CONN_DOWN] = BIT(CONN_RESOLVING) | BIT(CONN_CONNECTING),
    [CONN_RESOLVING] = BIT(CONN_CONNECTING) | BIT(CONN_DOWN),
    [CONN_CONNECTING] = BIT(CONN_GREETING) | BIT(CONN_DOWN),
    [CONN_GREETING] = BIT(CONN_READY) | BIT(CONN_DOWN),
    [CONN_READY] = BIT(CONN_DOWN),
};

static bool is_under_way(enum conn_state state)
{
    return state == CONN_RESOLVING || state == CONN_CONNECTING || state == CONN_GREETING;
}

static void set_state(struct conn *c, enum conn_state to)
{
    CHECK(conn_arrow[c->state] & BIT(to));
    if (is_under_way(to) && !is_under_way(c->state)) c->redis->base.loop->owed++;
    if (is_under_way(c->state) && !is_under_way(to)) c->redis->base.loop->owed--;
    if (to == CONN_READY) c->redis->connects++;
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
    int64_t usual_ms = now_ms(c) + c->redis->options.timeout_ms;
    list_each (&c->sent, at) {
        const struct command *command = container_of(at, struct command, link);
        if (command->overdue) continue;
        if (command->deadline_ms < at_ms) at_ms = command->deadline_ms;
        if (command->deadline_ms <= usual_ms) break; /* behind it, none is due much earlier */
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
    CHECK(!list_empty(&c->sent));
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
    timer_stop(c->redis->base.loop, &c->more);
    redisFree(c->ctx);
    c->ctx = NULL;
    buf_clear(&c->out);
    c->out_sent = 0;
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

static int64_t again_ms(const struct conn *c)
{
    return rng_pause_ms(c->redis->env.rng, again, c->failures);
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

/* An inbox is not there to be greeted. */
static bool is_of_use(const struct conn *c)
{
    return c->subscribed || !c->events->pushed;
}

void conn_drop(struct conn *c, int code, const char *text)
{
    char name[100];
    if (c->state == CONN_DOWN) return;
    server_name(c, name, sizeof name);
    err_set(&c->why, code, "redis: %s: %.70s", name, text);
    /* A connection that had worked is worth waiting for once; one that hangs is not. */
    bool had_worked = c->state == CONN_READY && !c->silent && is_of_use(c);
    c->failures = had_worked ? 0 : c->failures + 1;
    if (is_under_way(c->state)) c->address++; /* the next attempt begins with another one */
    go_down(c);
}

/* ---- greeting ---- */

enum greeting_step {
    GREET_AUTH,
    GREET_SELECT,
    GREET_INFO,
    GREET_CONFIG,
    GREET_SLOTS,
    GREET_SCRIPT, /* and those behind it: one each */
};

/* False: it could not be sent; the caller has to give the connection up. */
static bool greet(struct conn *c, unsigned step, int argc, const char **argv)
{
    size_t lens[4];
    for (int i = 0; i < argc; i++) lens[i] = strlen(argv[i]);
    struct greeting *g = &c->greetings[c->greetings_sent++];
    g->step = step;
    g->command.deadline_ms = now_ms(c) + CONNECT_MS;
    return conn_send(c, &g->command, argc, argv, lens);
}

/* False: the connection is down. */
static bool introduced(struct conn *c, const char *info)
{
    struct redis *r = c->redis;
    facts_from_info(&c->facts, info);
    const char *why = facts_unfit(&c->facts);
    if (why) {
        conn_drop(c, ERR_UNAVAILABLE, why);
        return false;
    }
    r->introduced = true;
    r->clustered = c->facts.cluster;
    if (!r->clustered) return true;
    if (greet(c, GREET_SLOTS, 2, (const char *[]){ "CLUSTER", "SLOTS" }))
        conn_flush(c);
    else
        conn_drop(c, ERR_NOMEM, "out of memory");
    return c->state == CONN_GREETING;
}

static void greeting_over(struct conn *c)
{
    set_state(c, CONN_READY);
    if (is_of_use(c)) c->failures = 0;
    conn_watch_deadlines(c);
    c->events->ready(c);
}

/* Of what it says only the first word: a server that does not know AUTH repeats the password. */
static void auth_refused(struct conn *c, const redisReply *reply)
{
    char text[120];
    struct bytes word = reply_error_word(bytes_of(reply->str, reply->len));
    snprintf(text, sizeof text, "AUTH: %.*s: it does not take the user or password of the URL",
             (int)word.len, (const char *)word.data);
    conn_drop(c, ERR_UNAVAILABLE, text);
}

static void greeted(struct command *command, struct conn *c, const redisReply *reply,
                    const struct err *why)
{
    const struct greeting *g = container_of(command, struct greeting, command);
    if (why) return; /* the connection is going down, and knows why */
    /* INFO has to be told: who takes a cluster for a single server looks for records elsewhere. */
    if (reply->type == REDIS_REPLY_ERROR && g->step == GREET_AUTH) {
        auth_refused(c, reply);
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR && g->step != GREET_CONFIG) {
        conn_drop(c, ERR_UNAVAILABLE, reply->str);
        return;
    }
    if (g->step == GREET_INFO && !introduced(c, reply->str ? reply->str : "")) return;
    if (g->step == GREET_CONFIG) facts_from_config(&c->facts, reply);
    if (g->step >= GREET_SCRIPT && reply->str)
        snprintf(c->sha[g->step - GREET_SCRIPT], SHA_BYTES, "%s", reply->str);
    if (g->step == GREET_SLOTS) slots_learn(c, reply);
    if (++c->greeted == c->greetings_sent) greeting_over(c);
}

static bool greet_by_name(struct conn *c)
{
    const struct redis_options *o = &c->redis->options;
    if (!o->password) return true;
    if (!o->user) return greet(c, GREET_AUTH, 2, (const char *[]){ "AUTH", o->password });
    return greet(c, GREET_AUTH, 3, (const char *[]){ "AUTH", o->user, o->password });
}

static bool greet_for_work(struct conn *c)
{
    bool sent = greet(c, GREET_CONFIG, 3, (const char *[]){ "CONFIG", "GET", "appendfsync" }) &&
                greet(c, GREET_CONFIG, 3, (const char *[]){ "CONFIG", "GET", "save" });
    for (unsigned i = 0; sent && i < SCRIPTS; i++)
        sent = greet(c, GREET_SCRIPT + i, 3,
                     (const char *[]){ "SCRIPT", "LOAD", redis_scripts[i] });
    return sent;
}

static void greet_all(struct conn *c)
{
    char db[16];
    snprintf(db, sizeof db, "%d", c->redis->options.db);
    set_state(c, CONN_GREETING);
    c->greeted = c->greetings_sent = 0;
    bool sent = greet_by_name(c);
    if (c->redis->options.db)
        sent = sent && greet(c, GREET_SELECT, 2, (const char *[]){ "SELECT", db });
    sent = sent && greet(c, GREET_INFO, 1, (const char *[]){ "INFO" });
    if (!c->events->pushed) sent = sent && greet_for_work(c);
    if (sent)
        conn_flush(c);
    else
        conn_drop(c, ERR_NOMEM, "out of memory");
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

/* What came together is not taken together: what the first answer leads to is sent while the second
 * one is looked at. Otherwise all questions, once they are in step, are under way or here at the same
 * time, and of server and client one is always idle. */
static bool take_turns(struct conn *c)
{
    if (c->state != CONN_READY || c->subscribed) return false;
    if (c->ctx->reader->pos >= c->ctx->reader->len) return false;
    c->put_off = 0;
    timer_set(c->redis->base.loop, &c->more, now_ms(c));
    return true;
}

static void take_replies(struct conn *c)
{
    redisContext *ctx = c->ctx;
    void *reply = NULL;
    while (c->ctx == ctx) {
        if (redisGetReplyFromReader(ctx, &reply) != REDIS_OK) {
            conn_drop(c, ERR_AMBIGUOUS, ctx->errstr);
            return;
        }
        if (!reply) break;
        take_reply(c, reply);
        freeReplyObject(reply);
        if (c->ctx == ctx && take_turns(c)) break;
    }
    if (c->ctx == ctx) conn_watch_deadlines(c);
}

static void take_more(struct timer *timer)
{
    struct conn *c = container_of(timer, struct conn, more);
    struct loop *loop = c->redis->base.loop;
    if (!list_empty(&loop->tasks) && c->put_off++ < PUT_OFF_MAX)
        timer_set(loop, &c->more, now_ms(c));
    else
        take_replies(c);
}

static void read_replies(struct conn *c)
{
    if (timer_is_set(&c->more))
        return; /* what is behind them, be it the end, is read after them */
    if (redisBufferRead(c->ctx) == REDIS_OK)
        take_replies(c);
    else
        conn_drop(c, ERR_AMBIGUOUS, c->ctx->errstr);
}

/* False: an error. EAGAIN is none. */
static bool send_out(struct conn *c)
{
    while (c->out_sent < c->out.len) {
        ssize_t n =
            send(c->io.fd, c->out.data + c->out_sent, c->out.len - c->out_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
        c->out_sent += (size_t)n;
    }
    buf_clear(&c->out);
    c->out_sent = 0;
    if (c->out.cap > OUT_BYTES_KEPT) buf_fini(&c->out);
    return true;
}

void conn_flush(struct conn *c)
{
    if (!c->ctx) return;
    if (!send_out(c)) {
        conn_drop(c, ERR_AMBIGUOUS, strerror(errno));
        return;
    }
    io_want(c->redis->base.loop, &c->io, c->out.len ? POLLIN | POLLOUT : POLLIN);
}

static void put_number(struct buf *out, char kind, size_t n)
{
    char text[24], *end = text + sizeof text, *at = end;
    *--at = '\n';
    *--at = '\r';
    do *--at = (char)('0' + n % 10);
    while (n /= 10);
    *--at = kind;
    buf_add(out, bytes_of(at, (size_t)(end - at)));
}

static size_t piece_bytes(size_t len)
{
    return len & ~ARG_GOES_ON;
}

/* The argument whose first piece is the i-th; returns where the next one begins. */
static int put_arg(struct buf *out, int i, const char **argv, const size_t *lens)
{
    int last = i;
    size_t bytes = piece_bytes(lens[i]);
    while (lens[last] & ARG_GOES_ON) bytes += piece_bytes(lens[++last]);
    put_number(out, '$', bytes);
    for (; i <= last; i++) buf_add(out, bytes_of(argv[i], piece_bytes(lens[i])));
    buf_add(out, bytes_of("\r\n", 2));
    return i;
}

/* All of it or nothing. */
static bool put_command(struct buf *out, int argc, const char **argv, const size_t *lens)
{
    size_t before = out->len, args = 0;
    for (int i = 0; i < argc; i++) args += !(lens[i] & ARG_GOES_ON);
    put_number(out, '*', args);
    for (int i = 0; i < argc;) i = put_arg(out, i, argv, lens);
    if (!buf_failed(out)) return true;
    buf_clear(out);
    out->len = before;
    return false;
}

bool conn_send(struct conn *c, struct command *command, int argc, const char **argv,
               const size_t *lens)
{
    CHECK(c->state == CONN_READY || c->state == CONN_GREETING);
    command->overdue = false;
    if (!put_command(&c->out, argc, argv, lens)) {
        struct err why;
        err_set(&why, ERR_NOMEM, "out of memory; nothing was changed");
        command_failed(c, command, &why);
        if (command->gone) command->gone(command);
        return false;
    }
    list_append(&c->sent, &command->link);
    return true;
}

static void free_command(struct command *command)
{
    free(command);
}

bool conn_ask(struct conn *c, command_answered *answered, int argc, const char **argv)
{
    size_t lens[4];
    struct command *command = malloc(sizeof *command);
    if (!command) return false;
    *command = (struct command){ .answered = answered,
                                 .gone = free_command,
                                 .deadline_ms = now_ms(c) + c->redis->options.timeout_ms };
    link_init(&command->link);
    for (int i = 0; i < argc; i++) lens[i] = strlen(argv[i]);
    return conn_send(c, command, argc, argv, lens);
}

void conn_ping(struct conn *c)
{
    if (put_command(&c->out, 1, (const char *[]){ "PING" }, (const size_t[]){ 4 }))
        conn_flush(c);
}

/* ---- connecting ---- */

static void try_address(struct conn *c);

/* The next address of the host, if there is one. */
static void address_failed(struct conn *c, const char *text)
{
    close_socket(c);
    if (!c->path && resolver_address(&c->resolver, ++c->address))
        try_address(c);
    else
        conn_drop(c, ERR_UNAVAILABLE, text);
}

static void connected(struct conn *c)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(c->io.fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0) error = errno;
    if (error)
        address_failed(c, strerror(error));
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

/* hiredis gets addresses only: it resolves names where it is called, which is on the loop. */
static redisContext *context_new(const struct conn *c)
{
    char host[NI_MAXHOST];
    if (c->path) return redisConnectUnixNonBlock(c->path);
    const struct addrinfo *a = resolver_address(&c->resolver, c->address);
    if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST))
        return NULL;
    return redisConnectNonBlock(host, c->port);
}

static void try_address(struct conn *c)
{
    struct err err;
    redisContext *ctx = context_new(c);
    if (!ctx || ctx->err) {
        char text[128];
        snprintf(text, sizeof text, "%s", ctx ? ctx->errstr : "out of memory");
        redisFree(ctx);
        address_failed(c, text);
        return;
    }
    fcntl(ctx->fd, F_SETFD, FD_CLOEXEC); /* not for the programs that our host starts */
    c->io = (struct io){ .fd = ctx->fd, .events = POLLOUT, .ready = conn_ready };
    if (io_add(c->redis->base.loop, &c->io, &err)) {
        redisFree(ctx);
        conn_drop(c, ERR_UNAVAILABLE, err.text);
        return;
    }
    c->ctx = ctx;
}

static void conn_connect(struct conn *c)
{
    set_state(c, CONN_CONNECTING);
    timer_set(c->redis->base.loop, &c->timer, now_ms(c) + CONNECT_MS);
    if (!resolver_address(&c->resolver, c->address)) c->address = 0;
    try_address(c);
}

/* What comes too late for an attempt is there for the next one. */
static void resolved(struct resolver *resolver, const char *why)
{
    struct conn *c = container_of(resolver, struct conn, resolver);
    if (c->state != CONN_RESOLVING) return;
    if (resolver_address(resolver, 0))
        conn_connect(c);
    else
        conn_drop(c, ERR_UNAVAILABLE, why);
}

static void conn_resolve(struct conn *c)
{
    char port[8];
    bool known = resolver_address(&c->resolver, 0);
    snprintf(port, sizeof port, "%d", c->port);
    set_state(c, CONN_RESOLVING);
    timer_set(c->redis->base.loop, &c->timer,
              now_ms(c) + (known ? RESOLVER_KNOWN_MS : CONNECT_MS));
    resolver_ask(&c->resolver, c->host, port);
}

static void conn_begin(struct conn *c)
{
    if (c->path)
        conn_connect(c);
    else
        conn_resolve(c);
}

static void conn_timer(struct timer *timer)
{
    struct conn *c = container_of(timer, struct conn, timer);
    if (c->state == CONN_DOWN)
        conn_begin(c);
    else if (c->state == CONN_RESOLVING)
        resolved(&c->resolver, "its name takes too long to resolve");
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
    timer_init(&c->more, take_more);
    resolver_init(&c->resolver, r->base.loop, resolved);
    list_init(&c->sent);
    buf_init(&c->out, OUT_BYTES_MAX);
    for (size_t i = 0; i < sizeof c->greetings / sizeof c->greetings[0]; i++) {
        link_init(&c->greetings[i].command.link);
        c->greetings[i].command.answered = greeted;
    }
}

void conn_fini(struct conn *c)
{
    err_set(&c->why, ERR_AMBIGUOUS, "redis: the store is closing");
    close_socket(c);
    if (c->state != CONN_DOWN) set_state(c, CONN_DOWN);
    fail_sent(c);
    buf_fini(&c->out);
    timer_stop(c->redis->base.loop, &c->timer);
    resolver_clear(&c->resolver);
}

void conn_follow(struct conn *c, const struct conn *other)
{
    CHECK(c->state == CONN_DOWN);
    c->host = other->host;
    c->port = other->port;
    c->path = other->path;
    resolver_clear(&c->resolver);
}

/* The attempt itself is made from the loop: nothing may be told inside submit. */
void conn_use(struct conn *c)
{
    if (c->state == CONN_DOWN && !timer_is_set(&c->timer))
        timer_set(c->redis->base.loop, &c->timer, now_ms(c));
}

void conn_missed(struct conn *c)
{
    char name[100];
    if (c->state == CONN_READY || c->failures > 0) return;
    server_name(c, name, sizeof name);
    err_set(&c->why, ERR_UNAVAILABLE, "redis: %s: it does not answer", name);
    c->failures = 1;
}

bool conn_refuses(const struct conn *c)
{
    if (c->state == CONN_READY) return c->silent;
    return c->failures > 0;
}
