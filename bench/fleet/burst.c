/* burst.c - the processes of a same-key burst: one owner, and losers that wait for it.
 *
 * Told what to do line by line on standard input, so that whoever measures can look at the
 * server between two steps:
 *
 *   owner:   claim KEY -> claimed       publish -> published NANOSECONDS (when it was called)
 *   losers:  wait KEY -> waiting        (all parked)  ... -> woken NANOSECONDS...
 *
 * Nanoseconds are of CLOCK_MONOTONIC, which all processes of a machine share. */
#include "bench/fleet/fleet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_ROOM = 128, LOSERS_MAX = 4096, WAIT_MS = 60000 };

/* How long losers have been waiting when they say that they are. Asking the handle how many are
 * parked would ask the server, too. */
static const int64_t parked_ns = 100 * INT64_C(1000000);

static bool hear(const char *word, char *ret_rest)
{
    char line[LINE_ROOM];
    size_t len = strlen(word);
    if (!fgets(line, sizeof line, stdin)) return false;
    line[strcspn(line, "\n")] = '\0';
    must(strncmp(line, word, len) == 0, "understand the line");
    memcpy(ret_rest, line + len, sizeof line - len);
    return true;
}

/* ---- owner ---- */

static void on_published(void *ctx, int result, struct once_answer *answer)
{
    must(result == 0 && answer->outcome == ONCE_OK, "publish");
    once_answer_clear(answer);
    *(bool *)ctx = true;
}

static void publish(struct once *o, const char *key, const char *token)
{
    bool done = false;
    struct once_owned in = ONCE_OWNED_INIT;
    in.scope = once_str("bench");
    in.key = once_str(key);
    in.token = token;
    in.value = once_bytes(load_value, sizeof load_value);
    int64_t start_ns = now_ns();
    must(once_publish_start(o, &in, on_published, &done, NULL, NULL) == 0, "publish");
    while (!done) process(o);
    printf("published %" PRId64 "\n", start_ns);
}

void fleet_owner(const struct planes *planes)
{
    char key[LINE_ROOM], token[33], rest[LINE_ROOM];
    struct once *o = fleet_open(planes);
    puts("ready");
    while (hear("claim ", key)) {
        claim_key(o, key, token);
        puts("claimed");
        if (!hear("publish", rest)) break;
        publish(o, key, token);
    }
    once_close(o);
}

/* ---- losers ---- */

struct crowd {
    size_t answered;
    int64_t at_ns[LOSERS_MAX];
};

static void on_answer(void *ctx, int result, struct once_answer *answer)
{
    struct crowd *c = ctx;
    must(result == 0 && answer->outcome == ONCE_CACHED && answer->value.len == VALUE_BYTES,
         "be woken with the answer");
    once_answer_clear(answer);
    c->at_ns[c->answered++] = now_ns();
}

static void wait_all(struct once *o, const char *key, size_t count, struct crowd *c)
{
    struct once_claim in = ONCE_CLAIM_INIT;
    in.scope = once_str("bench");
    in.key = once_str(key);
    in.wait_ms = WAIT_MS;
    for (size_t i = 0; i < count; i++)
        must(once_claim_start(o, &in, on_answer, c, NULL, NULL) == 0, "start to wait");
    for (int64_t start_ns = now_ns(); now_ns() - start_ns < parked_ns;) process_for(o, 10);
    must(c->answered == 0, "wait for an answer that is not there yet");
    puts("waiting");
    while (c->answered < count) process(o);
}

void fleet_losers(const struct planes *planes, size_t count)
{
    static struct crowd crowd;
    char key[LINE_ROOM];
    must(count <= LOSERS_MAX, "have that many losers");
    struct once *o = fleet_open(planes);
    puts("ready");
    while (hear("wait ", key)) {
        crowd.answered = 0;
        wait_all(o, key, count, &crowd);
        printf("woken");
        for (size_t i = 0; i < count; i++) printf(" %" PRId64, crowd.at_ns[i]);
        puts("");
    }
    once_close(o);
}
