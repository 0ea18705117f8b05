/* model.h - one random history, applied to every store and to the rules themselves.
 *
 * Returns false with the seed, the step, the last steps before it and the command that repeats
 * it in `why`; never traps or exits by itself, so that the bug museum can drive it. */
#ifndef TESTS_MODEL_MODEL_H
#define TESTS_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool model_run(uint64_t seed, unsigned steps, char *why, size_t len);

#endif
