/* redis_url.c - what is behind "redis:".
 *
 *   redis://[[user]:password@]host[:port][/db][?options]     TCP
 *   redis:///path/of/the.sock[?options]                      unix socket, also redis:/path
 *   options: prefix=once  timeout_ms=100  connections=1  db=0  evictable=0
 *
 * Guarantees: no error text has any part of a password in it. */
#include "base/text.h"
#include "store/redis.h"

#include <stdlib.h>
#include <sys/un.h>

#define USAGE "redis://[user:password@]host[:port][/db][?prefix=,timeout_ms=,connections=]"

static int invalid(struct err *reterr, const char *what)
{
    return err_set(reterr, ERR_INVALID, "redis: %s; write %s", what, USAGE);
}

static bool prefix_fits(const char *text)
{
    size_t len = strlen(text);
    return len > 0 && len <= 64 && !strpbrk(text, "{}*?[]\\");
}

static int option_set(struct redis_options *o, char *pair, struct err *reterr)
{
    char *value = strchr(pair, '=');
    int64_t n;
    if (!value) return invalid(reterr, "an option has no value");
    *value++ = '\0';
    if (!url_unescape(value)) return invalid(reterr, "a broken % escape");
    if (strcmp(pair, "prefix") == 0) {
        if (!prefix_fits(value))
            return invalid(reterr, "prefix is 1 to 64 characters without {}*?[]\\");
        o->prefix = value;
    } else if (strcmp(pair, "timeout_ms") == 0) {
        if (!number_within(value, 1, 60000, &o->timeout_ms))
            return invalid(reterr, "timeout_ms is 1 to 60000");
    } else if (strcmp(pair, "connections") == 0) {
        if (!number_within(value, 1, LANES_MAX, &n))
            return invalid(reterr, "connections is 1 to 16");
        o->lanes = (unsigned)n;
    } else if (strcmp(pair, "db") == 0) {
        if (!number_within(value, 0, 1000000, &n)) return invalid(reterr, "db is a number");
        o->db = (int)n;
    } else if (strcmp(pair, "evictable") == 0) {
        if (!number_within(value, 0, 1, &n)) return invalid(reterr, "evictable is 0 or 1");
        o->evictable = n;
    } else {
        return err_set(reterr, ERR_INVALID,
                       "redis: unknown option \"%.40s\"; known are prefix, timeout_ms, "
                       "connections, db and evictable",
                       pair);
    }
    return 0;
}

static int user_set(struct redis_options *o, char *user, struct err *reterr)
{
    char *password = strchr(user, ':');
    if (!password) return invalid(reterr, "a password needs a colon before it");
    *password++ = '\0';
    if (!url_unescape(user) || !url_unescape(password))
        return invalid(reterr, "a broken % escape");
    if (*user) o->user = user;
    if (*user || *password) o->password = password; /* a user may have an empty one */
    return 0;
}

/* "host", "host:port", "[::1]:port" */
static int host_set(struct redis_options *o, char *host, struct err *reterr)
{
    char *port = NULL;
    int64_t n = o->port;
    if (*host == '[') {
        char *end = strchr(host, ']');
        if (!end) return invalid(reterr, "the address has no closing ]");
        *end = '\0';
        host++;
        if (end[1] == ':')
            port = end + 2;
        else if (end[1])
            return invalid(reterr, "something else than a port after the address");
    } else if ((port = strchr(host, ':'))) {
        *port++ = '\0';
    }
    if (port && !number_within(port, 1, 65535, &n))
        return invalid(reterr, "the port is 1 to 65535");
    if (!*host) return invalid(reterr, "the host is missing");
    if (strlen(host) >= HOST_BYTES) return invalid(reterr, "the host is too long");
    o->host = host;
    o->port = (int)n;
    return 0;
}

/* "redis:/:password@host" is no path, and an error would show it as one. */
static bool is_login(const char *path)
{
    size_t first = 1 + strcspn(path + 1, "/");
    const char *colon = memchr(path, ':', first);
    return colon && memchr(colon, '@', first - (size_t)(colon - path));
}

static int path_set(struct redis_options *o, char *path, struct err *reterr)
{
    if (is_login(path))
        return invalid(reterr,
                       "two slashes go before a user and a password; in a path an @ is %40");
    if (!url_unescape(path)) return invalid(reterr, "a broken % escape");
    if (strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return invalid(reterr, "the path of the socket is too long");
    o->path = path;
    return 0;
}

static int server_set(struct redis_options *o, char *rest, struct err *reterr)
{
    int64_t n;
    char *at = *rest == '/' ? NULL : strrchr(rest, '@');
    if (at) {
        *at++ = '\0';
        int r = user_set(o, rest, reterr);
        if (r) return r;
        rest = at;
    }
    if (*rest == '/') return path_set(o, rest, reterr);
    char *db = strchr(rest, '/');
    if (db) *db++ = '\0';
    if (db && *db) {
        if (!number_within(db, 0, 1000000, &n))
            return invalid(reterr, "the database is a number");
        o->db = (int)n;
    }
    return host_set(o, rest, reterr);
}

int redis_options_parse(const char *rest, struct redis_options *ret, struct err *reterr)
{
    *ret = (struct redis_options){
        .memory = strdup(rest), .prefix = "once", .port = 6379, .timeout_ms = 100, .lanes = 1
    };
    if (!ret->memory) return err_set(reterr, ERR_NOMEM, "out of memory opening redis:");
    ret->memory_len = strlen(rest);
    char *more = strchr(ret->memory, '?'), *pair, *server = ret->memory;
    if (more) *more++ = '\0';
    /* What is behind it would be taken for options, and named in an error. */
    if (more && strchr(more, '@'))
        return invalid(reterr,
                       "an @ after the ?: write a ? in a password as %3F, this @ as %40");
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

void redis_options_fini(struct redis_options *o)
{
    if (!o->memory) return;
    explicit_bzero(o->memory, o->memory_len);
    free(o->memory);
    o->memory = NULL;
}
