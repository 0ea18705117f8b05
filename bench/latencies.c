/* latencies.c - counts by size: each power of two is divided into equal parts. See bench.h. */
#include "bench/bench.h"

static size_t place_of(uint64_t ns)
{
    if (ns < LATENCIES_PER_OCTAVE) return ns;
    unsigned octave = 63 - (unsigned)__builtin_clzll(ns);
    unsigned part = (unsigned)(ns >> (octave - 5)) & (LATENCIES_PER_OCTAVE - 1);
    return (size_t)octave * LATENCIES_PER_OCTAVE + part;
}

/* The least that is counted there. */
static double floor_ns(size_t place)
{
    size_t octave = place / LATENCIES_PER_OCTAVE, part = place % LATENCIES_PER_OCTAVE;
    if (octave == 0) return (double)part;
    return (double)(UINT64_C(1) << octave) * (1 + (double)part / LATENCIES_PER_OCTAVE);
}

void latencies_add(struct latencies *l, int64_t ns)
{
    l->counts[place_of(ns > 0 ? (uint64_t)ns : 0)]++;
    l->total++;
}

double latencies_ms(const struct latencies *l, double part)
{
    uint64_t seen = 0, wanted = (uint64_t)((double)l->total * part);
    size_t place = 0, last = sizeof l->counts / sizeof l->counts[0] - 1;
    for (; place < last; place++) {
        seen += l->counts[place];
        if (seen > wanted) break;
    }
    return floor_ns(place) / 1e6;
}
