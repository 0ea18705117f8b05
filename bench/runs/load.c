/* load.c - new triggers, so many at a time on each connection: for so long, or so many. */
#include "bench/runs/triggers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES_MAX = 4 << 20 };

static const double warm_s = 0.5;

struct run {
    size_t answered, asked, count; /* count: no more than so many */
    const char *where;             /* they have to be: buffer, ledger */
    double *took_s;
};

static void answered(struct client *c, const struct answer *a, void *ctx)
{
    struct run *run = ctx;
    must(a->created, "trigger with a new key");
    must(a->buffered == (strcmp(run->where, "buffer") == 0), "find the run where it should be");
    double now = now_s();
    if (run->answered < SAMPLES_MAX) run->took_s[run->answered] = now - a->asked_s;
    run->answered++;
    if (run->asked >= run->count) return;
    run->asked++;
    trigger_new(c, now);
}

static void start(struct crowd *crowd, char *port, size_t clients, size_t depth,
                  struct run *run)
{
    run->took_s = malloc(SAMPLES_MAX * sizeof *run->took_s);
    must(run->took_s, "begin");
    crowd_open(crowd, &port, 1, clients);
    for (size_t i = 0; i < clients * depth && run->asked < run->count; i++, run->asked++)
        trigger_new(&crowd->clients[i % clients], now_s());
    for (size_t i = 0; i < clients; i++) client_flush(&crowd->clients[i]);
}

void load(char *port, size_t clients, size_t depth, double seconds, const char *where)
{
    struct crowd crowd;
    struct run run = { .count = SIZE_MAX, .where = where };
    start(&crowd, port, clients, depth, &run);
    for (double end = now_s() + warm_s; now_s() < end;)
        crowd_turn(&crowd, 1000, answered, &run);
    run.answered = 0;
    double begin = now_s();
    while (now_s() < begin + seconds) crowd_turn(&crowd, 1000, answered, &run);
    double rate = (double)run.answered / (now_s() - begin);
    size_t samples = run.answered < SAMPLES_MAX ? run.answered : SAMPLES_MAX;
    printf("{\"rate\":%.1f,\"p50_ms\":%.3f,\"p99_ms\":%.3f}\n", rate,
           quantile_ms(run.took_s, samples, 0.5), quantile_ms(run.took_s, samples, 0.99));
}

void fill(char *port, size_t clients, size_t depth, size_t count)
{
    struct crowd crowd;
    struct run run = { .count = count, .where = "buffer" };
    double begin = now_s();
    start(&crowd, port, clients, depth, &run);
    while (run.answered < count) crowd_turn(&crowd, 1000, answered, &run);
    printf("{\"accepted\":%zu,\"rate\":%.1f}\n", count, (double)count / (now_s() - begin));
}
