/* call.c - one request: checked, asked, asked again where the answer was lost, told.
 * The picture is in internal.h. Waiting is in wait.c, leases are in lease.c. */
#include "base/check.h"
#include "base/museum.h"
#include "engine/internal.h"

#include <stdlib.h>

enum { RETRY_MS_FIRST = 20, RETRY_MS_MAX = 1000 };

static const unsigned call_arrow[] = {
    [CALL_NEW] = BIT(CALL_ASKING) | BIT(CALL_PARKED),
    [CALL_ASKING] = BIT(CALL_PARKED) | BIT(CALL_BACKING_OFF) | BIT(CALL_FINISHED),
    [CALL_PARKED] = BIT(CALL_ASKING) | BIT(CALL_FINISHED),
    [CALL_BACKING_OFF] = BIT(CALL_ASKING) | BIT(CALL_FINISHED),
    [CALL_FINISHED] = 0,
};

static const char *const call_state_name[] = { "new", "asking", "parked", "backing_off",
                                               "finished" };

void call_set_state(struct call *c, enum call_state to)
{
    CHECK(call_arrow[c->state] & BIT(to));
    if (trace_hears(c->engine->trace, TRACE_CALL))
        trace_emit(c->engine->trace, (struct trace_event){ .kind = TRACE_CALL,
                                                           .scope = c->args.key.scope,
                                                           .key = c->args.key.name,
                                                           .number = to,
                                                           .text = call_state_name[to] });
    if (to == CALL_PARKED) c->waited = true;
    c->state = to;
}

int64_t call_deadline_ms(const struct call *c)
{
    return c->started_ms + c->args.wait_ms;
}

int64_t back_off_ms(struct rng *rng, unsigned tries, int64_t first_ms, int64_t max_ms)
{
    int64_t ms = first_ms;
    for (unsigned i = 1; i < tries && ms < max_ms; i++) ms *= 2;
    if (ms > max_ms) ms = max_ms;
    return ms / 2 + (int64_t)rng_below(rng, (uint64_t)ms / 2 + 1);
}

/* ---- finishing ---- */

static void call_free(struct call *c)
{
    CHECK(!link_used(&c->link) && !timer_is_set(&c->timer));
    blob_unref(c->out.value);
    op_free(c->op);
    free(c);
}

static void send_unsent(struct task *task);

static void tell_finished(struct task *task)
{
    struct engine *e = container_of(task, struct engine, tell);
    struct list finished;
    list_init(&finished);
    list_take(&finished, &e->finished);
    for (struct link *at; (at = list_pop(&finished));) {
        struct call *c = container_of(at, struct call, link);
        c->args.done(c, c->args.ctx);
        call_free(c);
    }
    send_unsent(&e->send); /* what they led to goes to the store together */
}

static void finish(struct call *c)
{
    struct engine *e = c->engine;
    timer_stop(e->loop, &c->timer);
    link_remove(&c->link);
    call_set_state(c, CALL_FINISHED);
    list_append(&e->finished, &c->link);
    task_post(e->loop, &e->tell);
}

/* A claim that may have been granted without our knowing is given back. Only "claimed" settles
 * it: another answer can be coord's, which does not know what the ledger granted. */
static void give_back(struct call *c)
{
    if (c->args.verb != VERB_CLAIM || !c->maybe || c->callers_token) return;
    if (BUG(GHOST_CLAIM) && !c->op->err.code) return;
    engine_abandon(c->engine, &c->args.key, &c->op->in.token);
}

static void count_answer(struct call *c)
{
    struct engine_stats *stats = &c->engine->stats;
    uint64_t took_us = (uint64_t)(c->engine->loop->now_us - c->started_us);
    if (c->args.internal) return; /* part of something else, which is counted */
    if (c->args.verb == VERB_CLAIM) stats->outcomes[c->out.outcome]++;
    stats->degraded += c->out.degraded;
    histogram_add(c->waited ? &stats->waits : &stats->times[c->args.verb], &histogram_us,
                  took_us);
}

/* An earlier try may have won, and the answer is not about that one. Its caller has the token. */
static bool is_unsure(const struct call *c, const struct answer *out)
{
    return c->callers_token && c->maybe && out->outcome != OUTCOME_CLAIMED;
}

void call_finish(struct call *c, const struct answer *out)
{
    if (is_unsure(c, out)) {
        call_finish_err(c, ERR_AMBIGUOUS, "the answer to an earlier try was lost; ask again");
        return;
    }
    if (out->outcome != OUTCOME_CLAIMED) give_back(c);
    blob_unref(c->out.value);
    c->out = *out;
    blob_ref(c->out.value);
    c->err.code = 0;
    count_answer(c);
    finish(c);
}

static bool settles(const struct call *c)
{
    return c->args.verb == VERB_PUBLISH || c->args.verb == VERB_RELEASE;
}

void call_finish_err(struct call *c, int code, const char *text)
{
    give_back(c);
    if (settles(c)) lease_settling(c->engine, &c->args.in.token, false);
    if (c->maybe) code = ERR_AMBIGUOUS;
    if (code == ERR_CANCELED)
        c->engine->stats.canceled++;
    else
        c->engine->stats.failed++;
    err_set(&c->err, code, "%s", text);
    finish(c);
}

/* ---- asking ---- */

static void op_returned(struct op *op, void *ctx)
{
    struct engine *e = ctx;
    CHECK(e->in_flight > 0);
    e->in_flight--;
    op_finish(op);
}

void engine_submit(struct engine *e, struct op *op, op_done *done, void *ctx)
{
    e->in_flight++;
    op_push(op, done, ctx);
    op_push(op, op_returned, e);
    store_submit(e->store, op);
}

static void op_discard(struct op *op, void *ctx)
{
    (void)ctx;
    op_free(op);
}

void engine_abandon(struct engine *e, const struct key *key, const struct token *token)
{
    struct request in = { .token = *token };
    struct op *op = op_new(VERB_RELEASE, key, &in);
    if (op)
        engine_submit(e, op, op_discard, NULL); /* without memory the lease lapses instead */
}

void call_granted(struct call *c)
{
    struct engine *e = c->engine;
    if (c->op->out.taken_over) {
        e->stats.takeovers++;
        trace_emit(e->trace, (struct trace_event){ .kind = TRACE_TAKEOVER,
                                                   .scope = c->args.key.scope,
                                                   .key = c->args.key.name,
                                                   .number = (int64_t)c->op->out.fence });
    }
    if (c->args.renew) lease_hold(c);
}

static void note_outcome(struct call *c)
{
    struct engine *e = c->engine;
    const struct op *op = c->op;
    enum verb verb = c->args.verb;
    if (verb == VERB_RENEW && op->out.outcome == OUTCOME_OK)
        lease_extended(e, &op->in.token, c->asked_ms, c->asked_ms + op->out.lease_left_ms);
    if (settles(c)) lease_end(e, &op->in.token);
    if (op->out.outcome == OUTCOME_LOST) {
        e->stats.lost++;
        trace_emit(e->trace, (struct trace_event){ .kind = TRACE_LOST,
                                                   .scope = op->key.scope,
                                                   .key = op->key.name,
                                                   .number = (int64_t)op->out.fence,
                                                   .text = verb_info[verb].name });
    }
    if (verb == VERB_FORGET)
        trace_emit(e->trace, (struct trace_event){ .kind = TRACE_FORGOT,
                                                   .scope = op->key.scope,
                                                   .key = op->key.name,
                                                   .number = op->out.outcome,
                                                   .text = outcome_name(op->out.outcome) });
}

static bool try_again(const struct call *c)
{
    if (c->engine->stopping) return false;
    if (c->op->err.code != ERR_AMBIGUOUS && c->op->err.code != ERR_UNAVAILABLE) return false;
    if (c->op->coord_only) return false; /* whoever asks can do without coord */
    /* A claim that provably did nothing fails at once: its caller may have another way. */
    if (c->args.verb == VERB_CLAIM && !c->maybe) return false;
    if (!verb_info[c->args.verb].writes || !verb_info[c->args.verb].keyed) return false;
    int64_t patience_ms = c->engine->config.patience_ms;
    if (c->args.wait_ms > patience_ms) patience_ms = c->args.wait_ms;
    return c->engine->loop->now_ms < c->started_ms + patience_ms;
}

static void ask_failed(struct call *c)
{
    struct engine *e = c->engine;
    if (c->op->err.code == ERR_AMBIGUOUS) {
        c->maybe = true;
        e->stats.ambiguous++;
        trace_emit(e->trace, (struct trace_event){ .kind = TRACE_AMBIGUOUS,
                                                   .scope = c->args.key.scope,
                                                   .key = c->args.key.name,
                                                   .number = c->args.verb,
                                                   .text = verb_info[c->args.verb].name });
    }
    c->tries++;
    if (!try_again(c)) {
        call_finish_err(c, c->op->err.code, c->op->err.text);
        return;
    }
    if (BUG(BLIND_RETRY)) rng_u64(e->rng), e->rng->fill(e->rng, &c->op->in.token, 16);
    call_set_state(c, CALL_BACKING_OFF);
    timer_set(e->loop, &c->timer,
              e->loop->now_ms + back_off_ms(e->rng, c->tries, RETRY_MS_FIRST, RETRY_MS_MAX));
}

static void ask_answered(struct call *c)
{
    const struct answer *out = &c->op->out;
    note_outcome(c);
    if (BUG(PUBLISH_RESULT_IGNORED) && c->args.verb == VERB_PUBLISH)
        c->op->out.outcome = OUTCOME_OK;
    if (c->args.verb == VERB_CLAIM && out->outcome == OUTCOME_CLAIMED) call_granted(c);
    bool may_wait = c->args.verb == VERB_CLAIM && out->outcome == OUTCOME_IN_PROGRESS;
    if (may_wait && c->args.wait_ms > 0 && !c->engine->stopping) {
        wait_park(c, out);
        return;
    }
    call_finish(c, out);
}

static void ask_done(struct op *op, void *ctx)
{
    struct call *c = ctx;
    CHECK(c->op == op);
    wait_lead_no_more(c);
    if (c->waitlist) {
        wait_answered(c);
        return;
    }
    if (op->err.code) {
        ask_failed(c);
        return;
    }
    c->tries = 0;
    ask_answered(c);
}

/* The call went away while its op was in flight: what it may have won is given back. */
static void orphan_done(struct op *op, void *ctx)
{
    struct engine *e = ctx;
    bool won = !op->err.code && op->verb == VERB_CLAIM && op->out.outcome == OUTCOME_CLAIMED;
    bool maybe_won = op->verb == VERB_CLAIM && op->err.code == ERR_AMBIGUOUS;
    if (won || maybe_won) engine_abandon(e, &op->key, &op->in.token);
    op_free(op);
}

/* As above, and an earlier try may have won: whatever the last one says. */
static void maybe_orphan_done(struct op *op, void *ctx)
{
    engine_abandon(ctx, &op->key, &op->in.token);
    op_free(op);
}

/* Who leads is sent at the end of the turn: whoever has come to ask the same until then is asked for,
 * too (E3), so a crowd that comes at once costs one question. */
static void send_unsent(struct task *task)
{
    struct engine *e = container_of(task, struct engine, send);
    for (struct link *at; (at = list_pop(&e->unsent));) {
        struct call *c = container_of(at, struct call, unsent);
        wait_sent(c);
        engine_submit(e, c->op, ask_done, c);
    }
}

void call_ask(struct call *c)
{
    struct engine *e = c->engine;
    call_set_state(c, CALL_ASKING);
    c->asked_ms = e->loop->now_ms;
    c->op->waits = c->args.verb == VERB_CLAIM && c->args.wait_ms > 0;
    c->op->heard = 0;
    if (c->op->waits && !c->waitlist) wait_lead(c);
    if (!c->leads) {
        engine_submit(e, c->op, ask_done, c);
        return;
    }
    list_append(&e->unsent, &c->unsent);
    task_post(e->loop, &e->send);
}

static void call_timer(struct timer *t)
{
    struct call *c = container_of(t, struct call, timer);
    if (c->waitlist)
        wait_deadline(c);
    else
        call_ask(c);
}

/* ---- starting and canceling ---- */

static int check_duration(int64_t ms, const char *what, struct err *reterr)
{
    if (ms < 0) return err_set(reterr, ERR_INVALID, "%s is negative", what);
    if (ms > DURATION_MS_MAX)
        return err_set(reterr, ERR_LIMIT, "%s is longer than ten years", what);
    return 0;
}

static int check_claim(const struct call_args *a, struct err *reterr)
{
    int r = check_duration(a->in.lease_ms, "lease", reterr);
    if (!r) r = check_duration(a->in.retain_ms, "retention", reterr);
    if (!r) r = check_duration(a->wait_ms, "wait", reterr);
    if (r) return r;
    if (a->in.fingerprint.len > FINGERPRINT_BYTES_MAX)
        return err_set(reterr, ERR_LIMIT,
                       "the fingerprint has %zu bytes; at most %d are allowed: hash it",
                       a->in.fingerprint.len, FINGERPRINT_BYTES_MAX);
    return 0;
}

static int check_args(const struct engine *e, const struct call_args *a, struct err *reterr)
{
    if (e->stopping) return err_set(reterr, ERR_CANCELED, "the handle is closing");
    if (a->verb != VERB_MARKERS_SWEEP && !(e->store->caps & CAP_CLAIMS))
        return err_set(reterr, ERR_UNSUPPORTED, "this handle is for markers alone");
    if (a->verb == VERB_WATCH && !(e->store->caps & CAP_NOTIFY))
        return err_set(reterr, ERR_UNSUPPORTED, "this store cannot tell of changes: ask again");
    if (a->verb == VERB_MARKERS_SWEEP && !(e->store->caps & CAP_MARKERS))
        return err_set(
            reterr, ERR_UNSUPPORTED,
            "markers are swept where the ledger is: here is none, or a daemon has it");
    if (!verb_info[a->verb].keyed) return 0;
    int r = a->internal ? 0 : key_check(&a->key, reterr);
    if (r) return r;
    if (a->verb == VERB_CLAIM) return check_claim(a, reterr);
    if (a->verb == VERB_RENEW && a->in.lease_ms >= 0)
        return check_duration(a->in.lease_ms, "lease", reterr);
    size_t value_bytes = blob_bytes(a->in.value).len;
    if (a->verb == VERB_PUBLISH && !a->internal &&
        (int64_t)value_bytes > e->config.value_bytes_max)
        return err_set(reterr, ERR_LIMIT,
                       "the value has %zu bytes; at most %lld are kept: publish without it",
                       value_bytes, (long long)e->config.value_bytes_max);
    return 0;
}

static const struct token no_token;

int engine_call(struct engine *e, const struct call_args *args, struct call **ret_call,
                struct err *reterr)
{
    int r = check_args(e, args, reterr);
    if (r) return r;
    struct call *c = malloc(sizeof *c);
    struct op *op = op_new(args->verb, &args->key, &args->in);
    if (!c || !op) {
        free(c);
        op_free(op);
        return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    }
    *c = (struct call){ .engine = e,
                        .args = *args,
                        .op = op,
                        .started_ms = e->loop->now_ms,
                        .started_us = e->loop->now_us };
    c->args.key = op->key;
    c->args.in = op->in;
    op->all_scopes = args->all_scopes;
    op->wants_facts = args->wants_facts;
    op->limit = args->limit;
    op->seen = args->seen;
    link_init(&c->link);
    link_init(&c->unsent);
    timer_init(&c->timer, call_timer);
    c->callers_token = args->verb == VERB_CLAIM && !token_eq(&op->in.token, &no_token);
    if (args->verb == VERB_CLAIM && !c->callers_token)
        e->rng->fill(e->rng, op->in.token.bytes, sizeof op->in.token.bytes);
    if (ret_call) *ret_call = c;
    if (args->verb == VERB_CLAIM && args->wait_ms > 0 && wait_join_existing(c)) return 0;
    if (settles(c)) lease_settling(e, &op->in.token, true);
    list_append(&e->calls, &c->link);
    call_ask(c);
    return 0;
}

/* The op stays with the store; only its innermost frame learns that nobody waits. */
static void leave_op(struct call *c)
{
    struct op *op = c->op;
    struct op_frame *mine = &op->frames[0];
    CHECK(mine->done == ask_done && mine->ctx == c);
    bool maybe_won = c->maybe && c->args.verb == VERB_CLAIM;
    *mine = (struct op_frame){ .done = maybe_won ? maybe_orphan_done : orphan_done,
                               .ctx = c->engine };
    if (c->callers_token) mine->done = op_discard;
    c->op = NULL;
    if (op->verb == VERB_WATCH) store_cancel(c->engine->store, op);
}

void call_cancel(struct call *c)
{
    if (c->state == CALL_FINISHED) return;
    wait_lead_no_more(c);
    if (c->waitlist) wait_leave(c);
    bool sent = c->state == CALL_ASKING && !link_used(&c->unsent);
    bool unsure = c->callers_token && (sent || c->maybe);
    link_remove(&c->unsent);
    if (sent)
        leave_op(c);
    else
        give_back(c);
    /* Canceling says "I do not want to know", so there is nothing ambiguous to report, except to
     * somebody who may ask again. */
    c->maybe = unsure;
    call_finish_err(c, ERR_CANCELED, "the call was canceled");
    c->args.key = (struct key){ 0 }; /* its bytes went with the op */
}

/* ---- for `done` ---- */

const struct err *call_error(const struct call *c)
{
    return &c->err;
}

const struct answer *call_answer(const struct call *c)
{
    return &c->out;
}

const struct token *call_token(const struct call *c)
{
    CHECK(c->op);
    return &c->op->in.token;
}

struct op *call_op(struct call *c)
{
    return c->op;
}

int64_t call_waited_ms(const struct call *c)
{
    return c->engine->loop->now_ms - c->started_ms;
}

/* ---- the engine ---- */

int engine_open(struct store *store, const struct store_env *env,
                const struct engine_config *config, struct engine **ret_engine,
                struct err *reterr)
{
    struct engine *e = malloc(sizeof *e);
    if (!e) return err_set(reterr, ERR_NOMEM, "out of memory opening the engine");
    *e = (struct engine){ .loop = env->loop,
                          .store = store,
                          .rng = env->rng,
                          .wall = env->wall,
                          .trace = env->trace,
                          .config = *config };
    list_init(&e->calls);
    list_init(&e->finished);
    list_init(&e->unsent);
    task_init(&e->tell, tell_finished);
    task_init(&e->send, send_unsent);
    sweep_init(e);
    mutations_init(e);
    markers_init(e);
    if (waitlists_init(e) || leases_init(e) || runs_init(e)) {
        engine_free(e);
        return err_set(reterr, ERR_NOMEM, "out of memory opening the engine");
    }
    *ret_engine = e;
    return 0;
}

void engine_stop(struct engine *e)
{
    if (e->stopping) return;
    e->stopping = true;
    sweep_stop(e);
    markers_stop(e);
    runs_stop(e);
    mutations_stop(e);
    leases_stop(e);
    waitlists_stop(e);
    while (!list_empty(&e->calls))
        call_cancel(container_of(list_first(&e->calls), struct call, link));
}

bool engine_idle(const struct engine *e)
{
    return e->in_flight == 0 && list_empty(&e->finished) && list_empty(&e->calls) &&
           runs_idle(e) && mutations_idle(e);
}

void engine_free(struct engine *e)
{
    if (!e) return;
    CHECK(engine_idle(e));
    sweep_stop(e);
    markers_stop(e);
    task_stop(&e->tell);
    task_stop(&e->send);
    waitlists_fini(e);
    leases_fini(e);
    mutations_fini(e);
    runs_fini(e);
    free(e);
}

struct engine_stats engine_stats(const struct engine *e)
{
    return e->stats;
}
