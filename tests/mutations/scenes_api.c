/* scenes_api.c - what callers may do, and what they should not. */
#include "tests/mutations/scenes.h"

#include "base/check.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the caller's own transaction ---- */

static int begin(PGconn *pg, const char *request)
{
    struct once_mutation in = mutation_of(request);
    struct once_mutation_answer answer;
    int r = once_mutation_begin(db_of(pg), &in, &answer);
    int outcome = r ? r : answer.outcome;
    once_mutation_answer_clear(&answer);
    return outcome;
}

void own_transaction(void)
{
    PGconn *pg = pg_open(postgres_url()), *other = pg_open(postgres_url());
    struct once_mutation in = mutation_of("own");
    struct once_error error;
    EXPECT(begin(pg, "own") == ONCE_EINVAL, "without a transaction");
    pg_say(pg, "BEGIN");
    EXPECT(begin(pg, "own") == ONCE_CLAIMED, "first");
    EXPECT(once_mutation_finish(db_of(pg), &in, once_str("kept"), &error) == 0, "%s",
           error.text);
    pg_say(pg, "COMMIT");
    pg_say(pg, "BEGIN");
    struct once_mutation_answer answer;
    EXPECT(once_mutation_begin(db_of(pg), &in, &answer) == 0, "%s", answer.error.text);
    EXPECT(answer.outcome == ONCE_ALREADY_DONE && answer.in_database, "%d", answer.outcome);
    EXPECT(answer.value.len == 4 && memcmp(answer.value.data, "kept", 4) == 0, "no outcome");
    once_mutation_answer_clear(&answer);
    pg_say(pg, "ROLLBACK");
    pg_say(pg, "BEGIN");
    EXPECT(once_mutation_finish(db_of(pg), &in, once_str("x"), &error) == ONCE_EINVAL,
           "finished what it has not begun");
    pg_say(pg, "ROLLBACK");
    /* An old snapshot cannot tell: that is mapped, and the next transaction knows. */
    pg_say(pg, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM applied LIMIT 1");
    pg_say(other, "BEGIN");
    EXPECT(begin(other, "own-rr") == ONCE_CLAIMED, "other");
    pg_say(other, "COMMIT");
    EXPECT(begin(pg, "own-rr") == ONCE_IN_PROGRESS, "an old snapshot");
    pg_say(pg, "ROLLBACK; BEGIN ISOLATION LEVEL SERIALIZABLE");
    EXPECT(begin(pg, "own-rr") == ONCE_ALREADY_DONE, "a new one");
    pg_say(pg, "ROLLBACK; BEGIN READ ONLY");
    EXPECT(begin(pg, "own-ro") == ONCE_EUNAVAILABLE, "as on a standby");
    pg_say(pg, "ROLLBACK");
    PQfinish(pg);
    PQfinish(other);
}

static int break_it(void *ctx, struct once_db db, struct once_bytes *ret_response)
{
    const char *sql = ctx;
    (void)ret_response;
    PQclear(PQexec(db.pg, sql));
    return 0;
}

static int break_it_and_refuse(void *ctx, struct once_db db, struct once_bytes *ret_response)
{
    return break_it(ctx, db, ret_response) - 1;
}

static struct trial broken_by(once_mutation_fn *fn, PGconn *pg, const char *request,
                              const char *sql)
{
    struct once_mutation in = mutation_of(request);
    struct trial t = { 0 };
    t.result = once_mutate(NULL, db_of(pg), &in, fn, (void *)sql, &t.answer);
    t.answer.value = (struct once_bytes){ NULL, 0 };
    blob_unref(t.answer.owner);
    t.answer.owner = NULL;
    return t;
}

static struct trial broken(PGconn *pg, const char *request, const char *sql)
{
    return broken_by(break_it, pg, request, sql);
}

static struct trial refusing(PGconn *pg, const char *request, const char *sql)
{
    return broken_by(break_it_and_refuse, pg, request, sql);
}

/* Functions that do what they should not. */
void functions(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct trial t = broken(pg, "fn-1", "SELECT 1/0");
    TOLD(t, ONCE_CLAIMED);
    EXPECT(strstr(t.answer.error.text, "rolled back"), "%s", told(&t));
    TOLD(broken(pg, "fn-1", "SELECT 1"), ONCE_OK);
    TOLD(broken(pg, "fn-2", "ROLLBACK"), ONCE_CLAIMED);
    TOLD(broken(pg, "fn-2", "COMMIT"), ONCE_OK);
    TOLD(broken(pg, "fn-2", "COMMIT"), ONCE_ALREADY_DONE);
    TOLD(refusing(pg, "fn-2b", "ROLLBACK"), ONCE_CLAIMED);
    TOLD(refusing(pg, "fn-2b", "COMMIT"), ONCE_ALREADY_DONE);
    TOLD(broken(pg, "fn-2c", "ROLLBACK; BEGIN"), ONCE_CLAIMED);
    TOLD(broken(pg, "fn-2c", "COMMIT; BEGIN"), ONCE_ALREADY_DONE);
    TOLD(broken(pg, "fn-2c", "COMMIT; BEGIN"), ONCE_ALREADY_DONE);
    pg_say(admin, "DROP TABLE IF EXISTS later; CREATE TABLE later (n integer UNIQUE DEFERRABLE "
                  "INITIALLY DEFERRED)");
    t = broken(pg, "fn-3", "INSERT INTO later VALUES (1), (1)");
    TOLD(t, ONCE_CLAIMED);
    TOLD(broken(pg, "fn-3", "INSERT INTO later VALUES (1)"), ONCE_OK);
    pg_say(pg, "BEGIN");
    t = broken(pg, "fn-4", "SELECT 1");
    EXPECT(t.result == ONCE_EINVAL && PQtransactionStatus(pg) == PQTRANS_INTRANS, "%s",
           told(&t));
    pg_say(pg, "ROLLBACK");
    PQfinish(pg);
}

static int keep(void *ctx, struct once_db db, struct once_bytes *ret_response)
{
    (void)db;
    *ret_response = once_str(ctx);
    return 0;
}

/* How often the server was waited for: each time it says at the end that it is ready. */
static int round_trips(PGconn *pg, const char *request, const char *response)
{
    struct once_mutation in = mutation_of(request);
    struct once_mutation_answer answer;
    char line[4096];
    int trips = 0;
    FILE *trace = tmpfile();
    CHECK(trace);
    PQtrace(pg, trace);
    EXPECT(once_mutate(NULL, db_of(pg), &in, keep, (void *)response, &answer) == 0, "%s",
           answer.error.text);
    once_mutation_answer_clear(&answer);
    PQuntrace(pg);
    rewind(trace);
    while (fgets(line, sizeof line, trace)) trips += strstr(line, "ReadyForQuery") != NULL;
    fclose(trace);
    return trips;
}

/* As many as BEGIN and COMMIT have; a duplicate, as BEGIN and ROLLBACK. */
void no_more_round_trips(void)
{
    PGconn *pg = pg_open(postgres_url());
    static const char *const responses[] = { "kept", "" };
    for (unsigned i = 0; i < 2; i++)
        for (int again = 0; again < 2; again++) {
            int trips = round_trips(pg, name_of("trips", i), responses[i]);
            EXPECT(trips == 2, "\"%s\", %d: %d round trips", responses[i], again, trips);
        }
    PQfinish(pg);
}

void internal(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once_mutation in = mutation_of("");
    struct use u;
    long long before = pg_count(admin, "SELECT count(*) FROM once_mutations");
    use_init(&u, "internal");
    in.user = once_str("");
    for (int i = 0; i < 3; i++) TOLD(try_with(NULL, pg, &in, &u), ONCE_OK);
    u.fails = 1;
    TOLD(try_with(NULL, pg, &in, &u), ONCE_CLAIMED);
    EXPECT(applied("internal") == 3, "%lld", applied("internal"));
    EXPECT(pg_count(admin, "SELECT count(*) FROM once_mutations") == before, "it has paid");
    PQfinish(pg);
}

static void look_around(void *ctx)
{
    const char *level = pg_say(ctx, "SHOW transaction_isolation");
    EXPECT(strcmp(level, "read committed") == 0, "%s", level);
}

void session_defaults(void)
{
    PGconn *pg = pg_open(postgres_url());
    static const char *const requests[] = { "defaults", "" };
    for (int i = 0; i < 2; i++) {
        struct once_mutation in = mutation_of(requests[i]);
        struct use u;
        use_init(&u, "defaults");
        u.meanwhile = look_around;
        u.ctx = pg;
        pg_say(pg, "SET default_transaction_isolation = 'serializable';"
                   "SET default_transaction_read_only = on");
        TOLD(try_with(NULL, pg, &in, &u), ONCE_OK);
    }
    EXPECT(applied("defaults") == 2, "%lld", applied("defaults"));
    PQfinish(pg);
}

void misuse(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once_mutation in = mutation_of("misuse");
    struct use u;
    struct trial t = { 0 };
    use_init(&u, "misuse");
    t.result = once_mutate(NULL, (struct once_db){ 0 }, &in, use_item, &u, &t.answer);
    EXPECT(t.result == ONCE_EINVAL, "%s", told(&t));
    in.lock_ms = -1;
    EXPECT(try_with(NULL, pg, &in, &u).result == ONCE_EINVAL, "lock_ms");
    in = mutation_of("a\nb");
    EXPECT(try_with(NULL, pg, &in, &u).result == ONCE_EINVAL, "a control character");
    in = mutation_of("misuse");
    in.user = once_str("");
    EXPECT(try_with(NULL, pg, &in, &u).result == ONCE_EINVAL, "nobody");
    in.size = 0;
    EXPECT(try_with(NULL, pg, &in, &u).result == ONCE_EINVAL, "no size");
    in = mutation_of("misuse");
    pg_say(pg, "SET search_path = pg_catalog");
    t = try_with(NULL, pg, &in, &u);
    EXPECT(t.result == ONCE_EUNSUPPORTED && strstr(t.answer.error.text, "once migrate"), "%s",
           told(&t));
    EXPECT(PQtransactionStatus(pg) == PQTRANS_IDLE, "the transaction was left open");
    pg_say(pg, "RESET search_path");
    CHECK(PQenterPipelineMode(pg));
    t = try_with(NULL, pg, &in, &u);
    EXPECT(t.result == ONCE_EINVAL && strstr(t.answer.error.text, "pipeline"), "%s", told(&t));
    EXPECT(PQpipelineStatus(pg) == PQ_PIPELINE_ON && PQexitPipelineMode(pg), "it was ended");
    TOLD(try_with(NULL, pg, &in, &u), ONCE_OK);
    PQfinish(pg);
}

/* A response that coord does not keep, and one that the marker does not. */
static int long_response(void *ctx, struct once_db db, struct once_bytes *ret_response)
{
    static char text[2 * 1024 * 1024];
    (void)db;
    memset(text, 'x', sizeof text);
    *ret_response = once_bytes(text, *(size_t *)ctx);
    return 0;
}

void long_responses(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once *o = fresh();
    static const struct {
        size_t bytes;
        int outcome, has_value;
    } rows[] = { { 8192, ONCE_CACHED, 1 },
                 { 8193, ONCE_CACHED, 1 },
                 { 1024 * 1024, ONCE_CACHED, 1 },
                 { 1024 * 1024 + 1, ONCE_ALREADY_DONE, 0 } };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct once_mutation in = mutation_of(name_of("long", i));
        struct once_mutation_answer first, second, third;
        size_t bytes = rows[i].bytes;
        once_mutate(o, db_of(pg), &in, long_response, &bytes, &first);
        once_mutate(o, db_of(pg), &in, long_response, &bytes, &second);
        once_mutate(NULL, db_of(pg), &in, long_response, &bytes, &third);
        EXPECT(first.outcome == ONCE_OK && first.value.len == bytes, "%u", i);
        EXPECT(second.outcome == rows[i].outcome && second.has_value == rows[i].has_value, "%u",
               i);
        EXPECT(third.outcome == ONCE_ALREADY_DONE && third.has_value == (bytes <= 8192), "%u",
               i);
        once_mutation_answer_clear(&first);
        once_mutation_answer_clear(&second);
        once_mutation_answer_clear(&third);
    }
    once_close(o);
    PQfinish(pg);
}

/* ---- compare-and-set ---- */

struct versions {
    int lost, calls, says;
};

static int versioned(void *ctx, int attempt)
{
    struct versions *v = ctx;
    EXPECT(attempt == v->calls, "%d", attempt);
    return v->calls++ < v->lost ? ONCE_VERSION_LOST : v->says;
}

void version_retry(void)
{
    struct versions v = { .lost = 3 };
    EXPECT(once_with_version_retry(5, versioned, &v) == 0 && v.calls == 4, "%d", v.calls);
    v = (struct versions){ .lost = 9 };
    EXPECT(once_with_version_retry(5, versioned, &v) == ONCE_VERSION_LOST && v.calls == 5, "%d",
           v.calls);
    v = (struct versions){ .says = -7 };
    EXPECT(once_with_version_retry(5, versioned, &v) == -7 && v.calls == 1, "%d", v.calls);
    EXPECT(once_with_version_retry(0, versioned, &v) == ONCE_EINVAL, "no tries");
}

/* Connections that say something else than UTF8 mean the same request. */
void encodings(void)
{
    static const char *const others[] = { "LATIN1", "SJIS", "SQL_ASCII" };
    PGconn *pg = pg_open(postgres_url());
    for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct use u;
        struct once_mutation in = mutation_of(name_of("\303\211cole", i));
        in.method = once_str("d\303\251j\303\240");
        use_init(&u, "encodings");
        CHECK(PQsetClientEncoding(pg, "UTF8") == 0);
        TOLD(try_with(NULL, pg, &in, &u), ONCE_OK);
        CHECK(PQsetClientEncoding(pg, others[i]) == 0);
        TOLD(try_with(NULL, pg, &in, &u), ONCE_ALREADY_DONE);
    }
    PQfinish(pg);
}

static void start_query(void *ctx)
{
    CHECK(PQsendQuery(ctx, "SELECT 42"));
}

static void start_copy(void *ctx)
{
    PGresult *r = PQexec(ctx, "COPY applied FROM STDIN");
    CHECK(PQresultStatus(r) == PGRES_COPY_IN);
    PQclear(r);
}

static void start_pipeline(void *ctx)
{
    CHECK(PQenterPipelineMode(ctx));
}

static void start_query_in_pipeline(void *ctx)
{
    start_pipeline(ctx);
    CHECK(PQsendQueryParams(ctx, "SELECT 42", 0, NULL, NULL, NULL, NULL, 0));
}

static void end_them(PGconn *pg)
{
    PGresult *r;
    PQputCopyEnd(pg, NULL);
    if (PQpipelineStatus(pg) != PQ_PIPELINE_OFF) PQpipelineSync(pg);
    for (int nothing = 0; nothing < 2;) {
        r = PQgetResult(pg);
        nothing = r ? 0 : nothing + 1;
        PQclear(r);
    }
    PQexitPipelineMode(pg);
}

/* What the caller, or fn, has under way is refused at once, whatever coord has: it is not thrown away, and
 * nothing is left open. */
void under_way(void)
{
    static void (*const start[])(void *) = { start_query, start_copy, start_pipeline,
                                             start_query_in_pipeline };
    PGconn *pg = pg_open(postgres_url());
    struct once *o = fresh();
    TOLD(try_it(o, pg, "under-way"), ONCE_OK);
    TOLD(try_it(o, pg, "under-way"), ONCE_CACHED);
    for (unsigned i = 0; i < sizeof start / sizeof start[0]; i++) {
        struct use u;
        struct once_mutation in = mutation_of(name_of("under-way", i));
        PGTransactionStatusType was;
        start[i](pg);
        was = PQtransactionStatus(pg);
        struct trial cached = try_it(o, pg, "under-way"), new = try_with(o, pg, &in, &u);
        EXPECT(cached.result == ONCE_EINVAL, "%u: %s", i, told(&cached));
        EXPECT(new.result == ONCE_EINVAL, "%u: %s", i, told(&new));
        EXPECT(PQtransactionStatus(pg) == was, "%u: it was ended", i);
        end_them(pg);
        use_init(&u, (const char *)in.request.data);
        u.meanwhile = start[i];
        u.ctx = pg;
        in.lock_ms = 0;
        TOLD(try_with(o, pg, &in, &u), ONCE_CLAIMED);
        EXPECT(PQtransactionStatus(pg) == PQTRANS_IDLE, "%u: left open", i);
        u.meanwhile = NULL;
        TOLD(try_with(o, pg, &in, &u), ONCE_OK);
        EXPECT(applied(u.request) == 1, "%u: %lld", i, applied(u.request));
    }
    once_close(o);
    PQfinish(pg);
}
