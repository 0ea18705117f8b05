/* http_health.c - see http_health.h. */
#include "daemon/http_health.h"

#include "daemon/http_session.h"
#include "daemon/metrics.h"

#include <once/once.h>
#include <stdio.h>

enum { READY_MS = 2000 }; /* a plane that takes longer to say anything is not ready */

extern const char openapi_document[]; /* openapi.json */

static void put_text(struct json_writer *j, const char *name, const char *text)
{
    json_put_key(j, name);
    json_put_cstring(j, text);
}

/* That this is answered at all is the answer. */
void http_livez(struct http_exchange *x, struct http_input *in)
{
    struct http_writer w;
    struct json_writer j;
    (void)in;
    http_open(x, &w, 200);
    http_start_json(x, &j);
    put_text(&j, "status", "ok");
    http_close_json(x, &w, &j, http_json_type);
}

void http_version(struct http_exchange *x, struct http_input *in)
{
    struct http_writer w;
    struct json_writer j;
    (void)in;
    http_open(x, &w, 200);
    http_start_json(x, &j);
    put_text(&j, "version", once_version());
    put_text(&j, "api", "v1");
    http_close_json(x, &w, &j, http_json_type);
}

void http_openapi(struct http_exchange *x, struct http_input *in)
{
    struct http_writer w;
    (void)in;
    http_open(x, &w, 200);
    http_close(x, &w, http_json_type, bytes_str(openapi_document));
}

void http_metrics(struct http_exchange *x, struct http_input *in)
{
    struct http_writer w;
    struct buf text;
    (void)in;
    buf_init(&text, METRICS_BYTES_MAX);
    metrics_write(x->door->metrics, &text);
    if (buf_failed(&text)) {
        http_answer_error(x, &(struct err){ .code = ERR_NOMEM, .text = "out of memory" });
    } else {
        http_open(x, &w, 200);
        http_close(x, &w, x->route->gives, buf_bytes(&text));
    }
    buf_fini(&text);
}

/* ---- ready? ---- */

void http_readyz(struct http_exchange *x, struct http_input *in)
{
    struct call_args args = { .verb = VERB_PING, .wants_facts = true };
    struct err err;
    (void)in;
    if (http_ask(x, &args, &err))
        http_answer_error(x, &err);
    else
        http_ask_at_most(x, READY_MS);
}

static void put_fact(struct json_writer *j, const struct fact *fact, bool trusted)
{
    static const char *const levels[] = { "ok", "warn", "fail" };
    json_put_object(j);
    put_text(j, "plane", *fact->plane ? fact->plane : "store");
    put_text(j, "name", fact->name);
    put_text(j, "level", levels[fact->level]);
    if (trusted) put_text(j, "text", fact->text);
    if (trusted && *fact->advice) put_text(j, "advice", fact->advice);
    json_end_object(j);
}

static void put_facts(struct json_writer *j, const struct facts *facts, bool trusted)
{
    json_put_key(j, "checks");
    json_put_array(j);
    for (size_t i = 0; facts && i < facts->count; i++) put_fact(j, &facts->rows[i], trusted);
    json_end_array(j);
}

static void answer_not_ready(struct http_exchange *x, const struct err *err)
{
    struct http_problem p = { .status = 503,
                              .code = "not_ready",
                              .detail = "the ledger does not answer",
                              .retryable = true };
    struct facts facts = { .count = 1,
                           .rows[0] = { .level = FACT_FAIL,
                                        .plane = "ledger",
                                        .name = "reached",
                                        .advice = "claims fail until it answers" } };
    struct http_writer w;
    struct json_writer j;
    snprintf(facts.rows[0].text, sizeof facts.rows[0].text, "%.150s",
             x->late ? "no answer in two seconds" : err->text);
    http_open(x, &w, p.status);
    http_put_text(&w, "Retry-After", "1");
    http_start_json(x, &j);
    http_put_problem(&j, &p);
    put_facts(&j, &facts, x->trusted);
    http_close_json(x, &w, &j, http_problem_type);
}

/* Ready is who can decide: the ledger answers. Without coord it is slower, and says so. */
void http_readyz_done(struct http_exchange *x, struct call *call)
{
    struct http_writer w;
    struct json_writer j;
    if (call_error(call)->code) {
        answer_not_ready(x, call_error(call));
        return;
    }
    http_open(x, &w, 200);
    http_start_json(x, &j);
    put_text(&j, "status", "ready");
    json_put_key(&j, "degraded");
    json_put_boolean(&j, call_answer(call)->degraded);
    put_facts(&j, call_op(call)->facts, x->trusted);
    http_close_json(x, &w, &j, http_json_type);
}
