/* bytes.h - a view of bytes somebody else owns. Views go in, buffers and blobs come out. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes {
    const uint8_t *data; /* may be NULL when len is 0 */
    size_t len;
};

static inline struct bytes bytes_of(const void *data, size_t len)
{
    return (struct bytes){ .data = data, .len = len };
}

static inline struct bytes bytes_str(const char *text)
{
    return bytes_of(text, text ? strlen(text) : 0);
}

static inline bool bytes_eq(struct bytes a, struct bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* Order by content, then by length: a prefix sorts before what it is a prefix of. */
static inline int bytes_cmp(struct bytes a, struct bytes b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n ? memcmp(a.data, b.data, n) : 0;
    if (order) return order;
    return a.len < b.len ? -1 : a.len > b.len;
}

#endif
