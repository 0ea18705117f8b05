/* loops.c - loops that belong to the caller: hosted handles, and a bare offloaded store.
 *
 * Several threads, each with a loop of its own, on one SQLite file. Everything that was started
 * is finished exactly once, canceled or not. */
#include "tests/threads/threads.h"

#include "base/check.h"
#include "store/store.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LOOPS = 3, KEYS = 16, CALLERS = 6, HOPS = 3, JOBS = 24 };

/* ---- hosted handles ---- */

struct hosted {
    struct once *once;
    unsigned started, finished;
};

struct caller {
    struct hosted *hosted;
    struct once_call *call; /* NULL: it was told */
    bool canceled;
    char key[32];
};

static void published(void *ctx, int result, struct once_answer *answer)
{
    struct hosted *h = ctx;
    EXPECT(result == 0 && answer->outcome == ONCE_OK);
    once_answer_clear(answer);
    h->finished++;
}

static void claimed(void *ctx, int result, struct once_answer *answer)
{
    struct caller *c = ctx;
    struct hosted *h = c->hosted;
    EXPECT(c->call != NULL);
    c->call = NULL;
    h->finished++;
    if (result) EXPECT(result == ONCE_ECANCELED && c->canceled);
    if (!result) EXPECT(answer->outcome == ONCE_CLAIMED || answer->outcome == ONCE_CACHED);
    if (!result && answer->outcome == ONCE_CLAIMED) {
        struct once_owned in = owned_of(c->key, answer->lease.token);
        in.value = once_str(c->key);
        EXPECT(once_publish_start(h->once, &in, published, h, NULL, NULL) == 0);
        h->started++;
    }
    once_answer_clear(answer);
}

static void process(struct once *o, int64_t at_most_ms)
{
    struct pollfd fd = { .fd = once_fd(o), .events = POLLIN };
    int64_t timeout_ms = once_timeout_ms(o);
    if (timeout_ms < 0 || timeout_ms > at_most_ms) timeout_ms = at_most_ms;
    poll(&fd, 1, (int)timeout_ms);
    EXPECT(once_process(o) == 0);
}

static void start_callers(struct hosted *h, struct caller callers[KEYS][CALLERS],
                          unsigned round)
{
    for (unsigned i = 0; i < KEYS * CALLERS; i++) {
        struct caller *c = &callers[i % KEYS][i / KEYS];
        *c = (struct caller){ .hosted = h };
        snprintf(c->key, sizeof c->key, "hosted-%u-%u", round, i % KEYS);
        struct once_claim in = claim_of(c->key);
        EXPECT(once_claim_start(h->once, &in, claimed, c, &c->call, NULL) == 0);
        h->started++;
    }
}

static void cancel_some(struct hosted *h, struct caller callers[KEYS][CALLERS], unsigned every)
{
    for (unsigned i = 0; i < KEYS * CALLERS; i += every) {
        struct caller *c = &callers[i % KEYS][i / KEYS];
        if (!c->call || c->canceled) continue;
        c->canceled = true;
        once_cancel(h->once, c->call);
    }
}

static void host(struct crew *crew, unsigned me)
{
    const struct place *p = crew->ctx;
    struct hosted h = { .once = place_open(p, ONCE_HOSTED) };
    struct caller callers[KEYS][CALLERS];
    for (unsigned round = 0; round < 5 * p->scale; round++) {
        start_callers(&h, callers, round);
        cancel_some(&h, callers, 3 + me);
        process(h.once, 1000);
        cancel_some(&h, callers, 5 + me);
        while (h.finished < h.started) process(h.once, 1000);
    }
    EXPECT(h.finished == h.started);
    start_callers(&h, callers, UINT32_MAX); /* these are ended by the close */
    for (unsigned i = 0; i < KEYS * CALLERS; i++) callers[i % KEYS][i / KEYS].canceled = true;
    once_close(h.once);
    EXPECT(h.finished == h.started);
}

void test_hosted_cancel(const struct place *p)
{
    crew_run(&(struct crew){ .count = LOOPS, .work = host, .ctx = (void *)(uintptr_t)p });
}

/* ---- an offloaded store without an engine ---- */

struct driver {
    struct loop loop;
    struct rng_system rng;
    struct clock clock;
    struct store *store;
    unsigned submitted, returned, done;
};

/* One client of the store: claims and releases its key a few times, then publishes; whoever
 * finds it taken watches it. Every third watch is canceled. */
struct job {
    struct driver *driver;
    unsigned hops, watches;
    char name[32];
    struct token token;
};

static void driver_open(struct driver *d, const char *url)
{
    struct err err;
    *d = (struct driver){ .clock = clock_monotonic() };
    loop_init(&d->loop, clock_now_ms(&d->clock));
    CHECK(loop_open(&d->loop, &err) == 0);
    rng_system_init(&d->rng);
    struct store_env env = { .loop = &d->loop, .wall = clock_wall(), .rng = &d->rng.base };
    CHECK(store_open(url, &env, &d->store, &err) == 0);
}

static void driver_close(struct driver *d)
{
    store_close(d->store);
    loop_fini(&d->loop);
}

static void driver_run(struct driver *d)
{
    loop_sleep(&d->loop, 1000);
    loop_turn(&d->loop, clock_now_ms(&d->clock));
}

static void job_returned(struct op *op, void *ctx);

static void job_submit(struct job *j, enum verb verb, uint64_t seen)
{
    struct driver *d = j->driver;
    struct request in = { .token = j->token, .lease_ms = 60000, .retain_ms = 60000 };
    if (verb == VERB_PUBLISH) in.value = blob_new(bytes_str(j->name));
    struct op *op =
        op_new(verb, &(struct key){ bytes_str("offload"), bytes_str(j->name) }, &in);
    CHECK(op);
    blob_unref(in.value);
    op->seen = seen;
    op_push(op, job_returned, j);
    d->submitted++;
    store_submit(d->store, op);
    if (verb == VERB_WATCH && j->watches++ % 3 == 2) store_cancel(d->store, op);
}

static void job_claim(struct job *j)
{
    struct rng *rng = &j->driver->rng.base;
    rng->fill(rng, j->token.bytes, sizeof j->token.bytes);
    job_submit(j, VERB_CLAIM, 0);
}

static void job_claim_answered(struct job *j, const struct answer *out)
{
    if (out->outcome == OUTCOME_CACHED) {
        EXPECT(bytes_eq(blob_bytes(out->value), bytes_str(j->name)));
        j->driver->done++;
    } else if (out->outcome == OUTCOME_IN_PROGRESS) {
        job_submit(j, VERB_WATCH, out->version);
    } else if (EXPECT(out->outcome == OUTCOME_CLAIMED)) {
        job_submit(j, j->hops++ < HOPS ? VERB_RELEASE : VERB_PUBLISH, 0);
    }
}

static void job_returned(struct op *op, void *ctx)
{
    struct job *j = ctx;
    enum verb verb = op->verb;
    struct answer out = op->out;
    j->driver->returned++;
    bool canceled = verb == VERB_WATCH && op->err.code == ERR_CANCELED;
    EXPECT(op->err.code == 0 || canceled);
    if (verb == VERB_CLAIM)
        job_claim_answered(j, &out);
    else if (verb == VERB_PUBLISH)
        j->driver->done++;
    else
        job_claim(j);
    if (verb == VERB_PUBLISH || verb == VERB_RELEASE) EXPECT(out.outcome == OUTCOME_OK);
    op_free(op);
}

static void offload_jobs(struct crew *crew, unsigned me)
{
    (void)me;
    const struct place *p = crew->ctx;
    struct driver d;
    driver_open(&d, p->ledger);
    for (unsigned round = 0; round < p->scale; round++) {
        struct job jobs[JOBS];
        for (unsigned i = 0; i < JOBS; i++) {
            jobs[i] = (struct job){ .driver = &d };
            snprintf(jobs[i].name, sizeof jobs[i].name, "job-%u-%u", round, i % (JOBS / 2));
            job_claim(&jobs[i]);
        }
        d.done = 0;
        while (d.done < JOBS) driver_run(&d);
        EXPECT(d.submitted == d.returned);
    }
    driver_close(&d);
}

void test_offload(const struct place *p)
{
    crew_run(
        &(struct crew){ .count = LOOPS, .work = offload_jobs, .ctx = (void *)(uintptr_t)p });
}
