/* tiered_step.c - one step at coord on behalf of an op, and the breaker.
 *
 * Guarantees (T2): a step is answered, or overdue at its deadline; one that is overdue is left behind
 * and freed when coord lets go of it. One missed deadline, or repeated failure, opens the breaker: coord
 * is not asked until a probe has worked, and the watches that wait there are canceled. */
#include "store/tiered.h"

#include "base/check.h"

#include <stdlib.h>

/* ---- the breaker ---- */

static void probe_later(struct tiered *t)
{
    int64_t half_ms = t->options.breaker_probe_ms / 2;
    timer_set(t->base.loop, &t->probe_timer,
              t->base.loop->now_ms + half_ms +
                  (int64_t)rng_below(t->rng, (uint64_t)half_ms + 1));
}

static void breaker_set(struct tiered *t, bool open)
{
    if (t->open == open) return;
    t->open = open;
    t->opened += open;
    trace_emit(t->trace, (struct trace_event){ .kind = TRACE_BREAKER,
                                               .number = open,
                                               .text = open ? "open" : "closed" });
    if (!open) {
        timer_stop(t->base.loop, &t->probe_timer);
        return;
    }
    probe_later(t);
    list_each (&t->watches, at)
        store_cancel(t->coord, container_of(at, struct watching, link)->op);
}

void tier_failed(struct tiered *t, const struct err *why)
{
    t->why = *why;
    trace_emit(t->trace, (struct trace_event){ .kind = TRACE_DEGRADED,
                                               .number = why->code,
                                               .text = err_name(why->code) });
    if (++t->failures >= t->options.breaker_failures) breaker_set(t, true);
}

/* A coord that hangs costs one deadline, not one a call: no second chance. */
void tier_hangs(struct tiered *t)
{
    struct err why;
    err_set(&why, ERR_UNAVAILABLE, "no answer within %lld ms",
            (long long)t->options.coord_deadline_ms);
    t->failures = t->options.breaker_failures;
    tier_failed(t, &why);
}

void tier_worked(struct tiered *t, uint64_t epoch)
{
    t->failures = 0;
    breaker_set(t, false);
    if (t->coord_epoch && t->coord_epoch != epoch) {
        t->amnesia++;
        trace_emit(t->trace,
                   (struct trace_event){ .kind = TRACE_AMNESIA, .number = (int64_t)epoch });
    }
    t->coord_epoch = epoch;
}

/* ---- a step at coord ---- */

static void go_on(struct tiered *t, struct op *parent, step_then *then,
                  const struct op *answered)
{
    if (!parent) return;
    if (!answered) parent->degraded = true;
    then(t, parent, answered);
}

static void tier_step_free(struct step *s)
{
    if (!s) return;
    op_free(s->op);
    free(s);
}

static void step_done(struct op *op, void *ctx)
{
    struct step *s = ctx;
    struct tiered *t = s->tiered;
    timer_stop(t->base.loop, &s->deadline);
    t->steps--;
    if (s->overdue) { /* it says nothing about now, and nobody waits for it */
        tier_step_free(s);
        return;
    }
    if (op->err.code)
        tier_failed(t, &op->err);
    else
        tier_worked(t, op->epoch);
    if (!s->parent) {
        tier_step_free(s);
        return;
    }
    s->parent->step = s;
    go_on(t, s->parent, s->then, op->err.code ? NULL : op);
}

static void step_overdue(struct timer *timer)
{
    struct step *s = container_of(timer, struct step, deadline);
    s->overdue = true;
    s->tiered->late++;
    tier_hangs(s->tiered);
    store_cancel(s->tiered->coord, s->op);
    go_on(s->tiered, s->parent, s->then, NULL);
}

/* Takes over `op`. NULL, like a lack of memory, gives NULL. */
struct step *tier_step_new(struct tiered *t, struct op *op)
{
    struct step *s = op ? malloc(sizeof *s) : NULL;
    if (!s) {
        op_free(op);
        return NULL;
    }
    *s = (struct step){ .tiered = t, .op = op };
    timer_init(&s->deadline, step_overdue);
    return s;
}

bool tier_step_reserve(struct tiered *t, struct op *parent)
{
    if (!parent->step) parent->step = tier_step_new(t, op_copy(parent, parent->verb));
    return parent->step;
}

/* The op's step, for the caller to fill in; NULL: coord is not to be asked, or cannot be. */
struct step *tier_step_for(struct tiered *t, struct op *parent, enum verb verb)
{
    if (t->open || !tier_step_reserve(t, parent)) return NULL;
    struct step *s = parent->step;
    parent->step = NULL;
    op_clear_answer(s->op);
    s->op->verb = verb;
    s->op->waits = verb == VERB_CLAIM && parent->waits;
    return s;
}

/* NULL counts as a coord that did not answer. */
void tier_step_start(struct tiered *t, struct op *parent, struct step *s, step_then *then)
{
    if (!s) {
        go_on(t, parent, then, NULL);
        return;
    }
    s->parent = parent;
    s->then = then;
    timer_set(t->base.loop, &s->deadline, t->base.loop->now_ms + t->options.coord_deadline_ms);
    t->steps++;
    op_push(s->op, step_done, s);
    store_submit(t->coord, s->op);
}

void tier_step(struct tiered *t, struct op *parent, enum verb verb, step_then *then)
{
    tier_step_start(t, parent, tier_step_for(t, parent, verb), then);
}

void tier_probe(struct timer *timer)
{
    struct tiered *t = container_of(timer, struct tiered, probe_timer);
    tier_step_start(t, NULL, tier_step_new(t, op_new(VERB_PING, NULL, NULL)), NULL);
    probe_later(t); /* until one works and closes the breaker */
}

/* ---- answering ---- */

void tier_step_drop(struct op *op)
{
    tier_step_free(op->step);
    op->step = NULL;
}

void tier_answer(struct op *op)
{
    tier_step_drop(op);
    op->out.degraded = op->degraded;
    op_finish(op);
}

void tier_then_answer(struct tiered *t, struct op *op, const struct op *answered)
{
    (void)t, (void)answered;
    tier_answer(op);
}
