/* caller.h - somebody who calls an engine and remembers what came of it. */
#ifndef TESTS_SUPPORT_CALLER_H
#define TESTS_SUPPORT_CALLER_H

#include "engine/engine.h"
#include "tests/support/world.h"

struct caller {
    struct call *call;
    unsigned finished;
    unsigned order; /* among all callers, from 1 */
    int error;      /* 0: there is an outcome */
    enum outcome outcome;
    struct answer out; /* without its value */
    char value[64];
    bool has_value;
    struct token token;
    int64_t waited_ms;
};

/* Claims with a lease of 30 s and a retention of 60 s; publishes as claimed. */
struct call_args caller_claim_args(const char *name, int64_t wait_ms);
void caller_call(struct caller *c, struct engine *e, const struct call_args *args);
void caller_claim(struct caller *c, struct engine *e, const char *name, int64_t wait_ms);
void caller_publish(struct caller *c, struct engine *e, const char *name,
                    const struct token *token, const char *value);
void caller_release(struct caller *c, struct engine *e, const char *name,
                    const struct token *token);

#endif
