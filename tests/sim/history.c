/* history.c - is an answer true?
 *
 * Per key, the ledger's log says what the record was at every instant. An answer is true if the
 * ledger was, at some instant between the call and its answer, in a state that gives that
 * answer (linearizability, with the log as the witness; I18). Beyond that:
 *
 * - in_progress, timed_out: some claim with this fingerprint met, or became, an owner at either
 *   plane after the call began (I21). Coord may absorb.
 *
 * - cached from coord: the ledger has had exactly this answer (C1). It may be over there when
 * it ended so shortly before that coord need not have noticed, when the forget that ended it
 * was never acknowledged, or in runs where coord gets late or doubled requests or a plane's
 * clock jumps (`loose`): then coord may keep, or be given again, what has ended.
 *
 * - an error: only "ambiguous" may have changed the ledger (S4).
 *
 * - a grant: is told to exactly one caller, who asked with one token (I1, E4).
 *
 * What may be said about time is in pace.c. */
#include "base/check.h"
#include "tests/sim/internal.h"

#include <inttypes.h>

/* ---- instants ---- */

/* The part of a mark that lies within a call. */
struct instant {
    const struct mark *mark;
    int64_t from_ms, to_ms; /* the ledger's clock */
    bool inside;            /* the mark began within the call */
};

typedef bool holds_fn(const struct instant *at, const struct attempt *a,
                      const struct answer *out);

static struct page *page_of(struct client *c)
{
    return &sim_ledger(c->sim)->pages[c->attempt.ident];
}

static bool ever(struct client *c, holds_fn *holds, const struct answer *out)
{
    struct page *page = page_of(c);
    const struct attempt *a = &c->attempt;
    static const struct mark nothing;
    int64_t end_ms = c->sim->now_ms;
    for (size_t i = page->count; i-- > 0;) {
        const struct mark *m = &page->log[i];
        int64_t begin_ms = m->at_ms > a->at_ms ? m->at_ms : a->at_ms;
        struct instant at = { .mark = m,
                              .from_ms = m->clock_ms + (begin_ms - m->at_ms),
                              .to_ms = m->clock_ms + (end_ms - m->at_ms),
                              .inside = m->seq > a->seq };
        if (holds(&at, a, out)) return true;
        if (!at.inside) return false;
        end_ms = m->at_ms;
    }
    return holds(&(struct instant){ .mark = &nothing }, a, out);
}

static bool live(const struct instant *at)
{
    return at->mark->status != ABSENT && at->from_ms < at->mark->gone_ms;
}

static bool is_absent(const struct instant *at, const struct attempt *a,
                      const struct answer *out)
{
    (void)a, (void)out;
    return at->mark->status == ABSENT || at->to_ms >= at->mark->gone_ms;
}

static bool is_pending(const struct instant *at, const struct attempt *a,
                       const struct answer *out)
{
    (void)a, (void)out;
    return at->mark->status == PENDING && live(at);
}

static bool has_live_owner(const struct instant *at, const struct attempt *a,
                           const struct answer *out)
{
    return is_pending(at, a, out) && at->from_ms < at->mark->lease_until_ms;
}

static bool has_value(const struct instant *at, const struct attempt *a,
                      const struct answer *out)
{
    (void)a;
    return at->mark->status == DONE && live(at) && blob_eq(at->mark->value, out->value);
}

static bool answers(const struct instant *at, const struct attempt *a, const struct answer *out)
{
    return has_value(at, a, out) && at->mark->fingerprint == a->fingerprint;
}

static bool differs(const struct instant *at, const struct attempt *a, const struct answer *out)
{
    (void)out;
    return live(at) && at->mark->fingerprint != a->fingerprint;
}

static bool is_done_by(const struct instant *at, const struct attempt *a,
                       const struct answer *out)
{
    (void)out;
    const struct mark *m = at->mark;
    if (m->status != DONE || !token_eq(&m->token, &a->token)) return false;
    return blob_eq(m->value, a->value) && (at->inside || live(at));
}

static bool not_mine(const struct instant *at, const struct attempt *a,
                     const struct answer *out)
{
    const struct mark *m = at->mark;
    if (is_absent(at, a, out)) return true;
    if (!token_eq(&m->token, &a->token)) return true;
    return m->status == DONE && !(a->verb == VERB_PUBLISH && blob_eq(m->value, a->value));
}

static bool caused(const struct instant *at, const struct attempt *a, const struct answer *out)
{
    (void)out;
    return at->inside && at->mark->cause_id == a->id && at->mark->cause == a->verb;
}

/* ---- coord's word ---- */

/* The ledger has ended m; may coord still say so? */
static bool coord_may_keep(struct sim *sim, const struct attempt *a, const struct mark *m,
                           const struct mark *end)
{
    int64_t over_ms = m->at_ms + (m->gone_ms - m->clock_ms);
    int64_t slack_ms = 4 * sim->swarm.latency_ms[COORD] + 2 * sim->swarm.latency_ms[LEDGER];
    if (!end || end->cause != VERB_FORGET) return a->at_ms <= over_ms + slack_ms;
    return !end->acked || end->acked > a->seq;
}

static bool coord_may_say(struct client *c, const struct answer *out)
{
    struct page *page = page_of(c);
    const struct attempt *a = &c->attempt;
    for (size_t i = page->count; i-- > 0;) {
        const struct mark *m = &page->log[i];
        bool it = m->status == DONE && m->fingerprint == a->fingerprint &&
                  blob_eq(m->value, out->value);
        const struct mark *end = i + 1 < page->count ? m + 1 : NULL;
        if (it && (c->sim->loose || coord_may_keep(c->sim, a, m, end))) return true;
    }
    return false;
}

/* Everybody who forgot it, or found it forgotten, has told coord as well. */
static void forget_acked(struct client *c)
{
    struct page *page = page_of(c);
    const struct attempt *a = &c->attempt;
    for (size_t i = 0; i < page->count; i++) {
        struct mark *m = &page->log[i];
        if (m->cause != VERB_FORGET || m->acked) continue;
        if (m->cause_id == a->id || m->seq < a->seq) m->acked = sim_tick(c->sim);
    }
}

static void publish_acked(struct client *c)
{
    struct page *page = page_of(c);
    struct mark *m = page->count ? &page->log[page->count - 1] : NULL;
    bool it = m && m->status == DONE && token_eq(&m->token, &c->attempt.token);
    if (it && !m->acked) m->acked = sim_tick(c->sim);
}

/* ---- one answer ---- */

static void claimed(struct client *c, const struct answer *out)
{
    struct page *page = page_of(c);
    const struct attempt *a = &c->attempt;
    for (size_t i = page->count; i-- > 0 && page->log[i].seq > a->seq;) {
        struct mark *m = &page->log[i];
        if (m->cause != VERB_CLAIM || m->cause_id != a->id || m->fence != out->fence) continue;
        if (!token_eq(&m->token, &a->token)) continue;
        if (m->executed)
            violation(c->sim, "I1", "fence %" PRIu64 " was executed twice", m->fence);
        m->executed = true;
        c->sim->result.totals.claimed++;
        return;
    }
    violation(c->sim, "C2", "#%" PRIu64 " was told claimed, but the ledger never granted it",
              a->id);
}

static void cached(struct client *c, const struct answer *out)
{
    c->sim->result.totals.cached++;
    if (!ever(c, answers, out) && !coord_may_say(c, out))
        violation(c->sim, "C1", "#%" PRIu64 " was told an answer that the ledger did not have",
                  c->attempt.id);
    pace_cached(c);
}

static void in_progress(struct client *c, const struct answer *out)
{
    const struct attempt *a = &c->attempt;
    uint64_t last = 0;
    for (int i = 0; i < PLANES; i++) {
        uint64_t seen = c->sim->planes[i].pages[a->ident].progress[a->fingerprint];
        if (seen > last) last = seen;
    }
    if (last < a->seq)
        violation(c->sim, ever(c, differs, out) ? "C7" : "I21",
                  "#%" PRIu64 " was told %s, but nobody was on it", a->id,
                  outcome_name(out->outcome));
    pace_in_progress(c, out);
}

static void claim_answered(struct client *c, const struct answer *out)
{
    enum outcome o = out->outcome;
    if (o == OUTCOME_CLAIMED)
        claimed(c, out);
    else if (o == OUTCOME_CACHED || o == OUTCOME_ALREADY_DONE)
        cached(c, out);
    else if (o == OUTCOME_IN_PROGRESS || o == OUTCOME_TIMED_OUT)
        in_progress(c, out);
    else if (o != OUTCOME_MISMATCH || !ever(c, differs, out))
        violation(c->sim, "C7", "#%" PRIu64 " was told %s", c->attempt.id, outcome_name(o));
    bool waits_for_nothing = o == OUTCOME_TIMED_OUT && c->attempt.wait_ms == 0;
    if (waits_for_nothing) violation(c->sim, "I21", "timed_out without waiting");
}

static void publish_answered(struct client *c, const struct answer *out)
{
    if (out->outcome == OUTCOME_OK && !ever(c, is_done_by, out))
        violation(c->sim, "C3", "#%" PRIu64 " was told ok, but the ledger does not have it",
                  c->attempt.id);
    if (out->outcome == OUTCOME_OK) publish_acked(c);
    if (out->outcome == OUTCOME_LOST && !ever(c, not_mine, out))
        violation(c->sim, "C3", "#%" PRIu64 " was told lost, but it owned the key",
                  c->attempt.id);
    if (out->outcome == OUTCOME_LOST && out->value && !ever(c, has_value, out))
        violation(c->sim, "C1", "lost, with an answer that the ledger did not have");
}

static void owner_answered(struct client *c, const struct answer *out)
{
    if (out->outcome == OUTCOME_OK && !ever(c, caused, out))
        violation(c->sim, "C2", "#%" PRIu64 " was told ok, but nothing happened",
                  c->attempt.id);
    if (out->outcome == OUTCOME_LOST && !ever(c, not_mine, out))
        violation(c->sim, "C2", "#%" PRIu64 " was told lost, but it owned the key",
                  c->attempt.id);
}

static void peek_answered(struct client *c, const struct answer *out)
{
    enum outcome o = out->outcome;
    bool finished = o == OUTCOME_CACHED || o == OUTCOME_ALREADY_DONE;
    holds_fn *holds = finished ? has_value : o == OUTCOME_ABSENT ? is_absent : is_pending;
    if (!ever(c, holds, out))
        violation(c->sim, "I18", "peek #%" PRIu64 " saw %s, which never was", c->attempt.id,
                  outcome_name(o));
}

static void forget_answered(struct client *c, const struct answer *out)
{
    enum outcome o = out->outcome;
    holds_fn *holds = o == OUTCOME_OK       ? caused
                      : o == OUTCOME_ABSENT ? is_absent
                                            : has_live_owner;
    if (!ever(c, holds, out))
        violation(c->sim, "I18", "forget #%" PRIu64 " answered %s, which never was",
                  c->attempt.id, outcome_name(o));
    if (o == OUTCOME_OK || o == OUTCOME_ABSENT) forget_acked(c);
}

static void failed(struct client *c, const struct err *err)
{
    struct sim *sim = c->sim;
    const struct attempt *a = &c->attempt;
    sim->result.totals.errors++;
    bool known =
        err->code == ERR_UNAVAILABLE || err->code == ERR_AMBIGUOUS || err->code == ERR_CANCELED;
    if (!known) violation(sim, "I21", "a valid call failed with %s", err_name(err->code));
    if (err->code == ERR_UNAVAILABLE && ever(c, caused, NULL))
        violation(sim, "S4", "#%" PRIu64 " was told that nothing was done, but it was", a->id);
    if (err->code != ERR_CANCELED && quiet_since(sim, a->at_ms - 2 * QUIET_MS))
        violation(sim, "C4", "#%" PRIu64 " failed although nothing is wrong: %s", a->id,
                  err->text);
}

/* What a call may have won and does not know of is given back, not left to lapse. */
static void check_given_back(struct client *c, const struct err *err, const struct answer *out)
{
    struct attempt *a = &c->attempt;
    if (a->verb != VERB_CLAIM || err->code == ERR_CANCELED || !a->has_token) return;
    /* A request that is executed again later may be granted when nobody asks any more. */
    if (c->sim->swarm.twice[LEDGER] || c->sim->swarm.late[LEDGER]) return;
    if (!err->code && out->outcome == OUTCOME_CLAIMED) return;
    const struct mark *now = &page_of(c)->now;
    bool owns = now->status == PENDING && token_eq(&now->token, &a->token);
    if (owns && !a->release_sent)
        violation(c->sim, "E4",
                  "#%" PRIu64 " was granted, told something else, and not given back", a->id);
}

static void check_duration(struct client *c)
{
    struct sim *sim = c->sim;
    const struct attempt *a = &c->attempt;
    int64_t took_ms = sim->now_ms - a->at_ms - (process_paused_ms(c->process) - a->paused_ms);
    int64_t wait_ms = a->wait_ms > PATIENCE_MS ? a->wait_ms : PATIENCE_MS;
    int64_t bound_ms = wait_ms + 1500 + 3 * (sim->swarm.timeout_ms[LEDGER] + 300);
    if (took_ms > bound_ms)
        violation(sim, "C5", "#%" PRIu64 " took %" PRId64 " ms", a->id, took_ms);
}

static void (*const verb_answered[VERBS])(struct client *, const struct answer *) = {
    [VERB_CLAIM] = claim_answered,   [VERB_PUBLISH] = publish_answered,
    [VERB_RELEASE] = owner_answered, [VERB_RENEW] = owner_answered,
    [VERB_PEEK] = peek_answered,     [VERB_FORGET] = forget_answered,
};

void history_answered(struct client *c, const struct err *err, const struct answer *out)
{
    check_duration(c);
    if (err->code)
        failed(c, err);
    else
        verb_answered[c->attempt.verb](c, out);
    check_given_back(c, err, out);
    bool blocked = err->code || out->outcome == OUTCOME_IN_PROGRESS;
    if (c->probe_must_work && c->attempt.verb == VERB_CLAIM && blocked)
        violation(c->sim, "C5", "#%" PRIu64 ": a lease and 2 s after everything healed, %s",
                  c->attempt.id, err->code ? err->text : outcome_name(out->outcome));
    if (!err->code && out->degraded && quiet_since(c->sim, c->attempt.at_ms - 2 * QUIET_MS))
        violation(c->sim, "C4", "degraded although nothing is wrong");
}

/* ---- on the way ---- */

void history_asked(struct client *c, const struct op *op)
{
    struct attempt *a = &c->attempt;
    if (op->verb != VERB_CLAIM) return;
    if (a->has_token && !token_eq(&a->token, &op->in.token))
        violation(c->sim, "E4", "#%" PRIu64 " asks again with another token", a->id);
    a->token = op->in.token;
    a->has_token = true;
}

/* A claim gives back what it may have won. */
void history_released(struct process *p, const struct op *op)
{
    for (int i = 0; i < p->sim->client_count; i++) {
        struct client *c = &p->sim->clients[i];
        if (c->process != p || !c->call || c->attempt.verb != VERB_CLAIM) continue;
        if (token_eq(&c->attempt.token, &op->in.token)) c->attempt.release_sent = true;
    }
}

static bool lost_by_now(const struct mark *m, const struct token *token)
{
    return m->status == ABSENT || !token_eq(&m->token, token);
}

void history_lost(struct client *c, const struct token *token)
{
    struct plane *ledger = sim_ledger(c->sim);
    struct page *page = &ledger->pages[c->held.ident];
    if (ledger->went_back) return; /* its retention may have been over, and is not any more */
    if (c->sim->swarm.twice[LEDGER] || c->sim->swarm.late[LEDGER]) return; /* granted again */
    for (size_t i = page->count; i-- > 0;) {
        const struct mark *m = &page->log[i];
        if (lost_by_now(m, token)) return;
        if (m->fence == c->held.fence && m->cause == VERB_CLAIM) break;
    }
    if (plane_clock_ms(ledger) < page->now.gone_ms)
        violation(c->sim, "E5", "c%d was told that it lost what it owns or has published",
                  c->index);
}
