/* drive.c - who turns the loop, and when.
 *
 * Hosted: the caller's one thread does, from once_process() or, in a blocking call, until that
 * call is done - as curl's easy interface is its multi interface plus a loop.
 *
 * Otherwise one lock guards the engine and any thread that holds it may turn the loop. A caller
 * turns it right after starting its call, so that what can be answered from memory never
 * changes threads; then it sleeps until its call is finished. The keeper thread sleeps on the
 * loop's descriptor and the next timer: it renews leases while the callers' own code runs,
 * collects what the stores have finished. It never runs the owners' code: an on_lost callback
 * may take its time, make calls of its own, or wait for a thread that does, so those run on the
 * teller thread, which is started with the first claim that wants to be told. */
#include "base/check.h"
#include "base/thread.h"
#include "lib/handle.h"

#include <stdlib.h>

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

/* Bounded: callbacks that always start something new must not keep the host's loop out. */
void drive_turns(struct once *o)
{
    int64_t at_ms = now_ms(o);
    for (int i = 0; i < TURNS_MAX; i++) {
        loop_turn(&o->loop, at_ms);
        if (loop_next_ms(&o->loop, at_ms) != 0) return;
    }
}

/* ---- the keeper ---- */

/* Sleeps with the lock released until there is something to do. */
static void doze(struct once *o)
{
    int64_t next_ms = loop_next_ms(&o->loop, now_ms(o));
    o->keeper_until_ms = next_ms < 0 ? INT64_MAX : now_ms(o) + next_ms;
    pthread_mutex_unlock(&o->lock);
    if (next_ms != 0) loop_sleep(&o->loop, next_ms);
    pthread_mutex_lock(&o->lock);
    o->keeper_until_ms = 0; /* awake: nobody needs to wake it */
}

static void *keeper(void *ctx)
{
    struct once *o = ctx;
    pthread_mutex_lock(&o->lock);
    while (!o->stop) {
        drive_turns(o);
        doze(o);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* What was just started may need attention before the keeper would wake up. */
static void remind_keeper(struct once *o)
{
    int64_t next_ms = loop_next_ms(&o->loop, now_ms(o));
    if (next_ms < 0 || now_ms(o) + next_ms >= o->keeper_until_ms) return;
    o->keeper_until_ms = 0;
    loop_wake(&o->loop);
}

/* ---- the teller ---- */

static void *teller(void *ctx)
{
    struct once *o = ctx;
    pthread_mutex_lock(&o->lock);
    for (;;) {
        struct link *at = list_pop(&o->lost);
        if (!at && o->stop) break;
        if (!at) {
            pthread_cond_wait(&o->lost_cond, &o->lock);
            continue;
        }
        struct lost_event *event = container_of(at, struct lost_event, link);
        pthread_mutex_unlock(&o->lock);
        event->fn(event->ctx, &event->lease, event->certain);
        free(event);
        pthread_mutex_lock(&o->lock);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

int drive_will_tell(struct once *o, struct err *reterr)
{
    if (once_is_hosted(o)) return 0;
    pthread_mutex_lock(&o->lock);
    int r = o->teller_started ? 0 : thread_start(&o->teller, teller, o, reterr);
    if (!r) o->teller_started = true;
    pthread_mutex_unlock(&o->lock);
    return r;
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
    pthread_cond_signal(&o->lost_cond);
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
    if (!once_is_hosted(o)) pthread_cond_signal(&call->cond);
}

void drive_until(struct once *o, struct once_call *call)
{
    drive_turns(o);
    while (!call->finished && once_is_hosted(o)) {
        loop_sleep(&o->loop, loop_next_ms(&o->loop, now_ms(o)));
        drive_turns(o);
    }
    while (!call->finished) {
        remind_keeper(o);
        pthread_cond_wait(&call->cond, &o->lock);
    }
}

/* ---- life ---- */

int drive_init(struct once *o, struct err *reterr)
{
    o->monotonic = clock_monotonic();
    loop_init(&o->loop, now_ms(o));
    list_init(&o->lost);
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->lost_cond, NULL);
    o->initialized = true;
    return loop_open(&o->loop, reterr);
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
    o->stop = true;
    pthread_cond_signal(&o->lost_cond);
    pthread_mutex_unlock(&o->lock);
    loop_wake(&o->loop);
    pthread_join(o->keeper, NULL);
    if (o->teller_started) pthread_join(o->teller, NULL);
    o->keeper_started = o->teller_started = false;
}

void drive_fini(struct once *o)
{
    if (!o->initialized) return;
    for (struct link *at; (at = list_pop(&o->lost));)
        free(container_of(at, struct lost_event, link));
    loop_fini(&o->loop);
    pthread_cond_destroy(&o->lost_cond);
    pthread_mutex_destroy(&o->lock);
}
