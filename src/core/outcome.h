/* outcome.h - every answer there is, as one table.
 *
 * An outcome is not an error: it comes back with return value 0. The table gives each its name,
 * HTTP status, RESP form, CLI exit status and retry rule, so that all doors agree. To add one:
 * a line here and one in once.h. */
#ifndef CORE_OUTCOME_H
#define CORE_OUTCOME_H

#include <stdbool.h>

/* id, value, name, http, resp, exit, retryable, text */
#define OUTCOME_LIST(X)                                                                        \
    X(OUTCOME_CLAIMED, 1, "claimed", 201, "[claimed,token,fence,lease_ms]", 0, false,          \
      "you own it")                                                                            \
    X(OUTCOME_CACHED, 2, "cached", 200, "[cached,value]", 0, false, "the answer")              \
    X(OUTCOME_IN_PROGRESS, 3, "in_progress", 409, "[in_progress,lease_left_ms]", 4, true,      \
      "somebody is on it; safe to retry")                                                      \
    X(OUTCOME_TIMED_OUT, 4, "timed_out", 503, "[timed_out]", 4, true,                          \
      "waited, still no answer; safe to retry")                                                \
    X(OUTCOME_ALREADY_DONE, 5, "already_done", 409, "[already_done]", 7, false,                \
      "it was done; the answer was not kept; do not retry, look at the state")                 \
    X(OUTCOME_MISMATCH, 6, "mismatch", 422, "-MISMATCH", 3, false,                             \
      "same key, other fingerprint")                                                           \
    X(OUTCOME_LOST, 7, "lost", 409, "[lost,value?]", 5, false, "not yours any more")           \
    X(OUTCOME_OK, 8, "ok", 200, "+OK", 0, false, "done as asked")                              \
    X(OUTCOME_ABSENT, 9, "absent", 404, "[absent]", 6, false, "there is no record")            \
    X(OUTCOME_REFUSED, 10, "refused", 422, "-REFUSED", 8, false,                               \
      "what is there does not allow it")                                                       \
    X(OUTCOME_CONFLICT, 11, "conflict", 409, "-CONFLICT", 9, true,                             \
      "it has changed since you looked; look again")

#define OUTCOME_ENUM(id, value, name, http, resp, exit, retryable, text) id = value,
enum outcome { OUTCOME_LIST(OUTCOME_ENUM) };
#undef OUTCOME_ENUM

#define OUTCOME_COUNT(id, value, name, http, resp, exit, retryable, text) +1
enum { OUTCOMES = 0 OUTCOME_LIST(OUTCOME_COUNT) }; /* numbered from 1 */
#undef OUTCOME_COUNT

struct outcome_info {
    enum outcome outcome;
    const char *name;
    int http_status;
    const char *resp;
    int exit_status;
    bool retryable;
    const char *text;
};

const struct outcome_info *outcome_info(enum outcome o);

static inline const char *outcome_name(enum outcome o)
{
    return outcome_info(o)->name;
}

#endif
