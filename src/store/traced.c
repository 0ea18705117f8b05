/* traced.c - counts what the store it wraps is asked and answers, and emits one event per finished
 * op: verb, outcome, duration. The example of a decorator: it knows no verb and no store, but that a
 * watch takes as long as it takes. */
#include "base/check.h"
#include "store/store.h"

#include <stdlib.h>

#define ERR_COUNT(code, value, name, retryable, text) +1
enum { ERRS = 0 ERR_LIST(ERR_COUNT) }; /* numbered from -1 */
#undef ERR_COUNT

struct traced {
    struct store base;
    struct store *inner;
    const struct trace *trace;
    uint64_t asked[VERBS], answered[VERBS], failed[ERRS + 1];
    bool failing; /* the last one that was answered had no answer */
    struct histogram times;
};

/* Only these say something of the plane: the others are refused by it, or have changed their mind. */
static bool is_away(int code)
{
    return code == ERR_UNAVAILABLE || code == ERR_AMBIGUOUS;
}

static void count(struct traced *t, const struct op *op)
{
    t->answered[op->verb]++;
    if (op->verb == VERB_WATCH)
        return; /* who changes their mind cancels it: that is no failure */
    t->failed[-op->err.code]++;
    t->failing = is_away(op->err.code);
    if (verb_info[op->verb].keyed)
        histogram_add(&t->times, &histogram_us,
                      (uint64_t)(t->base.loop->now_us - op->submitted_us));
}

static void tell(const struct traced *t, const struct op *op)
{
    trace_emit(t->trace,
               (struct trace_event){
                   .kind = TRACE_OP,
                   .scope = op->key.scope,
                   .key = op->key.name,
                   .number = t->base.loop->now_ms - op->submitted_ms,
                   .text = op->err.code ? err_name(op->err.code) : verb_info[op->verb].name,
               });
}

static void traced_done(struct op *op, void *ctx)
{
    struct traced *t = ctx;
    count(t, op);
    t->base.caps = t->inner->caps; /* a daemon says what it can when it is reached */
    if (trace_hears(t->trace, TRACE_OP)) tell(t, op);
    op_finish(op);
}

static void traced_submit(struct store *s, struct op *op)
{
    struct traced *t = (struct traced *)s;
    t->asked[op->verb]++;
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

static uint64_t pending(const struct traced *t)
{
    uint64_t sum = 0;
    for (int v = 0; v < VERBS; v++)
        if (v != VERB_WATCH) sum += t->asked[v] - t->answered[v];
    return sum;
}

static void traced_meters(struct store *s, const char *plane, meter_say *say, void *ctx)
{
    const struct traced *t = (const struct traced *)s;
    struct meter m = { .id = METER_OPS, .plane = plane };
    for (int v = 0; v < VERBS; v++) {
        m.label = verb_info[v].name;
        m.value = t->answered[v];
        say(ctx, &m);
    }
    m.id = METER_FAILED;
    for (int code = 1; code <= ERRS; code++) {
        m.label = err_name(-code);
        m.value = t->failed[code];
        say(ctx, &m);
    }
    uint64_t watches = t->asked[VERB_WATCH] - t->answered[VERB_WATCH];
    say(ctx, &(struct meter){ .id = METER_UP, .plane = plane, .value = !t->failing });
    say(ctx, &(struct meter){ .id = METER_OP_TIME, .plane = plane, .histogram = &t->times });
    say(ctx, &(struct meter){ .id = METER_PENDING, .plane = plane, .value = pending(t) });
    say(ctx, &(struct meter){ .id = METER_WATCHES, .plane = plane, .value = watches });
    store_meters(t->inner, plane, say, ctx);
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
    .meters = traced_meters,
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
    t->base = (struct store){ .class = &traced_class,
                              .caps = inner->caps,
                              .loop = env->loop,
                              .timeout_ms = inner->timeout_ms,
                              .epoch = inner->epoch };
    *ret_store = &t->base;
    return 0;
}
