/* run.c - once run: the first caller runs the command, every other gets its output.
 *
 * What an ending means is decided here, in this order:
 *   nothing was executed           release, 127 or 126
 *   a signal asked us to end       release, die of that signal
 *   somebody else owns the key     5: what the command did after that is not the answer
 *   it failed                      release, its status (--on-failure store: publish)
 *   it succeeded                   publish; only a durable answer is a success
 *
 * How the loop around it works: runner.h. What is stored: result.h. */
#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/fingerprint.h"
#include "cli/format.h"
#include "cli/now.h"
#include "cli/runner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RUN_KEY,
    RUN_SCOPE,
    RUN_LEASE,
    RUN_WAIT,
    RUN_RETAIN,
    RUN_FINGERPRINT,
    RUN_ON_FAILURE,
    RUN_MAX_OUTPUT,
    RUN_MARK,
    RUN_END
};

static const struct option run_options[] = {
    [RUN_KEY] = { "key", 'k', OPTION_TEXT, .required = true, .value = "KEY",
                  .help = "names the work: same key, same answer" },
    [RUN_SCOPE] = { "scope", 's', OPTION_TEXT, .value = "SCOPE", .fallback = "run",
                    .help = "keys of different scopes never meet" },
    [RUN_LEASE] = { "lease", 'l', OPTION_DURATION, .value = "D", .fallback = "30s",
                    .help = "after a crash, the next caller takes over within this time" },
    [RUN_WAIT] = { "wait", 'w', OPTION_DURATION, .value = "D",
                   .help = "0: do not wait (default: as long as its owner lives)" },
    [RUN_RETAIN] = { "retain", 'r', OPTION_DURATION, .value = "D", .fallback = "24h",
                     .help = "how long the answer is kept" },
    [RUN_FINGERPRINT] = { "fingerprint", 'f', OPTION_TEXT, .value = "TEXT",
                          .help = "what makes calls the same (default: the command line)" },
    [RUN_ON_FAILURE] = { "on-failure", .kind = OPTION_CHOICE, .value = "WHAT",
                         .fallback = "release", .choices = { "store", "release" },
                         .help = "release: a retry runs it again; store: replay the failure" },
    [RUN_MAX_OUTPUT] = { "max-output", .kind = OPTION_SIZE, .value = "SIZE", .fallback = "1m",
                         .help = "more than this is printed, but not kept" },
    [RUN_MARK] = { "mark", 'm', OPTION_FLAG,
                   .help = "say on stderr whether it ran or was replayed" },
    [RUN_END] = { 0 },
};

enum {
    SWEEP_AT_MOST = 16,
    PATIENCE_MS = 60000, /* the command has had its effect: its answer is worth waiting for */
};

struct run {
    struct cli *cli;
    const struct args *args;
    const char *scope, *key;
    struct runner runner;
    struct once_lease lease;
    struct result_end end;
};

/* ---- saying it ---- */

/* "ran" or "replayed"; with --json always, otherwise with --mark. */
static void mark(const struct run *run, const char *what, uint64_t fence)
{
    char age[DURATION_TEXT_BYTES], took[DURATION_TEXT_BYTES];
    const struct once_answer *a = &run->runner.answer;
    bool replayed = a->outcome == ONCE_CACHED;
    int64_t age_ms = now_wall_ms() - run->end.finished_at_ms;
    if (age_ms < 0) age_ms = 0; /* another machine's clock, or ours was set back */
    if (run->cli->json) {
        print_json(stderr,
                   json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:b}", "event", what,
                             "scope", run->scope, "key", run->key, "exit_status",
                             run->end.exit_status, "age_ms", (json_int_t)age_ms, "took_ms",
                             (json_int_t)run->end.took_ms, "fence", (json_int_t)fence,
                             "waited_ms", (json_int_t)a->waited_ms, "degraded", a->degraded));
        return;
    }
    if (!run->args->values[RUN_MARK].given) return;
    fprintf(stderr, "once: %s ", what);
    print_escaped(stderr, bytes_str(run->key));
    fprintf(stderr, ": exit %d, took %s", run->end.exit_status,
            format_duration(run->end.took_ms, took));
    if (replayed) fprintf(stderr, ", finished %s ago", format_duration(age_ms, age));
    putc('\n', stderr);
}

/* An ending without an output: JSON on stderr, because stdout is the command's. */
static int refused(const struct run *run, const char *text)
{
    const struct once_answer *a = &run->runner.answer;
    if (run->cli->json)
        print_json(stderr, answer_json(a));
    else
        cli_error("%s: %s", once_outcome_name(a->outcome), text);
    return once_outcome_exit_status(a->outcome);
}

/* ---- replay ---- */

static int replay(struct run *run)
{
    struct result result;
    struct err err;
    const struct once_answer *a = &run->runner.answer;
    if (result_decode(bytes_of(a->value.data, a->value.len), &result, &err) < 0)
        return cli_fail(run->cli, err.code, err.text);
    int stream, error = 0;
    struct bytes chunk;
    while (result_next(&result.chunks, &stream, &chunk)) {
        int r = write_all(stream == RESULT_STDOUT ? STDOUT_FILENO : STDERR_FILENO, chunk);
        if (r < 0) error = -r;
    }
    run->end = result.end;
    mark(run, "replayed", a->fence);
    if (!error) return run->end.exit_status;
    cli_error("cannot write the output: %s", strerror(error));
    return run->end.exit_status ? run->end.exit_status : STATUS_INTERNAL;
}

/* ---- endings of our own run ---- */

static struct once_owned owned(const struct run *run)
{
    struct once_owned in = ONCE_OWNED_INIT;
    in.scope = once_str(run->scope);
    in.key = once_str(run->key);
    in.token = run->lease.token;
    return in;
}

/* The key is free for the next caller; if that cannot be said, it will be when the lease ends.
 */
static void release(struct run *run)
{
    struct once_owned in = owned(run);
    int r = runner_settle(&run->runner, once_release_start, &in);
    char lease[DURATION_TEXT_BYTES];
    if (r < 0)
        cli_note(run->cli,
                 "could not release the key (%s); it is free when its lease of %s ends",
                 run->runner.answer.error.text, format_duration(run->lease.lease_ms, lease));
}

static int not_executed(struct run *run, int why)
{
    release(run);
    int status = why == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE;
    if (run->cli->json)
        print_json(stderr, json_pack("{s:s, s:s, s:b, s:i}", "error", "not_executed", "text",
                                     strerror(why), "retryable", 1, "exit_status", status));
    else
        cli_error("cannot execute %s: %s; nothing ran, the key is released",
                  run->args->operands[0], strerror(why));
    return status;
}

static int lost(struct run *run)
{
    struct once_answer *a = &run->runner.answer;
    a->outcome = ONCE_LOST;
    a->has_value = 0; /* the answer of the other owner: not for this caller's stderr */
    int status =
        refused(run, "another owner took over while the command ran; its answer is the "
                     "one that counts, not this one");
    if (run->cli->quiet || run->cli->json) return status;
    fprintf(stderr, "once: to see it: once peek %s ", run->scope);
    print_quoted(stderr, run->key);
    putc('\n', stderr);
    return status;
}

/* A little of what is past retention: among short-lived processes, nobody else would. */
static void sweep_a_little(struct run *run)
{
    once_sweep(run->runner.once, SWEEP_AT_MOST, NULL, NULL);
}

static int published(struct run *run)
{
    struct runner *r = &run->runner;
    mark(run, "ran", run->lease.fence);
    sweep_a_little(run);
    int error = r->out.error ? r->out.error : r->err.error;
    if (!error) return run->end.exit_status;
    cli_error("cannot write the output: %s; it is recorded, repeat the call to see it",
              strerror(error));
    return run->end.exit_status ? run->end.exit_status : STATUS_INTERNAL;
}

static int publish(struct run *run)
{
    struct runner *r = &run->runner;
    struct once_owned in = owned(run);
    char most[SIZE_TEXT_BYTES];
    in.omit_value = r->captured.overflowed;
    if (in.omit_value) {
        cli_note(run->cli,
                 "the output is larger than %s bytes and was not kept: others will be told "
                 "already_done, without it",
                 format_size((uint64_t)run->args->values[RUN_MAX_OUTPUT].number, most));
    } else {
        struct bytes frame = result_finish(&r->captured, &run->end);
        in.value = once_bytes(frame.data, frame.len);
    }
    int code = runner_settle(r, once_publish_start, &in);
    if (code == 0) return r->answer.outcome == ONCE_LOST ? lost(run) : published(run);
    cli_note(run->cli,
             "the command ended with %d, but its result could not be recorded; when its "
             "lease ends, a retry will run it again",
             run->end.exit_status);
    return cli_fail(run->cli, code, r->answer.error.text);
}

static int failed(struct run *run)
{
    release(run);
    mark(run, "failed", run->lease.fence);
    return run->end.exit_status;
}

/* ---- the run ---- */

static int work(struct run *run)
{
    struct runner *r = &run->runner;
    const struct args *args = run->args;
    struct err err;
    char scope[160], key[560], fence[48];
    snprintf(scope, sizeof scope, "ONCE_RUN_SCOPE=%s", run->scope);
    snprintf(key, sizeof key, "ONCE_RUN_KEY=%s", run->key);
    snprintf(fence, sizeof fence, "ONCE_RUN_FENCE=%llu", (unsigned long long)run->lease.fence);
    char *const env[] = { scope, key, fence, NULL };
    int64_t started_ms = now_monotonic_ms();
    int code =
        runner_work(r, args->operands, env, (size_t)args->values[RUN_MAX_OUTPUT].number, &err);
    run->end = (struct result_end){ .exit_status = r->child.exit_status,
                                    .finished_at_ms = now_wall_ms(),
                                    .took_ms = now_monotonic_ms() - started_ms };
    if (code > 0) return not_executed(run, code);
    if (code < 0) {
        release(run);
        return cli_fail(run->cli, code, err.text);
    }
    if (r->interrupted_by) {
        release(run);
        mark(run, "interrupted", run->lease.fence);
        return STATUS_SIGNAL + r->interrupted_by;
    }
    bool store_failures = strcmp(args->values[RUN_ON_FAILURE].text, "store") == 0;
    if (r->lost && run->end.exit_status != 0) return lost(run);
    if (run->end.exit_status != 0 && !store_failures) return failed(run);
    return publish(run);
}

static int answered(struct run *run)
{
    const struct once_answer *a = &run->runner.answer;
    switch (a->outcome) {
    case ONCE_CLAIMED:
        run->lease = a->lease;
        return work(run);
    case ONCE_CACHED:
        return replay(run);
    case ONCE_MISMATCH:
        return refused(run, "this key was used with another command line; use another key, or "
                            "the same --fingerprint");
    case ONCE_ALREADY_DONE:
        return refused(run, "it was run, but its output was too large to keep; do not retry");
    default:
        return refused(run, once_outcome_text(a->outcome));
    }
}

static int claim(struct run *run, const struct fingerprint *fingerprint)
{
    struct once_claim in = ONCE_CLAIM_INIT;
    const struct option_value *values = run->args->values;
    in.scope = once_str(run->scope);
    in.key = once_str(run->key);
    in.fingerprint = once_bytes(fingerprint->bytes, fingerprint->len);
    in.lease_ms = values[RUN_LEASE].number;
    in.retain_ms = values[RUN_RETAIN].number;
    in.wait_ms = values[RUN_WAIT].given ? values[RUN_WAIT].number : ARGS_DURATION_MS_MAX;
    int r = runner_claim(&run->runner, &in);
    if (r == 0) return answered(run);
    if (run->runner.interrupted_by) return STATUS_SIGNAL + run->runner.interrupted_by;
    return cli_fail(run->cli, r, run->runner.answer.error.text);
}

static int run_fingerprint(const struct args *args, struct fingerprint *ret)
{
    const struct option_value *given = &args->values[RUN_FINGERPRINT];
    if (given->given) return fingerprint_text(given->text, ret);
    return fingerprint_words(args->operands, args->operand_count, ret);
}

static int run_run(struct cli *cli, const struct args *args)
{
    struct run run = { .cli = cli,
                       .args = args,
                       .scope = args->values[RUN_SCOPE].text,
                       .key = args->values[RUN_KEY].text };
    struct once_config config = ONCE_CONFIG_INIT;
    struct fingerprint fingerprint;
    struct err err;
    cli->json_to = stderr;
    config.value_bytes_max = args->values[RUN_MAX_OUTPUT].number;
    config.patience_ms = PATIENCE_MS;
    if (run_fingerprint(args, &fingerprint) < 0) return cli_fail(cli, ONCE_ENOMEM, NULL);
    int status = runner_init(&run.runner, &err) < 0 ? cli_fail(cli, err.code, err.text)
                                                    : cli_open(cli, &config, &run.runner.once);
    if (!status) status = claim(&run, &fingerprint);
    runner_fini(&run.runner);
    if (run.runner.interrupted_by) die_by_signal(run.runner.interrupted_by);
    return status;
}

const struct command run_command = {
    .name = "run",
    .summary = "Run a command once per key; everybody gets its output",
    .operands = "-- COMMAND [ARG...]",
    .operands_min = 1,
    .operands_max = SIZE_MAX,
    .style = ARGS_LEADING,
    .options = run_options,
    .details =
        "The first caller runs the command, its output streaming as usual. Every other\n"
        "caller, at the same time or later, gets the same stdout, stderr and exit status\n"
        "without running it. While it runs, others wait; if its owner is killed, the\n"
        "command and all it started are killed with it, and one of them takes over.\n"
        "Another command line under the same key is refused (3).\n\n"
        "A command that fails (any exit status but 0, or a signal) is not recorded unless\n"
        "you say --on-failure store: its key is released, so that a retry runs it again.\n"
        "The same goes for a run that you interrupt: Ctrl-C reaches the command, and the\n"
        "key is released.\n\n"
        "The exit status is the command's, 128+n if signal n ended it, 127 or 126 if it\n"
        "could not be executed; otherwise one of those below. --mark, or --json, tell\n"
        "which on stderr.\n\n"
        "The command finds ONCE_RUN_SCOPE, ONCE_RUN_KEY and ONCE_RUN_FENCE in its\n"
        "environment. The fence grows with every owner: let what you write to refuse\n"
        "smaller ones.\n",
    .run = run_run,
};
