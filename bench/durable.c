/* durable.c - claims that survive: SQLite with full sync, many in flight, against the same rows
 * written by plain SQLite one per transaction into the same schema, and against the disk. */
#include "bench/bench.h"

#include "base/check.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 3, REPLAY_KEYS = 20000, PAGE_BYTES = 4096 };

static const int64_t slice_ns = 1200 * INT64_C(1000000);
static const uint64_t no_count = UINT32_MAX;

/* ---- plain SQLite ---- */

static sqlite3 *plain_open(const char *url)
{
    sqlite3 *db;
    once_close(open_ledger(url)); /* makes the schema */
    must(sqlite3_open(url + strlen("sqlite:"), &db) == SQLITE_OK, "open plain SQLite");
    must(sqlite3_exec(db, "PRAGMA synchronous = FULL", NULL, NULL, NULL) == SQLITE_OK, "sync");
    return db;
}

static sqlite3_stmt *plain_prepare(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *q;
    must(sqlite3_prepare_v2(db, sql, -1, &q, NULL) == SQLITE_OK, "prepare");
    return q;
}

static void plain_insert(sqlite3_stmt *q, uint64_t n)
{
    char key[KEY_ROOM];
    size_t len = load_key(key, n);
    sqlite3_bind_blob(q, 1, key, (int)len, SQLITE_STATIC);
    sqlite3_bind_int64(q, 2, (int64_t)n);
    must(sqlite3_step(q) == SQLITE_DONE, "insert a row");
    sqlite3_reset(q);
}

static double plain_rate(void)
{
    char url[160];
    fresh_ledger(url, sizeof url);
    sqlite3 *db = plain_open(url);
    sqlite3_stmt *q = plain_prepare(
        db, "INSERT INTO claims (scope, name, state, token, fence, claimed_at_ms, lease_ms,"
            " lease_until_ms, retain_ms, done_at_ms, gone_at_ms, fingerprint)"
            " VALUES (x'62656e6368', ?1, 1, zeroblob(16), ?2 + 1, ?2, 30000, ?2, 86400000, 0,"
            " ?2, x'')");
    uint64_t rows = 0;
    int64_t start_ns = now_ns();
    while (now_ns() - start_ns < slice_ns) plain_insert(q, rows++);
    double rate = per_second(rows, start_ns);
    sqlite3_finalize(q);
    sqlite3_close(db);
    return rate;
}

/* ---- the disk ---- */

/* Overwrites one page of a file that is there already: what a WAL that is reused costs. */
static double fdatasync_rate(void)
{
    char path[160], page[PAGE_BYTES];
    memset(page, 'x', sizeof page);
    snprintf(path, sizeof path, "%s/sync", bench_dir());
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    must(fd >= 0, "create a file");
    uint64_t syncs = 0;
    must(pwrite(fd, page, sizeof page, 0) == PAGE_BYTES && fsync(fd) == 0, "write");
    int64_t start_ns = now_ns();
    for (; now_ns() - start_ns < slice_ns / 2; syncs++) {
        page[0]++;
        must(pwrite(fd, page, sizeof page, 0) == PAGE_BYTES && fdatasync(fd) == 0, "sync");
    }
    double rate = per_second(syncs, start_ns);
    close(fd);
    return rate;
}

/* ---- ours ---- */

static double durable_rate(enum work work, size_t in_flight)
{
    char url[160];
    fresh_ledger(url, sizeof url);
    struct once *o = open_ledger(url);
    double rate = load_async(o, work, in_flight, 0, no_count, slice_ns);
    once_close(o);
    return rate;
}

void bench_durable(void)
{
    static const char *const against = "plain SQLite, one row per transaction";
    struct samples plain = { .count = 0 }, disk = { .count = 0 }, one = { .count = 0 };
    struct samples fifty = { .count = 0 }, many = { .count = 0 }, both = { .count = 0 };
    for (int i = 0; i < ROUNDS; i++) {
        samples_add(&disk, fdatasync_rate());
        samples_add(&plain, plain_rate());
        samples_add(&one, durable_rate(WORK_CLAIM, 1));
        samples_add(&fifty, durable_rate(WORK_CLAIM, 50));
        samples_add(&many, durable_rate(WORK_CLAIM, 256));
        samples_add(&both, durable_rate(WORK_CLAIM_PUBLISH, 256));
    }
    report(&(struct row){ "disk", "the disk: fdatasync of an overwritten page", "/s", &disk,
                          NULL, NULL, NO_TARGET });
    report(&(struct row){ "durable_1_disk", "durable claims, 1 in flight", "/s", &one, &disk,
                          "fdatasync: the limit that binds one caller", NO_TARGET });
    report(&(struct row){ "durable_1", "durable claims, 1 in flight", "/s", &one, &plain,
                          against, NO_TARGET });
    report(&(struct row){ "durable_50", "durable claims, 50 in flight", "/s", &fifty, &plain,
                          against, NO_TARGET });
    report(&(struct row){ "durable_256", "durable claims, 256 in flight", "/s", &many, &plain,
                          against, RATIO_AT_LEAST(8),
                          "the processor, as flushes are shared," });
    report(&(struct row){ "durable_256_publish", "durable claim + publish, 256 in flight", "/s",
                          &both, &plain, against, NO_TARGET });
    report(&(struct row){ "durable_256_disk", "durable claims, 256 in flight", "/s", &many,
                          &disk, "fdatasync: claims per flush of the disk", NO_TARGET });
}

/* ---- replay ---- */

static double plain_reads(const char *url)
{
    sqlite3 *db;
    must(sqlite3_open(url + strlen("sqlite:"), &db) == SQLITE_OK, "open plain SQLite");
    sqlite3_stmt *q = plain_prepare(
        db, "SELECT state, value FROM claims WHERE scope = x'62656e6368' AND name = ?1");
    int64_t start_ns = now_ns();
    for (uint64_t i = 0; i < REPLAY_KEYS; i++) {
        char key[KEY_ROOM];
        size_t len = load_key(key, i);
        sqlite3_bind_blob(q, 1, key, (int)len, SQLITE_STATIC);
        must(sqlite3_step(q) == SQLITE_ROW && sqlite3_column_bytes(q, 1) == VALUE_BYTES,
             "read");
        sqlite3_reset(q);
    }
    double rate = per_second(REPLAY_KEYS, start_ns);
    sqlite3_finalize(q);
    sqlite3_close(db);
    return rate;
}

void bench_replay(void)
{
    static const char *const against = "plain SQLite, one SELECT per answer";
    char url[160];
    struct samples one = { .count = 0 }, many = { .count = 0 }, plain = { .count = 0 };
    fresh_ledger(url, sizeof url);
    struct once *o = open_ledger(url);
    load_async(o, WORK_CLAIM_PUBLISH, 256, 0, REPLAY_KEYS, INT64_MAX);
    for (int i = 0; i < ROUNDS; i++) {
        samples_add(&plain, plain_reads(url));
        samples_add(&one, load_async(o, WORK_REPLAY, 1, 0, REPLAY_KEYS, slice_ns));
        samples_add(&many, load_async(o, WORK_REPLAY, 256, 0, REPLAY_KEYS, slice_ns));
    }
    once_close(o);
    report(&(struct row){ "replay_1", "durable replay of an answer, 1 in flight", "/s", &one,
                          &plain, against, NO_TARGET });
    report(&(struct row){ "replay_256", "durable replay of an answer, 256 in flight", "/s",
                          &many, &plain, against, NO_TARGET });
}
