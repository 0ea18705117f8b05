/* http_door_test.c - the HTTP door on an engine whose store fails as it is told to: what is read,
 * what is refused, in which order it is answered, and what becomes of those who hang up. */
#include "daemon/scene_test.h"

#define OK_HEAD "HTTP/1.1 200 OK\r\n"
#define HOST " HTTP/1.1\r\nHost: h\r\n"

static void scene_open(struct scene *s)
{
    scene_open_door(s, &http_door);
}

static void starts(const char *got, const char *start)
{
    cr_assert(strncmp(got, start, strlen(start)) == 0, "\"%s\" is not in front of \"%s\"",
              start, got);
}

static void has(const char *got, const char *part)
{
    cr_assert(strstr(got, part), "\"%s\" is not in \"%s\"", part, got);
}

static void has_not(const char *got, const char *part)
{
    cr_assert(!strstr(got, part), "\"%s\" is in \"%s\"", part, got);
}

static bool is_closed(int fd)
{
    char byte;
    return read(fd, &byte, 1) == 0;
}

/* A request without content, by a connection of its own; its answer. */
static const char *asked(struct scene *s, const char *text)
{
    int fd = dial(s);
    say(s, fd, text);
    const char *got = hear(fd);
    hang_up(s, fd);
    return got;
}

static void post(struct scene *s, int fd, const char *path, const char *json)
{
    char text[4096];
    snprintf(text, sizeof text,
             "POST %s" HOST "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             path, strlen(json), json);
    say(s, fd, text);
}

static void take_token(const char *answer, char out[33])
{
    const char *at = strstr(answer, "\"token\":\"");
    cr_assert(at, "%s", answer);
    snprintf(out, 33, "%.32s", at + 9);
}

/* Claims /v1/claims/s/k and leaves its token in `out`. */
static void claim(struct scene *s, int fd, char out[33])
{
    post(s, fd, "/v1/claims/s/k", "{\"lease_ms\":600000}");
    const char *got = hear(fd);
    starts(got, "HTTP/1.1 201 Created\r\n");
    take_token(got, out);
}

static void publish(struct scene *s, int fd, const char *token, const char *value)
{
    char text[4096];
    snprintf(text, sizeof text,
             "PUT /v1/claims/s/k" HOST "Content-Type: application/octet-stream\r\n"
             "Once-Token: %s\r\nContent-Length: %zu\r\n\r\n%s",
             token, strlen(value), value);
    say(s, fd, text);
}

/* /v1/claims/s/k is done, with the value "v". */
static void make_done(struct scene *s)
{
    char token[33];
    int fd = dial(s);
    claim(s, fd, token);
    publish(s, fd, token, "v");
    hears(fd, OK_HEAD);
    hang_up(s, fd);
}

/* ---- reading ---- */

Test(http_door, wherever_a_request_is_cut_it_is_the_same)
{
    static const char *const requests[] = {
        "GET /v1/claims/s/k" HOST "X-Request-Id: cut\r\n\r\n",
        "POST /v1/claims/s/k" HOST "X-Request-Id: cut\r\nContent-Type: application/json\r\n"
        "Content-Length: 14\r\n\r\n{\"wait_ms\": 1}",
        "POST /v1/claims/s/k" HOST "X-Request-Id: cut\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n3\r\n{\"w\r\nb;x=y\r\nait_ms\": 1}\r\n"
        "0\r\nTrailer: x\r\n\r\n",
    };
    struct scene s = { 0 };
    scene_open(&s);
    make_done(&s);
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        char *whole = strdup(asked(&s, requests[i]));
        starts(whole, OK_HEAD);
        has(whole, "\r\nX-Request-Id: cut\r\n");
        has(whole,
            "{\"outcome\":\"cached\",\"value\":\"v\",\"degraded\":false,\"waited_ms\":0}\n");
        for (size_t cut = 1; requests[i][cut]; cut++) {
            int fd = dial(&s);
            cr_assert_eq(write(fd, requests[i], cut), (ssize_t)cut);
            go(&s);
            say(&s, fd, requests[i] + cut);
            cr_assert_str_eq(hear(fd), whole, "request %zu cut at %zu", i, cut);
            hang_up(&s, fd);
        }
        free(whole);
    }
    scene_close(&s);
}

Test(http_door, byte_by_byte)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    const char *text = "POST /v1/claims/s/k" HOST "Content-Type: application/json\r\n"
                       "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n";
    for (; *text; text++) {
        hears(fd, "");
        cr_assert_eq(write(fd, text, 1), 1);
        go(&s);
    }
    hears(fd, "HTTP/1.1 201 Created\r\n");
    close(fd);
    scene_close(&s);
}

/* What two readers could read in two ways, and a second request that one of them would see. */
Test(http_door, nothing_is_smuggled)
{
#define SECOND "PUT /v1/claims/s/smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
    static const char *const requests[] = {
        "POST /livez" HOST "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /livez" HOST "Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
        "POST /livez" HOST "Content-Length: +0\r\n\r\n",
        "POST /livez" HOST "Content-Length : 0\r\n\r\n",
        "POST /livez" HOST "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST /livez" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /v1/claims/s/k" HOST "Content-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0x1\r\n{\r\n",
        "GET /livez HTTP/1.1\nHost: h\n\n",
        "GET /livez" HOST "X: a\r\n b\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /livez HTTP/1.1\r\n\r\n",
        "GET  /livez" HOST "\r\n",
        "GET /livez\0 HTTP/1.1\r\n\r\n",
    };
    struct scene s = { 0 };
    scene_open(&s);
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        int fd = dial(&s);
        char text[1024];
        snprintf(text, sizeof text, "%s" SECOND, requests[i]);
        say(&s, fd, text);
        const char *got = hear(fd);
        cr_assert(strncmp(got, "HTTP/1.1 400 ", 13) == 0 ||
                      strncmp(got, "HTTP/1.1 501 ", 13) == 0,
                  "%s: %s", requests[i], got);
        has(got, "\r\nConnection: close\r\n");
        has(got, "application/problem+json");
        cr_assert(!strstr(got + 1, "HTTP/1.1"), "one answer: %s", got);
        cr_assert(is_closed(fd));
        hang_up(&s, fd);
    }
    starts(asked(&s, "GET /v1/claims/s/smuggled" HOST "\r\n"), "HTTP/1.1 404 ");
    scene_close(&s);
}

/* ---- what is refused ---- */

Test(http_door, each_mistake_has_its_status)
{
    static const struct {
        const char *request;
        int status;
    } rows[] = {
        { "GET /nothing" HOST "\r\n", 404 },
        { "GET /v1/claims/s" HOST "\r\n", 404 },
        { "GET /v1/claims/s/k/" HOST "\r\n", 404 },
        { "GET /v1/claims/s/k" HOST "\r\n", 404 },
        { "PATCH /v1/claims/s/k" HOST "\r\n", 405 },
        { "POST /livez" HOST "\r\n", 405 },
        { "BREW /livez" HOST "\r\n", 501 },
        { "GET /v1/claims/s/%zz" HOST "\r\n", 400 },
        { "GET /v1/claims/s/%00" HOST "\r\n", 400 },
        { "GET /v1/claims/a%20b/k" HOST "\r\n", 400 },
        { "GET /v1/claims/s/k?x=1" HOST "\r\n", 400 },
        { "GET /v1/claims?limit=0" HOST "\r\n", 400 },
        { "GET /v1/claims?limit=1&limit=2" HOST "\r\n", 400 },
        { "GET /v1/claims?cursor=ff" HOST "\r\n", 400 },
        { "DELETE /v1/claims/s/k" HOST "\r\n", 400 },
        { "DELETE /v1/claims/s/k?token=12" HOST "\r\n", 400 },
        { "GET /livez" HOST "Accept: text/html\r\n\r\n", 406 },
        { "GET /livez" HOST "Accept: text/html, */*;q=0.1\r\n\r\n", 200 },
        { "GET /livez" HOST "Expect: a-miracle\r\n\r\n", 417 },
        { "GET /livez" HOST "Content-Type: a/b\r\nContent-Length: 1\r\n\r\nx", 400 },
        { "POST /v1/claims/s/k" HOST "Content-Length: 2\r\n\r\n{}", 415 },
        { "POST /v1/claims/s/k" HOST "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
          415 },
        { "POST /v1/claims/s/k" HOST "Content-Type: application/json; charset=latin1\r\n"
          "Content-Length: 2\r\n\r\n{}",
          415 },
        { "POST /v1/claims/s/k" HOST "Content-Type: application/json\r\n"
          "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
          415 },
        { "POST /v1/claims/s/k" HOST "Content-Type: application/json\r\n"
          "Content-Length: 99999999\r\n\r\n",
          413 },
        { "POST /v1/claims/s/k" HOST "Idempotency-Key:\r\n\r\n", 400 },
        { "GET /livez HTTP/2.0\r\n\r\n", 505 },
        { "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505 },
    };
    struct scene s = { 0 };
    scene_open(&s);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char want[32];
        const char *got = asked(&s, rows[i].request);
        snprintf(want, sizeof want, "HTTP/1.1 %d ", rows[i].status);
        cr_assert(strncmp(got, want, strlen(want)) == 0, "%s: %s", rows[i].request, got);
        if (rows[i].status >= 400) {
            snprintf(want, sizeof want, "\"status\":%d,", rows[i].status);
            has(got, want);
            has(got, "\r\nContent-Type: application/problem+json\r\n");
        }
    }
    cr_assert_eq(faulty_count(s.store, VERB_CLAIM), 0, "H3: nothing was claimed");
    scene_close(&s);
}

Test(http_door, whatever_is_too_long)
{
    static char text[200000];
    struct scene s = { 0 };
    scene_open(&s);
    snprintf(text, sizeof text, "GET /%9000d" HOST "\r\n", 0);
    for (char *at = text + 5; *at == ' '; at++) *at = 'a';
    starts(asked(&s, text), "HTTP/1.1 414 ");
    snprintf(text, sizeof text, "GET /livez" HOST "X: %09000d\r\n\r\n", 0);
    starts(asked(&s, text), "HTTP/1.1 431 ");
    size_t len = (size_t)snprintf(text, sizeof text, "GET /livez" HOST);
    for (int i = 0; i < 100; i++) len += (size_t)sprintf(text + len, "X%d: y\r\n", i);
    sprintf(text + len, "\r\n");
    starts(asked(&s, text), "HTTP/1.1 431 ");
    len = (size_t)snprintf(text, sizeof text, "GET /livez" HOST);
    for (int i = 0; i < 90; i++) len += (size_t)sprintf(text + len, "X%d: %0800d\r\n", i, 0);
    sprintf(text + len, "\r\n");
    starts(asked(&s, text), "HTTP/1.1 431 ");
    snprintf(text, sizeof text,
             "PUT /v1/claims/s/k" HOST "Content-Type: application/octet-stream\r\n"
             "Once-Token: %032d\r\nContent-Length: 1025\r\n\r\n%01025d",
             0, 0);
    starts(asked(&s, text), "HTTP/1.1 413 ");
    scene_close(&s);
}

/* Sends `piece` until the daemon has enough of it. */
static const char *flooded(struct scene *s, const char *head, const char *piece)
{
    int fd = dial(s);
    say(s, fd, head);
    for (int i = 0; i < 100000; i++) {
        if (write(fd, piece, strlen(piece)) < 0) break;
        if (i % 100 == 0) go(s);
        if (s->conns.stats[DOOR_HTTP].open == 0) break;
        const char *got = i % 100 == 0 ? hear(fd) : "";
        if (*got) {
            hang_up(s, fd);
            return got;
        }
    }
    cr_assert(false, "it goes on and on");
    return NULL;
}

Test(http_door, chunks_have_an_end)
{
    struct scene s = { 0 };
    scene_open(&s);
#define CHUNKED                                                                                \
    "POST /v1/claims/s/k" HOST "Content-Type: application/json\r\n"                            \
    "Transfer-Encoding: chunked\r\n\r\n"
    starts(flooded(&s, CHUNKED, "10\r\n                \r\n"), "HTTP/1.1 413 ");
    starts(flooded(&s, CHUNKED, "1\r\n \r\n"), "HTTP/1.1 413 ");
    starts(flooded(&s, CHUNKED, "1;abcdefghijklmnop=1\r\n \r\n"), "HTTP/1.1 431 ");
    scene_close(&s);
}

Test(http_door, who_is_too_slow_is_closed)
{
    static const char *const starts_of[] = {
        "GET /livez HTTP/1.1\r\nHost:",
        "POST /v1/claims/s/k" HOST
        "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{",
    };
    for (size_t i = 0; i < 2; i++) {
        struct scene s = { 0 };
        scene_open(&s);
        int fd = dial(&s);
        say(&s, fd, starts_of[i]);
        for (int at_s = 0; at_s < 29; at_s += 7) pass_ms(&s, 7000);
        cr_assert(is_closed(fd));
        close(fd);
        scene_close(&s);
    }
}

/* ---- connections ---- */

Test(http_door, a_connection_lives_as_long_as_was_said)
{
    static const struct {
        const char *request, *says;
        bool closes;
    } rows[] = {
        { "GET /livez" HOST "\r\n", NULL, false },
        { "GET /livez" HOST "Connection: close\r\n\r\n", "\r\nConnection: close\r\n", true },
        { "GET /livez HTTP/1.0\r\n\r\n", "\r\nConnection: close\r\n", true },
        { "GET /livez HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
          "\r\nConnection: keep-alive\r\n", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct scene s = { 0 };
        scene_open(&s);
        int fd = dial(&s);
        say(&s, fd, rows[i].request);
        const char *got = hear(fd);
        starts(got, OK_HEAD);
        if (rows[i].says)
            has(got, rows[i].says);
        else
            has_not(got, "Connection:");
        cr_assert_eq(is_closed(fd), rows[i].closes);
        close(fd);
        scene_close(&s);
    }
}

Test(http_door, a_request_behind_the_last_is_not_read)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    say(&s, fd,
        "POST /v1/claims/s/k" HOST "Connection: close\r\n\r\n"
        "POST /v1/claims/s/l" HOST "\r\n");
    const char *got = hear(fd);
    starts(got, "HTTP/1.1 201 ");
    has(got, "\r\nConnection: close\r\n");
    cr_assert_eq(faulty_count(s.store, VERB_CLAIM), 1);
    cr_assert(is_closed(fd));
    close(fd);
    scene_close(&s);
}

Test(http_door, one_after_the_other)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    int owner = dial(&s), fd = dial(&s);
    claim(&s, owner, token);
    say(&s, fd,
        "POST /v1/claims/s/k" HOST "Prefer: wait=60\r\n\r\n"
        "POST /v1/claims/s/behind" HOST "\r\nGET /livez" HOST "\r\n");
    hears(fd, "");
    starts(asked(&s, "GET /v1/claims/s/behind" HOST "\r\n"), "HTTP/1.1 404 ");
    publish(&s, owner, token, "v");
    hears(owner, OK_HEAD);
    go(&s);
    const char *got = hear(fd);
    static const char *const order[] = { OK_HEAD,         "\"outcome\":\"cached\"",
                                         "HTTP/1.1 201 ", "\"outcome\":\"claimed\"",
                                         OK_HEAD,         "{\"status\":\"ok\"}" };
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        got = strstr(got, order[i]);
        cr_assert(got, "H1: %s", order[i]);
        got++;
    }
    close(owner);
    close(fd);
    scene_close(&s);
}

Test(http_door, a_long_pipeline_is_answered_without_memory_for_all_of_it)
{
    enum { COUNT = 1500 };
    static const char one[] = "GET /openapi.json" HOST "\r\n";
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    size_t sent = 0, all = COUNT * (sizeof one - 1), answers = 0;
    for (int round = 0; answers < COUNT && round < 100000; round++) {
        size_t at = sent % (sizeof one - 1);
        ssize_t n = sent < all ? write(fd, one + at, sizeof one - 1 - at) : 0;
        if (n > 0) sent += (size_t)n;
        if (round % 50 != 0 && sent < all) continue;
        go(&s);
        cr_assert_leq(s.conns.stats[DOOR_HTTP].open, 1);
        for (const char *got; *(got = hear(fd));)
            for (; (got = strstr(got, OK_HEAD)); got++) answers++;
    }
    cr_assert_eq(answers, COUNT);
    close(fd);
    scene_close(&s);
}

Test(http_door, whether_to_go_on_is_said)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
#define EXPECTING                                                                              \
    HOST "Expect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
    say(&s, fd, "POST /v1/claims/s/k" EXPECTING);
    cr_assert_str_eq(hear(fd), "HTTP/1.1 100 Continue\r\n\r\n");
    say(&s, fd, "{}");
    hears(fd, "HTTP/1.1 201 ");
    say(&s, fd, "POST /v1/claims/s/l" EXPECTING "{}");
    hears(fd, "HTTP/1.1 201 ");
    say(&s, fd, "POST /nothing" EXPECTING);
    const char *got = hear(fd);
    starts(got, "HTTP/1.1 404 ");
    has(got, "\r\nConnection: close\r\n");
    cr_assert(is_closed(fd));
    close(fd);
    scene_close(&s);
}

Test(http_door, head_says_everything_and_shows_nothing)
{
    struct scene s = { 0 };
    scene_open(&s);
    make_done(&s);
    char length[64];
    const char *got = asked(&s, "GET /v1/claims/s/k" HOST "\r\n");
    snprintf(length, sizeof length, "\r\nContent-Length: %zu\r\n",
             strlen(strstr(got, "\r\n\r\n") + 4));
    has(got, length);
    got = asked(&s, "HEAD /v1/claims/s/k" HOST "\r\n");
    starts(got, OK_HEAD);
    has(got, length);
    cr_assert_str_eq(strstr(got, "\r\n\r\n"), "\r\n\r\n");
    got = asked(&s, "HEAD /v1/claims/s/none" HOST "\r\n");
    starts(got, "HTTP/1.1 404 ");
    cr_assert_str_eq(strstr(got, "\r\n\r\n"), "\r\n\r\n");
    scene_close(&s);
}

Test(http_door, options_say_what_is_allowed)
{
    struct scene s = { 0 };
    scene_open(&s);
    const char *got = asked(&s, "OPTIONS /v1/claims/s/k" HOST "\r\n");
    starts(got, "HTTP/1.1 204 ");
    has(got, "\r\nAllow: GET, HEAD, POST, PUT, DELETE, OPTIONS\r\n");
    has_not(got, "Content-Length");
    has(asked(&s, "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"), "\r\nAllow: GET, HEAD, POST, PUT");
    starts(asked(&s, "OPTIONS /nothing" HOST "\r\n"), "HTTP/1.1 404 ");
    has(asked(&s, "PUT /livez" HOST "\r\n"), "\r\nAllow: GET, HEAD, OPTIONS\r\n");
    scene_close(&s);
}

Test(http_door, ids_and_traces_come_back)
{
    static const char trace[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    struct scene s = { 0 };
    scene_open(&s);
    char text[256];
    snprintf(text, sizeof text,
             "GET /livez" HOST "X-Request-Id: a-17\r\ntraceparent: %s\r\n\r\n", trace);
    const char *got = asked(&s, text);
    has(got, "\r\nX-Request-Id: a-17\r\n");
    snprintf(text, sizeof text, "\r\ntraceparent: %s\r\n", trace);
    has(got, text);
    got = asked(&s, "GET /livez" HOST "X-Request-Id: a b\r\ntraceparent: 00-1\r\n\r\n");
    has(got, "\r\nX-Request-Id: ");
    has_not(got, "a b");
    has_not(got, "traceparent");
    scene_close(&s);
}

/* ---- those who leave ---- */

Test(http_door, who_hangs_up_waits_no_more)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    int owner = dial(&s), fd = dial(&s);
    claim(&s, owner, token);
    say(&s, fd, "POST /v1/claims/s/k" HOST "Prefer: wait=60\r\n\r\n");
    cr_assert_eq(engine_stats(s.engine).waiters, 1);
    hang_up(&s, fd);
    cr_assert_eq(engine_stats(s.engine).waiters, 0);
    cr_assert_eq(s.conns.count, 1);
    close(owner);
    scene_close(&s);
}

Test(http_door, who_is_reset_waits_no_more)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    int owner = dial(&s), fd = dial(&s);
    claim(&s, owner, token);
    say(&s, fd, "POST /v1/claims/s/k" HOST "Prefer: wait=60\r\n\r\nGET /livez" HOST "\r\n");
    cr_assert_eq(engine_stats(s.engine).waiters, 1);
    list_each (&s.conns.open, at) {
        struct conn *c = container_of(at, struct conn, link);
        if (c->owed) conn_close(c, CLOSE_BROKEN);
    }
    go(&s);
    cr_assert_eq(engine_stats(s.engine).waiters, 0);
    close(owner);
    close(fd);
    scene_close(&s);
}

Test(http_door, a_grant_that_nobody_hears_is_given_back)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    faulty_set(s.store, VERB_CLAIM, FAULT_HOLD, 1);
    say(&s, fd, "POST /v1/claims/s/k" HOST "\r\n");
    cr_assert_eq(faulty_held(s.store), 1);
    hang_up(&s, fd);
    faulty_let_go(s.store);
    go(&s);
    starts(asked(&s, "GET /v1/claims/s/k" HOST "\r\n"), "HTTP/1.1 404 ");
    scene_close(&s);
}

Test(http_door, a_lost_answer_is_found_again_by_its_idempotency_key)
{
#define WITH_KEY(n) "POST /v1/claims/s/k" HOST "Idempotency-Key: " n "\r\n\r\n"
    struct scene s = { 0 };
    scene_open(&s);
    char first[33], again[33];
    int fd = dial(&s);
    faulty_set(s.store, VERB_CLAIM, FAULT_HOLD, 1);
    say(&s, fd, WITH_KEY("one"));
    hang_up(&s, fd);
    faulty_let_go(s.store);
    go(&s);
    starts(asked(&s, "GET /v1/claims/s/k" HOST "\r\n"), "HTTP/1.1 409 ");
    take_token(asked(&s, WITH_KEY("one")), first);
    take_token(asked(&s, WITH_KEY("one")), again);
    cr_assert_str_eq(first, again);
    fd = dial(&s);
    say(&s, fd, WITH_KEY("two"));
    hears(fd, "");
    hang_up(&s, fd);
    scene_close(&s);
}

Test(http_door, who_only_stops_sending_is_answered_but_does_not_wait)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    int owner = dial(&s), fd = dial(&s), late = dial(&s);
    claim(&s, owner, token);
    say(&s, fd, "POST /v1/claims/s/k" HOST "Prefer: wait=60\r\n\r\nGET /livez" HOST "\r\n");
    shutdown(fd, SHUT_WR);
    go(&s);
    const char *got = hear(fd);
    starts(got, "HTTP/1.1 503 ");
    has(got, "{\"status\":\"ok\"}");
    cr_assert(is_closed(fd));
    publish(&s, late, token, "late");
    shutdown(late, SHUT_WR);
    go(&s);
    hears(late, OK_HEAD);
    close(owner);
    close(fd);
    close(late);
    scene_close(&s);
}

Test(http_door, a_publish_is_carried_out_although_nobody_hears_of_it)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    int fd = dial(&s);
    claim(&s, fd, token);
    faulty_set(s.store, VERB_PUBLISH, FAULT_HOLD, 1);
    publish(&s, fd, token, "v");
    conns_close(&s.conns, CLOSE_BROKEN);
    go(&s);
    faulty_let_go(s.store);
    go(&s);
    has(asked(&s, "GET /v1/claims/s/k" HOST "\r\n"), "\"value\":\"v\"");
    close(fd);
    scene_close(&s);
}

/* ---- errors and the end ---- */

Test(http_door, errors_say_what_may_have_happened)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    faulty_set(s.store, VERB_CLAIM, FAULT_REFUSE, 1);
    post(&s, fd, "/v1/claims/s/k", "{\"wait_ms\":0}");
    const char *got = hear(fd);
    starts(got, "HTTP/1.1 503 ");
    has(got, "\r\nRetry-After: 1\r\n");
    has(got, "\"code\":\"unavailable\",\"retryable\":true");
    faulty_set(s.store, VERB_FORGET, FAULT_LOSE_ANSWER, FAULTY_ALWAYS);
    post(&s, fd, "/v1/claims/s/k/forget", "{}");
    pass_ms(&s, 10000);
    got = hear(fd);
    starts(got, "HTTP/1.1 504 ");
    has(got, "\"code\":\"ambiguous\",\"retryable\":true");
    close(fd);
    scene_close(&s);
}

Test(http_door, who_waits_when_the_daemon_stops_is_sent_elsewhere)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    int owner = dial(&s), fd = dial(&s);
    claim(&s, owner, token);
    say(&s, fd, "POST /v1/claims/s/k" HOST "Prefer: wait=60\r\n\r\n");
    conns_end(&s.conns, CLOSE_SHUTDOWN);
    go(&s);
    cr_assert(is_closed(owner));
    hears(fd, "");
    conns_cancel(&s.conns);
    go(&s);
    const char *got = hear(fd);
    starts(got, "HTTP/1.1 503 ");
    has(got, "\r\nConnection: close\r\n");
    has(got, "\"retryable\":true");
    cr_assert_eq(engine_stats(s.engine).waiters, 0);
    close(owner);
    close(fd);
    scene_close(&s);
}

Test(http_door, ready_is_who_can_decide)
{
    struct scene s = { 0 };
    scene_open(&s);
    has(asked(&s, "GET /readyz" HOST "\r\n"), "{\"status\":\"ready\",\"degraded\":false,");
    faulty_set(s.store, VERB_PING, FAULT_REFUSE, 1);
    const char *got = asked(&s, "GET /readyz" HOST "\r\n");
    starts(got, "HTTP/1.1 503 ");
    has(got, "\"checks\":[{\"plane\":\"ledger\",\"name\":\"reached\",\"level\":\"fail\",");
    faulty_set(s.store, VERB_PING, FAULT_HOLD, 1);
    int fd = dial(&s);
    say(&s, fd, "GET /readyz" HOST "\r\n");
    hears(fd, "");
    pass_ms(&s, 2000);
    got = hear(fd);
    starts(got, "HTTP/1.1 503 ");
    has(got, "no answer in two seconds");
    faulty_let_go(s.store);
    close(fd);
    scene_close(&s);
}
