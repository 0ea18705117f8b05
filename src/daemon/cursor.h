/* cursor.h - where a list goes on: the frame of the last key, in hexadecimal. Whoever makes one up
 * gets an error, not somebody else's memory. Pure. */
#ifndef DAEMON_CURSOR_H
#define DAEMON_CURSOR_H

#include "store/op.h"

enum { CURSOR_TEXT_BYTES = 2 * KEY_FRAME_BYTES_MAX + 1 };

/* `memory` has KEY_FRAME_BYTES_MAX; the key points into it. */
int cursor_read(struct bytes text, uint8_t *memory, struct key *ret_key, struct err *reterr);

/* False: there is no more. */
bool cursor_write(const struct scan *page, char out[CURSOR_TEXT_BYTES]);

#endif
