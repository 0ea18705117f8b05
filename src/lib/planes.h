/* planes.h - from what a person configures to one store: coord in front of a ledger, or one of
 * them alone. For every shell that opens an engine: the library and the daemon. */
#ifndef LIB_PLANES_H
#define LIB_PLANES_H

#include "store/store.h"

/* The strings are used while opening only. */
struct planes_config {
    const char *ledger;   /* NULL: data_dir/once.db; "none": there is none, as with ephemeral */
    const char *coord;    /* NULL: "memory:"; "none": the ledger alone */
    const char *data_dir; /* NULL: "."; used where ledger is NULL, and for the spool; created if
                           * missing */
    bool ephemeral;       /* only as durable as coord */
    const char *url;      /* NULL, or a daemon that has the planes */
    bool runs;            /* opens a buffer for them, if coord is none */
    bool markers;         /* opens the ledger for those in its database alone, and no coord */
    const char
        *buffer; /* NULL: beside a ledger that is a file; "none": bursts are not diverted;
                  * "spool": coord, and what is accepted is kept in data_dir/spool.db, too */
};

/* Takes "none" as ephemeral; refuses what contradicts itself. Opens nothing. */
int planes_settle(struct planes_config *config, struct err *reterr);

bool planes_spooled(const struct planes_config *config);

/* `config` was settled. */
int planes_open(const struct planes_config *config, const struct store_env *env,
                struct store **ret_store, struct err *reterr);

#endif
