/* resp_mutations.c - ONCE.MUTATION.*: the replay cache of mutations, from a connection to the engine and
 * back. They are told in turn, as claims are, and follow the same rules (D2, D5). */
#include "base/text.h"
#include "daemon/resp_session.h"

/* ---- arguments ---- */

#define AT(field) offsetof(struct resp_mutation, field)

#define COMMON_OPTIONS                                                                         \
    { "METHOD", resp_take_bytes, AT(args.mutation.method) },                                   \
        { "FP", resp_take_bytes, AT(args.mutation.fingerprint) },                              \
        { "ENV", resp_take_bytes, AT(args.env) },                                              \
    {                                                                                          \
        "META", resp_take_flag, AT(meta)                                                       \
    }

static const struct resp_option begin_options[] = {
    COMMON_OPTIONS,
    { "EPOCH", resp_take_bytes, AT(args.epoch) },
    { "LEASE", resp_take_ms, AT(args.lease_ms) },
    { "WAIT", resp_take_ms, AT(args.wait_ms) },
    { "TOKEN", resp_take_token, AT(args.token) },
    { 0 },
};

static const struct resp_option complete_options[] = {
    COMMON_OPTIONS,
    { "EPOCH", resp_take_bytes, AT(args.epoch) },
    { "RETAIN", resp_take_ms, AT(args.retain_ms) },
    { "OMIT", resp_take_flag, AT(omit) },
    { 0 },
};

static const struct resp_option abort_options[] = { COMMON_OPTIONS, { 0 } };

static void start(const struct resp_command *in, enum mutation_step step,
                  struct resp_mutation *ret)
{
    static const struct mutation_args asked = MUTATION_ARGS_INIT;
    *ret = (struct resp_mutation){ .args = asked };
    ret->args.step = step;
    ret->args.env = bytes_str("default");
    ret->args.mutation.user = in->args[1];
    ret->args.mutation.request = in->args[2];
}

/* Empty is what a BEGIN gave that coord had no part in. */
static int take_begun(struct bytes text, struct token *ret, struct err *reterr)
{
    return text.len ? resp_take_token(NULL, text, ret, reterr) : 0;
}

/* An env that is none would be taken for all of them, by who asks what a token is good for. */
static int check_env(const struct resp_mutation *m, struct err *reterr)
{
    return run_name_check(m->args.env, ENV_BYTES_MAX, "env", reterr);
}

int resp_parse_mutation_begin(const struct resp_command *in, struct resp_mutation *ret,
                              struct err *reterr)
{
    start(in, MUTATION_BEGIN, ret);
    int r = resp_take_options(in, 3, begin_options, ret, reterr);
    return r ? r : check_env(ret, reterr);
}

int resp_parse_mutation_complete(const struct resp_command *in, struct resp_mutation *ret,
                                 struct err *reterr)
{
    start(in, MUTATION_COMPLETE, ret);
    int r = take_begun(in->args[3], &ret->args.token, reterr);
    if (!r) r = resp_take_options(in, 5, complete_options, ret, reterr);
    ret->args.has_response = !ret->omit;
    if (!ret->omit) ret->args.response = in->args[4];
    return r ? r : check_env(ret, reterr);
}

int resp_parse_mutation_abort(const struct resp_command *in, struct resp_mutation *ret,
                              struct err *reterr)
{
    start(in, MUTATION_ABORT, ret);
    int r = take_begun(in->args[3], &ret->args.token, reterr);
    if (!r) r = resp_take_options(in, 4, abort_options, ret, reterr);
    return r ? r : check_env(ret, reterr);
}

/* ---- answers ---- */

static void write_token(struct resp_writer *w, const struct mutation_answer *a)
{
    char token[2 * sizeof(struct token) + 1];
    hex_encode(bytes_of(a->token.bytes, sizeof a->token.bytes), token);
    resp_bulk(w, bytes_str(token_is_set(&a->token) ? token : ""));
}

static void write_meta(struct resp_writer *w, struct mutation_call *call)
{
    const struct mutation_answer *a = mutation_call_answer(call);
    resp_map(w, 7);
    resp_text(w, "outcome");
    resp_text(w, outcome_name(a->outcome));
    resp_text(w, "token");
    if (a->outcome == OUTCOME_CLAIMED)
        write_token(w, a);
    else
        resp_null(w);
    resp_text(w, "lease_left_ms");
    resp_integer(w, a->lease_left_ms);
    resp_text(w, "degraded");
    resp_boolean(w, a->degraded);
    resp_text(w, "waited_ms");
    resp_integer(w, mutation_call_waited_ms(call));
    resp_text(w, "epoch");
    resp_bulk(w, a->kept.epoch);
    resp_text(w, "response");
    if (a->kept.has_response)
        resp_bulk(w, a->kept.response);
    else
        resp_null(w);
}

static void write_outcome(struct resp_writer *w, const struct mutation_answer *a)
{
    if (a->outcome == OUTCOME_OK) {
        resp_simple(w, "OK");
        return;
    }
    if (a->outcome == OUTCOME_MISMATCH) {
        resp_say_error(w, "MISMATCH", "same request, other method or fingerprint");
        return;
    }
    bool claimed = a->outcome == OUTCOME_CLAIMED, busy = a->outcome == OUTCOME_IN_PROGRESS;
    resp_array(w, (size_t)(1 + 2 * claimed + busy + a->kept.has_response));
    resp_text(w, outcome_name(a->outcome));
    if (claimed) write_token(w, a);
    if (claimed || busy) resp_integer(w, a->lease_left_ms);
    if (a->kept.has_response) resp_bulk(w, a->kept.response);
}

static void write_answer(struct resp_writer *w, struct mutation_call *call, bool meta)
{
    if (mutation_call_error(call)->code)
        resp_write_error(w, mutation_call_error(call));
    else if (meta)
        write_meta(w, call);
    else
        write_outcome(w, mutation_call_answer(call));
}

static void mutation_done(struct mutation_call *call, void *ctx)
{
    struct ask *a = ctx;
    a->mutation = NULL;
    if (!a->session) {
        mutation_call_unheard(call);
        ask_free(a);
        return;
    }
    struct ask_slot slot = ask_answer(a);
    write_answer(&slot.writer, call, a->meta);
    ask_answered(a, &slot);
}

/* ---- questions ---- */

int resp_mutate(struct resp_session *s, struct resp_mutation *in, struct err *reterr)
{
    struct ask *a = ask_new(s);
    if (!a) return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    in->args.done = mutation_done;
    in->args.ctx = a;
    if (s->conn->peer_ended) in->args.wait_ms = 0; /* D2 */
    a->meta = in->meta;
    a->grants = in->args.step == MUTATION_BEGIN;
    a->may_wait = in->args.wait_ms > 0;
    int r = engine_mutation(s->door->engine, &in->args, &a->mutation, reterr);
    if (r)
        ask_free(a);
    else
        ask_expect(a);
    return r;
}
