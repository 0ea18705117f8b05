/* hang.c - a resolver that hangs: with LD_PRELOAD, names are not resolved until the file "resolver" is
 * there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

typedef int resolve(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    resolve *real;
    void *at = dlsym(RTLD_NEXT, "getaddrinfo");
    memcpy(&real, &at, sizeof real);
    struct addrinfo numeric = hints ? *hints : (struct addrinfo){ .ai_family = AF_UNSPEC };
    numeric.ai_flags |= AI_NUMERICHOST;
    if (real(host, port, &numeric, ret) == 0) return 0;
    if (hints && hints->ai_flags & AI_NUMERICHOST) return EAI_NONAME;
    while (access("resolver", F_OK) != 0) usleep(1000);
    return real(host, port, hints, ret);
}
