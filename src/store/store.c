/* store.c - the table of stores, opening by URL, and the one way in: store_submit(). */
#include "store/store.h"

#include "base/check.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

static const struct store_class *const classes[] = {
    &memory_class,     &sqlite_class, &redis_class,      &postgres_class,
    &postgresql_class, &remote_class, &remote_tls_class,
};

static const struct store_class *class_of(const char *url, const char **ret_rest)
{
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        size_t len = strlen(classes[i]->scheme);
        if (strncmp(url, classes[i]->scheme, len) != 0 || url[len] != ':') continue;
        *ret_rest = url + len + 1;
        return classes[i];
    }
    return NULL;
}

/* Shows the scheme only: what follows may hold a password. What has none is shown if it is one
 * word; "host=... password=..." is not. */
static int unknown_store(const char *url, struct err *reterr)
{
    char known[120] = "", shown[40];
    size_t len = 0;
    url_shown(url, shown, sizeof shown);
    shown[strcspn(shown, ":/ ")] = '\0';
    for (size_t i = 0; i < sizeof classes / sizeof classes[0] && len < sizeof known; i++)
        len += (size_t)snprintf(known + len, sizeof known - len, " %s:", classes[i]->scheme);
    return err_set(reterr, ERR_INVALID, "unknown store \"%s\"; known are%s", shown, known);
}

int store_open_bare(const char *url, const struct store_env *env, struct store **ret_store,
                    struct err *reterr)
{
    const char *rest;
    const struct store_class *class = class_of(url, &rest);
    if (!class) return unknown_store(url, reterr);
    return class->open(rest, env, ret_store, reterr);
}

static int open_lane(const char *url, const struct store_env *env, struct store **ret_store,
                     struct err *reterr)
{
    struct store *bare;
    int r = store_open_bare(url, env, &bare, reterr);
    return r ? r : offload_open(bare, env, ret_store, reterr);
}

/* A thread and a connection each; the first one is open already. Those that sweep connect when there
 * is something to sweep. */
static int open_lanes(const char *url, struct store *bare, const struct store_env *env,
                      struct store **ret_store, struct err *reterr)
{
    struct store *lanes[STORE_LANES_MAX];
    struct lane_counts want = { bare->lanes + bare->readers + bare->sweepers, bare->readers,
                                bare->sweepers };
    struct store_env later = *env;
    later.later = true;
    unsigned count = 0;
    CHECK(want.count <= STORE_LANES_MAX);
    int r = offload_open(bare, env, &lanes[0], reterr);
    if (!r && want.count <= 1) {
        *ret_store = lanes[0];
        return 0;
    }
    for (count = r ? 0 : 1; !r && count < want.count; count += !r)
        r = open_lane(url, count < want.count - want.sweepers ? env : &later, &lanes[count],
                      reterr);
    if (!r) return lanes_open(lanes, want, env, ret_store, reterr);
    while (count) store_close(lanes[--count]);
    return r;
}

int store_open(const char *url, const struct store_env *env, struct store **ret_store,
               struct err *reterr)
{
    struct store *bare;
    int r = store_open_bare(url, env, &bare, reterr);
    if (r) return r;
    if (bare->class->submit) {
        *ret_store = bare;
        return 0;
    }
    if (bare->caps & CAP_BLOCKS) return open_lanes(url, bare, env, ret_store, reterr);
    return direct_open(bare, env, ret_store, reterr);
}

int store_migrate(const char *url, const struct store_env *env, bool print, store_say *say,
                  void *ctx, struct err *reterr)
{
    const char *rest;
    struct store *opened;
    const struct store_class *class = class_of(url, &rest);
    if (!class) return unknown_store(url, reterr);
    if (class->migrate) return class->migrate(rest, env, print, say, ctx, reterr);
    if (print)
        return err_set(reterr, ERR_UNSUPPORTED,
                       "%s: brings its schema up to date by itself: there is no SQL to apply",
                       class->scheme);
    int r = class->open(rest, env, &opened, reterr);
    if (r) return r;
    store_close(opened);
    say(ctx, "up to date: it sees to that whenever it is opened");
    return 0;
}

int store_migrate_markers(const char *url, const struct store_env *env,
                          const struct marker_settings *settings, store_say *say, void *ctx,
                          struct err *reterr)
{
    const char *rest;
    const struct store_class *class = class_of(url, &rest);
    if (!class) return unknown_store(url, reterr);
    if (class->migrate_markers)
        return class->migrate_markers(rest, env, settings, say, ctx, reterr);
    return err_set(reterr, ERR_UNSUPPORTED,
                   "%s: markers are in a database: use postgres:// or sqlite:PATH",
                   class->scheme);
}

void store_close(struct store *s)
{
    if (s) s->class->close(s);
}

bool store_idle(const struct store *s)
{
    return !s->class->idle || s->class->idle(s);
}

void store_meters(struct store *s, const char *plane, meter_say *say, void *ctx)
{
    if (s->class->meters) s->class->meters(s, plane, say, ctx);
}

void store_submit(struct store *s, struct op *op)
{
    CHECK(s->class->submit);
    CHECK(op->depth > 0);
    CHECK(!link_used(&op->link));
    CHECK(verb_info[op->verb].keyed == (op->frame.len > 0));
    CHECK(!verb_is_run(op->verb) || (s->caps & CAP_RUNS && op->run));
    CHECK(!verb_is_buffer(op->verb) || (s->caps & CAP_BUFFER && op->buffer));
    CHECK(op->verb != VERB_ACCEPT || !op->buffer->fresh || s->caps & CAP_FRESH);
    CHECK(op->verb != VERB_GATE || (s->caps & CAP_GATE && op->gate));
    CHECK(op->verb != VERB_RUN_CALL || (s->caps & CAP_CALLS && op->call));
    CHECK(op->verb != VERB_MUTATION || (s->caps & CAP_CALLS && op->mutation));
    CHECK(op->verb != VERB_MARKERS_SWEEP || s->caps & CAP_MARKERS);
    op->loop = s->loop;
    op->canceled = op->parked = op->polled = false;
    op->submitted_ms = s->loop->now_ms;
    op->submitted_us = s->loop->now_us;
    s->loop->submitting++;
    s->class->submit(s, op);
    s->loop->submitting--;
}

void store_cancel(struct store *s, struct op *op)
{
    if (!s->class->cancel) return;
    s->loop->submitting++;
    s->class->cancel(s, op);
    s->loop->submitting--;
}
