/* heap.c - see heap.h. A node outside any heap has prev == itself; the root has prev ==
 * NULL. */
#include "base/heap.h"

#include "base/check.h"

void heap_init(struct heap *h)
{
    *h = (struct heap){ 0 };
}

void heap_node_init(struct heap_node *n)
{
    *n = (struct heap_node){ .prev = n };
}

bool heap_has(const struct heap *h, const struct heap_node *n)
{
    (void)h;
    return n->prev != n;
}

static bool before(const struct heap_node *a, const struct heap_node *b)
{
    if (a->at_ms != b->at_ms) return a->at_ms < b->at_ms;
    return a->order < b->order;
}

/* Both are roots without siblings; the later one becomes the first child of the earlier one. */
static struct heap_node *meld(struct heap_node *a, struct heap_node *b)
{
    if (!a) return b;
    if (!b) return a;
    if (before(b, a)) {
        struct heap_node *swap = a;
        a = b;
        b = swap;
    }
    b->prev = a;
    b->next = a->child;
    if (a->child) a->child->prev = b;
    a->child = b;
    return a;
}

/* Melds a list of siblings into one tree, in pairs from the left, then from the right. */
static struct heap_node *meld_siblings(struct heap_node *first)
{
    struct heap_node *pairs = NULL;
    while (first) {
        struct heap_node *a = first, *b = a->next;
        first = b ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b) b->next = b->prev = NULL;
        struct heap_node *pair = meld(a, b);
        pair->next = pairs;
        pairs = pair;
    }
    struct heap_node *root = NULL;
    while (pairs) {
        struct heap_node *rest = pairs->next;
        pairs->next = NULL;
        root = meld(root, pairs);
        pairs = rest;
    }
    if (root) root->prev = NULL;
    return root;
}

void heap_add(struct heap *h, struct heap_node *n, int64_t at_ms)
{
    CHECK(!heap_has(h, n));
    *n = (struct heap_node){ .at_ms = at_ms, .order = h->order++ };
    h->root = meld(h->root, n);
    h->root->prev = NULL;
    h->count++;
}

void heap_remove(struct heap *h, struct heap_node *n)
{
    CHECK(heap_has(h, n));
    CHECK(h->count > 0);
    if (n == h->root) {
        h->root = meld_siblings(n->child);
    } else {
        if (n->prev->child == n)
            n->prev->child = n->next;
        else
            n->prev->next = n->next;
        if (n->next) n->next->prev = n->prev;
        h->root = meld(h->root, meld_siblings(n->child));
        h->root->prev = NULL;
    }
    heap_node_init(n);
    h->count--;
}
