/* record.c - see record.h. */
#include "core/record.h"

#include "base/check.h"
#include "base/museum.h"

static bool time_makes_sense(int64_t ms)
{
    return ms >= -TIME_MS_MAX && ms <= TIME_MS_MAX;
}

const char *record_nonsense(const struct record *r)
{
    if (r->state != RECORD_PENDING && r->state != RECORD_DONE) return "unknown state";
    if (r->fence < 1 || r->fence > (uint64_t)FENCE_MAX) return "impossible fence";
    if (r->lease_ms < 0 || !time_makes_sense(r->lease_ms)) return "impossible lease";
    if (r->retain_ms < 0 || !time_makes_sense(r->retain_ms)) return "impossible retention";
    if (!time_makes_sense(r->claimed_at_ms)) return "impossible time of the claim";
    if (!time_makes_sense(r->lease_until_ms)) return "impossible end of the lease";
    if (!time_makes_sense(r->done_at_ms)) return "impossible time of the publish";
    return NULL;
}

int64_t record_gone_at_ms(const struct record *r)
{
    if (r->state == RECORD_DONE) return r->done_at_ms + r->retain_ms;
    if (BUG(SWEEP_PENDING)) return r->claimed_at_ms + r->lease_ms / 2;
    int64_t keep_ms = r->retain_ms > ABANDONED_KEEP_MS ? r->retain_ms : ABANDONED_KEEP_MS;
    return r->lease_until_ms + keep_ms;
}

const struct record *record_live(const struct record *stored, int64_t now_ms)
{
    if (!stored) return NULL;
    CHECK(stored->state == RECORD_PENDING || stored->state == RECORD_DONE);
    return now_ms < record_gone_at_ms(stored) ? stored : NULL;
}

uint64_t record_version(const struct record *r)
{
    if (!r) return 0;
    return r->fence << 1 | (r->state == RECORD_DONE);
}
