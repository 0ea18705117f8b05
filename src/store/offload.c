/* offload.c - runs a blocking store on one worker thread.
 *
 * Guarantees: ops finish on the loop's thread, in submit order; one exec() at a time;
 * everything queued while exec() runs becomes the next batch (one commit for all: group
 * commit); a few that wait may be kept for a moment until more have come, if the store asks for
 * that. What nobody waits for comes after all others, and only as much of it at a time as a slow store
 * does in a moment, so that whoever comes next does not wait for it either. A watch is checked again
 * whenever somebody else may have written, told by the store's descriptor, with a slow look as a net.
 * Does not: retry, time out, or reorder those that somebody waits for. The engine owns deadlines.
 *
 *   loop thread                       worker thread
 *   submit --> queued, later --(lock)--> batch --> exec()
 *   finish <-- executed <--(lock)--   batch
 *   parked watches (loop only)        foreign_wrote() --> `foreign` flag */
#include "base/check.h"
#include "base/thread.h"
#include "store/store.h"
#include "store/watches.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    OFFLOAD_BATCH_MAX = 1024,
    NET_MS = 1000,      /* look again this often although the descriptor was silent */
    POLL_MS_MIN = 5,    /* without a descriptor: look after this, and half as long again ... */
    POLL_MS_MAX = 100,  /* ... up to this */
    FOREIGN_GAP_MS = 1, /* after a look, let writes gather for so long */
    GATHER_US_MAX = 5000,
    GATHER_SKIP_MAX = 64,
    LATER_US = 30000, /* of a batch, for what nobody waits for */
    LATER_MIN = 16,
    LATER_FIRST = 64, /* as long as nobody knows how fast the store is */
};

struct offload {
    struct store base;
    struct store *inner;
    struct source source;
    struct watches watches; /* loop only */
    struct list finished;   /* loop only: canceled or woken, told in the next turn */
    size_t in_flight;       /* loop only */

    pthread_mutex_t lock; /* guards what follows */
    struct list queued, later, executed;
    size_t queued_count; /* in both */
    size_t awaited;      /* the worker sleeps until so many are queued; 0: it does not */
    size_t expected;     /* so many would be queued if all who were just answered ask again */
    bool stop, watching, foreign;
    struct histogram batches; /* ops in each */
    uint64_t connects;        /* of the inner store, after the last batch */

    int64_t looked_ms; /* worker only: for foreign writes */
    size_t later_most; /* worker only: so many of these in a batch */
    unsigned in_vain;  /* worker only: waits for more that were not worth it, in a row ... */
    unsigned skip;     /* ... so it does not wait after so many batches */
    pthread_t thread;
    bool started;
    int work_fd; /* wakes the worker */
};

static void poke(struct offload *o)
{
    uint64_t one = 1;
    ssize_t n;
    do n = write(o->work_fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
}

static void unpoke(struct offload *o)
{
    uint64_t count;
    ssize_t n;
    do n = read(o->work_fd, &count, sizeof count);
    while (n < 0 && errno == EINTR);
}

/* ---- worker thread ---- */

static bool others_write(const struct offload *o)
{
    return (o->inner->caps & CAP_SHARED) && (o->inner->caps & CAP_NOTIFY);
}

/* How long to sleep: for ever, unless somebody waits for a change that others make. */
struct nap {
    int fd;
    int timeout_ms;
};

static int longer(int poll_ms)
{
    return poll_ms * 3 / 2 > POLL_MS_MAX ? POLL_MS_MAX : poll_ms * 3 / 2;
}

static struct nap nap_for(struct offload *o, bool watching, int *poll_ms)
{
    if (!watching || !others_write(o)) {
        *poll_ms = POLL_MS_MIN;
        return (struct nap){ .fd = -1, .timeout_ms = -1 };
    }
    int fd = o->inner->class->foreign_fd ? o->inner->class->foreign_fd(o->inner) : -1;
    if (fd >= 0) return (struct nap){ .fd = fd, .timeout_ms = NET_MS };
    int timeout_ms = *poll_ms;
    *poll_ms = longer(*poll_ms);
    return (struct nap){ .fd = -1, .timeout_ms = timeout_ms };
}

/* Has anybody else written? Then the loop has its parked watches executed again. A store that
 * cannot tell has them executed anyway, and less and less often. */
static void look_for_foreign(struct offload *o, int *poll_ms)
{
    struct clock clock = clock_monotonic();
    bool (*wrote)(struct store *) = o->inner->class->foreign_wrote;
    o->looked_ms = clock_now_ms(&clock);
    if (!others_write(o) || (wrote && !wrote(o->inner))) return;
    if (wrote) *poll_ms = POLL_MS_MIN;
    pthread_mutex_lock(&o->lock);
    o->foreign = true;
    pthread_mutex_unlock(&o->lock);
    loop_wake(o->base.loop);
}

static void worker_sleep(struct offload *o, bool watching, int *poll_ms)
{
    struct nap nap = nap_for(o, watching, poll_ms);
    struct pollfd fds[2] = { { .fd = o->work_fd, .events = POLLIN },
                             { .fd = nap.fd, .events = POLLIN } };
    int n = poll(fds, 2, nap.timeout_ms);
    if (n < 0) return; /* EINTR cannot be: signals are blocked; anything else: look again */
    if (fds[0].revents) {
        unpoke(o);
        return;
    }
    if (nap.fd >= 0 && fds[1].revents) poll(fds, 1, FOREIGN_GAP_MS);
    if (watching) look_for_foreign(o, poll_ms);
}

static size_t take(struct list *from, struct op **ops, size_t most)
{
    size_t count = 0;
    for (struct link *at; count < most && (at = list_pop(from));)
        ops[count++] = container_of(at, struct op, link);
    return count;
}

static size_t take_batch(struct offload *o, struct op **ops, bool *ret_watching)
{
    pthread_mutex_lock(&o->lock);
    size_t count = take(&o->queued, ops, OFFLOAD_BATCH_MAX), room = OFFLOAD_BATCH_MAX - count;
    count += take(&o->later, ops + count, room < o->later_most ? room : o->later_most);
    o->queued_count -= count;
    if (count) histogram_add(&o->batches, &histogram_many, count);
    o->awaited = count == 0;
    *ret_watching = o->watching;
    pthread_mutex_unlock(&o->lock);
    return count;
}

static void hand_back(struct offload *o, struct op **ops, size_t count)
{
    pthread_mutex_lock(&o->lock);
    o->expected = o->queued_count + count; /* before any of them can know */
    o->connects = o->inner->connects;
    bool was_empty = list_empty(&o->executed);
    for (size_t i = 0; i < count; i++) list_append(&o->executed, &ops[i]->link);
    pthread_mutex_unlock(&o->lock);
    if (was_empty) loop_wake(o->base.loop);
}

static int64_t gather_us(const struct gather *want, int64_t took_us)
{
    int64_t part_us = want->part ? took_us / want->part : 0;
    if (part_us > GATHER_US_MAX) part_us = GATHER_US_MAX;
    return part_us > want->us ? part_us : want->us;
}

/* Until so many are queued, or the time is up: how many are. */
static size_t wait_for(struct offload *o, int64_t us)
{
    struct pollfd fd = { .fd = o->work_fd, .events = POLLIN };
    struct timespec limit = { us / 1000000, us % 1000000 * 1000 };
    if (ppoll(&fd, 1, &limit, NULL) > 0) unpoke(o);
    pthread_mutex_lock(&o->lock);
    size_t queued = o->queued_count;
    pthread_mutex_unlock(&o->lock);
    return queued;
}

/* Who was answered often asks again at once. Where a batch has a price of its own, those that wait
 * already let them catch up, if that pays: if the batch grows by a larger part than the wait is of
 * the time that a batch takes. Where it did not, it is tried less often. */
static void gather(struct offload *o, int64_t took_us)
{
    const struct gather *want = &o->inner->gather;
    int64_t limit_us = gather_us(want, took_us);
    if (!limit_us || (o->skip && o->skip--)) return;
    pthread_mutex_lock(&o->lock);
    size_t enough = o->expected < want->ops ? o->expected : want->ops;
    size_t before = o->queued_count;
    bool few = before > 0 && before < enough;
    if (few) o->awaited = enough;
    pthread_mutex_unlock(&o->lock);
    if (!few) return;
    size_t after = wait_for(o, limit_us);
    bool paid =
        after >= enough || (int64_t)(after - before) * took_us > (int64_t)before * limit_us;
    o->in_vain = paid ? 0 : o->in_vain + 1;
    if (!paid) o->skip = o->in_vain < 6 ? 1u << o->in_vain : GATHER_SKIP_MAX;
}

/* As many as were done in so much time, if it was about as many as that. */
static void pace_later(struct offload *o, size_t count, int64_t took_us)
{
    size_t most = took_us > 0 ? (size_t)(LATER_US * (int64_t)count / took_us) : SIZE_MAX;
    if (most > 4 * count) most = 4 * count;
    if (most > OFFLOAD_BATCH_MAX) most = OFFLOAD_BATCH_MAX;
    if (most > o->later_most || took_us > LATER_US) o->later_most = most;
    if (o->later_most < LATER_MIN) o->later_most = LATER_MIN;
}

static bool stopped(struct offload *o)
{
    pthread_mutex_lock(&o->lock);
    bool stop = o->stop;
    pthread_mutex_unlock(&o->lock);
    return stop;
}

static bool new_watch(struct op **ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ops[i]->verb == VERB_WATCH && !ops[i]->polled) return true;
    return false;
}

/* A busy worker never sleeps, so it looks between two batches; where a look costs a question to
 * the server, no more often than it would have done in its sleep. */
static void look_while_busy(struct offload *o, int *poll_ms)
{
    struct clock clock = clock_monotonic();
    bool asks = !o->inner->class->foreign_wrote;
    if (asks && clock_now_ms(&clock) - o->looked_ms < *poll_ms) return;
    if (asks) *poll_ms = longer(*poll_ms);
    look_for_foreign(o, poll_ms);
}

static void *worker(void *ctx)
{
    struct offload *o = ctx;
    struct op *ops[OFFLOAD_BATCH_MAX];
    int poll_ms = POLL_MS_MIN;
    while (!stopped(o)) {
        bool watching;
        size_t count = take_batch(o, ops, &watching);
        if (count == 0) {
            worker_sleep(o, watching, &poll_ms);
            continue;
        }
        if (new_watch(ops, count)) poll_ms = POLL_MS_MIN;
        int64_t began_us = clock_measure_us();
        o->inner->class->exec(o->inner, ops, count);
        int64_t took_us = clock_measure_us() - began_us;
        hand_back(o, ops, count);
        pace_later(o, count, took_us);
        gather(o, took_us);
        if (watching) look_while_busy(o, &poll_ms);
    }
    return NULL;
}

/* ---- loop thread ---- */

static void enqueue(struct offload *o, struct list *ops, bool later)
{
    pthread_mutex_lock(&o->lock);
    list_each (ops, at) o->queued_count++;
    list_take(later ? &o->later : &o->queued, ops);
    bool enough = o->awaited && o->queued_count >= o->awaited;
    if (enough) o->awaited = 0; /* one poke is enough */
    pthread_mutex_unlock(&o->lock);
    if (enough) poke(o);
}

/* The worker listens for others only while somebody here waits. */
static void set_watching(struct offload *o)
{
    bool want = o->watches.count > 0;
    pthread_mutex_lock(&o->lock);
    bool changed = o->watching != want;
    o->watching = want;
    pthread_mutex_unlock(&o->lock);
    if (changed && want) poke(o);
}

static void offload_collect(struct source *source)
{
    struct offload *o = container_of(source, struct offload, source);
    struct list executed, again;
    list_init(&executed);
    list_init(&again);
    pthread_mutex_lock(&o->lock);
    list_take(&executed, &o->executed);
    bool foreign = o->foreign;
    o->foreign = false;
    pthread_mutex_unlock(&o->lock);

    for (struct link *at; (at = list_pop(&executed));)
        watches_settle(&o->watches, container_of(at, struct op, link), &o->finished);
    if (foreign) watches_unpark_all(&o->watches, &again);
    list_each (&again, at) container_of(at, struct op, link)->polled = true;
    if (!list_empty(&again)) enqueue(o, &again, false);
    set_watching(o);

    struct list finished;
    list_init(&finished);
    list_take(&finished, &o->finished);
    for (struct link *at; (at = list_pop(&finished));) {
        o->in_flight--;
        op_finish(container_of(at, struct op, link));
    }
}

static void offload_submit(struct store *s, struct op *op)
{
    struct offload *o = (struct offload *)s;
    struct list one;
    list_init(&one);
    list_append(&one, &op->link);
    o->in_flight++;
    enqueue(o, &one, op_may_be_late(op));
}

static void offload_cancel(struct store *s, struct op *op)
{
    struct offload *o = (struct offload *)s;
    if (op->verb != VERB_WATCH) return;
    op->canceled = true; /* if it is being executed, it will not be parked afterwards */
    if (!op->parked) return;
    watches_cancel(&o->watches, op, &o->finished);
    loop_wake(s->loop);
}

static void offload_meters(struct store *s, const char *plane, meter_say *say, void *ctx)
{
    struct offload *o = (struct offload *)s;
    pthread_mutex_lock(&o->lock);
    struct histogram batches = o->batches;
    uint64_t connects = o->connects;
    pthread_mutex_unlock(&o->lock);
    say(ctx, &(struct meter){ .id = METER_BATCH, .plane = plane, .histogram = &batches });
    if (connects) /* a file is not connected to */
        say(ctx, &(struct meter){ .id = METER_CONNECTS, .plane = plane, .value = connects });
}

static void offload_close(struct store *s)
{
    struct offload *o = (struct offload *)s;
    CHECK(o->in_flight == 0);
    if (o->started) {
        pthread_mutex_lock(&o->lock);
        o->stop = true;
        pthread_mutex_unlock(&o->lock);
        poke(o);
        pthread_join(o->thread, NULL);
        source_remove(&o->source);
    }
    if (o->work_fd >= 0) close(o->work_fd);
    pthread_mutex_destroy(&o->lock);
    store_close(o->inner);
    free(o);
}

static const struct store_class offload_class = {
    .scheme = "offload",
    .close = offload_close,
    .submit = offload_submit,
    .cancel = offload_cancel,
    .meters = offload_meters,
};

static int offload_start(struct offload *o, struct err *reterr)
{
    o->work_fd = eventfd(0, EFD_CLOEXEC);
    if (o->work_fd < 0)
        return err_set(reterr, ERR_UNAVAILABLE, "cannot make an eventfd: %s", strerror(errno));
    int r = thread_start(&o->thread, worker, o, reterr);
    if (r) return r;
    o->started = true;
    source_add(o->base.loop, &o->source);
    return 0;
}

int offload_open(struct store *inner, const struct store_env *env, struct store **ret_store,
                 struct err *reterr)
{
    struct offload *o = malloc(sizeof *o);
    if (!o) {
        store_close(inner);
        return err_set(reterr, ERR_NOMEM, "out of memory opening a store");
    }
    *o = (struct offload){ .inner = inner,
                           .work_fd = -1,
                           .later_most = LATER_FIRST,
                           .source.run = offload_collect,
                           .connects = inner->connects };
    o->base = (struct store){
        .class = &offload_class, .caps = inner->caps, .loop = env->loop, .epoch = inner->epoch
    };
    pthread_mutex_init(&o->lock, NULL);
    list_init(&o->queued);
    list_init(&o->later);
    list_init(&o->executed);
    list_init(&o->finished);
    watches_init(&o->watches, (uint64_t[2]){ rng_u64(env->rng), rng_u64(env->rng) });
    int r = offload_start(o, reterr);
    if (r) {
        offload_close(&o->base);
        return r;
    }
    *ret_store = &o->base;
    return 0;
}
