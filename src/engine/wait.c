/* wait.c - the line of callers who wait for one key.
 *
 * A waitlist exists while somebody waits. It holds its callers in the order they came, at most
 * one of them asking the store on behalf of all, one watch at the store, and one timer:
 *
 *   something may have changed (the watch fired, the lease lapses, a retry is due)
 *     --> the head asks, with a claim of its own
 *   claimed        the head leaves as the new owner; the others watch that owner
 *   in_progress    everybody stays; watch what the answer showed
 *   cached, ...    the same answer for everybody who was here before the head asked (E3);
 *                  those who came later have their head ask again
 *   error          back off, ask again: an error is never an answer to a waiter
 *
 * The line is per key *and* fingerprint: all its callers asked the same question. A new caller
 * joins it, or lines up behind the one who is just asking, without asking: a crowd costs a claim and
 * a watch, not one each. But nobody is told timed_out on hearsay: the store has been asked at least
 * once since they came (`confirmed`). */
#include "base/check.h"
#include "base/museum.h"
#include "engine/internal.h"

#include <stdlib.h>

enum {
    POLL_MS_FIRST = 20, /* of a store that cannot notify */
    POLL_MS_MAX = 250,
    RETRY_MS_FIRST = 20,
    RETRY_MS_MAX = 1000,
};

struct waitlist {
    struct map_node node;
    struct engine *engine;
    struct list waiters;
    struct call *asking;    /* its op is at the store; it is still in the line */
    struct op *watch;       /* at the store */
    uint64_t seen, watched; /* what the line waits to change, and what the watch does */
    struct timer timer;     /* lapse of the lease, next poll, or next retry */
    uint64_t tickets;       /* given out so far */
    uint64_t asked;         /* tickets given out when the head asked */
    uint64_t watched_for;   /* tickets given out when the watch was set */
    uint64_t confirmed; /* callers with a smaller ticket have been spoken for by the store */
    size_t overdue;     /* parked without a timer: past their deadline, not spoken for yet */
    int64_t lapses_ms;
    unsigned failures, polls;
    bool closing; /* empty and out of the map; lives until its watch comes back */
    uint16_t id_len;
    uint8_t id[];
};

static struct bytes waitlist_id(const struct map_node *n)
{
    const struct waitlist *w = container_of(n, struct waitlist, node);
    return bytes_of(w->id, w->id_len);
}

static struct bytes leader_question(const struct map_node *n)
{
    return container_of(n, struct call, leader)->op->question;
}

int waitlists_init(struct engine *e)
{
    uint64_t seeds[4];
    e->rng->fill(e->rng, seeds, sizeof seeds);
    int r = map_init(&e->waitlists, waitlist_id, seeds);
    return r ? r : map_init(&e->leaders, leader_question, seeds + 2);
}

void waitlists_fini(struct engine *e)
{
    CHECK(e->waitlists.count == 0 && e->leaders.count == 0);
    map_fini(&e->waitlists);
    map_fini(&e->leaders);
}

static struct waitlist *waitlist_find(const struct call *c)
{
    struct map_node *n = map_find(&c->engine->waitlists, c->op->question);
    return n ? container_of(n, struct waitlist, node) : NULL;
}

static void waitlist_timer(struct timer *t);

static struct waitlist *waitlist_new(struct call *c)
{
    struct bytes id = c->op->question;
    struct waitlist *w = malloc(sizeof *w + id.len);
    if (!w) return NULL;
    *w = (struct waitlist){ .engine = c->engine, .id_len = (uint16_t)id.len };
    memcpy(w->id, id.data, id.len);
    list_init(&w->waiters);
    timer_init(&w->timer, waitlist_timer);
    map_insert(&c->engine->waitlists, &w->node);
    return w;
}

/* The last one has left. */
static void close_if_empty(struct waitlist *w)
{
    if (!list_empty(&w->waiters) || w->closing) return;
    CHECK(!w->asking);
    struct engine *e = w->engine;
    timer_stop(e->loop, &w->timer);
    map_remove(&e->waitlists, &w->node);
    w->closing = true;
    if (w->watch)
        store_cancel(e->store, w->watch);
    else
        free(w);
}

/* ---- joining and leaving ---- */

static void line_up(struct waitlist *w, struct call *c)
{
    c->waitlist = w;
    c->ticket = w->tickets++;
    c->engine->stats.waiters++;
    link_remove(&c->link);
    list_append(&w->waiters, &c->link);
    timer_set(c->engine->loop, &c->timer, call_deadline_ms(c));
}

static void join(struct waitlist *w, struct call *c)
{
    call_set_state(c, CALL_PARKED);
    line_up(w, c);
}

static void leave(struct call *c)
{
    struct waitlist *w = c->waitlist;
    struct engine *e = c->engine;
    if (c->state == CALL_PARKED && !timer_is_set(&c->timer)) w->overdue--;
    timer_stop(e->loop, &c->timer);
    link_remove(&c->link);
    c->waitlist = NULL;
    CHECK(e->stats.waiters > 0);
    e->stats.waiters--;
}

static void leave_with(struct call *c, const struct answer *out)
{
    leave(c);
    call_finish(c, out);
}

/* ---- leaders ---- */

void wait_lead(struct call *c)
{
    struct engine *e = c->engine;
    if (map_find(&e->leaders, c->op->question)) return;
    map_insert(&e->leaders, &c->leader);
    c->leads = true;
}

void wait_lead_no_more(struct call *c)
{
    if (!c->leads) return;
    map_remove(&c->engine->leaders, &c->leader);
    c->leads = false;
}

void wait_sent(struct call *c)
{
    if (c->waitlist) c->waitlist->asked = c->waitlist->tickets;
}

/* The line behind a call that is just asking: it becomes the head that asks for them. */
static struct waitlist *line_behind_leader(const struct call *c)
{
    struct engine *e = c->engine;
    struct map_node *n = map_find(&e->leaders, c->op->question);
    if (!n) return NULL;
    struct call *leader = container_of(n, struct call, leader);
    struct waitlist *w = waitlist_new(leader);
    if (!w) return NULL;
    wait_lead_no_more(leader);
    line_up(w, leader);
    w->asking = leader;
    w->asked = w->tickets;
    return w;
}

bool wait_join_existing(struct call *c)
{
    size_t room = c->engine->config.waiters_max - c->engine->stats.waiters;
    struct waitlist *w = waitlist_find(c);
    if (room < (w ? 1 : 2)) return false; /* a new line takes in its leader, too */
    if (!w) w = line_behind_leader(c);
    if (!w) return false;
    join(w, c);
    return true;
}

/* ---- asking on behalf of the line ---- */

static void ask(struct waitlist *w)
{
    if (w->asking || list_empty(&w->waiters)) return;
    struct call *head = container_of(list_first(&w->waiters), struct call, link);
    w->asking = head;
    w->asked = w->tickets;
    if (!timer_is_set(&head->timer)) w->overdue--; /* parked and overdue: now it is asking */
    call_ask(head);
}

static void retry_later(struct waitlist *w)
{
    struct engine *e = w->engine;
    w->failures++;
    timer_set(e->loop, &w->timer,
              e->loop->now_ms + back_off_ms(e->rng, w->failures, RETRY_MS_FIRST, RETRY_MS_MAX));
}

/* Nobody tells us of changes: look now and then, less and less often, and when the lease
 * ends. */
static void poll_later(struct waitlist *w)
{
    struct engine *e = w->engine;
    int64_t poll_ms =
        e->loop->now_ms + back_off_ms(e->rng, ++w->polls, POLL_MS_FIRST, POLL_MS_MAX);
    timer_set(e->loop, &w->timer, poll_ms < w->lapses_ms ? poll_ms : w->lapses_ms);
}

static bool watch(struct waitlist *w, uint64_t seen, uint64_t heard);

/* The news came with the answer. It is for those who were here before the watch was set: they saw
 * the record undecided, so it was decided after they came (E3). */
static void told_answer(struct waitlist *w, const struct answer *out)
{
    list_each (&w->waiters, at) {
        struct call *c = container_of(at, struct call, link);
        if (c->ticket < w->watched_for) leave_with(c, out);
    }
}

static void watch_done(struct op *op, void *ctx)
{
    struct waitlist *w = ctx;
    CHECK(w->watch == op);
    w->watch = NULL;
    int failed = op->err.code;
    bool vanished = op->out.version == 0;
    if (!w->closing && !w->asking && !failed && op->answers) told_answer(w, &op->out);
    op_free(op);
    if (w->closing) {
        free(w);
        return;
    }
    if (list_empty(&w->waiters)) {
        close_if_empty(w);
        return;
    }
    if (BUG(VANISHED_MEANS_MINE) && !failed && vanished && !w->asking) {
        struct call *c = container_of(list_first(&w->waiters), struct call, link);
        leave_with(c, &(struct answer){ .outcome = OUTCOME_CLAIMED, .fence = 1 });
        close_if_empty(w);
        return;
    }
    if (w->asking) return; /* its answer brings a new watch */
    bool outdated = failed == ERR_CANCELED && w->watched != w->seen;
    if (outdated && watch(w, w->seen, 0)) return;
    if (failed == ERR_UNSUPPORTED)
        poll_later(w);
    else if (failed)
        retry_later(w);
    else
        ask(w);
}

static bool watch(struct waitlist *w, uint64_t seen, uint64_t heard)
{
    struct engine *e = w->engine;
    if (!(e->store->caps & CAP_NOTIFY)) return false;
    w->seen = seen;
    if (w->watch) {
        /* It waits for another version, perhaps at the other plane: it may never fire. */
        if (w->watched != seen) store_cancel(e->store, w->watch);
        return true;
    }
    struct call *c = container_of(list_first(&w->waiters), struct call, link);
    struct request in = { .fingerprint = c->args.in.fingerprint };
    struct op *op = op_new(VERB_WATCH, &c->args.key, &in);
    if (!op) return false;
    op->seen = w->watched = seen;
    op->heard = heard;
    w->watched_for = w->tickets;
    w->watch = op;
    engine_submit(e, op, watch_done, w);
    return true;
}

/* Nobody may be answered yet: be told of the next change, and look when the lease lapses. Unless
 * everybody was here when `seen` was asked for, the watch has to look, too (E3). */
static void stand_by(struct waitlist *w, const struct answer *seen, uint64_t heard)
{
    if (list_empty(&w->waiters)) return;
    struct engine *e = w->engine;
    w->lapses_ms = e->loop->now_ms + (seen->lease_left_ms > 0 ? seen->lease_left_ms : 1);
    if (watch(w, seen->version, w->tickets == w->asked ? heard : 0))
        timer_set(e->loop, &w->timer, w->lapses_ms);
    else
        poll_later(w);
}

static void waitlist_timer(struct timer *t)
{
    ask(container_of(t, struct waitlist, timer));
}

/* ---- deadlines ---- */

static struct answer timed_out(const struct waitlist *w)
{
    int64_t left_ms = w->lapses_ms - w->engine->loop->now_ms;
    return (struct answer){ .outcome = OUTCOME_TIMED_OUT,
                            .lease_left_ms = left_ms > 0 ? left_ms : 0 };
}

/* The timer of a parked call: its wait is over. */
void wait_deadline(struct call *c)
{
    struct waitlist *w = c->waitlist;
    if (c->state == CALL_ASKING) return; /* its answer is on the way, and decides */
    w->overdue++;
    /* Nobody has asked since it came, or it asked and may have won: ask, and let it leave with
     * the answer. */
    if (c->maybe || c->ticket >= w->confirmed) {
        ask(w);
        return;
    }
    struct answer out = timed_out(w);
    leave_with(c, &out);
    close_if_empty(w);
}

/* Those whose time was over before the store was asked for them. With an error, they get it. */
static void dismiss_overdue(struct waitlist *w, const struct err *err)
{
    if (w->overdue == 0) return;
    struct answer out = timed_out(w);
    list_each (&w->waiters, at) {
        struct call *c = container_of(at, struct call, link);
        if (timer_is_set(&c->timer) || c->ticket >= w->asked) continue;
        if (!err) {
            leave_with(c, &out);
            continue;
        }
        leave(c);
        call_finish_err(c, err->code, err->text);
    }
}

/* ---- the head's answer ---- */

static bool past_deadline(const struct call *c)
{
    return c->engine->loop->now_ms >= call_deadline_ms(c);
}

/* Nobody has been told anything yet, so nobody waits for anything: they fail at once, as each of
 * them would have alone. */
static void refuse_all(struct waitlist *w, const struct err *err)
{
    list_each (&w->waiters, at) {
        struct call *c = container_of(at, struct call, link);
        leave(c);
        call_finish_err(c, err->code, err->text);
    }
}

static void head_failed(struct waitlist *w, struct call *c)
{
    struct engine *e = w->engine;
    struct err err = c->op->err;
    if (err.code == ERR_AMBIGUOUS) {
        c->maybe = true;
        e->stats.ambiguous++;
    }
    if ((w->confirmed == 0 && !c->maybe) || c->op->coord_only) {
        refuse_all(w, &err);
        return;
    }
    bool pointless = err.code != ERR_AMBIGUOUS && err.code != ERR_UNAVAILABLE;
    if (pointless || past_deadline(c)) {
        leave(c);
        call_finish_err(c, err.code, err.text);
    } else {
        call_set_state(c, CALL_PARKED);
    }
    dismiss_overdue(w, &err);
    if (!list_empty(&w->waiters)) retry_later(w);
}

static void head_claimed(struct waitlist *w, struct call *c)
{
    struct engine *e = w->engine;
    struct answer out = c->op->out;
    e->stats.promoted++;
    trace_emit(e->trace, (struct trace_event){ .kind = TRACE_PROMOTED,
                                               .scope = c->args.key.scope,
                                               .key = c->args.key.name,
                                               .number = call_waited_ms(c) });
    call_granted(c);
    leave_with(c, &out);
    stand_by(w, &out, 0);
    dismiss_overdue(w, NULL);
}

static void head_waits_on(struct waitlist *w, struct call *c)
{
    struct answer out = c->op->out;
    uint64_t heard = c->op->heard;
    w->lapses_ms = w->engine->loop->now_ms + out.lease_left_ms;
    if (past_deadline(c)) {
        struct answer late = timed_out(w);
        leave_with(c, &late);
    } else {
        call_set_state(c, CALL_PARKED);
    }
    dismiss_overdue(w, NULL);
    stand_by(w, &out, heard);
}

/* One answer for everybody who was here when the head asked (E3). */
static void answer_all(struct waitlist *w, struct call *head)
{
    struct answer out = head->op->out;
    blob_ref(out.value);
    list_each (&w->waiters, at) {
        struct call *c = container_of(at, struct call, link);
        if (c->ticket >= w->asked) continue;
        if (BUG(WAKE_ONE_ON_PUBLISH) && c != head) continue;
        leave_with(c, &out);
    }
    blob_unref(out.value);
    if (!BUG(WAKE_ONE_ON_PUBLISH)) ask(w);
}

void wait_answered(struct call *c)
{
    struct waitlist *w = c->waitlist;
    CHECK(w->asking == c);
    w->asking = NULL;
    timer_stop(w->engine->loop, &w->timer);
    if (BUG(POLL_ERROR_CLAIMS) && c->op->err.code) {
        op_clear_answer(c->op);
        c->op->out.outcome = OUTCOME_CLAIMED;
    }
    if (c->op->err.code) {
        head_failed(w, c);
        close_if_empty(w);
        return;
    }
    w->failures = 0;
    w->confirmed = w->asked;
    if (c->op->out.outcome == OUTCOME_CLAIMED)
        head_claimed(w, c);
    else if (c->op->out.outcome == OUTCOME_IN_PROGRESS)
        head_waits_on(w, c);
    else
        answer_all(w, c);
    if (w->overdue) ask(w); /* they came after the head had asked */
    close_if_empty(w);
}

/* ---- from call.c ---- */

void wait_park(struct call *c, const struct answer *seen)
{
    struct engine *e = c->engine;
    if (e->stats.waiters >= e->config.waiters_max) {
        trace_emit(e->trace, (struct trace_event){ .kind = TRACE_WAITERS_FULL,
                                                   .scope = c->args.key.scope,
                                                   .key = c->args.key.name,
                                                   .number = (int64_t)e->stats.waiters });
        call_finish(c, seen);
        return;
    }
    struct answer out = *seen;
    struct waitlist *w = waitlist_find(c);
    bool fresh = !w;
    if (fresh) w = waitlist_new(c);
    if (!w) {
        call_finish_err(c, ERR_NOMEM, "out of memory; nothing was changed");
        return;
    }
    join(w, c);
    if (c->ticket == w->confirmed) w->confirmed = c->ticket + 1; /* it has just asked itself */
    if (!fresh) return;
    w->asked = w->tickets;
    stand_by(w, &out, c->op->heard);
}

void wait_leave(struct call *c)
{
    struct waitlist *w = c->waitlist;
    bool was_asking = w->asking == c;
    leave(c);
    if (was_asking) {
        w->asking = NULL;
        ask(w); /* what the canceled one learns is lost; the next one asks for itself */
    }
    close_if_empty(w);
}

static bool stop_visit(struct map_node *n, void *ctx)
{
    (void)ctx;
    struct waitlist *w = container_of(n, struct waitlist, node);
    struct list all;
    list_init(&all);
    list_take(&all, &w->waiters);
    /* All of them at once: the next in line must not start to ask while the line is
     * dissolved. */
    for (struct link *at; (at = list_first(&all));) {
        struct call *c = container_of(at, struct call, link);
        if (w->asking == c) w->asking = NULL;
        leave(c);
        call_cancel(c);
    }
    close_if_empty(w);
    return true;
}

void waitlists_stop(struct engine *e)
{
    map_each(&e->waitlists, stop_visit, NULL);
}
