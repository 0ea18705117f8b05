/* postgres_runs_test.c - what the ledger of runs does beyond the rules, on a real server: races,
 * commits without an answer, plans, and its version of the rule about leases. What every ledger of
 * runs does is looked at by conform. */
#include "store/store.h"

#include "tests/support/ledger.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct ledger ledger;

static void setup(void)
{
    ledger_init(&ledger, SERVER_POSTGRES);
}

static void teardown(void)
{
    ledger_fini(&ledger);
}

TestSuite(postgres_runs, .init = setup, .fini = teardown, .timeout = 120);

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

static struct run_id id_of(unsigned n)
{
    struct run_id id;
    uint8_t random[10] = { [8] = (uint8_t)(n >> 8), [9] = (uint8_t)n };
    run_id_make(INT64_C(1700000000000), random, &id);
    return id;
}

static struct question *question(enum verb verb)
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

static void question_free(struct question *q)
{
    run_ask_clear(&q->ask);
    buf_fini(&q->changes);
    op_free(q->op);
    free(q);
}

/* A new run, with a key if that is not NULL. */
static struct question *put_of(unsigned n, const char *key)
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
static struct question *drain_of(unsigned n, const char *key, unsigned increments)
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

static struct question *get_of(unsigned n)
{
    struct question *q = question(VERB_RUN_GET);
    q->ask.id = id_of(n);
    return q;
}

static struct question *change_of(unsigned n, struct run_change change)
{
    struct question *q = question(VERB_RUN_CHANGE);
    q->ask.id = id_of(n);
    q->ask.change = change;
    return q;
}

static struct question *increment_of(unsigned n)
{
    return change_of(n,
                     (struct run_change){ .kind = RUN_OPERATE, .body = bytes_str(one_more) });
}

static struct question *lease_of(size_t limit, uint8_t seed)
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

static void exec(struct store *s, struct question **questions, size_t count)
{
    struct op *ops[1024];
    cr_assert(count <= 1024);
    for (size_t i = 0; i < count; i++) ops[i] = questions[i]->op;
    ledger_exec(s, ops, count);
}

static struct question *asked(struct store *s, struct question *q)
{
    exec(s, &q, 1);
    return q;
}

static enum outcome outcome_of(const struct question *q)
{
    cr_assert(q->op->err.code == 0, "%s", q->op->err.text);
    return q->op->out.outcome;
}

/* Asks, looks at the outcome, and forgets it. */
static void expect(struct store *s, struct question *q, enum outcome outcome)
{
    asked(s, q);
    cr_assert(outcome_of(q) == outcome, "%s", outcome_name(outcome_of(q)));
    question_free(q);
}

static const struct run *row_of(const struct question *q)
{
    cr_assert(q->ask.rows.count == 1, "%zu rows", q->ask.rows.count);
    return q->ask.rows.rows[0];
}

/* So that the next PUT is guessed to be of something new. */
static void put_many(struct store *s, unsigned from)
{
    for (unsigned i = 0; i < 32; i++) expect(s, put_of(from + i, NULL), OUTCOME_OK);
}

static long long number(const char *sql)
{
    return ledger_number(&ledger, sql);
}

/* ---- guesses ---- */

Test(postgres_runs, guess_that_a_run_is_new_is_checked)
{
    struct store *a = ledger_open(&ledger, ""), *b = ledger_open(&ledger, "");
    put_many(a, 100);
    expect(b, put_of(1, "k"), OUTCOME_OK);
    struct question *q = asked(a, put_of(2, "k"));
    cr_assert(outcome_of(q) == OUTCOME_CACHED);
    struct run_id winner = id_of(1);
    cr_assert(run_id_eq(&row_of(q)->id, &winner));
    question_free(q);
    q = asked(a, put_of(1, "k"));
    cr_assert(outcome_of(q) == OUTCOME_OK && q->ask.put == PUT_SAME);
    question_free(q);
    cr_assert(number("SELECT count(*) FROM runs") == 33);
    store_close(a);
    store_close(b);
}

Test(postgres_runs, guess_that_was_wrong_undoes_nothing_of_the_others)
{
    struct store *a = ledger_open(&ledger, ""), *b = ledger_open(&ledger, "");
    put_many(a, 100);
    expect(b, put_of(1, "taken"), OUTCOME_OK);
    for (unsigned round = 0; round < 4; round++) {
        char fresh[16];
        snprintf(fresh, sizeof fresh, "fresh-%u", round);
        struct question *q[] = { put_of(10 + round, fresh), put_of(20 + round, "taken"),
                                 put_of(30 + round, fresh), increment_of(100),
                                 put_of(1, "taken") };
        static const enum outcome outcomes[] = { OUTCOME_OK, OUTCOME_CACHED, OUTCOME_CACHED,
                                                 OUTCOME_OK, OUTCOME_OK };
        exec(a, q, 5);
        for (size_t i = 0; i < 5; i++) {
            cr_assert(outcome_of(q[i]) == outcomes[i], "round %u, op %zu", round, i);
            question_free(q[i]);
        }
    }
    cr_assert(number("SELECT count(*) FROM runs") == 32 + 1 + 4);
    cr_assert(number("SELECT metadata_version FROM runs WHERE metadata_version > 0") == 4);
    store_close(a);
    store_close(b);
}

Test(postgres_runs, duplicates_write_nothing)
{
    struct store *s = ledger_open(&ledger, "");
    static const char *const stamp =
        "SELECT string_agg(xmin || '-' || xmax || '-' || rev, ' ' ORDER BY id) FROM runs";
    char before[256];
    expect(s, put_of(1, "k"), OUTCOME_OK);
    expect(s, drain_of(2, "k", 1), OUTCOME_OK);
    snprintf(before, sizeof before, "%s", ledger_sql(&ledger, "%s", stamp));
    for (unsigned i = 0; i < 20; i++) {
        expect(s, put_of(10 + i, "k"), OUTCOME_CACHED);
        expect(s, put_of(1, "k"), OUTCOME_OK);
        expect(s, drain_of(2, "k", 1), OUTCOME_OK);
    }
    cr_assert(strcmp(before, ledger_sql(&ledger, "%s", stamp)) == 0);
    store_close(s);
}

/* ---- races ---- */

struct racer {
    pthread_t thread;
    pthread_barrier_t *start;
    struct store *store;
    struct question *q;
};

static void *race_run(void *ctx)
{
    struct racer *r = ctx;
    pthread_barrier_wait(r->start);
    exec(r->store, &r->q, 1);
    return NULL;
}

static void race(struct racer *racers, size_t count)
{
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)count);
    for (size_t i = 0; i < count; i++) {
        racers[i].start = &start;
        cr_assert(pthread_create(&racers[i].thread, NULL, race_run, &racers[i]) == 0);
    }
    for (size_t i = 0; i < count; i++) pthread_join(racers[i].thread, NULL);
    pthread_barrier_destroy(&start);
}

Test(postgres_runs, of_two_puts_with_one_key_one_wins)
{
    struct racer r[2] = { { .store = ledger_open(&ledger, "") },
                          { .store = ledger_open(&ledger, "") } };
    put_many(r[0].store, 1000);
    for (unsigned n = 0; n < 60; n++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", n);
        for (unsigned i = 0; i < 2; i++) r[i].q = put_of(2 * n + i, key);
        race(r, 2);
        unsigned winner = outcome_of(r[0].q) == OUTCOME_OK ? 0 : 1;
        struct run_id id = id_of(2 * n + winner);
        cr_assert(outcome_of(r[winner].q) == OUTCOME_OK);
        cr_assert(outcome_of(r[!winner].q) == OUTCOME_CACHED, "two winners");
        cr_assert(run_id_eq(&row_of(r[!winner].q)->id, &id));
        for (unsigned i = 0; i < 2; i++) question_free(r[i].q);
    }
    cr_assert(number("SELECT count(*) FROM runs WHERE key_held") == 60);
    store_close(r[0].store);
    store_close(r[1].store);
}

Test(postgres_runs, of_two_puts_with_one_id_both_are_told_the_same)
{
    struct racer r[2] = { { .store = ledger_open(&ledger, "") },
                          { .store = ledger_open(&ledger, "") } };
    for (unsigned n = 0; n < 30; n++) {
        for (unsigned i = 0; i < 2; i++) r[i].q = put_of(n, NULL);
        race(r, 2);
        enum run_put first = r[0].q->ask.put, second = r[1].q->ask.put;
        cr_assert(outcome_of(r[0].q) == OUTCOME_OK && outcome_of(r[1].q) == OUTCOME_OK);
        cr_assert((first == PUT_INSERT) + (second == PUT_INSERT) == 1);
        for (unsigned i = 0; i < 2; i++) question_free(r[i].q);
    }
    store_close(r[0].store);
    store_close(r[1].store);
}

Test(postgres_runs, a_key_that_nobody_has_a_right_to_is_taken_by_one)
{
    struct racer r[2] = { { .store = ledger_open(&ledger, "") },
                          { .store = ledger_open(&ledger, "") } };
    for (unsigned n = 0; n < 30; n++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", n);
        struct question *old = put_of(3 * n, key);
        old->run.key_until_ms = ledger.world.wall_ms + 1;
        expect(r[0].store, old, OUTCOME_OK);
        world_advance(&ledger.world, 1);
        for (unsigned i = 0; i < 2; i++) r[i].q = put_of(3 * n + 1 + i, key);
        race(r, 2);
        cr_assert((outcome_of(r[0].q) == OUTCOME_OK) + (outcome_of(r[1].q) == OUTCOME_OK) == 1);
        for (unsigned i = 0; i < 2; i++) question_free(r[i].q);
    }
    cr_assert(number("SELECT count(*) FROM runs WHERE key_held") == 30);
    cr_assert(number("SELECT count(*) FROM runs") == 60);
    store_close(r[0].store);
    store_close(r[1].store);
}

/* Two drainers have the same entry: the lease of one has lapsed. */
Test(postgres_runs, changes_of_a_run_that_is_drained_twice_are_made_once)
{
    struct racer r[4];
    for (unsigned i = 0; i < 4; i++) r[i].store = ledger_open(&ledger, "");
    expect(r[0].store, put_of(999, "k"), OUTCOME_OK);
    for (unsigned n = 0; n < 20; n++) {
        for (unsigned i = 0; i < 4; i++) r[i].q = drain_of(n, "k", 1 + i / 2);
        race(r, 4);
        for (unsigned i = 0; i < 4; i++) {
            cr_assert(outcome_of(r[i].q) == OUTCOME_OK);
            question_free(r[i].q);
        }
    }
    struct question *q = asked(r[0].store, get_of(999));
    cr_assert(row_of(q)->metadata_version == 40, "%llu changes",
              (unsigned long long)row_of(q)->metadata_version);
    question_free(q);
    cr_assert(number("SELECT count(*) FROM aliases WHERE changes = 2") == 20);
    for (unsigned i = 0; i < 4; i++) store_close(r[i].store);
}

Test(postgres_runs, increments_of_four_processes_all_count)
{
    struct racer r[4];
    for (unsigned i = 0; i < 4; i++) r[i].store = ledger_open(&ledger, "");
    expect(r[0].store, put_of(1, NULL), OUTCOME_OK);
    for (unsigned n = 0; n < 15; n++) {
        for (unsigned i = 0; i < 4; i++) r[i].q = increment_of(1);
        race(r, 4);
        for (unsigned i = 0; i < 4; i++) {
            cr_assert(outcome_of(r[i].q) == OUTCOME_OK);
            question_free(r[i].q);
        }
    }
    cr_assert(number("SELECT metadata_version FROM runs") == 60);
    for (unsigned i = 0; i < 4; i++) store_close(r[i].store);
}

/* ---- leases ---- */

enum { WORKERS = 4, RUNS = 200, LINES = 7 };

struct worker {
    pthread_t thread;
    struct store *store;
    uint8_t seed;
    unsigned leased[RUNS];
    bool in_line; /* two of a line at once */
};

static unsigned number_of(const struct run *r)
{
    for (unsigned n = 0; n < RUNS; n++) {
        struct run_id id = id_of(n);
        if (run_id_eq(&id, &r->id)) return n;
    }
    return RUNS;
}

static void complete_all(struct worker *w, const struct question *leased)
{
    for (size_t i = 0; i < leased->ask.rows.count; i++) {
        const struct run *r = leased->ask.rows.rows[i];
        w->leased[number_of(r)]++;
        struct question *done = change_of(
            number_of(r), (struct run_change){ .kind = RUN_COMPLETE, .token = r->token });
        expect(w->store, done, OUTCOME_OK);
    }
}

/* Until nothing is left. */
static void *work(void *ctx)
{
    struct worker *w = ctx;
    for (unsigned empty = 0; empty < 50;) {
        struct question *q = asked(w->store, lease_of(5, w->seed));
        empty = q->ask.rows.count ? 0 : empty + 1;
        complete_all(w, q);
        question_free(q);
    }
    return NULL;
}

Test(postgres_runs, four_workers_lease_each_run_once)
{
    static struct worker w[WORKERS];
    for (uint8_t i = 0; i < WORKERS; i++) {
        w[i].store = ledger_open(&ledger, "");
        w[i].seed = (uint8_t)(i + 1);
    }
    char line[RUNS][8];
    for (unsigned n = 0; n < RUNS; n++) {
        struct question *q = put_of(n, NULL);
        snprintf(line[n], sizeof line[n], "l%u", n % LINES);
        if (n % 2) q->run.ordering_key = bytes_str(line[n]);
        expect(w[0].store, q, OUTCOME_OK);
    }
    for (unsigned i = 0; i < WORKERS; i++)
        cr_assert(pthread_create(&w[i].thread, NULL, work, &w[i]) == 0);
    for (unsigned i = 0; i < WORKERS; i++) pthread_join(w[i].thread, NULL);
    for (unsigned n = 0; n < RUNS; n++) {
        unsigned times = 0;
        for (unsigned i = 0; i < WORKERS; i++) times += w[i].leased[n];
        cr_assert(times == 1, "run %u was leased %u times", n, times);
    }
    cr_assert(number("SELECT count(*) FROM runs WHERE state = 3 AND attempts = 1") == RUNS);
    for (unsigned i = 0; i < WORKERS; i++) store_close(w[i].store);
}

/* Somebody is just handing out the second of a line; the first, which was not there yet when that
 * was decided, has to wait. */
Test(postgres_runs, of_a_line_one_is_handed_out_at_a_time)
{
    struct store *s = ledger_open(&ledger, "");
    struct question *second = put_of(2, NULL), *first = put_of(1, NULL);
    first->run.ordering_key = second->run.ordering_key = bytes_str("line");
    expect(s, second, OUTCOME_OK);
    ledger_sql(&ledger,
               "BEGIN; SELECT id FROM runs_lease('e', 'q', 1, 60000,"
               " decode(repeat('01', 16), 'hex'), %lld)",
               (long long)ledger.world.wall_ms);
    expect(s, first, OUTCOME_OK);
    struct question *q = asked(s, lease_of(5, 9));
    cr_assert(outcome_of(q) == OUTCOME_OK && q->ask.rows.count == 0);
    question_free(q);
    ledger_sql(&ledger, "COMMIT");
    q = asked(s, lease_of(5, 9));
    cr_assert(outcome_of(q) == OUTCOME_OK && q->ask.rows.count == 0);
    question_free(q);
    cr_assert(number("SELECT count(*) FROM runs WHERE state = 2") == 1);
    store_close(s);
}

static void expect_same(const struct run *got, const struct run *want)
{
    struct buf a, b;
    buf_init(&a, 1 << 20);
    buf_init(&b, 1 << 20);
    run_encode(got, &a);
    run_encode(want, &b);
    cr_assert(bytes_eq(buf_bytes(&a), buf_bytes(&b)),
              "run %s: state %d/%d attempts %u/%u stalls %u/%u fence %llu/%llu", got->id.text,
              got->state, want->state, got->attempts, want->attempts, got->stalls, want->stalls,
              (unsigned long long)got->fence, (unsigned long long)want->fence);
    buf_fini(&a);
    buf_fini(&b);
}

/* Rows in every condition that a due run can be in. */
enum { CONDITIONS = 8 };

static void put_conditions(struct store *s)
{
    for (unsigned n = 0; n < CONDITIONS; n++) {
        char key[8];
        snprintf(key, sizeof key, "k%u", n);
        struct question *q = put_of(n, n % 2 ? key : NULL);
        q->run.key_until_ms += n == 7 ? RUN_KEY_MS_DEFAULT : 0;
        expect(s, q, OUTCOME_OK);
    }
    ledger_sql(&ledger,
               "UPDATE runs SET attempts = 2, error = '\"again\"', started_at_ms = 5,"
               " fence = 7 WHERE id = '%s'",
               id_of(1).text);
    for (unsigned n = 2; n < CONDITIONS; n++)
        ledger_sql(&ledger,
                   "UPDATE runs SET state = 2, attempts = 1, stalls = %u, started_at_ms = 9,"
                   " fence = %lld, lease_ms = 10, lease_until_ms = %lld, due_at_ms = %lld,"
                   " token = decode(repeat('05', 16), 'hex') WHERE id = '%s'",
                   n, n == 3 ? (long long)ledger.world.wall_ms * 1000 + 5 : 8LL,
                   (long long)ledger.world.wall_ms - 1, (long long)ledger.world.wall_ms - 1,
                   id_of(n).text);
}

Test(postgres_runs, lease_is_the_rule_field_by_field)
{
    struct store *s = ledger_open(&ledger, "");
    struct question *before[CONDITIONS], *after;
    unsigned leased = 0, failed = 0;
    put_conditions(s);
    for (unsigned n = 0; n < CONDITIONS; n++) before[n] = asked(s, get_of(n));
    struct question *q = asked(s, lease_of(TOKENS, 3));
    cr_assert(outcome_of(q) == OUTCOME_OK && q->ask.now_ms == ledger.world.wall_ms);
    for (unsigned n = 0; n < CONDITIONS; n++) {
        after = asked(s, get_of(n));
        struct token token = row_of(after)->token;
        struct run_verdict v =
            rules_run_lease(row_of(before[n]), &token, LEASE_MS, ledger.world.wall_ms);
        cr_assert(v.changed);
        expect_same(row_of(after), &v.next);
        leased += v.outcome == OUTCOME_OK;
        failed += v.outcome == OUTCOME_REFUSED;
        char sql[200];
        snprintf(sql, sizeof sql,
                 "SELECT coalesce(due_at_ms, %lld) = %lld AND coalesce(gone_at_ms, %lld) = %lld"
                 " FROM runs WHERE id = '%s'",
                 (long long)INT64_MAX, (long long)run_due_ms(&v.next), (long long)INT64_MAX,
                 (long long)run_gone_ms(&v.next), v.next.id.text);
        cr_assert(strcmp(ledger_sql(&ledger, "%s", sql), "t") == 0, "run %u", n);
        question_free(after);
        question_free(before[n]);
    }
    cr_assert(leased == q->ask.rows.count && leased == 5 && failed == 3);
    for (size_t i = 0; i < q->ask.rows.count; i++) {
        after = asked(s, get_of(number_of(q->ask.rows.rows[i])));
        expect_same(q->ask.rows.rows[i], row_of(after));
        cr_assert(token_eq(&q->ask.rows.rows[i]->token, &q->tokens[i]));
        question_free(after);
    }
    question_free(q);
    store_close(s);
}

/* ---- commits ---- */

static const char *named(const char *more)
{
    static char text[160];
    snprintf(text, sizeof text, "&application_name=%s%s", ledger.room.name, more);
    return text;
}

static void until_it_waits_for_a_lock(void)
{
    char sql[200];
    snprintf(sql, sizeof sql,
             "SELECT coalesce(bool_or(wait_event_type = 'Lock'), false) FROM pg_stat_activity"
             " WHERE application_name = '%s'",
             ledger.room.name);
    ledger_until(&ledger, sql);
}

struct batch {
    pthread_t thread;
    struct store *store;
    struct question *q[4];
    size_t count;
};

static void *batch_run(void *ctx)
{
    struct batch *b = ctx;
    exec(b->store, b->q, b->count);
    return NULL;
}

static void batch_start(struct batch *b)
{
    cr_assert(pthread_create(&b->thread, NULL, batch_run, b) == 0);
}

static void batch_join(struct batch *b)
{
    cr_assert(pthread_join(b->thread, NULL) == 0);
}

static void batch_free(struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) question_free(b->q[i]);
}

/* What a deferred trigger does, it does in the COMMIT. */
static void wait_at_commit(void)
{
    ledger_sql(&ledger,
               "CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
               " PERFORM pg_advisory_xact_lock(hashtext('%s')); RETURN NULL; END $$;"
               "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE ON runs"
               " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit()",
               ledger.room.name);
    ledger_sql(&ledger, "SELECT pg_advisory_lock(hashtext('%s'))", ledger.room.name);
}

static void end_its_session(void)
{
    ledger_sql(&ledger,
               "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE"
               " application_name = '%s'",
               ledger.room.name);
}

Test(postgres_runs, commit_without_an_answer_is_ambiguous_and_may_be_asked_again)
{
    struct batch b = { .store = ledger_open(&ledger, named("")), .count = 4 };
    expect(b.store, put_of(9, NULL), OUTCOME_OK);
    wait_at_commit();
    b.q[0] = put_of(1, "k");
    b.q[1] = put_of(2, "k");
    b.q[2] = increment_of(9);
    b.q[3] = get_of(5);
    batch_start(&b);
    until_it_waits_for_a_lock();
    end_its_session();
    batch_join(&b);
    cr_assert(b.q[0]->op->err.code == ERR_AMBIGUOUS, "%s", b.q[0]->op->err.text);
    cr_assert(b.q[1]->op->err.code == ERR_UNAVAILABLE, "%s", b.q[1]->op->err.text);
    cr_assert(b.q[2]->op->err.code == ERR_AMBIGUOUS, "%s", b.q[2]->op->err.text);
    cr_assert(outcome_of(b.q[3]) == OUTCOME_ABSENT);
    ledger_sql(&ledger, "SELECT pg_advisory_unlock_all()");
    exec(b.store, b.q, 2); /* on a new connection */
    cr_assert(outcome_of(b.q[0]) == OUTCOME_OK && outcome_of(b.q[1]) == OUTCOME_CACHED);
    batch_free(&b);
    store_close(b.store);
}

Test(postgres_runs, put_that_was_committed_without_an_answer_is_the_same_run)
{
    struct store *s = ledger_open(&ledger, ""), *other = ledger_open(&ledger, "");
    struct question *q = put_of(1, "k");
    expect(other, put_of(1, "k"), OUTCOME_OK); /* its commit was made */
    asked(s, q);
    cr_assert(outcome_of(q) == OUTCOME_OK && q->ask.put == PUT_SAME);
    question_free(q);
    store_close(s);
    store_close(other);
}

Test(postgres_runs, lease_without_an_answer_is_ambiguous)
{
    struct batch b = { .store = ledger_open(&ledger, named("")), .count = 2 };
    expect(b.store, put_of(1, NULL), OUTCOME_OK);
    wait_at_commit();
    b.q[0] = lease_of(1, 1);
    b.q[1] = lease_of(1, 2);
    batch_start(&b);
    until_it_waits_for_a_lock();
    end_its_session();
    batch_join(&b);
    for (size_t i = 0; i < 2; i++)
        cr_assert(b.q[i]->op->err.code == ERR_AMBIGUOUS, "%s", b.q[i]->op->err.text);
    ledger_sql(&ledger, "SELECT pg_advisory_unlock_all()");
    exec(b.store, b.q, 2);
    cr_assert(outcome_of(b.q[0]) == OUTCOME_OK && b.q[0]->ask.rows.count == 1);
    cr_assert(outcome_of(b.q[1]) == OUTCOME_OK && b.q[1]->ask.rows.count == 0);
    batch_free(&b);
    store_close(b.store);
}

/* ---- somebody else's transaction ---- */

Test(postgres_runs, key_that_appears_while_it_is_inserted_is_decided_again)
{
    struct store *first = ledger_open(&ledger, "");
    expect(first, put_of(9, "old"), OUTCOME_OK);
    struct batch b = { .store = ledger_open(&ledger, named("")), .count = 2 };
    put_many(b.store, 100);
    b.q[0] = put_of(1, "k");
    b.q[1] = put_of(2, "j");
    ledger_sql(&ledger, "BEGIN; UPDATE runs SET key = 'k', rev = rev + 1 WHERE key = 'old'");
    batch_start(&b);
    until_it_waits_for_a_lock();
    ledger_sql(&ledger, "COMMIT");
    batch_join(&b);
    cr_assert(outcome_of(b.q[0]) == OUTCOME_CACHED && outcome_of(b.q[1]) == OUTCOME_OK);
    batch_free(&b);
    store_close(b.store);
    store_close(first);
}

Test(postgres_runs, row_that_changes_while_it_is_updated_is_decided_again)
{
    struct batch b = { .store = ledger_open(&ledger, named("")), .count = 2 };
    expect(b.store, put_of(1, NULL), OUTCOME_OK);
    expect(b.store, put_of(2, NULL), OUTCOME_OK);
    ledger_sql(&ledger,
               "BEGIN; UPDATE runs SET rev = rev + 1, metadata_version = 1,"
               " metadata = '{\"n\":41}' WHERE id = '%s'",
               id_of(1).text);
    b.q[0] = increment_of(1);
    b.q[1] = increment_of(2);
    batch_start(&b);
    until_it_waits_for_a_lock();
    ledger_sql(&ledger, "COMMIT");
    batch_join(&b);
    cr_assert(outcome_of(b.q[0]) == OUTCOME_OK && outcome_of(b.q[1]) == OUTCOME_OK);
    cr_assert(row_of(b.q[0])->metadata_version == 2 && row_of(b.q[1])->metadata_version == 1);
    batch_free(&b);
    store_close(b.store);
}

Test(postgres_runs, op_that_poisons_a_batch_fails_alone)
{
    struct store *s = ledger_open(&ledger, "");
    put_many(s, 100);
    ledger_sql(&ledger, "ALTER TABLE runs ADD CHECK (key <> 'poison')");
    struct question *q[] = { put_of(1, "a"), put_of(2, "poison"), put_of(3, "b"),
                             increment_of(1) };
    exec(s, q, 4);
    cr_assert(outcome_of(q[0]) == OUTCOME_OK && outcome_of(q[2]) == OUTCOME_OK);
    cr_assert(q[1]->op->err.code == ERR_CORRUPT, "%s", q[1]->op->err.text);
    cr_assert(outcome_of(q[3]) == OUTCOME_OK && row_of(q[3])->metadata_version == 1);
    for (size_t i = 0; i < 4; i++) question_free(q[i]);
    store_close(s);
}

Test(postgres_runs, row_that_makes_no_sense_is_an_error_of_its_op_alone)
{
    struct store *s = ledger_open(&ledger, "");
    expect(s, put_of(1, "bad"), OUTCOME_OK);
    ledger_sql(&ledger, "UPDATE runs SET state = 9");
    struct question *q[] = { get_of(1), put_of(2, "bad"), put_of(3, "good") };
    exec(s, q, 3);
    cr_assert(q[0]->op->err.code == ERR_CORRUPT && q[1]->op->err.code == ERR_CORRUPT);
    cr_assert(outcome_of(q[2]) == OUTCOME_OK);
    for (size_t i = 0; i < 3; i++) question_free(q[i]);
    store_close(s);
}

Test(postgres_runs, row_that_was_moved_is_found_again)
{
    struct batch b = { .store = ledger_open(&ledger, named("")), .count = 1 };
    put_many(b.store, 100);
    b.q[0] = increment_of(131);
    ledger_sql(&ledger, "BEGIN; LOCK runs IN SHARE MODE"); /* may be read, not written */
    batch_start(&b);
    until_it_waits_for_a_lock();
    ledger_sql(&ledger, "DELETE FROM runs WHERE id < '%s'", id_of(120).text);
    ledger_sql(&ledger, "CLUSTER runs USING runs_pkey; COMMIT");
    batch_join(&b);
    cr_assert(outcome_of(b.q[0]) == OUTCOME_OK);
    cr_assert(number("SELECT metadata_version FROM runs ORDER BY id DESC LIMIT 1") == 1);
    cr_assert(number("SELECT sum(metadata_version) FROM runs") == 1);
    batch_free(&b);
    store_close(b.store);
}

/* ---- the clock of the server ---- */

Test(postgres_runs, server_clock_rules)
{
    ledger.world.env.wall_rules = false;
    struct store *s = ledger_open(&ledger, "");
    struct question *q = put_of(1, NULL);
    q->run.available_at_ms = 0;
    expect(s, q, OUTCOME_OK);
    q = asked(s, lease_of(1, 1));
    cr_assert(outcome_of(q) == OUTCOME_OK && row_of(q)->started_at_ms == q->ask.now_ms);
    cr_assert(number("SELECT count(*) FROM runs WHERE abs(started_at_ms - clock_ms()) < 60000"
                     " AND lease_until_ms = started_at_ms + 60000") == 1);
    struct run_change done = { .kind = RUN_COMPLETE, .token = row_of(q)->token };
    question_free(q);
    expect(s, change_of(1, done), OUTCOME_OK);
    cr_assert(
        number("SELECT count(*) FROM runs WHERE abs(finished_at_ms - clock_ms()) < 60000") ==
        1);
    put_many(s, 100); /* guessed, by a clock that is reckoned */
    struct op *sweep = ledger_op(VERB_EXPIRE, "", 0, NULL);
    ledger_sql(&ledger, "UPDATE runs SET gone_at_ms = clock_ms() - 30000 WHERE state = 3");
    ledger_exec(s, &sweep, 1);
    cr_assert(sweep->err.code == 0 && sweep->count == 0, "not before a minute has passed");
    ledger_sql(&ledger, "UPDATE runs SET gone_at_ms = clock_ms() - 60001 WHERE state = 3");
    ledger_exec(s, &sweep, 1);
    cr_assert(sweep->err.code == 0 && sweep->count == 1);
    op_free(sweep);
    store_close(s);
}

/* ---- plans ---- */

static long long index_reads(const char *index)
{
    char sql[160];
    snprintf(sql, sizeof sql,
             "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelid = '%s'::regclass",
             index);
    return number(sql);
}

/* Everything was planned when the table was empty, and nobody has told the planner that it is not. */
Test(postgres_runs, plans_that_were_made_for_an_empty_table_find_rows_in_a_large_one)
{
    enum { MANY = 20000, TIMES = 20 };
    struct store *s = ledger_open(&ledger, "");
    ledger_sql(&ledger, "ALTER TABLE runs SET (autovacuum_enabled = off)");
    struct question *q = put_of(1, "k");
    q->run.ordering_key = bytes_str("line");
    expect(s, q, OUTCOME_OK);
    expect(s, drain_of(2, "k", 1), OUTCOME_OK);
    expect(s, get_of(2), OUTCOME_OK);
    question_free(asked(s, lease_of(1, 1)));
    ledger_sql(
        &ledger,
        "INSERT INTO runs (rev, state, env, id, task, queue, key, key_held, key_until_ms,"
        " due_at_ms, created_at_ms, ordering_key) SELECT 1, 1, 'e',"
        " convert_to('run_' || lpad(i::text, 26, '0'), 'UTF8'), 't', 'q',"
        " convert_to('key-' || i, 'UTF8'), true, %lld, %lld, 1,"
        " CASE WHEN i %% 2 = 0 THEN convert_to('l-' || i, 'UTF8') ELSE '' END"
        " FROM generate_series(1, %d) AS i",
        (long long)ledger.world.wall_ms + 1000, (long long)ledger.world.wall_ms + 1000, MANY);
    ledger_sql(&ledger, "SELECT pg_stat_reset()");
    for (unsigned i = 0; i < TIMES; i++) {
        expect(s, put_of(100 + i, "key-777"), OUTCOME_MISMATCH);
        expect(s, get_of(2), OUTCOME_OK);
        expect(s, increment_of(1), OUTCOME_OK);
        question_free(asked(s, lease_of(1, 1)));
    }
    world_advance(&ledger.world, 1000);
    for (unsigned i = 0; i < TIMES; i++) {
        q = asked(s, lease_of(4, 1));
        cr_assert(outcome_of(q) == OUTCOME_OK && q->ask.rows.count == 4);
        question_free(q);
    }
    store_close(s); /* sends its counts */
    ledger_until(&ledger, "SELECT idx_scan >= 20 FROM pg_stat_user_indexes WHERE indexrelid ="
                          " 'runs_pkey'::regclass");
    static const char *const indexes[] = { "runs_pkey", "runs_key", "runs_due", "runs_ordered",
                                           "runs_aliases" };
    for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++)
        cr_assert(index_reads(indexes[i]) < MANY, "%s: %lld rows were read", indexes[i],
                  index_reads(indexes[i]));
    cr_assert(number("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relid ="
                     " 'runs'::regclass") == 0);
}

/* ---- the schema ---- */

extern const char postgres_001_claims[];

static void migrate_to_one(void)
{
    ledger_sql(&ledger, "CREATE SCHEMA %s", ledger.room.name);
    PGresult *result = PQexec(ledger.admin, postgres_001_claims);
    cr_assert(PQresultStatus(result) == PGRES_COMMAND_OK, "%s", PQerrorMessage(ledger.admin));
    PQclear(result);
}

Test(postgres_runs, claims_of_version_one_are_kept)
{
    migrate_to_one();
    ledger_sql(&ledger,
               "INSERT INTO claims VALUES (1, 77, 1, 1, 1, 1, 1, %lld, 1, 2, 's k',"
               " decode(repeat('01', 16), 'hex'), '', 'A')",
               (long long)ledger.world.wall_ms + 1000000);
    struct store *s = ledger_open(&ledger, "");
    cr_assert(number("SELECT max(version) FROM versions") == 2);
    cr_assert(ledger_number(&ledger, "SELECT fence FROM claims") == 77);
    expect(s, put_of(1, "k"), OUTCOME_OK);
    store_close(s);
}

static void find_table(void *ctx, const char *text)
{
    *(bool *)ctx = strstr(text, "CREATE TABLE IF NOT EXISTS runs") != NULL;
}

Test(postgres_runs, printed_sql_has_them)
{
    struct err err;
    bool found = false;
    cr_assert(store_migrate(ledger.url, &ledger.world.env, true, find_table, &found, &err) ==
              0);
    cr_assert(found);
}
