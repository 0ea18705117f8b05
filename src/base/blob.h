/* blob.h - immutable, shared bytes: a stored value and every answer that carries it.
 *
 * Guarantees: made once, never changed, freed with the last reference, from any thread. A
 * replay to a thousand waiters copies nothing. */
#ifndef BASE_BLOB_H
#define BASE_BLOB_H

#include "base/bytes.h"

struct blob;

struct blob *blob_new(struct bytes content);              /* NULL: out of memory */
struct blob *blob_ref(struct blob *b);                    /* NULL stays NULL */
void blob_unref(struct blob *b);                          /* NULL is fine */
struct bytes blob_bytes(const struct blob *b);            /* of NULL: empty */
bool blob_eq(const struct blob *a, const struct blob *b); /* NULL equals only NULL */

#endif
