/* child.h - the command of once run or once work, as a process.
 *
 * It dies with us, and so does everything it has started (warden.h): whoever takes the key over
 * after us does not run beside it. It inherits stdin (unless it is fed), the signal mask and
 * dispositions that once was started with, and nothing else of ours. */
#ifndef CLI_CHILD_H
#define CLI_CHILD_H

#include "base/err.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

struct child_plan {
    char *const *argv;
    char *const *env;         /* NAME=value, ending with NULL: added to ours */
    sigset_t mask;            /* as it was before we blocked anything */
    struct sigaction on_pipe; /* as it was before we ignored SIGPIPE */
    bool fed;                 /* its stdin is a pipe of ours */
    bool apart; /* in a process group of its own: what the terminal sends is not for it */
};

struct child {
    pid_t pid;    /* of its warden, which ends as it ends; 0: none was started */
    int in;       /* writing end of its stdin, which does not block; -1: it is not fed */
    int out, err; /* reading ends of its pipes; the caller closes all of them */
    bool ended;
    int exit_status; /* once it has ended: 128 + n for signal n */
};

/* Returns 0; a negative ERR_... when no process could be made; or an errno, when the command
 * could not be executed: then nothing of it has run. */
int child_start(const struct child_plan *plan, struct child *ret_child, struct err *reterr);

void child_reap(struct child *c); /* notices that it has ended; does not wait */
void child_signal(const struct child *c, int signal);
void child_kill(const struct child *c); /* and everything it has started */

#endif
