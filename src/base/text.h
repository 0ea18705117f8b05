/* text.h - small things done to text: UTF-8, hexadecimal, durations, URLs. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "base/bytes.h"

/* Length of the well-formed sequence that `p` begins with, its code point in *ret_code; 0: there
 * is none within `len` (at least 1) bytes: overlong, a surrogate, cut off, too large. */
size_t utf8_sequence(const uint8_t *p, size_t len, uint32_t *ret_code);

/* Well-formed UTF-8 without C0, DEL and C1 controls. */
bool text_is_plain_utf8(struct bytes in);

void hex_encode(struct bytes in, char *out); /* writes 2*len characters and a NUL */
bool hex_decode(struct bytes in, uint8_t *out, size_t len); /* exactly 2*len digits */

/* "500ms", "30s", "5m", "24h", "30d"; a bare number is milliseconds. False: not a duration, or
 * more than `max_ms`. */
bool duration_parse(struct bytes in, int64_t max_ms, int64_t *ret_ms);

/* Decimal digits and nothing else, from `low` (at least 0) to `high`. */
bool number_within(const char *text, int64_t low, int64_t high, int64_t *ret_number);

/* "%41" to "A", in place; false: a broken escape, or a zero byte, which a string cannot have. */
bool url_unescape(char *text);

/* A URL without what may be a secret: passwords, parameters. Cut to `size`, with a NUL. */
void url_shown(const char *url, char *out, size_t size);

#endif
