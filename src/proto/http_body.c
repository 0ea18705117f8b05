/* http_body.c - the content of a request: by length, or in chunks; see http.h.
 *
 * One function per part; each takes what it can from the input and names the part that follows. */
#include "proto/chars.h"
#include "proto/http_lines.h"

enum {
    CHUNK_LINE_BYTES_MAX = 1024,
    CHUNK_DIGITS_MAX = 15, /* of its size: fits an int64 */
};

struct cursor {
    struct bytes left; /* of the input */
    struct bytes *ret_data;
};

static void advance(struct cursor *c, size_t used)
{
    c->left = bytes_from(c->left, used);
}

/* What stands between two parts: go on with the next one. */
static enum http_progress next_step(struct http_reader *r, enum http_body_step step)
{
    r->step = (uint8_t)step;
    return HTTP_READY;
}

static enum http_progress take_data(struct http_reader *r, struct cursor *c,
                                    enum http_body_step after)
{
    if (c->left.len == 0) return HTTP_MORE;
    size_t n = c->left.len;
    if ((uint64_t)r->left < n) n = (size_t)r->left;
    *c->ret_data = bytes_of(c->left.data, n);
    advance(c, n);
    r->left -= (int64_t)n;
    if (r->left == 0) r->step = (uint8_t)after;
    return HTTP_DATA;
}

static enum http_progress read_length(struct http_reader *r, struct cursor *c)
{
    return take_data(r, c, BODY_NONE);
}

/* ---- chunks ---- */

static size_t blanks(struct bytes in)
{
    size_t n = 0;
    while (n < in.len && char_is_blank(in.data[n])) n++;
    return n;
}

/* A string in quotes at the start: its length, 0 if it is not well formed. */
static size_t quoted_len(struct bytes in)
{
    for (size_t at = 1; at < in.len; at++) {
        if (in.data[at] == '"') return at + 1;
        if (in.data[at] == '\\') at++;
    }
    return 0;
}

/* "=value" and the blanks around it, if they are there. False: '=' and no value. */
static bool skip_extension_value(struct bytes *text)
{
    size_t at = blanks(*text);
    if (at == text->len || text->data[at] != '=') return true;
    struct bytes value = bytes_from(*text, at + 1);
    value = bytes_from(value, blanks(value));
    bool quoted = value.len > 0 && value.data[0] == '"';
    size_t n = quoted ? quoted_len(value) : chars_span(value, CHAR_TOKEN);
    *text = bytes_from(value, n);
    return n > 0;
}

/* *( BWS ";" BWS name [ BWS "=" BWS value ] ): nothing in it is used, all of it is checked. */
static bool extensions_are_valid(struct bytes text)
{
    if (!chars_are_value(text)) return false;
    while (text.len > 0) {
        size_t at = blanks(text);
        if (at == text.len || text.data[at] != ';') return false;
        text = bytes_from(text, at + 1);
        text = bytes_from(text, blanks(text));
        size_t name = chars_span(text, CHAR_TOKEN);
        if (name == 0) return false;
        text = bytes_from(text, name);
        if (!skip_extension_value(&text)) return false;
    }
    return true;
}

static enum http_fault parse_chunk_line(struct http_reader *r, struct bytes line, int64_t *ret)
{
    size_t digits = chars_span(line, CHAR_HEX);
    if (digits == 0 || digits > CHUNK_DIGITS_MAX) return HTTP_FAULT_CHUNK;
    int64_t size = 0;
    for (size_t i = 0; i < digits; i++) size = size * 16 + hex_digit(line.data[i]);
    if (!extensions_are_valid(bytes_from(line, digits))) return HTTP_FAULT_CHUNK;
    r->extra += line.len - digits;
    if (r->extra > r->limits->extra_bytes_max) return HTTP_FAULT_CHUNK_EXTRA;
    *ret = size;
    return HTTP_FAULT_NONE;
}

static enum http_progress read_chunk_size(struct http_reader *r, struct cursor *c)
{
    struct http_line_rule rule = { CHUNK_LINE_BYTES_MAX, HTTP_FAULT_CHUNK_EXTRA };
    struct bytes line;
    size_t used;
    enum http_progress p = http_take_line(r, c->left, rule, &line, &used);
    if (p != HTTP_READY) return p;
    enum http_fault fault = parse_chunk_line(r, line, &r->left);
    if (fault) return http_bad(r, fault);
    if (r->left > r->limits->body_bytes_max - r->total)
        return http_bad(r, HTTP_FAULT_BODY_LONG);
    advance(c, used);
    r->total += r->left;
    return next_step(r, r->left > 0 ? BODY_CHUNK_DATA : BODY_TRAILERS);
}

static enum http_progress read_chunk_data(struct http_reader *r, struct cursor *c)
{
    return take_data(r, c, BODY_CHUNK_END);
}

static enum http_progress read_chunk_end(struct http_reader *r, struct cursor *c)
{
    size_t n = c->left.len < 2 ? c->left.len : 2;
    if (n > 0 && memcmp(c->left.data, "\r\n", n) != 0) return http_bad(r, HTTP_FAULT_CHUNK);
    if (n < 2) return HTTP_MORE;
    advance(c, 2);
    return next_step(r, BODY_CHUNK_SIZE);
}

/* Checked as fields are, and dropped: nothing that comes after the content may change what it
 * was taken for. */
static enum http_progress read_trailers(struct http_reader *r, struct cursor *c)
{
    struct http_line_rule rule = { r->limits->extra_bytes_max - r->extra,
                                   HTTP_FAULT_CHUNK_EXTRA };
    struct bytes line;
    size_t used;
    enum http_progress p = http_take_line(r, c->left, rule, &line, &used);
    if (p != HTTP_READY) return p;
    advance(c, used);
    if (line.len == 0) return next_step(r, BODY_NONE);
    struct http_field field;
    enum http_fault fault = http_parse_field(line, &field);
    if (!fault && r->lines++ == r->limits->fields_max) fault = HTTP_FAULT_FIELDS_MANY;
    r->extra += line.len;
    return fault ? http_bad(r, fault) : HTTP_READY;
}

typedef enum http_progress step_fn(struct http_reader *r, struct cursor *c);

static step_fn *const steps[] = {
    [BODY_LENGTH] = read_length,         [BODY_CHUNK_SIZE] = read_chunk_size,
    [BODY_CHUNK_DATA] = read_chunk_data, [BODY_CHUNK_END] = read_chunk_end,
    [BODY_TRAILERS] = read_trailers,
};

enum http_progress http_read_body(struct http_reader *r, struct bytes in,
                                  struct bytes *ret_data, size_t *ret_used)
{
    /* cppcheck-suppress ctuuninitvar ; an output: it is kept here, not read */
    struct cursor c = { in, ret_data };
    enum http_progress p = HTTP_READY;
    while (p == HTTP_READY && r->step != BODY_NONE) p = steps[r->step](r, &c);
    *ret_used = in.len - c.left.len;
    if (p == HTTP_READY) http_reader_init(r, r->limits);
    return p;
}
