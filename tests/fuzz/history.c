/* history.c - bytes as a history: every op goes to the memory store, and to the rules over a
 * plain array. Both must answer the same, field by field. */
#include "store/store.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/world.h"

#include <stdlib.h>

enum { KEYS = 4, OWNERS = 4, STEPS_MAX = 400, FINGERPRINTS = 2 };

/* The model: what the store should hold. */
struct model {
    struct record records[KEYS];
    bool present[KEYS];
    uint64_t fence_floor;
};

static const char *const key_names[KEYS] = { "a", "b", "a:b", "ab" };
static const char *const fingerprints[FINGERPRINTS] = { "", "f" };
static const int64_t durations_ms[] = { 0, 1, 10, 1000, 86400000 };

static struct reader input;

static unsigned choose(unsigned n)
{
    return reader_byte(&input) % n;
}

static int64_t choose_ms(void)
{
    return durations_ms[choose(sizeof durations_ms / sizeof durations_ms[0])];
}

/* Values are the history's own, so the model's are compared by content. */
static struct request choose_request(void)
{
    struct request in = { .token = token_of((uint8_t)(1 + choose(OWNERS))),
                          .lease_ms = choose_ms(),
                          .retain_ms = choose_ms(),
                          .fingerprint = bytes_str(fingerprints[choose(FINGERPRINTS)]) };
    uint8_t value = reader_byte(&input);
    if (value % 4) in.value = blob_new(bytes_of(&value, value % 2));
    return in;
}

static void model_forget(struct model *m, unsigned key)
{
    if (m->records[key].fence > m->fence_floor) m->fence_floor = m->records[key].fence;
    blob_unref(m->records[key].value);
    m->present[key] = false;
}

static void model_apply(struct model *m, unsigned key, const struct verdict *v)
{
    if (v->change == CHANGE_DROP) model_forget(m, key);
    if (v->change != CHANGE_PUT) return;
    struct record before = m->records[key];
    bool had = m->present[key];
    m->records[key] = v->next;
    m->present[key] = true;
    blob_ref(v->next.value);
    if (had) blob_unref(before.value);
    /* The view of the request goes away; its text is one of the table's. */
    struct bytes own = v->next.fingerprint;
    for (unsigned i = 0; i < FINGERPRINTS; i++)
        if (bytes_eq(own, bytes_str(fingerprints[i])))
            m->records[key].fingerprint = bytes_str(fingerprints[i]);
}

static void check_same(const struct op *op, const struct answer *want)
{
    CHECK(op->err.code == 0);
    CHECK(op->out.outcome == want->outcome);
    CHECK(op->out.fence == want->fence && op->out.version == want->version);
    CHECK(op->out.mine == want->mine && op->out.taken_over == want->taken_over);
    CHECK(op->out.lease_left_ms == want->lease_left_ms);
    CHECK(op->out.retain_left_ms == want->retain_left_ms);
    CHECK(blob_eq(op->out.value, want->value));
}

static void step_keyed(struct world *w, struct store *s, struct model *m)
{
    static const enum verb verbs[] = { VERB_CLAIM, VERB_PUBLISH, VERB_RELEASE,
                                       VERB_RENEW, VERB_FORGET,  VERB_PEEK };
    enum verb verb = verbs[choose(sizeof verbs / sizeof verbs[0])];
    unsigned key = choose(KEYS);
    struct request in = choose_request();
    struct key name = key_of("fuzz", key_names[key]);
    struct op *op = op_new(verb, &name, &in);
    CHECK(op);
    struct moment at = { .now_ms = w->wall_ms, .fence_floor = m->fence_floor };
    const struct record *stored = m->present[key] ? &m->records[key] : NULL;
    struct verdict v = verb_info[verb].rule(stored, &in, at);
    struct answer want = rules_answer(&v, stored, &in, at);
    s->class->exec(s, &op, 1);
    check_same(op, &want);
    CHECK(op->changed == (v.change != CHANGE_NONE));
    model_apply(m, key, &v);
    op_free(op);
    blob_unref(in.value);
}

static void step_expire(struct world *w, struct store *s, struct model *m)
{
    struct op *op = op_new(VERB_EXPIRE, NULL, NULL);
    CHECK(op);
    op->limit = KEYS;
    s->class->exec(s, &op, 1);
    size_t gone = 0;
    for (unsigned key = 0; key < KEYS; key++) {
        if (!m->present[key] || record_live(&m->records[key], w->wall_ms)) continue;
        model_forget(m, key);
        gone++;
    }
    CHECK(op->err.code == 0 && op->count == gone);
    op_free(op);
}

static void step_scan(struct world *w, struct store *s, const struct model *m)
{
    struct op *op = op_new(VERB_SCAN, NULL, NULL);
    CHECK(op);
    op->all_scopes = true;
    op->limit = 1 + choose(KEYS);
    s->class->exec(s, &op, 1);
    size_t live = 0;
    for (unsigned key = 0; key < KEYS; key++)
        live += m->present[key] && record_live(&m->records[key], w->wall_ms);
    CHECK(op->scan.count == (live < op->limit ? live : op->limit));
    CHECK(op->scan.more == (live > op->limit));
    for (size_t i = 1; i < op->scan.count; i++)
        CHECK(bytes_cmp(op->scan.rows[i - 1].key.name, op->scan.rows[i].key.name) < 0);
    op_free(op);
}

static void step(struct world *w, struct store *s, struct model *m)
{
    unsigned what = choose(8);
    if (what == 0) w->wall_ms += choose_ms();
    if (what == 1) w->wall_ms -= choose_ms() / 2; /* clocks go back, too */
    if (what == 2) step_expire(w, s, m);
    if (what == 3) step_scan(w, s, m);
    if (what > 3) step_keyed(w, s, m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world w;
    struct store *s;
    struct model m = { .fence_floor = 0 };
    struct err err;
    world_init(&w, 1);
    CHECK(store_open_bare("memory:", &w.env, &s, &err) == 0);
    input = (struct reader){ .left = bytes_of(data, size) };
    for (unsigned i = 0; i < STEPS_MAX && input.left.len; i++) step(&w, s, &m);
    for (unsigned key = 0; key < KEYS; key++)
        if (m.present[key]) blob_unref(m.records[key].value);
    store_close(s);
    world_fini(&w);
    return 0;
}
