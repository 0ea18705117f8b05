/* reply.h - RESP2 and RESP3 as a client hears them: bytes to values.
 *
 * A reply becomes a row of nodes in the order of the text: an aggregate is followed by its
 * elements, and `next` leads past them. Nodes hold offsets, not pointers: the buffer may move
 * while a reply is incomplete. There is no recursion; depth, nodes and bytes are limited before
 * anything is kept. However the input is cut, nodes and errors are the same. Attributes and
 * strings of unknown length (both of RESP3) are refused: no server of ours sends them. */
#ifndef PROTO_REPLY_H
#define PROTO_REPLY_H

#include "proto/resp.h"

enum reply_type {
    REPLY_NULL,
    REPLY_TEXT,    /* simple, bulk, verbatim, big number: its bytes */
    REPLY_ERROR,   /* its line, or its bytes */
    REPLY_INTEGER, /* number */
    REPLY_BOOLEAN, /* number: 0 or 1 */
    REPLY_DOUBLE,  /* its text */
    REPLY_ARRAY,   /* and sets */
    REPLY_MAP,     /* key, value, key, ... */
    REPLY_PUSH,    /* out of turn */
};

struct reply_node {
    enum reply_type type;
    uint32_t start, len; /* of the bytes, from the start of the reply */
    uint32_t next;       /* the node behind this one and all that is in it */
    int64_t number;      /* or the count of elements; both of a pair count */
};

struct reply_limits {
    size_t depth_max;      /* aggregates within each other */
    size_t bytes_max;      /* of a reply with all its framing; below 4 GiB */
    size_t line_bytes_max; /* of a simple string, an error, a number */
};

struct reply_reader {
    const struct reply_limits *limits;
    struct reply_node *nodes; /* the caller's, for as long as a reply is being read */
    size_t nodes_max;
    size_t count;  /* nodes so far; of the whole reply when it is ready */
    size_t at;     /* bytes so far; of the whole reply when it is ready */
    size_t need;   /* after RESP_MORE: not before so many bytes are there */
    uint32_t open; /* the innermost aggregate that lacks elements */
    size_t depth;
};

void reply_reader_init(struct reply_reader *r, const struct reply_limits *limits,
                       struct reply_node *nodes, size_t nodes_max);

/* `in` starts where the reply does. RESP_READY: nodes[0] is the reply, r->at bytes were its own;
 * call reply_reader_clear() before the next one. */
enum resp_progress reply_read(struct reply_reader *r, struct bytes in, struct err *reterr);
void reply_reader_clear(struct reply_reader *r);

static inline struct bytes reply_bytes(const struct reply_node *n, struct bytes in)
{
    return bytes_of(in.data + n->start, n->len);
}

/* The word in capitals that an error begins with; empty: it does not. For who must not repeat the
 * rest: a server that does not know a command repeats what came with it, a password, too. */
struct bytes reply_error_word(struct bytes text);

/* The element of this number, NULL if there are not so many. */
const struct reply_node *reply_element(const struct reply_node *nodes,
                                       const struct reply_node *aggregate, size_t number);

#endif
