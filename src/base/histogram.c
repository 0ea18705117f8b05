/* histogram.c - see histogram.h. */
#include "base/histogram.h"

const struct histogram_scale histogram_us = {
    .count = 16,
    .per_unit = 1000000,
    .bounds = { 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000,
                1000000, 2500000, 5000000, 10000000 },
};

const struct histogram_scale histogram_many = {
    .count = 11,
    .per_unit = 1,
    .bounds = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024 },
};

uint64_t histogram_count(const struct histogram *h)
{
    uint64_t count = 0;
    for (unsigned i = 0; i <= HISTOGRAM_BOUNDS_MAX; i++) count += h->buckets[i];
    return count;
}

void histogram_merge(struct histogram *to, const struct histogram *from)
{
    for (unsigned i = 0; i <= HISTOGRAM_BOUNDS_MAX; i++) to->buckets[i] += from->buckets[i];
    to->sum += from->sum;
}
