/* doctor.c - once doctor: is everything that the guarantees stand on as it should be?
 *
 * One function per check, one line per finding, and for every finding that is not ok what to do
 * about it. Creates neither the data directory nor the ledger; coord is asked before they are
 * there, too. The ledger's file is also looked at without the library, through SQLite itself, so
 * that a mistake of ours could be seen. */
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/now.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum level { LEVEL_OK, LEVEL_WARN, LEVEL_FAIL };

static const struct {
    const char *name, *color;
} levels[] = {
    [LEVEL_OK] = { "ok", "\033[32m" },
    [LEVEL_WARN] = { "warn", "\033[33m" },
    [LEVEL_FAIL] = { "fail", "\033[31m" },
};

struct finding {
    enum level level;
    char text[256];
    char advice[256]; /* "": none needed */
};

struct doctor {
    struct cli *cli;
    char dir[PATH_MAX]; /* of the ledger's file; "": it is not a file */
    char file[PATH_MAX];
    bool dir_there, file_there;
    struct once *once; /* NULL: not open */
};

static void found(struct finding *f, enum level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void found(struct finding *f, enum level level, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, args);
    va_end(args);
    f->level = level;
}

static void advise(struct finding *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void advise(struct finding *f, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(f->advice, sizeof f->advice, fmt, args);
    va_end(args);
}

/* ---- the directory ---- */

static void check_directory(struct doctor *d, struct finding *f)
{
    struct stat st;
    if (!d->dir_there) {
        found(f, LEVEL_OK, "%.200s is not there yet", d->dir);
        if (d->cli->ledger) {
            f->level = LEVEL_FAIL;
            advise(f, "create it: mkdir -p -m 700 '%.200s'", d->dir);
        } else {
            advise(f, "nothing: the first command that needs it creates it");
        }
        return;
    }
    found(f, LEVEL_OK, "%.200s", d->dir);
    if (access(d->dir, W_OK | X_OK) < 0) {
        found(f, LEVEL_FAIL, "%.200s cannot be written: %s", d->dir, strerror(errno));
        advise(f, "give it to this user, or choose another: --data DIR");
    } else if (stat(d->dir, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 022)) {
        found(f, LEVEL_WARN, "%.200s can be written by others (mode %03o)", d->dir,
              st.st_mode & 0777u);
        advise(f, "chmod go-w '%.200s'", d->dir);
    }
}

static void check_privacy(struct doctor *d, struct finding *f)
{
    struct stat st;
    if (stat(d->file_there ? d->file : d->dir, &st) < 0) {
        found(f, LEVEL_OK, "nothing to protect yet");
        return;
    }
    if (d->file_there && (st.st_mode & 077)) {
        found(f, LEVEL_WARN, "others may read %.180s (mode %03o)", d->file, st.st_mode & 0777u);
        advise(f, "answers may be secret: chmod 600 '%.200s'", d->file);
        return;
    }
    found(f, LEVEL_OK, "only the owner can read the answers");
}

static void check_space(struct doctor *d, struct finding *f)
{
    struct statvfs fs;
    char size[SIZE_TEXT_BYTES];
    if (statvfs(d->dir, &fs) < 0) {
        found(f, LEVEL_WARN, "free space is not known: %s", strerror(errno));
        return;
    }
    uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize;
    found(f, LEVEL_OK, "%s bytes free", format_size(left, size));
    if (left >= UINT64_C(256) << 20) return;
    f->level = left < UINT64_C(16) << 20 ? LEVEL_FAIL : LEVEL_WARN;
    advise(f, "make room: without it nothing can be claimed; once sweep gives some back");
}

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

enum { SYNCS = 20 };

/* Median microseconds of a small write made durable; negative errno. */
static int64_t sync_time_us(const char *dir)
{
    static const char small[32] = "once doctor";
    int64_t took[SYNCS];
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/.doctor-XXXXXX", dir);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) return -errno;
    unlink(path);
    for (int i = 0; i < SYNCS; i++) {
        int64_t start = now_monotonic_us();
        if (write(fd, small, sizeof small) != sizeof small || fdatasync(fd) < 0) {
            int why = errno;
            close(fd);
            return -why;
        }
        took[i] = now_monotonic_us() - start;
    }
    close(fd);
    qsort(took, SYNCS, sizeof took[0], by_time);
    return took[SYNCS / 2];
}

static void check_sync(struct doctor *d, struct finding *f)
{
    int64_t us = sync_time_us(d->dir);
    if (us < 0) {
        found(f, LEVEL_FAIL, "cannot write and sync a file there: %s", strerror((int)-us));
        advise(f, "check the disk and the rights of %.200s", d->dir);
        return;
    }
    found(f, LEVEL_OK, "a durable write takes %lld.%03lld ms (median of %d)",
          (long long)us / 1000, (long long)us % 1000, SYNCS);
    if (us < 50000) return;
    f->level = LEVEL_WARN;
    advise(f, "a slow or busy disk: every claim waits for it; put --data on a faster one");
}

static void check_inotify(struct doctor *d, struct finding *f)
{
    int fd = inotify_init1(IN_CLOEXEC);
    bool works = fd >= 0 && inotify_add_watch(fd, d->dir, IN_MODIFY) >= 0;
    int why = errno;
    if (fd >= 0) close(fd);
    found(f, LEVEL_OK, "waiters in other processes are woken by inotify");
    if (works) return;
    found(f, LEVEL_WARN, "no inotify (%s): waiters in other processes poll", strerror(why));
    advise(f, "raise fs.inotify.max_user_instances and max_user_watches");
}

/* ---- the ledger ---- */

/* One value of one PRAGMA, as text; "" if there is none. */
static void pragma(sqlite3 *db, const char *name, char *out, size_t len)
{
    char sql[64];
    sqlite3_stmt *statement = NULL;
    snprintf(sql, sizeof sql, "PRAGMA %s", name);
    out[0] = '\0';
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_text(statement, 0))
        snprintf(out, len, "%s", (const char *)sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
}

static void check_file(struct doctor *d, struct finding *f)
{
    sqlite3 *db = NULL;
    char mode[32] = "", version[32] = "", sound[128] = "";
    if (sqlite3_open_v2(d->file, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK) {
        sqlite3_busy_timeout(db, 2000);
        pragma(db, "journal_mode", mode, sizeof mode);
        pragma(db, "user_version", version, sizeof version);
        pragma(db, "quick_check(1)", sound, sizeof sound);
    }
    found(f, LEVEL_OK, "schema %s, journal %s, sound", version, mode);
    if (strcmp(sound, "ok") != 0) {
        found(f, LEVEL_FAIL, "not sound: %s", *sound ? sound : sqlite3_errmsg(db));
        advise(f, "keep a copy, then: sqlite3 '%.150s' .recover; or restore a backup", d->file);
    } else if (strcmp(mode, "wal") != 0) {
        found(f, LEVEL_WARN, "the journal is '%s', not a write-ahead log", mode);
        advise(f,
               "put --data on a local file system: readers and writers block each other now");
    }
    sqlite3_close(db);
}

/* Opening does not reach it yet: ask something. */
static void check_daemon(struct doctor *d, struct finding *f)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    struct once_stats stats;
    config.url = d->cli->url;
    config.flags = ONCE_HOSTED;
    int r = once_open(&config, &d->once, &error);
    if (r == 0) r = once_stats(d->once, &stats, &error);
    if (r == 0) {
        found(f, LEVEL_OK, "the daemon answers");
        return;
    }
    found(f, LEVEL_FAIL, "%s", error.text);
    advise(f, "is once serve running there, with a RESP door at this address, for this token?");
    once_close(d->once);
    d->once = NULL;
}

static void check_open(struct doctor *d, struct finding *f)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    config.ledger = d->cli->ledger;
    config.coord = d->cli->coord;
    config.data_dir = d->cli->ledger ? NULL : d->cli->data_dir;
    config.flags = ONCE_HOSTED;
    if (d->file[0] && !d->file_there) {
        found(f, LEVEL_OK, "not there yet");
        advise(f, "nothing: the first claim creates it; try: once run --key hello -- date");
        return;
    }
    if (once_open(&config, &d->once, &error) == 0) {
        found(f, LEVEL_OK, "%.200s opens", d->file[0] ? d->file : "it");
        return;
    }
    found(f, LEVEL_FAIL, "%s", error.text);
    advise(f, "nothing can be claimed until it opens; check the path and its rights");
}

static void check_claim(struct doctor *d, struct finding *f)
{
    struct once_claim claim = ONCE_CLAIM_INIT;
    struct once_owned owned = ONCE_OWNED_INIT;
    struct once_answer answer = { 0 };
    char key[32];
    snprintf(key, sizeof key, "%ld", (long)getpid());
    claim.scope = owned.scope = once_str("once.doctor");
    claim.key = owned.key = once_str(key);
    claim.lease_ms = claim.retain_ms = 1000;
    int64_t start = now_monotonic_us();
    int r = once_claim(d->once, &claim, &answer);
    char token[sizeof answer.lease.token];
    memcpy(token, answer.lease.token, sizeof token);
    owned.token = token;
    if (r == 0 && answer.outcome == ONCE_CLAIMED) {
        once_answer_clear(&answer);
        r = once_release(d->once, &owned, &answer);
    }
    int64_t us = now_monotonic_us() - start;
    if (r == 0) {
        found(f, LEVEL_OK, "claim and release take %lld.%03lld ms", (long long)us / 1000,
              (long long)us % 1000);
    } else {
        found(f, LEVEL_FAIL, "a claim fails: %s", answer.error.text);
        advise(f, "see the other findings; --verbose on a claim shows what happens inside");
    }
    once_answer_clear(&answer);
}

static void check_records(struct doctor *d, struct finding *f)
{
    struct once_stats s;
    struct once_error error;
    char size[SIZE_TEXT_BYTES];
    int r = once_stats(d->once, &s, &error);
    if (r < 0) {
        found(f, LEVEL_FAIL, "cannot be counted: %s", error.text);
        return;
    }
    found(f, LEVEL_OK, "%llu done, %llu pending, %llu lapsed, %llu to sweep, %s bytes",
          (unsigned long long)s.done, (unsigned long long)s.pending,
          (unsigned long long)s.lapsed, (unsigned long long)s.gone, format_size(s.bytes, size));
    if (s.lapsed) {
        f->level = LEVEL_WARN;
        advise(f, "owners died: the next caller of each key takes over; see once ls");
    } else if (s.gone > 10000) {
        f->level = LEVEL_WARN;
        advise(f, "once sweep");
    }
}

/* Expired ones count as absent: a sweep that lags costs space, and is a sign. */
static void check_markers(struct doctor *d, struct finding *f)
{
    struct once_markers m;
    struct once_error error;
    char ttl[DURATION_TEXT_BYTES], oldest[DURATION_TEXT_BYTES];
    const int64_t late_ms = 60000;
    int r = once_markers(d->once, &m, &error);
    if (r == ONCE_EUNSUPPORTED) {
        found(f, LEVEL_OK, "seen to by whoever has the ledger");
        return;
    }
    if (r < 0) {
        found(f, LEVEL_FAIL, "cannot be looked at: %s", error.text);
        advise(f, "may this user read and delete from once_mutations?");
        return;
    }
    if (!m.installed) {
        found(f, LEVEL_OK, "not installed; for mutations: once migrate --mutations");
        return;
    }
    found(f, LEVEL_OK, "each counts for %s; none is expired", format_duration(m.ttl_ms, ttl));
    if (!m.oldest_ms) return;
    found(f, m.oldest_ms > late_ms ? LEVEL_WARN : LEVEL_OK,
          "each counts for %s; the oldest that is there has expired %s ago", ttl,
          format_duration(m.oldest_ms, oldest));
    if (m.oldest_ms <= late_ms) return;
    advise(f, "nobody sweeps, or not fast enough: once sweep --markers");
}

/* ---- what the planes say of themselves ---- */

struct hearing {
    struct cli *cli;
    json_t *list;
    enum level worst;
};

static void report(struct hearing *h, const char *name, const struct finding *f);

/* A daemon goes on without coord, and says so. Who asks how things are has asked for one. */
static bool is_missed(const struct once_fact *fact)
{
    return fact->level != ONCE_FACT_OK && strcmp(fact->name, "reached") == 0;
}

static void hear(void *ctx, const struct once_fact *fact)
{
    char name[48];
    struct finding f = { .level = is_missed(fact) ? LEVEL_FAIL : (enum level)fact->level };
    snprintf(name, sizeof name, "%s %s", fact->plane, fact->name);
    snprintf(f.text, sizeof f.text, "%s", fact->text);
    snprintf(f.advice, sizeof f.advice, "%s", fact->advice);
    report(ctx, name, &f);
}

static bool has_coord(const struct cli *cli)
{
    const char *coord = cli->coord;
    return !cli->url && coord && strcmp(coord, "none") != 0 &&
           strncmp(coord, "memory:", 7) != 0;
}

/* There is no ledger yet, or it does not open: coord can be asked all the same, as if there were
 * none, so that the first run does not look better than the second. */
static void hear_coord(struct doctor *d, struct hearing *h)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    struct once *coord = NULL;
    if (!has_coord(d->cli)) return;
    config.coord = d->cli->coord;
    config.flags = ONCE_HOSTED | ONCE_EPHEMERAL;
    int r = once_open(&config, &coord, &error);
    if (r == 0) r = once_check(coord, hear, h, &error);
    once_close(coord);
    if (r == 0) return;
    struct finding f = { .level = LEVEL_FAIL };
    found(&f, LEVEL_FAIL, "no: %.200s", error.text);
    advise(&f, "the ledger would decide alone, and answers say degraded");
    report(h, "coord reached", &f);
}

static void hear_planes(struct doctor *d, struct hearing *h)
{
    struct once_error error;
    if (!d->once) hear_coord(d, h);
    if (!d->once || once_check(d->once, hear, h, &error) == 0) return;
    struct finding f = { .level = LEVEL_FAIL };
    found(&f, LEVEL_FAIL, "%.200s", error.text);
    report(h, "ledger", &f);
}

static int newest(void *ctx, const struct once_row *row)
{
    int64_t *newest_ms = ctx;
    if (row->claimed_at_ms > *newest_ms) *newest_ms = row->claimed_at_ms;
    return 0;
}

static void check_clock(struct doctor *d, struct finding *f)
{
    struct once_error error;
    int64_t newest_ms = 0, now_ms = now_wall_ms();
    const int64_t year_2024_ms = INT64_C(1704067200000);
    found(f, LEVEL_OK, "the clock is plausible");
    if (now_ms < year_2024_ms) {
        found(f, LEVEL_FAIL, "the clock says that it is before 2024");
        advise(f, "set it: leases and retention are judged by it");
        return;
    }
    if (d->once) once_list(d->once, once_str(""), newest, &newest_ms, &error);
    if (newest_ms <= now_ms + 60000) return;
    char ahead[DURATION_TEXT_BYTES];
    found(f, LEVEL_WARN, "a record was claimed %s in the future",
          format_duration(newest_ms - now_ms, ahead));
    advise(f, "the clock was set back: leases of that time end late by as much");
}

/* ---- all of it ---- */

enum needs {
    NEEDS_NOTHING,
    NEEDS_URL,
    NEEDS_PLANES,
    NEEDS_PATH,
    NEEDS_DIR,
    NEEDS_FILE,
    NEEDS_ONCE,
};

static const struct {
    const char *name;
    enum needs needs;
    void (*look)(struct doctor *, struct finding *);
} checks[] = {
    { "data directory", NEEDS_PATH, check_directory },
    { "privacy", NEEDS_DIR, check_privacy },
    { "disk space", NEEDS_DIR, check_space },
    { "disk sync", NEEDS_DIR, check_sync },
    { "notification", NEEDS_DIR, check_inotify },
    { "ledger file", NEEDS_FILE, check_file },
    { "daemon", NEEDS_URL, check_daemon },
    { "ledger", NEEDS_PLANES, check_open },
    { "claim", NEEDS_ONCE, check_claim },
    { "records", NEEDS_ONCE, check_records },
    { "markers", NEEDS_ONCE, check_markers },
    { "clock", NEEDS_NOTHING, check_clock },
};

static bool can_look(const struct doctor *d, enum needs needs)
{
    switch (needs) {
    case NEEDS_NOTHING:
        return true;
    case NEEDS_URL:
        return d->cli->url != NULL;
    case NEEDS_PLANES:
        return d->cli->url == NULL;
    case NEEDS_PATH:
        return d->dir[0] != '\0';
    case NEEDS_DIR:
        return d->dir_there;
    case NEEDS_FILE:
        return d->file_there;
    case NEEDS_ONCE:
        return d->once != NULL;
    }
    return false;
}

/* "sqlite:PATH?parameters" to its path and directory; a URL of another kind has neither. */
static int locate(struct doctor *d, struct err *reterr)
{
    const char *ledger = d->cli->ledger;
    if (d->cli->url) return 0; /* what it stands on, the daemon says */
    int r = ledger ? 0 : cli_data_dir(d->cli, reterr);
    if (r < 0) return r;
    if (!ledger)
        snprintf(d->file, sizeof d->file, "%.*s/once.db", PATH_MAX - 16, d->cli->data_dir);
    else if (strncmp(ledger, "sqlite:", 7) == 0)
        snprintf(d->file, sizeof d->file, "%.*s", (int)strcspn(ledger + 7, "?"), ledger + 7);
    char *slash = strrchr(d->file, '/');
    if (slash)
        snprintf(d->dir, sizeof d->dir, "%.*s", (int)(slash - d->file), d->file);
    else if (d->file[0])
        snprintf(d->dir, sizeof d->dir, ".");
    d->dir_there = d->dir[0] && access(d->dir, F_OK) == 0;
    d->file_there = d->file[0] && access(d->file, F_OK) == 0;
    return 0;
}

static void print_finding(const struct cli *cli, const char *name, const struct finding *f)
{
    printf("%s%-4s%s  %-18s  %s\n", cli->color ? levels[f->level].color : "",
           levels[f->level].name, cli->color ? "\033[0m" : "", name, f->text);
    if (f->advice[0]) printf("      %-18s  -> %s\n", "", f->advice);
}

static void report(struct hearing *h, const char *name, const struct finding *f)
{
    if (f->level > h->worst) h->worst = f->level;
    if (!h->cli->json) print_finding(h->cli, name, f);
    json_array_append_new(h->list, json_pack("{s:s, s:s, s:s, s:s}", "check", name, "level",
                                             levels[f->level].name, "text", f->text, "advice",
                                             f->advice));
}

static int doctor_run(struct cli *cli, const struct args *args)
{
    (void)args;
    struct doctor d = { .cli = cli };
    struct hearing h = { .cli = cli, .worst = LEVEL_OK };
    struct err err;
    if (locate(&d, &err) < 0) return cli_fail(cli, err.code, err.text);
    h.list = json_array();
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        struct finding f = { .level = LEVEL_OK };
        if (!can_look(&d, checks[i].needs)) continue;
        checks[i].look(&d, &f);
        report(&h, checks[i].name, &f);
    }
    hear_planes(&d, &h);
    once_close(d.once);
    if (!cli->json)
        json_decref(h.list);
    else if (print_json(stdout, json_pack("{s:s, s:o}", "level", levels[h.worst].name, "checks",
                                          h.list)) != STATUS_OK)
        return STATUS_INTERNAL;
    return h.worst == LEVEL_FAIL ? STATUS_FAILED : STATUS_OK;
}

const struct command doctor_command = {
    .name = "doctor",
    .summary = "Check everything and say what to do",
    .details =
        "One line per check: ok, warn or fail, and what to do about it. Exit status 1 if\n"
        "any check failed; a coord that is not reached is a failure, although claims go on\n"
        "without it. Creates nothing; claims and releases one key of its own.\n",
    .run = doctor_run,
};
