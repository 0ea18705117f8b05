/* conn_test.c - connections by themselves: a door that answers every byte, real sockets, and time
 * that the test moves. */
#include "daemon/listen.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LARGE = 8 * 1024 * 1024, ROUNDS_MAX = 10000 };

/* What the bytes mean to the door of this test. */
enum {
    SAY_ECHO = 'e',  /* answered by itself */
    SAY_BIG = 'b',   /* answered by LARGE bytes */
    SAY_LATER = 'l', /* answered when the test says so */
    SAY_MORE = 'm',  /* nothing, before another one has come */
    SAY_QUIT = 'q',  /* answered, and the end */
};

struct scene {
    uv_loop_t uv;
    struct loop loop;
    struct conns conns;
    struct listener listener;
    char dir[32];
    struct conn *last; /* the one that was opened last; NULL: it is closed */
    size_t shown, ended, rooms;
};

static const struct conn_limits limits = { .in_bytes_max = 256 * 1024,
                                           .out_bytes_high = 64 * 1024,
                                           .out_bytes_max = 3 * LARGE,
                                           .owed_max = 4,
                                           .command_ms = 30000,
                                           .send_ms = 20000,
                                           .linger_ms = 1000 };

static void answer_byte(struct conn *c, uint8_t byte)
{
    static char large[LARGE];
    if (byte == SAY_LATER) {
        conn_owe(c);
        return;
    }
    memset(large, SAY_BIG, byte == SAY_BIG ? LARGE : 0);
    buf_add(conn_out(c), byte == SAY_BIG ? bytes_of(large, LARGE) : bytes_of(&byte, 1));
    if (byte == SAY_QUIT) conn_end(c, CLOSE_REFUSED);
}

static size_t on_bytes(struct conn *c, uint8_t *data, size_t len)
{
    struct scene *s = c->ctx;
    size_t used = 0;
    while (used < len && !conn_full(c)) {
        if (data[used] == SAY_MORE && len - used < 2) break;
        answer_byte(c, data[used]);
        used += data[used] == SAY_MORE ? 2 : 1;
        s->shown++;
    }
    return used;
}

static void on_opened(struct conn *c)
{
    ((struct scene *)c->ctx)->last = c;
}

static void on_room(struct conn *c)
{
    ((struct scene *)c->ctx)->rooms++;
}

static void on_ended(struct conn *c)
{
    ((struct scene *)c->ctx)->ended++;
}

static void on_closed(struct conn *c)
{
    ((struct scene *)c->ctx)->last = NULL;
}

static const struct door door = { .name = "test",
                                  .full_text = "full",
                                  .on_opened = on_opened,
                                  .on_bytes = on_bytes,
                                  .on_room = on_room,
                                  .on_ended = on_ended,
                                  .on_closed = on_closed };

static void scene_open(struct scene *s, size_t count_max)
{
    struct err err;
    char address[64];
    struct clock clock = clock_monotonic();
    signal(SIGPIPE, SIG_IGN); /* as server_run() does */
    snprintf(s->dir, sizeof s->dir, "/tmp/conn-test-XXXXXX");
    cr_assert(mkdtemp(s->dir));
    cr_assert_eq(uv_loop_init(&s->uv), 0);
    loop_init(&s->loop, clock_now_ms(&clock));
    conns_init(&s->conns, &s->uv, &s->loop, &limits, count_max);
    s->listener.conns = &s->conns;
    s->listener.door = &door;
    s->listener.door_ctx = s;
    snprintf(address, sizeof address, "unix:%s/s", s->dir);
    cr_assert_eq(listener_open(&s->listener, address, &err), 0, "%s", err.text);
}

static void scene_close(struct scene *s)
{
    conns_close(&s->conns, CLOSE_SHUTDOWN);
    listener_close(&s->listener);
    uv_run(&s->uv, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&s->uv), 0);
    conns_fini(&s->conns);
    loop_fini(&s->loop);
    rmdir(s->dir);
}

/* Everything that can be done without waiting. */
static void go(struct scene *s)
{
    for (int i = 0; i < 8; i++) {
        uv_run(&s->uv, UV_RUN_NOWAIT);
        loop_turn(&s->loop, s->loop.now_ms);
        conns_settle(&s->conns);
    }
}

static void pass_ms(struct scene *s, int64_t ms)
{
    loop_turn(&s->loop, s->loop.now_ms + ms);
    go(s);
}

static int dial(struct scene *s)
{
    struct sockaddr_un path = { .sun_family = AF_UNIX };
    snprintf(path.sun_path, sizeof path.sun_path, "%s/s", s->dir);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&path, sizeof path), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    go(s);
    return fd;
}

static void say(struct scene *s, int fd, const char *text)
{
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    go(s);
}

/* Takes what has come: how much; negative: and then the end. */
static ssize_t hear(int fd, char *out, size_t len)
{
    size_t have = 0;
    for (ssize_t n; (n = read(fd, out + have, len - have)) != 0; have += (size_t)n)
        if (n < 0 || have + (size_t)n == len) return (ssize_t)(n < 0 ? have : len);
    return -(ssize_t)have - 1;
}

static void hears(int fd, const char *want, bool end)
{
    char got[64] = "";
    ssize_t n = hear(fd, got, sizeof got - 1);
    cr_assert_eq(n, end ? -(ssize_t)strlen(want) - 1 : (ssize_t)strlen(want), "%zd: %s", n,
                 got);
    cr_assert_str_eq(got, want);
}

/* Reads until so much has come, or the end. */
static size_t hear_all(struct scene *s, int fd, size_t want)
{
    static char sink[65536];
    size_t have = 0;
    for (int i = 0; i < ROUNDS_MAX && have < want; i++) {
        ssize_t n = read(fd, sink, sizeof sink);
        if (n == 0) break;
        if (n > 0) have += (size_t)n;
        go(s);
    }
    return have;
}

Test(conn, answers_and_keeps_nothing)
{
    struct scene s = { 0 };
    scene_open(&s, 10);
    int fd = dial(&s);
    say(&s, fd, "eee");
    hears(fd, "eee", false);
    cr_assert(!s.last->in.data && !s.last->out.data && !s.last->sending.data, "K3");
    cr_assert(!timer_is_set(&s.last->timer), "an idle connection may stay");
    cr_assert_leq(sizeof(struct conn), 1024);
    close(fd);
    go(&s);
    cr_assert_null(s.last);
    cr_assert_eq(s.ended, 1);
    cr_assert_eq(s.conns.stats[door.id].closed[CLOSE_ENDED], 1);
    scene_close(&s);
}

Test(conn, half_a_command_does_not_wait_for_ever)
{
    struct scene s = { 0 };
    scene_open(&s, 10);
    int fd = dial(&s);
    say(&s, fd, "em");
    pass_ms(&s, 29000);
    cr_assert(s.last);
    say(&s, fd, "me"); /* completes one, and one is whole */
    pass_ms(&s, 29000);
    cr_assert(s.last, "nothing is begun");
    say(&s, fd, "m");
    pass_ms(&s, 29999);
    cr_assert(s.last);
    pass_ms(&s, 1);
    cr_assert_null(s.last, "K4");
    cr_assert_eq(s.conns.stats[door.id].closed[CLOSE_SLOW_INPUT], 1);
    close(fd);
    scene_close(&s);
}

Test(conn, who_does_not_listen_is_not_answered_for_ever)
{
    struct scene s = { 0 };
    scene_open(&s, 10);
    int fd = dial(&s);
    say(&s, fd, "b");
    cr_assert(s.last && s.last->unsent);
    pass_ms(&s, 19000);
    cr_assert_geq(hear_all(&s, fd, 1024 * 1024), 1024 * 1024);
    pass_ms(&s, 1000);
    cr_assert(s.last, "it moves");
    pass_ms(&s, 19999);
    cr_assert(s.last);
    pass_ms(&s, 1);
    cr_assert_null(s.last, "K4");
    cr_assert_eq(s.conns.stats[door.id].closed[CLOSE_SLOW_OUTPUT], 1);
    close(fd);
    scene_close(&s);
}

Test(conn, nothing_is_asked_while_much_is_unsent)
{
    struct scene s = { 0 };
    scene_open(&s, 10);
    int fd = dial(&s);
    say(&s, fd, "bbb");
    cr_assert_eq(s.shown, 1, "K2");
    cr_assert(s.last->reading, "its end would be seen");
    static char much[CONN_INPUT_BYTES + 1];
    memset(much, SAY_ECHO, CONN_INPUT_BYTES);
    say(&s, fd, much);
    cr_assert_eq(s.shown, 1);
    cr_assert(!s.last->reading, "what it sends now stays with the kernel");
    size_t all = 3 * LARGE + CONN_INPUT_BYTES;
    cr_assert_eq(hear_all(&s, fd, all), all);
    cr_assert_eq(s.shown, 3 + CONN_INPUT_BYTES);
    cr_assert(s.last && s.last->reading);
    close(fd);
    scene_close(&s);
}

Test(conn, nothing_is_asked_while_too_much_is_owed)
{
    struct scene s = { 0 };
    scene_open(&s, 10);
    int fd = dial(&s);
    say(&s, fd, "llllll");
    cr_assert_eq(s.shown, 4, "K2");
    conn_paid(s.last);
    go(&s);
    cr_assert_eq(s.shown, 5);
    for (int i = 0; i < 5; i++, go(&s)) conn_paid(s.last);
    cr_assert_eq(s.shown, 6);
    say(&s, fd, "e");
    hears(fd, "e", false);
    close(fd);
    scene_close(&s);
}

Test(conn, room_is_announced_when_there_is_some)
{
    struct scene s = { 0 };
    scene_open(&s, 10);
    int fd = dial(&s);
    say(&s, fd, "lb"); /* the door would keep an answer now */
    size_t before = s.rooms;
    cr_assert(!conn_has_room(s.last));
    go(&s);
    cr_assert_eq(s.rooms, before);
    cr_assert_eq(hear_all(&s, fd, LARGE), LARGE);
    cr_assert(conn_has_room(s.last));
    cr_assert_gt(s.rooms, before);
    conn_paid(s.last);
    close(fd);
    scene_close(&s);
}

Test(conn, who_has_said_everything_is_answered_first)
{
    struct scene s = { 0 };
    scene_open(&s, 10);
    int fd = dial(&s);
    say(&s, fd, "llllle"); /* more than may be owed: the rest is done later, but done */
    shutdown(fd, SHUT_WR);
    go(&s);
    cr_assert(s.last);
    cr_assert_eq(s.ended, 1);
    for (int i = 0; i < 5; i++, go(&s)) conn_paid(s.last);
    cr_assert_eq(s.shown, 6);
    hears(fd, "e", true);
    close(fd);
    scene_close(&s);
}

Test(conn, an_answer_in_front_of_the_end_arrives)
{
    struct scene s = { 0 };
    scene_open(&s, 10);
    int fd = dial(&s);
    say(&s, fd, "eqeeee");
    cr_assert_eq(s.shown, 2);
    cr_assert_eq(s.last->state, CONN_LINGERING);
    say(&s, fd, "eeee"); /* is taken, and dropped */
    hears(fd, "eq", true);
    close(fd);
    go(&s);
    cr_assert_null(s.last, "K5");
    cr_assert_eq(s.conns.stats[door.id].closed[CLOSE_REFUSED], 1);
    fd = dial(&s);
    say(&s, fd, "q");
    pass_ms(&s, 1000);
    cr_assert_null(s.last, "a peer that does not hang up does not stay");
    close(fd);
    scene_close(&s);
}

Test(conn, one_too_many)
{
    struct scene s = { 0 };
    scene_open(&s, 1);
    int first = dial(&s), second = dial(&s);
    say(&s, first, "e");
    hears(first, "e", false);
    hears(second, "full", true);
    close(second);
    go(&s);
    cr_assert_eq(s.conns.count, 1);
    cr_assert_eq(s.conns.stats[door.id].refused, 1);
    int third = dial(&s);
    hears(third, "full", true);
    close(first);
    close(third);
    go(&s);
    int fourth = dial(&s);
    say(&s, fourth, "e");
    hears(fourth, "e", false);
    close(fourth);
    scene_close(&s);
}

Test(conn, ends_when_the_daemon_does)
{
    struct scene s = { 0 };
    scene_open(&s, 10);
    int idle = dial(&s), owed = dial(&s);
    say(&s, owed, "l");
    struct conn *c = s.last;
    conns_end(&s.conns, CLOSE_SHUTDOWN);
    go(&s);
    hears(idle, "", true);
    cr_assert_eq(c->state, CONN_ENDING);
    buf_add(conn_out(c), bytes_str("at last"));
    conn_paid(c);
    go(&s);
    hears(owed, "at last", true);
    close(idle);
    close(owed);
    go(&s);
    cr_assert_eq(s.conns.count, 0);
    cr_assert_eq(s.conns.stats[door.id].closed[CLOSE_SHUTDOWN], 2);
    scene_close(&s);
}
