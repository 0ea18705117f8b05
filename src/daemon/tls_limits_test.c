/* tls_limits_test.c - what is not TLS or takes too long, and who does not listen. */
#include "daemon/tls_scene_test.h"

/* ---- what is not TLS, or not as it should be ---- */

static void is_refused(struct scene *s, const void *data, size_t len)
{
    uint64_t before = closed_for(s, CLOSE_TLS);
    int fd = dial(s);
    cr_assert_eq(write(fd, data, len), (ssize_t)len);
    go(s);
    shutdown(fd, SHUT_WR);
    go(s);
    cr_assert_eq(closed_for(s, CLOSE_TLS), before + 1);
    cr_assert_eq(s->shown, 0);
    close(fd);
    go(s);
}

Test(tls, plain_text_and_garbage_are_refused)
{
    struct scene s;
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    static const char resp[] = "*1\r\n$4\r\nPING\r\n";
    uint8_t garbage[64];
    scene_open(&s);
    is_refused(&s, http, sizeof http - 1);
    is_refused(&s, resp, sizeof resp - 1);
    memset(garbage, 0xff, sizeof garbage);
    is_refused(&s, garbage, sizeof garbage);
    scene_close(&s);
}

Test(tls, garbage_after_the_handshake_ends_it)
{
    struct scene s;
    struct client c;
    scene_open(&s);
    client_meet(&c, &s, TLS1_3_VERSION);
    cr_assert_eq(write(c.fd, "\x17\x03\x03\x00\x20 this was not sealed by anybody!", 37), 37);
    go(&s);
    cr_assert_eq(client_ends_with(&c), SSL_ERROR_SSL, "an alert");
    cr_assert_eq(s.shown, 0);
    client_close(&c);
    cr_assert_eq(closed_for(&s, CLOSE_TLS), 1);
    scene_close(&s);
}

Test(tls, older_than_1_2_is_refused)
{
    struct scene s;
    struct client c;
    scene_open(&s);
    client_open(&c, &s, TLS1_1_VERSION);
    cr_assert(!client_shakes(&c));
    client_close(&c);
    cr_assert_eq(closed_for(&s, CLOSE_TLS), 1);
    scene_close(&s);
}

Test(tls, is_not_renegotiated)
{
    struct scene s;
    struct client c;
    scene_open(&s);
    client_meet(&c, &s, TLS1_2_VERSION);
    cr_assert_eq(SSL_renegotiate(c.ssl), 1);
    cr_assert(!client_shakes(&c));
    cr_assert(c.over);
    client_close(&c);
    cr_assert_eq(closed_for(&s, CLOSE_TLS), 1);
    scene_close(&s);
}

Test(tls, new_keys_as_often_as_the_peer_likes_cost_nothing)
{
    struct scene s;
    struct client c;
    scene_open(&s);
    client_meet(&c, &s, TLS1_3_VERSION);
    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(SSL_key_update(c.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        cr_assert_eq(SSL_do_handshake(c.ssl), 1);
    }
    client_say(&c, "e");
    client_hears(&c, 'e', 1);
    cr_assert_null(tls_out(s.last->tls)->data);
    client_close(&c);
    scene_close(&s);
}

/* ---- time and back-pressure ---- */

Test(tls, half_a_handshake_does_not_wait_for_ever)
{
    struct scene s;
    scene_open(&s);
    int silent = dial(&s);
    int half = dial(&s);
    cr_assert_eq(write(half, "\x16\x03\x01", 3), 3);
    go(&s);
    pass_ms(&s, 9000);
    cr_assert_eq(s.conns.count, 2);
    pass_ms(&s, 1001);
    cr_assert_eq(s.conns.count, 0, "K6");
    cr_assert_eq(closed_for(&s, CLOSE_TLS), 2);
    close(silent);
    close(half);
    scene_close(&s);
}

Test(tls, half_a_record_does_not_wait_for_ever)
{
    for (size_t n = 1; n < 40; n += 2) {
        struct scene s;
        struct client c;
        char *record;
        scene_open(&s);
        client_meet(&c, &s, TLS1_3_VERSION);
        pass_ms(&s, 100000);
        cr_assert(s.last, "idle is fine");
        cr_assert_eq(SSL_write(c.ssl, "0123456789012345678901234567890123456789", 40), 40);
        cr_assert_gt(BIO_get_mem_data(c.out, &record), 40);
        cr_assert_eq(write(c.fd, record, n), (ssize_t)n);
        go(&s);
        pass_ms(&s, 29000);
        cr_assert(s.last);
        pass_ms(&s, 1001);
        cr_assert_null(s.last, "K4: %zu bytes", n);
        cr_assert_eq(closed_for(&s, CLOSE_SLOW_INPUT), 1);
        client_close(&c);
        scene_close(&s);
    }
}

Test(tls, half_a_command_in_a_record_neither)
{
    struct scene s;
    struct client c;
    scene_open(&s);
    client_meet(&c, &s, TLS1_3_VERSION);
    client_say(&c, "m");
    pass_ms(&s, 30001);
    cr_assert_null(s.last, "K4");
    cr_assert_eq(closed_for(&s, CLOSE_SLOW_INPUT), 1);
    client_close(&c);
    scene_close(&s);
}

Test(tls, who_does_not_listen_is_not_shown_more)
{
    struct scene s;
    struct client c;
    scene_open(&s);
    client_meet(&c, &s, TLS1_3_VERSION);
    cr_assert_eq(SSL_write(c.ssl, "bbbbbbbb", 8), 8);
    client_send(&c);
    go(&s);
    cr_assert_lt(s.shown, 8, "K2");
    cr_assert_leq(s.last->sending.len + s.last->out.len, limits.out_bytes_max, "K2");
    pass_ms(&s, 20001);
    pass_ms(&s, 20001);
    cr_assert_null(s.last, "K4");
    cr_assert_eq(closed_for(&s, CLOSE_SLOW_OUTPUT), 1);
    client_close(&c);
    scene_close(&s);
}
