/* http_scene_test.h - what tests of the HTTP door share: requests as text, and what is in
 * answers. */
#ifndef DAEMON_HTTP_SCENE_TEST_H
#define DAEMON_HTTP_SCENE_TEST_H

#include "daemon/scene_test.h"
#include "daemon/tokens_file.h"

#define OK_HEAD "HTTP/1.1 200 OK\r\n"
#define HOST " HTTP/1.1\r\nHost: h\r\n"

static inline void scene_open(struct scene *s)
{
    scene_open_door(s, &http_door);
}

static inline void starts(const char *got, const char *start)
{
    cr_assert(strncmp(got, start, strlen(start)) == 0, "\"%s\" is not in front of \"%s\"",
              start, got);
}

static inline void has(const char *got, const char *part)
{
    cr_assert(strstr(got, part), "\"%s\" is not in \"%s\"", part, got);
}

static inline void has_not(const char *got, const char *part)
{
    cr_assert(!strstr(got, part), "\"%s\" is in \"%s\"", part, got);
}

static inline bool is_closed(int fd)
{
    char byte;
    return read(fd, &byte, 1) == 0;
}

/* A request without content, by a connection of its own; its answer. */
static inline const char *asked(struct scene *s, const char *text)
{
    int fd = dial(s);
    say(s, fd, text);
    const char *got = hear(fd);
    hang_up(s, fd);
    return got;
}

static inline void post(struct scene *s, int fd, const char *path, const char *json)
{
    char text[4096];
    snprintf(text, sizeof text,
             "POST %s" HOST "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             path, strlen(json), json);
    say(s, fd, text);
}

static inline void take_token(const char *answer, char out[33])
{
    const char *at = strstr(answer, "\"token\":\"");
    cr_assert(at, "%s", answer);
    snprintf(out, 33, "%.32s", at + 9);
}

/* Into the file of tokens. */
static inline void make_token(const char *path, const char *scopes, unsigned rights,
                              int64_t expires_ms, char out[TOKEN_TEXT_BYTES + 1])
{
    struct rng_system rng;
    struct tokens_change c;
    struct err err = { 0 };
    struct token_wish wish = { .name = bytes_str("t"),
                               .scopes = bytes_str(scopes),
                               .rights = rights,
                               .expires_ms = expires_ms };
    rng_system_init(&rng);
    cr_assert_eq(tokens_change_begin(&c, path, &err), 0, "%s", err.text);
    cr_assert_eq(tokens_create(&c.tokens, &wish, &rng.base, out, &err), 0, "%s", err.text);
    cr_assert_eq(tokens_change_save(&c, &err), 0, "%s", err.text);
    tokens_change_end(&c);
}

/* Claims /v1/claims/s/k and leaves its token in `out`. */
static inline void claim(struct scene *s, int fd, char out[33])
{
    post(s, fd, "/v1/claims/s/k", "{\"lease_ms\":600000}");
    const char *got = hear(fd);
    starts(got, "HTTP/1.1 201 Created\r\n");
    take_token(got, out);
}

static inline void publish(struct scene *s, int fd, const char *token, const char *value)
{
    char text[4096];
    snprintf(text, sizeof text,
             "PUT /v1/claims/s/k" HOST "Content-Type: application/octet-stream\r\n"
             "Once-Token: %s\r\nContent-Length: %zu\r\n\r\n%s",
             token, strlen(value), value);
    say(s, fd, text);
}

/* /v1/claims/s/k is done, with the value "v". */
static inline void make_done(struct scene *s)
{
    char token[33];
    int fd = dial(s);
    claim(s, fd, token);
    publish(s, fd, token, "v");
    hears(fd, OK_HEAD);
    hang_up(s, fd);
}

#endif
