/* help.c - help and version, printed from the tables of commands and options. */
#include "cli/commands.h"
#include "cli/format.h"

#include <string.h>

static const struct {
    const char *status, *meaning;
} statuses[] = {
    { "0", "done: the answer is here, or the key is yours" },
    { "1", "doctor: something needs attention" },
    { "2", "the command line or its input is not valid; nothing happened" },
    { "3", "mismatch: the key was used for something else" },
    { "4", "in progress, or timed out waiting; safe to retry" },
    { "5", "lost: another owner took over; what came too late changed nothing" },
    { "6", "absent: there is no record, or no such run" },
    { "7", "already done, but the answer was not kept; do not retry" },
    { "8", "refused: what is there does not allow it" },
    { "9", "conflict: it has changed since you looked; look again" },
    { "69", "unavailable: the ledger cannot be reached; safe to retry" },
    { "70", "any other error" },
};

static void print_statuses(FILE *to)
{
    fputs("\nExit status:\n", to);
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
        fprintf(to, "  %-4s %s\n", statuses[i].status, statuses[i].meaning);
}

static void print_option(FILE *to, const struct option *o)
{
    char head[48];
    char letter[8] = "    ";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(head, sizeof head, "%s--%s%s%s", letter, o->name, o->value ? " " : "",
             o->value ? o->value : "");
    fprintf(to, "  %-24s %s", head, o->help);
    if (o->fallback) fprintf(to, " (default: %s)", o->fallback);
    if (o->required) fputs(" (required)", to);
    putc('\n', to);
}

static void print_options(FILE *to, const char *title, const struct option *rows)
{
    if (!rows) return;
    fprintf(to, "\n%s:\n", title);
    for (size_t i = 0; rows[i].name; i++) print_option(to, &rows[i]);
}

void help_usage(FILE *to, const struct command *c)
{
    fprintf(to, "Usage: once %s", c->name);
    for (size_t i = 0; c->options && c->options[i].name; i++)
        if (c->options[i].required)
            fprintf(to, " --%s %s", c->options[i].name, c->options[i].value);
    fputs(" [OPTION...]", to);
    if (c->operands) fprintf(to, " %s", c->operands);
    putc('\n', to);
}

void help_command(FILE *to, const struct command *c)
{
    help_usage(to, c);
    fprintf(to, "\n%s.\n", c->summary);
    if (c->details) fprintf(to, "\n%s", c->details);
    print_options(to, "Options", c->options);
    print_options(to, "Options of every command", global_options);
    print_statuses(to);
}

void help_overview(FILE *to)
{
    fputs("Usage: once COMMAND [OPTION...] [OPERAND...]\n\n"
          "Same key, same answer, always: across retries, bursts, crashes and processes.\n\n"
          "Commands:\n",
          to);
    for (size_t i = 0; commands[i]; i++)
        fprintf(to, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
    print_options(to, "Options of every command", global_options);
    print_statuses(to);
    fputs("\nTry:\n"
          "  once run --key hello -- date        the first call runs date\n"
          "  once run --key hello -- date        every other gets its output, to the second\n"
          "  once help run                       everything about it; also: man once\n",
          to);
}

static int help_run(struct cli *cli, const struct args *args)
{
    (void)cli;
    if (args->operand_count == 0) {
        help_overview(stdout);
        return STATUS_OK;
    }
    const struct command *c = command_find(args->operands[0]);
    if (c) {
        help_command(stdout, c);
        return STATUS_OK;
    }
    struct nearest n;
    nearest_init(&n, args->operands[0]);
    for (size_t i = 0; commands[i]; i++) nearest_try(&n, commands[i]->name);
    cli_error("there is no command '%.40s'%s%s", args->operands[0],
              n.best ? "; did you mean " : "", n.best ? n.best : "");
    return STATUS_USAGE;
}

static int version_run(struct cli *cli, const struct args *args)
{
    (void)args;
    if (cli->json) return print_json(stdout, json_pack("{s:s}", "version", once_version()));
    printf("once %s\n", once_version());
    return STATUS_OK;
}

const struct command version_command = {
    .name = "version",
    .summary = "Print the version",
    .run = version_run,
};

const struct command help_command_entry = {
    .name = "help",
    .summary = "Explain a command",
    .operands = "[COMMAND]",
    .operands_max = 1,
    .run = help_run,
};
