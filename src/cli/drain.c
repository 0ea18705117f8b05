/* drain.c - once drain: what waits in the buffer, into the ledger, now. */
#include "cli/commands.h"
#include "cli/format.h"

enum { DRAIN_WAIT, DRAIN_END };

static const struct option drain_options[] = {
    [DRAIN_WAIT] = { "wait", 'w', OPTION_DURATION, .value = "D", .fallback = "32s",
                     .help =
                         "for what another drainer has, after the last one that was moved" },
    [DRAIN_END] = { 0 },
};

static int drain_run(struct cli *cli, const struct args *args)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    struct once *once;
    uint64_t moved;
    if (cli->url)
        return cli_fail(cli, ONCE_EINVAL,
                        "a daemon drains by itself, unless its drainer is off; to do it here, "
                        "say --ledger and --coord as the daemon has them, without --url");
    config.flags = ONCE_RUNS;
    int status = cli_open(cli, &config, &once);
    if (status) return status;
    int r = once_drain_within(once, args->values[DRAIN_WAIT].number, &moved, &error);
    once_close(once);
    if (r < 0) return cli_fail(cli, r, error.text);
    if (cli->json) return print_json(stdout, json_pack("{s:I}", "moved", (json_int_t)moved));
    printf("%llu moved\n", (unsigned long long)moved);
    return STATUS_OK;
}

const struct command drain_command = {
    .name = "drain",
    .summary = "Move what waits in the buffer of runs into the ledger",
    .options = drain_options,
    .details =
        "Of a burst of triggers, what is too much for the ledger is accepted into a buffer.\n"
        "Daemons and workers move it by themselves: this is for whoever wants it done, before\n"
        "the buffer is changed or taken away, or where none of them runs. It ends well when\n"
        "nothing is left of what was there. What another drainer has is waited for: it may be\n"
        "dead, and then what it had is free after 30 s. If that takes too long, or the ledger\n"
        "is away, what was not moved stays in the buffer, and it says how much and why (69).\n"
        "Safe at any time, and while others work.\n",
    .run = drain_run,
};
