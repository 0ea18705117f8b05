/* crowd.c - from publish to the last answer, for connections that wait at RESP doors.
 *
 *   crowd COUNT PORT...
 *
 * So many connections, to the ports in turns, and one more to the first port, whose claim they wait
 * for. Reads lines and answers them:
 *
 *   wait KEY   "asked": the owner has claimed, everybody else has asked
 *   publish    "woken LAST-MS"
 *
 * Whether they do wait is for the one at the other end to see: the daemons count them. */
#include "bench/growth/growth.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TEXT_BYTES = 256, EVENTS = 1024 };

/* "*2 $6 cached $32 VALUE": it fits one segment, and comes in one piece. */
static const char cached[] = "*2\r\n$6\r\ncached\r\n$32\r\n";

struct doors {
    int owner, epoll, *waiting;
    size_t count;
};

static int connected(const char *port)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)atoi(port)),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    must(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void say(int fd, const char *text)
{
    ssize_t len = (ssize_t)strlen(text);
    must(write(fd, text, (size_t)len) == len, "write");
}

/* As it came, with a zero behind it. */
static void hear(int fd, char *ret_text)
{
    ssize_t n = read(fd, ret_text, TEXT_BYTES - 1);
    must(n > 0, "read");
    ret_text[n] = '\0';
}

static void ask_all(const struct doors *d, const char *key, char *ret_token)
{
    char text[TEXT_BYTES];
    snprintf(text, sizeof text, "ONCE.CLAIM bench %s LEASE 600000\r\n", key);
    say(d->owner, text);
    hear(d->owner, text);
    must(sscanf(text, "*4\r\n$7\r\nclaimed\r\n$32\r\n%32s", ret_token) == 1, "claim a new key");
    snprintf(text, sizeof text, "ONCE.CLAIM bench %s WAIT 600000\r\n", key);
    for (size_t i = 0; i < d->count; i++) say(d->waiting[i], text);
    puts("asked");
}

static void publish(const struct doors *d, const char *key, const char *token)
{
    struct epoll_event events[EVENTS];
    char text[TEXT_BYTES];
    snprintf(text, sizeof text, "ONCE.PUBLISH bench %s %s %.32s\r\n", key, token,
             "thirty-two_bytes_without_a_space");
    int64_t start_ns = now_ns();
    say(d->owner, text);
    for (size_t answered = 0; answered < d->count;) {
        int n = epoll_wait(d->epoll, events, EVENTS, 60000);
        must(n > 0, "be woken");
        answered += (size_t)n;
        for (int i = 0; i < n; i++) {
            hear(events[i].data.fd, text);
            must(strncmp(text, cached, sizeof cached - 1) == 0, "get the answer");
        }
    }
    printf("woken %.4f\n", (double)(now_ns() - start_ns) / 1e6);
    hear(d->owner, text);
    must(strcmp(text, "+OK\r\n") == 0, "publish");
}

void growth_crowd(size_t count, char **ports, size_t port_count)
{
    char line[TEXT_BYTES], key[64], token[33];
    struct doors d = { .owner = connected(ports[0]), .count = count };
    d.epoll = epoll_create1(EPOLL_CLOEXEC);
    d.waiting = calloc(count, sizeof *d.waiting);
    must(d.epoll >= 0 && d.waiting, "have that many");
    for (size_t i = 0; i < count; i++) {
        int fd = d.waiting[i] = connected(ports[i % port_count]);
        struct epoll_event want = { .events = EPOLLIN, .data.fd = fd };
        must(epoll_ctl(d.epoll, EPOLL_CTL_ADD, fd, &want) == 0, "watch a connection");
    }
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "wait %63s", key) == 1)
            ask_all(&d, key, token);
        else
            publish(&d, key, token);
    }
    free(d.waiting);
}
