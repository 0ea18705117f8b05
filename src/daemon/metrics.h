/* metrics.h - everything that is counted, as text for Prometheus: GET /metrics, and INFO in parts.
 *
 * Guarantees:
 *   M1 Counters never go down while the process lives; every family is there from the start, with
 *      its help and its type.
 *   M2 No key, scope, token or address is in it: what a caller sends cannot make it grow.
 *   M3 A reading asks no store and waits for nobody. Records are counted in the background, when
 *      somebody reads, every few seconds at most and for a thousandth of the time at most; how old
 *      the numbers are is one of them.
 *
 * To add one: a row in metrics.c (or in store/meter.h, for what a store counts), then
 * `tools/metrics-page`, which writes the table of docs/metrics.md. */
#ifndef DAEMON_METRICS_H
#define DAEMON_METRICS_H

#include "daemon/auth.h"
#include "daemon/bound.h"
#include "daemon/conn.h"

/* Zeroed, with what is counted set; what is NULL is left out. */
struct metrics {
    struct loop *loop;
    struct engine *engine;
    struct store *store;
    const char *plane; /* of a store that is not tiered */
    const struct conns *conns;
    const struct bounds *bounds;
    const struct auth *auth;
    const uint64_t *http_answered; /* by the first digit of the status */

    /* the rest is its own */
    uint64_t started_ms; /* wall clock */
    struct store_stats records;
    bool records_known, records_asked;
    int64_t records_ms, records_asked_ms, records_next_ms; /* the loop's clock */
};

enum { METRICS_BYTES_MAX = 512 * 1024 };

void metrics_init(struct metrics *m, const struct clock *wall);

/* Has the records counted, if it is time. The engine's loop has to run, and to outlive this. */
void metrics_refresh(struct metrics *m);

/* Writes all of it; check buf_failed(). */
void metrics_write(struct metrics *m, struct buf *out);

#endif
