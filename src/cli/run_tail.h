/* run_tail.h - follows runs: a line for each that is new, and whenever its status changes.
 *
 * Asks again and again, soon while there is something to tell and rarely while there is not. What
 * it has seen and is not over yet is looked at one by one; what is new is found by its id, which is
 * ordered by time: a run whose id was made by another clock, in the past, may be missed. */
#ifndef CLI_RUN_TAIL_H
#define CLI_RUN_TAIL_H

#include "cli/cli.h"

/* The last `before` ones first. Until a signal ends the process, stdout is
 * gone, or there is an error that does not pass. */
int run_tail(const struct cli *cli, struct once *once, const struct once_run_query *query,
             size_t before);

#endif
