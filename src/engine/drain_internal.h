/* drain_internal.h - what drain.c (rounds) and drain_entry.c (one entry of them) share, and nothing for
 * anybody else. */
#ifndef ENGINE_DRAIN_INTERNAL_H
#define ENGINE_DRAIN_INTERNAL_H

#include "engine/drain_rate.h"
#include "engine/runs_internal.h"

enum { RETRY_MS_FIRST = 20, RETRY_MS_MAX = 1000 }; /* a write, or a settle, that has failed */

struct round;

struct item {
    struct round *round;
    const struct entry *entry;
    struct run run;
    struct run_ask ask;
    struct timer timer; /* ambiguous: ask again */
    unsigned tries;
    struct run *parked; /* FAILED, because it was refused for good; NULL: it was not */
    enum settle_how how;
};

struct round {
    struct link link;
    struct drainer *drainer;
    bool regular;            /* not of one entry that somebody asked for */
    struct buffer_ask lease; /* its entries live as long as the round */
    struct buffer_ask settle;
    struct timer timer; /* the settle has failed: once more */
    unsigned tries;
    struct item *items;
    size_t open; /* items at the ledger */
    size_t written;
    int64_t until_ms;
    struct err away; /* why the ledger did not take something; code 0: that was not so */
    uint8_t env[ENV_BYTES_MAX];
};

struct drainer {
    struct runs *runs;
    struct list rounds; /* struct round */
    unsigned regular;   /* of them */
    struct timer timer; /* the next round */
    struct timer count_timer;
    bool stopping, counting, looking;
    drain_done *done; /* somebody wants all of it now; NULL: nobody */
    void *done_ctx;
    uint64_t drained_before;
    int64_t asked_at_ms, wait_ms, give_up_ms; /* `done`: since when, for how long, until when */
    struct buffer_ask rest;                   /* what is left then ... */
    int64_t looked_at_ms;                     /* ... as asked for at this time */
    struct buffer_ask count;
    unsigned looks;  /* that found nothing, in a row */
    unsigned away;   /* rounds that did not reach the ledger, in a row */
    int64_t hold_ms; /* not before */
    struct drain_rate rate;
};

static inline struct engine *drainer_engine(const struct drainer *d)
{
    return d->runs->engine;
}

/* ---- drain.c ---- */

extern const struct err drain_no_memory;

/* Nothing more happens to it here. The last one of a round settles all of it, which may free it. */
void drain_item_done(struct item *item, enum settle_how how);

/* ---- drain_entry.c ---- */

void drain_item_init(struct item *item, struct round *r, const struct entry *entry);
/* drain_item_done() is called for it, maybe at once. */
void drain_item_begin(struct item *item);

#endif
