/* main.c - what the machine itself can do, as bench/limits.mjs asks for it. Prints what
 * `fleet load` prints.
 *
 *   limits sync DIR SECONDS       fdatasync of one page that is overwritten, in a file below DIR
 *   limits loopback SECONDS       one byte there and one back, over TCP, to a process that does
 *                                 nothing else; one connection, one byte under way
 *   limits claim PORT SECONDS     claims of new keys at a RESP door, one connection, one at a time
 *   limits ping PORT SECONDS      PING at a RESP door, the same way
 *
 * All of them wait in read(2): the least that a client can do. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, TEXT_BYTES = 256, CLOCK_EVERY = 16 };

static void must(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "limits: cannot %s\n", what);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void repeat(void (*one)(void *ctx), void *ctx, double seconds)
{
    uint64_t count = 0;
    for (double warm = now_s() + seconds / 5; now_s() < warm;) one(ctx);
    double start = now_s();
    while (now_s() - start < seconds)
        for (int i = 0; i < CLOCK_EVERY; i++, count++) one(ctx);
    printf("{\"rate\":%.1f}\n", (double)count / (now_s() - start));
}

/* ---- the disk ---- */

static void sync_page(void *ctx)
{
    static char page[PAGE_BYTES];
    int fd = *(int *)ctx;
    page[0]++;
    must(pwrite(fd, page, sizeof page, 0) == PAGE_BYTES && fdatasync(fd) == 0, "sync");
}

static void disk(const char *dir, double seconds)
{
    char path[TEXT_BYTES];
    snprintf(path, sizeof path, "%s/sync", dir);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    must(fd >= 0, "create a file");
    sync_page(&fd);
    must(fsync(fd) == 0, "sync the file");
    repeat(sync_page, &fd, seconds);
    close(fd);
    unlink(path);
}

/* ---- the network of the machine ---- */

static struct sockaddr_in loopback_at(uint16_t port)
{
    return (struct sockaddr_in){ .sin_family = AF_INET,
                                 .sin_port = htons(port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static void no_delay(int fd)
{
    int on = 1;
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "set TCP_NODELAY");
}

static int connected(uint16_t port)
{
    struct sockaddr_in to = loopback_at(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "connect");
    no_delay(fd);
    return fd;
}

static void echo(int listener)
{
    char byte;
    int fd = accept(listener, NULL, NULL);
    must(fd >= 0, "accept");
    no_delay(fd);
    while (read(fd, &byte, 1) == 1) must(write(fd, &byte, 1) == 1, "send it back");
    _exit(0);
}

static void there_and_back(void *ctx)
{
    char byte = 'x';
    int fd = *(int *)ctx;
    must(write(fd, &byte, 1) == 1 && read(fd, &byte, 1) == 1, "send a byte");
}

static void loopback(double seconds)
{
    struct sockaddr_in at = loopback_at(0);
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(listener >= 0 && bind(listener, (struct sockaddr *)&at, sizeof at) == 0, "bind");
    must(listen(listener, 1) == 0, "listen");
    must(getsockname(listener, (struct sockaddr *)&at, &len) == 0, "find the port");
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) echo(listener);
    int fd = connected(ntohs(at.sin_port));
    repeat(there_and_back, &fd, seconds);
    close(fd);
    must(waitpid(child, NULL, 0) == child, "end the other process");
}

/* ---- a RESP door ---- */

struct door {
    int fd;
    uint64_t next; /* continues from the clock: nobody has used that key */
};

/* Reads until so many lines are there: an answer comes in one piece, but need not. */
static void ask(struct door *d, const char *text, int len, const char *head, unsigned lines)
{
    char in[TEXT_BYTES];
    size_t have = 0;
    must(write(d->fd, text, (size_t)len) == len, "ask");
    for (unsigned seen = 0; seen < lines;) {
        ssize_t n = read(d->fd, in + have, sizeof in - have);
        must(n > 0, "read the answer");
        for (ssize_t i = 0; i < n; i++) seen += in[have + (size_t)i] == '\n';
        have += (size_t)n;
    }
    must(have >= strlen(head) && memcmp(in, head, strlen(head)) == 0, "get that answer");
}

static void claim_new(void *ctx)
{
    struct door *d = ctx;
    char text[TEXT_BYTES];
    int len = snprintf(text, sizeof text,
                       "*3\r\n$10\r\nONCE.CLAIM\r\n$5\r\nbench\r\n$22\r\norder-%016llx\r\n",
                       (unsigned long long)(d->next++ * 0x9e3779b97f4a7c15u));
    ask(d, text, len, "*4\r\n$7\r\nclaimed\r\n", 7);
}

static void ping(void *ctx)
{
    static const char text[] = "*1\r\n$4\r\nPING\r\n";
    ask(ctx, text, sizeof text - 1, "+PONG\r\n", 1);
}

static void door(void (*one)(void *ctx), const char *port, double seconds)
{
    struct door d = { .fd = connected((uint16_t)atoi(port)),
                      .next = (uint64_t)(now_s() * 1e9) };
    repeat(one, &d, seconds);
    close(d.fd);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";
    double seconds = strtod(argv[argc - 1], NULL);
    signal(SIGPIPE, SIG_IGN);
    if (argc == 4 && strcmp(what, "sync") == 0)
        disk(argv[2], seconds);
    else if (argc == 3 && strcmp(what, "loopback") == 0)
        loopback(seconds);
    else if (argc == 4 && strcmp(what, "claim") == 0)
        door(claim_new, argv[2], seconds);
    else if (argc == 4 && strcmp(what, "ping") == 0)
        door(ping, argv[2], seconds);
    else
        must(false, "understand the arguments");
    return 0;
}
