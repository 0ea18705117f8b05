/* postgres_guess.h - when a batch may be decided without being read first; private to the postgres
 * store.
 *
 * A guess is that something is new because the last ones were, by the server's clock as reckoned
 * from the last look at it. The write compares all of it with what is there, the clock included, so
 * a wrong guess costs a round and nothing else. */
#ifndef STORE_POSTGRES_GUESS_H
#define STORE_POSTGRES_GUESS_H

#include <stdbool.h>
#include <stdint.h>

/* How old a decision may be when it is carried out. One about runs that has to wait for a lock then is
 * undone if that takes more than 4 s (postgres/002-runs.sql). */
enum { DECISION_MS = 1000 };

struct guess {
    int64_t read_ms;      /* the server's clock at the last read ... */
    int64_t read_mono_ms; /* ... and ours when its answer came; 0: never */
    unsigned news;        /* of the last ones, how many were new: 0 to 256 */
    unsigned sure_after;  /* so many batches take nothing for surely new ... */
    unsigned sure_pause;  /* ... and this many the next time that was wrong */
};

void guess_note(struct guess *g, bool new); /* one more that was new, or was not */
bool guess_new(const struct guess *g);      /* is the next one? */

void guess_anchor(struct guess *g, int64_t server_ms); /* the server's clock, just read */
/* Never ahead of it. False: the last look is too long ago. */
bool guess_now_ms(const struct guess *g, bool however_old, int64_t *ret_now_ms);

/* What is surely new and is not undoes the whole batch: after that, nothing is for a while. */
static inline bool guess_surely(const struct guess *g)
{
    return g->sure_after == 0;
}
void guess_pace(struct guess *g, bool taken); /* after each batch: was it undone? */

#endif
