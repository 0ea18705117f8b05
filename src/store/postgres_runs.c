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

/* ---- time ---- */

static void set_moment(struct pgruns *s, int64_t now_ms)
{
    s->at.now_ms = s->wall_rules ? clock_now_ms(&s->wall) : now_ms;
    s->at.monotonic_ms = clock_now_ms(&s->monotonic);
}

static bool reckon_moment(struct pgruns *s)
{
    int64_t now_ms;
    if (!guess_now_ms(&s->guess, s->wall_rules, &now_ms)) return false;
    set_moment(s, now_ms);
    return true;
}

/* ---- read ---- */

enum read_column { READ_NOW, READ_EPOCH, READ_N, READ_ALIAS_CHANGES, READ_PLACE, READ_ROW };

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

static bool is_same(const struct op *a, const struct op *b)
{
    const struct run_ask *x = a->run, *y = b->run;
    if (a->verb != VERB_RUN_GET || b->verb != VERB_RUN_GET) return false;
    return bytes_eq(x->env, y->env) && run_id_eq(&x->id, &y->id) &&
           bytes_eq(x->task, y->task) && bytes_eq(x->key, y->key);
}

/* A crowd that looks for one run is one question. */
static bool was_asked(struct run_step *step, const struct run_step *before)
{
    if (!before || !is_same(before->op, step->op)) return false;
    step->same = before->same ? before->same : before;
    return true;
}

static void ask_for(struct pgruns *s, struct run_step *step, const struct run_step *before)
{
    struct run_ask about = *step->op->run;
    if (step->op->verb == VERB_RUN_PUT) {
        ask_for_put(s, step);
        return;
    }
    if (was_asked(step, before)) return;
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
    if (step->op->verb != VERB_RUN_PUT || !guess_new(&s->guess)) return false;
    struct run_moment at = { .monotonic_ms = clock_now_ms(&s->monotonic) };
    return !run_put_is_late(step->op->run, at);
}

static void asks_collect(struct pgruns *s)
{
    const struct run_step *before = NULL; /* of those that are asked for */
    s->ask_count = 0;
    for (size_t i = 0; i < RUN_ASK_COLUMNS; i++) pg_array_clear(&s->asks[i]);
    for (size_t i = 0; i < s->step_count; i++) {
        struct run_step *step = &s->steps[i];
        if (step->settled) continue;
        step->bad.code = 0;
        step->same = NULL;
        step->guessed = s->guessing && may_guess(s, step);
        if (step->guessed) continue;
        ask_for(s, step, before);
        before = step;
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
    guess_anchor(&s->guess, pg_number(q, 0, READ_NOW));
    set_moment(s, s->guess.read_ms);
    for (int at = 1; at < PQntuples(q); at++) {
        int r = take_row(s, q, at, reterr);
        if (r) return r;
    }
    return 0;
}

/* What was asked for; without questions only the moment. */
static int read_asked(struct pgruns *s, struct err *reterr)
{
    int r = asks_failed(s);
    if (r) return err_set(reterr, r, "out of memory asking postgres:");
    struct pg_params params = { .count = 0 };
    for (size_t i = 0; i < RUN_ASK_COLUMNS; i++) pg_param_array(&params, &s->asks[i]);
    struct pg_statement read = { PGSQL_RUNS_READ, &params };
    r = pgdb_read(s->db, &read, reterr);
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

static void decide(struct pgruns *s)
{
    for (size_t i = 0; i < s->step_count; i++) {
        struct run_step *step = &s->steps[i];
        if (step->settled) continue;
        if (step->same) step->bad = step->same->bad;
        run_decide(step, &s->image, &s->scratch, s->at);
        step->op->epoch = s->epoch;
        if (step->op->verb == VERB_RUN_PUT && !step->guessed)
            guess_note(&s->guess, step->op->run->put == PUT_INSERT);
    }
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
    return pgruns_write(s, reterr);
}

static int first_round(struct pgruns *s, struct err *reterr)
{
    s->guessing = true;
    int r = round_of(s, reterr);
    s->guessing = false;
    guess_pace(&s->guess, r > 0 && s->db->failed == PG_TAKEN);
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
    for (int n = 1; r > 0 && (n < PG_ROUNDS_MIN || !pgdb_late(s->db)); n++)
        r = round_of(s, &err);
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
            pgruns_lease(s, ops + i, leases);
        else
            pgruns_list(s, ops[i]);
        i += decided + leases ? decided + leases : 1;
    }
}
