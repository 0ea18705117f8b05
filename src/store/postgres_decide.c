/* postgres_decide.c - see postgres_decide.h.
 *
 * Guarantees: an op that cannot be answered leaves the image alone: whatever needs memory comes
 * before the first change. */
#include "store/postgres_decide.h"

#include "base/check.h"

enum { PUT_MARGIN_MS = 2000 }; /* between the write and the end of what it is made under */

struct decision {
    struct run_step *step;
    struct run_ask *ask;
    struct image *image;
    struct run_scratch *scratch;
    struct run_moment at;
};

/* A run, and the alias by which it was found. */
struct found {
    struct image_row *row, *alias; /* NULL: there is none */
};

static int no_memory(struct err *reterr)
{
    return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
}

/* ---- the image ---- */

static void rely_on(struct run_step *step, struct image_row *row)
{
    for (size_t i = 0; i < step->row_count; i++)
        if (step->rows[i] == row) return;
    CHECK(step->row_count < IMAGE_ROWS_OF_OP);
    step->rows[step->row_count++] = row;
}

static void change_row(const struct decision *d, struct image_row *row)
{
    row->changed = true;
    d->step->op->changed = true;
    rely_on(d->step, row);
}

static struct found find_by_id(const struct decision *d, struct bytes env,
                               const struct run_id *id)
{
    struct image_row *at = image_by_id(d->image, env, id);
    struct found found = { .row = at };
    if (at && at->canonical) found = (struct found){ .row = at->canonical, .alias = at };
    if (found.row) rely_on(d->step, found.row);
    if (found.alias) rely_on(d->step, found.alias);
    return found;
}

static struct image_row *find_by_key(const struct decision *d, struct bytes env,
                                     struct bytes task, struct bytes key)
{
    struct image_row *row = key.len ? image_by_key(d->image, env, task, key) : NULL;
    if (row) rely_on(d->step, row);
    return row;
}

/* By id, or by a key that leads there. */
static struct found find_asked(const struct decision *d)
{
    const struct run_ask *ask = d->ask;
    if (ask->id.text[0] && d->step->op->verb != VERB_RUN_RESET)
        return find_by_id(d, ask->env, &ask->id);
    struct image_row *row = find_by_key(d, ask->env, ask->task, ask->key);
    if (row && !run_holds_key(&row->now, d->at.now_ms)) row = NULL;
    return (struct found){ .row = row };
}

static struct run as_found(const struct found *f, const struct run *now)
{
    struct run r = *now;
    if (f->alias) r.canonical = r.id;
    return r;
}

/* The rules put tags and metadata where the next decision puts its own. */
static int keep_made(const struct decision *d, const struct run *before, struct run *next,
                     struct err *reterr)
{
    bool tags = next->tags.data != before->tags.data;
    bool metadata = next->metadata.data != before->metadata.data;
    if (tags && image_keep(d->image, &next->tags)) return no_memory(reterr);
    if (metadata && image_keep(d->image, &next->metadata)) return no_memory(reterr);
    return 0;
}

/* ---- answers ---- */

static int answer(const struct decision *d, enum outcome outcome, const struct run *r,
                  struct err *reterr)
{
    if (r && run_rows_add(&d->ask->rows, r)) return no_memory(reterr);
    d->step->op->out.outcome = outcome;
    return 0;
}

static int answer_found(const struct decision *d, enum outcome outcome, const struct found *f,
                        struct err *reterr)
{
    struct run r = as_found(f, &f->row->now);
    return answer(d, outcome, &r, reterr);
}

/* ---- PUT ---- */

bool run_put_is_late(const struct run_ask *ask, struct run_moment at)
{
    return ask->until_ms && at.monotonic_ms + PUT_MARGIN_MS > ask->until_ms;
}

struct put {
    struct run run; /* with what was done to it in the buffer */
    struct found by_id;
    struct image_row *by_key; /* who has its key */
};

static int put_insert(const struct decision *d, struct put *p, struct err *reterr)
{
    struct run next = p->run;
    bool wants_key = next.key_held && next.key.len && d->at.now_ms < next.key_until_ms;
    if (p->by_key && !wants_key) next.key_held = false;
    if (next.key.len == 0) next.key_held = false;
    int r = answer(d, OUTCOME_OK, &next, reterr);
    if (r) return r;
    if (p->by_key && next.key_held) {
        p->by_key->now.key_held = false; /* it had no right to it */
        change_row(d, p->by_key);
    }
    change_row(d, image_add(d->image, &next));
    return 0;
}

/* The row is not written before the next op is decided, which makes a reason of its own. */
static int put_failed(const struct decision *d, struct put *p, struct err *reterr)
{
    int r = rules_run_put_failed(&p->run, &p->by_key->now, d->at.now_ms, d->scratch, &p->run,
                                 reterr);
    if (r) return r;
    if (image_keep(d->image, &p->run.error)) return no_memory(reterr);
    return put_insert(d, p, reterr);
}

/* What its changes make of the run that it is, or that it is an alias of. */
static int changes_apply(const struct decision *d, const struct put *p, struct run *ret_next,
                         struct err *reterr)
{
    const struct run *now = &p->by_id.row->now;
    const struct image_row *alias = p->by_id.alias;
    int r = alias ? run_merge(now, d->ask->changes, alias->now.changes, d->at.now_ms,
                              d->scratch, ret_next, reterr)
                  : run_fold(now, d->ask->changes, d->scratch, ret_next, reterr);
    return r ? r : keep_made(d, now, ret_next, reterr);
}

static int put_same(const struct decision *d, struct put *p, struct err *reterr)
{
    struct found *f = &p->by_id;
    uint64_t applied = f->alias ? f->alias->now.changes : f->row->now.changes;
    if (!d->ask->drains || p->run.changes <= applied)
        return answer_found(d, OUTCOME_OK, f, reterr);
    struct run next;
    int r = changes_apply(d, p, &next, reterr);
    if (r) return r;
    struct run told = as_found(f, &next);
    if ((r = answer(d, OUTCOME_OK, &told, reterr))) return r;
    f->row->now = next;
    change_row(d, f->row);
    if (f->alias) f->alias->now.changes = p->run.changes;
    if (f->alias) change_row(d, f->alias);
    return 0;
}

static int put_alias(const struct decision *d, struct put *p, struct err *reterr)
{
    struct run *now = &p->by_key->now, next;
    int r = run_merge(now, d->ask->changes, 0, d->at.now_ms, d->scratch, &next, reterr);
    if (!r) r = keep_made(d, now, &next, reterr);
    if (r) return r;
    struct run told = next;
    told.canonical = told.id;
    if ((r = answer(d, OUTCOME_OK, &told, reterr))) return r;
    *now = next;
    change_row(d, p->by_key); /* also if it is what it was: it must still have the key */
    struct image_row *alias = image_add_alias(d->image, &p->run.id, p->by_key);
    alias->now.changes = p->run.changes;
    change_row(d, alias);
    return 0;
}

static int put_cached(const struct decision *d, struct put *p, struct err *reterr)
{
    return answer(d, OUTCOME_CACHED, &p->by_key->now, reterr);
}

static int put_mismatch(const struct decision *d, struct put *p, struct err *reterr)
{
    if (p->by_id.row) return answer_found(d, OUTCOME_MISMATCH, &p->by_id, reterr);
    return answer(d, OUTCOME_MISMATCH, &p->by_key->now, reterr);
}

static int decide_put(const struct decision *d, struct err *reterr)
{
    static int (*const put_how[])(const struct decision *, struct put *, struct err *) = {
        [PUT_INSERT] = put_insert,     [PUT_SAME] = put_same,   [PUT_CACHED] = put_cached,
        [PUT_MISMATCH] = put_mismatch, [PUT_ALIAS] = put_alias, [PUT_FAILED] = put_failed,
    };
    struct put p = { .run = *d->ask->run };
    if (run_put_is_late(d->ask, d->at)) return answer(d, OUTCOME_LOST, NULL, reterr);
    int r =
        d->ask->drains ? run_fold(d->ask->run, d->ask->changes, d->scratch, &p.run, reterr) : 0;
    if (!r) r = keep_made(d, d->ask->run, &p.run, reterr);
    if (r) return r;
    p.by_id = find_by_id(d, p.run.env, &p.run.id);
    p.by_key = find_by_key(d, p.run.env, p.run.task, p.run.key);
    struct run by_id = p.by_id.row ? as_found(&p.by_id, &p.by_id.row->now) : p.run;
    d->ask->put = rules_run_put(p.by_id.row ? &by_id : NULL, p.by_key ? &p.by_key->now : NULL,
                                &p.run, d->ask->drains, d->at.now_ms);
    return put_how[d->ask->put](d, &p, reterr);
}

/* ---- the others ---- */

static int decide_get(const struct decision *d, struct err *reterr)
{
    struct found f = find_asked(d);
    if (!f.row) return answer(d, OUTCOME_ABSENT, NULL, reterr);
    return answer_found(d, OUTCOME_OK, &f, reterr);
}

static int change_by(const struct decision *d, const struct run_change *change,
                     struct err *reterr)
{
    struct found f = find_asked(d);
    if (!f.row) return answer(d, OUTCOME_ABSENT, NULL, reterr);
    struct run_verdict v;
    int r = rules_run_change(&f.row->now, change, d->at.now_ms, d->scratch, &v, reterr);
    if (!r) r = keep_made(d, &f.row->now, &v.next, reterr);
    if (r) return r;
    struct run told = as_found(&f, &v.next);
    if ((r = answer(d, v.outcome, &told, reterr))) return r;
    d->ask->reason = v.reason;
    if (!v.changed) return 0;
    f.row->now = v.next;
    change_row(d, f.row);
    return 0;
}

static int decide_change(const struct decision *d, struct err *reterr)
{
    return change_by(d, &d->ask->change, reterr);
}

static int decide_reset(const struct decision *d, struct err *reterr)
{
    return change_by(d, &(struct run_change){ .kind = RUN_RESET_KEY }, reterr);
}

typedef int decide_verb(const struct decision *, struct err *);

static decide_verb *const deciders[VERBS] = {
    [VERB_RUN_PUT] = decide_put,
    [VERB_RUN_GET] = decide_get,
    [VERB_RUN_CHANGE] = decide_change,
    [VERB_RUN_RESET] = decide_reset,
};

bool run_decides(enum verb verb)
{
    return deciders[verb] != NULL;
}

void run_decide(struct run_step *step, struct image *image, struct run_scratch *scratch,
                struct run_moment at)
{
    struct decision d = { step, step->op->run, image, scratch, at };
    struct err err = step->bad;
    op_clear_answer(step->op);
    step->row_count = 0;
    int r = err.code ? err.code : deciders[step->op->verb](&d, &err);
    d.ask->now_ms = at.now_ms;
    if (!r) return;
    op_clear_answer(step->op);
    step->op->err = err;
    step->row_count = 0;
}

bool run_step_is_written(const struct run_step *step)
{
    for (size_t i = 0; i < step->row_count; i++)
        if (step->rows[i]->changed && !step->rows[i]->written) return false;
    return true;
}
