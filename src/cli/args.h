/* args.h - options and operands of a command line, described by tables.
 *
 * One table row is everything there is to know about an option: the parser, `once help`, the
 * completions and the configuration (settings.h) all read the same row, so they cannot disagree. A
 * default stands in the row as the text a user would type and goes through the same parser. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include "base/bytes.h"
#include "base/err.h"

#define ARGS_DURATION_MS_MAX (INT64_C(3650) * 86400000) /* what the library takes at most */

enum option_kind {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_DIR,      /* text; completed as a directory */
    OPTION_DURATION, /* number: milliseconds */
    OPTION_SIZE,     /* number: bytes; k and m are 1024 and 1024 * 1024 */
    OPTION_COUNT,    /* number: at least one */
    OPTION_CHOICE,   /* text: one of `choices` */
    OPTION_LIST,     /* text, and may be given again: `texts` */
};

enum { OPTIONS_MAX = 24, OPTION_CHOICES_MAX = 4, OPTION_TEXTS_MAX = 16 };

/* A table ends with a row without a name. */
struct option {
    const char *name;
    char letter; /* 0: there is no short form */
    enum option_kind kind;
    bool required;
    bool setting;         /* may stand in the environment and in a file, too: settings.h */
    const char *value;    /* what the help calls the value: "D" */
    const char *fallback; /* the default, as typed; NULL: there is none */
    const char *choices[OPTION_CHOICES_MAX];
    const char *help;
};

/* From the weakest to the strongest. */
enum origin { ORIGIN_DEFAULT, ORIGIN_FILE, ORIGIN_ENVIRONMENT, ORIGIN_FLAG };

struct option_value {
    bool given; /* by the user; the default is filled in all the same */
    enum origin origin;
    unsigned line; /* of the file it came from */
    const char *text;
    int64_t number;
    const char *texts[OPTION_TEXTS_MAX]; /* OPTION_LIST: all of them, in order */
    size_t count;
};

/* Values by row of the table. `operands` points into the argument vector. */
struct args {
    struct option_value values[OPTIONS_MAX];
    char **operands;
    size_t operand_count;
};

/* What the parser fills in: rows and the place for their values, for up to two tables. */
struct option_table {
    const struct option *rows;
    struct option_value *values;
};

enum args_style {
    ARGS_MIXED,   /* options may stand before, between and after operands */
    ARGS_LEADING, /* the first operand ends the options: the rest is somebody else's */
};

/* Parses argv (without the command's name) in place: operands move to its front, and a NULL
 * follows them, for which argv[argc] must exist: they may be handed to exec. Unknown
 * options and malformed values are ERR_INVALID, with the nearest name as a suggestion. */
int args_parse(char **argv, size_t argc, enum args_style style,
               const struct option_table *tables, size_t table_count, char ***ret_operands,
               size_t *ret_operand_count, struct err *reterr);

/* One value, as typed; "true" or "false" for a flag. `called` is what messages call the option:
 * "--drain", "ONCE_DRAIN". */
int option_parse(const struct option *o, const char *called, const char *text,
                 enum origin origin, struct option_value *ret_value, struct err *reterr);

/* Is every required option there? */
int args_required(const struct option *rows, const struct option_value *values,
                  struct err *reterr);

/* The candidate that looks most like a mistyped word. */
struct nearest {
    const char *word;
    const char *best; /* NULL: none is near */
    size_t distance;
};

void nearest_init(struct nearest *n, const char *word);
void nearest_try(struct nearest *n, const char *candidate);

#endif
