/* runs_internal.h - what the engine's files about runs share, and nothing for anybody else.
 *
 *   runs.c       a call: checked, copied, told; ops on its behalf
 *   trigger.c    the way of a trigger
 *   resolve.c    who has its key
 *   burst.c      the gate: questions of one turn are one question
 *   buffered.c   runs that may be in the buffer: get, list, change, reset, replay
 *   work.c       leases, and waiting for something to be due
 *   bell.c       telling other processes that something may be
 *   overrides.c      what operators have set for the gate of an env
 *   drain.c      the buffer into the ledger; drain_entry.c: one entry; drain_rate.c: how many
 *   spool.c      what the buffer has lost, into it again
 *   forward.c    all of it, on a store that is a daemon */
#ifndef ENGINE_RUNS_INTERNAL_H
#define ENGINE_RUNS_INTERNAL_H

#include "base/sha256.h"
#include "engine/internal.h"
#include "engine/runs.h"

enum { CLAIM_NAME_BYTES = 2 * SHA256_BYTES };

struct run_call;

/* The trigger's own. */
struct trigger {
    uint8_t fingerprint[SHA256_BYTES];
    uint8_t scope[1 + ENV_BYTES_MAX];
    char name[CLAIM_NAME_BYTES + 1];
    struct key key;       /* of the claim; empty: it needs none */
    bool named;           /* the id is the caller's: it may be of something else */
    bool by_id;           /* what must happen once is the id: there is no key */
    bool owns;            /* the claim is ours */
    enum outcome claimed; /* what the claim said; 0: it was not asked */
    struct token token;
    int64_t claim_until_ms;           /* monotonic */
    unsigned rounds;                  /* claims so far */
    bool maybe;                       /* an earlier PUT or ACCEPT may have counted */
    bool created;                     /* the run is ours, not one that was found */
    struct call *claim;               /* under way; NULL: none */
    void (*after)(struct run_call *); /* what follows a release */
    struct link at_gate;              /* waits for the gate */
    bool diverted;
    bool brief; /* on the short way: nothing is claimed */
    bool
        outlived; /* an entry has the key, of a run that has lost it in the ledger, which decides */
    uint8_t key_frame[RUN_KEY_FRAME_BYTES_MAX];
};

struct run_call {
    struct engine *engine;
    struct link link; /* runs->calls, or runs->finished */
    struct run_args args;
    struct run_answer out;
    struct err err;
    bool canceled; /* nobody waits for the answer */
    bool told;     /* `done` was called: it goes on for nobody */
    bool finished; /* nothing is under way on its behalf */
    bool degraded;
    int64_t started_ms;
    unsigned tries;
    void (*step)(struct run_call *,
                 struct op *); /* gets the op that is at the store; NULL: none */
    struct timer timer;
    void (*then)(struct run_call *); /* when the timer fires, or its turn has come */
    struct run_ask ask;
    struct buffer_ask buffer;
    struct run_scratch scratch;
    struct buf change; /* encoded, for APPEND */
    struct buf packed; /* the run, for ACCEPT */
    struct trigger trigger;
    struct run_rows listed; /* LIST: those of the buffer */
    struct run *like;       /* REPLAY: what the new one is like */
    bool written;           /* the buffer said that the ledger has it */
    bool cleared;           /* RESET: an entry had the key */
    struct map_node turn;   /* CHANGE: in runs->turns, by place: one at a time in the buffer */
    struct list behind;  /* CHANGE: struct run_call, whose turn comes after it; TRIGGER: those
                             * who are told what it finds */
    struct link in_line; /* behind another change or trigger; LEASE: in a line */
    bool has_turn;
    struct run_call_ask forward; /* to a daemon ... */
    struct op *forwarded;        /* ... and under way; NULL: it is not */
    struct bytes place;          /* env and what it is about, framed: which way its ops go */
    uint8_t memory[];
};

struct drainer;
struct spool;
struct overrides;

struct runs {
    struct engine *engine;
    struct runs_config config;
    struct list calls, finished; /* struct run_call */
    struct task tell;
    struct run_ids ids;
    struct map turns;       /* changes to runs that may be buffered */
    struct run_call *looks; /* a trigger whose look was asked for in this turn; NULL: none */
    struct task look_closes;
    struct map bursts;           /* struct burst, by env */
    struct list weighted;        /* struct burst, those whose weight is not 1 */
    struct map lines;            /* struct line, by env and queue */
    struct map bells;            /* struct bell, by env and queue */
    struct drainer *drainer;     /* NULL: there is no buffer */
    struct spool *spool;         /* NULL: there is none */
    struct overrides *overrides; /* NULL: nobody looks */
    struct run_stats stats;
};

static inline bool has(const struct engine *e, unsigned cap)
{
    return e->store->caps & cap;
}

/* ---- runs.c ---- */

typedef void run_step(struct run_call *c, struct op *op);

/* Submits an op about c->ask (runs) or c->buffer; `then` gets it back and need not free it. Without
 * memory the call fails. */
void run_submit(struct run_call *c, enum verb verb, run_step *then);
/* The same, about a key. */
void run_submit_keyed(struct run_call *c, enum verb verb, const struct key *key,
                      const struct request *in, run_step *then);
/* The same, about c->forward. NULL: the call has failed. */
struct op *run_submit_call(struct run_call *c, run_step *then);
void run_pause(struct run_call *c, int64_t ms, void (*then)(struct run_call *));
/* After an error of a store: `then` is called again in a while, if that is worth it. */
bool run_may_retry(struct run_call *c, int code, void (*then)(struct run_call *));

/* Ends: with what ask.rows has; with one run; with an error. */
void run_finish(struct run_call *c, enum outcome outcome);
void run_finish_with(struct run_call *c, enum outcome outcome, const struct run *run,
                     bool buffered);
void run_finish_rows(struct run_call *c, enum outcome outcome, struct run_rows *rows);
void run_fail(struct run_call *c, int code, const char *text);

int64_t wall_ms(const struct engine *e);

/* ---- buffered.c ---- */

void buffered_start(struct run_call *c);
/* What an entry looks like, with its changes; points into the entry and the call's scratch. */
int entry_run(struct run_call *c, const struct entry *entry, struct run *ret_run);
void buffered_leave(struct run_call *c); /* gives up its turn */

/* ---- trigger.c ---- */

/* Fails before anything has happened, or not at all. */
int trigger_start(struct run_call *c, struct err *reterr);
/* The run that it asks for, and whether it may be one. */
int trigger_make(struct run_call *c, struct err *reterr);
void trigger_fill_id(struct run_call *c);
/* Where the claim of a key is: into c->trigger. */
int trigger_claim_key(struct run_call *c, struct bytes task, struct bytes key,
                      struct err *reterr);
void trigger_like(struct run_call *c, const struct run *run); /* REPLAY: a new one */
bool trigger_is_once(const struct run_call *c);
bool trigger_has_gate(const struct run_call *c);
int64_t trigger_left_ms(const struct run_call *c); /* to wait for somebody else */
void trigger_claim(struct run_call *c);
/* What resolving comes to: a run has the key, or the id; it has the id that the caller has chosen beside
 * a key; it has the id, and is about something else; nobody has it; nobody knows. */
void trigger_meet(struct run_call *c, const struct run *run, bool buffered);
void trigger_meet_id(struct run_call *c, const struct run *run, bool buffered);
void trigger_other(struct run_call *c, const struct run *run, bool buffered);
void trigger_nobody(struct run_call *c);
void trigger_timed_out(struct run_call *c);
void trigger_fail(struct run_call *c, const struct err *err);

/* ---- resolve.c ---- */

void looks_init(struct runs *r);
void looks_fini(struct runs *r);
void resolve(struct run_call *c);
void resolve_in_ledger(struct run_call *c); /* the buffer was asked, or is not to be */
void resolve_leave(struct run_call *c);     /* it ends: nobody is left behind it */

/* ---- burst.c ---- */

int bursts_init(struct runs *r);
void bursts_fini(struct runs *r);
/* c->then is called with c->trigger.diverted set. */
void burst_ask(struct run_call *c);
bool burst_keeps(const struct run_call *c); /* is there a gate that may divert, or counts? */
/* Is the gate of its env known to be tripped, so that it would be diverted if it asked? */
bool burst_is_tripped(const struct run_call *c);
/* Of envs whose weight is not 1; to be freed. NULL: there are none, or no memory: all are equal then. */
struct env_weight *burst_weights(const struct runs *r, size_t *ret_count);
/* It was, without asking; it was let pass, without asking. Both count all the same. */
void burst_diverted(struct run_call *c);
void burst_passed(struct run_call *c);

/* ---- overrides.c ---- */

#define GATES_SCOPE "once/gate"

int overrides_init(struct runs *r);
void overrides_stop(struct engine *e);
bool overrides_idle(const struct engine *e);
void overrides_fini(struct runs *r);
bool gate_parse(struct bytes text, struct gate_config *ret_config);

/* ---- work.c ---- */

int lines_init(struct runs *r);
void lines_fini(struct runs *r);
void work_start(struct run_call *c);
void work_cancel(struct run_call *c);
/* Something in this queue may be due. */
void work_ring(struct engine *e, struct bytes env, struct bytes queue);

/* ---- bell.c ---- */

int bells_init(struct runs *r);
void bells_fini(struct runs *r);
void bell_ring(struct runs *r, struct bytes place);
/* A watch that fires when the bell is rung, or was since `seen`; NULL: nobody can be told. */
struct op *bell_watch(struct runs *r, struct bytes place, uint64_t seen);

/* ---- drain.c ---- */

int drainer_init(struct runs *r);
void drainer_wake(struct engine *e); /* something was accepted */
void drainer_stop(struct engine *e);
bool drainer_idle(const struct engine *e);
void drainer_fini(struct runs *r);
/* This entry, now: whoever finds it there twice. */
void drainer_take(struct engine *e, struct bytes env, const struct run_id *id);

/* ---- spool.c ---- */

int spool_init(struct runs *r);
void spool_stop(struct engine *e);
bool spool_idle(const struct engine *e);
void spool_fini(struct runs *r);

/* ---- forward.c ---- */

/* Fails before anything has happened, or not at all. */
int forward_start(struct run_call *c, struct err *reterr);
void forward_cancel(struct run_call *c);
void forward_clear(struct run_call *c);

#endif
