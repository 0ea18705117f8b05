/* conns.c - all connections together; one of them is in conn.c. */
#include "base/check.h"
#include "daemon/conn.h"

#include <stdlib.h>

const char *close_name(enum close_reason why)
{
#define CLOSE_NAME(id, name, text) [id] = name,
    static const char *const names[] = { CLOSE_LIST(CLOSE_NAME) };
#undef CLOSE_NAME
    return names[why];
}

const char *close_text(enum close_reason why)
{
#define CLOSE_TEXT(id, name, text) [id] = text,
    static const char *const texts[] = { CLOSE_LIST(CLOSE_TEXT) };
#undef CLOSE_TEXT
    return texts[why];
}

void conns_init(struct conns *all, uv_loop_t *uv, struct loop *loop,
                const struct conn_limits *limits, size_t count_max)
{
    all->clock = clock_monotonic();
    all->uv = uv;
    all->loop = loop;
    all->limits = *limits;
    all->count_max = count_max;
    list_init(&all->open);
    list_init(&all->dirty);
    while (all->spare_count < CONN_SPARES_MAX / 4) {
        uint8_t *spare = malloc(CONN_SPARE_BYTES);
        if (!spare) break;
        all->spares[all->spare_count++] = spare;
    }
}

void conns_fini(struct conns *all)
{
    CHECK(all->count == 0);
    while (all->spare_count) free(all->spares[--all->spare_count]);
}

void conns_end(struct conns *all, enum close_reason why)
{
    list_each (&all->open, at) conn_end(container_of(at, struct conn, link), why);
}

void conns_cancel(struct conns *all)
{
    list_each (&all->open, at) {
        struct conn *c = container_of(at, struct conn, link);
        if (c->state != CONN_CLOSED) c->door->on_cancel(c);
    }
}

void conns_close(struct conns *all, enum close_reason why)
{
    list_each (&all->open, at) conn_close(container_of(at, struct conn, link), why);
}
