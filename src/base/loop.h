/* loop.h - timers, deferred calls and descriptors, driven from outside.
 *
 * The loop never sleeps in a turn. A shell (the library, the daemon, the simulator) sleeps until
 * loop_next_ms() or until the loop's descriptor is readable, and then calls loop_turn() with the
 * time. All callbacks of the engine and of the stores run inside loop_turn() and nowhere else.
 *
 * Without loop_open() there are no descriptors, no system calls and no other threads: the
 * simulator and most tests live in such a loop. */
#ifndef BASE_LOOP_H
#define BASE_LOOP_H

#include "base/err.h"
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

/* A descriptor that is looked at in every turn. `ready` gets the POLL... bits that hold. */
struct io {
    int fd;
    unsigned events; /* POLLIN, POLLOUT: what is waited for */
    void (*ready)(struct io *, unsigned events);
};

enum { LOOP_EVENTS_MAX = 32 };

struct loop {
    int64_t now_ms;           /* monotonic; the time of the current turn */
    int64_t now_us;           /* the same, only for measuring how long something took */
    int64_t (*read_us)(void); /* where that comes from; NULL: from now_ms */
    struct heap timers;
    struct list tasks, sources;
    unsigned submitting; /* > 0 inside store_submit(): no op may finish now */

    int fd;      /* epoll: readable when there is something to do; -1: not opened */
    int wake_fd; /* eventfd, written by other threads */
    size_t ios;  /* descriptors that are looked at */
    size_t owed; /* answers that others owe us: a test that wants quiet waits for them */
    struct io *ready[LOOP_EVENTS_MAX]; /* still to be told in this turn */
    size_t ready_count;
};

void loop_init(struct loop *l, int64_t now_ms);
int loop_open(struct loop *l, struct err *reterr); /* may sleep, be woken, and take ios */
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

int io_add(struct loop *l, struct io *io, struct err *reterr); /* with fd and events set */
void io_want(struct loop *l, struct io *io, unsigned events);
void io_remove(struct loop *l, struct io *io); /* before its fd is closed; also inside ready */

void loop_wake(struct loop *l); /* any thread */

/* Until there is something to do, at most so long; negative: for ever. The one call that needs
 * no lock: it touches nothing but the descriptors. */
void loop_sleep(struct loop *l, int64_t at_most_ms);

/* Milliseconds until there is something to do; 0: now; -1: nothing until wake(). */
int64_t loop_next_ms(const struct loop *l, int64_t now_ms);

/* Before starting something outside a turn: what is "now" for its deadlines. */
void loop_update(struct loop *l, int64_t now_ms);

/* Does everything that is due. What that makes due at once waits for the next turn. */
void loop_turn(struct loop *l, int64_t now_ms);

#endif
