/* audit.c - a plane's second set of books: what its records must be.
 *
 * Written from the contract and not from core/rules, so that a mistake there is a contradiction
 * here. Every op that a plane executes is judged by what the record was before it, what the
 * answer says and what a PEEK shows afterwards:
 *
 *   C1 done is written once, and everybody who asks is told exactly that value
 *   C2 nobody is granted a key whose owner lives; a stale token changes nothing
 *   C3 the owner's publish counts, and stays
 *   C5 a lease is as long as was asked; a clock that went back does not make it longer
 *   C7 another fingerprint gets mismatch and nothing else, and mismatch only that one
 *   I4 the fence of a key only grows
 *   I12 a record is not purged early, nor while it is pending */
#include "base/check.h"
#include "tests/sim/internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* Pairs that differ only in where the parts are cut, and one name in three scopes. */
static const char *const idents[IDENTS][2] = {
    { "a", "b:c" }, { "a:b", "c" }, { "a", "k" },        { "b", "k" },
    { "c", "k" },   { "a", "kk" },  { "z", "\xc3\xa4" },
};

static const char *const fingerprints[FINGERPRINTS] = {
    "",
    "f",
    "g",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
};

struct key ident_key(int ident)
{
    return (struct key){ bytes_str(idents[ident][0]), bytes_str(idents[ident][1]) };
}

int ident_of(const struct key *key)
{
    for (int i = 0; i < IDENTS; i++) {
        struct key k = ident_key(i);
        if (bytes_eq(k.scope, key->scope) && bytes_eq(k.name, key->name)) return i;
    }
    return -1;
}

struct bytes fingerprint_bytes(int fp)
{
    return bytes_str(fingerprints[fp]);
}

int fingerprint_of(struct bytes fp)
{
    for (int i = 0; i < FINGERPRINTS; i++)
        if (bytes_eq(fingerprint_bytes(i), fp)) return i;
    CHECK(false);
    return 0;
}

void audit_init(struct plane *plane)
{
    for (int i = 0; i < IDENTS; i++) {
        struct key key = ident_key(i);
        struct request nobody = { 0 };
        plane->pages[i] = (struct page){ .peek = op_new(VERB_PEEK, &key, &nobody) };
        CHECK(plane->pages[i].peek);
    }
}

void audit_fini(struct plane *plane)
{
    for (int i = 0; i < IDENTS; i++) {
        struct page *page = &plane->pages[i];
        for (size_t m = 0; m < page->count; m++) blob_unref(page->log[m].value);
        free(page->log);
        blob_unref(page->now.value);
        op_free(page->peek);
    }
}

/* ---- turning a page ---- */

static void log_mark(struct page *page)
{
    if (page->count == page->cap) {
        page->cap = page->cap ? page->cap * 2 : 64;
        page->log = realloc(page->log, page->cap * sizeof *page->log);
        CHECK(page->log);
    }
    page->log[page->count] = page->now;
    blob_ref(page->now.value);
    page->count++;
}

static void turn_page(struct plane *plane, struct page *page, struct mark next)
{
    next.seq = sim_tick(plane->sim);
    next.at_ms = plane->sim->now_ms;
    next.clock_ms = plane_clock_ms(plane);
    blob_ref(next.value);
    blob_unref(page->now.value);
    page->now = next;
    if (plane->index == LEDGER) log_mark(page);
    pace_changed(plane->sim, (int)(page - plane->pages));
}

void audit_forgot_all(struct plane *plane)
{
    for (int i = 0; i < IDENTS; i++) {
        turn_page(plane, &plane->pages[i], (struct mark){ 0 });
        plane->pages[i].fence_max = 0;
    }
}

void audit_clock_moved(struct plane *plane)
{
    for (int i = 0; i < IDENTS; i++) {
        struct mark same = plane->pages[i].now;
        same.cause = VERB_PING;
        same.executed = true;
        turn_page(plane, &plane->pages[i], same);
    }
}

/* ---- one op ---- */

struct step {
    struct plane *plane;
    struct sim *sim;
    struct page *page;
    int ident;
    struct op *op;
    uint64_t cause_id;
    struct mark was; /* as the plane's clock sees it: ABSENT when its time is over */
    int64_t now_ms;
    bool mine, same_fingerprint, lapsed;
};

#define WRONG(s, rule, ...)                                                                    \
    do {                                                                                       \
        violation((s)->sim, rule, __VA_ARGS__);                                                \
        return;                                                                                \
    } while (0)

static const char *who(const struct step *s)
{
    return s->plane->index == LEDGER ? "ledger" : "coord";
}

static struct mark next_mark(const struct step *s)
{
    struct mark next = s->was;
    next.cause = s->op->verb;
    next.cause_id = s->cause_id;
    next.acked = 0;
    return next;
}

static void becomes_absent(const struct step *s)
{
    struct mark next = next_mark(s);
    next.status = ABSENT;
    next.value = NULL;
    turn_page(s->plane, s->page, next);
}

static int64_t pending_gone_ms(const struct mark *m)
{
    int64_t keep_ms = m->retain_ms > ABANDONED_KEEP_MS ? m->retain_ms : ABANDONED_KEEP_MS;
    return m->lease_until_ms + keep_ms;
}

static void lease_becomes(const struct step *s, struct mark next, int64_t lease_ms)
{
    next.lease_ms = lease_ms;
    next.lease_until_ms = s->now_ms + lease_ms;
    next.gone_ms = pending_gone_ms(&next);
    if (next.lease_until_ms < s->was.lease_until_ms && s->op->verb == VERB_RENEW)
        next.shortened = true;
    turn_page(s->plane, s->page, next);
}

static void made_progress(const struct step *s)
{
    s->page->progress[fingerprint_of(s->op->in.fingerprint)] = sim_tick(s->sim);
}

static void granted(const struct step *s)
{
    const struct op *op = s->op;
    if (op->out.fence <= s->page->fence_max)
        WRONG(s, "I4", "%s: fence %" PRIu64 " after %" PRIu64, who(s), op->out.fence,
              s->page->fence_max);
    if (op->out.lease_left_ms < op->in.lease_ms)
        WRONG(s, "C2", "%s: granted %" PRId64 " ms of the %" PRId64 " asked", who(s),
              op->out.lease_left_ms, op->in.lease_ms);
    if (op->out.lease_left_ms > op->in.lease_ms)
        WRONG(s, "C5", "%s: granted %" PRId64 " ms where %" PRId64 " were asked", who(s),
              op->out.lease_left_ms, op->in.lease_ms);
    s->page->fence_max = op->out.fence;
    struct mark before = s->page->now;
    blob_ref(before.value);
    struct mark next = next_mark(s);
    next.status = PENDING;
    next.token = op->in.token;
    next.fence = op->out.fence;
    next.fingerprint = fingerprint_of(op->in.fingerprint);
    next.retain_ms = op->in.retain_ms;
    next.value = NULL;
    next.executed = next.shortened = false;
    lease_becomes(s, next, op->in.lease_ms);
    made_progress(s);
    if (op->in.lease_ms > s->sim->lease_max_ms) s->sim->lease_max_ms = op->in.lease_ms;
    if (s->plane->index == LEDGER) pace_granted(s->plane, s->ident, &before);
    blob_unref(before.value);
}

static void check_claimed(const struct step *s)
{
    bool forced = s->op->in.force;
    if (forced && s->plane->index == LEDGER)
        WRONG(s, "C2", "the ledger was forced to grant it");
    if (s->was.status == ABSENT || forced) {
        granted(s);
        return;
    }
    if (!s->same_fingerprint) WRONG(s, "C7", "%s: granted to another fingerprint", who(s));
    if (s->was.status == DONE) WRONG(s, "C1", "%s: granted although it is done", who(s));
    if (s->mine) {
        if (s->op->out.fence != s->was.fence) WRONG(s, "I4", "one claim, two fences");
        made_progress(s);
        return;
    }
    if (!s->lapsed)
        WRONG(s, "C2", "%s: granted although the owner's lease lasts %" PRId64 " ms more",
              who(s), s->was.lease_until_ms - s->now_ms);
    granted(s);
}

static void check_in_progress(const struct step *s)
{
    if (s->was.status != PENDING)
        WRONG(s, "I21", "%s: in_progress, but nobody owns it", who(s));
    if (!s->same_fingerprint) WRONG(s, "C7", "%s: in_progress for another fingerprint", who(s));
    if (s->mine) WRONG(s, "C2", "%s: the owner was told in_progress", who(s));
    if (s->lapsed) WRONG(s, "C5", "%s: in_progress after the lease has lapsed", who(s));
    made_progress(s);
    bool too_long = s->was.lease_until_ms - s->now_ms > s->was.lease_ms;
    if (!too_long) return;
    struct mark next = next_mark(s);
    next.cause = VERB_PING; /* not the owner's doing */
    lease_becomes(s, next, s->was.lease_ms);
}

static void check_finished(const struct step *s)
{
    if (s->was.status != DONE) WRONG(s, "C1", "%s: an answer that nobody published", who(s));
    if (s->op->verb == VERB_CLAIM && !s->same_fingerprint)
        WRONG(s, "C7", "%s: the answer was shown to another fingerprint", who(s));
    bool kept = s->op->out.outcome == OUTCOME_CACHED;
    if (kept != (s->was.value != NULL) || !blob_eq(s->op->out.value, s->was.value))
        WRONG(s, "C1", "%s: another value than was published", who(s));
}

static void check_mismatch(const struct step *s)
{
    if (s->was.status == ABSENT) WRONG(s, "I21", "%s: mismatch with nothing", who(s));
    if (s->same_fingerprint) WRONG(s, "I21", "%s: mismatch with an equal fingerprint", who(s));
    if (s->op->out.value || s->op->out.fence) WRONG(s, "C7", "%s: mismatch shows more", who(s));
}

static void check_claim(const struct step *s)
{
    enum outcome o = s->op->out.outcome;
    if (o == OUTCOME_CLAIMED)
        check_claimed(s);
    else if (o == OUTCOME_IN_PROGRESS)
        check_in_progress(s);
    else if (o == OUTCOME_CACHED || o == OUTCOME_ALREADY_DONE)
        check_finished(s);
    else if (o == OUTCOME_MISMATCH)
        check_mismatch(s);
    else
        WRONG(s, "I21", "%s: claim answered %s", who(s), outcome_name(o));
}

static void check_publish(const struct step *s)
{
    const struct op *op = s->op;
    bool owner = s->was.status == PENDING && s->mine;
    bool again = s->was.status == DONE && s->mine && blob_eq(s->was.value, op->in.value);
    if (op->out.outcome == OUTCOME_LOST) {
        if (owner || again) WRONG(s, "C3", "%s: the owner's publish was refused", who(s));
        if (s->was.status != DONE && op->out.value)
            WRONG(s, "C1", "%s: lost, with an answer that nobody published", who(s));
        if (s->was.status == DONE && !blob_eq(op->out.value, s->was.value))
            WRONG(s, "C1", "%s: lost, with another value than was published", who(s));
        return;
    }
    if (op->out.outcome != OUTCOME_OK) WRONG(s, "I21", "%s: odd answer to publish", who(s));
    if (again) return;
    if (s->was.status == DONE) WRONG(s, "C1", "%s: done was written twice", who(s));
    if (!owner) WRONG(s, "C2", "%s: a stale owner's publish was accepted", who(s));
    struct mark next = next_mark(s);
    next.status = DONE;
    next.value = op->in.value;
    if (op->in.retain_ms >= 0) next.retain_ms = op->in.retain_ms;
    next.gone_ms = s->now_ms + next.retain_ms;
    turn_page(s->plane, s->page, next);
    if (s->plane->index == LEDGER) pace_published(s->sim, s->ident);
}

static void check_release(const struct step *s)
{
    bool owner = s->was.status == PENDING && s->mine;
    if (s->op->out.outcome == OUTCOME_OK && owner)
        becomes_absent(s);
    else if (s->op->out.outcome == OUTCOME_OK)
        WRONG(s, "C2", "%s: a stale owner's release was accepted", who(s));
    else if (owner)
        WRONG(s, "C5", "%s: the owner's release was refused", who(s));
}

static void check_renew(const struct step *s)
{
    bool owner = s->was.status == PENDING && s->mine;
    if (s->op->out.outcome == OUTCOME_OK && owner)
        lease_becomes(s, next_mark(s),
                      s->op->in.lease_ms >= 0 ? s->op->in.lease_ms : s->was.lease_ms);
    else if (s->op->out.outcome == OUTCOME_OK)
        WRONG(s, "C2", "%s: a stale owner's renewal was accepted", who(s));
    else if (owner)
        WRONG(s, "C2", "%s: the owner's renewal was refused", who(s));
    if (s->page->now.lease_ms > s->sim->lease_max_ms)
        s->sim->lease_max_ms = s->page->now.lease_ms;
}

static void check_forget(const struct step *s)
{
    enum outcome o = s->op->out.outcome;
    bool live_owner = s->was.status == PENDING && !s->lapsed;
    if (o == OUTCOME_ABSENT && s->was.status != ABSENT)
        WRONG(s, "C3", "%s: forget found nothing where something is", who(s));
    if (o == OUTCOME_IN_PROGRESS && !live_owner)
        WRONG(s, "C5", "%s: forget was refused although nobody works on it", who(s));
    if (o == OUTCOME_OK && live_owner && !s->op->in.force)
        WRONG(s, "C2", "%s: a live owner was forgotten", who(s));
    if (o == OUTCOME_OK || o == OUTCOME_ABSENT) becomes_absent(s);
}

static void check_peek(const struct step *s)
{
    enum outcome o = s->op->out.outcome;
    if (o == OUTCOME_CACHED || o == OUTCOME_ALREADY_DONE)
        check_finished(s);
    else if (o == OUTCOME_IN_PROGRESS && s->was.status != PENDING)
        WRONG(s, "I21", "%s: peek saw an owner, but there is none", who(s));
    else if (o == OUTCOME_ABSENT && s->was.status != ABSENT)
        WRONG(s, "C3", "%s: peek saw nothing where something is", who(s));
}

static void (*const check_verb[VERBS])(const struct step *) = {
    [VERB_CLAIM] = check_claim, [VERB_PUBLISH] = check_publish, [VERB_RELEASE] = check_release,
    [VERB_RENEW] = check_renew, [VERB_FORGET] = check_forget,   [VERB_PEEK] = check_peek,
    [VERB_WATCH] = check_peek,
};

/* ---- what is there afterwards ---- */

static struct mark as_seen(const struct page *page, int64_t now_ms)
{
    struct mark m = page->now;
    if (m.status != ABSENT && now_ms >= m.gone_ms) m.status = ABSENT;
    return m;
}

static void check_page(struct plane *plane, int ident)
{
    struct page *page = &plane->pages[ident];
    struct op *peek = page->peek;
    plane->records->class->exec(plane->records, &peek, 1);
    int64_t now_ms = plane_clock_ms(plane);
    struct mark m = as_seen(page, now_ms);
    const struct answer *out = &peek->out;
    const char *name = plane->index == LEDGER ? "ledger" : "coord";
    if (m.status == ABSENT && out->outcome != OUTCOME_ABSENT)
        violation(plane->sim, "C2", "%s: a record that should not be there", name);
    if (m.status == PENDING && out->outcome != OUTCOME_IN_PROGRESS)
        violation(plane->sim, "I12", "%s: a pending record is %s", name,
                  outcome_name(out->outcome));
    if (m.status == DONE && out->outcome == OUTCOME_ABSENT)
        violation(plane->sim, "C3", "%s: a finished record is gone", name);
    if (m.status == DONE && out->outcome != OUTCOME_ABSENT && !blob_eq(out->value, m.value))
        violation(plane->sim, "C1", "%s: a finished record has another value", name);
    if (m.status == ABSENT) return;
    if (out->fence != m.fence) violation(plane->sim, "I4", "%s: the fence changed", name);
    int64_t left_ms = m.status == PENDING ? m.lease_until_ms - now_ms : m.gone_ms - now_ms;
    int64_t seen_ms = m.status == PENDING ? out->lease_left_ms : out->retain_left_ms;
    if (seen_ms != (left_ms > 0 ? left_ms : 0))
        violation(plane->sim, m.status == PENDING ? "C2" : "I12",
                  "%s: %" PRId64 " ms are left where it should be %" PRId64, name, seen_ms,
                  left_ms);
}

void audit_check_all(struct plane *plane)
{
    for (int i = 0; i < IDENTS; i++) check_page(plane, i);
}

static void expired(struct plane *plane)
{
    int64_t now_ms = plane_clock_ms(plane);
    for (int i = 0; i < IDENTS; i++) {
        struct page *page = &plane->pages[i];
        if (page->now.status == ABSENT || now_ms < page->now.gone_ms) continue;
        struct mark next = page->now;
        next.status = ABSENT;
        next.value = NULL;
        next.cause = VERB_EXPIRE;
        next.cause_id = 0;
        turn_page(plane, page, next);
    }
    audit_check_all(plane);
}

void audit_exec(struct plane *plane, struct op *op, uint64_t cause_id)
{
    int ident = ident_of(&op->key);
    struct page *page = ident < 0 ? NULL : &plane->pages[ident];
    int64_t now_ms = plane_clock_ms(plane);
    struct step s = { .plane = plane,
                      .sim = plane->sim,
                      .page = page,
                      .ident = ident,
                      .op = op,
                      .cause_id = cause_id,
                      .now_ms = now_ms };
    if (page) {
        s.was = as_seen(page, now_ms);
        s.mine = token_eq(&s.was.token, &op->in.token);
        s.same_fingerprint = s.was.fingerprint == fingerprint_of(op->in.fingerprint);
        s.lapsed = now_ms >= s.was.lease_until_ms;
    }
    struct store *records = plane->records;
    records->class->exec(records, &op, 1);
    CHECK(!op->err.code);
    if (op->verb == VERB_EXPIRE) expired(plane);
    if (!page) return;
    check_verb[op->verb](&s);
    if (!plane->sim->result.ok) return;
    check_page(plane, ident);
}
