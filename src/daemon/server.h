/* server.h - the daemon: planes, an engine, doors, and one event loop that carries them.
 *
 * Guarantees: one thread drives everything (stores that block have theirs). A signal to stop is
 * answered in a bounded time: no more connections and commands; what was asked is finished; what
 * waits longer than drain_ms is told to go elsewhere; BOUND claims are released; then it ends. */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include "base/err.h"
#include "base/trace.h"

#include <once/once.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct log;
struct server;

struct server_config {
    const char *ledger, *coord, *data_dir; /* as in once_config; used while opening only */
    const char
        *buffer; /* where bursts wait; NULL: coord, or beside a ledger that is a file; "none";
                  * "spool": coord, and in data_dir until the ledger has them */
    const char *http, *resp;        /* addresses of the doors: listen.h, or "off" */
    const char *tokens;             /* file of access tokens; NULL: none */
    bool tokens_needed;             /* it is an error if that is not there */
    const char *tls_cert, *tls_key; /* files, for all doors but unix sockets; NULL: none */
    bool insecure;                  /* see guard.h */
    int64_t value_bytes_max;
    size_t waiters_max;
    int64_t patience_ms, sweep_ms; /* as in once_config */
    const char *gate;              /* on, shadow, off */
    int64_t gate_threshold, gate_window_ms, gate_hold_ms;
    int64_t gate_all_threshold; /* of all envs together; 0: there is none */
    bool drainer;               /* moves the buffer into the ledger */
    int64_t drainer_rate;       /* entries a second at most; 0: as many as it takes */
    int64_t drainer_env_max;    /* entries of one env in one round; 0: no such limit */
    int64_t drain_ms;           /* how long what waits may go on waiting after the signal */
    size_t connections_max;     /* less if the process may not have so many descriptors */
    const char *notify_socket;  /* of a service manager, see notify.h; NULL: there is none */
    const struct trace *trace;  /* may be NULL; outlives the server */
    struct log *log;            /* the same; for lines about requests */
    once_fact_fn *on_fact; /* what the planes say of themselves, when it runs; may be NULL */
    void *on_fact_ctx;
    /* After SIGHUP. With a code, what was reloaded is as it was, and the text says why. */
    void (*on_reloaded)(void *ctx, const struct err *err);
    void *on_reloaded_ctx;
};

#define SERVER_CONFIG_INIT                                                                     \
    {                                                                                          \
        .http = "127.0.0.1:6623", .resp = "127.0.0.1:6624", .value_bytes_max = 1048576,        \
        .waiters_max = 100000, .patience_ms = 5000, .sweep_ms = 60000, .drain_ms = 5000,       \
        .connections_max = 20000, .gate = "on", .gate_threshold = 100, .gate_window_ms = 200,  \
        .gate_hold_ms = 500, .drainer = true                                                   \
    }

/* Listens when it returns 0; answers from server_run() on. */
int server_open(const struct server_config *config, struct server **ret_server,
                struct err *reterr);
/* Of the door "http" or "resp", with the port that was chosen; NULL: it is off. */
const char *server_address(const struct server *s, const char *door);
const char *server_planes(const struct server *s); /* without passwords */
bool server_durable(const struct server *s);       /* does the store outlive the process? */
bool server_speaks_tls(const struct server *s);    /* where other machines could listen */
bool server_wants_tokens(const struct server *s);  /* of everybody who asks */

/* Reads again what may change while it runs: tokens, certificate and key. SIGHUP does the same. */
int server_reload(struct server *s, struct err *reterr);

/* Until SIGTERM or SIGINT. Not 0: a store kept what it was given for too long; the process has to
 * end without closing the server. */
int server_run(struct server *s, struct err *reterr);
void server_close(struct server *s); /* NULL is fine */

#endif
