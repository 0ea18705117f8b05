/* http_mutations.c - see http_mutations.h. As with claims, an outcome that is an answer is JSON, and one
 * that is not what was asked for is a problem. */
#include "daemon/http_mutations.h"

#include "base/text.h"
#include "daemon/http_args.h"

/* ---- asking ---- */

static void handle(struct http_exchange *x, struct http_input *in, http_parse *parse)
{
    struct http_args args;
    struct err err;
    int r = parse(x->door, in, &args, &err);
    if (!r) r = http_ask_mutation(x, &args.mutation, &err);
    if (r) http_answer_error(x, &err);
}

void http_mutation_begin(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_mutation_begin);
}

void http_mutation_complete(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_mutation_complete);
}

void http_mutation_abort(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_mutation_abort);
}

/* ---- answering ---- */

/* A token that is empty can be given back as it is: there is nothing to complete. */
static void put_token(struct json_writer *j, const struct mutation_answer *a)
{
    char text[2 * sizeof a->token.bytes + 1];
    hex_encode(bytes_of(a->token.bytes, sizeof a->token.bytes), text);
    json_put_key(j, "token");
    json_put_cstring(j, token_is_set(&a->token) ? text : "");
}

static void put_kept(struct json_writer *j, const struct mutation_answer *a)
{
    json_put_key(j, "response");
    if (a->kept.has_response)
        json_put_value(j, a->kept.response);
    else
        json_put_null(j);
    json_put_key(j, "epoch");
    json_put_string(j, a->kept.epoch);
}

static void put_answer(struct json_writer *j, struct mutation_call *call)
{
    const struct mutation_answer *a = mutation_call_answer(call);
    bool claimed = a->outcome == OUTCOME_CLAIMED;
    json_put_key(j, "outcome");
    json_put_cstring(j, outcome_name(a->outcome));
    if (claimed) put_token(j, a);
    if (claimed || a->outcome == OUTCOME_IN_PROGRESS) {
        json_put_key(j, "lease_left_ms");
        json_put_integer(j, a->lease_left_ms);
    }
    if (a->packed) put_kept(j, a);
    json_put_key(j, "degraded");
    json_put_boolean(j, a->degraded);
    json_put_key(j, "waited_ms");
    json_put_integer(j, mutation_call_waited_ms(call));
}

static void put_problem(struct json_writer *j, const struct outcome_info *info)
{
    bool mismatch = info->outcome == OUTCOME_MISMATCH;
    struct http_problem p = { .status = info->http_status,
                              .code = info->name,
                              .detail = mismatch ? "same request, other method or fingerprint"
                                                 : info->text,
                              .retryable = info->retryable };
    http_put_problem(j, &p);
}

static void answer(struct http_exchange *x, struct mutation_call *call)
{
    const struct outcome_info *info = outcome_info(mutation_call_answer(call)->outcome);
    bool problem = info->http_status >= 400;
    struct http_writer w;
    struct json_writer j;
    http_open(x, &w, info->http_status);
    if (info->outcome == OUTCOME_CACHED) http_put_text(&w, "Once-Replayed", "true");
    if (problem && info->retryable) http_put_text(&w, "Retry-After", "1");
    http_start_json(x, &j);
    if (problem) put_problem(&j, info);
    put_answer(&j, call);
    http_close_json(x, &w, &j, problem ? http_problem_type : http_json_type);
}

void http_mutation_answer(struct http_exchange *x, struct mutation_call *call)
{
    if (mutation_call_error(call)->code)
        http_answer_error(x, mutation_call_error(call));
    else
        answer(x, call);
}
