/* names.c - see names.h. */
#include "tests/support/names.h"

#include "base/check.h"

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool hangs;
static unsigned waiting;
static char said[128];

static void set_hangs(bool to)
{
    pthread_mutex_lock(&lock);
    hangs = to;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void names_hang(void)
{
    set_hangs(true);
}

void names_go_on(void)
{
    set_hangs(false);
}

unsigned names_waiting(void)
{
    pthread_mutex_lock(&lock);
    unsigned n = waiting;
    pthread_mutex_unlock(&lock);
    return n;
}

void names_say(const char *addresses)
{
    pthread_mutex_lock(&lock);
    snprintf(said, sizeof said, "%s", addresses ? addresses : "");
    pthread_mutex_unlock(&lock);
}

typedef int resolve(const char *, const char *, const struct addrinfo *, struct addrinfo **);

static resolve *system_resolve(void)
{
    resolve *found;
    void *at = dlsym(RTLD_NEXT, "getaddrinfo");
    CHECK(at);
    memcpy(&found, &at, sizeof found);
    return found;
}

/* All that is said, as one list. */
static int resolve_said(const char *text, const char *port, const struct addrinfo *hints,
                        struct addrinfo **ret)
{
    struct addrinfo **end = ret;
    char list[sizeof said], *rest = list;
    snprintf(list, sizeof list, "%s", text);
    *ret = NULL;
    for (const char *at; (at = strsep(&rest, " "));) {
        if (!*at) continue;
        int error = system_resolve()(at, port, hints, end);
        if (error) return error;
        while (*end) end = &(*end)->ai_next;
    }
    return *ret ? 0 : EAI_NONAME;
}

__attribute__((visibility("default"))) int getaddrinfo(const char *host, const char *port,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **ret)
{
    char text[sizeof said];
    struct addrinfo numeric = hints ? *hints : (struct addrinfo){ .ai_family = AF_UNSPEC };
    numeric.ai_flags |= AI_NUMERICHOST; /* nobody has to be asked for an address */
    int error = system_resolve()(host, port, &numeric, ret);
    if (error != EAI_NONAME || (hints && hints->ai_flags & AI_NUMERICHOST)) return error;
    pthread_mutex_lock(&lock);
    waiting++;
    while (hangs) pthread_cond_wait(&changed, &lock);
    waiting--;
    memcpy(text, said, sizeof text);
    pthread_mutex_unlock(&lock);
    if (host && strcmp(host, NAMES_HOST) == 0) return resolve_said(text, port, hints, ret);
    return system_resolve()(host, port, hints, ret);
}
