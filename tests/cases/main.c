/* main.c - runs tests that are written with Criterion's macros, each in a process of its own.
 *
 *     PROGRAM [--list] [--filter SUITE/TEST] [--timeout SECONDS] [-j PROCESSES]
 *
 * Criterion's own runner starts the program anew for every test: loading it, and what Criterion is
 * linked with, takes ten times as long as most tests do, under ASan most of a second for each. Here a
 * test is forked, nothing more. What it writes is shown only if it fails. TAP goes to stdout, one line
 * when a test has ended. The filter is a pattern as in a shell, also with @(this|that). */
#include <criterion/criterion.h>
#include <errno.h>
#include <fnmatch.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* By the linker: all tests, all suites. */
extern struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];
extern struct criterion_suite *__start_cr_sts[] __attribute__((weak));
extern struct criterion_suite *__stop_cr_sts[] __attribute__((weak));

enum { SKIPPED = 77, JOBS_MAX = 64, REASON_MAX = 200 };

/* ---- in the process of a test: what the macros call -------------------------------------------- */

struct criterion_options criterion_options; /* all off */

static const struct criterion_test_extra_data *test_data, *suite_data;
static unsigned failed;
static pthread_t test_thread;
static jmp_buf out_of_test;

_Noreturn static void end(int status)
{
    fflush(NULL);
    exit(status); /* not _exit(): leaks are looked for here */
}

int cr_asprintf(char **text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vasprintf(text, format, args);
    va_end(args);
    if (n < 0) abort();
    return n;
}

void cr_asprintf_free(char *text)
{
    free(text);
}

char *cr_translate_assert_msg(int which, ...)
{
    static const char *const formats[] = {
        [CRITERION_ASSERT_MSG_FAIL] = "it gets here",
        [CRITERION_ASSERT_MSG_EXPR_FALSE] = "not so: %s",
        [CRITERION_ASSERT_MSG_EXPR_AS_STRINGS_FALSE] = "not so: %s, with \"%s\" and \"%s\"",
        [CRITERION_ASSERT_MSG_IS_NULL] = "%s is NULL",
        [CRITERION_ASSERT_MSG_IS_NOT_NULL] = "%s is not NULL",
        [CRITERION_ASSERT_MSG_IS_EMPTY] = "%s is empty",
        [CRITERION_ASSERT_MSG_IS_NOT_EMPTY] = "%s is not empty",
    };
    char *text;
    va_list args;
    va_start(args, which);
    if (vasprintf(&text, formats[which], args) < 0) abort();
    va_end(args);
    return text;
}

void criterion_send_assert(struct criterion_assert_stats *stat)
{
    fprintf(stderr, "%s:%u: %s\n", stat->file, stat->line, stat->message);
}

void cri_asserts_passed_incr(void)
{
}

void criterion_continue_test(void)
{
    __atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
}

/* Another thread has nowhere to go from here. */
void criterion_abort_test(void)
{
    criterion_continue_test();
    if (!pthread_equal(pthread_self(), test_thread)) {
        fflush(NULL);
        _exit(1);
    }
    longjmp(out_of_test, 1);
}

void criterion_skip_test(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    end(failed ? 1 : SKIPPED);
}

void criterion_internal_test_setup(void)
{
    if (setjmp(out_of_test)) end(1);
    if (suite_data && suite_data->init) suite_data->init();
    if (test_data->init) test_data->init();
}

void criterion_internal_test_main(void (*test)(void))
{
    if (!setjmp(out_of_test)) test();
}

void criterion_internal_test_teardown(void)
{
    if (setjmp(out_of_test)) end(1);
    if (test_data->fini) test_data->fini();
    if (suite_data && suite_data->fini) suite_data->fini();
}

/* ---- all of them -------------------------------------------------------------------------------- */

struct job {
    pid_t pid; /* 0: free */
    int output;
    const struct criterion_test *test;
    double started, timeout;
};

static struct job jobs[JOBS_MAX];
static sigset_t chld, signals_before;
static double default_timeout = 120;
static unsigned number, passed_count, failed_count, skipped_count;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const struct criterion_test_extra_data *suite_of(const struct criterion_test *test)
{
    for (struct criterion_suite **s = __start_cr_sts; s && s < __stop_cr_sts; s++) {
        if (*s && strcmp((*s)->name, test->category) == 0) return (*s)->data;
    }
    return NULL;
}

static void start(struct job *job, const struct criterion_test *test)
{
    const struct criterion_test_extra_data *suite = suite_of(test);
    *job = (struct job){ .test = test, .started = now(), .timeout = default_timeout };
    if (suite && suite->timeout > 0) job->timeout = suite->timeout;
    if (test->data->timeout > 0) job->timeout = test->data->timeout;
    job->output = memfd_create("output", MFD_CLOEXEC);
    if (job->output < 0) abort();
    fflush(NULL);
    pid_t parent = getpid();
    job->pid = fork();
    if (job->pid < 0) abort();
    if (job->pid > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, &signals_before, NULL);
    dup2(job->output, STDOUT_FILENO);
    dup2(job->output, STDERR_FILENO);
    setvbuf(stdout, NULL, _IOLBF, 0);
    test_data = test->data;
    suite_data = suite;
    test_thread = pthread_self();
    test->test();
    end(failed ? 1 : 0);
}

static void show_output(int fd)
{
    FILE *file = fdopen(fd, "r");
    char line[2000];
    if (!file) abort();
    rewind(file);
    while (fgets(line, sizeof line, file))
        printf("# %s%s", line, strchr(line, '\n') ? "" : "\n");
    fclose(file);
}

static void finish(struct job *job, int status, bool late)
{
    char reason[REASON_MAX] = "";
    double seconds = now() - job->started;
    bool skipped = WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED;
    bool ok = skipped || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
    kill(-job->pid, SIGKILL); /* whatever it has left behind */
    if (skipped) {
        ssize_t n = pread(job->output, reason, sizeof reason - 1, 0);
        reason[n > 0 ? n : 0] = '\0';
    }
    printf("%s %u - %s::%s", ok ? "ok" : "not ok", ++number, job->test->category,
           job->test->name);
    if (skipped)
        printf(" # SKIP %s", reason);
    else
        printf(" (%.2f s)", seconds);
    printf("\n");
    if (ok) {
        close(job->output);
    } else {
        if (late)
            printf("# not through after %.0f s\n", job->timeout);
        else if (WIFSIGNALED(status))
            printf("# %s\n", strsignal(WTERMSIG(status)));
        else if (WEXITSTATUS(status) != 1)
            printf("# status %d\n", WEXITSTATUS(status));
        show_output(job->output);
    }
    fflush(stdout);
    *(skipped ? &skipped_count : ok ? &passed_count : &failed_count) += 1;
    job->pid = 0;
}

/* Until one has ended, or is late: waits for SIGCHLD, with the nearest time-out as the limit. */
static void wait_for_one(void)
{
    for (;;) {
        double nearest = 3600;
        for (struct job *job = jobs; job < jobs + JOBS_MAX; job++) {
            int status;
            if (!job->pid) continue;
            if (waitpid(job->pid, &status, WNOHANG) == job->pid) {
                finish(job, status, false);
                return;
            }
            double left = job->started + job->timeout - now();
            if (left <= 0) {
                kill(-job->pid, SIGKILL);
                kill(job->pid, SIGKILL);
                while (waitpid(job->pid, &status, 0) < 0 && errno == EINTR) continue;
                finish(job, status, true);
                return;
            }
            if (left < nearest) nearest = left;
        }
        struct timespec limit = { .tv_sec = (time_t)nearest, .tv_nsec = 1000000 };
        sigtimedwait(&chld, NULL, &limit);
    }
}

static bool is_asked_for(const struct criterion_test *test, const char *filter)
{
    char name[300];
    snprintf(name, sizeof name, "%s/%s", test->category, test->name);
    return !filter || fnmatch(filter, name, FNM_EXTMATCH) == 0;
}

static bool parse(int argc, char **argv, const char **filter, long *processes, bool *list)
{
    static const struct option options[] = { { "list", no_argument, NULL, 'l' },
                                             { "filter", required_argument, NULL, 'f' },
                                             { "timeout", required_argument, NULL, 't' },
                                             { NULL, 0, NULL, 0 } };
    int option;
    while ((option = getopt_long(argc, argv, "lf:t:j:", options, NULL)) != -1) {
        if (option == 'l')
            *list = true;
        else if (option == 'f')
            *filter = optarg;
        else if (option == 't')
            default_timeout = atof(optarg);
        else if (option == 'j')
            *processes = atol(optarg);
        else
            return false;
    }
    return optind == argc && *processes > 0 && *processes <= JOBS_MAX && default_timeout > 0;
}

int main(int argc, char **argv)
{
    const char *filter = NULL;
    long processes = sysconf(_SC_NPROCESSORS_ONLN);
    bool list = false;
    if (processes > JOBS_MAX) processes = JOBS_MAX;
    if (!parse(argc, argv, &filter, &processes, &list)) {
        fprintf(stderr,
                "usage: %s [--list] [--filter SUITE/TEST] [--timeout SECONDS] [-j PROCESSES]\n",
                argv[0]);
        return 2;
    }
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, &signals_before);
    double started = now();
    long running = 0;
    for (struct criterion_test **t = __start_cr_tst; t < __stop_cr_tst; t++) {
        if (!*t || !is_asked_for(*t, filter)) continue;
        if (list) {
            printf("%s/%s\n", (*t)->category, (*t)->name);
            continue;
        }
        for (; running == processes; running--) wait_for_one();
        struct job *job = jobs;
        while (job->pid) job++;
        start(job, *t);
        running++;
    }
    if (list) return 0;
    for (; running > 0; running--) wait_for_one();
    printf("1..%u\n# %u passed, %u failed, %u skipped in %.1f s\n", number, passed_count,
           failed_count, skipped_count, now() - started);
    return failed_count > 0 || number == 0;
}
