/* world.c - see world.h. */
#include "tests/support/world.h"

#include "base/check.h"

#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define START_MS INT64_C(1700000000000)

enum { TURNS_MAX = 1000000 };

const char *const world_stores[] = { "memory", "sqlite", "tiered", "tiered-sqlite", NULL };

static int64_t world_wall_ms(void *ctx)
{
    return ((struct world *)ctx)->wall_ms;
}

void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){ .wall_ms = START_MS, .mono_ms = 1000 };
    loop_init(&w->loop, w->mono_ms);
    rng_seeded_init(&w->rng, seed);
    w->env = (struct store_env){ .loop = &w->loop,
                                 .wall = { .now_ms = world_wall_ms, .ctx = w },
                                 .rng = &w->rng.base };
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
    loop_fini(&w->loop);
    if (w->dir[0]) CHECK(nftw(w->dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS) == 0);
}

static struct store *open_direct(struct world *w, const char *url)
{
    struct err err;
    struct store *bare, *store;
    if (store_open_bare(url, &w->env, &bare, &err) ||
        direct_open(bare, &w->env, &store, &err)) {
        fprintf(stderr, "world: %s: %s\n", url, err.text);
        CHECK(false);
    }
    return store;
}

static struct store *open_sqlite(struct world *w)
{
    static unsigned opened;
    char url[160];
    snprintf(url, sizeof url, "sqlite:%s/%u.db?sync=off", world_dir(w), opened++);
    return open_direct(w, url);
}

static struct store *open_tiered(struct world *w, struct store *ledger)
{
    struct err err;
    struct store *store;
    struct tiered_options options = TIERED_OPTIONS_INIT;
    CHECK(tiered_open(open_direct(w, "memory:"), ledger, &options, &w->env, &store, &err) == 0);
    return store;
}

struct store *world_open(struct world *w, const char *name)
{
    if (strcmp(name, "memory") == 0) return open_direct(w, "memory:");
    if (strcmp(name, "sqlite") == 0) return open_sqlite(w);
    if (strcmp(name, "tiered") == 0) return open_tiered(w, open_direct(w, "memory:"));
    if (strcmp(name, "tiered-sqlite") == 0) return open_tiered(w, open_sqlite(w));
    fprintf(stderr, "world: no store \"%s\"\n", name);
    CHECK(false);
    return NULL;
}

void world_close(struct world *w, struct store *s)
{
    world_settle(w);
    CHECK(store_idle(s));
    store_close(s);
}

void world_settle(struct world *w)
{
    unsigned turns = 0;
    do loop_turn(&w->loop, w->mono_ms);
    while (loop_next_ms(&w->loop, w->mono_ms) == 0 && ++turns < TURNS_MAX);
    if (turns == TURNS_MAX) w->stuck = true;
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
