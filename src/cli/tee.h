/* tee.h - carries one output of a command to our own, and to whoever keeps it, as it comes.
 *
 * Never blocks: the loop that calls it also renews the lease, so a reader that has stopped (a
 * pager, Ctrl-S) may hold up the command but not us. A reader that has gone holds up nobody:
 * the output is still recorded. */
#ifndef CLI_TEE_H
#define CLI_TEE_H

#include "cli/result.h"

#include <poll.h>

struct tee {
    int from;   /* the command's pipe; -1: it has ended */
    int to;     /* our stdout or stderr; -1: it is only kept */
    int stream; /* RESULT_STDOUT or RESULT_STDERR */
    bool gone;  /* nobody takes our output any more */
    int error;  /* why, if it was not that the reader left */
    size_t at, len, write_max;
    uint8_t held[65536]; /* read, not yet written: at..len */
};

void tee_init(struct tee *t, int from, int to, int stream);
void tee_fini(struct tee *t);

/* What to poll for; fd is -1 when there is nothing to wait for. */
struct pollfd tee_poll(const struct tee *t);
typedef void tee_keep(void *ctx, int stream, struct bytes content);
void tee_turn(struct tee *t, short revents, tee_keep *keep, void *ctx);

static inline bool tee_ended(const struct tee *t)
{
    return t->from < 0 && t->at == t->len;
}

/* Writes everything, waiting as long as it takes. A reader that left is not an error. */
int write_all(int fd, struct bytes content);

#endif
