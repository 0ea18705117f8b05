/* fingerprint.h - what makes two calls under one key the same call. */
#ifndef CLI_FINGERPRINT_H
#define CLI_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

enum { FINGERPRINT_BYTES = 64 }; /* the library's limit */

struct fingerprint {
    uint8_t bytes[FINGERPRINT_BYTES];
    size_t len;
};

/* The text itself; its SHA-256 if it is too long. Negative: out of memory. */
int fingerprint_text(const char *text, struct fingerprint *ret);

/* SHA-256 over the length-framed words of a command line. */
int fingerprint_words(char *const *words, size_t count, struct fingerprint *ret);

#endif
