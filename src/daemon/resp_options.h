/* resp_options.h - the options of a command: a word, and mostly its value. Pure, as resp_args.h. */
#ifndef DAEMON_RESP_OPTIONS_H
#define DAEMON_RESP_OPTIONS_H

#include "proto/resp.h"

enum { RESP_COUNT_MAX = 1000 };

struct resp_option;

/* Puts what `text` says where the option belongs. */
typedef int resp_take(const struct resp_option *o, struct bytes text, void *at,
                      struct err *reterr);

struct resp_option {
    const char *name;
    resp_take *take;
    size_t at; /* in the struct of arguments */
    bool many; /* may be given more than once */
};

resp_take resp_take_ms;    /* int64_t */
resp_take resp_take_count; /* size_t, from 1 to RESP_COUNT_MAX */
resp_take resp_take_bytes; /* struct bytes */
resp_take resp_take_token; /* struct token; the option may be NULL */
resp_take resp_take_flag;  /* bool: it has no value */

/* From argument `from` on; the table ends with a row without a name. An option that is not for many
 * and is given twice can be read in two ways, so it is refused. */
int resp_take_options(const struct resp_command *in, size_t from,
                      const struct resp_option *options, void *ret, struct err *reterr);
/* NULL: it is none of them. */
const struct resp_option *resp_option_find(const struct resp_option *options,
                                           struct bytes word);

bool resp_word_is(struct bytes word, const char *name); /* in any case */

#endif
