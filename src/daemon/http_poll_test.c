/* http_poll_test.c - long polls: answered by a change, by the end of their time, or not at all. */
#include "daemon/http_scene_test.h"

#define KEY "/v1/claims/s/k"

/* The version of /v1/claims/s/k, as it is now. */
static void look(struct scene *s, char out[24])
{
    const char *at = strstr(asked(s, "GET " KEY "?meta=true" HOST "\r\n"), "\"version\":\"");
    cr_assert(at);
    snprintf(out, 24, "%.*s", (int)strcspn(at + 11, "\""), at + 11);
}

static void poll_key(struct scene *s, int fd, const char *seen, const char *fields)
{
    char text[512];
    snprintf(text, sizeof text, "GET " KEY "?seen=%s" HOST "%s\r\n", seen, fields);
    say(s, fd, text);
}

/* Somebody is on the key, and somebody else polls. */
struct polled {
    struct scene scene;
    int owner, fd;
    char token[33], version[24];
};

static void polled_open(struct polled *p, const char *fields)
{
    *p = (struct polled){ 0 };
    scene_open(&p->scene);
    p->owner = dial(&p->scene);
    p->fd = dial(&p->scene);
    claim(&p->scene, p->owner, p->token);
    look(&p->scene, p->version);
    poll_key(&p->scene, p->fd, p->version, fields);
    hears(p->fd, "");
}

static void polled_close(struct polled *p)
{
    close(p->owner);
    close(p->fd);
    scene_close(&p->scene);
}

Test(http_poll, a_change_answers_it)
{
    struct polled p;
    polled_open(&p, "Prefer: wait=60\r\n");
    pass_ms(&p.scene, 700);
    hears(p.fd, "");
    publish(&p.scene, p.owner, p.token, "v");
    const char *got = hear(p.fd);
    starts(got, OK_HEAD);
    has(got, "{\"outcome\":\"cached\",\"value\":\"v\",\"degraded\":false,\"waited_ms\":700}");
    say(&p.scene, p.fd, "GET /livez" HOST "\r\n");
    hears(p.fd, OK_HEAD);
    polled_close(&p);
}

Test(http_poll, the_value_as_it_is)
{
    struct polled p;
    polled_open(&p, "Accept: application/octet-stream\r\n");
    publish(&p.scene, p.owner, p.token, "v");
    const char *got = hear(p.fd);
    has(got, "Once-Waited-Ms: 0\r\n");
    has(got, "\r\n\r\nv");
    polled_close(&p);
}

Test(http_poll, when_its_time_is_over_it_says_what_is)
{
    struct polled p;
    polled_open(&p, "Prefer: wait=3\r\n");
    pass_ms(&p.scene, 2999);
    hears(p.fd, "");
    pass_ms(&p.scene, 1);
    const char *got = hear(p.fd);
    starts(got, "HTTP/1.1 409 Conflict\r\n");
    has(got, "\"outcome\":\"in_progress\",\"lease_left_ms\":597000,\"degraded\":false,"
             "\"waited_ms\":3000}");
    polled_close(&p);
}

/* Its time is for waiting: the look that follows has as much as it needs. */
Test(http_poll, a_change_in_time_is_told_even_if_looking_takes_longer)
{
    struct polled p;
    polled_open(&p, "Prefer: wait=1\r\n");
    faulty_set(p.scene.store, VERB_PEEK, FAULT_HOLD, 1);
    publish(&p.scene, p.owner, p.token, "v");
    pass_ms(&p.scene, 2000);
    hears(p.fd, "");
    faulty_let_go(p.scene.store);
    go(&p.scene);
    hears(p.fd, OK_HEAD);
    polled_close(&p);
}

Test(http_poll, five_seconds_unless_told_otherwise)
{
    struct polled p;
    polled_open(&p, "");
    pass_ms(&p.scene, WAIT_MS_DEFAULT - 1);
    hears(p.fd, "");
    pass_ms(&p.scene, 1);
    hears(p.fd, "HTTP/1.1 409 ");
    poll_key(&p.scene, p.fd, p.version, "Prefer: wait=0\r\n");
    hears(p.fd, "HTTP/1.1 409 ");
    polled_close(&p);
}

Test(http_poll, of_what_is_different_already_it_does_not_wait)
{
    struct polled p;
    polled_open(&p, "");
    publish(&p.scene, p.owner, p.token, "v");
    hears(p.fd, OK_HEAD);
    poll_key(&p.scene, p.fd, p.version, "");
    hears(p.fd, OK_HEAD);
    poll_key(&p.scene, p.fd, "0", "");
    hears(p.fd, OK_HEAD);
    polled_close(&p);
}

Test(http_poll, zero_waits_for_a_record)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    int fd = dial(&s), owner = dial(&s);
    poll_key(&s, fd, "0", "");
    hears(fd, "");
    claim(&s, owner, token);
    hears(fd, "HTTP/1.1 409 ");
    close(fd);
    close(owner);
    scene_close(&s);
}

Test(http_poll, who_hangs_up_waits_no_more)
{
    struct polled p;
    polled_open(&p, "Prefer: wait=60\r\n");
    uint64_t canceled = engine_stats(p.scene.engine).canceled;
    close(p.fd);
    go(&p.scene);
    cr_assert_eq(engine_stats(p.scene.engine).canceled, canceled + 1);
    size_t peeks = faulty_count(p.scene.store, VERB_PEEK);
    publish(&p.scene, p.owner, p.token, "v");
    cr_assert_eq(faulty_count(p.scene.store, VERB_PEEK), peeks);
    p.fd = dial(&p.scene);
    polled_close(&p);
}

Test(http_poll, who_only_stops_sending_is_answered_but_does_not_wait)
{
    struct polled p;
    polled_open(&p, "Prefer: wait=60\r\n");
    shutdown(p.fd, SHUT_WR);
    go(&p.scene);
    hears(p.fd, "HTTP/1.1 409 ");
    polled_close(&p);
}

Test(http_poll, a_daemon_that_stops_says_so)
{
    struct polled p;
    polled_open(&p, "Prefer: wait=60\r\n");
    conns_cancel(&p.scene.conns);
    go(&p.scene);
    const char *got = hear(p.fd);
    starts(got, "HTTP/1.1 503 ");
    has(got, "\"code\":\"unavailable\"");
    polled_close(&p);
}

Test(http_poll, a_plane_that_is_gone_is_told)
{
    struct scene s = { 0 };
    scene_open(&s);
    faulty_set(s.store, VERB_WATCH, FAULT_REFUSE, 1);
    starts(asked(&s, "GET " KEY "?seen=1" HOST "\r\n"), "HTTP/1.1 503 ");
    faulty_set(s.store, VERB_PEEK, FAULT_REFUSE, 1);
    starts(asked(&s, "GET " KEY "?seen=1" HOST "\r\n"), "HTTP/1.1 503 ");
    scene_close(&s);
}

/* The answer may be one that it was never allowed to see. */
Test(http_poll, whose_token_has_expired_meanwhile_is_told_nothing)
{
    struct scene s = { 0 };
    struct auth auth = { 0 };
    struct err err = { 0 };
    char path[64], fields[256], token[TOKEN_TEXT_BYTES + 1];
    scene_open(&s);
    snprintf(path, sizeof path, "%s/tokens", s.dir);
    make_token(path, "s", BIT(RIGHT_PEEK), s.world.mono_ms + 2000, token);
    cr_assert_eq(auth_open(&auth, path, true, s.conns.clock, &err), 0, "%s", err.text);
    s.http.auth = &auth;
    snprintf(fields, sizeof fields, "Prefer: wait=1\r\nAuthorization: Bearer %s\r\n", token);
    int fd = dial(&s);
    poll_key(&s, fd, "0", fields);
    pass_ms(&s, 1000);
    hears(fd, "HTTP/1.1 404 ");
    poll_key(&s, fd, "0", fields);
    pass_ms(&s, 1000);
    size_t peeks = faulty_count(s.store, VERB_PEEK);
    hears(fd, "HTTP/1.1 403 ");
    cr_assert_eq(peeks, 1);
    s.http.auth = NULL;
    auth_close(&auth);
    unlink(path);
    close(fd);
    scene_close(&s);
}
