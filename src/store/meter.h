/* meter.h - what stores count, for whoever wants to watch them.
 *
 * A store counts in plain integers on the loop's thread; what a worker counts is handed over under
 * the lock that it takes anyway. Nobody is told: store_meters() asks, and a wrapper passes the
 * question on, with the name of the plane. Several stores of one plane (lanes) say the same meter,
 * and their numbers are added.
 *
 * To add one: a line here, and say() where it is known. It reaches /metrics by its name. */
#ifndef STORE_METER_H
#define STORE_METER_H

#include "base/histogram.h"

enum meter_kind { METER_COUNTER, METER_GAUGE, METER_HISTOGRAM_US, METER_HISTOGRAM_MANY };

/* id, name, kind, label besides the plane or NULL, what it is */
#define METER_LIST(X)                                                                          \
    X(METER_UP, "plane_up", METER_GAUGE, NULL,                                                 \
      "1: the last thing that the plane was asked was answered")                               \
    X(METER_OPS, "plane_ops_total", METER_COUNTER, "verb",                                     \
      "Ops that the plane has answered, with or without an error, by verb")                    \
    X(METER_FAILED, "plane_failed_ops_total", METER_COUNTER, "error",                          \
      "Ops that ended with an error instead of an answer, by error; watches are left out")     \
    X(METER_OP_TIME, "plane_op_duration_seconds", METER_HISTOGRAM_US, NULL,                    \
      "From an op about one key to its answer; watches are left out")                          \
    X(METER_PENDING, "plane_pending_ops", METER_GAUGE, NULL,                                   \
      "Ops that the plane was asked and has not answered; watches are left out")               \
    X(METER_WATCHES, "plane_watches", METER_GAUGE, NULL,                                       \
      "Keys on which the plane was asked to tell of a change")                                 \
    X(METER_BATCH, "plane_batch_ops", METER_HISTOGRAM_MANY, NULL,                              \
      "Ops that went into one transaction or one call of the script")                          \
    X(METER_CONNECTS, "plane_connects_total", METER_COUNTER, NULL,                             \
      "Connections made to the server, the first ones included")                               \
    X(METER_BREAKER, "plane_breaker_open", METER_GAUGE, NULL,                                  \
      "1: the plane fails and is not asked; the ledger decides alone")                         \
    X(METER_OPENED, "plane_breaker_opened_total", METER_COUNTER, NULL,                         \
      "How often the breaker has opened")                                                      \
    X(METER_LATE, "plane_late_ops_total", METER_COUNTER, NULL,                                 \
      "Ops that missed the deadline of the plane; the answer came without it")                 \
    X(METER_AMNESIA, "plane_amnesia_total", METER_COUNTER, NULL,                               \
      "How often the plane was found to have forgotten everything")

#define METER_ENUM(id, name, kind, label, help) id,
enum meter_id { METER_LIST(METER_ENUM) METERS };
#undef METER_ENUM

struct meter {
    enum meter_id id;
    const char *plane, *label; /* static */
    uint64_t value;
    const struct histogram *histogram; /* of a histogram; valid during say() */
};

typedef void meter_say(void *ctx, const struct meter *meter);

#endif
