/* resp_test.c - what clients send and what they are answered. Every conversation is held in one
 * piece, cut in two at every place, and byte by byte: it has to be the same conversation. */
#include "proto/resp.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { ARGS_MAX = 8 };

static const struct resp_limits limits = {
    .args_max = ARGS_MAX,
    .bulk_bytes_max = 20,
    .inline_bytes_max = 32,
    .command_bytes_max = 64,
};

/* So many bytes have come at the next look: at the cut, then all; without a cut one more. */
static size_t next_arrival(size_t have, size_t len, size_t cut)
{
    if (cut == 0) return have + 1;
    return have < cut ? cut : len;
}

static void note_command(struct buf *log, const struct resp_command *command)
{
    buf_byte(log, '[');
    for (size_t i = 0; i < command->count; i++) {
        if (i > 0) buf_byte(log, '|');
        buf_add(log, command->args[i]);
    }
    buf_byte(log, ']');
}

/* Reads commands from what is there, in memory of exactly that size. Returns how much was used. */
static size_t read_some(struct resp_reader *r, struct bytes in, struct buf *log, bool *bad)
{
    uint8_t *copy = malloc(in.len ? in.len : 1);
    size_t used = 0;
    if (in.len) memcpy(copy, in.data, in.len);
    for (;;) {
        struct bytes args[ARGS_MAX];
        struct resp_command command = { .args = args };
        struct err err = { 0 };
        enum resp_progress p = resp_read(r, copy + used, in.len - used, &command, &err);
        if (p == RESP_MORE) cr_assert_gt(r->need, in.len - used);
        if (p == RESP_BAD) buf_printf(log, "!%s", err.text);
        if (p == RESP_READY) note_command(log, &command);
        *bad = p == RESP_BAD;
        if (p != RESP_READY) break;
        cr_assert(command.used > 0 && command.used <= in.len - used);
        used += command.used;
    }
    free(copy);
    return used;
}

static void converse(struct bytes in, size_t cut, struct buf *log)
{
    struct resp_reader r;
    size_t used = 0, have = 0;
    bool bad = false;
    resp_reader_init(&r, &limits);
    while (have < in.len && !bad) {
        have = next_arrival(have, in.len, cut);
        used += read_some(&r, bytes_of(in.data + used, have - used), log, &bad);
    }
    if (!bad) buf_printf(log, "+%zu", in.len - used);
}

static void expect_conversation(struct bytes in, const char *expected)
{
    for (size_t cut = 0; cut <= in.len; cut++) {
        struct buf log;
        buf_init(&log, 4096);
        converse(in, cut, &log);
        bool same = bytes_eq(buf_bytes(&log), bytes_str(expected));
        cr_expect(same, "\"%s\" cut at %zu: %.*s", (const char *)in.data, cut, (int)log.len,
                  (const char *)log.data);
        buf_fini(&log);
    }
}

struct conversation {
    struct bytes in;
    const char *expected; /* commands, then what is left over or the error */
};

#define SAYS(text, expected)                                                                   \
    {                                                                                          \
        { (const uint8_t *)(text), sizeof(text) - 1 }, expected                                \
    }
#define EACH_OF(table) (sizeof(table) / sizeof(table)[0])

static void expect_all(const struct conversation *table, size_t count)
{
    for (size_t i = 0; i < count; i++) expect_conversation(table[i].in, table[i].expected);
}

Test(resp, arrays_of_bulk_strings)
{
    static const struct conversation table[] = {
        SAYS("*1\r\n$4\r\nPING\r\n", "[PING]+0"),
        SAYS("*2\r\n$4\r\nPING\r\n$0\r\n\r\n", "[PING|]+0"),
        SAYS("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n", "[SET|k|a\r\nb]+0"),
        SAYS("*1\r\n$1\r\na\r\n*1\r\n$1\r\nb\r\n*1\r\n$1\r\nc", "[a][b]+9"),
        SAYS("*0\r\n*-1\r\n*1\r\n$1\r\na\r\n", "[][][a]+0"),
        SAYS("*1\r\n$20\r\n12345678901234567890\r\n", "[12345678901234567890]+0"),
        SAYS("*8\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n4\r\n$1\r\n5\r\n$1\r\n6\r\n$"
             "1\r\n7\r\n$1"
             "\r\n8\r\n",
             "[1|2|3|4|5|6|7|8]+0"),
        SAYS("", "+0"),
        SAYS("*", "+1"),
        SAYS("*1\r", "+3"),
        SAYS("*1\r\n$", "+5"),
        SAYS("*1\r\n$4\r\nPING\r", "+13"),
    };
    expect_all(table, EACH_OF(table));
}

Test(resp, arrays_that_are_refused)
{
    static const struct conversation table[] = {
        SAYS("*9\r\n", "!Protocol error: invalid multibulk length"),
        SAYS("*a\r\n", "!Protocol error: invalid multibulk length"),
        SAYS("*\r\n", "!Protocol error: invalid multibulk length"),
        SAYS("*01\r\n", "!Protocol error: invalid multibulk length"),
        SAYS("*01\r\n$4\r\nPING\r\n", "!Protocol error: invalid multibulk length"),
        SAYS("*1\r\n$04\r\nPING\r\n", "!Protocol error: invalid bulk length"),
        SAYS("*+1\r\n", "!Protocol error: invalid multibulk length"),
        SAYS("* 1\r\n", "!Protocol error: invalid multibulk length"),
        SAYS("*1\rx", "!Protocol error: invalid multibulk length"),
        SAYS("*1\n\r\n", "!Protocol error: invalid multibulk length"),
        SAYS("*9223372036854775808\r\n", "!Protocol error: invalid multibulk length"),
        SAYS("*123456789012345678901\r\n", "!Protocol error: too big mbulk count string"),
        SAYS("*111111111111111111111111111", "!Protocol error: too big mbulk count string"),
        SAYS("*1\r\n:1\r\n", "!Protocol error: expected '$', got ':'"),
        SAYS("*1\r\n\r\n", "!Protocol error: expected '$', got '?'"),
        SAYS("*1\r\n\0", "!Protocol error: expected '$', got '?'"),
        SAYS("*1\r\n$-1\r\n", "!Protocol error: invalid bulk length"),
        SAYS("*1\r\n$21\r\n", "!Protocol error: invalid bulk length"),
        SAYS("*1\r\n$x\r\n", "!Protocol error: invalid bulk length"),
        SAYS("*1\r\n$1\n\na\r\n", "!Protocol error: invalid bulk length"),
        SAYS("*1\r\n$11111111111111111111111", "!Protocol error: too big bulk count string"),
        SAYS("*1\r\n$1\r\nab\r\n", "!Protocol error: a bulk string does not end with CR LF"),
        SAYS("*1\r\n$1\r\nab\n", "!Protocol error: a bulk string does not end with CR LF"),
        SAYS("*1\r\n$1\r\na\rb", "!Protocol error: a bulk string does not end with CR LF"),
        SAYS("*4\r\n$20\r\n12345678901234567890\r\n$20\r\n12345678901234567890\r\n$1\r\na\r\n",
             "!Protocol error: too big request"),
        SAYS("*1\r\n$1\r\na\r\n*x\r\n", "[a]!Protocol error: invalid multibulk length"),
    };
    expect_all(table, EACH_OF(table));
}

Test(resp, lines_of_words)
{
    static const struct conversation table[] = {
        SAYS("PING\r\n", "[PING]+0"),
        SAYS("PING\n", "[PING]+0"),
        SAYS("\r\n\n  \r\n", "[][][]+0"),
        SAYS("  a \t b\r\nc\r\n", "[a|b][c]+0"),
        SAYS("PING", "+4"),
        SAYS("a \"b c\" 'd e'\r\n", "[a|b c|d e]+0"),
        SAYS("a\vb \v\f c\r\n", "[a\vb|c]+0"),
        SAYS("\"\" ''\r\n", "[|]+0"),
        SAYS("a\"b\" c\r\n", "[ab|c]+0"),
        SAYS("\"\\x41\\x6a\\n\\t\\\"\\\\\\q\"\r\n", "[Aj\n\t\"\\q]+0"),
        SAYS("\"\\xg1\\x4\"\r\n", "[xg1x4]+0"),
        SAYS("'\\'\\n'\r\n", "['\\n]+0"),
        SAYS("a *1\r\n*1\r\n$1\r\nb\r\n", "[a|*1][b]+0"),
        SAYS("1 2 3 4 5 6 7 8\r\n", "[1|2|3|4|5|6|7|8]+0"),
        SAYS("12345678901234567890123456789012\n", "[12345678901234567890123456789012]+0"),
        SAYS("\xff\xfe\r\n", "[\xff\xfe]+0"),
    };
    expect_all(table, EACH_OF(table));
}

Test(resp, lines_that_are_refused)
{
    static const struct conversation table[] = {
        SAYS("\"a\r\n", "!Protocol error: unbalanced quotes in request"),
        SAYS("'a\r\n", "!Protocol error: unbalanced quotes in request"),
        SAYS("\"a\"b\r\n", "!Protocol error: unbalanced quotes in request"),
        SAYS("'a''b'\r\n", "!Protocol error: unbalanced quotes in request"),
        SAYS("\"a\\\r\n", "!Protocol error: unbalanced quotes in request"),
        SAYS("1 2 3 4 5 6 7 8 9\r\n", "!Protocol error: too many words in a line"),
        SAYS("123456789012345678901234567890123\n", "!Protocol error: too big inline request"),
        SAYS("123456789012345678901234567890123456789",
             "!Protocol error: too big inline request"),
        SAYS("a\0b\r\n", "!Protocol error: NUL in inline request"),
        SAYS("PING\r\n\"\r\n", "[PING]!Protocol error: unbalanced quotes in request"),
    };
    expect_all(table, EACH_OF(table));
}

/* A megabyte in small pieces must not be looked at again and again. */
Test(resp, waits_for_all_of_a_long_argument)
{
    static const struct resp_limits wide = { 4, 1 << 20, 1 << 10, 1 << 21 };
    static uint8_t in[1 << 10] = "*1\r\n$1048576\r\n";
    struct bytes args[4];
    struct resp_command command = { .args = args };
    struct resp_reader r;
    struct err err;
    resp_reader_init(&r, &wide);
    cr_assert_eq(resp_read(&r, in, 20, &command, &err), RESP_MORE);
    cr_assert_eq(r.need, 14 + (1 << 20) + 2);
    cr_assert_eq(resp_read(&r, NULL, 1 << 20, &command, &err), RESP_MORE, "without a look");
}

static void expect_written(int version, void (*write)(struct resp_writer *), const char *text)
{
    struct buf out;
    buf_init(&out, 4096);
    struct resp_writer w = { &out, version };
    write(&w);
    cr_expect(bytes_eq(buf_bytes(&out), bytes_str(text)), "RESP%d: %.*s", version, (int)out.len,
              (const char *)out.data);
    buf_fini(&out);
}

static void write_everything(struct resp_writer *w)
{
    resp_simple(w, "OK");
    resp_error(w, "ERR", bytes_str("no\r\n+OK"));
    resp_integer(w, INT64_MIN);
    resp_bulk(w, bytes_of("a\0b", 3));
    resp_text(w, "");
    resp_null(w);
    resp_null_array(w);
    resp_boolean(w, true);
    resp_boolean(w, false);
    resp_double(w, 0.1);
    resp_double(w, -INFINITY);
    resp_array(w, 2);
    resp_map(w, 2);
    resp_push(w, 10);
}

Test(resp, writes_what_clients_of_each_version_know)
{
    struct buf out;
    buf_init(&out, 4096);
    struct resp_writer w = { &out, 3 };
    write_everything(&w);
    static const char three[] =
        "+OK\r\n-ERR no  +OK\r\n:-9223372036854775808\r\n$3\r\na\0b\r\n$0"
        "\r\n\r\n_\r\n_\r\n#t\r\n#f\r\n,0.1\r\n,-inf\r\n*2\r\n%2\r\n>10"
        "\r\n";
    cr_assert(bytes_eq(buf_bytes(&out), bytes_of(three, sizeof three - 1)));
    buf_clear(&out);
    w.version = 2;
    write_everything(&w);
    static const char two[] = "+OK\r\n-ERR no  +OK\r\n:-9223372036854775808\r\n$3\r\na\0b\r\n$0"
                              "\r\n\r\n$-1\r\n*-1\r\n:1\r\n:0\r\n$3\r\n0.1\r\n$4\r\n-inf\r\n*2"
                              "\r\n*4\r\n*10\r\n";
    cr_assert(bytes_eq(buf_bytes(&out), bytes_of(two, sizeof two - 1)));
    buf_fini(&out);
}

static void write_nan(struct resp_writer *w)
{
    resp_double(w, NAN);
}

static void write_third(struct resp_writer *w)
{
    resp_double(w, 1.0 / 3);
}

Test(resp, doubles_read_back_as_they_were)
{
    expect_written(3, write_nan, ",nan\r\n");
    expect_written(3, write_third, ",0.3333333333333333\r\n");
    expect_written(2, write_third, "$18\r\n0.3333333333333333\r\n");
}

Test(resp, what_does_not_fit_is_remembered)
{
    struct buf out;
    buf_init(&out, 8);
    struct resp_writer w = { &out, 2 };
    resp_bulk(&w, bytes_str("0123456789"));
    cr_assert_eq(buf_failed(&out), ERR_LIMIT);
    buf_fini(&out);
}
