/* metadata.h - operations on a JSON object, which leave alone whatever they do not name.
 *
 *   [{"type": "increment", "key": "n", "value": 1}, {"type": "append", "key": "log", "value": {}},
 *    {"type": "set", "key": "x", "value": []}, {"type": "remove", "key": "y"}]
 *
 * Guarantees: members that no operation names stay byte for byte as they are, in their order; a new
 * one comes last; integers stay integers, of 64 bits; all operations or none. */
#ifndef CORE_METADATA_H
#define CORE_METADATA_H

#include "base/buf.h"
#include "base/err.h"

enum { METADATA_OPERATIONS_MAX = 100, METADATA_DEPTH_MAX = 64 };

/* Is it an object? Without operations on it. */
int metadata_check(struct bytes metadata, struct err *reterr);
int metadata_check_operations(struct bytes operations, struct err *reterr);

/* `metadata` may be empty: {}. ERR_INVALID: the operations make no sense, or not for what is there
 * (an increment of text); ERR_LIMIT: the result would be larger than METADATA_BYTES_MAX. */
int metadata_apply(struct bytes metadata, struct bytes operations, struct buf *out,
                   struct err *reterr);

#endif
