/* record_test.c - when a record is gone, and what its version says. */
#include "core/record.h"

#include <criterion/criterion.h>

static struct record pending(int64_t lease_until_ms, int64_t retain_ms)
{
    return (struct record){ .state = RECORD_PENDING,
                            .fence = 10,
                            .lease_until_ms = lease_until_ms,
                            .retain_ms = retain_ms };
}

static struct record done(int64_t done_at_ms, int64_t retain_ms)
{
    return (struct record){
        .state = RECORD_DONE, .fence = 10, .done_at_ms = done_at_ms, .retain_ms = retain_ms
    };
}

Test(record, done_is_gone_when_retention_ends)
{
    struct record r = done(1000, 500);
    cr_assert(record_live(&r, 1499) == &r);
    cr_assert(!record_live(&r, 1500));
    cr_assert(!record_live(&r, 1501));
}

Test(record, zero_retention_is_gone_at_once)
{
    struct record r = done(1000, 0);
    cr_assert(!record_live(&r, 1000));
    cr_assert(record_live(&r, 999) == &r, "seen from before the publish it is there");
}

Test(record, pending_is_kept_for_a_day_after_its_lease)
{
    struct record r = pending(1000, 0);
    cr_assert(record_gone_at_ms(&r) == 1000 + ABANDONED_KEEP_MS);
    cr_assert(record_live(&r, 1000 + ABANDONED_KEEP_MS - 1) == &r);
    cr_assert(!record_live(&r, 1000 + ABANDONED_KEEP_MS));
}

Test(record, pending_is_kept_for_a_retention_longer_than_a_day)
{
    struct record r = pending(1000, ABANDONED_KEEP_MS + 1);
    cr_assert(record_gone_at_ms(&r) == 1000 + ABANDONED_KEEP_MS + 1);
}

Test(record, nothing_is_not_alive)
{
    cr_assert(!record_live(NULL, 0));
    cr_assert(record_version(NULL) == 0);
}

Test(record, longest_times_do_not_overflow)
{
    int64_t now_ms = INT64_C(4102444800000); /* the year 2100 */
    struct record r = pending(now_ms + DURATION_MS_MAX, DURATION_MS_MAX);
    cr_assert(record_gone_at_ms(&r) == now_ms + 2 * DURATION_MS_MAX);
}

Test(record, version_changes_with_owner_and_state_not_with_the_lease)
{
    struct record p = pending(1000, 0), renewed = pending(9000, 0), d = done(1, 1);
    struct record next = pending(1000, 0);
    next.fence++;
    cr_assert(record_version(&p) != 0);
    cr_assert(record_version(&p) == record_version(&renewed));
    cr_assert(record_version(&p) != record_version(&d));
    cr_assert(record_version(&p) != record_version(&next));
    cr_assert(record_version(&d) != record_version(&next));
}

Test(record, tokens_are_compared_in_every_byte)
{
    struct token a = { { 0 } }, b = { { 0 } };
    cr_assert(token_eq(&a, &b));
    for (size_t i = 0; i < sizeof a.bytes; i++) {
        b = a;
        b.bytes[i] ^= 0x80;
        cr_assert(!token_eq(&a, &b), "byte %zu", i);
    }
}
