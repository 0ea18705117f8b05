/* scenes_commit.c - what is lost around COMMIT: the client, the session, the COMMIT, its answer. */
#include "tests/mutations/scenes.h"

#include "base/check.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- kill -9 ---- */

static void die(void *ctx)
{
    (void)ctx;
    kill(getpid(), SIGKILL);
}

void killed_before_commit(void)
{
    PGconn *pg = pg_open(postgres_url());
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct use u;
        struct once_mutation in = mutation_of("killed-before");
        use_init(&u, "killed-before");
        u.meanwhile = die;
        in.lease_ms = 200;
        try_with(fresh(), pg_open(postgres_url()), &in, &u);
        _exit(1);
    }
    int status;
    waitpid(pid, &status, 0);
    EXPECT(WIFSIGNALED(status), "%d", status);
    struct once *o = fresh();
    struct trial t = { 0 };
    do t = try_it(o, pg, "killed-before");
    while (t.result == 0 && t.answer.outcome == ONCE_IN_PROGRESS);
    TOLD(t, ONCE_OK);
    EXPECT(applied("killed-before") == 1, "%lld", applied("killed-before"));
    once_close(o);
    PQfinish(pg);
}

static void hang_redis(void *ctx)
{
    (void)ctx;
    redis_is(REDIS_HUNG);
}

/* Redis hangs, so that it dies after COMMIT and before it has told coord. */
void killed_after_commit(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once *o = fresh();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct use u;
        struct once_mutation in = mutation_of("killed-after");
        use_init(&u, "killed-after");
        u.meanwhile = hang_redis;
        in.lease_ms = 200;
        try_with(fresh(), pg_open(postgres_url()), &in, &u);
        _exit(1);
    }
    pg_until(admin, "SELECT count(*) = 1 FROM applied WHERE request = 'killed-after'");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    redis_is(REDIS_UP);
    struct trial t = { 0 };
    do t = try_it(o, pg, "killed-after");
    while (t.result == 0 && t.answer.outcome == ONCE_IN_PROGRESS);
    EXPECT(t.result == 0 && t.answer.outcome != ONCE_OK && t.answer.has_value, "%s", told(&t));
    EXPECT(applied("killed-after") == 1, "%lld", applied("killed-after"));
    once_close(o);
    PQfinish(pg);
}

/* ---- COMMIT and its answer ---- */

void commit_answer_lost(void)
{
    struct line line;
    line_open(&line, postgres_url());
    PGconn *pg = pg_open(line_url(&line, postgres_url()));
    line_do(&line, "cut-commit 1");
    struct trial t = try_it(NULL, pg, "answer-lost");
    TOLD(t, ONCE_OK);
    EXPECT(t.answer.has_value && applied("answer-lost") == 1, "%s", told(&t));
    EXPECT(PQstatus(pg) == CONNECTION_OK && PQtransactionStatus(pg) == PQTRANS_IDLE,
           "the connection cannot be used");
    line_do(&line, "pass");
    TOLD(try_it(NULL, pg, "answer-lost"), ONCE_ALREADY_DONE);
    PQfinish(pg);
    line_close(&line);
}

void commit_lost(void)
{
    struct line line;
    line_open(&line, postgres_url());
    PGconn *pg = pg_open(line_url(&line, postgres_url()));
    struct once *o = fresh();
    line_do(&line, "drop-commit 1");
    struct trial t = try_it(o, pg, "commit-lost");
    EXPECT(t.result == ONCE_EUNAVAILABLE && applied("commit-lost") == 0, "%s", told(&t));
    line_do(&line, "pass");
    TOLD(try_it(o, pg, "commit-lost"), ONCE_OK); /* at once: coord has been told */
    EXPECT(applied("commit-lost") == 1, "%lld", applied("commit-lost"));
    once_close(o);
    PQfinish(pg);
    line_close(&line);
}

/* Who waits for the one whose COMMIT is lost. What came of that nobody can be asked until he has an
 * answer. */
struct overtaker {
    pthread_t thread;
    struct line *line;
    struct once_mutation in;
    struct trial got;
};

static void *overtake(void *ctx)
{
    struct overtaker *by = ctx;
    struct use u;
    PGconn *pg = pg_open(postgres_url());
    use_init(&u, "overtaken");
    by->got = try_with(NULL, pg, &by->in, &u);
    PQfinish(pg);
    line_do(by->line, "pass");
    return NULL;
}

static void let_it_wait(void *ctx)
{
    struct overtaker *by = ctx;
    CHECK(pthread_create(&by->thread, NULL, overtake, by) == 0);
    pg_until(admin, "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                    "AND wait_event = 'advisory'");
    line_do(by->line, "new rst");
}

static void overtaken_by(const char *request, const char *method, int outcome)
{
    struct line line;
    struct use u;
    struct once_mutation in = mutation_of(request);
    struct overtaker by = { .line = &line, .in = mutation_of(request) };
    line_open(&line, postgres_url());
    PGconn *pg = pg_open(line_url(&line, postgres_url()));
    struct once *o = fresh();
    by.in.method = once_str(method);
    by.in.lock_ms = 60000;
    use_init(&u, "overtaken");
    u.meanwhile = let_it_wait;
    u.ctx = &by;
    line_do(&line, "drop-commit 1");
    struct trial t = try_with(o, pg, &in, &u), again = { 0 };
    CHECK(pthread_join(by.thread, NULL) == 0);
    u.meanwhile = NULL;
    again = try_with(o, pg, &in, &u);
    TOLD(by.got, ONCE_OK);
    TOLD(t, outcome);
    TOLD(again, outcome); /* at once: coord has been told */
    EXPECT(strcmp(t.value, outcome == ONCE_MISMATCH ? "" : by.got.value) == 0, "%s", told(&t));
    once_close(o);
    PQfinish(pg);
    line_close(&line);
}

/* The marker that is found is that of another attempt. */
void commit_overtaken(void)
{
    overtaken_by("overtaken-1", "UseItem", ONCE_ALREADY_DONE);
    overtaken_by("overtaken-2", "SellItem", ONCE_MISMATCH);
    EXPECT(applied("overtaken") == 2, "%lld", applied("overtaken"));
}

static void refuse_line(void *ctx)
{
    line_do(ctx, "new rst");
}

/* Nobody can be asked what came of it. */
void commit_unknown(void)
{
    struct line line;
    struct use u;
    struct once_mutation in = mutation_of("unknown");
    line_open(&line, postgres_url());
    PGconn *pg = pg_open(line_url(&line, postgres_url()));
    use_init(&u, "unknown");
    in.lock_ms = 0;
    line_do(&line, "cut-commit 1");
    u.meanwhile = refuse_line;
    u.ctx = &line;
    struct trial t = try_with(NULL, pg, &in, &u);
    EXPECT(t.result == ONCE_EAMBIGUOUS, "%s", told(&t));
    line_do(&line, "pass");
    PQreset(pg);
    TOLD(try_it(NULL, pg, "unknown"), ONCE_ALREADY_DONE);
    EXPECT(applied("unknown") == 1, "%lld", applied("unknown"));
    PQfinish(pg);
    line_close(&line);
}

void marker_counts_for(const char *interval)
{
    pg_say(
        admin,
        "CREATE OR REPLACE FUNCTION once_mutation_ttl() RETURNS interval LANGUAGE sql IMMUTABLE"
        " AS 'SELECT interval ''%s'''",
        interval);
}

/* By the clock of the database, which is what markers go by. */
void time_passes(void *interval)
{
    char now[64];
    snprintf(now, sizeof now, "%s", pg_say(admin, "SELECT clock_timestamp()"));
    pg_until(admin, "SELECT clock_timestamp() > timestamptz '%s' + interval '%s'", now,
             (const char *)interval);
}

/* That no marker is found says nothing once its time is over: a sweep may have had it. */
void commit_outlived(void)
{
    struct line line;
    struct use u;
    struct once_mutation in = mutation_of("outlived");
    line_open(&line, postgres_url());
    PGconn *pg = pg_open(line_url(&line, postgres_url()));
    use_init(&u, "outlived");
    u.meanwhile = time_passes;
    u.ctx = (void *)"1.1 seconds";
    marker_counts_for("1 second");
    line_do(&line, "cut-commit 1");
    struct trial t = try_with(NULL, pg, &in, &u);
    EXPECT(t.result == ONCE_EAMBIGUOUS && applied("outlived") == 1, "%s", told(&t));
    line_do(&line, "drop-commit 1");
    PQreset(pg);
    t = try_with(NULL, pg, &in, &u);
    EXPECT(t.result == ONCE_EAMBIGUOUS && applied("outlived") == 1, "%s", told(&t));
    marker_counts_for("1 hour");
    PQfinish(pg);
    line_close(&line);
}

static void end_backend(void *ctx)
{
    pg_say(admin, "SELECT pg_terminate_backend(%d)", PQbackendPID(ctx));
    pg_until(admin, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %d",
             PQbackendPID(ctx));
}

/* The server ends the session in the middle of it: definite, and said to be. */
void backend_ended(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct use u;
    struct once_mutation in = mutation_of("ended");
    use_init(&u, "ended");
    u.meanwhile = end_backend;
    u.ctx = pg;
    struct trial t = try_with(NULL, pg, &in, &u);
    bool nothing =
        t.result == ONCE_EUNAVAILABLE || (t.result == 0 && t.answer.outcome == ONCE_CLAIMED);
    EXPECT(nothing && applied("ended") == 0, "%s", told(&t));
    PQreset(pg);
    TOLD(try_it(NULL, pg, "ended"), ONCE_OK);
    EXPECT(applied("ended") == 1, "%lld", applied("ended"));
    PQfinish(pg);
}

static void unheard(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

/* What is set in the session is lost with the connection, the search_path too: the markers that are found
 * then are not those that were written to, and say nothing. */
void commit_other_markers(void)
{
    struct line line;
    struct once_error error;
    char url[300];
    snprintf(url, sizeof url, "%s?markers=tenants", postgres_url());
    pg_say(admin, "CREATE SCHEMA tenants");
    CHECK(once_migrate_mutations(url, 0, NULL, unheard, NULL, &error) == 0);
    line_open(&line, postgres_url());
    for (int flushed = 0; flushed < 2; flushed++) {
        const char *request = name_of("other-markers", (unsigned)flushed);
        PGconn *pg = pg_open(line_url(&line, postgres_url()));
        pg_say(pg, "SET search_path = tenants, public");
        if (!flushed) pg_say(pg, "SET synchronous_commit = off");
        line_do(&line, "cut-commit 1");
        struct trial t = try_it(NULL, pg, request);
        EXPECT(t.result == ONCE_EAMBIGUOUS && applied(request) == 1, "%s", told(&t));
        line_do(&line, "pass");
        pg_say(pg, "SET search_path = tenants, public");
        TOLD(try_it(NULL, pg, request), ONCE_ALREADY_DONE);
        PQfinish(pg);
    }
    line_close(&line);
    pg_say(admin, "DROP SCHEMA tenants CASCADE");
}
