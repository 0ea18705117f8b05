/* key.h - the identity of a record: scope and key, checked and framed.
 *
 * Wherever the two are joined they are length-framed, so that `a:b` + `c` never equals
 * `a` + `b:c`. */
#ifndef CORE_KEY_H
#define CORE_KEY_H

#include "base/bytes.h"
#include "base/err.h"

enum {
    SCOPE_BYTES_MAX = 128,
    KEY_BYTES_MAX = 512,
    KEY_FRAME_BYTES_MAX = 1 + SCOPE_BYTES_MAX + KEY_BYTES_MAX,
};

/* A scope that begins with it is our own: coord alone keeps what is claimed there, and everything in
 * such a scope is kept together. No caller can name one. */
#define KEY_COORD_ONLY '@'

struct key {
    struct bytes scope; /* 1-128 bytes of [A-Za-z0-9._:/-] */
    struct bytes name;  /* 1-512 bytes of UTF-8 without control characters */
};

int key_check(const struct key *k, struct err *reterr);

/* One length byte, the scope, the name. `out` holds KEY_FRAME_BYTES_MAX; returns the length. */
size_t key_frame(const struct key *k, uint8_t *out);
struct key key_unframe(struct bytes frame); /* views into the frame */

#endif
