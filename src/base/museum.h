/* museum.h - real bugs of other systems, and of our own, kept behind glass.
 *
 * In a normal build BUG(x) is the constant false and the compiler removes the branch. With
 * -DONCE_MUSEUM, tests/museum turns one bug on at a time and proves that the simulator, the
 * schedules or the model catch it. To add one: a line here, `if (BUG(NAME)) ...` where it
 * lived, a line in tests/museum/museum.c that says who must catch it. */
#ifndef BASE_MUSEUM_H
#define BASE_MUSEUM_H

/* name, where it was seen, what it did */
#define MUSEUM_LIST(X)                                                                         \
    X(BLIND_RELEASE, "trigger.dev #3709", "release deletes whatever is there")                 \
    X(BLIND_PUBLISH, "guard, idempotency4j", "publish without looking at the owner")           \
    X(REWRITE_DONE, "powertools ts #5714", "a late owner overwrites a finished answer")        \
    X(CLIPPED_LEASE, "trigger.dev #4284", "the lease is clipped by the retention")             \
    X(PUBLISH_RESULT_IGNORED, "trigger.dev #4284", "a refused publish is reported as done")    \
    X(LEASE_NEVER_LAPSES, "asgi-idempotency", "a crashed owner blocks the key for ever")       \
    X(FINGERPRINT_DROPPED, "powertools ts #5705", "publish forgets the fingerprint")           \
    X(FINGERPRINT_REPLACED, "gofastr #198", "a takeover does not compare the payload")         \
    X(PROGRESS_BEFORE_MISMATCH, "idempot-js #191", "in_progress is decided before mismatch")   \
    X(BLIND_RETRY, "idempot-js #185", "an ambiguous claim is claimed anew, not re-read")       \
    X(RELEASE_BEFORE_RESULT, "Truxify #12542", "coord is told before the ledger decided")      \
    X(VANISHED_MEANS_MINE, "node-idempotency", "a waiter whose record vanished runs it")       \
    X(POLL_ERROR_CLAIMS, "trigger.dev", "a store error while waiting becomes claimed")         \
    X(COORD_GRANTS, "SETNX guards", "with coord healthy the ledger claim is skipped")          \
    X(ZERO_IS_DEFAULT, "powertools py #4759", "zero is taken for not given")                   \
    X(FENCE_RESET, "redis INCR after a flush", "the fence starts over after a release")        \
    X(EAGER_TAKEOVER, "langwatch #6511", "a slow live owner is taken over by age")             \
    X(STALE_RENEW, "ShedLock #74", "renew does not compare the owner")                         \
    X(LOST_WAKEUP, "etcd #11457 kind", "a watch does not re-check what was seen")              \
    X(WAKE_ONE_ON_PUBLISH, "condvar signal for broadcast", "publish answers one waiter only")  \
    X(SWEEP_PENDING, "margince #423 kind", "the sweep removes a record that is in flight")     \
    X(EMPTY_IS_ABSENT, "powertools py #4759 kind", "an empty value is taken for no value")     \
    X(RENEWAL_STOPS, "BullMQ #3183 kind", "the owner is alive but nobody renews")              \
    X(SHARED_SCOPE, "suna #5267", "the scope is not part of the identity")                     \
    X(GHOST_CLAIM, "our own", "coord's answer settles what the ledger may have granted")       \
    X(PUBLISH_LOOKS_LOST, "our own", "a renewal that meets the own publish reports a loss")    \
    X(COORD_KEEPS_LONGER, "our own", "coord keeps an answer longer than the ledger")           \
    X(EMPTY_PLACE, "our own", "other fingerprints take an owner's place at coord in turns")    \
    X(ZERO_RENEWED, "our own", "a lease renewed to zero is renewed without end")

enum museum_bug {
    MUSEUM_NONE,
#define MUSEUM_ENUM(name, origin, text) BUG_##name,
    MUSEUM_LIST(MUSEUM_ENUM)
#undef MUSEUM_ENUM
        MUSEUM_COUNT
};

#ifdef ONCE_MUSEUM
extern enum museum_bug museum_bug; /* defined in tests/museum */
#define BUG(name) (museum_bug == BUG_##name)
#else
#define BUG(name) 0
#endif

#endif
