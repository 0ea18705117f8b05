/* triggers.h - the parts of the program that triggers runs through the RESP door.
 *
 * One thread, blocking writes, an epoll for the answers. An answer that is not the expected one ends
 * the program: what it counts was done. */
#ifndef BENCH_RUNS_TRIGGERS_H
#define BENCH_RUNS_TRIGGERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ID_BYTES = 30, IN_FLIGHT_MAX = 250, CLIENTS_MAX = 8192 };

/* A connection, with what was asked on it and not answered yet, in order. */
struct client {
    int fd;
    unsigned first, in_flight;
    double asked_s[IN_FLIGHT_MAX]; /* a ring: when each of them was due */
    char in[8192], out[16384];
    size_t len, out_len;
};

struct answer {
    bool created, buffered;
    char id[ID_BYTES];
    double asked_s;
};

struct crowd {
    int epoll;
    size_t count;
    struct client *clients;
};

typedef void on_answer(struct client *c, const struct answer *a, void *ctx);

double now_s(void); /* monotonic */
void must(bool ok, const char *what);

/* Connections to all of the ports, in turns. */
void crowd_open(struct crowd *crowd, char **ports, size_t port_count, size_t count);
/* Waits for up to so long, and calls for each answer; what that asks is sent. */
void crowd_turn(struct crowd *crowd, int wait_ms, on_answer *call, void *ctx);

/* One trigger more on it, sent by the next flush; asked_s counts as the time of asking. */
void trigger_key(struct client *c, const char *key, double asked_s);
void trigger_new(struct client *c, double asked_s); /* a key that nobody has used */
void client_flush(struct client *c);

/* Sorts them. In ms; `part` is from 0 to 1. */
double quantile_ms(double *seconds, size_t count, double part);

/* `depth` triggers at a time on each connection. */
void load(char *port, size_t clients, size_t depth, double seconds, const char *where);
void fill(char *port, size_t clients, size_t depth, size_t count);
void burst(char **ports, size_t port_count, size_t callers, size_t bursts);
void storm(char *port, size_t clients, double rate, double seconds, const char *ids_path);

#endif
