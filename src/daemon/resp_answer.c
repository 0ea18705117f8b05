/* resp_answer.c - what came of a call, in RESP. */
#include "base/text.h"
#include "daemon/cursor.h"
#include "daemon/resp_session.h"

#include <stdio.h>

enum { KEPT_BYTES_MIN = 4096 }; /* of a value that is worth a reference */

static const char *error_code(int code)
{
    switch (code) {
    case ERR_NOMEM:
        return "OOM";
    case ERR_UNAVAILABLE:
    case ERR_CANCELED:
        return "UNAVAILABLE";
    case ERR_AMBIGUOUS:
        return "AMBIGUOUS";
    case ERR_CORRUPT:
        return "CORRUPT";
    case ERR_UNSUPPORTED:
        return "UNSUPPORTED";
    default:
        return "ERR";
    }
}

void resp_write_error(struct resp_writer *w, const struct err *err)
{
    if (err->code == ERR_CANCELED)
        resp_say_error(
            w, "UNAVAILABLE",
            "nothing was done: the daemon stops, you hung up, or your token is void");
    else
        resp_error(w, error_code(err->code), bytes_str(err->text));
}

static void write_token(struct resp_writer *w, struct call *call)
{
    char token[2 * sizeof(struct token) + 1];
    hex_encode(bytes_of(call_token(call)->bytes, sizeof(struct token)), token);
    resp_bulk(w, bytes_of(token, sizeof token - 1));
}

static void write_claimed(struct resp_writer *w, struct call *call)
{
    resp_array(w, 4);
    resp_text(w, "claimed");
    write_token(w, call);
    resp_integer(w, (int64_t)call_answer(call)->fence);
    resp_integer(w, call_op(call)->in.lease_ms);
}

/* With `keep`, a long value is not written but handed over, with its length announced. */
static void write_value(struct resp_writer *w, struct blob *value, struct blob **keep)
{
    struct bytes content = blob_bytes(value);
    if (!keep || content.len < KEPT_BYTES_MIN) {
        resp_bulk(w, content);
        return;
    }
    buf_printf(w->out, "$%zu\r\n", content.len);
    *keep = blob_ref(value);
}

static void write_named(struct resp_writer *w, const struct answer *out, struct blob **keep)
{
    resp_array(w, out->value ? 2 : 1);
    resp_text(w, outcome_name(out->outcome));
    if (out->value) write_value(w, out->value, keep);
}

static void write_outcome(struct resp_writer *w, struct call *call, struct blob **keep)
{
    const struct answer *out = call_answer(call);
    switch (out->outcome) {
    case OUTCOME_CLAIMED:
        write_claimed(w, call);
        return;
    case OUTCOME_IN_PROGRESS:
        resp_array(w, 2);
        resp_text(w, outcome_name(out->outcome));
        resp_integer(w, out->lease_left_ms);
        return;
    case OUTCOME_MISMATCH:
        resp_say_error(w, "MISMATCH", "%s", outcome_info(out->outcome)->text);
        return;
    case OUTCOME_OK:
        resp_simple(w, "OK");
        return;
    case OUTCOME_REFUSED:
    case OUTCOME_CONFLICT: /* of runs */
    case OUTCOME_CACHED:
    case OUTCOME_LOST:
    case OUTCOME_TIMED_OUT:
    case OUTCOME_ALREADY_DONE:
    case OUTCOME_ABSENT:
        write_named(w, out, keep);
        return;
    }
}

/* ---- META: everything that is known ---- */

static void pair_integer(struct resp_writer *w, const char *name, int64_t n)
{
    resp_text(w, name);
    resp_integer(w, n);
}

static void pair_boolean(struct resp_writer *w, const char *name, bool yes)
{
    resp_text(w, name);
    resp_boolean(w, yes);
}

enum { SEEN_PAIRS = 5 };

/* What an answer says of the record. A version has 64 bits, so it is a text. */
static void write_seen(struct resp_writer *w, const struct answer *out)
{
    char version[24];
    snprintf(version, sizeof version, "%llu", (unsigned long long)out->version);
    resp_text(w, "outcome");
    resp_text(w, outcome_name(out->outcome));
    pair_integer(w, "fence", (int64_t)out->fence);
    resp_text(w, "version");
    resp_text(w, version);
    pair_integer(w, "lease_left_ms", out->lease_left_ms);
    pair_integer(w, "retain_left_ms", out->retain_left_ms);
}

/* The value is the last of it: it may have to follow. */
static void write_meta(struct resp_writer *w, struct call *call, const struct call_form *form,
                       struct blob **keep)
{
    const struct answer *out = call_answer(call);
    resp_map(w, SEEN_PAIRS + 8);
    write_seen(w, out);
    pair_boolean(w, "mine", out->mine);
    pair_boolean(w, "taken_over", out->taken_over);
    pair_boolean(w, "changed", call_op(call)->changed);
    pair_boolean(w, "degraded", out->degraded);
    pair_boolean(w, "durable", form->durable);
    pair_integer(w, "waited_ms", call_waited_ms(call));
    resp_text(w, "token");
    if (out->outcome == OUTCOME_CLAIMED)
        write_token(w, call);
    else
        resp_null(w);
    resp_text(w, "value");
    if (out->value)
        write_value(w, out->value, keep);
    else
        resp_null(w);
}

/* Without an answer there is nothing to say but "look again": what the watch saw is what it was
 * given, or older than the change. */
void resp_write_told(struct resp_writer *w, int64_t id, const struct answer *answer)
{
    resp_push(w, 3);
    resp_text(w, "once.watch");
    resp_integer(w, id);
    if (!answer) {
        resp_null(w);
        return;
    }
    resp_map(w, SEEN_PAIRS + 1);
    write_seen(w, answer);
    resp_text(w, "value");
    if (answer->value)
        resp_bulk(w, blob_bytes(answer->value));
    else
        resp_null(w);
}

/* ---- about more than one record ---- */

static void write_row(struct resp_writer *w, const struct scan_row *row)
{
    bool done = row->state == RECORD_DONE;
    resp_map(w, 8);
    resp_text(w, "scope");
    resp_bulk(w, row->key.scope);
    resp_text(w, "key");
    resp_bulk(w, row->key.name);
    resp_text(w, "state");
    resp_text(w, done ? "done" : "pending");
    pair_integer(w, "fence", (int64_t)row->fence);
    pair_integer(w, "claimed_at_ms", row->claimed_at_ms);
    pair_integer(w, "done_at_ms", row->done_at_ms);
    pair_integer(w, done ? "retain_left_ms" : "lease_left_ms",
                 done ? row->retain_left_ms : row->lease_left_ms);
    resp_text(w, "value_bytes");
    if (done && row->value_kept)
        resp_integer(w, (int64_t)row->value_bytes);
    else
        resp_null(w);
}

static void write_scan(struct resp_writer *w, const struct scan *page)
{
    char cursor[CURSOR_TEXT_BYTES];
    resp_array(w, 2);
    resp_text(w, cursor_write(page, cursor) ? cursor : "0");
    resp_array(w, page->count);
    for (size_t i = 0; i < page->count; i++) write_row(w, &page->rows[i]);
}

static void write_stats(struct resp_writer *w, const struct store_stats *stats)
{
    resp_map(w, 7);
    pair_integer(w, "pending", (int64_t)stats->pending);
    pair_integer(w, "lapsed", (int64_t)stats->lapsed);
    pair_integer(w, "done", (int64_t)stats->done);
    pair_integer(w, "gone", (int64_t)stats->gone);
    pair_integer(w, "bytes", (int64_t)stats->bytes);
    pair_integer(w, "fence_floor", (int64_t)stats->fence_floor);
    pair_integer(w, "now_ms", stats->now_ms);
}

static void write_fact(struct resp_writer *w, const struct fact *f, bool durable)
{
    static const char *const levels[] = { "ok", "warn", "fail" };
    const char *alone = durable ? "ledger" : "coord";
    resp_array(w, 5);
    resp_text(w, levels[f->level]);
    resp_text(w, *f->plane ? f->plane : alone);
    resp_text(w, f->name);
    resp_text(w, f->text);
    resp_text(w, f->advice);
}

static void write_facts(struct resp_writer *w, const struct facts *facts, bool durable)
{
    size_t count = facts ? facts->count : 0;
    resp_array(w, count);
    for (size_t i = 0; i < count; i++) write_fact(w, &facts->rows[i], durable);
}

void resp_write_call(struct resp_writer *w, struct call *call, const struct call_form *form,
                     struct blob **keep)
{
    if (call_error(call)->code)
        resp_write_error(w, call_error(call));
    else if (form->verb == VERB_SCAN)
        write_scan(w, &call_op(call)->scan);
    else if (form->verb == VERB_EXPIRE)
        resp_integer(w, (int64_t)call_op(call)->count);
    else if (form->verb == VERB_STATS)
        write_stats(w, &call_op(call)->stats);
    else if (form->verb == VERB_PING)
        write_facts(w, call_op(call)->facts, form->durable);
    else if (form->meta)
        write_meta(w, call, form, keep);
    else
        write_outcome(w, call, keep);
}
