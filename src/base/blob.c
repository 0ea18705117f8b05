/* blob.c - see blob.h. The count is atomic because an answer may be freed on the caller's
 * thread while the store still holds the value on another. */
#include "base/blob.h"

#include "base/check.h"

#include <stdatomic.h>
#include <stdlib.h>

struct blob {
    atomic_uint refs;
    size_t len;
    uint8_t data[];
};

struct blob *blob_new(struct bytes content)
{
    struct blob *b = malloc(sizeof *b + content.len);
    if (!b) return NULL;
    atomic_init(&b->refs, 1);
    b->len = content.len;
    if (content.len) memcpy(b->data, content.data, content.len);
    return b;
}

struct blob *blob_ref(struct blob *b)
{
    if (b) atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void blob_unref(struct blob *b)
{
    if (!b) return;
    unsigned before = atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel);
    CHECK(before > 0);
    if (before == 1) free(b);
}

struct bytes blob_bytes(const struct blob *b)
{
    return b ? bytes_of(b->data, b->len) : bytes_of(NULL, 0);
}

bool blob_eq(const struct blob *a, const struct blob *b)
{
    if (a == b) return true;
    if (!a || !b) return false;
    return bytes_eq(blob_bytes(a), blob_bytes(b));
}
