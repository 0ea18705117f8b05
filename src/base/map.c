/* map.c - see map.h. Chained, power-of-two tables, two of them while growing.
 * SipHash is written out here: it is twenty lines, and no packaged library offers only that. */
#include "base/map.h"

#include "base/check.h"
#include "base/err.h"

#include <stdlib.h>

enum { MAP_SIZE_MIN = 16, MAP_MOVES_PER_INSERT = 4 };

static uint64_t rotl(uint64_t x, int b)
{
    return x << b | x >> (64 - b);
}

/* Inlined by force: with the state in registers a hash costs a third. */
__attribute__((always_inline)) static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = rotl(v[1], 13), v[1] ^= v[0], v[0] = rotl(v[0], 32);
    v[2] += v[3], v[3] = rotl(v[3], 16), v[3] ^= v[2];
    v[0] += v[3], v[3] = rotl(v[3], 21), v[3] ^= v[0];
    v[2] += v[1], v[1] = rotl(v[1], 17), v[1] ^= v[2], v[2] = rotl(v[2], 32);
}

static uint64_t load_le(const uint8_t *p, size_t len)
{
    uint64_t word = 0;
    if (len == 8) {
        memcpy(&word, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
#endif
        return word;
    }
    for (size_t i = 0; i < len; i++) word |= (uint64_t)p[i] << (8 * i);
    return word;
}

uint64_t siphash13(const uint64_t seed[2], struct bytes in)
{
    uint64_t v[4] = { seed[0] ^ 0x736f6d6570736575u, seed[1] ^ 0x646f72616e646f6du,
                      seed[0] ^ 0x6c7967656e657261u, seed[1] ^ 0x7465646279746573u };
    size_t at = 0;
    for (; at + 8 <= in.len; at += 8) {
        uint64_t word = load_le(in.data + at, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    uint64_t last =
        (uint64_t)in.len << 56 | (in.len > at ? load_le(in.data + at, in.len - at) : 0);
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

int map_init(struct map *m, map_key_fn *key_of, const uint64_t seed[2])
{
    *m = (struct map){ .key_of = key_of, .seed = { seed[0], seed[1] } };
    m->now.slots = calloc(MAP_SIZE_MIN, sizeof *m->now.slots);
    if (!m->now.slots) return ERR_NOMEM;
    m->now.size = MAP_SIZE_MIN;
    return 0;
}

void map_fini(struct map *m)
{
    free(m->now.slots);
    free(m->old.slots);
    *m = (struct map){ 0 };
}

static struct map_node **slot_of(const struct map_table *t, uint64_t hash)
{
    return &t->slots[hash & (t->size - 1)];
}

static struct map_node *find_in(const struct map *m, const struct map_table *t, uint64_t hash,
                                struct bytes key)
{
    if (!t->size) return NULL;
    for (struct map_node *n = *slot_of(t, hash); n; n = n->next)
        if (n->hash == hash && bytes_eq(m->key_of(n), key)) return n;
    return NULL;
}

struct map_node *map_find(const struct map *m, struct bytes key)
{
    if (m->count == 0) return NULL;
    uint64_t hash = siphash13(m->seed, key);
    struct map_node *n = find_in(m, &m->now, hash, key);
    return n ? n : find_in(m, &m->old, hash, key);
}

static void put(struct map_table *t, struct map_node *n)
{
    struct map_node **slot = slot_of(t, n->hash);
    n->next = *slot;
    *slot = n;
}

static void move_some(struct map *m, size_t slots)
{
    while (m->old.size && slots--) {
        struct map_node *n = m->old.slots[m->moved];
        m->old.slots[m->moved] = NULL;
        while (n) {
            struct map_node *next = n->next;
            put(&m->now, n);
            n = next;
        }
        if (++m->moved < m->old.size) continue;
        free(m->old.slots);
        m->old = (struct map_table){ 0 };
        m->moved = 0;
    }
}

static void grow(struct map *m)
{
    if (m->old.size || m->count < m->now.size) return;
    struct map_node **slots = calloc(m->now.size * 2, sizeof *slots);
    if (!slots) return; /* longer chains, same answers */
    m->old = m->now;
    m->now = (struct map_table){ .slots = slots, .size = m->old.size * 2 };
    m->moved = 0;
}

void map_insert(struct map *m, struct map_node *n)
{
    grow(m);
    move_some(m, MAP_MOVES_PER_INSERT);
    n->hash = siphash13(m->seed, m->key_of(n));
    put(&m->now, n);
    m->count++;
}

static bool take_from(struct map_table *t, struct map_node *n)
{
    if (!t->size) return false;
    for (struct map_node **at = slot_of(t, n->hash); *at; at = &(*at)->next) {
        if (*at != n) continue;
        *at = n->next;
        return true;
    }
    return false;
}

void map_remove(struct map *m, struct map_node *n)
{
    bool found = take_from(&m->now, n) || take_from(&m->old, n);
    CHECK(found);
    m->count--;
}

void map_each(struct map *m, bool (*visit)(struct map_node *, void *ctx), void *ctx)
{
    struct map_table *tables[] = { &m->now, &m->old };
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < tables[t]->size; i++)
            for (struct map_node *n = tables[t]->slots[i], *next; n; n = next) {
                next = n->next;
                if (!visit(n, ctx)) return;
            }
}
