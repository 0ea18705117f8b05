/* main.c - model [--servers] [--seeds N] [--steps N] [--seed S] */
#include "tests/model/model.h"
#include "tests/support/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    uint64_t seeds = 20;
    struct model_run run = { .seed = 1, .steps = 5000 };
    for (int i = 1; i < argc; i++) {
        unsigned long long n = i + 1 < argc ? strtoull(argv[i + 1], NULL, 10) : 0;
        if (strcmp(argv[i], "--servers") == 0) run.servers = true;
        if (strcmp(argv[i], "--seeds") == 0) seeds = n;
        if (strcmp(argv[i], "--steps") == 0) run.steps = (unsigned)n;
        if (strcmp(argv[i], "--seed") == 0) run.seed = n, seeds = 1;
    }
    for (; seeds > 0; seeds--, run.seed++) {
        char why[2560];
        bool ok = model_run(&run, why, sizeof why);
        tap_result(ok, "seed %llu, %u steps%s", (unsigned long long)run.seed, run.steps,
                   run.servers ? ", with servers" : "");
        if (!ok) fprintf(stderr, "%s\n", why);
    }
    return tap_end();
}
