/* list.h - intrusive doubly linked list. State is membership: an object that waits is on the
 * list of those who wait, and on no other. An unlinked link points to itself. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include "base/check.h"

#include <stdbool.h>
#include <stddef.h>

struct link {
    struct link *prev, *next;
};

struct list {
    struct link head;
};

static inline void link_init(struct link *l)
{
    l->prev = l->next = l;
}

static inline bool link_used(const struct link *l)
{
    return l->next != l;
}

static inline void list_init(struct list *list)
{
    link_init(&list->head);
}

static inline bool list_empty(const struct list *list)
{
    return !link_used(&list->head);
}

static inline void list_append(struct list *list, struct link *l)
{
    CHECK(!link_used(l));
    l->prev = list->head.prev;
    l->next = &list->head;
    list->head.prev->next = l;
    list->head.prev = l;
}

static inline void list_prepend(struct list *list, struct link *l)
{
    CHECK(!link_used(l));
    l->next = list->head.next;
    l->prev = &list->head;
    list->head.next->prev = l;
    list->head.next = l;
}

static inline void link_remove(struct link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    link_init(l);
}

static inline struct link *list_first(struct list *list)
{
    return list_empty(list) ? NULL : list->head.next;
}

static inline struct link *list_pop(struct list *list)
{
    struct link *l = list_first(list);
    if (l) link_remove(l);
    return l;
}

/* Moves everything from one list to the end of another. */
static inline void list_take(struct list *to, struct list *from)
{
    if (list_empty(from)) return;
    struct link *first = from->head.next, *last = from->head.prev;
    first->prev = to->head.prev;
    to->head.prev->next = first;
    last->next = &to->head;
    to->head.prev = last;
    link_init(&from->head);
}

/* `it` may be removed in the body; no other element may. */
#define list_each(list, it)                                                                    \
    for (struct link *it = (list)->head.next, *it##_next = it->next; it != &(list)->head;      \
         it = it##_next, it##_next = it->next)

#endif
