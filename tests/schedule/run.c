/* run.c - carries out interleavings with real engines on a virtual clock.
 *
 * Each interleaving gets a scope of its own on a store of its own or, where opening one costs a
 * file, on the spec's; so no interleaving sees what another one left. Sessions are sequential:
 * a step whose session still waits is held back until the wait is over. After the last step
 * time goes on until every wait has ended. */
#include "engine/engine.h"
#include "tests/schedule/book.h"
#include "tests/schedule/cond.h"
#include "tests/schedule/schedule.h"
#include "tests/support/world.h"

#include <stdio.h>
#include <string.h>

enum { SETTLE_ROUNDS_MAX = 400, SETTLE_ROUND_MS = 1000, STORE_RUNS_MAX = 200 };

const char *const schedule_stores[] = { "memory", "sqlite",   "tiered-sqlite", "remote",
                                        "redis",  "postgres", "tiered-fleet",  NULL };

struct held_token {
    char key[WORD_MAX];
    struct token token;
};

struct session {
    struct engine *engine;
    struct held_token tokens[BOOK_KEYS_MAX];
    size_t token_count;
    struct call *waiting;
    const struct step *step; /* of `waiting` */
    size_t owed[STEPS_MAX], owed_count;
};

struct running {
    struct play *run;
    struct session *session;
    size_t step;
    struct token token;
};

struct play {
    const struct spec *spec;
    struct world *world;
    struct store *store;
    bool one_process;
    char scope[32];
    struct engine *engines[SESSIONS_MAX];
    struct session sessions[SESSIONS_MAX];
    struct step_result results[STEPS_MAX];
    struct running running[STEPS_MAX];
    unsigned clock; /* counts starts and ends */
    bool jumped;    /* the stores' clock went its own way: local timers may be late */
    struct book book;
};

/* ---- tokens of a session ---- */

static struct held_token *token_slot(struct session *s, const char *key)
{
    for (size_t i = 0; i < s->token_count; i++)
        if (strcmp(s->tokens[i].key, key) == 0) return &s->tokens[i];
    return NULL;
}

static void token_keep(struct session *s, const char *key, const struct token *token)
{
    struct held_token *slot = token_slot(s, key);
    if (!slot && s->token_count < BOOK_KEYS_MAX) {
        slot = &s->tokens[s->token_count++];
        snprintf(slot->key, WORD_MAX, "%s", key);
    }
    if (slot) slot->token = *token;
}

/* ---- results ---- */

static void result_set(struct play *r, size_t step, unsigned result)
{
    r->results[step].result = result;
    r->results[step].ended = ++r->clock;
}

static void keep_value(struct step_result *to, const struct answer *out)
{
    struct bytes value = blob_bytes(out->value);
    to->has_value = out->value != NULL;
    to->taken_over = out->taken_over;
    snprintf(to->value, WORD_MAX, "%.*s", (int)value.len, (const char *)value.data);
}

/* E2: of those who wait for the same, the first comes first. */
static void check_turn(struct play *r, const struct running *me)
{
    const struct step *mine = &r->spec->steps[me->step];
    for (size_t i = 0; r->one_process && i < r->spec->session_count; i++) {
        const struct session *s = &r->sessions[i];
        if (s == me->session || !s->waiting) continue;
        size_t other = (size_t)(s->step - r->spec->steps);
        bool same = strcmp(s->step->key, mine->key) == 0 &&
                    strcmp(s->step->fingerprint, mine->fingerprint) == 0;
        if (same && r->results[other].started < r->results[me->step].started)
            book_fail(&r->book, "E2: %s was promoted before %s", mine->name, s->step->name);
    }
}

static void call_ended(struct call *call, void *ctx)
{
    struct running *me = ctx;
    struct play *r = me->run;
    const struct step *st = &r->spec->steps[me->step];
    if (r->results[me->step].ended) book_fail(&r->book, "E1: %s ended twice", st->name);
    if (me->session->waiting == call) me->session->waiting = NULL;
    const struct err *err = call_error(call);
    if (err->code) {
        result_set(r, me->step, err->code == ERR_CANCELED ? RESULT_CANCELED : RESULT_FAILED);
        return;
    }
    const struct answer *out = call_answer(call);
    if (st->action == ACT_CLAIM) me->token = *call_token(call);
    result_set(r, me->step, out->outcome);
    keep_value(&r->results[me->step], out);
    if (st->action == ACT_CLAIM && out->outcome == OUTCOME_CLAIMED) {
        token_keep(me->session, st->key, &me->token);
        check_turn(r, me);
    }
    if (st->action != ACT_SWEEP) book_ended(&r->book, st, &me->token, out, r->world->wall_ms);
}

/* ---- steps ---- */

/* "scope/key" or just "key"; every interleaving has its own scopes. */
static struct key spec_key(struct play *r, const char *name, char scope[64])
{
    const char *slash = strchr(name, '/');
    int len = slash ? (int)(slash - name) : 0;
    snprintf(scope, 64, "%s.%.*s", r->scope, len, name);
    return key_of(scope, slash ? slash + 1 : name);
}

static struct call_args args_of(const struct step *st)
{
    static const enum verb verbs[ACTIONS] = {
        [ACT_CLAIM] = VERB_CLAIM,  [ACT_PUBLISH] = VERB_PUBLISH, [ACT_RELEASE] = VERB_RELEASE,
        [ACT_RENEW] = VERB_RENEW,  [ACT_PEEK] = VERB_PEEK,       [ACT_FORGET] = VERB_FORGET,
        [ACT_SWEEP] = VERB_EXPIRE,
    };
    return (struct call_args){ .verb = verbs[st->action],
                               .in = { .lease_ms = st->lease_ms,
                                       .retain_ms = st->retain_ms,
                                       .fingerprint = bytes_str(st->fingerprint) },
                               .wait_ms = st->wait_ms,
                               .renew = st->renew,
                               .limit = 1000,
                               .done = call_ended };
}

static bool needs_token(enum action a)
{
    return a == ACT_PUBLISH || a == ACT_RELEASE || a == ACT_RENEW;
}

static void ask(struct play *r, size_t i)
{
    const struct step *st = &r->spec->steps[i];
    struct session *s = &r->sessions[st->session];
    struct held_token *held = token_slot(s, st->key);
    if (needs_token(st->action) && !held) {
        result_set(r, i, RESULT_SKIPPED);
        return;
    }
    struct running *me = &r->running[i];
    *me = (struct running){ .run = r, .session = s, .step = i };
    if (held) me->token = held->token;
    char scope[64];
    struct call_args args = args_of(st);
    if (st->action != ACT_SWEEP) args.key = spec_key(r, st->key, scope);
    args.ctx = me;
    if (needs_token(st->action)) args.in.token = me->token;
    if (st->has_value) args.in.value = blob_new(bytes_str(st->value));
    if (st->action != ACT_SWEEP) book_started(&r->book, st, &me->token);
    struct err err;
    struct call *call;
    if (engine_call(s->engine, &args, &call, &err)) {
        book_fail(&r->book, "%s: %s", st->name, err.text);
    } else {
        s->waiting = call;
        s->step = st;
    }
    blob_unref(args.in.value);
}

static void crash(struct session *s)
{
    s->token_count = 0;
    if (s->waiting) call_cancel(s->waiting);
}

static void start(struct play *r, size_t i)
{
    const struct step *st = &r->spec->steps[i];
    struct session *s = &r->sessions[st->session];
    r->results[i].started = ++r->clock;
    switch (st->action) {
    case ACT_ADVANCE:
        world_advance(r->world, st->by_ms);
        result_set(r, i, OUTCOME_OK);
        return;
    case ACT_CLOCK:
        r->world->wall_ms += st->by_ms;
        r->jumped = true;
        if (st->by_ms < 0) book_clock_went_back(&r->book, r->world->wall_ms);
        result_set(r, i, OUTCOME_OK);
        return;
    case ACT_CRASH:
        crash(s);
        result_set(r, i, OUTCOME_OK);
        return;
    case ACT_CANCEL:
        result_set(r, i, s->waiting ? OUTCOME_OK : (unsigned)RESULT_SKIPPED);
        if (s->waiting) call_cancel(s->waiting);
        return;
    case ACT_CLAIM:
    case ACT_PUBLISH:
    case ACT_RELEASE:
    case ACT_RENEW:
    case ACT_PEEK:
    case ACT_FORGET:
    case ACT_SWEEP:
    case ACTIONS:
        ask(r, i);
    }
}

/* ---- after every step ---- */

static struct answer peek_key(struct play *r, const char *name)
{
    char scope[64];
    struct key key = spec_key(r, name, scope);
    struct op *op = op_new(VERB_PEEK, &key, NULL);
    world_run(r->world, r->store, op);
    if (op->err.code) book_fail(&r->book, "peek: %s", op->err.text);
    struct answer out = op->out;
    op->out.value = NULL; /* moved to the caller */
    op_free(op);
    return out;
}

/* B6 */
static void check_waiters(struct play *r, const struct book_key *k, const struct answer *seen)
{
    bool done = seen->outcome == OUTCOME_CACHED || seen->outcome == OUTCOME_ALREADY_DONE;
    bool lapsed =
        seen->outcome == OUTCOME_IN_PROGRESS && seen->lease_left_ms == 0 && !r->jumped;
    for (size_t i = 0; i < r->spec->session_count; i++) {
        const struct session *s = &r->sessions[i];
        if (!s->waiting || s->step->action != ACT_CLAIM || strcmp(s->step->key, k->name) != 0)
            continue;
        if (seen->outcome == OUTCOME_ABSENT)
            book_fail(&r->book, "B6: %s waits for a key that is free", s->step->name);
        if (lapsed) book_fail(&r->book, "B6: %s waits for a lease that is over", s->step->name);
        if (done) book_fail(&r->book, "B6: %s waits for a key that is done", s->step->name);
    }
}

static void check_now(struct play *r)
{
    world_settle(r->world);
    if (r->world->stuck) book_fail(&r->book, "the loop does not come to rest");
    book_quiet(&r->book, r->world->wall_ms);
    for (size_t i = 0; i < r->book.key_count; i++) {
        struct answer seen = peek_key(r, r->book.keys[i].name);
        if (r->book.why[0]) {
            blob_unref(seen.value);
            return;
        }
        book_peeked(&r->book, r->book.keys[i].name, &seen, r->world->wall_ms);
        check_waiters(r, &r->book.keys[i], &seen);
        blob_unref(seen.value);
    }
}

/* A session that waits can only be canceled or crash. */
static bool must_hold_back(const struct play *r, size_t i)
{
    const struct step *st = &r->spec->steps[i];
    const struct session *s = &r->sessions[st->session];
    if (st->action == ACT_CANCEL || st->action == ACT_CRASH) return false;
    return s->waiting || s->owed_count > 0;
}

static bool run_owed(struct play *r)
{
    for (size_t i = 0; i < r->spec->session_count; i++) {
        struct session *s = &r->sessions[i];
        if (s->waiting || s->owed_count == 0) continue;
        size_t step = s->owed[0];
        memmove(s->owed, s->owed + 1, --s->owed_count * sizeof s->owed[0]);
        start(r, step);
        return true;
    }
    return false;
}

static void take_step(struct play *r, size_t i)
{
    struct session *s = &r->sessions[r->spec->steps[i].session];
    if (must_hold_back(r, i))
        s->owed[s->owed_count++] = i;
    else
        start(r, i);
    do check_now(r);
    while (!r->book.why[0] && run_owed(r));
}

static bool all_ended(const struct play *r, const struct permutation *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (!r->results[p->steps[i]].ended) return false;
    return true;
}

/* ---- one interleaving ---- */

static struct final_key final_peek(void *ctx, const char *name)
{
    struct answer out = peek_key(ctx, name);
    struct bytes value = blob_bytes(out.value);
    struct final_key k = { .result = out.outcome, .has_value = out.value != NULL };
    snprintf(k.value, WORD_MAX, "%.*s", (int)value.len, (const char *)value.data);
    blob_unref(out.value);
    return k;
}

static void check_rules(struct play *r, struct spec *spec)
{
    struct findings f = { spec, r->results, final_peek, r };
    for (size_t i = 0; i < spec->rule_count && !r->book.why[0]; i++) {
        struct rule *rule = &spec->rules[i];
        if (rule->only_if >= 0 && !cond_holds(&f, rule->only_if)) continue;
        bool holds = cond_holds(&f, rule->cond);
        if (rule->kind == RULE_SOMETIMES)
            rule->seen |= holds;
        else if (holds != (rule->kind == RULE_REQUIRE))
            book_fail(&r->book, "broken: %s", rule->text);
    }
}

static void steps_run(struct play *r, struct spec *spec, const struct permutation *p)
{
    for (size_t i = 0; i < p->count && !r->book.why[0]; i++) take_step(r, p->steps[i]);
    for (unsigned i = 0; i < SETTLE_ROUNDS_MAX && !r->book.why[0] && !all_ended(r, p); i++) {
        world_advance(r->world, SETTLE_ROUND_MS);
        do check_now(r);
        while (!r->book.why[0] && run_owed(r));
    }
    if (!r->book.why[0] && !all_ended(r, p)) book_fail(&r->book, "a step never ended");
    if (!r->book.why[0]) check_rules(r, spec);
}

static void engines_open(struct play *r)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    config.sweep_ms = 0;
    size_t count = r->one_process ? 1 : r->spec->session_count;
    for (size_t i = 0; i < count; i++) {
        struct err err;
        if (engine_open(r->store, &r->world->env, &config, &r->engines[i], &err))
            book_fail(&r->book, "engine: %s", err.text);
    }
    for (size_t i = 0; i < r->spec->session_count; i++)
        r->sessions[i].engine = r->engines[r->one_process ? 0 : i];
}

static void engines_close(struct play *r)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        if (r->engines[i]) engine_stop(r->engines[i]);
    world_settle(r->world);
    world_advance(r->world, SETTLE_ROUND_MS); /* overdue steps at coord come back */
    for (size_t i = 0; i < SESSIONS_MAX; i++) engine_free(r->engines[i]);
}

/* ---- all of them ---- */

struct all {
    struct spec *spec;
    const char *store_name;
    bool one_process;
    struct world world;
    struct store *store;
    unsigned store_runs, count;
    char *why;
    size_t len;
};

static void store_refresh(struct all *a)
{
    bool cheap = strcmp(a->store_name, "memory") == 0;
    if (a->store && !cheap && a->store_runs < STORE_RUNS_MAX) return;
    if (a->store) world_close(&a->world, a->store);
    a->store = world_open(&a->world, a->store_name);
    a->store_runs = 0;
}

static void explain(struct all *a, const struct play *r, const struct permutation *p)
{
    size_t at = 0;
    char names[512] = "", results[768] = "";
    for (size_t i = 0; i < p->count && at < sizeof names - WORD_MAX; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? " " : "",
                               a->spec->steps[p->steps[i]].name);
    at = 0;
    for (size_t i = 0; i < p->count && at < sizeof results - 2 * WORD_MAX; i++)
        at += (size_t)snprintf(results + at, sizeof results - at, "%s%s %s", i ? ", " : "",
                               a->spec->steps[p->steps[i]].name,
                               result_name(r->results[p->steps[i]].result));
    snprintf(a->why, a->len,
             "%s\n  in %s on %s, %s\n  results: %s\n"
             "  repeat with: tests/schedule --store %s --permutation \"%s\" %s",
             r->book.why, a->spec->path, a->store_name,
             a->one_process ? "one process" : "a process per session", results, a->store_name,
             names, a->spec->path);
}

static bool permutation_run(struct all *a, const struct permutation *p)
{
    store_refresh(a);
    a->store_runs++;
    struct play r = {
        .spec = a->spec, .world = &a->world, .store = a->store, .one_process = a->one_process
    };
    snprintf(r.scope, sizeof r.scope, "i%u", a->count++);
    book_init(&r.book);
    engines_open(&r);
    if (!r.book.why[0]) steps_run(&r, a->spec, p);
    engines_close(&r);
    if (r.book.why[0]) explain(a, &r, p);
    return !r.book.why[0];
}

/* Every order in which each session's steps keep theirs. */
static bool interleave(struct all *a, struct permutation *p, size_t next[SESSIONS_MAX])
{
    if (p->count == a->spec->step_count) return permutation_run(a, p);
    for (unsigned s = 0; s < a->spec->session_count; s++) {
        size_t i = next[s];
        while (i < a->spec->step_count && a->spec->steps[i].session != s) i++;
        if (i == a->spec->step_count) continue;
        size_t before = next[s];
        next[s] = i + 1;
        p->steps[p->count++] = (uint8_t)i;
        if (!interleave(a, p, next)) return false;
        p->count--;
        next[s] = before;
    }
    return true;
}

static bool run_listed(struct all *a)
{
    for (size_t i = 0; i < a->spec->listed_count; i++)
        if (!permutation_run(a, &a->spec->listed[i])) return false;
    return true;
}

static bool run_mode(struct spec *spec, const char *store_name, bool one_process, char *why,
                     size_t len, unsigned *ret_count)
{
    struct all a = { .spec = spec,
                     .store_name = store_name,
                     .one_process = one_process,
                     .why = why,
                     .len = len };
    world_init(&a.world, 1);
    struct permutation p = { 0 };
    bool ok =
        spec->listed_count ? run_listed(&a) : interleave(&a, &p, (size_t[SESSIONS_MAX]){ 0 });
    if (a.store) world_close(&a.world, a.store);
    world_fini(&a.world);
    *ret_count += a.count;
    return ok;
}

static bool all_reached(const struct spec *spec, const char *store_name, char *why, size_t len)
{
    for (size_t i = 0; i < spec->rule_count; i++) {
        if (spec->rules[i].kind != RULE_SOMETIMES || spec->rules[i].seen) continue;
        snprintf(why, len, "never: %s\n  in %s on %s", spec->rules[i].text, spec->path,
                 store_name);
        return false;
    }
    return true;
}

static bool spec_run(struct spec *spec, const char *store_name, char *why, size_t len,
                     unsigned *ret_count)
{
    bool ok = true;
    if (spec->processes != PROCESSES_EACH)
        ok = run_mode(spec, store_name, true, why, len, ret_count);
    if (ok && spec->processes != PROCESSES_ONE)
        ok = run_mode(spec, store_name, false, why, len, ret_count);
    return ok;
}

bool schedule_run_file(const char *path, const char *store_name, char *why, size_t len,
                       unsigned *ret_permutations)
{
    static struct spec spec;
    *ret_permutations = 0;
    if (!spec_load(&spec, path, why, len)) return false;
    return spec_run(&spec, store_name, why, len, ret_permutations) &&
           all_reached(&spec, store_name, why, len);
}

bool schedule_run_one(const char *path, const char *store_name, const char *permutation,
                      char *why, size_t len)
{
    static struct spec spec;
    unsigned count = 0;
    if (!spec_load(&spec, path, why, len)) return false;
    spec.listed_count = 1;
    if (!spec_permutation(&spec, permutation, &spec.listed[0])) {
        snprintf(why, len, "not a list of steps of %s: \"%s\"", path, permutation);
        return false;
    }
    return spec_run(&spec, store_name, why, len, &count);
}
