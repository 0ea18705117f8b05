/* http_answer_test.c - answers, byte for byte. */
#include "proto/http_answer.h"

#include "base/err.h"

#include <criterion/criterion.h>

static void expect_written(const struct buf *out, const char *expected)
{
    cr_expect(bytes_eq(buf_bytes(out), bytes_str(expected)), "%.*s", (int)out->len,
              (const char *)out->data);
}

static void expect_answer(struct http_answer answer, const char *content, const char *expected)
{
    struct http_writer w;
    struct buf out;
    buf_init(&out, 4096);
    http_start(&w, &out, &answer);
    http_put_text(&w, "Content-Type", "text/plain");
    http_finish(&w, bytes_str(content));
    expect_written(&out, expected);
    cr_expect_eq(buf_failed(&out), 0);
    buf_fini(&out);
}

Test(http_answer, with_a_length)
{
    struct http_answer ok = { .status = 200, .minor = 1, .keep_alive = true };
    expect_answer(ok, "hi",
                  "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi");
    ok.date = bytes_str("Sun, 06 Nov 1994 08:49:37 GMT");
    expect_answer(ok, "",
                  "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
                  "Content-Type: text/plain\r\nContent-Length: 0\r\n\r\n");
}

Test(http_answer, says_whether_the_connection_stays)
{
    struct http_answer a = { .status = 503, .minor = 1 };
    expect_answer(a, "",
                  "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n"
                  "Content-Length: 0\r\nConnection: close\r\n\r\n");
    a = (struct http_answer){ .status = 200, .minor = 0, .keep_alive = true };
    expect_answer(a, "",
                  "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n"
                  "Connection: keep-alive\r\n\r\n");
}

Test(http_answer, without_content)
{
    struct http_answer a = { .status = 200, .minor = 1, .keep_alive = true, .head = true };
    expect_answer(a, "hi",
                  "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n");
    a = (struct http_answer){ .status = 204, .minor = 1, .keep_alive = true };
    expect_answer(a, "hi", "HTTP/1.1 204 No Content\r\nContent-Type: text/plain\r\n\r\n");
    a.status = 304;
    expect_answer(a, "hi", "HTTP/1.1 304 Not Modified\r\nContent-Type: text/plain\r\n\r\n");
}

static bool write_chunks(struct http_answer answer, const char *expected)
{
    struct http_writer w;
    struct buf out;
    buf_init(&out, 4096);
    http_start(&w, &out, &answer);
    http_start_chunks(&w);
    http_chunk(&w, bytes_str("0123456789abcdef"));
    http_chunk(&w, bytes_str(""));
    http_chunk(&w, bytes_str("x"));
    http_finish_chunks(&w);
    expect_written(&out, expected);
    buf_fini(&out);
    return w.answer.keep_alive;
}

Test(http_answer, in_chunks)
{
    struct http_answer a = { .status = 200, .minor = 1, .keep_alive = true };
    cr_expect(write_chunks(a, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                              "10\r\n0123456789abcdef\r\n1\r\nx\r\n0\r\n\r\n"));
    a.head = true;
    cr_expect(write_chunks(a, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
    a = (struct http_answer){ .status = 200, .minor = 0, .keep_alive = true };
    cr_expect(
        !write_chunks(a, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n0123456789abcdefx"));
}

Test(http_answer, nobody_writes_fields_of_his_own)
{
    static const struct {
        const char *name;
        struct bytes value;
    } table[] = {
#define VALUE(text) { (const uint8_t *)(text), sizeof(text) - 1 }
        { "A", VALUE("b\r\nSet-Cookie: c") },
        { "A", VALUE("b\nc") },
        { "A", VALUE("b\rc") },
        { "A", VALUE("b\0c") },
        { "A\r\nB", VALUE("c") },
        { "A:", VALUE("c") },
        { "", VALUE("c") },
        { "A B", VALUE("c") },
#undef VALUE
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct http_writer w;
        struct buf out;
        buf_init(&out, 4096);
        http_start(&w, &out, &(struct http_answer){ .status = 200, .minor = 1 });
        size_t before = out.len;
        http_put(&w, table[i].name, table[i].value);
        cr_expect_eq(buf_failed(&out), ERR_INVALID);
        cr_expect_eq(out.len, before);
        buf_fini(&out);
    }
}

Test(http_answer, continue_and_reasons)
{
    struct buf out;
    buf_init(&out, 64);
    http_continue(&out);
    expect_written(&out, "HTTP/1.1 100 Continue\r\n\r\n");
    cr_expect_str_eq(http_reason(404), "Not Found");
    cr_expect_str_eq(http_reason(299), "");
    buf_fini(&out);
}

Test(http_answer, dates)
{
    static const struct {
        int64_t unix_ms;
        const char *text;
    } table[] = {
        { 0, "Thu, 01 Jan 1970 00:00:00 GMT" },
        { INT64_C(784111777999), "Sun, 06 Nov 1994 08:49:37 GMT" },
        { INT64_C(951782399000), "Mon, 28 Feb 2000 23:59:59 GMT" },
        { INT64_C(951782400000), "Tue, 29 Feb 2000 00:00:00 GMT" },
        { INT64_C(951868800000), "Wed, 01 Mar 2000 00:00:00 GMT" },
        { INT64_C(4107542400000), "Mon, 01 Mar 2100 00:00:00 GMT" },
        { INT64_C(1767225599000), "Wed, 31 Dec 2025 23:59:59 GMT" },
        { INT64_C(253402300799000), "Fri, 31 Dec 9999 23:59:59 GMT" },
        { INT64_MAX, "Fri, 31 Dec 9999 23:59:59 GMT" },
        { -1000, "Thu, 01 Jan 1970 00:00:00 GMT" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[HTTP_DATE_BYTES + 1];
        http_write_date(table[i].unix_ms, text);
        cr_expect_str_eq(text, table[i].text);
    }
}
