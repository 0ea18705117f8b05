/* postgres_run_write.c - what a batch has changed of runs, as one transaction; see postgres_runs.c
 * for what it guarantees. Rows are sorted, so that everybody takes locks in the same order. */
#include "store/postgres_runs.h"

#include "base/check.h"

#include <stdlib.h>

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
    run_columns_params_update(&s->updates, p);
}

static void insert_params(struct pgruns *s, struct pg_params *p)
{
    bool surely = s->guessing && guess_surely(&s->guess);
    moment_params(s, p);
    pg_param(p, PG_BOOL, bytes_of(surely ? "\1" : "\0", 1));
    run_columns_params_insert(&s->inserts, p);
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
        if (step->guessed)
            guess_note(&s->guess, step->settled && step->op->run->put == PUT_INSERT);
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

int pgruns_write(struct pgruns *s, struct err *reterr)
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
