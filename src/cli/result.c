/* result.c - see result.h. */
#include "cli/result.h"

#include "base/check.h"

static const char magic[4] = { 'o', 'n', 'c', 'e' };
enum { RESULT_VERSION = 1 };

static void result_header(struct buf *frame, const struct result_end *end)
{
    buf_add(frame, bytes_of(magic, sizeof magic));
    buf_byte(frame, RESULT_VERSION);
    buf_byte(frame, (uint8_t)end->exit_status);
    buf_u64(frame, (uint64_t)end->finished_at_ms);
    buf_u64(frame, (uint64_t)end->took_ms);
}

void result_start(struct result_writer *w, size_t bytes_max)
{
    *w = (struct result_writer){ 0 };
    buf_init(&w->frame, bytes_max);
    result_header(&w->frame, &(struct result_end){ 0 });
    w->overflowed = buf_failed(&w->frame);
}

void result_free(struct result_writer *w)
{
    buf_fini(&w->frame);
}

/* The length is written behind the stream byte of the last chunk. */
static void chunk_grow(struct result_writer *w, size_t more)
{
    uint8_t *raw = w->frame.data + w->chunk_at + 1;
    struct reader at = { .left = bytes_of(raw, 4) };
    uint32_t len = reader_u32(&at) + (uint32_t)more;
    for (int i = 0; i < 4; i++) raw[i] = (uint8_t)(len >> (24 - 8 * i));
}

void result_add(struct result_writer *w, int stream, struct bytes content)
{
    if (w->overflowed || content.len == 0) return;
    if (!w->chunk_at || w->frame.data[w->chunk_at] != stream) {
        size_t at = w->frame.len;
        buf_byte(&w->frame, (uint8_t)stream);
        buf_u32(&w->frame, 0);
        w->chunk_at = at;
    }
    buf_add(&w->frame, content);
    w->overflowed = buf_failed(&w->frame);
    if (w->overflowed)
        buf_fini(&w->frame);
    else
        chunk_grow(w, content.len);
}

struct bytes result_finish(struct result_writer *w, const struct result_end *end)
{
    CHECK(!w->overflowed);
    CHECK(end->exit_status >= 0 && end->exit_status <= 255);
    size_t len = w->frame.len;
    w->frame.len = 0;
    result_header(&w->frame, end);
    CHECK(w->frame.len == RESULT_HEADER_BYTES);
    w->frame.len = len;
    return buf_bytes(&w->frame);
}

bool result_next(struct bytes *chunks, int *ret_stream, struct bytes *ret_content)
{
    struct reader in = { .left = *chunks };
    int stream = reader_byte(&in);
    struct bytes content = reader_take(&in, reader_u32(&in));
    if (in.short_read) return false;
    *ret_stream = stream;
    *ret_content = content;
    *chunks = in.left;
    return true;
}

static int decode_chunks(struct bytes chunks, struct result *result, struct err *reterr)
{
    while (chunks.len > 0) {
        int stream;
        struct bytes content;
        if (!result_next(&chunks, &stream, &content))
            return err_set(reterr, ERR_CORRUPT, "the stored result is cut short");
        if (stream != RESULT_STDOUT && stream != RESULT_STDERR)
            return err_set(reterr, ERR_CORRUPT, "the stored result names an unknown stream");
        *(stream == RESULT_STDOUT ? &result->stdout_bytes : &result->stderr_bytes) +=
            content.len;
    }
    return 0;
}

int result_decode(struct bytes value, struct result *ret_result, struct err *reterr)
{
    struct reader in = { .left = value };
    if (!bytes_eq(reader_take(&in, sizeof magic), bytes_of(magic, sizeof magic)))
        return err_set(reterr, ERR_CORRUPT, "the stored value is not the result of a command");
    int version = reader_byte(&in);
    if (version > RESULT_VERSION)
        return err_set(reterr, ERR_VERSION, "the result was stored by a newer version of once");
    struct result result = { 0 };
    result.end.exit_status = reader_byte(&in);
    result.end.finished_at_ms = (int64_t)reader_u64(&in);
    result.end.took_ms = (int64_t)reader_u64(&in);
    if (in.short_read || version != RESULT_VERSION)
        return err_set(reterr, ERR_CORRUPT, "the stored result is cut short");
    if (result.end.finished_at_ms < 0 || result.end.took_ms < 0)
        return err_set(reterr, ERR_CORRUPT, "the stored result has a time before 1970");
    result.chunks = in.left;
    int r = decode_chunks(in.left, &result, reterr);
    if (r < 0) return r;
    *ret_result = result;
    return 0;
}
