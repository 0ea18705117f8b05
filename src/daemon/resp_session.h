/* resp_session.h - what a RESP connection remembers, and its commands as a table.
 *
 * To add a command: a row in resp_table.c with one of `answer` (what can be said at once), `parse`,
 * `parse_run` and `parse_mutation` (what the engine is asked), and a case in tests/e2e/serve.sh. */
#ifndef DAEMON_RESP_SESSION_H
#define DAEMON_RESP_SESSION_H

#include "daemon/resp_door.h"

struct resp_session {
    struct conn *conn;
    struct resp_door *door;
    struct resp_reader reader;
    struct list asks;  /* struct ask, in the order of the commands */
    struct list bound; /* what is bound to this connection */
    struct list watches,
        told; /* struct watched: at the store; to be pushed when there is room */
    struct list calls,
        pushes;         /* struct ask, RAW: at the engine; to be pushed when there is room */
    int version;        /* of RESP: 2 or 3 */
    struct grant grant; /* what it may; zeroed: nobody has said who they are */
    unsigned wrong;     /* tokens that were none */
    char *name;         /* CLIENT SETNAME; NULL: none */
};

/* ONCE.MUTATION.*, and how it is answered. */
struct resp_mutation {
    struct mutation_args args;
    bool omit; /* COMPLETE: it was done, but the response is not kept */
    bool meta;
};

typedef int resp_mutation_parse(const struct resp_command *in, struct resp_mutation *ret,
                                struct err *reterr);

typedef void resp_answer(struct resp_session *s, const struct resp_command *in,
                         struct resp_writer *w);

struct resp_entry {
    const char *name;          /* in capitals */
    size_t args_min, args_max; /* with the name itself */
    bool writes;
    resp_answer *answer;
    resp_parse *parse;
    const char *usage, *summary;
    bool for_strangers; /* before AUTH, too */
    resp_run_parse *parse_run;
    resp_mutation_parse *parse_mutation;
};

/* How a question about runs is answered. */
struct run_ask_form {
    enum run_form form;
    size_t page_bytes_max; /* of a list: beyond it comes another page */
};

/* One command whose answer is not on its way yet: resp_door.c. */
struct ask {
    struct link link;
    struct resp_session *session; /* NULL: nobody waits for the answer */
    struct resp_door *door;
    struct call *call; /* one of the three is asked; none: `reply` is the answer */
    struct run_call *run_call;
    struct mutation_call *mutation;
    enum verb verb;
    bool grants; /* what somebody who has gone should not be given */
    bool may_wait, meta, callers_token;
    int version;
    struct bound *bound; /* CLAIM ... BOUND: what it will be if it is granted */
    struct run_ask_form run;
    bool raw, owed; /* it is pushed, out of turn; the connection waits for it */
    int64_t raw_id; /* what the client calls it */
    struct buf reply;
    struct blob *value; /* what follows the reply; NULL: nothing */
};

/* Where an answer goes: it is sent at once, or it has to wait for one in front of it. */
struct ask_slot {
    bool now;
    struct resp_writer writer;
};

/* resp_door.c */
struct ask *ask_new(struct resp_session *s); /* NULL: out of memory */
void ask_free(struct ask *a);
void ask_expect(struct ask *a); /* its answer comes in turn */
struct ask_slot ask_answer(struct ask *a);
void ask_answered(struct ask *a, const struct ask_slot *slot); /* it may be gone afterwards */

/* resp_table.c */
extern const struct resp_entry resp_table[];           /* ends with a row without a name */
const struct resp_entry *resp_find(struct bytes name); /* NULL: there is none */
resp_answer resp_command_list;
void resp_unknown(const struct resp_command *in, struct resp_writer *w);

/* How a call is answered. */
struct call_form {
    enum verb verb;
    bool meta;    /* everything, as a map */
    bool durable; /* of the door */
};

/* resp_answer.c */
void resp_write_error(struct resp_writer *w, const struct err *err);
/* With `keep`, a long value is not written but handed over, with its length announced: it and a
 * line end have to follow. */
void resp_write_call(struct resp_writer *w, struct call *call, const struct call_form *form,
                     struct blob **keep);
/* The push of a watch. NULL: something has changed, and has to be asked for. */
void resp_write_told(struct resp_writer *w, int64_t id, const struct answer *answer);

/* resp_run_answer.c */
void resp_write_run_call(struct resp_writer *w, const struct run_call *call,
                         const struct run_ask_form *form);
void resp_push_run_call(struct resp_writer *w, int64_t raw_id, const struct run_call *call,
                        const struct run_ask_form *form);

/* resp_runs.c */
int resp_run(struct resp_session *s, struct resp_run *in, struct err *reterr);
void resp_calls_room(struct resp_session *s);                  /* pushes what waited for room */
bool resp_call_forget(struct resp_session *s, int64_t raw_id); /* false: there is none */
void resp_calls_drop(struct resp_session *s);                  /* nobody is there to be told */

/* resp_mutations.c */
resp_mutation_parse resp_parse_mutation_begin, resp_parse_mutation_complete,
    resp_parse_mutation_abort;
int resp_mutate(struct resp_session *s, struct resp_mutation *in, struct err *reterr);

/* resp_watch.c */
int resp_watch(struct resp_session *s, struct ask_args *args, struct err *reterr);
void resp_watches_room(struct resp_session *s);   /* pushes what waited for room */
void resp_watches_cancel(struct resp_session *s); /* nobody is there to be told */
int resp_watches_init(struct resp_door *d, struct rng *rng);
void resp_watches_fini(struct resp_door *d);
resp_answer resp_unwatch;

/* resp_auth.c */
resp_answer resp_auth, resp_say_noauth, resp_say_noperm;
void resp_meet(struct resp_session *s); /* somebody who may be a stranger */
/* False: refused, and `w` says why. */
bool resp_authenticate(struct resp_session *s, struct bytes user, struct bytes token,
                       struct resp_writer *w);

/* resp_client.c: what clients say before they ask for anything */
resp_answer resp_hello, resp_ping, resp_echo, resp_quit, resp_reset, resp_select, resp_client,
    resp_info;

void resp_say_error(struct resp_writer *w, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
