/* runs.c - runs as a program uses them, while memory runs out: what is said to have failed has
 * changed nothing, what was acknowledged is there, and the next one works. */
#include "tests/oom/oom.h"

#include "base/check.h"
#include "tests/support/world.h"

#include <stdio.h>
#include <string.h>

static unsigned files;

static struct once *open_fresh(void)
{
    char url[160];
    struct once_config config = ONCE_CONFIG_INIT;
    struct once *o;
    snprintf(url, sizeof url, "sqlite:%s/runs-%u.db?sync=off", oom_dir(), files++);
    config.ledger = url;
    config.flags = ONCE_RUNS;
    config.patience_ms = 0;
    CHECK(once_open(&config, &o, NULL) == 0);
    return o;
}

static bool said(int r, const struct once_run_answer *answer)
{
    if (r == 0) return true;
    EXPECT(answer->error.code == r);
    expect_error(r, answer->error.text);
    return false;
}

static int trigger(struct once *o, const char *key, struct once_run_answer *ret_answer)
{
    const struct once_bytes tags[] = { once_str("a"), once_str("b") };
    struct once_trigger in = ONCE_TRIGGER_INIT;
    in.task = once_str("task");
    in.payload = once_str("{\"n\":1}");
    in.key = once_str(key);
    in.tags = tags;
    in.tag_count = 2;
    in.wait_ms = 0;
    return once_trigger(o, &in, ret_answer);
}

static int lease(struct once *o, struct once_run_answer *ret_answer)
{
    struct once_run_lease in = ONCE_RUN_LEASE_INIT;
    in.queue = once_str("task");
    in.wait_ms = 0;
    return once_run_lease(o, &in, ret_answer);
}

typedef int verb(struct once *, const struct once_run_args *, struct once_run_answer *);

static int settle(struct once *o, verb *v, const struct once_run *run,
                  struct once_run_answer *ret_answer)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    in.id = run->id;
    in.token = run->token;
    in.value = once_str("{\"m\":2}");
    return v(o, &in, ret_answer);
}

/* How many runs have this status; 0: any. */
static size_t count(struct once *o, int status)
{
    struct once_run_query in = ONCE_RUN_QUERY_INIT;
    struct once_run_answer page;
    if (status) in.statuses = 1u << status;
    CHECK(once_run_list(o, &in, &page) == 0);
    size_t n = page.count;
    once_run_answer_clear(&page);
    return n;
}

/* All of it, without a fault: the handle is in order. */
static void must_work(struct once *o)
{
    struct once_run_answer t, l, c;
    CHECK(trigger(o, "another key", &t) == 0 && t.outcome == ONCE_OK);
    CHECK(lease(o, &l) == 0 && l.count == 1);
    CHECK(settle(o, once_run_complete, l.run, &c) == 0 && c.outcome == ONCE_OK);
    once_run_answer_clear(&t);
    once_run_answer_clear(&l);
    once_run_answer_clear(&c);
}

static bool trigger_only(const char *arg, enum oom_mode mode, size_t nth)
{
    (void)arg;
    struct once *o = open_fresh();
    struct once_run_answer answer;
    oom_arm(mode, nth);
    int r = trigger(o, "key", &answer);
    bool fired = oom_disarm();
    size_t there = count(o, 0);
    if (said(r, &answer)) EXPECT(answer.outcome == ONCE_OK && answer.run && there == 1);
    if (r && r != ONCE_EAMBIGUOUS) EXPECT(there == 0);
    once_run_answer_clear(&answer);
    once_close(o);
    return fired;
}

static bool read_and_change(const char *arg, enum oom_mode mode, size_t nth)
{
    (void)arg;
    struct once *o = open_fresh();
    struct once_run_answer made, got, listed, set;
    struct once_run_query query = ONCE_RUN_QUERY_INIT;
    CHECK(trigger(o, "key", &made) == 0);
    oom_arm(mode, nth);
    if (said(settle(o, once_run_get, made.run, &got), &got))
        EXPECT(got.outcome == ONCE_OK && got.run->tag_count == 2);
    if (said(once_run_list(o, &query, &listed), &listed)) EXPECT(listed.count == 1);
    int changed = settle(o, once_run_set_metadata, made.run, &set);
    bool fired = oom_disarm();
    said(changed, &set);
    once_run_answer_clear(&got);
    CHECK(settle(o, once_run_get, made.run, &got) == 0);
    if (!changed) EXPECT(got.run->metadata.len == 7);
    if (changed && changed != ONCE_EAMBIGUOUS) EXPECT(got.run->metadata.len == 0);
    once_run_answer_clear(&made);
    once_run_answer_clear(&got);
    once_run_answer_clear(&listed);
    once_run_answer_clear(&set);
    once_close(o);
    return fired;
}

static bool lease_and_complete(const char *arg, enum oom_mode mode, size_t nth)
{
    (void)arg;
    struct once *o = open_fresh();
    struct once_run_answer made, leased, completed = { 0 };
    int done = 1;
    CHECK(trigger(o, "key", &made) == 0);
    oom_arm(mode, nth);
    int r = lease(o, &leased);
    if (said(r, &leased) && leased.run)
        done = settle(o, once_run_complete, leased.run, &completed);
    bool fired = oom_disarm();
    if (done <= 0) said(done, &completed);
    if (done == 0) EXPECT(count(o, ONCE_RUN_COMPLETED) == 1);
    if (done < 0 && done != ONCE_EAMBIGUOUS) EXPECT(count(o, ONCE_RUN_EXECUTING) == 1);
    once_run_answer_clear(&made);
    once_run_answer_clear(&leased);
    once_run_answer_clear(&completed);
    if (done == 0) must_work(o);
    once_close(o);
    return fired;
}

enum { ENTRIES = 3 };

static struct run_id entry_id(unsigned n)
{
    struct run_id id;
    snprintf(id.text, sizeof id.text, "run_%026u", n);
    return id;
}

static void accept_entry(struct store *store, unsigned n)
{
    struct run run = { .id = entry_id(n),
                       .env = bytes_str("default"),
                       .task = bytes_str("task"),
                       .queue = bytes_str("task"),
                       .payload = bytes_str("1"),
                       .attempts_max = 3,
                       .state = RUN_QUEUED,
                       .created_at_ms = 1 };
    struct key key = key_of("s", "k");
    struct buf packed;
    buf_init(&packed, 4096);
    run_encode(&run, &packed);
    struct buffer_ask ask = { .env = run.env, .id = run.id, .run = buf_bytes(&packed) };
    struct op *op = op_new(VERB_ACCEPT, &key, NULL);
    CHECK(op);
    op->buffer = &ask;
    store->class->exec(store, &op, 1);
    CHECK(!op->err.code && op->out.outcome == OUTCOME_OK);
    op_free(op);
    buffer_ask_clear(&ask);
    buf_fini(&packed);
}

/* The buffer of the handle that is opened next: as a burst has left it. */
static void fill_buffer(void)
{
    struct world world;
    struct store *store;
    struct err err;
    char url[160];
    world_init(&world, 1);
    snprintf(url, sizeof url, "sqlite:%s/runs-%u.db-buffer?sync=off", oom_dir(), files);
    CHECK(store_open_bare(url, &world.env, &store, &err) == 0);
    for (unsigned n = 0; n < ENTRIES; n++) accept_entry(store, n);
    store_close(store);
    world_fini(&world);
}

static bool in_ledger(struct once *o, unsigned n)
{
    struct run_id id = entry_id(n);
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    struct once_run_answer got;
    in.id = id.text;
    CHECK(once_run_get(o, &in, &got) == 0);
    EXPECT(got.outcome == ONCE_OK);
    bool there = got.outcome == ONCE_OK && !got.buffered;
    once_run_answer_clear(&got);
    return there;
}

static bool drain(const char *arg, enum oom_mode mode, size_t nth)
{
    (void)arg;
    fill_buffer();
    struct once *o = open_fresh();
    struct once_error error = { 0 };
    uint64_t drained;
    oom_arm(mode, nth);
    int r = once_drain(o, &drained, &error);
    bool fired = oom_disarm();
    if (r) expect_error(r, error.text);
    EXPECT(count(o, 0) == ENTRIES); /* here or there, and none twice */
    for (unsigned n = 0; n < ENTRIES; n++) EXPECT(in_ledger(o, n) || r);
    once_close(o);
    return fired;
}

const struct scenario runs_scenarios[] = {
    { "once_trigger", trigger_only, "sqlite" },
    { "once_run_get, once_run_list, once_run_set_metadata", read_and_change, "sqlite" },
    { "once_run_lease, once_run_complete", lease_and_complete, "sqlite" },
    { "once_drain", drain, "sqlite" },
    { NULL, NULL, NULL },
};
