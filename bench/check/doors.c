/* doors.c - whole requests at the doors of a daemon in this process, on memory: read, carried out
 * and answered, so many in one write. */
#include "base/check.h"
#include "bench/check/check.h"
#include "tests/support/door.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PIPELINE = 16, TEXT_BYTES = 256, ANSWERS_BYTES = 65536 };

/* Requests of one length, and what each answer begins with. */
struct client {
    struct world world;
    struct daemon *daemon;
    int fd;
    size_t request_len;
    const char *answer;
    char requests[NUMBERS * TEXT_BYTES];
};

static int dial(const char *path)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

static void client_close(struct client *c)
{
    close(c->fd);
    world_settle(&c->world);
    world_fini(&c->world);
}

static size_t answers_in(const char *text, const char *start)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, start)); at += strlen(start)) count++;
    return count;
}

static void ask(void *ctx, size_t first)
{
    static char answers[ANSWERS_BYTES];
    struct client *c = ctx;
    size_t len = PIPELINE * c->request_len;
    for (size_t at = first; at < first + OPERATIONS; at += PIPELINE) {
        CHECK(write(c->fd, c->requests + at * c->request_len, len) == (ssize_t)len);
        world_settle(&c->world);
        ssize_t got = read(c->fd, answers, sizeof answers - 1);
        CHECK(got > 0);
        answers[got] = '\0';
        CHECK(answers_in(answers, c->answer) == PIPELINE);
    }
}

/* A door, what is asked there, with a key of 16 digits between two texts, and the answer. */
struct asking {
    const char *name, *store;
    const char *(*socket)(const struct daemon *d);
    const char *before, *after, *answer;
};

static const struct asking askings[] = {
    { "resp-claim", "memory", daemon_socket,
      "*3\r\n$10\r\nONCE.CLAIM\r\n$5\r\nbench\r\n$16\r\n", "\r\n", "$7\r\nclaimed\r\n" },
    { "http-claim", "memory", daemon_http_socket, "POST /v1/claims/bench/",
      " HTTP/1.1\r\nHost: once.example.org\r\n\r\n", "HTTP/1.1 201 Created\r\n" },
    { "resp-trigger", "embedded", daemon_socket,
      "*5\r\n$12\r\nONCE.TRIGGER\r\n$5\r\nbench\r\n$2\r\n{}\r\n$3\r\nKEY\r\n$16\r\n", "\r\n",
      "$7\r\ncreated\r\n" },
};

static void write_requests(struct client *c, const struct asking *a)
{
    c->request_len = strlen(a->before) + 16 + strlen(a->after);
    CHECK(c->request_len < TEXT_BYTES);
    for (size_t i = 0; i < NUMBERS; i++)
        snprintf(c->requests + i * c->request_len, TEXT_BYTES, "%s%016zu%s", a->before, i,
                 a->after);
}

static void client_open(struct client *c, const struct asking *a)
{
    world_init(&c->world, 1);
    c->daemon = daemon_start(&c->world, world_open(&c->world, a->store), NULL);
    write_requests(c, a);
    c->answer = a->answer;
    c->fd = dial(a->socket(c->daemon));
    world_settle(&c->world);
}

static void check_door(const struct asking *a)
{
    static struct client c;
    client_open(&c, a);
    count_instructions(a->name, ask, &c);
    client_close(&c);
}

void check_doors(void)
{
    for (size_t i = 0; i < sizeof askings / sizeof askings[0]; i++) check_door(&askings[i]);
}
