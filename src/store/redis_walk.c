/* redis_walk.c - the ops that look at every record: SCAN, STATS, EXPIRE.
 *
 * Redis has no order of keys and no index by time, and claims do not pay for one. So these walk the
 * whole keyspace with SCAN, server by server, a few hundred keys at a time, never blocking it; what
 * they see of a record is its header at the time they came by. They are for people: records go by
 * themselves. EXPIRE drops what is past its time with the same step as any other op. A server that
 * is lost on the way, or gives a slot away, ends the walk with an error: half a list is none.
 *
 *   waiting for a connection --> TIME --> SCAN --> headers --> (EXPIRE: drops) --.
 *                  ^-- next server -- cursor 0 --<---------- more ----------------' */
#include "base/check.h"
#include "store/redis.h"

#include <stdio.h>
#include <stdlib.h>

#define LOOK_SCRIPT "return {redis.call('GETRANGE',KEYS[1],0,68),redis.call('STRLEN',KEYS[1])}"

enum { WALK_KEYS = 200, WALK_MS = 5000 };

struct row {
    uint8_t *frame;
    size_t frame_len, value_bytes;
    struct record record;
    bool kept;
};

struct walk {
    struct link link; /* redis.walks, while it waits for a connection */
    struct redis *redis;
    struct op *op;
    struct node *node;
    char cursor[24];
    unsigned owed;   /* answers of this step */
    size_t dropping; /* EXPIRE: of those, drops */
    int64_t now_ms;
    struct timer timer; /* waiting for a connection: until then */
    struct err failed;
    struct row *rows; /* SCAN: the smallest so far, in order; at most limit + 1 */
    size_t count;
};

struct look {
    struct command command;
    struct walk *walk;
    size_t frame_len;
    uint8_t frame[];
};

static struct conn *walk_conn(const struct walk *w)
{
    return &w->node->lanes[0].conn;
}

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
    op->epoch = r->base.epoch;
    op->stats.fence_floor = r->fence_floor;
    op->stats.now_ms = w->now_ms;
    if (w->failed.code && op->count == 0)
        redis_refuse(r, op, w->failed.code, w->failed.text);
    else
        redis_finish(r, op); /* what an EXPIRE has dropped is dropped */
    timer_stop(r->base.loop, &w->timer);
    link_remove(&w->link);
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

/* SCAN may come by a key twice. */
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

static void step_answered(struct walk *w);

static void dropped(struct op *child, void *ctx)
{
    struct walk *w = ctx;
    if (child->err.code) walk_fail(w, child->err.code, child->err.text);
    if (child->changed) w->op->count++;
    w->dropping--;
    w->op->changed = w->op->count > 0;
    op_free(child);
    step_answered(w);
}

static void drop_row(struct walk *w, const struct row *row)
{
    if (record_live(&row->record, w->now_ms)) return;
    if (w->op->count + w->dropping >= w->op->limit) return;
    struct key key = key_unframe(bytes_of(row->frame, row->frame_len));
    struct op *child = op_new(VERB_PEEK, &key, NULL);
    if (!child) {
        walk_fail(w, ERR_NOMEM, "out of memory while sweeping");
        return;
    }
    child->verb = VERB_EXPIRE;
    op_push(child, dropped, w);
    w->owed++;
    w->dropping++;
    redis_enqueue(w->redis, child);
}

static void use_row(struct walk *w, struct row row)
{
    if (w->op->verb == VERB_SCAN) {
        if (record_live(&row.record, w->now_ms)) keep_row(w, row);
    } else if (w->op->verb == VERB_STATS) {
        count_row(w, &row);
    } else {
        drop_row(w, &row);
    }
}

/* ---- looking at records ---- */

static void look_into(struct look *l, const redisReply *reply)
{
    struct row row = { .frame = l->frame, .frame_len = l->frame_len };
    struct bytes rest;
    const redisReply *content = reply->elements == 2 ? reply->element[0] : NULL;
    if (!content || content->type != REDIS_REPLY_STRING) return;
    struct bytes head = bytes_of(content->str, content->len);
    if (!record_unpack(head, &row.record, &rest, &row.kept)) return;
    size_t before = HEADER_BYTES + head.data[65] +
                    (size_t)INBOX_BYTES * (head.data[67] | (size_t)head.data[68] << 8);
    size_t all = (size_t)reply->element[1]->integer;
    row.value_bytes = all > before ? all - before : 0;
    use_row(l->walk, row);
}

static void looked(struct command *command, struct conn *c, const redisReply *reply,
                   const struct err *why)
{
    struct look *l = container_of(command, struct look, command);
    (void)c;
    if (why)
        walk_fail(l->walk, ERR_UNAVAILABLE, why->text);
    else if (reply->type == REDIS_REPLY_ARRAY)
        look_into(l, reply);
    else if (reply->type == REDIS_REPLY_ERROR && !error_is(reply->str, "WRONGTYPE"))
        walk_fail(l->walk, ERR_UNAVAILABLE, reply->str);
    step_answered(l->walk);
}

static void look_gone(struct command *command)
{
    free(container_of(command, struct look, command));
}

/* Of a key of ours; whose else it may be, it is not a frame. */
static bool frame_in(struct bytes key, struct bytes *ret_frame)
{
    const uint8_t *brace = key.len ? memchr(key.data, '}', key.len) : NULL;
    if (!brace || brace + 2 >= key.data + key.len) return false;
    struct bytes frame = bytes_of(brace + 2, (size_t)(key.data + key.len - brace - 2));
    if (frame.len < 3 || frame.len > KEY_FRAME_BYTES_MAX) return false;
    if (frame.data[0] < 1 || frame.data[0] + 2u > frame.len) return false;
    *ret_frame = frame;
    return true;
}

static void look_at(struct walk *w, struct bytes key)
{
    struct bytes frame;
    if (!frame_in(key, &frame)) return;
    struct look *l = malloc(sizeof *l + frame.len);
    if (!l) {
        walk_fail(w, ERR_NOMEM, "out of memory while listing");
        return;
    }
    *l = (struct look){ .walk = w, .frame_len = frame.len };
    l->command = (struct command){ .answered = looked,
                                   .gone = look_gone,
                                   .deadline_ms = w->redis->base.loop->now_ms + WALK_MS };
    link_init(&l->command.link);
    memcpy(l->frame, frame.data, frame.len);
    w->owed++;
    conn_send(walk_conn(w), &l->command, 4,
              (const char *[]){ "EVAL", LOOK_SCRIPT, "1", (const char *)key.data },
              (const size_t[]){ 4, strlen(LOOK_SCRIPT), 1, key.len });
}

/* ---- steps ---- */

/* A command of the walk itself. */
struct ask {
    struct command command;
    struct walk *walk;
};

static void ask_gone(struct command *command)
{
    free(container_of(command, struct ask, command));
}

static void ask(struct walk *w,
                void (*answered)(struct command *, struct conn *, const redisReply *,
                                 const struct err *),
                int argc, const char **argv)
{
    size_t lens[6];
    struct conn *c = walk_conn(w);
    struct ask *a = malloc(sizeof *a);
    w->owed++;
    if (!a) {
        walk_fail(w, ERR_NOMEM, "out of memory while listing");
        step_answered(w);
        return;
    }
    *a = (struct ask){ .walk = w };
    a->command = (struct command){ .answered = answered,
                                   .gone = ask_gone,
                                   .deadline_ms = w->redis->base.loop->now_ms + WALK_MS };
    link_init(&a->command.link);
    for (int i = 0; i < argc; i++) lens[i] = strlen(argv[i]);
    conn_send(c, &a->command, argc, argv, lens); /* may be the end of the walk */
    conn_flush(c);
    conn_watch_deadlines(c);
}

static void scanned(struct command *command, struct conn *c, const redisReply *reply,
                    const struct err *why)
{
    struct walk *w = container_of(command, struct ask, command)->walk;
    if (why) {
        walk_fail(w, ERR_UNAVAILABLE, why->text);
    } else if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
               !reply->element[0]->str) {
        walk_fail(w, ERR_UNAVAILABLE,
                  reply->type == REDIS_REPLY_ERROR ? reply->str : "redis: no list of keys");
    } else {
        snprintf(w->cursor, sizeof w->cursor, "%s", reply->element[0]->str);
        const redisReply *keys = reply->element[1];
        for (size_t i = 0; i < keys->elements; i++)
            look_at(w, bytes_of(keys->element[i]->str, keys->element[i]->len));
        conn_flush(c);
    }
    step_answered(w);
}

static void scan_on(struct walk *w)
{
    char pattern[100], count[12];
    if (walk_conn(w)->state != CONN_READY) { /* lost while a drop was waited for */
        walk_fail(w, ERR_UNAVAILABLE, walk_conn(w)->why.text);
        walk_end(w);
        return;
    }
    snprintf(pattern, sizeof pattern, "%s:{*}:*", w->redis->options.prefix);
    snprintf(count, sizeof count, "%d", WALK_KEYS);
    ask(w, scanned, 6, (const char *[]){ "SCAN", w->cursor, "MATCH", pattern, "COUNT", count });
}

static void timed(struct command *command, struct conn *c, const redisReply *reply,
                  const struct err *why)
{
    struct walk *w = container_of(command, struct ask, command)->walk;
    (void)c;
    if (why)
        walk_fail(w, ERR_UNAVAILABLE, why->text);
    else if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
             !reply->element[0]->str || !reply->element[1]->str)
        walk_fail(w, ERR_UNAVAILABLE, "redis: no time");
    else
        w->now_ms = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
                    strtoll(reply->element[1]->str, NULL, 10) / 1000;
    step_answered(w);
}

static bool has_slots(const struct redis *r, const struct node *n)
{
    if (!r->clustered) return n == r->seed_node;
    for (unsigned slot = 0; slot < SLOTS; slot++)
        if (r->slots[slot] == n) return true;
    return false;
}

static void begin_node(struct walk *w)
{
    snprintf(w->cursor, sizeof w->cursor, "0");
    link_remove(&w->link);
    list_append(&w->redis->walks, &w->link);
    conn_use(walk_conn(w));
    timer_set(w->redis->base.loop, &w->timer,
              w->redis->base.loop->now_ms + w->redis->options.timeout_ms);
    redis_flush_later(w->redis);
}

static void next_node(struct walk *w)
{
    struct link *at = w->node->link.next;
    for (; at != &w->redis->nodes.head; at = at->next) {
        w->node = container_of(at, struct node, link);
        if (!has_slots(w->redis, w->node)) continue;
        begin_node(w);
        return;
    }
    walk_end(w);
}

static bool enough(const struct walk *w)
{
    return w->op->verb == VERB_EXPIRE && w->op->count >= w->op->limit;
}

static void step_answered(struct walk *w)
{
    if (--w->owed > 0) return;
    if (w->failed.code || enough(w))
        walk_end(w);
    else if (strcmp(w->cursor, "0") == 0)
        next_node(w);
    else
        scan_on(w);
}

/* ---- from redis.c ---- */

static void walk_late(struct timer *timer)
{
    struct walk *w = container_of(timer, struct walk, timer);
    walk_fail(w, ERR_UNAVAILABLE, "redis: not reached within the deadline");
    walk_end(w);
}

/* The connection is there: from the first key on, which is not "0" as long as it was not asked. */
static void walk_go(struct walk *w)
{
    timer_stop(w->redis->base.loop, &w->timer);
    link_remove(&w->link);
    if (w->redis->clustered && !has_slots(w->redis, w->node)) {
        next_node(w);
        return;
    }
    snprintf(w->cursor, sizeof w->cursor, "%s", "00"); /* as 0, but not the end */
    if (w->redis->env.wall_rules) {
        w->now_ms = clock_now_ms(&w->redis->env.wall);
        scan_on(w);
    } else {
        ask(w, timed, 1, (const char *[]){ "TIME" });
    }
}

void walks_resume(struct redis *r)
{
    list_each (&r->walks, at) {
        struct walk *w = container_of(at, struct walk, link);
        bool passed_over = r->clustered && !has_slots(r, w->node);
        if (passed_over && conn_refuses(walk_conn(w))) {
            next_node(w);
        } else if (conn_refuses(walk_conn(w))) {
            walk_fail(w, ERR_UNAVAILABLE, walk_conn(w)->why.text);
            walk_end(w);
        } else if (walk_conn(w)->state == CONN_READY) {
            walk_go(w);
        }
    }
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
    *w = (struct walk){ .redis = r, .op = op, .node = r->seed_node, .rows = room };
    link_init(&w->link);
    timer_init(&w->timer, walk_late);
    begin_node(w);
}
