/* net.c - how a process reaches a plane: a store whose every op is a message there and back.
 *
 * Guarantees what store.h asks of a store: each op is finished exactly once, never inside
 * submit; ERR_UNAVAILABLE only when nothing can have happened, ERR_AMBIGUOUS when it may have.
 * Everything else may go wrong: a request or its answer is lost, executed twice, or executed
 * long after its sender gave up. */
#include "base/check.h"
#include "tests/sim/internal.h"

#include <stdlib.h>

void flight_put(struct flight *f)
{
    if (--f->refs == 0) free(f);
}

void message_free(struct message *m)
{
    flight_put(m->flight);
    op_free(m->op);
    free(m);
}

/* The op leaves its flight and is told in the next turn. */
static void finish_later(struct flight *f)
{
    struct net *net = f->net;
    struct op *op = f->op;
    f->op = NULL;
    timer_stop(net->base.loop, &f->timeout);
    link_remove(&f->link);
    list_append(&net->arrived, &op->link);
    task_post(net->base.loop, &net->task);
    process_kick(net->process);
    flight_put(f);
}

static void flight_fail(struct flight *f, int code, const char *text)
{
    op_clear_answer(f->op);
    err_set(&f->op->err, code, "%s", text);
    finish_later(f);
}

/* Nobody knows what became of it; of a read that is no harm. */
static void flight_unknown(struct flight *f, const char *text)
{
    bool writes = verb_info[f->op->verb].writes;
    flight_fail(f, writes ? ERR_AMBIGUOUS : ERR_UNAVAILABLE, text);
}

/* ---- answers ---- */

static void tell_lies_about(struct sim *sim, struct net *net, struct op *op)
{
    if (op->err.code) return;
    bool ledger = net->plane->index == LEDGER, claim = op->verb == VERB_CLAIM;
    struct answer *out = &op->out;
    if (claim && out->outcome == OUTCOME_CACHED && plant(sim, PLANT_OTHER_VALUE)) {
        blob_unref(out->value);
        out->value = blob_new(bytes_str("a lie"));
    }
    if (ledger && claim && out->outcome == OUTCOME_IN_PROGRESS && plant(sim, PLANT_FALSE_GRANT))
        out->outcome = OUTCOME_CLAIMED;
    if (ledger && claim && out->outcome == OUTCOME_MISMATCH && plant(sim, PLANT_SEEN_BY_OTHERS))
        out->outcome = OUTCOME_IN_PROGRESS;
    if (!ledger && claim && out->outcome == OUTCOME_CLAIMED &&
        plant(sim, PLANT_COORD_INVENTS)) {
        out->outcome = OUTCOME_CACHED;
        out->value = blob_new(bytes_str("coord says so"));
    }
    if (ledger && op->verb == VERB_PUBLISH && out->outcome == OUTCOME_LOST &&
        plant(sim, PLANT_FALSE_OK))
        out->outcome = OUTCOME_OK;
    if (ledger && claim && out->outcome == OUTCOME_CLAIMED && plant(sim, PLANT_DENIED_EFFECT)) {
        op_clear_answer(op);
        err_set(&op->err, ERR_UNAVAILABLE, "a lie");
    }
}

void flight_answer(struct flight *f, const struct op *answered)
{
    if (!f->op) return;
    struct op *op = f->op;
    op_clear_answer(op);
    op->err = answered->err;
    if (op->err.code && f->doubled) op->err.code = ERR_AMBIGUOUS;
    op->out = answered->out;
    blob_ref(op->out.value);
    op->changed = answered->changed;
    op->count = answered->count;
    op->epoch = answered->epoch;
    tell_lies_about(f->net->process->sim, f->net, op);
    finish_later(f);
}

static void tell_arrived(struct task *task)
{
    struct net *net = container_of(task, struct net, task);
    ops_finish(&net->arrived);
}

static void timed_out(struct timer *t)
{
    flight_unknown(container_of(t, struct flight, timeout), "no answer in time");
}

/* ---- requests ---- */

static struct message *message_new(struct flight *f, uint64_t cause_id)
{
    struct message *m = malloc(sizeof *m);
    struct op *op = op_copy(f->op, f->op->verb);
    CHECK(m && op);
    op->seen = f->op->seen;
    op->limit = f->op->limit;
    *m =
        (struct message){ .plane = f->net->plane, .flight = f, .op = op, .cause_id = cause_id };
    event_init(&m->event, plane_arrived);
    f->refs++;
    return m;
}

static void send(struct flight *f, uint64_t cause_id, bool twin)
{
    struct sim *sim = f->net->process->sim;
    const struct swarm *swarm = &sim->swarm;
    int plane = f->net->plane->index;
    int64_t delay_ms = between(&sim->net_rng, 0, swarm->latency_ms[plane]);
    bool watch = f->op->verb == VERB_WATCH;
    bool late = !watch && !sim->healing && chance(&sim->net_rng, swarm->late[plane]);
    if (late) {
        fault_happened(sim, "request late");
        delay_ms = between(&sim->net_rng, swarm->timeout_ms[plane], 40 * 1000);
        if (sim->now_ms + delay_ms > sim->late_until_ms)
            sim->late_until_ms = sim->now_ms + delay_ms;
    }
    struct message *m = message_new(f, cause_id);
    m->twin = twin;
    m->late = late;
    event_at(sim, &m->event, sim->now_ms + delay_ms);
}

static void set_timeout(struct flight *f)
{
    struct net *net = f->net;
    struct sim *sim = net->process->sim;
    timer_set(net->base.loop, &f->timeout,
              net->base.loop->now_ms + sim->swarm.timeout_ms[net->plane->index]);
}

/* Which attempt of a client this op belongs to; 0: the engine asks by itself. */
static uint64_t cause_of(struct net *net, struct op *op)
{
    struct client *c = client_of_call(net->process, op->frames[0].ctx);
    if (!c) return 0;
    history_asked(c, op);
    return c->attempt.id;
}

static void net_submit(struct store *store, struct op *op)
{
    struct net *net = (struct net *)store;
    struct sim *sim = net->process->sim;
    int plane = net->plane->index;
    struct flight *f = malloc(sizeof *f);
    CHECK(f);
    *f = (struct flight){ .net = net, .op = op, .refs = 1 };
    link_init(&f->link);
    timer_init(&f->timeout, timed_out);
    list_append(&net->flights, &f->link);
    sim->submits++;
    if (net->dead) {
        flight_fail(f, ERR_UNAVAILABLE, "the process is gone");
        return;
    }
    if (verb_info[op->verb].keyed && ident_of(&op->key) < 0) {
        violation(sim, "I6", "a request for a key that nobody asked for");
        flight_fail(f, ERR_UNAVAILABLE, "no such key");
        return;
    }
    uint64_t cause_id = cause_of(net, op);
    pace_sent(net->process, plane, op);
    if (plane == LEDGER && op->verb == VERB_RELEASE) history_released(net->process, op);
    if (net->cut == REFUSES) {
        flight_fail(f, ERR_UNAVAILABLE, "not connected");
        return;
    }
    if (!sim->healing && chance(&sim->net_rng, sim->swarm.refused[plane])) {
        fault_happened(sim, "refused");
        flight_fail(f, ERR_UNAVAILABLE, "refused");
        return;
    }
    bool lost = net->cut == SILENT;
    if (!sim->healing && chance(&sim->net_rng, sim->swarm.lost_request[plane])) {
        fault_happened(sim, "request lost");
        lost = true;
    }
    if (!lost) send(f, cause_id, false);
    if (lost || op->verb != VERB_WATCH) set_timeout(f);
    bool watch = op->verb == VERB_WATCH;
    if (watch || sim->healing || !chance(&sim->net_rng, sim->swarm.twice[plane])) return;
    fault_happened(sim, "request doubled");
    f->doubled = true;
    send(f, cause_id, true);
}

static struct flight *flight_of(struct net *net, const struct op *op)
{
    list_each (&net->flights, at) {
        struct flight *f = container_of(at, struct flight, link);
        if (f->op == op) return f;
    }
    return NULL;
}

/* Of a WATCH: it ends. Of anything else it is a hint, taken every other time. */
static void net_cancel(struct store *store, struct op *op)
{
    struct net *net = (struct net *)store;
    struct flight *f = flight_of(net, op);
    if (!f) return;
    if (op->verb == VERB_WATCH)
        flight_fail(f, ERR_CANCELED, "canceled");
    else if (chance(&net->process->sim->net_rng, 500))
        flight_unknown(f, "canceled");
}

/* ---- connections ---- */

void net_break(struct net *net)
{
    list_each (&net->flights, at) {
        struct flight *f = container_of(at, struct flight, link);
        flight_unknown(f, "the connection was lost");
    }
}

void net_kill(struct net *net)
{
    net->dead = true;
    net_break(net);
}

static void net_close(struct store *store)
{
    struct net *net = (struct net *)store;
    CHECK(list_empty(&net->flights) && list_empty(&net->arrived));
    task_stop(&net->task);
    free(net);
}

static bool net_idle(const struct store *store)
{
    const struct net *net = (const struct net *)store;
    return !link_used(&net->flights.head) && !link_used(&net->arrived.head);
}

static const struct store_class net_class = {
    .scheme = "sim",
    .close = net_close,
    .submit = net_submit,
    .cancel = net_cancel,
    .idle = net_idle,
};

struct net *net_open(struct process *process, struct plane *plane)
{
    struct net *net = malloc(sizeof *net);
    CHECK(net);
    *net = (struct net){ .process = process, .plane = plane };
    unsigned caps = CAP_CLAIMS | CAP_SHARED;
    if (plane->notify) caps |= CAP_NOTIFY;
    if (plane->index == LEDGER) caps |= CAP_DURABLE;
    net->base = (struct store){ .class = &net_class, .caps = caps, .loop = &process->loop };
    list_init(&net->flights);
    list_init(&net->arrived);
    task_init(&net->task, tell_arrived);
    return net;
}
