/* chars.h - which byte may stand where: one table for the protocols that are text, one look per
 * byte. What is not in the grammar is in no class. */
#ifndef PROTO_CHARS_H
#define PROTO_CHARS_H

#include "base/bytes.h"

enum {
    CHAR_TOKEN = 1,    /* tchar of RFC 9110: methods, field names */
    CHAR_PATH = 2,     /* path and query of RFC 3986, '%' taken on trust */
    CHAR_TARGET = 4,   /* the same, and the brackets of an address */
    CHAR_HOST = 8,     /* a registered name, '%' taken on trust */
    CHAR_TOKEN68 = 16, /* credentials, without the '=' at their end */
    CHAR_DIGIT = 32,
    CHAR_HEX = 64,
};

extern const uint8_t char_classes[256];

static inline bool char_is(uint8_t c, unsigned classes)
{
    return char_classes[c] & classes;
}

static inline uint8_t char_lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

/* Blank or tab: the only white space within a line. */
static inline bool char_is_blank(uint8_t c)
{
    return c == ' ' || c == '\t';
}

/* How many bytes at the start are of the class. */
static inline size_t chars_span(struct bytes in, unsigned classes)
{
    size_t n = 0;
    while (n < in.len && char_is(in.data[n], classes)) n++;
    return n;
}

/* The rest from there on. (Nothing is added to the NULL of an empty view.) */
static inline struct bytes bytes_from(struct bytes in, size_t at)
{
    return bytes_of(at ? in.data + at : in.data, in.len - at);
}

unsigned hex_digit(uint8_t c); /* of a CHAR_HEX */
bool bytes_eq_nocase(struct bytes a, struct bytes b);
struct bytes bytes_trim(struct bytes in); /* without blanks around it */

/* Visible characters, blanks, tabs and bytes above ASCII; no control character. */
bool chars_are_value(struct bytes in);

#endif
