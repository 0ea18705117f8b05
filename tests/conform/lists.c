/* lists.c - the verbs about many records: expire, scan, stats, ping. */
#include "tests/conform/conform.h"

static void make_done(const char *name, int64_t retain_ms)
{
    struct request in = owner(1);
    in.retain_ms = retain_ms;
    expect(ask(VERB_CLAIM, name, in), OUTCOME_CLAIMED);
    expect(publish(name, 1, "A"), OUTCOME_OK);
}

/* ---- expire ---- */

CASE(expire, empty_store_has_nothing)
{
    const struct op *op = expect(expire(10), OUTCOME_OK);
    cr_assert(op->count == 0 && !op->changed);
}

CASE(expire, removes_what_is_past_retention)
{
    make_done("a", 1000);
    make_done("b", 2000);
    world_advance(&world, 1999);
    const struct op *op = expire(10);
    cr_assert(op->count == 1 && op->changed);
    expect(peek("a"), OUTCOME_ABSENT);
    expect(peek("b"), OUTCOME_CACHED);
    world_advance(&world, 1);
    cr_assert(expire(10)->count == 1);
    cr_assert(stats()->stats.gone == 0);
}

CASE(expire, stops_at_the_limit)
{
    char name[16];
    for (unsigned i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "k%u", i);
        make_done(name, 1000);
    }
    world_advance(&world, 1000);
    cr_assert(stats()->stats.gone == 10);
    cr_assert(expire(4)->count == 4);
    cr_assert(stats()->stats.gone == 6);
    cr_assert(expire(4)->count == 4);
    cr_assert(expire(4)->count == 2);
    cr_assert(expire(4)->count == 0);
}

CASE(expire, never_touches_an_answer_in_retention)
{
    make_done("k", 1000);
    world_advance(&world, 999);
    cr_assert(expire(10)->count == 0);
    expect_value(expect(peek("k"), OUTCOME_CACHED), "A");
}

CASE(expire, never_touches_a_claim_that_is_alive)
{
    struct request in = owner(1);
    in.retain_ms = 0;
    expect(ask(VERB_CLAIM, "k", in), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS - 1);
    cr_assert(expire(10)->count == 0);
    expect(publish("k", 1, "A"), OUTCOME_OK);
}

CASE(expire, leaves_a_lapsed_claim_to_its_late_owner)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS);
    cr_assert(expire(10)->count == 0);
    expect(publish("k", 1, "A"), OUTCOME_OK);
}

CASE(expire, removes_an_abandoned_claim_after_a_day)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS + ABANDONED_KEEP_MS - 1);
    cr_assert(expire(10)->count == 0);
    world_advance(&world, 1);
    cr_assert(expire(10)->count == 1);
    expect(publish("k", 1, "A"), OUTCOME_LOST);
}

CASE(expire, follows_a_renewal)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS + ABANDONED_KEEP_MS - 1);
    expect(renew("k", 1), OUTCOME_OK);
    world_advance(&world, 1);
    cr_assert(expire(10)->count == 0);
    expect(publish("k", 1, "A"), OUTCOME_OK);
}

/* ---- scan ---- */

static void make_three_scopes(void)
{
    static const char *const at[][2] = { { "b", "2" }, { "a", "9" },  { "b", "10" },
                                         { "a", "1" }, { "ab", "0" }, { "b", "1" } };
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++)
        expect(ask_key(VERB_CLAIM, key_of(at[i][0], at[i][1]), owner(1)), OUTCOME_CLAIMED);
}

static void expect_row(const struct scan_row *row, const char *scope, const char *name)
{
    cr_assert(bytes_eq(row->key.scope, bytes_str(scope)));
    cr_assert(bytes_eq(row->key.name, bytes_str(name)), "%.*s, expected %s",
              (int)row->key.name.len, (const char *)row->key.name.data, name);
}

CASE(scan, empty_store_has_no_rows)
{
    const struct op *op = expect(scan(NULL, NULL, 10), OUTCOME_OK);
    cr_assert(op->scan.count == 0 && !op->scan.more);
}

CASE(scan, is_in_order_of_scope_and_key)
{
    make_three_scopes();
    const struct op *op = scan(NULL, NULL, 100);
    cr_assert(op->scan.count == 6 && !op->scan.more);
    expect_row(&op->scan.rows[0], "a", "1");
    expect_row(&op->scan.rows[1], "a", "9");
    expect_row(&op->scan.rows[2], "ab", "0");
    expect_row(&op->scan.rows[3], "b", "1");
    expect_row(&op->scan.rows[4], "b", "10");
    expect_row(&op->scan.rows[5], "b", "2");
}

CASE(scan, of_one_scope_sees_only_that)
{
    make_three_scopes();
    const struct op *op = scan("a", NULL, 100);
    cr_assert(op->scan.count == 2 && !op->scan.more);
    expect_row(&op->scan.rows[0], "a", "1");
    expect_row(&op->scan.rows[1], "a", "9");
    cr_assert(scan("none", NULL, 100)->scan.count == 0);
}

static void expect_pages_of(size_t limit, const char *scope, size_t total)
{
    struct key after = { bytes_str(scope ? scope : ""), bytes_str("") };
    char from_scope[16], from_name[16];
    size_t seen = 0;
    for (bool more = true; more;) {
        struct op *ask_op = op_new(VERB_SCAN, &after, NULL);
        ask_op->all_scopes = !scope;
        ask_op->limit = limit;
        const struct op *op = submit(ask_op)->op;
        world_settle(&world);
        cr_assert(op->scan.count <= limit);
        cr_assert(op->scan.count > 0 || seen == total);
        seen += op->scan.count;
        more = op->scan.more;
        cr_assert(more == (seen < total));
        if (!more) break;
        const struct scan_row *last = &op->scan.rows[op->scan.count - 1];
        snprintf(from_scope, sizeof from_scope, "%.*s", (int)last->key.scope.len,
                 (const char *)last->key.scope.data);
        snprintf(from_name, sizeof from_name, "%.*s", (int)last->key.name.len,
                 (const char *)last->key.name.data);
        after = key_of(from_scope, from_name);
    }
    cr_assert(seen == total, "%zu rows of %zu with pages of %zu", seen, total, limit);
}

CASE(scan, pages_of_any_size_give_every_row_once)
{
    make_three_scopes();
    for (size_t limit = 1; limit <= 7; limit++) {
        expect_pages_of(limit, NULL, 6);
        expect_pages_of(limit, "b", 3);
    }
}

CASE(scan, skips_what_is_past_retention)
{
    make_done("a", 1000);
    make_done("b", 2000);
    world_advance(&world, 1000);
    const struct op *op = scan("s", NULL, 10);
    cr_assert(op->scan.count == 1);
    expect_row(&op->scan.rows[0], "s", "b");
}

CASE(scan, rows_tell_the_state)
{
    int64_t start_ms = world.wall_ms;
    uint64_t fence = expect(claim("alive", 1), OUTCOME_CLAIMED)->out.fence;
    make_done("done", 5000);
    world_advance(&world, 100);
    const struct op *op = scan("s", NULL, 10);
    cr_assert(op->scan.count == 2);
    const struct scan_row *alive = &op->scan.rows[0], *done = &op->scan.rows[1];
    cr_assert(alive->state == RECORD_PENDING && alive->fence == fence);
    cr_assert(alive->claimed_at_ms == start_ms && alive->lease_left_ms == LEASE_MS - 100);
    cr_assert(!alive->value_kept && alive->retain_left_ms == 0);
    cr_assert(done->state == RECORD_DONE && done->done_at_ms == start_ms);
    cr_assert(done->retain_left_ms == 4900 && done->lease_left_ms == 0);
    cr_assert(done->value_kept && done->value_bytes == 1);
}

CASE(scan, lapsed_row_has_no_lease_left)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS + 5);
    const struct op *op = scan("s", NULL, 10);
    cr_assert(op->scan.count == 1 && op->scan.rows[0].lease_left_ms == 0);
}

CASE(scan, tells_an_empty_value_from_none)
{
    expect(claim("empty", 1), OUTCOME_CLAIMED);
    expect(publish("empty", 1, ""), OUTCOME_OK);
    expect(claim("none", 1), OUTCOME_CLAIMED);
    expect(publish("none", 1, NULL), OUTCOME_OK);
    const struct op *op = scan("s", NULL, 10);
    cr_assert(op->scan.rows[0].value_kept && op->scan.rows[0].value_bytes == 0);
    cr_assert(!op->scan.rows[1].value_kept);
}

CASE(scan, changes_nothing)
{
    make_three_scopes();
    cr_assert(!scan(NULL, NULL, 3)->changed);
    cr_assert(stats()->stats.pending == 6);
}

/* ---- stats, ping ---- */

CASE(stats, count_every_state)
{
    expect(claim("lapsed1", 1), OUTCOME_CLAIMED);
    expect(claim("lapsed2", 1), OUTCOME_CLAIMED);
    make_done("gone", 10);
    make_done("done1", 2 * LEASE_MS);
    make_done("done2", 2 * LEASE_MS);
    make_done("done3", 2 * LEASE_MS);
    world_advance(&world, LEASE_MS);
    expect(claim("alive", 1), OUTCOME_CLAIMED);
    const struct op *op = expect(stats(), OUTCOME_OK);
    cr_assert(op->stats.pending == 1);
    cr_assert(op->stats.lapsed == 2);
    cr_assert(op->stats.done == 3);
    cr_assert(op->stats.gone == 1);
    cr_assert(op->stats.bytes > 0);
    cr_assert(op->stats.now_ms == world.wall_ms);
}

CASE(stats, fence_floor_covers_what_was_removed)
{
    uint64_t fence = expect(claim("k", 1), OUTCOME_CLAIMED)->out.fence;
    expect(release("k", 1), OUTCOME_OK);
    cr_assert(stats()->stats.fence_floor >= fence);
}

CASE(ping, answers)
{
    struct waiting *w = submit(op_new(VERB_PING, NULL, NULL));
    world_settle(&world);
    cr_assert(w->finished == 1 && !w->op->err.code && w->op->out.outcome == OUTCOME_OK);
}
