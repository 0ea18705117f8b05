/* run.h - a run: one unit of triggered work, and everything that is known of it.
 *
 *                    .------------- fail, attempts left ------------.
 *                    v                                              |
 *   trigger --> QUEUED --lease--> EXECUTING --complete--> COMPLETED |
 *                 |                 |  |  '---fail------------------'--no attempts left--> FAILED
 *                 |                 |  '--lease lapses--> leased again: a stall, not an attempt
 *                 '-----cancel------'--> CANCELED
 *
 * DELAYED is how a QUEUED run looks before its time has come. COMPLETED, FAILED and CANCELED are
 * final. Whether a run waits in the buffer or in the ledger cannot be seen here: it is the same
 * struct, by the same rules (core/run_rules.h). All bytes are views of somebody else's memory. */
#ifndef CORE_RUN_H
#define CORE_RUN_H

#include "base/err.h"
#include "core/record.h"

enum {
    RUN_ID_BYTES = 30, /* "run_" and 26 digits of Crockford's base 32 */
    RUN_ID_TIME_BITS = 48,
    ENV_BYTES_MAX = 64,
    TASK_BYTES_MAX = 128,
    QUEUE_BYTES_MAX = 128,
    ORDERING_KEY_BYTES_MAX = 128,
    TAGS_MAX = 10,
    TAG_BYTES_MAX = 128,
    TAGS_BYTES_MAX = TAGS_MAX * (1 + TAG_BYTES_MAX),
    METADATA_BYTES_MAX = 256 * 1024,
    RUN_ERROR_BYTES_MAX = 64 * 1024,
    RUN_ATTEMPTS_DEFAULT = 3,
    RUN_ATTEMPTS_MAX = 1000,
    RUN_STALLS_MAX = 5, /* a run that takes its workers down with it has to end, too */
    RUN_FINGERPRINT_BYTES = 32,
    RUN_KEY_FRAME_BYTES_MAX = 1 + TASK_BYTES_MAX + 512,
};

#define RUN_KEY_MS_DEFAULT (INT64_C(30) * 86400000)
#define RUN_RETAIN_MS_DEFAULT (INT64_C(30) * 86400000) /* of a final run */

struct run_id {
    char text[RUN_ID_BYTES + 1];
};

enum run_state {
    RUN_QUEUED = 1,
    RUN_EXECUTING = 2,
    RUN_COMPLETED = 3,
    RUN_FAILED = 4,
    RUN_CANCELED = 5,
};

struct run {
    struct run_id id;
    struct bytes env, task, queue;
    struct bytes payload; /* JSON, byte for byte as it came; empty: none */
    struct bytes ordering_key;
    struct bytes fingerprint; /* of task and payload */

    struct bytes key;     /* the idempotency key; empty: none */
    bool key_held;        /* the key still leads to this run */
    int64_t key_until_ms; /* from then on it does not */

    enum run_state state;
    struct bytes tags;     /* see tags_next() */
    struct bytes metadata; /* a JSON object; empty: none was ever set */
    uint64_t metadata_version;
    struct bytes output; /* COMPLETED: JSON */
    struct bytes error;  /* of the last attempt that failed: JSON */

    int64_t created_at_ms;
    int64_t delay_until_ms;  /* as asked for; 0: at once */
    int64_t available_at_ms; /* QUEUED: not to be leased before */
    int64_t started_at_ms;   /* first lease; 0: never */
    int64_t finished_at_ms;  /* final; else 0 */

    uint32_t attempts, attempts_max, stalls;
    struct token
        token;      /* of the last lease: who repeats its end is told that it was heard; zero:
                           there was none, or it was given back */
    uint64_t fence; /* of the last lease, strictly increasing; 0: never leased */
    int64_t lease_ms, lease_until_ms;

    uint64_t changes;        /* so many of those that were made in the buffer are in it */
    struct run_id canonical; /* as found by an alias: whose alias it was; else empty */
};

/* ---- ids ---- */

enum { RUN_ID_RANDOM_BYTES = 10 };

/* Time-ordered: milliseconds since 1970, then 80 random bits. */
void run_id_make(int64_t now_ms, const uint8_t random[RUN_ID_RANDOM_BYTES],
                 struct run_id *ret_id);

/* Ids of one process, each above the last: runs of one millisecond are in order, too. */
struct run_ids {
    int64_t last_ms;
    uint8_t last[RUN_ID_RANDOM_BYTES];
};
void run_ids_next(struct run_ids *ids, int64_t now_ms,
                  const uint8_t random[RUN_ID_RANDOM_BYTES], struct run_id *ret_id);
/* Exactly as made; lower case is taken, too. False: it is none. */
bool run_id_parse(struct bytes text, struct run_id *ret_id);
/* When it was made, as it says. */
int64_t run_id_ms(const struct run_id *id);
static inline struct bytes run_id_bytes(const struct run_id *id)
{
    return bytes_of(id->text, strlen(id->text));
}
static inline bool run_id_eq(const struct run_id *a, const struct run_id *b)
{
    return strcmp(a->text, b->text) == 0;
}

/* ---- what a run may be made of ---- */

/* [A-Za-z0-9._:/-], 1 to `bytes_max`; `what` names it in the error. */
int run_name_check(struct bytes name, size_t bytes_max, const char *what, struct err *reterr);
/* Everything that can be told from the run alone (C9). Payload, metadata: that they are JSON, and
 * their size, too. */
int run_check(const struct run *r, size_t payload_bytes_max, struct err *reterr);
/* What the rules rely on, for whoever reads what others may have written: NULL, or what is wrong. */
const char *run_nonsense(const struct run *r);

/* ---- what follows from it ---- */

static inline bool run_is_final(const struct run *r)
{
    return r->state >= RUN_COMPLETED;
}
bool run_is_delayed(const struct run *r, int64_t now_ms);
const char *run_status(const struct run *r, int64_t now_ms); /* "DELAYED", "QUEUED", ... */
/* When somebody may lease it; INT64_MAX: never. */
int64_t run_due_ms(const struct run *r);
/* From then on nobody needs it; INT64_MAX: it is not final. */
int64_t run_gone_ms(const struct run *r);
/* Does its key lead to it? Not when it has expired, was reset, or the run has FAILED. */
bool run_holds_key(const struct run *r, int64_t now_ms);

/* Task and key, framed, so that `a` + `bc` never equals `ab` + `c`; returns the length. */
size_t run_key_frame(struct bytes task, struct bytes key, uint8_t out[RUN_KEY_FRAME_BYTES_MAX]);

/* ---- tags: one length byte and the text, each ---- */

bool tags_next(struct bytes *tags, struct bytes *ret_tag); /* false: no more, or nonsense */
bool tags_have(struct bytes tags, struct bytes tag);
size_t tags_count(struct bytes tags);
/* Each of them alone; how many a run may have is not looked at. */
int tags_check(struct bytes tags, struct err *reterr);

#endif
