/* mutation.c - see mutation.h. Each step is a call of the engine about a record at coord alone, under a
 * key that no caller can have; on a store that is a daemon, it is asked there as it is. */
#include "engine/mutation.h"

#include "base/check.h"
#include "base/sha256.h"
#include "base/text.h"
#include "engine/internal.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    ROUNDS_MAX = 3,       /* what is void is dropped and begun again so often */
    SCOPE_TAIL_BYTES = 4, /* '#', two digits and a NUL */
    NAME_BYTES = 2 * SHA256_BYTES,
};

struct mutation_call {
    struct engine *engine;
    struct link link; /* engine->mutations, or engine->mutations_told */
    struct mutation_args args;
    struct mutation_answer out;
    struct err err;
    int64_t started_ms;
    unsigned rounds;   /* claims so far */
    struct call *call; /* under way; NULL: none */
    struct mutation_ask ask;
    bool asked; /* at a daemon */
    bool canceled;
    struct key key;
    uint8_t fingerprint[SHA256_BYTES];
    char scope[1 + ENV_BYTES_MAX + SCOPE_TAIL_BYTES];
    char name[NAME_BYTES + 1];
    uint8_t memory[];
};

static void claim(struct mutation_call *c);

/* ---- telling ---- */

static void call_free(struct mutation_call *c)
{
    CHECK(!link_used(&c->link) && !c->call && !c->asked);
    mutation_ask_clear(&c->ask);
    blob_unref(c->out.packed);
    free(c);
}

static void tell(struct task *task)
{
    struct engine *e = container_of(task, struct engine, tell_mutations);
    struct list now;
    list_init(&now);
    list_take(&now, &e->mutations_told);
    for (struct link *at; (at = list_pop(&now));) {
        struct mutation_call *c = container_of(at, struct mutation_call, link);
        c->args.done(c, c->args.ctx);
        call_free(c);
    }
}

static void tell_later(struct mutation_call *c)
{
    struct engine *e = c->engine;
    link_remove(&c->link);
    list_append(&e->mutations_told, &c->link);
    task_post(e->loop, &e->tell_mutations);
}

static void finish(struct mutation_call *c, enum outcome outcome)
{
    struct engine_stats *stats = &c->engine->stats;
    c->out.outcome = outcome;
    if (c->args.step == MUTATION_BEGIN) stats->mutations[outcome]++;
    stats->mutations_degraded += c->out.degraded;
    tell_later(c);
}

static void fail(struct mutation_call *c, const struct err *err)
{
    c->err = *err;
    tell_later(c);
}

/* Coord is away: the database decides alone. */
static void finish_degraded(struct mutation_call *c)
{
    c->out = (struct mutation_answer){ .degraded = true };
    finish(c, c->args.step == MUTATION_BEGIN ? OUTCOME_CLAIMED : OUTCOME_OK);
}

static bool is_away(int code)
{
    return code == ERR_UNAVAILABLE || code == ERR_AMBIGUOUS;
}

static void failed(struct mutation_call *c, const struct err *err)
{
    if (is_away(err->code) && !c->canceled)
        finish_degraded(c);
    else
        fail(c, err);
}

/* ---- steps at coord ---- */

static void step(struct mutation_call *c, enum verb verb, const struct request *in,
                 call_done *done)
{
    struct call_args args = { .verb = verb,
                              .key = c->key,
                              .internal = true,
                              .in = *in,
                              .wait_ms = verb == VERB_CLAIM ? c->args.wait_ms : 0,
                              .done = done,
                              .ctx = c };
    struct err err;
    if (engine_call(c->engine, &args, &c->call, &err)) fail(c, &err);
}

/* What came of a step; false: there is no answer, and that is dealt with. */
static bool stepped(struct mutation_call *c, struct call *call)
{
    const struct err *err = call_error(call);
    c->call = NULL;
    if (!err->code) c->out.degraded = call_answer(call)->degraded;
    if (err->code) failed(c, err);
    return !err->code;
}

/* ---- begin ---- */

static void dropped(struct call *call, void *ctx)
{
    struct mutation_call *c = ctx;
    if (!stepped(c, call)) return;
    if (c->rounds < ROUNDS_MAX)
        claim(c);
    else
        finish_degraded(c);
}

/* Of another epoch, or nothing of ours: it goes, if it still is what was seen. */
static void drop(struct mutation_call *c, uint64_t seen)
{
    step(c, VERB_FORGET, &(struct request){ .seen = seen }, dropped);
}

static bool counts(const struct mutation_call *c, const struct mutation_kept *kept)
{
    return !c->args.epoch.len || bytes_eq(kept->epoch, c->args.epoch);
}

static void begun_before(struct mutation_call *c, const struct answer *out)
{
    struct mutation_kept kept;
    if (!mutation_unpack(out->value, &kept) || !counts(c, &kept)) {
        c->engine->stats.mutations_stale++;
        drop(c, out->version);
        return;
    }
    c->out.packed = blob_ref(out->value);
    c->out.kept = kept;
    finish(c, kept.has_response ? OUTCOME_CACHED : OUTCOME_ALREADY_DONE);
}

static void claimed(struct call *call, void *ctx)
{
    struct mutation_call *c = ctx;
    if (!stepped(c, call)) return;
    const struct answer *out = call_answer(call);
    if (out->value || out->outcome == OUTCOME_ALREADY_DONE) {
        begun_before(c, out);
        return;
    }
    c->out.lease_left_ms = out->lease_left_ms;
    if (out->outcome == OUTCOME_CLAIMED) c->out.token = *call_token(call);
    finish(c, out->outcome);
}

static void claim(struct mutation_call *c)
{
    struct request in = { .token = c->args.token,
                          .lease_ms = c->args.lease_ms,
                          .retain_ms = MUTATION_TTL_MS_DEFAULT,
                          .fingerprint = bytes_of(c->fingerprint, sizeof c->fingerprint) };
    c->rounds++;
    step(c, VERB_CLAIM, &in, claimed);
}

/* ---- complete, abort ---- */

static void settled(struct call *call, void *ctx)
{
    struct mutation_call *c = ctx;
    if (stepped(c, call)) finish(c, call_answer(call)->outcome);
}

static void complete(struct mutation_call *c)
{
    struct blob *packed =
        mutation_pack(c->args.epoch, c->args.has_response ? &c->args.response : NULL);
    if (!packed) {
        fail(c, &(struct err){ ERR_NOMEM, "out of memory; the response is not kept" });
        return;
    }
    struct request in = { .token = c->args.token,
                          .value = packed,
                          .retain_ms = c->args.retain_ms };
    step(c, VERB_PUBLISH, &in, settled);
    blob_unref(packed);
}

static void give_up(struct mutation_call *c)
{
    step(c, VERB_RELEASE, &(struct request){ .token = c->args.token }, settled);
}

static void begin(struct mutation_call *c)
{
    claim(c);
}

static void (*const start_step[MUTATION_STEPS])(struct mutation_call *) = {
    [MUTATION_BEGIN] = begin,
    [MUTATION_COMPLETE] = complete,
    [MUTATION_ABORT] = give_up,
};

/* ---- what nobody hears of ---- */

static void given_back(struct mutation_call *call, void *ctx)
{
    (void)call, (void)ctx; /* what could not be given back lapses */
}

static void give_back(struct mutation_call *c)
{
    struct mutation_args args = c->args;
    struct err err;
    if (!(c->engine->store->caps & CAP_CALLS)) {
        engine_abandon(c->engine, &c->key, &c->out.token);
        return;
    }
    args.step = MUTATION_ABORT;
    args.token = c->out.token;
    args.done = given_back;
    engine_mutation(c->engine, &args, NULL, &err);
}

void mutation_call_unheard(struct mutation_call *c)
{
    bool callers = token_is_set(&c->args.token);
    if (c->args.step != MUTATION_BEGIN || c->err.code || callers) return;
    if (token_is_set(&c->out.token)) give_back(c);
}

/* ---- at a daemon ---- */

static void answered(struct op *op, void *ctx)
{
    struct mutation_call *c = ctx;
    struct err err = op->err;
    enum outcome outcome = c->ask.answer.outcome;
    op_free(op);
    c->asked = false;
    if (err.code) {
        failed(c, &err);
        return;
    }
    c->out = c->ask.answer;
    c->ask.answer = (struct mutation_answer){ 0 };
    if (c->canceled) {
        mutation_call_unheard(c);
        fail(c, &(struct err){ ERR_CANCELED, "the call was canceled" });
        return;
    }
    finish(c, outcome);
}

static void forward(struct mutation_call *c)
{
    struct op *op = op_new(VERB_MUTATION, NULL, NULL);
    if (!op) {
        fail(c, &(struct err){ ERR_NOMEM, "out of memory; nothing was changed" });
        return;
    }
    c->ask.args = &c->args;
    op->mutation = &c->ask;
    c->asked = true;
    engine_submit(c->engine, op, answered, c);
}

/* ---- starting and canceling ---- */

static int check_duration(int64_t ms, const char *what, struct err *reterr)
{
    if (ms >= 0 && ms <= DURATION_MS_MAX) return 0;
    return err_set(reterr, ms < 0 ? ERR_INVALID : ERR_LIMIT, "%s is %s", what,
                   ms < 0 ? "negative" : "longer than ten years");
}

static int check(const struct engine *e, const struct mutation_args *a, struct err *reterr)
{
    if (e->stopping) return err_set(reterr, ERR_CANCELED, "the handle is closing");
    int r = run_name_check(a->env, ENV_BYTES_MAX, "env", reterr);
    if (!r) r = mutation_check(&a->mutation, reterr);
    if (!r) r = mutation_epoch_check(a->epoch, reterr);
    if (!r) r = check_duration(a->lease_ms, "lease", reterr);
    if (!r) r = check_duration(a->wait_ms, "wait", reterr);
    if (!r) r = check_duration(a->retain_ms, "retention", reterr);
    if (r || (int64_t)a->response.len <= e->config.value_bytes_max) return r;
    return err_set(reterr, ERR_LIMIT,
                   "the response has %zu bytes; at most %lld are kept: complete without it",
                   a->response.len, (long long)e->config.value_bytes_max);
}

/* An env has 256 scopes: what is in one is kept together, and on a cluster that is one node. */
static bool make_key(struct mutation_call *c)
{
    const struct mutation *m = &c->args.mutation;
    struct bytes who[] = { bytes_str("mutation"), m->user, m->request };
    struct bytes what[] = { m->method, m->fingerprint };
    uint8_t hash[SHA256_BYTES];
    if (!sha256_pieces(who, 3, hash) || !sha256_pieces(what, 2, c->fingerprint)) return false;
    hex_encode(bytes_of(hash, sizeof hash), c->name);
    int len = snprintf(c->scope, sizeof c->scope, "%c%.*s#%.2s", KEY_COORD_ONLY,
                       (int)c->args.env.len, (const char *)c->args.env.data, c->name);
    c->key = (struct key){ bytes_of(c->scope, (size_t)len), bytes_of(c->name, NAME_BYTES) };
    return true;
}

static size_t lent(struct mutation_args *a, struct bytes *views[7])
{
    struct mutation *m = &a->mutation;
    struct bytes *all[] = { &a->env,         &m->user,  &m->request, &m->method,
                            &m->fingerprint, &a->epoch, &a->response };
    memcpy(views, all, sizeof all);
    return sizeof all / sizeof all[0];
}

static struct mutation_call *call_new(struct engine *e, const struct mutation_args *args)
{
    struct mutation_args copy = *args;
    struct bytes *views[7];
    size_t count = lent(&copy, views), bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += views[i]->len;
    struct mutation_call *c = malloc(sizeof *c + bytes);
    if (!c) return NULL;
    *c = (struct mutation_call){ .engine = e, .args = copy, .started_ms = e->loop->now_ms };
    link_init(&c->link);
    lent(&c->args, views);
    uint8_t *to = c->memory;
    for (size_t i = 0; i < count; i++) {
        if (views[i]->len) memcpy(to, views[i]->data, views[i]->len);
        views[i]->data = to;
        to += views[i]->len;
    }
    if (make_key(c)) return c;
    free(c);
    return NULL;
}

/* Of a BEGIN that coord had no part in. */
static bool is_nobodys(const struct mutation_args *a)
{
    return a->step != MUTATION_BEGIN && !token_is_set(&a->token);
}

int engine_mutation(struct engine *e, const struct mutation_args *args,
                    struct mutation_call **ret_call, struct err *reterr)
{
    int r = check(e, args, reterr);
    if (r) return r;
    struct mutation_call *c = call_new(e, args);
    if (!c) return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    list_append(&e->mutations, &c->link);
    if (ret_call) *ret_call = c;
    if (is_nobodys(args))
        finish_degraded(c);
    else if (e->store->caps & CAP_CALLS)
        forward(c);
    else
        start_step[args->step](c);
    return 0;
}

/* What a daemon is asked is answered in a moment, and then given back. */
void mutation_call_cancel(struct mutation_call *c)
{
    if (c->canceled || (!c->call && !c->asked)) return;
    c->canceled = true;
    if (c->call) call_cancel(c->call);
}

/* ---- for `done` ---- */

const struct err *mutation_call_error(const struct mutation_call *c)
{
    return &c->err;
}

const struct mutation_answer *mutation_call_answer(const struct mutation_call *c)
{
    return &c->out;
}

int64_t mutation_call_waited_ms(const struct mutation_call *c)
{
    return c->engine->loop->now_ms - c->started_ms;
}

/* ---- life ---- */

void mutations_init(struct engine *e)
{
    list_init(&e->mutations);
    list_init(&e->mutations_told);
    task_init(&e->tell_mutations, tell);
}

void mutations_stop(struct engine *e)
{
    list_each (&e->mutations, at)
        mutation_call_cancel(container_of(at, struct mutation_call, link));
}

bool mutations_idle(const struct engine *e)
{
    return list_empty(&e->mutations) && list_empty(&e->mutations_told);
}

void mutations_fini(struct engine *e)
{
    task_stop(&e->tell_mutations);
}
