/* scrape.h - what a daemon counts, read from its /metrics and looked up by name.
 *
 * A small reader of the Prometheus text format: enough for what `once serve` writes. */
#ifndef CLI_SCRAPE_H
#define CLI_SCRAPE_H

#include "base/bytes.h"
#include "base/err.h"

struct sample {
    const char *name, *labels; /* labels as written, without the braces; "": none */
    double value;
};

/* All pointers are into `text`. */
struct scrape {
    char *text;
    struct sample *samples;
    size_t count;
};

/* Of a text, which it takes over. */
int scrape_parse(char *text, struct scrape *ret_scrape, struct err *reterr);
void scrape_free(struct scrape *s); /* zeroed is fine */

/* The sum of the samples of that name that have the label, written name="value"; NULL: of all. */
double scrape_sum(const struct scrape *s, const char *name, const char *label);
const struct sample *scrape_find(const struct scrape *s, const char *name, const char *label);

/* What was counted since `before` (all zeros: since the start). */
double scrape_delta(const struct scrape *now, const struct scrape *before, const char *name,
                    const char *label);

/* So large is the q-th part of what a histogram has counted since `before`, between two of its
 * bounds; negative: nothing was counted. */
double scrape_quantile(const struct scrape *now, const struct scrape *before,
                       const char *histogram, const char *label, double q);

#endif
