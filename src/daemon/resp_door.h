/* resp_door.h - the RESP door: every Redis client is a client.
 *
 * Guarantees:
 *   D1 Answers of a connection come in the order of its commands. What stands behind a claim that
 *      waits is executed at once, but its answer waits for the claim's: a client that wants no
 *      such queue opens a second connection. Other connections never wait for this one.
 *   D2 Who has hung up waits no more: its claims that are not answered are canceled, and given
 *      back should they be granted all the same. A peer that has only closed its sending side
 *      cannot be told from one that left: claims with a WAIT are canceled then, too, and say so;
 *      everything else it asked is done and answered.
 *   D3 CLAIM ... BOUND: while the connection lives, the daemon renews the lease; when it drops,
 *      the claim is released, again and again until the store has heard it.
 *   D4 A claim without BOUND is its owner's: it renews it by ONCE.RENEW, or it lapses.
 *   D5 CLAIM ... TOKEN: the client made the token, so that it can ask again with it where an answer
 *      was lost. Such a claim is never given back for the client, who may be asking again on another
 *      connection just now; unheard, it lapses.
 *   D6 WATCH is answered at once, and told by one push, out of turn, in no order with answers. What
 *      is watched is nobody's claim: it ends with the connection and holds up no shutdown.
 *   D7 Questions about runs follow the same rules: a PULL is what a claim is to D2, and what was
 *      leased for somebody who has gone is given back; everything else is done, heard or not. With
 *      RAW they are answered at once and told by a push, as a WATCH is.
 *   D8 MUTATION.BEGIN is what a claim is to D2 and D5; COMPLETE and ABORT are done, heard or not. */
#ifndef DAEMON_RESP_DOOR_H
#define DAEMON_RESP_DOOR_H

#include "daemon/auth.h"
#include "daemon/bound.h"
#include "daemon/conn.h"
#include "daemon/resp_args.h"
#include "daemon/resp_run_args.h"
#include "engine/mutation.h"

enum { RESP_ARGS_MAX = 1024, RESP_INLINE_BYTES_MAX = 64 * 1024, RESP_NAME_BYTES_MAX = 64 };

struct resp_door {
    struct engine *engine;
    struct loop *loop;
    struct conns *conns;
    struct auth *auth;  /* NULL: everybody may do everything */
    const char *planes; /* for INFO: what it runs on */
    int64_t started_ms;
    struct resp_limits limits;
    struct list spare_asks;
    size_t spare_ask_count;
    struct bounds *bounds; /* CLAIM ... BOUND; shared with other doors */
    struct map watches;    /* of all connections, by connection and id */
    size_t raw_calls;      /* of all connections: told out of turn */
    bool durable;          /* does what is published outlive the daemon? */
    int64_t value_bytes_max;
    struct bytes args[RESP_ARGS_MAX]; /* of the command that is being read */
};

/* `d` is zeroed, with engine, loop, conns, bounds, auth and planes set. */
int resp_door_init(struct resp_door *d, int64_t value_bytes_max, struct rng *rng,
                   struct err *reterr);
void resp_door_fini(struct resp_door *d); /* all connections are closed */

/* After the tokens were reloaded: who has none any more waits for nothing and keeps nothing BOUND. */
void resp_door_recheck(struct resp_door *d);

extern const struct door resp_door;

#endif
