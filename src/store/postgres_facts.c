/* postgres_facts.c - what the server says of itself, and what it means for the guarantees. */
#include "store/postgres_db.h"

#include <stdio.h>
#include <stdlib.h>

/* Of PGSQL_FACTS, all as text. */
enum {
    FACT_VERSION,
    FACT_FSYNC,
    FACT_SYNC_COMMIT,
    FACT_FULL_PAGES,
    FACT_USED,
    FACT_MAX,
    FACT_SCHEMA,
};

struct said {
    char text[48];
};

static struct said said(const PGresult *q, int column)
{
    struct said s;
    struct bytes text = pg_bytes(q, 0, column);
    snprintf(s.text, sizeof s.text, "%.*s", (int)text.len, (const char *)text.data);
    return s;
}

static bool is_on(const PGresult *q, int column)
{
    return bytes_eq(pg_bytes(q, 0, column), bytes_str("on"));
}

static void durability_facts(struct op *op, const PGresult *q)
{
    if (is_on(q, FACT_FSYNC) && is_on(q, FACT_FULL_PAGES))
        fact_add(op, FACT_OK, "durability", NULL, "a commit survives the loss of power");
    else
        fact_add(op, FACT_WARN, "durability", "set fsync and full_page_writes to on",
                 "fsync is %s, full_page_writes is %s: a loss of power may lose or damage "
                 "what was acknowledged",
                 said(q, FACT_FSYNC).text, said(q, FACT_FULL_PAGES).text);
    fact_add(op, FACT_OK, "commit", NULL, "synchronous_commit is %s%s",
             said(q, FACT_SYNC_COMMIT).text,
             bytes_eq(pg_bytes(q, 0, FACT_SYNC_COMMIT), bytes_str("off"))
                 ? ", and on for our transactions"
                 : "");
}

static void connection_facts(struct op *op, const struct pgdb *db, const PGresult *q)
{
    long used = atol(said(q, FACT_USED).text), most = atol(said(q, FACT_MAX).text);
    bool tight = used * 10 >= most * 9;
    fact_add(op, tight ? FACT_WARN : FACT_OK, "connections",
             tight ? "raise max_connections, or put a pooler in front" : NULL,
             "%ld of %ld are used; each process takes %lld", used, most,
             (long long)db->options.connections);
}

int postgres_facts(struct pgdb *db, struct op *op, struct err *reterr)
{
    struct pg_statement ask = { PGSQL_FACTS };
    int r = pgdb_query(db, &ask, reterr);
    if (r) return r;
    fact_add(op, FACT_OK, "server", NULL, "PostgreSQL %s, schema \"%s\" version %s%s",
             said(ask.result, FACT_VERSION).text, db->options.schema,
             said(ask.result, FACT_SCHEMA).text, db->unnamed ? ", behind a pooler" : "");
    durability_facts(op, ask.result);
    connection_facts(op, db, ask.result);
    PQclear(ask.result);
    return 0;
}
