/* resp_args.h - the arguments of ONCE.* commands, as requests to the engine. Pure: nothing is
 * allocated, everything points into the command. */
#ifndef DAEMON_RESP_ARGS_H
#define DAEMON_RESP_ARGS_H

#include "daemon/resp_options.h"
#include "engine/engine.h"
#include "proto/resp.h"

enum { SCAN_COUNT_DEFAULT = 100 };
enum { SWEEP_COUNT_DEFAULT = 1000, SWEEP_COUNT_MAX = 100000 };

struct ask_args {
    struct call_args call;
    struct bytes value; /* PUBLISH */
    bool bound;         /* CLAIM: released when the connection drops, renewed until then */
    bool omit;          /* PUBLISH: it was done, but the answer is not kept */
    bool meta;          /* answer with everything that is known, as a map */
    int64_t watch_id;   /* WATCH: what the client calls it */
    uint8_t cursor[KEY_FRAME_BYTES_MAX]; /* SCAN: what the key points into */
};

/* Those of one verb each; `ret` is not meaningful after an error. */
typedef int resp_parse(const struct resp_command *in, struct ask_args *ret, struct err *reterr);
resp_parse resp_parse_claim, resp_parse_publish, resp_parse_release, resp_parse_renew,
    resp_parse_peek, resp_parse_forget, resp_parse_scan, resp_parse_sweep, resp_parse_stats,
    resp_parse_facts, resp_parse_watch;
bool resp_parse_watch_id(struct bytes text, int64_t *ret);

#endif
