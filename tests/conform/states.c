/* states.c - every verb in every state a record can be in.
 *
 *   absent    never claimed
 *   alive     claimed by 1, the lease runs
 *   lapsed    claimed by 1, the lease is over
 *   done      published by 1: "A"
 *   gone      done, and past retention */
#include "tests/conform/conform.h"

static uint64_t alive(void)
{
    return expect(claim("k", 1), OUTCOME_CLAIMED)->out.fence;
}

static uint64_t lapsed(void)
{
    uint64_t fence = alive();
    world_advance(&world, LEASE_MS);
    return fence;
}

static uint64_t done(void)
{
    uint64_t fence = alive();
    expect(publish("k", 1, "A"), OUTCOME_OK);
    return fence;
}

static uint64_t gone(void)
{
    uint64_t fence = done();
    world_advance(&world, RETAIN_MS);
    return fence;
}

static void expect_done_a(void)
{
    const struct op *op = expect(peek("k"), OUTCOME_CACHED);
    expect_value(op, "A");
}

static void expect_pending_of(uint8_t who, uint64_t fence)
{
    const struct op *op = ask(VERB_PEEK, "k", (struct request){ .token = token_of(who) });
    expect(op, OUTCOME_IN_PROGRESS);
    cr_assert(op->out.mine);
    cr_assert(op->out.fence == fence);
}

/* ---- claim ---- */

CASE(claim, absent_is_granted)
{
    const struct op *op = expect(claim("k", 1), OUTCOME_CLAIMED);
    cr_assert(op->out.fence > 0);
    cr_assert(op->out.version != 0);
    cr_assert(op->out.mine);
    cr_assert(!op->out.taken_over);
    cr_assert(op->out.lease_left_ms == LEASE_MS);
    cr_assert(op->out.retain_left_ms == 0);
    cr_assert(op->changed);
    expect_value(op, NULL);
}

CASE(claim, alive_is_in_progress)
{
    alive();
    world_advance(&world, 1000);
    const struct op *op = expect(claim("k", 2), OUTCOME_IN_PROGRESS);
    cr_assert(op->out.lease_left_ms == LEASE_MS - 1000);
    cr_assert(!op->out.mine);
    cr_assert(!op->changed);
    expect_value(op, NULL);
}

CASE(claim, alive_leaves_the_owner_in_place)
{
    uint64_t fence = alive();
    expect(claim("k", 2), OUTCOME_IN_PROGRESS);
    expect_pending_of(1, fence);
    expect(publish("k", 1, "A"), OUTCOME_OK);
}

CASE(claim, lapsed_is_taken_over)
{
    uint64_t fence = lapsed();
    const struct op *op = expect(claim("k", 2), OUTCOME_CLAIMED);
    cr_assert(op->out.taken_over);
    cr_assert(op->out.mine);
    cr_assert(op->out.fence > fence);
    cr_assert(op->out.lease_left_ms == LEASE_MS);
    expect_pending_of(2, op->out.fence);
}

CASE(claim, done_is_cached)
{
    done();
    world_advance(&world, 1000);
    const struct op *op = expect(claim("k", 2), OUTCOME_CACHED);
    expect_value(op, "A");
    cr_assert(op->out.retain_left_ms == RETAIN_MS - 1000);
    cr_assert(op->out.lease_left_ms == 0);
    cr_assert(!op->out.mine);
    cr_assert(!op->changed);
}

CASE(claim, done_by_the_same_token_says_so)
{
    done();
    const struct op *op = expect(claim("k", 1), OUTCOME_CACHED);
    cr_assert(op->out.mine);
    expect_value(op, "A");
}

CASE(claim, gone_is_granted_anew)
{
    uint64_t fence = gone();
    const struct op *op = expect(claim("k", 2), OUTCOME_CLAIMED);
    cr_assert(op->out.fence > fence);
    cr_assert(!op->out.taken_over);
    expect_value(op, NULL);
}

CASE(claim, delivered_twice_is_one_claim)
{
    uint64_t fence = alive();
    world_advance(&world, 10);
    const struct op *op = expect(claim("k", 1), OUTCOME_CLAIMED);
    cr_assert(op->out.fence == fence);
    cr_assert(op->out.mine);
    cr_assert(!op->out.taken_over);
    cr_assert(op->out.lease_left_ms == LEASE_MS - 10, "a repeated claim is not a renewal");
}

CASE(claim, delivered_twice_after_the_lapse_is_still_the_owner)
{
    uint64_t fence = lapsed();
    const struct op *op = expect(claim("k", 1), OUTCOME_CLAIMED);
    cr_assert(op->out.fence == fence);
    cr_assert(op->out.lease_left_ms == 0);
}

CASE(claim, delivered_late_after_a_takeover_is_in_progress)
{
    lapsed();
    uint64_t fence = expect(claim("k", 2), OUTCOME_CLAIMED)->out.fence;
    expect(claim("k", 1), OUTCOME_IN_PROGRESS);
    expect_pending_of(2, fence);
}

/* ---- publish ---- */

CASE(publish, absent_is_lost)
{
    const struct op *op = expect(publish("k", 1, "A"), OUTCOME_LOST);
    expect_value(op, NULL);
    cr_assert(op->out.fence == 0 && !op->changed);
    expect(peek("k"), OUTCOME_ABSENT);
}

CASE(publish, alive_is_done)
{
    uint64_t fence = alive();
    const struct op *op = expect(publish("k", 1, "A"), OUTCOME_OK);
    cr_assert(op->out.fence == fence);
    cr_assert(op->out.retain_left_ms == RETAIN_MS);
    cr_assert(op->out.mine && op->changed);
    expect_done_a();
}

CASE(publish, alive_by_a_stranger_is_lost)
{
    uint64_t fence = alive();
    const struct op *op = expect(publish("k", 2, "B"), OUTCOME_LOST);
    expect_value(op, NULL);
    cr_assert(!op->out.mine && !op->changed);
    expect_pending_of(1, fence);
}

CASE(publish, lapsed_before_a_takeover_is_done)
{
    lapsed();
    world_advance(&world, 5000);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    expect_done_a();
}

CASE(publish, after_a_takeover_is_lost_without_a_value)
{
    lapsed();
    uint64_t fence = expect(claim("k", 2), OUTCOME_CLAIMED)->out.fence;
    const struct op *op = expect(publish("k", 1, "A"), OUTCOME_LOST);
    expect_value(op, NULL);
    expect_pending_of(2, fence);
}

CASE(publish, after_the_others_publish_is_lost_with_the_answer)
{
    lapsed();
    expect(claim("k", 2), OUTCOME_CLAIMED);
    expect(publish("k", 2, "B"), OUTCOME_OK);
    const struct op *op = expect(publish("k", 1, "A"), OUTCOME_LOST);
    expect_value(op, "B");
    expect_value(expect(peek("k"), OUTCOME_CACHED), "B");
}

CASE(publish, equal_value_of_another_token_is_lost_all_the_same)
{
    lapsed();
    expect(claim("k", 2), OUTCOME_CLAIMED);
    expect(publish("k", 2, "A"), OUTCOME_OK);
    expect_value(expect(publish("k", 1, "A"), OUTCOME_LOST), "A");
}

CASE(publish, repeated_is_ok_and_changes_nothing)
{
    done();
    world_advance(&world, 1000);
    const struct op *op = expect(publish("k", 1, "A"), OUTCOME_OK);
    cr_assert(!op->changed);
    cr_assert(op->out.retain_left_ms == RETAIN_MS - 1000, "retention starts once");
    expect_value(op, "A");
}

CASE(publish, second_value_of_the_owner_is_lost)
{
    done();
    expect_value(expect(publish("k", 1, "B"), OUTCOME_LOST), "A");
    expect_done_a();
}

CASE(publish, no_value_after_a_value_is_lost)
{
    done();
    expect_value(expect(publish("k", 1, NULL), OUTCOME_LOST), "A");
    expect_done_a();
}

CASE(publish, gone_is_lost)
{
    gone();
    const struct op *op = expect(publish("k", 1, "A"), OUTCOME_LOST);
    expect_value(op, NULL);
    expect(peek("k"), OUTCOME_ABSENT);
}

CASE(publish, sets_its_own_retention)
{
    alive();
    struct request in = owner_with(1, "A");
    in.retain_ms = 1234;
    cr_assert(expect(ask(VERB_PUBLISH, "k", in), OUTCOME_OK)->out.retain_left_ms == 1234);
    world_advance(&world, 1233);
    expect_done_a();
    world_advance(&world, 1);
    expect(peek("k"), OUTCOME_ABSENT);
}

CASE(publish, empty_value_is_a_value)
{
    alive();
    expect(publish("k", 1, ""), OUTCOME_OK);
    expect_value(expect(claim("k", 2), OUTCOME_CACHED), "");
    expect_value(expect(peek("k"), OUTCOME_CACHED), "");
}

CASE(publish, no_value_is_already_done)
{
    alive();
    expect(publish("k", 1, NULL), OUTCOME_OK);
    expect_value(expect(claim("k", 2), OUTCOME_ALREADY_DONE), NULL);
    expect_value(expect(peek("k"), OUTCOME_ALREADY_DONE), NULL);
    expect(publish("k", 1, NULL), OUTCOME_OK);
}

CASE(publish, empty_value_and_no_value_are_not_the_same)
{
    alive();
    expect(publish("k", 1, NULL), OUTCOME_OK);
    expect(publish("k", 1, ""), OUTCOME_LOST);
    expect(peek("k"), OUTCOME_ALREADY_DONE);
}

/* ---- release ---- */

CASE(release, absent_is_lost)
{
    cr_assert(!expect(release("k", 1), OUTCOME_LOST)->changed);
}

CASE(release, alive_frees_the_key)
{
    alive();
    cr_assert(expect(release("k", 1), OUTCOME_OK)->changed);
    expect(peek("k"), OUTCOME_ABSENT);
    cr_assert(!expect(claim("k", 2), OUTCOME_CLAIMED)->out.taken_over);
}

CASE(release, by_a_stranger_is_lost)
{
    uint64_t fence = alive();
    expect(release("k", 2), OUTCOME_LOST);
    expect_pending_of(1, fence);
}

CASE(release, lapsed_by_its_owner_frees_the_key)
{
    lapsed();
    expect(release("k", 1), OUTCOME_OK);
    expect(peek("k"), OUTCOME_ABSENT);
}

CASE(release, after_a_takeover_does_not_free_the_successor)
{
    lapsed();
    uint64_t fence = expect(claim("k", 2), OUTCOME_CLAIMED)->out.fence;
    expect(release("k", 1), OUTCOME_LOST);
    expect_pending_of(2, fence);
    expect(claim("k", 3), OUTCOME_IN_PROGRESS);
}

CASE(release, done_is_lost_with_the_answer)
{
    done();
    expect_value(expect(release("k", 1), OUTCOME_LOST), "A");
    expect_done_a();
}

CASE(release, gone_is_lost)
{
    gone();
    expect_value(expect(release("k", 1), OUTCOME_LOST), NULL);
}

CASE(release, twice_is_lost_the_second_time)
{
    alive();
    expect(release("k", 1), OUTCOME_OK);
    expect(release("k", 1), OUTCOME_LOST);
}

/* ---- renew ---- */

CASE(renew, absent_is_lost)
{
    expect(renew("k", 1), OUTCOME_LOST);
    expect(peek("k"), OUTCOME_ABSENT);
}

CASE(renew, alive_starts_the_lease_again)
{
    uint64_t fence = alive();
    world_advance(&world, 20000);
    const struct op *op = expect(renew("k", 1), OUTCOME_OK);
    cr_assert(op->out.lease_left_ms == LEASE_MS);
    cr_assert(op->out.fence == fence);
    world_advance(&world, 20000);
    expect(claim("k", 2), OUTCOME_IN_PROGRESS);
}

CASE(renew, with_a_length_changes_the_lease)
{
    alive();
    struct request in = { .token = token_of(1), .lease_ms = 5000 };
    cr_assert(expect(ask(VERB_RENEW, "k", in), OUTCOME_OK)->out.lease_left_ms == 5000);
    world_advance(&world, 4000);
    cr_assert(expect(renew("k", 1), OUTCOME_OK)->out.lease_left_ms == 5000, "as last granted");
    world_advance(&world, 5000);
    cr_assert(expect(claim("k", 2), OUTCOME_CLAIMED)->out.taken_over);
}

CASE(renew, with_zero_ends_the_lease_now)
{
    alive();
    struct request in = { .token = token_of(1), .lease_ms = 0 };
    cr_assert(expect(ask(VERB_RENEW, "k", in), OUTCOME_OK)->out.lease_left_ms == 0);
    cr_assert(expect(claim("k", 2), OUTCOME_CLAIMED)->out.taken_over);
}

CASE(renew, lapsed_before_a_takeover_revives_the_lease)
{
    uint64_t fence = lapsed();
    world_advance(&world, 5000);
    cr_assert(expect(renew("k", 1), OUTCOME_OK)->out.lease_left_ms == LEASE_MS);
    expect(claim("k", 2), OUTCOME_IN_PROGRESS);
    expect_pending_of(1, fence);
}

CASE(renew, by_a_stranger_is_lost)
{
    alive();
    world_advance(&world, LEASE_MS - 1);
    expect(renew("k", 2), OUTCOME_LOST);
    world_advance(&world, 1);
    expect(claim("k", 3), OUTCOME_CLAIMED);
}

CASE(renew, after_a_takeover_does_not_steal_back)
{
    lapsed();
    uint64_t fence = expect(claim("k", 2), OUTCOME_CLAIMED)->out.fence;
    world_advance(&world, 1000);
    expect(renew("k", 1), OUTCOME_LOST);
    expect_pending_of(2, fence);
    cr_assert(peek("k")->out.lease_left_ms == LEASE_MS - 1000);
}

CASE(renew, done_is_lost_with_the_answer)
{
    done();
    expect_value(expect(renew("k", 1), OUTCOME_LOST), "A");
    expect_done_a();
}

CASE(renew, gone_is_lost)
{
    gone();
    expect(renew("k", 1), OUTCOME_LOST);
}

/* ---- peek ---- */

CASE(peek, absent_says_so_and_makes_nothing)
{
    const struct op *op = expect(peek("k"), OUTCOME_ABSENT);
    cr_assert(op->out.fence == 0 && op->out.version == 0 && !op->changed);
    cr_assert(stats()->stats.pending == 0);
}

CASE(peek, alive_shows_the_lease)
{
    uint64_t fence = alive();
    world_advance(&world, 7);
    const struct op *op = expect(peek("k"), OUTCOME_IN_PROGRESS);
    cr_assert(op->out.lease_left_ms == LEASE_MS - 7);
    cr_assert(op->out.fence == fence);
    cr_assert(!op->out.mine);
}

CASE(peek, lapsed_is_in_progress_with_nothing_left)
{
    uint64_t fence = lapsed();
    cr_assert(expect(peek("k"), OUTCOME_IN_PROGRESS)->out.lease_left_ms == 0);
    expect_pending_of(1, fence);
}

CASE(peek, done_shows_the_answer)
{
    uint64_t fence = done();
    const struct op *op = ask(VERB_PEEK, "k", (struct request){ .token = token_of(1) });
    expect_value(expect(op, OUTCOME_CACHED), "A");
    cr_assert(op->out.mine);
    cr_assert(op->out.fence == fence);
    cr_assert(op->out.retain_left_ms == RETAIN_MS);
}

CASE(peek, gone_is_absent)
{
    gone();
    const struct op *op = expect(peek("k"), OUTCOME_ABSENT);
    expect_value(op, NULL);
    cr_assert(op->out.fence == 0 && op->out.version == 0);
}

/* ---- forget ---- */

CASE(forget, absent_says_so)
{
    cr_assert(!expect(forget("k"), OUTCOME_ABSENT)->changed);
}

CASE(forget, alive_is_refused)
{
    uint64_t fence = alive();
    expect(forget("k"), OUTCOME_IN_PROGRESS);
    expect_pending_of(1, fence);
}

CASE(forget, lapsed_frees_the_key)
{
    lapsed();
    expect(forget("k"), OUTCOME_OK);
    expect(peek("k"), OUTCOME_ABSENT);
    expect(publish("k", 1, "A"), OUTCOME_LOST);
}

CASE(forget, done_frees_the_key)
{
    done();
    expect(forget("k"), OUTCOME_OK);
    expect(peek("k"), OUTCOME_ABSENT);
    expect_value(expect(claim("k", 2), OUTCOME_CLAIMED), NULL);
}

CASE(forget, done_makes_a_late_repeat_lost)
{
    done();
    expect(forget("k"), OUTCOME_OK);
    expect_value(expect(publish("k", 1, "A"), OUTCOME_LOST), NULL);
    expect(peek("k"), OUTCOME_ABSENT);
}

CASE(forget, gone_is_absent)
{
    gone();
    expect(forget("k"), OUTCOME_ABSENT);
    cr_assert(expire(10)->count == 0, "forget removed what was left of it");
}

/* ---- by force: how a tiered store corrects its coord; so it is asked of what may be one ---- */

static struct request by_force(uint8_t who)
{
    struct request in = owner_of(who, "another");
    in.force = true;
    return in;
}

CASE(force, claim_takes_the_place_of_a_live_owner)
{
    if (!may_be_coord()) return;
    uint64_t fence = alive();
    struct waiting *w = watch("k", peek("k")->out.version);
    const struct op *op = expect(ask(VERB_CLAIM, "k", by_force(2)), OUTCOME_CLAIMED);
    cr_assert(op->changed && op->out.fence > fence);
    expect_fired(w);
    expect_pending_of(2, op->out.fence);
    expect(publish("k", 1, "A"), OUTCOME_LOST);
}

CASE(force, claim_takes_the_place_of_an_answer)
{
    if (!may_be_coord()) return;
    done();
    const struct op *op = expect(ask(VERB_CLAIM, "k", by_force(2)), OUTCOME_CLAIMED);
    expect_value(op, NULL);
    expect_pending_of(2, op->out.fence);
    expect(claim("k", 3), OUTCOME_MISMATCH);
}

CASE(force, forget_drops_what_somebody_is_on)
{
    if (!may_be_coord()) return;
    uint64_t fence = alive();
    struct waiting *w = watch("k", peek("k")->out.version);
    cr_assert(expect(ask(VERB_FORGET, "k", by_force(0)), OUTCOME_OK)->changed);
    expect_fired(w);
    expect(publish("k", 1, "A"), OUTCOME_LOST);
    cr_assert(expect(claim("k", 2), OUTCOME_CLAIMED)->out.fence > fence);
}
