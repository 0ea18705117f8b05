/* libpq.c URL - the SQL door from C, with nothing but libpq. Prints one result per line. */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *conn;

/* NULL: it went well; else the SQLSTATE, until the next call. */
static const char *run(const char *sql)
{
    static char state[6];
    PGresult *r = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(r);
    const char *why = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    snprintf(state, sizeof state, "%s", why ? why : "");
    PQclear(r);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ? NULL : state;
}

static const char *use_item(const char *request, const char *method)
{
    char begin[200];
    static char failed[6];
    snprintf(begin, sizeof begin, "SELECT once_mutation_begin('c', '%s', '%s')", request,
             method);
    run("BEGIN");
    const char *why = run(begin);
    if (!why) why = run("UPDATE items SET used = used + 1 WHERE id = 2");
    if (!why) why = run("COMMIT");
    if (!why) return "done";
    snprintf(failed, sizeof failed, "%s", why);
    run("ROLLBACK");
    return failed;
}

int main(int argc, char **argv)
{
    conn = PQconnectdb(argc > 1 ? argv[1] : "");
    if (PQstatus(conn) != CONNECTION_OK) return fputs(PQerrorMessage(conn), stderr), 1;
    printf("first: %s\n", use_item("r1", "UseItem"));
    printf("again: %s\n", use_item("r1", "UseItem"));
    printf("another method: %s\n", use_item("r1", "SellItem"));
    printf("no request: %s\n", use_item("", "UseItem"));
    PGresult *r = PQexec(conn, "SELECT used FROM items WHERE id = 2");
    printf("used: %s\n", PQgetvalue(r, 0, 0));
    PQclear(r);
    PQfinish(conn);
    return 0;
}
