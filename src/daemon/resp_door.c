/* resp_door.c - commands to calls, calls to answers, in order; see resp_door.h.
 *
 * An ask is one command whose answer is not on its way yet. The first of a connection writes its
 * answer where it is sent from; one behind it keeps its answer until it is the first, and so does
 * one whose peer is not listening: a long value is kept as a reference, not as bytes. Asks come
 * from a stock, so that a command costs no allocation besides its call and its op. Those about runs
 * are in resp_runs.c. */
#include "base/check.h"
#include "daemon/resp_session.h"

#include <stdlib.h>

enum { SPARE_ASKS_MAX = 4096 };

static struct resp_session *session_of(struct conn *c)
{
    return (struct resp_session *)(void *)c->session;
}

/* ---- the stock of asks ---- */

struct ask *ask_new(struct resp_session *s)
{
    struct resp_door *d = s->door;
    struct link *at = list_pop(&d->spare_asks);
    struct ask *a = at ? container_of(at, struct ask, link) : malloc(sizeof *a);
    if (!a) return NULL;
    if (at) d->spare_ask_count--;
    *a = (struct ask){ .session = s, .door = d, .version = s->version };
    link_init(&a->link);
    buf_init(&a->reply, d->conns->limits.out_bytes_max);
    return a;
}

void ask_free(struct ask *a)
{
    struct resp_door *d = a->door;
    link_remove(&a->link);
    buf_fini(&a->reply);
    blob_unref(a->value);
    bound_free(a->bound);
    if (d->spare_ask_count == SPARE_ASKS_MAX) {
        free(a);
        return;
    }
    list_append(&d->spare_asks, &a->link);
    d->spare_ask_count++;
}

void ask_expect(struct ask *a)
{
    list_append(&a->session->asks, &a->link);
    conn_owe(a->session->conn);
}

static size_t parked_bytes(const struct ask *a)
{
    return a->reply.len + blob_bytes(a->value).len;
}

static void ask_send(struct ask *a)
{
    struct conn *c = a->session->conn;
    struct buf *out = conn_out(c);
    buf_add(out, buf_bytes(&a->reply));
    buf_add(out, blob_bytes(a->value));
    if (a->value) buf_add(out, bytes_of("\r\n", 2));
    if (buf_failed(&a->reply)) out->failed = buf_failed(&a->reply); /* it is closed for that */
    conn_unparked(c, parked_bytes(a));
    conn_paid(c);
    ask_free(a);
}

static bool is_asked(const struct ask *a)
{
    return a->call || a->run_call || a->mutation;
}

/* Answers that waited for the one in front of them, or for room. */
static void send_ready(struct resp_session *s)
{
    for (struct link *at; (at = list_first(&s->asks)) && conn_has_room(s->conn);) {
        struct ask *a = container_of(at, struct ask, link);
        if (is_asked(a)) return;
        ask_send(a);
    }
}

struct ask_slot ask_answer(struct ask *a)
{
    struct resp_session *s = a->session;
    bool now = list_first(&s->asks) == &a->link && conn_has_room(s->conn);
    return (struct ask_slot){
        now, { .out = now ? conn_out(s->conn) : &a->reply, .version = a->version }
    };
}

void ask_answered(struct ask *a, const struct ask_slot *slot)
{
    struct resp_session *s = a->session;
    if (!slot->now) {
        conn_parked(s->conn, parked_bytes(a));
        return;
    }
    conn_paid(s->conn);
    ask_free(a);
    send_ready(s);
}

/* ---- asking the engine ---- */

static void note_claim(struct ask *a, struct call *call)
{
    struct bound *b = a->bound;
    if (call_answer(call)->outcome != OUTCOME_CLAIMED) return;
    a->bound = NULL;
    if (b && a->session)
        bound_hold(b, call_token(call), &a->session->bound);
    else if (b)
        bound_give_back(b, call_token(call));
    else if (!a->session && !a->callers_token)
        bounds_unheard(a->door->bounds, call);
}

static void note_answer(struct ask *a, struct call *call)
{
    if (call_error(call)->code) return;
    if (a->verb == VERB_CLAIM) note_claim(a, call);
    if (a->verb == VERB_PUBLISH || a->verb == VERB_RELEASE)
        bounds_settled(a->door->bounds, call_token(call));
}

static void ask_done(struct call *call, void *ctx)
{
    struct ask *a = ctx;
    note_answer(a, call);
    a->call = NULL;
    if (!a->session) {
        ask_free(a);
        return;
    }
    struct ask_slot slot = ask_answer(a);
    struct call_form form = { a->verb, a->meta, a->door->durable };
    resp_write_call(&slot.writer, call, &form, slot.now ? NULL : &a->value);
    ask_answered(a, &slot);
}

static int ask_engine(struct ask *a, struct ask_args *args, struct err *reterr)
{
    static const struct token none;
    struct resp_door *d = a->door;
    a->verb = args->call.verb;
    a->grants = a->verb == VERB_CLAIM;
    a->meta = args->meta;
    a->callers_token = !token_eq(&args->call.in.token, &none);
    args->call.done = ask_done;
    args->call.ctx = a;
    if (a->session->conn->peer_ended) args->call.wait_ms = 0; /* D2 */
    a->may_wait = args->call.wait_ms > 0;
    if (args->bound) args->call.owner = bound_owner(d->bounds);
    bool with_value = a->verb == VERB_PUBLISH && !args->omit;
    if (with_value && !(args->call.in.value = blob_new(args->value)))
        return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    int r = engine_call(d->engine, &args->call, &a->call, reterr);
    blob_unref(args->call.in.value);
    return r;
}

static int ask(struct resp_session *s, struct ask_args *args, struct err *reterr)
{
    struct ask *a = ask_new(s);
    int r = a ? 0 : err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    if (!r && args->bound) {
        r = key_check(&args->call.key, reterr);
        if (!r && !(a->bound = bound_new(s->door->bounds, &args->call.key)))
            r = err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    }
    if (!r) r = ask_engine(a, args, reterr);
    if (!r)
        ask_expect(a);
    else if (a)
        ask_free(a);
    return r;
}

/* ---- commands ---- */

/* An answer that is known at once: sent at once, or put in line. */
struct slot {
    struct ask *ask; /* NULL: nothing is in front of it */
    struct resp_writer writer;
};

/* False: it cannot be kept, so the order is lost, and with it the connection. */
static bool slot_open(struct resp_session *s, struct slot *ret)
{
    *ret = (struct slot){ .writer.version = s->version };
    if (list_empty(&s->asks)) {
        ret->writer.out = conn_out(s->conn);
        return true;
    }
    ret->ask = ask_new(s);
    if (ret->ask)
        ret->writer.out = &ret->ask->reply;
    else
        conn_end(s->conn, CLOSE_LIMIT);
    return ret->ask;
}

static void slot_close(struct slot *slot)
{
    struct ask *a = slot->ask;
    if (!a) return;
    conn_parked(a->session->conn, parked_bytes(a));
    ask_expect(a);
}

static void answer_at_once(struct resp_session *s, const struct resp_command *in,
                           resp_answer *answer)
{
    struct slot slot;
    if (!slot_open(s, &slot)) return;
    answer(s, in, &slot.writer);
    slot_close(&slot);
}

static void say_unknown(struct resp_session *s, const struct resp_command *in,
                        struct resp_writer *w)
{
    (void)s;
    resp_unknown(in, w);
}

static void say_wrong_count(struct resp_session *s, const struct resp_command *in,
                            struct resp_writer *w)
{
    (void)s;
    const struct resp_entry *e = resp_find(in->args[0]);
    resp_say_error(w, "ERR", "wrong number of arguments for '%.*s' command; usage: %s %s",
                   (int)in->args[0].len, (const char *)in->args[0].data, e->name, e->usage);
}

static void say_failed(struct resp_session *s, const struct err *err)
{
    struct slot slot;
    if (!slot_open(s, &slot)) return;
    resp_write_error(&slot.writer, err);
    slot_close(&slot);
}

static void say_ok(struct resp_session *s, const struct resp_command *in, struct resp_writer *w)
{
    (void)s, (void)in;
    resp_simple(w, "OK");
}

static void watch(struct resp_session *s, const struct resp_command *in, struct ask_args *args)
{
    struct err err;
    if (resp_watch(s, args, &err) < 0)
        say_failed(s, &err);
    else
        answer_at_once(s, in, say_ok);
}

static void run_parsed(struct resp_session *s, const struct resp_command *in,
                       const struct resp_entry *e)
{
    struct ask_args args;
    struct err err;
    if (e->parse(in, &args, &err) < 0) {
        say_failed(s, &err);
        return;
    }
    struct bytes scope = args.call.all_scopes ? bytes_str("") : args.call.key.scope;
    if (!auth_may(s->door->auth, &s->grant, args.call.verb, scope))
        answer_at_once(s, in, resp_say_noperm);
    else if (args.call.verb == VERB_WATCH)
        watch(s, in, &args);
    else if (ask(s, &args, &err) < 0)
        say_failed(s, &err);
}

static void ask_about_run(struct resp_session *s, const struct resp_command *in,
                          const struct resp_entry *e)
{
    struct resp_run run;
    struct err err;
    if (e->parse_run(in, &run, &err) < 0)
        say_failed(s, &err);
    else if (!auth_may(s->door->auth, &s->grant, run.right, run.args.env))
        answer_at_once(s, in, resp_say_noperm);
    else if (resp_run(s, &run, &err) < 0)
        say_failed(s, &err);
    else if (run.raw_id >= 0)
        answer_at_once(s, in, say_ok);
}

static void ask_about_mutation(struct resp_session *s, const struct resp_command *in,
                               const struct resp_entry *e)
{
    struct resp_mutation mutation;
    struct err err;
    if (e->parse_mutation(in, &mutation, &err) < 0)
        say_failed(s, &err);
    else if (!auth_may(s->door->auth, &s->grant, VERB_MUTATION, mutation.args.env))
        answer_at_once(s, in, resp_say_noperm);
    else if (resp_mutate(s, &mutation, &err) < 0)
        say_failed(s, &err);
}

static void run_command(struct resp_session *s, const struct resp_command *in)
{
    const struct resp_entry *e = resp_find(in->args[0]);
    s->door->conns->stats[DOOR_RESP].requests++;
    if (!e)
        answer_at_once(s, in, say_unknown);
    else if (in->count < e->args_min || in->count > e->args_max)
        answer_at_once(s, in, say_wrong_count);
    else if (!e->for_strangers && !auth_known(s->door->auth, &s->grant))
        answer_at_once(s, in, resp_say_noauth);
    else if (e->answer)
        answer_at_once(s, in, e->answer);
    else if (e->parse_run)
        ask_about_run(s, in, e);
    else if (e->parse_mutation)
        ask_about_mutation(s, in, e);
    else
        run_parsed(s, in, e);
}

/* A page in a browser can make it send a request here, whose content would be taken for commands;
 * so the first line that looks like HTTP ends it, as in Redis. */
static bool is_http(struct bytes word)
{
    return resp_word_is(word, "POST") || resp_word_is(word, "HOST:");
}

static size_t on_bytes(struct conn *c, uint8_t *data, size_t len)
{
    struct resp_session *s = session_of(c);
    size_t used = 0;
    while (!conn_full(c)) {
        struct resp_command in = { .args = s->door->args };
        struct err err;
        enum resp_progress p = resp_read(&s->reader, data + used, len - used, &in, &err);
        if (p == RESP_MORE) break;
        if (p == RESP_BAD) {
            say_failed(s, &err);
            conn_end(c, CLOSE_REFUSED);
            break;
        }
        used += in.used;
        if (in.count && is_http(in.args[0]))
            conn_close(c, CLOSE_REFUSED);
        else if (in.count)
            run_command(s, &in);
    }
    return used;
}

/* ---- life ---- */

static void on_opened(struct conn *c)
{
    struct resp_session *s = session_of(c);
    struct resp_door *d = c->ctx;
    *s = (struct resp_session){ .conn = c, .door = d, .version = 2 };
    resp_reader_init(&s->reader, &d->limits);
    list_init(&s->asks);
    list_init(&s->bound);
    list_init(&s->watches);
    list_init(&s->told);
    list_init(&s->calls);
    list_init(&s->pushes);
    resp_meet(s);
}

/* ---- what is canceled, and when ---- */

static bool is_grant(const struct ask *a)
{
    return a->grants;
}

static bool is_grant_that_waits(const struct ask *a)
{
    return a->grants && a->may_wait;
}

static bool may_be_asked_elsewhere(const struct ask *a)
{
    return a->grants || a->may_wait;
}

static void cancel_listed(struct list *asks, bool (*which)(const struct ask *))
{
    list_each (asks, at) {
        struct ask *a = container_of(at, struct ask, link);
        if (!which(a)) continue;
        if (a->call) call_cancel(a->call);
        if (a->run_call) run_call_cancel(a->run_call);
        if (a->mutation) mutation_call_cancel(a->mutation);
    }
}

/* Their callbacks come later, and answer. */
static void cancel_asks(struct resp_session *s, bool (*which)(const struct ask *))
{
    cancel_listed(&s->asks, which);
    cancel_listed(&s->calls, which);
}

static void on_room(struct conn *c)
{
    send_ready(session_of(c));
    resp_watches_room(session_of(c));
    resp_calls_room(session_of(c));
}

static void on_ended(struct conn *c)
{
    cancel_asks(session_of(c), is_grant_that_waits);
}

static void on_cancel(struct conn *c)
{
    cancel_asks(session_of(c), may_be_asked_elsewhere);
}

/* What is to be changed is changed, although nobody will hear of it. */
static void on_closed(struct conn *c)
{
    struct resp_session *s = session_of(c);
    cancel_listed(&s->asks, is_grant);
    resp_watches_cancel(s);
    resp_calls_drop(s);
    for (struct link *at; (at = list_pop(&s->asks));) {
        struct ask *a = container_of(at, struct ask, link);
        a->session = NULL;
        if (!is_asked(a)) ask_free(a);
    }
    bounds_drop(s->door->bounds, &s->bound);
    free(s->name);
    s->name = NULL;
}

int resp_door_init(struct resp_door *d, int64_t value_bytes_max, struct rng *rng,
                   struct err *reterr)
{
    list_init(&d->spare_asks);
    d->started_ms = d->loop->now_ms;
    /* A value that is a little too long gets an error; one that is far too long ends the
     * connection, because its bytes are not worth reading. */
    size_t far_too_long =
        2 * (size_t)value_bytes_max + METADATA_BYTES_MAX + RESP_INLINE_BYTES_MAX;
    d->limits = (struct resp_limits){ .args_max = RESP_ARGS_MAX,
                                      .bulk_bytes_max = far_too_long,
                                      .inline_bytes_max = RESP_INLINE_BYTES_MAX,
                                      .command_bytes_max = far_too_long };
    d->value_bytes_max = value_bytes_max;
    if (resp_watches_init(d, rng) == 0) return 0;
    return err_set(reterr, ERR_NOMEM, "out of memory opening the RESP door");
}

void resp_door_fini(struct resp_door *d)
{
    for (struct link *at; (at = list_pop(&d->spare_asks));)
        free(container_of(at, struct ask, link));
    resp_watches_fini(d);
}

void resp_door_recheck(struct resp_door *d)
{
    list_each (&d->conns->open, at) {
        struct conn *c = container_of(at, struct conn, link);
        if (c->door != &resp_door || c->state == CONN_CLOSED) continue;
        struct resp_session *s = session_of(c);
        if (auth_known(d->auth, &s->grant)) continue;
        cancel_asks(s, is_grant_that_waits);
        resp_watches_cancel(s);
        bounds_drop(d->bounds, &s->bound);
    }
}

const struct door resp_door = {
    .id = DOOR_RESP,
    .name = "resp",
    .session_bytes = sizeof(struct resp_session),
    .full_text = "-ERR max number of clients reached\r\n",
    .on_opened = on_opened,
    .on_bytes = on_bytes,
    .on_room = on_room,
    .on_ended = on_ended,
    .on_cancel = on_cancel,
    .on_closed = on_closed,
};
