/* answer.h - an answer of the library as words, as JSON, and as an exit status. */
#ifndef CLI_ANSWER_H
#define CLI_ANSWER_H

#include "cli/cli.h"

/* What every answer has in common. NULL: out of memory. */
json_t *answer_json(const struct once_answer *answer);

/* Says on stderr what a refusal means and what to do; nothing for a success. */
void answer_explain(const struct once_answer *answer);

/* Prints the value and, on a terminal, the newline it lacks. */
void answer_print_value(struct once_bytes value);

/* The end of a blocking call: reports and clears. For a success, only JSON is printed: what a
 * person wants to see is the command's own business, before. */
int answer_finish(const struct cli *cli, int result, struct once_answer *answer);

#endif
