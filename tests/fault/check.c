/* check.c - what all processes wrote down, held against the contract.
 *
 *   fault check [--absorbs 1] [--flawless 1] [--calm 1] [--lease MS] [--settle MS]
 *               [--answers N] [--refused N] FILE...
 *
 * Each rule is looked at by itself, so that a violation has a name; linear.c then asks whether
 * the answers about a key fit together at all. Nothing here knows how the answers came about:
 * the histories are all there is. Prints the violations and one line of totals; the exit status
 * is 1 if there are any, or fewer than N answers or bad requests to look at.
 *
 *   C1  one answer per key, and one that somebody has published
 *   C2  one owner at a time: by its lease, and by what a late one is told
 *   C3  an acknowledged publish is what everybody sees later
 *   C4  no errors where there need not be any
 *   C5  after the faults every key is answered within a lease and 2 s
 *   C6  waiters are woken by a publish, where nothing goes wrong
 *   C7  another fingerprint never owns and never sees
 *   C9  a bad request is refused with its own error, whatever goes wrong, and leaves nothing
 *   I4  fences grow, in the order of real time
 *   I18 linearizable per key
 *
 * C8, that every id handed to a caller resolves, is about runs: tests/storm asks for every id that
 * its clients were ever told, after faults like these (check.py). */
#include "base/check.h"
#include "tests/fault/fault.h"

#include <once/once.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void finding(struct findings *f, const char *rule, const char *fmt, ...)
{
    char text[900];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    f->count++;
    f->tell(f, rule, text);
}

enum { WOKEN_MS_MAX = 150 };

#define TEXT(f, d) deed_text((f)->history, d)

static bool granted(const struct deed *d)
{
    return d->act == ACT_CLAIM && d->outcome == ONCE_CLAIMED;
}

static bool nothing_done(const struct deed *d)
{
    return d->error && d->error != ONCE_EAMBIGUOUS && d->error != ONCE_ECANCELED;
}

/* By the owner of a claim, with its token. */
static bool changes_owned(const struct deed *d)
{
    return d->act == ACT_PUBLISH || d->act == ACT_RELEASE || d->act == ACT_RENEW;
}

static const struct deed *grant_of(const struct story *s, int owner)
{
    for (size_t i = 0; i < s->count; i++)
        if (granted(s->deeds[i]) && s->deeds[i]->owner == owner) return s->deeds[i];
    return NULL;
}

static bool told_value(const struct deed *d)
{
    return d->outcome && d->told != NONE;
}

/* ---- C1 ---- */

static const struct deed *publisher_of(const struct story *s, const struct deed *told)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct deed *p = s->deeds[i];
        bool it = p->act == ACT_PUBLISH && p->sent == told->told && !nothing_done(p);
        bool refused = p->outcome == ONCE_LOST && !p->maybe;
        if (it && p->begin_us <= told->end_us && !refused) return p;
    }
    return NULL;
}

static void check_one_answer(struct findings *f, const struct story *s)
{
    const struct deed *first = NULL;
    for (size_t i = 0; i < s->count; i++) {
        const struct deed *d = s->deeds[i];
        if (!told_value(d)) continue;
        if (!publisher_of(s, d))
            finding(f, "C1", "an answer that nobody published: %s", TEXT(f, d));
        if (!first) first = d;
        if (!s->forgets && d->told != first->told)
            finding(f, "C1", "%s is another answer than %s", TEXT(f, d),
                    history_name(f->history, first->told));
    }
}

/* ---- C2 ---- */

/* When the lease of a granted claim can have ended at the earliest, as of `at_us`. */
static int64_t lease_until_us(const struct story *s, const struct deed *grant, int64_t at_us)
{
    int64_t until_us = grant->begin_us + grant->lease_ms * 1000;
    for (size_t i = 0; i < s->count; i++) {
        const struct deed *d = s->deeds[i];
        if (d->owner != grant->owner || d->begin_us > at_us) continue;
        bool ends = d->act == ACT_PUBLISH || d->act == ACT_RELEASE;
        if (ends && !nothing_done(d)) return 0;
        bool renewed = d->act == ACT_RENEW && d->outcome == ONCE_OK && d->end_us <= at_us;
        int64_t longer_us = d->begin_us + grant->lease_ms * 1000;
        if (renewed && longer_us > until_us) until_us = longer_us;
    }
    return until_us;
}

static void check_one_owner(struct findings *f, const struct story *s)
{
    int64_t slack_us = f->promise->clock_ms * 1000;
    for (size_t i = 0; i < s->count && !s->forgets; i++) {
        const struct deed *a = s->deeds[i];
        if (!granted(a)) continue;
        for (size_t j = 0; j < s->count; j++) {
            const struct deed *b = s->deeds[j];
            bool later = granted(b) && b != a && b->fence > a->fence;
            if (!later || b->end_us >= lease_until_us(s, a, b->end_us) - slack_us) continue;
            finding(f, "C2", "a second owner while the lease of fence %" PRIu64 " lasts: %s",
                    a->fence, TEXT(f, b));
        }
    }
}

static void check_late_owner(struct findings *f, const struct story *s)
{
    for (size_t i = 0; i < s->count && !s->rolled_back; i++) {
        const struct deed *d = s->deeds[i];
        if (!changes_owned(d) || d->outcome != ONCE_OK) continue;
        const struct deed *own = grant_of(s, d->owner);
        for (size_t j = 0; own && j < s->count; j++) {
            const struct deed *g = s->deeds[j];
            if (!granted(g) || g->fence <= own->fence || g->end_us >= d->begin_us) continue;
            finding(f, "C2", "fence %" PRIu64 " was granted before: %s", g->fence, TEXT(f, d));
            break;
        }
    }
}

/* ---- C3 ---- */

static bool contradicts(const struct findings *f, const struct deed *published,
                        const struct deed *d)
{
    bool asks = d->act == ACT_CLAIM || d->act == ACT_PEEK;
    if (!asks || !d->outcome) return false;
    if (d->outcome == ONCE_CACHED) return d->told != published->sent;
    if (d->outcome == ONCE_ALREADY_DONE) return published->sent != NONE;
    bool old_news = d->outcome == ONCE_IN_PROGRESS || d->outcome == ONCE_TIMED_OUT;
    if (d->act == ACT_CLAIM && old_news) return !f->promise->absorbs;
    return d->outcome != ONCE_MISMATCH;
}

static void check_acknowledged(struct findings *f, const struct story *s)
{
    const struct deed *published = NULL;
    for (size_t i = 0; i < s->count && !s->forgets; i++) {
        const struct deed *d = s->deeds[i];
        bool acked = d->act == ACT_PUBLISH && d->outcome == ONCE_OK;
        if (acked && (!published || d->end_us < published->end_us)) published = d;
    }
    for (size_t i = 0; published && i < s->count; i++) {
        const struct deed *d = s->deeds[i];
        if (d->begin_us > published->end_us && contradicts(f, published, d))
            finding(f, "C3", "%s was acknowledged before: %s",
                    history_name(f->history, published->sent), TEXT(f, d));
    }
}

/* ---- C5: a process that comes when everything is over gets an answer in time ---- */

static bool is_settled(const struct deed *d)
{
    return d->outcome == ONCE_CLAIMED || d->outcome == ONCE_CACHED ||
           d->outcome == ONCE_ALREADY_DONE || d->outcome == ONCE_MISMATCH;
}

static bool asks_finally(const struct deed *d, int file)
{
    return d->final && d->act == ACT_CLAIM && d->file == file && d->end_us != NEVER;
}

/* A process may be told that the store is away, and come back: its last word counts, and the
 * time from its first. */
static void check_process_settled(struct findings *f, const struct story *s, int file)
{
    const struct deed *first = NULL, *last = NULL;
    int64_t limit_us = (f->promise->lease_ms + f->promise->settle_ms) * 1000;
    for (size_t i = 0; i < s->count; i++) {
        if (!asks_finally(s->deeds[i], file)) continue;
        if (!first) first = s->deeds[i];
        last = s->deeds[i];
    }
    if (!last) return;
    if (!is_settled(last)) finding(f, "C5", "stuck: %s", TEXT(f, last));
    /* Half a second for a machine that is busy with other things. */
    if (is_settled(last) && last->end_us - first->begin_us > limit_us + 500000)
        finding(f, "C5", "took %" PRId64 " ms: %s", (last->end_us - first->begin_us) / 1000,
                TEXT(f, last));
}

static void check_settled(struct findings *f, const struct story *s)
{
    bool answered = false, used = false;
    for (int file = 1; file <= f->history->files; file++) check_process_settled(f, s, file);
    for (size_t i = 0; i < s->count; i++) {
        const struct deed *d = s->deeds[i];
        used = used || (d->act == ACT_CLAIM && !d->refused);
        if (!d->final || d->end_us == NEVER) continue;
        answered = answered || d->outcome == ONCE_CACHED || d->outcome == ONCE_ALREADY_DONE;
        if (d->act == ACT_PUBLISH && d->outcome != ONCE_OK)
            finding(f, "C5", "cannot be answered: %s", TEXT(f, d));
    }
    if (used && !answered)
        finding(f, "C5", "%s has no answer in the end", history_name(f->history, s->key));
}

/* ---- C7 ---- */

static void check_fingerprints(struct findings *f, const struct story *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct deed *d = s->deeds[i];
        if (d->act != ACT_CLAIM || d->outcome != ONCE_CACHED || d->told == NONE) continue;
        const struct deed *p = publisher_of(s, d);
        const struct deed *grant = p ? grant_of(s, p->owner) : NULL;
        if (grant && grant->fingerprint != d->fingerprint)
            finding(f, "C7", "the answer to fingerprint %s: %s",
                    history_name(f->history, grant->fingerprint), TEXT(f, d));
    }
}

/* ---- C9 ---- */

/* Nobody made a good claim: there is nothing to be seen. */
static void check_nothing_left(struct findings *f, const struct story *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->deeds[i]->act == ACT_CLAIM && !s->deeds[i]->refused) return;
    for (size_t i = 0; i < s->count; i++) {
        const struct deed *d = s->deeds[i];
        if (d->act == ACT_PEEK && d->outcome && d->outcome != ONCE_ABSENT)
            finding(f, "C9", "a record that nobody asked for: %s", TEXT(f, d));
    }
}

static void check_refused(struct findings *f, const struct story *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct deed *d = s->deeds[i];
        if (!d->refused || d->end_us == NEVER || d->error == d->refused) continue;
        finding(f, "C9", "a bad request that was not refused as such: %s", TEXT(f, d));
    }
    check_nothing_left(f, s);
}

/* ---- I4 ---- */

static void check_fences(struct findings *f, const struct story *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct deed *a = s->deeds[i];
        for (size_t j = 0; granted(a) && j < s->count; j++) {
            const struct deed *b = s->deeds[j];
            if (!granted(b) || a == b) continue;
            bool before = a->end_us < b->begin_us;
            if ((before && a->fence >= b->fence) || (i < j && a->fence == b->fence))
                finding(f, "I4", "fence %" PRIu64 " was granted before: %s", a->fence,
                        TEXT(f, b));
        }
    }
}

/* ---- C4, C6: what need not fail does not, and waiters are woken ---- */

/* From a publish to the answer of somebody who waited for it, or -1: it is not about that. */
static int64_t woken_us(const struct story *s, const struct deed *d)
{
    if (d->act != ACT_CLAIM || d->outcome != ONCE_CACHED || !d->waits) return -1;
    const struct deed *p = publisher_of(s, d);
    if (!p || p->end_us == NEVER || d->begin_us >= p->begin_us) return -1;
    return d->end_us > p->end_us ? d->end_us - p->end_us : 0;
}

static void check_flawless(struct findings *f, const struct story *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->deeds[i]->error && !s->deeds[i]->refused)
            finding(f, "C4", "failed although it need not: %s", TEXT(f, s->deeds[i]));
}

static void check_calm(struct findings *f, const struct story *s)
{
    for (size_t i = 0; i < s->count; i++) {
        int64_t late_us = woken_us(s, s->deeds[i]);
        if (late_us < 0) continue;
        f->woken++;
        f->woken_late += late_us > WOKEN_MS_MAX * 1000;
    }
}

/* Half of them: a machine may stand still for some, but who polls is late for most. */
static void check_woken(struct findings *f)
{
    if (f->woken_late * 2 > f->woken)
        finding(f, "C6", "%zu of %zu waiters were told more than %d ms after the publish",
                f->woken_late, f->woken, WOKEN_MS_MAX);
}

/* ---- everything ---- */

static int by_key_and_begin(const void *a, const void *b)
{
    const struct deed *x = *(const struct deed *const *)a, *y = *(const struct deed *const *)b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->begin_us < y->begin_us ? -1 : x->begin_us > y->begin_us;
}

static int by_begin(const void *a, const void *b)
{
    const struct deed *x = *(const struct deed *const *)a, *y = *(const struct deed *const *)b;
    return x->begin_us < y->begin_us ? -1 : x->begin_us > y->begin_us;
}

static void check_story(struct findings *f, struct story *s)
{
    for (size_t i = 0; i < s->count; i++) {
        enum act act = s->deeds[i]->act;
        s->forgets |= act == ACT_FORGET || act == ACT_AMNESIA || act == ACT_ROLLBACK;
        s->rolled_back |= act == ACT_ROLLBACK;
    }
    check_one_answer(f, s);
    check_one_owner(f, s);
    check_late_owner(f, s);
    check_acknowledged(f, s);
    check_settled(f, s);
    check_fingerprints(f, s);
    check_refused(f, s);
    check_fences(f, s);
    check_linear(f, s);
    if (f->promise->flawless) check_flawless(f, s);
    if (f->promise->calm) check_calm(f, s);
}

/* What was done to the whole store (KEY_ALL sorts first) is part of every key's story. */
void check_history(struct findings *f)
{
    const struct history *h = f->history;
    const struct deed **all = malloc((h->count + 1) * sizeof *all);
    const struct deed **of_key = malloc((h->count + 1) * sizeof *of_key);
    CHECK(all && of_key);
    for (size_t i = 0; i < h->count; i++) all[i] = &h->deeds[i];
    qsort(all, h->count, sizeof *all, by_key_and_begin);
    size_t common = 0;
    while (common < h->count && all[common]->key == KEY_ALL) common++;
    for (size_t i = common; i < h->count;) {
        struct story s = { .key = all[i]->key, .deeds = of_key };
        for (size_t c = 0; c < common; c++) of_key[s.count++] = all[c];
        for (; i < h->count && all[i]->key == s.key; i++) of_key[s.count++] = all[i];
        qsort(of_key, s.count, sizeof *of_key, by_begin);
        check_story(f, &s);
    }
    check_woken(f);
    free(all);
    free(of_key);
}

/* ---- the command ---- */

static void print_finding(struct findings *f, const char *rule, const char *text)
{
    if (f->count <= 20) printf("violates %s: %s\n", rule, text);
}

struct totals {
    size_t outcomes[ONCE_ABSENT + 1], answers, errors, refused, unsure, unanswered;
};

static struct totals totals_of(const struct history *h)
{
    struct totals t = { 0 };
    for (size_t i = 0; i < h->count; i++) {
        const struct deed *d = &h->deeds[i];
        t.outcomes[d->outcome]++;
        t.answers += d->outcome != 0;
        t.errors += d->error && !d->refused;
        t.refused += d->error && d->refused;
        t.unsure += d->error == ONCE_EAMBIGUOUS;
        t.unanswered += !d->outcome && !d->error;
    }
    return t;
}

int check_main(int argc, char **argv)
{
    struct promise promise = PROMISE_INIT;
    int64_t absorbs = 0, flawless = 0, calm = 0, answers = 1, refused = 0;
    const struct option_row rows[] = { { "--absorbs", NULL, &absorbs },
                                       { "--flawless", NULL, &flawless },
                                       { "--calm", NULL, &calm },
                                       { "--lease", NULL, &promise.lease_ms },
                                       { "--settle", NULL, &promise.settle_ms },
                                       { "--answers", NULL, &answers },
                                       { "--refused", NULL, &refused } };
    int at = options_take(argc, argv, rows, sizeof rows / sizeof *rows);
    if (at < 0 || at == argc) {
        fprintf(stderr, "usage: fault check [--absorbs 1] [--lease MS] FILE...\n");
        return 2;
    }
    promise.absorbs = absorbs;
    promise.flawless = flawless;
    promise.calm = calm;
    struct history h;
    history_init(&h);
    for (; at < argc; at++)
        if (!history_read(&h, argv[at])) return 2;
    struct findings f = { .history = &h, .promise = &promise, .tell = print_finding };
    check_history(&f);
    struct totals t = totals_of(&h);
    if (t.answers < (size_t)answers)
        finding(&f, "test", "only %zu answers: that shows nothing", t.answers);
    if (t.refused < (size_t)refused)
        finding(&f, "test", "only %zu bad requests: that shows nothing", t.refused);
    printf("%zu answers: %zu claimed, %zu cached, %zu in progress, %zu timed out, %zu "
           "mismatch, %zu lost, %zu ok; %zu errors (%zu ambiguous), %zu refused, %zu never "
           "answered; "
           "%zu woken; %zu violations\n",
           t.answers, t.outcomes[ONCE_CLAIMED], t.outcomes[ONCE_CACHED],
           t.outcomes[ONCE_IN_PROGRESS], t.outcomes[ONCE_TIMED_OUT], t.outcomes[ONCE_MISMATCH],
           t.outcomes[ONCE_LOST], t.outcomes[ONCE_OK], t.errors, t.unsure, t.refused,
           t.unanswered, f.woken, f.count);
    history_fini(&h);
    return f.count != 0;
}
