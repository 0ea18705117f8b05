/* number_test.c - numbers at their limits. */
#include "proto/number.h"

#include <criterion/criterion.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

Test(number, integers)
{
    static const struct {
        const char *text;
        bool fine;
        int64_t n;
    } table[] = {
        { "0", true, 0 },
        { "7", true, 7 },
        { "-7", true, -7 },
        { "9223372036854775807", true, INT64_MAX },
        { "-9223372036854775808", true, INT64_MIN },
        { "9223372036854775808", false, 0 },
        { "-9223372036854775809", false, 0 },
        { "99999999999999999999", false, 0 },
        { "", false, 0 },
        { "-", false, 0 },
        { "-0", false, 0 },
        { "00", false, 0 },
        { "01", false, 0 },
        { "+1", false, 0 },
        { " 1", false, 0 },
        { "1 ", false, 0 },
        { "1a", false, 0 },
        { "0x1", false, 0 },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int64_t n = 99;
        char back[NUMBER_BYTES_MAX];
        cr_expect_eq(number_parse(bytes_str(table[i].text), &n), table[i].fine, "%s",
                     table[i].text);
        cr_expect_eq(n, table[i].fine ? table[i].n : 99, "%s", table[i].text);
        if (table[i].fine)
            cr_expect(
                bytes_eq(bytes_of(back, number_write(n, back)), bytes_str(table[i].text)));
    }
}

Test(number, unsigned_ones)
{
    static const struct {
        const char *text;
        bool fine;
        uint64_t n;
    } table[] = {
        { "0", true, 0 },
        { "7", true, 7 },
        { "18446744073709551615", true, UINT64_MAX },
        { "18446744073709551616", false, 0 },
        { "99999999999999999999", false, 0 },
        { "184467440737095516150", false, 0 },
        { "", false, 0 },
        { "-1", false, 0 },
        { "+1", false, 0 },
        { "01", false, 0 },
        { "1 ", false, 0 },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        uint64_t n = 0;
        cr_expect_eq(number_parse_unsigned(bytes_str(table[i].text), &n), table[i].fine, "%s",
                     table[i].text);
        cr_expect_eq(n, table[i].n, "%s", table[i].text);
    }
}

Test(number, lengths)
{
    static const struct {
        const char *text;
        int64_t n; /* -1: not a length */
    } table[] = {
        { "0", 0 },
        { "007", 7 },
        { "000000000000000000000000000012", 12 },
        { "9223372036854775807", INT64_MAX },
        { "9223372036854775808", INT64_MAX },
        { "99999999999999999999999999999999", INT64_MAX },
        { "", -1 },
        { "-1", -1 },
        { "+1", -1 },
        { "1,1", -1 },
        { "0x1", -1 },
        { "99999999999999999999999999999999x", -1 },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int64_t n = -1;
        number_parse_length(bytes_str(table[i].text), &n);
        cr_expect_eq(n, table[i].n, "%s", table[i].text);
    }
}

static void expect_double(double d, const char *expected)
{
    char text[NUMBER_BYTES_MAX];
    size_t len = number_write_double(d, text);
    cr_expect(bytes_eq(bytes_of(text, len), bytes_str(expected)), "%.*s", (int)len, text);
}

Test(number, doubles)
{
    expect_double(0, "0");
    expect_double(-0.0, "-0");
    expect_double(0.1, "0.1");
    expect_double(0.1 + 0.2, "0.30000000000000004");
    expect_double(1e22, "1e+22");
    expect_double(-DBL_MAX, "-1.7976931348623157e+308");
    expect_double(DBL_TRUE_MIN, "4.94065645841247e-324");
    expect_double(NAN, "nan");
    expect_double(INFINITY, "inf");
    expect_double(-INFINITY, "-inf");
}

static void expect_parsed(const char *text, double expected)
{
    double d = 77;
    cr_expect(number_parse_double(bytes_str(text), &d), "%s", text);
    cr_expect(d == expected && signbit(d) == signbit(expected), "%s: %.17g", text, d);
}

Test(number, doubles_are_read)
{
    static const char *const texts[] = {
        "0",
        "-0",
        "1",
        "-1.5",
        "0.1",
        "0.30000000000000004",
        "1e3",
        "1E+3",
        "1.25e-3",
        "000.0001e4",
        "123456789012345678901234567890",
        "1.7976931348623157e308",
        "4.9e-324",
        "2.2250738585072011e-308",
        "9007199254740993",
        "0.000e999999999999999999999999",
        "1e-999999999999999999999999",
        "0.1e-307",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        expect_parsed(texts[i], strtod(texts[i], NULL));
}

Test(number, what_is_no_double)
{
    static const char *const texts[] = {
        "",    "-",   ".5",  "1.", "1e", "1e+", "+1",   "1.e1",  "1e1.",
        "0x1", "inf", "nan", "1 ", " 1", "1,5", "1e5x", "1e309", "-1e999999999999999999999"
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        double d = 77;
        cr_expect(!number_parse_double(bytes_str(texts[i]), &d), "%s", texts[i]);
        cr_expect_eq(d, 77);
    }
}

/* Halfway between two doubles it is the last digit that counts, wherever it stands. */
Test(number, doubles_of_many_digits)
{
    enum { ZEROS = 2000 };
    static char text[64 + ZEROS];
    size_t len = (size_t)sprintf(text, "9007199254740993.");
    memset(text + len, '0', ZEROS);
    expect_parsed(text, 9007199254740992.0);
    text[len + ZEROS - 1] = '1';
    expect_parsed(text, 9007199254740994.0);
    memset(text, '0', ZEROS);
    memcpy(text, "1", 1);
    sprintf(text + ZEROS, "e-%d", ZEROS - 1);
    expect_parsed(text, 1);
}

/* Only where the machine has such a locale; elsewhere it says the same as the test above. */
Test(number, doubles_in_a_locale_with_another_point)
{
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) setlocale(LC_NUMERIC, "fr_FR.UTF-8");
    expect_parsed("-1.5", -1.5);
    expect_double(-1.5, "-1.5");
    expect_double(1.25e300, "1.25e+300");
}
