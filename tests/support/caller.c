/* caller.c - see caller.h. */
#include "tests/support/caller.h"

#include "base/check.h"

#include <stdio.h>

static unsigned orders;

static void done(struct call *call, void *ctx)
{
    struct caller *c = ctx;
    c->finished++;
    c->order = ++orders;
    c->error = call_error(call)->code;
    c->waited_ms = call_waited_ms(call);
    c->call = NULL;
    if (c->error) return;
    c->out = *call_answer(call);
    struct bytes value = blob_bytes(c->out.value);
    c->outcome = c->out.outcome;
    c->has_value = c->out.value != NULL;
    snprintf(c->value, sizeof c->value, "%.*s", (int)value.len, (const char *)value.data);
    c->out.value = NULL;
    c->token = *call_token(call);
}

struct call_args caller_claim_args(const char *name, int64_t wait_ms)
{
    return (struct call_args){ .verb = VERB_CLAIM,
                               .key = key_of("s", name),
                               .in = { .lease_ms = 30000, .retain_ms = 60000 },
                               .wait_ms = wait_ms };
}

void caller_call(struct caller *c, struct engine *e, const struct call_args *args)
{
    struct err err;
    struct call_args mine = *args;
    *c = (struct caller){ 0 };
    mine.done = done;
    mine.ctx = c;
    int r = engine_call(e, &mine, &c->call, &err);
    CHECK(r == 0);
    CHECK(c->finished == 0); /* never inside engine_call() */
}

void caller_claim(struct caller *c, struct engine *e, const char *name, int64_t wait_ms)
{
    struct call_args args = caller_claim_args(name, wait_ms);
    caller_call(c, e, &args);
}

void caller_publish(struct caller *c, struct engine *e, const char *name,
                    const struct token *token, const char *value)
{
    struct call_args args = { .verb = VERB_PUBLISH,
                              .key = key_of("s", name),
                              .in = { .token = *token, .retain_ms = -1 } };
    args.in.value = blob_new(bytes_str(value));
    caller_call(c, e, &args);
    blob_unref(args.in.value);
}

void caller_release(struct caller *c, struct engine *e, const char *name,
                    const struct token *token)
{
    struct call_args args = { .verb = VERB_RELEASE,
                              .key = key_of("s", name),
                              .in = { .token = *token } };
    caller_call(c, e, &args);
}
