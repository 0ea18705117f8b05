/* json.c - JSON: what we take Jansson takes, and the other way round; what was read can be written
 * and is read back as it was; a text without its end is refused. */
#include "proto/json.h"
#include "proto/base64.h"
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <stdlib.h>

enum { NODES_MAX = 4096, DEPTH_MAX = 40 };

static const struct json_limits limits = { NODES_MAX, DEPTH_MAX };

/* Jansson has limits of its own where the grammar has none; and for it a text may end with a NUL. */
static bool is_own_limit(const json_error_t *error)
{
    enum json_error_code code = json_error_code(error);
    return code == json_error_numeric_overflow || code == json_error_null_character ||
           code == json_error_null_byte_in_key || code == json_error_stack_overflow;
}

static void check_second_opinion(struct bytes text, int r)
{
    json_error_t error;
    json_t *value = json_loadb((const char *)text.data, text.len,
                               JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    if (r == 0) CHECK(value || is_own_limit(&error));
    if (r == ERR_INVALID) CHECK(!value || memchr(text.data, 0, text.len));
    json_decref(value);
}

/* ---- written again ---- */

static void write_string(struct json_writer *w, const struct json *j, const struct json_node *n,
                         bool key)
{
    uint8_t content[4096];
    CHECK(n->len <= sizeof content);
    size_t len = json_unescape(j, n, content);
    CHECK(len <= n->len && json_string_is(j, n, bytes_of(content, len)));
    if (key) json_put_key_bytes(w, bytes_of(content, len));
    if (!key) json_put_string(w, bytes_of(content, len));
}

static void write_scalar(struct json_writer *w, const struct json *j, const struct json_node *n)
{
    if (n->kind == JSON_KIND_INTEGER) return json_put_integer(w, n->number);
    if (n->kind == JSON_KIND_STRING) return write_string(w, j, n, false);
    json_put_raw(w, json_text(j, n));
}

static void write_again(struct json_writer *w, const struct json *j, const struct json_node *n)
{
    bool object = n->kind == JSON_KIND_OBJECT;
    if (!object && n->kind != JSON_KIND_ARRAY) return write_scalar(w, j, n);
    object ? json_put_object(w) : json_put_array(w);
    for (const struct json_node *e = n + 1; e < json_next(j, n); e = json_next(j, e)) {
        if (object) write_string(w, j, e++, true);
        write_again(w, j, e);
    }
    object ? json_end_object(w) : json_end_array(w);
}

static void check_nodes(const struct json *j)
{
    CHECK(j->count > 0 && j->nodes[0].next == j->count);
    for (size_t i = 0; i < j->count; i++) {
        const struct json_node *n = &j->nodes[i];
        CHECK(n->next > i && n->next <= j->count);
        CHECK((size_t)n->start + n->len <= j->text.len);
    }
}

static void write_text(const struct json *j, struct buf *out)
{
    struct json_writer w;
    json_start(&w, out);
    write_again(&w, j, j->nodes);
    CHECK(w.depth == 0 && !buf_failed(out));
}

static void check_round_trip(const struct json *first)
{
    static struct json_node nodes[NODES_MAX];
    struct buf once, twice;
    struct json second;
    struct err err;
    buf_init(&once, 1 << 16);
    buf_init(&twice, 1 << 16);
    write_text(first, &once);
    CHECK(json_read(buf_bytes(&once), &limits, nodes, &second, &err) == 0);
    CHECK(second.count == first->count);
    write_text(&second, &twice);
    CHECK(bytes_eq(buf_bytes(&once), buf_bytes(&twice)));
    buf_fini(&once);
    buf_fini(&twice);
}

/* Of a string, an array or an object, whatever is cut off is missed. */
static void check_cut(const struct json *j)
{
    static struct json_node nodes[NODES_MAX];
    struct json cut;
    struct err err;
    if (j->nodes[0].kind < JSON_KIND_STRING) return;
    const struct json_node *n = &j->nodes[0];
    size_t end = n->kind == JSON_KIND_STRING ? n->start + n->len : n->start + n->len - 1;
    CHECK(json_read(bytes_of(j->text.data, end), &limits, nodes, &cut, &err) != 0);
    CHECK(json_read(bytes_of(j->text.data, end / 2), &limits, nodes, &cut, &err) != 0);
}

/* ---- bytes as text ---- */

static void check_base64(struct bytes in)
{
    uint8_t back[4096];
    size_t len;
    struct buf out;
    buf_init(&out, 1 << 16);
    if (in.len <= 2048) {
        base64_encode(in, &out);
        CHECK(base64_decode(buf_bytes(&out), back, &len));
        CHECK(bytes_eq(bytes_of(back, len), in));
    }
    buf_clear(&out);
    if (in.len <= sizeof back && base64_decode(in, back, &len)) {
        base64_encode(bytes_of(back, len), &out);
        CHECK(bytes_eq(buf_bytes(&out), in));
    }
    buf_fini(&out);
}

/* Any bytes can be a value; what is written is JSON. */
static void check_value(struct bytes in)
{
    static struct json_node nodes[NODES_MAX];
    struct json_writer w;
    struct json j;
    struct buf out;
    struct err err;
    buf_init(&out, 1 << 16);
    json_start(&w, &out);
    json_put_array(&w);
    json_put_value(&w, in);
    json_put_string(&w, in);
    json_end_array(&w);
    CHECK(json_read(buf_bytes(&out), &limits, nodes, &j, &err) == 0);
    CHECK(nodes[1].kind == JSON_KIND_OBJECT || json_string_is(&j, &nodes[1], in));
    buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct json_node nodes[NODES_MAX];
    struct json j;
    struct err err = { 0 };
    if (size > 2048) return 0;
    struct bytes in = bytes_of(data, size);
    int r = json_read(in, &limits, nodes, &j, &err);
    CHECK(r == err.code && (r == 0 || err.text[0]));
    check_second_opinion(in, r);
    check_base64(in);
    check_value(in);
    if (r) return 0;
    check_nodes(&j);
    check_round_trip(&j);
    check_cut(&j);
    return 0;
}
