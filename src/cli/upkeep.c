/* upkeep.c - sweep and stats: how much there is, and less of it. */
#include "cli/commands.h"
#include "cli/format.h"

enum { SWEEP_MARKERS, SWEEP_END };

static const struct option sweep_options[] = {
    [SWEEP_MARKERS] = { "markers", .kind = OPTION_FLAG,
                        .help = "markers of mutations that have expired, instead" },
    [SWEEP_END] = { 0 },
};

static int sweep_run(struct cli *cli, const struct args *args)
{
    bool markers = args->values[SWEEP_MARKERS].given;
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    struct once *once;
    uint64_t removed;
    if (markers && !cli->url) config.flags |= ONCE_MARKERS;
    int status = cli_open(cli, &config, &once);
    if (status) return status;
    int r = markers ? once_sweep_markers(once, UINT64_MAX, &removed, &error)
                    : once_sweep(once, UINT64_MAX, &removed, &error);
    once_close(once);
    if (r < 0) return cli_fail(cli, r, error.text);
    if (cli->json)
        return print_json(stdout, json_pack("{s:I}", "removed", (json_int_t)removed));
    printf("%llu removed\n", (unsigned long long)removed);
    return STATUS_OK;
}

const struct command sweep_command = {
    .name = "sweep",
    .summary = "Remove what is past its retention",
    .options = sweep_options,
    .details =
        "Such records already count as absent; this gives their space back. Long-running\n"
        "processes do it by themselves. Safe at any time, and while others work.\n",
    .run = sweep_run,
};

static void print_stats(const struct once_stats *s)
{
    char size[SIZE_TEXT_BYTES];
    printf("pending  %10llu   claimed, its owner is at work\n", (unsigned long long)s->pending);
    printf("lapsed   %10llu   claimed, its owner is gone: the next caller takes over\n",
           (unsigned long long)s->lapsed);
    printf("done     %10llu   answered\n", (unsigned long long)s->done);
    printf("gone     %10llu   past retention, not yet swept\n", (unsigned long long)s->gone);
    printf("bytes    %10s   on disk\n", format_size(s->bytes, size));
}

static int stats_run(struct cli *cli, const struct args *args)
{
    (void)args;
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_stats stats;
    struct once_error error;
    struct once *once;
    int status = cli_open(cli, &config, &once);
    if (status) return status;
    int r = once_stats(once, &stats, &error);
    once_close(once);
    if (r < 0) return cli_fail(cli, r, error.text);
    if (cli->json)
        return print_json(
            stdout,
            json_pack("{s:I, s:I, s:I, s:I, s:I}", "pending", (json_int_t)stats.pending,
                      "lapsed", (json_int_t)stats.lapsed, "done", (json_int_t)stats.done,
                      "gone", (json_int_t)stats.gone, "bytes", (json_int_t)stats.bytes));
    print_stats(&stats);
    return STATUS_OK;
}

const struct command stats_command = {
    .name = "stats",
    .summary = "Count the records",
    .run = stats_run,
};
