/* wait_test.c - the line of callers who wait for one key. */
#include "engine/engine.h"

#include "tests/support/caller.h"
#include "tests/support/faulty.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { CROWD = 100 };

static struct world world;
static struct store *store;
static struct engine *engine;
static struct caller owner;

static void start_engine(size_t waiters_max)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct err err;
    config.sweep_ms = 0;
    config.waiters_max = waiters_max;
    cr_assert(engine_open(store, &world.env, &config, &engine, &err) == 0);
}

static void stop_engine(void)
{
    engine_stop(engine);
    faulty_let_go(store);
    world_settle(&world);
    cr_assert(engine_idle(engine));
    engine_free(engine);
}

/* Every test starts with an owner on "k", its lease 30 s. */
static void own_k(void)
{
    caller_claim(&owner, engine, "k", 0);
    world_settle(&world);
    cr_assert(owner.outcome == OUTCOME_CLAIMED);
}

static void setup(void)
{
    world_init(&world, 1);
    store = faulty_open(world_open(&world, "memory"), &world.env);
    start_engine(1000);
    own_k();
}

static void teardown(void)
{
    stop_engine();
    world_close(&world, store);
    world_fini(&world);
}

TestSuite(wait, .init = setup, .fini = teardown);

static void wait_for(struct caller *c, int64_t wait_ms)
{
    caller_claim(c, engine, "k", wait_ms);
    world_settle(&world);
    cr_assert(c->finished == 0, "it does not wait");
}

static void publish(void)
{
    static struct caller p;
    caller_publish(&p, engine, "k", &owner.token, "A");
    world_settle(&world);
    cr_assert(p.outcome == OUTCOME_OK);
}

static void release(const struct token *token)
{
    static struct caller r;
    caller_release(&r, engine, "k", token);
    world_settle(&world);
    cr_assert(r.outcome == OUTCOME_OK);
}

static void expect(const struct caller *c, enum outcome outcome)
{
    cr_assert(c->finished == 1, "finished %u times", c->finished);
    cr_assert(c->error == 0, "error %d", c->error);
    cr_assert(c->outcome == outcome, "%s", outcome_name(c->outcome));
}

/* ---- who is answered ---- */

Test(wait, zero_is_not_waiting)
{
    static struct caller c;
    caller_claim(&c, engine, "k", 0);
    world_settle(&world);
    expect(&c, OUTCOME_IN_PROGRESS);
    cr_assert(c.out.lease_left_ms == 30000 && c.waited_ms == 0);
}

Test(wait, publish_answers_everybody)
{
    static struct caller crowd[CROWD];
    for (size_t i = 0; i < CROWD; i++) wait_for(&crowd[i], 60000);
    cr_assert(engine_stats(engine).waiters == CROWD);
    world_advance(&world, 10);
    publish();
    for (size_t i = 0; i < CROWD; i++) {
        expect(&crowd[i], OUTCOME_CACHED);
        cr_assert(strcmp(crowd[i].value, "A") == 0 && crowd[i].waited_ms == 10);
    }
    struct engine_stats stats = engine_stats(engine);
    cr_assert(stats.waiters == 0);
    cr_assert(histogram_count(&stats.waits) == CROWD && stats.waits.sum == CROWD * 10000);
}

Test(wait, a_crowd_costs_as_much_as_one)
{
    static struct caller crowd[CROWD];
    for (size_t i = 0; i < CROWD; i++) wait_for(&crowd[i], 60000);
    publish();
    cr_assert(faulty_count(store, VERB_WATCH) == 1);
    cr_assert(faulty_count(store, VERB_CLAIM) == 3, "%u: the owner, the first, the head again",
              faulty_count(store, VERB_CLAIM));
}

/* Sets the scene: a watch that is on its way while the owner publishes. */
static void publish_before_the_watch(struct caller *waiter)
{
    faulty_set(store, VERB_WATCH, FAULT_HOLD, 1);
    wait_for(waiter, 60000);
    publish();
    cr_assert(waiter->finished == 0 && faulty_held(store) == 1);
}

Test(wait, a_watch_that_finds_the_answer_brings_it)
{
    static struct caller c;
    publish_before_the_watch(&c);
    unsigned before = faulty_count(store, VERB_CLAIM);
    faulty_let_go(store);
    world_settle(&world);
    expect(&c, OUTCOME_CACHED);
    cr_assert(strcmp(c.value, "A") == 0);
    cr_assert(faulty_count(store, VERB_CLAIM) == before, "nobody had to ask again");
}

Test(wait, what_a_watch_brings_is_not_for_who_came_after_it_was_set)
{
    static struct caller early, late;
    faulty_set(store, VERB_WATCH, FAULT_HOLD, 1);
    wait_for(&early, 60000);
    wait_for(&late, 60000);
    publish();
    unsigned before = faulty_count(store, VERB_CLAIM);
    faulty_let_go(store);
    world_settle(&world);
    expect(&early, OUTCOME_CACHED);
    expect(&late, OUTCOME_CACHED);
    cr_assert(faulty_count(store, VERB_CLAIM) == before + 1, "the late one asked for itself");
}

/* They come in one turn: the first one asks for all of them. */
static struct caller *at_once(const char *name, size_t count, int64_t wait_ms)
{
    static struct caller crowd[CROWD];
    for (size_t i = 0; i < count; i++) {
        crowd[i] = (struct caller){ 0 };
        caller_claim(&crowd[i], engine, name, wait_ms);
    }
    return crowd;
}

Test(wait, a_crowd_at_once_costs_as_much_as_one)
{
    struct caller *crowd = at_once("k", CROWD, 60000);
    cr_assert(faulty_count(store, VERB_CLAIM) == 1, "the owner");
    world_settle(&world);
    cr_assert(faulty_count(store, VERB_CLAIM) == 2, "and the first");
    cr_assert(engine_stats(engine).waiters == CROWD);
    publish();
    for (size_t i = 0; i < CROWD; i++) expect(&crowd[i], OUTCOME_CACHED);
    cr_assert(faulty_count(store, VERB_CLAIM) == 3 && faulty_count(store, VERB_WATCH) == 1);
}

Test(wait, a_crowd_at_once_on_a_free_key_has_one_owner)
{
    struct caller *crowd = at_once("free", CROWD, 60000);
    world_settle(&world);
    expect(&crowd[0], OUTCOME_CLAIMED);
    for (size_t i = 1; i < CROWD; i++) cr_assert(crowd[i].finished == 0);
    cr_assert(engine_stats(engine).waiters == CROWD - 1);
}

Test(wait, a_crowd_at_once_on_an_answered_key_asks_once)
{
    publish();
    unsigned before = faulty_count(store, VERB_CLAIM);
    struct caller *crowd = at_once("k", CROWD, 60000);
    world_settle(&world);
    for (size_t i = 0; i < CROWD; i++) expect(&crowd[i], OUTCOME_CACHED);
    cr_assert(faulty_count(store, VERB_CLAIM) == before + 1);
}

/* Whoever came after the question was asked is not told its answer (E3), but lines up. */
Test(wait, a_crowd_that_comes_while_one_asks_has_one_more_ask)
{
    struct caller first = { 0 };
    publish();
    unsigned before = faulty_count(store, VERB_CLAIM);
    faulty_set(store, VERB_CLAIM, FAULT_HOLD, 1);
    caller_claim(&first, engine, "k", 60000);
    world_settle(&world);
    struct caller *crowd = at_once("k", CROWD, 60000);
    world_settle(&world);
    cr_assert(faulty_count(store, VERB_CLAIM) == before + 1);
    faulty_let_go(store);
    world_settle(&world);
    expect(&first, OUTCOME_CACHED);
    for (size_t i = 0; i < CROWD; i++) expect(&crowd[i], OUTCOME_CACHED);
    cr_assert(faulty_count(store, VERB_CLAIM) == before + 2);
}

/* The watch need not look again if the claim spoke for all who wait (E3). */
Test(wait, watch_of_a_crowd_that_was_asked_for_is_told_what_was_heard)
{
    faulty_hears(store, 7);
    at_once("k", CROWD, 60000);
    world_settle(&world);
    cr_assert(faulty_count(store, VERB_WATCH) == 1 && faulty_watch_heard(store) == 7);
    publish();
}

Test(wait, watch_of_one_who_waits_alone_is_told_what_was_heard)
{
    struct caller alone = { 0 };
    faulty_hears(store, 7);
    wait_for(&alone, 60000);
    cr_assert(faulty_count(store, VERB_WATCH) == 1 && faulty_watch_heard(store) == 7);
    publish();
}

Test(wait, watch_for_one_who_came_after_the_claim_was_sent_has_to_look)
{
    struct caller first = { 0 }, late = { 0 };
    faulty_hears(store, 7);
    faulty_set(store, VERB_CLAIM, FAULT_HOLD, 1);
    wait_for(&first, 60000);
    wait_for(&late, 60000);
    faulty_let_go(store);
    world_settle(&world);
    cr_assert(faulty_count(store, VERB_WATCH) == 1 && faulty_watch_heard(store) == 0);
    publish();
}

Test(wait, canceled_before_it_was_sent_nothing_was_asked)
{
    struct caller alone = { 0 };
    unsigned before = faulty_count(store, VERB_CLAIM);
    caller_claim(&alone, engine, "free", 60000);
    call_cancel(alone.call);
    world_settle(&world);
    cr_assert(alone.finished == 1 && alone.error == ERR_CANCELED);
    cr_assert(faulty_count(store, VERB_CLAIM) == before);
}

Test(wait, first_of_a_crowd_canceled_before_it_was_sent_the_next_one_asks)
{
    struct caller *crowd = at_once("free", CROWD, 60000);
    call_cancel(crowd[0].call);
    world_settle(&world);
    cr_assert(crowd[0].finished == 1 && crowd[0].error == ERR_CANCELED);
    expect(&crowd[1], OUTCOME_CLAIMED);
    cr_assert(engine_stats(engine).waiters == CROWD - 2);
}

Test(wait, a_crowd_at_once_is_refused_at_once)
{
    faulty_set(store, VERB_CLAIM, FAULT_REFUSE, 1);
    struct caller *crowd = at_once("free", CROWD, 60000);
    world_settle(&world);
    for (size_t i = 0; i < CROWD; i++)
        cr_assert(crowd[i].finished == 1 && crowd[i].error == ERR_UNAVAILABLE);
    cr_assert(engine_stats(engine).waiters == 0);
}

Test(wait, the_next_one_asks_when_the_first_of_a_crowd_goes_away)
{
    faulty_set(store, VERB_CLAIM, FAULT_HOLD, 1);
    struct caller *crowd = at_once("free", 3, 60000);
    world_settle(&world);
    call_cancel(crowd[0].call);
    world_settle(&world);
    cr_assert(crowd[0].error == ERR_CANCELED);
    expect(&crowd[1], OUTCOME_CLAIMED);
    cr_assert(crowd[2].finished == 0);
    faulty_let_go(store);
}

Test(wait, a_crowd_with_other_fingerprints_asks_for_itself)
{
    static struct caller a, b;
    struct call_args args = caller_claim_args("k", 60000);
    caller_call(&a, engine, &args);
    args.in.fingerprint = bytes_str("other");
    caller_call(&b, engine, &args);
    world_settle(&world);
    cr_assert(a.finished == 0);
    expect(&b, OUTCOME_MISMATCH);
}

Test(wait, releases_promote_one_each_in_the_order_they_came)
{
    static struct caller line[10];
    for (size_t i = 0; i < 10; i++) wait_for(&line[i], 60000);
    struct token token = owner.token;
    for (size_t i = 0; i < 10; i++) {
        release(&token);
        expect(&line[i], OUTCOME_CLAIMED);
        cr_assert(!line[i].out.taken_over);
        for (size_t j = i + 1; j < 10; j++) cr_assert(line[j].finished == 0);
        token = line[i].token;
    }
    cr_assert(engine_stats(engine).promoted == 10);
}

Test(wait, a_lapse_promotes_exactly_one)
{
    static struct caller first, second;
    wait_for(&first, 60000);
    wait_for(&second, 45000);
    world_advance(&world, 29999);
    cr_assert(first.finished == 0);
    world_advance(&world, 1);
    expect(&first, OUTCOME_CLAIMED);
    cr_assert(first.out.taken_over && first.waited_ms == 30000);
    cr_assert(second.finished == 0);
    cr_assert(engine_stats(engine).takeovers == 1);
    world_advance(&world, 15000);
    expect(&second, OUTCOME_TIMED_OUT);
}

Test(wait, a_renewed_lease_is_not_taken_over)
{
    static struct caller c, renewed;
    struct call_args renew = { .verb = VERB_RENEW,
                               .key = key_of("s", "k"),
                               .in = { .token = owner.token, .lease_ms = -1 } };
    wait_for(&c, 60000);
    world_advance(&world, 20000);
    caller_call(&renewed, engine, &renew);
    world_advance(&world, 29000);
    cr_assert(renewed.outcome == OUTCOME_OK && c.finished == 0);
    world_advance(&world, 1000);
    expect(&c, OUTCOME_CLAIMED);
}

Test(wait, a_late_comer_is_not_given_an_answer_asked_for_before_he_came)
{
    static struct caller first, late;
    wait_for(&first, 60000);
    unsigned asked = faulty_count(store, VERB_CLAIM);
    faulty_set(store, VERB_CLAIM, FAULT_HOLD, 1);
    publish(); /* the head asks, and its question is on the way ... */
    cr_assert(faulty_held(store) == 1);
    wait_for(&late, 60000); /* ... when another one comes */
    faulty_let_go(store);
    world_settle(&world);
    expect(&first, OUTCOME_CACHED);
    expect(&late, OUTCOME_CACHED);
    cr_assert(faulty_count(store, VERB_CLAIM) == asked + 2, "the late comer asked for himself");
}

Test(wait, another_fingerprint_does_not_wait)
{
    static struct caller c;
    struct call_args a = caller_claim_args("k", 60000);
    a.in.fingerprint = bytes_str("other");
    caller_call(&c, engine, &a);
    world_settle(&world);
    expect(&c, OUTCOME_MISMATCH);
    cr_assert(!c.has_value && c.out.fence == 0);
}

Test(wait, keys_do_not_disturb_each_other)
{
    static struct caller other_owner, here, there;
    caller_claim(&other_owner, engine, "other", 0);
    world_settle(&world);
    wait_for(&here, 60000);
    caller_claim(&there, engine, "other", 60000);
    world_settle(&world);
    publish();
    expect(&here, OUTCOME_CACHED);
    cr_assert(there.finished == 0);
}

Test(wait, zero_retention_hands_over_instead_of_answering)
{
    static struct caller c, p;
    struct call_args args = { .verb = VERB_PUBLISH,
                              .key = key_of("s", "k"),
                              .in = { .token = owner.token, .retain_ms = 0 } };
    wait_for(&c, 60000);
    caller_call(&p, engine, &args);
    world_settle(&world);
    cr_assert(p.outcome == OUTCOME_OK);
    expect(&c, OUTCOME_CLAIMED);
}

/* ---- how many may wait ---- */

Test(wait, the_line_is_bounded)
{
    static struct caller a, b, c;
    release(&owner.token);
    stop_engine();
    start_engine(2);
    own_k();
    wait_for(&a, 60000);
    wait_for(&b, 60000);
    caller_claim(&c, engine, "k", 60000);
    world_settle(&world);
    expect(&c, OUTCOME_IN_PROGRESS);
    publish();
    expect(&a, OUTCOME_CACHED);
    expect(&b, OUTCOME_CACHED);
}

/* ---- deadlines ---- */

Test(wait, a_deadline_is_kept_to_the_millisecond)
{
    static struct caller c;
    wait_for(&c, 5000);
    world_advance(&world, 4999);
    cr_assert(c.finished == 0);
    world_advance(&world, 1);
    expect(&c, OUTCOME_TIMED_OUT);
    cr_assert(c.waited_ms == 5000 && c.out.lease_left_ms == 25000);
}

Test(wait, nobody_is_told_timed_out_on_hearsay)
{
    static struct caller first, second;
    wait_for(&first, 60000);
    unsigned asked = faulty_count(store, VERB_CLAIM);
    wait_for(&second, 1000); /* joins the line without asking */
    cr_assert(faulty_count(store, VERB_CLAIM) == asked);
    world_advance(&world, 1000);
    expect(&second, OUTCOME_TIMED_OUT);
    cr_assert(faulty_count(store, VERB_CLAIM) == asked + 1, "the store was asked before");
    cr_assert(first.finished == 0);
}

Test(wait, many_deadlines_at_once_ask_once)
{
    static struct caller crowd[CROWD];
    static struct caller first;
    wait_for(&first, 60000);
    unsigned asked = faulty_count(store, VERB_CLAIM);
    for (size_t i = 0; i < CROWD; i++) wait_for(&crowd[i], 1000);
    world_advance(&world, 1000);
    for (size_t i = 0; i < CROWD; i++) expect(&crowd[i], OUTCOME_TIMED_OUT);
    cr_assert(faulty_count(store, VERB_CLAIM) <= asked + 2);
}

Test(wait, an_answer_on_the_way_decides_even_past_the_deadline)
{
    static struct caller c;
    wait_for(&c, 5000);
    faulty_set(store, VERB_CLAIM, FAULT_HOLD, 1);
    world_advance(&world, 4000);
    publish(); /* the head asks, and the store takes its time */
    world_advance(&world, 3000);
    cr_assert(c.finished == 0);
    faulty_let_go(store);
    world_settle(&world);
    expect(&c, OUTCOME_CACHED);
    cr_assert(c.waited_ms == 7000);
}

/* ---- a store that fails ---- */

Test(wait, an_error_is_not_an_answer)
{
    static struct caller c;
    wait_for(&c, 60000);
    faulty_set(store, VERB_CLAIM, FAULT_REFUSE, 3);
    publish();
    cr_assert(c.finished == 0, "an error is retried, not told");
    world_advance(&world, 5000);
    expect(&c, OUTCOME_CACHED);
}

Test(wait, with_the_store_away_nobody_is_told_what_nobody_knows)
{
    static struct caller asked, joined;
    wait_for(&asked, 5000);
    wait_for(&joined, 5000);
    faulty_set(store, VERB_CLAIM, FAULT_REFUSE, FAULTY_ALWAYS);
    world_advance(&world, 7000);
    expect(&asked, OUTCOME_TIMED_OUT); /* it has seen for itself that somebody is on it */
    cr_assert(joined.finished == 1 && joined.error == ERR_UNAVAILABLE);
}

Test(wait, a_promotion_whose_answer_was_lost_is_found_again)
{
    static struct caller first, second;
    wait_for(&first, 60000);
    wait_for(&second, 60000);
    faulty_set(store, VERB_CLAIM, FAULT_LOSE_ANSWER, 1);
    release(&owner.token);
    world_advance(&world, 5000);
    expect(&first, OUTCOME_CLAIMED);
    cr_assert(second.finished == 0);
    release(&first.token);
    expect(&second, OUTCOME_CLAIMED);
}

Test(wait, a_promotion_that_stays_unclear_is_given_back)
{
    static struct caller c, next;
    wait_for(&c, 5000);
    faulty_set(store, VERB_CLAIM, FAULT_LOSE_ANSWER, FAULTY_ALWAYS);
    release(&owner.token);
    world_advance(&world, 10000);
    cr_assert(c.finished == 1 && c.error == ERR_AMBIGUOUS);
    faulty_heal(store);
    caller_claim(&next, engine, "k", 0);
    world_settle(&world);
    expect(&next, OUTCOME_CLAIMED);
}

Test(wait, a_watch_that_fails_is_made_up_for)
{
    static struct caller c;
    faulty_set(store, VERB_WATCH, FAULT_REFUSE, 3);
    wait_for(&c, 20000);
    world_advance(&world, 3000);
    publish();
    world_advance(&world, 1000);
    expect(&c, OUTCOME_CACHED);
}

/* As when it waits at one plane for what the line now sees at the other. */
Test(wait, a_watch_for_something_older_is_replaced)
{
    static struct caller c, other, p;
    faulty_set(store, VERB_WATCH, FAULT_HOLD, 1);
    wait_for(&c, 100000);
    cr_assert(faulty_held(store) == 1);
    world_advance(&world, 10000);
    release(&owner.token);
    caller_claim(&other, engine, "k", 0);
    world_settle(&world);
    expect(&other, OUTCOME_CLAIMED);
    world_advance(&world, 20000); /* the first lease is over: the line sees the other */
    cr_assert(c.finished == 0);
    cr_assert(faulty_held(store) == 0 && faulty_count(store, VERB_WATCH) == 2);
    caller_publish(&p, engine, "k", &other.token, "B");
    world_settle(&world);
    expect(&c, OUTCOME_CACHED);
}

Test(wait, a_store_that_cannot_notify_is_polled_with_patience)
{
    static struct caller c;
    store->caps &= ~(unsigned)CAP_NOTIFY;
    unsigned asked = faulty_count(store, VERB_CLAIM);
    wait_for(&c, 25000);
    world_advance(&world, 10000);
    unsigned polls = faulty_count(store, VERB_CLAIM) - asked;
    cr_assert(polls >= 40 && polls <= 100, "%u polls in ten seconds", polls);
    cr_assert(faulty_count(store, VERB_WATCH) == 0);
    publish();
    world_advance(&world, 250);
    expect(&c, OUTCOME_CACHED);
}

/* ---- canceling ---- */

Test(wait, the_one_in_front_gives_up)
{
    static struct caller first, second;
    wait_for(&first, 60000);
    wait_for(&second, 60000);
    call_cancel(first.call);
    world_settle(&world);
    cr_assert(first.finished == 1 && first.error == ERR_CANCELED);
    release(&owner.token);
    expect(&second, OUTCOME_CLAIMED);
}

Test(wait, the_one_behind_gives_up)
{
    static struct caller first, second;
    wait_for(&first, 60000);
    wait_for(&second, 60000);
    call_cancel(second.call);
    world_settle(&world);
    cr_assert(second.finished == 1 && second.error == ERR_CANCELED);
    release(&owner.token);
    expect(&first, OUTCOME_CLAIMED);
}

Test(wait, the_one_who_is_asking_gives_up)
{
    static struct caller first, second;
    wait_for(&first, 60000);
    wait_for(&second, 60000);
    faulty_set(store, VERB_CLAIM, FAULT_HOLD, 1);
    release(&owner.token); /* the first asks; his claim would be granted */
    cr_assert(faulty_held(store) == 1);
    call_cancel(first.call);
    world_settle(&world);
    cr_assert(first.finished == 1 && first.error == ERR_CANCELED);
    faulty_let_go(store);
    world_settle(&world);
    if (second.finished == 0) world_advance(&world, 1000);
    expect(&second, OUTCOME_CLAIMED);
    static struct caller p;
    caller_publish(&p, engine, "k", &second.token, "B");
    world_settle(&world);
    expect(&p, OUTCOME_OK);
}

Test(wait, the_last_one_leaves_nothing_behind)
{
    static struct caller c;
    wait_for(&c, 60000);
    call_cancel(c.call);
    world_settle(&world);
    cr_assert(c.finished == 1);
    cr_assert(engine_idle(engine) && store_idle(store), "no watch is left at the store");
}

Test(wait, all_give_up_while_one_is_asking)
{
    static struct caller crowd[10];
    for (size_t i = 0; i < 10; i++) wait_for(&crowd[i], 60000);
    faulty_set(store, VERB_CLAIM, FAULT_HOLD, 2);
    release(&owner.token);
    for (size_t i = 0; i < 10; i++) call_cancel(crowd[i].call);
    world_settle(&world);
    for (size_t i = 0; i < 10; i++) cr_assert(crowd[i].finished == 1);
    faulty_heal(store);
    faulty_let_go(store);
    world_settle(&world);
    static struct caller next;
    caller_claim(&next, engine, "k", 0);
    world_settle(&world);
    expect(&next, OUTCOME_CLAIMED);
}
