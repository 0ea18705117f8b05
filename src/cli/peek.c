/* peek.c - peek and forget: what anybody may do without a token. */
#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/now.h"
#include "cli/result.h"

#include <unistd.h>

enum { PEEK_RAW, PEEK_END };

static const struct option peek_options[] = {
    [PEEK_RAW] = { "raw", .kind = OPTION_FLAG,
                   .help = "the stored bytes, also for a result of once run on a terminal" },
    [PEEK_END] = { 0 },
};

static void print_summary(const struct result *run)
{
    char age[DURATION_TEXT_BYTES], took[DURATION_TEXT_BYTES], out[SIZE_TEXT_BYTES],
        err[SIZE_TEXT_BYTES];
    printf("result of once run: exit %d, finished %s ago, took %s, stdout %s, stderr %s\n",
           run->end.exit_status, format_duration(now_wall_ms() - run->end.finished_at_ms, age),
           format_duration(run->end.took_ms, took), format_size(run->stdout_bytes, out),
           format_size(run->stderr_bytes, err));
    puts("(repeat the once run to see its output; --raw prints the stored bytes)");
}

static void print_value(struct once_bytes value, bool raw)
{
    struct result run;
    struct err err;
    if (!raw && isatty(STDOUT_FILENO) &&
        result_decode(bytes_of(value.data, value.len), &run, &err) == 0)
        print_summary(&run);
    else
        answer_print_value(value);
}

static int look(struct cli *cli, const struct args *args,
                int (*call)(struct once *, const struct once_owned *, struct once_answer *),
                struct once_answer *ret_answer, int *ret_result)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_owned in = ONCE_OWNED_INIT;
    struct once *once;
    in.scope = once_str(args->operands[0]);
    in.key = once_str(args->operands[1]);
    int status = cli_open(cli, &config, &once);
    if (status) return status;
    *ret_result = call(once, &in, ret_answer);
    once_close(once);
    return STATUS_OK;
}

static int peek_run(struct cli *cli, const struct args *args)
{
    struct once_answer answer = { 0 };
    int r, status = look(cli, args, once_peek, &answer, &r);
    if (status) return status;
    if (r == 0 && !cli->json && answer.has_value)
        print_value(answer.value, args->values[PEEK_RAW].given);
    return answer_finish(cli, r, &answer);
}

const struct command peek_command = {
    .name = "peek",
    .summary = "Print the answer of a key, changing nothing",
    .operands = "SCOPE KEY",
    .operands_min = 2,
    .operands_max = 2,
    .options = peek_options,
    .details =
        "Prints the value byte for byte. The result of a once run (scope 'run' unless\n"
        "told otherwise) is summed up on a terminal. Does not wait: a key that somebody\n"
        "is working on is exit status 4.\n",
    .run = peek_run,
};

static int forget_run(struct cli *cli, const struct args *args)
{
    struct once_answer answer = { 0 };
    int r, status = look(cli, args, once_forget, &answer, &r);
    if (status) return status;
    if (r == 0 && !cli->json && answer.outcome == ONCE_OK) cli_note(cli, "forgotten");
    return answer_finish(cli, r, &answer);
}

const struct command forget_command = {
    .name = "forget",
    .summary = "Remove the answer of a key, so that it can be done again",
    .operands = "SCOPE KEY",
    .operands_min = 2,
    .operands_max = 2,
    .details = "A key that somebody is working on is left alone (exit status 4).\n",
    .run = forget_run,
};
