/* model.c - see model.h. The stores share one clock and get the same steps; after each of them
 * every answer is compared with the reference.
 *
 * Stores of one plane must agree in every field. The two-plane stores must agree in what a caller
 * can act on: outcome, value, lease and retention left, mine, taken_over; and in fence, version
 * and `changed` wherever the ledger was the one that answered.
 *
 * Where a store can be shared it is open twice, and each step goes through one or the other, as
 * if two processes took turns: what one of them only remembers does not count. */
#include "tests/model/model.h"

#include "tests/model/reference.h"
#include "tests/support/world.h"

#include <stdarg.h>
#include <stdio.h>

#define FROM_COORD (UINT64_C(1) << 63) /* in a version: see store/tiered.c */

enum {
    STORES_MAX = 10,
    TOKENS = 5,
    VALUES = 5,
    PRINTS = 3,
    BATCH_MAX = 8,
    RECENT = 10,
    LINE = 160,
    TURNING_MS_MAX = 5000,
    HANDS = 2,
};

static const char *const compared[] = { "memory",        "sqlite", "tiered",
                                        "tiered-sqlite", "remote", "http" };
static const char *const compared_servers[] = { "redis", "redis-cluster", "postgres",
                                                "tiered-fleet" };

/* The newest fence of a key, in the reference and in a store that has its own. */
struct fences {
    uint64_t want, got;
};

/* A watch on one key, at every store. */
struct watching {
    struct store *stores[STORES_MAX];
    struct op *ops[STORES_MAX];
    unsigned fired[STORES_MAX];
    size_t at, hand;
    uint64_t seen;
    bool active;
    bool due;      /* the key is not what was seen any more ... */
    bool due_here; /* ... by a step that went through the same hand */
    bool gone;     /* or will not be when it is looked at: time took it and told nobody */
};

struct history {
    struct world world;
    const struct world_store *kinds[STORES_MAX];
    struct store *stores[STORES_MAX][HANDS]; /* the second: NULL if it cannot be shared */
    size_t store_count;
    size_t hand; /* through which this step goes */
    struct fences fences[STORES_MAX][REFERENCE_KEYS];
    struct reference model;
    struct watching watching;
    struct blob *values[VALUES]; /* [0] is NULL: no value */
    unsigned step;
    char recent[RECENT][LINE];
    size_t recent_count;
    char reason[512]; /* empty: all is well */
};

static void note(struct history *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void differ(struct history *h, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void note(struct history *h, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *line = h->recent[h->recent_count++ % RECENT];
    int at = snprintf(line, LINE, "%u%c: ", h->step, h->hand ? 'b' : 'a');
    vsnprintf(line + at, LINE - (size_t)at, fmt, args);
    va_end(args);
}

static void differ(struct history *h, const char *fmt, ...)
{
    if (h->reason[0]) return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(h->reason, sizeof h->reason, fmt, args);
    va_end(args);
}

/* ---- dice ---- */

static uint64_t below(struct history *h, uint64_t limit)
{
    return rng_below(&h->world.rng.base, limit);
}

static int64_t pick(struct history *h, const int64_t *from, size_t count)
{
    return from[below(h, count)];
}
#define PICK(h, ...)                                                                           \
    pick(h, (const int64_t[]){ __VA_ARGS__ },                                                  \
         sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))

/* ---- one keyed op ---- */

/* Half of the time the owner's, or nearly everything would be lost; otherwise anybody's. */
static struct token random_token(struct history *h, const struct slot *slot, enum verb verb)
{
    struct token any = token_of((uint8_t)(1 + below(h, TOKENS)));
    if (verb == VERB_CLAIM || !slot->used || below(h, 2)) return any;
    return slot->record.token;
}

static struct request random_request(struct history *h, const struct slot *slot, enum verb verb)
{
    static const uint8_t print[FINGERPRINT_BYTES_MAX] = { 1, 0, 2 };
    static const size_t print_len[PRINTS] = { 0, 3, FINGERPRINT_BYTES_MAX };
    struct request in = { .token = random_token(h, slot, verb) };
    in.lease_ms =
        verb == VERB_RENEW ? PICK(h, -1, -1, 0, 500, 30000) : PICK(h, 0, 1, 1000, 30000, 30000);
    in.retain_ms = verb == VERB_PUBLISH ? PICK(h, -1, -1, 0, 1000, 60000)
                                        : PICK(h, 0, 1, 1000, 60000, 2 * ABANDONED_KEEP_MS);
    /* Mostly the same one, or hardly anything but mismatch would happen. */
    size_t which = below(h, 4) ? 1 : below(h, PRINTS);
    if (verb == VERB_CLAIM) in.fingerprint = bytes_of(print, print_len[which]);
    if (verb == VERB_PUBLISH) in.value = h->values[below(h, VALUES)];
    return in;
}

static enum verb random_verb(struct history *h)
{
    static const enum verb verbs[] = {
        VERB_CLAIM,   VERB_CLAIM,   VERB_CLAIM, VERB_CLAIM, VERB_CLAIM, VERB_PUBLISH,
        VERB_PUBLISH, VERB_RELEASE, VERB_RENEW, VERB_RENEW, VERB_PEEK,  VERB_FORGET,
    };
    return verbs[below(h, sizeof verbs / sizeof verbs[0])];
}

/* Fences of a store's own: another one exactly when the reference has another one, and then a
 * greater one. The version goes with the fence. */
static void compare_own_fence(struct history *h, size_t store, size_t at, const struct op *got,
                              const struct op *want)
{
    struct fences *last = &h->fences[store][at];
    uint64_t a = got->out.fence, b = want->out.fence;
    bool same = b == 0 ? a == 0 : b == last->want ? a == last->got : a > last->got;
    if (!same)
        differ(h, "%s: fence %llu after %llu", h->kinds[store]->name, (unsigned long long)a,
               (unsigned long long)last->got);
    if (b) *last = (struct fences){ b, a };
}

/* What the store calls a fence of the reference. */
static uint64_t fence_at(const struct history *h, size_t store, size_t at, uint64_t fence)
{
    const struct fences *last = &h->fences[store][at];
    if (!h->kinds[store]->own_fences || fence == 0) return fence;
    return last->want == fence ? last->got : 0;
}

static void compare_fence(struct history *h, size_t store, const struct op *got,
                          const struct op *want)
{
    const char *name = h->kinds[store]->name;
    if (got->out.fence != want->out.fence)
        differ(h, "%s: fence %llu, expected %llu", name, (unsigned long long)got->out.fence,
               (unsigned long long)want->out.fence);
    if (got->out.version != want->out.version) differ(h, "%s: another version", name);
}

static void compare_answer(struct history *h, size_t store, size_t at, const struct op *got,
                           const struct op *want)
{
    const char *name = h->kinds[store]->name;
    const struct answer *a = &got->out, *b = &want->out;
    if (got->err.code) {
        differ(h, "%s: %s", name, got->err.text);
        return;
    }
    if (a->outcome != b->outcome) {
        differ(h, "%s: %s, expected %s", name, outcome_name(a->outcome),
               outcome_name(b->outcome));
        return;
    }
    if (!blob_eq(a->value, b->value)) differ(h, "%s: another value", name);
    if (a->mine != b->mine) differ(h, "%s: mine %d", name, a->mine);
    if (a->taken_over != b->taken_over) differ(h, "%s: taken_over %d", name, a->taken_over);
    if (a->lease_left_ms != b->lease_left_ms)
        differ(h, "%s: lease_left %lld, expected %lld", name, (long long)a->lease_left_ms,
               (long long)b->lease_left_ms);
    if (a->retain_left_ms != b->retain_left_ms)
        differ(h, "%s: retain_left %lld, expected %lld", name, (long long)a->retain_left_ms,
               (long long)b->retain_left_ms);
    if (a->degraded) differ(h, "%s: degraded", name);
    if (a->version & FROM_COORD) return;
    if (h->kinds[store]->own_fences)
        compare_own_fence(h, store, at, got, want);
    else
        compare_fence(h, store, got, want);
    bool tidied = h->kinds[store]->tidy && b->outcome == OUTCOME_ABSENT && !got->changed;
    if (got->changed != want->changed && !tidied)
        differ(h, "%s: changed %d", name, got->changed);
}

static struct store *hand_of(const struct history *h, size_t store)
{
    struct store *second = h->stores[store][1];
    return h->hand && second ? second : h->stores[store][0];
}

static void finished(struct op *op, void *ctx)
{
    (void)op;
    ++*(unsigned *)ctx;
}

/* All at once, in one batch; finished in order, once each. */
static void run_batch(struct history *h, size_t store, struct op **ops, size_t count)
{
    unsigned done = 0;
    for (size_t i = 0; i < count; i++) {
        op_push(ops[i], finished, &done);
        store_submit(hand_of(h, store), ops[i]);
    }
    world_settle(&h->world);
    if (done != count)
        differ(h, "%s: %u of %zu ops came back", h->kinds[store]->name, done, count);
}

/* Two planes promise nothing about the order of ops in flight together: one after the other. */
static void run_ops(struct history *h, size_t store, struct op **ops, size_t count)
{
    bool one_plane = !h->kinds[store]->two_planes;
    for (size_t i = 0; !one_plane && i < count; i++) run_batch(h, store, ops + i, 1);
    if (one_plane) run_batch(h, store, ops, count);
}

/* ---- a watch: fires once, when the key is no longer what was seen, and not before ---- */

static void watch_end(struct history *h)
{
    struct watching *w = &h->watching;
    if (!w->active) return;
    for (size_t s = 0; s < h->store_count; s++)
        if (!w->fired[s]) store_cancel(w->stores[s], w->ops[s]);
    world_settle(&h->world);
    for (size_t s = 0; s < h->store_count; s++) {
        if (w->fired[s] != 1)
            differ(h, "%s: the watch finished %u times", h->kinds[s]->name, w->fired[s]);
        else
            op_free(w->ops[s]);
    }
    w->active = false;
}

/* Word of a change may reach the next watch, too, if it travels: S5 allows that. Whether it comes
 * from one hand to the other is conform's business (sharing.c): here nobody waits for it. */
static bool watch_is_right(const struct history *h, size_t store)
{
    const struct watching *w = &h->watching;
    const struct world_store *kind = h->kinds[store];
    bool must = kind->shared ? w->due_here : w->due;
    bool may = w->due || w->gone || kind->hearsay;
    return w->fired[store] == 1 ? may : w->fired[store] == 0 && !must;
}

static void watch_check(struct history *h)
{
    const struct watching *w = &h->watching;
    for (size_t s = 0; w->active && s < h->store_count; s++)
        if (!watch_is_right(h, s))
            differ(h, "%s: the watch has fired %u times", h->kinds[s]->name, w->fired[s]);
}

static void watch_note(struct history *h, size_t at, const struct op *want)
{
    struct watching *w = &h->watching;
    if (!w->active || w->at != at || !want->changed || want->out.version == w->seen) return;
    w->due = true;
    if (w->hand == h->hand) w->due_here = true;
}

static void watch_note_time(struct history *h)
{
    struct watching *w = &h->watching;
    const struct slot *slot = &h->model.slots[w->at];
    const struct record *live = record_live(slot->used ? &slot->record : NULL, h->model.now_ms);
    if (w->active && record_version(live) != w->seen) w->gone = true;
}

static void step_watch(struct history *h)
{
    struct watching *w = &h->watching;
    watch_end(h);
    size_t at = below(h, REFERENCE_KEYS);
    const struct slot *slot = &h->model.slots[at];
    const struct record *live = record_live(slot->used ? &slot->record : NULL, h->model.now_ms);
    bool stale = below(h, 4) == 0;
    *w = (struct watching){
        .at = at, .hand = h->hand, .active = true, .due = stale, .due_here = stale
    };
    w->seen = record_version(live) + (stale ? 4 : 0);
    note(h, "watch key %zu%s", at, stale ? ", as it was before" : "");
    for (size_t s = 0; s < h->store_count; s++) {
        struct record there = live ? *live : (struct record){ 0 };
        there.fence = fence_at(h, s, at, there.fence);
        w->ops[s] = op_new(VERB_WATCH, &slot->key, NULL);
        w->ops[s]->seen = record_version(live ? &there : NULL) + (stale ? 4 : 0);
        op_push(w->ops[s], finished, &w->fired[s]);
        w->stores[s] = hand_of(h, s);
        store_submit(w->stores[s], w->ops[s]);
    }
    world_settle(&h->world);
    watch_check(h);
}

static void step_keyed(struct history *h, size_t count)
{
    struct op *want[BATCH_MAX], *got[BATCH_MAX];
    size_t keys[BATCH_MAX];
    for (size_t i = 0; i < count; i++) {
        size_t at = keys[i] = below(h, REFERENCE_KEYS);
        enum verb verb = random_verb(h);
        struct request in = random_request(h, &h->model.slots[at], verb);
        want[i] = op_new(verb, &h->model.slots[at].key, &in);
        reference_apply(&h->model, at, want[i]);
        watch_note(h, at, want[i]);
        note(h, "%s key %zu token %u lease %lld retain %lld print %zu value %zu -> %s",
             verb_info[verb].name, at, in.token.bytes[0], (long long)in.lease_ms,
             (long long)in.retain_ms, in.fingerprint.len, blob_bytes(in.value).len,
             outcome_name(want[i]->out.outcome));
    }
    for (size_t s = 0; s < h->store_count && !h->reason[0]; s++) {
        for (size_t i = 0; i < count; i++) got[i] = op_copy(want[i], want[i]->verb);
        run_ops(h, s, got, count);
        for (size_t i = 0; i < count; i++) {
            compare_answer(h, s, keys[i], got[i], want[i]);
            op_free(got[i]);
        }
    }
    for (size_t i = 0; i < count; i++) op_free(want[i]);
    watch_check(h);
}

/* ---- expire, scan, stats ---- */

static size_t expire(struct history *h, size_t store, size_t limit)
{
    struct op *op = op_new(VERB_EXPIRE, NULL, NULL);
    op->limit = limit;
    run_batch(h, store, &op, 1);
    size_t count = op->count;
    if (op->err.code) differ(h, "%s: %s", h->kinds[store]->name, op->err.text);
    op_free(op);
    return count;
}

static bool is_other_gone(const struct history *h, size_t store, const struct store_stats *got,
                          const struct store_stats *want)
{
    return h->kinds[store]->tidy ? got->gone > want->gone : got->gone != want->gone;
}

/* With a limit first, then the rest: which ones a limit leaves is the store's business. */
static void step_expire(struct history *h)
{
    size_t gone = reference_gone(&h->model), limit = 1 + below(h, 3);
    size_t first = gone < limit ? gone : limit;
    note(h, "expire %zu of %zu", limit, gone);
    reference_expire(&h->model);
    for (size_t s = 0; s < h->store_count; s++) {
        size_t some = expire(h, s, limit), rest = expire(h, s, 1000);
        bool few = h->kinds[s]->tidy && some <= first && some + rest <= gone;
        if (!few && (some != first || some + rest != gone))
            differ(h, "%s: expired %zu, then %zu, of %zu", h->kinds[s]->name, some, rest, gone);
    }
}

static void compare_row(struct history *h, size_t store, const struct scan_row *row, size_t at)
{
    const struct slot *slot = &h->model.slots[at];
    const struct record *r = &slot->record;
    int64_t now_ms = h->model.now_ms, left_ms = r->lease_until_ms - now_ms;
    bool done = r->state == RECORD_DONE;
    bool same =
        bytes_eq(row->key.scope, slot->key.scope) && bytes_eq(row->key.name, slot->key.name) &&
        row->state == r->state && row->fence == fence_at(h, store, at, r->fence) &&
        row->claimed_at_ms == r->claimed_at_ms && row->value_kept == (r->value != NULL) &&
        row->value_bytes == blob_bytes(r->value).len;
    if (done)
        same &= row->done_at_ms == r->done_at_ms &&
                row->retain_left_ms == record_gone_at_ms(r) - now_ms;
    else
        same &= row->lease_left_ms == (left_ms > 0 ? left_ms : 0);
    if (!same) differ(h, "%s: another row in the scan", h->kinds[store]->name);
}

static void compare_page(struct history *h, size_t store, const struct op *op, size_t *at)
{
    for (size_t i = 0; i < op->scan.count && !h->reason[0]; i++) {
        while (*at < REFERENCE_KEYS &&
               (!h->model.slots[*at].used ||
                !record_live(&h->model.slots[*at].record, h->model.now_ms)))
            ++*at;
        if (*at == REFERENCE_KEYS)
            differ(h, "%s: too many rows in the scan", h->kinds[store]->name);
        else
            compare_row(h, store, &op->scan.rows[i], (*at)++);
    }
}

static bool live_after(const struct history *h, size_t at)
{
    for (; at < REFERENCE_KEYS; at++)
        if (h->model.slots[at].used && record_live(&h->model.slots[at].record, h->model.now_ms))
            return true;
    return false;
}

static void scan_store(struct history *h, size_t store, size_t limit)
{
    size_t at = 0;
    struct key after = { 0 };
    for (bool more = true; more && !h->reason[0];) {
        struct op *op = op_new(VERB_SCAN, &after, NULL);
        op->all_scopes = true;
        op->limit = limit;
        run_batch(h, store, &op, 1);
        if (op->err.code) differ(h, "%s: %s", h->kinds[store]->name, op->err.text);
        compare_page(h, store, op, &at);
        more = op->scan.more;
        if (more != live_after(h, at))
            differ(h, "%s: scan.more %d", h->kinds[store]->name, more);
        if (at) after = h->model.slots[at - 1].key;
        op_free(op);
    }
}

static void step_scan(struct history *h)
{
    size_t limit = 1 + below(h, REFERENCE_KEYS + 1);
    note(h, "scan in pages of %zu", limit);
    for (size_t s = 0; s < h->store_count && !h->reason[0]; s++) scan_store(h, s, limit);
}

static void step_stats(struct history *h)
{
    struct store_stats want = reference_stats(&h->model);
    note(h, "stats");
    for (size_t s = 0; s < h->store_count; s++) {
        struct op *op = op_new(VERB_STATS, NULL, NULL);
        run_batch(h, s, &op, 1);
        const struct store_stats *got = &op->stats;
        if (got->pending != want.pending || got->lapsed != want.lapsed ||
            got->done != want.done || is_other_gone(h, s, got, &want) ||
            got->now_ms != want.now_ms)
            differ(h, "%s: %llu pending, %llu lapsed, %llu done, %llu gone", h->kinds[s]->name,
                   (unsigned long long)got->pending, (unsigned long long)got->lapsed,
                   (unsigned long long)got->done, (unsigned long long)got->gone);
        if (!h->kinds[s]->own_fences && got->fence_floor < want.fence_floor)
            differ(h, "%s: the fence floor is too low", h->kinds[s]->name);
        op_free(op);
    }
}

/* ---- the clock ---- */

static void step_clock(struct history *h)
{
    bool back = below(h, 8) == 0;
    int64_t ms = back ? -PICK(h, 1, 500, 29999, 45000, 3600000)
                      : PICK(h, 0, 1, 1, 1, 1, 1, 499, 499, 999, 1000, 1000, 29999, 30000,
                             60000, ABANDONED_KEEP_MS);
    note(h, "clock %+lld ms", (long long)ms);
    /* Timers need not run through a whole day. */
    int64_t turning_ms = back ? 0 : ms < TURNING_MS_MAX ? ms : TURNING_MS_MAX;
    h->world.wall_ms += ms - turning_ms;
    world_advance(&h->world, turning_ms);
    h->model.now_ms = h->world.wall_ms;
    watch_note_time(h);
}

/* ---- the history ---- */

static void step(struct history *h)
{
    uint64_t dice = below(h, 100);
    h->step++;
    h->hand = below(h, HANDS);
    if (dice < 14)
        step_clock(h);
    else if (dice < 16)
        step_expire(h);
    else if (dice < 18)
        step_scan(h);
    else if (dice < 20)
        step_stats(h);
    else if (dice < 23)
        step_watch(h);
    else if (dice < 28)
        step_keyed(h, 2 + below(h, BATCH_MAX - 1));
    else
        step_keyed(h, 1);
}

static void take_store(struct history *h, const char *name)
{
    size_t s = h->store_count++;
    h->kinds[s] = world_store_named(name);
    h->stores[s][0] = world_open(&h->world, name);
    if (h->kinds[s]->shared) h->stores[s][1] = world_open_again(&h->world, name);
}

static void take_stores(struct history *h, bool servers)
{
    for (size_t i = 0; i < sizeof compared / sizeof compared[0]; i++)
        take_store(h, compared[i]);
    for (size_t i = 0; servers && i < sizeof compared_servers / sizeof compared_servers[0]; i++)
        take_store(h, compared_servers[i]);
}

static void history_open(struct history *h, const struct model_run *run)
{
    static uint8_t big[3000];
    for (size_t i = 0; i < sizeof big; i++) big[i] = (uint8_t)(i * 31);
    *h = (struct history){ 0 };
    world_init(&h->world, run->seed);
    take_stores(h, run->servers);
    reference_init(&h->model);
    h->model.now_ms = h->world.wall_ms;
    h->values[1] = blob_new(bytes_str(""));
    h->values[2] = blob_new(bytes_str("A"));
    h->values[3] = blob_new(bytes_of("A\0B", 3));
    h->values[4] = blob_new(bytes_of(big, sizeof big));
}

static void history_close(struct history *h)
{
    watch_end(h);
    for (size_t s = 0; s < h->store_count; s++)
        for (size_t hand = 0; hand < HANDS; hand++)
            if (h->stores[s][hand]) world_close(&h->world, h->stores[s][hand]);
    reference_fini(&h->model);
    for (size_t i = 0; i < VALUES; i++) blob_unref(h->values[i]);
    world_fini(&h->world);
}

static void explain(const struct history *h, const struct model_run *run, char *why, size_t len)
{
    unsigned long long seed = run->seed;
    size_t at =
        (size_t)snprintf(why, len, "seed %llu, step %u: %s\n", seed, h->step, h->reason);
    size_t first = h->recent_count > RECENT ? h->recent_count - RECENT : 0;
    for (size_t i = first; i < h->recent_count && at < len; i++)
        at += (size_t)snprintf(why + at, len - at, "  %s\n", h->recent[i % RECENT]);
    if (at < len)
        snprintf(why + at, len - at, "repeat with: %stests/model --seed %llu --steps %u%s",
                 run->servers ? "tests/with-servers " : "", seed, h->step,
                 run->servers ? " --servers" : "");
}

bool model_run(const struct model_run *run, char *why, size_t len)
{
    struct history h;
    history_open(&h, run);
    while (h.step < run->steps && !h.reason[0]) step(&h);
    history_close(&h);
    if (!h.reason[0]) return true;
    explain(&h, run, why, len);
    return false;
}
