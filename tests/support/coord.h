/* coord.h - a room of one's own in a real Redis, or a whole Redis of one's own, a connection of one's
 * own to it, and redis stores on a loop whose clock only the test moves: deadlines and pauses pass
 * when the test says so, answers are waited for. */
#ifndef TESTS_SUPPORT_COORD_H
#define TESTS_SUPPORT_COORD_H

#include "tests/support/world.h"

#include <hiredis/hiredis.h>

struct coord {
    struct world world;
    struct room room; /* of the server that the suites share */
    char dir[64];     /* of servers that are ours alone; empty: there are none */
    char url[256];
    redisContext *admin;
};

enum { COORD_LEASE_MS = 30000, COORD_RETAIN_MS = 60000 };

/* They fail the test that calls them, with a clear message, if the server is not up. */
void coord_init(struct coord *c, enum server server);
/* `settings`: lines for the configuration. For tests that stop, flush, pause or reconfigure it. */
void coord_init_private(struct coord *c, enum server server, const char *settings);
void coord_init_beside(struct coord *c,
                       const struct coord *other); /* as another process would */
void coord_fini(struct coord *c);

/* "...&timeout_ms=500": with more parameters behind the URL. */
struct store *coord_open(struct coord *c, const char *more);
struct store *coord_open_url(struct coord *c, const char *url);
void coord_close(struct coord *c, struct store *s);

/* One command by the admin; what it says as text, until the next call. An error is one. */
const char *coord_ask(struct coord *c, const char *fmt, ...);
redisReply *coord_reply(struct coord *c, const char *fmt, ...); /* the caller frees it */
redisContext *coord_connect(const char *url);
/* Where a single server has the records, and the field of the record `name` of scope "s". */
const char *coord_shard(struct coord *c);
struct bytes coord_field(const char *name);

/* An op on key `name` of scope "s" by owner `who`. */
struct op *coord_op(enum verb verb, const char *name, uint8_t who, const char *value);

/* An op on its way. */
struct asked {
    struct op *op;
    unsigned finished;
};
void asked_start(struct asked *a, struct store *s, struct op *op);
void asked_end(struct asked *a); /* frees the op; it must have finished once */

/* Runs it; the op is freed, the answer has no value. */
struct answer coord_do(struct coord *c, struct store *s, enum verb verb, const char *name,
                       uint8_t who, const char *value);
struct err coord_fails(struct coord *c, struct store *s, enum verb verb, const char *name,
                       uint8_t who);
/* Are all its watches parked, and would it be told? */
bool coord_listens(struct coord *c, struct store *s);
/* Parks a WATCH of what the record is now. */
void coord_watch(struct coord *c, struct store *s, const char *name, struct asked *ret_watch);
/* Lets time pass until the store answers again. */
void coord_revive(struct coord *c, struct store *s);

void coord_turn(struct coord *c); /* until nothing is due now */
void coord_pass(struct coord *c, int64_t ms);

int64_t coord_patience(void);
void coord_sleep(struct coord *c, int64_t until_ms);

/* Waits for what the server makes so. */
#define COORD_UNTIL(c, cond)                                                                   \
    do {                                                                                       \
        int64_t until_ms_ = coord_patience();                                                  \
        for (coord_turn(c); !(cond); coord_turn(c)) coord_sleep(c, until_ms_);                 \
    } while (0)

#endif
