/* drain.c - once drain: what waits in the buffer, into the ledger, now. */
#include "cli/commands.h"
#include "cli/format.h"

static int drain_run(struct cli *cli, const struct args *args)
{
    (void)args;
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    struct once *once;
    uint64_t moved;
    config.flags = ONCE_RUNS;
    int status = cli_open(cli, &config, &once);
    if (status) return status;
    int r = once_drain(once, &moved, &error);
    once_close(once);
    if (r < 0) return cli_fail(cli, r, error.text);
    if (cli->json) return print_json(stdout, json_pack("{s:I}", "moved", (json_int_t)moved));
    printf("%llu moved\n", (unsigned long long)moved);
    return STATUS_OK;
}

const struct command drain_command = {
    .name = "drain",
    .summary = "Move what waits in the buffer of runs into the ledger",
    .details =
        "Of a burst of triggers, what is too much for the ledger is accepted into a buffer.\n"
        "Daemons and workers move it by themselves: this is for whoever wants it done, before\n"
        "the buffer is changed or taken away, or where none of them runs. If the ledger is\n"
        "away, what was not moved stays in the buffer (69). Safe at any time, and while\n"
        "others work.\n",
    .run = drain_run,
};
