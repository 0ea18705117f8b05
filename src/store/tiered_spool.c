/* tiered_spool.c - what the buffer has accepted, into the spool: a file that is ours alone.
 *
 * Guarantees: an ACCEPT is OK only when both have the entry, the spool synced. The buffer
 * decides, and comes first: an entry that the spool had alone would be made a run by whoever
 * looks after the spool (engine/spool.c), although nobody was told of it. So those who wait
 * for the claim may hear of the entry a moment before it is here; to lose it then takes both
 * at once, as ever.
 *
 * If the spool cannot take it (the disk is full), the buffer has it all the same and may lose
 * it: the op is ambiguous. A trigger then puts its run into the ledger, under the same id, as
 * it does whenever an accept fails; what is drained later is the same run.
 *
 * The spool knows no keys: two entries may have had the same one, one after the other. */
#include "store/tiered.h"

#include <stdlib.h>

static const char not_spooled[] =
    "the buffer has accepted it, but the spool could not keep it; it may be lost";

struct spooling {
    struct tiered *tiered;
    struct op *parent;
    struct buffer_ask ask;
};

static void spooled(struct op *op, void *ctx)
{
    struct spooling *s = ctx;
    struct op *parent = s->parent;
    int code = op->err.code;
    s->tiered->steps--;
    s->tiered->spool_fails = code != 0;
    buffer_ask_clear(&s->ask);
    free(s);
    op_free(op);
    if (code)
        op_fail(parent, ERR_AMBIGUOUS, not_spooled);
    else
        op_finish(parent);
}

void tier_spool(struct op *op, void *ctx)
{
    struct tiered *t = ctx;
    if (op->err.code || op->out.outcome != OUTCOME_OK) {
        op_finish(op);
        return;
    }
    struct spooling *s = malloc(sizeof *s);
    struct op *copy = s ? op_new(VERB_ACCEPT, &op->key, NULL) : NULL;
    if (!copy) {
        free(s);
        op_fail(op, ERR_AMBIGUOUS, not_spooled);
        return;
    }
    const struct buffer_ask *asked = op->buffer;
    *s = (struct spooling){ .tiered = t, .parent = op };
    s->ask = (struct buffer_ask){
        .env = asked->env, .id = asked->id, .run = asked->run, .unclaimed = true
    };
    copy->buffer = &s->ask;
    t->steps++;
    op_push(copy, spooled, s);
    store_submit(t->spool, copy);
}

void tier_spool_fact(const struct tiered *t, struct op *op)
{
    if (t->spool_fails)
        fact_add(op, FACT_WARN, "spool",
                 "is there room in the data directory? Until then triggers go to the ledger",
                 "could not keep what was accepted last");
    else
        fact_add(op, FACT_OK, "spool", NULL,
                 "what is accepted is in a synced file here, too, until the ledger has it");
}
