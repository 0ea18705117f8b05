/* sim.c - the run: time goes from event to event, first with faults, then without.
 *
 *   faults    clients work while the nemesis strikes
 *   healed    every call ends and every owner finishes
 *   probed    a lease and two seconds later, every process finds every key answered or
 *             claimable (C5), and nothing is left over (I14)
 *
 * The first violation ends the run. */
#include "base/check.h"
#include "tests/sim/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { EVENTS_MAX = 400000, EVENTS_PER_MS_MAX = 5000, GRACE_MS = 2000 };

void event_init(struct event *ev, void (*run)(struct sim *, struct event *))
{
    heap_node_init(&ev->node);
    ev->run = run;
}

bool event_is_set(const struct event *ev)
{
    return heap_has(NULL, &ev->node);
}

void event_stop(struct sim *sim, struct event *ev)
{
    if (event_is_set(ev)) heap_remove(&sim->events, &ev->node);
}

void event_at(struct sim *sim, struct event *ev, int64_t at_ms)
{
    event_stop(sim, ev);
    heap_add(&sim->events, &ev->node, at_ms);
}

uint64_t sim_tick(struct sim *sim)
{
    return ++sim->seq;
}

void sim_note(struct sim *sim, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t words[] = { (uint64_t)sim->now_ms, a, b, c };
    for (size_t i = 0; i < 4; i++) {
        uint64_t h = (sim->result.hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        sim->result.hash = h ^ h >> 29;
    }
}

void sim_say(struct sim *sim, const char *fmt, ...)
{
    if (!sim->options.verbose) return;
    va_list args;
    va_start(args, fmt);
    printf("# %8" PRId64 " ", sim->now_ms);
    vprintf(fmt, args);
    putchar('\n');
    va_end(args);
}

void violation(struct sim *sim, const char *rule, const char *fmt, ...)
{
    struct sim_result *r = &sim->result;
    if (!r->ok) return;
    r->ok = false;
    snprintf(r->rule, sizeof r->rule, "%s", rule);
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->why, sizeof r->why, fmt, args);
    va_end(args);
    sim_say(sim, "VIOLATION of %s: %s", rule, r->why);
}

bool plant(struct sim *sim, enum sim_plant which)
{
    if (sim->options.plant != which || sim->planted) return false;
    sim->planted = true;
    sim_say(sim, "a lie is told");
    return true;
}

/* ---- running ---- */

static bool run_next(struct sim *sim, int64_t until_ms)
{
    struct heap_node *first = heap_first(&sim->events);
    if (!sim->result.ok) return false;
    if (!first || first->at_ms > until_ms) {
        sim->now_ms = until_ms;
        return false;
    }
    sim->in_this_ms = first->at_ms > sim->now_ms ? 0 : sim->in_this_ms + 1;
    sim->now_ms = first->at_ms;
    heap_remove(&sim->events, first);
    struct event *ev = container_of(first, struct event, node);
    ev->run(sim, ev);
    bool spins =
        ++sim->result.totals.events > EVENTS_MAX || sim->in_this_ms > EVENTS_PER_MS_MAX;
    if (spins) violation(sim, "I14", "so many events: something turns in circles");
    return true;
}

static void run_until(struct sim *sim, int64_t until_ms)
{
    while (run_next(sim, until_ms))
        ;
}

static bool all_idle(const struct sim *sim)
{
    for (int i = 0; i < sim->client_count; i++)
        if (sim->clients[i].call || sim->clients[i].holds) return false;
    return true;
}

static void run_with_faults(struct sim *sim)
{
    uint64_t attempts = (uint64_t)between(&sim->rng, 150, 750);
    int64_t end_ms = between(&sim->rng, 60, 600) * 1000;
    while (sim->attempts < attempts && run_next(sim, end_ms))
        ;
}

/* Every call ends by itself, and every owner finishes its work. */
static void run_to_rest(struct sim *sim)
{
    for (int i = 0; i < sim->client_count; i++) {
        struct client *c = &sim->clients[i];
        c->heals = true;
        c->hold_until_ms = sim->now_ms;
        if (!c->call && c->process->up) event_at(sim, &c->step, sim->now_ms);
    }
    int64_t end_ms = sim->now_ms + 300 * 1000;
    while (!all_idle(sim) && run_next(sim, end_ms))
        ;
    if (!all_idle(sim))
        violation(sim, "C5", "a call is left unfinished after everything healed");
}

static struct client *client_at(struct sim *sim, const struct process *p)
{
    for (int i = 0; i < sim->client_count; i++)
        if (sim->clients[i].process == p) return &sim->clients[i];
    return NULL;
}

/* Asks for every key, from every process; `must`: by now it has to be answered or claimable. */
static void probe_all(struct sim *sim, bool must)
{
    for (int p = 0; p < sim->process_count; p++)
        for (int i = 0; i < sim->ident_count && sim->result.ok; i++) {
            struct client *c = client_at(sim, &sim->processes[p]);
            int ident = sim->idents[i];
            if (!c) continue;
            c->probe_must_work = must;
            client_probe(c, ident, sim_ledger(sim)->pages[ident].now.fingerprint);
            int64_t end_ms = sim->now_ms + 60 * 1000;
            while (!all_idle(sim) && run_next(sim, end_ms))
                ;
            if (!all_idle(sim)) violation(sim, "C5", "a claim does not end");
        }
}

static void claim_for_nobody(struct sim *sim)
{
    struct key key = ident_key(sim->idents[0]);
    struct page *page = &sim_ledger(sim)->pages[sim->idents[0]];
    struct request in = { .token.bytes = "nobody",
                          .lease_ms = 36000 * 1000,
                          .retain_ms = 1000,
                          .fingerprint = fingerprint_bytes(page->now.fingerprint) };
    struct op *forget = op_new(VERB_FORGET, &key, NULL), *claim = op_new(VERB_CLAIM, &key, &in);
    CHECK(forget && claim);
    int64_t lease_max_ms = sim->lease_max_ms;
    audit_exec(sim_ledger(sim), forget, 0);
    plane_flush(&sim->planes[COORD]);
    audit_exec(sim_ledger(sim), claim, 0);
    sim->lease_max_ms = lease_max_ms;
    op_free(forget);
    op_free(claim);
}

/* A clock that went back is noticed by the next claim that reaches the plane, and coord may
 * absorb claims for one lease before that: one lease more, then. */
static void converge(struct sim *sim)
{
    int64_t settled_ms = sim->late_until_ms > sim->now_ms ? sim->late_until_ms : sim->now_ms;
    run_until(sim, settled_ms + GRACE_MS); /* what is still on the wire has arrived */
    if (plant(sim, PLANT_STUCK_KEY)) claim_for_nobody(sim);
    bool went_back = sim->planes[COORD].went_back || sim->planes[LEDGER].went_back;
    for (int leases = went_back ? 2 : 1; leases > 0; leases--) {
        probe_all(sim, false);
        run_until(sim, sim->now_ms + sim->lease_max_ms + GRACE_MS);
    }
    probe_all(sim, true);
    run_until(sim, sim->now_ms + GRACE_MS);
}

static void init(struct sim *sim, uint64_t seed, const struct sim_options *options)
{
    *sim = (struct sim){ .seed = seed, .options = *options, .now_ms = 1, .result.ok = true };
    heap_init(&sim->events);
    rng_seeded_init(&sim->rng, seed);
    rng_seeded_init(&sim->net_rng, seed ^ UINT64_C(0x6e6574));
    swarm_init(sim);
    for (int i = 0; i < PLANES; i++) plane_init(sim, i);
    for (int i = 0; i < sim->process_count; i++)
        sim->processes[i] = (struct process){ .sim = sim, .index = i };
    for (int i = 0; i < sim->client_count; i++) client_init(sim, i);
    faults_start(sim);
    for (int i = 0; i < sim->process_count; i++) process_start(&sim->processes[i]);
}

static void drop_messages(struct sim *sim)
{
    for (struct heap_node *n; (n = heap_first(&sim->events));) {
        heap_remove(&sim->events, n);
        message_free(container_of(container_of(n, struct event, node), struct message, event));
    }
}

/* What is still scheduled when clients, processes and the nemesis are gone are messages. */
static void fini(struct sim *sim)
{
    for (int i = 0; i < sim->process_count; i++) process_crash(&sim->processes[i]);
    for (int i = 0; i < sim->process_count; i++) event_stop(sim, &sim->processes[i].comeback);
    for (int i = 0; i < sim->client_count; i++) client_fini(&sim->clients[i]);
    event_stop(sim, &sim->nemesis);
    for (size_t i = 0; i < sizeof sim->repair / sizeof sim->repair[0]; i++)
        event_stop(sim, &sim->repair[i]);
    drop_messages(sim);
    for (int i = 0; i < PLANES; i++) plane_fini(&sim->planes[i]);
}

struct sim_result sim_run(uint64_t seed, const struct sim_options *options)
{
    struct sim *sim = malloc(sizeof *sim);
    CHECK(sim);
    init(sim, seed, options);
    run_with_faults(sim);
    if (sim->result.ok) {
        faults_heal(sim);
        run_to_rest(sim);
    }
    if (sim->result.ok) converge(sim);
    if (sim->result.ok) audit_check_all(sim_ledger(sim));
    for (int i = 0; sim->result.ok && i < sim->process_count; i++)
        process_stop(&sim->processes[i]);
    sim->result.totals.virtual_ms = sim->now_ms;
    fini(sim);
    struct sim_result result = sim->result;
    free(sim);
    return result;
}
