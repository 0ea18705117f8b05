/* http_test.c - requests and what they are taken for. Every one is read in one piece, cut in two
 * at every place, and byte by byte: it has to be the same request, or the same fault. */
#include "proto/http.h"

#include "base/buf.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>

enum { FIELDS_MAX = 6 };

static const struct http_limits limits = {
    .line_bytes_max = 64,
    .field_bytes_max = 48,
    .head_bytes_max = 220,
    .fields_max = FIELDS_MAX,
    .extra_bytes_max = 40,
    .body_bytes_max = 32,
};

/* One end of a connection: what it has read, and what it made of it. */
struct peer {
    struct http_reader reader;
    const struct http_limits *limits;
    bool in_body, bad;
    struct buf log;
};

static void note_text(struct buf *log, struct bytes text)
{
    buf_add(log, text);
    buf_byte(log, ' ');
}

/* METHOD PATH[?QUERY] @AUTHORITY 1.1 N [k] [e]: n fields, kept alive, expects to continue. */
static void note_request(struct buf *log, const struct http_request *q)
{
    static const char *const forms[] = { "", "abs ", "auth ", "* " };
    note_text(log, q->method_name);
    buf_printf(log, "%s", forms[q->form]);
    buf_add(log, q->path);
    if (q->query.data) buf_byte(log, '?');
    note_text(log, q->query);
    buf_byte(log, '@');
    note_text(log, q->authority);
    buf_printf(log, "1.%d %zu%s%s", q->minor, q->count, q->keep_alive ? " k" : "",
               q->expect_continue ? " e" : "");
}

/* Returns how much was used; 0: nothing more can be done. */
static size_t read_head(struct peer *peer, struct bytes in)
{
    struct http_field fields[FIELDS_MAX];
    struct http_request request = { .fields = fields };
    enum http_progress p = http_read_head(&peer->reader, in, &request);
    cr_assert_neq(p, HTTP_DATA);
    if (p != HTTP_READY) return peer->bad = p == HTTP_BAD, 0;
    cr_assert(request.used > 0 && request.used <= in.len);
    note_request(&peer->log, &request);
    buf_printf(&peer->log, request.has_body ? " <" : "");
    peer->in_body = true;
    return request.used;
}

static size_t read_body(struct peer *peer, struct bytes in)
{
    struct bytes data = { 0 };
    size_t used;
    enum http_progress p = http_read_body(&peer->reader, in, &data, &used);
    cr_assert(used <= in.len);
    peer->bad = p == HTTP_BAD;
    if (p == HTTP_DATA) cr_assert(data.len > 0 && data.data + data.len == in.data + used);
    if (p == HTTP_DATA) buf_add(&peer->log, data);
    if (p == HTTP_READY) buf_byte(&peer->log, ';');
    if (p == HTTP_READY) peer->in_body = false;
    return used;
}

/* Reads what it can from memory of exactly that size. */
static size_t read_some(struct peer *peer, struct bytes in)
{
    uint8_t *copy = malloc(in.len ? in.len : 1);
    size_t used = 0, n;
    bool was_body;
    if (in.len) memcpy(copy, in.data, in.len);
    do {
        struct bytes left = bytes_of(copy + used, in.len - used);
        was_body = peer->in_body;
        n = was_body ? read_body(peer, left) : read_head(peer, left);
        used += n;
    } while (!peer->bad && (n > 0 || was_body != peer->in_body));
    free(copy);
    return used;
}

static void converse(struct peer *peer, struct bytes in, size_t cut)
{
    size_t used = 0, have = 0;
    http_reader_init(&peer->reader, peer->limits);
    buf_init(&peer->log, 4096);
    while (have < in.len && !peer->bad) {
        have = cut == 0 ? have + 1 : have < cut ? cut : in.len;
        used += read_some(peer, bytes_of(in.data + used, have - used));
    }
    enum http_fault fault = peer->reader.fault;
    cr_assert_eq(peer->bad, fault != HTTP_FAULT_NONE);
    if (peer->bad)
        buf_printf(&peer->log, "!%d %s", http_fault_status(fault), http_fault_text(fault));
    else
        buf_printf(&peer->log, "+%zu", in.len - used);
}

static void expect_conversation(const struct http_limits *l, struct bytes in,
                                const char *expected)
{
    for (size_t cut = 0; cut <= in.len; cut++) {
        struct peer peer = { .limits = l };
        converse(&peer, in, cut);
        bool same = bytes_eq(buf_bytes(&peer.log), bytes_str(expected));
        cr_expect(same, "\"%s\" cut at %zu: %.*s", (const char *)in.data, cut,
                  (int)peer.log.len, (const char *)peer.log.data);
        buf_fini(&peer.log);
        if (!same) return;
    }
}

struct conversation {
    struct bytes in;
    const char *expected; /* requests, then what is left over or the fault */
};

#define SAYS(text, expected)                                                                   \
    {                                                                                          \
        { (const uint8_t *)(text), sizeof(text) - 1 }, expected                                \
    }
#define EACH_OF(table) (sizeof(table) / sizeof(table)[0])

static void expect_all(const struct conversation *table, size_t count)
{
    for (size_t i = 0; i < count; i++)
        expect_conversation(&limits, table[i].in, table[i].expected);
}

Test(http, request_lines)
{
    static const struct conversation table[] = {
        SAYS("GET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / @h 1.1 1 k;+0"),
        SAYS("GET /a/b%20c?x=1&y HTTP/1.1\r\nHost: h:80\r\n\r\n",
             "GET /a/b%20c?x=1&y @h:80 1.1 1 k;+0"),
        SAYS("GET /? HTTP/1.1\r\nHost:\r\n\r\n", "GET /? @ 1.1 1 k;+0"),
        SAYS("GET /;a=1,b@c:d!$&'()*+~ HTTP/1.1\r\nHost: h\r\n\r\n",
             "GET /;a=1,b@c:d!$&'()*+~ @h 1.1 1 k;+0"),
        SAYS("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / @h 1.1 1 k;+0"),
        SAYS("BREW / HTTP/1.1\r\nHost: h\r\n\r\n", "BREW / @h 1.1 1 k;+0"),
        SAYS("GET / HTTP/1.0\r\n\r\n", "GET / @ 1.0 0;+0"),
        SAYS("GET / HTTP/1.2\r\nHost: h\r\n\r\n", "GET / @h 1.1 1 k;+0"),
        SAYS("GET / HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\nGE",
             "GET / @h 1.1 1 k;GET /2 @h 1.1 1 k;+2"),
        SAYS("GET / HTTP/1.1\r\nHost: h\r\n", "+25"),
        SAYS("", "+0"),
    };
    expect_all(table, EACH_OF(table));
}

Test(http, request_lines_that_are_refused)
{
    static const struct conversation table[] = {
        SAYS("\r\n\r\nGET / HTTP/1.1\r\n", "!400 malformed request line"),
        SAYS("GET\r\n", "!400 malformed request line"),
        SAYS("GET /\r\n", "!400 malformed request line"),
        SAYS("GET / \r\n", "!400 malformed request line"),
        SAYS(" GET / HTTP/1.1\r\n", "!400 malformed request line"),
        SAYS("GET  / HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET /  HTTP/1.1\r\n", "!400 malformed request line"),
        SAYS("GET / HTTP/1.1 \r\n", "!400 malformed request line"),
        SAYS("GET\t/ HTTP/1.1\r\n", "!400 malformed request line"),
        SAYS("GET /\tHTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("G(T / HTTP/1.1\r\n", "!400 malformed request line"),
        SAYS("G\0T / HTTP/1.1\r\n", "!400 malformed request line"),
        SAYS("GET /\0 HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET /\r HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET /\x7f HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET /\xc3\xbc HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET /a#b HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET /a\"b HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET /a[b] HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET /a\\b HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET a HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET / http/1.1\r\n", "!400 malformed request line"),
        SAYS("GET / HTTP/11\r\n", "!400 malformed request line"),
        SAYS("GET / HTTP/1.1.1\r\n", "!400 malformed request line"),
        SAYS("GET / HTTP/1.x\r\n", "!400 malformed request line"),
        SAYS("GET / HTTPS/1.1\r\n", "!400 malformed request line"),
        SAYS("GET / HTTP/0.9\r\n", "!505 HTTP/1.1 is spoken here"),
        SAYS("GET / HTTP/2.0\r\n", "!505 HTTP/1.1 is spoken here"),
        SAYS("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "!505 HTTP/2 is not spoken here; HTTP/1.1 is"),
        SAYS("GET / HTTP/1.1\nHost: h\n\n", "!400 a line does not end with CR LF"),
        SAYS("\nGET / HTTP/1.1\r\n", "!400 a line does not end with CR LF"),
        SAYS("GET /34567890123456789012345678901234567890123456789012345 HTTP/1.1\r\n",
             "!414 the request line is too long"),
        SAYS("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
             "!414 the request line is too long"),
    };
    expect_all(table, EACH_OF(table));
}

Test(http, forms_of_the_target)
{
    static const struct conversation table[] = {
        SAYS("GET http://a.b:1/p?q HTTP/1.1\r\nHost: h\r\n\r\n",
             "GET abs /p?q @a.b:1 1.1 1 k;+0"),
        SAYS("GET HTTPS://a HTTP/1.1\r\nHost: h\r\n\r\n", "GET abs / @a 1.1 1 k;+0"),
        SAYS("GET http://a?q HTTP/1.1\r\nHost: h\r\n\r\n", "GET abs /?q @a 1.1 1 k;+0"),
        SAYS("GET http://[::1]:2/ HTTP/1.1\r\nHost: h\r\n\r\n",
             "GET abs / @[::1]:2 1.1 1 k;+0"),
        SAYS("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS *  @h 1.1 1 k;+0"),
        SAYS("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
             "CONNECT auth  @a:443 1.1 1 k;+0"),
        SAYS("GET http:///p HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET http://u@a/ HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET http://a:x/ HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET http://a/[ HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET ftp://a/ HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET http:/a HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET * HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("OPTIONS ** HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET a:443 HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("CONNECT / HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("CONNECT a HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("CONNECT a: HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("CONNECT :1 HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("CONNECT http://a:1/ HTTP/1.1\r\n", "!400 malformed request target"),
        SAYS("GET http://a/ HTTP/1.1\r\n\r\n", "!400 Host is missing"),
    };
    expect_all(table, EACH_OF(table));
}

#define START "GET / HTTP/1.1\r\nHost: h\r\n"
#define POST "POST / HTTP/1.1\r\nHost: h\r\n"

Test(http, fields)
{
    static const struct conversation table[] = {
        SAYS(START "A:b\r\n!#$%&'*+-.^_`|~9:\t x \t\r\n\r\n", "GET / @h 1.1 3 k;+0"),
        SAYS(START "A:\r\nB: \r\n\r\n", "GET / @h 1.1 3 k;+0"),
        SAYS(START "A: \xc3\xbc\xff a\tb 0123456789 \"\\\"\r\n\r\n", "GET / @h 1.1 2 k;+0"),
        SAYS(START "A : b\r\n", "!400 malformed field name"),
        SAYS(START ": b\r\n", "!400 malformed field name"),
        SAYS(START "A\r\n", "!400 malformed field name"),
        SAYS(START "A b: c\r\n", "!400 malformed field name"),
        SAYS(START "A\0: c\r\n", "!400 malformed field name"),
        SAYS(START "\xc3\xbc: c\r\n", "!400 malformed field name"),
        SAYS(START "A\r: c\r\n", "!400 malformed field name"),
        SAYS(START "A: b\r\n c\r\n", "!400 folded field line"),
        SAYS(START "A: b\r\n\tc\r\n", "!400 folded field line"),
        SAYS("GET / HTTP/1.1\r\n Host: h\r\n", "!400 folded field line"),
        SAYS(START "A: b\0c\r\n", "!400 control character in a field"),
        SAYS(START "A: 0123456789b\rc\r\n", "!400 control character in a field"),
        SAYS(START "A: b\x7f\r\n", "!400 control character in a field"),
        SAYS(START "A: 0123456\x7f\r\n", "!400 control character in a field"),
        SAYS(START "A: b\x01\r\n", "!400 control character in a field"),
        SAYS(START "A: b\n\r\n", "!400 a line does not end with CR LF"),
        SAYS(START "\n", "!400 a line does not end with CR LF"),
        SAYS(START "\r\r\n\r\n", "!400 malformed field name"),
        SAYS(START "A:1\r\nB:2\r\nC:3\r\nD:4\r\nE:5\r\n\r\n", "GET / @h 1.1 6 k;+0"),
        SAYS(START "A:1\r\nB:2\r\nC:3\r\nD:4\r\nE:5\r\nF:6\r\n", "!431 too many fields"),
        SAYS(START "A: 345678901234567890123456789012345678901234567\r\n\r\n",
             "GET / @h 1.1 2 k;+0"),
        SAYS(START "A: 3456789012345678901234567890123456789012345678\r\n\r\n",
             "!431 a field line is too long"),
        SAYS(START "A: 345678901234567890123456789012345678901234567890123456",
             "!431 a field line is too long"),
        SAYS(START "A: 34567890123456789012345678901234567890123456\r\n"
                   "A: 34567890123456789012345678901234567890123456\r\n"
                   "A: 34567890123456789012345678901234567890123456\r\n"
                   "A: 34567890123456789012345678901234567890123456\r\n",
             "!431 the fields are too large together"),
    };
    expect_all(table, EACH_OF(table));
}

Test(http, host)
{
    static const struct conversation table[] = {
        SAYS("GET / HTTP/1.1\r\n\r\n", "!400 Host is missing"),
        SAYS("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", "!400 more than one Host"),
        SAYS("GET / HTTP/1.0\r\nHost: a\r\nHOST: a\r\n\r\n", "!400 more than one Host"),
        SAYS("GET / HTTP/1.0\r\nHost: a b\r\n\r\n", "!400 malformed Host"),
        SAYS("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "!400 malformed Host"),
        SAYS("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", "!400 malformed Host"),
        SAYS("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", "!400 malformed Host"),
        SAYS("GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", "!400 malformed Host"),
        SAYS("GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n", "!400 malformed Host"),
        SAYS("GET / HTTP/1.1\r\nHost: :80\r\n\r\n", "!400 malformed Host"),
        SAYS("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "!400 malformed Host"),
        SAYS("GET / HTTP/1.1\r\nHost: []\r\n\r\n", "!400 malformed Host"),
        SAYS("GET / HTTP/1.1\r\nHost: [::g]\r\n\r\n", "!400 malformed Host"),
        SAYS("GET / HTTP/1.1\r\nHost: a%2\r\n\r\n", "!400 malformed Host"),
        SAYS("GET / HTTP/1.1\r\nHost: a?b\r\n\r\n", "!400 malformed Host"),
        SAYS("GET / HTTP/1.1\r\nHost: a\xc3\xbc\r\n\r\n", "!400 malformed Host"),
        SAYS("GET / HTTP/1.1\r\nHost: a%2a:65535\r\n\r\n", "GET / @a%2a:65535 1.1 1 k;+0"),
        SAYS("GET / HTTP/1.1\r\nHost: [1::f.0]:\r\n\r\n", "GET / @[1::f.0]: 1.1 1 k;+0"),
    };
    expect_all(table, EACH_OF(table));
}

Test(http, content_by_length)
{
    static const struct conversation table[] = {
        SAYS(POST "Content-Length: 3\r\n\r\nabcGET", "POST / @h 1.1 2 k <abc;+3"),
        SAYS(POST "content-length:0\r\n\r\n", "POST / @h 1.1 2 k <;+0"),
        SAYS(POST "Content-Length: 0032\r\n\r\n12345678901234567890123456789012",
             "POST / @h 1.1 2 k <12345678901234567890123456789012;+0"),
        SAYS(POST "Content-Length: 2\r\n\r\na", "POST / @h 1.1 2 k <a+0"),
        SAYS(START "Content-Length: 1\r\n\r\na", "GET / @h 1.1 2 k <a;+0"),
        SAYS(POST "Content-Length: 33\r\n\r\n", "!413 the content is too large"),
        SAYS(POST "Content-Length: 99999999999999999999999\r\n\r\n",
             "!413 the content is too large"),
        SAYS(POST "Content-Length: 18446744073709551617\r\n\r\n",
             "!413 the content is too large"),
        SAYS(POST "Content-Length:\r\n\r\n", "!400 malformed Content-Length"),
        SAYS(POST "Content-Length: -1\r\n\r\n", "!400 malformed Content-Length"),
        SAYS(POST "Content-Length: +1\r\n\r\n", "!400 malformed Content-Length"),
        SAYS(POST "Content-Length: 1a\r\n\r\n", "!400 malformed Content-Length"),
        SAYS(POST "Content-Length: 0x1\r\n\r\n", "!400 malformed Content-Length"),
        SAYS(POST "Content-Length: 1 2\r\n\r\n", "!400 malformed Content-Length"),
        SAYS(POST "Content-Length: 1, 1\r\n\r\n", "!400 malformed Content-Length"),
        SAYS(POST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
             "!400 more than one Content-Length"),
        SAYS(POST "Content-Length: 1\r\ncONTENT-lENGTH: 2\r\n\r\n",
             "!400 more than one Content-Length"),
    };
    expect_all(table, EACH_OF(table));
}

#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

Test(http, content_in_chunks)
{
    static const struct conversation table[] = {
        SAYS(CHUNKED "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nGET", "POST / @h 1.1 2 k <abcde;+3"),
        SAYS(POST "transfer-encoding: CHUNKED\r\n\r\n0\r\n\r\n", "POST / @h 1.1 2 k <;+0"),
        SAYS(POST "Transfer-Encoding: , chunked ,\r\n\r\n0\r\n\r\n", "POST / @h 1.1 2 k <;+0"),
        SAYS(CHUNKED "00a\r\n0123456789\r\n000\r\n\r\n", "POST / @h 1.1 2 k <0123456789;+0"),
        SAYS(CHUNKED "A;a;b=c ; d = \"e;\\\"\"\r\n0123456789\r\n0;x\r\n\r\n",
             "POST / @h 1.1 2 k <0123456789;+0"),
        SAYS(CHUNKED "1\r\na\r\n0\r\nX: y\r\nContent-Length: 9\r\n\r\n",
             "POST / @h 1.1 2 k <a;+0"),
        SAYS(CHUNKED "1\r\na", "POST / @h 1.1 2 k <a+0"),
        SAYS(CHUNKED "1\r\na\r\n0\r\n", "POST / @h 1.1 2 k <a+0"),
        SAYS(CHUNKED "20\r\n12345678901234567890123456789012\r\n0\r\n\r\n",
             "POST / @h 1.1 2 k <12345678901234567890123456789012;+0"),
    };
    expect_all(table, EACH_OF(table));
}

Test(http, chunks_that_are_refused)
{
    static const struct conversation table[] = {
        SAYS(CHUNKED "\r\n", "POST / @h 1.1 2 k <!400 malformed chunk"),
        SAYS(CHUNKED "x\r\n", "POST / @h 1.1 2 k <!400 malformed chunk"),
        SAYS(CHUNKED "-1\r\n", "POST / @h 1.1 2 k <!400 malformed chunk"),
        SAYS(CHUNKED "0x1\r\n", "POST / @h 1.1 2 k <!400 malformed chunk"),
        SAYS(CHUNKED " 1\r\n", "POST / @h 1.1 2 k <!400 malformed chunk"),
        SAYS(CHUNKED "1 \r\n", "POST / @h 1.1 2 k <!400 malformed chunk"),
        SAYS(CHUNKED "1;\r\n", "POST / @h 1.1 2 k <!400 malformed chunk"),
        SAYS(CHUNKED "1;a=\r\n", "POST / @h 1.1 2 k <!400 malformed chunk"),
        SAYS(CHUNKED "1;a=\"b\r\n", "POST / @h 1.1 2 k <!400 malformed chunk"),
        SAYS(CHUNKED "1;a b\r\n", "POST / @h 1.1 2 k <!400 malformed chunk"),
        SAYS(CHUNKED "1;a\rb\r\n", "POST / @h 1.1 2 k <!400 malformed chunk"),
        SAYS(CHUNKED "1;a=\"\0\"\r\n", "POST / @h 1.1 2 k <!400 malformed chunk"),
        SAYS(CHUNKED "1\na\r\n", "POST / @h 1.1 2 k <!400 a line does not end with CR LF"),
        SAYS(CHUNKED "1\r\nab\r\n", "POST / @h 1.1 2 k <a!400 malformed chunk"),
        SAYS(CHUNKED "1\r\na\n\r\n", "POST / @h 1.1 2 k <a!400 malformed chunk"),
        SAYS(CHUNKED "1\r\na\rb", "POST / @h 1.1 2 k <a!400 malformed chunk"),
        SAYS(CHUNKED "21\r\n", "POST / @h 1.1 2 k <!413 the content is too large"),
        SAYS(CHUNKED "1f\r\n1234567890123456789012345678901\r\n2\r\n",
             "POST / @h 1.1 2 k <1234567890123456789012345678901!413 the content is too large"),
        SAYS(CHUNKED "fffffffffffffff\r\n", "POST / @h 1.1 2 k <!413 the content is too large"),
        SAYS(CHUNKED "8000000000000001\r\n", "POST / @h 1.1 2 k <!400 malformed chunk"),
        SAYS(CHUNKED "10000000000000001\r\n", "POST / @h 1.1 2 k <!400 malformed chunk"),
        SAYS(CHUNKED "0\r\nA : b\r\n", "POST / @h 1.1 2 k <!400 malformed field name"),
        SAYS(CHUNKED "0\r\nA: b\r\n c\r\n", "POST / @h 1.1 2 k <!400 folded field line"),
        SAYS(CHUNKED "0\r\n\n", "POST / @h 1.1 2 k <!400 a line does not end with CR LF"),
        SAYS(CHUNKED "0\r\nA:1\r\nB:2\r\nC:3\r\nD:4\r\nE:5\r\nF:6\r\nG:7\r\n",
             "POST / @h 1.1 2 k <!431 too many fields"),
        SAYS(CHUNKED "0\r\nA: 34567890123456789012345678901234567890\r\n",
             "POST / @h 1.1 2 k <!431 chunk extensions or trailers are too large"),
        SAYS(CHUNKED "0\r\nA: 3456789012345678901\r\nB: 3456789012345678901\r\n",
             "POST / @h 1.1 2 k <!431 chunk extensions or trailers are too large"),
        SAYS(CHUNKED "1;a=3456789012345678901\r\na\r\n1;a=3456789012345678901\r\n",
             "POST / @h 1.1 2 k <a!431 chunk extensions or trailers are too large"),
    };
    expect_all(table, EACH_OF(table));
}

Test(http, codings_that_are_refused)
{
    static const struct conversation table[] = {
        SAYS(POST "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
             "!400 Content-Length beside Transfer-Encoding"),
        SAYS(POST "Content-Length: 1\r\nTransfer-Encoding: x\r\n\r\n",
             "!400 Content-Length beside Transfer-Encoding"),
        SAYS(POST "Transfer-Encoding:\r\n\r\n", "!400 malformed Transfer-Encoding"),
        SAYS(POST "Transfer-Encoding: chunked, chunked\r\n\r\n",
             "!400 malformed Transfer-Encoding"),
        SAYS(POST "Transfer-Encoding: chunked, gzip\r\n\r\n",
             "!400 malformed Transfer-Encoding"),
        SAYS(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
             "!400 malformed Transfer-Encoding"),
        SAYS(POST "Transfer-Encoding: gzip, chunked\r\n\r\n",
             "!501 only the transfer coding chunked is known"),
        SAYS(POST "Transfer-Encoding: identity\r\n\r\n",
             "!501 only the transfer coding chunked is known"),
        SAYS(POST "Transfer-Encoding: xchunked\r\n\r\n",
             "!501 only the transfer coding chunked is known"),
        SAYS(POST "Transfer-Encoding: chunked;a=b\r\n\r\n",
             "!501 only the transfer coding chunked is known"),
        SAYS(POST "Transfer-Encoding: \"chunked\"\r\n\r\n", "!400 malformed Transfer-Encoding"),
        SAYS(POST "Transfer-Encoding: \x0b"
                  "chunked\r\n\r\n",
             "!400 control character in a field"),
        SAYS("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
             "!400 Transfer-Encoding in HTTP/1.0"),
    };
    expect_all(table, EACH_OF(table));
}

Test(http, connections_and_expectations)
{
    static const struct conversation table[] = {
        SAYS(START "Connection: close\r\n\r\n", "GET / @h 1.1 2;+0"),
        SAYS(START "Connection: x, CLOSE\r\n\r\n", "GET / @h 1.1 2;+0"),
        SAYS(START "Connection: keep-alive\r\nA: b\r\nConnection: close\r\n\r\n",
             "GET / @h 1.1 4;+0"),
        SAYS("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET / @ 1.0 1 k;+0"),
        SAYS("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", "GET / @ 1.0 1;+0"),
        SAYS(START "Connection: a b\r\n\r\n", "!400 malformed Connection"),
        SAYS(POST "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\na",
             "POST / @h 1.1 3 k e <a;+0"),
        SAYS(POST "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n",
             "POST / @h 1.1 3 k <;+0"),
        SAYS("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na",
             "POST / @ 1.0 2 <a;+0"),
        SAYS(POST "Expect: 200-ok\r\n\r\n", "!417 only the expectation 100-continue is known"),
    };
    expect_all(table, EACH_OF(table));
}

Test(http, content_may_be_demanded)
{
    struct http_limits strict = limits;
    strict.length_required = true;
    struct conversation post = SAYS(POST "\r\n", "!411 Content-Length is missing");
    struct conversation get = SAYS(START "\r\n", "GET / @h 1.1 1 k;+0");
    struct conversation none = SAYS(POST "Content-Length: 0\r\n\r\n", "POST / @h 1.1 2 k <;+0");
    expect_conversation(&strict, post.in, post.expected);
    expect_conversation(&strict, get.in, get.expected);
    expect_conversation(&strict, none.in, none.expected);
}

/* Each is found by its name in any case, and what is not it is not. */
Test(http, known_fields)
{
    static const char *const names[] = {
#define ROW(field, name, first, last) name,
        HTTP_FIELD_LIST(ROW)
#undef ROW
    };
    for (unsigned i = HTTP_CONTENT_TYPE; i < HTTP_KNOWN_COUNT; i++) {
        struct http_field fields[4];
        struct http_request request = { .fields = fields };
        struct http_reader r;
        struct buf in;
        buf_init(&in, 1024);
        buf_printf(&in, "GET / HTTP/1.0\r\n%s: 1\r\n%sx: 3\r\n\r\n", names[i], names[i]);
        in.data[16] = (uint8_t)(in.data[16] & ~0x20);
        http_reader_init(&r, &http_limits_default);
        cr_assert_eq(http_read_head(&r, buf_bytes(&in), &request), HTTP_READY);
        for (unsigned j = 0; j < HTTP_KNOWN_COUNT; j++)
            cr_expect_eq(http_known_field(&request, j).len, i == j, "%s", names[i]);
        cr_expect(bytes_eq(http_field(&request, names[i]), bytes_str("1")));
        cr_expect_null(http_field(&request, "nothing").data);
        buf_fini(&in);
    }
}

Test(http, faults_have_a_status_and_a_text)
{
#define ROW(fault, status, text) cr_expect_eq(http_fault_status(fault), status);
    HTTP_FAULT_LIST(ROW)
#undef ROW
    cr_expect_str_eq(http_fault_text(HTTP_FAULT_HOST_MISSING), "Host is missing");
}
