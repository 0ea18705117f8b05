/* clock.c - see clock.h. */
#include "base/clock.h"

#include <stddef.h>
#include <time.h>

static int64_t read_ms(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int64_t wall_ms(void *ctx)
{
    (void)ctx;
    return read_ms(CLOCK_REALTIME);
}

static int64_t monotonic_ms(void *ctx)
{
    (void)ctx;
    return read_ms(CLOCK_BOOTTIME);
}

int64_t clock_measure_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

struct clock clock_wall(void)
{
    return (struct clock){ .now_ms = wall_ms };
}

struct clock clock_monotonic(void)
{
    return (struct clock){ .now_ms = monotonic_ms };
}
