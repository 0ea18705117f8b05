/* coord.c - see coord.h. */
#include "tests/support/coord.h"

#include "base/check.h"
#include "store/redis.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000, NAP_MS = 20 };

/* ---- servers ---- */

static void no_server(const char *what)
{
    fprintf(stderr, "coord: %s\n", what);
    CHECK(false);
}

redisContext *coord_connect(const char *url)
{
    char host[64];
    int port;
    CHECK(sscanf(url, "redis://%63[^:]:%d", host, &port) == 2);
    redisContext *admin = redisConnect(host, port);
    CHECK(admin && !admin->err);
    return admin;
}

static void coord_begin(struct coord *c)
{
    struct err err;
    world_init(&c->world, 1);
    CHECK(loop_open(&c->world.loop, &err) == 0);
    c->admin = coord_connect(c->url);
}

void coord_init(struct coord *c, enum server server)
{
    *c = (struct coord){ .admin = NULL };
    if (!server_url(server)) no_server("no server: run it through tests/with-servers");
    room_init(&c->room, server);
    room_url(&c->room, c->url, sizeof c->url);
    coord_begin(c);
}

static void read_line(const char *command, char *ret_line, size_t len)
{
    FILE *f = popen(command, "r");
    CHECK(f);
    if (!fgets(ret_line, (int)len, f)) no_server(command);
    ret_line[strcspn(ret_line, "\n")] = '\0';
    CHECK(pclose(f) == 0);
}

void coord_init_private(struct coord *c, enum server server, const char *settings)
{
    char command[512], url[128];
    bool cluster = server == SERVER_CLUSTER;
    *c = (struct coord){ .dir = "/tmp/once-coord-XXXXXX" };
    CHECK(mkdtemp(c->dir));
    setenv("ONCE_REDIS_SETTINGS", settings, 1);
    snprintf(command, sizeof command,
             "tests/servers start --for %d %s %s && . %s/env && echo $%s", getpid(), c->dir,
             cluster ? "cluster" : "redis", c->dir,
             cluster ? "ONCE_TEST_REDIS_CLUSTER" : "ONCE_TEST_REDIS");
    read_line(command, url, sizeof url);
    snprintf(c->url, sizeof c->url, "%s?prefix=t", url);
    coord_begin(c);
}

void coord_init_beside(struct coord *c, const struct coord *other)
{
    *c = (struct coord){ .room = { SERVER_NONE } };
    memcpy(c->url, other->url, sizeof c->url);
    coord_begin(c);
}

void coord_fini(struct coord *c)
{
    char command[128];
    redisFree(c->admin);
    world_fini(&c->world);
    if (c->room.server) room_clear(&c->room);
    if (!c->dir[0]) return;
    snprintf(command, sizeof command, "tests/servers stop %s", c->dir);
    CHECK(system(command) == 0);
}

/* ---- the admin ---- */

static redisReply *reply_of(struct coord *c, const char *fmt, va_list args)
{
    redisReply *reply = redisvCommand(c->admin, fmt, args);
    if (!reply) fprintf(stderr, "coord: %s: %s\n", fmt, c->admin->errstr);
    CHECK(reply);
    return reply;
}

redisReply *coord_reply(struct coord *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    redisReply *reply = reply_of(c, fmt, args);
    va_end(args);
    return reply;
}

const char *coord_ask(struct coord *c, const char *fmt, ...)
{
    static char text[256];
    va_list args;
    va_start(args, fmt);
    redisReply *reply = reply_of(c, fmt, args);
    va_end(args);
    snprintf(text, sizeof text, "%s", reply->str ? reply->str : "");
    if (reply->type == REDIS_REPLY_INTEGER) snprintf(text, sizeof text, "%lld", reply->integer);
    freeReplyObject(reply);
    return text;
}

const char *coord_shard(struct coord *c)
{
    static char key[128];
    const char *prefix = strstr(c->url, "prefix=") + 7;
    snprintf(key, sizeof key, "%.*s:{0}", (int)strcspn(prefix, "&"), prefix);
    return key;
}

struct bytes coord_field(const char *name)
{
    static char field[256];
    return bytes_of(field, (size_t)snprintf(field, sizeof field, "\001s%s", name));
}

/* ---- stores and ops ---- */

struct store *coord_open_url(struct coord *c, const char *url)
{
    struct err err;
    struct store *store = NULL;
    int r = store_open(url, &c->world.env, &store, &err);
    if (r) fprintf(stderr, "coord: %s\n", err.text);
    CHECK(r == 0);
    return store;
}

struct store *coord_open(struct coord *c, const char *more)
{
    char url[512];
    snprintf(url, sizeof url, "%s%s", c->url, more);
    return coord_open_url(c, url);
}

void coord_close(struct coord *c, struct store *s)
{
    coord_turn(c);
    store_close(s);
}

struct op *coord_op(enum verb verb, const char *name, uint8_t who, const char *value)
{
    struct key key = key_of("s", name);
    struct request in = { .token = token_of(who),
                          .lease_ms = COORD_LEASE_MS,
                          .retain_ms = COORD_RETAIN_MS };
    if (value) in.value = blob_new(bytes_str(value));
    struct op *op = op_new(verb, verb_info[verb].keyed ? &key : NULL, &in);
    CHECK(op && (!value || in.value));
    blob_unref(in.value);
    return op;
}

static void count_finished(struct op *op, void *ctx)
{
    struct asked *a = ctx;
    CHECK(a->op == op);
    a->finished++;
}

void asked_start(struct asked *a, struct store *s, struct op *op)
{
    *a = (struct asked){ .op = op };
    op_push(op, count_finished, a);
    store_submit(s, op);
}

void asked_end(struct asked *a)
{
    CHECK(a->finished == 1);
    op_free(a->op);
}

static struct err run(struct coord *c, struct store *s, struct op *op,
                      struct answer *ret_answer)
{
    struct asked a;
    asked_start(&a, s, op);
    COORD_UNTIL(c, a.finished);
    *ret_answer = op->out;
    ret_answer->value = NULL;
    struct err err = op->err;
    asked_end(&a);
    return err;
}

struct answer coord_do(struct coord *c, struct store *s, enum verb verb, const char *name,
                       uint8_t who, const char *value)
{
    struct answer answer;
    struct err err = run(c, s, coord_op(verb, name, who, value), &answer);
    if (err.code) fprintf(stderr, "coord: %s %s: %s\n", verb_info[verb].name, name, err.text);
    CHECK(err.code == 0);
    return answer;
}

struct err coord_fails(struct coord *c, struct store *s, enum verb verb, const char *name,
                       uint8_t who)
{
    struct answer answer;
    struct err err = run(c, s, coord_op(verb, name, who, NULL), &answer);
    CHECK(err.code != 0);
    return err;
}

bool coord_listens(struct coord *c, struct store *s)
{
    return c->world.loop.owed == 0 && ((struct redis *)s)->inbox_conn.subscribed;
}

void coord_watch(struct coord *c, struct store *s, const char *name, struct asked *ret_watch)
{
    struct op *op = coord_op(VERB_WATCH, name, 0, NULL);
    op->seen = coord_do(c, s, VERB_PEEK, name, 0, NULL).version;
    asked_start(ret_watch, s, op);
    COORD_UNTIL(c, op->parked && coord_listens(c, s));
}

static bool answers(struct coord *c, struct store *s, int64_t until_ms)
{
    struct asked ping;
    asked_start(&ping, s, coord_op(VERB_PING, "", 0, NULL));
    for (coord_turn(c); !ping.finished; coord_pass(c, 5)) coord_sleep(c, until_ms);
    bool well = ping.op->err.code == 0;
    asked_end(&ping);
    return well;
}

/* Time passes only while nothing is under way: a server that has yet to answer in real time must
 * not miss deadlines of ours. */
void coord_revive(struct coord *c, struct store *s)
{
    int64_t until_ms = coord_patience();
    while (!answers(c, s, until_ms)) {
        for (; c->world.loop.owed > 0; coord_turn(c)) coord_sleep(c, until_ms);
        coord_pass(c, 1000);
    }
}

/* ---- time ---- */

static int64_t real_ms(void)
{
    struct clock real = clock_monotonic();
    return clock_now_ms(&real);
}

int64_t coord_patience(void)
{
    return real_ms() + PATIENCE_MS;
}

void coord_sleep(struct coord *c, int64_t until_ms)
{
    int64_t left_ms = until_ms - real_ms();
    if (left_ms <= 0) no_server("what was waited for did not come");
    loop_sleep(&c->world.loop, left_ms < NAP_MS ? left_ms : NAP_MS);
}

void coord_turn(struct coord *c)
{
    do loop_turn(&c->world.loop, c->world.mono_ms);
    while (loop_next_ms(&c->world.loop, c->world.mono_ms) == 0);
}

void coord_pass(struct coord *c, int64_t ms)
{
    c->world.mono_ms += ms;
    c->world.wall_ms += ms;
    coord_turn(c);
}
