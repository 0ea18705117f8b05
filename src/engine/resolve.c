/* resolve.c - who has the key of a trigger, or its id.
 *
 * The buffer is asked before the ledger: what a drainer moves in between is found at its end. What is
 * found there is looked up in the ledger, too: a drainer that died may have put it there. A caller's own
 * id is resolved as well, when nobody has the key: it may be of something else.
 *
 * What a claim was answered with is a hint; the run itself is looked up. A hint that leads nowhere (its
 * run has FAILED, its key has expired or was reset, coord remembers what was lost) is dropped if it
 * still is what was seen, and the claim is tried again.
 *
 * A crowd on one key gets its hint in one turn, and one look is enough for all of them: each of them had
 * come before it was asked for. */
#include "engine/runs_internal.h"

enum { OTHER_LOOK_MS = 20 };

/* ---- one look for a crowd ---- */

/* What the look has shown: a run, an error, or nobody. */
struct shown {
    const struct run *run;
    bool buffered;
    const struct err *err;
};

static void unresolved(struct run_call *c);

static void take_shown(struct run_call *c, const struct shown *s)
{
    if (s->err)
        trigger_fail(c, s->err);
    else if (s->run)
        trigger_meet(c, s->run, s->buffered);
    else
        unresolved(c);
}

/* Those behind it first: what was shown is the call's own. */
static void show(struct run_call *c, struct shown s)
{
    for (struct link *at; (at = list_pop(&c->behind));) {
        struct run_call *next = container_of(at, struct run_call, in_line);
        next->degraded = next->degraded || c->degraded;
        take_shown(next, &s);
    }
    take_shown(c, &s);
}

/* Those who come in a later turn may know more than this look. */
static void look_closes(struct task *task)
{
    container_of(task, struct runs, look_closes)->looks = NULL;
}

void looks_init(struct runs *r)
{
    task_init(&r->look_closes, look_closes);
}

void looks_fini(struct runs *r)
{
    task_stop(&r->look_closes);
}

void resolve_leave(struct run_call *c)
{
    struct runs *r = c->engine->runs;
    if (r->looks == c) r->looks = NULL;
    if (c->args.question != ASK_TRIGGER) return;
    for (struct link *at; (at = list_pop(&c->behind));)
        trigger_fail(container_of(at, struct run_call, in_line), &c->err);
}

static bool is_same_claim(const struct run_call *a, const struct run_call *b)
{
    const struct key *x = &a->trigger.key, *y = &b->trigger.key;
    return bytes_eq(x->scope, y->scope) && bytes_eq(x->name, y->name);
}

/* True: somebody looks for it, and will tell. */
static bool join_look(struct run_call *c)
{
    struct runs *r = c->engine->runs;
    if (c->trigger.claimed != OUTCOME_CACHED) return false;
    if (r->looks && is_same_claim(r->looks, c)) {
        list_append(&r->looks->behind, &c->in_line);
        return true;
    }
    r->looks = c;
    task_post(c->engine->loop, &r->look_closes);
    return false;
}

/* ---- a hint that leads nowhere ---- */

static void hint_dropped(struct run_call *c, struct op *op)
{
    if (op->err.code) { /* coord is away: it cannot mislead anybody now */
        c->degraded = true;
        trigger_nobody(c);
        return;
    }
    c->engine->runs->stats.hints_dropped += op->out.outcome == OUTCOME_OK;
    trigger_claim(c);
}

/* Whoever takes what is there, whatever it is about, waits for it. There is nobody to wake it: those who
 * ask for something else are in no line (C7). */
static void look_again(struct run_call *c)
{
    if (c->canceled)
        trigger_fail(c, &c->err);
    else
        trigger_claim(c);
}

static void wait_for_other(struct run_call *c)
{
    c->trigger.rounds--;
    run_pause(c, OTHER_LOOK_MS, look_again);
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
        if (!c->args.mismatch_returns)
            run_finish(c, OUTCOME_MISMATCH); /* C7: who asks for something else does not wait */
        else if (trigger_left_ms(c) > 0)
            wait_for_other(c);
        else
            trigger_timed_out(c);
        return;
    }
    if (pending || op->out.outcome == OUTCOME_ABSENT) {
        trigger_claim(c);
        return;
    }
    struct request in = { .seen = op->out.version };
    run_submit_keyed(c, VERB_FORGET, &c->trigger.key, &in, hint_dropped);
}

static void drop_hint(struct run_call *c)
{
    run_submit_keyed(c, VERB_PEEK, &c->trigger.key, NULL, hint_seen);
}

/* ---- the id that the caller has chosen, beside a key ---- */

static void id_looked_up(struct run_call *c, struct op *op)
{
    if (op->err.code)
        trigger_fail(c, &op->err);
    else if (op->out.outcome == OUTCOME_OK)
        trigger_meet_id(c, c->ask.rows.rows[0], false);
    else
        trigger_nobody(c);
}

static void id_entry_looked_up(struct run_call *c, struct op *op)
{
    struct run run;
    bool there = !op->err.code && op->out.outcome == OUTCOME_OK;
    const struct entry *entry = there ? c->buffer.entries.rows[0] : NULL;
    if (entry && entry->state != ENTRY_WRITTEN && !entry_run(c, entry, &run)) {
        trigger_meet_id(c, &run, true);
        return;
    }
    c->ask.id = c->args.run.id;
    run_submit(c, VERB_RUN_GET, id_looked_up);
}

/* Without a buffer the ledger finds that out by itself when the run is put there. */
static bool needs_id(const struct run_call *c)
{
    return c->trigger.named && c->args.run.key.len && has(c->engine, CAP_BUFFER) &&
           !c->degraded;
}

/* ---- the key, or the id if there is none ---- */

static void unresolved(struct run_call *c)
{
    enum outcome said = c->trigger.claimed;
    if (said == OUTCOME_CACHED || said == OUTCOME_MISMATCH) {
        drop_hint(c);
    } else if (needs_id(c)) {
        c->buffer.id = c->args.run.id;
        run_submit(c, VERB_ENTRY_GET, id_entry_looked_up);
    } else {
        trigger_nobody(c);
    }
}

static void looked_up(struct run_call *c, struct op *op)
{
    if (op->err.code) {
        show(c, (struct shown){ .err = &op->err });
        return;
    }
    if (c->trigger.brief) c->degraded = op->degraded; /* nobody else has asked coord */
    const struct run *run = op->out.outcome == OUTCOME_OK ? c->ask.rows.rows[0] : NULL;
    if (run && !c->trigger.by_id && !run_holds_key(run, c->ask.now_ms)) run = NULL;
    show(c, (struct shown){ .run = run });
}

/* What has the key is found by whoever puts a run there, too: nothing else depends on it if there is
 * no gate, which counts only those that make one. A hint is looked up, and so is an id. */
static bool puts_at_once(const struct run_call *c)
{
    enum outcome said = c->trigger.claimed;
    bool hint = said == OUTCOME_CACHED || said == OUTCOME_MISMATCH;
    return !hint && !c->trigger.by_id && !trigger_has_gate(c);
}

void resolve_in_ledger(struct run_call *c)
{
    const struct run *r = &c->args.run;
    if (puts_at_once(c)) {
        unresolved(c);
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
    static const struct err no_memory = { ERR_NOMEM, "out of memory; nothing was changed" };
    struct run run;
    if (op->err.code) {
        show(c, (struct shown){ .err = &op->err });
    } else if (op->out.outcome == OUTCOME_ABSENT) {
        if (entry_run(c, c->buffer.entries.rows[0], &run))
            show(c, (struct shown){ .err = &no_memory });
        else
            show(c, (struct shown){ .run = &run, .buffered = true });
    } else if (c->trigger.by_id || run_holds_key(c->ask.rows.rows[0], c->ask.now_ms)) {
        show(c, (struct shown){ .run = c->ask.rows.rows[0] });
    } else {
        c->trigger.outlived = true;
        resolve_in_ledger(c);
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
        resolve_in_ledger(c);
    }
}

void resolve(struct run_call *c)
{
    if (!trigger_is_once(c)) {
        trigger_nobody(c);
        return;
    }
    if (join_look(c)) return;
    if (!has(c->engine, CAP_BUFFER) || c->degraded) {
        resolve_in_ledger(c);
        return;
    }
    c->trigger.outlived = false;
    c->buffer.id = c->trigger.by_id ? c->args.run.id : (struct run_id){ 0 };
    run_submit(c, VERB_ENTRY_GET, entry_looked_up);
}
