/* runs.h - what every ledger of runs passes, through store_submit().
 *
 * RUN_CASE(suite, name) { ... } makes one test per store that can be such a ledger; one that has no
 * CAP_RUNS is skipped, and says so. Runs have numbers: a higher one has a higher id. Answers, and
 * whatever was made for a question, live until the end of the case. */
#ifndef TESTS_CONFORM_RUNS_H
#define TESTS_CONFORM_RUNS_H

#include "tests/conform/conform.h"

#define RUN_CASE_ON(suite, name, id, text)                                                     \
    Test(suite, name##_on_##id)                                                                \
    {                                                                                          \
        runs_open(text);                                                                       \
        suite##_##name();                                                                      \
        runs_close();                                                                          \
    }

/* PostgreSQL behind a pooler, and as it is, behind coord, which has no part in it. */
#define RUN_CASE(suite, name)                                                                  \
    static void suite##_##name(void);                                                          \
    RUN_CASE_ON(suite, name, sqlite, "sqlite")                                                 \
    RUN_CASE_ON(suite, name, pgbouncer, "pgbouncer")                                           \
    RUN_CASE_ON(suite, name, tiered_fleet, "tiered-fleet")                                     \
    static void suite##_##name(void)

/* here() and there() are two processes on the same runs. */
#define SHARED_RUN_CASE(suite, name)                                                           \
    static void suite##_##name(void);                                                          \
    RUN_CASE_ON(suite, name, sqlite, "sqlite")                                                 \
    RUN_CASE_ON(suite, name, postgres, "postgres")                                             \
    RUN_CASE_ON(suite, name, pgbouncer, "pgbouncer")                                           \
    RUN_CASE_ON(suite, name, tiered_fleet, "tiered-fleet")                                     \
    static void suite##_##name(void)

void runs_open(const char *store_name);
void runs_close(void);

/* ---- what is asked about ---- */

struct run_id id_nr(unsigned n);
struct run run_nr(
    unsigned n); /* env "e", task "t", queue "q", QUEUED, due now, without a key */
struct run run_keyed(unsigned n, const char *key);            /* for RUN_KEY_MS_DEFAULT */
struct run run_in_line(unsigned n, const char *ordering_key); /* ordered */
struct run run_delayed(unsigned n, int64_t delay_ms);
struct bytes fingerprint_nr(uint8_t n); /* those of run_nr() have 0 */

struct bytes tags_of(const char *a, const char *b); /* b may be NULL */

struct run_change add_tags(const char *a, const char *b);
struct run_change set_metadata(const char *json, uint64_t version);
struct run_change increment(void); /* of "n", by one */
struct run_change cancel(void);
struct run_change reschedule(int64_t at_ms);
struct run_change reset_key(void);
struct run_change heartbeat(const struct run *leased, int64_t lease_ms);
struct run_change complete(const struct run *leased, const char *output);
struct run_change fail(const struct run *leased, int64_t retry_ms); /* error "oops" */

/* As they come from the buffer, made now. */
struct bytes changes_of(const struct run_change *list, size_t count);
#define CHANGES(...)                                                                           \
    changes_of((struct run_change[]){ __VA_ARGS__ },                                           \
               sizeof((struct run_change[]){ __VA_ARGS__ }) / sizeof(struct run_change))
#define NO_CHANGES bytes_of(NULL, 0)

/* ---- asking: env "e", task "t", queue "q" ---- */

struct waiting *submit_run(enum verb verb, struct run_ask ask); /* run and tokens are copied */
const struct op *ask_run(enum verb verb, struct run_ask ask);

struct run_ask ask_put(const struct run *r);
struct run_ask ask_change(unsigned n, struct run_change c);
struct run_ask ask_lease(size_t limit); /* for LEASE_MS, with tokens never used before */

const struct op *put_run(struct run r);
const struct op *drain_run(struct run r, struct bytes changes);
const struct op *get_run(unsigned n);
const struct op *get_run_by_key(const char *key);
const struct op *change_run(unsigned n, struct run_change c);
const struct op *reset_run_key(const char *key);
const struct op *lease_runs(size_t limit);
const struct op *list_runs(size_t limit);

/* ---- answers ---- */

const struct run *only_run(const struct op *op); /* the only one */
const struct run *run_now(unsigned n);           /* by GET; insists that it is there */
struct run leased_one(unsigned n);               /* LEASE of one, which has to be this */
unsigned run_number(const struct run *r);
void expect_runs(const struct op *op, const unsigned *numbers, size_t count);
#define EXPECT_RUNS(op, ...)                                                                   \
    expect_runs((op), (unsigned[]){ __VA_ARGS__ },                                             \
                sizeof((unsigned[]){ __VA_ARGS__ }) / sizeof(unsigned))
void expect_no_runs(const struct op *op);
void expect_run_state(unsigned n, enum run_state state);
void expect_text(struct bytes got, const char *want);
void expect_json(struct bytes got,
                 const char *want); /* but for blanks; there are none in `want` */

#endif
