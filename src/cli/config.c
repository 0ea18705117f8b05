/* config.c - once config: what `once serve` would be told, where each word comes from, and what
 * there is to say. Reads the same rows in the same order, and opens nothing. */
#include "base/text.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/settings.h"

#include <string.h>

enum { SHOWN_BYTES = 256 };

/* A row and what came of it. */
struct setting {
    const struct option *row;
    const struct option_value *value;
};

/* Those of the planes first: they are what everything else stands on. Returns how many. */
static size_t collect(const struct cli *cli, const struct args *args, struct setting *out)
{
    size_t n = 0;
    for (size_t i = 0; global_options[i].name; i++)
        if (global_options[i].setting)
            out[n++] = (struct setting){ &global_options[i], &cli->globals[i] };
    for (size_t i = 0; serve_options[i].name; i++)
        if (serve_options[i].setting)
            out[n++] = (struct setting){ &serve_options[i], &args->values[i] };
    return n;
}

/* What the row says, or "" where nothing was said and there is no default. No passwords. */
static const char *shown(const struct setting *s, char out[SHOWN_BYTES])
{
    if (s->row->kind == OPTION_FLAG) return s->value->given ? "true" : "false";
    if (!s->value->text) return "";
    url_shown(s->value->text, out, SHOWN_BYTES);
    return out;
}

static void origin(const struct setting *s, const char *file, char out[SHOWN_BYTES])
{
    char variable[SETTING_NAME_BYTES];
    setting_variable(s->row, variable);
    switch (s->value->origin) {
    case ORIGIN_DEFAULT:
        snprintf(out, SHOWN_BYTES, "default");
        break;
    case ORIGIN_FILE:
        snprintf(out, SHOWN_BYTES, "%.200s:%u", file, s->value->line);
        break;
    case ORIGIN_ENVIRONMENT:
        snprintf(out, SHOWN_BYTES, "%s", variable);
        break;
    case ORIGIN_FLAG:
        snprintf(out, SHOWN_BYTES, "--%s", s->row->name);
        break;
    }
}

static const char *config_file(const struct args *args)
{
    for (size_t i = 0; serve_options[i].name; i++)
        if (strcmp(serve_options[i].name, "config") == 0) return args->values[i].text;
    return NULL;
}

static int show(struct cli *cli, const struct args *args)
{
    struct setting all[2 * OPTIONS_MAX];
    size_t count = collect(cli, args, all);
    json_t *list = cli->json ? json_array() : NULL;
    for (size_t i = 0; i < count; i++) {
        char value[SHOWN_BYTES], from[SHOWN_BYTES];
        const char *text = shown(&all[i], value);
        origin(&all[i], config_file(args), from);
        if (list)
            json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", all[i].row->name,
                                                  "value", text, "origin", from));
        else
            printf("%-16s = %-32s # %s\n", all[i].row->name, text, from);
    }
    return list ? print_json(stdout, list) : STATUS_OK;
}

/* Whoever got here has said nothing wrong. */
static int check(struct cli *cli, const struct args *args)
{
    const char *file = config_file(args);
    cli_note(cli, "%s%s", file ? file : "environment and command line", ": ok");
    return STATUS_OK;
}

static int reference(struct cli *cli, const struct args *args)
{
    struct setting all[2 * OPTIONS_MAX];
    size_t count = collect(cli, args, all);
    for (size_t i = 0; i < count; i++) {
        const struct option *o = all[i].row;
        const char *fallback = o->kind == OPTION_FLAG ? "false" : o->fallback;
        char variable[SETTING_NAME_BYTES];
        setting_variable(o, variable);
        printf("%s%s = %s\n    %s\n    --%s, %s%s%s\n", i ? "\n" : "", o->name,
               o->value ? o->value : "true|false", o->help, o->name, variable,
               fallback ? "; default: " : "", fallback ? fallback : "");
    }
    return STATUS_OK;
}

static const struct {
    const char *name;
    int (*run)(struct cli *cli, const struct args *args);
} parts[] = { { "show", show }, { "check", check }, { "reference", reference } };

static int config_run(struct cli *cli, const struct args *args)
{
    const char *name = args->operands[0];
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(parts[i].name, name) == 0) return parts[i].run(cli, args);
    cli_error("there is no 'once config %.40s': say show, check or reference", name);
    return STATUS_USAGE;
}

const struct command config_command = {
    .name = "config",
    .summary = "What the daemon would be told, and where each word comes from",
    .operands = "show|check|reference",
    .words = "show check reference",
    .operands_min = 1,
    .operands_max = 1,
    .options = serve_options,
    .details =
        "A setting is said on the command line (--tls-cert FILE), in the environment\n"
        "(ONCE_TLS_CERT) or in the file of --config, as lines of 'name = value' (tls-cert = "
        "FILE);\n"
        "# begins a comment. The command line is stronger than the environment, that than the\n"
        "file. A name that does not exist, or a value that cannot be, is an error.\n\n"
        "  show       every setting, its value and its origin; no passwords\n"
        "  check      says what is wrong, with its line; exit status 2\n"
        "  reference  everything that can be set\n",
    .local = true,
    .run = config_run,
};
