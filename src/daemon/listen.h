/* listen.h - where the daemon is reached: addresses as people write them, and sockets on them.
 *
 *   127.0.0.1:6624   [::1]:6624   localhost:6624   :6624   unix:PATH
 *
 * Port 0 lets the kernel choose; `shown` has what it chose. Who may
 * listen beyond this machine is decided in guard.h. A socket in the file system is the owner's alone; one that a
 * process has left behind is replaced, one that somebody listens on is not. */
#ifndef DAEMON_LISTEN_H
#define DAEMON_LISTEN_H

#include "base/err.h"
#include "daemon/conn.h"

#include <netinet/in.h>
#include <sys/un.h>

enum { ADDRESS_TEXT_BYTES = 160 };

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un path;
};

/* Opens nothing. */
int address_parse(const char *text, union address *ret_address, struct err *reterr);
bool address_is_local(const union address *address); /* only this machine can reach it */
void address_show(const union address *address, char out[ADDRESS_TEXT_BYTES]);

struct listener {
    union socket uv;
    struct conns *conns;
    const struct door *door;
    void *door_ctx;
    const struct tls_keys *keys; /* for TLS; NULL: none */
    bool open;
    struct timer again; /* there was no memory for a connection that has come */
    char shown[ADDRESS_TEXT_BYTES];
};

/* `l` is zeroed, with conns, door, door_ctx and keys set. A socket in the file system has no use for
 * keys: what it carries does not leave the machine. */
int listener_open(struct listener *l, const char *text, struct err *reterr);
void listener_close(struct listener *l); /* the handle is gone after a turn of libuv's loop */

#endif
