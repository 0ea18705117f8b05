/* marker.h - the marker of a mutation, on the caller's own connection and in its own transaction.
 *
 * A class for each kind of database: its transaction, its marker, and what came of a COMMIT whose answer
 * was lost. Nothing is kept between calls, neither here nor in the session, so that a pooler may hand
 * the connection to somebody else between two transactions. Calls block, for as long as the caller's
 * connection lets them.
 *
 * An outcome is not an error: CLAIMED, ALREADY_DONE, MISMATCH and IN_PROGRESS come back with 0. After
 * anything but CLAIMED the transaction can only be rolled back. */
#ifndef STORE_MARKER_H
#define STORE_MARKER_H

#include "core/mutation.h"
#include "core/outcome.h"

struct pg_conn;
struct sqlite3;
struct sqlite3_stmt;

/* One of the two connections is set. */
struct marker_db {
    struct pg_conn *pg;
    struct sqlite3 *sqlite;
    struct sqlite3_stmt *undo; /* by prepare(): a ROLLBACK that needs no memory any more */
};

enum { MARKER_ATTEMPT_BYTES = 16, MARKER_TRANSACTION_BYTES = 20 };

struct marker {
    struct mutation mutation;
    int64_t lock_ms; /* how long an undecided one is waited for */
    uint8_t attempt
        [MARKER_ATTEMPT_BYTES]; /* random: whose marker it is; a class may put into it what
                                            * its database has no name for */
};

struct marker_found {
    enum outcome outcome;
    /* ALREADY_DONE: the outcome in the marker; NULL: there is none. The caller's. */
    struct blob *kept;
    int64_t ttl_ms; /* CLAIMED: how long the marker counts */
    /* CLAIMED: of the database; "": what is committed may be taken back by a crash */
    char epoch[MUTATION_EPOCH_BYTES_MAX + 1];
    char transaction[MARKER_TRANSACTION_BYTES + 1]; /* CLAIMED: its name, if it has one */
    bool not_flushed; /* by leave(): it is so by now, or nobody knows */
    bool astray;      /* by leave(): this is another transaction than that of the marker */
    bool reopened;    /* by look(): what was set in the session is lost */
};

struct marker_class {
    const char *name;
    /* Around a transaction that is ours to end; NULL: there is nothing to prepare. */
    int (*prepare)(struct marker_db *db, struct err *reterr);
    void (*release)(struct marker_db *db);
    /* Is a transaction open that can still do something? */
    bool (*is_open)(struct marker_db db);
    /* It is rolled back, or can only be. */
    bool (*has_failed)(struct marker_db db);
    /* A transaction, and the marker in it; `bare`: without one. IN_PROGRESS may also be the database,
     * which has another one. After anything but CLAIMED there is no transaction, but for one that was
     * open before: that is an error, and it stays as it is. */
    int (*enter)(struct marker_db db, struct marker *m, bool bare, struct marker_found *ret,
                 struct err *reterr);
    /* The outcome into the marker (NULL: what is there stays), and COMMIT: never of a transaction without
     * the marker, unless it is `bare`. 0: committed. ERR_AMBIGUOUS: nobody knows. Any other error: nothing
     * is committed here. `found` is what CLAIMED came with. */
    int (*leave)(struct marker_db db, struct marker *m, bool bare, const struct bytes *outcome,
                 struct marker_found *found, struct err *reterr);
    void (*rollback)(struct marker_db db);
    /* The marker alone, in a transaction of the caller's own. */
    int (*begin)(struct marker_db db, struct marker *m, struct marker_found *ret,
                 struct err *reterr);
    /* What duplicates are told: only by the transaction that has begun it. */
    int (*finish)(struct marker_db db, struct marker *m, struct bytes outcome,
                  struct err *reterr);
    /* `ret` holds MUTATION_EPOCH_BYTES_MAX + 1 bytes. */
    int (*epoch)(struct marker_db db, char *ret, struct err *reterr);
    /* After an ambiguous COMMIT, on a connection that is opened again if need be: OK: it counted;
     * ABSENT: it did not; ALREADY_DONE, MISMATCH: it did not, somebody else's did; IN_PROGRESS: still
     * undecided. `ret` is what CLAIMED came with. ERR_UNSUPPORTED: other markers are met there than those
     * that were written to, which say nothing. */
    int (*look)(struct marker_db db, const struct marker *m, struct marker_found *ret,
                struct err *reterr);
};

extern const struct marker_class marker_postgres, marker_sqlite;

/* What a marker says to who asks with this mutation, and did not write it. */
enum outcome marker_judge(const struct mutation *asked, struct bytes method,
                          struct bytes fingerprint);

#endif
