/* sqlite_buffer_lease.c - DRAIN_LEASE of the buffer in a SQLite file.
 *
 * Guarantees: a lease gives envs their turns: everybody has a part before anybody has more, and the
 * next one begins behind the env that was served last. Within an env what lapsed comes first, then
 * what came first. */
#include "store/sqlite_buffer.h"

#include "base/check.h"

#include <stdlib.h>

enum {
    LAPSED_MAX = 1000, /* so many are queued again by one lease */
    TURNS_MAX = 1000,  /* envs of one lease */
};

/* ---- turns ---- */

/* Of one env in one lease. */
struct turn {
    uint8_t env[ENV_BYTES_MAX];
    size_t env_len;
    size_t waiting, part; /* waiting: as far as it matters */
    size_t weight;
    int64_t last_turn, last_seq; /* of the last one picked */
    bool picked;
};

static struct bytes turn_env(const struct turn *t)
{
    return bytes_of(t->env, t->env_len);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t hungry(const struct turn *turns, size_t count)
{
    size_t weight = 0;
    for (size_t i = 0; i < count; i++)
        if (turns[i].part < turns[i].waiting) weight += turns[i].weight;
    return weight;
}

/* To everybody by weight, and again what is left over for those who have more. */
static void share_out(struct turn *turns, size_t count, size_t limit)
{
    size_t left = limit, weight;
    while (left && (weight = hungry(turns, count)) > 0) {
        size_t part = left >= weight ? left / weight : 1;
        for (size_t i = 0; i < count; i++) {
            size_t more =
                least(least(part * turns[i].weight, left), turns[i].waiting - turns[i].part);
            turns[i].part += more;
            left -= more;
        }
    }
}

static size_t weight_of(const struct buffer_ask *a, const struct turn *t)
{
    for (size_t i = 0; i < a->weight_count; i++) {
        const struct env_weight *w = &a->weights[i];
        if (bytes_eq(bytes_of(w->env, w->env_len), turn_env(t))) return w->weight;
    }
    return 1;
}

/* The first env behind this one that has something queued. 1: found, 0: there is none. */
static int env_behind(struct sqlite *s, struct bytes after, struct turn *ret_turn,
                      struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_DRAIN_ENV, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, after);
    int r = db_step(s, q, reterr);
    if (r == 1) {
        struct bytes env = column_bytes(q, 0);
        if (env.len > ENV_BYTES_MAX)
            r = err_set(reterr, ERR_CORRUPT, "sqlite: a buffered entry has an env too long");
        else
            memcpy(ret_turn->env, env.data, ret_turn->env_len = env.len);
    }
    sqlite3_reset(q);
    return r;
}

static int count_waiting(struct sqlite *s, struct turn *t, size_t limit, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_DRAIN_COUNT, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, turn_env(t));
    sqlite3_bind_int64(q, 2, sqlite_buffer_limit(limit));
    int r = db_step(s, q, reterr);
    if (r == 1) t->waiting = (size_t)sqlite3_column_int64(q, 0);
    sqlite3_reset(q);
    return r < 0 ? r : 0;
}

/* Once around, beginning behind the env that was served last. Returns how many envs wait, `max` at
 * most; or a negative error. */
static int find_turns(struct sqlite *s, struct turn *turns, size_t max, size_t env_limit,
                      struct err *reterr)
{
    struct bytes served = bytes_of(s->drained, s->drained_len), after = served;
    bool around = served.len == 0;
    size_t count = 0;
    while (count < max) {
        struct turn *t = &turns[count];
        *t = (struct turn){ 0 };
        int r = env_behind(s, after, t, reterr);
        if (r < 0) return r;
        if (r == 0 && around) break;
        if (r == 0) {
            around = true;
            after = bytes_of(NULL, 0);
            continue;
        }
        bool seen = around && served.len && bytes_cmp(turn_env(t), served) > 0;
        if (seen) break;
        r = count_waiting(s, t, env_limit, reterr);
        if (r) return r;
        after = turn_env(t);
        count++;
    }
    return (int)count;
}

/* ---- entries ---- */

static int take_lapsed(struct sqlite *s, int64_t now_ms, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_DRAIN_LAPSED, reterr);
    if (!q) return reterr->code;
    sqlite3_bind_int64(q, 1, now_ms);
    sqlite3_bind_int64(q, 2, LAPSED_MAX);
    int r = db_finish(s, q, reterr);
    if (!r) sqlite_buffer_more(s, sqlite_buffer_changed(s), -sqlite_buffer_changed(s));
    return r;
}

static int pick_rows(struct sqlite *s, sqlite3_stmt *q, struct turn *t, struct buffer_ask *a,
                     size_t *bytes, struct err *reterr)
{
    struct entry_row row;
    int r = 0;
    while (*bytes < ANSWER_BYTES_MAX && (r = db_step(s, q, reterr)) == 1) {
        r = sqlite_entry_row_decode(q, a->now_ms, &row, reterr);
        row.entry.state = ENTRY_LEASED;
        if (!r) r = sqlite_entry_tell(a, &row.entry, reterr);
        if (r) return r;
        *bytes += sqlite_entry_bytes(&row.entry);
        t->last_turn = row.turn;
        t->last_seq = row.seq;
        t->picked = true;
    }
    return r;
}

static int pick(struct sqlite *s, struct turn *t, struct buffer_ask *a, size_t *bytes,
                struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_DRAIN_PICK, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, turn_env(t));
    sqlite3_bind_int64(q, 2, sqlite_buffer_limit(t->part));
    int r = pick_rows(s, q, t, a, bytes, reterr);
    sqlite3_reset(q);
    return r;
}

/* From parameter `at` on. */
static void bind_lease(sqlite3_stmt *q, int at, const struct buffer_ask *a)
{
    CHECK(a->lease_ms >= 0);
    bind_bytes(q, at, bytes_of(a->token.bytes, sizeof a->token.bytes));
    sqlite3_bind_int64(q, at + 1, a->now_ms);
    sqlite3_bind_int64(q, at + 2, a->now_ms + a->lease_ms);
}

/* All of this turn, up to this one. */
static int take_up_to(struct sqlite *s, struct bytes env, int64_t turn, int64_t seq,
                      const struct buffer_ask *a, struct err *reterr)
{
    sqlite3_stmt *q = db_statement(s, SQL_DRAIN_TAKE, reterr);
    if (!q) return reterr->code;
    bind_bytes(q, 1, env);
    sqlite3_bind_int64(q, 2, turn);
    sqlite3_bind_int64(q, 3, seq);
    bind_lease(q, 4, a);
    int r = db_finish(s, q, reterr);
    if (!r) sqlite_buffer_more(s, -sqlite_buffer_changed(s), sqlite_buffer_changed(s));
    return r;
}

/* Those that were picked, in the order of picking: all that lapsed come before the others. */
static int take(struct sqlite *s, const struct turn *t, const struct buffer_ask *a,
                struct err *reterr)
{
    int r = 0;
    if (t->last_turn > TURN_LAPSED)
        r = take_up_to(s, turn_env(t), TURN_LAPSED, INT64_MAX, a, reterr);
    return r ? r : take_up_to(s, turn_env(t), t->last_turn, t->last_seq, a, reterr);
}

static void remember_turn(struct sqlite *s, const struct turn *t)
{
    memcpy(s->drained, t->env, t->env_len);
    s->drained_len = t->env_len;
}

/* Everything is read before anything is changed: what fails has changed nothing. */
static int lease_turns(struct sqlite *s, struct turn *turns, size_t count, struct op *op,
                       struct err *reterr)
{
    struct buffer_ask *a = op->buffer;
    size_t bytes = 0;
    int r = 0;
    for (size_t i = 0; i < count; i++) turns[i].weight = weight_of(a, &turns[i]);
    share_out(turns, count, a->limit);
    for (size_t i = 0; !r && i < count; i++)
        if (turns[i].part) r = pick(s, &turns[i], a, &bytes, reterr);
    for (size_t i = 0; !r && i < count; i++) {
        if (!turns[i].picked) continue;
        r = take(s, &turns[i], a, reterr);
        remember_turn(s, &turns[i]);
    }
    op->changed = !r && a->entries.count > 0;
    return r;
}

static int lease_any(struct sqlite *s, struct op *op, struct err *reterr)
{
    struct buffer_ask *a = op->buffer;
    size_t max = least(a->limit, TURNS_MAX);
    size_t env_limit = a->env_limit ? least(a->env_limit, a->limit) : a->limit;
    struct turn *turns = malloc((max + 1) * sizeof *turns);
    if (!turns) return err_set(reterr, ERR_NOMEM, "out of memory leasing entries");
    int r = take_lapsed(s, a->now_ms, reterr);
    if (!r) r = find_turns(s, turns, max, env_limit, reterr);
    if (r > 0) r = lease_turns(s, turns, (size_t)r, op, reterr);
    free(turns);
    return r;
}

static int lease_one(struct sqlite *s, struct op *op, struct err *reterr)
{
    struct buffer_ask *a = op->buffer;
    struct entry_row row;
    int r = sqlite_entry_row_tell(s, SQL_ENTRY_BY_ID, a, run_id_bytes(&a->id), &row, reterr);
    if (r < 0) return r;
    if (r == 0 || row.entry.state != ENTRY_QUEUED) {
        entries_clear(&a->entries);
        return 0;
    }
    a->entries.rows[0]->state = ENTRY_LEASED;
    sqlite3_stmt *q = db_statement(s, SQL_DRAIN_TAKE_ONE, reterr);
    if (!q) return reterr->code;
    sqlite3_bind_int64(q, 1, row.seq);
    bind_lease(q, 2, a);
    r = db_finish(s, q, reterr);
    if (!r && !row.leased) sqlite_buffer_more(s, -1, 1);
    op->changed = !r;
    return r;
}

int sqlite_buffer_lease(struct sqlite *s, struct op *op, struct err *reterr)
{
    const struct buffer_ask *a = op->buffer;
    return a->id.text[0] ? lease_one(s, op, reterr) : lease_any(s, op, reterr);
}
