/* wake.c - from the call of publish to the last answer, by how many wait, in one process.
 *
 *   wake WAITERS ROUNDS COORD LEDGER
 *
 * With a coord that others can reach, the owner has a handle of its own, so that the news takes the
 * way that it takes between processes. Prints {"last_ms": [...]}. */
#include "bench/growth/growth.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { WAIT_MS = 60000 };

struct pair {
    struct once *owner, *crowd; /* may be the same */
};

struct crowd {
    size_t answered;
    int64_t last_ns;
};

static void on_answer(void *ctx, int result, struct once_answer *answer)
{
    struct crowd *c = ctx;
    must(result == 0 && answer->outcome == ONCE_CACHED && answer->value.len == VALUE_BYTES,
         "be woken with the answer");
    once_answer_clear(answer);
    c->answered++;
    c->last_ns = now_ns();
}

static void on_published(void *ctx, int result, struct once_answer *answer)
{
    must(result == 0 && answer->outcome == ONCE_OK, "publish");
    once_answer_clear(answer);
    *(bool *)ctx = true;
}

static void turn(const struct pair *p)
{
    struct pollfd fds[2] = { { .fd = once_fd(p->owner), .events = POLLIN },
                             { .fd = once_fd(p->crowd), .events = POLLIN } };
    int64_t a = once_timeout_ms(p->owner), b = once_timeout_ms(p->crowd);
    int64_t least = a < 0 || (b >= 0 && b < a) ? b : a;
    poll(fds, 2, least < 0 || least > 1000 ? 1000 : (int)least);
    once_process(p->owner);
    if (p->crowd != p->owner) once_process(p->crowd);
}

static void wait_all(const struct pair *p, const char *key, size_t waiters, struct crowd *c)
{
    struct once_stats stats = { 0 };
    struct once_claim in = ONCE_CLAIM_INIT;
    in.scope = once_str("bench");
    in.key = once_str(key);
    in.wait_ms = WAIT_MS;
    for (size_t i = 0; i < waiters; i++)
        must(once_claim_start(p->crowd, &in, on_answer, c, NULL, NULL) == 0, "start to wait");
    while (stats.waiters < waiters)
        must(once_stats(p->crowd, &stats, NULL) == 0, "count the waiters");
}

static double wake_ms(const struct pair *p, size_t waiters, uint64_t n)
{
    char key[KEY_ROOM] = { 0 }, token[33];
    bool published = false;
    struct crowd crowd = { 0 };
    load_key(key, n);
    claim_key(p->owner, key, token);
    wait_all(p, key, waiters, &crowd);
    struct once_owned in = ONCE_OWNED_INIT;
    in.scope = once_str("bench");
    in.key = once_str(key);
    in.token = token;
    in.value = once_bytes(load_value, sizeof load_value);
    int64_t start_ns = now_ns();
    must(once_publish_start(p->owner, &in, on_published, &published, NULL, NULL) == 0, "start");
    while (crowd.answered < waiters || !published) turn(p);
    return (double)(crowd.last_ns - start_ns) / 1e6;
}

void growth_wake(const struct planes *planes, size_t waiters, size_t rounds)
{
    bool alone = strcmp(planes->coord, "memory:") == 0;
    struct pair p = { .owner = fleet_open(planes) };
    p.crowd = alone ? p.owner : fleet_open(planes);
    uint64_t first = fresh_keys();
    wake_ms(&p, 1, first++); /* connected */
    printf("{\"last_ms\":[");
    for (size_t i = 0; i < rounds; i++)
        printf("%s%.4f", i ? "," : "", wake_ms(&p, waiters, first++));
    puts("]}");
    if (!alone) once_close(p.crowd);
    once_close(p.owner);
}
