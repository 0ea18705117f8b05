/* main.c - more in flight, more keys, more who wait, as bench/growth.mjs asks for them.
 *
 *   growth flight IN-FLIGHT SECONDS COORD LEDGER   claim + publish; prints rate, p50 and p99
 *   growth keys COORD LEDGER SECONDS COUNT...      see keys.c
 *   growth wake WAITERS ROUNDS COORD LEDGER        see wake.c
 *   growth crowd COUNT PORT...                     see crowd.c
 *
 * COORD and LEDGER are addresses, or none. Whatever does not come out as it should ends the
 * program. */
#include "bench/growth/growth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const int64_t warm_ns = 250 * INT64_C(1000000);

uint64_t fresh_keys(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

void growth_flight(const struct planes *planes, size_t in_flight, double seconds)
{
    static struct latencies took;
    struct once *o = fleet_open(planes);
    load_async(o, WORK_CLAIM_PUBLISH, in_flight, fresh_keys(), UINT32_MAX, warm_ns);
    double rate = load_timed(o, WORK_CLAIM_PUBLISH, in_flight, fresh_keys(), UINT32_MAX,
                             (int64_t)(seconds * 1e9), &took);
    printf("{\"rate\":%.1f,\"p50_ms\":%.4f,\"p99_ms\":%.4f}\n", rate, latencies_ms(&took, 0.5),
           latencies_ms(&took, 0.99));
    once_close(o);
}

static size_t count_of(const char *text)
{
    return strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
    const char *what = argc > 3 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 6 && strcmp(what, "flight") == 0)
        growth_flight(&(struct planes){ argv[4], argv[5] }, count_of(argv[2]),
                      strtod(argv[3], NULL));
    else if (argc > 5 && strcmp(what, "keys") == 0)
        growth_keys(&(struct planes){ argv[2], argv[3] }, strtod(argv[4], NULL), argv + 5,
                    (size_t)argc - 5);
    else if (argc == 6 && strcmp(what, "wake") == 0)
        growth_wake(&(struct planes){ argv[4], argv[5] }, count_of(argv[2]), count_of(argv[3]));
    else if (strcmp(what, "crowd") == 0)
        growth_crowd(count_of(argv[2]), argv + 3, (size_t)argc - 3);
    else
        must(false, "understand the arguments");
    return 0;
}
