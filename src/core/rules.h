/* rules.h - what may happen to a record. One pure function per verb:
 *
 *     (stored record, request, moment) -> (outcome, change, next record)
 *
 * No I/O, no clock, no allocation. Memory and SQLite call them; the Lua and SQL of the other
 * stores are translations, kept honest by the differential test. `stored` is NULL when there is
 * no record. Views in `next` point into `stored` or the request: copy before either goes
 * away. */
#ifndef CORE_RULES_H
#define CORE_RULES_H

#include "core/outcome.h"
#include "core/record.h"

struct request {
    struct token token;       /* claim: the new owner's; peek: all zero, or who asks */
    int64_t lease_ms;         /* claim; renew: negative means as granted */
    int64_t retain_ms;        /* claim; publish: negative means as claimed */
    struct bytes fingerprint; /* claim; empty is a fingerprint like any other */
    struct blob *value;       /* publish; NULL: done, but the answer is not kept */
    uint64_t seen;            /* forget: only if its version is this; 0: whatever it is */
    /* Coord copies only, after the ledger has decided: forget drops it even if somebody is on
     * it, claim takes the place of whatever is there. */
    bool force;
};

struct moment {
    int64_t now_ms;       /* by the clock of the plane that stores the record */
    uint64_t fence_floor; /* no fence at or below it may be given out: it was used before */
};

enum change { CHANGE_NONE, CHANGE_PUT, CHANGE_DROP };

struct verdict {
    enum outcome outcome;
    enum change change;
    bool taken_over;    /* claimed from an owner whose lease had lapsed */
    struct record next; /* with CHANGE_PUT */
};

struct verdict rules_claim(const struct record *stored, const struct request *, struct moment);
struct verdict rules_publish(const struct record *stored, const struct request *,
                             struct moment);
struct verdict rules_release(const struct record *stored, const struct request *,
                             struct moment);
struct verdict rules_renew(const struct record *stored, const struct request *, struct moment);
struct verdict rules_peek(const struct record *stored, const struct request *, struct moment);
struct verdict rules_forget(const struct record *stored, const struct request *, struct moment);
struct verdict rules_expire(const struct record *stored, const struct request *, struct moment);

/* What the caller is told. The value is a borrowed pointer: take a reference to keep it. */
struct answer {
    enum outcome outcome;
    bool taken_over;
    bool mine;              /* the token in the request owns, or published, the record */
    bool degraded;          /* coord was not used */
    uint64_t fence;         /* 0: there is no record */
    uint64_t version;       /* see record_version() */
    int64_t lease_left_ms;  /* pending: until the lease lapses, 0 if it has */
    int64_t retain_left_ms; /* done: until retention ends */
    struct blob *value;
};

struct answer rules_answer(const struct verdict *, const struct record *stored,
                           const struct request *, struct moment);

#endif
