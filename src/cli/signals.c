/* signals.c - see signals.h. */
#include "cli/signals.h"

#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int ending_signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

static bool is_ignored(int signal)
{
    struct sigaction action;
    return sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

int signals_open(struct signals *s, struct err *reterr)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof ending_signals / sizeof ending_signals[0]; i++)
        if (!is_ignored(ending_signals[i])) sigaddset(&set, ending_signals[i]);
    sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_IGN }, &s->on_pipe_before);
    sigaction(SIGCHLD, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL);
    sigprocmask(SIG_BLOCK, &set, &s->mask_before);
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd >= 0) return 0;
    return err_set(reterr, ERR_UNAVAILABLE, "cannot watch for signals: %s", strerror(errno));
}

void signals_close(struct signals *s)
{
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
}

_Noreturn void die_by_signal(int signal)
{
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 }); /* SIGQUIT was meant for the command */
    sigaction(signal, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL);
    raise(signal);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    _exit(STATUS_SIGNAL + signal);
}
