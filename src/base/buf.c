/* buf.c - see buf.h. */
#include "base/buf.h"

#include "base/check.h"
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void buf_init(struct buf *b, size_t bytes_max)
{
    *b = (struct buf){ .bytes_max = bytes_max };
}

void buf_fini(struct buf *b)
{
    free(b->data);
    *b = (struct buf){ .bytes_max = b->bytes_max };
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = 0;
}

uint8_t *buf_extend(struct buf *b, size_t len)
{
    if (b->failed) return NULL;
    if (len > b->bytes_max - b->len) {
        b->failed = ERR_LIMIT;
        return NULL;
    }
    if (b->len + len > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < b->len + len) cap *= 2;
        if (cap > b->bytes_max) cap = b->bytes_max;
        uint8_t *data = realloc(b->data, cap);
        if (!data) {
            b->failed = ERR_NOMEM;
            return NULL;
        }
        b->data = data;
        b->cap = cap;
    }
    uint8_t *at = b->data + b->len;
    b->len += len;
    CHECK(b->len <= b->bytes_max);
    return at;
}

void buf_add(struct buf *b, struct bytes content)
{
    if (content.len == 0) return;
    uint8_t *at = buf_extend(b, content.len);
    if (at) memcpy(at, content.data, content.len);
}

void buf_byte(struct buf *b, uint8_t byte)
{
    buf_add(b, bytes_of(&byte, 1));
}

void buf_u32(struct buf *b, uint32_t v)
{
    uint8_t raw[4] = { (uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v };
    buf_add(b, bytes_of(raw, sizeof raw));
}

void buf_u64(struct buf *b, uint64_t v)
{
    buf_u32(b, (uint32_t)(v >> 32));
    buf_u32(b, (uint32_t)v);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    CHECK(len >= 0);
    /* vsnprintf ends with a NUL that is not part of the content: make room, then give it
     * back. */
    uint8_t *at = buf_extend(b, (size_t)len + 1);
    if (at) {
        vsnprintf((char *)at, (size_t)len + 1, fmt, again);
        b->len--;
    }
    va_end(again);
}

struct bytes reader_take(struct reader *r, size_t len)
{
    if (len > r->left.len) {
        r->short_read = true;
        r->left.len = 0;
        return bytes_of(NULL, 0);
    }
    struct bytes taken = bytes_of(r->left.data, len);
    if (len) r->left.data += len;
    r->left.len -= len;
    return taken;
}

uint8_t reader_byte(struct reader *r)
{
    struct bytes b = reader_take(r, 1);
    return b.len ? b.data[0] : 0;
}

uint32_t reader_u32(struct reader *r)
{
    struct bytes b = reader_take(r, 4);
    if (!b.len) return 0;
    return (uint32_t)b.data[0] << 24 | (uint32_t)b.data[1] << 16 | (uint32_t)b.data[2] << 8 |
           b.data[3];
}

uint64_t reader_u64(struct reader *r)
{
    uint64_t high = reader_u32(r);
    return high << 32 | reader_u32(r);
}
