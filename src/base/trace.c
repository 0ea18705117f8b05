/* trace.c - the names of trace.h. */
#include "base/trace.h"

#include "base/check.h"

static const char *const names[] = {
#define TRACE_NAME(kind, name, number) name,
    TRACE_LIST(TRACE_NAME)
#undef TRACE_NAME
};

const char *trace_name(enum trace_kind kind)
{
    CHECK(kind < TRACE_KINDS);
    return names[kind];
}
