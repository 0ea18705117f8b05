/* http_target.c - the four forms of a request target, and its parts; see http.h. */
#include "proto/chars.h"
#include "proto/http_lines.h"

static bool starts_with_nocase(struct bytes in, const char *prefix)
{
    struct bytes p = bytes_str(prefix);
    return in.len >= p.len && bytes_eq_nocase(bytes_of(in.data, p.len), p);
}

/* ---- authority ---- */

static bool escapes_are_valid(struct bytes in)
{
    for (size_t i = 0; i < in.len; i++) {
        if (in.data[i] != '%') continue;
        if (in.len - i < 3) return false;
        if (!char_is(in.data[i + 1], CHAR_HEX) || !char_is(in.data[i + 2], CHAR_HEX))
            return false;
    }
    return true;
}

static bool port_is_valid(struct bytes digits)
{
    unsigned port = 0;
    if (digits.len > 5) return false;
    for (size_t i = 0; i < digits.len; i++) {
        if (!char_is(digits.data[i], CHAR_DIGIT)) return false;
        port = port * 10 + (digits.data[i] - '0');
    }
    return port <= 65535;
}

/* "[::1]": how long it is with its brackets; 0: not well formed. */
static size_t address_len(struct bytes in)
{
    size_t n = 1;
    while (n < in.len &&
           (char_is(in.data[n], CHAR_HEX) || in.data[n] == ':' || in.data[n] == '.'))
        n++;
    return n > 1 && n < in.len && in.data[n] == ']' ? n + 1 : 0;
}

bool http_authority_is_valid(struct bytes authority, bool port_required)
{
    bool address = authority.len > 0 && authority.data[0] == '[';
    size_t n = address ? address_len(authority) : chars_span(authority, CHAR_HOST);
    struct bytes host = bytes_of(authority.data, n), port = bytes_from(authority, n);
    if (address && n == 0) return false;
    if (!escapes_are_valid(host)) return false;
    if (port_required)
        return n > 0 && port.len > 1 && port.data[0] == ':' &&
               port_is_valid(bytes_from(port, 1));
    if (port.len == 0) return true;
    return n > 0 && port.data[0] == ':' && port_is_valid(bytes_from(port, 1));
}

/* ---- the four forms ---- */

static enum http_fault split_query(struct http_request *request, struct bytes in)
{
    if (chars_span(in, CHAR_PATH) != in.len) return HTTP_FAULT_TARGET;
    const uint8_t *mark = in.len ? memchr(in.data, '?', in.len) : NULL;
    size_t path = mark ? (size_t)(mark - in.data) : in.len;
    request->path = bytes_of(in.data, path);
    if (mark) request->query = bytes_from(in, path + 1);
    return HTTP_FAULT_NONE;
}

static enum http_fault parse_authority_form(struct http_request *request)
{
    request->form = HTTP_AUTHORITY_FORM;
    request->authority = request->target;
    return http_authority_is_valid(request->target, true) ? HTTP_FAULT_NONE : HTTP_FAULT_TARGET;
}

/* A user in front of the host would be a way to write it misleadingly: '@' is in no host. */
static enum http_fault parse_absolute_form(struct http_request *request)
{
    bool http = starts_with_nocase(request->target, "http://");
    if (!http && !starts_with_nocase(request->target, "https://")) return HTTP_FAULT_TARGET;
    struct bytes rest = bytes_from(request->target, http ? 7 : 8);
    size_t n = 0;
    while (n < rest.len && rest.data[n] != '/' && rest.data[n] != '?') n++;
    request->form = HTTP_ABSOLUTE_FORM;
    request->authority = bytes_of(rest.data, n);
    if (n == 0 || !http_authority_is_valid(request->authority, false)) return HTTP_FAULT_TARGET;
    enum http_fault fault = split_query(request, bytes_from(rest, n));
    if (request->path.len == 0) request->path = bytes_str("/");
    return fault;
}

enum http_fault http_parse_target(struct http_request *request)
{
    bool asterisk = bytes_eq(request->target, bytes_str("*"));
    if (request->method == HTTP_CONNECT) return parse_authority_form(request);
    if (request->target.data[0] == '/') return split_query(request, request->target);
    if (!asterisk) return parse_absolute_form(request);
    request->form = HTTP_ASTERISK_FORM;
    return request->method == HTTP_OPTIONS ? HTTP_FAULT_NONE : HTTP_FAULT_TARGET;
}

/* ---- parts ---- */

bool http_next_segment(struct bytes *path, struct bytes *ret_segment)
{
    if (path->len == 0 || path->data[0] != '/') return false;
    struct bytes rest = bytes_from(*path, 1);
    const uint8_t *slash = rest.len ? memchr(rest.data, '/', rest.len) : NULL;
    size_t n = slash ? (size_t)(slash - rest.data) : rest.len;
    *ret_segment = bytes_of(rest.data, n);
    *path = bytes_from(rest, n);
    return true;
}

bool http_next_parameter(struct bytes *query, struct http_parameter *ret_parameter)
{
    while (query->len > 0 && query->data[0] == '&') *query = bytes_from(*query, 1);
    if (query->len == 0) return false;
    const uint8_t *end = memchr(query->data, '&', query->len);
    struct bytes pair = bytes_of(query->data, end ? (size_t)(end - query->data) : query->len);
    const uint8_t *equals = memchr(pair.data, '=', pair.len);
    size_t name = equals ? (size_t)(equals - pair.data) : pair.len;
    ret_parameter->name = bytes_of(pair.data, name);
    ret_parameter->value = equals ? bytes_from(pair, name + 1) : bytes_of(pair.data + name, 0);
    *query = bytes_from(*query, pair.len);
    return true;
}

/* A NUL would end the text for whoever takes it for a C string later. */
static bool unescape(struct bytes in, uint8_t plus, uint8_t *out, size_t *ret_len)
{
    size_t len = 0;
    if (!escapes_are_valid(in)) return false;
    for (size_t i = 0; i < in.len; i++) {
        uint8_t c = in.data[i] == '+' ? plus : in.data[i];
        if (c == '%') {
            c = (uint8_t)(hex_digit(in.data[i + 1]) << 4 | hex_digit(in.data[i + 2]));
            i += 2;
        }
        if (c == '\0') return false;
        out[len++] = c;
    }
    *ret_len = len;
    return true;
}

bool http_unescape(struct bytes in, uint8_t *out, size_t *ret_len)
{
    return unescape(in, '+', out, ret_len);
}

bool http_unescape_parameter(struct bytes in, uint8_t *out, size_t *ret_len)
{
    return unescape(in, ' ', out, ret_len);
}
