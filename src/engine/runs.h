/* runs.h - runs, from a caller's question to the answer, wherever the run is.
 *
 * A trigger:
 *
 *   check --> claim (coord alone) --claimed--> resolve the key (buffer, then ledger) --nobody--> gate
 *               |     ^   |                       |                                   |       |
 *               |     |   '-cached: a hint--------'--live: CACHED, or MISMATCH        passes  diverted
 *               |     '-- a hint to nothing is dropped, at most 5 times               |       |
 *               '-- coord is away: goes on without, and says degraded         ledger PUT   ACCEPT
 *                                                                                     '-------'--> publish
 *
 * While the gate is known to be tripped, a short way: ledger --nobody--> ACCEPT, if coord has no trace of
 * the key; else as above.
 *
 * Everything else asks the ledger first, then the buffer; a change to a run that a drainer has just
 * leased waits for it, up to 2 s, and then goes to the ledger. Callers cannot tell where a run is, but
 * for `buffered`.
 *
 * Guarantees, on top of the stores':
 *   V1 Every call is finished exactly once.
 *   V2 Same env, task and key: the same run for every caller, until the key expires, is reset, or its
 *      run has FAILED. Of a burst, one is told `created`.
 *   V3 An id that was handed out is found, whoever asks (C8): as its run, or as an alias of the one
 *      that has its key and is about the same (C7).
 *   V4 What was acknowledged of a change is in the run, whatever happens to buffer and drainer, as far
 *      as the buffer's store is durable. */
#ifndef ENGINE_RUNS_H
#define ENGINE_RUNS_H

#include "engine/engine.h"

/* How runs are handled; defaults as in the specification. */
struct runs_config {
    struct gate_config gate;     /* of an env that has none of its own */
    struct gate_config all_gate; /* of all envs together; threshold 0: there is none */
    bool drains;                 /* moves the buffer into the ledger by itself */
    bool watches;         /* counts the buffer, and looks up gates that operators have set */
    size_t drain_batch;   /* entries leased at once */
    size_t drain_env_max; /* of one env, in one round; 0: no such limit */
    int64_t drain_lease_ms;
    int64_t drain_after_ms; /* the first look, unless something is accepted here before */
    int64_t drain_rate;     /* entries a second at most; 0: as many as the ledger takes */
    int64_t change_wait_ms; /* how long a change waits for a drainer that has its run */
};
#define RUNS_CONFIG_INIT                                                                       \
    {                                                                                          \
        .gate = GATE_CONFIG_INIT,                                                              \
        .all_gate = { .window_ms = GATE_WINDOW_MS_DEFAULT, .hold_ms = GATE_HOLD_MS_DEFAULT },  \
        .drain_batch = 1000, .drain_lease_ms = LEASE_MS_DEFAULT, .change_wait_ms = 2000        \
    }

/* Counted since the start. */
struct run_stats {
    uint64_t triggers[OUTCOMES + 1]; /* by outcome */
    uint64_t passed, shadowed, diverted, gate_failed;
    uint64_t claims, claim_waits, claim_timeouts; /* of triggers: won, waited for, in vain */
    uint64_t ownership_lost; /* an owner found its claim gone when it came to publish */
    uint64_t hints_dropped;
    uint64_t drained, drain_failed, drain_retried, parked, aliased;
    uint64_t leased, returned;
    uint64_t spool_reaccepted;  /* entries that the buffer had lost */
    struct histogram drain_lag; /* ms from accept to written */
    /* The buffer as it was counted last. */
    bool buffer_known;
    uint64_t buffer_queued, buffer_leased;
    int64_t buffer_oldest_ms;
    /* The same of the spool, if there is one. */
    bool spool_known;
    uint64_t spool_entries;
    int64_t spool_oldest_ms;
};

/* What is asked and what came of it: struct run_args and struct run_answer of store/run_op.h. */

/* Checks the request before anything else happens (C9). The call is valid until `done` returns, which
 * is never called from inside engine_run(). */
int engine_run(struct engine *e, const struct run_args *args, struct run_call **ret_call,
               struct err *reterr);
void run_call_cancel(struct run_call *c); /* `done` is still called, with ERR_CANCELED */

struct run_stats engine_run_stats(const struct engine *e);

/* Moves everything that is in the buffer now into the ledger. What other drainers have leased is waited
 * for, up to wait_ms after the last one that was moved: they may be dead, and their leases lapse. `done`
 * is told how many were moved, and what was in the way, if anything was (code 0: nothing is left of what
 * was there); also when the engine stops. One at a time. */
typedef void drain_done(uint64_t drained, const struct err *err, void *ctx);
int engine_drain(struct engine *e, int64_t wait_ms, drain_done *done, void *ctx,
                 struct err *reterr);

/* An env's own gate; NULL: the default again. What is set by `once gate` in the ledger, as answers in
 * the scope once/gate, is looked up every few seconds and wins. */
int engine_gate_set(struct engine *e, struct bytes env, const struct gate_config *config,
                    struct err *reterr);
struct gate_config engine_gate(const struct engine *e, struct bytes env);

/* For `done`. */
const struct err *run_call_error(const struct run_call *c); /* code 0: there is an answer */
const struct run_answer *run_call_answer(const struct run_call *c);
int64_t run_call_waited_ms(const struct run_call *c);

#endif
