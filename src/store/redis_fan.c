/* redis_fan.c - ops of the buffer that are about many shards: leasing whose turn it is, settling,
 * counting.
 *
 * Each becomes a step per shard that it is about, all under way at once, within the deadline of the op.
 * A single server has one shard. In a cluster, what is there to lease is known of the shards that this
 * process puts something into; of the others it is asked once in a while, of all at once. What a LEASE
 * asks for is divided among the shards that have something, and what some do not need is for the
 * others, as redis_buffer.lua does it with the envs of a shard.
 *
 * Guarantees: an op that fails has changed nothing, or says that it may have. A LEASE that was given
 * something is not an error, whatever other shards say: nobody else can have it until it lapses. */
#include "base/check.h"
#include "store/redis.h"

#include <stdlib.h>

enum { LOOK_MS = 1000, SETTLE_HOWS = SETTLE_FAILED + 1 };

struct branch {
    struct fan *fan;
    struct buffer_ask ask;
    unsigned shard;
    uint8_t frame[WHOLE_FRAME_BYTES];
    struct buf settles[SETTLE_HOWS]; /* names of entries, for redis_buffer.lua */
    size_t settle_count;
    size_t taken;       /* LEASE: so many of it */
    struct buf weights; /* LEASE: of its envs, for redis_buffer.lua ... */
    size_t weight;      /* ... and the highest of them: a shard gets so many parts */
    bool dry;           /* it has no more */
};

struct fan {
    struct redis *redis;
    struct op *op;
    unsigned pending, count;
    size_t left;  /* LEASE: so many more */
    bool looking; /* what do the shards have? */
    bool changed; /* something was */
    struct err failed;
    struct branch *branches; /* of all shards at most */
};

/* ---- the end ---- */

static void fan_free(struct fan *f)
{
    for (unsigned i = 0; i < f->count; i++) {
        entries_clear(&f->branches[i].ask.entries);
        for (unsigned how = 0; how < SETTLE_HOWS; how++) buf_fini(&f->branches[i].settles[how]);
        buf_fini(&f->branches[i].weights);
    }
    free(f->branches);
    free(f);
}

static void fan_end(struct fan *f)
{
    struct redis *r = f->redis;
    struct op *op = f->op;
    bool leased = op->verb == VERB_DRAIN_LEASE && op->buffer->entries.count > 0;
    op->out.outcome = OUTCOME_OK;
    op->changed = f->changed;
    op->epoch = r->base.epoch;
    if (f->failed.code && !leased) {
        int code = f->changed ? ERR_AMBIGUOUS : f->failed.code;
        redis_refuse(r, op, code, f->failed.text);
    } else {
        redis_finish(r, op);
    }
    fan_free(f);
}

static void fan_fail(struct fan *f, const struct err *why)
{
    bool worse = why->code == ERR_AMBIGUOUS && f->failed.code != ERR_AMBIGUOUS;
    if (!f->failed.code || worse) f->failed = *why;
}

static void fan_refuse(struct redis *r, struct op *op)
{
    redis_refuse(r, op, ERR_NOMEM, "out of memory; nothing was changed");
}

/* ---- one step ---- */

/* The rows of an answer become those of the op. */
static bool entries_move(struct entries *to, struct entries *from)
{
    if (from->count == 0) return true;
    size_t all = to->count + from->count;
    struct entry **rows = realloc(to->rows, all * sizeof *rows);
    if (!rows) return false;
    memcpy(rows + to->count, from->rows, from->count * sizeof *rows);
    *to = (struct entries){ .rows = rows, .count = all, .cap = all };
    free(from->rows);
    *from = (struct entries){ 0 };
    return true;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void take_lease(struct branch *branch)
{
    struct fan *f = branch->fan;
    struct entries *entries = &branch->ask.entries;
    f->redis->work[branch->shard] = entries->more;
    branch->taken += entries->count;
    branch->dry = !entries->more || entries->count < branch->ask.limit;
    f->changed = f->changed || entries->count > 0;
    f->left -= least(entries->count, f->left);
    if (!entries_move(&f->op->buffer->entries, entries))
        fan_fail(
            f, &(struct err){ .code = ERR_AMBIGUOUS, .text = "out of memory for the answer" });
}

static void take_answer(struct branch *branch)
{
    struct fan *f = branch->fan;
    struct buffer_ask *all = f->op->buffer, *one = &branch->ask;
    if (one->now_ms > all->now_ms) all->now_ms = one->now_ms;
    if (f->looking) {
        f->redis->work[branch->shard] = one->queued + one->leased > 0;
    } else if (f->op->verb == VERB_DRAIN_LEASE) {
        take_lease(branch);
    } else {
        all->settled += one->settled;
        all->queued += one->queued;
        all->leased += one->leased;
        if (one->oldest_ms > all->oldest_ms) all->oldest_ms = one->oldest_ms;
        if (one->settled) f->changed = f->redis->work[branch->shard] = true;
    }
}

static void fan_on(struct fan *f);

static void branch_answered(struct op *child, void *ctx)
{
    struct branch *branch = ctx;
    struct fan *f = branch->fan;
    branch->dry = true;
    if (child->err.code)
        fan_fail(f, &child->err);
    else
        take_answer(branch);
    op_free(child);
    if (--f->pending == 0) fan_on(f);
}

/* Two lengths, and all names. NULL: out of memory. */
static struct blob *settles_blob(const struct buf settles[SETTLE_HOWS])
{
    uint8_t lens[8];
    struct buf all;
    buf_init(&all, SIZE_MAX);
    le_put(le_put(lens, settles[SETTLE_WRITTEN].len, 4), settles[SETTLE_BACK].len, 4);
    buf_add(&all, bytes_of(lens, sizeof lens));
    for (unsigned how = 0; how < SETTLE_HOWS; how++) buf_add(&all, buf_bytes(&settles[how]));
    struct blob *blob = buf_failed(&all) ? NULL : blob_new(buf_bytes(&all));
    buf_fini(&all);
    return blob;
}

/* False: out of memory. */
static bool branch_content(struct branch *branch, struct blob **ret)
{
    if (branch->settle_count)
        *ret = settles_blob(branch->settles);
    else if (branch->weights.len && !buf_failed(&branch->weights)) /* without: all are equal */
        *ret = blob_new(buf_bytes(&branch->weights));
    else
        return true;
    return *ret;
}

static bool branch_ask(struct branch *branch, enum verb verb)
{
    struct fan *f = branch->fan;
    struct request in = { 0 };
    if (!branch_content(branch, &in.value)) return false;
    struct op *child = op_new(verb, NULL, &in);
    blob_unref(in.value);
    if (!child) return false;
    whole_frame(branch->shard, branch->frame);
    child->frame = bytes_of(branch->frame, sizeof branch->frame);
    child->buffer = &branch->ask;
    op_push(child, branch_answered, branch);
    f->pending++;
    redis_enqueue(f->redis, child);
    child->submitted_ms = f->op->submitted_ms; /* one deadline for all of them */
    return true;
}

static void ask_or_fail(struct branch *branch, enum verb verb)
{
    if (branch_ask(branch, verb)) return;
    branch->dry = true;
    fan_fail(branch->fan, &(struct err){ .code = ERR_NOMEM, .text = "out of memory" });
}

/* ---- rounds ---- */

static void branch_add(struct fan *f, unsigned shard)
{
    struct branch *branch = &f->branches[f->count++];
    *branch = (struct branch){ .fan = f, .shard = shard, .weight = 1 };
    buf_init(&branch->weights, SIZE_MAX);
    for (unsigned how = 0; how < SETTLE_HOWS; how++) buf_init(&branch->settles[how], SIZE_MAX);
}

static size_t wet_weight(const struct fan *f)
{
    size_t wet = 0;
    for (unsigned i = 0; i < f->count; i++)
        if (!f->branches[i].dry) wet += f->branches[i].weight;
    return wet;
}

/* The limit of an env is kept by each step. Where there are many shards, and so several rounds, it is
 * that of the whole shard, too. */
static size_t room_in(const struct branch *branch)
{
    const struct fan *f = branch->fan;
    size_t env_limit = f->op->buffer->env_limit;
    if (env_limit == 0 || f->count == 1) return SIZE_MAX;
    return env_limit > branch->taken ? env_limit - branch->taken : 0;
}

static void lease_round(struct fan *f)
{
    const struct buffer_ask *ask = f->op->buffer;
    size_t wet = wet_weight(f);
    size_t left = f->left, share = wet && left > wet ? left / wet : 1;
    for (unsigned i = 0; i < f->count && left > 0; i++) {
        struct branch *branch = &f->branches[i];
        if (room_in(branch) == 0) branch->dry = true;
        if (branch->dry) continue;
        branch->ask = (struct buffer_ask){ .limit = least(least(share * branch->weight, left),
                                                          room_in(branch)),
                                           .token = ask->token,
                                           .lease_ms = ask->lease_ms,
                                           .env_limit = ask->env_limit };
        left -= branch->ask.limit;
        f->redis->drained = branch->shard;
        ask_or_fail(branch, VERB_DRAIN_LEASE);
    }
}

/* Which envs a shard has is not known here: it is taken for as heavy as the heaviest that it may have. */
static void weigh(struct branch *branch, const struct env_weight *w)
{
    buf_byte(&branch->weights, w->env_len);
    buf_add(&branch->weights, bytes_of(w->env, w->env_len));
    buf_byte(&branch->weights, w->weight);
    if (w->weight > branch->weight) branch->weight = w->weight;
}

static void weigh_all(struct fan *f)
{
    const struct buffer_ask *ask = f->op->buffer;
    for (size_t i = 0; i < ask->weight_count; i++) {
        const struct env_weight *w = &ask->weights[i];
        unsigned shard = shard_of_env(f->redis, bytes_of(w->env, w->env_len));
        for (unsigned b = 0; b < f->count; b++)
            if (f->branches[b].shard == shard) weigh(&f->branches[b], w);
    }
}

/* Those that are known to have something, the first one behind the one that was asked last. */
static void lease_begin(struct fan *f)
{
    struct redis *r = f->redis;
    unsigned shards = shard_count(r);
    f->looking = false;
    f->count = 0;
    f->left = f->op->buffer->limit;
    for (unsigned i = 1; i <= shards; i++) {
        unsigned shard = (r->drained + i) % shards;
        if (shards == 1 || r->work[shard]) branch_add(f, shard);
    }
    weigh_all(f);
}

static void ask_all(struct fan *f)
{
    for (unsigned i = 0; i < f->count; i++) ask_or_fail(&f->branches[i], VERB_BUFFER_STATS);
}

static void all_begin(struct fan *f)
{
    for (unsigned shard = 0; shard < shard_count(f->redis); shard++) branch_add(f, shard);
}

static void settle_put(struct branch *branch, const struct settle *settle)
{
    uint8_t name[ENV_PREFIX_BYTES_MAX + RUN_ID_BYTES];
    CHECK(settle->how <= SETTLE_FAILED && settle->env.len <= ENV_BYTES_MAX &&
          strlen(settle->id.text) == RUN_ID_BYTES);
    const uint8_t *end = entry_name_put(name, settle->env, &settle->id);
    buf_add(&branch->settles[settle->how], bytes_of(name, (size_t)(end - name)));
    branch->settle_count++;
}

static bool settles_failed(const struct branch *branch)
{
    bool failed = false;
    for (unsigned how = 0; how < SETTLE_HOWS; how++)
        failed = failed || buf_failed(&branch->settles[how]);
    return failed;
}

/* Nothing is sent unless all of it can be. */
static void settle_begin(struct fan *f)
{
    const struct buffer_ask *ask = f->op->buffer;
    bool failed = false;
    all_begin(f);
    for (size_t i = 0; i < ask->settle_count; i++)
        settle_put(&f->branches[shard_of_env(f->redis, ask->settles[i].env)], &ask->settles[i]);
    for (unsigned i = 0; i < f->count; i++) {
        f->branches[i].ask.token = ask->token;
        f->branches[i].ask.back_pause_ms = ask->back_pause_ms;
        f->branches[i].ask.failed_pause_ms = ask->failed_pause_ms;
        failed = failed || settles_failed(&f->branches[i]);
    }
    if (failed) fan_fail(f, &(struct err){ .code = ERR_NOMEM, .text = "out of memory" });
    for (unsigned i = 0; i < f->count && !failed; i++)
        if (f->branches[i].settle_count) ask_or_fail(&f->branches[i], VERB_SETTLE);
}

static bool has_to_look(const struct redis *r)
{
    return r->clustered && r->base.loop->now_ms >= r->looked_ms + LOOK_MS;
}

static void fan_begin(struct fan *f)
{
    struct redis *r = f->redis;
    f->branches = calloc(shard_count(r), sizeof *f->branches);
    if (!f->branches) {
        fan_refuse(r, f->op);
        fan_free(f);
        return;
    }
    if (f->op->verb == VERB_SETTLE) {
        settle_begin(f);
    } else if (f->op->verb == VERB_BUFFER_STATS) {
        all_begin(f);
        ask_all(f);
    } else if (has_to_look(r)) {
        r->looked_ms = r->base.loop->now_ms;
        f->looking = true;
        all_begin(f);
        ask_all(f);
    } else {
        lease_begin(f);
        lease_round(f);
    }
    if (f->pending == 0) fan_on(f);
}

/* All that were asked have answered. */
static void fan_on(struct fan *f)
{
    if (f->looking) lease_begin(f);
    if (f->op->verb == VERB_DRAIN_LEASE && f->left > 0) lease_round(f);
    if (f->pending == 0) fan_end(f);
}

/* ---- the beginning ---- */

bool fan_takes(const struct op *op)
{
    if (op->verb == VERB_DRAIN_LEASE) return !op->buffer->id.text[0];
    return op->verb == VERB_SETTLE || op->verb == VERB_BUFFER_STATS;
}

static void introduced(struct op *child, void *ctx)
{
    struct fan *f = ctx;
    f->pending = 0;
    if (child->err.code) fan_fail(f, &child->err);
    op_free(child);
    if (f->failed.code)
        fan_end(f);
    else
        fan_begin(f);
}

/* How many shards there are is known when a server has been heard of. */
static void fan_introduce(struct fan *f)
{
    struct op *child = op_new(VERB_PING, NULL, NULL);
    if (!child) {
        fan_refuse(f->redis, f->op);
        fan_free(f);
        return;
    }
    op_push(child, introduced, f);
    f->pending = 1;
    redis_enqueue(f->redis, child);
}

void fan_start(struct redis *r, struct op *op)
{
    op_clear_answer(op);
    struct fan *f = malloc(sizeof *f);
    if (!f) {
        fan_refuse(r, op);
        return;
    }
    *f = (struct fan){ .redis = r, .op = op };
    if (r->introduced)
        fan_begin(f);
    else
        fan_introduce(f);
}
