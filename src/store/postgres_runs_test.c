/* postgres_runs_test.c - what the ledger of runs does beyond the rules, on a real server: guesses,
 * races, and its version of the rule about leases. What every ledger of runs does is looked at by
 * conform. */
#include "store/postgres_runs_scene_test.h"

TestSuite(postgres_runs, .init = setup, .fini = teardown, .timeout = 120);

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

Test(postgres_runs, whoever_asks_first_is_told_the_epoch)
{
    struct store *s = ledger_open(&ledger, "");
    struct question *q = asked(s, lease_of(1, 1));
    cr_assert(outcome_of(q) == OUTCOME_OK && q->op->epoch == s->epoch && s->epoch != 0);
    question_free(q);
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
