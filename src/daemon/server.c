/* server.c - the server while it runs; see server.h.
 *
 * libuv carries our loop: a poll handle on its descriptor, a timer for its next deadline, and a
 * prepare handle, which runs once per iteration of libuv, after all input was taken and before
 * anybody sleeps: there our loop is turned until it is quiet, and then everything that was
 * written meanwhile is sent.
 *
 *   SERVING --signal--> DRAINING --drain_ms--> CANCELING --1 s--> CLOSING --1 s--.
 *                          '------------ nobody is connected any more -----------v
 *                                                      DONE <--engine idle-- STOPPING */
#include "base/check.h"
#include "daemon/notify.h"
#include "daemon/server_parts.h"

#include <signal.h>
#include <stdio.h>

enum {
    TURNS_MAX = 64, /* of our loop in one of libuv's */
    STEP_MS = 1000, /* between the steps of shutting down that nobody should need */
    STUCK_MS = 10000,
};

/* ---- shutting down ---- */

static const unsigned server_arrow[] = {
    [SERVING] = BIT(DRAINING),
    [DRAINING] = BIT(CANCELING) | BIT(CLOSING) | BIT(STOPPING),
    [CANCELING] = BIT(CLOSING) | BIT(STOPPING),
    [CLOSING] = BIT(STOPPING),
    [STOPPING] = BIT(DONE),
    [DONE] = 0,
};

static void set_state(struct server *s, enum server_state to, int64_t at_most_ms)
{
    static const char *const names[] = { "serving", "draining", "canceling",
                                         "closing", "stopping", "done" };
    CHECK(server_arrow[s->state] & BIT(to));
    s->state = to;
    trace_emit(s->env.trace,
               (struct trace_event){ .kind = TRACE_SERVER, .number = to, .text = names[to] });
    if (to == DONE)
        timer_stop(&s->loop, &s->step);
    else
        timer_set(&s->loop, &s->step, s->loop.now_ms + at_most_ms);
}

static void drain(struct server *s)
{
    notify_manager(s->notify_socket, "STOPPING=1");
    set_state(s, DRAINING, s->drain_ms);
    for (size_t i = 0; i < s->listener_count; i++) listener_close(&s->listeners[i]);
    conns_end(&s->conns, CLOSE_SHUTDOWN);
}

static void close_connections(struct server *s)
{
    set_state(s, CLOSING, STEP_MS);
    conns_close(&s->conns, CLOSE_SHUTDOWN);
}

static void stop_engine(struct server *s)
{
    set_state(s, STOPPING, STUCK_MS);
    engine_stop(s->engine);
}

static void close_handle(uv_handle_t *handle, void *ctx)
{
    (void)ctx;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

static void be_done(struct server *s)
{
    set_state(s, DONE, 0);
    uv_walk(&s->uv, close_handle, NULL);
}

/* It took too long: the next step, by force. */
static void step_over(struct timer *t)
{
    struct server *s = container_of(t, struct server, step);
    switch (s->state) {
    case DRAINING:
        set_state(s, CANCELING, STEP_MS);
        conns_cancel(&s->conns);
        return;
    case CANCELING:
        close_connections(s);
        return;
    case CLOSING:
        stop_engine(s);
        return;
    case STOPPING:
        s->stuck = true;
        uv_stop(&s->uv);
        return;
    case SERVING:
    case DONE:
        return;
    }
}

static void go_on_shutting_down(struct server *s)
{
    bool alone = s->conns.count == 0 && bounds_idle(&s->bounds);
    bool before_stop = s->state != SERVING && s->state < STOPPING;
    if (before_stop && alone) stop_engine(s);
    if (s->state == STOPPING && engine_idle(s->engine) && store_idle(s->store)) be_done(s);
}

/* The second time means now. */
static void on_signal(uv_signal_t *signal, int number)
{
    struct server *s = signal->data;
    (void)number;
    loop_update(&s->loop, server_now_ms(s));
    if (s->state == SERVING)
        drain(s);
    else if (s->state == DRAINING || s->state == CANCELING)
        close_connections(s);
}

/* ---- reloading ---- */

int server_reload(struct server *s, struct err *reterr)
{
    int r = guard_reload(&s->guard, reterr);
    resp_door_recheck(&s->resp);
    return r;
}

static void on_hangup(uv_signal_t *signal, int number)
{
    struct server *s = signal->data;
    struct err err = { 0 };
    (void)number;
    notify_reloading(s->notify_socket);
    server_reload(s, &err);
    notify_manager(s->notify_socket, "READY=1");
    if (s->on_reloaded) s->on_reloaded(s->on_reloaded_ctx, &err);
}

/* ---- the loop in the loop ---- */

static void on_timer(uv_timer_t *timer)
{
    (void)timer; /* to be awake is enough: on_prepare() follows */
}

static void arm_timer(struct server *s)
{
    bool again = !list_empty(&s->conns.dirty);
    int64_t next_ms = again ? 0 : loop_next_ms(&s->loop, server_now_ms(s));
    if (next_ms >= 0)
        uv_timer_start(&s->timer, on_timer, (uint64_t)next_ms, 0);
    else
        uv_timer_stop(&s->timer);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct server *s = prepare->data;
    int64_t at_ms = server_now_ms(s);
    for (int i = 0; i < TURNS_MAX; i++) {
        loop_turn(&s->loop, at_ms);
        if (loop_next_ms(&s->loop, at_ms) != 0) break;
    }
    conns_settle(&s->conns);
    go_on_shutting_down(s);
    if (s->state != DONE) arm_timer(s);
}

/* Takes the wake-ups of other threads off the descriptor. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct server *s = poll->data;
    (void)status, (void)events;
    loop_sleep(&s->loop, 0);
}

static int uv_failed(int code, const char *what, struct err *reterr)
{
    return err_set(reterr, ERR_UNAVAILABLE, "cannot %s: %s", what, uv_strerror(code));
}

int server_carry(struct server *s, struct err *reterr)
{
    timer_init(&s->step, step_over);
    int r = uv_loop_init(&s->uv);
    if (r < 0) return uv_failed(r, "make an event loop", reterr);
    s->uv_ready = true;
    s->prepare.data = s->poll.data = s->term.data = s->interrupt.data = s->hangup.data = s;
    uv_prepare_init(&s->uv, &s->prepare);
    uv_timer_init(&s->uv, &s->timer);
    uv_signal_init(&s->uv, &s->term);
    uv_signal_init(&s->uv, &s->interrupt);
    uv_signal_init(&s->uv, &s->hangup);
    r = uv_poll_init(&s->uv, &s->poll, s->loop.fd);
    if (r < 0) return uv_failed(r, "watch the loop", reterr);
    uv_prepare_start(&s->prepare, on_prepare);
    r = uv_poll_start(&s->poll, UV_READABLE, on_readable);
    if (r == 0) r = uv_signal_start(&s->term, on_signal, SIGTERM);
    if (r == 0) r = uv_signal_start(&s->interrupt, on_signal, SIGINT);
    if (r == 0) r = uv_signal_start(&s->hangup, on_hangup, SIGHUP);
    return r < 0 ? uv_failed(r, "watch signals", reterr) : 0;
}

void server_drop(struct server *s)
{
    if (!s->uv_ready) return;
    uv_walk(&s->uv, close_handle, NULL);
    uv_run(&s->uv, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&s->uv) == 0);
}

/* ---- what it stands on ---- */

static void tell_fact(const struct server *s, const struct fact *f)
{
    struct once_fact fact = { .level = (int)f->level,
                              .plane = *f->plane      ? f->plane
                                       : s->ephemeral ? "coord"
                                                      : "ledger",
                              .name = f->name,
                              .text = f->text,
                              .advice = f->advice };
    s->on_fact(s->on_fact_ctx, &fact);
}

static void facts_known(struct call *call, void *ctx)
{
    const struct server *s = ctx;
    const struct err *err = call_error(call);
    const struct facts *facts = err->code ? NULL : call_op(call)->facts;
    struct fact away = { .level = FACT_FAIL,
                         .plane = "",
                         .name = "server",
                         .advice = "claims fail until it answers" };
    for (size_t i = 0; facts && i < facts->count; i++) tell_fact(s, &facts->rows[i]);
    if (!err->code || err->code == ERR_CANCELED) return;
    snprintf(away.text, sizeof away.text, "%.159s", err->text);
    tell_fact(s, &away);
}

/* An answer would be nice; without one it serves, too. */
static void ask_for_facts(struct server *s)
{
    struct err err;
    struct call_args args = {
        .verb = VERB_PING, .wants_facts = true, .done = facts_known, .ctx = s
    };
    if (s->on_fact) engine_call(s->engine, &args, NULL, &err);
}

/* ---- running ---- */

int server_run(struct server *s, struct err *reterr)
{
    signal(SIGPIPE, SIG_IGN); /* a peer that is gone is an error of write(), no more */
    loop_update(&s->loop, server_now_ms(s)); /* opening took a while, and deadlines begin now */
    ask_for_facts(s);
    metrics_refresh(&s->metrics);
    notify_manager(s->notify_socket, "READY=1");
    uv_run(&s->uv, UV_RUN_DEFAULT);
    if (s->stuck)
        return err_set(reterr, ERR_UNAVAILABLE, "a store did not give back what it was asked");
    return 0;
}
