/* main.c - crowd ONCE: ten thousand who are idle and five thousand who wait, at once, on one daemon
 * of the default kind, through both doors. Prints TAP.
 *
 * Plain blocking sockets, one after the other: this side is not what is tested. Nothing is judged by
 * time; every read has a limit, so that a bug is a failure and not a hang. */
#include "base/check.h"
#include "tests/support/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    IDLE = 10000,
    WAITERS = 5000,
    LEAVERS = 1000,
    SAMPLES = 200,
    DESCRIPTORS = IDLE + WAITERS + 500,
    LIMIT_S = 60,
    IDLE_RSS_KB_MAX = 20 * 1024,
    IDLE_CONN_BYTES_MAX = 2048,
    TEXT_BYTES = 4096,
};

#define ANSWER "one answer for the whole crowd"

/* The same things said at each door. */
struct tongue {
    const char *name;
    const char *ping, *pong;
    const char *wait;   /* for crowd/k */
    const char *answer; /* is part of what comes then */
};

static const struct tongue tongues[] = {
    { "resp", "PING\r\n", "+PONG\r\n", "ONCE.CLAIM crowd k WAIT 600000\r\n", ANSWER },
    { "http", "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 ",
      "POST /v1/claims/crowd/k HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\n"
      "Content-Length: 18\r\n\r\n{\"wait_ms\":600000}",
      ANSWER },
};
enum { TONGUES = sizeof tongues / sizeof tongues[0] };

struct peer {
    int fd;
    const struct tongue *tongue;
};

struct daemon {
    pid_t pid;
    int out;
    uint16_t ports[TONGUES];
};

static struct peer idle[IDLE], waiters[WAITERS];
static char text[TEXT_BYTES];

/* ---- the daemon ---- */

/* "listening http 127.0.0.1:4711 resp 127.0.0.1:4712" */
static uint16_t port_of(const char *line, const char *door)
{
    char name[16];
    snprintf(name, sizeof name, " %s ", door);
    const char *at = strstr(line, name);
    const char *colon = at ? strchr(at, ':') : NULL;
    return colon ? (uint16_t)atoi(colon + 1) : 0;
}

static bool daemon_start(struct daemon *d, const char *once, const char *dir)
{
    int out[2];
    if (pipe(out) < 0) return false;
    d->pid = fork();
    if (d->pid == 0) {
        dup2(out[1], STDOUT_FILENO);
        close(out[0]);
        execl(once, "once", "serve", "--quiet", "--data", dir, "--listen", "127.0.0.1:0",
              "--resp", "127.0.0.1:0", (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    d->out = out[0];
    ssize_t len = read(d->out, text, sizeof text - 1);
    text[len > 0 ? len : 0] = '\0';
    for (int i = 0; i < TONGUES; i++) d->ports[i] = port_of(text, tongues[i].name);
    return d->pid > 0 && d->ports[0] && d->ports[1];
}

static long rss_kb(const struct daemon *d)
{
    char path[64], line[256];
    long kb = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)d->pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %ld kB", &kb) == 1) break;
    if (f) fclose(f);
    return kb;
}

/* ---- peers ---- */

static bool peer_open(struct peer *p, const struct daemon *d, size_t number)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(d->ports[number % TONGUES]),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct timeval limit = { .tv_sec = LIMIT_S };
    p->tongue = &tongues[number % TONGUES];
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (p->fd < 0) return false;
    setsockopt(p->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return connect(p->fd, (struct sockaddr *)&to, sizeof to) == 0;
}

static bool peer_say(const struct peer *p, const char *what)
{
    size_t len = strlen(what);
    return write(p->fd, what, len) == (ssize_t)len;
}

/* Until `what` has come, or the limit. */
static bool peer_hears(const struct peer *p, const char *what)
{
    size_t len = 0;
    while (len < sizeof text - 1) {
        ssize_t n = read(p->fd, text + len, sizeof text - 1 - len);
        if (n <= 0) return false;
        len += (size_t)n;
        text[len] = '\0';
        if (strstr(text, what)) return true;
    }
    return false;
}

static bool peer_pings(const struct peer *p)
{
    return peer_say(p, p->tongue->ping) && peer_hears(p, p->tongue->pong);
}

static void peers_close(struct peer *peers, size_t count)
{
    for (size_t i = 0; i < count; i++) close(peers[i].fd);
}

/* ---- what is asked by one who is not of the crowd ---- */

/* A number that INFO has; -1: it has not. An ECHO says when INFO has come as a whole. */
static long info(const struct peer *one, const char *name)
{
    char field[64];
    snprintf(field, sizeof field, "\n%s:", name);
    if (!peer_say(one, "INFO\r\nECHO over\r\n") || !peer_hears(one, "over\r\n")) return -1;
    const char *at = strstr(text, field);
    return at ? atol(at + strlen(field)) : -1;
}

/* Until it is so; the daemon takes in what was sent before, in turn. */
static bool info_becomes(const struct peer *one, const char *name, long value)
{
    for (int i = 0; i < LIMIT_S * 1000; i++) {
        if (info(one, name) == value) return true;
        usleep(1000);
    }
    return false;
}

/* `key` becomes this peer's; its token. */
static bool claim(const struct peer *one, const char *key, char token[33])
{
    char ask[128];
    snprintf(ask, sizeof ask, "ONCE.CLAIM crowd %s LEASE 600000\r\n", key);
    if (!peer_say(one, ask) || !peer_hears(one, "claimed\r\n$32\r\n")) return false;
    const char *at = strstr(text, "$32\r\n") + 5;
    snprintf(token, 33, "%.32s", at);
    return strlen(token) == 32;
}

static bool publish(const struct peer *one, const char *token)
{
    char ask[256];
    snprintf(ask, sizeof ask, "ONCE.PUBLISH crowd k %s \"" ANSWER "\"\r\n", token);
    return peer_say(one, ask) && peer_hears(one, "+OK");
}

/* ---- the crowd ---- */

static size_t open_idle(const struct daemon *d)
{
    size_t n = 0;
    while (n < IDLE && peer_open(&idle[n], d, n) && peer_pings(&idle[n])) n++;
    return n;
}

static size_t open_waiters(const struct daemon *d, size_t count)
{
    size_t n = 0;
    while (n < count && peer_open(&waiters[n], d, n) &&
           peer_say(&waiters[n], waiters[n].tongue->wait))
        n++;
    return n;
}

static size_t count_answered(void)
{
    size_t n = 0;
    for (size_t i = 0; i < WAITERS; i++)
        n += peer_hears(&waiters[i], waiters[i].tongue->answer);
    return n;
}

static size_t count_alive(void)
{
    size_t n = 0;
    for (size_t i = 0; i < SAMPLES; i++) n += peer_pings(&idle[i * (IDLE / SAMPLES)]);
    return n;
}

static void crowd(const struct daemon *d)
{
    struct peer one;
    char token[33];
    CHECK(peer_open(&one, d, 0) && peer_pings(&one));
    long before_kb = rss_kb(d);
    tap_result(before_kb < IDLE_RSS_KB_MAX, "idle it has less than 20 MiB: %ld KiB", before_kb);

    size_t opened = open_idle(d);
    tap_result(opened == IDLE, "%d connections that do nothing: %zu", IDLE, opened);
    if (opened < IDLE) return;
    long bytes = (rss_kb(d) - before_kb) * 1024 / IDLE;
    tap_result(bytes < IDLE_CONN_BYTES_MAX, "each has less than 2 KiB: %ld bytes", bytes);

    tap_result(claim(&one, "k", token), "somebody owns the key");
    size_t asked = open_waiters(d, WAITERS);
    tap_result(asked == WAITERS && info_becomes(&one, "blocked_clients", WAITERS),
               "%d wait for it", WAITERS);
    if (asked < WAITERS) return;
    size_t alive = count_alive();
    tap_result(alive == SAMPLES, "those who did nothing are answered meanwhile: %zu", alive);
    tap_result(publish(&one, token), "the owner publishes");
    size_t answered = count_answered();
    tap_result(answered == WAITERS, "all who wait get the answer: %zu", answered);
    peers_close(waiters, WAITERS);

    close(one.fd); /* and owns nothing any more: it was published */
    peers_close(idle, IDLE);
    CHECK(peer_open(&one, d, 0));
    tap_result(info_becomes(&one, "connected_clients", 1), "who hangs up is gone");
    close(one.fd);
}

static void leavers(const struct daemon *d)
{
    struct peer one;
    char token[33], forget[] = "ONCE.FORGET crowd k\r\n";
    CHECK(peer_open(&one, d, 0) && peer_say(&one, forget) && peer_hears(&one, "\r\n"));
    CHECK(claim(&one, "k", token));
    size_t asked = open_waiters(d, LEAVERS);
    bool parked = info_becomes(&one, "blocked_clients", LEAVERS);
    peers_close(waiters, asked);
    tap_result(parked && info_becomes(&one, "blocked_clients", 0),
               "who leaves while it waits frees its place");
    close(one.fd);
}

int main(int argc, char **argv)
{
    struct daemon d = { 0 };
    struct rlimit files = { DESCRIPTORS, DESCRIPTORS };
    struct world world; /* for its directory */
    int status = 0;
    CHECK(argc == 2);
    signal(SIGPIPE, SIG_IGN);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < DESCRIPTORS) {
        tap_result(false, "this needs %d descriptors: ulimit -Hn says %ju", DESCRIPTORS,
                   (uintmax_t)files.rlim_max);
        return tap_end();
    }
    world_init(&world, 1);
    bool started = daemon_start(&d, argv[1], world_dir(&world));
    tap_result(started, "a daemon");
    if (started) {
        crowd(&d);
        leavers(&d);
    }
    if (d.pid > 0) kill(d.pid, SIGTERM);
    waitpid(d.pid, &status, 0);
    tap_result(WIFEXITED(status) && WEXITSTATUS(status) == 0, "it ends as it should");
    world_fini(&world);
    return tap_end();
}
