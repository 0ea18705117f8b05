/* http_runs_args.h - what a request about runs asks for, as a question to the engine.
 *
 * Guarantees: what is not well formed is told here; what is, but makes no sense, by engine_run(),
 * before it does anything (C9), or of a batch here, too: of all of its items. What is JSON and not ours to understand (payload,
 * metadata, output, error) stays the text that came. Bodies are read a level at a time, so that a
 * large payload costs no more memory than a small one; they may be nested HTTP_RUN_DEPTH_MAX deep.
 * Nothing is allocated, a batch apart; everything points into the request, which is written over
 * where text was escaped. */
#ifndef DAEMON_HTTP_RUNS_ARGS_H
#define DAEMON_HTTP_RUNS_ARGS_H

#include "daemon/http_session.h"
#include "engine/runs.h"

enum { HTTP_BATCH_MAX = 1000, HTTP_RUN_DEPTH_MAX = 68, HTTP_RUNS_DEFAULT = 50 };

struct http_run_args {
    struct run_args ask;
    struct bytes metadata, operations; /* of PUT .../metadata: one of them */
    unsigned statuses;                 /* LIST, for http_status_wanted(); 0: all */
};

/* Those of one route each; `ret` is not meaningful after an error. */
typedef int http_run_parse(struct http_door *d, struct http_input *in,
                           struct http_run_args *ret, struct err *reterr);
http_run_parse http_parse_trigger, http_parse_run, http_parse_runs, http_parse_tags,
    http_parse_metadata, http_parse_cancel, http_parse_reschedule, http_parse_replay,
    http_parse_reset, http_parse_lease, http_parse_complete, http_parse_fail,
    http_parse_heartbeat;

/* `ret_items`: `ret_count` triggers, to be freed. */
int http_parse_batch(struct http_door *d, struct http_input *in,
                     struct http_run_args **ret_items, size_t *ret_count, struct err *reterr);

#endif
