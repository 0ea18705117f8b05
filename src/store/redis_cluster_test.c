/* redis_cluster_test.c - the redis store on a real cluster of three masters: records on all of them,
 * slots that move, a server that goes. */
#include "store/redis.h"

#include "tests/support/coord.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

enum { MASTERS = 3, RECORDS = 300 };

/* Time is made to pass while answers are on their way: no deadline may be in it. */
#define PATIENT "&timeout_ms=60000"

static struct coord coord;
static struct store *s;

static enum outcome outcome(enum verb verb, const char *name, uint8_t who)
{
    return coord_do(&coord, s, verb, name, who, NULL).outcome;
}

static struct redis *inside(void)
{
    return (struct redis *)s;
}

/* ---- a cluster that is left alone: the one that the suites share ---- */

static void setup_shared(void)
{
    coord_init(&coord, SERVER_CLUSTER);
    s = coord_open(&coord, "");
    coord_revive(&coord, s);
}

static void teardown(void)
{
    coord_close(&coord, s);
    coord_fini(&coord);
}

TestSuite(redis_cluster, .init = setup_shared, .fini = teardown, .timeout = 120);

static int owner_port(const char *name)
{
    struct op *op = coord_op(VERB_PEEK, name, 0, NULL);
    int port = lane_of(inside(), op)->node->port;
    op_free(op);
    return port;
}

static void submit_all(enum verb verb, struct asked *asked)
{
    char name[16];
    for (unsigned i = 0; i < RECORDS; i++) {
        snprintf(name, sizeof name, "k%u", i);
        asked_start(&asked[i], s, coord_op(verb, name, 1, NULL));
    }
    for (unsigned i = 0; i < RECORDS; i++) {
        COORD_UNTIL(&coord, asked[i].finished);
        cr_assert(asked[i].op->err.code == 0, "%s", asked[i].op->err.text);
    }
}

static void end_all(struct asked *asked)
{
    for (unsigned i = 0; i < RECORDS; i++) asked_end(&asked[i]);
}

Test(redis_cluster, ops_in_flight_on_many_shards_reach_every_master)
{
    static struct asked asked[RECORDS];
    int ports[MASTERS] = { 0 };
    submit_all(VERB_CLAIM, asked);
    for (unsigned i = 0; i < RECORDS; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%u", i);
        cr_expect(asked[i].op->out.outcome == OUTCOME_CLAIMED);
        int port = owner_port(name), at = 0;
        while (at < MASTERS && ports[at] && ports[at] != port) at++;
        cr_assert(at < MASTERS);
        ports[at] = port;
    }
    cr_expect(ports[MASTERS - 1] != 0);
    end_all(asked);
    submit_all(VERB_RENEW, asked);
    end_all(asked);
}

static void run_walk(enum verb verb, size_t limit, struct asked *ret_walk)
{
    struct op *op = coord_op(verb, "", 0, NULL);
    op->all_scopes = true;
    op->limit = limit;
    asked_start(ret_walk, s, op);
    COORD_UNTIL(&coord, ret_walk->finished);
    cr_assert(op->err.code == 0, "%s", op->err.text);
}

Test(redis_cluster, walk_goes_over_all_masters_in_one_order)
{
    static struct asked asked[RECORDS];
    struct asked walk;
    submit_all(VERB_CLAIM, asked);
    end_all(asked);
    run_walk(VERB_SCAN, RECORDS - 1, &walk);
    cr_expect(walk.op->scan.count == RECORDS - 1 && walk.op->scan.more);
    for (size_t i = 1; i < walk.op->scan.count; i++)
        cr_expect(
            bytes_cmp(walk.op->scan.rows[i - 1].key.name, walk.op->scan.rows[i].key.name) < 0);
    asked_end(&walk);
    run_walk(VERB_STATS, 0, &walk);
    cr_expect(walk.op->stats.pending == RECORDS);
    asked_end(&walk);
    coord_pass(&coord, COORD_LEASE_MS + ABANDONED_KEEP_MS);
    run_walk(VERB_EXPIRE, RECORDS * 2, &walk);
    cr_expect(walk.op->count == RECORDS);
    asked_end(&walk);
}

Test(redis_cluster, word_comes_from_every_master)
{
    struct store *other = coord_open(&coord, "");
    int ports[MASTERS] = { 0 };
    unsigned told = 0;
    for (unsigned i = 0; told < MASTERS; i++) {
        char name[16];
        struct asked watch;
        snprintf(name, sizeof name, "k%u", i);
        bool known = false;
        for (unsigned at = 0; at < told; at++) known = known || ports[at] == owner_port(name);
        if (known) continue;
        ports[told++] = owner_port(name);
        outcome(VERB_CLAIM, name, 1);
        coord_watch(&coord, other, name, &watch);
        coord_do(&coord, s, VERB_PUBLISH, name, 1, "v");
        COORD_UNTIL(&coord, watch.finished);
        cr_expect(watch.op->answers);
        asked_end(&watch);
    }
    coord_close(&coord, other);
}

/* ---- a cluster of our own that changes ---- */

struct master {
    redisContext *admin;
    char id[48];
    int port;
};

static struct master masters[MASTERS];

static void say(struct master *m, const char *text)
{
    redisReply *reply = redisCommand(m->admin, text);
    cr_assert(reply && reply->type != REDIS_REPLY_ERROR, "%s: %s", text,
              reply ? reply->str : m->admin->errstr);
    freeReplyObject(reply);
}

static void meet(struct master *m, int port)
{
    m->port = port;
    m->admin = redisConnect("127.0.0.1", port);
    cr_assert(m->admin && !m->admin->err);
    redisReply *id = redisCommand(m->admin, "CLUSTER MYID");
    snprintf(m->id, sizeof m->id, "%s", id->str);
    freeReplyObject(id);
}

static void setup_private(void)
{
    coord_init_private(&coord, SERVER_CLUSTER, "cluster-require-full-coverage no");
    redisReply *slots = coord_reply(&coord, "CLUSTER SLOTS");
    cr_assert(slots->elements == MASTERS);
    for (size_t i = 0; i < MASTERS; i++)
        meet(&masters[i], (int)slots->element[i]->element[2]->element[1]->integer);
    freeReplyObject(slots);
    s = coord_open(&coord, PATIENT);
    coord_revive(&coord, s);
}

static void teardown_private(void)
{
    for (size_t i = 0; i < MASTERS; i++) redisFree(masters[i].admin);
    teardown();
}

TestSuite(redis_cluster_change, .init = setup_private, .fini = teardown_private,
          .timeout = 120);

static struct master *master_of(const char *name)
{
    int port = owner_port(name);
    for (size_t i = 0; i < MASTERS; i++)
        if (masters[i].port == port) return &masters[i];
    cr_assert(false, "port %d", port);
    return NULL;
}

static unsigned shard(const char *name)
{
    struct op *op = coord_op(VERB_PEEK, name, 0, NULL);
    unsigned n = shard_of(inside(), op->frame);
    op_free(op);
    return n;
}

static unsigned slot_of(const char *name)
{
    char tag[16];
    int len = snprintf(tag, sizeof tag, "%u", shard(name));
    return crc16(bytes_of(tag, (size_t)len)) % SLOTS;
}

/* A slot on its way: half of a real migration. */
static void begin_to_move(unsigned slot, struct master *from, struct master *to)
{
    char text[128];
    snprintf(text, sizeof text, "CLUSTER SETSLOT %u IMPORTING %s", slot, from->id);
    say(to, text);
    snprintf(text, sizeof text, "CLUSTER SETSLOT %u MIGRATING %s", slot, to->id);
    say(from, text);
    redisReply *keys = redisCommand(from->admin, "CLUSTER GETKEYSINSLOT %d 100", (int)slot);
    cr_assert(keys->type == REDIS_REPLY_ARRAY);
    for (size_t i = 0; i < keys->elements; i++) {
        redisReply *reply =
            redisCommand(from->admin, "MIGRATE 127.0.0.1 %d %b 0 5000", to->port,
                         keys->element[i]->str, keys->element[i]->len);
        cr_assert(reply && reply->type == REDIS_REPLY_STATUS, "%s", reply ? reply->str : "");
        freeReplyObject(reply);
    }
    freeReplyObject(keys);
}

static void end_move(unsigned slot, struct master *to)
{
    char text[128];
    snprintf(text, sizeof text, "CLUSTER SETSLOT %u NODE %s", slot, to->id);
    say(to, text);
    for (size_t i = 0; i < MASTERS; i++)
        if (&masters[i] != to && masters[i].admin) say(&masters[i], text);
}

static struct master *another(const struct master *m)
{
    return m == &masters[0] ? &masters[1] : &masters[0];
}

/* Another name of the same shard. */
static void neighbour_of(const char *name, char *ret_name, size_t len)
{
    unsigned n = shard(name);
    for (unsigned i = 0;; i++) {
        snprintf(ret_name, len, "n%u", i);
        if (shard(ret_name) == n) return;
    }
}

Test(redis_cluster_change, slot_that_moves_is_followed)
{
    struct answer claimed = coord_do(&coord, s, VERB_CLAIM, "k", 1, NULL);
    struct master *from = master_of("k"), *to = another(from);
    unsigned slot = slot_of("k");
    char neighbour[16];
    neighbour_of("k", neighbour, sizeof neighbour);

    begin_to_move(slot, from, to);
    cr_expect(owner_port("k") == from->port);
    cr_expect(outcome(VERB_CLAIM, "k", 2) == OUTCOME_IN_PROGRESS); /* ASK */
    cr_expect(outcome(VERB_RENEW, "k", 1) == OUTCOME_OK);
    cr_expect(owner_port("k") == from->port);
    cr_expect(outcome(VERB_CLAIM, neighbour, 1) == OUTCOME_CLAIMED); /* new, while it moves */

    end_move(slot, to);
    struct answer published = coord_do(&coord, s, VERB_PUBLISH, "k", 1, "v"); /* MOVED */
    cr_expect(published.outcome == OUTCOME_OK && published.fence == claimed.fence);
    cr_expect(owner_port("k") == to->port);
    cr_expect(outcome(VERB_CLAIM, neighbour, 2) == OUTCOME_IN_PROGRESS);
}

Test(redis_cluster_change, ops_in_flight_while_their_slot_moves_are_carried_out_once)
{
    enum { COUNT = 50 };
    struct asked asked[COUNT];
    outcome(VERB_CLAIM, "k", 1);
    struct master *from = master_of("k"), *to = another(from);
    unsigned slot = slot_of("k"), claimed = 0;
    begin_to_move(slot, from, to);
    end_move(slot, to);
    outcome(VERB_RELEASE, "k", 1);
    begin_to_move(slot, to, from); /* and back */
    end_move(slot, from);
    for (unsigned i = 0; i < COUNT; i++)
        asked_start(&asked[i], s, coord_op(VERB_CLAIM, "k", (uint8_t)(10 + i), NULL));
    for (unsigned i = 0; i < COUNT; i++) {
        COORD_UNTIL(&coord, asked[i].finished);
        cr_expect(asked[i].op->err.code == 0, "%s", asked[i].op->err.text);
        claimed += asked[i].op->out.outcome == OUTCOME_CLAIMED;
        asked_end(&asked[i]);
    }
    cr_expect(claimed == 1);
    cr_expect(owner_port("k") == from->port);
}

static void name_at(int port, char *ret_name, size_t len)
{
    for (unsigned i = 0;; i++) {
        snprintf(ret_name, len, "k%u", i);
        if (owner_port(ret_name) == port) return;
    }
}

static void shut_down(struct master *m)
{
    redisReply *reply = redisCommand(m->admin, "SHUTDOWN NOSAVE");
    cr_assert(!reply);
    redisFree(m->admin);
    m->admin = NULL;
}

/* The URL's own server goes: the others know who has its slots, and pass on word. */
Test(redis_cluster_change, seed_that_goes_is_not_needed)
{
    struct store *other = coord_open(&coord, PATIENT);
    struct master *seed = NULL, *heir;
    char lost[16], kept[16];
    struct asked watch;
    for (size_t i = 0; i < MASTERS; i++)
        if (masters[i].port == inside()->seed_node->port) seed = &masters[i];
    cr_assert(seed);
    heir = another(seed);
    name_at(seed->port, lost, sizeof lost);
    name_at(heir->port, kept, sizeof kept);
    outcome(VERB_CLAIM, kept, 1);
    coord_watch(&coord, other, kept, &watch);
    unsigned slot = slot_of(lost);
    shut_down(seed);
    redisFree(coord.admin);
    coord.admin = redisConnect("127.0.0.1", heir->port);

    COORD_UNTIL(&coord, !((struct redis *)other)->inbox_conn.subscribed);
    int64_t until_ms = coord_patience();
    for (coord_turn(&coord); !coord_listens(&coord, other); coord_pass(&coord, 100))
        coord_sleep(&coord, until_ms); /* to another server */
    cr_expect(!watch.finished);
    coord_do(&coord, s, VERB_PUBLISH, kept, 1, "v");
    COORD_UNTIL(&coord, watch.finished);
    cr_expect(watch.op->err.code == 0, "%s", watch.op->err.text);
    asked_end(&watch);

    struct asked claim;
    asked_start(&claim, s, coord_op(VERB_CLAIM, lost, 1, NULL));
    for (coord_turn(&coord); !claim.finished; coord_pass(&coord, 100))
        coord_sleep(&coord, until_ms);
    cr_expect(claim.op->err.code == ERR_UNAVAILABLE, "%s", claim.op->err.text);
    asked_end(&claim);
    say(heir, "CLUSTER BUMPEPOCH");
    end_move(slot, heir);
    until_ms = coord_patience();
    for (coord_turn(&coord); owner_port(lost) != heir->port; coord_pass(&coord, 100))
        coord_sleep(&coord, until_ms);
    cr_expect(outcome(VERB_CLAIM, lost, 1) == OUTCOME_CLAIMED);
    coord_close(&coord, other);
}

/* A socket leads to one server; the others are reached as they say. */
Test(redis_cluster_change, through_the_socket_of_one)
{
    static struct asked asked[RECORDS];
    char url[128];
    snprintf(url, sizeof url, "redis:%s/node-1/socket?prefix=t", coord.dir);
    struct store *direct = s;
    s = coord_open_url(&coord, url);
    submit_all(VERB_CLAIM, asked);
    end_all(asked);
    struct store *through = s;
    s = direct;
    submit_all(VERB_PEEK, asked);
    for (unsigned i = 0; i < RECORDS; i++)
        cr_expect(asked[i].op->out.outcome == OUTCOME_IN_PROGRESS);
    end_all(asked);
    coord_close(&coord, through);
}
