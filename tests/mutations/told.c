/* told.c - see mutations.h: what a try was told, as a word in the file of its worker. */
#include "tests/mutations/mutations.h"

#include <string.h>

static const struct {
    const char *name;
    int result, outcome;
} rows[TOLD_KINDS] = {
    [TOLD_OK] = { "ok", 0, ONCE_OK },
    [TOLD_CACHED] = { "cached", 0, ONCE_CACHED },
    [TOLD_ALREADY_DONE] = { "already_done", 0, ONCE_ALREADY_DONE },
    [TOLD_IN_PROGRESS] = { "in_progress", 0, ONCE_IN_PROGRESS },
    [TOLD_ROLLED_BACK] = { "rolled_back", 0, ONCE_CLAIMED },
    [TOLD_UNAVAILABLE] = { "unavailable", ONCE_EUNAVAILABLE, 0 },
    [TOLD_AMBIGUOUS] = { "ambiguous", ONCE_EAMBIGUOUS, 0 },
};

enum told told_of(int result, int outcome)
{
    enum told t = 0;
    while (t < TOLD_KINDS &&
           (rows[t].result != result || (!result && rows[t].outcome != outcome)))
        t++;
    return t;
}

enum told told_named(const char *name)
{
    enum told t = 0;
    while (t < TOLD_KINDS && strcmp(rows[t].name, name) != 0) t++;
    return t;
}

const char *told_name(enum told t)
{
    return rows[t].name;
}

bool told_is_definite(enum told t)
{
    return t <= TOLD_ALREADY_DONE;
}

bool told_may_have_applied(enum told t)
{
    return t == TOLD_OK || t == TOLD_AMBIGUOUS;
}
