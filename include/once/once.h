/* once.h - call_once for distributed systems.
 *
 * Same key, same answer, always: across retries, bursts, crashes and processes.
 *
 *     static int charge(void *ctx, const struct once_lease *lease, struct once_bytes
 *     *ret_value) { ... run the side effect, set *ret_value ... return 0; }
 *
 *     struct once *o;
 *     struct once_answer answer;
 *     struct once_error error;
 *     if (once_open(NULL, &o, &error) < 0) ...           // memory + one SQLite file
 *     if (once_do(o, "orders", "o-17", charge, &order, &answer) < 0) ...
 *     // answer.value is the result of the one call that ran, now or a week ago
 *     once_answer_clear(&answer);
 *     once_close(o);
 *
 * RETURN VALUES. Every function that can fail returns 0 or a negative ONCE_E... code. 0 means
 * "there is an answer"; which one is in answer.outcome. A negative code means "there is no
 * answer"; only after ONCE_EAMBIGUOUS may anything have been changed. Outputs are untouched on
 * failure, except answer.error, which says in words what to do.
 *
 * OWNERSHIP. Everything passed in is copied before the call returns; what an answer points to
 * belongs to the answer until once_answer_clear(). A token is a capability: whoever has it can
 * publish. Keep it out of logs.
 *
 * THREADS. A handle opened without ONCE_HOSTED may be used from any number of threads; calls
 * block. It runs one thread of its own that renews leases while your code works, one for the
 * SQLite file, and one for on_lost callbacks if a claim asks for them. A handle opened with
 * ONCE_HOSTED starts only the one for the file, belongs to one thread and is driven by that
 * thread's event loop: once_fd(), once_timeout_ms(), once_process(). Either looks up the name of a
 * server on a thread that ends with the lookup.
 *
 * TIME. All durations are milliseconds. Zero means zero. Negative is an error.
 *
 * ABI. Structures that you fill in start with their size, set by the ..._INIT macros: always
 * use those. Fields are only ever added at the end. */
#ifndef ONCE_ONCE_H
#define ONCE_ONCE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ONCE_VERSION_MAJOR 0
#define ONCE_VERSION_MINOR 1
#define ONCE_VERSION_PATCH 0

#if defined(__GNUC__)
#define ONCE_API __attribute__((visibility("default")))
#else
#define ONCE_API
#endif

/* ---- outcomes and errors ---- */

enum once_outcome {
    ONCE_CLAIMED = 1,      /* you own it: token, fence, lease_ms */
    ONCE_CACHED = 2,       /* the answer: value */
    ONCE_IN_PROGRESS = 3,  /* somebody is on it, you asked not to wait; safe to retry */
    ONCE_TIMED_OUT = 4,    /* you waited, still no answer; safe to retry */
    ONCE_ALREADY_DONE = 5, /* it was done, the answer was not kept; do not retry */
    ONCE_MISMATCH = 6,     /* same key, other fingerprint */
    ONCE_LOST = 7,     /* not yours any more; value is the canonical answer if there is one */
    ONCE_OK = 8,       /* published, released, renewed, forgotten */
    ONCE_ABSENT = 9,   /* peek, forget: there is no record */
    ONCE_REFUSED = 10, /* runs: what is there does not allow it; error says why */
    ONCE_CONFLICT = 11 /* runs: it has changed since you looked; look again */
};

enum once_error_code {
    ONCE_EINVAL = -1,       /* the request is not valid; error says what to change */
    ONCE_ELIMIT = -2,       /* a limit would be exceeded */
    ONCE_ENOMEM = -3,       /* out of memory; nothing was changed */
    ONCE_EUNAVAILABLE = -4, /* the ledger cannot be reached; nothing was done */
    ONCE_EAMBIGUOUS = -5,   /* no answer; the change may have been made */
    ONCE_ECORRUPT = -6,     /* stored data does not make sense */
    ONCE_EVERSION = -7,     /* the store was written by a newer version */
    ONCE_ECANCELED = -8,    /* canceled, or the handle is closing */
    ONCE_EUNSUPPORTED = -9  /* this store or mode cannot do that */
};

ONCE_API const char *once_outcome_name(int outcome); /* "claimed"; "unknown" if there is none */
ONCE_API const char *once_outcome_text(int outcome);
ONCE_API int once_outcome_exit_status(int outcome); /* of the command-line tool */
ONCE_API int once_outcome_http_status(int outcome);
ONCE_API const char *once_strerror(int code);
/* Is repeating the same call safe and useful? */
ONCE_API int once_retryable(int outcome_or_error);
ONCE_API const char *once_version(void); /* "0.1.0" */

struct once_error {
    int code;
    char text[188];
};

/* ---- bytes ---- */

struct once_bytes {
    const void *data;
    size_t len;
};

ONCE_API struct once_bytes once_str(const char *text);
ONCE_API struct once_bytes once_bytes(const void *data, size_t len);

/* ---- opening ---- */

#define ONCE_HOSTED 1u    /* no thread for renewals: the caller's loop drives the handle */
#define ONCE_EPHEMERAL 2u /* as ledger "none": only as durable as coord, and answers say so */
#define ONCE_RUNS 4u      /* the handle is used for runs: opens their buffer, too */
/* The handle is for the markers in the ledger's database alone, once_markers() and
 * once_sweep_markers(): the ledger's own tables are neither made nor needed, and coord is not
 * opened. */
#define ONCE_MARKERS 8u

/* Something happened that an operator may want to see. Scope and key are the caller's own
 * words: hash them before they reach a log. Called from inside once_ functions or, without
 * ONCE_HOSTED, from the handle's own thread; it may not call once_ functions. */
struct once_event {
    const char *name; /* "takeover", "lost", "promoted", "degraded", "swept", ... */
    const char *text; /* static, may be NULL */
    struct once_bytes scope, key;
    int64_t number;
    const char *detail; /* a sentence, as long as the call; may be NULL */
};

struct once_config {
    size_t size;
    const char *ledger;   /* "sqlite:PATH", "postgres://..."; NULL: data_dir/once.db; "none" */
    const char *coord;    /* "memory:", "redis://..."; NULL: "memory:"; "none" */
    const char *data_dir; /* NULL: "." ; used where ledger is NULL, created if missing */
    unsigned flags;
    int64_t value_bytes_max; /* 1 MiB */
    int64_t waiters_max; /* 100,000 in this handle; more are not parked but told in_progress */
    int64_t patience_ms; /* 5,000: how long a publish or release is tried again by itself */
    int64_t sweep_ms;    /* 60,000 between two sweeps of what is past retention; 0: never */
    void (*on_event)(void *ctx, const struct once_event *event);
    void *on_event_ctx;
    /* "once://[token@]host[:port]", "once:///path/of/the.sock", "onces://..." with TLS: through a
     * daemon (once serve), which has the planes; ledger, coord and data_dir are left out then. NULL:
     * without one. */
    const char *url;
};

#define ONCE_CONFIG_INIT                                                                       \
    {                                                                                          \
        .size = sizeof(struct once_config), .value_bytes_max = 1048576, .waiters_max = 100000, \
        .patience_ms = 5000, .sweep_ms = 60000                                                 \
    }

struct once;

/* config NULL: the defaults. */
ONCE_API int once_open(const struct once_config *config, struct once **ret_once,
                       struct once_error *reterr);

/* Ends every call with ONCE_ECANCELED and waits for what is on its way to the disk. Claims that
 * are still owned are left to lapse. No other thread may use the handle any more. NULL is
 * fine. */
ONCE_API void once_close(struct once *o);

/* ---- claims ---- */

/* What owning a key means: show the token to publish, the fence to whatever you write to. */
struct once_lease {
    char token[33]; /* 128 random bits in hex */
    uint64_t fence; /* strictly increasing per key: let the resource refuse smaller ones */
    int64_t lease_ms;
};

/* The lease is no longer yours: certain is 1 if the store said so, 0 if it could not be renewed
 * for as long as it lasts (that may be followed by a certain one). Stop the work if you can; a
 * publish may still be tried. With ONCE_HOSTED it is called from once_process(); otherwise on a
 * thread of the handle's that does nothing else, and may call any once_ function but
 * once_close(). */
typedef void once_lost_fn(void *ctx, const struct once_lease *lease, int certain);

#define ONCE_NO_RENEW 1u /* once_claim.flags: do not renew this lease for me */

struct once_claim {
    size_t size;
    struct once_bytes scope;       /* 1-128 bytes of [A-Za-z0-9._:/-] */
    struct once_bytes key;         /* 1-512 bytes of UTF-8 without control characters */
    struct once_bytes fingerprint; /* of the payload, up to 64 bytes; empty is one, too */
    int64_t lease_ms;  /* 30,000; renewed every third of it while the handle lives */
    int64_t wait_ms;   /* 5,000 */
    int64_t retain_ms; /* 86,400,000 from the publish on */
    unsigned flags;
    once_lost_fn *on_lost; /* may be NULL */
    void *on_lost_ctx;
};

#define ONCE_CLAIM_INIT                                                                        \
    {                                                                                          \
        .size = sizeof(struct once_claim), .lease_ms = 30000, .wait_ms = 5000,                 \
        .retain_ms = 86400000                                                                  \
    }

struct once_answer {
    int outcome;             /* 0 if there is no answer */
    struct once_lease lease; /* CLAIMED */
    struct once_bytes value; /* CACHED, and LOST where the answer is known */
    int has_value;           /* an empty value is a value */
    uint64_t fence;          /* of the record, where there is one */
    int64_t lease_left_ms;   /* IN_PROGRESS, TIMED_OUT: of the current owner, as last seen */
    int64_t retain_left_ms;  /* CACHED, ALREADY_DONE */
    int64_t waited_ms;       /* how long this call took on the handle's clock */
    int taken_over;          /* CLAIMED: from an owner whose lease had lapsed */
    int degraded;            /* coord was not used */
    int durable;             /* 0: with ONCE_EPHEMERAL, or by a daemon without a ledger */
    struct once_error error; /* where the call failed */
    void *owner;             /* internal */
    uint64_t reserved[4];
};

/* Frees what the answer holds; it may be cleared twice, and when the call failed. */
ONCE_API void once_answer_clear(struct once_answer *answer);

/* CLAIMED, CACHED, IN_PROGRESS, TIMED_OUT, ALREADY_DONE, MISMATCH */
ONCE_API int once_claim(struct once *o, const struct once_claim *in,
                        struct once_answer *ret_answer);

/* Names one claim: who changes it, by its token. */
struct once_owned {
    size_t size;
    struct once_bytes scope, key;
    const char *token;       /* as given with CLAIMED; NULL for peek and forget */
    struct once_bytes value; /* publish */
    int omit_value;          /* publish: it was done, but the answer is not kept */
    int64_t lease_ms;        /* renew; ONCE_AS_GRANTED: the length that was granted */
};

#define ONCE_AS_GRANTED (-1)
#define ONCE_OWNED_INIT                                                                        \
    {                                                                                          \
        .size = sizeof(struct once_owned), .lease_ms = ONCE_AS_GRANTED                         \
    }

/* OK, LOST. Idempotent for the same token and value. */
ONCE_API int once_publish(struct once *o, const struct once_owned *in,
                          struct once_answer *ret_answer);
/* OK, LOST. The next waiter, if any, is promoted. */
ONCE_API int once_release(struct once *o, const struct once_owned *in,
                          struct once_answer *ret_answer);
/* OK, LOST. Leases claimed through this handle are renewed without being asked. */
ONCE_API int once_renew(struct once *o, const struct once_owned *in,
                        struct once_answer *ret_answer);
/* CACHED, ALREADY_DONE, IN_PROGRESS, ABSENT. Changes nothing. */
ONCE_API int once_peek(struct once *o, const struct once_owned *in,
                       struct once_answer *ret_answer);
/* OK, ABSENT, IN_PROGRESS (a key is never taken from a live owner). */
ONCE_API int once_forget(struct once *o, const struct once_owned *in,
                         struct once_answer *ret_answer);

/* ---- once_do ---- */

/* Runs on the calling thread while the lease is renewed. Return 0 and set *ret_value to publish
 * it (copied before the function's memory can go away: it must stay valid until once_do
 * returns); any other value to release the key, so that a retry can run. */
typedef int once_fn(void *ctx, const struct once_lease *lease, struct once_bytes *ret_value);

/* Claims, runs fn if this is the caller that may, publishes or releases.
 *   CLAIMED       fn ran here and failed: the key was released, *answer.lease was its lease
 *   OK            fn ran here; value is what it returned and what everybody gets from now on
 *   CACHED        fn ran somewhere else, or earlier; value is its answer
 *   LOST          fn ran here but too late; value is the canonical answer if there is one
 *   others        as once_claim(): fn did not run
 * A value over the handle's limit is not kept: this caller gets it, others ALREADY_DONE. */
ONCE_API int once_do(struct once *o, const char *scope, const char *key, once_fn *fn, void *ctx,
                     struct once_answer *ret_answer);
ONCE_API int once_do_with(struct once *o, const struct once_claim *in, once_fn *fn, void *ctx,
                          struct once_answer *ret_answer);

/* ---- mutations: a change of your own database, once per request ----
 *
 *     static int use_item(void *ctx, struct once_db db, struct once_bytes *ret_response)
 *     { ... statements on db.pg, set *ret_response ... return 0; }
 *
 *     struct once_mutation in = ONCE_MUTATION_INIT;
 *     struct once_mutation_answer answer;
 *     struct once_db db = { .pg = conn };             // PGconn *, or .sqlite: sqlite3 *
 *     in.user = once_str("user-1");
 *     in.request = once_str("req-9");                 // the client made it, and retries with it
 *     in.method = once_str("UseItem");
 *     if (once_mutate(o, db, &in, use_item, &item, &answer) < 0) ...
 *     // ONCE_OK, ONCE_CACHED: answer.value is the response
 *     once_mutation_answer_clear(&answer);
 *
 * A marker in the same transaction decides, in the table that `once migrate --mutations` installs into
 * your database. The handle is only for speed: its coord keeps responses for retries. Calls block for
 * as long as your connection lets them, and keep nothing in its session. */

struct pg_conn; /* libpq's PGconn */
struct sqlite3;

/* Your connection: one of the two. */
struct once_db {
    struct pg_conn *pg;
    struct sqlite3 *sqlite;
};

struct once_mutation {
    size_t size;
    struct once_bytes user, request; /* 1-256 bytes of UTF-8 without control characters each */
    struct once_bytes method;        /* up to 128 bytes; another one is ONCE_MISMATCH */
    struct once_bytes fingerprint;   /* of the payload, up to 64 bytes; the same */
    int64_t lock_ms; /* 1,000: how long what is undecided is waited for: a transaction with this
                      * request, a batch or a sweep that has its marker */
    int64_t lease_ms; /* 30,000: how long coord tells others that this one is on it */
    /* "default": services that share a coord, and not a database, should each have another one. */
    struct once_bytes env;
};

#define ONCE_MUTATION_INIT                                                                     \
    {                                                                                          \
        .size = sizeof(struct once_mutation), .lock_ms = 1000, .lease_ms = 30000               \
    }

struct once_mutation_answer {
    int outcome;             /* 0 if there is no answer */
    struct once_bytes value; /* OK, CACHED: the response; ALREADY_DONE: what the marker kept */
    int has_value;           /* an empty value is a value */
    int in_database;         /* the database said so, not coord */
    int degraded;            /* coord was not used */
    struct once_error error; /* where the call failed, or why it was rolled back */
    void *owner;             /* internal */
    uint64_t reserved[4];
};

/* Frees what the answer holds; it may be cleared twice, and when the call failed. */
ONCE_API void once_mutation_answer_clear(struct once_mutation_answer *answer);

/* The first statement of your own transaction (READ COMMITTED; SQLite: BEGIN IMMEDIATE).
 *   CLAIMED       this transaction is the one: go on, and commit
 *   ALREADY_DONE  it was committed before: roll back, do not retry, read again
 *   MISMATCH      the request was used for something else: roll back, do not retry
 *   IN_PROGRESS   another transaction has it: roll back, retry in a new one */
ONCE_API int once_mutation_begin(struct once_db db, const struct once_mutation *in,
                                 struct once_mutation_answer *ret_answer);
/* Later in the same transaction: up to 8,192 bytes that ALREADY_DONE brings with it. */
ONCE_API int once_mutation_finish(struct once_db db, const struct once_mutation *in,
                                  struct once_bytes outcome, struct once_error *reterr);

/* Runs inside the transaction, on its connection, which it must neither commit nor roll back. Return
 * 0 to commit, and set *ret_response (copied before once_mutate() returns); any other value to roll
 * back. */
typedef int once_mutation_fn(void *ctx, struct once_db db, struct once_bytes *ret_response);

/* The whole of it: the replay cache, BEGIN, the marker, fn, COMMIT, the response kept for retries; up to
 * 8,192 bytes of it in the marker, too, up to value_bytes_max at coord.
 *   OK            fn ran here and was committed; value is its response
 *   CACHED        it was done before; value is the response
 *   ALREADY_DONE  it was done before; value is the response if the marker has it
 *   IN_PROGRESS   somebody is on it; in_database says who knows. Safe to retry
 *   MISMATCH      the request was used for something else: do not retry
 *   CLAIMED       fn failed, or the transaction did: rolled back, nothing has happened, error says why
 * The connection has no transaction, query, COPY or pipeline under way. An empty request is an
 * internal mutation, that pays for nothing: BEGIN, fn, COMMIT. `o` may be NULL: without a replay
 * cache. A COMMIT whose answer was lost is looked up, on a connection that PQreset() opens again:
 * ONCE_EUNAVAILABLE: it did not happen; ONCE_EAMBIGUOUS: that could not be found out, or not any
 * more, because fn took longer than a marker counts. */
ONCE_API int once_mutate(struct once *o, struct once_db db, const struct once_mutation *in,
                         once_mutation_fn *fn, void *ctx,
                         struct once_mutation_answer *ret_answer);

/* Compare-and-set: fn reads a version, writes "where version = ..." and returns ONCE_VERSION_LOST if
 * that met no row, to be called again after a pause that grows; anything else is returned as it is.
 * `tries` at most, from 1; attempts are counted from 0. */
#define ONCE_VERSION_LOST 1
typedef int once_version_fn(void *ctx, int attempt);
ONCE_API int once_with_version_retry(int tries, once_version_fn *fn, void *ctx);

/* ---- runs: work that is triggered here and done by whoever works on its queue ----
 *
 *     struct once_config config = ONCE_CONFIG_INIT;
 *     struct once_trigger in = ONCE_TRIGGER_INIT;
 *     struct once_run_answer answer;
 *     config.flags = ONCE_RUNS;                // without it, and without a url: refused
 *     if (once_open(&config, &o, &error) < 0) ...
 *     in.task = once_str("send-receipt");
 *     in.payload = once_str("{\"order\": \"o-17\"}");
 *     in.key = once_str("o-17");               // same key, same run
 *     if (once_trigger(o, &in, &answer) < 0) ...
 *     // answer.run->id; ONCE_OK: created, ONCE_CACHED: it was there
 *     once_run_answer_clear(&answer);
 *
 * Of a burst, what is too much for the ledger waits in a buffer, and counts as a run like any other.
 * A handle that stays open moves it into the ledger by itself, and so does every daemon; what is
 * there when the last of them closes stays there for the next one.
 *
 * A worker leases runs of a queue, shows the token of each to heartbeat while it works, and to
 * complete or fail. Nobody does that for it: a lease that is not extended lapses, and the run is
 * handed to the next worker.
 *
 *   trigger --> DELAYED/QUEUED --lease--> EXECUTING --complete--> COMPLETED
 *                 ^    |                    | |  '--fail, no attempts left--> FAILED
 *                 |    '------cancel--------|-|--> CANCELED
 *                 '--fail, attempts left----' '--lease lapses--> the next lease, fence + 1 */

enum once_run_status {
    ONCE_RUN_QUEUED = 1,
    ONCE_RUN_EXECUTING = 2,
    ONCE_RUN_COMPLETED = 3, /* this one and those below are final */
    ONCE_RUN_FAILED = 4,
    ONCE_RUN_CANCELED = 5,
    ONCE_RUN_DELAYED = 6 /* queued, and its time has not come */
};

ONCE_API const char *once_run_status_name(
    int status); /* "QUEUED"; "unknown" if there is none */

/* Times are milliseconds since 1970; 0: that has not happened. Empty bytes: there is none. */
struct once_run {
    char id[31];           /* "run_" and 26 digits and letters, ordered by time */
    char canonical_id[31]; /* found by an alias: the id that counts; else empty */
    int status;            /* enum once_run_status */
    const char *status_name;
    struct once_bytes env, task, queue, ordering_key;
    struct once_bytes payload; /* JSON, byte for byte as it came */
    struct once_bytes key;
    int key_held; /* the key leads to this run, until key_until_ms */
    int64_t key_until_ms;
    const struct once_bytes *tags;
    size_t tag_count;
    struct once_bytes metadata; /* a JSON object */
    uint64_t metadata_version;
    struct once_bytes output; /* COMPLETED: JSON */
    struct once_bytes error;  /* of the last attempt that failed: JSON */
    int64_t created_at_ms, delay_until_ms, available_at_ms, started_at_ms, finished_at_ms;
    uint32_t attempts, attempts_max; /* attempts counts the current one, too */
    uint32_t stalls;                 /* leases that lapsed; they are not attempts */
    char token[33];                  /* answers of once_run_lease() only */
    uint64_t fence; /* of the last lease: let the resource refuse smaller ones */
    int64_t lease_ms, lease_until_ms;
};

struct once_run_answer {
    int outcome;                        /* 0 if there is no answer */
    const char *reason;                 /* REFUSED, CONFLICT: why; NULL: there is none */
    const struct once_run *run;         /* the first one; NULL: there is none */
    const struct once_run *const *runs; /* list, lease: all of them */
    size_t count;
    char next[31];     /* list: give it as `before` for the next page; empty: this is all */
    int buffered;      /* the run is not in the ledger yet; nothing else tells */
    int degraded;      /* coord was not used */
    int64_t waited_ms; /* how long this call took on the handle's clock */
    struct once_error error; /* where the call failed */
    void *owner;             /* internal */
    uint64_t reserved[4];
};

/* Frees what the answer holds; it may be cleared twice, and when the call failed. */
ONCE_API void once_run_answer_clear(struct once_run_answer *answer);

#define ONCE_RETURN_MISMATCH 1u /* once_trigger.flags: another payload is CACHED, too */

struct once_trigger {
    size_t size;
    struct once_bytes env;     /* up to 64 bytes as in a scope; empty: "default" */
    struct once_bytes task;    /* 1-128 bytes of [A-Za-z0-9._:/-] */
    struct once_bytes payload; /* JSON; may be empty */
    struct once_bytes key;     /* 1-512 bytes, as of a claim; data NULL: always a new run */
    struct once_bytes queue;   /* empty: the task */
    struct once_bytes ordering_key; /* runs of one are done one at a time, in order; or NULL */
    struct once_bytes metadata;     /* a JSON object */
    const struct once_bytes *tags;  /* up to 10, each up to 128 bytes */
    size_t tag_count;
    const char *id;         /* of the caller's making, to repeat the call safely; NULL: made */
    int64_t key_ms;         /* 30 days: how long the key leads to this run */
    int64_t delay_ms;       /* 0: at once */
    int64_t delay_until_ms; /* in its place: since 1970; 0: delay_ms counts */
    int64_t wait_ms;        /* 5,000: for somebody who is triggering the same key */
    uint32_t attempts_max;  /* 3 */
    unsigned flags;
};

#define ONCE_TRIGGER_INIT                                                                      \
    {                                                                                          \
        .size = sizeof(struct once_trigger), .key_ms = 2592000000, .wait_ms = 5000,            \
        .attempts_max = 3                                                                      \
    }

/* OK: created; CACHED: the key, or the id, leads to a run; MISMATCH: to one of another payload;
 * TIMED_OUT. A key whose run has FAILED, or whose time is over, makes a new run. A key or an ordering
 * key that was set and is empty, once_str(""), is ONCE_EINVAL: none is what ONCE_TRIGGER_INIT has, or
 * once_str(NULL). */
ONCE_API int once_trigger(struct once *o, const struct once_trigger *in,
                          struct once_run_answer *ret_answer);

/* Names one run, and what is to be done to it. */
struct once_run_args {
    size_t size;
    struct once_bytes env;         /* empty: "default". A run of another one is ABSENT */
    const char *id;                /* all but once_key_reset() */
    struct once_bytes task, key;   /* once_key_reset() */
    const char *token;             /* complete, fail, heartbeat, return: as leased */
    struct once_bytes value;       /* what each function says; JSON, may be empty */
    const struct once_bytes *tags; /* add_tags */
    size_t tag_count;
    uint64_t version; /* set_metadata: what it has to be now; ONCE_ANY_VERSION */
    int64_t at_ms;    /* reschedule: the new time, since 1970 */
    int64_t lease_ms; /* heartbeat; ONCE_AS_GRANTED: the length that was granted */
    int64_t retry_ms; /* fail: the next attempt is due after; ONCE_BACK_OFF: 1 s, doubled */
};

#define ONCE_ANY_VERSION UINT64_MAX
#define ONCE_BACK_OFF (-1)
#define ONCE_RUN_ARGS_INIT                                                                     \
    {                                                                                          \
        .size = sizeof(struct once_run_args), .version = ONCE_ANY_VERSION,                     \
        .lease_ms = ONCE_AS_GRANTED, .retry_ms = ONCE_BACK_OFF                                 \
    }

/* OK, ABSENT. */
ONCE_API int once_run_get(struct once *o, const struct once_run_args *in,
                          struct once_run_answer *ret_answer);

/* Those that change a run answer OK, ABSENT, REFUSED, or TIMED_OUT (it is just being written to the
 * ledger, for too long; safe to retry). answer.run is the run as it is now.
 *
 * Adds what is missing of `tags`; REFUSED: it would have more than 10. */
ONCE_API int once_run_add_tags(struct once *o, const struct once_run_args *in,
                               struct once_run_answer *ret_answer);
/* value: the new object. CONFLICT: the metadata is not of this `version` any more. */
ONCE_API int once_run_set_metadata(struct once *o, const struct once_run_args *in,
                                   struct once_run_answer *ret_answer);
/* value: [{"type": "increment"|"append"|"set"|"remove", "key": "k", "value": v}, ...]; all or none.
 * Any number of callers may do so at once: all of them count. */
ONCE_API int once_run_operate(struct once *o, const struct once_run_args *in,
                              struct once_run_answer *ret_answer);
/* REFUSED unless it is DELAYED. */
ONCE_API int once_run_reschedule(struct once *o, const struct once_run_args *in,
                                 struct once_run_answer *ret_answer);
/* value: a reason. OK, too, where it is final already: answer.run->status tells. */
ONCE_API int once_run_cancel(struct once *o, const struct once_run_args *in,
                             struct once_run_answer *ret_answer);
/* A new run like that one, without its key. As once_trigger(), or ABSENT. */
ONCE_API int once_run_replay(struct once *o, const struct once_run_args *in,
                             struct once_run_answer *ret_answer);
/* The key leads nowhere from now on: the next trigger makes a new run. OK: run had it; ABSENT. */
ONCE_API int once_key_reset(struct once *o, const struct once_run_args *in,
                            struct once_run_answer *ret_answer);

struct once_run_query {
    size_t size;
    struct once_bytes env;              /* empty: "default" */
    struct once_bytes task, queue, tag; /* only those; empty: all */
    unsigned statuses;                  /* bits, 1u << ONCE_RUN_FAILED; 0: all */
    const char *before;                 /* answer.next of the page before; NULL: the newest */
    size_t limit;                       /* 100; at most 1,000 */
};

#define ONCE_RUN_QUERY_INIT                                                                    \
    {                                                                                          \
        .size = sizeof(struct once_run_query), .limit = 100                                    \
    }

/* OK: runs, the newest first. A page may have fewer than asked for, also none: next tells. */
ONCE_API int once_run_list(struct once *o, const struct once_run_query *in,
                           struct once_run_answer *ret_answer);

struct once_run_lease {
    size_t size;
    struct once_bytes env;   /* empty: "default" */
    struct once_bytes queue; /* 1-128 bytes of [A-Za-z0-9._:/-] */
    size_t count;            /* 1: at most so many; up to 1,000 */
    int64_t lease_ms;        /* 30,000; 1 at least */
    int64_t wait_ms;         /* 5,000: for the first of them to be due */
};

#define ONCE_RUN_LEASE_INIT                                                                    \
    {                                                                                          \
        .size = sizeof(struct once_run_lease), .count = 1, .lease_ms = 30000, .wait_ms = 5000  \
    }

/* OK: runs, perhaps none, each with its token, fence and lease. */
ONCE_API int once_run_lease(struct once *o, const struct once_run_lease *in,
                            struct once_run_answer *ret_answer);

/* What a worker says of a run that it has leased; LOST: it is somebody else's by now, or was
 * canceled: stop. A lease that has lapsed counts until somebody else has it.
 *
 * value: the output. */
ONCE_API int once_run_complete(struct once *o, const struct once_run_args *in,
                               struct once_run_answer *ret_answer);
/* value: the error. It is tried again after retry_ms; without attempts left it is FAILED. */
ONCE_API int once_run_fail(struct once *o, const struct once_run_args *in,
                           struct once_run_answer *ret_answer);
/* The lease lasts for lease_ms from now on. Every third of it is often enough. */
ONCE_API int once_run_heartbeat(struct once *o, const struct once_run_args *in,
                                struct once_run_answer *ret_answer);
/* As if it had not been leased: due at once, and not an attempt. */
ONCE_API int once_run_return(struct once *o, const struct once_run_args *in,
                             struct once_run_answer *ret_answer);

/* Moves everything that is in the buffer now into the ledger; *ret_drained, which may be NULL, is how
 * much that was. Handles that stay open do so by themselves: this is for whoever wants it done, and
 * to know. What other drainers have leased is waited for, since they may be dead: until their leases have
 * lapsed, or for wait_ms, after the last one that was moved. ONCE_EUNAVAILABLE: the ledger is away, or
 * others still have some of it; what was not moved stays in the buffer, and the text says how much and
 * why. With a url it is ONCE_EUNSUPPORTED: the daemon does it. One at a time. */
#define ONCE_DRAIN_WAIT_MS 32000 /* a lease, and 2 s */
ONCE_API int once_drain(struct once *o, uint64_t *ret_drained, struct once_error *reterr);
ONCE_API int once_drain_within(struct once *o, int64_t wait_ms, uint64_t *ret_drained,
                               struct once_error *reterr);

/* ---- listing and upkeep ---- */

struct once_row {
    struct once_bytes scope, key;
    int pending; /* 1: claimed, 0: done */
    int has_value;
    uint64_t fence;
    int64_t claimed_at_ms, done_at_ms; /* since 1970, by the store's clock */
    int64_t lease_left_ms, retain_left_ms;
    uint64_t value_bytes;
};

/* Calls visit for every record of the scope (empty: of all scopes) in order, until it returns
 * non-zero. visit may not call once_ functions. */
ONCE_API int once_list(struct once *o, struct once_bytes scope,
                       int (*visit)(void *ctx, const struct once_row *row), void *ctx,
                       struct once_error *reterr);

/* Removes up to at_most records that are past retention, oldest first; *ret_removed may be
 * NULL. A handle that stays open sweeps by itself (sweep_ms). */
ONCE_API int once_sweep(struct once *o, uint64_t at_most, uint64_t *ret_removed,
                        struct once_error *reterr);

typedef void once_say_fn(void *ctx, const char *text);

#define ONCE_MIGRATE_PRINT                                                                     \
    1u /* change nothing: say the SQL for those who apply it themselves */
#define ONCE_MIGRATE_MUTATIONS 2u /* the markers of mutations, and nothing else */

/* Brings the schema of a ledger up to date and says what it did, a line at a time. Opening does
 * this, too, unless the URL says migrate=no; this is for a user who may change the schema when
 * those who work with it may not. Again does nothing; many may do it at once. */
ONCE_API int once_migrate(const char *ledger, unsigned flags, once_say_fn *say, void *ctx,
                          struct once_error *reterr);

/* The same for markers, in the user's own database, which `ledger` names; that it is a ledger, too, is
 * not needed. once_migrate() with ONCE_MIGRATE_MUTATIONS has the defaults. A table that is there is
 * never changed: other partitions are ONCE_EUNSUPPORTED. */
struct once_marker_settings {
    size_t size;
    /* How long a marker counts, from a second; -1: as it is, at first an hour. */
    int64_t ttl_ms;
    int64_t partitions; /* PostgreSQL: by hash of the user; 0: none, -1: as they are */
};
#define ONCE_MARKER_SETTINGS_INIT                                                              \
    {                                                                                          \
        .size = sizeof(struct once_marker_settings), .ttl_ms = -1, .partitions = -1            \
    }
ONCE_API int once_migrate_mutations(const char *ledger, unsigned flags,
                                    const struct once_marker_settings *settings,
                                    once_say_fn *say, void *ctx, struct once_error *reterr);

struct once_markers {
    int installed;  /* 0: the rest is 0 */
    int64_t ttl_ms; /* how long a marker counts */
    int64_t
        oldest_ms; /* how long ago the oldest that is still there has expired; 0: none has */
    uint64_t reserved[4];
};

/* What is known of markers in the database of the ledger. ONCE_EUNSUPPORTED: there is no ledger, or a
 * daemon has it. */
ONCE_API int once_markers(struct once *o, struct once_markers *ret_markers,
                          struct once_error *reterr);

/* Removes up to at_most markers that have expired; *ret_removed may be NULL. Handles that stay open do
 * so by themselves, unless sweep_ms is 0. ONCE_EUNSUPPORTED: as above, or none are installed. */
ONCE_API int once_sweep_markers(struct once *o, uint64_t at_most, uint64_t *ret_removed,
                                struct once_error *reterr);

/* What a plane says of itself: version, persistence, what it may lose. The texts are valid inside
 * the call of `tell` only, which may not call once_ functions. */
#define ONCE_FACT_OK 0
#define ONCE_FACT_WARN 1
#define ONCE_FACT_FAIL 2

struct once_fact {
    int level;
    const char *plane; /* "coord" or "ledger" */
    const char *name, *text, *advice;
};
typedef void once_fact_fn(void *ctx, const struct once_fact *fact);

/* Asks both planes; an error if the ledger does not answer. */
ONCE_API int once_check(struct once *o, once_fact_fn *tell, void *ctx,
                        struct once_error *reterr);

struct once_stats {
    uint64_t pending, lapsed, done, gone, bytes; /* of the store */
    uint64_t claims, claimed, cached, in_progress, timed_out, mismatches, lost,
        takeovers;                                                /* of */
    uint64_t promoted, waiters, held, renewals, ambiguous, swept; /* this handle */
    uint64_t reserved[8];
};

ONCE_API int once_stats(struct once *o, struct once_stats *ret_stats,
                        struct once_error *reterr);

/* ---- a foreign loop (ONCE_HOSTED) ---- */

struct once_call;

/* The answer belongs to the callback: clear it there, or move it out by assignment. result is 0
 * or a negative code. Never called inside a ..._start function; it may start new calls. */
typedef void once_done_fn(void *ctx, int result, struct once_answer *answer);

/* Asynchronous twins. A negative code: not started, and done will not be called. *ret_call may
 * be NULL; it is valid until done has been called. */
ONCE_API int once_claim_start(struct once *o, const struct once_claim *in, once_done_fn *done,
                              void *ctx, struct once_call **ret_call,
                              struct once_error *reterr);
ONCE_API int once_publish_start(struct once *o, const struct once_owned *in, once_done_fn *done,
                                void *ctx, struct once_call **ret_call,
                                struct once_error *reterr);
ONCE_API int once_release_start(struct once *o, const struct once_owned *in, once_done_fn *done,
                                void *ctx, struct once_call **ret_call,
                                struct once_error *reterr);
ONCE_API int once_renew_start(struct once *o, const struct once_owned *in, once_done_fn *done,
                              void *ctx, struct once_call **ret_call,
                              struct once_error *reterr);
ONCE_API int once_peek_start(struct once *o, const struct once_owned *in, once_done_fn *done,
                             void *ctx, struct once_call **ret_call, struct once_error *reterr);
ONCE_API int once_forget_start(struct once *o, const struct once_owned *in, once_done_fn *done,
                               void *ctx, struct once_call **ret_call,
                               struct once_error *reterr);

/* The same for runs. A lease that is canceled may have been granted all the same: it lapses. */
typedef void once_run_done_fn(void *ctx, int result, struct once_run_answer *answer);

ONCE_API int once_trigger_start(struct once *o, const struct once_trigger *in,
                                once_run_done_fn *done, void *ctx, struct once_call **ret_call,
                                struct once_error *reterr);
ONCE_API int once_run_get_start(struct once *o, const struct once_run_args *in,
                                once_run_done_fn *done, void *ctx, struct once_call **ret_call,
                                struct once_error *reterr);
ONCE_API int once_run_list_start(struct once *o, const struct once_run_query *in,
                                 once_run_done_fn *done, void *ctx, struct once_call **ret_call,
                                 struct once_error *reterr);
ONCE_API int once_run_add_tags_start(struct once *o, const struct once_run_args *in,
                                     once_run_done_fn *done, void *ctx,
                                     struct once_call **ret_call, struct once_error *reterr);
ONCE_API int once_run_set_metadata_start(struct once *o, const struct once_run_args *in,
                                         once_run_done_fn *done, void *ctx,
                                         struct once_call **ret_call,
                                         struct once_error *reterr);
ONCE_API int once_run_operate_start(struct once *o, const struct once_run_args *in,
                                    once_run_done_fn *done, void *ctx,
                                    struct once_call **ret_call, struct once_error *reterr);
ONCE_API int once_run_reschedule_start(struct once *o, const struct once_run_args *in,
                                       once_run_done_fn *done, void *ctx,
                                       struct once_call **ret_call, struct once_error *reterr);
ONCE_API int once_run_cancel_start(struct once *o, const struct once_run_args *in,
                                   once_run_done_fn *done, void *ctx,
                                   struct once_call **ret_call, struct once_error *reterr);
ONCE_API int once_run_replay_start(struct once *o, const struct once_run_args *in,
                                   once_run_done_fn *done, void *ctx,
                                   struct once_call **ret_call, struct once_error *reterr);
ONCE_API int once_key_reset_start(struct once *o, const struct once_run_args *in,
                                  once_run_done_fn *done, void *ctx,
                                  struct once_call **ret_call, struct once_error *reterr);
ONCE_API int once_run_lease_start(struct once *o, const struct once_run_lease *in,
                                  once_run_done_fn *done, void *ctx,
                                  struct once_call **ret_call, struct once_error *reterr);
ONCE_API int once_run_complete_start(struct once *o, const struct once_run_args *in,
                                     once_run_done_fn *done, void *ctx,
                                     struct once_call **ret_call, struct once_error *reterr);
ONCE_API int once_run_fail_start(struct once *o, const struct once_run_args *in,
                                 once_run_done_fn *done, void *ctx, struct once_call **ret_call,
                                 struct once_error *reterr);
ONCE_API int once_run_heartbeat_start(struct once *o, const struct once_run_args *in,
                                      once_run_done_fn *done, void *ctx,
                                      struct once_call **ret_call, struct once_error *reterr);
ONCE_API int once_run_return_start(struct once *o, const struct once_run_args *in,
                                   once_run_done_fn *done, void *ctx,
                                   struct once_call **ret_call, struct once_error *reterr);

/* Ends a call with ONCE_ECANCELED, through its callback, in a later once_process(). A claim
 * that is granted all the same is released again. */
ONCE_API void once_cancel(struct once *o, struct once_call *call);

/* Poll the descriptor for reading, for as long as once_timeout_ms() says (-1: for ever), then
 * call once_process(): it does what is due and calls back. */
ONCE_API int once_fd(struct once *o);
ONCE_API int64_t once_timeout_ms(struct once *o);
ONCE_API int once_process(struct once *o);

#ifdef __cplusplus
}
#endif

#endif
