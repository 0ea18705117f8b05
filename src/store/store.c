/* store.c - the table of stores, opening by URL, and the one way in: store_submit(). */
#include "store/store.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

static const struct store_class *const classes[] = { &memory_class, &sqlite_class,
                                                     &redis_class };

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

static int unknown_store(const char *url, struct err *reterr)
{
    char known[120] = "";
    size_t len = 0;
    for (size_t i = 0; i < sizeof classes / sizeof classes[0] && len < sizeof known; i++)
        len += (size_t)snprintf(known + len, sizeof known - len, " %s:", classes[i]->scheme);
    return err_set(reterr, ERR_INVALID, "unknown store \"%.40s\"; known are%s", url, known);
}

int store_open_bare(const char *url, const struct store_env *env, struct store **ret_store,
                    struct err *reterr)
{
    const char *rest;
    const struct store_class *class = class_of(url, &rest);
    if (!class) return unknown_store(url, reterr);
    return class->open(rest, env, ret_store, reterr);
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
    if (bare->caps & CAP_BLOCKS) return offload_open(bare, env, ret_store, reterr);
    return direct_open(bare, env, ret_store, reterr);
}

void store_close(struct store *s)
{
    if (s) s->class->close(s);
}

bool store_idle(const struct store *s)
{
    return !s->class->idle || s->class->idle(s);
}

void store_submit(struct store *s, struct op *op)
{
    CHECK(s->class->submit);
    CHECK(op->depth > 0);
    CHECK(!link_used(&op->link));
    CHECK(verb_info[op->verb].keyed == (op->frame.len > 0));
    op->loop = s->loop;
    op->canceled = op->parked = false;
    op->submitted_ms = s->loop->now_ms;
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
