/* postgres_rows.h - the keys of a batch, as they were read and as they will be written; private
 * to the postgres store.
 *
 * A slot is one key. It is read, then the ops on it are decided in order, each on what the one
 * before it left; what comes out is written if the row is still as it was read. */
#ifndef STORE_POSTGRES_ROWS_H
#define STORE_POSTGRES_ROWS_H

#include "store/postgres_array.h"

enum { BATCH_MAX = 1024 };

struct slot {
    struct key key; /* views into the first of its ops */
    struct bytes frame;
    enum verb first;
    bool settled;   /* its ops have their answers */
    bool guessed;   /* what follows was not read */
    bool changed;   /* by an op of this round: has to be written */
    struct err bad; /* the row makes no sense */

    /* the row as read */
    bool stored;
    struct place place;
    int64_t rev, sweep_at_ms; /* sweep_at_ms: as written, once it is */
    uint64_t stored_fence;
    struct blob *value;
    uint8_t fingerprint[FINGERPRINT_BYTES_MAX];

    /* what it is now */
    bool present;         /* false: absent, or dropped */
    struct record record; /* views into the slot or its ops */
    uint64_t used_fence;  /* the highest one that this key has had */
};

const struct record *slot_record(const struct slot *s); /* NULL: there is none */
uint64_t slot_fence(const struct slot *s);              /* as it is written */
void slot_apply(struct slot *s, const struct verdict *v);
void slot_forget(struct slot *s); /* what was read: before it is read again, and at the end */

/* One array per column, in the server's binary form. */
enum rows_column {
    ROWS_KEY,
    ROWS_PLACE,
    ROWS_SEEN_REV,
    ROWS_SEEN_FENCE,
    ROWS_STATE,
    ROWS_TOKEN,
    ROWS_FENCE,
    ROWS_CLAIMED_AT,
    ROWS_LEASE,
    ROWS_LEASE_UNTIL,
    ROWS_RETAIN,
    ROWS_DONE_AT,
    ROWS_GONE_AT,
    ROWS_SWEEP_AT,
    ROWS_FINGERPRINT,
    ROWS_VALUE,
    ROWS_COLUMNS
};

struct rows {
    struct pg_array columns[ROWS_COLUMNS];
    size_t count;
    struct slot *slots[BATCH_MAX]; /* in the order of the rows */
};

void rows_init(struct rows *r);
void rows_fini(struct rows *r);
void rows_clear(struct rows *r);
void rows_add_key(struct rows *r, struct slot *s);
void rows_add(struct rows *r, struct slot *s, int64_t now_ms); /* key and new content */
int rows_failed(const struct rows *r);

/* Completes the arrays and adds the first `columns` of them to the parameters. */
void rows_params(struct rows *r, size_t columns, struct pg_params *p);

/* Columns of PGSQL_READ; those from READ_ROW on are of PGSQL_SCAN, too. */
enum read_column {
    READ_NOW,
    READ_EPOCH,
    READ_FLOOR,
    READ_N,
    READ_ROW,
};

/* Fills a slot from a row whose record begins at `column`. False: it makes no sense, and
 * slot->bad says why. NOMEM counts as such. */
bool slot_decode(struct slot *s, const PGresult *result, int row, int column);

/* As it is stored: scope, a space, name. A space is below everything that a scope may hold, so
 * keys are in the order of scope and name. `out` holds KEY_FRAME_BYTES_MAX. */
struct bytes key_column(const struct key *key, uint8_t *out);

/* A row of PGSQL_SCAN into op->scan. */
int scan_decode(struct op *op, const PGresult *result, int row, int64_t now_ms,
                struct err *reterr);

#endif
