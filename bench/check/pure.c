/* pure.c - what needs no store: the rules, and the two protocols' readers. */
#include "base/check.h"
#include "bench/check/check.h"
#include "core/rules.h"
#include "proto/http.h"
#include "proto/resp.h"

/* ---- rules ---- */

static void decide(void *ctx, size_t first)
{
    struct request in = { .lease_ms = 30000, .retain_ms = 86400000, .value = ctx };
    struct moment at = { .now_ms = 1700000000000 };
    for (size_t i = first; i < first + OPERATIONS; i++) {
        memcpy(in.token.bytes, &i, sizeof i);
        at.now_ms++;
        struct verdict claimed = rules_claim(NULL, &in, at);
        struct verdict again = rules_claim(&claimed.next, &in, at);
        struct verdict done = rules_publish(&claimed.next, &in, at);
        struct verdict replayed = rules_claim(&done.next, &in, at);
        CHECK(claimed.outcome == OUTCOME_CLAIMED && again.outcome == OUTCOME_CLAIMED);
        CHECK(done.outcome == OUTCOME_OK && replayed.outcome == OUTCOME_CACHED);
    }
}

void check_rules(void)
{
    struct blob *value = blob_new(bytes_str("the answer"));
    CHECK(value);
    count_instructions("rules", decide, value);
    blob_unref(value);
}

/* ---- RESP ---- */

enum { ARGS_MAX = 16, FIELDS_MAX = 16 };

static const struct resp_limits resp_limits = {
    .args_max = ARGS_MAX,
    .bulk_bytes_max = 65536,
    .inline_bytes_max = 4096,
    .command_bytes_max = 262144,
};

static void read_commands(void *ctx, size_t first)
{
    static uint8_t text[] = "*7\r\n$10\r\nONCE.CLAIM\r\n$5\r\nbench\r\n$22\r\n"
                            "order-0000000000001234\r\n$5\r\nLEASE\r\n$5\r\n30000\r\n"
                            "$4\r\nWAIT\r\n$4\r\n5000\r\n";
    (void)ctx, (void)first;
    struct bytes args[ARGS_MAX];
    struct resp_command command = { .args = args };
    struct resp_reader reader;
    struct err err;
    resp_reader_init(&reader, &resp_limits);
    for (size_t i = 0; i < OPERATIONS; i++) {
        enum resp_progress p = resp_read(&reader, text, sizeof text - 1, &command, &err);
        CHECK(p == RESP_READY && command.count == 7 && command.used == sizeof text - 1);
    }
}

/* ---- HTTP ---- */

static void read_requests(void *ctx, size_t first)
{
    static const char head[] = "POST /v1/claims/bench/order-0000000000001234 HTTP/1.1\r\n"
                               "Host: once.example.org:7411\r\n"
                               "User-Agent: orders/1.4\r\n"
                               "Accept: application/json\r\n"
                               "Authorization: Bearer once_0123456789abcdef0123456789abcdef\r\n"
                               "Content-Type: application/json\r\n"
                               "Content-Length: 34\r\n\r\n";
    static const char content[] = "{\"lease_ms\":30000,\"wait_ms\":5000}\n";
    (void)ctx, (void)first;
    struct http_field fields[FIELDS_MAX];
    struct http_request request = { .fields = fields };
    struct http_limits limits = http_limits_default;
    struct http_reader reader;
    limits.fields_max = FIELDS_MAX;
    http_reader_init(&reader, &limits);
    for (size_t i = 0; i < OPERATIONS; i++) {
        struct bytes data, rest = bytes_str(content);
        size_t used;
        CHECK(http_read_head(&reader, bytes_str(head), &request) == HTTP_READY);
        CHECK(request.count == 6 && request.length == (int64_t)rest.len);
        CHECK(http_read_body(&reader, rest, &data, &used) == HTTP_DATA && used == rest.len);
        CHECK(http_read_body(&reader, bytes_str(""), &data, &used) == HTTP_READY);
    }
}

void check_parsers(void)
{
    count_instructions("resp-parse", read_commands, NULL);
    count_instructions("http-parse", read_requests, NULL);
}
