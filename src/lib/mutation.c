/* mutation.c - the way of a mutation: coord, the transaction with its marker, coord.
 *
 *   coord: begin --cached--> is it of this database's epoch? --> CACHED
 *     | claimed, mismatch, away: the database decides
 *     v
 *   BEGIN --> marker --claimed--> fn --> COMMIT --> coord: complete --> OK
 *               |                  |        '-- no answer: look for our own attempt in the marker
 *               |                  '-- failed: ROLLBACK --> coord: abort --> CLAIMED
 *               '-- ALREADY_DONE, MISMATCH, IN_PROGRESS: ROLLBACK --> coord: abort --> that
 *
 * Guarantees: the marker is asked for whatever coord says but CACHED and IN_PROGRESS; whatever coord
 * forgets, invents or keeps from us, fn's transaction is committed at most once for a request, within
 * the time of the marker. What is kept at coord never outlives the marker. A COMMIT is never sent
 * twice. */
#include "engine/mutation.h"

#include "base/text.h"
#include "lib/handle.h"
#include "store/marker.h"

#include <time.h>

enum { LOOK_MS = 5000, PAUSE_MS_FIRST = 10, PAUSE_MS_MAX = 500, LOCK_MS_MAX = 600000 };

struct mutate {
    struct once *once; /* NULL: no replay cache */
    struct marker_db db;
    const struct marker_class *class;
    struct marker marker;
    struct bytes env;
    int64_t lease_ms;
    bool internal;      /* there is no request */
    struct token token; /* of coord; all zero: there is nothing to settle */
    bool degraded;
    struct marker_found found;
    int64_t begun_us; /* not later than the marker was */
    struct err err;
};

/* ---- answers ---- */

void once_mutation_answer_clear(struct once_mutation_answer *answer)
{
    blob_unref(answer->owner);
    *answer = (struct once_mutation_answer){ 0 };
}

/* Takes the reference. */
static void answer_value(struct once_mutation_answer *to, struct blob *owner,
                         struct bytes value)
{
    to->owner = owner;
    to->has_value = owner != NULL;
    to->value = (struct once_bytes){ value.data, value.len };
}

static int answer_fail(struct once_mutation_answer *to, const struct err *err)
{
    *to = (struct once_mutation_answer){ 0 };
    return api_fail(&to->error, err);
}

static int answer(const struct mutate *m, enum outcome outcome, bool in_database,
                  struct once_mutation_answer *ret)
{
    *ret = (struct once_mutation_answer){ .outcome = (int)outcome,
                                          .in_database = in_database,
                                          .degraded = m->degraded };
    return 0;
}

/* ---- requests ---- */

static const struct marker_class *class_of(struct once_db db)
{
    if (!db.pg == !db.sqlite) return NULL;
    return db.pg ? &marker_postgres : &marker_sqlite;
}

static int check_times(const struct once_mutation *in, struct err *reterr)
{
    if (in->lock_ms < 0 || in->lock_ms > LOCK_MS_MAX)
        return err_set(reterr, ERR_INVALID, "lock_ms is from 0 to %d", LOCK_MS_MAX);
    return 0;
}

static int take(struct once_db db, const struct once_mutation *from, struct mutate *ret,
                struct err *reterr)
{
    struct once_mutation mutation = ONCE_MUTATION_INIT, *in = &mutation;
    struct rng_system rng;
    int r = api_take(in, sizeof *in, from, from->size, "ONCE_MUTATION_INIT", reterr);
    if (r) return r;
    *ret = (struct mutate){ .db = { .pg = db.pg, .sqlite = db.sqlite },
                            .class = class_of(db),
                            .env = in->env.len ? api_view(in->env) : bytes_str("default"),
                            .lease_ms = in->lease_ms,
                            .internal = in->request.len == 0 };
    ret->marker.lock_ms = in->lock_ms;
    ret->marker.mutation = (struct mutation){ api_view(in->user), api_view(in->request),
                                              api_view(in->method), api_view(in->fingerprint) };
    if (!ret->class)
        return err_set(reterr, ERR_INVALID, "give one connection: db.pg, or db.sqlite");
    rng_system_init(&rng);
    rng.base.fill(&rng.base, ret->marker.attempt, sizeof ret->marker.attempt);
    return check_times(in, reterr);
}

static int take_checked(struct once_db db, const struct once_mutation *from, struct mutate *ret,
                        struct err *reterr)
{
    int r = take(db, from, ret, reterr);
    return r ? r : mutation_check(&ret->marker.mutation, reterr);
}

/* ---- the marker alone, in the caller's transaction ---- */

static void answer_found(struct mutate *m, struct once_mutation_answer *ret)
{
    answer(m, m->found.outcome, true, ret);
    answer_value(ret, m->found.kept, blob_bytes(m->found.kept));
}

int once_mutation_begin(struct once_db db, const struct once_mutation *in,
                        struct once_mutation_answer *ret_answer)
{
    struct mutate m;
    struct err err = { 0 };
    int r = take_checked(db, in, &m, &err);
    if (!r) r = m.class->begin(m.db, &m.marker, &m.found, &err);
    if (r) return answer_fail(ret_answer, &err);
    answer_found(&m, ret_answer);
    return 0;
}

static int check_outcome(struct once_bytes outcome, struct err *reterr)
{
    if (outcome.len <= MUTATION_OUTCOME_BYTES_MAX) return 0;
    return err_set(reterr, ERR_LIMIT, "the outcome has %zu bytes; a marker keeps %d",
                   outcome.len, MUTATION_OUTCOME_BYTES_MAX);
}

int once_mutation_finish(struct once_db db, const struct once_mutation *in,
                         struct once_bytes outcome, struct once_error *reterr)
{
    struct mutate m;
    struct err err = { 0 };
    int r = take_checked(db, in, &m, &err);
    if (!r) r = check_outcome(outcome, &err);
    if (!r) r = m.class->finish(m.db, &m.marker, api_view(outcome), &err);
    return r ? api_fail(reterr, &err) : 0;
}

/* ---- coord ---- */

struct asked {
    struct once_call call;
    struct mutation_answer out; /* its bytes are a reference that it owns */
    struct err err;
};

static void step_over(struct mutation_call *call, void *ctx)
{
    struct asked *a = ctx;
    a->err = *mutation_call_error(call);
    a->out = *mutation_call_answer(call);
    blob_ref(a->out.packed);
    a->call.finished = true;
    drive_wake_caller(a->call.once, &a->call);
}

/* Blocks until it is answered. */
static int step(struct mutate *m, const struct mutation_args *in, struct mutation_answer *ret)
{
    struct asked a = { .call = { .once = m->once } };
    struct mutation_args args = *in;
    args.env = m->env;
    args.mutation = m->marker.mutation;
    args.done = step_over;
    args.ctx = &a;
    pthread_cond_init(&a.call.cond, NULL);
    drive_enter(m->once);
    int r = engine_mutation(m->once->engine, &args, NULL, &a.err);
    if (!r) drive_until(m->once, &a.call);
    drive_leave(m->once);
    pthread_cond_destroy(&a.call.cond);
    *ret = a.out;
    m->err = a.err;
    return a.err.code;
}

/* `epoch`: NULL: whatever is kept is told. */
static int coord_begin(struct mutate *m, const char *epoch, struct mutation_answer *ret)
{
    struct mutation_args args = MUTATION_ARGS_INIT;
    args.step = MUTATION_BEGIN;
    args.lease_ms = m->lease_ms;
    args.epoch = bytes_str(epoch);
    int r = step(m, &args, ret);
    if (r) return r;
    m->token = ret->token;
    m->degraded = ret->degraded;
    return 0;
}

static int64_t marker_left_ms(const struct mutate *m)
{
    return m->found.ttl_ms - (clock_measure_us() - m->begun_us) / 1000 - 1;
}

static void coord_abort(struct mutate *m)
{
    struct mutation_args args = MUTATION_ARGS_INIT;
    struct mutation_answer ignored;
    if (!token_is_set(&m->token)) return;
    args.step = MUTATION_ABORT;
    args.token = m->token;
    struct err err = m->err; /* of what led here */
    step(m, &args, &ignored);
    m->err = err;
}

/* It is done, whether or not this succeeds. */
static void coord_complete(struct mutate *m, struct bytes response)
{
    struct mutation_args args = MUTATION_ARGS_INIT;
    struct mutation_answer ignored;
    int64_t left_ms = marker_left_ms(m);
    if (!token_is_set(&m->token)) return;
    /* The marker's time is over, or what was committed may not be there after a crash, of which no epoch
     * tells: let the database say. */
    if (left_ms <= 0 || !m->found.epoch[0] || m->found.not_flushed) {
        coord_abort(m);
        return;
    }
    args.step = MUTATION_COMPLETE;
    args.token = m->token;
    args.epoch = bytes_str(m->found.epoch);
    args.retain_ms = left_ms;
    args.has_response = (int64_t)response.len <= m->once->config.value_bytes_max;
    if (args.has_response) args.response = response;
    if (step(m, &args, &ignored) || ignored.degraded) m->degraded = true;
}

/* ---- what coord says first ---- */

/* Is it of this database, as it is now? If not, it is begun again, without it. */
static int check_epoch(struct mutate *m, struct mutation_answer *cached)
{
    char epoch[MUTATION_EPOCH_BYTES_MAX + 1];
    int r = m->class->epoch(m->db, epoch, &m->err);
    if (r || bytes_eq(cached->kept.epoch, bytes_str(epoch))) return r;
    blob_unref(cached->packed);
    cached->packed = NULL;
    return coord_begin(m, epoch, cached);
}

/* True: that is the answer, or the end of it. ALREADY_DONE has lost its response, which the marker may
 * have; a mismatch may be of something that was never committed. So the database says. */
static bool replayed(struct mutate *m, struct once_mutation_answer *ret, int *ret_code)
{
    struct mutation_answer said = { 0 };
    *ret_code = coord_begin(m, NULL, &said);
    if (!*ret_code && said.outcome == OUTCOME_CACHED) *ret_code = check_epoch(m, &said);
    if (*ret_code) {
        blob_unref(said.packed);
        answer_fail(ret, &m->err);
        return true;
    }
    bool cached = said.outcome == OUTCOME_CACHED;
    if (!cached) blob_unref(said.packed);
    if (!cached && said.outcome != OUTCOME_IN_PROGRESS) return false;
    answer(m, said.outcome, false, ret);
    if (cached) answer_value(ret, said.packed, said.kept.response);
    return true;
}

/* ---- a COMMIT whose answer was lost ---- */

static void pause_ms(int64_t ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* Until it is known, or time is up. */
static int look(struct mutate *m)
{
    int64_t until_us = clock_measure_us() + (LOOK_MS + m->marker.lock_ms) * 1000;
    for (int64_t ms = PAUSE_MS_FIRST;; ms = ms < PAUSE_MS_MAX ? ms * 2 : ms) {
        int r = m->class->look(m->db, &m->marker, &m->found, &m->err);
        bool known = !r && m->found.outcome != OUTCOME_IN_PROGRESS;
        bool hopeless = r == ERR_UNSUPPORTED || r == ERR_NOMEM;
        if (known || hopeless || clock_measure_us() >= until_us)
            return known ? 0 : ERR_AMBIGUOUS;
        pause_ms(ms);
    }
}

enum fate { COMMITTED, ROLLED_BACK, ANSWERED };

/* That there is no marker says that nothing was committed, as long as it would count: later, a sweep may
 * have had it. */
static bool found_out(struct mutate *m)
{
    if (m->internal || look(m)) return false;
    return m->found.outcome != OUTCOME_ABSENT || marker_left_ms(m) > 0;
}

/* Nobody knows whether it was committed, but the marker. ANSWERED: what there is to say is said. */
static enum fate find_out(struct mutate *m, struct once_mutation_answer *ret, int *ret_code)
{
    if (!found_out(m)) {
        err_set(&m->err, ERR_AMBIGUOUS, "the answer of COMMIT was lost: look at the state");
        *ret_code = answer_fail(ret, &m->err); /* coord's lease lapses */
        m->class->rollback(m->db);             /* what is left, if anything is */
        return ANSWERED;
    }
    if (m->found.outcome == OUTCOME_OK) return COMMITTED;
    if (m->found.outcome == OUTCOME_ABSENT) return ROLLED_BACK;
    coord_abort(m);
    answer_found(m, ret);
    *ret_code = 0;
    return ANSWERED;
}

/* The connection broke: it did not happen, and that is no fault of the caller's. */
static enum fate commit_lost(struct mutate *m, struct once_mutation_answer *ret, int *ret_code)
{
    enum fate fate = find_out(m, ret, ret_code);
    if (fate != ROLLED_BACK) return fate;
    coord_abort(m);
    err_set(&m->err, ERR_UNAVAILABLE,
            "COMMIT got no definite answer, and was not carried out: nothing happened");
    *ret_code = answer_fail(ret, &m->err);
    return ANSWERED;
}

/* ---- the transaction ---- */

static int rolled_back(struct mutate *m, struct once_mutation_answer *ret)
{
    m->class->rollback(m->db);
    coord_abort(m);
    answer(m, OUTCOME_CLAIMED, true, ret);
    api_fail(&ret->error, &m->err);
    return 0;
}

/* BEGIN and the marker. False: that was all. */
static bool enter(struct mutate *m, struct once_mutation_answer *ret, int *ret_code)
{
    m->begun_us = clock_measure_us();
    m->found = (struct marker_found){ 0 };
    int r = m->class->prepare ? m->class->prepare(&m->db, &m->err) : 0;
    if (!r) r = m->class->enter(m->db, &m->marker, m->internal, &m->found, &m->err);
    if (!r && m->found.outcome == OUTCOME_CLAIMED) return true;
    coord_abort(m);
    *ret_code = r ? answer_fail(ret, &m->err) : 0;
    if (!r) answer_found(m, ret);
    return false;
}

/* fn returned, and its transaction cannot be committed. */
static enum fate not_open(struct mutate *m, struct once_mutation_answer *ret, int *ret_code)
{
    bool failed = m->class->has_failed(m->db);
    enum fate fate = failed ? ROLLED_BACK : find_out(m, ret, ret_code);
    if (fate == ROLLED_BACK)
        err_set(&m->err, ERR_INVALID,
                failed ? "the transaction has failed: rolled back"
                       : "the function has rolled back by itself, or has left a query or a "
                         "pipeline under way");
    return fate;
}

/* fn has ended the transaction of the marker, which it must not do, and then failed, or done something in
 * another one, which is rolled back. Nobody else would tell the caller if the first was committed. */
static enum fate astray(struct mutate *m, struct once_mutation_answer *ret, int *ret_code)
{
    struct err why = m->err;
    m->class->rollback(m->db);
    enum fate fate = find_out(m, ret, ret_code);
    m->err = why;
    if (fate != COMMITTED) return fate;
    coord_abort(m);
    *ret_code = answer(m, OUTCOME_ALREADY_DONE, true, ret);
    return ANSWERED;
}

static enum fate fn_failed(struct mutate *m, int said, struct once_mutation_answer *ret,
                           int *ret_code)
{
    bool ended = !m->class->is_open(m->db) && !m->class->has_failed(m->db);
    err_set(&m->err, ERR_CANCELED, "the function returned %d: rolled back", said);
    return ended && !m->internal ? astray(m, ret, ret_code) : ROLLED_BACK;
}

/* What duplicates are told, if it fits, and COMMIT. */
static int leave(struct mutate *m, struct once_bytes response)
{
    struct bytes outcome = api_view(response);
    bool keep = outcome.len && outcome.len <= MUTATION_OUTCOME_BYTES_MAX;
    return m->class->leave(m->db, &m->marker, m->internal, keep ? &outcome : NULL, &m->found,
                           &m->err);
}

static enum fate carry_out(struct mutate *m, once_mutation_fn *fn, void *ctx,
                           struct blob **ret_response, struct once_mutation_answer *ret,
                           int *ret_code)
{
    struct once_bytes response = { NULL, 0 };
    int r = fn(ctx, (struct once_db){ m->db.pg, m->db.sqlite }, &response);
    if (r) return fn_failed(m, r, ret, ret_code);
    *ret_response = blob_new(api_view(response));
    if (!*ret_response) {
        err_set(&m->err, ERR_NOMEM, "out of memory for the response: rolled back");
        return ROLLED_BACK;
    }
    if (!m->class->is_open(m->db)) return not_open(m, ret, ret_code);
    r = leave(m, response);
    if (r == ERR_AMBIGUOUS) return commit_lost(m, ret, ret_code);
    if (m->found.astray) return astray(m, ret, ret_code);
    return r ? ROLLED_BACK : COMMITTED;
}

static int committed(struct mutate *m, struct blob *response, struct once_mutation_answer *ret)
{
    if (!m->internal) coord_complete(m, blob_bytes(response));
    answer(m, OUTCOME_OK, true, ret);
    answer_value(ret, response, blob_bytes(response));
    return 0;
}

static int transact(struct mutate *m, once_mutation_fn *fn, void *ctx,
                    struct once_mutation_answer *ret)
{
    struct blob *response = NULL;
    int code = 0;
    if (!enter(m, ret, &code)) return code;
    enum fate fate = carry_out(m, fn, ctx, &response, ret, &code);
    if (fate == COMMITTED) return committed(m, response, ret);
    blob_unref(response);
    return fate == ROLLED_BACK ? rolled_back(m, ret) : code;
}

int once_mutate(struct once *o, struct once_db db, const struct once_mutation *in,
                once_mutation_fn *fn, void *ctx, struct once_mutation_answer *ret_answer)
{
    struct mutate m;
    struct err err = { 0 };
    *ret_answer = (struct once_mutation_answer){ 0 };
    int r = take(db, in, &m, &err);
    if (!r && !m.internal) r = mutation_check(&m.marker.mutation, &err);
    if (r) return answer_fail(ret_answer, &err);
    m.once = o;
    m.degraded = !o && !m.internal;
    if (o && !m.internal && replayed(&m, ret_answer, &r)) return r;
    r = transact(&m, fn, ctx, ret_answer);
    if (m.class->release) m.class->release(&m.db);
    return r;
}

/* ---- compare-and-set ---- */

int once_with_version_retry(int tries, once_version_fn *fn, void *ctx)
{
    struct rng_system rng;
    int r = ERR_INVALID;
    rng_system_init(&rng);
    for (int i = 0; i < tries; i++) {
        r = fn(ctx, i);
        if (r != ONCE_VERSION_LOST || i + 1 == tries) break;
        int64_t most_ms = i < 6 ? INT64_C(1) << i : 50;
        pause_ms((int64_t)rng_below(&rng.base, (uint64_t)most_ms + 1));
    }
    return r;
}
