/* alloc.c - malloc and its family, counted, failing when told to. See oom.h. */
#include "tests/oom/oom.h"

#include "base/check.h"

#include <malloc.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t size);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t size);
void __wrap_free(void *p);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t len);

static atomic_bool armed, fired;
static atomic_long until; /* allocations that still work */
static atomic_long live;
static enum oom_mode mode;

void oom_arm(enum oom_mode how, size_t nth)
{
    mode = how;
    atomic_store(&until, (long)nth - 1);
    atomic_store(&fired, false);
    atomic_store(&armed, true);
}

bool oom_disarm(void)
{
    atomic_store(&armed, false);
    return atomic_load(&fired);
}

long oom_live(void)
{
    return atomic_load(&live);
}

static bool out_of_memory(void)
{
    if (!atomic_load(&armed)) return false;
    long left = atomic_fetch_sub(&until, 1);
    bool fails = mode == OOM_SINGLE ? left == 0 : left <= 0;
    if (fails) atomic_store(&fired, true);
    return fails;
}

static void *counted(void *p)
{
    if (p) atomic_fetch_add(&live, 1);
    return p;
}

void *__wrap_malloc(size_t size)
{
    return out_of_memory() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return out_of_memory() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *p, size_t size)
{
    if (out_of_memory()) return NULL;
    return p ? __real_realloc(p, size) : counted(__real_malloc(size));
}

void __wrap_free(void *p)
{
    if (p) atomic_fetch_sub(&live, 1);
    __real_free(p);
}

char *__wrap_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = __wrap_malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}

char *__wrap_strndup(const char *text, size_t len)
{
    size_t used = strnlen(text, len);
    char *copy = __wrap_malloc(used + 1);
    if (!copy) return NULL;
    memcpy(copy, text, used);
    copy[used] = '\0';
    return copy;
}

/* ---- for SQLite ---- */

static void *sqlite_alloc(int size)
{
    return __wrap_malloc((size_t)size);
}

static void *sqlite_resize(void *p, int size)
{
    return __wrap_realloc(p, (size_t)size);
}

static int sqlite_size(void *p)
{
    return p ? (int)malloc_usable_size(p) : 0;
}

static int sqlite_roundup(int size)
{
    return (size + 7) & ~7;
}

static int sqlite_init(void *ctx)
{
    (void)ctx;
    return SQLITE_OK;
}

static void sqlite_end(void *ctx)
{
    (void)ctx;
}

void oom_init(void)
{
    static sqlite3_mem_methods methods = { sqlite_alloc,   __wrap_free,
                                           sqlite_resize,  sqlite_size,
                                           sqlite_roundup, sqlite_init,
                                           sqlite_end,     NULL };
    CHECK(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) == SQLITE_OK);
    CHECK(sqlite3_initialize() == SQLITE_OK);
}
