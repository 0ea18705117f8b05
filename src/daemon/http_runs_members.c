/* http_runs_members.c - see http_runs_members.h. */
#include "daemon/http_runs_members.h"

#include "base/check.h"
#include "base/text.h"
#include "daemon/http_args.h"
#include "proto/chars.h"
#include "proto/rfc3339.h"

/* ---- one level of a body ---- */

int http_level_read(struct http_level *l, uint8_t *text, size_t len, struct err *reterr)
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
static struct bytes raw_of(const struct http_level *l, const struct json_node *n)
{
    struct bytes text = json_text(&l->j, n);
    if (n->kind != JSON_KIND_STRING) return text;
    return bytes_of(text.data - 1, text.len + 2);
}

/* In place: what was written in JSON is never shorter than what it says. */
static struct bytes string_of(struct http_level *l, const struct json_node *n)
{
    uint8_t *at = l->text + n->start;
    return n->escaped ? bytes_of(at, json_unescape(&l->j, n, at)) : json_text(&l->j, n);
}

/* Empty, if it is something else. */
static struct bytes text_of(struct http_level *l, const struct json_node *n)
{
    return n->kind == JSON_KIND_STRING ? string_of(l, n) : (struct bytes){ 0 };
}

/* ---- members ---- */

int http_wants(const struct http_member *m, const char *what, struct err *reterr)
{
    return err_set(reterr, ERR_INVALID, "%s wants %s", m->name, what);
}

static const struct http_member *member_find(const struct http_member *members,
                                             struct bytes name)
{
    for (const struct http_member *m = members; m->name; m++)
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

static int unknown(const struct http_member *members, struct bytes name, const char *what,
                   struct err *reterr)
{
    const struct http_member *m = members;
    while (m->name && !is_alike(name, bytes_str(m->name))) m++;
    return http_refuse_unknown(name, what, m->name, reterr);
}

static int check_required(const struct http_member *members, unsigned seen, struct err *reterr)
{
    for (const struct http_member *m = members; m->name; m++)
        if (m->required && !(seen & BIT(m - members)))
            return err_set(reterr, ERR_INVALID, "%s is missing", m->name);
    return 0;
}

static int take_members(struct http_level *l, const struct http_member *members,
                        const char *what, struct http_run_args *ret, struct err *reterr)
{
    const struct json_node *key = l->nodes + 1, *end = json_next(&l->j, l->nodes);
    unsigned seen = 0;
    for (; key < end; key = json_next(&l->j, key + 1)) {
        struct bytes name = string_of(l, key);
        const struct http_member *m = member_find(members, name);
        int r = m ? m->take(m, l, key + 1, ret, reterr) : unknown(members, name, what, reterr);
        if (r) return r;
        seen |= BIT(m - members); /* twice: the reader has refused it */
    }
    return check_required(members, seen, reterr);
}

int http_take_object(uint8_t *text, size_t len, const struct http_member *members,
                     const char *what, struct http_run_args *ret, struct err *reterr)
{
    struct http_level l;
    int r = http_level_read(&l, text, len, reterr);
    return r ? r : take_members(&l, members, what, ret, reterr);
}

int http_take_body(struct http_input *in, const struct http_member *members,
                   struct http_run_args *ret, struct err *reterr)
{
    struct http_level l;
    if (in->body_bytes == 0) return check_required(members, 0, reterr);
    int r = http_level_read(&l, in->body, in->body_bytes, reterr);
    if (r) return r;
    if (l.nodes[0].kind != JSON_KIND_OBJECT)
        return err_set(reterr, ERR_INVALID, "the body is not a JSON object");
    return take_members(&l, members, "member", ret, reterr);
}

/* ---- one value ---- */

int http_take_text(const struct http_member *m, struct http_level *l, const struct json_node *n,
                   struct http_run_args *ret, struct err *reterr)
{
    if (n->kind != JSON_KIND_STRING || n->len == 0)
        return http_wants(m, "text, and not none", reterr);
    *(struct bytes *)((char *)ret + m->at) = string_of(l, n);
    return 0;
}

int http_take_id(const struct http_member *m, struct http_level *l, const struct json_node *n,
                 struct http_run_args *ret, struct err *reterr)
{
    bool fine = run_id_parse(text_of(l, n), (struct run_id *)((char *)ret + m->at));
    return fine ? 0 : http_wants(m, "run_ and 26 digits of Crockford's base 32", reterr);
}

int http_take_token(const struct http_member *m, struct http_level *l,
                    const struct json_node *n, struct http_run_args *ret, struct err *reterr)
{
    struct token *token = &ret->ask.change.token;
    bool fine = hex_decode(text_of(l, n), token->bytes, sizeof token->bytes);
    return fine ? 0 : http_wants(m, "32 hexadecimal digits, as the lease gave them", reterr);
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

int http_take_ms(const struct http_member *m, struct http_level *l, const struct json_node *n,
                 struct http_run_args *ret, struct err *reterr)
{
    if (duration_of(n, text_of(l, n), (int64_t *)(void *)((char *)ret + m->at))) return 0;
    return http_wants(m, "milliseconds or a text like \"30s\", of at most ten years", reterr);
}

/* From now, or a moment. One that has passed means at once. */
int http_take_delay(const struct http_member *m, struct http_level *l,
                    const struct json_node *n, struct http_run_args *ret, struct err *reterr)
{
    struct bytes text = text_of(l, n);
    int64_t at_ms;
    if (duration_of(n, text, &ret->ask.delay_ms)) return 0;
    if (!rfc3339_parse(text, &at_ms))
        return http_wants(m,
                          "milliseconds, a text like \"10m\", or a time like "
                          "\"2026-11-16T06:00:00Z\", of at most ten years from now",
                          reterr);
    ret->ask.delay_ms = -1;
    ret->ask.run.delay_until_ms = at_ms > 0 ? at_ms : 0;
    return 0;
}

int http_take_attempts(const struct http_member *m, struct http_level *l,
                       const struct json_node *n, struct http_run_args *ret, struct err *reterr)
{
    (void)l;
    if (n->kind != JSON_KIND_INTEGER || n->number < 1 || n->number > RUN_ATTEMPTS_MAX)
        return http_wants(m, "a number from 1 to 1000", reterr);
    ret->ask.run.attempts_max = (uint32_t)n->number;
    return 0;
}

int http_take_count(const struct http_member *m, struct http_level *l,
                    const struct json_node *n, struct http_run_args *ret, struct err *reterr)
{
    (void)l;
    if (n->kind != JSON_KIND_INTEGER || n->number < 1 || n->number > RUN_ROWS_MAX)
        return http_wants(m, "a number from 1 to 1000", reterr);
    ret->ask.limit = (size_t)n->number;
    return 0;
}

int http_take_version(const struct http_member *m, struct http_level *l,
                      const struct json_node *n, struct http_run_args *ret, struct err *reterr)
{
    (void)l;
    if (n->kind != JSON_KIND_INTEGER || n->number < 0)
        return http_wants(m, "a metadataVersion: a whole number from 0 on", reterr);
    ret->ask.change.version = (uint64_t)n->number;
    return 0;
}

int http_take_mismatch(const struct http_member *m, struct http_level *l,
                       const struct json_node *n, struct http_run_args *ret, struct err *reterr)
{
    ret->ask.mismatch_returns = json_string_is(&l->j, n, bytes_str("return"));
    if (ret->ask.mismatch_returns || json_string_is(&l->j, n, bytes_str("error"))) return 0;
    return http_wants(m, "\"error\" or \"return\"", reterr);
}

/* ---- JSON that is not ours ---- */

int http_take_json(const struct http_member *m, struct http_level *l, const struct json_node *n,
                   struct http_run_args *ret, struct err *reterr)
{
    (void)reterr;
    *(struct bytes *)((char *)ret + m->at) = raw_of(l, n);
    return 0;
}

int http_take_metadata(const struct http_member *m, struct http_level *l,
                       const struct json_node *n, struct http_run_args *ret, struct err *reterr)
{
    if (n->kind != JSON_KIND_OBJECT) return http_wants(m, "a JSON object", reterr);
    return http_take_json(m, l, n, ret, reterr);
}

int http_take_operations(const struct http_member *m, struct http_level *l,
                         const struct json_node *n, struct http_run_args *ret,
                         struct err *reterr)
{
    if (n->kind != JSON_KIND_ARRAY) return http_wants(m, "an array of operations", reterr);
    return http_take_json(m, l, n, ret, reterr);
}

int http_take_reason(const struct http_member *m, struct http_level *l,
                     const struct json_node *n, struct http_run_args *ret, struct err *reterr)
{
    if (n->kind != JSON_KIND_STRING) return http_wants(m, "text", reterr);
    return http_take_json(m, l, n, ret, reterr);
}

/* ---- tags ---- */

/* Behind those that are there, unless it is one of them. */
static int add_tag(const struct http_member *m, struct bytes tag, uint8_t *packed, size_t *len,
                   struct err *reterr)
{
    if (tag.len == 0) return http_wants(m, "tags that are not empty", reterr);
    if (tag.len > TAG_BYTES_MAX)
        return err_set(reterr, ERR_LIMIT, "a tag has %zu bytes; at most %d are allowed",
                       tag.len, TAG_BYTES_MAX);
    if (!text_is_plain_utf8(tag))
        return http_wants(m, "text without control characters", reterr);
    if (tags_have(bytes_of(packed, *len), tag)) return 0;
    memmove(packed + *len + 1, tag.data, tag.len);
    packed[*len] = (uint8_t)tag.len;
    *len += 1 + tag.len;
    return 0;
}

/* Packed in the place of their array: a tag has two quotes there and here one byte for its length.
 * What was packed so far ends in front of the next one's opening quote. */
int http_take_tags(const struct http_member *m, struct http_level *l, const struct json_node *n,
                   struct http_run_args *ret, struct err *reterr)
{
    uint8_t *packed = l->text + n->start;
    struct http_level list;
    size_t len = 0;
    if (n->kind != JSON_KIND_ARRAY) return http_wants(m, "an array of texts", reterr);
    if (n->count > 2 * HTTP_MEMBERS_MAX)
        return err_set(reterr, ERR_LIMIT, "a run has at most %d tags", TAGS_MAX);
    int r = http_level_read(&list, packed, n->len, reterr);
    const struct json_node *tag = list.nodes + 1;
    for (size_t i = 0; !r && i < n->count; i++, tag++) {
        if (tag->kind != JSON_KIND_STRING) return http_wants(m, "an array of texts", reterr);
        r = add_tag(m, string_of(&list, tag), packed, &len, reterr);
    }
    *(struct bytes *)((char *)ret + m->at) = bytes_of(packed, len);
    return r;
}
