/* run_rules.h - what may happen to a run. Pure, like rules.h: what is stored, what is asked, now
 * --> an outcome and the next run.
 *
 *   U1 A final run never changes its state again.
 *   U2 Only the holder of the lease (token) ends or extends an attempt; the fence only grows.
 *   U3 A key leads to at most one run of its env and task. A run may lose its key, never gain one.
 *      Whoever comes second with another fingerprint is never taken for it (C7).
 *   U4 Whatever was accepted for a run while it was buffered is applied to it exactly once, in
 *      order: `changes` counts them.
 *   U5 A stall is not an attempt, and both are bounded.
 *
 * A change to a buffered run is the same struct, kept in a list behind the run until the ledger has
 * it: run_fold() is what the run looks like meanwhile. */
#ifndef CORE_RUN_RULES_H
#define CORE_RUN_RULES_H

#include "base/buf.h"
#include "core/outcome.h"
#include "core/run.h"

enum run_change_kind {
    RUN_ADD_TAGS = 1, /* body: tags, as in a run */
    RUN_SET_METADATA, /* body: a JSON object; version: what it has to be now, or RUN_ANY_VERSION */
    RUN_OPERATE,      /* body: JSON, [{"type": "increment", "key": "n", "value": 1}, ...] */
    RUN_RESCHEDULE, /* at_ms: the new time */
    RUN_CANCEL,     /* body: a reason, JSON, may be empty */
    RUN_RESET_KEY,
    /* Those above may be made to a buffered run; those below need a token. */
    RUN_HEARTBEAT, /* lease_ms: negative means as granted */
    RUN_COMPLETE,  /* body: the output, JSON, may be empty */
    RUN_FAIL,      /* body: the error, JSON; retry_ms: negative means by back-off */
    RUN_RETURN,    /* unused: as if it had not been leased */
};

#define RUN_ANY_VERSION UINT64_MAX

struct run_change {
    enum run_change_kind kind;
    struct bytes body;
    uint64_t version;
    int64_t at_ms;
    struct token token;
    int64_t lease_ms, retry_ms;
    int64_t made_at_ms; /* in the buffer: when; rules use it for now */
};

/* Everything that can be told from the change alone (C9): that a body is what its kind wants, its
 * size, that times and durations can be reckoned with. */
int run_change_check(const struct run_change *c, size_t output_bytes_max, struct err *reterr);

/* Where rules put what they make: two of each, so that a verdict is never written over what it was
 * made from, which may be the run of the last verdict. A verdict's run points into it, into what was
 * stored and into what was asked. */
struct run_scratch {
    struct buf tags[2], metadata[2];
    struct buf reason; /* of a run that is written as FAILED */
};
void run_scratch_init(struct run_scratch *s);
void run_scratch_fini(struct run_scratch *s);

struct run_verdict {
    enum outcome outcome; /* OK, LOST, REFUSED, CONFLICT */
    const char *reason;   /* REFUSED: why; static */
    bool changed;
    struct run next; /* what it is now, changed or not */
};

/* Negative: no memory, or a body that is not what it should be; nothing is decided. The end of an
 * attempt that its holder repeats is OK and changes nothing, until somebody else has the run. */
int rules_run_change(const struct run *stored, const struct run_change *change, int64_t now_ms,
                     struct run_scratch *scratch, struct run_verdict *ret_verdict,
                     struct err *reterr);

/* A due run is handed to a worker. One that has stalled too often becomes FAILED instead: then
 * the outcome is REFUSED, and it has changed. Not due, or final: REFUSED and unchanged. */
struct run_verdict rules_run_lease(const struct run *stored, const struct token *token,
                                   int64_t lease_ms, int64_t now_ms);

/* How long a run waits after its n-th attempt failed: 1 s, doubled, at most an hour. */
int64_t run_back_off_ms(uint32_t attempts);

/* ---- a run that is new to the ledger ---- */

enum run_put {
    PUT_INSERT, /* it is new; if it has a key, it takes it from `by_key`, which had no right to it */
    PUT_SAME,   /* it is there already, by its id, or as an alias; what is missing is applied */
    PUT_CACHED, /* its key leads to another run */
    PUT_MISMATCH, /* ... which is about something else; or its id does, also if it drains */
    PUT_ALIAS, /* it was acknowledged before anybody knew of the other: it becomes its alias */
    PUT_FAILED, /* the same, but the other is about something else: a FAILED run, without the key */
};

/* Task, key and payload: is it what was asked for, once more? */
bool run_is_same(const struct run *a, const struct run *b);

/* `by_id`: what has this id, or what the id is an alias of (then by_id->canonical is set);
 * `by_key`: who has its key, live or not; both may be NULL. `drains`: it comes from the buffer. */
enum run_put rules_run_put(const struct run *by_id, const struct run *by_key,
                           const struct run *incoming, bool drains, int64_t now_ms);

/* PUT_FAILED: what is written. It says why, and all else is as it was, so that it can be replayed; one
 * that was canceled stays so. `ret_run` points into scratch. */
int rules_run_put_failed(const struct run *incoming, const struct run *by_key, int64_t now_ms,
                         struct run_scratch *scratch, struct run *ret_run, struct err *reterr);

/* The same of one that the ledger has refused for good, and why. */
int rules_run_park(const struct run *refused, const char *why, int64_t now_ms,
                   struct run_scratch *scratch, struct run *ret_run, struct err *reterr);

/* ---- changes of a buffered run ---- */

enum { RUN_CHANGES_BYTES_MAX = 1024 * 1024 };

bool run_change_may_wait(enum run_change_kind kind); /* may it be made to a buffered run? */
void run_change_encode(const struct run_change *c,
                       struct buf *out); /* framed, to be appended */
/* Takes the first one off the list; false: none is left, or nonsense (then the list is not empty). */
bool run_change_next(struct bytes *changes, struct run_change *ret_change);

/* The run with its changes, but for the first run->changes of them, each by the moment when it was
 * made. A change that is refused by now changes nothing. `ret_run` points into run, changes and
 * scratch. */
int run_fold(const struct run *run, struct bytes changes, struct run_scratch *scratch,
             struct run *ret_run, struct err *reterr);

/* What the changes of an alias do to the run that it is an alias of: all but times and keys, which
 * are that run's own. Skips the first `done` of them. */
int run_merge(const struct run *canonical, struct bytes changes, uint64_t done, int64_t now_ms,
              struct run_scratch *scratch, struct run *ret_run, struct err *reterr);

/* ---- a run as bytes: for the buffer, and between a client and its daemon ---- */

void run_encode(const struct run *r, struct buf *out);
/* Views into `packed`. False: it is none. */
bool run_decode(struct bytes packed, struct run *ret_run);

#endif
