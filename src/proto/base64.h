/* base64.h - RFC 4648, with padding, strictly: what is accepted is written in exactly one way. */
#ifndef PROTO_BASE64_H
#define PROTO_BASE64_H

#include "base/buf.h"

void base64_encode(struct bytes in, struct buf *out);

/* `out` has room for 3 bytes for every 4 of `in`; it may be the place of `in`. False: not base64;
 * also if bits that stand for nothing are set. */
bool base64_decode(struct bytes in, uint8_t *out, size_t *ret_len);

#endif
