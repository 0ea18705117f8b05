/* remote_conn.c - the connection to a daemon, on the loop.
 *
 * Guarantees: replies and pushes are handed over one by one, in order; a connection that was lost is
 * made again with a growing, jittered pause, at every address that the host has; what cannot be
 * greeted (no daemon, a token that is not taken) counts as down, with the reason; a resolver that
 * hangs holds up nobody, as in redis_conn.c. Does not: send anything again. */
#include "store/remote.h"

#include "base/check.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    CONNECT_MS = 5000,
    CHUNK_BYTES = 16 * 1024,
    CHUNKS_MAX = 16, /* read in one go: others have their turn, too */
    BUFFER_BYTES_MAX = 1 << 30,
    BUFFER_BYTES_KEPT = 1 << 20,
    KEEPALIVE_S = 15, /* a machine that has vanished says nothing */
};

static const struct reply_limits limits = { .depth_max = 8,
                                            .bytes_max = BUFFER_BYTES_MAX,
                                            .line_bytes_max = 4096 };

static const struct pauses again = { .first_ms = 10, .most_ms = 1000 };

static const unsigned remote_arrow[] = {
    [REMOTE_DOWN] = BIT(REMOTE_RESOLVING) | BIT(REMOTE_CONNECTING),
    [REMOTE_RESOLVING] = BIT(REMOTE_CONNECTING) | BIT(REMOTE_DOWN),
    [REMOTE_CONNECTING] = BIT(REMOTE_GREETING) | BIT(REMOTE_DOWN),
    [REMOTE_GREETING] = BIT(REMOTE_READY) | BIT(REMOTE_DOWN),
    [REMOTE_READY] = BIT(REMOTE_DOWN),
};

static void set_state(struct remote *r, enum remote_state to)
{
    struct remote_conn *c = &r->conn;
    CHECK(remote_arrow[c->state] & BIT(to));
    c->state = to;
}

static struct remote *remote_of(struct remote_conn *c)
{
    return container_of(c, struct remote, conn);
}

/* ---- closing ---- */

static void buffer_empty(struct buf *b)
{
    buf_clear(b);
    if (b->cap > BUFFER_BYTES_KEPT) buf_fini(b);
}

static void close_socket(struct remote *r)
{
    struct remote_conn *c = &r->conn;
    c->closings++;
    if (c->io.fd < 0) return;
    io_remove(r->base.loop, &c->io);
    close(c->io.fd);
    c->io.fd = -1;
    buffer_empty(&c->in);
    buffer_empty(&c->out);
    buffer_empty(&c->sealed);
    remote_tls_close(c->tls);
    c->tls = NULL;
    c->out_sent = 0;
    reply_reader_clear(&c->reader);
}

static int64_t again_ms(const struct remote *r)
{
    return rng_pause_ms(r->env.rng, again, r->conn.failures);
}

/* The name of the daemon, without the token. */
static void server_name(const struct remote *r, char *out, size_t len)
{
    if (r->options.path)
        snprintf(out, len, "%s", r->options.path);
    else
        snprintf(out, len, "%s:%s", r->options.host, r->options.port);
}

void remote_conn_drop(struct remote *r, const char *text)
{
    struct remote_conn *c = &r->conn;
    char name[100];
    if (c->state == REMOTE_DOWN) return;
    server_name(r, name, sizeof name);
    err_set(&c->why, ERR_UNAVAILABLE, "daemon %s: %.80s", name, text);
    /* A connection that had worked is worth waiting for once. */
    c->failures = c->state == REMOTE_READY ? 0 : c->failures + 1;
    if (c->state != REMOTE_READY) c->address++; /* the next attempt begins with another one */
    close_socket(r);
    set_state(r, REMOTE_DOWN);
    timer_set(r->base.loop, &c->timer, r->base.loop->now_ms + again_ms(r));
    remote_down(r);
}

/* ---- reading ---- */

static void greeted(struct remote *r, const struct heard *h)
{
    struct err why;
    if (!wire_greeted(h, &r->hello, &why)) {
        remote_conn_drop(r, why.text);
        return;
    }
    timer_stop(r->base.loop, &r->conn.timer);
    set_state(r, REMOTE_READY);
    r->conn.failures = 0;
    remote_ready(r);
}

/* How many bytes of the input are done with; the connection may be another one afterwards. */
static size_t take_replies(struct remote *r)
{
    struct remote_conn *c = &r->conn;
    unsigned closings = c->closings;
    size_t used = 0;
    while (c->closings == closings && used < c->in.len) {
        struct err err;
        struct bytes left = bytes_of(c->in.data + used, c->in.len - used);
        enum resp_progress p = reply_read(&c->reader, left, &err);
        if (p == RESP_MORE) break;
        if (p == RESP_BAD) {
            remote_conn_drop(r, err.text);
            break;
        }
        struct heard h = { c->nodes, left };
        used += c->reader.at;
        reply_reader_clear(&c->reader);
        if (c->state == REMOTE_GREETING)
            greeted(r, &h);
        else
            remote_heard(r, &h);
    }
    return c->closings == closings ? used : 0;
}

static void take_input(struct remote *r)
{
    struct remote_conn *c = &r->conn;
    size_t used = take_replies(r);
    if (used == 0) return;
    c->in.len -= used;
    memmove(c->in.data, c->in.data + used, c->in.len);
    if (c->in.len == 0) buffer_empty(&c->in);
}

static void take_bytes(struct remote *r, struct bytes bytes)
{
    struct remote_conn *c = &r->conn;
    unsigned closings = c->closings;
    char why[100] = "";
    if (c->tls)
        remote_tls_feed(c->tls, bytes, &c->in, why, sizeof why);
    else
        buf_add(&c->in, bytes);
    if (buf_failed(&c->in)) snprintf(why, sizeof why, "no memory for its answers");
    if (!*why || c->in.len) take_input(r);
    if (c->closings != closings) return;
    if (*why)
        remote_conn_drop(r, why);
    else if (c->tls)
        remote_conn_flush(r); /* the handshake may have words of its own */
}

/* False: the connection is over; what came before the end was taken. */
static bool read_input(struct remote *r)
{
    struct remote_conn *c = &r->conn;
    uint8_t chunk[CHUNK_BYTES];
    for (int i = 0; i < CHUNKS_MAX; i++) {
        ssize_t n = recv(c->io.fd, chunk, sizeof chunk, 0);
        int error = errno;
        if (n < 0 && error == EINTR) continue;
        if (n < 0 && (error == EAGAIN || error == EWOULDBLOCK)) return true;
        if (n <= 0) {
            remote_conn_drop(r, n == 0 ? "it closed the connection" : strerror(error));
            return false;
        }
        unsigned closings = c->closings;
        take_bytes(r, bytes_of(chunk, (size_t)n));
        if (c->closings != closings) return false;
        if ((size_t)n < sizeof chunk) return true;
    }
    return true;
}

/* ---- writing ---- */

/* False: an error. EAGAIN is none. */
static bool send_out(struct remote_conn *c, struct buf *out)
{
    while (c->out_sent < out->len) {
        ssize_t n =
            send(c->io.fd, out->data + c->out_sent, out->len - c->out_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
        c->out_sent += (size_t)n;
    }
    buffer_empty(out);
    c->out_sent = 0;
    return true;
}

void remote_conn_flush(struct remote *r)
{
    struct remote_conn *c = &r->conn;
    struct buf *out = c->tls ? &c->sealed : &c->out;
    if (c->io.fd < 0) return;
    if (c->tls && !remote_tls_seal(c->tls, &c->out, &c->sealed)) {
        remote_conn_drop(r, "what it is asked cannot be sealed");
        return;
    }
    if (!send_out(c, out)) {
        remote_conn_drop(r, strerror(errno));
        return;
    }
    io_want(r->base.loop, &c->io, out->len ? POLLIN | POLLOUT : POLLIN);
}

static void greet(struct remote *r)
{
    set_state(r, REMOTE_GREETING);
    if (r->tls && !(r->conn.tls = remote_tls_open(r->tls, r->options.host))) {
        remote_conn_drop(r, "out of memory");
        return;
    }
    if (wire_hello(&r->conn.out, r->options.token))
        remote_conn_flush(r);
    else
        remote_conn_drop(r, "out of memory");
}

/* ---- connecting ---- */

static void try_address(struct remote *r);

/* The next address of the host, if there is one. */
static void address_failed(struct remote *r, int error)
{
    struct remote_conn *c = &r->conn;
    close_socket(r);
    if (!r->options.path && resolver_address(&c->resolver, ++c->address))
        try_address(r);
    else
        remote_conn_drop(r, strerror(error));
}

static void connected(struct remote *r)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(r->conn.io.fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0) error = errno;
    if (error)
        address_failed(r, error);
    else
        greet(r);
}

static void conn_ready(struct io *io, unsigned events)
{
    struct remote_conn *c = container_of(io, struct remote_conn, io);
    struct remote *r = remote_of(c);
    if (c->state == REMOTE_CONNECTING) {
        connected(r);
        return;
    }
    unsigned closings = c->closings;
    if ((events & ~(unsigned)POLLOUT) && !read_input(r)) return;
    if (c->closings == closings && (events & POLLOUT)) remote_conn_flush(r);
}

static void tune(int fd)
{
    int one = 1, idle_s = KEEPALIVE_S;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof idle_s);
}

/* 0, or what is wrong. */
static int begin(struct remote *r, int family, const struct sockaddr *to, socklen_t len)
{
    struct remote_conn *c = &r->conn;
    struct err err;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    if (family != AF_UNIX) tune(fd);
    if (connect(fd, to, len) < 0 && errno != EINPROGRESS) {
        int error = errno;
        close(fd);
        return error;
    }
    c->io = (struct io){ .fd = fd, .events = POLLOUT, .ready = conn_ready };
    if (io_add(r->base.loop, &c->io, &err) == 0) return 0;
    close(fd);
    c->io.fd = -1;
    return ENOMEM;
}

static void try_address(struct remote *r)
{
    const struct addrinfo *a = resolver_address(&r->conn.resolver, r->conn.address);
    int error = begin(r, a->ai_family, a->ai_addr, a->ai_addrlen);
    if (error) address_failed(r, error);
}

static void connect_path(struct remote *r)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    memcpy(to.sun_path, r->options.path, strlen(r->options.path) + 1);
    int error = begin(r, AF_UNIX, (const struct sockaddr *)&to, sizeof to);
    if (error) address_failed(r, error);
}

static void set_timer(struct remote *r, int64_t ms)
{
    timer_set(r->base.loop, &r->conn.timer, r->base.loop->now_ms + ms);
}

static void conn_connect(struct remote *r)
{
    struct remote_conn *c = &r->conn;
    set_state(r, REMOTE_CONNECTING);
    set_timer(r, CONNECT_MS);
    if (r->options.path) {
        connect_path(r);
        return;
    }
    if (!resolver_address(&c->resolver, c->address)) c->address = 0;
    try_address(r);
}

/* What comes too late for an attempt is there for the next one. */
static void resolved(struct resolver *resolver, const char *why)
{
    struct remote *r = remote_of(container_of(resolver, struct remote_conn, resolver));
    if (r->conn.state != REMOTE_RESOLVING) return;
    if (resolver_address(resolver, 0))
        conn_connect(r);
    else
        remote_conn_drop(r, why);
}

static void conn_resolve(struct remote *r)
{
    bool known = resolver_address(&r->conn.resolver, 0);
    set_state(r, REMOTE_RESOLVING);
    set_timer(r, known ? RESOLVER_KNOWN_MS : CONNECT_MS);
    resolver_ask(&r->conn.resolver, r->options.host, r->options.port);
}

static void conn_begin(struct remote *r)
{
    if (r->options.path)
        conn_connect(r);
    else
        conn_resolve(r);
}

static void conn_timer(struct timer *timer)
{
    struct remote *r = remote_of(container_of(timer, struct remote_conn, timer));
    if (r->conn.state == REMOTE_DOWN)
        conn_begin(r);
    else if (r->conn.state == REMOTE_RESOLVING)
        resolved(&r->conn.resolver, "its name takes too long to resolve");
    else
        remote_conn_drop(r, "it does not answer");
}

/* ---- life ---- */

void remote_conn_init(struct remote *r)
{
    struct remote_conn *c = &r->conn;
    c->io.fd = -1;
    timer_init(&c->timer, conn_timer);
    resolver_init(&c->resolver, r->base.loop, resolved);
    buf_init(&c->in, BUFFER_BYTES_MAX);
    buf_init(&c->out, BUFFER_BYTES_MAX);
    buf_init(&c->sealed, BUFFER_BYTES_MAX);
    reply_reader_init(&c->reader, &limits, c->nodes, REPLY_NODES_MAX);
}

void remote_conn_fini(struct remote *r)
{
    struct remote_conn *c = &r->conn;
    close_socket(r);
    resolver_clear(&c->resolver);
    if (c->state != REMOTE_DOWN) set_state(r, REMOTE_DOWN);
    timer_stop(r->base.loop, &c->timer);
    buf_fini(&c->in);
    buf_fini(&c->out);
    buf_fini(&c->sealed);
}

/* The attempt itself is made from the loop: nothing may be told inside submit. */
void remote_conn_use(struct remote *r)
{
    struct remote_conn *c = &r->conn;
    if (c->state == REMOTE_DOWN && !timer_is_set(&c->timer))
        timer_set(r->base.loop, &c->timer, r->base.loop->now_ms);
}

bool remote_conn_refuses(const struct remote *r)
{
    return r->conn.state != REMOTE_READY && r->conn.failures > 0;
}
