/* postgres_runs_scene_test.h - questions about runs to bare postgres stores, in batches that are
 * exactly what the test says. */
#ifndef STORE_POSTGRES_RUNS_SCENE_TEST_H
#define STORE_POSTGRES_RUNS_SCENE_TEST_H

#include "store/store.h"

#include "tests/support/ledger.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct ledger ledger;

static inline void setup(void)
{
    ledger_init(&ledger, SERVER_POSTGRES);
}

static inline void teardown(void)
{
    ledger_fini(&ledger);
}

enum { LEASE_MS = 60000, TOKENS = 16 };

/* An op about runs with everything it points to. */
struct question {
    struct op *op;
    struct run_ask ask;
    struct run run;
    char key[32];
    struct token tokens[TOKENS];
    struct buf changes;
};

static inline struct run_id id_of(unsigned n)
{
    struct run_id id;
    uint8_t random[10] = { [8] = (uint8_t)(n >> 8), [9] = (uint8_t)n };
    run_id_make(INT64_C(1700000000000), random, &id);
    return id;
}

static inline struct question *question(enum verb verb)
{
    struct question *q = calloc(1, sizeof *q);
    cr_assert(q);
    q->op = op_new(verb, NULL, NULL);
    cr_assert(q->op);
    q->op->run = &q->ask;
    q->ask.env = bytes_str("e");
    buf_init(&q->changes, RUN_CHANGES_BYTES_MAX);
    return q;
}

static inline void question_free(struct question *q)
{
    run_ask_clear(&q->ask);
    buf_fini(&q->changes);
    op_free(q->op);
    free(q);
}

/* A new run, with a key if that is not NULL. */
static inline struct question *put_of(unsigned n, const char *key)
{
    static const uint8_t fingerprint[RUN_FINGERPRINT_BYTES] = { 7 };
    struct question *q = question(VERB_RUN_PUT);
    snprintf(q->key, sizeof q->key, "%s", key ? key : "");
    int64_t now_ms = ledger.world.wall_ms;
    q->run = (struct run){ .id = id_of(n),
                           .env = bytes_str("e"),
                           .task = bytes_str("t"),
                           .queue = bytes_str("q"),
                           .payload = bytes_str("{}"),
                           .fingerprint = bytes_of(fingerprint, sizeof fingerprint),
                           .key = bytes_str(q->key),
                           .key_held = key != NULL,
                           .key_until_ms = now_ms + RUN_KEY_MS_DEFAULT,
                           .state = RUN_QUEUED,
                           .created_at_ms = now_ms,
                           .available_at_ms = now_ms,
                           .attempts_max = RUN_ATTEMPTS_DEFAULT };
    q->ask.run = &q->run;
    return q;
}

static const char one_more[] = "[{\"type\": \"increment\", \"key\": \"n\", \"value\": 1}]";

/* ... from the buffer, where it was incremented so often. */
static inline struct question *drain_of(unsigned n, const char *key, unsigned increments)
{
    struct question *q = put_of(n, key);
    struct run_change c = { .kind = RUN_OPERATE,
                            .body = bytes_str(one_more),
                            .made_at_ms = ledger.world.wall_ms };
    for (unsigned i = 0; i < increments; i++) run_change_encode(&c, &q->changes);
    q->ask.changes = buf_bytes(&q->changes);
    q->ask.drains = true;
    return q;
}

static inline struct question *get_of(unsigned n)
{
    struct question *q = question(VERB_RUN_GET);
    q->ask.id = id_of(n);
    return q;
}

static inline struct question *change_of(unsigned n, struct run_change change)
{
    struct question *q = question(VERB_RUN_CHANGE);
    q->ask.id = id_of(n);
    q->ask.change = change;
    return q;
}

static inline struct question *increment_of(unsigned n)
{
    return change_of(n,
                     (struct run_change){ .kind = RUN_OPERATE, .body = bytes_str(one_more) });
}

static inline struct question *lease_of(size_t limit, uint8_t seed)
{
    struct question *q = question(VERB_RUN_LEASE);
    for (size_t i = 0; i < TOKENS; i++) {
        memset(q->tokens[i].bytes, seed, sizeof q->tokens[i].bytes);
        q->tokens[i].bytes[0] = (uint8_t)i;
    }
    q->ask.queue = bytes_str("q");
    q->ask.limit = limit;
    q->ask.lease_ms = LEASE_MS;
    q->ask.tokens = q->tokens;
    return q;
}

static inline void exec(struct store *s, struct question **questions, size_t count)
{
    struct op *ops[1024];
    cr_assert(count <= 1024);
    for (size_t i = 0; i < count; i++) ops[i] = questions[i]->op;
    ledger_exec(s, ops, count);
}

static inline struct question *asked(struct store *s, struct question *q)
{
    exec(s, &q, 1);
    return q;
}

static inline enum outcome outcome_of(const struct question *q)
{
    cr_assert(q->op->err.code == 0, "%s", q->op->err.text);
    return q->op->out.outcome;
}

/* Asks, looks at the outcome, and forgets it. */
static inline void expect(struct store *s, struct question *q, enum outcome outcome)
{
    asked(s, q);
    cr_assert(outcome_of(q) == outcome, "%s", outcome_name(outcome_of(q)));
    question_free(q);
}

static inline const struct run *row_of(const struct question *q)
{
    cr_assert(q->ask.rows.count == 1, "%zu rows", q->ask.rows.count);
    return q->ask.rows.rows[0];
}

/* So that the next PUT is guessed to be of something new. */
static inline void put_many(struct store *s, unsigned from)
{
    for (unsigned i = 0; i < 32; i++) expect(s, put_of(from + i, NULL), OUTCOME_OK);
}

static inline long long number(const char *sql)
{
    return ledger_number(&ledger, sql);
}

#endif
