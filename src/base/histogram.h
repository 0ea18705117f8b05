/* histogram.h - how often a number was how large: counts in fixed buckets.
 *
 * Guarantees: adding costs a short walk along the bounds, allocates nothing and cannot fail. What
 * was counted only grows, so two readings at different times can be subtracted. */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_BOUNDS_MAX = 16 };

/* Where the buckets end, the bounds included. What is above the last has a bucket of its own. */
struct histogram_scale {
    unsigned count;
    uint64_t per_unit; /* so many are 1 of the unit that people read */
    uint64_t bounds[HISTOGRAM_BOUNDS_MAX];
};

extern const struct histogram_scale histogram_us;   /* microseconds, 100 us to 10 s */
extern const struct histogram_scale histogram_many; /* things, 1 to 1024 */

struct histogram {
    uint64_t buckets[HISTOGRAM_BOUNDS_MAX + 1]; /* not cumulative */
    uint64_t sum;
};

static inline void histogram_add(struct histogram *h, const struct histogram_scale *scale,
                                 uint64_t value)
{
    unsigned i = 0;
    while (i < scale->count && value > scale->bounds[i]) i++;
    h->buckets[i]++;
    h->sum += value;
}

uint64_t histogram_count(const struct histogram *h);
void histogram_merge(struct histogram *to, const struct histogram *from); /* of one scale */

#endif
