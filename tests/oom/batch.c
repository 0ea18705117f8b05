/* batch.c - a batch of ops given to a store's exec() at once: each is carried out or not, and
 * the store says which. */
#include "tests/oom/oom.h"

#include "base/check.h"
#include "tests/support/world.h"

#include <stdio.h>
#include <string.h>

enum { OPS = 8, LEASE_MS = 30000, RETAIN_MS = 86400000 };

/* Half of the keys are pending and get published, released, renewed; half are claimed anew. */
static const enum verb verbs[OPS] = { VERB_CLAIM,   VERB_PUBLISH, VERB_CLAIM, VERB_RELEASE,
                                      VERB_PUBLISH, VERB_RENEW,   VERB_CLAIM, VERB_FORGET };

struct batch {
    struct world world;
    struct store *store;
    struct op *ops[OPS];
    char names[OPS][16];
};

static struct op *op_of(struct batch *b, size_t i, enum verb verb)
{
    struct key key = key_of("batch", b->names[i]);
    struct request in = { .token = token_of((uint8_t)(i + 1)),
                          .lease_ms = LEASE_MS,
                          .retain_ms = RETAIN_MS };
    if (verb == VERB_PUBLISH) in.value = blob_new(bytes_str(b->names[i]));
    struct op *op = op_new(verb, &key, &in);
    CHECK(op && (verb != VERB_PUBLISH || in.value));
    blob_unref(in.value);
    return op;
}

static void exec(struct batch *b, struct op **ops, size_t count)
{
    b->store->class->exec(b->store, ops, count);
}

static enum outcome ask(struct batch *b, size_t i, enum verb verb)
{
    struct op *op = op_of(b, i, verb);
    exec(b, &op, 1);
    EXPECT(op->err.code == 0);
    enum outcome out = op->out.outcome;
    if (out == OUTCOME_CACHED)
        EXPECT(bytes_eq(blob_bytes(op->out.value), bytes_str(b->names[i])));
    op_free(op);
    return out;
}

static void batch_open(struct batch *b, const char *store, size_t nth)
{
    char url[160];
    struct err err;
    static unsigned opened;
    *b = (struct batch){ 0 };
    world_init(&b->world, nth);
    snprintf(url, sizeof url, "sqlite:%s/batch-%u.db?sync=off", oom_dir(), opened++);
    if (strcmp(store, "memory") == 0) strcpy(url, "memory:");
    CHECK(store_open_bare(url, &b->world.env, &b->store, &err) == 0);
    for (size_t i = 0; i < OPS; i++) {
        snprintf(b->names[i], sizeof b->names[i], "key-%zu", i);
        if (verbs[i] != VERB_CLAIM) CHECK(ask(b, i, VERB_CLAIM) == OUTCOME_CLAIMED);
        b->ops[i] = op_of(b, i, verbs[i]);
    }
}

static void batch_close(struct batch *b)
{
    for (size_t i = 0; i < OPS; i++) op_free(b->ops[i]);
    store_close(b->store);
    world_fini(&b->world);
}

/* What a peek finds if the op was carried out, and if it was not. */
static enum outcome after(enum verb verb, bool done)
{
    if (verb == VERB_CLAIM) return done ? OUTCOME_IN_PROGRESS : OUTCOME_ABSENT;
    if (verb == VERB_PUBLISH) return done ? OUTCOME_CACHED : OUTCOME_IN_PROGRESS;
    if (verb == VERB_RELEASE) return done ? OUTCOME_ABSENT : OUTCOME_IN_PROGRESS;
    return OUTCOME_IN_PROGRESS; /* a renewal, and a forget that is refused: somebody is on it */
}

static void check_one(struct batch *b, size_t i)
{
    const struct op *op = b->ops[i];
    enum outcome found = ask(b, i, VERB_PEEK);
    if (op->err.code) expect_error(op->err.code, op->err.text);
    if (op->err.code == ERR_AMBIGUOUS)
        EXPECT(found == after(op->verb, true) || found == after(op->verb, false));
    else
        EXPECT(found == after(op->verb, op->err.code == 0));
}

static bool batch_of_writes(const char *store, enum oom_mode mode, size_t nth)
{
    struct batch b;
    batch_open(&b, store, nth);
    oom_arm(mode, nth);
    exec(&b, b.ops, OPS);
    bool fired = oom_disarm();
    for (size_t i = 0; i < OPS; i++) check_one(&b, i);
    batch_close(&b);
    return fired;
}

const struct scenario batch_scenarios[] = {
    { "a batch of writes", batch_of_writes, "memory" },
    { "a batch of writes", batch_of_writes, "sqlite" },
    { NULL, NULL, NULL },
};
