/* store.h - how a store is plugged in.
 *
 * A store is small: a scheme, what it can do, open, close, and one of
 *   exec(batch)     plain blocking code: carries out every op of the batch as if in order, all
 *                   changes in one atomic step, and sets out or err of each. `direct` runs it
 *                   on the loop (a store that never blocks), `offload` on a thread of its own.
 *   submit/cancel   a store that is asynchronous by nature. Every op submitted is finished
 *                   exactly once, in a later turn of the loop, never inside submit.
 *
 * Rules for both (S1-S5; the conform suite checks them):
 *   S1 Each op is one atomic conditional step, decided by core/rules.
 *   S2 Leases and retention are judged by the store's own clock inside that step.
 *   S3 The fence floor is kept as durably as the records.
 *   S4 An error other than ERR_AMBIGUOUS promises that nothing was changed.
 *   S5 WATCH finishes when the version is not the one seen; spurious wake-ups are allowed, lost
 *      ones are not. A store without CAP_NOTIFY need not take WATCH.
 *
 * To add a store: a file here, a line in store.c's table, a line in tests/support/world.c and
 * in tests/conform/conform.h. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "base/clock.h"
#include "base/loop.h"
#include "base/random.h"
#include "base/trace.h"
#include "store/meter.h"
#include "store/op.h"

enum store_caps {
    CAP_CLAIMS = BIT(0),  /* the verbs of claims */
    CAP_DURABLE = BIT(1), /* survives the end of every process: may be the ledger */
    CAP_SHARED = BIT(2),  /* other processes may change it too */
    CAP_NOTIFY = BIT(3),  /* takes WATCH */
    CAP_BLOCKS = BIT(4),  /* exec() may block: needs a thread */
    CAP_RUNS = BIT(5),    /* those of runs: may be their ledger */
    CAP_BUFFER = BIT(6),  /* those of the buffer */
    CAP_GATE = BIT(7),    /* that of the gate */
    CAP_TELLS = BIT(8),   /* other processes can be told through coord */
    /* takes questions about runs and mutations as they are: it has an engine */
    CAP_CALLS = BIT(9),
    CAP_FRESH = BIT(10),   /* an ACCEPT that is fresh: claims and buffer are in one place */
    CAP_MARKERS = BIT(11), /* that of markers: there may be some in the same database */
    CAP_SPOOL = BIT(12),   /* what is accepted is in a spool, too, which takes op.at_spool */
};

/* Of one that is opened for the markers in its database alone. */
enum { MARKERS_CAPS = CAP_MARKERS | CAP_DURABLE | CAP_BLOCKS };

/* What a store gets from the shell. It outlives the store. */
struct store_env {
    struct loop *loop;
    struct clock wall;      /* for stores that judge time themselves */
    struct clock monotonic; /* as the loop's; for how long something may take */
    struct rng *rng;
    const struct trace *trace; /* may be NULL */
    bool runs;    /* they will be asked for: a connection for those who only look is worth it */
    bool later;   /* connect when something is asked, not before */
    bool markers; /* for markers alone (CAP_MARKERS): no tables of ours are made or needed */
    bool wall_rules; /* tests: a server judges by `wall`, too, so that the test can move it */
};

struct store;

typedef void store_say(void *ctx, const char *text);

/* How markers are installed. */
struct marker_settings {
    int64_t ttl_ms;     /* 0: as it is; at first, an hour */
    int64_t partitions; /* of a new table; -1: as it is; at first, none */
    bool print;         /* change nothing: say the SQL */
};

struct store_class {
    const char *scheme; /* "memory": URLs "memory:", "memory:anything" */
    const char *usage;  /* one line for `once help` and for errors */
    unsigned caps;
    int (*open)(const char *rest, const struct store_env *env, struct store **ret_store,
                struct err *reterr);
    void (*close)(struct store *); /* takes half-built stores */

    void (*exec)(struct store *, struct op **ops, size_t count);
    void (*submit)(struct store *, struct op *);
    void (*cancel)(struct store *, struct op *);

    /* Does it still do something that no caller waits for? NULL: never. */
    bool (*idle)(const struct store *);

    /* Says what it has counted, under the name of this plane. NULL: nothing. */
    void (*meters)(struct store *, const char *plane, meter_say *say, void *ctx);

    /* Brings the schema up to date, or says the SQL for it. NULL: opening does it. */
    int (*migrate)(const char *rest, const struct store_env *env, bool print, store_say *say,
                   void *ctx, struct err *reterr);

    /* CAP_MARKERS: the same for markers. */
    int (*migrate_markers)(const char *rest, const struct store_env *env,
                           const struct marker_settings *settings, store_say *say, void *ctx,
                           struct err *reterr);

    /* exec stores with CAP_NOTIFY and CAP_SHARED only; called on the thread that runs exec.
     * NULL: it cannot tell, parked watches are executed again and again. */
    int (*foreign_fd)(struct store *);     /* readable when others may have written; -1: poll */
    bool (*foreign_wrote)(struct store *); /* has anybody else written since the last call? */
};

/* A batch of fewer ops waits for more, but not longer than this, or than this part of the time that
 * the last one took. 0: never. */
struct gather {
    unsigned ops;
    int64_t us;
    unsigned part; /* 2: half of it */
};

struct store {
    const struct store_class *class;
    unsigned caps;
    unsigned lanes;    /* exec stores: how many connections to open, one thread each; 0: one */
    unsigned readers;  /* ... and so many besides, for those who only look at runs */
    unsigned sweepers; /* ... and for what takes long and nobody waits for */
    struct gather gather; /* exec stores with a thread */
    struct loop *loop;
    int64_t timeout_ms; /* how long it may take to answer; 0: it does not say */
    uint64_t epoch;     /* random at creation; another one: everything was forgotten */
    uint64_t connects;  /* exec stores: made to a server so far; written by exec() alone */
};

/* Opens "scheme:rest" and wraps it so that it takes submit. */
int store_open(const char *url, const struct store_env *env, struct store **ret_store,
               struct err *reterr);
/* Opens the bare store, as tests and wrappers need it. */
int store_open_bare(const char *url, const struct store_env *env, struct store **ret_store,
                    struct err *reterr);
/* Brings what is behind the URL up to date (or, with print, says how), and says what it did. */
int store_migrate(const char *url, const struct store_env *env, bool print, store_say *say,
                  void *ctx, struct err *reterr);
/* The same for markers. */
int store_migrate_markers(const char *url, const struct store_env *env,
                          const struct marker_settings *settings, store_say *say, void *ctx,
                          struct err *reterr);
void store_close(struct store *s); /* NULL is fine; no op may be in flight, and store_idle() */

bool store_idle(const struct store *s); /* may it be closed? */

/* What it and everything below it has counted. A tiered store says which plane. */
void store_meters(struct store *s, const char *plane, meter_say *say, void *ctx);

void store_submit(struct store *s, struct op *op);
void store_cancel(struct store *s, struct op *op); /* a hint: it still finishes exactly once */

/* Wrappers. Each owns and closes what it wraps, also when it cannot be opened. */
int direct_open(struct store *inner, const struct store_env *env, struct store **ret_store,
                struct err *reterr);
int offload_open(struct store *inner, const struct store_env *env, struct store **ret_store,
                 struct err *reterr);
int traced_open(struct store *inner, const struct store_env *env, struct store **ret_store,
                struct err *reterr);

enum { STORE_LANES_MAX = 66 };

/* Keyed ops go to the lane of their key, the rest to the first. Of all `count` lanes, the last
 * `sweepers` are for sweeping markers, the `readers` before them for those who only look at runs. Owns
 * all of them. */
struct lane_counts {
    unsigned count, readers, sweepers;
};
int lanes_open(struct store **lanes, struct lane_counts counts, const struct store_env *env,
               struct store **ret_store, struct err *reterr);

struct tiered_options {
    int64_t coord_deadline_ms; /* 100 */
    unsigned breaker_failures; /* 3 in a row open it */
    int64_t breaker_probe_ms;  /* 1000, with jitter */
    struct store *buffer; /* a store of its own for the buffer; NULL: coord, if it can be */
    struct store *spool;  /* keeps what is accepted, too, and is ours alone; NULL: none does */
};
#define TIERED_OPTIONS_INIT                                                                    \
    {                                                                                          \
        .coord_deadline_ms = 100, .breaker_failures = 3, .breaker_probe_ms = 1000              \
    }
int tiered_open(struct store *coord, struct store *ledger, const struct tiered_options *options,
                const struct store_env *env, struct store **ret_store, struct err *reterr);

extern const struct store_class memory_class, sqlite_class, redis_class, postgres_class,
    postgresql_class, remote_class, remote_tls_class;

/* For tests and the simulator: forget everything, as a flushed cache would. */
void memory_flush(struct store *memory);

#endif
