/* http_args.h - what a request asks for, from its body, its query and its fields, as a request to
 * the engine. Nothing is allocated; everything points into the request.
 *
 * What is not known is refused by its name, and so is what comes twice: a misspelt "lease_ms" must
 * not become a default. */
#ifndef DAEMON_HTTP_ARGS_H
#define DAEMON_HTTP_ARGS_H

#include "daemon/http_session.h"

struct http_args {
    struct call_args call;
    struct mutation_args mutation; /* those of mutations: this, and not the call */
    struct bytes value;            /* publish; complete */
    bool value_kept;            /* publish: null means that it was done and no answer is kept */
    bool meta;                  /* all but list: everything that is known is wanted */
    bool polls;                 /* peek: not before it is something else than call.seen */
    struct bytes scope, cursor; /* list */
    uint8_t memory[KEY_FRAME_BYTES_MAX]; /* list: what the key points into */
};

enum { HTTP_LIST_DEFAULT = 100, HTTP_LIST_MAX = 1000 };

/* Those of one verb each; `ret` is not meaningful after an error. */
typedef int http_parse(struct http_door *d, struct http_input *in, struct http_args *ret,
                       struct err *reterr);
http_parse http_parse_claim, http_parse_publish, http_parse_release, http_parse_renew,
    http_parse_peek, http_parse_forget, http_parse_list, http_parse_mutation_begin,
    http_parse_mutation_complete, http_parse_mutation_abort;

/* The error about a name that is not known. `meant`: what is, and much like it; NULL: nothing. */
int http_refuse_unknown(struct bytes name, const char *what, const char *meant,
                        struct err *reterr);

/* Prefer: wait=SECONDS, if it is there. */
void http_take_preferred_wait(const struct http_request *request, int64_t *wait_ms);

#endif
