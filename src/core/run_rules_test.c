/* run_rules_test.c - every arrow of the picture in run.h and every one that is not in it; U1 to U5.
 *
 * The run of most tests: triggered at 1000, leased by token 1 at 2000 for 100 ms with fence 500. */
#include "core/run_rules.h"

#include "base/random.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { NOW = 2050 };

struct scene {
    struct run_scratch scratch;
    struct run_verdict v;
    struct err err;
    struct buf changes;
};
static struct scene scene;

static void setup(void)
{
    run_scratch_init(&scene.scratch);
    buf_init(&scene.changes, RUN_CHANGES_BYTES_MAX);
}

static void teardown(void)
{
    run_scratch_fini(&scene.scratch);
    buf_fini(&scene.changes);
}

TestSuite(run_rules, .init = setup, .fini = teardown);

static struct token token(uint8_t who)
{
    return (struct token){ { who } };
}

static struct run run_in(enum run_state state)
{
    struct run r = { .id = { "run_01ARYZ6S410000000000000000" },
                     .env = bytes_str("default"),
                     .task = bytes_str("task"),
                     .queue = bytes_str("task"),
                     .payload = bytes_str("{\"a\":[]}"),
                     .fingerprint = bytes_str("f"),
                     .key = bytes_str("k"),
                     .key_held = true,
                     .key_until_ms = 9000,
                     .state = state,
                     .created_at_ms = 1000,
                     .available_at_ms = 1000,
                     .attempts_max = 3 };
    if (state == RUN_QUEUED) return r;
    r.attempts = 1;
    r.started_at_ms = 2000;
    r.token = token(1);
    r.fence = 500;
    r.lease_ms = 100;
    if (state == RUN_EXECUTING) r.lease_until_ms = 2100;
    if (state >= RUN_COMPLETED) r.finished_at_ms = 2010;
    return r;
}

static struct run_change change_of(enum run_change_kind kind, const char *body, uint8_t who)
{
    return (struct run_change){ .kind = kind,
                                .body = bytes_str(body),
                                .version = RUN_ANY_VERSION,
                                .token = token(who),
                                .lease_ms = -1,
                                .retry_ms = -1,
                                .at_ms = 5000,
                                .made_at_ms = NOW };
}

static const struct run_verdict *decide(const struct run *r, struct run_change c,
                                        int64_t now_ms)
{
    scene.err = (struct err){ 0 };
    int code = rules_run_change(r, &c, now_ms, &scene.scratch, &scene.v, &scene.err);
    cr_assert_eq(code, 0, "%s", scene.err.text);
    return &scene.v;
}

/* The same, byte for byte: the encoding has every field. */
static bool same_run(const struct run *a, const struct run *b)
{
    struct buf one, other;
    buf_init(&one, 1 << 20);
    buf_init(&other, 1 << 20);
    run_encode(a, &one);
    run_encode(b, &other);
    cr_assert(!buf_failed(&one) && !buf_failed(&other));
    bool same = bytes_eq(buf_bytes(&one), buf_bytes(&other));
    buf_fini(&one);
    buf_fini(&other);
    return same;
}

/* ---- arrows ---- */

#define TAG "\x01t"
#define INCREMENT "[{\"type\":\"increment\",\"key\":\"n\"}]"

struct arrow {
    enum run_state from;
    enum run_change_kind kind;
    const char *body;
    uint8_t who;
    enum outcome outcome;
    bool changed;
    enum run_state to;
};

static void check_arrow(const struct arrow *a, size_t row)
{
    struct run r = run_in(a->from);
    const struct run_verdict *v = decide(&r, change_of(a->kind, a->body, a->who), NOW);
    cr_expect_eq(v->outcome, a->outcome, "row %zu: %s", row, outcome_name(v->outcome));
    cr_expect_eq(v->changed, a->changed, "row %zu", row);
    cr_expect_eq(v->next.state, a->to, "row %zu: %d", row, v->next.state);
    cr_expect_eq(v->outcome == OUTCOME_REFUSED, v->reason != NULL, "row %zu", row);
    if (!v->changed) cr_expect(same_run(&v->next, &r), "row %zu", row);
    if (v->changed) cr_expect(!same_run(&v->next, &r), "row %zu", row);
    cr_expect_eq(v->next.finished_at_ms != 0, run_is_final(&v->next), "row %zu", row);
}
#define CHECK_ARROWS(...)                                                                      \
    do {                                                                                       \
        static const struct arrow rows[] = __VA_ARGS__;                                        \
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) check_arrow(&rows[i], i);    \
    } while (0)

Test(run_rules, whoever_holds_the_lease_ends_the_attempt)
{
    CHECK_ARROWS({
        { RUN_EXECUTING, RUN_COMPLETE, "{}", 1, OUTCOME_OK, true, RUN_COMPLETED },
        { RUN_EXECUTING, RUN_COMPLETE, "", 1, OUTCOME_OK, true, RUN_COMPLETED },
        { RUN_EXECUTING, RUN_FAIL, "\"e\"", 1, OUTCOME_OK, true, RUN_QUEUED },
        { RUN_EXECUTING, RUN_HEARTBEAT, "", 1, OUTCOME_OK, true, RUN_EXECUTING },
        { RUN_EXECUTING, RUN_RETURN, "", 1, OUTCOME_OK, true, RUN_QUEUED },
    });
}

Test(run_rules, nobody_else_does)
{
    CHECK_ARROWS({
        { RUN_EXECUTING, RUN_COMPLETE, "", 2, OUTCOME_LOST, false, RUN_EXECUTING },
        { RUN_EXECUTING, RUN_FAIL, "", 2, OUTCOME_LOST, false, RUN_EXECUTING },
        { RUN_EXECUTING, RUN_HEARTBEAT, "", 2, OUTCOME_LOST, false, RUN_EXECUTING },
        { RUN_EXECUTING, RUN_RETURN, "", 2, OUTCOME_LOST, false, RUN_EXECUTING },
        { RUN_EXECUTING, RUN_COMPLETE, "", 0, OUTCOME_LOST, false, RUN_EXECUTING },
        { RUN_QUEUED, RUN_RETURN, "", 0, OUTCOME_LOST, false, RUN_QUEUED },
        { RUN_QUEUED, RUN_COMPLETE, "", 0, OUTCOME_LOST, false, RUN_QUEUED },
        { RUN_QUEUED, RUN_FAIL, "", 0, OUTCOME_LOST, false, RUN_QUEUED },
        { RUN_QUEUED, RUN_HEARTBEAT, "", 0, OUTCOME_LOST, false, RUN_QUEUED },
        { RUN_QUEUED, RUN_COMPLETE, "", 1, OUTCOME_LOST, false, RUN_QUEUED },
    });
}

/* U1. A repeated end is heard, another one is not. */
Test(run_rules, final_is_final)
{
    CHECK_ARROWS({
        { RUN_COMPLETED, RUN_COMPLETE, "", 1, OUTCOME_OK, false, RUN_COMPLETED },
        { RUN_COMPLETED, RUN_COMPLETE, "1", 1, OUTCOME_LOST, false, RUN_COMPLETED },
        { RUN_COMPLETED, RUN_COMPLETE, "", 2, OUTCOME_LOST, false, RUN_COMPLETED },
        { RUN_COMPLETED, RUN_FAIL, "", 1, OUTCOME_LOST, false, RUN_COMPLETED },
        { RUN_COMPLETED, RUN_HEARTBEAT, "", 1, OUTCOME_LOST, false, RUN_COMPLETED },
        { RUN_COMPLETED, RUN_RETURN, "", 1, OUTCOME_LOST, false, RUN_COMPLETED },
        { RUN_COMPLETED, RUN_CANCEL, "", 0, OUTCOME_OK, false, RUN_COMPLETED },
        { RUN_COMPLETED, RUN_RESCHEDULE, "", 0, OUTCOME_REFUSED, false, RUN_COMPLETED },
        { RUN_FAILED, RUN_COMPLETE, "", 1, OUTCOME_LOST, false, RUN_FAILED },
        { RUN_FAILED, RUN_FAIL, "", 1, OUTCOME_OK, false, RUN_FAILED },
        { RUN_FAILED, RUN_FAIL, "1", 1, OUTCOME_LOST, false, RUN_FAILED },
        { RUN_FAILED, RUN_FAIL, "", 2, OUTCOME_LOST, false, RUN_FAILED },
        { RUN_FAILED, RUN_HEARTBEAT, "", 1, OUTCOME_LOST, false, RUN_FAILED },
        { RUN_FAILED, RUN_RETURN, "", 1, OUTCOME_LOST, false, RUN_FAILED },
        { RUN_FAILED, RUN_CANCEL, "", 0, OUTCOME_OK, false, RUN_FAILED },
        { RUN_FAILED, RUN_RESCHEDULE, "", 0, OUTCOME_REFUSED, false, RUN_FAILED },
        { RUN_CANCELED, RUN_COMPLETE, "", 1, OUTCOME_LOST, false, RUN_CANCELED },
        { RUN_CANCELED, RUN_FAIL, "", 1, OUTCOME_LOST, false, RUN_CANCELED },
        { RUN_CANCELED, RUN_HEARTBEAT, "", 1, OUTCOME_LOST, false, RUN_CANCELED },
        { RUN_CANCELED, RUN_RETURN, "", 1, OUTCOME_LOST, false, RUN_CANCELED },
        { RUN_CANCELED, RUN_CANCEL, "\"again\"", 0, OUTCOME_OK, false, RUN_CANCELED },
        { RUN_CANCELED, RUN_RESCHEDULE, "", 0, OUTCOME_REFUSED, false, RUN_CANCELED },
    });
}

Test(run_rules, what_leaves_the_state_alone_can_be_done_in_any)
{
    for (enum run_state state = RUN_QUEUED; state <= RUN_CANCELED; state++) {
        const struct arrow rows[] = {
            { state, RUN_ADD_TAGS, TAG, 0, OUTCOME_OK, true, state },
            { state, RUN_ADD_TAGS, "", 0, OUTCOME_OK, false, state },
            { state, RUN_SET_METADATA, "{}", 0, OUTCOME_OK, true, state },
            { state, RUN_OPERATE, INCREMENT, 0, OUTCOME_OK, true, state },
            { state, RUN_RESET_KEY, "", 0, OUTCOME_OK, true, state },
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) check_arrow(&rows[i], i);
    }
}

Test(run_rules, cancel)
{
    CHECK_ARROWS({
        { RUN_QUEUED, RUN_CANCEL, "", 0, OUTCOME_OK, true, RUN_CANCELED },
        { RUN_EXECUTING, RUN_CANCEL, "\"why\"", 0, OUTCOME_OK, true, RUN_CANCELED },
    });
    struct run r = run_in(RUN_EXECUTING);
    decide(&r, change_of(RUN_CANCEL, "\"why\"", 0), NOW);
    cr_assert(bytes_eq(scene.v.next.error, bytes_str("\"why\"")));
    cr_assert_eq(scene.v.next.finished_at_ms, NOW);
    cr_assert_eq(run_due_ms(&scene.v.next), INT64_MAX, "it is never executed");
    struct run canceled = scene.v.next;
    decide(&canceled, change_of(RUN_COMPLETE, "", 1), NOW);
    cr_assert_eq(scene.v.outcome, OUTCOME_LOST);
}

/* ---- attempts ---- */

Test(run_rules, complete_keeps_the_output)
{
    struct run r = run_in(RUN_EXECUTING);
    decide(&r, change_of(RUN_COMPLETE, "{\"sum\":9007199254740993}", 1), NOW);
    cr_assert(bytes_eq(scene.v.next.output, bytes_str("{\"sum\":9007199254740993}")));
    cr_assert_eq(scene.v.next.finished_at_ms, NOW);
    cr_assert_eq(scene.v.next.lease_until_ms, 0);
}

Test(run_rules, the_token_counts_until_somebody_takes_over)
{
    struct run r = run_in(RUN_EXECUTING);
    struct token other = token(2);
    cr_assert_eq(decide(&r, change_of(RUN_COMPLETE, "", 1), 2100)->outcome, OUTCOME_OK);
    cr_assert_eq(decide(&r, change_of(RUN_HEARTBEAT, "", 1), 9999)->outcome, OUTCOME_OK);
    struct run_verdict taken = rules_run_lease(&r, &other, 100, 2100);
    cr_assert_eq(taken.outcome, OUTCOME_OK);
    for (enum run_change_kind kind = RUN_HEARTBEAT; kind <= RUN_RETURN; kind++) {
        cr_assert_eq(decide(&taken.next, change_of(kind, "", 1), 2100)->outcome, OUTCOME_LOST);
        cr_assert_eq(decide(&taken.next, change_of(kind, "", 2), 2100)->outcome, OUTCOME_OK);
    }
}

Test(run_rules, heartbeat)
{
    struct run r = run_in(RUN_EXECUTING);
    struct run_change c = change_of(RUN_HEARTBEAT, "", 1);
    decide(&r, c, NOW);
    cr_assert(scene.v.next.lease_until_ms == NOW + 100 && scene.v.next.lease_ms == 100);
    c.lease_ms = 700;
    decide(&r, c, NOW);
    cr_assert(scene.v.next.lease_until_ms == NOW + 700 && scene.v.next.lease_ms == 700);
    c.lease_ms = 0;
    decide(&r, c, NOW);
    cr_assert_eq(scene.v.next.lease_until_ms, NOW, "zero is zero");
    cr_assert(token_eq(&scene.v.next.token, &r.token) && scene.v.next.fence == r.fence);
    cr_assert(scene.v.next.attempts == 1 && scene.v.next.stalls == 0);
}

Test(run_rules, fail_waits_as_told_or_by_back_off)
{
    struct run r = run_in(RUN_EXECUTING);
    struct run_change c = change_of(RUN_FAIL, "\"e\"", 1);
    decide(&r, c, NOW);
    cr_assert_eq(scene.v.next.available_at_ms, NOW + 1000);
    cr_assert(bytes_eq(scene.v.next.error, bytes_str("\"e\"")));
    cr_assert_eq(scene.v.next.lease_until_ms, 0);
    c.retry_ms = 0;
    decide(&r, c, NOW);
    cr_assert_eq(scene.v.next.available_at_ms, NOW);
    struct run failed = scene.v.next;
    cr_assert_eq(decide(&failed, c, NOW + 9)->outcome, OUTCOME_OK, "repeated");
    cr_assert(!scene.v.changed && scene.v.next.available_at_ms == NOW);
    c.kind = RUN_COMPLETE;
    cr_assert_eq(decide(&failed, c, NOW)->outcome, OUTCOME_LOST);
}

Test(run_rules, what_is_given_back_was_not_an_attempt)
{
    struct run r = run_in(RUN_QUEUED);
    struct token who = token(1);
    struct run_verdict leased = rules_run_lease(&r, &who, 100, NOW);
    decide(&leased.next, change_of(RUN_RETURN, "", 1), NOW + 9);
    struct run back = scene.v.next;
    cr_assert(back.attempts == 0 && back.stalls == 0 && back.available_at_ms == NOW + 9);
    cr_assert_eq(back.fence, leased.next.fence, "the next one gets another");
    for (enum run_change_kind kind = RUN_HEARTBEAT; kind <= RUN_RETURN; kind++) {
        cr_assert_eq(decide(&back, change_of(kind, "", 1), NOW + 9)->outcome, OUTCOME_LOST);
        cr_assert_eq(decide(&back, change_of(kind, "", 0), NOW + 9)->outcome, OUTCOME_LOST);
    }
}

Test(run_rules, the_last_attempt_that_fails_is_the_end)
{
    for (uint32_t attempts_max = 1; attempts_max <= 4; attempts_max++) {
        struct run r = run_in(RUN_QUEUED);
        struct token who = token(1);
        r.attempts_max = attempts_max;
        for (uint32_t n = 1; n <= attempts_max; n++) {
            struct run_verdict leased = rules_run_lease(&r, &who, 10, r.available_at_ms);
            cr_assert(leased.outcome == OUTCOME_OK && leased.next.attempts == n);
            r = decide(&leased.next, change_of(RUN_FAIL, "1", 1), NOW)->next;
            cr_assert_eq(r.state, n < attempts_max ? RUN_QUEUED : RUN_FAILED);
        }
        cr_assert_eq(r.finished_at_ms, NOW);
        cr_assert(!run_holds_key(&r, NOW), "its key may be used again");
    }
}

Test(run_rules, back_off)
{
    cr_assert_eq(run_back_off_ms(0), 1000);
    cr_assert_eq(run_back_off_ms(1), 1000);
    cr_assert_eq(run_back_off_ms(2), 2000);
    cr_assert_eq(run_back_off_ms(12), 2048000);
    cr_assert_eq(run_back_off_ms(13), 3600000);
    cr_assert_eq(run_back_off_ms(RUN_ATTEMPTS_MAX), 3600000);
    cr_assert_eq(run_back_off_ms(UINT32_MAX), 3600000);
}

/* ---- leasing ---- */

Test(run_rules, only_what_is_due_is_leased)
{
    static const struct {
        enum run_state state;
        int64_t now_ms;
        enum outcome outcome;
    } rows[] = {
        { RUN_QUEUED, 999, OUTCOME_REFUSED },     { RUN_QUEUED, 1000, OUTCOME_OK },
        { RUN_EXECUTING, 2099, OUTCOME_REFUSED }, { RUN_EXECUTING, 2100, OUTCOME_OK },
        { RUN_COMPLETED, 9999, OUTCOME_REFUSED }, { RUN_FAILED, 9999, OUTCOME_REFUSED },
        { RUN_CANCELED, 9999, OUTCOME_REFUSED },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct run r = run_in(rows[i].state);
        struct token who = token(2);
        struct run_verdict v = rules_run_lease(&r, &who, 50, rows[i].now_ms);
        bool leased = rows[i].outcome == OUTCOME_OK;
        cr_expect(v.outcome == rows[i].outcome && v.changed == leased, "row %zu", i);
        if (!leased) cr_expect(v.reason && same_run(&v.next, &r), "row %zu", i);
        if (!leased) continue;
        cr_expect_eq(v.next.state, RUN_EXECUTING);
        cr_expect(token_eq(&v.next.token, &who) && v.next.lease_ms == 50);
        cr_expect_eq(v.next.lease_until_ms, rows[i].now_ms + 50);
    }
}

/* U5. */
Test(run_rules, a_stall_is_not_an_attempt)
{
    struct run r = run_in(RUN_EXECUTING);
    struct token who = token(2);
    struct run_verdict v = rules_run_lease(&r, &who, 50, 2100);
    cr_assert(v.next.attempts == 1 && v.next.stalls == 1);
    cr_assert_eq(v.next.started_at_ms, 2000, "of the first lease");
    r = run_in(RUN_QUEUED);
    v = rules_run_lease(&r, &who, 50, 2100);
    cr_assert(v.next.attempts == 1 && v.next.stalls == 0 && v.next.started_at_ms == 2100);
}

/* U5. */
Test(run_rules, too_many_stalls_are_the_end)
{
    struct run r = run_in(RUN_QUEUED);
    struct token who = token(1);
    int64_t now_ms = 2000;
    for (uint32_t leases = 0; leases <= RUN_STALLS_MAX; leases++, now_ms += 100) {
        struct run_verdict v = rules_run_lease(&r, &who, 100, now_ms);
        cr_assert(v.outcome == OUTCOME_OK && v.next.stalls == leases);
        r = v.next;
    }
    struct run_verdict v = rules_run_lease(&r, &who, 100, now_ms);
    cr_assert(v.outcome == OUTCOME_REFUSED && v.changed && v.reason);
    cr_assert(v.next.state == RUN_FAILED && v.next.finished_at_ms == now_ms);
    cr_assert(v.next.error.len > 0 && v.next.error.data[0] == '"');
    cr_assert_eq(decide(&v.next, change_of(RUN_COMPLETE, "", 1), now_ms)->outcome,
                 OUTCOME_LOST);
}

/* U2. */
Test(run_rules, the_fence_only_grows)
{
    struct token who = token(1);
    struct run r = run_in(RUN_QUEUED);
    cr_assert_eq(rules_run_lease(&r, &who, 0, 1000).next.fence, 1000000);
    r.fence = 1000000;
    cr_assert_eq(rules_run_lease(&r, &who, 0, 1000).next.fence, 1000001);
    r.fence = 5000000;
    cr_assert_eq(rules_run_lease(&r, &who, 0, 1000).next.fence, 5000001, "the clock went back");
}

/* ---- tags ---- */

static void put_tag(struct buf *to, const char *text)
{
    buf_byte(to, (uint8_t)strlen(text));
    buf_add(to, bytes_str(text));
}

Test(run_rules, tags_are_a_set_in_the_order_of_their_first_appearance)
{
    struct run r = run_in(RUN_QUEUED);
    r.tags = bytes_str("\x01"
                       "b\x01"
                       "a");
    decide(&r,
           change_of(RUN_ADD_TAGS,
                     "\x01"
                     "c\x01"
                     "a\x02"
                     "aa\x01"
                     "c",
                     0),
           NOW);
    cr_assert(bytes_eq(scene.v.next.tags, bytes_str("\x01"
                                                    "b\x01"
                                                    "a\x01"
                                                    "c\x02"
                                                    "aa")));
    struct run tagged = scene.v.next;
    decide(&tagged,
           change_of(RUN_ADD_TAGS,
                     "\x01"
                     "c",
                     0),
           NOW);
    cr_assert(scene.v.outcome == OUTCOME_OK && !scene.v.changed);
}

Test(run_rules, an_eleventh_tag_is_refused)
{
    struct run r = run_in(RUN_QUEUED);
    struct buf tags;
    buf_init(&tags, 4096);
    for (int i = 0; i < TAGS_MAX; i++) put_tag(&tags, (char[]){ (char)('a' + i), 0 });
    struct run_change c = change_of(RUN_ADD_TAGS, "", 0);
    c.body = buf_bytes(&tags);
    r = decide(&r, c, NOW)->next;
    cr_assert(scene.v.outcome == OUTCOME_OK && tags_count(r.tags) == TAGS_MAX);
    decide(&r, change_of(RUN_ADD_TAGS, "\x01z", 0), NOW);
    cr_assert(scene.v.outcome == OUTCOME_REFUSED && same_run(&scene.v.next, &r));
    decide(&r,
           change_of(RUN_ADD_TAGS,
                     "\x01"
                     "a",
                     0),
           NOW);
    cr_assert_eq(scene.v.outcome, OUTCOME_OK, "one that it has is fine");
    for (int i = 0; i < 26; i++) put_tag(&tags, (char[]){ (char)('a' + i), 0 });
    c.body = buf_bytes(&tags);
    cr_assert_eq(decide(&r, c, NOW)->outcome, OUTCOME_REFUSED);
    buf_fini(&tags);
}

/* ---- metadata ---- */

Test(run_rules, metadata_is_compared_and_set)
{
    struct run r = run_in(RUN_QUEUED);
    struct run_change c = change_of(RUN_SET_METADATA, "{ \"a\": [] }", 0);
    r.metadata_version = 7;
    c.version = 6;
    cr_assert_eq(decide(&r, c, NOW)->outcome, OUTCOME_CONFLICT);
    cr_assert(same_run(&scene.v.next, &r));
    c.version = 7;
    cr_assert_eq(decide(&r, c, NOW)->outcome, OUTCOME_OK);
    cr_assert(bytes_eq(scene.v.next.metadata, c.body) && scene.v.next.metadata_version == 8);
    c.version = RUN_ANY_VERSION;
    cr_assert_eq(decide(&r, c, NOW)->next.metadata_version, 8);
    cr_assert_eq(decide(&r, change_of(RUN_OPERATE, INCREMENT, 0), NOW)->next.metadata_version,
                 8, "whoever compares sees operations, too");
}

Test(run_rules, operations_that_do_not_fit_are_refused)
{
    struct run r = run_in(RUN_QUEUED);
    r.metadata = bytes_str("{\"n\":\"text\"}");
    cr_assert_eq(decide(&r, change_of(RUN_OPERATE, INCREMENT, 0), NOW)->outcome,
                 OUTCOME_REFUSED);
    cr_assert(same_run(&scene.v.next, &r));
}

/* What a verdict is made from may be what the last one made, of any kind: nothing is written over. */
Test(run_rules, verdicts_build_on_each_other)
{
    static const char rest[] = "\"z\":[1,2,3,[]],\"y\":\"0123456789\"}";
    struct run r = run_in(RUN_QUEUED);
    char before[64], expected[64];
    snprintf(before, sizeof before, "{\"n\":0,%s", rest);
    snprintf(expected, sizeof expected, "{\"n\":%d,%s", 200 / 7 * 4 + 4, rest);
    r.metadata = bytes_str(before);
    for (int i = 0; i < 200; i++) {
        char tag[] = "\x01?";
        tag[1] = (char)('a' + i % TAGS_MAX);
        if (i % 7 < 4) r = decide(&r, change_of(RUN_OPERATE, INCREMENT, 0), NOW)->next;
        if (i % 5 < 3) r = decide(&r, change_of(RUN_ADD_TAGS, tag, 0), NOW)->next;
        decide(&r, change_of(RUN_ADD_TAGS, "\x01x\x01y\x01z\x01w\x01v\x01u\x01t\x01s", 0), NOW);
    }
    cr_assert(bytes_eq(r.metadata, bytes_str(expected)), "%.*s", (int)r.metadata.len,
              (const char *)r.metadata.data);
    cr_assert_eq(tags_count(r.tags), TAGS_MAX - 4);
}

/* ---- reschedule, reset ---- */

Test(run_rules, only_a_delayed_run_is_rescheduled)
{
    struct run r = run_in(RUN_QUEUED);
    struct run_change c = change_of(RUN_RESCHEDULE, "", 0);
    cr_assert_eq(decide(&r, c, NOW)->outcome, OUTCOME_REFUSED);
    r.delay_until_ms = r.available_at_ms = NOW;
    cr_assert_eq(decide(&r, c, NOW)->outcome, OUTCOME_REFUSED, "its time has come");
    r.delay_until_ms = r.available_at_ms = NOW + 1;
    cr_assert_eq(decide(&r, c, NOW)->outcome, OUTCOME_OK);
    cr_assert(scene.v.next.delay_until_ms == 5000 && scene.v.next.available_at_ms == 5000);
    c.at_ms = 0;
    decide(&r, c, NOW);
    cr_assert(scene.v.next.available_at_ms == NOW && !run_is_delayed(&scene.v.next, NOW));
    c.at_ms = NOW + DURATION_MS_MAX + 1;
    cr_assert_eq(decide(&r, c, NOW)->outcome, OUTCOME_REFUSED);
    r.attempts = 1;
    c.at_ms = 5000;
    cr_assert_eq(decide(&r, c, NOW)->outcome, OUTCOME_REFUSED, "it waits for an attempt");
}

Test(run_rules, a_key_is_reset_once)
{
    struct run r = run_in(RUN_QUEUED);
    r = decide(&r, change_of(RUN_RESET_KEY, "", 0), NOW)->next;
    cr_assert(scene.v.changed && !r.key_held && bytes_eq(r.key, bytes_str("k")));
    decide(&r, change_of(RUN_RESET_KEY, "", 0), NOW);
    cr_assert(scene.v.outcome == OUTCOME_OK && !scene.v.changed);
}

/* ---- changes that make no sense ---- */

static void expect_checks(struct run_change c, int for_rules, int for_callers)
{
    struct run r = run_in(RUN_EXECUTING);
    struct run_verdict v = { .outcome = OUTCOME_ABSENT };
    struct err err = { 0 };
    int code = rules_run_change(&r, &c, NOW, &scene.scratch, &v, &err);
    cr_expect_eq(code, for_rules, "kind %d, %.*s: %s", c.kind, (int)c.body.len,
                 (const char *)c.body.data, err.text);
    if (code) cr_expect_eq(v.outcome, OUTCOME_ABSENT, "untouched");
    code = run_change_check(&c, 16, &err);
    cr_expect_eq(code, for_callers, "kind %d, %.*s: %s", c.kind, (int)c.body.len,
                 (const char *)c.body.data, err.text);
}

Test(run_rules, bodies_are_what_they_should_be)
{
    static const struct {
        enum run_change_kind kind;
        const char *body;
        int for_rules, for_callers;
    } rows[] = {
        { RUN_ADD_TAGS, TAG, 0, 0 },
        { RUN_ADD_TAGS, "\x05t", ERR_INVALID, ERR_INVALID },
        { RUN_ADD_TAGS, "\x01\n", ERR_INVALID, ERR_INVALID },
        { RUN_SET_METADATA, "{}", 0, 0 },
        { RUN_SET_METADATA, "", ERR_INVALID, ERR_INVALID },
        { RUN_SET_METADATA, "[]", ERR_INVALID, ERR_INVALID },
        { RUN_OPERATE, "[]", 0, 0 },
        { RUN_OPERATE, "{}", ERR_INVALID, ERR_INVALID },
        { RUN_CANCEL, "", 0, 0 },
        { RUN_CANCEL, "\"why\"", 0, 0 },
        { RUN_CANCEL, "why", 0, ERR_INVALID },
        { RUN_COMPLETE, "", 0, 0 },
        { RUN_COMPLETE, "{\"a\":1}", 0, 0 },
        { RUN_COMPLETE, "{\"a\":1", 0, ERR_INVALID },
        { RUN_COMPLETE, "[1,1,1,1,1,1,1,1]", 0, ERR_LIMIT },
        { RUN_FAIL, "[1,1,1,1,1,1,1,1]", 0, 0 },
        { RUN_FAIL, "oops", 0, ERR_INVALID },
        { RUN_HEARTBEAT, "", 0, 0 },
        { (enum run_change_kind)0, "", ERR_INVALID, ERR_INVALID },
        { (enum run_change_kind)(RUN_RETURN + 1), "", ERR_INVALID, ERR_INVALID },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_checks(change_of(rows[i].kind, rows[i].body, 1), rows[i].for_rules,
                      rows[i].for_callers);
}

Test(run_rules, times_can_be_reckoned_with)
{
    struct run_change c = change_of(RUN_HEARTBEAT, "", 1);
    c.lease_ms = 0;
    expect_checks(c, 0, ERR_INVALID);
    c.lease_ms = 1;
    expect_checks(c, 0, 0);
    c.lease_ms = DURATION_MS_MAX;
    expect_checks(c, 0, 0);
    c.lease_ms++;
    expect_checks(c, ERR_INVALID, ERR_INVALID);
    c = change_of(RUN_FAIL, "", 1);
    c.retry_ms = DURATION_MS_MAX;
    expect_checks(c, 0, 0);
    c.retry_ms = INT64_MAX;
    expect_checks(c, ERR_INVALID, ERR_INVALID);
    c = change_of(RUN_RESCHEDULE, "", 1);
    c.at_ms = TIME_MS_MAX;
    expect_checks(c, 0, 0);
    c.at_ms = TIME_MS_MAX + 1;
    expect_checks(c, ERR_INVALID, ERR_INVALID);
    c.at_ms = -1;
    expect_checks(c, ERR_INVALID, ERR_INVALID);
}

/* ---- a run that is new to the ledger ---- */

struct put_row {
    bool by_id, alias, by_key, drains, wants_key;
    enum run_state key_state;
    const char *fingerprint;
    int64_t now_ms;
    enum run_put put;
};

static void check_put(const struct put_row *p, size_t row)
{
    struct run incoming = run_in(RUN_QUEUED), by_id = incoming;
    struct run by_key = run_in(p->key_state ? p->key_state : RUN_QUEUED);
    incoming.key_held = p->wants_key;
    incoming.fingerprint = bytes_str(p->fingerprint);
    if (p->alias) by_id.canonical = by_key.id;
    enum run_put put = rules_run_put(p->by_id ? &by_id : NULL, p->by_key ? &by_key : NULL,
                                     &incoming, p->drains, p->now_ms);
    cr_expect_eq(put, p->put, "row %zu: %d", row, put);
}

/* U3. */
Test(run_rules, what_becomes_of_a_new_run)
{
    static const struct put_row rows[] = {
        /* id, alias, key, drains, wants */
        { 0, 0, 0, 0, 1, 0, "f", NOW, PUT_INSERT },
        { 0, 0, 0, 1, 1, 0, "f", NOW, PUT_INSERT },
        { 1, 0, 0, 0, 1, 0, "f", NOW, PUT_SAME },
        { 1, 0, 0, 0, 1, 0, "g", NOW, PUT_MISMATCH },
        { 1, 1, 0, 0, 1, 0, "g", NOW, PUT_SAME },
        { 1, 0, 0, 1, 1, 0, "f", NOW, PUT_SAME },
        { 1, 0, 0, 1, 0, 0, "f", NOW, PUT_SAME },
        { 1, 0, 0, 1, 1, 0, "g", NOW, PUT_MISMATCH },
        { 1, 1, 0, 1, 1, 0, "g", NOW, PUT_SAME },
        { 1, 0, 1, 0, 1, 0, "f", NOW, PUT_SAME },
        { 0, 0, 1, 0, 1, RUN_QUEUED, "f", NOW, PUT_CACHED },
        { 0, 0, 1, 0, 1, RUN_EXECUTING, "f", NOW, PUT_CACHED },
        { 0, 0, 1, 0, 1, RUN_COMPLETED, "f", NOW, PUT_CACHED },
        { 0, 0, 1, 0, 1, RUN_CANCELED, "f", NOW, PUT_CACHED },
        { 0, 0, 1, 0, 1, RUN_FAILED, "f", NOW, PUT_INSERT },
        { 0, 0, 1, 0, 1, RUN_FAILED, "g", NOW, PUT_INSERT },
        { 0, 0, 1, 0, 1, RUN_QUEUED, "g", NOW, PUT_MISMATCH },
        { 0, 0, 1, 0, 1, RUN_QUEUED, "f", 8999, PUT_CACHED },
        { 0, 0, 1, 0, 1, RUN_QUEUED, "f", 9000, PUT_INSERT },
        { 0, 0, 1, 1, 1, RUN_QUEUED, "f", NOW, PUT_ALIAS },
        { 0, 0, 1, 1, 1, RUN_QUEUED, "g", NOW, PUT_FAILED },
        { 0, 0, 1, 1, 1, RUN_COMPLETED, "g", NOW, PUT_FAILED },
        { 0, 0, 1, 1, 1, RUN_QUEUED, "g", 9000, PUT_INSERT },
        { 0, 0, 1, 1, 0, RUN_QUEUED, "g", NOW, PUT_INSERT },
        { 0, 0, 1, 1, 1, RUN_FAILED, "f", NOW, PUT_INSERT },
        { 0, 0, 1, 1, 0, RUN_QUEUED, "f", NOW, PUT_INSERT },
        { 0, 0, 1, 0, 0, RUN_QUEUED, "f", NOW, PUT_INSERT },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) check_put(&rows[i], i);
}

/* C7: it is neither worked on nor shown the other one's answer, and nothing of it vanishes. */
Test(run_rules, whose_key_is_about_something_else_is_failed_and_keeps_the_rest)
{
    struct run other = run_in(RUN_QUEUED), r = run_in(RUN_QUEUED);
    strcpy(other.id.text, "run_01HZZZZZZZZZZZZZZZZZZZZZZ1");
    r.payload = bytes_str("{}");
    struct run next;
    cr_assert(rules_run_put_failed(&r, &other, NOW, &scene.scratch, &next, &scene.err) == 0);
    cr_assert(next.state == RUN_FAILED && next.finished_at_ms == NOW);
    cr_assert(
        bytes_eq(next.error, bytes_str("\"its key is taken by run_01HZZZZZZZZZZZZZZZZZZZZZZ1,"
                                       " which has another payload\"")));
    cr_assert(!next.key_held && bytes_eq(next.key, r.key));
    cr_assert(run_nonsense(&next) == NULL, "%s", run_nonsense(&next));
    next.state = r.state;
    next.finished_at_ms = r.finished_at_ms;
    next.error = r.error;
    next.key_held = r.key_held;
    cr_assert(memcmp(&next, &r, sizeof r) == 0);
}

/* U1: it was acknowledged. */
Test(run_rules, whose_key_is_about_something_else_stays_canceled)
{
    struct run other = run_in(RUN_QUEUED), r = run_in(RUN_CANCELED);
    struct run next;
    cr_assert(rules_run_put_failed(&r, &other, NOW, &scene.scratch, &next, &scene.err) == 0);
    cr_assert(next.state == RUN_CANCELED && next.finished_at_ms == r.finished_at_ms);
    cr_assert(bytes_eq(next.error, r.error) && !next.key_held);
}

/* ---- a run that the ledger refuses for good ---- */

static struct run parked(const struct run *r, const char *why)
{
    struct run next;
    int code = rules_run_park(r, why, NOW, &scene.scratch, &next, &scene.err);
    cr_assert_eq(code, 0, "%s", scene.err.text);
    return next;
}

Test(run_rules, one_that_is_parked_is_failed_and_keeps_the_rest)
{
    struct run r = run_in(RUN_QUEUED);
    r.payload = bytes_str("{}");
    struct run next = parked(&r, "postgres: no \"payload\", please\n");
    cr_assert(next.state == RUN_FAILED && next.finished_at_ms == NOW);
    cr_assert(bytes_eq(next.error, bytes_str("\"it cannot be written: postgres: no"
                                             " \\\"payload\\\", please\\n\"")));
    cr_assert(!next.key_held && bytes_eq(next.key, r.key), "a FAILED run has no key");
    cr_assert(run_nonsense(&next) == NULL, "%s", run_nonsense(&next));
    next.state = r.state;
    next.finished_at_ms = r.finished_at_ms;
    next.error = r.error;
    next.key_held = r.key_held;
    cr_assert(memcmp(&next, &r, sizeof r) == 0);
}

Test(run_rules, one_that_is_parked_stays_canceled_and_keeps_its_key)
{
    struct run r = run_in(RUN_CANCELED), next = parked(&r, "no");
    cr_assert(memcmp(&next, &r, sizeof r) == 0);
}

/* Whatever the server says, the error is JSON. */
Test(run_rules, the_reason_of_one_that_is_parked_is_json)
{
    char why[200];
    struct run r = run_in(RUN_QUEUED);
    for (int c = 1; c < 256; c++) {
        memset(why, c, sizeof why - 1);
        why[sizeof why - 1] = '\0';
        struct run next = parked(&r, why);
        struct run_change fail = { .kind = RUN_FAIL, .body = next.error };
        cr_assert(run_change_check(&fail, 1024, &scene.err) == 0, "%d: %s", c, scene.err.text);
    }
}

Test(run_rules, the_same_id_is_the_same_run_or_none)
{
    struct run stored = run_in(RUN_QUEUED), other = stored;
    cr_assert_eq(rules_run_put(&stored, NULL, &other, false, NOW), PUT_SAME);
    other.key = bytes_str("l");
    cr_assert_eq(rules_run_put(&stored, NULL, &other, false, NOW), PUT_MISMATCH);
    other = stored;
    other.task = bytes_str("other");
    cr_assert_eq(rules_run_put(&stored, NULL, &other, false, NOW), PUT_MISMATCH);
    other = stored;
    stored.key_held = false;
    cr_assert_eq(rules_run_put(&stored, NULL, &other, false, NOW), PUT_SAME,
                 "its key may have been reset since");
}

/* ---- fold and merge: U4 ---- */

static void wait_in_buffer(struct run_change c, int64_t made_at_ms)
{
    c.made_at_ms = made_at_ms;
    run_change_encode(&c, &scene.changes);
}

static struct run folded(const struct run *r, struct bytes changes)
{
    struct run next;
    int code = run_fold(r, changes, &scene.scratch, &next, &scene.err);
    cr_assert_eq(code, 0, "%s", scene.err.text);
    return next;
}

Test(run_rules, a_buffered_run_looks_as_if_its_changes_were_made)
{
    struct run r = run_in(RUN_QUEUED);
    r.delay_until_ms = r.available_at_ms = 4000;
    wait_in_buffer(change_of(RUN_ADD_TAGS, TAG, 0), 3000);
    wait_in_buffer(change_of(RUN_OPERATE, INCREMENT, 0), 3100);
    wait_in_buffer(change_of(RUN_RESCHEDULE, "", 0), 3200);
    wait_in_buffer(change_of(RUN_RESET_KEY, "", 0), 3300);
    wait_in_buffer(change_of(RUN_CANCEL, "\"c\"", 0), 3400);
    struct run next = folded(&r, buf_bytes(&scene.changes));
    cr_assert(bytes_eq(next.tags, bytes_str(TAG)));
    cr_assert(bytes_eq(next.metadata, bytes_str("{\"n\":1}")) && next.metadata_version == 1);
    cr_assert(next.delay_until_ms == 5000 && next.available_at_ms == 5000);
    cr_assert(!next.key_held);
    cr_assert(next.state == RUN_CANCELED && next.finished_at_ms == 3400);
    cr_assert_eq(next.changes, 5);
}

/* By the moment when it was made, not by the moment when the ledger gets it. */
Test(run_rules, a_change_counts_as_of_when_it_was_made)
{
    struct run r = run_in(RUN_QUEUED);
    r.delay_until_ms = r.available_at_ms = 4000;
    wait_in_buffer(change_of(RUN_RESCHEDULE, "", 0), 4000);
    cr_assert_eq(folded(&r, buf_bytes(&scene.changes)).available_at_ms, 4000, "too late");
    buf_clear(&scene.changes);
    wait_in_buffer(change_of(RUN_RESCHEDULE, "", 0), 3999);
    cr_assert_eq(folded(&r, buf_bytes(&scene.changes)).available_at_ms, 5000);
}

Test(run_rules, a_change_that_is_refused_by_now_changes_nothing)
{
    struct run r = run_in(RUN_QUEUED);
    struct run_change stale = change_of(RUN_SET_METADATA, "{\"stale\":1}", 0);
    stale.version = 9;
    wait_in_buffer(change_of(RUN_SET_METADATA, "{\"n\":\"text\"}", 0), 3000);
    wait_in_buffer(change_of(RUN_OPERATE, INCREMENT, 0), 3000);
    wait_in_buffer(stale, 3000);
    wait_in_buffer(change_of(RUN_RESCHEDULE, "", 0), 3000);
    wait_in_buffer(change_of(RUN_OPERATE, "nonsense", 0), 3000);
    wait_in_buffer(change_of(RUN_ADD_TAGS, TAG, 0), 3000);
    struct run next = folded(&r, buf_bytes(&scene.changes));
    cr_assert(bytes_eq(next.metadata, bytes_str("{\"n\":\"text\"}")));
    cr_assert(bytes_eq(next.tags, bytes_str(TAG)));
    cr_assert(next.changes == 6 && next.metadata_version == 1);
}

static void wait_for_increments(int count)
{
    for (int i = 0; i < count; i++)
        wait_in_buffer(change_of(RUN_OPERATE, INCREMENT, 0), 3000 + i);
}

Test(run_rules, fifty_increments_sum_up)
{
    struct run r = run_in(RUN_QUEUED);
    r.metadata = bytes_str("{\"z\":[],\"big\":9007199254740993}");
    wait_for_increments(50);
    struct run next = folded(&r, buf_bytes(&scene.changes));
    cr_assert(
        bytes_eq(next.metadata, bytes_str("{\"z\":[],\"big\":9007199254740993,\"n\":50}")));
    cr_assert(next.changes == 50 && next.metadata_version == 50);
}

/* Whoever writes an entry may have died after it was written: another one brings it again, with more
 * changes, or, if it was only slow, with fewer. Each counts once. */
Test(run_rules, changes_are_applied_once_however_often_they_are_brought)
{
    struct run r = run_in(RUN_QUEUED);
    size_t ends[51] = { 0 };
    for (int i = 1; i <= 50; i++) {
        wait_for_increments(1);
        ends[i] = scene.changes.len;
    }
    struct rng_seeded random;
    rng_seeded_init(&random, 11);
    for (int round = 0; round < 50; round++) {
        struct run at = r;
        uint64_t most = 0;
        for (int i = 0; i < 6; i++) {
            uint64_t count = i < 5 ? rng_below(&random.base, 51) : 50;
            at = folded(&at, bytes_of(scene.changes.data, ends[count]));
            most = count > most ? count : most;
            cr_assert_eq(at.changes, most);
            cr_assert_eq(at.metadata_version, most);
        }
        cr_assert(bytes_eq(at.metadata, bytes_str("{\"n\":50}")));
    }
}

Test(run_rules, what_is_no_list_of_changes_is_corrupt)
{
    struct run r = run_in(RUN_QUEUED), next = { .changes = 77 };
    wait_for_increments(2);
    for (size_t len = 1; len < scene.changes.len; len++) {
        if (len == scene.changes.len / 2) continue; /* the first one alone */
        int code =
            run_fold(&r, bytes_of(scene.changes.data, len), &scene.scratch, &next, &scene.err);
        cr_assert_eq(code, ERR_CORRUPT);
        cr_assert_eq(next.changes, 77, "untouched");
    }
}

static struct run merged(const struct run *r, struct bytes changes, uint64_t done)
{
    struct run next;
    int code = run_merge(r, changes, done, 7000, &scene.scratch, &next, &scene.err);
    cr_assert_eq(code, 0, "%s", scene.err.text);
    return next;
}

/* The times and the key of the canonical run are its own; everything else of an alias reaches it. */
Test(run_rules, what_was_queued_on_an_alias_is_merged)
{
    struct run canonical = run_in(RUN_QUEUED);
    struct run_change compared = change_of(RUN_SET_METADATA, "{\"set\":1}", 0);
    compared.version = 3; /* of the alias; the canonical run has others */
    canonical.delay_until_ms = canonical.available_at_ms = 8000;
    canonical.changes = 2;
    wait_in_buffer(change_of(RUN_RESCHEDULE, "", 0), 3000);
    wait_in_buffer(change_of(RUN_RESET_KEY, "", 0), 3000);
    wait_in_buffer(change_of(RUN_ADD_TAGS, TAG, 0), 3000);
    wait_in_buffer(compared, 3000);
    wait_in_buffer(change_of(RUN_OPERATE, INCREMENT, 0), 3000);
    struct run next = merged(&canonical, buf_bytes(&scene.changes), 0);
    cr_assert(next.available_at_ms == 8000 && next.key_held);
    cr_assert(bytes_eq(next.tags, bytes_str(TAG)));
    cr_assert(bytes_eq(next.metadata, bytes_str("{\"set\":1,\"n\":1}")));
    cr_assert_eq(next.changes, 2, "those are its own");
    wait_in_buffer(change_of(RUN_CANCEL, "", 0), 3000);
    next = merged(&next, buf_bytes(&scene.changes), 5);
    cr_assert(next.state == RUN_CANCELED && next.finished_at_ms == 7000);
    cr_assert(bytes_eq(next.metadata, bytes_str("{\"set\":1,\"n\":1}")), "merged once");
    struct run again = merged(&next, buf_bytes(&scene.changes), 6);
    cr_assert(same_run(&again, &next));
}

Test(run_rules, a_cancel_of_an_alias_does_not_undo_an_end)
{
    struct run canonical = run_in(RUN_COMPLETED);
    wait_in_buffer(change_of(RUN_CANCEL, "", 0), 3000);
    struct run next = merged(&canonical, buf_bytes(&scene.changes), 0);
    cr_assert(same_run(&next, &canonical));
}

/* ---- U1 to U5, whatever happens ---- */

static void check_step(const struct run *before, const struct run *after)
{
    if (run_is_final(before)) cr_assert_eq(after->state, before->state, "U1");
    cr_assert_geq(after->fence, before->fence, "U2");
    if (after->state == RUN_EXECUTING && !token_eq(&after->token, &before->token))
        cr_assert_gt(after->fence, before->fence, "U2");
    cr_assert(!after->key_held || before->key_held, "U3");
    cr_assert(after->attempts <= after->attempts_max && after->stalls <= RUN_STALLS_MAX, "U5");
    cr_assert_leq(after->attempts + after->stalls, before->attempts + before->stalls + 1, "U5");
    cr_assert_geq(after->metadata_version, before->metadata_version);
    cr_assert_eq(run_is_final(after), after->finished_at_ms != 0);
    cr_assert(!run_nonsense(after));
}

static struct run step(const struct run *r, struct rng *random, int64_t now_ms)
{
    static const char *const bodies[] = { [RUN_ADD_TAGS] = TAG,
                                          [RUN_SET_METADATA] = "{\"n\":3}",
                                          [RUN_OPERATE] = INCREMENT,
                                          [RUN_CANCEL] = "",
                                          [RUN_FAIL] = "" };
    enum { KINDS = RUN_RETURN + 1 };
    unsigned kind = (unsigned)rng_below(random, 2 * KINDS);
    uint8_t who = (uint8_t)rng_below(random, 4);
    struct token token_of_who = token(who);
    if (kind == RUN_CANCEL && rng_below(random, 4)) kind = 0; /* or it is all over at once */
    if (kind == 0 || kind >= KINDS)
        return rules_run_lease(r, &token_of_who, (int64_t)rng_below(random, 300), now_ms).next;
    const char *body = kind < sizeof bodies / sizeof bodies[0] ? bodies[kind] : NULL;
    struct run_change c = change_of((enum run_change_kind)kind, body ? body : "", who);
    c.retry_ms = (int64_t)rng_below(random, 100);
    return decide(r, c, now_ms)->next;
}

Test(run_rules, random_histories_keep_the_invariants)
{
    unsigned ends[RUN_CANCELED + 1] = { 0 };
    for (uint64_t seed = 1; seed <= 500; seed++) {
        struct rng_seeded random;
        struct run r = run_in(RUN_QUEUED);
        int64_t now_ms = 2000;
        rng_seeded_init(&random, seed);
        for (int i = 0; i < 60; i++) {
            now_ms += (int64_t)rng_below(&random.base, 200) - 40; /* clocks go back, too */
            struct run next = step(&r, &random.base, now_ms);
            check_step(&r, &next);
            r = next;
        }
        ends[r.state]++;
    }
    for (enum run_state state = RUN_COMPLETED; state <= RUN_CANCELED; state++)
        cr_expect_gt(ends[state], 10, "state %d is hardly ever reached", state);
}
