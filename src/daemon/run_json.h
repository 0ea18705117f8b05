/* run_json.h - a run as JSON, the same wherever it is shown. What is JSON already (payload, metadata,
 * output, error) is put as the text it is, never read and written again. */
#ifndef DAEMON_RUN_JSON_H
#define DAEMON_RUN_JSON_H

#include "core/run.h"
#include "proto/json.h"

/* Its members, within an object. `now_ms`: a QUEUED run whose time has not come is DELAYED. */
void run_json_members(struct json_writer *j, const struct run *r, int64_t now_ms);

void run_json_put(struct json_writer *j, const struct run *r, int64_t now_ms); /* an object */

/* The same for whoever leased it: with token, fence and leaseMs. */
void run_json_put_leased(struct json_writer *j, const struct run *r, int64_t now_ms);

/* What either of them takes at most. */
size_t run_json_bytes_max(const struct run *r);

#endif
