/* main.c - many clients in one process.
 *
 *   storm --out FILE [--seed N] [--env NAME] [--clients N] [--runs N] once://DAEMON...
 *   storm --out FILE [--env NAME] --list 1 once://DAEMON...
 *
 * Opens the library through its public door, twice for every daemon, and plays clients on threads.
 * On SIGUSR1 the faults are over: the clients work on everything that is left, and every id that
 * anybody was ever told is asked for until its run is final and in the ledger, or the time is up.
 * Without a signal it ends after ten minutes. With --list it only lists all runs that there are. */
#include "tests/storm/storm.h"

#include "base/check.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HANDLES_PER_DAEMON = 2, LIMIT_S = 600 };

static struct storm storm = { .seed = 1,
                              .env = "storm",
                              .runs_max = 5000,
                              .clients = 16,
                              .lock = PTHREAD_MUTEX_INITIALIZER };
static struct client clients[CLIENTS_MAX];
static int64_t lists;
static atomic_int over;
static pthread_barrier_t all_here;

static void on_signal(int number)
{
    (void)number;
    over = 1;
}

static void *client_run(void *ctx)
{
    struct client *c = ctx;
    int64_t limit_us = now_us() + (int64_t)LIMIT_S * 1000000;
    while (!over && now_us() < limit_us) client_play(c);
    pthread_barrier_wait(&all_here); /* nobody is told another id from now on */
    if (over) client_settle(c);
    return NULL;
}

static bool open_url(struct storm *s, const char *url)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    config.url = url;
    config.patience_ms = 1500;
    CHECK(s->handles < HANDLES_MAX);
    if (once_open(&config, &s->once[s->handles], &error) < 0) {
        fprintf(stderr, "storm: %s: %s\n", url, error.text);
        return false;
    }
    s->handles++;
    return true;
}

/* The index of the first argument that is no option, or -1. */
static int options_take(int argc, char **argv, const char **ret_out)
{
    const struct {
        const char *name, **text;
        int64_t *number;
    } options[] = { { "--out", ret_out, NULL },          { "--env", &storm.env, NULL },
                    { "--seed", NULL, &storm.seed },     { "--clients", NULL, &storm.clients },
                    { "--runs", NULL, &storm.runs_max }, { "--list", NULL, &lists } };
    int at = 1;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        size_t i = 0, count = sizeof options / sizeof *options;
        while (i < count && strcmp(argv[at], options[i].name) != 0) i++;
        if (i == count) return -1;
        if (options[i].text) *options[i].text = argv[at + 1];
        if (options[i].number) *options[i].number = strtoll(argv[at + 1], NULL, 10);
    }
    return at;
}

static void client_init(struct client *c, int index)
{
    *c = (struct client){ .storm = &storm, .index = index, .handle = (size_t)index };
    rng_seeded_init(&c->rng, (uint64_t)storm.seed * 100 + (uint64_t)index);
}

static void clients_run(void)
{
    CHECK(!pthread_barrier_init(&all_here, NULL, (unsigned)storm.clients));
    for (int i = 0; i < storm.clients; i++) {
        client_init(&clients[i], i);
        CHECK(!pthread_create(&clients[i].thread, NULL, client_run, &clients[i]));
    }
    for (int i = 0; i < storm.clients; i++) pthread_join(clients[i].thread, NULL);
}

static void list_all(void)
{
    client_init(&clients[0], 0);
    client_list(&clients[0]);
}

int main(int argc, char **argv)
{
    const char *out = NULL;
    int at = options_take(argc, argv, &out);
    if (at < 0 || at == argc || !out || storm.clients < 1 || storm.clients > CLIENTS_MAX) {
        fprintf(stderr, "usage: storm --out FILE [--seed N] [--env NAME] [--clients N] "
                        "[--runs N] once://DAEMON...\n");
        return 2;
    }
    storm.fd = open(out, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    storm.told = calloc(IDS_MAX, sizeof *storm.told);
    CHECK(storm.fd >= 0 && storm.told);
    signal(SIGUSR1, on_signal);
    for (; at < argc; at++)
        for (int i = 0; i < HANDLES_PER_DAEMON; i++)
            if (!open_url(&storm, argv[at])) return 1;
    storm.start_us = now_us();
    if (lists)
        list_all();
    else
        clients_run();
    for (size_t i = 0; i < storm.handles; i++) once_close(storm.once[i]);
    free(storm.told);
    return over || lists ? 0 : 1;
}
