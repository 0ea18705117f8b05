/* json.c - the reader; see json.h.
 *
 * Which containers are open is written into the nodes: while one is open, `next` names the one
 * around it. The keys of an object are a binary tree in their own nodes, a branch for every bit of
 * their hash, so that looking for duplicates costs no memory, and no more than 64 steps each: an
 * object made to cost more is refused. */
#include "proto/json.h"

#include "base/check.h"
#include "base/text.h"
#include "proto/chars.h"
#include "proto/number.h"

enum { NONE = UINT32_MAX, KEY_DEPTH_MAX = 64 };

/* What may come next; a function each. */
enum expect {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END, /* the first element of an array */
    EXPECT_KEY,
    EXPECT_KEY_OR_END, /* the first member of an object */
    EXPECT_COMMA_OR_END,
    EXPECT_NOTHING,
    FAILED,
};

struct parser {
    struct bytes in;
    const struct json_limits *limits;
    struct json_node *nodes;
    struct err *reterr;
    size_t at;
    uint32_t count, open;
    size_t depth;
};

static enum expect fail(struct parser *p, int code, const char *what)
{
    err_set(p->reterr, code, "JSON: %s at byte %zu", what, p->at);
    return FAILED;
}

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* The next byte that is not white space; 0 at the end (a NUL is never right either). */
static uint8_t peek(struct parser *p)
{
    while (p->at < p->in.len && is_space(p->in.data[p->at])) p->at++;
    return p->at < p->in.len ? p->in.data[p->at] : 0;
}

static struct json_node *add(struct parser *p, enum json_kind kind, size_t start, size_t len)
{
    if (p->count == p->limits->nodes_max) return NULL;
    struct json_node *n = &p->nodes[p->count++];
    *n = (struct json_node){ .kind = (uint8_t)kind, .start = (uint32_t)start };
    n->len = (uint32_t)len;
    n->next = p->count;
    return n;
}

static enum expect too_many(struct parser *p)
{
    return fail(p, ERR_LIMIT, "too many values");
}

/* Nodes of what stands here are not kept. */
static bool is_thin(const struct parser *p)
{
    return p->limits->depth_kept && p->depth > p->limits->depth_kept;
}

/* The value has one node by now: what was in it was dropped in the same way. */
static enum expect after_value(struct parser *p)
{
    if (is_thin(p)) p->count--;
    return p->open == NONE ? EXPECT_NOTHING : EXPECT_COMMA_OR_END;
}

/* ---- strings ---- */

/* What stands behind a backslash for which byte. */
static const uint8_t escapes[256] = {
    ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
    ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
};

/* "XXXX" of an escape; -1: not four digits. */
static int32_t parse_unit(struct bytes in)
{
    if (in.len < 4 || chars_span(bytes_of(in.data, 4), CHAR_HEX) < 4) return -1;
    uint32_t unit = 0;
    for (size_t i = 0; i < 4; i++) unit = unit << 4 | hex_digit(in.data[i]);
    return (int32_t)unit;
}

static bool is_high(int32_t unit)
{
    return unit >= 0xd800 && unit <= 0xdbff;
}

static bool is_low(int32_t unit)
{
    return unit >= 0xdc00 && unit <= 0xdfff;
}

/* "\uXXXX" or a pair of them at the start: its length, its code point in *ret. 0: malformed, or
 * half a pair. */
static size_t parse_code(struct bytes in, uint32_t *ret)
{
    int32_t first = parse_unit(bytes_from(in, 2));
    if (first < 0 || is_low(first)) return 0;
    *ret = (uint32_t)first;
    if (!is_high(first)) return 6;
    if (in.len < 12 || in.data[6] != '\\' || in.data[7] != 'u') return 0;
    int32_t second = parse_unit(bytes_from(in, 8));
    if (!is_low(second)) return 0;
    *ret = 0x10000 + ((uint32_t)(first - 0xd800) << 10 | (uint32_t)(second - 0xdc00));
    return 12;
}

/* The escape at the start: its length; 0: malformed. */
static size_t escape_len(struct bytes in)
{
    uint32_t code;
    if (in.len < 2) return 0;
    if (in.data[1] == 'u') return parse_code(in, &code);
    return escapes[in.data[1]] ? 2 : 0;
}

#define EACH(byte) ((uint64_t)(byte)*UINT64_C(0x0101010101010101))
#define ZERO_IN(eight) (((eight)-EACH(1)) & ~(eight)&EACH(0x80))

/* How many bytes at the start need no second look, in steps of eight: ASCII without controls,
 * quote and backslash. */
static size_t plain_span(struct bytes in)
{
    size_t n = 0;
    for (; in.len - n >= 8; n += 8) {
        uint64_t eight;
        memcpy(&eight, in.data + n, 8);
        uint64_t special = eight & EACH(0x80);
        special |= (eight - EACH(0x20)) & ~eight & EACH(0x80);
        special |= ZERO_IN(eight ^ EACH('"')) | ZERO_IN(eight ^ EACH('\\'));
        if (special) break;
    }
    return n;
}

/* One character or escape within a string: its length; 0: malformed. */
static size_t character_len(struct bytes in, bool *escaped)
{
    uint32_t code;
    if (in.data[0] < 0x20) return 0;
    if (in.data[0] != '\\') return utf8_sequence(in.data, in.len, &code);
    *escaped = true;
    return escape_len(in);
}

/* The string whose opening quote is at p->at; behind it at the end. False: it failed. */
static bool read_string(struct parser *p, struct json_node **ret)
{
    size_t from = ++p->at;
    bool escaped = false;
    for (;;) {
        p->at += plain_span(bytes_from(p->in, p->at));
        if (p->at == p->in.len) return fail(p, ERR_INVALID, "a string does not end"), false;
        if (p->in.data[p->at] == '"') break;
        size_t n = character_len(bytes_from(p->in, p->at), &escaped);
        if (n == 0) return fail(p, ERR_INVALID, "malformed string"), false;
        p->at += n;
    }
    struct json_node *node = add(p, JSON_KIND_STRING, from, p->at - from);
    if (!node) return too_many(p), false;
    node->escaped = escaped;
    p->at++;
    *ret = node;
    return true;
}

static enum expect read_string_value(struct parser *p)
{
    struct json_node *node;
    return read_string(p, &node) ? after_value(p) : FAILED;
}

/* ---- the content of strings ---- */

static size_t put_utf8(uint32_t code, uint8_t *out)
{
    if (code < 0x80) return out[0] = (uint8_t)code, 1;
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6) out[i] = (uint8_t)(0x80 | (code & 0x3f));
    out[0] = (uint8_t)((0xf00u >> n) | code);
    return n;
}

/* Takes one byte or escape from the front, writes what it stands for: at most four bytes. */
static size_t take_character(struct bytes *in, uint8_t *out)
{
    uint32_t code = in->data[0];
    size_t len = 1;
    if (code == '\\' && in->data[1] == 'u')
        len = parse_code(*in, &code);
    else if (code == '\\')
        code = escapes[in->data[1]], len = 2;
    CHECK(len > 0);
    *in = bytes_from(*in, len);
    if (len == 1) return out[0] = (uint8_t)code, 1;
    return put_utf8(code, out);
}

struct bytes json_text(const struct json *j, const struct json_node *n)
{
    return bytes_of(j->text.data + n->start, n->len);
}

size_t json_unescape(const struct json *j, const struct json_node *n, uint8_t *out)
{
    struct bytes in = json_text(j, n);
    size_t len = 0;
    while (in.len > 0) len += take_character(&in, out + len);
    return len;
}

static bool is_content(struct bytes text, bool escaped, struct bytes content)
{
    if (!escaped) return bytes_eq(text, content);
    while (text.len > 0) {
        uint8_t character[4];
        size_t n = take_character(&text, character);
        if (n > content.len || memcmp(character, content.data, n) != 0) return false;
        content = bytes_from(content, n);
    }
    return content.len == 0;
}

bool json_string_is(const struct json *j, const struct json_node *n, struct bytes content)
{
    return n->kind == JSON_KIND_STRING && is_content(json_text(j, n), n->escaped, content);
}

const struct json_node *json_member(const struct json *j, const struct json_node *object,
                                    const char *name)
{
    if (!object || object->kind != JSON_KIND_OBJECT) return NULL;
    const struct json_node *key = object + 1, *end = json_next(j, object);
    for (; key < end; key = json_next(j, key + 1))
        if (json_string_is(j, key, bytes_str(name))) return key + 1;
    return NULL;
}

/* ---- keys ---- */

static struct bytes node_text(const struct parser *p, const struct json_node *n)
{
    return bytes_of(p->in.data + n->start, n->len);
}

static uint64_t hash_more(uint64_t h, struct bytes in)
{
    for (size_t i = 0; i < in.len; i++) h = (h ^ in.data[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* Of the content, so that "a" and "\u0061" have the same. */
static uint64_t key_hash(struct bytes text, bool escaped)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    if (!escaped) h = hash_more(h, text);
    while (escaped && text.len > 0) {
        uint8_t character[4];
        size_t n = take_character(&text, character);
        h = hash_more(h, bytes_of(character, n));
    }
    h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
    return h ^ h >> 33;
}

/* Two keys, either of them escaped or not. A character above ASCII comes byte by byte from the
 * text and at once from an escape; both are well formed, so the first byte says how many follow. */
static bool same_key(struct bytes a, struct bytes b)
{
    while (a.len > 0 && b.len > 0) {
        uint8_t one[4], other[4];
        size_t n = take_character(&a, one), m = take_character(&b, other);
        if (one[0] != other[0]) return false;
        for (; n < m; n++) take_character(&a, one + n);
        for (; m < n; m++) take_character(&b, other + m);
        if (memcmp(one, other, n) != 0) return false;
    }
    return a.len == b.len;
}

bool json_strings_eq(const struct json *a, const struct json_node *m, const struct json *b,
                     const struct json_node *n)
{
    if (!m->escaped && !n->escaped) return bytes_eq(json_text(a, m), json_text(b, n));
    return same_key(json_text(a, m), json_text(b, n));
}

static bool keys_equal(const struct parser *p, const struct json_node *a,
                       const struct json_node *b)
{
    struct json j = { .text = p->in };
    return json_strings_eq(&j, a, &j, b);
}

/* Puts a key into the tree whose root is the first key of the object. */
static bool add_key(struct parser *p, struct json_node *key)
{
    uint32_t index = (uint32_t)(key - p->nodes), at = p->open + 1;
    uint64_t hash = key_hash(node_text(p, key), key->escaped);
    key->sides[0] = key->sides[1] = NONE;
    for (unsigned depth = 0; at != index; depth++, hash >>= 1) {
        struct json_node *n = &p->nodes[at];
        if (depth == KEY_DEPTH_MAX) return fail(p, ERR_LIMIT, "too many similar keys"), false;
        if (keys_equal(p, n, key)) return fail(p, ERR_INVALID, "a key is repeated"), false;
        if (n->sides[hash & 1] == NONE) n->sides[hash & 1] = index;
        at = n->sides[hash & 1];
    }
    return true;
}

const struct json_node *json_find_key(const struct json *j, const struct json_node *object,
                                      const struct json *text, const struct json_node *name)
{
    CHECK(object->kind == JSON_KIND_OBJECT && name->kind == JSON_KIND_STRING);
    uint64_t hash = key_hash(json_text(text, name), name->escaped);
    uint32_t at = object->count ? (uint32_t)(object - j->nodes) + 1 : NONE;
    for (; at != NONE; hash >>= 1) {
        const struct json_node *key = &j->nodes[at];
        if (json_strings_eq(j, key, text, name)) return key;
        at = key->sides[hash & 1];
    }
    return NULL;
}

static enum expect read_key(struct parser *p)
{
    struct json_node *key;
    if (peek(p) != '"') return fail(p, ERR_INVALID, "a key is missing");
    if (!read_string(p, &key)) return FAILED;
    if (is_thin(p))
        p->count--;
    else if (!add_key(p, key))
        return FAILED;
    if (peek(p) != ':') return fail(p, ERR_INVALID, "':' is missing");
    p->at++;
    p->nodes[p->open].count++;
    return EXPECT_VALUE;
}

/* ---- numbers and words ---- */

static size_t digits_at(const struct parser *p, size_t at)
{
    return chars_span(bytes_from(p->in, at), CHAR_DIGIT);
}

static bool byte_is(const struct parser *p, size_t at, uint8_t a, uint8_t b)
{
    return at < p->in.len && (p->in.data[at] == a || p->in.data[at] == b);
}

/* Where the number at p->at ends; 0: malformed. *ret_integer: no fraction, no exponent. */
static size_t number_end(const struct parser *p, bool *ret_integer)
{
    size_t at = p->at + byte_is(p, p->at, '-', '-'), n = digits_at(p, at);
    if (n == 0 || (n > 1 && p->in.data[at] == '0')) return 0;
    size_t integer_end = at += n;
    if (byte_is(p, at, '.', '.')) {
        n = digits_at(p, at + 1);
        if (n == 0) return 0;
        at += 1 + n;
    }
    if (byte_is(p, at, 'e', 'E')) {
        at += 1 + byte_is(p, at + 1, '+', '-');
        n = digits_at(p, at);
        if (n == 0) return 0;
        at += n;
    }
    *ret_integer = at == integer_end;
    return at;
}

/* "-0" is no integer: it would lose its sign. */
static enum expect read_number(struct parser *p)
{
    bool integer;
    size_t end = number_end(p, &integer);
    if (end == 0) return fail(p, ERR_INVALID, "malformed number");
    struct json_node *n = add(p, JSON_KIND_DOUBLE, p->at, end - p->at);
    if (!n) return too_many(p);
    if (integer && number_parse(node_text(p, n), &n->number)) n->kind = JSON_KIND_INTEGER;
    p->at = end;
    return after_value(p);
}

static enum expect read_word(struct parser *p, const char *word, enum json_kind kind)
{
    struct bytes wanted = bytes_str(word);
    if (p->in.len - p->at < wanted.len ||
        memcmp(p->in.data + p->at, wanted.data, wanted.len) != 0)
        return fail(p, ERR_INVALID, "unknown word");
    if (!add(p, kind, p->at, wanted.len)) return too_many(p);
    p->at += wanted.len;
    return after_value(p);
}

/* ---- arrays and objects ---- */

static enum expect open_container(struct parser *p, enum json_kind kind)
{
    if (p->depth == p->limits->depth_max) return fail(p, ERR_LIMIT, "too deep");
    struct json_node *n = add(p, kind, p->at, 0);
    if (!n) return too_many(p);
    n->next = p->open;
    p->open = p->count - 1;
    p->depth++;
    p->at++;
    return kind == JSON_KIND_ARRAY ? EXPECT_VALUE_OR_END : EXPECT_KEY_OR_END;
}

static enum expect close_container(struct parser *p)
{
    struct json_node *n = &p->nodes[p->open];
    p->at++;
    n->len = (uint32_t)(p->at - n->start);
    p->open = n->next;
    n->next = p->count;
    p->depth--;
    return after_value(p);
}

static uint8_t closing_of(const struct parser *p)
{
    return p->nodes[p->open].kind == JSON_KIND_ARRAY ? ']' : '}';
}

/* ---- what comes next ---- */

static void count_element(struct parser *p)
{
    if (p->open != NONE && p->nodes[p->open].kind == JSON_KIND_ARRAY) p->nodes[p->open].count++;
}

static enum expect expect_value(struct parser *p)
{
    uint8_t c = peek(p);
    count_element(p);
    switch (c) {
    case '{':
        return open_container(p, JSON_KIND_OBJECT);
    case '[':
        return open_container(p, JSON_KIND_ARRAY);
    case '"':
        return read_string_value(p);
    case 't':
        return read_word(p, "true", JSON_KIND_TRUE);
    case 'f':
        return read_word(p, "false", JSON_KIND_FALSE);
    case 'n':
        return read_word(p, "null", JSON_KIND_NULL);
    }
    if (c == '-' || char_is(c, CHAR_DIGIT)) return read_number(p);
    return fail(p, ERR_INVALID, "a value is missing");
}

static enum expect expect_value_or_end(struct parser *p)
{
    return peek(p) == ']' ? close_container(p) : expect_value(p);
}

static enum expect expect_key_or_end(struct parser *p)
{
    return peek(p) == '}' ? close_container(p) : read_key(p);
}

static enum expect expect_comma_or_end(struct parser *p)
{
    uint8_t c = peek(p);
    if (c == closing_of(p)) return close_container(p);
    if (c != ',') return fail(p, ERR_INVALID, "',' or the end is missing");
    p->at++;
    return p->nodes[p->open].kind == JSON_KIND_ARRAY ? EXPECT_VALUE : EXPECT_KEY;
}

typedef enum expect expect_fn(struct parser *p);

static expect_fn *const functions[] = {
    [EXPECT_VALUE] = expect_value,
    [EXPECT_VALUE_OR_END] = expect_value_or_end,
    [EXPECT_KEY] = read_key,
    [EXPECT_KEY_OR_END] = expect_key_or_end,
    [EXPECT_COMMA_OR_END] = expect_comma_or_end,
};

int json_read(struct bytes text, const struct json_limits *limits, struct json_node *nodes,
              struct json *ret_json, struct err *reterr)
{
    /* cppcheck-suppress ctuuninitvar ; an output: it is kept here, not read */
    struct parser p = { text, limits, nodes, reterr, .open = NONE };
    CHECK(limits->nodes_max < NONE);
    if (text.len >= NONE) return err_set(reterr, ERR_LIMIT, "JSON: too long");
    enum expect next = EXPECT_VALUE;
    while (next < EXPECT_NOTHING) next = functions[next](&p);
    if (next == EXPECT_NOTHING) peek(&p);
    if (next == EXPECT_NOTHING && p.at < text.len)
        next = fail(&p, ERR_INVALID, "something behind the value");
    if (next == FAILED) return reterr->code;
    *ret_json = (struct json){ text, nodes, p.count };
    return 0;
}
