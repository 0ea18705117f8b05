/* lease_test.c - held leases are renewed at thirds, and their owner is told the truth. */
#include "engine/engine.h"

#include "tests/support/caller.h"
#include "tests/support/faulty.h"

#include <criterion/criterion.h>

static struct world world;
static struct store *store;
static struct engine *engine;
static struct caller owner;

struct told {
    unsigned certain, uncertain;
    int64_t at_ms;
    struct token token;
    uint64_t fence;
};

static void on_lost(const struct owner *who, const struct token *token, uint64_t fence,
                    int64_t lease_ms, bool certain)
{
    struct told *told = who->ctx;
    (void)lease_ms;
    if (certain)
        told->certain++;
    else
        told->uncertain++;
    told->at_ms = world.mono_ms;
    told->token = *token;
    told->fence = fence;
}

static struct told told;

static void setup(void)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct err err;
    config.sweep_ms = 0;
    world_init(&world, 1);
    store = faulty_open(world_open(&world, "memory"), &world.env);
    cr_assert(engine_open(store, &world.env, &config, &engine, &err) == 0);
}

static void teardown(void)
{
    engine_stop(engine);
    faulty_let_go(store);
    world_settle(&world);
    cr_assert(engine_idle(engine));
    engine_free(engine);
    world_close(&world, store);
    world_fini(&world);
}

TestSuite(lease, .init = setup, .fini = teardown);

static void hold(int64_t lease_ms)
{
    struct call_args a = caller_claim_args("k", 0);
    a.renew = true;
    a.in.lease_ms = lease_ms;
    a.owner = (struct owner){ .lost = on_lost, .ctx = &told };
    caller_call(&owner, engine, &a);
    world_settle(&world);
    cr_assert(owner.outcome == OUTCOME_CLAIMED);
}

static unsigned renewals(void)
{
    return faulty_count(store, VERB_RENEW);
}

static enum outcome try_claim(void)
{
    static struct caller c;
    caller_claim(&c, engine, "k", 0);
    world_settle(&world);
    cr_assert(c.finished == 1 && c.error == 0);
    return c.outcome;
}

static void nobody_was_told(void)
{
    cr_assert(told.certain == 0 && told.uncertain == 0);
}

Test(lease, is_renewed_every_third)
{
    hold(30000);
    world_advance(&world, 9999);
    cr_assert(renewals() == 0);
    world_advance(&world, 1);
    cr_assert(renewals() == 1);
    world_advance(&world, 9999);
    cr_assert(renewals() == 1);
    world_advance(&world, 1);
    cr_assert(renewals() == 2);
    world_advance(&world, 280000);
    cr_assert(renewals() == 30 && engine_stats(engine).renewals == 30);
    cr_assert(try_claim() == OUTCOME_IN_PROGRESS);
    nobody_was_told();
}

Test(lease, is_left_alone_unless_asked)
{
    caller_claim(&owner, engine, "k", 0);
    world_advance(&world, 30000);
    cr_assert(renewals() == 0 && engine_stats(engine).held == 0);
    cr_assert(try_claim() == OUTCOME_CLAIMED);
}

Test(lease, of_zero_is_not_held)
{
    hold(0);
    world_advance(&world, 1000);
    cr_assert(renewals() == 0 && engine_stats(engine).held == 0);
    nobody_was_told();
}

Test(lease, that_is_very_short_is_not_renewed_in_a_frenzy)
{
    hold(6);
    world_advance(&world, 1000);
    cr_assert(renewals() <= 100);
}

Test(lease, ends_with_publish)
{
    static struct caller p;
    hold(30000);
    caller_publish(&p, engine, "k", &owner.token, "A");
    world_advance(&world, 60000);
    cr_assert(p.outcome == OUTCOME_OK && renewals() == 0 && engine_stats(engine).held == 0);
    nobody_was_told();
}

Test(lease, ends_with_release)
{
    static struct caller r;
    hold(30000);
    caller_release(&r, engine, "k", &owner.token);
    world_advance(&world, 60000);
    cr_assert(r.outcome == OUTCOME_OK && renewals() == 0 && engine_stats(engine).held == 0);
    nobody_was_told();
}

Test(lease, ends_with_publish_while_a_renewal_is_out)
{
    static struct caller p;
    hold(30000);
    faulty_set(store, VERB_RENEW, FAULT_HOLD, 1);
    world_advance(&world, 10000);
    cr_assert(faulty_held(store) == 1);
    caller_publish(&p, engine, "k", &owner.token, "A");
    world_settle(&world);
    faulty_let_go(store); /* it comes back as lost: by then nobody holds anything */
    world_advance(&world, 60000);
    cr_assert(p.outcome == OUTCOME_OK && renewals() == 1);
    nobody_was_told();
}

/* ---- the owner is told ---- */

static void drop_behind_its_back(void)
{
    struct key key = key_of("s", "k");
    struct request in = { .force = true };
    struct op *op = op_new(VERB_FORGET, &key, &in);
    world_run(&world, store, op);
    cr_assert(op->out.outcome == OUTCOME_OK);
    op_free(op);
}

Test(lease, is_not_lost_to_its_owners_own_release)
{
    static struct caller c;
    hold(30000);
    faulty_set(store, VERB_RENEW, FAULT_HOLD, 1);
    world_advance(&world, 10000);
    cr_assert(faulty_held(store) == 1);
    faulty_set(store, VERB_RELEASE, FAULT_LOSE_ANSWER, 1);
    caller_release(&c, engine, "k", &owner.token);
    world_settle(&world);
    cr_assert(c.finished == 0);
    faulty_let_go(store);
    world_settle(&world);
    nobody_was_told();
    cr_assert(engine_stats(engine).held == 0);
    world_advance(&world, 1000);
    cr_assert(c.finished == 1);
    nobody_was_told();
}

Test(lease, is_lost_to_a_successor_although_its_owner_is_releasing_it)
{
    static struct caller c;
    hold(300);
    faulty_set(store, VERB_RENEW, FAULT_HOLD, 1);
    world_advance(&world, 300);
    cr_assert(try_claim() == OUTCOME_CLAIMED);
    faulty_set(store, VERB_RELEASE, FAULT_LOSE_ANSWER, 1);
    caller_release(&c, engine, "k", &owner.token);
    world_settle(&world);
    faulty_let_go(store);
    world_settle(&world);
    cr_assert(told.certain == 1);
    world_advance(&world, 1000);
    cr_assert(c.finished == 1 && c.outcome == OUTCOME_LOST);
}

Test(lease, that_is_lost_is_told_for_certain_and_once)
{
    hold(30000);
    drop_behind_its_back();
    world_advance(&world, 10000);
    cr_assert(told.certain == 1 && told.uncertain == 0);
    cr_assert(token_eq(&told.token, &owner.token) && told.fence == owner.out.fence);
    world_advance(&world, 100000);
    cr_assert(told.certain == 1 && renewals() == 1 && engine_stats(engine).held == 0);
}

Test(lease, that_cannot_be_renewed_is_told_when_it_is_over)
{
    int64_t start_ms = world.mono_ms;
    hold(30000);
    faulty_set(store, VERB_RENEW, FAULT_REFUSE, FAULTY_ALWAYS);
    world_advance(&world, 29000);
    nobody_was_told();
    world_advance(&world, 2000);
    cr_assert(told.uncertain == 1 && told.certain == 0);
    cr_assert(told.at_ms >= start_ms + 30000 && told.at_ms <= start_ms + 31000);
    world_advance(&world, 60000);
    cr_assert(told.uncertain == 1, "once");
}

Test(lease, that_comes_back_is_held_again)
{
    hold(30000);
    faulty_set(store, VERB_RENEW, FAULT_REFUSE, FAULTY_ALWAYS);
    world_advance(&world, 40000);
    cr_assert(told.uncertain == 1);
    faulty_heal(store);
    world_advance(&world, 2000);
    cr_assert(try_claim() == OUTCOME_IN_PROGRESS, "nobody took it, and now it is renewed");
    faulty_set(store, VERB_RENEW, FAULT_REFUSE, FAULTY_ALWAYS);
    world_advance(&world, 40000);
    cr_assert(told.uncertain == 2, "it ran out again");
}

Test(lease, that_ran_out_and_was_taken_is_told_for_certain_then)
{
    hold(30000);
    faulty_set(store, VERB_RENEW, FAULT_REFUSE, FAULTY_ALWAYS);
    world_advance(&world, 31000);
    cr_assert(told.uncertain == 1);
    cr_assert(try_claim() == OUTCOME_CLAIMED);
    faulty_heal(store);
    world_advance(&world, 2000);
    cr_assert(told.certain == 1 && engine_stats(engine).held == 0);
}

Test(lease, whose_renewal_hangs_is_told_when_it_is_over)
{
    hold(30000);
    faulty_set(store, VERB_RENEW, FAULT_HOLD, 1);
    world_advance(&world, 29999);
    nobody_was_told();
    world_advance(&world, 1);
    cr_assert(told.uncertain == 1);
    faulty_let_go(store);
    world_advance(&world, 1000);
    cr_assert(told.certain == 0 && engine_stats(engine).held == 1);
}

Test(lease, survives_a_renewal_that_fails_in_between)
{
    hold(30000);
    faulty_set(store, VERB_RENEW, FAULT_REFUSE, 5);
    world_advance(&world, 120000);
    nobody_was_told();
    cr_assert(try_claim() == OUTCOME_IN_PROGRESS);
}

Test(lease, survives_a_renewal_whose_answer_was_lost)
{
    hold(30000);
    faulty_set(store, VERB_RENEW, FAULT_LOSE_ANSWER, 3);
    world_advance(&world, 120000);
    nobody_was_told();
    cr_assert(try_claim() == OUTCOME_IN_PROGRESS);
}

Test(lease, counts_from_before_the_question)
{
    struct call_args a = caller_claim_args("k", 0);
    a.renew = true;
    a.owner = (struct owner){ .lost = on_lost, .ctx = &told };
    faulty_set(store, VERB_CLAIM, FAULT_HOLD, 1);
    int64_t asked_ms = world.mono_ms;
    caller_call(&owner, engine, &a);
    world_advance(&world, 5000); /* the request is on the way */
    faulty_let_go(store);
    world_settle(&world);
    cr_assert(owner.outcome == OUTCOME_CLAIMED);
    faulty_set(store, VERB_RENEW, FAULT_HOLD, FAULTY_ALWAYS);
    world_advance(&world, 40000);
    cr_assert(told.uncertain == 1 && told.at_ms == asked_ms + 30000,
              "it must not be trusted for longer than it was asked for");
}

Test(lease, follows_an_explicit_renewal)
{
    static struct caller r;
    hold(30000);
    struct call_args a = { .verb = VERB_RENEW,
                           .key = key_of("s", "k"),
                           .in = { .token = owner.token, .lease_ms = 3000 } };
    caller_call(&r, engine, &a);
    world_settle(&world);
    cr_assert(r.outcome == OUTCOME_OK && renewals() == 1);
    world_advance(&world, 999);
    cr_assert(renewals() == 1);
    world_advance(&world, 1);
    cr_assert(renewals() == 2, "a third of three seconds");
}

Test(lease, is_let_go_by_stop_while_a_renewal_is_out)
{
    hold(30000);
    faulty_set(store, VERB_RENEW, FAULT_HOLD, 1);
    world_advance(&world, 10000);
    engine_stop(engine);
    world_settle(&world);
    cr_assert(engine_stats(engine).held == 0 && !engine_idle(engine));
    faulty_let_go(store);
    world_settle(&world);
    cr_assert(engine_idle(engine));
    nobody_was_told();
}

Test(lease, of_a_promoted_waiter_is_held_too)
{
    static struct caller first, r;
    hold(30000);
    struct call_args a = caller_claim_args("k", 60000);
    a.renew = true;
    caller_call(&first, engine, &a);
    world_settle(&world);
    caller_release(&r, engine, "k", &owner.token);
    world_settle(&world);
    cr_assert(first.outcome == OUTCOME_CLAIMED && engine_stats(engine).held == 1);
    world_advance(&world, 300000);
    cr_assert(try_claim() == OUTCOME_IN_PROGRESS);
}
