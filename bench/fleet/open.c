/* open.c - a handle on the planes that were named. */
#include "bench/fleet/fleet.h"

#include <stdio.h>
#include <string.h>

static const char *address(const char *text)
{
    return strcmp(text, "none") == 0 ? NULL : text;
}

struct once *fleet_open(const struct planes *planes)
{
    struct once *o;
    struct once_error error = { 0 };
    struct once_config config = ONCE_CONFIG_INIT;
    config.coord = address(planes->coord) ? planes->coord : "none";
    config.ledger = address(planes->ledger);
    config.flags = ONCE_HOSTED | (config.ledger ? 0 : ONCE_EPHEMERAL);
    int r = once_open(&config, &o, &error);
    if (r < 0) fprintf(stderr, "%s\n", error.text);
    must(r == 0, "open the planes");
    return o;
}
