/* fetch.c - see fetch.h. */
#include "cli/fetch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { TEXT_BYTES_MAX = 4 << 20, PART_BYTES = 300 };

/* Where the door is. */
struct place {
    const char *path;           /* of a socket; NULL: it is a host */
    char authority[PART_BYTES]; /* as in the URL */
    char host[PART_BYTES], port[PART_BYTES];
    bool tls;
};

struct wire {
    int fd;
    SSL_CTX *ctx;
    SSL *ssl; /* NULL: in the clear */
};

/* ---- the URL ---- */

static int no_place(struct err *reterr)
{
    return err_set(reterr, ERR_INVALID,
                   "an address is http://HOST:PORT, https://HOST:PORT, or unix:PATH");
}

/* "HOST:PORT", "[::1]:PORT" */
static int place_parse(const char *url, struct place *ret, struct err *reterr)
{
    struct place p = { .tls = strncmp(url, "https://", 8) == 0 };
    if (strncmp(url, "unix:", 5) == 0) {
        p.path = url + 5;
        snprintf(p.authority, sizeof p.authority, "localhost");
        *ret = p;
        return 0;
    }
    if (!p.tls && strncmp(url, "http://", 7) != 0) return no_place(reterr);
    const char *at = url + (p.tls ? 8 : 7);
    size_t len = strcspn(at, "/");
    if (len >= sizeof p.authority) return no_place(reterr);
    snprintf(p.authority, sizeof p.authority, "%.*s", (int)len, at);
    const char *colon = strrchr(p.authority, ':');
    size_t host = colon ? (size_t)(colon - p.authority) : 0;
    if (host == 0 || !colon[1]) return no_place(reterr);
    bool bracketed = host > 2 && p.authority[0] == '[' && p.authority[host - 1] == ']';
    snprintf(p.host, sizeof p.host, "%.*s", (int)host - 2 * bracketed, p.authority + bracketed);
    snprintf(p.port, sizeof p.port, "%s", colon + 1);
    *ret = p;
    return 0;
}

/* ---- connecting ---- */

static int failed(const char *what, struct err *reterr)
{
    return err_set(reterr, ERR_UNAVAILABLE, "%.80s: %s", what, strerror(errno));
}

static int set_timeouts(int fd, int64_t ms)
{
    struct timeval limit = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0) return -1;
    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static int connect_to(int family, const struct sockaddr *address, socklen_t len,
                      int64_t timeout_ms)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (set_timeouts(fd, timeout_ms) == 0 && connect(fd, address, len) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int connect_path(const char *path, int64_t timeout_ms, struct err *reterr)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof address.sun_path)
        return err_set(reterr, ERR_INVALID, "the path of the socket is too long");
    strcpy(address.sun_path, path);
    int fd = connect_to(AF_UNIX, (struct sockaddr *)&address, sizeof address, timeout_ms);
    return fd < 0 ? failed(path, reterr) : fd;
}

static int connect_host(const struct place *p, int64_t timeout_ms, struct err *reterr)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *all;
    int r = getaddrinfo(p->host, p->port, &hints, &all), fd = -1;
    if (r) return err_set(reterr, ERR_UNAVAILABLE, "%.80s: %s", p->authority, gai_strerror(r));
    for (const struct addrinfo *a = all; a && fd < 0; a = a->ai_next)
        fd = connect_to(a->ai_family, a->ai_addr, a->ai_addrlen, timeout_ms);
    freeaddrinfo(all);
    return fd < 0 ? failed(p->authority, reterr) : fd;
}

/* ---- TLS ---- */

static bool expect_host(SSL *ssl, const char *host)
{
    struct in6_addr any;
    if (inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

static int no_tls(const struct wire *w, struct err *reterr)
{
    long verified = w->ssl ? SSL_get_verify_result(w->ssl) : X509_V_OK;
    const char *reason = ERR_reason_error_string(ERR_get_error());
    ERR_clear_error();
    return err_set(reterr, ERR_UNAVAILABLE, "no TLS: %s",
                   verified != X509_V_OK ? X509_verify_cert_error_string(verified)
                   : reason              ? reason
                                         : "the connection was lost");
}

static int wire_seal(struct wire *w, const char *host, struct err *reterr)
{
    w->ctx = SSL_CTX_new(TLS_client_method());
    if (!w->ctx || SSL_CTX_set_min_proto_version(w->ctx, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_default_verify_paths(w->ctx) != 1)
        return no_tls(w, reterr);
    SSL_CTX_set_verify(w->ctx, SSL_VERIFY_PEER, NULL);
    w->ssl = SSL_new(w->ctx);
    bool ready = w->ssl && expect_host(w->ssl, host) && SSL_set_fd(w->ssl, w->fd) == 1;
    return ready && SSL_connect(w->ssl) == 1 ? 0 : no_tls(w, reterr);
}

static int wire_open(struct wire *w, const struct place *p, int64_t timeout_ms,
                     struct err *reterr)
{
    w->fd = p->path ? connect_path(p->path, timeout_ms, reterr)
                    : connect_host(p, timeout_ms, reterr);
    if (w->fd < 0) return w->fd;
    return p->tls ? wire_seal(w, p->host, reterr) : 0;
}

static void wire_close(struct wire *w)
{
    SSL_free(w->ssl);
    SSL_CTX_free(w->ctx);
    if (w->fd >= 0) close(w->fd);
}

static ssize_t wire_send(struct wire *w, const char *data, size_t len)
{
    return w->ssl ? SSL_write(w->ssl, data, (int)len) : send(w->fd, data, len, MSG_NOSIGNAL);
}

/* 0: the end. Who ends without saying so has ended all the same: the length is checked. */
static ssize_t wire_receive(struct wire *w, char *out, size_t room)
{
    return w->ssl ? SSL_read(w->ssl, out, (int)room) : recv(w->fd, out, room, 0);
}

/* ---- asking ---- */

static int ask(struct wire *w, const struct place *p, const struct fetch *f, struct err *reterr)
{
    char request[1024];
    const char *token = f->token;
    int len = snprintf(request, sizeof request,
                       "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s%s%s\r\n",
                       f->path, p->authority, token ? "Authorization: Bearer " : "",
                       token ? token : "", token ? "\r\n" : "");
    if (len < 0 || (size_t)len >= sizeof request)
        return err_set(reterr, ERR_INVALID, "the address or the token is too long");
    return wire_send(w, request, (size_t)len) == len ? 0 : failed("cannot ask", reterr);
}

/* Everything until the daemon closes. NULL: it did not work. */
static char *read_all(struct wire *w, struct err *reterr)
{
    size_t len = 0;
    ssize_t n;
    char *text = malloc(TEXT_BYTES_MAX + 1);
    if (!text) {
        err_set(reterr, ERR_NOMEM, "out of memory");
        return NULL;
    }
    while ((n = wire_receive(w, text + len, TEXT_BYTES_MAX - len)) > 0) len += (size_t)n;
    text[len] = '\0';
    if (len > 0 && len < TEXT_BYTES_MAX) return text;
    err_set(reterr, ERR_UNAVAILABLE, "the daemon did not answer");
    free(text);
    return NULL;
}

/* Leaves the content, if all of it is there. */
static int strip_head(char *text, struct err *reterr)
{
    char *content = strstr(text, "\r\n\r\n"), *announced = strstr(text, "\r\nContent-Length: ");
    int status;
    if (!content || sscanf(text, "HTTP/1.%*d %d", &status) != 1)
        return err_set(reterr, ERR_UNAVAILABLE, "that is not an HTTP server");
    if (status == 401 || status == 403)
        return err_set(reterr, ERR_INVALID,
                       "the daemon wants a token that may ask this: set ONCE_TOKEN");
    if (status != 200) return err_set(reterr, ERR_UNAVAILABLE, "it answered %d", status);
    size_t len = strlen(content + 4);
    if (!announced || announced > content || strtoull(announced + 18, NULL, 10) != len)
        return err_set(reterr, ERR_UNAVAILABLE, "the answer is not complete");
    memmove(text, content + 4, len + 1);
    return 0;
}

int fetch_text(const struct fetch *f, char **ret_text, struct err *reterr)
{
    struct place place;
    struct wire wire = { .fd = -1 };
    int r = place_parse(f->url, &place, reterr);
    if (!r) r = wire_open(&wire, &place, f->timeout_ms, reterr);
    if (!r) r = ask(&wire, &place, f, reterr);
    char *text = r ? NULL : read_all(&wire, reterr);
    wire_close(&wire);
    if (!text) return reterr->code;
    r = strip_head(text, reterr);
    if (r)
        free(text);
    else
        *ret_text = text;
    return r;
}
