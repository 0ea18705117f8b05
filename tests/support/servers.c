/* servers.c - see servers.h. Clearing is plain blocking code over the servers' own libraries, so
 * that it shares nothing with the stores. */
#include "tests/support/servers.h"

#include "base/check.h"

#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* A deadline that passes in real time is generous: a loaded machine is not a finding. */
static const struct {
    const char *variable, *room, *options;
} servers[SERVERS] = {
    [SERVER_NONE] = { "", "", "" },
    [SERVER_REDIS] = { "ONCE_TEST_REDIS", "prefix", "" },
    [SERVER_CLUSTER] = { "ONCE_TEST_REDIS_CLUSTER", "prefix", "" },
    [SERVER_POSTGRES] = { "ONCE_TEST_POSTGRES", "schema", "&timeout_ms=30000" },
    [SERVER_PGBOUNCER] = { "ONCE_TEST_PGBOUNCER", "schema", "&timeout_ms=30000" },
};

const char *server_url(enum server server)
{
    const char *url = getenv(servers[server].variable);
    return url && *url ? url : NULL;
}

void room_init(struct room *room, enum server server)
{
    uint64_t random;
    CHECK(getrandom(&random, sizeof random, 0) == sizeof random);
    room->server = server;
    snprintf(room->name, sizeof room->name, "t%016llx", (unsigned long long)random);
}

void room_url(const struct room *room, char *ret_url, size_t len)
{
    int at = snprintf(ret_url, len, "%s?%s=%s%s", server_url(room->server),
                      servers[room->server].room, room->name, servers[room->server].options);
    CHECK(at > 0 && (size_t)at < len);
}

/* ---- Redis ---- */

static redisReply *ask(redisContext *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    redisReply *reply = redisvCommand(c, fmt, args);
    va_end(args);
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        fprintf(stderr, "servers: %s: %s\n", fmt, reply ? reply->str : c->errstr);
    CHECK(reply && reply->type != REDIS_REPLY_ERROR);
    return reply;
}

/* One step of a SCAN. */
static uint64_t forget_some(redisContext *c, const char *prefix, uint64_t cursor)
{
    redisReply *page =
        ask(c, "SCAN %llu MATCH *%s* COUNT 1000", (unsigned long long)cursor, prefix);
    const redisReply *keys = page->element[1];
    for (size_t i = 0; i < keys->elements; i++)
        freeReplyObject(ask(c, "UNLINK %b", keys->element[i]->str, keys->element[i]->len));
    cursor = strtoull(page->element[0]->str, NULL, 10);
    freeReplyObject(page);
    return cursor;
}

static void forget_at(const char *host, int port, const char *prefix)
{
    redisContext *c = redisConnect(host, port);
    CHECK(c && !c->err);
    uint64_t cursor = 0;
    do cursor = forget_some(c, prefix, cursor);
    while (cursor);
    redisFree(c);
}

static void clear_redis(const char *prefix)
{
    char host[64];
    int port;
    CHECK(sscanf(server_url(SERVER_REDIS), "redis://%63[^:]:%d", host, &port) == 2);
    forget_at(host, port, prefix);
}

/* Every master in turn, as any of them knows them. */
static void clear_cluster(const char *prefix)
{
    char host[64];
    int port;
    CHECK(sscanf(server_url(SERVER_CLUSTER), "redis://%63[^:]:%d", host, &port) == 2);
    redisContext *c = redisConnect(host, port);
    CHECK(c && !c->err);
    redisReply *slots = ask(c, "CLUSTER SLOTS");
    for (size_t i = 0; i < slots->elements; i++) {
        const redisReply *master = slots->element[i]->element[2];
        forget_at(master->element[0]->str, (int)master->element[1]->integer, prefix);
    }
    freeReplyObject(slots);
    redisFree(c);
}

/* ---- PostgreSQL ---- */

static void ignore_notice(void *ctx, const PGresult *result)
{
    (void)ctx, (void)result;
}

static void drop_schema(enum server server, const char *schema)
{
    char sql[128];
    PGconn *c = PQconnectdb(server_url(server));
    PQsetNoticeReceiver(c, ignore_notice, NULL);
    snprintf(sql, sizeof sql, "DROP SCHEMA IF EXISTS %s CASCADE", schema);
    PGresult *result = PQexec(c, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        fprintf(stderr, "servers: %s: %s\n", sql, PQerrorMessage(c));
    CHECK(PQresultStatus(result) == PGRES_COMMAND_OK);
    PQclear(result);
    PQfinish(c);
}

void room_clear(const struct room *room)
{
    if (room->server == SERVER_REDIS) clear_redis(room->name);
    if (room->server == SERVER_CLUSTER) clear_cluster(room->name);
    if (room->server == SERVER_POSTGRES || room->server == SERVER_PGBOUNCER)
        drop_schema(room->server, room->name);
}
