/* work_test.c - handing out runs: who waits is told, in turn, and nothing is handed out twice. */
#include "engine/runs_scene_test.h"

static struct scene s;

static void open_wide(void)
{
    scene_open(&s, 100000);
}

static void close_scene(void)
{
    scene_close(&s);
}

TestSuite(work, .init = open_wide, .fini = close_scene);

Test(work, what_is_due_is_handed_out_once)
{
    for (int i = 0; i < 3; i++) expect(trigger(&s, "", "1"), OUTCOME_OK);
    struct asked two = expect(ask(&s, lease_args(2, 0)), OUTCOME_OK);
    struct asked rest = expect(ask(&s, lease_args(2, 0)), OUTCOME_OK);
    struct asked none = expect(ask(&s, lease_args(2, 0)), OUTCOME_OK);
    cr_assert(two.rows.count == 2 && rest.rows.count == 1 && none.rows.count == 0);
    cr_assert(two.rows.rows[0]->fence > 0 && two.rows.rows[0]->state == RUN_EXECUTING);
    cr_assert(!token_eq(&two.rows.rows[0]->token, &two.rows.rows[1]->token));
}

Test(work, who_waits_is_told_by_a_trigger)
{
    struct asked first, second;
    struct run_args args = lease_args(1, 60000);
    ask_start(&s, &args, &first);
    world_settle(&s.world);
    ask_start(&s, &args, &second);
    world_settle(&s.world);
    cr_assert(!first.finished && !second.finished);
    expect(trigger(&s, "", "1"), OUTCOME_OK);
    cr_assert(first.finished == 1 && first.rows.count == 1);
    cr_assert(!second.finished, "in the order they came");
    expect(trigger(&s, "", "2"), OUTCOME_OK);
    cr_assert(second.finished == 1 && second.rows.count == 1);
}

Test(work, who_waits_in_vain_gets_nothing_in_time)
{
    struct asked a;
    struct run_args args = lease_args(1, 3000);
    ask_start(&s, &args, &a);
    world_advance(&s.world, 2999);
    cr_assert(!a.finished);
    world_advance(&s.world, 1);
    expect(a, OUTCOME_OK);
    cr_assert(a.rows.count == 0);
}

/* Zero is zero, not the default; and who has nothing has no time to say so. */
Test(work, a_lease_of_no_time_is_refused)
{
    struct run_args args = lease_args(1, 0);
    struct err err = { 0 };
    args.env = bytes_str("test");
    args.lease_ms = 0;
    args.done = asked_done;
    expect(trigger(&s, "", "1"), OUTCOME_OK);
    cr_assert(engine_run(s.engine, &args, NULL, &err) == ERR_INVALID);
    cr_assert(strstr(err.text, "lease"), "%s", err.text);
    args.lease_ms = 1;
    struct asked one = expect(ask(&s, args), OUTCOME_OK);
    cr_assert(one.rows.count == 1 && one.rows.rows[0]->stalls == 0, "nobody had it before");
}

Test(work, a_delayed_run_is_handed_out_when_it_is_due)
{
    struct asked a;
    struct run_args later = trigger_args("", "1"), args = lease_args(1, 60000);
    later.delay_ms = 5000;
    expect(ask(&s, later), OUTCOME_OK);
    ask_start(&s, &args, &a);
    world_advance(&s.world, 4999);
    cr_assert(!a.finished);
    world_advance(&s.world, 1);
    cr_assert(a.finished == 1 && a.rows.count == 1);
}

Test(work, a_lapsed_lease_is_handed_out_again_and_the_late_one_is_told)
{
    expect(trigger(&s, "", "1"), OUTCOME_OK);
    struct asked slow = expect(ask(&s, lease_args(1, 0)), OUTCOME_OK);
    world_advance(&s.world, LEASE_MS_DEFAULT);
    struct asked quick = expect(ask(&s, lease_args(1, 0)), OUTCOME_OK);
    cr_assert(quick.rows.count == 1 && quick.rows.rows[0]->fence > slow.rows.rows[0]->fence);
    struct run_change done = { .kind = RUN_COMPLETE, .token = slow.rows.rows[0]->token };
    struct run_id id = id_of(&slow);
    expect(change(&s, &id, done), OUTCOME_LOST);
    done.token = quick.rows.rows[0]->token;
    expect(change(&s, &id, done), OUTCOME_OK);
    expect(change(&s, &id, done), OUTCOME_OK);
}

Test(work, a_failed_attempt_comes_back_after_its_pause)
{
    struct asked next;
    struct run_args args = lease_args(1, 60000);
    expect(trigger(&s, "", "1"), OUTCOME_OK);
    struct asked a = expect(ask(&s, lease_args(1, 0)), OUTCOME_OK);
    struct run_change fail = { .kind = RUN_FAIL,
                               .token = a.rows.rows[0]->token,
                               .body = bytes_str("\"no\""),
                               .retry_ms = 700 };
    struct run_id id = id_of(&a);
    expect(change(&s, &id, fail), OUTCOME_OK);
    ask_start(&s, &args, &next);
    world_advance(&s.world, 699);
    cr_assert(!next.finished);
    world_advance(&s.world, 1);
    cr_assert(next.finished == 1 && next.rows.rows[0]->attempts == 2);
}

Test(work, one_at_a_time_where_the_order_counts)
{
    struct run_args args = trigger_args("", "1");
    args.run.ordering_key = bytes_str("account-1");
    struct asked one = expect(ask(&s, args), OUTCOME_OK);
    expect(ask(&s, args), OUTCOME_OK);
    struct asked first = expect(ask(&s, lease_args(10, 0)), OUTCOME_OK);
    struct run_id a = id_of(&one), b = id_of(&first);
    cr_assert(first.rows.count == 1 && run_id_eq(&a, &b));
    struct asked waiting;
    struct run_args more = lease_args(1, 60000);
    ask_start(&s, &more, &waiting);
    world_settle(&s.world);
    cr_assert(!waiting.finished);
    struct run_change done = { .kind = RUN_COMPLETE, .token = first.rows.rows[0]->token };
    expect(change(&s, &b, done), OUTCOME_OK);
    cr_assert(waiting.finished == 1 && waiting.rows.count == 1);
}

Test(work, runs_of_one_millisecond_are_in_the_order_of_their_triggers)
{
    enum { MANY = 20 };
    struct run_id ids[MANY];
    for (size_t i = 0; i < MANY; i++) {
        struct run_args args = trigger_args("", "1");
        args.run.ordering_key = bytes_str("account-1");
        struct asked one = expect(ask(&s, args), OUTCOME_OK);
        ids[i] = id_of(&one);
    }
    for (size_t i = 0; i < MANY; i++) {
        struct asked next = expect(ask(&s, lease_args(MANY, 0)), OUTCOME_OK);
        struct run_id id = id_of(&next);
        cr_assert(next.rows.count == 1 && run_id_eq(&id, &ids[i]), "%zu", i);
        struct run_change done = { .kind = RUN_COMPLETE, .token = next.rows.rows[0]->token };
        expect(change(&s, &id, done), OUTCOME_OK);
    }
}

Test(work, what_nobody_takes_any_more_is_given_back)
{
    struct asked a;
    struct run_args args = lease_args(1, 0);
    expect(trigger(&s, "", "1"), OUTCOME_OK);
    ask_start(&s, &args, &a);
    loop_turn(&s.world.loop, s.world.mono_ms); /* it is at the ledger now */
    run_call_cancel(a.call);
    world_settle(&s.world);
    struct asked next = expect(ask(&s, lease_args(1, 0)), OUTCOME_OK);
    cr_assert(next.rows.count == 1, "%zu, returned %llu", next.rows.count,
              (unsigned long long)engine_run_stats(s.engine).returned);
    cr_assert(next.rows.rows[0]->attempts == 1, "%u", next.rows.rows[0]->attempts);
}
