/* redis.h - the parts of the Redis store; private to it.
 *
 *   redis.c          lanes, the store
 *   redis_batch.c    ops into batches, and what becomes of them
 *   redis_step.c     a batch of claims, or of what is accepted, as a call of a script, and its answer
 *   redis_buffer.c   the same for what else is asked of the buffer, and of the gate
 *   redis_fan.c      leasing, settling and counting entries, which may be about many shards
 *   redis_conn.c     one connection: connecting, greeting, commands in flight, deadlines
 *   redis_nodes.c    which server has which record: one, or the masters of a cluster
 *   redis_walk.c     listing, counting and sweeping, which are about all records
 *   redis_url.c      what is behind "redis:"
 *   redis_inbox.c    being told of what others change
 *   redis_facts.c    what a server says of itself
 *   redis.lua        the rules, as one atomic step in the server; and what is accepted
 *   redis_buffer.lua what else is done with entries of the buffer; redis_gate.lua: the gate
 *   redis_chunk.lua  what the buffer is made of, for both */
#ifndef STORE_REDIS_H
#define STORE_REDIS_H

#include "base/buf.h"
#include "base/resolver.h"
#include "store/store.h"
#include "store/watches.h"

#include <hiredis/hiredis.h>

enum {
    INBOX_BYTES = 8,
    HEADER_BYTES = 69, /* of a record; as in redis.lua */
    LANES_MAX = 16,    /* connections to one server */
    HOST_BYTES = 256,
    SLOTS = 16384, /* of a cluster */
    SHARDS = 256,  /* of a cluster; a single server has one */
    BATCH_MAX = 128,
    WHOLE_FRAME_BYTES = 3,
    SHA_BYTES = 41,
    ENV_PREFIX_BYTES_MAX =
        2 + ENV_BYTES_MAX, /* of a field: its kind, the env with its length */
};

enum script { SCRIPT_CLAIMS, SCRIPT_BUFFER, SCRIPT_GATE, SCRIPTS };
extern const char *const redis_scripts[SCRIPTS];

/* ---- redis_url.c ---- */

struct redis_options {
    char *memory; /* all strings point into it */
    size_t memory_len;
    const char *host, *path, *user, *password, *prefix;
    int port, db;
    int64_t timeout_ms;
    unsigned lanes;
    bool evictable; /* the buffer may be on a server that evicts */
};

int redis_options_parse(const char *rest, struct redis_options *ret, struct err *reterr);
void redis_options_fini(struct redis_options *o);

/* ---- redis_conn.c ---- */

struct conn;

struct command;
typedef void command_answered(struct command *, struct conn *, const redisReply *,
                              const struct err *);

/* A command whose answer is awaited. `answered` is called exactly once: with a reply, or with an
 * error at the deadline or when the connection is lost. `gone`, if there is one, is called when
 * the connection does not know the command any more: its memory is the owner's again. */
struct command {
    struct link link;
    command_answered *answered;
    void (*gone)(struct command *);
    int64_t deadline_ms;
    bool overdue; /* answered already; what the server says is thrown away */
};

/* What a server said of itself. */
struct redis_facts {
    bool known, cluster, replica, aof, limited; /* limited: there is a maxmemory */
    bool save_known;                            /* CONFIG may be forbidden */
    char version[16], fsync[16], save[64], policy[32];
};

/*   DOWN --first use, back-off over--> RESOLVING --> CONNECTING --writable--> GREETING --> READY
 *     ^-------------------------- any failure ------------'---------------------'----------' */
enum conn_state { CONN_DOWN, CONN_RESOLVING, CONN_CONNECTING, CONN_GREETING, CONN_READY };

struct greeting {
    struct command command;
    unsigned step;
};

struct conn_events {
    void (*ready)(struct conn *);
    void (*down)(struct conn *);                       /* also told when an attempt failed */
    void (*pushed)(struct conn *, const redisReply *); /* of a connection that subscribed */
};

struct conn {
    struct redis *redis;
    const struct conn_events *events;
    const char *host, *path;
    int port;
    struct resolver resolver; /* of the host */
    unsigned address;         /* of its addresses, the one that is tried, or that worked */
    enum conn_state state;
    redisContext *ctx;
    struct io io;
    struct timer timer; /* DOWN: the next attempt; else: the first deadline */
    struct timer more;  /* answers that are read already, for the next turns */
    unsigned put_off;   /* so often, for what the one before them led to */
    struct list sent;   /* struct command, in order */
    struct buf out;     /* commands that the socket has not taken yet, from out_sent on */
    size_t out_sent;
    struct greeting greetings[12];
    unsigned greeted, greetings_sent;
    unsigned failures;            /* in a row */
    bool silent;                  /* a deadline passed and nothing has come since */
    int64_t heard_ms;             /* when something came last */
    bool subscribed;              /* everything that comes is pushed */
    struct redis_facts facts;     /* of the server at the other end, as it was greeted last */
    char sha[SCRIPTS][SHA_BYTES]; /* as the server names them */
    struct err why;               /* of the last failure */
};

void conn_init(struct conn *c, struct redis *r, const struct conn_events *events);
void conn_fini(struct conn *c); /* fails what is in flight */

/* From now on to where the other one is connected to. DOWN only. */
void conn_follow(struct conn *c, const struct conn *other);
/* Begins to connect unless it does, or has to wait. */
void conn_use(struct conn *c);
/* Is it known not to answer now? What is asked of it would only wait for its deadline. */
bool conn_refuses(const struct conn *c);
/* A deadline passed while it was being connected: nobody else has to wait for that. */
void conn_missed(struct conn *c);
/* READY only. Takes over the command; `argv` is copied. False: out of memory, it was failed. An argument
 * may be in pieces: the length of each but its last has this bit. */
#define ARG_GOES_ON (SIZE_MAX / 2 + 1)
bool conn_send(struct conn *c, struct command *command, int argc, const char **argv,
               const size_t *lens);
/* The same, a few words, with a deadline like everything's and memory of its own. */
bool conn_ask(struct conn *c, command_answered *answered, int argc, const char **argv);
void conn_flush(struct conn *c);
void conn_ping(struct conn *c); /* of one that subscribed: the answer is pushed */
/* Closes, fails what is in flight and connects again later. Not from `answered` of a command that
 * was failed. */
void conn_drop(struct conn *c, int code, const char *text);
void conn_watch_deadlines(struct conn *c);

/* ---- redis_nodes.c ---- */

/* One connection and the ops that wait for their turn on it. */
struct lane {
    struct conn conn;
    struct node *node;
    struct list queued;   /* struct op */
    struct list asking;   /* struct op: to be asked here once, while their slot moves here */
    struct list again;    /* struct op: sent once, not carried out; before those in `queued` */
    struct timer overdue; /* the first of them has waited for too long */
    struct command reload;
    enum script reloaded; /* which one */
    bool reloading;       /* nothing is sent until the script is there again */
    unsigned batches;     /* in flight */
    bool held;            /* the rest waits for the answer to the batch that is under way */
};

struct node {
    struct link link;
    struct redis *redis;
    char host[HOST_BYTES]; /* empty: the seed, behind a socket */
    int port;
    struct lane lanes[LANES_MAX];
};

void lane_init(struct lane *l, struct node *n); /* redis.c */
void lane_fini(struct lane *l);
struct node *node_at(struct redis *r, const char *host, int port); /* NULL: out of memory */
void nodes_fini(struct redis *r);
/* Where an op belongs, as far as is known. */
struct lane *lane_of(struct redis *r, const struct op *op);
unsigned shard_of(const struct redis *r, struct bytes frame);
unsigned shard_of_env(const struct redis *r, struct bytes env);
unsigned shard_of_op(const struct redis *r, const struct op *op);
unsigned shard_count(const struct redis *r);
/* What an op about a whole shard has in the place of a record's frame, which never begins so. */
void whole_frame(unsigned shard, uint8_t out[WHOLE_FRAME_BYTES]);
bool is_whole_frame(struct bytes frame);
/* "MOVED 3999 127.0.0.1:6381", "ASK ..." */
struct node *redirected(const struct conn *asked, const char *text, unsigned *ret_slot);
void slots_learn(struct conn *c, const redisReply *reply); /* what `c` says of the cluster */
void slots_ask(struct lane *l);       /* asks for that, unless it was asked a moment ago */
void slots_look(struct redis *r);     /* asks whoever is there */
uint16_t crc16(struct bytes content); /* as CLUSTER KEYSLOT has it */

/* ---- redis.c ---- */

/* The arguments of one command, and the bytes of those that are made for it. */
struct argv {
    const char *at[16 + BATCH_MAX * 12];
    size_t lens[16 + BATCH_MAX * 12];
    int count;
    size_t used;
    uint8_t memory[1024 + BATCH_MAX * (160 + 2 * ENV_PREFIX_BYTES_MAX + RUN_ID_BYTES +
                                       RUN_KEY_FRAME_BYTES_MAX)];
};

struct redis {
    struct store base;
    struct store_env env;
    struct redis_options options;
    uint8_t inbox[INBOX_BYTES];
    uint64_t seed[2];

    bool introduced; /* a server has said what it is */
    bool clustered;  /* told by the first server that was reached */
    struct list nodes;
    struct node *seed_node, *slots[SLOTS];
    int64_t slots_asked_ms;
    uint64_t epochs[SHARDS]; /* 0: never seen */
    uint64_t buffer_epochs[SHARDS];
    bool work[SHARDS];    /* is there something to lease, as far as is known? */
    unsigned drained;     /* the shard that was asked for something to lease last */
    int64_t looked_ms;    /* when all shards were asked what they have */
    uint64_t fence_floor; /* of the shard that answered last ... */
    uint64_t fence;       /* ... and of the claims that it granted then */

    struct watches watches;
    struct list asked;    /* struct op: WATCH ops in flight */
    struct list finished; /* struct op: told in the next turn */
    struct task turn;
    struct timer net; /* while somebody watches: a slow look, and is the inbox alive? */
    struct conn inbox_conn;
    struct command subscribe;
    bool inbox_pinged;
    uint64_t heard;           /* counts what came by the inbox, and its comings and goings */
    size_t in_flight;         /* ops, the parked ones too */
    struct histogram batches; /* ops in each */
    uint64_t connects;        /* connections that became ready */
    struct argv argv;         /* of the command that is being put together */
};

void redis_finish(struct redis *r, struct op *op);  /* its err or out is set; told next turn */
void redis_enqueue(struct redis *r, struct op *op); /* a keyed op, into its lane */
void redis_refuse(struct redis *r, struct op *op, int code, const char *text);
void redis_refuse_all(struct redis *r, struct list *ops, int code, const char *text);
void redis_flush_later(struct redis *r);

/* ---- redis_batch.c ---- */

void redis_settle(struct redis *r, struct op *op);    /* answered: to be told, or parked */
void redis_ask_again(struct redis *r, struct op *op); /* a WATCH, as if it were new */
/* Sends some of the queue. False: out of memory, all of it was refused. */
bool batch_send(struct lane *l, struct list *queue, bool asking);
void reload_init(struct lane *l);
/* Is it the error of this name? Does it promise that the script has changed nothing? */
bool error_is(const char *text, const char *word);
bool error_did_nothing(const char *text);

/* ---- redis_step.c ---- */

/* What the ops of a batch are about. */
enum step_kind { STEP_CLAIMS, STEP_ACCEPT, STEP_BUFFER, STEP_GATE };
enum step_kind step_kind(enum verb verb);
enum script step_script(enum step_kind kind);

/* Behind the name of a shard. */
#define BUFFER_KEY ":buffer"
#define INDEX_KEY ":index"
#define GATE_KEY ":gate:"

/* Ops of one kind and shard, none about the same record. */
struct batch {
    struct command command;
    struct lane *lane;
    enum step_kind kind;
    unsigned shard, count;
    bool asking;
    struct op *ops[BATCH_MAX];
};

void argv_add(struct argv *a, struct bytes content);
uint8_t *argv_room(struct argv *a); /* where the next made one begins */
void argv_made(struct argv *a, const uint8_t *end);
void argv_join(struct argv *a); /* what comes next is more of the last one */
struct argv *argv_begin(const struct batch *b, enum script script, unsigned keys);
void argv_key(struct argv *a, const struct batch *b, const char *what); /* "": the shard */
void argv_send(struct argv *a, struct batch *b);

/* Numbers, the lowest byte first. */
uint64_t le_take(const uint8_t *at, size_t bytes);
uint8_t *le_put(uint8_t *at, uint64_t v, size_t bytes);
uint8_t *bytes_put(uint8_t *at, struct bytes content);
int64_t step_now_ms(const struct redis *r);   /* 0: by the server's clock */
int64_t step_grace_ms(const struct redis *r); /* for a clock that goes back a little */

void step_send(struct batch *b); /* may change the order of its ops */
/* False: it is of another kind. */
bool step_done(struct batch *b, const redisReply *reply);
bool claims_done(struct batch *b, const redisReply *reply);
/* The record behind a reply; false: it is none. The value stays in `bytes`. */
bool record_unpack(struct bytes packed, struct record *ret_record, struct bytes *ret_value,
                   bool *ret_kept);

/* ---- redis_buffer.c ---- */

/* What is accepted together becomes a chunk, if it is not too much of it. */
struct chunk {
    size_t entries, bytes;
    int64_t first_ms, last_ms; /* by their ids */
};
bool chunk_takes(struct chunk *c, const struct op *op); /* one more */
unsigned accept_flags(const struct op *op);
bool accept_alike(const struct op *a, const struct op *b);
/* The highest of their ids, and the lowest. */
uint8_t *accept_bounds(uint8_t *at, struct op *const *ops, unsigned count);
void accept_put(struct argv *a, struct op *const *ops, unsigned count);
/* What an entry is called in the server. */
uint8_t *entry_name_put(uint8_t *at, struct bytes env, const struct run_id *id);
/* False: they are no entries; or out of memory, which is said in the op's err. */
enum { RANGE_PARTS = 3 };
bool range_answer(struct op *op, redisReply *const parts[RANGE_PARTS]);
void buffer_learn_epoch(struct redis *r, unsigned shard, const redisReply *reply);
void buffer_send(struct batch *b);
bool buffer_done(struct batch *b, const redisReply *reply);
bool gate_mates(const struct op *a, const struct op *b); /* may they share a step? */
void gate_send(struct batch *b);
bool gate_done(struct batch *b, const redisReply *reply);

/* ---- redis_fan.c ---- */

bool fan_takes(const struct op *op);
void fan_start(struct redis *r, struct op *op);

/* ---- redis_inbox.c ---- */

void inbox_init(struct redis *r);
void inbox_net(struct redis *r); /* somebody is parked: look again in a while, told or not */
/* Changes with whatever is heard, or could not be heard. 0: nothing can be heard now. */
uint64_t inbox_heard(const struct redis *r);

/* ---- redis_facts.c ---- */

void facts_from_info(struct redis_facts *f, const char *info);
const char *facts_unfit(const struct redis_facts *f); /* NULL: it can do the work */
void facts_from_config(struct redis_facts *f, const redisReply *reply);
bool facts_evicts(const struct redis_facts *f);
void facts_worst(struct redis_facts *f, const struct redis_facts *other); /* of both */
void facts_tell(struct op *op, const struct redis_facts *f, unsigned servers, bool evictable);
void facts_tell_all(struct op *op, const struct redis *r); /* of all servers that are reached */

/* ---- redis_walk.c ---- */

void walk_start(struct redis *r, struct op *op);

#endif
