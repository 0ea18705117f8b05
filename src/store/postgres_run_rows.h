/* postgres_run_rows.h - runs as rows of the server; private to the postgres store. */
#ifndef STORE_POSTGRES_RUN_ROWS_H
#define STORE_POSTGRES_RUN_ROWS_H

#include "store/postgres_image.h"

/* The columns of the table, in its order, from `column` on; views of the result. The due and the
 * gone time are not looked at: they follow. False: it makes no sense. */
bool run_row_decode(const PGresult *result, int row, int column, struct run *ret_run,
                    int64_t *ret_rev);
bool run_row_is_null(const PGresult *result, int row, int column);

/* One array per column: as runs_update() takes them, then what only runs_insert() takes. */
enum run_column {
    RUN_COL_ENV,
    RUN_COL_ID,
    RUN_COL_PLACE,
    RUN_COL_REV,
    RUN_COL_KEY_HELD,
    RUN_COL_STATE,
    RUN_COL_METADATA_VERSION,
    RUN_COL_DELAY_UNTIL,
    RUN_COL_AVAILABLE_AT,
    RUN_COL_STARTED_AT,
    RUN_COL_FINISHED_AT,
    RUN_COL_ATTEMPTS,
    RUN_COL_STALLS,
    RUN_COL_FENCE,
    RUN_COL_LEASE,
    RUN_COL_LEASE_UNTIL,
    RUN_COL_CHANGES,
    RUN_COL_DUE_AT,
    RUN_COL_GONE_AT,
    RUN_COL_TOKEN,
    RUN_COL_TAGS,
    RUN_COL_METADATA,
    RUN_COL_OUTPUT,
    RUN_COL_ERROR,
    RUN_COLS_UPDATE,
    RUN_COL_KEY_UNTIL = RUN_COLS_UPDATE,
    RUN_COL_CREATED_AT,
    RUN_COL_ATTEMPTS_MAX,
    RUN_COL_TASK,
    RUN_COL_QUEUE,
    RUN_COL_KEY,
    RUN_COL_ORDERING_KEY,
    RUN_COL_FINGERPRINT,
    RUN_COL_PAYLOAD,
    RUN_COLS_INSERT,
};

struct run_columns {
    struct pg_array columns[RUN_COLS_INSERT];
    bool told[RUN_COLS_INSERT]; /* something in it is not what a new row has anyway */
    size_t count;
    struct image_row *rows[IMAGE_ROWS_MAX]; /* in the order of the elements */
};

void run_columns_init(struct run_columns *c);
void run_columns_fini(struct run_columns *c);
void run_columns_clear(struct run_columns *c);
void run_columns_add_update(struct run_columns *c, struct image_row *row);
void run_columns_add_insert(struct run_columns *c, struct image_row *row);
int run_columns_failed(const struct run_columns *c);
void run_columns_params_update(struct run_columns *c, struct pg_params *p);
void run_columns_params_insert(struct run_columns *c, struct pg_params *p);

#endif
