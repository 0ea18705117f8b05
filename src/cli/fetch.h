/* fetch.h - a GET, as much of HTTP as a command needs to read something off a daemon. Blocking. */
#ifndef CLI_FETCH_H
#define CLI_FETCH_H

#include "base/bytes.h"
#include "base/err.h"

struct fetch {
    const char *url;  /* http://HOST:PORT, https://HOST:PORT, unix:PATH: of the daemon's door */
    const char *path; /* "/metrics" */
    const char *token;  /* NULL: none */
    int64_t timeout_ms; /* of each step: connecting, sending, reading on */
};

/* The content of a 200, which the caller frees, with a NUL behind it. The certificate of https is
 * checked, by the authorities of the system or those in the file that SSL_CERT_FILE names. */
int fetch_text(const struct fetch *f, char **ret_text, struct err *reterr);

#endif
