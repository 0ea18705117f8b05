/* postgres_options.c - "postgres:" URLs: our own parameters are taken out, the rest is libpq's.
 *
 * Guarantees: whatever libpq takes is taken, as a URL or as "name=value ..."; no error shows a
 * password. */
#include "base/buf.h"
#include "base/text.h"
#include "store/postgres_db.h"

#include <stdlib.h>
#include <string.h>

enum {
    CONNECTIONS_DEFAULT = 2,
    CONNECTIONS_MAX = 64,
    TIMEOUT_MS_DEFAULT = 5000,
    TIMEOUT_MS_MAX = 600000,
    SCHEMA_BYTES_MAX = 40,
    URL_BYTES_MAX = 8192,
};

static bool set_connections(struct postgres_options *o, const char *value)
{
    char *end;
    o->connections = strtol(value, &end, 10);
    return *value && !*end && o->connections >= 1 && o->connections <= CONNECTIONS_MAX;
}

static bool set_timeout(struct postgres_options *o, const char *value)
{
    return duration_parse(bytes_str(value), TIMEOUT_MS_MAX, &o->timeout_ms) &&
           o->timeout_ms > 0;
}

static bool set_name(char **name, const char *value)
{
    size_t len = strlen(value);
    if (len == 0 || len > SCHEMA_BYTES_MAX) return false;
    if (strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789_") < len) return false;
    if (*value >= '0' && *value <= '9') return false;
    free(*name);
    *name = strdup(value);
    return *name != NULL;
}

static bool set_schema(struct postgres_options *o, const char *value)
{
    return set_name(&o->schema, value);
}

static bool set_markers(struct postgres_options *o, const char *value)
{
    return set_name(&o->markers, value);
}

static bool set_migrate(struct postgres_options *o, const char *value)
{
    if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0) return false;
    o->migrate = *value == 'y';
    return true;
}

static const struct {
    const char *name, *allowed;
    bool (*set)(struct postgres_options *, const char *value);
} parameters[] = {
    { "connections", "1 to 64", set_connections },
    { "timeout_ms", "a duration from 1 ms to 10m", set_timeout },
    { "schema", "up to 40 lower-case letters, digits and _", set_schema },
    { "migrate", "yes or no", set_migrate },
    { "markers", "the name of a schema, as for schema", set_markers },
};

/* 1: it was ours, 0: it is libpq's, negative: it is ours and wrong. */
static int take(struct postgres_options *o, struct bytes pair, struct err *reterr)
{
    for (size_t i = 0; i < sizeof parameters / sizeof parameters[0]; i++) {
        size_t len = strlen(parameters[i].name);
        if (pair.len <= len || memcmp(pair.data, parameters[i].name, len) != 0 ||
            pair.data[len] != '=')
            continue;
        char value[64] = "";
        if (pair.len - len - 1 < sizeof value)
            memcpy(value, pair.data + len + 1, pair.len - len - 1);
        if (parameters[i].set(o, value)) return 1;
        return err_set(reterr, ERR_INVALID, "postgres: %s=%.40s: allowed is %s",
                       parameters[i].name, value, parameters[i].allowed);
    }
    return 0;
}

/* ---- the two forms of a connection string ---- */

static bool is_url(const char *rest)
{
    return strncmp(rest, "//", 2) == 0;
}

/* Where the query begins, or the end: behind user and password, as libpq sees it. */
static size_t query_at(const char *rest)
{
    size_t at = 2 + strcspn(rest + 2, "@/");
    if (rest[at] != '@') at = 0;
    return at + strcspn(rest + at, "?");
}

/* A / in a password ends the part that libpq takes for user and password; it would then show
 * the beginning of the password as a bad port. */
static bool is_cut_short(const char *rest)
{
    size_t slash = 2 + strcspn(rest + 2, "/");
    size_t path = strcspn(rest + slash, "?");
    return memchr(rest + slash, '@', path) != NULL;
}

static int split_url(struct postgres_options *o, const char *rest, struct buf *left,
                     struct err *reterr)
{
    if (is_cut_short(rest))
        return err_set(reterr, ERR_INVALID,
                       "postgres: an @ behind the first /: write a / in a password as %%2F");
    size_t before = query_at(rest);
    buf_printf(left, "postgresql:%.*s", (int)before, rest);
    char separator = '?';
    for (const char *at = rest + before; *at;) {
        struct bytes pair = bytes_of(at + 1, strcspn(at + 1, "&"));
        at += 1 + pair.len;
        int r = take(o, pair, reterr);
        if (r < 0) return r;
        if (r) continue;
        buf_byte(left, (uint8_t)separator);
        buf_add(left, pair);
        separator = '&';
    }
    return 0;
}

/* The length of one "name=value", where the value may be quoted and hold escaped quotes. */
static size_t word_len(const char *word)
{
    bool quoted = false;
    size_t at = 0;
    for (; word[at] && (quoted || !strchr(" \t\n", word[at])); at++) {
        if (word[at] == '\'') quoted = !quoted;
        if (word[at] == '\\' && word[at + 1]) at++;
    }
    return at;
}

static int split_words(struct postgres_options *o, const char *rest, struct buf *left,
                       struct err *reterr)
{
    while (*rest) {
        rest += strspn(rest, " \t\n");
        struct bytes word = bytes_of(rest, word_len(rest));
        rest += word.len;
        int r = take(o, word, reterr);
        if (r < 0) return r;
        if (r) continue;
        buf_add(left, word);
        buf_byte(left, ' ');
    }
    return 0;
}

/* ---- errors without passwords ---- */

/* The string with what may be a password cut out, however badly it is formed: between the first
 * colon after // and the last @, and whatever follows "password". */
static void without_password(const char *conninfo, struct buf *ret)
{
    const char *slashes = strstr(conninfo, "://"), *at = strrchr(conninfo, '@');
    const char *from = conninfo;
    if (slashes && at > slashes) {
        buf_add(ret, bytes_of(conninfo, (size_t)(slashes + 3 - conninfo)));
        from = at + 1;
    }
    const char *word = strstr(from, "password");
    buf_add(ret, bytes_of(from, word ? (size_t)(word - from) : strlen(from)));
    buf_byte(ret, '\0');
}

/* libpq quotes what it does not understand. Where it still does so without the password, its
 * words are safe to show; where it does not, the password was the problem. */
static int refuse_string(const char *conninfo, struct err *reterr)
{
    struct buf shown;
    char *why = NULL;
    buf_init(&shown, URL_BYTES_MAX);
    without_password(conninfo, &shown);
    PQconninfoOption *parsed =
        buf_failed(&shown) ? NULL : PQconninfoParse((const char *)shown.data, &why);
    if (why)
        err_set(reterr, ERR_INVALID, "postgres: %.*s", (int)strcspn(why, "\n"), why);
    else
        err_set(reterr, ERR_INVALID,
                "postgres: the part with the password is not well formed; write other "
                "characters than letters and digits as %%XX");
    PQconninfoFree(parsed);
    PQfreemem(why);
    buf_fini(&shown);
    return reterr->code;
}

int postgres_options_parse(const char *rest, struct postgres_options *ret_options,
                           struct err *reterr)
{
    *ret_options = (struct postgres_options){ .connections = CONNECTIONS_DEFAULT,
                                              .timeout_ms = TIMEOUT_MS_DEFAULT,
                                              .migrate = true };
    struct buf left;
    buf_init(&left, URL_BYTES_MAX);
    int r = set_schema(ret_options, "once") && set_markers(ret_options, "public")
                ? 0
                : err_set(reterr, ERR_NOMEM, "out of memory opening postgres:");
    if (!r)
        r = is_url(rest) ? split_url(ret_options, rest, &left, reterr)
                         : split_words(ret_options, rest, &left, reterr);
    buf_byte(&left, '\0');
    if (!r && buf_failed(&left))
        r = err_set(reterr, buf_failed(&left), "postgres: the connection string is too long");
    ret_options->conninfo = (char *)left.data;
    if (r) return r;
    char *why = NULL;
    PQconninfoOption *parsed = PQconninfoParse(ret_options->conninfo, &why);
    if (!parsed) r = refuse_string(ret_options->conninfo, reterr);
    PQconninfoFree(parsed);
    PQfreemem(why);
    return r;
}

void postgres_options_clear(struct postgres_options *o)
{
    free(o->conninfo);
    free(o->schema);
    free(o->markers);
    *o = (struct postgres_options){ 0 };
}
