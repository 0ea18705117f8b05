/* http_door_test.c - the HTTP door on an engine whose store fails as it is told to: in which
 * order it answers, how long connections live, and what becomes of those who hang up. */
#include "base/text.h"
#include "daemon/http_scene_test.h"

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

Test(http_door, a_lost_answer_is_found_again_by_a_token_of_its_own)
{
#define OWN "000102030405060708090a0b0c0d0e0f"
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    int fd = dial(&s);
    faulty_set(s.store, VERB_CLAIM, FAULT_HOLD, 1);
    post(&s, fd, "/v1/claims/s/k", "{\"token\":\"" OWN "\"}");
    hang_up(&s, fd);
    faulty_let_go(s.store);
    go(&s);
    fd = dial(&s);
    post(&s, fd, "/v1/claims/s/k", "{\"token\":\"" OWN "\",\"wait_ms\":0}");
    take_token(hear(fd), token);
    cr_assert_str_eq(token, OWN);
    post(&s, fd, "/v1/claims/s/k", "{\"wait_ms\":0}");
    hears(fd, "HTTP/1.1 409 ");
    say(&s, fd,
        "POST /v1/claims/s/l" HOST "Idempotency-Key: one\r\nContent-Type: application/json\r\n"
        "Content-Length: 44\r\n\r\n{\"token\":\"" OWN "\"}");
    has(hear(fd), "token and Idempotency-Key exclude each other");
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

Test(http_door, what_is_bound_elsewhere_may_be_published_here)
{
    struct scene s = { 0 };
    scene_open(&s);
    struct key key = key_of("s", "k");
    struct token bits;
    struct list mine;
    char token[33];
    int fd = dial(&s);
    claim(&s, fd, token);
    list_init(&mine);
    cr_assert(hex_decode(bytes_str(token), bits.bytes, sizeof bits.bytes));
    bound_hold(bound_new(&s.bounds, &key), &bits, &mine);
    publish(&s, fd, token, "v");
    hears(fd, OK_HEAD);
    cr_assert_eq(s.bounds.by_token.count, 0);
    cr_assert(list_empty(&mine));
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
