/* main.c - triggers at the RESP door, as bench/runs.mjs asks for them. Prints JSON.
 *
 *   triggers load PORT CLIENTS SECONDS ledger|buffer   as many as it takes; they have to end up there
 *   triggers fill PORT CLIENTS COUNT                   so many, into the buffer
 *   triggers burst CALLERS BURSTS PORT...              the same key for all callers, a line per burst
 *   triggers storm PORT CLIENTS RATE SECONDS FILE      at a rate; their ids into the file */
#include "bench/runs/triggers.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (argc == 6 && strcmp(what, "load") == 0)
        load(argv[2], strtoul(argv[3], NULL, 10), strtod(argv[4], NULL), argv[5]);
    else if (argc == 5 && strcmp(what, "fill") == 0)
        fill(argv[2], strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10));
    else if (argc > 4 && strcmp(what, "burst") == 0)
        burst(argv + 4, (size_t)argc - 4, strtoul(argv[2], NULL, 10),
              strtoul(argv[3], NULL, 10));
    else if (argc == 7 && strcmp(what, "storm") == 0)
        storm(argv[2], strtoul(argv[3], NULL, 10), strtod(argv[4], NULL), strtod(argv[5], NULL),
              argv[6]);
    else
        must(false, "understand the arguments");
    return 0;
}
