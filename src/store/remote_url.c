/* remote_url.c - what is behind "once:".
 *
 *   once://[token@]host[:port][?options]         TCP, port 6624; onces:// with TLS
 *   once://[token@]/path/of/the.sock[?options]   unix socket, also once:/path
 *   options: timeout_ms=10000  ca=FILE (onces)
 *
 * Guarantees: no error text has any part of a token in it. */
#include "base/text.h"
#include "store/remote.h"

#include <stdlib.h>
#include <sys/un.h>

#define USAGE "once://[token@]host[:port] or once:///path/of/the.sock"

enum { TIMEOUT_MS = 10000, TIMEOUT_MS_MAX = 600000 };

static int invalid(struct err *reterr, const char *what)
{
    return err_set(reterr, ERR_INVALID, "url: %s; write %s", what, USAGE);
}

static int option_set(struct remote_options *o, char *pair, struct err *reterr)
{
    if (strncmp(pair, "ca=", 3) == 0) {
        if (!url_unescape(pair + 3)) return invalid(reterr, "a broken % escape");
        o->ca = pair + 3;
        return 0;
    }
    if (strncmp(pair, "timeout_ms=", 11) != 0)
        return invalid(reterr, "the options are timeout_ms, and ca for onces://");
    if (!number_within(pair + 11, 1, TIMEOUT_MS_MAX, &o->timeout_ms))
        return invalid(reterr, "timeout_ms is 1 to 600000");
    return 0;
}

/* "host", "host:port", "[::1]:port" */
static int host_set(struct remote_options *o, char *host, struct err *reterr)
{
    char *port = NULL;
    int64_t n;
    if (*host == '[') {
        char *end = strchr(++host, ']');
        if (!end) return invalid(reterr, "the address has no closing ]");
        *end = '\0';
        if (end[1] && end[1] != ':')
            return invalid(reterr, "something else than a port after the address");
        if (end[1]) port = end + 2;
    } else if ((port = strchr(host, ':'))) {
        *port++ = '\0';
    }
    if (port && !number_within(port, 1, 65535, &n))
        return invalid(reterr, "the port is 1 to 65535");
    if (!*host) return invalid(reterr, "the host is missing");
    o->host = host;
    if (port) o->port = port;
    return 0;
}

/* "once:/token@host" is no path, and an error would show it as one. */
static int path_set(struct remote_options *o, char *path, struct err *reterr)
{
    if (memchr(path, '@', 1 + strcspn(path + 1, "/")))
        return invalid(reterr, "two slashes go before a token; in a path an @ is %40");
    if (!url_unescape(path)) return invalid(reterr, "a broken % escape");
    if (strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return invalid(reterr, "the path of the socket is too long");
    o->path = path;
    return 0;
}

static int server_set(struct remote_options *o, char *server, struct err *reterr)
{
    char *at = *server == '/' ? NULL : strrchr(server, '@');
    if (at) {
        *at++ = '\0';
        if (!url_unescape(server)) return invalid(reterr, "a broken % escape");
        o->token = server;
        server = at;
    }
    if (*server == '/') return path_set(o, server, reterr);
    char *slash = strchr(server, '/');
    if (slash && slash[1]) return invalid(reterr, "something else than a port after the host");
    if (slash) *slash = '\0';
    return host_set(o, server, reterr);
}

int remote_options_parse(const char *rest, struct remote_options *ret, struct err *reterr)
{
    *ret = (struct remote_options){ .memory = strdup(rest),
                                    .port = "6624",
                                    .timeout_ms = TIMEOUT_MS };
    if (!ret->memory) return err_set(reterr, ERR_NOMEM, "out of memory opening once:");
    ret->memory_len = strlen(rest);
    char *server = ret->memory, *more = strchr(server, '?'), *pair;
    if (more) *more++ = '\0';
    while ((pair = strsep(&more, "&"))) {
        int r = option_set(ret, pair, reterr);
        if (r) return r;
    }
    if (strncmp(server, "//", 2) == 0)
        server += 2;
    else if (*server != '/')
        return invalid(reterr, "// or the path of a socket is missing");
    return server_set(ret, server, reterr);
}

void remote_options_fini(struct remote_options *o)
{
    if (!o->memory) return;
    explicit_bzero(o->memory, o->memory_len);
    free(o->memory);
    o->memory = NULL;
}
