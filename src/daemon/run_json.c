/* run_json.c - see run_json.h. */
#include "daemon/run_json.h"

#include "base/text.h"
#include "proto/rfc3339.h"

enum {
    FIXED_BYTES_MAX = 1024, /* names of members, times, numbers, ids */
    ESCAPED_BYTES_MAX = 6,  /* of a byte of text: "\u0001" */
};

/* ---- members ---- */

static void put_text(struct json_writer *j, const char *name, struct bytes text)
{
    json_put_key(j, name);
    if (text.len)
        json_put_string(j, text);
    else
        json_put_null(j);
}

static void put_raw(struct json_writer *j, const char *name, struct bytes json)
{
    json_put_key(j, name);
    json_put_raw(j, json.len ? json : bytes_str("null"));
}

static void put_integer(struct json_writer *j, const char *name, int64_t n)
{
    json_put_key(j, name);
    json_put_integer(j, n);
}

/* 0: never. */
static void put_time(struct json_writer *j, const char *name, int64_t ms)
{
    char text[RFC3339_BYTES + 1];
    rfc3339_write(ms, text);
    put_text(j, name, bytes_of(text, ms ? RFC3339_BYTES : 0));
}

static void put_tags(struct json_writer *j, struct bytes tags)
{
    struct bytes tag;
    json_put_key(j, "tags");
    json_put_array(j);
    while (tags_next(&tags, &tag)) json_put_string(j, tag);
    json_end_array(j);
}

/* ---- what the run is, what is to be done, what came of it ---- */

static void put_what(struct json_writer *j, const struct run *r, int64_t now_ms)
{
    put_text(j, "id", run_id_bytes(&r->id));
    put_text(j, "env", r->env);
    put_text(j, "task", r->task);
    put_text(j, "queue", r->queue);
    put_text(j, "status", bytes_str(run_status(r, now_ms)));
    put_raw(j, "payload", r->payload);
}

/* A key that does not lead to the run any more has no time when it will not. */
static void put_terms(struct json_writer *j, const struct run *r)
{
    put_text(j, "idempotencyKey", r->key);
    put_time(j, "idempotencyKeyExpiresAt", r->key.len && r->key_held ? r->key_until_ms : 0);
    put_tags(j, r->tags);
    put_raw(j, "metadata", r->metadata);
    put_integer(j, "metadataVersion", (int64_t)r->metadata_version);
    put_time(j, "delayUntil", r->delay_until_ms);
    put_text(j, "orderingKey", r->ordering_key);
}

static void put_course(struct json_writer *j, const struct run *r)
{
    put_integer(j, "attempts", r->attempts);
    put_integer(j, "maxAttempts", r->attempts_max);
    put_integer(j, "stalls", r->stalls);
    put_raw(j, "output", r->output);
    put_raw(j, "error", r->error);
    put_time(j, "createdAt", r->created_at_ms);
    put_time(j, "startedAt", r->started_at_ms);
    put_time(j, "finishedAt", r->finished_at_ms);
}

void run_json_members(struct json_writer *j, const struct run *r, int64_t now_ms)
{
    put_what(j, r, now_ms);
    put_terms(j, r);
    put_course(j, r);
    if (r->canonical.text[0]) put_text(j, "canonicalId", run_id_bytes(&r->canonical));
}

void run_json_put(struct json_writer *j, const struct run *r, int64_t now_ms)
{
    json_put_object(j);
    run_json_members(j, r, now_ms);
    json_end_object(j);
}

void run_json_put_leased(struct json_writer *j, const struct run *r, int64_t now_ms)
{
    char token[2 * sizeof r->token.bytes + 1];
    hex_encode(bytes_of(r->token.bytes, sizeof r->token.bytes), token);
    json_put_object(j);
    run_json_members(j, r, now_ms);
    put_text(j, "token", bytes_str(token));
    put_integer(j, "fence", (int64_t)r->fence);
    put_integer(j, "leaseMs", r->lease_ms);
    json_end_object(j);
}

size_t run_json_bytes_max(const struct run *r)
{
    size_t texts = r->env.len + r->task.len + r->queue.len + r->key.len + r->ordering_key.len +
                   r->tags.len;
    size_t raw = r->payload.len + r->metadata.len + r->output.len + r->error.len;
    return FIXED_BYTES_MAX + texts * ESCAPED_BYTES_MAX + raw + 3 * tags_count(r->tags);
}
