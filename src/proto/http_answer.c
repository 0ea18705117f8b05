/* http_answer.c - see http_answer.h. */
#include "proto/http_answer.h"

#include "base/check.h"
#include "base/err.h"
#include "proto/chars.h"
#include "proto/number.h"

#include <stdio.h>

static const struct {
    int status;
    const char *reason;
} reasons[] = {
    { 200, "OK" },
    { 201, "Created" },
    { 202, "Accepted" },
    { 204, "No Content" },
    { 304, "Not Modified" },
    { 400, "Bad Request" },
    { 401, "Unauthorized" },
    { 403, "Forbidden" },
    { 404, "Not Found" },
    { 405, "Method Not Allowed" },
    { 406, "Not Acceptable" },
    { 408, "Request Timeout" },
    { 409, "Conflict" },
    { 411, "Length Required" },
    { 412, "Precondition Failed" },
    { 413, "Content Too Large" },
    { 414, "URI Too Long" },
    { 415, "Unsupported Media Type" },
    { 417, "Expectation Failed" },
    { 421, "Misdirected Request" },
    { 422, "Unprocessable Content" },
    { 425, "Too Early" },
    { 429, "Too Many Requests" },
    { 431, "Request Header Fields Too Large" },
    { 500, "Internal Server Error" },
    { 501, "Not Implemented" },
    { 502, "Bad Gateway" },
    { 503, "Service Unavailable" },
    { 504, "Gateway Timeout" },
    { 505, "HTTP Version Not Supported" },
};

const char *http_reason(int status)
{
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].status == status) return reasons[i].reason;
    return "";
}

static void add_text(struct buf *out, const char *text)
{
    buf_add(out, bytes_str(text));
}

static void refuse(struct http_writer *w)
{
    if (!w->out->failed) w->out->failed = ERR_INVALID;
}

static void put_status_line(struct http_writer *w)
{
    char line[16] = "HTTP/1.1 000 ";
    int status = w->answer.status;
    CHECK(status >= 200 && status <= 599);
    line[9] = (char)('0' + status / 100);
    line[10] = (char)('0' + status / 10 % 10);
    line[11] = (char)('0' + status % 10);
    buf_add(w->out, bytes_of(line, 13));
    add_text(w->out, http_reason(status));
    add_text(w->out, "\r\n");
}

void http_start(struct http_writer *w, struct buf *out, const struct http_answer *answer)
{
    *w = (struct http_writer){ .out = out, .answer = *answer };
    put_status_line(w);
    if (answer->date.len > 0) http_put(w, "Date", answer->date);
}

/* Line ends in a value would let whoever chose it write fields, or answers, of his own. */
void http_put(struct http_writer *w, const char *name, struct bytes value)
{
    struct bytes n = bytes_str(name);
    bool fine = n.len > 0 && chars_span(n, CHAR_TOKEN) == n.len && chars_are_value(value);
    if (!fine) return refuse(w);
    buf_add(w->out, n);
    add_text(w->out, ": ");
    buf_add(w->out, value);
    add_text(w->out, "\r\n");
}

void http_put_text(struct http_writer *w, const char *name, const char *value)
{
    http_put(w, name, bytes_str(value));
}

void http_put_number(struct http_writer *w, const char *name, int64_t value)
{
    char text[NUMBER_BYTES_MAX];
    http_put(w, name, bytes_of(text, number_write(value, text)));
}

/* HTTP/1.1 stays open unless it is said, HTTP/1.0 closes unless it is said. */
static void end_head(struct http_writer *w)
{
    if (!w->answer.keep_alive) add_text(w->out, "Connection: close\r\n");
    if (w->answer.keep_alive && w->answer.minor == 0)
        add_text(w->out, "Connection: keep-alive\r\n");
    add_text(w->out, "\r\n");
}

static bool has_no_content(int status)
{
    return status == 204 || status == 304;
}

void http_finish(struct http_writer *w, struct bytes content)
{
    bool none = has_no_content(w->answer.status);
    if (!none) http_put_number(w, "Content-Length", (int64_t)content.len);
    end_head(w);
    if (!none && !w->answer.head) buf_add(w->out, content);
}

void http_start_chunks(struct http_writer *w)
{
    CHECK(!has_no_content(w->answer.status));
    w->chunked = w->answer.minor > 0;
    if (w->chunked) add_text(w->out, "Transfer-Encoding: chunked\r\n");
    if (!w->chunked) w->answer.keep_alive = false;
    end_head(w);
}

void http_chunk(struct http_writer *w, struct bytes content)
{
    char size[24];
    if (content.len == 0 || w->answer.head) return;
    int len = snprintf(size, sizeof size, "%zx\r\n", content.len);
    if (w->chunked) buf_add(w->out, bytes_of(size, (size_t)len));
    buf_add(w->out, content);
    if (w->chunked) add_text(w->out, "\r\n");
}

void http_finish_chunks(struct http_writer *w)
{
    if (w->chunked && !w->answer.head) add_text(w->out, "0\r\n\r\n");
}

void http_continue(struct buf *out)
{
    add_text(out, "HTTP/1.1 100 Continue\r\n\r\n");
}

/* ---- the date ---- */

struct day {
    int64_t year;
    unsigned month, day; /* from 1 */
};

/* From days since 1970-01-01, by the proleptic Gregorian calendar, in eras of 400 years that begin
 * in March so that the leap day is the last (Howard Hinnant, "chrono-Compatible Low-Level Date
 * Algorithms"). */
static struct day day_of(int64_t days)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    unsigned in_era = (unsigned)(days - era * 146097);
    unsigned year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    unsigned in_year = in_era - (365 * year + year / 4 - year / 100);
    unsigned month = (5 * in_year + 2) / 153;
    struct day d = { .year = year + era * 400, .day = in_year - (153 * month + 2) / 5 + 1 };
    d.month = month < 10 ? month + 3 : month - 9;
    d.year += d.month <= 2;
    return d;
}

static void put_two(char *out, unsigned n)
{
    out[0] = (char)('0' + n / 10 % 10);
    out[1] = (char)('0' + n % 10);
}

/* A clock that is set beyond four digits of year, or before 1970, gets the nearest that is not. */
static int64_t seconds_of(int64_t unix_ms)
{
    int64_t s = unix_ms / 1000, last = INT64_C(253402300799);
    return s < 0 ? 0 : s > last ? last : s;
}

void http_write_date(int64_t unix_ms, char *out)
{
    static const char weekdays[] = "ThuFriSatSunMonTueWed"; /* 1970-01-01 was a Thursday */
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    int64_t s = seconds_of(unix_ms);
    struct day d = day_of(s / 86400);
    unsigned rest = (unsigned)(s % 86400);
    memcpy(out, "Www, 00 Mmm 0000 00:00:00 GMT", HTTP_DATE_BYTES + 1);
    memcpy(out, weekdays + 3 * (s / 86400 % 7), 3);
    put_two(out + 5, d.day);
    memcpy(out + 8, months + 3 * (d.month - 1), 3);
    put_two(out + 12, (unsigned)d.year / 100);
    put_two(out + 14, (unsigned)d.year % 100);
    put_two(out + 17, rest / 3600);
    put_two(out + 20, rest / 60 % 60);
    put_two(out + 23, rest % 60);
}
