/* main.c - one program, several parts; see fault.h. */
#include "tests/fault/fault.h"
#include "tests/support/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int test_main(int argc, char **argv)
{
    (void)argc, (void)argv;
    proxy_test();
    check_test();
    return tap_end();
}

/* The time that histories are written in, for a script. */
static int now_main(int argc, char **argv)
{
    (void)argc, (void)argv;
    return printf("%" PRId64 "\n", now_us()) < 0;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} parts[] = {
    { "proxy", proxy_main }, { "worker", worker_main }, { "check", check_main },
    { "pace", pace_main },   { "note", note_main },     { "test", test_main },
    { "now", now_main },
};

static bool option_take(char **argv, const struct option_row *row)
{
    if (strcmp(argv[0], row->name) != 0) return false;
    if (row->text) *row->text = argv[1];
    if (row->number) *row->number = strtoll(argv[1], NULL, 10);
    return true;
}

int options_take(int argc, char **argv, const struct option_row *rows, size_t count)
{
    int at = 1;
    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        bool known = false;
        for (size_t i = 0; at + 1 < argc && i < count; i++)
            known |= option_take(argv + at, &rows[i]);
        if (!known) return -1;
    }
    return at;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof parts / sizeof *parts; i++)
        if (strcmp(argv[1], parts[i].name) == 0) return parts[i].run(argc - 1, argv + 1);
    fprintf(stderr, "usage: fault proxy|worker|check|pace|note|now|test ...\n");
    return 2;
}
