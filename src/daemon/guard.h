/* guard.h - what stands between the doors and the network.
 *
 * Guarantees:
 *   G1 A door that other machines can reach opens only if the tokens file has a token that lives,
 *      and either TLS is on or somebody has said that it may go without.
 *   G2 A file that is reloaded is taken as a whole or not at all: after a failure that one is as
 *      it was, and the error says what was wrong. */
#ifndef DAEMON_GUARD_H
#define DAEMON_GUARD_H

#include "daemon/auth.h"
#include "daemon/tls.h"

struct guard_config {
    const char *tokens;             /* the file; NULL: none */
    bool tokens_needed;             /* it is an error if there is none */
    const char *tls_cert, *tls_key; /* files; NULL: no TLS */
    bool insecure;                  /* other machines may send their tokens in the clear */
};

struct guard {
    struct auth auth;
    struct tls_keys keys;
    char *tokens, *tls_cert, *tls_key;
    bool insecure;
};

int guard_open(struct guard *g, const struct guard_config *config, struct err *reterr);
int guard_reload(struct guard *g, struct err *reterr);
void guard_close(struct guard *g); /* zeroed is fine */

/* For listeners; NULL: no TLS. Stays where it is, also when it is reloaded. */
const struct tls_keys *guard_keys(const struct guard *g);

/* May there be a door at this address? */
int guard_check(const struct guard *g, const char *address, struct err *reterr);

#endif
