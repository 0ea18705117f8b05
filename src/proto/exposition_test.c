/* exposition_test.c - byte for byte what the text format asks for. */
#include "proto/exposition.h"

#include <criterion/criterion.h>

static struct buf out;

static void setup(void)
{
    buf_init(&out, 65536);
}

static void teardown(void)
{
    buf_fini(&out);
}

TestSuite(exposition, .init = setup, .fini = teardown);

static void expect(const char *want)
{
    cr_expect(!buf_failed(&out));
    cr_expect(bytes_eq(buf_bytes(&out), bytes_str(want)), "%.*s", (int)out.len,
              (const char *)out.data);
}

Test(exposition, a_family_says_what_it_is)
{
    exposition_family(&out, "a_total", EXPOSITION_COUNTER, "one\\two\n\"three\"");
    exposition_family(&out, "b", EXPOSITION_GAUGE, "b");
    exposition_family(&out, "c", EXPOSITION_HISTOGRAM, "c");
    expect("# HELP a_total one\\\\two\\n\"three\"\n# TYPE a_total counter\n"
           "# HELP b b\n# TYPE b gauge\n# HELP c c\n# TYPE c histogram\n");
}

Test(exposition, samples_with_and_without_labels)
{
    struct exposition_label none[] = { { 0 } };
    struct exposition_label two[] = { { "a", "x" }, { "b", "q\"\\\n" }, { 0 } };
    struct exposition_label half[] = { { "a", "x" }, { "b", NULL } };
    exposition_sample(&out, "m", NULL, 1, 1);
    exposition_sample(&out, "m", none, UINT64_MAX, 1);
    exposition_sample(&out, "m", two, 0, 1);
    exposition_sample(&out, "m", half, 7, 1);
    expect("m 1\nm 18446744073709551615\nm{a=\"x\",b=\"q\\\"\\\\\\n\"} 0\nm{a=\"x\"} 7\n");
}

Test(exposition, decimals_are_as_short_as_they_can_be)
{
    exposition_sample(&out, "m", NULL, 1500000, 1000000);
    exposition_sample(&out, "m", NULL, 1, 1000000);
    exposition_sample(&out, "m", NULL, 3000000, 1000000);
    exposition_sample(&out, "m", NULL, 10, 1000);
    expect("m 1.5\nm 0.000001\nm 3\nm 0.01\n");
}

Test(exposition, buckets_add_up)
{
    struct histogram h = { 0 };
    struct exposition_label label[] = { { "v", "x" }, { 0 } };
    histogram_add(&h, &histogram_many, 1);
    histogram_add(&h, &histogram_many, 2);
    histogram_add(&h, &histogram_many, 2000);
    exposition_histogram(&out, "h", label, &h, &histogram_many);
    expect("h_bucket{v=\"x\",le=\"1\"} 1\nh_bucket{v=\"x\",le=\"2\"} 2\n"
           "h_bucket{v=\"x\",le=\"4\"} 2\nh_bucket{v=\"x\",le=\"8\"} 2\n"
           "h_bucket{v=\"x\",le=\"16\"} 2\nh_bucket{v=\"x\",le=\"32\"} 2\n"
           "h_bucket{v=\"x\",le=\"64\"} 2\nh_bucket{v=\"x\",le=\"128\"} 2\n"
           "h_bucket{v=\"x\",le=\"256\"} 2\nh_bucket{v=\"x\",le=\"512\"} 2\n"
           "h_bucket{v=\"x\",le=\"1024\"} 2\nh_bucket{v=\"x\",le=\"+Inf\"} 3\n"
           "h_sum{v=\"x\"} 2003\nh_count{v=\"x\"} 3\n");
}

Test(exposition, times_are_in_seconds)
{
    struct histogram h = { 0 };
    histogram_add(&h, &histogram_us, 1250);
    exposition_histogram(&out, "h", NULL, &h, &histogram_us);
    struct bytes text = buf_bytes(&out);
    static const char first[] = "h_bucket{le=\"0.0001\"} 0\nh_bucket{le=\"0.00025\"} 0\n";
    static const char last[] = "h_bucket{le=\"10\"} 1\nh_bucket{le=\"+Inf\"} 1\n"
                               "h_sum 0.00125\nh_count 1\n";
    cr_expect(memcmp(text.data, first, strlen(first)) == 0);
    cr_expect(memcmp(text.data + text.len - strlen(last), last, strlen(last)) == 0);
}
