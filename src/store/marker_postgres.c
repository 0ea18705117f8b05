/* marker_postgres.c - markers through the functions of markers/postgres.sql, see marker.h.
 *
 * The marker is sent together with BEGIN, and the outcome with COMMIT: a transaction with a marker has as
 * many round trips as one without. An error of the first keeps the server from the second.
 *
 * No prepared statements and no settings of the session: PgBouncer in transaction mode is fine. A
 * connection that broke is reset for look() alone, where the transaction on it is over for sure; what
 * the old server process may still be doing to it is waited for, by the lock named after the request. */
#include "store/marker.h"

#include "base/text.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>

/* READ WRITE: never on a standby, which may not have what was committed. */
#define BEGIN_SQL "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

#define FLUSHED "current_setting('synchronous_commit')"
#define TEXT(number) "convert_from($" #number ", 'UTF8')"
#define REQUEST TEXT(1) ", " TEXT(2)

/* As PostgreSQL numbers its types. */
enum { BYTEA = 17, INTEGER = 23, XID8 = 5069 };
enum { PARAMS_MAX = 6, LOOK_LOCK_MS_MAX = 1000, RESULTS_MAX = 16 };

struct params {
    int count;
    Oid types[PARAMS_MAX];
    const char *values[PARAMS_MAX];
    int lengths[PARAMS_MAX], formats[PARAMS_MAX];
    char lock_ms[24];
};

/* ---- parameters ---- */

static void add(struct params *p, Oid type, const char *value)
{
    p->types[p->count] = type;
    p->values[p->count++] = value;
}

static void add_binary(struct params *p, struct bytes content)
{
    static const char empty[1];
    p->formats[p->count] = 1;
    p->lengths[p->count] = (int)content.len;
    add(p, BYTEA, content.data ? (const char *)content.data : empty);
}

/* As bytes: a client_encoding that is not UTF8 would make other names of them, which nobody else has. */
static void add_request(struct params *p, const struct mutation *m)
{
    add_binary(p, m->user);
    add_binary(p, m->request);
}

static void add_ms(struct params *p, int64_t ms)
{
    snprintf(p->lock_ms, sizeof p->lock_ms, "%lld", (long long)ms);
    add(p, INTEGER, p->lock_ms);
}

static PGresult *ask(struct pg_conn *pg, const char *sql, const struct params *p, int format)
{
    return PQexecParams(pg, sql, p->count, p->types, p->values, p->lengths, p->formats, format);
}

/* ---- what went wrong ---- */

static bool is_state(const char *state, const char *prefix)
{
    return state && strncmp(state, prefix, strlen(prefix)) == 0;
}

static int code_of(struct pg_conn *pg, const char *state)
{
    if (PQstatus(pg) != CONNECTION_OK || !state) return ERR_UNAVAILABLE;
    if (is_state(state, "42883") || is_state(state, "42P01")) return ERR_UNSUPPORTED;
    if (is_state(state, "08") || is_state(state, "53") || is_state(state, "57"))
        return ERR_UNAVAILABLE;
    /* A standby: it cannot write, and has no position to write at, which the epoch is made of. */
    if (is_state(state, "25006") || is_state(state, "55000")) return ERR_UNAVAILABLE;
    if (is_state(state, "0A000")) return ERR_UNAVAILABLE; /* its word for READ WRITE */
    return ERR_INVALID;
}

/* The first line says it; takes the result. */
static int fail(struct pg_conn *pg, PGresult *r, struct err *reterr)
{
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    int code = code_of(pg, state);
    if (!text) text = PQerrorMessage(pg);
    if (code == ERR_UNSUPPORTED)
        err_set(
            reterr, code,
            "there are no markers in this database, or not in its search_path, or old ones: "
            "once migrate --mutations");
    else
        err_set(reterr, code, "PostgreSQL: %.*s", (int)strcspn(text, "\n"), text);
    PQclear(r);
    return code;
}

static bool has_rows(const PGresult *r)
{
    return PQresultStatus(r) == PGRES_TUPLES_OK;
}

/* ---- outcomes that are SQLSTATEs ---- */

static struct blob *hex_blob(const char *hex)
{
    size_t len = strlen(hex) / 2;
    uint8_t *content = malloc(len + 1);
    struct blob *b = NULL;
    if (content && hex_decode(bytes_of(hex, 2 * len), content, len))
        b = blob_new(bytes_of(content, len));
    free(content);
    return b;
}

static void take_kept(const PGresult *r, struct marker_found *ret)
{
    static const char start[] = "outcome=\\x";
    const char *detail = PQresultErrorField(r, PG_DIAG_MESSAGE_DETAIL);
    const char *at = detail ? strstr(detail, start) : NULL;
    if (at) ret->kept = hex_blob(at + sizeof start - 1);
}

static enum outcome outcome_of(const char *state)
{
    if (is_state(state, "ON001")) return OUTCOME_ALREADY_DONE;
    if (is_state(state, "ON002")) return OUTCOME_MISMATCH;
    bool undecided = is_state(state, "ON003") || is_state(state, "40001") ||
                     is_state(state, "40P01") || is_state(state, "55P03");
    return undecided ? OUTCOME_IN_PROGRESS : 0;
}

/* Takes the result. */
static int refused(struct pg_conn *pg, PGresult *r, struct marker_found *ret,
                   struct err *reterr)
{
    enum outcome outcome = outcome_of(PQresultErrorField(r, PG_DIAG_SQLSTATE));
    if (!outcome) return fail(pg, r, reterr);
    ret->outcome = outcome;
    if (outcome == OUTCOME_ALREADY_DONE) take_kept(r, ret);
    PQclear(r);
    return 0;
}

/* ---- the transaction ---- */

static bool is_open(struct marker_db db)
{
    return PQtransactionStatus(db.pg) == PQTRANS_INTRANS &&
           PQpipelineStatus(db.pg) == PQ_PIPELINE_OFF;
}

/* libpq would throw away what is under way, and end a COPY: that is the caller's to do. */
static int check_at_rest(struct pg_conn *pg, struct err *reterr)
{
    if (PQpipelineStatus(pg) != PQ_PIPELINE_OFF)
        return err_set(reterr, ERR_INVALID, "this connection is in pipeline mode");
    if (PQtransactionStatus(pg) == PQTRANS_ACTIVE)
        return err_set(reterr, ERR_INVALID,
                       "a query or a COPY is under way on this connection: end it first");
    return 0;
}

static bool has_failed(struct marker_db db)
{
    return PQstatus(db.pg) != CONNECTION_OK || PQtransactionStatus(db.pg) == PQTRANS_INERROR;
}

static int run(struct pg_conn *pg, const char *sql, struct err *reterr)
{
    PGresult *r = PQexec(pg, sql);
    if (PQresultStatus(r) != PGRES_COMMAND_OK) return fail(pg, r, reterr);
    PQclear(r);
    return 0;
}

static void rollback(struct marker_db db)
{
    struct err ignored;
    if (PQpipelineStatus(db.pg) != PQ_PIPELINE_OFF)
        PQreset(db.pg); /* nothing else can be said in it */
    else if (PQtransactionStatus(db.pg) != PQTRANS_IDLE)
        run(db.pg, "ROLLBACK", &ignored);
}

/* ---- two statements, one round trip ---- */

struct statement {
    const char *sql;
    const struct params *params;
};

static bool send(struct pg_conn *pg, const struct statement *s)
{
    const struct params *p = s->params;
    return PQsendQueryParams(pg, s->sql, p->count, p->types, p->values, p->lengths, p->formats,
                             0);
}

/* The result of one, and the NULL behind it. */
static PGresult *take(struct pg_conn *pg)
{
    PGresult *first = PQgetResult(pg), *more = first;
    while (more && (more = PQgetResult(pg))) PQclear(more);
    return first;
}

/* A session that is ended says so instead of the sync, and only then is the connection gone. */
static void take_sync(struct pg_conn *pg)
{
    for (int i = 0; i < RESULTS_MAX && PQstatus(pg) == CONNECTION_OK; i++) {
        PGresult *r = PQgetResult(pg);
        bool synced = PQresultStatus(r) == PGRES_PIPELINE_SYNC;
        PQclear(r);
        if (synced) return;
    }
}

/* The results are the caller's; NULL: none, because the connection is gone. */
static void ask_both(struct pg_conn *pg, const struct statement both[2], PGresult *ret[2])
{
    ret[0] = ret[1] = NULL;
    if (!PQenterPipelineMode(pg)) return;
    bool sent = send(pg, &both[0]) && send(pg, &both[1]);
    if (PQpipelineSync(pg) && sent) {
        for (int i = 0; i < 2; i++) ret[i] = take(pg);
        take_sync(pg);
    }
    /* Half of it without an end would never be answered. */
    if (!PQexitPipelineMode(pg) && PQstatus(pg) == CONNECTION_OK) PQreset(pg);
}

/* ---- the marker ---- */

/* With its parameters. */
struct question {
    struct params params;
    struct statement statement;
};

static void begin_init(struct question *q, const struct marker *m)
{
    struct params *p = &q->params;
    *p = (struct params){ 0 };
    add_request(p, &m->mutation);
    add_binary(p, m->mutation.method);
    add_binary(p, m->mutation.fingerprint);
    add_ms(p, m->lock_ms);
    add_binary(p, bytes_of(m->attempt, sizeof m->attempt));
    q->statement =
        (struct statement){ "SELECT once_mutation_enter(" REQUEST ", " TEXT(3) ", $4, $5, $6)",
                            p };
}

/* What stands before `end`. False: that does not come, or too late. */
static bool scan_field(const char **at, char end, char *ret, size_t room)
{
    size_t len = strcspn(*at, ",)\"");
    if (len >= room || (*at)[len] != end) return false;
    memcpy(ret, *at, len);
    ret[len] = '\0';
    *at += len + 1;
    return true;
}

/* A row as text: (EPOCH,TTL_MS,XID); the epoch may be missing. */
static bool scan_entered(const char *row, struct marker_found *ret)
{
    char ttl_ms[24];
    if (*row++ != '(' || !scan_field(&row, ',', ret->epoch, sizeof ret->epoch) ||
        !scan_field(&row, ',', ttl_ms, sizeof ttl_ms) ||
        !scan_field(&row, ')', ret->transaction, sizeof ret->transaction))
        return false;
    ret->ttl_ms = strtoll(ttl_ms, NULL, 10);
    return true;
}

/* Takes the result. */
static int begun(struct pg_conn *pg, PGresult *r, struct marker_found *ret, struct err *reterr)
{
    if (!has_rows(r)) return refused(pg, r, ret, reterr);
    ret->outcome = OUTCOME_CLAIMED;
    bool known = scan_entered(PQgetvalue(r, 0, 0), ret);
    PQclear(r);
    return known ? 0
                 : err_set(reterr, ERR_CORRUPT,
                           "PostgreSQL: once_mutation_enter() says what it cannot");
}

static int begin(struct marker_db db, struct marker *m, struct marker_found *ret,
                 struct err *reterr)
{
    struct question q;
    if (check_at_rest(db.pg, reterr)) return reterr->code;
    if (!is_open(db))
        return err_set(reterr, ERR_INVALID,
                       "no transaction is open, or it has failed: BEGIN first");
    begin_init(&q, m);
    return begun(db.pg, ask(db.pg, q.statement.sql, &q.params, 0), ret, reterr);
}

static const struct params no_params;

static int enter_with_marker(struct pg_conn *pg, const struct marker *m,
                             struct marker_found *ret, struct err *reterr)
{
    struct question q;
    PGresult *r[2];
    begin_init(&q, m);
    ask_both(pg, (struct statement[]){ { BEGIN_SQL, &no_params }, q.statement }, r);
    if (PQresultStatus(r[0]) == PGRES_COMMAND_OK) {
        PQclear(r[0]);
        return begun(pg, r[1], ret, reterr);
    }
    PQclear(r[1]);
    return fail(pg, r[0], reterr);
}

static int enter(struct marker_db db, struct marker *m, bool bare, struct marker_found *ret,
                 struct err *reterr)
{
    if (check_at_rest(db.pg, reterr)) return reterr->code;
    if (PQtransactionStatus(db.pg) != PQTRANS_IDLE && PQstatus(db.pg) == CONNECTION_OK)
        return err_set(reterr, ERR_INVALID, "a transaction is open on this connection already");
    ret->outcome = OUTCOME_CLAIMED;
    int r = bare ? run(db.pg, BEGIN_SQL, reterr) : enter_with_marker(db.pg, m, ret, reterr);
    if (r || ret->outcome != OUTCOME_CLAIMED) rollback(db);
    return r;
}

/* Nothing but a question, which is an error if this is another transaction. finish() is a dearer one. */
static void still_init(struct question *q, const struct marker_found *found)
{
    q->params = (struct params){ 0 };
    add(&q->params, XID8, found->transaction);
    q->statement = (struct statement){ "SELECT 1 / (pg_current_xact_id_if_assigned() IS NOT "
                                       "DISTINCT FROM $1)::integer, " FLUSHED,
                                       &q->params };
}

static void finish_init(struct question *q, const struct marker *m, struct bytes outcome)
{
    q->params = (struct params){ 0 };
    add_request(&q->params, &m->mutation);
    add_binary(&q->params, outcome);
    q->statement = (struct statement){ "SELECT once_mutation_finish(" REQUEST ", $3), " FLUSHED,
                                       &q->params };
}

static int finish(struct marker_db db, struct marker *m, struct bytes outcome,
                  struct err *reterr)
{
    struct question q;
    if (check_at_rest(db.pg, reterr)) return reterr->code;
    finish_init(&q, m, outcome);
    PGresult *r = ask(db.pg, q.statement.sql, &q.params, 0);
    if (!has_rows(r)) return fail(db.pg, r, reterr);
    PQclear(r);
    return 0;
}

/* Not about what was to be committed, but about the server, or a pooler in front of it. */
static bool is_elsewhere(const char *state)
{
    return is_state(state, "08") || is_state(state, "53") || is_state(state, "57") ||
           is_state(state, "58") || is_state(state, "XX");
}

/* Of COMMIT; takes the result. "ROLLBACK" is what one of a transaction says that has failed before. */
static int ended(struct pg_conn *pg, PGresult *r, struct err *reterr)
{
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    bool done = PQresultStatus(r) == PGRES_COMMAND_OK;
    bool undone = done && strcmp(PQcmdStatus(r), "COMMIT") != 0;
    bool lost = !done && (PQstatus(pg) != CONNECTION_OK || !state || is_elsewhere(state));
    if (done) PQclear(r);
    if (undone) return err_set(reterr, ERR_INVALID, "the transaction had failed before");
    if (done) return 0;
    int code = fail(pg, r, reterr);
    return reterr->code = lost ? ERR_AMBIGUOUS : code;
}

/* The setting as it is at COMMIT, in the last column: the function may have changed it. */
static void take_flushed(const PGresult *r, struct marker_found *found)
{
    found->not_flushed = !has_rows(r) || strcmp(PQgetvalue(r, 0, PQnfields(r) - 1), "off") == 0;
}

/* finish() has refused it, or its question was divided by zero. */
static bool is_astray(const char *state)
{
    return is_state(state, "ON004") || is_state(state, "22012");
}

static int leave(struct marker_db db, struct marker *m, bool bare, const struct bytes *outcome,
                 struct marker_found *found, struct err *reterr)
{
    struct question q;
    PGresult *r[2];
    if (bare) return ended(db.pg, PQexec(db.pg, "COMMIT"), reterr);
    if (outcome)
        finish_init(&q, m, *outcome);
    else
        still_init(&q, found);
    ask_both(db.pg, (struct statement[]){ q.statement, { "COMMIT", &no_params } }, r);
    bool skipped = PQresultStatus(r[1]) == PGRES_PIPELINE_ABORTED;
    take_flushed(r[0], found);
    found->astray = skipped && is_astray(PQresultErrorField(r[0], PG_DIAG_SQLSTATE));
    PQclear(r[skipped]);
    return skipped ? fail(db.pg, r[0], reterr) : ended(db.pg, r[1], reterr);
}

static int epoch(struct marker_db db, char *ret, struct err *reterr)
{
    if (check_at_rest(db.pg, reterr)) return reterr->code;
    PGresult *r = PQexec(db.pg, "SELECT once_mutation_epoch()");
    if (!has_rows(r)) return fail(db.pg, r, reterr);
    snprintf(ret, MUTATION_EPOCH_BYTES_MAX + 1, "%s", PQgetvalue(r, 0, 0));
    PQclear(r);
    return 0;
}

/* ---- after a COMMIT whose answer was lost ---- */

static struct bytes cell(const PGresult *r, int column)
{
    return bytes_of(PQgetvalue(r, 0, column), (size_t)PQgetlength(r, 0, column));
}

enum { LOOK_ATTEMPT, LOOK_METHOD, LOOK_FINGERPRINT, LOOK_OUTCOME, LOOK_EPOCH, LOOK_FOUND };

/* Behind the timeline, which a failover changes: the table, and its installation. */
static struct bytes table_of(struct bytes epoch)
{
    const uint8_t *at = epoch.len ? memchr(epoch.data, '-', epoch.len) : NULL;
    return at ? bytes_of(at, (size_t)(epoch.data + epoch.len - at)) : bytes_of(NULL, 0);
}

/* Who opens a connection again may find other markers by the same name, if the search_path was set on it. */
static bool is_same_table(struct bytes now, const struct marker_found *before)
{
    struct bytes then = bytes_str(before->epoch);
    return then.len ? bytes_eq(table_of(now), table_of(then)) : !before->reopened;
}

static int judge(const PGresult *r, const struct marker *m, struct marker_found *ret,
                 struct err *reterr)
{
    bool there = !PQgetisnull(r, 0, LOOK_FOUND);
    ret->outcome = OUTCOME_OK; /* nobody else has these bytes */
    if (there && bytes_eq(cell(r, LOOK_ATTEMPT), bytes_of(m->attempt, sizeof m->attempt)))
        return 0;
    if (!is_same_table(cell(r, LOOK_EPOCH), ret))
        return err_set(reterr, ERR_UNSUPPORTED, "PostgreSQL: other markers, by search_path");
    ret->outcome = OUTCOME_ABSENT;
    if (!there) return 0;
    ret->outcome = marker_judge(&m->mutation, cell(r, LOOK_METHOD), cell(r, LOOK_FINGERPRINT));
    bool kept = ret->outcome == OUTCOME_ALREADY_DONE && !PQgetisnull(r, 0, LOOK_OUTCOME);
    if (kept) ret->kept = blob_new(cell(r, LOOK_OUTCOME));
    return 0;
}

static int look_inside(struct pg_conn *pg, const struct marker *m, struct marker_found *ret,
                       struct err *reterr)
{
    struct params p = { 0 };
    add_request(&p, &m->mutation);
    add_ms(&p, m->lock_ms < LOOK_LOCK_MS_MAX ? m->lock_ms : LOOK_LOCK_MS_MAX);
    PGresult *r = ask(pg,
                      "SELECT attempt, convert_to(method, 'UTF8'), fingerprint, outcome, epoch,"
                      " created_at FROM once_mutation_epoch() AS epoch"
                      " LEFT JOIN once_mutation_look(" REQUEST ", $3) ON true",
                      &p, 1);
    if (!has_rows(r)) return refused(pg, r, ret, reterr);
    int code = judge(r, m, ret, reterr);
    PQclear(r);
    return code;
}

static int look(struct marker_db db, const struct marker *m, struct marker_found *ret,
                struct err *reterr)
{
    if (PQstatus(db.pg) != CONNECTION_OK || PQpipelineStatus(db.pg) != PQ_PIPELINE_OFF) {
        PQreset(db.pg);
        ret->reopened = true;
    }
    rollback(db); /* of an earlier look */
    int r = run(db.pg, BEGIN_SQL, reterr);
    if (!r) r = look_inside(db.pg, m, ret, reterr);
    rollback(db);
    return r;
}

const struct marker_class marker_postgres = {
    .name = "PostgreSQL",
    .is_open = is_open,
    .has_failed = has_failed,
    .enter = enter,
    .leave = leave,
    .rollback = rollback,
    .begin = begin,
    .finish = finish,
    .epoch = epoch,
    .look = look,
};
