/* text_test.c - tables of what is text, hexadecimal and a duration, and what is not. */
#include "base/text.h"

#include <criterion/criterion.h>
#include <stdlib.h>

Test(text, plain_utf8)
{
    static const struct {
        struct bytes in;
        bool plain;
    } table[] = {
        { { NULL, 0 }, true },
#define ROW(text, plain) { { (const uint8_t *)(text), sizeof(text) - 1 }, plain }
        ROW("abc ~", true),
        ROW("\xc3\xbc", true),         /* two bytes */
        ROW("\xe2\x82\xac", true),     /* three */
        ROW("\xf0\x9f\x94\x91", true), /* four */
        ROW("\xf4\x8f\xbf\xbf", true), /* the last code point */
        ROW("\xc2\xa0", true),         /* first after C1 */
        ROW("\xee\x80\x80", true),     /* first after the surrogates */
        ROW("\x1f", false),            /* C0 */
        ROW("a\0b", false),            /* NUL */
        ROW("\n", false),
        ROW("\x7f", false),     /* DEL */
        ROW("\xc2\x80", false), /* C1 */
        ROW("\xc2\x9f", false),
        ROW("\x80", false), /* continuation without a start */
        ROW("\xc3", false), /* cut off */
        ROW("\xe2\x82", false),
        ROW("\xf0\x9f\x94", false),
        ROW("\xc3z", false),    /* not continued */
        ROW("\xc0\x80", false), /* overlong */
        ROW("\xc1\xbf", false),
        ROW("\xe0\x9f\xbf", false),
        ROW("\xf0\x8f\xbf\xbf", false),
        ROW("\xed\xa0\x80", false), /* surrogates */
        ROW("\xed\xbf\xbf", false),
        ROW("\xf4\x90\x80\x80", false), /* beyond the last */
        ROW("\xf5\x80\x80\x80", false),
        ROW("\xff", false),
#undef ROW
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        cr_expect(text_is_plain_utf8(table[i].in) == table[i].plain, "row %zu", i);
}

Test(text, hex_goes_there_and_back)
{
    uint8_t bytes[256], back[256];
    char text[513];
    for (size_t i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    hex_encode(bytes_of(bytes, sizeof bytes), text);
    cr_assert(strlen(text) == 512 && memcmp(text, "000102", 6) == 0);
    cr_assert(hex_decode(bytes_str(text), back, sizeof back));
    cr_assert(memcmp(bytes, back, sizeof bytes) == 0);
}

Test(text, hex_takes_both_cases_and_nothing_else)
{
    uint8_t out[2] = { 9, 9 };
    cr_assert(hex_decode(bytes_str("aBFf"), out, 2) && out[0] == 0xab && out[1] == 0xff);
    static const char *const bad[] = {
        "", "a", "abc", "abcde", "abcg", "ab d", "0xab", "-1ab"
    };
    uint8_t kept[2] = { 9, 9 };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_expect(!hex_decode(bytes_str(bad[i]), kept, 2), "%s", bad[i]);
        cr_expect(kept[0] == 9 && kept[1] == 9, "untouched on failure");
    }
}

Test(text, durations)
{
    static const struct {
        const char *in;
        int64_t ms; /* -1: not a duration */
    } table[] = {
        { "0", 0 },
        { "500", 500 },
        { "500ms", 500 },
        { "30s", 30000 },
        { "5m", 300000 },
        { "24h", 86400000 },
        { "30d", 2592000000 },
        { "0d", 0 },
        { "007s", 7000 },
        { "", -1 },
        { "s", -1 },
        { "ms", -1 },
        { "-1", -1 },
        { "+1", -1 },
        { "1.5s", -1 },
        { "1 s", -1 },
        { " 1s", -1 },
        { "1s ", -1 },
        { "1S", -1 },
        { "1w", -1 },
        { "1sm", -1 },
        { "0x10", -1 },
        { "1e3", -1 },
        { "99999999999999999999", -1 },
        { "9223372036854775807d", -1 },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int64_t ms = -1;
        bool ok = duration_parse(bytes_str(table[i].in), INT64_C(86400000) * 3650, &ms);
        cr_expect(ok == (table[i].ms >= 0), "\"%s\"", table[i].in);
        cr_expect(ms == table[i].ms, "\"%s\": %lld", table[i].in, (long long)ms);
    }
}

Test(text, durations_stop_at_the_maximum)
{
    int64_t ms = -1;
    cr_assert(duration_parse(bytes_str("10s"), 10000, &ms) && ms == 10000);
    cr_assert(!duration_parse(bytes_str("10001"), 10000, &ms));
    cr_assert(!duration_parse(bytes_str("11s"), 10000, &ms));
    cr_assert(ms == 10000, "untouched on failure");
}

Test(text, numbers_are_digits_within_their_limits)
{
    int64_t n = -1;
    cr_assert(number_within("0", 0, 10, &n) && n == 0);
    cr_assert(number_within("10", 0, 10, &n) && n == 10);
    const char *bad[] = { "", "11", "-1", "+1", " 1", "1 ", "0x1", "99999999999999999999999" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert_not(number_within(bad[i], 0, 10, &n), "'%s'", bad[i]);
    cr_assert_eq(n, 10);
}

Test(text, escapes_of_urls)
{
    char good[] = "a%41%2fb%25", plain[] = "",
         *bad[] = { strdup("%"), strdup("%4"), strdup("%4g"), strdup("%00") };
    cr_assert(url_unescape(good));
    cr_assert_str_eq(good, "aA/b%");
    cr_assert(url_unescape(plain));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert_not(url_unescape(bad[i]));
        free(bad[i]);
    }
}

Test(text, urls_are_shown_without_secrets)
{
    char out[64];
    url_shown("postgres://u:p@h/db?password=x", out, sizeof out);
    cr_assert_str_eq(out, "postgres://h/db");
    url_shown("redis:///run/redis?password=x", out, sizeof out);
    cr_assert_str_eq(out, "redis:///run/redis");
    url_shown("memory:", out, 4);
    cr_assert_str_eq(out, "mem");
    url_shown("redis://:a?b@c@h:1/2", out, sizeof out);
    cr_assert_str_eq(out, "redis://h:1/2");
    url_shown("redis:/u:p@h", out, sizeof out); /* not well formed, and no less a secret */
    cr_assert_str_eq(out, "redis:");
    url_shown("once:t@/sock", out, sizeof out);
    cr_assert_str_eq(out, "once:");
    url_shown("postgres:host=h password=a://b", out, sizeof out); /* libpq's other form */
    cr_assert_str_eq(out, "postgres:");
    url_shown("host=h password=p user=u", out, sizeof out);
    cr_assert_str_eq(out, "");
    url_shown("/etc/once@home/a=b", out, sizeof out);
    cr_assert_str_eq(out, "/etc/once@home/a=b");
    url_shown("sqlite:/home/me@work/once.db?sync=full", out, sizeof out);
    cr_assert_str_eq(out, "sqlite:/home/me@work/once.db");
    url_shown("127.0.0.1:8080", out, sizeof out);
    cr_assert_str_eq(out, "127.0.0.1:8080");
}
