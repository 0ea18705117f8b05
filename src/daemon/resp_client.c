/* resp_client.c - what Redis clients say when they connect, answered as they expect it. */
#include "daemon/resp_session.h"

#include "proto/number.h"

#include <once/once.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Clients decide by it what to send; what this door does, it does as this version of Redis. */
#define REDIS_VERSION "7.0.0"

void resp_say_error(struct resp_writer *w, const char *code, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    resp_error(w, code, bytes_str(text));
}

/* ---- the name of a connection ---- */

static bool name_is_fine(struct bytes name)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.data[i] < '!' || name.data[i] > '~') return false;
    return name.len <= RESP_NAME_BYTES_MAX;
}

/* False: it was refused, and `w` says why. */
static bool set_name(struct resp_session *s, struct bytes name, struct resp_writer *w)
{
    if (!name_is_fine(name)) {
        resp_say_error(
            w, "ERR",
            "Client names cannot contain spaces, newlines or special characters, and "
            "have at most %d bytes.",
            RESP_NAME_BYTES_MAX);
        return false;
    }
    char *copy = name.len ? strndup((const char *)name.data, name.len) : NULL;
    if (name.len && !copy) {
        resp_say_error(w, "OOM", "out of memory; nothing was changed");
        return false;
    }
    free(s->name);
    s->name = copy;
    return true;
}

/* ---- HELLO ---- */

static void write_hello(struct resp_session *s, struct resp_writer *w)
{
    resp_map(w, 9);
    resp_text(w, "server");
    resp_text(w, "once");
    resp_text(w, "version");
    resp_text(w, once_version());
    resp_text(w, "proto");
    resp_integer(w, s->version);
    resp_text(w, "id");
    resp_integer(w, (int64_t)s->conn->id);
    resp_text(w, "mode");
    resp_text(w, "standalone");
    resp_text(w, "role");
    resp_text(w, "master");
    resp_text(w, "modules");
    resp_array(w, 0);
    resp_text(w, "durable"); /* the rest is for our own clients */
    resp_boolean(w, s->door->durable);
    resp_text(w, "value_bytes_max");
    resp_integer(w, s->door->value_bytes_max);
}

/* The words behind the version. False: refused. */
static bool hello_options(struct resp_session *s, const struct resp_command *in,
                          struct resp_writer *w)
{
    for (size_t i = 2; i < in->count;) {
        size_t left = in->count - i;
        if (resp_word_is(in->args[i], "AUTH") && left >= 3) {
            if (!resp_authenticate(s, in->args[i + 1], in->args[i + 2], w)) return false;
            i += 3;
        } else if (resp_word_is(in->args[i], "SETNAME") && left >= 2) {
            if (!set_name(s, in->args[i + 1], w)) return false;
            i += 2;
        } else {
            resp_say_error(w, "ERR", "Syntax error in HELLO option '%.*s'",
                           (int)(in->args[i].len < 32 ? in->args[i].len : 32),
                           (const char *)in->args[i].data);
            return false;
        }
    }
    return true;
}

static void forget_pushes(struct resp_session *s)
{
    resp_watches_cancel(s);
    resp_calls_drop(s);
}

void resp_hello(struct resp_session *s, const struct resp_command *in, struct resp_writer *w)
{
    int64_t version = s->version;
    if (in->count > 1 && (!number_parse(in->args[1], &version) || version < 2 || version > 3)) {
        resp_say_error(w, "NOPROTO", "unsupported protocol version");
        return;
    }
    if (!hello_options(s, in, w)) return;
    if (!auth_known(s->door->auth, &s->grant)) {
        resp_say_error(
            w, "NOAUTH",
            "HELLO must be called with the client already authenticated, otherwise "
            "the HELLO <proto> AUTH <user> <pass> option can be used to authenticate "
            "the client and select the RESP protocol version at the same time");
        return;
    }
    s->version = w->version = (int)version;
    if (version < 3) forget_pushes(s); /* it could not be told */
    write_hello(s, w);
}

/* ---- CLIENT ---- */

static void client_id(struct resp_session *s, const struct resp_command *in,
                      struct resp_writer *w)
{
    (void)in;
    resp_integer(w, (int64_t)s->conn->id);
}

static void client_getname(struct resp_session *s, const struct resp_command *in,
                           struct resp_writer *w)
{
    (void)in;
    if (s->name)
        resp_text(w, s->name);
    else
        resp_null(w);
}

static void client_setname(struct resp_session *s, const struct resp_command *in,
                           struct resp_writer *w)
{
    if (set_name(s, in->args[2], w)) resp_simple(w, "OK");
}

/* About eviction and libraries: nothing that changes anything here. */
static void client_ok(struct resp_session *s, const struct resp_command *in,
                      struct resp_writer *w)
{
    (void)s, (void)in;
    resp_simple(w, "OK");
}

static const struct {
    const char *name;
    size_t args;
    resp_answer *answer;
} client_table[] = {
    { "ID", 2, client_id },           { "GETNAME", 2, client_getname },
    { "SETNAME", 3, client_setname }, { "SETINFO", 4, client_ok },
    { "NO-EVICT", 3, client_ok },     { "NO-TOUCH", 3, client_ok },
};

void resp_client(struct resp_session *s, const struct resp_command *in, struct resp_writer *w)
{
    for (size_t i = 0; i < sizeof client_table / sizeof client_table[0]; i++) {
        if (!resp_word_is(in->args[1], client_table[i].name)) continue;
        if (in->count == client_table[i].args)
            client_table[i].answer(s, in, w);
        else
            resp_say_error(w, "ERR", "wrong number of arguments for 'client' command");
        return;
    }
    resp_say_error(w, "ERR", "unknown subcommand of CLIENT; see COMMAND DOCS CLIENT");
}

/* ---- the rest ---- */

void resp_ping(struct resp_session *s, const struct resp_command *in, struct resp_writer *w)
{
    (void)s;
    if (in->count == 1)
        resp_simple(w, "PONG");
    else
        resp_bulk(w, in->args[1]);
}

void resp_echo(struct resp_session *s, const struct resp_command *in, struct resp_writer *w)
{
    (void)s;
    resp_bulk(w, in->args[1]);
}

void resp_select(struct resp_session *s, const struct resp_command *in, struct resp_writer *w)
{
    (void)s;
    if (resp_word_is(in->args[1], "0"))
        resp_simple(w, "OK");
    else
        resp_say_error(w, "ERR", "DB index is out of range: there is only 0");
}

void resp_reset(struct resp_session *s, const struct resp_command *in, struct resp_writer *w)
{
    (void)in;
    s->version = w->version = 2;
    forget_pushes(s);
    s->grant = (struct grant){ 0 };
    resp_meet(s);
    free(s->name);
    s->name = NULL;
    resp_simple(w, "RESET");
}

void resp_quit(struct resp_session *s, const struct resp_command *in, struct resp_writer *w)
{
    (void)in;
    resp_simple(w, "OK");
    conn_end(s->conn, CLOSE_REFUSED);
}

static void info_text(const struct resp_door *d, struct buf *text)
{
    struct engine_stats stats = engine_stats(d->engine);
    const struct door_stats *clients = &d->conns->stats[DOOR_RESP];
    buf_printf(text,
               "# Server\r\nonce_version:%s\r\nredis_version:" REDIS_VERSION
               "\r\nredis_mode:standalone\r\nprocess_id:%ld\r\nuptime_in_seconds:%lld\r\n"
               "planes:%s\r\n\r\n",
               once_version(), (long)getpid(),
               (long long)(d->loop->now_ms - d->started_ms) / 1000, d->planes);
    buf_printf(
        text,
        "# Clients\r\nconnected_clients:%llu\r\nmaxclients:%zu\r\nblocked_clients:%zu\r\n"
        "bound_claims:%zu\r\n\r\n# Stats\r\n"
        "total_connections_received:%llu\r\nrejected_connections:%llu\r\n"
        "total_commands_processed:%llu\r\n",
        (unsigned long long)clients->open, d->conns->count_max, stats.waiters,
        d->bounds->by_token.count, (unsigned long long)clients->accepted,
        (unsigned long long)clients->refused, (unsigned long long)clients->requests);
    for (int o = 1; o <= OUTCOMES; o++)
        if (stats.outcomes[o])
            buf_printf(text, "claims_%s:%llu\r\n", outcome_name((enum outcome)o),
                       (unsigned long long)stats.outcomes[o]);
    buf_printf(text, "takeovers:%llu\r\nlost:%llu\r\ndegraded:%llu\r\nfailed:%llu\r\n",
               (unsigned long long)stats.takeovers, (unsigned long long)stats.lost,
               (unsigned long long)stats.degraded, (unsigned long long)stats.failed);
    buf_printf(text, "\r\n# Persistence\r\nloading:0\r\n");
}

/* Small enough to be told as a whole, whichever section was asked for. */
void resp_info(struct resp_session *s, const struct resp_command *in, struct resp_writer *w)
{
    (void)in;
    struct buf text;
    buf_init(&text, 8192);
    info_text(s->door, &text);
    resp_bulk(w, buf_bytes(&text));
    buf_fini(&text);
}
