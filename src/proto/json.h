/* json.h - JSON (RFC 8259), strictly: text to values and back.
 *
 * The reader takes what has exactly one meaning and refuses the rest: duplicate keys (compared
 * without escapes), text that is not UTF-8, lone surrogates, a byte order mark, anything behind
 * the value. Values become a row of nodes in the order of the text, which hold offsets into it:
 * an object is followed by key, value, key, ..., an array by its elements, and `next` leads past
 * them. No recursion, no allocation: the caller gives the array, and its size is the limit. (The
 * command reads and writes JSON for people with Jansson; a tree of allocated values for every
 * request is what a door cannot afford. The names are chosen so that both can be linked.) */
#ifndef PROTO_JSON_H
#define PROTO_JSON_H

#include "base/buf.h"
#include "base/err.h"

enum json_kind {
    JSON_KIND_NULL,
    JSON_KIND_FALSE,
    JSON_KIND_TRUE,
    JSON_KIND_INTEGER, /* fits an int64 and was written without fraction and exponent */
    JSON_KIND_DOUBLE,  /* any other number: its text */
    JSON_KIND_STRING,
    JSON_KIND_ARRAY,
    JSON_KIND_OBJECT,
};

struct json_node {
    uint8_t kind;        /* enum json_kind */
    bool escaped;        /* of a string: it is not what stands in the text */
    uint32_t start, len; /* of its text; of a string without the quotes */
    uint32_t next;       /* the node behind this one and all that is in it */
    union {
        int64_t number;    /* of an integer */
        uint32_t count;    /* elements of an array, members of an object */
        uint32_t sides[2]; /* of a key: others of its object, by their hash */
    };
};

/* A text that was read. nodes[0] is the value. */
struct json {
    struct bytes text;
    struct json_node *nodes; /* the caller's */
    size_t count;
};

/* What is not kept is read all the same, but for its keys, which are not compared: whoever asks for
 * the nodes of one level gets the others as text, in as little memory as that level needs. */
struct json_limits {
    size_t nodes_max; /* room in the array; keys count, too, and one for each open container */
    size_t depth_max; /* arrays and objects within each other */
    size_t
        depth_kept; /* what is within more of them than this has no node; 0: everything has */
};

/* 0, or ERR_INVALID or ERR_LIMIT with a sentence that says where. */
int json_read(struct bytes text, const struct json_limits *limits, struct json_node *nodes,
              struct json *ret_json, struct err *reterr);

/* What stands in the text: of a string without escapes its content, of anything else all of it. */
struct bytes json_text(const struct json *j, const struct json_node *n);

/* The content of a string; `out` has room for n->len bytes. Never fails. */
size_t json_unescape(const struct json *j, const struct json_node *n, uint8_t *out);
bool json_string_is(const struct json *j, const struct json_node *n, struct bytes content);

/* The value of a member, NULL if there is none or if it is not an object. */
const struct json_node *json_member(const struct json *j, const struct json_node *object,
                                    const char *name);

/* Two strings, of one text or of two, by their content. */
bool json_strings_eq(const struct json *a, const struct json_node *m, const struct json *b,
                     const struct json_node *n);
/* The key of the object's member whose name is that string of `text`, which may be another one; the
 * value is the node behind it. NULL: there is none. At most 64 steps, however many members. */
const struct json_node *json_find_key(const struct json *j, const struct json_node *object,
                                      const struct json *text, const struct json_node *name);

/* For a walk over elements, or keys and values: begin behind the node, until its `next`. */
static inline const struct json_node *json_next(const struct json *j, const struct json_node *n)
{
    return j->nodes + n->next;
}

/* ---- writing ---- */

/* Puts commas and colons by itself. Which calls make a text is up to the caller: the writer only
 * checks that what is opened is closed. What does not fit is remembered by the buffer. */
struct json_writer {
    struct buf *out;
    uint64_t filled; /* a bit per level: something stands there, a comma is needed */
    unsigned depth;  /* at most 63 */
    bool keyed;      /* a key was written: the value follows without a comma */
};

void json_start(struct json_writer *w, struct buf *out);
void json_put_object(struct json_writer *w);
void json_end_object(struct json_writer *w);
void json_put_array(struct json_writer *w);
void json_end_array(struct json_writer *w);
void json_put_key(struct json_writer *w, const char *name);
void json_put_key_bytes(struct json_writer *w, struct bytes name);

/* Bytes that are not UTF-8 become U+FFFD: the text is JSON in any case. */
void json_put_string(struct json_writer *w, struct bytes content);
void json_put_cstring(struct json_writer *w, const char *content);
void json_put_integer(struct json_writer *w, int64_t n);
void json_put_double(struct json_writer *w, double d); /* null, unless it is finite */
void json_put_boolean(struct json_writer *w, bool yes);
void json_put_null(struct json_writer *w);
void json_put_raw(struct json_writer *w, struct bytes json); /* a value that is JSON already */

/* A string if it is UTF-8, else {"base64": "..."}: nothing is lost. */
void json_put_value(struct json_writer *w, struct bytes content);

#endif
