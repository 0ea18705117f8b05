/* fleet.h - the parts of the program that puts load on real servers. */
#ifndef BENCH_FLEET_FLEET_H
#define BENCH_FLEET_FLEET_H

#include "bench/bench.h"

/* "none": without. Without a ledger, answers are as durable as coord. */
struct planes {
    const char *coord, *ledger;
};

struct once *fleet_open(const struct planes *planes); /* ONCE_HOSTED; must() work */

void fleet_load(const struct planes *planes, const char *work, size_t in_flight,
                double seconds);
void fleet_owner(const struct planes *planes);
void fleet_losers(const struct planes *planes, size_t count);

#endif
