/* drain_rate.c - what drain_rate.h guarantees.
 *
 * Two things bound it. What is earned bit by bit makes it even. What is at the ledger, or came back within a
 * second, bounds it also where a slow ledger answers all at once. */
#include "engine/drain_rate.h"

enum { EARNED_MS_MAX = 50 }; /* what is not taken for so long is lost */

/* What was written longer than a second ago counts no more. */
static void forget_written(struct drain_rate *r, int64_t now_ms)
{
    int64_t slice = now_ms / DRAIN_SLICE_MS;
    if (slice - r->slice > DRAIN_SLICES) r->slice = slice - DRAIN_SLICES;
    while (r->slice < slice) r->slices[++r->slice % DRAIN_SLICES] = 0;
}

void drain_rate_written(struct drain_rate *r, bool taken, int64_t now_ms)
{
    if (!r->per_second) return;
    forget_written(r, now_ms);
    r->slices[r->slice % DRAIN_SLICES]++;
    r->at_ledger -= taken;
}

/* What was not taken in time is not made up for: it is taken evenly. */
static void earn(struct drain_rate *r, int64_t now_ms)
{
    int64_t rate = r->per_second, since_ms = now_ms - r->earned_at_ms;
    int64_t most = rate * EARNED_MS_MAX > 1000 ? rate * EARNED_MS_MAX : 1000;
    r->earned_at_ms = now_ms;
    r->earned += rate * (since_ms < 1000 ? since_ms : 1000);
    if (r->earned > most) r->earned = most;
}

size_t drain_rate_take(struct drain_rate *r, size_t most, int64_t now_ms, int64_t *ret_again_ms)
{
    int64_t may = (int64_t)most, rate = r->per_second;
    if (!rate) return most;
    earn(r, now_ms);
    forget_written(r, now_ms);
    int64_t left = rate - r->at_ledger;
    for (int i = 0; i < DRAIN_SLICES; i++) left -= r->slices[i];
    if (left < 1) {
        *ret_again_ms = (r->slice + 1) * DRAIN_SLICE_MS;
        return 0;
    }
    if (r->earned < 1000) {
        *ret_again_ms = now_ms + (1000 - r->earned + rate - 1) / rate;
        return 0;
    }
    if (may > r->earned / 1000) may = r->earned / 1000;
    if (may > left) may = left;
    r->earned -= may * 1000;
    r->at_ledger += may;
    return (size_t)may;
}

void drain_rate_give_back(struct drain_rate *r, size_t not_taken)
{
    if (!r->per_second) return;
    r->earned += (int64_t)not_taken * 1000;
    r->at_ledger -= (int64_t)not_taken;
}
