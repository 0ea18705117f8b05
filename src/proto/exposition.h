/* exposition.h - numbers for Prometheus and whoever reads its text format (version 0.0.4), written.
 *
 * A family is its help, its type and then its samples, with nothing of another family in between;
 * whoever writes it sees to that. Numbers are written as integers or plain decimals, whatever the
 * locale is. */
#ifndef PROTO_EXPOSITION_H
#define PROTO_EXPOSITION_H

#include "base/buf.h"
#include "base/histogram.h"

#define EXPOSITION_MEDIA_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum exposition_kind { EXPOSITION_COUNTER, EXPOSITION_GAUGE, EXPOSITION_HISTOGRAM };

/* Labels of a sample: rows that end with one without a name, or without a value. */
struct exposition_label {
    const char *name, *value;
};

void exposition_family(struct buf *out, const char *name, enum exposition_kind kind,
                       const char *help);

/* `value` in parts of the unit, `per_unit` (1, or a power of ten) of which make it whole. */
void exposition_sample(struct buf *out, const char *name, const struct exposition_label *labels,
                       uint64_t value, uint64_t per_unit);

/* _bucket, _sum and _count. */
void exposition_histogram(struct buf *out, const char *name,
                          const struct exposition_label *labels, const struct histogram *h,
                          const struct histogram_scale *scale);

#endif
