/* http_runs_args.c - see http_runs_args.h. */
#include "daemon/http_runs_args.h"

#include "core/key.h"
#include "core/metadata.h"
#include "daemon/http_args.h"
#include "daemon/http_runs_members.h"
#include "daemon/http_runs_query.h"

#include <stdlib.h>

/* ---- which members there are ---- */

#define AT(field) offsetof(struct http_run_args, field)

static const struct http_member option_members[] = {
    { "idempotencyKey", http_take_text, AT(ask.run.key) },
    { "idempotencyKeyTTL", http_take_ms, AT(ask.key_ms) },
    { "delay", http_take_delay },
    { "tags", http_take_tags, AT(ask.run.tags) },
    { "metadata", http_take_metadata, AT(ask.run.metadata) },
    { "queue", http_take_text, AT(ask.run.queue) },
    { "orderingKey", http_take_text, AT(ask.run.ordering_key) },
    { "maxAttempts", http_take_attempts },
    { "id", http_take_id, AT(ask.run.id) },
    { "onMismatch", http_take_mismatch },
    { 0 },
};

static int take_options(const struct http_member *m, struct http_level *l,
                        const struct json_node *n, struct http_run_args *ret,
                        struct err *reterr)
{
    if (n->kind != JSON_KIND_OBJECT) return http_wants(m, "an object", reterr);
    return http_take_object(l->text + n->start, n->len, option_members, "option", ret, reterr);
}

static const struct http_member trigger_members[] = {
    { "payload", http_take_json, AT(ask.run.payload) },
    { "options", take_options },
    { 0 },
};

static const struct http_member tags_members[] = {
    { "tags", http_take_tags, AT(ask.change.body), .required = true },
    { 0 },
};

static const struct http_member metadata_members[] = {
    { "metadata", http_take_metadata, AT(metadata) },
    { "operations", http_take_operations, AT(operations) },
    { "version", http_take_version },
    { 0 },
};

static const struct http_member cancel_members[] = {
    { "reason", http_take_reason, AT(ask.change.body) },
    { 0 },
};

static const struct http_member reschedule_members[] = {
    { "delay", http_take_delay, .required = true },
    { 0 },
};

static const struct http_member lease_members[] = {
    { "count", http_take_count },
    { "lease_ms", http_take_ms, AT(ask.lease_ms) },
    { "wait_ms", http_take_ms, AT(ask.wait_ms) },
    { 0 },
};

static const struct http_member complete_members[] = {
    { "token", http_take_token, .required = true },
    { "output", http_take_json, AT(ask.change.body) },
    { 0 },
};

static const struct http_member fail_members[] = {
    { "token", http_take_token, .required = true },
    { "error", http_take_json, AT(ask.change.body), .required = true },
    { "retry_in_ms", http_take_ms, AT(ask.change.retry_ms) },
    { 0 },
};

static const struct http_member heartbeat_members[] = {
    { "token", http_take_token, .required = true },
    { "lease_ms", http_take_ms, AT(ask.change.lease_ms) },
    { 0 },
};

static const struct http_member none[] = { { 0 } };

/* ---- questions ---- */

static int start(struct http_door *d, const struct http_input *in, enum run_question question,
                 struct http_run_args *ret, struct err *reterr)
{
    *ret = (struct http_run_args){ .ask = RUN_ARGS_INIT };
    ret->ask.question = question;
    ret->ask.env = in->env;
    int r = run_name_check(in->env, ENV_BYTES_MAX, "env", reterr);
    if (!r && question != ASK_LIST) r = http_take_no_query(d, in, ret, reterr);
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
    if (!r) r = http_take_body(in, trigger_members, ret, reterr);
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
    return r ? r : http_take_list_query(d, in, ret, reterr);
}

int http_parse_tags(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                    struct err *reterr)
{
    int r = start_change(d, in, RUN_ADD_TAGS, ret, reterr);
    return r ? r : http_take_body(in, tags_members, ret, reterr);
}

int http_parse_metadata(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                        struct err *reterr)
{
    struct run_change *change = &ret->ask.change;
    int r = start_change(d, in, RUN_SET_METADATA, ret, reterr);
    if (!r) r = http_take_body(in, metadata_members, ret, reterr);
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
    if (!r) r = http_take_body(in, cancel_members, ret, reterr);
    return r ? r : check_body_bytes(ret, RUN_ERROR_BYTES_MAX, "reason", reterr);
}

int http_parse_reschedule(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                          struct err *reterr)
{
    int64_t now_ms = clock_now_ms(&d->wall);
    int r = start_change(d, in, RUN_RESCHEDULE, ret, reterr);
    if (!r) r = http_take_body(in, reschedule_members, ret, reterr);
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
    return r ? r : http_take_body(in, none, ret, reterr);
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
    return r ? r : http_take_body(in, none, ret, reterr);
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
    return r ? r : http_take_body(in, lease_members, ret, reterr);
}

int http_parse_complete(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                        struct err *reterr)
{
    int r = start_change(d, in, RUN_COMPLETE, ret, reterr);
    if (!r) r = http_take_body(in, complete_members, ret, reterr);
    return r ? r : check_body_bytes(ret, d->value_bytes_max, "output", reterr);
}

int http_parse_fail(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                    struct err *reterr)
{
    int r = start_change(d, in, RUN_FAIL, ret, reterr);
    if (!r) r = http_take_body(in, fail_members, ret, reterr);
    return r ? r : check_body_bytes(ret, RUN_ERROR_BYTES_MAX, "error", reterr);
}

int http_parse_heartbeat(struct http_door *d, struct http_input *in, struct http_run_args *ret,
                         struct err *reterr)
{
    int r = start_change(d, in, RUN_HEARTBEAT, ret, reterr);
    return r ? r : http_take_body(in, heartbeat_members, ret, reterr);
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
    struct http_level l;
    int r = in->body_bytes ? http_level_read(&l, in->body, in->body_bytes, reterr) : 0;
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
    r = http_take_object(text + n->start, n->len, trigger_members, "member", ret, reterr);
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
