/* main.c - one process of a fleet, under load, as bench/fleet.mjs asks for it.
 *
 *   fleet load WORK IN-FLIGHT SECONDS COORD LEDGER   prints one JSON object
 *   fleet owner COORD LEDGER                         see burst.c
 *   fleet losers COUNT COORD LEDGER                  see burst.c
 *
 * WORK is claims, pairs (claim + publish) or replay; COORD and LEDGER are addresses, or none.
 * Whatever does not come out as it should ends the program: what it prints was checked. */
#include "bench/fleet/fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct planes planes = { 0 };
    if (argc >= 4) planes = (struct planes){ argv[argc - 2], argv[argc - 1] };
    if (argc == 7 && strcmp(argv[1], "load") == 0)
        fleet_load(&planes, argv[2], strtoul(argv[3], NULL, 10), strtod(argv[4], NULL));
    else if (argc == 4 && strcmp(argv[1], "owner") == 0)
        fleet_owner(&planes);
    else if (argc == 5 && strcmp(argv[1], "losers") == 0)
        fleet_losers(&planes, strtoul(argv[2], NULL, 10));
    else
        must(false, "understand the arguments");
    return 0;
}
