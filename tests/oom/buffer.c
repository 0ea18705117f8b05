/* buffer.c - ops of the buffer, and of the gate, in one batch: each is carried out or not, and the
 * store says which. */
#include "tests/oom/oom.h"

#include "base/check.h"
#include "tests/support/world.h"

#include <stdio.h>

enum { OPS = 5, LEASE_MS = 30000, BIG = 5000 };

/* Entry 1 is changed, 2 is settled, 3 and what is accepted here are leased; 2 is looked at. */
struct scene {
    struct world world;
    struct store *store;
    uint8_t big[BIG]; /* does not fit on a page: SQLite has to allocate for it */
    struct settle settle;
    struct buffer_ask asks[OPS];
    struct op *ops[OPS];
};

static const enum verb verbs[OPS] = { VERB_ACCEPT, VERB_APPEND, VERB_SETTLE, VERB_DRAIN_LEASE,
                                      VERB_ENTRY_GET };

static struct run_id id_of(unsigned n)
{
    struct run_id id;
    snprintf(id.text, sizeof id.text, "run_%026u", n);
    return id;
}

static struct op *op_of(enum verb verb, struct buffer_ask *ask)
{
    struct key key = key_of("s", "k");
    struct op *op = op_new(verb, &key, NULL);
    CHECK(op);
    op->buffer = ask;
    return op;
}

static struct buffer_ask about(struct scene *s, unsigned n)
{
    return (struct buffer_ask){ .env = bytes_str("e"),
                                .id = id_of(n),
                                .run = bytes_of(s->big, BIG),
                                .change = bytes_of(s->big, BIG),
                                .token = token_of(1),
                                .lease_ms = LEASE_MS,
                                .limit = 1 };
}

/* With memory: the answer is there. The caller clears the ask. */
static enum outcome ask(struct scene *s, enum verb verb, struct buffer_ask *a)
{
    struct op *op = op_of(verb, a);
    s->store->class->exec(s->store, &op, 1);
    EXPECT(op->err.code == 0);
    enum outcome out = op->out.outcome;
    op_free(op);
    return out;
}

static void stage(struct scene *s, enum verb verb, unsigned n)
{
    struct buffer_ask a = about(s, n);
    CHECK(ask(s, verb, &a) == OUTCOME_OK);
    buffer_ask_clear(&a);
}

static void scene_open(struct scene *s, size_t nth)
{
    char url[160];
    struct err err;
    static unsigned opened;
    *s = (struct scene){ 0 };
    world_init(&s->world, nth);
    snprintf(url, sizeof url, "sqlite:%s/buffer-%u.db?sync=off", oom_dir(), opened++);
    CHECK(store_open_bare(url, &s->world.env, &s->store, &err) == 0);
    for (unsigned n = 1; n <= 3; n++) stage(s, VERB_ACCEPT, n);
    stage(s, VERB_DRAIN_LEASE, 2);
    static const unsigned numbers[OPS] = { 4, 1, 0, 0, 2 };
    for (size_t i = 0; i < OPS; i++) {
        s->asks[i] = about(s, numbers[i]);
        if (!numbers[i]) s->asks[i].id = (struct run_id){ "" };
        s->ops[i] = op_of(verbs[i], &s->asks[i]);
    }
    s->settle = (struct settle){ .id = id_of(2), .env = bytes_str("e") };
    s->asks[2].settles = &s->settle;
    s->asks[2].settle_count = 1;
    s->asks[3].token = token_of(2);
    s->asks[3].limit = 10;
}

static void scene_close(struct scene *s)
{
    for (size_t i = 0; i < OPS; i++) {
        op_free(s->ops[i]);
        buffer_ask_clear(&s->asks[i]);
    }
    store_close(s->store);
    world_fini(&s->world);
}

/* 0: it is not there. */
static unsigned state_of(struct scene *s, unsigned n, size_t *ret_changes)
{
    struct buffer_ask a = about(s, n);
    unsigned state = 0;
    *ret_changes = 0;
    if (ask(s, VERB_ENTRY_GET, &a) == OUTCOME_OK) {
        state = a.entries.rows[0]->state;
        *ret_changes = a.entries.rows[0]->changes.len;
        EXPECT(bytes_eq(a.entries.rows[0]->run, bytes_of(s->big, BIG)));
    }
    buffer_ask_clear(&a);
    return state;
}

/* What was told is so, and what failed has not happened; but for what may have. */
static void expect_done(const struct op *op, bool done)
{
    if (op->err.code) expect_error(op->err.code, op->err.text);
    if (op->err.code == ERR_AMBIGUOUS) return;
    EXPECT(done == (op->err.code == 0));
}

static bool given(const struct buffer_ask *a, unsigned n)
{
    struct run_id id = id_of(n);
    for (size_t i = 0; i < a->entries.count; i++)
        if (run_id_eq(&a->entries.rows[i]->id, &id)) return true;
    return false;
}

static void check(struct scene *s)
{
    size_t changes;
    expect_done(s->ops[0], state_of(s, 4, &changes) != 0);
    state_of(s, 1, &changes);
    expect_done(s->ops[1], changes == BIG);
    expect_done(s->ops[2], state_of(s, 2, &changes) == ENTRY_WRITTEN);
    expect_done(s->ops[3], state_of(s, 3, &changes) == ENTRY_LEASED);
    if (s->ops[3]->err.code != ERR_AMBIGUOUS)
        for (unsigned n = 1; n <= 4; n++)
            EXPECT(given(&s->asks[3], n) ==
                   (n != 2 && state_of(s, n, &changes) == ENTRY_LEASED));
    if (s->ops[4]->err.code) expect_error(s->ops[4]->err.code, s->ops[4]->err.text);
    if (!s->ops[4]->err.code) EXPECT(given(&s->asks[4], 2));
}

static bool buffer_batch(const char *arg, enum oom_mode mode, size_t nth)
{
    (void)arg;
    static struct scene s;
    scene_open(&s, nth);
    oom_arm(mode, nth);
    s.store->class->exec(s.store, s.ops, OPS);
    bool fired = oom_disarm();
    check(&s);
    scene_close(&s);
    return fired;
}

/* One that could not be counted is as if it had never been asked. */
static bool gates(const char *arg, enum oom_mode mode, size_t nth)
{
    (void)arg;
    struct world world;
    struct store *store;
    struct err err;
    static const char *const envs[] = { "a", "b", "a" };
    struct gate_ask asks[3];
    struct op *ops[3];
    world_init(&world, nth);
    CHECK(store_open_bare("memory:", &world.env, &store, &err) == 0);
    for (size_t i = 0; i < 3; i++) {
        struct gate_config config = { .threshold = 10 + 10 * (int64_t)i, .window_ms = 100 };
        asks[i] = (struct gate_ask){ .env = bytes_str(envs[i]), .config = config, .count = 50 };
        ops[i] = op_new(VERB_GATE, NULL, NULL);
        CHECK(ops[i]);
        ops[i]->gate = &asks[i];
    }
    oom_arm(mode, nth);
    store->class->exec(store, ops, 3);
    bool fired = oom_disarm();
    for (size_t i = 0; i < 3; i++)
        if (ops[i]->err.code) expect_error(ops[i]->err.code, ops[i]->err.text);
    if (!ops[0]->err.code) EXPECT(asks[0].passed == 10);
    if (!ops[1]->err.code) EXPECT(asks[1].passed == 20);
    if (!ops[2]->err.code) EXPECT(asks[2].passed == (ops[0]->err.code ? 30u : 20u));
    for (size_t i = 0; i < 3; i++) op_free(ops[i]);
    store_close(store);
    world_fini(&world);
    return fired;
}

const struct scenario buffer_scenarios[] = {
    { "a batch of the buffer", buffer_batch, "sqlite" },
    { "gates", gates, "memory" },
    { NULL, NULL, NULL },
};
