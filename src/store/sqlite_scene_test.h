/* sqlite_scene_test.h - a directory with a SQLite file in it, a clock that only the test moves, and
 * ways to ask the store, and the file itself, about it. */
#ifndef STORE_SQLITE_SCENE_TEST_H
#define STORE_SQLITE_SCENE_TEST_H

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

enum { SCHEMA_NOW = 3 };

static char dir[64], path[96], url[112];
static int64_t now_ms;
static struct loop loop;
static struct rng_system rng;
static struct store_env env;

static inline int64_t test_now_ms(void *ctx)
{
    (void)ctx;
    return now_ms;
}

static inline void sqlite_setup(void)
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
                              .monotonic = { .now_ms = test_now_ms },
                              .rng = &rng.base };
}

static inline void sqlite_teardown(void)
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

#define SQLITE_SUITE(name)                                                                     \
    TestSuite(name, .init = sqlite_setup, .fini = sqlite_teardown, .timeout = 60)

static inline struct store *open_url(const char *what)
{
    struct store *s;
    struct err err;
    int r = store_open_bare(what, &env, &s, &err);
    cr_assert(r == 0, "%s: %s", what, r ? err.text : "");
    return s;
}

static inline struct store *open_store(void)
{
    return open_url(url);
}

static inline void expect_refused(const char *what, int code, const char *text)
{
    struct store *s;
    struct err err;
    int r = store_open_bare(what, &env, &s, &err);
    cr_assert(r == code, "%s: %d %s", what, r, r ? err.text : "opened");
    cr_expect(strstr(err.text, text), "%s", err.text);
}

static inline struct request owner(uint8_t who)
{
    return (struct request){ .token.bytes = { who }, .lease_ms = 30000, .retain_ms = 60000 };
}

static inline struct op *op_in(enum verb verb, const char *scope, const char *name,
                               struct request in)
{
    struct key key = { bytes_str(scope), bytes_str(name) };
    struct op *op = op_new(verb, &key, &in);
    cr_assert(op);
    return op;
}

static inline struct op *op_on(enum verb verb, const char *name, struct request in)
{
    return op_in(verb, "s", name, in);
}

static inline void exec(struct store *s, struct op **ops, size_t count)
{
    s->class->exec(s, ops, count);
}

/* Runs one op and expects this outcome; returns its fence. */
static inline uint64_t expect(struct store *s, enum verb verb, const char *name,
                              struct request in, enum outcome outcome)
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

static inline struct err expect_error(struct store *s, enum verb verb, const char *name,
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

static inline void publish(struct store *s, const char *name, uint8_t who, struct blob *value)
{
    struct request in = owner(who);
    in.value = value;
    expect(s, VERB_PUBLISH, name, in, OUTCOME_OK);
}

static inline size_t expire(struct store *s, size_t limit)
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

static inline struct store_stats stats(struct store *s)
{
    struct op *op = op_new(VERB_STATS, NULL, NULL);
    exec(s, &op, 1);
    cr_assert(op->err.code == 0, "%s", op->err.text);
    struct store_stats got = op->stats;
    op_free(op);
    return got;
}

/* A second program that knows nothing of once. */
static inline sqlite3 *raw_open(void)
{
    sqlite3 *db;
    cr_assert(sqlite3_open(path, &db) == SQLITE_OK);
    return db;
}

static inline void raw_exec(sqlite3 *db, const char *sql)
{
    char *text = NULL;
    int rc = sqlite3_exec(db, sql, NULL, NULL, &text);
    cr_assert(rc == SQLITE_OK, "%s: %s", sql, text);
}

static inline void raw(const char *sql)
{
    sqlite3 *db = raw_open();
    raw_exec(db, sql);
    sqlite3_close(db);
}

static inline int64_t raw_number(const char *sql)
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

static inline mode_t mode_of(const char *suffix)
{
    char name[112];
    struct stat st;
    snprintf(name, sizeof name, "%s%s", path, suffix);
    cr_assert(stat(name, &st) == 0, "%s: %s", name, strerror(errno));
    return st.st_mode & 0777;
}

/* A child runs `run` and exits with what it returns; it must not fall back into Criterion. */
static inline pid_t spawn(int (*run)(void))
{
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) _exit(run());
    return pid;
}

static inline int exit_of(pid_t pid)
{
    int status;
    cr_assert(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

#endif
