/* api.c - the public calls: requests to the engine, answers to the caller.
 *
 * Every blocking call is its asynchronous twin plus drive_until(). Requests are copied into the
 * engine's op before a call returns; answers own a reference to their value. */
#include "base/check.h"
#include "base/text.h"
#include "lib/handle.h"

#include <stdlib.h>
#include <string.h>

#define SAME(public, internal) _Static_assert((int)(public) == (int)(internal), #public)
SAME(ONCE_CLAIMED, OUTCOME_CLAIMED);
SAME(ONCE_CACHED, OUTCOME_CACHED);
SAME(ONCE_IN_PROGRESS, OUTCOME_IN_PROGRESS);
SAME(ONCE_TIMED_OUT, OUTCOME_TIMED_OUT);
SAME(ONCE_ALREADY_DONE, OUTCOME_ALREADY_DONE);
SAME(ONCE_MISMATCH, OUTCOME_MISMATCH);
SAME(ONCE_LOST, OUTCOME_LOST);
SAME(ONCE_OK, OUTCOME_OK);
SAME(ONCE_ABSENT, OUTCOME_ABSENT);
SAME(ONCE_REFUSED, OUTCOME_REFUSED);
SAME(ONCE_CONFLICT, OUTCOME_CONFLICT);
SAME(ONCE_EINVAL, ERR_INVALID);
SAME(ONCE_ELIMIT, ERR_LIMIT);
SAME(ONCE_ENOMEM, ERR_NOMEM);
SAME(ONCE_EUNAVAILABLE, ERR_UNAVAILABLE);
SAME(ONCE_EAMBIGUOUS, ERR_AMBIGUOUS);
SAME(ONCE_ECORRUPT, ERR_CORRUPT);
SAME(ONCE_EVERSION, ERR_VERSION);
SAME(ONCE_ECANCELED, ERR_CANCELED);
SAME(ONCE_EUNSUPPORTED, ERR_UNSUPPORTED);
SAME(sizeof(struct once_error), sizeof(struct err));

/* ---- names ---- */

static const struct outcome_info *info(int outcome)
{
    if (outcome < 1 || outcome > OUTCOMES) return NULL;
    return outcome_info((enum outcome)outcome);
}

const char *once_outcome_name(int outcome)
{
    return info(outcome) ? info(outcome)->name : "unknown";
}

const char *once_outcome_text(int outcome)
{
    return info(outcome) ? info(outcome)->text : "no such outcome";
}

int once_outcome_exit_status(int outcome)
{
    return info(outcome) ? info(outcome)->exit_status : 70;
}

int once_outcome_http_status(int outcome)
{
    return info(outcome) ? info(outcome)->http_status : 500;
}

const char *once_strerror(int code)
{
    return err_text(code);
}

int once_retryable(int outcome_or_error)
{
    if (outcome_or_error <= 0) return err_retryable(outcome_or_error);
    return info(outcome_or_error) ? info(outcome_or_error)->retryable : 0;
}

#define TEXT_OF(x) #x
#define VERSION_TEXT(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

const char *once_version(void)
{
    return VERSION_TEXT(ONCE_VERSION_MAJOR, ONCE_VERSION_MINOR, ONCE_VERSION_PATCH);
}

struct once_bytes once_str(const char *text)
{
    return (struct once_bytes){ text, text ? strlen(text) : 0 };
}

struct once_bytes once_bytes(const void *data, size_t len)
{
    return (struct once_bytes){ data, len };
}

struct bytes api_view(struct once_bytes b)
{
    return bytes_of(b.data, b.len);
}

/* ---- answers ---- */

void once_answer_clear(struct once_answer *answer)
{
    blob_unref(answer->owner);
    *answer = (struct once_answer){ 0 };
}

static void answer_value(struct once_answer *to, struct blob *value)
{
    struct bytes content = blob_bytes(value);
    to->owner = blob_ref(value);
    to->has_value = value != NULL;
    to->value = (struct once_bytes){ content.data, content.len };
}

static void lease_fill(struct once_lease *to, const struct token *token, uint64_t fence,
                       int64_t lease_ms)
{
    hex_encode(bytes_of(token->bytes, sizeof token->bytes), to->token);
    to->fence = fence;
    to->lease_ms = lease_ms;
}

static bool is_durable(const struct once *o)
{
    return !(o->config.flags & ONCE_EPHEMERAL) && (o->store->caps & CAP_DURABLE);
}

static void answer_fill(struct once_answer *to, struct once_call *c)
{
    const struct answer *from = call_answer(c->call);
    *to = (struct once_answer){ .outcome = (int)from->outcome,
                                .fence = from->fence,
                                .lease_left_ms = from->lease_left_ms,
                                .retain_left_ms = from->retain_left_ms,
                                .waited_ms = call_waited_ms(c->call),
                                .taken_over = from->taken_over,
                                .degraded = from->degraded,
                                .durable = is_durable(c->once) };
    answer_value(to, from->value);
    if (from->outcome == OUTCOME_CLAIMED)
        lease_fill(&to->lease, call_token(c->call), from->fence, from->lease_left_ms);
}

static int answer_fail(struct once_answer *to, const struct err *err)
{
    *to = (struct once_answer){ .error.code = err->code };
    memcpy(to->error.text, err->text, sizeof to->error.text);
    return err->code;
}

int api_fail(struct once_error *reterr, const struct err *err)
{
    if (reterr) {
        reterr->code = err->code;
        memcpy(reterr->text, err->text, sizeof reterr->text);
    }
    return err->code;
}

/* ---- requests ---- */

static void owner_lost(const struct owner *owner, const struct token *token, uint64_t fence,
                       int64_t lease_ms, bool certain)
{
    struct once_lease lease;
    lease_fill(&lease, token, fence, lease_ms);
    drive_lost(owner->shell, (once_lost_fn *)owner->fn, owner->ctx, &lease, certain);
}

int api_take(void *to, size_t known, const void *from, size_t size, const char *init,
             struct err *reterr)
{
    if (size < sizeof size)
        return err_set(reterr, ERR_INVALID, "start with %s: size is not set", init);
    memcpy(to, from, size < known ? size : known);
    return 0;
}

static int claim_args(struct once *o, const struct once_claim *from, struct call_args *ret,
                      struct err *reterr)
{
    struct once_claim claim = ONCE_CLAIM_INIT, *in = &claim;
    int r = api_take(in, sizeof *in, from, from->size, "ONCE_CLAIM_INIT", reterr);
    if (r) return r;
    if (in->flags & ~ONCE_NO_RENEW)
        return err_set(reterr, ERR_INVALID, "unknown flags in the claim");
    *ret = (struct call_args){ .verb = VERB_CLAIM,
                               .key = { api_view(in->scope), api_view(in->key) },
                               .in = { .lease_ms = in->lease_ms,
                                       .retain_ms = in->retain_ms,
                                       .fingerprint = api_view(in->fingerprint) },
                               .wait_ms = in->wait_ms,
                               .renew = !(in->flags & ONCE_NO_RENEW) };
    if (!in->on_lost) return 0;
    ret->owner = (struct owner){ .lost = owner_lost,
                                 .shell = o,
                                 .fn = (void (*)(void))in->on_lost,
                                 .ctx = in->on_lost_ctx };
    return drive_will_tell(o, reterr);
}

int api_for_runs(const struct once *o, struct err *reterr)
{
    if (o->config.flags & ONCE_RUNS || o->store->caps & CAP_CALLS) return 0;
    return err_set(reterr, ERR_UNSUPPORTED, "open the handle with ONCE_RUNS");
}

int api_token(const char *text, struct token *ret_token, struct err *reterr)
{
    if (hex_decode(bytes_str(text), ret_token->bytes, sizeof ret_token->bytes)) return 0;
    return err_set(
        reterr, ERR_INVALID,
        "the token is not one: give the 32 hexadecimal digits that came with the lease");
}

/* The value is referenced by the op; the caller unreferences ret->in.value afterwards. */
static int owned_args(enum verb verb, const struct once_owned *from, struct call_args *ret,
                      struct err *reterr)
{
    struct once_owned owned = ONCE_OWNED_INIT, *in = &owned;
    int r = api_take(in, sizeof *in, from, from->size, "ONCE_OWNED_INIT", reterr);
    if (r) return r;
    struct call_args args = { .verb = verb,
                              .key = { api_view(in->scope), api_view(in->key) },
                              .in = { .lease_ms = in->lease_ms, .retain_ms = -1 } };
    bool needs_token = verb == VERB_PUBLISH || verb == VERB_RELEASE || verb == VERB_RENEW;
    if (verb == VERB_RENEW && in->lease_ms < ONCE_AS_GRANTED)
        return err_set(reterr, ERR_INVALID, "lease is negative");
    if (needs_token && api_token(in->token, &args.in.token, reterr)) return reterr->code;
    if (verb == VERB_PUBLISH && !in->omit_value) {
        args.in.value = blob_new(api_view(in->value));
        if (!args.in.value)
            return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    }
    *ret = args;
    return 0;
}

/* ---- one call ---- */

static void call_over(struct call *call, void *ctx)
{
    struct once_call *c = ctx;
    struct once_answer answer;
    c->result = call_error(call)->code;
    if (c->result)
        answer_fail(&answer, call_error(call));
    else
        answer_fill(&answer, c);
    if (c->done) {
        c->done(c->ctx, c->result, &answer);
        free(c);
        return;
    }
    *c->answer = answer;
    c->finished = true;
    drive_wake_caller(c->once, c);
}

static int call_begin(struct once *o, struct once_call *c, struct call_args *args,
                      struct err *reterr)
{
    args->done = call_over;
    args->ctx = c;
    return engine_call(o->engine, args, &c->call, reterr);
}

static int block_on(struct once *o, struct call_args *args, struct once_answer *ret_answer)
{
    struct err err = { 0 };
    struct once_call c = { .once = o, .answer = ret_answer };
    pthread_cond_init(&c.cond, NULL);
    drive_enter(o);
    int r = call_begin(o, &c, args, &err);
    if (!r) drive_until(o, &c);
    drive_leave(o);
    pthread_cond_destroy(&c.cond);
    return r ? answer_fail(ret_answer, &err) : c.result;
}

struct once_call *api_call_new(struct once *o, void *ctx, struct err *reterr)
{
    struct once_call *c = once_is_hosted(o) ? malloc(sizeof *c) : NULL;
    if (c)
        *c = (struct once_call){ .once = o, .ctx = ctx };
    else if (once_is_hosted(o))
        err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    else
        err_set(reterr, ERR_UNSUPPORTED,
                "asynchronous calls need a handle opened with ONCE_HOSTED");
    return c;
}

static int start(struct once *o, struct call_args *args, once_done_fn *done, void *ctx,
                 struct once_call **ret_call, struct err *reterr)
{
    struct once_call *c = api_call_new(o, ctx, reterr);
    if (!c) return reterr->code;
    c->done = done;
    drive_enter(o);
    int r = call_begin(o, c, args, reterr);
    drive_leave(o);
    if (r)
        free(c);
    else if (ret_call)
        *ret_call = c;
    return r;
}

/* ---- the verbs: each blocking, each asynchronous ---- */

int once_claim(struct once *o, const struct once_claim *in, struct once_answer *ret_answer)
{
    struct call_args args;
    struct err err = { 0 };
    if (claim_args(o, in, &args, &err)) return answer_fail(ret_answer, &err);
    return block_on(o, &args, ret_answer);
}

int once_claim_start(struct once *o, const struct once_claim *in, once_done_fn *done, void *ctx,
                     struct once_call **ret_call, struct once_error *reterr)
{
    struct call_args args;
    struct err err = { 0 };
    if (claim_args(o, in, &args, &err) || start(o, &args, done, ctx, ret_call, &err))
        return api_fail(reterr, &err);
    return 0;
}

static int owned(struct once *o, enum verb verb, const struct once_owned *in,
                 struct once_answer *ret_answer)
{
    struct call_args args;
    struct err err = { 0 };
    if (owned_args(verb, in, &args, &err)) return answer_fail(ret_answer, &err);
    int r = block_on(o, &args, ret_answer);
    blob_unref(args.in.value);
    return r;
}

static int owned_start(struct once *o, enum verb verb, const struct once_owned *in,
                       once_done_fn *done, void *ctx, struct once_call **ret_call,
                       struct once_error *reterr)
{
    struct call_args args;
    struct err err = { 0 };
    if (owned_args(verb, in, &args, &err)) return api_fail(reterr, &err);
    int r = start(o, &args, done, ctx, ret_call, &err);
    blob_unref(args.in.value);
    return r ? api_fail(reterr, &err) : 0;
}

#define OWNED_VERB(name, verb)                                                                 \
    int once_##name(struct once *o, const struct once_owned *in,                               \
                    struct once_answer *ret_answer)                                            \
    {                                                                                          \
        return owned(o, verb, in, ret_answer);                                                 \
    }                                                                                          \
    int once_##name##_start(struct once *o, const struct once_owned *in, once_done_fn *done,   \
                            void *ctx, struct once_call **ret_call, struct once_error *reterr) \
    {                                                                                          \
        return owned_start(o, verb, in, done, ctx, ret_call, reterr);                          \
    }

OWNED_VERB(publish, VERB_PUBLISH)
OWNED_VERB(release, VERB_RELEASE)
OWNED_VERB(renew, VERB_RENEW)
OWNED_VERB(peek, VERB_PEEK)
OWNED_VERB(forget, VERB_FORGET)

void once_cancel(struct once *o, struct once_call *call)
{
    drive_enter(o);
    if (call->run_call)
        run_call_cancel(call->run_call);
    else
        call_cancel(call->call);
    drive_leave(o);
}

/* ---- a foreign loop ---- */

int once_fd(struct once *o)
{
    return o->loop.fd;
}

int64_t once_timeout_ms(struct once *o)
{
    if (!once_is_hosted(o)) return -1;
    return loop_next_ms(&o->loop, clock_now_ms(&o->monotonic));
}

int once_process(struct once *o)
{
    if (!once_is_hosted(o)) return ERR_UNSUPPORTED;
    loop_sleep(&o->loop, 0);
    drive_turns(o);
    return 0;
}

/* ---- once_do ---- */

static int do_publish(struct once *o, const struct once_claim *in,
                      const struct once_lease *lease, struct once_bytes value,
                      struct once_answer *ret_answer)
{
    struct once_owned out = ONCE_OWNED_INIT;
    out.scope = in->scope;
    out.key = in->key;
    out.token = lease->token;
    out.value = value;
    out.omit_value = (int64_t)value.len > o->config.value_bytes_max;
    int r = once_publish(o, &out, ret_answer);
    if (r || ret_answer->outcome != ONCE_OK || !out.omit_value) return r;
    /* Too large to keep: nobody else will see it, but this caller made it. */
    struct blob *own = blob_new(api_view(value));
    once_answer_clear(ret_answer);
    if (!own)
        return answer_fail(ret_answer,
                           &(struct err){ ERR_NOMEM, "done, but out of memory for its value" });
    ret_answer->outcome = ONCE_OK;
    answer_value(ret_answer, own);
    blob_unref(own);
    return 0;
}

static void do_release(struct once *o, const struct once_claim *in,
                       const struct once_lease *lease)
{
    struct once_answer ignored;
    struct once_owned out = ONCE_OWNED_INIT;
    out.scope = in->scope;
    out.key = in->key;
    out.token = lease->token;
    once_release(o, &out, &ignored); /* if it fails, the lease lapses */
    once_answer_clear(&ignored);
}

int once_do_with(struct once *o, const struct once_claim *in, once_fn *fn, void *ctx,
                 struct once_answer *ret_answer)
{
    if (once_is_hosted(o))
        return answer_fail(ret_answer,
                           &(struct err){ ERR_UNSUPPORTED,
                                          "once_do needs a handle opened without ONCE_HOSTED: "
                                          "nobody would renew the lease while it runs" });
    int r = once_claim(o, in, ret_answer);
    if (r || ret_answer->outcome != ONCE_CLAIMED) return r;
    struct once_lease lease = ret_answer->lease;
    struct once_bytes value = { NULL, 0 };
    if (fn(ctx, &lease, &value) != 0) {
        do_release(o, in, &lease);
        return 0;
    }
    once_answer_clear(ret_answer);
    return do_publish(o, in, &lease, value, ret_answer);
}

int once_do(struct once *o, const char *scope, const char *key, once_fn *fn, void *ctx,
            struct once_answer *ret_answer)
{
    struct once_claim in = ONCE_CLAIM_INIT;
    in.scope = once_str(scope);
    in.key = once_str(key);
    return once_do_with(o, &in, fn, ctx, ret_answer);
}
