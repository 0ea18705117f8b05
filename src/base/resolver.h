/* resolver.h - the addresses of a host, without the loop waiting for them.
 *
 * Guarantees: an address is its own answer, at once; a name is looked up on a thread of its own, one
 * lookup at a time, and what comes of it is told in a turn of the loop; what was said last is kept until
 * something else is said. getaddrinfo() cannot be stopped: whoever does not want it any more leaves it
 * behind, and it ends by itself, without touching anything of theirs. Does not: time out, or ask
 * again. */
#ifndef BASE_RESOLVER_H
#define BASE_RESOLVER_H

#include "base/loop.h"

#include <netdb.h>

/* So long is waited for a name whose addresses are known from before: a server that has moved is
 * found by asking anew, but a resolver that hangs keeps nobody from one that has not. */
enum { RESOLVER_KNOWN_MS = 100 };

struct lookup;

struct resolver {
    struct loop *loop;
    /* `why`: there is no answer. Before resolver_ask() returns, or in a later turn. */
    void (*told)(struct resolver *, const char *why);
    struct addrinfo *addresses; /* as was said last; NULL: nothing yet */
    struct lookup *lookup;      /* under way, or NULL */
    struct io io;               /* readable when it is over */
};

void resolver_init(struct resolver *r, struct loop *loop,
                   void (*told)(struct resolver *, const char *why));
void resolver_clear(
    struct resolver *r); /* forgets what was said, and leaves what is under way */
/* Of one host, until it is cleared. While a lookup is under way, that is the one that is told. */
void resolver_ask(struct resolver *r, const char *host, const char *port);
const struct addrinfo *resolver_address(const struct resolver *r, size_t i); /* NULL: no more */

#endif
