/* handle.h - what an open `struct once` is: a loop, a store, an engine, and who drives them. */
#ifndef LIB_HANDLE_H
#define LIB_HANDLE_H

#include "engine/runs.h"

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

/* One call of the public API, blocking or not: about a claim or, if run_call is set, a run. */
struct once_call {
    struct once *once;
    struct call *call;
    struct run_call *run_call;
    once_done_fn *done; /* NULL: somebody is blocked on it */
    once_run_done_fn *run_done;
    void *ctx;
    int result;
    struct once_answer *answer;
    struct once_run_answer *run_answer;
    enum run_question question;
    unsigned statuses; /* ASK_LIST: bits of those that are shown */
    bool finished;
    pthread_cond_t cond;
};

static inline bool once_is_hosted(const struct once *o)
{
    return o->config.flags & ONCE_HOSTED;
}

/* api.c: what calls about claims and about runs have in common */
struct bytes api_view(struct once_bytes b);
int api_fail(struct once_error *reterr, const struct err *err); /* reterr may be NULL */
/* A newer caller may know more fields, an older one fewer: takes what both know, over the
 * defaults that are in `to`. */
int api_take(void *to, size_t known, const void *from, size_t size, const char *init,
             struct err *reterr);
/* Is this handle for runs? A daemon's always is. */
int api_for_runs(const struct once *o, struct err *reterr);
int api_token(const char *text, struct token *ret_token, struct err *reterr);
/* A call of a hosted handle, on the heap; NULL: not possible, and reterr says why. */
struct once_call *api_call_new(struct once *o, void *ctx, struct err *reterr);

/* run_view.c: the answer about runs, as the caller sees it. 0, or ERR_NOMEM and nothing in it. */
int run_answer_fill(const struct once_call *c, struct once_run_answer *ret_answer);

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
