/* worker.c - see worker.h. */
#include "cli/worker.h"

#include "base/check.h"
#include "cli/format.h"
#include "cli/now.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    LEASE_WAIT_MS = 10000,
    BACK_OFF_MS_FIRST = 250,
    BACK_OFF_MS_MAX = 5000,
    FDS = 2, /* the handle's and the signals'; then those of the jobs */
};

static const struct cli *cli_of(const struct worker *w)
{
    return w->plan.cli;
}

/* ---- telling ---- */

static bool shows_line(const struct worker *w)
{
    return !cli_of(w)->quiet && isatty(STDERR_FILENO);
}

static void hide_line(struct worker *w)
{
    if (w->line_shown) fputs("\r\033[K", stderr);
    w->line_shown = false;
}

static void show_line(struct worker *w)
{
    if (!shows_line(w) || w->line_shown) return;
    fprintf(stderr, "%s: %zu running, %llu done, %llu failed%s", w->queue, w->running,
            (unsigned long long)w->counts.completed, (unsigned long long)w->counts.failed,
            w->ending ? "; ending" : "");
    w->line_shown = true;
}

static const struct {
    const char *event;
    size_t count; /* where it is counted */
} ends[] = {
    [JOB_COMPLETED] = { "completed", offsetof(struct worker_counts, completed) },
    [JOB_FAILED] = { "failed", offsetof(struct worker_counts, failed) },
    [JOB_RETURNED] = { "returned", offsetof(struct worker_counts, returned) },
    [JOB_LOST] = { "lost", offsetof(struct worker_counts, lost) },
    [JOB_UNKNOWN] = { "unknown", offsetof(struct worker_counts, unknown) },
};

static void note_end(const struct worker *w, const struct job *j)
{
    if (j->end == JOB_FAILED)
        cli_note(cli_of(w), "%s failed: exit %d, attempt %u of %u", j->id, j->child.exit_status,
                 j->attempt, j->attempts_max);
    if (j->end == JOB_LOST)
        cli_note(cli_of(w), "%s is lost: canceled, or another worker has it; ended its command",
                 j->id);
    if (j->end == JOB_UNKNOWN)
        cli_error("%s: how it ended could not be recorded (%s); when its lease ends, it is "
                  "worked on again",
                  j->id, j->settle_text);
}

static void job_ended(struct worker *w, const struct job *j)
{
    char *counts = (char *)&w->counts;
    ++*(uint64_t *)(void *)(counts + ends[j->end].count);
    w->running--;
    w->dry = false;
    hide_line(w);
    note_end(w, j);
    if (!cli_of(w)->json) return;
    print_json(stdout,
               json_pack("{s:s, s:s, s:s, s:i, s:i, s:I}", "event", ends[j->end].event, "id",
                         j->id, "task", j->task, "attempt", (int)j->attempt, "exit_status",
                         j->child.exit_status, "took_ms", (json_int_t)j->took_ms));
    fflush(stdout);
}

/* ---- ending ---- */

static void stop_leasing(struct worker *w)
{
    w->ending = true;
    if (w->leasing) once_cancel(w->plan.once, w->leasing);
}

static void end_with(struct worker *w, int status)
{
    if (!w->status) w->status = status;
    stop_leasing(w);
}

static void on_ending_signal(struct worker *w, int signal)
{
    hide_line(w);
    if (w->killed_by) die_by_signal(signal);
    if (w->interrupted_by) {
        w->killed_by = signal;
        for (size_t i = 0; i < w->job_count; i++) job_kill(&w->jobs[i]);
        return;
    }
    w->interrupted_by = signal;
    stop_leasing(w);
    if (w->running)
        cli_note(cli_of(w), "finishing what runs; again to kill it and give it back");
}

static void take_signals(struct worker *w)
{
    struct signalfd_siginfo info;
    while (read(w->signals.fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo != SIGCHLD) {
            on_ending_signal(w, (int)info.ssi_signo);
            continue;
        }
        for (size_t i = 0; i < w->job_count; i++) job_reap(&w->jobs[i]);
    }
}

/* ---- leasing ---- */

static struct job *free_job(struct worker *w)
{
    for (size_t i = 0; i < w->job_count; i++)
        if (w->jobs[i].state == JOB_FREE) return &w->jobs[i];
    return NULL;
}

/* A command that cannot be executed would not be by the next run either. */
static void cannot_start(struct worker *w, int r, const struct err *err)
{
    hide_line(w);
    if (w->status) return;
    if (r < 0) {
        end_with(w, cli_fail(cli_of(w), r, err->text));
        return;
    }
    cli_error("cannot execute %s: %s; the run is given back", w->plan.argv[0], strerror(r));
    end_with(w, r == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE);
}

static void start_job(struct worker *w, const struct once_run *run)
{
    struct err err;
    struct job *j = free_job(w);
    CHECK(j);
    hide_line(w); /* it is drawn again with the new count */
    w->running++;
    w->taken++;
    int r = job_start(j, &w->plan, run, &err);
    if (r) cannot_start(w, r, &err);
    if (w->killed_by) job_kill(j);
}

static void lease_failed(struct worker *w, int code, const char *text)
{
    if (code == ONCE_ECANCELED && w->ending) return;
    hide_line(w);
    if (!w->leased_ever || !once_retryable(code)) {
        end_with(w, cli_fail(cli_of(w), code, text));
        return;
    }
    if (w->lease_back_off_ms == BACK_OFF_MS_FIRST)
        cli_note(cli_of(w), "%s; trying again", text);
    w->lease_at_ms = now_monotonic_ms() + w->lease_back_off_ms;
    w->lease_back_off_ms *= 2;
    if (w->lease_back_off_ms > BACK_OFF_MS_MAX) w->lease_back_off_ms = BACK_OFF_MS_MAX;
}

static void leased(void *ctx, int result, struct once_run_answer *answer)
{
    struct worker *w = ctx;
    w->leasing = NULL;
    if (result < 0) {
        lease_failed(w, result, answer->error.text);
    } else {
        w->leased_ever = true;
        w->lease_back_off_ms = BACK_OFF_MS_FIRST;
        w->dry = answer->count == 0;
        for (size_t i = 0; i < answer->count; i++) start_job(w, answer->runs[i]);
    }
    once_run_answer_clear(answer);
}

static bool wants_more(const struct worker *w)
{
    if (w->leasing || w->ending || w->running == w->job_count) return false;
    if (w->only_one && w->taken) return false;
    if (w->drain && w->dry) return false;
    return now_monotonic_ms() >= w->lease_at_ms;
}

static void lease_if_wanted(struct worker *w)
{
    struct once_run_lease in = ONCE_RUN_LEASE_INIT;
    struct once_error error;
    if (!wants_more(w)) return;
    in.env = once_str(w->env);
    in.queue = once_str(w->queue);
    in.count = w->only_one ? 1 : w->job_count - w->running;
    in.lease_ms = w->plan.lease_ms;
    in.wait_ms = w->drain ? 0 : LEASE_WAIT_MS;
    int r = once_run_lease_start(w->plan.once, &in, leased, w, &w->leasing, &error);
    if (r < 0) lease_failed(w, r, error.text);
}

/* ---- the loop ---- */

static bool is_over(const struct worker *w)
{
    if (w->running || w->leasing) return false;
    if (w->ending) return true;
    if (w->only_one && w->taken) return true;
    return w->drain && w->dry;
}

static int wait_ms(const struct worker *w)
{
    int64_t ms = once_timeout_ms(w->plan.once), at_ms = INT64_MAX;
    for (size_t i = 0; i < w->job_count; i++) {
        int64_t job_at_ms = job_wake_at_ms(&w->jobs[i]);
        if (job_at_ms < at_ms) at_ms = job_at_ms;
    }
    if (!w->leasing && !w->ending && w->lease_at_ms && w->lease_at_ms < at_ms)
        at_ms = w->lease_at_ms;
    if (at_ms < INT64_MAX) {
        int64_t left_ms = at_ms - now_monotonic_ms();
        if (left_ms < 0) left_ms = 0;
        if (ms < 0 || left_ms < ms) ms = left_ms;
    }
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

static bool sleep_on(struct worker *w)
{
    w->fds[0] = (struct pollfd){ .fd = once_fd(w->plan.once), .events = POLLIN };
    w->fds[1] = (struct pollfd){ .fd = w->signals.fd, .events = POLLIN };
    for (size_t i = 0; i < w->job_count; i++) job_poll(&w->jobs[i], w->fds + FDS + i * JOB_FDS);
    if (poll(w->fds, FDS + w->job_count * JOB_FDS, wait_ms(w)) >= 0) return true;
    CHECK(errno == EINTR || errno == EAGAIN || errno == ENOMEM);
    return false;
}

static void turn(struct worker *w)
{
    if (!sleep_on(w)) return;
    for (size_t i = 0; i < w->job_count; i++)
        if (w->fds[FDS + i * JOB_FDS + 2].revents) hide_line(w); /* it has something to say */
    if (w->fds[1].revents) take_signals(w);
    once_process(w->plan.once);
    for (size_t i = 0; i < w->job_count; i++)
        if (job_turn(&w->jobs[i], w->fds + FDS + i * JOB_FDS)) job_ended(w, &w->jobs[i]);
    lease_if_wanted(w);
    show_line(w);
}

int worker_run(struct worker *w)
{
    w->plan.signals = &w->signals;
    w->lease_back_off_ms = BACK_OFF_MS_FIRST;
    w->jobs = calloc(w->job_count, sizeof *w->jobs);
    w->fds = calloc(FDS + w->job_count * JOB_FDS, sizeof *w->fds);
    if (!w->jobs || !w->fds) return cli_fail(cli_of(w), ONCE_ENOMEM, NULL);
    lease_if_wanted(w);
    while (!is_over(w)) turn(w);
    hide_line(w);
    return w->status;
}

void worker_fini(struct worker *w)
{
    for (size_t i = 0; w->jobs && i < w->job_count; i++) job_fini(&w->jobs[i]);
    free(w->jobs);
    free(w->fds);
    once_close(w->plan.once);
    signals_close(&w->signals);
}
