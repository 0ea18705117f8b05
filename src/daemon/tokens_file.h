/* tokens_file.h - the file with the lines of tokens.h.
 *
 * Guarantees: a reader sees the file as it was before a change or after it, never between, also
 * across a crash; two who change it at once both have changed it. It is created for its owner
 * alone (0600). One that others may write to is refused: they could let themselves in. */
#ifndef DAEMON_TOKENS_FILE_H
#define DAEMON_TOKENS_FILE_H

#include "daemon/tokens.h"

/* Where there is no file, the set is empty, *ret_found false, and with `must_exist` it is an
 * error. */
int tokens_load(const char *path, bool must_exist, struct tokens *ret_tokens, bool *ret_found,
                struct err *reterr);

/* While it is open, others who want to change the file wait. */
struct tokens_change {
    const char *path;
    int dir; /* its directory: locked, and synced after the rename */
    struct tokens tokens;
};

int tokens_change_begin(struct tokens_change *c, const char *path, struct err *reterr);
int tokens_change_save(struct tokens_change *c, struct err *reterr);
void tokens_change_end(struct tokens_change *c);

#endif
