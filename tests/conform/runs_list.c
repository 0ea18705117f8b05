/* runs_list.c - many runs: listing them, and sweeping those that nobody needs any more. */
#include "tests/conform/runs.h"

static const struct op *list_by(struct run_ask filter)
{
    filter.env = bytes_str("e");
    if (!filter.limit) filter.limit = 100;
    return expect(ask_run(VERB_RUN_LIST, filter), OUTCOME_OK);
}

static void put_numbers(unsigned from, unsigned to)
{
    for (unsigned n = from; n <= to; n++) expect(put_run(run_nr(n)), OUTCOME_OK);
}

/* ---- the order ---- */

RUN_CASE(run_list, of_nothing_is_empty)
{
    const struct op *op = expect(list_runs(10), OUTCOME_OK);
    expect_no_runs(op);
    cr_assert(!op->run->rows.more && !op->changed);
    cr_assert(op->run->now_ms == world.wall_ms);
}

RUN_CASE(run_list, has_the_newest_first)
{
    expect(put_run(run_nr(2)), OUTCOME_OK);
    expect(put_run(run_nr(3)), OUTCOME_OK);
    expect(put_run(run_nr(1)), OUTCOME_OK);
    EXPECT_RUNS(list_runs(10), 3, 2, 1);
}

RUN_CASE(run_list, is_of_its_env)
{
    put_numbers(1, 2);
    struct run r = run_nr(3);
    r.env = bytes_str("f");
    expect(put_run(r), OUTCOME_OK);
    EXPECT_RUNS(list_runs(10), 2, 1);
    struct run_ask there = { .env = bytes_str("f"), .limit = 10 };
    EXPECT_RUNS(ask_run(VERB_RUN_LIST, there), 3);
}

RUN_CASE(run_list, has_runs_in_full)
{
    struct run r = run_keyed(1, "k");
    r.tags = tags_of("a", "b");
    r.metadata = bytes_str("{\"x\": 1}");
    expect(put_run(r), OUTCOME_OK);
    leased_one(1);
    const struct run *got = only_run(list_runs(1));
    cr_assert(got->state == RUN_EXECUTING && got->attempts == 1);
    cr_assert(bytes_eq(got->tags, r.tags) && bytes_eq(got->metadata, r.metadata));
    cr_assert(bytes_eq(got->payload, r.payload) && bytes_eq(got->key, r.key));
}

RUN_CASE(run_list, has_no_aliases)
{
    expect(put_run(run_keyed(1, "k")), OUTCOME_OK);
    expect(drain_run(run_keyed(2, "k"), NO_CHANGES), OUTCOME_OK);
    EXPECT_RUNS(list_runs(10), 1);
    cr_assert(only_run(list_runs(10))->canonical.text[0] == '\0');
}

/* ---- pages ---- */

RUN_CASE(run_list, stops_at_the_limit_and_says_if_there_is_more)
{
    put_numbers(1, 3);
    const struct op *op = list_runs(2);
    EXPECT_RUNS(op, 3, 2);
    cr_assert(op->run->rows.more);
    op = list_runs(3);
    EXPECT_RUNS(op, 3, 2, 1);
    cr_assert(!op->run->rows.more);
}

RUN_CASE(run_list, goes_on_before_an_id)
{
    put_numbers(1, 5);
    struct run_ask ask = { .before = id_nr(3) };
    EXPECT_RUNS(list_by(ask), 2, 1);
    ask.before = id_nr(1);
    expect_no_runs(list_by(ask));
    ask.before = id_nr(99); /* need not be there */
    EXPECT_RUNS(list_by(ask), 5, 4, 3, 2, 1);
}

/* New runs while somebody turns pages: nothing twice, nothing old left out. */
RUN_CASE(run_list, turns_pages_without_repeating_any)
{
    enum { MANY = 50, PAGE = 7 };
    unsigned seen = 0, extra = 1000;
    put_numbers(1, MANY);
    struct run_ask ask = { .limit = PAGE };
    for (unsigned next = MANY; next > 0;) {
        const struct op *op = list_by(ask);
        const struct run_rows *rows = &op->run->rows;
        cr_assert(rows->count > 0);
        for (size_t i = 0; i < rows->count; i++, seen++)
            cr_assert(run_number(rows->rows[i]) == next--, "page with run %u", next + 1);
        cr_assert(rows->more == (next > 0));
        ask.before = rows->rows[rows->count - 1]->id;
        expect(put_run(run_nr(extra++)), OUTCOME_OK);
    }
    cr_assert(seen == MANY);
}

/* ---- filters ---- */

RUN_CASE(run_list, by_task_and_queue)
{
    struct run r = run_nr(1);
    r.task = bytes_str("mail");
    expect(put_run(r), OUTCOME_OK);
    r = run_nr(2);
    r.queue = bytes_str("slow");
    expect(put_run(r), OUTCOME_OK);
    r = run_nr(3);
    r.task = bytes_str("mail");
    r.queue = bytes_str("slow");
    expect(put_run(r), OUTCOME_OK);
    EXPECT_RUNS(list_by((struct run_ask){ .task = bytes_str("mail") }), 3, 1);
    EXPECT_RUNS(list_by((struct run_ask){ .queue = bytes_str("slow") }), 3, 2);
    struct run_ask both = { .task = bytes_str("mail"), .queue = bytes_str("slow") };
    EXPECT_RUNS(list_by(both), 3);
    expect_no_runs(list_by((struct run_ask){ .task = bytes_str("mai") }));
}

RUN_CASE(run_list, by_state)
{
    put_numbers(1, 4);
    struct run one = leased_one(1), two = leased_one(2);
    expect(change_run(2, complete(&two, "")), OUTCOME_OK);
    expect(change_run(3, cancel()), OUTCOME_OK);
    struct run r = run_nr(5);
    r.state = RUN_FAILED;
    r.finished_at_ms = world.wall_ms;
    expect(put_run(r), OUTCOME_OK);
    (void)one;
    EXPECT_RUNS(list_by((struct run_ask){ .states = BIT(RUN_QUEUED) }), 4);
    EXPECT_RUNS(list_by((struct run_ask){ .states = BIT(RUN_EXECUTING) }), 1);
    EXPECT_RUNS(list_by((struct run_ask){ .states = BIT(RUN_COMPLETED) }), 2);
    EXPECT_RUNS(list_by((struct run_ask){ .states = BIT(RUN_CANCELED) }), 3);
    EXPECT_RUNS(list_by((struct run_ask){ .states = BIT(RUN_FAILED) }), 5);
    EXPECT_RUNS(list_by((struct run_ask){ .states = BIT(RUN_FAILED) | BIT(RUN_QUEUED) }), 5, 4);
}

RUN_CASE(run_list, by_tag_and_not_by_a_part_of_one)
{
    struct bytes tags[] = { tags_of("a", "b"), tags_of("ab", NULL), tags_of("b", NULL),
                            tags_of("xyza", "c\001a") };
    for (unsigned n = 0; n < 4; n++) {
        struct run r = run_nr(n);
        r.tags = tags[n];
        expect(put_run(r), OUTCOME_OK);
    }
    expect(put_run(run_nr(4)), OUTCOME_OK);
    EXPECT_RUNS(list_by((struct run_ask){ .tag = bytes_str("a") }), 0);
    EXPECT_RUNS(list_by((struct run_ask){ .tag = bytes_str("b") }), 2, 0);
    EXPECT_RUNS(list_by((struct run_ask){ .tag = bytes_str("ab") }), 1);
    expect_no_runs(list_by((struct run_ask){ .tag = bytes_str("c") }));
    expect(change_run(4, add_tags("c", NULL)), OUTCOME_OK);
    EXPECT_RUNS(list_by((struct run_ask){ .tag = bytes_str("c") }), 4);
}

RUN_CASE(run_list, pages_of_a_filter_are_full)
{
    for (unsigned n = 0; n < 20; n++) {
        struct run r = run_nr(n);
        if (n % 4 == 0) r.tags = tags_of("fourth", NULL);
        expect(put_run(r), OUTCOME_OK);
    }
    struct run_ask ask = { .tag = bytes_str("fourth"), .limit = 3 };
    const struct op *op = list_by(ask);
    EXPECT_RUNS(op, 16, 12, 8);
    cr_assert(op->run->rows.more);
    ask.before = id_nr(8);
    op = list_by(ask);
    EXPECT_RUNS(op, 4, 0);
    cr_assert(!op->run->rows.more);
    ask.limit = 2;
    cr_assert(!list_by(ask)->run->rows.more, "those that follow do not have it");
}

/* ---- sweeping ---- */

static void put_canceled(struct run r)
{
    expect(drain_run(r, CHANGES(cancel())), OUTCOME_OK);
}

RUN_CASE(run_expire, removes_final_runs_when_their_time_is_over)
{
    put_canceled(run_nr(1));
    put_numbers(2, 2);
    world_advance(&world, RUN_RETAIN_MS_DEFAULT - 1);
    cr_assert(expire(10)->count == 0);
    world_advance(&world, 1);
    const struct op *op = expire(10);
    cr_assert(op->count == 1 && op->changed);
    expect(get_run(1), OUTCOME_ABSENT);
    expect_run_state(2, RUN_QUEUED);
    cr_assert(expire(10)->count == 0);
}

RUN_CASE(run_expire, keeps_a_run_as_long_as_its_key)
{
    struct run r = run_keyed(1, "k");
    r.key_until_ms = world.wall_ms + 2 * RUN_RETAIN_MS_DEFAULT;
    put_canceled(r);
    world_advance(&world, 2 * RUN_RETAIN_MS_DEFAULT - 1);
    cr_assert(expire(10)->count == 0);
    expect(get_run_by_key("k"), OUTCOME_OK);
    world_advance(&world, 1);
    cr_assert(expire(10)->count == 1);
}

RUN_CASE(run_expire, a_key_that_was_reset_keeps_nothing)
{
    struct run r = run_keyed(1, "k");
    r.key_until_ms = world.wall_ms + 2 * RUN_RETAIN_MS_DEFAULT;
    put_canceled(r);
    expect(reset_run_key("k"), OUTCOME_OK);
    world_advance(&world, RUN_RETAIN_MS_DEFAULT);
    cr_assert(expire(10)->count == 1);
}

RUN_CASE(run_expire, removes_aliases_with_their_run)
{
    expect(put_run(run_keyed(1, "k")), OUTCOME_OK);
    expect(drain_run(run_keyed(2, "k"), NO_CHANGES), OUTCOME_OK);
    expect(drain_run(run_keyed(3, "k"), CHANGES(cancel())), OUTCOME_OK);
    world_advance(&world, RUN_RETAIN_MS_DEFAULT - 1);
    cr_assert(expire(10)->count == 0);
    expect(get_run(3), OUTCOME_OK);
    world_advance(&world, 1);
    cr_assert(expire(10)->count == 3);
    for (unsigned n = 1; n <= 3; n++) expect(get_run(n), OUTCOME_ABSENT);
    expect(put_run(run_keyed(2, "k")), OUTCOME_OK);
    EXPECT_RUNS(list_runs(10), 2);
}

RUN_CASE(run_expire, stops_at_the_limit)
{
    for (unsigned n = 1; n <= 5; n++) put_canceled(run_nr(n));
    expect(put_run(run_keyed(6, "k")), OUTCOME_OK);
    expect(drain_run(run_keyed(7, "k"), CHANGES(cancel())), OUTCOME_OK);
    expect(claim("k", 1), OUTCOME_CLAIMED);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    world_advance(&world, RUN_RETAIN_MS_DEFAULT);
    size_t total = 0;
    for (unsigned i = 0; i < 8 && total < 8; i++) {
        size_t count = expire(3)->count;
        cr_assert(count >= 1 && count <= 3, "%zu at once", count);
        total += count;
    }
    cr_assert(total == 8 && expire(3)->count == 0);
    expect_no_runs(list_runs(10));
}

/* ---- no more bytes than a process can bear ---- */

static void put_large(unsigned count)
{
    enum { LARGE = 1 << 20 };
    static uint8_t payload[LARGE];
    memset(payload, '7', sizeof payload);
    for (unsigned n = 1; n <= count; n++) {
        struct run r = run_nr(n);
        r.payload = bytes_of(payload, sizeof payload);
        expect(put_run(r), OUTCOME_OK);
    }
}

RUN_CASE(run_list, of_large_runs_is_cut_and_goes_on)
{
    put_large(18);
    const struct op *op = expect(list_runs(100), OUTCOME_OK);
    cr_assert(op->run->rows.count == 16 && op->run->rows.more, "%zu", op->run->rows.count);
    struct run_ask rest = { .before = op->run->rows.rows[15]->id };
    op = list_by(rest);
    cr_assert(op->run->rows.count == 2 && !op->run->rows.more);
}

RUN_CASE(run_lease, of_large_runs_is_cut_and_goes_on)
{
    put_large(18);
    cr_assert(expect(lease_runs(18), OUTCOME_OK)->run->rows.count == 16);
    cr_assert(expect(lease_runs(18), OUTCOME_OK)->run->rows.count == 2);
}
