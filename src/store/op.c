/* op.c - see op.h. */
#include "store/op.h"

#include "base/check.h"
#include "base/loop.h"
#include "store/run_op.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const struct verb_info verb_info[VERBS] = {
#define VERB_ROW(id, name, writes, keyed, rule) [id] = { name, writes, keyed, rule },
    VERB_LIST(VERB_ROW)
#undef VERB_ROW
};

struct op *op_new(enum verb verb, const struct key *key, const struct request *in)
{
    static const struct key no_key;
    static const struct request no_request;
    if (!key) key = &no_key;
    if (!in) in = &no_request;
    CHECK(key->scope.len <= SCOPE_BYTES_MAX && key->name.len <= KEY_BYTES_MAX);
    CHECK(in->fingerprint.len <= FINGERPRINT_BYTES_MAX);

    size_t frame_len = 1 + key->scope.len + key->name.len;
    struct op *op = malloc(sizeof *op + 1 + in->fingerprint.len + frame_len);
    if (!op) return NULL;
    *op = (struct op){ .verb = verb, .in = *in };
    link_init(&op->link);
    uint8_t *fingerprint = op->memory + 1, *frame = fingerprint + in->fingerprint.len;
    op->memory[0] = (uint8_t)in->fingerprint.len;
    op->question = bytes_of(op->memory, 1 + in->fingerprint.len + frame_len);
    if (verb_info[verb].keyed) {
        op->frame = bytes_of(frame, key_frame(key, frame));
    } else {
        memcpy(frame + 1, key->scope.data ? (const void *)key->scope.data : "", key->scope.len);
        memcpy(frame + 1 + key->scope.len, key->name.data ? (const void *)key->name.data : "",
               key->name.len);
    }
    op->key.scope = bytes_of(frame + 1, key->scope.len);
    op->coord_only = verb_info[verb].keyed && frame[1] == KEY_COORD_ONLY;
    op->key.name = bytes_of(frame + 1 + key->scope.len, key->name.len);
    if (in->fingerprint.len) memcpy(fingerprint, in->fingerprint.data, in->fingerprint.len);
    op->in.fingerprint = bytes_of(fingerprint, in->fingerprint.len);
    blob_ref(op->in.value);
    return op;
}

struct op *op_copy(const struct op *op, enum verb verb)
{
    return op_new(verb, &op->key, &op->in);
}

/* Who was drained has been told long ago. */
bool op_may_be_late(const struct op *op)
{
    return op->verb == VERB_RUN_PUT && op->run->drains;
}

void op_free(struct op *op)
{
    if (!op) return;
    CHECK(!link_used(&op->link));
    op->run = NULL; /* what it was told is the submitter's */
    op_clear_answer(op);
    blob_unref(op->in.value);
    free(op);
}

void op_push(struct op *op, op_done *done, void *ctx)
{
    CHECK(op->depth < OP_FRAMES_MAX);
    op->frames[op->depth++] = (struct op_frame){ .done = done, .ctx = ctx };
}

void op_finish(struct op *op)
{
    CHECK(op->depth > 0);
    CHECK(!link_used(&op->link));
    CHECK(!op->loop || op->loop->submitting == 0);
    struct op_frame frame = op->frames[--op->depth];
    frame.done(op, frame.ctx);
}

void ops_finish(struct list *ops)
{
    struct list now;
    list_init(&now);
    list_take(&now, ops);
    for (struct link *at; (at = list_pop(&now));) op_finish(container_of(at, struct op, link));
}

void op_fail(struct op *op, int code, const char *text)
{
    op_clear_answer(op);
    err_set(&op->err, code, "%s", text);
    op_finish(op);
}

void op_clear_answer(struct op *op)
{
    blob_unref(op->out.value);
    op->out = (struct answer){ 0 };
    op->err.code = 0;
    op->changed = op->answers = false;
    op->count = 0;
    op->markers = (struct marker_stats){ 0 };
    if (verb_is_run(op->verb) && op->run) run_ask_clear(op->run);
    if (verb_is_buffer(op->verb) && op->buffer) buffer_ask_clear(op->buffer);
    if (op->verb == VERB_RUN_CALL && op->call) run_call_ask_clear(op->call);
    if (op->verb == VERB_MUTATION && op->mutation) mutation_ask_clear(op->mutation);
    free(op->facts);
    op->facts = NULL;
    scan_clear(&op->scan);
}

size_t markers_batch_next(size_t batch, const struct marker_stats *told)
{
    if (told->fits) return told->fits;
    if (!told->more) return batch;
    bool room = batch + MARKERS_BATCH_STEP < MARKERS_BATCH_MAX;
    return room ? batch + MARKERS_BATCH_STEP : MARKERS_BATCH_MAX;
}

static struct fact *fact_room(struct op *op)
{
    if (!op->facts) op->facts = calloc(1, sizeof *op->facts);
    if (!op->facts || op->facts->count == FACTS_MAX) return NULL;
    return &op->facts->rows[op->facts->count++];
}

void fact_add(struct op *op, enum fact_level level, const char *name, const char *advice,
              const char *fmt, ...)
{
    struct fact *f = fact_room(op);
    if (!f) return;
    va_list args;
    va_start(args, fmt);
    *f = (struct fact){ .level = level, .plane = "" };
    snprintf(f->name, sizeof f->name, "%s", name);
    vsnprintf(f->text, sizeof f->text, fmt, args);
    if (advice) snprintf(f->advice, sizeof f->advice, "%s", advice);
    va_end(args);
}

void facts_take(struct op *to, struct op *from, const char *plane)
{
    struct facts *facts = from->facts;
    for (size_t i = 0; facts && i < facts->count; i++) {
        struct fact *f = fact_room(to);
        if (!f) break;
        *f = facts->rows[i];
        f->plane = plane;
    }
    from->facts = NULL;
    free(facts);
}

struct verdict op_decide(struct op *op, const struct record *stored, struct moment at)
{
    CHECK(verb_info[op->verb].rule);
    op_clear_answer(op);
    struct verdict v = verb_info[op->verb].rule(stored, &op->in, at);
    op->out = rules_answer(&v, stored, &op->in, at);
    blob_ref(op->out.value);
    bool done = op->out.retain_left_ms > 0;
    op->answers =
        op->verb == VERB_WATCH && done && bytes_eq(stored->fingerprint, op->in.fingerprint);
    return v;
}

int scan_add(struct scan *s, const struct key *k, const struct record *r, int64_t now_ms)
{
    if (s->count == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 16;
        struct scan_row *rows = realloc(s->rows, cap * sizeof *rows);
        if (!rows) return ERR_NOMEM;
        s->rows = rows;
        s->cap = cap;
    }
    uint8_t *frame = malloc(1 + k->scope.len + k->name.len);
    if (!frame) return ERR_NOMEM;
    size_t len = key_frame(k, frame);
    int64_t lease_left_ms = r->lease_until_ms - now_ms;
    s->rows[s->count++] = (struct scan_row){
        .frame = frame,
        .key = key_unframe(bytes_of(frame, len)),
        .state = r->state,
        .fence = r->fence,
        .claimed_at_ms = r->claimed_at_ms,
        .done_at_ms = r->done_at_ms,
        .lease_left_ms = r->state == RECORD_PENDING && lease_left_ms > 0 ? lease_left_ms : 0,
        .retain_left_ms = r->state == RECORD_DONE ? record_gone_at_ms(r) - now_ms : 0,
        .value_bytes = blob_bytes(r->value).len,
        .value_kept = r->value != NULL,
    };
    return 0;
}

void scan_clear(struct scan *s)
{
    for (size_t i = 0; i < s->count; i++) free(s->rows[i].frame);
    free(s->rows);
    *s = (struct scan){ 0 };
}
