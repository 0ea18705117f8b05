/* servers.h - the real servers that tests/servers started, and rooms of one's own in them.
 *
 * A room is a name that nobody else has: a prefix of all keys in Redis, a schema in PostgreSQL.
 * Tests that run at the same time, in one process or in many, never see each other. */
#ifndef TESTS_SUPPORT_SERVERS_H
#define TESTS_SUPPORT_SERVERS_H

#include <stdbool.h>
#include <stddef.h>

enum server {
    SERVER_NONE,
    SERVER_REDIS,
    SERVER_CLUSTER,
    SERVER_POSTGRES,
    SERVER_PGBOUNCER, /* in front of that PostgreSQL */
    SERVERS
};

enum { ROOM_NAME_BYTES = 32 };

struct room {
    enum server server;
    char name[ROOM_NAME_BYTES];
};

const char *server_url(enum server server); /* NULL: it is not up; see tests/with-servers */

/* The URL of a store that lives in a room of its own, which is to be cleared in the end. */
void room_url(enum server server, struct room *ret_room, char *ret_url, size_t len);
void room_clear(const struct room *room); /* removes everything that is in it */

#endif
