/* scenes_crowd.c - several at once: who waits, who is told to come back, and that one of them runs. */
#include "tests/mutations/scenes.h"

#include "base/check.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- concurrent duplicates ---- */

/* A try on a thread of its own, which stops inside its transaction until it is let go. */
struct actor {
    pthread_t thread;
    struct once *once;
    PGconn *pg;
    struct use use;
    struct once_mutation in;
    struct trial got;
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

static void actor_start_at(struct actor *a, const char *url, struct once *o,
                           const char *request, bool stops)
{
    CHECK(pipe(a->inside) == 0 && pipe(a->go) == 0);
    a->once = o;
    a->pg = pg_open(url);
    use_init(&a->use, request);
    if (stops) a->use.meanwhile = wait_inside;
    a->use.ctx = a;
    a->in = mutation_of(request);
    a->in.lock_ms = 60000;
}

static void actor_start(struct actor *a, struct once *o, const char *request, bool stops)
{
    actor_start_at(a, postgres_url(), o, request, stops);
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

static void actor_join(struct actor *a)
{
    CHECK(pthread_join(a->thread, NULL) == 0);
}

static void actor_close(struct actor *a)
{
    PQfinish(a->pg);
    for (int i = 0; i < 2; i++) close(a->inside[i]), close(a->go[i]);
}

static void actor_end(struct actor *a)
{
    actor_join(a);
    actor_close(a);
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

void undecided_commits(void)
{
    undecided("commits", 0);
}

void undecided_rolls_back(void)
{
    undecided("rolls-back", 7);
}

/* A pooler tells of it twice, the second time instead of the end of what was asked; and only then is the
 * connection gone. */
static void ended_while_waiting_at(const char *url, const char *request)
{
    struct actor a, b;
    actor_start(&a, NULL, request, true);
    actor_start_at(&b, url, NULL, request, false);
    actor_go(&a);
    actor_is_inside(&a);
    actor_go(&b);
    until_waiting(1);
    pg_say(admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                  " WHERE wait_event_type = 'Lock' AND wait_event = 'advisory'");
    actor_join(&b);
    EXPECT(b.got.result == ONCE_EUNAVAILABLE, "%s", told(&b.got));
    actor_let_go(&a);
    actor_end(&a);
    TOLD(a.got, ONCE_OK);
    if (PQstatus(b.pg) != CONNECTION_OK) PQreset(b.pg);
    TOLD(try_it(NULL, b.pg, request), ONCE_ALREADY_DONE);
    EXPECT(applied(request) == 1, "%lld", applied(request));
    actor_close(&b);
}

void ended_while_waiting(void)
{
    ended_while_waiting_at(postgres_url(), "ended-waiting");
    ended_while_waiting_at(env_of("ONCE_TEST_PGBOUNCER"), "ended-waiting-pooled");
}

void lock_timeout(void)
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
    struct trial late = try_with(NULL, pg, &in, &u);
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
void retry_storm(void)
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
void coord_absorbs(void)
{
    struct once *o = fresh();
    PGconn *pg = pg_open(postgres_url());
    struct actor a;
    actor_start(&a, o, "absorbed", true);
    actor_go(&a);
    actor_is_inside(&a);
    struct trial second = try_it(o, pg, "absorbed");
    TOLD(second, ONCE_IN_PROGRESS);
    EXPECT(!second.answer.in_database, "%s", told(&second));
    actor_let_go(&a);
    actor_end(&a);
    struct trial third = try_it(o, pg, "absorbed");
    TOLD(third, ONCE_CACHED);
    EXPECT(strcmp(third.value, a.got.value) == 0, "%s", told(&third));
    once_close(o);
    PQfinish(pg);
}

/* Many at once, each with a handle and a connection of its own. */
void crowd(void)
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
