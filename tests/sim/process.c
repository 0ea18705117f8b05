/* process.c - one process of the fleet: its own loop, engine and tiered store, the real ones.
 *
 * A crash takes everything in memory at once; what is on the wire is still executed. A pause is
 * SIGSTOP: the loop is not turned, the world goes on. */
#include "base/check.h"
#include "tests/sim/internal.h"

static void turn(struct sim *sim, struct event *ev)
{
    struct process *p = container_of(ev, struct process, turn);
    if (!p->up || p->paused) return;
    loop_turn(&p->loop, sim->now_ms);
    int64_t next_ms = loop_next_ms(&p->loop, sim->now_ms);
    if (next_ms >= 0) event_at(sim, &p->turn, sim->now_ms + next_ms);
}

void process_kick(struct process *p)
{
    if (p->dying || !p->up) return;
    bool due = event_is_set(&p->turn) && p->turn.node.at_ms <= p->sim->now_ms;
    if (!due) event_at(p->sim, &p->turn, p->sim->now_ms);
}

static void comeback(struct sim *sim, struct event *ev)
{
    struct process *p = container_of(ev, struct process, comeback);
    fault_happened(sim, "a process is back");
    if (p->up)
        process_resume(p);
    else
        process_start(p);
}

static void traced(void *ctx, const struct trace_event *event)
{
    struct process *p = ctx;
    if (event->kind == TRACE_TAKEOVER) p->sim->result.totals.takeovers++;
    sim_note(p->sim, event->kind, (uint64_t)event->number, (uint64_t)p->index);
    if (event->kind == TRACE_CALL) return;
    sim_say(p->sim, "p%d: %s %s %lld", p->index, trace_name(event->kind),
            event->text ? event->text : "", (long long)event->number);
}

static void open_engine(struct process *p)
{
    struct sim *sim = p->sim;
    struct err err;
    for (int i = 0; i < PLANES; i++) p->net[i] = net_open(p, &sim->planes[i]);
    struct tiered_options options = TIERED_OPTIONS_INIT;
    CHECK(tiered_open(&p->net[COORD]->base, &p->net[LEDGER]->base, &options, &p->env, &p->store,
                      &err) == 0);
    struct engine_config config = ENGINE_CONFIG_INIT;
    config.value_bytes_max = VALUE_BYTES_MAX;
    config.patience_ms = PATIENCE_MS;
    config.sweep_ms = sim->swarm.sweep_ms;
    if (chance(&p->rng, 50)) config.waiters_max = 2;
    CHECK(engine_open(p->store, &p->env, &config, &p->engine, &err) == 0);
}

void process_start(struct process *p)
{
    struct sim *sim = p->sim;
    CHECK(!p->up);
    if (!p->incarnation) {
        event_init(&p->turn, turn);
        event_init(&p->comeback, comeback);
    }
    event_stop(sim, &p->comeback);
    p->up = true;
    p->paused = false;
    p->incarnation++;
    loop_init(&p->loop, sim->now_ms);
    rng_seeded_init(&p->rng, sim->seed << 16 ^ (uint64_t)p->index << 12 ^ p->incarnation);
    p->trace = (struct trace){ .emit = traced, .ctx = p };
    p->env = (struct store_env){ .loop = &p->loop, .rng = &p->rng.base, .trace = &p->trace };
    open_engine(p);
    sim_say(sim, "p%d: starts", p->index);
    for (int i = 0; i < sim->client_count; i++)
        if (sim->clients[i].process == p) client_process_back(&sim->clients[i]);
    process_kick(p);
}

/* Turns the loop until engine and store let go of everything; the network is dead already. */
static void drain(struct process *p)
{
    for (int turns = 0; !engine_idle(p->engine) || !store_idle(p->store); turns++) {
        if (turns == 10000) {
            violation(p->sim, "I14", "p%d does not come to rest", p->index);
            return;
        }
        loop_turn(&p->loop, p->sim->now_ms);
    }
}

static void tear_down(struct process *p)
{
    struct sim *sim = p->sim;
    p->dying = true;
    for (int i = 0; i < PLANES; i++) net_kill(p->net[i]);
    engine_stop(p->engine);
    drain(p);
    engine_free(p->engine);
    store_close(p->store);
    loop_fini(&p->loop);
    event_stop(sim, &p->turn);
    event_stop(sim, &p->comeback);
    p->up = p->dying = false;
}

void process_crash(struct process *p)
{
    if (!p->up) return;
    sim_say(p->sim, "p%d: crashes", p->index);
    if (p->paused) process_resume(p);
    tear_down(p);
    for (int i = 0; i < p->sim->client_count; i++)
        if (p->sim->clients[i].process == p) client_process_gone(&p->sim->clients[i]);
}

/* Nothing may be left of what this run did: no waiter, no lease, no op. */
void process_stop(struct process *p)
{
    if (!p->up) return;
    struct engine_stats stats = engine_stats(p->engine);
    if (p->sim->options.plant == PLANT_LEAKED_WAITER) stats.waiters++;
    if (stats.waiters || stats.held)
        violation(p->sim, "I14", "p%d: %zu waiters and %zu leases are left", p->index,
                  stats.waiters, stats.held);
    tear_down(p);
}

void process_pause(struct process *p)
{
    if (!p->up || p->paused) return;
    p->paused = true;
    p->paused_at_ms = p->sim->now_ms;
    sim_say(p->sim, "p%d: paused", p->index);
}

void process_resume(struct process *p)
{
    if (!p->up || !p->paused) return;
    p->paused = false;
    p->paused_ms += p->sim->now_ms - p->paused_at_ms;
    event_stop(p->sim, &p->comeback);
    sim_say(p->sim, "p%d: goes on", p->index);
    process_kick(p);
}

int64_t process_paused_ms(const struct process *p)
{
    return p->paused_ms + (p->paused ? p->sim->now_ms - p->paused_at_ms : 0);
}
