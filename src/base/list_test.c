/* list_test.c - membership is state: on one list or on none. */
#include "base/list.h"

#include <criterion/criterion.h>

static struct link a, b, c;
static struct list list, other;

static void setup(void)
{
    link_init(&a);
    link_init(&b);
    link_init(&c);
    list_init(&list);
    list_init(&other);
}

TestSuite(list, .init = setup);

Test(list, empty)
{
    cr_assert(list_empty(&list) && !list_first(&list) && !list_pop(&list));
    cr_assert(!link_used(&a));
}

Test(list, append_keeps_the_order)
{
    list_append(&list, &a);
    list_append(&list, &b);
    list_append(&list, &c);
    cr_assert(link_used(&a) && link_used(&b) && link_used(&c));
    cr_assert(list_pop(&list) == &a && list_pop(&list) == &b && list_pop(&list) == &c);
    cr_assert(list_empty(&list) && !link_used(&c));
}

Test(list, prepend_goes_first)
{
    list_append(&list, &a);
    list_prepend(&list, &b);
    cr_assert(list_pop(&list) == &b && list_pop(&list) == &a);
}

Test(list, remove_from_the_middle)
{
    list_append(&list, &a);
    list_append(&list, &b);
    list_append(&list, &c);
    link_remove(&b);
    cr_assert(!link_used(&b));
    cr_assert(list_pop(&list) == &a && list_pop(&list) == &c && list_empty(&list));
}

Test(list, removing_an_unlinked_link_does_nothing)
{
    link_remove(&a);
    cr_assert(!link_used(&a));
}

Test(list, take_moves_everything_to_the_end)
{
    list_append(&list, &a);
    list_append(&other, &b);
    list_append(&other, &c);
    list_take(&list, &other);
    cr_assert(list_empty(&other));
    cr_assert(list_pop(&list) == &a && list_pop(&list) == &b && list_pop(&list) == &c);
    list_take(&list, &other);
    cr_assert(list_empty(&list));
}

Test(list, each_may_remove_what_it_sees)
{
    unsigned seen = 0;
    list_append(&list, &a);
    list_append(&list, &b);
    list_append(&list, &c);
    list_each (&list, at) {
        seen++;
        if (at == &b) link_remove(at);
    }
    cr_assert(seen == 3 && !link_used(&b));
    cr_assert(list_pop(&list) == &a && list_pop(&list) == &c);
}
