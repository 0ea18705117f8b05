/* mutations.h - the parts of one program that applies mutations to a real database while what they
 * depend on is broken.
 *
 *   mutations scenes   what must happen, one after the other, each fault at the moment that matters
 *   mutations worker   a client process: applies every mutation until it has a definite answer
 *   mutations check    what all of them were told, beside what is in the database
 *
 * tests/mutations/run starts servers, proxies and workers. */
#ifndef TESTS_MUTATIONS_MUTATIONS_H
#define TESTS_MUTATIONS_MUTATIONS_H

#include <libpq-fe.h>
#include <once/once.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

int scenes_main(int argc, char **argv);
int worker_main(int argc, char **argv);
int check_main(int argc, char **argv);

/* ---- told.c: what a try was told ---- */

enum told {
    TOLD_OK, /* the first three are definite: it is not tried again */
    TOLD_CACHED,
    TOLD_ALREADY_DONE,
    TOLD_IN_PROGRESS,
    TOLD_ROLLED_BACK, /* ONCE_CLAIMED */
    TOLD_UNAVAILABLE,
    TOLD_AMBIGUOUS,
    TOLD_KINDS, /* something else */
};

enum told told_of(int result, int outcome);
enum told told_named(const char *name);
const char *told_name(enum told t);
bool told_is_definite(enum told t);
/* May this try, by itself, have changed something? */
bool told_may_have_applied(enum told t);

/* ---- stage.c: servers, proxies, a database with something in it ---- */

const char *env_of(const char *name); /* ends the program if it is not set */

/* `fault proxy` in front of a server. */
struct line {
    pid_t pid;
    FILE *say, *hear;
    char port[8];
};
void line_open(struct line *l, const char *url); /* of the server */
void line_close(struct line *l);
void line_do(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The URL with the port of the line instead of its own. */
const char *line_url(const struct line *l, const char *url);

PGconn *pg_open(const char *url); /* insists */
/* One statement, or several; the first column of the first row, until the next call; insists. */
const char *pg_say(PGconn *pg, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
long long pg_count(PGconn *pg, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Asks until it is true; ends the program after a minute. */
void pg_until(PGconn *pg, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void stage_install(
    PGconn *pg); /* markers, and tables `applied` and `inventory`, which are empty */
struct once *once_on(const char *coord); /* without a ledger; NULL: none; insists */

/* UseItem: what a mutation does. It leaves a row in `applied` for each time that it was carried out. */
struct use {
    const char *request;
    char tag[40]; /* of this time; the response is "REQUEST TAG" */
    char response[160];
    void (*meanwhile)(void *ctx); /* inside the transaction; NULL: nothing */
    void *ctx;
    int fails; /* what it returns */
};
void use_init(struct use *u, const char *request);
int use_item(void *ctx, struct once_db db, struct once_bytes *ret_response);
struct once_mutation mutation_of(const char *request);

#endif
