/* threads.h - what the files of this program share.
 *
 * Criterion does not start under TSan, so everything that has a thread is exercised here by a
 * plain program. Expectations may be checked on any thread; a test passes if none of its own
 * failed. Nobody sleeps: threads meet at barriers, and wait for events that the library
 * reports. */
#ifndef TESTS_THREADS_THREADS_H
#define TESTS_THREADS_THREADS_H

#include <once/once.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPECT(cond) expect((cond), __FILE__, __LINE__, #cond)
bool expect(bool ok, const char *file, int line, const char *what);

enum { CREW_MAX = 16 };

/* Where a test runs: in memory, or on a SQLite file of its own. */
struct place {
    const char *name;
    bool durable;
    unsigned scale; /* 1 with --short, more without */
    char ledger[160];
};

/* Opens a handle on the place, or ends the program: without one there is nothing to test. */
struct once *place_open(const struct place *p, unsigned flags);
struct once *place_open_with(const struct place *p, struct once_config *config);

/* Runs `work` on count threads that start together, each with its own number; joins them. */
struct crew {
    unsigned count;
    void (*work)(struct crew *crew, unsigned me);
    void *ctx;
    pthread_barrier_t start;
};
void crew_run(struct crew *crew);

/* A number that somebody waits for. */
struct gauge {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t value;
};
#define GAUGE_INIT                                                                             \
    {                                                                                          \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0                                 \
    }
void gauge_add(struct gauge *g, uint64_t n);
void gauge_await(struct gauge *g, uint64_t at_least);
uint64_t gauge_read(struct gauge *g);

/* A claim that waits for as long as it takes. */
struct once_claim claim_of(const char *key);
struct once_owned owned_of(const char *key, const char *token);
void put_value(struct once *o, const char *key, const char *token, const char *value);
void give_back(struct once *o, const char *key, const char *token);

void test_do(const struct place *p);
void test_promotion(const struct place *p);
void test_replay(const struct place *p);
void test_mixture(const struct place *p);
void test_lost(const struct place *p);
void test_open_close(const struct place *p);
void test_close_with_leases(const struct place *p);
void test_ping_pong(const struct place *p);
void test_hosted_cancel(const struct place *p);
void test_offload(const struct place *p);
void test_mutations(const struct place *p);

#endif
