/* buf.h - a growing buffer that knows its maximum from birth.
 *
 * A write that would pass the maximum, or that finds no memory, leaves the content as it was
 * and is remembered: check buf_failed() once at the end instead of after every write. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/bytes.h"

struct buf {
    uint8_t *data;
    size_t len, cap, bytes_max;
    int failed; /* 0, ERR_LIMIT or ERR_NOMEM: the first write that did not fit */
};

void buf_init(struct buf *b, size_t bytes_max);
void buf_fini(struct buf *b);
void buf_clear(struct buf *b); /* empty and reusable; keeps the memory */

void buf_add(struct buf *b, struct bytes content);
void buf_byte(struct buf *b, uint8_t byte);
void buf_u32(struct buf *b, uint32_t v); /* big endian */
void buf_u64(struct buf *b, uint64_t v);
/* So many bytes more, for the caller to write; NULL: there is no room for them. */
uint8_t *buf_extend(struct buf *b, size_t len);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static inline struct bytes buf_bytes(const struct buf *b)
{
    return bytes_of(b->data, b->len);
}

static inline int buf_failed(const struct buf *b)
{
    return b->failed;
}

/* A cursor over bytes, the reading side. Past the end it returns zeros and sets
 * `short_read`. */
struct reader {
    struct bytes left;
    bool short_read;
};

struct bytes reader_take(struct reader *r, size_t len);
uint8_t reader_byte(struct reader *r);
uint32_t reader_u32(struct reader *r);
uint64_t reader_u64(struct reader *r);

#endif
