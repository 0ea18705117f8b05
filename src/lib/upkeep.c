/* upkeep.c - listing, sweeping, draining and counting: calls whose answer is more than an outcome. */
#include "base/check.h"
#include "lib/handle.h"

#include <string.h>

enum { LIST_PAGE = 256, SWEEP_PAGE = 1000 };

/* A blocked call that takes what it needs from the op before the op goes away. */
struct asking {
    struct once_call call; /* first: what drive_until() looks at */
    void (*take)(struct asking *, struct op *op);
    void *into;
    struct err err;
};

static void asking_over(struct call *call, void *ctx)
{
    struct asking *a = ctx;
    a->err = *call_error(call);
    if (!a->err.code) a->take(a, call_op(call));
    a->call.finished = true;
    drive_wake_caller(a->call.once, &a->call);
}

static int ask(struct once *o, struct call_args args,
               void (*take)(struct asking *, struct op *), void *into,
               struct once_error *reterr)
{
    struct asking a = { .call = { .once = o }, .take = take, .into = into };
    args.done = asking_over;
    args.ctx = &a;
    pthread_cond_init(&a.call.cond, NULL);
    drive_enter(o);
    int r = engine_call(o->engine, &args, &a.call.call, &a.err);
    if (!r) drive_until(o, &a.call);
    drive_leave(o);
    pthread_cond_destroy(&a.call.cond);
    if (a.err.code && reterr) {
        reterr->code = a.err.code;
        memcpy(reterr->text, a.err.text, sizeof reterr->text);
    }
    return a.err.code;
}

static void take_scan(struct asking *a, struct op *op)
{
    *(struct scan *)a->into = op->scan;
    op->scan = (struct scan){ 0 };
}

static struct once_row row_of(const struct scan_row *r)
{
    return (struct once_row){ .scope = { r->key.scope.data, r->key.scope.len },
                              .key = { r->key.name.data, r->key.name.len },
                              .pending = r->state == RECORD_PENDING,
                              .has_value = r->value_kept,
                              .fence = r->fence,
                              .claimed_at_ms = r->claimed_at_ms,
                              .done_at_ms = r->done_at_ms,
                              .lease_left_ms = r->lease_left_ms,
                              .retain_left_ms = r->retain_left_ms,
                              .value_bytes = r->value_bytes };
}

/* The cursor of the next page is the last key of this one, copied out of it. */
struct cursor {
    uint8_t frame[KEY_FRAME_BYTES_MAX];
    struct key key;
};

static void cursor_set(struct cursor *c, const struct key *key)
{
    c->key = key_unframe(bytes_of(c->frame, key_frame(key, c->frame)));
}

int once_list(struct once *o, struct once_bytes scope,
              int (*visit)(void *ctx, const struct once_row *row), void *ctx,
              struct once_error *reterr)
{
    if (scope.len > SCOPE_BYTES_MAX) {
        struct err err;
        err_set(&err, ERR_LIMIT, "the scope has more than %d bytes", SCOPE_BYTES_MAX);
        if (reterr) memcpy(reterr, &err, sizeof *reterr);
        return err.code;
    }
    struct cursor cursor = { .key.scope = bytes_of(scope.data, scope.len) };
    for (bool more = true; more;) {
        struct scan page = { 0 };
        struct call_args args = { .verb = VERB_SCAN,
                                  .key = cursor.key,
                                  .all_scopes = scope.len == 0,
                                  .limit = LIST_PAGE };
        int r = ask(o, args, take_scan, &page, reterr);
        if (r) return r;
        more = page.more;
        for (size_t i = 0; i < page.count; i++) {
            struct once_row row = row_of(&page.rows[i]);
            if (!visit(ctx, &row)) continue;
            more = false;
            break;
        }
        if (more) cursor_set(&cursor, &page.rows[page.count - 1].key);
        scan_clear(&page);
    }
    return 0;
}

static void take_count(struct asking *a, struct op *op)
{
    *(size_t *)a->into = op->count;
}

int once_sweep(struct once *o, uint64_t at_most, uint64_t *ret_removed,
               struct once_error *reterr)
{
    uint64_t removed = 0;
    for (bool full = true; full && removed < at_most;) {
        size_t count = 0, page = SWEEP_PAGE;
        if (page > at_most - removed) page = (size_t)(at_most - removed);
        struct call_args args = { .verb = VERB_EXPIRE, .limit = page };
        int r = ask(o, args, take_count, &count, reterr);
        if (r) return r;
        removed += count;
        full = count == page;
    }
    if (ret_removed) *ret_removed = removed;
    return 0;
}

/* ---- markers ---- */

struct swept {
    struct marker_stats markers;
    size_t count;
};

static void take_swept(struct asking *a, struct op *op)
{
    *(struct swept *)a->into = (struct swept){ op->markers, op->count };
}

/* Without a limit it only looks. */
static int ask_markers(struct once *o, size_t limit, struct swept *ret,
                       struct once_error *reterr)
{
    struct call_args args = { .verb = VERB_MARKERS_SWEEP, .limit = limit };
    return ask(o, args, take_swept, ret, reterr);
}

int once_markers(struct once *o, struct once_markers *ret_markers, struct once_error *reterr)
{
    struct swept s;
    int r = ask_markers(o, 0, &s, reterr);
    if (r) return r;
    *ret_markers = (struct once_markers){ .installed = s.markers.installed,
                                          .ttl_ms = s.markers.ttl_ms,
                                          .oldest_ms = s.markers.oldest_ms };
    return 0;
}

int once_sweep_markers(struct once *o, uint64_t at_most, uint64_t *ret_removed,
                       struct once_error *reterr)
{
    uint64_t removed = 0;
    size_t page = MARKERS_BATCH_MAX;
    for (bool more = true; more && removed < at_most;) {
        struct swept s;
        if (page > at_most - removed) page = (size_t)(at_most - removed);
        int r = ask_markers(o, page, &s, reterr);
        if (r) return r;
        if (!s.markers.installed) {
            struct err err;
            err_set(&err, ERR_UNSUPPORTED,
                    "there are no markers in this database: once migrate --mutations");
            return api_fail(reterr, &err);
        }
        removed += s.count;
        more = s.markers.more;
        page = markers_batch_next(page, &s.markers);
    }
    if (ret_removed) *ret_removed = removed;
    return 0;
}

/* ---- draining ---- */

struct draining {
    struct once_call call; /* first: what drive_until() looks at */
    uint64_t drained;
    struct err err;
};

static void drain_over(uint64_t drained, const struct err *err, void *ctx)
{
    struct draining *d = ctx;
    d->drained = drained;
    d->err = *err;
    d->call.finished = true;
    drive_wake_caller(d->call.once, &d->call);
}

static int drain_check(const struct once *o, int64_t wait_ms, struct err *reterr)
{
    if (wait_ms < 0 || wait_ms > DURATION_MS_MAX)
        return err_set(reterr, ERR_INVALID, "a wait is from 0 to ten years");
    if (o->store->caps & CAP_CALLS)
        return err_set(reterr, ERR_UNSUPPORTED,
                       "the daemon has the buffer, and drains it by itself");
    return api_for_runs(o, reterr);
}

int once_drain(struct once *o, uint64_t *ret_drained, struct once_error *reterr)
{
    return once_drain_within(o, ONCE_DRAIN_WAIT_MS, ret_drained, reterr);
}

int once_drain_within(struct once *o, int64_t wait_ms, uint64_t *ret_drained,
                      struct once_error *reterr)
{
    struct draining d = { .call = { .once = o } };
    if (drain_check(o, wait_ms, &d.err)) return api_fail(reterr, &d.err);
    pthread_cond_init(&d.call.cond, NULL);
    drive_enter(o);
    int r = engine_drain(o->engine, wait_ms, drain_over, &d, &d.err);
    if (!r) drive_until(o, &d.call);
    drive_leave(o);
    pthread_cond_destroy(&d.call.cond);
    if (d.err.code) return api_fail(reterr, &d.err);
    if (ret_drained) *ret_drained = d.drained;
    return 0;
}

struct telling {
    once_fact_fn *tell;
    void *ctx;
    const char *plane; /* of a store that is the only one */
};

static void take_facts(struct asking *a, struct op *op)
{
    const struct telling *t = a->into;
    for (size_t i = 0; op->facts && i < op->facts->count; i++) {
        const struct fact *f = &op->facts->rows[i];
        struct once_fact fact = { .level = (int)f->level,
                                  .plane = *f->plane ? f->plane : t->plane,
                                  .name = f->name,
                                  .text = f->text,
                                  .advice = f->advice };
        t->tell(t->ctx, &fact);
    }
}

int once_check(struct once *o, once_fact_fn *tell, void *ctx, struct once_error *reterr)
{
    struct telling telling = { tell, ctx,
                               o->config.flags & ONCE_EPHEMERAL ? "coord" : "ledger" };
    struct call_args args = { .verb = VERB_PING, .wants_facts = true };
    return ask(o, args, take_facts, &telling, reterr);
}

static void take_stats(struct asking *a, struct op *op)
{
    struct once_stats *to = a->into;
    const struct engine_stats of = engine_stats(a->call.once->engine);
    *to = (struct once_stats){ .pending = op->stats.pending,
                               .lapsed = op->stats.lapsed,
                               .done = op->stats.done,
                               .gone = op->stats.gone,
                               .bytes = op->stats.bytes,
                               .claimed = of.outcomes[OUTCOME_CLAIMED],
                               .cached = of.outcomes[OUTCOME_CACHED],
                               .in_progress = of.outcomes[OUTCOME_IN_PROGRESS],
                               .timed_out = of.outcomes[OUTCOME_TIMED_OUT],
                               .mismatches = of.outcomes[OUTCOME_MISMATCH],
                               .lost = of.lost,
                               .takeovers = of.takeovers,
                               .promoted = of.promoted,
                               .waiters = of.waiters,
                               .held = of.held,
                               .renewals = of.renewals,
                               .ambiguous = of.ambiguous,
                               .swept = of.swept };
    for (size_t i = 0; i < sizeof of.outcomes / sizeof of.outcomes[0]; i++)
        to->claims += of.outcomes[i];
}

int once_stats(struct once *o, struct once_stats *ret_stats, struct once_error *reterr)
{
    struct call_args args = { .verb = VERB_STATS };
    return ask(o, args, take_stats, ret_stats, reterr);
}
