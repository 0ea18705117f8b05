/* main.c - schedule [--store NAME] [--permutation "STEP STEP..."] FILE.spec... */
#include "tests/schedule/schedule.h"
#include "tests/support/world.h"

#include <stdio.h>
#include <string.h>

static void run_on(const char *path, const char *store_name, const char *permutation)
{
    char why[2048] = "";
    unsigned count = 1;
    bool ok = permutation ? schedule_run_one(path, store_name, permutation, why, sizeof why)
                          : schedule_run_file(path, store_name, why, sizeof why, &count);
    tap_result(ok, "%s on %s (%u interleavings)", path, store_name, count);
    if (!ok) fprintf(stderr, "%s\n", why);
}

/* On all stores whose servers are up, or on one. */
static void run_file(const char *path, const char *only, const char *permutation)
{
    for (size_t s = 0; schedule_stores[s]; s++) {
        if (only && strcmp(only, schedule_stores[s]) != 0) continue;
        if (only || world_has(schedule_stores[s]))
            run_on(path, schedule_stores[s], permutation);
    }
}

int main(int argc, char **argv)
{
    const char *only = NULL, *permutation = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--store") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--permutation") == 0 && i + 1 < argc) {
            permutation = argv[++i];
        } else {
            run_file(argv[i], only, permutation);
        }
    }
    return tap_end();
}
