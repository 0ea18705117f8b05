/* model.h - one random history, applied to every store and to the rules themselves.
 *
 * With `servers`, the stores on real servers take part, too; they are slower, so a run without
 * them goes further.
 *
 * Returns false with the seed, the step, the last steps before it and the command that repeats
 * it in `why`; never traps or exits by itself, so that the bug museum can drive it. */
#ifndef TESTS_MODEL_MODEL_H
#define TESTS_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_run {
    uint64_t seed;
    unsigned steps;
    bool servers;
};

bool model_run(const struct model_run *run, char *why, size_t len);

#endif
