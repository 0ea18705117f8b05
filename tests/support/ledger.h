/* ledger.h - a schema of one's own in the real PostgreSQL, a connection of one's own to it, and
 * bare stores whose exec() is called directly: batches are exactly what the test says. */
#ifndef TESTS_SUPPORT_LEDGER_H
#define TESTS_SUPPORT_LEDGER_H

#include "tests/support/world.h"

#include <libpq-fe.h>

struct ledger {
    struct world world;
    struct room room;
    char url[512];
    PGconn *admin; /* its search_path is the schema */
};

/* Fails the test that calls it, with a clear message, if the server is not up. */
void ledger_init(struct ledger *l, enum server server);
void ledger_fini(struct ledger *l);

/* "...&timeout_ms=500": the URL with more parameters behind it, until the next call. */
const char *ledger_url(struct ledger *l, const char *more);
struct store *ledger_open(struct ledger *l, const char *more); /* bare; insists */

/* One statement, or several, by the admin; the first column of the first row, until the next
 * call; "" if there is none. */
const char *ledger_sql(struct ledger *l, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
long long ledger_number(struct ledger *l, const char *sql);

/* Asks until it is so; fails after a minute. */
void ledger_until(struct ledger *l, const char *sql);

/* An op on key `name` of scope "s" by owner `who`, with a lease and retention of a minute. */
struct op *ledger_op(enum verb verb, const char *name, uint8_t who, const char *value);

/* Carries them out as one batch. */
void ledger_exec(struct store *s, struct op **ops, size_t count);

/* As a batch of one; the op is freed, the answer has no value. */
struct answer ledger_do(struct store *s, enum verb verb, const char *name, uint8_t who,
                        const char *value);

#define LEDGER_LEASE_MS INT64_C(60000)

#endif
