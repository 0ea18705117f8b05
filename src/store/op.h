/* op.h - verbs as data: one request to a store, its answer, and who is told.
 *
 * Life of an op: op_new() -> fill in -> store_submit() -> the store sets `out`, or `err` ->
 * op_finish() pops the innermost frame and calls it. Between submit and finish the store owns
 * the op; afterwards its last frame does, and frees it or submits it again.
 *
 * Frames are a small stack, so that a decorator (trace, tiered) can put itself between a caller
 * and a store without allocating and without knowing either. */
#ifndef STORE_OP_H
#define STORE_OP_H

#include "base/err.h"
#include "base/list.h"
#include "core/key.h"
#include "core/rules.h"
#include "store/mutation_op.h"
#include "store/run_op.h"

/* id, name, changes the store, is about the record of a key, rule. The first eleven are of claims; those
 * of runs, the buffer and the gate are explained in run_op.h, MUTATION in mutation_op.h. */
#define VERB_LIST(X)                                                                           \
    X(VERB_CLAIM, "claim", true, true, rules_claim)                                            \
    X(VERB_PUBLISH, "publish", true, true, rules_publish)                                      \
    X(VERB_RELEASE, "release", true, true, rules_release)                                      \
    X(VERB_RENEW, "renew", true, true, rules_renew)                                            \
    X(VERB_FORGET, "forget", true, true, rules_forget)                                         \
    X(VERB_PEEK, "peek", false, true, rules_peek)                                              \
    X(VERB_WATCH, "watch", false, true, rules_peek)                                            \
    X(VERB_EXPIRE, "expire", true, false, NULL)                                                \
    X(VERB_SCAN, "scan", false, false, NULL)                                                   \
    X(VERB_STATS, "stats", false, false, NULL)                                                 \
    X(VERB_PING, "ping", false, false, NULL)                                                   \
    X(VERB_RUN_PUT, "run_put", true, false, NULL)                                              \
    X(VERB_RUN_GET, "run_get", false, false, NULL)                                             \
    X(VERB_RUN_CHANGE, "run_change", true, false, NULL)                                        \
    X(VERB_RUN_RESET, "run_reset", true, false, NULL)                                          \
    X(VERB_RUN_LEASE, "run_lease", true, false, NULL)                                          \
    X(VERB_RUN_LIST, "run_list", false, false, NULL)                                           \
    X(VERB_ACCEPT, "accept", true, true, rules_publish)                                        \
    X(VERB_ENTRY_GET, "entry_get", false, false, NULL)                                         \
    X(VERB_APPEND, "append", true, false, NULL)                                                \
    X(VERB_DRAIN_LEASE, "drain_lease", true, false, NULL)                                      \
    X(VERB_SETTLE, "settle", true, false, NULL)                                                \
    X(VERB_ENTRY_LIST, "entry_list", false, false, NULL)                                       \
    X(VERB_BUFFER_STATS, "buffer_stats", false, false, NULL)                                   \
    X(VERB_GATE, "gate", true, false, NULL)                                                    \
    X(VERB_RUN_CALL, "run_call", true, false, NULL)                                            \
    X(VERB_MUTATION, "mutation", true, false, NULL)                                            \
    X(VERB_MARKERS_SWEEP, "markers_sweep", true, false, NULL)

#define VERB_ENUM(id, name, writes, keyed, rule) id,
enum verb { VERB_LIST(VERB_ENUM) VERBS };
#undef VERB_ENUM

enum { CLAIM_VERBS = VERB_PING + 1 };

static inline bool verb_is_run(enum verb v)
{
    return v >= VERB_RUN_PUT && v <= VERB_RUN_LIST;
}
static inline bool verb_is_buffer(enum verb v)
{
    return v >= VERB_ACCEPT && v <= VERB_BUFFER_STATS;
}

struct verb_info {
    const char *name;
    bool writes; /* may change the store: needs a write transaction */
    bool keyed;  /* is about one record; `rule` decides */
    struct verdict (*rule)(const struct record *, const struct request *, struct moment);
};

extern const struct verb_info verb_info[VERBS];

/* One row of a scan. Ordered by scope, then key, bytewise. */
struct scan_row {
    struct key key; /* views into `frame` */
    uint8_t *frame;
    enum record_state state;
    uint64_t fence;
    int64_t claimed_at_ms, done_at_ms; /* store's clock; done_at_ms: DONE only */
    int64_t lease_left_ms;             /* PENDING; 0: lapsed */
    int64_t retain_left_ms;            /* DONE */
    size_t value_bytes;
    bool value_kept;
};

struct scan {
    struct scan_row *rows;
    size_t count, cap;
    bool more; /* ask again with the last row's key as `after` */
};

int scan_add(struct scan *s, const struct key *k, const struct record *r, int64_t now_ms);
void scan_clear(struct scan *s);

struct store_stats {
    uint64_t pending, lapsed, done, gone; /* gone: past retention, not swept yet */
    uint64_t bytes;                       /* memory or file */
    uint64_t fence_floor;
    int64_t now_ms; /* the store's clock */
};

/* Of markers, which are in the user's own database. */
struct marker_stats {
    bool installed;    /* false: the rest is 0 */
    bool more;         /* the sweep has left some that have expired, and may go on at once */
    size_t fits;       /* so many were too much, and none was removed: ask for these; 0: no */
    int64_t ttl_ms;    /* how long a marker counts */
    int64_t oldest_ms; /* how long ago the oldest expired one did; 0: there is none */
};

/* How many the next sweep should ask for, after one that asked for `batch` and was told this: what
 * fits, and then slowly more, up to MARKERS_BATCH_MAX. */
enum { MARKERS_BATCH_MAX = 50000, MARKERS_BATCH_STEP = 500 };
size_t markers_batch_next(size_t batch, const struct marker_stats *told);

/* What a store says of itself, for people. */
enum fact_level { FACT_OK, FACT_WARN, FACT_FAIL };

struct fact {
    enum fact_level level;
    const char *plane; /* static; "": there is only one */
    char name[24], text[160], advice[160];
};

enum { FACTS_MAX = 24 };

struct facts {
    size_t count;
    struct fact rows[FACTS_MAX];
};

struct op;
typedef void op_done(struct op *op, void *ctx);

struct op_frame {
    op_done *done;
    void *ctx;
};

enum { OP_FRAMES_MAX = 6 };

struct op {
    enum verb verb;

    /* in; key, fingerprint, frame and question point into the op itself, the value is a reference it
     * owns */
    struct key key;        /* SCAN: start after this key; both may be empty: from the start */
    bool all_scopes;       /* SCAN: every scope, not only the key's */
    struct bytes frame;    /* key_frame() of the key, for keyed verbs */
    struct bytes question; /* fingerprint, with its length, and frame: who asks the same */
    struct request in;
    uint64_t seen; /* WATCH: finish when the record's version is not this any more */
    size_t
        limit; /* EXPIRE, SCAN, MARKERS_SWEEP: at most so many rows; of markers, 0: only look */
    bool wants_facts; /* PING: what does it say of itself? */
    bool waits;       /* CLAIM: whoever asks will watch, if somebody is on it */
    bool coord_only;  /* by its scope (KEY_COORD_ONLY): the ledger is not asked */
    bool at_spool;    /* verbs of the buffer: not the buffer is asked but the spool behind it */
    bool routine; /* EXPIRE: nobody asked for it, so records that go by themselves may stay */

    union { /* the submitter's; see run_op.h, mutation_op.h */
        struct run_ask *run;
        struct buffer_ask *buffer;
        struct gate_ask *gate;
        struct run_call_ask *call;
        struct mutation_ask *mutation;
    };
    struct bytes
        lane; /* without a key: those with the same go the same way, in order; a view of the
                        * submitter's; empty: any */

    /* out */
    struct err err;    /* code 0: `out` holds an answer */
    struct answer out; /* its value is a reference the op owns */
    bool changed;      /* the record is no longer what it was */
    bool answers;      /* WATCH: `out` is what a claim with this fingerprint would be told */
    size_t count;      /* EXPIRE, MARKERS_SWEEP: rows removed */
    struct scan scan;
    struct store_stats stats;
    struct marker_stats markers; /* MARKERS_SWEEP */
    struct facts *facts;         /* NULL: none */
    uint64_t epoch;              /* of the store that answered; another one: it has forgotten */
    /* CLAIM that waits and met somebody: if this is given to the WATCH that follows, and the store has
     * heard nothing since, that need not look again. 0: it has to. */
    uint64_t heard;

    /* the store's while it owns the op */
    struct link link;
    bool canceled, parked;   /* parked: a WATCH whose record is still what was seen */
    bool polled;             /* a WATCH that is executed again, just in case */
    bool degraded, at_coord; /* tiered: coord failed; coord granted the claim, has the watch */
    bool refused;            /* tiered: by itself, and about to finish */
    void *step;              /* tiered: ready for what coord has to be told */
    int64_t watch_id;        /* remote: of a WATCH, a RUN_CALL; 0: not sent, -1: over */
    struct loop *loop;
    int64_t submitted_ms, submitted_us; /* us: for measuring */
    struct op_frame frames[OP_FRAMES_MAX];
    unsigned depth;

    uint8_t memory[];
};

/* Copies key and fingerprint into the op. NULL: out of memory. `in` may be NULL; its value is
 * referenced, not copied. */
struct op *op_new(enum verb verb, const struct key *key, const struct request *in);
struct op *op_copy(const struct op *op, enum verb verb); /* same key and request, other verb */
void op_free(struct op *op);                             /* NULL is fine */
bool op_may_be_late(const struct op *op); /* nobody waits for it: others go first */

void op_push(struct op *op, op_done *done, void *ctx);

/* Innermost frame first. Only from inside loop_turn(), never from inside submit. */
void op_finish(struct op *op);
void ops_finish(struct list *ops); /* those in it now; what comes meanwhile stays */
void op_fail(struct op *op, int code, const char *text); /* sets err, then op_finish() */

/* Forgets the previous answer; called before an op is (re)executed. */
void op_clear_answer(struct op *op);

/* Says something of the store that answers a PING with wants_facts; dropped if there is no room.
 * `advice` may be NULL. */
void fact_add(struct op *op, enum fact_level level, const char *name, const char *advice,
              const char *fmt, ...) __attribute__((format(printf, 5, 6)));
void facts_take(struct op *to, struct op *from, const char *plane); /* moves them */

/* Applies the rule of a keyed verb to `stored`; sets out (with its own reference to the value)
 * and returns the verdict for the store to carry out. `changed` is set by the caller once the
 * change is made. */
struct verdict op_decide(struct op *op, const struct record *stored, struct moment at);

#endif
