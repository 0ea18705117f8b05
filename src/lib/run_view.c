/* run_view.c - runs as callers of the library see them: struct run to struct once_run.
 *
 * An answer owns one block: what each public run points to is a copy of its own behind it. Tokens
 * are shown to whoever leases and to nobody else: with one, a reader could end the attempt. */
#include "base/check.h"
#include "base/text.h"
#include "lib/handle.h"

#include <stdlib.h>

#define SAME(public, internal) _Static_assert((int)(public) == (int)(internal), #public)
SAME(ONCE_RUN_QUEUED, RUN_QUEUED);
SAME(ONCE_RUN_EXECUTING, RUN_EXECUTING);
SAME(ONCE_RUN_COMPLETED, RUN_COMPLETED);
SAME(ONCE_RUN_FAILED, RUN_FAILED);
SAME(ONCE_RUN_CANCELED, RUN_CANCELED);
SAME(sizeof((struct once_run *)0)->id, sizeof((struct run_id *)0)->text);

struct shown {
    struct once_run run;
    struct once_bytes tags[TAGS_MAX];
    struct run *copy;
};

struct page {
    size_t count;
    const struct once_run **runs; /* into shown, with room for all of them */
    struct shown shown[];
};

/* ---- one run ---- */

const char *once_run_status_name(int status)
{
    static const char *const names[] = {
        [ONCE_RUN_QUEUED] = "QUEUED",       [ONCE_RUN_EXECUTING] = "EXECUTING",
        [ONCE_RUN_COMPLETED] = "COMPLETED", [ONCE_RUN_FAILED] = "FAILED",
        [ONCE_RUN_CANCELED] = "CANCELED",   [ONCE_RUN_DELAYED] = "DELAYED"
    };
    bool known = status >= ONCE_RUN_QUEUED && status <= ONCE_RUN_DELAYED;
    return known ? names[status] : "unknown";
}

static int status_of(const struct run *r, int64_t now_ms)
{
    return run_is_delayed(r, now_ms) ? ONCE_RUN_DELAYED : (int)r->state;
}

static struct once_bytes public_bytes(struct bytes b)
{
    return (struct once_bytes){ b.data, b.len };
}

static void show_tags(struct shown *s)
{
    struct bytes tags = s->copy->tags, tag;
    while (s->run.tag_count < TAGS_MAX && tags_next(&tags, &tag))
        s->tags[s->run.tag_count++] = public_bytes(tag);
    s->run.tags = s->tags;
}

static void show_times(struct once_run *to, const struct run *r)
{
    to->created_at_ms = r->created_at_ms;
    to->delay_until_ms = r->delay_until_ms;
    to->available_at_ms = r->available_at_ms;
    to->started_at_ms = r->started_at_ms;
    to->finished_at_ms = r->finished_at_ms;
    to->lease_ms = r->lease_ms;
    to->lease_until_ms = r->lease_until_ms;
    to->key_until_ms = r->key_until_ms;
}

static void show(struct shown *s, int64_t now_ms, bool to_its_worker)
{
    const struct run *r = s->copy;
    int status = status_of(r, now_ms);
    s->run = (struct once_run){ .status = status,
                                .status_name = once_run_status_name(status),
                                .env = public_bytes(r->env),
                                .task = public_bytes(r->task),
                                .queue = public_bytes(r->queue),
                                .ordering_key = public_bytes(r->ordering_key),
                                .payload = public_bytes(r->payload),
                                .key = public_bytes(r->key),
                                .key_held = run_holds_key(r, now_ms),
                                .metadata = public_bytes(r->metadata),
                                .metadata_version = r->metadata_version,
                                .output = public_bytes(r->output),
                                .error = public_bytes(r->error),
                                .attempts = r->attempts,
                                .attempts_max = r->attempts_max,
                                .stalls = r->stalls,
                                .fence = r->fence };
    memcpy(s->run.id, r->id.text, sizeof s->run.id);
    memcpy(s->run.canonical_id, r->canonical.text, sizeof s->run.canonical_id);
    if (to_its_worker)
        hex_encode(bytes_of(r->token.bytes, sizeof r->token.bytes), s->run.token);
    show_times(&s->run, r);
    show_tags(s);
}

/* ---- an answer ---- */

static void page_free(struct page *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->count; i++) run_free(p->shown[i].copy);
    free(p->runs);
    free(p);
}

static bool is_shown(const struct once_call *c, const struct run *r, int64_t now_ms)
{
    if (c->question != ASK_LIST || !c->statuses) return true;
    return c->statuses & 1u << status_of(r, now_ms);
}

static int page_add(struct page *p, const struct run *r, int64_t now_ms, bool to_its_worker)
{
    struct shown *s = &p->shown[p->count];
    s->copy = run_copy(r);
    if (!s->copy) return ERR_NOMEM;
    show(s, now_ms, to_its_worker);
    p->runs[p->count++] = &s->run;
    return 0;
}

static int page_new(const struct once_call *c, const struct run_answer *from,
                    struct page **ret_page)
{
    size_t rows = from->rows.count;
    struct page *p = calloc(1, sizeof *p + rows * sizeof p->shown[0]);
    if (p) p->runs = calloc(rows ? rows : 1, sizeof *p->runs);
    int r = p && p->runs ? 0 : ERR_NOMEM;
    for (size_t i = 0; !r && i < rows; i++)
        if (is_shown(c, from->rows.rows[i], from->now_ms))
            r = page_add(p, from->rows.rows[i], from->now_ms, c->question == ASK_LEASE);
    if (r)
        page_free(p);
    else
        *ret_page = p;
    return r;
}

int run_answer_fill(const struct once_call *c, struct once_run_answer *ret_answer)
{
    const struct run_answer *from = run_call_answer(c->run_call);
    const struct run_rows *rows = &from->rows;
    struct page *p;
    int r = page_new(c, from, &p);
    if (r) return r;
    *ret_answer = (struct once_run_answer){ .outcome = (int)from->outcome,
                                            .reason = from->reason,
                                            .run = p->count ? p->runs[0] : NULL,
                                            .runs = p->runs,
                                            .count = p->count,
                                            .buffered = from->buffered,
                                            .degraded = from->degraded,
                                            .waited_ms = run_call_waited_ms(c->run_call),
                                            .owner = p };
    if (rows->more && rows->count)
        memcpy(ret_answer->next, rows->rows[rows->count - 1]->id.text, sizeof ret_answer->next);
    return 0;
}

void once_run_answer_clear(struct once_run_answer *answer)
{
    page_free(answer->owner);
    *answer = (struct once_run_answer){ 0 };
}
