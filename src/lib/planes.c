/* planes.c - configuration to planes, planes to one store; see planes.h. */
#include "lib/planes.h"

#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { URL_BYTES = 4200, URL_SHOWN_BYTES = 61 };

bool planes_spooled(const struct planes_config *config)
{
    return config->buffer && strcmp(config->buffer, "spool") == 0;
}

/* A file of our own. */
static int url_in_data(const char *data_dir, const char *name, char *url, size_t len,
                       struct err *reterr)
{
    if (!data_dir) data_dir = ".";
    if (mkdir(data_dir, 0700) < 0 && errno != EEXIST)
        return err_set(reterr, ERR_UNAVAILABLE, "cannot create the directory %.120s: %s",
                       data_dir, strerror(errno));
    int n = snprintf(url, len, "sqlite:%s/%s", data_dir, name);
    if (n < 0 || (size_t)n >= len)
        return err_set(reterr, ERR_LIMIT, "the path of the data directory is too long");
    return 0;
}

static int open_traced(const char *url, const struct store_env *env, struct store **ret_store,
                       struct err *reterr)
{
    struct store *store;
    int r = store_open(url, env, &store, reterr);
    if (r) return r;
    if (!env->trace) {
        *ret_store = store;
        return 0;
    }
    return traced_open(store, env, ret_store, reterr);
}

static int ledger_url(const struct planes_config *config, char *url, size_t len,
                      struct err *reterr)
{
    if (!config->ledger) return url_in_data(config->data_dir, "once.db", url, len, reterr);
    int n = snprintf(url, len, "%s", config->ledger);
    if (n < 0 || (size_t)n >= len)
        return err_set(reterr, ERR_LIMIT, "the URL of the ledger is too long");
    return 0;
}

static int open_ledger(const struct planes_config *config, const struct store_env *env,
                       struct store **ret_store, struct err *reterr)
{
    char ledger[URL_BYTES];
    struct store *store;
    struct store_env ours = *env;
    ours.runs = config->runs;
    ours.markers = config->markers;
    int r = ledger_url(config, ledger, sizeof ledger, reterr);
    if (!r) r = open_traced(ledger, &ours, &store, reterr);
    if (r) return r;
    if (!(store->caps & CAP_DURABLE)) {
        char shown[URL_SHOWN_BYTES];
        store_close(store);
        url_shown(ledger, shown, sizeof shown);
        return err_set(reterr, ERR_INVALID,
                       "\"%s\" is lost in a restart and cannot be the ledger; use "
                       "sqlite:PATH or postgres://, or none to do without one",
                       shown);
    }
    *ret_store = store;
    return 0;
}

/* "sqlite:PATH?..." to "sqlite:PATH-buffer?..."; false: the ledger is not a file. */
static bool beside_ledger(const char *ledger, char *url, size_t len)
{
    if (strncmp(ledger, "sqlite:", 7) != 0) return false;
    size_t path = strcspn(ledger, "?");
    int n = snprintf(url, len, "%.*s-buffer%s", (int)path, ledger, ledger + path);
    return n > 0 && (size_t)n < len;
}

/* Where bursts wait, unless coord can keep them. NULL without an error: nowhere. */
static int open_buffer(const struct planes_config *config, const struct store *coord,
                       const struct store_env *env, struct store **ret_store,
                       struct err *reterr)
{
    char ledger[URL_BYTES], url[URL_BYTES];
    const char *buffer = planes_spooled(config) ? NULL : config->buffer;
    *ret_store = NULL;
    if (!config->runs || (!buffer && (coord->caps & CAP_BUFFER))) return 0;
    if (buffer && strcmp(buffer, "none") == 0) return 0;
    if (!buffer) {
        int r = ledger_url(config, ledger, sizeof ledger, reterr);
        if (r) return r;
        if (!beside_ledger(ledger, url, sizeof url)) return 0;
        buffer = url;
    }
    struct store *store;
    int r = open_traced(buffer, env, &store, reterr);
    if (r) return r;
    if ((store->caps & (CAP_BUFFER | CAP_DURABLE)) != (CAP_BUFFER | CAP_DURABLE)) {
        char shown[URL_SHOWN_BYTES];
        store_close(store);
        url_shown(buffer, shown, sizeof shown);
        return err_set(reterr, ERR_INVALID,
                       "\"%s\" cannot be the buffer; use sqlite:PATH, or none", shown);
    }
    *ret_store = store;
    return 0;
}

/* A file that nobody else has open. A buffer that is a synced file needs none. */
static int open_spool(const struct planes_config *config, const struct store *coord,
                      const struct store_env *env, struct store **ret_store, struct err *reterr)
{
    char url[URL_BYTES];
    *ret_store = NULL;
    if (!config->runs || !planes_spooled(config)) return 0;
    if (!(coord->caps & CAP_BUFFER))
        return err_set(reterr, ERR_INVALID,
                       "buffer = spool is for a buffer in Redis; here it is a synced file "
                       "already, or there is none: leave the setting out");
    int r = url_in_data(config->data_dir, "spool.db?exclusive=1", url, sizeof url, reterr);
    if (r) return r;
    struct err why;
    r = open_traced(url, env, ret_store, &why);
    if (!r) return 0;
    return err_set(reterr, r,
                   "the spool in %.50s: %.80s; every daemon needs a --data of its own",
                   config->data_dir ? config->data_dir : ".", why.text);
}

static int join_planes(const struct planes_config *config, struct store *coord,
                       struct store *ledger, const struct store_env *env,
                       struct store **ret_store, struct err *reterr)
{
    struct tiered_options options = TIERED_OPTIONS_INIT;
    if (coord->timeout_ms) options.coord_deadline_ms = coord->timeout_ms;
    int r = open_buffer(config, coord, env, &options.buffer, reterr);
    if (!r) r = open_spool(config, coord, env, &options.spool, reterr);
    if (!r) return tiered_open(coord, ledger, &options, env, ret_store, reterr);
    store_close(options.buffer);
    store_close(coord);
    store_close(ledger);
    return r;
}

static const char *coord_url(const struct planes_config *config)
{
    return config->coord ? config->coord : "memory:";
}

static bool has_coord(const struct planes_config *config)
{
    return !config->markers && strcmp(coord_url(config), "none") != 0;
}

static bool is_daemon(const char *url)
{
    return url && (strncmp(url, "once:", 5) == 0 || strncmp(url, "onces:", 6) == 0);
}

static int settle_url(const struct planes_config *config, struct err *reterr)
{
    if (config->ledger || config->coord || config->ephemeral)
        return err_set(reterr, ERR_INVALID,
                       "a daemon has its own planes: give its URL, or a ledger and coord");
    if (!is_daemon(config->url))
        return err_set(reterr, ERR_INVALID,
                       "the URL of a daemon is once://host:port, onces://host:port or "
                       "once:///path/of/the.sock");
    return 0;
}

int planes_settle(struct planes_config *config, struct err *reterr)
{
    if (config->url) return settle_url(config, reterr);
    if (is_daemon(config->ledger) || is_daemon(config->coord))
        return err_set(reterr, ERR_INVALID,
                       "once: is a daemon, which has planes and is none: give it as the url");
    if (config->ledger && strcmp(config->ledger, "none") == 0) {
        config->ledger = NULL;
        config->ephemeral = true;
    }
    if (config->ephemeral && config->ledger)
        return err_set(reterr, ERR_INVALID, "ONCE_EPHEMERAL has no ledger: leave it out");
    if (planes_spooled(config) && (config->ephemeral || !has_coord(config)))
        return err_set(reterr, ERR_INVALID,
                       "buffer = spool needs both planes: Redis as coord, and a ledger");
    if (config->ephemeral && !has_coord(config))
        return err_set(reterr, ERR_INVALID, "neither a ledger nor coord: nothing to stand on");
    return 0;
}

int planes_open(const struct planes_config *config, const struct store_env *env,
                struct store **ret_store, struct err *reterr)
{
    struct store *coord, *ledger = NULL;
    if (config->url) return open_traced(config->url, env, ret_store, reterr);
    int r = config->ephemeral ? 0 : open_ledger(config, env, &ledger, reterr);
    if (r) return r;
    if (!has_coord(config)) {
        *ret_store = ledger;
        return 0;
    }
    r = open_traced(coord_url(config), env, &coord, reterr);
    if (r) {
        store_close(ledger);
        return r;
    }
    if (ledger) return join_planes(config, coord, ledger, env, ret_store, reterr);
    *ret_store = coord;
    return 0;
}
