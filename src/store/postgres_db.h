/* postgres_db.h - one connection to one PostgreSQL database; private to the postgres store.
 *
 * Guarantees: every call is bounded in time (options.timeout_ms, for a connection attempt about
 * as much again), also when the server is stopped in the middle; a lost connection is opened
 * again by the next call, with a pause that grows while that fails; nothing of ours lives in
 * the session, so that a pooler may hand it to somebody else between two transactions. What
 * failed is told apart by `failed`: whoever wrote must know whether it can have happened.
 * One thread at a time. */
#ifndef STORE_POSTGRES_DB_H
#define STORE_POSTGRES_DB_H

#include "store/store.h"

#include <libpq-fe.h>

/* '@' stands for the schema, '%' for that of markers. */
#define PGSQL_LIST(X)                                                                          \
    X(PGSQL_BEGIN, "BEGIN ISOLATION LEVEL READ COMMITTED")                                     \
    X(PGSQL_SETTINGS,                                                                          \
      "SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true)" \
      ", set_config('idle_in_transaction_session_timeout', $1, true)"                          \
      ", set_config('synchronous_commit', replace(current_setting('synchronous_commit'),"      \
      " 'off', 'on'), true)")                                                                  \
    X(PGSQL_COMMIT, "COMMIT")                                                                  \
    X(PGSQL_LIMITS, "SELECT set_config('statement_timeout', $1, true), "                       \
                    "set_config('lock_timeout', $2, true)")                                    \
    X(PGSQL_VERSION, "SELECT max(version) FROM @.versions")                                    \
    X(PGSQL_READ, "SELECT * FROM @.claims_read($1)")                                           \
    X(PGSQL_WRITE, "SELECT * FROM @.claims_write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,"     \
                   " $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)")             \
    X(PGSQL_SWEEP, "SELECT * FROM @.ledger_sweep($1, $2, $3)")                                 \
    X(PGSQL_SCAN, "SELECT " PGSQL_ROW " FROM @.claims WHERE key > $1 AND key < $2"             \
                  " AND state <> 0 AND gone_at_ms > $3 ORDER BY key LIMIT $4")                 \
    X(PGSQL_SCAN_ALL, "SELECT " PGSQL_ROW " FROM @.claims WHERE key > $1"                      \
                      " AND state <> 0 AND gone_at_ms > $2 ORDER BY key LIMIT $3")             \
    X(PGSQL_FACTS,                                                                             \
      "SELECT current_setting('server_version'), current_setting('fsync'),"                    \
      " current_setting('synchronous_commit'), current_setting('full_page_writes'),"           \
      " (SELECT count(*)::text FROM pg_stat_activity), current_setting('max_connections'),"    \
      " (SELECT max(version)::text FROM @.versions)")                                          \
    X(PGSQL_STATS,                                                                             \
      "SELECT count(*) FILTER (WHERE state = 1 AND lease_until_ms > $1 AND gone_at_ms > $1),"  \
      " count(*) FILTER (WHERE state = 1 AND lease_until_ms <= $1 AND gone_at_ms > $1),"       \
      " count(*) FILTER (WHERE state = 2 AND gone_at_ms > $1),"                                \
      " count(*) FILTER (WHERE state <> 0 AND gone_at_ms <= $1),"                              \
      " pg_total_relation_size('@.claims') FROM @.claims")                                     \
    X(PGSQL_MARKERS,                                                                           \
      "SELECT substring(obj_description(to_regclass('%.once_mutations'), 'pg_class')"          \
      " FROM 'version ([0-9]+)')::bigint, (SELECT count(*) FROM pg_inherits"                   \
      " WHERE inhparent = to_regclass('%.once_mutations'))")                                   \
    X(PGSQL_MARKERS_SWEEP, "SELECT %.once_mutation_sweep($1::integer)")                        \
    X(PGSQL_MARKERS_LOOK, "SELECT floor(extract(epoch FROM %.once_mutation_ttl()) * 1000)"     \
                          "::bigint, ceil(%.once_mutation_oldest() * 1000)::bigint")           \
    X(PGSQL_RUNS_READ, "SELECT * FROM @.runs_read($1, $2, $3, $4)")                            \
    X(PGSQL_RUNS_INSERT,                                                                       \
      "SELECT * FROM @.runs_insert($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,"    \
      " $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30,"  \
      " $31, $32, $33, $34, $35, $36)")                                                        \
    X(PGSQL_RUNS_UPDATE,                                                                       \
      "SELECT * FROM @.runs_update($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,"    \
      " $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)")                     \
    X(PGSQL_RUNS_ALIAS, "SELECT @.runs_alias($1, $2, $3, $4, $5, $6)")                         \
    X(PGSQL_RUNS_LEASE, "SELECT * FROM @.runs_lease($1, $2, $3, $4, $5, $6)")                  \
    X(PGSQL_RUNS_LIST,                                                                         \
      "SELECT moment.now_ms, r.* FROM (SELECT @.clock_ms() AS now_ms) AS moment"               \
      " LEFT JOIN LATERAL (SELECT s.* FROM (SELECT p.*, sum(" PGSQL_RUN_BYTES ")"              \
      " OVER (ORDER BY id DESC) - (" PGSQL_RUN_BYTES ") AS before"                             \
      " FROM (SELECT * FROM @.runs WHERE env = $1 AND id < $2"                                 \
      " AND canonical_id IS NULL AND ($3 = ''::bytea OR task = $3)"                            \
      " AND ($4 = ''::bytea OR queue = $4) AND ($5 = 0 OR 1::bigint << state & $5 <> 0)"       \
      " AND ($6 = ''::bytea OR @.run_has_tag(tags, $6)) ORDER BY id DESC LIMIT $7) AS p)"      \
      " AS s WHERE before < $8) AS r ON true ORDER BY r.id DESC")

/* As run_rows_add() counts them; of what is stored aside only the pointer is looked at. */
#define PGSQL_RUN_BYTES "length(payload) + length(metadata) + length(output) + length(error)"

/* The columns of claims_read() from its fifth on, with the length for the value. */
#define PGSQL_ROW                                                                              \
    "ctid, rev, sweep_at_ms, state, token, fence, claimed_at_ms, lease_ms, lease_until_ms,"    \
    " retain_ms, done_at_ms, fingerprint, length(value)::bigint, key"

#define PGSQL_ENUM(id, text) id,
enum pgsql { PGSQL_LIST(PGSQL_ENUM) PGSQLS };
#undef PGSQL_ENUM

/* Of the server's types, as pg_type.dat has them: they never change. */
enum pg_type {
    PG_BOOL = 16,
    PG_BYTEA = 17,
    PG_INT8 = 20,
    PG_INT2 = 21,
    PG_TEXT = 25,
    PG_TID = 27,
    PG_BYTEA_ARRAY = 1001,
    PG_INT2_ARRAY = 1005,
    PG_TID_ARRAY = 1010,
    PG_INT8_ARRAY = 1016,
};

struct postgres_options {
    char *conninfo; /* for libpq: the connection string without our own parameters */
    char *schema;   /* lower-case letters, digits and _ */
    char *markers;  /* the schema of markers, the same */
    int64_t connections, timeout_ms;
    bool migrate; /* bring the schema up to date when it is opened */
};

/* The part of a URL behind "postgres:". The caller clears it, also after an error. */
int postgres_options_parse(const char *rest, struct postgres_options *ret_options,
                           struct err *reterr);
void postgres_options_clear(struct postgres_options *o);

/* What went wrong, for those who must know whether a change can have been made. */
enum pg_failure {
    PG_FINE,
    PG_REFUSED, /* the server said no, nothing was changed */
    PG_AGAIN,   /* as above, because of somebody else's transaction: try again at once */
    PG_BAD_OP,  /* as above; one of the ops may be to blame */
    PG_TAKEN,   /* as above: a key that should be new is not */
    PG_LOST,    /* no answer; the connection is gone, what was sent may have been done */
};

enum { PG_NAME_BYTES = 24 };

struct pgdb {
    struct postgres_options options;
    PQconninfoOption *info;
    char *sql[PGSQLS];
    char names[PGSQLS][PG_NAME_BYTES]; /* of prepared statements: a hash of their text */
    PGconn *conn;                      /* NULL: not connected */
    unsigned uses[PGSQLS];             /* by this connection */
    bool prepared[PGSQLS];
    bool unnamed; /* behind a pooler: what we prepare may be in somebody else's session */
    enum pg_failure failed;
    bool missing;        /* because there is no such table, or schema */
    bool held_up;        /* because somebody was in the way for too long */
    int64_t until_ms;    /* monotonic: no new round of the work at hand after this */
    int64_t deadline_ms; /* monotonic, of the round trip at hand */

    struct rng_seeded jitter; /* its own: the shell's is used on another thread */
    unsigned refusals;        /* connection attempts that failed in a row */
    uint64_t connects;        /* those that did not, so far */
    int64_t retry_at_ms;      /* monotonic; before that the last refusal is repeated */
    struct err refusal;
};

/* Binary parameters of a statement. Views are not copied. */
enum { PG_PARAMS_MAX = 36 };
struct pg_params {
    int count;
    Oid types[PG_PARAMS_MAX];
    const char *values[PG_PARAMS_MAX];
    int lengths[PG_PARAMS_MAX];
    int formats[PG_PARAMS_MAX];
    uint8_t numbers[PG_PARAMS_MAX][8];
};

void pg_param(struct pg_params *p, enum pg_type type, struct bytes value);
void pg_param_number(struct pg_params *p, int64_t number);

struct pg_statement {
    enum pgsql sql;
    const struct pg_params *params; /* NULL: none */
    PGresult *result;               /* the caller clears it */
};

/* Wants options set. To init is to open without connecting: the next call does. */
int pgdb_init(struct pgdb *db, struct rng *rng, struct err *reterr);
int pgdb_open(struct pgdb *db, struct rng *rng, struct err *reterr);
void pgdb_close(struct pgdb *db); /* takes half-built ones */

/* Connects if need be; the work that follows is late timeout_ms from here. Each round trip has
 * as much: one that writes is not cut short because others took long. */
int pgdb_begin(struct pgdb *db, struct err *reterr);
bool pgdb_late(const struct pgdb *db);
enum { PG_ROUNDS_MIN = 3 }; /* before it is: one slow round is not a race that was lost */
int64_t pgdb_now_ms(void);  /* monotonic */

/* One statement that changes nothing, one transaction, one round trip, with time-outs: what nobody waits
 * for any more does not stay behind in the server. */
int pgdb_query(struct pgdb *db, struct pg_statement *statement, struct err *reterr);
/* The same; a connection that turns out to be stale costs one more try. */
int pgdb_read(struct pgdb *db, struct pg_statement *statement, struct err *reterr);

/* Several statements in one transaction, one round trip, with time-outs, committed durably. */
int pgdb_transact(struct pgdb *db, struct pg_statement *statements, size_t count,
                  struct err *reterr);

/* Text without parameters that may hold many statements. */
int pgdb_script(struct pgdb *db, const char *sql, struct err *reterr);

/* Columns of a binary result; 0 and empty where it is NULL. */
int64_t pg_number(const PGresult *r, int row, int column);
struct bytes pg_bytes(const PGresult *r, int row, int column);

enum { CHUNK_BYTES = 8 << 20 }; /* of values in one transaction */

void op_refuse(struct op *op, const struct err *err);

/* Answers a PING that wants to know what the server says of itself. */
int postgres_facts(struct pgdb *db, struct op *op, struct err *reterr);

/* ---- schema ---- */

/* Checks the version of the schema and brings it up to date where it may. */
int postgres_schema_settle(struct pgdb *db, struct err *reterr);
int postgres_migrate(const char *rest, const struct store_env *env, bool print, store_say *say,
                     void *ctx, struct err *reterr);

/* ---- markers ---- */

/* MARKERS_SWEEP: looks at them, and deletes some that have expired. */
int postgres_markers_sweep(struct pgdb *db, struct op *op, struct err *reterr);
int postgres_migrate_markers(const char *rest, const struct store_env *env,
                             const struct marker_settings *settings, store_say *say, void *ctx,
                             struct err *reterr);

#endif
