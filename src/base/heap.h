/* heap.h - intrusive pairing heap ordered by a time.
 *
 * Guarantees: add, move and remove never allocate and so never fail; the earliest is at hand in
 * O(1); equal times come out in the order they were added. Timers of the loop and the expiry of
 * memory records live here. */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
    struct heap_node *child, *next, *prev; /* prev: left sibling, or parent of a first child */
    int64_t at_ms;
    uint64_t order;
};

struct heap {
    struct heap_node *root;
    uint64_t order;
    size_t count;
};

void heap_init(struct heap *h);
void heap_node_init(struct heap_node *n);
bool heap_has(const struct heap *h, const struct heap_node *n);
void heap_add(struct heap *h, struct heap_node *n, int64_t at_ms);
void heap_remove(struct heap *h, struct heap_node *n);

static inline struct heap_node *heap_first(const struct heap *h)
{
    return h->root;
}

#endif
