/* reply_test.c - what a client hears, cut at every place: the same values, the same errors. */
#include "proto/reply.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>

enum { NODES_MAX = 12 };

static const struct reply_limits limits = {
    .depth_max = 3,
    .bytes_max = 80,
    .line_bytes_max = 24,
};

static const char *const brackets[] = {
    [REPLY_ARRAY] = "[]",
    [REPLY_MAP] = "{}",
    [REPLY_PUSH] = "<>",
};

/* Written with recursion on purpose: not the way it is read. */
static const struct reply_node *note(const struct reply_reader *r, struct bytes in,
                                     const struct reply_node *n, struct buf *log)
{
    struct bytes text = n->type < REPLY_ARRAY ? reply_bytes(n, in) : bytes_of(NULL, 0);
    if (n->type == REPLY_NULL) buf_printf(log, "null");
    if (n->type == REPLY_ERROR) buf_byte(log, '-');
    if (n->type == REPLY_DOUBLE) buf_byte(log, ',');
    if (n->type == REPLY_INTEGER) buf_printf(log, "%" PRId64, n->number);
    if (n->type == REPLY_BOOLEAN) buf_printf(log, n->number ? "yes" : "no");
    buf_add(log, text);
    if (n->type < REPLY_ARRAY) return n + 1;
    buf_byte(log, (uint8_t)brackets[n->type][0]);
    const struct reply_node *element = n + 1;
    for (int64_t i = 0; i < n->number; i++) {
        if (i > 0) buf_byte(log, ' ');
        cr_assert_eq(reply_element(r->nodes, n, (size_t)i), element);
        element = note(r, in, element, log);
    }
    cr_assert_eq(element, r->nodes + n->next);
    cr_assert_null(reply_element(r->nodes, n, (size_t)n->number));
    buf_byte(log, (uint8_t)brackets[n->type][1]);
    return element;
}

static size_t read_some(struct reply_reader *r, struct bytes in, struct buf *log, bool *bad)
{
    size_t used = 0;
    uint8_t *copy = malloc(in.len ? in.len : 1);
    if (in.len) memcpy(copy, in.data, in.len);
    for (;;) {
        struct bytes left = bytes_of(copy + used, in.len - used);
        struct err err = { 0 };
        enum resp_progress p = reply_read(r, left, &err);
        if (p == RESP_BAD) buf_printf(log, "!%s", err.text);
        *bad = p == RESP_BAD;
        if (p != RESP_READY) break;
        cr_assert(r->at <= left.len && r->nodes[0].next == r->count);
        note(r, left, r->nodes, log);
        buf_byte(log, ';');
        used += r->at;
        reply_reader_clear(r);
    }
    free(copy);
    return used;
}

static void converse(struct bytes in, size_t cut, struct buf *log)
{
    struct reply_node nodes[NODES_MAX];
    struct reply_reader r;
    size_t used = 0, have = 0;
    bool bad = false;
    reply_reader_init(&r, &limits, nodes, NODES_MAX);
    while (have < in.len && !bad) {
        have = cut == 0 ? have + 1 : have < cut ? cut : in.len;
        used += read_some(&r, bytes_of(in.data + used, have - used), log, &bad);
    }
    if (!bad) buf_printf(log, "+%zu", in.len - used);
}

static void expect_conversation(const char *text, const char *expected)
{
    struct bytes in = bytes_str(text);
    for (size_t cut = 0; cut <= in.len; cut++) {
        struct buf log;
        buf_init(&log, 4096);
        converse(in, cut, &log);
        bool same = bytes_eq(buf_bytes(&log), bytes_str(expected));
        cr_expect(same, "\"%s\" cut at %zu: %.*s", text, cut, (int)log.len,
                  (const char *)log.data);
        buf_fini(&log);
    }
}

Test(reply, every_kind_of_value)
{
    static const char *const table[][2] = {
        { "+OK\r\n", "OK;+0" },
        { "+\r\n", ";+0" },
        { "-ERR no\r\n", "-ERR no;+0" },
        { ":-12\r\n:0\r\n", "-12;0;+0" },
        { "$3\r\na\r\n\r\n", "a\r\n;+0" },
        { "$0\r\n\r\n", ";+0" },
        { "$-1\r\n*-1\r\n_\r\n", "null;null;null;+0" },
        { "#t\r\n#f\r\n", "yes;no;+0" },
        { ",3.5\r\n,-inf\r\n,nan\r\n", ",3.5;,-inf;,nan;+0" },
        { ",-1\r\n,+2.25E-10\r\n", ",-1;,+2.25E-10;+0" },
        { "(123456789012345678901\r\n", "123456789012345678901;+0" },
        { "!5\r\nERR x\r\n", "-ERR x;+0" },
        { "=6\r\ntxt:ab\r\n", "ab;+0" },
        { "*0\r\n%0\r\n", "[];{};+0" },
        { "*3\r\n+a\r\n:1\r\n_\r\n", "[a 1 null];+0" },
        { "~1\r\n+a\r\n", "[a];+0" },
        { "%2\r\n+a\r\n:1\r\n+b\r\n*0\r\n", "{a 1 b []};+0" },
        { ">2\r\n+message\r\n$1\r\nx\r\n+OK\r\n", "<message x>;OK;+0" },
        { "*2\r\n*2\r\n*0\r\n+a\r\n*1\r\n*1\r\n+b\r\n", "[[[] a] [[b]]];+0" },
        { "*2\r\n+a\r\n", "+8" },
        { "", "+0" },
        { "$5\r\nabc", "+7" },
        { "*11\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
          "[1 1 1 1 1 1 1 1 1 1 1];+0" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        expect_conversation(table[i][0], table[i][1]);
}

Test(reply, what_is_refused)
{
    static const char *const table[][2] = {
        { "PONG\r\n", "!Protocol error: unknown type of value" },
        { "|1\r\n+a\r\n+b\r\n+c\r\n", "!Protocol error: unknown type of value" },
        { "$?\r\n", "!Protocol error: invalid length" },
        { "$-2\r\n", "!Protocol error: invalid length" },
        { "*x\r\n", "!Protocol error: invalid length" },
        { ":1x\r\n", "!Protocol error: invalid integer" },
        { ":+1\r\n", "!Protocol error: invalid integer" },
        { ":9223372036854775808\r\n", "!Protocol error: invalid integer" },
        { ",\r\n", "!Protocol error: invalid double" },
        { ",1.\r\n", "!Protocol error: invalid double" },
        { ",.5\r\n", "!Protocol error: invalid double" },
        { ",1e\r\n", "!Protocol error: invalid double" },
        { ",1.5x\r\n", "!Protocol error: invalid double" },
        { "(\r\n", "!Protocol error: invalid big number" },
        { "(1.5\r\n", "!Protocol error: invalid big number" },
        { "_x\r\n", "!Protocol error: invalid null" },
        { "#x\r\n", "!Protocol error: invalid boolean" },
        { "=3\r\nabc\r\n", "!Protocol error: invalid verbatim string" },
        { "=4\r\nabcd\r\n", "!Protocol error: invalid verbatim string" },
        { "+a\rb\r\n", "!Protocol error: a line does not end with CR LF" },
        { "+a\nb\r\n", "!Protocol error: a line does not end with CR LF" },
        { "$1\r\nab\r\n", "!Protocol error: a bulk string does not end with CR LF" },
        { "+1234567890123456789012345\r\n", "!Protocol error: a line is too long" },
        { "+1234567890123456789012345", "!Protocol error: a line is too long" },
        { "$74\r\n", "!Protocol error: the reply is too large" },
        { "*4\r\n+12345678901234567890\r\n+12345678901234567890\r\n+12345678901234567890\r\n"
          "+1234567890\r\n",
          "!Protocol error: the reply is too large" },
        { "*12\r\n", "!Protocol error: the reply has too many values" },
        { "%6\r\n", "!Protocol error: the reply has too many values" },
        { "*2\r\n*11\r\n", "!Protocol error: the reply has too many values" },
        { "*1\r\n*1\r\n*1\r\n*1\r\n", "!Protocol error: the reply is too deep" },
        { "+OK\r\n?", "OK;!Protocol error: unknown type of value" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        expect_conversation(table[i][0], table[i][1]);
}

Test(reply, word_of_an_error)
{
    static const char *const table[][2] = {
        { "WRONGPASS invalid", "WRONGPASS" },    { "LOADING", "LOADING" }, { "", "" },
        { "ERR unknown command 'AUTH'", "ERR" }, { "ERR: x", "" },         { "Ouch x", "" },
        { "ABCDEFGHIJKLMNOPQ x", "" },           { " ERR", "" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        cr_expect(bytes_eq(reply_error_word(bytes_str(table[i][0])), bytes_str(table[i][1])),
                  "%s", table[i][0]);
}

/* What a server of ours writes, a client of ours reads. */
Test(reply, reads_what_is_written)
{
    for (int version = 2; version <= 3; version++) {
        struct buf out, log;
        buf_init(&out, 4096);
        buf_init(&log, 4096);
        struct resp_writer w = { &out, version };
        resp_array(&w, 4);
        resp_text(&w, "claimed");
        resp_boolean(&w, true);
        resp_map(&w, 1);
        resp_text(&w, "fence");
        resp_integer(&w, 7);
        resp_null(&w);
        converse(buf_bytes(&out), 0, &log);
        const char *expected =
            version == 3 ? "[claimed yes {fence 7} null];+0" : "[claimed 1 [fence 7] null];+0";
        cr_expect(bytes_eq(buf_bytes(&log), bytes_str(expected)));
        buf_fini(&out);
        buf_fini(&log);
    }
}
