/* batches.c - many ops in one turn are as good as one after the other. */
#include "tests/conform/conform.h"

CASE(batch, of_claims_on_one_key_has_one_winner)
{
    enum { MANY = 50 };
    struct waiting *w[MANY];
    for (uint8_t i = 0; i < MANY; i++)
        w[i] = submit_ask(VERB_CLAIM, "k", owner((uint8_t)(i + 1)));
    world_settle(&world);
    cr_assert(outcome_of(w[0]) == OUTCOME_CLAIMED);
    for (unsigned i = 1; i < MANY; i++) cr_assert(outcome_of(w[i]) == OUTCOME_IN_PROGRESS);
}

CASE(batch, of_takeovers_has_one_winner)
{
    enum { MANY = 50 };
    struct waiting *w[MANY];
    expect(claim("k", 99), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS);
    for (uint8_t i = 0; i < MANY; i++)
        w[i] = submit_ask(VERB_CLAIM, "k", owner((uint8_t)(i + 1)));
    world_settle(&world);
    unsigned claimed = 0;
    for (unsigned i = 0; i < MANY; i++) claimed += outcome_of(w[i]) == OUTCOME_CLAIMED;
    cr_assert(claimed == 1);
    expect(publish("k", 99, "A"), OUTCOME_LOST);
}

CASE(batch, of_many_keys_grants_them_all)
{
    enum { MANY = 600 };
    static struct waiting *w[MANY];
    char name[16];
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "k%u", i);
        w[i] = submit_ask(VERB_CLAIM, name, owner(1));
    }
    world_settle(&world);
    for (unsigned i = 0; i < MANY; i++) cr_assert(outcome_of(w[i]) == OUTCOME_CLAIMED);
    cr_assert(stats()->stats.pending == MANY);
}

CASE(batch, of_a_whole_life_goes_in_order)
{
    struct request value = owner_with(1, "A");
    struct waiting *w[] = {
        submit_ask(VERB_CLAIM, "k", owner(1)),   submit_ask(VERB_CLAIM, "k", owner(2)),
        submit_ask(VERB_RENEW, "k", owner(1)),   submit_ask(VERB_PUBLISH, "k", value),
        submit_ask(VERB_CLAIM, "k", owner(2)),   submit_ask(VERB_PUBLISH, "k", value),
        submit_ask(VERB_FORGET, "k", owner(0)),  submit_ask(VERB_CLAIM, "k", owner(3)),
        submit_ask(VERB_RELEASE, "k", owner(3)), submit_ask(VERB_PEEK, "k", owner(0)),
    };
    static const enum outcome in_order[] = {
        OUTCOME_CLAIMED, OUTCOME_IN_PROGRESS, OUTCOME_OK,      OUTCOME_OK, OUTCOME_CACHED,
        OUTCOME_OK,      OUTCOME_OK,          OUTCOME_CLAIMED, OUTCOME_OK, OUTCOME_ABSENT,
    };
    world_settle(&world);
    for (size_t i = 0; i < sizeof w / sizeof w[0]; i++) {
        enum outcome got = outcome_of(w[i]);
        cr_assert(!one_plane() || got == in_order[i], "step %zu: %s", i, outcome_name(got));
    }
}

CASE(batch, of_two_owners_has_one_value)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS);
    struct waiting *first = submit_ask(VERB_PUBLISH, "k", owner_with(1, "A"));
    struct waiting *other = submit_ask(VERB_CLAIM, "k", owner(2));
    world_settle(&world);
    cr_assert(outcome_of(first) == OUTCOME_OK);
    cr_assert(outcome_of(other) == OUTCOME_CACHED);
    expect_value(other->op, "A");
}

CASE(batch, with_a_refused_op_carries_out_the_others)
{
    struct waiting *bad = submit_ask(VERB_PUBLISH, "none", owner_with(1, "A"));
    struct waiting *good = submit_ask(VERB_CLAIM, "k", owner(1));
    struct waiting *also_bad = submit_ask(VERB_RELEASE, "none", owner(1));
    world_settle(&world);
    cr_assert(outcome_of(bad) == OUTCOME_LOST);
    cr_assert(outcome_of(good) == OUTCOME_CLAIMED);
    cr_assert(outcome_of(also_bad) == OUTCOME_LOST);
}

CASE(batch, of_fences_is_strictly_growing)
{
    enum { MANY = 30 };
    uint64_t last = 0;
    for (uint8_t i = 0; i < MANY; i++) {
        struct waiting *w = submit_ask(VERB_CLAIM, "k", owner((uint8_t)(i + 1)));
        world_settle(&world);
        cr_assert(outcome_of(w) == OUTCOME_CLAIMED && w->op->out.fence > last);
        last = w->op->out.fence;
        submit_ask(VERB_RELEASE, "k", owner((uint8_t)(i + 1)));
        world_settle(&world);
    }
}

CASE(batch, mixes_lists_and_keys)
{
    struct waiting *c = submit_ask(VERB_CLAIM, "k", owner(1));
    struct op *expire_op = op_new(VERB_EXPIRE, NULL, NULL);
    expire_op->limit = 10;
    struct waiting *e = submit(expire_op), *s = submit(op_new(VERB_STATS, NULL, NULL));
    world_settle(&world);
    cr_assert(outcome_of(c) == OUTCOME_CLAIMED);
    cr_assert(outcome_of(e) == OUTCOME_OK && e->op->count == 0);
    cr_assert(outcome_of(s) == OUTCOME_OK);
}

/* ---- what holds for every op ---- */

CASE(op, none_finishes_inside_submit)
{
    for (int verb = 0; verb < CLAIM_VERBS; verb++) {
        struct key key = key_of("s", "k");
        struct request in = owner(1);
        struct op *op = op_new((enum verb)verb, verb_info[verb].keyed ? &key : NULL, &in);
        op->limit = 1;
        op->seen = 1; /* nothing has that version: a watch fires, but not now */
        cr_assert(submit(op)->finished == 0);
    }
    world_settle(&world);
}

CASE(op, may_be_submitted_again_and_forgets_its_answer)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    struct key key = key_of("s", "k");
    struct op *op = op_new(VERB_PEEK, &key, NULL);
    world_run(&world, store, op);
    cr_assert(op->out.outcome == OUTCOME_CACHED && op->out.value);
    expect(forget("k"), OUTCOME_OK);
    world_run(&world, store, op);
    cr_assert(op->out.outcome == OUTCOME_ABSENT && !op->out.value && op->out.fence == 0);
    op_free(op);
}

CASE(op, tells_the_epoch_of_the_store)
{
    uint64_t epoch = peek("k")->epoch;
    cr_assert(epoch != 0 && epoch == store->epoch);
    expect(claim("k", 1), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS);
    cr_assert(peek("k")->epoch == epoch);
    cr_assert(stats()->epoch == epoch);
}

CASE(op, answers_are_not_degraded_while_all_is_well)
{
    cr_assert(!expect(claim("k", 1), OUTCOME_CLAIMED)->out.degraded);
    cr_assert(!expect(claim("k", 2), OUTCOME_IN_PROGRESS)->out.degraded);
    cr_assert(!expect(publish("k", 1, "A"), OUTCOME_OK)->out.degraded);
    cr_assert(!expect(peek("k"), OUTCOME_CACHED)->out.degraded);
    cr_assert(!expect(forget("k"), OUTCOME_OK)->out.degraded);
}

CASE(op, cancel_of_anything_but_a_watch_is_only_a_hint)
{
    struct waiting *w = submit_ask(VERB_CLAIM, "k", owner(1));
    store_cancel(store, w->op);
    world_settle(&world);
    cr_assert(outcome_of(w) == OUTCOME_CLAIMED);
}

Test(suite, runs_on_every_store_there_is)
{
    enum { STORES_IN_CASE = 12 };
    cr_assert(world_store_count == STORES_IN_CASE + 1, /* "embedded" is for runs */
              "world.c and CASE in conform.h must name the same stores");
}
