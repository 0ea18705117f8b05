/* scenes.c - what must happen to a mutation, each fault at the moment that matters. Every scene has
 * requests of its own, so that nothing has to be emptied in between; time is never waited for where
 * there is an event. Prints TAP. */
#include "tests/mutations/scenes.h"

#include "base/check.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

PGconn *admin;               /* looks, and breaks things */
static struct line redis_at; /* in front of Redis */
bool scene_failed;           /* the scene that is played */

const char *postgres_url(void)
{
    return env_of("ONCE_TEST_POSTGRES");
}

struct once_db db_of(PGconn *pg)
{
    return (struct once_db){ .pg = pg };
}

long long applied(const char *request)
{
    return pg_count(admin, "SELECT count(*) FROM applied WHERE request = '%s'", request);
}

struct trial try_with(struct once *o, PGconn *pg, const struct once_mutation *in, struct use *u)
{
    struct trial t = { 0 };
    t.result = once_mutate(o, db_of(pg), in, use_item, u, &t.answer);
    snprintf(t.value, sizeof t.value, "%.*s", (int)t.answer.value.len,
             (const char *)t.answer.value.data);
    t.answer.value = (struct once_bytes){ t.value, strlen(t.value) };
    blob_unref(t.answer.owner);
    t.answer.owner = NULL;
    return t;
}

struct trial try_it(struct once *o, PGconn *pg, const char *request)
{
    struct use u;
    struct once_mutation in = mutation_of(request);
    use_init(&u, request);
    return try_with(o, pg, &in, &u);
}

const char *told(const struct trial *t)
{
    static char text[480];
    snprintf(text, sizeof text, "%d %s \"%s\"%s%s: %s", t->result,
             t->answer.outcome ? once_outcome_name(t->answer.outcome) : "no answer", t->value,
             t->answer.in_database ? " in the database" : "",
             t->answer.degraded ? ", degraded" : "", t->answer.error.text);
    return text;
}

const char *name_of(const char *scene, unsigned n)
{
    static char name[80];
    snprintf(name, sizeof name, "%s-%u", scene, n);
    return name;
}

/* ---- Redis ---- */

void redis_is(enum redis_is state)
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

struct once *fresh(void)
{
    return once_on(line_url(&redis_at, env_of("ONCE_TEST_REDIS")));
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
    { "a session that ends while it waits", ended_while_waiting },
    { "a lock that takes too long is in progress", lock_timeout },
    { "a storm of retries on one stuck request costs one connection", retry_storm },
    { "coord absorbs who comes while somebody is on it", coord_absorbs },
    { "of many at once, one runs", crowd },
    { "kill -9 before COMMIT: nothing happened", killed_before_commit },
    { "kill -9 after COMMIT: it happened once", killed_after_commit },
    { "COMMIT applied, its answer lost", commit_answer_lost },
    { "COMMIT lost", commit_lost },
    { "COMMIT lost, and somebody else was waiting", commit_overtaken },
    { "COMMIT, and nobody can be asked", commit_unknown },
    { "COMMIT applied, its answer lost, and the marker's time over", commit_outlived },
    { "COMMIT applied, its answer lost, and other markers on the new connection",
      commit_other_markers },
    { "the server ends the session", backend_ended },
    { "a failover that lost the row: what is cached is not served", failover },
    { "a standby cannot say whether what is cached counts", standby },
    { "a commit that is not flushed is not cached", not_flushed },
    { "an expired marker does not block", expired },
    { "what is cached never outlives the marker", cached_no_longer },
    { "PgBouncer in transaction mode", bouncer },
    { "the replay cache of a daemon", daemon_keeps },
    { "the caller's own transaction, at every isolation level", own_transaction },
    { "functions that fail, and that end the transaction", functions },
    { "no more round trips than BEGIN and COMMIT", no_more_round_trips },
    { "an internal mutation pays nothing", internal },
    { "READ COMMITTED and READ WRITE, whatever the session says", session_defaults },
    { "misuse is said before anything happens", misuse },
    { "what is under way on the connection is refused, or rolled back", under_way },
    { "a request has one name in every client_encoding", encodings },
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
        scene_failed = false;
        scenes[i].play();
        redis_is(REDIS_UP);
        tap_result(!scene_failed, "mutations: %s", scenes[i].name);
    }
    line_close(&redis_at);
    PQfinish(admin);
    return tap_end();
}
