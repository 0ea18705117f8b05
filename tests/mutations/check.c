/* check.c - what the workers were told, beside what is in the database.
 *
 *   mutations check --count N FILE...      a file for each worker
 *
 * Each was told an answer for each mutation, so each mutation must be there; no mutation may be there
 * twice; and whoever was told a response was told that of the one that is there. Prints TAP. */
#include "tests/mutations/mutations.h"
#include "tests/support/world.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

struct row {
    long applied;
    char response[120]; /* of what is there */
    unsigned answered;  /* by so many workers */
};

struct sums {
    unsigned long missing, lost, twice, wrong, tries, faults, answers, outcomes[12];
};

/* ---- the database ---- */

static void read_applied(PGconn *pg, struct row *rows, long count)
{
    PGresult *r =
        PQexec(pg, "SELECT substr(request, 3)::integer, request || ' ' || tag FROM applied"
                   " WHERE request ~ '^r-[0-9]+$'");
    CHECK(PQresultStatus(r) == PGRES_TUPLES_OK);
    for (int i = 0; i < PQntuples(r); i++) {
        long n = atol(PQgetvalue(r, i, 0));
        if (n >= count) continue;
        rows[n].applied++;
        snprintf(rows[n].response, sizeof rows[n].response, "%s", PQgetvalue(r, i, 1));
    }
    PQclear(r);
}

/* ---- what was told ---- */

static int outcome_named(const char *name)
{
    for (int o = 1; o < 12; o++)
        if (strcmp(once_outcome_name(o), name) == 0) return o;
    return 0;
}

static void read_line(const char *line, struct row *rows, long count, struct sums *s)
{
    long n, tries, faults;
    char outcome[24], response[120] = "";
    if (sscanf(line, "%ld %23s %ld %ld %119[^\n]", &n, outcome, &tries, &faults, response) < 4)
        return;
    CHECK(n >= 0 && n < count);
    rows[n].answered++;
    s->answers++;
    s->tries += (unsigned long)tries;
    s->faults += (unsigned long)faults;
    s->outcomes[outcome_named(outcome)]++;
    if (!response[0] || rows[n].applied != 1 || strcmp(response, rows[n].response) == 0) return;
    if (s->wrong++ < 5)
        tap_note("%ld: told \"%s\", and there is \"%s\"", n, response, rows[n].response);
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
    tap_note("%lu answers in %lu tries, of which %lu met a fault: %lu ok, %lu cached, %lu "
             "already_done",
             s.answers, s.tries, s.faults, s.outcomes[ONCE_OK], s.outcomes[ONCE_CACHED],
             s.outcomes[ONCE_ALREADY_DONE]);
    tap_result(s.missing == 0,
               "mutations: every one was answered, to every worker (%lu were not)", s.missing);
    tap_result(s.twice == 0, "mutations: none was applied twice (%lu were)", s.twice);
    tap_result(s.lost == 0, "mutations: none was lost (%lu were)", s.lost);
    tap_result(s.wrong == 0, "mutations: one response for all (%lu were told another)",
               s.wrong);
    long long used = pg_count(pg, "SELECT sum(uses) FROM inventory"),
              rows_there = pg_count(pg, "SELECT count(*) FROM applied");
    tap_result(used == rows_there, "mutations: the inventory agrees (%lld of %lld)", used,
               rows_there);
    PQfinish(pg);
    free(rows);
    return tap_end();
}
