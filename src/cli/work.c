/* work.c - once work: a command for every run of a queue. How the loop around it works: worker.h;
 * what happens to one run: job.h. */
#include "cli/commands.h"
#include "cli/worker.h"

#include <string.h>

enum {
    WORK_ENV,
    WORK_CONCURRENCY,
    WORK_LEASE,
    WORK_ONCE,
    WORK_DRAIN,
    WORK_MAX_OUTPUT,
    WORK_END
};

static const struct option work_options[] = {
    [WORK_ENV] = { "env", 'e', OPTION_TEXT, .value = "ENV", .fallback = "default",
                   .help = "whose runs" },
    [WORK_CONCURRENCY] = { "concurrency", 'c', OPTION_COUNT, .value = "N", .fallback = "1",
                           .help = "so many commands at a time; at most 256" },
    [WORK_LEASE] = { "lease", 'l', OPTION_DURATION, .value = "D", .fallback = "30s",
                     .help = "after a crash, the next worker takes over within this time" },
    [WORK_ONCE] = { "once", .kind = OPTION_FLAG, .help = "work on one run, then end" },
    [WORK_DRAIN] = { "drain", .kind = OPTION_FLAG, .help = "end when nothing is due" },
    [WORK_MAX_OUTPUT] = { "max-output", .kind = OPTION_SIZE, .value = "SIZE", .fallback = "1m",
                          .help = "more than this of its stdout is not kept" },
    [WORK_END] = { 0 },
};

enum { LEASE_MS_MIN = 100 };

static int check(const struct args *args)
{
    if (args->values[WORK_CONCURRENCY].number > WORKER_JOBS_MAX) {
        cli_error("--concurrency: at most %d", WORKER_JOBS_MAX);
        return STATUS_USAGE;
    }
    if (args->values[WORK_LEASE].number < LEASE_MS_MIN) {
        cli_error("--lease: at least %dms, or nobody could keep it", LEASE_MS_MIN);
        return STATUS_USAGE;
    }
    return 0;
}

static int work_run(struct cli *cli, const struct args *args)
{
    const struct option_value *values = args->values;
    struct once_config config = ONCE_CONFIG_INIT;
    struct worker w = { .plan = { .cli = cli,
                                  .argv = args->operands + 1,
                                  .lease_ms = values[WORK_LEASE].number,
                                  .output_bytes_max = (size_t)values[WORK_MAX_OUTPUT].number },
                        .env = values[WORK_ENV].text,
                        .queue = args->operands[0],
                        .job_count = (size_t)values[WORK_CONCURRENCY].number,
                        .only_one = values[WORK_ONCE].given,
                        .drain = values[WORK_DRAIN].given,
                        .signals.fd = -1 };
    struct err err;
    int status = check(args);
    if (status) return status;
    config.flags = ONCE_RUNS;
    if (config.value_bytes_max < values[WORK_MAX_OUTPUT].number)
        config.value_bytes_max = values[WORK_MAX_OUTPUT].number;
    status = signals_open(&w.signals, &err) < 0 ? cli_fail(cli, err.code, err.text)
                                                : cli_open(cli, &config, &w.plan.once);
    if (!status) status = worker_run(&w);
    worker_fini(&w);
    if (w.killed_by) die_by_signal(w.killed_by);
    if (!status)
        cli_note(cli, "%llu done, %llu failed", (unsigned long long)w.counts.completed,
                 (unsigned long long)w.counts.failed);
    return status;
}

const struct command work_command = {
    .name = "work",
    .summary = "Run a command for every run of a queue",
    .operands = "QUEUE -- COMMAND [ARG...]",
    .operands_min = 2,
    .operands_max = SIZE_MAX,
    .options = work_options,
    .details =
        "Leases runs of the queue (a task without a queue of its own is its own queue) and\n"
        "runs the command for each: the payload on its stdin, byte for byte; ONCE_RUN_ID,\n"
        "ONCE_RUN_TASK, ONCE_RUN_ENV, ONCE_RUN_ATTEMPT and ONCE_RUN_FENCE in its environment.\n"
        "What it prints is the output of the run: as it is if it is JSON, else as a string.\n"
        "Its stderr is passed on.\n\n"
        "Exit 0 completes the run. Anything else fails the attempt, with the exit status and\n"
        "the end of stderr as its error; it is tried again later, until its attempts are used\n"
        "up. While the command runs, the lease is extended; if this process is killed, the\n"
        "command is killed with it, and the next worker takes over when the lease has lapsed.\n"
        "A run that was canceled, or that somebody else has, ends the command.\n\n"
        "SIGTERM or ctrl-C: leases no more, finishes what runs, and ends with 0. Again: kills\n"
        "what runs and gives the runs back. With --json: an object on stdout for each run "
        "that\n"
        "has ended.\n\n"
        "  once work send-receipt --concurrency 4 -- ./send-receipt\n",
    .run = work_run,
};
