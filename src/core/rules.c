/* rules.c - the contract, one decision per line, in the order of the specification.
 *
 *   R1 Past its retention a record is absent (record_live).
 *   R2 Another fingerprint is refused before anything else is looked at.
 *   R3 Done is written once; nothing but retention or forget removes it.
 *   R4 Only the owner's token changes a pending record, until a lapsed lease is taken over.
 *   R5 The fence of a key only grows, also across release, expiry and a clock that went back.
 *   R6 A lease never has more left than its length: a clock that went back re-anchors it at the
 *      next claim, so a crashed owner is replaced within one lease whatever the clock did. */
#include "core/rules.h"

#include "base/check.h"
#include "base/museum.h"

static struct verdict keep(enum outcome o)
{
    return (struct verdict){ .outcome = o, .change = CHANGE_NONE };
}

static struct verdict drop(enum outcome o)
{
    return (struct verdict){ .outcome = o, .change = CHANGE_DROP };
}

static struct verdict put(struct record next, enum outcome o)
{
    return (struct verdict){ .outcome = o, .change = CHANGE_PUT, .next = next };
}

static bool lease_alive(const struct record *r, int64_t now_ms)
{
    if (BUG(LEASE_NEVER_LAPSES)) return true;
    if (BUG(EAGER_TAKEOVER)) return now_ms < r->claimed_at_ms + r->lease_ms;
    return now_ms < r->lease_until_ms;
}

static uint64_t next_fence(const struct record *stored, struct moment at)
{
    if (BUG(FENCE_RESET)) return stored ? stored->fence + 1 : 1;
    uint64_t used = at.fence_floor;
    if (stored && stored->fence > used) used = stored->fence;
    uint64_t now_us = at.now_ms > 0 ? (uint64_t)at.now_ms * 1000 : 0;
    return now_us > used ? now_us : used + 1;
}

static struct record granted(const struct record *stored, const struct request *in,
                             struct moment at)
{
    int64_t lease_ms = in->lease_ms;
    if (BUG(CLIPPED_LEASE) && in->retain_ms < lease_ms) lease_ms = in->retain_ms;
    if (BUG(ZERO_IS_DEFAULT) && lease_ms == 0) lease_ms = LEASE_MS_DEFAULT;
    return (struct record){
        .state = RECORD_PENDING,
        .token = in->token,
        .fence = next_fence(stored, at),
        .claimed_at_ms = at.now_ms,
        .lease_ms = lease_ms,
        .lease_until_ms = at.now_ms + lease_ms,
        .retain_ms = in->retain_ms,
        .fingerprint = in->fingerprint,
    };
}

static struct verdict busy(const struct record *cur, struct moment at)
{
    if (cur->lease_until_ms - at.now_ms <= cur->lease_ms) return keep(OUTCOME_IN_PROGRESS);
    struct record next = *cur; /* R6 */
    next.lease_until_ms = at.now_ms + cur->lease_ms;
    return put(next, OUTCOME_IN_PROGRESS);
}

static enum outcome finished(const struct record *cur)
{
    if (BUG(EMPTY_IS_ABSENT) && cur->value && blob_bytes(cur->value).len == 0)
        return OUTCOME_ALREADY_DONE;
    return cur->value ? OUTCOME_CACHED : OUTCOME_ALREADY_DONE;
}

static bool same_payload(const struct record *cur, const struct request *in, struct moment at)
{
    if (BUG(FINGERPRINT_REPLACED) && cur->state == RECORD_PENDING &&
        !lease_alive(cur, at.now_ms))
        return true;
    return bytes_eq(cur->fingerprint, in->fingerprint);
}

struct verdict rules_claim(const struct record *stored, const struct request *in,
                           struct moment at)
{
    if (in->force) return put(granted(stored, in, at), OUTCOME_CLAIMED);
    const struct record *cur = record_live(stored, at.now_ms);
    if (!cur) return put(granted(stored, in, at), OUTCOME_CLAIMED);
    if (BUG(PROGRESS_BEFORE_MISMATCH) && cur->state == RECORD_PENDING &&
        lease_alive(cur, at.now_ms))
        return busy(cur, at);
    if (!same_payload(cur, in, at)) return keep(OUTCOME_MISMATCH); /* R2 */
    if (cur->state == RECORD_DONE) return keep(finished(cur));
    if (token_eq(&cur->token, &in->token)) return keep(OUTCOME_CLAIMED); /* delivered twice */
    if (lease_alive(cur, at.now_ms)) return busy(cur, at);
    struct verdict v = put(granted(stored, in, at), OUTCOME_CLAIMED);
    v.taken_over = true;
    return v;
}

static struct verdict repeated_or_lost(const struct record *cur, const struct request *in)
{
    if (!token_eq(&cur->token, &in->token)) return keep(OUTCOME_LOST);
    if (!blob_eq(cur->value, in->value)) return keep(OUTCOME_LOST);
    return keep(OUTCOME_OK);
}

static struct record published(const struct record *cur, const struct request *in,
                               struct moment at)
{
    struct record next = *cur;
    next.state = RECORD_DONE;
    next.done_at_ms = at.now_ms;
    next.value = in->value;
    if (in->retain_ms >= 0) next.retain_ms = in->retain_ms;
    if (BUG(FINGERPRINT_DROPPED)) next.fingerprint = bytes_of(NULL, 0);
    return next;
}

struct verdict rules_publish(const struct record *stored, const struct request *in,
                             struct moment at)
{
    const struct record *cur = record_live(stored, at.now_ms);
    if (!cur) return keep(OUTCOME_LOST);
    if (BUG(REWRITE_DONE)) return put(published(cur, in, at), OUTCOME_OK);
    if (cur->state == RECORD_DONE) return repeated_or_lost(cur, in); /* R3 */
    if (!BUG(BLIND_PUBLISH) && !token_eq(&cur->token, &in->token)) return keep(OUTCOME_LOST);
    return put(published(cur, in, at), OUTCOME_OK);
}

struct verdict rules_release(const struct record *stored, const struct request *in,
                             struct moment at)
{
    const struct record *cur = record_live(stored, at.now_ms);
    if (!cur) return keep(OUTCOME_LOST);
    if (BUG(BLIND_RELEASE)) return drop(OUTCOME_OK);
    if (cur->state == RECORD_DONE) return keep(OUTCOME_LOST);
    if (!token_eq(&cur->token, &in->token)) return keep(OUTCOME_LOST);
    return drop(OUTCOME_OK);
}

struct verdict rules_renew(const struct record *stored, const struct request *in,
                           struct moment at)
{
    const struct record *cur = record_live(stored, at.now_ms);
    if (!cur) return keep(OUTCOME_LOST);
    if (cur->state == RECORD_DONE) return keep(OUTCOME_LOST);
    if (!BUG(STALE_RENEW) && !token_eq(&cur->token, &in->token)) return keep(OUTCOME_LOST);
    struct record next = *cur;
    if (in->lease_ms >= 0) next.lease_ms = in->lease_ms;
    next.lease_until_ms = at.now_ms + next.lease_ms;
    return put(next, OUTCOME_OK);
}

struct verdict rules_peek(const struct record *stored, const struct request *in,
                          struct moment at)
{
    (void)in;
    const struct record *cur = record_live(stored, at.now_ms);
    if (!cur) return keep(OUTCOME_ABSENT);
    if (cur->state == RECORD_DONE) return keep(finished(cur));
    return keep(OUTCOME_IN_PROGRESS);
}

struct verdict rules_forget(const struct record *stored, const struct request *in,
                            struct moment at)
{
    const struct record *cur = record_live(stored, at.now_ms);
    if (!cur) return stored ? drop(OUTCOME_ABSENT) : keep(OUTCOME_ABSENT);
    if (in->seen && record_version(cur) != in->seen) return keep(OUTCOME_LOST);
    if (in->force) return drop(OUTCOME_OK);
    if (cur->state == RECORD_DONE) return drop(OUTCOME_OK);
    if (lease_alive(cur, at.now_ms)) return keep(OUTCOME_IN_PROGRESS);
    return drop(OUTCOME_OK);
}

struct verdict rules_expire(const struct record *stored, const struct request *in,
                            struct moment at)
{
    (void)in;
    if (!stored) return keep(OUTCOME_ABSENT);
    if (record_live(stored, at.now_ms)) return keep(OUTCOME_OK);
    return drop(OUTCOME_ABSENT);
}

struct answer rules_answer(const struct verdict *v, const struct record *stored,
                           const struct request *in, struct moment at)
{
    const struct record *after = record_live(stored, at.now_ms);
    if (v->change == CHANGE_PUT) after = &v->next;
    if (v->change == CHANGE_DROP) after = NULL;

    struct answer a = { .outcome = v->outcome, .taken_over = v->taken_over };
    if (!after) return a;
    a.fence = after->fence;
    a.version = record_version(after);
    a.mine = token_eq(&after->token, &in->token);
    if (after->state == RECORD_PENDING && after->lease_until_ms > at.now_ms)
        a.lease_left_ms = after->lease_until_ms - at.now_ms;
    if (after->state == RECORD_DONE) a.retain_left_ms = record_gone_at_ms(after) - at.now_ms;
    /* Another fingerprint never sees the answer (C7): neither its value nor its state. */
    if (v->outcome == OUTCOME_MISMATCH) return (struct answer){ .outcome = v->outcome };
    if (after->state == RECORD_DONE) a.value = after->value;
    return a;
}
