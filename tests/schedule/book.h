/* book.h - what must hold in every interleaving of every spec, whatever the spec says.
 *
 * The book is kept from the answers alone, by somebody who knows the contract and not the code:
 *   B1 At most one live owner per key: a claim is granted only when no lease is running and no
 *      answer is in retention.
 *   B2 Fences of a key grow from grant to grant.
 *   B3 What a publish was told "ok" for is what everybody reads, until it is forgotten or its
 *      retention is over.
 *   B4 Only the newest owner's publish, release and renew are told "ok".
 *   B5 Another fingerprint never executes, waits or sees an answer; a mismatch reveals nothing.
 *   B6 Nobody waits for a key that is free or answered (run.c asks the store after every step).
 * It errs on the side of silence: an owner who has sent its publish or release counts as gone.
 */
#ifndef TESTS_SCHEDULE_BOOK_H
#define TESTS_SCHEDULE_BOOK_H

#include "core/rules.h"
#include "tests/schedule/spec.h"

enum { BOOK_KEYS_MAX = 8, GRANTS_MAX = 32 };

struct grant {
    struct token token;
    uint64_t fence;
    int64_t lease_ms, until_ms, retain_ms;
    bool leaving; /* it has sent its publish or release */
    bool over;    /* released or forgotten */
    char fingerprint[WORD_MAX];
};

struct told {
    bool any, has_value;
    char value[WORD_MAX];
    char fingerprint[WORD_MAX];
};

struct book_key {
    char name[WORD_MAX];
    struct grant grants[GRANTS_MAX];
    size_t grant_count;
    struct told answer; /* of the last publish that counted */
    struct token by;
    bool kept; /* `answer` must be what everybody reads */
    int64_t gone_at_ms;
};

struct book {
    struct book_key keys[BOOK_KEYS_MAX];
    size_t key_count;
    struct {
        const struct step *step;
        struct book_key *key;
        struct told told;
    } unsure[STEPS_MAX]; /* seen before the publish was told: looked at when all is quiet */
    size_t unsure_count;
    char why[256]; /* empty: all is well */
};

void book_init(struct book *b);
struct book_key *book_key(struct book *b, const char *name);

void book_started(struct book *b, const struct step *st, const struct token *token);
void book_ended(struct book *b, const struct step *st, const struct token *token,
                const struct answer *out, int64_t now_ms);
void book_clock_went_back(struct book *b, int64_t now_ms);
void book_quiet(struct book *b, int64_t now_ms);

/* A peek by the runner; `name` as in the spec. */
void book_peeked(struct book *b, const char *name, const struct answer *out, int64_t now_ms);

void book_fail(struct book *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
