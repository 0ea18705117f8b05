/* http_runs.h - runs over HTTP: the handlers of their routes, and what came of their questions. */
#ifndef DAEMON_HTTP_RUNS_H
#define DAEMON_HTTP_RUNS_H

#include "daemon/http_session.h"

http_handler http_trigger, http_batch, http_reset, http_runs, http_run, http_tags,
    http_metadata, http_cancel, http_reschedule, http_replay, http_lease, http_complete,
    http_fail, http_heartbeat;
http_run_done http_trigger_done, http_reset_done, http_runs_done, http_run_answer,
    http_lease_done;

/* What came of one trigger, for longer than its call lives. */
struct http_triggered {
    struct err err; /* code 0: there is an outcome */
    enum outcome outcome;
    const char *reason; /* static; NULL: none */
    struct run_id id;
    const char *status; /* static */
    bool buffered, degraded;
    int64_t waited_ms;
};

void http_triggered_take(const struct run_call *call, struct http_triggered *ret);
bool http_triggered_well(const struct http_triggered *t); /* there is a run */
void http_triggered_put(struct json_writer *j,
                        const struct http_triggered *t); /* its members */
struct http_problem http_triggered_problem(const struct http_triggered *t);

#endif
