/* resolver.c - see resolver.h.
 *
 *   loop                             thread, detached
 *   lookup_start --> struct lookup --> getaddrinfo()
 *   looked_up <----- eventfd <-------- written once
 *
 * A lookup belongs to both, and goes with the last of them. The thread knows nothing but the lookup: the
 * loop, the store and the handle that asked may be gone when getaddrinfo() comes back. */
#include "base/resolver.h"

#include "base/check.h"
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct lookup {
    atomic_uint refs;
    int fd; /* eventfd */
    int error;
    struct addrinfo *addresses;
    const char *port; /* behind the host */
    char host[];
};

static int addresses_of(const char *host, const char *port, int flags, struct addrinfo **ret)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = flags | AI_NUMERICSERV };
    return getaddrinfo(host, port, &hints, ret);
}

/* ---- a lookup ---- */

static struct lookup *lookup_new(const char *host, const char *port)
{
    size_t host_bytes = strlen(host) + 1, port_bytes = strlen(port) + 1;
    struct lookup *l = malloc(sizeof *l + host_bytes + port_bytes);
    if (!l) return NULL;
    *l = (struct lookup){ .fd = eventfd(0, EFD_CLOEXEC) };
    atomic_init(&l->refs, 1);
    memcpy(l->host, host, host_bytes);
    l->port = memcpy(l->host + host_bytes, port, port_bytes);
    return l;
}

static void lookup_unref(struct lookup *l)
{
    unsigned before = atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel);
    CHECK(before > 0);
    if (before > 1) return;
    if (l->fd >= 0) close(l->fd);
    if (l->addresses) freeaddrinfo(l->addresses);
    free(l);
}

static void *look_up(void *ctx)
{
    struct lookup *l = ctx;
    uint64_t one = 1;
    ssize_t n;
    l->error = addresses_of(l->host, l->port, 0, &l->addresses);
    if (l->error) l->addresses = NULL;
    do n = write(l->fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
    lookup_unref(l);
    return NULL;
}

static bool lookup_start(struct lookup *l)
{
    pthread_t thread;
    struct err err;
    atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    if (thread_start(&thread, look_up, l, &err) == 0) return pthread_detach(thread) == 0;
    lookup_unref(l);
    return false;
}

/* ---- on the loop ---- */

void resolver_init(struct resolver *r, struct loop *loop,
                   void (*told)(struct resolver *, const char *why))
{
    *r = (struct resolver){ .loop = loop, .told = told };
}

static void keep(struct resolver *r, struct addrinfo *addresses)
{
    if (r->addresses) freeaddrinfo(r->addresses);
    r->addresses = addresses;
}

static void leave_lookup(struct resolver *r)
{
    if (!r->lookup) return;
    io_remove(r->loop, &r->io);
    lookup_unref(r->lookup);
    r->lookup = NULL;
}

void resolver_clear(struct resolver *r)
{
    leave_lookup(r);
    keep(r, NULL);
}

static void looked_up(struct io *io, unsigned events)
{
    struct resolver *r = container_of(io, struct resolver, io);
    struct lookup *l = r->lookup;
    uint64_t count;
    ssize_t n;
    (void)events;
    do n = read(l->fd, &count, sizeof count); /* what the thread wrote is seen after this */
    while (n < 0 && errno == EINTR);
    int error = l->error;
    if (!error) {
        keep(r, l->addresses);
        l->addresses = NULL;
    }
    leave_lookup(r);
    r->told(r, error ? gai_strerror(error) : NULL);
}

/* NULL, or what is wrong. */
static const char *begin(struct resolver *r, const char *host, const char *port)
{
    struct err err;
    struct lookup *l = lookup_new(host, port);
    if (!l) return "out of memory";
    r->io = (struct io){ .fd = l->fd, .events = POLLIN, .ready = looked_up };
    if (l->fd < 0 || io_add(r->loop, &r->io, &err)) {
        lookup_unref(l);
        return "no descriptor to resolve its name with";
    }
    r->lookup = l;
    if (lookup_start(l)) return NULL;
    leave_lookup(r);
    return "no thread to resolve its name with";
}

void resolver_ask(struct resolver *r, const char *host, const char *port)
{
    struct addrinfo *addresses;
    if (r->lookup) return;
    if (addresses_of(host, port, AI_NUMERICHOST, &addresses) == 0) {
        keep(r, addresses);
        r->told(r, NULL);
        return;
    }
    const char *why = begin(r, host, port);
    if (why) r->told(r, why);
}

const struct addrinfo *resolver_address(const struct resolver *r, size_t i)
{
    const struct addrinfo *a = r->addresses;
    while (a && i-- > 0) a = a->ai_next;
    return a;
}
