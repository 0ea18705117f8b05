/* burst.c - many callers trigger the same key at the same time, at one daemon or several.
 *
 * One of them makes the run. The time of a loser is how much later than the winner's its answer was
 * there. Exactly one winner and one id, or the program ends. */
#include "bench/runs/triggers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct burst {
    size_t answered, winners;
    char id[ID_BYTES];
    double won_s, *at_s;
};

static void answered(struct client *c, const struct answer *a, void *ctx)
{
    struct burst *b = ctx;
    (void)c;
    if (b->answered) must(memcmp(b->id, a->id, ID_BYTES) == 0, "get one id for one key");
    memcpy(b->id, a->id, ID_BYTES);
    b->at_s[b->answered++] = now_s();
    if (!a->created) return;
    b->winners++;
    b->won_s = now_s();
}

static void print_ms(const char *name, double *seconds, size_t count)
{
    printf("\"%s_p50_ms\":%.3f,\"%s_p99_ms\":%.3f,", name, quantile_ms(seconds, count, 0.5),
           name, quantile_ms(seconds, count, 0.99));
}

static void one(struct crowd *crowd, const char *key, struct burst *b)
{
    double begin = now_s();
    b->answered = b->winners = 0;
    for (size_t i = 0; i < crowd->count; i++) {
        trigger_key(&crowd->clients[i], key, begin);
        client_flush(&crowd->clients[i]);
    }
    while (b->answered < crowd->count) crowd_turn(crowd, 1000, answered, b);
    must(b->winners == 1, "have one winner");
    printf("{");
    for (size_t i = 0; i < b->answered; i++) b->at_s[i] -= begin;
    print_ms("all", b->at_s, b->answered);
    for (size_t i = 0; i < b->answered; i++) b->at_s[i] -= b->won_s - begin;
    print_ms("after", b->at_s, b->answered);
    printf("\"winner_ms\":%.3f}\n", (b->won_s - begin) * 1e3);
}

void burst(char **ports, size_t port_count, size_t callers, size_t bursts)
{
    struct crowd crowd;
    struct burst b = { .at_s = malloc(callers * sizeof *b.at_s) };
    must(b.at_s, "begin");
    crowd_open(&crowd, ports, port_count, callers);
    for (size_t i = 0; i < bursts; i++) {
        char key[64];
        snprintf(key, sizeof key, "burst-%ld-%zu", (long)getpid(), i);
        one(&crowd, key, &b);
    }
}
