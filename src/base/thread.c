/* thread.c - see thread.h. */
#include "base/thread.h"

#include <signal.h>
#include <string.h>

int thread_start(pthread_t *ret_thread, void *(*run)(void *), void *ctx, struct err *reterr)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(ret_thread, NULL, run, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r == 0) return 0;
    return err_set(reterr, ERR_UNAVAILABLE, "cannot start a thread: %s", strerror(r));
}
