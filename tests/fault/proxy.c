/* proxy.c - stands between a client and a server, and does to their bytes what it is told.
 *
 *   fault proxy PORT SERVER       PORT 0: a free one. SERVER: HOST:PORT or /path/of/a/socket
 *
 * Prints the port, then reads commands from its input and answers each with "ok" when it is in
 * force. It ends with its input, so it cannot outlive the test that started it.
 *
 *   pass            forward everything (also: accept again)
 *   delay MS        every byte arrives MS later, both ways
 *   drop            swallow every byte, both ways
 *   rst             reset connections, now and as they come
 *   half-open       keep connections, but let nothing through to the client
 *   half-open-up    the same to the server
 *   cut N           close after N more bytes of the reply
 *   refuse          reset connections, accept no more
 *   cut-commit N    PostgreSQL: of every N-th COMMIT the answer is lost, it has been executed
 *   drop-commit N   PostgreSQL: every N-th COMMIT does not arrive
 *   server ADDRESS  another server for new connections
 *   new COMMAND     only for connections that come from now on
 *   fired           how often each of them has really happened since it was asked last:
 *                   "ok rst=3 drop-commit=2". A connection that was reset, cut or kept from
 *                   sending, a piece that was delayed or swallowed, a COMMIT that was lost
 *
 * One thread, nothing blocks; a side that does not read stops the other one. */
#include "base/check.h"
#include "base/list.h"
#include "tests/fault/fault.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CHUNK_BYTES = 16384, QUEUED_BYTES_MAX = 1 << 20, PAIRS_MAX = 500, TAIL_BYTES = 15 };

enum action {
    PASS,
    DELAY,
    DROP,
    RST,
    HALF_OPEN,
    HALF_OPEN_UP,
    CUT,
    REFUSE,
    CUT_COMMIT,
    DROP_COMMIT,
    ACTIONS
};

static const char *const action_name[ACTIONS] = {
    "pass",         "delay", "drop",   "rst",        "half-open",
    "half-open-up", "cut",   "refuse", "cut-commit", "drop-commit",
};

struct rule {
    enum action action;
    int64_t n;
};

struct chunk {
    struct link link;
    int64_t due_us;
    size_t len, sent;
    uint8_t data[];
};

/* One direction of a connection. */
struct flow {
    int from, to;
    struct list chunks;
    size_t queued;
    bool ended;               /* nothing more comes */
    uint8_t tail[TAIL_BYTES]; /* what passed last, to recognise what is cut in two */
    size_t tail_len;
};

struct pair {
    struct link link;
    struct rule rule;
    struct flow up, down;
    struct commits commits;
    int64_t replied; /* bytes since the rule is in force */
    bool over;
};

struct proxy {
    int listener;
    struct sockaddr_in address;
    struct sockaddr_storage server;
    socklen_t server_len;
    struct rule rule;
    struct list pairs;
    size_t count;
    int64_t commits;
    int64_t fired[ACTIONS];
    char line[256];
    size_t line_len;
    bool ended;
};

/* ---- sockets ---- */

static bool address_parse(const char *text, struct sockaddr_storage *ret, socklen_t *ret_len)
{
    memset(ret, 0, sizeof *ret);
    if (text[0] == '/') {
        struct sockaddr_un *un = (struct sockaddr_un *)ret;
        un->sun_family = AF_UNIX;
        *ret_len = sizeof *un;
        return snprintf(un->sun_path, sizeof un->sun_path, "%s", text) <
               (int)sizeof un->sun_path;
    }
    struct sockaddr_in *in = (struct sockaddr_in *)ret;
    char host[64];
    unsigned port;
    if (sscanf(text, "%63[^:]:%u", host, &port) != 2) return false;
    in->sin_family = AF_INET;
    in->sin_port = htons((uint16_t)port);
    *ret_len = sizeof *in;
    return inet_pton(AF_INET, host, &in->sin_addr) == 1;
}

static bool listen_again(struct proxy *p)
{
    if (p->listener >= 0) return true;
    int one = 1;
    socklen_t len = sizeof p->address;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (p->listener < 0) return false;
    setsockopt(p->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    return bind(p->listener, (struct sockaddr *)&p->address, len) == 0 &&
           listen(p->listener, 128) == 0 &&
           getsockname(p->listener, (struct sockaddr *)&p->address, &len) == 0;
}

static void close_reset(int fd)
{
    struct linger now = { .l_onoff = 1 };
    if (fd < 0) return;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

static void close_plainly(int fd)
{
    close(fd);
}

/* ---- a connection ---- */

static void flow_init(struct flow *f, int from, int to)
{
    *f = (struct flow){ .from = from, .to = to };
    list_init(&f->chunks);
}

static void flow_fini(struct flow *f)
{
    for (struct link *at; (at = list_pop(&f->chunks));)
        free(container_of(at, struct chunk, link));
}

static bool flow_stands_still(const struct pair *c, const struct flow *f)
{
    if (c->rule.action == HALF_OPEN) return f == &c->down;
    if (c->rule.action == HALF_OPEN_UP) return f == &c->up;
    return false;
}

/* Something is there that would go on. */
static bool is_kept(const struct pair *c, const struct flow *f)
{
    int bytes = 0;
    return flow_stands_still(c, f) && ioctl(f->from, FIONREAD, &bytes) == 0 && bytes > 0;
}

/* The rule is over for this connection: what it did there while it stood still. */
static void pair_tally(struct proxy *p, struct pair *c)
{
    p->fired[c->rule.action] += is_kept(c, &c->up) || is_kept(c, &c->down);
}

static void pair_free(struct proxy *p, struct pair *c)
{
    pair_tally(p, c);
    bool reset = c->rule.action == RST || c->rule.action == REFUSE;
    void (*end)(int) = reset ? close_reset : close_plainly;
    end(c->up.from);
    end(c->up.to);
    flow_fini(&c->up);
    flow_fini(&c->down);
    link_remove(&c->link);
    p->count--;
    free(c);
}

static void pair_accept(struct proxy *p)
{
    int client = accept4(p->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client < 0) return;
    if (p->rule.action == RST || p->count == PAIRS_MAX) {
        p->fired[RST] += p->rule.action == RST;
        close_reset(client);
        return;
    }
    int server = socket(p->server.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int r = server < 0 ? -1 : connect(server, (struct sockaddr *)&p->server, p->server_len);
    if (r < 0 && (server < 0 || errno != EINPROGRESS)) {
        close_reset(client);
        close_reset(server);
        return;
    }
    int one = 1;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* a unix one has none */
    struct pair *c = calloc(1, sizeof *c);
    CHECK(c);
    c->rule = p->rule;
    flow_init(&c->up, client, server);
    flow_init(&c->down, server, client);
    link_init(&c->link);
    list_append(&p->pairs, &c->link);
    p->count++;
}

static void flow_queue(struct flow *f, const uint8_t *data, size_t len, int64_t delay_ms)
{
    if (!len) return;
    struct chunk *chunk = malloc(sizeof *chunk + len);
    CHECK(chunk);
    chunk->len = len;
    chunk->sent = 0;
    chunk->due_us = now_us() + delay_ms * 1000;
    memcpy(chunk->data, data, len);
    link_init(&chunk->link);
    list_append(&f->chunks, &chunk->link);
    f->queued += len;
}

/* ---- what happens to bytes: how many of them go on ---- */

/* Where `what` begins in data, which follows what passed before; len if it does not. It may
 * have begun in bytes that are gone: then 0. */
static size_t find(struct flow *f, const uint8_t *data, size_t len, const void *what,
                   size_t what_len)
{
    uint8_t joined[TAIL_BYTES + CHUNK_BYTES];
    memcpy(joined, f->tail, f->tail_len);
    memcpy(joined + f->tail_len, data, len);
    size_t joined_len = f->tail_len + len;
    uint8_t *at = memmem(joined, joined_len, what, what_len);
    size_t before = at ? (size_t)(at - joined) : joined_len;
    size_t ret = before < f->tail_len ? 0 : before - f->tail_len;
    f->tail_len = joined_len < what_len - 1 ? joined_len : what_len - 1;
    memmove(f->tail, joined + joined_len - f->tail_len, f->tail_len);
    if (at) f->tail_len = 0;
    return ret;
}

static bool is_nth_commit(struct proxy *p, const struct pair *c)
{
    return ++p->commits % (c->rule.n > 0 ? c->rule.n : 1) == 0;
}

/* The connection ends here. */
static void pair_cut(struct proxy *p, struct pair *c)
{
    p->fired[c->rule.action]++;
    c->over = true;
}

/* A reply of the server. "C", its length, "COMMIT": the server has committed. */
static size_t filter_down(struct proxy *p, struct pair *c, const uint8_t *data, size_t len)
{
    static const char committed[] = "C\0\0\0\013COMMIT";
    if (c->rule.action == CUT) {
        int64_t left = c->rule.n - c->replied;
        c->replied += (int64_t)len;
        if ((int64_t)len < left) return len;
        pair_cut(p, c);
        return left > 0 ? (size_t)left : 0;
    }
    if (c->rule.action != CUT_COMMIT) return len;
    size_t at = find(&c->down, data, len, committed, sizeof committed);
    if (at == len || !is_nth_commit(p, c)) return len;
    pair_cut(p, c);
    return at;
}

/* Looked at whatever the rule is: which names are COMMITs is told once. */
static size_t filter_up(struct proxy *p, struct pair *c, const uint8_t *data, size_t len)
{
    size_t begin, at = 0;
    while (commits_next(&c->commits, data, len, &at, &begin)) {
        if (c->rule.action != DROP_COMMIT || !is_nth_commit(p, c)) continue;
        pair_cut(p, c);
        return begin;
    }
    return len;
}

static void flow_write(struct pair *c, struct flow *f)
{
    for (struct link *at; (at = list_first(&f->chunks));) {
        struct chunk *chunk = container_of(at, struct chunk, link);
        if (chunk->due_us > now_us()) return;
        ssize_t n = send(f->to, chunk->data + chunk->sent, chunk->len - chunk->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR) c->over = true;
        if (n <= 0) return;
        chunk->sent += (size_t)n;
        f->queued -= (size_t)n;
        if (chunk->sent < chunk->len) return;
        link_remove(at);
        free(chunk);
    }
}

static void flow_read(struct proxy *p, struct pair *c, struct flow *f)
{
    uint8_t data[CHUNK_BYTES];
    ssize_t n = recv(f->from, data, sizeof data, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        f->ended = true;
        return;
    }
    if (c->rule.action == DROP || c->rule.action == DELAY) p->fired[c->rule.action]++;
    if (c->rule.action == DROP) return;
    bool is_up = f == &c->up;
    size_t go_on = (is_up ? filter_up : filter_down)(p, c, data, (size_t)n);
    flow_queue(f, data, go_on, c->rule.action == DELAY ? c->rule.n : 0);
    flow_write(c, f);
}

/* ---- commands ---- */

static void pair_rule(struct proxy *p, struct pair *c)
{
    pair_tally(p, c);
    c->rule = p->rule;
    c->replied = 0;
    c->up.tail_len = c->down.tail_len = 0;
    if (c->rule.action != RST && c->rule.action != REFUSE) return;
    p->fired[c->rule.action]++;
    pair_free(p, c);
}

static bool rule_set(struct proxy *p, const char *name, int64_t n, bool only_new)
{
    enum action a = 0;
    while (a < ACTIONS && strcmp(name, action_name[a]) != 0) a++;
    if (a == ACTIONS) return false;
    p->rule = (struct rule){ .action = a, .n = n };
    if (a == REFUSE && p->listener >= 0) {
        close(p->listener);
        p->listener = -1;
    }
    if (a != REFUSE && !listen_again(p)) return false;
    list_each (&p->pairs, at)
        if (!only_new) pair_rule(p, container_of(at, struct pair, link));
    return true;
}

static void tell_fired(struct proxy *p)
{
    printf("ok");
    for (enum action a = 0; a < ACTIONS; a++)
        if (p->fired[a]) printf(" %s=%" PRId64, action_name[a], p->fired[a]);
    printf("\n");
    fflush(stdout);
    memset(p->fired, 0, sizeof p->fired);
}

static void command(struct proxy *p, const char *line)
{
    char name[32], argument[200] = "";
    bool only_new = strncmp(line, "new ", 4) == 0;
    if (strcmp(line, "fired") == 0) {
        tell_fired(p);
        return;
    }
    bool ok = sscanf(only_new ? line + 4 : line, "%31s %199s", name, argument) >= 1;
    if (ok && strcmp(name, "server") == 0)
        ok = address_parse(argument, &p->server, &p->server_len);
    else if (ok)
        ok = rule_set(p, name, atoll(argument), only_new);
    puts(ok ? "ok" : "what?");
    fflush(stdout);
}

static void commands_read(struct proxy *p)
{
    ssize_t n = read(STDIN_FILENO, p->line + p->line_len, sizeof p->line - p->line_len - 1);
    if (n <= 0) {
        p->ended = true;
        return;
    }
    p->line_len += (size_t)n;
    p->line[p->line_len] = '\0';
    for (char *end; (end = strchr(p->line, '\n'));) {
        *end = '\0';
        command(p, p->line);
        p->line_len -= (size_t)(end + 1 - p->line);
        memmove(p->line, end + 1, p->line_len + 1);
    }
}

/* ---- the loop ---- */

static short interest(const struct pair *c, const struct flow *in, const struct flow *out)
{
    short events = 0;
    if (!in->ended && !flow_stands_still(c, in) && in->queued < QUEUED_BYTES_MAX)
        events |= POLLIN;
    const struct link *next = out->chunks.head.next;
    if (next == &out->chunks.head) return events;
    if (container_of(next, struct chunk, link)->due_us <= now_us()) events |= POLLOUT;
    return events;
}

static int next_due_ms(const struct proxy *p)
{
    int64_t due_us = NEVER;
    for (const struct link *at = p->pairs.head.next; at != &p->pairs.head; at = at->next) {
        struct pair *c = container_of(at, struct pair, link);
        struct flow *flows[] = { &c->up, &c->down };
        for (int i = 0; i < 2; i++) {
            struct link *first = list_first(&flows[i]->chunks);
            struct chunk *chunk = first ? container_of(first, struct chunk, link) : NULL;
            if (chunk && chunk->due_us > now_us() && chunk->due_us < due_us)
                due_us = chunk->due_us;
        }
    }
    return due_us == NEVER ? -1 : (int)((due_us - now_us()) / 1000) + 1;
}

static void pair_turn(struct proxy *p, struct pair *c, short client, short server)
{
    if (client & POLLOUT) flow_write(c, &c->down);
    if (server & POLLOUT) flow_write(c, &c->up);
    if (client & (POLLIN | POLLHUP | POLLERR)) flow_read(p, c, &c->up);
    if (server & (POLLIN | POLLHUP | POLLERR)) flow_read(p, c, &c->down);
    if (c->over) { /* what came before the cut still arrives */
        flow_write(c, &c->up);
        flow_write(c, &c->down);
    }
    bool drained = (c->down.ended && list_empty(&c->down.chunks)) ||
                   (c->up.ended && list_empty(&c->up.chunks));
    if (c->over || drained) pair_free(p, c);
}

static void proxy_turn(struct proxy *p)
{
    struct pollfd fds[2 + 2 * PAIRS_MAX];
    nfds_t n = 2;
    fds[0] = (struct pollfd){ .fd = STDIN_FILENO, .events = POLLIN };
    fds[1] = (struct pollfd){ .fd = p->listener, .events = POLLIN };
    list_each (&p->pairs, at) {
        struct pair *c = container_of(at, struct pair, link);
        short client = interest(c, &c->up, &c->down), server = interest(c, &c->down, &c->up);
        fds[n++] = (struct pollfd){ .fd = client ? c->up.from : -1, .events = client };
        fds[n++] = (struct pollfd){ .fd = server ? c->up.to : -1, .events = server };
    }
    if (poll(fds, n, next_due_ms(p)) < 0) return;
    n = 2;
    list_each (&p->pairs, at) {
        pair_turn(p, container_of(at, struct pair, link), fds[n].revents, fds[n + 1].revents);
        n += 2;
    }
    if (fds[1].revents) pair_accept(p);
    if (fds[0].revents) commands_read(p);
}

int proxy_main(int argc, char **argv)
{
    static struct proxy p = { .listener = -1 };
    if (argc != 3 || !address_parse(argv[2], &p.server, &p.server_len)) {
        fprintf(stderr, "usage: fault proxy PORT HOST:PORT|/PATH\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    list_init(&p.pairs);
    p.address.sin_family = AF_INET;
    p.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    p.address.sin_port = htons((uint16_t)atoi(argv[1]));
    if (!listen_again(&p)) {
        perror("proxy");
        return 1;
    }
    printf("%u\n", ntohs(p.address.sin_port));
    fflush(stdout);
    while (!p.ended) proxy_turn(&p);
    list_each (&p.pairs, at) pair_free(&p, container_of(at, struct pair, link));
    return 0;
}
