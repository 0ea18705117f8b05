/* input.h - a value from stdin: read to its end, or refused. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "base/buf.h"
#include "cli/cli.h"

/* Adds all of stdin to `into`, whose maximum is the limit; `what` names it in messages. Returns 0,
 * or the exit status after a message. */
int input_read(const struct cli *cli, const char *what, struct buf *into);

#endif
