/* scrape_test.c - the reader of metrics, and what is made of two readings. */
#include "cli/scrape.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

static struct scrape parsed(const char *text)
{
    struct scrape s;
    struct err err;
    cr_assert(scrape_parse(strdup(text), &s, &err) == 0, "%s", err.text);
    return s;
}

static void refused(const char *text)
{
    struct scrape s;
    struct err err;
    cr_expect(scrape_parse(strdup(text), &s, &err) == ERR_INVALID, "%s", text);
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

Test(scrape, samples_by_name_and_label)
{
    struct scrape s = parsed("# HELP a x\n# TYPE a counter\na 1\nb{x=\"1\",y=\"{ }\\\"\"} 2.5\n"
                             "b{x=\"2\"} 4\n\nc +Inf");
    cr_expect(s.count == 4);
    cr_expect(scrape_sum(&s, "a", NULL) == 1);
    cr_expect(scrape_sum(&s, "b", NULL) == 6.5);
    cr_expect(scrape_sum(&s, "b", "x=\"2\"") == 4);
    cr_expect(scrape_sum(&s, "nothing", NULL) == 0);
    cr_expect_str_eq(scrape_find(&s, "b", "x=\"1\"")->labels, "x=\"1\",y=\"{ }\\\"\"");
    cr_expect(!scrape_find(&s, "b", "x=\"3\""));
    cr_expect(isinf(scrape_sum(&s, "c", NULL)));
    scrape_free(&s);
}

Test(scrape, what_is_no_sample_is_refused)
{
    refused("a\n");
    refused("a b\n");
    refused("a 1 2\n");
    refused("a{x=\"1\" 2\n");
    refused("a{x=\"1\"}2\n");
    refused("<html>\n");
}

Test(scrape, quantiles_of_what_was_counted_between_two)
{
    static const char first[] = "h_bucket{v=\"c\",le=\"1\"} 10\nh_bucket{v=\"c\",le=\"2\"} 10\n"
                                "h_bucket{v=\"c\",le=\"+Inf\"} 10\nh_count{v=\"c\"} 10\n";
    static const char second[] =
        "h_bucket{v=\"c\",le=\"1\"} 10\nh_bucket{v=\"c\",le=\"2\"} 18\n"
        "h_bucket{v=\"c\",le=\"+Inf\"} 20\nh_count{v=\"c\"} 20\n";
    struct scrape before = parsed(first), now = parsed(second), none = { 0 };
    cr_expect(near(scrape_quantile(&now, &before, "h", "v=\"c\"", 0.4), 1.5));
    cr_expect(scrape_quantile(&now, &before, "h", "v=\"c\"", 0.99) == 2, "the last bound");
    cr_expect(near(scrape_quantile(&now, &none, "h", "v=\"c\"", 0.25), 0.5));
    cr_expect(scrape_quantile(&now, &now, "h", "v=\"c\"", 0.5) < 0);
    cr_expect(scrape_quantile(&now, &none, "h", "v=\"d\"", 0.5) < 0);
    cr_expect(scrape_delta(&now, &before, "h_count", NULL) == 10);
    scrape_free(&before);
    scrape_free(&now);
}
