/* http_parts_test.c - paths, queries and what the values of fields say. */
#include "base/buf.h"
#include "proto/http.h"
#include "proto/http_fields.h"

#include <criterion/criterion.h>

#define EACH_OF(table) (sizeof(table) / sizeof(table)[0])

static void expect_text(const struct buf *log, const char *expected, const char *of)
{
    cr_expect(bytes_eq(buf_bytes(log), bytes_str(expected)), "%s: %.*s", of, (int)log->len,
              (const char *)log->data);
}

static void expect_segments(const char *path, const char *expected)
{
    struct bytes rest = bytes_str(path), segment;
    uint8_t out[256];
    struct buf log;
    buf_init(&log, 1024);
    while (http_next_segment(&rest, &segment)) {
        size_t len;
        bool fine = http_unescape(segment, out, &len);
        if (fine) buf_printf(&log, "[%.*s]", (int)len, (const char *)out);
        if (!fine) buf_byte(&log, '!');
    }
    expect_text(&log, expected, path);
    buf_fini(&log);
}

Test(http_parts, segments)
{
    static const char *const table[][2] = {
        { "/", "[]" },
        { "/v1/claims/orders/o-17", "[v1][claims][orders][o-17]" },
        { "/a/b%2Fc/", "[a][b/c][]" },
        { "//a", "[][a]" },
        { "/%c3%BC%20+", "[\xc3\xbc +]" },
        { "/%", "!" },
        { "/%4", "!" },
        { "/%4g", "!" },
        { "/%g4", "!" },
        { "/a%00b/c", "![c]" },
        { "/%25%32%46", "[%2F]" },
        { "", "" },
        { "*", "" },
    };
    for (size_t i = 0; i < EACH_OF(table); i++) expect_segments(table[i][0], table[i][1]);
}

static void expect_parameters(const char *query, const char *expected)
{
    struct bytes rest = bytes_str(query);
    struct http_parameter p;
    uint8_t name[256], value[256];
    struct buf log;
    buf_init(&log, 1024);
    while (http_next_parameter(&rest, &p)) {
        size_t n, m;
        bool fine = http_unescape_parameter(p.name, name, &n) &&
                    http_unescape_parameter(p.value, value, &m);
        if (fine)
            buf_printf(&log, "[%.*s=%.*s]", (int)n, (const char *)name, (int)m,
                       (const char *)value);
        if (!fine) buf_byte(&log, '!');
    }
    expect_text(&log, expected, query);
    buf_fini(&log);
}

Test(http_parts, parameters)
{
    static const char *const table[][2] = {
        { "", "" },
        { "a=1&b=2", "[a=1][b=2]" },
        { "a", "[a=]" },
        { "a=", "[a=]" },
        { "=a", "[=a]" },
        { "&&a=b=c&", "[a=b=c]" },
        { "a+b=c%2Bd+e", "[a b=c+d e]" },
        { "a%26=%3d", "[a&==]" },
        { "a=%zz&b=1", "![b=1]" },
        { "a=%00", "!" },
    };
    for (size_t i = 0; i < EACH_OF(table); i++) expect_parameters(table[i][0], table[i][1]);
}

Test(http_parts, lists)
{
    static const char *const table[][2] = {
        { "", "" },
        { "a", "[a]" },
        { " a , b,c ", "[a][b][c]" },
        { ",,a,,", "[a]" },
        { "\"a,b\", c", "[\"a,b\"][c]" },
        { "\"a\\\",b\", c", "[\"a\\\",b\"][c]" },
        { "\"a, b", "[\"a, b]" },
    };
    for (size_t i = 0; i < EACH_OF(table); i++) {
        struct bytes list = bytes_str(table[i][0]), element;
        struct buf log;
        buf_init(&log, 256);
        while (http_next_in_list(&list, &element))
            buf_printf(&log, "[%.*s]", (int)element.len, (const char *)element.data);
        expect_text(&log, table[i][1], table[i][0]);
        buf_fini(&log);
    }
}

Test(http_parts, media_types)
{
    static const struct {
        const char *value, *type, *subtype, *charset; /* type NULL: malformed */
    } table[] = {
        { "application/json", "application", "json", "" },
        { "Application/JSON ; Charset=\"UTF-8\"", "application", "json", "UTF-8" },
        { "text/plain;a=b;charset=utf-8", "text", "plain", "utf-8" },
        { "application/problem+json", "application", "problem+json", "" },
        { "", NULL },
        { "json", NULL },
        { "a/", NULL },
        { "/b", NULL },
        { "a/b/c", NULL },
        { "a b/c", NULL },
        { "a/b; =c", NULL },
    };
    for (size_t i = 0; i < EACH_OF(table); i++) {
        struct http_media media = { 0 };
        bool fine = http_parse_media(bytes_str(table[i].value), &media);
        cr_expect_eq(fine, table[i].type != NULL, "%s", table[i].value);
        if (!fine || !table[i].type) continue;
        cr_expect(http_media_is(&media, table[i].type, table[i].subtype), "%s", table[i].value);
        cr_expect(bytes_eq(media.charset, bytes_str(table[i].charset)), "%s", table[i].value);
        cr_expect(!http_media_is(&media, "x", table[i].subtype));
        cr_expect(!http_media_is(&media, table[i].type, "x"));
    }
}

Test(http_parts, accept)
{
    static const struct {
        const char *accept;
        int quality;
    } table[] = {
        { "application/json", 1000 },
        { "*/*", 1000 },
        { "application/*;q=0.5", 500 },
        { "text/html", 0 },
        { "text/html, */*;q=0.1", 100 },
        { "*/*, application/json;q=0", 0 },
        { "application/json;q=0.001, */*", 1 },
        { "application/*;q=0.2, */*;q=0.9", 200 },
        { "application/json; Q=1.000", 1000 },
        { "application/json;q=1.001", 0 },
        { "application/json;q=2", 0 },
        { "application/json;q=", 0 },
        { "application/json;q=0.1234", 0 },
        { "nonsense, application/json", 1000 },
        { "", 0 },
    };
    for (size_t i = 0; i < EACH_OF(table); i++)
        cr_expect_eq(http_accepts(bytes_str(table[i].accept), "application", "json"),
                     table[i].quality, "%s", table[i].accept);
    cr_expect_eq(http_accepts(bytes_of(NULL, 0), "application", "json"), 1000);
}

Test(http_parts, preferences)
{
    static const struct {
        const char *prefer, *wait; /* NULL: it is not there */
    } table[] = {
        { "wait=10", "10" },       { "respond-async, Wait = 5; x=y", "5" },
        { "wait=\"7\"", "7" },     { "wait", "" },
        { "wait=1, wait=2", "1" }, { "waiting=1", NULL },
        { "x=\"wait=1\"", NULL },  { "", NULL },
    };
    for (size_t i = 0; i < EACH_OF(table); i++) {
        struct bytes value;
        bool found = http_preference(bytes_str(table[i].prefer), "wait", &value);
        cr_expect_eq(found, table[i].wait != NULL, "%s", table[i].prefer);
        if (found && table[i].wait) cr_expect(bytes_eq(value, bytes_str(table[i].wait)));
    }
}

Test(http_parts, bearer_tokens)
{
    static const char *const table[][2] = {
        { "Bearer abc", "abc" }, { "bearer  a-b._~+/9==", "a-b._~+/9==" },
        { "Bearer", NULL },      { "Bearer ", NULL },
        { "Bearer ==", NULL },   { "Bearer a b", NULL },
        { "Bearer a=b", NULL },  { "Bearera", NULL },
        { "Basic abc", NULL },   { "", NULL },
    };
    for (size_t i = 0; i < EACH_OF(table); i++) {
        struct bytes token;
        bool found = http_bearer(bytes_str(table[i][0]), &token);
        cr_expect_eq(found, table[i][1] != NULL, "%s", table[i][0]);
        if (found && table[i][1]) cr_expect(bytes_eq(token, bytes_str(table[i][1])));
    }
}

Test(http_parts, trace_context)
{
#define TRACE "-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    static const struct {
        const char *value;
        bool fine;
    } table[] = {
        { "00" TRACE, true },
        { "cc" TRACE, true },
        { "cc" TRACE "-more", true },
        { "cc" TRACE "more", false },
        { "00" TRACE "-", false },
        { "ff" TRACE, false },
        { "00-00000000000000000000000000000000-b7ad6b7169203331-01", false },
        { "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false },
        { "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false },
        { "00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01", false },
        { "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01", false },
        { "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0", false },
        { "0" TRACE, false },
        { "", false },
    };
    for (size_t i = 0; i < EACH_OF(table); i++) {
        struct http_traceparent parent;
        char back[HTTP_TRACEPARENT_BYTES + 1];
        bool fine = http_parse_traceparent(bytes_str(table[i].value), &parent);
        cr_expect_eq(fine, table[i].fine, "%s", table[i].value);
        if (!fine) continue;
        http_write_traceparent(&parent, back);
        cr_expect_str_eq(back, "00" TRACE);
    }
#undef TRACE
}
