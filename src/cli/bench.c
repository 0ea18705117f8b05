/* bench.c - once bench: how fast this machine is, in a few seconds and in a directory of its
 * own.
 *
 * Every number is measured by the same process on the same disk in the same minute, so that
 * they can be compared with each other: what one durable write costs, and what a claim makes of
 * it when many are in flight. */
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/now.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BENCH_TIME, BENCH_DIR, BENCH_END };

static const struct option bench_options[] = {
    [BENCH_TIME] = { "time", 't', OPTION_DURATION, .value = "D", .fallback = "1s",
                     .help = "how long each measurement takes" },
    [BENCH_DIR] = { "dir", 'd', OPTION_DIR, .value = "DIR",
                    .help = "the disk to measure (default: TMPDIR, or /var/tmp)" },
    [BENCH_END] = { 0 },
};

enum { FLIGHT_MAX = 256, BENCH_MS_MAX = 60000 };

/* One claim in flight. With a publish after it, it counts when that is answered. */
struct lane {
    struct bench *bench;
    char key[24];
    char token[33];
};

struct bench {
    struct once *once;
    bool publishes;
    int64_t until_us;
    uint64_t started, finished;
    size_t in_flight;
    int failed; /* the first error */
    struct lane lanes[FLIGHT_MAX];
};

static void lane_start(struct lane *lane);

static void lane_over(struct lane *lane, int result)
{
    struct bench *b = lane->bench;
    b->in_flight--;
    b->finished++;
    if (result < 0 && !b->failed) b->failed = result;
    if (!b->failed && now_monotonic_us() < b->until_us) lane_start(lane);
}

static void on_published(void *ctx, int result, struct once_answer *answer)
{
    once_answer_clear(answer);
    lane_over(ctx, result);
}

static void on_claimed(void *ctx, int result, struct once_answer *answer)
{
    struct lane *lane = ctx;
    struct once_owned in = ONCE_OWNED_INIT;
    memcpy(lane->token, answer->lease.token, sizeof lane->token);
    once_answer_clear(answer);
    if (result < 0 || !lane->bench->publishes) {
        lane_over(lane, result);
        return;
    }
    in.scope = once_str("bench");
    in.key = once_str(lane->key);
    in.token = lane->token;
    in.value = once_str("0123456789abcdef");
    int r = once_publish_start(lane->bench->once, &in, on_published, lane, NULL, NULL);
    if (r < 0) lane_over(lane, r);
}

static void lane_start(struct lane *lane)
{
    struct bench *b = lane->bench;
    struct once_claim in = ONCE_CLAIM_INIT;
    snprintf(lane->key, sizeof lane->key, "%llu", (unsigned long long)b->started++);
    in.scope = once_str("bench");
    in.key = once_str(lane->key);
    in.flags = ONCE_NO_RENEW;
    int r = once_claim_start(b->once, &in, on_claimed, lane, NULL, NULL);
    if (r == 0)
        b->in_flight++;
    else if (!b->failed)
        b->failed = r;
}

static void turn(struct bench *b)
{
    struct pollfd fd = { .fd = once_fd(b->once), .events = POLLIN };
    int64_t ms = once_timeout_ms(b->once);
    poll(&fd, 1, ms > INT_MAX ? INT_MAX : (int)ms);
    once_process(b->once);
}

/* Claims (and publishes) per second with so many in flight; negative: an error code. */
static double claims_per_s(struct once_config *config, size_t flight, bool publishes,
                           int64_t time_ms, struct once_error *reterr)
{
    static struct bench b; /* too large for a stack */
    b = (struct bench){ .publishes = publishes };
    config->sweep_ms = 0;
    config->flags |= ONCE_HOSTED;
    int r = once_open(config, &b.once, reterr);
    if (r < 0) return r;
    int64_t start_us = now_monotonic_us();
    b.until_us = start_us + time_ms * 1000;
    for (size_t i = 0; i < flight; i++) {
        b.lanes[i].bench = &b;
        lane_start(&b.lanes[i]);
    }
    while (b.in_flight > 0) turn(&b);
    double seconds = (double)(now_monotonic_us() - start_us) / 1e6;
    once_close(b.once);
    if (!b.failed) return (double)b.finished / seconds;
    *reterr = (struct once_error){ .code = b.failed };
    snprintf(reterr->text, sizeof reterr->text, "%s", once_strerror(b.failed));
    return b.failed;
}

/* Small appends made durable one by one, per second; negative errno. */
static double syncs_per_s(const char *dir, int64_t time_ms)
{
    char path[PATH_MAX + 8];
    uint64_t done = 0;
    snprintf(path, sizeof path, "%s/sync", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return -errno;
    int64_t start_us = now_monotonic_us(), until_us = start_us + time_ms * 1000;
    for (; now_monotonic_us() < until_us; done++) {
        if (write(fd, path, 16) == 16 && fdatasync(fd) == 0) continue;
        int why = errno;
        close(fd);
        return -why;
    }
    close(fd);
    return (double)done / ((double)(now_monotonic_us() - start_us) / 1e6);
}

/* ---- a directory of its own ---- */

static const char *base_dir(const struct args *args)
{
    const char *tmp = getenv("TMPDIR");
    if (args->values[BENCH_DIR].given) return args->values[BENCH_DIR].text;
    if (tmp && *tmp) return tmp;
    return access("/var/tmp", W_OK) == 0 ? "/var/tmp" : "/tmp"; /* the latter is often memory */
}

static void remove_dir(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(dir), e->d_name, 0);
    if (dir) closedir(dir);
    rmdir(path);
}

/* ---- the measurements ---- */

static const struct measure {
    const char *name, *text;
    bool durable, publishes;
    size_t in_flight; /* 0: not claims, but plain syncs */
} measures[] = {
    { "memory", "claim + publish in memory, 64 in flight", false, true, 64 },
    { "fdatasync", "small writes made durable one by one", true, false, 0 },
    { "durable_1", "durable claims, 1 in flight", true, false, 1 },
    { "durable_64", "durable claims, 64 in flight", true, false, 64 },
    { "durable_256", "durable claims, 256 in flight", true, false, 256 },
};

static double measure(const struct measure *m, const char *dir, int64_t time_ms,
                      struct once_error *reterr)
{
    struct once_config config = ONCE_CONFIG_INIT;
    char ledger[PATH_MAX + 32];
    if (m->in_flight == 0) {
        double rate = syncs_per_s(dir, time_ms);
        if (rate < 0) snprintf(reterr->text, sizeof reterr->text, "%s", strerror((int)-rate));
        return rate < 0 ? ONCE_EUNAVAILABLE : rate;
    }
    snprintf(ledger, sizeof ledger, "sqlite:%s/%s.db", dir, m->name);
    if (m->durable)
        config.ledger = ledger;
    else
        config.flags = ONCE_EPHEMERAL;
    return claims_per_s(&config, m->in_flight, m->publishes, time_ms, reterr);
}

static int bench_all(struct cli *cli, const char *dir, int64_t time_ms)
{
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof measures / sizeof measures[0]; i++) {
        struct once_error error = { 0 };
        double rate = measure(&measures[i], dir, time_ms, &error);
        if (rate < 0) {
            json_decref(object);
            return cli_fail(cli, (int)rate, error.text);
        }
        json_object_set_new(object, measures[i].name, json_integer((json_int_t)rate));
        if (cli->json) continue;
        printf("%12.0f /s   %s\n", rate, measures[i].text);
        fflush(stdout);
    }
    if (cli->json) return print_json(stdout, object);
    json_decref(object);
    return STATUS_OK;
}

static int bench_run(struct cli *cli, const struct args *args)
{
    char dir[PATH_MAX];
    int64_t time_ms = args->values[BENCH_TIME].number;
    if (time_ms < 1 || time_ms > BENCH_MS_MAX)
        return cli_fail(cli, ONCE_EINVAL, "--time: between 1ms and 60s, please");
    int len = snprintf(dir, sizeof dir, "%s/once-bench-XXXXXX", base_dir(args));
    if (len < 0 || (size_t)len >= sizeof dir || !mkdtemp(dir)) {
        char text[160];
        snprintf(text, sizeof text, "cannot make a directory in %.80s: %s; say --dir DIR",
                 base_dir(args), strerror(errno));
        return cli_fail(cli, ONCE_EUNAVAILABLE, text);
    }
    if (!cli->json) cli_note(cli, "measuring in %s", base_dir(args));
    int status = bench_all(cli, dir, time_ms);
    remove_dir(dir);
    return status;
}

const struct command bench_command = {
    .name = "bench",
    .summary = "Measure what this machine can do, in a few seconds",
    .details =
        "Works in a directory of its own and never touches your data. Compare the lines\n"
        "with each other: claims in flight together share one durable write.\n",
    .options = bench_options,
    .local = true,
    .run = bench_run,
};
