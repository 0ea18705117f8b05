/* http_door.h - the HTTP door: claims and runs for everybody who can say HTTP/1.1 and JSON.
 *
 * Guarantees:
 *   H1 Requests of a connection are carried out one after the other, in the order they came: the
 *      next one begins when the one in front of it is answered. RFC 9112, 9.3.2 would allow more
 *      for safe methods only, and a client that wants two things at once has two connections.
 *   H2 Who has hung up waits no more: a claim that is not answered is canceled, and given back
 *      should it be granted all the same. A peer that has only closed its sending side cannot be
 *      told from one that left: its claims and polls do not wait; everything else is done and
 *      answered. What was claimed with an Idempotency-Key, or a token of the caller's own, is
 *      kept for who asks again, until it lapses.
 *   H3 Nothing is asked of a store before a request is complete, well formed, routed and allowed.
 *   H4 A claim is its owner's: it renews it by POST .../renew, or it lapses.
 *   H5 A page in somebody's browser cannot make it ask here: see http_browser.c.
 *   H6 What H2 says of claims counts for triggers and leases of runs: a lease that waits is
 *      canceled, runs that were leased for somebody who is gone are given back unused. A trigger
 *      that was not told to wait is finished for a peer that has only stopped sending. A mutation
 *      that was begun for somebody who is gone is given back, too; unless the token was the caller's. */
#ifndef DAEMON_HTTP_DOOR_H
#define DAEMON_HTTP_DOOR_H

#include "daemon/auth.h"
#include "daemon/bound.h"
#include "daemon/conn.h"
#include "daemon/log.h"
#include "proto/http.h"
#include "proto/http_answer.h"
#include "proto/json.h"

enum {
    HTTP_FIELDS_MAX = 100,
    HTTP_NODES_MAX = 64,
    HTTP_LINE_BYTES_MAX = 8192,
    HTTP_HEAD_BYTES_MAX = 64 * 1024,
    HTTP_ESCAPED_BYTES_MAX = 64 * 1024, /* of a body, besides twice the longest value */
};

enum { HTTP_CLASSES = 6 };

struct metrics;

struct http_door {
    struct engine *engine;
    struct loop *loop;
    struct conns *conns;
    struct bounds *bounds;
    struct log *log;   /* NULL: nobody wants to know */
    struct auth *auth; /* NULL: everybody may ask everything */
    struct metrics *metrics;
    struct clock wall;
    uint64_t answered[HTTP_CLASSES]; /* answers, by the first digit of their status */
    struct http_limits limits;
    int64_t value_bytes_max; /* of a value, a payload, an output */
    struct list spares;      /* struct http_exchange */
    size_t spare_count;
    uint64_t next_id;
    char id_prefix[9];  /* of request ids that are made here */
    int64_t date_at_ms; /* by the loop's time, when it was last looked at */
    int64_t date_s;     /* what `date` says */
    char date[HTTP_DATE_BYTES + 1];
    struct buf content;                        /* of the answer that is being written */
    struct http_field fields[HTTP_FIELDS_MAX]; /* of the request that is being read */
    uint8_t path[HTTP_LINE_BYTES_MAX], query[HTTP_LINE_BYTES_MAX]; /* its parts, unescaped */
    struct json_node nodes[HTTP_NODES_MAX];                        /* of its body */
};

/* `d` is zeroed, with engine, loop, conns, bounds, auth, metrics and wall set. */
void http_door_init(struct http_door *d, int64_t value_bytes_max, struct rng *rng);
void http_door_fini(
    struct http_door *d); /* all connections are closed; the engine is stopped */

extern const struct door http_door;

#endif
