/* plane.c - a store that the whole fleet shares: real records, its own clock, and outages.
 *
 * What arrives is executed at once and in the order of arrival. Watches are parked here and
 * their wake-ups travel like every other answer. */
#include "base/check.h"
#include "tests/sim/internal.h"

#include <stdlib.h>

static int64_t plane_clock(void *ctx)
{
    return plane_clock_ms(ctx);
}

int64_t plane_clock_ms(const struct plane *plane)
{
    return START_MS + plane->sim->now_ms + plane->skew_ms;
}

void plane_init(struct sim *sim, int index)
{
    struct plane *plane = &sim->planes[index];
    *plane = (struct plane){ .sim = sim, .index = index, .notify = !chance(&sim->rng, 250) };
    struct store_env env = { .wall = { .now_ms = plane_clock, .ctx = plane },
                             .rng = &sim->rng.base };
    struct err err;
    CHECK(store_open_bare("memory:", &env, &plane->records, &err) == 0);
    watches_init(&plane->watches, (uint64_t[2]){ rng_u64(&sim->rng.base), 1 });
    audit_init(plane);
}

static void drop_watches(struct plane *plane)
{
    struct list all;
    list_init(&all);
    watches_unpark_all(&plane->watches, &all);
    for (struct link *at; (at = list_pop(&all));) {
        struct op *op = container_of(at, struct op, link);
        message_free(op->frames[0].ctx);
    }
}

void plane_fini(struct plane *plane)
{
    drop_watches(plane);
    audit_fini(plane);
    store_close(plane->records);
}

void plane_flush(struct plane *plane)
{
    memory_flush(plane->records);
    audit_forgot_all(plane);
}

void plane_jump(struct plane *plane, int64_t by_ms)
{
    plane->skew_ms += by_ms;
    if (by_ms < 0) plane->went_back = true;
    audit_clock_moved(plane);
}

/* ---- answers ---- */

static void answer_arrived(struct sim *sim, struct event *ev)
{
    struct message *m = container_of(ev, struct message, event);
    struct process *p = m->flight->op ? m->flight->net->process : NULL;
    flight_answer(m->flight, m->op);
    message_free(m);
    if (p && !sim->healing && chance(&sim->net_rng, sim->swarm.struck)) fault_on_answer(p);
}

static bool answer_is_lost(struct message *m)
{
    struct sim *sim = m->plane->sim;
    if (m->twin || m->flight->op == NULL) return true;
    if (m->flight->net->cut != UP) return true;
    if (sim->healing || !chance(&sim->net_rng, sim->swarm.lost_answer[m->plane->index]))
        return false;
    fault_happened(sim, "answer lost");
    /* A wake-up is only ever lost with its connection. */
    if (m->op->verb == VERB_WATCH) net_break(m->flight->net);
    return true;
}

static void answer(struct message *m)
{
    struct sim *sim = m->plane->sim;
    if (answer_is_lost(m)) {
        message_free(m);
        return;
    }
    event_init(&m->event, answer_arrived);
    event_at(sim, &m->event,
             sim->now_ms + between(&sim->net_rng, 0, sim->swarm.latency_ms[m->plane->index]));
}

static void executed(struct op *op, void *ctx)
{
    (void)op;
    answer(ctx);
}

static void refuse(struct message *m)
{
    err_set(&m->op->err, ERR_UNAVAILABLE, "the plane is down");
    answer(m);
}

/* ---- requests ---- */

static void tell_lies_before(struct plane *plane, struct op *op)
{
    struct sim *sim = plane->sim;
    int ident = ident_of(&op->key);
    if (ident < 0 || plane->index != LEDGER) return;
    const struct mark *now = &plane->pages[ident].now;
    bool stale = now->status == PENDING && !token_eq(&now->token, &op->in.token);
    if (op->verb == VERB_RELEASE && stale && plant(sim, PLANT_STOLEN_RELEASE)) {
        struct op *forged = op_copy(op, VERB_RELEASE);
        forged->in.token = now->token;
        plane->records->class->exec(plane->records, &forged, 1);
        op_free(forged);
    }
    bool kept = now->status == DONE && plane_clock_ms(plane) < now->gone_ms;
    if (kept && op->verb == VERB_PEEK && plant(sim, PLANT_LOST_RECORD)) {
        struct op *forget = op_copy(op, VERB_FORGET);
        plane->records->class->exec(plane->records, &forget, 1);
        op_free(forget);
    }
    bool alive = now->status == PENDING && plane_clock_ms(plane) + 1 < now->lease_until_ms;
    if (op->verb == VERB_CLAIM && alive && plant(sim, PLANT_EARLY_TAKEOVER)) {
        struct op *cut = op_copy(op, VERB_RENEW);
        cut->in.token = now->token;
        cut->in.lease_ms = 0;
        plane->records->class->exec(plane->records, &cut, 1);
        op_free(cut);
    }
    if (op->verb == VERB_CLAIM && now->status == ABSENT && plane->pages[ident].fence_max &&
        plant(sim, PLANT_REUSED_FENCE))
        plane->pages[ident].fence_max = UINT64_MAX;
}

static void execute(struct message *m)
{
    struct plane *plane = m->plane;
    struct sim *sim = plane->sim;
    tell_lies_before(plane, m->op);
    audit_exec(plane, m->op, m->cause_id);
    sim->result.totals.ops++;
    sim_say(sim, "%s: %s %.*s/%.*s -> %s", plane->index == LEDGER ? "ledger" : "coord",
            verb_info[m->op->verb].name, (int)m->op->key.scope.len, m->op->key.scope.data,
            (int)m->op->key.name.len, m->op->key.name.data, outcome_name(m->op->out.outcome));
    sim_note(sim, (uint64_t)plane->index << 8 | m->op->verb, m->op->out.outcome,
             m->op->out.fence);
    op_push(m->op, executed, m);
    struct list finished;
    list_init(&finished);
    watches_settle(&plane->watches, m->op, &finished);
    for (struct link *at; (at = list_pop(&finished));) {
        struct op *op = container_of(at, struct op, link);
        bool wake_up = op->verb == VERB_WATCH && op != m->op;
        if (wake_up && sim->options.plant == PLANT_DEAF_WAITERS)
            message_free(op->frames[0].ctx);
        else
            op_finish(op);
    }
}

void plane_arrived(struct sim *sim, struct event *ev)
{
    struct message *m = container_of(ev, struct message, event);
    if (m->late) fault_happened(sim, "a late request arrives");
    if (m->plane->outage == REFUSES)
        refuse(m);
    else if (m->plane->outage == SILENT)
        message_free(m);
    else
        execute(m);
}
