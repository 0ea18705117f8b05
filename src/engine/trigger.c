/* trigger.c - the way of a trigger; see the picture in runs.h.
 *
 * What must happen once is the key or, without one, the id that the caller chose. Who triggers the
 * same at once waits for one claim at coord, which is only there for speed and for one answer across
 * two stores: the ledger's unique key decides, and without coord everything goes to the ledger.
 *
 * The key is resolved under the claim, not before it: what is found then cannot be outdated by a
 * claim that is granted later, and one look serves both. The buffer is asked before the ledger: what
 * a drainer moves in between is found at its end. What is found there is looked up in the ledger, too:
 * a drainer that died may have put it there. What a claim was answered with is a hint; the
 * run itself is looked up. A hint that leads nowhere (its run has FAILED, its key has expired or was
 * reset, coord remembers what was lost) is dropped if it still is what was seen, and the claim is tried
 * again.
 *
 * If the buffer cannot take what was diverted, the ledger does, under the same id: should the buffer
 * have it after all, it is the same run when it is drained.
 *
 * In a storm, while the gate is known to be tripped, a trigger goes a short way: it looks into the
 * ledger, and then one step at coord accepts it, provided that nobody has claimed the key, or has had an
 * entry of it, for longer than that look can be ago. Otherwise it goes the long way, as if it had just
 * come. */
#include "base/check.h"
#include "base/text.h"
#include "engine/runs_internal.h"

enum {
    ROUNDS_MAX = 5,
    RANDOM_BYTES = 10,
};

#define CLAIM_LEASE_MS LEASE_MS_DEFAULT
#define HINT_MS INT64_C(30000)
/* Claims, hints and entries that were written are kept for 30 s: whoever came between a look into the
 * ledger and an accept on the short way is met there, if that was not longer ago than this. */
#define LOOK_MS_MAX INT64_C(10000)

static void claim(struct run_call *c);
static void resolve(struct run_call *c);
static void put(struct run_call *c);
static void accept(struct run_call *c);

/* ---- the new run ---- */

void trigger_fill_id(struct run_call *c)
{
    uint8_t random[RANDOM_BYTES];
    struct engine *e = c->engine;
    e->rng->fill(e->rng, random, sizeof random);
    run_id_make(wall_ms(e), random, &c->args.run.id);
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
    t->by_id = r->id.text[0] && !r->key.len;
    if (!r->id.text[0]) trigger_fill_id(c);
    fill_run(c, wall_ms(c->engine));
    int code = run_check(r, (size_t)c->engine->config.value_bytes_max, reterr);
    if (code) return code;
    struct bytes pieces[] = { r->task, r->payload };
    if (!sha256_pieces(pieces, 2, t->fingerprint))
        return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    r->fingerprint = bytes_of(t->fingerprint, sizeof t->fingerprint);
    return 0;
}

static bool is_once(const struct run_call *c)
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
    if (is_once(c))
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

static void fail_with(struct run_call *c, const struct err *err)
{
    if (!c->canceled) c->err = *err;
    release_then(c, end_failed);
}

static void end_timed_out(struct run_call *c)
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
        fail_with(c, &(struct err){ ERR_NOMEM, "out of memory for the answer" });
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

/* A run has the key, or the id. Is it the one that is asked for? */
static void meet(struct run_call *c, const struct run *run, bool buffered)
{
    const struct run *mine = &c->args.run;
    bool same =
        bytes_eq(run->fingerprint, mine->fingerprint) && bytes_eq(run->task, mine->task);
    if (same || c->args.mismatch_returns)
        found(c, run, buffered, false);
    else
        release_then(c, end_mismatch);
}

/* ---- the ledger ---- */

static void lost_the_claim(struct run_call *c)
{
    c->trigger.claimed = 0;
    claim(c);
}

static void put_answered(struct run_call *c, struct op *op)
{
    struct trigger *t = &c->trigger;
    const struct run *run = c->ask.rows.count ? c->ask.rows.rows[0] : NULL;
    if (op->err.code) {
        if (!run_may_retry(c, op->err.code, put)) fail_with(c, &op->err);
        return;
    }
    if (op->out.outcome == OUTCOME_LOST) { /* too late: the claim may have lapsed */
        c->engine->runs->stats.ownership_lost++;
        release_then(c, lost_the_claim);
        return;
    }
    CHECK(run);
    if (op->out.outcome == OUTCOME_OK)
        found(c, run, false, c->ask.put == PUT_INSERT || t->maybe);
    else if (op->out.outcome == OUTCOME_CACHED)
        found(c, run, false, false);
    else
        meet(c, run, false);
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

static void accept_met(struct run_call *c)
{
    struct run run;
    const struct entry *entry = c->buffer.entries.count ? c->buffer.entries.rows[0] : NULL;
    if (!entry || entry_run(c, entry, &run))
        put(c);
    else if (run_holds_key(&run, wall_ms(c->engine)))
        meet(c, &run, true);
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
    return has(c->engine, CAP_FRESH) && c->args.run.key.len && burst_is_tripped(c);
}

static void go_the_long_way(struct run_call *c)
{
    c->trigger.brief = false;
    claim(c);
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

static bool has_gate(const struct run_call *c)
{
    if (c->degraded || !has(c->engine, CAP_GATE) || !has(c->engine, CAP_BUFFER)) return false;
    return burst_keeps(c);
}

static void nobody_has_it(struct run_call *c)
{
    c->then = gate_answered;
    if (c->trigger.brief)
        accept_briefly(c);
    else if (has_gate(c) && !c->trigger.outlived)
        burst_ask(c);
    else
        put(c);
}

/* ---- a hint that leads nowhere ---- */

static void hint_dropped(struct run_call *c, struct op *op)
{
    if (op->err.code) { /* coord is away: it cannot mislead anybody now */
        c->degraded = true;
        nobody_has_it(c);
        return;
    }
    c->engine->runs->stats.hints_dropped += op->out.outcome == OUTCOME_OK;
    claim(c);
}

/* What is there now: if it is no longer what was seen, it is not dropped. */
static void hint_seen(struct run_call *c, struct op *op)
{
    if (op->err.code) {
        hint_dropped(c, op);
        return;
    }
    bool pending = op->out.outcome == OUTCOME_IN_PROGRESS;
    if (pending && c->trigger.claimed == OUTCOME_MISMATCH && op->out.lease_left_ms > 0) {
        run_finish(c, OUTCOME_MISMATCH); /* C7: who asks for something else does not wait */
        return;
    }
    if (pending || op->out.outcome == OUTCOME_ABSENT) {
        claim(c);
        return;
    }
    struct request in = { .seen = op->out.version };
    run_submit_keyed(c, VERB_FORGET, &c->trigger.key, &in, hint_dropped);
}

static void drop_hint(struct run_call *c)
{
    run_submit_keyed(c, VERB_PEEK, &c->trigger.key, NULL, hint_seen);
}

/* ---- resolving ---- */

static void unresolved(struct run_call *c)
{
    enum outcome said = c->trigger.claimed;
    if (said == OUTCOME_CACHED || said == OUTCOME_MISMATCH)
        drop_hint(c);
    else
        nobody_has_it(c);
}

static void looked_up(struct run_call *c, struct op *op)
{
    if (op->err.code) {
        fail_with(c, &op->err);
        return;
    }
    if (c->trigger.brief) c->degraded = op->degraded; /* nobody else has asked coord */
    const struct run *run = op->out.outcome == OUTCOME_OK ? c->ask.rows.rows[0] : NULL;
    if (run && (c->trigger.by_id || run_holds_key(run, c->ask.now_ms)))
        meet(c, run, false);
    else
        unresolved(c);
}

/* What has the key is found by whoever puts a run there, too: nothing else depends on it if there is
 * no gate, which counts only those that make one. A hint is looked up, and so is an id. */
static bool puts_at_once(const struct run_call *c)
{
    enum outcome said = c->trigger.claimed;
    bool hint = said == OUTCOME_CACHED || said == OUTCOME_MISMATCH;
    return !hint && !c->trigger.by_id && !has_gate(c);
}

static void look_in_ledger(struct run_call *c)
{
    const struct run *r = &c->args.run;
    if (puts_at_once(c)) {
        nobody_has_it(c);
        return;
    }
    c->ask.id = c->trigger.by_id ? r->id : (struct run_id){ 0 };
    c->ask.task = r->task;
    c->ask.key = r->key;
    run_submit(c, VERB_RUN_GET, looked_up);
}

/* The entry, unless the ledger knows more of it: a drainer may have put it there and died before it
 * said so. Then the run may be done, or have FAILED, for as long as the entry looks as if it waited. */
static void entry_checked(struct run_call *c, struct op *op)
{
    struct run run;
    if (op->err.code) {
        fail_with(c, &op->err);
    } else if (op->out.outcome == OUTCOME_ABSENT) {
        if (entry_run(c, c->buffer.entries.rows[0], &run))
            fail_with(c, &(struct err){ ERR_NOMEM, "out of memory; nothing was changed" });
        else
            meet(c, &run, true);
    } else if (c->trigger.by_id || run_holds_key(c->ask.rows.rows[0], c->ask.now_ms)) {
        meet(c, c->ask.rows.rows[0], false);
    } else {
        c->trigger.outlived = true;
        look_in_ledger(c);
    }
}

static void entry_looked_up(struct run_call *c, struct op *op)
{
    struct run run;
    if (op->err.code) c->degraded = true; /* should it be there, it becomes an alias */
    bool there = !op->err.code && op->out.outcome == OUTCOME_OK;
    const struct entry *entry = there ? c->buffer.entries.rows[0] : NULL;
    if (entry && entry->state != ENTRY_WRITTEN && !entry_run(c, entry, &run) &&
        (c->trigger.by_id || run_holds_key(&run, wall_ms(c->engine)))) {
        c->ask.id = entry->id;
        run_submit(c, VERB_RUN_GET, entry_checked);
    } else {
        look_in_ledger(c);
    }
}

static void resolve(struct run_call *c)
{
    if (!is_once(c)) {
        nobody_has_it(c);
        return;
    }
    if (!has(c->engine, CAP_BUFFER) || c->degraded) {
        look_in_ledger(c);
        return;
    }
    c->trigger.outlived = false;
    c->buffer.id = c->trigger.by_id ? c->args.run.id : (struct run_id){ 0 };
    run_submit(c, VERB_ENTRY_GET, entry_looked_up);
}

/* ---- claiming ---- */

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
        fail_with(c, err);
        return;
    }
    if (err->code) {
        c->degraded = true;
        resolve(c);
        return;
    }
    t->claimed = call_answer(call)->outcome;
    if (t->claimed == OUTCOME_TIMED_OUT || t->claimed == OUTCOME_IN_PROGRESS) {
        end_timed_out(c);
        return;
    }
    if (t->claimed == OUTCOME_CLAIMED) take_claim(c, call);
    if (call_waited_ms(call) > 0) c->engine->runs->stats.claim_waits++;
    resolve(c);
}

static void claim(struct run_call *c)
{
    struct trigger *t = &c->trigger;
    struct engine *e = c->engine;
    if (!is_once(c) || !has(e, CAP_GATE)) {
        resolve(c);
        return;
    }
    int64_t left_ms = c->started_ms + c->args.wait_ms - e->loop->now_ms;
    if (t->rounds++ == ROUNDS_MAX) {
        end_timed_out(c);
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
    if (engine_call(e, &args, &t->claim, &err)) fail_with(c, &err);
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
        look_in_ledger(c);
    else
        claim(c);
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
