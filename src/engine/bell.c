/* bell.c - telling other processes that something may be due in a queue.
 *
 * A bell is a record at coord that counts for nothing but its version: whoever puts a run into the
 * queue makes it another one, whoever waits for work there watches it. A watch that comes too late
 * finds another version than it has seen, so no ring is lost; a ring that coord loses costs the time
 * until the next look. Rings of one turn, or while one is under way, are one; and it rests in between:
 * in a storm of new runs, nobody is told more often than that is worth. */
#include "base/check.h"
#include "base/text.h"
#include "engine/runs_internal.h"

#include <stdlib.h>

enum { BELLS_MAX = 10000, REST_MS = 5 };

struct bell {
    struct map_node node;
    struct runs *runs;
    struct task task;
    struct timer timer; /* it rests, and rings again after that */
    int64_t rung_at_ms;
    bool ringing, again;
    size_t place_len;
    uint8_t place[];
};

static struct bytes bell_place(const struct map_node *n)
{
    const struct bell *b = container_of(n, struct bell, node);
    return bytes_of(b->place, b->place_len);
}

/* In the env's scope at coord; the name of a claim is never so short. */
static struct op *bell_op(enum verb verb, struct bytes place, const struct request *in)
{
    uint8_t scope[1 + ENV_BYTES_MAX], hash[SHA256_BYTES];
    char name[CLAIM_NAME_BYTES + 1];
    struct bytes env = bytes_of(place.data + 1, place.data[0]);
    struct bytes pieces[] = { bytes_str("queue"),
                              bytes_of(env.data + env.len, place.len - 1 - env.len) };
    if (!sha256_pieces(pieces, 2, hash)) return NULL;
    hex_encode(bytes_of(hash, sizeof hash / 2), name);
    scope[0] = KEY_COORD_ONLY;
    memcpy(scope + 1, env.data, env.len);
    struct key key = { bytes_of(scope, 1 + env.len), bytes_str(name) };
    return op_new(verb, &key, in);
}

int bells_init(struct runs *r)
{
    struct rng *rng = r->engine->rng;
    return map_init(&r->bells, bell_place, (uint64_t[2]){ rng_u64(rng), rng_u64(rng) });
}

static bool drop(struct map_node *n, void *ctx)
{
    struct runs *r = ctx;
    struct bell *b = container_of(n, struct bell, node);
    CHECK(!b->ringing);
    map_remove(&r->bells, n);
    task_stop(&b->task);
    timer_stop(r->engine->loop, &b->timer);
    free(b);
    return true;
}

static bool drop_idle(struct map_node *n, void *ctx)
{
    const struct bell *b = container_of(n, struct bell, node);
    return b->ringing || b->again ? true : drop(n, ctx);
}

void bells_fini(struct runs *r)
{
    if (r->bells.count) map_each(&r->bells, drop, r);
    map_fini(&r->bells);
}

static void ring_soon(struct bell *b)
{
    struct loop *loop = b->runs->engine->loop;
    if (b->ringing || timer_is_set(&b->timer)) return;
    if (loop->now_ms >= b->rung_at_ms + REST_MS)
        task_post(loop, &b->task);
    else
        timer_set(loop, &b->timer, b->rung_at_ms + REST_MS);
}

static void rested(struct timer *t)
{
    ring_soon(container_of(t, struct bell, timer));
}

static void rung(struct op *op, void *ctx)
{
    struct bell *b = ctx;
    op_free(op);
    b->ringing = false;
    if (b->again) ring_soon(b);
}

static void ring(struct task *task)
{
    struct bell *b = container_of(task, struct bell, task);
    struct engine *e = b->runs->engine;
    struct request in = { .force = true };
    b->again = false;
    b->rung_at_ms = e->loop->now_ms;
    e->rng->fill(e->rng, in.token.bytes, sizeof in.token.bytes);
    struct op *op = e->stopping ? NULL : bell_op(VERB_CLAIM, bell_place(&b->node), &in);
    if (!op) return; /* those who wait look by themselves */
    b->ringing = true;
    engine_submit(e, op, rung, b);
}

void bell_ring(struct runs *r, struct bytes place)
{
    if (!has(r->engine, CAP_TELLS)) return;
    struct map_node *n = map_find(&r->bells, place);
    struct bell *b = n ? container_of(n, struct bell, node) : NULL;
    if (!b) {
        if (r->bells.count >= BELLS_MAX) map_each(&r->bells, drop_idle, r);
        b = malloc(sizeof *b + place.len);
        if (!b) return;
        *b = (struct bell){ .runs = r, .rung_at_ms = -REST_MS, .place_len = place.len };
        memcpy(b->place, place.data, place.len);
        task_init(&b->task, ring);
        timer_init(&b->timer, rested);
        map_insert(&r->bells, &b->node);
    }
    b->again = true;
    ring_soon(b);
}

struct op *bell_watch(struct runs *r, struct bytes place, uint64_t seen)
{
    struct op *op = has(r->engine, CAP_TELLS) ? bell_op(VERB_WATCH, place, NULL) : NULL;
    if (op) op->seen = seen;
    return op;
}
