/* http_fields.c - see http_fields.h. */
#include "proto/http_fields.h"

#include "base/text.h"
#include "proto/chars.h"

/* How far it is to the first of these outside quotes; in.len: it is not there. */
static size_t find_outside_quotes(struct bytes in, uint8_t wanted)
{
    bool quoted = false;
    for (size_t i = 0; i < in.len; i++) {
        uint8_t c = in.data[i];
        if (c == '"') quoted = !quoted;
        if (quoted && c == '\\') i++;
        if (!quoted && c == wanted) return i;
    }
    return in.len;
}

/* What is in front of the separator, trimmed; *rest goes on behind it. */
static struct bytes take_until(struct bytes *rest, uint8_t separator)
{
    size_t n = find_outside_quotes(*rest, separator);
    struct bytes part = bytes_trim(bytes_of(rest->data, n));
    *rest = bytes_from(*rest, n < rest->len ? n + 1 : n);
    return part;
}

bool http_next_in_list(struct bytes *list, struct bytes *ret_element)
{
    while (list->len > 0) {
        struct bytes element = take_until(list, ',');
        if (element.len == 0) continue;
        *ret_element = element;
        return true;
    }
    return false;
}

static bool is_token(struct bytes in)
{
    return in.len > 0 && chars_span(in, CHAR_TOKEN) == in.len;
}

static struct bytes without_quotes(struct bytes in)
{
    bool quoted = in.len >= 2 && in.data[0] == '"' && in.data[in.len - 1] == '"';
    return quoted ? bytes_of(in.data + 1, in.len - 2) : in;
}

struct parameter {
    struct bytes name, value;
};

/* The next "; name=value" of a field. False: there is none. */
static bool next_parameter(struct bytes *rest, struct parameter *ret)
{
    if (rest->len == 0) return false;
    struct bytes part = take_until(rest, ';');
    ret->name = bytes_trim(take_until(&part, '='));
    ret->value = without_quotes(bytes_trim(part));
    return true;
}

/* ---- media types ---- */

static bool split_type(struct bytes text, struct http_media *ret)
{
    size_t n = chars_span(text, CHAR_TOKEN);
    if (n == text.len || text.data[n] != '/') return false;
    ret->type = bytes_of(text.data, n);
    ret->subtype = bytes_from(text, n + 1);
    return is_token(ret->type) && is_token(ret->subtype);
}

bool http_parse_media(struct bytes value, struct http_media *ret_media)
{
    struct http_media media = { 0 };
    struct parameter p;
    if (!split_type(take_until(&value, ';'), &media)) return false;
    while (next_parameter(&value, &p)) {
        if (!is_token(p.name)) return false;
        if (bytes_eq_nocase(p.name, bytes_str("charset"))) media.charset = p.value;
    }
    *ret_media = media;
    return true;
}

bool http_media_is(const struct http_media *media, const char *type, const char *subtype)
{
    return bytes_eq_nocase(media->type, bytes_str(type)) &&
           bytes_eq_nocase(media->subtype, bytes_str(subtype));
}

/* "1", "0.5", "0.875": thousandths. -1: not a quality. */
static int parse_quality(struct bytes in)
{
    if (in.len == 0 || in.len > 5 || (in.data[0] != '0' && in.data[0] != '1')) return -1;
    int q = (in.data[0] - '0') * 1000, unit = 100;
    if (in.len > 1 && in.data[1] != '.') return -1;
    for (size_t i = 2; i < in.len; i++, unit /= 10) {
        if (!char_is(in.data[i], CHAR_DIGIT)) return -1;
        q += (in.data[i] - '0') * unit;
    }
    return q > 1000 ? -1 : q;
}

static int quality_of(struct bytes parameters)
{
    struct parameter p;
    while (next_parameter(&parameters, &p))
        if (bytes_eq_nocase(p.name, bytes_str("q"))) return parse_quality(p.value);
    return 1000;
}

/* 3: this very type; 2: its family; 1: anything; 0: something else. */
static int specificity(const struct http_media *range, const char *type, const char *subtype)
{
    if (http_media_is(range, type, subtype)) return 3;
    if (http_media_is(range, type, "*")) return 2;
    return http_media_is(range, "*", "*");
}

int http_accepts(struct bytes accept, const char *type, const char *subtype)
{
    struct bytes element;
    int quality = 0, best = 0;
    if (!accept.data) return 1000;
    while (http_next_in_list(&accept, &element)) {
        struct http_media range;
        if (!split_type(take_until(&element, ';'), &range)) continue;
        int s = specificity(&range, type, subtype), q = quality_of(element);
        if (q < 0 || s <= best) continue;
        best = s;
        quality = q;
    }
    return quality;
}

/* ---- preferences and credentials ---- */

bool http_preference(struct bytes prefer, const char *name, struct bytes *ret_value)
{
    struct bytes element;
    struct parameter p;
    while (http_next_in_list(&prefer, &element)) {
        if (!next_parameter(&element, &p)) continue;
        if (!bytes_eq_nocase(p.name, bytes_str(name))) continue;
        *ret_value = p.value;
        return true;
    }
    return false;
}

bool http_bearer(struct bytes authorization, struct bytes *ret_token)
{
    static const char scheme[] = "bearer ";
    size_t n = sizeof scheme - 1;
    if (authorization.len <= n) return false;
    if (!bytes_eq_nocase(bytes_of(authorization.data, n), bytes_str(scheme))) return false;
    struct bytes token = bytes_trim(bytes_from(authorization, n));
    size_t end = chars_span(token, CHAR_TOKEN68);
    bool some = end > 0;
    while (end < token.len && token.data[end] == '=') end++;
    if (!some || end != token.len) return false;
    *ret_token = token;
    return true;
}

/* ---- trace context ---- */

static bool is_small_hex(struct bytes in)
{
    for (size_t i = 0; i < in.len; i++)
        if (!char_is(in.data[i], CHAR_HEX) || (in.data[i] >= 'A' && in.data[i] <= 'F'))
            return false;
    return true;
}

static bool is_zero(const uint8_t *p, size_t len)
{
    uint8_t any = 0;
    for (size_t i = 0; i < len; i++) any |= p[i];
    return any == 0;
}

/* "-" and small hexadecimal digits at `at`, for so many bytes. */
static bool take_hex(struct bytes value, size_t at, uint8_t *out, size_t len)
{
    struct bytes digits = bytes_of(value.data + at, 2 * len);
    if (at > 0 && value.data[at - 1] != '-') return false;
    return is_small_hex(digits) && hex_decode(digits, out, len);
}

bool http_parse_traceparent(struct bytes value, struct http_traceparent *ret_parent)
{
    struct http_traceparent parent;
    uint8_t version;
    if (value.len < HTTP_TRACEPARENT_BYTES) return false;
    if (!take_hex(value, 0, &version, 1) || version == 0xff) return false;
    if (!take_hex(value, 3, parent.trace_id, 16)) return false;
    if (!take_hex(value, 36, parent.parent_id, 8)) return false;
    if (!take_hex(value, 53, &parent.flags, 1)) return false;
    if (is_zero(parent.trace_id, 16) || is_zero(parent.parent_id, 8)) return false;
    if (version == 0 && value.len > HTTP_TRACEPARENT_BYTES) return false;
    if (value.len > HTTP_TRACEPARENT_BYTES && value.data[HTTP_TRACEPARENT_BYTES] != '-')
        return false;
    *ret_parent = parent;
    return true;
}

void http_write_traceparent(const struct http_traceparent *parent, char *out)
{
    memcpy(out, "00-", 3);
    hex_encode(bytes_of(parent->trace_id, 16), out + 3);
    out[35] = '-';
    hex_encode(bytes_of(parent->parent_id, 8), out + 36);
    out[52] = '-';
    hex_encode(bytes_of(&parent->flags, 1), out + 53);
}
