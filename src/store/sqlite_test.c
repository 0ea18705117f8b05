/* sqlite_test.c - what only the sqlite store promises: files, versions, processes, failures.
 * The rules themselves are tested by the conform and model suites. */
#include "store/store.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 16 };

static char dir[64], path[96], url[112];
static int64_t now_ms;
static struct loop loop;
static struct rng_system rng;
static struct store_env env;

static int64_t test_now_ms(void *ctx)
{
    (void)ctx;
    return now_ms;
}

static void setup(void)
{
    snprintf(dir, sizeof dir, "/tmp/once-sqlite-XXXXXX");
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/once.db", dir);
    snprintf(url, sizeof url, "sqlite:%s", path);
    now_ms = 1000000;
    loop_init(&loop, 0);
    rng_system_init(&rng);
    env = (struct store_env){ .loop = &loop,
                              .wall = { .now_ms = test_now_ms },
                              .rng = &rng.base };
}

static void teardown(void)
{
    loop_fini(&loop);
    DIR *d = opendir(dir);
    cr_assert(d);
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            cr_expect(unlinkat(dirfd(d), e->d_name, 0) == 0);
    closedir(d);
    cr_expect(rmdir(dir) == 0);
}

TestSuite(sqlite, .init = setup, .fini = teardown, .timeout = 60);

/* ---- helpers ---- */

static struct store *open_url(const char *what)
{
    struct store *s;
    struct err err;
    int r = store_open_bare(what, &env, &s, &err);
    cr_assert(r == 0, "%s: %s", what, r ? err.text : "");
    return s;
}

static struct store *open_store(void)
{
    return open_url(url);
}

static void expect_refused(const char *what, int code, const char *text)
{
    struct store *s;
    struct err err;
    int r = store_open_bare(what, &env, &s, &err);
    cr_assert(r == code, "%s: %d %s", what, r, r ? err.text : "opened");
    cr_expect(strstr(err.text, text), "%s", err.text);
}

static struct request owner(uint8_t who)
{
    return (struct request){ .token.bytes = { who }, .lease_ms = 30000, .retain_ms = 60000 };
}

static struct op *op_in(enum verb verb, const char *scope, const char *name, struct request in)
{
    struct key key = { bytes_str(scope), bytes_str(name) };
    struct op *op = op_new(verb, &key, &in);
    cr_assert(op);
    return op;
}

static struct op *op_on(enum verb verb, const char *name, struct request in)
{
    return op_in(verb, "s", name, in);
}

static void exec(struct store *s, struct op **ops, size_t count)
{
    s->class->exec(s, ops, count);
}

/* Runs one op and expects this outcome; returns its fence. */
static uint64_t expect(struct store *s, enum verb verb, const char *name, struct request in,
                       enum outcome outcome)
{
    struct op *op = op_on(verb, name, in);
    exec(s, &op, 1);
    cr_assert(op->err.code == 0, "%s %s: %s", verb_info[verb].name, name, op->err.text);
    cr_expect(op->out.outcome == outcome, "%s %s: %s", verb_info[verb].name, name,
              outcome_name(op->out.outcome));
    cr_expect(op->epoch == s->epoch);
    uint64_t fence = op->out.fence;
    op_free(op);
    return fence;
}

static struct err expect_error(struct store *s, enum verb verb, const char *name,
                               struct request in, int code)
{
    struct op *op = op_on(verb, name, in);
    exec(s, &op, 1);
    cr_expect(op->err.code == code, "%s %s: %d %s", verb_info[verb].name, name, op->err.code,
              op->err.code ? op->err.text : "answered");
    cr_expect(!op->changed);
    struct err err = op->err;
    op_free(op);
    return err;
}

static void publish(struct store *s, const char *name, uint8_t who, struct blob *value)
{
    struct request in = owner(who);
    in.value = value;
    expect(s, VERB_PUBLISH, name, in, OUTCOME_OK);
}

static size_t expire(struct store *s, size_t limit)
{
    struct op *op = op_new(VERB_EXPIRE, NULL, NULL);
    op->limit = limit;
    exec(s, &op, 1);
    cr_assert(op->err.code == 0, "%s", op->err.text);
    size_t count = op->count;
    cr_expect(op->changed == (count > 0));
    op_free(op);
    return count;
}

static struct store_stats stats(struct store *s)
{
    struct op *op = op_new(VERB_STATS, NULL, NULL);
    exec(s, &op, 1);
    cr_assert(op->err.code == 0, "%s", op->err.text);
    struct store_stats got = op->stats;
    op_free(op);
    return got;
}

/* A second program that knows nothing of once. */
static sqlite3 *raw_open(void)
{
    sqlite3 *db;
    cr_assert(sqlite3_open(path, &db) == SQLITE_OK);
    return db;
}

static void raw_exec(sqlite3 *db, const char *sql)
{
    char *text = NULL;
    int rc = sqlite3_exec(db, sql, NULL, NULL, &text);
    cr_assert(rc == SQLITE_OK, "%s: %s", sql, text);
}

static void raw(const char *sql)
{
    sqlite3 *db = raw_open();
    raw_exec(db, sql);
    sqlite3_close(db);
}

static int64_t raw_number(const char *sql)
{
    sqlite3 *db = raw_open();
    sqlite3_stmt *q;
    cr_assert(sqlite3_prepare_v2(db, sql, -1, &q, NULL) == SQLITE_OK);
    cr_assert(sqlite3_step(q) == SQLITE_ROW);
    int64_t n = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    sqlite3_close(db);
    return n;
}

static mode_t mode_of(const char *suffix)
{
    char name[112];
    struct stat st;
    snprintf(name, sizeof name, "%s%s", path, suffix);
    cr_assert(stat(name, &st) == 0, "%s: %s", name, strerror(errno));
    return st.st_mode & 0777;
}

/* A child runs `run` and exits with what it returns; it must not fall back into Criterion. */
static pid_t spawn(int (*run)(void))
{
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) _exit(run());
    return pid;
}

static int exit_of(pid_t pid)
{
    int status;
    cr_assert(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* ---- URLs and files ---- */

Test(sqlite, url_must_make_sense)
{
    expect_refused("sqlite:", ERR_INVALID, "path");
    expect_refused("sqlite:?sync=full", ERR_INVALID, "path");
    expect_refused("sqlite::memory:", ERR_INVALID, "memory:");
    char bad[160];
    snprintf(bad, sizeof bad, "%s?sync=fast", url);
    expect_refused(bad, ERR_INVALID, "full, normal or off");
    snprintf(bad, sizeof bad, "%s?sync", url);
    expect_refused(bad, ERR_INVALID, "full, normal or off");
    snprintf(bad, sizeof bad, "%s?busy_ms=soon", url);
    expect_refused(bad, ERR_INVALID, "duration");
    snprintf(bad, sizeof bad, "%s?exclusive=yes", url);
    expect_refused(bad, ERR_INVALID, "0 or 1");
    snprintf(bad, sizeof bad, "%s?sync=off&colour=red", url);
    expect_refused(bad, ERR_INVALID, "sync, busy_ms and exclusive");
    cr_expect(access(path, F_OK) != 0, "a bad URL must not leave a file");
}

Test(sqlite, url_parameters_are_taken)
{
    char good[160];
    snprintf(good, sizeof good, "%s?sync=normal&busy_ms=2s&exclusive=0", url);
    struct store *s = open_url(good);
    cr_expect(s->caps == sqlite_class.caps);
    store_close(s);
}

Test(sqlite, path_must_be_a_file_in_a_directory_that_exists)
{
    char bad[160];
    snprintf(bad, sizeof bad, "sqlite:%s/nowhere/once.db", dir);
    expect_refused(bad, ERR_INVALID, "create it first");
    snprintf(bad, sizeof bad, "sqlite:%s", dir);
    expect_refused(bad, ERR_INVALID, "not a file");
}

Test(sqlite, relative_path_that_looks_like_a_url)
{
    cr_assert(chdir(dir) == 0);
    struct store *s = open_url("sqlite:file:x");
    cr_expect(access("file:x", F_OK) == 0);
    cr_assert(chdir("/") == 0); /* the store does not care where the process goes */
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    store_close(s);
}

Test(sqlite, nobody_else_can_read_the_files)
{
    umask(0);
    struct store *s = open_store();
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    cr_expect(mode_of("") == 0600);
    cr_expect(mode_of("-wal") == 0600);
    cr_expect(mode_of("-shm") == 0600);
    store_close(s);
}

static int open_read_only(void)
{
    if (geteuid() == 0 && (setgid(65534) || setuid(65534))) return 99;
    struct store *s;
    struct err err;
    int r = store_open_bare(url, &env, &s, &err);
    return r == ERR_UNAVAILABLE && err.text[0] ? 0 : 1;
}

Test(sqlite, no_permission_is_unavailable)
{
    cr_assert(chmod(dir, 0555) == 0);
    cr_expect(exit_of(spawn(open_read_only)) == 0, "a directory nobody may write to");
    cr_assert(chmod(dir, 0755) == 0);
    store_close(open_store());
    cr_assert(chmod(path, 0444) == 0);
    cr_expect(exit_of(spawn(open_read_only)) == 0, "a file nobody may write to");
    cr_assert(chmod(path, 0666) == 0);
    cr_assert(chmod(dir, 0555) == 0);
    cr_expect(exit_of(spawn(open_read_only)) == 0, "no place for the WAL");
    cr_assert(chmod(dir, 0755) == 0);
}

Test(sqlite, removed_file_is_noticed)
{
    struct store *s = open_store();
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    cr_assert(unlink(path) == 0);
    struct err err = expect_error(s, VERB_CLAIM, "k2", owner(1), ERR_UNAVAILABLE);
    cr_expect(strstr(err.text, "removed or replaced"), "%s", err.text);
    expect_error(s, VERB_PEEK, "k", owner(1), ERR_UNAVAILABLE);
    store_close(s);
}

/* ---- versions ---- */

Test(sqlite, new_file_gets_the_schema)
{
    struct store *s = open_store();
    uint64_t epoch = s->epoch;
    cr_expect(epoch != 0);
    store_close(s);
    cr_expect(raw_number("PRAGMA application_id") == 0x6f6e6365);
    cr_expect(raw_number("PRAGMA user_version") == 1);
    s = open_store();
    cr_expect(s->epoch == epoch, "the epoch is the file's, not the handle's");
    store_close(s);
}

Test(sqlite, old_version_is_brought_up_to_date)
{
    raw("PRAGMA application_id = 0x6f6e6365; PRAGMA user_version = 0; CREATE TABLE older (x)");
    struct store *s = open_store();
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    store_close(s);
    cr_expect(raw_number("PRAGMA user_version") == 1);
}

Test(sqlite, failed_migration_leaves_the_file_as_it_was)
{
    raw("PRAGMA application_id = 0x6f6e6365; CREATE TABLE claims (x)");
    expect_refused(url, ERR_CORRUPT, "claims");
    cr_expect(raw_number("PRAGMA user_version") == 0);
    cr_expect(raw_number("SELECT count(*) FROM sqlite_master") == 1);
}

Test(sqlite, newer_version_is_refused)
{
    store_close(open_store());
    raw("PRAGMA user_version = 99");
    expect_refused(url, ERR_VERSION, "newer version (schema 99, known is 1)");
}

Test(sqlite, file_of_another_program_is_refused_and_not_touched)
{
    raw("CREATE TABLE songs (title TEXT)");
    expect_refused(url, ERR_INVALID, "another program");
    sqlite3 *db = raw_open();
    sqlite3_stmt *q;
    cr_assert(sqlite3_prepare_v2(db, "PRAGMA journal_mode", -1, &q, NULL) == SQLITE_OK);
    cr_assert(sqlite3_step(q) == SQLITE_ROW);
    cr_expect(strcmp((const char *)sqlite3_column_text(q, 0), "delete") == 0);
    sqlite3_finalize(q);
    sqlite3_close(db);
    raw("DROP TABLE songs; PRAGMA application_id = 7");
    expect_refused(url, ERR_INVALID, "another program");
}

Test(sqlite, file_that_is_no_database_is_refused)
{
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 1000; i++) fprintf(f, "line %d of something else\n", i);
    fclose(f);
    expect_refused(url, ERR_CORRUPT, "not a database");
}

/* ---- what a column can hold ---- */

Test(sqlite, empty_value_is_not_no_value)
{
    struct store *s = open_store();
    struct blob *empty = blob_new(bytes_of(NULL, 0));
    expect(s, VERB_CLAIM, "empty", owner(1), OUTCOME_CLAIMED);
    publish(s, "empty", 1, empty);
    expect(s, VERB_CLAIM, "none", owner(1), OUTCOME_CLAIMED);
    publish(s, "none", 1, NULL);
    expect(s, VERB_CLAIM, "empty", owner(2), OUTCOME_CACHED);
    expect(s, VERB_CLAIM, "none", owner(2), OUTCOME_ALREADY_DONE);
    publish(s, "empty", 1, empty);
    publish(s, "none", 1, NULL);
    struct request other = owner(1);
    expect(s, VERB_PUBLISH, "empty", other, OUTCOME_LOST);
    other.value = empty;
    expect(s, VERB_PUBLISH, "none", other, OUTCOME_LOST);
    blob_unref(empty);
    store_close(s);
}

Test(sqlite, values_and_fingerprints_are_bytes)
{
    struct store *s = open_store();
    static uint8_t megabyte[1024 * 1024 + 1];
    for (size_t i = 0; i < sizeof megabyte; i++) megabyte[i] = (uint8_t)(i * 31 >> 3);
    struct blob *value = blob_new(bytes_of(megabyte, sizeof megabyte));
    struct request in = owner(1);
    in.fingerprint = bytes_of("a\0b", 3);
    expect(s, VERB_CLAIM, "k", in, OUTCOME_CLAIMED);
    publish(s, "k", 1, value);
    store_close(s);

    s = open_store();
    in.fingerprint = bytes_of("a\0c", 3);
    expect(s, VERB_CLAIM, "k", in, OUTCOME_MISMATCH);
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_MISMATCH);
    in.fingerprint = bytes_of("a\0b", 3);
    struct op *op = op_on(VERB_CLAIM, "k", in);
    exec(s, &op, 1);
    cr_expect(op->out.outcome == OUTCOME_CACHED);
    cr_expect(blob_eq(op->out.value, value));
    op_free(op);
    blob_unref(value);
    store_close(s);
}

Test(sqlite, zero_lease_is_zero)
{
    struct store *s = open_store();
    struct request in = owner(1);
    in.lease_ms = 0;
    uint64_t first = expect(s, VERB_CLAIM, "k", in, OUTCOME_CLAIMED);
    struct op *op = op_on(VERB_CLAIM, "k", owner(2));
    exec(s, &op, 1);
    cr_expect(op->out.outcome == OUTCOME_CLAIMED && op->out.taken_over);
    cr_expect(op->out.fence > first);
    op_free(op);
    store_close(s);
}

Test(sqlite, zero_retention_is_zero)
{
    struct store *s = open_store();
    struct request in = owner(1);
    in.retain_ms = 0;
    expect(s, VERB_CLAIM, "k", in, OUTCOME_CLAIMED);
    in.retain_ms = -1; /* as claimed */
    expect(s, VERB_PUBLISH, "k", in, OUTCOME_OK);
    expect(s, VERB_PEEK, "k", owner(1), OUTCOME_ABSENT);
    cr_expect(stats(s).gone == 1);
    cr_expect(expire(s, 10) == 1);
    store_close(s);
}

/* ---- verbs without a key ---- */

Test(sqlite, expire_takes_the_oldest_up_to_a_limit_and_raises_the_floor)
{
    struct store *s = open_store();
    uint64_t fences[3];
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        fences[i] = expect(s, VERB_CLAIM, name, owner(1), OUTCOME_CLAIMED);
        publish(s, name, 1, NULL);
        now_ms += 1000;
    }
    cr_expect(expire(s, 10) == 0);
    now_ms += 60000;
    cr_expect(expire(s, 2) == 2);
    cr_expect(stats(s).fence_floor == fences[1]);
    cr_expect(expire(s, 2) == 1);
    cr_expect(stats(s).fence_floor == fences[2]);
    cr_expect(stats(s).gone == 0);
    store_close(s);
}

Test(sqlite, fence_grows_across_release_reopen_and_a_clock_that_went_back)
{
    struct store *s = open_store();
    uint64_t first = expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    expect(s, VERB_RELEASE, "k", owner(1), OUTCOME_OK);
    store_close(s);
    now_ms -= 500000;
    s = open_store();
    cr_expect(expect(s, VERB_CLAIM, "k", owner(2), OUTCOME_CLAIMED) > first);
    cr_expect(expect(s, VERB_CLAIM, "other", owner(2), OUTCOME_CLAIMED) > first);
    store_close(s);
}

Test(sqlite, stats_counts_every_kind)
{
    struct store *s = open_store();
    struct request brief = owner(1);
    brief.lease_ms = 10;
    expect(s, VERB_CLAIM, "lapsed", brief, OUTCOME_CLAIMED);
    expect(s, VERB_CLAIM, "gone", owner(1), OUTCOME_CLAIMED);
    struct request none = owner(1);
    none.retain_ms = 10;
    expect(s, VERB_PUBLISH, "gone", none, OUTCOME_OK);
    expect(s, VERB_CLAIM, "done", owner(1), OUTCOME_CLAIMED);
    publish(s, "done", 1, NULL);
    expect(s, VERB_CLAIM, "pending", owner(1), OUTCOME_CLAIMED);
    now_ms += 10;
    struct store_stats got = stats(s);
    cr_expect(got.pending == 1 && got.lapsed == 1 && got.done == 1 && got.gone == 1);
    cr_expect(got.now_ms == now_ms);
    cr_expect(got.bytes > 4096);
    store_close(s);
}

struct listed {
    char text[256];
    bool more;
};

/* One page, as "scope/name scope/name". */
static struct listed list(struct store *s, const char *scope, const char *after, bool all,
                          size_t limit)
{
    struct op *op = op_in(VERB_SCAN, scope, after, owner(0));
    op->all_scopes = all;
    op->limit = limit;
    exec(s, &op, 1);
    cr_assert(op->err.code == 0, "%s", op->err.text);
    struct listed got = { .more = op->scan.more };
    for (size_t i = 0, at = 0; i < op->scan.count; i++) {
        const struct key *k = &op->scan.rows[i].key;
        at += (size_t)snprintf(got.text + at, sizeof got.text - at, "%s%.*s/%.*s", i ? " " : "",
                               (int)k->scope.len, (const char *)k->scope.data, (int)k->name.len,
                               (const char *)k->name.data);
    }
    op_free(op);
    return got;
}

static void claim_in(struct store *s, const char *scope, const char *name)
{
    struct op *op = op_in(VERB_CLAIM, scope, name, owner(1));
    exec(s, &op, 1);
    cr_assert(op->err.code == 0 && op->out.outcome == OUTCOME_CLAIMED);
    op_free(op);
}

static void expect_listed(struct listed got, const char *text, bool more)
{
    cr_expect(strcmp(got.text, text) == 0, "%s instead of %s", got.text, text);
    cr_expect(got.more == more, "after %s", text);
}

Test(sqlite, scan_pages_through_one_scope_and_through_all)
{
    struct store *s = open_store();
    static const char *const keys[][2] = {
        { "b", "1" }, { "a", "2" }, { "aa", "1" }, { "a", "1" }, { "a", "10" },
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        claim_in(s, keys[i][0], keys[i][1]);
    expect_listed(list(s, "a", "", false, 2), "a/1 a/10", true);
    expect_listed(list(s, "a", "10", false, 2), "a/2", false);
    expect_listed(list(s, "a", "", false, 3), "a/1 a/10 a/2", false);
    expect_listed(list(s, "c", "", false, 3), "", false);
    expect_listed(list(s, "", "", true, 3), "a/1 a/10 a/2", true);
    expect_listed(list(s, "a", "2", true, 3), "aa/1 b/1", false);
    expect_listed(list(s, "", "", true, 0), "", true);
    store_close(s);
}

Test(sqlite, scan_tells_what_a_row_holds_and_leaves_out_what_is_gone)
{
    struct store *s = open_store();
    struct blob *value = blob_new(bytes_str("hello"));
    uint64_t fence = expect(s, VERB_CLAIM, "done", owner(1), OUTCOME_CLAIMED);
    publish(s, "done", 1, value);
    struct request none = owner(1);
    expect(s, VERB_CLAIM, "gone", none, OUTCOME_CLAIMED);
    none.retain_ms = 10;
    expect(s, VERB_PUBLISH, "gone", none, OUTCOME_OK);
    expect(s, VERB_CLAIM, "pending", owner(1), OUTCOME_CLAIMED);
    now_ms += 10;

    struct op *op = op_on(VERB_SCAN, "", owner(0));
    op->limit = 10;
    exec(s, &op, 1);
    cr_assert(op->scan.count == 2);
    const struct scan_row *done = &op->scan.rows[0], *pending = &op->scan.rows[1];
    cr_expect(done->state == RECORD_DONE && done->fence == fence);
    cr_expect(done->value_kept && done->value_bytes == 5);
    cr_expect(done->retain_left_ms == 60000 - 10 && done->done_at_ms == now_ms - 10);
    cr_expect(pending->state == RECORD_PENDING && !pending->value_kept);
    cr_expect(pending->lease_left_ms == 30000 - 10);
    op_free(op);
    blob_unref(value);
    store_close(s);
}

/* ---- several handles and processes ---- */

Test(sqlite, two_handles_share_records_and_the_floor)
{
    struct store *a = open_store(), *b = open_store();
    uint64_t first = expect(a, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    expect(b, VERB_CLAIM, "k", owner(2), OUTCOME_IN_PROGRESS);
    expect(a, VERB_RELEASE, "k", owner(1), OUTCOME_OK);
    now_ms -= 500000;
    uint64_t second = expect(b, VERB_CLAIM, "k", owner(2), OUTCOME_CLAIMED);
    cr_expect(second > first, "b must see the floor that a raised");
    expect(a, VERB_PUBLISH, "k", owner(1), OUTCOME_LOST);
    cr_expect(a->epoch == b->epoch);
    store_close(a);
    store_close(b);
}

Test(sqlite, foreign_wrote_is_about_others_only)
{
    struct store *a = open_store(), *b = open_store();
    expect(b, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    cr_expect(a->class->foreign_wrote(a), "b wrote after a was opened");
    cr_expect(!a->class->foreign_wrote(a));
    expect(a, VERB_CLAIM, "k2", owner(1), OUTCOME_CLAIMED);
    cr_expect(!a->class->foreign_wrote(a), "its own write is not foreign");
    expect(b, VERB_PEEK, "k", owner(1), OUTCOME_IN_PROGRESS);
    cr_expect(!a->class->foreign_wrote(a), "a read is not a write");
    expect(b, VERB_RELEASE, "k", owner(1), OUTCOME_OK);
    expect(a, VERB_CLAIM, "k3", owner(1), OUTCOME_CLAIMED);
    cr_expect(a->class->foreign_wrote(a), "not hidden by a write of its own");
    store_close(a);
    store_close(b);
}

/* Waits for the descriptor until foreign_wrote() says so; false: it fell silent. */
static bool hears_a_write(struct store *s)
{
    struct pollfd p = { .fd = s->class->foreign_fd(s), .events = POLLIN };
    cr_assert(p.fd >= 0);
    while (poll(&p, 1, 10000) == 1)
        if (s->class->foreign_wrote(s)) return true;
    return false;
}

Test(sqlite, write_before_the_first_listening_is_heard)
{
    struct store *a = open_store(), *b = open_store();
    expect(b, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    cr_expect(hears_a_write(a));
    store_close(a);
    store_close(b);
}

static struct store *volatile held; /* to be seen by valgrind: what is held is not a leak */

static int publish_and_die(void)
{
    held = open_store();
    publish(held, "k", 1, NULL);
    raise(SIGKILL);
    return 0;
}

static int write_without_a_word(void)
{
    raw("UPDATE claims SET lease_ms = lease_ms + 1");
    return 0;
}

/* Forks before the parent has a handle: SQLite's may not cross a fork. */
static pid_t spawn_when_told(int (*run)(void), int *ret_go)
{
    int go[2];
    cr_assert(pipe(go) == 0);
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        char byte;
        _exit(read(go[0], &byte, 1) == 1 ? run() : 98);
    }
    close(go[0]);
    *ret_go = go[1];
    return pid;
}

static void hears(int (*run)(void), int status)
{
    int go;
    pid_t pid = spawn_when_told(run, &go);
    struct store *s = open_store();
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    s->class->foreign_fd(s);
    cr_expect(!s->class->foreign_wrote(s));
    cr_assert(write(go, "", 1) == 1);
    cr_expect(hears_a_write(s));
    cr_expect(exit_of(pid) == status);
    close(go);
    store_close(s);
}

Test(sqlite, another_process_is_heard_and_what_it_committed_survives_it)
{
    hears(publish_and_die, -SIGKILL);
    struct store *s = open_store();
    expect(s, VERB_PEEK, "k", owner(2), OUTCOME_ALREADY_DONE);
    store_close(s);
}

Test(sqlite, a_program_that_announces_nothing_is_heard_when_it_ends)
{
    hears(write_without_a_word, 0);
}

static int claim_the_one_key(void)
{
    struct store *s;
    struct err err;
    rng_system_init(&rng); /* the parent's bytes are not this process's */
    if (store_open_bare(url, &env, &s, &err)) {
        fprintf(stderr, "open: %s\n", err.text);
        return 2;
    }
    struct request in = owner(0);
    rng.base.fill(&rng.base, in.token.bytes, sizeof in.token.bytes);
    struct op *op = op_on(VERB_CLAIM, "k", in);
    exec(s, &op, 1);
    if (op->err.code) fprintf(stderr, "claim: %s\n", op->err.text);
    int claimed = op->err.code ? 3 : op->out.outcome == OUTCOME_CLAIMED;
    op_free(op);
    store_close(s);
    return claimed;
}

Test(sqlite, many_processes_open_a_new_file_at_once_and_one_claims)
{
    int go[PROCESSES];
    pid_t pids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) pids[i] = spawn_when_told(claim_the_one_key, &go[i]);
    for (int i = 0; i < PROCESSES; i++) cr_assert(write(go[i], "", 1) == 1);
    int claimed = 0;
    for (int i = 0; i < PROCESSES; i++) {
        int status = exit_of(pids[i]);
        cr_expect(status == 0 || status == 1, "process %d: %d", i, status);
        claimed += status == 1;
        close(go[i]);
    }
    cr_expect(claimed == 1, "%d claimed", claimed);
}

Test(sqlite, exclusive_keeps_others_out)
{
    char alone[160], impatient[160];
    snprintf(alone, sizeof alone, "%s?exclusive=1", url);
    snprintf(impatient, sizeof impatient, "%s?busy_ms=20", url);
    struct store *s = open_url(alone);
    cr_expect(s->caps == (sqlite_class.caps & ~(unsigned)CAP_SHARED));
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    expect_refused(impatient, ERR_UNAVAILABLE, "holds the lock");
    store_close(s);
    s = open_url(impatient);
    expect(s, VERB_CLAIM, "k", owner(2), OUTCOME_IN_PROGRESS);
    store_close(s);
}

/* ---- failures ---- */

Test(sqlite, busy_is_unavailable_for_writers_only)
{
    char impatient[160];
    snprintf(impatient, sizeof impatient, "%s?busy_ms=30", url);
    struct store *s = open_url(impatient);
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    sqlite3 *other = raw_open();
    raw_exec(other, "BEGIN IMMEDIATE");
    struct err err = expect_error(s, VERB_RELEASE, "k", owner(1), ERR_UNAVAILABLE);
    cr_expect(strstr(err.text, "another process holds the lock"), "%s", err.text);
    expect(s, VERB_PEEK, "k", owner(1), OUTCOME_IN_PROGRESS);
    raw_exec(other, "ROLLBACK");
    expect(s, VERB_RELEASE, "k", owner(1), OUTCOME_OK);
    sqlite3_close(other);
    store_close(s);
}

/* What a bad disk, a bad restore or a curious hand may leave behind. */
static const char *const nonsense[] = {
    "state = 7",
    "state = -1",
    "token = x'0102'",
    "token = x''",
    "fence = 0",
    "fence = -5",
    "fence = 9223372036854775807",
    "lease_ms = -1",
    "retain_ms = -1",
    "retain_ms = 9223372036854775807",
    "lease_until_ms = -9223372036854775807",
    "claimed_at_ms = 9223372036854775807",
    "done_at_ms = 9223372036854775807",
    "fingerprint = zeroblob(65)",
    "value = x'00'",
};

static void expect_corrupt_alone(struct store *s)
{
    struct op *ops[] = {
        op_on(VERB_CLAIM, "good1", owner(1)),   op_on(VERB_CLAIM, "bad", owner(1)),
        op_on(VERB_CLAIM, "good2", owner(1)),   op_on(VERB_PEEK, "bad", owner(1)),
        op_on(VERB_RELEASE, "good1", owner(1)), op_on(VERB_RELEASE, "good2", owner(1)),
    };
    size_t count = sizeof ops / sizeof ops[0];
    exec(s, ops, count);
    for (size_t i = 0; i < count; i++) {
        int want = i == 1 || i == 3 ? ERR_CORRUPT : 0;
        cr_expect(ops[i]->err.code == want, "op %zu: %d", i, ops[i]->err.code);
        cr_expect(ops[i]->changed == !want);
        op_free(ops[i]);
    }
}

Test(sqlite, row_that_makes_no_sense_fails_its_own_op_only)
{
    struct store *s = open_store();
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        expect(s, VERB_CLAIM, "bad", owner(1), OUTCOME_CLAIMED);
        char sql[160];
        snprintf(sql, sizeof sql, "UPDATE claims SET %s WHERE name = x'626164'", nonsense[i]);
        raw(sql);
        expect_corrupt_alone(s);
        raw("DELETE FROM claims");
    }
    store_close(s);
}

Test(sqlite, key_that_makes_no_sense_fails_the_listing)
{
    struct store *s = open_store();
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    raw("UPDATE claims SET name = zeroblob(600)");
    struct op *op = op_on(VERB_SCAN, "", owner(0));
    op->limit = 10;
    exec(s, &op, 1);
    cr_expect(op->err.code == ERR_CORRUPT);
    op_free(op);
    store_close(s);
}

Test(sqlite, missing_floor_is_corrupt)
{
    struct store *s = open_store();
    raw("UPDATE meta SET fence_floor = -1");
    expect_error(s, VERB_CLAIM, "k", owner(1), ERR_CORRUPT);
    raw("DELETE FROM meta");
    expect_error(s, VERB_PEEK, "k", owner(1), ERR_CORRUPT);
    store_close(s);
}

Test(sqlite, op_that_poisons_a_batch_fails_alone)
{
    struct store *s = open_store();
    raw("CREATE TRIGGER poison BEFORE INSERT ON claims WHEN NEW.name = x'626164'"
        " BEGIN SELECT RAISE(ROLLBACK, 'poison'); END");
    struct op *ops[] = { op_on(VERB_CLAIM, "before", owner(1)),
                         op_on(VERB_CLAIM, "bad", owner(1)),
                         op_on(VERB_CLAIM, "after", owner(1)),
                         op_on(VERB_PEEK, "bad", owner(1)) };
    exec(s, ops, 4);
    cr_expect(ops[0]->err.code == 0 && ops[0]->out.outcome == OUTCOME_CLAIMED);
    cr_expect(ops[1]->err.code == ERR_CORRUPT && !ops[1]->changed);
    cr_expect(strstr(ops[1]->err.text, "poison"), "%s", ops[1]->err.text);
    cr_expect(ops[2]->err.code == 0 && ops[2]->out.outcome == OUTCOME_CLAIMED);
    cr_expect(ops[3]->err.code == 0 && ops[3]->out.outcome == OUTCOME_ABSENT);
    for (size_t i = 0; i < 4; i++) op_free(ops[i]);
    expect(s, VERB_CLAIM, "before", owner(2), OUTCOME_IN_PROGRESS);
    expect(s, VERB_CLAIM, "after", owner(2), OUTCOME_IN_PROGRESS);
    store_close(s);
}

/* The WAL may not grow by a byte: every commit fails while it writes. */
static void forbid_growth(bool forbid)
{
    char wal[112];
    struct stat st;
    struct rlimit limit;
    snprintf(wal, sizeof wal, "%s-wal", path);
    cr_assert(stat(wal, &st) == 0);
    cr_assert(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = forbid ? (rlim_t)st.st_size : limit.rlim_max;
    cr_assert(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

Test(sqlite, failed_commit_is_ambiguous_for_what_it_would_have_changed)
{
    signal(SIGXFSZ, SIG_IGN);
    struct store *s = open_store();
    expect(s, VERB_CLAIM, "old", owner(1), OUTCOME_CLAIMED);
    struct op *ops[] = { op_on(VERB_CLAIM, "new", owner(1)), op_on(VERB_CLAIM, "old", owner(2)),
                         op_on(VERB_RELEASE, "old", owner(1)) };
    forbid_growth(true);
    exec(s, ops, 3);
    forbid_growth(false);
    cr_expect(ops[0]->err.code == ERR_AMBIGUOUS, "%d", ops[0]->err.code);
    cr_expect(ops[1]->err.code == ERR_UNAVAILABLE, "%d", ops[1]->err.code);
    cr_expect(ops[2]->err.code == ERR_AMBIGUOUS, "%d", ops[2]->err.code);
    for (size_t i = 0; i < 3; i++) {
        cr_expect(!ops[i]->changed);
        op_free(ops[i]);
    }
    expect(s, VERB_PEEK, "new", owner(1), OUTCOME_ABSENT);
    expect(s, VERB_CLAIM, "new", owner(1), OUTCOME_CLAIMED);
    expect(s, VERB_RELEASE, "old", owner(1), OUTCOME_OK);
    store_close(s);
}

Test(sqlite, batch_sees_its_own_changes_in_order)
{
    struct store *s = open_store();
    struct op *ops[] = { op_on(VERB_CLAIM, "k", owner(1)), op_on(VERB_CLAIM, "k", owner(2)),
                         op_on(VERB_RELEASE, "k", owner(1)), op_on(VERB_CLAIM, "k", owner(2)),
                         op_on(VERB_PUBLISH, "k", owner(1)) };
    exec(s, ops, 5);
    static const enum outcome want[] = { OUTCOME_CLAIMED, OUTCOME_IN_PROGRESS, OUTCOME_OK,
                                         OUTCOME_CLAIMED, OUTCOME_LOST };
    for (size_t i = 0; i < 5; i++)
        cr_expect(ops[i]->out.outcome == want[i], "op %zu: %s", i,
                  outcome_name(ops[i]->out.outcome));
    cr_expect(ops[3]->out.fence > ops[0]->out.fence);
    for (size_t i = 0; i < 5; i++) op_free(ops[i]);
    store_close(s);
}

Test(sqlite, ping_is_answered)
{
    struct store *s = open_store();
    struct op *op = op_new(VERB_PING, NULL, NULL);
    exec(s, &op, 1);
    cr_expect(op->err.code == 0 && op->out.outcome == OUTCOME_OK && !op->changed);
    op_free(op);
    store_close(s);
}
