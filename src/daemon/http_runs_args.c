/* http_runs_args.c - see http_runs_args.h. */
#include "daemon/http_runs_args.h"

#include "base/check.h"
#include "base/text.h"
#include "core/key.h"
#include "core/metadata.h"
#include "daemon/http_args.h"
#include "proto/chars.h"
#include "proto/number.h"
#include "proto/rfc3339.h"

#include <stdlib.h>

enum { NAME_SHOWN_BYTES = 40, MEMBERS_MAX = 24 };

/* ---- one level of a body ---- */

struct level {
    uint8_t *text;
    struct json j;
    struct json_node nodes[1 + 2 * MEMBERS_MAX + HTTP_RUN_DEPTH_MAX];
};

static int level_read(struct level *l, uint8_t *text, size_t len, struct err *reterr)
{
    struct json_limits limits = { .nodes_max = sizeof l->nodes / sizeof l->nodes[0],
                                  .depth_max = HTTP_RUN_DEPTH_MAX,
                                  .depth_kept = 1 };
    struct err why;
    l->text = text;
    if (json_read(bytes_of(text, len), &limits, l->nodes, &l->j, &why) == 0) return 0;
    return err_set(reterr, ERR_INVALID, "the body is not JSON: %.140s", why.text);
}

/* The text of a value; of a string with its quotes. */
static struct bytes raw_of(const struct level *l, const struct json_node *n)
{
    struct bytes text = json_text(&l->j, n);
    if (n->kind != JSON_KIND_STRING) return text;
    return bytes_of(text.data - 1, text.len + 2);
}

/* In place: what was written in JSON is never shorter than what it says. */
static struct bytes string_of(struct level *l, const struct json_node *n)
{
    uint8_t *at = l->text + n->start;
    return n->escaped ? bytes_of(at, json_unescape(&l->j, n, at)) : json_text(&l->j, n);
}

/* Empty, if it is something else. */
static struct bytes text_of(struct level *l, const struct json_node *n)
{
    return n->kind == JSON_KIND_STRING ? string_of(l, n) : (struct bytes){ 0 };
}

/* ---- members ---- */

struct member;

typedef int take_member(const struct member *m, struct level *l, const struct json_node *n,
                        struct http_run_args *ret, struct err *reterr);

struct member {
    const char *name;
    take_member *take;
    size_t at; /* in struct http_run_args */
    bool required;
};

#define AT(field) offsetof(struct http_run_args, field)

static int wants(const struct member *m, const char *what, struct err *reterr)
{
    return err_set(reterr, ERR_INVALID, "%s wants %s", m->name, what);
}

static const struct member *member_find(const struct member *members, struct bytes name)
{
    for (const struct member *m = members; m->name; m++)
        if (bytes_eq(name, bytes_str(m->name))) return m;
    return NULL;
}

/* The same but for case and underscores: what a person from another language would write. */
static bool is_alike(struct bytes a, struct bytes b)
{
    for (;;) {
        while (a.len && a.data[0] == '_') a = bytes_from(a, 1);
        while (b.len && b.data[0] == '_') b = bytes_from(b, 1);
        if (!a.len || !b.len) return a.len == b.len;
        if (char_lower(a.data[0]) != char_lower(b.data[0])) return false;
        a = bytes_from(a, 1);
        b = bytes_from(b, 1);
    }
}

static int unknown(const struct member *members, struct bytes name, const char *what,
                   struct err *reterr)
{
    int shown = (int)(name.len < NAME_SHOWN_BYTES ? name.len : NAME_SHOWN_BYTES);
    const struct member *m = members;
    while (m->name && !is_alike(name, bytes_str(m->name))) m++;
    return err_set(reterr, ERR_INVALID, "there is no %s \"%.*s\" here%s%s%s", what, shown,
                   (const char *)name.data, m->name ? "; did you mean \"" : "",
                   m->name ? m->name : "", m->name ? "\"?" : "");
}

static int check_required(const struct member *members, unsigned seen, struct err *reterr)
{
    for (const struct member *m = members; m->name; m++)
        if (m->required && !(seen & BIT(m - members)))
            return err_set(reterr, ERR_INVALID, "%s is missing", m->name);
    return 0;
}

static int take_members(struct level *l, const struct member *members, const char *what,
                        struct http_run_args *ret, struct err *reterr)
{
    const struct json_node *key = l->nodes + 1, *end = json_next(&l->j, l->nodes);
    unsigned seen = 0;
    for (; key < end; key = json_next(&l->j, key + 1)) {
        struct bytes name = string_of(l, key);
        const struct member *m = member_find(members, name);
        int r = m ? m->take(m, l, key + 1, ret, reterr) : unknown(members, name, what, reterr);
        if (r) return r;
        seen |= BIT(m - members); /* twice: the reader has refused it */
    }
    return check_required(members, seen, reterr);
}

/* An object within a body; `what` names it. */
static int take_object(uint8_t *text, size_t len, const struct member *members,
                       const char *what, struct http_run_args *ret, struct err *reterr)
{
    struct level l;
    int r = level_read(&l, text, len, reterr);
    return r ? r : take_members(&l, members, what, ret, reterr);
}

static int take_body(struct http_input *in, const struct member *members,
                     struct http_run_args *ret, struct err *reterr)
{
    struct level l;
    if (in->body_bytes == 0) return check_required(members, 0, reterr);
    int r = level_read(&l, in->body, in->body_bytes, reterr);
    if (r) return r;
    if (l.nodes[0].kind != JSON_KIND_OBJECT)
        return err_set(reterr, ERR_INVALID, "the body is not a JSON object");
    return take_members(&l, members, "member", ret, reterr);
}

/* ---- one value ---- */

static int take_text(const struct member *m, struct level *l, const struct json_node *n,
                     struct http_run_args *ret, struct err *reterr)
{
    if (n->kind != JSON_KIND_STRING || n->len == 0)
        return wants(m, "text, and not none", reterr);
    *(struct bytes *)((char *)ret + m->at) = string_of(l, n);
    return 0;
}

static int take_id(const struct member *m, struct level *l, const struct json_node *n,
                   struct http_run_args *ret, struct err *reterr)
{
    bool fine = run_id_parse(text_of(l, n), (struct run_id *)((char *)ret + m->at));
    return fine ? 0 : wants(m, "run_ and 26 digits of Crockford's base 32", reterr);
}

static int take_token(const struct member *m, struct level *l, const struct json_node *n,
                      struct http_run_args *ret, struct err *reterr)
{
    struct token *token = &ret->ask.change.token;
    bool fine = hex_decode(text_of(l, n), token->bytes, sizeof token->bytes);
    return fine ? 0 : wants(m, "32 hexadecimal digits, as the lease gave them", reterr);
}

/* Milliseconds, or "30s", whose text is `text`: escapes are undone once, in place. */
static bool duration_of(const struct json_node *n, struct bytes text, int64_t *ret_ms)
{
    if (n->kind == JSON_KIND_STRING) return duration_parse(text, DURATION_MS_MAX, ret_ms);
    if (n->kind != JSON_KIND_INTEGER || n->number < 0 || n->number > DURATION_MS_MAX)
        return false;
    *ret_ms = n->number;
    return true;
}

static int take_ms(const struct member *m, struct level *l, const struct json_node *n,
                   struct http_run_args *ret, struct err *reterr)
{
    if (duration_of(n, text_of(l, n), (int64_t *)(void *)((char *)ret + m->at))) return 0;
    return wants(m, "milliseconds or a text like \"30s\", of at most ten years", reterr);
}

/* From now, or a moment. One that has passed means at once. */
static int take_delay(const struct member *m, struct level *l, const struct json_node *n,
                      struct http_run_args *ret, struct err *reterr)
{
    struct bytes text = text_of(l, n);
    int64_t at_ms;
    if (duration_of(n, text, &ret->ask.delay_ms)) return 0;
    if (!rfc3339_parse(text, &at_ms))
        return wants(m,
                     "milliseconds, a text like \"10m\", or a time like "
                     "\"2026-11-16T06:00:00Z\", of at most ten years from now",
                     reterr);
    ret->ask.delay_ms = -1;
    ret->ask.run.delay_until_ms = at_ms > 0 ? at_ms : 0;
    return 0;
}

static int take_attempts(const struct member *m, struct level *l, const struct json_node *n,
                         struct http_run_args *ret, struct err *reterr)
{
    (void)l;
    if (n->kind != JSON_KIND_INTEGER || n->number < 1 || n->number > RUN_ATTEMPTS_MAX)
        return wants(m, "a number from 1 to 1000", reterr);
    ret->ask.run.attempts_max = (uint32_t)n->number;
    return 0;
}

static int take_count(const struct member *m, struct level *l, const struct json_node *n,
                      struct http_run_args *ret, struct err *reterr)
{
    (void)l;
    if (n->kind != JSON_KIND_INTEGER || n->number < 1 || n->number > RUN_ROWS_MAX)
        return wants(m, "a number from 1 to 1000", reterr);
    ret->ask.limit = (size_t)n->number;
    return 0;
}

static int take_version(const struct member *m, struct level *l, const struct json_node *n,
                        struct http_run_args *ret, struct err *reterr)
{
    (void)l;
    if (n->kind != JSON_KIND_INTEGER || n->number < 0)
        return wants(m, "a metadataVersion: a whole number from 0 on", reterr);
    ret->ask.change.version = (uint64_t)n->number;
    return 0;
}

static int take_mismatch(const struct member *m, struct level *l, const struct json_node *n,
                         struct http_run_args *ret, struct err *reterr)
{
    ret->ask.mismatch_returns = json_string_is(&l->j, n, bytes_str("return"));
    if (ret->ask.mismatch_returns || json_string_is(&l->j, n, bytes_str("error"))) return 0;
    return wants(m, "\"error\" or \"return\"", reterr);
}

/* ---- JSON that is not ours ---- */

static int take_json(const struct member *m, struct level *l, const struct json_node *n,
                     struct http_run_args *ret, struct err *reterr)
{
    (void)reterr;
    *(struct bytes *)((char *)ret + m->at) = raw_of(l, n);
    return 0;
}

static int take_metadata(const struct member *m, struct level *l, const struct json_node *n,
                         struct http_run_args *ret, struct err *reterr)
{
    if (n->kind != JSON_KIND_OBJECT) return wants(m, "a JSON object", reterr);
    return take_json(m, l, n, ret, reterr);
}

static int take_operations(const struct member *m, struct level *l, const struct json_node *n,
                           struct http_run_args *ret, struct err *reterr)
{
    if (n->kind != JSON_KIND_ARRAY) return wants(m, "an array of operations", reterr);
    return take_json(m, l, n, ret, reterr);
}

static int take_reason(const struct member *m, struct level *l, const struct json_node *n,
                       struct http_run_args *ret, struct err *reterr)
{
    if (n->kind != JSON_KIND_STRING) return wants(m, "text", reterr);
    return take_json(m, l, n, ret, reterr);
}

/* ---- tags ---- */

/* Behind those that are there, unless it is one of them. */
static int add_tag(const struct member *m, struct bytes tag, uint8_t *packed, size_t *len,
                   struct err *reterr)
{
    if (tag.len == 0) return wants(m, "tags that are not empty", reterr);
    if (tag.len > TAG_BYTES_MAX)
        return err_set(reterr, ERR_LIMIT, "a tag has %zu bytes; at most %d are allowed",
                       tag.len, TAG_BYTES_MAX);
    if (!text_is_plain_utf8(tag)) return wants(m, "text without control characters", reterr);
    if (tags_have(bytes_of(packed, *len), tag)) return 0;
    memmove(packed + *len + 1, tag.data, tag.len);
    packed[*len] = (uint8_t)tag.len;
    *len += 1 + tag.len;
    return 0;
}

/* Packed in the place of their array: a tag has two quotes there and here one byte for its length.
 * What was packed so far ends in front of the next one's opening quote. */
static int take_tags(const struct member *m, struct level *l, const struct json_node *n,
                     struct http_run_args *ret, struct err *reterr)
{
    uint8_t *packed = l->text + n->start;
    struct level list;
    size_t len = 0;
    if (n->kind != JSON_KIND_ARRAY) return wants(m, "an array of texts", reterr);
    if (n->count > 2 * MEMBERS_MAX)
        return err_set(reterr, ERR_LIMIT, "a run has at most %d tags", TAGS_MAX);
    int r = level_read(&list, packed, n->len, reterr);
    const struct json_node *tag = list.nodes + 1;
    for (size_t i = 0; !r && i < n->count; i++, tag++) {
        if (tag->kind != JSON_KIND_STRING) return wants(m, "an array of texts", reterr);
        r = add_tag(m, string_of(&list, tag), packed, &len, reterr);
    }
    *(struct bytes *)((char *)ret + m->at) = bytes_of(packed, len);
    return r;
}

/* ---- which members there are ---- */

static const struct member option_members[] = {
    { "idempotencyKey", take_text, AT(ask.run.key) },
    { "idempotencyKeyTTL", take_ms, AT(ask.key_ms) },
    { "delay", take_delay },
    { "tags", take_tags, AT(ask.run.tags) },
    { "metadata", take_metadata, AT(ask.run.metadata) },
    { "queue", take_text, AT(ask.run.queue) },
    { "orderingKey", take_text, AT(ask.run.ordering_key) },
    { "maxAttempts", take_attempts },
    { "id", take_id, AT(ask.run.id) },
    { "onMismatch", take_mismatch },
    { 0 },
};

static int take_options(const struct member *m, struct level *l, const struct json_node *n,
                        struct http_run_args *ret, struct err *reterr)
{
    if (n->kind != JSON_KIND_OBJECT) return wants(m, "an object", reterr);
    return take_object(l->text + n->start, n->len, option_members, "option", ret, reterr);
}

static const struct member trigger_members[] = {
    { "payload", take_json, AT(ask.run.payload) },
    { "options", take_options },
    { 0 },
};

static const struct member tags_members[] = {
    { "tags", take_tags, AT(ask.change.body), .required = true },
    { 0 },
};

static const struct member metadata_members[] = {
    { "metadata", take_metadata, AT(metadata) },
    { "operations", take_operations, AT(operations) },
    { "version", take_version },
    { 0 },
};

static const struct member cancel_members[] = {
    { "reason", take_reason, AT(ask.change.body) },
    { 0 },
};

static const struct member reschedule_members[] = {
    { "delay", take_delay, .required = true },
    { 0 },
};

static const struct member lease_members[] = {
    { "count", take_count },
    { "lease_ms", take_ms, AT(ask.lease_ms) },
    { "wait_ms", take_ms, AT(ask.wait_ms) },
    { 0 },
};

static const struct member complete_members[] = {
    { "token", take_token, .required = true },
    { "output", take_json, AT(ask.change.body) },
    { 0 },
};

static const struct member fail_members[] = {
    { "token", take_token, .required = true },
    { "error", take_json, AT(ask.change.body), .required = true },
    { "retry_in_ms", take_ms, AT(ask.change.retry_ms) },
    { 0 },
};

static const struct member heartbeat_members[] = {
    { "token", take_token, .required = true },
    { "lease_ms", take_ms, AT(ask.change.lease_ms) },
    { 0 },
};

static const struct member none[] = { { 0 } };

/* ---- a query ---- */

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

static const struct {
    const char *name;
    unsigned bit;
} statuses[] = {
    { "DELAYED", HTTP_STATUS_DELAYED }, { "QUEUED", RUN_QUEUED },
    { "EXECUTING", RUN_EXECUTING },     { "COMPLETED", RUN_COMPLETED },
    { "FAILED", RUN_FAILED },           { "CANCELED", RUN_CANCELED },
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
    ret->ask.states = ret->statuses & ~BIT(HTTP_STATUS_DELAYED);
    if (ret->statuses & BIT(HTTP_STATUS_DELAYED)) ret->ask.states |= BIT(RUN_QUEUED);
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
        if (!at->name) return unknown(none, p.name, "parameter", reterr);
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

bool http_status_wanted(unsigned wanted, const struct run *r, int64_t now_ms)
{
    unsigned bit = run_is_delayed(r, now_ms) ? HTTP_STATUS_DELAYED : (unsigned)r->state;
    return !wanted || wanted & BIT(bit);
}

/* ---- questions ---- */

static int start(struct http_door *d, const struct http_input *in, enum run_question question,
                 struct http_run_args *ret, struct err *reterr)
{
    *ret = (struct http_run_args){ .ask = RUN_ARGS_INIT };
    ret->ask.question = question;
    ret->ask.env = in->env;
    int r = run_name_check(in->env, ENV_BYTES_MAX, "env", reterr);
    if (!r && question != ASK_LIST) r = take_query(d, in, no_parameters, ret, reterr);
    return r;
}

/* About the run that the path names. */
static int start_with_id(struct http_door *d, const struct http_input *in,
                         enum run_question question, struct http_run_args *ret,
                         struct err *reterr)
{
    int r = start(d, in, question, ret, reterr);
    if (r || run_id_parse(in->match.parts[0], &ret->ask.id)) return r;
    return err_set(reterr, ERR_INVALID,
                   "an id is run_ and 26 digits of Crockford's base 32, as a trigger gave it");
}

static int start_change(struct http_door *d, const struct http_input *in,
                        enum run_change_kind kind, struct http_run_args *ret,
                        struct err *reterr)
{
    int r = start_with_id(d, in, ASK_CHANGE, ret, reterr);
    ret->ask.change.kind = kind;
    ret->ask.change.version = RUN_ANY_VERSION;
    ret->ask.change.lease_ms = ret->ask.change.retry_ms = -1;
    return r;
}

static int check_body_bytes(const struct http_run_args *args, int64_t bytes_max,
                            const char *what, struct err *reterr)
{
    size_t len = args->ask.change.body.len;
    if ((int64_t)len <= bytes_max) return 0;
    return err_set(reterr, ERR_LIMIT, "the %s has %zu bytes; at most %lld are kept", what, len,
                   (long long)bytes_max);
}

/* Said in two ways, it has to be the same. */
static int take_header_key(const struct http_input *in, struct run *run, struct err *reterr)
{
    struct bytes key = http_known_field(&in->request, HTTP_IDEMPOTENCY_KEY);
    if (!key.data) return 0;
    if (key.len == 0) return err_set(reterr, ERR_INVALID, "Idempotency-Key is empty");
    if (run->key.len && !bytes_eq(run->key, key))
        return err_set(reterr, ERR_INVALID,
                       "Idempotency-Key and idempotencyKey say different things");
    run->key = key;
    return 0;
}

/* It would promise what is not so. */
static int refuse_header_key(const struct http_input *in, const char *instead,
                             struct err *reterr)
{
    if (!http_known_field(&in->request, HTTP_IDEMPOTENCY_KEY).data) return 0;
    return err_set(reterr, ERR_INVALID, "Idempotency-Key is not for this: %s", instead);
}

int http_parse_trigger(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                       struct err *reterr)
{
    int r = start(d, in, ASK_TRIGGER, ret, reterr);
    ret->ask.run.task = in->match.parts[0];
    http_take_preferred_wait(&in->request, &ret->ask.wait_ms);
    if (!r) r = take_body(in, trigger_members, ret, reterr);
    return r ? r : take_header_key(in, &ret->ask.run, reterr);
}

int http_parse_run(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                   struct err *reterr)
{
    return start_with_id(d, in, ASK_GET, ret, reterr);
}

int http_parse_runs(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                    struct err *reterr)
{
    int r = start(d, in, ASK_LIST, ret, reterr);
    ret->ask.limit = HTTP_RUNS_DEFAULT;
    return r ? r : take_query(d, in, list_parameters, ret, reterr);
}

int http_parse_tags(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                    struct err *reterr)
{
    int r = start_change(d, in, RUN_ADD_TAGS, ret, reterr);
    return r ? r : take_body(in, tags_members, ret, reterr);
}

int http_parse_metadata(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                        struct err *reterr)
{
    struct run_change *change = &ret->ask.change;
    int r = start_change(d, in, RUN_SET_METADATA, ret, reterr);
    if (!r) r = take_body(in, metadata_members, ret, reterr);
    if (r) return r;
    bool operates = ret->operations.data != NULL;
    if (operates == (ret->metadata.data != NULL))
        return err_set(reterr, ERR_INVALID, "either metadata or operations");
    if (operates && change->version != RUN_ANY_VERSION)
        return err_set(reterr, ERR_INVALID, "version goes with metadata, not with operations");
    change->kind = operates ? RUN_OPERATE : RUN_SET_METADATA;
    change->body = operates ? ret->operations : ret->metadata;
    return operates ? metadata_check_operations(change->body, reterr)
                    : metadata_check(change->body, reterr);
}

int http_parse_cancel(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                      struct err *reterr)
{
    int r = start_change(d, in, RUN_CANCEL, ret, reterr);
    if (!r) r = take_body(in, cancel_members, ret, reterr);
    return r ? r : check_body_bytes(ret, RUN_ERROR_BYTES_MAX, "reason", reterr);
}

int http_parse_reschedule(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                          struct err *reterr)
{
    int64_t now_ms = clock_now_ms(&d->wall);
    int r = start_change(d, in, RUN_RESCHEDULE, ret, reterr);
    if (!r) r = take_body(in, reschedule_members, ret, reterr);
    if (r) return r;
    int64_t at_ms =
        ret->ask.delay_ms >= 0 ? now_ms + ret->ask.delay_ms : ret->ask.run.delay_until_ms;
    ret->ask.change.at_ms = at_ms;
    if (at_ms <= now_ms + DURATION_MS_MAX) return 0;
    return err_set(reterr, ERR_INVALID, "the delay is longer than ten years");
}

int http_parse_replay(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                      struct err *reterr)
{
    int r = start_with_id(d, in, ASK_REPLAY, ret, reterr);
    http_take_preferred_wait(&in->request, &ret->ask.wait_ms);
    if (!r) r = refuse_header_key(in, "every replay is a new run", reterr);
    return r ? r : take_body(in, none, ret, reterr);
}

int http_parse_reset(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                     struct err *reterr)
{
    struct key key = { bytes_str("key"), in->match.parts[1] }; /* as every key */
    int r = start(d, in, ASK_RESET, ret, reterr);
    ret->ask.task = in->match.parts[0];
    ret->ask.key = in->match.parts[1];
    if (!r) r = run_name_check(ret->ask.task, TASK_BYTES_MAX, "task", reterr);
    if (!r) r = key_check(&key, reterr);
    return r ? r : take_body(in, none, ret, reterr);
}

int http_parse_lease(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                     struct err *reterr)
{
    int r = start(d, in, ASK_LEASE, ret, reterr);
    ret->ask.queue = in->match.parts[0];
    ret->ask.limit = 1;
    ret->ask.wait_ms = 0;
    http_take_preferred_wait(&in->request, &ret->ask.wait_ms);
    if (!r) r = run_name_check(ret->ask.queue, QUEUE_BYTES_MAX, "queue", reterr);
    return r ? r : take_body(in, lease_members, ret, reterr);
}

int http_parse_complete(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                        struct err *reterr)
{
    int r = start_change(d, in, RUN_COMPLETE, ret, reterr);
    if (!r) r = take_body(in, complete_members, ret, reterr);
    return r ? r : check_body_bytes(ret, d->value_bytes_max, "output", reterr);
}

int http_parse_fail(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                    struct err *reterr)
{
    int r = start_change(d, in, RUN_FAIL, ret, reterr);
    if (!r) r = take_body(in, fail_members, ret, reterr);
    return r ? r : check_body_bytes(ret, RUN_ERROR_BYTES_MAX, "error", reterr);
}

int http_parse_heartbeat(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                         struct err *reterr)
{
    int r = start_change(d, in, RUN_HEARTBEAT, ret, reterr);
    return r ? r : take_body(in, heartbeat_members, ret, reterr);
}

/* ---- a batch ---- */

/* The run as the engine would make it, which checks it again, but then the items in front of it count
 * already. Times are of no account beyond their limits. */
static int check_trigger(const struct http_door *d, const struct run_args *ask,
                         struct err *reterr)
{
    static const uint8_t zeros[10];
    struct run r = ask->run;
    r.env = ask->env;
    r.state = RUN_QUEUED;
    r.created_at_ms = clock_now_ms(&d->wall);
    if (!r.id.text[0]) run_id_make(0, zeros, &r.id);
    if (!r.queue.len) r.queue = r.task;
    if (!r.attempts_max) r.attempts_max = RUN_ATTEMPTS_DEFAULT;
    if (ask->delay_ms >= 0) r.delay_until_ms = r.created_at_ms + ask->delay_ms;
    if (ask->key_ms >= 0) r.key_until_ms = r.created_at_ms + ask->key_ms;
    return run_check(&r, (size_t)d->value_bytes_max, reterr);
}

/* Where its items are: {"items": [...]} and nothing else. */
static int find_items(struct http_input *in, uint8_t **ret_text, struct json_node *ret_items,
                      struct err *reterr)
{
    struct level l;
    int r = in->body_bytes ? level_read(&l, in->body, in->body_bytes, reterr) : 0;
    if (r) return r;
    const struct json_node *items = in->body_bytes ? json_member(&l.j, l.nodes, "items") : NULL;
    if (!items) return err_set(reterr, ERR_INVALID, "items is missing");
    if (l.nodes[0].count > 1)
        return err_set(reterr, ERR_INVALID, "there is no member but \"items\" here");
    if (items->kind != JSON_KIND_ARRAY || items->count < 1 || items->count > HTTP_BATCH_MAX)
        return err_set(reterr, ERR_INVALID, "items wants an array of 1 to %d triggers",
                       HTTP_BATCH_MAX);
    *ret_text = in->body + items->start;
    *ret_items = *items;
    return 0;
}

static int parse_item(struct http_door *d, struct http_input *in, uint8_t *text,
                      const struct json_node *n, struct http_run_args *ret, struct err *reterr)
{
    int r = start(d, in, ASK_TRIGGER, ret, reterr);
    ret->ask.run.task = in->match.parts[0];
    http_take_preferred_wait(&in->request, &ret->ask.wait_ms);
    if (r) return r;
    if (n->kind != JSON_KIND_OBJECT) return err_set(reterr, ERR_INVALID, "it is not an object");
    r = take_object(text + n->start, n->len, trigger_members, "member", ret, reterr);
    return r ? r : check_trigger(d, &ret->ask, reterr);
}

static int parse_items(struct http_door *d, struct http_input *in, uint8_t *text,
                       const struct json *j, struct http_run_args *items, struct err *reterr)
{
    const struct json_node *n = j->nodes + 1;
    for (size_t i = 0; i < j->nodes[0].count; i++, n++) {
        struct err why;
        int r = parse_item(d, in, text, n, &items[i], &why);
        if (r) return err_set(reterr, r, "items[%zu]: %.160s", i, why.text);
    }
    return 0;
}

int http_parse_batch(struct http_door *d, struct http_input *in,
                     struct http_run_args **ret_items, size_t *ret_count, struct err *reterr)
{
    struct json_node array;
    uint8_t *text;
    int r = refuse_header_key(in, "give the items an idempotencyKey each", reterr);
    if (!r) r = find_items(in, &text, &array, reterr);
    if (r) return r;
    struct json_limits limits = { .nodes_max = 1 + array.count + HTTP_RUN_DEPTH_MAX,
                                  .depth_max = HTTP_RUN_DEPTH_MAX,
                                  .depth_kept = 1 };
    struct json_node *nodes = malloc(limits.nodes_max * sizeof *nodes);
    struct http_run_args *items = malloc(array.count * sizeof *items);
    struct json j;
    r = nodes && items ? json_read(bytes_of(text, array.len), &limits, nodes, &j, reterr)
                       : err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    if (!r) r = parse_items(d, in, text, &j, items, reterr);
    free(nodes);
    if (r) {
        free(items);
        return r;
    }
    *ret_items = items;
    *ret_count = array.count;
    return 0;
}
