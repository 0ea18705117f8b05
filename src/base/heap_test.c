/* heap_test.c - against a sorted reference, with random adds and removals. */
#include "base/heap.h"

#include "base/random.h"

#include <criterion/criterion.h>

enum { MANY = 500 };

static struct heap heap;
static struct heap_node nodes[MANY];

static void setup(void)
{
    heap_init(&heap);
    for (size_t i = 0; i < MANY; i++) heap_node_init(&nodes[i]);
}

TestSuite(heap, .init = setup);

/* The reference: walk all of them. */
static struct heap_node *earliest(void)
{
    struct heap_node *first = NULL;
    for (size_t i = 0; i < MANY; i++) {
        struct heap_node *n = &nodes[i];
        if (!heap_has(&heap, n)) continue;
        bool sooner = first && (n->at_ms < first->at_ms ||
                                (n->at_ms == first->at_ms && n->order < first->order));
        if (!first || sooner) first = n;
    }
    return first;
}

Test(heap, empty_has_no_first)
{
    cr_assert(!heap_first(&heap));
    cr_assert(heap.count == 0);
    cr_assert(!heap_has(&heap, &nodes[0]));
}

Test(heap, equal_times_come_out_in_the_order_they_were_added)
{
    for (size_t i = 0; i < MANY; i++) heap_add(&heap, &nodes[i], 42);
    for (size_t i = 0; i < MANY; i++) {
        cr_assert(heap_first(&heap) == &nodes[i]);
        heap_remove(&heap, &nodes[i]);
    }
    cr_assert(!heap_first(&heap));
}

Test(heap, pops_in_order_of_time)
{
    struct rng_seeded rng;
    rng_seeded_init(&rng, 3);
    for (size_t i = 0; i < MANY; i++)
        heap_add(&heap, &nodes[i], (int64_t)rng_below(&rng.base, 100) - 50);
    int64_t last_ms = INT64_MIN;
    for (size_t left = MANY; left; left--) {
        struct heap_node *n = heap_first(&heap);
        cr_assert(heap.count == left && n->at_ms >= last_ms);
        last_ms = n->at_ms;
        heap_remove(&heap, n);
        cr_assert(!heap_has(&heap, n));
    }
}

Test(heap, random_ops_agree_with_the_reference)
{
    struct rng_seeded rng;
    rng_seeded_init(&rng, 5);
    size_t in = 0;
    for (unsigned i = 0; i < 20000; i++) {
        struct heap_node *n = &nodes[rng_below(&rng.base, MANY)];
        if (heap_has(&heap, n)) {
            heap_remove(&heap, n);
            in--;
        } else {
            heap_add(&heap, n, (int64_t)rng_below(&rng.base, 1000));
            in++;
        }
        cr_assert(heap.count == in);
        if (i % 7 == 0) cr_assert(heap_first(&heap) == earliest());
    }
}

Test(heap, a_node_can_be_added_again)
{
    heap_add(&heap, &nodes[0], 10);
    heap_add(&heap, &nodes[1], 20);
    heap_remove(&heap, &nodes[0]);
    heap_add(&heap, &nodes[0], 30);
    cr_assert(heap_first(&heap) == &nodes[1]);
}
