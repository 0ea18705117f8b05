/* draining.c - leasing entries, settling them, and looking at all of them: B2, B4. */
#include "tests/conform/buffer.h"

static size_t settled(uint8_t who, const char *env, unsigned n, enum settle_how how)
{
    return settle(who, env, n, how)->buffer->settled;
}

static struct buffer_ask *stats_now(void)
{
    return buffer_stats()->buffer;
}

/* ---- lease ---- */

BUFFER_CASE(drain, nothing_gives_nothing)
{
    const struct op *op = drain(1, 10, 0);
    cr_assert(op->buffer->entries.count == 0 && !op->changed);
}

BUFFER_CASE(drain, leases_what_it_gives_and_gives_it_once)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    world_advance(&world, 5);
    const struct op *op = drain(1, 10, 0);
    const struct entry *e = only(op);
    cr_assert(op->changed);
    cr_assert(e->state == ENTRY_LEASED && number_of(&e->id) == 1);
    cr_assert(bytes_eq(e->env, bytes_str("e")) && bytes_eq(e->run, run_of(1)));
    cr_assert(e->accepted_at_ms == world.wall_ms - 5 && e->attempts == 0 && e->rev == 0);
    cr_assert(op->buffer->now_ms == world.wall_ms);
    cr_assert(drain(2, 10, 0)->buffer->entries.count == 0);
    cr_assert(drain(1, 10, 0)->buffer->entries.count == 0);
}

BUFFER_CASE(drain, is_first_in_first_out)
{
    static const unsigned order[] = { 5, 9, 1, 8, 2 };
    for (size_t i = 0; i < 5; i++) expect(accept_entry("e", order[i], NULL), OUTCOME_OK);
    expect_entries(drain(1, 2, 0), "e", "5 9");
    expect_entries(drain(2, 10, 0), "e", "1 8 2");
}

BUFFER_CASE(drain, order_is_kept_when_in_flight_together)
{
    accept_many("e", 1, 30);
    expect_entries(drain(1, 12, 0), "e", "1 2 3 4 5 6 7 8 9 10 11 12");
    expect_entries(drain(1, 3, 0), "e", "13 14 15");
}

BUFFER_CASE(drain, gives_no_more_than_asked_for)
{
    accept_many("e", 1, 20);
    accept_many("f", 100, 20);
    cr_assert(drain(1, 7, 0)->buffer->entries.count == 7);
    cr_assert(drain(1, 1, 0)->buffer->entries.count == 1);
    cr_assert(stats_now()->leased == 8 && stats_now()->queued == 32);
}

BUFFER_CASE(drain, one_env_alone_may_have_it_all)
{
    accept_many("e", 1, 60);
    cr_assert(drain(1, 50, 0)->buffer->entries.count == 50);
    cr_assert(drain(1, 50, 50)->buffer->entries.count == 10);
}

BUFFER_CASE(drain, takes_no_more_of_one_env_than_its_limit)
{
    accept_many("e", 1, 20);
    accept_many("f", 100, 2);
    const struct op *op = drain(1, 20, 5);
    expect_entries(op, "e", "1 2 3 4 5");
    expect_entries(op, "f", "100 101");
}

/* A light env waits for one round at most, however much a heavy one has. */
BUFFER_CASE(drain, light_env_is_not_behind_a_heavy_one)
{
    accept_many("heavy", 1, 1000);
    accept_many("light", 2000, 1);
    size_t light = entries_of(drain(1, 100, 0), "light");
    light += entries_of(drain(1, 100, 0), "light");
    cr_assert(light == 1, "it still waits after two rounds");
}

BUFFER_CASE(drain, light_env_that_comes_later_is_not_behind_a_heavy_one)
{
    accept_many("a", 1, 300);
    accept_many("m", 1000, 300);
    drain(1, 20, 0);
    accept_many("z", 2000, 1);
    accept_many("0", 3000, 1);
    size_t light = 0;
    for (int round = 0; round < 2; round++) {
        const struct op *op = drain(1, 20, 0);
        light += entries_of(op, "z") + entries_of(op, "0");
    }
    cr_assert(light == 2, "%zu of 2 after two rounds", light);
}

BUFFER_CASE(drain, envs_take_turns_one_by_one)
{
    static const char *const envs[] = { "a", "b", "c" };
    for (unsigned i = 0; i < 3; i++) accept_many(envs[i], 1 + 100 * i, 10);
    size_t got[3] = { 0 };
    for (int round = 0; round < 9; round++) {
        const struct op *op = drain(1, 1, 0);
        for (unsigned i = 0; i < 3; i++) got[i] += entries_of(op, envs[i]);
    }
    for (unsigned i = 0; i < 3; i++)
        cr_assert(got[i] >= 2, "%s had %zu of 9 turns", envs[i], got[i]);
}

static struct env_weight weight(const char *env, uint8_t weight)
{
    struct env_weight w = { .env_len = (uint8_t)strlen(env), .weight = weight };
    memcpy(w.env, env, w.env_len);
    return w;
}

BUFFER_CASE(drain, an_env_of_weight_three_gets_three_times_as_much)
{
    struct env_weight weights[] = { weight("b", 3), weight("nobody", 100) };
    accept_many("a", 1, 40);
    accept_many("b", 100, 40);
    const struct op *op = buffer(VERB_DRAIN_LEASE, (struct buffer_ask){ .limit = 20,
                                                                        .token = token_of(1),
                                                                        .lease_ms = LEASE_MS,
                                                                        .weights = weights,
                                                                        .weight_count = 2 });
    cr_assert(entries_of(op, "a") == 5 && entries_of(op, "b") == 15, "%zu and %zu",
              entries_of(op, "a"), entries_of(op, "b"));
}

/* What it cannot use is for the others. */
BUFFER_CASE(drain, a_weight_takes_nothing_from_others_that_it_does_not_need)
{
    struct env_weight weights[] = { weight("b", 100) };
    accept_many("a", 1, 40);
    accept_many("b", 100, 2);
    const struct op *op = buffer(VERB_DRAIN_LEASE, (struct buffer_ask){ .limit = 20,
                                                                        .token = token_of(1),
                                                                        .lease_ms = LEASE_MS,
                                                                        .weights = weights,
                                                                        .weight_count = 1 });
    cr_assert(entries_of(op, "a") == 18 && entries_of(op, "b") == 2);
}

BUFFER_CASE(drain, more_envs_than_asked_for_all_have_their_turn)
{
    char env[16];
    for (unsigned i = 0; i < 30; i++) {
        snprintf(env, sizeof env, "env-%u", i);
        accept_many(env, 1 + 50 * i, 20);
    }
    size_t got[30] = { 0 };
    for (int round = 0; round < 6; round++) {
        const struct op *op = drain(1, 10, 0);
        cr_assert(op->buffer->entries.count == 10);
        for (unsigned i = 0; i < 30; i++) {
            snprintf(env, sizeof env, "env-%u", i);
            got[i] += entries_of(op, env);
        }
    }
    for (unsigned i = 0; i < 30; i++) cr_assert(got[i] >= 1, "env-%u had none of 60", i);
}

/* As long as a round has an entry for each of them. */
BUFFER_CASE(drain, many_light_envs_do_not_wait_behind_a_heavy_one)
{
    enum { LIGHT = 150, LIMIT = 200 };
    char env[16];
    accept_many("heavy", 1, 300);
    for (unsigned i = 0; i < LIGHT; i++) {
        snprintf(env, sizeof env, "light-%03u", i);
        accept_many(env, 1000 + i, 1);
    }
    const struct op *op = drain(1, LIMIT, 0);
    cr_assert(op->buffer->entries.count == LIMIT);
    cr_assert(entries_of(op, "heavy") == LIMIT - LIGHT, "%zu are of the heavy one",
              entries_of(op, "heavy"));
}

enum { ENVS = 150, LIMIT = 40, ONCE_AROUND = (ENVS + LIMIT - 1) / LIMIT };

/* Whoever was served has something again each time. */
static void expect_all_served_in(unsigned rounds)
{
    char env[16];
    unsigned n = 1, served[ENVS] = { 0 };
    for (unsigned i = 0; i < ENVS; i++) {
        snprintf(env, sizeof env, "env-%03u", i);
        accept_many(env, n, 2);
        n += 2;
    }
    for (unsigned round = 0; round < rounds; round++) {
        const struct op *op = drain(1, LIMIT, 0);
        cr_assert(op->buffer->entries.count == LIMIT);
        for (unsigned i = 0; i < ENVS; i++) {
            snprintf(env, sizeof env, "env-%03u", i);
            size_t got = entries_of(op, env);
            served[i] += (unsigned)got;
            if (!got) continue;
            accept_many(env, n, (unsigned)got);
            n += (unsigned)got;
        }
    }
    for (unsigned i = 0; i < ENVS; i++) cr_assert(served[i] > 0, "env-%03u waits", i);
}

/* If there are more of them than that, nobody waits for longer than it takes to go around. */
static void drain_more_envs_than_have_room_take_turns(void)
{
    expect_all_served_in(ONCE_AROUND);
}
ASKING_CASE_ON(drain, more_envs_than_have_room_take_turns, sqlite, "sqlite", CAP_BUFFER)
ASKING_CASE_ON(drain, more_envs_than_have_room_take_turns, tiered_fleet, "tiered-fleet",
               CAP_BUFFER)

/* There the shards take turns, and then the envs of each, of which there are some. */
static void drain_more_envs_than_have_room_take_turns_in_their_shard(void)
{
    expect_all_served_in(5 * ONCE_AROUND);
}
ASKING_CASE_ON(drain, more_envs_than_have_room_take_turns_in_their_shard, redis_cluster,
               "redis-cluster", CAP_BUFFER)

BUFFER_CASE(drain, two_drainers_share_without_meeting)
{
    accept_many("e", 1, 10);
    expect_entries(drain(1, 4, 0), "e", "1 2 3 4");
    there();
    expect_entries(drain(2, 4, 0), "e", "5 6 7 8");
    here();
    expect_entries(drain(1, 4, 0), "e", "9 10");
}

/* ---- leases that lapse ---- */

BUFFER_CASE(drain, lapsed_is_given_to_another)
{
    accept_many("e", 1, 3);
    expect_entries(drain(1, 2, 0), "e", "1 2");
    world_advance(&world, LEASE_MS - 1);
    expect_entries(drain(2, 10, 0), "e", "3");
    world_advance(&world, 1);
    expect_entries(drain(3, 10, 0), "e", "1 2");
    cr_assert(settled(1, "e", 1, SETTLE_WRITTEN) == 0);
    cr_assert(settled(3, "e", 1, SETTLE_WRITTEN) == 1);
}

BUFFER_CASE(drain, lapsed_comes_before_what_never_was_leased)
{
    accept_many("e", 1, 6);
    drain_entry(1, "e", 5);
    drain_entry(1, "e", 3);
    world_advance(&world, LEASE_MS);
    const struct op *op = drain(2, 2, 0);
    cr_assert(op->buffer->entries.count == 2);
    for (size_t i = 0; i < 2; i++) {
        unsigned n = number_of(&op->buffer->entries.rows[i]->id);
        cr_assert(n == 3 || n == 5, "%u came before those that lapsed", n);
    }
    expect_entries(drain(2, 10, 0), "e", "1 2 4 6");
}

BUFFER_CASE(drain, lapsed_ones_of_a_heavy_env_do_not_keep_a_light_one_waiting)
{
    accept_many("heavy", 1, 200);
    drain(1, 200, 0);
    world_advance(&world, LEASE_MS);
    accept_many("light", 1000, 1);
    size_t light = entries_of(drain(2, 20, 0), "light");
    light += entries_of(drain(2, 20, 0), "light");
    cr_assert(light == 1, "it still waits after two rounds");
}

BUFFER_CASE(drain, lease_may_be_short)
{
    accept_many("e", 1, 1);
    struct buffer_ask ask = { .token = token_of(1), .lease_ms = 10, .limit = 1 };
    only(buffer(VERB_DRAIN_LEASE, ask));
    world_advance(&world, 9);
    cr_assert(drain(2, 1, 0)->buffer->entries.count == 0);
    world_advance(&world, 1);
    only(drain(2, 1, 0));
}

/* A clock that goes back by hours must not keep what a dead drainer had for hours. */
BUFFER_CASE(drain, clock_that_goes_back_keeps_nothing_for_long)
{
    accept_many("e", 1, 1);
    only(drain(1, 1, 0));
    world.wall_ms -= INT64_C(3600000);
    world_advance(&world, 2 * LEASE_MS);
    only(drain(2, 1, 0));
    cr_assert(settled(1, "e", 1, SETTLE_WRITTEN) == 0);
    cr_assert(settled(2, "e", 1, SETTLE_WRITTEN) == 1);
}

/* ---- pauses: B6 ---- */

enum { PAUSE_MS = 5000 };

static size_t settled_for(uint8_t who, unsigned n, enum settle_how how)
{
    struct settle one = { id_of(n), bytes_str("e"), how };
    return buffer(VERB_SETTLE, (struct buffer_ask){ .token = token_of(who),
                                                    .settles = &one,
                                                    .settle_count = 1,
                                                    .back_pause_ms = PAUSE_MS,
                                                    .failed_pause_ms = PAUSE_MS })
        ->buffer->settled;
}

BUFFER_CASE(pause, keeps_it_from_drainers_until_it_is_over)
{
    accept_many("e", 1, 4);
    drain(1, 3, 0);
    cr_assert(settled_for(1, 1, SETTLE_FAILED) == 1);
    cr_assert(settled_for(1, 2, SETTLE_BACK) == 1);
    cr_assert(settled_for(1, 3, SETTLE_WRITTEN) == 1);
    expect_entries(drain(2, 10, 0), "e", "4");
    cr_assert(stats_now()->queued + stats_now()->leased == 3);
    world_advance(&world, PAUSE_MS - 1);
    cr_assert(drain(2, 10, 0)->buffer->entries.count == 0);
    world_advance(&world, 1);
    const struct op *op = drain(2, 10, 0);
    expect_entries(op, "e", "1 2");
    cr_assert(op->buffer->entries.rows[0]->attempts == 1);
    cr_assert(op->buffer->entries.rows[1]->attempts == 0);
    cr_assert(settled(2, "e", 1, SETTLE_WRITTEN) == 1);
}

BUFFER_CASE(pause, is_what_the_settle_says_for_each)
{
    accept_many("e", 1, 4);
    drain(1, 4, 0);
    struct settle some[] = { { id_of(1), bytes_str("e"), SETTLE_FAILED },
                             { id_of(2), bytes_str("e"), SETTLE_BACK } };
    struct buffer_ask ask = {
        .token = token_of(1), .settles = some, .settle_count = 2, .failed_pause_ms = PAUSE_MS
    };
    cr_assert(buffer(VERB_SETTLE, ask)->buffer->settled == 2);
    expect_entries(drain(2, 10, 0), "e", "2");
    some[0] = (struct settle){ id_of(3), bytes_str("e"), SETTLE_FAILED };
    some[1] = (struct settle){ id_of(4), bytes_str("e"), SETTLE_BACK };
    ask.failed_pause_ms = 0;
    ask.back_pause_ms = 2 * PAUSE_MS;
    cr_assert(buffer(VERB_SETTLE, ask)->buffer->settled == 2);
    expect_entries(drain(2, 10, 0), "e", "3");
    world_advance(&world, PAUSE_MS);
    expect_entries(drain(2, 10, 0), "e", "1");
    world_advance(&world, PAUSE_MS);
    expect_entries(drain(2, 10, 0), "e", "4");
}

BUFFER_CASE(pause, is_nobodys)
{
    accept_many("e", 1, 1);
    drain(1, 1, 0);
    cr_assert(settled_for(1, 1, SETTLE_FAILED) == 1);
    cr_assert(settled(1, "e", 1, SETTLE_WRITTEN) == 0);
    cr_assert(settled_for(1, 1, SETTLE_FAILED) == 0);
    expect_state("e", 1, ENTRY_QUEUED);
    cr_assert(only(list_entries("e", 0, 10))->state == ENTRY_QUEUED);
}

BUFFER_CASE(pause, of_one_does_not_hold_up_the_others)
{
    accept_many("e", 1, 5);
    drain(1, 5, 0);
    cr_assert(settled_for(1, 3, SETTLE_FAILED) == 1);
    for (unsigned n = 1; n <= 5; n++)
        if (n != 3) cr_assert(settled(1, "e", n, SETTLE_BACK) == 1);
    expect_entries(drain(2, 10, 0), "e", "1 2 4 5");
}

BUFFER_CASE(pause, ends_with_a_change)
{
    accept_many("e", 1, 1);
    drain(1, 1, 0);
    cr_assert(settled_for(1, 1, SETTLE_FAILED) == 1);
    expect(append("e", 1, 0, "+"), OUTCOME_OK);
    cr_assert(stats_now()->queued == 1 && stats_now()->leased == 0);
    const struct entry *e = only(drain(2, 10, 0));
    cr_assert(e->attempts == 1 && e->rev == 1);
}

BUFFER_CASE(pause, does_not_keep_who_asks_for_that_one)
{
    accept_many("e", 1, 1);
    drain(1, 1, 0);
    cr_assert(settled_for(1, 1, SETTLE_BACK) == 1);
    only(drain_entry(2, "e", 1));
    world_advance(&world, PAUSE_MS);
    cr_assert(drain(3, 10, 0)->buffer->entries.count == 0, "it is leased");
    cr_assert(settled(2, "e", 1, SETTLE_WRITTEN) == 1);
    cr_assert(stats_now()->queued + stats_now()->leased == 0);
}

/* ---- one by its id ---- */

BUFFER_CASE(drain_one, whatever_its_turn)
{
    accept_many("e", 1, 5);
    const struct entry *e = only(drain_entry(1, "e", 4));
    cr_assert(number_of(&e->id) == 4 && e->state == ENTRY_LEASED);
    cr_assert(bytes_eq(e->run, run_of(4)));
    expect_entries(drain(2, 10, 0), "e", "1 2 3 5");
}

BUFFER_CASE(drain_one, only_if_it_is_queued)
{
    accept_many("e", 1, 1);
    cr_assert(drain_entry(1, "e", 2)->buffer->entries.count == 0);
    only(drain_entry(1, "e", 1));
    cr_assert(drain_entry(2, "e", 1)->buffer->entries.count == 0);
    world_advance(&world, LEASE_MS);
    only(drain_entry(2, "e", 1));
    cr_assert(settled(1, "e", 1, SETTLE_WRITTEN) == 0);
    cr_assert(settled(2, "e", 1, SETTLE_WRITTEN) == 1);
    cr_assert(drain_entry(3, "e", 1)->buffer->entries.count == 0);
}

/* ---- settle ---- */

BUFFER_CASE(settle, written_is_written_once)
{
    accept_many("e", 1, 1);
    drain(1, 1, 0);
    cr_assert(settled(1, "e", 1, SETTLE_WRITTEN) == 1);
    expect_state("e", 1, ENTRY_WRITTEN);
    cr_assert(settled(1, "e", 1, SETTLE_WRITTEN) == 0);
    cr_assert(settled(1, "e", 1, SETTLE_BACK) == 0);
    world_advance(&world, LEASE_MS);
    cr_assert(drain(2, 10, 0)->buffer->entries.count == 0);
}

BUFFER_CASE(settle, back_has_its_old_place)
{
    accept_many("e", 1, 4);
    drain(1, 2, 0);
    cr_assert(settled(1, "e", 2, SETTLE_BACK) == 1);
    cr_assert(settled(1, "e", 1, SETTLE_BACK) == 1);
    const struct entry *e = only(get("e", 1));
    cr_assert(e->state == ENTRY_QUEUED && e->attempts == 0);
    cr_assert(settled(1, "e", 1, SETTLE_WRITTEN) == 0);
    expect_entries(drain(2, 10, 0), "e", "1 2 3 4");
}

BUFFER_CASE(settle, failed_is_queued_with_an_attempt_more)
{
    accept_many("e", 1, 1);
    for (uint32_t attempts = 1; attempts <= 6; attempts++) {
        only(drain(1, 1, 0));
        cr_assert(settled(1, "e", 1, SETTLE_FAILED) == 1);
        const struct entry *e = only(get("e", 1));
        cr_assert(e->state == ENTRY_QUEUED && e->attempts == attempts);
        cr_assert(settled(1, "e", 1, SETTLE_FAILED) == 0);
    }
    cr_assert(only(drain(1, 1, 0))->attempts == 6);
    cr_assert(settled(1, "e", 1, SETTLE_BACK) == 1);
    cr_assert(only(get("e", 1))->attempts == 6);
}

BUFFER_CASE(settle, stale_token_settles_nothing)
{
    accept_many("e", 1, 2);
    cr_assert(settled(9, "e", 1, SETTLE_WRITTEN) == 0);
    drain(1, 1, 0);
    cr_assert(settled(9, "e", 1, SETTLE_WRITTEN) == 0);
    cr_assert(settled(9, "e", 1, SETTLE_BACK) == 0);
    cr_assert(settled(9, "e", 1, SETTLE_FAILED) == 0);
    cr_assert(settled(1, "e", 2, SETTLE_WRITTEN) == 0);
    cr_assert(settled(1, "e", 7, SETTLE_WRITTEN) == 0);
    cr_assert(settled(1, "f", 1, SETTLE_WRITTEN) == 0);
    expect_state("e", 1, ENTRY_LEASED);
    expect_state("e", 2, ENTRY_QUEUED);
    cr_assert(only(get("e", 1))->attempts == 0);
}

BUFFER_CASE(settle, taken_over_is_not_the_first_ones_any_more)
{
    accept_many("e", 1, 1);
    drain(1, 1, 0);
    world_advance(&world, LEASE_MS);
    only(drain(2, 1, 0));
    cr_assert(settled(1, "e", 1, SETTLE_BACK) == 0);
    expect_state("e", 1, ENTRY_LEASED);
    cr_assert(settled(1, "e", 1, SETTLE_WRITTEN) == 0);
    expect_state("e", 1, ENTRY_LEASED);
    cr_assert(settled(2, "e", 1, SETTLE_WRITTEN) == 1);
}

/* The ledger has it, and nobody else has touched it. */
BUFFER_CASE(settle, lapsed_but_not_taken_over_is_settled)
{
    accept_many("e", 1, 1);
    drain(1, 1, 0);
    world_advance(&world, LEASE_MS + 1000);
    cr_assert(settled(1, "e", 1, SETTLE_WRITTEN) == 1);
    expect_state("e", 1, ENTRY_WRITTEN);
    cr_assert(drain(2, 1, 0)->buffer->entries.count == 0);
}

BUFFER_CASE(settle, many_of_many_envs_each_its_own_way)
{
    accept_many("e", 1, 3);
    accept_many("f", 11, 2);
    accept_many("g", 21, 1);
    drain(1, 5, 2);
    drain_entry(2, "e", 3);
    const struct settle all[] = {
        { id_of(1), bytes_str("e"), SETTLE_WRITTEN },
        { id_of(11), bytes_str("f"), SETTLE_FAILED },
        { id_of(3), bytes_str("e"), SETTLE_WRITTEN }, /* another's */
        { id_of(2), bytes_str("e"), SETTLE_BACK },
        { id_of(99), bytes_str("f"), SETTLE_WRITTEN }, /* nobody's */
        { id_of(12), bytes_str("f"), SETTLE_WRITTEN },
    };
    const struct op *op = expect(
        buffer(VERB_SETTLE,
               (struct buffer_ask){ .token = token_of(1), .settles = all, .settle_count = 6 }),
        OUTCOME_OK);
    cr_assert(op->changed && op->buffer->settled == 4, "%zu", op->buffer->settled);
    expect_state("e", 1, ENTRY_WRITTEN);
    expect_state("e", 2, ENTRY_QUEUED);
    expect_state("e", 3, ENTRY_LEASED);
    expect_state("f", 11, ENTRY_QUEUED);
    cr_assert(only(get("f", 11))->attempts == 1);
    expect_state("f", 12, ENTRY_WRITTEN);
    expect_state("g", 21, ENTRY_LEASED);
}

/* ---- list ---- */

BUFFER_CASE(entry_list, newest_first_whatever_the_order_they_came_in)
{
    static const unsigned order[] = { 5, 9, 1, 8, 2 };
    for (size_t i = 0; i < 5; i++) expect(accept_entry("e", order[i], NULL), OUTCOME_OK);
    expect(accept_entry("f", 7, NULL), OUTCOME_OK);
    const struct op *op = list_entries("e", 0, 10);
    expect_entries(op, "e", "9 8 5 2 1");
    cr_assert(op->buffer->entries.count == 5 && !op->buffer->entries.more);
    cr_assert(bytes_eq(op->buffer->entries.rows[0]->run, run_of(9)));
    cr_assert(list_entries("g", 0, 10)->buffer->entries.count == 0);
}

BUFFER_CASE(entry_list, pages_without_gap_or_repeat)
{
    accept_many("e", 1, 25);
    unsigned next = 25, before = 0;
    for (bool more = true; more;) {
        const struct entries *got = &list_entries("e", before, 10)->buffer->entries;
        for (size_t i = 0; i < got->count; i++)
            cr_assert(number_of(&got->rows[i]->id) == next--);
        before = next + 1;
        more = got->more;
        cr_assert(got->count == (more ? 10 : 5));
    }
    cr_assert(next == 0);
    cr_assert(list_entries("e", 1, 10)->buffer->entries.count == 0);
}

/* Ids say when they were made, which need not be when they came. */
static struct run_id id_made_at(int64_t ms, uint8_t which)
{
    struct run_id id;
    const uint8_t random[10] = { which };
    run_id_make(ms, random, &id);
    return id;
}

static void accept_made_at(const int64_t *times_ms, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct buffer_ask ask = { .env = bytes_str("e"), .run = run_of(i), .unclaimed = true };
        ask.id = id_made_at(times_ms[i], (uint8_t)i);
        submit_buffer(VERB_ACCEPT, ask, NULL, NULL);
    }
    world_settle(&world);
}

BUFFER_CASE(entry_list, ids_of_any_time_are_in_their_order)
{
    enum { COUNT = 120 };
    int64_t times_ms[COUNT];
    for (unsigned i = 0; i < COUNT; i++)
        times_ms[i] =
            INT64_C(1700000000000) + (i * 7919 % COUNT) * 500; /* a minute, shuffled */
    for (unsigned i = 0; i < COUNT; i += 20) accept_made_at(times_ms + i, 20);
    struct buffer_ask ask = { .env = bytes_str("e"), .limit = 7 };
    ask.before = id_made_at((INT64_C(1) << 48) - 1, 0xff);
    size_t seen = 0;
    for (bool more = true; more; more = ask.entries.more) {
        const struct op *op = expect(buffer(VERB_ENTRY_LIST, ask), OUTCOME_OK);
        const struct entries *got = &op->buffer->entries;
        for (size_t i = 0; i < got->count; i++, seen++) {
            cr_assert(run_id_ms(&got->rows[i]->id) ==
                          INT64_C(1700000000000) + (COUNT - 1 - (int64_t)seen) * 500,
                      "the %zu. is another", seen);
            ask.before = got->rows[i]->id;
        }
        ask.entries.more = got->more;
        cr_assert(got->count == (got->more ? 7 : COUNT % 7));
    }
    cr_assert(seen == COUNT);
}

BUFFER_CASE(entry_list, full_page_knows_that_it_is_the_last)
{
    accept_many("e", 1, 4);
    cr_assert(!list_entries("e", 0, 4)->buffer->entries.more);
    cr_assert(list_entries("e", 0, 3)->buffer->entries.more);
}

BUFFER_CASE(entry_list, queued_and_leased_but_not_written)
{
    accept_many("e", 1, 4);
    drain(1, 2, 0);
    settle(1, "e", 1, SETTLE_WRITTEN);
    const struct op *op = list_entries("e", 0, 10);
    expect_entries(op, "e", "4 3 2");
    cr_assert(op->buffer->entries.rows[0]->state == ENTRY_QUEUED);
    cr_assert(op->buffer->entries.rows[2]->state == ENTRY_LEASED);
    world_advance(&world, LEASE_MS);
    op = list_entries("e", 0, 10);
    expect_entries(op, "e", "4 3 2");
    cr_assert(op->buffer->entries.rows[2]->state == ENTRY_QUEUED);
}

/* ---- stats ---- */

BUFFER_CASE(buffer_stats, counts_what_waits)
{
    struct buffer_ask *s = stats_now();
    cr_assert(s->queued == 0 && s->leased == 0 && s->oldest_ms == 0);
    cr_assert(s->now_ms == world.wall_ms);
    accept_many("e", 1, 5);
    accept_many("f", 11, 2);
    drain_entry(1, "e", 1);
    drain_entry(1, "f", 11);
    drain_entry(2, "e", 2);
    settle(2, "e", 2, SETTLE_WRITTEN);
    s = stats_now();
    cr_assert(s->queued == 4 && s->leased == 2, "%llu and %llu", (unsigned long long)s->queued,
              (unsigned long long)s->leased);
    world_advance(&world, LEASE_MS);
    s = stats_now();
    cr_assert(s->queued == 6 && s->leased == 0, "what lapsed is queued");
}

BUFFER_CASE(buffer_stats, age_is_that_of_the_oldest)
{
    expect(accept_entry("e", 500, NULL), OUTCOME_OK);
    world_advance(&world, 1000);
    expect(accept_entry("f", 400, NULL), OUTCOME_OK);
    world_advance(&world, 1000);
    accept_many("e", 1, 100);
    world_advance(&world, 1000);
    cr_assert(stats_now()->oldest_ms == 3000, "%lld", (long long)stats_now()->oldest_ms);
    drain_entry(1, "e", 500);
    cr_assert(stats_now()->oldest_ms == 3000, "a leased one is not written");
    settle(1, "e", 500, SETTLE_WRITTEN);
    cr_assert(stats_now()->oldest_ms == 2000);
    drain_entry(1, "f", 400);
    settle(1, "f", 400, SETTLE_BACK);
    cr_assert(stats_now()->oldest_ms == 2000);
    drain_entry(1, "f", 400);
    settle(1, "f", 400, SETTLE_WRITTEN);
    cr_assert(stats_now()->oldest_ms == 1000);
}
