/* cli.h - what every command gets, and what it gives back: a number for exit().
 *
 * Data goes to stdout, words about it to stderr. Nothing here knows how a claim works: commands
 * stand on once.h alone. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "cli/args.h"

#include <once/once.h>

#include <jansson.h>
#include <stdio.h>

/* Those of outcomes are the library's (once_outcome_exit_status); help.c has the list for
 * people. */
enum {
    STATUS_OK = 0,
    STATUS_FAILED = 1, /* doctor: something needs attention */
    STATUS_USAGE = 2,
    STATUS_BUSY = 4, /* in_progress, timed_out */
    STATUS_LOST = 5,
    STATUS_ABSENT = 6,
    STATUS_UNAVAILABLE = 69,
    STATUS_INTERNAL = 70,
    STATUS_NOT_EXECUTABLE = 126,
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNAL = 128, /* plus the number of the signal */
};

/* The global options, after environment and defaults. */
struct cli {
    const char *ledger, *coord;         /* NULL: not given */
    const char *url;                    /* of a daemon; NULL: without one */
    const struct option_value *globals; /* by row of global_options */
    char data_dir[4096];                /* see cli_data_dir() */
    const char *data_dir_from;          /* "--data", "HOME", ...: for messages */
    bool json, quiet, verbose, color;
    FILE *json_to; /* stdout, unless that belongs to somebody else */
};

struct command {
    const char *name, *summary;
    const char *operands; /* "SCOPE KEY", for the usage line */
    const char *words;    /* what the first operand may be, "create list"; NULL: anything */
    size_t operands_min, operands_max;
    enum args_style style;
    const struct option *options; /* NULL: none of its own */
    const char *details;          /* the rest of its help */
    bool local;                   /* it asks no daemon: --url makes no sense */
    int (*run)(struct cli *cli, const struct args *args);
};

extern const struct command *const commands[]; /* ends with NULL */
const struct command *command_find(const char *name);

/* The global options, as a table for help and completion. */
extern const struct option global_options[];

/* ---- help.c ---- */

void help_overview(FILE *to);
void help_command(FILE *to, const struct command *c);
void help_usage(FILE *to, const struct command *c); /* one line */

/* ---- messages: "once: ..." on stderr ---- */

void cli_note(const struct cli *cli, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Says why there is no answer: on stderr, and with --json as an object where the command's JSON
 * goes. Returns the exit status for it. */
int cli_fail(const struct cli *cli, int code, const char *text);
int cli_status_of_error(int code);

/* ---- opening ---- */

/* What was said, and where: settings.h has been there. `globals` outlives it. */
int cli_settle(struct cli *cli, const struct command *c, struct option_value *globals,
               struct err *reterr);

/* Where the default ledger is: finds out, creates nothing. Not needed where a ledger is given.
 */
int cli_data_dir(struct cli *cli, struct err *reterr);

/* The same, and creates it. Returns 0, or the exit status after a message. */
int cli_make_data_dir(struct cli *cli);

/* An event as a logfmt line on stderr: what --verbose shows. */
void cli_print_event(void *ctx, const struct once_event *event);

/* Fills in the paths of the configuration, creates the data directory, opens. Returns 0, or the
 * exit status after a message. */
int cli_open(struct cli *cli, struct once_config *config, struct once **ret_once);

#endif
