/* record.h - what is stored under a key, and the three clocks it lives by.
 *
 *   absent --claim--> PENDING{token, fence, lease} --publish--> DONE{value} --retention--> gone
 *                        |--release--> absent
 *                        '--lease lapses--> still PENDING, but the next claim takes it over
 *
 * Lease, retention and wait are three clocks, never one: when one TTL served both, a crash
 * blocked the key for a day. Wait is the caller's and not stored. */
#ifndef CORE_RECORD_H
#define CORE_RECORD_H

#include "base/blob.h"
#include "base/bytes.h"

enum {
    FINGERPRINT_BYTES_MAX = 64,
    VALUE_BYTES_MAX_DEFAULT = 1024 * 1024,
};

#define LEASE_MS_DEFAULT INT64_C(30000)
#define WAIT_MS_DEFAULT INT64_C(5000)
#define RETAIN_MS_DEFAULT INT64_C(86400000)
#define DURATION_MS_MAX (INT64_C(3650) * 86400000) /* ten years: no sum of two can overflow */

/* A claim whose owner is gone keeps its fingerprint for at least this long after its lease, so
 * that a late publish still counts and another payload is still refused. */
#define ABANDONED_KEEP_MS INT64_C(86400000)

struct token {
    uint8_t bytes[16];
};

static inline bool token_eq(const struct token *a, const struct token *b)
{
    /* Constant time: a token is a capability, and its bytes must not leak through timing. */
    uint8_t diff = 0;
    for (size_t i = 0; i < sizeof a->bytes; i++) diff |= (uint8_t)(a->bytes[i] ^ b->bytes[i]);
    return diff == 0;
}

static inline bool token_is_set(const struct token *t)
{
    static const struct token none;
    return !token_eq(t, &none);
}

enum record_state { RECORD_PENDING = 1, RECORD_DONE = 2 };

struct record {
    enum record_state state;
    struct token token; /* of the claim that owns it, or that published it */
    uint64_t fence;     /* of that claim; strictly increasing per key */
    int64_t claimed_at_ms;
    int64_t lease_ms;       /* as granted; what a renewal adds unless told otherwise */
    int64_t lease_until_ms; /* judged by the store's clock */
    int64_t retain_ms;      /* counted from the publish */
    int64_t done_at_ms;     /* DONE only */
    struct bytes fingerprint;
    struct blob *value; /* DONE only; NULL: it was done, the answer was not kept */
};

#define FENCE_MAX (INT64_C(1) << 62)   /* a version is a fence and one bit */
#define TIME_MS_MAX (INT64_C(1) << 60) /* no sum of the times of a record overflows */

/* What the rules rely on, for a store that reads what others may have written: NULL, or what is
 * wrong with it. Not among it: a lease that ends before the claim, which a clock that went back
 * leaves behind. */
const char *record_nonsense(const struct record *r);

/* From this time on the record counts as absent, whether or not it was swept already. */
int64_t record_gone_at_ms(const struct record *r);

/* The record as the rules see it: NULL if there is none or its time is over. */
const struct record *record_live(const struct record *stored, int64_t now_ms);

/* Says "no longer what I saw" by being different: changes with owner and state, not by renewal.
 * 0 is absent. */
uint64_t record_version(const struct record *r);

#endif
