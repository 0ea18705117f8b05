/* json_write.c - the writer; see json.h. */
#include "base/check.h"
#include "base/text.h"
#include "proto/base64.h"
#include "proto/json.h"
#include "proto/number.h"

#include <math.h>

enum { DEPTH_MAX = 63 };

static void add_text(struct json_writer *w, const char *text)
{
    buf_add(w->out, bytes_str(text));
}

/* What has to stand in front of a value or key at this place. */
static void separate(struct json_writer *w)
{
    uint64_t bit = UINT64_C(1) << w->depth;
    if (!w->keyed && (w->filled & bit)) buf_byte(w->out, ',');
    w->filled |= bit;
    w->keyed = false;
}

void json_start(struct json_writer *w, struct buf *out)
{
    *w = (struct json_writer){ .out = out };
}

static void open_level(struct json_writer *w, uint8_t bracket)
{
    CHECK(w->depth < DEPTH_MAX);
    separate(w);
    buf_byte(w->out, bracket);
    w->depth++;
    w->filled &= ~(UINT64_C(1) << w->depth);
}

static void close_level(struct json_writer *w, uint8_t bracket)
{
    CHECK(w->depth > 0 && !w->keyed);
    buf_byte(w->out, bracket);
    w->depth--;
}

void json_put_object(struct json_writer *w)
{
    open_level(w, '{');
}

void json_end_object(struct json_writer *w)
{
    close_level(w, '}');
}

void json_put_array(struct json_writer *w)
{
    open_level(w, '[');
}

void json_end_array(struct json_writer *w)
{
    close_level(w, ']');
}

/* ---- strings ---- */

/* What stands behind the backslash; 'u': four digits do. */
static const char escapes[256] = {
    [0 ... 7] = 'u', ['\b'] = 'b', ['\t'] = 't',      ['\n'] = 'n', [11] = 'u',
    ['\f'] = 'f',    ['\r'] = 'r', [14 ... 31] = 'u', ['"'] = '"',  ['\\'] = '\\',
};

static void put_escape(struct json_writer *w, uint8_t c)
{
    if (escapes[c] == 'u') return buf_printf(w->out, "\\u%04x", c);
    char pair[2] = { '\\', escapes[c] };
    buf_add(w->out, bytes_of(pair, 2));
}

/* How many bytes at the start go through as they are. */
static size_t plain_span(const uint8_t *p, size_t len)
{
    size_t n = 0;
    while (n < len && !escapes[p[n]]) {
        uint32_t code;
        size_t one = utf8_sequence(p + n, len - n, &code);
        if (one == 0) break;
        n += one;
    }
    return n;
}

static void put_string(struct json_writer *w, struct bytes content)
{
    buf_byte(w->out, '"');
    for (size_t at = 0; at < content.len; at++) {
        size_t n = plain_span(content.data + at, content.len - at);
        buf_add(w->out, bytes_of(content.data + at, n));
        at += n;
        if (at == content.len) break;
        if (escapes[content.data[at]])
            put_escape(w, content.data[at]);
        else
            add_text(w, "\xef\xbf\xbd");
    }
    buf_byte(w->out, '"');
}

void json_put_key_bytes(struct json_writer *w, struct bytes name)
{
    CHECK(!w->keyed);
    separate(w);
    put_string(w, name);
    buf_byte(w->out, ':');
    w->keyed = true;
}

void json_put_key(struct json_writer *w, const char *name)
{
    json_put_key_bytes(w, bytes_str(name));
}

void json_put_string(struct json_writer *w, struct bytes content)
{
    separate(w);
    put_string(w, content);
}

void json_put_cstring(struct json_writer *w, const char *content)
{
    json_put_string(w, bytes_str(content));
}

static bool is_utf8(struct bytes in)
{
    uint32_t code;
    for (size_t at = 0, n; at < in.len; at += n) {
        n = utf8_sequence(in.data + at, in.len - at, &code);
        if (n == 0) return false;
    }
    return true;
}

void json_put_value(struct json_writer *w, struct bytes content)
{
    if (is_utf8(content)) return json_put_string(w, content);
    json_put_object(w);
    json_put_key(w, "base64");
    separate(w);
    buf_byte(w->out, '"');
    base64_encode(content, w->out);
    buf_byte(w->out, '"');
    json_end_object(w);
}

/* ---- everything else ---- */

void json_put_raw(struct json_writer *w, struct bytes json)
{
    separate(w);
    buf_add(w->out, json);
}

void json_put_integer(struct json_writer *w, int64_t n)
{
    char text[NUMBER_BYTES_MAX];
    json_put_raw(w, bytes_of(text, number_write(n, text)));
}

void json_put_double(struct json_writer *w, double d)
{
    char text[NUMBER_BYTES_MAX];
    if (!isfinite(d)) return json_put_null(w);
    json_put_raw(w, bytes_of(text, number_write_double(d, text)));
}

void json_put_boolean(struct json_writer *w, bool yes)
{
    json_put_raw(w, bytes_str(yes ? "true" : "false"));
}

void json_put_null(struct json_writer *w)
{
    json_put_raw(w, bytes_str("null"));
}
