/* http_runs_query.c - see http_runs_query.h. */
#include "daemon/http_runs_query.h"

#include "base/check.h"
#include "base/text.h"
#include "daemon/http_args.h"
#include "proto/number.h"

typedef int take_parameter(struct bytes text, struct http_run_args *ret, struct err *reterr);

static int take_limit(struct bytes text, struct http_run_args *ret, struct err *reterr)
{
    int64_t n;
    if (!number_parse(text, &n) || n < 1 || n > RUN_ROWS_MAX)
        return err_set(reterr, ERR_INVALID, "limit wants a number from 1 to 1000");
    ret->ask.limit = (size_t)n;
    return 0;
}

static int take_cursor(struct bytes text, struct http_run_args *ret, struct err *reterr)
{
    if (run_id_parse(text, &ret->ask.before)) return 0;
    return err_set(reterr, ERR_INVALID, "invalid cursor: it is not what a page gave");
}

/* Bits by enum run_state, and for what is not a state of its own: */
enum { STATUS_DELAYED = 0 };

static const struct {
    const char *name;
    unsigned bit;
} statuses[] = {
    { "DELAYED", STATUS_DELAYED },  { "QUEUED", RUN_QUEUED }, { "EXECUTING", RUN_EXECUTING },
    { "COMPLETED", RUN_COMPLETED }, { "FAILED", RUN_FAILED }, { "CANCELED", RUN_CANCELED },
};

static int take_status(struct bytes text, struct http_run_args *ret, struct err *reterr)
{
    struct bytes one;
    while (http_next_in_list(&text, &one)) {
        size_t i = 0, count = sizeof statuses / sizeof statuses[0];
        while (i < count && !bytes_eq(one, bytes_str(statuses[i].name))) i++;
        if (i == count) ret->statuses = 0;
        if (i == count) break;
        ret->statuses |= BIT(statuses[i].bit);
    }
    if (!ret->statuses)
        return err_set(reterr, ERR_INVALID,
                       "status wants DELAYED, QUEUED, EXECUTING, COMPLETED, FAILED, CANCELED, "
                       "or some of them with commas between");
    ret->ask.states = ret->statuses & ~BIT(STATUS_DELAYED);
    if (ret->statuses & BIT(STATUS_DELAYED)) ret->ask.states |= BIT(RUN_QUEUED);
    return 0;
}

static int take_task(struct bytes text, struct http_run_args *ret, struct err *reterr)
{
    ret->ask.task = text;
    return run_name_check(text, TASK_BYTES_MAX, "task", reterr);
}

static int take_queue(struct bytes text, struct http_run_args *ret, struct err *reterr)
{
    ret->ask.queue = text;
    return run_name_check(text, QUEUE_BYTES_MAX, "queue", reterr);
}

static int take_tag(struct bytes text, struct http_run_args *ret, struct err *reterr)
{
    ret->ask.tag = text;
    if (text.len && text.len <= TAG_BYTES_MAX && text_is_plain_utf8(text)) return 0;
    return err_set(reterr, ERR_INVALID, "tag wants text of 1 to %d bytes", TAG_BYTES_MAX);
}

static const struct parameter {
    const char *name;
    take_parameter *take;
} list_parameters[] = {
    { "limit", take_limit }, { "cursor", take_cursor }, { "status", take_status },
    { "task", take_task },   { "queue", take_queue },   { "tag", take_tag },
    { 0 },
}, no_parameters[] = { { 0 } };

static int take_query(struct http_door *d, const struct http_input *in,
                      const struct parameter *parameters, struct http_run_args *ret,
                      struct err *reterr)
{
    struct bytes query = in->request.query;
    uint8_t *memory = d->query;
    unsigned seen = 0;
    int r = 0;
    for (struct http_parameter p; !r && http_next_parameter(&query, &p);) {
        const struct parameter *at = parameters;
        size_t len;
        while (at->name && !bytes_eq(p.name, bytes_str(at->name))) at++;
        if (!at->name) return http_refuse_unknown(p.name, "parameter", NULL, reterr);
        if (seen & BIT(at - parameters))
            return err_set(reterr, ERR_INVALID, "%s was given twice", at->name);
        seen |= BIT(at - parameters);
        if (!http_unescape_parameter(p.value, memory, &len))
            return err_set(reterr, ERR_INVALID, "%s wants well-formed escapes", at->name);
        r = at->take(bytes_of(memory, len), ret, reterr);
        memory += len;
    }
    return r;
}

int http_take_list_query(struct http_door *d, const struct http_input *in,
                         struct http_run_args *ret, struct err *reterr)
{
    return take_query(d, in, list_parameters, ret, reterr);
}

int http_take_no_query(struct http_door *d, const struct http_input *in,
                       struct http_run_args *ret, struct err *reterr)
{
    return take_query(d, in, no_parameters, ret, reterr);
}

bool http_status_wanted(unsigned wanted, const struct run *r, int64_t now_ms)
{
    unsigned bit = run_is_delayed(r, now_ms) ? STATUS_DELAYED : (unsigned)r->state;
    return !wanted || wanted & BIT(bit);
}
