/* claims.c - many threads, one blocking handle: one owner, one answer. */
#include "tests/threads/threads.h"

#include "base/check.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 8, KEYS = 64, KEY_BYTES = 32 };

static void key_name(char *out, const char *prefix, unsigned n)
{
    snprintf(out, KEY_BYTES, "%s-%u", prefix, n);
}

static bool value_is(const struct once_answer *answer, const char *text)
{
    return answer->has_value && answer->value.len == strlen(text) &&
           memcmp(answer->value.data, text, answer->value.len) == 0;
}

/* ---- once_do ---- */

struct doing {
    struct once *once;
    atomic_uint serial; /* makes every run's value a different one */
    atomic_uint runs[KEYS];
    char seen[KEYS][THREADS][24];
};

struct run {
    struct doing *doing;
    unsigned key;
    char value[24];
};

static int run_once(void *ctx, const struct once_lease *lease, struct once_bytes *ret_value)
{
    struct run *r = ctx;
    EXPECT(lease->fence > 0 && strlen(lease->token) == 32);
    atomic_fetch_add(&r->doing->runs[r->key], 1);
    snprintf(r->value, sizeof r->value, "run %u", atomic_fetch_add(&r->doing->serial, 1));
    *ret_value = once_str(r->value);
    return 0;
}

static void do_all_keys(struct crew *crew, unsigned me)
{
    struct doing *d = crew->ctx;
    for (unsigned i = 0; i < KEYS; i++) {
        unsigned key = me % 2 ? i : KEYS - 1 - i; /* from both ends: they meet everywhere */
        char name[KEY_BYTES];
        key_name(name, "do", key);
        struct once_claim in = claim_of(name);
        struct once_answer answer;
        struct run r = { .doing = d, .key = key };
        EXPECT(once_do_with(d->once, &in, run_once, &r, &answer) == 0);
        EXPECT(answer.outcome == ONCE_OK || answer.outcome == ONCE_CACHED);
        snprintf(d->seen[key][me], sizeof d->seen[key][me], "%.*s", (int)answer.value.len,
                 (const char *)answer.value.data);
        once_answer_clear(&answer);
    }
}

void test_do(const struct place *p)
{
    for (unsigned round = 0; round < p->scale; round++) {
        static struct doing d;
        d = (struct doing){ .once = place_open(p, 0) };
        crew_run(&(struct crew){ .count = THREADS, .work = do_all_keys, .ctx = &d });
        for (unsigned key = 0; key < KEYS; key++) {
            EXPECT(atomic_load(&d.runs[key]) == (p->durable && round > 0 ? 0 : 1));
            for (unsigned t = 1; t < THREADS; t++)
                EXPECT(strcmp(d.seen[key][0], d.seen[key][t]) == 0);
        }
        once_close(d.once);
    }
}

/* ---- release and promotion ---- */

struct relay {
    struct once *once;
    unsigned rounds;
    atomic_uint inside, turns;
    uint64_t fence; /* of the last owner: guarded by ownership itself */
};

static void take_turns(struct crew *crew, unsigned me)
{
    (void)me;
    struct relay *r = crew->ctx;
    for (unsigned i = 0; i < r->rounds; i++) {
        struct once_claim in = claim_of("relay");
        struct once_answer answer;
        EXPECT(once_claim(r->once, &in, &answer) == 0);
        if (!EXPECT(answer.outcome == ONCE_CLAIMED)) return;
        EXPECT(atomic_fetch_add(&r->inside, 1) == 0);
        EXPECT(answer.lease.fence > r->fence);
        EXPECT(!answer.taken_over);
        r->fence = answer.lease.fence;
        atomic_fetch_add(&r->turns, 1);
        EXPECT(atomic_fetch_sub(&r->inside, 1) == 1);
        give_back(r->once, "relay", answer.lease.token);
        once_answer_clear(&answer);
    }
}

void test_promotion(const struct place *p)
{
    struct relay r = { .once = place_open(p, 0), .rounds = 20 * p->scale };
    crew_run(&(struct crew){ .count = THREADS, .work = take_turns, .ctx = &r });
    EXPECT(atomic_load(&r.turns) == THREADS * r.rounds);
    once_close(r.once);
}

/* ---- publish and replay ---- */

struct audience {
    struct once *once;
    struct gauge parked;
    char key[KEY_BYTES], value[KEY_BYTES];
};

static void count_parked(void *ctx, const struct once_event *event)
{
    if (strcmp(event->name, "call") == 0 && strcmp(event->text, "parked") == 0)
        gauge_add(&((struct audience *)ctx)->parked, 1);
}

static void perform(struct audience *a, unsigned others)
{
    struct once_claim in = claim_of(a->key);
    struct once_answer owned;
    uint64_t before = gauge_read(&a->parked);
    EXPECT(once_claim(a->once, &in, &owned) == 0);
    EXPECT(owned.outcome == ONCE_CLAIMED);
    gauge_add(&a->parked, 1); /* the curtain: those who wait for it may come in */
    gauge_await(&a->parked, before + 1 + others);
    put_value(a->once, a->key, owned.lease.token, a->value);
    once_answer_clear(&owned);
}

static void listen(struct audience *a)
{
    struct once_claim in = claim_of(a->key);
    struct once_answer answer;
    gauge_await(&a->parked, 1);
    EXPECT(once_claim(a->once, &in, &answer) == 0);
    EXPECT(answer.outcome == ONCE_CACHED);
    EXPECT(value_is(&answer, a->value));
    once_answer_clear(&answer);
}

static void attend(struct crew *crew, unsigned me)
{
    if (me == 0)
        perform(crew->ctx, crew->count - 1);
    else
        listen(crew->ctx);
}

void test_replay(const struct place *p)
{
    for (unsigned round = 0; round < 10 * p->scale; round++) {
        struct audience a = { .parked = GAUGE_INIT };
        struct once_config config = ONCE_CONFIG_INIT;
        config.on_event = count_parked;
        config.on_event_ctx = &a;
        a.once = place_open_with(p, &config);
        key_name(a.key, "replay", round);
        key_name(a.value, "answer", round);
        crew_run(&(struct crew){ .count = THREADS, .work = attend, .ctx = &a });
        once_close(a.once);
    }
}

/* ---- everything at once ---- */

struct mixture {
    struct once *once;
    unsigned steps;
    atomic_uint published[KEYS];
};

static int count_row(void *ctx, const struct once_row *row)
{
    EXPECT(row->key.len > 0 && row->fence > 0);
    ++*(unsigned *)ctx;
    return 0;
}

static void look_around(struct once *o, const char *key)
{
    struct once_answer answer;
    struct once_owned in = owned_of(key, NULL);
    struct once_stats stats;
    unsigned rows = 0;
    EXPECT(once_peek(o, &in, &answer) == 0);
    EXPECT(answer.outcome == ONCE_CACHED || answer.outcome == ONCE_IN_PROGRESS ||
           answer.outcome == ONCE_ABSENT);
    once_answer_clear(&answer);
    EXPECT(once_stats(o, &stats, NULL) == 0);
    EXPECT(once_list(o, once_str("threads"), count_row, &rows, NULL) == 0);
    EXPECT(once_sweep(o, UINT64_MAX, NULL, NULL) == 0);
}

static void mix_step(struct mixture *m, unsigned n, unsigned key)
{
    char name[KEY_BYTES], value[KEY_BYTES];
    key_name(name, "mix", key);
    key_name(value, "value", key);
    struct once_claim in = claim_of(name);
    struct once_answer answer;
    in.wait_ms = n % 3 ? in.wait_ms : 0;
    EXPECT(once_claim(m->once, &in, &answer) == 0);
    if (answer.outcome == ONCE_CACHED) EXPECT(value_is(&answer, value));
    if (answer.outcome == ONCE_CLAIMED) {
        struct once_owned mine = owned_of(name, answer.lease.token);
        struct once_answer renewed;
        EXPECT(once_renew(m->once, &mine, &renewed) == 0 && renewed.outcome == ONCE_OK);
        once_answer_clear(&renewed);
        if (n % 4 == 0) {
            give_back(m->once, name, answer.lease.token);
        } else {
            atomic_fetch_add(&m->published[key], 1);
            put_value(m->once, name, answer.lease.token, value);
        }
    }
    once_answer_clear(&answer);
    if (n % 16 == 0) look_around(m->once, name);
}

static void mix(struct crew *crew, unsigned me)
{
    struct mixture *m = crew->ctx;
    for (unsigned n = 0; n < m->steps; n++) mix_step(m, n + me, (n * 7 + me) % KEYS);
}

void test_mixture(const struct place *p)
{
    struct mixture m = { .once = place_open(p, 0), .steps = 100 * p->scale };
    crew_run(&(struct crew){ .count = THREADS, .work = mix, .ctx = &m });
    for (unsigned key = 0; key < KEYS; key++) EXPECT(atomic_load(&m.published[key]) <= 1);
    once_close(m.once);
}
