/* direct.c - runs the exec() of a store that never blocks on the loop itself.
 *
 * Guarantees: what is submitted in one turn becomes one batch of the next; ops finish in submit
 * order; parked watches are woken by the change they wait for. */
#include "base/check.h"
#include "store/store.h"
#include "store/watches.h"

#include <stdlib.h>

enum { DIRECT_BATCH_MAX = 256 };

struct direct {
    struct store base;
    struct store *inner;
    struct task task;
    struct list queue, finished; /* finished: canceled or woken, to be told in the next turn */
    struct watches watches;
};

static void direct_run(struct task *task)
{
    struct direct *d = container_of(task, struct direct, task);
    struct op *ops[DIRECT_BATCH_MAX];
    size_t count = 0;
    for (struct link *at; count < DIRECT_BATCH_MAX && (at = list_pop(&d->queue));)
        ops[count++] = container_of(at, struct op, link);
    if (count) d->inner->class->exec(d->inner, ops, count);
    for (size_t i = 0; i < count; i++) watches_settle(&d->watches, ops[i], &d->finished);
    if (!list_empty(&d->queue)) task_post(d->base.loop, &d->task);
    ops_finish(&d->finished);
}

static void direct_submit(struct store *s, struct op *op)
{
    struct direct *d = (struct direct *)s;
    list_append(&d->queue, &op->link);
    task_post(s->loop, &d->task);
}

static void direct_cancel(struct store *s, struct op *op)
{
    struct direct *d = (struct direct *)s;
    if (op->verb != VERB_WATCH || op->canceled) return;
    op->canceled = true;
    watches_cancel(&d->watches, op, &d->finished);
    task_post(s->loop, &d->task);
}

static void direct_close(struct store *s)
{
    struct direct *d = (struct direct *)s;
    CHECK(list_empty(&d->queue) && list_empty(&d->finished));
    CHECK(d->watches.count == 0);
    task_stop(&d->task);
    store_close(d->inner);
    free(d);
}

static const struct store_class direct_class = {
    .scheme = "direct",
    .close = direct_close,
    .submit = direct_submit,
    .cancel = direct_cancel,
};

int direct_open(struct store *inner, const struct store_env *env, struct store **ret_store,
                struct err *reterr)
{
    struct direct *d = malloc(sizeof *d);
    if (!d) {
        store_close(inner);
        return err_set(reterr, ERR_NOMEM, "out of memory opening a store");
    }
    *d = (struct direct){ .inner = inner };
    d->base = (struct store){
        .class = &direct_class, .caps = inner->caps, .loop = env->loop, .epoch = inner->epoch
    };
    task_init(&d->task, direct_run);
    list_init(&d->queue);
    list_init(&d->finished);
    watches_init(&d->watches, (uint64_t[2]){ rng_u64(env->rng), rng_u64(env->rng) });
    *ret_store = &d->base;
    return 0;
}
