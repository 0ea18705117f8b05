/* check.c - what the workers were told, beside what is in the database.
 *
 *   mutations check --count N FILE...      a file for each worker
 *
 * Each was told an answer for each mutation, so each mutation must be there; no mutation may be there
 * twice; whoever was told a response was told that of the one that is there; and what is there is of a try
 * that was told so, or that nobody knows, and never of one that was told that nothing happened, or
 * that it had been done before. Prints TAP. */
#include "tests/mutations/mutations.h"
#include "tests/support/world.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

struct row {
    long applied;
    char tag[40], response[120]; /* of what is there */
    unsigned answered;           /* by so many workers */
};

struct sums {
    unsigned long missing, lost, twice, wrong, untrue, tries, faults, answers, told[TOLD_KINDS];
};

/* ---- the database ---- */

static void read_applied(PGconn *pg, struct row *rows, long count)
{
    PGresult *r =
        PQexec(pg, "SELECT substr(request, 3)::integer, tag, request || ' ' || tag FROM applied"
                   " WHERE request ~ '^r-[0-9]+$'");
    CHECK(PQresultStatus(r) == PGRES_TUPLES_OK);
    for (int i = 0; i < PQntuples(r); i++) {
        long n = atol(PQgetvalue(r, i, 0));
        if (n >= count) continue;
        rows[n].applied++;
        snprintf(rows[n].tag, sizeof rows[n].tag, "%s", PQgetvalue(r, i, 1));
        snprintf(rows[n].response, sizeof rows[n].response, "%s", PQgetvalue(r, i, 2));
    }
    PQclear(r);
}

/* ---- what was told ---- */

static void check_response(long n, const char *response, const struct row *row, struct sums *s)
{
    if (!response[0] || row->applied != 1 || strcmp(response, row->response) == 0) return;
    if (s->wrong++ < 5)
        tap_note("%ld: told \"%s\", and there is \"%s\"", n, response, row->response);
}

static void check_tag(long n, enum told told, const char *tag, const struct row *row,
                      struct sums *s)
{
    if (told_may_have_applied(told) || row->applied == 0 || strcmp(tag, row->tag) != 0) return;
    if (s->untrue++ < 5)
        tap_note("%ld: told \"%s\", and it is there: %s", n, told_name(told), tag);
}

static void read_line(const char *line, struct row *rows, long count, struct sums *s)
{
    long n, fault;
    char what[24], tag[40], response[120] = "";
    if (sscanf(line, "%ld %23s %39s %ld %119[^\n]", &n, what, tag, &fault, response) < 4)
        return;
    enum told told = told_named(what);
    CHECK(n >= 0 && n < count && told < TOLD_KINDS);
    s->tries++;
    s->faults += fault != 0;
    s->told[told]++;
    check_tag(n, told, tag, &rows[n], s);
    if (!told_is_definite(told)) return;
    rows[n].answered++;
    s->answers++;
    check_response(n, response, &rows[n], s);
}

static void read_file(const char *path, struct row *rows, long count, struct sums *s)
{
    FILE *f = fopen(path, "r");
    char line[256];
    CHECK(f);
    while (fgets(line, sizeof line, f)) read_line(line, rows, count, s);
    fclose(f);
}

static void add_up(const struct row *rows, long count, unsigned files, struct sums *s)
{
    for (long n = 0; n < count; n++) {
        s->missing += rows[n].answered < files;
        s->lost += rows[n].applied == 0;
        s->twice += rows[n].applied > 1;
        if (rows[n].applied > 1 && s->twice <= 5)
            tap_note("r-%ld was applied %ld times", n, rows[n].applied);
    }
}

int check_main(int argc, char **argv)
{
    struct sums s = { 0 };
    if (argc < 4 || strcmp(argv[1], "--count") != 0) return 2;
    long count = atol(argv[2]);
    struct row *rows = calloc((size_t)count, sizeof *rows);
    PGconn *pg = pg_open(env_of("ONCE_TEST_POSTGRES"));
    CHECK(rows);
    read_applied(pg, rows, count);
    for (int i = 3; i < argc; i++) read_file(argv[i], rows, count, &s);
    add_up(rows, count, (unsigned)(argc - 3), &s);
    tap_note(
        "%lu faults met in %lu tries: %lu ended unavailable, %lu ambiguous, %lu rolled back",
        s.faults, s.tries, s.told[TOLD_UNAVAILABLE], s.told[TOLD_AMBIGUOUS],
        s.told[TOLD_ROLLED_BACK]);
    tap_note("%lu answers: %lu ok, %lu cached, %lu already_done", s.answers, s.told[TOLD_OK],
             s.told[TOLD_CACHED], s.told[TOLD_ALREADY_DONE]);
    tap_result(s.missing == 0,
               "mutations: every one was answered, to every worker (%lu were not)", s.missing);
    tap_result(s.twice == 0, "mutations: none was applied twice (%lu were)", s.twice);
    tap_result(s.lost == 0, "mutations: none was lost (%lu were)", s.lost);
    tap_result(s.wrong == 0, "mutations: one response for all (%lu were told another)",
               s.wrong);
    tap_result(s.untrue == 0, "mutations: nothing had happened where that was said (%lu lies)",
               s.untrue);
    tap_result(s.faults >= (unsigned long)count, "mutations: as many faults as mutations (%lu)",
               s.faults);
    long long used = pg_count(pg, "SELECT sum(uses) FROM inventory"),
              rows_there = pg_count(pg, "SELECT count(*) FROM applied");
    tap_result(used == rows_there, "mutations: the inventory agrees (%lld of %lld)", used,
               rows_there);
    PQfinish(pg);
    free(rows);
    return tap_end();
}
