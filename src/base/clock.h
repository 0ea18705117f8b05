/* clock.h - the time, handed in, in milliseconds.
 *
 * Two kinds and never mixed: the monotonic time drives the loop's timers; the wall time judges
 * leases and retention inside a store that several processes share. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

struct clock {
    int64_t (*now_ms)(void *ctx);
    void *ctx;
};

static inline int64_t clock_now_ms(const struct clock *c)
{
    return c->now_ms(c->ctx);
}

struct clock clock_wall(void);
struct clock clock_monotonic(void); /* goes on while the machine sleeps: leases do, too */

int64_t clock_measure_us(void); /* monotonic, from anywhere: for differences */

#endif
