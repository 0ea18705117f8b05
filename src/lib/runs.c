/* runs.c - the public calls about runs: requests to the engine, answers to the caller.
 *
 * As in api.c, every blocking call is its asynchronous twin plus drive_until(). What a caller
 * fills in becomes struct run_args here and is copied by the engine before a call returns; an
 * answer that finds no memory after something may have changed is ambiguous, not "nothing". */
#include "base/check.h"
#include "lib/handle.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(ONCE_ANY_VERSION == RUN_ANY_VERSION, "ONCE_ANY_VERSION");

/* A request: what the engine is asked, and the memory that the question points into. */
struct asked {
    struct run_args args;
    unsigned statuses;
    uint8_t tags[TAGS_BYTES_MAX];
};

/* ---- what callers fill in ---- */

static struct bytes env_of(struct once_bytes env)
{
    return env.len ? api_view(env) : bytes_str("default");
}

static int id_take(const char *text, struct run_id *ret_id, struct err *reterr)
{
    if (text && run_id_parse(bytes_str(text), ret_id)) return 0;
    return err_set(reterr, ERR_INVALID,
                   "the id is not one: run_ and 26 digits or letters, as triggers give it");
}

/* One length byte and the text, each; a tag that is there already is left out. */
static int tags_take(const struct once_bytes *tags, size_t count, uint8_t *room,
                     struct bytes *ret_tags, struct err *reterr)
{
    size_t len = 0, kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct bytes tag = api_view(tags[i]);
        if (tag.len == 0) return err_set(reterr, ERR_INVALID, "a tag is empty");
        if (tag.len > TAG_BYTES_MAX)
            return err_set(reterr, ERR_LIMIT, "a tag has %zu bytes; at most %d are allowed",
                           tag.len, TAG_BYTES_MAX);
        if (tags_have(bytes_of(room, len), tag)) continue;
        if (kept++ == TAGS_MAX)
            return err_set(reterr, ERR_LIMIT, "a run has at most %d tags", TAGS_MAX);
        room[len++] = (uint8_t)tag.len;
        memcpy(room + len, tag.data, tag.len);
        len += tag.len;
    }
    *ret_tags = bytes_of(room, len);
    return 0;
}

static int not_negative(int64_t ms, const char *what, struct err *reterr)
{
    return ms < 0 ? err_set(reterr, ERR_INVALID, "%s is negative", what) : 0;
}

/* What was not set is NULL: there is none. What was set and has nothing in it is a mistake that would
 * otherwise make a run each time. */
static int not_empty(struct once_bytes b, const char *what, struct err *reterr)
{
    if (!b.data || b.len) return 0;
    return err_set(reterr, ERR_INVALID, "%s is empty: leave it out if there is none", what);
}

static int trigger_check(const struct once_trigger *in, struct err *reterr)
{
    if (in->flags & ~ONCE_RETURN_MISMATCH)
        return err_set(reterr, ERR_INVALID, "unknown flags in the trigger");
    if (in->delay_ms && in->delay_until_ms)
        return err_set(reterr, ERR_INVALID, "delay_ms and delay_until_ms exclude each other");
    if (in->attempts_max < 1 || in->attempts_max > RUN_ATTEMPTS_MAX)
        return err_set(reterr, ERR_INVALID, "attempts_max is from 1 to %d", RUN_ATTEMPTS_MAX);
    int r = not_negative(in->delay_ms, "the delay", reterr);
    if (!r) r = not_negative(in->delay_until_ms, "the time of the delay", reterr);
    if (!r) r = not_negative(in->key_ms, "how long the key is kept", reterr);
    if (!r) r = not_empty(in->key, "the key", reterr);
    if (!r) r = not_empty(in->ordering_key, "the ordering key", reterr);
    return r ? r : not_negative(in->wait_ms, "the wait", reterr);
}

static int trigger_asks(const void *from, struct asked *ret, struct err *reterr)
{
    struct once_trigger trigger = ONCE_TRIGGER_INIT, *in = &trigger;
    struct run_args *args = &ret->args;
    int r = api_take(in, sizeof *in, from, *(const size_t *)from, "ONCE_TRIGGER_INIT", reterr);
    if (!r) r = trigger_check(in, reterr);
    if (!r && in->id) r = id_take(in->id, &args->run.id, reterr);
    if (!r) r = tags_take(in->tags, in->tag_count, ret->tags, &args->run.tags, reterr);
    if (r) return r;
    args->question = ASK_TRIGGER;
    args->env = env_of(in->env);
    args->run.task = api_view(in->task);
    args->run.payload = api_view(in->payload);
    args->run.key = api_view(in->key);
    args->run.queue = api_view(in->queue);
    args->run.ordering_key = api_view(in->ordering_key);
    args->run.metadata = api_view(in->metadata);
    args->run.attempts_max = in->attempts_max;
    args->run.delay_until_ms = in->delay_until_ms;
    args->delay_ms = in->delay_until_ms ? -1 : in->delay_ms;
    args->key_ms = in->key_ms;
    args->wait_ms = in->wait_ms;
    args->mismatch_returns = in->flags & ONCE_RETURN_MISMATCH;
    return 0;
}

/* DELAYED is a QUEUED run to the engine; which of the two is told when the answer is shown. */
static unsigned states_of(unsigned statuses)
{
    const unsigned delayed = 1u << ONCE_RUN_DELAYED, queued = 1u << ONCE_RUN_QUEUED;
    return (statuses & ~delayed) | (statuses & delayed ? queued : 0);
}

static int list_asks(const void *from, struct asked *ret, struct err *reterr)
{
    struct once_run_query query = ONCE_RUN_QUERY_INIT, *in = &query;
    struct run_args *args = &ret->args;
    const unsigned known = (2u << ONCE_RUN_DELAYED) - (1u << ONCE_RUN_QUEUED);
    int r =
        api_take(in, sizeof *in, from, *(const size_t *)from, "ONCE_RUN_QUERY_INIT", reterr);
    if (!r && in->statuses & ~known)
        r = err_set(reterr, ERR_INVALID, "unknown bits in the statuses of the query");
    if (!r && in->before) r = id_take(in->before, &args->before, reterr);
    if (r) return r;
    args->question = ASK_LIST;
    args->env = env_of(in->env);
    args->task = api_view(in->task);
    args->queue = api_view(in->queue);
    args->tag = api_view(in->tag);
    args->states = states_of(in->statuses);
    args->limit = in->limit;
    ret->statuses = in->statuses;
    return 0;
}

static int lease_asks(const void *from, struct asked *ret, struct err *reterr)
{
    struct once_run_lease lease = ONCE_RUN_LEASE_INIT, *in = &lease;
    struct run_args *args = &ret->args;
    int r =
        api_take(in, sizeof *in, from, *(const size_t *)from, "ONCE_RUN_LEASE_INIT", reterr);
    if (!r) r = not_negative(in->lease_ms, "the lease", reterr);
    if (!r) r = not_negative(in->wait_ms, "the wait", reterr);
    if (r) return r;
    args->question = ASK_LEASE;
    args->env = env_of(in->env);
    args->queue = api_view(in->queue);
    args->limit = in->count;
    args->lease_ms = in->lease_ms;
    args->wait_ms = in->wait_ms;
    return 0;
}

/* ---- calls about one run ---- */

static int one_take(const void *from, struct once_run_args *in, struct asked *ret,
                    struct err *reterr)
{
    int r = api_take(in, sizeof *in, from, *(const size_t *)from, "ONCE_RUN_ARGS_INIT", reterr);
    if (!r) ret->args.env = env_of(in->env);
    return r;
}

static int one_asks(enum run_question question, const void *from, struct asked *ret,
                    struct err *reterr)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    int r = one_take(from, &in, ret, reterr);
    ret->args.question = question;
    return r ? r : id_take(in.id, &ret->args.id, reterr);
}

static int get_asks(const void *from, struct asked *ret, struct err *reterr)
{
    return one_asks(ASK_GET, from, ret, reterr);
}

static int replay_asks(const void *from, struct asked *ret, struct err *reterr)
{
    return one_asks(ASK_REPLAY, from, ret, reterr);
}

static int reset_asks(const void *from, struct asked *ret, struct err *reterr)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    int r = one_take(from, &in, ret, reterr);
    ret->args.question = ASK_RESET;
    ret->args.task = api_view(in.task);
    ret->args.key = api_view(in.key);
    return r;
}

static int change_check(const struct once_run_args *in, struct err *reterr)
{
    if (in->lease_ms < ONCE_AS_GRANTED) return not_negative(in->lease_ms, "the lease", reterr);
    if (in->retry_ms < ONCE_BACK_OFF) return not_negative(in->retry_ms, "retry_ms", reterr);
    return not_negative(in->at_ms, "the new time", reterr);
}

static int change_asks(enum run_change_kind kind, const void *from, struct asked *ret,
                       struct err *reterr)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    struct run_change *change = &ret->args.change;
    int r = one_take(from, &in, ret, reterr);
    if (!r) r = id_take(in.id, &ret->args.id, reterr);
    if (!r) r = change_check(&in, reterr);
    if (!r && !run_change_may_wait(kind)) r = api_token(in.token, &change->token, reterr);
    if (r) return r;
    ret->args.question = ASK_CHANGE;
    change->kind = kind;
    change->body = api_view(in.value);
    change->version = in.version;
    change->at_ms = in.at_ms;
    change->lease_ms = in.lease_ms;
    change->retry_ms = in.retry_ms;
    if (kind != RUN_ADD_TAGS) return 0;
    return tags_take(in.tags, in.tag_count, ret->tags, &change->body, reterr);
}

#define CHANGE(name, kind)                                                                     \
    static int name##_asks(const void *from, struct asked *ret, struct err *reterr)            \
    {                                                                                          \
        return change_asks(kind, from, ret, reterr);                                           \
    }

CHANGE(add_tags, RUN_ADD_TAGS)
CHANGE(set_metadata, RUN_SET_METADATA)
CHANGE(operate, RUN_OPERATE)
CHANGE(reschedule, RUN_RESCHEDULE)
CHANGE(cancel, RUN_CANCEL)
CHANGE(heartbeat, RUN_HEARTBEAT)
CHANGE(complete, RUN_COMPLETE)
CHANGE(fail, RUN_FAIL)
CHANGE(return, RUN_RETURN)

/* ---- one call ---- */

static int run_answer_fail(struct once_run_answer *to, const struct err *err)
{
    *to = (struct once_run_answer){ .error.code = err->code };
    memcpy(to->error.text, err->text, sizeof to->error.text);
    return err->code;
}

static int untold(const struct once_call *c, struct once_run_answer *answer)
{
    bool reads = c->question == ASK_GET || c->question == ASK_LIST;
    struct err err;
    err_set(&err, reads ? ERR_NOMEM : ERR_AMBIGUOUS,
            reads ? "out of memory for the answer"
                  : "it was answered, but there was no memory for the answer; ask again");
    return run_answer_fail(answer, &err);
}

static void run_call_over(struct run_call *call, void *ctx)
{
    struct once_call *c = ctx;
    struct once_run_answer answer;
    c->run_call = call;
    c->result = run_call_error(call)->code;
    if (c->result)
        run_answer_fail(&answer, run_call_error(call));
    else if (run_answer_fill(c, &answer))
        c->result = untold(c, &answer);
    if (c->run_done) {
        c->run_done(c->ctx, c->result, &answer);
        free(c);
        return;
    }
    *c->run_answer = answer;
    c->finished = true;
    drive_wake_caller(c->once, c);
}

static int run_call_begin(struct once *o, struct once_call *c, struct asked *asked,
                          struct err *reterr)
{
    c->question = asked->args.question;
    c->statuses = asked->statuses;
    asked->args.done = run_call_over;
    asked->args.ctx = c;
    return engine_run(o->engine, &asked->args, &c->run_call, reterr);
}

typedef int asks_fn(const void *from, struct asked *ret, struct err *reterr);

/* Without its buffer a handle would not find what others have put there. */
static int ask(const struct once *o, asks_fn *asks, const void *in, struct asked *ret,
               struct err *reterr)
{
    int r = api_for_runs(o, reterr);
    return r ? r : asks(in, ret, reterr);
}

static int run_block(struct once *o, asks_fn *asks, const void *in,
                     struct once_run_answer *ret_answer)
{
    struct err err = { 0 };
    struct asked asked = { .args = RUN_ARGS_INIT };
    if (ask(o, asks, in, &asked, &err)) return run_answer_fail(ret_answer, &err);
    struct once_call c = { .once = o, .run_answer = ret_answer };
    pthread_cond_init(&c.cond, NULL);
    drive_enter(o);
    int r = run_call_begin(o, &c, &asked, &err);
    if (!r) drive_until(o, &c);
    drive_leave(o);
    pthread_cond_destroy(&c.cond);
    return r ? run_answer_fail(ret_answer, &err) : c.result;
}

static int run_start(struct once *o, asks_fn *asks, const void *in, once_run_done_fn *done,
                     void *ctx, struct once_call **ret_call, struct once_error *reterr)
{
    struct err err = { 0 };
    struct asked asked = { .args = RUN_ARGS_INIT };
    if (ask(o, asks, in, &asked, &err)) return api_fail(reterr, &err);
    struct once_call *c = api_call_new(o, ctx, &err);
    if (!c) return api_fail(reterr, &err);
    c->run_done = done;
    drive_enter(o);
    int r = run_call_begin(o, c, &asked, &err);
    drive_leave(o);
    if (!r && ret_call) *ret_call = c;
    if (!r) return 0;
    free(c);
    return api_fail(reterr, &err);
}

/* ---- the verbs: each blocking, each asynchronous ---- */

#define RUN_VERB(name, type, asks)                                                             \
    int once_##name(struct once *o, const struct type *in, struct once_run_answer *ret_answer) \
    {                                                                                          \
        return run_block(o, asks, in, ret_answer);                                             \
    }                                                                                          \
    int once_##name##_start(struct once *o, const struct type *in, once_run_done_fn *done,     \
                            void *ctx, struct once_call **ret_call, struct once_error *reterr) \
    {                                                                                          \
        return run_start(o, asks, in, done, ctx, ret_call, reterr);                            \
    }

RUN_VERB(trigger, once_trigger, trigger_asks)
RUN_VERB(run_get, once_run_args, get_asks)
RUN_VERB(run_list, once_run_query, list_asks)
RUN_VERB(run_add_tags, once_run_args, add_tags_asks)
RUN_VERB(run_set_metadata, once_run_args, set_metadata_asks)
RUN_VERB(run_operate, once_run_args, operate_asks)
RUN_VERB(run_reschedule, once_run_args, reschedule_asks)
RUN_VERB(run_cancel, once_run_args, cancel_asks)
RUN_VERB(run_replay, once_run_args, replay_asks)
RUN_VERB(key_reset, once_run_args, reset_asks)
RUN_VERB(run_lease, once_run_lease, lease_asks)
RUN_VERB(run_complete, once_run_args, complete_asks)
RUN_VERB(run_fail, once_run_args, fail_asks)
RUN_VERB(run_heartbeat, once_run_args, heartbeat_asks)
RUN_VERB(run_return, once_run_args, return_asks)
