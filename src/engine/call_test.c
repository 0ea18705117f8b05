/* call_test.c - one request: checked, asked, asked again where the answer was lost, canceled.
 */
#include "engine/engine.h"

#include "tests/support/caller.h"
#include "tests/support/faulty.h"

#include <criterion/criterion.h>

#define PATIENCE_MS INT64_C(5000)

static struct world world;
static struct store *store;
static struct engine *engine;

static void setup(void)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct err err;
    config.sweep_ms = 0;
    config.value_bytes_max = 100;
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

TestSuite(call, .init = setup, .fini = teardown);

static struct caller claimed(const char *name)
{
    struct caller c;
    caller_claim(&c, engine, name, 0);
    world_settle(&world);
    cr_assert(c.finished == 1 && c.error == 0 && c.outcome == OUTCOME_CLAIMED);
    return c;
}

static enum outcome outcome_of_claim(const char *name)
{
    struct caller c;
    caller_claim(&c, engine, name, 0);
    world_settle(&world);
    cr_assert(c.finished == 1 && c.error == 0);
    return c.outcome;
}

static void expect(const struct caller *c, enum outcome outcome)
{
    cr_assert(c->finished == 1, "finished %u times", c->finished);
    cr_assert(c->error == 0, "error %d", c->error);
    cr_assert(c->outcome == outcome, "%s", outcome_name(c->outcome));
}

static void expect_error(const struct caller *c, int code)
{
    cr_assert(c->finished == 1, "finished %u times", c->finished);
    cr_assert(c->error == code, "error %d", c->error);
}

/* ---- asking ---- */

Test(call, claim_publish_claim)
{
    struct caller owner = claimed("k"), p, other;
    cr_assert(owner.out.lease_left_ms == 30000 && owner.out.fence > 0);
    caller_publish(&p, engine, "k", &owner.token, "A");
    world_settle(&world);
    expect(&p, OUTCOME_OK);
    caller_claim(&other, engine, "k", 0);
    world_settle(&world);
    expect(&other, OUTCOME_CACHED);
    cr_assert(strcmp(other.value, "A") == 0);
    struct engine_stats stats = engine_stats(engine);
    cr_assert(stats.outcomes[OUTCOME_CLAIMED] == 1 && stats.outcomes[OUTCOME_CACHED] == 1);
    cr_assert(histogram_count(&stats.times[VERB_CLAIM]) == 2);
    cr_assert(histogram_count(&stats.times[VERB_PUBLISH]) == 1);
    cr_assert(histogram_count(&stats.waits) == 0 && stats.degraded == 0 && stats.failed == 0);
}

Test(call, every_claim_has_a_token_of_its_own)
{
    struct caller a = claimed("a"), b = claimed("b");
    cr_assert(!token_eq(&a.token, &b.token));
}

Test(call, lost_is_counted)
{
    struct caller owner = claimed("k"), r;
    struct token stranger = token_of(9);
    caller_release(&r, engine, "k", &stranger);
    world_settle(&world);
    expect(&r, OUTCOME_LOST);
    cr_assert(engine_stats(engine).lost == 1);
    caller_release(&r, engine, "k", &owner.token);
    world_settle(&world);
    expect(&r, OUTCOME_OK);
}

static void expect_refused(const struct call_args *args, int code)
{
    struct err err = { 0 };
    struct call *call;
    cr_expect(engine_call(engine, args, &call, &err) == code, "%d %s", err.code, err.text);
    cr_expect(err.text[0]);
}

Test(call, bad_input_is_refused_before_anything_happens)
{
    static char long_text[600];
    memset(long_text, 'x', sizeof long_text - 1);
    struct call_args a = caller_claim_args("", 0);
    expect_refused(&a, ERR_INVALID);
    a = caller_claim_args("a\nb", 0);
    expect_refused(&a, ERR_INVALID);
    a = caller_claim_args(long_text, 0);
    expect_refused(&a, ERR_LIMIT);
    a = caller_claim_args("k", -1);
    expect_refused(&a, ERR_INVALID);
    a = caller_claim_args("k", DURATION_MS_MAX + 1);
    expect_refused(&a, ERR_LIMIT);
    a = caller_claim_args("k", 0);
    a.in.lease_ms = -1;
    expect_refused(&a, ERR_INVALID);
    a = caller_claim_args("k", 0);
    a.in.retain_ms = DURATION_MS_MAX + 1;
    expect_refused(&a, ERR_LIMIT);
    a = caller_claim_args("k", 0);
    a.in.fingerprint = bytes_of(long_text, FINGERPRINT_BYTES_MAX + 1);
    expect_refused(&a, ERR_LIMIT);
    a = caller_claim_args("k", 0);
    a.key.scope = bytes_str("no blanks");
    expect_refused(&a, ERR_INVALID);
    cr_assert(faulty_count(store, VERB_CLAIM) == 0);
}

Test(call, a_value_beyond_the_limit_is_refused_and_the_claim_stays)
{
    struct caller owner = claimed("k"), p;
    static char big[102];
    memset(big, 'x', 101);
    struct call_args a = { .verb = VERB_PUBLISH,
                           .key = key_of("s", "k"),
                           .in = { .token = owner.token, .retain_ms = -1 } };
    a.in.value = blob_new(bytes_str(big));
    expect_refused(&a, ERR_LIMIT);
    blob_unref(a.in.value);
    big[100] = '\0';
    caller_publish(&p, engine, "k", &owner.token, big);
    world_settle(&world);
    expect(&p, OUTCOME_OK);
}

/* ---- a store that fails ---- */

Test(call, refused_claim_fails_at_once)
{
    struct caller c;
    faulty_set(store, VERB_CLAIM, FAULT_REFUSE, 1);
    caller_claim(&c, engine, "k", 5000);
    world_settle(&world);
    expect_error(&c, ERR_UNAVAILABLE);
    cr_assert(faulty_count(store, VERB_CLAIM) == 1);
}

Test(call, claim_whose_answer_was_lost_is_found_again)
{
    struct caller c;
    faulty_set(store, VERB_CLAIM, FAULT_LOSE_ANSWER, 1);
    caller_claim(&c, engine, "k", 0);
    world_advance(&world, PATIENCE_MS);
    expect(&c, OUTCOME_CLAIMED);
    cr_assert(faulty_count(store, VERB_CLAIM) == 2);
    cr_assert(engine_stats(engine).ambiguous == 1);
    struct caller p;
    caller_publish(&p, engine, "k", &c.token, "A");
    world_settle(&world);
    expect(&p, OUTCOME_OK);
}

Test(call, claim_whose_request_was_lost_is_asked_again)
{
    struct caller c;
    faulty_set(store, VERB_CLAIM, FAULT_LOSE_REQUEST, 3);
    caller_claim(&c, engine, "k", 0);
    world_advance(&world, PATIENCE_MS);
    expect(&c, OUTCOME_CLAIMED);
    cr_assert(faulty_count(store, VERB_CLAIM) == 4);
}

Test(call, claim_that_stays_ambiguous_says_so_and_is_given_up)
{
    struct caller c;
    faulty_set(store, VERB_CLAIM, FAULT_LOSE_ANSWER, FAULTY_ALWAYS);
    caller_claim(&c, engine, "k", 0);
    world_advance(&world, PATIENCE_MS + 1000);
    expect_error(&c, ERR_AMBIGUOUS);
    cr_assert(faulty_count(store, VERB_RELEASE) == 1);
    faulty_heal(store);
    cr_assert(outcome_of_claim("k") == OUTCOME_CLAIMED, "what it may have won was given back");
}

Test(call, retries_back_off)
{
    struct caller c;
    faulty_set(store, VERB_CLAIM, FAULT_LOSE_REQUEST, FAULTY_ALWAYS);
    caller_claim(&c, engine, "k", 0);
    world_advance(&world, PATIENCE_MS + 1000);
    expect_error(&c, ERR_AMBIGUOUS);
    unsigned tries = faulty_count(store, VERB_CLAIM);
    cr_assert(tries >= 6 && tries <= 20, "%u tries in five seconds", tries);
}

Test(call, a_long_wait_is_also_long_patience)
{
    struct caller c;
    faulty_set(store, VERB_CLAIM, FAULT_LOSE_REQUEST, FAULTY_ALWAYS);
    caller_claim(&c, engine, "k", 4 * PATIENCE_MS);
    world_advance(&world, 3 * PATIENCE_MS);
    cr_assert(c.finished == 0);
    faulty_heal(store);
    world_advance(&world, 2000);
    expect(&c, OUTCOME_CLAIMED);
}

Test(call, publish_is_tried_again_within_patience)
{
    struct caller owner = claimed("k"), p;
    faulty_set(store, VERB_PUBLISH, FAULT_REFUSE, 4);
    caller_publish(&p, engine, "k", &owner.token, "A");
    world_advance(&world, PATIENCE_MS);
    expect(&p, OUTCOME_OK);
    cr_assert(faulty_count(store, VERB_PUBLISH) == 5);
}

Test(call, publish_whose_answer_was_lost_is_told_ok)
{
    struct caller owner = claimed("k"), p;
    faulty_set(store, VERB_PUBLISH, FAULT_LOSE_ANSWER, 2);
    caller_publish(&p, engine, "k", &owner.token, "A");
    world_advance(&world, PATIENCE_MS);
    expect(&p, OUTCOME_OK);
}

Test(call, publish_that_never_gets_through_says_that_nothing_was_done)
{
    struct caller owner = claimed("k"), p;
    faulty_set(store, VERB_PUBLISH, FAULT_REFUSE, FAULTY_ALWAYS);
    caller_publish(&p, engine, "k", &owner.token, "A");
    world_advance(&world, PATIENCE_MS + 1000);
    expect_error(&p, ERR_UNAVAILABLE);
}

Test(call, publish_that_may_have_got_through_says_so)
{
    struct caller owner = claimed("k"), p;
    faulty_set(store, VERB_PUBLISH, FAULT_LOSE_ANSWER, 1);
    caller_publish(&p, engine, "k", &owner.token, "A");
    world_settle(&world);
    faulty_set(store, VERB_PUBLISH, FAULT_REFUSE, FAULTY_ALWAYS);
    world_advance(&world, PATIENCE_MS + 1000);
    expect_error(&p, ERR_AMBIGUOUS);
    cr_assert(outcome_of_claim("k") == OUTCOME_CACHED, "and indeed it had");
}

Test(call, reads_are_not_tried_again)
{
    struct caller c;
    struct call_args a = { .verb = VERB_PEEK, .key = key_of("s", "k") };
    faulty_set(store, VERB_PEEK, FAULT_REFUSE, 1);
    caller_call(&c, engine, &a);
    world_settle(&world);
    expect_error(&c, ERR_UNAVAILABLE);
}

/* ---- canceling ---- */

Test(call, canceled_while_asking_gives_back_what_it_wins)
{
    struct caller c;
    faulty_set(store, VERB_CLAIM, FAULT_HOLD, 1);
    caller_claim(&c, engine, "k", 0);
    world_settle(&world);
    call_cancel(c.call);
    cr_assert(c.finished == 0, "not inside call_cancel()");
    world_settle(&world);
    expect_error(&c, ERR_CANCELED);
    faulty_let_go(store);
    world_settle(&world);
    cr_assert(faulty_count(store, VERB_RELEASE) == 1);
    cr_assert(outcome_of_claim("k") == OUTCOME_CLAIMED);
}

Test(call, canceled_while_asking_gives_back_what_it_may_have_won)
{
    struct caller c;
    faulty_set(store, VERB_CLAIM, FAULT_LOSE_ANSWER, 1);
    caller_claim(&c, engine, "k", 0);
    call_cancel(c.call);
    world_settle(&world);
    expect_error(&c, ERR_CANCELED);
    cr_assert(outcome_of_claim("k") == OUTCOME_CLAIMED);
}

Test(call, canceled_while_asking_in_vain_leaves_the_owner_alone)
{
    struct caller owner = claimed("k"), c;
    caller_claim(&c, engine, "k", 0);
    call_cancel(c.call);
    world_settle(&world);
    expect_error(&c, ERR_CANCELED);
    cr_assert(faulty_count(store, VERB_RELEASE) == 0);
    struct caller p;
    caller_publish(&p, engine, "k", &owner.token, "A");
    world_settle(&world);
    expect(&p, OUTCOME_OK);
}

Test(call, canceled_while_backing_off_gives_back_what_it_may_have_won)
{
    struct caller c;
    faulty_set(store, VERB_CLAIM, FAULT_LOSE_ANSWER, 1);
    caller_claim(&c, engine, "k", 0);
    world_settle(&world);
    cr_assert(c.finished == 0);
    call_cancel(c.call);
    world_settle(&world);
    expect_error(&c, ERR_CANCELED);
    cr_assert(faulty_count(store, VERB_CLAIM) == 1);
    cr_assert(outcome_of_claim("k") == OUTCOME_CLAIMED);
}

Test(call, canceled_publish_may_still_count)
{
    struct caller owner = claimed("k"), p;
    caller_publish(&p, engine, "k", &owner.token, "A");
    call_cancel(p.call);
    world_settle(&world);
    expect_error(&p, ERR_CANCELED);
    cr_assert(outcome_of_claim("k") == OUTCOME_CACHED);
}

/* ---- stopping ---- */

Test(call, stop_ends_everything_that_is_in_flight)
{
    struct caller owner = claimed("k"), held, first, second, retried;
    caller_claim(&first, engine, "k", 60000);
    caller_claim(&second, engine, "k", 60000);
    faulty_set(store, VERB_PUBLISH, FAULT_REFUSE, FAULTY_ALWAYS);
    caller_publish(&retried, engine, "k", &owner.token, "A");
    world_settle(&world);
    faulty_set(store, VERB_CLAIM, FAULT_HOLD, 1);
    caller_claim(&held, engine, "other", 0);
    world_settle(&world);

    engine_stop(engine);
    engine_stop(engine);
    world_settle(&world);
    expect_error(&first, ERR_CANCELED);
    expect_error(&second, ERR_CANCELED);
    expect_error(&held, ERR_CANCELED);
    expect_error(&retried, ERR_CANCELED);
    cr_assert(!engine_idle(engine), "the store still has an op");
    faulty_let_go(store);
    world_settle(&world);
    cr_assert(engine_idle(engine));
    cr_assert(engine_stats(engine).waiters == 0);
}

Test(call, stop_gives_back_a_claim_that_is_granted_late)
{
    static struct caller c;
    faulty_set(store, VERB_CLAIM, FAULT_HOLD, 1);
    caller_claim(&c, engine, "late", 0);
    world_settle(&world);
    engine_stop(engine);
    world_settle(&world);
    cr_assert(c.finished == 1 && c.error == ERR_CANCELED);
    cr_assert(!engine_idle(engine), "its op is still out");
    faulty_let_go(store);
    world_settle(&world);
    cr_assert(engine_idle(engine));
    struct op *op = op_new(VERB_PEEK, &(struct key){ bytes_str("s"), bytes_str("late") }, NULL);
    world_run(&world, store, op);
    cr_assert(op->out.outcome == OUTCOME_ABSENT, "the key is blocked for a lease");
    op_free(op);
}

Test(call, after_stop_nothing_starts)
{
    engine_stop(engine);
    struct call_args a = caller_claim_args("k", 0);
    expect_refused(&a, ERR_CANCELED);
}

Test(call, free_takes_null)
{
    engine_free(NULL);
}

/* ---- a token of the caller's own ---- */

static struct call_args own_claim(const char *name, uint8_t who)
{
    struct call_args args = caller_claim_args(name, 0);
    args.in.token = token_of(who);
    return args;
}

static struct caller own_claimed(const char *name, uint8_t who)
{
    struct caller c;
    struct call_args args = own_claim(name, who);
    caller_call(&c, engine, &args);
    world_settle(&world);
    return c;
}

Test(call, a_token_of_the_callers_own_is_the_one_of_the_claim)
{
    struct token seven = token_of(7);
    struct caller c = own_claimed("k", 7);
    expect(&c, OUTCOME_CLAIMED);
    cr_assert(token_eq(&c.token, &seven));
    c = own_claimed("k", 7); /* asked again */
    expect(&c, OUTCOME_CLAIMED);
    c = own_claimed("k", 8);
    expect(&c, OUTCOME_IN_PROGRESS);
}

/* Whoever has the token may be asking again just now: a release would take away what they get. */
Test(call, a_token_of_the_callers_own_is_never_released_for_them)
{
    struct caller c;
    struct call_args args = own_claim("k", 7);
    faulty_set(store, VERB_CLAIM, FAULT_HOLD, 1);
    caller_call(&c, engine, &args);
    world_settle(&world);
    call_cancel(c.call);
    faulty_let_go(store);
    world_settle(&world);
    cr_assert(c.finished == 1 && c.error == ERR_AMBIGUOUS); /* it may ask again */
    faulty_set(store, VERB_CLAIM, FAULT_LOSE_ANSWER, FAULTY_ALWAYS);
    args = own_claim("other", 9);
    caller_call(&c, engine, &args);
    world_advance(&world, 2 * PATIENCE_MS);
    cr_assert(c.finished == 1 && c.error == ERR_AMBIGUOUS);
    faulty_heal(store);
    cr_assert_eq(faulty_count(store, VERB_RELEASE), 0);
    cr_assert_eq(outcome_of_claim("k"), OUTCOME_IN_PROGRESS);
    c = own_claimed("other", 9);
    expect(&c, OUTCOME_CLAIMED);
}

/* The first try may have been granted, and the answer to the second is not about it. */
Test(call, what_does_not_settle_an_earlier_try_is_no_answer)
{
    struct caller c;
    struct call_args args = own_claim("k", 7);
    faulty_set(store, VERB_CLAIM, FAULT_LOSE_REQUEST, 1);
    caller_call(&c, engine, &args);
    claimed("k"); /* by somebody else, before it is asked again */
    world_advance(&world, PATIENCE_MS);
    cr_assert(c.finished == 1 && c.error == ERR_AMBIGUOUS);
    c = own_claimed("k", 7);
    expect(&c, OUTCOME_IN_PROGRESS);
}

/* ---- watching ---- */

static void start_watch(struct caller *c, const char *name, uint64_t seen)
{
    struct call_args args = { .verb = VERB_WATCH, .key = key_of("s", name), .seen = seen };
    caller_call(c, engine, &args);
    world_settle(&world);
}

Test(call, a_watch_ends_with_a_change_or_when_it_is_canceled)
{
    struct caller first, second, owner = claimed("k");
    start_watch(&first, "k", owner.out.version);
    start_watch(&second, "k", owner.out.version);
    cr_assert(first.finished == 0 && second.finished == 0);
    call_cancel(second.call);
    world_settle(&world);
    cr_assert(second.finished == 1 && second.error == ERR_CANCELED && first.finished == 0);
    struct caller released;
    caller_release(&released, engine, "k", &owner.token);
    world_settle(&world);
    cr_assert(first.finished == 1 && first.error == 0);
}
