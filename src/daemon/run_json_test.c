/* run_json_test.c - a run as JSON, byte for byte. */
#include "daemon/run_json.h"

#include <criterion/criterion.h>

#define ID "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define NOW_MS INT64_C(1700000000000)

static struct run bare(void)
{
    struct run r = { .env = bytes_str("default"),
                     .task = bytes_str("mail"),
                     .queue = bytes_str("slow"),
                     .state = RUN_QUEUED,
                     .attempts_max = 3,
                     .created_at_ms = NOW_MS };
    cr_assert(run_id_parse(bytes_str(ID), &r.id));
    return r;
}

typedef void put(struct json_writer *j, const struct run *r, int64_t now_ms);

static void is_put(put *how, const struct run *r, const char *text)
{
    struct json_writer j;
    struct buf out;
    buf_init(&out, 1 << 20);
    json_start(&j, &out);
    how(&j, r, NOW_MS);
    cr_assert(!buf_failed(&out));
    cr_assert_leq(out.len, run_json_bytes_max(r));
    buf_byte(&out, '\0');
    cr_assert_str_eq((const char *)out.data, text);
    buf_fini(&out);
}

Test(run_json, what_there_is_not_is_null)
{
    struct run r = bare();
    is_put(run_json_put, &r,
           "{\"id\":\"" ID "\",\"env\":\"default\",\"task\":\"mail\",\"queue\":\"slow\","
           "\"status\":\"QUEUED\",\"payload\":null,\"idempotencyKey\":null,"
           "\"idempotencyKeyExpiresAt\":null,\"tags\":[],\"metadata\":null,"
           "\"metadataVersion\":0,\"delayUntil\":null,\"orderingKey\":null,\"attempts\":0,"
           "\"maxAttempts\":3,\"stalls\":0,\"output\":null,\"error\":null,"
           "\"createdAt\":\"2023-11-14T22:13:20.000Z\",\"startedAt\":null,"
           "\"finishedAt\":null}");
}

Test(run_json, what_is_json_stays_as_it_came)
{
    struct run r = bare();
    r.payload = bytes_str("{ \"b\" : 1.50, \"a\":[\"\\u0041\"] }");
    r.metadata = bytes_str("{\"n\": 1e2}");
    r.metadata_version = 7;
    r.output = bytes_str("null");
    r.error = bytes_str("\"x\"");
    r.key = bytes_str("k\n\xc3\xa9");
    r.key_held = true;
    r.key_until_ms = NOW_MS + 1;
    r.tags = bytes_of("\1a\3\"b\\", 6);
    r.delay_until_ms = NOW_MS + 60000;
    r.ordering_key = bytes_str("o");
    r.attempts = 2;
    r.stalls = 1;
    r.state = RUN_COMPLETED;
    r.started_at_ms = NOW_MS + 5;
    r.finished_at_ms = NOW_MS + 999;
    r.canonical = r.id;
    is_put(run_json_put, &r,
           "{\"id\":\"" ID "\",\"env\":\"default\",\"task\":\"mail\",\"queue\":\"slow\","
           "\"status\":\"COMPLETED\",\"payload\":{ \"b\" : 1.50, \"a\":[\"\\u0041\"] },"
           "\"idempotencyKey\":\"k\\n\xc3\xa9\","
           "\"idempotencyKeyExpiresAt\":\"2023-11-14T22:13:20.001Z\",\"tags\":[\"a\","
           "\"\\\"b\\\\\"],\"metadata\":{\"n\": 1e2},\"metadataVersion\":7,"
           "\"delayUntil\":\"2023-11-14T22:14:20.000Z\",\"orderingKey\":\"o\",\"attempts\":2,"
           "\"maxAttempts\":3,\"stalls\":1,\"output\":null,\"error\":\"x\","
           "\"createdAt\":\"2023-11-14T22:13:20.000Z\","
           "\"startedAt\":\"2023-11-14T22:13:20.005Z\","
           "\"finishedAt\":\"2023-11-14T22:13:20.999Z\",\"canonicalId\":\"" ID "\"}");
}

Test(run_json, a_key_that_was_reset_does_not_expire)
{
    struct run r = bare();
    struct json_writer j;
    struct buf out;
    r.key = bytes_str("k");
    r.key_until_ms = NOW_MS + 1;
    r.delay_until_ms = NOW_MS + 1;
    buf_init(&out, 4096);
    json_start(&j, &out);
    run_json_put(&j, &r, NOW_MS);
    buf_byte(&out, '\0');
    const char *text = (const char *)out.data;
    cr_assert(strstr(text, "\"idempotencyKey\":\"k\",\"idempotencyKeyExpiresAt\":null"));
    cr_assert(strstr(text, "\"status\":\"DELAYED\""));
    buf_fini(&out);
}

Test(run_json, a_lease_says_how_it_is_ended)
{
    struct run r = bare();
    struct json_writer j;
    struct buf out;
    for (size_t i = 0; i < sizeof r.token.bytes; i++) r.token.bytes[i] = (uint8_t)i;
    r.state = RUN_EXECUTING;
    r.fence = UINT64_C(1700000000000000);
    r.lease_ms = 30000;
    buf_init(&out, 4096);
    json_start(&j, &out);
    run_json_put_leased(&j, &r, NOW_MS);
    cr_assert_leq(out.len, run_json_bytes_max(&r));
    buf_byte(&out, '\0');
    cr_assert(strstr((const char *)out.data,
                     "\"finishedAt\":null,\"token\":\"000102030405060708090a0b0c0d0e0f\","
                     "\"fence\":1700000000000000,\"leaseMs\":30000}"));
    buf_fini(&out);
}
