/* waiters.c - from the call of publish to the answer of the last one who waited for it, in one
 * process and across two. */
#include "bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 25, PROCESS_ROUNDS = 40 };

struct crowd {
    size_t answered;
    int64_t last_ns;
};

static void on_answer(void *ctx, int result, struct once_answer *answer)
{
    struct crowd *c = ctx;
    must(result == 0 && answer->outcome == ONCE_CACHED, "be woken with the answer");
    once_answer_clear(answer);
    c->answered++;
    c->last_ns = now_ns();
}

static void on_published(void *ctx, int result, struct once_answer *answer)
{
    must(result == 0 && answer->outcome == ONCE_OK, "publish");
    once_answer_clear(answer);
    *(bool *)ctx = true;
}

static void wait_for(struct once *o, const char *key, struct crowd *c)
{
    struct once_claim in = ONCE_CLAIM_INIT;
    in.scope = once_str("bench");
    in.key = once_str(key);
    in.wait_ms = 60000;
    must(once_claim_start(o, &in, on_answer, c, NULL, NULL) == 0, "start to wait");
}

static void until_parked(struct once *o, uint64_t waiters)
{
    struct once_stats stats = { 0 };
    while (stats.waiters < waiters) must(once_stats(o, &stats, NULL) == 0, "count the waiters");
}

/* Returns when it was called; the answer comes through the loop. */
static int64_t publish_now(struct once *o, const char *key, const char *token, bool *ret_done)
{
    struct once_owned in = ONCE_OWNED_INIT;
    in.scope = once_str("bench");
    in.key = once_str(key);
    in.token = token;
    in.value = once_bytes(load_value, sizeof load_value);
    int64_t start_ns = now_ns();
    *ret_done = false;
    must(once_publish_start(o, &in, on_published, ret_done, NULL, NULL) == 0, "publish");
    return start_ns;
}

static double wake_ms(struct once *o, size_t waiters, unsigned round)
{
    char key[KEY_ROOM], token[33];
    bool published;
    struct crowd crowd = { 0 };
    snprintf(key, sizeof key, "wake-%zu-%u", waiters, round);
    claim_key(o, key, token);
    for (size_t i = 0; i < waiters; i++) wait_for(o, key, &crowd);
    until_parked(o, waiters);
    int64_t start_ns = publish_now(o, key, token, &published);
    while (crowd.answered < waiters || !published) process(o);
    return (double)(crowd.last_ns - start_ns) / 1e6;
}

static void wake_row(struct once *o, size_t waiters, const char *where, struct target target)
{
    char name[32], what[64];
    struct samples ours = { .count = 0 };
    for (unsigned i = 0; i < ROUNDS; i++) samples_add(&ours, wake_ms(o, waiters, i));
    snprintf(name, sizeof name, "wake_%s_%zu", where, waiters);
    snprintf(what, sizeof what, "%s: wake-up of %zu waiters", where, waiters);
    /* The names live as long as the table. */
    report(&(struct row){ .name = strdup(name),
                          .what = strdup(what),
                          .unit = "ms",
                          .ours = &ours,
                          .target = target });
}

static void wake_rows(struct once *o, const char *where)
{
    wake_row(o, 1, where, NO_TARGET);
    wake_row(o, 100, where, NO_TARGET);
    wake_row(o, 1000, where, AT_MOST(5));
    once_close(o);
}

void bench_wakeup(void)
{
    char url[160];
    fresh_ledger(url, sizeof url);
    wake_rows(open_memory(), "memory");
    wake_rows(open_ledger(url), "sqlite");
}

/* ---- two processes ---- */

struct line { /* between parent and child */
    int to_child[2], to_parent[2];
};

static void tell(int fd, int64_t what)
{
    must(write(fd, &what, sizeof what) == sizeof what, "tell the other process");
}

static int64_t hear(int fd)
{
    int64_t what;
    must(read(fd, &what, sizeof what) == sizeof what, "hear from the other process");
    return what;
}

static void child_run(const char *url, const struct line *line)
{
    struct once *o = open_ledger(url);
    for (unsigned i = 0; i < PROCESS_ROUNDS; i++) {
        char key[KEY_ROOM];
        struct crowd crowd = { 0 };
        snprintf(key, sizeof key, "process-%u", i);
        hear(line->to_child[0]);
        wait_for(o, key, &crowd);
        until_parked(o, 1);
        tell(line->to_parent[1], 0);
        while (crowd.answered == 0) process(o);
        tell(line->to_parent[1], crowd.last_ns);
    }
    once_close(o);
}

static void parent_run(const char *url, const struct line *line, struct samples *ret_ms)
{
    struct once *o = open_ledger(url);
    for (unsigned i = 0; i < PROCESS_ROUNDS; i++) {
        char key[KEY_ROOM], token[33];
        bool published;
        snprintf(key, sizeof key, "process-%u", i);
        claim_key(o, key, token);
        tell(line->to_child[1], 0);
        hear(line->to_parent[0]);
        int64_t start_ns = publish_now(o, key, token, &published);
        while (!published) process(o);
        samples_add(ret_ms, (double)(hear(line->to_parent[0]) - start_ns) / 1e6);
    }
    once_close(o);
}

void bench_processes(void)
{
    char url[160];
    struct line line;
    struct samples ours = { .count = 0 };
    fresh_ledger(url, sizeof url);
    must(pipe(line.to_child) == 0 && pipe(line.to_parent) == 0, "make pipes");
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        child_run(url, &line);
        _exit(0);
    }
    parent_run(url, &line, &ours);
    int status;
    must(waitpid(child, &status, 0) == child && status == 0, "end the other process");
    for (int i = 0; i < 2; i++) close(line.to_child[i]), close(line.to_parent[i]);
    report(&(struct row){ .name = "wake_process",
                          .what = "sqlite: wake-up in another process",
                          .unit = "ms",
                          .ours = &ours,
                          .target = AT_MOST(20) });
}
