/* world.h - a loop with a clock that only the test moves, a seed, and stores to try on them.
 *
 * Everything runs on the calling thread: blocking stores are run directly on the loop. Nothing
 * sleeps but for the answers that a real server owes us, and time does not move meanwhile: its
 * store is told to judge by the world's clock (wall_rules). The same calls in the same order give
 * the same results, every time. */
#ifndef TESTS_SUPPORT_WORLD_H
#define TESTS_SUPPORT_WORLD_H

#include "store/store.h"
#include "tests/support/servers.h"

enum { WORLD_ROOMS_MAX = 64 };

/* Something in the process that lives beside the loop and is turned with it. */
struct carried {
    struct link link;
    bool (*go)(struct carried *); /* did it do anything? */
    void (*end)(struct carried *);
};

struct world {
    struct loop loop;
    struct rng_seeded rng;
    struct store_env env;
    int64_t wall_ms; /* the stores' clock */
    int64_t mono_ms; /* the loop's clock */
    char dir[64];    /* a temporary directory, made when first needed */
    bool stuck;      /* the loop did not come to rest: something spins, or a server is mute */
    struct room rooms[WORLD_ROOMS_MAX]; /* in real servers, cleared at the end */
    size_t room_count, file_count;
    bool again;            /* opening what was opened last once more */
    struct list carried;   /* struct carried */
    struct daemon *daemon; /* that was started last for a "remote" store */
};

void world_init(struct world *w, uint64_t seed);
void world_fini(struct world *w); /* removes the directory, clears the rooms */
const char *world_dir(struct world *w);

/* A store that the suites run on, opened empty and ready for submit. */
struct world_store {
    const char *name;
    struct store *(*open)(struct world *);
    bool two_planes;      /* promises no order among ops in flight together */
    bool own_fences;      /* grow per key, but are not those that one table would give */
    bool hearsay;         /* its watches hear of changes by messages, which may be late */
    bool tidy;            /* removes some of what is gone without being asked */
    bool daemon;          /* behind a door: both planes at once, so never one of them */
    bool shared;          /* several may be open on the same records, as by other processes */
    enum server needs[2]; /* servers that must be up */
};
extern const struct world_store world_stores[];
extern const size_t world_store_count;

const struct world_store *world_store_named(const char *name);
bool world_has(const char *name); /* are the servers up that it needs? */
struct store *world_open(struct world *w, const char *name);
/* What was opened last, of this name, once more: as another process would. If it is shared. */
struct store *world_open_again(struct world *w, const char *name);
void world_close(struct world *w, struct store *s); /* lets it become idle first */

void world_advance(struct world *w, int64_t ms); /* both clocks, turning the loop on the way */
void world_sleep(struct world *w, int64_t ms);   /* both clocks, at once; timers are late */
void world_settle(struct world *w); /* turns until nothing more is due now, or owed to us */
/* Real time passes until the counter is not 0: for word that nobody owes us. */
void world_await(struct world *w, const unsigned *counter);

/* Submits and turns until it is finished. The op stays the caller's. */
void world_run(struct world *w, struct store *s, struct op *op);

struct token token_of(uint8_t n); /* a recognisable token */
struct key key_of(const char *scope, const char *name);

/* ---- test output that tests/run reads (TAP) ---- */
void tap_result(bool ok, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tap_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int tap_end(void); /* prints the plan; exit status */

#endif
