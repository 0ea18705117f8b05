/* buffer.c - accepting entries, finding them by id and by key, changing them: B1, B3, B5. */
#include "tests/conform/buffer.h"

static void leased(const char *env, unsigned n, uint8_t who)
{
    cr_assert(number_of(&only(drain_entry(who, env, n))->id) == n);
}

static void written(const char *env, unsigned n)
{
    leased(env, n, 77);
    cr_assert(settle(77, env, n, SETTLE_WRITTEN)->buffer->settled == 1);
}

static void expect_same_bytes(struct bytes got, struct bytes want)
{
    cr_assert(bytes_eq(got, want), "%zu bytes, expected %zu, or others", got.len, want.len);
}

/* ---- accept ---- */

BUFFER_CASE(accept, new_entry_is_queued_as_it_came)
{
    cr_assert(expect(accept_entry("e", 1, "k"), OUTCOME_OK)->changed);
    const struct op *op = expect(get("e", 1), OUTCOME_OK);
    const struct entry *e = only(op);
    cr_assert(number_of(&e->id) == 1);
    cr_assert(bytes_eq(e->env, bytes_str("e")));
    cr_assert(e->state == ENTRY_QUEUED);
    cr_assert(e->rev == 0 && e->attempts == 0);
    cr_assert(e->accepted_at_ms == world.wall_ms);
    expect_same_bytes(e->run, run_of(1));
    cr_assert(e->changes.len == 0);
    cr_assert(op->buffer->now_ms == world.wall_ms);
}

BUFFER_CASE(accept, is_seen_by_others)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    there();
    expect_same_bytes(only(expect(get("e", 1), OUTCOME_OK))->run, run_of(1));
    expect(accept_entry("e", 2, "k"), OUTCOME_CACHED);
}

BUFFER_CASE(accept, repeat_is_ok_and_changes_nothing)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    world_advance(&world, 10);
    const struct op *op = expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    cr_assert(!op->changed && op->buffer->entries.count == 0);
    const struct entry *e = only(get("e", 1));
    expect_same_bytes(e->run, run_of(1));
    cr_assert(e->accepted_at_ms == world.wall_ms - 10);
    cr_assert(buffer_stats()->buffer->queued == 1);
}

BUFFER_CASE(accept, repeat_of_a_leased_one_is_ok)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    leased("e", 1, 5);
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect_state("e", 1, ENTRY_LEASED);
}

BUFFER_CASE(accept, repeat_of_a_written_one_is_ok)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    written("e", 1);
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect_state("e", 1, ENTRY_WRITTEN);
    cr_assert(buffer_stats()->buffer->queued == 0);
}

BUFFER_CASE(accept, repeat_of_a_changed_one_keeps_its_changes)
{
    expect(accept_entry("e", 1, NULL), OUTCOME_OK);
    expect(append("e", 1, 0, "change"), OUTCOME_OK);
    expect(accept_entry("e", 1, NULL), OUTCOME_OK);
    expect_same_bytes(only(get("e", 1))->changes, bytes_str("change"));
}

/* What is offered as another run under this id: told who has it, and not accepted. */
static void expect_others_id(struct buffer_ask ask, enum entry_state state)
{
    ask.run = bytes_str("another run");
    const struct op *op = expect(buffer(VERB_ACCEPT, ask), OUTCOME_CACHED);
    cr_assert(!op->changed);
    cr_assert(number_of(&only(op)->id) == 1 && only(op)->state == state);
    expect_same_bytes(only(op)->run, run_of(1));
    expect_same_bytes(only(get("e", 1))->run, run_of(1));
}

BUFFER_CASE(accept, same_id_with_another_run_leads_to_the_first)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect_others_id(entry_ask("e", 1, "k"), ENTRY_QUEUED);
    expect_others_id(entry_ask("e", 1, "other"), ENTRY_QUEUED);
    expect_others_id(entry_ask("e", 1, NULL), ENTRY_QUEUED);
    expect(get_by_key("e", "other"), OUTCOME_ABSENT);
    expect(accept_entry("e", 2, "other"), OUTCOME_OK);
    leased("e", 1, 5);
    expect_others_id(entry_ask("e", 1, "new"), ENTRY_LEASED);
    cr_assert(settle(5, "e", 1, SETTLE_WRITTEN)->buffer->settled == 1);
    expect_others_id(entry_ask("e", 1, "new"), ENTRY_WRITTEN);
    cr_assert(buffer_stats()->buffer->queued == 1);
}

/* One of a chunk of several, too. */
BUFFER_CASE(accept, same_id_in_flight_together_makes_one)
{
    struct waiting *all[20];
    static const char *const keys[] = { "a", "b", "c", "d" };
    for (unsigned i = 0; i < 20; i++) {
        struct buffer_ask ask = entry_ask("e", i < 16 ? i / 4 + 1 : 1, keys[i % 4]);
        ask.run = run_of(100 + i);
        ask.unclaimed = true;
        if (i % 4 != i / 4) ask.key_frame = bytes_of(NULL, 0);
        all[i] = submit_buffer(VERB_ACCEPT, ask, NULL, NULL);
    }
    world_settle(&world);
    unsigned created = 0;
    for (unsigned i = 0; i < 20; i++) {
        const struct op *op = all[i]->op;
        struct bytes has = only(get("e", i < 16 ? i / 4 + 1 : 1))->run;
        bool mine = bytes_eq(has, run_of(100 + i));
        expect(op, mine ? OUTCOME_OK : OUTCOME_CACHED);
        created += op->out.outcome == OUTCOME_OK;
        if (!mine) expect_same_bytes(only(op)->run, has);
    }
    cr_assert(created == 4, "%u were created", created);
    cr_assert(buffer_stats()->buffer->queued == 4);
}

BUFFER_CASE(accept, same_key_leads_to_the_first)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect(append("e", 1, 0, "change"), OUTCOME_OK);
    const struct op *op = expect(accept_entry("e", 2, "k"), OUTCOME_CACHED);
    cr_assert(!op->changed);
    const struct entry *e = only(op);
    cr_assert(number_of(&e->id) == 1);
    cr_assert(e->state == ENTRY_QUEUED && e->rev == 1);
    expect_same_bytes(e->run, run_of(1));
    expect_same_bytes(e->changes, bytes_str("change"));
    expect(get("e", 2), OUTCOME_ABSENT);
    cr_assert(buffer_stats()->buffer->queued == 1);
}

BUFFER_CASE(accept, same_key_in_flight_together_makes_one)
{
    struct waiting *all[20];
    for (unsigned i = 0; i < 20; i++) {
        struct buffer_ask ask = entry_ask("e", i + 1, "k");
        ask.unclaimed = true;
        all[i] = submit_buffer(VERB_ACCEPT, ask, NULL, NULL);
    }
    world_settle(&world);
    unsigned created = 0;
    unsigned winner = number_of(&only(get_by_key("e", "k"))->id);
    for (unsigned i = 0; i < 20; i++) {
        const struct op *op = all[i]->op;
        cr_assert(op->err.code == 0, "%s", op->err.text);
        created += op->out.outcome == OUTCOME_OK;
        if (op->out.outcome == OUTCOME_OK) cr_assert(winner == i + 1);
        if (op->out.outcome != OUTCOME_OK)
            cr_assert(number_of(&only(expect(op, OUTCOME_CACHED))->id) == winner);
    }
    cr_assert(created == 1, "%u were created", created);
}

BUFFER_CASE(accept, without_keys_all_are_taken)
{
    accept_many("e", 1, 50);
    cr_assert(buffer_stats()->buffer->queued == 50);
}

BUFFER_CASE(accept, envs_know_nothing_of_each_other)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect(get("f", 1), OUTCOME_ABSENT);
    expect(get_by_key("f", "k"), OUTCOME_ABSENT);
    expect(accept_entry("f", 2, "k"), OUTCOME_OK);
    expect(accept_entry("f", 1, NULL), OUTCOME_OK);
    cr_assert(number_of(&only(get_by_key("e", "k"))->id) == 1);
    cr_assert(number_of(&only(get_by_key("f", "k"))->id) == 2);
    expect(append("g", 1, 0, "x"), OUTCOME_ABSENT);
    cr_assert(drain_entry(5, "g", 1)->buffer->entries.count == 0);
}

BUFFER_CASE(accept, bytes_come_back_as_they_were)
{
    static uint8_t all[1024 * 1024];
    for (size_t i = 0; i < sizeof all; i++) all[i] = (uint8_t)(i * 31 >> 3);
    struct buffer_ask big = entry_ask("e", 1, NULL), none = entry_ask("e", 2, NULL);
    big.run = bytes_of(all, sizeof all);
    none.run = bytes_of(NULL, 0);
    expect(buffer(VERB_ACCEPT, big), OUTCOME_OK);
    expect(buffer(VERB_ACCEPT, none), OUTCOME_OK);
    expect_same_bytes(only(get("e", 1))->run, big.run);
    cr_assert(only(get("e", 2))->run.len == 0);
    expect(append("e", 1, 0, "one more"), OUTCOME_OK);
    const struct op *op = drain(5, 10, 0);
    expect_entries(op, "e", "1 2");
    expect_same_bytes(op->buffer->entries.rows[0]->run, big.run);
    expect_same_bytes(op->buffer->entries.rows[0]->changes, bytes_str("one more"));
    cr_assert(op->buffer->entries.rows[1]->run.len == 0);
}

BUFFER_CASE(accept, env_of_any_length_and_letter)
{
    char longest[ENV_BYTES_MAX + 1];
    memset(longest, 'x', ENV_BYTES_MAX);
    longest[ENV_BYTES_MAX] = '\0';
    static const char *const envs[] = { "a", "a:b", "a/b.c-d_e:", "A", "0" };
    expect(accept_entry(longest, 1, "k"), OUTCOME_OK);
    for (unsigned i = 0; i < sizeof envs / sizeof envs[0]; i++)
        expect(accept_entry(envs[i], 2 + i, "k"), OUTCOME_OK);
    const struct op *op = drain(5, 100, 0);
    cr_assert(op->buffer->entries.count == 6);
    expect_entries(op, longest, "1");
    expect_entries(op, "a", "2");
    expect_entries(op, "a:b", "3");
}

BUFFER_CASE(accept, longest_key_and_keys_that_look_alike)
{
    char longest[KEY_BYTES_MAX + 1];
    memset(longest, 'k', KEY_BYTES_MAX);
    longest[KEY_BYTES_MAX] = '\0';
    expect(accept_entry("e", 1, longest), OUTCOME_OK);
    cr_assert(number_of(&only(expect(accept_entry("e", 2, longest), OUTCOME_CACHED))->id) == 1);
    longest[KEY_BYTES_MAX - 1] = '\0';
    expect(accept_entry("e", 3, longest), OUTCOME_OK);
    expect(accept_entry("e", 4, "key"), OUTCOME_OK);
    expect(accept_entry("e", 5, "KEY"), OUTCOME_OK);
    expect(accept_entry("e", 6, "key "), OUTCOME_OK);
}

/* ---- get ---- */

BUFFER_CASE(entry_get, absent)
{
    expect(get("e", 1), OUTCOME_ABSENT);
    cr_assert(expect(get_by_key("e", "k"), OUTCOME_ABSENT)->buffer->entries.count == 0);
}

BUFFER_CASE(entry_get, by_key)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect(accept_entry("e", 2, "other"), OUTCOME_OK);
    expect(accept_entry("e", 3, NULL), OUTCOME_OK);
    cr_assert(number_of(&only(expect(get_by_key("e", "k"), OUTCOME_OK))->id) == 1);
    cr_assert(number_of(&only(expect(get_by_key("e", "other"), OUTCOME_OK))->id) == 2);
}

BUFFER_CASE(entry_get, tells_the_state_that_counts_now)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect_state("e", 1, ENTRY_QUEUED);
    leased("e", 1, 5);
    expect_state("e", 1, ENTRY_LEASED);
    cr_assert(only(get_by_key("e", "k"))->state == ENTRY_LEASED);
    world_advance(&world, LEASE_MS - 1);
    expect_state("e", 1, ENTRY_LEASED);
    world_advance(&world, 1);
    expect_state("e", 1, ENTRY_QUEUED);
    cr_assert(only(get_by_key("e", "k"))->state == ENTRY_QUEUED);
}

BUFFER_CASE(entry_get, written_is_found_for_half_a_minute_with_all_its_bytes)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect(append("e", 1, 0, "change"), OUTCOME_OK);
    written("e", 1);
    world_advance(&world, WRITTEN_KEEP_MS - 1);
    expire(100);
    expect_state("e", 1, ENTRY_WRITTEN);
    const struct entry *e = only(get("e", 1));
    expect_same_bytes(e->run, run_of(1));
    expect_same_bytes(e->changes, bytes_str("change"));
}

BUFFER_CASE(entry_get, written_is_gone_after_that)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect(accept_entry("e", 2, NULL), OUTCOME_OK);
    written("e", 1);
    world_advance(&world, WRITTEN_KEEP_MS);
    expire(100);
    expect(get("e", 1), OUTCOME_ABSENT);
    expect_state("e", 2, ENTRY_QUEUED);
}

/* Nobody sweeps a buffer that is a store of its own. */
BUFFER_CASE(entry_get, written_is_gone_when_others_are_settled_after_that)
{
    accept_many("e", 1, 2);
    written("e", 1);
    world_advance(&world, WRITTEN_KEEP_MS);
    written("e", 2);
    expect(get("e", 1), OUTCOME_ABSENT);
    expect_state("e", 2, ENTRY_WRITTEN);
}

BUFFER_CASE(entry_get, what_is_not_written_is_never_gone)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect(accept_entry("e", 2, NULL), OUTCOME_OK);
    leased("e", 2, 5);
    world_advance(&world, INT64_C(365) * 86400000);
    expire(100);
    expect_state("e", 1, ENTRY_QUEUED);
    expect_state("e", 2, ENTRY_QUEUED);
    expect(accept_entry("e", 3, "k"), OUTCOME_CACHED);
}

/* ---- keys ---- */

BUFFER_CASE(entry_key, is_kept_while_leased)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    leased("e", 1, 5);
    const struct entry *e = only(expect(accept_entry("e", 2, "k"), OUTCOME_CACHED));
    cr_assert(number_of(&e->id) == 1 && e->state == ENTRY_LEASED);
}

BUFFER_CASE(entry_key, is_kept_when_given_back_or_failed)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    leased("e", 1, 5);
    cr_assert(settle(5, "e", 1, SETTLE_BACK)->buffer->settled == 1);
    expect(accept_entry("e", 2, "k"), OUTCOME_CACHED);
    leased("e", 1, 6);
    cr_assert(settle(6, "e", 1, SETTLE_FAILED)->buffer->settled == 1);
    expect(accept_entry("e", 2, "k"), OUTCOME_CACHED);
}

BUFFER_CASE(entry_key, is_free_when_written)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    written("e", 1);
    expect(get_by_key("e", "k"), OUTCOME_ABSENT);
    expect(accept_entry("e", 2, "k"), OUTCOME_OK);
    cr_assert(number_of(&only(get_by_key("e", "k"))->id) == 2);
    world_advance(&world, WRITTEN_KEEP_MS);
    expire(100);
    cr_assert(number_of(&only(get_by_key("e", "k"))->id) == 2);
    expect(accept_entry("e", 3, "k"), OUTCOME_CACHED);
}

BUFFER_CASE(entry_key, of_what_is_gone_is_not_that_of_a_new_one_with_its_id)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    written("e", 1);
    world_advance(&world, WRITTEN_KEEP_MS);
    expire(100);
    struct buffer_ask anew = entry_ask("e", 1, "other"), next = entry_ask("e", 2, "k");
    anew.unclaimed = next.unclaimed = true;
    struct waiting *first = submit_buffer(VERB_ACCEPT, anew, NULL, NULL);
    struct waiting *second = submit_buffer(VERB_ACCEPT, next, NULL, NULL);
    world_settle(&world);
    expect(first->op, OUTCOME_OK);
    expect(second->op, OUTCOME_OK);
    cr_assert(number_of(&only(get_by_key("e", "other"))->id) == 1);
    cr_assert(number_of(&only(get_by_key("e", "k"))->id) == 2);
}

BUFFER_CASE(entry_key, is_let_go_by_a_change_that_frees_it)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect(append_freeing("e", 1, 0, "freed"), OUTCOME_OK);
    expect(get_by_key("e", "k"), OUTCOME_ABSENT);
    const struct entry *e = only(get("e", 1));
    cr_assert(e->state == ENTRY_QUEUED && e->rev == 1);
    expect_same_bytes(e->changes, bytes_str("freed"));
    expect(accept_entry("e", 2, "k"), OUTCOME_OK);
    written("e", 1);
    cr_assert(number_of(&only(get_by_key("e", "k"))->id) == 2, "it took the other's key along");
}

BUFFER_CASE(entry_key, is_kept_by_a_refused_change_that_would_free_it)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect(append_freeing("e", 1, 3, "freed"), OUTCOME_CONFLICT);
    leased("e", 1, 5);
    expect(append_freeing("e", 1, 0, "freed"), OUTCOME_IN_PROGRESS);
    cr_assert(number_of(&only(get_by_key("e", "k"))->id) == 1);
}

BUFFER_CASE(entry_key, repeat_after_the_key_was_let_go_does_not_take_it_again)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect(append_freeing("e", 1, 0, "freed"), OUTCOME_OK);
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect(get_by_key("e", "k"), OUTCOME_ABSENT);
}

/* ---- changes ---- */

BUFFER_CASE(append, changes_follow_each_other_and_the_run_stays)
{
    static const uint8_t second[] = { 0, 0xff, 0, 0xc3, 0x28, '{', '}', 0 };
    expect(accept_entry("e", 1, NULL), OUTCOME_OK);
    cr_assert(expect(append("e", 1, 0, "first"), OUTCOME_OK)->changed);
    struct buffer_ask ask = { .env = bytes_str("e"), .id = id_of(1), .rev = 1 };
    ask.change = bytes_of(second, sizeof second);
    expect(buffer(VERB_APPEND, ask), OUTCOME_OK);
    uint8_t both[5 + sizeof second];
    memcpy(both, "first", 5);
    memcpy(both + 5, second, sizeof second);
    const struct entry *e = only(get("e", 1));
    cr_assert(e->rev == 2);
    expect_same_bytes(e->changes, bytes_of(both, sizeof both));
    expect_same_bytes(e->run, run_of(1));
}

BUFFER_CASE(append, another_rev_is_a_conflict)
{
    expect(accept_entry("e", 1, NULL), OUTCOME_OK);
    cr_assert(!expect(append("e", 1, 1, "x"), OUTCOME_CONFLICT)->changed);
    expect(append("e", 1, 0, "a"), OUTCOME_OK);
    expect(append("e", 1, 0, "b"), OUTCOME_CONFLICT);
    const struct entry *e = only(get("e", 1));
    cr_assert(e->rev == 1);
    expect_same_bytes(e->changes, bytes_str("a"));
}

BUFFER_CASE(append, of_many_with_the_same_rev_one_wins)
{
    expect(accept_entry("e", 1, NULL), OUTCOME_OK);
    struct waiting *all[20];
    for (unsigned i = 0; i < 20; i++)
        all[i] = submit_buffer(
            VERB_APPEND,
            (struct buffer_ask){ .env = bytes_str("e"), .id = id_of(1), .change = run_of(i) },
            NULL, NULL);
    world_settle(&world);
    unsigned winner = 0, won = 0;
    for (unsigned i = 0; i < 20; i++) {
        cr_assert(all[i]->op->err.code == 0, "%s", all[i]->op->err.text);
        if (all[i]->op->out.outcome == OUTCOME_OK) winner = i;
        won += all[i]->op->out.outcome == OUTCOME_OK;
        if (all[i]->op->out.outcome != OUTCOME_OK) expect(all[i]->op, OUTCOME_CONFLICT);
    }
    cr_assert(won == 1, "%u changes won", won);
    expect_same_bytes(only(get("e", 1))->changes, run_of(winner));
}

BUFFER_CASE(append, leased_takes_none)
{
    expect(accept_entry("e", 1, NULL), OUTCOME_OK);
    leased("e", 1, 5);
    cr_assert(!expect(append("e", 1, 0, "x"), OUTCOME_IN_PROGRESS)->changed);
    world_advance(&world, LEASE_MS - 1);
    expect(append("e", 1, 0, "x"), OUTCOME_IN_PROGRESS);
    cr_assert(only(get("e", 1))->changes.len == 0);
}

BUFFER_CASE(append, written_and_unknown_are_absent)
{
    expect(append("e", 1, 0, "x"), OUTCOME_ABSENT);
    expect(accept_entry("e", 1, NULL), OUTCOME_OK);
    written("e", 1);
    expect(append("e", 1, 0, "x"), OUTCOME_ABSENT);
    cr_assert(only(get("e", 1))->changes.len == 0);
}

BUFFER_CASE(append, given_back_takes_them_again)
{
    expect(accept_entry("e", 1, NULL), OUTCOME_OK);
    leased("e", 1, 5);
    settle(5, "e", 1, SETTLE_BACK);
    expect(append("e", 1, 0, "x"), OUTCOME_OK);
    leased("e", 1, 6);
    expect_same_bytes(only(get("e", 1))->changes, bytes_str("x"));
}

/* A drainer that is late has written it without this change: its word does not count any more, or
 * an acknowledged change would be lost. */
BUFFER_CASE(append, to_a_lapsed_one_takes_it_from_the_late_drainer)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    leased("e", 1, 5);
    world_advance(&world, LEASE_MS);
    expect(append("e", 1, 0, "x"), OUTCOME_OK);
    cr_assert(settle(5, "e", 1, SETTLE_WRITTEN)->buffer->settled == 0);
    expect_state("e", 1, ENTRY_QUEUED);
    expect_same_bytes(only(drain(6, 10, 0))->changes, bytes_str("x"));
    cr_assert(settle(6, "e", 1, SETTLE_WRITTEN)->buffer->settled == 1);
}

/* ---- with a claim, where claims and buffer are one store ----
 *
 * The scope has the env in it, so that a cluster can have both in one place. */
static struct key claim_key(const char *name)
{
    return key_of("@e", name);
}

static struct request with_value(uint8_t who, const char *value)
{
    struct request in = owner_with(who, value);
    in.retain_ms = RETAIN_MS;
    return in;
}

static const struct op *accept_claimed(unsigned n, const char *key, uint8_t who,
                                       const char *value)
{
    struct key claimed = claim_key(key);
    struct request in = with_value(who, value);
    struct waiting *w = submit_buffer(VERB_ACCEPT, entry_ask("e", n, key), &claimed, &in);
    world_settle(&world);
    cr_assert(w->finished == 1);
    cr_assert(w->op->err.code == 0, "accept: %s", w->op->err.text);
    return w->op;
}

static const struct op *claim_run(const char *key, uint8_t who)
{
    return ask_key(VERB_CLAIM, claim_key(key), owner(who));
}

CLAIMED_CASE(accept_claimed, owner_accepts_and_publishes_in_one_step)
{
    expect(claim_run("k", 1), OUTCOME_CLAIMED);
    cr_assert(expect(accept_claimed(1, "k", 1, "run 1"), OUTCOME_OK)->changed);
    expect_value(expect(claim_run("k", 2), OUTCOME_CACHED), "run 1");
    const struct entry *e = only(get_by_key("e", "k"));
    cr_assert(number_of(&e->id) == 1);
    expect_same_bytes(e->run, run_of(1));
}

CLAIMED_CASE(accept_claimed, whoever_waits_is_told)
{
    expect(claim_run("k", 1), OUTCOME_CLAIMED);
    struct key key = claim_key("k");
    struct op *op = op_new(VERB_WATCH, &key, NULL);
    cr_assert(op);
    op->seen = expect(claim_run("k", 2), OUTCOME_IN_PROGRESS)->out.version;
    struct waiting *w = submit(op);
    world_settle(&world);
    cr_assert(w->finished == 0);
    there();
    expect(accept_claimed(1, "k", 1, "run 1"), OUTCOME_OK);
    world_await(&world, &w->finished);
    expect_fired(w);
}

CLAIMED_CASE(accept_claimed, somebody_elses_claim_is_lost)
{
    expect(claim_run("k", 1), OUTCOME_CLAIMED);
    cr_assert(!expect(accept_claimed(2, "k", 2, "run 2"), OUTCOME_LOST)->changed);
    expect(get("e", 2), OUTCOME_ABSENT);
    expect(get_by_key("e", "k"), OUTCOME_ABSENT);
    expect(claim_run("k", 3), OUTCOME_IN_PROGRESS);
    cr_assert(buffer_stats()->buffer->queued == 0);
}

CLAIMED_CASE(accept_claimed, never_claimed_is_lost)
{
    expect(accept_claimed(1, "k", 1, "run 1"), OUTCOME_LOST);
    expect(get("e", 1), OUTCOME_ABSENT);
    expect(claim_run("k", 2), OUTCOME_CLAIMED);
}

CLAIMED_CASE(accept_claimed, lapsed_and_taken_over_is_lost)
{
    expect(claim_run("k", 1), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS);
    expect(claim_run("k", 2), OUTCOME_CLAIMED);
    expect(accept_claimed(1, "k", 1, "run 1"), OUTCOME_LOST);
    expect(get("e", 1), OUTCOME_ABSENT);
    expect(accept_claimed(2, "k", 2, "run 2"), OUTCOME_OK);
    expect_value(expect(claim_run("k", 3), OUTCOME_CACHED), "run 2");
    cr_assert(number_of(&only(get_by_key("e", "k"))->id) == 2);
}

CLAIMED_CASE(accept_claimed, lapsed_but_not_taken_over_is_accepted)
{
    expect(claim_run("k", 1), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS);
    expect(accept_claimed(1, "k", 1, "run 1"), OUTCOME_OK);
    expect_value(expect(claim_run("k", 2), OUTCOME_CACHED), "run 1");
    expect_state("e", 1, ENTRY_QUEUED);
}

CLAIMED_CASE(accept_claimed, repeat_is_ok)
{
    expect(claim_run("k", 1), OUTCOME_CLAIMED);
    expect(accept_claimed(1, "k", 1, "run 1"), OUTCOME_OK);
    expect(accept_claimed(1, "k", 1, "run 1"), OUTCOME_OK);
    leased("e", 1, 5);
    expect(accept_claimed(1, "k", 1, "run 1"), OUTCOME_OK);
    expect_state("e", 1, ENTRY_LEASED);
    cr_assert(buffer_stats()->buffer->leased == 1);
}

CLAIMED_CASE(accept_claimed, key_that_leads_to_another_entry_is_cached_and_publishes_nothing)
{
    expect(accept_entry("e", 1, "k"), OUTCOME_OK);
    expect(claim_run("k", 2), OUTCOME_CLAIMED);
    const struct op *op = expect(accept_claimed(2, "k", 2, "run 2"), OUTCOME_CACHED);
    cr_assert(number_of(&only(op)->id) == 1);
    expect(get("e", 2), OUTCOME_ABSENT);
    expect(claim_run("k", 3), OUTCOME_IN_PROGRESS);
}

CLAIMED_CASE(accept_claimed, without_a_claim_the_claims_are_left_alone)
{
    expect(claim_run("k", 1), OUTCOME_CLAIMED);
    expect(accept_entry("e", 2, "k"), OUTCOME_OK);
    expect(claim_run("k", 3), OUTCOME_IN_PROGRESS);
    expect(get_by_key("e", "k"), OUTCOME_OK);
}

CLAIMED_CASE(accept_claimed, another_run_under_an_id_leaves_the_claim_alone)
{
    struct key key = claim_key("mine");
    struct request in = with_value(1, "run 1");
    struct buffer_ask ask = entry_ask("e", 1, "mine");
    expect(accept_entry("e", 1, "theirs"), OUTCOME_OK);
    expect(claim_run("mine", 1), OUTCOME_CLAIMED);
    ask.run = bytes_str("another run");
    struct waiting *w = submit_buffer(VERB_ACCEPT, ask, &key, &in);
    world_settle(&world);
    cr_assert(number_of(&only(expect(w->op, OUTCOME_CACHED))->id) == 1);
    expect(claim_run("mine", 3), OUTCOME_IN_PROGRESS);
    expect(ask_key(VERB_RELEASE, claim_key("mine"), owner(1)), OUTCOME_OK);
    expect(get_by_key("e", "mine"), OUTCOME_ABSENT);
}

/* ---- fresh: nobody has been here ---- */

static struct waiting *submit_fresh(unsigned n, const char *key)
{
    struct key claimed = claim_key(key);
    struct buffer_ask ask = entry_ask("e", n, key);
    ask.unclaimed = ask.fresh = true;
    return submit_buffer(VERB_ACCEPT, ask, &claimed, NULL);
}

static const struct op *accept_fresh(unsigned n, const char *key)
{
    struct waiting *w = submit_fresh(n, key);
    world_settle(&world);
    cr_assert(w->finished == 1);
    cr_assert(w->op->err.code == 0, "accept: %s", w->op->err.text);
    return w->op;
}

/* Nothing was changed: neither is this entry there, nor does the key lead to it. */
static void expect_refused(unsigned n, const char *key)
{
    cr_assert(!expect(accept_fresh(n, key), OUTCOME_IN_PROGRESS)->changed);
    expect(get("e", n), OUTCOME_ABSENT);
    expect(get_by_key("e", key), OUTCOME_ABSENT);
}

FRESH_CASE(accept_fresh, is_accepted_and_the_claim_is_left_alone)
{
    cr_assert(expect(accept_fresh(1, "k"), OUTCOME_OK)->changed);
    const struct entry *e = only(get_by_key("e", "k"));
    cr_assert(number_of(&e->id) == 1 && e->state == ENTRY_QUEUED);
    expect_same_bytes(e->run, run_of(1));
    expect(ask_key(VERB_PEEK, claim_key("k"), owner(2)), OUTCOME_ABSENT);
    expect(claim_run("k", 2), OUTCOME_CLAIMED);
    expect_entries(drain(5, 10, 0), "e", "1");
}

FRESH_CASE(accept_fresh, who_has_the_key_is_told)
{
    expect(accept_fresh(1, "k"), OUTCOME_OK);
    expect(append("e", 1, 0, "change"), OUTCOME_OK);
    const struct op *op = expect(accept_fresh(2, "k"), OUTCOME_CACHED);
    cr_assert(!op->changed && number_of(&only(op)->id) == 1);
    expect_same_bytes(only(op)->run, run_of(1));
    expect_same_bytes(only(op)->changes, bytes_str("change"));
    leased("e", 1, 5);
    cr_assert(only(expect(accept_fresh(2, "k"), OUTCOME_CACHED))->state == ENTRY_LEASED);
    expect(get("e", 2), OUTCOME_ABSENT);
}

FRESH_CASE(accept_fresh, repeat_is_ok)
{
    expect(accept_fresh(1, "k"), OUTCOME_OK);
    cr_assert(!expect(accept_fresh(1, "k"), OUTCOME_OK)->changed);
    cr_assert(buffer_stats()->buffer->queued == 1);
}

FRESH_CASE(accept_fresh, of_many_together_with_one_key_one_is_accepted)
{
    struct waiting *all[20];
    for (unsigned i = 0; i < 20; i++) all[i] = submit_fresh(i + 1, i % 2 ? "a" : "b");
    world_settle(&world);
    unsigned accepted = 0;
    for (unsigned i = 0; i < 20; i++) {
        const struct op *op = all[i]->op;
        accepted += op->out.outcome == OUTCOME_OK;
        if (op->out.outcome == OUTCOME_OK) continue;
        cr_assert(number_of(&only(expect(op, OUTCOME_CACHED))->id) % 2 == (i + 1) % 2);
    }
    cr_assert(accepted == 2 && buffer_stats()->buffer->queued == 2, "%u", accepted);
}

FRESH_CASE(accept_fresh, what_is_claimed_is_not)
{
    expect(claim_run("k", 1), OUTCOME_CLAIMED);
    expect_refused(1, "k");
    world_advance(&world, LEASE_MS);
    expect_refused(1, "k");
    expect(claim_run("k", 2), OUTCOME_CLAIMED);
    expect_refused(1, "k");
}

FRESH_CASE(accept_fresh, what_is_published_is_not_until_that_is_over)
{
    expect(claim_run("k", 1), OUTCOME_CLAIMED);
    expect(ask_key(VERB_PUBLISH, claim_key("k"), with_value(1, "done")), OUTCOME_OK);
    world_advance(&world, RETAIN_MS - 1);
    expect_refused(1, "k");
    world_advance(&world, 1);
    expect(accept_fresh(1, "k"), OUTCOME_OK);
}

FRESH_CASE(accept_fresh, what_is_forgotten_is_again)
{
    expect(claim_run("k", 1), OUTCOME_CLAIMED);
    expect_refused(1, "k");
    expect(ask_key(VERB_RELEASE, claim_key("k"), owner(1)), OUTCOME_OK);
    expect(accept_fresh(1, "k"), OUTCOME_OK);
}

FRESH_CASE(accept_fresh, written_and_kept_has_its_key)
{
    expect(accept_fresh(1, "k"), OUTCOME_OK);
    written("e", 1);
    expect_refused(2, "k");
    expect(accept_fresh(1, "k"), OUTCOME_IN_PROGRESS);
    world_advance(&world, WRITTEN_KEEP_MS - 1);
    expect_refused(2, "k");
    world_advance(&world, 1);
    expect(accept_fresh(2, "k"), OUTCOME_OK);
    cr_assert(number_of(&only(get_by_key("e", "k"))->id) == 2);
}

FRESH_CASE(accept_fresh, key_that_was_let_go_is_free_but_the_id_is_not)
{
    expect(accept_fresh(1, "k"), OUTCOME_OK);
    expect(append_freeing("e", 1, 0, "freed"), OUTCOME_OK);
    expect(accept_fresh(1, "k"), OUTCOME_IN_PROGRESS);
    expect(accept_fresh(1, "other"), OUTCOME_IN_PROGRESS);
    expect(get_by_key("e", "other"), OUTCOME_ABSENT);
    expect(accept_fresh(2, "k"), OUTCOME_OK);
    cr_assert(number_of(&only(get_by_key("e", "k"))->id) == 2);
}

FRESH_CASE(accept_fresh, those_with_and_without_a_claim_may_come_together)
{
    struct key key = claim_key("mine");
    struct request in = with_value(1, "run 1");
    expect(claim_run("mine", 1), OUTCOME_CLAIMED);
    expect(claim_run("theirs", 2), OUTCOME_CLAIMED);
    struct waiting *mine = submit_buffer(VERB_ACCEPT, entry_ask("e", 1, "mine"), &key, &in);
    struct waiting *late = submit_fresh(2, "mine"), *busy = submit_fresh(3, "theirs");
    struct waiting *new = submit_fresh(4, "new");
    world_settle(&world);
    expect(mine->op, OUTCOME_OK);
    expect(late->op, OUTCOME_CACHED);
    expect(busy->op, OUTCOME_IN_PROGRESS);
    expect(new->op, OUTCOME_OK);
    expect_entries(drain(5, 10, 0), "e", "1 4");
}
