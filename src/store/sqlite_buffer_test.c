/* sqlite_buffer_test.c - what only the buffer in a SQLite file promises: that it outlives its
 * process, that processes share it, and how much it does at once. The rest: tests/conform. */
#include "store/sqlite_scene_test.h"

SQLITE_SUITE(sqlite_buffer);

static struct run_id id_of(unsigned n)
{
    struct run_id id;
    snprintf(id.text, sizeof id.text, "run_%026u", n);
    return id;
}

static struct op *buffer_op(enum verb verb, struct buffer_ask *ask)
{
    struct op *op = op_on(verb, "k", owner(0));
    op->buffer = ask;
    return op;
}

/* What the ask is told is the caller's to clear. */
static enum outcome run(struct store *s, enum verb verb, struct buffer_ask *ask)
{
    struct op *op = buffer_op(verb, ask);
    exec(s, &op, 1);
    cr_assert(op->err.code == 0, "%s: %s", verb_info[verb].name, op->err.text);
    enum outcome outcome = op->out.outcome;
    op_free(op);
    return outcome;
}

static enum outcome accept_bytes(struct store *s, unsigned n, const char *key,
                                 struct bytes bytes)
{
    struct buffer_ask ask = {
        .env = bytes_str("e"), .id = id_of(n), .key_frame = bytes_str(key), .run = bytes
    };
    enum outcome outcome = run(s, VERB_ACCEPT, &ask);
    buffer_ask_clear(&ask);
    return outcome;
}

static enum outcome accept_entry(struct store *s, unsigned n, const char *key)
{
    return accept_bytes(s, n, key, bytes_str("run"));
}

static size_t drain(struct store *s, uint8_t who, size_t limit)
{
    struct buffer_ask ask = { .token.bytes = { who }, .lease_ms = 30000, .limit = limit };
    cr_assert(run(s, VERB_DRAIN_LEASE, &ask) == OUTCOME_OK);
    size_t count = ask.entries.count;
    buffer_ask_clear(&ask);
    return count;
}

static size_t settle(struct store *s, uint8_t who, unsigned first, unsigned count)
{
    struct settle *all = calloc(count, sizeof *all);
    cr_assert(all);
    for (unsigned i = 0; i < count; i++)
        all[i] = (struct settle){ .id = id_of(first + i), .env = bytes_str("e") };
    struct buffer_ask ask = { .token.bytes = { who }, .settles = all, .settle_count = count };
    cr_assert(run(s, VERB_SETTLE, &ask) == OUTCOME_OK);
    free(all);
    return ask.settled;
}

static int64_t entries_in_file(void)
{
    return raw_number("SELECT count(*) FROM entries");
}

/* ---- processes ---- */

/* Ends without closing anything, as by kill -9: what was answered is in the file. */
static int accept_and_die(void)
{
    struct store *s = open_store();
    for (unsigned n = 1; n <= 20; n++) accept_entry(s, n, "");
    drain(s, 1, 5);
    settle(s, 1, 1, 2);
    raise(SIGKILL);
    return 0;
}

Test(sqlite_buffer, what_was_answered_outlives_the_process)
{
    cr_assert(exit_of(spawn(accept_and_die)) == -SIGKILL);
    struct store *s = open_store();
    struct buffer_ask ask = { 0 };
    run(s, VERB_BUFFER_STATS, &ask);
    cr_expect(ask.queued == 15 && ask.leased == 3);
    now_ms += 30000;
    cr_expect(drain(s, 2, 100) == 18, "what a dead drainer had is given to the next");
    store_close(s);
}

enum { RACERS = 4, RACE_KEYS = 100 };

static unsigned racer;

static int accept_all_keys(void)
{
    struct store *s = open_store();
    int won = 0;
    for (unsigned i = 0; i < RACE_KEYS; i++) {
        char key[16];
        snprintf(key, sizeof key, "key-%u", i);
        won += accept_entry(s, racer * 1000 + i, key) == OUTCOME_OK;
    }
    store_close(s);
    return won;
}

Test(sqlite_buffer, of_many_processes_one_has_the_key)
{
    store_close(open_store());
    pid_t pids[RACERS];
    int won = 0;
    for (racer = 0; racer < RACERS; racer++) pids[racer] = spawn(accept_all_keys);
    for (unsigned i = 0; i < RACERS; i++) won += exit_of(pids[i]);
    cr_expect(won == RACE_KEYS, "%d of %d", won, RACE_KEYS);
    cr_expect(entries_in_file() == RACE_KEYS);
}

static int drain_everything(void)
{
    struct store *s = open_store();
    int got = 0;
    for (size_t some; (some = drain(s, (uint8_t)(racer + 1), 7));) got += (int)some;
    store_close(s);
    return got;
}

Test(sqlite_buffer, processes_drain_without_meeting)
{
    struct store *s = open_store();
    for (unsigned n = 1; n <= 200; n++) accept_entry(s, n, "");
    store_close(s);
    pid_t pids[RACERS];
    int got = 0;
    for (racer = 0; racer < RACERS; racer++) pids[racer] = spawn(drain_everything);
    for (unsigned i = 0; i < RACERS; i++) got += exit_of(pids[i]);
    cr_expect(got == 200, "%d of 200", got);
}

/* ---- one file for claims and buffer ---- */

Test(sqlite_buffer, claims_are_left_alone)
{
    struct store *s = open_store();
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    cr_expect(accept_entry(s, 1, "key") == OUTCOME_OK, "although the claim is another's");
    expect(s, VERB_PEEK, "k", owner(1), OUTCOME_IN_PROGRESS);
    cr_expect(stats(s).pending == 1 && stats(s).done == 0);
    store_close(s);
}

Test(sqlite_buffer, batch_is_one_transaction_in_order)
{
    struct store *s = open_store();
    struct buffer_ask asks[4] = {
        { .env = bytes_str("e"), .id = id_of(1), .run = bytes_str("a") },
        { .env = bytes_str("e"), .id = id_of(1), .change = bytes_str("c") },
        { .token.bytes = { 7 }, .lease_ms = 1000, .limit = 9 },
        { .env = bytes_str("e"), .id = id_of(1), .rev = 1, .change = bytes_str("d") },
    };
    struct op *ops[4] = { buffer_op(VERB_ACCEPT, &asks[0]), buffer_op(VERB_APPEND, &asks[1]),
                          buffer_op(VERB_DRAIN_LEASE, &asks[2]),
                          buffer_op(VERB_APPEND, &asks[3]) };
    exec(s, ops, 4);
    cr_expect(ops[1]->out.outcome == OUTCOME_OK);
    cr_assert(asks[2].entries.count == 1);
    cr_expect(bytes_eq(asks[2].entries.rows[0]->changes, bytes_str("c")));
    cr_expect(ops[3]->out.outcome == OUTCOME_IN_PROGRESS);
    for (size_t i = 0; i < 4; i++) {
        cr_expect(ops[i]->err.code == 0);
        op_free(ops[i]);
        buffer_ask_clear(&asks[i]);
    }
    store_close(s);
}

/* ---- the numbers that are kept beside the entries ---- */

static struct buffer_ask numbers(struct store *s)
{
    struct buffer_ask ask = { 0 };
    run(s, VERB_BUFFER_STATS, &ask);
    return ask;
}

static int64_t in_state(int state)
{
    char sql[80];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM entries WHERE state = %d", state);
    return raw_number(sql);
}

static void expect_numbers(struct store *s)
{
    cr_expect(raw_number("SELECT queued FROM buffer") == in_state(ENTRY_QUEUED));
    cr_expect(raw_number("SELECT leased FROM buffer") == in_state(ENTRY_LEASED));
    struct buffer_ask got = numbers(s);
    cr_expect((int64_t)(got.queued + got.leased) ==
              in_state(ENTRY_QUEUED) + in_state(ENTRY_LEASED));
}

static int append_to(struct store *s, unsigned n)
{
    struct buffer_ask ask = { .env = bytes_str("e"), .id = id_of(n), .change = bytes_str("c") };
    return (int)run(s, VERB_APPEND, &ask);
}

static void lease_by_id(struct store *s, uint8_t who, unsigned n)
{
    struct buffer_ask ask = { .token.bytes = { who },
                              .lease_ms = 30000,
                              .limit = 1,
                              .env = bytes_str("e"),
                              .id = id_of(n) };
    run(s, VERB_DRAIN_LEASE, &ask);
    cr_expect(ask.entries.count == 1);
    buffer_ask_clear(&ask);
}

static size_t settle_one(struct store *s, uint8_t who, unsigned n, enum settle_how how)
{
    struct settle one = { .id = id_of(n), .env = bytes_str("e"), .how = how };
    struct buffer_ask ask = { .token.bytes = { who }, .settles = &one, .settle_count = 1 };
    run(s, VERB_SETTLE, &ask);
    return ask.settled;
}

Test(sqlite_buffer, numbers_follow_every_change)
{
    struct store *s = open_store();
    for (unsigned n = 1; n <= 10; n++) accept_entry(s, n, n == 1 ? "key" : "");
    cr_expect(accept_entry(s, 11, "key") == OUTCOME_CACHED);
    accept_entry(s, 10, "");
    expect_numbers(s);
    cr_expect(drain(s, 1, 5) == 5);
    lease_by_id(s, 1, 9);
    expect_numbers(s);
    cr_expect(settle_one(s, 1, 1, SETTLE_WRITTEN) == 1);
    cr_expect(settle_one(s, 1, 2, SETTLE_BACK) == 1);
    cr_expect(settle_one(s, 1, 3, SETTLE_FAILED) == 1);
    cr_expect(settle_one(s, 2, 4, SETTLE_WRITTEN) == 0);
    expect_numbers(s);
    now_ms += 30000; /* 4, 5 and 9 have lapsed */
    cr_expect(numbers(s).queued == 9 && numbers(s).leased == 0);
    cr_expect(append_to(s, 4) == OUTCOME_OK);
    expect_numbers(s);
    lease_by_id(s, 2, 5);
    expect_numbers(s);
    cr_expect(numbers(s).queued == 8 && numbers(s).leased == 1);
    cr_expect(drain(s, 3, 100) == 8);
    expect_numbers(s);
    cr_expect(expire(s, 10) == 1);
    expect_numbers(s);
    store_close(s);
}

Test(sqlite_buffer, numbers_of_a_batch_are_those_of_its_moment)
{
    struct store *s = open_store();
    struct buffer_ask first = { .env = bytes_str("e"), .id = id_of(1) };
    struct buffer_ask between = { 0 };
    struct buffer_ask second = { .env = bytes_str("e"), .id = id_of(2) };
    struct op *ops[3] = { buffer_op(VERB_ACCEPT, &first),
                          buffer_op(VERB_BUFFER_STATS, &between),
                          buffer_op(VERB_ACCEPT, &second) };
    exec(s, ops, 3);
    cr_expect(between.queued == 1);
    expect_numbers(s);
    for (size_t i = 0; i < 3; i++) op_free(ops[i]);
    store_close(s);
}

/* ---- how much at once ---- */

Test(sqlite_buffer, sweep_is_bounded_and_keeps_up)
{
    struct store *s = open_store();
    for (unsigned n = 1; n <= 400; n++) accept_entry(s, n, "");
    cr_assert(drain(s, 1, 390) == 390);
    cr_assert(settle(s, 1, 1, 380) == 380);
    now_ms += 30000;
    cr_assert(settle(s, 1, 381, 1) == 1);
    int64_t swept = 400 - entries_in_file();
    cr_expect(swept > 1 && swept < 200, "%lld at once", (long long)swept);
    cr_expect(expire(s, 10) == 10);
    size_t rest = expire(s, 1000);
    cr_expect((int64_t)rest == 380 - swept - 10, "%zu", rest);
    cr_expect(entries_in_file() == 20, "what was just written stays, and what waits");
    store_close(s);
}

Test(sqlite_buffer, answers_have_a_limit_in_bytes_and_lose_nothing)
{
    enum { BIG = 3 << 20, COUNT = 12 };
    struct store *s = open_store();
    uint8_t *big = calloc(1, BIG);
    cr_assert(big);
    for (unsigned n = 1; n <= COUNT; n++)
        cr_assert(accept_bytes(s, n, "", bytes_of(big, BIG)) == OUTCOME_OK);
    free(big);

    struct buffer_ask page = { .env = bytes_str("e"), .limit = 100 };
    run(s, VERB_ENTRY_LIST, &page);
    cr_expect(page.entries.more && page.entries.count == 6, "%zu", page.entries.count);
    page.before = page.entries.rows[5]->id;
    run(s, VERB_ENTRY_LIST, &page);
    cr_expect(!page.entries.more && page.entries.count == 6, "%zu", page.entries.count);
    buffer_ask_clear(&page);

    size_t first = drain(s, 1, 100), second = drain(s, 1, 100);
    cr_expect(first == 6 && second == 6, "%zu and %zu", first, second);
    store_close(s);
}

/* ---- rows that make no sense ---- */

static const char *const nonsense[] = {
    "state = 0", "state = 4", "id = x'01'",    "env = zeroblob(65)",
    "rev = -1",  "turn = 2",  "attempts = -1",
};

static int code_of(struct store *s, enum verb verb, struct buffer_ask ask)
{
    struct op *op = buffer_op(verb, &ask);
    exec(s, &op, 1);
    int code = op->err.code;
    cr_expect(!code || !op->changed);
    op_free(op);
    buffer_ask_clear(&ask);
    return code;
}

/* By its key it is found, whatever else is wrong with it. */
Test(sqlite_buffer, row_that_makes_no_sense_is_told)
{
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        struct store *s = open_store();
        accept_entry(s, 1, "key");
        char sql[120];
        snprintf(sql, sizeof sql, "UPDATE entries SET %s", nonsense[i]);
        raw(sql);
        bool by_env = strncmp(nonsense[i], "env", 3) == 0;
        static const uint8_t long_env[65];
        struct bytes where = by_env ? bytes_of(long_env, sizeof long_env) : bytes_str("e");
        int code = code_of(s, VERB_ENTRY_GET,
                           (struct buffer_ask){ .env = where, .key_frame = bytes_str("key") });
        cr_expect(code == ERR_CORRUPT, "%s: %d", nonsense[i], code);
        raw("DELETE FROM entries");
        store_close(s);
    }
}

/* Nothing is leased by an answer that could not be given. */
Test(sqlite_buffer, lease_that_meets_nonsense_takes_nothing)
{
    struct store *s = open_store();
    for (unsigned n = 1; n <= 5; n++) accept_entry(s, n, "");
    raw("UPDATE entries SET rev = -1 WHERE seq = 4");
    struct buffer_ask ask = { .token.bytes = { 1 }, .lease_ms = 1000, .limit = 10 };
    cr_expect(code_of(s, VERB_DRAIN_LEASE, ask) == ERR_CORRUPT);
    cr_expect(raw_number("SELECT count(*) FROM entries WHERE state = 1") == 5);
    store_close(s);
}

/* ---- as a spool: nothing is leased there ---- */

static struct buffer_ask walk(struct store *s, int64_t behind, size_t limit)
{
    struct buffer_ask ask = { .behind = behind, .limit = limit };
    cr_assert(run(s, VERB_ENTRY_LIST, &ask) == OUTCOME_OK);
    return ask;
}

Test(sqlite_buffer, a_spool_is_walked_from_the_oldest_on_and_what_is_dropped_is_gone)
{
    struct store *s = open_store();
    for (unsigned n = 5; n >= 1; n--) accept_entry(s, n, "");
    struct buffer_ask first = walk(s, 0, 3);
    cr_assert(first.entries.count == 3 && first.entries.more);
    cr_expect(strcmp(first.entries.rows[0]->id.text, id_of(5).text) == 0);
    struct buffer_ask rest = walk(s, first.place, 3);
    cr_assert(rest.entries.count == 2 && !rest.entries.more);
    cr_expect(strcmp(rest.entries.rows[1]->id.text, id_of(1).text) == 0);
    cr_expect(settle_one(s, 0, 5, SETTLE_DROP) == 1 && settle_one(s, 0, 5, SETTLE_DROP) == 0);
    cr_expect(settle_one(s, 0, 1, SETTLE_DROP) == 1);
    expect_numbers(s);
    cr_expect(entries_in_file() == 3 && numbers(s).queued == 3);
    struct buffer_ask end = walk(s, rest.place, 3);
    cr_expect(end.entries.count == 0 && !end.entries.more);
    buffer_ask_clear(&first);
    buffer_ask_clear(&rest);
    buffer_ask_clear(&end);
    store_close(s);
}
