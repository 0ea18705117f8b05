/* storm.h - clients of daemons that are killed, and what each of them was told about runs.
 *
 *   main.c     the process: options, handles, threads, when it is over
 *   client.c   what a client does
 *   record.c   the lines that are checked (check.py) */
#ifndef TESTS_STORM_STORM_H
#define TESTS_STORM_STORM_H

#include "base/random.h"

#include <once/once.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CLIENTS_MAX = 64, HANDLES_MAX = 8, IDS_MAX = 200000 };

/* An id that somebody was told. */
struct told {
    char id[31];
    bool settled;
};

struct storm {
    struct once *once[HANDLES_MAX];
    size_t handles;
    const char *env;
    int64_t seed, runs_max, clients, start_us;
    int fd;
    atomic_int_fast64_t made; /* runs, about */
    pthread_mutex_t lock;     /* of both below */
    struct told *told;
    size_t count;
};

struct client {
    struct storm *storm;
    int index;
    pthread_t thread;
    struct rng_seeded rng;
    size_t handle;
    unsigned outputs;
};

/* ---- client.c ---- */

void client_play(struct client *c);   /* one thing */
void client_settle(struct client *c); /* everything that is left */
void client_list(struct client *c);   /* every run that there is, whoever was told of it */

/* ---- record.c ---- */

struct asked {
    const char *act;
    const char *id;    /* that it is about; NULL: none */
    const char *what;  /* key, tag, output, ...; NULL: nothing */
    const char *token; /* NULL: none */
    int64_t begin_us;
    bool final;
};

int64_t now_us(void);
/* A line; `run`: of the answer, NULL: there is none. */
void record(const struct storm *s, const struct asked *a, int r,
            const struct once_run_answer *answer, const struct once_run *run);

#endif
