/* sqlite_test.c - what only the sqlite store promises about records: columns, listings, failures.
 * The rules themselves are tested by the conform and model suites. */
#include "store/sqlite_scene_test.h"

SQLITE_SUITE(sqlite);

/* ---- what a column can hold ---- */

Test(sqlite, empty_value_is_not_no_value)
{
    struct store *s = open_store();
    struct blob *empty = blob_new(bytes_of(NULL, 0));
    expect(s, VERB_CLAIM, "empty", owner(1), OUTCOME_CLAIMED);
    publish(s, "empty", 1, empty);
    expect(s, VERB_CLAIM, "none", owner(1), OUTCOME_CLAIMED);
    publish(s, "none", 1, NULL);
    expect(s, VERB_CLAIM, "empty", owner(2), OUTCOME_CACHED);
    expect(s, VERB_CLAIM, "none", owner(2), OUTCOME_ALREADY_DONE);
    publish(s, "empty", 1, empty);
    publish(s, "none", 1, NULL);
    struct request other = owner(1);
    expect(s, VERB_PUBLISH, "empty", other, OUTCOME_LOST);
    other.value = empty;
    expect(s, VERB_PUBLISH, "none", other, OUTCOME_LOST);
    blob_unref(empty);
    store_close(s);
}

Test(sqlite, values_and_fingerprints_are_bytes)
{
    struct store *s = open_store();
    static uint8_t megabyte[1024 * 1024 + 1];
    for (size_t i = 0; i < sizeof megabyte; i++) megabyte[i] = (uint8_t)(i * 31 >> 3);
    struct blob *value = blob_new(bytes_of(megabyte, sizeof megabyte));
    struct request in = owner(1);
    in.fingerprint = bytes_of("a\0b", 3);
    expect(s, VERB_CLAIM, "k", in, OUTCOME_CLAIMED);
    publish(s, "k", 1, value);
    store_close(s);

    s = open_store();
    in.fingerprint = bytes_of("a\0c", 3);
    expect(s, VERB_CLAIM, "k", in, OUTCOME_MISMATCH);
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_MISMATCH);
    in.fingerprint = bytes_of("a\0b", 3);
    struct op *op = op_on(VERB_CLAIM, "k", in);
    exec(s, &op, 1);
    cr_expect(op->out.outcome == OUTCOME_CACHED);
    cr_expect(blob_eq(op->out.value, value));
    op_free(op);
    blob_unref(value);
    store_close(s);
}

Test(sqlite, zero_lease_is_zero)
{
    struct store *s = open_store();
    struct request in = owner(1);
    in.lease_ms = 0;
    uint64_t first = expect(s, VERB_CLAIM, "k", in, OUTCOME_CLAIMED);
    struct op *op = op_on(VERB_CLAIM, "k", owner(2));
    exec(s, &op, 1);
    cr_expect(op->out.outcome == OUTCOME_CLAIMED && op->out.taken_over);
    cr_expect(op->out.fence > first);
    op_free(op);
    store_close(s);
}

Test(sqlite, zero_retention_is_zero)
{
    struct store *s = open_store();
    struct request in = owner(1);
    in.retain_ms = 0;
    expect(s, VERB_CLAIM, "k", in, OUTCOME_CLAIMED);
    in.retain_ms = -1; /* as claimed */
    expect(s, VERB_PUBLISH, "k", in, OUTCOME_OK);
    expect(s, VERB_PEEK, "k", owner(1), OUTCOME_ABSENT);
    cr_expect(stats(s).gone == 1);
    cr_expect(expire(s, 10) == 1);
    store_close(s);
}

/* ---- verbs without a key ---- */

Test(sqlite, expire_takes_the_oldest_up_to_a_limit_and_raises_the_floor)
{
    struct store *s = open_store();
    uint64_t fences[3];
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        fences[i] = expect(s, VERB_CLAIM, name, owner(1), OUTCOME_CLAIMED);
        publish(s, name, 1, NULL);
        now_ms += 1000;
    }
    cr_expect(expire(s, 10) == 0);
    now_ms += 60000;
    cr_expect(expire(s, 2) == 2);
    cr_expect(stats(s).fence_floor == fences[1]);
    cr_expect(expire(s, 2) == 1);
    cr_expect(stats(s).fence_floor == fences[2]);
    cr_expect(stats(s).gone == 0);
    store_close(s);
}

Test(sqlite, fence_grows_across_release_reopen_and_a_clock_that_went_back)
{
    struct store *s = open_store();
    uint64_t first = expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    expect(s, VERB_RELEASE, "k", owner(1), OUTCOME_OK);
    store_close(s);
    now_ms -= 500000;
    s = open_store();
    cr_expect(expect(s, VERB_CLAIM, "k", owner(2), OUTCOME_CLAIMED) > first);
    cr_expect(expect(s, VERB_CLAIM, "other", owner(2), OUTCOME_CLAIMED) > first);
    store_close(s);
}

Test(sqlite, stats_counts_every_kind)
{
    struct store *s = open_store();
    struct request brief = owner(1);
    brief.lease_ms = 10;
    expect(s, VERB_CLAIM, "lapsed", brief, OUTCOME_CLAIMED);
    expect(s, VERB_CLAIM, "gone", owner(1), OUTCOME_CLAIMED);
    struct request none = owner(1);
    none.retain_ms = 10;
    expect(s, VERB_PUBLISH, "gone", none, OUTCOME_OK);
    expect(s, VERB_CLAIM, "done", owner(1), OUTCOME_CLAIMED);
    publish(s, "done", 1, NULL);
    expect(s, VERB_CLAIM, "pending", owner(1), OUTCOME_CLAIMED);
    now_ms += 10;
    struct store_stats got = stats(s);
    cr_expect(got.pending == 1 && got.lapsed == 1 && got.done == 1 && got.gone == 1);
    cr_expect(got.now_ms == now_ms);
    cr_expect(got.bytes > 4096);
    store_close(s);
}

struct listed {
    char text[256];
    bool more;
};

/* One page, as "scope/name scope/name". */
static struct listed list(struct store *s, const char *scope, const char *after, bool all,
                          size_t limit)
{
    struct op *op = op_in(VERB_SCAN, scope, after, owner(0));
    op->all_scopes = all;
    op->limit = limit;
    exec(s, &op, 1);
    cr_assert(op->err.code == 0, "%s", op->err.text);
    struct listed got = { .more = op->scan.more };
    for (size_t i = 0, at = 0; i < op->scan.count; i++) {
        const struct key *k = &op->scan.rows[i].key;
        at += (size_t)snprintf(got.text + at, sizeof got.text - at, "%s%.*s/%.*s", i ? " " : "",
                               (int)k->scope.len, (const char *)k->scope.data, (int)k->name.len,
                               (const char *)k->name.data);
    }
    op_free(op);
    return got;
}

static void claim_in(struct store *s, const char *scope, const char *name)
{
    struct op *op = op_in(VERB_CLAIM, scope, name, owner(1));
    exec(s, &op, 1);
    cr_assert(op->err.code == 0 && op->out.outcome == OUTCOME_CLAIMED);
    op_free(op);
}

static void expect_listed(struct listed got, const char *text, bool more)
{
    cr_expect(strcmp(got.text, text) == 0, "%s instead of %s", got.text, text);
    cr_expect(got.more == more, "after %s", text);
}

Test(sqlite, scan_pages_through_one_scope_and_through_all)
{
    struct store *s = open_store();
    static const char *const keys[][2] = {
        { "b", "1" }, { "a", "2" }, { "aa", "1" }, { "a", "1" }, { "a", "10" },
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        claim_in(s, keys[i][0], keys[i][1]);
    expect_listed(list(s, "a", "", false, 2), "a/1 a/10", true);
    expect_listed(list(s, "a", "10", false, 2), "a/2", false);
    expect_listed(list(s, "a", "", false, 3), "a/1 a/10 a/2", false);
    expect_listed(list(s, "c", "", false, 3), "", false);
    expect_listed(list(s, "", "", true, 3), "a/1 a/10 a/2", true);
    expect_listed(list(s, "a", "2", true, 3), "aa/1 b/1", false);
    expect_listed(list(s, "", "", true, 0), "", true);
    store_close(s);
}

Test(sqlite, scan_tells_what_a_row_holds_and_leaves_out_what_is_gone)
{
    struct store *s = open_store();
    struct blob *value = blob_new(bytes_str("hello"));
    uint64_t fence = expect(s, VERB_CLAIM, "done", owner(1), OUTCOME_CLAIMED);
    publish(s, "done", 1, value);
    struct request none = owner(1);
    expect(s, VERB_CLAIM, "gone", none, OUTCOME_CLAIMED);
    none.retain_ms = 10;
    expect(s, VERB_PUBLISH, "gone", none, OUTCOME_OK);
    expect(s, VERB_CLAIM, "pending", owner(1), OUTCOME_CLAIMED);
    now_ms += 10;

    struct op *op = op_on(VERB_SCAN, "", owner(0));
    op->limit = 10;
    exec(s, &op, 1);
    cr_assert(op->scan.count == 2);
    const struct scan_row *done = &op->scan.rows[0], *pending = &op->scan.rows[1];
    cr_expect(done->state == RECORD_DONE && done->fence == fence);
    cr_expect(done->value_kept && done->value_bytes == 5);
    cr_expect(done->retain_left_ms == 60000 - 10 && done->done_at_ms == now_ms - 10);
    cr_expect(pending->state == RECORD_PENDING && !pending->value_kept);
    cr_expect(pending->lease_left_ms == 30000 - 10);
    op_free(op);
    blob_unref(value);
    store_close(s);
}

/* ---- failures ---- */

Test(sqlite, busy_is_unavailable_for_writers_only)
{
    char impatient[160];
    snprintf(impatient, sizeof impatient, "%s?busy_ms=30", url);
    struct store *s = open_url(impatient);
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    sqlite3 *other = raw_open();
    raw_exec(other, "BEGIN IMMEDIATE");
    struct err err = expect_error(s, VERB_RELEASE, "k", owner(1), ERR_UNAVAILABLE);
    cr_expect(strstr(err.text, "another process holds the lock"), "%s", err.text);
    expect(s, VERB_PEEK, "k", owner(1), OUTCOME_IN_PROGRESS);
    raw_exec(other, "ROLLBACK");
    expect(s, VERB_RELEASE, "k", owner(1), OUTCOME_OK);
    sqlite3_close(other);
    store_close(s);
}

/* What a bad disk, a bad restore or a curious hand may leave behind. */
static const char *const nonsense[] = {
    "state = 7",
    "state = -1",
    "token = x'0102'",
    "token = x''",
    "fence = 0",
    "fence = -5",
    "fence = 9223372036854775807",
    "lease_ms = -1",
    "retain_ms = -1",
    "retain_ms = 9223372036854775807",
    "lease_until_ms = -9223372036854775807",
    "claimed_at_ms = 9223372036854775807",
    "done_at_ms = 9223372036854775807",
    "fingerprint = zeroblob(65)",
    "value = x'00'",
};

static void expect_corrupt_alone(struct store *s)
{
    struct op *ops[] = {
        op_on(VERB_CLAIM, "good1", owner(1)),   op_on(VERB_CLAIM, "bad", owner(1)),
        op_on(VERB_CLAIM, "good2", owner(1)),   op_on(VERB_PEEK, "bad", owner(1)),
        op_on(VERB_RELEASE, "good1", owner(1)), op_on(VERB_RELEASE, "good2", owner(1)),
    };
    size_t count = sizeof ops / sizeof ops[0];
    exec(s, ops, count);
    for (size_t i = 0; i < count; i++) {
        int want = i == 1 || i == 3 ? ERR_CORRUPT : 0;
        cr_expect(ops[i]->err.code == want, "op %zu: %d", i, ops[i]->err.code);
        cr_expect(ops[i]->changed == !want);
        op_free(ops[i]);
    }
}

Test(sqlite, row_that_makes_no_sense_fails_its_own_op_only)
{
    struct store *s = open_store();
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        expect(s, VERB_CLAIM, "bad", owner(1), OUTCOME_CLAIMED);
        char sql[160];
        snprintf(sql, sizeof sql, "UPDATE claims SET %s WHERE name = x'626164'", nonsense[i]);
        raw(sql);
        expect_corrupt_alone(s);
        raw("DELETE FROM claims");
    }
    store_close(s);
}

Test(sqlite, key_that_makes_no_sense_fails_the_listing)
{
    struct store *s = open_store();
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    raw("UPDATE claims SET name = zeroblob(600)");
    struct op *op = op_on(VERB_SCAN, "", owner(0));
    op->limit = 10;
    exec(s, &op, 1);
    cr_expect(op->err.code == ERR_CORRUPT);
    op_free(op);
    store_close(s);
}

Test(sqlite, missing_floor_is_corrupt)
{
    struct store *s = open_store();
    raw("UPDATE meta SET fence_floor = -1");
    expect_error(s, VERB_CLAIM, "k", owner(1), ERR_CORRUPT);
    raw("DELETE FROM meta");
    expect_error(s, VERB_PEEK, "k", owner(1), ERR_CORRUPT);
    store_close(s);
}

Test(sqlite, op_that_poisons_a_batch_fails_alone)
{
    struct store *s = open_store();
    raw("CREATE TRIGGER poison BEFORE INSERT ON claims WHEN NEW.name = x'626164'"
        " BEGIN SELECT RAISE(ROLLBACK, 'poison'); END");
    struct op *ops[] = { op_on(VERB_CLAIM, "before", owner(1)),
                         op_on(VERB_CLAIM, "bad", owner(1)),
                         op_on(VERB_CLAIM, "after", owner(1)),
                         op_on(VERB_PEEK, "bad", owner(1)) };
    exec(s, ops, 4);
    cr_expect(ops[0]->err.code == 0 && ops[0]->out.outcome == OUTCOME_CLAIMED);
    cr_expect(ops[1]->err.code == ERR_CORRUPT && !ops[1]->changed);
    cr_expect(strstr(ops[1]->err.text, "poison"), "%s", ops[1]->err.text);
    cr_expect(ops[2]->err.code == 0 && ops[2]->out.outcome == OUTCOME_CLAIMED);
    cr_expect(ops[3]->err.code == 0 && ops[3]->out.outcome == OUTCOME_ABSENT);
    for (size_t i = 0; i < 4; i++) op_free(ops[i]);
    expect(s, VERB_CLAIM, "before", owner(2), OUTCOME_IN_PROGRESS);
    expect(s, VERB_CLAIM, "after", owner(2), OUTCOME_IN_PROGRESS);
    store_close(s);
}

/* The WAL may not grow by a byte: every commit fails while it writes. */
static void forbid_growth(bool forbid)
{
    char wal[112];
    struct stat st;
    struct rlimit limit;
    snprintf(wal, sizeof wal, "%s-wal", path);
    cr_assert(stat(wal, &st) == 0);
    cr_assert(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = forbid ? (rlim_t)st.st_size : limit.rlim_max;
    cr_assert(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

Test(sqlite, failed_commit_is_ambiguous_for_what_it_would_have_changed)
{
    signal(SIGXFSZ, SIG_IGN);
    struct store *s = open_store();
    expect(s, VERB_CLAIM, "old", owner(1), OUTCOME_CLAIMED);
    struct op *ops[] = { op_on(VERB_CLAIM, "new", owner(1)), op_on(VERB_CLAIM, "old", owner(2)),
                         op_on(VERB_RELEASE, "old", owner(1)) };
    forbid_growth(true);
    exec(s, ops, 3);
    forbid_growth(false);
    cr_expect(ops[0]->err.code == ERR_AMBIGUOUS, "%d", ops[0]->err.code);
    cr_expect(ops[1]->err.code == ERR_UNAVAILABLE, "%d", ops[1]->err.code);
    cr_expect(ops[2]->err.code == ERR_AMBIGUOUS, "%d", ops[2]->err.code);
    for (size_t i = 0; i < 3; i++) {
        cr_expect(!ops[i]->changed);
        op_free(ops[i]);
    }
    expect(s, VERB_PEEK, "new", owner(1), OUTCOME_ABSENT);
    expect(s, VERB_CLAIM, "new", owner(1), OUTCOME_CLAIMED);
    expect(s, VERB_RELEASE, "old", owner(1), OUTCOME_OK);
    store_close(s);
}

Test(sqlite, batch_sees_its_own_changes_in_order)
{
    struct store *s = open_store();
    struct op *ops[] = { op_on(VERB_CLAIM, "k", owner(1)), op_on(VERB_CLAIM, "k", owner(2)),
                         op_on(VERB_RELEASE, "k", owner(1)), op_on(VERB_CLAIM, "k", owner(2)),
                         op_on(VERB_PUBLISH, "k", owner(1)) };
    exec(s, ops, 5);
    static const enum outcome want[] = { OUTCOME_CLAIMED, OUTCOME_IN_PROGRESS, OUTCOME_OK,
                                         OUTCOME_CLAIMED, OUTCOME_LOST };
    for (size_t i = 0; i < 5; i++)
        cr_expect(ops[i]->out.outcome == want[i], "op %zu: %s", i,
                  outcome_name(ops[i]->out.outcome));
    cr_expect(ops[3]->out.fence > ops[0]->out.fence);
    for (size_t i = 0; i < 5; i++) op_free(ops[i]);
    store_close(s);
}

Test(sqlite, ping_is_answered)
{
    struct store *s = open_store();
    struct op *op = op_new(VERB_PING, NULL, NULL);
    exec(s, &op, 1);
    cr_expect(op->err.code == 0 && op->out.outcome == OUTCOME_OK && !op->changed);
    op_free(op);
    store_close(s);
}
