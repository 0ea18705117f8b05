/* document.c - see document.h. */
#include "core/document.h"

/* Every value but the first stands behind one of these. Those within strings are counted, too: it is
 * at least as many. */
static size_t nodes_bound(struct bytes text)
{
    static const bool leads[256] = { [','] = true, [':'] = true, ['['] = true, ['{'] = true };
    size_t count = 1;
    for (size_t i = 0; i < text.len; i++) count += leads[text.data[i]];
    return count;
}

/* Memory of a buffer is good for any type. */
static struct json_node *room_for(struct document *d, size_t nodes)
{
    if (nodes <= DOCUMENT_NODES_FEW) return d->few;
    return (struct json_node *)(void *)buf_extend(&d->many, nodes * sizeof(struct json_node));
}

int document_read(struct document *d, struct bytes text, struct err *reterr)
{
    struct json_limits limits = { nodes_bound(text), DOCUMENT_DEPTH_MAX };
    buf_init(&d->many, limits.nodes_max * sizeof(struct json_node));
    struct json_node *nodes = room_for(d, limits.nodes_max);
    if (!nodes) return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    int r = json_read(text, &limits, nodes, &d->json, reterr);
    if (r) document_fini(d);
    return r;
}

void document_fini(struct document *d)
{
    buf_fini(&d->many);
}

int document_check(struct bytes text, const char *what, struct err *reterr)
{
    struct document d;
    struct err why;
    int r = document_read(&d, text, &why);
    if (r == ERR_NOMEM) return err_set(reterr, r, "%s", why.text);
    if (r) return err_set(reterr, r, "the %s: %s", what, why.text);
    document_fini(&d);
    return 0;
}
