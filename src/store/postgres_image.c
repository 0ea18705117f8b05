/* postgres_image.c - see postgres_image.h. */
#include "store/postgres_image.h"

#include "base/check.h"
#include "base/map.h"

#include <stdlib.h>

struct kept {
    struct kept *next;
    uint8_t bytes[];
};

int image_init(struct image *m, struct rng *rng)
{
    *m = (struct image){ .seed = { rng_u64(rng), rng_u64(rng) } };
    m->rows = calloc(IMAGE_ROWS_MAX, sizeof *m->rows);
    return m->rows ? 0 : ERR_NOMEM;
}

void image_fini(struct image *m)
{
    image_clear(m);
    free(m->rows);
    m->rows = NULL;
}

void image_clear(struct image *m)
{
    m->count = 0;
    memset(m->by_id, 0, sizeof m->by_id);
    memset(m->by_key, 0, sizeof m->by_key);
    PQclear(m->result);
    m->result = NULL;
    while (m->kept) {
        struct kept *next = m->kept->next;
        free(m->kept);
        m->kept = next;
    }
}

int image_keep(struct image *m, struct bytes *view)
{
    if (view->len == 0) return 0;
    struct kept *kept = malloc(sizeof *kept + view->len);
    if (!kept) return ERR_NOMEM;
    memcpy(kept->bytes, view->data, view->len);
    kept->next = m->kept;
    m->kept = kept;
    view->data = kept->bytes;
    return 0;
}

/* ---- finding ---- */

/* Several texts, one hash: what was hashed so far is the key of the next. */
static uint64_t hash_on(const struct image *m, uint64_t hash, struct bytes text)
{
    return siphash13((uint64_t[2]){ m->seed[0] ^ hash, m->seed[1] }, text);
}

static size_t id_slot(const struct image *m, struct bytes env, const struct run_id *id)
{
    return hash_on(m, hash_on(m, 0, env), run_id_bytes(id)) % IMAGE_SLOTS;
}

static size_t key_slot(const struct image *m, struct bytes env, struct bytes task,
                       struct bytes key)
{
    return hash_on(m, hash_on(m, hash_on(m, 0, env), task), key) % IMAGE_SLOTS;
}

struct image_row *image_by_id(const struct image *m, struct bytes env, const struct run_id *id)
{
    struct image_row *at = m->by_id[id_slot(m, env, id)];
    while (at && !(run_id_eq(&at->now.id, id) && bytes_eq(at->now.env, env)))
        at = at->next_by_id;
    return at;
}

static bool has_key(const struct run *r, struct bytes env, struct bytes task, struct bytes key)
{
    return r->key_held && bytes_eq(r->key, key) && bytes_eq(r->task, task) &&
           bytes_eq(r->env, env);
}

struct image_row *image_by_key(const struct image *m, struct bytes env, struct bytes task,
                               struct bytes key)
{
    struct image_row *at = m->by_key[key_slot(m, env, task, key)];
    while (at && !has_key(&at->now, env, task, key)) at = at->next_by_key;
    return at;
}

/* ---- adding ---- */

static struct image_row *row_add(struct image *m, struct run now)
{
    CHECK(m->count < IMAGE_ROWS_MAX);
    struct image_row *row = &m->rows[m->count++];
    *row = (struct image_row){ .now = now };
    struct image_row **head = &m->by_id[id_slot(m, row->now.env, &row->now.id)];
    row->next_by_id = *head;
    *head = row;
    return row;
}

struct image_row *image_add(struct image *m, const struct run *r)
{
    struct image_row *row = row_add(m, *r);
    struct image_row **head = &m->by_key[key_slot(m, r->env, r->task, r->key)];
    row->next_by_key = *head;
    *head = row;
    return row;
}

struct image_row *image_add_alias(struct image *m, const struct run_id *id,
                                  struct image_row *canonical)
{
    struct image_row *row = row_add(m, (struct run){ .id = *id, .env = canonical->now.env });
    row->canonical = canonical;
    row->seen_changes = -1;
    return row;
}
