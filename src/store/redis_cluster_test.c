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

/* ---- the buffer ---- */

static struct run_id run_id_of(unsigned n)
{
    struct run_id id;
    snprintf(id.text, sizeof id.text, "run_%026u", n);
    return id;
}

static struct buffer_ask entry_of(const char *env, unsigned n)
{
    return (struct buffer_ask){ .env = bytes_str(env),
                                .id = run_id_of(n),
                                .key_frame = bytes_str("k"),
                                .run = bytes_str("the run") };
}

/* ACCEPT: by the claim of "k" that owner 1 has. */
static struct err ask_buffer(struct store *to, enum verb verb, struct buffer_ask *ask,
                             enum outcome *ret_outcome)
{
    char scope[80];
    struct asked a;
    snprintf(scope, sizeof scope, "@%.*s", (int)ask->env.len,
             ask->env.len ? (const char *)ask->env.data : "");
    struct key key = key_of(scope, "k");
    struct request in = { .token = token_of(1), .retain_ms = -1 };
    struct op *op = op_new(verb, &key, &in);
    op->buffer = ask;
    asked_start(&a, to, op);
    COORD_UNTIL(&coord, a.finished);
    struct err err = op->err;
    *ret_outcome = op->out.outcome;
    asked_end(&a);
    return err;
}

static enum outcome buffer_outcome(struct store *to, enum verb verb, struct buffer_ask *ask)
{
    enum outcome got;
    struct err err = ask_buffer(to, verb, ask, &got);
    cr_assert(err.code == 0, "%s: %s", verb_info[verb].name, err.text);
    return got;
}

static enum outcome claim_of(const char *env, uint8_t who)
{
    char scope[80];
    struct asked a;
    snprintf(scope, sizeof scope, "@%s", env);
    struct key key = key_of(scope, "k");
    struct request in = { .token = token_of(who), .lease_ms = 1000, .retain_ms = 60000 };
    asked_start(&a, s, op_new(VERB_CLAIM, &key, &in));
    COORD_UNTIL(&coord, a.finished);
    cr_assert(a.op->err.code == 0, "%s", a.op->err.text);
    enum outcome got = a.op->out.outcome;
    asked_end(&a);
    return got;
}

static size_t lease(struct store *from, size_t limit, uint8_t who)
{
    struct buffer_ask ask = { .limit = limit, .token = token_of(who), .lease_ms = 1000 };
    cr_assert(buffer_outcome(from, VERB_DRAIN_LEASE, &ask) == OUTCOME_OK);
    size_t count = ask.entries.count;
    buffer_ask_clear(&ask);
    return count;
}

Test(redis_cluster, claims_and_buffer_of_an_env_share_a_slot_and_envs_are_spread)
{
    bool seen[SHARDS] = { false };
    unsigned shards = 0;
    for (unsigned i = 0; i < 300; i++) {
        char scope[16], name[16];
        snprintf(scope, sizeof scope, "@env-%u", i);
        snprintf(name, sizeof name, "k%u", i * 7);
        struct key key = key_of(scope, name);
        struct op *op = op_new(VERB_CLAIM, &key, NULL);
        unsigned shard = shard_of(inside(), op->frame);
        cr_expect(shard == shard_of_env(inside(), bytes_str(scope + 1)));
        shards += !seen[shard];
        seen[shard] = true;
        op_free(op);
    }
    cr_expect(shards > SHARDS / 2, "%u", shards);
}

Test(redis_cluster, entries_of_many_envs_are_leased_settled_and_counted)
{
    enum { ENVS = 40 };
    char envs[ENVS][16];
    struct settle settles[ENVS];
    for (unsigned i = 0; i < ENVS; i++) {
        snprintf(envs[i], sizeof envs[i], "env-%u", i);
        struct buffer_ask ask = entry_of(envs[i], 1 + i);
        cr_assert(claim_of(envs[i], 1) == OUTCOME_CLAIMED);
        cr_assert(buffer_outcome(s, VERB_ACCEPT, &ask) == OUTCOME_OK);
        settles[i] = (struct settle){ .id = run_id_of(1 + i),
                                      .env = bytes_str(envs[i]),
                                      .how = SETTLE_WRITTEN };
    }
    struct buffer_ask stats = { .env = { 0 } };
    cr_expect(buffer_outcome(s, VERB_BUFFER_STATS, &stats) == OUTCOME_OK);
    cr_expect(stats.queued == ENVS && stats.leased == 0);
    struct store *other = coord_open(&coord, "");
    cr_expect(lease(other, 10, 1) == 10); /* it looks at all of them */
    cr_expect(lease(other, ENVS, 1) == ENVS - 10);
    struct buffer_ask settle = { .token = token_of(1),
                                 .settles = settles,
                                 .settle_count = ENVS };
    cr_expect(buffer_outcome(s, VERB_SETTLE, &settle) == OUTCOME_OK);
    cr_expect(settle.settled == ENVS, "%zu", settle.settled);
    cr_expect(buffer_outcome(s, VERB_BUFFER_STATS, &stats) == OUTCOME_OK);
    cr_expect(stats.queued == 0 && stats.leased == 0);
    coord_close(&coord, other);
}

Test(redis_cluster, what_others_accept_is_found_within_a_second)
{
    struct store *other = coord_open(&coord, "");
    struct buffer_ask ask = entry_of("e", 1);
    cr_expect(lease(other, 10, 1) == 0);
    claim_of("e", 1);
    cr_assert(buffer_outcome(s, VERB_ACCEPT, &ask) == OUTCOME_OK);
    coord_pass(&coord, 1000);
    cr_expect(lease(other, 10, 1) == 1);
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

/* As docs/planes.md has it. */
Test(redis_cluster_change, user_with_no_more_rights_than_needed)
{
    static struct asked asked[RECORDS];
    char url[300];
    struct asked watch, walk;
    for (size_t i = 0; i < MASTERS; i++)
        say(&masters[i],
            "ACL SETUSER joe on >pw ~t:* &t:* -@all +@connection +evalsha"
            " +script|load +hmget +hget +hset +hdel +hscan +pexpire +publish"
            " +subscribe +time +info +cluster|slots +zadd +zrem +zcard +zrangebylex"
            " +zrevrangebylex +llen +lindex +lrange +rpush +lpush +ltrim +del");
    snprintf(url, sizeof url, "redis://joe:pw@%s" PATIENT, coord.url + strlen("redis://"));
    coord_close(&coord, s);
    s = coord_open_url(&coord, url);
    coord_revive(&coord, s);
    submit_all(VERB_CLAIM, asked); /* on every master */
    end_all(asked);
    coord_watch(&coord, s, "k1", &watch);
    cr_expect(coord_do(&coord, s, VERB_PUBLISH, "k1", 1, "v").outcome == OUTCOME_OK);
    COORD_UNTIL(&coord, watch.finished);
    asked_end(&watch);
    run_walk(VERB_SCAN, RECORDS, &walk);
    cr_expect(walk.op->scan.count == RECORDS);
    asked_end(&walk);
    struct buffer_ask ask = entry_of("e", 1);
    cr_expect(claim_of("e", 1) == OUTCOME_CLAIMED);
    cr_expect(buffer_outcome(s, VERB_ACCEPT, &ask) == OUTCOME_OK);
    cr_expect(lease(s, 10, 1) == 1);
}

Test(redis_cluster_change, user_who_may_not_ask_for_slots_is_told_what_is_missing)
{
    char url[300];
    for (size_t i = 0; i < MASTERS; i++)
        say(&masters[i], "ACL SETUSER joe on >pw ~t:* &t:* +@all -cluster|slots");
    snprintf(url, sizeof url, "redis://joe:pw@%s" PATIENT, coord.url + strlen("redis://"));
    coord_close(&coord, s);
    s = coord_open_url(&coord, url);
    struct err err = coord_fails(&coord, s, VERB_CLAIM, "k", 1);
    cr_expect(err.code == ERR_UNAVAILABLE && strstr(err.text, "cluster|slots"), "%s", err.text);
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

/* Up to `most` of its keys go. */
static void move_keys(unsigned slot, struct master *from, struct master *to, int most)
{
    redisReply *keys =
        redisCommand(from->admin, "CLUSTER GETKEYSINSLOT %d %d", (int)slot, most);
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

/* A slot on its way: half of a real migration. */
static void begin_to_move_some(unsigned slot, struct master *from, struct master *to, int most)
{
    char text[128];
    snprintf(text, sizeof text, "CLUSTER SETSLOT %u IMPORTING %s", slot, from->id);
    say(to, text);
    snprintf(text, sizeof text, "CLUSTER SETSLOT %u MIGRATING %s", slot, to->id);
    say(from, text);
    move_keys(slot, from, to, most);
}

static void begin_to_move(unsigned slot, struct master *from, struct master *to)
{
    begin_to_move_some(slot, from, to, 100);
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

/* The buffer is three keys: while they are on both sides, what needs them all is refused, and nothing
 * of it has happened. */
Test(redis_cluster_change, accept_while_its_slot_moves_happens_whole_or_not_at_all)
{
    struct buffer_ask first = entry_of("e", 1), second = entry_of("e", 2);
    enum outcome got = 0;
    claim_of("e", 1);
    cr_assert(buffer_outcome(s, VERB_ACCEPT, &first) == OUTCOME_OK);
    unsigned shard = shard_of_env(inside(), bytes_str("e"));
    char tag[16];
    int len = snprintf(tag, sizeof tag, "%u", shard);
    unsigned slot = crc16(bytes_of(tag, (size_t)len)) % SLOTS;
    struct master *from = NULL;
    for (size_t i = 0; i < MASTERS; i++)
        if (masters[i].port == inside()->slots[slot]->port) from = &masters[i];
    cr_assert(from);
    struct master *to = another(from);
    begin_to_move_some(slot, from, to, 1); /* of three keys */
    second.key_frame = bytes_str("other");
    second.unclaimed = true;
    struct err err = ask_buffer(s, VERB_ACCEPT, &second, &got);
    cr_expect(err.code == ERR_UNAVAILABLE, "%d %s", err.code, err.text);

    move_keys(slot, from, to, 100);
    cr_expect(buffer_outcome(s, VERB_ACCEPT, &second) == OUTCOME_OK); /* ASK */
    end_move(slot, to);
    struct buffer_ask stats = { .env = { 0 } };
    cr_expect(buffer_outcome(s, VERB_BUFFER_STATS, &stats) == OUTCOME_OK);
    cr_expect(stats.queued == 2, "%llu", (unsigned long long)stats.queued);
    cr_expect(claim_of("e", 2) == OUTCOME_ALREADY_DONE);
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
