/* forward.c - a call about runs on a store that has an engine of its own: a daemon. It is asked there,
 * as it is, and told what came of it.
 *
 * Guarantees: a run that the call makes has its id before it is asked for, so that asking again, where
 * an answer was lost, finds it. What cannot be asked twice (an increment, a lease) is ambiguous then,
 * and said to be. What was leased for a call that nobody waits for any more is given back. */
#include "engine/runs_internal.h"

#include "base/check.h"

static void ask(struct run_call *c);

/* ---- what nobody waits for ---- */

static void returned(struct run_call *call, void *ctx)
{
    (void)call, (void)ctx;
}

/* If it cannot be told, the lease lapses. */
static void give_back(struct engine *e, const struct run *run)
{
    struct run_args args = RUN_ARGS_INIT;
    struct err err;
    args.question = ASK_CHANGE;
    args.env = run->env;
    args.id = run->id;
    args.change = (struct run_change){ .kind = RUN_RETURN, .token = run->token };
    args.done = returned;
    if (engine_run(e, &args, NULL, &err) == 0) e->runs->stats.returned++;
}

static void give_back_all(struct run_call *c, struct run_rows *rows)
{
    if (c->args.question != ASK_LEASE) return;
    for (size_t i = 0; i < rows->count; i++) give_back(c->engine, rows->rows[i]);
    run_rows_clear(rows);
}

/* ---- answers ---- */

static void take(struct run_call *c)
{
    struct run_answer *a = &c->forward.answer;
    int64_t now_ms = a->now_ms;
    if (c->canceled) give_back_all(c, &a->rows);
    c->out.buffered = a->buffered;
    c->degraded = a->degraded;
    c->ask.reason = a->reason;
    run_finish_rows(c, a->outcome, &a->rows);
    c->out.now_ms = now_ms; /* by the clock that its times are from */
}

static bool may_ask_again(const struct run_call *c)
{
    bool makes = c->args.question == ASK_TRIGGER || c->args.question == ASK_REPLAY;
    return makes && !c->canceled;
}

static void answered(struct run_call *c, struct op *op)
{
    struct err err = op->err;
    c->forwarded = NULL;
    if (!err.code)
        take(c);
    else if (!may_ask_again(c) || !run_may_retry(c, err.code, ask))
        run_fail(c, err.code, err.text);
}

/* ---- asking ---- */

static void ask(struct run_call *c)
{
    c->forward.args = &c->args;
    if (c->canceled)
        run_fail(c, c->err.code, "the call was canceled");
    else
        c->forwarded = run_submit_call(c, answered);
}

/* It is checked here, so that nothing that makes no sense is sent. */
int forward_start(struct run_call *c, struct err *reterr)
{
    int r = c->args.question == ASK_TRIGGER ? trigger_make(c, reterr) : 0;
    if (r) return r;
    if (c->args.question == ASK_REPLAY && !c->args.run.id.text[0]) trigger_fill_id(c);
    ask(c);
    return 0;
}

/* It is under way, or has got something that nobody knows of yet. */
void forward_cancel(struct run_call *c)
{
    give_back_all(c, &c->out.rows);
    if (c->forwarded) store_cancel(c->engine->store, c->forwarded);
}

void forward_clear(struct run_call *c)
{
    CHECK(!c->forwarded);
    run_call_ask_clear(&c->forward);
}
