/* door.h - a daemon in the process: an engine, and both doors in front of it, on the loop and the
 * clock of a world.
 *
 * It is reached through sockets in the world's directory, one for each door. Whatever turns the world (world_settle(),
 * world_advance(), ...) carries the daemon, too; time passes for both at once, and only when the
 * test says so. */
#ifndef TESTS_SUPPORT_DOOR_H
#define TESTS_SUPPORT_DOOR_H

#include "daemon/auth.h"
#include "tests/support/world.h"

struct daemon;

enum { DAEMON_URL_BYTES = 160 };

struct daemon_options {
    struct auth *auth;       /* NULL: everybody may do everything */
    int64_t value_bytes_max; /* 0: as usual */
    int64_t patience_ms;     /* 0: as usual */
};

/* Owns the store. `options` may be NULL. It ends with daemon_stop(), or with the world. */
struct daemon *daemon_start(struct world *w, struct store *store,
                            const struct daemon_options *options);
void daemon_stop(struct daemon *d); /* its connections are closed, its store is, too */

const char *daemon_socket(const struct daemon *d);      /* its path, for RESP */
const char *daemon_http_socket(const struct daemon *d); /* the same, for HTTP */
struct store *daemon_store(const struct daemon *d);     /* what it owns */
const char *daemon_url(const struct daemon *d);         /* "once:///..." */
struct engine_stats daemon_stats(const struct daemon *d);
size_t daemon_connections(const struct daemon *d);
size_t daemon_watches(const struct daemon *d);
void daemon_hang_up(struct daemon *d); /* on everybody, at once */

/* Ends, keeps its store, and comes back at the same address: as a restart with a ledger. */
void daemon_pause(struct daemon *d);
void daemon_resume(struct daemon *d);

#endif
