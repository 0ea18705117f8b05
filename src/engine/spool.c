/* spool.c - looks after the spool: what this process has accepted and the ledger may not have
 * yet.
 *
 * Walks through the spool, from the oldest entry on, again and again, and looks for each:
 * first in the buffer, then in the ledger. That is the way an entry goes, so what is in
 * neither was lost on it (Redis was flushed, has restarted empty, or failed over to a replica
 * that lacks it), and is accepted again: same id, same bytes, its key if nobody else has that
 * by now.
 *
 *   list --> in the buffer --waits: it is looked for the next time around
 *              |    '--written--------------------------------.
 *              '--not there--> in the ledger --there----------+--> dropped from the spool
 *                                '--not there--> accept again; the same
 *
 * Guarantees: an entry leaves the spool only when the ledger has it, or may have had it for as
 * long as it keeps runs. Accepting one twice does no harm, its id makes it one run: also if a
 * drainer was just writing it. A plane that is away costs nothing but time. A process that was
 * killed finds its spool as it left it. As long as there is something to be done it goes on
 * without a pause; a backlog that only waits is looked at slowly.
 * Does not: keep what was changed in the buffer. A run that was accepted again is as it was
 * triggered. */
#include "base/check.h"
#include "engine/runs_internal.h"

#include <stdlib.h>

enum {
    LOOKS_AT_ONCE = 400,
    YOUNG_MS = 1000,  /* most are in the ledger by then: one look is enough */
    ROUND_MS = 100,   /* after one in which nothing was done ... */
    AROUND_MS = 1000, /* ... and after the last */
    AWAY_MS_FIRST = 100,
    AWAY_MS_MAX = 5000,
    COUNT_MS = 1000,
};

struct look {
    struct spool *spool;
    const struct entry *entry;
    bool written;
    struct buffer_ask buffer;
    struct run_ask ledger;
    uint8_t scope[1 + ENV_BYTES_MAX];
    uint8_t key_frame[RUN_KEY_FRAME_BYTES_MAX];
};

struct spool {
    struct runs *runs;
    struct timer timer, count_timer;
    bool busy, counting, stopping;
    bool away, moved;       /* this time: a plane could not be asked; something was done */
    unsigned failures;      /* rounds in which one was away, in a row */
    int64_t place;          /* of the last one that was looked for; 0: the oldest is next */
    struct buffer_ask list; /* its entries live as long as the looks at them */
    struct buffer_ask settle;
    struct buffer_ask count;
    struct look *looks;
    size_t open; /* of them */
};

static struct engine *engine_of(const struct spool *s)
{
    return s->runs->engine;
}

static void tell(struct look *l, const char *what)
{
    trace_emit(engine_of(l->spool)->trace,
               (struct trace_event){ .kind = TRACE_SPOOL,
                                     .scope = l->entry->env,
                                     .key = run_id_bytes(&l->entry->id),
                                     .text = what });
}

/* ---- the end of a round ---- */

static int64_t pause_ms(struct spool *s)
{
    if (s->away)
        return back_off_ms(engine_of(s)->rng, ++s->failures, AWAY_MS_FIRST, AWAY_MS_MAX);
    s->failures = 0;
    if (!s->place) return AROUND_MS;
    return s->moved ? 0 : ROUND_MS;
}

static void round_over(struct spool *s)
{
    struct loop *loop = engine_of(s)->loop;
    buffer_ask_clear(&s->list);
    free((void *)s->settle.settles);
    free(s->looks);
    s->settle.settles = NULL;
    s->looks = NULL;
    s->busy = false;
    if (!s->stopping) timer_set(loop, &s->timer, loop->now_ms + pause_ms(s));
}

/* What could not be done is done the next time around. */
static void give_up(struct spool *s)
{
    s->away = true;
    round_over(s);
}

static void ask_spool(struct spool *s, enum verb verb, struct buffer_ask *about, op_done *done)
{
    struct op *op = op_new(verb, NULL, NULL);
    if (!op) {
        give_up(s);
        return;
    }
    op->buffer = about;
    op->at_spool = true;
    engine_submit(engine_of(s), op, done, s);
}

static void settled(struct op *op, void *ctx)
{
    struct spool *s = ctx;
    s->away |= op->err.code != 0;
    op_free(op);
    round_over(s);
}

static void settle(struct spool *s)
{
    size_t count = 0;
    struct settle *rows = malloc(s->list.entries.count * sizeof *rows);
    for (size_t i = 0; rows && i < s->list.entries.count; i++) {
        const struct entry *e = s->looks[i].entry;
        if (s->looks[i].written)
            rows[count++] = (struct settle){ .id = e->id, .env = e->env, .how = SETTLE_DROP };
    }
    s->settle = (struct buffer_ask){ .settles = rows, .settle_count = count };
    if (count)
        ask_spool(s, VERB_SETTLE, &s->settle, settled);
    else
        round_over(s);
}

static void look_over(struct look *l, bool written)
{
    struct spool *s = l->spool;
    l->written = written;
    s->moved |= written;
    buffer_ask_clear(&l->buffer);
    run_ask_clear(&l->ledger);
    CHECK(s->open > 0);
    if (--s->open == 0) settle(s);
}

static void look_away(struct look *l)
{
    l->spool->away = true;
    look_over(l, false);
}

static void ask(struct look *l, enum verb verb, const struct key *key, op_done *done)
{
    struct op *op = op_new(verb, key, NULL);
    if (!op) {
        look_away(l);
        return;
    }
    if (verb_is_run(verb))
        op->run = &l->ledger;
    else
        op->buffer = &l->buffer;
    op->lane = run_id_bytes(&l->entry->id);
    engine_submit(engine_of(l->spool), op, done, l);
}

/* ---- it is nowhere ---- */

static void accept_again(struct look *l, bool with_key);

/* Somebody has triggered it again, by its id. */
static bool is_there(const struct look *l)
{
    const struct entries *met = &l->buffer.entries;
    return met->count && run_id_eq(&met->rows[0]->id, &l->entry->id);
}

static void accepted_again(struct op *op, void *ctx)
{
    struct look *l = ctx;
    int code = op->err.code;
    enum outcome outcome = op->out.outcome;
    op_free(op);
    if (code) {
        look_away(l);
        return;
    }
    if (outcome != OUTCOME_OK && is_there(l)) {
        look_over(l, false);
        return;
    }
    if (outcome != OUTCOME_OK) { /* the key is another's by now: it will be that one's alias */
        accept_again(l, false);
        return;
    }
    l->spool->moved = true;
    l->spool->runs->stats.spool_reaccepted++;
    tell(l, "accepted again");
    drainer_wake(engine_of(l->spool));
    look_over(l, false);
}

/* What cannot be read is accepted, too: whoever drains it makes a FAILED run of it. */
static struct bytes key_of(struct look *l)
{
    struct run run;
    if (!run_decode(l->entry->run, &run) || !run.key.len) return bytes_of(NULL, 0);
    return bytes_of(l->key_frame, run_key_frame(run.task, run.key, l->key_frame));
}

static void accept_again(struct look *l, bool with_key)
{
    const struct entry *e = l->entry;
    l->scope[0] = KEY_COORD_ONLY;
    memcpy(l->scope + 1, e->env.data, e->env.len);
    struct key place = { bytes_of(l->scope, 1 + e->env.len), run_id_bytes(&e->id) };
    buffer_ask_clear(&l->buffer);
    l->buffer = (struct buffer_ask){ .env = e->env,
                                     .id = e->id,
                                     .run = e->run,
                                     .key_frame = with_key ? key_of(l) : bytes_of(NULL, 0),
                                     .unclaimed = true };
    ask(l, VERB_ACCEPT, &place, accepted_again);
}

/* A run that was done long ago is no longer in the ledger, and must not be made again: a
 * daemon that was away for a month may find such entries. */
static bool may_be_done(const struct look *l)
{
    return l->spool->list.now_ms - l->entry->accepted_at_ms >= RUN_RETAIN_MS_DEFAULT;
}

/* ---- where is it? ---- */

static void ledger_asked(struct op *op, void *ctx)
{
    struct look *l = ctx;
    int code = op->err.code;
    bool there = !code && op->out.outcome == OUTCOME_OK;
    op_free(op);
    if (code) {
        look_away(l);
    } else if (there) {
        look_over(l, true);
    } else if (may_be_done(l)) {
        tell(l, "too old to be accepted again");
        look_over(l, true);
    } else {
        accept_again(l, true);
    }
}

static void buffer_asked(struct op *op, void *ctx)
{
    struct look *l = ctx;
    int code = op->err.code;
    bool there = !code && op->out.outcome == OUTCOME_OK;
    bool written = there && l->buffer.entries.rows[0]->state == ENTRY_WRITTEN;
    op_free(op);
    if (code) {
        look_away(l);
    } else if (there) {
        look_over(l, written);
    } else {
        l->ledger = (struct run_ask){ .env = l->entry->env, .id = l->entry->id };
        ask(l, VERB_RUN_GET, NULL, ledger_asked);
    }
}

static void look_for(struct look *l)
{
    l->buffer = (struct buffer_ask){ .env = l->entry->env, .id = l->entry->id };
    ask(l, VERB_ENTRY_GET, NULL, buffer_asked);
}

/* ---- a round ---- */

static bool is_young(const struct spool *s, const struct entry *e)
{
    int64_t age_ms = s->list.now_ms - e->accepted_at_ms;
    return age_ms >= 0 && age_ms < YOUNG_MS;
}

/* How many of those listed are old enough: what comes behind one that is not came later. */
static size_t old_enough(const struct spool *s)
{
    size_t count = 0;
    while (count < s->list.entries.count && !is_young(s, s->list.entries.rows[count])) count++;
    return count;
}

static void listed(struct op *op, void *ctx)
{
    struct spool *s = ctx;
    size_t count = old_enough(s);
    bool last = count < s->list.entries.count || !s->list.entries.more;
    int code = op->err.code;
    op_free(op);
    if (code) {
        give_up(s);
        return;
    }
    s->place = last ? 0 : s->list.place; /* also past what fails: it must not be in the way */
    if (!count) {
        round_over(s);
        return;
    }
    s->looks = calloc(s->list.entries.count, sizeof *s->looks);
    if (!s->looks) {
        give_up(s);
        return;
    }
    s->open = count;
    for (size_t i = 0; i < count; i++)
        s->looks[i] = (struct look){ .spool = s, .entry = s->list.entries.rows[i] };
    for (size_t i = 0; i < count; i++) look_for(&s->looks[i]);
}

static void timer_fired(struct timer *t)
{
    struct spool *s = container_of(t, struct spool, timer);
    s->busy = true;
    s->away = s->moved = false;
    s->list = (struct buffer_ask){ .behind = s->place, .limit = LOOKS_AT_ONCE };
    ask_spool(s, VERB_ENTRY_LIST, &s->list, listed);
}

/* ---- how much there is ---- */

static void counted(struct op *op, void *ctx)
{
    struct spool *s = ctx;
    struct engine *e = engine_of(s);
    struct run_stats *stats = &s->runs->stats;
    s->counting = false;
    stats->spool_known = !op->err.code;
    if (!op->err.code) {
        stats->spool_entries = s->count.queued;
        stats->spool_oldest_ms = s->count.oldest_ms;
    }
    op_free(op);
    if (!s->stopping) timer_set(e->loop, &s->count_timer, e->loop->now_ms + COUNT_MS);
}

static void count_timer(struct timer *t)
{
    struct spool *s = container_of(t, struct spool, count_timer);
    struct engine *e = engine_of(s);
    struct op *op = op_new(VERB_BUFFER_STATS, NULL, NULL);
    if (!op) {
        timer_set(e->loop, t, e->loop->now_ms + COUNT_MS);
        return;
    }
    op->buffer = &s->count;
    op->at_spool = s->counting = true;
    engine_submit(e, op, counted, s);
}

/* ---- life ---- */

int spool_init(struct runs *r)
{
    struct engine *e = r->engine;
    if (!has(e, CAP_SPOOL)) return 0;
    struct spool *s = calloc(1, sizeof *s);
    if (!s) return ERR_NOMEM;
    r->spool = s;
    s->runs = r;
    timer_init(&s->timer, timer_fired);
    timer_init(&s->count_timer, count_timer);
    timer_set(e->loop, &s->timer, e->loop->now_ms);
    timer_set(e->loop, &s->count_timer, e->loop->now_ms);
    return 0;
}

/* What was begun is ended: it takes no longer than the planes do. */
void spool_stop(struct engine *e)
{
    struct spool *s = e->runs->spool;
    if (!s) return;
    s->stopping = true;
    timer_stop(e->loop, &s->timer);
    timer_stop(e->loop, &s->count_timer);
}

bool spool_idle(const struct engine *e)
{
    const struct spool *s = e->runs->spool;
    return !s || (!s->busy && !s->counting);
}

void spool_fini(struct runs *r)
{
    struct spool *s = r->spool;
    if (!s) return;
    CHECK(!s->busy && !s->counting);
    timer_stop(r->engine->loop, &s->timer);
    timer_stop(r->engine->loop, &s->count_timer);
    free(s);
    r->spool = NULL;
}
