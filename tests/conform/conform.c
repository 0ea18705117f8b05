/* conform.c - see conform.h. */
#include "tests/conform/conform.h"

enum { KEPT_MAX = 8192 };

struct world world;
struct store *store;

static const struct world_store *kind;
static struct store *first, *second; /* second: NULL, or open on the same records */
static struct waiting *kept[KEPT_MAX];
static struct blob *blobs[KEPT_MAX];
static size_t kept_count, blob_count;

void conform_open(const char *store_name)
{
    if (!world_has(store_name)) cr_skip_test("its server is not up: tests/with-servers");
    world_init(&world, 1);
    kind = world_store_named(store_name);
    store = first = world_open(&world, store_name);
}

void conform_close(void)
{
    world_settle(&world);
    for (size_t i = 0; i < kept_count; i++) {
        cr_assert(kept[i]->finished == 1, "a %s finished %u times",
                  verb_info[kept[i]->op->verb].name, kept[i]->finished);
        op_free(kept[i]->op);
        free(kept[i]);
    }
    for (size_t i = 0; i < blob_count; i++) blob_unref(blobs[i]);
    if (second) world_close(&world, second);
    world_close(&world, first);
    world_fini(&world);
}

bool one_plane(void)
{
    return !kind->two_planes;
}

bool may_be_coord(void)
{
    return one_plane() && !kind->daemon;
}

void here(void)
{
    store = first;
}

void there(void)
{
    if (!second) second = world_open_again(&world, kind->name);
    store = second;
}

struct request owner(uint8_t who)
{
    return (
        struct request){ .token = token_of(who), .lease_ms = LEASE_MS, .retain_ms = RETAIN_MS };
}

struct blob *value_of(struct bytes content)
{
    cr_assert(blob_count < KEPT_MAX);
    struct blob *b = blob_new(content);
    cr_assert(b);
    return blobs[blob_count++] = b;
}

struct request owner_with(uint8_t who, const char *value)
{
    struct request in = owner(who);
    if (value) in.value = value_of(bytes_str(value));
    return in;
}

struct request owner_of(uint8_t who, const char *fingerprint)
{
    struct request in = owner(who);
    in.fingerprint = bytes_str(fingerprint);
    return in;
}

static void finished(struct op *op, void *ctx)
{
    (void)op;
    struct waiting *w = ctx;
    w->finished++;
}

struct waiting *submit(struct op *op)
{
    cr_assert(op);
    cr_assert(kept_count < KEPT_MAX);
    struct waiting *w = malloc(sizeof *w);
    cr_assert(w);
    *w = (struct waiting){ .op = op };
    kept[kept_count++] = w;
    op_push(op, finished, w);
    store_submit(store, op);
    cr_assert(w->finished == 0, "%s finished inside submit", verb_info[op->verb].name);
    return w;
}

struct waiting *submit_ask(enum verb verb, const char *name, struct request in)
{
    struct key key = key_of("s", name);
    return submit(op_new(verb, &key, &in));
}

const struct op *answered(struct waiting *w)
{
    world_settle(&world);
    const struct op *op = w->op;
    cr_assert(w->finished == 1, "%s finished %u times", verb_info[op->verb].name, w->finished);
    cr_assert(op->err.code == 0, "%s: %s", verb_info[op->verb].name, op->err.text);
    return op;
}

enum outcome outcome_of(const struct waiting *w)
{
    cr_assert(w->finished == 1);
    cr_assert(w->op->err.code == 0, "%s", w->op->err.text);
    return w->op->out.outcome;
}

const struct op *ask_key(enum verb verb, struct key key, struct request in)
{
    return answered(submit(op_new(verb, &key, &in)));
}

const struct op *ask(enum verb verb, const char *name, struct request in)
{
    return ask_key(verb, key_of("s", name), in);
}

const struct op *claim(const char *name, uint8_t who)
{
    return ask(VERB_CLAIM, name, owner(who));
}

const struct op *publish(const char *name, uint8_t who, const char *value)
{
    struct request in = owner_with(who, value);
    in.retain_ms = -1;
    return ask(VERB_PUBLISH, name, in);
}

const struct op *release(const char *name, uint8_t who)
{
    return ask(VERB_RELEASE, name, owner(who));
}

const struct op *renew(const char *name, uint8_t who)
{
    return ask(VERB_RENEW, name, (struct request){ .token = token_of(who), .lease_ms = -1 });
}

const struct op *peek(const char *name)
{
    return ask(VERB_PEEK, name, (struct request){ 0 });
}

const struct op *forget(const char *name)
{
    return ask(VERB_FORGET, name, (struct request){ 0 });
}

const struct op *expire(size_t limit)
{
    struct op *op = op_new(VERB_EXPIRE, NULL, NULL);
    cr_assert(op);
    op->limit = limit;
    return answered(submit(op));
}

const struct op *stats(void)
{
    return answered(submit(op_new(VERB_STATS, NULL, NULL)));
}

const struct op *scan(const char *scope, const char *after, size_t limit)
{
    struct key from = { bytes_str(scope ? scope : ""), bytes_str(after ? after : "") };
    struct op *op = op_new(VERB_SCAN, &from, NULL);
    cr_assert(op);
    op->all_scopes = !scope;
    op->limit = limit;
    return answered(submit(op));
}

struct waiting *watch(const char *name, uint64_t seen)
{
    struct key key = key_of("s", name);
    struct op *op = op_new(VERB_WATCH, &key, NULL);
    cr_assert(op);
    op->seen = seen;
    struct waiting *w = submit(op);
    world_settle(&world);
    return w;
}

void expect_fired(const struct waiting *w)
{
    cr_assert(w->finished == 1, "the watch finished %u times", w->finished);
    cr_assert(w->op->err.code == 0, "the watch failed: %s", w->op->err.text);
}

void expect_parked_then_cancel(struct waiting *w)
{
    cr_assert(w->finished == 0, "the watch finished");
    store_cancel(store, w->op);
    cr_assert(w->finished == 0, "the watch finished inside cancel");
    world_settle(&world);
    cr_assert(w->finished == 1, "the canceled watch finished %u times", w->finished);
}

void expect_value(const struct op *op, const char *value)
{
    if (!value) {
        cr_assert(!op->out.value, "there is a value");
        return;
    }
    cr_assert(op->out.value, "there is no value");
    cr_assert(bytes_eq(blob_bytes(op->out.value), bytes_str(value)),
              "\"%.*s\", expected \"%s\"", (int)blob_bytes(op->out.value).len,
              (const char *)blob_bytes(op->out.value).data, value);
}

void expect_nothing_revealed(const struct op *op)
{
    cr_assert(!op->out.value && !op->out.mine && !op->out.taken_over);
    cr_assert(op->out.fence == 0 && op->out.version == 0);
    cr_assert(op->out.lease_left_ms == 0 && op->out.retain_left_ms == 0);
    cr_assert(!op->changed);
}
