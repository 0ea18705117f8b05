/* stage.c - see mutations.h. */
#include "tests/mutations/mutations.h"

#include "base/check.h"
#include "base/random.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const char *env_of(const char *name)
{
    const char *value = getenv(name);
    if (value) return value;
    fprintf(stderr, "mutations: %s is not set: run tests/mutations/run\n", name);
    exit(2);
}

/* ---- proxies ---- */

static const char *address_in(const char *url)
{
    const char *at = strrchr(url, '@'), *start = strstr(url, "://");
    static char address[64];
    at = at ? at + 1 : start + 3;
    snprintf(address, sizeof address, "%.*s", (int)strcspn(at, "/?"), at);
    return address;
}

void line_open(struct line *l, const char *url)
{
    int in[2], out[2];
    CHECK(pipe(in) == 0 && pipe(out) == 0);
    l->pid = fork();
    CHECK(l->pid >= 0);
    if (l->pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        for (int fd = 3; fd < 64; fd++) close(fd);
        execl(env_of("ONCE_TEST_FAULT"), "fault", "proxy", "0", address_in(url), (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    l->say = fdopen(in[1], "w");
    l->hear = fdopen(out[0], "r");
    CHECK(l->say && l->hear && fgets(l->port, sizeof l->port, l->hear));
    l->port[strcspn(l->port, "\n")] = '\0';
}

void line_close(struct line *l)
{
    fclose(l->say);
    fclose(l->hear);
    waitpid(l->pid, NULL, 0);
}

void line_do(struct line *l, const char *fmt, ...)
{
    char answer[16];
    va_list args;
    va_start(args, fmt);
    vfprintf(l->say, fmt, args);
    va_end(args);
    fputc('\n', l->say);
    fflush(l->say);
    CHECK(fgets(answer, sizeof answer, l->hear) && strcmp(answer, "ok\n") == 0);
}

const char *line_url(const struct line *l, const char *url)
{
    static char changed[2][512];
    static int turn;
    char *out = changed[turn++ % 2];
    const char *address = strstr(url, address_in(url)), *colon = strchr(address, ':');
    snprintf(out, sizeof changed[0], "%.*s:%s%s", (int)(colon - url), url, l->port,
             colon + 1 + strspn(colon + 1, "0123456789"));
    return out;
}

/* ---- PostgreSQL ---- */

static void ignore_notice(void *ctx, const PGresult *result)
{
    (void)ctx, (void)result;
}

PGconn *pg_open(const char *url)
{
    PGconn *pg = PQconnectdb(url);
    if (PQstatus(pg) != CONNECTION_OK) fprintf(stderr, "%s: %s", url, PQerrorMessage(pg));
    CHECK(PQstatus(pg) == CONNECTION_OK);
    PQsetNoticeReceiver(pg, ignore_notice, NULL);
    return pg;
}

static const char *say(PGconn *pg, const char *fmt, va_list args)
{
    static char sql[4096], first[256];
    vsnprintf(sql, sizeof sql, fmt, args);
    PGresult *r = PQexec(pg, sql);
    bool fine = PQresultStatus(r) == PGRES_TUPLES_OK || PQresultStatus(r) == PGRES_COMMAND_OK;
    if (!fine) fprintf(stderr, "%s: %s", sql, PQerrorMessage(pg));
    CHECK(fine);
    snprintf(first, sizeof first, "%s", PQntuples(r) ? PQgetvalue(r, 0, 0) : "");
    PQclear(r);
    return first;
}

const char *pg_say(PGconn *pg, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *first = say(pg, fmt, args);
    va_end(args);
    return first;
}

long long pg_count(PGconn *pg, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    long long n = atoll(say(pg, fmt, args));
    va_end(args);
    return n;
}

void pg_until(PGconn *pg, const char *fmt, ...)
{
    time_t end = time(NULL) + 60;
    const char *first = "";
    while (first[0] != 't') {
        va_list args;
        va_start(args, fmt);
        first = say(pg, fmt, args);
        va_end(args);
        if (time(NULL) > end) fprintf(stderr, "never: %s\n", fmt);
        CHECK(time(NULL) <= end);
    }
}

static void heard(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

void stage_install(PGconn *pg)
{
    struct once_error error;
    int r =
        once_migrate(env_of("ONCE_TEST_POSTGRES"), ONCE_MIGRATE_MUTATIONS, heard, NULL, &error);
    if (r) fprintf(stderr, "%s\n", error.text);
    CHECK(r == 0);
    pg_say(pg, "DROP TABLE IF EXISTS applied, inventory;"
               "CREATE TABLE applied (request text NOT NULL, tag text NOT NULL);"
               "CREATE TABLE inventory (item integer PRIMARY KEY, uses bigint NOT NULL);"
               "INSERT INTO inventory SELECT n, 0 FROM generate_series(0, 60) n;"
               "TRUNCATE once_mutations");
}

struct once *once_on(const char *coord)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    struct once *o;
    if (!coord) return NULL;
    config.flags = ONCE_EPHEMERAL;
    config.coord = coord;
    if (strncmp(coord, "once:", 5) == 0) {
        config = (struct once_config)ONCE_CONFIG_INIT;
        config.url = coord;
    }
    int r = once_open(&config, &o, &error);
    if (r) fprintf(stderr, "%s: %s\n", coord, error.text);
    CHECK(r == 0);
    return o;
}

/* ---- a mutation ---- */

void use_init(struct use *u, const char *request)
{
    struct rng_system rng;
    rng_system_init(&rng);
    *u = (struct use){ .request = request };
    snprintf(u->tag, sizeof u->tag, "%016llx", (unsigned long long)rng_u64(&rng.base));
}

static bool run(PGconn *pg, const char *sql, const char *const *values, int count)
{
    PGresult *r = PQexecParams(pg, sql, count, NULL, values, NULL, NULL, 0);
    bool fine = PQresultStatus(r) == PGRES_COMMAND_OK;
    PQclear(r);
    return fine;
}

int use_item(void *ctx, struct once_db db, struct once_bytes *ret_response)
{
    struct use *u = ctx;
    const char *values[] = { u->request, u->tag };
    bool fine =
        run(db.pg, "UPDATE inventory SET uses = uses + 1 WHERE item = abs(hashtext($1)) % 61",
            values, 1) &&
        run(db.pg, "INSERT INTO applied VALUES ($1, $2)", values, 2);
    if (!fine) return -1;
    if (u->meanwhile) u->meanwhile(u->ctx);
    snprintf(u->response, sizeof u->response, "%s %s", u->request, u->tag);
    *ret_response = once_str(u->response);
    return u->fails;
}

struct once_mutation mutation_of(const char *request)
{
    struct once_mutation in = ONCE_MUTATION_INIT;
    in.user = once_str("user-1");
    in.request = once_str(request);
    in.method = once_str("UseItem");
    return in;
}
