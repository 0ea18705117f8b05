/* guard.c - see guard.h. */
#include "daemon/guard.h"

#include "daemon/listen.h"

#include <stdlib.h>

int guard_open(struct guard *g, const struct guard_config *config, struct err *reterr)
{
    struct guard opened = { .insecure = config->insecure };
    if (config->tokens && !(opened.tokens = strdup(config->tokens)))
        return err_set(reterr, ERR_NOMEM, "out of memory opening the server");
    int r = auth_open(&opened.auth, opened.tokens, config->tokens_needed, clock_wall(), reterr);
    if (r) {
        guard_close(&opened);
        return r;
    }
    *g = opened;
    return 0;
}

int guard_reload(struct guard *g, struct err *reterr)
{
    return auth_reload(&g->auth, reterr);
}

void guard_close(struct guard *g)
{
    auth_close(&g->auth);
    free(g->tokens);
    *g = (struct guard){ 0 };
}

int guard_check(const struct guard *g, const char *address, struct err *reterr)
{
    union address a;
    int r = address_parse(address, &a, reterr);
    if (r) return r;
    if (address_is_local(&a)) return 0;
    if (!tokens_live(&g->auth.tokens, clock_now_ms(&g->auth.wall)))
        return err_set(reterr, ERR_INVALID,
                       "%.40s is not loopback, and everybody who reaches it could claim and "
                       "publish: make a token first (once token create --name NAME), or use "
                       "127.0.0.1, [::1] or unix:PATH",
                       address);
    if (!g->insecure)
        return err_set(reterr, ERR_INVALID,
                       "%.40s is not loopback, and tokens and values would cross the network "
                       "in the clear: --insecure says that this is fine, because something "
                       "else encrypts",
                       address);
    return 0;
}
