/* watches_test.c - parking, noting and canceling, without a store. */
#include "store/watches.h"

#include "base/check.h"

#include <criterion/criterion.h>
#include <stdio.h>

static struct watches watches;
static struct list finished;

static void setup(void)
{
    watches_init(&watches, (uint64_t[2]){ 1, 2 });
    list_init(&finished);
}

TestSuite(watches, .init = setup);

static struct op *op_on(enum verb verb, const char *name, uint64_t seen, uint64_t version)
{
    struct key key = { bytes_str("s"), bytes_str(name) };
    struct op *op = op_new(verb, &key, NULL);
    op->seen = seen;
    op->out.version = version;
    return op;
}

static struct op *pop(void)
{
    struct link *at = list_pop(&finished);
    return at ? container_of(at, struct op, link) : NULL;
}

static void settle_change(const char *name, uint64_t version)
{
    struct op *change = op_on(VERB_PUBLISH, name, 0, version);
    change->changed = true;
    watches_settle(&watches, change, &finished);
}

/* Frees everything that has finished; returns how many were watches. */
static unsigned drain(void)
{
    unsigned count = 0;
    for (struct op *op; (op = pop());) {
        count += op->verb == VERB_WATCH;
        op_free(op);
    }
    return count;
}

Test(watches, what_is_as_seen_is_parked)
{
    struct op *w = op_on(VERB_WATCH, "k", 7, 7);
    watches_settle(&watches, w, &finished);
    cr_assert(w->parked && watches.count == 1 && !pop());
    watches_cancel(&watches, w, &finished);
    cr_assert(!w->parked && watches.count == 0 && w->err.code == ERR_CANCELED);
    cr_assert(drain() == 1);
}

Test(watches, what_is_different_finishes_at_once)
{
    watches_settle(&watches, op_on(VERB_WATCH, "k", 7, 8), &finished);
    cr_assert(watches.count == 0 && drain() == 1);
}

Test(watches, a_failed_or_canceled_watch_is_not_parked)
{
    struct op *failed = op_on(VERB_WATCH, "k", 7, 7), *canceled = op_on(VERB_WATCH, "k", 7, 7);
    failed->err.code = ERR_UNAVAILABLE;
    canceled->canceled = true;
    watches_settle(&watches, failed, &finished);
    watches_settle(&watches, canceled, &finished);
    cr_assert(watches.count == 0 && drain() == 2);
}

Test(watches, a_change_wakes_those_of_its_key_only)
{
    watches_settle(&watches, op_on(VERB_WATCH, "k", 7, 7), &finished);
    watches_settle(&watches, op_on(VERB_WATCH, "k", 7, 7), &finished);
    struct op *other = op_on(VERB_WATCH, "other", 7, 7);
    watches_settle(&watches, other, &finished);
    settle_change("k", 8);
    cr_assert(watches.count == 1 && other->parked);
    cr_assert(drain() == 2);
    watches_cancel(&watches, other, &finished);
    drain();
}

Test(watches, a_change_to_the_version_seen_wakes_nobody)
{
    struct op *w = op_on(VERB_WATCH, "k", 7, 7);
    watches_settle(&watches, w, &finished);
    settle_change("k", 7); /* a renewal */
    cr_assert(w->parked && drain() == 0);
    watches_cancel(&watches, w, &finished);
    drain();
}

Test(watches, what_changes_nothing_wakes_nobody)
{
    struct op *w = op_on(VERB_WATCH, "k", 7, 7);
    watches_settle(&watches, w, &finished);
    watches_settle(&watches, op_on(VERB_CLAIM, "k", 0, 9), &finished);
    cr_assert(w->parked && drain() == 0);
    watches_cancel(&watches, w, &finished);
    drain();
}

Test(watches, cancel_takes_it_from_the_finished_too)
{
    struct op *w = op_on(VERB_WATCH, "k", 7, 8);
    watches_settle(&watches, w, &finished);
    watches_cancel(&watches, w, &finished);
    cr_assert(w->err.code == ERR_CANCELED && drain() == 1);
}

Test(watches, many_keys_share_slots_and_do_not_mix)
{
    enum { MANY = 3 * WATCH_SLOTS };
    static struct op *ops[MANY];
    char name[16];
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "k%u", i);
        ops[i] = op_on(VERB_WATCH, name, 7, 7);
        watches_settle(&watches, ops[i], &finished);
    }
    cr_assert(watches.count == MANY);
    for (unsigned i = 0; i < MANY; i += 2) {
        snprintf(name, sizeof name, "k%u", i);
        settle_change(name, 8);
        cr_assert(!ops[i]->parked && ops[i + 1]->parked);
        cr_assert(drain() == 1);
    }
    struct list all;
    list_init(&all);
    watches_unpark_all(&watches, &all);
    cr_assert(watches.count == 0);
    list_take(&finished, &all);
    cr_assert(drain() == MANY / 2);
}
