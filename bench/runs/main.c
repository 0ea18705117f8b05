/* main.c - triggers at the RESP door, as bench/runs.mjs asks for them. Prints JSON.
 *
 *   triggers load PORT CLIENTS DEPTH SECONDS ledger|buffer   as many as it takes; they end up there
 *   triggers fill PORT CLIENTS DEPTH COUNT                   so many, into the buffer
 *   triggers burst CALLERS BURSTS PORT...                    the same key for all, a line per burst
 *   triggers storm PORT CLIENTS RATE SECONDS FILE            at a rate; their ids into the file
 *
 * DEPTH is how many are in flight on each connection, as a client that pipelines has them. */
#include "bench/runs/triggers.h"

#include <stdlib.h>
#include <string.h>

static size_t count_of(const char *text)
{
    return strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (argc == 7 && strcmp(what, "load") == 0)
        load(argv[2], count_of(argv[3]), count_of(argv[4]), strtod(argv[5], NULL), argv[6]);
    else if (argc == 6 && strcmp(what, "fill") == 0)
        fill(argv[2], count_of(argv[3]), count_of(argv[4]), count_of(argv[5]));
    else if (argc > 4 && strcmp(what, "burst") == 0)
        burst(argv + 4, (size_t)argc - 4, count_of(argv[2]), count_of(argv[3]));
    else if (argc == 7 && strcmp(what, "storm") == 0)
        storm(argv[2], count_of(argv[3]), strtod(argv[4], NULL), strtod(argv[5], NULL),
              argv[6]);
    else
        must(false, "understand the arguments");
    return 0;
}
