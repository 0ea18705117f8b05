/* number.h - numbers as the protocols write them. No locale, no sign other than '-', no white
 * space: what is accepted is written in exactly one way. */
#ifndef PROTO_NUMBER_H
#define PROTO_NUMBER_H

#include "base/bytes.h"

enum { NUMBER_BYTES_MAX = 32 }; /* of any number that is written here */

/* "-12", "0"; not "-0", "+1", "01", "", nor what does not fit. Untouched on failure. */
bool number_parse(struct bytes in, int64_t *ret);

/* "0" to "18446744073709551615", written in the same one way. */
bool number_parse_unsigned(struct bytes in, uint64_t *ret);

/* Digits and nothing else, zeros in front of it too; INT64_MAX stands for that and all above. */
bool number_parse_length(struct bytes in, int64_t *ret);

/* A number as JSON has it, "-1.5e+3", rounded to the nearest double, whatever the locale. False: it
 * is none, or larger than any. */
bool number_parse_double(struct bytes in, double *ret);

size_t number_write(int64_t n, char *out); /* no NUL; returns the length */

/* The shortest that reads back as the same, "inf", "-inf" or "nan". */
size_t number_write_double(double d, char *out);

#endif
