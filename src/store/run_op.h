/* run_op.h - what ops about runs, the buffer and the gate ask for and are told.
 *
 * An op with one of these verbs carries a pointer to one of these structs, which is the submitter's
 * and stays where it is until the op is finished; between submit and finish it is the store's, as the
 * op is. Inputs are views that stay valid as long. What a store puts into the answer is released by
 * the ..._clear() of the struct; stores call it before they (re)execute an op.
 *
 * Ledger (CAP_RUNS): PUT, GET, CHANGE, RESET, LEASE, LIST, decided by core/run_rules.
 *   L1 Every change of a run is one atomic, conditional step, decided on what is stored, by the clock
 *      of the ledger.
 *   L2 (env, id) is unique, also across aliases; (env, task, key) is unique among those that hold it.
 *   L3 Of the active runs of a queue with one ordering key, one at a time is leased: the one that
 *      executes, as long as it does, else the one with the lowest id, due or not.
 * Buffer (CAP_BUFFER): entries are bytes to it. It knows their id, env and key, and what became of
 * them:
 *
 *   accept --> QUEUED --lease--> LEASED{token, until} --written--> WRITTEN (kept for 30 s, for readers)
 *                ^                  |--back---------> QUEUED, perhaps with a pause
 *                |--lease lapses----'  '--park------> WRITTEN, too: the ledger has it as a FAILED run
 *
 *   B1 Accepted is durable, as far as the store is. An entry is never removed before the ledger has it.
 *   B2 First in, first out per env; envs take turns. What lapsed comes before what never was leased.
 *   B3 Only a QUEUED entry takes changes, and only if nobody changed it in between (rev).
 *   B4 Only the token that leased an entry settles it.
 *   B5 A key of an env leads to at most one entry; until it is WRITTEN, or lets go of it. What is fresh
 *      goes by those that are WRITTEN and still kept, too.
 *   B6 What went back with a pause is nobody's, and QUEUED to everybody but a LEASE of whoever's turn it
 *      is, which passes it by until then. A change ends the pause, and so does a LEASE by its id. */
#ifndef STORE_RUN_OP_H
#define STORE_RUN_OP_H

#include "core/gate.h"
#include "core/run_rules.h"

/* ---- runs in memory ---- */

/* A deep copy in one piece; NULL: out of memory. */
struct run *run_copy(const struct run *r);
void run_free(struct run *r); /* NULL is fine */

struct run_rows {
    struct run **rows;
    size_t count, cap;
    size_t bytes; /* of what they say, about */
    bool more;
};
int run_rows_add(struct run_rows *rows, const struct run *r); /* copies; 0 or ERR_NOMEM */
void run_rows_clear(struct run_rows *rows);

/* ---- the ledger ---- */

struct run_ask {
    /* in */
    struct bytes env;
    struct run_id id;       /* GET, CHANGE: empty: by task and key */
    struct bytes task, key; /* GET, RESET; LIST: only this task, if not empty */
    struct bytes queue;     /* LEASE; LIST: only this queue, if not empty */

    const struct run *run; /* PUT: a new run, QUEUED, or FAILED if it was parked */
    struct bytes changes;  /* PUT that drains: all that were made to it in the buffer */
    bool drains;           /* PUT */
    int64_t until_ms; /* PUT: not after this, by the monotonic clock; 0: whenever. The claim
                              of whoever triggers, the lease of whoever drains, lapses then: the
                              answer is LOST, whatever is there, and nothing is written */

    struct run_change change; /* CHANGE */

    size_t limit;               /* LEASE, LIST: at most so many; from 1 to RUN_ROWS_MAX */
    int64_t lease_ms;           /* LEASE */
    const struct token *tokens; /* LEASE: `limit` of them, one for each run */

    /* LIST, the newest (highest id) first: */
    struct run_id before; /* only lower ids; empty: from the newest on */
    unsigned states;      /* bits by enum run_state; 0: all */
    struct bytes tag;     /* only those that have it, if not empty */

    /* out; outcome in op->out.outcome:
     *   PUT     OK: written, or there already (put tells); `rows` has it. CACHED, MISMATCH: `rows` has
     *           who has the key, or the id. LOST: too late. A PUT that drains and is in time
     *           is always OK, and `rows` has the run that counts; but MISMATCH if its id is that of a
     *           run about something else.
     *   GET     OK or ABSENT. By an alias: the canonical run, with `canonical` set to its own id.
     *   CHANGE  OK, ABSENT, LOST, REFUSED, CONFLICT; `rows` has the run as it is now (not if ABSENT)
     *   RESET   OK: `rows` has the run that had the key; ABSENT: nobody had it
     *   LEASE   OK; `rows` may be empty. next_due_ms tells when it is worth asking again
     *   LIST    OK */
    struct run_rows rows;
    enum run_put put;
    const char *reason; /* static; NULL: none */
    int64_t now_ms;     /* by the ledger's clock */
    int64_t
        next_due_ms; /* LEASE that found fewer than asked for: the first that will be due, by
                            that clock; INT64_MAX: none is known */
};
enum { RUN_ROWS_MAX = 1000 };
/* LEASE and LIST give at least one run and stop before they have many more bytes than this: then
 * there are fewer than asked for, and of a LIST there are more. */
#define RUN_ROWS_BYTES_MAX (INT64_C(16) << 20)
void run_ask_clear(struct run_ask *a);

/* ---- the buffer ---- */

enum entry_state { ENTRY_QUEUED = 1, ENTRY_LEASED = 2, ENTRY_WRITTEN = 3 };

/* In one piece with its bytes. */
struct entry {
    struct run_id id;
    struct bytes env;
    enum entry_state state; /* as it counts now: a lapsed lease is QUEUED */
    uint64_t rev;           /* changes it has taken */
    uint32_t attempts;      /* to write it that failed for good */
    int64_t accepted_at_ms;
    struct bytes run;     /* run_encode() of it, as accepted */
    struct bytes changes; /* run_change_encode() of each */
};

struct entries {
    struct entry **rows;
    size_t count, cap;
    bool more;
};
int entries_add(struct entries *to, const struct entry *e); /* copies; 0 or ERR_NOMEM */
void entries_clear(struct entries *e);

enum settle_how {
    SETTLE_WRITTEN, /* the ledger has it */
    SETTLE_BACK,    /* it has not; not the entry's fault */
    SETTLE_FAILED,  /* it has not, because of the entry: an attempt more */
    SETTLE_DROP,    /* in a spool, where nothing is leased: the ledger has it; it is removed */
};

/* Of a round, an env of weight 3 gets three times as much as one that has none of its own. */
struct env_weight {
    uint8_t env_len, weight; /* 1 to 100 */
    uint8_t env[ENV_BYTES_MAX];
};

struct settle {
    struct run_id id;
    struct bytes env;
    enum settle_how how;
};

struct buffer_ask {
    /* in */
    struct bytes env;       /* all but LEASE, SETTLE and STATS */
    struct run_id id;       /* ACCEPT, APPEND; GET: empty: by key */
    struct bytes key_frame; /* run_key_frame(); ACCEPT: empty: it has no key */
    struct bytes run;       /* ACCEPT */
    bool unclaimed; /* ACCEPT: without a claim; the op's key and token count for nothing */
    bool fresh; /* ACCEPT (CAP_FRESH), with `unclaimed` and a key: only if nobody has been here,
                     * neither in the claims under the op's key nor in the buffer */
    bool
        claim_here; /* ACCEPT: this store has the claim, too, and publishes it in the same step.
                             * A store that always has it need not be told */

    uint64_t rev;        /* APPEND: what it has to have now */
    struct bytes change; /* APPEND */
    bool frees_key;      /* APPEND: and it lets go of its key */

    size_t limit;       /* LEASE, LIST */
    struct token token; /* LEASE, SETTLE */
    int64_t lease_ms;   /* LEASE */
    size_t
        env_limit; /* LEASE: of one env at most so many; 0: no such limit. A LEASE with env and
                           id set: that entry, whatever its turn */
    const struct env_weight *weights; /* LEASE: of envs whose weight is not 1 */
    size_t weight_count;
    const struct settle *settles;
    size_t settle_count;
    int64_t back_pause_ms, failed_pause_ms; /* SETTLE: of those that are; 0: none (B6) */

    struct run_id
        before;     /* LIST: the newest first; only lower ids; empty: from the newest on */
    int64_t behind; /* LIST of a spool, without an env: of all of them, the oldest first, behind
                     * this place; 0: from the oldest on */

    /* out; outcome in op->out.outcome:
     *   ACCEPT  OK: it is there, now or already; CACHED: its key leads to the entry in `entries`, or
     *           its id does, which came with another run, and nothing was accepted; LOST: the claim is
     *           somebody else's, and nothing was accepted
     *           fresh: IN_PROGRESS: there is a record of the claim, or an entry that is written and
     *           still kept has the key or the id, or one has the id without the key; nothing was
     *           changed. OK leaves the claim as it is: whoever claims it finds the entry
     *   GET     OK with one entry, or ABSENT
     *   APPEND  OK; CONFLICT: another rev; IN_PROGRESS: it is leased; ABSENT: gone, or written
     *   LEASE   OK; `entries` may be empty, or fewer than asked for though there are more
     *   SETTLE  OK; `settled` were still this token's
     *   LIST    OK: QUEUED and LEASED ones of the env; at least one if there are, perhaps fewer than
     *           asked for: entries.more tells if there are more
     *   STATS   OK */
    struct entries entries;
    int64_t place; /* LIST of a spool: of the last one */
    size_t settled;
    uint64_t queued, leased; /* STATS; leased: those that pause, too */
    int64_t oldest_ms;       /* STATS: age of the oldest that is not written; 0: none */
    int64_t now_ms;          /* by the buffer's clock */
};
void buffer_ask_clear(struct buffer_ask *a);

/* ---- the gate ---- */

struct gate_ask {
    /* in */
    struct bytes env; /* empty: the gate of all */
    struct gate_config config;
    size_t count;

    /* out: OK */
    size_t passed;      /* the first so many of them */
    int64_t tripped_ms; /* it is tripped for so long; 0: it is not */
};

/* ---- a whole question, for a store that has an engine of its own ---- */

struct run_call;

enum run_question {
    ASK_TRIGGER,
    ASK_GET,
    ASK_LIST,
    ASK_CHANGE, /* tags, metadata, cancel, reschedule; and heartbeat, complete, fail */
    ASK_REPLAY, /* a new run like that one, without its key */
    ASK_RESET,  /* of a key */
    ASK_LEASE,
    RUN_QUESTIONS
};

/* Everything is copied. Zeroed, but for the question, means nothing was asked for. */
struct run_args {
    enum run_question question;
    struct bytes env;

    /* TRIGGER: what the caller says of the new run. id: made if it is empty; queue: the task if it is
     * empty; attempts_max: 0 is the default; delay_until_ms: 0 is at once, by the wall clock.
     * Everything that is not listed is filled in by the engine. */
    struct run run;   /* id, task, payload, key, queue, ordering_key, tags, metadata,
                                   delay_until_ms, attempts_max */
    int64_t delay_ms; /* TRIGGER: from now; negative: as delay_until_ms has it */
    int64_t key_ms;   /* TRIGGER: how long the key is kept; negative: the default */
    bool id_is_new;   /* TRIGGER: nobody else has run.id, it was just made */
    bool
        mismatch_returns; /* TRIGGER: another payload under a live key is answered with its run */

    struct run_id id;         /* GET, CHANGE, REPLAY */
    struct bytes task, key;   /* RESET; LIST: only this task, if not empty */
    struct run_change change; /* CHANGE; made_at_ms is filled in */

    struct bytes queue; /* LEASE; LIST: only this queue, if not empty */
    size_t limit;       /* LEASE, LIST: from 1 to RUN_ROWS_MAX */
    int64_t lease_ms;   /* LEASE */
    int64_t wait_ms;    /* LEASE: for something to be due; TRIGGER: for whoever is on the key */
    struct run_id before; /* LIST */
    unsigned states;      /* LIST: bits by enum run_state; 0: all */
    struct bytes tag;     /* LIST */

    void (*done)(struct run_call *call, void *ctx);
    void *ctx;
};
#define RUN_ARGS_INIT                                                                          \
    {                                                                                          \
        .delay_ms = -1, .key_ms = -1, .wait_ms = WAIT_MS_DEFAULT, .lease_ms = LEASE_MS_DEFAULT \
    }

/* What came of it, if there was no error:
 *   TRIGGER  OK: created; CACHED: it was there; MISMATCH; TIMED_OUT: somebody was on it for too long
 *   GET      OK, ABSENT
 *   LIST     OK: `rows`, the newest first; rows.more: ask again, before the last one's id
 *   CHANGE   OK, ABSENT, LOST, REFUSED, CONFLICT (`reason` says why)
 *            TIMED_OUT: a drainer had it for too long; safe to retry
 *   REPLAY   as TRIGGER; ABSENT: there is no such run
 *   RESET    OK: somebody had the key; ABSENT: nobody
 *   LEASE    OK: `rows`, perhaps none, each with token, fence and lease_until_ms */
struct run_answer {
    enum outcome outcome;
    const char *reason; /* as long as the answer; NULL: none */
    struct run_rows rows;
    bool buffered;  /* the (first) run is in the buffer */
    bool degraded;  /* coord was not used */
    int64_t now_ms; /* when that was so, by the wall clock: for run_status() */
};

/* RUN_CALL (CAP_CALLS). out: OK, and `answer` is what the other engine said. `args` is the
 * submitter's, with all that it points to; `done` and `ctx` count for nothing. */
struct run_call_ask {
    const struct run_args *args;
    struct run_answer answer;
    char reason[128]; /* what answer.reason points to */
};
void run_call_ask_clear(struct run_call_ask *a);
/* May it change anything? Then it is ambiguous when its answer is lost. */
bool run_args_write(const struct run_args *args);

#endif
