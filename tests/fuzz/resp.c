/* resp.c - RESP: however the input arrives, commands and replies are the same; what was read can
 * be written and is read back as it was; a reply that we take, hiredis takes, and as long. What a
 * command asks for makes sense, or is refused with a reason. */
#include "proto/resp.h"
#include "daemon/resp_session.h"
#include "proto/reply.h"
#include "tests/fuzz/cuts.h"

#include <hiredis/hiredis.h>

enum { ARGS_MAX = 48, NODES_MAX = 64 };

static const struct resp_limits limits = {
    .args_max = ARGS_MAX,
    .bulk_bytes_max = 200,
    .inline_bytes_max = 100,
    .command_bytes_max = 500,
};

static const struct reply_limits reply_limits = {
    .depth_max = 4,
    .bytes_max = 1000,
    .line_bytes_max = 100,
};

/* ---- commands ---- */

static void check_round_trip(const struct resp_command *command)
{
    struct buf out;
    buf_init(&out, 1 << 16);
    struct resp_writer w = { &out, 2 };
    resp_array(&w, command->count);
    for (size_t i = 0; i < command->count; i++) resp_bulk(&w, command->args[i]);
    static const struct resp_limits wide = { ARGS_MAX, 1000, 1000, 1 << 16 };
    struct bytes args[ARGS_MAX];
    struct resp_command again = { .args = args };
    struct resp_reader r;
    struct err err;
    resp_reader_init(&r, &wide);
    CHECK(resp_read(&r, out.data, out.len, &again, &err) == RESP_READY);
    CHECK(again.used == out.len && again.count == command->count);
    for (size_t i = 0; i < again.count; i++) CHECK(bytes_eq(again.args[i], command->args[i]));
    buf_fini(&out);
}

static void check_run(const struct resp_entry *e, const struct resp_command *command)
{
    static struct resp_run run;
    struct err err = { 0 };
    if (e->parse_run(command, &run, &err)) {
        CHECK(err.code < 0 && err.text[0]);
        return;
    }
    CHECK(run.args.env.len > 0 && run.args.question < RUN_QUESTIONS);
    CHECK(run.args.wait_ms >= 0 && run.args.lease_ms >= 0);
    CHECK(run.args.limit <= RESP_COUNT_MAX && tags_count(run.args.run.tags) <= TAGS_MAX);
}

static void check_arguments(const struct resp_command *command)
{
    static struct ask_args ask;
    struct err err = { 0 };
    const struct resp_entry *e = command->count ? resp_find(command->args[0]) : NULL;
    if (!e || command->count < e->args_min || command->count > e->args_max) return;
    if (e->parse_run) check_run(e, command);
    if (e->parse && e->parse(command, &ask, &err)) CHECK(err.code < 0 && err.text[0]);
}

static void note_command(struct buf *log, const struct resp_command *command)
{
    buf_printf(log, " (%zu", command->count);
    for (size_t i = 0; i < command->count; i++) {
        buf_printf(log, " %zu:", command->args[i].len);
        buf_add(log, command->args[i]);
    }
    buf_byte(log, ')');
}

struct server {
    struct cuts_peer peer;
    struct resp_reader reader;
};

static size_t read_commands(struct cuts_peer *peer, uint8_t *in, size_t len)
{
    struct server *s = container_of(peer, struct server, peer);
    for (size_t used = 0;;) {
        struct bytes args[ARGS_MAX];
        struct resp_command command = { .args = args };
        struct err err = { 0 };
        enum resp_progress p = resp_read(&s->reader, in + used, len - used, &command, &err);
        if (p == RESP_MORE) return used;
        if (p == RESP_BAD) {
            CHECK(err.code < 0 && err.text[0]);
            buf_printf(&peer->log, " !%s", err.text);
            peer->bad = true;
            return used;
        }
        CHECK(command.used > 0 && command.used <= len - used);
        used += command.used;
        note_command(&peer->log, &command);
        check_round_trip(&command);
        check_arguments(&command);
    }
}

static struct buf commands_in(struct bytes in, size_t step)
{
    struct server s = { .peer.read = read_commands };
    resp_reader_init(&s.reader, &limits);
    cuts_tell(&s.peer, in, step);
    return s.peer.log;
}

/* ---- replies ---- */

struct client {
    struct cuts_peer peer;
    struct reply_reader reader;
    struct reply_node nodes[NODES_MAX];
};

static void note_reply(struct buf *log, const struct reply_reader *r, struct bytes in)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct reply_node *n = &r->nodes[i];
        CHECK(n->next > i && n->next <= r->count);
        buf_printf(log, " %d:%lld:%u:", n->type, (long long)n->number, n->next);
        if (n->type >= REPLY_ARRAY) continue;
        CHECK(n->start + n->len <= r->at);
        buf_add(log, reply_bytes(n, in));
    }
    buf_byte(log, ';');
}

/* Older ones do not know the types of RESP3; that is the only reason to refuse. */
static void check_hiredis(struct bytes in, size_t used)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;
    CHECK(reader);
    CHECK(redisReaderFeed(reader, (const char *)in.data, used) == REDIS_OK);
    int r = redisReaderGetReply(reader, &reply);
    if (r != REDIS_OK) CHECK(strstr(reader->errstr, "as reply type byte"));
    if (r == REDIS_OK) {
        CHECK(reply);
        freeReplyObject(reply);
        CHECK(redisReaderGetReply(reader, &reply) == REDIS_OK && !reply);
    }
    redisReaderFree(reader);
}

static size_t read_replies(struct cuts_peer *peer, uint8_t *in, size_t len)
{
    struct client *c = container_of(peer, struct client, peer);
    for (size_t used = 0;;) {
        struct bytes left = bytes_of(in + used, len - used);
        struct err err = { 0 };
        enum resp_progress p = reply_read(&c->reader, left, &err);
        if (p == RESP_MORE) return used;
        if (p == RESP_BAD) {
            CHECK(err.code < 0 && err.text[0]);
            buf_printf(&peer->log, " !%s", err.text);
            peer->bad = true;
            return used;
        }
        CHECK(c->reader.at > 0 && c->reader.at <= left.len);
        note_reply(&peer->log, &c->reader, left);
        check_hiredis(left, c->reader.at);
        used += c->reader.at;
        reply_reader_clear(&c->reader);
    }
}

static struct buf replies_in(struct bytes in, size_t step)
{
    struct client c = { .peer.read = read_replies };
    reply_reader_init(&c.reader, &reply_limits, c.nodes, NODES_MAX);
    cuts_tell(&c.peer, in, step);
    return c.peer.log;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cuts_check(commands_in, bytes_of(data, size));
    cuts_check(replies_in, bytes_of(data, size));
    return 0;
}
