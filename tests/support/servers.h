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

void room_init(struct room *room, enum server server);
void room_url(const struct room *room, char *ret_url,
              size_t len);                /* of a store that lives there */
void room_clear(const struct room *room); /* removes everything that is in it */

#endif
