/* resolve_test.c - who has a key or an id: one look for a crowd, and ids that are of something else. */
#include "engine/runs_scene_test.h"

static struct scene s;

/* Everything is diverted, and what is asked of the stores is counted. */
static void open_diverting(void)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct err err;
    s.config = (struct runs_config)RUNS_CONFIG_INIT;
    s.config.gate.threshold = 1;
    s.config.gate.window_ms = 2000;
    s.config.gate.hold_ms = 10000;
    config.sweep_ms = 0;
    config.runs = &s.config;
    world_init(&s.world, 7);
    s.store = faulty_open(world_open(&s.world, "embedded"), &s.world.env);
    cr_assert(engine_open(s.store, &s.world.env, &config, &s.engine, &err) == 0, "%s",
              err.text);
}

static void close_scene(void)
{
    scene_close(&s);
}

TestSuite(resolve, .init = open_diverting, .fini = close_scene);

static struct run_id some_id(void)
{
    struct run_id id;
    cr_assert(run_id_parse(bytes_str("run_01ARZ3NDEKTSV4RRFFQ69G5FAV"), &id));
    return id;
}

static struct run_args named_args(const char *key, const char *payload)
{
    struct run_args args = trigger_args(key, payload);
    args.run.id = some_id();
    return args;
}

static void trip(void)
{
    expect(trigger(&s, "", "1"), OUTCOME_OK);
    cr_assert(expect(trigger(&s, "", "1"), OUTCOME_OK).buffered);
}

static unsigned looks(void)
{
    return faulty_count(s.store, VERB_ENTRY_GET) + faulty_count(s.store, VERB_RUN_GET);
}

static void crowd(const char *key, struct asked *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct run_args args = trigger_args(key, "1");
        ask_start(&s, &args, &out[i]);
    }
    world_settle(&s.world);
}

/* ---- a crowd ---- */

Test(resolve, a_crowd_on_one_key_is_told_by_one_look)
{
    static struct asked many[100];
    crowd("k", many, 100);
    struct run_id first = id_of(&many[0]);
    for (size_t i = 0; i < 100; i++) {
        struct run_id id = id_of(&many[i]);
        cr_assert(many[i].finished == 1 && run_id_eq(&id, &first));
    }
    cr_assert(looks() <= 4, "%u looks: two of the owner, two for all the others", looks());
}

Test(resolve, crowds_on_different_keys_do_not_mix)
{
    static struct asked a[20], b[20];
    for (size_t i = 0; i < 20; i++) {
        struct run_args x = trigger_args("a", "1"), y = trigger_args("b", "1");
        ask_start(&s, &x, &a[i]);
        ask_start(&s, &y, &b[i]);
    }
    world_settle(&s.world);
    struct run_id of_a = id_of(&a[0]), of_b = id_of(&b[0]);
    cr_assert(!run_id_eq(&of_a, &of_b));
    for (size_t i = 0; i < 20; i++) {
        struct run_id x = id_of(&a[i]), y = id_of(&b[i]);
        cr_assert(run_id_eq(&x, &of_a) && run_id_eq(&y, &of_b));
    }
}

Test(resolve, a_crowd_is_told_of_the_error_that_its_look_met)
{
    struct asked many[10];
    plant(&s, VERB_CLAIM, "k", NULL, 30000);
    crowd("k", many, 10);
    faulty_set(s.store, VERB_RUN_GET, FAULT_REFUSE, FAULTY_ALWAYS);
    plant(&s, VERB_PUBLISH, "k", "run_01ARZ3NDEKTSV4RRFFQ69G5FAV", 0);
    world_settle(&s.world);
    for (size_t i = 0; i < 10; i++)
        cr_assert(many[i].finished == 1 && many[i].error == ERR_UNAVAILABLE);
    faulty_heal(s.store);
}

Test(resolve, who_is_canceled_in_a_crowd_holds_up_nobody)
{
    struct asked many[10];
    plant(&s, VERB_CLAIM, "k", NULL, 30000);
    crowd("k", many, 10);
    faulty_set(s.store, VERB_ENTRY_GET, FAULT_HOLD, FAULTY_ALWAYS);
    plant(&s, VERB_PUBLISH, "k", "run_01ARZ3NDEKTSV4RRFFQ69G5FAV", 0);
    world_settle(&s.world);
    cr_assert(faulty_held(s.store) == 1);
    run_call_cancel(many[0].call); /* it looks for all */
    run_call_cancel(many[5].call);
    faulty_heal(s.store);
    faulty_let_go(s.store);
    world_settle(&s.world);
    size_t created = 0;
    for (size_t i = 0; i < 10; i++) {
        bool canceled = i == 0 || i == 5;
        cr_assert(many[i].finished == 1 && (many[i].error != 0) == canceled);
        created += !canceled && many[i].outcome == OUTCOME_OK;
    }
    cr_assert(created <= 1);
}

Test(resolve, a_hint_to_nothing_leaves_a_crowd_with_one_run)
{
    struct asked many[10];
    size_t created = 0;
    plant(&s, VERB_CLAIM, "k", NULL, 30000);
    crowd("k", many, 10);
    plant(&s, VERB_PUBLISH, "k", "run_01ARZ3NDEKTSV4RRFFQ69G5FAV", 0);
    world_settle(&s.world);
    struct run_id first = id_of(&many[0]);
    for (size_t i = 0; i < 10; i++) {
        struct run_id id = id_of(&many[i]);
        cr_assert(run_id_eq(&id, &first));
        created += many[i].outcome == OUTCOME_OK;
    }
    cr_assert(created == 1);
}

/* ---- an id of the caller's beside a key ---- */

static void expect_kept(const char *payload)
{
    struct run_id id = some_id();
    struct asked got = expect(get(&s, &id), OUTCOME_OK);
    cr_assert(bytes_eq(got.rows.rows[0]->payload, bytes_str(payload)));
}

Test(resolve, an_id_that_waits_is_not_given_to_another_payload)
{
    trip();
    cr_assert(expect(ask(&s, named_args("a", "1")), OUTCOME_OK).buffered);
    expect(ask(&s, named_args("b", "2")), OUTCOME_MISMATCH);
    expect(ask(&s, named_args("b", "1")), OUTCOME_MISMATCH);
    expect(ask(&s, named_args("a", "1")), OUTCOME_CACHED);
    expect(trigger(&s, "b", "2"), OUTCOME_OK); /* the key is still free */
    expect_kept("1");
}

Test(resolve, an_id_of_the_ledger_is_not_given_to_another_payload)
{
    expect(ask(&s, named_args("a", "1")), OUTCOME_OK);
    trip();
    expect(ask(&s, named_args("b", "2")), OUTCOME_MISMATCH);
    expect(ask(&s, named_args("a", "1")), OUTCOME_CACHED);
    struct run_args args = named_args("b", "2");
    args.mismatch_returns = true;
    struct asked returned = expect(ask(&s, args), OUTCOME_CACHED);
    struct run_id id = id_of(&returned), mine = some_id();
    cr_assert(run_id_eq(&id, &mine));
    expect_kept("1");
}

/* Both look before either is accepted. */
static void expect_one(struct run_args one, struct run_args two)
{
    struct asked a, b;
    trip();
    ask_start(&s, &one, &a);
    ask_start(&s, &two, &b);
    world_settle(&s.world);
    expect(a, OUTCOME_OK);
    expect(b, OUTCOME_MISMATCH);
    expect_kept("1");
    expect(ask(&s, one), OUTCOME_CACHED);
    expect(ask(&s, two), OUTCOME_MISMATCH);
}

Test(resolve, of_two_payloads_with_one_id_at_once_one_is_accepted)
{
    expect_one(named_args("a", "1"), named_args("b", "2"));
    expect(trigger(&s, "b", "2"), OUTCOME_OK); /* the key is still free */
}

Test(resolve, of_one_with_a_key_and_one_without_at_once_one_is_accepted)
{
    expect_one(named_args("", "1"), named_args("a", "2")); /* it has fewer looks */
}

Test(resolve, of_two_tasks_with_one_id_at_once_one_is_accepted)
{
    struct run_args other = named_args("", "2");
    other.run.task = bytes_str("other");
    expect_one(named_args("", "1"), other);
}

/* The gate lets one pass and diverts the other: they are in two stores, and both were acknowledged. The id
 * is that of the ledger's. */
Test(resolve, of_two_payloads_with_one_id_in_two_stores_none_is_lost)
{
    struct asked a, b;
    struct run_args one = named_args("a", "1"), two = named_args("b", "2");
    ask_start(&s, &one, &a);
    ask_start(&s, &two, &b);
    world_settle(&s.world);
    cr_assert(!expect(a, OUTCOME_OK).buffered && expect(b, OUTCOME_OK).buffered);
    cr_assert(drain(&s).parked == 1);
    expect_kept("1");
    struct run_args list = RUN_ARGS_INIT;
    list.question = ASK_LIST;
    list.limit = 10;
    struct asked all = expect(ask(&s, list), OUTCOME_OK);
    cr_assert(all.rows.count == 2, "%zu", all.rows.count);
    for (size_t i = 0; i < 2; i++) {
        const struct run *r = all.rows.rows[i];
        bool other = !run_id_eq(&r->id, &one.run.id);
        cr_assert(bytes_eq(r->payload, bytes_str(other ? "2" : "1")));
        cr_assert(r->state == (other ? RUN_FAILED : RUN_QUEUED));
        if (other) cr_assert(r->error.len && !r->key_held);
    }
    expect(trigger(&s, "b", "2"), OUTCOME_OK); /* the key is free */
}

Test(resolve, who_takes_another_payload_is_given_the_one_of_its_id)
{
    struct asked a, b;
    struct run_args one = named_args("a", "1"), two = named_args("b", "2");
    two.mismatch_returns = true;
    trip();
    ask_start(&s, &one, &a);
    ask_start(&s, &two, &b);
    world_settle(&s.world);
    expect(a, OUTCOME_OK);
    expect(b, OUTCOME_CACHED);
    cr_assert(b.buffered && bytes_eq(b.rows.rows[0]->payload, bytes_str("1")));
}

Test(resolve, a_repeated_id_finds_its_run_when_the_key_has_expired)
{
    trip();
    struct run_args args = named_args("a", "1");
    args.key_ms = 1000;
    expect(ask(&s, args), OUTCOME_OK);
    world_advance(&s.world, 2000);
    struct asked again = expect(ask(&s, args), OUTCOME_CACHED);
    struct run_id id = id_of(&again), mine = some_id();
    cr_assert(run_id_eq(&id, &mine));
}

/* ---- whoever takes what is there ---- */

Test(resolve, who_takes_another_payload_waits_for_it)
{
    struct asked a;
    struct run_args args = trigger_args("k", "2");
    args.mismatch_returns = true;
    plant(&s, VERB_CLAIM, "k", NULL, 30000);
    ask_start(&s, &args, &a);
    world_advance(&s.world, 1000);
    cr_assert(a.finished == 0);
    plant(&s, VERB_RELEASE, "k", NULL, 0);
    world_advance(&s.world, 100);
    expect(a, OUTCOME_OK);
}

Test(resolve, who_takes_another_payload_waits_no_longer_than_it_was_told)
{
    struct asked a;
    struct run_args args = trigger_args("k", "2");
    args.mismatch_returns = true;
    plant(&s, VERB_CLAIM, "k", NULL, 30000);
    ask_start(&s, &args, &a);
    world_advance(&s.world, 4900);
    cr_assert(a.finished == 0);
    world_advance(&s.world, 200);
    expect(a, OUTCOME_TIMED_OUT);
}

Test(resolve, who_takes_another_payload_can_be_canceled_meanwhile)
{
    struct asked a;
    struct run_args args = trigger_args("k", "2");
    args.mismatch_returns = true;
    plant(&s, VERB_CLAIM, "k", NULL, 30000);
    ask_start(&s, &args, &a);
    world_advance(&s.world, 100);
    run_call_cancel(a.call);
    world_settle(&s.world);
    cr_assert(a.finished == 1 && a.error == ERR_CANCELED);
}
