/* json_test.c - texts, what they mean and why they do not; and that what is written is read back
 * as it was. A text that is cut off anywhere is never taken for a shorter one. */
#include "proto/json.h"

#include "proto/base64.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { NODES_MAX = 16 };

static const struct json_limits limits = { NODES_MAX, 4 };

static void note(const struct json *j, const struct json_node *n, struct buf *log);

static void note_inside(const struct json *j, const struct json_node *n, struct buf *log)
{
    uint32_t count = 0;
    for (const struct json_node *e = n + 1; e < json_next(j, n); e = json_next(j, e)) {
        if (count++ > 0) buf_byte(log, ' ');
        note(j, e, log);
    }
    cr_assert_eq(count, n->kind == JSON_KIND_OBJECT ? 2 * n->count : n->count);
}

static void note_string(const struct json *j, const struct json_node *n, struct buf *log)
{
    uint8_t content[256];
    size_t len = json_unescape(j, n, content);
    cr_assert_leq(len, n->len);
    cr_assert(json_string_is(j, n, bytes_of(content, len)));
    if (!n->escaped) cr_assert(bytes_eq(json_text(j, n), bytes_of(content, len)));
    buf_printf(log, "'%.*s'", (int)len, (const char *)content);
}

static void note(const struct json *j, const struct json_node *n, struct buf *log)
{
    struct bytes text = json_text(j, n);
    switch ((enum json_kind)n->kind) {
    case JSON_KIND_NULL:
    case JSON_KIND_FALSE:
    case JSON_KIND_TRUE:
        buf_add(log, text);
        break;
    case JSON_KIND_INTEGER:
        buf_printf(log, "%" PRId64, n->number);
        break;
    case JSON_KIND_DOUBLE:
        buf_printf(log, "~%.*s", (int)text.len, (const char *)text.data);
        break;
    case JSON_KIND_STRING:
        note_string(j, n, log);
        break;
    case JSON_KIND_ARRAY:
    case JSON_KIND_OBJECT:
        buf_byte(log, text.data[0]);
        note_inside(j, n, log);
        buf_byte(log, text.data[text.len - 1]);
        break;
    }
}

/* The text in memory of exactly its size. */
static int read_copy(struct bytes text, const struct json_limits *l, struct buf *log)
{
    struct json_node nodes[NODES_MAX];
    struct json j;
    struct err err = { 0 };
    uint8_t *copy = malloc(text.len ? text.len : 1);
    if (text.len) memcpy(copy, text.data, text.len);
    int r = json_read(bytes_of(copy, text.len), l, nodes, &j, &err);
    cr_assert_eq(r, err.code);
    if (r) buf_printf(log, "%s", err.text);
    if (!r) note(&j, j.nodes, log);
    if (!r) cr_assert_eq(j.nodes[0].next, j.count);
    free(copy);
    return r;
}

static void expect_meaning(const char *text, const char *expected)
{
    struct buf log;
    buf_init(&log, 4096);
    read_copy(bytes_str(text), &limits, &log);
    cr_expect(bytes_eq(buf_bytes(&log), bytes_str(expected)), "%s: %.*s", text, (int)log.len,
              (const char *)log.data);
    buf_fini(&log);
}

Test(json, what_texts_mean)
{
    static const char *const table[][2] = {
        { "null", "null" },
        { " true ", "true" },
        { "\t\r\n false\n", "false" },
        { "0", "0" },
        { "-1", "-1" },
        { "9223372036854775807", "9223372036854775807" },
        { "-9223372036854775808", "-9223372036854775808" },
        { "9223372036854775808", "~9223372036854775808" },
        { "-0", "~-0" },
        { "1.50", "~1.50" },
        { "1e3", "~1e3" },
        { "1E-3", "~1E-3" },
        { "-0.1e+10", "~-0.1e+10" },
        { "\"\"", "''" },
        { "\"abc\"", "'abc'" },
        { "\"0123456789abcdef\\n\"", "'0123456789abcdef\n'" },
        { "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "'\"\\/\b\f\n\r\t'" },
        { "\"\\u0041\\u00fc\\u20AC\\ud83d\\udd11\"",
          "'A\xc3\xbc\xe2\x82\xac\xf0\x9f\x94\x91'" },
        { "\"\xc3\xbc \xe2\x82\xac \xf0\x9f\x94\x91\"",
          "'\xc3\xbc \xe2\x82\xac \xf0\x9f\x94\x91'" },
        { "\"\x7f\xc2\x80\"", "'\x7f\xc2\x80'" },
        { "[]", "[]" },
        { "{}", "{}" },
        { "[1, [2, []], {}]", "[1 [2 []] {}]" },
        { "{\"a\": 1, \"b\": {\"a\": [true]}}", "{'a' 1 'b' {'a' [true]}}" },
        { "{\"\": 1, \" \": 2, \"A\": 3, \"a\": 4}", "{'' 1 ' ' 2 'A' 3 'a' 4}" },
        { "[[[[]]]]", "[[[[]]]]" },
        { "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]", "[1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        expect_meaning(table[i][0], table[i][1]);
}

Test(json, what_is_refused)
{
    static const char *const table[][2] = {
        { "", "JSON: a value is missing at byte 0" },
        { "  ", "JSON: a value is missing at byte 2" },
        { "\xef\xbb\xbf[]", "JSON: a value is missing at byte 0" },
        { "nul", "JSON: unknown word at byte 0" },
        { "True", "JSON: a value is missing at byte 0" },
        { "nullx", "JSON: something behind the value at byte 4" },
        { "1 2", "JSON: something behind the value at byte 2" },
        { "01", "JSON: malformed number at byte 0" },
        { "-", "JSON: malformed number at byte 0" },
        { "-a", "JSON: malformed number at byte 0" },
        { "+1", "JSON: a value is missing at byte 0" },
        { "1.", "JSON: malformed number at byte 0" },
        { ".5", "JSON: a value is missing at byte 0" },
        { "1e", "JSON: malformed number at byte 0" },
        { "1e+", "JSON: malformed number at byte 0" },
        { "0x10", "JSON: something behind the value at byte 1" },
        { "NaN", "JSON: a value is missing at byte 0" },
        { "\"a", "JSON: a string does not end at byte 2" },
        { "'a'", "JSON: a value is missing at byte 0" },
        { "\"\n\"", "JSON: malformed string at byte 1" },
        { "\"\x1f\"", "JSON: malformed string at byte 1" },
        { "\"abcd\x1f"
          "efghijklm\"",
          "JSON: malformed string at byte 5" },
        { "\"\\x\"", "JSON: malformed string at byte 1" },
        { "\"\\u12g4\"", "JSON: malformed string at byte 1" },
        { "\"\\u123", "JSON: malformed string at byte 1" },
        { "\"\\ud83d\"", "JSON: malformed string at byte 1" },
        { "\"\\udd11\"", "JSON: malformed string at byte 1" },
        { "\"\\ud83d\\ud83d\"", "JSON: malformed string at byte 1" },
        { "\"\\ud83dabcdefgh\"", "JSON: malformed string at byte 1" },
        { "\"\xc0\x80\"", "JSON: malformed string at byte 1" },
        { "\"\xed\xa0\x80\"", "JSON: malformed string at byte 1" },
        { "\"\xf4\x90\x80\x80\"", "JSON: malformed string at byte 1" },
        { "\"\x80\"", "JSON: malformed string at byte 1" },
        { "\"\xc3\"", "JSON: malformed string at byte 1" },
        { "[", "JSON: a value is missing at byte 1" },
        { "[1", "JSON: ',' or the end is missing at byte 2" },
        { "[1,", "JSON: a value is missing at byte 3" },
        { "[1,]", "JSON: a value is missing at byte 3" },
        { "[,1]", "JSON: a value is missing at byte 1" },
        { "[1 2]", "JSON: ',' or the end is missing at byte 3" },
        { "[1}", "JSON: ',' or the end is missing at byte 2" },
        { "]", "JSON: a value is missing at byte 0" },
        { "{", "JSON: a key is missing at byte 1" },
        { "{1:2}", "JSON: a key is missing at byte 1" },
        { "{\"a\"}", "JSON: ':' is missing at byte 4" },
        { "{\"a\":}", "JSON: a value is missing at byte 5" },
        { "{\"a\":1,}", "JSON: a key is missing at byte 7" },
        { "{\"a\":1]", "JSON: ',' or the end is missing at byte 6" },
        { "{\"a\":1,\"a\":2}", "JSON: a key is repeated at byte 10" },
        { "{\"a\":1,\"b\":{},\"\\u0061\":2}", "JSON: a key is repeated at byte 22" },
        { "{\"\xc3\xbc\":1,\"\\u00fc\":2}", "JSON: a key is repeated at byte 16" },
        { "{\"\\/\":1,\"/\":2}", "JSON: a key is repeated at byte 11" },
        { "[[[[[]]]]]", "JSON: too deep at byte 4" },
        { "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", "JSON: too many values at byte 37" },
        { "/**/1", "JSON: a value is missing at byte 0" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        expect_meaning(table[i][0], table[i][1]);
}

Test(json, a_text_that_is_cut_off_is_refused)
{
    struct bytes text =
        bytes_str("{\"a\": [1, -2.5e3, true, null], \"\\u00fc\": {\"x\": \"\xe2\x82\xac\"}}");
    struct buf log;
    buf_init(&log, 1 << 16);
    for (size_t len = 0; len < text.len; len++)
        cr_expect_eq(read_copy(bytes_of(text.data, len), &limits, &log), ERR_INVALID);
    cr_expect_eq(read_copy(text, &limits, &log), 0);
    buf_fini(&log);
}

Test(json, a_NUL_is_never_white_space)
{
    struct buf log;
    buf_init(&log, 4096);
    cr_expect_eq(read_copy(bytes_of("1\0", 2), &limits, &log), ERR_INVALID);
    cr_expect_eq(read_copy(bytes_of("\0001", 2), &limits, &log), ERR_INVALID);
    cr_expect_eq(read_copy(bytes_of("[\0]", 3), &limits, &log), ERR_INVALID);
    buf_fini(&log);
}

Test(json, members_by_name)
{
    struct json_node nodes[NODES_MAX];
    struct json j;
    struct err err;
    const char *text = "{\"x\": [{\"a\": 1}], \"\\u0061\": 2, \"b\": {\"c\": 3}}";
    cr_assert_eq(json_read(bytes_str(text), &limits, nodes, &j, &err), 0);
    cr_assert_eq(json_member(&j, nodes, "a")->number, 2);
    cr_assert_eq(json_member(&j, json_member(&j, nodes, "b"), "c")->number, 3);
    cr_assert_null(json_member(&j, nodes, "c"));
    cr_assert_null(json_member(&j, nodes, ""));
    cr_assert_null(json_member(&j, json_member(&j, nodes, "a"), "a"), "not an object");
    cr_assert_null(json_member(&j, NULL, "a"));
}

/* Keys that a stranger chose must not cost the square of their number. */
Test(json, many_keys)
{
    enum { KEYS = 20000 };
    static struct json_node nodes[2 * KEYS + 2];
    struct json_limits wide = { 2 * KEYS + 2, 4 };
    struct json j;
    struct err err;
    struct buf text;
    buf_init(&text, 1 << 20);
    for (int i = 0; i < KEYS; i++) buf_printf(&text, "%c\"key-%d\":0", i ? ',' : '{', i);
    buf_byte(&text, '}');
    cr_assert_eq(json_read(buf_bytes(&text), &wide, nodes, &j, &err), 0, "%s", err.text);
    cr_assert_eq(nodes[0].count, KEYS);
    text.len--;
    buf_printf(&text, ",\"key-17\":0}");
    cr_assert_eq(json_read(buf_bytes(&text), &wide, nodes, &j, &err), ERR_INVALID);
    buf_fini(&text);
}

static void expect_written(void (*write)(struct json_writer *), const char *expected)
{
    struct buf out, log;
    struct json_writer w;
    buf_init(&out, 4096);
    buf_init(&log, 4096);
    json_start(&w, &out);
    write(&w);
    cr_expect(bytes_eq(buf_bytes(&out), bytes_str(expected)), "%.*s", (int)out.len,
              (const char *)out.data);
    cr_expect_eq(read_copy(buf_bytes(&out), &limits, &log), 0, "%s", expected);
    cr_expect_eq(w.depth, 0);
    buf_fini(&out);
    buf_fini(&log);
}

static void write_members(struct json_writer *w)
{
    json_put_object(w);
    json_put_key(w, "outcome");
    json_put_cstring(w, "cached");
    json_put_key(w, "list");
    json_put_array(w);
    json_put_integer(w, -7);
    json_put_boolean(w, true);
    json_put_null(w);
    json_put_array(w);
    json_end_array(w);
    json_put_object(w);
    json_end_object(w);
    json_end_array(w);
    json_put_key(w, "raw");
    json_put_raw(w, bytes_str("{\"a\":1}"));
    json_end_object(w);
}

static void write_escapes(struct json_writer *w)
{
    json_put_string(w, bytes_of("\"\\\b\f\n\r\t\0\x1f\x7f/\xc3\xbc", 13));
}

static void write_not_utf8(struct json_writer *w)
{
    json_put_string(w, bytes_str("a\xff\xc3z\xe2\x82"));
}

static void write_values(struct json_writer *w)
{
    json_put_array(w);
    json_put_value(w, bytes_str("\xc3\xbc"));
    json_put_value(w, bytes_str("\xff\xfe"));
    json_put_value(w, bytes_of(NULL, 0));
    json_end_array(w);
}

static void write_doubles(struct json_writer *w)
{
    json_put_array(w);
    json_put_double(w, 0.5);
    json_put_double(w, 1e300);
    json_put_double(w, 1.0 / 0.0);
    json_put_double(w, -3);
    json_end_array(w);
}

Test(json, writes_what_it_reads)
{
    expect_written(write_members, "{\"outcome\":\"cached\",\"list\":[-7,true,null,[],{}],"
                                  "\"raw\":{\"a\":1}}");
    expect_written(write_escapes, "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\x7f/\xc3\xbc\"");
    expect_written(write_not_utf8, "\"a\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\"");
    expect_written(write_values, "[\"\xc3\xbc\",{\"base64\":\"//4=\"},\"\"]");
    expect_written(write_doubles, "[0.5,1e+300,null,-3]");
}

Test(json, every_byte_survives)
{
    struct buf out;
    struct json_writer w;
    buf_init(&out, 1 << 16);
    for (unsigned c = 0; c < 128; c++) {
        uint8_t content[9] = { 'a', 'b', 'c', 'd', (uint8_t)c, 'e', 'f', 'g', 'h' }, back[64];
        struct json_node node[1];
        struct json j;
        struct err err;
        buf_clear(&out);
        json_start(&w, &out);
        json_put_string(&w, bytes_of(content, sizeof content));
        cr_assert_eq(json_read(buf_bytes(&out), &(struct json_limits){ 1, 0 }, node, &j, &err),
                     0);
        cr_assert_eq(json_unescape(&j, node, back), sizeof content);
        cr_assert_eq(memcmp(back, content, sizeof content), 0);
    }
    buf_fini(&out);
}

Test(base64, there_and_back)
{
    static const char *const table[][2] = {
        { "", "" },
        { "f", "Zg==" },
        { "fo", "Zm8=" },
        { "foo", "Zm9v" },
        { "foob", "Zm9vYg==" },
        { "fooba", "Zm9vYmE=" },
        { "\xff\xef\xbe", "/+++" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct buf out;
        uint8_t back[16];
        size_t len = 99;
        buf_init(&out, 64);
        base64_encode(bytes_str(table[i][0]), &out);
        cr_expect(bytes_eq(buf_bytes(&out), bytes_str(table[i][1])));
        cr_expect(base64_decode(bytes_str(table[i][1]), back, &len));
        cr_expect(bytes_eq(bytes_of(back, len), bytes_str(table[i][0])));
        buf_fini(&out);
    }
}

Test(base64, what_is_refused)
{
    static const char *const table[] = { "Z",    "Zg",   "Zg=",    "Zh==",     "Zm9=", "Z===",
                                         "====", "Zm 9", "Zm9v\n", "Zg==Zg==", "Zm-_", "=Zg=" };
    uint8_t out[16];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        size_t len = 99;
        cr_expect(!base64_decode(bytes_str(table[i]), out, &len), "%s", table[i]);
        cr_expect_eq(len, 99, "untouched on failure");
    }
}

/* ---- one level at a time ---- */

Test(json, what_is_deeper_than_asked_for_is_read_and_not_kept)
{
    static const char text[] =
        "{\"a\" : [1,{\"b\":[[]]},\"\\u0061\"], \"c\":{\"d\":1,\"d\":2}, \"e\":3}";
    struct json_limits one = { .nodes_max = 7 + 4, .depth_max = 5, .depth_kept = 1 };
    struct json_node nodes[7 + 4];
    struct json j;
    struct err err;
    cr_assert_eq(json_read(bytes_str(text), &one, nodes, &j, &err), 0, "%s", err.text);
    cr_assert_eq(j.count, 7);
    cr_assert_eq(nodes[0].count, 3);
    cr_assert(bytes_eq(json_text(&j, json_member(&j, nodes, "a")),
                       bytes_str("[1,{\"b\":[[]]},\"\\u0061\"]")));
    cr_assert_eq(json_member(&j, nodes, "a")->count, 3);
    cr_assert(
        bytes_eq(json_text(&j, json_member(&j, nodes, "c")), bytes_str("{\"d\":1,\"d\":2}")),
        "keys that are not kept are not compared");
    cr_assert_eq(json_member(&j, nodes, "e")->number, 3);
}

Test(json, what_is_not_kept_has_to_be_json_all_the_same)
{
    static const char *const bad[] = {
        "{\"a\":[1,]}",  "{\"a\":{\"b\" 1}}",     "{\"a\":[[[[[]]]]]}",
        "{\"a\":{1:2}}", "{\"a\":[\"\\ud800\"]}", "{\"a\":[}",
        "{\"a\":[1}",    "{\"a\":[],\"a\":1}",    "{\"a\":{\"b\":01}}",
        "{\"a\":[[]]"
    };
    struct json_limits one = { .nodes_max = 16, .depth_max = 5, .depth_kept = 1 };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct json_node nodes[16];
        struct json j;
        struct err err;
        cr_assert_lt(json_read(bytes_str(bad[i]), &one, nodes, &j, &err), 0, "%s", bad[i]);
    }
}

/* ---- members by their names ---- */

enum { MEMBERS = 3000 };

static const struct json_node *find(const struct json *j, const char *quoted)
{
    static struct json_node name;
    struct json text;
    struct json_limits one = { 1, 1 };
    struct err err;
    cr_assert_eq(json_read(bytes_str(quoted), &one, &name, &text, &err), 0, "%s", err.text);
    return json_find_key(j, j->nodes, &text, &name);
}

Test(json, members_are_found_by_what_their_names_mean)
{
    struct json_node nodes[NODES_MAX];
    struct json j;
    struct err err;
    struct bytes text = bytes_str("{\"a\":1,\"\\u00fc\":2,\"\":3,\"\\\\n\":{\"b\":4}}");
    cr_assert_eq(json_read(text, &limits, nodes, &j, &err), 0);
    cr_expect_eq(find(&j, "\"a\"")[1].number, 1);
    cr_expect_eq(find(&j, "\"\\u0061\"")[1].number, 1);
    cr_expect_eq(find(&j, "\"\xc3\xbc\"")[1].number, 2);
    cr_expect_eq(find(&j, "\"\\u00FC\"")[1].number, 2);
    cr_expect_eq(find(&j, "\"\"")[1].number, 3);
    cr_expect_eq(find(&j, "\"\\u005cn\"")[1].kind, JSON_KIND_OBJECT);
    cr_expect(!find(&j, "\"b\""), "of another object");
    cr_expect(!find(&j, "\"\\n\"") && !find(&j, "\"aa\"") && !find(&j, "\"A\""));
    cr_assert_eq(json_read(bytes_str("{}"), &limits, nodes, &j, &err), 0);
    cr_expect(!find(&j, "\"a\""));
}

Test(json, each_of_many_members_is_found)
{
    static struct json_node nodes[2 * MEMBERS + 1];
    struct json_limits many = { 2 * MEMBERS + 1, 1 };
    struct json j;
    struct err err;
    struct buf text;
    buf_init(&text, 1 << 20);
    for (int i = 0; i < MEMBERS; i++) buf_printf(&text, "%s\"k%d\":%d", i ? "," : "{", i, i);
    buf_byte(&text, '}');
    cr_assert_eq(json_read(buf_bytes(&text), &many, nodes, &j, &err), 0, "%s", err.text);
    for (int i = 0; i < MEMBERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "\"k%d\"", i);
        const struct json_node *key = find(&j, name);
        cr_assert(key && key[1].number == i, "%s", name);
    }
    cr_expect(!find(&j, "\"k3000\""));
    buf_fini(&text);
}
