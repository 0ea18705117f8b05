/* postgres_db.c - see postgres_db.h. */
#include "store/postgres_db.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/map.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    INFO_MAX = 96, /* options of libpq and ours: it has about 40 */
    SQL_BYTES_MAX = 2048,
    PREPARE_AT = 4, /* uses: a command that asks once or twice does not pay */
};

/* Between connection attempts: a server that is back is found within a second. */
static const struct pauses pauses = { .first_ms = 50, .most_ms = 1000 };

static const char *const sql_text[PGSQLS] = {
#define PGSQL_TEXT(id, text) [id] = text,
    PGSQL_LIST(PGSQL_TEXT)
#undef PGSQL_TEXT
};

int64_t pgdb_now_ms(void)
{
    struct clock clock = clock_monotonic();
    return clock_now_ms(&clock);
}

/* ---- errors ---- */

/* By the beginning of the SQLSTATE, the longer first. */
static const struct {
    const char *state;
    enum pg_failure failed;
    int code;
} meanings[] = {
    { "26000", PG_AGAIN, ERR_UNAVAILABLE }, /* the prepared statement is in another session */
    { "40003", PG_LOST, ERR_UNAVAILABLE },  /* whether it was committed is not known */
    { "40", PG_AGAIN, ERR_UNAVAILABLE },    /* serialization failure, deadlock */
    /* No table, no schema, no permission: a restore, another database behind the pooler. That says
     * nothing of what is asked for; but it may be what a trigger of somebody's needs for some rows. */
    { "42", PG_BAD_OP, ERR_UNAVAILABLE },
    { "3F", PG_BAD_OP, ERR_UNAVAILABLE },
    { "23505", PG_TAKEN, ERR_UNAVAILABLE },
    { "22", PG_BAD_OP, ERR_CORRUPT }, /* data, */
    { "23", PG_BAD_OP, ERR_CORRUPT }, /* or a constraint that is not ours */
    { "P0", PG_BAD_OP, ERR_CORRUPT }, /* or a trigger */
    { "54", PG_BAD_OP, ERR_LIMIT },
    { "55P03", PG_BAD_OP, ERR_UNAVAILABLE }, /* somebody holds a lock on one of the rows */
    { "57014", PG_BAD_OP, ERR_UNAVAILABLE }, /* statement time-out */
    { "08", PG_LOST, ERR_UNAVAILABLE },
    { "", PG_REFUSED, ERR_UNAVAILABLE }, /* full, read-only, shutting down, ... */
};

static void disconnect(struct pgdb *db)
{
    PQfinish(db->conn);
    db->conn = NULL;
}

/* libpq's messages end with a line feed and may have several lines. */
static int set_text(struct err *reterr, int code, const char *text)
{
    struct err err = { .code = code };
    size_t len = strlen(text);
    while (len && text[len - 1] == '\n') len--;
    snprintf(err.text, sizeof err.text, "postgres: %.*s", (int)(len < 170 ? len : 170), text);
    for (char *at = err.text; *at; at++)
        if (*at == '\n' || *at == '\t') *at = ' ';
    *reterr = err;
    return code;
}

static int lost(struct pgdb *db, const char *why, struct err *reterr)
{
    int r = set_text(reterr, ERR_UNAVAILABLE, why && *why ? why : "the connection was lost");
    db->failed = PG_LOST;
    disconnect(db);
    return r;
}

static int refused(struct pgdb *db, const PGresult *result, struct err *reterr)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    if (!state || PQstatus(db->conn) == CONNECTION_BAD)
        return lost(db, result ? PQresultErrorMessage(result) : NULL, reterr);
    if (strcmp(state, "26000") == 0) db->unnamed = true;
    size_t i = 0;
    while (strncmp(state, meanings[i].state, strlen(meanings[i].state)) != 0) i++;
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    db->failed = meanings[i].failed;
    db->missing = strcmp(state, "42P01") == 0 || strncmp(state, "3F", 2) == 0;
    db->held_up = strcmp(state, "55P03") == 0 || strcmp(state, "57014") == 0;
    int r = set_text(reterr, meanings[i].code, text ? text : state);
    /* The primary is somewhere else now: the next connection finds it. */
    if (strcmp(state, "25006") == 0) disconnect(db);
    return r;
}

/* ---- talking, with a limit ---- */

bool pgdb_late(const struct pgdb *db)
{
    return pgdb_now_ms() >= db->until_ms;
}

static int wait_for_server(struct pgdb *db, bool unsent, struct err *reterr)
{
    int64_t left_ms = db->deadline_ms - pgdb_now_ms();
    struct pollfd fd = { .fd = PQsocket(db->conn),
                         .events = (short)(POLLIN | (unsent ? POLLOUT : 0)) };
    int n = left_ms > 0 ? poll(&fd, 1, (int)left_ms) : 0;
    if (n > 0 || (n < 0 && errno == EINTR)) return 0;
    char text[80];
    snprintf(text, sizeof text, "no answer within %lld ms", (long long)db->options.timeout_ms);
    return lost(db, text, reterr);
}

/* The next result in *ret_result; NULL ends those of one statement. */
static int next_result(struct pgdb *db, PGresult **ret_result, struct err *reterr)
{
    for (;;) {
        int unsent = PQflush(db->conn);
        if (unsent < 0 && PQisBusy(db->conn) && !PQconsumeInput(db->conn))
            return lost(db, PQerrorMessage(db->conn), reterr);
        if (!PQisBusy(db->conn)) break;
        int r = wait_for_server(db, unsent > 0, reterr);
        if (r) return r;
        if (!PQconsumeInput(db->conn)) return lost(db, PQerrorMessage(db->conn), reterr);
    }
    *ret_result = PQgetResult(db->conn);
    return 0;
}

static bool is_error(const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    return status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK;
}

/* All results of what was sent last, outside a pipeline; the last one is kept. */
static int collect(struct pgdb *db, PGresult **ret_result, struct err *reterr)
{
    PGresult *kept = NULL;
    int failed = 0;
    for (;;) {
        PGresult *result = NULL;
        int r = next_result(db, &result, reterr);
        if (!r && result && is_error(result)) failed = refused(db, result, reterr);
        if (r || !db->conn) {
            PQclear(result);
            PQclear(kept);
            return r ? r : failed;
        }
        if (!result) break;
        PQclear(kept);
        kept = result;
    }
    if (failed) {
        PQclear(kept);
        return failed;
    }
    *ret_result = kept;
    return 0;
}

static const struct pg_params no_params;

static int send(struct pgdb *db, enum pgsql sql, const struct pg_params *p, struct err *reterr)
{
    if (!p) p = &no_params;
    if (db->prepared[sql] && !db->unnamed) {
        if (PQsendQueryPrepared(db->conn, db->names[sql], p->count, p->values, p->lengths,
                                p->formats, 1))
            return 0;
    } else if (PQsendQueryParams(db->conn, db->sql[sql], p->count, p->types, p->values,
                                 p->lengths, p->formats, 1))
        return 0;
    return lost(db, PQerrorMessage(db->conn), reterr);
}

static void round_trip(struct pgdb *db)
{
    db->failed = PG_FINE;
    db->missing = db->held_up = false;
    db->deadline_ms = pgdb_now_ms() + db->options.timeout_ms;
}

int pgdb_script(struct pgdb *db, const char *sql, struct err *reterr)
{
    PGresult *result = NULL;
    round_trip(db);
    int r = PQsendQuery(db->conn, sql) ? 0 : lost(db, PQerrorMessage(db->conn), reterr);
    if (!r) r = collect(db, &result, reterr);
    PQclear(result);
    return r;
}

/* ---- pipelines: several statements, one round trip ---- */

/* One statement of a pipeline: its result, and the NULL behind it. After the first error the
 * server skips the rest, and says so for each. */
static int collect_one(struct pgdb *db, PGresult **ret_result, int *failed, struct err *reterr)
{
    for (PGresult *result = NULL;; result = NULL) {
        int r = next_result(db, &result, reterr);
        if (r) return r;
        if (!result) return 0;
        if (is_error(result) && PQresultStatus(result) != PGRES_PIPELINE_ABORTED && !*failed)
            *failed = refused(db, result, reterr);
        if (!db->conn) {
            PQclear(result);
            return *failed;
        }
        if (ret_result && !*ret_result)
            *ret_result = result;
        else
            PQclear(result);
    }
}

static int end_pipeline(struct pgdb *db, struct err *reterr)
{
    PGresult *sync = NULL;
    int r = next_result(db, &sync, reterr);
    bool synced = sync && PQresultStatus(sync) == PGRES_PIPELINE_SYNC;
    PQclear(sync);
    if (r) return r;
    if (synced && PQexitPipelineMode(db->conn)) return 0;
    return lost(db, "the server and we disagree about what was sent", reterr);
}

/* How long a statement may take, and wait for a lock. */
struct limits {
    struct pg_params params;
    char texts[2][24];
};

static void limits_fill(struct limits *l, int64_t statement_ms, int64_t lock_ms)
{
    l->params.count = 0;
    snprintf(l->texts[0], sizeof l->texts[0], "%lldms", (long long)statement_ms + 1);
    snprintf(l->texts[1], sizeof l->texts[1], "%lldms", (long long)lock_ms + 1);
    for (int i = 0; i < 2; i++) pg_param(&l->params, PG_TEXT, bytes_str(l->texts[i]));
}

/* Within limits, because a statement that names a table waits for it here, too: up to the sync a
 * pipeline is one transaction, to which they are local. */
static int prepare_now(struct pgdb *db, enum pgsql sql, const struct pg_params *p,
                       struct err *reterr)
{
    struct limits limits;
    int failed = 0;
    limits_fill(&limits, db->options.timeout_ms, db->options.timeout_ms / 5);
    if (!PQenterPipelineMode(db->conn)) return lost(db, PQerrorMessage(db->conn), reterr);
    int r = send(db, PGSQL_LIMITS, &limits.params, reterr);
    if (r) return r;
    if (!PQsendPrepare(db->conn, db->names[sql], db->sql[sql], p->count, p->types) ||
        !PQpipelineSync(db->conn))
        return lost(db, PQerrorMessage(db->conn), reterr);
    for (int i = 0; !r && i < 2; i++) r = collect_one(db, NULL, &failed, reterr);
    if (!r) r = end_pipeline(db, reterr);
    return r ? r : failed;
}

/* What is used again is prepared. The name is a hash of the text: behind a pooler a session may
 * hold what another program prepared there, and then it is the same. A pooler that has it and
 * one that has lost it give themselves away; from then on nothing is prepared. */
static int prepare(struct pgdb *db, enum pgsql sql, const struct pg_params *p,
                   struct err *reterr)
{
    if (db->unnamed || db->prepared[sql] || ++db->uses[sql] < PREPARE_AT) return 0;
    int r = prepare_now(db, sql, p ? p : &no_params, reterr);
    if (r && (db->failed == PG_LOST || db->held_up)) return r;
    db->failed = PG_FINE;
    db->prepared[sql] = r == 0;
    db->unnamed = r != 0;
    return 0;
}

/* ---- transactions ---- */

static int send_all(struct pgdb *db, struct pg_statement *statements, size_t count,
                    struct err *reterr)
{
    struct limits settings;
    limits_fill(&settings, db->options.timeout_ms / 2, db->options.timeout_ms / 5);
    int r = prepare(db, PGSQL_BEGIN, NULL, reterr);
    if (!r) r = prepare(db, PGSQL_SETTINGS, &settings.params, reterr);
    if (!r) r = prepare(db, PGSQL_COMMIT, NULL, reterr);
    for (size_t i = 0; !r && i < count; i++)
        r = prepare(db, statements[i].sql, statements[i].params, reterr);
    if (r) {
        db->failed = PG_REFUSED; /* nothing of it was sent */
        return r;
    }
    if (!PQenterPipelineMode(db->conn)) return lost(db, PQerrorMessage(db->conn), reterr);
    r = send(db, PGSQL_BEGIN, NULL, reterr);
    if (!r) r = send(db, PGSQL_SETTINGS, &settings.params, reterr);
    for (size_t i = 0; !r && i < count; i++)
        r = send(db, statements[i].sql, statements[i].params, reterr);
    if (!r) r = send(db, PGSQL_COMMIT, NULL, reterr);
    if (!r && !PQpipelineSync(db->conn)) r = lost(db, PQerrorMessage(db->conn), reterr);
    return r;
}

static int collect_all(struct pgdb *db, struct pg_statement *statements, size_t count,
                       struct err *reterr)
{
    int failed = 0;
    PGresult *commit = NULL;
    for (size_t i = 0; i < count + 3; i++) {
        bool ours = i >= 2 && i < count + 2;
        PGresult **into = ours ? &statements[i - 2].result : i == count + 2 ? &commit : NULL;
        int r = collect_one(db, into, &failed, reterr);
        if (r) {
            PQclear(commit);
            return r;
        }
    }
    /* A transaction that had failed already is not committed, politely. */
    bool committed = commit && strcmp(PQcmdStatus(commit), "COMMIT") == 0;
    PQclear(commit);
    int r = end_pipeline(db, reterr);
    if (r) return r;
    if (!failed && !committed) {
        db->failed = PG_AGAIN;
        return set_text(reterr, ERR_UNAVAILABLE, "the transaction was rolled back");
    }
    return failed;
}

static void results_clear(struct pg_statement *statements, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        PQclear(statements[i].result);
        statements[i].result = NULL;
    }
}

/* After an error the transaction is still open, and in the way. */
static void roll_back(struct pgdb *db)
{
    if (!db->conn || PQtransactionStatus(db->conn) == PQTRANS_IDLE) return;
    enum pg_failure failed = db->failed;
    struct err ignored;
    if (pgdb_script(db, "ROLLBACK", &ignored) && db->conn) disconnect(db);
    db->failed = failed;
}

int pgdb_transact(struct pgdb *db, struct pg_statement *statements, size_t count,
                  struct err *reterr)
{
    round_trip(db);
    for (size_t i = 0; i < count; i++) statements[i].result = NULL;
    int r = send_all(db, statements, count, reterr);
    if (!r) r = collect_all(db, statements, count, reterr);
    if (r) {
        results_clear(statements, count);
        roll_back(db);
    }
    return r;
}

/* ---- reading ---- */

/* Without BEGIN and COMMIT, see above: the limits cost one statement that does nothing. */
static int send_read(struct pgdb *db, const struct pg_statement *statement, struct err *reterr)
{
    struct limits limits;
    limits_fill(&limits, db->options.timeout_ms, db->options.timeout_ms / 5);
    int r = prepare(db, PGSQL_LIMITS, &limits.params, reterr);
    if (!r) r = prepare(db, statement->sql, statement->params, reterr);
    if (r) return r;
    if (!PQenterPipelineMode(db->conn)) return lost(db, PQerrorMessage(db->conn), reterr);
    r = send(db, PGSQL_LIMITS, &limits.params, reterr);
    if (!r) r = send(db, statement->sql, statement->params, reterr);
    if (!r && !PQpipelineSync(db->conn)) r = lost(db, PQerrorMessage(db->conn), reterr);
    return r;
}

static int collect_read(struct pgdb *db, struct pg_statement *statement, struct err *reterr)
{
    int failed = 0;
    int r = collect_one(db, NULL, &failed, reterr);
    if (!r) r = collect_one(db, &statement->result, &failed, reterr);
    if (!r) r = end_pipeline(db, reterr);
    return r ? r : failed;
}

int pgdb_query(struct pgdb *db, struct pg_statement *statement, struct err *reterr)
{
    round_trip(db);
    statement->result = NULL;
    if (!db->conn) return lost(db, "the connection was lost before", reterr);
    int r = send_read(db, statement, reterr);
    if (!r) r = collect_read(db, statement, reterr);
    if (!r) return 0;
    results_clear(statement, 1);
    /* It locks no rows, so no op is to blame for what it waited for: who tried them one by one would
     * wait again and again. */
    if (db->held_up) db->failed = PG_REFUSED;
    return r;
}

int pgdb_read(struct pgdb *db, struct pg_statement *statement, struct err *reterr)
{
    int r = pgdb_query(db, statement, reterr);
    if (!r || pgdb_late(db)) return r;
    if (db->failed != PG_LOST && db->failed != PG_AGAIN) return r;
    r = pgdb_begin(db, reterr);
    return r ? r : pgdb_query(db, statement, reterr);
}

/* ---- connecting ---- */

static void no_notice(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

struct pairs {
    const char *names[INFO_MAX], *values[INFO_MAX];
    size_t count;
};

static void pair_add(struct pairs *p, const char *name, const char *value)
{
    CHECK(p->count + 1 < INFO_MAX);
    p->names[p->count] = name;
    p->values[p->count++] = value;
}

static void pair_default(struct pairs *p, const char *name, const char *value)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->names[i], name) == 0) return;
    pair_add(p, name, value);
}

/* Two seconds is the least that libpq takes. */
static int connect_now(struct pgdb *db, struct err *reterr)
{
    char seconds[24];
    struct pairs p = { .count = 0 };
    int64_t s = (db->options.timeout_ms + 999) / 1000;
    snprintf(seconds, sizeof seconds, "%lld", (long long)(s > 2 ? s : 2));
    for (const PQconninfoOption *o = db->info; o->keyword; o++)
        if (o->val) pair_add(&p, o->keyword, o->val);
    pair_default(&p, "connect_timeout", seconds);
    pair_default(&p, "target_session_attrs", "read-write");
    pair_default(&p, "fallback_application_name", "once");
    db->conn = PQconnectdbParams(p.names, p.values, 0);
    if (PQstatus(db->conn) != CONNECTION_OK || PQsetnonblocking(db->conn, 1) != 0) {
        int r = set_text(reterr, ERR_UNAVAILABLE,
                         db->conn ? PQerrorMessage(db->conn) : "out of memory");
        disconnect(db);
        return r;
    }
    PQsetNoticeProcessor(db->conn, no_notice, NULL);
    db->connects++;
    memset(db->uses, 0, sizeof db->uses);
    memset(db->prepared, 0, sizeof db->prepared);
    return 0;
}

/* A server that is away is asked seldom, and not by everybody at the same moment. */
static void pause_next(struct pgdb *db)
{
    db->refusals++;
    db->retry_at_ms = pgdb_now_ms() + rng_pause_ms(&db->jitter.base, pauses, db->refusals);
}

static int connected(struct pgdb *db, struct err *reterr)
{
    if (db->conn) return 0;
    db->failed = PG_REFUSED;
    if (db->refusals && pgdb_now_ms() < db->retry_at_ms) {
        *reterr = db->refusal;
        return reterr->code;
    }
    int r = connect_now(db, reterr);
    if (!r) {
        db->refusals = 0;
        return 0;
    }
    db->refusal = *reterr;
    pause_next(db);
    return r;
}

int pgdb_begin(struct pgdb *db, struct err *reterr)
{
    db->failed = PG_FINE;
    int r = connected(db, reterr);
    db->until_ms = pgdb_now_ms() + db->options.timeout_ms;
    return r;
}

/* ---- life ---- */

static char *sql_in_schema(const char *text, const struct postgres_options *o)
{
    struct buf sql;
    buf_init(&sql, SQL_BYTES_MAX);
    for (; *text; text++) {
        if (*text == '@')
            buf_add(&sql, bytes_str(o->schema));
        else if (*text == '%')
            buf_add(&sql, bytes_str(o->markers));
        else
            buf_byte(&sql, (uint8_t)*text);
    }
    buf_byte(&sql, '\0');
    if (!buf_failed(&sql)) return (char *)sql.data;
    buf_fini(&sql);
    return NULL;
}

/* The same in every process. */
static const uint64_t name_seed[2] = { UINT64_C(0x6f6e6365), 1 };

int pgdb_init(struct pgdb *db, struct rng *rng, struct err *reterr)
{
    rng_seeded_init(&db->jitter, rng_u64(rng));
    db->info = PQconninfoParse(db->options.conninfo, NULL);
    bool ok = db->info != NULL;
    for (size_t i = 0; i < PGSQLS; i++) {
        db->sql[i] = sql_in_schema(sql_text[i], &db->options);
        ok = ok && db->sql[i];
        if (ok)
            snprintf(db->names[i], PG_NAME_BYTES, "once_%016llx",
                     (unsigned long long)siphash13(name_seed, bytes_str(db->sql[i])));
    }
    return ok ? 0 : err_set(reterr, ERR_NOMEM, "out of memory opening postgres:");
}

int pgdb_open(struct pgdb *db, struct rng *rng, struct err *reterr)
{
    int r = pgdb_init(db, rng, reterr);
    return r ? r : pgdb_begin(db, reterr);
}

void pgdb_close(struct pgdb *db)
{
    disconnect(db);
    PQconninfoFree(db->info);
    for (size_t i = 0; i < PGSQLS; i++) free(db->sql[i]);
    postgres_options_clear(&db->options);
}

/* ---- parameters and columns ---- */

void pg_param(struct pg_params *p, enum pg_type type, struct bytes value)
{
    CHECK(p->count < PG_PARAMS_MAX && value.len <= INT32_MAX);
    int at = p->count++;
    p->types[at] = (Oid)type;
    p->values[at] = value.len ? (const char *)value.data : "";
    p->lengths[at] = (int)value.len;
    p->formats[at] = 1;
}

void pg_param_number(struct pg_params *p, int64_t number)
{
    CHECK(p->count < PG_PARAMS_MAX);
    uint8_t *to = p->numbers[p->count];
    for (int i = 0; i < 8; i++) to[i] = (uint8_t)((uint64_t)number >> (56 - 8 * i));
    pg_param(p, PG_INT8, bytes_of(to, 8));
}

int64_t pg_number(const PGresult *r, int row, int column)
{
    struct bytes in = pg_bytes(r, row, column);
    if (in.len == 0 || in.len > 8) return 0;
    uint64_t v = in.data[0] & 0x80 ? UINT64_MAX : 0; /* the sign of what is shorter */
    for (size_t i = 0; i < in.len; i++) v = v << 8 | in.data[i];
    return (int64_t)v;
}

struct bytes pg_bytes(const PGresult *r, int row, int column)
{
    return bytes_of(PQgetvalue(r, row, column), (size_t)PQgetlength(r, row, column));
}

void op_refuse(struct op *op, const struct err *err)
{
    op_clear_answer(op);
    op->err = *err;
}
