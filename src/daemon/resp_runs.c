/* resp_runs.c - questions about runs, from a connection to the engine and back.
 *
 * Most are told in turn, as claims are. With RAW, which our own clients say, one is answered OK at
 * once and told later, by one push, out of turn and in no order, because who leases may wait for
 * long: it is on one list of its session, `calls` while the engine has it, `pushes` while it waits
 * for room. A PULL whose asker has gone is canceled: the engine gives back what it got. */
#include "base/check.h"
#include "daemon/resp_session.h"
#include "proto/json.h"

enum { RAW_CALLS_MAX = 100000 };

/* ---- answers ---- */

static void end_push(struct ask *a)
{
    if (a->owed) conn_paid(a->session->conn);
    ask_free(a);
}

void resp_calls_room(struct resp_session *s)
{
    for (struct link *at; conn_has_room(s->conn) && (at = list_first(&s->pushes));) {
        struct ask *a = container_of(at, struct ask, link);
        struct buf *out = conn_out(s->conn);
        buf_add(out, buf_bytes(&a->reply));
        if (buf_failed(&a->reply)) out->failed = buf_failed(&a->reply);
        conn_unparked(s->conn, a->reply.len);
        end_push(a);
    }
}

static void push(struct ask *a, struct run_call *call)
{
    struct resp_session *s = a->session;
    bool now = conn_has_room(s->conn);
    struct resp_writer w = { .out = now ? conn_out(s->conn) : &a->reply, .version = 3 };
    resp_push_run_call(&w, a->raw_id, call, &a->run);
    if (now) {
        end_push(a);
        return;
    }
    link_remove(&a->link);
    list_append(&s->pushes, &a->link);
    conn_parked(s->conn, a->reply.len);
}

static void run_done(struct run_call *call, void *ctx)
{
    struct ask *a = ctx;
    struct ask_slot slot;
    a->run_call = NULL;
    if (a->raw) a->door->raw_calls--;
    if (!a->session) {
        ask_free(a);
        return;
    }
    if (a->raw) {
        push(a, call);
        return;
    }
    slot = ask_answer(a);
    resp_write_run_call(&slot.writer, call, &a->run);
    ask_answered(a, &slot);
}

/* ---- questions ---- */

static int may_be_raw(const struct resp_session *s, struct err *reterr)
{
    if (s->version < 3)
        return err_set(reterr, ERR_INVALID, "pushes need RESP3: say HELLO 3 first");
    if (s->door->raw_calls >= RAW_CALLS_MAX)
        return err_set(reterr, ERR_UNAVAILABLE, "too many questions; try again later");
    return 0;
}

static int ask_run(struct ask *a, struct resp_run *in, struct err *reterr)
{
    struct resp_door *d = a->door;
    int r = in->raw_id >= 0 ? may_be_raw(a->session, reterr) : 0;
    if (r) return r;
    in->args.done = run_done;
    in->args.ctx = a;
    if (a->session->conn->peer_ended) in->args.wait_ms = 0; /* D2 */
    a->may_wait =
        in->args.wait_ms > 0 && (in->form == FORM_PULL || in->args.question == ASK_TRIGGER);
    a->grants = in->form == FORM_PULL;
    a->run = (struct run_ask_form){ in->form, (size_t)d->value_bytes_max };
    return engine_run(d->engine, &in->args, &a->run_call, reterr);
}

/* A lease may wait for ever, so nobody owes it: it holds up neither others nor the end. */
static void expect_push(struct ask *a, int64_t raw_id)
{
    a->raw = true;
    a->raw_id = raw_id;
    a->owed = !a->grants;
    a->door->raw_calls++;
    list_append(&a->session->calls, &a->link);
    if (a->owed) conn_owe(a->session->conn);
}

/* What people say is text; it is kept as JSON, as everything about a run. */
static int say_reason(struct bytes text, struct buf *json, struct err *reterr)
{
    struct json_writer w;
    json_start(&w, json);
    json_put_string(&w, text);
    if (buf_failed(json) == ERR_LIMIT)
        return err_set(reterr, ERR_LIMIT, "the reason has too many bytes; at most %d are kept",
                       RUN_ERROR_BYTES_MAX);
    if (buf_failed(json))
        return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    return 0;
}

static int ask_with_reason(struct ask *a, struct resp_run *in, struct err *reterr)
{
    struct buf json;
    if (!in->reason.data) return ask_run(a, in, reterr);
    buf_init(&json, RUN_ERROR_BYTES_MAX);
    int r = say_reason(in->reason, &json, reterr);
    in->args.change.body = buf_bytes(&json);
    if (!r) r = ask_run(a, in, reterr); /* which copies it */
    buf_fini(&json);
    return r;
}

int resp_run(struct resp_session *s, struct resp_run *in, struct err *reterr)
{
    struct ask *a = ask_new(s);
    if (!a) return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    int r = ask_with_reason(a, in, reterr);
    if (r)
        ask_free(a);
    else if (in->raw_id >= 0)
        expect_push(a, in->raw_id);
    else
        ask_expect(a);
    return r;
}

/* ---- endings ---- */

bool resp_call_forget(struct resp_session *s, int64_t raw_id)
{
    list_each (&s->calls, at) {
        struct ask *a = container_of(at, struct ask, link);
        if (a->raw_id != raw_id) continue;
        run_call_cancel(a->run_call);
        return true;
    }
    return false;
}

/* What is to be changed is changed; what would be leased is not. */
void resp_calls_drop(struct resp_session *s)
{
    for (struct link *at; (at = list_pop(&s->pushes));) {
        struct ask *a = container_of(at, struct ask, link);
        conn_unparked(s->conn, a->reply.len);
        end_push(a);
    }
    for (struct link *at; (at = list_pop(&s->calls));) {
        struct ask *a = container_of(at, struct ask, link);
        if (a->owed) conn_paid(s->conn);
        a->session = NULL;
        if (a->grants) run_call_cancel(a->run_call);
    }
}
