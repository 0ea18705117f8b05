/* world.c - see world.h. */
#include "tests/support/world.h"

#include "base/check.h"
#include "tests/support/door.h"
#include "tests/support/http_store.h"

#include <ftw.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define START_MS INT64_C(1700000000000)

enum { TURNS_MAX = 1000000, ANSWER_MS_MAX = 30000 };

static int64_t world_wall_ms(void *ctx)
{
    return ((struct world *)ctx)->wall_ms;
}

static int64_t world_mono_ms(void *ctx)
{
    return ((struct world *)ctx)->mono_ms;
}

void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){ .wall_ms = START_MS, .mono_ms = 1000 };
    list_init(&w->carried);
    loop_init(&w->loop, w->mono_ms);
    rng_seeded_init(&w->rng, seed);
    w->env = (struct store_env){ .loop = &w->loop,
                                 .wall = { .now_ms = world_wall_ms, .ctx = w },
                                 .monotonic = { .now_ms = world_mono_ms, .ctx = w },
                                 .rng = &w->rng.base,
                                 .wall_rules = true };
}

const char *world_dir(struct world *w)
{
    if (w->dir[0]) return w->dir;
    const char *base = getenv("TMPDIR");
    snprintf(w->dir, sizeof w->dir, "%s/once-test-XXXXXX", base && *base ? base : "/tmp");
    CHECK(mkdtemp(w->dir));
    return w->dir;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

void world_fini(struct world *w)
{
    for (struct link *at; (at = list_first(&w->carried));) {
        struct carried *c = container_of(at, struct carried, link);
        c->end(c);
    }
    loop_fini(&w->loop);
    for (size_t i = 0; i < w->room_count; i++) room_clear(&w->rooms[i]);
    if (w->dir[0]) CHECK(nftw(w->dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS) == 0);
}

/* ---- the stores ---- */

static struct store *opened(const char *url, int r, struct store *store, const struct err *err)
{
    if (r) fprintf(stderr, "world: %s: %s\n", url, err->text);
    CHECK(r == 0);
    return store;
}

static struct store *open_direct(struct world *w, const char *url)
{
    struct err err;
    struct store *bare = NULL, *store = NULL;
    int r = store_open_bare(url, &w->env, &bare, &err);
    if (r == 0) r = direct_open(bare, &w->env, &store, &err);
    return opened(url, r, store, &err);
}

static struct store *open_memory(struct world *w)
{
    return open_direct(w, "memory:");
}

static struct store *open_sqlite(struct world *w)
{
    char url[160];
    if (!w->again) w->file_count++;
    snprintf(url, sizeof url, "sqlite:%s/%zu.db?sync=off", world_dir(w), w->file_count);
    return open_direct(w, url);
}

static struct room *room_opened_last(struct world *w, enum server server)
{
    for (size_t i = w->room_count; i-- > 0;)
        if (w->rooms[i].server == server) return &w->rooms[i];
    CHECK(false);
    return NULL;
}

static struct room *room_open(struct world *w, enum server server)
{
    CHECK(w->room_count < WORLD_ROOMS_MAX);
    struct room *room = &w->rooms[w->room_count++];
    room_init(room, server);
    return room;
}

static void url_in_room(struct world *w, enum server server, char *ret_url, size_t len)
{
    if (!server_url(server)) fprintf(stderr, "world: no server; see tests/with-servers\n");
    CHECK(server_url(server));
    room_url(w->again ? room_opened_last(w, server) : room_open(w, server), ret_url, len);
}

static struct store *open_in_room(struct world *w, enum server server)
{
    char url[256];
    url_in_room(w, server, url, sizeof url);
    return open_direct(w, url);
}

static struct store *open_postgres(struct world *w)
{
    return open_in_room(w, SERVER_POSTGRES);
}

static struct store *open_pgbouncer(struct world *w)
{
    return open_in_room(w, SERVER_PGBOUNCER);
}

/* Asynchronous by nature: it needs a loop that looks at descriptors, and no wrapper. */
static struct store *open_on_loop(struct world *w, enum server server)
{
    struct err err;
    struct store *store = NULL;
    char url[256];
    url_in_room(w, server, url, sizeof url);
    if (w->loop.fd < 0) CHECK(loop_open(&w->loop, &err) == 0);
    int r = store_open(url, &w->env, &store, &err);
    return opened(url, r, store, &err);
}

static struct store *open_redis(struct world *w)
{
    return open_on_loop(w, SERVER_REDIS);
}

static struct store *open_cluster(struct world *w)
{
    return open_on_loop(w, SERVER_CLUSTER);
}

static struct store *open_tiers(struct world *w, struct store *coord, struct store *ledger)
{
    struct err err;
    struct store *store = NULL;
    struct tiered_options options = TIERED_OPTIONS_INIT;
    int r = tiered_open(coord, ledger, &options, &w->env, &store, &err);
    return opened("tiered", r, store, &err);
}

/* Everything that runs need, in this process. */
static struct store *open_embedded(struct world *w)
{
    struct err err;
    struct store *store = NULL;
    struct tiered_options options = TIERED_OPTIONS_INIT;
    struct store *coord = open_memory(w), *ledger = open_sqlite(w);
    options.buffer = open_sqlite(w);
    int r = tiered_open(coord, ledger, &options, &w->env, &store, &err);
    return opened("tiered", r, store, &err);
}

static struct store *open_tiered(struct world *w)
{
    return open_tiers(w, open_memory(w), open_memory(w));
}

static struct store *open_tiered_sqlite(struct world *w)
{
    return open_tiers(w, open_memory(w), open_sqlite(w));
}

static struct store *open_tiered_fleet(struct world *w)
{
    return open_tiers(w, open_redis(w), open_postgres(w));
}

/* ---- behind the doors of a daemon in this process ---- */

static struct store *open_remote_on(struct world *w,
                                    struct store *(*open_behind)(struct world *))
{
    struct err err;
    struct store *store = NULL;
    if (!w->again) w->daemon = daemon_start(w, open_behind(w), NULL);
    int r = store_open(daemon_url(w->daemon), &w->env, &store, &err);
    return opened("remote", r, store, &err);
}

static struct store *open_remote(struct world *w)
{
    return open_remote_on(w, open_memory);
}

static struct store *open_remote_sqlite(struct world *w)
{
    return open_remote_on(w, open_sqlite);
}

static struct store *open_http(struct world *w)
{
    if (!w->again) w->daemon = daemon_start(w, open_memory(w), NULL);
    return http_store_open(w->daemon, &w->env);
}

const struct world_store world_stores[] = {
    { "memory", open_memory },
    { "sqlite", open_sqlite, .shared = true },
    { "tiered", open_tiered, .two_planes = true },
    { "tiered-sqlite", open_tiered_sqlite, .two_planes = true },
    { "embedded", open_embedded, .two_planes = true },
    { "remote", open_remote, .daemon = true, .shared = true },
    { "remote-sqlite", open_remote_sqlite, .daemon = true, .shared = true },
    { "http", open_http, .daemon = true, .shared = true },
    { "redis", open_redis, .own_fences = true, .hearsay = true, .tidy = true, .shared = true,
      .needs = { SERVER_REDIS } },
    { "redis-cluster", open_cluster, .own_fences = true, .hearsay = true, .tidy = true,
      .shared = true, .needs = { SERVER_CLUSTER } },
    { "postgres", open_postgres, .own_fences = true, .shared = true,
      .needs = { SERVER_POSTGRES } },
    { "pgbouncer", open_pgbouncer, .own_fences = true, .shared = true,
      .needs = { SERVER_PGBOUNCER } },
    { "tiered-fleet", open_tiered_fleet, .two_planes = true, .own_fences = true,
      .hearsay = true, .shared = true, .needs = { SERVER_REDIS, SERVER_POSTGRES } },
};
const size_t world_store_count = sizeof world_stores / sizeof world_stores[0];

const struct world_store *world_store_named(const char *name)
{
    for (size_t i = 0; i < world_store_count; i++)
        if (strcmp(world_stores[i].name, name) == 0) return &world_stores[i];
    fprintf(stderr, "world: no store \"%s\"\n", name);
    CHECK(false);
    return NULL;
}

bool world_has(const char *name)
{
    const struct world_store *s = world_store_named(name);
    for (size_t i = 0; i < 2; i++)
        if (s->needs[i] && !server_url(s->needs[i])) return false;
    return true;
}

struct store *world_open(struct world *w, const char *name)
{
    return world_store_named(name)->open(w);
}

struct store *world_open_again(struct world *w, const char *name)
{
    CHECK(world_store_named(name)->shared);
    w->again = true;
    struct store *store = world_open(w, name);
    w->again = false;
    return store;
}

void world_close(struct world *w, struct store *s)
{
    world_settle(w);
    CHECK(store_idle(s));
    store_close(s);
}

/* Did anybody do anything, or is there something on its way between them? */
static bool carry(struct world *w)
{
    bool any = false;
    if (list_empty(&w->carried)) return false;
    list_each (&w->carried, at) {
        struct carried *c = container_of(at, struct carried, link);
        any = c->go(c) || any;
    }
    return any || poll(&(struct pollfd){ .fd = w->loop.fd, .events = POLLIN }, 1, 0) > 0;
}

/* Turns until nothing is due now. */
static bool turn_until_quiet(struct world *w)
{
    for (unsigned turns = 0; turns < TURNS_MAX; turns++) {
        loop_turn(&w->loop, w->mono_ms);
        bool any = carry(w);
        if (!any && loop_next_ms(&w->loop, w->mono_ms) != 0) return true;
    }
    return false;
}

/* False: nothing came, for longer than any machine is slow. */
static bool sleep_until(struct world *w, int64_t end_ms)
{
    struct clock real = clock_monotonic();
    int64_t left_ms = end_ms - clock_now_ms(&real);
    if (left_ms > 0) loop_sleep(&w->loop, left_ms);
    return left_ms > 0;
}

static int64_t patience_end_ms(void)
{
    struct clock real = clock_monotonic();
    return clock_now_ms(&real) + ANSWER_MS_MAX;
}

void world_settle(struct world *w)
{
    int64_t end_ms = 0;
    while (turn_until_quiet(w)) {
        if (w->loop.owed == 0) return;
        if (!end_ms) end_ms = patience_end_ms();
        if (!sleep_until(w, end_ms)) break;
    }
    w->stuck = true;
}

void world_await(struct world *w, const unsigned *counter)
{
    int64_t end_ms = patience_end_ms();
    world_settle(w);
    while (!*counter && sleep_until(w, end_ms)) world_settle(w);
}

void world_advance(struct world *w, int64_t ms)
{
    int64_t end_ms = w->mono_ms + ms;
    world_settle(w);
    for (;;) {
        int64_t next_ms = loop_next_ms(&w->loop, w->mono_ms);
        int64_t step_ms =
            next_ms < 0 || next_ms > end_ms - w->mono_ms ? end_ms - w->mono_ms : next_ms;
        w->mono_ms += step_ms;
        w->wall_ms += step_ms;
        world_settle(w);
        if (w->mono_ms == end_ms) return;
    }
}

void world_sleep(struct world *w, int64_t ms)
{
    world_settle(w);
    w->mono_ms += ms;
    w->wall_ms += ms;
    world_settle(w);
}

static void finished(struct op *op, void *ctx)
{
    (void)op;
    *(bool *)ctx = true;
}

void world_run(struct world *w, struct store *s, struct op *op)
{
    bool done = false;
    op_push(op, finished, &done);
    store_submit(s, op);
    CHECK(!done);
    world_settle(w);
    CHECK(done);
}

struct token token_of(uint8_t n)
{
    struct token t;
    memset(t.bytes, n, sizeof t.bytes);
    return t;
}

struct key key_of(const char *scope, const char *name)
{
    return (struct key){ bytes_str(scope), bytes_str(name) };
}

static unsigned tap_count, tap_failed;

void tap_result(bool ok, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    printf("%sok %u - ", ok ? "" : "not ", ++tap_count);
    vprintf(fmt, args);
    putchar('\n');
    fflush(stdout);
    va_end(args);
    tap_failed += !ok;
}

void tap_note(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("# ", stdout);
    vprintf(fmt, args);
    putchar('\n');
    fflush(stdout);
    va_end(args);
}

int tap_end(void)
{
    printf("1..%u\n", tap_count);
    return tap_failed || !tap_count ? 1 : 0;
}
