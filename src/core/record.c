/* record.c - see record.h. */
#include "core/record.h"

#include "base/check.h"
#include "base/museum.h"

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
