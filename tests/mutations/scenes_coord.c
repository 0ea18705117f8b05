/* scenes_coord.c - the replay cache: whatever Redis does, and whatever the database has become; who asks for
 * something else; pooled, and through a daemon. */
#include "tests/mutations/scenes.h"

#include "base/check.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Redis up, away, emptied and hung, between any two steps ---- */

static void redis_turns(void *ctx)
{
    redis_is(*(const enum redis_is *)ctx);
}

static bool away(enum redis_is state)
{
    return state == REDIS_DOWN || state == REDIS_HUNG;
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
    struct trial first = try_with(o, pg, &in, &u);
    TOLD(first, ONCE_OK);
    redis_is(at[2]);
    struct trial second = try_it(o, pg, name);
    bool known =
        second.answer.outcome == ONCE_CACHED || second.answer.outcome == ONCE_ALREADY_DONE;
    EXPECT(second.result == 0 && known, "%u%u%u: %s", at[0], at[1], at[2], told(&second));
    EXPECT(strcmp(first.value, second.value) == 0, "%s is not %s", second.value, first.value);
    EXPECT(first.answer.degraded || !(away(at[0]) || away(at[1])), "%u%u%u: %s", at[0], at[1],
           at[2], told(&first));
    bool calm = at[0] == REDIS_UP && at[1] == REDIS_UP && at[2] == REDIS_UP;
    EXPECT(!calm || second.answer.outcome == ONCE_CACHED, "%s", told(&second));
    EXPECT(applied(name) == 1, "%u%u%u: applied %lld times", at[0], at[1], at[2],
           applied(name));
    redis_is(REDIS_UP);
    once_close(o);
}

void sequential_replay(void)
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
void replay_after_recovery(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once *o = fresh();
    redis_is(REDIS_DOWN);
    struct trial first = try_it(o, pg, "recovery-1");
    TOLD(first, ONCE_OK);
    EXPECT(first.answer.degraded, "%s", told(&first));
    redis_is(REDIS_UP);
    struct trial second = { 0 };
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

void mismatch(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once *o = fresh();
    struct once_mutation sell = mutation_of("mismatch");
    struct use u;
    use_init(&u, "mismatch");
    TOLD(try_it(o, pg, "mismatch"), ONCE_OK);
    sell.method = once_str("SellItem");
    struct trial with = try_with(o, pg, &sell, &u), without = try_with(NULL, pg, &sell, &u);
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

/* ---- a failover that lost the row ---- */

void failover(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once *o = fresh();
    struct trial first = try_it(o, pg, "failover"), again = try_it(o, pg, "failover");
    TOLD(first, ONCE_OK);
    TOLD(again, ONCE_CACHED);
    pg_say(admin, "BEGIN; DELETE FROM applied WHERE request = 'failover';"
                  "DELETE FROM once_mutations WHERE request_id = 'failover';"
                  "CREATE OR REPLACE FUNCTION once_mutation_installation() RETURNS text"
                  " LANGUAGE sql IMMUTABLE AS 'SELECT ''after-the-failover'''; COMMIT");
    struct trial after = try_it(o, pg, "failover");
    TOLD(after, ONCE_OK);
    EXPECT(strcmp(after.value, first.value) != 0, "%s", told(&after));
    struct trial last = try_it(o, pg, "failover");
    TOLD(last, ONCE_CACHED);
    EXPECT(strcmp(last.value, after.value) == 0, "%s", told(&last));
    EXPECT(applied("failover") == 1, "%lld", applied("failover"));
    once_close(o);
    PQfinish(pg);
}

/* The function fails as it does on a standby, which has no position to write at. */
void standby(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once *o = fresh();
    TOLD(try_it(o, pg, "standby"), ONCE_OK);
    pg_say(admin, "CREATE TEMP TABLE epoch AS SELECT pg_get_functiondef('once_mutation_epoch'"
                  "::regproc) AS def; CREATE OR REPLACE FUNCTION once_mutation_epoch() RETURNS"
                  " text LANGUAGE plpgsql AS 'BEGIN RAISE SQLSTATE ''55000''; END'");
    struct trial t = try_it(o, pg, "standby");
    EXPECT(t.result == ONCE_EUNAVAILABLE, "%s", told(&t));
    pg_say(admin, "DO 'BEGIN EXECUTE (SELECT def FROM epoch); END'; DROP TABLE epoch");
    TOLD(try_it(o, pg, "standby"), ONCE_CACHED);
    once_close(o);
    PQfinish(pg);
}

static void do_not_flush(void *ctx)
{
    pg_say(ctx, "SET LOCAL synchronous_commit = off");
}

/* The epoch would not tell that a crash has taken the commit back: what is not flushed is not cached. */
void not_flushed(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once *o = fresh();
    pg_say(pg, "SET synchronous_commit = off");
    struct trial first = try_it(o, pg, "not-flushed"), again = try_it(o, pg, "not-flushed");
    TOLD(first, ONCE_OK);
    TOLD(again, ONCE_ALREADY_DONE);
    EXPECT(strcmp(again.value, first.value) == 0 && again.answer.in_database, "%s",
           told(&again));
    pg_say(pg, "RESET synchronous_commit");
    TOLD(try_it(o, pg, "flushed"), ONCE_OK);
    TOLD(try_it(o, pg, "flushed"), ONCE_CACHED);
    struct use u;
    struct once_mutation in = mutation_of("not-flushed-by-fn");
    use_init(&u, "not-flushed-by-fn");
    u.meanwhile = do_not_flush;
    u.ctx = pg;
    TOLD(try_with(o, pg, &in, &u), ONCE_OK);
    TOLD(try_with(o, pg, &in, &u), ONCE_ALREADY_DONE);
    once_close(o);
    PQfinish(pg);
}

void expired(void)
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

/* Its time is counted from before the marker was written, however long the function takes. */
void cached_no_longer(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once *o = fresh();
    struct use u;
    struct once_mutation in = mutation_of("no-longer");
    use_init(&u, "no-longer");
    u.meanwhile = time_passes;
    u.ctx = (void *)"0.3 seconds";
    marker_counts_for("1 second");
    TOLD(try_with(o, pg, &in, &u), ONCE_OK);
    pg_until(admin, "SELECT created_at + once_mutation_ttl() <= clock_timestamp() FROM "
                    "once_mutations WHERE request_id = 'no-longer'");
    u.meanwhile = NULL;
    TOLD(try_with(o, pg, &in, &u), ONCE_OK);
    marker_counts_for("1 hour");
    once_close(o);
    PQfinish(pg);
}

/* ---- PgBouncer in transaction mode ---- */

void bouncer(void)
{
    PGconn *pg = pg_open(env_of("ONCE_TEST_PGBOUNCER")),
           *other = pg_open(env_of("ONCE_TEST_PGBOUNCER"));
    struct once *o = fresh();
    for (unsigned i = 0; i < 20; i++) {
        char name[40];
        snprintf(name, sizeof name, "bouncer-%u", i);
        TOLD(try_it(i % 2 ? o : NULL, pg, name), ONCE_OK);
        struct trial again = try_it(i % 2 ? o : NULL, other, name);
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
    struct trial lost = try_it(NULL, cut, "bouncer-lost");
    EXPECT(lost.result == ONCE_EUNAVAILABLE && applied("bouncer-lost") == 0, "%s", told(&lost));
    PQfinish(cut);
    line_close(&line);
    once_close(o);
    PQfinish(pg);
    PQfinish(other);
}

/* ---- through a daemon ---- */

void daemon_keeps(void)
{
    PGconn *pg = pg_open(postgres_url());
    struct once *o = once_on(env_of("ONCE_TEST_DAEMON")),
                *p = once_on(env_of("ONCE_TEST_DAEMON"));
    struct trial first = try_it(o, pg, "daemon"), second = try_it(p, pg, "daemon");
    TOLD(first, ONCE_OK);
    TOLD(second, ONCE_CACHED);
    EXPECT(strcmp(first.value, second.value) == 0, "%s", told(&second));
    EXPECT(!first.answer.degraded && applied("daemon") == 1, "%s", told(&first));
    once_close(o);
    once_close(p);
    PQfinish(pg);
}
