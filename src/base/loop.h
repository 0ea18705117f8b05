/* loop.h - timers and deferred calls, driven from outside.
 *
 * The loop does no I/O and never sleeps. A shell (the library, the daemon, the simulator)
 * sleeps until loop_next_ms() or until wake() is called, and then calls loop_turn() with the
 * time. All callbacks of the engine and of the stores run inside loop_turn() and nowhere
 * else. */
#ifndef BASE_LOOP_H
#define BASE_LOOP_H

#include "base/heap.h"
#include "base/list.h"

/* Runs once, at or after at_ms. One per object, recomputed from its state. */
struct timer {
    struct heap_node node;
    void (*fire)(struct timer *);
};

/* Runs once, in the next turn. */
struct task {
    struct link link;
    void (*run)(struct task *);
};

/* Looked at in every turn: collects what other threads have finished. */
struct source {
    struct link link;
    void (*run)(struct source *);
};

struct loop {
    int64_t now_ms; /* monotonic; the time of the current turn */
    struct heap timers;
    struct list tasks, sources;
    unsigned submitting;  /* > 0 inside store_submit(): no op may finish now */
    void (*wake)(void *); /* called from any thread: a source has something */
    void *wake_ctx;
};

void loop_init(struct loop *l, int64_t now_ms);
void loop_fini(struct loop *l);

void timer_init(struct timer *t, void (*fire)(struct timer *));
void timer_set(struct loop *l, struct timer *t, int64_t at_ms); /* moves it if already set */
void timer_stop(struct loop *l, struct timer *t);
bool timer_is_set(const struct timer *t);

void task_init(struct task *t, void (*run)(struct task *));
void task_post(struct loop *l, struct task *t); /* once is enough: posting again does nothing */
void task_stop(struct task *t);

void source_add(struct loop *l, struct source *s);
void source_remove(struct source *s);

void loop_wake(struct loop *l); /* any thread */

/* Milliseconds until there is something to do; 0: now; -1: nothing until wake(). */
int64_t loop_next_ms(const struct loop *l, int64_t now_ms);

/* Before starting something outside a turn: what is "now" for its deadlines. */
void loop_update(struct loop *l, int64_t now_ms);

/* Does everything that is due. What that makes due at once waits for the next turn. */
void loop_turn(struct loop *l, int64_t now_ms);

#endif
