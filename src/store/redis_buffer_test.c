/* redis_buffer_test.c - what only the redis store promises of the buffer and of the gate: what becomes
 * of an accept when scripts, memory or connections are lost, that it is refused where it could be
 * evicted, that nothing stays behind. What every buffer and gate does is tested by the conform suite. */
#include "store/redis.h"

#include "tests/support/coord.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEEP_MS = 30000 };

static struct coord coord;
static struct store *s;

static void setup(void)
{
    coord_init_private(&coord, SERVER_REDIS, "");
    s = coord_open(&coord, "");
}

static void teardown(void)
{
    coord_close(&coord, s);
    coord_fini(&coord);
}

TestSuite(redis_buffer, .init = setup, .fini = teardown, .timeout = 120);

/* ---- asking ---- */

static struct run_id id_of(unsigned n)
{
    struct run_id id;
    snprintf(id.text, sizeof id.text, "run_%026u", n);
    return id;
}

static struct buffer_ask entry_ask(unsigned n, const char *key)
{
    return (struct buffer_ask){ .env = bytes_str("e"),
                                .id = id_of(n),
                                .key_frame = bytes_str(key),
                                .run = bytes_str("the run"),
                                .unclaimed = true };
}

/* Keyed, where it has to be, by the claim of `key` that owner 1 has. */
static struct op *buffer_op(enum verb verb, struct buffer_ask *ask, const char *key)
{
    struct key claimed = key_of("@e", key);
    struct request in = { .token = token_of(1), .lease_ms = COORD_LEASE_MS, .retain_ms = -1 };
    in.value = blob_new(run_id_bytes(&ask->id));
    struct op *op = op_new(verb, &claimed, &in);
    cr_assert(op && in.value);
    blob_unref(in.value);
    op->buffer = ask;
    return op;
}

/* What became of it; entries are the caller's. */
static struct err ask(struct store *to, enum verb verb, struct buffer_ask *ask, const char *key,
                      struct answer *ret_answer)
{
    struct asked a;
    asked_start(&a, to, buffer_op(verb, ask, key));
    COORD_UNTIL(&coord, a.finished);
    struct err err = a.op->err;
    *ret_answer = a.op->out;
    ret_answer->value = NULL;
    asked_end(&a);
    return err;
}

static enum outcome outcome(enum verb verb, struct buffer_ask *asked, const char *key)
{
    struct answer answer;
    struct err err = ask(s, verb, asked, key, &answer);
    cr_assert(err.code == 0, "%s: %s", verb_info[verb].name, err.text);
    return answer.outcome;
}

static enum outcome accept_run(unsigned n, const char *key)
{
    struct buffer_ask asked = entry_ask(n, key);
    enum outcome got = outcome(VERB_ACCEPT, &asked, "unclaimed");
    buffer_ask_clear(&asked);
    return got;
}

static enum outcome claimed(enum verb verb, const char *key, uint8_t who)
{
    struct key claimed = key_of("@e", key);
    struct asked a;
    struct request in = { .token = token_of(who),
                          .lease_ms = COORD_LEASE_MS,
                          .retain_ms = COORD_RETAIN_MS };
    asked_start(&a, s, op_new(verb, &claimed, &in));
    COORD_UNTIL(&coord, a.finished);
    cr_assert(a.op->err.code == 0, "%s", a.op->err.text);
    enum outcome got = a.op->out.outcome;
    asked_end(&a);
    return got;
}

static uint64_t queued(void)
{
    struct buffer_ask stats = { .env = { 0 } };
    cr_assert(outcome(VERB_BUFFER_STATS, &stats, "-") == OUTCOME_OK);
    return stats.queued;
}

static size_t drain(size_t limit)
{
    struct buffer_ask lease = { .limit = limit, .token = token_of(9), .lease_ms = 1000 };
    cr_assert(outcome(VERB_DRAIN_LEASE, &lease, "-") == OUTCOME_OK);
    size_t count = lease.entries.count;
    buffer_ask_clear(&lease);
    return count;
}

static size_t settle(unsigned n)
{
    struct settle one = { .id = id_of(n), .env = bytes_str("e"), .how = SETTLE_WRITTEN };
    struct buffer_ask ask = { .settles = &one, .settle_count = 1, .token = token_of(9) };
    cr_assert(outcome(VERB_SETTLE, &ask, "-") == OUTCOME_OK);
    return ask.settled;
}

static struct gate_ask gate(struct gate_config config, size_t count)
{
    struct gate_ask ask = { .env = bytes_str("e"), .config = config, .count = count };
    struct asked a;
    struct op *op = op_new(VERB_GATE, NULL, NULL);
    op->gate = &ask;
    asked_start(&a, s, op);
    COORD_UNTIL(&coord, a.finished);
    cr_assert(op->err.code == 0, "%s", op->err.text);
    asked_end(&a);
    return ask;
}

static struct redis *inside(void)
{
    return (struct redis *)s;
}

/* ---- what the server forgets ---- */

Test(redis_buffer, scripts_that_were_flushed_are_loaded_again)
{
    struct gate_config config = { .threshold = 2, .window_ms = 100, .hold_ms = 100 };
    accept_run(1, "a");
    drain(1);
    gate(config, 1);
    for (unsigned round = 0; round < 2; round++) {
        coord_ask(&coord, "SCRIPT FLUSH");
        cr_expect(accept_run(2 + 2 * round, "") == OUTCOME_OK);
        coord_ask(&coord, "SCRIPT FLUSH");
        cr_expect(queued() == 1 + round);
        coord_ask(&coord, "SCRIPT FLUSH");
        cr_expect(gate(config, 1).passed == (round == 0));
    }
}

Test(redis_buffer, flush_is_told_by_the_epoch)
{
    struct buffer_ask get = { .env = bytes_str("e"), .id = id_of(1) };
    accept_run(1, "a");
    uint64_t before = s->epoch;
    cr_expect(outcome(VERB_ENTRY_GET, &get, "-") == OUTCOME_OK);
    buffer_ask_clear(&get);
    cr_expect(s->epoch == before);
    coord_ask(&coord, "FLUSHALL");
    cr_expect(outcome(VERB_ENTRY_GET, &get, "-") == OUTCOME_ABSENT);
    uint64_t after = s->epoch;
    cr_expect(after != before, "nobody was told");
    cr_expect(queued() == 0 && s->epoch == after);
    cr_expect(accept_run(1, "a") == OUTCOME_OK);
    cr_expect(accept_run(2, "b") == OUTCOME_OK);
    uint64_t again = s->epoch;
    coord_ask(&coord, "FLUSHALL");
    cr_expect(accept_run(3, "c") == OUTCOME_OK);
    cr_expect(s->epoch != again, "nobody was told");
}

Test(redis_buffer, nothing_of_what_was_written_stays_behind)
{
    for (unsigned n = 1; n <= 50; n++) accept_run(n, n % 2 ? "" : "k");
    cr_assert(queued() == 26);
    cr_assert(drain(100) == 26);
    for (unsigned n = 1; n <= 50; n++) settle(n);
    coord_pass(&coord, KEEP_MS);
    drain(1);
    drain(1);
    cr_expect_str_eq(coord_ask(&coord, "ZCARD t:{0}:index"), "0");
    cr_expect_str_eq(coord_ask(&coord, "HLEN t:{0}:buffer"),
                     "2"); /* the epoch, whose turn it was */
    cr_expect_str_eq(coord_ask(&coord, "PTTL t:{0}:buffer"), "-1");
}

static void append(unsigned n, uint64_t rev, const char *change)
{
    struct buffer_ask ask = {
        .env = bytes_str("e"), .id = id_of(n), .rev = rev, .change = bytes_str(change)
    };
    cr_assert(outcome(VERB_APPEND, &ask, "-") == OUTCOME_OK);
}

Test(redis_buffer, accepted_anew_has_nothing_of_what_it_was)
{
    static char big[8192];
    memset(big, 'x', sizeof big);
    struct buffer_ask before = entry_ask(1, ""), after = entry_ask(1, "");
    struct buffer_ask get = { .env = bytes_str("e"), .id = id_of(1) };
    before.run = bytes_of(big, sizeof big);
    after.run = bytes_of(NULL, 0);
    cr_assert(outcome(VERB_ACCEPT, &before, "unclaimed") == OUTCOME_OK);
    append(1, 0, "old");
    cr_assert(drain(1) == 1 && settle(1) == 1);
    coord.world.wall_ms += KEEP_MS;
    cr_assert(outcome(VERB_ACCEPT, &after, "unclaimed") == OUTCOME_OK);
    append(1, 0, "new");
    cr_assert(outcome(VERB_ENTRY_GET, &get, "-") == OUTCOME_OK);
    const struct entry *e = get.entries.rows[0];
    cr_expect(e->run.len == 0 && e->rev == 1);
    cr_expect(bytes_eq(e->changes, bytes_str("new")));
    buffer_ask_clear(&get);
    cr_expect(drain(1) == 1, "tidying up has removed it");
}

Test(redis_buffer, gate_goes_by_itself)
{
    struct gate_config config = { .threshold = 5, .window_ms = 100, .hold_ms = 100 };
    for (int i = 0; i < 10; i++) gate(config, 3);
    cr_expect_str_eq(coord_ask(&coord, "LLEN t:{0}:gate:e"), "6"); /* the last five */
    cr_expect(atoll(coord_ask(&coord, "PTTL t:{0}:gate:e")) > 0);
}

/* ---- answers that are lost ---- */

static bool is_stored(void)
{
    return strcmp(coord_ask(&coord, "EXISTS t:{0}:buffer"), "1") == 0;
}

Test(redis_buffer, accept_whose_answer_is_lost_may_be_repeated)
{
    struct buffer_ask first = entry_ask(1, "k"), again = entry_ask(1, "k");
    struct asked a;
    first.unclaimed = again.unclaimed = false;
    cr_assert(claimed(VERB_CLAIM, "k", 1) == OUTCOME_CLAIMED);
    asked_start(&a, s, buffer_op(VERB_ACCEPT, &first, "k"));
    loop_turn(&coord.world.loop, coord.world.mono_ms); /* it is sent, and nothing is read */
    int64_t until_ms = coord_patience();
    while (!is_stored()) cr_assert(coord_patience() < until_ms + 60000);
    conn_drop(&inside()->seed_node->lanes[0].conn, ERR_AMBIGUOUS, "cut");
    COORD_UNTIL(&coord, a.finished);
    cr_expect(a.op->err.code == ERR_AMBIGUOUS, "%d %s", a.op->err.code, a.op->err.text);
    asked_end(&a);
    coord_revive(&coord, s);
    cr_expect(outcome(VERB_ACCEPT, &again, "k") == OUTCOME_OK);
    cr_expect(queued() == 1);
    cr_expect(claimed(VERB_CLAIM, "k", 2) == OUTCOME_CACHED);
}

Test(redis_buffer, connection_cut_at_any_moment_leaves_each_entry_once_or_not_at_all)
{
    for (unsigned moment = 0; moment < 10; moment++) {
        struct buffer_ask asked = entry_ask(1 + moment, ""), again = entry_ask(1 + moment, "");
        struct asked a;
        asked_start(&a, s, buffer_op(VERB_ACCEPT, &asked, "unclaimed"));
        for (unsigned i = 0; i < moment && !a.finished; i++) {
            loop_sleep(&coord.world.loop, 5);
            loop_turn(&coord.world.loop, coord.world.mono_ms);
        }
        coord_ask(&coord, "CLIENT KILL TYPE normal SKIPME yes");
        int64_t until_ms = coord_patience();
        for (coord_turn(&coord); !a.finished; coord_pass(&coord, 5))
            coord_sleep(&coord, until_ms);
        int code = a.op->err.code;
        cr_expect(code == 0 || code == ERR_AMBIGUOUS || code == ERR_UNAVAILABLE, "%s",
                  a.op->err.text);
        asked_end(&a);
        coord_revive(&coord, s);
        cr_expect(outcome(VERB_ACCEPT, &again, "unclaimed") == OUTCOME_OK);
        cr_expect(queued() == 1 + moment);
    }
}

/* Redis does not undo: nothing may be written before everything that can fail. */
Test(redis_buffer, accept_that_fails_publishes_nothing)
{
    static const char *const keys[] = { "t:{0}:buffer", "t:{0}:index" };
    cr_assert(claimed(VERB_CLAIM, "k", 1) == OUTCOME_CLAIMED);
    for (unsigned i = 0; i < 2; i++) {
        struct buffer_ask asked = entry_ask(1, "k");
        struct answer answer;
        asked.unclaimed = false;
        coord_ask(&coord, "SET %s x", keys[i]);
        struct err err = ask(s, VERB_ACCEPT, &asked, "k", &answer);
        cr_expect(err.code == ERR_UNAVAILABLE, "%d %s", err.code, err.text);
        cr_expect(strstr(err.text, "WRONGTYPE"), "%s", err.text);
        cr_expect(claimed(VERB_CLAIM, "k", 2) == OUTCOME_IN_PROGRESS);
        coord_ask(&coord, "DEL %s", keys[i]);
    }
    struct buffer_ask asked = entry_ask(1, "k");
    asked.unclaimed = false;
    cr_expect(outcome(VERB_ACCEPT, &asked, "k") == OUTCOME_OK);
    cr_expect(claimed(VERB_CLAIM, "k", 2) == OUTCOME_CACHED);
}

/* ---- many at once ---- */

static struct asked *accept_all(struct buffer_ask *asks, unsigned count)
{
    struct asked *all = calloc(count, sizeof *all);
    cr_assert(all);
    for (unsigned i = 0; i < count; i++)
        asked_start(&all[i], s, buffer_op(VERB_ACCEPT, &asks[i], "unclaimed"));
    for (unsigned i = 0; i < count; i++) COORD_UNTIL(&coord, all[i].finished);
    return all;
}

Test(redis_buffer, many_accepts_are_few_steps)
{
    enum { COUNT = 500 };
    static struct buffer_ask asks[COUNT];
    static char names[COUNT][16];
    accept_run(9999, "");
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "k%u", i % (COUNT / 2)); /* each key twice */
        asks[i] = entry_ask(1 + i, names[i]);
    }
    coord_ask(&coord, "CONFIG RESETSTAT");
    struct asked *all = accept_all(asks, COUNT);
    unsigned created = 0, cached = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        cr_expect(all[i].op->err.code == 0, "%s", all[i].op->err.text);
        created += all[i].op->out.outcome == OUTCOME_OK;
        cached += all[i].op->out.outcome == OUTCOME_CACHED;
        asked_end(&all[i]);
        buffer_ask_clear(&asks[i]);
    }
    free(all);
    cr_expect(created == COUNT / 2 && cached == COUNT / 2, "%u created", created);
    redisReply *stats = coord_reply(&coord, "INFO commandstats");
    const char *at = strstr(stats->str, "cmdstat_evalsha:calls=");
    cr_assert(at);
    cr_expect(atoi(at + 22) <= 2 + COUNT / BATCH_MAX * 2, "%.30s", at);
    freeReplyObject(stats);
    cr_expect(queued() == 1 + COUNT / 2);
}

Test(redis_buffer, claims_of_one_burst_are_accepted_in_one_step_each_with_its_own)
{
    enum { COUNT = 60 };
    static struct buffer_ask asks[COUNT];
    static char names[COUNT][16];
    struct asked all[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "k%u", i);
        asks[i] = entry_ask(1 + i, names[i]);
        asks[i].unclaimed = false;
        claimed(VERB_CLAIM, names[i], i % 3 ? 1 : 2); /* every third is somebody else's */
    }
    for (unsigned i = 0; i < COUNT; i++)
        asked_start(&all[i], s, buffer_op(VERB_ACCEPT, &asks[i], names[i]));
    for (unsigned i = 0; i < COUNT; i++) {
        COORD_UNTIL(&coord, all[i].finished);
        enum outcome want = i % 3 ? OUTCOME_OK : OUTCOME_LOST;
        cr_expect(all[i].op->out.outcome == want, "%u: %s", i,
                  outcome_name(all[i].op->out.outcome));
        asked_end(&all[i]);
    }
    cr_expect(queued() == COUNT * 2 / 3);
    for (unsigned i = 0; i < COUNT; i++)
        cr_expect(claimed(VERB_CLAIM, names[i], 3) ==
                  (i % 3 ? OUTCOME_CACHED : OUTCOME_IN_PROGRESS));
}

/* In parts, with marks, with keys that were let go of and taken by others. */
Test(redis_buffer, nothing_of_a_chunk_stays_behind_however_its_entries_went)
{
    enum { COUNT = 24 };
    static struct buffer_ask asks[COUNT];
    static char names[COUNT][16];
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "k%u", i);
        asks[i] = entry_ask(1 + i, names[i]);
    }
    struct asked *all = accept_all(asks, COUNT);
    for (unsigned i = 0; i < COUNT; i++) asked_end(&all[i]);
    free(all);
    append(3, 0, "changed");
    struct buffer_ask frees = { .env = bytes_str("e"), .id = id_of(5), .frees_key = true };
    cr_assert(outcome(VERB_APPEND, &frees, "-") == OUTCOME_OK);
    cr_expect(accept_run(100, "k4") == OUTCOME_OK, "its key is free");
    cr_assert(drain(7) == 7 && settle(2) == 1 && settle(6) == 1);
    cr_expect(accept_run(101, "k5") == OUTCOME_OK, "its key is free, too: it is written");
    cr_assert(drain(100) == COUNT - 7 + 2);
    for (unsigned i = 1; i <= COUNT; i++) cr_expect(settle(i) == (i != 2 && i != 6), "%u", i);
    cr_assert(settle(100) == 1 && settle(101) == 1 && queued() == 0);
    coord_pass(&coord, KEEP_MS);
    for (unsigned i = 0; i < COUNT; i++) drain(1);
    cr_expect_str_eq(coord_ask(&coord, "ZCARD t:{0}:index"), "0");
    cr_expect_str_eq(coord_ask(&coord, "HLEN t:{0}:buffer"), "2");
}

/* What another layout has left is not taken for ours. */
Test(redis_buffer, meta_of_another_kind_is_refused)
{
    struct buffer_ask asked = entry_ask(1, "k"), list = { .env = bytes_str("e"), .limit = 1 };
    struct answer answer;
    coord_ask(&coord,
              "EVAL return(redis.call('HSET',KEYS[1],'','0123456789abcdef')) 1 t:{0}:buffer");
    struct err err = ask(s, VERB_ACCEPT, &asked, "unclaimed", &answer);
    cr_expect(err.code == ERR_CORRUPT, "%d %s", err.code, err.text);
    err = ask(s, VERB_ENTRY_LIST, &list, "-", &answer);
    cr_expect(err.code == ERR_CORRUPT, "%d %s", err.code, err.text);
}

/* ---- what a step costs, by the commands that the server carries out for it ---- */

static unsigned long commands(void)
{
    unsigned long all = 0;
    redisReply *stats = coord_reply(&coord, "INFO commandstats");
    for (const char *at = stats->str; (at = strstr(at, ":calls=")); at++)
        all += strtoul(at + strlen(":calls="), NULL, 10);
    freeReplyObject(stats);
    coord_ask(&coord, "CONFIG RESETSTAT");
    return all;
}

static size_t list(unsigned before, size_t limit)
{
    struct buffer_ask asked = { .env = bytes_str("e"), .limit = limit };
    asked.before = id_of(before);
    cr_assert(outcome(VERB_ENTRY_LIST, &asked, "-") == OUTCOME_OK);
    size_t count = asked.entries.count;
    for (unsigned i = 0; i < count; i++) {
        struct run_id want = id_of(before - 1 - i);
        cr_assert_str_eq(asked.entries.rows[i]->id.text, want.text);
    }
    buffer_ask_clear(&asked);
    return count;
}

enum { DEEP_STEPS = 6 };

/* Of each step, at a depth that is given, of entries that came one by one. */
static void deep_costs(unsigned from, unsigned to, unsigned long ret_costs[DEEP_STEPS])
{
    unsigned at = 0;
    for (unsigned n = from; n <= to; n++) accept_run(n, "");
    for (unsigned i = 0; i < 2; i++) {
        struct buffer_ask asked = { .env = bytes_str("e"), .limit = 20 };
        if (i) asked.before = id_of(to / 2);
        commands();
        cr_assert(outcome(VERB_ENTRY_LIST, &asked, "-") == OUTCOME_OK);
        ret_costs[at++] = commands();
        cr_expect(asked.entries.count == 20 && asked.entries.more);
        buffer_ask_clear(&asked);
    }
    commands();
    queued();
    ret_costs[at++] = commands();
    append(to - 1, 0, "changed");
    ret_costs[at++] = commands();
    size_t leased = drain(4000);
    ret_costs[at++] = commands();
    cr_expect(leased > 0 && leased < 300, "%zu", leased);
    coord_pass(&coord, 1000); /* they have lapsed */
    commands();
    drain(4000);
    ret_costs[at++] = commands();
    coord_pass(&coord, 1000);
}

Test(redis_buffer, steps_cost_what_they_tell_and_not_what_waits)
{
    unsigned long some[DEEP_STEPS], many[DEEP_STEPS];
    deep_costs(1, 800, some);
    deep_costs(801, 4000, many);
    for (unsigned i = 0; i < DEEP_STEPS; i++)
        cr_expect(many[i] <= some[i] + some[i] / 2 + 10, "step %u: %lu commands, then %lu", i,
                  some[i], many[i]);
}

Test(redis_buffer, what_was_written_and_is_kept_costs_a_list_nothing)
{
    unsigned long before;
    for (unsigned n = 1; n <= 300; n++) accept_run(n, "");
    commands();
    cr_assert(list(301, 20) == 20);
    before = commands();
    for (unsigned n = 301; n <= 1000; n++) accept_run(n, "");
    for (size_t n = 1; n <= 600;) {
        size_t leased = drain(100);
        cr_assert(leased == 100);
        for (; leased; leased--) cr_assert(settle((unsigned)n++) == 1);
    }
    commands();
    cr_expect(list(1001, 20) == 20);
    cr_expect(commands() <= before + 10);
}

/* ---- the gate decides as core/gate.c does ---- */

Test(redis_buffer, gate_passes_what_the_rule_passes)
{
    struct rng_seeded rng;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        rng_seeded_init(&rng, seed);
        struct gate_config config = { .threshold = 1 + (int64_t)rng_below(&rng.base, 12),
                                      .window_ms = 1 + (int64_t)rng_below(&rng.base, 50),
                                      .hold_ms = (int64_t)rng_below(&rng.base, 60) };
        int64_t times[12];
        struct gate model = { .times = times };
        coord_ask(&coord, "DEL t:{0}:gate:e");
        for (int step = 0; step < 60; step++) {
            coord.world.wall_ms += (int64_t)rng_below(&rng.base, 25);
            size_t count = rng_below(&rng.base, 9) ? 1 : 1 + rng_below(&rng.base, 30);
            size_t want = gate_pass(&model, &config, count, coord.world.wall_ms);
            int64_t left_ms = model.tripped_until_ms - coord.world.wall_ms;
            struct gate_ask got = gate(config, count);
            cr_assert(got.passed == want, "seed %llu, step %d: %zu, expected %zu of %zu",
                      (unsigned long long)seed, step, got.passed, want, count);
            cr_assert(got.tripped_ms == (left_ms > 0 ? left_ms : 0), "seed %llu, step %d",
                      (unsigned long long)seed, step);
        }
    }
}

/* ---- where it may be ---- */

static void setup_evicting(void)
{
    coord_init_private(&coord, SERVER_REDIS,
                       "maxmemory 100mb\n"
                       "maxmemory-policy allkeys-lru");
    s = coord_open(&coord, "");
}

TestSuite(redis_evicting, .init = setup_evicting, .fini = teardown, .timeout = 120);

static bool says(const char *name, const char *text)
{
    struct asked ping;
    struct op *op = coord_op(VERB_PING, "", 0, NULL);
    op->wants_facts = true;
    asked_start(&ping, s, op);
    COORD_UNTIL(&coord, ping.finished);
    bool said = false;
    for (size_t i = 0; op->facts && i < op->facts->count; i++)
        said = said || (strcmp(op->facts->rows[i].name, name) == 0 &&
                        strstr(op->facts->rows[i].text, text));
    asked_end(&ping);
    return said;
}

Test(redis_evicting, nothing_is_accepted_but_everything_else_works)
{
    struct buffer_ask asked = entry_ask(1, "k");
    struct answer answer;
    for (int i = 0; i < 2; i++) { /* before the server is known, and after */
        struct err err = ask(s, VERB_ACCEPT, &asked, "unclaimed", &answer);
        cr_expect(err.code == ERR_UNSUPPORTED, "%d %s", err.code, err.text);
        cr_expect(strstr(err.text, "noeviction"), "%s", err.text);
    }
    cr_expect(claimed(VERB_CLAIM, "k", 1) == OUTCOME_CLAIMED);
    cr_expect(queued() == 0);
    cr_expect(says("buffer", "refused"));
}

Test(redis_evicting, unless_it_is_told_to)
{
    coord_close(&coord, s);
    s = coord_open(&coord, "&evictable=1");
    cr_expect(accept_run(1, "k") == OUTCOME_OK);
    cr_expect(says("buffer", "may drop"));
}

Test(redis_buffer, says_what_a_crash_would_lose)
{
    cr_expect(says("buffer", "not written yet"));
    coord_ask(&coord, "CONFIG SET appendonly yes");
    coord_ask(&coord, "CONFIG SET appendfsync always");
    coord_close(&coord, s);
    s = coord_open(&coord, "");
    cr_expect(says("buffer", "survives"));
    coord_ask(&coord, "CONFIG SET appendfsync everysec");
    coord_close(&coord, s);
    s = coord_open(&coord, "");
    cr_expect(says("buffer", "the last second"));
}

/* A user who may do no more than is needed. */
Test(redis_buffer, user_with_no_more_rights_than_needed)
{
    char url[300];
    coord_ask(&coord,
              "ACL SETUSER joe on >pw ~t:* &t:* -@all +@connection +evalsha +script|load"
              " +hmget +hget +hset +hdel +hscan +pexpire +publish +subscribe +time +info"
              " +zadd +zrem +zcard +zrangebylex +zrevrangebylex"
              " +llen +lindex +lrange +rpush +lpush +ltrim +del");
    snprintf(url, sizeof url, "redis://joe:pw@%s", coord.url + strlen("redis://"));
    coord_close(&coord, s);
    s = coord_open_url(&coord, url);
    struct gate_config config = { .threshold = 2, .window_ms = 100, .hold_ms = 100 };
    cr_expect(accept_run(1, "k") == OUTCOME_OK);
    cr_expect(gate(config, 3).passed == 2);
    coord.world.wall_ms -= 1000;
    cr_expect(gate(config, 3).passed == 0);
    coord.world.wall_ms += 1000;
    cr_expect(drain(1) == 1);
    cr_expect(settle(1) == 1);
    coord_pass(&coord, KEEP_MS);
    struct buffer_ask list = { .env = bytes_str("e"), .limit = 10 };
    cr_expect(outcome(VERB_ENTRY_LIST, &list, "-") == OUTCOME_OK);
    cr_expect(drain(1) == 0);
}
