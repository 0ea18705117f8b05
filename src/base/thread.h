/* thread.h - the only place that starts threads (tools/symbols checks it). */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include "base/err.h"

#include <pthread.h>

/* Starts a thread with every signal blocked: signals belong to the program, not to a
 * library. */
int thread_start(pthread_t *ret_thread, void *(*run)(void *), void *ctx, struct err *reterr);

#endif
