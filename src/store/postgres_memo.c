/* postgres_memo.c - see postgres_memo.h. */
#include "store/postgres_memo.h"

#include <stdlib.h>

enum { MEMOS_MAX = 8192 };

struct memo {
    struct map_node node;
    struct link link;
    struct record record; /* PENDING: without a value */
    struct place place;
    int64_t rev, sweep_at_ms;
    uint8_t fingerprint[FINGERPRINT_BYTES_MAX];
    uint16_t frame_len;
    uint8_t frame[];
};

static struct bytes memo_frame(const struct map_node *n)
{
    const struct memo *memo = container_of(n, struct memo, node);
    return bytes_of(memo->frame, memo->frame_len);
}

static struct memo *memo_find(struct memos *m, struct bytes frame)
{
    struct map_node *n = map_find(&m->map, frame);
    return n ? container_of(n, struct memo, node) : NULL;
}

static void memo_free(struct memos *m, struct memo *memo)
{
    map_remove(&m->map, &memo->node);
    link_remove(&memo->link);
    free(memo);
}

int memos_init(struct memos *m, struct rng *rng)
{
    list_init(&m->by_age);
    return map_init(&m->map, memo_frame, (uint64_t[2]){ rng_u64(rng), rng_u64(rng) });
}

void memos_fini(struct memos *m)
{
    if (!m->by_age.head.next) return;
    for (struct link *at; (at = list_first(&m->by_age));)
        memo_free(m, container_of(at, struct memo, link));
    map_fini(&m->map);
}

bool memo_has(struct memos *m, struct bytes frame)
{
    return memo_find(m, frame) != NULL;
}

bool memo_recall(struct memos *m, struct slot *s)
{
    struct memo *memo = memo_find(m, s->frame);
    if (!memo) return false;
    s->stored = s->present = true;
    s->place = memo->place;
    s->rev = memo->rev;
    s->sweep_at_ms = memo->sweep_at_ms;
    s->stored_fence = s->used_fence = memo->record.fence;
    memcpy(s->fingerprint, memo->fingerprint, memo->record.fingerprint.len);
    s->record = memo->record;
    s->record.fingerprint = bytes_of(s->fingerprint, memo->record.fingerprint.len);
    return true;
}

static struct memo *memo_make(struct memos *m, struct bytes frame)
{
    if (m->map.count >= MEMOS_MAX)
        memo_free(m, container_of(list_first(&m->by_age), struct memo, link));
    struct memo *memo = malloc(sizeof *memo + frame.len);
    if (!memo) return NULL;
    memo->frame_len = (uint16_t)frame.len;
    memcpy(memo->frame, frame.data, frame.len);
    link_init(&memo->link);
    map_insert(&m->map, &memo->node);
    list_append(&m->by_age, &memo->link);
    return memo;
}

void memo_keep(struct memos *m, const struct slot *s, struct place place, int64_t rev)
{
    if (!s->present || s->record.state != RECORD_PENDING) {
        memo_drop(m, s->frame);
        return;
    }
    struct memo *memo = memo_find(m, s->frame);
    if (!memo) memo = memo_make(m, s->frame);
    if (!memo) return; /* then it is read */
    memo->record = s->record;
    memo->place = place;
    memo->rev = rev;
    memo->sweep_at_ms = s->sweep_at_ms;
    memcpy(memo->fingerprint, s->record.fingerprint.data, s->record.fingerprint.len);
    memo->record.fingerprint = bytes_of(memo->fingerprint, s->record.fingerprint.len);
}

void memo_drop(struct memos *m, struct bytes frame)
{
    struct memo *memo = memo_find(m, frame);
    if (memo) memo_free(m, memo);
}
