/* http_client.c - see http_client.h. */
#include "tests/support/http_client.h"

#include "base/check.h"
#include "proto/chars.h"
#include "proto/number.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_BYTES_MAX = 16 * 1024 * 1024, READ_BYTES = 64 * 1024 };

/* ---- answers ---- */

struct answer_head {
    int status;
    size_t head_bytes;
    int64_t content_bytes; /* -1: it does not say */
};

static bool is_prefix(struct bytes line, const char *word)
{
    size_t len = strlen(word);
    return line.len >= len && memcmp(line.data, word, len) == 0;
}

static bool take_status(struct bytes line, struct answer_head *h)
{
    int64_t status;
    if (!is_prefix(line, "HTTP/1.1 ") || line.len < 13 || line.data[12] != ' ') return false;
    if (!number_parse(bytes_of(line.data + 9, 3), &status) || status < 200) return false;
    h->status = (int)status;
    return true;
}

static bool take_field(struct bytes line, struct answer_head *h)
{
    static const char length[] = "Content-Length: ";
    const uint8_t *colon = memchr(line.data, ':', line.len);
    size_t name = colon ? (size_t)(colon - line.data) : 0;
    if (name == 0 || chars_span(line, CHAR_TOKEN) != name) return false;
    if (is_prefix(line, "Transfer-Encoding:")) return false;
    if (!is_prefix(line, length)) return true;
    if (h->content_bytes >= 0) return false;
    return number_parse(bytes_from(line, sizeof length - 1), &h->content_bytes) &&
           h->content_bytes >= 0;
}

/* Up to CR LF, which is taken, too. False: there is no end of it. */
static bool next_line(struct bytes *left, struct bytes *ret)
{
    const uint8_t *end = memmem(left->data, left->len, "\r\n", 2);
    if (!end) return false;
    *ret = bytes_of(left->data, (size_t)(end - left->data));
    *left = bytes_from(*left, ret->len + 2);
    return true;
}

/* 1: it is complete; 0: more is to come; -1: it is no head. */
static int read_head(struct bytes in, struct answer_head *ret)
{
    struct bytes left = in, line;
    *ret = (struct answer_head){ .content_bytes = -1 };
    if (!memmem(in.data, in.len, "\r\n\r\n", 4)) return 0;
    if (!next_line(&left, &line) || !take_status(line, ret)) return -1;
    while (next_line(&left, &line) && line.len > 0)
        if (!take_field(line, ret)) return -1;
    ret->head_bytes = in.len - left.len;
    return ret->content_bytes < 0 ? -1 : 1;
}

/* False: it is lost. */
static bool look(struct http_client *c)
{
    struct answer_head h;
    if (c->in.len == 0) return true;
    int r = c->asked ? read_head(buf_bytes(&c->in), &h) : -1;
    if (r <= 0) return r == 0;
    size_t all = h.head_bytes + (size_t)h.content_bytes;
    if (c->in.len < all) return true;
    if (c->in.len > all) return false;
    c->asked = false;
    c->in.len = 0;
    c->heard(c, h.status, c->in.data + h.head_bytes, (size_t)h.content_bytes);
    return true;
}

/* ---- bytes ---- */

static bool flush(struct http_client *c)
{
    while (c->sent < c->out.len) {
        ssize_t n = send(c->io.fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return false;
        if (n < 0) break;
        c->sent += (size_t)n;
    }
    bool all = c->sent == c->out.len;
    if (all) {
        buf_clear(&c->out);
        c->sent = 0;
    }
    io_want(c->loop, &c->io, all ? POLLIN : POLLIN | POLLOUT);
    return true;
}

static bool fetch(struct http_client *c)
{
    uint8_t bytes[READ_BYTES];
    ssize_t n = recv(c->io.fd, bytes, sizeof bytes, 0);
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    buf_add(&c->in, bytes_of(bytes, (size_t)n));
    CHECK(!buf_failed(&c->in));
    return look(c);
}

static void ready(struct io *io, unsigned events)
{
    struct http_client *c = container_of(io, struct http_client, io);
    bool well = !(events & POLLOUT) || flush(c);
    if (!well || ((events & ~(unsigned)POLLOUT) && !fetch(c))) c->lost(c);
}

void http_client_send(struct http_client *c)
{
    CHECK(!c->asked && !buf_failed(&c->out));
    c->asked = true;
    flush(c); /* what is lost is heard of when it is read */
}

/* ---- life ---- */

void http_client_open(struct http_client *c, struct loop *loop, const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct err err;
    size_t n = (size_t)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    CHECK(n < sizeof address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    c->loop = loop;
    c->sent = 0;
    c->asked = false;
    c->io = (struct io){ .fd = fd, .events = POLLIN, .ready = ready };
    buf_init(&c->out, ANSWER_BYTES_MAX);
    buf_init(&c->in, ANSWER_BYTES_MAX);
    CHECK(io_add(loop, &c->io, &err) == 0);
}

void http_client_close(struct http_client *c)
{
    io_remove(c->loop, &c->io);
    close(c->io.fd);
    buf_fini(&c->out);
    buf_fini(&c->in);
}
