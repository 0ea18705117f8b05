/* rfc3339_test.c - moments, there and back. */
#include "proto/rfc3339.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <time.h>

static void is_written(int64_t ms, const char *text)
{
    char out[RFC3339_BYTES + 1];
    rfc3339_write(ms, out);
    cr_assert_str_eq(out, text);
}

static int64_t parsed(const char *text)
{
    int64_t ms = -1;
    cr_assert(rfc3339_parse(bytes_str(text), &ms), "%s", text);
    return ms;
}

Test(rfc3339, writes_utc_with_milliseconds)
{
    is_written(0, "1970-01-01T00:00:00.000Z");
    is_written(-1, "1969-12-31T23:59:59.999Z");
    is_written(INT64_C(951782400000), "2000-02-29T00:00:00.000Z");
    is_written(INT64_C(1794895386123), "2026-11-17T06:03:06.123Z");
    is_written(INT64_MIN, "0000-01-01T00:00:00.000Z");
    is_written(INT64_MAX, "9999-12-31T23:59:59.999Z");
}

Test(rfc3339, agrees_with_the_library)
{
    for (int64_t s = -INT64_C(60000000000); s < INT64_C(250000000000); s += 86400 * 37 + 4711) {
        char want[64], out[RFC3339_BYTES + 1];
        time_t t = (time_t)s;
        struct tm tm;
        cr_assert(gmtime_r(&t, &tm));
        cr_assert_eq(strftime(want, sizeof want, "-%m-%dT%H:%M:%S.000Z", &tm), 20);
        rfc3339_write(s * 1000, out);
        cr_assert_eq(atoi(out), tm.tm_year + 1900);
        cr_assert_str_eq(out + 4, want);
        cr_assert_eq(parsed(out), s * 1000);
    }
}

Test(rfc3339, reads_what_the_rfc_allows)
{
    cr_assert_eq(parsed("1970-01-01T00:00:01Z"), 1000);
    cr_assert_eq(parsed("1970-01-01t01:00:00.5+01:00"), 500);
    cr_assert_eq(parsed("1969-12-31 23:30:00-00:30"), 0);
    cr_assert_eq(parsed("1970-01-01T00:00:00.123999999Z"), 123);
    cr_assert_eq(parsed("1990-12-31T23:59:60Z"), parsed("1991-01-01T00:00:00Z"));
    cr_assert_eq(parsed("2024-02-29T00:00:00z"), INT64_C(1709164800000));
}

Test(rfc3339, refuses_the_rest)
{
    static const char *const none[] = { "",
                                        "2026",
                                        "2026-11-16",
                                        "2026-11-16T06:00:00",
                                        "2026-11-16T06:00Z",
                                        "2026-02-29T00:00:00Z",
                                        "2026-13-01T00:00:00Z",
                                        "2026-00-01T00:00:00Z",
                                        "2026-01-32T00:00:00Z",
                                        "2026-01-01T24:00:00Z",
                                        "2026-01-01T00:60:00Z",
                                        "2026-01-01T00:00:61Z",
                                        "2026-01-01T00:00:00.Z",
                                        "2026-01-01T00:00:00+1:00",
                                        "2026-01-01T00:00:00+25:00",
                                        "2026-01-01T00:00:00Zx",
                                        "+026-01-01T00:00:00Z",
                                        " 2026-01-01T00:00:00Z" };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        int64_t ms = 7;
        cr_assert(!rfc3339_parse(bytes_str(none[i]), &ms), "%s", none[i]);
        cr_assert_eq(ms, 7);
    }
}
