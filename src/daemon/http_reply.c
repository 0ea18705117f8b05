/* http_reply.c - answers and problems; see http_session.h. */
#include "daemon/http_session.h"

#include <stdio.h>

enum { KEPT_BYTES_MAX = 64 * 1024 }; /* of memory for content that is kept for the next */

const char http_json_type[] = "application/json";
const char http_problem_type[] = "application/problem+json";
const char http_raw_type[] = "application/octet-stream";

/* Looked at once per turn of the loop, made once per second. */
static struct bytes date_now(struct http_door *d)
{
    if (d->date_at_ms != d->loop->now_ms) {
        int64_t unix_ms = clock_now_ms(&d->wall);
        if (d->date_s != unix_ms / 1000) http_write_date(unix_ms, d->date);
        d->date_s = unix_ms / 1000;
        d->date_at_ms = d->loop->now_ms;
    }
    return bytes_of(d->date, HTTP_DATE_BYTES);
}

void http_open(struct http_exchange *x, struct http_writer *w, int status)
{
    struct conn *c = x->session->conn;
    x->door->answered[status / 100]++;
    x->keep_alive = x->keep_alive && !c->refused;
    x->status = status;
    struct http_answer answer = { .status = status,
                                  .minor = x->minor,
                                  .keep_alive = x->keep_alive,
                                  .head = x->head,
                                  .date = date_now(x->door) };
    http_start(w, conn_out(c), &answer);
    http_put_text(w, "X-Request-Id", x->id);
    if (*x->traceparent) http_put_text(w, "traceparent", x->traceparent);
    http_put_text(w, "Cache-Control", "no-store"); /* what is absent now may be there soon */
}

/* The path as the table has it: whoever reads the log learns no key. */
static void note(const struct http_exchange *x)
{
    struct log *log = x->door->log;
    if (!log || x->level > log->level) return;
    const struct http_route *route = x->route;
    struct log_field fields[] = { LOG_TEXT("door", "http"),
                                  LOG_TEXT("id", x->id),
                                  LOG_TEXT("trace", *x->traceparent ? x->traceparent : NULL),
                                  LOG_TEXT("method",
                                           route ? http_method_name(route->method) : NULL),
                                  LOG_TEXT("route", route ? route->path : NULL),
                                  LOG_NUMBER("status", x->status),
                                  LOG_NUMBER("ms", x->door->loop->now_ms - x->since_ms),
                                  { 0 } };
    log_often(log, x->level, "request", fields);
}

static void finish(struct http_exchange *x, struct http_writer *w, struct bytes content)
{
    note(x);
    http_finish(w, content);
    if (!x->keep_alive) conn_end(x->session->conn, CLOSE_REFUSED);
    http_exchange_end(x);
}

void http_close(struct http_exchange *x, struct http_writer *w, const char *type,
                struct bytes content)
{
    http_put_text(w, "Content-Type", type);
    finish(x, w, content);
}

void http_close_empty(struct http_exchange *x, struct http_writer *w)
{
    finish(x, w, (struct bytes){ 0 });
}

/* ---- JSON ---- */

void http_start_json(struct http_exchange *x, struct json_writer *j)
{
    struct buf *content = &x->door->content;
    buf_clear(content);
    json_start(j, content);
    json_put_object(j);
}

/* An answer that does not fit into memory cannot be half sent: the connection is closed for it. */
void http_close_json(struct http_exchange *x, struct http_writer *w, struct json_writer *j,
                     const char *type)
{
    struct buf *content = j->out;
    json_end_object(j);
    buf_byte(content, '\n');
    if (buf_failed(content)) w->out->failed = buf_failed(content);
    http_close(x, w, type, buf_bytes(content));
    if (content->cap > KEPT_BYTES_MAX || buf_failed(content)) {
        size_t bytes_max = content->bytes_max;
        buf_fini(content);
        buf_init(content, bytes_max);
    }
}

/* ---- problems ---- */

void http_put_problem(struct json_writer *j, const struct http_problem *p)
{
    char type[64];
    snprintf(type, sizeof type, "urn:once:problem:%.40s", p->code);
    json_put_key(j, "type");
    json_put_cstring(j, type);
    json_put_key(j, "title");
    json_put_cstring(j, http_reason(p->status));
    json_put_key(j, "status");
    json_put_integer(j, p->status);
    json_put_key(j, "detail");
    json_put_cstring(j, p->detail);
    json_put_key(j, "code");
    json_put_cstring(j, p->code);
    json_put_key(j, "retryable");
    json_put_boolean(j, p->retryable);
}

static void put_allow(struct http_exchange *x, struct http_writer *w)
{
    char allow[HTTP_ALLOW_BYTES];
    http_allow(x->methods, allow);
    http_put_text(w, "Allow", allow);
}

void http_answer_problem(struct http_exchange *x, const struct http_problem *p)
{
    struct http_writer w;
    struct json_writer j;
    if (p->status >= 500) x->level = LOG_WARN;
    http_open(x, &w, p->status);
    if (p->status == 401) http_put_text(&w, "WWW-Authenticate", "Bearer realm=\"once\"");
    if (p->status == 405) put_allow(x, &w);
    if (p->status == 503 || p->status == 504) http_put_text(&w, "Retry-After", "1");
    http_start_json(x, &j);
    http_put_problem(&j, p);
    http_close_json(x, &w, &j, http_problem_type);
}

void http_answer_options(struct http_exchange *x)
{
    struct http_writer w;
    http_open(x, &w, 204);
    put_allow(x, &w);
    http_close_empty(x, &w);
}

static int status_of(int code)
{
    switch (code) {
    case ERR_INVALID:
        return 400;
    case ERR_LIMIT:
        return 413;
    case ERR_NOMEM:
    case ERR_UNAVAILABLE:
    case ERR_CANCELED:
        return 503;
    case ERR_AMBIGUOUS:
        return 504;
    case ERR_UNSUPPORTED:
        return 501;
    default:
        return 500;
    }
}

struct http_problem http_problem_of(const struct err *err)
{
    bool canceled = err->code == ERR_CANCELED;
    return (struct http_problem){ .status = status_of(err->code),
                                  .code = canceled ? "unavailable" : err_name(err->code),
                                  .detail = canceled ? "nothing was done: the daemon stops, or "
                                                       "nobody listens any more"
                                                     : err->text,
                                  .retryable = err_retryable(err->code) };
}

void http_answer_error(struct http_exchange *x, const struct err *err)
{
    struct http_problem p = http_problem_of(err);
    http_answer_problem(x, &p);
}
