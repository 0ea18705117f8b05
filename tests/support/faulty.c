/* faulty.c - see faulty.h. */
#include "tests/support/faulty.h"

#include "base/check.h"

#include <stdlib.h>

struct faulty {
    struct store base;
    struct store *inner;
    struct task task;
    struct list refused, held; /* refused: with their error, to be told in the next turn */
    struct {
        enum fault fault;
        unsigned times, count;
    } verbs[VERBS];
    size_t held_count;
    uint64_t heard, watch_heard;
};

static void tell(struct task *task)
{
    struct faulty *f = container_of(task, struct faulty, task);
    ops_finish(&f->refused);
}

static void refuse(struct faulty *f, struct op *op, int code)
{
    op_clear_answer(op);
    err_set(&op->err, code, "%s", "it was told to fail");
    list_append(&f->refused, &op->link);
    task_post(f->base.loop, &f->task);
}

static void lose_answer(struct op *op, void *ctx)
{
    (void)ctx;
    op_fail(op, ERR_AMBIGUOUS, "the answer was lost");
}

static void leave_word(struct op *op, void *ctx)
{
    const struct faulty *f = ctx;
    bool met = !op->err.code && op->out.outcome == OUTCOME_IN_PROGRESS;
    op->heard = met ? f->heard : 0;
    op_finish(op);
}

static enum fault next_fault(struct faulty *f, enum verb verb)
{
    f->verbs[verb].count++;
    if (f->verbs[verb].times == 0) return FAULT_NONE;
    f->verbs[verb].times--;
    return f->verbs[verb].fault;
}

static void faulty_submit(struct store *s, struct op *op)
{
    struct faulty *f = (struct faulty *)s;
    if (op->verb == VERB_WATCH) f->watch_heard = op->heard;
    if (op->waits && f->heard) op_push(op, leave_word, f);
    switch (next_fault(f, op->verb)) {
    case FAULT_REFUSE:
        refuse(f, op, ERR_UNAVAILABLE);
        return;
    case FAULT_LOSE_REQUEST:
        refuse(f, op, ERR_AMBIGUOUS);
        return;
    case FAULT_HOLD:
        list_append(&f->held, &op->link);
        f->held_count++;
        return;
    case FAULT_LOSE_ANSWER:
        op_push(op, lose_answer, f);
        break;
    case FAULT_NONE:
        break;
    }
    store_submit(f->inner, op);
}

static bool is_held(struct faulty *f, const struct op *op)
{
    list_each (&f->held, at)
        if (at == &op->link) return true;
    return false;
}

static void faulty_cancel(struct store *s, struct op *op)
{
    struct faulty *f = (struct faulty *)s;
    if (op->verb != VERB_WATCH) return;
    if (is_held(f, op)) {
        link_remove(&op->link);
        f->held_count--;
        refuse(f, op, ERR_CANCELED);
        return;
    }
    if (!op->err.code) store_cancel(f->inner, op); /* with an error it is about to finish */
}

static bool faulty_idle(const struct store *s)
{
    const struct faulty *f = (const struct faulty *)s;
    return f->held_count == 0 && list_empty(&f->refused) && store_idle(f->inner);
}

static void faulty_close(struct store *s)
{
    struct faulty *f = (struct faulty *)s;
    CHECK(list_empty(&f->held) && list_empty(&f->refused));
    task_stop(&f->task);
    store_close(f->inner);
    free(f);
}

static const struct store_class faulty_class = {
    .scheme = "faulty",
    .close = faulty_close,
    .submit = faulty_submit,
    .cancel = faulty_cancel,
    .idle = faulty_idle,
};

struct store *faulty_open(struct store *inner, const struct store_env *env)
{
    struct faulty *f = calloc(1, sizeof *f);
    CHECK(f);
    f->inner = inner;
    f->base = (struct store){
        .class = &faulty_class, .caps = inner->caps, .loop = env->loop, .epoch = inner->epoch
    };
    task_init(&f->task, tell);
    list_init(&f->refused);
    list_init(&f->held);
    return &f->base;
}

void faulty_set(struct store *s, enum verb verb, enum fault fault, unsigned times)
{
    struct faulty *f = (struct faulty *)s;
    for (int v = 0; v < VERBS; v++) {
        if (verb != VERBS && (int)verb != v) continue;
        f->verbs[v].fault = fault;
        f->verbs[v].times = times;
    }
}

void faulty_heal(struct store *s)
{
    faulty_set(s, VERBS, FAULT_NONE, 0);
}

void faulty_let_go(struct store *s)
{
    struct faulty *f = (struct faulty *)s;
    f->held_count = 0;
    for (struct link *at; (at = list_pop(&f->held));)
        store_submit(f->inner, container_of(at, struct op, link));
}

void faulty_hears(struct store *s, uint64_t heard)
{
    ((struct faulty *)s)->heard = heard;
}

uint64_t faulty_watch_heard(const struct store *s)
{
    return ((const struct faulty *)s)->watch_heard;
}

unsigned faulty_count(const struct store *s, enum verb verb)
{
    return ((const struct faulty *)s)->verbs[verb].count;
}

size_t faulty_held(const struct store *s)
{
    return ((const struct faulty *)s)->held_count;
}
