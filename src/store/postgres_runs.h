/* postgres_runs.h - the ledger of runs in a PostgreSQL database; private to the postgres store. */
#ifndef STORE_POSTGRES_RUNS_H
#define STORE_POSTGRES_RUNS_H

#include "store/postgres_decide.h"
#include "store/postgres_guess.h"
#include "store/postgres_run_rows.h"

enum { RUN_ASKS_MAX = 2 * IMAGE_OPS_MAX, RUN_ASK_COLUMNS = 4, ALIAS_COLUMNS = 5 };

struct pgruns {
    struct pgdb *db;
    struct clock wall, monotonic;
    bool wall_rules;
    struct run_moment at; /* of the decisions that are being made */
    uint64_t epoch;       /* as last read */
    struct guess guess;   /* about PUTs of new runs with new keys */
    bool guessing;        /* in the first round */

    struct image image;
    struct run_scratch scratch;
    size_t step_count;
    struct run_step steps[IMAGE_OPS_MAX];

    struct pg_array asks[RUN_ASK_COLUMNS];
    size_t ask_count;
    struct run_step *asked_by[RUN_ASKS_MAX];
    struct run_columns inserts, updates;
    struct pg_array aliases[ALIAS_COLUMNS];
};

int pgruns_init(struct pgruns *s, struct pgdb *db, const struct store_env *env);
void pgruns_fini(struct pgruns *s); /* takes what was zeroed and never inited */

/* Ops with verbs of runs, as if in order. */
void pgruns_exec(struct pgruns *s, struct op **ops, size_t count);

/* ---- its parts ---- */

/* What the image says has changed. 0: all are answered; 1: some have to be read again; negative:
 * error. */
int pgruns_write(struct pgruns *s, struct err *reterr);

enum { LEASES_MAX = 16 }; /* in one transaction */

void pgruns_lease(struct pgruns *s, struct op **ops, size_t count); /* up to LEASES_MAX */
void pgruns_list(struct pgruns *s, struct op *op);

#endif
