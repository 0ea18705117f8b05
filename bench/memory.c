/* memory.c - what costs no disk: the rules, claims in memory, the size of a record. */
#include "bench/bench.h"

#include "base/check.h"
#include "base/map.h"
#include "core/rules.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5, KEYS = 200000, IN_FLIGHT = 64, RULES = 2000000, RECORDS = 1000000 };

static const int64_t no_limit_ns = INT64_MAX;

/* ---- the baseline: the project's own map, bare ---- */

struct bare {
    struct map_node node;
    size_t len;
    char key[KEY_ROOM];
};

static struct bytes bare_key(const struct map_node *n)
{
    const struct bare *b = container_of(n, struct bare, node);
    return bytes_of(b->key, b->len);
}

static bool bare_free(struct map_node *n, void *ctx)
{
    (void)ctx;
    free(container_of(n, struct bare, node));
    return true;
}

static void bare_fill(struct map *m)
{
    must(map_init(m, bare_key, (uint64_t[2]){ 1, 2 }) == 0, "make a map");
    for (uint64_t i = 0; i < KEYS; i++) {
        struct bare *b = malloc(sizeof *b);
        must(b, "allocate");
        b->len = load_key(b->key, i);
        map_insert(m, &b->node);
    }
}

static void bare_empty(struct map *m)
{
    map_each(m, bare_free, NULL);
    map_fini(m);
}

static double bare_inserts(void)
{
    struct map m;
    int64_t start_ns = now_ns();
    bare_fill(&m);
    double rate = per_second(KEYS, start_ns);
    bare_empty(&m);
    return rate;
}

static double bare_finds(struct map *m)
{
    char key[KEY_ROOM];
    int64_t start_ns = now_ns();
    for (uint64_t i = 0; i < KEYS; i++) {
        size_t len = load_key(key, i);
        must(map_find(m, bytes_of(key, len)), "find a key");
    }
    return per_second(KEYS, start_ns);
}

/* ---- rules ---- */

static double rules_rate(void)
{
    struct request in = { .lease_ms = 30000, .retain_ms = 86400000 };
    struct moment at = { .now_ms = 1700000000000 };
    int64_t start_ns = now_ns();
    for (uint64_t i = 0; i < RULES; i++) {
        memcpy(in.token.bytes, &i, sizeof i);
        at.now_ms++;
        struct verdict claimed = rules_claim(NULL, &in, at);
        struct verdict done = rules_publish(&claimed.next, &in, at);
        must(claimed.outcome == OUTCOME_CLAIMED && done.outcome == OUTCOME_OK, "decide");
    }
    return per_second(RULES, start_ns);
}

void bench_rules(void)
{
    struct samples ours = { .count = 0 };
    for (int i = 0; i < ROUNDS; i++) samples_add(&ours, rules_rate());
    report(&(struct row){ .name = "rules",
                          .what = "rules: claim + publish of a record",
                          .unit = "/s",
                          .ours = &ours });
}

/* ---- claims ---- */

static double memory_rate(bool blocking)
{
    struct once *o = open_memory();
    double rate = blocking ? load_blocking(o, WORK_CLAIM_PUBLISH, 0, KEYS)
                           : load_async(o, WORK_CLAIM_PUBLISH, IN_FLIGHT, 0, KEYS, no_limit_ns);
    once_close(o);
    return rate;
}

void bench_memory(void)
{
    struct samples blocking = { .count = 0 }, async = { .count = 0 }, bare = { .count = 0 };
    struct samples replay = { .count = 0 }, finds = { .count = 0 };
    struct map m;
    struct once *o = open_memory();
    bare_fill(&m);
    load_blocking(o, WORK_CLAIM_PUBLISH, 0, KEYS);
    for (int i = 0; i < ROUNDS; i++) {
        samples_add(&bare, bare_inserts());
        samples_add(&blocking, memory_rate(true));
        samples_add(&async, memory_rate(false));
        samples_add(&finds, bare_finds(&m));
        samples_add(&replay, load_blocking(o, WORK_REPLAY, 0, KEYS));
    }
    once_close(o);
    bare_empty(&m);
    report(&(struct row){ "memory_blocking", "memory: claim + publish, blocking", "/s",
                          &blocking, &bare, "inserts into the bare hash map", AT_LEAST(500000),
                          "the one processor that it runs on" });
    report(&(struct row){ "memory_async", "memory: claim + publish, 64 in flight", "/s", &async,
                          &bare, "inserts into the bare hash map", AT_LEAST(500000),
                          "the one processor that it runs on" });
    report(&(struct row){ "memory_replay", "memory: replay of an answer, blocking", "/s",
                          &replay, &finds, "finds in the bare hash map", NO_TARGET });
}

/* ---- bytes ---- */

static double heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return (double)(info.uordblks + info.hblkhd);
}

void bench_bytes(void)
{
    char key[KEY_ROOM];
    struct samples ours = { .count = 0 };
    struct once *o = open_memory();
    double before = heap_bytes();
    load_blocking(o, WORK_CLAIM_PUBLISH, 0, RECORDS);
    double each = (heap_bytes() - before) / RECORDS;
    once_close(o);
    size_t content = strlen("bench") + load_key(key, 0) + VALUE_BYTES;
    samples_add(&ours, each - (double)content);
    report(&(struct row){ .name = "bytes_per_record",
                          .what = "memory: a record, beyond its key and value",
                          .unit = "bytes",
                          .ours = &ours,
                          .target = AT_MOST(300) });
}
