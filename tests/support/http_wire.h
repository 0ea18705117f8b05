/* http_wire.h - ops as requests of the HTTP door, and its answers as answers. */
#ifndef TESTS_SUPPORT_HTTP_WIRE_H
#define TESTS_SUPPORT_HTTP_WIRE_H

#include "base/buf.h"
#include "store/op.h"

/* False: HTTP has no words for it. */
bool http_wire_says(enum verb verb);
void http_wire_request(struct buf *out, const struct op *op);

/* Sets `out` or `err` of the op; the content is changed. False: this is no answer to such a
 * request. */
bool http_wire_answer(struct op *op, int status, uint8_t *content, size_t len);

#endif
