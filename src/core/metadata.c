/* metadata.c - see metadata.h.
 *
 * Metadata and operations are read once each. A key that is named gets a slot, where the operations
 * leave what becomes of its member; at the end everything is written once. So the time goes with the
 * size of both, however many operations there are, and nothing is written if one of them fails. */
#include "core/metadata.h"

#include "base/check.h"
#include "core/document.h"
#include "core/run.h"
#include "proto/number.h"

#include <math.h>

_Static_assert((int)METADATA_DEPTH_MAX == (int)DOCUMENT_DEPTH_MAX,
               "an operation may put what was two levels deep one or two levels deep");

struct operation;
struct edit;
struct slot;
typedef int rule_fn(struct edit *e, struct slot *s, const struct operation *o);

struct operation_type {
    const char *name;
    bool value_may, value_must;
    rule_fn *rule;
};

struct operation {
    const struct operation_type *type;
    const struct json_node *key, *value; /* no value: NULL */
    const struct operation *next;        /* appended behind this one, to the same array */
    size_t number;                       /* from 1, for errors */
};

struct number {
    bool is_double;
    int64_t integer;
    double real;
};

enum slot_form { SLOT_ABSENT, SLOT_TEXT, SLOT_NUMBER, SLOT_ARRAY };

/* What becomes of a member. */
struct slot {
    const struct json_node *original; /* its key in the metadata; NULL: a new one comes last */
    const struct json_node *key;      /* in the operations */
    enum slot_form form;
    bool removed; /* if it is named once more, that is another member */
    const struct json *of;
    const struct json_node
        *value; /* SLOT_TEXT: all of it; SLOT_ARRAY: what it begins with, or NULL */
    struct number number;
    struct operation *first, *last; /* SLOT_ARRAY: what is appended */
};

struct edit {
    struct document metadata, operations;
    struct operation list[METADATA_OPERATIONS_MAX];
    size_t count;
    struct slot slots[METADATA_OPERATIONS_MAX];
    size_t slot_count;
    struct slot *originals[METADATA_OPERATIONS_MAX]; /* those that are not new, as they stand */
    size_t original_count;
    struct err *reterr;
};

static int refuse(struct edit *e, const struct operation *o, const char *what)
{
    return err_set(e->reterr, ERR_INVALID, "operation %zu: %s", o->number, what);
}

/* As it stands in the text, with its quotes. */
static struct bytes raw(const struct json *j, const struct json_node *n)
{
    struct bytes text = json_text(j, n);
    if (n->kind != JSON_KIND_STRING) return text;
    return bytes_of(text.data - 1, text.len + 2);
}

/* ---- numbers ---- */

static bool has_point_or_exponent(struct bytes text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] == '.' || text.data[i] == 'e' || text.data[i] == 'E') return true;
    return false;
}

/* An integer that does not fit is no number here: as a double it would be another one. */
static bool number_of(const struct json *j, const struct json_node *n, struct number *ret)
{
    struct bytes text = json_text(j, n);
    *ret = (struct number){ .is_double = n->kind == JSON_KIND_DOUBLE };
    if (n->kind == JSON_KIND_INTEGER) ret->integer = n->number;
    if (n->kind != JSON_KIND_DOUBLE) return n->kind == JSON_KIND_INTEGER;
    if (!has_point_or_exponent(text) && !bytes_eq(text, bytes_str("-0"))) return false;
    return number_parse_double(text, &ret->real);
}

static double as_double(const struct number *n)
{
    return n->is_double ? n->real : (double)n->integer;
}

/* False: it does not fit. */
static bool add(struct number *to, const struct number *amount)
{
    if (!to->is_double && !amount->is_double)
        return !__builtin_add_overflow(to->integer, amount->integer, &to->integer);
    to->real = as_double(to) + as_double(amount);
    to->is_double = true;
    return isfinite(to->real);
}

/* ---- what the operations do ---- */

static bool slot_number(const struct slot *s, struct number *ret)
{
    *ret = s->number;
    if (s->form == SLOT_ABSENT || s->form == SLOT_NUMBER) return true; /* counts from 0 */
    return s->form == SLOT_TEXT && number_of(s->of, s->value, ret);
}

static int increment(struct edit *e, struct slot *s, const struct operation *o)
{
    struct number n, amount = { .integer = 1 };
    bool fine = !o->value || number_of(&e->operations.json, o->value, &amount);
    CHECK(fine); /* check_value() */
    if (!slot_number(s, &n)) return refuse(e, o, "what it increments is not a number");
    if (!add(&n, &amount)) return refuse(e, o, "the sum does not fit");
    s->form = SLOT_NUMBER;
    s->number = n;
    return 0;
}

static int append(struct edit *e, struct slot *s, const struct operation *o)
{
    bool is_array = s->form == SLOT_ARRAY || s->form == SLOT_ABSENT;
    if (s->form == SLOT_TEXT) is_array = s->value->kind == JSON_KIND_ARRAY;
    if (!is_array) return refuse(e, o, "what it appends to is not an array");
    struct operation *link = &e->list[o->number - 1];
    if (s->form != SLOT_ARRAY) s->first = link;
    if (s->form == SLOT_ARRAY) s->last->next = link;
    s->last = link;
    s->form = SLOT_ARRAY;
    return 0;
}

static int set(struct edit *e, struct slot *s, const struct operation *o)
{
    s->form = SLOT_TEXT;
    s->of = &e->operations.json;
    s->value = o->value;
    return 0;
}

static int take_away(struct edit *e, struct slot *s, const struct operation *o)
{
    (void)e, (void)o;
    s->form = SLOT_ABSENT;
    s->removed = true;
    return 0;
}

static const struct operation_type types[] = {
    { "increment", true, false, increment },
    { "append", true, true, append },
    { "set", true, true, set },
    { "remove", false, false, take_away },
};

/* ---- reading operations ---- */

static const struct operation_type *type_of(const struct json *j, const struct json_node *n)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (json_string_is(j, n, bytes_str(types[i].name))) return &types[i];
    return NULL;
}

static int check_value(struct edit *e, const struct operation *o)
{
    struct number n;
    if (o->value && !o->type->value_may) return refuse(e, o, "it takes no value");
    if (!o->value && o->type->value_must) return refuse(e, o, "the value is missing");
    if (o->value && o->type->rule == increment && !number_of(&e->operations.json, o->value, &n))
        return refuse(e, o, "the value is not a number that fits");
    return 0;
}

static int read_operation(struct edit *e, const struct json_node *n, struct operation *o)
{
    const struct json *j = &e->operations.json;
    *o = (struct operation){ .number = e->count };
    if (n->kind != JSON_KIND_OBJECT) return refuse(e, o, "it is not an object");
    const struct json_node *type = json_member(j, n, "type");
    o->key = json_member(j, n, "key");
    o->value = json_member(j, n, "value");
    if (!type) return refuse(e, o, "the type is missing");
    o->type = type_of(j, type);
    if (!o->type) return refuse(e, o, "its type is none of increment, append, set, remove");
    if (!o->key) return refuse(e, o, "the key is missing");
    if (o->key->kind != JSON_KIND_STRING) return refuse(e, o, "the key is not a string");
    if (n->count > 2u + !!o->value) return refuse(e, o, "it has more than type, key and value");
    return check_value(e, o);
}

static int read_list(struct edit *e)
{
    const struct json *j = &e->operations.json;
    const struct json_node *all = document_root(&e->operations), *n = all + 1;
    if (all->kind != JSON_KIND_ARRAY)
        return err_set(e->reterr, ERR_INVALID, "the operations are not an array");
    if (all->count > METADATA_OPERATIONS_MAX)
        return err_set(e->reterr, ERR_LIMIT, "%u operations; at most %d are taken at once",
                       all->count, METADATA_OPERATIONS_MAX);
    for (e->count = 0; n < json_next(j, all); n = json_next(j, n)) {
        struct operation *o = &e->list[e->count++];
        int r = read_operation(e, n, o);
        if (r) return r;
    }
    return 0;
}

static int read_document(struct document *d, struct bytes text, const char *what,
                         struct err *reterr)
{
    struct err why;
    if (text.len > METADATA_BYTES_MAX)
        return err_set(reterr, ERR_LIMIT, "the %s: %zu bytes; at most %d are taken", what,
                       text.len, METADATA_BYTES_MAX);
    int r = document_read(d, text, &why);
    if (r) return err_set(reterr, r, "the %s: %s", what, why.text);
    return 0;
}

static int read_operations(struct edit *e, struct bytes operations)
{
    int r = read_document(&e->operations, operations, "operations", e->reterr);
    if (r) return r;
    r = read_list(e);
    if (r) document_fini(&e->operations);
    return r;
}

int metadata_check_operations(struct bytes operations, struct err *reterr)
{
    struct edit e;
    e.reterr = reterr;
    int r = read_operations(&e, operations);
    if (!r) document_fini(&e.operations);
    return r;
}

/* ---- reading metadata ---- */

static int read_metadata(struct document *d, struct bytes metadata, struct err *reterr)
{
    if (metadata.len == 0) metadata = bytes_str("{}");
    int r = read_document(d, metadata, "metadata", reterr);
    if (r) return r;
    if (document_root(d)->kind == JSON_KIND_OBJECT) return 0;
    document_fini(d);
    return err_set(reterr, ERR_INVALID, "the metadata is not a JSON object");
}

int metadata_check(struct bytes metadata, struct err *reterr)
{
    struct document d;
    if (metadata.len == 0) return err_set(reterr, ERR_INVALID, "the metadata is empty");
    int r = read_metadata(&d, metadata, reterr);
    if (!r) document_fini(&d);
    return r;
}

/* ---- slots ---- */

static void add_original(struct edit *e, struct slot *s)
{
    size_t at = e->original_count++;
    for (; at > 0 && e->originals[at - 1]->original > s->original; at--)
        e->originals[at] = e->originals[at - 1];
    e->originals[at] = s;
}

static struct slot *add_slot(struct edit *e, const struct json_node *key,
                             const struct json_node *original)
{
    struct slot *s = &e->slots[e->slot_count++];
    *s = (struct slot){ .original = original, .key = key };
    if (!original) return s;
    s->form = SLOT_TEXT;
    s->of = &e->metadata.json;
    s->value = original + 1;
    add_original(e, s);
    return s;
}

static struct slot *slot_of(struct edit *e, const struct json_node *key)
{
    const struct json *named = &e->operations.json;
    for (size_t i = e->slot_count; i > 0; i--) {
        struct slot *s = &e->slots[i - 1];
        if (!json_strings_eq(named, s->key, named, key)) continue;
        return s->removed ? add_slot(e, key, NULL) : s;
    }
    const struct json *j = &e->metadata.json;
    return add_slot(e, key, json_find_key(j, document_root(&e->metadata), named, key));
}

/* ---- writing ---- */

static void write_number(const struct number *n, struct buf *out)
{
    struct json_writer w;
    json_start(&w, out);
    if (n->is_double) return json_put_double(&w, n->real);
    json_put_integer(&w, n->integer);
}

static void write_array(const struct edit *e, const struct slot *s, struct buf *out)
{
    struct bytes before = s->value ? raw(s->of, s->value) : bytes_str("[]");
    bool filled = s->value && s->value->count > 0;
    buf_add(out, bytes_of(before.data, before.len - 1));
    for (const struct operation *o = s->first; o; o = o->next) {
        if (filled) buf_byte(out, ',');
        filled = true;
        buf_add(out, raw(&e->operations.json, o->value));
    }
    buf_byte(out, ']');
}

static void write_value(const struct edit *e, const struct slot *s, struct buf *out)
{
    if (s->form == SLOT_NUMBER) return write_number(&s->number, out);
    if (s->form == SLOT_ARRAY) return write_array(e, s, out);
    buf_add(out, raw(s->of, s->value));
}

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* A member with the white space around it, as it stands, or with another value. */
static void write_member(const struct edit *e, const struct json_node *key,
                         const struct slot *s, struct buf *out)
{
    struct bytes value = raw(&e->metadata.json, key + 1);
    const uint8_t *from = raw(&e->metadata.json, key).data, *to = value.data + value.len;
    while (is_space(from[-1])) from--;
    while (is_space(*to)) to++;
    if (!s) return buf_add(out, bytes_of(from, (size_t)(to - from)));
    buf_add(out, bytes_of(from, (size_t)(value.data - from)));
    write_value(e, s, out);
    buf_add(out, bytes_of(value.data + value.len, (size_t)(to - value.data) - value.len));
}

static void separate(bool *filled, struct buf *out)
{
    if (*filled) buf_byte(out, ',');
    *filled = true;
}

static void write_old(const struct edit *e, bool *filled, struct buf *out)
{
    const struct json *j = &e->metadata.json;
    const struct json_node *all = document_root(&e->metadata), *key = all + 1;
    size_t at = 0;
    for (; key < json_next(j, all); key = json_next(j, key + 1)) {
        bool named = at < e->original_count && e->originals[at]->original == key;
        const struct slot *s = named ? e->originals[at++] : NULL;
        if (s && s->form == SLOT_ABSENT) continue;
        separate(filled, out);
        write_member(e, key, s, out);
    }
}

static void write_new(const struct edit *e, bool *filled, struct buf *out)
{
    for (size_t i = 0; i < e->slot_count; i++) {
        const struct slot *s = &e->slots[i];
        if (s->original || s->form == SLOT_ABSENT) continue;
        separate(filled, out);
        buf_add(out, raw(&e->operations.json, s->key));
        buf_byte(out, ':');
        write_value(e, s, out);
    }
}

static int write_all(const struct edit *e, struct buf *out)
{
    size_t start = out->len;
    bool filled = false;
    buf_byte(out, '{');
    write_old(e, &filled, out);
    write_new(e, &filled, out);
    buf_byte(out, '}');
    int failed = buf_failed(out);
    if (!failed && out->len - start > METADATA_BYTES_MAX) failed = ERR_LIMIT;
    if (!failed) return 0;
    out->len = start;
    if (failed == ERR_NOMEM) return err_set(e->reterr, failed, "%s", err_text(failed));
    return err_set(e->reterr, failed, "the metadata would have more than %d bytes",
                   METADATA_BYTES_MAX);
}

/* ---- all of it ---- */

static int apply_all(struct edit *e, struct buf *out)
{
    e->slot_count = e->original_count = 0;
    for (size_t i = 0; i < e->count; i++) {
        const struct operation *o = &e->list[i];
        int r = o->type->rule(e, slot_of(e, o->key), o);
        if (r) return r;
    }
    return write_all(e, out);
}

int metadata_apply(struct bytes metadata, struct bytes operations, struct buf *out,
                   struct err *reterr)
{
    struct edit e;
    e.reterr = reterr;
    int r = read_metadata(&e.metadata, metadata, reterr);
    if (r) return r;
    r = read_operations(&e, operations);
    if (!r) {
        r = apply_all(&e, out);
        document_fini(&e.operations);
    }
    document_fini(&e.metadata);
    return r;
}
