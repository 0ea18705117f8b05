/* guard.h - what stands between the doors and the network.
 *
 * Guarantees:
 *   G1 A door that other machines can reach opens only if the tokens file has a token that lives,
 *      and either TLS is on or somebody has said that it may go without.
 *   G2 What is reloaded is taken as a whole or not at all: after a failure everything is as it
 *      was, and the error says what was wrong. */
#ifndef DAEMON_GUARD_H
#define DAEMON_GUARD_H

#include "daemon/auth.h"

struct guard_config {
    const char *tokens; /* the file; NULL: none */
    bool tokens_needed; /* it is an error if there is none */
    bool insecure;      /* other machines may send their tokens in the clear */
};

struct guard {
    struct auth auth;
    char *tokens;
    bool insecure;
};

int guard_open(struct guard *g, const struct guard_config *config, struct err *reterr);
int guard_reload(struct guard *g, struct err *reterr);
void guard_close(struct guard *g); /* zeroed is fine */

/* May there be a door at this address? */
int guard_check(const struct guard *g, const char *address, struct err *reterr);

#endif
