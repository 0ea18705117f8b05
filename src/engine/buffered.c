/* buffered.c - questions about runs that may be in the buffer: get, list, change, reset, replay.
 *
 * By an id, the ledger is asked first, and the buffer if it has nothing. A run that is moved in between is not
 * missed: an entry stays in the buffer, as WRITTEN, for a while after the ledger has it, and then the
 * ledger is asked once more. By a key it is the other way round: an entry that is WRITTEN has none.
 *
 * A change to a buffered run is decided here, by the same rules, on the run with all changes that it
 * has taken (entry_run()), and appended if nobody else was faster. In this process one after the
 * other, so that a crowd does not race itself. While a drainer has the entry, the change waits for
 * it, and then goes to the ledger. */
#include "base/check.h"
#include "engine/runs_internal.h"

enum { WAIT_MS_FIRST = 10, WAIT_MS_MAX = 250, ENTRIES_AT_ONCE = 200 };

static void ask_ledger(struct run_call *c);
static void ask_buffer(struct run_call *c);

int entry_run(struct run_call *c, const struct entry *entry, struct run *ret_run)
{
    struct run run;
    struct err err;
    if (!run_decode(entry->run, &run)) return ERR_CORRUPT;
    return run_fold(&run, entry->changes, &c->scratch, ret_run, &err);
}

static bool in_buffer(const struct run_call *c)
{
    return has(c->engine, CAP_BUFFER);
}

/* ---- one at a time ---- */

void buffered_leave(struct run_call *c)
{
    struct runs *r = c->engine->runs;
    link_remove(&c->in_line);
    if (!c->has_turn) return;
    c->has_turn = false;
    map_remove(&r->turns, &c->turn);
    struct link *at = list_pop(&c->behind);
    if (!at) return;
    struct run_call *next = container_of(at, struct run_call, in_line);
    list_take(&next->behind, &c->behind);
    next->has_turn = true;
    map_insert(&r->turns, &next->turn);
    run_pause(next, 0, ask_buffer);
}

/* False: somebody else is at it; it will be called. */
static bool take_turn(struct run_call *c)
{
    struct runs *r = c->engine->runs;
    if (c->has_turn) return true;
    struct map_node *n = map_find(&r->turns, c->place);
    if (n) {
        list_append(&container_of(n, struct run_call, turn)->behind, &c->in_line);
        return false;
    }
    c->has_turn = true;
    map_insert(&r->turns, &c->turn);
    return true;
}

/* ---- a change ---- */

/* A drainer has it. It is asked for again until that has ended, or the time is up. */
static void wait_for_drainer(struct run_call *c)
{
    struct engine *e = c->engine;
    if (c->canceled || e->loop->now_ms >= c->started_ms + e->runs->config.change_wait_ms) {
        run_finish(c, OUTCOME_TIMED_OUT);
        return;
    }
    run_pause(c, back_off_ms(e->rng, ++c->tries, WAIT_MS_FIRST, WAIT_MS_MAX),
              c->args.question == ASK_RESET ? ask_buffer : ask_ledger);
}

static void appended(struct run_call *c, struct op *op)
{
    if (op->err
            .code) { /* an answer that was lost cannot be found again: the rev may be anybody's */
        run_fail(c, op->err.code, op->err.text);
        return;
    }
    if (op->out.outcome == OUTCOME_OK && c->args.question == ASK_RESET) {
        c->cleared = true;
        ask_ledger(c);
        return;
    }
    if (op->out.outcome == OUTCOME_OK)
        run_finish(c, OUTCOME_OK);
    else if (op->out.outcome == OUTCOME_CONFLICT)
        ask_buffer(c);
    else
        wait_for_drainer(c); /* leased, or written by now */
}

static void append(struct run_call *c, const struct entry *entry, const struct run *next)
{
    buf_clear(&c->change);
    run_change_encode(&c->args.change, &c->change);
    run_rows_clear(&c->out.rows);
    if (buf_failed(&c->change) || run_rows_add(&c->out.rows, next)) {
        run_fail(c, ERR_NOMEM, "out of memory; nothing was changed");
        return;
    }
    c->out.buffered = true;
    c->buffer.id = entry->id;
    c->buffer.rev = entry->rev;
    c->buffer.change = buf_bytes(&c->change);
    c->buffer.frees_key = c->args.change.kind == RUN_RESET_KEY;
    run_submit(c, VERB_APPEND, appended);
}

static void change_entry(struct run_call *c, const struct entry *entry)
{
    struct run run;
    struct run_verdict v;
    struct err err = { ERR_CORRUPT, "a buffered run makes no sense" };
    struct run_change *change = &c->args.change;
    change->made_at_ms = wall_ms(c->engine);
    int r = entry_run(c, entry, &run);
    if (!r && !run_change_may_wait(change->kind)) { /* nobody can have leased it */
        run_finish_with(c, OUTCOME_LOST, &run, true);
        return;
    }
    if (!r && c->args.question == ASK_RESET && !run_holds_key(&run, change->made_at_ms)) {
        ask_ledger(c); /* somebody may have it there since its time was over here */
        return;
    }
    if (!r) r = rules_run_change(&run, change, change->made_at_ms, &c->scratch, &v, &err);
    if (r) {
        run_fail(c, r, err.text);
        return;
    }
    c->ask.reason = v.reason;
    if (v.outcome != OUTCOME_OK || !v.changed)
        run_finish_with(c, v.outcome, &run, true);
    else if (entry->changes.len + change->body.len > RUN_CHANGES_BYTES_MAX)
        wait_for_drainer(c);
    else
        append(c, entry, &v.next);
}

/* ---- what the buffer has ---- */

static void show_entry(struct run_call *c, const struct entry *entry)
{
    struct run run;
    if (entry_run(c, entry, &run))
        run_fail(c, ERR_CORRUPT, "a buffered run makes no sense");
    else if (c->args.question == ASK_REPLAY)
        trigger_like(c, &run);
    else
        run_finish_with(c, OUTCOME_OK, &run, true);
}

static void entry_found(struct run_call *c, const struct entry *entry)
{
    if (entry->state == ENTRY_WRITTEN) {
        c->written = true;
        ask_ledger(c);
    } else if (c->args.question != ASK_CHANGE && c->args.question != ASK_RESET) {
        show_entry(c, entry);
    } else if (entry->state == ENTRY_LEASED) {
        wait_for_drainer(c);
    } else {
        change_entry(c, entry);
    }
}

static void buffer_answered(struct run_call *c, struct op *op)
{
    if (op->err.code)
        run_fail(c, op->err.code, op->err.text);
    else if (op->out.outcome == OUTCOME_OK)
        entry_found(c, c->buffer.entries.rows[0]);
    else if (c->args.question == ASK_RESET)
        ask_ledger(c);
    else
        run_finish(c, OUTCOME_ABSENT);
}

static void ask_buffer(struct run_call *c)
{
    bool changes = c->args.question == ASK_CHANGE || c->args.question == ASK_RESET;
    if (changes && !take_turn(c)) return;
    c->buffer.id = c->args.id;
    if (c->args.question == ASK_RESET)
        c->buffer.key_frame =
            bytes_of(c->trigger.key_frame,
                     run_key_frame(c->args.task, c->args.key, c->trigger.key_frame));
    run_submit(c, VERB_ENTRY_GET, buffer_answered);
}

/* ---- what the ledger has ---- */

static void show_run(struct run_call *c, enum outcome outcome)
{
    struct run_rows *rows = &c->ask.rows;
    if (c->args.question == ASK_CHANGE && rows->count)
        work_ring(c->engine, rows->rows[0]->env, rows->rows[0]->queue);
    if (c->args.question == ASK_REPLAY)
        trigger_like(c, rows->rows[0]);
    else
        run_finish_rows(c, outcome, rows);
}

/* Whoever triggers next must not be led to the run that had the key. If coord cannot be told, the
 * hint is found out: the run does not hold the key any more. */
static void hint_dropped(struct run_call *c, struct op *op)
{
    (void)op;
    if (c->cleared)
        run_finish(c, OUTCOME_OK);
    else
        run_finish(c, OUTCOME_ABSENT);
}

/* A row is what counts of a run, also if its entry had the key, too: a drainer may have died in between. */
static void tell_reset(struct run_call *c)
{
    c->cleared = true;
    c->out.buffered = false;
    run_rows_clear(&c->out.rows);
    c->out.rows = c->ask.rows;
    c->ask.rows = (struct run_rows){ 0 };
}

static void drop_hint(struct run_call *c, enum outcome outcome)
{
    struct err err;
    if (outcome == OUTCOME_OK) tell_reset(c);
    if (!has(c->engine, CAP_GATE) || trigger_claim_key(c, c->args.task, c->args.key, &err))
        hint_dropped(c, NULL);
    else
        run_submit_keyed(c, VERB_FORGET, &c->trigger.key, NULL, hint_dropped);
}

/* A change that may have been made is not made again: an increment would count twice. What can be
 * repeated without harm, the caller repeats. */
static void ledger_answered(struct run_call *c, struct op *op)
{
    if (op->err.code)
        run_fail(c, op->err.code, op->err.text);
    else if (c->args.question == ASK_RESET)
        drop_hint(c, op->out.outcome);
    else if (op->out.outcome != OUTCOME_ABSENT)
        show_run(c, op->out.outcome);
    else if (in_buffer(c) && !c->written)
        ask_buffer(c);
    else
        run_finish(c, OUTCOME_ABSENT);
}

static void ask_ledger(struct run_call *c)
{
    static const enum verb verbs[RUN_QUESTIONS] = { [ASK_GET] = VERB_RUN_GET,
                                                    [ASK_REPLAY] = VERB_RUN_GET,
                                                    [ASK_CHANGE] = VERB_RUN_CHANGE,
                                                    [ASK_RESET] = VERB_RUN_RESET };
    c->ask.id = c->args.id;
    c->ask.task = c->args.task;
    c->ask.key = c->args.key;
    c->ask.change = c->args.change;
    run_submit(c, verbs[c->args.question], ledger_answered);
}

/* ---- lists: the buffer first, so that nothing is missed while it moves ---- */

static bool fits(const struct run_args *a, const struct run *r)
{
    if (a->states && !(a->states & BIT(r->state))) return false;
    if (a->task.len && !bytes_eq(a->task, r->task)) return false;
    if (a->queue.len && !bytes_eq(a->queue, r->queue)) return false;
    return !a->tag.len || tags_have(r->tags, a->tag);
}

/* Newest first, each id once, at most `limit`. */
static int merge(struct run_call *c, struct run_rows *out)
{
    struct run_rows *a = &c->listed, *b = &c->ask.rows;
    size_t i = 0, j = 0;
    while (out->count < c->args.limit && (i < a->count || j < b->count)) {
        int order = i == a->count   ? -1
                    : j == b->count ? 1
                                    : strcmp(a->rows[i]->id.text, b->rows[j]->id.text);
        int r = run_rows_add(out, order > 0 ? a->rows[i] : b->rows[j]);
        if (r) return r;
        i += order >= 0;
        j += order <= 0;
    }
    out->more = i < a->count || j < b->count || b->more;
    return 0;
}

static void ledger_listed(struct run_call *c, struct op *op)
{
    struct run_rows out = { 0 };
    if (op->err.code) {
        run_fail(c, op->err.code, op->err.text);
    } else if (merge(c, &out)) {
        run_rows_clear(&out);
        run_fail(c, ERR_NOMEM, "out of memory while listing");
    } else {
        run_finish_rows(c, OUTCOME_OK, &out);
    }
}

static void list_ledger(struct run_call *c)
{
    c->ask.before = c->args.before;
    c->ask.limit = c->args.limit;
    c->ask.states = c->args.states;
    c->ask.task = c->args.task;
    c->ask.queue = c->args.queue;
    c->ask.tag = c->args.tag;
    run_submit(c, VERB_RUN_LIST, ledger_listed);
}

static int list_entries(struct run_call *c)
{
    struct entries *e = &c->buffer.entries;
    for (size_t i = 0; i < e->count && c->listed.count <= c->args.limit; i++) {
        struct run run;
        if (entry_run(c, e->rows[i], &run) || !fits(&c->args, &run)) continue;
        int r = run_rows_add(&c->listed, &run);
        if (r) return r;
    }
    return 0;
}

static void buffer_listed(struct run_call *c, struct op *op)
{
    struct entries *e = &c->buffer.entries;
    if (op->err.code) {
        run_fail(c, op->err.code, op->err.text);
        return;
    }
    if (list_entries(c)) {
        run_fail(c, ERR_NOMEM, "out of memory while listing");
        return;
    }
    if (!e->more || c->listed.count > c->args.limit) {
        list_ledger(c);
        return;
    }
    c->buffer.before = e->rows[e->count - 1]->id;
    run_submit(c, VERB_ENTRY_LIST, buffer_listed);
}

static void list_start(struct run_call *c)
{
    if (!in_buffer(c)) {
        list_ledger(c);
        return;
    }
    c->buffer.before = c->args.before;
    c->buffer.limit = c->args.limit + 1 > ENTRIES_AT_ONCE ? c->args.limit + 1 : ENTRIES_AT_ONCE;
    run_submit(c, VERB_ENTRY_LIST, buffer_listed);
}

void buffered_start(struct run_call *c)
{
    if (c->args.question == ASK_LIST) {
        list_start(c);
        return;
    }
    if (c->args.question == ASK_RESET) c->args.change.kind = RUN_RESET_KEY;
    if (c->args.question == ASK_RESET && in_buffer(c))
        ask_buffer(c);
    else
        ask_ledger(c);
}
