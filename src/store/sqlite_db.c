/* sqlite_db.c - see sqlite_db.h. */
#include "store/sqlite_db.h"

#include "base/check.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

enum {
    APPLICATION_ID = 0x6f6e6365, /* "once", in the header of the file */
    BUSY_MS_DEFAULT = 5000,
    BUSY_MS_MAX = 600000,
    PAUSES_GROW = 20,
};

/* Measured with 256 random claims per transaction, 200,000 rows, full sync: 33,000/s as WITHOUT
 * ROWID, 59,000/s like this (new rows are appended; only the small index is hit at random), and
 * 86,000/s with a WAL of 32 MB before it is copied back and 8 MB of cache. Smaller pages gain
 * nothing on top. */
static const char *const settings =
    "PRAGMA wal_autocheckpoint = 8000; PRAGMA journal_size_limit = 33554432;"
    "PRAGMA cache_size = -8000; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;";

/* Step i brings a file from version i to i + 1; all that are missing run in one transaction.
 * To change the schema: add a step. Never change one that was released. */
static const char *const migrations[] = {
    "CREATE TABLE meta ("
    "  id INTEGER PRIMARY KEY CHECK (id = 1),"
    "  epoch INTEGER NOT NULL,"
    "  fence_floor INTEGER NOT NULL"
    ") STRICT;"
    "INSERT INTO meta VALUES (1, 0, 0);"
    "CREATE TABLE claims ("
    "  id INTEGER PRIMARY KEY,"
    "  scope BLOB NOT NULL,"
    "  name BLOB NOT NULL,"
    "  state INTEGER NOT NULL," /* enum record_state */
    "  token BLOB NOT NULL,"
    "  fence INTEGER NOT NULL,"
    "  claimed_at_ms INTEGER NOT NULL,"
    "  lease_ms INTEGER NOT NULL,"
    "  lease_until_ms INTEGER NOT NULL,"
    "  retain_ms INTEGER NOT NULL,"
    "  done_at_ms INTEGER NOT NULL,"
    "  gone_at_ms INTEGER NOT NULL," /* record_gone_at_ms(), for the sweep */
    "  fingerprint BLOB NOT NULL,"
    "  value BLOB," /* NULL: not kept; an empty answer is an empty blob */
    "  UNIQUE (scope, name)"
    ") STRICT;"
    "CREATE INDEX claims_gone ON claims (gone_at_ms);",

    /* What is long comes last: the rest is read without it. */
    "CREATE TABLE runs ("
    "  row INTEGER PRIMARY KEY,"
    "  env BLOB NOT NULL,"
    "  id BLOB NOT NULL,"
    "  task BLOB NOT NULL,"
    "  queue BLOB NOT NULL,"
    "  ordering_key BLOB NOT NULL," /* empty: none */
    "  fingerprint BLOB NOT NULL,"
    "  key BLOB NOT NULL," /* empty: none */
    "  key_held INTEGER NOT NULL,"
    "  key_until_ms INTEGER NOT NULL,"
    "  state INTEGER NOT NULL," /* enum run_state; up to 2: active */
    "  metadata_version INTEGER NOT NULL,"
    "  created_at_ms INTEGER NOT NULL,"
    "  delay_until_ms INTEGER NOT NULL,"
    "  available_at_ms INTEGER NOT NULL,"
    "  started_at_ms INTEGER NOT NULL,"
    "  finished_at_ms INTEGER NOT NULL,"
    "  attempts INTEGER NOT NULL,"
    "  attempts_max INTEGER NOT NULL,"
    "  stalls INTEGER NOT NULL,"
    "  token BLOB NOT NULL,"
    "  fence INTEGER NOT NULL,"
    "  lease_ms INTEGER NOT NULL,"
    "  lease_until_ms INTEGER NOT NULL,"
    "  changes INTEGER NOT NULL,"
    "  due_at_ms INTEGER," /* run_due_ms(); NULL: final, or another of its ordering key is first */
    "  gone_at_ms INTEGER," /* run_gone_ms(); NULL: active */
    "  tags BLOB NOT NULL,"
    "  metadata BLOB NOT NULL,"
    "  error BLOB NOT NULL,"
    "  output BLOB NOT NULL,"
    "  payload BLOB NOT NULL,"
    "  UNIQUE (env, id)"
    ") STRICT;"
    "CREATE UNIQUE INDEX runs_key ON runs (env, task, key) WHERE key_held = 1;"
    "CREATE INDEX runs_due ON runs (env, queue, due_at_ms, id) WHERE due_at_ms IS NOT NULL;"
    "CREATE INDEX runs_line ON runs (env, queue, ordering_key, due_at_ms, id)"
    "  WHERE ordering_key <> x'' AND state <= 2;"
    "CREATE INDEX runs_gone ON runs (gone_at_ms) WHERE gone_at_ms IS NOT NULL;"
    "CREATE TABLE aliases ("
    "  row INTEGER PRIMARY KEY,"
    "  env BLOB NOT NULL,"
    "  id BLOB NOT NULL,"
    "  canonical_id BLOB NOT NULL,"
    "  changes INTEGER NOT NULL," /* so many of those made to it in the buffer are merged */
    "  made_at_ms INTEGER NOT NULL,"
    "  UNIQUE (env, id)"
    ") STRICT;"
    "CREATE INDEX aliases_canonical ON aliases (env, canonical_id);",

    "CREATE TABLE entries (" /* the buffer */
    "  seq INTEGER PRIMARY KEY,"
    "  env BLOB NOT NULL,"
    "  id BLOB NOT NULL,"
    "  key_frame BLOB,"         /* NULL: has none, or has let go of it */
    "  state INTEGER NOT NULL," /* enum entry_state */
    "  turn INTEGER NOT NULL,"  /* 0: its lease lapsed, before 1: as it came */
    "  token BLOB," /* of the lease; NULL: there is none. A lease without: a pause */
    "  leased_at_ms INTEGER NOT NULL,"
    "  lease_until_ms INTEGER NOT NULL,"
    "  attempts INTEGER NOT NULL,"
    "  accepted_at_ms INTEGER NOT NULL,"
    "  written_at_ms INTEGER NOT NULL,"
    "  rev INTEGER NOT NULL,"
    "  run BLOB NOT NULL,"
    "  changes BLOB NOT NULL,"
    "  UNIQUE (env, id)"
    ") STRICT;"
    "CREATE UNIQUE INDEX entries_key ON entries (env, key_frame) WHERE key_frame IS NOT NULL;"
    /* State is in them so that who looks need not see the rows; behind all of them is seq. */
    "CREATE INDEX entries_queued ON entries (env, state, turn) WHERE state = 1;"
    "CREATE INDEX entries_leased ON entries (lease_until_ms, leased_at_ms, state)"
    "  WHERE state = 2;"
    "CREATE INDEX entries_written ON entries (written_at_ms) WHERE state = 3;"
    "CREATE INDEX entries_live ON entries (env, id) WHERE state < 3;"
    "CREATE INDEX entries_age ON entries (accepted_at_ms) WHERE state < 3;"
    "CREATE TABLE buffer (" /* how many there are in these states; not to be counted each time */
    "  id INTEGER PRIMARY KEY CHECK (id = 1),"
    "  queued INTEGER NOT NULL,"
    "  leased INTEGER NOT NULL"
    ") STRICT;"
    "INSERT INTO buffer VALUES (1, 0, 0);",
};

enum { SCHEMA_VERSION = sizeof migrations / sizeof migrations[0] };

/* ---- errors ---- */

static const struct {
    int rc;
    int code;
} err_of_rc[] = {
    { SQLITE_NOMEM, ERR_NOMEM },
    { SQLITE_CORRUPT, ERR_CORRUPT },
    { SQLITE_NOTADB, ERR_CORRUPT },
    { SQLITE_ERROR, ERR_CORRUPT }, /* not the schema we made */
    { SQLITE_CONSTRAINT, ERR_CORRUPT },
    { SQLITE_MISMATCH, ERR_CORRUPT },
    { SQLITE_TOOBIG, ERR_LIMIT },
};

static int code_of(int rc)
{
    for (size_t i = 0; i < sizeof err_of_rc / sizeof err_of_rc[0]; i++)
        if (err_of_rc[i].rc == rc) return err_of_rc[i].code;
    return ERR_UNAVAILABLE; /* full, read-only, I/O, no permission: the cause is in the text */
}

static bool is_busy(int rc)
{
    return rc == SQLITE_BUSY || rc == SQLITE_LOCKED || rc == SQLITE_PROTOCOL;
}

int db_fail(struct sqlite *s, int rc, struct err *reterr)
{
    s->failed = rc & 0xff;
    if (is_busy(s->failed))
        return err_set(reterr, ERR_UNAVAILABLE,
                       "another process holds the lock on the database; waited %lld ms",
                       (long long)s->waited_ms);
    int cause = s->db ? sqlite3_system_errno(s->db) : 0;
    bool io = s->failed == SQLITE_IOERR || s->failed == SQLITE_CANTOPEN;
    return err_set(reterr, code_of(s->failed), "sqlite: %s%s%s", sqlite3_errmsg(s->db),
                   io && cause ? ": " : "", io && cause ? strerror(cause) : "");
}

/* ---- statements ---- */

static const char *const sql_text[SQLS] = {
#define SQL_ROW(id, text) [id] = text,
    SQL_LIST(SQL_ROW) SQL_RUNS_LIST(SQL_ROW) SQL_BUFFER_LIST(SQL_ROW)
#undef SQL_ROW
};

sqlite3_stmt *db_statement(struct sqlite *s, enum sql which, struct err *reterr)
{
    sqlite3_stmt **slot = &s->statements[which];
    if (*slot) return *slot;
    int rc =
        sqlite3_prepare_v3(s->db, sql_text[which], -1, SQLITE_PREPARE_PERSISTENT, slot, NULL);
    if (rc) db_fail(s, rc, reterr);
    return *slot;
}

int db_step(struct sqlite *s, sqlite3_stmt *statement, struct err *reterr)
{
    int rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW) return 1;
    if (rc == SQLITE_DONE) return 0;
    return db_fail(s, rc, reterr);
}

void bind_bytes(sqlite3_stmt *statement, int at, struct bytes view)
{
    sqlite3_bind_blob64(statement, at, view.len ? (const void *)view.data : "", view.len,
                        SQLITE_STATIC);
}

struct bytes column_bytes(sqlite3_stmt *statement, int column)
{
    const void *data =
        sqlite3_column_blob(statement, column); /* before the length, says SQLite */
    return bytes_of(data, (size_t)sqlite3_column_bytes(statement, column));
}

int db_finish(struct sqlite *s, sqlite3_stmt *statement, struct err *reterr)
{
    int r = db_step(s, statement, reterr);
    sqlite3_reset(statement);
    CHECK(r <= 0);
    return r;
}

int db_run(struct sqlite *s, enum sql which, struct err *reterr)
{
    sqlite3_stmt *statement = db_statement(s, which, reterr);
    return statement ? db_finish(s, statement, reterr) : reterr->code;
}

int db_number(struct sqlite *s, enum sql which, int64_t *ret_number, struct err *reterr)
{
    sqlite3_stmt *statement = db_statement(s, which, reterr);
    if (!statement) return reterr->code;
    int r = db_step(s, statement, reterr);
    if (r == 0) r = err_set(reterr, ERR_CORRUPT, "sqlite: a row of the table meta is missing");
    if (r == 1) *ret_number = sqlite3_column_int64(statement, 0);
    sqlite3_reset(statement);
    return r < 0 ? r : 0;
}

bool db_rollback(struct sqlite *s)
{
    if (sqlite3_get_autocommit(s->db)) return true;
    struct err ignored;
    int failed = s->failed;
    db_run(s, SQL_ROLLBACK, &ignored);
    s->failed = failed;
    return sqlite3_get_autocommit(s->db);
}

static int exec_text(struct sqlite *s, const char *sql, struct err *reterr)
{
    int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    return rc ? db_fail(s, rc, reterr) : 0;
}

/* ---- waiting for other processes ---- */

static int64_t monotonic_ms(void)
{
    struct clock clock = clock_monotonic();
    return clock_now_ms(&clock);
}

/* Short and uneven: a commit takes about 0.2 ms, and many waiters must not march in step.
 * Longer with every try: eighty processes that look a thousand times a second keep the one that
 * holds the lock from running, and most of them gave up (tests/e2e/race.sh on a busy
 * machine). */
static void pause_briefly(struct sqlite *s, int tries)
{
    uint64_t spread_us = 1800 + 1000 * (uint64_t)(tries < PAUSES_GROW ? tries : PAUSES_GROW);
    int64_t us = 200 + (int64_t)rng_below(&s->jitter.base, spread_us);
    nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

static int on_busy(void *ctx, int count)
{
    struct sqlite *s = ctx;
    int64_t now_ms = monotonic_ms();
    if (count == 0) s->busy_since_ms = now_ms;
    s->waited_ms = now_ms - s->busy_since_ms;
    if (s->waited_ms >= s->options.busy_ms) return 0;
    pause_briefly(s, count);
    return 1;
}

/* ---- options ---- */

static bool set_sync(struct sqlite_options *o, const char *value)
{
    static const char *const levels[] = { "full", "normal", "off" };
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (strcmp(value, levels[i]) != 0) continue;
        o->sync = levels[i];
        return true;
    }
    return false;
}

static bool set_busy(struct sqlite_options *o, const char *value)
{
    return duration_parse(bytes_str(value), BUSY_MS_MAX, &o->busy_ms);
}

static bool set_exclusive(struct sqlite_options *o, const char *value)
{
    if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0) return false;
    o->exclusive = *value == '1';
    return true;
}

static bool set_markers(struct sqlite_options *o, const char *value)
{
    o->markers = value;
    return *value != '\0';
}

static const struct {
    const char *name, *allowed;
    bool (*set)(struct sqlite_options *, const char *value);
} parameters[] = {
    { "sync", "full, normal or off", set_sync },
    { "busy_ms", "a duration up to 10m", set_busy },
    { "exclusive", "0 or 1", set_exclusive },
    { "markers", "the path of a file", set_markers },
};

static int option_set(struct sqlite_options *o, char *pair, struct err *reterr)
{
    char *value = strchr(pair, '=');
    if (value) *value++ = '\0';
    for (size_t i = 0; i < sizeof parameters / sizeof parameters[0]; i++) {
        if (strcmp(pair, parameters[i].name) != 0) continue;
        if (value && parameters[i].set(o, value)) return 0;
        return err_set(reterr, ERR_INVALID, "sqlite: %s=%.40s: allowed is %s", pair,
                       value ? value : "", parameters[i].allowed);
    }
    return err_set(
        reterr, ERR_INVALID,
        "sqlite: unknown parameter \"%.40s\"; known are sync, busy_ms, exclusive and "
        "markers",
        pair);
}

int sqlite_options_parse(const char *rest, struct sqlite_options *ret_options,
                         struct err *reterr)
{
    struct sqlite_options o = { .sync = "full", .busy_ms = BUSY_MS_DEFAULT };
    o.path = strdup(rest);
    if (!o.path) return err_set(reterr, ERR_NOMEM, "out of memory opening sqlite:");
    *ret_options = o;
    char *more = strchr(o.path, '?'), *pair;
    if (more) *more++ = '\0';
    while ((pair = strsep(&more, "&"))) {
        int r = option_set(ret_options, pair, reterr);
        if (r) return r;
    }
    if (!*o.path)
        return err_set(reterr, ERR_INVALID, "sqlite: needs the path of a file: sqlite:PATH");
    if (strcmp(o.path, ":memory:") == 0)
        return err_set(reterr, ERR_INVALID, "sqlite: for a store without a file use memory:");
    return 0;
}

/* ---- the file ---- */

/* Made here and not by SQLite so that nobody else can read it: values may be secret. mknod, not
 * open: closing a descriptor would drop the locks this process holds on a file it has open. */
int db_file_create(const char *path, struct err *reterr)
{
    if (mknod(path, S_IFREG | 0600, 0) == 0 || errno == EEXIST) return 0;
    if (errno == ENOENT || errno == ENOTDIR)
        return err_set(reterr, ERR_INVALID,
                       "sqlite: the directory of %.100s does not exist; create it first", path);
    return err_set(reterr, ERR_UNAVAILABLE, "sqlite: cannot create %.100s: %s", path,
                   strerror(errno));
}

static int file_check_kind(const char *path, struct err *reterr)
{
    struct stat st;
    if (stat(path, &st))
        return err_set(reterr, ERR_UNAVAILABLE, "sqlite: cannot look at %.100s: %s", path,
                       strerror(errno));
    if (S_ISREG(st.st_mode)) return 0;
    return err_set(reterr, ERR_INVALID, "sqlite: %.120s is not a file", path);
}

/* The processes on a WAL share memory, which these file systems do not give two machines. */
static const struct {
    unsigned magic;
    const char *name;
} remote_systems[] = { { 0x6969, "NFS" }, { 0xff534d42, "CIFS" }, { 0xfe534d42, "SMB" } };

static int file_check_system(const struct sqlite_options *o, struct err *reterr)
{
    struct statfs fs;
    if (o->exclusive || statfs(o->path, &fs)) return 0;
    for (size_t i = 0; i < sizeof remote_systems / sizeof remote_systems[0]; i++)
        if ((unsigned)fs.f_type == remote_systems[i].magic)
            return err_set(reterr, ERR_UNSUPPORTED,
                           "sqlite: %.80s is on %s, where processes cannot share a WAL; use a "
                           "local file system",
                           o->path, remote_systems[i].name);
    return 0;
}

const char *db_path(const struct sqlite *s)
{
    return sqlite3_db_filename(s->db, "main");
}

int db_check_file(struct sqlite *s, struct err *reterr)
{
    struct stat st;
    if (stat(db_path(s), &st) == 0 && st.st_dev == s->dev && st.st_ino == s->ino) return 0;
    return err_set(reterr, ERR_UNAVAILABLE,
                   "sqlite: %.100s was removed or replaced while it was open; open it again",
                   s->options.path);
}

/* ---- opening ---- */

struct identity {
    int64_t objects, application_id, user_version;
};

/* One statement, so that all three are of one moment: another process may be creating it. Markers
 * make nobody its owner: they may be there first. */
static int identity_read(struct sqlite *s, struct identity *ret_identity, struct err *reterr)
{
    sqlite3_stmt *q;
    int rc = sqlite3_prepare_v2(s->db,
                                "SELECT (SELECT count(*) FROM sqlite_master WHERE tbl_name NOT"
                                " IN ('once_mutations', 'once_mutation_meta')), application_id,"
                                " user_version FROM pragma_application_id, pragma_user_version",
                                -1, &q, NULL);
    if (rc) return db_fail(s, rc, reterr);
    int r = db_step(s, q, reterr);
    if (r == 1)
        *ret_identity = (struct identity){ .objects = sqlite3_column_int64(q, 0),
                                           .application_id = sqlite3_column_int64(q, 1),
                                           .user_version = sqlite3_column_int64(q, 2) };
    sqlite3_finalize(q);
    return r < 0 ? r : 0;
}

static int identity_check(struct sqlite *s, struct identity *ret_identity, struct err *reterr)
{
    struct identity id = { 0 };
    int r = identity_read(s, &id, reterr);
    if (r) return r;
    bool fresh = id.objects == 0 && id.application_id == 0 && id.user_version == 0;
    if (!fresh && id.application_id != APPLICATION_ID)
        return err_set(reterr, ERR_INVALID,
                       "sqlite: %.100s is a database of another program; give another path",
                       s->options.path);
    if (id.user_version > SCHEMA_VERSION)
        return err_set(
            reterr, ERR_VERSION,
            "sqlite: %.80s was written by a newer version (schema %lld, known is %d)",
            s->options.path, (long long)id.user_version, SCHEMA_VERSION);
    *ret_identity = id;
    return 0;
}

static int use_wal(struct sqlite *s, struct err *reterr)
{
    sqlite3_stmt *q;
    int rc = sqlite3_prepare_v2(s->db, "PRAGMA journal_mode = WAL", -1, &q, NULL);
    if (rc) return db_fail(s, rc, reterr);
    int r = db_step(s, q, reterr);
    const char *mode = r == 1 ? (const char *)sqlite3_column_text(q, 0) : NULL;
    bool wal = mode && strcmp(mode, "wal") == 0;
    sqlite3_finalize(q);
    if (r < 0) return r;
    if (wal) return 0;
    return err_set(reterr, ERR_UNSUPPORTED,
                   "sqlite: the file system of %.80s cannot hold a WAL; use a local one",
                   s->options.path);
}

static int tune(struct sqlite *s, struct err *reterr)
{
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA synchronous = %s", s->options.sync);
    int r = exec_text(s, sql, reterr);
    return r ? r : exec_text(s, settings, reterr);
}

static int migrate_steps(struct sqlite *s, struct rng *rng, struct err *reterr)
{
    struct identity id = { 0 };
    int r = identity_check(s, &id, reterr); /* again: now nobody else can be at it */
    if (r) return r;
    for (int64_t v = id.user_version; !r && v < SCHEMA_VERSION; v++)
        r = exec_text(s, migrations[v], reterr);
    if (r) return r;
    char sql[200];
    snprintf(sql, sizeof sql,
             "UPDATE meta SET epoch = %lld WHERE epoch = 0;"
             "PRAGMA application_id = %d; PRAGMA user_version = %d;",
             (long long)rng_u64(rng), APPLICATION_ID, SCHEMA_VERSION);
    return exec_text(s, sql, reterr);
}

static int migrate(struct sqlite *s, struct rng *rng, struct err *reterr)
{
    int r = db_run(s, SQL_BEGIN_WRITE, reterr);
    if (!r) r = migrate_steps(s, rng, reterr);
    if (!r) r = db_run(s, SQL_COMMIT, reterr);
    if (r) db_rollback(s);
    return r;
}

/* The order matters: a file is not touched before it is known to be ours, and the lock of an
 * exclusive one is taken by the first read. */
static int settle_once(struct sqlite *s, struct rng *rng, struct err *reterr)
{
    struct identity id = { 0 };
    int r = 0;
    if (s->options.exclusive) r = exec_text(s, "PRAGMA locking_mode = EXCLUSIVE", reterr);
    if (!r) r = identity_check(s, &id, reterr);
    if (!r) r = use_wal(s, reterr);
    if (!r) r = tune(s, reterr);
    if (!r && id.user_version < SCHEMA_VERSION) r = migrate(s, rng, reterr);
    return r;
}

/* SQLite does not call the busy handler where it fears a deadlock, and switching a new file to
 * WAL while others open it is such a place. */
static int settle(struct sqlite *s, struct rng *rng, struct err *reterr)
{
    int64_t since_ms = monotonic_ms();
    for (int tries = 0;; tries++) {
        s->failed = 0;
        int r = settle_once(s, rng, reterr);
        if (!is_busy(s->failed)) return r;
        s->waited_ms = monotonic_ms() - since_ms;
        if (s->waited_ms >= s->options.busy_ms) return db_fail(s, s->failed, reterr);
        pause_briefly(s, tries);
    }
}

static int connect(struct sqlite *s, struct err *reterr)
{
    char *path =
        sqlite3_mprintf("%s%s", s->options.path[0] == '/' ? "" : "./", s->options.path);
    if (!path) return err_set(reterr, ERR_NOMEM, "out of memory opening sqlite:");
    int rc = sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    sqlite3_free(path);
    if (rc) return db_fail(s, rc, reterr);
    sqlite3_busy_handler(s->db, on_busy, s);
    if (sqlite3_db_readonly(s->db, "main") == 1)
        return err_set(reterr, ERR_UNAVAILABLE, "sqlite: no permission to write to %.120s",
                       s->options.path);
    return 0;
}

/* Prepared ahead so that a transaction can always be ended, also when memory has run out. */
static int prepare_ends(struct sqlite *s, struct err *reterr)
{
    static const enum sql ends[] = { SQL_COMMIT, SQL_ROLLBACK };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (!db_statement(s, ends[i], reterr)) return reterr->code;
    return 0;
}

static int identify(struct sqlite *s, struct err *reterr)
{
    struct stat st;
    if (stat(db_path(s), &st))
        return err_set(reterr, ERR_UNAVAILABLE, "sqlite: %.100s: %s", s->options.path,
                       strerror(errno));
    s->dev = st.st_dev;
    s->ino = st.st_ino;
    int64_t epoch = 0;
    int r = db_number(s, SQL_EPOCH, &epoch, reterr);
    if (!r) r = db_number(s, SQL_DATA_VERSION, &s->data_version, reterr);
    s->base.epoch = (uint64_t)epoch;
    return r;
}

int db_open(struct sqlite *s, struct rng *rng, struct err *reterr)
{
    rng_seeded_init(&s->jitter, rng_u64(rng));
    int r = db_file_create(s->options.path, reterr);
    if (!r) r = file_check_kind(s->options.path, reterr);
    if (!r) r = file_check_system(&s->options, reterr);
    if (!r) r = connect(s, reterr);
    if (!r) r = prepare_ends(s, reterr);
    if (!r) r = settle(s, rng, reterr);
    if (!r) r = identify(s, reterr);
    return r;
}

void db_close(struct sqlite *s)
{
    for (size_t i = 0; i < SQLS; i++) sqlite3_finalize(s->statements[i]);
    sqlite3_close(s->markers);
    int rc = sqlite3_close(s->db);
    CHECK(rc == SQLITE_OK); /* BUSY would be a statement we forgot */
    free(s->options.path);
}
