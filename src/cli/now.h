/* now.h - the time, for commands. Wall time is for ages of records, monotonic for durations. */
#ifndef CLI_NOW_H
#define CLI_NOW_H

#include <stdint.h>
#include <time.h>

static inline int64_t now_us(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static inline int64_t now_wall_ms(void)
{
    return now_us(CLOCK_REALTIME) / 1000;
}

static inline int64_t now_monotonic_us(void)
{
    return now_us(CLOCK_MONOTONIC);
}

static inline int64_t now_monotonic_ms(void)
{
    return now_monotonic_us() / 1000;
}

#endif
