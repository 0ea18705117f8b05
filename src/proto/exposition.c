/* exposition.c - see exposition.h. */
#include "proto/exposition.h"

#include "base/check.h"

#include <stdio.h>

enum { DECIMAL_BYTES = 48 };

/* ---- text ---- */

/* Backslash and line feed are escaped everywhere, the quote in labels only. */
static void put_escaped(struct buf *out, const char *text, bool quoted)
{
    for (; *text; text++) {
        if (*text == '\\')
            buf_add(out, bytes_str("\\\\"));
        else if (*text == '\n')
            buf_add(out, bytes_str("\\n"));
        else if (*text == '"' && quoted)
            buf_add(out, bytes_str("\\\""));
        else
            buf_byte(out, (uint8_t)*text);
    }
}

static void put_label(struct buf *out, const char *name, const char *value, char *between)
{
    buf_byte(out, (uint8_t)*between);
    buf_printf(out, "%s=\"", name);
    put_escaped(out, value, true);
    buf_byte(out, '"');
    *between = ',';
}

/* `le` may be NULL. */
static void put_labels(struct buf *out, const struct exposition_label *labels, const char *le)
{
    char between = '{';
    for (; labels && labels->name && labels->value; labels++)
        put_label(out, labels->name, labels->value, &between);
    if (le) put_label(out, "le", le, &between);
    if (between == ',') buf_byte(out, '}');
}

/* ---- numbers ---- */

static void write_decimal(uint64_t value, uint64_t per_unit, char out[DECIMAL_BYTES])
{
    int digits = 0;
    for (uint64_t left = per_unit; left > 1; left /= 10, digits++) CHECK(left % 10 == 0);
    int len = snprintf(out, DECIMAL_BYTES, "%llu", (unsigned long long)(value / per_unit));
    if (value % per_unit == 0) return;
    len += snprintf(out + len, DECIMAL_BYTES - (size_t)len, ".%0*llu", digits,
                    (unsigned long long)(value % per_unit));
    while (out[len - 1] == '0') out[--len] = '\0';
}

/* ---- lines ---- */

void exposition_family(struct buf *out, const char *name, enum exposition_kind kind,
                       const char *help)
{
    static const char *const kinds[] = { "counter", "gauge", "histogram" };
    buf_printf(out, "# HELP %s ", name);
    put_escaped(out, help, false);
    buf_printf(out, "\n# TYPE %s %s\n", name, kinds[kind]);
}

void exposition_sample(struct buf *out, const char *name, const struct exposition_label *labels,
                       uint64_t value, uint64_t per_unit)
{
    char number[DECIMAL_BYTES];
    write_decimal(value, per_unit, number);
    buf_add(out, bytes_str(name));
    put_labels(out, labels, NULL);
    buf_printf(out, " %s\n", number);
}

static void put_bucket(struct buf *out, const char *name, const struct exposition_label *labels,
                       const char *le, uint64_t count)
{
    buf_printf(out, "%s_bucket", name);
    put_labels(out, labels, le);
    buf_printf(out, " %llu\n", (unsigned long long)count);
}

void exposition_histogram(struct buf *out, const char *name,
                          const struct exposition_label *labels, const struct histogram *h,
                          const struct histogram_scale *scale)
{
    char number[DECIMAL_BYTES];
    uint64_t count = 0;
    for (unsigned i = 0; i < scale->count; i++) {
        count += h->buckets[i];
        write_decimal(scale->bounds[i], scale->per_unit, number);
        put_bucket(out, name, labels, number, count);
    }
    count += h->buckets[scale->count];
    put_bucket(out, name, labels, "+Inf", count);
    write_decimal(h->sum, scale->per_unit, number);
    buf_printf(out, "%s_sum", name);
    put_labels(out, labels, NULL);
    buf_printf(out, " %s\n%s_count", number, name);
    put_labels(out, labels, NULL);
    buf_printf(out, " %llu\n", (unsigned long long)count);
}
