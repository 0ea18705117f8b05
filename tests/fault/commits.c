/* commits.c - finds the COMMITs in what a PostgreSQL client sends.
 *
 * Follows the messages of a connection from its first byte. A COMMIT is a query with that text, or
 * the Bind of a statement that was parsed from it: a client that prepares what it uses again sends
 * the text a few times, and from then on only a name. A connection that speaks anything else
 * (Redis, TLS) is given up at its first message, and has none. */
#include "base/check.h"
#include "tests/fault/fault.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { STARTUP_BYTES_MAX = 10000, MESSAGE_BYTES_MAX = 1 << 30, PROTOCOL_3 = 3 << 16 };

static uint32_t number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool is_letter(uint8_t c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* ---- what a message says ---- */

/* The string that begins there, and where the next one does; "" if the head is too short. */
static const char *string_at(const struct commits *c, size_t *at)
{
    const char *text = (const char *)c->head + *at;
    size_t room = *at < c->head_len ? c->head_len - *at : 0, len = strnlen(text, room);
    if (len == room) return "";
    *at += len + 1;
    return text;
}

static bool is_commit(const char *sql)
{
    return strncasecmp(sql, "COMMIT", 6) == 0 && (!sql[6] || sql[6] == ';');
}

static bool is_known(const struct commits *c, const char *name)
{
    if (!*name) return c->unnamed;
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->names[i], name) == 0) return true;
    return false;
}

static void learn(struct commits *c, const char *name, bool commit)
{
    if (!*name) c->unnamed = commit;
    if (!*name || !commit || is_known(c, name) || c->count == COMMIT_NAMES_MAX) return;
    snprintf(c->names[c->count++], sizeof c->names[0], "%s", name);
}

/* Parse: name, text. Bind: portal, name. Query: text. */
static bool message_commits(struct commits *c)
{
    size_t at = 5;
    if (c->head[0] == 'Q') return is_commit(string_at(c, &at));
    if (c->head[0] != 'P' && c->head[0] != 'B') return false;
    const char *first = string_at(c, &at), *second = string_at(c, &at);
    if (c->head[0] == 'B') return is_known(c, second);
    learn(c, first, is_commit(second));
    return false;
}

/* ---- where messages begin and end ---- */

/* Before the start-up message there may be others without a type (SSLRequest). */
static void message_over(struct commits *c)
{
    if (!c->started) c->started = number_at(c->head + 4) == PROTOCOL_3;
    c->head_len = c->left = 0;
}

/* The length is there. */
static void message_begun(struct commits *c)
{
    size_t type = c->started ? 1 : 0, fixed = c->started ? 4 : 8;
    size_t len = number_at(c->head + type);
    size_t max = c->started ? MESSAGE_BYTES_MAX : STARTUP_BYTES_MAX;
    c->foreign = len < fixed || len > max || (type && !is_letter(c->head[0]));
    c->left = c->foreign ? 0 : type + len - c->head_len;
}

static void head_add(struct commits *c, const uint8_t *data, size_t len)
{
    size_t room = sizeof c->head - c->head_len;
    if (len > room) len = room;
    memcpy(c->head + c->head_len, data, len);
    c->head_len += len;
}

static void take_length(struct commits *c, const uint8_t *data, size_t len, size_t *at)
{
    size_t wanted = c->started ? 5 : 4;
    if (c->head_len == 0) c->began = *at;
    while (c->head_len < wanted && *at < len) head_add(c, data + (*at)++, 1);
    if (c->head_len == wanted) message_begun(c);
}

static void take_rest(struct commits *c, const uint8_t *data, size_t len, size_t *at)
{
    size_t n = len - *at < c->left ? len - *at : c->left;
    head_add(c, data + *at, n);
    *at += n;
    c->left -= n;
}

bool commits_next(struct commits *c, const uint8_t *data, size_t len, size_t *at,
                  size_t *ret_begin)
{
    if (*at == 0) c->began = 0; /* of a message that came in part before */
    while (*at < len && !c->foreign) {
        if (c->left)
            take_rest(c, data, len, at);
        else
            take_length(c, data, len, at);
        bool whole = c->head_len >= (c->started ? 5 : 4) && !c->left && !c->foreign;
        if (!whole) continue;
        bool it = c->started && message_commits(c);
        message_over(c);
        if (!it) continue;
        *ret_begin = c->began;
        return true;
    }
    return false;
}
