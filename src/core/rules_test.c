/* rules_test.c - each verb over each state, at the exact boundaries, as tables.
 *
 * The record of every row: owner 1, fence 500, claimed at 1000 with a lease of 100 and a
 * retention of 50; done rows were published at 1060 with value "A". */
#include "core/rules.h"

#include <criterion/criterion.h>

enum state { ABSENT, PENDING, DONE, DONE_NO_VALUE };

#define DAY ABANDONED_KEEP_MS

static struct blob *value_a, *value_b;

static void setup(void)
{
    value_a = blob_new(bytes_str("A"));
    value_b = blob_new(bytes_str("B"));
}

static void teardown(void)
{
    blob_unref(value_a);
    blob_unref(value_b);
}

TestSuite(rules, .init = setup, .fini = teardown);

static struct token token(uint8_t who)
{
    return (struct token){ { who } };
}

static struct record record_in(enum state state)
{
    struct record r = { .state = RECORD_PENDING,
                        .token = token(1),
                        .fence = 500,
                        .claimed_at_ms = 1000,
                        .lease_ms = 100,
                        .lease_until_ms = 1100,
                        .retain_ms = 50,
                        .fingerprint = bytes_str("f") };
    if (state == PENDING) return r;
    r.state = RECORD_DONE;
    r.done_at_ms = 1060;
    if (state == DONE) r.value = value_a;
    return r;
}

typedef struct verdict rule_fn(const struct record *, const struct request *, struct moment);

struct row {
    enum state state;
    uint8_t who;
    const char *fingerprint;
    int64_t now_ms;
    enum outcome outcome;
    enum change change;
};

static struct verdict decide(rule_fn *rule, const struct row *row, struct blob *value)
{
    struct record r = record_in(row->state);
    struct request in = { .token = token(row->who),
                          .lease_ms = 30,
                          .retain_ms = 70,
                          .fingerprint = bytes_str(row->fingerprint ? row->fingerprint : "f"),
                          .value = value };
    return rule(row->state == ABSENT ? NULL : &r, &in,
                (struct moment){ .now_ms = row->now_ms });
}

static void check_rows(rule_fn *rule, const struct row *rows, size_t count, struct blob *value)
{
    for (size_t i = 0; i < count; i++) {
        struct verdict v = decide(rule, &rows[i], value);
        cr_expect(v.outcome == rows[i].outcome, "row %zu: %s", i, outcome_name(v.outcome));
        cr_expect(v.change == rows[i].change, "row %zu: change %d", i, v.change);
    }
}
#define CHECK_ROWS(rule, value, ...)                                                           \
    check_rows(rule, (const struct row[])__VA_ARGS__,                                          \
               sizeof((const struct row[])__VA_ARGS__) / sizeof(struct row), value)

Test(rules, claim)
{
    CHECK_ROWS(rules_claim, NULL,
               { { ABSENT, 2, "f", 1000, OUTCOME_CLAIMED, CHANGE_PUT },
                 { PENDING, 2, "f", 1099, OUTCOME_IN_PROGRESS, CHANGE_NONE },
                 { PENDING, 2, "f", 1100, OUTCOME_CLAIMED, CHANGE_PUT },
                 { PENDING, 1, "f", 1099, OUTCOME_CLAIMED, CHANGE_NONE },
                 { PENDING, 1, "f", 1100, OUTCOME_CLAIMED, CHANGE_NONE },
                 { PENDING, 2, "g", 1099, OUTCOME_MISMATCH, CHANGE_NONE },
                 { PENDING, 2, "g", 1100, OUTCOME_MISMATCH, CHANGE_NONE },
                 { PENDING, 1, "g", 1099, OUTCOME_MISMATCH, CHANGE_NONE },
                 { PENDING, 2, "", 1099, OUTCOME_MISMATCH, CHANGE_NONE },
                 { PENDING, 2, "g", 1100 + DAY - 1, OUTCOME_MISMATCH, CHANGE_NONE },
                 { PENDING, 2, "g", 1100 + DAY, OUTCOME_CLAIMED, CHANGE_PUT },
                 { DONE, 2, "f", 1109, OUTCOME_CACHED, CHANGE_NONE },
                 { DONE, 1, "f", 1109, OUTCOME_CACHED, CHANGE_NONE },
                 { DONE_NO_VALUE, 2, "f", 1109, OUTCOME_ALREADY_DONE, CHANGE_NONE },
                 { DONE, 2, "g", 1109, OUTCOME_MISMATCH, CHANGE_NONE },
                 { DONE, 2, "g", 1110, OUTCOME_CLAIMED, CHANGE_PUT },
                 { PENDING, 2, "f", 999, OUTCOME_IN_PROGRESS, CHANGE_PUT } });
}

Test(rules, publish)
{
    CHECK_ROWS(rules_publish, value_a,
               { { ABSENT, 1, "f", 1000, OUTCOME_LOST, CHANGE_NONE },
                 { PENDING, 1, "f", 1099, OUTCOME_OK, CHANGE_PUT },
                 { PENDING, 1, "f", 1100, OUTCOME_OK, CHANGE_PUT },
                 { PENDING, 1, "", 1050, OUTCOME_OK, CHANGE_PUT },
                 { PENDING, 1, "f", 1100 + DAY, OUTCOME_LOST, CHANGE_NONE },
                 { PENDING, 2, "f", 1099, OUTCOME_LOST, CHANGE_NONE },
                 { PENDING, 2, "f", 1100, OUTCOME_LOST, CHANGE_NONE },
                 { DONE, 1, "f", 1109, OUTCOME_OK, CHANGE_NONE },
                 { DONE, 2, "f", 1109, OUTCOME_LOST, CHANGE_NONE },
                 { DONE_NO_VALUE, 1, "f", 1109, OUTCOME_LOST, CHANGE_NONE },
                 { DONE, 1, "f", 1110, OUTCOME_LOST, CHANGE_NONE } });
    CHECK_ROWS(rules_publish, value_b, { { DONE, 1, "f", 1109, OUTCOME_LOST, CHANGE_NONE } });
    CHECK_ROWS(rules_publish, NULL,
               { { DONE, 1, "f", 1109, OUTCOME_LOST, CHANGE_NONE },
                 { DONE_NO_VALUE, 1, "f", 1109, OUTCOME_OK, CHANGE_NONE } });
}

Test(rules, release)
{
    CHECK_ROWS(rules_release, NULL,
               { { ABSENT, 1, "f", 1000, OUTCOME_LOST, CHANGE_NONE },
                 { PENDING, 1, "f", 1099, OUTCOME_OK, CHANGE_DROP },
                 { PENDING, 1, "f", 1100, OUTCOME_OK, CHANGE_DROP },
                 { PENDING, 2, "f", 1099, OUTCOME_LOST, CHANGE_NONE },
                 { PENDING, 1, "f", 1100 + DAY, OUTCOME_LOST, CHANGE_NONE },
                 { DONE, 1, "f", 1109, OUTCOME_LOST, CHANGE_NONE },
                 { DONE, 1, "f", 1110, OUTCOME_LOST, CHANGE_NONE } });
}

Test(rules, renew)
{
    CHECK_ROWS(rules_renew, NULL,
               { { ABSENT, 1, "f", 1000, OUTCOME_LOST, CHANGE_NONE },
                 { PENDING, 1, "f", 1099, OUTCOME_OK, CHANGE_PUT },
                 { PENDING, 1, "f", 1100, OUTCOME_OK, CHANGE_PUT },
                 { PENDING, 2, "f", 1099, OUTCOME_LOST, CHANGE_NONE },
                 { PENDING, 2, "f", 1100, OUTCOME_LOST, CHANGE_NONE },
                 { DONE, 1, "f", 1109, OUTCOME_LOST, CHANGE_NONE },
                 { DONE, 1, "f", 1110, OUTCOME_LOST, CHANGE_NONE } });
}

Test(rules, peek_and_forget)
{
    CHECK_ROWS(rules_peek, NULL,
               { { ABSENT, 0, "", 1000, OUTCOME_ABSENT, CHANGE_NONE },
                 { PENDING, 0, "", 1099, OUTCOME_IN_PROGRESS, CHANGE_NONE },
                 { PENDING, 0, "", 1100, OUTCOME_IN_PROGRESS, CHANGE_NONE },
                 { PENDING, 0, "", 1100 + DAY, OUTCOME_ABSENT, CHANGE_NONE },
                 { DONE, 0, "", 1109, OUTCOME_CACHED, CHANGE_NONE },
                 { DONE_NO_VALUE, 0, "", 1109, OUTCOME_ALREADY_DONE, CHANGE_NONE },
                 { DONE, 0, "", 1110, OUTCOME_ABSENT, CHANGE_NONE } });
    CHECK_ROWS(rules_forget, NULL,
               { { ABSENT, 0, "", 1000, OUTCOME_ABSENT, CHANGE_NONE },
                 { PENDING, 1, "", 1099, OUTCOME_IN_PROGRESS, CHANGE_NONE },
                 { PENDING, 0, "", 1100, OUTCOME_OK, CHANGE_DROP },
                 { DONE, 0, "", 1109, OUTCOME_OK, CHANGE_DROP },
                 { DONE, 0, "", 1110, OUTCOME_ABSENT, CHANGE_DROP } });
}

Test(rules, forget_by_force_takes_it_from_a_live_owner)
{
    struct record r = record_in(PENDING);
    struct request in = { .force = true };
    struct verdict v = rules_forget(&r, &in, (struct moment){ .now_ms = 1050 });
    cr_assert(v.outcome == OUTCOME_OK && v.change == CHANGE_DROP);
}

Test(rules, expire)
{
    CHECK_ROWS(rules_expire, NULL,
               { { ABSENT, 0, "", 1000, OUTCOME_ABSENT, CHANGE_NONE },
                 { PENDING, 0, "", 1099, OUTCOME_OK, CHANGE_NONE },
                 { PENDING, 0, "", 1100 + DAY - 1, OUTCOME_OK, CHANGE_NONE },
                 { PENDING, 0, "", 1100 + DAY, OUTCOME_ABSENT, CHANGE_DROP },
                 { DONE, 0, "", 1109, OUTCOME_OK, CHANGE_NONE },
                 { DONE, 0, "", 1110, OUTCOME_ABSENT, CHANGE_DROP } });
}

/* ---- what the next record looks like ---- */

Test(rules, a_grant_is_of_the_one_who_asked)
{
    struct row row = { PENDING, 2, "f", 1100 };
    struct verdict v = decide(rules_claim, &row, NULL);
    cr_assert(v.taken_over && v.next.state == RECORD_PENDING);
    struct token two = token(2);
    cr_assert(token_eq(&v.next.token, &two));
    cr_assert(v.next.claimed_at_ms == 1100 && v.next.lease_ms == 30);
    cr_assert(v.next.lease_until_ms == 1130 && v.next.retain_ms == 70);
    cr_assert(!v.next.value);
    row = (struct row){ DONE, 2, "g", 1110 };
    v = decide(rules_claim, &row, NULL);
    cr_assert(!v.taken_over, "nobody was there any more");
    cr_assert(bytes_eq(v.next.fingerprint, bytes_str("g")) && !v.next.value);
}

Test(rules, fence_is_the_time_or_one_more_than_any_before)
{
    struct request in = { .token = token(2), .fingerprint = bytes_str("f") };
    struct record r = record_in(PENDING);
    static const struct {
        bool stored;
        uint64_t stored_fence, floor;
        int64_t now_ms;
        uint64_t fence;
    } rows[] = {
        { false, 0, 0, 1100, 1100000 },
        { false, 0, 1100000, 1100, 1100001 },
        { false, 0, 1099999, 1100, 1100000 },
        { true, 500, 0, 1100, 1100000 },
        { true, 1100000, 0, 1100, 1100001 },
        { true, 7000000, 0, 1100, 7000001 },
        { true, 7000000, 8000000, 1100, 8000001 },
        { false, 0, 0, 0, 1 },
        { false, 0, 0, -5, 1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        r.fence = rows[i].stored_fence;
        struct moment at = { .now_ms = rows[i].now_ms, .fence_floor = rows[i].floor };
        struct verdict v = rules_claim(rows[i].stored ? &r : NULL, &in, at);
        cr_expect(v.next.fence == rows[i].fence, "row %zu: %llu", i,
                  (unsigned long long)v.next.fence);
    }
}

Test(rules, publish_keeps_owner_fence_and_fingerprint)
{
    struct record r = record_in(PENDING);
    struct request in = { .token = token(1), .retain_ms = -1, .value = value_a };
    struct verdict v = rules_publish(&r, &in, (struct moment){ .now_ms = 1080 });
    cr_assert(v.next.state == RECORD_DONE && v.next.fence == 500);
    cr_assert(bytes_eq(v.next.fingerprint, bytes_str("f")));
    cr_assert(v.next.done_at_ms == 1080 && v.next.retain_ms == 50 && v.next.value == value_a);
    in.retain_ms = 0;
    v = rules_publish(&r, &in, (struct moment){ .now_ms = 1080 });
    cr_assert(v.next.retain_ms == 0, "zero is zero, not as claimed");
}

Test(rules, renew_keeps_or_changes_the_length)
{
    struct record r = record_in(PENDING);
    struct request in = { .token = token(1), .lease_ms = -1 };
    struct verdict v = rules_renew(&r, &in, (struct moment){ .now_ms = 1050 });
    cr_assert(v.next.lease_until_ms == 1150 && v.next.lease_ms == 100 && v.next.fence == 500);
    in.lease_ms = 10;
    v = rules_renew(&r, &in, (struct moment){ .now_ms = 1050 });
    cr_assert(v.next.lease_until_ms == 1060 && v.next.lease_ms == 10);
    in.lease_ms = 0;
    v = rules_renew(&r, &in, (struct moment){ .now_ms = 1050 });
    cr_assert(v.next.lease_until_ms == 1050);
}

Test(rules, a_clock_that_went_back_gets_one_lease_and_no_more)
{
    struct row row = { PENDING, 2, "f", 200 };
    struct verdict v = decide(rules_claim, &row, NULL);
    cr_assert(v.outcome == OUTCOME_IN_PROGRESS && v.change == CHANGE_PUT);
    cr_assert(v.next.lease_until_ms == 300 && v.next.fence == 500);
    struct token one = token(1);
    cr_assert(token_eq(&v.next.token, &one));
    row.now_ms = 1000; /* exactly the whole lease is left: nothing to move */
    cr_assert(decide(rules_claim, &row, NULL).change == CHANGE_NONE);
}

/* ---- what the caller is told ---- */

static struct answer told(rule_fn *rule, const struct row *row, struct blob *value)
{
    struct record r = record_in(row->state);
    const struct record *stored = row->state == ABSENT ? NULL : &r;
    struct request in = { .token = token(row->who),
                          .lease_ms = 30,
                          .retain_ms = 70,
                          .fingerprint = bytes_str(row->fingerprint),
                          .value = value };
    struct moment at = { .now_ms = row->now_ms };
    struct verdict v = rule(stored, &in, at);
    return rules_answer(&v, stored, &in, at);
}

Test(rules, an_answer_shows_what_is_left)
{
    struct answer a = told(rules_claim, &(struct row){ PENDING, 2, "f", 1040 }, NULL);
    cr_assert(a.lease_left_ms == 60 && a.fence == 500 && !a.mine && !a.value);
    a = told(rules_peek, &(struct row){ PENDING, 1, "", 1200 }, NULL);
    cr_assert(a.lease_left_ms == 0 && a.mine);
    a = told(rules_claim, &(struct row){ DONE, 2, "f", 1100 }, NULL);
    cr_assert(a.retain_left_ms == 10 && a.value == value_a && a.lease_left_ms == 0);
}

Test(rules, mismatch_reveals_nothing)
{
    static const enum state states[] = { PENDING, DONE, DONE_NO_VALUE };
    for (size_t i = 0; i < 3; i++) {
        struct answer a = told(rules_claim, &(struct row){ states[i], 1, "g", 1070 }, NULL);
        cr_assert(a.outcome == OUTCOME_MISMATCH && !a.value && !a.mine && a.fence == 0);
        cr_assert(a.version == 0 && a.lease_left_ms == 0 && a.retain_left_ms == 0);
    }
}

Test(rules, lost_carries_the_answer_if_there_is_one)
{
    cr_assert(told(rules_publish, &(struct row){ DONE, 2, "f", 1070 }, value_b).value ==
              value_a);
    cr_assert(told(rules_release, &(struct row){ DONE, 2, "f", 1070 }, NULL).value == value_a);
    cr_assert(told(rules_renew, &(struct row){ DONE, 2, "f", 1070 }, NULL).value == value_a);
    cr_assert(!told(rules_publish, &(struct row){ PENDING, 2, "f", 1070 }, value_b).value);
    cr_assert(!told(rules_publish, &(struct row){ DONE, 2, "f", 1110 }, value_b).value);
}

Test(rules, nothing_is_shown_of_what_is_gone_or_dropped)
{
    struct answer a = told(rules_release, &(struct row){ PENDING, 1, "f", 1050 }, NULL);
    cr_assert(a.outcome == OUTCOME_OK && a.fence == 0 && a.version == 0 && !a.mine);
    a = told(rules_peek, &(struct row){ DONE, 1, "f", 1110 }, NULL);
    cr_assert(a.fence == 0 && !a.value && !a.mine);
}
