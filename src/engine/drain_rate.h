/* drain_rate.h - how many entries a drainer may take, so that no second has too many.
 *
 *   take --> at the ledger --> written: it counts for a second
 *     '--give back: what was not there to be taken
 *
 * Guarantees: no second of the ledger sees more than the rate, however late it is: what is on its way
 * there, or came back within a second, counts. What was not taken in time is not made up for: it is
 * taken evenly. It has no timer and no clock: whoever gets none is told when to ask again. */
#ifndef ENGINE_DRAIN_RATE_H
#define ENGINE_DRAIN_RATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DRAIN_SLICE_MS = 50, /* what was written is counted by slices of time, ... */
    /* ... a second of them, and the one that it began in */
    DRAIN_SLICES = 1000 / DRAIN_SLICE_MS + 1,
};

/* All 0 but the first: nothing was taken yet. */
struct drain_rate {
    int64_t per_second;   /* 0: there is no limit, and nothing is counted */
    int64_t earned_at_ms; /* until then it is counted what may be taken, ... */
    int64_t earned;       /* ... in thousandths of an entry */
    int64_t at_ledger;    /* leased, or about to be */
    int64_t slice;        /* since when those are counted that came back from there: */
    int64_t slices[DRAIN_SLICES];
};

/* How many, at most `most`, which is not 0; 0: none before ret_again_ms, which is set only then. */
size_t drain_rate_take(struct drain_rate *r, size_t most, int64_t now_ms,
                       int64_t *ret_again_ms);
void drain_rate_give_back(struct drain_rate *r, size_t not_taken);
/* One came back from the ledger, whatever became of it; not `taken`: somebody asked for that one, and it
 * counts all the same. */
void drain_rate_written(struct drain_rate *r, bool taken, int64_t now_ms);

#endif
