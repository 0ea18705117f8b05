/* brief_test.c - triggers on the short way, on real planes: the gate is known to be tripped, so nothing
 * is claimed, and one step at coord accepts. */
#include "engine/runs_scene_test.h"

static struct scene s;

/* Everything after the first two is diverted, for ten seconds after the last one. */
static void open_tripped(void)
{
    if (!world_has("tiered-fleet")) cr_skip_test("its servers are not up: tests/with-servers");
    s.config = (struct runs_config)RUNS_CONFIG_INIT;
    s.config.gate.threshold = 1;
    s.config.gate.window_ms = 2000;
    s.config.gate.hold_ms = 10000;
    scene_open_on(&s, "tiered-fleet");
    expect(trigger(&s, "", "0"), OUTCOME_OK);
    cr_assert(expect(trigger(&s, "", "0"), OUTCOME_OK).buffered);
}

static void close_scene(void)
{
    if (s.engine) scene_close(&s);
}

TestSuite(brief, .init = open_tripped, .fini = close_scene);

static uint64_t claims(void)
{
    return engine_run_stats(s.engine).claims;
}

static struct run_id accepted(const char *key)
{
    struct asked a = expect(trigger(&s, key, "1"), OUTCOME_OK);
    cr_assert(a.buffered && !a.degraded);
    return id_of(&a);
}

static void expect_same(struct asked a, const struct run_id *id)
{
    struct run_id found = id_of(&a);
    cr_assert(run_id_eq(&found, id), "%s, not %s", found.text, id->text);
}

Test(brief, claims_nothing_and_is_found_by_its_key_and_its_id)
{
    struct run_id id = accepted("k");
    cr_assert(claims() == 0);
    expect_same(expect(trigger(&s, "k", "1"), OUTCOME_CACHED), &id);
    expect_same(expect(get(&s, &id), OUTCOME_OK), &id);
}

Test(brief, a_thousand_of_the_same_key_are_one_run)
{
    static struct asked many[1000];
    size_t created = 0;
    for (size_t i = 0; i < 1000; i++) {
        struct run_args args = trigger_args("k", "1");
        ask_start(&s, &args, &many[i]);
    }
    world_settle(&s.world);
    struct run_id first = id_of(&many[0]);
    for (size_t i = 0; i < 1000; i++) {
        cr_assert(many[i].finished == 1 && !many[i].error);
        expect_same(many[i], &first);
        created += many[i].outcome == OUTCOME_OK;
    }
    cr_assert(created == 1, "%zu", created);
}

Test(brief, another_payload_is_a_mismatch)
{
    accepted("k");
    expect(trigger(&s, "k", "2"), OUTCOME_MISMATCH);
}

Test(brief, waits_for_whoever_has_claimed_the_key)
{
    struct asked a;
    struct run_args args = trigger_args("k", "1");
    plant(&s, VERB_CLAIM, "k", NULL, 30000);
    ask_start(&s, &args, &a);
    world_settle(&s.world);
    cr_assert(a.finished == 0);
    plant(&s, VERB_RELEASE, "k", NULL, 0);
    world_await(&s.world, &a.finished);
    cr_assert(expect(a, OUTCOME_OK).buffered);
}

/* The ledger has it: who was there before the gate was tripped, and whatever was drained. */
Test(brief, finds_what_is_in_the_ledger)
{
    struct run_id id = accepted("k");
    drain(&s);
    struct asked again = expect(trigger(&s, "k", "1"), OUTCOME_CACHED);
    cr_assert(!again.buffered);
    expect_same(again, &id);
}

/* Those who are diverted without asking are counted: the gate stays tripped while they come. */
Test(brief, keeps_the_gate_tripped_while_it_goes_on)
{
    char key[16];
    for (int i = 0; i < 30; i++) {
        snprintf(key, sizeof key, "k%d", i);
        accepted(key);
        world_advance(&s.world, 1000);
    }
    cr_assert(engine_run_stats(s.engine).diverted == 31);
}

Test(brief, ends_when_the_gate_opens)
{
    accepted("k");
    world_advance(&s.world, 12100);
    cr_assert(!expect(trigger(&s, "j", "1"), OUTCOME_OK).buffered);
    cr_assert(claims() == 1);
}

Test(brief, an_id_of_the_callers_own_is_idempotent)
{
    struct run_args args = trigger_args("", "1");
    args.run.id = (struct run_id){ "run_01ARZ3NDEKTSV4RRFFQ69G5FAV" };
    expect(ask(&s, args), OUTCOME_OK);
    expect(ask(&s, args), OUTCOME_CACHED);
    drain(&s);
    expect(ask(&s, args), OUTCOME_CACHED);
}

Test(brief, an_expired_key_makes_a_new_run)
{
    struct run_args args = trigger_args("k", "1");
    args.key_ms = 1000;
    struct asked first = expect(ask(&s, args), OUTCOME_OK);
    struct run_id id = id_of(&first);
    world_advance(&s.world, 1000);
    struct asked second = expect(ask(&s, args), OUTCOME_OK);
    struct run_id other = id_of(&second);
    cr_assert(!run_id_eq(&id, &other));
}

/* Not on the short way: their id is theirs. Both look before either is accepted. */
Test(brief, of_two_payloads_with_one_id_at_once_one_is_accepted)
{
    struct asked a, b;
    struct run_args one = trigger_args("a", "1"), two = trigger_args("b", "2");
    cr_assert(run_id_parse(bytes_str("run_01ARZ3NDEKTSV4RRFFQ69G5FAV"), &one.run.id));
    two.run.id = one.run.id;
    ask_start(&s, &one, &a);
    ask_start(&s, &two, &b);
    world_settle(&s.world);
    cr_assert(a.finished && b.finished && !a.error && !b.error);
    const char *kept = a.outcome == OUTCOME_OK ? "1" : "2";
    cr_assert((a.outcome == OUTCOME_OK) + (b.outcome == OUTCOME_OK) == 1);
    cr_assert((a.outcome == OUTCOME_MISMATCH) + (b.outcome == OUTCOME_MISMATCH) == 1);
    struct asked got = expect(get(&s, &one.run.id), OUTCOME_OK);
    cr_assert(got.buffered && bytes_eq(got.rows.rows[0]->payload, bytes_str(kept)));
    drain(&s);
    got = expect(get(&s, &one.run.id), OUTCOME_OK);
    cr_assert(!got.buffered && bytes_eq(got.rows.rows[0]->payload, bytes_str(kept)));
}

/* The gate lets one pass and diverts the other: they are in two stores, and both were acknowledged. */
Test(brief, of_two_payloads_with_one_id_in_two_stores_none_is_lost)
{
    struct asked a, b;
    struct run_args one = trigger_args("a", "1"), two = trigger_args("b", "2");
    drain(&s);
    world_advance(&s.world, 20000);
    cr_assert(run_id_parse(bytes_str("run_01ARZ3NDEKTSV4RRFFQ69G5FAV"), &one.run.id));
    two.run.id = one.run.id;
    ask_start(&s, &one, &a);
    ask_start(&s, &two, &b);
    world_settle(&s.world);
    expect(a, OUTCOME_OK);
    expect(b, OUTCOME_OK);
    cr_assert(a.buffered != b.buffered);
    cr_assert(drain(&s).parked == 1);
    struct asked got = expect(get(&s, &one.run.id), OUTCOME_OK);
    cr_assert(bytes_eq(got.rows.rows[0]->payload, bytes_str(a.buffered ? "2" : "1")));
    struct run_args list = RUN_ARGS_INIT;
    list.question = ASK_LIST;
    list.limit = 10;
    list.states = 1U << RUN_FAILED;
    struct asked failed = expect(ask(&s, list), OUTCOME_OK);
    cr_assert(failed.rows.count == 1);
    cr_assert(bytes_eq(failed.rows.rows[0]->payload, bytes_str(a.buffered ? "1" : "2")));
}
