/* sqlite_run_rows.h - runs as rows of a SQLite file: one found, one written; private to the sqlite
 * store. Each inside a transaction. */
#ifndef STORE_SQLITE_RUN_ROWS_H
#define STORE_SQLITE_RUN_ROWS_H

#include "store/sqlite_db.h"

/* The columns of SQL_RUN; views that are valid until the statement is stepped or reset. */
int sqlite_run_row_decode(sqlite3_stmt *q, struct run *ret_run, struct err *reterr);

/* A run as read, a copy; freed by run_found_fini(). */
struct run_found {
    struct run *run; /* NULL: none */
    int64_t row;
    bool by_alias;
    uint64_t merged; /* by_alias: so many of its changes are in the run */
};

void run_found_fini(struct run_found *f);

/* By its id, or by that of an alias; who has a key, whether or not by right; what is due first in a
 * queue. 1: found, 0: there is none, negative: error. */
int sqlite_run_find(struct sqlite *s, struct bytes env, const struct run_id *id,
                    struct run_found *ret_found, struct err *reterr);
int sqlite_run_find_by_key(struct sqlite *s, struct bytes env, struct bytes task,
                           struct bytes key, struct run_found *ret_found, struct err *reterr);
int sqlite_run_find_due(struct sqlite *s, const struct run_ask *a, struct run_found *ret_found,
                        struct err *reterr);

/* The run, and who is the head of its line then. */
int sqlite_run_insert(struct sqlite *s, const struct run *r, struct err *reterr);
int sqlite_run_update(struct sqlite *s, const struct run_found *was, const struct run *next,
                      struct err *reterr);

#endif
