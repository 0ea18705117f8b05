/* client.c - callers: they claim, work, publish, release, crash with their process, come back
 * with tokens of yesterday, ask with another payload, and now and then send nonsense.
 *
 * One call at a time per client. What a claim leads to is an execution: the oracle of how often
 * the work was done is the list of grants that somebody was told about (history.c). */
#include "base/check.h"
#include "tests/sim/internal.h"

#include <stdio.h>

static void think(struct client *c)
{
    struct sim *sim = c->sim;
    event_at(sim, &c->step, sim->now_ms + between(&c->rng, 0, sim->swarm.think_ms));
}

static void remember(struct client *c, const struct claim *claim)
{
    struct claim *slot = &c->old[rng_below(&c->rng.base, OLD_CLAIMS)];
    blob_unref(slot->value);
    *slot = *claim;
    blob_ref(slot->value);
}

static void drop_held(struct client *c)
{
    if (c->holds) remember(c, &c->held);
    blob_unref(c->held.value);
    c->held.value = NULL;
    c->holds = false;
}

/* ---- calls ---- */

static void clear_attempt(struct client *c)
{
    blob_unref(c->attempt.value);
    c->attempt.value = NULL;
    c->call = NULL;
    event_stop(c->sim, &c->cancel);
}

static void lost(const struct owner *owner, const struct token *token, uint64_t fence,
                 int64_t lease_ms, bool certain)
{
    (void)fence, (void)lease_ms;
    struct client *c = owner->ctx;
    if (c->process->dying) return;
    sim_say(c->sim, "c%d: told that its lease is lost%s", c->index, certain ? "" : ", perhaps");
    if (certain && c->holds && token_eq(&c->held.token, token)) history_lost(c, token);
    bool gives_up = certain && chance(&c->rng, 500);
    if (gives_up && c->holds && token_eq(&c->held.token, token)) drop_held(c);
}

static void begin_to_work(struct client *c, const struct answer *out)
{
    struct attempt *a = &c->attempt;
    c->holds = true;
    c->held = (struct claim){ .ident = a->ident,
                              .token = a->token,
                              .fence = out->fence,
                              .lease_ms = a->lease_ms,
                              .renew = a->renew };
    int64_t typical_ms = a->lease_ms / 3 + 5, long_ms = a->lease_ms * 2 + 5;
    bool takes_long = chance(&c->rng, 200);
    int64_t work_ms = between(&c->rng, 0, takes_long ? long_ms : typical_ms);
    if (c->heals) work_ms = 1;
    c->hold_until_ms = c->sim->now_ms + work_ms;
}

static bool ends_work(const struct client *c)
{
    const struct attempt *a = &c->attempt;
    if (a->verb != VERB_PUBLISH && a->verb != VERB_RELEASE) return false;
    return c->holds && token_eq(&a->token, &c->held.token);
}

static void answered(struct call *call, void *ctx)
{
    struct client *c = ctx;
    struct sim *sim = c->sim;
    CHECK(c->call == call);
    if (c->process->dying) {
        clear_attempt(c);
        return;
    }
    const struct err *err = call_error(call);
    const struct answer *out = call_answer(call);
    struct attempt *a = &c->attempt;
    if (a->verb == VERB_CLAIM && call_op(call)) {
        a->token = *call_token(call);
        a->has_token = true;
    }
    sim_say(sim, "c%d: #%llu %s answered %s", c->index, (unsigned long long)a->id,
            verb_info[a->verb].name,
            err->code ? err_name(err->code) : outcome_name(out->outcome));
    sim_note(sim, a->id, (uint64_t)(int64_t)err->code, err->code ? 0 : out->outcome);
    history_answered(c, err, out);
    bool won = a->verb == VERB_CLAIM && !err->code && out->outcome == OUTCOME_CLAIMED;
    if (won) begin_to_work(c, out);
    if (ends_work(c) && !err->code) drop_held(c); /* after an error it tries again */
    clear_attempt(c);
    think(c);
}

/* An attempt with its place in history; the rest is filled in by the caller. */
static struct attempt *new_attempt(struct client *c, enum verb verb, int ident)
{
    struct sim *sim = c->sim;
    c->attempt = (struct attempt){ .id = ++sim->attempts,
                                   .verb = verb,
                                   .ident = ident,
                                   .seq = sim_tick(sim),
                                   .at_ms = sim->now_ms,
                                   .paused_ms = process_paused_ms(c->process) };
    return &c->attempt;
}

static struct call_args args_of(struct client *c)
{
    struct attempt *a = &c->attempt;
    return (struct call_args){
        .verb = a->verb,
        .key = ident_key(a->ident),
        .in = { .token = a->token,
                .lease_ms = a->lease_ms,
                .retain_ms = a->retain_ms,
                .fingerprint = fingerprint_bytes(a->fingerprint),
                .value = a->value },
        .wait_ms = a->wait_ms,
        .renew = a->renew,
        .owner = { .lost = lost, .ctx = c },
        .done = answered,
        .ctx = c,
    };
}

static void invoke(struct client *c)
{
    struct call_args args = args_of(c);
    struct err err;
    struct process *p = c->process;
    struct attempt *a = &c->attempt;
    sim_say(c->sim, "c%d@p%d: #%llu %s %.*s/%.*s wait %lld lease %lld", c->index, p->index,
            (unsigned long long)a->id, verb_info[a->verb].name, (int)args.key.scope.len,
            args.key.scope.data, (int)args.key.name.len, args.key.name.data,
            (long long)a->wait_ms, (long long)a->lease_ms);
    loop_update(&p->loop, c->sim->now_ms);
    if (a->verb == VERB_CLAIM) pace_arrived(c);
    c->sim->result.totals.calls++;
    int r = engine_call(p->engine, &args, &c->call, &err);
    if (r)
        violation(c->sim, "C9", "a valid %s was refused: %s", verb_info[a->verb].name,
                  err.text);
    process_kick(p);
    bool changes_its_mind = a->wait_ms > 0 && !c->heals && chance(&c->rng, 100);
    if (changes_its_mind)
        event_at(c->sim, &c->cancel, c->sim->now_ms + between(&c->rng, 0, a->wait_ms));
}

static void cancel(struct sim *sim, struct event *ev)
{
    struct client *c = container_of(ev, struct client, cancel);
    if (!c->call || c->process->paused) return;
    sim_say(sim, "c%d: cancels #%llu", c->index, (unsigned long long)c->attempt.id);
    loop_update(&c->process->loop, sim->now_ms);
    call_cancel(c->call);
    process_kick(c->process);
}

/* ---- what a client does next ---- */

static int any_ident(struct client *c)
{
    return c->sim->idents[rng_below(&c->rng.base, (uint64_t)c->sim->ident_count)];
}

static int any_fingerprint(struct client *c, int ident)
{
    if (!chance(&c->rng, c->sim->swarm.other_fingerprint)) return ident % FINGERPRINTS;
    return (int)rng_below(&c->rng.base, FINGERPRINTS);
}

static int64_t any_of(struct client *c, const int64_t *from, size_t count)
{
    return from[rng_below(&c->rng.base, count)];
}

#define ANY_OF(c, ...)                                                                         \
    any_of(c, (const int64_t[]){ __VA_ARGS__ },                                                \
           sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))

static void do_claim(struct client *c)
{
    const struct swarm *swarm = &c->sim->swarm;
    struct attempt *a = new_attempt(c, VERB_CLAIM, any_ident(c));
    a->fingerprint = any_fingerprint(c, a->ident);
    a->wait_ms = ANY_OF(c, 0, 0, 200, swarm->lease_ms, 2 * swarm->lease_ms + 3000, 5000);
    a->lease_ms = swarm->lease_ms;
    if (chance(&c->rng, swarm->odd_leases)) a->lease_ms = ANY_OF(c, 0, 1, 50, 1000, 30000);
    a->retain_ms = swarm->retain_ms;
    if (chance(&c->rng, 100)) a->retain_ms = ANY_OF(c, 0, 1, 500, 20000);
    a->renew = !chance(&c->rng, 250);
    invoke(c);
}

static struct blob *any_value(struct client *c)
{
    char text[VALUE_BYTES_MAX];
    if (chance(&c->rng, 60)) return NULL;
    if (chance(&c->rng, 60)) return blob_new(bytes_of("", 0));
    snprintf(text, sizeof text, "value %u of client %d", ++c->values, c->index);
    return blob_new(bytes_str(text));
}

static void use_token(struct client *c, enum verb verb, const struct claim *claim)
{
    struct attempt *a = new_attempt(c, verb, claim->ident);
    a->token = claim->token;
    a->has_token = true;
    a->retain_ms = -1;
    a->lease_ms = -1;
}

static void do_publish(struct client *c, const struct claim *claim, struct blob *value)
{
    use_token(c, VERB_PUBLISH, claim);
    c->attempt.value = value;
    if (chance(&c->rng, 50)) c->attempt.retain_ms = ANY_OF(c, 0, 300, 60000);
    invoke(c);
}

/* Somebody who has not heard that the world went on. */
static void do_stale(struct client *c)
{
    const struct claim *claim = &c->old[rng_below(&c->rng.base, OLD_CLAIMS)];
    if (!claim->fence) return;
    static const enum verb verbs[] = { VERB_PUBLISH, VERB_PUBLISH, VERB_RELEASE, VERB_RENEW };
    enum verb verb = verbs[rng_below(&c->rng.base, 4)];
    if (verb == VERB_PUBLISH) {
        bool same = claim->value && chance(&c->rng, 600);
        do_publish(c, claim, same ? blob_ref(claim->value) : any_value(c));
        return;
    }
    use_token(c, verb, claim);
    invoke(c);
}

static void do_peek(struct client *c)
{
    new_attempt(c, VERB_PEEK, any_ident(c));
    invoke(c);
}

static void do_forget(struct client *c)
{
    new_attempt(c, VERB_FORGET, any_ident(c));
    invoke(c);
}

/* C9: refused at once, with a reason, and nothing was sent anywhere. */
static void do_nonsense(struct client *c)
{
    struct sim *sim = c->sim;
    struct attempt *a = new_attempt(c, VERB_CLAIM, any_ident(c));
    uint8_t big[VALUE_BYTES_MAX + 1] = { 0 };
    struct call_args args = args_of(c);
    struct blob *value = NULL;
    switch (sim->options.plant == PLANT_BAD_ACCEPTED ? 99 : rng_below(&c->rng.base, 8)) {
    case 0:
        args.key.scope = bytes_str("no space");
        break;
    case 1:
        args.key.name = bytes_str("");
        break;
    case 2:
        args.key.name = bytes_str("a\nb");
        break;
    case 3:
        args.in.lease_ms = -1;
        break;
    case 4:
        args.wait_ms = DURATION_MS_MAX + 1;
        break;
    case 5:
        args.in.fingerprint = bytes_of(big, sizeof big);
        break;
    case 6:
        args.in.retain_ms = -5;
        break;
    case 7:
        args.verb = VERB_PUBLISH;
        args.in.value = value = blob_new(bytes_of(big, sizeof big));
        break;
    default:
        break;
    }
    uint64_t submits = sim->submits;
    struct err err = { 0 };
    loop_update(&c->process->loop, sim->now_ms);
    int r = engine_call(c->process->engine, &args, &c->call, &err);
    blob_unref(value);
    if (!r || sim->submits != submits)
        violation(sim, "C9", "nonsense #%llu was not refused", (unsigned long long)a->id);
    if (r && !err.text[0]) violation(sim, "C9", "refused without a reason");
}

static void go_on_working(struct client *c)
{
    struct claim claim = c->held;
    unsigned dice = (unsigned)rng_below(&c->rng.base, 100);
    if (dice < 12 && !c->heals) {
        use_token(c, VERB_RENEW, &claim);
        if (chance(&c->rng, 300))
            c->attempt.lease_ms = ANY_OF(c, 0, claim.lease_ms / 2, claim.lease_ms * 2);
        invoke(c);
        return;
    }
    if (c->sim->now_ms < c->hold_until_ms) {
        event_at(c->sim, &c->step, c->hold_until_ms);
        return;
    }
    bool vanishes = dice < 25 && !claim.renew && !c->heals;
    if (vanishes) {
        drop_held(c);
        return;
    }
    if (dice < 40) {
        use_token(c, VERB_RELEASE, &claim);
        invoke(c);
        return;
    }
    struct blob *value = any_value(c);
    blob_unref(c->held.value);
    c->held.value = blob_ref(value);
    do_publish(c, &claim, value);
}

static void start_something(struct client *c)
{
    unsigned dice = (unsigned)rng_below(&c->rng.base, 1000);
    if (dice < 80)
        do_peek(c);
    else if (dice < 240)
        do_stale(c);
    else if (dice < 270)
        do_nonsense(c);
    else if (dice < 270 + c->sim->swarm.forgets)
        do_forget(c);
    else
        do_claim(c);
}

static void step(struct sim *sim, struct event *ev)
{
    struct client *c = container_of(ev, struct client, step);
    if (c->call || !c->process->up) return;
    if (c->process->paused) {
        event_at(sim, &c->step, sim->now_ms + 50);
        return;
    }
    if (c->holds)
        go_on_working(c);
    else if (!c->heals)
        start_something(c);
    bool idle = !c->call && !event_is_set(&c->step);
    if (idle && (c->holds || !c->heals)) think(c);
}

bool client_probe(struct client *c, int ident, int fingerprint)
{
    if (c->call || c->holds || !c->process->up) return false;
    struct attempt *a = new_attempt(c, VERB_CLAIM, ident);
    a->fingerprint = fingerprint;
    a->lease_ms = 1000;
    a->retain_ms = 3600 * 1000;
    a->renew = true;
    invoke(c);
    return true;
}

/* ---- coming and going ---- */

void client_init(struct sim *sim, int index)
{
    struct client *c = &sim->clients[index];
    *c = (struct client){ .sim = sim, .index = index };
    c->process = &sim->processes[index % sim->process_count];
    rng_seeded_init(&c->rng, sim->seed * 1000003 + (uint64_t)index);
    event_init(&c->step, step);
    event_init(&c->cancel, cancel);
}

void client_fini(struct client *c)
{
    drop_held(c);
    blob_unref(c->attempt.value);
    for (int i = 0; i < OLD_CLAIMS; i++) blob_unref(c->old[i].value);
    event_stop(c->sim, &c->step);
    event_stop(c->sim, &c->cancel);
}

void client_process_gone(struct client *c)
{
    drop_held(c);
    clear_attempt(c);
    event_stop(c->sim, &c->step);
}

void client_process_back(struct client *c)
{
    if (!c->heals) think(c);
}

struct client *client_of_call(struct process *p, const void *call)
{
    for (int i = 0; i < p->sim->client_count; i++) {
        struct client *c = &p->sim->clients[i];
        if (c->process == p && c->call && c->call == call) return c;
    }
    return NULL;
}
