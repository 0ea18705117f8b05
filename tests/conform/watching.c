/* watching.c - "tell me once when it is no longer what I saw": never lost, never twice.
 *
 * Whoever waits has seen a version in an answer: of a peek or of a claim that was refused. On
 * two planes these may come from different ones, so the cases watch both. */
#include "tests/conform/conform.h"

struct both {
    struct waiting *by_peek, *by_claim;
};

static struct both watch_pending(const char *name)
{
    uint64_t peeked = expect(peek(name), OUTCOME_IN_PROGRESS)->out.version;
    uint64_t refused = expect(claim(name, 9), OUTCOME_IN_PROGRESS)->out.version;
    struct both b = { watch(name, peeked), watch(name, refused) };
    cr_assert(b.by_peek->finished == 0 && b.by_claim->finished == 0);
    return b;
}

static void expect_both_fired(struct both b)
{
    expect_fired(b.by_peek);
    expect_fired(b.by_claim);
}

CASE(watch, fires_on_publish)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct both b = watch_pending("k");
    expect(publish("k", 1, "A"), OUTCOME_OK);
    expect_both_fired(b);
}

CASE(watch, fires_on_release)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct both b = watch_pending("k");
    expect(release("k", 1), OUTCOME_OK);
    expect_both_fired(b);
}

CASE(watch, fires_on_takeover)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct both b = watch_pending("k");
    world_advance(&world, LEASE_MS);
    expect(claim("k", 2), OUTCOME_CLAIMED);
    expect_both_fired(b);
}

CASE(watch, fires_on_forget)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct both b = watch_pending("k");
    world_advance(&world, LEASE_MS);
    expect(forget("k"), OUTCOME_OK);
    expect_both_fired(b);
}

CASE(watch, of_an_answer_fires_on_forget)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    struct waiting *peeked = watch("k", expect(peek("k"), OUTCOME_CACHED)->out.version);
    struct waiting *cached = watch("k", expect(claim("k", 9), OUTCOME_CACHED)->out.version);
    cr_assert(peeked->finished == 0 && cached->finished == 0);
    expect(forget("k"), OUTCOME_OK);
    expect_fired(peeked);
    expect_fired(cached);
}

CASE(watch, of_nothing_fires_on_claim)
{
    struct waiting *w = watch("k", expect(peek("k"), OUTCOME_ABSENT)->out.version);
    cr_assert(w->finished == 0);
    expect(claim("k", 1), OUTCOME_CLAIMED);
    expect_fired(w);
}

CASE(watch, does_not_fire_on_renew)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct both b = watch_pending("k");
    world_advance(&world, 1000);
    expect(renew("k", 1), OUTCOME_OK);
    expect_parked_then_cancel(b.by_peek);
    expect_parked_then_cancel(b.by_claim);
}

CASE(watch, does_not_fire_on_what_changes_nothing)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct both b = watch_pending("k");
    expect(claim("k", 2), OUTCOME_IN_PROGRESS);
    expect(publish("k", 2, "B"), OUTCOME_LOST);
    expect(release("k", 2), OUTCOME_LOST);
    expect(forget("k"), OUTCOME_IN_PROGRESS);
    expect(ask(VERB_CLAIM, "k", owner_of(3, "other")), OUTCOME_MISMATCH);
    expect_parked_then_cancel(b.by_peek);
    expect_parked_then_cancel(b.by_claim);
}

CASE(watch, does_not_fire_for_another_key)
{
    expect(claim("a", 1), OUTCOME_CLAIMED);
    expect(claim("b", 1), OUTCOME_CLAIMED);
    struct both a = watch_pending("a"), b = watch_pending("b");
    expect(publish("b", 1, "B"), OUTCOME_OK);
    expect_both_fired(b);
    expect_parked_then_cancel(a.by_peek);
    expect_parked_then_cancel(a.by_claim);
}

CASE(watch, fires_at_once_when_it_is_different_already)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    uint64_t peeked = peek("k")->out.version, refused = claim("k", 9)->out.version;
    expect(publish("k", 1, "A"), OUTCOME_OK);
    expect_fired(watch("k", peeked));
    expect_fired(watch("k", refused));
    expect_fired(watch("k", 0));
}

CASE(watch, fires_at_once_when_it_is_gone_already)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    uint64_t peeked = peek("k")->out.version, refused = claim("k", 9)->out.version;
    expect(release("k", 1), OUTCOME_OK);
    expect_fired(watch("k", peeked));
    expect_fired(watch("k", refused));
}

CASE(watch, tells_a_successor_from_the_owner_seen)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    uint64_t seen = peek("k")->out.version;
    expect(release("k", 1), OUTCOME_OK);
    expect(claim("k", 2), OUTCOME_CLAIMED);
    expect_fired(watch("k", seen));
}

CASE(watch, canceled_finishes_once_with_an_error)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct both b = watch_pending("k");
    expect_parked_then_cancel(b.by_peek);
    expect_parked_then_cancel(b.by_claim);
    cr_assert(b.by_peek->op->err.code == ERR_CANCELED);
    cr_assert(!b.by_peek->op->out.value && !b.by_peek->op->changed);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    cr_assert(b.by_peek->finished == 1 && b.by_claim->finished == 1);
}

CASE(watch, canceled_twice_finishes_once)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct both b = watch_pending("k");
    store_cancel(store, b.by_peek->op);
    expect_parked_then_cancel(b.by_peek);
    expect_parked_then_cancel(b.by_claim);
}

CASE(watch, canceled_before_it_was_parked_finishes_once)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct key key = key_of("s", "k");
    struct op *op = op_new(VERB_WATCH, &key, NULL);
    op->seen = peek("k")->out.version;
    struct waiting *w = submit(op);
    store_cancel(store, op);
    cr_assert(w->finished == 0);
    world_settle(&world);
    cr_assert(w->finished == 1);
}

CASE(watch, canceled_in_the_turn_of_the_change_finishes_once)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct both b = watch_pending("k");
    struct waiting *p = submit_ask(VERB_PUBLISH, "k", owner_with(1, "A"));
    store_cancel(store, b.by_peek->op);
    store_cancel(store, b.by_claim->op);
    world_settle(&world);
    cr_assert(p->finished == 1 && b.by_peek->finished == 1 && b.by_claim->finished == 1);
}

CASE(watch, many_on_one_key_all_fire)
{
    enum { MANY = 200 };
    struct waiting *w[MANY];
    expect(claim("k", 1), OUTCOME_CLAIMED);
    uint64_t peeked = peek("k")->out.version, refused = claim("k", 9)->out.version;
    for (unsigned i = 0; i < MANY; i++) w[i] = watch("k", i % 2 ? peeked : refused);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    for (unsigned i = 0; i < MANY; i++) expect_fired(w[i]);
}

CASE(watch, is_one_shot)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct both b = watch_pending("k");
    expect(release("k", 1), OUTCOME_OK);
    expect(claim("k", 2), OUTCOME_CLAIMED);
    expect(publish("k", 2, "A"), OUTCOME_OK);
    expect(forget("k"), OUTCOME_OK);
    expect_both_fired(b);
}

CASE(watch, submitted_with_the_change_misses_nothing)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    struct key key = key_of("s", "k");
    struct op *op = op_new(VERB_WATCH, &key, NULL);
    op->seen = peek("k")->out.version;
    struct waiting *w = submit(op), *p = submit_ask(VERB_PUBLISH, "k", owner_with(1, "A"));
    world_settle(&world);
    expect_fired(w);
    cr_assert(p->finished == 1);
}
