/* work.c - handing out runs to workers, and waiting for one to be due.
 *
 * Those who ask for runs of one queue stand in a line. One question at a time is asked for all of
 * them, and what comes back is handed out in the order they came: two hundred workers cost one
 * statement. Who may wait stays in line until something is due: told by whatever this process puts
 * into the queue (work_ring()), by the time when the next run is due, by a bell that other processes
 * ring (bell.c), and where there is none by a look now and then. */
#include "base/check.h"
#include "engine/runs_internal.h"

#include <stdlib.h>

enum { LOOK_MS_FIRST = 50, LOOK_MS_MAX = 1000, LOOK_MS_TOLD = 5000 };

struct line {
    struct map_node node;
    struct runs *runs;
    struct list callers; /* struct run_call, by in_line */
    struct timer timer;  /* the next look */
    bool asking, rung;   /* rung: while it was asking */
    unsigned looks;      /* in vain, in a row */
    struct op *watch;    /* of the bell; NULL: none is there */
    uint64_t heard;      /* what the bell was last */
    struct run_ask ask;
    size_t place_len;
    uint8_t place[];
};

static void ask(struct line *l);
static int64_t until_ms(const struct run_call *c);

static struct bytes line_place(const struct map_node *n)
{
    const struct line *l = container_of(n, struct line, node);
    return bytes_of(l->place, l->place_len);
}

int lines_init(struct runs *r)
{
    struct rng *rng = r->engine->rng;
    return map_init(&r->lines, line_place, (uint64_t[2]){ rng_u64(rng), rng_u64(rng) });
}

void lines_fini(struct runs *r)
{
    CHECK(r->lines.count == 0);
    map_fini(&r->lines);
}

static struct run_call *first(struct line *l)
{
    struct link *at = list_first(&l->callers);
    return at ? container_of(at, struct run_call, in_line) : NULL;
}

static void close_if_empty(struct line *l)
{
    struct runs *r = l->runs;
    if (l->asking || !list_empty(&l->callers)) return;
    timer_stop(r->engine->loop, &l->timer);
    if (l->watch) { /* it comes back when it is canceled, or fires */
        store_cancel(r->engine->store, l->watch);
        return;
    }
    map_remove(&r->lines, &l->node);
    free(l);
}

/* ---- the bell ---- */

static void bell_heard(struct op *op, void *ctx)
{
    struct line *l = ctx;
    struct engine *e = l->runs->engine;
    bool fired = !op->err.code;
    if (fired) l->heard = op->out.version;
    l->watch = NULL;
    op_free(op);
    if (fired && !list_empty(&l->callers)) {
        l->looks = 0;
        l->rung = l->asking;
        if (!l->asking) timer_set(e->loop, &l->timer, e->loop->now_ms);
    }
    close_if_empty(l);
}

/* Before the look that finds nothing: what is rung after it is heard. */
static void listen(struct line *l)
{
    struct engine *e = l->runs->engine;
    if (l->watch || e->stopping) return;
    l->watch = bell_watch(l->runs, bytes_of(l->place, l->place_len), l->heard);
    if (l->watch) engine_submit(e, l->watch, bell_heard, l);
}

/* ---- handing out ---- */

static int64_t until_ms(const struct run_call *c)
{
    return c->started_ms + c->args.wait_ms;
}

/* Moves up to its limit of the rows; copies nothing. */
static size_t hand_out(struct run_call *c, struct run_rows *from, size_t at)
{
    struct run_rows mine = { 0 };
    size_t count = from->count - at < c->args.limit ? from->count - at : c->args.limit;
    mine.rows = malloc(count * sizeof *mine.rows);
    if (!mine.rows) return 0;
    memcpy(mine.rows, from->rows + at, count * sizeof *mine.rows);
    memset(from->rows + at, 0, count * sizeof *mine.rows);
    mine.count = mine.cap = count;
    c->engine->runs->stats.leased += count;
    link_remove(&c->in_line);
    run_finish_rows(c, OUTCOME_OK, &mine);
    return count;
}

static void returned(struct op *op, void *ctx)
{
    struct run_ask *a = ctx;
    op_free(op);
    run_ask_clear(a);
    free(a);
}

/* Leased, and nobody is there to work on it. If it cannot be told, the lease lapses. */
static void give_back(struct engine *e, const struct run *run)
{
    struct run_ask *a = calloc(1, sizeof *a + run->env.len);
    struct op *op = a ? op_new(VERB_RUN_CHANGE, NULL, NULL) : NULL;
    if (!op) {
        free(a);
        return;
    }
    memcpy(a + 1, run->env.data, run->env.len);
    a->env = bytes_of(a + 1, run->env.len);
    a->id = run->id;
    a->change = (struct run_change){ .kind = RUN_RETURN, .token = run->token };
    op->run = a;
    e->runs->stats.returned++;
    engine_submit(e, op, returned, a);
}

static void hand_out_all(struct line *l)
{
    size_t at = 0;
    for (struct run_call *c; at < l->ask.rows.count && (c = first(l));) {
        size_t given = hand_out(c, &l->ask.rows, at);
        if (!given) {
            link_remove(&c->in_line);
            run_fail(c, ERR_NOMEM, "out of memory for the answer");
        }
        at += given;
    }
    for (; at < l->ask.rows.count; at++) give_back(l->runs->engine, l->ask.rows.rows[at]);
}

/* Whose time is up gets what there is: nothing. */
static void dismiss(struct line *l, int64_t now_ms)
{
    list_each (&l->callers, at) {
        struct run_call *c = container_of(at, struct run_call, in_line);
        if (until_ms(c) > now_ms) continue;
        link_remove(at);
        run_finish(c, OUTCOME_OK);
    }
}

static void refuse_all(struct line *l, const struct err *err)
{
    for (struct run_call *c; (c = first(l));) {
        link_remove(&c->in_line);
        run_fail(c, err->code, err->text);
    }
}

/* ---- looking again ---- */

static int64_t next_look_ms(struct line *l)
{
    struct engine *e = l->runs->engine;
    int64_t now_ms = e->loop->now_ms;
    int64_t most_ms = l->watch ? LOOK_MS_TOLD : LOOK_MS_MAX;
    int64_t at_ms = now_ms + back_off_ms(e->rng, ++l->looks, LOOK_MS_FIRST, most_ms);
    if (l->ask.next_due_ms < INT64_MAX) {
        int64_t due_ms = now_ms + (l->ask.next_due_ms - l->ask.now_ms);
        if (due_ms < at_ms) at_ms = due_ms > now_ms ? due_ms : now_ms;
    }
    list_each (&l->callers, at) {
        int64_t end_ms = until_ms(container_of(at, struct run_call, in_line));
        if (end_ms < at_ms) at_ms = end_ms;
    }
    return at_ms;
}

static void answered(struct op *op, void *ctx)
{
    struct line *l = ctx;
    struct engine *e = l->runs->engine;
    struct err err = op->err;
    size_t found = l->ask.rows.count;
    op_free(op);
    l->asking = false;
    free((void *)l->ask.tokens);
    l->ask.tokens = NULL;
    if (err.code)
        refuse_all(l, &err);
    else
        hand_out_all(l);
    run_rows_clear(&l->ask.rows);
    bool again = found > 0 || l->rung;
    if (found) l->looks = 0;
    if (!again) dismiss(l, e->loop->now_ms);
    l->rung = false;
    if (!list_empty(&l->callers))
        timer_set(e->loop, &l->timer, again ? e->loop->now_ms : next_look_ms(l));
    close_if_empty(l);
}

static void look(struct timer *t)
{
    ask(container_of(t, struct line, timer));
}

/* ---- asking ---- */

/* As many as those who stand in front and want the same lease may have. */
static size_t wanted(struct line *l)
{
    size_t sum = 0;
    int64_t lease_ms = first(l)->args.lease_ms;
    list_each (&l->callers, at) {
        const struct run_call *c = container_of(at, struct run_call, in_line);
        if (c->args.lease_ms != lease_ms || sum + c->args.limit > RUN_ROWS_MAX) break;
        sum += c->args.limit;
    }
    return sum;
}

static void ask(struct line *l)
{
    struct engine *e = l->runs->engine;
    struct run_call *c = first(l);
    if (l->asking || !c) return;
    size_t limit = wanted(l);
    struct token *tokens = malloc(limit * sizeof *tokens);
    struct op *op = tokens ? op_new(VERB_RUN_LEASE, NULL, NULL) : NULL;
    if (!op) {
        free(tokens);
        refuse_all(l, &(struct err){ ERR_NOMEM, "out of memory; nothing was changed" });
        close_if_empty(l);
        return;
    }
    e->rng->fill(e->rng, tokens, limit * sizeof *tokens);
    struct bytes place = line_place(&l->node);
    l->ask = (struct run_ask){ .env = bytes_of(l->place + 1, l->place[0]),
                               .queue = bytes_of(l->place + 1 + l->place[0],
                                                 place.len - 1 - l->place[0]),
                               .limit = limit,
                               .lease_ms = c->args.lease_ms,
                               .tokens = tokens };
    l->asking = true;
    if (until_ms(c) > e->loop->now_ms) listen(l);
    op->run = &l->ask;
    op->lane = place;
    timer_stop(e->loop, &l->timer);
    engine_submit(e, op, answered, l);
}

static struct line *line_for(struct runs *r, struct bytes place)
{
    struct map_node *n = map_find(&r->lines, place);
    if (n) return container_of(n, struct line, node);
    struct line *l = malloc(sizeof *l + place.len);
    if (!l) return NULL;
    *l = (struct line){ .runs = r, .place_len = place.len };
    memcpy(l->place, place.data, place.len);
    list_init(&l->callers);
    timer_init(&l->timer, look);
    map_insert(&r->lines, &l->node);
    return l;
}

/* Asked at the end of the turn, for all who come in it. */
void work_start(struct run_call *c)
{
    struct engine *e = c->engine;
    struct line *l = line_for(e->runs, c->place);
    if (!l) {
        run_fail(c, ERR_NOMEM, "out of memory; nothing was changed");
        return;
    }
    list_append(&l->callers, &c->in_line);
    if (!l->asking) timer_set(e->loop, &l->timer, e->loop->now_ms);
}

/* It stands in line, or has got something that nobody knows of yet. */
void work_cancel(struct run_call *c)
{
    for (size_t i = 0; i < c->out.rows.count; i++) give_back(c->engine, c->out.rows.rows[i]);
    run_rows_clear(&c->out.rows);
    if (!link_used(&c->in_line)) return;
    struct map_node *n = map_find(&c->engine->runs->lines, c->place);
    link_remove(&c->in_line);
    run_finish(c, OUTCOME_OK);
    if (n) close_if_empty(container_of(n, struct line, node));
}

void work_ring(struct engine *e, struct bytes env, struct bytes queue)
{
    uint8_t place[1 + ENV_BYTES_MAX + QUEUE_BYTES_MAX];
    struct runs *r = e->runs;
    place[0] = (uint8_t)env.len;
    memcpy(place + 1, env.data, env.len);
    memcpy(place + 1 + env.len, queue.data, queue.len);
    struct bytes where = bytes_of(place, 1 + env.len + queue.len);
    bell_ring(r, where);
    struct map_node *n = map_find(&r->lines, where);
    if (!n) return;
    struct line *l = container_of(n, struct line, node);
    l->looks = 0;
    l->rung = l->asking;
    if (!l->asking) timer_set(e->loop, &l->timer, e->loop->now_ms);
}
