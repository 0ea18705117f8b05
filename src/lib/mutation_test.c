/* mutation_test.c - once_mutate() on an SQLite file, with the replay cache in memory. PostgreSQL, Redis
 * and their faults are in tests/mutations. */
#include <once/once.h>

#include <criterion/criterion.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/mutation-test-XXXXXX", path[64];
static struct once *once;
static sqlite3 *db, *other;

static void heard(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

static void sql(sqlite3 *on, const char *text)
{
    char *why = NULL;
    cr_assert_eq(sqlite3_exec(on, text, NULL, NULL, &why), SQLITE_OK, "%s: %s", text, why);
}

static int count(const char *text)
{
    sqlite3_stmt *s;
    cr_assert_eq(sqlite3_prepare_v2(other, text, -1, &s, NULL), SQLITE_OK, "%s", text);
    cr_assert_eq(sqlite3_step(s), SQLITE_ROW);
    int n = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    return n;
}

static void setup(void)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    char url[80];
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/shop.db", dir);
    snprintf(url, sizeof url, "sqlite:%s", path);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_open(path, &other), SQLITE_OK);
    sql(db, "CREATE TABLE applied (n)");
    cr_assert_eq(once_migrate(url, ONCE_MIGRATE_MUTATIONS, heard, NULL, &error), 0, "%s",
                 error.text);
    config.flags = ONCE_EPHEMERAL;
    config.value_bytes_max = 10000;
    cr_assert_eq(once_open(&config, &once, &error), 0, "%s", error.text);
}

static void teardown(void)
{
    char command[64];
    once_close(once);
    sqlite3_close(db);
    sqlite3_close(other);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(mutate, .init = setup, .fini = teardown);

/* ---- a function ---- */

struct work {
    const char *sql, *response;
    int says, ran, dies;
};

static int apply(void *ctx, struct once_db on, struct once_bytes *ret_response)
{
    struct work *w = ctx;
    w->ran++;
    sql(on.sqlite, "INSERT INTO applied VALUES (1)");
    if (w->dies) raise(SIGKILL);
    if (w->sql) sqlite3_exec(on.sqlite, w->sql, NULL, NULL, NULL);
    *ret_response = once_str(w->response ? w->response : "done");
    return w->says;
}

static struct once_mutation of(const char *request)
{
    struct once_mutation in = ONCE_MUTATION_INIT;
    in.user = once_str("user-1");
    in.request = once_str(request);
    in.lock_ms = 0;
    return in;
}

static int value_is(const struct once_mutation_answer *a, const char *text)
{
    return a->has_value && a->value.len == strlen(text) &&
           memcmp(a->value.data, text, a->value.len) == 0;
}

/* What it says, and how often it has been applied since the beginning. */
static void mutates(struct once *o, const struct once_mutation *in, struct work *w, int outcome,
                    const char *value, int applied)
{
    struct once_mutation_answer a;
    int r = once_mutate(o, (struct once_db){ .sqlite = db }, in, apply, w, &a);
    cr_assert_eq(r, 0, "%s", a.error.text);
    cr_assert_eq(a.outcome, outcome, "%s: %s", once_outcome_name(a.outcome), a.error.text);
    cr_assert(value ? value_is(&a, value) : !a.has_value, "%.*s", (int)a.value.len,
              (const char *)a.value.data);
    cr_assert_eq(count("SELECT count(*) FROM applied"), applied);
    cr_assert(sqlite3_get_autocommit(db), "the transaction was left open");
    once_mutation_answer_clear(&a);
    once_mutation_answer_clear(&a);
}

/* ---- tests ---- */

Test(mutate, once_and_then_from_the_cache_or_the_marker)
{
    struct once_mutation in = of("r");
    struct work w = { .response = "{}" };
    mutates(once, &in, &w, ONCE_OK, "{}", 1);
    mutates(once, &in, &w, ONCE_CACHED, "{}", 1);
    mutates(NULL, &in, &w, ONCE_ALREADY_DONE, "{}", 1);
    cr_assert_eq(w.ran, 1);
    in.user = once_str("user-2");
    mutates(NULL, &in, &w, ONCE_OK, "{}", 2);
}

Test(mutate, what_fails_leaves_nothing)
{
    struct once_mutation in = of("r");
    struct work fails = { .says = 7 }, ends = { .sql = "ROLLBACK" }, w = { 0 };
    struct once_mutation_answer a;
    mutates(once, &in, &fails, ONCE_CLAIMED, NULL, 0);
    once_mutate(once, (struct once_db){ .sqlite = db }, &in, apply, &fails, &a);
    cr_assert(strstr(a.error.text, "returned 7"), "%s", a.error.text);
    mutates(once, &in, &ends, ONCE_CLAIMED, NULL, 0);
    cr_assert_eq(count("SELECT count(*) FROM once_mutations"), 0);
    mutates(once, &in, &w, ONCE_OK, "done", 1);
}

/* Nobody is told of it before COMMIT, which may fail. */
Test(mutate, what_its_commit_refuses_is_not_cached)
{
    struct once_mutation in = of("r");
    struct work owes = { .sql = "INSERT INTO owned VALUES (1)" }, w = { 0 };
    sql(db, "PRAGMA foreign_keys = ON; CREATE TABLE owners (id INTEGER PRIMARY KEY);"
            "CREATE TABLE owned (id REFERENCES owners DEFERRABLE INITIALLY DEFERRED)");
    mutates(once, &in, &owes, ONCE_CLAIMED, NULL, 0);
    mutates(once, &in, &w, ONCE_OK, "done", 1);
}

static int fill_the_disk(void *ctx, struct once_db on, struct once_bytes *ret_response)
{
    sql(on.sqlite, "INSERT INTO applied VALUES (1)");
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, ctx), 0);
    *ret_response = once_str("");
    return 0;
}

/* An error of the disk does not say what is on it: that is looked at. */
Test(mutate, a_commit_that_the_disk_refuses_is_looked_up)
{
    struct once_mutation in = of("r");
    struct once_mutation_answer a;
    struct work w = { 0 };
    struct rlimit was, none;
    sql(db, "PRAGMA journal_mode = WAL");
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &was), 0);
    none = (struct rlimit){ .rlim_cur = 0, .rlim_max = was.rlim_max };
    cr_assert_eq(
        once_mutate(once, (struct once_db){ .sqlite = db }, &in, fill_the_disk, &none, &a),
        ONCE_EUNAVAILABLE);
    cr_assert(strstr(a.error.text, "COMMIT got no definite answer"), "%s", a.error.text);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &was), 0);
    mutates(once, &in, &w, ONCE_OK, "done", 1);
}

Test(mutate, a_function_that_commits_by_itself_is_found_out)
{
    struct once_mutation in = of("r");
    struct work w = { .sql = "COMMIT" };
    mutates(once, &in, &w, ONCE_OK, "done", 1);
    mutates(once, &in, &w, ONCE_CACHED, "done", 1);
}

Test(mutate, a_function_that_commits_and_says_that_it_failed_is_found_out)
{
    struct once_mutation in = of("r"), other_one = of("r2");
    struct work w = { .sql = "COMMIT", .says = 7 }, undone = { .sql = "ROLLBACK", .says = 7 };
    mutates(once, &in, &w, ONCE_ALREADY_DONE, NULL, 1);
    mutates(once, &in, &w, ONCE_ALREADY_DONE, NULL, 1);
    mutates(once, &other_one, &undone, ONCE_CLAIMED, NULL, 1);
    cr_assert_eq(w.ran, 1);
}

/* What it does in a transaction of its own has no marker, and is not committed. */
Test(mutate, a_function_that_begins_another_transaction_is_found_out)
{
    struct once_mutation undone = of("r"), done = of("r2");
    struct work w = { .sql = "ROLLBACK; BEGIN; INSERT INTO applied VALUES (2)",
                      .response = "" };
    mutates(once, &undone, &w, ONCE_CLAIMED, NULL, 0);
    w.response = "text";
    mutates(once, &undone, &w, ONCE_CLAIMED, NULL, 0);
    w.sql = "COMMIT; BEGIN; INSERT INTO applied VALUES (2)";
    mutates(once, &done, &w, ONCE_ALREADY_DONE, NULL, 1);
    mutates(once, &done, &w, ONCE_ALREADY_DONE, NULL, 1);
}

Test(mutate, a_commit_that_power_loss_may_take_back_is_not_cached)
{
    struct once_mutation in = of("r"), flushed = of("r2");
    struct work w = { 0 };
    sql(db, "PRAGMA synchronous = NORMAL");
    mutates(once, &in, &w, ONCE_OK, "done", 1);
    mutates(once, &in, &w, ONCE_ALREADY_DONE, "done", 1);
    sql(db, "PRAGMA synchronous = FULL");
    mutates(once, &flushed, &w, ONCE_OK, "done", 2);
    mutates(once, &flushed, &w, ONCE_CACHED, "done", 2);
}

static void die_inside(struct work *w, const char *request)
{
    struct once_mutation in = of(request);
    struct once_mutation_answer a;
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    once_mutate(NULL, (struct once_db){ .sqlite = db }, &in, apply, w, &a);
}

static int leave_insert_unfinished(void *ctx, struct once_db on,
                                   struct once_bytes *ret_response)
{
    sqlite3_stmt **s = ctx;
    cr_assert_eq(sqlite3_prepare_v2(
                     on.sqlite, "INSERT INTO applied VALUES (1), (2) RETURNING n", -1, s, NULL),
                 SQLITE_OK);
    cr_assert_eq(sqlite3_step(*s), SQLITE_ROW);
    *ret_response = once_str("done");
    return 0;
}

Test(mutate, a_statement_that_was_not_finished_is_said_to_be_the_reason)
{
    struct once_mutation in = of("r");
    struct once_mutation_answer a;
    sqlite3_stmt *left;
    in.lock_ms = 600000;
    once_mutate(NULL, (struct once_db){ .sqlite = db }, &in, leave_insert_unfinished, &left,
                &a);
    cr_assert(a.outcome == ONCE_CLAIMED && strstr(a.error.text, "finalized"), "%s",
              a.error.text);
    cr_assert_eq(count("SELECT count(*) FROM applied"), 0);
    sqlite3_finalize(left);
}

static int steps, stop_at;

static int interrupt(void *ctx)
{
    (void)ctx;
    return ++steps == stop_at;
}

static int apply_undisturbed(void *ctx, struct once_db on, struct once_bytes *ret_response)
{
    struct work *w = ctx;
    w->ran++;
    sqlite3_progress_handler(on.sqlite, 0, NULL, NULL);
    sql(on.sqlite, "INSERT INTO applied VALUES (1)");
    sqlite3_progress_handler(on.sqlite, 1, interrupt, NULL);
    *ret_response = once_str("done");
    return 0;
}

/* At each step of SQLite's machine, once; what fn does is left alone. */
Test(mutate, interrupted_anywhere_it_is_told_what_happened)
{
    int applied = 0;
    do {
        struct work w = { 0 };
        struct once_mutation_answer a;
        char request[16];
        snprintf(request, sizeof request, "r%d", ++stop_at);
        struct once_mutation in = of(request);
        steps = 0;
        sqlite3_progress_handler(db, 1, interrupt, NULL);
        int r =
            once_mutate(NULL, (struct once_db){ .sqlite = db }, &in, apply_undisturbed, &w, &a);
        sqlite3_progress_handler(db, 0, NULL, NULL);
        applied += r == 0 && a.outcome == ONCE_OK;
        cr_assert_eq(count("SELECT count(*) FROM applied"), applied, "%d: %d %s", stop_at, r,
                     a.error.text);
        cr_assert(sqlite3_get_autocommit(db), "the transaction was left open");
        once_mutation_answer_clear(&a);
    } while (steps >= stop_at);
    cr_assert_geq(stop_at, 50);
}

/* In a process of its own, with a connection of its own. */
Test(mutate, kill_9_before_the_commit_leaves_nothing_and_hands_over)
{
    struct once_mutation in = of("r");
    struct work dies = { .dies = 1 }, w = { 0 };
    int status;
    pid_t pid = fork();
    if (pid == 0) die_inside(&dies, "r");
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    cr_assert_eq(count("SELECT count(*) FROM applied"), 0);
    mutates(NULL, &in, &w, ONCE_OK, "done", 1);
}

Test(mutate, for_something_else_is_a_mismatch)
{
    struct once_mutation in = of("r");
    struct work w = { 0 };
    mutates(once, &in, &w, ONCE_OK, "done", 1);
    in.method = once_str("SellItem");
    mutates(once, &in, &w, ONCE_MISMATCH, NULL, 1);
    in = of("r");
    in.fingerprint = once_bytes("\0\1", 2);
    mutates(NULL, &in, &w, ONCE_MISMATCH, NULL, 1);
}

static int ask_for_something_else(void *ctx, struct once_db on, struct once_bytes *ret_response)
{
    struct once_mutation in = of("r");
    struct once_mutation_answer a;
    (void)on, (void)ret_response;
    in.method = once_str("SellItem");
    cr_assert_eq(once_mutate(once, (struct once_db){ .sqlite = other }, &in, apply, ctx, &a),
                 0);
    cr_assert(a.outcome == ONCE_IN_PROGRESS && a.in_database, "%s",
              once_outcome_name(a.outcome));
    return -1;
}

/* What coord takes for a mismatch may be of something that is never committed. */
Test(mutate, for_something_else_while_it_is_undecided_is_for_the_database_to_say)
{
    struct once_mutation in = of("r");
    struct once_mutation_answer a;
    struct work w = { 0 };
    struct once_db on = { .sqlite = db };
    cr_assert_eq(once_mutate(once, on, &in, ask_for_something_else, &w, &a), 0);
    cr_assert(a.outcome == ONCE_CLAIMED && w.ran == 0);
    in.method = once_str("SellItem");
    mutates(once, &in, &w, ONCE_OK, "done", 1);
}

Test(mutate, while_somebody_writes_is_in_progress)
{
    struct once_mutation in = of("r");
    struct work w = { 0 };
    struct once_mutation_answer a;
    sql(other, "BEGIN IMMEDIATE");
    cr_assert_eq(once_mutate(once, (struct once_db){ .sqlite = db }, &in, apply, &w, &a), 0);
    cr_assert(a.outcome == ONCE_IN_PROGRESS && a.in_database);
    in.lock_ms = 20;
    cr_assert_eq(once_mutate(once, (struct once_db){ .sqlite = db }, &in, apply, &w, &a), 0);
    cr_assert_eq(a.outcome, ONCE_IN_PROGRESS);
    sql(other, "ROLLBACK");
    mutates(once, &in, &w, ONCE_OK, "done", 1);
}

/* Says that it is in the way still, although it is not any more. */
static int gives_way(void *ctx, int times)
{
    (void)times;
    if (!sqlite3_get_autocommit(ctx)) sql(ctx, "ROLLBACK");
    return 0;
}

Test(mutate, while_somebody_writes_waits_until_that_is_over)
{
    struct once_mutation in = of("r");
    struct work w = { 0 };
    in.lock_ms = 60000;
    sql(other, "BEGIN IMMEDIATE");
    sqlite3_busy_handler(db, gives_way, other);
    mutates(once, &in, &w, ONCE_OK, "done", 1);
}

Test(mutate, again_when_the_marker_has_expired)
{
    struct once_mutation in = of("r");
    struct work w = { 0 };
    mutates(NULL, &in, &w, ONCE_OK, "done", 1);
    sql(db, "UPDATE once_mutations SET created_at_ms = created_at_ms - 3600000");
    mutates(NULL, &in, &w, ONCE_OK, "done", 2);
    mutates(NULL, &in, &w, ONCE_ALREADY_DONE, "done", 2);
}

/* Whoever takes it over leaves nothing of what it was. */
Test(mutate, again_for_something_else_when_the_marker_has_expired)
{
    struct once_mutation in = of("r"), sell = of("r");
    struct work w = { 0 }, silent = { .response = "" };
    in.fingerprint = once_str("1");
    sell.method = once_str("SellItem");
    mutates(NULL, &in, &w, ONCE_OK, "done", 1);
    sql(db, "UPDATE once_mutations SET created_at_ms = created_at_ms - 3600000");
    mutates(NULL, &sell, &silent, ONCE_OK, "", 2);
    mutates(NULL, &sell, &w, ONCE_ALREADY_DONE, NULL, 2);
    mutates(NULL, &in, &w, ONCE_MISMATCH, NULL, 2);
}

/* As after a restore: the row is gone, and the file is another one. */
Test(mutate, what_another_file_has_done_counts_for_nothing)
{
    struct once_mutation in = of("r");
    struct work w = { 0 };
    mutates(once, &in, &w, ONCE_OK, "done", 1);
    sql(db, "DELETE FROM once_mutations; UPDATE once_mutation_meta SET epoch = 'another'");
    mutates(once, &in, &w, ONCE_OK, "done", 2);
    mutates(once, &in, &w, ONCE_CACHED, "done", 2);
}

/* Coord knows of one without a response, too, and that counts for as little. */
Test(mutate, what_another_file_has_done_counts_for_nothing_without_a_response_either)
{
    static char text[10002];
    struct once_mutation in = of("r");
    struct work w = { .response = text };
    memset(text, 'x', 10001);
    mutates(once, &in, &w, ONCE_OK, text, 1);
    mutates(once, &in, &w, ONCE_ALREADY_DONE, NULL, 1);
    sql(db, "DELETE FROM once_mutations; UPDATE once_mutation_meta SET epoch = 'another'");
    mutates(once, &in, &w, ONCE_OK, text, 2);
}

Test(mutate, responses_are_kept_as_far_as_they_fit)
{
    static char text[10002];
    struct once_mutation in = of("marker"), longer = of("coord"), longest = of("nowhere");
    struct work w = { .response = text };
    memset(text, 'x', 8192);
    mutates(once, &in, &w, ONCE_OK, text, 1);
    mutates(NULL, &in, &w, ONCE_ALREADY_DONE, text, 1);
    text[8192] = 'x';
    mutates(once, &longer, &w, ONCE_OK, text, 2);
    mutates(once, &longer, &w, ONCE_CACHED, text, 2);
    mutates(NULL, &longer, &w, ONCE_ALREADY_DONE, NULL, 2);
    memset(text, 'x', 10001);
    mutates(once, &longest, &w, ONCE_OK, text, 3);
    mutates(once, &longest, &w, ONCE_ALREADY_DONE, NULL, 3);
}

Test(mutate, without_a_request_pays_nothing)
{
    struct once_mutation in = of("");
    struct work w = { 0 };
    mutates(once, &in, &w, ONCE_OK, "done", 1);
    mutates(once, &in, &w, ONCE_OK, "done", 2);
    w.says = 1;
    mutates(once, &in, &w, ONCE_CLAIMED, NULL, 2);
    cr_assert_eq(count("SELECT count(*) FROM once_mutations"), 0);
}

Test(mutate, envs_are_apart_at_coord_and_the_database_decides)
{
    struct once_mutation in = of("r");
    struct work w = { 0 };
    mutates(once, &in, &w, ONCE_OK, "done", 1);
    in.env = once_str("other");
    mutates(once, &in, &w, ONCE_ALREADY_DONE, "done", 1);
}

/* When the host of a handle whose ledger is beside this file has to look after it next, in ms; -1: never. */
static int64_t next_look_ms(int64_t sweep_ms)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    struct once *o;
    char url[160];
    snprintf(url, sizeof url, "sqlite:%s/ledger.db?markers=%s", dir, path);
    config.ledger = url;
    config.flags = ONCE_HOSTED;
    config.sweep_ms = sweep_ms;
    cr_assert_eq(once_open(&config, &o, &error), 0, "%s", error.text);
    int64_t ms = once_timeout_ms(o);
    once_close(o);
    return ms;
}

Test(mutate, markers_are_swept_by_every_handle_that_sweeps)
{
    int64_t ms = next_look_ms(3600000);
    cr_assert(ms > 0 && ms <= 5000, "%lld", (long long)ms);
    ms = next_look_ms(0);
    cr_assert(ms < 0 || ms > 5000, "%lld", (long long)ms);
}

/* ---- the marker alone ---- */

static int begins(const struct once_mutation *in, struct once_mutation_answer *a)
{
    int r = once_mutation_begin((struct once_db){ .sqlite = db }, in, a);
    return r ? r : a->outcome;
}

Test(mutate, in_the_callers_own_transaction)
{
    struct once_mutation in = of("r");
    struct once_mutation_answer a;
    struct once_error error;
    cr_assert_eq(begins(&in, &a), ONCE_EINVAL);
    sql(db, "BEGIN IMMEDIATE");
    cr_assert_eq(begins(&in, &a), ONCE_CLAIMED);
    struct once_db on = { .sqlite = db };
    cr_assert_eq(once_mutation_finish(on, &in, once_str("kept"), &error), 0, "%s", error.text);
    sql(db, "COMMIT; BEGIN IMMEDIATE");
    cr_assert_eq(begins(&in, &a), ONCE_ALREADY_DONE);
    cr_assert(value_is(&a, "kept") && a.in_database);
    once_mutation_answer_clear(&a);
    in = of("nobody's");
    cr_assert_eq(once_mutation_finish(on, &in, once_str("x"), &error), ONCE_EINVAL);
    sql(db, "ROLLBACK");
    cr_assert_eq(once_mutation_finish(on, &in, once_str("x"), &error), ONCE_EINVAL);
    static char longest[8193];
    cr_assert_eq(once_mutation_finish(on, &in, once_bytes(longest, 8193), &error), ONCE_ELIMIT);
}

/* ---- whose marker it is ---- */

static int begun(sqlite3 *on, const char *request)
{
    struct once_mutation in = of(request);
    struct once_mutation_answer a;
    int r = once_mutation_begin((struct once_db){ .sqlite = on }, &in, &a);
    int outcome = r ? r : a.outcome;
    once_mutation_answer_clear(&a);
    return outcome;
}

static int finishes(sqlite3 *on, const char *request, const char *outcome)
{
    struct once_mutation in = of(request);
    struct once_error error;
    return once_mutation_finish((struct once_db){ .sqlite = on }, &in, once_str(outcome),
                                &error);
}

static void committed(sqlite3 *on, const char *request, const char *outcome)
{
    sql(on, "BEGIN IMMEDIATE");
    cr_assert_eq(begun(on, request), ONCE_CLAIMED);
    if (outcome) cr_assert_eq(finishes(on, request, outcome), 0);
    sql(on, "COMMIT");
}

static void only_its_own_transaction_finishes(void)
{
    sqlite3 *third;
    committed(db, "own", "kept");
    committed(db, "bare", NULL);
    cr_assert_eq(sqlite3_open(path, &third), SQLITE_OK);
    sqlite3 *on[] = { db, other, third };
    for (size_t i = 0; i < 3; i++) {
        sql(on[i], "BEGIN IMMEDIATE");
        cr_assert_eq(finishes(on[i], "own", "changed"), ONCE_EINVAL, "%zu", i);
        cr_assert_eq(finishes(on[i], "bare", "changed"), ONCE_EINVAL, "%zu", i);
        cr_assert_eq(finishes(on[i], "none", "changed"), ONCE_EINVAL, "%zu", i);
        sql(on[i], "COMMIT");
    }
    sqlite3_close(third);
    cr_assert_eq(count("SELECT outcome = x'6b657074' FROM once_mutations "
                       "WHERE request_id = 'own'"),
                 1);
    cr_assert_eq(count("SELECT outcome IS NULL FROM once_mutations WHERE request_id = 'bare'"),
                 1);
}

Test(mutate, only_the_transaction_that_has_begun_it_finishes_it)
{
    only_its_own_transaction_finishes();
}

Test(mutate, only_the_transaction_that_has_begun_it_finishes_it_also_with_a_wal)
{
    sql(db, "PRAGMA journal_mode = WAL");
    only_its_own_transaction_finishes();
}

/* Two connections that have seen as many changes as each other. */
Test(mutate, only_the_connection_that_has_begun_it_finishes_it)
{
    sqlite3 *on[2];
    for (size_t i = 0; i < 2; i++) cr_assert_eq(sqlite3_open(path, &on[i]), SQLITE_OK);
    committed(on[0], "own", NULL);
    sql(on[1], "BEGIN IMMEDIATE");
    cr_assert_eq(finishes(on[1], "own", "changed"), ONCE_EINVAL);
    sql(on[1], "COMMIT");
    for (size_t i = 0; i < 2; i++) sqlite3_close(on[i]);
}

Test(mutate, in_a_transaction_of_the_callers_own_somebody_who_writes_is_in_progress)
{
    sql(other, "BEGIN IMMEDIATE");
    sql(db, "BEGIN");
    cr_assert_eq(begun(db, "r"), ONCE_IN_PROGRESS);
    sql(other, "ROLLBACK");
    sql(db, "ROLLBACK; BEGIN");
    cr_assert_eq(begun(db, "r"), ONCE_CLAIMED);
    sql(db, "COMMIT");
}

Test(mutate, finished_again_before_the_commit_is_what_was_said_last)
{
    sql(db, "BEGIN IMMEDIATE");
    cr_assert_eq(begun(db, "a"), ONCE_CLAIMED);
    cr_assert_eq(begun(db, "b"), ONCE_CLAIMED, "two in one transaction");
    cr_assert_eq(finishes(db, "a", "x"), 0);
    cr_assert_eq(finishes(db, "a", "y"), 0);
    sql(db, "SAVEPOINT s");
    cr_assert_eq(begun(db, "c"), ONCE_CLAIMED);
    sql(db, "ROLLBACK TO s");
    cr_assert_eq(finishes(db, "c", "x"), ONCE_EINVAL);
    cr_assert_eq(finishes(db, "b", "z"), 0);
    sql(db, "COMMIT");
    cr_assert_eq(count("SELECT count(*) FROM once_mutations WHERE outcome IN (x'79', x'7a')"),
                 2);
}

/* As PostgreSQL says it: that is a mistake, and not a duplicate. */
Test(mutate, begun_twice_in_one_transaction_is_a_mistake)
{
    sql(db, "BEGIN IMMEDIATE");
    cr_assert_eq(begun(db, "twice"), ONCE_CLAIMED);
    cr_assert_eq(begun(db, "twice"), ONCE_EINVAL);
    sql(db, "ROLLBACK; BEGIN IMMEDIATE");
    cr_assert_eq(begun(db, "twice"), ONCE_CLAIMED);
    sql(db, "COMMIT; BEGIN IMMEDIATE");
    cr_assert_eq(begun(db, "twice"), ONCE_ALREADY_DONE);
    sql(db, "ROLLBACK");
}

static int finish_by_itself(void *ctx, struct once_db on, struct once_bytes *ret_response)
{
    cr_assert_eq(finishes(on.sqlite, ctx, "by itself"), 0);
    *ret_response = once_str("");
    return 0;
}

Test(mutate, a_function_may_finish_what_was_begun_for_it)
{
    struct once_mutation in = of("itself");
    struct once_mutation_answer a;
    struct work w = { 0 };
    cr_assert_eq(once_mutate(NULL, (struct once_db){ .sqlite = db }, &in, finish_by_itself,
                             "itself", &a),
                 0, "%s", a.error.text);
    once_mutation_answer_clear(&a);
    mutates(NULL, &in, &w, ONCE_ALREADY_DONE, "by itself", 0);
}

Test(mutate, what_is_wrong_is_said_before_anything_happens)
{
    struct once_mutation in = of("r");
    struct once_mutation_answer a;
    struct work w = { 0 };
    struct once_db neither = { 0 }, none = { .sqlite = NULL };
    cr_assert_eq(once_mutate(once, neither, &in, apply, &w, &a), ONCE_EINVAL);
    cr_assert_eq(once_mutate(once, none, &in, apply, &w, &a), ONCE_EINVAL);
    in.lock_ms = 600001;
    cr_assert_eq(once_mutate(once, (struct once_db){ .sqlite = db }, &in, apply, &w, &a),
                 ONCE_EINVAL);
    in = of("r");
    in.lease_ms = -1;
    cr_assert_eq(once_mutate(once, (struct once_db){ .sqlite = db }, &in, apply, &w, &a),
                 ONCE_EINVAL);
    in = of("r");
    in.size = 0;
    cr_assert_eq(begins(&in, &a), ONCE_EINVAL);
    in = of("r");
    in.user = once_str("");
    cr_assert_eq(begins(&in, &a), ONCE_EINVAL);
    sql(db, "BEGIN");
    in = of("r");
    cr_assert_eq(once_mutate(once, (struct once_db){ .sqlite = db }, &in, apply, &w, &a),
                 ONCE_EINVAL);
    cr_assert(!sqlite3_get_autocommit(db), "the caller's own transaction was ended");
    sql(db, "ROLLBACK; DROP TABLE once_mutations");
    cr_assert_eq(once_mutate(NULL, (struct once_db){ .sqlite = db }, &in, apply, &w, &a),
                 ONCE_EUNSUPPORTED);
    cr_assert(strstr(a.error.text, "once migrate --mutations"), "%s", a.error.text);
    cr_assert_eq(w.ran, 0);
}
