/* faulty.h - a store in front of another one that fails as it is told to.
 *
 * For tests of whoever talks to a store: refuse, lose the request, lose the answer, or hold ops
 * until they are let go. It counts what reaches it. */
#ifndef TESTS_SUPPORT_FAULTY_H
#define TESTS_SUPPORT_FAULTY_H

#include "store/store.h"

enum fault {
    FAULT_NONE,
    FAULT_REFUSE,       /* ERR_UNAVAILABLE; nothing was done */
    FAULT_LOSE_REQUEST, /* ERR_AMBIGUOUS; nothing was done */
    FAULT_LOSE_ANSWER,  /* ERR_AMBIGUOUS; it was done */
    FAULT_HOLD,         /* until faulty_let_go() */
};

enum { FAULTY_ALWAYS = 1000000 };

struct store *faulty_open(struct store *inner, const struct store_env *env); /* owns `inner` */

/* The next `times` ops of this verb (VERBS: of every verb) meet this fault. */
void faulty_set(struct store *s, enum verb verb, enum fault fault, unsigned times);
void faulty_heal(struct store *s); /* no more faults; what is held stays held */
void faulty_let_go(struct store *s);

/* From now on, claims that wait and meet somebody say that this was heard when they were sent. */
void faulty_hears(struct store *s, uint64_t heard);
uint64_t faulty_watch_heard(const struct store *s); /* what the last WATCH was given of it */

unsigned faulty_count(const struct store *s, enum verb verb); /* submitted so far */
size_t faulty_held(const struct store *s);

#endif
