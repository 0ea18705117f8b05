/* child.c - see child.h. */
#include "cli/child.h"

#include "cli/cli.h"
#include "cli/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIPE_OUT, PIPE_ERR, PIPE_EXEC, PIPE_IN, PIPES };
enum { OURS, ITS }; /* ends */

/* A pipe whose ends are still -1 was not opened. */
static void close_ends(int pipes[PIPES][2], int end)
{
    for (int i = 0; i < PIPES; i++)
        if (pipes[i][end] >= 0) close(pipes[i][end]);
}

static bool is_named_in(const char *variable, char *const *more)
{
    size_t name = strcspn(variable, "=") + 1;
    for (size_t i = 0; more[i]; i++)
        if (strncmp(variable, more[i], name) == 0) return true;
    return false;
}

/* Our environment with the variables of `more` added or replaced. */
static char **joined_env(char *const *more)
{
    size_t ours = 0, theirs = 0;
    while (environ[ours]) ours++;
    while (more[theirs]) theirs++;
    char **env = calloc(ours + theirs + 1, sizeof *env);
    if (!env) return NULL;
    memcpy(env, more, theirs * sizeof *env);
    for (size_t i = 0; i < ours; i++)
        if (!is_named_in(environ[i], more)) env[theirs++] = environ[i];
    return env;
}

struct becoming {
    const struct child_plan *plan;
    char **env;
    int pipes[PIPES][2];
};

/* Between fork and exec, in a process with threads: only what a signal handler may do. */
static int become(void *ctx)
{
    const struct becoming *b = ctx;
    if (b->plan->fed) dup2(b->pipes[PIPE_IN][ITS], STDIN_FILENO);
    dup2(b->pipes[PIPE_OUT][ITS], STDOUT_FILENO);
    dup2(b->pipes[PIPE_ERR][ITS], STDERR_FILENO);
    sigaction(SIGPIPE, &b->plan->on_pipe, NULL);
    sigprocmask(SIG_SETMASK, &b->plan->mask, NULL);
    execvpe(b->plan->argv[0], b->plan->argv, b->env);
    int why = errno;
    ssize_t n = write(b->pipes[PIPE_EXEC][ITS], &why, sizeof why);
    return n == sizeof why ? STATUS_NOT_FOUND : STATUS_INTERNAL;
}

/* 0: the command runs, its exec closed the pipe. Otherwise errno of the exec. */
static int exec_result(int fd)
{
    int why = 0;
    ssize_t n;
    do n = read(fd, &why, sizeof why);
    while (n < 0 && errno == EINTR);
    return n == sizeof why ? why : 0;
}

/* Returns 0 or errno. */
static int open_pipes(struct becoming *b)
{
    for (int i = 0; i < PIPES; i++) {
        if (i == PIPE_IN && !b->plan->fed) continue;
        if (pipe2(b->pipes[i], O_CLOEXEC) < 0) return errno;
    }
    if (!b->plan->fed) return 0;
    int reads = b->pipes[PIPE_IN][0];
    b->pipes[PIPE_IN][OURS] = b->pipes[PIPE_IN][1];
    b->pipes[PIPE_IN][ITS] = reads;
    return fcntl(b->pipes[PIPE_IN][OURS], F_SETFL, O_NONBLOCK) < 0 ? errno : 0;
}

int child_start(const struct child_plan *plan, struct child *ret_child, struct err *reterr)
{
    struct becoming b = { plan,
                          joined_env(plan->env),
                          { { -1, -1 }, { -1, -1 }, { -1, -1 }, { -1, -1 } } };
    pid_t owner = getpid(), pid = -1;
    int why = b.env ? open_pipes(&b) : ENOMEM;
    if (!why && (pid = fork()) < 0) why = errno;
    if (pid == 0 && plan->apart) setpgid(0, 0);
    if (pid == 0) warden_run(owner, become, &b);
    free(b.env);
    close_ends(b.pipes, ITS);
    if (!why) why = exec_result(b.pipes[PIPE_EXEC][OURS]);
    if (why) {
        close_ends(b.pipes, OURS);
        if (pid > 0) waitpid(pid, NULL, 0);
        if (pid > 0) return why;
        return err_set(reterr, ERR_UNAVAILABLE, "cannot start a process: %s", strerror(why));
    }
    close(b.pipes[PIPE_EXEC][OURS]);
    *ret_child = (struct child){ .pid = pid,
                                 .in = b.pipes[PIPE_IN][OURS],
                                 .out = b.pipes[PIPE_OUT][OURS],
                                 .err = b.pipes[PIPE_ERR][OURS] };
    return 0;
}

void child_reap(struct child *c)
{
    int status;
    if (c->ended || c->pid <= 0 || waitpid(c->pid, &status, WNOHANG) != c->pid) return;
    c->ended = true;
    c->exit_status =
        WIFSIGNALED(status) ? STATUS_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

void child_signal(const struct child *c, int signal)
{
    if (!c->ended) kill(c->pid, signal); /* not reaped yet: the number is still its own */
}

void child_kill(const struct child *c)
{
    child_signal(c, WARDEN_KILL);
}
