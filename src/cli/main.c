/* main.c - finds the command and hands over. */
#include "cli/cli.h"
#include "cli/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int refuse(const struct command *c, const char *why)
{
    cli_error("%s", why);
    if (c) {
        help_usage(stderr, c);
        fprintf(stderr, "See: once help %s\n", c->name);
    } else {
        fprintf(stderr, "See: once help\n");
    }
    return STATUS_USAGE;
}

static int refuse_command(const char *name)
{
    struct nearest n;
    char why[160];
    nearest_init(&n, name);
    for (size_t i = 0; commands[i]; i++) nearest_try(&n, commands[i]->name);
    if (n.best)
        snprintf(why, sizeof why, "unknown command '%.40s'; did you mean '%s'?", name, n.best);
    else
        snprintf(why, sizeof why, "unknown command '%.40s'", name);
    return refuse(NULL, why);
}

static int refuse_operands(const struct command *c, size_t count)
{
    return refuse(c, count < c->operands_min ? "an operand is missing" : "too many operands");
}

static const struct option_value *value_named(const struct option_table *table,
                                              const char *name)
{
    for (size_t i = 0; table->rows && table->rows[i].name; i++)
        if (strcmp(table->rows[i].name, name) == 0) return &table->values[i];
    return NULL;
}

static bool asked_for(const char *name, struct option_value *globals)
{
    return value_named(&(struct option_table){ global_options, globals }, name)->given;
}

/* The environment for every command, a file for those that take --config. */
static int settle(const struct option_table tables[2], char **ret_text, struct err *reterr)
{
    int r = settings_from_environment(tables, 2, reterr);
    const struct option_value *file = value_named(&tables[0], "config");
    if (r || !file || !file->given) return r;
    return settings_from_file(file->text, tables, 2, ret_text, reterr);
}

static int run(const struct command *c, struct args *args, struct option_value *globals)
{
    const struct option_table tables[] = { { c->options, args->values },
                                           { global_options, globals } };
    struct cli cli = { 0 };
    struct err err;
    char *text = NULL;
    if (settle(tables, &text, &err) < 0) return refuse(c, err.text);
    bool settled = cli_settle(&cli, c, globals, &err) == 0;
    int status = settled ? c->run(&cli, args) : refuse(c, err.text);
    free(text);
    return status;
}

static int dispatch(const struct command *c, char **argv, size_t argc,
                    struct option_value *globals)
{
    struct args args = { 0 };
    struct err err;
    const struct option_table tables[] = { { c->options, args.values },
                                           { global_options, globals } };
    if (args_parse(argv, argc, c->style, tables, 2, &args.operands, &args.operand_count, &err) <
        0)
        return refuse(c, err.text);
    if (asked_for("help", globals)) {
        help_command(stdout, c);
        return STATUS_OK;
    }
    if (args_required(c->options, args.values, &err) < 0) return refuse(c, err.text);
    if (args.operand_count < c->operands_min || args.operand_count > c->operands_max)
        return refuse_operands(c, args.operand_count);
    return run(c, &args, globals);
}

/* Output that did not arrive is a failure, unless the reader simply left. */
static int finish(int status)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    if (errno == EPIPE) return status;
    cli_error("cannot write to stdout: %s", strerror(errno));
    return status ? status : STATUS_INTERNAL;
}

/* A descriptor below 3 that is closed would be given to the ledger's file, and the next message
 * would be written into it. */
static void fill_standard_descriptors(void)
{
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

int main(int argc, char **argv)
{
    fill_standard_descriptors();
    struct option_value globals[OPTIONS_MAX] = { 0 };
    const struct option version = { "version", 'V', OPTION_FLAG };
    const struct option version_row[] = { version, { 0 } };
    struct option_value version_asked[1] = { 0 };
    const struct option_table tables[] = { { global_options, globals },
                                           { version_row, version_asked } };
    char **words;
    size_t count;
    struct err err;
    if (args_parse(argv + 1, argc > 0 ? (size_t)argc - 1 : 0, ARGS_LEADING, tables, 2, &words,
                   &count, &err) < 0)
        return refuse(NULL, err.text);
    const char *name = version_asked[0].given ? "version" : count ? words[0] : NULL;
    if (!name) {
        bool asked = asked_for("help", globals);
        help_overview(asked ? stdout : stderr);
        return finish(asked ? STATUS_OK : STATUS_USAGE);
    }
    const struct command *c = command_find(name);
    if (!c) return refuse_command(name);
    return finish(dispatch(c, words + 1, count ? count - 1 : 0, globals));
}
