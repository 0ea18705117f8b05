/* keys.c - what a claim and its publish cost when so many keys are held already.
 *
 *   keys COORD LEDGER SECONDS COUNT...
 *
 * Fills up to each count, each key with its answer, and then times a few more, 64 in flight, so
 * that there are hardly more than were asked for. Prints a line of JSON for each count: how many
 * there were, microseconds per pair in each of the samples, and what this process has allocated for
 * a key. Filling ends after so many seconds: the last line then says how far it came. A count with a
 * plus in front of it is there already. */
#include "bench/growth/growth.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

enum { IN_FLIGHT = 64, FILL_IN_FLIGHT = 256, SAMPLES = 5, SAMPLE_MAX = 20000 };

struct fill {
    struct once *once;
    uint64_t first, held;
    int64_t until_ns;
    double heap_before;
};

static double heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return (double)(info.uordblks + info.hblkhd);
}

static void fill_to(struct fill *f, uint64_t count)
{
    enum { STEP = 100000 };
    while (f->held < count && now_ns() < f->until_ns) {
        uint64_t more = count - f->held < STEP ? count - f->held : STEP;
        load_async(f->once, WORK_CLAIM_PUBLISH, FILL_IN_FLIGHT, f->first + f->held, more,
                   INT64_MAX);
        f->held += more;
    }
}

/* These are held from now on, too. */
static double pair_us(struct fill *f, uint64_t count)
{
    double rate = load_async(f->once, WORK_CLAIM_PUBLISH, IN_FLIGHT, f->first + f->held, count,
                             INT64_MAX);
    f->held += count;
    return 1e6 / rate;
}

static void say(struct fill *f, uint64_t wanted)
{
    uint64_t held = f->held, sample = held / 50 < SAMPLE_MAX ? held / 50 : SAMPLE_MAX;
    double bytes = (heap_bytes() - f->heap_before) / (double)held;
    printf("{\"wanted\":%lu,\"keys\":%lu,\"bytes\":%.1f,\"us\":[", (unsigned long)wanted,
           (unsigned long)held, bytes);
    for (int i = 0; i < SAMPLES; i++) printf("%s%.4f", i ? "," : "", pair_us(f, sample));
    puts("]}");
}

void growth_keys(const struct planes *planes, double seconds, char **counts, size_t count)
{
    struct fill f = { .once = fleet_open(planes), .first = fresh_keys() };
    load_async(f.once, WORK_CLAIM_PUBLISH, IN_FLIGHT, f.first, IN_FLIGHT,
               INT64_MAX); /* connected */
    f.first += IN_FLIGHT;
    f.heap_before = heap_bytes();
    f.until_ns = now_ns() + (int64_t)(seconds * 1e9);
    for (size_t i = 0; i < count && now_ns() < f.until_ns; i++) {
        uint64_t wanted = strtoull(counts[i], NULL, 10);
        if (*counts[i] == '+')
            f.held = wanted;
        else
            fill_to(&f, wanted);
        say(&f, wanted);
    }
    fflush(stdout);
    _Exit(0); /* giving millions of records back one by one is not what is measured */
}
