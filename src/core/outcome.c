/* outcome.c - the table of outcome.h. */
#include "core/outcome.h"

#include "base/check.h"

static const struct outcome_info outcomes[] = {
#define OUTCOME_ROW(id, value, name, http, resp, exit, retryable, text)                        \
    [value - 1] = { id, name, http, resp, exit, retryable, text },
    OUTCOME_LIST(OUTCOME_ROW)
#undef OUTCOME_ROW
};

const struct outcome_info *outcome_info(enum outcome o)
{
    CHECK(o >= 1 && (int)o <= OUTCOMES);
    return &outcomes[o - 1];
}
