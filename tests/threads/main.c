/* main.c - threads [--short]: many threads on one handle, many handles on one file. TAP.
 *
 * Made to be run under TSan, ASan and valgrind; the assertions hold on any schedule. */
#include "tests/threads/threads.h"

#include "base/check.h"
#include "tests/support/world.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_S = 300, SCALE_FULL = 20, WAIT_MS = 250000 };

static const struct {
    const char *what;
    void (*run)(const struct place *);
    bool memory, sqlite;
} tests[] = {
    { "once_do on contended keys runs once per key", test_do, true, true },
    { "release promotes one waiter at a time", test_promotion, true, true },
    { "publish answers every parked waiter", test_replay, true, true },
    { "all verbs at once", test_mixture, true, true },
    { "a lost callback may call once_ functions", test_lost, true, true },
    { "open and close in a loop", test_open_close, true, true },
    { "close leaves held leases alone", test_close_with_leases, true, true },
    { "two handles on one file wake each other", test_ping_pong, false, true },
    { "hosted calls are canceled or answered, once", test_hosted_cancel, true, true },
    { "offload finishes every op once, watches too", test_offload, false, true },
    { "mutations on one handle happen once each", test_mutations, true, true },
};

static atomic_uint failures;

bool expect(bool ok, const char *file, int line, const char *what)
{
    if (ok) return true;
    if (atomic_fetch_add(&failures, 1) < 5) tap_note("%s:%d: %s", file, line, what);
    return false;
}

/* ---- places ---- */

struct once *place_open_with(const struct place *p, struct once_config *config)
{
    struct once *o;
    struct once_error error;
    if (p->durable)
        config->ledger = p->ledger;
    else
        config->flags |= ONCE_EPHEMERAL;
    if (once_open(config, &o, &error) == 0) return o;
    tap_note("cannot open %s: %s", p->name, error.text);
    exit(1);
}

struct once *place_open(const struct place *p, unsigned flags)
{
    struct once_config config = ONCE_CONFIG_INIT;
    config.flags = flags;
    return place_open_with(p, &config);
}

struct once_claim claim_of(const char *key)
{
    struct once_claim in = ONCE_CLAIM_INIT;
    in.scope = once_str("threads");
    in.key = once_str(key);
    in.wait_ms = WAIT_MS;
    return in;
}

struct once_owned owned_of(const char *key, const char *token)
{
    struct once_owned in = ONCE_OWNED_INIT;
    in.scope = once_str("threads");
    in.key = once_str(key);
    in.token = token;
    return in;
}

void put_value(struct once *o, const char *key, const char *token, const char *value)
{
    struct once_answer answer;
    struct once_owned in = owned_of(key, token);
    in.value = once_str(value);
    EXPECT(once_publish(o, &in, &answer) == 0);
    EXPECT(answer.outcome == ONCE_OK);
    once_answer_clear(&answer);
}

void give_back(struct once *o, const char *key, const char *token)
{
    struct once_answer answer;
    struct once_owned in = owned_of(key, token);
    EXPECT(once_release(o, &in, &answer) == 0);
    EXPECT(answer.outcome == ONCE_OK);
    once_answer_clear(&answer);
}

/* ---- crews and gauges ---- */

struct member {
    struct crew *crew;
    unsigned me;
};

static void *member_run(void *ctx)
{
    struct member *m = ctx;
    pthread_barrier_wait(&m->crew->start);
    m->crew->work(m->crew, m->me);
    return NULL;
}

void crew_run(struct crew *crew)
{
    CHECK(crew->count <= CREW_MAX);
    struct member members[CREW_MAX];
    pthread_t threads[CREW_MAX];
    pthread_barrier_init(&crew->start, NULL, crew->count);
    for (unsigned i = 0; i < crew->count; i++) {
        members[i] = (struct member){ crew, i };
        CHECK(pthread_create(&threads[i], NULL, member_run, &members[i]) == 0);
    }
    for (unsigned i = 0; i < crew->count; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&crew->start);
}

void gauge_add(struct gauge *g, uint64_t n)
{
    pthread_mutex_lock(&g->lock);
    g->value += n;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

void gauge_await(struct gauge *g, uint64_t at_least)
{
    pthread_mutex_lock(&g->lock);
    while (g->value < at_least) pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

uint64_t gauge_read(struct gauge *g)
{
    pthread_mutex_lock(&g->lock);
    uint64_t value = g->value;
    pthread_mutex_unlock(&g->lock);
    return value;
}

/* ---- running ---- */

/* A hang is a failure, not a silence. */
static void on_alarm(int signal_number)
{
    (void)signal_number;
    static const char text[] = "not ok - a test did not end\n";
    ssize_t n = write(STDOUT_FILENO, text, sizeof text - 1);
    _exit(n > 0 ? 1 : 2);
}

static void run(struct world *w, size_t test, bool durable, unsigned scale)
{
    struct place p = { .name = durable ? "sqlite" : "memory",
                       .durable = durable,
                       .scale = scale };
    snprintf(p.ledger, sizeof p.ledger, "sqlite:%s/%zu.db?sync=off", world_dir(w), test);
    atomic_store(&failures, 0);
    alarm(PATIENCE_S);
    tests[test].run(&p);
    alarm(0);
    tap_result(atomic_load(&failures) == 0, "%s: %s", p.name, tests[test].what);
}

int main(int argc, char **argv)
{
    bool brief = argc > 1 && strcmp(argv[1], "--short") == 0;
    struct world w;
    world_init(&w, 1);
    signal(SIGALRM, on_alarm);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (tests[i].memory) run(&w, i, false, brief ? 1 : SCALE_FULL);
        if (tests[i].sqlite) run(&w, i, true, brief ? 1 : SCALE_FULL);
    }
    world_fini(&w);
    return tap_end();
}
