/* notice.h - what the daemon tells whoever started it: a banner for a person at a terminal, log lines
 * for everything else; and the one line on stdout that says where it listens. */
#ifndef CLI_NOTICE_H
#define CLI_NOTICE_H

#include "cli/cli.h"
#include "daemon/log.h"
#include "daemon/server.h"

struct notices {
    const struct cli *cli;
    bool terminal; /* a person reads stderr */
    struct log log;
};

/* `format` and `level` as the names of log.h have them; no level: as --quiet and --verbose say. */
void notices_init(struct notices *n, const struct cli *cli, const char *format,
                  const char *level);
void notices_set_level(struct notices *n, const char *level);
void notice_started(struct notices *n, const struct server *s);
void notice_stopped(struct notices *n);

void notice_fact(void *ctx, const struct once_fact *fact); /* `ctx` is the notices */
void notice_reloaded(struct notices *n, const struct err *err);

#endif
