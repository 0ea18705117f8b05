/* resp.c - commands as clients send them; see resp.h.
 *
 * A command that came in pieces is walked twice: once as far as each piece allowed, to find out
 * what is wrong as early as possible, and once when it is complete, to point at its arguments in
 * a buffer that may have moved. One that came in one piece is walked once. */
#include "proto/resp.h"

#include "base/check.h"
#include "proto/chars.h"
#include "proto/number.h"

enum { COUNT_BYTES_MAX = 20 }; /* digits of any int64, and its sign */

struct input {
    uint8_t *data;
    size_t len;
    struct resp_command *command;
    struct err *reterr;
};

void resp_reader_init(struct resp_reader *r, const struct resp_limits *limits)
{
    *r = (struct resp_reader){ .limits = limits };
}

static void rewind_reader(struct resp_reader *r)
{
    resp_reader_init(r, r->limits);
}

static enum resp_progress bad(const struct input *in, int code, const char *text)
{
    err_set(in->reterr, code, "Protocol error: %s", text);
    return RESP_BAD;
}

static enum resp_progress more(struct resp_reader *r, size_t need)
{
    r->need = need;
    return RESP_MORE;
}

/* ---- arrays of bulk strings ---- */

struct header {
    const char *too_long, *invalid;
};

static const struct header header_args = { "too big mbulk count string",
                                           "invalid multibulk length" };
static const struct header header_bulk = { "too big bulk count string", "invalid bulk length" };

/* Nearly every header is a few digits and CR LF, all of it there: its number, and *end behind it;
 * -1: it has to be looked at closely. */
static int64_t read_short_header(const struct input *in, size_t *end)
{
    size_t from = *end, at = from;
    int64_t n = 0;
    if (in->len - from < 8 || in->data[from] == '0') return -1;
    for (; at - from < 6 && char_is(in->data[at], CHAR_DIGIT); at++)
        n = n * 10 + (in->data[at] - '0');
    if (at == from || in->data[at] != '\r' || in->data[at + 1] != '\n') return -1;
    *end = at + 2;
    return n;
}

/* The number of the header line at r->at, whose type was looked at; *ret_end is behind it. */
static enum resp_progress read_header(struct resp_reader *r, const struct input *in,
                                      const struct header *h, int64_t *ret, size_t *ret_end)
{
    size_t from = r->at + 1, to = from;
    *ret_end = from;
    *ret = read_short_header(in, ret_end);
    if (*ret >= 0) return RESP_READY;
    while (to < in->len && in->data[to] != '\r' && to - from <= COUNT_BYTES_MAX) to++;
    if (to - from > COUNT_BYTES_MAX) return bad(in, ERR_LIMIT, h->too_long);
    if (to == in->len) return more(r, in->len + 1);
    if (!number_parse(bytes_of(in->data + from, to - from), ret))
        return bad(in, ERR_INVALID, h->invalid);
    if (to + 1 == in->len) return more(r, in->len + 1);
    if (in->data[to + 1] != '\n') return bad(in, ERR_INVALID, h->invalid);
    *ret_end = to + 2;
    return RESP_READY;
}

/* No arguments, or less than none, is a command that asks for nothing: as in Redis. */
static enum resp_progress read_args_header(struct resp_reader *r, const struct input *in)
{
    int64_t count;
    size_t end;
    enum resp_progress p = read_header(r, in, &header_args, &count, &end);
    if (p != RESP_READY) return p;
    if (count > 0 && (uint64_t)count > r->limits->args_max)
        return bad(in, ERR_LIMIT, header_args.invalid);
    r->left = count > 0 ? (size_t)count : 0;
    r->at = end;
    r->begun = true;
    in->command->count = 0;
    return RESP_READY;
}

static enum resp_progress expected_bulk(const struct input *in, uint8_t got)
{
    err_set(in->reterr, ERR_INVALID, "Protocol error: expected '$', got '%c'",
            got > ' ' && got < 0x7f ? got : '?');
    return RESP_BAD;
}

/* A length is judged when it is announced; then nothing happens until all of it is there. */
static enum resp_progress check_bulk(const struct resp_reader *r, const struct input *in,
                                     int64_t len, size_t at)
{
    size_t total_max = r->limits->command_bytes_max;
    if (len < 0) return bad(in, ERR_INVALID, header_bulk.invalid);
    if ((uint64_t)len > r->limits->bulk_bytes_max)
        return bad(in, ERR_LIMIT, header_bulk.invalid);
    if (at + 2 > total_max || (uint64_t)len > total_max - at - 2)
        return bad(in, ERR_LIMIT, "too big request");
    return RESP_READY;
}

static enum resp_progress read_bulk(struct resp_reader *r, const struct input *in)
{
    if (r->at == in->len) return more(r, in->len + 1);
    if (in->data[r->at] != '$') return expected_bulk(in, in->data[r->at]);
    int64_t len;
    size_t at;
    enum resp_progress p = read_header(r, in, &header_bulk, &len, &at);
    if (p == RESP_READY) p = check_bulk(r, in, len, at);
    if (p != RESP_READY) return p;
    size_t end = at + (size_t)len;
    if (in->len - at < (size_t)len + 2) return more(r, end + 2);
    if (in->data[end] != '\r' || in->data[end + 1] != '\n')
        return bad(in, ERR_INVALID, "a bulk string does not end with CR LF");
    in->command->args[in->command->count++] = bytes_of(in->data + at, (size_t)len);
    r->at = end + 2;
    r->left--;
    return RESP_READY;
}

static enum resp_progress read_array(struct resp_reader *r, const struct input *in)
{
    enum resp_progress p = r->begun ? RESP_READY : read_args_header(r, in);
    if (r->begun) in->command->count = 0;
    while (p == RESP_READY && r->left > 0) p = read_bulk(r, in);
    return p;
}

static enum resp_progress read_array_again(struct resp_reader *r, const struct input *in)
{
    bool resumed = r->begun;
    enum resp_progress p = read_array(r, in);
    if (p != RESP_READY || !resumed) return p;
    rewind_reader(r);
    p = read_array(r, in);
    CHECK(p == RESP_READY);
    return p;
}

/* ---- lines of words ---- */

/* What stands for the character behind a backslash, between double quotes. */
static const uint8_t escapes[256] = {
    ['n'] = '\n', ['r'] = '\r', ['t'] = '\t', ['b'] = '\b', ['a'] = '\a',
};

struct words {
    const uint8_t *at, *end; /* what is still to be read */
    uint8_t *out;            /* where the next byte of the word goes: never ahead of `at` */
};

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Vertical tab and form feed stand between words, but do not end one: as in Redis. */
static bool ends_word(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* "\x41", "\n", "\"": the backslash was seen. */
static void read_escape(struct words *w)
{
    bool hex = w->end - w->at >= 3 && w->at[0] == 'x' && char_is(w->at[1], CHAR_HEX) &&
               char_is(w->at[2], CHAR_HEX);
    if (hex) {
        *w->out++ = (uint8_t)(hex_digit(w->at[1]) << 4 | hex_digit(w->at[2]));
        w->at += 3;
        return;
    }
    uint8_t c = *w->at++;
    *w->out++ = escapes[c] ? escapes[c] : c;
}

/* The opening quote was seen. The closing one has to be there, and a word ends with it. */
static bool read_quoted(struct words *w, uint8_t quote)
{
    while (w->at < w->end && *w->at != quote) {
        uint8_t c = *w->at++;
        bool escape = c == '\\' && w->at < w->end && (quote == '"' || *w->at == '\'');
        if (escape)
            read_escape(w);
        else
            *w->out++ = c;
    }
    if (w->at == w->end) return false;
    w->at++;
    return w->at == w->end || is_space(*w->at);
}

static bool read_word(struct words *w)
{
    while (w->at < w->end && !ends_word(*w->at)) {
        uint8_t c = *w->at++;
        if (c == '"' || c == '\'') return read_quoted(w, c);
        *w->out++ = c;
    }
    return true;
}

static enum resp_progress split_words(const struct resp_reader *r, const struct input *in,
                                      size_t end)
{
    struct words w = { .at = in->data, .end = in->data + end };
    for (in->command->count = 0;; in->command->count++) {
        while (w.at < w.end && is_space(*w.at)) w.at++;
        if (w.at == w.end) return RESP_READY;
        if (in->command->count == r->limits->args_max)
            return bad(in, ERR_LIMIT, "too many words in a line");
        uint8_t *start = w.out = in->data + (w.at - in->data);
        if (!read_word(&w)) return bad(in, ERR_INVALID, "unbalanced quotes in request");
        in->command->args[in->command->count] = bytes_of(start, (size_t)(w.out - start));
    }
}

/* A NUL is not typed by a person; Redis would take the line to end there. */
static enum resp_progress read_line(struct resp_reader *r, const struct input *in)
{
    size_t max = r->limits->inline_bytes_max;
    size_t window = in->len <= max ? in->len : max + 1;
    const uint8_t *lf = memchr(in->data + r->at, '\n', window - r->at);
    if (!lf && window > max) return bad(in, ERR_LIMIT, "too big inline request");
    if (!lf) {
        r->at = in->len;
        return more(r, in->len + 1);
    }
    size_t end = (size_t)(lf - in->data);
    if (memchr(in->data, '\0', end)) return bad(in, ERR_INVALID, "NUL in inline request");
    r->at = end + 1;
    return split_words(r, in, end);
}

enum resp_progress resp_read(struct resp_reader *r, uint8_t *data, size_t len,
                             struct resp_command *ret_command, struct err *reterr)
{
    /* cppcheck-suppress ctuuninitvar ; an output: it is kept here, not read */
    struct input in = { data, len, ret_command, reterr };
    if (len == 0) return more(r, 1);
    if (len < r->need) return RESP_MORE;
    enum resp_progress p = data[0] == '*' ? read_array_again(r, &in) : read_line(r, &in);
    if (p != RESP_READY) return p;
    ret_command->used = r->at;
    rewind_reader(r);
    return RESP_READY;
}
