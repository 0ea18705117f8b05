/* format.h - values as people and programs read them. */
#ifndef CLI_FORMAT_H
#define CLI_FORMAT_H

#include "base/bytes.h"

#include <jansson.h>
#include <stdio.h>

/* "35ms", "1.2s", "3m20s", "5h", "12d"; at most two units. */
enum { DURATION_TEXT_BYTES = 24 };
const char *format_duration(int64_t ms, char out[DURATION_TEXT_BYTES]);

/* "812", "1.2k", "3.4M" */
enum { SIZE_TEXT_BYTES = 16 };
const char *format_size(uint64_t bytes, char out[SIZE_TEXT_BYTES]);

/* Scope or key as one word that cannot play tricks with a terminal. */
void print_escaped(FILE *to, struct bytes text);

/* As one word of a shell's command line. */
void print_quoted(FILE *to, const char *word);

/* A JSON string, or {"base64": "..."} for what is not UTF-8. NULL: out of memory. */
json_t *json_bytes(struct bytes value);

/* Prints and frees; a NULL object is an error. Returns an exit status. */
int print_json(FILE *to, json_t *object);

/* The name of a key where the key itself must not be seen: the start of a hash. */
enum { KEY_HASH_BYTES = 13 };
void key_hash(struct bytes scope, struct bytes key, char out[KEY_HASH_BYTES]);

/* SHA-256 over length-framed parts: {"a", "bc"} and {"ab", "c"} differ. */
enum { DIGEST_BYTES = 32 };
int digest_parts(const struct bytes *parts, size_t count, uint8_t out[DIGEST_BYTES]);

#endif
