/* histogram_test.c - a bound belongs to the bucket that it ends; nothing is left out. */
#include "base/histogram.h"

#include <criterion/criterion.h>

static void check_scale(const struct histogram_scale *scale)
{
    for (unsigned i = 0; i < scale->count; i++) {
        struct histogram h = { 0 };
        if (i) cr_expect(scale->bounds[i - 1] < scale->bounds[i]);
        histogram_add(&h, scale, scale->bounds[i]);
        cr_expect(h.buckets[i] == 1, "the bound %u itself", i);
        histogram_add(&h, scale, scale->bounds[i] + 1);
        cr_expect(h.buckets[i] == 1 && h.buckets[i + 1] == 1, "one more than bound %u", i);
        cr_expect(h.sum == 2 * scale->bounds[i] + 1);
    }
}

Test(histogram, a_bound_is_the_last_of_its_bucket)
{
    check_scale(&histogram_us);
    check_scale(&histogram_many);
}

Test(histogram, counts_everything)
{
    struct histogram h = { 0 };
    histogram_add(&h, &histogram_us, 0);
    histogram_add(&h, &histogram_us, 700);
    histogram_add(&h, &histogram_us, UINT32_MAX);
    cr_expect(h.buckets[0] == 1 && h.buckets[3] == 1 && h.buckets[histogram_us.count] == 1);
    cr_expect(histogram_count(&h) == 3);
    cr_expect(h.sum == 700 + (uint64_t)UINT32_MAX);
}

Test(histogram, merges)
{
    struct histogram a = { 0 }, b = { 0 };
    histogram_add(&a, &histogram_many, 3);
    histogram_add(&b, &histogram_many, 3);
    histogram_add(&b, &histogram_many, 5000);
    histogram_merge(&a, &b);
    cr_expect(histogram_count(&a) == 3 && a.sum == 5006);
    cr_expect(a.buckets[2] == 2 && a.buckets[histogram_many.count] == 1);
}
