/* runs.c - a call about runs: checked, copied, carried on, told. The ways that calls go are in
 * trigger.c, buffered.c and work.c; the picture is in runs.h.
 *
 * A call is one struct from start to end. At most one op is at the store on its behalf; what that
 * points to is in the call, so the call lives until the op has come back, also if nobody waits any
 * more. A trigger that was canceled goes on for nobody: what it may have begun it ends, so that its
 * claim does not have to lapse. */
#include "engine/runs_internal.h"

#include "base/check.h"

#include <stdlib.h>

enum { RETRY_MS_FIRST = 20, RETRY_MS_MAX = 1000 };

int64_t wall_ms(const struct engine *e)
{
    return clock_now_ms(&e->wall);
}

/* ---- telling ---- */

static void call_free(struct run_call *c)
{
    CHECK(!link_used(&c->link) && !timer_is_set(&c->timer) && !c->has_turn);
    run_rows_clear(&c->out.rows);
    forward_clear(c);
    run_ask_clear(&c->ask);
    buffer_ask_clear(&c->buffer);
    run_scratch_fini(&c->scratch);
    buf_fini(&c->change);
    buf_fini(&c->packed);
    run_rows_clear(&c->listed);
    run_free(c->like);
    free((void *)c->ask.tokens);
    free(c);
}

static void tell(struct task *task)
{
    struct runs *r = container_of(task, struct runs, tell);
    struct list now;
    list_init(&now);
    list_take(&now, &r->finished);
    for (struct link *at; (at = list_pop(&now));) {
        struct run_call *c = container_of(at, struct run_call, link);
        if (!c->told) c->args.done(c, c->args.ctx);
        c->told = true;
        if (c->finished)
            call_free(c);
        else
            list_append(&r->calls, &c->link); /* canceled: it goes on for nobody */
    }
}

static void tell_later(struct run_call *c)
{
    struct runs *r = c->engine->runs;
    link_remove(&c->link);
    list_append(&r->finished, &c->link);
    task_post(c->engine->loop, &r->tell);
}

/* ---- finishing ---- */

static void finish(struct run_call *c)
{
    CHECK(!c->finished);
    buffered_leave(c);
    resolve_leave(c);
    timer_stop(c->engine->loop, &c->timer);
    c->finished = true;
    c->out.degraded = c->degraded;
    c->out.now_ms = wall_ms(c->engine);
    tell_later(c);
}

void run_fail(struct run_call *c, int code, const char *text)
{
    if (c->trigger.maybe && code == ERR_UNAVAILABLE) code = ERR_AMBIGUOUS;
    if (c->trigger.maybe && code == ERR_NOMEM) {
        code = ERR_AMBIGUOUS;
        text = "out of memory for the answer; the run may have been made";
    }
    c->err.code = code;
    if (text != c->err.text) err_set(&c->err, code, "%s", text); /* never onto itself */
    finish(c);
}

void run_finish(struct run_call *c, enum outcome outcome)
{
    c->out.outcome = outcome;
    if (c->args.question == ASK_TRIGGER) c->engine->runs->stats.triggers[outcome]++;
    finish(c);
}

void run_finish_rows(struct run_call *c, enum outcome outcome, struct run_rows *rows)
{
    run_rows_clear(&c->out.rows);
    c->out.rows = *rows;
    *rows = (struct run_rows){ 0 };
    c->out.reason = c->ask.reason;
    run_finish(c, outcome);
}

void run_finish_with(struct run_call *c, enum outcome outcome, const struct run *run,
                     bool buffered)
{
    struct run_rows one = { 0 };
    c->out.buffered = buffered;
    if (run_rows_add(&one, run))
        run_fail(c, ERR_NOMEM, "out of memory for the answer");
    else
        run_finish_rows(c, outcome, &one);
}

/* ---- ops ---- */

static void op_back(struct op *op, void *ctx)
{
    struct run_call *c = ctx;
    run_step *then = c->step;
    c->step = NULL;
    then(c, op);
    op_free(op);
}

static void submit(struct run_call *c, struct op *op, run_step *then)
{
    if (!op) {
        run_fail(c, ERR_NOMEM, "out of memory; nothing was changed");
        return;
    }
    CHECK(!c->step && !c->finished);
    c->step = then;
    if (op->verb == VERB_RUN_CALL)
        op->call = &c->forward;
    else if (verb_is_run(op->verb))
        op->run = &c->ask;
    else
        op->buffer = &c->buffer;
    op->lane = c->place;
    engine_submit(c->engine, op, op_back, c);
}

void run_submit(struct run_call *c, enum verb verb, run_step *then)
{
    submit(c, op_new(verb, NULL, NULL), then);
}

void run_submit_keyed(struct run_call *c, enum verb verb, const struct key *key,
                      const struct request *in, run_step *then)
{
    submit(c, op_new(verb, key, in), then);
}

struct op *run_submit_call(struct run_call *c, run_step *then)
{
    struct op *op = op_new(VERB_RUN_CALL, NULL, NULL);
    submit(c, op, then);
    return op;
}

static void timer_fired(struct timer *t)
{
    struct run_call *c = container_of(t, struct run_call, timer);
    c->then(c);
}

void run_pause(struct run_call *c, int64_t ms, void (*then)(struct run_call *))
{
    c->then = then;
    timer_set(c->engine->loop, &c->timer, c->engine->loop->now_ms + ms);
}

/* What may have counted is asked for again until that is known, or patience ends; so is whatever is
 * safe to ask twice. */
bool run_may_retry(struct run_call *c, int code, void (*then)(struct run_call *))
{
    struct engine *e = c->engine;
    if (e->stopping) return false;
    if (code != ERR_AMBIGUOUS && code != ERR_UNAVAILABLE) return false;
    if (code == ERR_AMBIGUOUS) c->trigger.maybe = true;
    if (!c->trigger.maybe) return false;
    if (e->loop->now_ms >= c->started_ms + e->config.patience_ms) return false;
    run_pause(c, back_off_ms(e->rng, ++c->tries, RETRY_MS_FIRST, RETRY_MS_MAX), then);
    return true;
}

/* ---- starting ---- */

static int refuse(struct err *reterr, const char *text)
{
    return err_set(reterr, ERR_INVALID, "%s", text);
}

static int check_duration(int64_t ms, const char *what, struct err *reterr)
{
    if (ms < 0) return err_set(reterr, ERR_INVALID, "%s is negative", what);
    if (ms > DURATION_MS_MAX)
        return err_set(reterr, ERR_LIMIT, "%s is longer than ten years", what);
    return 0;
}

static int check_id(const struct run_id *id, struct err *reterr)
{
    struct run_id parsed;
    if (run_id_parse(run_id_bytes(id), &parsed)) return 0;
    return refuse(reterr, "an id is run_ and 26 digits of Crockford's base 32, as in a ULID");
}

static int check_key(const struct run_args *a, struct err *reterr)
{
    struct key key = { .scope = a->task, .name = a->key };
    int r = run_name_check(a->task, TASK_BYTES_MAX, "task", reterr);
    return r ? r : key_check(&key, reterr);
}

static int check_limit(const struct run_args *a, struct err *reterr)
{
    if (a->limit >= 1 && a->limit <= RUN_ROWS_MAX) return 0;
    return err_set(reterr, ERR_INVALID, "ask for 1 to %d runs at once", RUN_ROWS_MAX);
}

static int check_lease(const struct run_args *a, struct err *reterr)
{
    int r = run_name_check(a->queue, QUEUE_BYTES_MAX, "queue", reterr);
    if (!r) r = check_limit(a, reterr);
    if (!r) r = check_duration(a->lease_ms, "lease", reterr);
    if (!r) r = check_duration(a->wait_ms, "wait", reterr);
    if (r) return r;
    if (a->lease_ms > 0) return 0;
    return refuse(reterr, "a lease of 0 ms is over before a worker has it: 1 ms at least");
}

/* A trigger is checked as the run that it would make, in trigger_start(). */
static int check(const struct engine *e, const struct run_args *a, struct err *reterr)
{
    if (e->stopping) return err_set(reterr, ERR_CANCELED, "the handle is closing");
    if (!has(e, CAP_RUNS | CAP_CALLS))
        return err_set(reterr, ERR_UNSUPPORTED,
                       "there are no runs without a ledger: use sqlite:PATH or postgres://");
    int r = run_name_check(a->env, ENV_BYTES_MAX, "env", reterr);
    if (r) return r;
    switch (a->question) {
    case ASK_TRIGGER:
        return check_duration(a->wait_ms, "wait", reterr);
    case ASK_LIST:
        return check_limit(a, reterr);
    case ASK_RESET:
        return check_key(a, reterr);
    case ASK_LEASE:
        return check_lease(a, reterr);
    case ASK_GET:
    case ASK_REPLAY:
        return check_id(&a->id, reterr);
    case ASK_CHANGE:
        r = check_id(&a->id, reterr);
        return r ? r : run_change_check(&a->change, (size_t)e->config.value_bytes_max, reterr);
    case RUN_QUESTIONS:
        break;
    }
    return refuse(reterr, "there is no such question");
}

/* Everything that the caller only lends us, moved behind the call. */
static size_t lent(struct run_args *a, struct bytes *views[24])
{
    struct run *r = &a->run;
    struct bytes *all[] = { &a->env,          &r->task, &r->queue,      &r->payload, &r->key,
                            &r->ordering_key, &r->tags, &r->metadata,   &a->task,    &a->key,
                            &a->queue,        &a->tag,  &a->change.body };
    memcpy(views, all, sizeof all);
    return sizeof all / sizeof all[0];
}

static size_t frame_place(const struct run_args *a, uint8_t *out)
{
    struct bytes what = a->question == ASK_LEASE ? a->queue : run_id_bytes(&a->id);
    if (a->question == ASK_TRIGGER) what = a->run.key;
    if (a->question == ASK_RESET) what = a->key;
    out[0] = (uint8_t)a->env.len;
    memcpy(out + 1, a->env.data, a->env.len);
    if (what.len) memcpy(out + 1 + a->env.len, what.data, what.len);
    return 1 + a->env.len + what.len;
}

static struct run_call *call_new(struct engine *e, const struct run_args *args)
{
    struct run_args copy = *args;
    struct bytes *views[24];
    size_t count = lent(&copy, views), bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += views[i]->len;
    struct run_call *c = malloc(sizeof *c + bytes + 1 + ENV_BYTES_MAX + KEY_BYTES_MAX);
    if (!c) return NULL;
    *c = (struct run_call){ .engine = e, .started_ms = e->loop->now_ms, .args = copy };
    count = lent(&c->args, views);
    uint8_t *to = c->memory;
    for (size_t i = 0; i < count; i++) {
        if (views[i]->len) memcpy(to, views[i]->data, views[i]->len);
        views[i]->data = to;
        to += views[i]->len;
    }
    c->place = bytes_of(to, frame_place(&c->args, to));
    link_init(&c->link);
    link_init(&c->in_line);
    link_init(&c->trigger.at_gate);
    timer_init(&c->timer, timer_fired);
    run_scratch_init(&c->scratch);
    buf_init(&c->change, RUN_CHANGES_BYTES_MAX);
    buf_init(&c->packed, 4 * (size_t)e->config.value_bytes_max + RUN_CHANGES_BYTES_MAX);
    list_init(&c->behind);
    c->ask.env = c->buffer.env = c->args.env;
    return c;
}

static int start(struct run_call *c, struct err *reterr)
{
    if (has(c->engine, CAP_CALLS)) return forward_start(c, reterr);
    if (c->args.question == ASK_TRIGGER) return trigger_start(c, reterr);
    if (c->args.question == ASK_LEASE)
        work_start(c);
    else
        buffered_start(c);
    return 0;
}

int engine_run(struct engine *e, const struct run_args *args, struct run_call **ret_call,
               struct err *reterr)
{
    int r = check(e, args, reterr);
    if (r) return r;
    struct run_call *c = call_new(e, args);
    if (!c) return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    list_append(&e->runs->calls, &c->link);
    r = start(c, reterr);
    if (r) {
        link_remove(&c->link);
        call_free(c);
        return r;
    }
    if (ret_call) *ret_call = c;
    return 0;
}

/* What was leased is given back, so it does not count. */
static bool may_have_counted(const struct run_call *c)
{
    if (c->trigger.maybe) return true;
    return c->step && run_args_write(&c->args) && c->args.question != ASK_LEASE;
}

void run_call_cancel(struct run_call *c)
{
    bool leases = c->args.question == ASK_LEASE;
    if (c->told || c->canceled) return;
    if (c->finished && !leases) return; /* what it did, it did: the answer is on its way */
    c->canceled = true;
    if (has(c->engine, CAP_CALLS))
        forward_cancel(c);
    else if (leases)
        work_cancel(c);
    err_set(&c->err, may_have_counted(c) ? ERR_AMBIGUOUS : ERR_CANCELED,
            "the call was canceled");
    if (c->finished) return;
    if (timer_is_set(&c->timer))
        timer_set(c->engine->loop, &c->timer, 0); /* no reason to wait */
    tell_later(c);
    if (c->trigger.claim) call_cancel(c->trigger.claim);
}

/* ---- for `done` ---- */

const struct err *run_call_error(const struct run_call *c)
{
    return &c->err;
}

const struct run_answer *run_call_answer(const struct run_call *c)
{
    return &c->out;
}

int64_t run_call_waited_ms(const struct run_call *c)
{
    return c->engine->loop->now_ms - c->started_ms;
}

struct run_stats engine_run_stats(const struct engine *e)
{
    return e->runs->stats;
}

/* ---- life ---- */

static struct bytes turn_place(const struct map_node *n)
{
    return container_of(n, struct run_call, turn)->place;
}

int runs_init(struct engine *e)
{
    struct runs *r = calloc(1, sizeof *r);
    if (!r) return ERR_NOMEM;
    e->runs = r;
    r->engine = e;
    r->config = e->config.runs ? *e->config.runs : (struct runs_config)RUNS_CONFIG_INIT;
    e->config.runs = NULL; /* it is the caller's */
    list_init(&r->calls);
    list_init(&r->finished);
    task_init(&r->tell, tell);
    looks_init(r);
    uint64_t seed[2] = { rng_u64(e->rng), rng_u64(e->rng) };
    if (map_init(&r->turns, turn_place, seed)) return ERR_NOMEM;
    int code = bursts_init(r);
    if (!code) code = lines_init(r);
    if (!code) code = bells_init(r);
    if (!code) code = overrides_init(r);
    if (!code) code = drainer_init(r);
    return code ? code : spool_init(r);
}

void runs_stop(struct engine *e)
{
    drainer_stop(e);
    spool_stop(e);
    overrides_stop(e);
    list_each (&e->runs->calls, at) run_call_cancel(container_of(at, struct run_call, link));
}

bool runs_idle(const struct engine *e)
{
    if (!e->runs) return true; /* it could not be opened */
    return list_empty(&e->runs->calls) && list_empty(&e->runs->finished) && drainer_idle(e) &&
           spool_idle(e) && overrides_idle(e);
}

void runs_fini(struct engine *e)
{
    struct runs *r = e->runs;
    if (!r) return;
    task_stop(&r->tell);
    looks_fini(r);
    drainer_fini(r);
    spool_fini(r);
    overrides_fini(r);
    lines_fini(r);
    bells_fini(r);
    bursts_fini(r);
    map_fini(&r->turns);
    free(r);
    e->runs = NULL;
}
