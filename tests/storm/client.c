/* client.c - what a client does: triggers (with a key that others use, with an id of its own, with
 * neither), adds tags, increments, cancels, replays, resets, reads, leases, completes, fails, returns,
 * stalls. Most of it is about runs that were triggered a moment ago, which are in the buffer or on
 * their way out of it. It blows and calms down every second or so, so that the gate trips and lets
 * pass again. */
#include "tests/storm/storm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    RECENT = 60, /* those that most of it is about */
    TAGS = 6,    /* fewer than a run may have, also after a merge */
    KEYS_PER_WINDOW = 3,
    WINDOW_MS = 250,
    BLOWS_MS = 900, /* of every ... */
    WEATHER_MS = 1500,
    LEASE_MS = 1500, /* check.py reckons with it */
    LEASES_MAX = 8,
    SETTLE_S = 75, /* a drainer that was killed has its entries for 30 s, a trigger its key */
};

static void pass_ms(int64_t ms)
{
    struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    nanosleep(&ts, NULL);
}

static int64_t below(struct client *c, int64_t limit)
{
    return (int64_t)rng_below(&c->rng.base, (uint64_t)limit);
}

static bool chance(struct client *c, int64_t per_cent)
{
    return below(c, 100) < per_cent;
}

static struct once *handle(const struct client *c)
{
    return c->storm->once[c->handle % c->storm->handles];
}

/* ---- ids that somebody was told ---- */

static void remember(struct storm *s, const char *id)
{
    pthread_mutex_lock(&s->lock);
    bool known = false;
    for (size_t i = s->count; i-- > 0 && !known && s->count - i < 2000;)
        known = strcmp(s->told[i].id, id) == 0;
    if (!known && s->count < IDS_MAX) strcpy(s->told[s->count++].id, id);
    pthread_mutex_unlock(&s->lock);
}

/* False: there is none yet. */
static bool some_id(struct client *c, char id[31])
{
    struct storm *s = c->storm;
    bool recent = chance(c, 80);
    pthread_mutex_lock(&s->lock);
    size_t count = s->count, among = recent && count > RECENT ? RECENT : count;
    if (count) strcpy(id, s->told[count - 1 - (size_t)below(c, (int64_t)among)].id);
    pthread_mutex_unlock(&s->lock);
    return count > 0;
}

/* A daemon that does not answer is left for another one. */
static void come_back(struct client *c, int r)
{
    if (!r) return;
    c->handle++;
    pass_ms(5 + below(c, 20));
}

/* ---- triggers ---- */

static void key_name(struct client *c, char *key, size_t len)
{
    int64_t window = (now_us() - c->storm->start_us) / 1000 / WINDOW_MS;
    if (chance(c, 15)) window = below(c, window + 1);
    int64_t index = below(c, KEYS_PER_WINDOW);
    snprintf(key, len, "%c%" PRId64 ".%" PRId64, index ? 'k' : 'z', window, index);
}

/* As daemons make them, but nobody else's. */
static void own_id(struct client *c, char id[31])
{
    static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    uint64_t ms = (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
    memcpy(id, "run_", 4);
    for (int i = 0; i < 10; i++) id[4 + i] = digits[ms >> (45 - 5 * i) & 31];
    for (int i = 10; i < 26; i++) id[4 + i] = digits[below(c, 32)];
    id[30] = '\0';
}

static int trigger_once(struct client *c, const struct once_trigger *in, const char *key)
{
    struct once_run_answer answer;
    struct asked a = { .act = "trigger", .id = in->id, .what = key, .begin_us = now_us() };
    a.token = in->payload.data; /* what was asked for: a key never leads to something else */
    int r = once_trigger(handle(c), in, &answer);
    const struct once_run *run = r ? NULL : answer.run;
    record(c->storm, &a, r, &answer, run);
    if (run && answer.outcome != ONCE_MISMATCH) remember(c->storm, run->id);
    if (run && answer.outcome == ONCE_OK) c->storm->made++;
    once_run_answer_clear(&answer);
    return r;
}

static void play_trigger(struct client *c)
{
    struct once_trigger in = ONCE_TRIGGER_INIT;
    char key[40] = "", id[31] = "";
    int64_t what = below(c, 100);
    if (c->storm->made >= c->storm->runs_max) what = 0;
    if (what < 40) key_name(c, key, sizeof key);
    if (what >= 85) own_id(c, id);
    in.env = once_str(c->storm->env);
    in.task = once_str("task");
    in.queue = once_str(chance(c, 50) ? "q0" : "q1");
    in.payload = once_str(key[0] && chance(c, 3) ? "{\"other\":1}" : "{\"some\":1}");
    in.key = once_str(key[0] ? key : NULL);
    in.id = id[0] ? id : NULL;
    in.attempts_max =
        key[0] && chance(c, 20) ? 1 : 1000; /* a key whose run has FAILED is free */
    if (chance(c, 8)) in.ordering_key = once_str(chance(c, 50) ? "o0" : "o1");
    in.wait_ms = chance(c, 80) ? 1500 : 0;
    if (chance(c, 20)) in.delay_ms = 200 + below(c, 1500);
    /* An id of one's own makes it safe to ask until there is an answer, anywhere. */
    for (int tries = id[0] ? 5 : 1, r = -1; r && tries > 0; tries--)
        come_back(c, r = trigger_once(c, &in, key));
}

/* ---- what is done to a run ---- */

typedef int about_fn(struct once *, const struct once_run_args *, struct once_run_answer *);

static int about(struct client *c, about_fn *fn, const struct asked *a,
                 const struct once_run_args *args)
{
    struct once_run_answer answer;
    struct asked asked = *a;
    struct once_run_args in = *args;
    in.env = once_str(c->storm->env);
    in.id = a->id;
    in.token = a->token;
    asked.begin_us = now_us();
    int r = fn(handle(c), &in, &answer);
    record(c->storm, &asked, r, &answer, r ? NULL : answer.run);
    int outcome = r ? r : answer.outcome;
    once_run_answer_clear(&answer);
    come_back(c, r);
    return outcome;
}

static void play_get(struct client *c, const char *id)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    about(c, once_run_get, &(struct asked){ .act = "get", .id = id }, &in);
}

static void play_tag(struct client *c, const char *id)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    char tag[8];
    snprintf(tag, sizeof tag, "t%d", (int)below(c, TAGS));
    struct once_bytes tags = once_str(tag);
    in.tags = &tags;
    in.tag_count = 1;
    about(c, once_run_add_tags, &(struct asked){ .act = "tag", .id = id, .what = tag }, &in);
}

static void play_increment(struct client *c, const char *id)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    in.value = once_str("[{\"type\":\"increment\",\"key\":\"n\",\"value\":1}]");
    about(c, once_run_operate, &(struct asked){ .act = "increment", .id = id }, &in);
}

static void play_cancel(struct client *c, const char *id)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    about(c, once_run_cancel, &(struct asked){ .act = "cancel", .id = id }, &in);
}

static void play_replay(struct client *c, const char *id)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    struct once_run_answer answer;
    struct asked a = { .act = "replay", .id = id, .begin_us = now_us() };
    in.env = once_str(c->storm->env);
    in.id = id;
    int r = once_run_replay(handle(c), &in, &answer);
    const struct once_run *run = r ? NULL : answer.run;
    record(c->storm, &a, r, &answer, run);
    if (run) remember(c->storm, run->id);
    once_run_answer_clear(&answer);
    come_back(c, r);
}

/* Of keys that are there for that: the others have one run for ever. */
static void play_reset(struct client *c)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    char key[40];
    do key_name(c, key, sizeof key);
    while (key[0] != 'z');
    in.task = once_str("task");
    in.key = once_str(key);
    about(c, once_key_reset, &(struct asked){ .act = "reset", .what = key }, &in);
}

/* ---- work ---- */

struct leased {
    char id[31], token[33];
    bool last; /* attempt */
};

/* Shows the token until there is an answer; the end of an attempt may be repeated. */
static void finish_run(struct client *c, const char *act, about_fn *fn, const struct leased *l)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    char output[64];
    struct asked a = { .act = act, .id = l->id, .what = output, .token = l->token };
    snprintf(output, sizeof output, "\"%" PRId64 "-%d-%u\"", c->storm->seed, c->index,
             ++c->outputs);
    in.value = once_str(fn == once_run_return ? "" : output);
    in.retry_ms = 0;
    for (int tries = 4; tries > 0 && about(c, fn, &a, &in) < 0; tries--) pass_ms(20);
}

static void beat(struct client *c, const struct leased *l)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    struct asked a = { .act = "beat", .id = l->id, .token = l->token };
    about(c, once_run_heartbeat, &a, &in);
}

static void work_on(struct client *c, const struct leased *l, bool final)
{
    int64_t what = final ? 99 : below(c, l->last && chance(c, 50) ? 24 : 100);
    if (what < 2) return; /* gone without a word */
    if (what < 4) pass_ms(LEASE_MS + below(c, 300));
    if (what < 14) beat(c, l);
    if (what >= 14 && what < 24)
        finish_run(c, "fail", once_run_fail, l);
    else if (what >= 24 && what < 32)
        finish_run(c, "return", once_run_return, l);
    else
        finish_run(c, "complete", once_run_complete, l);
}

/* How many there were. */
static size_t play_work(struct client *c, bool final)
{
    struct once_run_lease in = ONCE_RUN_LEASE_INIT;
    struct once_run_answer answer;
    struct leased got[LEASES_MAX];
    size_t count = 0;
    struct asked a = { .act = "lease", .what = chance(c, 50) ? "q0" : "q1", .final = final };
    in.env = once_str(c->storm->env);
    in.queue = once_str(a.what);
    in.count = final ? LEASES_MAX : 1 + (size_t)below(c, LEASES_MAX);
    in.lease_ms = LEASE_MS;
    in.wait_ms = !final && chance(c, 50) ? 200 : 0;
    a.begin_us = now_us();
    int r = once_run_lease(handle(c), &in, &answer);
    if (r) record(c->storm, &a, r, &answer, NULL);
    for (; !r && count < answer.count; count++) {
        record(c->storm, &a, 0, &answer, answer.runs[count]);
        strcpy(got[count].id, answer.runs[count]->id);
        strcpy(got[count].token, answer.runs[count]->token);
        got[count].last = answer.runs[count]->attempts_max == 1;
    }
    once_run_answer_clear(&answer);
    for (size_t i = 0; i < count; i++) work_on(c, &got[i], final);
    come_back(c, r);
    return count;
}

/* ---- while it blows ---- */

static void play_about(struct client *c, int64_t what)
{
    char id[31];
    if (!some_id(c, id)) return;
    if (what < 5)
        play_reset(c);
    else if (what < 7)
        play_replay(c, id);
    else if (what < 30)
        play_increment(c, id);
    else if (what < 55)
        play_tag(c, id);
    else if (what < 62)
        play_cancel(c, id);
    else
        play_get(c, id);
}

void client_play(struct client *c)
{
    bool blows = (now_us() - c->storm->start_us) / 1000 % WEATHER_MS < BLOWS_MS;
    int64_t what = below(c, 100);
    if (what < (blows ? 55 : 8))
        play_trigger(c);
    else if (what < 80)
        play_about(c, below(c, 100));
    else
        play_work(c, false);
    pass_ms(below(c, 4));
}

/* ---- when it is over ---- */

static bool is_final(int status)
{
    return status == ONCE_RUN_COMPLETED || status == ONCE_RUN_FAILED ||
           status == ONCE_RUN_CANCELED;
}

/* Is it what it will stay? The last answer is written down, whatever it is. */
static bool settle(struct client *c, const char *id, bool last)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    struct once_run_answer answer;
    struct asked a = { .act = "get", .id = id, .begin_us = now_us(), .final = true };
    in.env = once_str(c->storm->env);
    in.id = id;
    int r = once_run_get(handle(c), &in, &answer);
    bool settled = !r && answer.run && is_final(answer.run->status) && !answer.buffered;
    bool absent = !r && answer.outcome == ONCE_ABSENT;
    if (settled || absent || last) record(c->storm, &a, r, &answer, r ? NULL : answer.run);
    once_run_answer_clear(&answer);
    come_back(c, r);
    return settled || absent;
}

/* How many are left of this client's share. */
static size_t settle_all(struct client *c, bool last)
{
    struct storm *s = c->storm;
    size_t left = 0;
    for (size_t i = (size_t)c->index; i < s->count; i += (size_t)s->clients) {
        struct told *t = &s->told[i];
        if (t->settled) continue;
        t->settled = settle(c, t->id, last);
        left += !t->settled;
    }
    return left;
}

void client_settle(struct client *c)
{
    int64_t limit_us = now_us() + (int64_t)SETTLE_S * 1000000;
    for (size_t left = 1; left && now_us() < limit_us;) {
        while (play_work(c, true) && now_us() < limit_us) continue;
        left = settle_all(c, false);
        if (left) pass_ms(50);
    }
    settle_all(c, true);
}

/* One page; a daemon that is not there yet is asked again. */
static bool list_page(struct client *c, char before[31])
{
    struct once_run_query in = ONCE_RUN_QUERY_INIT;
    struct once_run_answer answer;
    struct asked a = { .act = "list", .begin_us = now_us(), .final = true };
    in.env = once_str(c->storm->env);
    in.limit = 500;
    in.before = before[0] ? before : NULL;
    int r = -1;
    for (int tries = 200; r && tries > 0; tries--)
        come_back(c, r = once_run_list(handle(c), &in, &answer));
    if (r) record(c->storm, &a, r, &answer, NULL);
    for (size_t i = 0; !r && i < answer.count; i++)
        record(c->storm, &a, 0, &answer, answer.runs[i]);
    strcpy(before, r ? "" : answer.next);
    once_run_answer_clear(&answer);
    return before[0];
}

void client_list(struct client *c)
{
    char before[31] = "";
    while (list_page(c, before)) continue;
}
