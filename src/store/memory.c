/* memory.c - records, and gates (memory_gate.c), in this process's memory.
 *
 * Guarantees: the rules and nothing else; an op that finds no memory changes nothing; a record
 * costs one allocation beside its value. Does not: survive the process, block, or know of other
 * processes (so it may be coord, never the ledger). */
#include "base/check.h"
#include "base/heap.h"
#include "base/map.h"
#include "store/memory_gate.h"
#include "store/store.h"

#include <stdlib.h>

struct memory {
    struct store base;
    struct store_env env;
    struct map records;
    struct heap by_gone; /* next to be swept first */
    uint64_t fence_floor;
    uint64_t bytes;
    struct memory_gates gates;
};

/* A record and, behind it, its key frame and fingerprint. */
struct cell {
    struct map_node node;
    struct heap_node gone;
    struct record record;
    uint16_t frame_len;
    uint8_t memory[];
};

static struct bytes cell_frame(const struct map_node *n)
{
    const struct cell *e = container_of(n, struct cell, node);
    return bytes_of(e->memory, e->frame_len);
}

static size_t cell_bytes(const struct cell *e)
{
    return sizeof *e + e->frame_len + e->record.fingerprint.len +
           blob_bytes(e->record.value).len;
}

static struct cell *cell_of(struct map_node *n)
{
    return n ? container_of(n, struct cell, node) : NULL;
}

static struct cell *cell_new(struct bytes frame, struct bytes fingerprint)
{
    struct cell *e = malloc(sizeof *e + frame.len + fingerprint.len);
    if (!e) return NULL;
    *e = (struct cell){ .frame_len = (uint16_t)frame.len };
    heap_node_init(&e->gone);
    memcpy(e->memory, frame.data, frame.len);
    if (fingerprint.len) memcpy(e->memory + frame.len, fingerprint.data, fingerprint.len);
    return e;
}

static void cell_remove(struct memory *m, struct cell *e)
{
    m->bytes -= cell_bytes(e);
    map_remove(&m->records, &e->node);
    heap_remove(&m->by_gone, &e->gone);
    blob_unref(e->record.value);
    free(e);
}

static void cell_drop(struct memory *m, struct cell *e)
{
    if (e->record.fence > m->fence_floor) m->fence_floor = e->record.fence;
    cell_remove(m, e);
}

/* Keeps the cell's own copy of the fingerprint and swaps the reference to the value. */
static void cell_set(struct memory *m, struct cell *e, const struct record *next)
{
    struct blob *before = e->record.value;
    e->record = *next;
    e->record.fingerprint = bytes_of(e->memory + e->frame_len, next->fingerprint.len);
    blob_ref(e->record.value);
    blob_unref(before);
    m->bytes += cell_bytes(e);
    heap_add(&m->by_gone, &e->gone, record_gone_at_ms(&e->record));
}

static int put(struct memory *m, struct op *op, struct cell *e, const struct record *next)
{
    if (e && bytes_eq(e->record.fingerprint, next->fingerprint)) {
        m->bytes -= cell_bytes(e);
        heap_remove(&m->by_gone, &e->gone);
        cell_set(m, e, next);
        return 0;
    }
    struct cell *fresh = cell_new(op->frame, next->fingerprint);
    if (!fresh) return ERR_NOMEM;
    if (e) cell_remove(m, e); /* replaced, not dropped: the next fence is above its own */
    map_insert(&m->records, &fresh->node);
    cell_set(m, fresh, next);
    return 0;
}

static void exec_keyed(struct memory *m, struct op *op, int64_t now_ms)
{
    struct cell *e = cell_of(map_find(&m->records, op->frame));
    struct moment at = { .now_ms = now_ms, .fence_floor = m->fence_floor };
    struct verdict v = op_decide(op, e ? &e->record : NULL, at);
    if (v.change == CHANGE_PUT && put(m, op, e, &v.next)) {
        op_clear_answer(op);
        err_set(&op->err, ERR_NOMEM, "out of memory; nothing was changed");
        return;
    }
    if (v.change == CHANGE_DROP) cell_drop(m, e);
    op->changed = v.change != CHANGE_NONE;
}

static void exec_expire(struct memory *m, struct op *op, int64_t now_ms)
{
    for (struct heap_node *n; op->count < op->limit && (n = heap_first(&m->by_gone));) {
        struct cell *e = container_of(n, struct cell, gone);
        if (rules_expire(&e->record, NULL, (struct moment){ .now_ms = now_ms }).change !=
            CHANGE_DROP)
            break;
        cell_drop(m, e);
        op->count++;
    }
    op->changed = op->count > 0;
    op->out.outcome = OUTCOME_OK;
}

/* The rows of a page are the smallest keys after the cursor: one pass over everything, keeping
 * at most limit + 1. Listing is for people; claims never pay for an ordered index. */
struct page {
    struct op *op;
    int64_t now_ms;
    struct cell **cells;
    size_t count;
};

static int key_cmp(const struct key *a, const struct key *b)
{
    int order = bytes_cmp(a->scope, b->scope);
    return order ? order : bytes_cmp(a->name, b->name);
}

static bool page_visit(struct map_node *n, void *ctx)
{
    struct page *p = ctx;
    struct cell *e = cell_of(n);
    struct key key = key_unframe(cell_frame(n));
    if (!record_live(&e->record, p->now_ms)) return true;
    if (!p->op->all_scopes && !bytes_eq(key.scope, p->op->key.scope)) return true;
    if (key_cmp(&key, &p->op->key) <= 0) return true;

    size_t low = 0, high = p->count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        struct key other = key_unframe(cell_frame(&p->cells[mid]->node));
        if (key_cmp(&key, &other) < 0)
            high = mid;
        else
            low = mid + 1;
    }
    if (low > p->op->limit) return true;
    size_t kept = p->count <= p->op->limit ? p->count++ : p->op->limit;
    memmove(p->cells + low + 1, p->cells + low, (kept - low) * sizeof *p->cells);
    p->cells[low] = e;
    return true;
}

static void exec_scan(struct memory *m, struct op *op, int64_t now_ms)
{
    struct page p = { .op = op, .now_ms = now_ms };
    p.cells = malloc((op->limit + 1) * sizeof *p.cells);
    int r = p.cells ? 0 : ERR_NOMEM;
    if (!r) map_each(&m->records, page_visit, &p);
    for (size_t i = 0; !r && i < p.count && i < op->limit; i++) {
        struct key key = key_unframe(cell_frame(&p.cells[i]->node));
        r = scan_add(&op->scan, &key, &p.cells[i]->record, now_ms);
    }
    op->scan.more = p.count > op->limit;
    op->out.outcome = OUTCOME_OK;
    free(p.cells);
    if (!r) return;
    op_clear_answer(op);
    err_set(&op->err, r, "out of memory while listing");
}

struct counting {
    struct store_stats *stats;
    int64_t now_ms;
};

static bool count_visit(struct map_node *n, void *ctx)
{
    struct counting *c = ctx;
    const struct record *r = &cell_of(n)->record;
    if (!record_live(r, c->now_ms))
        c->stats->gone++;
    else if (r->state == RECORD_DONE)
        c->stats->done++;
    else if (c->now_ms < r->lease_until_ms)
        c->stats->pending++;
    else
        c->stats->lapsed++;
    return true;
}

static void exec_stats(struct memory *m, struct op *op, int64_t now_ms)
{
    op->stats = (struct store_stats){ .bytes = m->bytes,
                                      .fence_floor = m->fence_floor,
                                      .now_ms = now_ms };
    map_each(&m->records, count_visit, &(struct counting){ &op->stats, now_ms });
    op->out.outcome = OUTCOME_OK;
}

static void exec_gate(struct memory *m, struct op *op, int64_t now_ms)
{
    if (memory_gates_ask(&m->gates, op->gate, now_ms))
        err_set(&op->err, ERR_NOMEM, "out of memory; nothing was counted");
    else
        op->out.outcome = OUTCOME_OK;
}

static void exec_one(struct memory *m, struct op *op, int64_t now_ms)
{
    if (verb_info[op->verb].keyed) {
        exec_keyed(m, op, now_ms);
        return;
    }
    op_clear_answer(op);
    if (op->verb == VERB_EXPIRE) exec_expire(m, op, now_ms);
    if (op->verb == VERB_SCAN) exec_scan(m, op, now_ms);
    if (op->verb == VERB_STATS) exec_stats(m, op, now_ms);
    if (op->verb == VERB_PING) op->out.outcome = OUTCOME_OK;
    if (op->verb == VERB_GATE) exec_gate(m, op, now_ms);
}

static void memory_exec(struct store *s, struct op **ops, size_t count)
{
    struct memory *m = (struct memory *)s;
    int64_t now_ms = clock_now_ms(&m->env.wall);
    for (size_t i = 0; i < count; i++) {
        exec_one(m, ops[i], now_ms);
        ops[i]->epoch = m->base.epoch;
    }
}

static void drop_all(struct memory *m)
{
    for (struct heap_node *n; (n = heap_first(&m->by_gone));)
        cell_drop(m, container_of(n, struct cell, gone));
}

void memory_flush(struct store *s)
{
    struct memory *m = (struct memory *)s;
    CHECK(s->class == &memory_class);
    drop_all(m);
    memory_gates_clear(&m->gates);
    m->fence_floor =
        0; /* a flushed cache remembers nothing; the clock keeps its fences growing */
    m->base.epoch = rng_u64(m->env.rng);
}

static void memory_close(struct store *s)
{
    struct memory *m = (struct memory *)s;
    drop_all(m);
    memory_gates_fini(&m->gates);
    map_fini(&m->records);
    free(m);
}

static int memory_open(const char *rest, const struct store_env *env, struct store **ret_store,
                       struct err *reterr)
{
    if (*rest)
        return err_set(reterr, ERR_INVALID, "\"memory:\" takes nothing behind the colon");
    struct memory *m = calloc(1, sizeof *m);
    if (!m) return err_set(reterr, ERR_NOMEM, "out of memory opening memory:");
    uint64_t seed[2] = { rng_u64(env->rng), rng_u64(env->rng) };
    if (map_init(&m->records, cell_frame, seed) || memory_gates_init(&m->gates, seed)) {
        map_fini(&m->records);
        free(m);
        return err_set(reterr, ERR_NOMEM, "out of memory opening memory:");
    }
    heap_init(&m->by_gone);
    m->env = *env;
    m->base = (struct store){ .class = &memory_class,
                              .caps = memory_class.caps,
                              .loop = env->loop,
                              .epoch = rng_u64(env->rng) };
    *ret_store = &m->base;
    return 0;
}

const struct store_class memory_class = {
    .scheme = "memory",
    .usage = "memory:",
    .caps = CAP_CLAIMS | CAP_NOTIFY | CAP_GATE,
    .open = memory_open,
    .close = memory_close,
    .exec = memory_exec,
};
