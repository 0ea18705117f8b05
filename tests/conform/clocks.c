/* clocks.c - lease, retention and fence at their exact boundaries, and a clock that goes back.
 */
#include "tests/conform/conform.h"

#define HOUR_MS INT64_C(3600000)

static uint64_t fence_of(const struct op *op)
{
    return op->out.fence;
}

CASE(clock, lease_lives_until_just_before_its_end)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS - 1);
    cr_assert(expect(claim("k", 2), OUTCOME_IN_PROGRESS)->out.lease_left_ms == 1);
}

CASE(clock, lease_is_over_at_its_end)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS);
    cr_assert(expect(claim("k", 2), OUTCOME_CLAIMED)->out.taken_over);
}

CASE(clock, retention_lives_until_just_before_its_end)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    world_advance(&world, RETAIN_MS - 1);
    const struct op *op = expect(claim("k", 2), OUTCOME_CACHED);
    expect_value(op, "A");
    cr_assert(op->out.retain_left_ms == 1);
}

CASE(clock, retention_is_over_at_its_end)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    world_advance(&world, RETAIN_MS);
    expect(claim("k", 2), OUTCOME_CLAIMED);
}

CASE(clock, retention_counts_from_the_publish)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS - 1);
    cr_assert(expect(publish("k", 1, "A"), OUTCOME_OK)->out.retain_left_ms == RETAIN_MS);
}

CASE(clock, lease_is_not_clipped_by_retention)
{
    struct request in = owner(1);
    in.retain_ms = 10;
    cr_assert(expect(ask(VERB_CLAIM, "k", in), OUTCOME_CLAIMED)->out.lease_left_ms == LEASE_MS);
    world_advance(&world, LEASE_MS - 1);
    expect(claim("k", 2), OUTCOME_IN_PROGRESS);
}

CASE(clock, zero_lease_can_be_taken_over_at_once)
{
    struct request in = owner(1);
    in.lease_ms = 0;
    const struct op *first = expect(ask(VERB_CLAIM, "k", in), OUTCOME_CLAIMED);
    cr_assert(first->out.lease_left_ms == 0);
    const struct op *second = expect(claim("k", 2), OUTCOME_CLAIMED);
    cr_assert(second->out.taken_over);
    cr_assert(fence_of(second) > fence_of(first));
}

CASE(clock, zero_lease_can_publish_before_a_takeover)
{
    struct request in = owner(1);
    in.lease_ms = 0;
    expect(ask(VERB_CLAIM, "k", in), OUTCOME_CLAIMED);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    expect_value(expect(peek("k"), OUTCOME_CACHED), "A");
}

CASE(clock, zero_retention_is_absent_at_once)
{
    struct request in = owner(1);
    in.retain_ms = 0;
    expect(ask(VERB_CLAIM, "k", in), OUTCOME_CLAIMED);
    cr_assert(expect(publish("k", 1, "A"), OUTCOME_OK)->out.retain_left_ms == 0);
    expect(peek("k"), OUTCOME_ABSENT);
    cr_assert(!expect(claim("k", 2), OUTCOME_CLAIMED)->out.taken_over);
}

CASE(clock, zero_retention_does_not_shorten_the_lease)
{
    struct request in = owner(1);
    in.retain_ms = 0;
    expect(ask(VERB_CLAIM, "k", in), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS - 1);
    expect(claim("k", 2), OUTCOME_IN_PROGRESS);
    expect(publish("k", 1, "A"), OUTCOME_OK);
}

CASE(clock, abandoned_claim_is_kept_for_a_day_after_its_lease)
{
    expect(ask(VERB_CLAIM, "k", owner_of(1, "f")), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS + ABANDONED_KEEP_MS - 1);
    expect(ask(VERB_CLAIM, "k", owner_of(2, "g")), OUTCOME_MISMATCH);
    world_advance(&world, 1);
    cr_assert(!expect(ask(VERB_CLAIM, "k", owner_of(2, "g")), OUTCOME_CLAIMED)->out.taken_over);
}

CASE(clock, abandoned_claim_is_kept_for_a_longer_retention)
{
    struct request in = owner_of(1, "f");
    in.retain_ms = 2 * ABANDONED_KEEP_MS;
    expect(ask(VERB_CLAIM, "k", in), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS + 2 * ABANDONED_KEEP_MS - 1);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    expect(ask(VERB_CLAIM, "k", owner_of(2, "f")), OUTCOME_CACHED);
}

CASE(clock, longest_durations_do_not_overflow)
{
    struct request in = owner(1);
    in.lease_ms = in.retain_ms = DURATION_MS_MAX;
    cr_assert(expect(ask(VERB_CLAIM, "k", in), OUTCOME_CLAIMED)->out.lease_left_ms ==
              DURATION_MS_MAX);
    expect(claim("k", 2), OUTCOME_IN_PROGRESS);
    cr_assert(expect(publish("k", 1, "A"), OUTCOME_OK)->out.retain_left_ms == DURATION_MS_MAX);
    world_sleep(&world, DURATION_MS_MAX - 1);
    expect(peek("k"), OUTCOME_CACHED);
}

/* ---- the fence only grows ---- */

CASE(fence, grows_across_release)
{
    uint64_t last = 0;
    for (uint8_t who = 1; who <= 20; who++) {
        uint64_t fence = fence_of(expect(claim("k", who), OUTCOME_CLAIMED));
        cr_assert(fence > last);
        last = fence;
        expect(release("k", who), OUTCOME_OK);
    }
}

CASE(fence, grows_across_takeover)
{
    uint64_t last = 0;
    for (uint8_t who = 1; who <= 10; who++) {
        uint64_t fence = fence_of(expect(claim("k", who), OUTCOME_CLAIMED));
        cr_assert(fence > last);
        last = fence;
        world_advance(&world, LEASE_MS);
    }
}

CASE(fence, grows_across_forget)
{
    uint64_t first = fence_of(expect(claim("k", 1), OUTCOME_CLAIMED));
    expect(publish("k", 1, "A"), OUTCOME_OK);
    expect(forget("k"), OUTCOME_OK);
    cr_assert(fence_of(expect(claim("k", 2), OUTCOME_CLAIMED)) > first);
}

CASE(fence, grows_across_expiry_and_sweep)
{
    uint64_t first = fence_of(expect(claim("k", 1), OUTCOME_CLAIMED));
    expect(publish("k", 1, "A"), OUTCOME_OK);
    world_advance(&world, RETAIN_MS);
    cr_assert(expire(10)->count == 1);
    world.wall_ms -= HOUR_MS;
    cr_assert(fence_of(expect(claim("k", 2), OUTCOME_CLAIMED)) > first);
}

CASE(fence, grows_although_the_clock_goes_back)
{
    uint64_t last = 0;
    for (uint8_t who = 1; who <= 20; who++) {
        uint64_t fence = fence_of(expect(claim("k", who), OUTCOME_CLAIMED));
        cr_assert(fence > last);
        last = fence;
        expect(release("k", who), OUTCOME_OK);
        world.wall_ms -= HOUR_MS;
    }
}

CASE(fence, grows_across_forget_although_the_clock_goes_back)
{
    uint64_t first = fence_of(expect(claim("k", 1), OUTCOME_CLAIMED));
    expect(publish("k", 1, "A"), OUTCOME_OK);
    expect(forget("k"), OUTCOME_OK);
    world.wall_ms -= HOUR_MS;
    cr_assert(fence_of(expect(claim("k", 2), OUTCOME_CLAIMED)) > first);
}

CASE(fence, grows_across_zero_retention_although_the_clock_goes_back)
{
    struct request in = owner(1);
    in.retain_ms = 0;
    uint64_t first = fence_of(expect(ask(VERB_CLAIM, "k", in), OUTCOME_CLAIMED));
    expect(publish("k", 1, "A"), OUTCOME_OK);
    expect(claim("other", 1), OUTCOME_CLAIMED);
    world_advance(&world, 1);
    cr_assert(fence_of(expect(claim("k", 2), OUTCOME_CLAIMED)) > first);
}

CASE(fence, is_kept_by_renew_and_publish)
{
    uint64_t fence = fence_of(expect(claim("k", 1), OUTCOME_CLAIMED));
    world_advance(&world, 10);
    cr_assert(fence_of(renew("k", 1)) == fence);
    world_advance(&world, 10);
    cr_assert(fence_of(publish("k", 1, "A")) == fence);
    cr_assert(fence_of(peek("k")) == fence);
}

/* ---- the clock goes back (R6) ---- */

CASE(clock_back, owner_keeps_the_key_for_one_lease_and_no_longer)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    world.wall_ms -= HOUR_MS;
    const struct op *op = expect(claim("k", 2), OUTCOME_IN_PROGRESS);
    cr_assert(op->out.lease_left_ms == LEASE_MS, "%lld left", (long long)op->out.lease_left_ms);
    world_advance(&world, LEASE_MS - 1);
    expect(claim("k", 2), OUTCOME_IN_PROGRESS);
    world_advance(&world, 1);
    cr_assert(expect(claim("k", 2), OUTCOME_CLAIMED)->out.taken_over);
}

CASE(clock_back, less_than_what_has_passed_needs_no_new_anchor)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    world_advance(&world, 20000);
    world.wall_ms -= 5000;
    cr_assert(expect(claim("k", 2), OUTCOME_IN_PROGRESS)->out.lease_left_ms ==
              LEASE_MS - 15000);
}

CASE(clock_back, owner_can_still_publish)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    world.wall_ms -= HOUR_MS;
    expect(publish("k", 1, "A"), OUTCOME_OK);
    expect_value(expect(claim("k", 2), OUTCOME_CACHED), "A");
}

CASE(clock_back, renewal_counts_from_the_new_time)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    world.wall_ms -= HOUR_MS;
    cr_assert(expect(renew("k", 1), OUTCOME_OK)->out.lease_left_ms == LEASE_MS);
    world_advance(&world, LEASE_MS);
    expect(claim("k", 2), OUTCOME_CLAIMED);
}

CASE(clock_back, answer_stays_the_answer)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    world.wall_ms -= HOUR_MS;
    expect_value(expect(claim("k", 2), OUTCOME_CACHED), "A");
    world_advance(&world, HOUR_MS + RETAIN_MS);
    expect(claim("k", 2), OUTCOME_CLAIMED);
}
