/* random.c - see random.h. */
#include "base/random.h"

#include "base/check.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

static void system_refill(struct rng_system *r)
{
    size_t have = 0;
    while (have < sizeof r->block) {
        ssize_t n = getrandom(r->block + have, sizeof r->block - have, 0);
        if (n < 0 && errno == EINTR) continue;
        CHECK(n > 0); /* without randomness there are no owner tokens, and no way to go on */
        have += (size_t)n;
    }
    r->used = 0;
}

static void system_fill(struct rng *base, void *out, size_t len)
{
    struct rng_system *r = (struct rng_system *)base;
    uint8_t *to = out;
    while (len) {
        if (r->used == sizeof r->block) system_refill(r);
        size_t n = sizeof r->block - r->used;
        if (n > len) n = len;
        memcpy(to, r->block + r->used, n);
        memset(r->block + r->used, 0, n); /* a token must not be readable here afterwards */
        r->used += n;
        to += n;
        len -= n;
    }
}

void rng_system_init(struct rng_system *r)
{
    *r = (struct rng_system){ .base.fill = system_fill, .used = sizeof r->block };
}

static uint64_t rotl(uint64_t x, int b)
{
    return x << b | x >> (64 - b);
}

static uint64_t seeded_next(struct rng_seeded *r)
{
    uint64_t *s = r->state, out = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return out;
}

static void seeded_fill(struct rng *base, void *out, size_t len)
{
    struct rng_seeded *r = (struct rng_seeded *)base;
    uint8_t *to = out;
    while (len) {
        uint64_t word = seeded_next(r);
        size_t n = len < sizeof word ? len : sizeof word;
        memcpy(to, &word, n);
        to += n;
        len -= n;
    }
}

void rng_seeded_init(struct rng_seeded *r, uint64_t seed)
{
    *r = (struct rng_seeded){ .base.fill = seeded_fill };
    for (int i = 0; i < 4; i++) { /* splitmix64 */
        uint64_t z = seed += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        r->state[i] = z ^ z >> 31;
    }
}

uint64_t rng_u64(struct rng *r)
{
    uint64_t v;
    r->fill(r, &v, sizeof v);
    return v;
}

uint64_t rng_below(struct rng *r, uint64_t limit)
{
    CHECK(limit > 0);
    uint64_t reject = -limit % limit; /* values below it would favour small results */
    uint64_t v;
    do v = rng_u64(r);
    while (v < reject);
    return v % limit;
}

int64_t rng_pause_ms(struct rng *r, struct pauses p, unsigned failures)
{
    int64_t ms = p.first_ms;
    for (unsigned i = 1; i < failures && ms < p.most_ms; i++) ms *= 2;
    if (ms > p.most_ms) ms = p.most_ms;
    return ms / 2 + (int64_t)rng_below(r, (uint64_t)ms / 2 + 1);
}
