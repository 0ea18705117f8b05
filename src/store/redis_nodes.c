/* redis_nodes.c - which server has which record.
 *
 * A single server has one shard with everything in it. In a cluster a record belongs to one of
 * SHARDS shards by its key. A shard is one Redis key, `prefix:{7}`. So whatever one step touches is
 * on one server, and a step may carry several records of a shard. What is claimed for an env, its
 * buffer and its gate are in one shard, `prefix:{7}:buffer` and so on: a run is accepted and its
 * claim published by one step.
 *
 * What is known of the cluster is corrected by the servers (MOVED, and ASK while a slot moves: a shard
 * is one key, so it is always whole, here or there; a step that needs several is refused while they
 * are on both sides), and asked for again, of any server that is there, when one is not. */
#include "base/check.h"
#include "base/map.h"
#include "store/redis.h"

#include <stdio.h>
#include <stdlib.h>

enum { SLOTS_AGAIN_MS = 1000 };

/* CRC-16/XMODEM, bit by bit: it is asked for shards, not for keys. */
uint16_t crc16(struct bytes content)
{
    uint16_t crc = 0;
    for (size_t i = 0; i < content.len; i++) {
        crc = (uint16_t)(crc ^ content.data[i] << 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc;
}

unsigned shard_count(const struct redis *r)
{
    return r->clustered ? SHARDS : 1;
}

void whole_frame(unsigned shard, uint8_t out[WHOLE_FRAME_BYTES])
{
    out[0] = 0;
    out[1] = (uint8_t)shard;
    out[2] = (uint8_t)(shard >> 8);
}

bool is_whole_frame(struct bytes frame)
{
    return frame.len == WHOLE_FRAME_BYTES && frame.data[0] == 0;
}

/* The same in every process, so the hash has a fixed seed. */
static unsigned shard_by(struct bytes content)
{
    return (unsigned)(siphash13((uint64_t[2]){ 0, 0 }, content) % SHARDS);
}

/* A scope that begins so is that of an env: nobody else can have one. */
static bool is_of_env(struct bytes frame)
{
    return frame.len > 1 && frame.data[0] < frame.len && frame.data[1] == '@';
}

unsigned shard_of(const struct redis *r, struct bytes frame)
{
    if (!r->clustered) return 0;
    if (is_whole_frame(frame)) return frame.data[1] | (unsigned)frame.data[2] << 8;
    if (is_of_env(frame)) return shard_by(bytes_of(frame.data + 1, frame.data[0]));
    return shard_by(frame);
}

unsigned shard_of_env(const struct redis *r, struct bytes env)
{
    uint8_t scope[1 + ENV_BYTES_MAX] = "@";
    CHECK(env.len <= ENV_BYTES_MAX);
    if (env.len) memcpy(scope + 1, env.data, env.len);
    return r->clustered ? shard_by(bytes_of(scope, 1 + env.len)) : 0;
}

static bool is_about_env(const struct op *op)
{
    if (op->verb == VERB_GATE) return true;
    return verb_is_buffer(op->verb) && !is_whole_frame(op->frame);
}

static struct bytes env_of(const struct op *op)
{
    return op->verb == VERB_GATE ? op->gate->env : op->buffer->env;
}

unsigned shard_of_op(const struct redis *r, const struct op *op)
{
    if (is_about_env(op)) return shard_of_env(r, env_of(op));
    return shard_of(r, op->frame);
}

static unsigned slot_of_shard(unsigned shard)
{
    char tag[12];
    int len = snprintf(tag, sizeof tag, "%u", shard);
    return crc16(bytes_of(tag, (size_t)len)) % SLOTS;
}

struct lane *lane_of(struct redis *r, const struct op *op)
{
    struct node *node = r->seed_node;
    if (r->clustered) {
        struct node *owner = r->slots[slot_of_shard(shard_of_op(r, op))];
        if (owner) node = owner;
    }
    if (r->options.lanes == 1) return &node->lanes[0];
    struct bytes by = op->frame.len || !is_about_env(op) ? op->frame : env_of(op);
    return &node->lanes[siphash13(r->seed, by) % r->options.lanes];
}

static struct node *node_new(struct redis *r, const char *host, int port)
{
    struct node *n = calloc(1, sizeof *n);
    if (!n) return NULL;
    n->redis = r;
    n->port = port;
    snprintf(n->host, sizeof n->host, "%s", host ? host : "");
    link_init(&n->link);
    list_append(&r->nodes, &n->link);
    for (unsigned i = 0; i < r->options.lanes; i++) lane_init(&n->lanes[i], n);
    return n;
}

/* Servers are never forgotten: one that left the cluster is merely not asked any more. */
struct node *node_at(struct redis *r, const char *host, int port)
{
    list_each (&r->nodes, at) {
        struct node *n = container_of(at, struct node, link);
        if (n->port == port && strcmp(n->host, host) == 0) return n;
    }
    return node_new(r, host, port);
}

void nodes_fini(struct redis *r)
{
    for (struct link *at; (at = list_pop(&r->nodes));) {
        struct node *n = container_of(at, struct node, link);
        for (unsigned i = 0; i < r->options.lanes; i++) lane_fini(&n->lanes[i]);
        free(n);
    }
}

/* An answer without a host means the one that was asked; behind a socket, this machine. */
static struct node *node_named(const struct conn *asked, const char *host, long long port)
{
    if (!*host && asked->host) host = asked->host;
    if (!*host) host = "127.0.0.1";
    if (strlen(host) >= HOST_BYTES || port < 1 || port > 65535) return NULL;
    return node_at(asked->redis, host, (int)port);
}

struct node *redirected(const struct conn *asked, const char *text, unsigned *ret_slot)
{
    char host[HOST_BYTES] = "";
    const char *slot_at = strchr(text, ' '), *space = strrchr(text, ' ');
    const char *colon = strrchr(text, ':');
    if (!slot_at || slot_at == space || !colon || colon < space) return NULL;
    unsigned long slot = strtoul(slot_at, NULL, 10);
    size_t host_len = (size_t)(colon - space - 1);
    if (slot >= SLOTS || host_len >= sizeof host) return NULL;
    memcpy(host, space + 1, host_len);
    *ret_slot = (unsigned)slot;
    return node_named(asked, host, strtoll(colon + 1, NULL, 10));
}

/* CLUSTER SLOTS: [[first, last, [host, port, ...], replicas...], ...] */
void slots_learn(struct conn *c, const redisReply *reply)
{
    struct redis *r = c->redis;
    if (reply->type != REDIS_REPLY_ARRAY) return;
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *range = reply->element[i];
        if (range->type != REDIS_REPLY_ARRAY || range->elements < 3) continue;
        const redisReply *master = range->element[2];
        if (master->type != REDIS_REPLY_ARRAY || master->elements < 2) continue;
        const char *host = master->element[0]->str ? master->element[0]->str : "";
        struct node *n = node_named(c, host, master->element[1]->integer);
        long long first = range->element[0]->integer, last = range->element[1]->integer;
        if (!n || first < 0 || last >= SLOTS) continue;
        for (long long slot = first; slot <= last; slot++) r->slots[slot] = n;
    }
}

static void slots_answered(struct command *command, struct conn *c, const redisReply *reply,
                           const struct err *why)
{
    (void)command;
    if (!why) slots_learn(c, reply);
}

/* Not again and again: every batch of a slot that has moved says so. */
void slots_ask(struct lane *l)
{
    struct redis *r = l->node->redis;
    int64_t now_ms = r->base.loop->now_ms;
    if (now_ms < r->slots_asked_ms + SLOTS_AGAIN_MS) return;
    if (!conn_ask(&l->conn, slots_answered, 2, (const char *[]){ "CLUSTER", "SLOTS" })) return;
    r->slots_asked_ms = now_ms;
    conn_flush(&l->conn); /* what was redirected goes out elsewhere */
    conn_watch_deadlines(&l->conn);
}

/* A server is away: others know whether one of them has taken its place. */
void slots_look(struct redis *r)
{
    list_each (&r->nodes, at) {
        struct lane *l = &container_of(at, struct node, link)->lanes[0];
        if (l->conn.state == CONN_READY && !l->conn.silent) {
            slots_ask(l);
            return;
        }
        conn_use(&l->conn); /* they tell with their greeting */
    }
}
