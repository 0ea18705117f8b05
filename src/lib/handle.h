/* handle.h - what an open `struct once` is: a loop, a store, an engine, and who drives them. */
#ifndef LIB_HANDLE_H
#define LIB_HANDLE_H

#include "engine/engine.h"

#include <once/once.h>
#include <pthread.h>

struct once {
    struct loop loop;
    struct clock monotonic;
    struct rng_system rng;
    struct trace trace;
    struct store_env env;
    struct store *store;
    struct engine *engine;
    struct once_config config; /* its strings belong to the caller and are not kept */
    bool initialized;          /* by drive_init() */

    /* Without ONCE_HOSTED everything above is guarded by the lock (drive.c). */
    pthread_mutex_t lock;
    pthread_t keeper, teller;
    bool keeper_started, teller_started, stop;
    int64_t keeper_until_ms; /* it sleeps until then unless woken */
    struct list lost;        /* struct lost_event: to be told by the teller */
    pthread_cond_t lost_cond;
};

/* One call of the public API, blocking or not. */
struct once_call {
    struct once *once;
    struct call *call;
    once_done_fn *done; /* NULL: somebody is blocked on it */
    void *ctx;
    int result;
    struct once_answer *answer;
    bool finished;
    pthread_cond_t cond;
};

static inline bool once_is_hosted(const struct once *o)
{
    return o->config.flags & ONCE_HOSTED;
}

/* drive.c */
int drive_init(struct once *o, struct err *reterr);      /* before the store is opened */
int drive_start(struct once *o, struct err *reterr);     /* after the engine is there */
int drive_will_tell(struct once *o, struct err *reterr); /* before a claim with on_lost */
void drive_stop(struct once *o); /* ends the threads; safe on any prefix */
void drive_fini(struct once *o);
void drive_enter(struct once *o); /* before touching the engine; the time is now */
void drive_leave(struct once *o);
void drive_until(struct once *o, struct once_call *call); /* inside enter/leave */
void drive_wake_caller(struct once *o, struct once_call *call);
void drive_turns(struct once *o); /* everything that can be done without sleeping */
void drive_lost(struct once *o, once_lost_fn *fn, void *ctx, const struct once_lease *lease,
                bool certain);

#endif
