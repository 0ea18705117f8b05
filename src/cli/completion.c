/* completion.c - completion scripts for bash and zsh, written from the tables. */
#include "cli/commands.h"

#include <string.h>

/* ---- bash ---- */

static const char bash_head[] =
    "# bash completion for once; to use it: source <(once completion bash)\n"
    "_once()\n"
    "{\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
    "    local cmd= i words= skip=\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        if [[ $skip ]]; then skip=; continue; fi\n"
    "        case ${COMP_WORDS[i]} in\n"
    "        --ledger | --coord | --data) skip=1 ;;\n"
    "        --)\n"
    "            COMPREPLY=($(compgen -c -f -- \"$cur\"))\n"
    "            return ;;\n"
    "        -*) ;;\n"
    "        *) [[ $cmd ]] || cmd=${COMP_WORDS[i]} ;;\n"
    "        esac\n"
    "    done\n"
    "    COMPREPLY=()\n";

static bool takes_value(const struct option *o)
{
    return o->kind != OPTION_FLAG;
}

static void bash_words(const struct option *rows)
{
    for (size_t i = 0; rows && rows[i].name; i++) printf(" --%s", rows[i].name);
}

/* What may follow an option that takes a value. */
static void bash_values(const struct option *rows)
{
    for (size_t i = 0; rows && rows[i].name; i++) {
        if (!takes_value(&rows[i])) continue;
        printf("        --%s)\n", rows[i].name);
        if (rows[i].kind == OPTION_DIR) {
            printf("            COMPREPLY=($(compgen -d -- \"$cur\"))\n");
        } else if (rows[i].kind == OPTION_CHOICE) {
            printf("            COMPREPLY=($(compgen -W \"");
            for (size_t c = 0; c < OPTION_CHOICES_MAX && rows[i].choices[c]; c++)
                printf("%s%s", c ? " " : "", rows[i].choices[c]);
            printf("\" -- \"$cur\"))\n");
        }
        printf("            return ;;\n");
    }
}

static void bash_command(const struct command *c)
{
    printf("    %s)\n        words=\"", c->name);
    bash_words(c->options);
    bash_words(global_options);
    printf("\"\n");
    if (c == &help_command_entry) printf("        [[ $cur == -* ]] || words=$commands\n");
    if (c->words) printf("        [[ $cur == -* ]] || words=\"%s\"\n", c->words);
    if (c->options) {
        printf("        case $prev in\n");
        bash_values(c->options);
        printf("        esac\n");
    }
    printf("        ;;\n");
}

static void completion_bash(void)
{
    fputs(bash_head, stdout);
    printf("    local commands=\"");
    for (size_t i = 0; commands[i]; i++) printf("%s%s", i ? " " : "", commands[i]->name);
    printf("\"\n    case $prev in\n");
    bash_values(global_options);
    printf("    esac\n    case $cmd in\n    '')\n        words=\"$commands");
    bash_words(global_options);
    printf(" --version\"\n        [[ $cur == -* ]] || words=$commands\n        ;;\n");
    for (size_t i = 0; commands[i]; i++) bash_command(commands[i]);
    printf("    esac\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "}\n"
           "complete -o bashdefault -o default -F _once once\n");
}

/* ---- zsh ---- */

/* Inside single quotes, and inside the brackets or after the colon of _arguments. */
static void zsh_text(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'') {
            fputs("'\\''", stdout);
            continue;
        }
        if (strchr(":[]\\", *text)) putchar('\\');
        putchar(*text);
    }
}

static void zsh_option(const struct option *o)
{
    printf("            '--%s%s[", o->name, takes_value(o) ? "=" : "");
    zsh_text(o->help);
    putchar(']');
    if (takes_value(o)) {
        printf(":%s:", o->value);
        if (o->kind == OPTION_DIR) printf("_files -/");
        if (o->kind == OPTION_CHOICE) {
            putchar('(');
            for (size_t c = 0; c < OPTION_CHOICES_MAX && o->choices[c]; c++)
                printf("%s%s", c ? " " : "", o->choices[c]);
            putchar(')');
        }
    }
    printf("' \\\n");
}

static void zsh_options(const struct option *rows)
{
    for (size_t i = 0; rows && rows[i].name; i++) zsh_option(&rows[i]);
}

static void zsh_command(const struct command *c)
{
    printf("        %s)\n            _arguments -s -S \\\n", c->name);
    zsh_options(c->options);
    zsh_options(global_options);
    if (c == &help_command_entry)
        printf("            '1:command:_once_commands'\n");
    else if (c->words)
        printf("            '1:what:(%s)' '*:operand:'\n", c->words);
    else if (c->style == ARGS_LEADING)
        printf("            '*::command:_normal'\n");
    else
        printf("            '*:operand:'\n");
    printf("            ;;\n");
}

static void completion_zsh(void)
{
    printf(
        "#compdef once\n"
        "# zsh completion for once; to use it: once completion zsh >DIR/_once, DIR in $fpath\n"
        "_once_commands()\n{\n    local -a commands=(\n");
    for (size_t i = 0; commands[i]; i++) {
        printf("        '%s:", commands[i]->name);
        zsh_text(commands[i]->summary);
        printf("'\n");
    }
    printf("    )\n    _describe command commands\n}\n"
           "_once()\n{\n    local curcontext=$curcontext state line\n    typeset -A opt_args\n"
           "    _arguments -C \\\n");
    zsh_options(global_options);
    printf("            '1:command:_once_commands' '*::argument:->argument'\n"
           "    case $state in\n    argument)\n        "
           "curcontext=${curcontext%%:*:*}:once-$line[1]:\n"
           "        case $line[1] in\n");
    for (size_t i = 0; commands[i]; i++) zsh_command(commands[i]);
    printf("        esac\n        ;;\n    esac\n}\n"
           "if [[ $funcstack[1] == _once ]]; then _once \"$@\"; else compdef _once once; fi\n");
}

/* ---- the command ---- */

static const struct {
    const char *name;
    void (*print)(void);
} shells[] = { { "bash", completion_bash }, { "zsh", completion_zsh } };

static int completion_run(struct cli *cli, const struct args *args)
{
    (void)cli;
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(args->operands[0], shells[i].name) != 0) continue;
        shells[i].print();
        return STATUS_OK;
    }
    cli_error("there is no completion for '%.40s'; there is one for bash and one for zsh",
              args->operands[0]);
    return STATUS_USAGE;
}

const struct command completion_command = {
    .name = "completion",
    .summary = "Print a completion script for a shell",
    .operands = "bash|zsh",
    .words = "bash zsh",
    .operands_min = 1,
    .operands_max = 1,
    .details = "  source <(once completion bash)\n"
               "  once completion zsh >\"${fpath[1]}/_once\"\n",
    .run = completion_run,
};
