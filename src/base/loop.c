/* loop.c - see loop.h. Order within a turn: descriptors, sources, due timers, tasks. */
#include "base/loop.h"

#include "base/check.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

_Static_assert(POLLIN == (int)EPOLLIN && POLLOUT == (int)EPOLLOUT && POLLERR == (int)EPOLLERR &&
                   POLLHUP == (int)EPOLLHUP,
               "the bits of poll and epoll are the same");

void loop_init(struct loop *l, int64_t now_ms)
{
    *l = (struct loop){ .now_ms = now_ms, .fd = -1, .wake_fd = -1 };
    heap_init(&l->timers);
    list_init(&l->tasks);
    list_init(&l->sources);
}

static int control(struct loop *l, int how, int fd, unsigned events, struct io *io)
{
    struct epoll_event event = { .events = events, .data.ptr = io };
    return epoll_ctl(l->fd, how, fd, &event);
}

int loop_open(struct loop *l, struct err *reterr)
{
    CHECK(l->fd < 0);
    l->fd = epoll_create1(EPOLL_CLOEXEC);
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->fd < 0 || l->wake_fd < 0 || control(l, EPOLL_CTL_ADD, l->wake_fd, EPOLLIN, NULL) < 0)
        return err_set(reterr, ERR_UNAVAILABLE, "cannot make the loop's descriptors: %s",
                       strerror(errno));
    return 0;
}

void loop_fini(struct loop *l)
{
    CHECK(list_empty(&l->sources) && l->ios == 0);
    if (l->wake_fd >= 0) close(l->wake_fd);
    if (l->fd >= 0) close(l->fd);
    l->fd = l->wake_fd = -1;
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

int io_add(struct loop *l, struct io *io, struct err *reterr)
{
    CHECK(l->fd >= 0);
    if (control(l, EPOLL_CTL_ADD, io->fd, io->events, io) < 0)
        return err_set(reterr, ERR_UNAVAILABLE, "cannot watch a descriptor: %s",
                       strerror(errno));
    l->ios++;
    return 0;
}

void io_want(struct loop *l, struct io *io, unsigned events)
{
    if (io->events == events) return;
    io->events = events;
    CHECK(control(l, EPOLL_CTL_MOD, io->fd, events, io) == 0);
}

void io_remove(struct loop *l, struct io *io)
{
    CHECK(control(l, EPOLL_CTL_DEL, io->fd, 0, io) == 0);
    l->ios--;
    for (size_t i = 0; i < l->ready_count; i++)
        if (l->ready[i] == io) l->ready[i] = NULL;
}

void loop_wake(struct loop *l)
{
    if (l->wake_fd < 0) return;
    uint64_t one = 1;
    ssize_t n;
    do n = write(l->wake_fd, &one, sizeof one);
    while (n < 0 && errno == EINTR); /* EAGAIN: it is readable already */
}

void loop_sleep(struct loop *l, int64_t at_most_ms)
{
    struct pollfd fd = { .fd = l->fd, .events = POLLIN };
    int timeout_ms = at_most_ms > INT32_MAX ? INT32_MAX : (int)at_most_ms;
    if (poll(&fd, 1, timeout_ms) <= 0) return;
    uint64_t count;
    ssize_t n;
    do n = read(l->wake_fd, &count, sizeof count);
    while (n < 0 && errno == EINTR); /* EAGAIN: it was another descriptor */
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

static void run_ios(struct loop *l)
{
    struct epoll_event events[LOOP_EVENTS_MAX];
    int n = epoll_wait(l->fd, events, LOOP_EVENTS_MAX, 0);
    l->ready_count = n > 0 ? (size_t)n : 0;
    for (size_t i = 0; i < l->ready_count; i++) l->ready[i] = events[i].data.ptr;
    for (size_t i = 0; i < l->ready_count; i++) {
        struct io *io = l->ready[i]; /* NULL: the wake-up, or removed by one before it */
        if (io) io->ready(io, events[i].events);
    }
    l->ready_count = 0;
}

void loop_update(struct loop *l, int64_t now_ms)
{
    if (now_ms > l->now_ms) l->now_ms = now_ms;
    l->now_us = l->read_us ? l->read_us() : l->now_ms * 1000;
}

void loop_turn(struct loop *l, int64_t now_ms)
{
    CHECK(l->submitting == 0);
    loop_update(l, now_ms);
    if (l->ios) run_ios(l);
    list_each (&l->sources, at) {
        struct source *s = container_of(at, struct source, link);
        s->run(s);
    }
    run_timers(l);
    run_tasks(l);
}
