/* trigger_test.c - same key, same run: across the gate, the buffer, the ledger, and time. */
#include "base/sha256.h"
#include "base/text.h"
#include "engine/runs_scene_test.h"

static struct scene s;

static void open_wide(void)
{
    scene_open(&s, 100000);
}

static void open_narrow(void)
{
    scene_open(&s, 2);
}

static void close_scene(void)
{
    scene_close(&s);
}

TestSuite(trigger, .init = open_wide, .fini = close_scene);
TestSuite(trigger_burst, .init = open_narrow, .fini = close_scene);

/* ---- one after the other ---- */

Test(trigger, makes_a_run_and_finds_it_again)
{
    struct asked first = expect(trigger(&s, "k", "{\"to\":1}"), OUTCOME_OK);
    struct asked again = expect(trigger(&s, "k", "{\"to\":1}"), OUTCOME_CACHED);
    struct run_id id = id_of(&first), same = id_of(&again);
    cr_assert(run_id_eq(&id, &same));
    cr_assert(!first.buffered && !first.degraded);
    struct asked got = expect(get(&s, &id), OUTCOME_OK);
    cr_assert(bytes_eq(got.rows.rows[0]->payload, bytes_str("{\"to\":1}")));
    cr_assert(bytes_eq(got.rows.rows[0]->queue, bytes_str("mail")));
    cr_assert(got.rows.rows[0]->attempts_max == RUN_ATTEMPTS_DEFAULT);
}

Test(trigger, without_a_key_every_one_is_new)
{
    struct asked a = expect(trigger(&s, "", "1"), OUTCOME_OK);
    struct asked b = expect(trigger(&s, "", "1"), OUTCOME_OK);
    struct run_id x = id_of(&a), y = id_of(&b);
    cr_assert(!run_id_eq(&x, &y));
}

Test(trigger, another_payload_is_refused_or_answered_with_what_is_there)
{
    struct asked first = expect(trigger(&s, "k", "1"), OUTCOME_OK);
    expect(trigger(&s, "k", "2"), OUTCOME_MISMATCH);
    struct run_args args = trigger_args("k", "2");
    args.mismatch_returns = true;
    struct asked returned = expect(ask(&s, args), OUTCOME_CACHED);
    struct run_id x = id_of(&first), y = id_of(&returned);
    cr_assert(run_id_eq(&x, &y));
}

Test(trigger, keys_of_envs_and_tasks_are_apart)
{
    struct asked first = expect(trigger(&s, "k", "1"), OUTCOME_OK);
    struct run_args args = trigger_args("k", "1");
    args.env = bytes_str("other");
    expect(ask(&s, args), OUTCOME_OK);
    args = trigger_args("k", "1");
    args.run.task = bytes_str("other");
    expect(ask(&s, args), OUTCOME_OK);
    struct run_id id = id_of(&first);
    args = about(ASK_GET, &id);
    args.env = bytes_str("other");
    expect(ask(&s, args), OUTCOME_ABSENT);
}

Test(trigger, a_callers_own_id_is_idempotent)
{
    struct run_args args = trigger_args("", "1");
    cr_assert(run_id_parse(bytes_str("run_01ARZ3NDEKTSV4RRFFQ69G5FAV"), &args.run.id));
    struct asked first = expect(ask(&s, args), OUTCOME_OK);
    struct asked again = expect(ask(&s, args), OUTCOME_CACHED);
    struct run_id x = id_of(&first), y = id_of(&again);
    cr_assert(run_id_eq(&x, &y) && run_id_eq(&x, &args.run.id));
    args.run.payload = bytes_str("2");
    expect(ask(&s, args), OUTCOME_MISMATCH);
}

/* ---- keys that end ---- */

Test(trigger, an_expired_key_makes_a_new_run)
{
    struct run_args args = trigger_args("k", "1");
    args.key_ms = 60000;
    struct asked first = expect(ask(&s, args), OUTCOME_OK);
    world_advance(&s.world, 59999);
    expect(ask(&s, args), OUTCOME_CACHED);
    world_advance(&s.world, 1);
    struct asked second = expect(ask(&s, args), OUTCOME_OK);
    struct run_id x = id_of(&first), y = id_of(&second);
    cr_assert(!run_id_eq(&x, &y));
    expect(get(&s, &x), OUTCOME_OK);
}

static void fail_run(void)
{
    struct asked leased = expect(ask(&s, lease_args(1, 0)), OUTCOME_OK);
    cr_assert(leased.rows.count == 1);
    const struct run *r = leased.rows.rows[0];
    struct run_change fail = { .kind = RUN_FAIL,
                               .token = r->token,
                               .body = bytes_str("\"no\"") };
    expect(change(&s, &r->id, fail), OUTCOME_OK);
}

Test(trigger, a_failed_run_gives_up_its_key_and_a_burst_on_it_makes_one)
{
    struct run_args args = trigger_args("k", "1");
    struct asked burst[30];
    args.run.attempts_max = 1;
    struct asked first = expect(ask(&s, args), OUTCOME_OK);
    fail_run();
    unsigned created = 0;
    for (size_t i = 0; i < 30; i++) ask_start(&s, &args, &burst[i]);
    world_settle(&s.world);
    struct run_id old = id_of(&first), fresh = id_of(&burst[0]);
    cr_assert(!run_id_eq(&old, &fresh));
    for (size_t i = 0; i < 30; i++) {
        struct run_id id = id_of(&burst[i]);
        cr_assert(burst[i].finished == 1 && !burst[i].error && run_id_eq(&id, &fresh));
        created += burst[i].outcome == OUTCOME_OK;
    }
    cr_assert(created == 1, "%u created", created);
    cr_assert(engine_run_stats(s.engine).hints_dropped >= 1);
}

Test(trigger, a_reset_key_makes_a_new_run)
{
    struct asked first = expect(trigger(&s, "k", "1"), OUTCOME_OK);
    struct run_args reset = RUN_ARGS_INIT;
    reset.question = ASK_RESET;
    reset.task = bytes_str("mail");
    reset.key = bytes_str("k");
    expect(ask(&s, reset), OUTCOME_OK);
    expect(ask(&s, reset), OUTCOME_ABSENT);
    struct asked second = expect(trigger(&s, "k", "1"), OUTCOME_OK);
    struct run_id x = id_of(&first), y = id_of(&second);
    cr_assert(!run_id_eq(&x, &y));
}

/* ---- bursts from a cold gate ---- */

static void burst_of_same_key(size_t count)
{
    struct asked *burst = calloc(count, sizeof *burst);
    size_t created = 0;
    for (size_t i = 0; i < count; i++) {
        struct run_args args = trigger_args("k", "1");
        ask_start(&s, &args, &burst[i]);
    }
    world_settle(&s.world);
    struct run_id first = id_of(&burst[0]);
    for (size_t i = 0; i < count; i++) {
        struct run_id id = id_of(&burst[i]);
        cr_assert(burst[i].finished == 1 && !burst[i].error);
        cr_assert(run_id_eq(&id, &first));
        created += burst[i].outcome == OUTCOME_OK;
    }
    cr_assert(created == 1, "%zu created", created);
    expect(trigger(&s, "k", "1"), OUTCOME_CACHED);
    free(burst);
}

Test(trigger_burst, thirty_of_the_same_key_are_one_run)
{
    burst_of_same_key(30);
}

Test(trigger_burst, a_thousand_of_the_same_key_are_one_run)
{
    burst_of_same_key(1000);
}

/* Some to the ledger, the rest to the buffer. */
static void storm(struct asked *out, size_t count)
{
    char key[24];
    for (size_t i = 0; i < count; i++) {
        snprintf(key, sizeof key, "k%zu", i);
        struct run_args args = trigger_args(key, "1");
        ask_start(&s, &args, &out[i]);
    }
    world_settle(&s.world);
}

Test(trigger_burst, what_is_too_much_is_buffered_and_nobody_can_tell)
{
    struct asked many[40];
    size_t buffered = 0;
    storm(many, 40);
    for (size_t i = 0; i < 40; i++) {
        expect(many[i], OUTCOME_OK);
        buffered += many[i].buffered;
        struct run_id id = id_of(&many[i]);
        struct asked got = expect(get(&s, &id), OUTCOME_OK);
        cr_assert(got.buffered == many[i].buffered);
        char key[24];
        snprintf(key, sizeof key, "k%zu", i);
        struct asked again = expect(trigger(&s, key, "1"), OUTCOME_CACHED);
        struct run_id same = id_of(&again);
        cr_assert(run_id_eq(&id, &same));
        expect(trigger(&s, key, "2"), OUTCOME_MISMATCH);
    }
    cr_assert(buffered == 38, "%zu of 40 were buffered", buffered);
    struct run_stats stats = engine_run_stats(s.engine);
    cr_assert(stats.passed == 2 && stats.diverted == 38, "cached ones never count");
}

Test(trigger_burst, a_buffered_key_expires_too)
{
    struct asked many[3];
    storm(many, 3);
    struct run_args args = trigger_args("x", "1");
    args.key_ms = 1000;
    struct asked first = expect(ask(&s, args), OUTCOME_OK);
    cr_assert(first.buffered);
    expect(ask(&s, args), OUTCOME_CACHED);
    world_advance(&s.world, 1000);
    struct asked second = expect(ask(&s, args), OUTCOME_OK);
    struct run_id x = id_of(&first), y = id_of(&second);
    cr_assert(second.buffered && !run_id_eq(&x, &y));
    expect(get(&s, &x), OUTCOME_OK);
}

Test(trigger_burst, the_gate_opens_again)
{
    struct asked many[3];
    storm(many, 3);
    world_advance(&s.world, 9999);
    cr_assert(expect(trigger(&s, "x", "1"), OUTCOME_OK).buffered);
    world_advance(&s.world, 10000);
    cr_assert(!expect(trigger(&s, "y", "1"), OUTCOME_OK).buffered);
}

/* ---- somebody else has the claim ---- */

Test(trigger, waits_for_a_claimant_and_one_takes_over_when_it_lets_go)
{
    struct asked many[5];
    size_t created = 0;
    plant(&s, VERB_CLAIM, "k", NULL, 30000);
    for (size_t i = 0; i < 5; i++) {
        struct run_args args = trigger_args("k", "1");
        ask_start(&s, &args, &many[i]);
    }
    world_settle(&s.world);
    for (size_t i = 0; i < 5; i++) cr_assert(many[i].finished == 0);
    world_advance(&s.world, 1000);
    plant(&s, VERB_RELEASE, "k", NULL, 0);
    world_settle(&s.world);
    struct run_id first = id_of(&many[0]);
    for (size_t i = 0; i < 5; i++) {
        struct run_id id = id_of(&many[i]);
        cr_assert(run_id_eq(&id, &first));
        created += many[i].outcome == OUTCOME_OK;
    }
    cr_assert(created == 1);
}

Test(trigger, waits_no_longer_than_it_was_told)
{
    struct asked a;
    struct run_args args = trigger_args("k", "1");
    plant(&s, VERB_CLAIM, "k", NULL, 30000);
    ask_start(&s, &args, &a);
    world_advance(&s.world, 4999);
    cr_assert(a.finished == 0);
    world_advance(&s.world, 1);
    expect(a, OUTCOME_TIMED_OUT);
    args.wait_ms = 0;
    expect(ask(&s, args), OUTCOME_TIMED_OUT);
}

Test(trigger, a_crashed_claimant_is_taken_over_when_its_lease_lapses)
{
    struct asked a;
    struct run_args args = trigger_args("k", "1");
    plant(&s, VERB_CLAIM, "k", NULL, 2000);
    ask_start(&s, &args, &a);
    world_advance(&s.world, 2000);
    expect(a, OUTCOME_OK);
}

Test(trigger, a_hint_to_a_run_that_does_not_exist_is_dropped)
{
    plant(&s, VERB_CLAIM, "k", NULL, 30000);
    plant(&s, VERB_PUBLISH, "k", "run_01ARZ3NDEKTSV4RRFFQ69G5FAV", 0);
    struct asked a = expect(trigger(&s, "k", "1"), OUTCOME_OK);
    struct run_id id = id_of(&a);
    expect(get(&s, &id), OUTCOME_OK);
    cr_assert(engine_run_stats(s.engine).hints_dropped == 1);
}

Test(trigger, who_asks_for_something_else_does_not_wait)
{
    plant(&s, VERB_CLAIM, "k", NULL, 30000);
    expect(trigger(&s, "k", "2"), OUTCOME_MISMATCH);
}

/* ---- bad input ---- */

Test(trigger, is_checked_before_anything_happens)
{
    static const struct {
        const char *task, *payload, *env, *text;
    } rows[] = {
        { "", "1", "test", "the task is empty" },
        { "a b", "1", "test", "byte 2 of the task" },
        { "t", "{", "test", "payload" },
        { "t", "1", "te st", "byte 3 of the env" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct run_args args = trigger_args("k", rows[i].payload);
        struct run_call *call;
        struct err err = { 0 };
        args.run.task = bytes_str(rows[i].task);
        args.env = bytes_str(rows[i].env);
        args.done = asked_done;
        int r = engine_run(s.engine, &args, &call, &err);
        cr_assert(r == ERR_INVALID, "%zu: %d", i, r);
        cr_assert(strstr(err.text, rows[i].text), "%s", err.text);
    }
    cr_assert(engine_idle(s.engine));
}

Test(trigger, that_is_canceled_is_told_once_and_leaves_no_claim_behind)
{
    struct asked a;
    struct run_args args = trigger_args("k", "1");
    ask_start(&s, &args, &a);
    run_call_cancel(a.call);
    world_settle(&s.world);
    cr_assert(a.finished == 1 && a.error);
    cr_assert(engine_idle(s.engine));
    struct asked b = trigger(&s, "k", "1");
    cr_assert(b.error == 0 && (b.outcome == OUTCOME_OK || b.outcome == OUTCOME_CACHED));
}
