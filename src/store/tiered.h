/* tiered.h - what the files of the tiered store share; private to it.
 *
 *   tiered.c         the verbs: which plane is asked what, and what the other is told
 *   tiered_step.c    one step at coord, with a deadline; the breaker
 *   tiered_spool.c   what was accepted, into the spool */
#ifndef STORE_TIERED_H
#define STORE_TIERED_H

#include "store/store.h"

#define PLANE_COORD (UINT64_C(1) << 63)

struct tiered {
    struct store base;
    struct store *coord, *ledger;
    struct store *buffer; /* of its own; NULL: coord is, if it can be */
    struct store *spool;  /* has what this process accepted, too; NULL: there is none */
    struct store *alone;  /* keeps our own scopes, of which the ledger knows nothing */
    struct tiered_options options;
    struct rng *rng;
    const struct trace *trace;

    unsigned failures; /* of coord, in a row */
    struct err why;    /* the last of them */
    bool open;         /* the breaker: coord is not asked */
    struct timer probe_timer;
    uint64_t coord_epoch;

    bool spool_fails; /* it could not keep what was accepted last */

    struct list watches; /* struct watching: ops that wait at coord */
    struct list refused; /* ops to be failed in the next turn */
    struct task refuse;
    size_t steps; /* coord steps in flight, also those that nobody waits for any more */
    uint64_t opened, late, amnesia; /* so far: the breaker, steps, epochs of coord */
};

/* One step at coord on behalf of an op, or of nobody (parent NULL). The op goes on when the
 * step is done or overdue; an overdue step is left behind and freed when coord lets go of it.
 *
 * An op that changes the ledger has its step before it asks (tier_step_reserve), and a claim keeps
 * its first one: if memory runs out in between, coord can still be told. */
typedef void step_then(struct tiered *t, struct op *parent, const struct op *answered);

struct step {
    struct tiered *tiered;
    struct op *op, *parent;
    step_then *then;
    struct timer deadline;
    bool overdue;
};

/* A WATCH at coord; canceled when the breaker opens, so that its waiters turn to the ledger. */
struct watching {
    struct link link;
    struct tiered *tiered;
    struct op *op;
};

/* ---- tiered_step.c ---- */

/* What an op at coord says of coord. */
void tier_failed(struct tiered *t, const struct err *why);
void tier_hangs(struct tiered *t); /* it did not answer in time */
void tier_worked(struct tiered *t, uint64_t epoch);
void tier_probe(struct timer *timer); /* of the breaker, while it is open */

/* Takes over `op`. NULL, like a lack of memory, gives NULL. */
struct step *tier_step_new(struct tiered *t, struct op *op);
bool tier_step_reserve(struct tiered *t, struct op *parent);
/* The op's step, for the caller to fill in; NULL: coord is not to be asked, or cannot be. */
struct step *tier_step_for(struct tiered *t, struct op *parent, enum verb verb);
/* NULL counts as a coord that did not answer. */
void tier_step_start(struct tiered *t, struct op *parent, struct step *s, step_then *then);
void tier_step(struct tiered *t, struct op *parent, enum verb verb, step_then *then);

void tier_step_drop(struct op *op); /* it has none any more */

/* The op is done: it is told so. */
void tier_answer(struct op *op);
void tier_then_answer(struct tiered *t, struct op *op, const struct op *answered);

/* ---- tiered_spool.c ---- */

/* An ACCEPT that was answered: goes on when the spool has it, too. */
void tier_spool(struct op *op, void *ctx);
void tier_spool_fact(const struct tiered *t, struct op *op);

#endif
