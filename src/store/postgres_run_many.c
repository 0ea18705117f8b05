/* postgres_run_many.c - ops about many runs: LEASE and LIST.
 *
 * Several LEASEs are one transaction, each sees what the one before it took. Whatever was handed out
 * and could not be told to anybody is handed out again when its lease has lapsed. */
#include "store/postgres_runs.h"

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

void pgruns_lease(struct pgruns *s, struct op **ops, size_t count)
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
            pgruns_lease(s, &ops[i], 1);
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
    pg_param_number(p, RUN_ROWS_BYTES_MAX);
}

static int list_rows(struct run_ask *a, const PGresult *q, struct err *reterr)
{
    for (int at = 0; at < PQntuples(q); at++) {
        struct run r;
        int64_t rev;
        if (run_row_is_null(q, at, LIST_ROW)) break;
        a->rows.more = a->rows.count == a->limit;
        if (a->rows.more) return 0;
        if (!run_row_decode(q, at, LIST_ROW, &r, &rev))
            return err_set(reterr, ERR_CORRUPT, "postgres: a stored run makes no sense");
        if (run_rows_add(&a->rows, &r))
            return err_set(reterr, ERR_NOMEM, "out of memory while listing");
    }
    a->rows.more = a->rows.bytes >= RUN_ROWS_BYTES_MAX;
    return 0;
}

void pgruns_list(struct pgruns *s, struct op *op)
{
    struct err err;
    struct pg_params params = { .count = 0 };
    op_clear_answer(op);
    list_params(op->run, &params);
    struct pg_statement list = { PGSQL_RUNS_LIST, &params };
    int r = pgdb_begin(s->db, &err);
    if (!r) r = pgdb_read(s->db, &list, &err);
    if (!r) r = list_rows(op->run, list.result, &err);
    if (!r)
        op->run->now_ms =
            s->wall_rules ? clock_now_ms(&s->wall) : pg_number(list.result, 0, LIST_NOW);
    PQclear(list.result);
    op->epoch = s->epoch;
    op->out.outcome = OUTCOME_OK;
    if (r) op_refuse(op, &err);
}
