/* resp_answer.c - what came of a call, in RESP. */
#include "base/text.h"
#include "daemon/resp_session.h"

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
    default:
        return "ERR";
    }
}

void resp_write_error(struct resp_writer *w, const struct err *err)
{
    if (err->code == ERR_CANCELED)
        resp_say_error(w, "UNAVAILABLE", "nothing was done: the daemon stops, or you hung up");
    else
        resp_error(w, error_code(err->code), bytes_str(err->text));
}

static void write_claimed(struct resp_writer *w, struct call *call)
{
    char token[2 * sizeof(struct token) + 1];
    hex_encode(bytes_of(call_token(call)->bytes, sizeof(struct token)), token);
    resp_array(w, 4);
    resp_text(w, "claimed");
    resp_bulk(w, bytes_of(token, sizeof token - 1));
    resp_integer(w, (int64_t)call_answer(call)->fence);
    resp_integer(w, call_op(call)->in.lease_ms);
}

/* With `keep`, a long value is not written but handed over, with its length announced. */
static void write_named(struct resp_writer *w, const struct answer *out, struct blob **keep)
{
    struct bytes value = blob_bytes(out->value);
    resp_array(w, out->value ? 2 : 1);
    resp_text(w, outcome_name(out->outcome));
    if (!out->value) return;
    if (!keep || value.len < KEPT_BYTES_MIN) {
        resp_bulk(w, value);
        return;
    }
    buf_printf(w->out, "$%zu\r\n", value.len);
    *keep = blob_ref(out->value);
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
    case OUTCOME_CACHED:
    case OUTCOME_LOST:
    case OUTCOME_TIMED_OUT:
    case OUTCOME_ALREADY_DONE:
    case OUTCOME_ABSENT:
        write_named(w, out, keep);
        return;
    }
}

static void write_row(struct resp_writer *w, const struct scan_row *row)
{
    bool done = row->state == RECORD_DONE;
    resp_map(w, 6);
    resp_text(w, "scope");
    resp_bulk(w, row->key.scope);
    resp_text(w, "key");
    resp_bulk(w, row->key.name);
    resp_text(w, "state");
    resp_text(w, done ? "done" : "pending");
    resp_text(w, "fence");
    resp_integer(w, (int64_t)row->fence);
    resp_text(w, done ? "retain_left_ms" : "lease_left_ms");
    resp_integer(w, done ? row->retain_left_ms : row->lease_left_ms);
    resp_text(w, "value_bytes");
    if (done && row->value_kept)
        resp_integer(w, (int64_t)row->value_bytes);
    else
        resp_null(w);
}

static void write_scan(struct resp_writer *w, const struct scan *page)
{
    char cursor[CURSOR_TEXT_BYTES];
    resp_cursor_write(page, cursor);
    resp_array(w, 2);
    resp_text(w, cursor);
    resp_array(w, page->count);
    for (size_t i = 0; i < page->count; i++) write_row(w, &page->rows[i]);
}

void resp_write_call(struct resp_writer *w, struct call *call, enum verb verb,
                     struct blob **keep)
{
    if (call_error(call)->code)
        resp_write_error(w, call_error(call));
    else if (verb == VERB_SCAN)
        write_scan(w, &call_op(call)->scan);
    else
        write_outcome(w, call, keep);
}
