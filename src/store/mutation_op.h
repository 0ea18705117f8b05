/* mutation_op.h - what is asked of the replay cache of mutations, and what came of it. */
#ifndef STORE_MUTATION_OP_H
#define STORE_MUTATION_OP_H

#include "core/mutation.h"
#include "core/outcome.h"
#include "core/record.h"

struct mutation_call;

enum mutation_step { MUTATION_BEGIN, MUTATION_COMPLETE, MUTATION_ABORT, MUTATION_STEPS };

/* Everything is copied, the response referenced. */
struct mutation_args {
    enum mutation_step step;
    struct bytes env; /* services that share a coord, and not a database, are apart by it */
    struct mutation mutation;

    /* BEGIN: all zero: one is made; else it is the caller's, who may ask again with it where an answer
     * was lost. COMPLETE, ABORT: as BEGIN gave it; all zero: that was degraded, and nothing is there. */
    struct token token;
    /* BEGIN: what is kept of another epoch counts for nothing; empty: whatever is kept is told.
     * COMPLETE: of the database that has it. */
    struct bytes epoch;
    int64_t lease_ms, wait_ms; /* BEGIN */
    int64_t retain_ms;         /* COMPLETE: what is left of the marker's time */
    struct bytes response;     /* COMPLETE */
    bool has_response;         /* COMPLETE: false: it was done, and no response is kept */

    void (*done)(struct mutation_call *call, void *ctx);
    void *ctx;
};
#define MUTATION_ARGS_INIT                                                                     \
    {                                                                                          \
        .lease_ms = LEASE_MS_DEFAULT, .retain_ms = MUTATION_TTL_MS_DEFAULT                     \
    }

/* What came of it, if there was no error:
 *   BEGIN     CLAIMED: go on, the database decides; CACHED: `kept` is the response; ALREADY_DONE: the
 *             same, and none was kept; IN_PROGRESS; TIMED_OUT: it was waited for; MISMATCH
 *   COMPLETE  OK; LOST: somebody else has it at coord, or has completed it, and nothing is kept
 *   ABORT     OK; LOST */
struct mutation_answer {
    enum outcome outcome;
    struct token token; /* CLAIMED; all zero: coord had no part in it */
    int64_t lease_left_ms;
    struct blob *packed; /* what `kept` points into; NULL: there is nothing */
    struct mutation_kept kept;
    bool degraded; /* coord was not used */
};

/* MUTATION (CAP_CALLS). out: OK, and `answer` is what the other engine said. `args` is the submitter's,
 * with all that it points to; `done`, `ctx` and `wait_ms` count for nothing. */
struct mutation_ask {
    const struct mutation_args *args;
    struct mutation_answer answer;
};
void mutation_ask_clear(struct mutation_ask *a);

#endif
