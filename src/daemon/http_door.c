/* http_door.c - bytes to requests, calls to answers; see http_door.h.
 *
 * A request is acted upon when all of it has come; until then it stays in the connection's input,
 * where its body is put together right behind its head, whatever pieces it came in. What the head
 * said is not kept meanwhile: it is read again when the body is complete. */
#include "base/check.h"
#include "base/text.h"
#include "daemon/http_session.h"
#include "proto/chars.h"

#include <stdio.h>
#include <stdlib.h>

enum { SPARES_MAX = 4096 };

static struct http_session *session_of(struct conn *c)
{
    return (struct http_session *)(void *)c->session;
}

/* ---- the stock of exchanges ---- */

static void out_of_time(struct timer *t)
{
    struct http_exchange *x = container_of(t, struct http_exchange, timer);
    x->late = true;
    call_cancel(x->call);
}

/* What a log can show and a line can hold. */
static bool is_sane_id(struct bytes id)
{
    return id.len > 0 && id.len <= HTTP_ID_BYTES_MAX && chars_span(id, CHAR_TOKEN) == id.len;
}

static void take_id(struct http_exchange *x, struct bytes id)
{
    struct http_door *d = x->door;
    if (is_sane_id(id)) {
        memcpy(x->id, id.data, id.len);
        x->id[id.len] = '\0';
        return;
    }
    uint64_t number = ++d->next_id;
    uint8_t n[8];
    for (size_t i = 0; i < sizeof n; i++) n[i] = (uint8_t)(number >> (56 - 8 * i));
    memcpy(x->id, d->id_prefix, sizeof d->id_prefix - 1);
    hex_encode(bytes_of(n, sizeof n), x->id + sizeof d->id_prefix - 1);
}

static void take_trace(struct http_exchange *x, struct bytes text)
{
    struct http_traceparent parent;
    if (text.data && http_parse_traceparent(text, &parent))
        http_write_traceparent(&parent, x->traceparent);
}

static struct http_exchange *exchange_new(struct http_session *s)
{
    struct http_door *d = s->door;
    struct link *at = list_pop(&d->spares);
    struct http_exchange *x =
        at ? container_of(at, struct http_exchange, link) : malloc(sizeof *x);
    if (!x) return NULL;
    if (at) d->spare_count--;
    *x = (struct http_exchange){
        .session = s, .door = d, .level = LOG_DEBUG, .since_ms = d->loop->now_ms
    };
    link_init(&x->link);
    timer_init(&x->timer, out_of_time);
    return x;
}

static void exchange_free(struct http_exchange *x)
{
    struct http_door *d = x->door;
    timer_stop(d->loop, &x->timer);
    free(x->poll);
    if (d->spare_count == SPARES_MAX) {
        free(x);
        return;
    }
    list_append(&d->spares, &x->link);
    d->spare_count++;
}

void http_exchange_end(struct http_exchange *x)
{
    struct http_session *s = x->session;
    if (s->exchange == x) {
        s->exchange = NULL;
        conn_paid(s->conn);
    }
    exchange_free(x);
}

void http_exchange_drop(struct http_exchange *x)
{
    CHECK(!x->session);
    exchange_free(x);
}

/* ---- asking the engine ---- */

/* What is BOUND to a connection of another door may be published through this one. */
static void note_settled(struct bounds *bounds, struct call *call)
{
    if (call_error(call)->code) return;
    enum verb verb = call_op(call)->verb;
    if (verb == VERB_PUBLISH || verb == VERB_RELEASE) bounds_settled(bounds, call_token(call));
}

static void call_over(struct call *call, void *ctx)
{
    struct http_exchange *x = ctx;
    x->call = NULL;
    note_settled(x->door->bounds, call);
    if (x->session) {
        x->route->done(x, call);
        return;
    }
    if (!x->callers_token) bounds_unheard(x->door->bounds, call);
    exchange_free(x);
}

int http_ask_again(struct http_exchange *x, struct call_args *args, struct err *reterr)
{
    static const struct token none;
    args->done = call_over;
    args->ctx = x;
    if (x->session->conn->peer_ended) args->wait_ms = 0; /* H2 */
    x->may_wait = args->wait_ms > 0;
    x->callers_token = args->verb == VERB_CLAIM && !token_eq(&args->in.token, &none);
    return engine_call(x->door->engine, args, &x->call, reterr);
}

void http_asked(struct http_exchange *x)
{
    x->session->exchange = x;
    conn_owe(x->session->conn);
    if (!x->keep_alive)
        conn_end(x->session->conn, CLOSE_REFUSED); /* what follows is not read */
}

int http_ask(struct http_exchange *x, struct call_args *args, struct err *reterr)
{
    int r = http_ask_again(x, args, reterr);
    if (!r) http_asked(x);
    return r;
}

static void run_over(struct run_call *run, void *ctx)
{
    struct http_exchange *x = ctx;
    x->run = NULL;
    if (x->session) {
        x->route->run_done(x, run);
        return;
    }
    if (x->leases) bounds_return_runs(x->door->bounds, run, 0);
    exchange_free(x);
}

/* A trigger waits for as long as anybody would, and then it is told; only who wants more is asked to
 * stay for it. */
int http_ask_run(struct http_exchange *x, struct run_args *args, struct err *reterr)
{
    args->done = run_over;
    args->ctx = x;
    if (x->session->conn->peer_ended) args->wait_ms = 0; /* H2 */
    x->leases = args->question == ASK_LEASE;
    x->may_wait = args->wait_ms > (x->leases ? 0 : WAIT_MS_DEFAULT);
    int r = engine_run(x->door->engine, args, &x->run, reterr);
    if (!r) http_asked(x);
    return r;
}

static void mutation_over(struct mutation_call *call, void *ctx)
{
    struct http_exchange *x = ctx;
    x->mutation = NULL;
    if (x->session) {
        x->route->mutation_done(x, call);
        return;
    }
    mutation_call_unheard(call);
    exchange_free(x);
}

int http_ask_mutation(struct http_exchange *x, struct mutation_args *args, struct err *reterr)
{
    args->done = mutation_over;
    args->ctx = x;
    if (x->session->conn->peer_ended) args->wait_ms = 0; /* H2 */
    x->begins = args->step == MUTATION_BEGIN;
    x->may_wait = args->wait_ms > 0;
    int r = engine_mutation(x->door->engine, args, &x->mutation, reterr);
    if (!r) http_asked(x);
    return r;
}

void http_ask_at_most(struct http_exchange *x, int64_t ms)
{
    timer_set(x->door->loop, &x->timer, x->door->loop->now_ms + ms);
}

/* ---- reading ---- */

static struct http_exchange *exchange_of(struct http_session *s,
                                         const struct http_request *request)
{
    struct http_exchange *x = exchange_new(s);
    if (!x) {
        conn_close(s->conn, CLOSE_LIMIT);
        return NULL;
    }
    x->minor = request->minor;
    x->keep_alive = request->keep_alive;
    x->head = request->method == HTTP_HEAD;
    take_id(x, http_known_field(request, HTTP_REQUEST_ID));
    take_trace(x, http_known_field(request, HTTP_TRACEPARENT));
    return x;
}

static void count(const struct http_session *s)
{
    s->conn->all->stats[DOOR_HTTP].requests++;
}

static const char *code_of(int status)
{
    switch (status) {
    case 411:
        return "length_required";
    case 413:
    case 414:
    case 431:
        return "limit";
    case 417:
        return "expectation";
    case 501:
        return "unsupported";
    case 505:
        return "http_version";
    default:
        return "invalid";
    }
}

/* What can be read in two ways, or not at all, is the last that is read. */
static void refuse(struct http_session *s, enum http_fault fault)
{
    struct http_exchange *x = exchange_of(s, &(struct http_request){ .minor = 1 });
    int status = http_fault_status(fault);
    struct http_problem p = { .status = status,
                              .code = code_of(status),
                              .detail = http_fault_text(fault) };
    if (!x) return;
    count(s);
    http_answer_problem(x, &p);
}

static enum http_progress read_head(struct http_session *s, struct bytes in,
                                    struct http_request *ret)
{
    *ret = (struct http_request){ .fields = s->door->fields };
    enum http_progress p = http_read_head(&s->reader, in, ret);
    if (p != HTTP_READY) return p;
    s->head_bytes = s->read_bytes = ret->used;
    s->body_bytes = 0;
    return p;
}

/* Pieces are moved together: a chunk has at least as much in front of it as is taken away. */
static enum http_progress read_body(struct http_session *s, uint8_t *data, size_t len)
{
    enum http_progress p;
    struct bytes piece;
    size_t used;
    do {
        struct bytes rest = bytes_of(data + s->read_bytes, len - s->read_bytes);
        p = http_read_body(&s->reader, rest, &piece, &used);
        s->read_bytes += used;
        if (p != HTTP_DATA) return p;
        uint8_t *to = data + s->head_bytes + s->body_bytes;
        if (to != piece.data) memmove(to, piece.data, piece.len);
        s->body_bytes += piece.len;
    } while (true);
}

static void read_head_again(struct http_session *s, struct bytes head, struct http_request *ret)
{
    struct http_reader again;
    http_reader_init(&again, &s->door->limits);
    *ret = (struct http_request){ .fields = s->door->fields };
    CHECK(http_read_head(&again, head, ret) == HTTP_READY);
}

/* The body is still to come: it is not waited for if the request will be refused whatever it says.
 * Who asked gets to know that it is welcome. */
static void look_ahead(struct http_session *s, struct http_input *in)
{
    struct http_exchange *x = exchange_of(s, &in->request);
    if (!x) return;
    x->keep_alive = false; /* for an answer now: what follows may be the body, or not */
    if (!http_foresee(x, in)) {
        count(s);
        return;
    }
    exchange_free(x);
    bool nothing_yet = s->read_bytes == s->head_bytes;
    if (in->request.expect_continue && nothing_yet) http_continue(conn_out(s->conn));
}

static enum http_progress read_request(struct http_session *s, uint8_t *data, size_t len,
                                       struct http_input *ret)
{
    bool known = s->head_bytes > 0;
    enum http_progress p =
        known ? HTTP_READY : read_head(s, bytes_of(data, len), &ret->request);
    if (p == HTTP_READY) p = read_body(s, data, len);
    bool body_missing = p == HTTP_MORE && !known && s->head_bytes > 0;
    if (body_missing && ret->request.method != HTTP_OPTIONS) look_ahead(s, ret);
    if (p == HTTP_READY && known)
        read_head_again(s, bytes_of(data, s->head_bytes), &ret->request);
    return p;
}

/* Chunks of a few bytes each: more framing than content. */
static bool is_wasteful(const struct http_session *s, size_t len)
{
    const struct http_limits *l = &s->door->limits;
    return len > l->head_bytes_max + (size_t)l->body_bytes_max;
}

static void act(struct http_session *s, struct http_input *in)
{
    struct http_exchange *x = exchange_of(s, &in->request);
    if (!x) return;
    count(s);
    http_serve(x, in);
}

/* How many bytes are done with; 0: it is not complete. */
static size_t take_request(struct http_session *s, uint8_t *data, size_t len)
{
    struct http_input in;
    enum http_progress p = read_request(s, data, len, &in);
    if (p == HTTP_MORE && is_wasteful(s, len)) {
        refuse(s, HTTP_FAULT_BODY_LONG);
    } else if (p == HTTP_BAD) {
        refuse(s, s->reader.fault);
    } else if (p == HTTP_READY) {
        size_t used = s->read_bytes;
        in.body = data + s->head_bytes;
        in.body_bytes = s->body_bytes;
        s->head_bytes = s->read_bytes = s->body_bytes = 0;
        act(s, &in);
        return used;
    }
    return 0;
}

static size_t on_bytes(struct conn *c, uint8_t *data, size_t len)
{
    size_t used = 0;
    while (used < len && !conn_full(c)) {
        size_t n = take_request(session_of(c), data + used, len - used);
        if (n == 0) break;
        used += n;
    }
    return used;
}

/* ---- life ---- */

static void on_opened(struct conn *c)
{
    struct http_session *s = session_of(c);
    struct http_door *d = c->ctx;
    *s = (struct http_session){ .conn = c, .door = d };
    http_reader_init(&s->reader, &d->limits);
}

static void on_room(struct conn *c)
{
    (void)c; /* no answer is kept back: there is one at a time */
}

static void cancel(struct http_exchange *x)
{
    if (x->call) call_cancel(x->call);
    if (x->run) run_call_cancel(x->run);
    if (x->mutation) mutation_call_cancel(x->mutation);
    if (x->batch) http_batch_cancel(x->batch);
}

static void on_ended(struct conn *c)
{
    struct http_exchange *x = session_of(c)->exchange;
    if (x && x->may_wait) cancel(x);
}

static void on_cancel(struct conn *c)
{
    struct http_exchange *x = session_of(c)->exchange;
    if (!x) return;
    enum verb verb = x->route->verb;
    if (verb == VERB_CLAIM || verb == VERB_RUN_PUT || x->begins || x->may_wait) cancel(x);
}

/* What is to be changed is changed, although nobody will hear of it. */
static void on_closed(struct conn *c)
{
    struct http_session *s = session_of(c);
    on_cancel(c);
    if (s->exchange) s->exchange->session = NULL;
    s->exchange = NULL;
}

void http_door_init(struct http_door *d, int64_t value_bytes_max, struct rng *rng)
{
    list_init(&d->spares);
    d->date_at_ms = d->date_s = INT64_MIN;
    d->value_bytes_max = value_bytes_max;
    d->limits = http_limits_default;
    d->limits.line_bytes_max = HTTP_LINE_BYTES_MAX;
    d->limits.head_bytes_max = HTTP_HEAD_BYTES_MAX;
    d->limits.fields_max = HTTP_FIELDS_MAX;
    d->limits.body_bytes_max = 2 * value_bytes_max + HTTP_ESCAPED_BYTES_MAX;
    buf_init(&d->content, 8 * (size_t)value_bytes_max + 4 * 1024 * 1024);
    snprintf(d->id_prefix, sizeof d->id_prefix, "%08x", (unsigned)(rng_u64(rng) >> 32));
}

void http_door_fini(struct http_door *d)
{
    for (struct link *at; (at = list_pop(&d->spares));)
        free(container_of(at, struct http_exchange, link));
    buf_fini(&d->content);
}

const struct door http_door = {
    .id = DOOR_HTTP,
    .name = "http",
    .alpn = "http/1.1",
    .session_bytes = sizeof(struct http_session),
    .owed_max = 1,
    .full_text = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
                 "Content-Length: 0\r\nConnection: close\r\n\r\n",
    .on_opened = on_opened,
    .on_bytes = on_bytes,
    .on_room = on_room,
    .on_ended = on_ended,
    .on_cancel = on_cancel,
    .on_closed = on_closed,
};
