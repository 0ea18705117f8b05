/* job.c - see job.h. */
#include "cli/job.h"

#include "base/check.h"
#include "cli/now.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    KILL_AFTER_MS = 5000,
    PATIENCE_MS = 60000, /* the command has had its effect: what came of it is worth saying */
    BACK_OFF_MS_FIRST = 250,
    BACK_OFF_MS_MAX = 5000,
};

static const uint8_t arrows[] = {
    [JOB_FREE] = 1 << JOB_WORKING | 1 << JOB_SETTLING,
    [JOB_WORKING] = 1 << JOB_SETTLING,
    [JOB_SETTLING] = 1 << JOB_FREE,
};

static void set_state(struct job *j, enum job_state to)
{
    CHECK(arrows[j->state] & 1 << to);
    j->state = to;
}

/* ---- talking about the run ---- */

static struct once_run_args named(const struct job *j)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    in.env = once_str(j->env);
    in.id = j->id;
    in.token = j->token;
    return in;
}

static void lose(struct job *j)
{
    if (j->end == JOB_LOST) return;
    j->end = JOB_LOST;
    child_signal(&j->child, SIGTERM);
    j->kill_at_ms = now_monotonic_ms() + KILL_AFTER_MS;
}

/* Only a certain loss ends the command: a ledger that cannot be reached lends to nobody else. */
static void beaten(void *ctx, int result, struct once_run_answer *answer)
{
    struct job *j = ctx;
    bool lost = !result && (answer->outcome == ONCE_LOST || answer->outcome == ONCE_ABSENT);
    j->beat = NULL;
    once_run_answer_clear(answer);
    if (lost && j->state == JOB_WORKING) lose(j);
}

static void beat_if_due(struct job *j)
{
    int64_t now_ms = now_monotonic_ms();
    if (j->beat || j->end == JOB_LOST || now_ms < j->beat_at_ms) return;
    struct once_run_args in = named(j);
    j->beat_at_ms = now_ms + j->plan->lease_ms / 3 + 1;
    if (once_run_heartbeat_start(j->plan->once, &in, beaten, j, &j->beat, NULL) < 0)
        j->beat = NULL; /* the next one may do */
}

/* ---- settling ---- */

typedef int settle_fn(struct once *, const struct once_run_args *, once_run_done_fn *, void *,
                      struct once_call **, struct once_error *);

static settle_fn *const settles[] = { [JOB_COMPLETED] = once_run_complete_start,
                                      [JOB_FAILED] = once_run_fail_start,
                                      [JOB_RETURNED] = once_run_return_start };

static void settled(struct job *j, enum job_end end)
{
    j->end = end;
    j->settle_at_ms = INT64_MAX;
}

static void settle_failed(struct job *j, int code, const struct once_error *error)
{
    int64_t now_ms = now_monotonic_ms();
    if (code == ONCE_EAMBIGUOUS) j->maybe_settled = true;
    if (once_retryable(code) && now_ms + j->settle_back_off_ms < j->settle_until_ms) {
        j->settle_at_ms = now_ms + j->settle_back_off_ms;
        j->settle_back_off_ms *= 2;
        if (j->settle_back_off_ms > BACK_OFF_MS_MAX) j->settle_back_off_ms = BACK_OFF_MS_MAX;
        return;
    }
    if (j->body) { /* what it has printed must not keep it from having ended */
        cli_note(j->plan->cli, "%s: what it has printed was not kept: %s", j->id, error->text);
        free(j->body);
        j->body = NULL;
        j->settle_at_ms = 0;
        return;
    }
    j->settle_error = code;
    memcpy(j->settle_text, error->text, sizeof j->settle_text);
    settled(j, JOB_UNKNOWN);
}

/* A try that was never answered may have counted: then its token counts no more, and the fence is
 * still ours. */
static bool was_ours(const struct job *j, const struct once_run *run)
{
    if (!j->maybe_settled || !run) return false;
    return run->fence == j->fence && run->status != ONCE_RUN_EXECUTING;
}

static void settle_answered(void *ctx, int result, struct once_run_answer *answer)
{
    struct job *j = ctx;
    j->settle = NULL;
    if (result < 0)
        settle_failed(j, result, &answer->error);
    else if (answer->outcome == ONCE_OK || was_ours(j, answer->run))
        settled(j, j->end);
    else
        settled(j, JOB_LOST);
    once_run_answer_clear(answer);
}

static void settle_if_due(struct job *j)
{
    struct once_error error = { 0 };
    if (j->settle || now_monotonic_ms() < j->settle_at_ms) return;
    struct once_run_args in = named(j);
    if (j->body) in.value = once_str(j->body);
    int r = settles[j->end](j->plan->once, &in, settle_answered, j, &j->settle, &error);
    if (r < 0) settle_failed(j, r, &error);
}

static void settle_begin(struct job *j, enum job_end end)
{
    set_state(j, JOB_SETTLING);
    j->end = end;
    j->settle_at_ms = end == JOB_LOST ? INT64_MAX : 0;
    j->settle_until_ms = now_monotonic_ms() + PATIENCE_MS;
    j->settle_back_off_ms = BACK_OFF_MS_FIRST;
}

static bool is_settled(const struct job *j)
{
    return j->settle_at_ms == INT64_MAX && !j->settle && !j->beat;
}

/* ---- the command ---- */

static void keep_output(void *ctx, int stream, struct bytes content)
{
    struct job *j = ctx;
    (void)stream;
    if (!j->output_overflowed) buf_add(&j->output, content);
    if (buf_failed(&j->output)) j->output_overflowed = true;
}

static void keep_last_words(void *ctx, int stream, struct bytes content)
{
    struct job *j = ctx;
    (void)stream;
    if (content.len > JOB_STDERR_BYTES)
        content = bytes_of(content.data + content.len - JOB_STDERR_BYTES, JOB_STDERR_BYTES);
    size_t room = JOB_STDERR_BYTES - content.len;
    if (j->last_words_len > room) {
        memmove(j->last_words, j->last_words + j->last_words_len - room, room);
        j->last_words_len = room;
    }
    memcpy(j->last_words + j->last_words_len, content.data, content.len);
    j->last_words_len += content.len;
}

static void stop_feeding(struct job *j)
{
    if (j->child.in >= 0) close(j->child.in);
    j->child.in = -1;
}

/* A command that does not read its payload is fine. */
static void feed(struct job *j)
{
    while (j->fed < j->payload.len) {
        ssize_t n = write(j->child.in, j->payload.data + j->fed, j->payload.len - j->fed);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) break;
        j->fed += (size_t)n;
    }
    stop_feeding(j);
}

static int command_start(struct job *j, struct err *reterr)
{
    char id[48], env[96], task[160], attempt[48], fence[48];
    snprintf(id, sizeof id, "ONCE_RUN_ID=%s", j->id);
    snprintf(env, sizeof env, "ONCE_RUN_ENV=%s", j->env);
    snprintf(task, sizeof task, "ONCE_RUN_TASK=%s", j->task);
    snprintf(attempt, sizeof attempt, "ONCE_RUN_ATTEMPT=%u", j->attempt);
    snprintf(fence, sizeof fence, "ONCE_RUN_FENCE=%llu", (unsigned long long)j->fence);
    char *const variables[] = { id, env, task, attempt, fence, NULL };
    const struct child_plan plan = { .argv = j->plan->argv,
                                     .env = variables,
                                     .mask = j->plan->signals->mask_before,
                                     .on_pipe = j->plan->signals->on_pipe_before,
                                     .fed = true,
                                     .apart = true };
    return child_start(&plan, &j->child, reterr);
}

/* What it has left running may hold the pipes open: that is waited for, as $(...) and cron do,
 * unless it is to be over. */
static bool is_working(const struct job *j)
{
    if (!j->child.ended) return true;
    if (j->end != JOB_NO_END) return false;
    return !tee_ended(&j->out) || !tee_ended(&j->err);
}

/* ---- endings ---- */

static void complete(struct job *j)
{
    settle_begin(j, JOB_COMPLETED);
    if (j->output_overflowed)
        cli_note(j->plan->cli, "%s: its output is larger than %zu bytes and was not kept",
                 j->id, j->plan->output_bytes_max);
    else if (j->output.len)
        j->body = job_output_json(buf_bytes(&j->output));
}

static void fail(struct job *j)
{
    settle_begin(j, JOB_FAILED);
    j->body = job_error_json(j->child.exit_status, bytes_of(j->last_words, j->last_words_len));
}

static void command_ended(struct job *j)
{
    j->took_ms = now_monotonic_ms() - j->started_ms;
    stop_feeding(j);
    tee_fini(&j->out);
    tee_fini(&j->err);
    if (j->end != JOB_NO_END)
        settle_begin(j, j->end);
    else if (j->child.exit_status == 0)
        complete(j);
    else
        fail(j);
}

/* ---- for the worker ---- */

static void copy_text(char *to, size_t size, struct once_bytes from)
{
    CHECK(from.len < size);
    if (from.len) memcpy(to, from.data, from.len);
    to[from.len] = '\0';
}

static void take_over(struct job *j, const struct job_plan *plan, const struct once_run *run)
{
    *j = (struct job){ .plan = plan,
                       .fence = run->fence,
                       .attempt = run->attempts,
                       .attempts_max = run->attempts_max,
                       .child = { .in = -1, .ended = true },
                       .started_ms = now_monotonic_ms() };
    j->beat_at_ms = j->started_ms + plan->lease_ms / 3;
    memcpy(j->id, run->id, sizeof j->id);
    memcpy(j->token, run->token, sizeof j->token);
    copy_text(j->env, sizeof j->env, run->env);
    copy_text(j->task, sizeof j->task, run->task);
    buf_init(&j->output, plan->output_bytes_max);
    buf_init(&j->payload, run->payload.len);
    buf_add(&j->payload, bytes_of(run->payload.data, run->payload.len));
    tee_init(&j->out, -1, -1, RESULT_STDOUT);
    tee_init(&j->err, -1, STDERR_FILENO, RESULT_STDERR);
}

int job_start(struct job *j, const struct job_plan *plan, const struct once_run *run,
              struct err *reterr)
{
    CHECK(j->state == JOB_FREE);
    take_over(j, plan, run);
    int r = buf_failed(&j->payload)
                ? err_set(reterr, ERR_NOMEM, "out of memory for the payload of a run")
                : command_start(j, reterr);
    if (r) {
        settle_begin(j, JOB_RETURNED);
        return r;
    }
    set_state(j, JOB_WORKING);
    tee_init(&j->out, j->child.out, -1, RESULT_STDOUT);
    tee_init(&j->err, j->child.err, STDERR_FILENO, RESULT_STDERR);
    return 0;
}

void job_fini(struct job *j)
{
    if (!j->plan) return;
    stop_feeding(j);
    tee_fini(&j->out);
    tee_fini(&j->err);
    buf_fini(&j->payload);
    buf_fini(&j->output);
    free(j->body);
    j->body = NULL;
}

void job_kill(struct job *j)
{
    if (j->state != JOB_WORKING) return;
    if (j->end == JOB_NO_END) j->end = JOB_RETURNED;
    child_kill(&j->child);
}

void job_reap(struct job *j)
{
    if (j->state == JOB_WORKING) child_reap(&j->child);
}

void job_poll(const struct job *j, struct pollfd fds[JOB_FDS])
{
    for (int i = 0; i < JOB_FDS; i++) fds[i] = (struct pollfd){ .fd = -1 };
    if (j->state != JOB_WORKING) return;
    fds[0] = (struct pollfd){ .fd = j->child.in, .events = POLLOUT };
    fds[1] = tee_poll(&j->out);
    fds[2] = tee_poll(&j->err);
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t job_wake_at_ms(const struct job *j)
{
    int64_t at_ms = INT64_MAX;
    if (j->state == JOB_FREE) return at_ms;
    if (j->state == JOB_SETTLING && is_settled(j)) return 0;
    if (!j->beat && j->end != JOB_LOST) at_ms = j->beat_at_ms;
    if (j->state == JOB_WORKING && j->kill_at_ms) at_ms = sooner(at_ms, j->kill_at_ms);
    if (j->state == JOB_SETTLING && !j->settle) at_ms = sooner(at_ms, j->settle_at_ms);
    return at_ms;
}

static void turn_working(struct job *j, const struct pollfd fds[JOB_FDS])
{
    if (fds[0].revents) feed(j);
    tee_turn(&j->out, fds[1].revents, keep_output, j);
    tee_turn(&j->err, fds[2].revents, keep_last_words, j);
    if (j->kill_at_ms && now_monotonic_ms() >= j->kill_at_ms) {
        child_kill(&j->child);
        j->kill_at_ms = 0;
    }
    if (is_working(j))
        beat_if_due(j);
    else
        command_ended(j);
}

bool job_turn(struct job *j, const struct pollfd fds[JOB_FDS])
{
    if (j->state == JOB_FREE) return false;
    if (j->state == JOB_WORKING) turn_working(j, fds);
    if (j->state != JOB_SETTLING) return false;
    if (j->settle_at_ms != INT64_MAX) beat_if_due(j);
    settle_if_due(j);
    if (!is_settled(j)) return false;
    set_state(j, JOB_FREE);
    job_fini(j);
    return true;
}
