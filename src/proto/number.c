/* number.c - see number.h. */
#include "proto/number.h"

#include "proto/chars.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The digits as a number below zero: there is one more of those than above. */
static bool parse_negative(struct bytes digits, int64_t *ret)
{
    if (digits.len == 0 || digits.len > 19) return false;
    if (digits.data[0] == '0' && digits.len > 1) return false;
    int64_t n = 0;
    for (size_t i = 0; i < digits.len; i++) {
        if (!char_is(digits.data[i], CHAR_DIGIT)) return false;
        if (__builtin_mul_overflow(n, 10, &n)) return false;
        if (__builtin_sub_overflow(n, digits.data[i] - '0', &n)) return false;
    }
    *ret = n;
    return true;
}

bool number_parse(struct bytes in, int64_t *ret)
{
    bool negative = in.len > 0 && in.data[0] == '-';
    int64_t n;
    if (!parse_negative(negative ? bytes_from(in, 1) : in, &n)) return false;
    if (negative && n == 0) return false;
    if (!negative && n == INT64_MIN) return false;
    *ret = negative ? n : -n;
    return true;
}

bool number_parse_unsigned(struct bytes in, uint64_t *ret)
{
    uint64_t n = 0;
    if (in.len == 0 || (in.data[0] == '0' && in.len > 1)) return false;
    for (size_t i = 0; i < in.len; i++) {
        if (!char_is(in.data[i], CHAR_DIGIT)) return false;
        if (__builtin_mul_overflow(n, 10, &n)) return false;
        if (__builtin_add_overflow(n, in.data[i] - '0', &n)) return false;
    }
    *ret = n;
    return true;
}

bool number_parse_length(struct bytes in, int64_t *ret)
{
    int64_t n = 0;
    if (in.len == 0) return false;
    for (size_t i = 0; i < in.len; i++) {
        if (!char_is(in.data[i], CHAR_DIGIT)) return false;
        int digit = in.data[i] - '0';
        n = n > (INT64_MAX - digit) / 10 ? INT64_MAX : n * 10 + digit;
    }
    *ret = n;
    return true;
}

/* ---- a double, without the point that a locale may write in another way ---- */

enum {
    DIGITS_MAX = 770
}; /* no two doubles, and what is halfway between them, differ behind these */

struct decimal {
    char
        text[1 + DIGITS_MAX + 1 + 24]; /* sign, digits, a last one for all the rest, exponent */
    size_t len, digits;
    int64_t exponent;
    bool more; /* digits that are left out are not all zero */
};

static void add_digit(struct decimal *d, uint8_t digit, bool fraction)
{
    bool leading = d->digits == 0 && digit == '0', fits = d->digits < DIGITS_MAX;
    if (!leading && fits) d->text[d->len++] = (char)digit, d->digits++;
    if (!fits && digit != '0') d->more = true;
    if (fits && fraction) d->exponent--;
    if (!fits && !fraction) d->exponent++;
}

/* Takes the digits from the front; false: there are none. */
static bool take_digits(struct bytes *in, struct decimal *d, bool fraction)
{
    size_t n = chars_span(*in, CHAR_DIGIT);
    for (size_t i = 0; i < n; i++) add_digit(d, in->data[i], fraction);
    *in = bytes_from(*in, n);
    return n > 0;
}

static bool first_is(struct bytes in, uint8_t a, uint8_t b)
{
    return in.len > 0 && (in.data[0] == a || in.data[0] == b);
}

/* "e-12": beyond a million digits it does not matter how many there are. */
static bool take_exponent(struct bytes *in, struct decimal *d)
{
    const int64_t most = INT64_C(1) << 40;
    int64_t n;
    *in = bytes_from(*in, 1);
    bool negative = first_is(*in, '-', '-');
    if (first_is(*in, '-', '+')) *in = bytes_from(*in, 1);
    if (!number_parse_length(*in, &n)) return false;
    if (n > most) n = most;
    d->exponent += negative ? -n : n;
    in->len = 0;
    return true;
}

bool number_parse_double(struct bytes in, double *ret)
{
    struct decimal d = { .len = 0 };
    if (first_is(in, '-', '-')) d.text[d.len++] = '-', in = bytes_from(in, 1);
    if (!take_digits(&in, &d, false)) return false;
    if (first_is(in, '.', '.')) {
        in = bytes_from(in, 1);
        if (!take_digits(&in, &d, true)) return false;
    }
    if (first_is(in, 'e', 'E') && !take_exponent(&in, &d)) return false;
    if (in.len > 0) return false;
    if (d.more) d.text[d.len++] = '1', d.exponent--;
    if (d.digits == 0) d.text[d.len++] = '0';
    snprintf(d.text + d.len, sizeof d.text - d.len, "e%lld", (long long)d.exponent);
    double n = strtod(d.text, NULL);
    if (!isfinite(n)) return false;
    *ret = n;
    return true;
}

size_t number_write(int64_t n, char *out)
{
    char digits[20];
    size_t count = 0, len = 0;
    uint64_t left = n < 0 ? -(uint64_t)n : (uint64_t)n;
    do digits[count++] = (char)('0' + left % 10);
    while (left /= 10);
    if (n < 0) out[len++] = '-';
    while (count > 0) out[len++] = digits[--count];
    return len;
}

/* Some locales write another point, of one byte or more. */
static size_t with_plain_point(char *text)
{
    size_t len = 0;
    for (const char *p = text; *p; p++) {
        bool plain = char_is((uint8_t)*p, CHAR_DIGIT) || *p == '-' || *p == '+' || *p == 'e';
        if (plain) text[len++] = *p;
        if (!plain && text[len - 1] != '.') text[len++] = '.';
    }
    return len;
}

static size_t write_word(const char *word, char *out)
{
    size_t len = strlen(word);
    memcpy(out, word, len);
    return len;
}

size_t number_write_double(double d, char *out)
{
    if (isnan(d)) return write_word("nan", out);
    if (isinf(d)) return write_word(d > 0 ? "inf" : "-inf", out);
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, NUMBER_BYTES_MAX, "%.*g", digits, d);
        if (strtod(out, NULL) == d) break;
    }
    return with_plain_point(out);
}
