/* run_tail.h - follows runs: a line for each that is new, and whenever its status changes.
 *
 * Asks again and again, soon while there is something to tell and rarely while there is not. Lists are
 * in the order of ids, which are made when a trigger comes, and a run is there when that was carried
 * out: so every look goes back a little, and ten seconds of it every second. Every run that is in the
 * list by then is told of, once; if more than 20,000 are new at one look, the newest are, and how many
 * were skipped is said. A run whose id is older than that, made by its caller, or by another clock, is
 * missed. Of what was seen and is not over, up to 50,000 are followed, the newest. */
#ifndef CLI_RUN_TAIL_H
#define CLI_RUN_TAIL_H

#include "cli/cli.h"

/* The last `before` ones first. Until a signal ends the process, stdout is
 * gone, or there is an error that does not pass. */
int run_tail(const struct cli *cli, struct once *once, const struct once_run_query *query,
             size_t before);

#endif
