/* pace.c - how much a hung coord costs a caller.
 *
 *   fault pace --coord URL --ledger URL
 *
 * One caller, one call at a time, every key a new one. Says "ready" when it has seen how long a
 * claim takes while everything is well, and reads a line: coord hangs from then on. The first
 * claim may then take the deadline of coord, and 50 ms, longer; calls pay only until the
 * breaker has opened, and those after that nothing.
 *
 * The exit status is 1 if they do, 3 if they do not but the machine stood still so much while
 * all was well that it says nothing. */
#include "tests/fault/fault.h"

#include <once/once.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 150, DEADLINE_MS = 100, MARGIN_MS = 50, PAYING_MAX = 3 };

struct pace {
    struct once *once;
    unsigned keys;
    int64_t took_us[CALLS];
    unsigned degraded;
};

/* Claims and publishes; how long the claim took, or -1. */
static int64_t claim_once(struct pace *p)
{
    char key[40];
    snprintf(key, sizeof key, "pace-%" PRId64 "-%u", now_us(), ++p->keys);
    struct once_claim in = ONCE_CLAIM_INIT;
    struct once_owned out = ONCE_OWNED_INIT;
    struct once_answer answer;
    in.scope = out.scope = once_str("pace");
    in.key = out.key = once_str(key);
    out.value = once_str("v");
    int64_t begin_us = now_us();
    int r = once_claim(p->once, &in, &answer);
    int64_t took_us = now_us() - begin_us;
    if (r || answer.outcome != ONCE_CLAIMED) {
        printf("claim: %s\n", r ? answer.error.text : once_outcome_name(answer.outcome));
        return -1;
    }
    p->degraded += answer.degraded != 0;
    out.token = answer.lease.token;
    r = once_publish(p->once, &out, &answer);
    bool ok = r == 0 && answer.outcome == ONCE_OK;
    once_answer_clear(&answer);
    return ok ? took_us : -1;
}

static bool claims(struct pace *p)
{
    p->degraded = 0;
    for (int i = 0; i < CALLS; i++)
        if ((p->took_us[i] = claim_once(p)) < 0) return false;
    return true;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int64_t median_us(const struct pace *p, int64_t *ret_max_us)
{
    int64_t sorted[CALLS];
    memcpy(sorted, p->took_us, sizeof sorted);
    qsort(sorted, CALLS, sizeof *sorted, by_size);
    *ret_max_us = sorted[CALLS - 1];
    return sorted[CALLS / 2];
}

static int judge(const struct pace *p, int64_t healthy_us, int64_t noise_us)
{
    int64_t worst_us, hung_us = median_us(p, &worst_us);
    int paid = 0, last = -1;
    for (int i = 0; i < CALLS; i++) {
        if (p->took_us[i] < healthy_us + DEADLINE_MS * 1000 / 2) continue;
        paid++;
        last = i;
    }
    printf("healthy: median %" PRId64 " us, worst %" PRId64 " us; coord hung: first %" PRId64
           " us, median %" PRId64 " us, worst %" PRId64 " us, %d calls paid, the last was "
           "number %d, %u degraded\n",
           healthy_us, noise_us, p->took_us[0], hung_us, worst_us, paid, last + 1, p->degraded);
    bool first_in_time = p->took_us[0] <= healthy_us + (DEADLINE_MS + MARGIN_MS) * 1000;
    bool others_free = paid <= PAYING_MAX && last < PAYING_MAX;
    if (first_in_time && others_free && p->degraded == CALLS) return 0;
    return noise_us > MARGIN_MS * 1000 ? 3 : 1;
}

int pace_main(int argc, char **argv)
{
    static struct pace p;
    struct once_config config = ONCE_CONFIG_INIT;
    const struct option_row rows[] = { { "--coord", &config.coord, NULL },
                                       { "--ledger", &config.ledger, NULL } };
    struct once_error error;
    char line[16];
    if (options_take(argc, argv, rows, 2) != argc || !config.ledger) {
        fprintf(stderr, "usage: fault pace --coord URL --ledger URL\n");
        return 2;
    }
    if (once_open(&config, &p.once, &error) < 0) {
        printf("open: %s\n", error.text);
        return 1;
    }
    int64_t noise_us, healthy_us;
    bool ok = claims(&p) && claims(&p); /* the first round warms up */
    healthy_us = median_us(&p, &noise_us);
    if (ok && p.degraded) printf("degraded although nothing is wrong\n");
    ok = ok && !p.degraded;
    puts("ready");
    fflush(stdout);
    ok = ok && fgets(line, sizeof line, stdin) && claims(&p);
    int status = ok ? judge(&p, healthy_us, noise_us) : 1;
    once_close(p.once);
    return status;
}
