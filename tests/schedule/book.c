/* book.c - see book.h. */
#include "tests/schedule/book.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void book_init(struct book *b)
{
    *b = (struct book){ 0 };
}

void book_fail(struct book *b, const char *fmt, ...)
{
    if (b->why[0]) return; /* the first is the cause */
    va_list args;
    va_start(args, fmt);
    vsnprintf(b->why, sizeof b->why, fmt, args);
    va_end(args);
}

struct book_key *book_key(struct book *b, const char *name)
{
    for (size_t i = 0; i < b->key_count; i++)
        if (strcmp(b->keys[i].name, name) == 0) return &b->keys[i];
    if (b->key_count == BOOK_KEYS_MAX) {
        book_fail(b, "more than %d keys in one spec", BOOK_KEYS_MAX);
        return &b->keys[0];
    }
    struct book_key *k = &b->keys[b->key_count++];
    snprintf(k->name, WORD_MAX, "%s", name);
    return k;
}

static struct grant *newest(struct book_key *k)
{
    return k->grant_count ? &k->grants[k->grant_count - 1] : NULL;
}

static struct grant *grant_of(struct book_key *k, const struct token *token)
{
    for (size_t i = 0; i < k->grant_count; i++)
        if (token_eq(&k->grants[i].token, token)) return &k->grants[i];
    return NULL;
}

static struct told told_of(const struct answer *out)
{
    struct bytes value = blob_bytes(out->value);
    struct told t = { .any = true, .has_value = out->value != NULL };
    snprintf(t.value, WORD_MAX, "%.*s", (int)value.len, (const char *)value.data);
    return t;
}

static bool same(const struct told *a, const struct told *b)
{
    return a->has_value == b->has_value && strcmp(a->value, b->value) == 0;
}

static bool in_retention(const struct book_key *k, int64_t now_ms)
{
    return k->kept && now_ms < k->gone_at_ms;
}

/* ---- a claim is granted ---- */

static void check_grant(struct book *b, struct book_key *k, const struct step *st,
                        const struct answer *out, int64_t now_ms)
{
    struct grant *last = newest(k);
    if (in_retention(k, now_ms))
        book_fail(b, "B1: %s was granted although the answer is in retention", st->name);
    if (!last) return;
    bool running = !last->leaving && !last->over && now_ms < last->until_ms;
    if (running)
        book_fail(b, "B1: %s was granted while an owner has %lld ms left", st->name,
                  (long long)(last->until_ms - now_ms));
    if (out->fence <= last->fence)
        book_fail(b, "B2: %s got fence %llu after %llu", st->name,
                  (unsigned long long)out->fence, (unsigned long long)last->fence);
    if (out->taken_over && strcmp(last->fingerprint, st->fingerprint) != 0)
        book_fail(b, "B5: %s took over from another fingerprint", st->name);
}

static void granted(struct book *b, struct book_key *k, const struct step *st,
                    const struct token *token, const struct answer *out, int64_t now_ms)
{
    if (grant_of(k, token)) return; /* delivered twice */
    check_grant(b, k, st, out, now_ms);
    if (k->grant_count == GRANTS_MAX) return;
    struct grant *g = &k->grants[k->grant_count++];
    *g = (struct grant){ .token = *token,
                         .fence = out->fence,
                         .lease_ms = st->lease_ms,
                         .until_ms = now_ms + st->lease_ms,
                         .retain_ms = st->retain_ms };
    snprintf(g->fingerprint, WORD_MAX, "%s", st->fingerprint);
}

static void claim_ended(struct book *b, struct book_key *k, const struct step *st,
                        const struct token *token, const struct answer *out, int64_t now_ms)
{
    struct grant *last = newest(k);
    bool shown = out->fence || out->version || out->value || out->lease_left_ms;
    if (out->outcome == OUTCOME_MISMATCH && shown)
        book_fail(b, "B5: %s was told more than mismatch", st->name);
    if (out->outcome == OUTCOME_CLAIMED) granted(b, k, st, token, out, now_ms);
    bool waits = out->outcome == OUTCOME_IN_PROGRESS || out->outcome == OUTCOME_TIMED_OUT;
    if (waits && last && !last->over && strcmp(last->fingerprint, st->fingerprint) != 0)
        book_fail(b, "B5: %s waited on another fingerprint", st->name);
}

/* ---- the owner's verbs ---- */

static void check_owner(struct book *b, struct book_key *k, const struct step *st,
                        const struct token *token)
{
    struct grant *last = newest(k);
    if (!last || !token_eq(&last->token, token))
        book_fail(b, "B4: %s is not of the newest owner and was told ok", st->name);
    else if (last->over)
        book_fail(b, "B4: %s was told ok after a release or forget", st->name);
}

static void published(struct book *b, struct book_key *k, const struct step *st,
                      const struct token *token, int64_t now_ms)
{
    struct told now = { .any = true, .has_value = st->has_value };
    snprintf(now.value, WORD_MAX, "%s", st->value);
    check_owner(b, k, st, token);
    struct grant *g = grant_of(k, token);
    if (!g) return;
    if (k->kept && token_eq(&k->by, token)) {
        if (!same(&now, &k->answer)) book_fail(b, "B3: %s changed the answer", st->name);
        return;
    }
    if (in_retention(k, now_ms)) book_fail(b, "B3: %s replaced an answer", st->name);
    k->answer = now;
    snprintf(k->answer.fingerprint, WORD_MAX, "%s", g->fingerprint);
    k->by = *token;
    k->kept = true;
    k->gone_at_ms = now_ms + (st->retain_ms >= 0 ? st->retain_ms : g->retain_ms);
}

static void renewed(struct book *b, struct book_key *k, const struct step *st,
                    const struct token *token, int64_t now_ms)
{
    check_owner(b, k, st, token);
    struct grant *g = grant_of(k, token);
    if (!g) return;
    if (st->lease_ms >= 0) g->lease_ms = st->lease_ms;
    g->until_ms = now_ms + g->lease_ms;
}

static void released(struct book *b, struct book_key *k, const struct step *st,
                     const struct token *token)
{
    check_owner(b, k, st, token);
    struct grant *g = grant_of(k, token);
    if (g) g->over = true;
}

/* ---- what is called ---- */

void book_started(struct book *b, const struct step *st, const struct token *token)
{
    struct book_key *k = book_key(b, st->key);
    struct grant *g = grant_of(k, token), *last = newest(k);
    if (st->action == ACT_PUBLISH || st->action == ACT_RELEASE)
        if (g) g->leaving = true;
    if (st->action == ACT_FORGET) {
        k->kept = false;
        if (last) last->leaving = true;
    }
}

static void see_value(struct book *b, struct book_key *k, const struct step *st,
                      const struct answer *out)
{
    if (b->unsure_count == STEPS_MAX) return;
    struct told t = told_of(out);
    snprintf(t.fingerprint, WORD_MAX, "%s", st->fingerprint);
    b->unsure[b->unsure_count].step = st;
    b->unsure[b->unsure_count].key = k;
    b->unsure[b->unsure_count++].told = t;
}

void book_ended(struct book *b, const struct step *st, const struct token *token,
                const struct answer *out, int64_t now_ms)
{
    struct book_key *k = book_key(b, st->key);
    bool ok = out->outcome == OUTCOME_OK;
    bool done = out->outcome == OUTCOME_CACHED || out->outcome == OUTCOME_ALREADY_DONE;
    if (st->action == ACT_CLAIM) claim_ended(b, k, st, token, out, now_ms);
    if (st->action == ACT_PUBLISH && ok) published(b, k, st, token, now_ms);
    if (st->action == ACT_RENEW && ok) renewed(b, k, st, token, now_ms);
    if (st->action == ACT_RELEASE && ok) released(b, k, st, token);
    if (st->action == ACT_FORGET && !ok) { /* refused: whoever owned it still does */
        struct grant *last = newest(k);
        if (last) last->leaving = false;
    }
    if (done || (out->outcome == OUTCOME_LOST && out->value)) see_value(b, k, st, out);
}

void book_clock_went_back(struct book *b, int64_t now_ms)
{
    for (size_t i = 0; i < b->key_count; i++) {
        struct grant *g = newest(&b->keys[i]);
        if (g && g->until_ms > now_ms + g->lease_ms) g->until_ms = now_ms + g->lease_ms;
    }
}

static void check_unsure(struct book *b)
{
    for (size_t i = 0; i < b->unsure_count; i++) {
        const struct step *st = b->unsure[i].step;
        const struct told *told = &b->unsure[i].told, *truth = &b->unsure[i].key->answer;
        if (!truth->any) book_fail(b, "B3: %s read what nobody published", st->name);
        if (!same(told, truth))
            book_fail(b, "B3: %s read \"%s\", published was \"%s\"", st->name, told->value,
                      truth->value);
        if (st->action == ACT_CLAIM && strcmp(told->fingerprint, truth->fingerprint) != 0)
            book_fail(b, "B5: %s saw the answer to another fingerprint", st->name);
    }
    b->unsure_count = 0;
}

void book_quiet(struct book *b, int64_t now_ms)
{
    check_unsure(b);
    for (size_t i = 0; i < b->key_count; i++)
        if (now_ms >= b->keys[i].gone_at_ms) b->keys[i].kept = false;
}

void book_peeked(struct book *b, const char *name, const struct answer *out, int64_t now_ms)
{
    struct book_key *k = book_key(b, name);
    if (!in_retention(k, now_ms)) return;
    struct told now = told_of(out);
    bool done = out->outcome == OUTCOME_CACHED || out->outcome == OUTCOME_ALREADY_DONE;
    if (!done)
        book_fail(b, "B3: the answer of %s is gone: %s", name, outcome_name(out->outcome));
    else if (!same(&now, &k->answer))
        book_fail(b, "B3: %s holds \"%s\", published was \"%s\"", name, now.value,
                  k->answer.value);
}
