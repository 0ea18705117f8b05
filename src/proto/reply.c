/* reply.c - see reply.h.
 *
 * Which aggregates are open is written into the nodes themselves: while one is open, `next` names
 * the one around it and `len` the elements that it lacks. */
#include "proto/reply.h"

#include "base/check.h"
#include "proto/chars.h"
#include "proto/number.h"

enum { NONE = UINT32_MAX, ERROR_WORD_BYTES_MAX = 16 };

struct line {
    size_t from, to, end; /* what is behind the type, up to CR LF, and behind that */
};

struct input {
    struct bytes bytes;
    struct err *reterr;
};

void reply_reader_init(struct reply_reader *r, const struct reply_limits *limits,
                       struct reply_node *nodes, size_t nodes_max)
{
    CHECK(limits->bytes_max < UINT32_MAX && nodes_max < NONE);
    *r = (struct reply_reader){ limits, nodes, nodes_max, .open = NONE };
}

void reply_reader_clear(struct reply_reader *r)
{
    reply_reader_init(r, r->limits, r->nodes, r->nodes_max);
}

const struct reply_node *reply_element(const struct reply_node *nodes,
                                       const struct reply_node *aggregate, size_t number)
{
    bool aggregated = aggregate->type >= REPLY_ARRAY;
    if (!aggregated || number >= (uint64_t)aggregate->number) return NULL;
    const struct reply_node *n = aggregate + 1;
    while (number-- > 0) n = nodes + n->next;
    return n;
}

static enum resp_progress bad(const struct input *in, int code, const char *text)
{
    err_set(in->reterr, code, "Protocol error: %s", text);
    return RESP_BAD;
}

static enum resp_progress more(struct reply_reader *r, size_t need)
{
    r->need = need;
    return RESP_MORE;
}

static enum resp_progress take_line(struct reply_reader *r, const struct input *in,
                                    struct line *ret)
{
    size_t from = r->at + 1, have = in->bytes.len - from;
    size_t window = have <= r->limits->line_bytes_max ? have : r->limits->line_bytes_max + 1;
    const uint8_t *cr = window ? memchr(in->bytes.data + from, '\r', window) : NULL;
    if (!cr && window > r->limits->line_bytes_max)
        return bad(in, ERR_LIMIT, "a line is too long");
    if (!cr) return more(r, in->bytes.len + 1);
    size_t to = (size_t)(cr - in->bytes.data);
    if (memchr(in->bytes.data + from, '\n', to - from))
        return bad(in, ERR_INVALID, "a line does not end with CR LF");
    if (to + 1 == in->bytes.len) return more(r, in->bytes.len + 1);
    if (cr[1] != '\n') return bad(in, ERR_INVALID, "a line does not end with CR LF");
    if (to + 2 > r->limits->bytes_max) return bad(in, ERR_LIMIT, "the reply is too large");
    *ret = (struct line){ from, to, to + 2 };
    return RESP_READY;
}

/* One value is complete; so may be what it was the last element of. */
static void close_aggregates(struct reply_reader *r)
{
    while (r->open != NONE) {
        struct reply_node *n = &r->nodes[r->open];
        if (--n->len > 0) return;
        r->open = n->next;
        n->next = (uint32_t)r->count;
        r->depth--;
    }
}

static enum resp_progress add(struct reply_reader *r, const struct input *in,
                              struct reply_node node, size_t end)
{
    if (r->count == r->nodes_max) return bad(in, ERR_LIMIT, "the reply has too many values");
    node.next = (uint32_t)r->count + 1;
    r->nodes[r->count++] = node;
    r->at = end;
    close_aggregates(r);
    return RESP_READY;
}

static struct bytes line_bytes(const struct input *in, const struct line *line)
{
    return bytes_of(in->bytes.data + line->from, line->to - line->from);
}

/* ---- one function per kind of value ---- */

typedef enum resp_progress read_fn(struct reply_reader *r, const struct input *in,
                                   const struct line *line, enum reply_type type);

static enum resp_progress read_simple(struct reply_reader *r, const struct input *in,
                                      const struct line *line, enum reply_type type)
{
    struct reply_node n = { type, (uint32_t)line->from, (uint32_t)(line->to - line->from) };
    return add(r, in, n, line->end);
}

/* Where the digits at the start end; a sign may stand in front of them. */
static struct bytes skip_digits(struct bytes text, bool *ret_some)
{
    if (text.len > 0 && (text.data[0] == '-' || text.data[0] == '+'))
        text = bytes_from(text, 1);
    size_t n = chars_span(text, CHAR_DIGIT);
    *ret_some = n > 0;
    return bytes_from(text, n);
}

static bool is_double(struct bytes text)
{
    bool digits, fraction = true, exponent = true;
    static const char *const words[] = { "inf", "-inf", "nan" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (bytes_eq(text, bytes_str(words[i]))) return true;
    text = skip_digits(text, &digits);
    if (text.len > 0 && text.data[0] == '.') {
        text = bytes_from(text, 1);
        size_t n = chars_span(text, CHAR_DIGIT);
        fraction = n > 0;
        text = bytes_from(text, n);
    }
    if (text.len > 0 && (text.data[0] | 0x20) == 'e')
        text = skip_digits(bytes_from(text, 1), &exponent);
    return digits && fraction && exponent && text.len == 0;
}

static enum resp_progress read_double(struct reply_reader *r, const struct input *in,
                                      const struct line *line, enum reply_type type)
{
    if (!is_double(line_bytes(in, line))) return bad(in, ERR_INVALID, "invalid double");
    return read_simple(r, in, line, type);
}

static enum resp_progress read_big(struct reply_reader *r, const struct input *in,
                                   const struct line *line, enum reply_type type)
{
    bool digits;
    struct bytes rest = skip_digits(line_bytes(in, line), &digits);
    if (!digits || rest.len > 0) return bad(in, ERR_INVALID, "invalid big number");
    return read_simple(r, in, line, type);
}

static enum resp_progress read_integer(struct reply_reader *r, const struct input *in,
                                       const struct line *line, enum reply_type type)
{
    struct reply_node n = { type };
    struct bytes text = line_bytes(in, line);
    if (!number_parse(text, &n.number)) return bad(in, ERR_INVALID, "invalid integer");
    return add(r, in, n, line->end);
}

static enum resp_progress read_null(struct reply_reader *r, const struct input *in,
                                    const struct line *line, enum reply_type type)
{
    if (line->to != line->from) return bad(in, ERR_INVALID, "invalid null");
    return add(r, in, (struct reply_node){ type }, line->end);
}

static enum resp_progress read_boolean(struct reply_reader *r, const struct input *in,
                                       const struct line *line, enum reply_type type)
{
    struct bytes text = line_bytes(in, line);
    bool yes = bytes_eq(text, bytes_str("t"));
    if (!yes && !bytes_eq(text, bytes_str("f"))) return bad(in, ERR_INVALID, "invalid boolean");
    return add(r, in, (struct reply_node){ type, .number = yes }, line->end);
}

/* Lengths and counts; -1 is the null of RESP2. */
static enum resp_progress read_length(const struct input *in, const struct line *line,
                                      int64_t max, int64_t *ret)
{
    int64_t n;
    if (!number_parse(line_bytes(in, line), &n) || n < -1)
        return bad(in, ERR_INVALID, "invalid length");
    if (n > max) return bad(in, ERR_LIMIT, "the reply is too large");
    *ret = n;
    return RESP_READY;
}

static enum resp_progress read_bulk(struct reply_reader *r, const struct input *in,
                                    const struct line *line, enum reply_type type)
{
    int64_t room = (int64_t)r->limits->bytes_max - (int64_t)line->end - 2, len;
    enum resp_progress p = read_length(in, line, room, &len);
    if (p != RESP_READY) return p;
    if (len < 0) return add(r, in, (struct reply_node){ REPLY_NULL }, line->end);
    size_t end = line->end + (size_t)len;
    if (in->bytes.len < end + 2) return more(r, end + 2);
    if (memcmp(in->bytes.data + end, "\r\n", 2) != 0)
        return bad(in, ERR_INVALID, "a bulk string does not end with CR LF");
    struct reply_node n = { type, (uint32_t)line->end, (uint32_t)len };
    return add(r, in, n, end + 2);
}

/* "txt:" stands in front of it. */
static enum resp_progress read_verbatim(struct reply_reader *r, const struct input *in,
                                        const struct line *line, enum reply_type type)
{
    enum resp_progress p = read_bulk(r, in, line, type);
    if (p != RESP_READY) return p;
    struct reply_node *n = &r->nodes[r->count - 1];
    if (n->len < 4 || in->bytes.data[n->start + 3] != ':')
        return bad(in, ERR_INVALID, "invalid verbatim string");
    n->start += 4;
    n->len -= 4;
    return RESP_READY;
}

/* There must be room for the elements when they are announced. */
static enum resp_progress open_aggregate(struct reply_reader *r, const struct input *in,
                                         const struct line *line, struct reply_node n)
{
    if (r->depth == r->limits->depth_max) return bad(in, ERR_LIMIT, "the reply is too deep");
    if (r->count == r->nodes_max || (uint64_t)n.number > r->nodes_max - r->count - 1)
        return bad(in, ERR_LIMIT, "the reply has too many values");
    n.len = (uint32_t)n.number;
    n.next = r->open;
    r->open = (uint32_t)r->count;
    r->nodes[r->count++] = n;
    r->depth++;
    r->at = line->end;
    return RESP_READY;
}

static enum resp_progress read_aggregate(struct reply_reader *r, const struct input *in,
                                         const struct line *line, enum reply_type type)
{
    struct reply_node n = { type };
    enum resp_progress p = read_length(in, line, UINT32_MAX, &n.number);
    if (p != RESP_READY) return p;
    if (n.number < 0) return add(r, in, (struct reply_node){ REPLY_NULL }, line->end);
    if (type == REPLY_MAP) n.number *= 2;
    if (n.number == 0) return add(r, in, n, line->end);
    return open_aggregate(r, in, line, n);
}

static const struct kind {
    read_fn *read;
    enum reply_type type;
} kinds[256] = {
    ['+'] = { read_simple, REPLY_TEXT },     ['-'] = { read_simple, REPLY_ERROR },
    ['('] = { read_big, REPLY_TEXT },        [','] = { read_double, REPLY_DOUBLE },
    [':'] = { read_integer, REPLY_INTEGER }, ['_'] = { read_null, REPLY_NULL },
    ['#'] = { read_boolean, REPLY_BOOLEAN }, ['$'] = { read_bulk, REPLY_TEXT },
    ['!'] = { read_bulk, REPLY_ERROR },      ['='] = { read_verbatim, REPLY_TEXT },
    ['*'] = { read_aggregate, REPLY_ARRAY }, ['~'] = { read_aggregate, REPLY_ARRAY },
    ['%'] = { read_aggregate, REPLY_MAP },   ['>'] = { read_aggregate, REPLY_PUSH },
};

static enum resp_progress read_value(struct reply_reader *r, const struct input *in)
{
    if (r->at == in->bytes.len) return more(r, in->bytes.len + 1);
    const struct kind *kind = &kinds[in->bytes.data[r->at]];
    if (!kind->read) return bad(in, ERR_INVALID, "unknown type of value");
    struct line line;
    enum resp_progress p = take_line(r, in, &line);
    return p == RESP_READY ? kind->read(r, in, &line, kind->type) : p;
}

enum resp_progress reply_read(struct reply_reader *r, struct bytes in, struct err *reterr)
{
    /* cppcheck-suppress ctuuninitvar ; an output: it is kept here, not read */
    struct input input = { in, reterr };
    if (in.len < r->need) return RESP_MORE;
    enum resp_progress p;
    do p = read_value(r, &input);
    while (p == RESP_READY && r->open != NONE);
    return p;
}

struct bytes reply_error_word(struct bytes text)
{
    size_t len = 0;
    while (len < text.len && text.data[len] >= 'A' && text.data[len] <= 'Z') len++;
    bool whole = len == text.len || text.data[len] == ' ';
    return bytes_of(text.data, whole && len <= ERROR_WORD_BYTES_MAX ? len : 0);
}
