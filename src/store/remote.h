/* remote.h - the parts of the store that talks to a daemon; private to it.
 *
 *   remote.c         the store: what waits, what was sent, what is watched
 *   remote_conn.c    the connection: connecting, greeting, bytes in and out
 *   remote_wire.c    ops as commands, replies as answers
 *   remote_runs.c    the same, of questions about runs
 *   remote_mutations.c  the same, of the replay cache of mutations
 *   remote_words.c   a command, word by word
 *   remote_tls.c     what onces:// puts around the bytes
 *   remote_url.c     what is behind "once:" */
#ifndef STORE_REMOTE_H
#define STORE_REMOTE_H

#include "base/buf.h"
#include "base/map.h"
#include "base/resolver.h"
#include "proto/reply.h"
#include "store/store.h"

/* ---- remote_url.c ---- */

struct remote_options {
    char *memory; /* all strings point into it */
    size_t memory_len;
    const char *host, *port, *path,
        *token;     /* path: a socket in the file system; token: or NULL */
    const char *ca; /* a file of certificates to trust; NULL: the system's */
    int64_t timeout_ms;
};

int remote_options_parse(const char *rest, struct remote_options *ret, struct err *reterr);
void remote_options_fini(struct remote_options *o);

/* ---- remote_tls.c ---- */

struct ssl_ctx_st; /* OpenSSL's, for a store ... */
struct ssl_st;     /* ... and for a connection */

int remote_tls_prepare(const char *ca_file, struct ssl_ctx_st **ret, struct err *reterr);
void remote_tls_forget(struct ssl_ctx_st *ctx);                           /* NULL is fine */
struct ssl_st *remote_tls_open(struct ssl_ctx_st *ctx, const char *host); /* NULL: no memory */
void remote_tls_close(struct ssl_st *ssl);                                /* NULL is fine */
/* Adds what was in the sealed bytes to `plain`. False: that is the end of it, and `why` says so. */
bool remote_tls_feed(struct ssl_st *ssl, struct bytes sealed, struct buf *plain, char *why,
                     size_t len);
/* Moves what can be sealed. False: it cannot be sent. */
bool remote_tls_seal(struct ssl_st *ssl, struct buf *plain, struct buf *sealed);

/* ---- remote_words.c ---- */

enum { WORDS_MAX = 64, WORDS_NUMBERS_MAX = 8 };

struct words {
    struct bytes list[WORDS_MAX]; /* views that outlive it */
    size_t count;
    char numbers[WORDS_NUMBERS_MAX][24]; /* spelled out */
    size_t number_count;
    char token[2 * sizeof(struct token) + 1];
    char cursor[2 * KEY_FRAME_BYTES_MAX + 1];
};

void words_start(struct words *w);
void words_add(struct words *w, struct bytes word);
void words_text(struct words *w, const char *word);
void words_number(struct words *w, uint64_t n);
void words_token(struct words *w, const struct token *t);     /* one at most */
void words_ms(struct words *w, const char *name, int64_t ms); /* negative: not given */
/* All of it or nothing: false, and nothing was written. */
bool words_write(struct buf *out, const struct words *w);

/* ---- remote_wire.c ---- */

/* A reply, and the bytes it points into. */
struct heard {
    const struct reply_node *nodes;
    struct bytes in;
};

/* What a daemon says when it is greeted. */
struct remote_hello {
    bool durable;
    int64_t value_bytes_max;
};

bool wire_hello(struct buf *out, const char *token); /* false: no memory, nothing was written */
bool wire_greeted(const struct heard *h, struct remote_hello *ret, struct err *reterr);

/* All of it or nothing: false, and nothing was written. */
bool wire_command(struct buf *out, const struct op *op, int64_t watch_id);
bool wire_unwatch(struct buf *out, int64_t watch_id);

/* Sets `out` or `err` of the op. False: this is no answer to such a command. */
bool wire_answer(struct op *op, const struct heard *h);
bool wire_error(struct op *op, const struct heard *h); /* if the reply is one */

/* Whose push it is; false: it is none that we know. */
bool wire_pushed(const struct heard *h, int64_t *ret_watch_id);
bool wire_told(struct op *op, const struct heard *h);

void wire_error_of(const struct heard *h, const struct reply_node *n, bool writes,
                   struct err *ret);
bool wire_outcome(const struct heard *h, const struct reply_node *n, enum outcome *ret);
/* What a map has under a name. NULL, 0: nothing, or nothing of that kind. */
const struct reply_node *wire_entry(const struct heard *h, const struct reply_node *map,
                                    const char *name);
int64_t wire_number(const struct heard *h, const struct reply_node *map, const char *name);

/* May it have changed anything, if its answer is lost? */
static inline bool remote_writes(const struct op *op)
{
    if (op->verb == VERB_RUN_CALL) return run_args_write(op->call->args);
    return verb_info[op->verb].writes;
}

/* ---- remote_runs.c ---- */

/* What cannot be asked this daemon: 0, or why. */
int wire_run_check(const struct run_args *args, const struct remote_hello *hello,
                   struct err *reterr);
bool wire_run_call(struct buf *out, const struct run_args *args, int64_t id);
/* `news` is the answer that was pushed. False: it is none. */
bool wire_run_told(struct op *op, const struct heard *h, const struct reply_node *news);
int64_t wire_run_wait_ms(const struct run_args *args); /* how long the daemon may wait for it */

/* ---- remote_mutations.c ---- */

int wire_mutation_check(const struct mutation_args *args, const struct remote_hello *hello,
                        struct err *reterr);
void wire_mutation_words(struct words *w, const struct op *op);
bool wire_mutation_answer(struct op *op, const struct heard *h);

/* ---- remote_conn.c ---- */

/*   DOWN --first use, pause over--> RESOLVING --> CONNECTING --writable--> GREETING --> READY
 *     ^-------------------------- any failure ---------'---------------------'----------' */
enum remote_state {
    REMOTE_DOWN,
    REMOTE_RESOLVING,
    REMOTE_CONNECTING,
    REMOTE_GREETING,
    REMOTE_READY
};

enum { REPLY_NODES_MAX = 4096 };

struct remote_conn {
    enum remote_state state;
    struct io io;
    struct timer timer; /* DOWN: the next attempt; until READY: how long it may take */
    struct resolver resolver;
    unsigned address; /* of those of the host, the one that is tried, or that worked */
    struct buf in, out;
    struct ssl_st *tls; /* NULL: none */
    struct buf sealed;  /* with TLS: what goes to the socket instead of `out` */
    size_t out_sent;    /* of what goes to the socket */
    struct reply_reader reader;
    unsigned failures; /* in a row */
    unsigned closings; /* ever: whoever reads sees that it is another one */
    struct err why;    /* of the last failure */
    struct reply_node nodes[REPLY_NODES_MAX];
};

struct remote;

void remote_conn_init(struct remote *r);
void remote_conn_fini(struct remote *r);
void remote_conn_use(struct remote *r); /* begins to connect unless it does, or has to wait */
bool remote_conn_refuses(const struct remote *r); /* is it known not to be there now? */
void remote_conn_flush(struct remote *r);
/* Closes, and connects again later; what was sent is failed. */
void remote_conn_drop(struct remote *r, const char *text);

/* ---- remote.c ---- */

struct remote {
    struct store base;
    struct store_env env;
    struct remote_options options;
    struct ssl_ctx_st *tls; /* onces:// */
    struct remote_conn conn;
    struct remote_hello hello;
    struct list queued;   /* struct op */
    struct list sent;     /* struct sent, in the order of the replies */
    struct list finished; /* struct op: told in this turn's end */
    struct map watches;   /* struct watch, by its id: what is told by a push */
    int64_t watch_ids;
    struct task turn;
    struct timer overdue; /* of the first that was sent, or waits */
    size_t in_flight;     /* ops, the parked ones too */
};

/* From the connection. */
void remote_ready(struct remote *r);
void remote_down(struct remote *r); /* also told when an attempt failed */
void remote_heard(struct remote *r, const struct heard *h);

#endif
