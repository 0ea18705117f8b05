/* buffer.h - what the suites of the buffer and of the gate ask of a store that has one.
 *
 * BUFFER_CASE and GATE_CASE are CASE for stores with that capability; one that has none is skipped,
 * and says so. As with all helpers of the suite, answers may be looked at until the end of the
 * case. Entries are named by small numbers; their bytes follow from the number (run_of). */
#ifndef TESTS_CONFORM_BUFFER_H
#define TESTS_CONFORM_BUFFER_H

#include "tests/conform/conform.h"

#define ASKING_CASE_ON(suite, name, id, text, cap)                                             \
    Test(suite, name##_on_##id)                                                                \
    {                                                                                          \
        asking_open(text, cap);                                                                \
        suite##_##name();                                                                      \
        asking_close();                                                                        \
    }

#define BUFFER_CASE(suite, name)                                                               \
    static void suite##_##name(void);                                                          \
    ASKING_CASE_ON(suite, name, sqlite, "sqlite", CAP_BUFFER)                                  \
    ASKING_CASE_ON(suite, name, redis_cluster, "redis-cluster", CAP_BUFFER)                    \
    ASKING_CASE_ON(suite, name, tiered_fleet, "tiered-fleet", CAP_BUFFER)                      \
    static void suite##_##name(void)

/* Where claims and buffer are one store, ACCEPT is about both. */
#define CLAIMED_CASE(suite, name)                                                              \
    static void suite##_##name(void);                                                          \
    ASKING_CASE_ON(suite, name, redis, "redis", CAP_BUFFER)                                    \
    ASKING_CASE_ON(suite, name, redis_cluster, "redis-cluster", CAP_BUFFER)                    \
    static void suite##_##name(void)

#define FRESH_CASE(suite, name)                                                                \
    static void suite##_##name(void);                                                          \
    ASKING_CASE_ON(suite, name, redis, "redis", CAP_FRESH)                                     \
    ASKING_CASE_ON(suite, name, redis_cluster, "redis-cluster", CAP_FRESH)                     \
    ASKING_CASE_ON(suite, name, tiered_fleet, "tiered-fleet", CAP_FRESH)                       \
    static void suite##_##name(void)

#define GATE_CASE(suite, name)                                                                 \
    static void suite##_##name(void);                                                          \
    ASKING_CASE_ON(suite, name, memory, "memory", CAP_GATE)                                    \
    ASKING_CASE_ON(suite, name, redis_cluster, "redis-cluster", CAP_GATE)                      \
    ASKING_CASE_ON(suite, name, tiered_fleet, "tiered-fleet", CAP_GATE)                        \
    static void suite##_##name(void)

void asking_open(const char *store_name, unsigned cap);
void asking_close(void);

#define WRITTEN_KEEP_MS INT64_C(30000)

struct run_id id_of(unsigned n);
unsigned number_of(const struct run_id *id);
struct bytes run_of(unsigned n); /* what the helpers accept it with */

/* Copies the ask, submits it with this op's verb and waits. The answer is in op->buffer. */
const struct op *buffer(enum verb verb, struct buffer_ask ask);
/* The same, not waited for; `claim`, `in`: ACCEPT with a claim, else NULL. */
struct waiting *submit_buffer(enum verb verb, struct buffer_ask ask, const struct key *claim,
                              const struct request *in);

/* An ask for ACCEPT; key NULL: it has none. Good until the end of the case. */
struct buffer_ask entry_ask(const char *env, unsigned n, const char *key);

const struct op *accept_entry(const char *env, unsigned n, const char *key);
void accept_many(const char *env, unsigned first, unsigned count); /* OK, in this order */
const struct op *get(const char *env, unsigned n);
const struct op *get_by_key(const char *env, const char *key);
const struct op *append(const char *env, unsigned n, uint64_t rev, const char *change);
const struct op *append_freeing(const char *env, unsigned n, uint64_t rev, const char *change);
const struct op *drain(uint8_t who, size_t limit, size_t env_limit); /* for LEASE_MS */
const struct op *drain_entry(uint8_t who, const char *env, unsigned n);
const struct op *settle(uint8_t who, const char *env, unsigned n, enum settle_how how);
const struct op *list_entries(const char *env, unsigned before, size_t limit); /* 0: newest */
const struct op *buffer_stats(void);

/* The only entry of an answer. */
const struct entry *only(const struct op *op);
/* Entries of this env in the answer, in their order: "3 1 2". */
void expect_entries(const struct op *op, const char *env, const char *numbers);
size_t entries_of(const struct op *op, const char *env);
void expect_state(const char *env, unsigned n, enum entry_state state);

#endif
