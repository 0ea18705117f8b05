/* http_routes.h - what can be asked over HTTP, as one table.
 *
 * To add something: a row in http_routes.c and a handler; its path in openapi.json (a test compares
 * the two); a section in docs/http.md. Allow, OPTIONS and the choice between 404, 405 and 501 come
 * from the table. */
#ifndef DAEMON_HTTP_ROUTES_H
#define DAEMON_HTTP_ROUTES_H

#include "engine/mutation.h"
#include "engine/runs.h"
#include "proto/http.h"

struct http_exchange;
struct http_input;

typedef void http_handler(struct http_exchange *x, struct http_input *in);
typedef void http_done(struct http_exchange *x, struct call *call);
typedef void http_run_done(struct http_exchange *x, struct run_call *call);
typedef void http_mutation_done(struct http_exchange *x, struct mutation_call *call);

/* What a body may be. */
enum http_content {
    HTTP_CONTENT_NONE,  /* none is needed; one that is empty does no harm */
    HTTP_CONTENT_JSON,  /* an object; may be left out if none of its members is required */
    HTTP_CONTENT_VALUE, /* the same, or with application/octet-stream a value as it is */
};

enum { HTTP_PARTS_MAX = 2 };

struct http_route {
    enum http_method method;
    const char *path; /* "{name}" stands for one segment, which is unescaped */
    http_handler *handle;
    http_done *done; /* answers what came of its call, errors too; NULL: it asks for none */
    http_run_done *run_done;           /* the same, of a question about runs */
    http_mutation_done *mutation_done; /* or about mutations */
    bool open;                         /* needs no token */
    bool metrics;                      /* a token has to allow this, and no verb */
    enum verb verb; /* what a token has to allow, unless it is open; {scope} says where, or, if
                       it is about runs or mutations, the env */
    enum http_content takes;
    bool gives_raw;    /* a value as application/octet-stream, if that is preferred */
    const char *gives; /* the type of its answer; NULL: JSON */
    const char *summary;
};

extern const struct http_route http_routes[]; /* ends with a row without a path */

/* What a path says. */
struct http_match {
    const struct http_route *route; /* NULL: no such path, or not with this method */
    unsigned methods;               /* bits of enum http_method that the path has; 0: none */
    bool malformed;                 /* it fits, but a part of it cannot be unescaped */
    struct bytes parts[HTTP_PARTS_MAX];
};

/* A HEAD finds what a GET does. Parts are unescaped into `memory`, as many bytes as the path. */
void http_match(enum http_method method, struct bytes path, uint8_t *memory,
                struct http_match *ret_match);

const char *http_method_name(enum http_method method);

enum { HTTP_ALLOW_BYTES = 80 };
void http_allow(unsigned methods, char out[HTTP_ALLOW_BYTES]); /* "GET, HEAD, OPTIONS" */

#endif
