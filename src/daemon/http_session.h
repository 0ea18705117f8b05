/* http_session.h - what an HTTP connection remembers, an exchange, and what handlers may do.
 *
 *   request --http_serve()--> routed, allowed --handler--> answered at once
 *                                                '--http_ask()--> engine --route->done--> answered
 *
 * An exchange is a request on its way to its answer. It is answered exactly once: http_close() and
 * everything that calls it end it. Exchanges come from a stock, so that a request costs no
 * allocation besides its call and its op. */
#ifndef DAEMON_HTTP_SESSION_H
#define DAEMON_HTTP_SESSION_H

#include "daemon/http_door.h"
#include "daemon/http_routes.h"
#include "proto/http_fields.h"

enum { HTTP_ID_BYTES_MAX = 64 };

struct http_exchange;

struct http_session {
    struct conn *conn;
    struct http_door *door;
    struct http_reader reader;
    struct http_exchange *exchange; /* that waits for the engine; NULL: none */
    size_t head_bytes;              /* of the request whose body is being read; 0: none */
    size_t read_bytes;              /* of that request that need not be looked at again */
    size_t body_bytes;              /* of its body, which stands behind its head */
};

/* A request that is complete, while it is acted upon. */
struct http_input {
    struct http_request request;
    uint8_t *body; /* a handler may change it in place */
    size_t body_bytes;
    struct http_match match;
    struct grant grant; /* of who asks; zeroed: nobody had to say */
    struct bytes
        env; /* of what is about runs or mutations: where, and the grant was checked for it */
};

struct http_exchange {
    struct link link;             /* in the stock */
    struct http_session *session; /* NULL: nobody waits for the answer */
    struct http_door *door;
    const struct http_route *route; /* NULL: there is none */
    struct call *call;              /* NULL: the engine is not asked */
    struct run_call *run;           /* or this */
    struct mutation_call *mutation; /* or this */
    struct http_batch *batch;       /* or these; see http_batch.c */
    struct timer timer;             /* cancels the call */
    unsigned methods;               /* that its path has, as bits */
    bool may_wait, late;            /* late: its time ran out, and the call was canceled */
    bool trusted;                   /* may see what planes say of themselves */
    bool callers_token;             /* a claim that is not ours to give back */
    bool leases;                    /* runs, which are given back if nobody hears of them */
    bool begins;                    /* a mutation, which is, too */
    unsigned statuses;              /* of the runs that are listed; 0: any */
    bool keep_alive, head;
    bool raw;               /* the value is wanted as it is, not within JSON */
    bool meta;              /* everything that is known is wanted */
    struct http_poll *poll; /* NULL: it is none; see http_poll.c */
    int64_t polled_ms;      /* that it waited */
    int minor, status;
    enum log_level level; /* of the line about it */
    int64_t since_ms;
    char id[HTTP_ID_BYTES_MAX + 1];
    char traceparent[HTTP_TRACEPARENT_BYTES + 1]; /* "": none */
};

/* ---- http_serve.c: from a request to its handler ---- */

/* Ends the exchange, or has asked the engine. */
void http_serve(struct http_exchange *x, struct http_input *in);

/* All that can be known without the body: is it worth waiting for? If not, that is answered. */
bool http_foresee(struct http_exchange *x, struct http_input *in);

/* ---- http_browser.c ---- */

/* Could a page in a browser have sent it, in the name of whoever looks at it? */
bool http_is_foreign(const struct http_session *s, const struct http_request *request);

/* ---- http_door.c ---- */

/* Asks the engine; route->done is called with the answer. Fills in done, ctx and, for somebody who
 * has stopped sending, wait_ms. */
int http_ask(struct http_exchange *x, struct call_args *args, struct err *reterr);
int http_ask_again(struct http_exchange *x, struct call_args *args,
                   struct err *reterr);                     /* from route->done */
void http_ask_at_most(struct http_exchange *x, int64_t ms); /* then cancel it */
/* The same about runs: route->run_done is called. */
int http_ask_run(struct http_exchange *x, struct run_args *args, struct err *reterr);
/* The same about mutations: route->mutation_done is called. */
int http_ask_mutation(struct http_exchange *x, struct mutation_args *args, struct err *reterr);
void http_asked(struct http_exchange *x);         /* the answer will come later */
void http_exchange_end(struct http_exchange *x);  /* it is answered */
void http_exchange_drop(struct http_exchange *x); /* nobody waits for the answer */

/* ---- http_poll.c: looking at a record when it is something else than was seen ---- */

struct http_args;

int http_poll(struct http_exchange *x, const struct http_input *in, struct http_args *args,
              struct err *reterr);
void http_poll_over(struct http_exchange *x, struct call *call); /* route->done of the watch */

/* ---- http_batch.c: many triggers at once ---- */

void http_batch_cancel(struct http_batch *b);

/* ---- http_reply.c: answering ---- */

/* What went wrong, as RFC 9457 has it. */
struct http_problem {
    int status;
    const char *code; /* for programs */
    const char *detail;
    bool retryable;
};

/* First the start, then fields, then the content, which ends the exchange. */
void http_open(struct http_exchange *x, struct http_writer *w, int status);
void http_close(struct http_exchange *x, struct http_writer *w, const char *type,
                struct bytes content);
void http_close_empty(struct http_exchange *x, struct http_writer *w);

/* Content as JSON: start, write the members of one object, close. */
void http_start_json(struct http_exchange *x, struct json_writer *j);
void http_close_json(struct http_exchange *x, struct http_writer *w, struct json_writer *j,
                     const char *type);
void http_put_problem(struct json_writer *j, const struct http_problem *p); /* its members */

extern const char http_json_type[], http_problem_type[], http_raw_type[];

void http_answer_problem(struct http_exchange *x, const struct http_problem *p);
void http_answer_error(struct http_exchange *x, const struct err *err);
struct http_problem http_problem_of(const struct err *err); /* as long as `err` */
void http_answer_options(struct http_exchange *x);

#endif
