/* rfc3339.h - moments as RFC 3339 writes them: "2026-11-16T06:00:00.250Z". Pure; no locale, no time
 * zone of this machine. */
#ifndef PROTO_RFC3339_H
#define PROTO_RFC3339_H

#include "base/bytes.h"

enum { RFC3339_BYTES = 24 };

/* In UTC, with milliseconds, and a NUL. What lies outside of the years 0 to 9999 is written as the
 * nearest that does not. */
void rfc3339_write(int64_t unix_ms, char out[RFC3339_BYTES + 1]);

/* Any offset, any fraction of a second, of which whole milliseconds count. False: it is none, or
 * there is no such day. Untouched on failure. */
bool rfc3339_parse(struct bytes text, int64_t *ret_unix_ms);

#endif
