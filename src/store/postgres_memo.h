/* postgres_memo.h - what this connection wrote last about keys that are still pending; private
 * to the postgres store.
 *
 * A memo saves the read before a publish or a renewal: the op is decided on it, and carried out
 * only if the row is still what the memo says. It is a guess, never an answer. Bounded: the
 * oldest goes first. */
#ifndef STORE_POSTGRES_MEMO_H
#define STORE_POSTGRES_MEMO_H

#include "base/map.h"
#include "store/postgres_rows.h"

struct memos {
    struct map map;
    struct list by_age;
};

int memos_init(struct memos *m, struct rng *rng); /* 0 or ERR_NOMEM */
void memos_fini(struct memos *m);                 /* takes what was zeroed and never inited */

bool memo_has(struct memos *m, struct bytes frame);

/* Fills the slot as if it had been read. False: there is no memo. */
bool memo_recall(struct memos *m, struct slot *s);

/* The slot was written as it is, and is row `rev` now; or: what is there is not known. */
void memo_keep(struct memos *m, const struct slot *s, struct place place, int64_t rev);
void memo_drop(struct memos *m, struct bytes frame);

#endif
