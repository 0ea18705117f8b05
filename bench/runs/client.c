/* client.c - connections to the RESP door, triggers on them, and their answers.
 *
 * Keys are new ones in every run: they continue from the clock. */
#include "bench/runs/triggers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, TEXT_BYTES_MAX = 200, KEY_BYTES = 22 };

static const char payload[] = "{\"value\":\"thirty-two bytes of canonical an\"}";
static const uint64_t walk = 0x9e3779b97f4a7c15;

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void must(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "triggers: cannot %s\n", what);
    exit(1);
}

static void die(const struct client *c, const char *what)
{
    fprintf(stderr, "triggers: %s: '%.*s'\n", what, (int)(c->len < 200 ? c->len : 200), c->in);
    exit(1);
}

/* ---- asking ---- */

void client_flush(struct client *c)
{
    if (c->out_len && write(c->fd, c->out, c->out_len) != (ssize_t)c->out_len) die(c, "write");
    c->out_len = 0;
}

void trigger_key(struct client *c, const char *key, double asked_s)
{
    if (sizeof c->out - c->out_len < TEXT_BYTES_MAX) client_flush(c);
    int len = snprintf(c->out + c->out_len, sizeof c->out - c->out_len,
                       "*5\r\n$12\r\nONCE.TRIGGER\r\n$5\r\nbench\r\n$%zu\r\n%s\r\n$3\r\nKEY\r\n"
                       "$%zu\r\n%s\r\n",
                       sizeof payload - 1, payload, strlen(key), key);
    must(c->in_flight < IN_FLIGHT_MAX && len < TEXT_BYTES_MAX, "ask for more at once");
    c->asked_s[(c->first + c->in_flight++) % IN_FLIGHT_MAX] = asked_s;
    c->out_len += (size_t)len;
}

static uint64_t fresh(void)
{
    static uint64_t next;
    struct timespec t;
    if (next == 0) {
        clock_gettime(CLOCK_REALTIME, &t);
        next = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    }
    return next++;
}

void trigger_new(struct client *c, double asked_s)
{
    char key[KEY_BYTES + 1];
    snprintf(key, sizeof key, "order-%016" PRIx64, fresh() * walk);
    trigger_key(c, key, asked_s);
}

/* ---- answers ---- */

static bool starts(const struct client *c, const char *text)
{
    size_t len = strlen(text);
    return memcmp(c->in, text, c->len < len ? c->len : len) == 0;
}

/* Four texts: what it is, the id, the status, where it is. All but the first are of one length. */
static bool take(struct client *c, struct answer *ret)
{
    static const char created[] = "*4\r\n$7\r\ncreated\r\n$30\r\n";
    static const char cached[] = "*4\r\n$6\r\ncached\r\n$30\r\n";
    static const char buffer[] = "\r\n$6\r\nQUEUED\r\n$6\r\nbuffer\r\n";
    static const char ledger[] = "\r\n$6\r\nQUEUED\r\n$6\r\nledger\r\n";
    if (c->len == 0) return false;
    ret->created = starts(c, created);
    if (!ret->created && !starts(c, cached)) die(c, "neither created nor cached");
    size_t head = (ret->created ? sizeof created : sizeof cached) - 1;
    size_t tail = head + ID_BYTES, end = tail + sizeof buffer - 1;
    if (c->len < end) return false;
    ret->buffered = memcmp(c->in + tail, buffer, sizeof buffer - 1) == 0;
    if (!ret->buffered && memcmp(c->in + tail, ledger, sizeof ledger - 1) != 0)
        die(c, "not queued");
    memcpy(ret->id, c->in + head, ID_BYTES);
    memmove(c->in, c->in + end, c->len -= end);
    if (c->in_flight == 0) die(c, "an answer to nothing");
    ret->asked_s = c->asked_s[c->first];
    c->first = (c->first + 1) % IN_FLIGHT_MAX;
    c->in_flight--;
    return true;
}

void crowd_turn(struct crowd *crowd, int wait_ms, on_answer *call, void *ctx)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(crowd->epoll, events, EVENTS, wait_ms);
    must(count >= 0 || errno == EINTR, "wait for answers");
    for (int i = 0; i < count; i++) {
        struct client *c = events[i].data.ptr;
        struct answer answer;
        ssize_t n = read(c->fd, c->in + c->len, sizeof c->in - c->len);
        if (n <= 0) die(c, "read");
        c->len += (size_t)n;
        while (take(c, &answer)) call(c, &answer, ctx);
        client_flush(c);
    }
}

/* ---- connections ---- */

static void client_open(struct client *c, const char *port, int epoll)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)atoi(port)),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to) < 0) die(c, "connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event want = { .events = EPOLLIN, .data.ptr = c };
    must(epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &want) == 0, "watch a connection");
}

void crowd_open(struct crowd *crowd, char **ports, size_t port_count, size_t count)
{
    must(count > 0 && count <= CLIENTS_MAX, "have that many connections");
    *crowd = (struct crowd){ .epoll = epoll_create1(EPOLL_CLOEXEC),
                             .count = count,
                             .clients = calloc(count, sizeof *crowd->clients) };
    must(crowd->epoll >= 0 && crowd->clients, "begin");
    for (size_t i = 0; i < count; i++)
        client_open(&crowd->clients[i], ports[i % port_count], crowd->epoll);
}

/* ---- numbers ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double quantile_ms(double *seconds, size_t count, double part)
{
    if (count == 0) return 0;
    qsort(seconds, count, sizeof seconds[0], ascending);
    size_t at = (size_t)(part * (double)count);
    return seconds[at < count ? at : count - 1] * 1e3;
}
