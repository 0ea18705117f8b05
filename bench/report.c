/* report.c - medians, the table, the verdicts, the JSON object. See bench.h. */
#include "bench/bench.h"

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS_MAX = 64 };

void must(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "bench: cannot %s\n", what);
    exit(1);
}

void samples_add(struct samples *s, double value)
{
    CHECK(s->count < SAMPLES_MAX);
    s->values[s->count++] = value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct samples sorted(const struct samples *s)
{
    struct samples copy = *s;
    qsort(copy.values, copy.count, sizeof copy.values[0], by_value);
    return copy;
}

double samples_median(const struct samples *s)
{
    if (s->count == 0) return 0;
    struct samples in_order = sorted(s);
    size_t middle = s->count / 2;
    if (s->count % 2) return in_order.values[middle];
    return (in_order.values[middle - 1] + in_order.values[middle]) / 2;
}

double samples_min(const struct samples *s)
{
    return s->count ? sorted(s).values[0] : 0;
}

double samples_max(const struct samples *s)
{
    return s->count ? sorted(s).values[s->count - 1] : 0;
}

int64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

double per_second(uint64_t count, int64_t since_ns)
{
    int64_t took_ns = now_ns() - since_ns;
    return took_ns > 0 ? (double)count * 1e9 / (double)took_ns : 0;
}

/* ---- rows ---- */

struct figure {
    struct row row;
    struct samples ours, baseline;
    double ratio; /* 0: there is no baseline */
    char verdict[120];
};

static struct figure figures[ROWS_MAX];
static size_t figures_count;
static bool far_off;

static double ratio_of(const struct row *row)
{
    struct samples ratios = { .count = 0 };
    if (!row->baseline) return 0;
    for (size_t i = 0; i < row->ours->count && i < row->baseline->count; i++)
        if (row->baseline->values[i] > 0)
            samples_add(&ratios, row->ours->values[i] / row->baseline->values[i]);
    return samples_median(&ratios);
}

/* How far the target was reached: 1 and more is reached. */
static double reached(const struct figure *f)
{
    double ours = samples_median(&f->ours);
    switch (f->row.target.kind) {
    case TARGET_AT_LEAST:
        return ours / f->row.target.value;
    case TARGET_AT_MOST:
        return ours > 0 ? f->row.target.value / ours : 1;
    case TARGET_RATIO_AT_LEAST:
        return f->ratio / f->row.target.value;
    case TARGET_NONE:
        break;
    }
    return 1;
}

/* By how much it is missed stands in it, and what binds. */
static void judge(struct figure *f)
{
    double part = reached(f);
    if (f->row.target.kind == TARGET_NONE)
        f->verdict[0] = '\0';
    else if (part >= 1)
        snprintf(f->verdict, sizeof f->verdict, "ok");
    else
        snprintf(f->verdict, sizeof f->verdict, "%s: %.2g of it%s%s%s",
                 part >= 0.5 ? "missed" : "MISSED BY FAR", part, f->row.binds ? "; " : "",
                 f->row.binds ? f->row.binds : "", f->row.binds ? " binds" : "");
}

static void number(char *out, size_t len, double value)
{
    long long n = (long long)(value + 0.5);
    if (n >= 1000000)
        snprintf(out, len, "%lld,%03lld,%03lld", n / 1000000, n / 1000 % 1000, n % 1000);
    else if (n >= 1000)
        snprintf(out, len, "%lld,%03lld", n / 1000, n % 1000);
    else
        snprintf(out, len, "%.*f", value >= 100 ? 0 : value >= 1 ? 1 : 3, value);
}

static void target_text(char *out, size_t len, struct target t)
{
    char value[32];
    number(value, sizeof value, t.value);
    if (t.kind == TARGET_NONE) *out = '\0';
    if (t.kind == TARGET_AT_LEAST) snprintf(out, len, ">= %s", value);
    if (t.kind == TARGET_AT_MOST) snprintf(out, len, "<= %s", value);
    if (t.kind == TARGET_RATIO_AT_LEAST) snprintf(out, len, "ratio >= %s", value);
}

static void spread_text(char *out, size_t len, const struct samples *s)
{
    char median[32], low[32], high[32];
    number(median, sizeof median, samples_median(s));
    number(low, sizeof low, samples_min(s));
    number(high, sizeof high, samples_max(s));
    snprintf(out, len, "%s (%s-%s)", median, low, high);
}

static void print_row(const struct figure *f)
{
    char ours[112], baseline[112] = "", ratio[32] = "", target[64];
    spread_text(ours, sizeof ours, &f->ours);
    if (f->row.baseline) spread_text(baseline, sizeof baseline, &f->baseline);
    if (f->ratio > 0) snprintf(ratio, sizeof ratio, "%.2f", f->ratio);
    target_text(target, sizeof target, f->row.target);
    fprintf(stderr, "%-43s %-5s %-32s %-32s %6s  %-12s %s\n", f->row.what, f->row.unit, ours,
            baseline, ratio, target, f->verdict);
    if (f->row.baseline_what) fprintf(stderr, "%-43s   against %s\n", "", f->row.baseline_what);
}

static void print_header(void)
{
    fprintf(stderr, "%-43s %-5s %-32s %-32s %6s  %-12s %s\n", "what", "unit",
            "ours: median (min-max)", "baseline", "ratio", "target", "verdict");
}

void report(const struct row *row)
{
    CHECK(figures_count < ROWS_MAX);
    if (figures_count == 0) print_header();
    struct figure *f = &figures[figures_count++];
    *f = (struct figure){ .row = *row, .ours = *row->ours, .ratio = ratio_of(row) };
    if (row->baseline) f->baseline = *row->baseline;
    judge(f);
    if (reached(f) < 0.5) far_off = true;
    print_row(f);
}

static void print_samples(const char *name, const struct samples *s)
{
    printf("\"%s\":{\"median\":%.6g,\"min\":%.6g,\"max\":%.6g,\"rounds\":%zu}", name,
           samples_median(s), samples_min(s), samples_max(s), s->count);
}

static void print_json(void)
{
    printf("{");
    for (size_t i = 0; i < figures_count; i++) {
        const struct figure *f = &figures[i];
        printf("%s\"%s\":{\"what\":\"%s\",\"unit\":\"%s\",", i ? "," : "", f->row.name,
               f->row.what, f->row.unit);
        print_samples("ours", &f->ours);
        if (f->row.baseline) {
            printf(",");
            print_samples("baseline", &f->baseline);
            printf(",\"against\":\"%s\",\"ratio\":%.6g", f->row.baseline_what, f->ratio);
        }
        if (f->row.target.kind != TARGET_NONE) {
            char target[64];
            target_text(target, sizeof target, f->row.target);
            printf(",\"target\":\"%s\",\"verdict\":\"%s\"", target, f->verdict);
        }
        printf("}");
    }
    printf("}\n");
}

int report_end(bool json)
{
    if (json) print_json();
    if (far_off) fprintf(stderr, "a target was missed by more than a factor of two\n");
    if (figures_count == 0) fprintf(stderr, "nothing of that name\n");
    return (far_off && !getenv("QUICK")) || figures_count == 0;
}
