/* watches.h - parked WATCH ops of a store that runs exec(): told when their key changes.
 *
 * Lives on the loop's thread. The runner passes every executed op through watches_settle(), in
 * the order of execution; so a change is either in what a WATCH read, or is noted after it was
 * parked. Nothing falls in between. */
#ifndef STORE_WATCHES_H
#define STORE_WATCHES_H

#include "store/op.h"

enum { WATCH_SLOTS = 512 };

struct watches {
    struct list slots[WATCH_SLOTS];
    uint64_t seed[2];
    size_t count;
};

void watches_init(struct watches *w, const uint64_t seed[2]);

/* Sorts an executed op: a WATCH whose record is as it was seen is parked; everything else, and
 * every watch that the op's change concerns, goes to `finished`. */
void watches_settle(struct watches *w, struct op *op, struct list *finished);

/* Somebody else says what the record's version is now. */
void watches_tell(struct watches *w, struct bytes frame, uint64_t version,
                  struct list *finished);

/* Takes a WATCH out of whatever list it is on and puts it on `finished` as canceled. */
void watches_cancel(struct watches *w, struct op *op, struct list *finished);

/* Takes all parked ones, to be executed again: somebody else may have changed their keys. */
void watches_unpark_all(struct watches *w, struct list *all);

#endif
