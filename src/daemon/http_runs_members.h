/* http_runs_members.h - the members of a body about runs, by a table: what each wants, where it goes.
 *
 * Guarantees: a body is read a level at a time; what is within a value stays text. A member that is not
 * in the table is refused by its name, with the one that may have been meant, and so is a body without
 * one that is required. Nothing is allocated: escapes are undone and tags are packed in place. */
#ifndef DAEMON_HTTP_RUNS_MEMBERS_H
#define DAEMON_HTTP_RUNS_MEMBERS_H

#include "daemon/http_runs_args.h"

enum { HTTP_MEMBERS_MAX = 24 }; /* of an object that is read */

/* A value with its members or elements; what is within those has no nodes. */
struct http_level {
    uint8_t *text;
    struct json j;
    struct json_node nodes[1 + 2 * HTTP_MEMBERS_MAX + HTTP_RUN_DEPTH_MAX];
};

int http_level_read(struct http_level *l, uint8_t *text, size_t len, struct err *reterr);

struct http_member;

/* Puts what `n` says where the member belongs. */
typedef int http_take_member(const struct http_member *m, struct http_level *l,
                             const struct json_node *n, struct http_run_args *ret,
                             struct err *reterr);

/* A table of them ends with a row without a name. */
struct http_member {
    const char *name;
    http_take_member *take;
    size_t at; /* in struct http_run_args */
    bool required;
};

http_take_member http_take_text; /* struct bytes, not empty */
http_take_member http_take_id;   /* struct run_id */
http_take_member http_take_ms;   /* int64_t */
http_take_member http_take_tags; /* struct bytes: packed */

/* struct bytes, JSON as it came: any, an object, an array, a string with its quotes. */
http_take_member http_take_json, http_take_metadata, http_take_operations, http_take_reason;

/* These know their place: `at` is of no account. */
http_take_member http_take_token, http_take_delay, http_take_attempts, http_take_count,
    http_take_version, http_take_mismatch;

int http_wants(const struct http_member *m, const char *what, struct err *reterr);

/* An object within a body; `what` names its members. */
int http_take_object(uint8_t *text, size_t len, const struct http_member *members,
                     const char *what, struct http_run_args *ret, struct err *reterr);
/* That of the request; none is as good as {}. */
int http_take_body(struct http_input *in, const struct http_member *members,
                   struct http_run_args *ret, struct err *reterr);

#endif
