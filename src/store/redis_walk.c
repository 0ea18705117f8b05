/* redis_walk.c - the ops that are about all records: SCAN, STATS, EXPIRE.
 *
 * Walkers go from shard to shard, a step at a time, each step an op like any other: it has a deadline,
 * follows a slot that moves, waits for a connection. What is seen of a record is its header at the
 * time of the step. A step that was not answered is tried again a few times; then the walk ends with
 * an error: half a list is none.
 *
 * The routine EXPIRE takes out what is due by the shard's own lists, and looks at little else; one
 * that somebody asked for looks at every record. Both drop nothing that still counts. */
#include "base/check.h"
#include "store/redis.h"

#include <stdlib.h>

enum { TRIES = 3, WALKERS = 64 };

struct row {
    uint8_t *frame;
    size_t frame_len, value_bytes;
    struct record record;
    bool kept;
};

struct walker {
    struct walk *walk;
    uint8_t frame[WHOLE_FRAME_BYTES]; /* of its shard */
    uint64_t cursor;                  /* in the shard; 0: its beginning, and its end */
    unsigned tries;                   /* of this step */
    size_t dropping;                  /* records */
};

struct walk {
    struct redis *redis;
    struct op *op;
    struct walker walkers[WALKERS];
    unsigned walking, next_shard;
    size_t dropping; /* by all of them */
    int64_t now_ms;
    uint64_t fence_floor; /* the highest */
    struct err failed;
    struct row *rows; /* SCAN: the smallest so far, in order; at most limit + 1 */
    size_t count;
};

/* ---- the end ---- */

static void rows_to_scan(struct walk *w)
{
    struct op *op = w->op;
    for (size_t i = 0; i < w->count && i < op->limit && !w->failed.code; i++) {
        struct row *row = &w->rows[i];
        struct key key = key_unframe(bytes_of(row->frame, row->frame_len));
        if (scan_add(&op->scan, &key, &row->record, w->now_ms)) {
            err_set(&w->failed, ERR_NOMEM, "out of memory while listing");
            return;
        }
        op->scan.rows[i].value_bytes = row->value_bytes;
        op->scan.rows[i].value_kept = row->kept;
    }
    op->scan.more = w->count > op->limit;
}

static void walk_end(struct walk *w)
{
    struct redis *r = w->redis;
    struct op *op = w->op;
    if (op->verb == VERB_SCAN) rows_to_scan(w);
    op->out.outcome = OUTCOME_OK;
    op->changed = op->count > 0;
    op->epoch = r->base.epoch;
    op->stats.fence_floor = w->fence_floor;
    op->stats.now_ms = w->now_ms;
    if (w->failed.code && op->count == 0)
        redis_refuse(r, op, w->failed.code, w->failed.text);
    else
        redis_finish(r, op); /* what an EXPIRE has dropped is dropped */
    for (size_t i = 0; i < w->count; i++) free(w->rows[i].frame);
    free(w->rows);
    free(w);
}

static void walk_fail(struct walk *w, int code, const char *text)
{
    if (!w->failed.code) err_set(&w->failed, code, "%s", text);
}

/* ---- what is done with a record ---- */

static int frame_cmp(struct bytes a, struct bytes b)
{
    struct key x = key_unframe(a), y = key_unframe(b);
    int order = bytes_cmp(x.scope, y.scope);
    return order ? order : bytes_cmp(x.name, y.name);
}

static bool wanted(const struct op *op, const struct key *key)
{
    if (!op->all_scopes && !bytes_eq(key->scope, op->key.scope)) return false;
    int order = bytes_cmp(key->scope, op->key.scope);
    return order > 0 || (order == 0 && bytes_cmp(key->name, op->key.name) > 0);
}

/* A shard that grows meanwhile may show a record twice. */
static void keep_row(struct walk *w, struct row row)
{
    struct key key = key_unframe(bytes_of(row.frame, row.frame_len));
    if (!wanted(w->op, &key)) return;
    size_t at = w->count;
    while (at > 0) {
        struct bytes other = bytes_of(w->rows[at - 1].frame, w->rows[at - 1].frame_len);
        int order = frame_cmp(bytes_of(row.frame, row.frame_len), other);
        if (order == 0) return;
        if (order > 0) break;
        at--;
    }
    if (at > w->op->limit) return;
    uint8_t *frame = malloc(row.frame_len);
    if (!frame) {
        walk_fail(w, ERR_NOMEM, "out of memory while listing");
        return;
    }
    memcpy(frame, row.frame, row.frame_len);
    row.frame = frame;
    if (w->count > w->op->limit) free(w->rows[--w->count].frame);
    memmove(w->rows + at + 1, w->rows + at, (w->count - at) * sizeof *w->rows);
    w->rows[at] = row;
    w->count++;
}

static void count_row(struct walk *w, const struct row *row)
{
    struct store_stats *stats = &w->op->stats;
    const struct record *record = &row->record;
    stats->bytes += row->frame_len + HEADER_BYTES + row->value_bytes;
    if (!record_live(record, w->now_ms))
        stats->gone++;
    else if (record->state == RECORD_DONE)
        stats->done++;
    else if (w->now_ms < record->lease_until_ms)
        stats->pending++;
    else
        stats->lapsed++;
}

static void walk_on(struct walker *walker);

static void dropped(struct op *child, void *ctx)
{
    struct walker *walker = ctx;
    struct walk *w = walker->walk;
    if (child->err.code) walk_fail(w, child->err.code, child->err.text);
    if (child->changed) w->op->count++;
    op_free(child);
    w->dropping--;
    if (--walker->dropping == 0) walk_on(walker); /* none finishes before all are under way */
}

static void drop_row(struct walker *walker, const struct row *row)
{
    struct walk *w = walker->walk;
    if (record_live(&row->record, w->now_ms)) return;
    if (w->op->count + w->dropping >= w->op->limit) return;
    struct key key = key_unframe(bytes_of(row->frame, row->frame_len));
    struct op *child = op_new(VERB_PEEK, &key, NULL);
    if (!child) {
        walk_fail(w, ERR_NOMEM, "out of memory while sweeping");
        return;
    }
    child->verb = VERB_EXPIRE;
    op_push(child, dropped, walker);
    w->dropping++;
    walker->dropping++;
    redis_enqueue(w->redis, child);
}

static void use_row(struct walker *walker, struct row row)
{
    struct walk *w = walker->walk;
    if (w->op->verb == VERB_SCAN) {
        if (record_live(&row.record, w->now_ms)) keep_row(w, row);
    } else if (w->op->verb == VERB_STATS) {
        count_row(w, &row);
    } else {
        drop_row(walker, &row);
    }
}

/* ---- what a step says ---- */

/* Whose else a field may be, it is not a frame. */
static bool is_frame(struct bytes frame)
{
    if (frame.len < 3 || frame.len > KEY_FRAME_BYTES_MAX) return false;
    return frame.data[0] >= 1 && frame.data[0] + 2u <= frame.len;
}

/* False: there is no more, or it is cut off. */
static bool row_take(struct bytes *rest, struct row *ret)
{
    struct bytes none;
    if (rest->len < 2) return false;
    size_t frame_len = le_take(rest->data, 2), all = 2 + frame_len + HEADER_BYTES + 4;
    if (rest->len < all) return false;
    uint8_t *frame = (uint8_t *)rest->data + 2, *header = frame + frame_len;
    *ret = (struct row){ .frame = frame,
                         .frame_len = frame_len,
                         .value_bytes = le_take(header + HEADER_BYTES, 4) };
    if (!record_unpack(bytes_of(header, HEADER_BYTES), &ret->record, &none, &ret->kept))
        ret->record.state = 0;
    *rest = bytes_of(rest->data + all, rest->len - all);
    return true;
}

static void rows_use(struct walker *walker, struct bytes answer)
{
    struct row row;
    if (answer.len < 8) {
        walk_fail(walker->walk, ERR_CORRUPT,
                  "redis: the script gave an answer of another kind");
        return;
    }
    walker->cursor = le_take(answer.data, 8);
    struct bytes rest = bytes_of(answer.data + 8, answer.len - 8);
    while (row_take(&rest, &row))
        if (row.record.state && is_frame(bytes_of(row.frame, row.frame_len)))
            use_row(walker, row);
}

/* How many were removed, and whether more are due. */
static void due_use(struct walker *walker, struct bytes answer)
{
    if (answer.len != 5) {
        walk_fail(walker->walk, ERR_CORRUPT,
                  "redis: the script gave an answer of another kind");
        return;
    }
    walker->walk->op->count += le_take(answer.data, 4);
    walker->cursor = answer.data[4];
}

/* ---- steps ---- */

static bool enough(const struct walk *w)
{
    return w->op->verb == VERB_EXPIRE && w->op->count >= w->op->limit;
}

static void step_use(struct walker *walker, const struct op *child)
{
    struct walk *w = walker->walk;
    struct bytes answer = blob_bytes(child->out.value);
    walker->tries = 0;
    w->now_ms = child->stats.now_ms;
    if (child->stats.fence_floor > w->fence_floor) w->fence_floor = child->stats.fence_floor;
    if (w->op->routine)
        due_use(walker, answer);
    else
        rows_use(walker, answer);
}

static void step(struct walker *walker);

static void stepped(struct op *child, void *ctx)
{
    struct walker *walker = ctx;
    bool again = child->err.code == ERR_UNAVAILABLE && ++walker->tries < TRIES;
    if (child->err.code == 0)
        step_use(walker, child);
    else if (!again)
        walk_fail(walker->walk, child->err.code, child->err.text);
    op_free(child);
    if (again)
        step(walker);
    else if (walker->dropping == 0)
        walk_on(walker);
}

static void step(struct walker *walker)
{
    struct walk *w = walker->walk;
    struct op *child = op_new(w->op->routine ? VERB_EXPIRE : VERB_SCAN, NULL, NULL);
    if (!child) {
        walk_fail(w, ERR_NOMEM, "out of memory while listing");
        if (--w->walking == 0) walk_end(w);
        return;
    }
    child->frame = bytes_of(walker->frame, sizeof walker->frame);
    child->seen = walker->cursor;
    op_push(child, stepped, walker);
    redis_enqueue(w->redis, child);
}

/* On, to the next shard. False: there is none for it. */
static bool next_shard(struct walker *walker)
{
    struct walk *w = walker->walk;
    if (w->failed.code || enough(w) || w->next_shard >= shard_count(w->redis)) return false;
    whole_frame(w->next_shard++, walker->frame);
    walker->cursor = 0;
    return true;
}

/* How many shards there are is known when the first has been seen. */
static void spread(struct walk *w)
{
    for (unsigned i = 1; i < WALKERS && w->next_shard < shard_count(w->redis); i++) {
        w->walkers[i] = (struct walker){ .walk = w };
        if (!next_shard(&w->walkers[i])) return;
        w->walking++;
        step(&w->walkers[i]);
    }
}

static void walk_on(struct walker *walker)
{
    struct walk *w = walker->walk;
    bool more = walker->cursor != 0 && !w->failed.code && !enough(w);
    if (w->next_shard == 1 && !more) spread(w);
    if (more || next_shard(walker))
        step(walker);
    else if (--w->walking == 0)
        walk_end(w);
}

void walk_start(struct redis *r, struct op *op)
{
    op_clear_answer(op);
    op->stats = (struct store_stats){ 0 };
    struct walk *w = malloc(sizeof *w);
    size_t rows = op->verb == VERB_SCAN ? op->limit + 2 : 1;
    struct row *room = calloc(rows, sizeof *room);
    if (!w || !room) {
        free(w);
        free(room);
        redis_refuse(r, op, ERR_NOMEM, "out of memory while listing");
        return;
    }
    *w = (struct walk){ .redis = r, .op = op, .rows = room, .walking = 1 };
    w->walkers[0].walk = w;
    next_shard(&w->walkers[0]);
    step(&w->walkers[0]);
}
