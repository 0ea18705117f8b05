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

/* ---- pauses ---- */

static const struct pauses pauses = { .first_ms = 10, .most_ms = 1000 };

Test(random, a_pause_is_between_half_and_all_of_what_doubles_up_to_a_maximum)
{
    static const int64_t most_ms[] = { 10, 10, 20, 40, 80, 160, 320, 640, 1000, 1000 };
    struct rng_seeded r;
    rng_seeded_init(&r, 1);
    for (unsigned failures = 0; failures < 10; failures++) {
        int64_t least = INT64_MAX, most = 0;
        for (unsigned i = 0; i < 5000; i++) {
            int64_t ms = rng_pause_ms(&r.base, pauses, failures);
            if (ms < least) least = ms;
            if (ms > most) most = ms;
        }
        cr_expect(least >= most_ms[failures] / 2 && most <= most_ms[failures]);
        cr_expect(most - least > most_ms[failures] * 2 / 5, "%u failures: chance has its part",
                  failures);
    }
    cr_expect(rng_pause_ms(&r.base, pauses, UINT32_MAX) <= 1000);
    cr_expect_eq(rng_pause_ms(&r.base, (struct pauses){ 0, 0 }, 3), 0);
}

Test(random, two_who_failed_together_do_not_come_back_together)
{
    struct rng_seeded a, b;
    int64_t a_ms = 0, b_ms = 0;
    unsigned apart = 0;
    rng_seeded_init(&a, 1);
    rng_seeded_init(&b, 2);
    for (unsigned failures = 1; failures <= 50; failures++) {
        a_ms += rng_pause_ms(&a.base, pauses, failures);
        b_ms += rng_pause_ms(&b.base, pauses, failures);
        apart += a_ms != b_ms;
    }
    cr_expect(apart > 45, "%u of 50", apart);
}
