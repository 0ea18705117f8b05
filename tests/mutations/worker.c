/* worker.c - a client process: applies mutations 0 to N-1, each until it has a definite answer, and
 * writes down what it was told.
 *
 *   mutations worker --pg URL --coord URL|none --count N --seed S --out FILE [--mortal PERMILLE]
 *                    [--bare 1]
 *
 * What is in the file already was answered to an earlier life of it. With --mortal it kills itself now
 * and then, wherever it is. With --bare there is no marker: the same client without the backstop. Half of
 * the functions fail: they say so, their session is ended, their connection is cut.
 * A line: NUMBER OUTCOME TRIES FAULTS RESPONSE; FAULTS: tries that met one. */
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
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        long n = atol(line);
        if (n >= 0 && n < w->count && strchr(line, '\n')) w->done[n] = true;
    }
    if (f) fclose(f);
}

static void note(struct worker *w, long n, const struct once_mutation_answer *a, long tries,
                 long faults)
{
    char line[256];
    int len =
        snprintf(line, sizeof line, "%ld %s %ld %ld %.*s\n", n, once_outcome_name(a->outcome),
                 tries, faults, (int)a->value.len, (const char *)a->value.data);
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

static bool is_definite(int result, int outcome)
{
    return result == 0 &&
           (outcome == ONCE_OK || outcome == ONCE_CACHED || outcome == ONCE_ALREADY_DONE);
}

/* Nothing but a fault is a reason to try again; everything else is a bug, of this or of that. */
static bool is_fault(int result, int outcome)
{
    if (result) return result == ONCE_EUNAVAILABLE || result == ONCE_EAMBIGUOUS;
    return outcome == ONCE_IN_PROGRESS || outcome == ONCE_CLAIMED;
}

/* Did it meet one? A connection that was lost and is back is another one. */
static bool met(const struct worker *w, int pid, const struct once_mutation_answer *a)
{
    bool broke = PQstatus(w->pg) != CONNECTION_OK || PQbackendPID(w->pg) != pid;
    return broke || !is_definite(0, a->outcome) || (a->degraded && w->once);
}

static bool attempt(struct worker *w, const char *request, long n, long tries, long *faults)
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
    bool definite = is_definite(r, answer.outcome);
    if (!definite && !is_fault(r, answer.outcome)) {
        fprintf(stderr, "%s: %d %d %s\n", request, r, answer.outcome, answer.error.text);
        exit(3);
    }
    *faults += met(w, pid, &answer);
    if (definite) note(w, n, &answer, tries, *faults);
    once_mutation_answer_clear(&answer);
    return definite;
}

static void apply(struct worker *w, long n)
{
    char request[32];
    long faults = 0;
    snprintf(request, sizeof request, "r-%ld", n);
    for (long tries = 1; !w->done[n]; tries++) {
        reconnect(w);
        tempt_fate(w);
        w->done[n] = attempt(w, request, n, tries, &faults);
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
