/* sharing.c - two handles on the same records, as two processes have them.
 *
 * Time stands still while a watch waits to be told, so that no second look can stand in for the
 * message. Polling of stores without messages belongs to the thread around them: offload_test.c. */
#include "tests/conform/conform.h"

/* ---- what one does, the other sees ---- */

SHARED_CASE(sharing, one_owner_and_one_answer)
{
    uint64_t fence = expect(claim("k", 1), OUTCOME_CLAIMED)->out.fence;
    there();
    cr_assert(expect(claim("k", 2), OUTCOME_IN_PROGRESS)->out.lease_left_ms == LEASE_MS);
    expect(publish("k", 2, "B"), OUTCOME_LOST);
    here();
    expect(publish("k", 1, "A"), OUTCOME_OK);
    there();
    expect_value(expect(claim("k", 2), OUTCOME_CACHED), "A");
    cr_assert(expect(peek("k"), OUTCOME_CACHED)->out.fence >= fence);
}

SHARED_CASE(sharing, the_owner_may_be_anywhere)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    there();
    expect(renew("k", 1), OUTCOME_OK);
    cr_assert(expect(claim("k", 1), OUTCOME_CLAIMED)->out.mine);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    here();
    expect(publish("k", 1, "A"), OUTCOME_OK);
    expect_value(expect(claim("k", 1), OUTCOME_CACHED), "A");
}

SHARED_CASE(sharing, a_lapsed_owner_is_succeeded_elsewhere)
{
    uint64_t fence = expect(claim("k", 1), OUTCOME_CLAIMED)->out.fence;
    world_advance(&world, LEASE_MS);
    there();
    const struct op *op = expect(claim("k", 2), OUTCOME_CLAIMED);
    cr_assert(op->out.taken_over && op->out.fence > fence);
    here();
    expect(renew("k", 1), OUTCOME_LOST);
    expect(publish("k", 1, "A"), OUTCOME_LOST);
}

SHARED_CASE(sharing, what_is_forgotten_is_forgotten_everywhere)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    there();
    expect_value(expect(peek("k"), OUTCOME_CACHED), "A");
    expect(forget("k"), OUTCOME_OK);
    here();
    expect(peek("k"), OUTCOME_ABSENT);
    expect(claim("k", 2), OUTCOME_CLAIMED);
}

/* Nobody there remembers the fences: they must be in the store. */
SHARED_CASE(sharing, fences_grow_past_what_another_dropped)
{
    uint64_t fence = 0;
    for (uint8_t i = 1; i <= 5; i++) {
        fence = expect(claim("k", i), OUTCOME_CLAIMED)->out.fence;
        expect(release("k", i), OUTCOME_OK);
    }
    there();
    cr_assert(expect(claim("k", 6), OUTCOME_CLAIMED)->out.fence > fence);
}

SHARED_CASE(sharing, fences_grow_past_what_another_swept)
{
    uint64_t fence = 0;
    for (uint8_t i = 1; i <= 5; i++) {
        fence = expect(claim("k", i), OUTCOME_CLAIMED)->out.fence;
        expect(release("k", i), OUTCOME_OK);
    }
    world_advance(&world, RETAIN_MS);
    expire(100);
    there();
    cr_assert(expect(claim("k", 6), OUTCOME_CLAIMED)->out.fence > fence);
}

/* ---- who waits there is told of what happens here ---- */

/* As a waiter has it: a claim that was not granted says what to wait for. */
static struct waiting *wait_there(void)
{
    there();
    const struct op *op = claim("k", 99);
    cr_assert(op->out.outcome != OUTCOME_CLAIMED);
    struct waiting *w = watch("k", op->out.version);
    cr_assert(w->finished == 0, "the watch fired before anything happened");
    here();
    return w;
}

static void expect_told(struct waiting *w)
{
    world_await(&world, &w->finished);
    expect_fired(w);
}

/* Two planes ask the ledger what is not there, and the ledger is polled. */
TOLD_CASE(told, of_a_claim)
{
    if (!one_plane()) return;
    there();
    struct waiting *w = watch("k", expect(peek("k"), OUTCOME_ABSENT)->out.version);
    here();
    expect(claim("k", 1), OUTCOME_CLAIMED);
    expect_told(w);
}

TOLD_CASE(told, of_a_publish)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct waiting *w = wait_there();
    expect(publish("k", 1, "A"), OUTCOME_OK);
    expect_told(w);
    there();
    expect_value(expect(claim("k", 2), OUTCOME_CACHED), "A");
}

TOLD_CASE(told, of_a_release)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct waiting *w = wait_there();
    expect(release("k", 1), OUTCOME_OK);
    expect_told(w);
    there();
    expect(claim("k", 2), OUTCOME_CLAIMED);
}

TOLD_CASE(told, of_a_takeover)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct waiting *w = wait_there();
    world.wall_ms += LEASE_MS;
    expect(claim("k", 2), OUTCOME_CLAIMED);
    expect_told(w);
}

TOLD_CASE(told, of_a_forget)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    struct waiting *w = wait_there();
    expect(forget("k"), OUTCOME_OK);
    expect_told(w);
}

TOLD_CASE(told, again_when_it_watches_again)
{
    for (uint8_t i = 1; i <= 20; i++) {
        expect(claim("k", i), OUTCOME_CLAIMED);
        struct waiting *w = wait_there();
        expect(release("k", i), OUTCOME_OK);
        expect_told(w);
    }
}

TOLD_CASE(told, all_who_wait)
{
    enum { WAITERS = 10 };
    struct waiting *w[2 * WAITERS];
    expect(claim("k", 1), OUTCOME_CLAIMED);
    uint64_t version = expect(claim("k", 99), OUTCOME_IN_PROGRESS)->out.version;
    for (size_t i = 0; i < WAITERS; i++) {
        w[i] = watch("k", version);
        w[WAITERS + i] = wait_there();
    }
    expect(publish("k", 1, "A"), OUTCOME_OK);
    for (size_t i = 0; i < 2 * WAITERS; i++) expect_told(w[i]);
}

/* Another watch that is told shows that the messages have come. */
TOLD_CASE(told, not_of_a_renewal)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct waiting *w = wait_there();
    expect(renew("k", 1), OUTCOME_OK);
    expect(claim("other", 1), OUTCOME_CLAIMED);
    there();
    uint64_t version = expect(claim("other", 99), OUTCOME_IN_PROGRESS)->out.version;
    struct waiting *other = watch("other", version);
    here();
    expect(publish("other", 1, "A"), OUTCOME_OK);
    expect_told(other);
    there();
    expect_parked_then_cancel(w);
}
