/* signals.h - signals that ask a command to end, read from one descriptor.
 *
 * They are blocked before the library starts a thread, so that no thread is ended by one; a command
 * that we start gets back the mask and dispositions that once was started with. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include "base/err.h"

#include <signal.h>

struct signals {
    int fd; /* signalfd: SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT; -1: not open */
    sigset_t mask_before;
    struct sigaction on_pipe_before;
};

/* Before once_open(). A signal that was ignored when we were started (nohup, a background job) stays
 * ignored, here and in the command. SIGPIPE is ignored here. */
int signals_open(struct signals *s, struct err *reterr);
void signals_close(struct signals *s);

/* Ends this process as the signal would have: shells look at that. */
_Noreturn void die_by_signal(int signal);

#endif
