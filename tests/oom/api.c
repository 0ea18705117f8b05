/* api.c - the library as a program uses it, threads and all, while memory runs out. */
#include "tests/oom/oom.h"

#include "base/check.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Without memory coord cannot always be told that a claim came to nothing: then the key is held
 * there until the lease lapses, and the scenario waits for that. */
enum { CALLS = 6, SHORT_LEASE_MS = 200 };

/* ---- opening ---- */

static bool is_memory(const char *arg)
{
    return strcmp(arg, "memory") == 0;
}

static unsigned files;

static void ledger_url(char *out, size_t len, unsigned file)
{
    snprintf(out, len, "sqlite:%s/api-%u.db?sync=off", oom_dir(), file);
}

static int open_on(const char *arg, unsigned flags, struct once **ret_once,
                   struct once_error *reterr)
{
    char url[160];
    struct once_config config = ONCE_CONFIG_INIT;
    config.flags = flags | (is_memory(arg) ? ONCE_EPHEMERAL : 0);
    config.patience_ms = 0;
    ledger_url(url, sizeof url, files);
    if (!is_memory(arg)) config.ledger = url;
    return once_open(&config, ret_once, reterr);
}

static struct once *must_open(const char *arg, unsigned flags)
{
    struct once *o;
    CHECK(open_on(arg, flags, &o, NULL) == 0);
    return o;
}

static struct once *must_open_fresh(const char *arg, unsigned flags)
{
    files++;
    return must_open(arg, flags);
}

static struct once_claim claim_of(const char *key, int64_t wait_ms)
{
    struct once_claim in = ONCE_CLAIM_INIT;
    in.scope = once_str("oom");
    in.key = once_str(key);
    in.wait_ms = wait_ms;
    return in;
}

static struct once_owned owned_of(const char *key, const char *token)
{
    struct once_owned in = ONCE_OWNED_INIT;
    in.scope = once_str("oom");
    in.key = once_str(key);
    in.token = token;
    in.value = once_str("value");
    return in;
}

/* Claims and publishes without a fault: the handle is in order. */
static void must_work(struct once *o, const char *key)
{
    struct once_answer claim, publish;
    struct once_claim in = claim_of(key, 0);
    CHECK(once_claim(o, &in, &claim) == 0 && claim.outcome == ONCE_CLAIMED);
    struct once_owned out = owned_of(key, claim.lease.token);
    CHECK(once_publish(o, &out, &publish) == 0 && publish.outcome == ONCE_OK);
    once_answer_clear(&claim);
    once_answer_clear(&publish);
}

static bool open_and_use(const char *arg, enum oom_mode mode, size_t nth)
{
    struct once *o = NULL;
    struct once_error error = { 0 };
    oom_arm(mode, nth);
    int r = open_on(arg, 0, &o, &error);
    bool fired = oom_disarm();
    if (r) expect_error(r, error.text);
    EXPECT((r == 0) == (o != NULL));
    if (r) o = must_open(arg, 0);
    char key[32];
    snprintf(key, sizeof key, "%d-%zu", mode, nth);
    must_work(o, key);
    once_close(o);
    return fired;
}

static bool open_new(const char *arg, enum oom_mode mode, size_t nth)
{
    files++;
    return open_and_use(arg, mode, nth);
}

static bool open_again(const char *arg, enum oom_mode mode, size_t nth)
{
    once_close(must_open_fresh(arg, 0));
    return open_and_use(arg, mode, nth);
}

/* Closing may not need memory: there is nobody left to tell. */
static bool close_only(const char *arg, enum oom_mode mode, size_t nth)
{
    struct once *o = must_open_fresh(arg, 0);
    struct once_answer held;
    struct once_claim in = claim_of("held", 0);
    CHECK(once_claim(o, &in, &held) == 0);
    once_answer_clear(&held);
    oom_arm(mode, nth);
    once_close(o);
    return oom_disarm();
}

/* ---- blocking calls ---- */

static bool said(int r, const struct once_answer *answer)
{
    if (r == 0) return true;
    EXPECT(answer->error.code == r);
    expect_error(r, answer->error.text);
    return false;
}

/* What must be true of the key, given what the publish said. */
static void check_key(struct once *o, const char *key, bool acknowledged, int refused)
{
    struct once_answer found;
    struct once_owned in = owned_of(key, NULL);
    CHECK(once_peek(o, &in, &found) == 0);
    bool there = found.outcome == ONCE_CACHED;
    if (there) EXPECT(found.value.len == 5 && memcmp(found.value.data, "value", 5) == 0);
    if (acknowledged) EXPECT(there);
    if (refused && refused != ONCE_EAMBIGUOUS) EXPECT(!there);
    once_answer_clear(&found);
}

static bool claim_publish_replay(const char *arg, enum oom_mode mode, size_t nth)
{
    struct once *o = must_open_fresh(arg, 0);
    struct once_answer claim, publish = { 0 }, replay;
    struct once_claim in = claim_of("key", 0);
    int published = 1;
    oom_arm(mode, nth);
    int r = once_claim(o, &in, &claim);
    if (said(r, &claim)) {
        EXPECT(claim.outcome == ONCE_CLAIMED);
        struct once_owned out = owned_of("key", claim.lease.token);
        published = once_publish(o, &out, &publish);
        if (said(published, &publish)) EXPECT(publish.outcome == ONCE_OK);
    }
    if (said(once_claim(o, &in, &replay), &replay) && published == 0 && !publish.degraded)
        EXPECT(replay.outcome == ONCE_CACHED);
    bool fired = oom_disarm();
    check_key(o, "key", published == 0, published < 0 ? published : 0);
    must_work(o, "another key");
    once_answer_clear(&claim);
    once_answer_clear(&publish);
    once_answer_clear(&replay);
    once_close(o);
    return fired;
}

static int give_value(void *ctx, const struct once_lease *lease, struct once_bytes *ret_value)
{
    (void)lease;
    ++*(unsigned *)ctx;
    *ret_value = once_str("value");
    return 0;
}

static bool do_twice(const char *arg, enum oom_mode mode, size_t nth)
{
    struct once *o = must_open_fresh(arg, 0);
    struct once_answer first, second;
    unsigned runs = 0;
    oom_arm(mode, nth);
    int r = once_do(o, "oom", "key", give_value, &runs, &first);
    bool done = said(r, &first);
    if (done) EXPECT(first.outcome == ONCE_OK && runs == 1 && first.value.len == 5);
    bool fired = oom_disarm();
    check_key(o, "key", done, r);
    struct once_claim in = claim_of("key", 0);
    EXPECT(once_do_with(o, &in, give_value, &runs, &second) == 0);
    if (done) EXPECT(runs == 1);
    if (done && !first.degraded) EXPECT(second.outcome == ONCE_CACHED);
    once_answer_clear(&first);
    once_answer_clear(&second);
    once_close(o);
    return fired;
}

static int count_row(void *ctx, const struct once_row *row)
{
    EXPECT(row->key.len > 0);
    ++*(unsigned *)ctx;
    return 0;
}

static bool list_sweep_stats(const char *arg, enum oom_mode mode, size_t nth)
{
    struct once *o = must_open_fresh(arg, 0);
    struct once_error error = { 0 };
    struct once_stats stats;
    unsigned rows = 0;
    must_work(o, "a");
    must_work(o, "b");
    oom_arm(mode, nth);
    int r = once_list(o, once_str("oom"), count_row, &rows, &error);
    if (r) expect_error(r, error.text);
    if (!r) EXPECT(rows == 2);
    r = once_stats(o, &stats, &error);
    if (r) expect_error(r, error.text);
    if (!r) EXPECT(stats.done == 2);
    r = once_sweep(o, UINT64_MAX, NULL, &error);
    if (r) expect_error(r, error.text);
    bool fired = oom_disarm();
    rows = 0;
    EXPECT(once_list(o, once_str("oom"), count_row, &rows, &error) == 0 && rows == 2);
    once_close(o);
    return fired;
}

/* ---- asynchronous calls ---- */

struct async {
    bool started, done;
    int result, outcome;
    char token[33];
};

static void async_over(void *ctx, int result, struct once_answer *answer)
{
    struct async *a = ctx;
    EXPECT(a->started && !a->done);
    a->done = true;
    a->result = result;
    a->outcome = answer->outcome;
    memcpy(a->token, answer->lease.token, sizeof a->token);
    if (result && result != ONCE_ECANCELED) said(result, answer);
    once_answer_clear(answer);
}

static struct once_call *async_claim(struct once *o, struct async *a)
{
    struct once_call *call = NULL;
    struct once_error error = { 0 };
    struct once_claim in = claim_of("key", 60000);
    in.lease_ms = SHORT_LEASE_MS;
    *a = (struct async){ .started = true };
    int r = once_claim_start(o, &in, async_over, a, &call, &error);
    if (r) expect_error(r, error.text);
    a->started = r == 0;
    return call;
}

static void async_publish(struct once *o, struct async *a, const char *token)
{
    struct once_error error = { 0 };
    struct once_owned out = owned_of("key", token);
    *a = (struct async){ .started = true };
    int r = once_publish_start(o, &out, async_over, a, NULL, &error);
    if (r) expect_error(r, error.text);
    a->started = r == 0;
}

static void process(struct once *o)
{
    struct pollfd fd = { .fd = once_fd(o), .events = POLLIN };
    int64_t timeout_ms = once_timeout_ms(o);
    poll(&fd, 1, timeout_ms < 0 || timeout_ms > 1000 ? 1000 : (int)timeout_ms);
    EXPECT(once_process(o) == 0);
}

static bool in_flight(const struct async *a)
{
    return a->started && !a->done;
}

static struct async *owner_among(struct async *calls)
{
    for (size_t i = 0; i < CALLS; i++)
        if (calls[i].done && !calls[i].result && calls[i].outcome == ONCE_CLAIMED)
            return &calls[i];
    return NULL;
}

static bool any_in_flight(const struct async *calls)
{
    for (size_t i = 0; i < CALLS; i++)
        if (in_flight(&calls[i])) return true;
    return false;
}

/* With memory: whoever owns the key, or comes to own it, publishes, and everybody is told.
 * Those whose lease lapsed on a slow machine are told that they lost it; then it is another
 * one's. */
static void finish_hosted(struct once *o, struct async *calls)
{
    struct async publish = { .outcome = ONCE_LOST };
    while (publish.outcome == ONCE_LOST) {
        while (!owner_among(calls) && any_in_flight(calls)) process(o);
        struct async *owner = owner_among(calls);
        if (!owner) {
            async_claim(o, &calls[0]);
            while (in_flight(&calls[0])) process(o);
            if (calls[0].outcome == ONCE_CACHED) break; /* the publish had counted */
            owner = &calls[0];
        }
        async_publish(o, &publish, owner->token);
        while (in_flight(&publish)) process(o);
        EXPECT(publish.done && publish.result == 0);
        owner->outcome = 0;
    }
    while (any_in_flight(calls)) process(o);
}

/* The first call wins, one is canceled, the others wait; the owner publishes. */
static bool hosted(const char *arg, enum oom_mode mode, size_t nth)
{
    struct once *o = must_open_fresh(arg, ONCE_HOSTED);
    struct async calls[CALLS], publish = { 0 };
    oom_arm(mode, nth);
    async_claim(o, &calls[0]);
    while (in_flight(&calls[0])) process(o);
    struct once_call *canceled = NULL;
    for (size_t i = 1; i < CALLS; i++) canceled = async_claim(o, &calls[i]);
    if (canceled) once_cancel(o, canceled);
    if (owner_among(calls)) async_publish(o, &publish, owner_among(calls)->token);
    while (in_flight(&publish)) process(o);
    bool fired = oom_disarm();
    finish_hosted(o, calls);
    for (size_t i = 1; i < CALLS; i++)
        if (calls[i].done && !calls[i].result && calls[i].outcome)
            EXPECT(calls[i].outcome == ONCE_CACHED);
    once_close(o);
    return fired;
}

#define ON_BOTH(text, function)                                                                \
    { text, function, "memory" },                                                              \
    {                                                                                          \
        text, function, "sqlite"                                                               \
    }

const struct scenario api_scenarios[] = {
    ON_BOTH("once_open", open_new),
    { "once_open of an old file", open_again, "sqlite" },
    ON_BOTH("once_close", close_only),
    ON_BOTH("once_claim, once_publish, replay", claim_publish_replay),
    ON_BOTH("once_do", do_twice),
    ON_BOTH("once_list, once_stats, once_sweep", list_sweep_stats),
    ON_BOTH("asynchronous calls and once_cancel", hosted),
    { NULL, NULL, NULL },
};
