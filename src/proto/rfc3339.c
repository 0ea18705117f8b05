/* rfc3339.c - see rfc3339.h. */
#include "proto/rfc3339.h"

#include "proto/chars.h"

#include <stdio.h>

#define DAY_MS INT64_C(86400000)
#define MS_MIN (INT64_C(-719528) * DAY_MS)     /* 0000-01-01T00:00:00.000Z */
#define MS_MAX (INT64_C(2932897) * DAY_MS - 1) /* 9999-12-31T23:59:59.999Z */

struct date {
    int64_t year;
    unsigned month, day; /* from 1 */
};

/* Years that begin in March have the odd day at their end; 400 of them have 146097 days. */
static int64_t days_of(struct date d)
{
    int64_t year = d.month <= 2 ? d.year - 1 : d.year;
    int64_t era = (year >= 0 ? year : year - 399) / 400, of_era = year - era * 400;
    int64_t of_year = (153 * ((int64_t)d.month + (d.month > 2 ? -3 : 9)) + 2) / 5 + d.day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static struct date date_of(int64_t days)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097, of_era = days - era * 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    int64_t month = (5 * of_year + 2) / 153; /* from March */
    struct date d = { .year = year + era * 400 };
    d.day = (unsigned)(of_year - (153 * month + 2) / 5 + 1);
    d.month = (unsigned)(month < 10 ? month + 3 : month - 9);
    if (d.month <= 2) d.year++;
    return d;
}

void rfc3339_write(int64_t unix_ms, char out[RFC3339_BYTES + 1])
{
    if (unix_ms < MS_MIN) unix_ms = MS_MIN;
    if (unix_ms > MS_MAX) unix_ms = MS_MAX;
    int64_t days = (unix_ms - MS_MIN) / DAY_MS + MS_MIN / DAY_MS;
    unsigned ms = (unsigned)(unix_ms - days * DAY_MS);
    struct date d = date_of(days);
    char text[64]; /* as the compiler reckons that the numbers could be longer */
    snprintf(text, sizeof text, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", (unsigned)d.year,
             d.month, d.day, ms / 3600000, ms / 60000 % 60, ms / 1000 % 60, ms % 1000);
    memcpy(out, text, RFC3339_BYTES);
    out[RFC3339_BYTES] = '\0';
}

/* ---- reading ---- */

/* Takes `count` digits from the front; -1: they are not there. */
static int take_digits(struct bytes *in, size_t count)
{
    int n = 0;
    if (in->len < count || chars_span(bytes_of(in->data, count), CHAR_DIGIT) < count) return -1;
    for (size_t i = 0; i < count; i++) n = n * 10 + (in->data[i] - '0');
    *in = bytes_from(*in, count);
    return n;
}

static bool take_byte(struct bytes *in, const char *any_of)
{
    if (in->len == 0 || !in->data[0] || !strchr(any_of, in->data[0])) return false;
    *in = bytes_from(*in, 1);
    return true;
}

static bool take_date(struct bytes *in, int64_t *ret_days)
{
    int year = take_digits(in, 4), month = -1, day = -1;
    if (take_byte(in, "-")) month = take_digits(in, 2);
    if (take_byte(in, "-")) day = take_digits(in, 2);
    if (year < 0 || month < 1 || month > 12 || day < 1 || day > 31) return false;
    struct date d = { year, (unsigned)month, (unsigned)day };
    struct date same = date_of(days_of(d));
    if (same.month != d.month) return false; /* February 30 */
    *ret_days = days_of(d);
    return true;
}

/* Up to the minute, which an offset has, too. */
static bool take_minutes(struct bytes *in, int *ret)
{
    int hour = take_digits(in, 2), minute = take_byte(in, ":") ? take_digits(in, 2) : -1;
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59) return false;
    *ret = hour * 60 + minute;
    return true;
}

/* Second 60, a leap second, is the first of the next minute. */
static bool take_seconds(struct bytes *in, int *ret_ms)
{
    int second = take_byte(in, ":") ? take_digits(in, 2) : -1;
    int ms = 0, scale = 100;
    if (second < 0 || second > 60) return false;
    if (take_byte(in, ".")) {
        size_t digits = chars_span(*in, CHAR_DIGIT);
        if (digits == 0) return false;
        for (size_t i = 0; i < digits; i++, scale /= 10) ms += (in->data[i] - '0') * scale;
        *in = bytes_from(*in, digits);
    }
    *ret_ms = second * 1000 + ms;
    return true;
}

static bool take_offset(struct bytes *in, int *ret_minutes)
{
    int minutes = 0;
    bool utc = take_byte(in, "Zz"), behind = !utc && take_byte(in, "-");
    if (!utc && !behind && !take_byte(in, "+")) return false;
    if (!utc && !take_minutes(in, &minutes)) return false;
    *ret_minutes = behind ? -minutes : minutes;
    return true;
}

bool rfc3339_parse(struct bytes text, int64_t *ret_unix_ms)
{
    int64_t days;
    int minutes, ms, offset;
    if (!take_date(&text, &days) || !take_byte(&text, "Tt ")) return false;
    if (!take_minutes(&text, &minutes) || !take_seconds(&text, &ms)) return false;
    if (!take_offset(&text, &offset) || text.len > 0) return false;
    *ret_unix_ms = days * DAY_MS + (int64_t)(minutes - offset) * 60000 + ms;
    return true;
}
