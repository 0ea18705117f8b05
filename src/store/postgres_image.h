/* postgres_image.h - the runs that a batch is about, as they were read and as its ops leave them;
 * private to the postgres store.
 *
 * Ops are decided on the image, in order, each on what the one before it left; then what has changed
 * is written, row by row, if it is still as it was read. Rows stay where they are until the image is
 * cleared; their bytes are views of the results that were read, of the ops, and of what is kept. */
#ifndef STORE_POSTGRES_IMAGE_H
#define STORE_POSTGRES_IMAGE_H

#include "store/postgres_array.h"

enum {
    IMAGE_OPS_MAX = 512,
    IMAGE_ROWS_OF_OP = 3, /* an alias, its run, and who has the key */
    IMAGE_ROWS_MAX = IMAGE_OPS_MAX * IMAGE_ROWS_OF_OP,
    IMAGE_SLOTS = 1024,
};

struct image_row {
    struct run now;
    int64_t rev; /* as read; 0: it is new */
    struct place place;
    bool changed; /* by an op: has to be written */
    bool written;
    struct bytes seen_tags, seen_metadata, seen_output,
        seen_error; /* as read: need not be sent */

    struct image_row
        *canonical;       /* it is an alias: of whom; env, id and changes are all it has */
    int64_t seen_changes; /* an alias: as read; -1: it is new */

    struct image_row *next_by_id, *next_by_key;
};

struct kept;

struct image {
    size_t count;
    struct image_row *rows; /* IMAGE_ROWS_MAX */
    struct image_row *by_id[IMAGE_SLOTS], *by_key[IMAGE_SLOTS];
    uint64_t seed[2];
    PGresult *result; /* what rows are views of; NULL: nothing was read */
    struct kept *kept;
};

int image_init(struct image *m, struct rng *rng); /* 0 or ERR_NOMEM */
void image_fini(struct image *m);                 /* takes what was zeroed and never inited */
void image_clear(struct image *m);

/* NULL: there is none. An alias is found as such. By key: who holds it, with a right to it or not. */
struct image_row *image_by_id(const struct image *m, struct bytes env, const struct run_id *id);
struct image_row *image_by_key(const struct image *m, struct bytes env, struct bytes task,
                               struct bytes key);

struct image_row *image_add(struct image *m, const struct run *r);
struct image_row *image_add_alias(struct image *m, const struct run_id *id,
                                  struct image_row *canonical);

/* The view is one of a copy from now on. 0 or ERR_NOMEM. */
int image_keep(struct image *m, struct bytes *view);

#endif
