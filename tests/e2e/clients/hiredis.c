/* hiredis.c PORT - the daemon through hiredis: plain commands, a pipeline, waiting. Prints a line
 * for each thing that it saw; clients.sh compares them. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static redisContext *dial(int port)
{
    redisContext *c = redisConnectWithTimeout("127.0.0.1", port, (struct timeval){ 10, 0 });
    if (!c || c->err) {
        printf("connect: %s\n", c ? c->errstr : "out of memory");
        exit(1);
    }
    redisSetTimeout(c, (struct timeval){ 10, 0 });
    return c;
}

static redisReply *checked(redisContext *c, void *reply)
{
    if (reply) return reply;
    printf("no reply: %s\n", c->errstr);
    exit(1);
}

static const char *word(const redisReply *r, size_t at)
{
    if (r->elements > at && r->element[at]->str) return r->element[at]->str;
    return r->str ? r->str : "nothing";
}

static void plain(redisContext *c)
{
    static const char value[] = { 'a', '\0', '\r', '\n', '\xff' };
    redisReply *claimed = checked(c, redisCommand(c, "ONCE.CLAIM hiredis k"));
    printf("claim: %s, a token of %zu\n", word(claimed, 0), strlen(word(claimed, 1)));
    redisReply *done = checked(c, redisCommand(c, "ONCE.PUBLISH hiredis k %s %b",
                                               word(claimed, 1), value, sizeof value));
    printf("publish: %s\n", word(done, 0));
    redisReply *cached = checked(c, redisCommand(c, "ONCE.CLAIM hiredis k"));
    int same = cached->elements == 2 && cached->element[1]->len == sizeof value &&
               memcmp(cached->element[1]->str, value, sizeof value) == 0;
    printf("claim again: %s, %s\n", word(cached, 0), same ? "byte for byte" : "another value");
    redisReply *other = checked(c, redisCommand(c, "ONCE.CLAIM hiredis k FP x"));
    printf("another fingerprint: %s\n", other->type == REDIS_REPLY_ERROR ? "an error" : "none");
    freeReplyObject(claimed);
    freeReplyObject(done);
    freeReplyObject(cached);
    freeReplyObject(other);
}

static void pipelined(redisContext *c)
{
    enum { COMMANDS = 1000 };
    int right = 0;
    for (int i = 0; i < COMMANDS; i++)
        redisAppendCommand(c, i % 2 ? "ECHO %d" : "ONCE.CLAIM many k%d WAIT 0", i);
    for (int i = 0; i < COMMANDS; i++) {
        void *reply;
        if (redisGetReply(c, &reply) != REDIS_OK) break;
        right += i % 2 ? atoi(word(reply, 0)) == i : strcmp(word(reply, 0), "claimed") == 0;
        freeReplyObject(reply);
    }
    printf("pipeline: %d of %d as asked\n", right, COMMANDS);
}

/* RESP2: a flat list of names and values. */
static void told_everything(redisContext *c)
{
    redisReply *meta = checked(c, redisCommand(c, "ONCE.PEEK hiredis k META"));
    printf("META: %s %s\n", word(meta, 0), word(meta, 1));
    freeReplyObject(meta);
}

/* One waits while the other owns it by BOUND, and hangs up. */
static void waiting(redisContext *c, int port)
{
    redisContext *owner = dial(port);
    redisReply *bound = checked(owner, redisCommand(owner, "ONCE.CLAIM hiredis bound BOUND"));
    printf("BOUND: %s\n", word(bound, 0));
    redisAppendCommand(c, "ONCE.CLAIM hiredis bound WAIT 30s");
    int sent = 0;
    while (!sent && redisBufferWrite(c, &sent) == REDIS_OK) continue;
    redisFree(owner);
    void *reply = NULL;
    redisGetReply(c, &reply);
    printf("who waited: %s\n", word(checked(c, reply), 0));
    freeReplyObject(bound);
    freeReplyObject(reply);
}

int main(int argc, char **argv)
{
    int port = argc > 1 ? atoi(argv[1]) : 6624;
    redisContext *c = dial(port);
    plain(c);
    pipelined(c);
    told_everything(c);
    waiting(c, port);
    redisFree(c);
    return 0;
}
