/* batches.c - markers in batches, at a rate, as bench/mutations.mjs asks for them.
 *
 *   markers URL CLIENTS BATCH RATE SECONDS    so many rows a second (0: as many as it takes), by calls of
 *                                             once_mutation_begin_many() with BATCH rows each
 *
 * A batch is due when the rate says so, and is late from then on, whoever was to send it: a server
 * that cannot keep up shows in the latencies, and in the end in the rate. A marker that is not new
 * ends the program: what it counts was inserted. */
#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    CLIENTS_MAX = 64,
    BATCH_MAX = 10000,
    ROW_BYTES = 48,
    SAMPLES_MAX = 1 << 20,
    USERS = 100000
};

struct load {
    const char *url;
    size_t batch;
    double rate, seconds, start_s;
    atomic_size_t next, done;
    double *took_s; /* by batch */
};

static void must(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "markers: cannot %s\n", what);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void sleep_until(double at_s)
{
    double left_s = at_s - now_s();
    if (left_s <= 0) return;
    struct timespec t = { .tv_sec = (time_t)left_s };
    t.tv_nsec = (long)((left_s - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

/* Users at random, requests that nobody else has. */
static void fill(const struct load *l, size_t n, unsigned *seed, char *users, char *requests)
{
    for (size_t i = 0; i < l->batch; i++) {
        char before = i ? ',' : '{';
        users += sprintf(users, "%cuser-%u", before, (unsigned)rand_r(seed) % USERS);
        requests += sprintf(requests, "%crequest-%d-%zu-%zu", before, (int)getpid(), n, i);
    }
    strcpy(users, "}");
    strcpy(requests, "}");
}

static void insert(PGconn *conn, const struct load *l, const char *users, const char *requests)
{
    const char *values[] = { users, requests };
    PGresult *r = PQexecPrepared(conn, "many", 2, values, NULL, NULL, 0);
    if (PQresultStatus(r) != PGRES_TUPLES_OK) fputs(PQresultErrorMessage(r), stderr);
    must(PQresultStatus(r) == PGRES_TUPLES_OK, "insert");
    must((size_t)PQntuples(r) == l->batch, "insert each of them");
    PQclear(r);
}

static double due_s(const struct load *l, size_t n)
{
    return l->rate > 0 ? l->start_s + (double)(n * l->batch) / l->rate : now_s();
}

static void *client(void *ctx)
{
    struct load *l = ctx;
    char *users = malloc(l->batch * ROW_BYTES), *requests = malloc(l->batch * ROW_BYTES);
    PGconn *conn = PQconnectdb(l->url);
    must(users && requests && PQstatus(conn) == CONNECTION_OK, "connect");
    PQclear(PQprepare(conn, "many", "SELECT * FROM once_mutation_begin_many($1, $2)", 0, NULL));
    unsigned seed = (unsigned)(uintptr_t)conn;
    for (;;) {
        size_t n = atomic_fetch_add(&l->next, 1);
        double due = due_s(l, n);
        if (n >= SAMPLES_MAX || due >= l->start_s + l->seconds) break;
        fill(l, n, &seed, users, requests);
        sleep_until(due);
        insert(conn, l, users, requests);
        l->took_s[n] = now_s() - due;
        atomic_fetch_add(&l->done, 1);
    }
    PQfinish(conn);
    free(users);
    free(requests);
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    must(argc == 6, "do without URL CLIENTS BATCH RATE SECONDS");
    size_t clients = strtoul(argv[2], NULL, 10);
    struct load l = { .url = argv[1],
                      .batch = strtoul(argv[3], NULL, 10),
                      .rate = atof(argv[4]),
                      .seconds = atof(argv[5]) };
    pthread_t threads[CLIENTS_MAX];
    must(clients >= 1 && clients <= CLIENTS_MAX && l.batch >= 1 && l.batch <= BATCH_MAX,
         "begin");
    l.took_s = calloc(SAMPLES_MAX, sizeof *l.took_s);
    l.start_s = now_s();
    must(l.took_s, "begin");
    for (size_t i = 0; i < clients; i++)
        must(pthread_create(&threads[i], NULL, client, &l) == 0, "begin");
    for (size_t i = 0; i < clients; i++) pthread_join(threads[i], NULL);
    size_t done = l.done;
    double took_s = now_s() - l.start_s;
    must(done > 0, "insert anything");
    qsort(l.took_s, done, sizeof *l.took_s, by_size);
    printf("{\"rate\":%.1f,\"rows\":%zu,\"seconds\":%.1f,\"p50_ms\":%.3f,\"p99_ms\":%.3f}\n",
           (double)(done * l.batch) / took_s, done * l.batch, took_s, 1000 * l.took_s[done / 2],
           1000 * l.took_s[done * 99 / 100]);
    return 0;
}
