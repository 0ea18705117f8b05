/* main.c - one program, several parts; see mutations.h. */
#include "tests/mutations/mutations.h"

#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} parts[] = { { "scenes", scenes_main }, { "worker", worker_main }, { "check", check_main } };

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(argv[1], parts[i].name) == 0) return parts[i].run(argc - 1, argv + 1);
    fprintf(stderr, "usage: mutations scenes [WORD] | worker ... | check ...\n");
    return 2;
}
