/* players.h - the players of the game: one row each, in whatever database the game has.
 *
 * A row has a version, which every change makes one larger. Who writes says which version it has
 * read: if that is not the row's any more, nothing is written. */
#ifndef PLAYERS_H
#define PLAYERS_H

#include <once/once.h>

struct player {
    long long version, potions, health, coins;
};

/* A kind of database. What goes wrong is said on stderr, and is -1. */
struct players {
    const char *scheme; /* how its URLs begin */
    int (*open)(const char *url, struct once_db *ret_db);
    void (*close)(struct once_db db);
    /* The URL of a ledger that knows of its markers, and so removes those that have expired. */
    void (*ledger)(const char *url, char *ret_url, size_t len);
    /* Makes the table if there is none; the player is new, whatever was there. */
    int (*create)(struct once_db db, const char *user, const struct player *player);
    /* 1, or 0: there is no such player. */
    int (*read)(struct once_db db, const char *user, struct player *ret_player);
    /* 1, or 0: the row is of another version. */
    int (*write)(struct once_db db, const char *user, long long version,
                 const struct player *player);
};

extern const struct players players_postgres, players_sqlite;

/* Parameters have the numbers of the order they come in: then both databases mean the same. */
#define PLAYERS_TABLE                                                                          \
    "CREATE TABLE IF NOT EXISTS players (user_id text PRIMARY KEY, version bigint NOT NULL,"   \
    " potions bigint NOT NULL CHECK (potions >= 0), health bigint NOT NULL,"                   \
    " coins bigint NOT NULL)"
#define PLAYERS_CREATE                                                                         \
    "INSERT INTO players (version, potions, health, coins, user_id)"                           \
    " VALUES ($1, $2, $3, $4, $5) ON CONFLICT (user_id) DO UPDATE SET"                         \
    " version = excluded.version, potions = excluded.potions, health = excluded.health,"       \
    " coins = excluded.coins"
#define PLAYERS_READ "SELECT version, potions, health, coins FROM players WHERE user_id = $1"
#define PLAYERS_WRITE                                                                          \
    "UPDATE players SET version = $1, potions = $2, health = $3, coins = $4"                   \
    " WHERE user_id = $5 AND version = $6"

#endif
