/* random.h - randomness, handed in. The library hands in the kernel's; a test hands in a seed
 * and gets the same run again. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    void (*fill)(struct rng *, void *out, size_t len);
};

/* From the kernel, in blocks; fit for owner tokens. */
struct rng_system {
    struct rng base;
    size_t used;
    uint8_t block[1024]; /* 64 tokens for one system call */
};
void rng_system_init(struct rng_system *r);

/* xoshiro256** from a 64-bit seed; for simulations and jitter in tests. */
struct rng_seeded {
    struct rng base;
    uint64_t state[4];
};
void rng_seeded_init(struct rng_seeded *r, uint64_t seed);

uint64_t rng_u64(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t limit); /* uniform in [0, limit); limit >= 1 */

/* How long to wait before trying again: twice as long each time, up to a maximum, and at least half of
 * that. The rest is chance: those who failed together shall not come back together. */
struct pauses {
    int64_t first_ms, most_ms;
};
int64_t rng_pause_ms(struct rng *r, struct pauses p,
                     unsigned failures); /* of them one or more */

#endif
