/* watches.c - see watches.h. A fixed table of lists: parking and noting never allocate. */
#include "store/watches.h"

#include "base/check.h"
#include "base/map.h"
#include "base/museum.h"

void watches_init(struct watches *w, const uint64_t seed[2])
{
    *w = (struct watches){ .seed = { seed[0], seed[1] } };
    for (size_t i = 0; i < WATCH_SLOTS; i++) list_init(&w->slots[i]);
}

static struct list *slot_of(struct watches *w, struct bytes frame)
{
    return &w->slots[siphash13(w->seed, frame) % WATCH_SLOTS];
}

static void park(struct watches *w, struct op *op)
{
    CHECK(op->verb == VERB_WATCH && !op->parked);
    op->parked = true;
    list_append(slot_of(w, op->frame), &op->link);
    w->count++;
}

static void unpark(struct watches *w, struct op *op)
{
    CHECK(op->parked && w->count > 0);
    op->parked = false;
    link_remove(&op->link);
    w->count--;
}

void watches_tell(struct watches *w, struct bytes frame, uint64_t version,
                  struct list *finished)
{
    if (w->count == 0) return;
    list_each (slot_of(w, frame), at) {
        struct op *watch = container_of(at, struct op, link);
        if (!bytes_eq(watch->frame, frame)) continue;
        if (watch->seen == version) continue;
        unpark(w, watch);
        watch->out.version = version;
        list_append(finished, &watch->link);
    }
}

static void note(struct watches *w, const struct op *op, struct list *finished)
{
    if (op->changed && verb_info[op->verb].keyed)
        watches_tell(w, op->frame, op->out.version, finished);
}

static bool still_as_seen(const struct op *op)
{
    if (op->verb != VERB_WATCH || op->err.code) return false;
    if (BUG(LOST_WAKEUP)) return true;
    return op->out.version == op->seen;
}

void watches_settle(struct watches *w, struct op *op, struct list *finished)
{
    note(w, op, finished);
    if (still_as_seen(op) && !op->canceled)
        park(w, op);
    else
        list_append(finished, &op->link);
}

void watches_cancel(struct watches *w, struct op *op, struct list *finished)
{
    CHECK(op->verb == VERB_WATCH);
    if (op->parked)
        unpark(w, op);
    else
        link_remove(&op->link);
    op_clear_answer(op);
    err_set(&op->err, ERR_CANCELED, "the watch was canceled");
    list_append(finished, &op->link);
}

void watches_unpark_all(struct watches *w, struct list *all)
{
    for (size_t i = 0; w->count && i < WATCH_SLOTS; i++)
        list_each (&w->slots[i], at) {
            unpark(w, container_of(at, struct op, link));
            list_append(all, at);
        }
}
