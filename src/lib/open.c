/* open.c - opening and closing a handle: configuration to a store, an engine and who drives it. */
#include "base/check.h"
#include "lib/handle.h"
#include "lib/planes.h"

#include <stdlib.h>
#include <string.h>

/* A handle that is opened for one call moves nobody else's runs. */
enum { DRAIN_AFTER_MS = 1000 };

static void emit(void *ctx, const struct trace_event *event)
{
    struct once *o = ctx;
    struct once_event out = { .name = trace_name(event->kind),
                              .text = event->text,
                              .scope = { event->scope.data, event->scope.len },
                              .key = { event->key.data, event->key.len },
                              .number = event->number,
                              .detail = event->detail };
    o->config.on_event(o->config.on_event_ctx, &out);
}

/* A newer caller may know more fields, an older one fewer: take what both know. */
static int config_take(const struct once_config *in, struct once_config *ret,
                       struct err *reterr)
{
    struct once_config config = ONCE_CONFIG_INIT;
    if (in && in->size < sizeof(size_t))
        return err_set(reterr, ERR_INVALID, "start with ONCE_CONFIG_INIT: size is not set");
    if (in) memcpy(&config, in, in->size < sizeof config ? in->size : sizeof config);
    config.size = sizeof config;
    if (config.flags & ~(ONCE_HOSTED | ONCE_EPHEMERAL | ONCE_RUNS | ONCE_MARKERS))
        return err_set(reterr, ERR_INVALID, "unknown flags in the configuration");
    if ((config.flags & ONCE_MARKERS) && (config.flags & (ONCE_EPHEMERAL | ONCE_RUNS)))
        return err_set(reterr, ERR_INVALID,
                       "ONCE_MARKERS is for markers alone, which are in a ledger's database");
    if (config.value_bytes_max < 0 || config.waiters_max < 0 || config.patience_ms < 0 ||
        config.sweep_ms < 0)
        return err_set(reterr, ERR_INVALID, "a limit in the configuration is negative");
    *ret = config;
    return 0;
}

static int open_planes(struct once *o, struct err *reterr)
{
    struct planes_config config = { .ledger = o->config.ledger,
                                    .coord = o->config.coord,
                                    .data_dir = o->config.data_dir,
                                    .ephemeral = o->config.flags & ONCE_EPHEMERAL,
                                    .url = o->config.url,
                                    .runs = o->config.flags & ONCE_RUNS,
                                    .markers = o->config.flags & ONCE_MARKERS };
    int r = planes_settle(&config, reterr);
    if (r) return r;
    if (config.ephemeral) o->config.flags |= ONCE_EPHEMERAL;
    return planes_open(&config, &o->env, &o->store, reterr);
}

static int open_engine(struct once *o, struct err *reterr)
{
    struct runs_config runs = RUNS_CONFIG_INIT;
    runs.watches = runs.drains = o->config.flags & ONCE_RUNS;
    runs.drain_after_ms = DRAIN_AFTER_MS;
    if (o->config.flags & ONCE_MARKERS) o->config.sweep_ms = 0; /* there are no records */
    struct engine_config config = { .value_bytes_max = o->config.value_bytes_max,
                                    .waiters_max = (size_t)o->config.waiters_max,
                                    .patience_ms = o->config.patience_ms,
                                    .sweep_ms = o->config.sweep_ms,
                                    .markers_ms = o->config.sweep_ms ? ENGINE_MARKERS_MS : 0,
                                    .runs = &runs };
    return engine_open(o->store, &o->env, &config, &o->engine, reterr);
}

static int open_parts(struct once *o, struct err *reterr)
{
    int r = drive_init(o, reterr);
    if (r) return r;
    rng_system_init(&o->rng);
    o->env = (struct store_env){ .loop = &o->loop,
                                 .wall = clock_wall(),
                                 .monotonic = clock_monotonic(),
                                 .rng = &o->rng.base };
    if (o->config.on_event) {
        o->trace = (struct trace){ .emit = emit, .ctx = o };
        o->env.trace = &o->trace;
    }
    r = open_planes(o, reterr);
    if (!r) r = open_engine(o, reterr);
    if (!r) r = drive_start(o, reterr);
    return r;
}

int once_open(const struct once_config *config, struct once **ret_once,
              struct once_error *reterr)
{
    struct err err = { 0 };
    struct once_error ignored;
    if (!reterr) reterr = &ignored;
    struct once *o = calloc(1, sizeof *o);
    int r = o ? 0 : err_set(&err, ERR_NOMEM, "out of memory opening a handle");
    if (!r) r = config_take(config, &o->config, &err);
    if (!r) r = open_parts(o, &err);
    if (!r) {
        o->config.ledger = o->config.coord = o->config.data_dir = o->config.url = NULL;
        *ret_once = o;
        return 0;
    }
    reterr->code = r;
    memcpy(reterr->text, err.text, sizeof reterr->text);
    once_close(o);
    return r;
}

void once_close(struct once *o)
{
    if (!o) return;
    drive_stop(o);
    if (o->engine) {
        engine_stop(o->engine);
        drive_turns(o);
        while (!engine_idle(o->engine) || !store_idle(o->store)) {
            loop_sleep(&o->loop, loop_next_ms(&o->loop, clock_now_ms(&o->monotonic)));
            drive_turns(o);
        }
        engine_free(o->engine);
    }
    store_close(o->store);
    drive_fini(o);
    free(o);
}
