/* guard.c - see guard.h. */
#include "daemon/guard.h"

#include "daemon/listen.h"

#include <stdlib.h>

static int keep(const char *text, char **ret, struct err *reterr)
{
    if (!text || (*ret = strdup(text))) return 0;
    return err_set(reterr, ERR_NOMEM, "out of memory opening the server");
}

static int keep_paths(struct guard *g, const struct guard_config *config, struct err *reterr)
{
    if (!config->tls_cert != !config->tls_key)
        return err_set(reterr, ERR_INVALID,
                       "TLS needs both: --tls-cert FILE and --tls-key FILE");
    int r = keep(config->tokens, &g->tokens, reterr);
    if (!r) r = keep(config->tls_cert, &g->tls_cert, reterr);
    if (!r) r = keep(config->tls_key, &g->tls_key, reterr);
    return r;
}

static int load_keys(struct guard *g, struct err *reterr)
{
    return g->tls_cert ? tls_keys_load(&g->keys, g->tls_cert, g->tls_key, reterr) : 0;
}

int guard_open(struct guard *g, const struct guard_config *config, struct err *reterr)
{
    *g = (struct guard){ .insecure = config->insecure };
    int r = keep_paths(g, config, reterr);
    if (!r) r = auth_open(&g->auth, g->tokens, config->tokens_needed, clock_wall(), reterr);
    if (!r) r = load_keys(g, reterr);
    if (r) guard_close(g);
    return r;
}

/* One that fails does not keep the other from being reloaded. */
int guard_reload(struct guard *g, struct err *reterr)
{
    struct err second;
    int r = auth_reload(&g->auth, reterr);
    return r ? (load_keys(g, &second), r) : load_keys(g, reterr);
}

void guard_close(struct guard *g)
{
    auth_close(&g->auth);
    tls_keys_fini(&g->keys);
    free(g->tokens);
    free(g->tls_cert);
    free(g->tls_key);
    *g = (struct guard){ 0 };
}

const struct tls_keys *guard_keys(const struct guard *g)
{
    return g->keys.ctx ? &g->keys : NULL;
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
    if (!g->keys.ctx && !g->insecure)
        return err_set(reterr, ERR_INVALID,
                       "%.40s is not loopback, and tokens and values would cross the network "
                       "in the clear: give --tls-cert and --tls-key, or say --insecure",
                       address);
    return 0;
}
