/* core.c - core [ONLY] [--json]: how fast the core is, against baselines of the same run.
 *
 * ONLY is a group (see below). The table goes to standard error, --json prints one object with
 * all numbers to standard output. Exit status 0 unless a target is missed by more than a factor
 * of two, which noise does not explain. About a minute for everything. */
#include "bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*run)(void);
} groups[] = {
    { "processes", bench_processes }, /* first: it forks, and no thread may be there yet */
    { "rules", bench_rules },         { "memory", bench_memory }, { "bytes", bench_bytes },
    { "durable", bench_durable },     { "replay", bench_replay }, { "wakeup", bench_wakeup },
};

static char dir[128];

const char *bench_dir(void)
{
    if (dir[0]) return dir;
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/once-bench-XXXXXX", base && *base ? base : "/tmp");
    must(mkdtemp(dir), "make a directory");
    return dir;
}

void bench_end(void)
{
    char command[160];
    if (!dir[0]) return;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    must(system(command) == 0, "remove the directory");
    dir[0] = '\0';
}

void fresh_ledger(char *url, size_t len)
{
    static unsigned files;
    snprintf(url, len, "sqlite:%s/%u.db", bench_dir(), files++);
}

int main(int argc, char **argv)
{
    const char *only = NULL;
    bool json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else
            only = argv[i];
    }
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (!only || strcmp(only, groups[i].name) == 0) groups[i].run();
    bench_end();
    return report_end(json);
}
