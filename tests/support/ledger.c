/* ledger.c - see ledger.h. */
#include "tests/support/ledger.h"

#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void ignore_notice(void *ctx, const PGresult *result)
{
    (void)ctx, (void)result;
}

void ledger_init(struct ledger *l, enum server server)
{
    *l = (struct ledger){ .admin = NULL };
    if (!server_url(server)) fprintf(stderr, "no server: run it through tests/with-servers\n");
    CHECK(server_url(server));
    world_init(&l->world, 1);
    room_init(&l->room, server);
    room_url(&l->room, l->url, sizeof l->url);
    l->admin = PQconnectdb(server_url(SERVER_POSTGRES));
    CHECK(PQstatus(l->admin) == CONNECTION_OK);
    PQsetNoticeReceiver(l->admin, ignore_notice, NULL);
    ledger_sql(l, "SET search_path = %s", l->room.name);
}

void ledger_fini(struct ledger *l)
{
    PQfinish(l->admin);
    room_clear(&l->room);
    world_fini(&l->world);
}

const char *ledger_url(struct ledger *l, const char *more)
{
    static char url[1024];
    snprintf(url, sizeof url, "%s%s", l->url, more);
    return url;
}

struct store *ledger_open(struct ledger *l, const char *more)
{
    struct err err;
    struct store *store = NULL;
    int r = store_open_bare(ledger_url(l, more), &l->world.env, &store, &err);
    if (r) fprintf(stderr, "ledger: %s\n", err.text);
    CHECK(r == 0);
    return store;
}

const char *ledger_sql(struct ledger *l, const char *fmt, ...)
{
    static char sql[4096], first[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(sql, sizeof sql, fmt, args);
    va_end(args);
    PGresult *result = PQexec(l->admin, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        fprintf(stderr, "ledger: %s: %s", sql, PQerrorMessage(l->admin));
    CHECK(status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK);
    first[0] = '\0';
    if (PQntuples(result) > 0) snprintf(first, sizeof first, "%s", PQgetvalue(result, 0, 0));
    PQclear(result);
    return first;
}

long long ledger_number(struct ledger *l, const char *sql)
{
    return atoll(ledger_sql(l, "%s", sql));
}

void ledger_until(struct ledger *l, const char *sql)
{
    struct clock clock = clock_monotonic();
    int64_t end_ms = clock_now_ms(&clock) + 60000;
    while (*ledger_sql(l, "%s", sql) != 't') CHECK(clock_now_ms(&clock) < end_ms);
}

struct op *ledger_op(enum verb verb, const char *name, uint8_t who, const char *value)
{
    struct key key = key_of("s", name);
    struct request in = { .token = token_of(who),
                          .lease_ms = verb == VERB_CLAIM ? LEDGER_LEASE_MS : -1,
                          .retain_ms = verb == VERB_CLAIM ? LEDGER_LEASE_MS : -1,
                          .value = value ? blob_new(bytes_str(value)) : NULL };
    struct op *op = op_new(verb, verb_info[verb].keyed ? &key : NULL, &in);
    CHECK(op);
    blob_unref(in.value);
    op->limit = 1000;
    return op;
}

void ledger_exec(struct store *s, struct op **ops, size_t count)
{
    s->class->exec(s, ops, count);
}

struct answer ledger_do(struct store *s, enum verb verb, const char *name, uint8_t who,
                        const char *value)
{
    struct op *op = ledger_op(verb, name, who, value);
    ledger_exec(s, &op, 1);
    if (op->err.code) fprintf(stderr, "ledger: %s\n", op->err.text);
    CHECK(op->err.code == 0);
    struct answer answer = op->out;
    answer.value = NULL;
    op_free(op);
    return answer;
}
