/* http_claims.c - see http_claims.h. An outcome that is an answer is JSON; one that is not what was
 * asked for is a problem, with the same members besides those of a problem. */
#include "daemon/http_claims.h"

#include "base/text.h"
#include "daemon/cursor.h"
#include "daemon/http_args.h"
#include "proto/chars.h"

#include <stdio.h>

/* ---- asking ---- */

static int ask(struct http_exchange *x, struct http_args *args, struct err *reterr)
{
    struct call_args *call = &args->call;
    x->meta = args->meta;
    if (args->value_kept && !(call->in.value = blob_new(args->value)))
        return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    int r = http_ask(x, call, reterr);
    blob_unref(call->in.value);
    return r;
}

static void handle(struct http_exchange *x, struct http_input *in, http_parse *parse)
{
    struct http_args args;
    struct err err;
    int r = parse(x->door, in, &args, &err);
    if (!r) r = args.polls ? http_poll(x, in, &args, &err) : ask(x, &args, &err);
    if (r) http_answer_error(x, &err);
}

void http_claim(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_claim);
}

void http_publish(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_publish);
}

void http_release(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_release);
}

void http_renew(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_renew);
}

void http_peek(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_peek);
}

void http_forget(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_forget);
}

void http_list(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_list);
}

/* ---- answering ---- */

static void put_integer(struct json_writer *j, const char *name, int64_t n)
{
    json_put_key(j, name);
    json_put_integer(j, n);
}

static void put_token(struct json_writer *j, const struct token *token)
{
    char text[2 * sizeof token->bytes + 1];
    hex_encode(bytes_of(token->bytes, sizeof token->bytes), text);
    json_put_key(j, "token");
    json_put_string(j, bytes_of(text, sizeof text - 1));
}

static bool shows_lease(struct call *call)
{
    enum outcome outcome = call_answer(call)->outcome;
    if (outcome == OUTCOME_IN_PROGRESS) return true;
    return outcome == OUTCOME_OK && call_op(call)->verb == VERB_RENEW;
}

static void put_boolean(struct json_writer *j, const char *name, bool yes)
{
    json_put_key(j, name);
    json_put_boolean(j, yes);
}

/* A version has 64 bits, more than a number has in most readers of JSON: it is a string. */
static void put_meta(struct json_writer *j, struct call *call)
{
    const struct answer *out = call_answer(call);
    char version[24];
    snprintf(version, sizeof version, "%llu", (unsigned long long)out->version);
    json_put_key(j, "version");
    json_put_cstring(j, version);
    put_integer(j, "retain_left_ms", out->retain_left_ms);
    put_boolean(j, "mine", out->mine);
    put_boolean(j, "taken_over", out->taken_over);
    put_boolean(j, "changed", call_op(call)->changed);
}

/* What is known, whatever the outcome. */
static void put_answer(struct json_writer *j, struct http_exchange *x, struct call *call)
{
    const struct answer *out = call_answer(call);
    bool claimed = out->outcome == OUTCOME_CLAIMED;
    json_put_key(j, "outcome");
    json_put_cstring(j, outcome_name(out->outcome));
    if (claimed) put_token(j, call_token(call));
    if (claimed || x->meta) put_integer(j, "fence", (int64_t)out->fence);
    if (claimed) put_integer(j, "lease_ms", call_op(call)->in.lease_ms);
    if (shows_lease(call) || x->meta) put_integer(j, "lease_left_ms", out->lease_left_ms);
    if (x->meta) put_meta(j, call);
    if (out->value && (x->meta || out->outcome != OUTCOME_OK)) {
        json_put_key(j, "value");
        json_put_value(j, blob_bytes(out->value));
    }
    put_boolean(j, "degraded", out->degraded);
    put_integer(j, "waited_ms", x->polled_ms + call_waited_ms(call));
}

static void put_segment(struct buf *out, struct bytes text)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.data[i];
        bool plain = char_is(c, CHAR_PATH) && !memchr("/?%&+;", c, 6);
        if (!plain) buf_byte(out, '%');
        if (!plain) buf_byte(out, (uint8_t)digits[c >> 4]);
        buf_byte(out, plain ? c : (uint8_t)digits[c & 15]);
    }
}

static void put_location(struct http_writer *w, struct buf *scratch, const struct key *key)
{
    buf_clear(scratch);
    buf_add(scratch, bytes_str("/v1/claims/"));
    put_segment(scratch, key->scope);
    buf_byte(scratch, '/');
    put_segment(scratch, key->name);
    http_put(w, "Location", buf_bytes(scratch));
}

/* The value as it is; what else is known stands in fields. */
static void answer_raw(struct http_exchange *x, struct http_writer *w, struct call *call)
{
    const struct answer *out = call_answer(call);
    http_put_text(w, "Once-Degraded", out->degraded ? "true" : "false");
    http_put_number(w, "Once-Waited-Ms", x->polled_ms + call_waited_ms(call));
    http_close(x, w, http_raw_type, blob_bytes(out->value));
}

static void put_outcome_problem(struct json_writer *j, const struct outcome_info *info)
{
    struct http_problem p = { .status = info->http_status,
                              .code = info->name,
                              .detail = info->text,
                              .retryable = info->retryable };
    http_put_problem(j, &p);
}

static void answer(struct http_exchange *x, struct call *call)
{
    const struct outcome_info *info = outcome_info(call_answer(call)->outcome);
    bool cached = info->outcome == OUTCOME_CACHED, problem = info->http_status >= 400;
    struct http_writer w;
    struct json_writer j;
    http_open(x, &w, info->http_status);
    if (info->outcome == OUTCOME_CLAIMED)
        put_location(&w, &x->door->content, &call_op(call)->key);
    if (cached) http_put_text(&w, "Once-Replayed", "true");
    if (problem && info->retryable) http_put_text(&w, "Retry-After", "1");
    if (cached && x->raw) {
        answer_raw(x, &w, call);
        return;
    }
    http_start_json(x, &j);
    if (problem) put_outcome_problem(&j, info);
    put_answer(&j, x, call);
    http_close_json(x, &w, &j, problem ? http_problem_type : http_json_type);
}

void http_claim_done(struct http_exchange *x, struct call *call)
{
    if (x->poll)
        http_poll_over(x, call);
    else if (call_error(call)->code)
        http_answer_error(x, call_error(call));
    else
        answer(x, call);
}

/* ---- lists ---- */

static void put_row(struct json_writer *j, const struct scan_row *row)
{
    bool done = row->state == RECORD_DONE;
    json_put_object(j);
    json_put_key(j, "scope");
    json_put_string(j, row->key.scope);
    json_put_key(j, "key");
    json_put_string(j, row->key.name);
    json_put_key(j, "state");
    json_put_cstring(j, done ? "done" : "pending");
    put_integer(j, "fence", (int64_t)row->fence);
    put_integer(j, "claimed_at_ms", row->claimed_at_ms);
    if (done) put_integer(j, "done_at_ms", row->done_at_ms);
    if (done)
        put_integer(j, "retain_left_ms", row->retain_left_ms);
    else
        put_integer(j, "lease_left_ms", row->lease_left_ms);
    if (done && row->value_kept) put_integer(j, "value_bytes", (int64_t)row->value_bytes);
    json_end_object(j);
}

static void answer_list(struct http_exchange *x, const struct scan *page)
{
    char cursor[CURSOR_TEXT_BYTES];
    struct http_writer w;
    struct json_writer j;
    http_open(x, &w, 200);
    http_start_json(x, &j);
    json_put_key(&j, "claims");
    json_put_array(&j);
    for (size_t i = 0; i < page->count; i++) put_row(&j, &page->rows[i]);
    json_end_array(&j);
    json_put_key(&j, "cursor");
    if (cursor_write(page, cursor))
        json_put_cstring(&j, cursor);
    else
        json_put_null(&j);
    http_close_json(x, &w, &j, http_json_type);
}

void http_list_done(struct http_exchange *x, struct call *call)
{
    if (call_error(call)->code)
        http_answer_error(x, call_error(call));
    else
        answer_list(x, &call_op(call)->scan);
}
