/* postgres_array.c - see postgres_array.h. */
#include "store/postgres_array.h"

#include "base/check.h"

enum {
    COLUMN_BYTES_MAX = 256 << 20,
    DIMENSIONS_AT = 0,
    ELEMENTS_AT = 12,
    NULL_ELEMENT = -1,
};

/* One dimension, perhaps with nulls, whose number of elements is filled in at the end, and
 * which counts from one. */
static void header_write(struct buf *b, enum pg_type element)
{
    buf_u32(b, 1);
    buf_u32(b, 1);
    buf_u32(b, (uint32_t)element);
    buf_u32(b, 0);
    buf_u32(b, 1);
}

void pg_array_init(struct pg_array *a, enum pg_type element)
{
    a->element = element;
    buf_init(&a->content, COLUMN_BYTES_MAX);
    pg_array_clear(a);
}

void pg_array_fini(struct pg_array *a)
{
    buf_fini(&a->content);
}

void pg_array_clear(struct pg_array *a)
{
    a->count = 0;
    buf_clear(&a->content);
    header_write(&a->content, a->element);
}

void pg_array_add(struct pg_array *a, struct bytes value)
{
    a->count++;
    buf_u32(&a->content, (uint32_t)value.len);
    buf_add(&a->content, value);
}

void pg_array_add_number(struct pg_array *a, int64_t value)
{
    CHECK(a->element == PG_INT8 || (a->element == PG_INT2 && value >= 0 && value <= INT16_MAX));
    uint8_t out[8];
    for (int i = 0; i < 8; i++) out[i] = (uint8_t)((uint64_t)value >> (56 - 8 * i));
    size_t len = a->element == PG_INT8 ? 8 : 2;
    pg_array_add(a, bytes_of(out + 8 - len, len));
}

void pg_array_add_null(struct pg_array *a)
{
    a->count++;
    buf_u32(&a->content, (uint32_t)NULL_ELEMENT);
}

static enum pg_type array_of(enum pg_type element)
{
    if (element == PG_BYTEA) return PG_BYTEA_ARRAY;
    if (element == PG_TID) return PG_TID_ARRAY;
    return element == PG_INT8 ? PG_INT8_ARRAY : PG_INT2_ARRAY;
}

/* An array without elements has no dimension either. */
void pg_param_array(struct pg_params *p, struct pg_array *a)
{
    CHECK(!pg_array_failed(a));
    uint8_t *to = a->content.data;
    for (int byte = 0; byte < 4; byte++)
        to[ELEMENTS_AT + byte] = (uint8_t)(a->count >> (24 - 8 * byte));
    to[DIMENSIONS_AT + 3] = a->count > 0;
    pg_param(p, array_of(a->element), bytes_of(to, a->count ? a->content.len : ELEMENTS_AT));
}

struct place pg_place(const PGresult *q, int row, int column)
{
    struct place place = { { 0 } };
    struct bytes in = pg_bytes(q, row, column);
    if (in.len == sizeof place.bytes) memcpy(place.bytes, in.data, in.len);
    return place;
}
