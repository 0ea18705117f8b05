/* engine.h - one caller's request, from asking a store to the answer.
 *
 * The engine has no I/O, clock, thread or randomness of its own: it submits ops to one store
 * (plain, tiered, traced - it cannot tell) and is called back from the loop. All of its
 * callbacks run inside loop_turn(), never inside engine_call() or call_cancel().
 *
 * Guarantees, on top of the store's:
 *   E1 Every call is finished exactly once.
 *   E2 Waiters of a key are parked; a publish answers all of them, a release or a lapse
 *      promotes exactly one, in the order they came.
 *   E3 An answer is given only to callers who were there before the store was asked for it.
 *   E4 A failed or lost answer is asked for again with the same owner token, so it is found
 *      again if it counted; it is never turned into "claimed".
 *   E5 A held lease is renewed every third of it; its owner is told when it is lost. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/histogram.h"
#include "base/map.h"
#include "store/store.h"

struct engine;
struct call;

struct engine_config {
    int64_t value_bytes_max;
    size_t waiters_max;
    int64_t patience_ms; /* how long a failed publish, release or renew is tried again */
    int64_t sweep_ms;    /* between two sweeps; 0: never */
    int64_t markers_ms;  /* the same, of markers */
    const struct runs_config *runs; /* NULL: the defaults; copied */
};
enum { ENGINE_MARKERS_MS = 5000 }; /* for those who sweep: an engine does not by itself */
#define ENGINE_CONFIG_INIT                                                                     \
    {                                                                                          \
        .value_bytes_max = VALUE_BYTES_MAX_DEFAULT, .waiters_max = 100000,                     \
        .patience_ms = 5000, .sweep_ms = 60000                                                 \
    }

struct engine_stats {
    uint64_t outcomes[OUTCOMES + 1]; /* claims, by outcome */
    uint64_t takeovers, promoted, lost, renewals, ambiguous, swept;
    uint64_t degraded; /* answers that coord had no part in */
    uint64_t failed;   /* calls that ended without an answer, the canceled ones apart */
    uint64_t canceled;
    uint64_t mutations[OUTCOMES + 1];             /* begun, by outcome */
    uint64_t mutations_degraded, mutations_stale; /* stale: of another epoch, and dropped */
    size_t waiters, held;
    uint64_t markers_swept,
        markers_oldest_ms; /* oldest: expired so long ago, at the last sweep */
    bool markers_installed;
    struct histogram markers_batches; /* how long those took that deleted something */
    /* How long calls took that got an answer: by verb, and those that had to wait apart. */
    struct histogram times[VERBS], waits;
};

typedef void call_done(struct call *call, void *ctx);

/* Whom to tell when a lease is lost. Copied: it lives as long as the lease is held. `shell`,
 * `fn` and `ctx` are the shell's business; the engine only hands them back. */
struct owner {
    void (*lost)(const struct owner *owner, const struct token *token, uint64_t fence,
                 int64_t lease_ms, bool certain); /* NULL: nobody */
    void *shell;
    void (*fn)(void);
    void *ctx;
};

struct call_args {
    enum verb verb;
    struct key key;
    bool internal; /* a key that no caller can have */
    /* The token of a claim: all zero, and the engine makes one; else it is the caller's, who may ask
     * again with it where an answer was lost. So the engine never gives such a claim back, and
     * where it cannot tell whether it was granted, it says ERR_AMBIGUOUS. */
    struct request in;
    int64_t wait_ms;    /* claim */
    bool renew;         /* claim: keep the lease while it is held */
    struct owner owner; /* claim */
    bool all_scopes;    /* scan */
    bool wants_facts;   /* ping */
    size_t limit;       /* scan, expire */
    uint64_t seen;      /* watch */
    call_done *done;
    void *ctx;
};

int engine_open(struct store *store, const struct store_env *env,
                const struct engine_config *config, struct engine **ret_engine,
                struct err *reterr);

/* Cancels every call and stops renewing. The engine is idle once the store has given back what
 * is in flight; only then may it be freed. Does not close the store. */
void engine_stop(struct engine *e);
bool engine_idle(const struct engine *e);
void engine_free(struct engine *e); /* NULL is fine */

struct engine_stats engine_stats(const struct engine *e);

/* Checks the request before anything else happens (C9). The call is valid until `done`
 * returns. */
int engine_call(struct engine *e, const struct call_args *args, struct call **ret_call,
                struct err *reterr);
void call_cancel(struct call *call); /* `done` is still called, with ERR_CANCELED */

/* For `done`: what came of it. The op holds scan rows and stats. */
const struct err *call_error(const struct call *call); /* code 0: there is an answer */
const struct answer *call_answer(const struct call *call);
const struct token *call_token(const struct call *call);
struct op *call_op(struct call *call);
int64_t call_waited_ms(const struct call *call);

#endif
