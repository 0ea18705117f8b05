/* http_routes.c - see http_routes.h. */
#include "daemon/http_routes.h"

#include "base/check.h"
#include "daemon/http_claims.h"
#include "daemon/http_health.h"
#include "daemon/http_mutations.h"
#include "daemon/http_runs.h"
#include "proto/exposition.h"

const struct http_route http_routes[] = {
    { HTTP_POST, "/v1/claims/{scope}/{key}", http_claim, http_claim_done, .verb = VERB_CLAIM,
      .takes = HTTP_CONTENT_JSON, .gives_raw = true,
      .summary = "Claim a key, or wait for its answer" },
    { HTTP_PUT, "/v1/claims/{scope}/{key}", http_publish, http_claim_done, .verb = VERB_PUBLISH,
      .takes = HTTP_CONTENT_VALUE, .summary = "Publish the answer" },
    { HTTP_DELETE, "/v1/claims/{scope}/{key}", http_release, http_claim_done,
      .verb = VERB_RELEASE, .summary = "Give a claim back" },
    { HTTP_GET, "/v1/claims/{scope}/{key}", http_peek, http_claim_done, .verb = VERB_PEEK,
      .gives_raw = true, .summary = "Look at a key; changes nothing" },
    { HTTP_POST, "/v1/claims/{scope}/{key}/renew", http_renew, http_claim_done,
      .verb = VERB_RENEW, .takes = HTTP_CONTENT_JSON, .summary = "Extend the lease" },
    { HTTP_POST, "/v1/claims/{scope}/{key}/forget", http_forget, http_claim_done,
      .verb = VERB_FORGET, .takes = HTTP_CONTENT_JSON, .summary = "Remove an answer" },
    { HTTP_GET, "/v1/claims", http_list, http_list_done, .verb = VERB_SCAN,
      .summary = "List keys, page by page" },
    { HTTP_POST, "/v1/tasks/{task}/trigger", http_trigger, .run_done = http_trigger_done,
      .verb = VERB_RUN_PUT, .takes = HTTP_CONTENT_JSON, .summary = "Make a run, once per key" },
    { HTTP_POST, "/v1/tasks/{task}/batch", http_batch, .verb = VERB_RUN_PUT,
      .takes = HTTP_CONTENT_JSON, .summary = "Make many runs, each once per key" },
    { HTTP_POST, "/v1/tasks/{task}/keys/{key}/reset", http_reset, .run_done = http_reset_done,
      .verb = VERB_RUN_RESET, .takes = HTTP_CONTENT_JSON,
      .summary = "Let the key lead to no run any more" },
    { HTTP_GET, "/v1/runs", http_runs, .run_done = http_runs_done, .verb = VERB_RUN_LIST,
      .summary = "List runs, the newest first, page by page" },
    { HTTP_GET, "/v1/runs/{id}", http_run, .run_done = http_run_answer, .verb = VERB_RUN_GET,
      .summary = "Look at a run" },
    { HTTP_POST, "/v1/runs/{id}/tags", http_tags, .run_done = http_run_answer,
      .verb = VERB_RUN_CHANGE, .takes = HTTP_CONTENT_JSON, .summary = "Add tags to a run" },
    { HTTP_PUT, "/v1/runs/{id}/metadata", http_metadata, .run_done = http_run_answer,
      .verb = VERB_RUN_CHANGE, .takes = HTTP_CONTENT_JSON,
      .summary = "Replace the metadata of a run, or operate on it" },
    { HTTP_POST, "/v1/runs/{id}/cancel", http_cancel, .run_done = http_run_answer,
      .verb = VERB_RUN_CHANGE, .takes = HTTP_CONTENT_JSON, .summary = "Cancel a run" },
    { HTTP_POST, "/v1/runs/{id}/reschedule", http_reschedule, .run_done = http_run_answer,
      .verb = VERB_RUN_CHANGE, .takes = HTTP_CONTENT_JSON,
      .summary = "Give a delayed run another time" },
    { HTTP_POST, "/v1/runs/{id}/replay", http_replay, .run_done = http_trigger_done,
      .verb = VERB_RUN_PUT, .takes = HTTP_CONTENT_JSON,
      .summary = "Make a new run like this one" },
    { HTTP_POST, "/v1/queues/{queue}/lease", http_lease, .run_done = http_lease_done,
      .verb = VERB_RUN_LEASE, .takes = HTTP_CONTENT_JSON,
      .summary = "Lease runs that are due, to work on them" },
    { HTTP_POST, "/v1/runs/{id}/complete", http_complete, .run_done = http_run_answer,
      .verb = VERB_RUN_LEASE, .takes = HTTP_CONTENT_JSON, .summary = "Say that a run is done" },
    { HTTP_POST, "/v1/runs/{id}/fail", http_fail, .run_done = http_run_answer,
      .verb = VERB_RUN_LEASE, .takes = HTTP_CONTENT_JSON,
      .summary = "Say that an attempt has failed" },
    { HTTP_POST, "/v1/runs/{id}/heartbeat", http_heartbeat, .run_done = http_run_answer,
      .verb = VERB_RUN_LEASE, .takes = HTTP_CONTENT_JSON,
      .summary = "Extend the lease of a run" },
    { HTTP_POST, "/v1/mutations/begin", http_mutation_begin,
      .mutation_done = http_mutation_answer, .verb = VERB_MUTATION, .takes = HTTP_CONTENT_JSON,
      .summary = "Begin a mutation, or get the response of one that is done" },
    { HTTP_POST, "/v1/mutations/complete", http_mutation_complete,
      .mutation_done = http_mutation_answer, .verb = VERB_MUTATION, .takes = HTTP_CONTENT_JSON,
      .summary = "Keep the response of a mutation that was committed" },
    { HTTP_POST, "/v1/mutations/abort", http_mutation_abort,
      .mutation_done = http_mutation_answer, .verb = VERB_MUTATION, .takes = HTTP_CONTENT_JSON,
      .summary = "A mutation was rolled back: the next one may begin" },
    { HTTP_GET, "/livez", http_livez, .open = true, .summary = "Does the daemon turn?" },
    { HTTP_GET, "/readyz", http_readyz, http_readyz_done, .open = true,
      .summary = "Can it answer, and if not, why?" },
    { HTTP_GET, "/metrics", http_metrics, .metrics = true, .gives = EXPOSITION_MEDIA_TYPE,
      .summary = "What is counted, for Prometheus" },
    { HTTP_GET, "/version", http_version, .open = true, .summary = "What runs here" },
    { HTTP_GET, "/openapi.json", http_openapi, .open = true, .summary = "This interface" },
    { 0 },
};

/* ---- finding ---- */

static bool is_part(struct bytes pattern)
{
    return pattern.len > 0 && pattern.data[0] == '{';
}

/* Does the path, still escaped, have the form of the row? */
static bool fits(const char *row, struct bytes path)
{
    struct bytes want = bytes_str(row), pattern, segment;
    while (http_next_segment(&want, &pattern)) {
        if (!http_next_segment(&path, &segment)) return false;
        if (!is_part(pattern) && !bytes_eq(pattern, segment)) return false;
    }
    return path.len == 0;
}

static void take_parts(struct bytes path, uint8_t *memory, struct http_match *m)
{
    struct bytes want = bytes_str(m->route->path), pattern, segment;
    size_t n = 0, len;
    while (http_next_segment(&want, &pattern) && http_next_segment(&path, &segment)) {
        if (!is_part(pattern)) continue;
        CHECK(n < HTTP_PARTS_MAX);
        if (!http_unescape(segment, memory, &len)) {
            m->malformed = true;
            return;
        }
        m->parts[n++] = bytes_of(memory, len);
        memory += len;
    }
}

void http_match(enum http_method method, struct bytes path, uint8_t *memory,
                struct http_match *ret_match)
{
    struct http_match m = { 0 };
    if (method == HTTP_HEAD) method = HTTP_GET;
    for (const struct http_route *r = http_routes; r->path; r++) {
        if (!fits(r->path, path)) continue;
        m.methods |= BIT(r->method);
        if (r->method == method) m.route = r;
    }
    if (m.route) take_parts(path, memory, &m);
    *ret_match = m;
}

/* ---- what is allowed ---- */

#define METHOD_NAME(method, name) [method] = name,
static const char *const names[] = { HTTP_METHOD_LIST(METHOD_NAME) };
#undef METHOD_NAME

const char *http_method_name(enum http_method method)
{
    return names[method];
}

void http_allow(unsigned methods, char out[HTTP_ALLOW_BYTES])
{
    size_t len = 0;
    if (methods & BIT(HTTP_GET)) methods |= BIT(HTTP_HEAD);
    methods |= BIT(HTTP_OPTIONS);
    for (size_t m = 1; m < sizeof names / sizeof names[0]; m++) {
        if (!(methods & BIT(m))) continue;
        size_t n = strlen(names[m]);
        CHECK(len + n + 3 <= HTTP_ALLOW_BYTES);
        if (len) memcpy(out + len, ", ", 2), len += 2;
        memcpy(out + len, names[m], n);
        len += n;
    }
    out[len] = '\0';
}
