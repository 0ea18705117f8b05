/* bound.h - claims that live as long as the connection that made them.
 *
 * Guarantees: as long as its connection lives, the engine renews a bound claim; when that drops, it
 * is released, again and again until the store has heard it, because the engine renews what it was
 * not told to be over. What was published, released or lost meanwhile is bound no more. */
#ifndef DAEMON_BOUND_H
#define DAEMON_BOUND_H

#include "engine/runs.h"

struct bound;

/* All of a process. */
struct bounds {
    struct engine *engine;
    struct loop *loop;
    struct map by_token;   /* those whose connection lives */
    struct list releasing; /* those whose connection does not */
    size_t returning;      /* runs that are being given back */
};

int bounds_init(struct bounds *all, struct engine *engine, struct loop *loop, struct rng *rng,
                struct err *reterr);
void bounds_fini(struct bounds *all);       /* the engine is stopped; no connection has any */
bool bounds_idle(const struct bounds *all); /* is nothing being released, nor given back? */

/* Before asking: what the claim will be if it is granted. The key was checked. NULL: no memory. */
struct bound *bound_new(struct bounds *all, const struct key *key);
void bound_free(struct bound *b); /* it was not granted; NULL is fine */
struct owner bound_owner(
    struct bounds *all); /* for the claim: the engine says when it is lost */

/* It was granted: to a connection, which keeps it in its list, or to nobody. */
void bound_hold(struct bound *b, const struct token *token, struct list *of_connection);
void bound_give_back(struct bound *b, const struct token *token);

/* The caller is gone: a claim that was granted all the same is given back. Nobody renews it, so it
 * would lapse; this is sooner. */
void bounds_unheard(struct bounds *all, struct call *call);

/* The same for runs that were leased: those from `first` on are given back, as if they had not been.
 * Once: should nobody hear it, their leases lapse. From `done` of the call. */
void bounds_return_runs(struct bounds *all, const struct run_call *call, size_t first);

void bounds_settled(struct bounds *all, const struct token *token); /* published or released */
void bounds_drop(struct bounds *all, struct list *of_connection);   /* that is gone */

#endif
