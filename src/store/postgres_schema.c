/* postgres_schema.c - which version the schema has, and how it gets to ours.
 *
 * Guarantees: however many processes start at once, each step is made once (a lock that ends
 * with the transaction, so that it works behind a pooler, too); all missing steps in one
 * transaction; a schema that is newer than this program, also one that became so while it waited, is left
 * alone and refused. The steps
 * are the files in postgres/, which are plain SQL and may be run again. To change the schema:
 * add a file. Never change one that was released. */
#include "base/buf.h"
#include "store/postgres_db.h"

#include <stdio.h>

/* postgres/001-claims.sql and so on, made by tools/embed */
extern const char postgres_001_claims[], postgres_002_runs[];

/* The i-th makes version i + 1. */
static const struct {
    const char *name, *sql;
} migrations[] = {
    { "001-claims.sql", postgres_001_claims },
    { "002-runs.sql", postgres_002_runs },
};

enum {
    VERSION = sizeof migrations / sizeof migrations[0],
    SCRIPT_BYTES_MAX = 1 << 20,
};

/* 0: there is no schema, or nothing in it. */
static int version_read(struct pgdb *db, int64_t *ret_version, struct err *reterr)
{
    struct pg_statement ask = { PGSQL_VERSION };
    int r = pgdb_query(db, &ask, reterr);
    if (r && db->missing) {
        *ret_version = 0;
        return 0;
    }
    if (r) return r;
    *ret_version = PQntuples(ask.result) == 1 ? pg_number(ask.result, 0, 0) : 0;
    PQclear(ask.result);
    return 0;
}

static int version_check(const struct pgdb *db, int64_t version, struct err *reterr)
{
    if (version <= VERSION) return 0;
    return err_set(reterr, ERR_VERSION,
                   "postgres: schema \"%s\" has version %lld, this program knows up to %d: "
                   "use a newer one",
                   db->options.schema, (long long)version, VERSION);
}

/* Asked with the lock held: somebody may have been at it while this one waited. What a newer program has
 * made must not be replaced; nor is what another has just made made again, which would take the tables
 * from everybody who uses them already. */
static void guard_write(struct buf *script, const char *schema, size_t version)
{
    buf_printf(script,
               "DO $$ BEGIN\n"
               "    IF to_regclass('versions') IS NULL THEN RETURN; END IF;\n"
               "    IF (SELECT max(version) FROM versions) > %zu THEN\n"
               "        RAISE EXCEPTION 'schema \"%s\" is newer than this script';\n"
               "    END IF;\n"
               "END $$;\n",
               version, schema);
}

/* A schema of a version up to `newest` is brought from `version` on up to date; as psql takes it, too.
 * Read committed: what others did until the lock was ours is seen behind it. */
static void script_write(struct buf *script, const char *schema, size_t version, size_t newest)
{
    buf_printf(script,
               "BEGIN ISOLATION LEVEL READ COMMITTED;\n"
               "SET LOCAL client_min_messages = warning;\n"
               "SELECT pg_advisory_xact_lock(hashtext('once migrate %s'));\n"
               "CREATE SCHEMA IF NOT EXISTS %s;\n"
               "SET LOCAL search_path = %s;\n",
               schema, schema, schema);
    guard_write(script, schema, newest);
    for (size_t i = version; i < VERSION; i++) buf_printf(script, "\n%s", migrations[i].sql);
    buf_add(script, bytes_str("\nCOMMIT;\n"));
    buf_byte(script, '\0');
}

static int script_run(struct pgdb *db, size_t version, struct err *reterr)
{
    struct buf script;
    buf_init(&script, SCRIPT_BYTES_MAX);
    script_write(&script, db->options.schema, version, version);
    int r = buf_failed(&script)
                ? err_set(reterr, buf_failed(&script), "out of memory migrating postgres:")
                : pgdb_script(db, (const char *)script.data, reterr);
    buf_fini(&script);
    if (r && db->conn && PQtransactionStatus(db->conn) != PQTRANS_IDLE) {
        struct err ignored;
        pgdb_script(db, "ROLLBACK", &ignored);
    }
    return r;
}

static int explain(const struct pgdb *db, int64_t version, const struct err *cause,
                   struct err *reterr)
{
    char found[40] = "is missing";
    if (version) snprintf(found, sizeof found, "has version %lld", (long long)version);
    return err_set(reterr, cause ? cause->code : ERR_UNSUPPORTED,
                   "postgres: schema \"%s\" %s, version %d is needed: run once migrate%s%.80s",
                   db->options.schema, found, VERSION, cause ? "; " : "",
                   cause ? cause->text : "");
}

/* If somebody else was faster, the version is another one, and looked at again. */
static int settle(struct pgdb *db, bool may_change, int64_t *ret_before, struct err *reterr)
{
    int64_t version = 0;
    int r = version_read(db, &version, reterr);
    *ret_before = version;
    while (!r && version < VERSION) {
        struct err cause;
        int64_t seen = version;
        if (!may_change) return explain(db, seen, NULL, reterr);
        int failed = script_run(db, (size_t)seen, &cause);
        r = version_read(db, &version, reterr);
        bool stuck = r ? failed : version == seen;
        if (stuck) return explain(db, seen, failed ? &cause : NULL, reterr);
    }
    return r ? r : version_check(db, version, reterr);
}

int postgres_schema_settle(struct pgdb *db, struct err *reterr)
{
    int64_t before;
    return settle(db, db->options.migrate, &before, reterr);
}

/* ---- once migrate ---- */

static int print_script(const char *schema, store_say *say, void *ctx, struct err *reterr)
{
    struct buf script;
    buf_init(&script, SCRIPT_BYTES_MAX);
    script_write(&script, schema, 0, VERSION);
    int r = buf_failed(&script);
    if (r) err_set(reterr, r, "out of memory printing the schema");
    if (!r) say(ctx, (const char *)script.data);
    buf_fini(&script);
    return r;
}

static void say_done(const struct pgdb *db, int64_t before, store_say *say, void *ctx)
{
    char text[160];
    for (size_t i = (size_t)before; i < VERSION; i++) {
        snprintf(text, sizeof text, "applied %s", migrations[i].name);
        say(ctx, text);
    }
    snprintf(text, sizeof text, "schema \"%s\" has version %d%s", db->options.schema, VERSION,
             before == VERSION ? ": nothing to do" : "");
    say(ctx, text);
}

int postgres_migrate(const char *rest, const struct store_env *env, bool print, store_say *say,
                     void *ctx, struct err *reterr)
{
    struct pgdb db = { .conn = NULL };
    int64_t before = 0;
    int r = postgres_options_parse(rest, &db.options, reterr);
    if (!r && print) {
        r = print_script(db.options.schema, say, ctx, reterr);
        postgres_options_clear(&db.options);
        return r;
    }
    if (!r) r = pgdb_open(&db, env->rng, reterr);
    if (!r) r = settle(&db, true, &before, reterr);
    if (!r) say_done(&db, before, say, ctx);
    pgdb_close(&db);
    return r;
}
