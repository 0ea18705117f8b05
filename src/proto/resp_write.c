/* resp_write.c - answers in RESP2 and RESP3; see resp.h. */
#include "base/check.h"
#include "proto/number.h"
#include "proto/resp.h"

enum {
    LINE_BYTES_MAX = NUMBER_BYTES_MAX + 3,
    SHORT_BYTES_MAX =
        64, /* of a bulk string that is put together first: one write, not three */
};

static void put_line(struct resp_writer *w, char type, const char *text, size_t len)
{
    char line[LINE_BYTES_MAX];
    CHECK(len <= NUMBER_BYTES_MAX);
    line[0] = type;
    memcpy(line + 1, text, len);
    memcpy(line + 1 + len, "\r\n", 2);
    buf_add(w->out, bytes_of(line, len + 3));
}

/* "$12" and CR LF; the length of it. */
static size_t write_head(char *out, char type, int64_t n)
{
    out[0] = type;
    size_t len = 1 + number_write(n, out + 1);
    memcpy(out + len, "\r\n", 2);
    return len + 2;
}

static void put_number(struct resp_writer *w, char type, int64_t n)
{
    char line[LINE_BYTES_MAX];
    buf_add(w->out, bytes_of(line, write_head(line, type, n)));
}

static void put_end(struct resp_writer *w)
{
    buf_add(w->out, bytes_of("\r\n", 2));
}

void resp_simple(struct resp_writer *w, const char *text)
{
    CHECK(!strpbrk(text, "\r\n"));
    buf_byte(w->out, '+');
    buf_add(w->out, bytes_str(text));
    put_end(w);
}

/* What a caller sent may be quoted in the text: it must not end the line. */
void resp_error(struct resp_writer *w, const char *code, struct bytes text)
{
    CHECK(!strpbrk(code, "\r\n"));
    buf_byte(w->out, '-');
    buf_add(w->out, bytes_str(code));
    buf_byte(w->out, ' ');
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.data[i];
        buf_byte(w->out, c == '\r' || c == '\n' ? ' ' : c);
    }
    put_end(w);
}

void resp_integer(struct resp_writer *w, int64_t n)
{
    put_number(w, ':', n);
}

static void put_short_bulk(struct resp_writer *w, struct bytes content)
{
    char bulk[LINE_BYTES_MAX + SHORT_BYTES_MAX + 2];
    size_t len = write_head(bulk, '$', (int64_t)content.len);
    memcpy(bulk + len, content.data, content.len);
    len += content.len;
    memcpy(bulk + len, "\r\n", 2);
    buf_add(w->out, bytes_of(bulk, len + 2));
}

void resp_bulk(struct resp_writer *w, struct bytes content)
{
    if (content.len > 0 && content.len <= SHORT_BYTES_MAX) return put_short_bulk(w, content);
    put_number(w, '$', (int64_t)content.len);
    buf_add(w->out, content);
    put_end(w);
}

void resp_text(struct resp_writer *w, const char *text)
{
    resp_bulk(w, bytes_str(text));
}

void resp_null(struct resp_writer *w)
{
    buf_add(w->out, bytes_str(w->version == 3 ? "_\r\n" : "$-1\r\n"));
}

void resp_null_array(struct resp_writer *w)
{
    buf_add(w->out, bytes_str(w->version == 3 ? "_\r\n" : "*-1\r\n"));
}

void resp_boolean(struct resp_writer *w, bool yes)
{
    if (w->version == 3)
        put_line(w, '#', yes ? "t" : "f", 1);
    else
        resp_integer(w, yes);
}

void resp_double(struct resp_writer *w, double d)
{
    char text[NUMBER_BYTES_MAX];
    size_t len = number_write_double(d, text);
    if (w->version == 3)
        put_line(w, ',', text, len);
    else
        resp_bulk(w, bytes_of(text, len));
}

void resp_array(struct resp_writer *w, size_t count)
{
    put_number(w, '*', (int64_t)count);
}

void resp_map(struct resp_writer *w, size_t pairs)
{
    if (w->version == 3)
        put_number(w, '%', (int64_t)pairs);
    else
        resp_array(w, 2 * pairs);
}

void resp_push(struct resp_writer *w, size_t count)
{
    put_number(w, w->version == 3 ? '>' : '*', (int64_t)count);
}
