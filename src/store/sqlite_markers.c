/* sqlite_markers.c - markers in the user's own SQLite file: installing and sweeping them.
 *
 * Guarantees: nothing but one look at the schema where they are not installed; a sweep is one
 * transaction of SWEEP_MAX rows at most, since nobody else can write meanwhile; installing may be
 * done again, by many at once, and says what it did. A file with markers need not be ours: nothing
 * else in it is touched. What markers are is in markers/sqlite.sql. */
#include "base/buf.h"
#include "store/sqlite_db.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const char markers_sqlite[]; /* markers/sqlite.sql, made by tools/embed */

enum { MARKERS_VERSION = 1, SWEEP_MAX = 5000, SCRIPT_BYTES_MAX = 1 << 16 };

static int fail(sqlite3 *db, struct err *reterr)
{
    return err_set(reterr, ERR_UNAVAILABLE, "sqlite: markers: %s",
                   db ? sqlite3_errmsg(db) : "out of memory");
}

/* One statement with up to two numbers for it; up to two columns of its first row, if there is
 * one. 1: there is, 0: there is not, negative: error. */
static int ask(sqlite3 *db, const char *sql, const int64_t in[2], int64_t ret_out[2],
               struct err *reterr)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &q, NULL);
    for (int i = 0; !rc && i < sqlite3_bind_parameter_count(q); i++)
        rc = sqlite3_bind_int64(q, i + 1, in[i]);
    if (!rc) rc = sqlite3_step(q);
    for (int i = 0; rc == SQLITE_ROW && i < sqlite3_column_count(q); i++)
        ret_out[i] = sqlite3_column_int64(q, i);
    sqlite3_finalize(q);
    if (rc == SQLITE_ROW || rc == SQLITE_DONE) return rc == SQLITE_ROW;
    return fail(db, reterr);
}

/* Version and ttl_ms; both 0: there are none. */
struct found {
    int64_t version, ttl_ms;
};

static int found_read(sqlite3 *db, struct found *ret_found, struct err *reterr)
{
    int64_t out[2] = { 0 };
    int r = ask(db, "SELECT 1 FROM sqlite_master WHERE name = 'once_mutation_meta'", NULL, out,
                reterr);
    if (r > 0) r = ask(db, "SELECT version, ttl_ms FROM once_mutation_meta", NULL, out, reterr);
    if (r < 0) return r;
    *ret_found = r ? (struct found){ out[0], out[1] } : (struct found){ 0 };
    return 0;
}

/* ---- sweeping ---- */

static const char oldest_sql[] = "SELECT created_at_ms FROM once_mutations"
                                 " WHERE created_at_ms <= ?1 ORDER BY created_at_ms LIMIT 1";
static const char sweep_sql[] = "DELETE FROM once_mutations WHERE (user_id, request_id) IN"
                                " (SELECT user_id, request_id FROM once_mutations"
                                " WHERE created_at_ms <= ?1 ORDER BY created_at_ms LIMIT ?2)";

static int connect(struct sqlite *s, sqlite3 **ret_db, struct err *reterr)
{
    *ret_db = s->options.markers ? s->markers : s->db;
    if (*ret_db) return 0;
    if (sqlite3_open_v2(s->options.markers, &s->markers, SQLITE_OPEN_READWRITE, NULL)) {
        int r = err_set(reterr, ERR_UNAVAILABLE, "sqlite: %.120s, for its markers: %s",
                        s->options.markers,
                        s->markers ? sqlite3_errmsg(s->markers) : "out of memory");
        sqlite3_close(s->markers);
        s->markers = NULL;
        return r;
    }
    sqlite3_busy_timeout(s->markers, (int)s->options.busy_ms);
    *ret_db = s->markers;
    return 0;
}

static int sweep(struct sqlite *s, sqlite3 *db, int64_t ttl_ms, struct op *op,
                 struct err *reterr)
{
    int64_t before_ms = clock_now_ms(&s->wall) - ttl_ms, oldest[2] = { 0 };
    int64_t in[2] = { before_ms, op->limit < SWEEP_MAX ? (int64_t)op->limit : SWEEP_MAX };
    int r = ask(db, oldest_sql, in, oldest, reterr);
    if (r < 0) return r;
    op->markers = (struct marker_stats){ .installed = true, .ttl_ms = ttl_ms };
    if (r) op->markers.oldest_ms = before_ms - oldest[0];
    if (!in[1] || !r) return 0;
    r = ask(db, sweep_sql, in, NULL, reterr);
    if (r < 0) return r;
    op->count = (size_t)sqlite3_changes(db);
    op->markers.more = (int64_t)op->count >= in[1];
    op->changed = op->count > 0;
    return 0;
}

int sqlite_markers_sweep(struct sqlite *s, struct op *op, struct err *reterr)
{
    sqlite3 *db;
    struct found found;
    int r = connect(s, &db, reterr);
    if (r) return r;
    r = found_read(db, &found, reterr);
    if (r) return r;
    if (!found.version) return 0;
    return sweep(s, db, found.ttl_ms, op, reterr);
}

/* ---- installing ---- */

static void script_write(struct buf *script, const struct marker_settings *settings)
{
    static const char commit[] = "\nCOMMIT;\n";
    const char *end = strstr(markers_sqlite, commit);
    buf_add(script, bytes_of(markers_sqlite, (size_t)(end - markers_sqlite)));
    if (settings->ttl_ms)
        buf_printf(script, "UPDATE once_mutation_meta SET ttl_ms = %lld;\n",
                   (long long)settings->ttl_ms);
    buf_add(script, bytes_str(end));
    buf_byte(script, '\0');
}

static int script_run(sqlite3 *db, const char *script, struct err *reterr)
{
    if (sqlite3_exec(db, script, NULL, NULL, NULL) == SQLITE_OK) return 0;
    int r = fail(db, reterr);
    if (!sqlite3_get_autocommit(db)) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return r;
}

static void say_done(const char *path, const struct found *before, const struct found *after,
                     store_say *say, void *ctx)
{
    char text[200];
    bool same = before->version == after->version && before->ttl_ms == after->ttl_ms;
    if (!before->version) {
        snprintf(text, sizeof text, "installed markers in %.120s", path);
        say(ctx, text);
    }
    snprintf(text, sizeof text, "markers in %.100s: version %lld, each counts for %lld s%s",
             path, (long long)after->version, (long long)after->ttl_ms / 1000,
             same ? ": nothing to do" : "");
    say(ctx, text);
}

static int install(sqlite3 *db, const char *path, const struct marker_settings *settings,
                   const char *script, store_say *say, void *ctx, struct err *reterr)
{
    struct found before, after;
    int r = found_read(db, &before, reterr);
    if (r) return r;
    if (before.version > MARKERS_VERSION)
        return err_set(
            reterr, ERR_VERSION,
            "sqlite: the markers in %.80s are of a newer version (%lld, known is %d)", path,
            (long long)before.version, MARKERS_VERSION);
    bool as_asked = before.version == MARKERS_VERSION &&
                    (!settings->ttl_ms || settings->ttl_ms == before.ttl_ms);
    if (!as_asked) r = script_run(db, script, reterr);
    if (!r) r = found_read(db, &after, reterr);
    if (!r) say_done(path, &before, &after, say, ctx);
    return r;
}

static int open_and_install(const struct sqlite_options *options,
                            const struct marker_settings *settings, const char *script,
                            store_say *say, void *ctx, struct err *reterr)
{
    sqlite3 *db = NULL;
    const char *path = options->markers ? options->markers : options->path;
    int r = db_file_create(path, reterr);
    if (r) return r;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL)) {
        r = fail(db, reterr);
    } else {
        sqlite3_busy_timeout(db, (int)options->busy_ms);
        r = install(db, path, settings, script, say, ctx, reterr);
    }
    sqlite3_close(db);
    return r;
}

int sqlite_migrate_markers(const char *rest, const struct store_env *env,
                           const struct marker_settings *settings, store_say *say, void *ctx,
                           struct err *reterr)
{
    (void)env;
    struct sqlite_options options = { 0 };
    struct buf script;
    buf_init(&script, SCRIPT_BYTES_MAX);
    int r = sqlite_options_parse(rest, &options, reterr);
    if (!r && settings->partitions > 0)
        r = err_set(reterr, ERR_UNSUPPORTED, "sqlite: has no partitions: leave them out");
    script_write(&script, settings);
    if (!r && buf_failed(&script))
        r = err_set(reterr, buf_failed(&script), "out of memory installing markers");
    const char *text = (const char *)script.data;
    if (!r && settings->print)
        say(ctx, text);
    else if (!r)
        r = open_and_install(&options, settings, text, say, ctx, reterr);
    free(options.path);
    buf_fini(&script);
    return r;
}
