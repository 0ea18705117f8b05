/* linear.c - is there one order of events that explains every answer about a key? (I18)
 *
 * Every call has to take effect at one instant between its beginning and its answer; one that
 * was not answered, or whose answer is "it may have happened", at any later instant or never.
 * The model of the record is the contract's, and knows nothing of the code:
 *
 *   absent | pending{owner, fence, since} | done{owner, value}      and the fingerprint
 *
 * Guarantees: complete and sound for that model. The events are walked through in the order of
 * real time with the set of all worlds that are still possible (just-in-time linearization):
 * a world is a state and which of the open calls have taken effect in it. A call that is
 * answered must have taken effect in every world that stays; no world left: a violation, found
 * at the earliest answer that cannot be explained.
 *
 * What a process asked the store for and nobody was told about (a claim whose answer was lost;
 * the engine gives it back later) is a ghost: it may own the key for a while. */
#include "base/check.h"
#include "tests/fault/fault.h"

#include <once/once.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN_MAX = 64, WORLDS_MAX = 20000, GHOST = -2 };
enum status { ABSENT, PENDING, DONE, UNKNOWN };

struct state {
    enum status status;
    int owner, fingerprint, value;
    int64_t since_us, lease_ms; /* pending: claimed or renewed at this time at the earliest */
    uint64_t fence_max;
};

struct world_of {
    struct state state;
    uint64_t done; /* which of the open calls have taken effect */
};

struct worlds {
    struct world_of *at;
    size_t count, cap;
};

struct linear {
    struct findings *findings;
    const struct story *story;
    const struct deed *open[OPEN_MAX];
    struct worlds worlds;
    bool failed;
};

/* ---- what a call does to a state ---- */

struct move {
    const struct linear *linear;
    const struct deed *deed;
    struct state was, next;
};

typedef bool move_fn(struct move *m);

static bool is_ghost(const struct deed *d)
{
    bool nothing_done = d->error && d->error != ONCE_EAMBIGUOUS && d->error != ONCE_ECANCELED;
    bool settled = d->outcome && !d->maybe; /* else it may have been granted twice */
    return d->act == ACT_CLAIM && !nothing_done && !settled;
}

/* May a claim that nobody was told about be, or have been, what this call met? It is given back
 * when its caller is answered, or its lease lapses; but it keeps its fingerprint, and is there
 * to be seen, until somebody takes it over. */
static bool haunted(const struct move *m)
{
    const struct deed *d = m->deed;
    bool refused = d->outcome == ONCE_MISMATCH;
    for (size_t i = 0; i < m->linear->story->count; i++) {
        const struct deed *g = m->linear->story->deeds[i];
        if (g->begin_us > d->end_us) return false;
        if (is_ghost(g) && !(refused && g->fingerprint == d->fingerprint)) return true;
    }
    return false;
}

/* Can the owner's lease have been over before the call was answered? */
static bool may_have_lapsed(const struct move *m)
{
    int64_t slack_us = m->linear->findings->promise->clock_ms * 1000;
    if (m->was.owner == GHOST || !m->deed->outcome) return true;
    return m->deed->end_us >= m->was.since_us + m->was.lease_ms * 1000 - slack_us;
}

static bool owns(const struct move *m)
{
    return m->was.status == PENDING && m->was.owner == m->deed->owner;
}

/* After a rollback the fingerprint may not be known. */
static bool same_print(const struct move *m)
{
    return m->was.fingerprint == NONE || m->was.fingerprint == m->deed->fingerprint;
}

static bool other_print(const struct move *m)
{
    return m->was.fingerprint == NONE || m->was.fingerprint != m->deed->fingerprint;
}

static bool has_value(const struct move *m, int value)
{
    return m->was.status == DONE && m->was.value == value;
}

static bool becomes_pending(struct move *m)
{
    m->next.status = PENDING;
    m->next.owner = m->deed->owner;
    m->next.fingerprint = m->deed->fingerprint;
    m->next.value = NONE;
    m->next.since_us = m->deed->begin_us;
    m->next.lease_ms = m->deed->lease_ms;
    m->next.fence_max = m->deed->fence;
    return true;
}

static bool becomes_done(struct move *m, int owner, int value)
{
    m->next.status = DONE;
    m->next.owner = owner;
    m->next.value = value;
    m->next.since_us = m->next.lease_ms = 0;
    return true;
}

static bool becomes_absent(struct move *m)
{
    m->next = (struct state){ .status = ABSENT, .fence_max = m->was.fence_max };
    return true;
}

static bool move_granted(struct move *m)
{
    if (m->deed->fence <= m->was.fence_max) return false;
    if (m->was.status == DONE) return false;
    if (m->was.status != PENDING) return becomes_pending(m);
    if (m->was.owner == GHOST) return becomes_pending(m);
    if (!same_print(m) || !may_have_lapsed(m)) return false;
    return becomes_pending(m);
}

static bool move_told_done(struct move *m)
{
    if (m->was.status == UNKNOWN) {
        m->next.fingerprint = m->deed->fingerprint;
        return becomes_done(m, NONE, m->deed->told);
    }
    return has_value(m, m->deed->told) && same_print(m);
}

static bool move_claim(struct move *m)
{
    const struct deed *d = m->deed;
    if (d->outcome == ONCE_CLAIMED) return move_granted(m);
    if (d->outcome == ONCE_CACHED || d->outcome == ONCE_ALREADY_DONE) return move_told_done(m);
    if (d->outcome == ONCE_TIMED_OUT || m->was.status == UNKNOWN) return true;
    bool absorbed = d->outcome == ONCE_IN_PROGRESS && m->linear->findings->promise->absorbs;
    if (absorbed) return true;
    if (d->outcome == ONCE_IN_PROGRESS) return m->was.status == PENDING && same_print(m);
    return m->was.status != ABSENT && other_print(m); /* mismatch */
}

static bool move_publish(struct move *m)
{
    const struct deed *d = m->deed;
    bool unsure = m->was.status == UNKNOWN;
    if (d->outcome != ONCE_LOST) {
        bool again = has_value(m, d->sent) && (m->was.owner == d->owner || !m->was.owner);
        if (again) return true;
        return (owns(m) || unsure) && becomes_done(m, d->owner, d->sent);
    }
    if (d->told) return unsure ? becomes_done(m, NONE, d->told) : has_value(m, d->told);
    if (!owns(m)) return true;
    /* Done, forgotten before it was asked again because the answer was lost: lost. */
    if (d->maybe && m->linear->story->forgets) return becomes_done(m, d->owner, d->sent);
    return false;
}

/* Released, and asked again because the answer was lost: it is told lost. */
static bool move_release(struct move *m)
{
    bool it_may_be = owns(m) || m->was.status == UNKNOWN;
    if (m->deed->outcome != ONCE_LOST) return it_may_be && becomes_absent(m);
    if (!owns(m)) return true;
    return m->deed->maybe && becomes_absent(m);
}

static bool move_renew(struct move *m)
{
    if (m->deed->outcome == ONCE_LOST) return !owns(m);
    if (m->was.status == UNKNOWN) return true;
    m->next.since_us = m->deed->begin_us;
    return owns(m);
}

static bool move_peek(struct move *m)
{
    const struct deed *d = m->deed;
    bool ghost = m->was.status == PENDING && m->was.owner == GHOST;
    if (m->was.status == UNKNOWN) return true;
    if (d->outcome == ONCE_IN_PROGRESS) return m->was.status == PENDING;
    if (d->outcome == ONCE_ABSENT) return m->was.status == ABSENT || ghost;
    return has_value(m, d->told);
}

static bool move_forget(struct move *m)
{
    const struct deed *d = m->deed;
    bool lapsed = m->was.status == PENDING && may_have_lapsed(m);
    if (d->outcome == ONCE_IN_PROGRESS) return m->was.status == PENDING;
    if (d->outcome == ONCE_ABSENT && m->was.status == ABSENT) return true;
    if (d->outcome == ONCE_ABSENT && !d->maybe) return m->was.owner == GHOST;
    return (m->was.status == DONE || lapsed || m->was.status == UNKNOWN) && becomes_absent(m);
}

static bool move_amnesia(struct move *m)
{
    return becomes_absent(m);
}

static bool move_rollback(struct move *m)
{
    m->next = (struct state){ .status = UNKNOWN, .fence_max = m->was.fence_max };
    return true;
}

static move_fn *const moves[ACTS] = {
    [ACT_CLAIM] = move_claim,     [ACT_PUBLISH] = move_publish,   [ACT_RELEASE] = move_release,
    [ACT_RENEW] = move_renew,     [ACT_PEEK] = move_peek,         [ACT_FORGET] = move_forget,
    [ACT_AMNESIA] = move_amnesia, [ACT_ROLLBACK] = move_rollback,
};

/* A ghost may own the key where nobody does, or nobody has to any more. What it asked with is
 * not known, and it may have been given back. */
static bool ghost_appears(struct move *m)
{
    bool is_free = m->was.status == PENDING ? m->was.owner != GHOST && may_have_lapsed(m)
                                            : m->was.status == ABSENT;
    if (!is_free || !haunted(m)) return false;
    m->was = (struct state){ .status = PENDING, .owner = GHOST, .fence_max = m->was.fence_max };
    m->next = m->was;
    return true;
}

static bool move_with_ghosts(struct move *m)
{
    if (moves[m->deed->act](m)) return true;
    return ghost_appears(m) && moves[m->deed->act](m);
}

/* ---- sets of worlds ---- */

static bool state_eq(const struct state *a, const struct state *b)
{
    return a->status == b->status && a->owner == b->owner && a->value == b->value &&
           a->fingerprint == b->fingerprint && a->since_us == b->since_us &&
           a->lease_ms == b->lease_ms && a->fence_max == b->fence_max;
}

/* False: it is there already. */
static bool worlds_add(struct worlds *set, const struct world_of *w)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->at[i].done == w->done && state_eq(&set->at[i].state, &w->state)) return false;
    if (set->count == set->cap) {
        set->cap = set->cap ? set->cap * 2 : 64;
        set->at = realloc(set->at, set->cap * sizeof *set->at);
        CHECK(set->at);
    }
    set->at[set->count++] = *w;
    return true;
}

static bool try_move(const struct linear *l, const struct world_of *w, unsigned slot,
                     struct world_of *ret)
{
    const struct deed *d = l->open[slot];
    uint64_t bit = UINT64_C(1) << slot;
    if (!d || (w->done & bit)) return false;
    struct move m = { .linear = l, .deed = d, .was = w->state, .next = w->state };
    if (!move_with_ghosts(&m)) return false;
    *ret = (struct world_of){ .state = m.next, .done = w->done | bit };
    return true;
}

/* It was told something, and can have done nothing. */
static bool only_looked(const struct deed *d)
{
    if (d->act == ACT_CLAIM || d->act == ACT_PEEK) return d->outcome != ONCE_CLAIMED;
    return !d->maybe && d->outcome == ONCE_LOST;
}

/* A call that only looked takes effect as soon as it can: waiting gains nothing. */
static struct world_of settle(const struct linear *l, struct world_of w)
{
    for (unsigned slot = 0; slot < OPEN_MAX; slot++) {
        struct world_of next;
        if (!l->open[slot] || !only_looked(l->open[slot])) continue;
        if (!try_move(l, &w, slot, &next)) continue;
        if (state_eq(&next.state, &w.state)) w = next;
    }
    return w;
}

/* All worlds that can be reached, with `slot` having taken effect. */
static struct worlds reach(struct linear *l, unsigned slot)
{
    struct worlds seen = { 0 }, there = { 0 };
    for (size_t i = 0; i < l->worlds.count; i++) {
        struct world_of w = settle(l, l->worlds.at[i]);
        worlds_add(&seen, &w);
    }
    for (size_t i = 0; i < seen.count && seen.count < WORLDS_MAX; i++) {
        struct world_of w = seen.at[i];
        if (w.done & (UINT64_C(1) << slot)) {
            worlds_add(&there, &w);
            continue;
        }
        for (unsigned other = 0; other < OPEN_MAX; other++) {
            struct world_of next;
            if (!try_move(l, &w, other, &next)) continue;
            next = settle(l, next);
            worlds_add(&seen, &next);
        }
    }
    if (seen.count >= WORLDS_MAX)
        finding(l->findings, "search", "%s: more than %d worlds are possible",
                history_name(l->findings->history, l->story->key), WORLDS_MAX);
    free(seen.at);
    return there;
}

/* ---- the walk ---- */

static void slot_clear(struct linear *l, unsigned slot)
{
    l->open[slot] = NULL;
    struct worlds fewer = { 0 };
    for (size_t i = 0; i < l->worlds.count; i++) {
        struct world_of w = l->worlds.at[i];
        w.done &= ~(UINT64_C(1) << slot);
        worlds_add(&fewer, &w);
    }
    free(l->worlds.at);
    l->worlds = fewer;
}

/* Nobody waits for it, and in no world it can still take effect: its token owns nothing. */
static bool is_over(const struct linear *l, unsigned slot)
{
    const struct deed *d = l->open[slot];
    bool answered = d && (d->outcome || d->act == ACT_FORGET);
    if (!d || answered) return false;
    for (size_t i = 0; i < l->worlds.count; i++) {
        const struct state *s = &l->worlds.at[i].state;
        if (s->status == UNKNOWN || (s->status == PENDING && s->owner == d->owner))
            return false;
    }
    return true;
}

static void call_begins(struct linear *l, const struct deed *d)
{
    for (unsigned slot = 0; slot < OPEN_MAX; slot++) {
        if (l->open[slot]) continue;
        l->open[slot] = d;
        return;
    }
    finding(l->findings, "search", "%s: more than %d calls are open at once",
            history_name(l->findings->history, l->story->key), OPEN_MAX);
    l->failed = true;
}

static void call_ends(struct linear *l, const struct deed *d)
{
    unsigned slot = 0;
    while (l->open[slot] != d) slot++;
    struct worlds there = reach(l, slot);
    if (there.count == 0) {
        const struct state *s = &l->worlds.at[0].state;
        static const char *const name[] = { "absent", "pending", "done", "unknown" };
        finding(l->findings, "I18",
                "no order of events explains: %s (last state: %s, owner "
                "%.8s, value %s, fence %" PRIu64 ")",
                deed_text(l->findings->history, d), name[s->status],
                s->owner == GHOST ? "ghost" : history_name(l->findings->history, s->owner),
                history_name(l->findings->history, s->value), s->fence_max);
        l->failed = true;
        return;
    }
    free(l->worlds.at);
    l->worlds = there;
    slot_clear(l, slot);
    for (unsigned other = 0; other < OPEN_MAX; other++)
        if (is_over(l, other)) slot_clear(l, other);
}

/* A claim without an answer only haunts; an error that promises that nothing was done did
 * nothing; a renewal or a look that was not answered changes nothing that is checked. */
static bool takes_part(const struct deed *d)
{
    if (d->outcome) return true;
    bool nothing_done = d->error && d->error != ONCE_EAMBIGUOUS && d->error != ONCE_ECANCELED;
    if (nothing_done) return false;
    return d->act == ACT_PUBLISH || d->act == ACT_RELEASE || d->act == ACT_FORGET;
}

static int by_end(const void *a, const void *b)
{
    const struct deed *x = *(const struct deed *const *)a, *y = *(const struct deed *const *)b;
    return x->end_us < y->end_us ? -1 : x->end_us > y->end_us;
}

void check_linear(struct findings *f, const struct story *story)
{
    struct linear l = { .findings = f, .story = story };
    struct world_of nothing = { 0 };
    worlds_add(&l.worlds, &nothing);
    const struct deed **ends = malloc((story->count + 1) * sizeof *ends);
    CHECK(ends);
    size_t answered = 0, begun = 0;
    for (size_t i = 0; i < story->count; i++)
        if (story->deeds[i]->outcome) ends[answered++] = story->deeds[i];
    qsort(ends, answered, sizeof *ends, by_end);
    for (size_t i = 0; i < answered && !l.failed; i++) {
        for (; begun < story->count && story->deeds[begun]->begin_us <= ends[i]->end_us;
             begun++)
            if (!l.failed && takes_part(story->deeds[begun]))
                call_begins(&l, story->deeds[begun]);
        if (!l.failed) call_ends(&l, ends[i]);
    }
    free(ends);
    free(l.worlds.at);
}
