/* buffer_random.c - random histories of a buffer, step by step against a model that has one entry per
 * number and no index, no chunks, no tables: B1-B6 for whatever the store keeps them in.
 *
 * What arrives together, what is asked for and how it is settled is random; so are pauses, in which
 * leases lapse and written entries go. A failing step prints its seed. */
#include "tests/conform/buffer.h"

#include <limits.h>

enum { NUMBERS = 400, ENVS = 3, KEYS = 6, STEPS = 250, BURST_MAX = 24, DRAINERS = 3 };

static const char *const envs[ENVS] = { "e", "other", "x" };
static const char *const scopes[ENVS] = { "@e", "@other", "@x" };
static const char *const key_names[KEYS] = { "a", "b", "c", "d", "e", "f" };

struct modeled {
    bool there, has_key;
    bool loose;  /* changed since: in front, or where it was */
    bool lapsed; /* and somebody has found out: in front of those that nobody has leased */
    unsigned key;
    enum entry_state state; /* LEASED: perhaps until a while ago */
    uint8_t who;            /* 0: nobody, it pauses */
    int64_t until_ms;
    uint64_t rev;
    uint32_t attempts;
    unsigned order;
    char changes[256];
};

static struct modeled all[NUMBERS];
static struct bytes key_frames[KEYS];
static struct rng_seeded rng;
static uint64_t seed;
static unsigned step, arrived;

#define SAYS(what)                                                                             \
    cr_assert(what, "seed %llu, step %u: %s", (unsigned long long)seed, step, #what)

static unsigned below(unsigned limit)
{
    return (unsigned)rng_below(&rng.base, limit);
}

static unsigned env_of(unsigned n)
{
    return n % ENVS;
}

static bool is_gone(const struct modeled *m)
{
    return !m->there || (m->state == ENTRY_WRITTEN && world.wall_ms >= m->until_ms);
}

/* Leased, or in a pause. */
static bool rests(const struct modeled *m)
{
    return m->state == ENTRY_LEASED && world.wall_ms < m->until_ms;
}

static enum entry_state state_now(const struct modeled *m)
{
    return m->state == ENTRY_LEASED && !(rests(m) && m->who) ? ENTRY_QUEUED : m->state;
}

static bool waits(const struct modeled *m)
{
    return !is_gone(m) && state_now(m) == ENTRY_QUEUED;
}

static bool is_due(const struct modeled *m)
{
    return waits(m) && !rests(m);
}

/* Its lease has lapsed, or its pause, whether anybody has found out or not. */
static bool is_lapsed(const struct modeled *m)
{
    return m->lapsed || (m->state == ENTRY_LEASED && !rests(m));
}

static unsigned holder_of(unsigned env, unsigned key)
{
    for (unsigned n = env; n < NUMBERS; n += ENVS) {
        const struct modeled *m = &all[n];
        if (!is_gone(m) && m->state != ENTRY_WRITTEN && m->has_key && m->key == key) return n;
    }
    return NUMBERS;
}

static void expect_like(const struct entry *e, unsigned n)
{
    const struct modeled *m = &all[n];
    SAYS(number_of(&e->id) == n);
    SAYS(bytes_eq(e->env, bytes_str(envs[env_of(n)])));
    SAYS(bytes_eq(e->run, run_of(n)));
    SAYS(bytes_eq(e->changes, bytes_str(m->changes)));
    SAYS(e->state == state_now(m));
    SAYS(e->rev == m->rev && e->attempts == m->attempts);
}

/* ---- accept: one env, all with keys or none ---- */

static struct waiting *submit_accept(unsigned n, unsigned key, bool fresh)
{
    struct buffer_ask ask = { .env = bytes_str(envs[env_of(n)]),
                              .id = id_of(n),
                              .run = run_of(n),
                              .unclaimed = true,
                              .fresh = fresh };
    if (key == KEYS) return submit_buffer(VERB_ACCEPT, ask, NULL, NULL);
    struct key claim = key_of(scopes[env_of(n)], key_names[key]);
    ask.key_frame = key_frames[key];
    return submit_buffer(VERB_ACCEPT, ask, &claim, NULL);
}

/* A written one that is still kept has the key, and nobody has taken it since. */
static bool is_kept(unsigned env, unsigned key)
{
    for (unsigned n = env; n < NUMBERS; n += ENVS) {
        const struct modeled *m = &all[n];
        if (!is_gone(m) && m->state == ENTRY_WRITTEN && m->has_key && m->key == key)
            return true;
    }
    return false;
}

static void stored(unsigned n, unsigned key)
{
    for (unsigned i = env_of(n); i < NUMBERS; i += ENVS)
        if (all[i].key == key) all[i].has_key = false;
    all[n] = (struct modeled){ .there = true,
                               .has_key = key < KEYS,
                               .key = key,
                               .state = ENTRY_QUEUED,
                               .order = ++arrived };
}

static void accepted(const struct op *op, unsigned n, unsigned key, bool fresh)
{
    enum outcome got = op->out.outcome;
    bool gone = is_gone(&all[n]);
    unsigned holder = key < KEYS ? holder_of(env_of(n), key) : NUMBERS;
    SAYS(op->err.code == 0);
    if (!gone && holder != n && got == OUTCOME_OK && !fresh)
        return; /* there, whatever its key */
    if (holder < NUMBERS && holder != n) {
        SAYS(got == OUTCOME_CACHED);
        expect_like(only(op), holder);
    } else if (fresh && holder != n && (!gone || is_kept(env_of(n), key))) {
        SAYS(got == OUTCOME_IN_PROGRESS && !op->changed);
    } else {
        SAYS(got == OUTCOME_OK && op->changed == gone);
        if (gone) stored(n, key);
    }
}

static void do_accept(void)
{
    struct waiting *sent[BURST_MAX];
    unsigned numbers[BURST_MAX], keys[BURST_MAX];
    unsigned count = 1 + below(BURST_MAX), env = below(ENVS), first = below(NUMBERS / ENVS);
    bool keyed = below(2), fresh = keyed && store->caps & CAP_FRESH && below(2);
    for (unsigned i = 0; i < count; i++) {
        numbers[i] = (first + i * 5) % (NUMBERS / ENVS) * ENVS + env; /* none twice */
        keys[i] = keyed ? below(KEYS) : KEYS;
        sent[i] = submit_accept(numbers[i], keys[i], fresh);
    }
    world_settle(&world);
    for (unsigned i = 0; i < count; i++) accepted(sent[i]->op, numbers[i], keys[i], fresh);
}

/* ---- lease ---- */

static void lease(struct modeled *m, uint8_t who)
{
    m->state = ENTRY_LEASED;
    m->who = who;
    m->until_ms = world.wall_ms + LEASE_MS;
    m->lapsed = m->loose = false;
}

/* Those of the env that are not in the answer wait behind those that are. */
static void expect_turn(const struct entries *got, unsigned env)
{
    bool taken[NUMBERS] = { false };
    unsigned last = 0;
    for (size_t i = 0; i < got->count; i++) {
        unsigned n = number_of(&got->rows[i]->id);
        SAYS(is_due(&all[n]) && !taken[n]);
        taken[n] = true;
        if (env_of(n) != env || is_lapsed(&all[n]) || all[n].loose) continue;
        SAYS(all[n].order > last);
        last = all[n].order;
    }
    for (unsigned n = env; n < NUMBERS && last; n += ENVS)
        if (is_due(&all[n]) && !taken[n] && !all[n].loose)
            SAYS(!is_lapsed(&all[n]) && all[n].order > last);
}

static unsigned count_waiting(void)
{
    unsigned count = 0;
    for (unsigned n = 0; n < NUMBERS; n++) count += is_due(&all[n]);
    return count;
}

static void do_drain(void)
{
    uint8_t who = (uint8_t)(1 + below(DRAINERS));
    unsigned limit = 1 + below(40), env_limit = below(3) ? 0 : 1 + below(20);
    const struct entries *got = &drain(who, limit, env_limit)->buffer->entries;
    unsigned waiting = count_waiting();
    for (unsigned env = 0; env < ENVS; env++) {
        expect_turn(got, env);
        size_t of_env = 0;
        for (size_t i = 0; i < got->count; i++)
            of_env += bytes_eq(got->rows[i]->env, bytes_str(envs[env]));
        SAYS(!env_limit || of_env <= env_limit);
    }
    SAYS(got->count <= limit);
    if (!env_limit) SAYS(got->count == (waiting < limit ? waiting : limit));
    for (unsigned n = 0; n < NUMBERS; n++) all[n].lapsed = is_lapsed(&all[n]);
    for (size_t i = 0; i < got->count; i++) {
        unsigned n = number_of(&got->rows[i]->id);
        lease(&all[n], who);
        expect_like(got->rows[i], n);
    }
}

static void do_drain_one(void)
{
    uint8_t who = (uint8_t)(1 + below(DRAINERS));
    unsigned n = below(NUMBERS);
    const struct entries *got = &drain_entry(who, envs[env_of(n)], n)->buffer->entries;
    SAYS(got->count == waits(&all[n]));
    if (!got->count) return;
    lease(&all[n], who);
    expect_like(got->rows[0], n);
}

/* ---- settle ---- */

static bool settled(struct modeled *m, uint8_t who, enum settle_how how, int64_t pause_ms)
{
    if (is_gone(m) || m->state != ENTRY_LEASED || m->who != who) return false;
    m->attempts += how == SETTLE_FAILED;
    m->state = how == SETTLE_WRITTEN ? ENTRY_WRITTEN : pause_ms ? ENTRY_LEASED : ENTRY_QUEUED;
    m->until_ms = world.wall_ms + (how == SETTLE_WRITTEN ? WRITTEN_KEEP_MS : pause_ms);
    m->who = 0;
    m->lapsed = false;
    return true;
}

/* What somebody has found to have lapsed may still be settled, or not any more. */
static void do_settle_late(void)
{
    unsigned n = below(NUMBERS);
    for (unsigned i = 0; i < NUMBERS && !all[n].lapsed; i++) n = (n + 1) % NUMBERS;
    struct modeled *m = &all[n];
    if (!m->lapsed || !m->who) return;
    enum settle_how how = below(3);
    if (settle(m->who, envs[env_of(n)], n, how)->buffer->settled)
        SAYS(settled(m, m->who, how, 0));
}

/* Most of what this drainer has, mostly alike, mostly in order; and some that it has not. */
static void do_settle(void)
{
    static struct settle some[NUMBERS];
    uint8_t who = (uint8_t)(1 + below(DRAINERS));
    unsigned usual = below(3), count = 0;
    int64_t pause_ms = below(2) ? 1 + below(LEASE_MS) : 0;
    size_t want = 0;
    for (unsigned i = 0, skew = below(2) * 5; i < NUMBERS; i++) {
        unsigned n = (i * (1 + skew * 2)) % NUMBERS;
        struct modeled *m = &all[n];
        bool mine = m->there && m->state == ENTRY_LEASED && m->who == who;
        if (m->lapsed) continue;
        if (below(mine ? 8 : 50) == 0 ? mine : !mine) continue;
        enum settle_how how = below(6) ? usual : below(3);
        some[count++] = (struct settle){ id_of(n), bytes_str(envs[env_of(n)]), how };
        want += settled(m, who, how, pause_ms);
    }
    const struct op *op =
        buffer(VERB_SETTLE, (struct buffer_ask){ .token = token_of(who),
                                                 .settles = some,
                                                 .settle_count = count,
                                                 .back_pause_ms = pause_ms,
                                                 .failed_pause_ms = pause_ms });
    SAYS(op->buffer->settled == want);
}

/* ---- the rest ---- */

static void do_append(void)
{
    unsigned n = below(NUMBERS);
    struct modeled *m = &all[n];
    bool frees = below(4) == 0, wrong = below(4) == 0;
    uint64_t rev = m->rev + wrong;
    const char *env = envs[env_of(n)];
    const struct op *op = frees ? append_freeing(env, n, rev, "+f") : append(env, n, rev, "+");
    enum outcome got = op->out.outcome;
    if (is_gone(m) || m->state == ENTRY_WRITTEN) {
        SAYS(got == OUTCOME_ABSENT);
    } else if (!waits(m)) {
        SAYS(got == OUTCOME_IN_PROGRESS);
    } else if (wrong) {
        SAYS(got == OUTCOME_CONFLICT);
    } else {
        SAYS(got == OUTCOME_OK);
        m->rev++;
        strcat(m->changes, frees ? "+f" : "+");
        cr_assert(strlen(m->changes) < sizeof m->changes - 4);
        m->has_key = m->has_key && !frees;
        m->loose = m->loose || m->state == ENTRY_LEASED || m->lapsed;
        m->state = ENTRY_QUEUED; /* a lease that has lapsed is over */
        m->lapsed = false;
    }
}

static void do_get(void)
{
    unsigned n = below(NUMBERS), key = below(KEYS), holder = holder_of(env_of(n), key);
    struct bytes env = bytes_str(envs[env_of(n)]);
    const struct op *op = get(envs[env_of(n)], n);
    SAYS(op->out.outcome == (is_gone(&all[n]) ? OUTCOME_ABSENT : OUTCOME_OK));
    if (!is_gone(&all[n])) expect_like(only(op), n);
    op =
        buffer(VERB_ENTRY_GET, (struct buffer_ask){ .env = env, .key_frame = key_frames[key] });
    SAYS(op->out.outcome == (holder < NUMBERS ? OUTCOME_OK : OUTCOME_ABSENT));
    if (holder < NUMBERS) expect_like(only(op), holder);
}

static void do_list(void)
{
    unsigned env = below(ENVS), limit = 1 + below(30), n = 1 + below(NUMBERS), at = 0;
    const struct entries *got = &list_entries(envs[env], n, limit)->buffer->entries;
    while (n-- > 0) {
        if (env_of(n) != env || is_gone(&all[n]) || all[n].state == ENTRY_WRITTEN) continue;
        if (at == limit) break;
        SAYS(at < got->count);
        expect_like(got->rows[at++], n);
    }
    SAYS(at == got->count && got->more == (n != UINT_MAX));
}

static void do_stats(void)
{
    unsigned queued = 0, leased = 0;
    for (unsigned n = 0; n < NUMBERS; n++) {
        queued += is_due(&all[n]);
        leased += !is_gone(&all[n]) && rests(&all[n]);
    }
    const struct buffer_ask *got = buffer_stats()->buffer;
    SAYS(got->queued == queued && got->leased == leased);
}

static void do_wait(void)
{
    static const int64_t pauses_ms[] = { 1, 1000, LEASE_MS / 2, LEASE_MS };
    world_advance(&world, pauses_ms[below(4)]);
    expire(10000);
}

static void history(uint64_t from)
{
    static void (*const does[])(void) = { do_accept,      do_accept,    do_drain,  do_drain,
                                          do_settle,      do_drain_one, do_append, do_get,
                                          do_settle_late, do_list,      do_stats,  do_wait };
    seed = from;
    rng_seeded_init(&rng, seed);
    for (unsigned i = 0; i < KEYS; i++)
        key_frames[i] = entry_ask("e", 1, key_names[i]).key_frame;
    for (step = 0; step < STEPS; step++) does[below(sizeof does / sizeof does[0])]();
}

BUFFER_CASE(buffer_random, first)
{
    history(1);
}

BUFFER_CASE(buffer_random, second)
{
    history(2);
}

BUFFER_CASE(buffer_random, third)
{
    history(3);
}

BUFFER_CASE(buffer_random, fourth)
{
    history(4);
}
