/* trace.h - what happened, as typed events. The library never logs: it emits, and the shell
 * decides whether this is a log line, a metric or nothing. */
#ifndef BASE_TRACE_H
#define BASE_TRACE_H

#include "base/bytes.h"

/* kind, name, what `number` holds */
#define TRACE_LIST(X)                                                                          \
    X(TRACE_OP, "op", "milliseconds it took")                                                  \
    X(TRACE_CALL, "call", "state it went to")                                                  \
    X(TRACE_TAKEOVER, "takeover", "new fence")                                                 \
    X(TRACE_LOST, "lost", "fence of the claim that was refused, if known")                     \
    X(TRACE_PROMOTED, "promoted", "milliseconds the waiter had waited")                        \
    X(TRACE_WAITERS_FULL, "waiters_full", "waiters")                                           \
    X(TRACE_RENEW_FAILED, "renew_failed", "error code")                                        \
    X(TRACE_AMBIGUOUS, "ambiguous", "verb")                                                    \
    X(TRACE_DEGRADED, "degraded", "error code of coord")                                       \
    X(TRACE_BREAKER, "breaker", "1 open, 0 closed")                                            \
    X(TRACE_AMNESIA, "amnesia", "new epoch")                                                   \
    X(TRACE_FORGOT, "forgot", "outcome")                                                       \
    X(TRACE_SWEPT, "swept", "records removed")                                                 \
    X(TRACE_MARKERS_SWEPT, "markers_swept", "markers removed")                                 \
    X(TRACE_MARKERS_FAILED, "markers_failed", "how many the sweep had been asked for")         \
    X(TRACE_CLOSED, "closed", "a connection: its number")                                      \
    X(TRACE_DROPPED, "dropped", "the same, of one that was too slow or too much")              \
    X(TRACE_LOGIN_FAILED, "login_failed", "how many have, so far")                             \
    X(TRACE_SERVER, "server", "state it went to")                                              \
    X(TRACE_ALIAS, "alias", "nothing: a run turned out to be another one's double")            \
    X(TRACE_POISON, "poison", "error code, or 0: a buffered run that cannot be written")       \
    X(TRACE_DRAIN_AWAY, "drain_away", "error code: the ledger does not take what is buffered") \
    X(TRACE_SPOOL, "spool", "nothing: a run that only the spool has")

#define TRACE_ENUM(kind, name, number) kind,
enum trace_kind { TRACE_LIST(TRACE_ENUM) TRACE_KINDS };
#undef TRACE_ENUM

struct trace_event {
    enum trace_kind kind;
    struct bytes scope, key; /* empty where it is about no key */
    int64_t number;
    const char *text;   /* static: a verb, an outcome, a state; may be NULL */
    const char *detail; /* a sentence, as long as it is told; may be NULL */
};

struct trace {
    void (*emit)(void *ctx, const struct trace_event *event); /* NULL: nobody listens */
    void *ctx;
    unsigned mute; /* bits by kind: what nobody wants to hear now */
};

const char *trace_name(enum trace_kind kind);

/* For what happens so often that even putting the event together is worth a thought. */
static inline bool trace_hears(const struct trace *t, enum trace_kind kind)
{
    return t && t->emit && !(t->mute & 1u << kind);
}

static inline void trace_emit(const struct trace *t, struct trace_event event)
{
    if (trace_hears(t, event.kind)) t->emit(t->ctx, &event);
}

#endif
