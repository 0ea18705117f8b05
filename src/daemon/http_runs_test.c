/* http_runs_test.c - runs over HTTP: what answers look like, who may ask, and what becomes of those
 * whose client is gone. On a real ledger, in the time of the test. */
#include "daemon/http_scene_test.h"

#define TRIGGER "POST /v1/tasks/mail/trigger"

static void open_runs(struct scene *s)
{
    scene_open_on(s, &http_door, "sqlite");
    s->http.wall = s->world.env.wall;
}

static void send_to(struct scene *s, int fd, const char *line, const char *fields,
                    const char *body)
{
    static char text[1 << 15];
    snprintf(text, sizeof text, "%s" HOST "%s%sContent-Length: %zu\r\n\r\n%s", line, fields,
             *body ? "Content-Type: application/json\r\n" : "", strlen(body), body);
    say(s, fd, text);
}

static const char *ask_with(struct scene *s, const char *line, const char *fields,
                            const char *body)
{
    int fd = dial(s);
    send_to(s, fd, line, fields, body);
    const char *got = hear(fd);
    hang_up(s, fd);
    return got;
}

static const char *ask(struct scene *s, const char *line, const char *body)
{
    return ask_with(s, line, "", body);
}

/* About the run: METHOD /v1/runs/ID/REST. */
static const char *about(struct scene *s, const char *method, const char *id, const char *rest,
                         const char *body)
{
    char line[128];
    snprintf(line, sizeof line, "%s /v1/runs/%s%s", method, id, rest);
    return ask(s, line, body);
}

static void take_id(const char *answer, char out[31])
{
    const char *at = strstr(answer, "\"id\":\"run_");
    cr_assert(at, "%s", answer);
    snprintf(out, 31, "%.30s", at + 6);
}

static void trigger(struct scene *s, const char *body, char out[31])
{
    const char *got = ask(s, TRIGGER, body);
    starts(got, OK_HEAD);
    take_id(got, out);
}

static size_t times(const char *text, const char *part)
{
    size_t n = 0;
    for (; (text = strstr(text, part)); text++) n++;
    return n;
}

/* ---- triggers ---- */

Test(http_runs, the_same_key_is_the_same_run)
{
    struct scene s = { 0 };
    char id[31], want[256];
    open_runs(&s);
    static const char body[] =
        "{\"payload\":{ \"a\" : 1.50 },\"options\":{\"idempotencyKey\":\"k\"}}";
    const char *got = ask(&s, TRIGGER, body);
    has_not(got, "Once-Replayed");
    take_id(got, id);
    snprintf(want, sizeof want,
             "\r\n\r\n{\"id\":\"%s\",\"isCached\":false,\"status\":\"QUEUED\","
             "\"source\":\"ledger\",\"degraded\":",
             id);
    has(got, want);
    got = ask(&s, TRIGGER, body);
    snprintf(want, sizeof want,
             "\r\n\r\n{\"id\":\"%s\",\"isCached\":true,\"status\":\"QUEUED\","
             "\"source\":\"ledger\",\"degraded\":",
             id);
    has(got, want);
    has(got, "\r\nOnce-Replayed: true\r\n");
    has(ask_with(&s, TRIGGER, "Idempotency-Key: k\r\n", "{\"payload\":{ \"a\" : 1.50 }}"), id);
    has(about(&s, "GET", id, "", ""), "\"payload\":{ \"a\" : 1.50 },\"idempotencyKey\":\"k\"");
    scene_close(&s);
}

Test(http_runs, another_payload_is_refused_and_learns_nothing)
{
    struct scene s = { 0 };
    char id[31];
    open_runs(&s);
    trigger(&s, "{\"payload\":1,\"options\":{\"idempotencyKey\":\"k\"}}", id);
    const char *got =
        ask(&s, TRIGGER, "{\"payload\":2,\"options\":{\"idempotencyKey\":\"k\"}}");
    starts(got, "HTTP/1.1 422 Unprocessable Content\r\n");
    has(got, "\r\nContent-Type: application/problem+json\r\n");
    has(got, "\"code\":\"mismatch\",\"retryable\":false,\"degraded\":");
    has_not(got, id);
    got =
        ask(&s, TRIGGER,
            "{\"payload\":2,\"options\":{\"idempotencyKey\":\"k\",\"onMismatch\":\"return\"}}");
    starts(got, OK_HEAD);
    has(got, id);
    has(got, "\"isCached\":true");
    scene_close(&s);
}

Test(http_runs, an_id_of_the_callers_own_can_be_asked_for_again)
{
    struct scene s = { 0 };
    char id[31];
    open_runs(&s);
    static const char body[] = "{\"options\":{\"id\":\"run_01arz3ndektsv4rrffq69g5fav\"}}";
    for (int i = 0; i < 2; i++) {
        trigger(&s, body, id);
        cr_assert_str_eq(id, "run_01ARZ3NDEKTSV4RRFFQ69G5FAV");
    }
    cr_assert_eq(times(ask(&s, "GET /v1/runs", ""), "\"task\":\"mail\""), 1);
    scene_close(&s);
}

Test(http_runs, a_plane_that_is_away_is_503)
{
    struct scene s = { 0 };
    open_runs(&s);
    faulty_set(s.store, VERBS, FAULT_REFUSE, FAULTY_ALWAYS);
    const char *got = ask(&s, "GET /v1/runs", "");
    starts(got, "HTTP/1.1 503 ");
    has(got, "\r\nRetry-After: 1\r\n");
    faulty_heal(s.store);
    scene_close(&s);
}

/* ---- batches ---- */

Test(http_runs, a_key_twice_in_a_batch_is_resolved_by_the_first)
{
    struct scene s = { 0 };
    char first[31];
    open_runs(&s);
    const char *got = ask(
        &s, "POST /v1/tasks/mail/batch",
        "{\"items\":[{\"payload\":1,\"options\":{\"idempotencyKey\":\"k\"}},{\"payload\":7},"
        "{\"payload\":1,\"options\":{\"idempotencyKey\":\"k\"}},"
        "{\"payload\":2,\"options\":{\"idempotencyKey\":\"k\"}},"
        "{\"payload\":3,\"options\":{\"idempotencyKey\":\"k\",\"onMismatch\":\"return\"}}]}");
    starts(got, OK_HEAD);
    has(got, "\r\n\r\n{\"results\":[{\"id\":\"run_");
    take_id(got, first);
    cr_assert_eq(times(got, first), 3, "%s", got);
    cr_assert_eq(times(got, "\"isCached\":false"), 2, "%s", got);
    has(got, "\"isCached\":true,\"status\":\"QUEUED\",\"source\":\"ledger\"},"
             "{\"error\":{\"type\":\"urn:once:problem:mismatch\"");
    has(got, "\"retryable\":false}},{\"id\":\"run_");
    has(got, "],\"degraded\":");
    cr_assert_eq(times(ask(&s, "GET /v1/runs", ""), "\"task\":\"mail\""), 2);
    scene_close(&s);
}

Test(http_runs, a_batch_whose_client_is_gone_ends_by_itself)
{
    struct scene s = { 0 };
    open_runs(&s);
    faulty_set(s.store, VERBS, FAULT_HOLD, FAULTY_ALWAYS);
    int fd = dial(&s);
    send_to(&s, fd, "POST /v1/tasks/mail/batch", "",
            "{\"items\":[{\"options\":{\"idempotencyKey\":\"k\"}},"
            "{\"options\":{\"idempotencyKey\":\"k\"}},{}]}");
    cr_assert_gt(faulty_held(s.store), 0);
    hang_up(&s, fd);
    conns_close(&s.conns, CLOSE_SHUTDOWN);
    go(&s);
    faulty_heal(s.store);
    faulty_let_go(s.store);
    pass_ms(&s, 10000);
    scene_close(&s);
}

/* ---- reads and changes ---- */

Test(http_runs, changes_answer_with_the_run)
{
    struct scene s = { 0 };
    char id[31];
    open_runs(&s);
    trigger(&s, "{\"options\":{\"delay\":\"10m\",\"tags\":[\"a\"],\"metadata\":{\"n\": 1}}}",
            id);
    const char *got =
        about(&s, "POST", id, "/tags", "{\"tags\":[\"\\u0062\",\"a\",\"c\\\"\"]}");
    has(got, "\"tags\":[\"a\",\"b\",\"c\\\"\"]");
    got = about(&s, "PUT", id, "/metadata",
                "{\"operations\":[{\"type\":\"increment\",\"key\":\"n\",\"value\":2}]}");
    has(got, "\"metadata\":{\"n\": 3},\"metadataVersion\":2");
    got = about(&s, "PUT", id, "/metadata", "{\"metadata\":{ \"x\":[] },\"version\":2}");
    has(got, "\"metadata\":{ \"x\":[] },\"metadataVersion\":3");
    got = about(&s, "PUT", id, "/metadata", "{\"metadata\":{},\"version\":2}");
    starts(got, "HTTP/1.1 409 Conflict\r\n");
    has(got, "\r\nRetry-After: 1\r\n");
    has(got, "\"code\":\"conflict\",\"retryable\":true,\"run\":{\"id\":\"run_");
    got = about(&s, "POST", id, "/reschedule", "{\"delay\":\"2023-11-15T00:00:00+01:00\"}");
    has(got, "\"status\":\"DELAYED\"");
    has(got, "\"delayUntil\":\"2023-11-14T23:00:00.000Z\"");
    got = about(&s, "POST", id, "/cancel", "{\"reason\":\"not \\\"now\\\"\"}");
    has(got, "\"status\":\"CANCELED\"");
    has(got, "\"error\":\"not \\\"now\\\"\"");
    starts(about(&s, "POST", id, "/cancel", ""), OK_HEAD);
    got = about(&s, "POST", id, "/reschedule", "{\"delay\":1}");
    starts(got, "HTTP/1.1 422 ");
    has(got, "\"code\":\"refused\",\"retryable\":false,\"run\":{");
    scene_close(&s);
}

Test(http_runs, what_is_not_there_is_404)
{
    static const char *const lines[] = { "GET /v1/runs/"
                                         "run_01ARZ3NDEKTSV4RRFFQ69G5FAV",
                                         "POST /v1/runs/run_01ARZ3NDEKTSV4RRFFQ69G5FAV/cancel",
                                         "POST /v1/runs/run_01ARZ3NDEKTSV4RRFFQ69G5FAV/replay",
                                         "POST /v1/tasks/mail/keys/k/reset" };
    struct scene s = { 0 };
    open_runs(&s);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const char *got = ask(&s, lines[i], "");
        starts(got, "HTTP/1.1 404 Not Found\r\n");
        has(got, "\"code\":\"absent\",\"retryable\":false");
    }
    scene_close(&s);
}

Test(http_runs, a_key_that_was_reset_makes_a_new_run)
{
    struct scene s = { 0 };
    char one[31], two[31];
    open_runs(&s);
    static const char body[] = "{\"options\":{\"idempotencyKey\":\"a/b \\u00e9\"}}";
    trigger(&s, body, one);
    has(ask(&s, "POST /v1/tasks/mail/keys/a%2Fb%20%C3%A9/reset", ""),
        "\r\n\r\n{\"cleared\":true}\n");
    trigger(&s, body, two);
    cr_assert_str_neq(one, two);
    has(about(&s, "GET", one, "", ""), "\"idempotencyKeyExpiresAt\":null");
    has(about(&s, "POST", two, "/replay", "{}"), "\"isCached\":false");
    scene_close(&s);
}

Test(http_runs, a_list_goes_on_behind_its_last_page)
{
    struct scene s = { 0 };
    char ids[3][31], line[128];
    open_runs(&s);
    for (int i = 0; i < 3; i++) {
        trigger(&s, i == 1 ? "{\"options\":{\"delay\":60000}}" : "{}", ids[i]);
        pass_ms(&s, 1);
    }
    const char *got = ask(&s, "GET /v1/runs?limit=2", "");
    cr_assert(strstr(got, ids[2]) < strstr(got, ids[1]));
    has_not(got, ids[0]);
    cr_assert_eq(times(got, ids[1]), 2, "it is the cursor, too");
    snprintf(line, sizeof line, "GET /v1/runs?limit=2&cursor=%s", ids[1]);
    got = ask(&s, line, "");
    has(got, ids[0]);
    has_not(got, ids[1]);
    has(got, "],\"cursor\":null}\n");
    got = ask(&s, "GET /v1/runs?status=DELAYED", "");
    cr_assert_eq(times(got, "\"task\""), 1, "%s", got);
    has(got, ids[1]);
    got = ask(&s, "GET /v1/runs?status=QUEUED", "");
    cr_assert_eq(times(got, "\"task\""), 2, "%s", got);
    cr_assert_eq(times(ask(&s, "GET /v1/runs?status=QUEUED,DELAYED", ""), "\"task\""), 3);
    scene_close(&s);
}

/* Each run has nearly a kilobyte, and the answer room for few of them. */
Test(http_runs, a_page_has_as_many_as_fit)
{
    struct scene s = { 0 };
    char ids[5][31], body[1100], line[128];
    open_runs(&s);
    memset(body, '7', sizeof body);
    memcpy(body, "{\"payload\":", 11);
    strcpy(body + 1000, "}");
    for (int i = 0; i < 5; i++) {
        trigger(&s, body, ids[i]);
        pass_ms(&s, 1);
    }
    buf_fini(&s.http.content);
    buf_init(&s.http.content, 8000);
    const char *got = ask(&s, "GET /v1/runs", "");
    starts(got, OK_HEAD);
    size_t count = times(got, "\"payload\":777");
    cr_assert(count > 0 && count < 5, "%zu", count);
    snprintf(line, sizeof line, "],\"cursor\":\"%s\"}\n", ids[5 - count]);
    has(got, line);
    snprintf(line, sizeof line, "GET /v1/runs?cursor=%s", ids[5 - count]);
    has(ask(&s, line, ""), ids[4 - count]);
    got = ask(&s, "POST /v1/queues/mail/lease", "{\"count\":5}");
    cr_assert_eq(times(got, "\"token\":"), count);
    got = ask(&s, "POST /v1/queues/mail/lease", "{\"count\":1}");
    has(got, "\"attempts\":1,\"maxAttempts\":3,\"stalls\":0"); /* those that did not fit */
    scene_close(&s);
}

/* ---- workers ---- */

static void lease(struct scene *s, const char *body, char id[31], char token[33])
{
    const char *got = ask(s, "POST /v1/queues/mail/lease", body);
    starts(got, OK_HEAD);
    take_id(got, id);
    take_token(got, token);
}

Test(http_runs, from_lease_to_end)
{
    struct scene s = { 0 };
    char id[31], token[33], body[256];
    open_runs(&s);
    has(ask(&s, "POST /v1/queues/mail/lease", ""), "\r\n\r\n{\"runs\":[]}\n");
    trigger(&s, "{\"options\":{\"maxAttempts\":2}}", id);
    lease(&s, "{\"lease_ms\":\"1m\"}", id, token);
    snprintf(body, sizeof body, "{\"token\":\"%s\",\"lease_ms\":90000}", token);
    has(about(&s, "POST", id, "/heartbeat", body), "\"status\":\"EXECUTING\"");
    snprintf(body, sizeof body, "{\"token\":\"%s\",\"error\":{ \"m\":1 },\"retry_in_ms\":500}",
             token);
    const char *got = about(&s, "POST", id, "/fail", body);
    has(got, "\"status\":\"QUEUED\"");
    has(got, "\"error\":{ \"m\":1 }");
    starts(about(&s, "POST", id, "/fail", body), OK_HEAD); /* the same again */
    got =
        about(&s, "POST", id, "/complete", "{\"token\":\"00112233445566778899aabbccddeeff\"}");
    starts(got, "HTTP/1.1 409 Conflict\r\n");
    has(got, "\"code\":\"lost\",\"retryable\":false,\"run\":{");
    has_not(got, "Retry-After");
    has(ask(&s, "POST /v1/queues/mail/lease", ""), "{\"runs\":[]}");
    pass_ms(&s, 500);
    lease(&s, "", id, token);
    snprintf(body, sizeof body, "{\"token\":\"%s\",\"output\":[ true ]}", token);
    got = about(&s, "POST", id, "/complete", body);
    has(got, "\"status\":\"COMPLETED\"");
    has(got, "\"attempts\":2,\"maxAttempts\":2,\"stalls\":0,\"output\":[ true ]");
    scene_close(&s);
}

Test(http_runs, a_lease_of_no_time_is_refused)
{
    struct scene s = { 0 };
    char id[31], token[33];
    open_runs(&s);
    trigger(&s, "{}", id);
    const char *got = ask(&s, "POST /v1/queues/mail/lease", "{\"lease_ms\":0}");
    starts(got, "HTTP/1.1 400 Bad Request\r\n");
    has(got, "a lease of 0 ms");
    lease(&s, "{\"lease_ms\":1}", id, token);
    scene_close(&s);
}

Test(http_runs, a_lease_waits_for_a_run)
{
    struct scene s = { 0 };
    char id[31];
    open_runs(&s);
    int fd = dial(&s), other = dial(&s);
    send_to(&s, fd, "POST /v1/queues/mail/lease", "", "{\"wait_ms\":60000}");
    send_to(&s, other, "POST /v1/queues/mail/lease", "Prefer: wait=2\r\n", "");
    hears(fd, "");
    trigger(&s, "{}", id);
    pass_ms(&s, 1);
    has(hear(fd), id);
    hears(other, "");
    pass_ms(&s, 3000);
    has(hear(other), "{\"runs\":[]}");
    close(fd);
    close(other);
    scene_close(&s);
}

Test(http_runs, who_hangs_up_waits_no_more)
{
    struct scene s = { 0 };
    char id[31], token[33];
    open_runs(&s);
    int fd = dial(&s);
    send_to(&s, fd, "POST /v1/queues/mail/lease", "", "{\"wait_ms\":60000}");
    hang_up(&s, fd);
    trigger(&s, "{}", id);
    lease(&s, "", id, token);
    scene_close(&s);
}

/* Granted at the moment when its client went: as if it had not been. */
Test(http_runs, runs_that_nobody_hears_of_are_given_back)
{
    struct scene s = { 0 };
    char id[31], token[33];
    open_runs(&s);
    trigger(&s, "{}", id);
    faulty_set(s.store, VERB_RUN_LEASE, FAULT_HOLD, 1);
    int fd = dial(&s);
    send_to(&s, fd, "POST /v1/queues/mail/lease", "", "{\"wait_ms\":60000}");
    cr_assert_eq(faulty_held(s.store), 1);
    hang_up(&s, fd);
    faulty_let_go(s.store);
    pass_ms(&s, 1);
    cr_assert(bounds_idle(&s.bounds));
    lease(&s, "", id, token);
    has(about(&s, "GET", id, "", ""), "\"attempts\":1,\"maxAttempts\":3,\"stalls\":0");
    scene_close(&s);
}

/* Not waiting, so it is not canceled; but nobody is there when it is granted. */
Test(http_runs, a_lease_that_came_too_late_is_given_back)
{
    struct scene s = { 0 };
    char id[31], token[33];
    open_runs(&s);
    trigger(&s, "{}", id);
    faulty_set(s.store, VERB_RUN_LEASE, FAULT_HOLD, 1);
    int fd = dial(&s);
    send_to(&s, fd, "POST /v1/queues/mail/lease", "", "");
    cr_assert_eq(faulty_held(s.store), 1);
    conns_close(&s.conns, CLOSE_BROKEN);
    close(fd);
    go(&s);
    faulty_let_go(s.store);
    pass_ms(&s, 1);
    cr_assert(bounds_idle(&s.bounds));
    lease(&s, "", id, token);
    has(about(&s, "GET", id, "", ""), "\"attempts\":1,\"maxAttempts\":3,\"stalls\":0");
    scene_close(&s);
}

/* ---- who may ask, and where ---- */

static const char *as(struct scene *s, const char *token, const char *line, const char *fields)
{
    char all[256];
    snprintf(all, sizeof all, "Authorization: Bearer %s\r\n%s", token, fields);
    return ask_with(s, line, all, "");
}

Test(http_runs, envs_know_nothing_of_each_other)
{
    struct scene s = { 0 };
    char id[31];
    open_runs(&s);
    take_id(ask_with(&s, TRIGGER, "Once-Env: prod\r\n", ""), id);
    starts(about(&s, "GET", id, "", ""), "HTTP/1.1 404 ");
    starts(about(&s, "POST", id, "/cancel", ""), "HTTP/1.1 404 ");
    has(ask(&s, "GET /v1/runs", ""), "{\"runs\":[]");
    has(ask_with(&s, "GET /v1/runs", "Once-Env: prod\r\n", ""), id);
    has(ask(&s, "POST /v1/queues/mail/lease", ""), "{\"runs\":[]}");
    scene_close(&s);
}

Test(http_runs, a_token_is_good_for_its_env_and_verbs)
{
    struct scene s = { 0 };
    struct auth auth = { 0 };
    struct err err = { 0 };
    char path[64], one[TOKEN_TEXT_BYTES + 1], many[TOKEN_TEXT_BYTES + 1], id[31];
    open_runs(&s);
    snprintf(path, sizeof path, "%s/tokens", s.dir);
    make_token(path, "prod", BIT(RIGHT_TRIGGER) | BIT(RIGHT_RUNS), INT64_MAX, one);
    make_token(path, "prod,test*", BIT(RIGHT_RUNS), INT64_MAX, many);
    cr_assert_eq(auth_open(&auth, path, true, clock_wall(), &err), 0, "%s", err.text);
    s.http.auth = &auth;
    starts(ask(&s, TRIGGER, ""), "HTTP/1.1 401 ");
    const char *got = as(&s, one, TRIGGER, "");
    starts(got, OK_HEAD);
    take_id(got, id);
    has(as(&s, one, "GET /v1/runs", ""), "\"env\":\"prod\"");
    starts(as(&s, one, "GET /v1/runs", "Once-Env: default\r\n"), "HTTP/1.1 403 ");
    starts(as(&s, one, "GET /v1/runs", "Once-Env:\r\n"), "HTTP/1.1 403 ");
    starts(as(&s, one, "POST /v1/queues/mail/lease", ""), "HTTP/1.1 403 ");
    starts(as(&s, one, "POST /v1/tasks/mail/keys/k/reset", ""), "HTTP/1.1 403 ");
    starts(as(&s, many, "GET /v1/runs", ""), "HTTP/1.1 403 "); /* it is default */
    has(as(&s, many, "GET /v1/runs", "Once-Env: prod\r\n"), id);
    has(as(&s, many, "GET /v1/runs", "Once-Env: test-1\r\n"), "{\"runs\":[]");
    starts(as(&s, many, TRIGGER, "Once-Env: prod\r\n"), "HTTP/1.1 403 ");
    s.http.auth = NULL;
    auth_close(&auth);
    unlink(path);
    scene_close(&s);
}
