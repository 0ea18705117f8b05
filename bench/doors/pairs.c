/* pairs.c - pairs PORT[,PORT] CLIENTS SECONDS: claim+publish pairs through the RESP door, one after
 * the other on each of so many connections, to the ports in turns, from one thread. Prints what
 * `fleet load` prints. An answer that is not the expected one ends it: what is counted was done. */
#include "base/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_MAX = 4096, EVENTS = 256, TEXT_BYTES = 512 };

struct client {
    int fd;
    unsigned number, round;
    bool owns; /* it has claimed, and waits for its publish to be answered */
    char in[TEXT_BYTES];
    size_t len;
};

static struct client clients[CLIENTS_MAX];
static unsigned long pairs;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const struct client *c, const char *what)
{
    fprintf(stderr, "pairs: %s: '%.*s'\n", what, (int)c->len, c->in);
    exit(1);
}

static void say(const struct client *c, const char *text, int len)
{
    if (write(c->fd, text, (size_t)len) != len) die(c, "write");
}

static void ask_claim(struct client *c)
{
    char key[32], text[TEXT_BYTES];
    int key_len = snprintf(key, sizeof key, "%u-%u", c->number, c->round++);
    say(c, text,
        snprintf(text, sizeof text, "*3\r\n$10\r\nONCE.CLAIM\r\n$5\r\nbench\r\n$%d\r\n%s\r\n",
                 key_len, key));
    c->owns = false;
}

static void ask_publish(struct client *c, const char *token)
{
    char key[32], text[TEXT_BYTES];
    int key_len = snprintf(key, sizeof key, "%u-%u", c->number, c->round - 1);
    say(c, text,
        snprintf(text, sizeof text,
                 "*5\r\n$12\r\nONCE.PUBLISH\r\n$5\r\nbench\r\n$%d\r\n%s\r\n$32\r\n%.32s\r\n"
                 "$16\r\nthe only answer!\r\n",
                 key_len, key, token));
    c->owns = true;
}

/* "*4 $7 claimed $32 TOKEN :fence :lease"; five line ends more than its fixed part. */
static const char *token_of(const struct client *c)
{
    static const char head[] = "*4\r\n$7\r\nclaimed\r\n$32\r\n";
    size_t head_len = sizeof head - 1;
    if (memcmp(c->in, head, c->len < head_len ? c->len : head_len) != 0) die(c, "not claimed");
    unsigned lines = 0;
    for (size_t i = 0; i < c->len; i++) lines += c->in[i] == '\n';
    return lines == 7 ? c->in + head_len : NULL;
}

static void take(struct client *c)
{
    if (c->owns) {
        if (c->len < 5) return;
        if (c->len != 5 || memcmp(c->in, "+OK\r\n", 5) != 0) die(c, "not published");
        pairs++;
        ask_claim(c);
    } else {
        const char *token = token_of(c);
        if (!token) return;
        ask_publish(c, token);
    }
    c->len = 0;
}

static void client_open(struct client *c, unsigned number, uint16_t port, int epoll)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int on = 1;
    c->number = number;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to) < 0) die(c, "connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event want = { .events = EPOLLIN, .data.ptr = c };
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &want) == 0);
    ask_claim(c);
}

static void turn(int epoll)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(epoll, events, EVENTS, 1000);
    for (int i = 0; i < count; i++) {
        struct client *c = events[i].data.ptr;
        ssize_t n = read(c->fd, c->in + c->len, sizeof c->in - c->len);
        if (n <= 0) die(c, "read");
        c->len += (size_t)n;
        take(c);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    const char *second = strchr(argv[1], ',');
    const char *ports[] = { argv[1], second ? second + 1 : argv[1] };
    unsigned count = (unsigned)atoi(argv[2]);
    double seconds = atof(argv[3]);
    CHECK(count > 0 && count <= CLIENTS_MAX && seconds > 0);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned i = 0; i < count; i++)
        client_open(&clients[i], i, (uint16_t)atoi(ports[i % 2]), epoll);
    for (double warm = now_s() + 0.3; now_s() < warm;) turn(epoll);
    double start = now_s(), end = start + seconds;
    unsigned long before = pairs;
    while (now_s() < end) turn(epoll);
    printf("{\"rate\": %.1f}\n", (double)(pairs - before) / (now_s() - start));
    return 0;
}
