/* sqlite_file_test.c - what the sqlite store promises about its file: URLs, permissions, versions, and
 * several handles and processes on it. */
#include "store/sqlite_scene_test.h"

enum { PROCESSES = 16 };

SQLITE_SUITE(sqlite_file);

/* ---- URLs and files ---- */

Test(sqlite_file, url_must_make_sense)
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
    expect_refused(bad, ERR_INVALID, "sync, busy_ms, exclusive and markers");
    cr_expect(access(path, F_OK) != 0, "a bad URL must not leave a file");
}

Test(sqlite_file, url_parameters_are_taken)
{
    char good[160];
    snprintf(good, sizeof good, "%s?sync=normal&busy_ms=2s&exclusive=0", url);
    struct store *s = open_url(good);
    cr_expect(s->caps == sqlite_class.caps);
    store_close(s);
}

Test(sqlite_file, path_must_be_a_file_in_a_directory_that_exists)
{
    char bad[160];
    snprintf(bad, sizeof bad, "sqlite:%s/nowhere/once.db", dir);
    expect_refused(bad, ERR_INVALID, "create it first");
    snprintf(bad, sizeof bad, "sqlite:%s", dir);
    expect_refused(bad, ERR_INVALID, "not a file");
}

Test(sqlite_file, relative_path_that_looks_like_a_url)
{
    cr_assert(chdir(dir) == 0);
    struct store *s = open_url("sqlite:file:x");
    cr_expect(access("file:x", F_OK) == 0);
    cr_assert(chdir("/") == 0); /* the store does not care where the process goes */
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    store_close(s);
}

Test(sqlite_file, nobody_else_can_read_the_files)
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

Test(sqlite_file, no_permission_is_unavailable)
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

Test(sqlite_file, removed_file_is_noticed)
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

Test(sqlite_file, new_file_gets_the_schema)
{
    struct store *s = open_store();
    uint64_t epoch = s->epoch;
    cr_expect(epoch != 0);
    store_close(s);
    cr_expect(raw_number("PRAGMA application_id") == 0x6f6e6365);
    cr_expect(raw_number("PRAGMA user_version") == SCHEMA_NOW);
    s = open_store();
    cr_expect(s->epoch == epoch, "the epoch is the file's, not the handle's");
    store_close(s);
}

Test(sqlite_file, old_version_is_brought_up_to_date)
{
    raw("PRAGMA application_id = 0x6f6e6365; PRAGMA user_version = 0; CREATE TABLE older (x)");
    struct store *s = open_store();
    expect(s, VERB_CLAIM, "k", owner(1), OUTCOME_CLAIMED);
    store_close(s);
    cr_expect(raw_number("PRAGMA user_version") == SCHEMA_NOW);
}

Test(sqlite_file, failed_migration_leaves_the_file_as_it_was)
{
    raw("PRAGMA application_id = 0x6f6e6365; CREATE TABLE claims (x)");
    expect_refused(url, ERR_CORRUPT, "claims");
    cr_expect(raw_number("PRAGMA user_version") == 0);
    cr_expect(raw_number("SELECT count(*) FROM sqlite_master") == 1);
}

Test(sqlite_file, newer_version_is_refused)
{
    store_close(open_store());
    raw("PRAGMA user_version = 99");
    expect_refused(url, ERR_VERSION, "newer version (schema 99, known is");
}

Test(sqlite_file, file_of_another_program_is_refused_and_not_touched)
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

Test(sqlite_file, file_that_is_no_database_is_refused)
{
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 1000; i++) fprintf(f, "line %d of something else\n", i);
    fclose(f);
    expect_refused(url, ERR_CORRUPT, "not a database");
}

/* ---- several handles and processes ---- */

Test(sqlite_file, two_handles_share_records_and_the_floor)
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

Test(sqlite_file, foreign_wrote_is_about_others_only)
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

Test(sqlite_file, write_before_the_first_listening_is_heard)
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

Test(sqlite_file, another_process_is_heard_and_what_it_committed_survives_it)
{
    hears(publish_and_die, -SIGKILL);
    struct store *s = open_store();
    expect(s, VERB_PEEK, "k", owner(2), OUTCOME_ALREADY_DONE);
    store_close(s);
}

Test(sqlite_file, a_program_that_announces_nothing_is_heard_when_it_ends)
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

Test(sqlite_file, many_processes_open_a_new_file_at_once_and_one_claims)
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

Test(sqlite_file, exclusive_keeps_others_out)
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
