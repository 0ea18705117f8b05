/* postgres_runs.c - runs in a PostgreSQL database, by the principle of postgres.c: read, decide by
 * the rules, write what is still as it was read.
 *
 * Guarantees: ops about single runs are decided in order, on one image of all rows that a batch is
 * about, by the server's clock; what they change is one transaction. Each row is written only if
 * nobody has changed it since (rev), a new one only if its id and its key are free: an op whose rows
 * lost that race is read and decided again, the others are done. Of an op that changes two rows, none
 * is carried out by half: who loses a key it had no right to has lost nothing; an alias and what its
 * changes make of the run are written both or not at all. A LEASE is decided where the rows are locked
 * (runs_lease() in postgres/002-runs.sql).
 * Does not: hold a lock while the server waits for us.
 *
 * The first round guesses that a PUT is of a new run with a new key, if the last ones were: then
 * nothing of it is read. */
#include "store/postgres_runs.h"

#include "base/check.h"

#include <stdlib.h>

enum {
    CHUNK_BYTES = 8 << 20, /* of payloads and changes in one transaction */
    DECISION_MS = 1000,    /* how old a decision may be when it is carried out */
    ANCHOR_MS = 500,       /* how long the server's clock may be reckoned from ours */
    NEW_ALL = 256,
    SURE_PAUSE_MAX = 255,
    LEASES_MAX = 16, /* in one transaction */
};

/* ---- life ---- */

int pgruns_init(struct pgruns *s, struct pgdb *db, const struct store_env *env)
{
    s->db = db;
    s->wall = env->wall;
    s->monotonic = env->monotonic;
    s->wall_rules = env->wall_rules;
    run_scratch_init(&s->scratch);
    for (size_t i = 0; i < RUN_ASK_COLUMNS; i++) pg_array_init(&s->asks[i], PG_BYTEA);
    for (size_t i = 0; i < ALIAS_COLUMNS; i++)
        pg_array_init(&s->aliases[i], i < 3 ? PG_BYTEA : PG_INT8);
    run_columns_init(&s->inserts);
    run_columns_init(&s->updates);
    return image_init(&s->image, env->rng);
}

void pgruns_fini(struct pgruns *s)
{
    image_fini(&s->image);
    run_scratch_fini(&s->scratch);
    for (size_t i = 0; i < RUN_ASK_COLUMNS; i++) pg_array_fini(&s->asks[i]);
    for (size_t i = 0; i < ALIAS_COLUMNS; i++) pg_array_fini(&s->aliases[i]);
    run_columns_fini(&s->inserts);
    run_columns_fini(&s->updates);
}

static void op_refuse(struct op *op, const struct err *err)
{
    op_clear_answer(op);
    op->err = *err;
}

/* ---- time ---- */

static void set_moment(struct pgruns *s, int64_t now_ms)
{
    s->at.now_ms = s->wall_rules ? clock_now_ms(&s->wall) : now_ms;
    s->at.monotonic_ms = clock_now_ms(&s->monotonic);
}

/* False: the last look at the server's clock is too long ago. Never ahead of it. */
static bool reckon_moment(struct pgruns *s)
{
    int64_t since_ms = pgdb_now_ms() - s->read_mono_ms;
    if (s->read_mono_ms == 0 || (since_ms > ANCHOR_MS && !s->wall_rules)) return false;
    set_moment(s, s->read_ms + (since_ms > 0 ? since_ms - 1 : 0));
    return true;
}

/* ---- read ---- */

enum read_column { READ_NOW, READ_EPOCH, READ_N, READ_ALIAS_CHANGES, READ_PLACE, READ_ROW };

/* A running average. */
static void note_put(struct pgruns *s, bool new)
{
    s->puts_new = (s->puts_new * 15 + (new ? NEW_ALL : 0) + 8) / 16;
}

static void ask(struct pgruns *s, struct run_step *step, const struct run_ask *about)
{
    CHECK(s->ask_count < RUN_ASKS_MAX);
    s->asked_by[s->ask_count++] = step;
    pg_array_add(&s->asks[0], about->env);
    pg_array_add(&s->asks[1], run_id_bytes(&about->id));
    pg_array_add(&s->asks[2], about->task);
    pg_array_add(&s->asks[3], about->key);
}

static void ask_for_put(struct pgruns *s, struct run_step *step)
{
    const struct run *r = step->op->run->run;
    ask(s, step, &(struct run_ask){ .env = r->env, .id = r->id });
    if (r->key.len)
        ask(s, step, &(struct run_ask){ .env = r->env, .task = r->task, .key = r->key });
}

static void ask_for(struct pgruns *s, struct run_step *step)
{
    struct run_ask about = *step->op->run;
    if (step->op->verb == VERB_RUN_PUT) {
        ask_for_put(s, step);
        return;
    }
    if (step->op->verb == VERB_RUN_RESET) about.id = (struct run_id){ 0 };
    ask(s, step, &about);
}

static int asks_failed(const struct pgruns *s)
{
    for (size_t i = 0; i < RUN_ASK_COLUMNS; i++)
        if (pg_array_failed(&s->asks[i])) return pg_array_failed(&s->asks[i]);
    return 0;
}

static bool may_guess(const struct pgruns *s, const struct run_step *step)
{
    if (step->op->verb != VERB_RUN_PUT || s->puts_new <= NEW_ALL / 2) return false;
    struct run_moment at = { .monotonic_ms = clock_now_ms(&s->monotonic) };
    return !run_put_is_late(step->op->run, at);
}

static void asks_collect(struct pgruns *s)
{
    s->ask_count = 0;
    for (size_t i = 0; i < RUN_ASK_COLUMNS; i++) pg_array_clear(&s->asks[i]);
    for (size_t i = 0; i < s->step_count; i++) {
        struct run_step *step = &s->steps[i];
        if (step->settled) continue;
        step->bad.code = 0;
        step->guessed = s->guessing && may_guess(s, step);
        if (!step->guessed) ask_for(s, step);
    }
}

/* The same row may be found by its id and by its key. */
static struct image_row *row_take(struct pgruns *s, const struct run *r, int64_t rev)
{
    struct image_row *row = image_by_id(&s->image, r->env, &r->id);
    if (row) return row;
    row = image_add(&s->image, r);
    row->rev = rev;
    row->seen_tags = r->tags;
    row->seen_metadata = r->metadata;
    row->seen_output = r->output;
    row->seen_error = r->error;
    return row;
}

static void alias_take(struct pgruns *s, const struct run_step *step, struct image_row *row,
                       int64_t changes)
{
    const struct run_ask *about = step->op->run;
    const struct run_id *id = about->run ? &about->run->id : &about->id;
    if (image_by_id(&s->image, row->now.env, id)) return;
    struct image_row *alias = image_add_alias(&s->image, id, row);
    alias->now.changes = (uint64_t)changes;
    alias->seen_changes = changes;
}

static int take_row(struct pgruns *s, const PGresult *q, int at, struct err *reterr)
{
    struct run r;
    int64_t rev, n = pg_number(q, at, READ_N);
    if (n < 1 || n > (int64_t)s->ask_count)
        return err_set(reterr, ERR_CORRUPT, "postgres: an answer to another question");
    struct run_step *step = s->asked_by[n - 1];
    if (!run_row_decode(q, at, READ_ROW, &r, &rev) || rev < 1) {
        err_set(&step->bad, ERR_CORRUPT, "postgres: a stored run makes no sense");
        return 0;
    }
    struct image_row *row = row_take(s, &r, rev);
    row->place = pg_place(q, at, READ_PLACE);
    if (!PQgetisnull(q, at, READ_ALIAS_CHANGES))
        alias_take(s, step, row, pg_number(q, at, READ_ALIAS_CHANGES));
    return 0;
}

static int take_rows(struct pgruns *s, const PGresult *q, struct err *reterr)
{
    if (PQntuples(q) == 0)
        return err_set(reterr, ERR_CORRUPT, "postgres: the row of the table meta is missing");
    s->epoch = (uint64_t)pg_number(q, 0, READ_EPOCH);
    s->read_ms = pg_number(q, 0, READ_NOW);
    s->read_mono_ms = pgdb_now_ms();
    set_moment(s, s->read_ms);
    for (int at = 1; at < PQntuples(q); at++) {
        int r = take_row(s, q, at, reterr);
        if (r) return r;
    }
    return 0;
}

/* Reading changes nothing, so a connection that turns out to be stale costs one more try. */
static int read_query(struct pgruns *s, struct pg_statement *read, struct err *reterr)
{
    int r = pgdb_query(s->db, read, reterr);
    if (!r || pgdb_late(s->db)) return r;
    if (s->db->failed != PG_LOST && s->db->failed != PG_AGAIN) return r;
    r = pgdb_begin(s->db, reterr);
    return r ? r : pgdb_query(s->db, read, reterr);
}

/* What was asked for; without questions only the moment. */
static int read_asked(struct pgruns *s, struct err *reterr)
{
    int r = asks_failed(s);
    if (r) return err_set(reterr, r, "out of memory asking postgres:");
    struct pg_params params = { .count = 0 };
    for (size_t i = 0; i < RUN_ASK_COLUMNS; i++) pg_param_array(&params, &s->asks[i]);
    struct pg_statement read = { PGSQL_RUNS_READ, &params };
    r = read_query(s, &read, reterr);
    s->image.result = read.result;
    return r ? r : take_rows(s, read.result, reterr);
}

static int read_or_guess(struct pgruns *s, struct err *reterr)
{
    image_clear(&s->image);
    asks_collect(s);
    if (s->ask_count == 0 && reckon_moment(s)) return 0;
    int r = read_asked(s, reterr);
    if (r && s->db->failed == PG_LOST) s->db->failed = PG_REFUSED; /* a read changes nothing */
    return r;
}

/* ---- decide ---- */

static bool found_something(const struct run_step *step)
{
    return step->op->run->put != PUT_INSERT;
}

static void decide(struct pgruns *s)
{
    for (size_t i = 0; i < s->step_count; i++) {
        struct run_step *step = &s->steps[i];
        if (step->settled) continue;
        run_decide(step, &s->image, &s->scratch, s->at);
        step->op->epoch = s->epoch;
        if (step->op->verb == VERB_RUN_PUT && !step->guessed)
            note_put(s, !found_something(step));
    }
}

/* ---- write ---- */

static int by_id(const void *a, const void *b)
{
    const struct run *x = &(*(struct image_row *const *)a)->now;
    const struct run *y = &(*(struct image_row *const *)b)->now;
    int order = bytes_cmp(x->env, y->env);
    return order ? order : strcmp(x->id.text, y->id.text);
}

/* New rows wait for each other where their keys are the same. */
static int by_key(const void *a, const void *b)
{
    const struct run *x = &(*(struct image_row *const *)a)->now;
    const struct run *y = &(*(struct image_row *const *)b)->now;
    int order = bytes_cmp(x->env, y->env);
    if (!order) order = bytes_cmp(x->task, y->task);
    if (!order) order = bytes_cmp(x->key, y->key);
    return order ? order : strcmp(x->id.text, y->id.text);
}

static size_t rows_changed(struct pgruns *s, bool new, struct image_row **ret_rows)
{
    size_t count = 0;
    for (size_t i = 0; i < s->image.count; i++) {
        struct image_row *row = &s->image.rows[i];
        if (row->changed && !row->canonical && (row->rev == 0) == new) ret_rows[count++] = row;
    }
    return count;
}

static void collect_updates(struct pgruns *s)
{
    struct image_row *rows[IMAGE_ROWS_MAX];
    size_t count = rows_changed(s, false, rows);
    run_columns_clear(&s->updates);
    qsort(rows, count, sizeof rows[0], by_id);
    for (size_t i = 0; i < count; i++) run_columns_add_update(&s->updates, rows[i]);
}

static void collect_inserts(struct pgruns *s)
{
    struct image_row *rows[IMAGE_ROWS_MAX];
    size_t count = rows_changed(s, true, rows);
    run_columns_clear(&s->inserts);
    qsort(rows, count, sizeof rows[0], by_key);
    for (size_t i = 0; i < count; i++) run_columns_add_insert(&s->inserts, rows[i]);
}

static void collect_aliases(struct pgruns *s)
{
    for (size_t i = 0; i < ALIAS_COLUMNS; i++) pg_array_clear(&s->aliases[i]);
    for (size_t i = 0; i < s->image.count; i++) {
        const struct image_row *row = &s->image.rows[i];
        if (!row->changed || !row->canonical) continue;
        pg_array_add(&s->aliases[0], row->now.env);
        pg_array_add(&s->aliases[1], run_id_bytes(&row->now.id));
        pg_array_add(&s->aliases[2], run_id_bytes(&row->canonical->now.id));
        pg_array_add_number(&s->aliases[3], row->seen_changes);
        pg_array_add_number(&s->aliases[4], (int64_t)row->now.changes);
    }
}

static int collect_failed(const struct pgruns *s)
{
    if (run_columns_failed(&s->inserts)) return run_columns_failed(&s->inserts);
    if (run_columns_failed(&s->updates)) return run_columns_failed(&s->updates);
    for (size_t i = 0; i < ALIAS_COLUMNS; i++)
        if (pg_array_failed(&s->aliases[i])) return pg_array_failed(&s->aliases[i]);
    return 0;
}

/* When the decision was made, and how old it may be. */
static void moment_params(const struct pgruns *s, struct pg_params *p)
{
    p->count = 0;
    pg_param_number(p, s->wall_rules ? 0 : s->at.now_ms);
    pg_param_number(p, s->wall_rules ? INT64_MAX : DECISION_MS);
}

static void update_params(struct pgruns *s, struct pg_params *p)
{
    moment_params(s, p);
    run_columns_params(&s->updates, RUN_COLS_UPDATE, p);
}

static void insert_params(struct pgruns *s, struct pg_params *p)
{
    bool surely = s->guessing && s->sure_after == 0;
    moment_params(s, p);
    pg_param(p, PG_BOOL, bytes_of(surely ? "\1" : "\0", 1));
    run_columns_params(&s->inserts, RUN_COLS_INSERT, p);
}

static void aliases_params(struct pgruns *s, struct pg_params *p)
{
    p->count = 0;
    for (size_t i = 0; i < ALIAS_COLUMNS; i++) pg_param_array(p, &s->aliases[i]);
    pg_param_number(p, s->at.now_ms);
}

static void note_written(const struct run_columns *c, const PGresult *q)
{
    for (int at = 0; q && at < PQntuples(q); at++) {
        int64_t n = pg_number(q, at, 0);
        CHECK(n >= 1 && n <= (int64_t)c->count);
        c->rows[n - 1]->written = true;
    }
}

/* An alias was written if its run was. */
static void settle_written(struct pgruns *s)
{
    for (size_t i = 0; i < s->image.count; i++) {
        struct image_row *row = &s->image.rows[i];
        if (row->canonical) row->written = row->canonical->written;
    }
    for (size_t i = 0; i < s->step_count; i++) {
        struct run_step *step = &s->steps[i];
        if (step->settled) continue;
        step->settled = run_step_is_written(step);
        if (step->guessed) note_put(s, step->settled && !found_something(step));
    }
}

/* Those that lose their key come before those that take it, and runs before their aliases. */
static int write_rows(struct pgruns *s, struct err *reterr)
{
    struct pg_params update, insert, alias;
    struct pg_statement statements[3], *updated = NULL, *inserted = NULL;
    size_t count = 0;
    if (s->updates.count) {
        update_params(s, &update);
        updated = &statements[count++];
        *updated = (struct pg_statement){ PGSQL_RUNS_UPDATE, &update };
    }
    if (s->inserts.count) {
        insert_params(s, &insert);
        inserted = &statements[count++];
        *inserted = (struct pg_statement){ PGSQL_RUNS_INSERT, &insert };
    }
    if (s->aliases[0].count) {
        aliases_params(s, &alias);
        statements[count++] = (struct pg_statement){ PGSQL_RUNS_ALIAS, &alias };
    }
    int r = pgdb_transact(s->db, statements, count, reterr);
    if (r) return r;
    if (updated) note_written(&s->updates, updated->result);
    if (inserted) note_written(&s->inserts, inserted->result);
    for (size_t i = 0; i < count; i++) PQclear(statements[i].result);
    return 0;
}

static bool any_unsettled(const struct pgruns *s)
{
    for (size_t i = 0; i < s->step_count; i++)
        if (!s->steps[i].settled) return true;
    return false;
}

/* 0: all are answered; 1: some have to be read again; negative: error. */
static int write_changed(struct pgruns *s, struct err *reterr)
{
    collect_updates(s);
    collect_inserts(s);
    collect_aliases(s);
    if (collect_failed(s)) {
        s->db->failed = PG_REFUSED;
        return err_set(reterr, ERR_NOMEM, "out of memory writing to postgres:");
    }
    int r = s->updates.count + s->inserts.count ? write_rows(s, reterr) : 0;
    if (r && (s->db->failed == PG_AGAIN || s->db->failed == PG_TAKEN)) return 1;
    settle_written(s);
    return r ? r : any_unsettled(s);
}

/* ---- a batch of ops about single runs ---- */

/* An op that was to change something may have done so. */
static void refuse_unsettled(struct pgruns *s, const struct err *cause)
{
    struct err ambiguous = *cause;
    if (s->db->failed == PG_LOST)
        err_set(&ambiguous, ERR_AMBIGUOUS,
                "the commit was not answered, the change may have been made: %.110s",
                cause->text);
    for (size_t i = 0; i < s->step_count; i++) {
        struct op *op = s->steps[i].op;
        if (!s->steps[i].settled) op_refuse(op, op->changed ? &ambiguous : cause);
    }
}

static int round_of(struct pgruns *s, struct err *reterr)
{
    int r = read_or_guess(s, reterr);
    if (r) return r;
    decide(s);
    return write_changed(s, reterr);
}

/* A run that is surely new and is not undoes the whole batch: after that, none is for a while. */
static void pace_guesses(struct pgruns *s, bool taken)
{
    if (s->sure_after) {
        s->sure_after--;
    } else if (taken) {
        s->sure_pause = s->sure_pause < SURE_PAUSE_MAX ? s->sure_pause * 2 + 1 : SURE_PAUSE_MAX;
        s->sure_after = s->sure_pause;
    } else {
        s->sure_pause /= 2;
    }
}

static int first_round(struct pgruns *s, struct err *reterr)
{
    s->guessing = true;
    int r = round_of(s, reterr);
    s->guessing = false;
    pace_guesses(s, r > 0 && s->db->failed == PG_TAKEN);
    return r;
}

static void steps_make(struct pgruns *s, struct op **ops, size_t count)
{
    CHECK(count >= 1 && count <= IMAGE_OPS_MAX);
    s->step_count = count;
    for (size_t i = 0; i < count; i++) {
        s->steps[i] = (struct run_step){ .op = ops[i] };
        op_clear_answer(ops[i]);
    }
}

/* False: nothing was written because of one of the ops; the unsettled ones are to be tried one
 * by one. */
static bool exec_together(struct pgruns *s, struct op **ops, size_t count)
{
    struct err err = { 0 };
    steps_make(s, ops, count);
    int r = pgdb_begin(s->db, &err);
    if (!r) r = first_round(s, &err);
    while (r > 0 && !pgdb_late(s->db)) r = round_of(s, &err);
    if (r < 0 && s->db->failed == PG_BAD_OP && count > 1) return false;
    if (r > 0) {
        s->db->failed = PG_REFUSED;
        err_set(&err, ERR_UNAVAILABLE, "postgres: others were faster for %lld ms",
                (long long)s->db->options.timeout_ms);
    }
    if (r) refuse_unsettled(s, &err);
    return true;
}

static void exec_decided(struct pgruns *s, struct op **ops, size_t count)
{
    struct op *alone[IMAGE_OPS_MAX];
    size_t alone_count = 0;
    int64_t until_ms = pgdb_now_ms() + 2 * s->db->options.timeout_ms;
    bool together = exec_together(s, ops, count);
    for (size_t i = 0; !together && i < count; i++)
        if (!s->steps[i].settled) alone[alone_count++] = ops[i];
    struct err late;
    err_set(&late, ERR_UNAVAILABLE, "postgres: another session is in the way of this batch");
    for (size_t i = 0; i < alone_count; i++) {
        if (pgdb_now_ms() < until_ms)
            exec_together(s, &alone[i], 1);
        else
            op_refuse(alone[i], &late);
    }
    image_clear(&s->image);
}

/* ---- LEASE ---- */

enum lease_column { LEASE_NOW, LEASE_NEXT_DUE, LEASE_ROW };

static void lease_params(const struct pgruns *s, const struct run_ask *a, struct pg_params *p)
{
    p->count = 0;
    pg_param(p, PG_BYTEA, a->env);
    pg_param(p, PG_BYTEA, a->queue);
    pg_param_number(p, (int64_t)a->limit);
    pg_param_number(p, a->lease_ms);
    pg_param(p, PG_BYTEA, bytes_of(a->tokens, a->limit * sizeof a->tokens[0]));
    pg_param_number(p, s->wall_rules ? clock_now_ms(&s->wall) : -1);
}

static int lease_take_row(struct op *op, const PGresult *q, int at, struct err *reterr)
{
    struct run r;
    int64_t rev;
    op->changed = true;
    if (!run_row_decode(q, at, LEASE_ROW, &r, &rev))
        return err_set(reterr, ERR_CORRUPT, "postgres: a stored run makes no sense");
    if (r.state == RUN_FAILED) return 0; /* it has stalled too often */
    if (run_rows_add(&op->run->rows, &r))
        return err_set(reterr, ERR_NOMEM, "out of memory; its lease lapses");
    return 0;
}

/* Whatever was handed out and cannot be told is told to somebody else when its lease has lapsed. */
static void lease_take(struct op *op, const PGresult *q)
{
    struct run_ask *a = op->run;
    struct err err = { 0 };
    int rows = PQntuples(q);
    for (int at = 0; !err.code && at + 1 < rows; at++) lease_take_row(op, q, at, &err);
    if (err.code) {
        err.code = ERR_AMBIGUOUS;
        op_refuse(op, &err);
        return;
    }
    op->out.outcome = OUTCOME_OK;
    a->now_ms = pg_number(q, rows - 1, LEASE_NOW);
    bool known = !PQgetisnull(q, rows - 1, LEASE_NEXT_DUE) && a->rows.count < a->limit;
    if (known) a->next_due_ms = pg_number(q, rows - 1, LEASE_NEXT_DUE);
}

static int lease_together(struct pgruns *s, struct op **ops, size_t count, struct err *reterr)
{
    struct pg_params params[LEASES_MAX];
    struct pg_statement leases[LEASES_MAX];
    int r;
    do {
        for (size_t i = 0; i < count; i++) {
            lease_params(s, ops[i]->run, &params[i]);
            leases[i] = (struct pg_statement){ PGSQL_RUNS_LEASE, &params[i] };
        }
        r = pgdb_transact(s->db, leases, count, reterr);
    } while (r && s->db->failed == PG_AGAIN && !pgdb_late(s->db));
    for (size_t i = 0; !r && i < count; i++) {
        lease_take(ops[i], leases[i].result);
        PQclear(leases[i].result);
    }
    return r;
}

static void exec_leases(struct pgruns *s, struct op **ops, size_t count)
{
    struct err err;
    for (size_t i = 0; i < count; i++) {
        op_clear_answer(ops[i]);
        ops[i]->epoch = s->epoch;
    }
    int r = pgdb_begin(s->db, &err);
    if (!r) r = lease_together(s, ops, count, &err);
    if (!r) return;
    if (s->db->failed == PG_LOST) err.code = ERR_AMBIGUOUS;
    for (size_t i = 0; i < count; i++) {
        if (s->db->failed == PG_BAD_OP && count > 1)
            exec_leases(s, &ops[i], 1);
        else
            op_refuse(ops[i], &err);
    }
}

/* ---- LIST ---- */

enum list_column { LIST_NOW, LIST_ROW };

static void list_params(const struct run_ask *a, struct pg_params *p)
{
    static const uint8_t behind_all = 0xff;
    bool from_newest = a->before.text[0] == '\0';
    pg_param(p, PG_BYTEA, a->env);
    pg_param(p, PG_BYTEA, from_newest ? bytes_of(&behind_all, 1) : run_id_bytes(&a->before));
    pg_param(p, PG_BYTEA, a->task);
    pg_param(p, PG_BYTEA, a->queue);
    pg_param_number(p, a->states);
    pg_param(p, PG_BYTEA, a->tag);
    pg_param_number(p, (int64_t)a->limit + 1);
}

static int list_rows(struct run_ask *a, const PGresult *q, struct err *reterr)
{
    for (int at = 0; at < PQntuples(q); at++) {
        struct run r;
        int64_t rev;
        if (run_row_is_null(q, at, LIST_ROW)) break;
        a->rows.more = a->rows.count == a->limit;
        if (a->rows.more) break;
        if (!run_row_decode(q, at, LIST_ROW, &r, &rev))
            return err_set(reterr, ERR_CORRUPT, "postgres: a stored run makes no sense");
        if (run_rows_add(&a->rows, &r))
            return err_set(reterr, ERR_NOMEM, "out of memory while listing");
    }
    return 0;
}

static void exec_list(struct pgruns *s, struct op *op)
{
    struct err err;
    struct pg_params params = { .count = 0 };
    op_clear_answer(op);
    list_params(op->run, &params);
    struct pg_statement list = { PGSQL_RUNS_LIST, &params };
    int r = pgdb_begin(s->db, &err);
    if (!r) r = read_query(s, &list, &err);
    if (!r) r = list_rows(op->run, list.result, &err);
    if (!r)
        op->run->now_ms =
            s->wall_rules ? clock_now_ms(&s->wall) : pg_number(list.result, 0, LIST_NOW);
    PQclear(list.result);
    op->epoch = s->epoch;
    op->out.outcome = OUTCOME_OK;
    if (r) op_refuse(op, &err);
}

/* ---- exec ---- */

static size_t bytes_of_op(const struct op *op)
{
    const struct run_ask *a = op->run;
    return a->changes.len + a->change.body.len + (a->run ? a->run->payload.len : 0);
}

/* How many of them go into one transaction. */
static size_t chunk_of(struct op **ops, size_t count)
{
    size_t len = 0, bytes = 0;
    for (; len < count && len < IMAGE_OPS_MAX; len++) {
        if (!run_decides(ops[len]->verb)) break;
        bytes += bytes_of_op(ops[len]);
        if (len && bytes > CHUNK_BYTES) break;
    }
    return len;
}

static size_t leases_of(struct op **ops, size_t count)
{
    size_t len = 0;
    while (len < count && len < LEASES_MAX && ops[len]->verb == VERB_RUN_LEASE) len++;
    return len;
}

void pgruns_exec(struct pgruns *s, struct op **ops, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t decided = chunk_of(ops + i, count - i), leases = leases_of(ops + i, count - i);
        if (decided)
            exec_decided(s, ops + i, decided);
        else if (leases)
            exec_leases(s, ops + i, leases);
        else
            exec_list(s, ops[i]);
        i += decided + leases ? decided + leases : 1;
    }
}
