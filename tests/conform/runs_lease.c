/* runs_lease.c - runs are handed to workers: in order, one worker at a time, for a time. */
#include "tests/conform/runs.h"

/* ---- which ---- */

RUN_CASE(run_lease, of_an_empty_queue_is_nothing)
{
    const struct op *op = expect(lease_runs(10), OUTCOME_OK);
    expect_no_runs(op);
    cr_assert(!op->changed && op->run->next_due_ms == INT64_MAX);
    cr_assert(op->run->now_ms == world.wall_ms);
}

RUN_CASE(run_lease, says_everything_about_the_run)
{
    struct run r = run_keyed(1, "k");
    r.tags = tags_of("a", NULL);
    expect(put_run(r), OUTCOME_OK);
    world_advance(&world, 10);
    const struct op *op = expect(lease_runs(1), OUTCOME_OK);
    const struct run *got = only_run(op);
    cr_assert(op->changed && got->state == RUN_EXECUTING && got->attempts == 1);
    cr_assert(got->stalls == 0 && got->fence > 0);
    cr_assert(token_eq(&got->token, &op->run->tokens[0]));
    cr_assert(got->lease_ms == LEASE_MS && got->lease_until_ms == world.wall_ms + LEASE_MS);
    cr_assert(got->started_at_ms == world.wall_ms && got->finished_at_ms == 0);
    cr_assert(bytes_eq(got->payload, r.payload) && bytes_eq(got->tags, r.tags));
    const struct run *stored = run_now(1);
    cr_assert(stored->fence == got->fence && token_eq(&stored->token, &got->token));
    cr_assert(stored->state == RUN_EXECUTING && stored->lease_until_ms == got->lease_until_ms);
}

RUN_CASE(run_lease, in_the_order_in_which_they_became_due)
{
    expect(put_run(run_delayed(1, 300)), OUTCOME_OK);
    expect(put_run(run_delayed(2, 100)), OUTCOME_OK);
    expect(put_run(run_nr(4)), OUTCOME_OK);
    expect(put_run(run_nr(3)), OUTCOME_OK);
    world_advance(&world, 300);
    EXPECT_RUNS(lease_runs(10), 3, 4, 2, 1);
}

RUN_CASE(run_lease, up_to_the_limit_each_with_a_token_of_its_own)
{
    for (unsigned n = 1; n <= 5; n++) expect(put_run(run_nr(n)), OUTCOME_OK);
    const struct op *op = expect(lease_runs(3), OUTCOME_OK);
    EXPECT_RUNS(op, 1, 2, 3);
    for (size_t i = 0; i < 3; i++)
        cr_assert(token_eq(&op->run->rows.rows[i]->token, &op->run->tokens[i]));
    EXPECT_RUNS(lease_runs(3), 4, 5);
    expect_no_runs(lease_runs(3));
}

RUN_CASE(run_lease, of_its_env_and_queue_alone)
{
    struct run r = run_nr(1);
    r.env = bytes_str("f");
    expect(put_run(r), OUTCOME_OK);
    r = run_nr(2);
    r.queue = bytes_str("r");
    expect(put_run(r), OUTCOME_OK);
    const struct op *op = expect(lease_runs(10), OUTCOME_OK);
    expect_no_runs(op);
    cr_assert(op->run->next_due_ms == INT64_MAX);
    struct run_ask there = ask_lease(10);
    there.queue = bytes_str("r");
    EXPECT_RUNS(ask_run(VERB_RUN_LEASE, there), 2);
}

RUN_CASE(run_lease, not_before_its_time)
{
    expect(put_run(run_delayed(1, 1000)), OUTCOME_OK);
    const struct op *op = expect(lease_runs(1), OUTCOME_OK);
    expect_no_runs(op);
    cr_assert(op->run->next_due_ms == world.wall_ms + 1000);
    world_advance(&world, 999);
    expect_no_runs(lease_runs(1));
    world_advance(&world, 1);
    leased_one(1);
}

RUN_CASE(run_lease, says_when_the_next_is_due)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    expect(put_run(run_delayed(2, 70000)), OUTCOME_OK);
    expect(put_run(run_delayed(3, 90000)), OUTCOME_OK);
    const struct op *op = expect(lease_runs(2), OUTCOME_OK);
    EXPECT_RUNS(op, 1);
    cr_assert(op->run->next_due_ms == world.wall_ms + LEASE_MS, "its lease may lapse");
    expect(change_run(1, complete(only_run(op), "")), OUTCOME_OK);
    cr_assert(lease_runs(1)->run->next_due_ms == world.wall_ms + 70000);
}

RUN_CASE(run_lease, not_of_what_is_final)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    expect(put_run(run_nr(2)), OUTCOME_OK);
    expect(change_run(1, cancel()), OUTCOME_OK);
    struct run leased = leased_one(2);
    expect(change_run(2, complete(&leased, "")), OUTCOME_OK);
    world_advance(&world, 10 * LEASE_MS);
    const struct op *op = expect(lease_runs(10), OUTCOME_OK);
    expect_no_runs(op);
    cr_assert(op->run->next_due_ms == INT64_MAX);
}

/* ---- leases that lapse ---- */

RUN_CASE(run_lease, that_lapsed_is_taken_over_and_is_a_stall)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    struct run first = leased_one(1);
    world_advance(&world, LEASE_MS - 1);
    expect_no_runs(lease_runs(1));
    world_advance(&world, 1);
    struct run second = leased_one(1);
    cr_assert(second.attempts == 1 && second.stalls == 1);
    cr_assert(second.fence > first.fence && !token_eq(&second.token, &first.token));
    cr_assert(second.started_at_ms == first.started_at_ms);
    expect(change_run(1, heartbeat(&first, -1)), OUTCOME_LOST);
    expect(change_run(1, fail(&first, -1)), OUTCOME_LOST);
    expect(change_run(1, complete(&first, "1")), OUTCOME_LOST);
    expect(change_run(1, complete(&second, "2")), OUTCOME_OK);
    expect_text(run_now(1)->output, "2");
}

RUN_CASE(run_lease, that_lapsed_still_counts_until_somebody_takes_over)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    struct run leased = leased_one(1);
    world_advance(&world, 2 * LEASE_MS);
    expect(change_run(1, complete(&leased, "1")), OUTCOME_OK);
    expect_no_runs(lease_runs(1));
}

RUN_CASE(run_lease, is_extended_by_a_heartbeat)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    struct run leased = leased_one(1);
    world_advance(&world, LEASE_MS - 1);
    const struct op *op = expect(change_run(1, heartbeat(&leased, -1)), OUTCOME_OK);
    cr_assert(op->changed && only_run(op)->lease_until_ms == world.wall_ms + LEASE_MS);
    world_advance(&world, LEASE_MS - 1);
    expect_no_runs(lease_runs(1));
    expect(change_run(1, heartbeat(&leased, 5 * LEASE_MS)), OUTCOME_OK);
    world_advance(&world, 5 * LEASE_MS - 1);
    const struct op *none = lease_runs(1);
    expect_no_runs(none);
    cr_assert(none->run->next_due_ms == world.wall_ms + 1);
    world_advance(&world, 1);
    cr_assert(leased_one(1).stalls == 1);
}

RUN_CASE(run_lease, that_lapsed_too_often_ends_the_run)
{
    struct run r = run_keyed(1, "k");
    expect(put_run(r), OUTCOME_OK);
    for (unsigned i = 0; i <= RUN_STALLS_MAX; i++) {
        cr_assert(leased_one(1).stalls == i);
        world_advance(&world, LEASE_MS);
    }
    expect(put_run(run_nr(2)), OUTCOME_OK);
    const struct op *op = expect(lease_runs(1), OUTCOME_OK);
    EXPECT_RUNS(op, 2);
    const struct run *got = run_now(1);
    cr_assert(got->state == RUN_FAILED && got->attempts == 1 && got->error.len > 0);
    cr_assert(got->finished_at_ms == world.wall_ms);
    expect(get_run_by_key("k"), OUTCOME_ABSENT);
}

RUN_CASE(run_lease, fences_grow_also_when_the_clock_goes_back)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    uint64_t fence = 0;
    for (unsigned i = 0; i < 3; i++) {
        struct run leased = leased_one(1);
        cr_assert(leased.fence > fence);
        fence = leased.fence;
        expect(change_run(1, heartbeat(&leased, 0)), OUTCOME_OK);
        world.wall_ms += i == 1 ? -1000000 : 0;
        if (i == 1) world_advance(&world, 1000000);
    }
}

/* ---- attempts ---- */

RUN_CASE(run_fail, is_tried_again_after_a_while)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    struct run leased = leased_one(1);
    const struct op *op = expect(change_run(1, fail(&leased, -1)), OUTCOME_OK);
    const struct run *got = only_run(op);
    cr_assert(op->changed && got->state == RUN_QUEUED && got->attempts == 1);
    cr_assert(got->available_at_ms == world.wall_ms + run_back_off_ms(1));
    expect_text(got->error, "\"oops\"");
    op = lease_runs(1);
    expect_no_runs(op);
    cr_assert(op->run->next_due_ms == world.wall_ms + run_back_off_ms(1));
    world_advance(&world, run_back_off_ms(1));
    leased = leased_one(1);
    cr_assert(leased.attempts == 2 && leased.stalls == 0);
    expect(change_run(1, fail(&leased, -1)), OUTCOME_OK);
    cr_assert(run_now(1)->available_at_ms == world.wall_ms + run_back_off_ms(2));
}

RUN_CASE(run_fail, is_tried_again_when_the_worker_says)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    struct run leased = leased_one(1);
    expect(change_run(1, fail(&leased, 0)), OUTCOME_OK);
    leased = leased_one(1);
    expect(change_run(1, fail(&leased, 5000)), OUTCOME_OK);
    world_advance(&world, 4999);
    expect_no_runs(lease_runs(1));
    world_advance(&world, 1);
    leased_one(1);
}

RUN_CASE(run_fail, too_often_is_the_end)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    for (unsigned i = 1; i <= RUN_ATTEMPTS_DEFAULT; i++) {
        struct run leased = leased_one(1);
        cr_assert(leased.attempts == i);
        expect(change_run(1, fail(&leased, 0)), OUTCOME_OK);
    }
    const struct run *got = run_now(1);
    cr_assert(got->state == RUN_FAILED && got->finished_at_ms == world.wall_ms);
    expect_text(got->error, "\"oops\"");
    expect_no_runs(lease_runs(1));
}

RUN_CASE(run_fail, a_stall_is_not_an_attempt)
{
    struct run r = run_nr(1);
    r.attempts_max = 1;
    expect(put_run(r), OUTCOME_OK);
    leased_one(1);
    world_advance(&world, LEASE_MS);
    struct run leased = leased_one(1);
    cr_assert(leased.attempts == 1 && leased.stalls == 1);
    expect(change_run(1, complete(&leased, "1")), OUTCOME_OK);
}

RUN_CASE(run_fail, keeps_the_error_of_the_last_attempt_beside_the_output)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    struct run leased = leased_one(1);
    expect(change_run(1, fail(&leased, 0)), OUTCOME_OK);
    leased = leased_one(1);
    expect(change_run(1, complete(&leased, "{}")), OUTCOME_OK);
    expect_text(run_now(1)->error, "\"oops\"");
    expect_text(run_now(1)->output, "{}");
}

/* ---- ordering keys: one at a time, first in, first out ---- */

RUN_CASE(run_order, one_at_a_time)
{
    for (unsigned n = 1; n <= 3; n++) expect(put_run(run_in_line(n, "a")), OUTCOME_OK);
    for (unsigned n = 1; n <= 3; n++) {
        struct run leased = leased_one(n);
        expect_no_runs(lease_runs(10));
        expect(change_run(n, complete(&leased, "")), OUTCOME_OK);
    }
    expect_no_runs(lease_runs(10));
}

RUN_CASE(run_order, is_of_the_ids_not_of_the_puts)
{
    expect(put_run(run_in_line(3, "a")), OUTCOME_OK);
    expect(put_run(run_in_line(1, "a")), OUTCOME_OK);
    expect(put_run(run_in_line(2, "a")), OUTCOME_OK);
    struct run leased = leased_one(1);
    expect(change_run(1, complete(&leased, "")), OUTCOME_OK);
    leased_one(2);
}

RUN_CASE(run_order, does_not_hold_up_others)
{
    expect(put_run(run_in_line(1, "a")), OUTCOME_OK);
    expect(put_run(run_in_line(2, "a")), OUTCOME_OK);
    expect(put_run(run_in_line(3, "b")), OUTCOME_OK);
    expect(put_run(run_nr(4)), OUTCOME_OK);
    expect(put_run(run_nr(5)), OUTCOME_OK);
    struct run r = run_in_line(6, "a");
    r.queue = bytes_str("r");
    expect(put_run(r), OUTCOME_OK);
    r = run_in_line(0, "a");
    r.env = bytes_str("f");
    expect(put_run(r), OUTCOME_OK);
    EXPECT_RUNS(lease_runs(10), 1, 3, 4, 5);
    struct run_ask there = ask_lease(10);
    there.queue = bytes_str("r");
    EXPECT_RUNS(ask_run(VERB_RUN_LEASE, there), 6);
}

RUN_CASE(run_order, waits_for_a_delayed_one)
{
    struct run r = run_delayed(1, 1000);
    r.ordering_key = bytes_str("a");
    expect(put_run(r), OUTCOME_OK);
    expect(put_run(run_in_line(2, "a")), OUTCOME_OK);
    const struct op *op = lease_runs(10);
    expect_no_runs(op);
    cr_assert(op->run->next_due_ms == world.wall_ms + 1000, "what waits in line is not due");
    world_advance(&world, 1000);
    leased_one(1);
    expect_no_runs(lease_runs(10));
}

RUN_CASE(run_order, waits_for_a_retry)
{
    expect(put_run(run_in_line(1, "a")), OUTCOME_OK);
    expect(put_run(run_in_line(2, "a")), OUTCOME_OK);
    struct run leased = leased_one(1);
    expect(change_run(1, fail(&leased, 5000)), OUTCOME_OK);
    const struct op *op = lease_runs(10);
    expect_no_runs(op);
    cr_assert(op->run->next_due_ms == world.wall_ms + 5000);
    world_advance(&world, 5000);
    leased = leased_one(1);
    world_advance(&world, LEASE_MS);
    leased = leased_one(1);
    cr_assert(leased.stalls == 1);
    expect_no_runs(lease_runs(10));
}

RUN_CASE(run_order, goes_on_when_one_is_canceled_or_fails_for_good)
{
    for (unsigned n = 1; n <= 4; n++) expect(put_run(run_in_line(n, "a")), OUTCOME_OK);
    expect(change_run(1, cancel()), OUTCOME_OK);
    expect(change_run(3, cancel()), OUTCOME_OK);
    for (unsigned i = 0; i < RUN_ATTEMPTS_DEFAULT; i++) {
        struct run leased = leased_one(2);
        expect(change_run(2, fail(&leased, 0)), OUTCOME_OK);
    }
    expect_run_state(2, RUN_FAILED);
    leased_one(4);
}

RUN_CASE(run_order, goes_on_in_the_same_lease_when_one_stalled_too_often)
{
    expect(put_run(run_in_line(1, "a")), OUTCOME_OK);
    expect(put_run(run_in_line(2, "a")), OUTCOME_OK);
    for (unsigned i = 0; i <= RUN_STALLS_MAX; i++) {
        leased_one(1);
        world_advance(&world, LEASE_MS);
    }
    EXPECT_RUNS(lease_runs(10), 2);
    expect_run_state(1, RUN_FAILED);
}

RUN_CASE(run_order, changes_to_one_that_waits_do_not_call_it_up)
{
    expect(put_run(run_in_line(1, "a")), OUTCOME_OK);
    expect(put_run(run_in_line(2, "a")), OUTCOME_OK);
    struct run r = run_delayed(3, 1000);
    r.ordering_key = bytes_str("a");
    expect(put_run(r), OUTCOME_OK);
    expect(change_run(2, add_tags("a", NULL)), OUTCOME_OK);
    expect(change_run(3, reschedule(world.wall_ms)), OUTCOME_OK);
    leased_one(1);
    expect_no_runs(lease_runs(10));
}

RUN_CASE(run_order, keeps_the_delay_of_one_that_waited)
{
    struct run r = run_delayed(2, 1000);
    r.ordering_key = bytes_str("a");
    expect(put_run(run_in_line(1, "a")), OUTCOME_OK);
    expect(put_run(r), OUTCOME_OK);
    struct run leased = leased_one(1);
    expect(change_run(1, complete(&leased, "")), OUTCOME_OK);
    const struct op *op = lease_runs(1);
    expect_no_runs(op);
    cr_assert(op->run->next_due_ms == world.wall_ms + 1000);
    world_advance(&world, 1000);
    leased_one(2);
}

/* It waited in the buffer while a younger one went to the ledger straight away. */
RUN_CASE(run_order, an_older_one_that_comes_late_waits_for_the_one_that_executes)
{
    expect(put_run(run_in_line(2, "a")), OUTCOME_OK);
    expect(put_run(run_in_line(3, "a")), OUTCOME_OK);
    struct run leased = leased_one(2);
    expect(drain_run(run_in_line(1, "a"), NO_CHANGES), OUTCOME_OK);
    expect_no_runs(lease_runs(10));
    world_advance(&world, LEASE_MS);
    leased = leased_one(2); /* a stall: it is still at it */
    expect_no_runs(lease_runs(10));
    expect(change_run(2, fail(&leased, 0)), OUTCOME_OK);
    leased = leased_one(1);
    expect_no_runs(lease_runs(10));
    expect(change_run(1, complete(&leased, "")), OUTCOME_OK);
    leased_one(2);
}

RUN_CASE(run_order, a_final_one_that_is_put_holds_up_nobody)
{
    expect(drain_run(run_in_line(1, "a"), CHANGES(cancel())), OUTCOME_OK);
    expect(put_run(run_in_line(2, "a")), OUTCOME_OK);
    leased_one(2);
}

RUN_CASE(run_order, a_long_line_is_served_in_order)
{
    enum { MANY = 300 };
    for (unsigned n = 0; n < MANY; n++) expect(put_run(run_in_line(n, "a")), OUTCOME_OK);
    for (unsigned n = 0; n < MANY; n++) {
        struct run leased = leased_one(n);
        expect(change_run(n, complete(&leased, "")), OUTCOME_OK);
    }
}

/* ---- many at once ---- */

RUN_CASE(run_batch, of_leases_hands_out_each_run_once)
{
    enum { WORKERS = 10, RUNS = 25 };
    struct waiting *w[WORKERS];
    bool seen[RUNS] = { false };
    for (unsigned n = 0; n < RUNS; n++) expect(put_run(run_nr(n)), OUTCOME_OK);
    for (unsigned i = 0; i < WORKERS; i++) w[i] = submit_run(VERB_RUN_LEASE, ask_lease(4));
    world_settle(&world);
    size_t count = 0;
    for (unsigned i = 0; i < WORKERS; i++) {
        const struct run_rows *rows = &answered(w[i])->run->rows;
        for (size_t k = 0; k < rows->count; k++) {
            unsigned n = run_number(rows->rows[k]);
            cr_assert(!seen[n], "run %u was handed out twice", n);
            seen[n] = true;
            count++;
        }
    }
    cr_assert(count == RUNS, "%zu were handed out", count);
}

RUN_CASE(run_batch, of_put_lease_and_cancel_goes_in_order)
{
    struct run one = run_in_line(1, "a"), two = run_in_line(2, "a");
    struct waiting *w[] = {
        submit_run(VERB_RUN_PUT, ask_put(&two)),
        submit_run(VERB_RUN_PUT, ask_put(&one)),
        submit_run(VERB_RUN_LEASE, ask_lease(10)),
        submit_run(VERB_RUN_CHANGE, ask_change(1, cancel())),
        submit_run(VERB_RUN_LEASE, ask_lease(10)),
    };
    world_settle(&world);
    EXPECT_RUNS(answered(w[2]), 1);
    cr_assert(outcome_of(w[3]) == OUTCOME_OK);
    EXPECT_RUNS(answered(w[4]), 2);
}

RUN_CASE(run_lease, of_many_is_of_many)
{
    for (unsigned n = 0; n < 300; n++) expect(put_run(run_nr(n)), OUTCOME_OK);
    const struct op *op = expect(lease_runs(RUN_ROWS_MAX), OUTCOME_OK);
    cr_assert(op->run->rows.count == 300);
    for (unsigned n = 0; n < 300; n++) cr_assert(run_number(op->run->rows.rows[n]) == n);
}

/* ---- two processes ---- */

SHARED_RUN_CASE(run_sharing, a_run_is_leased_by_one_of_them)
{
    for (unsigned n = 1; n <= 2; n++) expect(put_run(run_nr(n)), OUTCOME_OK);
    expect(put_run(run_in_line(3, "a")), OUTCOME_OK);
    expect(put_run(run_in_line(4, "a")), OUTCOME_OK);
    struct run first = leased_one(1);
    there();
    EXPECT_RUNS(lease_runs(10), 2, 3);
    expect(change_run(1, complete(&first, "")), OUTCOME_OK);
    here();
    expect_no_runs(lease_runs(10));
    world_advance(&world, LEASE_MS);
    EXPECT_RUNS(lease_runs(10), 2, 3);
}
