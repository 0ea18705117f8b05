/* text.c - see text.h. */
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

size_t utf8_sequence(const uint8_t *p, size_t len, uint32_t *ret_code)
{
    if (p[0] < 0x80) return *ret_code = p[0], 1;
    size_t n = p[0] >= 0xf0 && p[0] <= 0xf4 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 0;
    if (n == 0 || p[0] > 0xf4 || n > len) return 0;
    uint32_t code = p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (code < smallest[n] || code > 0x10ffff) return 0;
    if (code >= 0xd800 && code <= 0xdfff) return 0;
    *ret_code = code;
    return n;
}

bool text_is_plain_utf8(struct bytes in)
{
    for (size_t at = 0; at < in.len;) {
        uint32_t code;
        size_t n = utf8_sequence(in.data + at, in.len - at, &code);
        if (n == 0) return false;
        if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
        at += n;
    }
    return true;
}

void hex_encode(struct bytes in, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < in.len; i++) {
        *out++ = digits[in.data[i] >> 4];
        *out++ = digits[in.data[i] & 15];
    }
    *out = '\0';
}

/* Digits have their value plus one, so that everything else is zero. */
static const uint8_t hex_values[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,
    ['6'] = 7,  ['7'] = 8,  ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12,
    ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16, ['A'] = 11, ['B'] = 12,
    ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
};

bool hex_decode(struct bytes in, uint8_t *out, size_t len)
{
    if (in.len != 2 * len) return false;
    for (size_t i = 0; i < in.len; i++)
        if (!hex_values[in.data[i]]) return false;
    for (size_t i = 0; i < len; i++) {
        unsigned high = hex_values[in.data[2 * i]] - 1u,
                 low = hex_values[in.data[2 * i + 1]] - 1u;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static const struct {
    const char *suffix;
    int64_t ms;
} units[] = {
    { "", 1 },          { "ms", 1 },          { "s", 1000 },
    { "m", 60 * 1000 }, { "h", 3600 * 1000 }, { "d", 24 * 3600 * 1000 },
};

bool duration_parse(struct bytes in, int64_t max_ms, int64_t *ret_ms)
{
    int64_t n = 0;
    size_t digits = 0;
    for (; digits < in.len && in.data[digits] >= '0' && in.data[digits] <= '9'; digits++) {
        int digit = in.data[digits] - '0';
        if (n > (max_ms - digit) / 10) return false;
        n = n * 10 + digit;
    }
    if (digits == 0) return false;
    struct bytes suffix = bytes_of(in.data + digits, in.len - digits);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (!bytes_eq(suffix, bytes_str(units[i].suffix))) continue;
        if (n > max_ms / units[i].ms) return false;
        *ret_ms = n * units[i].ms;
        return true;
    }
    return false;
}

bool number_within(const char *text, int64_t low, int64_t high, int64_t *ret_number)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || n < low || n > high) return false;
    *ret_number = n;
    return true;
}

bool url_unescape(char *text)
{
    char *out = text;
    for (; *text; text++) {
        if (*text != '%') {
            *out++ = *text;
            continue;
        }
        uint8_t byte;
        if (!text[1] || !hex_decode(bytes_of(text + 1, 2), &byte, 1) || !byte) return false;
        *out++ = (char)byte;
        text += 2;
    }
    *out = '\0';
    return true;
}

/* Letters up to a colon; 0: it does not begin so. */
static size_t scheme_len(const char *url)
{
    size_t len = strspn(url, "abcdefghijklmnopqrstuvwxyz0123456789+");
    return len && url[len] == ':' ? len + 1 : 0;
}

/* "/path", "sqlite:/path": an @ and a = in it are just that. */
static bool is_path(const char *url)
{
    return *url == '/' || *url == '.' || strncmp(url, "sqlite:", 7) == 0;
}

/* What is behind "://" up to "@" may be a password, and so may what is behind "?". In another form,
 * as libpq's "host=... password=...", it may be anywhere. */
void url_shown(const char *url, char *out, size_t size)
{
    size_t scheme = scheme_len(url);
    const char *rest = url + scheme;
    if (scheme && strncmp(rest, "//", 2) == 0) {
        scheme += 2;
        const char *at = strrchr(rest, '@');
        rest = at ? at + 1 : url + scheme;
    } else if (!is_path(url) && strpbrk(rest, "=@")) {
        rest = "";
    }
    snprintf(out, size, "%.*s%.*s", (int)scheme, url, (int)strcspn(rest, "?"), rest);
}
