/* worker.c - a client process: applies mutations 0 to N-1, each until it has a definite answer, and
 * writes down what it was told.
 *
 *   mutations worker --pg URL --coord URL|none --count N --seed S --out FILE [--mortal PERMILLE]
 *                    [--bare 1]
 *
 * What is in the file already was answered to an earlier life of it. With --mortal it kills itself now
 * and then, wherever it is. With --bare there is no marker: the same client without the backstop. Half of
 * the functions fail: they say so, their session is ended, their connection is cut.
 * A line for each try: NUMBER TOLD TAG FAULT RESPONSE. TAG: what it leaves in the database if it is
 * committed; FAULT: 1: it met one. */
#include "tests/mutations/mutations.h"

#include "base/check.h"
#include "base/random.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { BLOCK = 16, FAULTS_PERCENT = 50, DEATH_US_MAX = 4000 };

struct worker {
    const char *pg_url, *coord, *out;
    long count, seed, mortal, bare;
    PGconn *pg;
    struct once *once;
    struct rng_seeded rng;
    bool *done;
    int fd;
};

static bool options(struct worker *w, int argc, char **argv)
{
    const struct {
        const char *name, **text;
        long *number;
    } rows[] = { { "--pg", &w->pg_url, NULL }, { "--coord", &w->coord, NULL },
                 { "--out", &w->out, NULL },   { "--count", NULL, &w->count },
                 { "--seed", NULL, &w->seed }, { "--mortal", NULL, &w->mortal },
                 { "--bare", NULL, &w->bare } };
    for (int i = 1; i + 1 < argc; i += 2)
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
            if (strcmp(argv[i], rows[k].name) != 0) continue;
            if (rows[k].text) *rows[k].text = argv[i + 1];
            if (rows[k].number) *rows[k].number = atol(argv[i + 1]);
        }
    return w->pg_url && w->coord && w->out && w->count > 0;
}

/* ---- an earlier life ---- */

static void remember(struct worker *w)
{
    FILE *f = fopen(w->out, "r");
    char line[256], what[24];
    long n;
    while (f && fgets(line, sizeof line, f))
        if (strchr(line, '\n') && sscanf(line, "%ld %23s", &n, what) == 2 && n < w->count)
            w->done[n] |= told_is_definite(told_named(what));
    if (f) fclose(f);
}

static void note(struct worker *w, long n, enum told told, const char *tag, bool fault,
                 struct once_bytes value)
{
    char line[256];
    int len = snprintf(line, sizeof line, "%ld %s %s %d %.*s\n", n, told_name(told), tag, fault,
                       (int)value.len, (const char *)value.data);
    CHECK(write(w->fd, line, (size_t)len) == len);
}

/* ---- death ---- */

static void die(int signal)
{
    (void)signal;
    kill(getpid(), SIGKILL);
}

static void tempt_fate(struct worker *w)
{
    if ((long)rng_below(&w->rng.base, 1000) >= w->mortal) return;
    suseconds_t us = 1 + (suseconds_t)rng_below(&w->rng.base, DEATH_US_MAX);
    setitimer(ITIMER_REAL, &(struct itimerval){ .it_value.tv_usec = us }, NULL);
}

/* ---- faults inside a function ---- */

static void end_session(void *ctx)
{
    struct worker *w = ctx;
    PQclear(PQexec(w->pg, "SELECT pg_terminate_backend(pg_backend_pid())"));
}

static void cut_off(void *ctx)
{
    struct worker *w = ctx;
    shutdown(PQsocket(w->pg), SHUT_RDWR);
}

static void choose_fault(struct worker *w, struct use *u)
{
    uint64_t n = w->bare ? 100 : rng_below(&w->rng.base, 100);
    u->ctx = w;
    if (n >= FAULTS_PERCENT) return;
    if (n % 3 == 0) u->fails = 1;
    if (n % 3 == 1) u->meanwhile = end_session;
    if (n % 3 == 2) u->meanwhile = cut_off;
}

/* ---- one mutation ---- */

static void reconnect(struct worker *w)
{
    while (PQstatus(w->pg) != CONNECTION_OK) {
        usleep(2000);
        PQreset(w->pg);
    }
}

/* Did it meet a fault? A connection that was lost and is back is another one. Not: somebody else who is on
 * it, and a function that says no. */
static bool met(const struct worker *w, int pid, enum told told,
                const struct once_mutation_answer *a)
{
    bool broke = PQstatus(w->pg) != CONNECTION_OK || PQbackendPID(w->pg) != pid;
    bool failed = told == TOLD_UNAVAILABLE || told == TOLD_AMBIGUOUS;
    return broke || failed || (a->degraded && w->once);
}

static bool attempt(struct worker *w, const char *request, long n)
{
    struct use u;
    struct once_mutation in = mutation_of(w->bare ? "" : request);
    struct once_mutation_answer answer;
    use_init(&u, request);
    choose_fault(w, &u);
    int pid = PQbackendPID(w->pg);
    in.lock_ms = 200;
    in.lease_ms = 300;
    int r = once_mutate(w->once, (struct once_db){ .pg = w->pg }, &in, use_item, &u, &answer);
    enum told told = told_of(r, answer.outcome);
    if (told == TOLD_KINDS) { /* no fault: a bug, of this or of that */
        fprintf(stderr, "%s: %d %d %s\n", request, r, answer.outcome, answer.error.text);
        exit(3);
    }
    note(w, n, told, u.tag, met(w, pid, told, &answer), answer.value);
    once_mutation_answer_clear(&answer);
    return told_is_definite(told);
}

static void apply(struct worker *w, long n)
{
    char request[32];
    snprintf(request, sizeof request, "r-%ld", n);
    while (!w->done[n]) {
        reconnect(w);
        tempt_fate(w);
        w->done[n] = attempt(w, request, n);
        if (!w->done[n]) usleep((useconds_t)rng_below(&w->rng.base, 3000));
    }
}

/* In blocks, each in an order of one's own: so that workers meet, and not always the same way. */
static void apply_all(struct worker *w)
{
    for (long from = 0; from < w->count; from += BLOCK) {
        long order[BLOCK], size = w->count - from < BLOCK ? w->count - from : BLOCK;
        for (long i = 0; i < size; i++) {
            long at = (long)rng_below(&w->rng.base, (uint64_t)i + 1);
            order[i] = order[at];
            order[at] = from + i;
        }
        for (long i = 0; i < size; i++) apply(w, order[i]);
    }
}

int worker_main(int argc, char **argv)
{
    struct worker w = { .coord = "none" };
    if (!options(&w, argc, argv)) return 2;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGALRM, die);
    rng_seeded_init(&w.rng, (uint64_t)w.seed * 1000003 + (uint64_t)getpid());
    w.done = calloc((size_t)w.count, sizeof *w.done);
    w.fd = open(w.out, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    CHECK(w.done && w.fd >= 0);
    remember(&w);
    w.pg = PQconnectdb(w.pg_url);
    w.once = strcmp(w.coord, "none") == 0 ? NULL : once_on(w.coord);
    apply_all(&w);
    once_close(w.once);
    PQfinish(w.pg);
    free(w.done);
    return 0;
}
