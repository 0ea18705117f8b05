/* url.c - URLs of stores: any text is a store or a clear error. Files are only made in a
 * temporary directory: a path with a slash is parsed, but not opened. Nor is a server: nothing is
 * sent to whatever host a text may name. */
#include "store/postgres_db.h"
#include "store/redis.h"
#include "store/remote.h"
#include "store/sqlite_db.h"
#include "store/store.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/world.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct world world;

static void leave_directory(void)
{
    CHECK(chdir("/") == 0);
    world_fini(&world);
}

static void enter_directory(void)
{
    if (world.dir[0]) return;
    world_init(&world, 1);
    CHECK(chdir(world_dir(&world)) == 0);
    atexit(leave_directory);
}

static void remove_files(void)
{
    DIR *dir = opendir(".");
    CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) unlink(e->d_name);
    closedir(dir);
}

static void check_parse_redis(const char *rest)
{
    struct redis_options options = { 0 };
    struct err err = { 0 };
    int r = redis_options_parse(rest, &options, &err);
    if (r) CHECK(err.code == r && err.text[0]);
    if (!r)
        CHECK((options.host || options.path) && options.timeout_ms > 0 && options.lanes > 0);
    redis_options_fini(&options);
}

static void check_parse_postgres(const char *rest)
{
    struct postgres_options options = { 0 };
    struct err err = { 0 };
    int r = postgres_options_parse(rest, &options, &err);
    if (r) CHECK(err.code == r && err.text[0]);
    if (!r) CHECK(options.conninfo && options.schema[0] && options.timeout_ms > 0);
    postgres_options_clear(&options);
}

static void check_parse_remote(const char *rest)
{
    struct remote_options options = { 0 };
    struct err err = { 0 };
    int r = remote_options_parse(rest, &options, &err);
    if (r) CHECK(err.code == r && err.text[0]);
    if (!r) CHECK((options.host || options.path) && options.port && options.timeout_ms > 0);
    remote_options_fini(&options);
}

static void check_parse_sqlite(const char *rest)
{
    struct sqlite_options options = { 0 };
    struct err err = { 0 };
    int r = sqlite_options_parse(rest, &options, &err);
    if (r) CHECK(err.code == r && err.text[0]);
    if (!r) CHECK(options.path[0] && options.busy_ms >= 0 && options.sync);
    free(options.path);
}

static bool names_server(const char *url)
{
    return strncmp(url, "redis", 5) == 0 || strncmp(url, "postgres", 8) == 0 ||
           strncmp(url, "once", 4) == 0;
}

static void check_open(const char *url)
{
    struct store *store = NULL;
    struct err err = { 0 };
    int r = store_open_bare(url, &world.env, &store, &err);
    CHECK((r == 0) == (store != NULL));
    if (r) CHECK(err.code == r && err.text[0]);
    store_close(store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char url[256];
    enter_directory();
    if (size >= sizeof url) return 0;
    memcpy(url, data, size);
    url[size] = '\0';
    check_parse_sqlite(url);
    check_parse_redis(url);
    check_parse_postgres(url);
    check_parse_remote(url);
    if (strchr(url, '/')) return 0;
    if (!names_server(url)) check_open(url);
    char prefixed[sizeof url + 8];
    snprintf(prefixed, sizeof prefixed, "sqlite:%s", url);
    check_open(prefixed);
    remove_files();
    return 0;
}
