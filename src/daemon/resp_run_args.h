/* resp_run_args.h - the arguments of commands about runs, as questions to the engine. Pure, as
 * resp_args.h: everything points into the command, or into what was parsed. */
#ifndef DAEMON_RESP_RUN_ARGS_H
#define DAEMON_RESP_RUN_ARGS_H

#include "daemon/resp_options.h"
#include "engine/runs.h"

/* A PULL answers with so many at most, whatever was asked for: what was leased has to be sent. */
enum { PULL_COUNT_MAX = 100, LIST_COUNT_DEFAULT = 20 };

/* How an answer is told. */
enum run_form {
    FORM_TRIGGER, /* [created, id, status, source] */
    FORM_RUN,     /* a map */
    FORM_LIST,    /* [cursor, maps] */
    FORM_PULL,    /* a list of [id, token, fence, ...] */
    FORM_VERSION, /* the version of the metadata */
    FORM_OK,
};

struct resp_tags {
    uint8_t bytes[TAGS_BYTES_MAX];
    size_t len;
};

/* Not to be moved: `args` points into it. */
struct resp_run {
    struct run_args args;
    enum run_form form;
    enum verb right; /* what an access token has to be good for */
    int64_t raw_id;  /* RAW: what the client calls it; -1: it is told in turn, for people */
    int64_t at_ms;   /* AT; -1: not given */
    struct resp_tags tags;
    struct bytes reason; /* REASON: text, to be made JSON; data NULL: not given */
};

typedef int resp_run_parse(const struct resp_command *in, struct resp_run *ret,
                           struct err *reterr);
resp_run_parse resp_parse_trigger, resp_parse_run, resp_parse_pull, resp_parse_ack,
    resp_parse_nack, resp_parse_beat;

#endif
