/* main.c - model [--seeds N] [--steps N] [--seed S] */
#include "tests/model/model.h"
#include "tests/support/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    uint64_t first = 1, seeds = 20;
    unsigned steps = 5000;
    for (int i = 1; i + 1 < argc; i += 2) {
        unsigned long long n = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seeds") == 0) seeds = n;
        if (strcmp(argv[i], "--steps") == 0) steps = (unsigned)n;
        if (strcmp(argv[i], "--seed") == 0) first = n, seeds = 1;
    }
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        char why[2560];
        bool ok = model_run(seed, steps, why, sizeof why);
        tap_result(ok, "seed %llu, %u steps", (unsigned long long)seed, steps);
        if (!ok) fprintf(stderr, "%s\n", why);
    }
    return tap_end();
}
