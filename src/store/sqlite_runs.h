/* sqlite_runs.h - the verbs of runs, each inside a transaction of sqlite.c; private to the sqlite
 * store. */
#ifndef STORE_SQLITE_RUNS_H
#define STORE_SQLITE_RUNS_H

#include "store/sqlite_db.h"

run_verb sqlite_run_put, sqlite_run_get, sqlite_run_change, sqlite_run_reset, sqlite_run_lease,
    sqlite_run_list;

/* A PUT that would have to be committed by now, or would be too late. */
bool sqlite_run_is_late(const struct sqlite *s, const struct op *op);

/* The part of EXPIRE that is about runs: adds to the count of the op, up to its limit. */
run_verb sqlite_runs_expire;

#endif
