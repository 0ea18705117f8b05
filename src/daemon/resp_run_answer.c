/* resp_run_answer.c - what came of a question about runs, in RESP: for people, or as it is (RAW). */
#include "base/text.h"
#include "daemon/resp_session.h"

#include <stdio.h>

/* ---- a run as a map ---- */

static void pair_text(struct resp_writer *w, const char *name, const char *text)
{
    resp_text(w, name);
    resp_text(w, text);
}

/* Empty: there is none. */
static void pair_bytes(struct resp_writer *w, const char *name, struct bytes content)
{
    resp_text(w, name);
    if (content.len)
        resp_bulk(w, content);
    else
        resp_null(w);
}

static void pair_integer(struct resp_writer *w, const char *name, int64_t n)
{
    resp_text(w, name);
    resp_integer(w, n);
}

/* Of times, 0 is never. */
static void pair_time(struct resp_writer *w, const char *name, int64_t ms)
{
    resp_text(w, name);
    if (ms)
        resp_integer(w, ms);
    else
        resp_null(w);
}

static void pair_tags(struct resp_writer *w, struct bytes tags)
{
    struct bytes tag;
    resp_text(w, "tags");
    resp_array(w, tags_count(tags));
    while (tags_next(&tags, &tag)) resp_bulk(w, tag);
}

enum { RUN_PAIRS = 22 };

static void write_run(struct resp_writer *w, const struct run *r, int64_t now_ms)
{
    resp_map(w, RUN_PAIRS);
    pair_text(w, "id", r->id.text);
    pair_text(w, "status", run_status(r, now_ms));
    pair_bytes(w, "env", r->env);
    pair_bytes(w, "task", r->task);
    pair_bytes(w, "queue", r->queue);
    pair_bytes(w, "payload", r->payload);
    pair_bytes(w, "idempotency_key", r->key);
    pair_time(w, "key_until_ms", r->key_held ? r->key_until_ms : 0);
    pair_bytes(w, "ordering_key", r->ordering_key);
    pair_tags(w, r->tags);
    pair_bytes(w, "metadata", r->metadata);
    pair_integer(w, "metadata_version", (int64_t)r->metadata_version);
    pair_bytes(w, "output", r->output);
    pair_bytes(w, "error", r->error);
    pair_integer(w, "attempts", r->attempts);
    pair_integer(w, "attempts_max", r->attempts_max);
    pair_integer(w, "stalls", r->stalls);
    pair_time(w, "created_at_ms", r->created_at_ms);
    pair_time(w, "delay_until_ms", r->delay_until_ms);
    pair_time(w, "started_at_ms", r->started_at_ms);
    pair_time(w, "finished_at_ms", r->finished_at_ms);
    pair_bytes(w, "canonical_id", run_id_bytes(&r->canonical));
}

/* ---- lists ---- */

static size_t run_bytes(const struct run *r)
{
    return sizeof *r + r->payload.len + r->metadata.len + r->output.len + r->error.len +
           r->tags.len;
}

/* How many of the rows fit an answer: one in any case. */
static size_t rows_that_fit(const struct run_rows *rows, size_t bytes_max)
{
    size_t bytes = 0;
    for (size_t i = 0; i < rows->count; i++) {
        bytes += run_bytes(rows->rows[i]);
        if (i && bytes > bytes_max) return i;
    }
    return rows->count;
}

/* What a page would have of this list: less than was found is asked for again, before the last. */
static struct run_rows page_of(const struct run_answer *a, const struct run_ask_form *form)
{
    struct run_rows page = a->rows;
    if (form->form != FORM_LIST) return page;
    page.count = rows_that_fit(&a->rows, form->page_bytes_max);
    page.more = a->rows.more || page.count < a->rows.count;
    return page;
}

static void write_list(struct resp_writer *w, const struct run_rows *page, int64_t now_ms)
{
    bool more = page->more && page->count;
    resp_array(w, 2);
    resp_text(w, more ? page->rows[page->count - 1]->id.text : "0");
    resp_array(w, page->count);
    for (size_t i = 0; i < page->count; i++) write_run(w, page->rows[i], now_ms);
}

static void write_leased(struct resp_writer *w, const struct run *r)
{
    char token[2 * sizeof(struct token) + 1];
    hex_encode(bytes_of(r->token.bytes, sizeof r->token.bytes), token);
    resp_array(w, 8);
    resp_text(w, r->id.text);
    resp_text(w, token);
    resp_integer(w, (int64_t)r->fence);
    resp_bulk(w, r->payload);
    resp_integer(w, r->attempts);
    resp_integer(w, r->attempts_max);
    resp_bulk(w, r->task);
    resp_integer(w, r->lease_ms);
}

static void write_pull(struct resp_writer *w, const struct run_rows *rows)
{
    resp_array(w, rows->count);
    for (size_t i = 0; i < rows->count; i++) write_leased(w, rows->rows[i]);
}

/* ---- outcomes ---- */

static void write_triggered(struct resp_writer *w, const struct run_answer *a)
{
    const struct run *r = a->rows.rows[0];
    resp_array(w, 4);
    resp_text(w, a->outcome == OUTCOME_OK ? "created" : outcome_name(a->outcome));
    resp_text(w, r->id.text);
    resp_text(w, run_status(r, a->now_ms));
    resp_text(w, a->buffered ? "buffer" : "ledger");
}

static void write_found(struct resp_writer *w, const struct run_answer *a,
                        const struct run_ask_form *form)
{
    struct run_rows page = page_of(a, form);
    switch (form->form) {
    case FORM_TRIGGER:
        write_triggered(w, a);
        return;
    case FORM_RUN:
        write_run(w, a->rows.rows[0], a->now_ms);
        return;
    case FORM_LIST:
        write_list(w, &page, a->now_ms);
        return;
    case FORM_PULL:
        write_pull(w, &a->rows);
        return;
    case FORM_VERSION:
        resp_integer(w, (int64_t)a->rows.rows[0]->metadata_version);
        return;
    case FORM_OK:
        resp_simple(w, "OK");
        return;
    }
}

/* Has it the run that its form tells of? */
static bool is_whole(const struct run_answer *a, const struct run_ask_form *form)
{
    bool tells =
        form->form == FORM_TRIGGER || form->form == FORM_RUN || form->form == FORM_VERSION;
    return !tells || a->rows.count > 0;
}

static void write_refusal(struct resp_writer *w, const char *code, const struct run_answer *a)
{
    resp_say_error(w, code, "%s", a->reason ? a->reason : outcome_info(a->outcome)->text);
}

static void write_answer(struct resp_writer *w, const struct run_answer *a,
                         const struct run_ask_form *form)
{
    switch (a->outcome) {
    case OUTCOME_OK:
    case OUTCOME_CACHED:
        if (is_whole(a, form))
            write_found(w, a, form);
        else
            resp_say_error(w, "CORRUPT", "there is an answer without its run");
        return;
    case OUTCOME_MISMATCH:
        resp_say_error(w, "MISMATCH",
                       "same key, other payload: it was used for something else");
        return;
    case OUTCOME_REFUSED:
        write_refusal(w, "REFUSED", a);
        return;
    case OUTCOME_CONFLICT:
        write_refusal(w, "CONFLICT", a);
        return;
    case OUTCOME_CLAIMED:
    case OUTCOME_IN_PROGRESS:
    case OUTCOME_TIMED_OUT:
    case OUTCOME_ALREADY_DONE:
    case OUTCOME_LOST:
    case OUTCOME_ABSENT:
        resp_array(w, 1);
        resp_text(w, outcome_name(a->outcome));
        return;
    }
}

void resp_write_run_call(struct resp_writer *w, const struct run_call *call,
                         const struct run_ask_form *form)
{
    if (run_call_error(call)->code)
        resp_write_error(w, run_call_error(call));
    else
        write_answer(w, run_call_answer(call), form);
}

/* ---- RAW ---- */

static void write_packed(struct resp_writer *w, const struct run *r)
{
    struct buf packed;
    buf_init(&packed, w->out->bytes_max);
    run_encode(r, &packed);
    if (buf_failed(&packed))
        w->out->failed = buf_failed(&packed); /* it is closed for that */
    else
        resp_bulk(w, buf_bytes(&packed));
    buf_fini(&packed);
}

static void write_raw(struct resp_writer *w, const struct run_answer *a,
                      const struct run_ask_form *form)
{
    struct run_rows page = page_of(a, form);
    resp_array(w, 7);
    resp_text(w, outcome_name(a->outcome));
    if (a->reason)
        resp_text(w, a->reason);
    else
        resp_null(w);
    resp_boolean(w, a->buffered);
    resp_boolean(w, a->degraded);
    resp_integer(w, a->now_ms);
    resp_boolean(w, page.more);
    resp_array(w, page.count);
    for (size_t i = 0; i < page.count; i++) write_packed(w, page.rows[i]);
}

void resp_push_run_call(struct resp_writer *w, int64_t raw_id, const struct run_call *call,
                        const struct run_ask_form *form)
{
    resp_push(w, 3);
    resp_text(w, "once.run");
    resp_integer(w, raw_id);
    if (run_call_error(call)->code)
        resp_write_error(w, run_call_error(call));
    else
        write_raw(w, run_call_answer(call), form);
}
