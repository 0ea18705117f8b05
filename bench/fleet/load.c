/* load.c - as many claims as the planes take, from one process with many in flight.
 *
 * The first part of the time warms up (connections, prepared statements, scripts) and is not
 * counted. Keys are new ones in every run: they continue from the clock. */
#include "bench/fleet/fleet.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { REPLAY_KEYS = 20000 };

static const int64_t warm_ns = 250 * INT64_C(1000000);
static const uint64_t no_count = UINT32_MAX;

static uint64_t fresh_keys(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static double cpu_us(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e6 +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

static double run_new(struct once *o, enum work work, size_t in_flight, int64_t slice_ns)
{
    return load_async(o, work, in_flight, fresh_keys(), no_count, slice_ns);
}

/* The same answers over and over, passes of all keys until the time is up. */
static double run_replay(struct once *o, size_t in_flight, uint64_t first, int64_t slice_ns)
{
    int64_t start_ns = now_ns();
    uint64_t finished = 0;
    for (; now_ns() - start_ns < slice_ns; finished += REPLAY_KEYS)
        load_async(o, WORK_REPLAY, in_flight, first, REPLAY_KEYS, INT64_MAX);
    return per_second(finished, start_ns);
}

static enum work work_of(const char *name)
{
    if (strcmp(name, "claims") == 0) return WORK_CLAIM;
    if (strcmp(name, "pairs") == 0) return WORK_CLAIM_PUBLISH;
    must(strcmp(name, "replay") == 0, "find that kind of work");
    return WORK_REPLAY;
}

void fleet_load(const struct planes *planes, const char *name, size_t in_flight, double seconds)
{
    enum work work = work_of(name);
    struct once *o = fleet_open(planes);
    int64_t slice_ns = (int64_t)(seconds * 1e9), start_ns;
    uint64_t first = fresh_keys();
    double before_us, rate;
    if (work == WORK_REPLAY)
        load_async(o, WORK_CLAIM_PUBLISH, in_flight, first, REPLAY_KEYS, INT64_MAX);
    else
        run_new(o, work, in_flight, warm_ns);
    before_us = cpu_us();
    start_ns = now_ns();
    rate = work == WORK_REPLAY ? run_replay(o, in_flight, first, slice_ns)
                               : run_new(o, work, in_flight, slice_ns);
    double finished = rate * (double)(now_ns() - start_ns) / 1e9;
    printf("{\"rate\":%.1f,\"client_us\":%.3f}\n", rate, (cpu_us() - before_us) / finished);
    once_close(o);
}
