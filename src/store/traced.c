/* traced.c - emits one event per finished op of the store it wraps: verb, outcome, duration.
 * The example of a decorator: it knows no verb and no store. */
#include "base/check.h"
#include "store/store.h"

#include <stdlib.h>

struct traced {
    struct store base;
    struct store *inner;
    const struct trace *trace;
};

static void traced_done(struct op *op, void *ctx)
{
    struct traced *t = ctx;
    trace_emit(t->trace,
               (struct trace_event){
                   .kind = TRACE_OP,
                   .scope = op->key.scope,
                   .key = op->key.name,
                   .number = t->base.loop->now_ms - op->submitted_ms,
                   .text = op->err.code ? err_name(op->err.code) : verb_info[op->verb].name,
               });
    op_finish(op);
}

static void traced_submit(struct store *s, struct op *op)
{
    struct traced *t = (struct traced *)s;
    op_push(op, traced_done, t);
    store_submit(t->inner, op);
}

static void traced_cancel(struct store *s, struct op *op)
{
    store_cancel(((struct traced *)s)->inner, op);
}

static bool traced_idle(const struct store *s)
{
    return store_idle(((const struct traced *)s)->inner);
}

static void traced_close(struct store *s)
{
    store_close(((struct traced *)s)->inner);
    free(s);
}

static const struct store_class traced_class = {
    .scheme = "traced",
    .close = traced_close,
    .submit = traced_submit,
    .cancel = traced_cancel,
    .idle = traced_idle,
};

int traced_open(struct store *inner, const struct store_env *env, struct store **ret_store,
                struct err *reterr)
{
    struct traced *t = malloc(sizeof *t);
    if (!t) {
        store_close(inner);
        return err_set(reterr, ERR_NOMEM, "out of memory opening a store");
    }
    *t = (struct traced){ .inner = inner, .trace = env->trace };
    t->base = (struct store){
        .class = &traced_class, .caps = inner->caps, .loop = env->loop, .epoch = inner->epoch
    };
    *ret_store = &t->base;
    return 0;
}
