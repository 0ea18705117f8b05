/* faults.c - what goes wrong, when, and how it stops.
 *
 * Every seed turns on a random subset of the faults at random rates (swarm testing): a run with
 * everything at once hides as much as it shows. One in three is calm, for the promises about
 * time; half of the others are orderly, for what coord may say. */
#include "base/check.h"
#include "tests/sim/internal.h"

enum { JUMPS_FROM = 7 }; /* in the list of nemeses */

bool chance(struct rng_seeded *rng, unsigned per_mille)
{
    return per_mille && rng_below(&rng->base, 1000) < per_mille;
}

int64_t between(struct rng_seeded *rng, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(&rng->base, (uint64_t)(high - low) + 1);
}

void fault_happened(struct sim *sim, const char *what)
{
    sim->last_fault_ms = sim->now_ms;
    sim->result.totals.faults++;
    sim_say(sim, "fault: %s", what);
}

/* So slow that its deadline is missed now and then, all the time. */
static bool coord_is_slow(const struct sim *sim)
{
    return sim->swarm.latency_ms[COORD] > 50;
}

bool quiet_since(const struct sim *sim, int64_t at_ms)
{
    if (sim->swarm.calm) return true;
    if (coord_is_slow(sim)) return false;
    for (int i = 0; i < sim->process_count; i++)
        if (!sim->processes[i].up || sim->processes[i].paused) return false;
    /* Who has sent something into the fault finds out when the store gives up. */
    return sim->outages == 0 && at_ms > sim->last_fault_ms + sim->swarm.timeout_ms[LEDGER];
}

/* ---- the swarm ---- */

static unsigned rate(struct rng_seeded *rng, unsigned per_mille_max)
{
    return chance(rng, 500) ? (unsigned)rng_below(&rng->base, per_mille_max) + 1 : 0;
}

static int64_t pick(struct rng_seeded *rng, const int64_t *from, uint64_t count)
{
    return from[rng_below(&rng->base, count)];
}

#define PICK(rng, ...)                                                                         \
    pick(rng, (const int64_t[]){ __VA_ARGS__ },                                                \
         sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))

static void message_faults(struct swarm *s, struct rng_seeded *rng, int plane)
{
    unsigned often = chance(rng, 300) ? 200 : 60;
    s->lost_request[plane] = rate(rng, often);
    s->lost_answer[plane] = rate(rng, often);
    s->twice[plane] = rate(rng, 40);
    s->late[plane] = rate(rng, 30);
    s->refused[plane] = rate(rng, 60);
}

/* Nothing is executed twice or late, and no clock jumps: then much more can be promised. */
static void be_orderly(struct swarm *s)
{
    for (int i = 0; i < PLANES; i++) s->twice[i] = s->late[i] = 0;
    if (s->latency_ms[COORD] > 20) s->latency_ms[COORD] = 20;
    s->kinds &= ~(unsigned)(BIT(JUMPS_FROM) | BIT(JUMPS_FROM + 1));
}

static void pick_idents(struct sim *sim)
{
    int order[IDENTS];
    for (int i = 0; i < IDENTS; i++) order[i] = i;
    for (int i = IDENTS - 1; i > 0; i--) {
        int j = (int)between(&sim->rng, 0, i), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    sim->ident_count = (int)PICK(&sim->rng, 1, 1, 2, 3, IDENTS_USED_MAX);
    for (int i = 0; i < sim->ident_count; i++) sim->idents[i] = order[i];
}

void swarm_init(struct sim *sim)
{
    struct swarm *s = &sim->swarm;
    struct rng_seeded *rng = &sim->rng;
    *s = (struct swarm){ .calm = chance(rng, 350) || sim->options.plant == PLANT_DEAF_WAITERS };
    s->latency_ms[COORD] = PICK(rng, 1, 5, 20);
    s->latency_ms[LEDGER] = PICK(rng, 1, 5, 20, 60);
    s->timeout_ms[COORD] = PICK(rng, 200, 1000);
    s->timeout_ms[LEDGER] = PICK(rng, 500, 2000, 5000);
    s->lease_ms = PICK(rng, 300, 1000, 1000, 3000, 10000, 30000);
    s->think_ms = PICK(rng, 5, 100, 1000, 4000);
    s->retain_ms = PICK(rng, 0, 100, 1000, 3000, 10000, 60000, 86400000);
    s->sweep_ms = PICK(rng, 0, 200, 5000, 60000);
    s->other_fingerprint = chance(rng, 500) ? 150 : 0;
    s->odd_leases = chance(rng, 400) ? 100 : 0;
    s->forgets = chance(rng, 500) ? 40 : 0;
    sim->process_count = (int)between(rng, 1, PROCESSES_MAX);
    sim->client_count = (int)between(rng, 2, CLIENTS_MAX);
    pick_idents(sim);
    if (s->calm) return;
    message_faults(s, rng, COORD);
    message_faults(s, rng, LEDGER);
    if (chance(rng, 200)) s->latency_ms[COORD] = 90;
    s->nemesis_ms = PICK(rng, 500, 3000, 10000);
    s->kinds = (unsigned)rng_u64(&rng->base);
    s->silent_flush = chance(rng, 500);
    s->struck = rate(rng, 15);
    if (chance(rng, 500)) be_orderly(s);
}

/* ---- the nemesis ---- */

static struct process *any_process(struct sim *sim)
{
    return &sim->processes[rng_below(&sim->rng.base, (uint64_t)sim->process_count)];
}

static int64_t any_length_ms(struct sim *sim)
{
    return between(&sim->rng, 1, PICK(&sim->rng, 50, 1000, 2 * sim->swarm.lease_ms, 20000));
}

static void crash_it(struct process *p)
{
    struct sim *sim = p->sim;
    if (!p->up) return;
    fault_happened(sim, "crash");
    sim->result.totals.crashes++;
    process_crash(p);
    event_at(sim, &p->comeback, sim->now_ms + any_length_ms(sim));
}

static void pause_it(struct process *p)
{
    struct sim *sim = p->sim;
    if (!p->up || p->paused) return;
    fault_happened(sim, "pause");
    process_pause(p);
    event_at(sim, &p->comeback, sim->now_ms + any_length_ms(sim));
}

static void crash(struct sim *sim)
{
    crash_it(any_process(sim));
}

static void pause_one(struct sim *sim)
{
    pause_it(any_process(sim));
}

void fault_on_answer(struct process *p)
{
    if (chance(&p->sim->rng, 300))
        crash_it(p);
    else
        pause_it(p);
}

static void fail_watches(struct sim *sim, int plane)
{
    for (int i = 0; i < sim->process_count; i++)
        if (sim->processes[i].up) net_break(sim->processes[i].net[plane]);
}

static void flush(struct sim *sim)
{
    fault_happened(sim, "coord is flushed");
    plane_flush(&sim->planes[COORD]);
    if (!sim->swarm.silent_flush) fail_watches(sim, COORD);
}

static void plane_back(struct sim *sim, struct event *ev)
{
    int plane = (int)(ev - sim->repair);
    fault_happened(sim, "a plane is back");
    sim->planes[plane].outage = UP;
    sim->outages--;
}

static void plane_down(struct sim *sim, int plane)
{
    if (sim->planes[plane].outage != UP) return;
    fault_happened(sim, plane == COORD ? "coord is down" : "the ledger is down");
    sim->planes[plane].outage = chance(&sim->rng, 500) ? REFUSES : SILENT;
    sim->outages++;
    fail_watches(sim, plane);
    bool forgets = plane == COORD && chance(&sim->rng, 500);
    if (forgets) plane_flush(&sim->planes[COORD]);
    event_init(&sim->repair[plane], plane_back);
    event_at(sim, &sim->repair[plane], sim->now_ms + any_length_ms(sim));
}

static void coord_down(struct sim *sim)
{
    plane_down(sim, COORD);
}

static void ledger_down(struct sim *sim)
{
    plane_down(sim, LEDGER);
}

static void set_cut(struct process *p, int plane, enum outage cut)
{
    if (!p->up) return;
    net_break(p->net[plane]);
    p->net[plane]->cut = cut;
}

static void cut_back(struct sim *sim, struct event *ev)
{
    int slot = (int)(ev - sim->repair);
    fault_happened(sim, "a link is back");
    for (int i = 0; i < sim->process_count; i++) set_cut(&sim->processes[i], slot - PLANES, UP);
    sim->outages--;
}

/* From half of the fleet. */
static void cut(struct sim *sim, int plane)
{
    struct event *repair = &sim->repair[PLANES + plane];
    if (event_is_set(repair)) return;
    fault_happened(sim, plane == COORD ? "coord is cut off" : "the ledger is cut off");
    enum outage how = chance(&sim->rng, 500) ? REFUSES : SILENT;
    for (int i = 0; i < sim->process_count; i++)
        if (chance(&sim->rng, 500)) set_cut(&sim->processes[i], plane, how);
    sim->outages++;
    event_init(repair, cut_back);
    event_at(sim, repair, sim->now_ms + any_length_ms(sim));
}

static void cut_coord(struct sim *sim)
{
    cut(sim, COORD);
}

static void cut_ledger(struct sim *sim)
{
    cut(sim, LEDGER);
}

static void jump(struct sim *sim, int plane)
{
    int64_t by_ms = PICK(&sim->rng, 1, 500, 60 * 1000, 3600 * 1000, INT64_C(365) * 86400000);
    if (chance(&sim->rng, 500)) by_ms = -by_ms;
    int64_t skew_ms = sim->planes[plane].skew_ms + by_ms;
    if (skew_ms < -START_MS / 2) return;
    fault_happened(sim, plane == COORD ? "coord's clock jumps" : "the ledger's clock jumps");
    plane_jump(&sim->planes[plane], by_ms);
}

static void jump_coord(struct sim *sim)
{
    jump(sim, COORD);
}

static void jump_ledger(struct sim *sim)
{
    jump(sim, LEDGER);
}

static void (*const nemeses[])(struct sim *) = {
    crash,     pause_one,  flush,      coord_down,  ledger_down,
    cut_coord, cut_ledger, jump_coord, jump_ledger,
};
enum { NEMESES = sizeof nemeses / sizeof nemeses[0] };

static void strike(struct sim *sim, struct event *ev)
{
    size_t which = rng_below(&sim->rng.base, NEMESES);
    if (sim->swarm.kinds & BIT(which)) nemeses[which](sim);
    event_at(sim, ev, sim->now_ms + between(&sim->rng, 1, 2 * sim->swarm.nemesis_ms));
}

void faults_start(struct sim *sim)
{
    const struct swarm *s = &sim->swarm;
    bool jumps = !s->calm && (s->kinds & (BIT(JUMPS_FROM) | BIT(JUMPS_FROM + 1)));
    sim->loose = jumps || s->late[COORD] || s->twice[COORD] || coord_is_slow(sim);
    for (size_t i = 0; i < sizeof sim->repair / sizeof sim->repair[0]; i++)
        event_init(&sim->repair[i], NULL);
    event_init(&sim->nemesis, strike);
    if (!s->calm) event_at(sim, &sim->nemesis, s->nemesis_ms);
}

/* From now on nothing goes wrong any more: everything is up, connected and running. */
void faults_heal(struct sim *sim)
{
    sim->healing = true;
    if (sim->swarm.calm) return;
    fault_happened(sim, "healed");
    if (coord_is_slow(sim)) sim->swarm.latency_ms[COORD] = 20;
    /* Coord may go on to answer from what a jump has preserved, for as long as that was kept;
     * the ledger notices a clock that went back only when it is asked. */
    if (sim->planes[LEDGER].went_back) flush(sim);
    event_stop(sim, &sim->nemesis);
    for (size_t i = 0; i < sizeof sim->repair / sizeof sim->repair[0]; i++)
        event_stop(sim, &sim->repair[i]);
    sim->outages = 0;
    for (int i = 0; i < PLANES; i++) sim->planes[i].outage = UP;
    for (int i = 0; i < sim->process_count; i++) {
        struct process *p = &sim->processes[i];
        for (int plane = 0; plane < PLANES; plane++) set_cut(p, plane, UP);
        if (p->up) process_resume(p);
        if (!p->up) process_start(p);
    }
}
