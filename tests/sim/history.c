/* history.c - is an answer true?
 *
 * Per key, the ledger's log says what the record was at every instant. An answer is true if the
 * ledger was, at some instant between the call and its answer, in a state that gives that
 * answer (linearizability, with the log as the witness; I18). Beyond that:
 *
 *   in_progress, timed_out   some claim with this fingerprint met, or became, an owner at
 * either plane after the call began (I21): coord may absorb cached from coord        the ledger
 * has had exactly this answer. It may be over there when it ended so shortly before that coord
 * need not have noticed, when the forget that ended it was never acknowledged, or in runs where
 * coord gets late or doubled requests or a plane's clock jumps (`loose`): then coord may keep,
 * or be given again, what has ended an error                 only "ambiguous" may have changed
 * the ledger (S4) a grant                  is told to exactly one caller, who asked with one
 * token (I1, E4) time                     in long quiet runs: waiters are woken within a few
 * round trips (C6), an acknowledged publish leaves no owner behind at coord (T3), a live owner
 * that renews is never taken over (E5) */
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

/* ---- the quiet: what may be said about time ---- */

/* A coord claim that a fault left behind lapses after one lease: until then, coord may say
 * in_progress for nobody. */
static bool long_quiet(const struct sim *sim, int64_t at_ms)
{
    return quiet_since(sim, at_ms - sim->lease_max_ms - QUIET_MS);
}

static int64_t wake_bound_ms(const struct sim *sim)
{
    int64_t round_ms = 2 * (sim->swarm.latency_ms[COORD] + sim->swarm.latency_ms[LEDGER]);
    bool woken = sim->planes[COORD].notify && sim->planes[LEDGER].notify;
    return 4 * round_ms + (woken ? 50 : 1500);
}

/* Since when nobody works on the key, as far as this fingerprint is concerned; -1: somebody
 * does. */
static int64_t free_since_ms(struct sim *sim, const struct mark *m)
{
    if (m->status == PENDING && m->shortened) return -1;
    if (m->status != PENDING) return m->at_ms;
    int64_t over_ms = plane_clock_ms(sim_ledger(sim)) - m->lease_until_ms;
    if (over_ms < 0) return -1;
    return sim->now_ms - over_ms > m->at_ms ? sim->now_ms - over_ms : m->at_ms;
}

static void check_woken(struct client *c, const struct answer *out)
{
    struct sim *sim = c->sim;
    struct page *page = page_of(c);
    const struct attempt *a = &c->attempt;
    if (!page->count || a->wait_ms == 0 || out->outcome != OUTCOME_TIMED_OUT) return;
    const struct mark *m = &page->log[page->count - 1];
    int64_t since_ms = free_since_ms(sim, m);
    if (since_ms < 0 || !long_quiet(sim, since_ms) || !long_quiet(sim, a->at_ms)) return;
    if (since_ms < a->at_ms) since_ms = a->at_ms;
    if (sim->now_ms - since_ms > wake_bound_ms(sim))
        violation(sim, "C6",
                  "#%" PRIu64 " timed out although nobody worked on it for %" PRId64 " ms",
                  a->id, sim->now_ms - since_ms);
}

/* C7: another fingerprint is told so, it does not wait; not even for a passing claim at coord,
 * which the owner's record keeps out (unless a forget that came too late has just dropped it
 * there). */
static void check_not_waiting(struct client *c)
{
    struct sim *sim = c->sim;
    struct page *page = page_of(c);
    const struct attempt *a = &c->attempt;
    const struct mark *m = page->count ? &page->log[page->count - 1] : NULL;
    bool other = m && m->status != ABSENT && m->fingerprint != a->fingerprint;
    other = other && sim->swarm.forgets == 0;
    int64_t bound_ms = wake_bound_ms(sim);
    if (!other || plane_clock_ms(sim_ledger(sim)) + bound_ms >= m->gone_ms) return;
    if (long_quiet(sim, m->at_ms) && sim->now_ms - m->at_ms > bound_ms)
        violation(sim, "C7", "#%" PRIu64 " waited for another fingerprint's owner", a->id);
}

static void check_woken_by_publish(struct client *c)
{
    struct sim *sim = c->sim;
    struct page *page = page_of(c);
    const struct attempt *a = &c->attempt;
    const struct mark *m = page->count ? &page->log[page->count - 1] : NULL;
    bool waited = m && m->cause == VERB_PUBLISH && m->seq > a->seq;
    if (!waited || !long_quiet(sim, a->at_ms) || !long_quiet(sim, m->at_ms)) return;
    if (sim->now_ms - m->at_ms > wake_bound_ms(sim))
        violation(sim, "C6", "#%" PRIu64 " was told %" PRId64 " ms after the publish", a->id,
                  sim->now_ms - m->at_ms);
}

static void check_told_in_time(struct client *c)
{
    struct sim *sim = c->sim;
    struct page *page = page_of(c);
    const struct attempt *a = &c->attempt;
    const struct mark *m = page->count ? &page->log[page->count - 1] : NULL;
    bool done = m && m->status == DONE && m->fingerprint == a->fingerprint && m->acked;
    if (!done || m->acked > a->seq || !long_quiet(sim, m->at_ms)) return;
    if (plane_clock_ms(sim_ledger(sim)) >= m->gone_ms) return;
    /* Whoever asks takes coord's place for as long as the ledger needs to answer. */
    const struct mark *coord = &sim->planes[COORD].pages[a->ident].now;
    if (coord->status != PENDING || coord->at_ms + wake_bound_ms(sim) > sim->now_ms) return;
    violation(sim, "T3", "#%" PRIu64 " met an owner after the publish was acknowledged", a->id);
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
    check_woken_by_publish(c);
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
    check_woken(c, out);
    check_told_in_time(c);
    check_not_waiting(c);
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

void history_arrived(struct client *c)
{
    c->process->asks[c->attempt.ident][c->attempt.fingerprint]--;
    c->process->polls[c->attempt.ident][c->attempt.fingerprint]--;
}

void history_changed(struct sim *sim, int ident)
{
    sim->changed_ms[ident] = sim->now_ms;
    for (int p = 0; p < sim->process_count; p++)
        for (int f = 0; f < FINGERPRINTS; f++) sim->processes[p].polls[ident][f] = 0;
}

void history_published(struct sim *sim, int ident)
{
    for (int p = 0; p < sim->process_count; p++)
        for (int f = 0; f < FINGERPRINTS; f++) sim->processes[p].asks[ident][f] = 0;
}

/* C6: once it is done, one question answers everybody who waits; those who come later ask once.
 */
static void check_storm(struct process *p, const struct op *op)
{
    struct sim *sim = p->sim;
    int ident = ident_of(&op->key), fp = fingerprint_of(op->in.fingerprint);
    const struct page *page = &sim_ledger(sim)->pages[ident];
    int64_t asks = ++p->asks[ident][fp];
    if (sim->swarm.other_fingerprint) return; /* they take coord's place in turns */
    if (page->now.status != DONE || page->now.fingerprint != fp || asks <= 6) return;
    if (plane_clock_ms(sim_ledger(sim)) >= page->now.gone_ms) return;
    if (!long_quiet(sim, page->now.at_ms)) return;
    violation(sim, "C6", "p%d asks for the %" PRId64 "th time after the publish", p->index,
              asks);
}

/* C6: while nothing changes, a line asks ever less often. */
static void check_polls(struct process *p, const struct op *op)
{
    struct sim *sim = p->sim;
    int ident = ident_of(&op->key), fp = fingerprint_of(op->in.fingerprint);
    int64_t polls = ++p->polls[ident][fp], since_ms = sim->changed_ms[ident];
    if (polls > 12 + (sim->now_ms - since_ms) / 100 && long_quiet(sim, since_ms))
        violation(sim, "C6", "p%d asks for the %" PRId64 "th time, and nothing has changed",
                  p->index, polls);
}

/* A lease of zero is over at once: to renew it again and again helps nobody. */
static void check_pointless(struct process *p, const struct op *op)
{
    const struct mark *now = &sim_ledger(p->sim)->pages[ident_of(&op->key)].now;
    bool pointless =
        now->status == PENDING && token_eq(&now->token, &op->in.token) && now->lease_ms == 0;
    if (client_of_call(p, op->frames[0].ctx)) return; /* its owner asks for it */
    p->pointless = pointless ? p->pointless + 1 : 0;
    if (p->pointless > 20 && quiet_since(p->sim, p->sim->now_ms - QUIET_MS))
        violation(p->sim, "E5", "p%d renews a lease of zero again and again", p->index);
}

void history_sent(struct process *p, int plane, const struct op *op)
{
    if (plane == COORD && op->verb == VERB_CLAIM) check_storm(p, op);
    if (plane == COORD && op->verb == VERB_CLAIM) check_polls(p, op);
    if (plane == LEDGER && op->verb == VERB_RENEW) check_pointless(p, op);
    if (plane != LEDGER || op->verb != VERB_RELEASE) return;
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

/* E5: nobody takes over from an owner that lives, is connected, and renews. */
static void check_takeover(struct sim *sim, const struct mark *before)
{
    for (int i = 0; i < sim->client_count; i++) {
        const struct client *c = &sim->clients[i];
        bool owner = c->holds && c->held.renew && token_eq(&c->held.token, &before->token);
        if (!owner || before->lease_ms < 1000) continue;
        if (quiet_since(sim, before->at_ms - QUIET_MS))
            violation(sim, "E5", "c%d lives and renews, and was taken over", i);
    }
}

/* C6: somebody in the line is promoted soon after a release or a lapse. */
static void check_promoted(struct plane *ledger, int ident, const struct mark *before)
{
    struct sim *sim = ledger->sim;
    int64_t since_ms = free_since_ms(sim, before);
    bool ended = before->cause == VERB_RELEASE || before->status == PENDING;
    if (!ended || since_ms < 0 || !long_quiet(sim, since_ms)) return;
    if (sim->now_ms - since_ms <= wake_bound_ms(sim)) return;
    for (int i = 0; i < sim->client_count; i++) {
        const struct client *c = &sim->clients[i];
        const struct attempt *a = &c->attempt;
        bool waits = c->call && a->verb == VERB_CLAIM && a->wait_ms > 0 && a->ident == ident;
        if (!waits || a->at_ms >= since_ms || a->fingerprint != before->fingerprint) continue;
        violation(sim, "C6", "#%" PRIu64 " waited %" PRId64 " ms for a key that nobody had",
                  a->id, sim->now_ms - since_ms);
    }
}

void history_granted(struct plane *ledger, int ident, const struct mark *before)
{
    if (before->status == PENDING) check_takeover(ledger->sim, before);
    check_promoted(ledger, ident, before);
}
