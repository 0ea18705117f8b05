/* storm.c - new triggers at a rate, whatever becomes of them: an open loop.
 *
 * A trigger is due when its time has come, and its latency counts from then on, also if the daemon
 * keeps us from asking. All ids that were handed out are written to a file, one per line. */
#include "bench/runs/triggers.h"

#include <stdio.h>
#include <stdlib.h>

struct storm {
    size_t answered, buffered;
    double *took_s;
    FILE *ids;
};

static void answered(struct client *c, const struct answer *a, void *ctx)
{
    struct storm *s = ctx;
    (void)c;
    must(a->created, "trigger with a new key");
    s->took_s[s->answered++] = now_s() - a->asked_s;
    s->buffered += a->buffered;
    must(fprintf(s->ids, "%.*s\n", ID_BYTES, a->id) == ID_BYTES + 1, "write an id");
}

/* The next connection that takes one more; NULL: none does. */
static struct client *next_free(struct crowd *crowd)
{
    static size_t turn;
    for (size_t tried = 0; tried < crowd->count; tried++) {
        struct client *c = &crowd->clients[turn++ % crowd->count];
        if (c->in_flight < IN_FLIGHT_MAX) return c;
    }
    return NULL;
}

static size_t ask_due(struct crowd *crowd, size_t asked, size_t due, double begin, double rate)
{
    for (struct client *c; asked < due && (c = next_free(crowd)); asked++)
        trigger_new(c, begin + (double)asked / rate);
    for (size_t i = 0; i < crowd->count; i++) client_flush(&crowd->clients[i]);
    return asked;
}

void storm(char *port, size_t clients, double rate, double seconds, const char *ids_path)
{
    struct crowd crowd;
    size_t total = (size_t)(rate * seconds), asked = 0;
    struct storm s = { .took_s = malloc(total * sizeof *s.took_s),
                       .ids = fopen(ids_path, "w") };
    must(s.took_s && s.ids, "begin");
    crowd_open(&crowd, &port, 1, clients);
    double begin = now_s();
    while (s.answered < total) {
        double due = (now_s() - begin) * rate;
        asked = ask_due(&crowd, asked, due < (double)total ? (size_t)due : total, begin, rate);
        crowd_turn(&crowd, 1, answered, &s);
    }
    double took = now_s() - begin;
    must(fclose(s.ids) == 0, "write the ids");
    printf("{\"triggers\":%zu,\"buffered\":%zu,\"rate\":%.1f,\"p50_ms\":%.3f,\"p99_ms\":%.3f,"
           "\"max_ms\":%.3f}\n",
           s.answered, s.buffered, (double)s.answered / took,
           quantile_ms(s.took_s, s.answered, 0.5), quantile_ms(s.took_s, s.answered, 0.99),
           quantile_ms(s.took_s, s.answered, 1));
}
