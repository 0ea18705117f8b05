/* map.h - intrusive hash map over byte strings.
 *
 * Guarantees: after map_init() nothing can fail (a table that cannot grow stays as it is);
 * growth is spread over the following inserts, so no single one pays for a rehash of millions;
 * the hash is keyed (SipHash-1-3), so keys chosen by a stranger cannot pile up in one slot. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/bytes.h"

struct map_node {
    struct map_node *next;
    uint64_t hash;
};

struct map_table {
    struct map_node **slots;
    size_t size; /* power of two, or 0 */
};

typedef struct bytes map_key_fn(const struct map_node *);

struct map {
    struct map_table now, old; /* old: being emptied into now, from slot `moved` on */
    size_t moved, count;
    uint64_t seed[2];
    map_key_fn *key_of;
};

int map_init(struct map *m, map_key_fn *key_of, const uint64_t seed[2]); /* 0 or ERR_NOMEM */
void map_fini(struct map *m); /* frees the table, not the nodes */

struct map_node *map_find(const struct map *m, struct bytes key);
void map_insert(struct map *m, struct map_node *n); /* its key must not be there yet */
void map_remove(struct map *m, struct map_node *n);

/* Calls visit for every node until it returns false. visit may not insert; it may remove (and
 * free) the node it is given. */
void map_each(struct map *m, bool (*visit)(struct map_node *, void *ctx), void *ctx);

uint64_t siphash13(const uint64_t seed[2], struct bytes in);

#endif
