/* growth.h - the parts of the program that shows what more of something costs. */
#ifndef BENCH_GROWTH_GROWTH_H
#define BENCH_GROWTH_GROWTH_H

#include "bench/fleet/fleet.h"

uint64_t fresh_keys(void); /* continues from the clock: nobody has used these */

void growth_flight(const struct planes *planes, size_t in_flight, double seconds);
void growth_keys(const struct planes *planes, double seconds, char **counts, size_t count);
void growth_wake(const struct planes *planes, size_t waiters, size_t rounds);
void growth_crowd(size_t count, char **ports, size_t port_count);

#endif
