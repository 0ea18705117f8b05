/* open.c - opening and closing a handle: configuration to planes, planes to one store. */
#include "base/check.h"
#include "lib/handle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void emit(void *ctx, const struct trace_event *event)
{
    struct once *o = ctx;
    struct once_event out = { .name = trace_name(event->kind),
                              .text = event->text,
                              .scope = { event->scope.data, event->scope.len },
                              .key = { event->key.data, event->key.len },
                              .number = event->number };
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
    if (config.flags & ~(ONCE_HOSTED | ONCE_EPHEMERAL))
        return err_set(reterr, ERR_INVALID, "unknown flags in the configuration");
    if (config.value_bytes_max < 0 || config.waiters_max < 0 || config.patience_ms < 0 ||
        config.sweep_ms < 0)
        return err_set(reterr, ERR_INVALID, "a limit in the configuration is negative");
    if (config.ledger && strcmp(config.ledger, "none") == 0) {
        config.ledger = NULL;
        config.flags |= ONCE_EPHEMERAL;
    }
    if ((config.flags & ONCE_EPHEMERAL) && config.ledger)
        return err_set(reterr, ERR_INVALID, "ONCE_EPHEMERAL has no ledger: leave it out");
    *ret = config;
    return 0;
}

static int default_ledger(const char *data_dir, char *url, size_t len, struct err *reterr)
{
    if (!data_dir) data_dir = ".";
    if (mkdir(data_dir, 0700) < 0 && errno != EEXIST)
        return err_set(reterr, ERR_UNAVAILABLE, "cannot create the directory %.120s: %s",
                       data_dir, strerror(errno));
    int n = snprintf(url, len, "sqlite:%s/once.db", data_dir);
    if (n < 0 || (size_t)n >= len)
        return err_set(reterr, ERR_LIMIT, "the path of the data directory is too long");
    return 0;
}

static int open_traced(struct once *o, const char *url, struct store **ret_store,
                       struct err *reterr)
{
    struct store *store;
    int r = store_open(url, &o->env, &store, reterr);
    if (r) return r;
    if (!o->env.trace) {
        *ret_store = store;
        return 0;
    }
    return traced_open(store, &o->env, ret_store, reterr);
}

static int open_ledger(struct once *o, struct store **ret_store, struct err *reterr)
{
    char url[4200];
    const char *ledger = o->config.ledger;
    if (!ledger) {
        int r = default_ledger(o->config.data_dir, url, sizeof url, reterr);
        if (r) return r;
        ledger = url;
    }
    struct store *store;
    int r = open_traced(o, ledger, &store, reterr);
    if (r) return r;
    if (!(store->caps & CAP_DURABLE)) {
        store_close(store);
        return err_set(reterr, ERR_INVALID,
                       "\"%.60s\" is lost in a restart and cannot be the ledger; use "
                       "sqlite:PATH or postgres://, or none to do without one",
                       ledger);
    }
    *ret_store = store;
    return 0;
}

/* coord "none": the ledger alone. */
static int open_planes(struct once *o, struct err *reterr)
{
    struct store *coord = NULL, *ledger = NULL;
    bool ephemeral = o->config.flags & ONCE_EPHEMERAL;
    const char *coord_url = o->config.coord ? o->config.coord : "memory:";
    bool no_coord = strcmp(coord_url, "none") == 0;
    if (ephemeral && no_coord)
        return err_set(reterr, ERR_INVALID, "neither a ledger nor coord: nothing to stand on");
    if (!ephemeral) {
        int r = open_ledger(o, &ledger, reterr);
        if (r) return r;
    }
    if (no_coord) {
        o->store = ledger;
        return 0;
    }
    int r = open_traced(o, coord_url, &coord, reterr);
    if (r) {
        store_close(ledger);
        return r;
    }
    if (ephemeral) {
        o->store = coord;
        return 0;
    }
    struct tiered_options options = TIERED_OPTIONS_INIT;
    if (coord->timeout_ms) options.coord_deadline_ms = coord->timeout_ms;
    return tiered_open(coord, ledger, &options, &o->env, &o->store, reterr);
}

static int open_engine(struct once *o, struct err *reterr)
{
    struct engine_config config = { .value_bytes_max = o->config.value_bytes_max,
                                    .waiters_max = (size_t)o->config.waiters_max,
                                    .patience_ms = o->config.patience_ms,
                                    .sweep_ms = o->config.sweep_ms };
    return engine_open(o->store, &o->env, &config, &o->engine, reterr);
}

static int open_parts(struct once *o, struct err *reterr)
{
    int r = drive_init(o, reterr);
    if (r) return r;
    rng_system_init(&o->rng);
    o->env = (struct store_env){ .loop = &o->loop, .wall = clock_wall(), .rng = &o->rng.base };
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
        o->config.ledger = o->config.coord = o->config.data_dir = NULL;
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
