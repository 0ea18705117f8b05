/* runs_change.c - what may happen to a run that the ledger has. */
#include "tests/conform/runs.h"

static const struct op *refused(const struct op *op)
{
    expect(op, OUTCOME_REFUSED);
    cr_assert(op->run->reason && op->run->reason[0], "it does not say why");
    cr_assert(!op->changed);
    return op;
}

/* ---- of nothing ---- */

RUN_CASE(run_change, of_a_run_that_is_not_there_is_absent)
{
    struct run none = { 0 };
    struct run_change all[] = { add_tags("a", NULL),
                                set_metadata("{}", RUN_ANY_VERSION),
                                cancel(),
                                reschedule(world.wall_ms + 1),
                                reset_key(),
                                heartbeat(&none, -1),
                                complete(&none, ""),
                                fail(&none, -1) };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const struct op *op = expect(change_run(1, all[i]), OUTCOME_ABSENT);
        cr_assert(!op->changed);
        expect_no_runs(op);
    }
}

RUN_CASE(run_change, of_a_run_of_another_env_is_absent)
{
    expect(put_run(run_keyed(1, "k")), OUTCOME_OK);
    struct run_ask ask = ask_change(1, cancel());
    ask.env = bytes_str("f");
    expect_no_runs(expect(ask_run(VERB_RUN_CHANGE, ask), OUTCOME_ABSENT));
    ask.id = (struct run_id){ 0 };
    ask.task = bytes_str("t");
    ask.key = bytes_str("k");
    expect(ask_run(VERB_RUN_CHANGE, ask), OUTCOME_ABSENT);
    expect_run_state(1, RUN_QUEUED);
}

RUN_CASE(run_change, by_task_and_key)
{
    expect(put_run(run_keyed(1, "k")), OUTCOME_OK);
    struct run_ask ask = { .env = bytes_str("e"),
                           .task = bytes_str("t"),
                           .key = bytes_str("k"),
                           .change = add_tags("a", NULL) };
    EXPECT_RUNS(expect(ask_run(VERB_RUN_CHANGE, ask), OUTCOME_OK), 1);
    cr_assert(bytes_eq(run_now(1)->tags, tags_of("a", NULL)));
    ask.key = bytes_str("other");
    expect(ask_run(VERB_RUN_CHANGE, ask), OUTCOME_ABSENT);
}

/* ---- tags ---- */

RUN_CASE(run_change, tags_are_a_set)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    const struct op *op = expect(change_run(1, add_tags("b", "a")), OUTCOME_OK);
    cr_assert(op->changed && bytes_eq(only_run(op)->tags, tags_of("b", "a")));
    cr_assert(op->run->now_ms == world.wall_ms);
    op = expect(change_run(1, add_tags("a", "b")), OUTCOME_OK);
    cr_assert(!op->changed && bytes_eq(only_run(op)->tags, tags_of("b", "a")));
    cr_assert(bytes_eq(run_now(1)->tags, tags_of("b", "a")));
}

RUN_CASE(run_change, too_many_tags_are_refused_and_none_is_added)
{
    char a[8], b[8];
    expect(put_run(run_nr(1)), OUTCOME_OK);
    for (unsigned i = 0; i < 4; i++) {
        snprintf(a, sizeof a, "a%u", i);
        snprintf(b, sizeof b, "b%u", i);
        expect(change_run(1, add_tags(a, b)), OUTCOME_OK);
    }
    expect(change_run(1, add_tags("nine", NULL)), OUTCOME_OK);
    const struct op *op = refused(change_run(1, add_tags("ten", "eleven")));
    cr_assert(tags_count(only_run(op)->tags) == 9);
    cr_assert(tags_count(run_now(1)->tags) == 9);
    expect(change_run(1, add_tags("ten", "nine")), OUTCOME_OK);
    cr_assert(tags_count(run_now(1)->tags) == TAGS_MAX);
}

RUN_CASE(run_change, tags_and_metadata_of_a_final_run_too)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    expect(change_run(1, cancel()), OUTCOME_OK);
    expect(change_run(1, add_tags("a", NULL)), OUTCOME_OK);
    expect(change_run(1, set_metadata("{\"x\":1}", 0)), OUTCOME_OK);
    expect_run_state(1, RUN_CANCELED);
    cr_assert(bytes_eq(run_now(1)->tags, tags_of("a", NULL)));
}

/* ---- metadata ---- */

RUN_CASE(run_change, metadata_is_replaced_and_its_version_grows)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    const struct op *op = expect(change_run(1, set_metadata("{ \"x\": 1 }", 0)), OUTCOME_OK);
    cr_assert(op->changed && only_run(op)->metadata_version == 1);
    expect(change_run(1, set_metadata("{\"x\": 2}", RUN_ANY_VERSION)), OUTCOME_OK);
    cr_assert(run_now(1)->metadata_version == 2);
    expect_text(run_now(1)->metadata, "{\"x\": 2}");
}

RUN_CASE(run_change, metadata_of_another_version_is_a_conflict)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    expect(change_run(1, set_metadata("{\"x\": 1}", 0)), OUTCOME_OK);
    const struct op *op =
        expect(change_run(1, set_metadata("{\"x\": 2}", 0)), OUTCOME_CONFLICT);
    cr_assert(!op->changed && op->run->reason);
    cr_assert(only_run(op)->metadata_version == 1, "it says what it is now");
    expect_text(run_now(1)->metadata, "{\"x\": 1}");
    expect(change_run(1, set_metadata("{\"x\": 2}", 1)), OUTCOME_OK);
}

RUN_CASE(run_change, large_metadata_is_kept)
{
    static char json[METADATA_BYTES_MAX + 1];
    memset(json, 'x', METADATA_BYTES_MAX);
    memcpy(json, "{\"a\":\"", 6);
    memcpy(json + METADATA_BYTES_MAX - 2, "\"}", 2);
    expect(put_run(run_nr(1)), OUTCOME_OK);
    expect(change_run(1, set_metadata(json, 0)), OUTCOME_OK);
    expect_text(run_now(1)->metadata, json);
}

RUN_CASE(run_change, operations_add_up)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    for (unsigned i = 0; i < 3; i++) expect(change_run(1, increment()), OUTCOME_OK);
    expect_json(run_now(1)->metadata, "{\"n\":3}");
    cr_assert(run_now(1)->metadata_version == 3);
}

RUN_CASE(run_change, an_operation_that_does_not_fit_is_refused)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    expect(change_run(1, set_metadata("{\"n\":\"text\"}", 0)), OUTCOME_OK);
    refused(change_run(1, increment()));
    expect_text(run_now(1)->metadata, "{\"n\":\"text\"}");
}

/* ---- times ---- */

RUN_CASE(run_change, a_delayed_run_can_be_rescheduled)
{
    expect(put_run(run_delayed(1, 5000)), OUTCOME_OK);
    int64_t at_ms = world.wall_ms + 1000;
    const struct op *op = expect(change_run(1, reschedule(at_ms)), OUTCOME_OK);
    cr_assert(op->changed && only_run(op)->delay_until_ms == at_ms);
    world_advance(&world, 999);
    expect_no_runs(expect(lease_runs(1), OUTCOME_OK));
    world_advance(&world, 1);
    leased_one(1);
}

RUN_CASE(run_change, a_run_that_is_not_delayed_is_not_rescheduled)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    refused(change_run(1, reschedule(world.wall_ms + 1000)));
    expect(put_run(run_delayed(2, 1000)), OUTCOME_OK);
    world_advance(&world, 1000);
    refused(change_run(2, reschedule(world.wall_ms + 1000)));
    expect(change_run(2, cancel()), OUTCOME_OK);
    refused(change_run(2, reschedule(world.wall_ms + 1000)));
}

/* ---- its end ---- */

RUN_CASE(run_change, cancel_is_the_end_and_may_be_said_twice)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    struct run_change c = cancel();
    c.body = bytes_str("\"not needed\"");
    const struct op *op = expect(change_run(1, c), OUTCOME_OK);
    cr_assert(op->changed && only_run(op)->state == RUN_CANCELED);
    cr_assert(only_run(op)->finished_at_ms == world.wall_ms);
    world_advance(&world, 10);
    op = expect(change_run(1, cancel()), OUTCOME_OK);
    cr_assert(!op->changed && only_run(op)->finished_at_ms == world.wall_ms - 10);
    expect_text(run_now(1)->error, "\"not needed\"");
    expect_no_runs(expect(lease_runs(1), OUTCOME_OK));
}

RUN_CASE(run_change, cancel_takes_the_lease)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    struct run leased = leased_one(1);
    expect(change_run(1, cancel()), OUTCOME_OK);
    struct run_change late[] = { heartbeat(&leased, -1), complete(&leased, "1"),
                                 fail(&leased, 0) };
    for (size_t i = 0; i < 3; i++) {
        const struct op *op = expect(change_run(1, late[i]), OUTCOME_LOST);
        cr_assert(!op->changed && only_run(op)->state == RUN_CANCELED);
    }
    expect_text(run_now(1)->output, "");
}

RUN_CASE(run_change, cancel_of_a_completed_run_changes_nothing)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    struct run leased = leased_one(1);
    expect(change_run(1, complete(&leased, "[1, 2]")), OUTCOME_OK);
    const struct op *op = expect(change_run(1, cancel()), OUTCOME_OK);
    cr_assert(!op->changed && only_run(op)->state == RUN_COMPLETED);
    expect_text(run_now(1)->output, "[1, 2]");
}

RUN_CASE(run_change, nothing_is_final_without_a_lease)
{
    struct run none = { 0 };
    expect(put_run(run_nr(1)), OUTCOME_OK);
    expect(change_run(1, complete(&none, "1")), OUTCOME_LOST);
    expect(change_run(1, fail(&none, -1)), OUTCOME_LOST);
    expect(change_run(1, heartbeat(&none, -1)), OUTCOME_LOST);
    expect_run_state(1, RUN_QUEUED);
}

RUN_CASE(run_change, completed_twice_is_lost)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    struct run leased = leased_one(1);
    const struct op *op = expect(change_run(1, complete(&leased, "1")), OUTCOME_OK);
    cr_assert(op->changed && only_run(op)->state == RUN_COMPLETED);
    cr_assert(only_run(op)->finished_at_ms == world.wall_ms);
    expect(change_run(1, complete(&leased, "2")), OUTCOME_LOST);
    expect_text(run_now(1)->output, "1");
}

RUN_CASE(run_change, reset_of_its_key)
{
    expect(put_run(run_keyed(1, "k")), OUTCOME_OK);
    const struct op *op = expect(change_run(1, reset_key()), OUTCOME_OK);
    cr_assert(op->changed && !only_run(op)->key_held);
    expect_text(only_run(op)->key, "k");
    expect(get_run_by_key("k"), OUTCOME_ABSENT);
    cr_assert(!expect(change_run(1, reset_key()), OUTCOME_OK)->changed);
}

/* ---- many at once ---- */

RUN_CASE(run_batch, of_increments_counts_them_all)
{
    enum { MANY = 50 };
    struct waiting *w[MANY];
    expect(put_run(run_nr(1)), OUTCOME_OK);
    for (unsigned i = 0; i < MANY; i++)
        w[i] = submit_run(VERB_RUN_CHANGE, ask_change(1, increment()));
    world_settle(&world);
    for (unsigned i = 0; i < MANY; i++) {
        cr_assert(outcome_of(w[i]) == OUTCOME_OK);
        cr_assert(only_run(w[i]->op)->metadata_version == i + 1, "each sees its own");
    }
    expect_json(run_now(1)->metadata, "{\"n\":50}");
}

RUN_CASE(run_batch, of_compare_and_set_has_one_winner)
{
    enum { MANY = 20 };
    struct waiting *w[MANY];
    expect(put_run(run_nr(1)), OUTCOME_OK);
    for (unsigned i = 0; i < MANY; i++)
        w[i] = submit_run(VERB_RUN_CHANGE, ask_change(1, set_metadata("{}", 0)));
    world_settle(&world);
    cr_assert(outcome_of(w[0]) == OUTCOME_OK);
    for (unsigned i = 1; i < MANY; i++) cr_assert(outcome_of(w[i]) == OUTCOME_CONFLICT);
    cr_assert(run_now(1)->metadata_version == 1);
}

RUN_CASE(run_batch, of_changes_to_one_run_goes_in_order)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    struct run leased = leased_one(1);
    struct waiting *w[] = {
        submit_run(VERB_RUN_CHANGE, ask_change(1, add_tags("a", NULL))),
        submit_run(VERB_RUN_CHANGE, ask_change(1, heartbeat(&leased, -1))),
        submit_run(VERB_RUN_CHANGE, ask_change(1, cancel())),
        submit_run(VERB_RUN_CHANGE, ask_change(1, complete(&leased, "1"))),
        submit_run(VERB_RUN_CHANGE, ask_change(1, add_tags("b", NULL))),
    };
    static const enum outcome in_order[] = { OUTCOME_OK, OUTCOME_OK, OUTCOME_OK, OUTCOME_LOST,
                                             OUTCOME_OK };
    world_settle(&world);
    for (size_t i = 0; i < sizeof w / sizeof w[0]; i++)
        cr_assert(outcome_of(w[i]) == in_order[i], "step %zu: %s", i,
                  outcome_name(outcome_of(w[i])));
    cr_assert(bytes_eq(run_now(1)->tags, tags_of("a", "b")));
    expect_run_state(1, RUN_CANCELED);
}

/* In any order of the same and of others. */
RUN_CASE(run_batch, of_a_crowd_that_looks_for_one_run_tells_all)
{
    static const unsigned wanted[] = { 1, 1, 1, 2, 2, 1, 3, 3, 1, 1 };
    enum { MANY = sizeof wanted / sizeof wanted[0] };
    struct waiting *by_id[MANY], *by_key[MANY];
    char keys[MANY][8];
    expect(put_run(run_keyed(1, "k1")), OUTCOME_OK);
    expect(put_run(run_keyed(2, "k2")), OUTCOME_OK);
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof keys[i], "k%u", wanted[i]);
        struct run_ask ask = { .env = bytes_str("e"),
                               .task = bytes_str("t"),
                               .key = bytes_str(keys[i]) };
        by_key[i] = submit_run(VERB_RUN_GET, ask);
    }
    for (unsigned i = 0; i < MANY; i++)
        by_id[i] = submit_run(
            VERB_RUN_GET, (struct run_ask){ .env = bytes_str("e"), .id = id_nr(wanted[i]) });
    world_settle(&world);
    for (unsigned i = 0; i < MANY; i++) {
        enum outcome there = wanted[i] == 3 ? OUTCOME_ABSENT : OUTCOME_OK;
        cr_assert(outcome_of(by_id[i]) == there && outcome_of(by_key[i]) == there);
        if (there != OUTCOME_OK) continue;
        struct run_id id = id_nr(wanted[i]);
        cr_assert(run_id_eq(&only_run(by_id[i]->op)->id, &id));
        cr_assert(run_id_eq(&only_run(by_key[i]->op)->id, &id));
    }
}

RUN_CASE(run_batch, of_many_runs_and_claims_is_answered_in_full)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    struct run two = run_nr(2);
    struct waiting *put_two = submit_run(VERB_RUN_PUT, ask_put(&two));
    struct waiting *claimed = submit_ask(VERB_CLAIM, "k", owner(1));
    struct waiting *absent = submit_run(VERB_RUN_CHANGE, ask_change(3, cancel()));
    struct waiting *tagged = submit_run(VERB_RUN_CHANGE, ask_change(2, add_tags("a", NULL)));
    world_settle(&world);
    cr_assert(outcome_of(put_two) == OUTCOME_OK);
    cr_assert(outcome_of(claimed) == OUTCOME_CLAIMED);
    cr_assert(outcome_of(absent) == OUTCOME_ABSENT);
    cr_assert(outcome_of(tagged) == OUTCOME_OK);
}

/* ---- two processes ---- */

SHARED_RUN_CASE(run_sharing, changes_of_one_are_seen_by_the_other)
{
    expect(put_run(run_nr(1)), OUTCOME_OK);
    there();
    expect(change_run(1, set_metadata("{\"x\":1}", 0)), OUTCOME_OK);
    struct run leased = leased_one(1);
    here();
    expect(change_run(1, set_metadata("{\"x\":2}", 0)), OUTCOME_CONFLICT);
    expect_no_runs(expect(lease_runs(1), OUTCOME_OK));
    expect(change_run(1, cancel()), OUTCOME_OK);
    there();
    expect(change_run(1, complete(&leased, "1")), OUTCOME_LOST);
}
