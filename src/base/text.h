/* text.h - small things done to text: UTF-8, hexadecimal, durations. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "base/bytes.h"

/* Well-formed UTF-8 (no overlong forms, no surrogates) without C0, DEL and C1 controls. */
bool text_is_plain_utf8(struct bytes in);

void hex_encode(struct bytes in, char *out); /* writes 2*len characters and a NUL */
bool hex_decode(struct bytes in, uint8_t *out, size_t len); /* exactly 2*len digits */

/* "500ms", "30s", "5m", "24h", "30d"; a bare number is milliseconds. False: not a duration, or
 * more than `max_ms`. */
bool duration_parse(struct bytes in, int64_t max_ms, int64_t *ret_ms);

#endif
