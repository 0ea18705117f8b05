/* runs.h - runs, from a caller's question to the answer, wherever the run is.
 *
 * A trigger:
 *
 *   check --> claim (coord alone) --claimed--> resolve the key (ledger, then buffer) --nobody--> gate
 *               |     ^   |                       |                                   |       |
 *               |     |   '-cached: a hint--------'--live: CACHED, or MISMATCH        passes  diverted
 *               |     '-- a hint to nothing is dropped, at most 5 times               |       |
 *               '-- coord is away: goes on without, and says degraded         ledger PUT   ACCEPT
 *                                                                                     '-------'--> publish
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
 *      that has its key.
 *   V4 What was acknowledged of a change is in the run, whatever happens to buffer and drainer, as far
 *      as the buffer's store is durable. */
#ifndef ENGINE_RUNS_H
#define ENGINE_RUNS_H

#include "engine/engine.h"

/* What is asked and what came of it: struct run_args and run_answer of store/run_op.h. */

/* Checks the request before anything else happens (C9). The call is valid until `done` returns, which
 * is never called from inside engine_run(). */
int engine_run(struct engine *e, const struct run_args *args, struct run_call **ret_call,
               struct err *reterr);
void run_call_cancel(struct run_call *c); /* `done` is still called, with ERR_CANCELED */

/* For `done`. */
const struct err *run_call_error(const struct run_call *c); /* code 0: there is an answer */
const struct run_answer *run_call_answer(const struct run_call *c);
int64_t run_call_waited_ms(const struct run_call *c);

#endif
