/* scenes.c - what must happen to a mutation, each fault at the moment that matters. Every scene has
 * requests of its own, so that nothing has to be emptied in between; time is never waited for where
 * there is an event. Prints TAP. */
#include "tests/mutations/mutations.h"
#include "tests/support/world.h"

#include "base/check.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static PGconn *admin;        /* looks, and breaks things */
static struct line redis_at; /* in front of Redis */
static bool failed;          /* the scene that is played */

#define EXPECT(what, ...)                                                                      \
    do {                                                                                       \
        if (what) break;                                                                       \
        failed = true;                                                                         \
        tap_note("%s:%d: %s", __FILE__, __LINE__, #what);                                      \
        tap_note(__VA_ARGS__);                                                                 \
    } while (0)

static const char *postgres_url(void)
{
    return env_of("ONCE_TEST_POSTGRES");
}

static struct once_db db_of(PGconn *pg)
{
    return (struct once_db){ .pg = pg };
}

static long long applied(const char *request)
{
    return pg_count(admin, "SELECT count(*) FROM applied WHERE request = '%s'", request);
}

/* ---- one try, and what it was told ---- */

struct
try {
    int result;
    struct once_mutation_answer answer;
    char value[160];
};

static struct try try_with(struct once *o, PGconn *pg, const struct once_mutation *in,
                           struct use *u)
{
    struct try t = { 0 };
    t.result = once_mutate(o, db_of(pg), in, use_item, u, &t.answer);
    snprintf(t.value, sizeof t.value, "%.*s", (int)t.answer.value.len,
             (const char *)t.answer.value.data);
    t.answer.value = (struct once_bytes){ t.value, strlen(t.value) };
    blob_unref(t.answer.owner);
    t.answer.owner = NULL;
    return t;
}

static struct try try_it(struct once *o, PGconn *pg, const char *request)
{
    struct use u;
    struct once_mutation in = mutation_of(request);
    use_init(&u, request);
    return try_with(o, pg, &in, &u);
}

static const char *told(const struct try *t)
{
    static char text[480];
    snprintf(text, sizeof text, "%d %s \"%s\"%s%s: %s", t->result,
             t->answer.outcome ? once_outcome_name(t->answer.outcome) : "no answer", t->value,
             t->answer.in_database ? " in the database" : "",
             t->answer.degraded ? ", degraded" : "", t->answer.error.text);
    return text;
}

#define TOLD(t, want)                                                                          \
    do {                                                                                       \
        struct try t_ = (t);                                                                   \
        EXPECT(t_.result == 0 && t_.answer.outcome == (want), "%s", told(&t_));                \
    } while (0)

static const char *name_of(const char *scene, unsigned n)
{
    static char name[80];
    snprintf(name, sizeof name, "%s-%u", scene, n);
    return name;
}

/* ---- Redis up, away, emptied and hung, between any two steps ---- */

enum redis_is { REDIS_UP, REDIS_DOWN, REDIS_EMPTY, REDIS_HUNG, REDIS_STATES };

static void redis_is(enum redis_is state)
{
    pid_t pid = atoi(env_of("ONCE_TEST_REDIS_PID"));
    kill(pid, state == REDIS_HUNG ? SIGSTOP : SIGCONT);
    line_do(&redis_at, state == REDIS_DOWN ? "refuse" : "pass");
    if (state != REDIS_EMPTY) return;
    char command[160];
    snprintf(command, sizeof command, "redis-cli -u %s flushall >/dev/null",
             env_of("ONCE_TEST_REDIS"));
    CHECK(system(command) == 0);
}

static void redis_turns(void *ctx)
{
    redis_is(*(const enum redis_is *)ctx);
}

/* A handle of its own, so that no breaker remembers what was before. */
static struct once *fresh(void)
{
    return once_on(line_url(&redis_at, env_of("ONCE_TEST_REDIS")));
}

static void replay(PGconn *pg, const enum redis_is at[3], unsigned n)
{
    const char *request = name_of("replay", n);
    struct use u;
    struct once_mutation in = mutation_of(request);
    char name[80];
    snprintf(name, sizeof name, "%s", request);
    use_init(&u, name);
    in.request = once_str(name);
    redis_is(REDIS_UP);
    struct once *o = fresh();
    redis_is(at[0]);
    u.meanwhile = redis_turns;
    u.ctx = (void *)&at[1];
    struct try first = try_with(o, pg, &in, &u);
    TOLD(first, ONCE_OK);
    redis_is(at[2]);
    struct try second = try_it(o, pg, name);
    bool known =
        second.answer.outcome == ONCE_CACHED || second.answer.outcome == ONCE_ALREADY_DONE;
    EXPECT(second.result == 0 && known, "%u%u%u: %s", at[0], at[1], at[2], told(&second));
    EXPECT(strcmp(first.value, second.value) == 0, "%s is not %s", second.value, first.value);
    bool calm = at[0] == REDIS_UP && at[1] == REDIS_UP && at[2] == REDIS_UP;
    EXPECT(!calm || second.answer.outcome == ONCE_CACHED, "%s", told(&second));
    EXPECT(applied(name) == 1, "%u%u%u: applied %lld times", at[0], at[1], at[2],
           applied(name));
    redis_is(REDIS_UP);
    once_close(o);
}

static void sequential_replay(void)
{
    PGconn *pg = pg_open(postgres_url());
    unsigned n = 0;
    for (unsigned i = 0; i < REDIS_STATES * REDIS_STATES * REDIS_STATES; i++) {
        enum redis_is at[3] = { i / 16, i / 4 % 4, i % 4 };
        replay(pg, at, n++);
    }
    PQfinish(pg);
}

/* Whatever happened there, Redis is asked for again once it is well. */
static void replay_after_recovery(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once *o = fresh();
    redis_is(REDIS_DOWN);
    struct try first = try_it(o, pg, "recovery-1");
    TOLD(first, ONCE_OK);
    EXPECT(first.answer.degraded, "%s", told(&first));
    redis_is(REDIS_UP);
    struct try second = { 0 };
    for (unsigned i = 0; i < 200 && second.answer.outcome != ONCE_CACHED; i++) {
        char name[40];
        snprintf(name, sizeof name, "recovery-2-%u", i);
        try_it(o, pg, name);
        second = try_it(o, pg, name);
        EXPECT(applied(name) == 1, "%s", told(&second));
        usleep(20000); /* the breaker asks again every half second */
    }
    TOLD(second, ONCE_CACHED);
    once_close(o);
    PQfinish(pg);
}

/* ---- who else asks for it ---- */

static void mismatch(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once *o = fresh();
    struct once_mutation sell = mutation_of("mismatch");
    struct use u;
    use_init(&u, "mismatch");
    TOLD(try_it(o, pg, "mismatch"), ONCE_OK);
    sell.method = once_str("SellItem");
    struct try with = try_with(o, pg, &sell, &u), without = try_with(NULL, pg, &sell, &u);
    TOLD(with, ONCE_MISMATCH);
    TOLD(without, ONCE_MISMATCH);
    EXPECT(!with.answer.has_value && !without.answer.has_value, "%s", told(&with));
    sell = mutation_of("mismatch");
    sell.fingerprint = once_str("other");
    TOLD(try_with(NULL, pg, &sell, &u), ONCE_MISMATCH);
    sell = mutation_of("mismatch");
    sell.user = once_str("user-2");
    TOLD(try_with(o, pg, &sell, &u), ONCE_OK);
    EXPECT(applied("mismatch") == 2, "%lld", applied("mismatch"));
    once_close(o);
    PQfinish(pg);
}

/* ---- concurrent duplicates ---- */

/* A try on a thread of its own, which stops inside its transaction until it is let go. */
struct actor {
    pthread_t thread;
    struct once *once;
    PGconn *pg;
    struct use use;
    struct once_mutation in;
    struct try got;
    int inside[2], go[2];
};

static void wait_inside(void *ctx)
{
    struct actor *a = ctx;
    char byte = 1;
    CHECK(write(a->inside[1], &byte, 1) == 1);
    CHECK(read(a->go[0], &byte, 1) == 1);
}

static void *act(void *ctx)
{
    struct actor *a = ctx;
    a->got = try_with(a->once, a->pg, &a->in, &a->use);
    return NULL;
}

static void actor_start(struct actor *a, struct once *o, const char *request, bool stops)
{
    CHECK(pipe(a->inside) == 0 && pipe(a->go) == 0);
    a->once = o;
    a->pg = pg_open(postgres_url());
    use_init(&a->use, request);
    if (stops) a->use.meanwhile = wait_inside;
    a->use.ctx = a;
    a->in.size = 0;
    a->in = mutation_of(request);
    a->in.lock_ms = 60000;
}

static void actor_go(struct actor *a)
{
    CHECK(pthread_create(&a->thread, NULL, act, a) == 0);
}

static void actor_is_inside(struct actor *a)
{
    char byte;
    CHECK(read(a->inside[0], &byte, 1) == 1);
}

static void actor_let_go(struct actor *a)
{
    char byte = 1;
    CHECK(write(a->go[1], &byte, 1) == 1);
}

static void actor_end(struct actor *a)
{
    pthread_join(a->thread, NULL);
    PQfinish(a->pg);
    for (int i = 0; i < 2; i++) close(a->inside[i]), close(a->go[i]);
}

static void until_waiting(int count)
{
    pg_until(admin,
             "SELECT count(*) = %d FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "
             "wait_event = 'advisory'",
             count);
}

static void undecided(const char *request, int fails)
{
    struct actor a, b;
    actor_start(&a, NULL, request, true);
    actor_start(&b, NULL, request, false);
    a.use.fails = fails;
    actor_go(&a);
    actor_is_inside(&a);
    actor_go(&b);
    until_waiting(1);
    actor_let_go(&a);
    actor_end(&a);
    actor_end(&b);
    TOLD(a.got, fails ? ONCE_CLAIMED : ONCE_OK);
    TOLD(b.got, fails ? ONCE_OK : ONCE_ALREADY_DONE);
    EXPECT(fails || strcmp(a.got.value, b.got.value) == 0, "%s", told(&b.got));
    EXPECT(applied(request) == 1, "%lld", applied(request));
}

static void undecided_commits(void)
{
    undecided("commits", 0);
}

static void undecided_rolls_back(void)
{
    undecided("rolls-back", 7);
}

static void lock_timeout(void)
{
    struct actor a;
    PGconn *pg = pg_open(postgres_url());
    struct once_mutation in = mutation_of("lock");
    struct use u;
    use_init(&u, "lock");
    actor_start(&a, NULL, "lock", true);
    actor_go(&a);
    actor_is_inside(&a);
    in.lock_ms = 30;
    struct try late = try_with(NULL, pg, &in, &u);
    TOLD(late, ONCE_IN_PROGRESS);
    EXPECT(late.answer.in_database, "%s", told(&late));
    in.lock_ms = 0;
    TOLD(try_with(NULL, pg, &in, &u), ONCE_IN_PROGRESS);
    EXPECT(PQtransactionStatus(pg) == PQTRANS_IDLE, "the transaction was left open");
    actor_let_go(&a);
    actor_end(&a);
    TOLD(try_with(NULL, pg, &in, &u), ONCE_ALREADY_DONE);
    EXPECT(applied("lock") == 1, "%lld", applied("lock"));
    PQfinish(pg);
}

/* A stuck request, and many who retry it: one of them waits, and nobody else's connection. */
static void retry_storm(void)
{
    enum { STORM = 20 };
    struct actor stuck, waits, other;
    PGconn *pg = pg_open(postgres_url());
    struct once_mutation in = mutation_of("storm");
    struct use u;
    use_init(&u, "storm");
    actor_start(&stuck, NULL, "storm", true);
    actor_start(&waits, NULL, "storm", false);
    actor_go(&stuck);
    actor_is_inside(&stuck);
    actor_go(&waits);
    until_waiting(1);
    in.lock_ms = 60000;
    for (int i = 0; i < STORM; i++) TOLD(try_with(NULL, pg, &in, &u), ONCE_IN_PROGRESS);
    until_waiting(1);
    actor_start(&other, NULL, "storm-other", false);
    actor_go(&other);
    actor_end(&other);
    TOLD(other.got, ONCE_OK);
    actor_let_go(&stuck);
    actor_end(&stuck);
    actor_end(&waits);
    TOLD(waits.got, ONCE_ALREADY_DONE);
    EXPECT(applied("storm") == 1, "%lld", applied("storm"));
    PQfinish(pg);
}

/* Coord absorbs them: the database does not hear of those who come while somebody is on it. */
static void coord_absorbs(void)
{
    struct once *o = fresh();
    PGconn *pg = pg_open(postgres_url());
    struct actor a;
    actor_start(&a, o, "absorbed", true);
    actor_go(&a);
    actor_is_inside(&a);
    struct try second = try_it(o, pg, "absorbed");
    TOLD(second, ONCE_IN_PROGRESS);
    EXPECT(!second.answer.in_database, "%s", told(&second));
    actor_let_go(&a);
    actor_end(&a);
    struct try third = try_it(o, pg, "absorbed");
    TOLD(third, ONCE_CACHED);
    EXPECT(strcmp(third.value, a.got.value) == 0, "%s", told(&third));
    once_close(o);
    PQfinish(pg);
}

/* Many at once, each with a handle and a connection of its own. */
static void crowd(void)
{
    enum { CROWD = 12 };
    struct actor actors[CROWD];
    struct once *once[CROWD];
    unsigned ran = 0;
    for (int i = 0; i < CROWD; i++) {
        once[i] = i % 3 ? fresh() : NULL;
        actor_start(&actors[i], once[i], "crowd", false);
    }
    for (int i = 0; i < CROWD; i++) actor_go(&actors[i]);
    for (int i = 0; i < CROWD; i++) actor_end(&actors[i]);
    for (int i = 0; i < CROWD; i++) {
        EXPECT(actors[i].got.result == 0, "%s", told(&actors[i].got));
        ran += actors[i].got.answer.outcome == ONCE_OK;
        once_close(once[i]);
    }
    EXPECT(ran == 1 && applied("crowd") == 1, "%u ran, %lld applied", ran, applied("crowd"));
}

/* ---- kill -9 ---- */

static void die(void *ctx)
{
    (void)ctx;
    kill(getpid(), SIGKILL);
}

static void killed_before_commit(void)
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
    struct try t = { 0 };
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
static void killed_after_commit(void)
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
    struct try t = { 0 };
    do t = try_it(o, pg, "killed-after");
    while (t.result == 0 && t.answer.outcome == ONCE_IN_PROGRESS);
    EXPECT(t.result == 0 && t.answer.outcome != ONCE_OK && t.answer.has_value, "%s", told(&t));
    EXPECT(applied("killed-after") == 1, "%lld", applied("killed-after"));
    once_close(o);
    PQfinish(pg);
}

/* ---- COMMIT and its answer ---- */

static void commit_answer_lost(void)
{
    struct line line;
    line_open(&line, postgres_url());
    PGconn *pg = pg_open(line_url(&line, postgres_url()));
    line_do(&line, "cut-commit 1");
    struct try t = try_it(NULL, pg, "answer-lost");
    TOLD(t, ONCE_OK);
    EXPECT(t.answer.has_value && applied("answer-lost") == 1, "%s", told(&t));
    EXPECT(PQstatus(pg) == CONNECTION_OK && PQtransactionStatus(pg) == PQTRANS_IDLE,
           "the connection cannot be used");
    line_do(&line, "pass");
    TOLD(try_it(NULL, pg, "answer-lost"), ONCE_ALREADY_DONE);
    PQfinish(pg);
    line_close(&line);
}

static void commit_lost(void)
{
    struct line line;
    line_open(&line, postgres_url());
    PGconn *pg = pg_open(line_url(&line, postgres_url()));
    line_do(&line, "drop-commit 1");
    struct try t = try_it(NULL, pg, "commit-lost");
    EXPECT(t.result == ONCE_EUNAVAILABLE && applied("commit-lost") == 0, "%s", told(&t));
    line_do(&line, "pass");
    TOLD(try_it(NULL, pg, "commit-lost"), ONCE_OK);
    EXPECT(applied("commit-lost") == 1, "%lld", applied("commit-lost"));
    PQfinish(pg);
    line_close(&line);
}

static void refuse_line(void *ctx)
{
    line_do(ctx, "new rst");
}

/* Nobody can be asked what came of it. */
static void commit_unknown(void)
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
    struct try t = try_with(NULL, pg, &in, &u);
    EXPECT(t.result == ONCE_EAMBIGUOUS, "%s", told(&t));
    line_do(&line, "pass");
    PQreset(pg);
    TOLD(try_it(NULL, pg, "unknown"), ONCE_ALREADY_DONE);
    EXPECT(applied("unknown") == 1, "%lld", applied("unknown"));
    PQfinish(pg);
    line_close(&line);
}

struct backend {
    PGconn *pg;
    bool dies;
};

static void end_backend(void *ctx)
{
    pg_say(admin, "SELECT pg_terminate_backend(%d)", PQbackendPID(ctx));
    pg_until(admin, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %d",
             PQbackendPID(ctx));
}

/* The server ends the session in the middle of it: definite, and said to be. */
static void backend_ended(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct use u;
    struct once_mutation in = mutation_of("ended");
    use_init(&u, "ended");
    u.meanwhile = end_backend;
    u.ctx = pg;
    struct try t = try_with(NULL, pg, &in, &u);
    bool nothing =
        t.result == ONCE_EUNAVAILABLE || (t.result == 0 && t.answer.outcome == ONCE_CLAIMED);
    EXPECT(nothing && applied("ended") == 0, "%s", told(&t));
    PQreset(pg);
    TOLD(try_it(NULL, pg, "ended"), ONCE_OK);
    EXPECT(applied("ended") == 1, "%lld", applied("ended"));
    PQfinish(pg);
}

/* ---- a failover that lost the row ---- */

static void failover(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once *o = fresh();
    struct try first = try_it(o, pg, "failover"), again = try_it(o, pg, "failover");
    TOLD(first, ONCE_OK);
    TOLD(again, ONCE_CACHED);
    pg_say(admin, "BEGIN; DELETE FROM applied WHERE request = 'failover';"
                  "DELETE FROM once_mutations WHERE request_id = 'failover';"
                  "CREATE OR REPLACE FUNCTION once_mutation_installation() RETURNS text"
                  " LANGUAGE sql IMMUTABLE AS 'SELECT ''after the failover'''; COMMIT");
    struct try after = try_it(o, pg, "failover");
    TOLD(after, ONCE_OK);
    EXPECT(strcmp(after.value, first.value) != 0, "%s", told(&after));
    struct try last = try_it(o, pg, "failover");
    TOLD(last, ONCE_CACHED);
    EXPECT(strcmp(last.value, after.value) == 0, "%s", told(&last));
    EXPECT(applied("failover") == 1, "%lld", applied("failover"));
    once_close(o);
    PQfinish(pg);
}

static void expired(void)
{
    PGconn *pg = pg_open(postgres_url());
    TOLD(try_it(NULL, pg, "expired"), ONCE_OK);
    TOLD(try_it(NULL, pg, "expired"), ONCE_ALREADY_DONE);
    pg_say(admin, "UPDATE once_mutations SET created_at = created_at - interval '2 hours'"
                  " WHERE request_id = 'expired'");
    TOLD(try_it(NULL, pg, "expired"), ONCE_OK);
    EXPECT(applied("expired") == 2, "%lld", applied("expired"));
    PQfinish(pg);
}

/* ---- PgBouncer in transaction mode ---- */

static void bouncer(void)
{
    PGconn *pg = pg_open(env_of("ONCE_TEST_PGBOUNCER")),
           *other = pg_open(env_of("ONCE_TEST_PGBOUNCER"));
    struct once *o = fresh();
    for (unsigned i = 0; i < 20; i++) {
        char name[40];
        snprintf(name, sizeof name, "bouncer-%u", i);
        TOLD(try_it(i % 2 ? o : NULL, pg, name), ONCE_OK);
        struct try again = try_it(i % 2 ? o : NULL, other, name);
        TOLD(again, i % 2 ? ONCE_CACHED : ONCE_ALREADY_DONE);
        EXPECT(applied(name) == 1 && again.answer.has_value, "%s", told(&again));
    }
    struct line line;
    line_open(&line, env_of("ONCE_TEST_PGBOUNCER"));
    PGconn *cut = pg_open(line_url(&line, env_of("ONCE_TEST_PGBOUNCER")));
    line_do(&line, "cut-commit 1");
    TOLD(try_it(NULL, cut, "bouncer-cut"), ONCE_OK);
    line_do(&line, "drop-commit 1");
    PQreset(cut);
    struct try lost = try_it(NULL, cut, "bouncer-lost");
    EXPECT(lost.result == ONCE_EUNAVAILABLE && applied("bouncer-lost") == 0, "%s", told(&lost));
    PQfinish(cut);
    line_close(&line);
    once_close(o);
    PQfinish(pg);
    PQfinish(other);
}

/* ---- through a daemon ---- */

static void daemon_keeps(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once *o = once_on(env_of("ONCE_TEST_DAEMON")),
                *p = once_on(env_of("ONCE_TEST_DAEMON"));
    struct try first = try_it(o, pg, "daemon"), second = try_it(p, pg, "daemon");
    TOLD(first, ONCE_OK);
    TOLD(second, ONCE_CACHED);
    EXPECT(strcmp(first.value, second.value) == 0, "%s", told(&second));
    EXPECT(!first.answer.degraded && applied("daemon") == 1, "%s", told(&first));
    once_close(o);
    once_close(p);
    PQfinish(pg);
}

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

static void own_transaction(void)
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

static struct try broken(PGconn *pg, const char *request, const char *sql)
{
    struct once_mutation in = mutation_of(request);
    struct try t = { 0 };
    t.result = once_mutate(NULL, db_of(pg), &in, break_it, (void *)sql, &t.answer);
    t.answer.value = (struct once_bytes){ NULL, 0 };
    blob_unref(t.answer.owner);
    t.answer.owner = NULL;
    return t;
}

/* Functions that do what they should not. */
static void functions(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct try t = broken(pg, "fn-1", "SELECT 1/0");
    TOLD(t, ONCE_CLAIMED);
    EXPECT(strstr(t.answer.error.text, "rolled back"), "%s", told(&t));
    TOLD(broken(pg, "fn-1", "SELECT 1"), ONCE_OK);
    TOLD(broken(pg, "fn-2", "ROLLBACK"), ONCE_CLAIMED);
    TOLD(broken(pg, "fn-2", "COMMIT"), ONCE_OK);
    TOLD(broken(pg, "fn-2", "COMMIT"), ONCE_ALREADY_DONE);
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

static void internal(void)
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

static void misuse(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once_mutation in = mutation_of("misuse");
    struct use u;
    struct try t = { 0 };
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

static void long_responses(void)
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

static void version_retry(void)
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

/* ---- all of them ---- */

static const struct {
    const char *name;
    void (*play)(void);
} scenes[] = {
    { "replay: Redis up, away, emptied and hung between any two steps", sequential_replay },
    { "replay: cached again when Redis is back", replay_after_recovery },
    { "another method or fingerprint is a mismatch", mismatch },
    { "an undecided one is waited for, and commits", undecided_commits },
    { "an undecided one rolls back, and hands over", undecided_rolls_back },
    { "a lock that takes too long is in progress", lock_timeout },
    { "a storm of retries on one stuck request costs one connection", retry_storm },
    { "coord absorbs who comes while somebody is on it", coord_absorbs },
    { "of many at once, one runs", crowd },
    { "kill -9 before COMMIT: nothing happened", killed_before_commit },
    { "kill -9 after COMMIT: it happened once", killed_after_commit },
    { "COMMIT applied, its answer lost", commit_answer_lost },
    { "COMMIT lost", commit_lost },
    { "COMMIT, and nobody can be asked", commit_unknown },
    { "the server ends the session", backend_ended },
    { "a failover that lost the row: what is cached is not served", failover },
    { "an expired marker does not block", expired },
    { "PgBouncer in transaction mode", bouncer },
    { "the replay cache of a daemon", daemon_keeps },
    { "the caller's own transaction, at every isolation level", own_transaction },
    { "functions that fail, and that end the transaction", functions },
    { "an internal mutation pays nothing", internal },
    { "misuse is said before anything happens", misuse },
    { "long responses", long_responses },
    { "compare-and-set", version_retry },
};

int scenes_main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    admin = pg_open(postgres_url());
    stage_install(admin);
    line_open(&redis_at, env_of("ONCE_TEST_REDIS"));
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        if (argc > 1 && !strstr(scenes[i].name, argv[1])) continue;
        failed = false;
        scenes[i].play();
        redis_is(REDIS_UP);
        tap_result(!failed, "mutations: %s", scenes[i].name);
    }
    line_close(&redis_at);
    PQfinish(admin);
    return tap_end();
}
