/* runs_put.c - a run that is new to the ledger: its id, its key, and what comes from the buffer. */
#include "tests/conform/runs.h"

static void expect_put(const struct op *op, enum outcome outcome, enum run_put how, unsigned n)
{
    expect(op, outcome);
    cr_assert(op->run->put == how, "put %d, expected %d", op->run->put, how);
    cr_assert(run_number(only_run(op)) == n, "it is run %u", run_number(only_run(op)));
    cr_assert(op->run->now_ms == world.wall_ms);
}

#define INSERTED(op, n) expect_put((op), OUTCOME_OK, PUT_INSERT, (n))
#define SAME(op, n) expect_put((op), OUTCOME_OK, PUT_SAME, (n))
#define CACHED(op, n) expect_put((op), OUTCOME_CACHED, PUT_CACHED, (n))
#define MISMATCH(op, n) expect_put((op), OUTCOME_MISMATCH, PUT_MISMATCH, (n))
#define ALIASED(op, n) expect_put((op), OUTCOME_OK, PUT_ALIAS, (n))
#define FAILED(op, n) expect_put((op), OUTCOME_OK, PUT_FAILED, (n))

static void expect_key_leads_to(const char *key, unsigned n)
{
    const struct op *op = expect(get_run_by_key(key), OUTCOME_OK);
    EXPECT_RUNS(op, n);
}

/* ---- what is put is there ---- */

static void expect_same_run(const struct run *a, const struct run *b)
{
    cr_assert(run_id_eq(&a->id, &b->id));
    cr_assert(bytes_eq(a->env, b->env) && bytes_eq(a->task, b->task));
    cr_assert(bytes_eq(a->queue, b->queue) && bytes_eq(a->ordering_key, b->ordering_key));
    cr_assert(bytes_eq(a->payload, b->payload), "the payload is not what it was");
    cr_assert(bytes_eq(a->fingerprint, b->fingerprint));
    cr_assert(bytes_eq(a->key, b->key) && a->key_held == b->key_held);
    cr_assert(a->key_until_ms == b->key_until_ms && a->state == b->state);
    cr_assert(bytes_eq(a->tags, b->tags) && bytes_eq(a->metadata, b->metadata));
    cr_assert(a->metadata_version == b->metadata_version);
    cr_assert(bytes_eq(a->output, b->output) && bytes_eq(a->error, b->error));
    cr_assert(a->created_at_ms == b->created_at_ms && a->delay_until_ms == b->delay_until_ms);
    cr_assert(a->available_at_ms == b->available_at_ms);
    cr_assert(a->started_at_ms == b->started_at_ms && a->finished_at_ms == b->finished_at_ms);
    cr_assert(a->attempts == b->attempts && a->attempts_max == b->attempts_max);
    cr_assert(a->stalls == b->stalls && a->fence == b->fence);
    cr_assert(token_eq(&a->token, &b->token) && a->lease_ms == b->lease_ms);
    cr_assert(a->lease_until_ms == b->lease_until_ms && a->changes == b->changes);
    cr_assert(run_id_eq(&a->canonical, &b->canonical));
}

/* A run with something in every field. */
static struct run run_in_full(unsigned n)
{
    static uint8_t every_byte[3 * 256 + 1];
    for (size_t i = 0; i < sizeof every_byte; i++) every_byte[i] = (uint8_t)(i * 7);
    struct run r = run_keyed(n, "kéy with \"quotes\"");
    r.env = bytes_str("prod:eu/1");
    r.task = bytes_str("send-mail");
    r.queue = bytes_str("mail.slow");
    r.payload = bytes_of(every_byte, sizeof every_byte);
    r.ordering_key = bytes_str("customer ünder 7");
    r.tags = tags_of("a", "tag with spaces");
    r.metadata = bytes_str("{ \"x\" :\t1.50 }");
    r.metadata_version = 3;
    r.delay_until_ms = r.available_at_ms = world.wall_ms + 5000;
    r.attempts_max = RUN_ATTEMPTS_MAX;
    return r;
}

RUN_CASE(run_put, what_is_put_is_there_byte_for_byte)
{
    struct run r = run_in_full(1);
    const struct op *op = put_run(r);
    INSERTED(op, 1);
    cr_assert(op->changed);
    expect_same_run(only_run(op), &r);
    struct run_ask by_id = { .env = r.env, .id = r.id };
    expect_same_run(only_run(expect(ask_run(VERB_RUN_GET, by_id), OUTCOME_OK)), &r);
    struct run_ask by_key = { .env = r.env, .task = r.task, .key = r.key };
    expect_same_run(only_run(expect(ask_run(VERB_RUN_GET, by_key), OUTCOME_OK)), &r);
}

RUN_CASE(run_put, a_parked_run_is_there_with_its_error)
{
    struct run r = run_in_full(1);
    r.state = RUN_FAILED;
    r.error = bytes_str("\"cannot be written\"");
    r.finished_at_ms = world.wall_ms;
    struct run_ask ask = ask_put(&r);
    ask.drains = true;
    const struct op *op = ask_run(VERB_RUN_PUT, ask);
    INSERTED(op, 1);
    struct run_ask by_id = { .env = r.env, .id = r.id };
    const struct run *got = only_run(expect(ask_run(VERB_RUN_GET, by_id), OUTCOME_OK));
    cr_assert(got->state == RUN_FAILED);
    expect_text(got->error, "\"cannot be written\"");
}

RUN_CASE(run_put, nothing_in_it_is_nothing)
{
    struct run r = run_nr(1);
    r.payload = NO_CHANGES;
    INSERTED(put_run(r), 1);
    expect_same_run(run_now(1), &r);
}

RUN_CASE(run_put, a_large_payload_is_kept)
{
    static uint8_t large[1024 * 1024];
    for (size_t i = 0; i < sizeof large; i++) large[i] = (uint8_t)(i * 31 >> 3);
    struct run r = run_nr(1);
    r.payload = bytes_of(large, sizeof large);
    INSERTED(put_run(r), 1);
    leased_one(1);
    cr_assert(bytes_eq(run_now(1)->payload, r.payload));
}

/* ---- by its id ---- */

RUN_CASE(run_put, same_id_again_is_the_same_run)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    struct run leased = leased_one(1);
    world_advance(&world, 10);
    const struct op *op = put_run(run_keyed(1, "k"));
    SAME(op, 1);
    cr_assert(!op->changed);
    cr_assert(only_run(op)->state == RUN_EXECUTING &&
              token_eq(&only_run(op)->token, &leased.token));
    cr_assert(list_runs(10)->run->rows.count == 1);
}

RUN_CASE(run_put, same_id_about_something_else_is_a_mismatch)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    struct run r = run_keyed(1, "k");
    r.fingerprint = fingerprint_nr(1);
    MISMATCH(put_run(r), 1);
    r = run_keyed(1, "other");
    MISMATCH(put_run(r), 1);
    MISMATCH(put_run(run_nr(1)), 1);
    r = run_keyed(1, "k");
    r.task = bytes_str("u");
    const struct op *op = put_run(r);
    MISMATCH(op, 1);
    cr_assert(!op->changed);
    expect_text(run_now(1)->task, "t");
    expect(get_run_by_key("other"), OUTCOME_ABSENT);
}

RUN_CASE(run_put, same_id_in_another_env_is_another_run)
{
    INSERTED(put_run(run_nr(1)), 1);
    struct run_ask there = { .env = bytes_str("f"), .id = id_nr(1) };
    expect_no_runs(expect(ask_run(VERB_RUN_GET, there), OUTCOME_ABSENT));
    struct run r = run_nr(1);
    r.env = bytes_str("f");
    r.fingerprint = fingerprint_nr(1);
    INSERTED(put_run(r), 1);
    cr_assert(bytes_eq(run_now(1)->fingerprint, fingerprint_nr(0)));
}

/* ---- by its key ---- */

RUN_CASE(run_put, a_key_leads_to_the_first)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    const struct op *op = put_run(run_keyed(2, "k"));
    CACHED(op, 1);
    cr_assert(!op->changed);
    expect_no_runs(expect(get_run(2), OUTCOME_ABSENT));
    expect_key_leads_to("k", 1);
}

RUN_CASE(run_put, a_key_with_another_fingerprint_is_a_mismatch)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    struct run r = run_keyed(2, "k");
    r.fingerprint = fingerprint_nr(1);
    MISMATCH(put_run(r), 1);
    expect(get_run(2), OUTCOME_ABSENT);
}

RUN_CASE(run_put, a_key_is_of_its_env_and_task)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    struct run r = run_keyed(2, "k");
    r.task = bytes_str("u");
    INSERTED(put_run(r), 2);
    r = run_keyed(3, "k");
    r.env = bytes_str("f");
    INSERTED(put_run(r), 3);
    expect_key_leads_to("k", 1);
    struct run_ask there = { .env = bytes_str("g"), .task = r.task, .key = r.key };
    expect(ask_run(VERB_RUN_GET, there), OUTCOME_ABSENT);
}

RUN_CASE(run_put, task_and_key_are_not_joined)
{
    struct run r = run_keyed(1, "bc");
    r.task = bytes_str("a");
    INSERTED(put_run(r), 1);
    r = run_keyed(2, "c");
    r.task = bytes_str("ab");
    INSERTED(put_run(r), 2);
}

RUN_CASE(run_put, without_a_key_all_are_new)
{
    for (unsigned n = 1; n <= 5; n++) INSERTED(put_run(run_nr(n)), n);
    expect(get_run_by_key(""), OUTCOME_ABSENT);
}

RUN_CASE(run_put, a_key_expires_at_its_time)
{
    struct run r = run_keyed(1, "k");
    r.key_until_ms = world.wall_ms + 2000;
    INSERTED(put_run(r), 1);
    world_advance(&world, 1999);
    CACHED(put_run(run_keyed(2, "k")), 1);
    world_advance(&world, 1);
    expect(get_run_by_key("k"), OUTCOME_ABSENT);
    expect(reset_run_key("k"), OUTCOME_ABSENT);
    INSERTED(put_run(run_keyed(3, "k")), 3);
    expect_key_leads_to("k", 3);
    cr_assert(!run_now(1)->key_held, "two runs hold the key");
    CACHED(put_run(run_keyed(4, "k")), 3);
}

static void finish_with(unsigned n, struct run_change how)
{
    struct run leased = leased_one(n);
    how.token = leased.token;
    expect(change_run(n, how), OUTCOME_OK);
}

RUN_CASE(run_put, a_failed_run_has_no_right_to_its_key)
{
    struct run r = run_keyed(1, "k"), none = { 0 };
    r.attempts_max = 1;
    INSERTED(put_run(r), 1);
    finish_with(1, fail(&none, -1));
    expect_run_state(1, RUN_FAILED);
    expect(get_run_by_key("k"), OUTCOME_ABSENT);
    INSERTED(put_run(run_keyed(2, "k")), 2);
    expect_key_leads_to("k", 2);
    cr_assert(!run_now(1)->key_held);
}

RUN_CASE(run_put, completed_and_canceled_runs_keep_their_keys)
{
    struct run none = { 0 };
    INSERTED(put_run(run_keyed(1, "done")), 1);
    finish_with(1, complete(&none, "1"));
    INSERTED(put_run(run_keyed(2, "canceled")), 2);
    expect(change_run(2, cancel()), OUTCOME_OK);
    CACHED(put_run(run_keyed(3, "done")), 1);
    CACHED(put_run(run_keyed(4, "canceled")), 2);
}

RUN_CASE(run_put, a_key_that_was_reset_is_free)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    const struct op *op = expect(reset_run_key("k"), OUTCOME_OK);
    EXPECT_RUNS(op, 1);
    cr_assert(op->changed && !only_run(op)->key_held);
    expect_no_runs(expect(reset_run_key("k"), OUTCOME_ABSENT));
    expect(get_run_by_key("k"), OUTCOME_ABSENT);
    INSERTED(put_run(run_keyed(2, "k")), 2);
    expect_key_leads_to("k", 2);
    SAME(put_run(run_keyed(1, "k")), 1);
    expect_key_leads_to("k", 2);
}

RUN_CASE(run_put, reset_of_a_key_nobody_has_is_absent)
{
    expect_no_runs(expect(reset_run_key("k"), OUTCOME_ABSENT));
    INSERTED(put_run(run_keyed(1, "k")), 1);
    expect(reset_run_key("other"), OUTCOME_ABSENT);
    struct run_ask there = { .env = bytes_str("f"),
                             .task = bytes_str("t"),
                             .key = bytes_str("k") };
    expect(ask_run(VERB_RUN_RESET, there), OUTCOME_ABSENT);
    expect_key_leads_to("k", 1);
}

/* ---- too late ---- */

static const struct op *put_until(struct run r, int64_t until_ms)
{
    struct run_ask ask = ask_put(&r);
    ask.until_ms = until_ms;
    return ask_run(VERB_RUN_PUT, ask);
}

RUN_CASE(run_put, whose_claim_lapses_is_too_late)
{
    const struct op *op =
        expect(put_until(run_keyed(1, "k"), world.mono_ms + 1000), OUTCOME_LOST);
    cr_assert(!op->changed);
    expect_no_runs(op);
    expect(get_run(1), OUTCOME_ABSENT);
    expect(get_run_by_key("k"), OUTCOME_ABSENT);
    expect(put_until(run_keyed(1, "k"), world.mono_ms - 1), OUTCOME_LOST);
    INSERTED(put_until(run_keyed(1, "k"), world.mono_ms + LEASE_MS), 1);
}

RUN_CASE(run_put, too_late_takes_no_key)
{
    struct run r = run_keyed(1, "k");
    r.key_until_ms = world.wall_ms + 1000;
    INSERTED(put_run(r), 1);
    world_advance(&world, 1000);
    expect(put_until(run_keyed(2, "k"), world.mono_ms + 1000), OUTCOME_LOST);
    cr_assert(run_now(1)->key_held);
}

/* A drainer's lease, too. Its entry may have been changed by somebody else since it lapsed. */
static const struct op *drain_until(struct run r, struct bytes changes, int64_t until_ms)
{
    struct run_ask ask = ask_put(&r);
    ask.drains = true;
    ask.changes = changes;
    ask.until_ms = until_ms;
    return ask_run(VERB_RUN_PUT, ask);
}

static void expect_too_late(const struct op *op)
{
    expect(op, OUTCOME_LOST);
    cr_assert(!op->changed);
    expect_no_runs(op);
}

RUN_CASE(run_put, whose_drain_lapses_is_too_late)
{
    int64_t late_ms = world.mono_ms + 1000;
    expect_too_late(drain_until(run_keyed(1, "k"), NO_CHANGES, late_ms));
    expect_too_late(drain_until(run_keyed(1, "k"), CHANGES(cancel()), late_ms));
    expect(get_run(1), OUTCOME_ABSENT);
    expect(get_run_by_key("k"), OUTCOME_ABSENT);
    INSERTED(drain_until(run_keyed(1, "k"), NO_CHANGES, world.mono_ms + LEASE_MS), 1);
}

RUN_CASE(run_put, whose_drain_lapses_becomes_no_alias)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    expect_too_late(
        drain_until(run_keyed(2, "k"), CHANGES(add_tags("a", NULL)), world.mono_ms + 1000));
    expect(get_run(2), OUTCOME_ABSENT);
    cr_assert(run_now(1)->tags.len == 0);
}

RUN_CASE(run_put, whose_drain_lapses_changes_nothing)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    expect(drain_run(run_keyed(2, "k"), NO_CHANGES), OUTCOME_OK);
    for (unsigned n = 1; n <= 2; n++)
        expect_too_late(
            drain_until(run_keyed(n, "k"), CHANGES(cancel()), world.mono_ms + 1000));
    expect_run_state(1, RUN_QUEUED);
}

/* ---- from the buffer ---- */

RUN_CASE(run_drain, without_changes_is_a_put)
{
    struct run r = run_in_full(1);
    struct run_ask ask = ask_put(&r);
    ask.drains = true;
    const struct op *op = ask_run(VERB_RUN_PUT, ask);
    INSERTED(op, 1);
    expect_same_run(only_run(op), &r);
    op = ask_run(VERB_RUN_PUT, ask);
    SAME(op, 1);
    expect_same_run(only_run(op), &r);
}

RUN_CASE(run_drain, changes_are_in_the_run)
{
    struct run r = run_nr(1);
    r.tags = tags_of("a", NULL);
    const struct op *op =
        drain_run(r, CHANGES(add_tags("b", "a"), set_metadata("{\"x\": 1}", RUN_ANY_VERSION),
                             set_metadata("{\"x\": 2}", 1)));
    INSERTED(op, 1);
    cr_assert(bytes_eq(only_run(op)->tags, tags_of("a", "b")));
    const struct run *got = run_now(1);
    cr_assert(bytes_eq(got->tags, tags_of("a", "b")) && got->changes == 3);
    expect_text(got->metadata, "{\"x\": 2}");
    cr_assert(got->metadata_version == 2);
}

RUN_CASE(run_drain, a_change_counts_by_the_moment_when_it_was_made)
{
    struct run r = run_delayed(1, 1000);
    struct bytes changes = CHANGES(reschedule(world.wall_ms + 9000));
    world_advance(&world, 5000);
    INSERTED(drain_run(r, changes), 1);
    cr_assert(run_now(1)->delay_until_ms == r.created_at_ms + 9000);
    expect_no_runs(expect(lease_runs(1), OUTCOME_OK));
}

RUN_CASE(run_drain, a_run_canceled_in_the_buffer_never_executes)
{
    INSERTED(drain_run(run_keyed(1, "k"), CHANGES(cancel())), 1);
    expect_run_state(1, RUN_CANCELED);
    expect_no_runs(expect(lease_runs(1), OUTCOME_OK));
    CACHED(put_run(run_keyed(2, "k")), 1);
}

RUN_CASE(run_drain, again_changes_nothing)
{
    struct bytes changes = CHANGES(add_tags("a", NULL), increment(), increment());
    INSERTED(drain_run(run_nr(1), changes), 1);
    const struct op *op = drain_run(run_nr(1), changes);
    SAME(op, 1);
    cr_assert(!op->changed);
    cr_assert(run_now(1)->metadata_version == 2);
    expect_json(run_now(1)->metadata, "{\"n\":2}");
}

/* The drainer died between the ledger and the buffer; the entry took more changes before the next
 * one had it. */
RUN_CASE(run_drain, again_with_more_changes_applies_the_rest)
{
    INSERTED(drain_run(run_nr(1), CHANGES(increment(), increment())), 1);
    struct run leased = leased_one(1);
    const struct op *op = drain_run(
        run_nr(1), CHANGES(increment(), increment(), increment(), add_tags("a", NULL)));
    SAME(op, 1);
    cr_assert(op->changed);
    const struct run *got = run_now(1);
    cr_assert(got->metadata_version == 3 && got->changes == 4);
    expect_json(got->metadata, "{\"n\":3}");
    cr_assert(got->state == RUN_EXECUTING && token_eq(&got->token, &leased.token));
}

/* A drainer that was stopped for longer than its lease wakes up behind the one that took over. */
RUN_CASE(run_drain, a_late_drainer_with_fewer_changes_undoes_nothing)
{
    struct bytes few = CHANGES(set_metadata("{\"n\": 1}", RUN_ANY_VERSION));
    struct bytes all = CHANGES(set_metadata("{\"n\": 1}", RUN_ANY_VERSION),
                               set_metadata("{\"n\": 2}", RUN_ANY_VERSION));
    INSERTED(drain_run(run_nr(1), all), 1);
    SAME(drain_run(run_nr(1), few), 1);
    cr_assert(run_now(1)->changes == 2);
    expect_text(run_now(1)->metadata, "{\"n\": 2}");
    SAME(drain_run(run_nr(1), all), 1);
    cr_assert(run_now(1)->metadata_version == 2, "a change was made twice");
}

RUN_CASE(run_drain, changes_made_to_the_row_meanwhile_stay)
{
    INSERTED(drain_run(run_nr(1), CHANGES(add_tags("a", NULL))), 1);
    expect(change_run(1, add_tags("b", NULL)), OUTCOME_OK);
    SAME(
        drain_run(run_nr(1), CHANGES(add_tags("a", NULL), set_metadata("{}", RUN_ANY_VERSION))),
        1);
    cr_assert(bytes_eq(run_now(1)->tags, tags_of("a", "b")));
    cr_assert(run_now(1)->changes == 2 && run_now(1)->metadata_version == 1);
}

RUN_CASE(run_drain, a_cancel_that_comes_late_still_cancels)
{
    INSERTED(drain_run(run_nr(1), NO_CHANGES), 1);
    struct run leased = leased_one(1);
    SAME(drain_run(run_nr(1), CHANGES(cancel())), 1);
    expect_run_state(1, RUN_CANCELED);
    expect(change_run(1, complete(&leased, "1")), OUTCOME_LOST);
}

RUN_CASE(run_drain, a_refused_change_is_counted_and_changes_nothing)
{
    INSERTED(drain_run(run_nr(1), CHANGES(reschedule(world.wall_ms + 1), add_tags("a", NULL))),
             1);
    cr_assert(run_now(1)->changes == 2 && run_now(1)->delay_until_ms == 0);
    cr_assert(bytes_eq(run_now(1)->tags, tags_of("a", NULL)));
}

RUN_CASE(run_drain, a_key_that_was_reset_in_the_buffer_is_free)
{
    INSERTED(drain_run(run_keyed(1, "k"), CHANGES(reset_key())), 1);
    cr_assert(!run_now(1)->key_held);
    expect(get_run_by_key("k"), OUTCOME_ABSENT);
    INSERTED(put_run(run_keyed(2, "k")), 2);
}

RUN_CASE(run_drain, a_run_that_gave_up_its_key_is_nobodys_alias)
{
    INSERTED(put_run(run_keyed(2, "k")), 2);
    INSERTED(drain_run(run_keyed(1, "k"), CHANGES(reset_key())), 1);
    cr_assert(run_now(1)->canonical.text[0] == '\0');
    expect_key_leads_to("k", 2);
}

RUN_CASE(run_drain, a_key_that_expired_in_the_buffer_takes_nothing)
{
    struct run r = run_keyed(1, "k");
    r.key_until_ms = world.wall_ms + 1000;
    world_advance(&world, 1000);
    INSERTED(put_run(run_keyed(2, "k")), 2);
    INSERTED(drain_run(r, NO_CHANGES), 1);
    expect_key_leads_to("k", 2);
    CACHED(put_run(run_keyed(3, "k")), 2);
}

/* ---- aliases ---- */

static void expect_alias(unsigned alias, unsigned canonical)
{
    const struct run *got = run_now(alias);
    struct run_id id = id_nr(canonical);
    cr_assert(run_id_eq(&got->id, &id), "it is run %u", run_number(got));
    cr_assert(run_id_eq(&got->canonical, &id), "canonical is \"%s\"", got->canonical.text);
}

RUN_CASE(run_alias, a_drained_run_whose_key_is_taken_becomes_one)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    const struct op *op = drain_run(run_keyed(2, "k"), NO_CHANGES);
    ALIASED(op, 1);
    cr_assert(op->changed);
    struct run_id id = id_nr(1);
    cr_assert(run_id_eq(&only_run(op)->canonical, &id));
    expect_alias(2, 1);
    cr_assert(run_now(1)->canonical.text[0] == '\0', "it is nobody's alias");
    EXPECT_RUNS(list_runs(10), 1);
    EXPECT_RUNS(expect(lease_runs(10), OUTCOME_OK), 1);
}

/* It is another run's key, and about something else (C7): it must not be taken for that run, nor may
 * what it asked for vanish. */
static struct run run_of_another_payload(unsigned n)
{
    struct run r = run_keyed(n, "k");
    r.fingerprint = fingerprint_nr(1);
    r.payload = bytes_str("{\"another\": 1}");
    r.metadata = bytes_str("{\"m\": []}");
    r.metadata_version = 1;
    return r;
}

RUN_CASE(run_alias, of_another_payload_is_none)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    struct run r = run_of_another_payload(2);
    const struct op *op = drain_run(r, CHANGES(add_tags("a", NULL)));
    FAILED(op, 2);
    cr_assert(op->changed);
    struct run want = r;
    want.state = RUN_FAILED;
    want.finished_at_ms = world.wall_ms;
    want.key_held = false;
    want.tags = tags_of("a", NULL);
    want.changes = 1;
    want.error = run_now(2)->error;
    expect_same_run(run_now(2), &want);
    expect_same_run(only_run(op), &want);
    char text[128];
    snprintf(text, sizeof text, "\"its key is taken by %s, which has another payload\"",
             id_nr(1).text);
    expect_text(want.error, text);
    cr_assert(run_now(1)->tags.len == 0, "its changes are its own");
    expect_key_leads_to("k", 1);
    EXPECT_RUNS(expect(lease_runs(10), OUTCOME_OK), 1);
}

RUN_CASE(run_alias, of_another_payload_is_none_also_the_second_time)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    FAILED(drain_run(run_of_another_payload(2), NO_CHANGES), 2);
    const struct op *op = drain_run(run_of_another_payload(2), NO_CHANGES);
    SAME(op, 2);
    cr_assert(!op->changed);
    expect(reset_run_key("k"), OUTCOME_OK);
    SAME(drain_run(run_of_another_payload(2), CHANGES(add_tags("a", NULL))), 2);
    expect_run_state(2, RUN_FAILED);
    INSERTED(put_run(run_keyed(3, "k")), 3);
}

RUN_CASE(run_alias, of_another_payload_that_was_canceled_stays_canceled)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    FAILED(drain_run(run_of_another_payload(2), CHANGES(cancel())), 2);
    expect_run_state(2, RUN_CANCELED);
    expect_run_state(1, RUN_QUEUED);
    expect_key_leads_to("k", 1);
}

/* Those of one batch are decided before any of them is written. */
RUN_CASE(run_alias, of_another_payload_says_whose_key_it_is)
{
    struct run runs[] = { run_of_another_payload(3), run_of_another_payload(4) };
    struct waiting *w[2];
    INSERTED(put_run(run_keyed(1, "k")), 1);
    INSERTED(put_run(run_keyed(2, "l")), 2);
    runs[1].key = bytes_str("l");
    for (size_t i = 0; i < 2; i++) {
        struct run_ask ask = ask_put(&runs[i]);
        ask.drains = true;
        w[i] = submit_run(VERB_RUN_PUT, ask);
    }
    world_settle(&world);
    for (unsigned i = 0; i < 2; i++) {
        cr_assert(w[i]->op->run->put == PUT_FAILED);
        const struct run *got = run_now(3 + i);
        cr_assert(memmem(got->error.data, got->error.len, id_nr(1 + i).text, RUN_ID_BYTES));
    }
}

RUN_CASE(run_alias, of_a_run_that_has_no_right_to_the_key_is_none)
{
    struct run r = run_keyed(1, "k"), none = { 0 };
    r.attempts_max = 1;
    INSERTED(put_run(r), 1);
    finish_with(1, fail(&none, -1));
    INSERTED(drain_run(run_keyed(2, "k"), NO_CHANGES), 2);
    expect_key_leads_to("k", 2);
}

RUN_CASE(run_alias, its_changes_are_merged)
{
    struct run r = run_keyed(1, "k");
    r.tags = tags_of("a", NULL);
    r.metadata = bytes_str("{\"n\": 40}");
    r.metadata_version = 1;
    INSERTED(put_run(r), 1);
    ALIASED(
        drain_run(run_keyed(2, "k"), CHANGES(add_tags("b", NULL), increment(), increment())),
        1);
    const struct run *got = run_now(1);
    cr_assert(bytes_eq(got->tags, tags_of("a", "b")));
    expect_json(got->metadata, "{\"n\":42}");
    cr_assert(got->changes == 0, "those are the alias's");
}

RUN_CASE(run_alias, a_cancel_is_merged)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    struct run leased = leased_one(1);
    ALIASED(drain_run(run_keyed(2, "k"), CHANGES(cancel())), 1);
    expect_run_state(1, RUN_CANCELED);
    expect(change_run(1, complete(&leased, "1")), OUTCOME_LOST);
}

RUN_CASE(run_alias, times_and_keys_are_the_canonical_ones_own)
{
    struct run r = run_keyed(1, "k");
    r.delay_until_ms = r.available_at_ms = world.wall_ms + 5000;
    INSERTED(put_run(r), 1);
    struct bytes changes = CHANGES(reschedule(world.wall_ms + 60000), add_tags("a", NULL));
    ALIASED(drain_run(run_keyed(2, "k"), changes), 1);
    cr_assert(run_now(1)->delay_until_ms == r.delay_until_ms);
    cr_assert(bytes_eq(run_now(1)->tags, tags_of("a", NULL)));
    expect_key_leads_to("k", 1);
}

RUN_CASE(run_alias, again_is_merged_once_and_the_rest_too)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    struct bytes two = CHANGES(increment(), increment());
    struct bytes three = CHANGES(increment(), increment(), increment());
    ALIASED(drain_run(run_keyed(2, "k"), two), 1);
    const struct op *op = drain_run(run_keyed(2, "k"), two);
    SAME(op, 1);
    cr_assert(!op->changed);
    SAME(drain_run(run_keyed(2, "k"), three), 1);
    SAME(drain_run(run_keyed(2, "k"), two), 1);
    SAME(drain_run(run_keyed(2, "k"), three), 1);
    expect_json(run_now(1)->metadata, "{\"n\":3}");
}

RUN_CASE(run_alias, several_of_one_run_are_counted_apart)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    ALIASED(drain_run(run_keyed(2, "k"), CHANGES(increment())), 1);
    ALIASED(drain_run(run_keyed(3, "k"), CHANGES(increment(), increment())), 1);
    SAME(drain_run(run_keyed(2, "k"), CHANGES(increment(), increment())), 1);
    expect_json(run_now(1)->metadata, "{\"n\":4}");
}

RUN_CASE(run_alias, keeps_leading_there_when_the_key_does_not)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    ALIASED(drain_run(run_keyed(2, "k"), NO_CHANGES), 1);
    expect(reset_run_key("k"), OUTCOME_OK);
    INSERTED(put_run(run_keyed(3, "k")), 3);
    expect_alias(2, 1);
    SAME(drain_run(run_keyed(2, "k"), CHANGES(add_tags("a", NULL))), 1);
    cr_assert(bytes_eq(run_now(1)->tags, tags_of("a", NULL)));
}

RUN_CASE(run_alias, its_id_is_taken)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    ALIASED(drain_run(run_keyed(2, "k"), NO_CHANGES), 1);
    const struct op *op = put_run(run_nr(2));
    SAME(op, 1);
    struct run_id id = id_nr(1);
    cr_assert(run_id_eq(&only_run(op)->canonical, &id));
    SAME(put_run(run_keyed(2, "k")), 1);
    EXPECT_RUNS(list_runs(10), 1);
}

RUN_CASE(run_alias, changes_by_its_id_reach_the_run)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    ALIASED(drain_run(run_keyed(2, "k"), NO_CHANGES), 1);
    const struct op *op = expect(change_run(2, add_tags("a", NULL)), OUTCOME_OK);
    struct run_id id = id_nr(1);
    cr_assert(run_id_eq(&only_run(op)->id, &id) && run_id_eq(&only_run(op)->canonical, &id));
    cr_assert(bytes_eq(run_now(1)->tags, tags_of("a", NULL)));
    struct run leased = leased_one(1);
    expect(change_run(2, heartbeat(&leased, -1)), OUTCOME_OK);
    expect(change_run(2, complete(&leased, "7")), OUTCOME_OK);
    expect_run_state(1, RUN_COMPLETED);
    expect_text(run_now(2)->output, "7");
}

RUN_CASE(run_alias, is_of_its_env)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    ALIASED(drain_run(run_keyed(2, "k"), NO_CHANGES), 1);
    struct run_ask there = { .env = bytes_str("f"), .id = id_nr(2) };
    expect(ask_run(VERB_RUN_GET, there), OUTCOME_ABSENT);
    struct run r = run_keyed(2, "k");
    r.env = bytes_str("f");
    INSERTED(drain_run(r, NO_CHANGES), 2);
}

/* ---- many at once ---- */

RUN_CASE(run_batch, of_puts_with_one_key_makes_one_run)
{
    enum { MANY = 50 };
    struct waiting *w[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        struct run r = run_keyed(i, "k");
        w[i] = submit_run(VERB_RUN_PUT, ask_put(&r));
    }
    world_settle(&world);
    cr_assert(outcome_of(w[0]) == OUTCOME_OK && w[0]->op->run->put == PUT_INSERT);
    for (unsigned i = 1; i < MANY; i++) CACHED(answered(w[i]), 0);
    EXPECT_RUNS(list_runs(MANY), 0);
}

RUN_CASE(run_batch, of_puts_of_one_id_makes_one_run)
{
    enum { MANY = 20 };
    struct waiting *w[MANY];
    struct run r = run_nr(1);
    for (unsigned i = 0; i < MANY; i++) w[i] = submit_run(VERB_RUN_PUT, ask_put(&r));
    world_settle(&world);
    INSERTED(answered(w[0]), 1);
    for (unsigned i = 1; i < MANY; i++) SAME(answered(w[i]), 1);
}

RUN_CASE(run_batch, of_drains_with_one_key_makes_one_run_and_aliases)
{
    enum { MANY = 20 };
    struct waiting *w[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        struct run r = run_keyed(i, "k");
        struct run_ask ask = ask_put(&r);
        ask.drains = true;
        ask.changes = CHANGES(increment());
        w[i] = submit_run(VERB_RUN_PUT, ask);
    }
    world_settle(&world);
    INSERTED(answered(w[0]), 0);
    for (unsigned i = 1; i < MANY; i++) ALIASED(answered(w[i]), 0);
    for (unsigned i = 1; i < MANY; i++) expect_alias(i, 0);
    expect_json(run_now(0)->metadata, "{\"n\":20}");
}

RUN_CASE(run_batch, of_put_and_reset_goes_in_order)
{
    struct run first = run_keyed(1, "k"), second = run_keyed(2, "k");
    struct run_ask of_key = { .env = bytes_str("e"),
                              .task = bytes_str("t"),
                              .key = bytes_str("k") };
    struct waiting *w[] = {
        submit_run(VERB_RUN_PUT, ask_put(&first)),  submit_run(VERB_RUN_RESET, of_key),
        submit_run(VERB_RUN_PUT, ask_put(&second)), submit_run(VERB_RUN_GET, of_key),
        submit_run(VERB_RUN_RESET, of_key),         submit_run(VERB_RUN_RESET, of_key),
    };
    static const enum outcome in_order[] = { OUTCOME_OK, OUTCOME_OK, OUTCOME_OK,
                                             OUTCOME_OK, OUTCOME_OK, OUTCOME_ABSENT };
    world_settle(&world);
    for (size_t i = 0; i < sizeof w / sizeof w[0]; i++)
        cr_assert(outcome_of(w[i]) == in_order[i], "step %zu: %s", i,
                  outcome_name(outcome_of(w[i])));
    EXPECT_RUNS(w[3]->op, 2);
}

RUN_CASE(run_batch, of_many_runs_puts_them_all)
{
    enum { MANY = 600 };
    static struct waiting *w[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        struct run r = run_nr(i);
        w[i] = submit_run(VERB_RUN_PUT, ask_put(&r));
    }
    world_settle(&world);
    for (unsigned i = 0; i < MANY; i++) INSERTED(answered(w[i]), i);
    cr_assert(list_runs(RUN_ROWS_MAX)->run->rows.count == MANY);
}

/* ---- two processes ---- */

SHARED_RUN_CASE(run_sharing, a_key_of_one_is_the_others_too)
{
    INSERTED(put_run(run_keyed(1, "k")), 1);
    there();
    CACHED(put_run(run_keyed(2, "k")), 1);
    SAME(put_run(run_keyed(1, "k")), 1);
    ALIASED(drain_run(run_keyed(3, "k"), CHANGES(add_tags("a", NULL))), 1);
    expect(reset_run_key("k"), OUTCOME_OK);
    here();
    expect_alias(3, 1);
    INSERTED(put_run(run_keyed(2, "k")), 2);
}
