/* run_show.h - runs, and answers about them, as words, as JSON, and as an exit status. */
#ifndef CLI_RUN_SHOW_H
#define CLI_RUN_SHOW_H

#include "cli/cli.h"

/* One object on one line. Payload, metadata, output and error are put in as they are: a number that
 * is too large for this program is not changed by it. Returns an exit status. */
int run_print_json(FILE *to, const struct once_run *run);

/* One run per line, under a heading. */
void run_print_heading(void);
void run_print_row(const struct cli *cli, const struct once_run *run, int64_t now_ms);

/* Everything, one thing per line. */
void run_print_all(const struct once_run *run);

/* "QUEUED", in any case; 0: there is no such status. */
int run_status_find(const char *name);

/* The end of a call about a run, to be cleared by the caller: an error, or what a refusal means, on
 * stderr, and with --json as an object on stdout; nothing for a success. Returns the exit status. */
int run_answer_status(const struct cli *cli, int result, const struct once_run_answer *answer);

#endif
