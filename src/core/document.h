/* document.h - a JSON text and the nodes it was read into, however many: few of them in place, more
 * in a buffer. Limits are the text's own: a caller bounds its length. */
#ifndef CORE_DOCUMENT_H
#define CORE_DOCUMENT_H

#include "proto/json.h"

enum { DOCUMENT_NODES_FEW = 128, DOCUMENT_DEPTH_MAX = 64 };

struct document {
    struct json json;
    struct buf many;
    struct json_node few[DOCUMENT_NODES_FEW];
};

/* ERR_INVALID, ERR_LIMIT: it is too deep; ERR_NOMEM. After a failure there is nothing to release. */
int document_read(struct document *d, struct bytes text, struct err *reterr);
void document_fini(struct document *d);

/* Is it JSON? `what` names it in the error. */
int document_check(struct bytes text, const char *what, struct err *reterr);

static inline const struct json_node *document_root(const struct document *d)
{
    return d->json.nodes;
}

#endif
