/* drain_rate_test.c - however entries come back, no second has more than the rate. */
#include "engine/drain_rate.h"

#include <criterion/criterion.h>
#include <string.h>

enum { MOST = 1000, HISTORY_MS = 20000 };

Test(drain_rate, none_is_no_limit_and_counts_nothing)
{
    struct drain_rate r = { .per_second = 0 };
    int64_t again_ms = -1;
    for (int i = 0; i < 10; i++) cr_assert_eq(drain_rate_take(&r, MOST, 5, &again_ms), MOST);
    drain_rate_written(&r, true, 5);
    drain_rate_give_back(&r, 7);
    cr_assert_eq(again_ms, -1);
    cr_assert_eq(r.at_ledger, 0);
}

Test(drain_rate, is_earned_evenly)
{
    struct drain_rate r = { .per_second = 100 };
    int64_t again_ms = -1;
    cr_assert_eq(drain_rate_take(&r, MOST, 1000, &again_ms), 5, "what 50 ms have earned");
    cr_assert_eq(drain_rate_take(&r, MOST, 1000, &again_ms), 0);
    cr_assert_eq(again_ms, 1010, "one entry takes 10 ms");
    cr_assert_eq(drain_rate_take(&r, MOST, again_ms, &again_ms), 1);
}

Test(drain_rate, what_was_not_there_may_be_taken_again)
{
    struct drain_rate r = { .per_second = 100 };
    int64_t again_ms;
    cr_assert_eq(drain_rate_take(&r, MOST, 1000, &again_ms), 5);
    drain_rate_give_back(&r, 3);
    cr_assert_eq(drain_rate_take(&r, MOST, 1000, &again_ms), 3);
}

/* A ledger that is silent for seconds, and then answers everything at once. */
Test(drain_rate, what_is_at_a_silent_ledger_counts)
{
    struct drain_rate r = { .per_second = 100 };
    int64_t again_ms, now_ms = 1000;
    size_t taken = 0;
    for (; now_ms < 10000; now_ms += 10) taken += drain_rate_take(&r, MOST, now_ms, &again_ms);
    cr_assert_eq(taken, 100, "as many as one second may see");
    for (size_t i = 0; i < taken; i++) drain_rate_written(&r, true, now_ms);
    cr_assert_eq(drain_rate_take(&r, MOST, now_ms, &again_ms), 0);
    cr_assert(again_ms > now_ms);
    cr_assert_eq(drain_rate_take(&r, MOST, now_ms + 900, &again_ms), 0, "that second is full");
    cr_assert(drain_rate_take(&r, MOST, now_ms + 1100, &again_ms) > 0);
}

/* Whoever asks when told to, with a ledger of any speed: every window of a second is looked at. */
Test(drain_rate, no_second_has_more)
{
    for (int64_t delay_ms = 0; delay_ms <= 700; delay_ms += 70) {
        struct drain_rate r = { .per_second = 300 };
        static size_t came[HISTORY_MS], due[HISTORY_MS + 1000];
        memset(came, 0, sizeof came);
        memset(due, 0, sizeof due);
        int64_t again_ms = 0;
        size_t all = 0, second = 0;
        for (int64_t now_ms = 0; now_ms < HISTORY_MS; now_ms++) {
            came[now_ms] = due[now_ms];
            for (size_t i = 0; i < due[now_ms]; i++) drain_rate_written(&r, true, now_ms);
            if (now_ms < again_ms) continue;
            size_t n = drain_rate_take(&r, MOST, now_ms, &again_ms);
            due[now_ms + delay_ms + 1] += n;
            all += n;
        }
        for (int64_t at = 0; at < HISTORY_MS; at++) {
            second += came[at];
            if (at >= 1000) second -= came[at - 1000];
            cr_assert(second <= 300, "%zu in a second, answered after %lld ms", second,
                      (long long)delay_ms);
        }
        cr_assert(all > 300, "it goes on: %zu, answered after %lld ms", all,
                  (long long)delay_ms);
    }
}
