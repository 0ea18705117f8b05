/* http_wire.c - see http_wire.h.
 *
 * Claims go with a token of the caller's own, with "wait_ms": 0, because who waits does it by a long
 * poll; and everything with meta=true. */
#include "tests/support/http_wire.h"

#include "base/check.h"
#include "base/text.h"
#include "proto/base64.h"
#include "proto/json.h"
#include "proto/number.h"

#include <stdlib.h>

enum { REQUEST_BYTES_MAX = 2 * 1024 * 1024, SCAN_ROWS_MAX = 200, NODES_MAX = 8192 };

/* ---- requests ---- */

struct words {
    const char *method;
    struct buf target;
    const char *type; /* of the content; NULL: there is none */
    struct buf content;
    struct json_writer json;
    bool owned; /* Once-Token says by whom */
    bool waits;
};

static void put_escaped(struct buf *out, struct bytes text)
{
    for (size_t i = 0; i < text.len; i++) buf_printf(out, "%%%02X", text.data[i]);
}

static void aim(struct words *w, const char *method, const struct op *op, const char *behind)
{
    w->method = method;
    buf_add(&w->target, bytes_str("/v1/claims/"));
    put_escaped(&w->target, op->key.scope);
    buf_byte(&w->target, '/');
    put_escaped(&w->target, op->key.name);
    buf_printf(&w->target, "%s?meta=true", behind);
}

enum { TOKEN_HEX_BYTES = 2 * sizeof(struct token) + 1 };

static const char *token_hex(const struct op *op, char out[TOKEN_HEX_BYTES])
{
    hex_encode(bytes_of(op->in.token.bytes, sizeof op->in.token.bytes), out);
    return out;
}

static void put_ms(struct words *w, const char *name, int64_t ms)
{
    if (ms < 0) return; /* as it was claimed */
    json_put_key(&w->json, name);
    json_put_integer(&w->json, ms);
}

static void start_json(struct words *w, const struct op *op)
{
    char hex[TOKEN_HEX_BYTES];
    w->type = "application/json";
    json_start(&w->json, &w->content);
    json_put_object(&w->json);
    json_put_key(&w->json, "token");
    json_put_cstring(&w->json, token_hex(op, hex));
}

static void claim_words(struct words *w, const struct op *op)
{
    aim(w, "POST", op, "");
    start_json(w, op);
    put_ms(w, "lease_ms", op->in.lease_ms);
    put_ms(w, "retain_ms", op->in.retain_ms);
    put_ms(w, "wait_ms", 0);
    if (op->in.fingerprint.len) {
        json_put_key(&w->json, "fingerprint");
        json_put_value(&w->json, op->in.fingerprint);
    }
    json_end_object(&w->json);
}

static void publish_nothing(struct words *w, const struct op *op)
{
    start_json(w, op);
    put_ms(w, "retain_ms", op->in.retain_ms);
    json_put_key(&w->json, "value");
    json_put_null(&w->json);
    json_end_object(&w->json);
}

static void publish_words(struct words *w, const struct op *op)
{
    aim(w, "PUT", op, "");
    if (!op->in.value) {
        publish_nothing(w, op);
        return;
    }
    w->owned = true;
    w->type = "application/octet-stream";
    buf_add(&w->content, blob_bytes(op->in.value));
    if (op->in.retain_ms >= 0)
        buf_printf(&w->target, "&retain_ms=%lld", (long long)op->in.retain_ms);
}

static void release_words(struct words *w, const struct op *op)
{
    aim(w, "DELETE", op, "");
    w->owned = true;
}

static void renew_words(struct words *w, const struct op *op)
{
    aim(w, "POST", op, "/renew");
    start_json(w, op);
    put_ms(w, "lease_ms", op->in.lease_ms);
    json_end_object(&w->json);
}

static void peek_words(struct words *w, const struct op *op)
{
    aim(w, "GET", op, "");
    w->owned = true;
}

static void forget_words(struct words *w, const struct op *op)
{
    aim(w, "POST", op, "/forget");
    w->owned = true;
}

static void watch_words(struct words *w, const struct op *op)
{
    aim(w, "GET", op, "");
    buf_printf(&w->target, "&seen=%llu", (unsigned long long)op->seen);
    w->waits = true;
}

static void scan_words(struct words *w, const struct op *op)
{
    uint8_t frame[KEY_FRAME_BYTES_MAX];
    char cursor[2 * sizeof frame + 1];
    size_t limit = op->limit < SCAN_ROWS_MAX ? op->limit : SCAN_ROWS_MAX;
    w->method = "GET";
    buf_printf(&w->target, "/v1/claims?limit=%zu", limit);
    if (!op->all_scopes) {
        buf_add(&w->target, bytes_str("&scope="));
        put_escaped(&w->target, op->key.scope);
    }
    if (op->key.name.len == 0) return;
    hex_encode(bytes_of(frame, key_frame(&op->key, frame)), cursor);
    buf_printf(&w->target, "&cursor=%s", cursor);
}

static void (*const words_of[VERBS])(struct words *, const struct op *) = {
    [VERB_CLAIM] = claim_words, [VERB_PUBLISH] = publish_words, [VERB_RELEASE] = release_words,
    [VERB_RENEW] = renew_words, [VERB_FORGET] = forget_words,   [VERB_PEEK] = peek_words,
    [VERB_WATCH] = watch_words, [VERB_SCAN] = scan_words,
};

bool http_wire_says(enum verb verb)
{
    return words_of[verb] != NULL;
}

static void put_request(struct buf *out, const struct words *w, const struct op *op)
{
    char hex[TOKEN_HEX_BYTES];
    buf_printf(out, "%s ", w->method);
    buf_add(out, buf_bytes(&w->target));
    buf_add(out, bytes_str(" HTTP/1.1\r\nHost: localhost\r\n"));
    if (w->owned) buf_printf(out, "Once-Token: %s\r\n", token_hex(op, hex));
    if (w->waits) buf_printf(out, "Prefer: wait=%lld\r\n", (long long)DURATION_MS_MAX / 1000);
    if (w->type) buf_printf(out, "Content-Type: %s\r\n", w->type);
    if (w->type) buf_printf(out, "Content-Length: %zu\r\n", w->content.len);
    buf_add(out, bytes_str("\r\n"));
    buf_add(out, buf_bytes(&w->content));
}

void http_wire_request(struct buf *out, const struct op *op)
{
    struct words w = { 0 };
    buf_init(&w.target, REQUEST_BYTES_MAX);
    buf_init(&w.content, REQUEST_BYTES_MAX);
    words_of[op->verb](&w, op);
    CHECK(!buf_failed(&w.target) && !buf_failed(&w.content));
    put_request(out, &w, op);
    buf_fini(&w.target);
    buf_fini(&w.content);
}

/* ---- answers ---- */

static int64_t number_in(const struct json *j, const struct json_node *n, const char *name)
{
    n = json_member(j, n, name);
    return n && n->kind == JSON_KIND_INTEGER ? n->number : 0;
}

static bool is_set(const struct json *j, const char *name)
{
    const struct json_node *n = json_member(j, j->nodes, name);
    return n && n->kind == JSON_KIND_TRUE;
}

static bool version_in(const struct json *j, uint64_t *ret)
{
    const struct json_node *n = json_member(j, j->nodes, "version");
    return n && n->kind == JSON_KIND_STRING && number_parse_unsigned(json_text(j, n), ret);
}

static bool outcome_in(const struct json *j, enum outcome *ret)
{
    const struct json_node *n = json_member(j, j->nodes, "outcome");
    for (int o = 1; n && o <= OUTCOMES; o++) {
        if (!json_string_is(j, n, bytes_str(outcome_name((enum outcome)o)))) continue;
        *ret = (enum outcome)o;
        return true;
    }
    return false;
}

/* In place: what was written in JSON is never shorter than what it says. */
static struct bytes text_of(const struct json *j, const struct json_node *n, uint8_t *content)
{
    uint8_t *at = content + n->start;
    return bytes_of(at, json_unescape(j, n, at));
}

static bool value_in(const struct json *j, uint8_t *content, struct blob **ret)
{
    const struct json_node *n = json_member(j, j->nodes, "value");
    const struct json_node *encoded = n ? json_member(j, n, "base64") : NULL;
    if (!n) return true;
    struct bytes text = text_of(j, encoded ? encoded : n, content);
    size_t len = text.len;
    if (encoded && !base64_decode(text, content + encoded->start, &len)) return false;
    *ret = blob_new(bytes_of(text.data, len));
    CHECK(*ret);
    return true;
}

static bool take_answer(struct op *op, const struct json *j, uint8_t *content)
{
    const struct json_node *all = j->nodes;
    struct answer out = { .fence = (uint64_t)number_in(j, all, "fence"),
                          .lease_left_ms = number_in(j, all, "lease_left_ms"),
                          .retain_left_ms = number_in(j, all, "retain_left_ms"),
                          .mine = is_set(j, "mine"),
                          .taken_over = is_set(j, "taken_over"),
                          .degraded = is_set(j, "degraded") };
    if (!outcome_in(j, &out.outcome) || !version_in(j, &out.version)) return false;
    op->changed = is_set(j, "changed");
    if (!value_in(j, content, &out.value)) return false;
    op->out = out;
    return true;
}

static bool take_row(struct op *op, const struct json *j, const struct json_node *row,
                     uint8_t *content)
{
    const struct json_node *scope = json_member(j, row, "scope"),
                           *name = json_member(j, row, "key"),
                           *state = json_member(j, row, "state"),
                           *bytes = json_member(j, row, "value_bytes");
    if (!scope || !name || !state) return false;
    struct key key = { text_of(j, scope, content), text_of(j, name, content) };
    bool done = json_string_is(j, state, bytes_str("done"));
    struct record record = { .state = done ? RECORD_DONE : RECORD_PENDING,
                             .fence = (uint64_t)number_in(j, row, "fence"),
                             .claimed_at_ms = number_in(j, row, "claimed_at_ms"),
                             .done_at_ms = number_in(j, row, "done_at_ms") };
    if (scan_add(&op->scan, &key, &record, 0)) return false;
    struct scan_row *added = &op->scan.rows[op->scan.count - 1];
    added->lease_left_ms = number_in(j, row, "lease_left_ms");
    added->retain_left_ms = number_in(j, row, "retain_left_ms");
    added->value_kept = bytes != NULL;
    added->value_bytes = bytes ? (size_t)bytes->number : 0;
    return true;
}

static bool take_page(struct op *op, const struct json *j, uint8_t *content)
{
    const struct json_node *rows = json_member(j, j->nodes, "claims"),
                           *cursor = json_member(j, j->nodes, "cursor");
    if (!rows || rows->kind != JSON_KIND_ARRAY || !cursor) return false;
    const struct json_node *end = json_next(j, rows);
    for (const struct json_node *row = rows + 1; row < end; row = json_next(j, row))
        if (!take_row(op, j, row, content)) return false;
    op->scan.more = cursor->kind == JSON_KIND_STRING;
    op->out.outcome = OUTCOME_OK;
    return true;
}

#define CODE(code, value, name, retryable, text) code,
static const int codes[] = { ERR_LIST(CODE) };
#undef CODE

static bool take_problem(struct op *op, const struct json *j, uint8_t *content)
{
    const struct json_node *code = json_member(j, j->nodes, "code"),
                           *detail = json_member(j, j->nodes, "detail");
    for (size_t i = 0; code && detail && i < sizeof codes / sizeof codes[0]; i++) {
        if (!json_string_is(j, code, bytes_str(err_name(codes[i])))) continue;
        struct bytes text = text_of(j, detail, content);
        err_set(&op->err, codes[i], "%.*s", (int)text.len, (const char *)text.data);
        return true;
    }
    return false;
}

/* The status has to be that of the outcome. */
static bool take(struct op *op, int status, const struct json *j, uint8_t *content)
{
    enum outcome outcome;
    if (op->verb == VERB_SCAN && status == 200) return take_page(op, j, content);
    if (!outcome_in(j, &outcome)) return status >= 400 && take_problem(op, j, content);
    return status == outcome_info(outcome)->http_status && take_answer(op, j, content);
}

bool http_wire_answer(struct op *op, int status, uint8_t *content, size_t len)
{
    struct json_limits limits = { .nodes_max = NODES_MAX, .depth_max = 8 };
    struct json_node *nodes = malloc(NODES_MAX * sizeof *nodes);
    struct json j;
    struct err err;
    CHECK(nodes);
    op_clear_answer(op);
    bool well = json_read(bytes_of(content, len), &limits, nodes, &j, &err) == 0 &&
                take(op, status, &j, content);
    free(nodes);
    return well;
}
