/* runs.c - once runs: what was triggered, and what became of it. */
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/now.h"
#include "cli/run_show.h"
#include "cli/run_tail.h"

#include <string.h>

enum {
    RUNS_ENV,
    RUNS_TASK,
    RUNS_QUEUE,
    RUNS_STATUS,
    RUNS_TAG,
    RUNS_LIMIT,
    RUNS_REASON,
    RUNS_END
};

static const struct option runs_options[] = {
    [RUNS_ENV] = { "env", 'e', OPTION_TEXT, .value = "ENV", .fallback = "default",
                   .help = "whose runs; those of another env are absent" },
    [RUNS_TASK] = { "task", .kind = OPTION_TEXT, .value = "TASK", .fallback = "",
                    .help = "ls, tail: only of this task" },
    [RUNS_QUEUE] = { "queue", .kind = OPTION_TEXT, .value = "QUEUE", .fallback = "",
                     .help = "ls, tail: only of this queue" },
    [RUNS_STATUS] = { "status", 's', OPTION_LIST, .value = "STATUS",
                      .help = "ls, tail: delayed, queued, executing, completed, failed, "
                              "canceled; repeat for more" },
    [RUNS_TAG] = { "tag", 't', OPTION_TEXT, .value = "TAG", .fallback = "",
                   .help = "ls, tail: only those that have it" },
    [RUNS_LIMIT] = { "limit", 'n', OPTION_COUNT, .value = "N", .fallback = "20",
                     .help = "ls: at most so many; tail: so many of before" },
    [RUNS_REASON] = { "reason", .kind = OPTION_TEXT, .value = "TEXT", .fallback = "",
                      .help = "cancel: why; kept as its error" },
    [RUNS_END] = { 0 },
};

struct runs_call {
    struct cli *cli;
    const struct args *args;
    struct once *once;
};

/* ---- ls, tail ---- */

static int query_of(const struct runs_call *call, struct once_run_query *ret)
{
    const struct option_value *values = call->args->values, *status = &values[RUNS_STATUS];
    struct once_run_query in = ONCE_RUN_QUERY_INIT;
    in.env = once_str(values[RUNS_ENV].text);
    in.task = once_str(values[RUNS_TASK].text);
    in.queue = once_str(values[RUNS_QUEUE].text);
    in.tag = once_str(values[RUNS_TAG].text);
    for (size_t i = 0; i < status->count; i++) {
        int found = run_status_find(status->texts[i]);
        if (!found) {
            cli_error(
                "--status: '%.40s' is none; delayed, queued, executing, completed, failed "
                "or canceled",
                status->texts[i]);
            return STATUS_USAGE;
        }
        in.statuses |= 1u << found;
    }
    *ret = in;
    return 0;
}

static int print_page(const struct cli *cli, const struct once_run_answer *page, size_t most)
{
    int64_t now_ms = now_wall_ms();
    for (size_t i = 0; i < page->count && i < most; i++) {
        if (!cli->json)
            run_print_row(cli, page->runs[i], now_ms);
        else if (run_print_json(stdout, page->runs[i]) != STATUS_OK)
            return STATUS_INTERNAL;
    }
    return STATUS_OK;
}

static int runs_ls(struct runs_call *call)
{
    struct once_run_query in;
    struct once_run_answer page = { 0 };
    size_t left = (size_t)call->args->values[RUNS_LIMIT].number, shown = 0;
    char before[sizeof page.next] = "";
    int status = query_of(call, &in);
    for (bool more = !status; more && !status && left;) {
        in.before = *before ? before : NULL;
        in.limit = left < 100 ? left : 100;
        int r = once_run_list(call->once, &in, &page);
        status = run_answer_status(call->cli, r, &page);
        if (!status && page.count && !shown && !call->cli->json) run_print_heading();
        if (!status) status = print_page(call->cli, &page, left);
        shown += page.count;
        left -= page.count < left ? page.count : left;
        memcpy(before, page.next, sizeof before);
        more = *before;
        once_run_answer_clear(&page);
    }
    if (!status && !shown && !call->cli->json) cli_note(call->cli, "no runs");
    return status;
}

static int runs_tail(struct runs_call *call)
{
    struct once_run_query in;
    int status = query_of(call, &in);
    size_t before = (size_t)call->args->values[RUNS_LIMIT].number;
    return status ? status : run_tail(call->cli, call->once, &in, before);
}

/* ---- one run ---- */

typedef int run_verb(struct once *, const struct once_run_args *, struct once_run_answer *);

static int about_one(struct runs_call *call, run_verb *verb,
                     int (*print)(const struct cli *, const struct once_run_answer *))
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    struct once_run_answer answer = { 0 };
    const char *reason = call->args->values[RUNS_REASON].text;
    json_t *text = *reason ? json_string(reason) : NULL;
    char *json = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    in.env = once_str(call->args->values[RUNS_ENV].text);
    in.id = call->args->operands[1];
    in.value = once_str(json ? json : "");
    int r = verb(call->once, &in, &answer);
    int status = run_answer_status(call->cli, r, &answer);
    if (!status) status = print(call->cli, &answer);
    once_run_answer_clear(&answer);
    json_decref(text);
    free(json);
    return status;
}

static int print_run(const struct cli *cli, const struct once_run_answer *a)
{
    if (cli->json) return run_print_json(stdout, a->run);
    run_print_all(a->run);
    return STATUS_OK;
}

static int print_canceled(const struct cli *cli, const struct once_run_answer *a)
{
    if (cli->json) return run_print_json(stdout, a->run);
    if (a->run->status != ONCE_RUN_CANCELED)
        cli_note(cli, "too late: it is %s", a->run->status_name);
    else
        cli_note(cli, "canceled");
    return STATUS_OK;
}

static int print_replayed(const struct cli *cli, const struct once_run_answer *a)
{
    if (cli->json) return run_print_json(stdout, a->run);
    puts(a->run->id);
    return STATUS_OK;
}

static int runs_show(struct runs_call *call)
{
    return about_one(call, once_run_get, print_run);
}

static int runs_cancel(struct runs_call *call)
{
    return about_one(call, once_run_cancel, print_canceled);
}

static int runs_replay(struct runs_call *call)
{
    return about_one(call, once_run_replay, print_replayed);
}

/* ---- the command ---- */

static const struct action {
    const char *name;
    size_t operands;
    int (*run)(struct runs_call *call);
} actions[] = { { "ls", 1, runs_ls },
                { "show", 2, runs_show },
                { "cancel", 2, runs_cancel },
                { "replay", 2, runs_replay },
                { "tail", 1, runs_tail } };

static const struct action *action_find(const char *name)
{
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        if (strcmp(name, actions[i].name) == 0) return &actions[i];
    return NULL;
}

static int runs_run(struct cli *cli, const struct args *args)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct runs_call call = { .cli = cli, .args = args };
    const struct action *action = action_find(args->operands[0]);
    if (!action) {
        cli_error("there is no 'runs %.40s': ls, show, cancel, replay or tail",
                  args->operands[0]);
        return STATUS_USAGE;
    }
    if (args->operand_count != action->operands) {
        cli_error(action->operands > 1 ? "runs %s needs an ID; see: once runs ls"
                                       : "runs %s takes no operand",
                  action->name);
        return STATUS_USAGE;
    }
    config.flags = ONCE_RUNS;
    int status = cli_open(cli, &config, &call.once);
    if (status) return status;
    status = action->run(&call);
    once_close(call.once);
    return status;
}

const struct command runs_command = {
    .name = "runs",
    .summary = "What was triggered: list, show, cancel, replay, follow",
    .operands = "ls|show|cancel|replay|tail [ID]",
    .operands_min = 1,
    .operands_max = 2,
    .options = runs_options,
    .words = "ls show cancel replay tail",
    .details =
        "  ls      the newest first, one per line\n"
        "  show    everything about one\n"
        "  cancel  it is never worked on again; the command of a worker is ended at its next\n"
        "          heartbeat. A run that is over stays as it is\n"
        "  replay  triggers a new one like it, without its key, and prints its id\n"
        "  tail    follows: a line for every run that is new or has another status, until it\n"
        "          is interrupted\n\n"
        "With --json: one object per line. A run of another env is absent (6).\n",
    .run = runs_run,
};
