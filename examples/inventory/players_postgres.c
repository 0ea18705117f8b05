/* players_postgres.c - players in PostgreSQL; see players.h. */
#include "players.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(struct once_db db)
{
    fprintf(stderr, "PostgreSQL: %s", PQerrorMessage(db.pg));
    return -1;
}

static int postgres_open(const char *url, struct once_db *ret_db)
{
    *ret_db = (struct once_db){ .pg = PQconnectdb(url) };
    return PQstatus(ret_db->pg) == CONNECTION_OK ? 0 : fail(*ret_db);
}

static void postgres_close(struct once_db db)
{
    PQfinish(db.pg);
}

/* The same database: a ledger has a schema of its own. */
static void postgres_ledger(const char *url, char *ret_url, size_t len)
{
    snprintf(ret_url, len, "%s", url);
}

/* How many rows it changed. */
static int change(struct once_db db, const char *sql, const char *user,
                  const struct player *player, const long long *version)
{
    char texts[5][24];
    snprintf(texts[0], sizeof texts[0], "%lld", player->version);
    snprintf(texts[1], sizeof texts[1], "%lld", player->potions);
    snprintf(texts[2], sizeof texts[2], "%lld", player->health);
    snprintf(texts[3], sizeof texts[3], "%lld", player->coins);
    snprintf(texts[4], sizeof texts[4], "%lld", version ? *version : 0);
    const char *values[] = { texts[0], texts[1], texts[2], texts[3], user, texts[4] };
    PGresult *result = PQexecParams(db.pg, sql, version ? 6 : 5, NULL, values, NULL, NULL, 0);
    int rows =
        PQresultStatus(result) == PGRES_COMMAND_OK ? atoi(PQcmdTuples(result)) : fail(db);
    PQclear(result);
    return rows;
}

static int postgres_create(struct once_db db, const char *user, const struct player *player)
{
    PGresult *result = PQexec(db.pg, "SET client_min_messages = warning; " PLAYERS_TABLE);
    int made = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    return made ? change(db, PLAYERS_CREATE, user, player, NULL) : fail(db);
}

static long long number(const PGresult *result, int column)
{
    return strtoll(PQgetvalue(result, 0, column), NULL, 10);
}

static int postgres_read(struct once_db db, const char *user, struct player *ret_player)
{
    PGresult *result = PQexecParams(db.pg, PLAYERS_READ, 1, NULL, &user, NULL, NULL, 0);
    int found = PQresultStatus(result) == PGRES_TUPLES_OK ? PQntuples(result) : fail(db);
    if (found == 1)
        *ret_player = (struct player){ number(result, 0), number(result, 1), number(result, 2),
                                       number(result, 3) };
    PQclear(result);
    return found;
}

static int postgres_write(struct once_db db, const char *user, long long version,
                          const struct player *player)
{
    return change(db, PLAYERS_WRITE, user, player, &version);
}

const struct players players_postgres = {
    .scheme = "postgres",
    .open = postgres_open,
    .close = postgres_close,
    .ledger = postgres_ledger,
    .create = postgres_create,
    .read = postgres_read,
    .write = postgres_write,
};
