/* proxy_test.c - the proxy between a client and servers that send back what they get. */
#include "base/check.h"
#include "tests/fault/fault.h"
#include "tests/support/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000 };

struct bench {
    pid_t echo[2], proxy;
    uint16_t echo_port[2], port;
    FILE *say, *hear;
};

/* ---- servers: each connection gets back what it sends, in its own process ---- */

static int listen_any(uint16_t *ret_port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, len) == 0 && listen(fd, 16) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &len) == 0);
    *ret_port = ntohs(a.sin_port);
    return fd;
}

static void echo_connection(int fd, char mark)
{
    char data[4096];
    for (ssize_t n; (n = recv(fd, data, sizeof data, 0)) > 0;) {
        if (mark) memset(data, mark, (size_t)n);
        CHECK(send(fd, data, (size_t)n, MSG_NOSIGNAL) == n || errno == EPIPE ||
              errno == ECONNRESET);
    }
}

static pid_t echo_start(uint16_t *ret_port, char mark)
{
    int listener = listen_any(ret_port);
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (pid) {
        close(listener);
        return pid;
    }
    signal(SIGCHLD, SIG_IGN);
    while (getppid() == parent) {
        struct pollfd p = { .fd = listener, .events = POLLIN };
        if (poll(&p, 1, 500) <= 0) continue;
        int fd = accept(listener, NULL, NULL);
        if (fork() == 0) {
            echo_connection(fd, mark);
            _exit(0);
        }
        close(fd);
    }
    _exit(0);
}

/* ---- the proxy ---- */

static void proxy_child(const int in[2], const int out[2], uint16_t server)
{
    char address[32], *argv[] = { "proxy", "0", address, NULL };
    snprintf(address, sizeof address, "127.0.0.1:%u", server);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    close(in[1]);
    close(out[0]);
    _exit(proxy_main(3, argv));
}

static void bench_start(struct bench *b)
{
    int in[2], out[2];
    b->echo[0] = echo_start(&b->echo_port[0], 0);
    b->echo[1] = echo_start(&b->echo_port[1], '2');
    CHECK(pipe(in) == 0 && pipe(out) == 0);
    fflush(stdout);
    b->proxy = fork();
    CHECK(b->proxy >= 0);
    if (b->proxy == 0) proxy_child(in, out, b->echo_port[0]);
    close(in[0]);
    close(out[1]);
    b->say = fdopen(in[1], "w");
    b->hear = fdopen(out[0], "r");
    char port[16];
    CHECK(b->say && b->hear && fgets(port, sizeof port, b->hear));
    b->port = (uint16_t)atoi(port);
}

static bool bench_stop(struct bench *b)
{
    int status;
    fclose(b->say); /* it ends by itself */
    CHECK(waitpid(b->proxy, &status, 0) == b->proxy);
    fclose(b->hear);
    for (int i = 0; i < 2; i++) {
        kill(b->echo[i], SIGTERM);
        waitpid(b->echo[i], NULL, 0);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool is_told(struct bench *b, const char *command, const char *expected)
{
    char answer[128];
    fprintf(b->say, "%s\n", command);
    fflush(b->say);
    return fgets(answer, sizeof answer, b->hear) && strcmp(answer, expected) == 0;
}

static bool tell(struct bench *b, const char *command)
{
    return is_told(b, command, "ok\n");
}

/* ---- the client ---- */

static int dial(const struct bench *b)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons(b->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
    close(fd);
    return -1;
}

static bool put(int fd, const char *data, size_t len)
{
    return send(fd, data, len, MSG_NOSIGNAL) == (ssize_t)len;
}

/* Receives exactly these bytes. */
static bool gets_back(int fd, const char *data, size_t len)
{
    char got[256];
    size_t have = 0;
    while (have < len) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (poll(&p, 1, PATIENCE_MS) != 1) return false;
        ssize_t n = recv(fd, got + have, len - have, 0);
        if (n <= 0) return false;
        have += (size_t)n;
    }
    return memcmp(got, data, len) == 0;
}

static bool is_closed(int fd)
{
    char byte;
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, PATIENCE_MS) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

static bool is_reset(int fd)
{
    char byte;
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, PATIENCE_MS) == 1 && recv(fd, &byte, 1, 0) < 0 && errno == ECONNRESET;
}

static bool is_silent(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, 30) == 0;
}

static bool echoes(int fd)
{
    return put(fd, "hello", 5) && gets_back(fd, "hello", 5);
}

/* ---- one test per command ---- */

static bool passes(struct bench *b, int fd)
{
    return tell(b, "pass") && echoes(fd) && !tell(b, "nonsense") && echoes(fd);
}

static bool delays(struct bench *b, int fd)
{
    int64_t begin_us = now_us();
    bool ok = tell(b, "delay 60") && echoes(fd);
    return ok && now_us() - begin_us >= 120000 && tell(b, "pass") && echoes(fd);
}

static bool drops(struct bench *b, int fd)
{
    bool ok = tell(b, "drop") && put(fd, "lost", 4) && is_silent(fd);
    return ok && tell(b, "pass") && put(fd, "kept", 4) && gets_back(fd, "kept", 4);
}

static bool resets(struct bench *b, int fd)
{
    bool ok = tell(b, "rst") && is_reset(fd);
    int another = dial(b);
    ok = ok && another >= 0 && is_closed(another) && tell(b, "pass");
    close(another);
    return ok;
}

static bool half_opens(struct bench *b, int fd)
{
    bool ok = tell(b, "half-open") && put(fd, "x", 1) && is_silent(fd);
    ok = ok && tell(b, "pass") && gets_back(fd, "x", 1);
    ok = ok && tell(b, "half-open-up") && put(fd, "y", 1) && is_silent(fd);
    return ok && tell(b, "pass") && gets_back(fd, "y", 1);
}

static bool cuts(struct bench *b, int fd)
{
    return tell(b, "cut 3") && put(fd, "abcdef", 6) && gets_back(fd, "abc", 3) &&
           is_closed(fd) && tell(b, "pass");
}

static bool refuses(struct bench *b, int fd)
{
    bool ok = tell(b, "refuse") && is_closed(fd) && dial(b) < 0 && errno == ECONNREFUSED;
    int again = tell(b, "pass") ? dial(b) : -1;
    ok = ok && again >= 0 && echoes(again);
    close(again);
    return ok;
}

static bool spares_the_old(struct bench *b, int fd)
{
    bool ok = echoes(fd) && tell(b, "new cut 2") && echoes(fd);
    int young = dial(b);
    ok = ok && put(young, "abc", 3) && gets_back(young, "ab", 2) && is_closed(young);
    close(young);
    return ok && echoes(fd) && tell(b, "pass");
}

static bool cuts_commits(struct bench *b, int fd)
{
    static const char answer[] = "xC\0\0\0\013COMMIT\0y";
    bool ok = tell(b, "cut-commit 2") && put(fd, answer, 14) && gets_back(fd, answer, 14);
    ok = ok && put(fd, answer, 5) && gets_back(fd, answer, 5); /* the second, in two pieces */
    return ok && put(fd, answer + 5, 9) && is_closed(fd) && tell(b, "pass");
}

#define ECHOES(fd, message)                                                                    \
    (put(fd, message, sizeof message - 1) && gets_back(fd, message, sizeof message - 1))

/* What a client of PostgreSQL sends. */
static const char ssl_request[] = "\0\0\0\010\004\322\026\057";
static const char startup[] = "\0\0\0\021\0\3\0\0user\0me\0\0";
static const char query_begin[] = "Q\0\0\0\012BEGIN\0";
static const char query_commit[] = "Q\0\0\0\013COMMIT\0";
static const char parse_commit[] = "P\0\0\0\021one\0COMMIT\0\0\0";
static const char parse_other[] = "P\0\0\0\021two\0SELECT\0\0\0";
static const char parse_unnamed[] = "P\0\0\0\016\0COMMIT\0\0\0";
static const char parse_read[] = "P\0\0\0\041\0SET x TO 'READ COMMITTED'\0\0\0";
static const char bind_one[] = "B\0\0\0\017\0one\0\0\0\0\0\0\0";
static const char bind_two[] = "B\0\0\0\017\0two\0\0\0\0\0\0\0";
static const char bind_unnamed[] = "B\0\0\0\014\0\0\0\0\0\0\0\0";

static bool starts(int fd)
{
    return fd >= 0 && ECHOES(fd, ssl_request) && ECHOES(fd, startup);
}

static bool drops_commits(struct bench *b, int fd)
{
    bool ok = tell(b, "drop-commit 1") && starts(fd) && ECHOES(fd, query_begin);
    return ok && put(fd, query_commit, sizeof query_commit - 1) && is_closed(fd) &&
           tell(b, "pass");
}

/* The name is told before the rule is in force, as on a connection that has been in use. */
static bool drops_prepared_commits(struct bench *b, int fd)
{
    bool ok = starts(fd) && ECHOES(fd, parse_commit) && ECHOES(fd, parse_other) &&
              ECHOES(fd, bind_one) && tell(b, "drop-commit 1") && ECHOES(fd, bind_two);
    ok = ok && put(fd, bind_one, 7) && gets_back(fd, bind_one, 7); /* in two pieces */
    return ok && put(fd, bind_one + 7, sizeof bind_one - 8) && is_closed(fd) && tell(b, "pass");
}

static bool drops_unnamed_commits(struct bench *b, int fd)
{
    bool ok = tell(b, "drop-commit 1") && starts(fd) && ECHOES(fd, parse_read) &&
              ECHOES(fd, bind_unnamed) && ECHOES(fd, parse_unnamed);
    return ok && put(fd, bind_unnamed, sizeof bind_unnamed - 1) && is_closed(fd) &&
           tell(b, "pass");
}

/* Everything that the tests before it have done is asked for first. */
static bool counts(struct bench *b, int fd)
{
    char answer[128];
    fprintf(b->say, "fired\n");
    fflush(b->say);
    bool ok = fgets(answer, sizeof answer, b->hear) && is_told(b, "fired", "ok\n");
    ok = ok && tell(b, "half-open") && is_told(b, "fired", "ok\n") && put(fd, "x", 1);
    ok = ok && is_silent(fd) && tell(b, "pass") && gets_back(fd, "x", 1);
    ok = ok && is_told(b, "fired", "ok half-open=1\n") && is_told(b, "fired", "ok\n");
    ok = ok && tell(b, "drop") && put(fd, "lost", 4) && is_silent(fd) && tell(b, "rst");
    return ok && is_reset(fd) && is_told(b, "fired", "ok drop=1 rst=1\n") && tell(b, "pass");
}

static bool changes_servers(struct bench *b, int fd)
{
    char command[64];
    snprintf(command, sizeof command, "server 127.0.0.1:%u", b->echo_port[1]);
    bool ok = tell(b, command) && echoes(fd);
    int other = dial(b);
    ok = ok && put(other, "abc", 3) && gets_back(other, "222", 3);
    close(other);
    snprintf(command, sizeof command, "server 127.0.0.1:%u", b->echo_port[0]);
    return ok && tell(b, command);
}

static const struct {
    const char *name;
    bool (*run)(struct bench *b, int fd);
} tests[] = {
    { "forwards", passes },
    { "delays", delays },
    { "swallows", drops },
    { "resets", resets },
    { "keeps a connection half open", half_opens },
    { "cuts in the middle of a reply", cuts },
    { "refuses, and accepts again", refuses },
    { "spares connections that were there", spares_the_old },
    { "loses the answer to a COMMIT", cuts_commits },
    { "loses a COMMIT", drops_commits },
    { "loses a COMMIT that is sent by its name", drops_prepared_commits },
    { "loses a COMMIT without a name", drops_unnamed_commits },
    { "counts what it has done", counts },
    { "turns to another server", changes_servers },
};

void proxy_test(void)
{
    struct bench b;
    bench_start(&b);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        int fd = dial(&b);
        tap_result(fd >= 0 && tests[i].run(&b, fd), "proxy: %s", tests[i].name);
        close(fd);
    }
    tap_result(bench_stop(&b), "proxy: ends with its input");
}
