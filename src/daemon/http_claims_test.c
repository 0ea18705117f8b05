/* http_claims_test.c - claims over HTTP: what each outcome looks like, what a body may say,
 * and that a value comes back as it was published. */
#include "daemon/http_scene_test.h"

#define KEY "/v1/claims/s/k"

/* METHOD TARGET, more fields ("" or lines), content; its type is JSON unless a field says so. */
static const char *ask(struct scene *s, const char *line, const char *fields, struct bytes body)
{
    char text[8192];
    bool typed = strstr(fields, "Content-Type") || body.len == 0;
    int n = snprintf(text, sizeof text, "%s" HOST "%s%sContent-Length: %zu\r\n\r\n", line,
                     fields, typed ? "" : "Content-Type: application/json\r\n", body.len);
    memcpy(text + n, body.data ? body.data : (const uint8_t *)"", body.len);
    int fd = dial(s);
    cr_assert_eq(write(fd, text, (size_t)n + body.len), n + (ssize_t)body.len);
    go(s);
    const char *got = hear(fd);
    hang_up(s, fd);
    return got;
}

static const char *json(struct scene *s, const char *line, const char *body)
{
    return ask(s, line, "", bytes_str(body));
}

static void claim_key(struct scene *s, const char *body, char out[33])
{
    const char *got = json(s, "POST " KEY, body), *at = strstr(got, "\"token\":\"");
    starts(got, "HTTP/1.1 201 Created\r\n");
    snprintf(out, 33, "%.32s", at + 9);
}

static const char *publish_json(struct scene *s, const char *token, const char *value)
{
    char body[4096];
    snprintf(body, sizeof body, "{\"token\":\"%s\",\"value\":%s}", token, value);
    return json(s, "PUT " KEY, body);
}

static const char *with_token(struct scene *s, const char *line, const char *token)
{
    char fields[64];
    snprintf(fields, sizeof fields, "Once-Token: %s\r\n", token);
    return ask(s, line, fields, (struct bytes){ 0 });
}

/* ---- outcomes ---- */

Test(http_claims, from_claimed_to_cached)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    const char *got = json(&s, "POST /v1/claims/a%2Fb/k%2F1%20%C3%A9+", "{\"lease_ms\":7000}");
    starts(got, "HTTP/1.1 201 Created\r\n");
    has(got, "\r\nLocation: /v1/claims/a%2Fb/k%2F1%20%C3%A9%2B\r\n");
    has(got, "{\"outcome\":\"claimed\",\"token\":\"");
    has(got, "\"lease_ms\":7000,\"degraded\":false,\"waited_ms\":0}\n");
    claim_key(&s, "", token);
    got = json(&s, "POST " KEY, "{\"wait_ms\":0}");
    starts(got, "HTTP/1.1 409 Conflict\r\n");
    has(got, "\r\nRetry-After: 1\r\n");
    has(got, "\"code\":\"in_progress\",\"retryable\":true,\"outcome\":\"in_progress\","
             "\"lease_left_ms\":30000,\"degraded\":false,\"waited_ms\":0}");
    starts(publish_json(&s, token, "\"x\""), "HTTP/1.1 200 OK\r\n");
    starts(publish_json(&s, token, "\"x\""), "HTTP/1.1 200 OK\r\n");
    starts(publish_json(&s, token, "\"y\""), "HTTP/1.1 409 Conflict\r\n");
    got = json(&s, "POST " KEY, "");
    starts(got, "HTTP/1.1 200 OK\r\n");
    has(got, "\r\nOnce-Replayed: true\r\n");
    has(got, "{\"outcome\":\"cached\",\"value\":\"x\",\"degraded\":false,\"waited_ms\":0}\n");
    scene_close(&s);
}

Test(http_claims, another_fingerprint)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    claim_key(&s, "{\"fingerprint\":{\"base64\":\"/w==\"}}", token);
    const char *got = json(&s, "POST " KEY, "{\"fingerprint\":\"other\"}");
    starts(got, "HTTP/1.1 422 Unprocessable Content\r\n");
    has(got, "\"code\":\"mismatch\",\"retryable\":false");
    scene_close(&s);
}

Test(http_claims, waiting_is_bounded)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    claim_key(&s, "{\"lease_ms\":600000}", token);
    int fd = dial(&s), both = dial(&s);
    say(&s, fd, "POST " KEY HOST "Prefer: respond-async, wait=3\r\n\r\n");
    say(&s, both,
        "POST " KEY HOST "Prefer: wait=3\r\nContent-Type: application/json\r\n"
        "Content-Length: 17\r\n\r\n{\"wait_ms\":60000}");
    pass_ms(&s, 2999);
    hears(fd, "");
    pass_ms(&s, 1);
    const char *got = hear(fd);
    starts(got, "HTTP/1.1 503 Service Unavailable\r\n");
    has(got, "\r\nRetry-After: 1\r\n");
    has(got, "\"code\":\"timed_out\",\"retryable\":true,\"outcome\":\"timed_out\","
             "\"degraded\":false,\"waited_ms\":3000}");
    hears(both, "");
    close(fd);
    close(both);
    scene_close(&s);
}

Test(http_claims, what_was_lost_says_what_is_known)
{
    struct scene s = { 0 };
    scene_open(&s);
    char late[33], token[33], body[128];
    claim_key(&s, "{\"lease_ms\":1000}", late);
    pass_ms(&s, 1000);
    claim_key(&s, "", token);
    snprintf(body, sizeof body, "{\"token\":\"%s\"}", late);
    starts(json(&s, "POST " KEY "/renew", body), "HTTP/1.1 409 Conflict\r\n");
    starts(publish_json(&s, token, "\"mine\""), "HTTP/1.1 200 OK\r\n");
    const char *got = publish_json(&s, late, "\"late\"");
    starts(got, "HTTP/1.1 409 Conflict\r\n");
    has(got, "\"code\":\"lost\",\"retryable\":false,\"outcome\":\"lost\",\"value\":\"mine\"");
    starts(with_token(&s, "DELETE " KEY, late), "HTTP/1.1 409 Conflict\r\n");
    scene_close(&s);
}

Test(http_claims, an_answer_that_is_not_kept)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    claim_key(&s, "", token);
    starts(publish_json(&s, token, "null"), "HTTP/1.1 200 OK\r\n");
    const char *got = json(&s, "POST " KEY, "");
    starts(got, "HTTP/1.1 409 Conflict\r\n");
    has(got, "\"code\":\"already_done\",\"retryable\":false");
    cr_assert(!strstr(got, "Retry-After"));
    scene_close(&s);
}

Test(http_claims, renew_release_forget)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33], body[128];
    claim_key(&s, "{\"lease_ms\":1000}", token);
    snprintf(body, sizeof body, "{\"token\":\"%s\",\"lease_ms\":5000}", token);
    const char *got = json(&s, "POST " KEY "/renew", body);
    starts(got, "HTTP/1.1 200 OK\r\n");
    has(got, "{\"outcome\":\"ok\",\"lease_left_ms\":5000,\"degraded\":false,\"waited_ms\":0}");
    starts(json(&s, "POST " KEY "/forget", ""), "HTTP/1.1 409 Conflict\r\n");
    starts(with_token(&s, "DELETE " KEY, token), "HTTP/1.1 200 OK\r\n");
    starts(json(&s, "GET " KEY, ""), "HTTP/1.1 404 Not Found\r\n");
    claim_key(&s, "", token);
    publish_json(&s, token, "\"x\"");
    starts(json(&s, "POST " KEY "/forget", "{}"), "HTTP/1.1 200 OK\r\n");
    starts(json(&s, "POST " KEY "/forget", ""), "HTTP/1.1 404 Not Found\r\n");
    scene_close(&s);
}

/* ---- everything that is known ---- */

#define META "?meta=true"

Test(http_claims, meta_says_everything_that_is_known)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    const char *got = json(&s, "POST " KEY META, "{\"lease_ms\":1000}");
    starts(got, "HTTP/1.1 201 Created\r\n");
    has(got, "\"lease_ms\":1000,\"lease_left_ms\":1000,\"version\":\"");
    has(got, "\"retain_left_ms\":0,\"mine\":true,\"taken_over\":false,\"changed\":true,");
    pass_ms(&s, 1000);
    got = json(&s, "POST " KEY META, "{\"fingerprint\":\"\",\"retain_ms\":5000}");
    has(got, "\"mine\":true,\"taken_over\":true,\"changed\":true,");
    take_token(got, token);
    got = with_token(&s, "GET " KEY META, token);
    starts(got, "HTTP/1.1 409 Conflict\r\n");
    has(got, "\"lease_left_ms\":30000,\"version\":\"");
    has(got, "\"mine\":true,\"taken_over\":false,\"changed\":false,\"degraded\":false");
    has(json(&s, "GET " KEY META, ""), "\"mine\":false");
    has_not(json(&s, "GET " KEY "?meta=false", ""), "mine");
    starts(publish_json(&s, token, "\"x\""), "HTTP/1.1 200 OK\r\n");
    got = with_token(&s, "GET " KEY META, token);
    has(got, "\"retain_left_ms\":5000,\"mine\":true,");
    has(got, "\"value\":\"x\"");
    scene_close(&s);
}

Test(http_claims, meta_reveals_nothing_to_another_fingerprint)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    claim_key(&s, "{\"fingerprint\":\"a\"}", token);
    const char *got = json(&s, "POST " KEY META, "{\"fingerprint\":\"b\"}");
    starts(got, "HTTP/1.1 422 ");
    has(got, "\"outcome\":\"mismatch\",\"fence\":0,\"lease_left_ms\":0,\"version\":\"0\","
             "\"retain_left_ms\":0,\"mine\":false,\"taken_over\":false,\"changed\":false,"
             "\"degraded\":false,\"waited_ms\":0}");
    scene_close(&s);
}

/* ---- values ---- */

Test(http_claims, a_value_comes_back_as_it_was_published)
{
    static const struct {
        const char *sent, *heard, *raw;
        size_t raw_bytes;
    } rows[] = {
        { "\"\"", "\"\"", "", 0 },
        { "\"{\\\"a\\\": 1}\"", "\"{\\\"a\\\": 1}\"", "{\"a\": 1}", 8 },
        { "\"\\u00e9\\ud83d\\ude00\\n\"", "\"\xc3\xa9\xf0\x9f\x98\x80\\n\"",
          "\xc3\xa9\xf0\x9f\x98\x80\n", 7 },
        { "\"a\\u0000b\"", "\"a\\u0000b\"", "a\0b", 3 },
        { "{\"base64\": \"aGk=\"}", "\"hi\"", "hi", 2 },
        { "{\"base64\": \"\\u002f\\/79\"}", "{\"base64\":\"//79\"}", "\xff\xfe\xfd", 3 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct scene s = { 0 };
        scene_open(&s);
        char token[33], want[128];
        claim_key(&s, "", token);
        starts(publish_json(&s, token, rows[i].sent), "HTTP/1.1 200 OK\r\n");
        snprintf(want, sizeof want, "{\"outcome\":\"cached\",\"value\":%s,\"degraded\"",
                 rows[i].heard);
        has(json(&s, "GET " KEY, ""), want);
        const char *got =
            ask(&s, "GET " KEY, "Accept: application/octet-stream\r\n", (struct bytes){ 0 });
        starts(got, "HTTP/1.1 200 OK\r\n");
        has(got, "\r\nOnce-Replayed: true\r\nOnce-Degraded: false\r\nOnce-Waited-Ms: 0\r\n"
                 "Content-Type: application/octet-stream\r\n");
        cr_assert_eq(memcmp(strstr(got, "\r\n\r\n") + 4, rows[i].raw, rows[i].raw_bytes + 1),
                     0);
        scene_close(&s);
    }
}

Test(http_claims, a_value_as_it_is)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33], line[128];
    claim_key(&s, "", token);
    snprintf(line, sizeof line, "PUT " KEY "?token=%s&retain_ms=1000", token);
    starts(ask(&s, line, "Content-Type: application/octet-stream\r\n", bytes_of("\xff\0\n", 3)),
           "HTTP/1.1 200 OK\r\n");
    has(json(&s, "GET " KEY, ""), "\"value\":{\"base64\":\"/wAK\"}");
    pass_ms(&s, 1000);
    starts(json(&s, "GET " KEY, ""), "HTTP/1.1 404 Not Found\r\n");
    scene_close(&s);
}

/* ---- what a body may say ---- */

Test(http_claims, bodies_that_are_refused_say_why)
{
#define TOKEN "\"token\":\"000102030405060708090a0b0c0d0e0f\""
    static const struct {
        const char *line, *body, *detail;
    } rows[] = {
        { "POST " KEY, "{\"lease\":1}", "there is no member \\\"lease\\\" here" },
        { "POST " KEY, "{\"lease_ms\":1,\"lease_ms\":1}", "the body is not JSON: " },
        { "POST " KEY, "{\"lease_ms\":-1}", "lease_ms wants milliseconds" },
        { "POST " KEY, "{\"lease_ms\":1.0}", "lease_ms wants milliseconds" },
        { "POST " KEY, "{\"lease_ms\":\"1s\"}", "lease_ms wants milliseconds" },
        { "POST " KEY, "{\"wait_ms\":null}", "wait_ms wants milliseconds" },
        { "POST " KEY, "{\"fingerprint\":7}", "fingerprint wants text" },
        { "POST " KEY, "{\"token\":\"ab\"}", "token wants 32 hexadecimal digits" },
        { "POST " KEY, "{\"token\":\"00000000000000000000000000000000\"}",
          "token wants 32 hexadecimal digits that are random" },
        { "POST " KEY "?meta=yes", "", "meta wants true or false" },
        { "POST " KEY "?meta=true&meta=true", "", "meta was given twice" },
        { "GET " KEY "?seen=", "", "seen wants a version" },
        { "GET " KEY "?seen=-1", "", "seen wants a version" },
        { "GET " KEY "?seen=18446744073709551616", "", "seen wants a version" },
        { "GET /v1/claims/s/%0A?seen=1", "", "key" },
        { "GET /v1/claims?meta=true", "", "there is no parameter \\\"meta\\\" here" },
        { "POST " KEY, "[]", "the body is not a JSON object" },
        { "POST " KEY, "{", "the body is not JSON: " },
        { "POST " KEY, "{}{}", "the body is not JSON: " },
        { "POST " KEY "?wait_ms=1", "", "there is no parameter \\\"wait_ms\\\" here" },
        { "POST " KEY "/renew", "", "token is missing" },
        { "POST " KEY "/renew", "{\"token\":\"ab\"}", "token wants 32 hexadecimal digits" },
        { "POST " KEY "/renew", "{\"token\":7}", "token wants 32 hexadecimal digits" },
        { "POST " KEY "/forget", "{\"token\":7}", "there is no member \\\"token\\\" here" },
        { "PUT " KEY, "{" TOKEN "}", "value is missing" },
        { "PUT " KEY, "{\"value\":\"\"}", "token is missing" },
        { "PUT " KEY, "{" TOKEN ",\"value\":{\"a\":1}}", "JSON is sent as text" },
        { "PUT " KEY, "{" TOKEN ",\"value\":[1]}", "JSON is sent as text" },
        { "PUT " KEY, "{" TOKEN ",\"value\":17}", "JSON is sent as text" },
        { "PUT " KEY, "{" TOKEN ",\"value\":{\"base64\":\"a\"}}", "value wants base64" },
        { "PUT " KEY, "{" TOKEN ",\"value\":{\"base64\":\"\",\"x\":1}}",
          "JSON is sent as text" },
    };
    struct scene s = { 0 };
    scene_open(&s);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *got = json(&s, rows[i].line, rows[i].body);
        cr_assert(strncmp(got, "HTTP/1.1 400 ", 13) == 0, "%s: %s", rows[i].body, got);
        has(got, "\"code\":\"invalid\",\"retryable\":false");
        cr_assert(strstr(got, rows[i].detail), "%s: %s", rows[i].body, got);
    }
    for (enum verb v = 0; v < VERBS; v++)
        cr_assert_eq(faulty_count(s.store, v), 0, "C9: %s", verb_info[v].name);
    scene_close(&s);
}

Test(http_claims, limits_are_the_engines)
{
    struct scene s = { 0 };
    scene_open(&s);
    char body[2048], line[1024];
    snprintf(body, sizeof body, "{\"fingerprint\":\"%065d\"}", 0);
    has(json(&s, "POST " KEY, body), "the fingerprint has 65 bytes");
    starts(json(&s, "POST " KEY, "{\"lease_ms\":9223372036854775807}"), "HTTP/1.1 413 ");
    snprintf(line, sizeof line, "POST /v1/claims/s/%0513d", 0);
    starts(json(&s, line, ""), "HTTP/1.1 413 ");
    snprintf(body, sizeof body, "{" TOKEN ",\"value\":\"%01025d\"}", 0);
    has(json(&s, "PUT " KEY, body), "the value has 1025 bytes; at most 1024 are kept");
    scene_close(&s);
}

/* ---- lists ---- */

Test(http_claims, pages)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33], line[2048];
    claim_key(&s, "", token);
    publish_json(&s, token, "\"abc\"");
    json(&s, "POST /v1/claims/s/l", "");
    json(&s, "POST /v1/claims/t/a", "");
    const char *got = json(&s, "GET /v1/claims?scope=s&limit=1", "");
    starts(got, "HTTP/1.1 200 OK\r\n");
    has(got, "{\"claims\":[{\"scope\":\"s\",\"key\":\"k\",\"state\":\"done\",\"fence\":");
    has(got, ",\"retain_left_ms\":86400000,\"value_bytes\":3}],\"cursor\":\"");
    snprintf(line, sizeof line, "GET /v1/claims?scope=s&cursor=%.6s",
             strstr(got, "\"cursor\":\"") + 10);
    got = json(&s, line, "");
    has(got, "\"key\":\"l\",\"state\":\"pending\"");
    has(got, "\"lease_left_ms\":30000}],\"cursor\":null}\n");
    cr_assert(!strstr(got, "\"t\""));
    has(json(&s, "GET /v1/claims", ""), "\"scope\":\"t\"");
    snprintf(line, sizeof line, "GET /v1/claims?scope=t&cursor=%s", "01736b");
    has(json(&s, line, ""), "it is of another scope");
    scene_close(&s);
}

/* ---- who may ask ---- */

static const char *as(struct scene *s, const char *token, const char *line)
{
    char fields[256];
    snprintf(fields, sizeof fields, "Authorization: Bearer %s\r\n", token);
    return ask(s, line, fields, (struct bytes){ 0 });
}

Test(http_claims, who_may_not_learns_nothing)
{
    struct scene s = { 0 };
    struct auth auth = { 0 };
    struct err err = { 0 };
    char path[64], token[TOKEN_TEXT_BYTES + 1];
    scene_open(&s);
    snprintf(path, sizeof path, "%s/tokens", s.dir);
    make_token(path, "mine", BIT(RIGHT_CLAIM) | BIT(RIGHT_PEEK) | BIT(RIGHT_SCAN), INT64_MAX,
               token);
    cr_assert_eq(auth_open(&auth, path, true, clock_wall(), &err), 0, "%s", err.text);
    s.http.auth = &auth;
    const char *got = json(&s, "GET " KEY, "");
    starts(got, "HTTP/1.1 401 Unauthorized\r\n");
    has(got, "\r\nWWW-Authenticate: Bearer");
    starts(as(&s, "once_made_up", "GET /v1/claims/mine/k"), "HTTP/1.1 401 ");
    starts(as(&s, token, "GET /v1/claims/mine/k"), "HTTP/1.1 404 ");
    starts(as(&s, token, "POST /v1/claims/mine/k"), "HTTP/1.1 201 ");
    starts(as(&s, token, "GET /v1/claims/other/k"), "HTTP/1.1 403 ");
    starts(as(&s, token, "POST /v1/claims/mine/k/forget"), "HTTP/1.1 403 ");
    starts(as(&s, token, "GET /v1/claims?scope=mine"), "HTTP/1.1 200 ");
    starts(as(&s, token, "GET /v1/claims?scope=other"), "HTTP/1.1 403 ");
    starts(as(&s, token, "GET /v1/claims"), "HTTP/1.1 403 ");
    starts(json(&s, "GET /livez", ""), "HTTP/1.1 200 ");
    starts(json(&s, "GET /readyz", ""), "HTTP/1.1 200 ");
    cr_assert_eq(faulty_count(s.store, VERB_PEEK), 1);
    s.http.auth = NULL;
    auth_close(&auth);
    unlink(path);
    scene_close(&s);
}
