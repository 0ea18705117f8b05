/* random_test.c - the same seed gives the same run; limits are kept; the kernel's differ. */
#include "base/random.h"

#include <criterion/criterion.h>

Test(random, the_same_seed_gives_the_same_numbers)
{
    struct rng_seeded a, b, c;
    rng_seeded_init(&a, 42);
    rng_seeded_init(&b, 42);
    rng_seeded_init(&c, 43);
    bool other = false;
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t n = rng_u64(&a.base);
        cr_assert(n == rng_u64(&b.base));
        other |= n != rng_u64(&c.base);
    }
    cr_assert(other);
}

Test(random, below_stays_below_and_reaches_everything)
{
    struct rng_seeded r;
    rng_seeded_init(&r, 1);
    unsigned hits[7] = { 0 };
    for (unsigned i = 0; i < 7000; i++) {
        uint64_t n = rng_below(&r.base, 7);
        cr_assert(n < 7);
        hits[n]++;
    }
    for (unsigned i = 0; i < 7; i++) cr_assert(hits[i] > 700, "%u: %u", i, hits[i]);
    cr_assert(rng_below(&r.base, 1) == 0);
    for (unsigned i = 0; i < 100; i++)
        cr_assert(rng_below(&r.base, UINT64_C(3) << 62) < UINT64_C(3) << 62);
}

Test(random, fill_takes_any_length)
{
    struct rng_seeded r;
    rng_seeded_init(&r, 1);
    uint8_t out[32];
    for (size_t len = 0; len <= 24; len++) {
        memset(out, 0xaa, sizeof out);
        r.base.fill(&r.base, out, len);
        for (size_t i = len; i < sizeof out; i++) cr_assert(out[i] == 0xaa);
    }
}

Test(random, the_kernels_tokens_differ_and_leave_no_trace)
{
    struct rng_system r;
    rng_system_init(&r);
    uint8_t tokens[100][16];
    for (size_t i = 0; i < 100; i++) r.base.fill(&r.base, tokens[i], sizeof tokens[i]);
    for (size_t i = 0; i < 100; i++)
        for (size_t j = i + 1; j < 100; j++)
            cr_assert(memcmp(tokens[i], tokens[j], sizeof tokens[i]) != 0);
    for (size_t i = 0; i < r.used; i++) cr_assert(r.block[i] == 0, "byte %zu was left", i);
}

Test(random, the_kernels_fill_spans_blocks)
{
    struct rng_system r;
    rng_system_init(&r);
    static uint8_t out[1000];
    r.base.fill(&r.base, out, sizeof out);
    unsigned zeros = 0;
    for (size_t i = 0; i < sizeof out; i++) zeros += out[i] == 0;
    cr_assert(zeros < 50, "%u of 1000 bytes are zero", zeros);
}
