/* worker.c - a client process like any other, except that it writes down what it was told.
 *
 *   fault worker --out FILE --coord URL --ledger URL|once://DAEMON|none [--scope NAME] [--seed N]
 *                [--start US] [--forgets N]
 *
 * Opens the library through its public door and plays contended keys on a few threads: claims
 * with and without waiting, publishes values that no other claim publishes, releases, renews,
 * looks, comes back with old tokens, stalls past its lease, gives up without a word, asks with
 * another fingerprint, asks for what must be refused (bad.c). Every window of time has keys of its own (--start is the time that all
 * processes count from), because an answered key stays answered.
 *
 * On SIGUSR1 the faults are over: it finishes what it is at, asks for every key that was used
 * until there is an answer (C5), and ends. Without a signal it gives up after two minutes. */
#include "base/bytes.h"
#include "base/check.h"
#include "base/map.h"
#include "base/random.h"
#include "tests/fault/fault.h"

#include <once/once.h>

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 3, KEYS_PER_WINDOW = 2, WINDOW_US = 50000, LIMIT_US = 120000000 };
enum {
    LEASE_MS_MAX = 600,
    SETTLE_MS = 2000,
    LONG_VALUE_BYTES = 20000,
    OLD_CLAIMS = 4,
    BAD_EVERY = 25
};

struct claim {
    char key[40], token[33], value[48];
    int64_t lease_ms;
};

struct player {
    struct worker *worker;
    int index;
    pthread_t thread;
    struct rng_seeded rng;
    unsigned values, plays, bads;
    struct claim old[OLD_CLAIMS];
    /* What it is asking about now, for the events of the library (under the worker's lock). */
    char asking[40];
    bool unsure;
    char *long_value;
};

struct worker {
    struct once *once;
    struct scribe scribe;
    const char *scope;
    int64_t start_us, forgets, seed;
    pthread_mutex_t lock;
    struct player players[THREADS];
    bool failed; /* what is there could not be listed */
};

static atomic_int over;

static void on_signal(int number)
{
    (void)number;
    over = 1;
}

static void pass_ms(int64_t ms)
{
    struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    nanosleep(&ts, NULL);
}

static int64_t below(struct player *p, int64_t limit)
{
    return (int64_t)rng_below(&p->rng.base, (uint64_t)limit);
}

static bool chance(struct player *p, int64_t per_cent)
{
    return below(p, 100) < per_cent;
}

/* ---- one call, written down ---- */

static void on_event(void *ctx, const struct once_event *event)
{
    struct worker *w = ctx;
    if (strcmp(event->name, "ambiguous") != 0) return;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < THREADS; i++) {
        struct player *p = &w->players[i];
        bool it = strlen(p->asking) == event->key.len &&
                  memcmp(p->asking, event->key.data, event->key.len) == 0;
        p->unsure |= it;
    }
    pthread_mutex_unlock(&w->lock);
}

static void asking(struct player *p, const char *key)
{
    pthread_mutex_lock(&p->worker->lock);
    snprintf(p->asking, sizeof p->asking, "%s", key);
    p->unsure = false;
    pthread_mutex_unlock(&p->worker->lock);
}

static bool was_unsure(struct player *p)
{
    pthread_mutex_lock(&p->worker->lock);
    bool unsure = p->unsure;
    p->asking[0] = '\0';
    pthread_mutex_unlock(&p->worker->lock);
    return unsure;
}

/* A value as it is written down: short ones as they are, long ones by length and hash. */
static const char *value_word(struct once_bytes value, char *text, size_t len)
{
    static const uint64_t seed[2] = { 1, 2 };
    if (value.len == 0)
        snprintf(text, len, "(empty)");
    else if (value.len < 48)
        snprintf(text, len, "%.*s", (int)value.len, (const char *)value.data);
    else
        snprintf(text, len, "%zu:%016" PRIx64, value.len,
                 siphash13(seed, bytes_of(value.data, value.len)));
    return text;
}

static void ended(struct player *p, uint64_t call, int r, struct once_answer *a)
{
    char word[64];
    struct ended e = { .maybe = was_unsure(p), .error = r };
    if (r) fprintf(stderr, "%s\n", a->error.text);
    if (!r) {
        e.outcome = a->outcome;
        e.fence = a->fence;
        if (a->outcome == ONCE_CLAIMED) e.token = a->lease.token, e.fence = a->lease.fence;
        if (a->has_value) e.value = value_word(a->value, word, sizeof word);
    }
    scribe_end(&p->worker->scribe, call, &e);
}

static int claim(struct player *p, const struct once_claim *in, const char *key, bool final,
                 struct once_answer *ret_answer)
{
    struct worker *w = p->worker;
    asking(p, key);
    uint64_t call =
        scribe_begin(&w->scribe, &(struct begun){ .act = ACT_CLAIM,
                                                  .key = key,
                                                  .fingerprint = in->fingerprint.data,
                                                  .lease_ms = in->lease_ms,
                                                  .final = final,
                                                  .waits = in->wait_ms > 0 });
    int r = once_claim(w->once, in, ret_answer);
    ended(p, call, r, ret_answer);
    return r;
}

typedef int owned_fn(struct once *, const struct once_owned *, struct once_answer *);

static owned_fn *const owned_call[ACTS] = {
    [ACT_PUBLISH] = once_publish, [ACT_RELEASE] = once_release, [ACT_RENEW] = once_renew,
    [ACT_PEEK] = once_peek,       [ACT_FORGET] = once_forget,
};

/* 0 and the outcome, or the error. */
static int owned(struct player *p, enum act act, const struct claim *c, bool final)
{
    struct worker *w = p->worker;
    struct once_owned in = ONCE_OWNED_INIT;
    char word[64];
    bool publishes = act == ACT_PUBLISH;
    in.scope = once_str(p->worker->scope);
    in.key = once_str(c->key);
    in.token = c->token[0] ? c->token : NULL;
    if (publishes) in.value = once_str(c->value);
    if (publishes && c->value[0] == '+') { /* a long one: its name, and then some */
        memset(p->long_value, 'x', LONG_VALUE_BYTES);
        memcpy(p->long_value, c->value, strlen(c->value));
        in.value = once_bytes(p->long_value, LONG_VALUE_BYTES);
    }
    asking(p, c->key);
    uint64_t call = scribe_begin(
        &w->scribe,
        &(struct begun){ .act = act,
                         .key = c->key,
                         .token = c->token,
                         .lease_ms = c->lease_ms,
                         .final = final,
                         .value = publishes ? value_word(in.value, word, sizeof word) : NULL });
    struct once_answer answer;
    memset(&answer, 0, sizeof answer);
    int r = owned_call[act](w->once, &in, &answer);
    ended(p, call, r, &answer);
    once_answer_clear(&answer);
    return r ? r : answer.outcome;
}

/* ---- what an owner does ---- */

static void new_value(struct player *p, struct claim *c)
{
    snprintf(c->value, sizeof c->value, "%sw%" PRId64 "-%d-%u", chance(p, 10) ? "+" : "",
             p->worker->seed, p->index, ++p->values);
}

/* An owner whose lease is renewed for it has to end it, or nobody else ever gets the key. */
static void end_owning(struct player *p, enum act act, const struct claim *c, bool renewed)
{
    int64_t limit_us = now_us() + LIMIT_US / 4;
    while (owned(p, act, c, false) < 0 && now_us() < limit_us) {
        if (!renewed && chance(p, 50)) return;
        pass_ms(20);
    }
}

/* Longer than its lease, which it renews on the way. */
static void work_long(struct player *p, const struct claim *c)
{
    pass_ms(c->lease_ms * 6 / 10);
    owned(p, ACT_RENEW, c, false);
    pass_ms(c->lease_ms * 6 / 10);
}

static struct bad bad_of(struct player *p, const char *key)
{
    struct worker *w = p->worker;
    return (struct bad){ .scribe = &w->scribe, .once = w->once, .scope = w->scope, .key = key };
}

static void err_as_owner(struct player *p, const struct claim *c)
{
    struct bad b = bad_of(p, c->key);
    bad_publish(&b, c->token, (uint64_t)below(p, 1000));
}

static void own(struct player *p, struct claim *c, bool renewed)
{
    int64_t what = below(p, 100);
    pass_ms(below(p, 10));
    if (!renewed && what < 30) pass_ms(c->lease_ms + below(p, c->lease_ms)); /* stalls */
    if (!renewed && what < 10) return;                                       /* for good */
    if (what % 4 == 0) owned(p, ACT_RENEW, c, false);
    if (what % 8 == 0) work_long(p, c);
    if (chance(p, 15)) err_as_owner(p, c);
    new_value(p, c);
    end_owning(p, what < 70 ? ACT_PUBLISH : ACT_RELEASE, c, renewed);
    p->old[below(p, OLD_CLAIMS)] = *c;
}

/* ---- what a player does ---- */

static int64_t windows(const struct worker *w)
{
    return (now_us() - w->start_us) / WINDOW_US + 1;
}

static void key_name(char *key, size_t len, int64_t window, int64_t index)
{
    snprintf(key, len, "k%" PRId64 ".%" PRId64, window, index);
}

static void any_key(struct player *p, char *key, size_t len)
{
    int64_t last = windows(p->worker) - 1;
    int64_t window = chance(p, 80) ? last : below(p, last + 1);
    key_name(key, len, window, below(p, KEYS_PER_WINDOW));
}

static void play_claim(struct player *p)
{
    static const int64_t waits_ms[] = { 0, 0, 50, 400, 1500 };
    static const int64_t leases_ms[] = { 250, 400, LEASE_MS_MAX };
    struct claim c = { .lease_ms = leases_ms[below(p, 3)] };
    any_key(p, c.key, sizeof c.key);
    bool renewed = chance(p, 60);
    struct once_claim in = ONCE_CLAIM_INIT;
    in.scope = once_str(p->worker->scope);
    in.key = once_str(c.key);
    in.fingerprint = once_str(chance(p, 85) ? "A" : "B");
    in.lease_ms = c.lease_ms;
    in.wait_ms = waits_ms[below(p, 5)];
    in.flags = renewed ? 0 : ONCE_NO_RENEW;
    struct once_answer answer;
    memset(&answer, 0, sizeof answer);
    int r = claim(p, &in, c.key, false, &answer);
    bool won = r == 0 && answer.outcome == ONCE_CLAIMED;
    memcpy(c.token, answer.lease.token, sizeof c.token);
    once_answer_clear(&answer);
    if (won) own(p, &c, renewed);
    if (r < 0) pass_ms(5); /* the store is away: do not fill the disk with that */
}

static void play_late(struct player *p)
{
    static const enum act acts[] = { ACT_PUBLISH, ACT_PUBLISH, ACT_RELEASE, ACT_RENEW };
    struct claim *c = &p->old[below(p, OLD_CLAIMS)];
    if (!c->token[0]) return;
    if (chance(p, 50) || !c->value[0]) new_value(p, c);
    owned(p, acts[below(p, 4)], c, false);
}

static void play_look(struct player *p, enum act act)
{
    struct claim c = { .lease_ms = 0 };
    any_key(p, c.key, sizeof c.key);
    owned(p, act, &c, false);
}

/* Its key is asked for by nobody else. By turns, not by chance: however slow it goes, some are refused. */
static void play_bad(struct player *p)
{
    struct claim c = { .lease_ms = 0 };
    snprintf(c.key, sizeof c.key, BAD_KEY "%" PRId64 "-%d-%u", p->worker->seed, p->index,
             ++p->bads);
    struct bad b = bad_of(p, c.key);
    bad_claim(&b, (uint64_t)below(p, 1000));
    owned(p, ACT_PEEK, &c, false);
}

static void play(struct player *p)
{
    int64_t what = below(p, 1000);
    if (p->plays++ % BAD_EVERY == 0)
        play_bad(p);
    else if (what < p->worker->forgets)
        play_look(p, ACT_FORGET);
    else if (what < 80)
        play_late(p);
    else if (what < 160)
        play_look(p, ACT_PEEK);
    else
        play_claim(p);
    pass_ms(below(p, 4));
}

/* ---- when the faults are over ---- */

/* The outcome, or an error; 0: it was this one that answered it. */
static int ask_final(struct player *p, const char *key, const char *fingerprint)
{
    struct claim c = { .lease_ms = LEASE_MS_MAX };
    struct once_claim in = ONCE_CLAIM_INIT;
    snprintf(c.key, sizeof c.key, "%s", key);
    in.scope = once_str(p->worker->scope);
    in.key = once_str(key);
    in.fingerprint = once_str(fingerprint);
    in.lease_ms = c.lease_ms;
    in.wait_ms = LEASE_MS_MAX + SETTLE_MS;
    struct once_answer answer;
    memset(&answer, 0, sizeof answer);
    int r = claim(p, &in, key, true, &answer);
    int outcome = r ? r : answer.outcome;
    memcpy(c.token, answer.lease.token, sizeof c.token);
    once_answer_clear(&answer);
    if (outcome != ONCE_CLAIMED) return outcome;
    new_value(p, &c);
    owned(p, ACT_PUBLISH, &c, true);
    return 0;
}

/* A client that is told that the store is away comes back, for as long as C5 allows. */
static void settle_final(struct player *p, const char *key)
{
    int64_t limit_us = now_us() + (LEASE_MS_MAX + SETTLE_MS) * 1000;
    const char *fingerprint = "A";
    for (int r = -1; r < 0 && now_us() < limit_us;) {
        r = ask_final(p, key, fingerprint);
        if (r == ONCE_MISMATCH) r = ask_final(p, key, fingerprint = "B");
        if (r < 0) pass_ms(20);
    }
}

static void play_final(struct player *p)
{
    int64_t count = windows(p->worker);
    for (int64_t i = p->index; i < count * KEYS_PER_WINDOW; i += THREADS) {
        struct claim c = { .lease_ms = 0 };
        key_name(c.key, sizeof c.key, i / KEYS_PER_WINDOW, i % KEYS_PER_WINDOW);
        settle_final(p, c.key);
        owned(p, ACT_PEEK, &c, true);
    }
}

/* Nothing is left of what was refused. */
static void list_final(struct player *p)
{
    struct bad b = bad_of(p, NULL);
    int64_t limit_us = now_us() + (LEASE_MS_MAX + SETTLE_MS) * 1000;
    int r = bad_list(&b);
    for (; r < 0 && now_us() < limit_us; r = bad_list(&b)) pass_ms(20);
    if (r < 0) p->worker->failed = true;
}

static void *player_run(void *ctx)
{
    struct player *p = ctx;
    int64_t limit_us = now_us() + LIMIT_US;
    while (!over && now_us() < limit_us) play(p);
    if (over) play_final(p);
    if (over && p->index == 0) list_final(p);
    return NULL;
}

/* ---- the process ---- */

/* A daemon has both planes. */
static void set_planes(struct once_config *config, const char *coord, const char *ledger)
{
    bool alone = strcmp(ledger, "none") == 0;
    if (strncmp(ledger, "once://", 7) == 0) {
        config->url = ledger;
        return;
    }
    config->coord = coord;
    config->ledger = alone ? NULL : ledger;
    config->flags = alone ? ONCE_EPHEMERAL : 0;
}

/* Servers may be away while it starts: tried until it works or the time is up. */
static bool open_once(struct worker *w, const char *coord, const char *ledger)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    set_planes(&config, coord, ledger);
    config.patience_ms = w->seed % 2 ? 1000 : 5000;
    config.on_event = on_event;
    config.on_event_ctx = w;
    int64_t limit_us = now_us() + LIMIT_US;
    while (once_open(&config, &w->once, &error) < 0) {
        if (now_us() > limit_us || !once_retryable(error.code)) {
            fprintf(stderr, "worker %" PRId64 ": %s\n", w->seed, error.text);
            return false;
        }
        pass_ms(20);
    }
    return true;
}

static void players_run(struct worker *w)
{
    for (int i = 0; i < THREADS; i++) {
        struct player *p = &w->players[i];
        *p = (struct player){ .worker = w, .index = i, .long_value = malloc(LONG_VALUE_BYTES) };
        CHECK(p->long_value);
        rng_seeded_init(&p->rng, (uint64_t)w->seed * 16 + (uint64_t)i);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&w->players[i].thread, NULL, player_run, &w->players[i]));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(w->players[i].thread, NULL);
        free(w->players[i].long_value);
    }
}

int worker_main(int argc, char **argv)
{
    static struct worker w = { .seed = 1, .scope = "fault", .lock = PTHREAD_MUTEX_INITIALIZER };
    const char *out = NULL, *coord = "memory:", *ledger = NULL;
    const struct option_row rows[] = {
        { "--out", &out, NULL },          { "--coord", &coord, NULL },
        { "--ledger", &ledger, NULL },    { "--scope", &w.scope, NULL },
        { "--seed", NULL, &w.seed },      { "--start", NULL, &w.start_us },
        { "--forgets", NULL, &w.forgets }
    };
    int at = options_take(argc, argv, rows, sizeof rows / sizeof *rows);
    if (at != argc || !out || !ledger || !scribe_open(&w.scribe, out)) {
        fprintf(stderr, "usage: fault worker --out FILE --coord URL --ledger URL|none ...\n");
        return 2;
    }
    if (!w.start_us) w.start_us = now_us();
    signal(SIGUSR1, on_signal);
    bad_init();
    if (!open_once(&w, coord, ledger)) return 1;
    players_run(&w);
    once_close(w.once);
    return over && !w.failed ? 0 : 1;
}
