/* http_runs_query.h - the query of a request about runs: which of them a list has, and how many.
 *
 * Guarantees: what is not known is refused by its name, and so is what comes twice. Nothing is
 * allocated: values are unescaped into memory of the door. */
#ifndef DAEMON_HTTP_RUNS_QUERY_H
#define DAEMON_HTTP_RUNS_QUERY_H

#include "daemon/http_runs_args.h"

int http_take_list_query(struct http_door *d, const struct http_input *in,
                         struct http_run_args *ret, struct err *reterr);
/* Of anything but a list: it has no parameters. */
int http_take_no_query(struct http_door *d, const struct http_input *in,
                       struct http_run_args *ret, struct err *reterr);

/* Is it one of those that were asked for? A QUEUED run may be DELAYED, which stores cannot tell. */
bool http_status_wanted(unsigned statuses, const struct run *r, int64_t now_ms);

#endif
