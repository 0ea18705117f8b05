/* mutate.c - UPDATE of one row by libpq, as bench/mutations.mjs asks for it: bare, or by once_mutate().
 *
 *   mutate URL CLIENTS SECONDS HOW     HOW: bare; marker; response: and one of 16 bytes is kept
 *
 * Each client is a thread with a connection of its own. Bare is BEGIN, the UPDATE, COMMIT; the others
 * are once_mutate() without a replay cache, each time with a request that nobody else has. The UPDATE is
 * prepared in all of them. A transaction that is not the first of its request ends the program. */
#include <libpq-fe.h>
#include <once/once.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_MAX = 64, ROWS = 100000 };

struct load {
    const char *url, *response;
    bool bare;
    double until_s;
    atomic_size_t done;
};

static void must(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "mutate: cannot %s\n", what);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct work {
    struct load *load;
    PGconn *conn;
    char row[16];
};

static void run(PGconn *conn, const char *sql)
{
    PGresult *r = PQexec(conn, sql);
    must(PQresultStatus(r) == PGRES_COMMAND_OK, sql);
    PQclear(r);
}

static int update(void *ctx, struct once_db db, struct once_bytes *ret_response)
{
    struct work *w = ctx;
    PGresult *r =
        PQexecPrepared(db.pg, "use", 1, (const char *const[]){ w->row }, NULL, NULL, 0);
    must(strcmp(PQcmdTuples(r), "1") == 0, "update the row");
    PQclear(r);
    *ret_response = once_str(w->load->response);
    return 0;
}

static void bare(struct work *w)
{
    struct once_bytes ignored;
    run(w->conn, "BEGIN");
    update(w, (struct once_db){ .pg = w->conn }, &ignored);
    run(w->conn, "COMMIT");
}

static void mutate(struct work *w, const char *user, const char *request)
{
    struct once_mutation in = ONCE_MUTATION_INIT;
    struct once_mutation_answer a;
    in.user = once_str(user);
    in.request = once_str(request);
    in.method = once_str("UseItem");
    int r = once_mutate(NULL, (struct once_db){ .pg = w->conn }, &in, update, w, &a);
    if (r || a.outcome != ONCE_OK) fputs(a.error.text, stderr);
    must(!r && a.outcome == ONCE_OK, "mutate");
    once_mutation_answer_clear(&a);
}

static void *client(void *ctx)
{
    struct load *l = ctx;
    struct work w = { .load = l, .conn = PQconnectdb(l->url) };
    unsigned seed = (unsigned)(uintptr_t)w.conn;
    must(PQstatus(w.conn) == CONNECTION_OK, "connect");
    PQclear(PQprepare(w.conn, "use",
                      "UPDATE bench_items SET version = version + 1 WHERE id = $1", 0, NULL));
    for (size_t n = 0; now_s() < l->until_s; n++) {
        char request[64];
        snprintf(w.row, sizeof w.row, "%u", 1 + (unsigned)rand_r(&seed) % ROWS);
        snprintf(request, sizeof request, "%08x-%d-%p-%zu", (unsigned)rand_r(&seed),
                 (int)getpid(), (void *)w.conn, n);
        if (l->bare)
            bare(&w);
        else
            mutate(&w, w.row, request);
        atomic_fetch_add(&l->done, 1);
    }
    PQfinish(w.conn);
    return NULL;
}

int main(int argc, char **argv)
{
    must(argc == 5, "do without URL CLIENTS SECONDS HOW");
    size_t clients = strtoul(argv[2], NULL, 10);
    double start_s = now_s();
    struct load l = { .url = argv[1],
                      .bare = strcmp(argv[4], "bare") == 0,
                      .response = strcmp(argv[4], "response") == 0 ? "{\"left\": 123456}" : "",
                      .until_s = start_s + atof(argv[3]) };
    pthread_t threads[CLIENTS_MAX];
    must(clients >= 1 && clients <= CLIENTS_MAX, "begin");
    for (size_t i = 0; i < clients; i++)
        must(pthread_create(&threads[i], NULL, client, &l) == 0, "begin");
    for (size_t i = 0; i < clients; i++) pthread_join(threads[i], NULL);
    printf("{\"rate\":%.1f}\n", (double)l.done / (now_s() - start_s));
    return 0;
}
