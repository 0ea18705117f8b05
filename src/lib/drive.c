/* drive.c - who turns the loop, and when.
 *
 * Hosted: the caller's one thread does, from once_process() or, in a blocking call, until that
 * call is done - as curl's easy interface is its multi interface plus a loop.
 *
 * Otherwise one lock guards the engine and any thread that holds it may turn the loop. A caller
 * turns it right after starting its call, so that what can be answered from memory never changes
 * threads; then it sleeps until its call is finished. The keeper thread sleeps on the wake-up
 * descriptor and the next timer: it renews leases while the callers' own code runs, collects what
 * the stores have finished, and tells owners of lost leases with the lock released. While it is
 * away for that, one of the blocked callers is its deputy: the owner's code may make calls of its
 * own, or wait for somebody who does. */
#include "base/check.h"
#include "base/thread.h"
#include "lib/handle.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { TURNS_MAX = 64 };

struct lost_event {
    struct link link;
    once_lost_fn *fn;
    void *ctx;
    struct once_lease lease;
    bool certain;
};

static int64_t now_ms(const struct once *o)
{
    return clock_now_ms(&o->monotonic);
}

static void wake(void *ctx)
{
    struct once *o = ctx;
    uint64_t one = 1;
    ssize_t n;
    do n = write(o->wake_fd, &one, sizeof one);
    while (n < 0 && errno == EINTR); /* EAGAIN: it is readable already */
}

void drive_sleep(struct once *o, int64_t at_most_ms)
{
    struct pollfd fd = { .fd = o->wake_fd, .events = POLLIN };
    int timeout_ms = at_most_ms > INT32_MAX ? INT32_MAX : (int)at_most_ms;
    if (poll(&fd, 1, timeout_ms) <= 0) return;
    uint64_t count;
    ssize_t n;
    do n = read(o->wake_fd, &count, sizeof count);
    while (n < 0 && errno == EINTR);
}

/* Bounded: callbacks that always start something new must not keep the host's loop out. */
void drive_turns(struct once *o)
{
    for (int i = 0; i < TURNS_MAX; i++) {
        loop_turn(&o->loop, now_ms(o));
        if (loop_next_ms(&o->loop, o->loop.now_ms) != 0) return;
    }
}

/* ---- the keeper ---- */

/* Sleeps with the lock released until there is something to do. */
static void doze(struct once *o)
{
    int64_t next_ms = loop_next_ms(&o->loop, now_ms(o));
    o->keeper_until_ms = next_ms < 0 ? INT64_MAX : now_ms(o) + next_ms;
    pthread_mutex_unlock(&o->lock);
    if (next_ms != 0) drive_sleep(o, next_ms);
    pthread_mutex_lock(&o->lock);
    o->keeper_until_ms = 0; /* awake: nobody needs to wake it */
}

static void appoint_deputy(struct once *o)
{
    struct link *first = list_first(&o->blocked);
    if (first) pthread_cond_signal(&container_of(first, struct once_call, link)->cond);
}

static void tell_lost(struct once *o)
{
    struct list lost;
    list_init(&lost);
    list_take(&lost, &o->lost);
    if (list_empty(&lost)) return;
    o->keeper_away = true;
    appoint_deputy(o);
    pthread_mutex_unlock(&o->lock);
    for (struct link *at; (at = list_pop(&lost));) {
        struct lost_event *event = container_of(at, struct lost_event, link);
        event->fn(event->ctx, &event->lease, event->certain);
        free(event);
    }
    pthread_mutex_lock(&o->lock);
    o->keeper_away = false;
    while (o->deputy) { /* never two of them on one descriptor: one would eat the other's wake-up */
        wake(o);
        pthread_cond_wait(&o->deputy_gone, &o->lock);
    }
}

static void *keeper(void *ctx)
{
    struct once *o = ctx;
    pthread_mutex_lock(&o->lock);
    while (!o->keeper_stop) {
        drive_turns(o);
        tell_lost(o);
        if (list_empty(&o->lost)) doze(o);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* What was just started may need attention before the keeper would wake up. */
static void remind_keeper(struct once *o)
{
    int64_t next_ms = loop_next_ms(&o->loop, now_ms(o));
    bool sooner = next_ms >= 0 && now_ms(o) + next_ms < o->keeper_until_ms;
    if (!sooner && list_empty(&o->lost)) return;
    o->keeper_until_ms = 0;
    wake(o);
}

void drive_lost(struct once *o, once_lost_fn *fn, void *ctx, const struct once_lease *lease,
                bool certain)
{
    if (once_is_hosted(o)) {
        fn(ctx, lease, certain);
        return;
    }
    /* Without memory the owner is not told here; its publish is refused all the same. */
    struct lost_event *event = malloc(sizeof *event);
    if (!event) return;
    *event = (struct lost_event){ .fn = fn, .ctx = ctx, .lease = *lease, .certain = certain };
    link_init(&event->link);
    list_append(&o->lost, &event->link);
}

/* ---- callers ---- */

void drive_enter(struct once *o)
{
    if (!once_is_hosted(o)) pthread_mutex_lock(&o->lock);
    loop_update(&o->loop, now_ms(o));
}

void drive_leave(struct once *o)
{
    if (once_is_hosted(o)) return;
    remind_keeper(o);
    pthread_mutex_unlock(&o->lock);
}

void drive_wake_caller(struct once *o, struct once_call *call)
{
    if (once_is_hosted(o)) return;
    pthread_cond_signal(&call->cond);
    if (o->deputy) wake(o); /* it may be the one */
}

static void be_deputy(struct once *o)
{
    o->deputy = true;
    doze(o);
    o->deputy = false;
    pthread_cond_signal(&o->deputy_gone);
    drive_turns(o);
}

static void blocked_until(struct once *o, struct once_call *call)
{
    link_init(&call->link);
    list_append(&o->blocked, &call->link);
    while (!call->finished) {
        if (o->keeper_away && !o->deputy) {
            be_deputy(o);
        } else {
            remind_keeper(o);
            pthread_cond_wait(&call->cond, &o->lock);
        }
    }
    link_remove(&call->link);
    if (o->keeper_away && !o->deputy) appoint_deputy(o);
}

void drive_until(struct once *o, struct once_call *call)
{
    drive_turns(o);
    while (!call->finished && once_is_hosted(o)) {
        drive_sleep(o, loop_next_ms(&o->loop, now_ms(o)));
        drive_turns(o);
    }
    if (!call->finished) blocked_until(o, call);
}

/* ---- life ---- */

int drive_init(struct once *o, struct err *reterr)
{
    o->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (o->wake_fd < 0)
        return err_set(reterr, ERR_UNAVAILABLE, "cannot make an eventfd: %s", strerror(errno));
    o->monotonic = clock_monotonic();
    loop_init(&o->loop, now_ms(o));
    o->loop.wake = wake;
    o->loop.wake_ctx = o;
    list_init(&o->lost);
    list_init(&o->blocked);
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->deputy_gone, NULL);
    return 0;
}

int drive_start(struct once *o, struct err *reterr)
{
    if (once_is_hosted(o)) return 0;
    int r = thread_start(&o->keeper, keeper, o, reterr);
    o->keeper_started = r == 0;
    return r;
}

void drive_stop(struct once *o)
{
    if (!o->keeper_started) return;
    pthread_mutex_lock(&o->lock);
    o->keeper_stop = true;
    pthread_mutex_unlock(&o->lock);
    wake(o);
    pthread_join(o->keeper, NULL);
    o->keeper_started = false;
}

void drive_fini(struct once *o)
{
    if (o->wake_fd < 0) return;
    for (struct link *at; (at = list_pop(&o->lost));)
        free(container_of(at, struct lost_event, link));
    loop_fini(&o->loop);
    pthread_cond_destroy(&o->deputy_gone);
    pthread_mutex_destroy(&o->lock);
    close(o->wake_fd);
}
