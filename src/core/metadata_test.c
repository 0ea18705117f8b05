/* metadata_test.c - what operations do, what they leave alone, and what is refused and why. */
#include "core/metadata.h"

#include "core/run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

struct scene {
    struct buf out;
    struct err err;
};
static struct scene scene;

static void setup(void)
{
    buf_init(&scene.out, 4 * METADATA_BYTES_MAX);
}

static void teardown(void)
{
    buf_fini(&scene.out);
}

TestSuite(metadata, .init = setup, .fini = teardown);

/* Both texts in memory of exactly their size: nothing beyond them is read. */
static int apply_copy(struct bytes metadata, struct bytes operations)
{
    uint8_t *m = malloc(metadata.len + 1), *o = malloc(operations.len + 1);
    if (metadata.len) memcpy(m + 1, metadata.data, metadata.len);
    memcpy(o + 1, operations.data, operations.len);
    buf_clear(&scene.out);
    scene.err = (struct err){ 0 };
    int r = metadata_apply(bytes_of(m + 1, metadata.len), bytes_of(o + 1, operations.len),
                           &scene.out, &scene.err);
    cr_assert_eq(r, scene.err.code);
    if (r) cr_assert_eq(scene.out.len, 0, "all operations or none");
    free(m);
    free(o);
    return r;
}

static void expect_result(const char *metadata, const char *operations, const char *expected)
{
    struct err err;
    int r = apply_copy(bytes_str(metadata), bytes_str(operations));
    cr_assert_eq(r, 0, "%s %s: %s", metadata, operations, scene.err.text);
    cr_expect(bytes_eq(buf_bytes(&scene.out), bytes_str(expected)), "%s %s: %.*s", metadata,
              operations, (int)scene.out.len, (const char *)scene.out.data);
    cr_expect_eq(metadata_check(buf_bytes(&scene.out), &err), 0, "%s", expected);
}

struct row {
    const char *metadata, *operations, *expected;
};
#define EXPECT_ROWS(expect, ...)                                                               \
    do {                                                                                       \
        static const struct row rows[] = __VA_ARGS__;                                          \
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)                              \
            expect(rows[i].metadata, rows[i].operations, rows[i].expected);                    \
    } while (0)

#define OP(type, key, value) "{\"type\":\"" type "\",\"key\":\"" key "\",\"value\":" value "}"
#define REMOVE(key) "{\"type\":\"remove\",\"key\":\"" key "\"}"

Test(metadata, set)
{
    EXPECT_ROWS(
        expect_result,
        {
            { "", "[" OP("set", "x", "[]") "]", "{\"x\":[]}" },
            { "{}", "[" OP("set", "x", "{}") "]", "{\"x\":{}}" },
            { "{\"x\":1}", "[" OP("set", "x", "null") "]", "{\"x\":null}" },
            { "{\"x\":1,\"y\":2}", "[" OP("set", "x", "\"\\u0061\"") "]",
              "{\"x\":\"\\u0061\",\"y\":2}" },
            { "{\"x\":1}", "[" OP("set", "y", "9007199254740993") "]",
              "{\"x\":1,\"y\":9007199254740993}" },
            { "{\"x\":1}", "[" OP("set", "y", "1") "," OP("set", "x", "2") "]",
              "{\"x\":2,\"y\":1}" },
            { "{}", "[" OP("set", "", "{ \"a\" : [ ] }") "]", "{\"\":{ \"a\" : [ ] }}" },
        });
}

Test(metadata, increment)
{
    EXPECT_ROWS(
        expect_result,
        {
            { "", "[" OP("increment", "n", "5") "]", "{\"n\":5}" },
            { "{\"n\":1}", "[{\"key\":\"n\",\"type\":\"increment\"}]", "{\"n\":2}" },
            { "{\"n\":-3}", "[" OP("increment", "n", "-4") "]", "{\"n\":-7}" },
            { "{\"n\":9007199254740993}", "[" OP("increment", "n", "1") "]",
              "{\"n\":9007199254740994}" },
            { "{\"n\":9223372036854775806}", "[" OP("increment", "n", "1") "]",
              "{\"n\":9223372036854775807}" },
            { "{\"n\":-9223372036854775807}", "[" OP("increment", "n", "-1") "]",
              "{\"n\":-9223372036854775808}" },
            { "{\"n\":1}", "[" OP("increment", "n", "0.5") "]", "{\"n\":1.5}" },
            { "{\"n\":0.1}", "[" OP("increment", "n", "0.2") "]",
              "{\"n\":0.30000000000000004}" },
            { "{\"n\":1.5}", "[" OP("increment", "n", "1.5") "]", "{\"n\":3}" },
            { "{\"n\":1e2}", "[" OP("increment", "n", "1") "]", "{\"n\":101}" },
            { "{\"n\":-0}", "[" OP("increment", "n", "0") "]", "{\"n\":0}" },
            { "{\"n\":1}", "[" OP("increment", "n", "1e-400") "]", "{\"n\":1}" },
            { "{}", "[" OP("increment", "n", "1") "," OP("increment", "n", "2") "]",
              "{\"n\":3}" },
            { "{}", "[" OP("set", "n", "40") "," OP("increment", "n", "2") "]", "{\"n\":42}" },
        });
}

Test(metadata, append)
{
    EXPECT_ROWS(
        expect_result,
        {
            { "", "[" OP("append", "l", "1") "]", "{\"l\":[1]}" },
            { "{\"l\":[]}", "[" OP("append", "l", "{}") "]", "{\"l\":[{}]}" },
            { "{\"l\":[ ]}", "[" OP("append", "l", "[]") "]", "{\"l\":[ []]}" },
            { "{\"l\":[1.0, {\"a\" :9007199254740993}]}", "[" OP("append", "l", "\"x\"") "]",
              "{\"l\":[1.0, {\"a\" :9007199254740993},\"x\"]}" },
            { "{\"l\":[0]}",
              "[" OP("append", "l", "1") "," OP("append", "m", "2") "," OP("append", "l",
                                                                           "3") "]",
              "{\"l\":[0,1,3],\"m\":[2]}" },
            { "{\"l\":7}", "[" OP("set", "l", "[]") "," OP("append", "l", "1") "]",
              "{\"l\":[1]}" },
            { "{\"l\":[7]}",
              "[" OP("append", "l", "8") "," OP("set", "l", "[1]") "," OP("append", "l",
                                                                          "2") "]",
              "{\"l\":[1,2]}" },
            { "{\"l\":[7]}", "[" OP("append", "l", "8") "," OP("set", "l", "9") "]",
              "{\"l\":9}" },
        });
}

Test(metadata, remove)
{
    EXPECT_ROWS(
        expect_result,
        {
            { "", "[" REMOVE("x") "]", "{}" },
            { "{\"x\":1}", "[" REMOVE("x") "]", "{}" },
            { "{\"a\":1,\"x\":1}", "[" REMOVE("x") "]", "{\"a\":1}" },
            { "{\"x\":1,\"a\":1}", "[" REMOVE("x") "]", "{\"a\":1}" },
            { "{\"a\":1,\"x\":{\"x\":2},\"b\":2}", "[" REMOVE("x") "]", "{\"a\":1,\"b\":2}" },
            { "{\"a\":{\"x\":2}}", "[" REMOVE("x") "," REMOVE("x") "]", "{\"a\":{\"x\":2}}" },
            { "{\"x\":5,\"a\":1}", "[" REMOVE("x") "," OP("increment", "x", "1") "]",
              "{\"a\":1,\"x\":1}" },
            { "{\"x\":5,\"a\":1}", "[" REMOVE("x") "," OP("append", "x", "1") "]",
              "{\"a\":1,\"x\":[1]}" },
            { "",
              "[" OP("set", "x", "1") "," OP("set", "y", "2") "," REMOVE("x") "," OP("set", "x",
                                                                                     "3") "]",
              "{\"y\":2,\"x\":3}" },
            { "{\"a\":0}", "[" OP("set", "x", "1") "," REMOVE("x") "," REMOVE("a") "]", "{}" },
        });
}

Test(metadata, what_no_operation_names_stays_byte_for_byte)
{
    EXPECT_ROWS(expect_result,
                {
                    { "{\"z\":[],\"a\":{},\"big\":9007199254740993,\"n\":1,\"f\":1.0e0}",
                      "[" OP("increment", "n", "1") "]",
                      "{\"z\":[],\"a\":{},\"big\":9007199254740993,\"n\":2,\"f\":1.0e0}" },
                    { "{ \"b\" : [ [] , {} ] ,\n \"n\":\t0 , \"\\u0061\":\"\\/\" }",
                      "[" OP("increment", "n", "1") "]",
                      "{ \"b\" : [ [] , {} ] ,\n \"n\":\t1 , \"\\u0061\":\"\\/\" }" },
                    { "  {\"a\":12345678901234567890123.50,\"b\":1}  ", "[" REMOVE("b") "]",
                      "{\"a\":12345678901234567890123.50}" },
                    { "{\"a\": 1 , \"b\":2}", "[]", "{\"a\": 1 , \"b\":2}" },
                });
}

Test(metadata, keys_are_compared_by_what_they_mean)
{
    EXPECT_ROWS(
        expect_result,
        {
            { "{\"\\u0061\":1}", "[" OP("increment", "a", "1") "]", "{\"\\u0061\":2}" },
            { "{\"a\":1}", "[" OP("increment", "\\u0061", "1") "]", "{\"a\":2}" },
            { "{\"\xc3\xbc\":1}", "[" OP("increment", "\\u00fc", "1") "]", "{\"\xc3\xbc\":2}" },
            { "{}", "[" OP("set", "\\n", "1") "," OP("set", "\\u000a", "2") "]",
              "{\"\\n\":2}" },
            { "{\"a\":1}", "[" OP("set", "A", "1") "]", "{\"a\":1,\"A\":1}" },
        });
}

/* ---- what is refused ---- */

static void expect_refused(const char *metadata, const char *operations, const char *why)
{
    int r = apply_copy(bytes_str(metadata), bytes_str(operations));
    cr_expect(r == ERR_INVALID && strcmp(scene.err.text, why) == 0, "%s %s: %d %s", metadata,
              operations, r, scene.err.text);
}

Test(metadata, operations_that_make_no_sense)
{
    EXPECT_ROWS(
        expect_refused,
        {
            { "{}", "", "the operations: JSON: a value is missing at byte 0" },
            { "{}", "{}", "the operations are not an array" },
            { "{}", "[] x", "the operations: JSON: something behind the value at byte 3" },
            { "{}", "[1]", "operation 1: it is not an object" },
            { "{}", "[" REMOVE("a") ",{}]", "operation 2: the type is missing" },
            { "{}", "[{\"key\":\"a\"}]", "operation 1: the type is missing" },
            { "{}", "[" OP("multiply", "a", "2") "]",
              "operation 1: its type is none of increment, append, set, remove" },
            { "{}", "[{\"type\":1,\"key\":\"a\"}]",
              "operation 1: its type is none of increment, append, set, remove" },
            { "{}", "[{\"type\":\"increment\"}]", "operation 1: the key is missing" },
            { "{}", "[{\"type\":\"set\",\"key\":1,\"value\":1}]",
              "operation 1: the key is not a string" },
            { "{}", "[{\"type\":\"set\",\"key\":\"a\"}]", "operation 1: the value is missing" },
            { "{}", "[{\"type\":\"append\",\"key\":\"a\"}]",
              "operation 1: the value is missing" },
            { "{}", "[" OP("remove", "a", "1") "]", "operation 1: it takes no value" },
            { "{}",
              "[" REMOVE("a") "," REMOVE("b") ",{\"type\":\"remove\",\"key\":\"a\","
                                              "\"valu\":1}]",
              "operation 3: it has more than type, key and value" },
            { "{}", "[{\"type\":\"set\",\"key\":\"a\",\"value\":1,\"key2\":1}]",
              "operation 1: it has more than type, key and value" },
            { "{}", "[{\"type\":\"set\",\"key\":\"a\",\"key\":\"b\",\"value\":1}]",
              "the operations: JSON: a key is repeated at byte 30" },
            { "{}", "[" OP("set", "a", "{\"x\":1,\"x\":2}") "]",
              "the operations: JSON: a key is repeated at byte 43" },
            { "{}", "[" OP("increment", "a", "\"1\"") "]",
              "operation 1: the value is not a number that fits" },
            { "{}", "[" OP("increment", "a", "9223372036854775808") "]",
              "operation 1: the value is not a number that fits" },
            { "{}", "[" OP("increment", "a", "1e400") "]",
              "operation 1: the value is not a number that fits" },
        });
    struct err err;
    cr_assert_eq(metadata_check_operations(bytes_str("[1]"), &err), ERR_INVALID);
    cr_assert_eq(metadata_check_operations(bytes_str("[" REMOVE("a") "]"), &err), 0);
    cr_assert_eq(metadata_check_operations(bytes_str("[" OP("increment", "a", "[]") "]"), &err),
                 ERR_INVALID);
}

Test(metadata, operations_that_do_not_fit_what_is_there)
{
    EXPECT_ROWS(expect_refused,
                {
                    { "{\"a\":\"1\"}", "[" OP("increment", "a", "1") "]",
                      "operation 1: what it increments is not a number" },
                    { "{\"a\":null}", "[" OP("increment", "a", "1") "]",
                      "operation 1: what it increments is not a number" },
                    { "{\"a\":9223372036854775808}", "[" OP("increment", "a", "1") "]",
                      "operation 1: what it increments is not a number" },
                    { "{}", "[" OP("append", "a", "1") "," OP("increment", "a", "1") "]",
                      "operation 2: what it increments is not a number" },
                    { "{\"a\":9223372036854775807}", "[" OP("increment", "a", "1") "]",
                      "operation 1: the sum does not fit" },
                    { "{\"a\":-9223372036854775808}", "[" OP("increment", "a", "-1") "]",
                      "operation 1: the sum does not fit" },
                    { "{\"a\":1.7e308}", "[" OP("increment", "a", "1.7e308") "]",
                      "operation 1: the sum does not fit" },
                    { "{\"a\":{}}", "[" OP("append", "a", "1") "]",
                      "operation 1: what it appends to is not an array" },
                    { "{\"a\":1}", "[" OP("increment", "a", "1") "," OP("append", "a", "1") "]",
                      "operation 2: what it appends to is not an array" },
                });
}

Test(metadata, what_is_not_an_object_is_refused)
{
    EXPECT_ROWS(
        expect_refused,
        {
            { "[]", "[]", "the metadata is not a JSON object" },
            { "{", "[]", "the metadata: JSON: a key is missing at byte 1" },
            { "{\"a\":1,\"a\":2}", "[]", "the metadata: JSON: a key is repeated at byte 10" },
            { "{\"a\":{\"b\":1,\"\\u0062\":2}}", "[]",
              "the metadata: JSON: a key is repeated at byte 20" },
            { "{\"a\":\"\xff\"}", "[]", "the metadata: JSON: malformed string at byte 6" },
        });
    struct err err;
    cr_assert_eq(metadata_check(bytes_str(""), &err), ERR_INVALID);
    cr_assert_eq(metadata_check(bytes_str("\"text\""), &err), ERR_INVALID);
    cr_assert_eq(metadata_check(bytes_str("{}x"), &err), ERR_INVALID);
    cr_assert_eq(metadata_check(bytes_str(" {} "), &err), 0);
}

/* ---- limits ---- */

/* {"a":"...", "n":0} of exactly so many bytes. */
static void fill(struct buf *to, size_t bytes)
{
    buf_add(to, bytes_str("{\"a\":\""));
    while (to->len < bytes - strlen("\",\"n\":0}")) buf_byte(to, ',');
    buf_add(to, bytes_str("\",\"n\":0}"));
    cr_assert_eq(to->len, bytes);
}

Test(metadata, as_long_as_it_may_be_and_no_longer)
{
    struct buf full;
    struct err err;
    struct bytes add_nine = bytes_str("[" OP("increment", "n", "9") "]");
    struct bytes add_ten = bytes_str("[" OP("increment", "n", "10") "]");
    buf_init(&full, METADATA_BYTES_MAX + 1);
    fill(&full, METADATA_BYTES_MAX);
    cr_assert_eq(metadata_check(buf_bytes(&full), &err), 0);
    cr_assert_eq(apply_copy(buf_bytes(&full), add_nine), 0);
    cr_assert_eq(scene.out.len, METADATA_BYTES_MAX);
    cr_assert_eq(apply_copy(buf_bytes(&full), add_ten), ERR_LIMIT);
    buf_clear(&full);
    fill(&full, METADATA_BYTES_MAX + 1);
    cr_assert_eq(metadata_check(buf_bytes(&full), &err), ERR_LIMIT);
    cr_assert_eq(apply_copy(buf_bytes(&full), add_nine), ERR_LIMIT);
    cr_assert_eq(metadata_check_operations(buf_bytes(&full), &err), ERR_LIMIT);
    buf_fini(&full);
}

Test(metadata, a_buffer_without_room_is_left_as_it_was)
{
    struct buf small;
    struct err err;
    buf_init(&small, 10);
    buf_add(&small, bytes_str("before"));
    int r = metadata_apply(bytes_str("{\"a\":1}"), bytes_str("[]"), &small, &err);
    cr_assert_eq(r, ERR_LIMIT);
    cr_assert(bytes_eq(buf_bytes(&small), bytes_str("before")));
    buf_fini(&small);
}

/* So many arrays within each other, and what stands around them. */
static struct bytes nested(struct buf *to, const char *before, int depth, const char *after)
{
    buf_clear(to);
    buf_add(to, bytes_str(before));
    for (int i = 0; i < depth; i++) buf_byte(to, '[');
    for (int i = 0; i < depth; i++) buf_byte(to, ']');
    buf_add(to, bytes_str(after));
    return buf_bytes(to);
}

/* However deep a value may be in an operation, what comes of it may be read again. */
Test(metadata, no_deeper_than_it_may_be)
{
    static const char *const types[] = { "set", "append" };
    struct buf text;
    struct err err;
    buf_init(&text, 4096);
    cr_assert_eq(metadata_check(nested(&text, "{\"a\":", 63, "}"), &err), 0);
    cr_assert_eq(metadata_check(nested(&text, "{\"a\":", 64, "}"), &err), ERR_LIMIT);
    for (size_t i = 0; i < 2; i++) {
        char before[64];
        snprintf(before, sizeof before, "[{\"type\":\"%s\",\"key\":\"a\",\"value\":", types[i]);
        cr_assert_eq(apply_copy(bytes_str(""), nested(&text, before, 62, "}]")), 0);
        cr_assert_eq(metadata_check(buf_bytes(&scene.out), &err), 0);
        cr_assert_eq(apply_copy(bytes_str(""), nested(&text, before, 63, "}]")), ERR_LIMIT);
    }
    buf_fini(&text);
}

static struct bytes repeat(struct buf *to, const char *before, const char *each, int count)
{
    buf_clear(to);
    buf_add(to, bytes_str(before));
    for (int i = 0; i < count; i++) buf_printf(to, "%s%s", i ? "," : "", each);
    buf_byte(to, before[0] == '[' ? ']' : '}');
    return buf_bytes(to);
}

Test(metadata, a_hundred_operations_and_no_more)
{
    struct buf text;
    buf_init(&text, 1 << 16);
    cr_assert_eq(apply_copy(bytes_str(""), repeat(&text, "[", OP("increment", "n", "1"), 100)),
                 0);
    cr_assert(bytes_eq(buf_bytes(&scene.out), bytes_str("{\"n\":100}")));
    cr_assert_eq(apply_copy(bytes_str(""), repeat(&text, "[", OP("append", "n", "1"), 101)),
                 ERR_LIMIT);
    buf_fini(&text);
}

/* More members than there are nodes in place, a hundred of them named, in another order. */
Test(metadata, many_members)
{
    enum { MEMBERS = 5000 };
    struct buf text, operations, expected;
    buf_init(&text, METADATA_BYTES_MAX);
    buf_init(&operations, METADATA_BYTES_MAX);
    buf_init(&expected, METADATA_BYTES_MAX);
    for (int i = 0; i < MEMBERS; i++) {
        bool named = i % (MEMBERS / 100) == 7;
        buf_printf(&text, "%s\"key %d\":[%d]", i ? "," : "{", i, i);
        buf_printf(&expected, "%s\"key %d\":[%d%s]", i ? "," : "{", i, i, named ? ",-1" : "");
    }
    for (int i = MEMBERS - 1; i >= 0; i--)
        if (i % (MEMBERS / 100) == 7)
            buf_printf(&operations, "%s{\"type\":\"append\",\"key\":\"key %d\",\"value\":-1}",
                       operations.len ? "," : "[", i);
    buf_byte(&text, '}');
    buf_byte(&expected, '}');
    buf_byte(&operations, ']');
    cr_assert_eq(apply_copy(buf_bytes(&text), buf_bytes(&operations)), 0, "%s", scene.err.text);
    cr_assert(bytes_eq(buf_bytes(&scene.out), buf_bytes(&expected)));
    buf_fini(&text);
    buf_fini(&operations);
    buf_fini(&expected);
}

Test(metadata, fifty_increments_sum_up_one_after_another)
{
    char metadata[64] = "{\"z\":[],\"n\":0,\"big\":9007199254740993}";
    for (int i = 0; i < 50; i++) {
        int r = apply_copy(bytes_str(metadata), bytes_str("[" OP("increment", "n", "1") "]"));
        cr_assert(r == 0 && scene.out.len < sizeof metadata);
        memcpy(metadata, scene.out.data, scene.out.len);
        metadata[scene.out.len] = '\0';
    }
    cr_assert_str_eq(metadata, "{\"z\":[],\"n\":50,\"big\":9007199254740993}");
}

Test(metadata, a_text_that_is_cut_off_is_refused)
{
    struct bytes text = bytes_str("{\"a\": [1, {\"b\": \"\\u00fc\"}], \"n\": 2}");
    struct bytes operations =
        bytes_str("[" OP("append", "a", "{\"x\":[]}") "," REMOVE("n") "]");
    for (size_t len = 1; len < text.len; len++)
        cr_assert_eq(apply_copy(bytes_of(text.data, len), operations), ERR_INVALID);
    for (size_t len = 0; len < operations.len; len++)
        cr_assert_eq(apply_copy(text, bytes_of(operations.data, len)), ERR_INVALID);
    cr_assert_eq(apply_copy(text, operations), 0);
}
