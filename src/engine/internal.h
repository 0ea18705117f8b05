/* internal.h - the structures the engine's files share, and nothing for anybody else. */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H

#include "engine/engine.h"

struct engine {
    struct loop *loop;
    struct store *store;
    struct rng *rng;
    struct clock wall; /* for what people read: ids, times of runs */
    const struct trace *trace;
    struct engine_config config;
    struct engine_stats stats;
    bool stopping;
    size_t in_flight;     /* ops the store has */
    struct list calls;    /* every call that is not finished, except parked ones */
    struct list finished; /* to be told in the next turn */
    struct task tell;
    struct map waitlists; /* by question: key and fingerprint */
    struct map leaders;   /* calls that ask a question, with no line behind them yet */
    struct list unsent;   /* calls: leaders until the end of the turn */
    struct task send;
    struct map held; /* by owner token */
    struct timer sweep_timer, markers_timer;
    size_t markers_batch;                  /* so many are to be deleted at once */
    bool markers_failed;                   /* the last batch: look how old they get */
    struct runs *runs;                     /* see runs_internal.h */
    struct list mutations, mutations_told; /* struct mutation_call */
    struct task tell_mutations;
};

/* call.c - the life of a call.
 *
 *            .---------------- ambiguous, or patience left ----------------.
 *            v                                                             |
 *   NEW --> ASKING --answer--> FINISHED        ASKING --error--> BACKING_OFF
 *            |  ^
 *  in_progress  | head of the line, when something may have changed
 *            v  |
 *          PARKED --deadline, cancel, or the head's answer--> FINISHED */
enum call_state { CALL_NEW, CALL_ASKING, CALL_PARKED, CALL_BACKING_OFF, CALL_FINISHED };

struct call {
    struct engine *engine;
    struct link link; /* calls, a waitlist or finished: state is membership */
    enum call_state state;
    struct map_node leader; /* in the engine's leaders while `leads` */
    bool leads;
    struct link unsent;    /* in the engine's, while its op is not yet at the store */
    struct call_args args; /* key and request views point into the op */
    struct op *op;
    struct timer timer; /* parked: the deadline; backing off: the next try */
    int64_t started_ms, started_us, asked_ms;
    bool waited;               /* it was parked */
    unsigned tries;            /* failed so far, in a row */
    bool maybe;                /* an earlier try may have counted */
    bool callers_token;        /* a claim that is not ours to give back */
    struct waitlist *waitlist; /* while parked, or asking on its behalf */
    uint64_t ticket;           /* when it joined, in the waitlist's count */
    struct err err;
    struct answer out; /* its value is a reference the call owns */
};

void call_set_state(struct call *c, enum call_state to);
void call_ask(struct call *c);                              /* submits its op */
void call_finish(struct call *c, const struct answer *out); /* takes a reference to the value */
void call_finish_err(struct call *c, int code, const char *text);
void call_granted(struct call *c); /* bookkeeping of a claim that was won */
int64_t call_deadline_ms(const struct call *c);

/* Submits an op that nobody waits for: `done` must free it. */
void engine_submit(struct engine *e, struct op *op, op_done *done, void *ctx);
int64_t back_off_ms(struct rng *rng, unsigned tries, int64_t first_ms, int64_t max_ms);
/* Gives up a claim that may have been granted: releases it, best effort. */
void engine_abandon(struct engine *e, const struct key *key, const struct token *token);

/* wait.c */
int waitlists_init(struct engine *e);
void waitlists_fini(struct engine *e);
/* Parks c if its key has a line already, or if somebody is just asking the same. */
bool wait_join_existing(struct call *c);
void wait_lead(struct call *c); /* it is about to ask: others may line up behind it */
void wait_lead_no_more(struct call *c);
void wait_sent(struct call *c); /* from now on, who joins its line was not asked for */
void wait_park(struct call *c, const struct answer *seen); /* after in_progress */
void wait_answered(struct call *c); /* the op of a call that asked for its line came back */
void wait_deadline(struct call *c); /* its timer fired */
void wait_leave(struct call *c);    /* canceled */
void waitlists_stop(struct engine *e);

/* lease.c */
int leases_init(struct engine *e);
void leases_fini(struct engine *e);
void lease_hold(struct call *c); /* after claimed */
void lease_extended(struct engine *e, const struct token *token, int64_t asked_ms,
                    int64_t until_ms);
/* Its owner has begun to publish or release it, or has failed to. */
void lease_settling(struct engine *e, const struct token *token, bool settling);
void lease_end(struct engine *e, const struct token *token);
void leases_stop(struct engine *e);

/* runs.c */
int runs_init(struct engine *e);
void runs_stop(struct engine *e);
bool runs_idle(const struct engine *e);
void runs_fini(struct engine *e);

/* mutation.c */
void mutations_init(struct engine *e);
void mutations_stop(struct engine *e);
bool mutations_idle(const struct engine *e);
void mutations_fini(struct engine *e);

/* sweep.c */
void sweep_init(struct engine *e);
void sweep_stop(struct engine *e);

/* markers.c */
void markers_init(struct engine *e);
void markers_stop(struct engine *e);

#endif
