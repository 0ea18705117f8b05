/* conform.h - one suite that every store passes, through store_submit().
 *
 * CASE(suite, name) { ... } makes one test per store, named suite::name_on_store. A case sees
 * `world` and an empty `store`; the helpers keep every op until the end of the case, so answers
 * may be looked at for as long as it runs. A case on a server that is not up is skipped, and says
 * so; tests/run and tests/with-servers start them. To add a store: a line in CASE and one in
 * tests/support/world.c. */
#ifndef TESTS_CONFORM_H
#define TESTS_CONFORM_H

#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define CASE_ON(suite, name, id, text)                                                         \
    Test(suite, name##_on_##id)                                                                \
    {                                                                                          \
        conform_open(text);                                                                    \
        suite##_##name();                                                                      \
        conform_close();                                                                       \
    }

#define CASE(suite, name)                                                                      \
    static void suite##_##name(void);                                                          \
    CASE_ON(suite, name, memory, "memory")                                                     \
    CASE_ON(suite, name, sqlite, "sqlite")                                                     \
    CASE_ON(suite, name, tiered, "tiered")                                                     \
    CASE_ON(suite, name, tiered_sqlite, "tiered-sqlite")                                       \
    CASE_ON(suite, name, remote, "remote")                                                     \
    CASE_ON(suite, name, remote_sqlite, "remote-sqlite")                                       \
    CASE_ON(suite, name, http, "http")                                                         \
    CASE_ON(suite, name, redis, "redis")                                                       \
    CASE_ON(suite, name, redis_cluster, "redis-cluster")                                       \
    CASE_ON(suite, name, postgres, "postgres")                                                 \
    CASE_ON(suite, name, pgbouncer, "pgbouncer")                                               \
    CASE_ON(suite, name, tiered_fleet, "tiered-fleet")                                         \
    static void suite##_##name(void)

/* Stores that several processes share. here() and there() say through which of two handles on the
 * same records the helpers ask from now on. */
#define SHARED_CASE(suite, name)                                                               \
    static void suite##_##name(void);                                                          \
    CASE_ON(suite, name, sqlite, "sqlite")                                                     \
    CASE_ON(suite, name, remote, "remote")                                                     \
    CASE_ON(suite, name, remote_sqlite, "remote-sqlite")                                       \
    CASE_ON(suite, name, http, "http")                                                         \
    CASE_ON(suite, name, postgres, "postgres")                                                 \
    CASE_ON(suite, name, pgbouncer, "pgbouncer")                                               \
    CASES_ON_MESSAGES(suite, name)                                                             \
    static void suite##_##name(void)

/* Those of them that tell other processes of a change by a message. */
#define TOLD_CASE(suite, name)                                                                 \
    static void suite##_##name(void);                                                          \
    CASES_ON_MESSAGES(suite, name)                                                             \
    static void suite##_##name(void)

#define CASES_ON_MESSAGES(suite, name)                                                         \
    CASE_ON(suite, name, redis, "redis")                                                       \
    CASE_ON(suite, name, redis_cluster, "redis-cluster")                                       \
    CASE_ON(suite, name, tiered_fleet, "tiered-fleet")

void here(void);
void there(void);

#define LEASE_MS INT64_C(30000)
#define RETAIN_MS INT64_C(60000)

extern struct world world;
extern struct store *store;

void conform_open(const char *store_name);
void conform_close(void);
bool one_plane(void);    /* one plane keeps the submit order of different verbs; two cannot */
bool may_be_coord(void); /* so that it takes things by force */

/* The usual request of owner `who`: LEASE_MS, RETAIN_MS, no fingerprint, no value. */
struct request owner(uint8_t who);
struct blob *value_of(struct bytes content); /* lives until the end of the case */
struct request owner_with(uint8_t who, const char *value);
struct request owner_of(uint8_t who, const char *fingerprint);

/* Each asks about one key of scope "s", waits for the answer and insists that there is one. */
const struct op *ask(enum verb verb, const char *name, struct request in);
const struct op *ask_key(enum verb verb, struct key key, struct request in);
const struct op *claim(const char *name, uint8_t who);
const struct op *publish(const char *name, uint8_t who, const char *value);
const struct op *release(const char *name, uint8_t who);
const struct op *renew(const char *name, uint8_t who);
const struct op *peek(const char *name);
const struct op *forget(const char *name);
const struct op *expire(size_t limit);
const struct op *stats(void);
const struct op *scan(const char *scope, const char *after,
                      size_t limit); /* NULL: all scopes */

/* Submitted, not waited for. */
struct waiting {
    struct op *op;
    unsigned finished; /* how often */
};
struct waiting *submit(struct op *op);
const struct op *answered(struct waiting *w); /* waits, and insists that there is an answer */
enum outcome outcome_of(const struct waiting *w); /* it has been waited for */
struct waiting *submit_ask(enum verb verb, const char *name, struct request in);
struct waiting *watch(const char *name, uint64_t seen); /* waits until it is parked, or fired */
void expect_fired(const struct waiting *w);
void expect_parked_then_cancel(struct waiting *w);

#define expect(call, want)                                                                     \
    ({                                                                                         \
        const struct op *expect_op = (call);                                                   \
        cr_assert(expect_op->out.outcome == (want), "%s: %s, expected %s", #call,              \
                  outcome_name(expect_op->out.outcome), outcome_name(want));                   \
        expect_op;                                                                             \
    })

void expect_value(const struct op *op, const char *value); /* NULL: none */
void expect_nothing_revealed(const struct op *op);

#endif
