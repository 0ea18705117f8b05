/* order_test.c - runs with an ordering key in a burst, on both sets of planes: first in, first out, whatever
 * the gate does and whatever waits in the buffer. */
#include "engine/runs_scene_test.h"

static struct scene s;

/* More than one in 2 s trips the gate, for 10 s; nothing is drained unless asked. */
static void open_on(const char *planes)
{
    if (!world_has(planes)) cr_skip_test("its servers are not up: tests/with-servers");
    s.config = (struct runs_config)RUNS_CONFIG_INIT;
    s.config.gate.threshold = 1;
    s.config.gate.window_ms = 2000;
    s.config.gate.hold_ms = 10000;
    scene_open_on(&s, planes);
}

#define ORDER_CASE(name)                                                                       \
    static void order_##name(void);                                                            \
    Test(order, name##_on_embedded)                                                            \
    {                                                                                          \
        open_on("embedded");                                                                   \
        order_##name();                                                                        \
        scene_close(&s);                                                                       \
    }                                                                                          \
    Test(order, name##_on_tiered_fleet)                                                        \
    {                                                                                          \
        open_on("tiered-fleet");                                                               \
        order_##name();                                                                        \
        scene_close(&s);                                                                       \
    }                                                                                          \
    static void order_##name(void)

static struct asked other(void)
{
    struct run_args args = trigger_args("", "0");
    args.run.queue = bytes_str("other");
    return expect(ask(&s, args), OUTCOME_OK);
}

static void trip(void)
{
    other();
    cr_assert(other().buffered);
}

static void let_go(void)
{
    world_advance(&s.world, 20000);
    cr_assert(!other().buffered, "the gate is still tripped");
    world_advance(&s.world, 3000); /* the next one passes, too */
}

static struct run_args in_line(const char *key, const char *payload)
{
    struct run_args args = trigger_args(key, payload);
    args.run.ordering_key = bytes_str("account-1");
    return args;
}

static void work_off(const char *payload)
{
    struct asked a = expect(ask(&s, lease_args(10, 0)), OUTCOME_OK);
    cr_assert(a.rows.count == 1, "%zu at once", a.rows.count);
    cr_assert(bytes_eq(a.rows.rows[0]->payload, bytes_str(payload)), "not %s", payload);
    struct run_change done = { .kind = RUN_COMPLETE, .token = a.rows.rows[0]->token };
    struct run_id id = id_of(&a);
    expect(change(&s, &id, done), OUTCOME_OK);
}

/* The backlog of the burst is still there when the gate has let go. */
ORDER_CASE(a_later_one_does_not_overtake_those_of_a_burst)
{
    trip();
    expect(ask(&s, in_line("", "1")), OUTCOME_OK);
    expect(ask(&s, in_line("k", "2")), OUTCOME_OK);
    let_go();
    expect(ask(&s, in_line("", "3")), OUTCOME_OK);
    work_off("1");
    work_off("2");
    work_off("3");
}

ORDER_CASE(what_is_in_order_is_never_diverted_and_others_are)
{
    trip();
    cr_assert(!expect(ask(&s, in_line("", "1")), OUTCOME_OK).buffered);
    cr_assert(!expect(ask(&s, in_line("k", "2")), OUTCOME_OK).buffered);
    cr_assert(!expect(ask(&s, in_line("k", "2")), OUTCOME_CACHED).buffered);
    expect(ask(&s, in_line("k", "3")), OUTCOME_MISMATCH);
    cr_assert(expect(trigger(&s, "l", "4"), OUTCOME_OK).buffered);
}

ORDER_CASE(a_replayed_one_is_in_order_too)
{
    struct asked one = expect(ask(&s, in_line("", "1")), OUTCOME_OK);
    struct run_id id = id_of(&one);
    trip();
    cr_assert(!expect(ask(&s, about(ASK_REPLAY, &id)), OUTCOME_OK).buffered);
}

/* The key is what makes two of them one run, not the order. */
ORDER_CASE(a_buffered_run_of_the_key_is_found)
{
    trip();
    struct asked one = expect(trigger(&s, "k", "1"), OUTCOME_OK);
    struct asked same = expect(ask(&s, in_line("k", "1")), OUTCOME_CACHED);
    struct run_id a = id_of(&one), b = id_of(&same);
    cr_assert(one.buffered && same.buffered && run_id_eq(&a, &b));
    expect(ask(&s, in_line("k", "2")), OUTCOME_MISMATCH);
}

ORDER_CASE(those_that_make_a_run_count_at_the_gate)
{
    expect(ask(&s, in_line("k", "1")), OUTCOME_OK);
    for (int i = 0; i < 5; i++) expect(ask(&s, in_line("k", "1")), OUTCOME_CACHED);
    world_advance(&s.world, 1990);
    expect(ask(&s, in_line("k", "1")), OUTCOME_CACHED);
    world_advance(&s.world, 100);
    cr_assert(!other().buffered, "those that were there already counted");
    world_advance(&s.world, 2100);
    expect(ask(&s, in_line("", "2")), OUTCOME_OK);
    world_advance(&s.world, 100);
    cr_assert(other().buffered, "it did not count");
    cr_assert(engine_run_stats(s.engine).passed == 3);
    cr_assert(engine_run_stats(s.engine).diverted == 1);
}
