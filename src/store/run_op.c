/* run_op.c - see run_op.h. */
#include "store/run_op.h"

#include "base/check.h"

#include <stdlib.h>

/* ---- copies in one piece ---- */

/* The views of a struct, to be moved behind it. */
static size_t views_bytes(struct bytes *const *views, size_t count)
{
    size_t len = 0;
    for (size_t i = 0; i < count; i++) len += views[i]->len;
    return len;
}

static void views_move(struct bytes *const *views, size_t count, uint8_t *to)
{
    for (size_t i = 0; i < count; i++) {
        if (views[i]->len) memcpy(to, views[i]->data, views[i]->len);
        views[i]->data = to;
        to += views[i]->len;
    }
}

#define RUN_VIEWS(r)                                                                           \
    {                                                                                          \
        &(r)->env, &(r)->task, &(r)->queue, &(r)->payload, &(r)->ordering_key,                 \
            &(r)->fingerprint, &(r)->key, &(r)->tags, &(r)->metadata, &(r)->output,            \
            &(r)->error                                                                        \
    }

struct run *run_copy(const struct run *r)
{
    struct run shape = *r;
    struct bytes *views[] = RUN_VIEWS(&shape);
    enum { VIEWS = sizeof views / sizeof views[0] };
    struct run *copy = malloc(sizeof *copy + views_bytes(views, VIEWS));
    if (!copy) return NULL;
    views_move(views, VIEWS, (uint8_t *)(copy + 1));
    *copy = shape;
    return copy;
}

void run_free(struct run *r)
{
    free(r);
}

static struct entry *entry_copy(const struct entry *e)
{
    struct entry shape = *e;
    struct bytes *views[] = { &shape.env, &shape.run, &shape.changes };
    struct entry *copy = malloc(sizeof *copy + views_bytes(views, 3));
    if (!copy) return NULL;
    views_move(views, 3, (uint8_t *)(copy + 1));
    *copy = shape;
    return copy;
}

/* ---- rows ---- */

/* Room for one more pointer. */
static int grow(void *rows, size_t count, size_t *cap)
{
    if (count < *cap) return 0;
    size_t more = *cap ? *cap * 2 : 8;
    void *moved = realloc(*(void **)rows, more * sizeof(void *));
    if (!moved) return ERR_NOMEM;
    *(void **)rows = moved;
    *cap = more;
    return 0;
}

int run_rows_add(struct run_rows *rows, const struct run *r)
{
    struct run *copy = grow(&rows->rows, rows->count, &rows->cap) ? NULL : run_copy(r);
    if (!copy) return ERR_NOMEM;
    rows->rows[rows->count++] = copy;
    rows->bytes += r->payload.len + r->metadata.len + r->output.len + r->error.len;
    return 0;
}

void run_rows_clear(struct run_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) run_free(rows->rows[i]);
    free(rows->rows);
    *rows = (struct run_rows){ 0 };
}

int entries_add(struct entries *to, const struct entry *e)
{
    struct entry *copy = grow(&to->rows, to->count, &to->cap) ? NULL : entry_copy(e);
    if (!copy) return ERR_NOMEM;
    to->rows[to->count++] = copy;
    return 0;
}

void entries_clear(struct entries *e)
{
    for (size_t i = 0; i < e->count; i++) free(e->rows[i]);
    free(e->rows);
    *e = (struct entries){ 0 };
}

void run_ask_clear(struct run_ask *a)
{
    run_rows_clear(&a->rows);
    a->put = PUT_INSERT;
    a->reason = NULL;
    a->now_ms = 0;
    a->next_due_ms = INT64_MAX;
}

void buffer_ask_clear(struct buffer_ask *a)
{
    entries_clear(&a->entries);
    a->place = 0;
    a->settled = 0;
    a->queued = a->leased = 0;
    a->oldest_ms = a->now_ms = 0;
}

void run_call_ask_clear(struct run_call_ask *a)
{
    run_rows_clear(&a->answer.rows);
    a->answer = (struct run_answer){ 0 };
    a->reason[0] = '\0';
}

bool run_args_write(const struct run_args *args)
{
    return args->question != ASK_GET && args->question != ASK_LIST;
}
