/* pace.c - are waiters woken, and not polling; are live owners left alone?
 *
 * Promises about time hold when nothing goes wrong, and nothing has for long enough that what a
 * fault left behind is over (long_quiet):
 *
 * C6 a publish reaches everybody who waits, a release or a lapse promotes one of them, within a
 * few round trips; one question answers a whole line; a line that sees no change asks ever less
 * often.
 *
 * C7 another fingerprint is told mismatch at once.
 *
 * E5 an owner that lives and renews is not taken over; what is over is not renewed.
 *
 * T3 an acknowledged publish leaves no owner behind at coord. */
#include "base/check.h"
#include "tests/sim/internal.h"

#include <inttypes.h>

static struct page *page_of(struct client *c)
{
    return &sim_ledger(c->sim)->pages[c->attempt.ident];
}

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

void pace_cached(struct client *c)
{
    check_woken_by_publish(c);
}

void pace_in_progress(struct client *c, const struct answer *out)
{
    check_woken(c, out);
    check_told_in_time(c);
    check_not_waiting(c);
}

/* ---- what is asked ---- */

void pace_arrived(struct client *c)
{
    c->process->asks[c->attempt.ident][c->attempt.fingerprint]--;
    c->process->polls[c->attempt.ident][c->attempt.fingerprint]--;
}

void pace_changed(struct sim *sim, int ident)
{
    sim->changed_ms[ident] = sim->now_ms;
    for (int p = 0; p < sim->process_count; p++)
        for (int f = 0; f < FINGERPRINTS; f++) sim->processes[p].polls[ident][f] = 0;
}

void pace_published(struct sim *sim, int ident)
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

void pace_sent(struct process *p, int plane, const struct op *op)
{
    if (plane == COORD && op->verb == VERB_CLAIM) check_storm(p, op);
    if (plane == COORD && op->verb == VERB_CLAIM) check_polls(p, op);
    if (plane == LEDGER && op->verb == VERB_RENEW) check_pointless(p, op);
}

/* ---- who is granted ---- */

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

void pace_granted(struct plane *ledger, int ident, const struct mark *before)
{
    if (before->status == PENDING) check_takeover(ledger->sim, before);
    check_promoted(ledger, ident, before);
}
