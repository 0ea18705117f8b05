/* redis_inbox.c - where this process is told of changes that others make.
 *
 * Guarantees: a watch that is parked is looked at again when its record has changed: told through the
 * one subscription of this process, found when the subscription comes back, or found by a slow look.
 * An answer that came with the news goes to the watch as its own, if it asked the same question. A
 * claim that waits leaves the inbox, too; if nothing was heard between its being sent and the watch
 * that follows it, there is nothing that the watch could find by looking. */
#include "store/redis.h"

#include "base/check.h"

#include <stdio.h>

enum { NET_MS = 2000 };

/* Every parked watch is looked at again: it was not told, or could not have been. */
static void watch_again(struct redis *r)
{
    struct list all;
    list_init(&all);
    watches_unpark_all(&r->watches, &all);
    for (struct link *at; (at = list_pop(&all));) {
        r->base.loop->owed++;
        redis_ask_again(r, container_of(at, struct op, link));
    }
}

static void inbox_name(const struct redis *r, char *out, size_t *ret_len)
{
    int len = sprintf(out, "%s:inbox:", r->options.prefix);
    memcpy(out + len, r->inbox, INBOX_BYTES);
    *ret_len = (size_t)len + INBOX_BYTES;
}

/* WATCH ops in flight whose answer may be older than what was just heard, or than what could not be
 * heard before now: they must not be parked on it. No frame: all of them. */
static void distrust_asked(struct redis *r, struct bytes frame)
{
    list_each (&r->asked, at) {
        struct op *op = container_of(at, struct op, link);
        if (frame.len == 0 || bytes_eq(op->frame, frame)) op->polled = true;
    }
}

static void subscribed(struct command *command, struct conn *c, const redisReply *reply,
                       const struct err *why)
{
    struct redis *r = c->redis;
    (void)command;
    if (why) return;
    if (reply->type == REDIS_REPLY_ERROR) {
        conn_drop(c, ERR_UNAVAILABLE, reply->str);
        return;
    }
    c->subscribed = true;
    c->failures = 0;
    r->inbox_pinged = false;
    r->heard++;
    distrust_asked(r, bytes_of(NULL, 0));
    watch_again(r); /* what changed before is found now, what changes later is told */
}

/* Late, or out of memory: a connection that hears nothing is of no use. */
static void subscribe_over(struct command *command)
{
    struct redis *r = container_of(command, struct redis, subscribe);
    struct conn *c = &r->inbox_conn;
    if (c->state == CONN_READY && !c->subscribed)
        conn_drop(c, ERR_UNAVAILABLE, "not subscribed within the deadline");
}

static void inbox_ready(struct conn *c)
{
    struct redis *r = c->redis;
    char name[128];
    size_t lens[2] = { 9 };
    inbox_name(r, name, &lens[1]);
    r->subscribe.deadline_ms = r->base.loop->now_ms + r->options.timeout_ms;
    conn_send(c, &r->subscribe, 2, (const char *[]){ "SUBSCRIBE", name }, lens);
    conn_flush(c);
    conn_watch_deadlines(c);
}

/* The net looks after the watches until it is back. A cluster passes messages on to all of its
 * servers: any of them will do. */
static void inbox_down(struct conn *c)
{
    struct redis *r = c->redis;
    r->heard++;
    if (!r->clustered || c->failures == 0) return;
    list_each (&r->nodes, at) {
        const struct conn *other = &container_of(at, struct node, link)->lanes[0].conn;
        if (other->state != CONN_READY || other->silent) continue;
        conn_follow(c, other);
        return;
    }
}

/* What a message says: is the answer in it, the record's frame with its length, and what the record
 * is now, unless it is gone. */
struct news {
    struct bytes frame, fingerprint, value;
    struct record record;
    bool there, kept, whole; /* whole: fingerprint and value came along */
};

static bool news_read(struct bytes message, struct news *ret)
{
    *ret = (struct news){ 0 };
    if (message.len < 3) return false;
    size_t frame_len = message.data[1] | (size_t)message.data[2] << 8, before = 3 + frame_len;
    if (message.len < before) return false;
    ret->frame = bytes_of(message.data + 3, frame_len);
    struct bytes packed = bytes_of(message.data + before, message.len - before), rest;
    ret->there = record_unpack(packed, &ret->record, &rest, &ret->kept);
    if (!ret->there || !message.data[0]) return true;
    size_t fingerprint_len = packed.data[HEADER_BYTES - 1];
    if (rest.len < fingerprint_len) return false;
    ret->whole = true;
    ret->fingerprint = bytes_of(rest.data, fingerprint_len);
    ret->value = bytes_of(rest.data + fingerprint_len, rest.len - fingerprint_len);
    return true;
}

/* The answer itself, if it is one and the watcher asked the same question. */
static void news_answer(const struct redis *r, struct op *op, const struct news *news)
{
    struct record record = news->record;
    if (!news->whole || record.state != RECORD_DONE) return;
    if (!bytes_eq(op->in.fingerprint, news->fingerprint)) return;
    if (news->kept && !(record.value = blob_new(news->value))) return;
    struct moment then = { .now_ms = record.done_at_ms };
    struct verdict v = { .outcome = news->kept ? OUTCOME_CACHED : OUTCOME_ALREADY_DONE };
    op_clear_answer(op);
    op->out = rules_answer(&v, &record, &op->in, then);
    if (!op->out.value) blob_unref(record.value); /* kept for no time at all */
    op->answers = op->out.retain_left_ms > 0;
    op->epoch = r->base.epoch;
}

static void told(struct redis *r, struct bytes message)
{
    struct news news;
    struct list woken;
    if (!news_read(message, &news)) return;
    list_init(&woken);
    watches_tell(&r->watches, news.frame, news.there ? record_version(&news.record) : 0,
                 &woken);
    for (struct link *at; (at = list_pop(&woken));) {
        struct op *op = container_of(at, struct op, link);
        r->base.loop->owed++;
        if (news.there) news_answer(r, op, &news);
        redis_finish(r, op);
    }
    distrust_asked(r, news.frame);
}

static void inbox_pushed(struct conn *c, const redisReply *reply)
{
    struct redis *r = c->redis;
    r->inbox_pinged = false;
    r->heard++;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3) return;
    const redisReply *kind = reply->element[0], *message = reply->element[2];
    if (kind->type != REDIS_REPLY_STRING || strcmp(kind->str, "message") != 0) return;
    if (message->type == REDIS_REPLY_STRING) told(r, bytes_of(message->str, message->len));
}

static const struct conn_events inbox_events = { .ready = inbox_ready,
                                                 .down = inbox_down,
                                                 .pushed = inbox_pushed };

/* The net under the inbox: a message can be lost with a connection, or with the server's memory. */
static void net_look(struct timer *timer)
{
    struct redis *r = container_of(timer, struct redis, net);
    struct conn *c = &r->inbox_conn;
    if (r->watches.count == 0) return;
    timer_set(r->base.loop, &r->net, r->base.loop->now_ms + NET_MS);
    watch_again(r);
    if (c->state != CONN_READY || !c->subscribed) return;
    if (r->inbox_pinged) {
        conn_drop(c, ERR_UNAVAILABLE, "the subscription is silent");
        return;
    }
    r->inbox_pinged = true;
    conn_ping(c);
}

uint64_t inbox_heard(const struct redis *r)
{
    return r->inbox_conn.subscribed ? r->heard : 0;
}

void inbox_net(struct redis *r)
{
    if (!timer_is_set(&r->net)) timer_set(r->base.loop, &r->net, r->base.loop->now_ms + NET_MS);
}

void inbox_init(struct redis *r)
{
    timer_init(&r->net, net_look);
    conn_init(&r->inbox_conn, r, &inbox_events);
    r->subscribe = (struct command){ .answered = subscribed, .gone = subscribe_over };
    link_init(&r->subscribe.link);
}
