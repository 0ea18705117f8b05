/* schedule.h - runs a spec: every interleaving of its sessions' steps, on a store.
 *
 * Returns false with the reason, and how to repeat it, in `why`; never traps or exits by
 * itself, so that the bug museum can drive it. The format is described in README.md. */
#ifndef TESTS_SCHEDULE_SCHEDULE_H
#define TESTS_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>

extern const char *const schedule_stores[]; /* NULL ends the list */

bool schedule_run_file(const char *path, const char *store_name, char *why, size_t len,
                       unsigned *ret_permutations);

/* The same, for one permutation only: names of steps, separated by blanks. */
bool schedule_run_one(const char *path, const char *store_name, const char *permutation,
                      char *why, size_t len);

#endif
