/* runner.c - see runner.h. */
#include "cli/runner.h"

#include "base/check.h"
#include "cli/now.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { KILL_AFTER_MS = 5000, RESTS_MAX = 64 };

int runner_init(struct runner *r, struct err *reterr)
{
    *r = (struct runner){ .phase = RUNNER_CLAIMING, .signals.fd = -1 };
    tee_init(&r->out, -1, STDOUT_FILENO, RESULT_STDOUT);
    tee_init(&r->err, -1, STDERR_FILENO, RESULT_STDERR);
    return signals_open(&r->signals, reterr);
}

void runner_fini(struct runner *r)
{
    once_answer_clear(&r->answer);
    once_close(r->once);
    tee_fini(&r->out);
    tee_fini(&r->err);
    result_free(&r->captured);
    signals_close(&r->signals);
}

/* ---- signals ---- */

static void on_ending_signal(struct runner *r, const struct signalfd_siginfo *info)
{
    int signal = (int)info->ssi_signo;
    if (r->phase == RUNNER_SETTLING) return;
    if (r->phase == RUNNER_CLAIMING && r->interrupted_by) die_by_signal(signal);
    if (!r->interrupted_by) r->interrupted_by = signal;
    if (r->phase == RUNNER_CLAIMING) {
        if (r->call) once_cancel(r->once, r->call);
        return;
    }
    /* What comes from the terminal was sent to the whole group, the warden included. */
    if (info->ssi_code != SI_KERNEL) child_signal(&r->child, signal);
}

static void take_signals(struct runner *r)
{
    struct signalfd_siginfo info;
    while (read(r->signals.fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            child_reap(&r->child);
        else
            on_ending_signal(r, &info);
    }
}

/* ---- the loop ---- */

static int wait_ms(const struct runner *r)
{
    int64_t ms = once_timeout_ms(r->once);
    if (r->kill_at_ms) {
        int64_t left_ms = r->kill_at_ms - now_monotonic_ms();
        if (left_ms < 0) left_ms = 0;
        if (ms < 0 || left_ms < ms) ms = left_ms;
    }
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

static void kill_if_due(struct runner *r)
{
    if (!r->kill_at_ms || now_monotonic_ms() < r->kill_at_ms) return;
    child_kill(&r->child);
    r->kill_at_ms = 0;
}

static void keep(void *ctx, int stream, struct bytes content)
{
    struct runner *r = ctx;
    result_add(&r->captured, stream, content);
}

static void turn(struct runner *r)
{
    struct pollfd fds[] = { { .fd = once_fd(r->once), .events = POLLIN },
                            { .fd = r->signals.fd, .events = POLLIN },
                            tee_poll(&r->out),
                            tee_poll(&r->err) };
    if (poll(fds, sizeof fds / sizeof fds[0], wait_ms(r)) < 0) {
        CHECK(errno == EINTR || errno == EAGAIN || errno == ENOMEM);
        return;
    }
    tee_turn(&r->out, fds[2].revents, keep, r);
    tee_turn(&r->err, fds[3].revents, keep, r);
    if (fds[1].revents) take_signals(r);
    kill_if_due(r);
    once_process(r->once);
}

/* ---- calls ---- */

static void answered(void *ctx, int result, struct once_answer *answer)
{
    struct runner *r = ctx;
    r->call = NULL;
    r->result = result;
    once_answer_clear(&r->answer);
    r->answer = *answer;
}

static int failed_to_start(struct runner *r, int code, const struct once_error *error)
{
    once_answer_clear(&r->answer);
    r->answer = (struct once_answer){ .error = *error };
    return code;
}

/* The call is over when it has answered; `call` may be set only after the start returned. */
static int await(struct runner *r)
{
    while (r->call) turn(r);
    return r->result;
}

static void on_lost(void *ctx, const struct once_lease *lease, int certain)
{
    (void)lease;
    struct runner *r = ctx;
    if (!certain || r->lost) return;
    r->lost = true;
    if (r->phase != RUNNER_WORKING) return;
    child_signal(&r->child, SIGTERM);
    r->kill_at_ms = now_monotonic_ms() + KILL_AFTER_MS;
}

int runner_claim(struct runner *r, struct once_claim *in)
{
    struct once_error error;
    in->on_lost = on_lost;
    in->on_lost_ctx = r;
    int code = once_claim_start(r->once, in, answered, r, &r->call, &error);
    return code < 0 ? failed_to_start(r, code, &error) : await(r);
}

int runner_settle(struct runner *r, runner_start_fn *start, const struct once_owned *in)
{
    struct once_error error;
    r->phase = RUNNER_SETTLING;
    int code = start(r->once, in, answered, r, &r->call, &error);
    return code < 0 ? failed_to_start(r, code, &error) : await(r);
}

/* ---- the command ---- */

/* What it has left running may hold the pipes open: that is waited for, as $(...) and cron do,
 * unless somebody asks us to end. */
static bool is_working(const struct runner *r)
{
    if (!r->child.ended) return true;
    if (r->interrupted_by || r->lost) return false;
    return !tee_ended(&r->out) || !tee_ended(&r->err);
}

/* What it said last may have come together with word of its end. */
static void take_rest(struct runner *r, struct tee *t)
{
    for (int i = 0; i < RESTS_MAX && !tee_ended(t); i++) {
        struct pollfd fd = tee_poll(t);
        if (poll(&fd, 1, 0) <= 0) return;
        tee_turn(t, fd.revents, keep, r);
    }
}

int runner_work(struct runner *r, char *const *argv, char *const *env, size_t result_bytes_max,
                struct err *reterr)
{
    const struct child_plan plan = { .argv = argv,
                                     .env = env,
                                     .mask = r->signals.mask_before,
                                     .on_pipe = r->signals.on_pipe_before };
    r->phase = RUNNER_WORKING;
    result_start(&r->captured, result_bytes_max);
    int code = child_start(&plan, &r->child, reterr);
    if (code) return code;
    tee_init(&r->out, r->child.out, STDOUT_FILENO, RESULT_STDOUT);
    tee_init(&r->err, r->child.err, STDERR_FILENO, RESULT_STDERR);
    while (is_working(r)) turn(r);
    take_rest(r, &r->out);
    take_rest(r, &r->err);
    tee_fini(&r->out);
    tee_fini(&r->err);
    return 0;
}
