/* map_test.c - against a plain array, through growth, and with removal while growing. */
#include "base/map.h"

#include "base/check.h"
#include "base/random.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

enum { MANY = 20000 };

struct item {
    struct map_node node;
    char name[16];
    bool in, seen;
};

static struct item items[MANY];
static struct map map;
static const uint64_t seed[2] = { 1, 2 };

static struct item *item_of(struct map_node *n)
{
    return container_of(n, struct item, node);
}

static struct bytes item_name(const struct map_node *n)
{
    return bytes_str(container_of(n, struct item, node)->name);
}

static void setup(void)
{
    for (unsigned i = 0; i < MANY; i++) snprintf(items[i].name, sizeof items[i].name, "k%u", i);
    cr_assert(map_init(&map, item_name, seed) == 0);
}

static void teardown(void)
{
    map_fini(&map);
}

TestSuite(map, .init = setup, .fini = teardown);

static void toggle(struct item *it)
{
    if (it->in)
        map_remove(&map, &it->node);
    else
        map_insert(&map, &it->node);
    it->in = !it->in;
}

static void expect_all(size_t count)
{
    size_t in = 0;
    for (size_t i = 0; i < count; i++) {
        struct map_node *n = map_find(&map, bytes_str(items[i].name));
        cr_assert((n == &items[i].node) == items[i].in, "%s", items[i].name);
        in += items[i].in;
    }
    cr_assert(map.count == in);
}

Test(map, empty_finds_nothing)
{
    cr_assert(!map_find(&map, bytes_str("k0")));
    cr_assert(!map_find(&map, bytes_str("")));
    cr_assert(map.count == 0);
}

Test(map, finds_what_was_inserted_through_growth)
{
    for (size_t i = 0; i < MANY; i++) toggle(&items[i]);
    expect_all(MANY);
    cr_assert(map.now.size >= MANY / 2, "it has grown");
}

Test(map, growth_is_spread_over_the_inserts)
{
    bool between = false;
    for (size_t i = 0; i < 4000; i++) {
        toggle(&items[i]);
        between |= map.old.size > 0;
        if (map.old.size && map.moved % 64 == 1) expect_all(i + 1);
    }
    cr_assert(between, "two tables at once were never seen");
}

Test(map, removal_while_growing)
{
    size_t in = 0;
    while (!map.old.size) toggle(&items[in++]);
    cr_assert(map.old.size > 0);
    for (size_t i = 0; i < in; i += 2) toggle(&items[i]); /* from both tables */
    expect_all(in);
    for (size_t i = in; i < 4 * in; i++) toggle(&items[i]);
    expect_all(4 * in);
    cr_assert(!map.old.size, "the old table was emptied");
}

Test(map, random_inserts_and_removals)
{
    struct rng_seeded rng;
    rng_seeded_init(&rng, 7);
    for (unsigned i = 0; i < 100000; i++) toggle(&items[rng_below(&rng.base, 3000)]);
    expect_all(3000);
}

static bool mark(struct map_node *n, void *ctx)
{
    size_t *count = ctx;
    cr_assert(!item_of(n)->seen);
    item_of(n)->seen = true;
    ++*count;
    return true;
}

Test(map, each_visits_everything_once_while_growing)
{
    size_t in = 0, seen = 0;
    while (!map.old.size) toggle(&items[in++]);
    map_each(&map, mark, &seen);
    cr_assert(seen == in);
}

static bool remove_odd(struct map_node *n, void *ctx)
{
    (void)ctx;
    struct item *it = item_of(n);
    if ((it - items) % 2) toggle(it);
    return true;
}

Test(map, each_may_remove_what_it_is_given)
{
    for (size_t i = 0; i < 1000; i++) toggle(&items[i]);
    map_each(&map, remove_odd, NULL);
    for (size_t i = 0; i < 1000; i++) cr_assert(items[i].in == (i % 2 == 0));
    expect_all(1000);
}

static bool stop_at_ten(struct map_node *n, void *ctx)
{
    (void)n;
    return ++*(size_t *)ctx < 10;
}

Test(map, each_stops_when_told)
{
    size_t seen = 0;
    for (size_t i = 0; i < 100; i++) toggle(&items[i]);
    map_each(&map, stop_at_ten, &seen);
    cr_assert(seen == 10);
}

Test(map, siphash13_matches_the_reference)
{
    /* Key 00..0f, message 00..n-1: vectors of the reference implementation of SipHash-1-3. */
    const uint64_t key[2] = { 0x0706050403020100u, 0x0f0e0d0c0b0a0908u };
    static const struct {
        size_t len;
        uint64_t hash;
    } vectors[] = { { 0, 0xabac0158050fc4dcu },  { 1, 0xc9f49bf37d57ca93u },
                    { 7, 0xd3927d989bb11140u },  { 8, 0x369095118d299a8eu },
                    { 15, 0xd320d86d2a519956u }, { 63, 0x9d199062b7bbb3a8u } };
    uint8_t message[63];
    for (uint8_t i = 0; i < sizeof message; i++) message[i] = i;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        cr_assert(siphash13(key, bytes_of(message, vectors[i].len)) == vectors[i].hash,
                  "length %zu", vectors[i].len);
}

Test(map, hash_depends_on_the_seed)
{
    const uint64_t other[2] = { 1, 3 };
    cr_assert(siphash13(seed, bytes_str("k")) != siphash13(other, bytes_str("k")));
}
