/* gate.h - when a burst is diverted: more than `threshold` in `window_ms` trips the gate for
 * `hold_ms` after the last one that was too many.
 *
 * A true sliding window: the times of the last `threshold` triggers are kept, and one more is too
 * many if the oldest of them is still within the window. So no window of that length, wherever it
 * begins, lets more than `threshold` pass; a counter that starts again with every window lets
 * nearly twice as many pass around its boundary. Diverted ones count, too: the gate stays tripped
 * while the storm lasts. */
#ifndef CORE_GATE_H
#define CORE_GATE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GATE_THRESHOLD_MAX = 100000, GATE_THRESHOLD_DEFAULT = 100, GATE_WEIGHT_MAX = 100 };
#define GATE_WINDOW_MS_DEFAULT INT64_C(200)
#define GATE_HOLD_MS_DEFAULT INT64_C(500)
#define GATE_MS_MAX INT64_C(3600000)

enum gate_mode {
    GATE_ON,     /* diverts */
    GATE_SHADOW, /* counts and tells, and lets everything pass */
    GATE_OFF,    /* does not even count */
};

struct gate_config {
    enum gate_mode mode;
    int64_t threshold, window_ms, hold_ms;
    int64_t weight; /* how many parts of a round its entries get; 0 is 1 */
};
#define GATE_CONFIG_INIT                                                                       \
    {                                                                                          \
        .threshold = GATE_THRESHOLD_DEFAULT, .window_ms = GATE_WINDOW_MS_DEFAULT,              \
        .hold_ms = GATE_HOLD_MS_DEFAULT                                                        \
    }

/* `times` has room for `threshold` of them; the caller's. All zero is a gate that has seen nothing; with
 * another threshold it has to start as one. */
struct gate {
    int64_t *times; /* a ring; the oldest is at `first` */
    size_t first, count;
    int64_t tripped_until_ms;
};

int gate_check(const struct gate_config *config, struct err *reterr); /* can it be? */

/* `count` triggers at once. Returns how many of them pass: the first so many. Does not ask for the
 * mode: whoever calls it lets them all pass in shadow, and does not call it when it is off. */
size_t gate_pass(struct gate *g, const struct gate_config *config, size_t count,
                 int64_t now_ms);

#endif
