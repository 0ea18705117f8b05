/* fault.h - the parts of one program that breaks real servers under real clients.
 *
 *   fault proxy    stands between a client and a server and does what it is told (proxy.c,
 *                  commits.c)
 *   fault worker   a client process: plays contended keys, writes down every call (worker.c,
 *                  bad.c)
 *   fault check    reads what all of them wrote and says what is not true (check.c, linear.c)
 *   fault pace     how much a hung coord costs a caller (pace.c)
 *   fault now      the time, as histories have it
 *   fault note     a line of the history for what was done to a server
 *   fault test     the proxy and the checker, tested themselves
 *
 * tests/fault/run plays the scenarios. */
#ifndef TESTS_FAULT_FAULT_H
#define TESTS_FAULT_FAULT_H

#include <once/once.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int proxy_main(int argc, char **argv);
int worker_main(int argc, char **argv);
int check_main(int argc, char **argv);
int pace_main(int argc, char **argv);
int note_main(int argc, char **argv);

void proxy_test(void);
void check_test(void);

/* ---- proxy: what a PostgreSQL client sends ---- */

enum { COMMIT_NAMES_MAX = 4, COMMIT_HEAD_BYTES = 160 };

/* A connection, as far as its client has sent. All 0 at first. */
struct commits {
    bool foreign; /* it speaks something else */
    bool started; /* from now on messages have a type */
    uint8_t head[COMMIT_HEAD_BYTES];
    size_t head_len, left; /* of the message: kept of it, still to come */
    size_t began;          /* where, in these bytes */
    bool unnamed;          /* the statement without a name is a COMMIT */
    char names[COMMIT_NAMES_MAX][64];
    size_t count;
};

/* Goes on at *at, which is 0 for bytes that are new. True: there is a COMMIT; *at is behind its
 * message, *ret_begin where that begins, or 0 if it has begun before these bytes. */
bool commits_next(struct commits *c, const uint8_t *data, size_t len, size_t *at,
                  size_t *ret_begin);

/* A row of a command's options: a text or a number. */
struct option_row {
    const char *name;
    const char **text;
    int64_t *number;
};

/* Takes the --name value pairs; returns the index of the first argument that is none, or -1. */
int options_take(int argc, char **argv, const struct option_row *rows, size_t count);

/* ---- history: one line when a call begins, one when it is answered ---- */

enum act {
    ACT_CLAIM,
    ACT_PUBLISH,
    ACT_RELEASE,
    ACT_RENEW,
    ACT_PEEK,
    ACT_FORGET,
    ACT_AMNESIA,  /* done to the store: everything is forgotten */
    ACT_ROLLBACK, /* done to the store: the last changes are forgotten */
    ACTS
};

extern const char *const act_name[ACTS];

enum { WORD_BYTES_MAX = 96, KEY_ALL = -1, NONE = 0 };
#define NEVER INT64_MAX

/* One call. Words (keys, tokens, values) are numbers that are equal when the words are. */
struct deed {
    enum act act;
    int file, key;            /* KEY_ALL: of the whole store */
    int64_t begin_us, end_us; /* monotonic; NEVER: it was not answered */
    int owner;                /* token: given with the call, or with a granted claim */
    int fingerprint;          /* claim */
    int64_t lease_ms;         /* claim, renew: asked for */
    int sent, told;           /* values */
    bool final;               /* after the faults were over */
    bool waits;               /* claim: asked to wait */
    bool maybe;               /* the store was asked again, after an answer was lost */
    int outcome, error;       /* of once.h; both 0: not answered */
    int refused;              /* the error that a bad request must meet; 0: it is not bad */
    uint64_t fence;
};

struct history {
    struct deed *deeds;
    size_t count, cap;
    char (*words)[WORD_BYTES_MAX];
    size_t word_count, word_cap;
    int files;
};

void history_init(struct history *h);
void history_fini(struct history *h);
int history_word(struct history *h, const char *word); /* "-" is NONE */
const char *history_name(const struct history *h, int word);
struct deed *history_add(struct history *h);
/* Reads one process' file. False: it is not a history; says why on stderr. */
bool history_read(struct history *h, const char *path);
/* A deed in words, for people. The text is good until the next call. */
const char *deed_text(const struct history *h, const struct deed *d);

/* Writes lines that survive the end of this process, by any number of threads. */
struct scribe {
    int fd;
    _Atomic uint64_t calls;
};

bool scribe_open(struct scribe *s, const char *path);

struct begun {
    enum act act;
    const char *key, *token, *fingerprint, *value;
    int64_t lease_ms;
    bool final, waits;
    int refused;
};

struct ended {
    int outcome, error;
    const char *token, *value;
    uint64_t fence;
    bool maybe;
};

uint64_t scribe_begin(struct scribe *s, const struct begun *b); /* the number of the call */
void scribe_end(struct scribe *s, uint64_t call, const struct ended *e);
int64_t now_us(void); /* CLOCK_MONOTONIC: the same for every process of the machine */

/* ---- requests that must be refused ---- */

#define BAD_KEY "bad-" /* how their keys begin */

struct bad {
    struct scribe *scribe;
    struct once *once;
    const char *scope, *key;
};

void bad_init(void); /* before the others */
void bad_claim(const struct bad *b, uint64_t which);
void bad_publish(const struct bad *b, const char *token, uint64_t which); /* of an owner */
int bad_list(const struct bad *b); /* looks for records of them; 0, or an error */

/* ---- check ---- */

/* What the planes of a run promise. */
struct promise {
    bool absorbs;      /* coord in front of a ledger: "somebody is on it" may be old news */
    bool flawless;     /* what goes wrong must not show: no errors (C4) */
    bool calm;         /* nothing goes wrong: waiters are woken in time (C6) */
    int64_t lease_ms;  /* the longest */
    int64_t settle_ms; /* C5: a lease and this after the faults, every key is answered */
    int64_t clock_ms;  /* by how much two clocks of one machine may differ */
};
#define PROMISE_INIT                                                                           \
    {                                                                                          \
        .lease_ms = 1000, .settle_ms = 2000, .clock_ms = 50                                    \
    }

/* Where violations are told; the checker's own tests listen in. */
struct findings {
    const struct history *history;
    const struct promise *promise;
    void (*tell)(struct findings *f, const char *rule, const char *text);
    size_t count;
    size_t woken, woken_late; /* waiters that a publish woke */
};

void finding(struct findings *f, const char *rule, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The deeds of one key, in the order in which they began, with what was done to the store. */
struct story {
    int key;
    const struct deed **deeds;
    size_t count;
    bool forgets; /* something ended an answer before its retention did */
    bool rolled_back;
};

void check_history(struct findings *f);                           /* everything */
void check_linear(struct findings *f, const struct story *story); /* I18 */

#endif
