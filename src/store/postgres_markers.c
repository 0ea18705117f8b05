/* postgres_markers.c - markers in the user's own PostgreSQL database: installing and sweeping them.
 *
 * Guarantees: nothing but reading one row of the catalog where markers are not installed; a sweep is
 * one transaction, which leaves alone what others have locked, and says so if it was too much for the
 * time it has; installing is one transaction that
 * many may make at once, never changes a table that is there, and says what it did. What markers are,
 * and what makes them right, is in markers/postgres.sql. */
#include "base/buf.h"
#include "store/postgres_db.h"

#include <stdio.h>
#include <string.h>

extern const char markers_postgres[]; /* markers/postgres.sql, made by tools/embed */

enum { MARKERS_VERSION = 3, SCRIPT_BYTES_MAX = 1 << 20, SWEEP_MAX = 1000000, SWEEP_MIN = 10 };

struct found {
    int64_t version; /* 0: there are none */
    int64_t partitions, ttl_ms;
};

static int found_read(struct pgdb *db, struct found *ret_found, struct err *reterr)
{
    struct pg_statement find = { PGSQL_MARKERS }, look = { PGSQL_MARKERS_LOOK };
    int r = pgdb_read(db, &find, reterr);
    if (r) return r;
    *ret_found = (struct found){ .version = pg_number(find.result, 0, 0),
                                 .partitions = pg_number(find.result, 0, 1) };
    PQclear(find.result);
    if (!ret_found->version) return 0;
    r = pgdb_read(db, &look, reterr);
    if (r) return r;
    ret_found->ttl_ms = pg_number(look.result, 0, 0);
    PQclear(look.result);
    return 0;
}

/* ---- sweeping ---- */

static int sweep(struct pgdb *db, struct op *op, int64_t limit, struct err *reterr)
{
    struct pg_params params = { .count = 0 };
    pg_param_number(&params, limit);
    struct pg_statement statements[] = { { PGSQL_MARKERS_LOOK },
                                         { PGSQL_MARKERS_SWEEP, &params } };
    size_t count = limit ? 2 : 1;
    int r = pgdb_transact(db, statements, count, reterr);
    if (r && limit && db->failed == PG_LOST) reterr->code = ERR_AMBIGUOUS;
    if (r) return reterr->code;
    op->markers = (struct marker_stats){ .installed = true,
                                         .ttl_ms = pg_number(statements[0].result, 0, 0),
                                         .oldest_ms = pg_number(statements[0].result, 0, 1) };
    if (limit) op->count = (size_t)pg_number(statements[1].result, 0, 0);
    op->markers.more = limit && op->count >= (size_t)limit;
    op->changed = op->count > 0;
    for (size_t i = 0; i < count; i++) PQclear(statements[i].result);
    return 0;
}

/* Did the server give it up because of its time limit? One that waits for a lock is shorter. */
static bool was_too_much(const struct pgdb *db, int64_t limit, int64_t took_ms)
{
    return db->failed == PG_BAD_OP && limit > SWEEP_MIN && took_ms > db->options.timeout_ms / 2;
}

/* On a slow database every batch of the same size would fail, and nothing would ever be removed. So half
 * of it is not a failure, but the next thing to ask for. */
static int sweep_or_less(struct pgdb *db, struct op *op, struct err *reterr)
{
    int64_t limit = op->limit < SWEEP_MAX ? (int64_t)op->limit : SWEEP_MAX;
    int64_t from_ms = pgdb_now_ms();
    int r = sweep(db, op, limit, reterr);
    if (!r || !was_too_much(db, limit, pgdb_now_ms() - from_ms)) return r;
    r = sweep(db, op, 0, reterr);
    if (r) return r;
    op->markers.fits = (size_t)limit / 2;
    op->markers.more = true;
    return 0;
}

int postgres_markers_sweep(struct pgdb *db, struct op *op, struct err *reterr)
{
    struct pg_statement find = { PGSQL_MARKERS };
    int r = pgdb_read(db, &find, reterr);
    if (r) return r;
    bool installed = pg_number(find.result, 0, 0) > 0;
    PQclear(find.result);
    return installed ? sweep_or_less(db, op, reterr) : 0;
}

/* ---- installing ---- */

/* The script as it stands, with what was asked for behind its BEGIN. */
static void script_write(struct buf *script, const char *schema,
                         const struct marker_settings *settings)
{
    static const char begin[] = "\nBEGIN;\n";
    const char *rest = strstr(markers_postgres, begin) + strlen(begin);
    buf_add(script, bytes_of(markers_postgres, (size_t)(rest - markers_postgres)));
    if (strcmp(schema, "public") != 0)
        buf_printf(script, "CREATE SCHEMA IF NOT EXISTS %s;\n", schema);
    buf_printf(script, "SET LOCAL search_path = %s;\n", schema);
    if (settings->ttl_ms)
        buf_printf(script, "SET LOCAL once.ttl = '%lld milliseconds';\n",
                   (long long)settings->ttl_ms);
    if (settings->partitions >= 0)
        buf_printf(script, "SET LOCAL once.partitions = '%lld';\n",
                   (long long)settings->partitions);
    buf_add(script, bytes_str(rest));
    buf_byte(script, '\0');
}

static int script_run(struct pgdb *db, const char *script, struct err *reterr)
{
    struct err ignored;
    int r = pgdb_script(db, script, reterr);
    if (r && db->conn && PQtransactionStatus(db->conn) != PQTRANS_IDLE)
        pgdb_script(db, "ROLLBACK", &ignored);
    return r;
}

static int check(const struct pgdb *db, const struct found *found,
                 const struct marker_settings *settings, struct err *reterr)
{
    if (found->version > MARKERS_VERSION)
        return err_set(reterr, ERR_VERSION,
                       "postgres: the markers in schema \"%s\" have version %lld, this program "
                       "knows up to %d: use a newer one",
                       db->options.markers, (long long)found->version, MARKERS_VERSION);
    if (!found->version || settings->partitions < 0 ||
        settings->partitions == found->partitions)
        return 0;
    return err_set(
        reterr, ERR_UNSUPPORTED,
        "postgres: %s.once_mutations is there, with %lld partitions, and stays as it "
        "is: docs/mutations.md, \"Partitions\", says how to move its rows into a new one",
        db->options.markers, (long long)found->partitions);
}

static bool is_as_asked(const struct found *found, const struct marker_settings *settings)
{
    return found->version == MARKERS_VERSION &&
           (!settings->ttl_ms || settings->ttl_ms == found->ttl_ms);
}

static void say_done(const struct pgdb *db, const struct found *before,
                     const struct found *after, store_say *say, void *ctx)
{
    char text[200];
    if (!before->version) {
        snprintf(text, sizeof text, "installed markers in schema \"%s\"%s", db->options.markers,
                 after->partitions ? ", partitioned by user_id" : "");
        say(ctx, text);
    } else if (before->version != after->version) {
        snprintf(text, sizeof text, "the markers had version %lld", (long long)before->version);
        say(ctx, text);
    } else if (before->ttl_ms != after->ttl_ms) {
        snprintf(text, sizeof text, "a marker counted for %lld s",
                 (long long)before->ttl_ms / 1000);
        say(ctx, text);
    }
    snprintf(
        text, sizeof text, "markers in schema \"%s\": version %lld, each counts for %lld s%s",
        db->options.markers, (long long)after->version, (long long)after->ttl_ms / 1000,
        before->version == after->version && before->ttl_ms == after->ttl_ms ? ": nothing to do"
                                                                             : "");
    say(ctx, text);
}

static int install(struct pgdb *db, const struct marker_settings *settings, const char *script,
                   store_say *say, void *ctx, struct err *reterr)
{
    struct found before, after;
    int r = found_read(db, &before, reterr);
    if (!r) r = check(db, &before, settings, reterr);
    if (!r && !is_as_asked(&before, settings)) r = script_run(db, script, reterr);
    if (!r) r = found_read(db, &after, reterr);
    if (!r) say_done(db, &before, &after, say, ctx);
    return r;
}

int postgres_migrate_markers(const char *rest, const struct store_env *env,
                             const struct marker_settings *settings, store_say *say, void *ctx,
                             struct err *reterr)
{
    struct pgdb db = { .conn = NULL };
    struct buf script;
    buf_init(&script, SCRIPT_BYTES_MAX);
    int r = postgres_options_parse(rest, &db.options, reterr);
    if (!r) script_write(&script, db.options.markers, settings);
    if (!r && buf_failed(&script))
        r = err_set(reterr, buf_failed(&script), "out of memory installing markers");
    const char *text = (const char *)script.data;
    if (!r && settings->print) {
        say(ctx, text);
    } else if (!r) {
        r = pgdb_open(&db, env->rng, reterr);
        if (!r) r = install(&db, settings, text, say, ctx, reterr);
    }
    pgdb_close(&db);
    buf_fini(&script);
    return r;
}
