/* http_runs.c - see http_runs.h. What was asked for is JSON; anything else is a problem, and where a
 * run does not allow what was asked, the problem has it as `run`. A page or a lease has as many runs
 * as fit into an answer: a list goes on behind the last of them, leases are given back. */
#include "daemon/http_runs.h"

#include "base/check.h"
#include "daemon/http_runs_args.h"
#include "daemon/http_runs_query.h"
#include "daemon/run_json.h"

enum { SLACK_BYTES = 1024 }; /* of an answer, besides its runs */

/* ---- problems ---- */

static struct http_problem problem_of(enum outcome outcome, const char *reason)
{
    const struct outcome_info *info = outcome_info(outcome);
    const char *text = outcome == OUTCOME_ABSENT     ? "there is no such run in this env"
                       : outcome == OUTCOME_MISMATCH ? "same key, or id, for something else"
                                                     : info->text;
    return (struct http_problem){ .status = info->http_status,
                                  .code = info->name,
                                  .detail = reason ? reason : text,
                                  .retryable = info->retryable };
}

static void open_problem(struct http_exchange *x, struct http_writer *w, struct json_writer *j,
                         const struct http_problem *p)
{
    http_open(x, w, p->status);
    if (p->retryable) http_put_text(w, "Retry-After", "1");
    http_start_json(x, j);
    http_put_problem(j, p);
}

/* ---- asking ---- */

static void handle(struct http_exchange *x, struct http_input *in, http_run_parse *parse)
{
    struct http_run_args args;
    struct err err;
    int r = parse(x->door, in, &args, &err);
    if (!r) x->statuses = args.statuses;
    if (!r) r = http_ask_run(x, &args.ask, &err);
    if (r) http_answer_error(x, &err);
}

void http_trigger(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_trigger);
}

void http_reset(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_reset);
}

void http_runs(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_runs);
}

void http_run(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_run);
}

/* More than a run may have, whatever it has: told as the run would. */
void http_tags(struct http_exchange *x, struct http_input *in)
{
    struct http_run_args args;
    struct err err;
    int r = http_parse_tags(x->door, in, &args, &err);
    if (!r && tags_count(args.ask.change.body) > TAGS_MAX) {
        struct http_problem p = problem_of(OUTCOME_REFUSED, "a run has at most 10 tags");
        http_answer_problem(x, &p);
        return;
    }
    if (!r) r = http_ask_run(x, &args.ask, &err);
    if (r) http_answer_error(x, &err);
}

void http_metadata(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_metadata);
}

void http_cancel(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_cancel);
}

void http_reschedule(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_reschedule);
}

void http_replay(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_replay);
}

void http_lease(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_lease);
}

void http_complete(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_complete);
}

void http_fail(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_fail);
}

void http_heartbeat(struct http_exchange *x, struct http_input *in)
{
    handle(x, in, http_parse_heartbeat);
}

/* ---- triggers ---- */

void http_triggered_take(const struct run_call *call, struct http_triggered *ret)
{
    *ret = (struct http_triggered){ .err = *run_call_error(call),
                                    .waited_ms = run_call_waited_ms(call) };
    if (ret->err.code) return;
    const struct run_answer *a = run_call_answer(call);
    ret->outcome = a->outcome;
    ret->reason = a->reason;
    ret->buffered = a->buffered;
    ret->degraded = a->degraded;
    if (!http_triggered_well(ret)) return;
    CHECK(a->rows.count > 0);
    ret->id = a->rows.rows[0]->id;
    ret->status = run_status(a->rows.rows[0], a->now_ms);
}

bool http_triggered_well(const struct http_triggered *t)
{
    return !t->err.code && (t->outcome == OUTCOME_OK || t->outcome == OUTCOME_CACHED);
}

void http_triggered_put(struct json_writer *j, const struct http_triggered *t)
{
    json_put_key(j, "id");
    json_put_string(j, run_id_bytes(&t->id));
    json_put_key(j, "isCached");
    json_put_boolean(j, t->outcome == OUTCOME_CACHED);
    json_put_key(j, "status");
    json_put_cstring(j, t->status);
    json_put_key(j, "source");
    json_put_cstring(j, t->buffered ? "buffer" : "ledger");
}

struct http_problem http_triggered_problem(const struct http_triggered *t)
{
    return t->err.code ? http_problem_of(&t->err) : problem_of(t->outcome, t->reason);
}

static void put_how(struct json_writer *j, const struct http_triggered *t)
{
    json_put_key(j, "degraded");
    json_put_boolean(j, t->degraded);
    json_put_key(j, "waited_ms");
    json_put_integer(j, t->waited_ms);
}

void http_trigger_done(struct http_exchange *x, struct run_call *call)
{
    struct http_triggered t;
    struct http_writer w;
    struct json_writer j;
    http_triggered_take(call, &t);
    if (t.err.code) {
        http_answer_error(x, &t.err);
        return;
    }
    bool well = http_triggered_well(&t);
    if (well) {
        http_open(x, &w, 200);
        if (t.outcome == OUTCOME_CACHED) http_put_text(&w, "Once-Replayed", "true");
        http_start_json(x, &j);
        http_triggered_put(&j, &t);
    } else {
        struct http_problem p = http_triggered_problem(&t);
        open_problem(x, &w, &j, &p);
    }
    put_how(&j, &t);
    http_close_json(x, &w, &j, well ? http_json_type : http_problem_type);
}

/* ---- one run ---- */

static void answer_run(struct http_exchange *x, const struct run *r, int64_t now_ms)
{
    struct http_writer w;
    struct json_writer j;
    http_open(x, &w, 200);
    http_start_json(x, &j);
    run_json_members(&j, r, now_ms);
    http_close_json(x, &w, &j, http_json_type);
}

static void answer_refusal(struct http_exchange *x, const struct run_answer *a)
{
    struct http_problem p = problem_of(a->outcome, a->reason);
    struct http_writer w;
    struct json_writer j;
    open_problem(x, &w, &j, &p);
    if (a->rows.count) {
        json_put_key(&j, "run");
        run_json_put(&j, a->rows.rows[0], a->now_ms);
    }
    http_close_json(x, &w, &j, http_problem_type);
}

void http_run_answer(struct http_exchange *x, struct run_call *call)
{
    const struct run_answer *a = run_call_answer(call);
    if (run_call_error(call)->code)
        http_answer_error(x, run_call_error(call));
    else if (a->outcome == OUTCOME_OK && a->rows.count)
        answer_run(x, a->rows.rows[0], a->now_ms);
    else
        answer_refusal(x, a);
}

void http_reset_done(struct http_exchange *x, struct run_call *call)
{
    struct http_writer w;
    struct json_writer j;
    if (run_call_error(call)->code) {
        http_answer_error(x, run_call_error(call));
        return;
    }
    if (run_call_answer(call)->outcome != OUTCOME_OK) {
        struct http_problem p =
            problem_of(run_call_answer(call)->outcome, "the key leads to no run");
        http_answer_problem(x, &p);
        return;
    }
    http_open(x, &w, 200);
    http_start_json(x, &j);
    json_put_key(&j, "cleared");
    json_put_boolean(&j, true);
    http_close_json(x, &w, &j, http_json_type);
}

/* ---- many ---- */

static bool fits(const struct buf *content, const struct run *r)
{
    return content->len + run_json_bytes_max(r) + SLACK_BYTES <= content->bytes_max;
}

typedef void put_run(struct json_writer *j, const struct run *r, int64_t now_ms);

/* From the first on, those that are wanted and fit; returns the number of the first that does not. */
static size_t put_runs(struct http_exchange *x, struct json_writer *j,
                       const struct run_answer *a, put_run *put)
{
    size_t i = 0;
    json_put_key(j, "runs");
    json_put_array(j);
    for (; i < a->rows.count && fits(j->out, a->rows.rows[i]); i++)
        if (http_status_wanted(x->statuses, a->rows.rows[i], a->now_ms))
            put(j, a->rows.rows[i], a->now_ms);
    json_end_array(j);
    return i;
}

void http_runs_done(struct http_exchange *x, struct run_call *call)
{
    struct http_writer w;
    struct json_writer j;
    if (run_call_error(call)->code) {
        http_answer_error(x, run_call_error(call));
        return;
    }
    const struct run_answer *a = run_call_answer(call);
    http_open(x, &w, 200);
    http_start_json(x, &j);
    size_t put = put_runs(x, &j, a, run_json_put);
    bool more = put > 0 && (a->rows.more || put < a->rows.count);
    json_put_key(&j, "cursor");
    if (more)
        json_put_string(&j, run_id_bytes(&a->rows.rows[put - 1]->id));
    else
        json_put_null(&j);
    http_close_json(x, &w, &j, http_json_type);
}

void http_lease_done(struct http_exchange *x, struct run_call *call)
{
    struct http_writer w;
    struct json_writer j;
    if (run_call_error(call)->code) {
        http_answer_error(x, run_call_error(call));
        return;
    }
    http_open(x, &w, 200);
    http_start_json(x, &j);
    size_t put = put_runs(x, &j, run_call_answer(call), run_json_put_leased);
    bounds_return_runs(x->door->bounds, call, buf_failed(j.out) ? 0 : put);
    http_close_json(x, &w, &j, http_json_type);
}
