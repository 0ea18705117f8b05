/* migrate.c - bringing the schema of a ledger, or of markers, up to date, without opening a handle. */
#include "lib/handle.h"

#include <string.h>

enum { PARTITIONS_MAX = 1024, TTL_MS_MIN = 1000 };

struct migration {
    struct loop loop;
    struct rng_system rng;
    struct store_env env;
    struct err err;
};

static void migration_begin(struct migration *m)
{
    m->err = (struct err){ 0 };
    loop_init(&m->loop, 0);
    rng_system_init(&m->rng);
    m->env = (struct store_env){ .loop = &m->loop, .wall = clock_wall(), .rng = &m->rng.base };
}

static int migration_end(struct migration *m, int r, struct once_error *reterr)
{
    loop_fini(&m->loop);
    return r ? api_fail(reterr, &m->err) : 0;
}

/* A newer caller may know more fields, an older one fewer: take what both know. */
static int settings_take(const struct once_marker_settings *in, struct marker_settings *ret,
                         struct err *reterr)
{
    struct once_marker_settings s = ONCE_MARKER_SETTINGS_INIT;
    if (in && in->size < sizeof(size_t))
        return err_set(reterr, ERR_INVALID,
                       "start with ONCE_MARKER_SETTINGS_INIT: size is not set");
    if (in) memcpy(&s, in, in->size < sizeof s ? in->size : sizeof s);
    if (s.ttl_ms < -1 || (s.ttl_ms >= 0 && s.ttl_ms < TTL_MS_MIN))
        return err_set(reterr, ERR_INVALID, "a marker counts for a second at least");
    if (s.partitions < -1 || s.partitions > PARTITIONS_MAX)
        return err_set(reterr, ERR_INVALID, "partitions are 0 to %d", PARTITIONS_MAX);
    *ret = (struct marker_settings){ .ttl_ms = s.ttl_ms < 0 ? 0 : s.ttl_ms,
                                     .partitions = s.partitions };
    return 0;
}

int once_migrate_mutations(const char *ledger, unsigned flags,
                           const struct once_marker_settings *settings, once_say_fn *say,
                           void *ctx, struct once_error *reterr)
{
    struct migration m;
    struct marker_settings ours;
    migration_begin(&m);
    const unsigned known = ONCE_MIGRATE_PRINT | ONCE_MIGRATE_MUTATIONS;
    int r = !ledger || !say || (flags & ~known)
                ? err_set(&m.err, ERR_INVALID,
                          "once_migrate_mutations() wants a ledger and whom to tell")
                : settings_take(settings, &ours, &m.err);
    if (!r) {
        ours.print = flags & ONCE_MIGRATE_PRINT;
        r = store_migrate_markers(ledger, &m.env, &ours, say, ctx, &m.err);
    }
    return migration_end(&m, r, reterr);
}

int once_migrate(const char *ledger, unsigned flags, once_say_fn *say, void *ctx,
                 struct once_error *reterr)
{
    if (flags & ONCE_MIGRATE_MUTATIONS)
        return once_migrate_mutations(ledger, flags, NULL, say, ctx, reterr);
    struct migration m;
    migration_begin(&m);
    int r = !ledger || !say || (flags & ~ONCE_MIGRATE_PRINT)
                ? err_set(&m.err, ERR_INVALID, "once_migrate() wants a ledger and whom to tell")
                : store_migrate(ledger, &m.env, flags & ONCE_MIGRATE_PRINT, say, ctx, &m.err);
    return migration_end(&m, r, reterr);
}
