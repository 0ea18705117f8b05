/* run.c - see run.h. */
#include "core/run.h"

#include "base/check.h"
#include "base/text.h"
#include "core/document.h"
#include "core/key.h"
#include "core/metadata.h"

_Static_assert(RUN_KEY_FRAME_BYTES_MAX == 1 + TASK_BYTES_MAX + KEY_BYTES_MAX,
               "task and key of a run have to fit");

/* ---- ids ---- */

static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

static void put_digits(uint64_t high, uint64_t low, char *out)
{
    for (int i = 25; i >= 0; i--) {
        out[i] = digits[low & 31];
        low = low >> 5 | high << 59;
        high >>= 5;
    }
}

void run_id_make(int64_t now_ms, const uint8_t random[RUN_ID_RANDOM_BYTES],
                 struct run_id *ret_id)
{
    uint64_t high = (uint64_t)now_ms << 16 | (uint64_t)random[0] << 8 | random[1], low = 0;
    for (int i = 2; i < 10; i++) low = low << 8 | random[i];
    memcpy(ret_id->text, "run_", 4);
    put_digits(high, low, ret_id->text + 4);
    ret_id->text[RUN_ID_BYTES] = '\0';
}

/* Adds a number of so many bytes, and one; false: it does not fit. */
static bool add_up(uint8_t sum[RUN_ID_RANDOM_BYTES], const uint8_t *add, int bytes)
{
    unsigned carry = 1;
    for (int i = RUN_ID_RANDOM_BYTES - 1; i >= 0; i--) {
        int from = i - (RUN_ID_RANDOM_BYTES - bytes);
        carry += sum[i] + (from >= 0 ? add[from] : 0u);
        sum[i] = (uint8_t)carry;
        carry >>= 8;
    }
    return carry == 0;
}

/* A clock that was set back is waited for, unless that would take long. The step up is random: ids are
 * hard to guess, whoever knows the one before. */
void run_ids_next(struct run_ids *ids, int64_t now_ms,
                  const uint8_t random[RUN_ID_RANDOM_BYTES], struct run_id *ret_id)
{
    enum { SET_BACK_MS_MAX = 60000, STEP_BYTES = 6 };
    bool later = now_ms > ids->last_ms || now_ms < ids->last_ms - SET_BACK_MS_MAX;
    if (later || !add_up(ids->last, random, STEP_BYTES)) {
        ids->last_ms = later ? now_ms : ids->last_ms + 1;
        memcpy(ids->last, random, sizeof ids->last);
    }
    run_id_make(ids->last_ms, ids->last, ret_id);
}

int64_t run_id_ms(const struct run_id *id)
{
    int64_t ms = 0;
    for (const char *at = id->text + 4; at < id->text + 14; at++) {
        const char *digit = memchr(digits, *at, sizeof digits - 1);
        ms = ms << 5 | (digit ? digit - digits : 0);
    }
    return ms;
}

static char upper(uint8_t c)
{
    return (char)(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
}

bool run_id_parse(struct bytes text, struct run_id *ret_id)
{
    struct run_id id = { .text = "run_" };
    if (text.len != RUN_ID_BYTES || memcmp(text.data, "run_", 4) != 0) return false;
    for (size_t i = 4; i < RUN_ID_BYTES; i++) {
        id.text[i] = upper(text.data[i]);
        if (!id.text[i] || !strchr(digits, id.text[i])) return false;
    }
    if (id.text[4] > '7') return false; /* 26 digits are 130 bits, an id has 128 */
    *ret_id = id;
    return true;
}

/* ---- checks ---- */

static bool name_byte(uint8_t c)
{
    if (c >= 'A' && c <= 'Z') return true;
    if (c >= 'a' && c <= 'z') return true;
    if (c >= '0' && c <= '9') return true;
    return c && strchr("._:/-", c);
}

int run_name_check(struct bytes name, size_t bytes_max, const char *what, struct err *reterr)
{
    if (name.len == 0) return err_set(reterr, ERR_INVALID, "the %s is empty", what);
    if (name.len > bytes_max)
        return err_set(reterr, ERR_LIMIT, "the %s has %zu bytes; at most %zu are allowed", what,
                       name.len, bytes_max);
    for (size_t i = 0; i < name.len; i++)
        if (!name_byte(name.data[i]))
            return err_set(reterr, ERR_INVALID,
                           "byte %zu of the %s is not one of A-Z a-z 0-9 . _ : / -", i + 1,
                           what);
    return 0;
}

static int text_check(struct bytes text, size_t bytes_max, const char *what, struct err *reterr)
{
    if (text.len > bytes_max)
        return err_set(reterr, ERR_LIMIT, "the %s has %zu bytes; at most %zu are allowed", what,
                       text.len, bytes_max);
    if (!text_is_plain_utf8(text))
        return err_set(reterr, ERR_INVALID,
                       "the %s is not UTF-8 text without control characters", what);
    return 0;
}

int tags_check(struct bytes tags, struct err *reterr)
{
    struct bytes tag;
    while (tags_next(&tags, &tag)) {
        if (tag.len == 0) return err_set(reterr, ERR_INVALID, "a tag is empty");
        int r = text_check(tag, TAG_BYTES_MAX, "tag", reterr);
        if (r) return r;
    }
    return tags.len ? err_set(reterr, ERR_INVALID, "the list of tags is cut off") : 0;
}

static int payload_check(struct bytes payload, size_t bytes_max, struct err *reterr)
{
    if (payload.len > bytes_max)
        return err_set(reterr, ERR_LIMIT, "the payload has %zu bytes; at most %zu are kept",
                       payload.len, bytes_max);
    return payload.len ? document_check(payload, "payload", reterr) : 0;
}

static int times_check(const struct run *r, struct err *reterr)
{
    if (r->created_at_ms < 0 || r->created_at_ms > TIME_MS_MAX)
        return err_set(reterr, ERR_INVALID, "a run cannot be that old, or that young");
    if (r->delay_until_ms < 0 || r->delay_until_ms > r->created_at_ms + DURATION_MS_MAX)
        return err_set(reterr, ERR_INVALID, "the delay is longer than ten years");
    if (r->key_until_ms < 0 || r->key_until_ms > r->created_at_ms + DURATION_MS_MAX)
        return err_set(reterr, ERR_INVALID, "the key is kept for more than ten years");
    return 0;
}

int run_check(const struct run *r, size_t payload_bytes_max, struct err *reterr)
{
    struct run_id id;
    int code;
    if (!run_id_parse(run_id_bytes(&r->id), &id) || !run_id_eq(&id, &r->id))
        return err_set(reterr, ERR_INVALID,
                       "an id is run_ and 26 digits of Crockford's base 32, as in a ULID");
    if ((code = run_name_check(r->env, ENV_BYTES_MAX, "env", reterr))) return code;
    if ((code = run_name_check(r->task, TASK_BYTES_MAX, "task", reterr))) return code;
    if ((code = run_name_check(r->queue, QUEUE_BYTES_MAX, "queue", reterr))) return code;
    if ((code = text_check(r->key, KEY_BYTES_MAX, "idempotencyKey", reterr))) return code;
    code = text_check(r->ordering_key, ORDERING_KEY_BYTES_MAX, "orderingKey", reterr);
    if (code) return code;
    if ((code = tags_check(r->tags, reterr))) return code;
    if (tags_count(r->tags) > TAGS_MAX)
        return err_set(reterr, ERR_LIMIT, "a run has at most %d tags", TAGS_MAX);
    if ((code = payload_check(r->payload, payload_bytes_max, reterr))) return code;
    if (r->metadata.len && (code = metadata_check(r->metadata, reterr))) return code;
    if (r->attempts_max < 1 || r->attempts_max > RUN_ATTEMPTS_MAX)
        return err_set(reterr, ERR_INVALID, "maxAttempts is from 1 to %d", RUN_ATTEMPTS_MAX);
    return times_check(r, reterr);
}

static bool is_time(int64_t ms)
{
    return ms >= 0 && ms <= TIME_MS_MAX;
}

static bool tags_are_whole(struct bytes tags)
{
    struct bytes tag;
    if (tags.len > TAGS_BYTES_MAX) return false;
    while (tags_next(&tags, &tag)) continue;
    return tags.len == 0;
}

const char *run_nonsense(const struct run *r)
{
    const int64_t times[] = { r->key_until_ms,    r->created_at_ms, r->delay_until_ms,
                              r->available_at_ms, r->started_at_ms, r->finished_at_ms,
                              r->lease_ms,        r->lease_until_ms };
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        if (!is_time(times[i])) return "a time is out of range";
    if (r->state < RUN_QUEUED || r->state > RUN_CANCELED) return "an unknown state";
    if (r->env.len > ENV_BYTES_MAX || r->task.len > TASK_BYTES_MAX) return "a name is too long";
    if (r->queue.len > QUEUE_BYTES_MAX) return "a name is too long";
    if (r->key.len > KEY_BYTES_MAX) return "the key is too long";
    if (r->ordering_key.len > ORDERING_KEY_BYTES_MAX) return "the ordering key is too long";
    if (r->metadata.len > METADATA_BYTES_MAX) return "the metadata is too long";
    if (!tags_are_whole(r->tags)) return "the tags are cut off, or too long";
    return NULL;
}

/* ---- what follows ---- */

bool run_is_delayed(const struct run *r, int64_t now_ms)
{
    return r->state == RUN_QUEUED && r->attempts == 0 && r->delay_until_ms > now_ms;
}

const char *run_status(const struct run *r, int64_t now_ms)
{
    static const char *const names[] = { [RUN_QUEUED] = "QUEUED",
                                         [RUN_EXECUTING] = "EXECUTING",
                                         [RUN_COMPLETED] = "COMPLETED",
                                         [RUN_FAILED] = "FAILED",
                                         [RUN_CANCELED] = "CANCELED" };
    CHECK(r->state >= RUN_QUEUED && r->state <= RUN_CANCELED);
    return run_is_delayed(r, now_ms) ? "DELAYED" : names[r->state];
}

int64_t run_due_ms(const struct run *r)
{
    if (r->state == RUN_QUEUED) return r->available_at_ms;
    if (r->state == RUN_EXECUTING) return r->lease_until_ms;
    return INT64_MAX;
}

int64_t run_gone_ms(const struct run *r)
{
    if (!run_is_final(r)) return INT64_MAX;
    int64_t gone_ms = r->finished_at_ms + RUN_RETAIN_MS_DEFAULT;
    return run_holds_key(r, gone_ms) ? r->key_until_ms : gone_ms;
}

bool run_holds_key(const struct run *r, int64_t now_ms)
{
    if (!r->key_held || r->key.len == 0) return false;
    if (r->state == RUN_FAILED) return false;
    return now_ms < r->key_until_ms;
}

size_t run_key_frame(struct bytes task, struct bytes key, uint8_t out[RUN_KEY_FRAME_BYTES_MAX])
{
    CHECK(task.len <= TASK_BYTES_MAX && key.len <= KEY_BYTES_MAX);
    out[0] = (uint8_t)task.len;
    if (task.len) memcpy(out + 1, task.data, task.len);
    if (key.len) memcpy(out + 1 + task.len, key.data, key.len);
    return 1 + task.len + key.len;
}

/* ---- tags ---- */

bool tags_next(struct bytes *tags, struct bytes *ret_tag)
{
    if (tags->len == 0 || tags->data[0] + 1u > tags->len) return false;
    *ret_tag = bytes_of(tags->data + 1, tags->data[0]);
    *tags = bytes_of(tags->data + 1 + ret_tag->len, tags->len - 1 - ret_tag->len);
    return true;
}

bool tags_have(struct bytes tags, struct bytes tag)
{
    struct bytes other;
    while (tags_next(&tags, &other))
        if (bytes_eq(other, tag)) return true;
    return false;
}

size_t tags_count(struct bytes tags)
{
    struct bytes tag;
    size_t count = 0;
    while (tags_next(&tags, &tag)) count++;
    return count;
}
