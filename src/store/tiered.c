/* tiered.c - coord in front of the ledger. Implements section 3 of the design:
 *
 *   T1 The ledger decides. Its claim is asked for whether or not coord is healthy; coord may
 *      only say "already done" or "somebody is on it", never "you may".
 *   T2 Coord may be refused, hung, flushed or wrong: every coord step has a deadline; one that is
 *      missed, or repeated failure, opens a breaker, and without coord the same answers come from
 *      the ledger, marked degraded.
 *   T3 Coord is told after the ledger has decided, and only what the ledger decided. It is told
 *      before the caller is, so that a caller's next question cannot meet a stale coord.
 *   T4 "Already done" from a coord that other processes cannot reach is believed only if the
 *      ledger is ours alone: somebody else may have forgotten the key.
 *
 *   claim    coord claim --in_progress, done--> answer
 *              '-- claimed, mismatch, failed --> ledger claim --> coord: publish what it has,
 *                  release if somebody else owns it there, or put the new owner in the place
 *                  of what contradicts it --> answer
 *   publish, release, renew, forget    ledger --> coord --> answer
 *   peek, scan, stats                  ledger
 *   ping                               ledger; for what they say of themselves, both
 *   expire                             both
 *   runs, markers                      ledger
 *   gate, buffer, coord_only           coord alone (the buffer may be a store of its own): it answers,
 *                                      or they fail at once while the breaker is open. Where coord is
 *                                      this process's own, and the ledger is not, the buffer has what is
 *                                      coord_only: other processes have to see it
 *   watch                              the plane that gave the answer (a bit in the version) */
#include "store/tiered.h"
#include "base/check.h"
#include "base/museum.h"

#include <stdlib.h>

/* ---- answering ---- */

static void answer_from_coord(struct op *op, const struct op *step)
{
    op_clear_answer(op);
    op->out = step->out;
    op->heard = step->heard;
    blob_ref(op->out.value);
    op->out.version |= PLANE_COORD;
    tier_answer(op);
}

/* Coord's copy contradicts the ledger: drop it, whatever it is. */
static void drop_copy(struct tiered *t, struct op *op, step_then *then)
{
    struct step *s = tier_step_for(t, op, VERB_FORGET);
    if (s) s->op->in.force = true;
    tier_step_start(t, op, s, then);
}

/* Coord has another answer: a forget did not reach it. The next question must not meet that. */
static void then_published(struct tiered *t, struct op *op, const struct op *answered)
{
    bool refused = answered && answered->out.outcome == OUTCOME_LOST;
    bool finished = refused && answered->out.retain_left_ms > 0;
    if (finished && !blob_eq(answered->out.value, answered->in.value))
        drop_copy(t, op, tier_then_answer);
    else
        tier_answer(op);
}

/* What the ledger keeps, coord keeps for as long and no longer: what was left when the ledger
 * answered is less by now, by a whole pause of this process if it was stopped in between. */
static int64_t retain_now_ms(const struct tiered *t, const struct op *op)
{
    if (BUG(COORD_KEEPS_LONGER)) return op->out.retain_left_ms;
    int64_t left_ms = op->out.retain_left_ms - (t->base.loop->now_ms - op->submitted_ms);
    return left_ms > 0 ? left_ms : 0;
}

static void publish_copy(struct tiered *t, struct op *op, struct blob *value)
{
    struct step *s = tier_step_for(t, op, VERB_PUBLISH);
    if (s) {
        blob_unref(s->op->in.value);
        s->op->in.value = blob_ref(value);
        s->op->in.retain_ms = retain_now_ms(t, op);
    }
    tier_step_start(t, op, s, then_published);
}

static void ask_ledger(struct tiered *t, struct op *op, op_done *done)
{
    op_push(op, done, t);
    store_submit(t->ledger, op);
}

/* ---- claim ---- */

static bool is_done(enum outcome o)
{
    return o == OUTCOME_CACHED || o == OUTCOME_ALREADY_DONE;
}

/* The ledger failed. An ambiguous claim keeps its place at coord: it is asked for again with
 * the same token. */
static void claim_failed(struct tiered *t, struct op *op)
{
    bool give_back = op->at_coord && op->err.code != ERR_AMBIGUOUS;
    if (give_back)
        tier_step(t, op, VERB_RELEASE, tier_then_answer);
    else
        tier_answer(op);
}

/* Coord contradicts the ledger's grant: the new owner takes the place of whatever is there. An
 * empty place would be taken in turns by callers with another fingerprint, who would wait for
 * each other instead of being told mismatch. */
static void take_place(struct tiered *t, struct op *op)
{
    if (BUG(EMPTY_PLACE)) {
        drop_copy(t, op, tier_then_answer);
        return;
    }
    struct step *s = tier_step_for(t, op, VERB_CLAIM);
    if (s) s->op->in.force = true;
    tier_step_start(t, op, s, tier_then_answer);
}

static void claim_decided(struct op *op, void *ctx)
{
    struct tiered *t = ctx;
    if (op->err.code) {
        claim_failed(t, op);
        return;
    }
    if (op->at_coord) {
        if (op->out.outcome == OUTCOME_CLAIMED)
            tier_answer(op);
        else if (is_done(op->out.outcome))
            publish_copy(t, op, op->out.value);
        else
            tier_step(t, op, VERB_RELEASE, tier_then_answer);
        return;
    }
    /* Coord was not used, or said something that the ledger does not confirm. */
    if (op->out.outcome == OUTCOME_CLAIMED && !op->degraded)
        take_place(t, op);
    else
        tier_answer(op);
}

static bool done_is_believed(const struct tiered *t)
{
    return (t->coord->caps & CAP_SHARED) || !(t->ledger->caps & CAP_SHARED); /* T4 */
}

/* An answer that moved the lease at coord (R6: the clock went back) has to move it in the
 * ledger, too, or the owner would be replaced after two leases. */
static bool absorbs(const struct tiered *t, const struct op *step)
{
    enum outcome o = step->out.outcome;
    if (o == OUTCOME_IN_PROGRESS) return !step->changed;
    if (BUG(COORD_GRANTS) && o == OUTCOME_CLAIMED) return true;
    return is_done(o) && done_is_believed(t);
}

static void claim_met_coord(struct tiered *t, struct op *op, const struct op *step)
{
    if (step && absorbs(t, step)) {
        answer_from_coord(op, step);
        return;
    }
    op->at_coord = step && step->out.outcome == OUTCOME_CLAIMED;
    ask_ledger(t, op, claim_decided); /* T1; also after mismatch, which may be stale */
}

/* ---- publish, release, renew, forget: the ledger first ---- */

/* Refused: it is not the owner, so it gives up its place at coord, too. Unless it was refused
 * because it has published: then coord is about to be told, and needs the place for that. */
static void step_aside(struct tiered *t, struct op *op)
{
    if (op->out.mine)
        tier_answer(op);
    else
        tier_step(t, op, VERB_RELEASE, tier_then_answer);
}

static void publish_decided(struct op *op, void *ctx)
{
    struct tiered *t = ctx;
    if (op->err.code)
        tier_answer(op);
    else if (op->out.outcome == OUTCOME_OK)
        publish_copy(t, op, op->in.value);
    else
        step_aside(t, op);
}

static void release_decided(struct op *op, void *ctx)
{
    if (op->err.code)
        tier_answer(op);
    else
        step_aside(ctx, op);
}

static void renew_decided(struct op *op, void *ctx)
{
    struct tiered *t = ctx;
    if (op->err.code)
        tier_answer(op);
    else if (op->out.outcome == OUTCOME_OK)
        tier_step(t, op, VERB_RENEW, tier_then_answer);
    else
        step_aside(t, op);
}

/* A copy that could not be dropped would still be served: that is not "forgotten". */
static void then_forgotten(struct tiered *t, struct op *op, const struct op *step)
{
    (void)t;
    if (step) {
        tier_answer(op);
        return;
    }
    tier_step_drop(op);
    op_fail(op, ERR_AMBIGUOUS,
            "the ledger has forgotten it, but coord could not be told and may still answer");
}

static void forget_decided(struct op *op, void *ctx)
{
    struct tiered *t = ctx;
    if (op->err.code || op->out.outcome == OUTCOME_IN_PROGRESS)
        tier_answer(op);
    else
        drop_copy(t, op, then_forgotten);
}

static void ledger_answered(struct op *op, void *ctx)
{
    (void)ctx;
    tier_answer(op);
}

/* ---- watch ---- */

static void watch_at_coord_done(struct op *op, void *ctx)
{
    struct watching *w = ctx;
    if (!done_is_believed(w->tiered)) op->answers = false;
    link_remove(&w->link);
    free(w);
    op_finish(op);
}

static void refuse_run(struct task *task)
{
    struct tiered *t = container_of(task, struct tiered, refuse);
    ops_finish(&t->refused);
}

/* Fails an op from inside submit: it is told in the next turn. */
static void refuse(struct tiered *t, struct op *op, int code, const char *text)
{
    op_clear_answer(op);
    err_set(&op->err, code, "%s", text);
    op->refused = true;
    list_append(&t->refused, &op->link);
    task_post(t->base.loop, &t->refuse);
}

static void ledger_answered(struct op *op, void *ctx);

static void submit_watch(struct tiered *t, struct op *op)
{
    if (op->coord_only && t->alone != t->coord) {
        op->seen &= ~PLANE_COORD;
        op_push(op, ledger_answered, t);
        store_submit(t->alone, op);
        return;
    }
    bool coord_saw_it = op->coord_only || (op->seen & PLANE_COORD);
    if (!coord_saw_it && (t->ledger->caps & CAP_NOTIFY)) {
        ask_ledger(t, op, ledger_answered);
        return;
    }
    struct watching *w = NULL;
    if (coord_saw_it && !t->open && (t->coord->caps & CAP_NOTIFY)) w = malloc(sizeof *w);
    if (!w) {
        refuse(t, op, ERR_UNSUPPORTED, "no plane can tell of changes now; ask again");
        return;
    }
    *w = (struct watching){ .tiered = t, .op = op };
    link_init(&w->link);
    list_append(&t->watches, &w->link);
    op->seen &= ~PLANE_COORD;
    op->at_coord = true;
    op_push(op, watch_at_coord_done, w);
    store_submit(t->coord, op);
}

/* ---- the verbs ---- */

static void submit_claim(struct tiered *t, struct op *op)
{
    tier_step(t, op, VERB_CLAIM, claim_met_coord);
}

/* Whoever changes the ledger will have to tell coord: without memory for that, nothing
 * starts. */
static void ask_ledger_first(struct tiered *t, struct op *op, op_done *done)
{
    if (t->open || tier_step_reserve(t, op))
        ask_ledger(t, op, done);
    else
        refuse(t, op, ERR_NOMEM, "out of memory; nothing was changed");
}

static void submit_publish(struct tiered *t, struct op *op)
{
    if (BUG(RELEASE_BEFORE_RESULT) && !t->open)
        tier_step_start(t, NULL, tier_step_new(t, op_copy(op, op->verb)), NULL);
    ask_ledger_first(t, op, publish_decided);
}

static void submit_release(struct tiered *t, struct op *op)
{
    ask_ledger_first(t, op, release_decided);
}

static void submit_renew(struct tiered *t, struct op *op)
{
    ask_ledger_first(t, op, renew_decided);
}

static void submit_forget(struct tiered *t, struct op *op)
{
    if (t->open)
        refuse(t, op, ERR_UNAVAILABLE, "coord cannot be reached; nothing was forgotten");
    else
        ask_ledger_first(t, op, forget_decided);
}

static void buffer_expired(struct op *op, void *ctx)
{
    struct tiered *t = ctx;
    t->steps--;
    op_free(op);
}

/* Nobody is told how many those were. */
static void expire_buffer(struct tiered *t, const struct op *like)
{
    struct op *op = op_new(VERB_EXPIRE, NULL, NULL);
    if (!op) return;
    op->limit = like->limit;
    op->routine = like->routine;
    t->steps++;
    op_push(op, buffer_expired, t);
    store_submit(t->buffer, op);
}

static void submit_expire(struct tiered *t, struct op *op)
{
    if (!t->open) {
        struct step *s = tier_step_new(t, op_new(VERB_EXPIRE, NULL, NULL));
        if (s) {
            s->op->limit = op->limit;
            s->op->routine = op->routine;
        }
        tier_step_start(t, NULL, s, NULL);
    }
    if (t->buffer) expire_buffer(t, op);
    ask_ledger(t, op, ledger_answered);
}

/* ---- ping: both planes, when they are asked what they say of themselves ---- */

static void ping_answered(struct op *op, void *ctx)
{
    const struct tiered *t = ctx;
    struct step *coord = op->step;
    struct op ledger = { .facts = op->facts }, without = { 0 }, spool = { 0 };
    op->facts = NULL;
    if (op->degraded)
        fact_add(&without, FACT_WARN, "reached",
                 "the ledger decides alone; answers say degraded", "no: %.150s", t->why.text);
    if (t->spool) tier_spool_fact(t, &spool);
    facts_take(op, coord && !op->degraded ? coord->op : &without, "coord");
    facts_take(op, &spool, "coord");
    facts_take(op, &ledger, "ledger");
    tier_answer(op);
}

static void ping_met_coord(struct tiered *t, struct op *op, const struct op *answered)
{
    (void)answered; /* what coord said waits in the op's step */
    ask_ledger(t, op, ping_answered);
}

static void submit_ping(struct tiered *t, struct op *op)
{
    if (!op->wants_facts) {
        ask_ledger(t, op, ledger_answered);
        return;
    }
    struct step *s = tier_step_for(t, op, VERB_PING);
    if (s) s->op->wants_facts = true;
    tier_step_start(t, op, s, ping_met_coord);
}

static void submit_ledger(struct tiered *t, struct op *op)
{
    ask_ledger(t, op, ledger_answered);
}

/* ---- coord alone: what the ledger has no part in ---- */

/* Such an op goes to coord itself, without a step: what it points to is its submitter's and must not
 * be left behind. Its store keeps deadlines. */
static void coord_alone_failed(struct tiered *t, const struct op *op)
{
    int64_t took_ms = t->base.loop->now_ms - op->submitted_ms;
    if (took_ms >= t->options.coord_deadline_ms)
        tier_hangs(t);
    else
        tier_failed(t, &op->err);
}

static void coord_alone_answered(struct op *op, void *ctx)
{
    struct tiered *t = ctx;
    if (op->err.code == ERR_UNAVAILABLE || op->err.code == ERR_AMBIGUOUS)
        coord_alone_failed(t, op);
    else if (!op->err.code)
        tier_worked(t, op->epoch);
    if (verb_info[op->verb].keyed) op->out.version |= PLANE_COORD;
    op_finish(op);
}

static void submit_coord_alone(struct tiered *t, struct op *op)
{
    if (t->open) {
        refuse(t, op, ERR_UNAVAILABLE, "coord cannot be reached");
        return;
    }
    op->in.seen &= ~PLANE_COORD;
    op->submitted_ms = t->base.loop->now_ms;
    op_push(op, coord_alone_answered, t);
    store_submit(t->coord, op);
}

/* What is claimed in our own scopes. */
static void alone_answered(struct op *op, void *ctx)
{
    (void)ctx;
    op->out.version |= PLANE_COORD;
    op_finish(op);
}

static void submit_alone(struct tiered *t, struct op *op)
{
    if (t->alone == t->coord) {
        submit_coord_alone(t, op);
        return;
    }
    op->in.seen &= ~PLANE_COORD;
    op_push(op, alone_answered, t);
    store_submit(t->alone, op);
}

static void submit_buffer(struct tiered *t, struct op *op)
{
    if (t->buffer)
        store_submit(t->buffer, op);
    else
        submit_coord_alone(t, op);
}

/* Where buffer and claims are two stores, the key in the buffer is what makes an entry the only one;
 * the claim is published after it, for those who wait. */
static void accepted(struct op *op, void *ctx)
{
    struct tiered *t = ctx;
    bool tell = !op->err.code && op->out.outcome == OUTCOME_OK && !op->buffer->unclaimed;
    if (tell && t->alone == t->coord)
        tier_step(t, op, VERB_PUBLISH, tier_then_answer);
    else
        tier_answer(op);
}

static void submit_accept(struct tiered *t, struct op *op)
{
    if (t->spool) op_push(op, tier_spool, t);
    if (!t->buffer) {
        submit_coord_alone(t, op);
        return;
    }
    op->buffer->claim_here = t->alone == t->buffer;
    op_push(op, accepted, t);
    store_submit(t->buffer, op);
}

static void (*const submit_verb[VERBS])(struct tiered *, struct op *) = {
    [VERB_CLAIM] = submit_claim,        [VERB_PUBLISH] = submit_publish,
    [VERB_RELEASE] = submit_release,    [VERB_RENEW] = submit_renew,
    [VERB_FORGET] = submit_forget,      [VERB_PEEK] = submit_ledger,
    [VERB_WATCH] = submit_watch,        [VERB_EXPIRE] = submit_expire,
    [VERB_SCAN] = submit_ledger,        [VERB_STATS] = submit_ledger,
    [VERB_PING] = submit_ping,          [VERB_RUN_PUT] = submit_ledger,
    [VERB_RUN_GET] = submit_ledger,     [VERB_RUN_CHANGE] = submit_ledger,
    [VERB_RUN_RESET] = submit_ledger,   [VERB_RUN_LEASE] = submit_ledger,
    [VERB_RUN_LIST] = submit_ledger,    [VERB_ACCEPT] = submit_accept,
    [VERB_ENTRY_GET] = submit_buffer,   [VERB_APPEND] = submit_buffer,
    [VERB_DRAIN_LEASE] = submit_buffer, [VERB_SETTLE] = submit_buffer,
    [VERB_ENTRY_LIST] = submit_buffer,  [VERB_BUFFER_STATS] = submit_buffer,
    [VERB_GATE] = submit_coord_alone,   [VERB_MARKERS_SWEEP] = submit_ledger,
};

static void tiered_submit(struct store *s, struct op *op)
{
    struct tiered *t = (struct tiered *)s;
    op->at_coord = op->refused = false;
    op->degraded = t->open;
    if (op->at_spool)
        store_submit(t->spool, op);
    else if (op->coord_only && op->verb <= VERB_PEEK)
        submit_alone(t, op);
    else
        submit_verb[op->verb](t, op);
}

static void tiered_cancel(struct store *s, struct op *op)
{
    struct tiered *t = (struct tiered *)s;
    if (op->verb != VERB_WATCH || op->refused) return;
    if (op->coord_only && !op->at_coord)
        store_cancel(t->alone, op);
    else
        store_cancel(op->at_coord ? t->coord : t->ledger, op);
}

static bool tiered_idle(const struct store *s)
{
    const struct tiered *t = (const struct tiered *)s;
    if (t->buffer && !store_idle(t->buffer)) return false;
    if (t->spool && !store_idle(t->spool)) return false;
    return t->steps == 0 && store_idle(t->coord) && store_idle(t->ledger);
}

static void tiered_meters(struct store *s, const char *plane, meter_say *say, void *ctx)
{
    const struct tiered *t = (const struct tiered *)s;
    (void)plane; /* it stands for both */
    const struct meter own[] = {
        { .id = METER_BREAKER, .plane = "coord", .value = t->open },
        { .id = METER_OPENED, .plane = "coord", .value = t->opened },
        { .id = METER_LATE, .plane = "coord", .value = t->late },
        { .id = METER_AMNESIA, .plane = "coord", .value = t->amnesia },
    };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) say(ctx, &own[i]);
    store_meters(t->coord, "coord", say, ctx);
    store_meters(t->ledger, "ledger", say, ctx);
    if (t->buffer) store_meters(t->buffer, "buffer", say, ctx);
    if (t->spool) store_meters(t->spool, "spool", say, ctx);
}

static void tiered_close(struct store *s)
{
    struct tiered *t = (struct tiered *)s;
    CHECK(t->steps == 0 && list_empty(&t->watches) && list_empty(&t->refused));
    timer_stop(s->loop, &t->probe_timer);
    task_stop(&t->refuse);
    store_close(t->coord);
    store_close(t->ledger);
    store_close(t->buffer);
    store_close(t->spool);
    free(t);
}

/* Is coord enough for those who could ask for the same at once? */
static bool sees_others(const struct tiered *t)
{
    if (!t->buffer || !(t->buffer->caps & CAP_CLAIMS)) return true;
    return (t->coord->caps & CAP_SHARED) || !(t->ledger->caps & CAP_SHARED);
}

/* What the planes can do together. */
static unsigned tiered_caps(const struct tiered *t)
{
    const unsigned of_coord = CAP_GATE | CAP_BUFFER | CAP_FRESH;
    unsigned caps = t->ledger->caps & ~(of_coord | CAP_BLOCKS);
    caps |= t->coord->caps & of_coord;
    if ((t->coord->caps & CAP_SHARED) && (t->coord->caps & CAP_NOTIFY)) caps |= CAP_TELLS;
    if (t->buffer) caps = (caps & ~(unsigned)CAP_FRESH) | (t->buffer->caps & CAP_BUFFER);
    if (t->spool) caps |= CAP_SPOOL;
    return caps | CAP_NOTIFY;
}

static const struct store_class tiered_class = {
    .scheme = "tiered",
    .close = tiered_close,
    .submit = tiered_submit,
    .cancel = tiered_cancel,
    .idle = tiered_idle,
    .meters = tiered_meters,
};

int tiered_open(struct store *coord, struct store *ledger, const struct tiered_options *options,
                const struct store_env *env, struct store **ret_store, struct err *reterr)
{
    struct tiered *t = malloc(sizeof *t);
    if (!t) {
        store_close(coord);
        store_close(ledger);
        store_close(options->buffer);
        store_close(options->spool);
        return err_set(reterr, ERR_NOMEM, "out of memory opening a store");
    }
    *t = (struct tiered){ .coord = coord,
                          .ledger = ledger,
                          .buffer = options->buffer,
                          .spool = options->spool,
                          .options = *options,
                          .rng = env->rng,
                          .trace = env->trace };
    t->base = (struct store){ .class = &tiered_class,
                              .caps = tiered_caps(t),
                              .loop = env->loop,
                              .epoch = ledger->epoch };
    t->alone = sees_others(t) ? t->coord : t->buffer;
    list_init(&t->watches);
    list_init(&t->refused);
    task_init(&t->refuse, refuse_run);
    timer_init(&t->probe_timer, tier_probe);
    *ret_store = &t->base;
    return 0;
}
