/* outcome_test.c - the table that all doors share, line by line as the semantics give it. */
#include "core/outcome.h"

#include <criterion/criterion.h>
#include <string.h>

Test(outcome, table)
{
    static const struct {
        enum outcome outcome;
        const char *name;
        int http, exit;
        bool retryable;
    } table[] = {
        { OUTCOME_CLAIMED, "claimed", 201, 0, false },
        { OUTCOME_CACHED, "cached", 200, 0, false },
        { OUTCOME_IN_PROGRESS, "in_progress", 409, 4, true },
        { OUTCOME_TIMED_OUT, "timed_out", 503, 4, true },
        { OUTCOME_ALREADY_DONE, "already_done", 409, 7, false },
        { OUTCOME_MISMATCH, "mismatch", 422, 3, false },
        { OUTCOME_LOST, "lost", 409, 5, false },
        { OUTCOME_OK, "ok", 200, 0, false },
        { OUTCOME_ABSENT, "absent", 404, 6, false },
    };
    size_t count = sizeof table / sizeof table[0];
    cr_assert(count == (size_t)OUTCOME_ABSENT, "an outcome is missing here");
    for (size_t i = 0; i < count; i++) {
        const struct outcome_info *info = outcome_info(table[i].outcome);
        cr_expect(info->outcome == table[i].outcome && (size_t)table[i].outcome == i + 1);
        cr_expect(strcmp(info->name, table[i].name) == 0, "%s", info->name);
        cr_expect(strcmp(outcome_name(table[i].outcome), table[i].name) == 0);
        cr_expect(info->http_status == table[i].http, "%s", info->name);
        cr_expect(info->exit_status == table[i].exit, "%s", info->name);
        cr_expect(info->retryable == table[i].retryable, "%s", info->name);
        cr_expect(info->text[0] && info->resp[0], "%s", info->name);
    }
}
