/* auth.h - may this caller ask that?
 *
 * Guarantees:
 *   A1 Without a tokens file everybody may do everything: such a daemon listens on this machine
 *      only (server.c). With one, nobody may do anything without a token that is in it, has not
 *      expired, and covers verb and scope at the moment of asking.
 *   A2 A token is compared in constant time, and one whose id is unknown costs as much.
 *   A3 A grant is a value: what was revoked, has expired or was narrowed since counts at its next
 *      use, without anybody looking for those who hold it.
 *   A4 Reloading is all or nothing: a file that cannot be read leaves everything as it was. */
#ifndef DAEMON_AUTH_H
#define DAEMON_AUTH_H

#include "base/clock.h"
#include "base/trace.h"
#include "daemon/tokens.h"
#include "store/op.h"

struct auth {
    struct clock wall;
    const char *path;          /* of the tokens file; NULL: none */
    bool required;             /* there is a tokens file */
    const struct trace *trace; /* NULL, or set after auth_open(): who was not let in */
    struct tokens tokens;
    uint64_t logins, wrong, denied; /* since the start */
};

/* What one caller may do: of a connection (RESP) or a request (HTTP). Zeroed: nobody. */
struct grant {
    char id[TOKEN_ID_BYTES];
    uint8_t mark[8]; /* of the token's hash: another token of the same id is another one */
    uint32_t row;    /* where it was last; a hint */
};

/* Reads the file at `path`, which outlives `a`. With `must_exist`, none is an error; without, it
 * means that no token is required. */
int auth_open(struct auth *a, const char *path, bool must_exist, struct clock wall,
              struct err *reterr);
int auth_reload(struct auth *a, struct err *reterr);
void auth_close(struct auth *a);

/* ---- for doors; `a` may be NULL: nobody has to say who they are ---- */

bool auth_required(const struct auth *a);

/* What the token is good for. ERR_INVALID: nothing; the text says why, as far as a stranger may
 * know. */
int auth_login(struct auth *a, struct bytes token_text, struct grant *ret_grant,
               struct err *reterr);

/* Is the grant still one? False: whoever holds it has to say who they are (again). */
bool auth_known(const struct auth *a, const struct grant *g);

/* Without a scope: of all scopes. */
bool auth_may(struct auth *a, const struct grant *g, enum verb verb, struct bytes scope);
bool auth_may_metrics(struct auth *a, const struct grant *g);

/* The one scope that it is good for, if it is one and said without a star; else empty. A view that
 * is good until the next reload. */
struct bytes auth_only_scope(const struct auth *a, const struct grant *g);

#endif
