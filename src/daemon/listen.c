/* listen.c - see listen.h. */
#include "daemon/listen.h"

#include "base/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BACKLOG = 1024, HOST_BYTES_MAX = 64, PORT_MAX = 65535, AGAIN_MS = 100 };

/* ---- addresses ---- */

static int parse_path(const char *path, union address *ret, struct err *reterr)
{
    union address a = { .path.sun_family = AF_UNIX };
    size_t len = strlen(path);
    if (len == 0)
        return err_set(reterr, ERR_INVALID, "unix: needs a path: unix:/run/once.sock");
    if (len >= sizeof a.path.sun_path)
        return err_set(reterr, ERR_LIMIT, "the path of a socket has at most %zu bytes",
                       sizeof a.path.sun_path - 1);
    memcpy(a.path.sun_path, path, len);
    *ret = a;
    return 0;
}

static int parse_port(const char *text, uint16_t *ret)
{
    char *end;
    if (*text < '0' || *text > '9') return -1;
    long port = strtol(text, &end, 10);
    if (*end || end - text > 5 || port > PORT_MAX) return -1;
    *ret = htons((uint16_t)port);
    return 0;
}

static int parse_host(const char *host, union address *a, struct err *reterr)
{
    if (!*host || strcmp(host, "localhost") == 0) host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &a->v4.sin_addr) == 1) {
        a->v4.sin_family = AF_INET;
        return 0;
    }
    if (inet_pton(AF_INET6, host, &a->v6.sin6_addr) == 1) {
        a->v6.sin6_family = AF_INET6;
        return 0;
    }
    return err_set(reterr, ERR_INVALID,
                   "\"%.40s\" is not an address: 127.0.0.1, [::1], localhost, 0.0.0.0", host);
}

bool address_is_local(const union address *a)
{
    if (a->any.sa_family == AF_INET)
        return ntohl(a->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    if (a->any.sa_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
    return true;
}

int address_parse(const char *text, union address *ret_address, struct err *reterr)
{
    if (strncmp(text, "unix:", 5) == 0) return parse_path(text + 5, ret_address, reterr);
    union address a = { 0 };
    const char *colon = strrchr(text, ':');
    uint16_t port;
    if (!colon || parse_port(colon + 1, &port) < 0)
        return err_set(reterr, ERR_INVALID,
                       "\"%.60s\" is not an address: HOST:PORT (0 to 65535) or unix:PATH",
                       text);
    bool bracket = text[0] == '[' && colon > text && colon[-1] == ']';
    const char *from = bracket ? text + 1 : text, *to = bracket ? colon - 1 : colon;
    char host[HOST_BYTES_MAX];
    snprintf(host, sizeof host, "%.*s", (int)(to - from), from);
    if (to - from >= HOST_BYTES_MAX || (!bracket && strchr(host, ':')))
        return err_set(reterr, ERR_INVALID, "\"%.60s\": write [::1]:PORT", text);
    int r = parse_host(host, &a, reterr);
    if (r) return r;
    a.v4.sin_port = port; /* in the same place for both */
    *ret_address = a;
    return 0;
}

_Static_assert(offsetof(struct sockaddr_in, sin_port) ==
                   offsetof(struct sockaddr_in6, sin6_port),
               "a port is where a port is");

void address_show(const union address *a, char out[ADDRESS_TEXT_BYTES])
{
    char host[INET6_ADDRSTRLEN];
    if (a->any.sa_family == AF_UNIX) {
        snprintf(out, ADDRESS_TEXT_BYTES, "unix:%s", a->path.sun_path);
        return;
    }
    bool v6 = a->any.sa_family == AF_INET6;
    const void *bits = v6 ? (const void *)&a->v6.sin6_addr : (const void *)&a->v4.sin_addr;
    inet_ntop(a->any.sa_family, bits, host, sizeof host);
    snprintf(out, ADDRESS_TEXT_BYTES, v6 ? "[%s]:%u" : "%s:%u", host,
             (unsigned)ntohs(a->v4.sin_port));
}

/* ---- sockets ---- */

static int cannot(const char *what, const char *where, int code, struct err *reterr)
{
    return err_set(reterr, ERR_UNAVAILABLE, "cannot %s on %.100s: %s", what, where,
                   uv_strerror(code));
}

/* Does anybody answer behind the path? */
static bool answers(const struct sockaddr_un *path)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return true;
    int r = connect(fd, (const struct sockaddr *)path, sizeof *path);
    bool refused = r < 0 && errno == ECONNREFUSED;
    close(fd);
    return !refused;
}

static int clear_path(const struct sockaddr_un *path, struct err *reterr)
{
    struct stat st;
    if (lstat(path->sun_path, &st) < 0) return 0; /* what else is wrong, bind() says */
    if (!S_ISSOCK(st.st_mode))
        return err_set(reterr, ERR_INVALID, "%.100s is there and is not a socket",
                       path->sun_path);
    if (answers(path))
        return err_set(reterr, ERR_UNAVAILABLE, "somebody is listening on %.100s already",
                       path->sun_path);
    unlink(path->sun_path);
    return 0;
}

static int bind_path(struct listener *l, const union address *a, struct err *reterr)
{
    int r = clear_path(&a->path, reterr);
    if (r) return r;
    mode_t before = umask(0177);
    r = uv_pipe_bind(&l->uv.pipe, a->path.sun_path);
    umask(before);
    return r < 0 ? cannot("listen", l->shown, r, reterr) : 0;
}

static int bind_address(struct listener *l, const union address *a, struct err *reterr)
{
    if (a->any.sa_family == AF_UNIX) return bind_path(l, a, reterr);
    int r = uv_tcp_bind(&l->uv.tcp, &a->any, 0);
    return r < 0 ? cannot("listen", l->shown, r, reterr) : 0;
}

/* If there is no memory for it, it waits; and if nobody took it later, it would be the last one. */
static void take(struct listener *l)
{
    struct loop *loop = l->conns->loop;
    if (!conn_accept(l->conns, &l->uv.stream, l->door, l->door_ctx, l->keys))
        timer_set(loop, &l->again, loop->now_ms + AGAIN_MS);
}

static void take_again(struct timer *timer)
{
    take(container_of(timer, struct listener, again));
}

static void on_connection(uv_stream_t *stream, int status)
{
    if (status == 0) take(stream->data);
}

static void show_chosen(struct listener *l)
{
    union address chosen;
    int len = sizeof chosen;
    if (l->uv.handle.type != UV_TCP) return;
    if (uv_tcp_getsockname(&l->uv.tcp, &chosen.any, &len) == 0) address_show(&chosen, l->shown);
}

int listener_open(struct listener *l, const char *text, struct err *reterr)
{
    union address a;
    int r = address_parse(text, &a, reterr);
    if (r) return r;
    address_show(&a, l->shown);
    if (a.any.sa_family == AF_UNIX) l->keys = NULL;
    uv_loop_t *uv = l->conns->uv;
    r = a.any.sa_family == AF_UNIX ? uv_pipe_init(uv, &l->uv.pipe, 0)
                                   : uv_tcp_init(uv, &l->uv.tcp);
    if (r < 0) return cannot("listen", l->shown, r, reterr);
    l->open = true;
    l->uv.handle.data = l;
    timer_init(&l->again, take_again);
    r = bind_address(l, &a, reterr);
    if (r) return r;
    r = uv_listen(&l->uv.stream, BACKLOG, on_connection);
    if (r < 0) return cannot("listen", l->shown, r, reterr);
    show_chosen(l);
    return 0;
}

void listener_close(struct listener *l)
{
    if (!l->open) return;
    timer_stop(l->conns->loop, &l->again);
    uv_close(&l->uv.handle, NULL);
    l->open = false;
}
