/* format_test.c - durations, sizes, escapes and fingerprints as people and programs see them.
 */
#include "cli/fingerprint.h"
#include "cli/format.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static void expect_duration(int64_t ms, const char *want)
{
    char got[DURATION_TEXT_BYTES];
    cr_assert_str_eq(format_duration(ms, got), want);
}

Test(format, durations)
{
    expect_duration(-5, "0ms");
    expect_duration(999, "999ms");
    expect_duration(1000, "1s");
    expect_duration(1240, "1.2s");
    expect_duration(59999, "59.9s");
    expect_duration(60000, "1m");
    expect_duration(200000, "3m20s");
    expect_duration(3600000, "1h");
    expect_duration(86399999, "23h59m");
    expect_duration(90000000, "1d1h");
    expect_duration(INT64_MAX, "106751991167d7h");
}

Test(format, sizes)
{
    char got[SIZE_TEXT_BYTES];
    cr_assert_str_eq(format_size(0, got), "0");
    cr_assert_str_eq(format_size(1023, got), "1023");
    cr_assert_str_eq(format_size(1024, got), "1.0k");
    cr_assert_str_eq(format_size(1048576, got), "1.0M");
    cr_assert_str_eq(format_size(UINT64_C(5) << 40, got), "5.0T");
    cr_assert_str_eq(format_size(UINT64_MAX, got), "16777216.0T");
}

static void expect_escaped(struct bytes in, const char *want)
{
    char *got = NULL;
    size_t len;
    FILE *to = open_memstream(&got, &len);
    print_escaped(to, in);
    fclose(to);
    cr_assert_str_eq(got, want);
    free(got);
}

Test(format, escapes_what_could_deceive)
{
    expect_escaped(bytes_str("plain/key:1"), "plain/key:1");
    expect_escaped(bytes_str("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
    expect_escaped(bytes_str("a\\x41"), "a\\\\x41");
    expect_escaped(bytes_str("a\xe2\x80\xae"
                             "b"),
                   "a\\xe2\\x80\\xaeb");
    expect_escaped(bytes_str("\xef\xbb\xbf"), "\\xef\\xbb\\xbf");
    expect_escaped(bytes_str("\x1b[31m"), "\\x1b[31m");
    expect_escaped(bytes_str("\xff\xc3\xbc"), "\\xff\\xc3\\xbc");
    expect_escaped(bytes_of(NULL, 0), "");
}

static void expect_json(struct bytes in, const char *want)
{
    json_t *value = json_bytes(in);
    char *got = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    cr_assert_str_eq(got, want);
    free(got);
    json_decref(value);
}

Test(format, bytes_as_json)
{
    expect_json(bytes_of(NULL, 0), "\"\"");
    expect_json(bytes_str("say \"hi\""), "\"say \\\"hi\\\"\"");
    expect_json(bytes_of("a\0b", 3), "\"a\\u0000b\"");
    expect_json(bytes_of("\xff", 1), "{\"base64\":\"/w==\"}");
    expect_json(bytes_of("\xff\xfe\xfd", 3), "{\"base64\":\"//79\"}");
}

static struct fingerprint of_words(size_t count, char *const *words)
{
    struct fingerprint f;
    cr_assert_eq(fingerprint_words(words, count, &f), 0);
    cr_assert_eq(f.len, DIGEST_BYTES);
    return f;
}

Test(fingerprint, words_are_framed)
{
    struct fingerprint a = of_words(2, (char *[]){ "ab", "c" });
    struct fingerprint b = of_words(2, (char *[]){ "a", "bc" });
    struct fingerprint c = of_words(3, (char *[]){ "ab", "c", "" });
    struct fingerprint again = of_words(2, (char *[]){ "ab", "c" });
    cr_assert_neq(memcmp(a.bytes, b.bytes, a.len), 0);
    cr_assert_neq(memcmp(a.bytes, c.bytes, a.len), 0);
    cr_assert_eq(memcmp(a.bytes, again.bytes, a.len), 0);
}

Test(fingerprint, text_is_itself_until_it_is_too_long)
{
    char text[FINGERPRINT_BYTES + 2];
    struct fingerprint f;
    memset(text, 'x', sizeof text);
    text[FINGERPRINT_BYTES] = '\0';
    cr_assert_eq(fingerprint_text(text, &f), 0);
    cr_assert_eq(f.len, FINGERPRINT_BYTES);
    cr_assert_eq(memcmp(f.bytes, text, f.len), 0);
    text[FINGERPRINT_BYTES] = 'x';
    text[FINGERPRINT_BYTES + 1] = '\0';
    cr_assert_eq(fingerprint_text(text, &f), 0);
    cr_assert_eq(f.len, DIGEST_BYTES);
    cr_assert_eq(fingerprint_text("", &f), 0);
    cr_assert_eq(f.len, 0);
}
