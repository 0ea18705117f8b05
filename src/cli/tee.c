/* tee.c - see tee.h. */
#include "cli/tee.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

/* A pipe that polls as writable takes this much without blocking. We do not set O_NONBLOCK on
 * our outputs: the open file is shared with whoever started us. */
static size_t write_max_of(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) return SSIZE_MAX;
    return PIPE_BUF;
}

void tee_init(struct tee *t, int from, int to, int stream)
{
    t->from = from;
    t->to = to;
    t->stream = stream;
    t->gone = to < 0;
    t->error = 0;
    t->at = t->len = 0;
    t->write_max = write_max_of(to);
}

void tee_fini(struct tee *t)
{
    if (t->from >= 0) close(t->from);
    t->from = -1;
    t->at = t->len = 0;
}

struct pollfd tee_poll(const struct tee *t)
{
    if (t->at < t->len) return (struct pollfd){ .fd = t->to, .events = POLLOUT };
    return (struct pollfd){ .fd = t->from, .events = POLLIN };
}

static bool writable_now(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    return poll(&p, 1, 0) > 0;
}

static void tee_flush(struct tee *t)
{
    while (t->at < t->len && !t->gone) {
        if (!writable_now(t->to)) return;
        size_t left = t->len - t->at;
        ssize_t n = write(t->to, t->held + t->at, left < t->write_max ? left : t->write_max);
        if (n >= 0) {
            t->at += (size_t)n;
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            t->gone = true;
            t->error = errno == EPIPE ? 0 : errno;
        }
    }
    t->at = t->len = 0;
}

static void tee_read(struct tee *t, tee_keep *keep, void *ctx)
{
    ssize_t n = read(t->from, t->held, sizeof t->held);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) {
        tee_fini(t);
        return;
    }
    t->len = (size_t)n;
    keep(ctx, t->stream, bytes_of(t->held, t->len));
}

void tee_turn(struct tee *t, short revents, tee_keep *keep, void *ctx)
{
    if (!revents) return;
    if (t->at == t->len && t->from >= 0) tee_read(t, keep, ctx);
    tee_flush(t);
}

int write_all(int fd, struct bytes content)
{
    while (content.len > 0) {
        ssize_t n = write(fd, content.data, content.len);
        if (n < 0 && errno == EPIPE) return 0;
        if (n < 0 && errno == EAGAIN)
            poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, -1);
        else if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) content = bytes_of(content.data + n, content.len - (size_t)n);
    }
    return 0;
}
