/* migrate.c - bringing the schema of a ledger up to date, without opening a handle. */
#include "lib/handle.h"

#include <string.h>

int once_migrate(const char *ledger, unsigned flags, once_say_fn *say, void *ctx,
                 struct once_error *reterr)
{
    struct err err = { 0 };
    struct loop loop;
    struct rng_system rng;
    loop_init(&loop, 0);
    rng_system_init(&rng);
    struct store_env env = { .loop = &loop, .wall = clock_wall(), .rng = &rng.base };
    bool print = flags & ONCE_MIGRATE_PRINT;
    int r = !ledger || !say || (flags & ~ONCE_MIGRATE_PRINT)
                ? err_set(&err, ERR_INVALID, "once_migrate() wants a ledger and whom to tell")
                : store_migrate(ledger, &env, print, say, ctx, &err);
    loop_fini(&loop);
    if (r && reterr) {
        reterr->code = r;
        memcpy(reterr->text, err.text, sizeof reterr->text);
    }
    return r;
}
