/* run_test.c - ids, what a run may be made of, and what follows from it. */
#include "core/run.h"

#include "base/buf.h"
#include "core/key.h"
#include "core/run_rules.h"

#include <criterion/criterion.h>

/* ---- ids ---- */

Test(run_id, is_time_and_randomness)
{
    static const struct {
        int64_t now_ms;
        uint8_t random; /* ten of these */
        const char *text;
    } table[] = {
        { 0, 0, "run_00000000000000000000000000" },
        { 1, 0, "run_00000000010000000000000000" },
        { 0, 0xff, "run_0000000000ZZZZZZZZZZZZZZZZ" },
        { INT64_C(1469918176385), 0, "run_01ARYZ6S410000000000000000" },
        { (INT64_C(1) << 48) - 1, 0xff, "run_7ZZZZZZZZZZZZZZZZZZZZZZZZZ" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        uint8_t random[10];
        struct run_id id, parsed;
        memset(random, table[i].random, sizeof random);
        run_id_make(table[i].now_ms, random, &id);
        cr_expect_str_eq(id.text, table[i].text);
        cr_expect(run_id_parse(run_id_bytes(&id), &parsed) && run_id_eq(&id, &parsed));
        cr_expect(run_id_ms(&id) == table[i].now_ms);
    }
}

Test(run_id, every_random_bit_is_in_it)
{
    struct run_id none, one;
    uint8_t random[10] = { 0 };
    run_id_make(7, random, &none);
    for (size_t bit = 0; bit < 80; bit++) {
        random[bit / 8] = (uint8_t)(1u << bit % 8);
        run_id_make(7, random, &one);
        cr_expect(!run_id_eq(&none, &one), "bit %zu", bit);
        random[bit / 8] = 0;
    }
}

Test(run_id, sorts_by_time)
{
    uint8_t high[10], low[10] = { 0 };
    struct run_id before, after;
    memset(high, 0xff, sizeof high);
    for (int64_t now_ms = 1; now_ms < INT64_C(1) << 47; now_ms = now_ms * 3 + 1) {
        run_id_make(now_ms, high, &before);
        run_id_make(now_ms + 1, low, &after);
        cr_expect_lt(strcmp(before.text, after.text), 0);
    }
}

Test(run_id, those_of_one_process_are_in_order_whatever_the_clock_does)
{
    struct run_ids ids = { 0 };
    struct run_id last, next;
    uint8_t high[RUN_ID_RANDOM_BYTES], low[RUN_ID_RANDOM_BYTES] = { 0 };
    memset(high, 0xff, sizeof high);
    const int64_t times[] = { 1000, 1000, 1000, 999, 1, 1000, 1001, 1001, 1001 };
    run_ids_next(&ids, 1000, low, &last);
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        run_ids_next(&ids, times[i], i % 3 ? low : high, &next);
        cr_expect(memcmp(last.text, next.text, RUN_ID_BYTES) < 0, "%zu", i);
        last = next;
    }
}

Test(run_id, what_does_not_fit_into_a_millisecond_goes_into_the_next)
{
    struct run_ids ids = { 0 };
    struct run_id last, next;
    uint8_t high[RUN_ID_RANDOM_BYTES], low[RUN_ID_RANDOM_BYTES] = { 0 };
    memset(high, 0xff, sizeof high);
    run_ids_next(&ids, 1000, high, &last);
    run_ids_next(&ids, 1000, low, &next);
    cr_expect(run_id_ms(&next) == 1001 && memcmp(last.text, next.text, RUN_ID_BYTES) < 0);
}

Test(run_id, a_clock_that_was_far_ahead_is_not_followed_for_ever)
{
    struct run_ids ids = { 0 };
    struct run_id id;
    uint8_t random[RUN_ID_RANDOM_BYTES] = { 0 };
    run_ids_next(&ids, INT64_C(4000000000000), random, &id);
    run_ids_next(&ids, INT64_C(1700000000000), random, &id);
    cr_expect(run_id_ms(&id) == INT64_C(1700000000000));
}

Test(run_id, what_is_none)
{
    static const char *const table[] = {
        "",
        "run_",
        "run_0000000000000000000000000",   /* too short */
        "run_000000000000000000000000000", /* too long */
        "RUN_00000000000000000000000000",
        "run-00000000000000000000000000",
        "run_80000000000000000000000000", /* more than 128 bits */
        "run_0000000000000000000000000I",
        "run_0000000000000000000000000l",
        "run_0000000000000000000000000O",
        "run_0000000000000000000000000u",
        "run_0000000000000000000000000 ",
        "run_000000000000000000000000\xc3\xbc",
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct run_id id = { "untouched" };
        cr_expect(!run_id_parse(bytes_str(table[i]), &id), "%s", table[i]);
        cr_expect_str_eq(id.text, "untouched");
    }
    struct run_id id;
    cr_expect(!run_id_parse(bytes_of("run_0000000000000000000000000\0", 30), &id));
}

Test(run_id, lower_case_is_taken_for_upper_case)
{
    struct run_id id;
    cr_assert(run_id_parse(bytes_str("run_01aryz6s41tstvwxyzabcdefgh"), &id));
    cr_assert_str_eq(id.text, "run_01ARYZ6S41TSTVWXYZABCDEFGH");
}

/* ---- names ---- */

Test(run, names)
{
    struct err err;
    char longest[TASK_BYTES_MAX + 2];
    memset(longest, 'x', sizeof longest);
    struct bytes fits = bytes_of(longest, TASK_BYTES_MAX);
    struct bytes too_long = bytes_of(longest, TASK_BYTES_MAX + 1);
    cr_expect_eq(run_name_check(fits, TASK_BYTES_MAX, "task", &err), 0);
    cr_expect_eq(run_name_check(too_long, TASK_BYTES_MAX, "task", &err), ERR_LIMIT);
    cr_expect_eq(run_name_check(bytes_str(""), TASK_BYTES_MAX, "task", &err), ERR_INVALID);
    for (int c = 0; c < 256; c++) {
        uint8_t byte = (uint8_t)c;
        bool fine = c && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789._:/-",
                                c);
        int r = run_name_check(bytes_of(&byte, 1), 1, "env", &err);
        cr_expect_eq(r, fine ? 0 : ERR_INVALID, "byte %d", c);
    }
    cr_expect_str_eq(err.text, "byte 1 of the env is not one of A-Z a-z 0-9 . _ : / -");
}

/* ---- checks ---- */

enum { PAYLOAD_MAX = 64 };

static struct run good(void)
{
    return (struct run){ .id = { "run_01ARYZ6S410000000000000000" },
                         .env = bytes_str("default"),
                         .task = bytes_str("send-email"),
                         .queue = bytes_str("send-email"),
                         .state = RUN_QUEUED,
                         .created_at_ms = 1000,
                         .attempts_max = RUN_ATTEMPTS_DEFAULT };
}

static void expect_check(const struct run *r, int code, const char *what)
{
    struct err err = { 0 };
    cr_expect_eq(run_check(r, PAYLOAD_MAX, &err), code, "%s: %s", what, err.text);
    cr_expect_eq(err.code, code);
}
#define EXPECT_CHECK(code, change)                                                             \
    do {                                                                                       \
        struct run r = good();                                                                 \
        r.change;                                                                              \
        expect_check(&r, code, #change);                                                       \
    } while (0)

static char letters[METADATA_BYTES_MAX + 1];

static struct bytes so_many(size_t count)
{
    memset(letters, 'x', sizeof letters);
    return bytes_of(letters, count);
}

Test(run, what_may_be_triggered)
{
    EXPECT_CHECK(0, state = RUN_QUEUED);
    EXPECT_CHECK(0, key = so_many(KEY_BYTES_MAX));
    EXPECT_CHECK(0, key = bytes_str("with blanks and \xc3\xbc"));
    EXPECT_CHECK(0, ordering_key = so_many(ORDERING_KEY_BYTES_MAX));
    EXPECT_CHECK(0, payload = bytes_str("[]"));
    EXPECT_CHECK(0, payload = bytes_str(" null "));
    EXPECT_CHECK(0, metadata = bytes_str("{\"a\":[]}"));
    EXPECT_CHECK(0, tags = bytes_str("\x03"
                                     "abc\x01"
                                     "d"));
    EXPECT_CHECK(0, attempts_max = RUN_ATTEMPTS_MAX);
    EXPECT_CHECK(0, delay_until_ms = 1000 + DURATION_MS_MAX);
    EXPECT_CHECK(0, key_until_ms = 1000 + DURATION_MS_MAX);
    EXPECT_CHECK(0, env = so_many(ENV_BYTES_MAX));
}

Test(run, what_may_not_be_triggered)
{
    EXPECT_CHECK(ERR_INVALID, id = (struct run_id){ "" });
    EXPECT_CHECK(ERR_INVALID, id = (struct run_id){ "run_01aryz6s410000000000000000" });
    EXPECT_CHECK(ERR_INVALID, env = bytes_str(""));
    EXPECT_CHECK(ERR_LIMIT, env = so_many(ENV_BYTES_MAX + 1));
    EXPECT_CHECK(ERR_INVALID, task = bytes_str("a task"));
    EXPECT_CHECK(ERR_INVALID, queue = bytes_str(""));
    EXPECT_CHECK(ERR_LIMIT, key = so_many(KEY_BYTES_MAX + 1));
    EXPECT_CHECK(ERR_INVALID, key = bytes_of("a\0b", 3));
    EXPECT_CHECK(ERR_INVALID, key = bytes_str("\xff"));
    EXPECT_CHECK(ERR_LIMIT, ordering_key = so_many(ORDERING_KEY_BYTES_MAX + 1));
    EXPECT_CHECK(ERR_INVALID, ordering_key = bytes_str("\n"));
    EXPECT_CHECK(ERR_INVALID, payload = bytes_str("text"));
    EXPECT_CHECK(ERR_INVALID, payload = bytes_str("{} {}"));
    EXPECT_CHECK(ERR_LIMIT, payload = so_many(PAYLOAD_MAX + 1));
    EXPECT_CHECK(ERR_INVALID, metadata = bytes_str("[]"));
    EXPECT_CHECK(ERR_LIMIT, metadata = so_many(METADATA_BYTES_MAX + 1));
    EXPECT_CHECK(ERR_INVALID, tags = bytes_of("\0", 1));
    EXPECT_CHECK(ERR_INVALID, tags = bytes_str("\x05"
                                               "abc"));
    EXPECT_CHECK(ERR_INVALID, tags = bytes_str("\x01\n"));
    EXPECT_CHECK(ERR_INVALID, attempts_max = 0);
    EXPECT_CHECK(ERR_INVALID, attempts_max = RUN_ATTEMPTS_MAX + 1);
    EXPECT_CHECK(ERR_INVALID, created_at_ms = -1);
    EXPECT_CHECK(ERR_INVALID, created_at_ms = TIME_MS_MAX + 1);
    EXPECT_CHECK(ERR_INVALID, delay_until_ms = -1);
    EXPECT_CHECK(ERR_INVALID, delay_until_ms = 1000 + DURATION_MS_MAX + 1);
    EXPECT_CHECK(ERR_INVALID, key_until_ms = -1);
    EXPECT_CHECK(ERR_INVALID, key_until_ms = 1000 + DURATION_MS_MAX + 1);
}

Test(run, ten_tags_of_a_hundred_and_twenty_eight_bytes_and_no_more)
{
    struct buf tags;
    struct run r = good();
    buf_init(&tags, TAGS_BYTES_MAX + 200);
    for (int i = 0; i < TAGS_MAX; i++) {
        buf_byte(&tags, TAG_BYTES_MAX);
        buf_add(&tags, so_many(TAG_BYTES_MAX));
    }
    r.tags = buf_bytes(&tags);
    expect_check(&r, 0, "ten");
    cr_expect(r.tags.len == TAGS_BYTES_MAX && tags_count(r.tags) == TAGS_MAX);
    buf_add(&tags, bytes_str("\x01x"));
    r.tags = buf_bytes(&tags);
    expect_check(&r, ERR_LIMIT, "eleven");
    buf_clear(&tags);
    buf_byte(&tags, TAG_BYTES_MAX + 1);
    buf_add(&tags, so_many(TAG_BYTES_MAX + 1));
    r.tags = buf_bytes(&tags);
    expect_check(&r, ERR_LIMIT, "too long");
    buf_fini(&tags);
}

Test(run, tags_one_by_one)
{
    struct bytes tags = bytes_str("\x01"
                                  "a\x02"
                                  "bc"),
                 tag;
    cr_expect(tags_have(tags, bytes_str("a")) && tags_have(tags, bytes_str("bc")));
    cr_expect(!tags_have(tags, bytes_str("b")) && !tags_have(tags, bytes_str("")));
    cr_assert(tags_next(&tags, &tag) && bytes_eq(tag, bytes_str("a")));
    cr_assert(tags_next(&tags, &tag) && bytes_eq(tag, bytes_str("bc")));
    cr_assert(!tags_next(&tags, &tag) && tags.len == 0);
    struct bytes cut = bytes_str("\x02x");
    cr_assert(!tags_next(&cut, &tag) && cut.len == 2, "what is left tells that it was cut off");
}

/* ---- what follows ---- */

Test(run, status)
{
    struct run r = good();
    r.delay_until_ms = 2000;
    cr_expect_str_eq(run_status(&r, 1999), "DELAYED");
    cr_expect_str_eq(run_status(&r, 2000), "QUEUED");
    r.attempts = 1;
    cr_expect_str_eq(run_status(&r, 1999), "QUEUED", "it waits for its next attempt");
    r.state = RUN_EXECUTING;
    cr_expect_str_eq(run_status(&r, 1999), "EXECUTING");
    r.state = RUN_COMPLETED;
    cr_expect_str_eq(run_status(&r, 1999), "COMPLETED");
    r.state = RUN_FAILED;
    cr_expect_str_eq(run_status(&r, 1999), "FAILED");
    r.state = RUN_CANCELED;
    cr_expect_str_eq(run_status(&r, 1999), "CANCELED");
}

Test(run, when_it_is_due)
{
    struct run r = good();
    r.available_at_ms = 5000;
    r.lease_until_ms = 6000;
    cr_expect_eq(run_due_ms(&r), 5000);
    r.state = RUN_EXECUTING;
    cr_expect_eq(run_due_ms(&r), 6000);
    for (r.state = RUN_COMPLETED; r.state <= RUN_CANCELED; r.state++)
        cr_expect(run_is_final(&r) && run_due_ms(&r) == INT64_MAX);
}

Test(run, when_nobody_needs_it)
{
    struct run r = good();
    r.key = bytes_str("k");
    r.key_held = true;
    r.finished_at_ms = 1000;
    r.key_until_ms = 1001 + RUN_RETAIN_MS_DEFAULT;
    cr_expect_eq(run_gone_ms(&r), INT64_MAX);
    r.state = RUN_COMPLETED;
    cr_expect_eq(run_gone_ms(&r), r.key_until_ms, "while its key leads to it, it is there");
    r.state = RUN_FAILED;
    cr_expect_eq(run_gone_ms(&r), 1000 + RUN_RETAIN_MS_DEFAULT, "its key does not");
    r.state = RUN_CANCELED;
    r.key_held = false;
    cr_expect_eq(run_gone_ms(&r), 1000 + RUN_RETAIN_MS_DEFAULT);
    r.key_held = true;
    r.key_until_ms = 2000;
    cr_expect_eq(run_gone_ms(&r), 1000 + RUN_RETAIN_MS_DEFAULT);
}

Test(run, when_its_key_leads_to_it)
{
    struct run r = good();
    r.key_until_ms = 2000;
    r.key_held = true;
    cr_expect(!run_holds_key(&r, 1999), "it has none");
    r.key = bytes_str("k");
    cr_expect(run_holds_key(&r, 1999));
    cr_expect(!run_holds_key(&r, 2000));
    for (r.state = RUN_QUEUED; r.state <= RUN_CANCELED; r.state++)
        cr_expect_eq(run_holds_key(&r, 1999), r.state != RUN_FAILED);
    r.state = RUN_QUEUED;
    r.key_held = false;
    cr_expect(!run_holds_key(&r, 1999));
}

Test(run, task_and_key_are_framed)
{
    uint8_t one[RUN_KEY_FRAME_BYTES_MAX], other[RUN_KEY_FRAME_BYTES_MAX];
    size_t n = run_key_frame(bytes_str("a"), bytes_str("bc"), one);
    size_t m = run_key_frame(bytes_str("ab"), bytes_str("c"), other);
    cr_expect(!bytes_eq(bytes_of(one, n), bytes_of(other, m)));
    cr_expect(bytes_eq(bytes_of(one, n), bytes_str("\x01"
                                                   "abc")));
    n = run_key_frame(so_many(TASK_BYTES_MAX), so_many(KEY_BYTES_MAX), one);
    cr_expect_eq(n, RUN_KEY_FRAME_BYTES_MAX);
}
