/* trigger.c - the way of a trigger; see the picture in runs.h. Who has its key is found out in resolve.c.
 *
 * What must happen once is the key or, without one, the id that the caller chose. Who triggers the
 * same at once waits for one claim at coord, which is only there for speed and for one answer across
 * two stores: the ledger's unique key decides, and without coord everything goes to the ledger.
 *
 * The key is resolved under the claim, not before it: what is found then cannot be outdated by a
 * claim that is granted later, and one look serves both.
 *
 * If the buffer cannot take what was diverted, the ledger does, under the same id: should the buffer
 * have it after all, it is the same run when it is drained.
 *
 * A trigger with an ordering key is never diverted: it is the ledger that keeps the order, also of what
 * comes when coord is gone and nobody can tell what the buffer has.
 *
 * In a storm, while the gate is known to be tripped, a trigger goes a short way: it looks into the
 * ledger, and then one step at coord accepts it, provided that nobody has claimed the key, or has had an
 * entry of it, for longer than that look can be ago. Otherwise it goes the long way, as if it had just
 * come. */
#include "base/check.h"
#include "base/text.h"
#include "engine/runs_internal.h"

enum { ROUNDS_MAX = 5 };

#define CLAIM_LEASE_MS LEASE_MS_DEFAULT
#define HINT_MS INT64_C(30000)
/* Claims, hints and entries that were written are kept for 30 s: whoever came between a look into the
 * ledger and an accept on the short way is met there, if that was not longer ago than this. */
#define LOOK_MS_MAX INT64_C(10000)

static void put(struct run_call *c);
static void accept(struct run_call *c);

/* ---- the new run ---- */

void trigger_fill_id(struct run_call *c)
{
    uint8_t random[RUN_ID_RANDOM_BYTES];
    struct engine *e = c->engine;
    e->rng->fill(e->rng, random, sizeof random);
    run_ids_next(&e->runs->ids, wall_ms(e), random, &c->args.run.id);
}

/* Everything that the caller did not say. */
static void fill_run(struct run_call *c, int64_t now_ms)
{
    struct run_args *a = &c->args;
    struct run *r = &a->run;
    r->env = a->env;
    r->state = RUN_QUEUED;
    r->created_at_ms = now_ms;
    if (!r->queue.len) r->queue = r->task;
    if (!r->attempts_max) r->attempts_max = RUN_ATTEMPTS_DEFAULT;
    if (a->delay_ms >= 0) r->delay_until_ms = a->delay_ms ? now_ms + a->delay_ms : 0;
    r->available_at_ms = r->delay_until_ms > now_ms ? r->delay_until_ms : now_ms;
    r->metadata_version = r->metadata.len > 0;
    if (!r->key.len) return;
    r->key_held = true;
    r->key_until_ms = now_ms + (a->key_ms >= 0 ? a->key_ms : RUN_KEY_MS_DEFAULT);
}

int trigger_make(struct run_call *c, struct err *reterr)
{
    struct trigger *t = &c->trigger;
    struct run *r = &c->args.run;
    if (c->args.delay_ms > DURATION_MS_MAX || c->args.key_ms > DURATION_MS_MAX)
        return err_set(reterr, ERR_LIMIT, "a delay or a key's time is longer than ten years");
    t->named = r->id.text[0] && !c->args.id_is_new;
    t->by_id = r->id.text[0] && !r->key.len;
    if (!r->id.text[0]) {
        trigger_fill_id(c);
        c->args.id_is_new = true;
    }
    fill_run(c, wall_ms(c->engine));
    int code = run_check(r, (size_t)c->engine->config.value_bytes_max, reterr);
    if (code) return code;
    struct bytes pieces[] = { r->task, r->payload };
    if (!sha256_pieces(pieces, 2, t->fingerprint))
        return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    r->fingerprint = bytes_of(t->fingerprint, sizeof t->fingerprint);
    return 0;
}

bool trigger_is_once(const struct run_call *c)
{
    return c->trigger.by_id || c->args.run.key.len;
}

/* In a scope that nobody else can name, and with the env's entries in one place. */
static void claim_scope(struct run_call *c)
{
    struct trigger *t = &c->trigger;
    t->scope[0] = KEY_COORD_ONLY;
    memcpy(t->scope + 1, c->args.env.data, c->args.env.len);
    t->key.scope = bytes_of(t->scope, 1 + c->args.env.len);
}

int trigger_claim_key(struct run_call *c, struct bytes task, struct bytes key,
                      struct err *reterr)
{
    struct trigger *t = &c->trigger;
    uint8_t hash[SHA256_BYTES];
    struct bytes pieces[] = { bytes_str(t->by_id ? "id" : "key"), task, key };
    if (!sha256_pieces(pieces, 3, hash))
        return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    hex_encode(bytes_of(hash, sizeof hash), t->name);
    claim_scope(c);
    t->key.name = bytes_of(t->name, CLAIM_NAME_BYTES);
    return 0;
}

static int make_claim(struct run_call *c, struct err *reterr)
{
    const struct run *r = &c->args.run;
    if (trigger_is_once(c))
        return trigger_claim_key(c, r->task, c->trigger.by_id ? run_id_bytes(&r->id) : r->key,
                                 reterr);
    claim_scope(c);
    c->trigger.key.name =
        run_id_bytes(&r->id); /* nothing is claimed, but an entry has its place */
    return 0;
}

/* ---- ends ---- */

static void claim_forgotten(struct run_call *c, struct op *op)
{
    (void)op; /* what could not be released lapses */
    c->trigger.after(c);
}

/* Lets go of the claim, if it is ours, and goes on. */
static void release_then(struct run_call *c, void (*after)(struct run_call *))
{
    struct trigger *t = &c->trigger;
    if (!t->owns) {
        after(c);
        return;
    }
    t->owns = false;
    t->after = after;
    lease_end(c->engine, &t->token);
    run_submit_keyed(c, VERB_RELEASE, &t->key, &(struct request){ .token = t->token },
                     claim_forgotten);
}

static void end_failed(struct run_call *c)
{
    run_fail(c, c->err.code, c->err.text);
}

void trigger_fail(struct run_call *c, const struct err *err)
{
    if (!c->canceled) c->err = *err;
    release_then(c, end_failed);
}

void trigger_timed_out(struct run_call *c)
{
    c->engine->runs->stats.claim_timeouts++;
    run_finish(c, OUTCOME_TIMED_OUT);
}

static void end_mismatch(struct run_call *c)
{
    run_finish(c, OUTCOME_MISMATCH);
}

/* ---- publishing: those who wait are told, and then the caller is ---- */

static void end_found(struct run_call *c)
{
    run_finish(c, c->trigger.created ? OUTCOME_OK : OUTCOME_CACHED);
}

/* Somebody else took the claim over while we were slow. Whoever that was has found our run in the
 * ledger, or has put another one into the buffer a moment before: then that one becomes an alias, now
 * and not when its turn has come. */
static void rival_found(struct run_call *c, struct op *op)
{
    const struct run *mine = c->out.rows.rows[0];
    const struct entry *rival = c->buffer.entries.count ? c->buffer.entries.rows[0] : NULL;
    bool other =
        !op->err.code && op->out.outcome == OUTCOME_OK && !run_id_eq(&rival->id, &mine->id);
    if (other) drainer_take(c->engine, rival->env, &rival->id);
    end_found(c);
}

static void published(struct run_call *c, struct op *op)
{
    bool refused = !op->err.code && op->out.outcome == OUTCOME_LOST && !op->out.mine;
    if (!refused || c->out.buffered) {
        end_found(c);
        return;
    }
    c->engine->runs->stats.ownership_lost++;
    trace_emit(c->engine->trace, (struct trace_event){ .kind = TRACE_LOST,
                                                       .scope = c->trigger.key.scope,
                                                       .key = c->trigger.key.name,
                                                       .text = "trigger" });
    if (!has(c->engine, CAP_BUFFER) || !c->buffer.key_frame.len) {
        end_found(c);
        return;
    }
    c->buffer.id = (struct run_id){ 0 };
    run_submit(c, VERB_ENTRY_GET, rival_found);
}

/* There is a run: what is told, and to those who wait. */
static void found(struct run_call *c, const struct run *run, bool buffered, bool created)
{
    struct trigger *t = &c->trigger;
    c->out.buffered = buffered;
    t->created = created;
    if (created) t->maybe = true; /* whatever fails from now on: it is there */
    run_rows_clear(&c->out.rows);
    if (run_rows_add(&c->out.rows, run)) {
        trigger_fail(c, &(struct err){ ERR_NOMEM, "out of memory for the answer" });
        return;
    }
    if (created && !buffered) work_ring(c->engine, run->env, run->queue);
    if (!t->owns) {
        end_found(c);
        return;
    }
    struct blob *id = blob_new(run_id_bytes(&run->id));
    if (!id) {
        release_then(c, end_found);
        return;
    }
    t->owns = false;
    lease_end(c->engine, &t->token);
    struct request in = { .token = t->token, .value = id, .retain_ms = -1 }; /* as claimed */
    run_submit_keyed(c, VERB_PUBLISH, &t->key, &in, published);
    blob_unref(id);
}

void trigger_other(struct run_call *c, const struct run *run, bool buffered)
{
    if (c->args.mismatch_returns)
        found(c, run, buffered, false);
    else
        release_then(c, end_mismatch);
}

/* A run has the key, or the id. Is it the one that is asked for? */
void trigger_meet(struct run_call *c, const struct run *run, bool buffered)
{
    const struct run *mine = &c->args.run;
    bool same =
        bytes_eq(run->fingerprint, mine->fingerprint) && bytes_eq(run->task, mine->task);
    if (same)
        found(c, run, buffered, false);
    else
        trigger_other(c, run, buffered);
}

void trigger_meet_id(struct run_call *c, const struct run *run, bool buffered)
{
    if (run->canonical.text[0] || run_is_same(run, &c->args.run))
        trigger_meet(c, run, buffered);
    else
        trigger_other(c, run, buffered);
}

/* ---- the ledger ---- */

/* Does it stand in a line of runs that are done one after the other? */
static bool is_in_order(const struct run_call *c)
{
    return c->args.run.ordering_key.len;
}

static bool env_has_gate(const struct run_call *c)
{
    if (c->degraded || !has(c->engine, CAP_GATE) || !has(c->engine, CAP_BUFFER)) return false;
    return burst_keeps(c);
}

/* The gate counts those that make a run, also if it does not keep them. */
static void put_made(struct run_call *c)
{
    if (is_in_order(c) && env_has_gate(c)) burst_passed(c);
}

static void lost_the_claim(struct run_call *c)
{
    c->trigger.claimed = 0;
    trigger_claim(c);
}

/* An earlier try has made it; unless what was made then has become an alias of somebody else's. */
static bool is_mine(const struct run_call *c, const struct run *run)
{
    return c->trigger.maybe && !run->canonical.text[0];
}

static void put_answered(struct run_call *c, struct op *op)
{
    const struct run *run = c->ask.rows.count ? c->ask.rows.rows[0] : NULL;
    if (op->err.code) {
        if (!run_may_retry(c, op->err.code, put)) trigger_fail(c, &op->err);
        return;
    }
    if (op->out.outcome == OUTCOME_LOST) { /* too late: the claim may have lapsed */
        c->engine->runs->stats.ownership_lost++;
        release_then(c, lost_the_claim);
        return;
    }
    CHECK(run);
    if (op->out.outcome == OUTCOME_OK && c->ask.put == PUT_INSERT) put_made(c);
    if (op->out.outcome == OUTCOME_OK)
        found(c, run, false, c->ask.put == PUT_INSERT || is_mine(c, run));
    else if (op->out.outcome == OUTCOME_CACHED)
        found(c, run, false, false);
    else
        trigger_meet(c, run, false);
}

static void put(struct run_call *c)
{
    c->ask.run = &c->args.run;
    c->ask.until_ms = c->trigger.owns ? c->trigger.claim_until_ms : 0;
    run_submit(c, VERB_RUN_PUT, put_answered);
}

/* ---- the buffer ---- */

static void accepted(struct run_call *c)
{
    c->trigger.owns = false; /* it was published in the same step */
    found(c, &c->args.run, true, true);
    drainer_wake(c->engine);
}

/* The key leads to another entry. One whose key has expired has to let go of it first; while it is
 * being drained the ledger will have it in a moment. */
static void entry_let_go(struct run_call *c, struct op *op)
{
    if (!op->err.code && op->out.outcome == OUTCOME_OK)
        accept(c);
    else
        put(c);
}

static void free_key(struct run_call *c, const struct entry *entry)
{
    struct run_change reset = { .kind = RUN_RESET_KEY, .made_at_ms = wall_ms(c->engine) };
    buf_clear(&c->change);
    run_change_encode(&reset, &c->change);
    c->buffer.id = entry->id;
    c->buffer.rev = entry->rev;
    c->buffer.change = buf_bytes(&c->change);
    c->buffer.frees_key = true;
    run_submit(c, VERB_APPEND, entry_let_go);
}

/* Two with one id have come at the same time, and neither has seen the other when it looked. What the
 * ledger has by now, it tells. */
static bool has_my_id(const struct run_call *c, const struct entry *entry)
{
    return run_id_eq(&entry->id, &c->args.run.id);
}

static void accept_met(struct run_call *c)
{
    struct run run;
    const struct entry *entry = c->buffer.entries.count ? c->buffer.entries.rows[0] : NULL;
    if (!entry || entry->state == ENTRY_WRITTEN || entry_run(c, entry, &run))
        put(c);
    else if (has_my_id(c, entry))
        trigger_meet_id(c, &run, true);
    else if (run_holds_key(&run, wall_ms(c->engine)))
        trigger_meet(c, &run, true);
    else
        free_key(c, entry);
}

static void accept_answered(struct run_call *c, struct op *op)
{
    struct trigger *t = &c->trigger;
    if (op->err.code == ERR_AMBIGUOUS) t->maybe = true;
    if (op->err.code) {
        put(c);
        return;
    }
    if (op->out.outcome == OUTCOME_OK) {
        if (t->owns) lease_end(c->engine, &t->token);
        accepted(c);
    } else if (op->out.outcome == OUTCOME_CACHED) {
        accept_met(c);
    } else {
        c->engine->runs->stats.ownership_lost++;
        release_then(c, lost_the_claim);
    }
}

static void offer(struct run_call *c, run_step *then)
{
    struct trigger *t = &c->trigger;
    buf_clear(&c->packed);
    run_encode(&c->args.run, &c->packed);
    struct blob *id = blob_new(run_id_bytes(&c->args.run.id));
    if (buf_failed(&c->packed) || !id) {
        blob_unref(id);
        put(c);
        return;
    }
    c->buffer.id = c->args.run.id;
    c->buffer.run = buf_bytes(&c->packed);
    c->buffer.unclaimed = !t->owns;
    c->buffer.fresh = t->brief;
    c->buffer.frees_key = false;
    struct request in = { .token = t->token, .value = id, .retain_ms = -1 }; /* as claimed */
    run_submit_keyed(c, VERB_ACCEPT, &t->key, &in, then);
    blob_unref(id);
}

static void accept(struct run_call *c)
{
    offer(c, accept_answered);
}

/* ---- the short way ---- */

static bool may_be_brief(const struct run_call *c)
{
    if (c->trigger.named) return false; /* its id is to be looked up, too */
    if (is_in_order(c)) return false;
    return has(c->engine, CAP_FRESH) && c->args.run.key.len && burst_is_tripped(c);
}

static void go_the_long_way(struct run_call *c)
{
    c->trigger.brief = false;
    trigger_claim(c);
}

static void brief_answered(struct run_call *c, struct op *op)
{
    if (!op->err.code && op->out.outcome != OUTCOME_OK) {
        go_the_long_way(c);
        return;
    }
    if (op->err.code)
        c->degraded = true;
    else
        burst_diverted(c);
    c->trigger.brief = false;
    accept_answered(c, op);
}

/* The ledger has nobody. */
static void accept_briefly(struct run_call *c)
{
    int64_t looked_ms = c->engine->loop->now_ms - c->started_ms;
    if (looked_ms <= LOOK_MS_MAX && burst_is_tripped(c))
        offer(c, brief_answered);
    else
        go_the_long_way(c);
}

/* ---- the gate ---- */

static void gate_answered(struct run_call *c)
{
    if (c->trigger.diverted)
        accept(c);
    else
        put(c);
}

bool trigger_has_gate(const struct run_call *c)
{
    return env_has_gate(c) && !is_in_order(c);
}

void trigger_nobody(struct run_call *c)
{
    c->then = gate_answered;
    if (c->trigger.brief)
        accept_briefly(c);
    else if (trigger_has_gate(c) && !c->trigger.outlived)
        burst_ask(c);
    else
        put(c);
}

/* ---- claiming ---- */

int64_t trigger_left_ms(const struct run_call *c)
{
    return c->started_ms + c->args.wait_ms - c->engine->loop->now_ms;
}

static void take_claim(struct run_call *c, struct call *call)
{
    struct trigger *t = &c->trigger;
    t->owns = true;
    t->token = *call_token(call);
    t->claim_until_ms = c->engine->loop->now_ms + call_answer(call)->lease_left_ms;
    c->engine->runs->stats.claims++;
}

static void claim_answered(struct call *call, void *ctx)
{
    struct run_call *c = ctx;
    struct trigger *t = &c->trigger;
    const struct err *err = call_error(call);
    t->claim = NULL;
    if (err->code == ERR_CANCELED || err->code == ERR_NOMEM) {
        trigger_fail(c, err);
        return;
    }
    if (err->code) {
        c->degraded = true;
        resolve(c);
        return;
    }
    t->claimed = call_answer(call)->outcome;
    if (t->claimed == OUTCOME_TIMED_OUT || t->claimed == OUTCOME_IN_PROGRESS) {
        trigger_timed_out(c);
        return;
    }
    if (t->claimed == OUTCOME_CLAIMED) take_claim(c, call);
    if (call_waited_ms(call) > 0) c->engine->runs->stats.claim_waits++;
    resolve(c);
}

void trigger_claim(struct run_call *c)
{
    struct trigger *t = &c->trigger;
    struct engine *e = c->engine;
    if (!trigger_is_once(c) || !has(e, CAP_GATE)) {
        resolve(c);
        return;
    }
    int64_t left_ms = trigger_left_ms(c);
    if (t->rounds++ == ROUNDS_MAX) {
        trigger_timed_out(c);
        return;
    }
    struct call_args args = { .verb = VERB_CLAIM,
                              .key = t->key,
                              .internal = true,
                              .in = { .lease_ms = CLAIM_LEASE_MS,
                                      .retain_ms = HINT_MS,
                                      .fingerprint = c->args.run.fingerprint },
                              .wait_ms = left_ms > 0 ? left_ms : 0,
                              .renew = true,
                              .done = claim_answered,
                              .ctx = c };
    struct err err;
    if (engine_call(e, &args, &t->claim, &err)) trigger_fail(c, &err);
}

int trigger_start(struct run_call *c, struct err *reterr)
{
    int r = trigger_make(c, reterr);
    if (!r) r = make_claim(c, reterr);
    if (r) return r;
    if (c->args.run.key.len)
        c->buffer.key_frame =
            bytes_of(c->trigger.key_frame,
                     run_key_frame(c->args.run.task, c->args.run.key, c->trigger.key_frame));
    c->trigger.brief = may_be_brief(c);
    if (c->trigger.brief)
        resolve_in_ledger(c);
    else
        trigger_claim(c);
    return 0;
}

void trigger_like(struct run_call *c, const struct run *run)
{
    struct err err = { ERR_NOMEM, "out of memory; nothing was changed" };
    struct run *like = c->like = run_copy(run);
    if (!like) {
        run_fail(c, err.code, err.text);
        return;
    }
    c->args.run =
        (struct run){ .id = c->args.run.id, /* of the new one, if it has one already */
                      .task = like->task,
                      .queue = like->queue,
                      .payload = like->payload,
                      .ordering_key = like->ordering_key,
                      .tags = like->tags,
                      .metadata = like->metadata,
                      .attempts_max = like->attempts_max };
    c->args.delay_ms = -1;
    if (trigger_start(c, &err)) run_fail(c, err.code, err.text);
}
