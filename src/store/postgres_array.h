/* postgres_array.h - one column of many rows, as an array in the server's binary form; where a row
 * is. Private to the postgres store. */
#ifndef STORE_POSTGRES_ARRAY_H
#define STORE_POSTGRES_ARRAY_H

#include "base/buf.h"
#include "store/postgres_db.h"

struct pg_array {
    enum pg_type element; /* PG_BYTEA, PG_TID, PG_INT8 or PG_INT2 */
    size_t count;
    struct buf content;
};

void pg_array_init(struct pg_array *a, enum pg_type element);
void pg_array_fini(struct pg_array *a);
void pg_array_clear(struct pg_array *a); /* empty and reusable */

void pg_array_add(struct pg_array *a, struct bytes value);
void pg_array_add_number(struct pg_array *a, int64_t value);
void pg_array_add_null(struct pg_array *a);
static inline int pg_array_failed(const struct pg_array *a)
{
    return buf_failed(&a->content);
}

/* Completes it; the parameter is a view of it. */
void pg_param_array(struct pg_params *p, struct pg_array *a);

enum { PLACE_BYTES = 6 };

/* Where a row is in its table, as the server has it. It may be moved, and something else may be
 * put there: whoever looks must look at what is there, too. */
struct place {
    uint8_t bytes[PLACE_BYTES];
};

struct place pg_place(const PGresult *result, int row, int column);

#endif
