/* fuzz.h - for the fuzz targets: each file with a LLVMFuzzerTestOneInput() is one.
 *
 * A target takes any bytes and traps (CHECK) when something that must hold does not. To add
 * one: a file here, a directory of its name below corpus/, words of its language in a file of its
 * name below dictionary/ if it has any, its name in `run`. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include "base/buf.h"
#include "base/check.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
