/* loop.c - see loop.h. Order within a turn: sources, due timers, tasks. */
#include "base/loop.h"

#include "base/check.h"

void loop_init(struct loop *l, int64_t now_ms)
{
    *l = (struct loop){ .now_ms = now_ms };
    heap_init(&l->timers);
    list_init(&l->tasks);
    list_init(&l->sources);
}

void loop_fini(struct loop *l)
{
    CHECK(list_empty(&l->sources));
    while (list_pop(&l->tasks))
        ;
    while (heap_first(&l->timers)) heap_remove(&l->timers, heap_first(&l->timers));
}

void timer_init(struct timer *t, void (*fire)(struct timer *))
{
    heap_node_init(&t->node);
    t->fire = fire;
}

bool timer_is_set(const struct timer *t)
{
    return heap_has(NULL, &t->node);
}

void timer_stop(struct loop *l, struct timer *t)
{
    if (timer_is_set(t)) heap_remove(&l->timers, &t->node);
}

void timer_set(struct loop *l, struct timer *t, int64_t at_ms)
{
    timer_stop(l, t);
    heap_add(&l->timers, &t->node, at_ms);
}

void task_init(struct task *t, void (*run)(struct task *))
{
    link_init(&t->link);
    t->run = run;
}

void task_post(struct loop *l, struct task *t)
{
    if (!link_used(&t->link)) list_append(&l->tasks, &t->link);
}

void task_stop(struct task *t)
{
    link_remove(&t->link);
}

void source_add(struct loop *l, struct source *s)
{
    link_init(&s->link);
    list_append(&l->sources, &s->link);
}

void source_remove(struct source *s)
{
    link_remove(&s->link);
}

void loop_wake(struct loop *l)
{
    if (l->wake) l->wake(l->wake_ctx);
}

int64_t loop_next_ms(const struct loop *l, int64_t now_ms)
{
    if (!list_empty(&l->tasks)) return 0;
    const struct heap_node *first = heap_first(&l->timers);
    if (!first) return -1;
    return first->at_ms <= now_ms ? 0 : first->at_ms - now_ms;
}

static void run_timers(struct loop *l)
{
    /* What a timer sets for "now" waits for the next turn, or a busy one would starve the
     * rest. */
    uint64_t newest = l->timers.order;
    for (struct heap_node *n; (n = heap_first(&l->timers)) && n->at_ms <= l->now_ms;) {
        if (n->order >= newest) break;
        heap_remove(&l->timers, n);
        struct timer *t = container_of(n, struct timer, node);
        t->fire(t);
    }
}

static void run_tasks(struct loop *l)
{
    struct list due;
    list_init(&due);
    list_take(&due, &l->tasks);
    for (struct link *at; (at = list_pop(&due));) {
        struct task *t = container_of(at, struct task, link);
        t->run(t);
    }
}

void loop_update(struct loop *l, int64_t now_ms)
{
    if (now_ms > l->now_ms) l->now_ms = now_ms;
}

void loop_turn(struct loop *l, int64_t now_ms)
{
    CHECK(l->submitting == 0);
    loop_update(l, now_ms);
    list_each (&l->sources, at) {
        struct source *s = container_of(at, struct source, link);
        s->run(s);
    }
    run_timers(l);
    run_tasks(l);
}
