/* check.h - fixed pieces of work, whose instructions are counted.
 *
 * Instructions do not depend on what else the machine does, so a figure can be compared with one of
 * another day. Everything here runs on one thread in a world (tests/support/world.h): the clock
 * stands still and random numbers come from a seed. What is counted is checked: work that is not
 * done ends the program. */
#ifndef BENCH_CHECK_CHECK_H
#define BENCH_CHECK_CHECK_H

#include <stddef.h>

/* A scenario has so many, and is done twice: the first time to warm up. */
enum { OPERATIONS = 512, NUMBERS = 2 * OPERATIONS };

/* Does the operations with the numbers from `first` on. */
typedef void work_fn(void *ctx, size_t first);

/* Does the first OPERATIONS uncounted, then the others; callgrind, if this runs under it, writes
 * what these cost into a file of its own, under this name. */
void count_instructions(const char *name, work_fn *work, void *ctx);

/* The scenarios: each group counts one or more. */
void check_rules(void);
void check_parsers(void);
void check_stores(void);
void check_doors(void);

#endif
