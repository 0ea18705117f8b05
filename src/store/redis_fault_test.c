/* redis_fault_test.c - what the redis store says when the server fails it: each failure is made in a
 * real one of our own, at the moment that matters; deadlines pass when the test lets them. */
#include "store/redis.h"

#include "tests/support/coord.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TIMEOUT_MS = 100, OPS = 200 };

static struct coord coord;
static struct store *s;

static void setup(void)
{
    coord_init_private(&coord, SERVER_REDIS,
                       "enable-debug-command yes\n"
                       "loading-process-events-interval-bytes 1024\n"
                       "rdbcompression no");
    s = coord_open(&coord, "&connections=2");
}

static void teardown(void)
{
    coord_close(&coord, s);
    coord_fini(&coord);
}

TestSuite(redis_fault, .init = setup, .fini = teardown, .timeout = 120);

static enum outcome outcome(enum verb verb, const char *name, uint8_t who)
{
    return coord_do(&coord, s, verb, name, who, NULL).outcome;
}

static void expect_refused(enum verb verb, int code, const char *text)
{
    struct err err = coord_fails(&coord, s, verb, "refused", 1);
    cr_expect(err.code == code, "%d %s", err.code, err.text);
    cr_expect(strstr(err.text, text), "%s", err.text);
}

static const struct redis *inside(void)
{
    return (const struct redis *)s;
}

/* Commands that may write are held back by the server; the admin's are not. */
static void hold(void)
{
    cr_assert_str_eq(coord_ask(&coord, "CLIENT PAUSE 1000000 WRITE"), "OK");
}

static void let_go(void)
{
    cr_assert_str_eq(coord_ask(&coord, "CLIENT UNPAUSE"), "OK");
}

static long long number_of(const char *info)
{
    redisReply *reply = coord_reply(&coord, "INFO");
    const char *at = strstr(reply->str, info);
    cr_assert(at, "%s", info);
    long long n = atoll(at + strlen(info));
    freeReplyObject(reply);
    return n;
}

/* So many of our commands have reached the server, and wait there. */
static void until_held(long long count)
{
    COORD_UNTIL(&coord, number_of("\nblocked_clients:") == count);
}

static void connect_all(void)
{
    COORD_UNTIL(&coord, inside()->seed_node->lanes[0].conn.state == CONN_READY &&
                            inside()->seed_node->lanes[1].conn.state == CONN_READY);
}

static void use_both_connections(void)
{
    char name[16];
    for (int i = 0; i < 16; i++) {
        snprintf(name, sizeof name, "use-%d", i);
        outcome(VERB_PEEK, name, 0);
    }
    connect_all();
}

/* ---- the script ---- */

Test(redis_fault, script_flushed_under_pipelined_ops_is_loaded_again_and_order_is_kept)
{
    static struct asked first[OPS], second[OPS];
    char name[16];
    use_both_connections();
    hold();
    for (int i = 0; i < OPS; i++) {
        snprintf(name, sizeof name, "k%d", i);
        asked_start(&first[i], s, coord_op(VERB_CLAIM, name, 1, NULL));
        asked_start(&second[i], s, coord_op(VERB_CLAIM, name, 2, NULL));
    }
    until_held(2);
    coord_ask(&coord, "SCRIPT FLUSH");
    let_go();
    for (int i = 0; i < OPS; i++) {
        COORD_UNTIL(&coord, first[i].finished && second[i].finished);
        cr_expect(first[i].op->err.code == 0 && first[i].op->out.outcome == OUTCOME_CLAIMED);
        cr_expect(second[i].op->err.code == 0 &&
                  second[i].op->out.outcome == OUTCOME_IN_PROGRESS);
        asked_end(&first[i]);
        asked_end(&second[i]);
    }
}

Test(redis_fault, connection_lost_while_the_script_is_loaded_again)
{
    struct asked claim;
    use_both_connections();
    coord_ask(&coord, "SCRIPT FLUSH");
    asked_start(&claim, s, coord_op(VERB_CLAIM, "k", 1, NULL));
    while (!inside()->seed_node->lanes[0].reloading &&
           !inside()->seed_node->lanes[1].reloading && !claim.finished)
        loop_turn(&coord.world.loop, coord.world.mono_ms);
    coord_ask(&coord, "CLIENT KILL TYPE normal SKIPME yes");
    coord_turn(&coord);
    coord_pass(&coord, 10); /* the first pause before it connects again */
    COORD_UNTIL(&coord, claim.finished);
    if (claim.op->err.code) /* it had been sent again already */
        cr_expect(claim.op->err.code == ERR_AMBIGUOUS, "%s", claim.op->err.text);
    asked_end(&claim);
    coord_revive(&coord, s);
    cr_expect(outcome(VERB_CLAIM, "k", 1) == OUTCOME_CLAIMED);
}

/* ---- connections ---- */

Test(redis_fault, connection_lost_with_ops_in_flight_is_ambiguous_for_what_may_have_changed)
{
    static const enum verb verbs[] = { VERB_CLAIM,  VERB_PUBLISH, VERB_RELEASE, VERB_RENEW,
                                       VERB_FORGET, VERB_PEEK,    VERB_WATCH,   VERB_PING };
    enum { COUNT = sizeof verbs / sizeof verbs[0] };
    struct asked asked[COUNT];
    use_both_connections();
    hold();
    for (size_t i = 0; i < COUNT; i++)
        asked_start(&asked[i], s, coord_op(verbs[i], verb_info[verbs[i]].name, 1, NULL));
    coord_turn(&coord);
    COORD_UNTIL(&coord, number_of("\nblocked_clients:") > 0);
    coord_ask(&coord, "CLIENT KILL TYPE normal SKIPME yes");
    for (size_t i = 0; i < COUNT; i++) {
        COORD_UNTIL(&coord, asked[i].finished);
        int code = verb_info[verbs[i]].writes ? ERR_AMBIGUOUS : ERR_UNAVAILABLE;
        cr_expect(asked[i].op->err.code == code, "%s: %d %s", verb_info[verbs[i]].name,
                  asked[i].op->err.code, asked[i].op->err.text);
        asked_end(&asked[i]);
    }
    let_go();
    coord_pass(&coord, 10); /* one that had worked is worth waiting for */
    cr_expect(outcome(VERB_PEEK, "claim", 0) == OUTCOME_ABSENT);
}

Test(redis_fault, write_to_a_peer_that_is_gone_does_not_end_the_program)
{
    char url[128];
    snprintf(url, sizeof url, "redis:%s/redis/socket?connections=2", coord.dir);
    struct store *t = coord_open_url(&coord, url);
    coord_do(&coord, t, VERB_PING, "", 0, NULL);
    struct node *n = ((struct redis *)t)->seed_node;
    coord_ask(&coord, "CLIENT KILL TYPE normal SKIPME yes");
    signal(SIGPIPE, SIG_DFL);
    for (unsigned i = 0; i < 2; i++)
        if (n->lanes[i].conn.state == CONN_READY) conn_ping(&n->lanes[i].conn);
    cr_expect(n->lanes[0].conn.state != CONN_READY && n->lanes[1].conn.state != CONN_READY);
    coord_revive(&coord, t);
    coord_close(&coord, t);
}

static int listening(bool listens, char *ret_url, size_t len)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t at_len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    cr_assert(getsockname(fd, (struct sockaddr *)&at, &at_len) == 0);
    cr_assert(!listens || listen(fd, 8) == 0);
    snprintf(ret_url, len, "redis://127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

Test(redis_fault, refused_connection_is_told_at_once_and_from_then_on_too)
{
    char url[64];
    int fd = listening(false, url, sizeof url);
    struct store *t = coord_open_url(&coord, url);
    struct asked claim;
    for (int i = 0; i < 3; i++) {
        asked_start(&claim, t, coord_op(VERB_CLAIM, "k", 1, NULL));
        COORD_UNTIL(&coord, claim.finished); /* without any time passing */
        cr_expect(claim.op->err.code == ERR_UNAVAILABLE);
        cr_expect(strstr(claim.op->err.text, "refused"), "%s", claim.op->err.text);
        asked_end(&claim);
    }
    coord_close(&coord, t);
    close(fd);
}

Test(redis_fault, socket_that_is_not_there)
{
    struct store *t = coord_open_url(&coord, "redis:/nowhere/redis.sock");
    struct err err = coord_fails(&coord, t, VERB_CLAIM, "k", 1);
    cr_expect(err.code == ERR_UNAVAILABLE && strstr(err.text, "/nowhere/redis.sock"), "%s",
              err.text);
    coord_close(&coord, t);
}

/* Who listens and never answers: it connects, and that is all. */
Test(redis_fault, greeting_without_an_answer_ends_at_the_deadline_and_may_be_closed)
{
    char url[64];
    int fd = listening(true, url, sizeof url);
    struct store *t = coord_open_url(&coord, url);
    struct asked claim, list;
    struct op *scan = coord_op(VERB_SCAN, "", 0, NULL);
    scan->limit = 1;
    asked_start(&claim, t, coord_op(VERB_CLAIM, "k", 1, NULL));
    asked_start(&list, t, scan);
    const struct conn *c = &((struct redis *)t)->seed_node->lanes[0].conn;
    COORD_UNTIL(&coord, c->state == CONN_GREETING);
    coord_pass(&coord, TIMEOUT_MS - 1);
    cr_expect(!claim.finished && !list.finished);
    coord_pass(&coord, 1);
    cr_expect(claim.finished && list.finished);
    cr_expect(claim.op->err.code == ERR_UNAVAILABLE, "%s", claim.op->err.text);
    cr_expect(list.op->err.code == ERR_UNAVAILABLE, "%s", list.op->err.text);
    asked_end(&claim);
    asked_end(&list);
    asked_start(&claim, t, coord_op(VERB_CLAIM, "k", 1, NULL));
    coord_turn(&coord); /* the next one does not pay for it */
    cr_expect(claim.finished && claim.op->err.code == ERR_UNAVAILABLE);
    asked_end(&claim);
    coord_close(&coord, t);
    close(fd);
}

/* ---- a server that hangs ---- */

Test(redis_fault, hung_server_costs_one_deadline_and_not_the_next_ones)
{
    struct asked claim, later;
    use_both_connections();
    hold();
    asked_start(&claim, s, coord_op(VERB_CLAIM, "k", 1, NULL));
    until_held(1);
    coord_pass(&coord, TIMEOUT_MS - 1);
    cr_expect(!claim.finished);
    coord_pass(&coord, 1);
    cr_expect(claim.finished && claim.op->err.code == ERR_AMBIGUOUS, "%s", claim.op->err.text);
    asked_start(&later, s, coord_op(VERB_CLAIM, "k", 2, NULL));
    coord_turn(&coord);
    cr_expect(later.finished && later.op->err.code == ERR_UNAVAILABLE, "%s",
              later.op->err.text);
    asked_end(&claim);
    asked_end(&later);
    let_go();
    coord_revive(&coord, s);
    COORD_UNTIL(&coord, !inside()->seed_node->lanes[0].conn.silent &&
                            !inside()->seed_node->lanes[1].conn.silent);
    /* What was ambiguous had been on its way: the token that asked owns it. */
    cr_expect(outcome(VERB_CLAIM, "k", 2) == OUTCOME_IN_PROGRESS);
    cr_expect(outcome(VERB_CLAIM, "k", 1) == OUTCOME_CLAIMED);
}

Test(redis_fault, connection_that_hangs_for_some_deadlines_is_made_anew)
{
    struct asked claim;
    use_both_connections();
    hold();
    asked_start(&claim, s, coord_op(VERB_CLAIM, "k", 1, NULL));
    until_held(1);
    for (int i = 0; i < 4; i++) coord_pass(&coord, TIMEOUT_MS);
    cr_expect(inside()->seed_node->lanes[0].conn.state != CONN_READY ||
              inside()->seed_node->lanes[1].conn.state != CONN_READY);
    asked_end(&claim);
    let_go();
    coord_revive(&coord, s);
    cr_expect(outcome(VERB_PEEK, "other", 0) == OUTCOME_ABSENT);
}

/* ---- a server that refuses ---- */

Test(redis_fault, wrong_password_is_told_and_the_right_one_works_later)
{
    cr_assert_str_eq(coord_ask(&coord, "CONFIG SET requirepass right"), "OK");
    expect_refused(VERB_CLAIM, ERR_UNAVAILABLE, "NOAUTH");
    char url[300];
    const char *address = coord.url + strlen("redis://");
    snprintf(url, sizeof url, "redis://:hunter2@%s", address);
    struct store *t = coord_open_url(&coord, url);
    struct err err = coord_fails(&coord, t, VERB_CLAIM, "k", 1);
    cr_expect(err.code == ERR_UNAVAILABLE && strstr(err.text, "WRONGPASS"), "%s", err.text);
    cr_expect(!strstr(err.text, "hunter2"), "%s", err.text);
    cr_assert_str_eq(coord_ask(&coord, "CONFIG SET requirepass hunter2"), "OK");
    coord_revive(&coord, t);
    cr_expect(coord_do(&coord, t, VERB_CLAIM, "k", 1, NULL).outcome == OUTCOME_CLAIMED);
    coord_close(&coord, t);
}

Test(redis_fault, password_that_changes_counts_from_the_next_connection_on)
{
    use_both_connections();
    cr_assert_str_eq(coord_ask(&coord, "CONFIG SET requirepass other"), "OK");
    cr_expect(outcome(VERB_CLAIM, "k", 1) == OUTCOME_CLAIMED);
    coord_ask(&coord, "CLIENT KILL TYPE normal SKIPME yes");
    coord_turn(&coord);
    COORD_UNTIL(&coord, inside()->seed_node->lanes[0].conn.state == CONN_DOWN &&
                            inside()->seed_node->lanes[1].conn.state == CONN_DOWN);
    coord_pass(&coord, 10);
    expect_refused(VERB_CLAIM, ERR_UNAVAILABLE, "NOAUTH");
    cr_assert_str_eq(coord_ask(&coord, "CONFIG SET requirepass %s", ""), "OK");
    coord_revive(&coord, s);
    cr_expect(outcome(VERB_CLAIM, "k", 1) == OUTCOME_CLAIMED);
}

Test(redis_fault, user_who_may_not_ask_what_it_is_talking_to)
{
    char url[300];
    coord_ask(&coord, "ACL SETUSER joe on >pw ~* &* +@all -info");
    snprintf(url, sizeof url, "redis://joe:pw@%s", coord.url + strlen("redis://"));
    struct store *t = coord_open_url(&coord, url);
    struct err err = coord_fails(&coord, t, VERB_CLAIM, "k", 1);
    cr_expect(err.code == ERR_UNAVAILABLE && strstr(err.text, "NOPERM"), "%s", err.text);
    coord_close(&coord, t);
}

Test(redis_fault, message_that_may_not_be_sent_does_not_undo_the_record)
{
    char url[300];
    struct asked watch;
    coord_ask(&coord, "ACL SETUSER joe on >pw ~* resetchannels +@all");
    snprintf(url, sizeof url, "redis://joe:pw@%s", coord.url + strlen("redis://"));
    struct store *t = coord_open_url(&coord, url);
    cr_expect(coord_do(&coord, t, VERB_CLAIM, "k", 1, NULL).outcome == OUTCOME_CLAIMED);
    coord_watch(&coord, s, "k", &watch);
    cr_expect(coord_do(&coord, t, VERB_PUBLISH, "k", 1, "v").outcome == OUTCOME_OK);
    cr_expect(outcome(VERB_PEEK, "k", 0) == OUTCOME_CACHED);
    coord_pass(&coord, 2000); /* the net */
    COORD_UNTIL(&coord, watch.finished);
    asked_end(&watch);
    coord_close(&coord, t);
}

Test(redis_fault, memory_that_is_full_changes_nothing)
{
    cr_expect(outcome(VERB_CLAIM, "there", 1) == OUTCOME_CLAIMED);
    coord_ask(&coord, "CONFIG SET maxmemory 1");
    expect_refused(VERB_CLAIM, ERR_UNAVAILABLE, "OOM");
    cr_expect(outcome(VERB_CLAIM, "there", 2) == OUTCOME_IN_PROGRESS);
    struct err err = coord_fails(&coord, s, VERB_PUBLISH, "there", 1);
    cr_expect(err.code == ERR_UNAVAILABLE, "%s", err.text);
    coord_ask(&coord, "CONFIG SET maxmemory 0");
    cr_expect(outcome(VERB_PEEK, "refused", 0) == OUTCOME_ABSENT);
    cr_expect(outcome(VERB_PEEK, "there", 0) == OUTCOME_IN_PROGRESS);
}

Test(redis_fault, replica_is_not_written_to_and_counts_as_away)
{
    cr_expect(outcome(VERB_CLAIM, "k", 1) == OUTCOME_CLAIMED);
    coord_ask(&coord, "REPLICAOF 127.0.0.1 1");
    expect_refused(VERB_CLAIM, ERR_UNAVAILABLE, "READONLY");
    coord_pass(&coord, 10);
    COORD_UNTIL(&coord, inside()->seed_node->lanes[0].conn.failures > 0 ||
                            inside()->seed_node->lanes[1].conn.failures > 0);
    expect_refused(VERB_CLAIM, ERR_UNAVAILABLE, "replica");
    coord_ask(&coord, "REPLICAOF NO ONE");
    coord_revive(&coord, s);
    cr_expect(outcome(VERB_PEEK, "refused", 0) == OUTCOME_ABSENT);
}

Test(redis_fault, server_that_loads_its_data_is_unavailable_until_it_has)
{
    use_both_connections();
    coord_ask(&coord, "DEBUG POPULATE 20000 filler 100");
    coord_ask(&coord, "CONFIG SET key-load-delay 500");
    redisContext *loader = coord_connect(coord.url);
    int done = 0;
    cr_assert(redisAppendCommand(loader, "DEBUG RELOAD") == REDIS_OK);
    while (!done) cr_assert(redisBufferWrite(loader, &done) == REDIS_OK);
    while (strncmp(coord_ask(&coord, "GET x"), "LOADING", 7) != 0)
        ;
    expect_refused(VERB_CLAIM, ERR_UNAVAILABLE, "LOADING");
    coord_ask(&coord, "CONFIG SET key-load-delay 0");
    redisReply *reply;
    cr_assert(redisGetReply(loader, (void **)&reply) == REDIS_OK);
    freeReplyObject(reply);
    redisFree(loader);
    coord_revive(&coord, s);
    cr_expect(outcome(VERB_CLAIM, "refused", 2) == OUTCOME_CLAIMED);
}

/* ---- amnesia ---- */

Test(redis_fault, flush_is_told_by_the_epoch_and_fences_go_on)
{
    struct answer before = coord_do(&coord, s, VERB_CLAIM, "k", 1, NULL);
    struct asked claim;
    coord_ask(&coord, "FLUSHALL");
    uint64_t epoch = s->epoch;
    coord_pass(&coord, 1);
    asked_start(&claim, s, coord_op(VERB_CLAIM, "k", 2, NULL));
    COORD_UNTIL(&coord, claim.finished);
    cr_expect(claim.op->out.outcome == OUTCOME_CLAIMED);
    cr_expect(claim.op->epoch != epoch);
    cr_expect(claim.op->out.fence > before.fence);
    asked_end(&claim);
    cr_expect(outcome(VERB_PUBLISH, "k", 1) == OUTCOME_LOST);
}

Test(redis_fault, watch_of_what_was_flushed_is_woken_by_the_net)
{
    struct asked watch;
    outcome(VERB_CLAIM, "k", 1);
    coord_watch(&coord, s, "k", &watch);
    coord_ask(&coord, "FLUSHALL");
    coord_turn(&coord);
    cr_expect(!watch.finished);
    coord_pass(&coord, 2000);
    COORD_UNTIL(&coord, watch.finished);
    cr_expect(watch.op->err.code == 0 && watch.op->out.version == 0);
    asked_end(&watch);
}

/* ---- messages that are lost ---- */

Test(redis_fault, watch_is_woken_by_a_message_sent_while_the_subscription_was_cut)
{
    struct coord other;
    struct asked watch;
    coord_init_beside(&other, &coord);
    struct store *t = coord_open(&other, "");
    coord_do(&other, t, VERB_CLAIM, "k", 1, NULL);
    coord_watch(&coord, s, "k", &watch);
    cr_expect_str_eq(coord_ask(&coord, "CLIENT KILL TYPE pubsub"), "1");
    coord_do(&other, t, VERB_PUBLISH, "k", 1, "v"); /* nobody hears it */
    coord_turn(&coord);
    COORD_UNTIL(&coord, inside()->inbox_conn.state == CONN_DOWN);
    cr_expect(!watch.finished);
    coord_pass(&coord, 10); /* connects again, long before the net looks */
    COORD_UNTIL(&coord, watch.finished);
    cr_expect(watch.op->err.code == 0 && watch.op->out.outcome == OUTCOME_CACHED);
    asked_end(&watch);
    coord_close(&other, t);
    coord_fini(&other);
}

Test(redis_fault, parked_watch_outlives_the_command_connections)
{
    struct coord other;
    struct asked watch;
    coord_init_beside(&other, &coord);
    struct store *t = coord_open(&other, "");
    coord_do(&other, t, VERB_CLAIM, "k", 1, NULL);
    coord_watch(&coord, s, "k", &watch);
    coord_ask(&coord, "CLIENT KILL TYPE normal SKIPME yes");
    redisFree(other.admin); /* it was killed, too */
    other.admin = coord_connect(other.url);
    coord_turn(&coord);
    coord_revive(&other, t);
    cr_expect(!watch.finished);
    coord_do(&other, t, VERB_PUBLISH, "k", 1, "v");
    COORD_UNTIL(&coord, watch.finished);
    cr_expect(watch.op->err.code == 0, "%s", watch.op->err.text);
    asked_end(&watch);
    coord_close(&other, t);
    coord_fini(&other);
}

Test(redis_fault, silent_subscription_is_made_anew)
{
    struct asked watch;
    outcome(VERB_CLAIM, "k", 1);
    coord_watch(&coord, s, "k", &watch);
    long long before = number_of("\ntotal_connections_received:");
    ((struct redis *)s)->inbox_pinged = true; /* and nothing came since */
    coord_pass(&coord, 2000);
    COORD_UNTIL(&coord, inside()->inbox_conn.state == CONN_DOWN);
    coord_pass(&coord, 10);
    COORD_UNTIL(&coord, coord_listens(&coord, s));
    cr_expect(number_of("\ntotal_connections_received:") == before + 1);
    cr_expect(!watch.finished);
    outcome(VERB_RELEASE, "k", 1);
    COORD_UNTIL(&coord, watch.finished);
    asked_end(&watch);
}

/* ---- walks ---- */

static struct op *walk_op(enum verb verb, size_t limit)
{
    struct op *op = coord_op(verb, "", 0, NULL);
    op->all_scopes = true;
    op->limit = limit;
    return op;
}

static void claim_many(unsigned count)
{
    char name[16];
    struct asked last;
    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "k%u", i);
        asked_start(&last, s, coord_op(VERB_CLAIM, name, 1, NULL));
        COORD_UNTIL(&coord, last.finished);
        asked_end(&last);
    }
}

/* As docs/planes.md has it. */
Test(redis_fault, user_with_no_more_rights_than_needed)
{
    char url[300];
    coord_ask(&coord,
              "ACL SETUSER joe on >pw ~t:* &t:* -@all +@connection +evalsha +script|load"
              " +hmget +hget +hset +hdel +hscan +pexpire +publish +subscribe +time +info");
    snprintf(url, sizeof url, "redis://joe:pw@%s", coord.url + strlen("redis://"));
    struct store *t = coord_open_url(&coord, url);
    struct asked watch, list, sweep;
    cr_expect(coord_do(&coord, t, VERB_CLAIM, "k", 1, NULL).outcome == OUTCOME_CLAIMED);
    coord_watch(&coord, t, "k", &watch);
    cr_expect(coord_do(&coord, t, VERB_PUBLISH, "k", 1, "v").outcome == OUTCOME_OK);
    COORD_UNTIL(&coord, watch.finished);
    asked_start(&list, t, walk_op(VERB_SCAN, 10));
    COORD_UNTIL(&coord, list.finished);
    cr_expect(list.op->scan.count == 1, "%s", list.op->err.text);
    struct op *routine = walk_op(VERB_EXPIRE, 10);
    routine->routine = true;
    coord.world.wall_ms += 10 * ABANDONED_KEEP_MS;
    asked_start(&sweep, t, routine);
    COORD_UNTIL(&coord, sweep.finished);
    cr_expect(routine->count == 1, "%s", routine->err.text);
    asked_end(&watch);
    asked_end(&list);
    asked_end(&sweep);
    coord_close(&coord, t);
}

Test(redis_fault, list_goes_on_after_a_lost_connection)
{
    struct asked list;
    claim_many(300);
    hold();
    asked_start(&list, s, walk_op(VERB_SCAN, 1000));
    until_held(1);
    coord_ask(&coord, "CLIENT KILL TYPE normal SKIPME yes");
    coord_turn(&coord);
    let_go();
    int64_t until_ms = coord_patience();
    for (coord_pass(&coord, 10); !list.finished; coord_turn(&coord))
        coord_sleep(&coord, until_ms);
    cr_expect(list.op->err.code == 0 && list.op->scan.count == 300, "%s", list.op->err.text);
    asked_end(&list);
}

Test(redis_fault, list_that_is_not_answered_is_an_error)
{
    struct asked list;
    claim_many(50);
    hold();
    asked_start(&list, s, walk_op(VERB_SCAN, 100));
    for (int i = 0; i < 4; i++) {
        cr_expect(i == 0 || list.finished || inside()->in_flight > 0);
        coord_pass(&coord, TIMEOUT_MS);
    }
    cr_expect(list.finished && list.op->err.code == ERR_UNAVAILABLE);
    cr_expect(list.op->scan.count == 0);
    asked_end(&list);
    let_go();
    coord_revive(&coord, s);
}

Test(redis_fault, sweep_whose_connections_are_cut_at_any_moment_ends_once)
{
    claim_many(600);
    coord_pass(&coord, COORD_LEASE_MS + ABANDONED_KEEP_MS);
    for (int moment = 0; moment < 12; moment++) {
        struct asked sweep;
        asked_start(&sweep, s, walk_op(VERB_EXPIRE, 1000));
        for (int i = 0; i < moment && !sweep.finished; i++) {
            loop_sleep(&coord.world.loop, 10);
            loop_turn(&coord.world.loop, coord.world.mono_ms);
        }
        coord_ask(&coord, "CLIENT KILL TYPE normal SKIPME yes");
        int64_t until_ms = coord_patience();
        for (coord_turn(&coord); !sweep.finished; coord_pass(&coord, 5))
            coord_sleep(&coord, until_ms);
        asked_end(&sweep);
        coord_revive(&coord, s);
    }
}
