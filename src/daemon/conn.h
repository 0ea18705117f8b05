/* conn.h - one connection: bytes in, bytes out, and when it ends.
 *
 *   OPEN --no more input--> ENDING --everything answered--> LINGERING --peer is done--> CLOSED
 *     '------------------------'---- broken, too slow, told so ----'--------------------^
 *
 * What the bytes mean is a door's business: RESP now, others later. A door is shown everything
 * that has come and was not used yet, and writes answers into conn_out().
 *
 * Guarantees:
 *   K1 All answers of a turn leave in one write, in the order they were written.
 *   K2 Back-pressure: while too much is unsent or unanswered, the door is not shown more, and
 *      little more is read. Memory per connection is bounded.
 *   K3 An idle connection has no buffers: input is read into one buffer that all share, and what
 *      was written is given back when it is sent.
 *   K4 A connection that sends half a command, or does not take its answers, is closed in time.
 *   K5 An answer in front of a close arrives: the peer's unread input is taken first.
 *   K6 A door never sees TLS: below it, what comes is opened and what goes is sealed (tls.h).
 *      Shaking hands takes place in time or not at all. */
#ifndef DAEMON_CONN_H
#define DAEMON_CONN_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/loop.h"
#include "base/trace.h"
#include "daemon/tls.h"

#include <uv.h>

struct conn;

/* Which one, for what is counted by door. */
enum door_id { DOOR_RESP, DOOR_HTTP, DOORS };

struct door {
    enum door_id id;
    const char *name;
    size_t session_bytes;  /* of conn->session: the door's own, zeroed */
    uint32_t owed_max;     /* of one connection; 0: as many as the limits allow */
    const char *full_text; /* answered to a connection too many */
    const char *alpn;      /* what it is called in TLS; NULL: nothing */
    void (*on_opened)(struct conn *c);
    /* Returns how many of the bytes are done with; what is left is shown again, with more. It
     * stops early when conn_full(), and is called again when that is over. */
    size_t (*on_bytes)(struct conn *c, uint8_t *data, size_t len);
    void (*on_room)(struct conn *c);   /* answers that were kept because of !conn_has_room() */
    void (*on_ended)(struct conn *c);  /* the peer will send nothing any more */
    void (*on_cancel)(struct conn *c); /* answer what waits: it has to be asked elsewhere */
    void (*on_closed)(struct conn *c); /* the last call: whoever answers later finds nobody */
};

/* id, name, text */
#define CLOSE_LIST(X)                                                                          \
    X(CLOSE_ENDED, "ended", "the peer closed it")                                              \
    X(CLOSE_BROKEN, "broken", "it broke")                                                      \
    X(CLOSE_REFUSED, "refused", "the input was refused, or it asked to quit")                  \
    X(CLOSE_SLOW_INPUT, "slow_input", "a command was begun and not completed in time")         \
    X(CLOSE_SLOW_OUTPUT, "slow_output", "answers were not taken in time")                      \
    X(CLOSE_TLS, "tls", "TLS was asked for and not spoken, or not in time")                    \
    X(CLOSE_LIMIT, "limit", "a limit or memory was exceeded")                                  \
    X(CLOSE_SHUTDOWN, "shutdown", "the daemon stops")

#define CLOSE_ENUM(id, name, text) id,
enum close_reason { CLOSE_LIST(CLOSE_ENUM) CLOSE_REASONS };
#undef CLOSE_ENUM

const char *close_name(enum close_reason why);
const char *close_text(enum close_reason why);

enum { CONN_INPUT_BYTES = 64 * 1024, CONN_SPARE_BYTES = 16 * 1024, CONN_SPARES_MAX = 64 };

struct conn_limits {
    size_t in_bytes_max;   /* of a command that is not complete */
    size_t out_bytes_high; /* unsent: above this nothing more is asked for */
    size_t out_bytes_max;  /* unsent: above this it is closed */
    uint32_t owed_max;     /* answers that are still to come */
    int64_t command_ms;    /* from the first byte of a command to its last */
    int64_t send_ms;       /* without any progress */
    int64_t linger_ms;
    int64_t handshake_ms; /* of TLS */
};

/* What is counted, by door. */
struct door_stats {
    uint64_t accepted, refused, closed[CLOSE_REASONS];
    uint64_t in_bytes, out_bytes;
    uint64_t open;     /* now */
    uint64_t requests; /* complete ones; the door counts */
};

/* All connections of a process, and what they share. */
struct conns {
    uv_loop_t *uv;
    struct loop *loop;
    struct clock clock; /* the loop's */
    struct conn_limits limits;
    const struct trace *trace; /* NULL: nobody listens */
    struct list open;          /* every conn that is not freed */
    struct list dirty;         /* to be looked at in conns_settle() */
    size_t count, count_max;
    uint64_t ids; /* given to connections so far */
    struct door_stats stats[DOORS];
    uint8_t *spares[CONN_SPARES_MAX]; /* memory for answers */
    size_t spare_count;
    uint8_t input[CONN_INPUT_BYTES];
    uint8_t plain[CONN_INPUT_BYTES]; /* of TLS */
};

enum conn_state { CONN_OPEN, CONN_ENDING, CONN_LINGERING, CONN_CLOSED };

/* Of a listener or a connection, as libuv knows it. */
union socket {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

struct conn {
    struct link link, dirty;
    struct conns *all;
    const struct door *door;
    void *ctx; /* the door's, for all of its connections */
    uint64_t id;
    enum conn_state state;
    enum close_reason why;             /* once it is ENDING */
    bool reading, stalled, peer_ended; /* stalled: the door stopped because of conn_full() */
    bool refused;                      /* the door wants no more input */
    uint32_t owed;                     /* answers that are still to come */
    size_t parked_bytes;               /* answers that wait for one in front of them */
    struct buf in, out, sending;       /* sending: the kernel did not take it all at once */
    struct tls *tls;                   /* NULL: none */
    size_t unsent;                     /* of sending, when last looked at */
    int64_t since_ms; /* when what the timer watches began; see conn_wake_ms() */
    struct timer timer;
    union socket uv;
    union { /* never both at once */
        uv_write_t write;
        uv_shutdown_t shutdown;
    } request;
    _Alignas(16) uint8_t session[];
};

void conns_init(struct conns *all, uv_loop_t *uv, struct loop *loop,
                const struct conn_limits *limits, size_t count_max);
void conns_fini(struct conns *all); /* none is open any more */

/* Writes what is to be written, goes on with what waited, closes what has ended. */
void conns_settle(struct conns *all);

/* Takes no more input from any; those that owe nothing close. */
void conns_end(struct conns *all, enum close_reason why);
void conns_cancel(struct conns *all);                       /* what waits: see on_cancel */
void conns_close(struct conns *all, enum close_reason why); /* now */

/* For a listener that has one. Without keys it speaks no TLS. False: there is no memory for it, and
 * it still waits; libuv tells of no other before it is taken. */
bool conn_accept(struct conns *all, uv_stream_t *listener, const struct door *door, void *ctx,
                 const struct tls_keys *keys);

/* ---- for doors ---- */

struct buf *conn_out(struct conn *c);     /* what is added is sent at the end of the turn */
bool conn_full(const struct conn *c);     /* for more commands */
bool conn_has_room(const struct conn *c); /* for one more answer, however long */
void conn_owe(struct conn *c);            /* an answer will come later */
void conn_paid(struct conn *c);           /* it came */
void conn_parked(struct conn *c, size_t bytes);
void conn_unparked(struct conn *c, size_t bytes);
void conn_end(struct conn *c, enum close_reason why); /* answer what is owed, then close */
void conn_close(struct conn *c, enum close_reason why);

#endif
