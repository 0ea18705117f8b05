/* sha256.h - SHA-256, of a few pieces. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include "base/bytes.h"

enum { SHA256_BYTES = 32 };

/* Each piece with its length in front, so that `a` + `bc` and `ab` + `c` differ. False: out of
 * memory. */
bool sha256_pieces(const struct bytes *pieces, size_t count, uint8_t out[SHA256_BYTES]);

#endif
