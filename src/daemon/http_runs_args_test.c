/* http_runs_args_test.c - what requests about runs may say, and that one that may not has done nothing
 * (C9). */
#include "daemon/http_runs_args.h"
#include "daemon/http_scene_test.h"

#define ID "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define RUN "/v1/runs/" ID
#define TOKEN "\"token\":\"00112233445566778899aabbccddeeff\""

static const char *ask(struct scene *s, const char *line, const char *fields, const char *body)
{
    static char text[1 << 16];
    snprintf(text, sizeof text, "%s" HOST "%s%sContent-Length: %zu\r\n\r\n%s", line, fields,
             *body ? "Content-Type: application/json\r\n" : "", strlen(body), body);
    int fd = dial(s);
    say(s, fd, text);
    const char *got = hear(fd);
    hang_up(s, fd);
    return got;
}

static int status(const char *answer)
{
    cr_assert(strncmp(answer, "HTTP/1.1 ", 9) == 0, "%s", answer);
    return atoi(answer + 9);
}

/* Nothing is wrong with the request: it is done, or there is no such run. */
static void is_fine(struct scene *s, const char *line, const char *body)
{
    const char *got = ask(s, line, "", body);
    cr_assert(status(got) == 200 || status(got) == 404, "%s %s: %s", line, body, got);
}

static void nothing_happened(struct scene *s)
{
    has(ask(s, "GET /v1/runs", "", ""), "\r\n\r\n{\"runs\":[],\"cursor\":null}\n");
}

static void is_refused(struct scene *s, const char *line, const char *body, const char *detail)
{
    const char *got = ask(s, line, "", body);
    cr_assert(strncmp(got, "HTTP/1.1 400 ", 13) == 0, "%s %s: %s", line, body, got);
    cr_assert(strstr(got, detail), "%s %s: \"%s\" is not in %s", line, body, detail, got);
}

Test(http_runs_args, what_a_trigger_may_say)
{
    static const char *const fine[] = {
        "",
        "{}",
        "{\"payload\":null}",
        "{\"payload\":[1,[2,{\"a\":[]}]],\"options\":{}}",
        "{\"\\u0070ayload\":1,\"options\":{\"\\u0064elay\":\"\\u0031\\u0030m\"}}",
        "{\"options\":{\"idempotencyKey\":\"k\",\"idempotencyKeyTTL\":\"30d\"}}",
        "{\"options\":{\"idempotencyKeyTTL\":0}}",
        "{\"options\":{\"delay\":\"2023-11-14T22:13:20+01:00\"}}",
        "{\"options\":{\"delay\":\"1969-01-01T00:00:00Z\"}}",
        "{\"options\":{\"delay\":5000}}",
        "{\"options\":{\"tags\":[]}}",
        "{\"options\":{\"tags\":[\"a\",\"\\u0061\",\"b\"]}}",
        "{\"options\":{\"metadata\":{\"a\":{\"b\":[]}}}}",
        "{\"options\":{\"queue\":\"q\",\"orderingKey\":\"o\",\"maxAttempts\":1000}}",
        "{\"options\":{\"id\":\"" ID "\",\"onMismatch\":\"return\"}}",
        "{\"options\":{\"onMismatch\":\"error\"}}",
    };
    struct scene s = { 0 };
    scene_open_on(&s, &http_door, "sqlite");
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++)
        is_fine(&s, "POST /v1/tasks/t/trigger", fine[i]);
    scene_close(&s);
}

Test(http_runs_args, what_a_trigger_may_not_say)
{
    static const struct {
        const char *body, *detail;
    } rows[] = {
        { "[]", "not a JSON object" },
        { "{\"payload\":[1,]}", "not JSON" },
        { "{\"payload\":1,\"payload\":1}", "not JSON" },
        { "{\"payload\":{\"a\":1,\"a\":2}}", "a key is repeated" },
        { "{\"payload\":"
          "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
          "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
          "too deep" },
        { "{\"paylaod\":1}", "there is no member \\\"paylaod\\\"" },
        { "{\"Payload\":1}", "did you mean \\\"payload\\\"?" },
        { "{\"options\":[]}", "options wants an object" },
        { "{\"options\":null}", "options wants an object" },
        { "{\"options\":{\"idempotency_key\":\"k\"}}", "did you mean \\\"idempotencyKey\\\"?" },
        { "{\"options\":{\"idempotencyKey\":\"\"}}", "idempotencyKey wants text" },
        { "{\"options\":{\"idempotencyKey\":7}}", "idempotencyKey wants text" },
        { "{\"options\":{\"idempotencyKey\":\"a\\u0001\"}}", "control characters" },
        { "{\"options\":{\"idempotencyKeyTTL\":\"1w\"}}", "idempotencyKeyTTL wants" },
        { "{\"options\":{\"idempotencyKeyTTL\":-1}}", "idempotencyKeyTTL wants" },
        { "{\"options\":{\"idempotencyKeyTTL\":1.5}}", "idempotencyKeyTTL wants" },
        { "{\"options\":{\"idempotencyKeyTTL\":\"4000d\"}}", "idempotencyKeyTTL wants" },
        { "{\"options\":{\"delay\":\"soon\"}}", "delay wants" },
        { "{\"options\":{\"delay\":\"\\u0073\\u006f\\u006f\\u006e\\\\\"}}", "delay wants" },
        { "{\"options\":{\"delay\":true}}", "delay wants" },
        { "{\"options\":{\"delay\":\"9999-01-01T00:00:00Z\"}}", "longer than ten years" },
        { "{\"options\":{\"delay\":\"36500d\"}}", "at most ten years" },
        { "{\"options\":{\"tags\":\"a\"}}", "tags wants an array" },
        { "{\"options\":{\"tags\":[1]}}", "tags wants an array" },
        { "{\"options\":{\"tags\":[[]]}}", "tags wants an array" },
        { "{\"options\":{\"tags\":[\"\"]}}", "tags wants" },
        { "{\"options\":{\"tags\":[\"a\\n\"]}}", "tags wants" },
        { "{\"options\":{\"metadata\":[]}}", "metadata wants a JSON object" },
        { "{\"options\":{\"metadata\":null}}", "metadata wants a JSON object" },
        { "{\"options\":{\"queue\":\"a b\"}}", "of the queue is not one of" },
        { "{\"options\":{\"maxAttempts\":0}}", "maxAttempts wants" },
        { "{\"options\":{\"maxAttempts\":1001}}", "maxAttempts wants" },
        { "{\"options\":{\"maxAttempts\":\"3\"}}", "maxAttempts wants" },
        { "{\"options\":{\"id\":\"run_1\"}}", "id wants" },
        { "{\"options\":{\"id\":\"run_81ARZ3NDEKTSV4RRFFQ69G5FAV\"}}", "id wants" },
        { "{\"options\":{\"onMismatch\":\"ignore\"}}", "onMismatch wants" },
    };
    struct scene s = { 0 };
    scene_open_on(&s, &http_door, "sqlite");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        is_refused(&s, "POST /v1/tasks/t/trigger", rows[i].body, rows[i].detail);
    is_refused(&s, "POST /v1/tasks/a%20b/trigger", "", "of the task is not one of");
    is_refused(&s, "POST /v1/tasks/t/trigger?wait=1", "", "there is no parameter");
    nothing_happened(&s);
    scene_close(&s);
}

Test(http_runs_args, what_is_too_large)
{
    static char body[8192];
    struct scene s = { 0 };
    scene_open_on(&s, &http_door, "sqlite");
    memset(body, '1', SCENE_VALUE_BYTES_MAX + 12);
    memcpy(body, "{\"payload\":", 11);
    strcpy(body + 11 + SCENE_VALUE_BYTES_MAX, "}");
    is_fine(&s, "POST /v1/tasks/t/trigger", body);
    strcpy(body + 11 + SCENE_VALUE_BYTES_MAX, "1}");
    body[11 + SCENE_VALUE_BYTES_MAX - 1] = '1';
    starts(ask(&s, "POST /v1/tasks/t/trigger", "", body), "HTTP/1.1 413 ");
    starts(ask(&s, "POST /v1/tasks/t/trigger", "",
               "{\"options\":{\"tags\":[\"0\",\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\","
               "\"9\",\"10\"]}}"),
           "HTTP/1.1 413 ");
    starts(
        ask(&s, "POST " RUN "/tags", "",
            "{\"tags\":[\"0\",\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\"]}"),
        "HTTP/1.1 422 ");
    memset(body, 'a', 1000);
    memcpy(body, "{\"options\":{\"tags\":[\"", 21);
    strcpy(body + 21 + TAG_BYTES_MAX, "\"]}}");
    is_fine(&s, "POST /v1/tasks/t/trigger", body);
    memset(body + 21, 'a', 1000);
    strcpy(body + 21 + TAG_BYTES_MAX + 1, "\"]}}");
    starts(ask(&s, "POST /v1/tasks/t/trigger", "", body), "HTTP/1.1 413 ");
    scene_close(&s);
}

Test(http_runs_args, the_key_as_a_field)
{
    struct scene s = { 0 };
    scene_open_on(&s, &http_door, "sqlite");
    static const char same[] = "{\"options\":{\"idempotencyKey\":\"k\"}}";
    starts(ask(&s, "POST /v1/tasks/t/trigger", "Idempotency-Key: k\r\n", ""), "HTTP/1.1 200 ");
    starts(ask(&s, "POST /v1/tasks/t/trigger", "Idempotency-Key: k\r\n", same),
           "HTTP/1.1 200 ");
    has(ask(&s, "POST /v1/tasks/t/trigger", "Idempotency-Key: l\r\n", same),
        "say different things");
    has(ask(&s, "POST /v1/tasks/t/trigger", "Idempotency-Key:\r\n", ""),
        "Idempotency-Key is empty");
    has(ask(&s, "POST /v1/tasks/t/batch", "Idempotency-Key: k\r\n", "{\"items\":[{}]}"),
        "Idempotency-Key is not for this");
    has(ask(&s, "POST " RUN "/replay", "Idempotency-Key: k\r\n", ""),
        "Idempotency-Key is not for this");
    scene_close(&s);
}

Test(http_runs_args, which_env)
{
    struct scene s = { 0 };
    scene_open_on(&s, &http_door, "sqlite");
    starts(ask(&s, "GET /v1/runs", "Once-Env: prod\r\n", ""), "HTTP/1.1 200 ");
    starts(ask(&s, "GET /v1/runs", "Once-Env: a b\r\n", ""), "HTTP/1.1 400 ");
    starts(ask(&s, "GET /v1/runs", "Once-Env:\r\n", ""), "HTTP/1.1 400 ");
    starts(ask(&s, "GET /v1/runs", "Once-Env: a\r\nOnce-Env: b\r\n", ""), "HTTP/1.1 400 ");
    scene_close(&s);
}

Test(http_runs_args, one_item_that_is_wrong_is_enough)
{
    static const struct {
        const char *body, *detail;
    } rows[] = {
        { "", "items is missing" },
        { "{}", "items is missing" },
        { "[]", "items is missing" },
        { "{\"items\":[]}", "1 to 1000" },
        { "{\"items\":{}}", "1 to 1000" },
        { "{\"items\":[{}],\"options\":{}}", "no member but" },
        { "{\"items\":[{},7]}", "items[1]: it is not an object" },
        { "{\"items\":[{},{},{\"payload\":1,\"option\":{}}]}", "items[2]: there is no member" },
        { "{\"items\":[{\"options\":{\"delay\":\"x\"}}]}", "items[0]: delay wants" },
        { "{\"items\":[{},{\"options\":{\"queue\":\"\\u0020\"}}]}", "items[1]: byte 1 of the" },
    };
    static char many[8192] = "{\"items\":[{}";
    struct scene s = { 0 };
    scene_open_on(&s, &http_door, "sqlite");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        is_refused(&s, "POST /v1/tasks/t/batch", rows[i].body, rows[i].detail);
    for (int i = 1; i < HTTP_BATCH_MAX; i++) strcat(many, ",{}");
    strcat(many, ",{}]}");
    is_refused(&s, "POST /v1/tasks/t/batch", many, "1 to 1000");
    nothing_happened(&s);
    scene_close(&s);
}

Test(http_runs_args, what_changes_may_say)
{
    static const struct {
        const char *line, *body, *detail; /* NULL: it is fine */
    } rows[] = {
        { "GET " RUN, "", NULL },
        { "GET /v1/runs/run_01arz3ndektsv4rrffq69g5fav", "", NULL },
        { "GET /v1/runs/1", "", "an id is run_" },
        { "GET " RUN "?full=1", "", "there is no parameter" },
        { "POST " RUN "/tags", "{\"tags\":[\"a\"]}", NULL },
        { "POST " RUN "/tags", "{}", "tags is missing" },
        { "POST " RUN "/tags", "", "tags is missing" },
        { "PUT " RUN "/metadata", "{\"metadata\":{},\"version\":0}", NULL },
        { "PUT " RUN "/metadata",
          "{\"operations\":[{\"type\":\"increment\",\"key\":\"n\",\"value\":1}]}", NULL },
        { "PUT " RUN "/metadata", "{}", "either metadata or operations" },
        { "PUT " RUN "/metadata", "{\"metadata\":{},\"operations\":[]}", "either metadata or" },
        { "PUT " RUN "/metadata", "{\"operations\":{}}", "operations wants an array" },
        { "PUT " RUN "/metadata", "{\"metadata\":7}", "metadata wants a JSON object" },
        { "PUT " RUN "/metadata", "{\"metadata\":{},\"version\":-1}", "version wants" },
        { "PUT " RUN "/metadata", "{\"metadata\":{},\"version\":\"1\"}", "version wants" },
        { "PUT " RUN "/metadata",
          "{\"operations\":[{\"type\":\"remove\",\"key\":\"n\"}],\"version\":1}",
          "version goes with metadata" },
        { "PUT " RUN "/metadata", "{\"operations\":[{\"type\":\"double\",\"key\":\"n\"}]}",
          "" },
        { "POST " RUN "/cancel", "", NULL },
        { "POST " RUN "/cancel", "{\"reason\":\"no\"}", NULL },
        { "POST " RUN "/cancel", "{\"reason\":7}", "reason wants text" },
        { "POST " RUN "/reschedule", "{\"delay\":\"1h\"}", NULL },
        { "POST " RUN "/reschedule", "", "delay is missing" },
        { "POST " RUN "/reschedule", "{\"delay\":\"9999-01-01T00:00:00Z\"}", "ten years" },
        { "POST " RUN "/replay", "{}", NULL },
        { "POST " RUN "/replay", "{\"payload\":1}", "there is no member" },
        { "POST /v1/tasks/t/keys/a%2Fb/reset", "", NULL },
        { "POST /v1/tasks/t/keys//reset", "", "the key is empty" },
        { "POST /v1/tasks/t/keys/k/reset", "{\"x\":1}", "there is no member" },
        { "POST " RUN "/complete", "{" TOKEN "}", NULL },
        { "POST " RUN "/complete", "{" TOKEN ",\"output\":[1]}", NULL },
        { "POST " RUN "/complete", "{\"output\":1}", "token is missing" },
        { "POST " RUN "/complete", "{\"token\":\"xyz\"}", "token wants 32" },
        { "POST " RUN "/complete", "{\"token\":7}", "token wants 32" },
        { "POST " RUN "/fail", "{" TOKEN ",\"error\":{\"m\":1},\"retry_in_ms\":0}", NULL },
        { "POST " RUN "/fail", "{" TOKEN "}", "error is missing" },
        { "POST " RUN "/fail", "{" TOKEN ",\"error\":1,\"retry_in_ms\":-1}", "retry_in_ms" },
        { "POST " RUN "/heartbeat", "{" TOKEN ",\"lease_ms\":\"1m\"}", NULL },
        { "POST " RUN "/heartbeat", "{" TOKEN ",\"lease_ms\":null}", "lease_ms wants" },
        { "POST /v1/queues/q/lease", "", NULL },
        { "POST /v1/queues/q/lease", "{\"count\":1000,\"lease_ms\":1,\"wait_ms\":0}", NULL },
        { "POST /v1/queues/q/lease", "{\"count\":0}", "count wants" },
        { "POST /v1/queues/q/lease", "{\"count\":1001}", "count wants" },
        { "POST /v1/queues/%20/lease", "", "of the queue is not one of" },
    };
    struct scene s = { 0 };
    scene_open_on(&s, &http_door, "sqlite");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].detail)
            is_refused(&s, rows[i].line, rows[i].body, rows[i].detail);
        else
            is_fine(&s, rows[i].line, rows[i].body);
    scene_close(&s);
}

Test(http_runs_args, what_a_list_may_say)
{
    struct scene s = { 0 };
    scene_open_on(&s, &http_door, "sqlite");
    is_fine(&s, "GET /v1/runs?limit=1000&cursor=" ID "&status=FAILED,DELAYED", "");
    is_fine(&s, "GET /v1/runs?task=t&queue=q&tag=a%20b", "");
    is_refused(&s, "GET /v1/runs?limit=0", "", "limit wants");
    is_refused(&s, "GET /v1/runs?limit=1001", "", "limit wants");
    is_refused(&s, "GET /v1/runs?limit=1&limit=1", "", "given twice");
    is_refused(&s, "GET /v1/runs?cursor=1", "", "invalid cursor");
    is_refused(&s, "GET /v1/runs?status=", "", "status wants");
    is_refused(&s, "GET /v1/runs?status=failed", "", "status wants");
    is_refused(&s, "GET /v1/runs?status=FAILED,LOST", "", "status wants");
    is_refused(&s, "GET /v1/runs?task=%20", "", "of the task is not one of");
    is_refused(&s, "GET /v1/runs?tag=", "", "tag wants");
    is_refused(&s, "GET /v1/runs?scope=a", "", "there is no parameter");
    is_refused(&s, "GET /v1/runs?tag=%4", "", "well-formed escapes");
    scene_close(&s);
}
