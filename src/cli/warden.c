/* warden.c - see warden.h. */
#include "cli/warden.h"

#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const int watched[] = { WARDEN_KILL, SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT };

/* Whatever the owner had open: the command has its own copies, and a file of the ledger that
 * stays open here would not be seen as closed there. */
static void close_inherited(void)
{
    if (close_range(STDERR_FILENO + 1, ~0u, 0) == 0) return;
    for (int fd = STDERR_FILENO + 1; fd < 1024; fd++) close(fd);
}

static pid_t start_command(int (*become)(void *ctx), void *ctx, const struct sigaction *on_kill)
{
    pid_t warden = getpid(), pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != warden) _exit(STATUS_INTERNAL); /* it died before we could ask */
    sigaction(WARDEN_KILL, on_kill, NULL);
    _exit(become(ctx));
}

/* Kills every process that is our child now. Their children become ours when they die. */
static void kill_children(void)
{
    char text[4096];
    ssize_t len;
    pid_t pid = 0;
    int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    while ((len = read(fd, text, sizeof text)) > 0) {
        for (ssize_t i = 0; i < len; i++) {
            bool digit = text[i] >= '0' && text[i] <= '9';
            if (digit) pid = pid * 10 + (text[i] - '0');
            if (digit || pid == 0) continue;
            kill(pid, SIGKILL);
            pid = 0;
        }
    }
    close(fd);
}

_Noreturn static void end_all(pid_t command)
{
    do {
        kill(command, SIGKILL); /* also where /proc does not list children */
        kill_children();
    } while (waitpid(-1, NULL, 0) >= 0 || errno == EINTR);
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
    raise(SIGKILL);
    _exit(STATUS_SIGNAL + SIGKILL);
}

_Noreturn static void end_as(int status)
{
    if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
    int signal = WTERMSIG(status);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 }); /* the command has left its own */
    sigaction(signal, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL);
    raise(signal);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    _exit(STATUS_SIGNAL + signal);
}

/* Reaps whoever has ended, adopted orphans too; does not return after the command itself. */
static void reap(pid_t command)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        if (pid == command) end_as(status);
}

/* The owner passes on what was sent to it. The terminal sends to the whole group: that reached
 * the command, too, unless it has left the group. */
static bool is_for_command(const siginfo_t *info, pid_t owner, pid_t command)
{
    if (info->si_code == SI_KERNEL) return getpgid(command) != getpgrp();
    return info->si_pid == owner;
}

_Noreturn void warden_run(pid_t owner, int (*become)(void *ctx), void *ctx)
{
    sigset_t set;
    struct sigaction on_kill;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof watched / sizeof watched[0]; i++) sigaddset(&set, watched[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    sigaction(WARDEN_KILL, &(struct sigaction){ .sa_handler = SIG_DFL }, &on_kill);
    prctl(PR_SET_NAME, "once-warden");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, WARDEN_KILL);
    if (getppid() != owner) _exit(STATUS_INTERNAL);
    pid_t command = start_command(become, ctx, &on_kill);
    close_inherited();
    if (command < 0) _exit(STATUS_NOT_EXECUTABLE);
    for (;;) {
        siginfo_t info;
        int signal = sigwaitinfo(&set, &info);
        if (getppid() != owner || (signal == WARDEN_KILL && info.si_pid == owner))
            end_all(command);
        if (signal == SIGCHLD)
            reap(command);
        else if (signal > 0 && signal != WARDEN_KILL && is_for_command(&info, owner, command))
            kill(command, signal);
    }
}
