/* http_read_test.c - what the HTTP door reads, however it is cut, and what it refuses:
 * mistakes, what can be read in two ways, what is too long and what is too slow. */
#include "daemon/http_scene_test.h"

/* ---- reading ---- */

Test(http_read, wherever_a_request_is_cut_it_is_the_same)
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

Test(http_read, byte_by_byte)
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
Test(http_read, nothing_is_smuggled)
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
        "GET /li\tvez" HOST "\r\n",
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

Test(http_read, each_mistake_has_its_status)
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

Test(http_read, whatever_is_too_long)
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

Test(http_read, chunks_have_an_end)
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

Test(http_read, who_is_too_slow_is_closed)
{
    static const char *const starts_of[] = {
        "GET /livez HTTP/1.1\r\nHost: ",
        "POST /v1/claims/s/k" HOST "Content-Type: application/json\r\n"
        "Content-Length: 99\r\n\r\n",
    };
    for (size_t i = 0; i < 2; i++) {
        struct scene s = { 0 };
        scene_open(&s);
        int fd = dial(&s);
        say(&s, fd, starts_of[i]);
        for (int byte = 0; byte < 29; byte++) {
            pass_ms(&s, 1000);
            say(&s, fd, "h");
        }
        hears(fd, "");
        pass_ms(&s, 1000);
        cr_assert(is_closed(fd), "one byte a second is not enough");
        cr_assert_eq(s.conns.stats[DOOR_HTTP].closed[CLOSE_SLOW_INPUT], 1);
        close(fd);
        scene_close(&s);
    }
}
