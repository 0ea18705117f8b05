/* http.c - the head of a request; see http.h.
 *
 * Lines are read as they become complete. Faults within a line are found then, those that need
 * all fields at the end of the head. A head that came in pieces is walked again when it is
 * complete, because the buffer may have moved under the fields that were found before. */
#include "proto/http.h"

#include "base/check.h"
#include "proto/chars.h"
#include "proto/http_fields.h"
#include "proto/http_lines.h"
#include "proto/number.h"

const struct http_limits http_limits_default = {
    .line_bytes_max = 8192,
    .field_bytes_max = 8192,
    .head_bytes_max = 65536,
    .fields_max = 100,
    .extra_bytes_max = 8192,
    .body_bytes_max = 1 << 20,
};

static const struct {
    int status;
    const char *text;
} faults[] = {
#define ROW(fault, status, text) [fault] = { status, text },
    HTTP_FAULT_LIST(ROW)
#undef ROW
};

int http_fault_status(enum http_fault fault)
{
    return faults[fault].status;
}

const char *http_fault_text(enum http_fault fault)
{
    return faults[fault].text;
}

void http_reader_init(struct http_reader *r, const struct http_limits *limits)
{
    *r = (struct http_reader){ .limits = limits };
}

/* ---- lines and fields ---- */

enum http_progress http_take_line(struct http_reader *r, struct bytes in,
                                  struct http_line_rule rule, struct bytes *ret_line,
                                  size_t *ret_used)
{
    size_t window = rule.bytes_max + 2;
    if (in.len == 0) return HTTP_MORE;
    const uint8_t *lf = memchr(in.data, '\n', in.len < window ? in.len : window);
    if (!lf) return in.len < window ? HTTP_MORE : http_bad(r, rule.too_long);
    size_t end = (size_t)(lf - in.data);
    if (end == 0 || lf[-1] != '\r') return http_bad(r, HTTP_FAULT_LINE_END);
    *ret_line = bytes_of(in.data, end - 1);
    *ret_used = end + 1;
    return HTTP_READY;
}

enum http_fault http_parse_field(struct bytes line, struct http_field *ret_field)
{
    if (line.len > 0 && char_is_blank(line.data[0])) return HTTP_FAULT_FIELD_FOLDED;
    size_t colon = chars_span(line, CHAR_TOKEN);
    if (colon == 0 || colon == line.len || line.data[colon] != ':')
        return HTTP_FAULT_FIELD_NAME;
    struct bytes value = bytes_trim(bytes_from(line, colon + 1));
    if (!chars_are_value(value)) return HTTP_FAULT_FIELD_VALUE;
    *ret_field = (struct http_field){ bytes_of(line.data, colon), value };
    return HTTP_FAULT_NONE;
}

/* A known field is found by one look: two in the same slot would be a warning of the compiler. */
#define SLOT(len, first, last) (((len) + 5u * (first) + 11u * (last)) & 127u)

static const uint8_t slots[128] = {
#define ROW(field, name, first, last) [SLOT(sizeof(name) - 1, first, last)] = field + 1,
    HTTP_FIELD_LIST(ROW)
#undef ROW
};

static const struct bytes known_names[] = {
#define ROW(field, name, first, last) { (const uint8_t *)(name), sizeof(name) - 1 },
    HTTP_FIELD_LIST(ROW)
#undef ROW
};

/* Both are tokens, the second in small letters: among their characters one bit makes a letter
 * small, and leaves '-' and digits alone. */
static bool is_name(struct bytes name, struct bytes small)
{
    uint64_t difference = 0;
    size_t at = 0;
    if (name.len != small.len) return false;
    for (; small.len - at >= 8; at += 8) {
        uint64_t a, b;
        memcpy(&a, name.data + at, 8);
        memcpy(&b, small.data + at, 8);
        difference |= (a | UINT64_C(0x2020202020202020)) ^ b;
    }
    for (; at < small.len; at++) difference |= (name.data[at] | 0x20u) ^ small.data[at];
    return difference == 0;
}

/* Its number from 1; 0: none that we know. */
static unsigned known_number(struct bytes name)
{
    uint8_t first = char_lower(name.data[0]), last = char_lower(name.data[name.len - 1]);
    unsigned number = slots[SLOT((unsigned)name.len, first, last)];
    return number > 0 && is_name(name, known_names[number - 1]) ? number : 0;
}

static void note_known(struct http_request *request, size_t index)
{
    unsigned number = known_number(request->fields[index].name);
    if (number == 0) return;
    if (request->known[number - 1]) request->repeated |= BIT(number - 1);
    if (!request->known[number - 1]) request->known[number - 1] = (uint16_t)(index + 1);
}

struct bytes http_known_field(const struct http_request *request, enum http_known field)
{
    unsigned number = request->known[field];
    return number ? request->fields[number - 1].value : bytes_of(NULL, 0);
}

struct bytes http_field(const struct http_request *request, const char *name)
{
    for (size_t i = 0; i < request->count; i++)
        if (bytes_eq_nocase(request->fields[i].name, bytes_str(name)))
            return request->fields[i].value;
    return bytes_of(NULL, 0);
}

/* ---- the request line ---- */

static const struct bytes method_names[] = {
#define ROW(method, name) { (const uint8_t *)(name), sizeof(name) - 1 },
    HTTP_METHOD_LIST(ROW)
#undef ROW
};

static enum http_method method_of(struct bytes name)
{
    for (unsigned i = HTTP_GET; i <= HTTP_TRACE; i++)
        if (bytes_eq(name, method_names[i])) return i;
    return HTTP_OTHER;
}

/* "HTTP/1.2" is to be treated as the highest minor version that we know. */
static enum http_fault read_version(struct bytes text, struct http_request *request)
{
    bool formed = text.len == 8 && memcmp(text.data, "HTTP/", 5) == 0 &&
                  char_is(text.data[5], CHAR_DIGIT) && text.data[6] == '.' &&
                  char_is(text.data[7], CHAR_DIGIT);
    if (!formed) return HTTP_FAULT_REQUEST_LINE;
    if (text.data[5] != '1') return HTTP_FAULT_VERSION;
    request->minor = text.data[7] != '0';
    return HTTP_FAULT_NONE;
}

/* The first line of what a client sends that is sure to meet a server for HTTP/2. */
static bool is_http2(struct bytes line)
{
    return bytes_eq(line, bytes_str("PRI * HTTP/2.0"));
}

static enum http_fault read_request_line(struct bytes line, struct http_request *request)
{
    if (is_http2(line)) return HTTP_FAULT_HTTP2;
    size_t n = chars_span(line, CHAR_TOKEN);
    if (n == 0 || n == line.len || line.data[n] != ' ') return HTTP_FAULT_REQUEST_LINE;
    request->method_name = bytes_of(line.data, n);
    request->method = method_of(request->method_name);
    struct bytes rest = bytes_from(line, n + 1);
    n = chars_span(rest, CHAR_TARGET);
    if (n == rest.len) return HTTP_FAULT_REQUEST_LINE;
    if (n == 0 || rest.data[n] != ' ') return HTTP_FAULT_TARGET;
    request->target = bytes_of(rest.data, n);
    enum http_fault fault = read_version(bytes_from(rest, n + 1), request);
    return fault ? fault : http_parse_target(request);
}

/* ---- all lines ---- */

static void clear_request(struct http_request *request)
{
    *request = (struct http_request){ .fields = request->fields };
}

static enum http_fault read_line(struct http_reader *r, struct bytes line,
                                 struct http_request *request)
{
    if (r->lines == 0) return read_request_line(line, request);
    size_t index = r->lines - 1;
    if (index == r->limits->fields_max) return HTTP_FAULT_FIELDS_MANY;
    enum http_fault fault = http_parse_field(line, &request->fields[index]);
    if (!fault) note_known(request, index);
    return fault;
}

/* A line may be as long as the rest of the head; which limit is hit first says which fault. */
static struct http_line_rule line_rule(const struct http_reader *r)
{
    const struct http_limits *limits = r->limits;
    size_t room = limits->head_bytes_max > r->at + 2 ? limits->head_bytes_max - r->at - 2 : 0;
    if (r->lines == 0 && limits->line_bytes_max <= room)
        return (struct http_line_rule){ limits->line_bytes_max, HTTP_FAULT_TARGET_LONG };
    if (r->lines > 0 && limits->field_bytes_max <= room)
        return (struct http_line_rule){ limits->field_bytes_max, HTTP_FAULT_FIELD_LONG };
    return (struct http_line_rule){ room, HTTP_FAULT_HEAD_LONG };
}

/* One empty line in front of a request is skipped: some clients end their content with it. */
static enum http_progress walk_lines(struct http_reader *r, struct bytes in,
                                     struct http_request *request)
{
    for (;;) {
        struct bytes line;
        size_t used, at = r->at;
        enum http_progress p =
            http_take_line(r, bytes_from(in, at), line_rule(r), &line, &used);
        if (p != HTTP_READY) return p;
        r->at += used;
        if (line.len == 0 && r->lines > 0) return HTTP_READY;
        if (line.len == 0 && at == 0) continue;
        enum http_fault fault = read_line(r, line, request);
        if (fault) return http_bad(r, fault);
        r->lines++;
    }
}

/* ---- what the fields say together ---- */

static bool is_repeated(const struct http_request *request, enum http_known field)
{
    return request->repeated & BIT(field);
}

static enum http_fault check_host(const struct http_limits *limits,
                                  struct http_request *request)
{
    (void)limits;
    struct bytes host = http_known_field(request, HTTP_HOST);
    if (is_repeated(request, HTTP_HOST)) return HTTP_FAULT_HOST_REPEATED;
    if (!host.data) return request->minor > 0 ? HTTP_FAULT_HOST_MISSING : HTTP_FAULT_NONE;
    if (!http_authority_is_valid(host, false)) return HTTP_FAULT_HOST;
    if (!request->authority.data) request->authority = host;
    return HTTP_FAULT_NONE;
}

/* "chunked" alone. Chunked that is not last leaves the end of the request to guessing. */
static enum http_fault check_coding(const struct http_limits *limits,
                                    struct http_request *request)
{
    (void)limits;
    struct bytes list = http_known_field(request, HTTP_TRANSFER_ENCODING), coding;
    if (!list.data) return HTTP_FAULT_NONE;
    if (request->known[HTTP_CONTENT_LENGTH]) return HTTP_FAULT_LENGTH_AND_CODING;
    if (request->minor == 0) return HTTP_FAULT_CODING_OLD;
    if (is_repeated(request, HTTP_TRANSFER_ENCODING)) return HTTP_FAULT_CODING;
    bool chunked = false, others = false;
    while (http_next_in_list(&list, &coding)) {
        if (chunked) return HTTP_FAULT_CODING;
        if (chars_span(coding, CHAR_TOKEN) == 0) return HTTP_FAULT_CODING;
        chunked = bytes_eq_nocase(coding, bytes_str("chunked"));
        others |= !chunked;
    }
    if (others) return HTTP_FAULT_CODING_UNKNOWN;
    if (!chunked) return HTTP_FAULT_CODING;
    request->has_body = true;
    request->length = -1;
    return HTTP_FAULT_NONE;
}

static enum http_fault check_length(const struct http_limits *limits,
                                    struct http_request *request)
{
    struct bytes length = http_known_field(request, HTTP_CONTENT_LENGTH);
    if (!length.data) return HTTP_FAULT_NONE;
    if (is_repeated(request, HTTP_CONTENT_LENGTH)) return HTTP_FAULT_LENGTH_REPEATED;
    if (!number_parse_length(length, &request->length)) return HTTP_FAULT_LENGTH;
    if (request->length > limits->body_bytes_max) return HTTP_FAULT_BODY_LONG;
    request->has_body = true;
    return HTTP_FAULT_NONE;
}

static enum http_fault check_length_missing(const struct http_limits *limits,
                                            struct http_request *request)
{
    if (!limits->length_required || request->has_body) return HTTP_FAULT_NONE;
    bool wanted = request->method == HTTP_POST || request->method == HTTP_PUT ||
                  request->method == HTTP_PATCH;
    return wanted ? HTTP_FAULT_LENGTH_MISSING : HTTP_FAULT_NONE;
}

struct connection_options {
    bool close, keep_alive;
};

static bool read_connection(struct bytes list, struct connection_options *options)
{
    struct bytes option;
    while (http_next_in_list(&list, &option)) {
        if (chars_span(option, CHAR_TOKEN) != option.len) return false;
        options->close |= bytes_eq_nocase(option, bytes_str("close"));
        options->keep_alive |= bytes_eq_nocase(option, bytes_str("keep-alive"));
    }
    return true;
}

static enum http_fault check_connection(const struct http_limits *limits,
                                        struct http_request *request)
{
    (void)limits;
    struct connection_options options = { 0 };
    size_t from = request->known[HTTP_CONNECTION];
    for (size_t i = from; from > 0 && i <= request->count; i++) {
        const struct http_field *field = &request->fields[i - 1];
        if (i > from && known_number(field->name) != HTTP_CONNECTION + 1) continue;
        if (!read_connection(field->value, &options)) return HTTP_FAULT_CONNECTION;
    }
    request->keep_alive = !options.close && (request->minor > 0 || options.keep_alive);
    return HTTP_FAULT_NONE;
}

/* HTTP/1.0 does not know it: there it is ignored. */
static enum http_fault check_expect(const struct http_limits *limits,
                                    struct http_request *request)
{
    (void)limits;
    struct bytes expect = http_known_field(request, HTTP_EXPECT);
    if (!expect.data || request->minor == 0) return HTTP_FAULT_NONE;
    bool known = bytes_eq_nocase(expect, bytes_str("100-continue"));
    if (!known || is_repeated(request, HTTP_EXPECT)) return HTTP_FAULT_EXPECT;
    request->expect_continue = request->has_body && request->length != 0;
    return HTTP_FAULT_NONE;
}

typedef enum http_fault check_fn(const struct http_limits *limits,
                                 struct http_request *request);

static check_fn *const checks[] = {
    check_host,           check_coding,     check_length,
    check_length_missing, check_connection, check_expect,
};

static void start_body(struct http_reader *r, const struct http_request *request)
{
    http_reader_init(r, r->limits);
    r->left = request->length;
    if (request->length < 0) r->step = BODY_CHUNK_SIZE;
    if (request->length > 0) r->step = BODY_LENGTH;
}

static enum http_progress finish_head(struct http_reader *r, struct http_request *request)
{
    request->used = r->at;
    request->count = r->lines - 1;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        enum http_fault fault = checks[i](r->limits, request);
        if (fault) return http_bad(r, fault);
    }
    start_body(r, request);
    return HTTP_READY;
}

enum http_progress http_read_head(struct http_reader *r, struct bytes in,
                                  struct http_request *ret_request)
{
    bool resumed = r->at > 0;
    clear_request(ret_request);
    enum http_progress p = walk_lines(r, in, ret_request);
    if (p == HTTP_READY && resumed) {
        http_reader_init(r, r->limits);
        clear_request(ret_request);
        p = walk_lines(r, in, ret_request);
        CHECK(p == HTTP_READY);
    }
    return p == HTTP_READY ? finish_head(r, ret_request) : p;
}
