/* http_mutations_test.c - the replay cache over HTTP: what each outcome looks like, and what becomes of
 * a mutation whose caller hangs up. */
#include "daemon/http_scene_test.h"

#define WHO "\"user_id\":\"u\",\"request_id\":\"r\",\"method\":\"Use\""
#define CREATED "HTTP/1.1 201 Created\r\n"
#define CONFLICT "HTTP/1.1 409 Conflict\r\n"

static const char *step(struct scene *s, const char *path, const char *body)
{
    char target[64];
    int fd = dial(s);
    snprintf(target, sizeof target, "/v1/mutations/%s", path);
    post(s, fd, target, body);
    const char *got = hear(fd);
    hang_up(s, fd);
    return got;
}

static const char *settle(struct scene *s, const char *path, const char *token,
                          const char *more)
{
    char body[256];
    snprintf(body, sizeof body, "{" WHO ",\"token\":\"%s\"%s}", token, more);
    return step(s, path, body);
}

static void begin(struct scene *s, char token[33])
{
    const char *got = step(s, "begin", "{" WHO ",\"lease_ms\":7000}");
    starts(got, CREATED);
    take_token(got, token);
}

Test(http_mutations, from_begun_to_cached)
{
    struct scene s = { 0 };
    char token[33];
    scene_open(&s);
    begin(&s, token);
    const char *got = step(&s, "begin", "{" WHO "}");
    starts(got, CONFLICT);
    has(got, "\r\nRetry-After: 1\r\n");
    has(got, "\"code\":\"in_progress\",\"retryable\":true,\"outcome\":\"in_progress\","
             "\"lease_left_ms\":7000,\"degraded\":false,\"waited_ms\":0}\n");
    got = settle(&s, "complete", token, ",\"response\":\"{}\",\"epoch\":\"e1\"");
    starts(got, OK_HEAD);
    has(got, "{\"outcome\":\"ok\",\"degraded\":false,\"waited_ms\":0}\n");
    got = step(&s, "begin", "{" WHO ",\"epoch\":\"e1\"}");
    starts(got, OK_HEAD);
    has(got, "\r\nOnce-Replayed: true\r\n");
    has(got, "{\"outcome\":\"cached\",\"response\":\"{}\",\"epoch\":\"e1\",");
    got = step(&s, "begin", "{\"user_id\":\"u\",\"request_id\":\"r\",\"method\":\"Sell\"}");
    starts(got, "HTTP/1.1 422 ");
    has_not(got, "\"response\"");
    starts(step(&s, "begin", "{" WHO ",\"epoch\":\"e2\"}"), CREATED);
    scene_close(&s);
}

Test(http_mutations, keep_a_response_for_as_long_as_they_are_told)
{
    struct scene s = { 0 };
    char token[33];
    scene_open(&s);
    begin(&s, token);
    starts(settle(&s, "complete", token, ",\"response\":\"{}\",\"retain_ms\":5000"), OK_HEAD);
    world_advance(&s.world, 4999);
    starts(step(&s, "begin", "{" WHO "}"), OK_HEAD);
    world_advance(&s.world, 1);
    starts(step(&s, "begin", "{" WHO "}"), CREATED);
    scene_close(&s);
}

Test(http_mutations, what_is_not_text_is_base64)
{
    struct scene s = { 0 };
    char token[33];
    scene_open(&s);
    begin(&s, token);
    settle(&s, "complete", token, ",\"response\":{\"base64\":\"/w==\"}");
    has(step(&s, "begin", "{" WHO "}"), "\"response\":{\"base64\":\"/w==\"}");
    scene_close(&s);
}

Test(http_mutations, a_response_that_is_not_kept)
{
    struct scene s = { 0 };
    char token[33];
    scene_open(&s);
    begin(&s, token);
    starts(settle(&s, "complete", token, ",\"response\":null"), OK_HEAD);
    const char *got = step(&s, "begin", "{" WHO "}");
    starts(got, CONFLICT);
    has(got, "\"code\":\"already_done\",\"retryable\":false");
    has_not(got, "Retry-After");
    scene_close(&s);
}

Test(http_mutations, aborted_is_begun_again)
{
    struct scene s = { 0 };
    char token[33], other[33];
    scene_open(&s);
    begin(&s, token);
    starts(settle(&s, "abort", token, ""), OK_HEAD);
    begin(&s, other);
    starts(settle(&s, "abort", token, ""), CONFLICT);
    starts(settle(&s, "complete", token, ",\"response\":\"late\""), CONFLICT);
    starts(settle(&s, "complete", other, ",\"response\":\"x\""), OK_HEAD);
    scene_close(&s);
}

Test(http_mutations, without_coord_there_is_a_token_that_is_empty)
{
    struct scene s = { 0 };
    scene_open(&s);
    faulty_set(s.store, VERB_CLAIM, FAULT_REFUSE, 1);
    const char *got = step(&s, "begin", "{" WHO "}");
    starts(got, CREATED);
    has(got, "\"token\":\"\",\"lease_left_ms\":0,\"degraded\":true");
    got = settle(&s, "complete", "", ",\"response\":\"x\"");
    starts(got, OK_HEAD);
    has(got, "\"degraded\":true");
    starts(settle(&s, "abort", "", ""), OK_HEAD);
    scene_close(&s);
}

Test(http_mutations, waits_if_it_is_told_to)
{
    struct scene s = { 0 };
    char token[33];
    scene_open(&s);
    begin(&s, token);
    int fd = dial(&s);
    post(&s, fd, "/v1/mutations/begin", "{" WHO ",\"wait_ms\":1000}");
    hears(fd, "");
    settle(&s, "complete", token, ",\"response\":\"x\"");
    hears(fd, OK_HEAD);
    hang_up(&s, fd);
    scene_close(&s);
}

/* ---- who hangs up ---- */

Test(http_mutations, begun_for_nobody_is_given_back)
{
    struct scene s = { 0 };
    char token[33];
    scene_open(&s);
    faulty_set(s.store, VERB_CLAIM, FAULT_HOLD, 1);
    int fd = dial(&s);
    post(&s, fd, "/v1/mutations/begin", "{" WHO ",\"wait_ms\":1000}");
    hang_up(&s, fd);
    faulty_let_go(s.store);
    go(&s);
    begin(&s, token);
    scene_close(&s);
}

Test(http_mutations, completed_counts_although_nobody_hears_of_it)
{
    struct scene s = { 0 };
    char token[33], body[200];
    scene_open(&s);
    begin(&s, token);
    faulty_set(s.store, VERB_PUBLISH, FAULT_HOLD, 1);
    int fd = dial(&s);
    snprintf(body, sizeof body, "{" WHO ",\"token\":\"%s\",\"response\":\"x\"}", token);
    post(&s, fd, "/v1/mutations/complete", body);
    hang_up(&s, fd);
    faulty_let_go(s.store);
    go(&s);
    starts(step(&s, "begin", "{" WHO "}"), OK_HEAD);
    scene_close(&s);
}

/* ---- bad input ---- */

Test(http_mutations, what_is_wrong_is_said)
{
    static const struct {
        const char *path, *body, *status, *text;
    } rows[] = {
        { "begin", "{}", "400", "user_id is missing" },
        { "begin", "{\"user_id\":\"u\"}", "400", "request_id is missing" },
        { "begin", "{\"user_id\":\"\",\"request_id\":\"r\"}", "400", "the user id is empty" },
        { "begin", "{" WHO ",\"lease\":1}", "400", "there is no member" },
        { "begin", "{" WHO ",\"token\":\"\"}", "400", "token wants" },
        { "begin", "{" WHO ",\"response\":\"x\"}", "400", "there is no member" },
        { "complete", "{" WHO ",\"response\":\"x\"}", "400", "token is missing" },
        { "complete", "{" WHO ",\"token\":\"\"}", "400", "response is missing" },
        { "abort", "{" WHO ",\"token\":\"12\"}", "400", "token wants" },
        { "abort", "{" WHO ",\"token\":\"00000000000000000000000000000000\"}", "400",
          "token wants" },
    };
    struct scene s = { 0 };
    scene_open(&s);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *got = step(&s, rows[i].path, rows[i].body);
        cr_assert(strncmp(got + 9, rows[i].status, 3) == 0, "%zu: %s", i, got);
        has(got, rows[i].text);
    }
    cr_assert_eq(faulty_count(s.store, VERB_CLAIM), 0);
    scene_close(&s);
}
