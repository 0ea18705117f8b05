/* internal.h - the parts of one simulated world, on one thread and one clock. */
#ifndef TESTS_SIM_INTERNAL_H
#define TESTS_SIM_INTERNAL_H

#include "engine/engine.h"
#include "store/watches.h"
#include "tests/sim/sim.h"

enum { COORD, LEDGER, PLANES };
enum { IDENTS = 7, IDENTS_USED_MAX = 4, FINGERPRINTS = 4 };
enum { PROCESSES_MAX = 4, CLIENTS_MAX = 10, OLD_CLAIMS = 4 };
enum { VALUE_BYTES_MAX = 64, PATIENCE_MS = 5000, QUIET_MS = 3000 };

struct sim;
struct process;

/* ---- events: ordered by time, then by the order they were scheduled ---- */

struct event {
    struct heap_node node;
    void (*run)(struct sim *sim, struct event *event);
};

void event_init(struct event *ev, void (*run)(struct sim *, struct event *));
void event_at(struct sim *sim, struct event *ev, int64_t at_ms); /* moves it if scheduled */
void event_stop(struct sim *sim, struct event *ev);
bool event_is_set(const struct event *ev);

/* ---- audit.c: what a plane's records must be, kept apart from the rules ---- */

enum status { ABSENT, PENDING, DONE };

/* A record from one change to the next. Times are the plane's, except at_ms. */
struct mark {
    uint64_t seq;
    int64_t at_ms, clock_ms; /* virtual time and the plane's time when it began */
    enum status status;
    struct token token;
    uint64_t fence;
    int fingerprint;
    int64_t lease_ms, lease_until_ms, retain_ms, gone_ms;
    struct blob *value;
    enum verb cause;
    uint64_t cause_id; /* attempt that asked for it; 0: the engine by itself */
    uint64_t acked;    /* FORGET: when somebody was told that it is forgotten */
    bool executed;     /* CLAIM: an owner was told that it owns */
    bool shortened;    /* RENEW: waiters could not know that the lease ends earlier now */
};

struct page {
    struct mark now;
    struct mark *log; /* of the ledger: every mark of this run */
    size_t count, cap;
    uint64_t fence_max;
    uint64_t progress[FINGERPRINTS]; /* last time a claim met, or became, a live owner */
    struct op *peek;
};

struct plane;

/* Executes an op on the plane's records and checks that what happened is what the contract
 * says, whatever the rules think. */
void audit_exec(struct plane *plane, struct op *op, uint64_t cause_id);
void audit_init(struct plane *plane);
void audit_fini(struct plane *plane);
void audit_forgot_all(struct plane *plane); /* flushed */
void audit_clock_moved(struct plane *plane);
void audit_check_all(struct plane *plane);

int ident_of(const struct key *key); /* -1: not one of ours */
struct key ident_key(int ident);
int fingerprint_of(struct bytes fp);
struct bytes fingerprint_bytes(int fp);

/* ---- plane.c: a store that the whole fleet shares ---- */

enum outage { UP, REFUSES, SILENT };

struct plane {
    struct sim *sim;
    int index;
    struct store *records; /* a bare memory: store */
    struct watches watches;
    int64_t skew_ms;
    enum outage outage;
    bool notify, went_back;
    struct page pages[IDENTS];
};

/* An op on its way to a plane, or its answer on the way back. */
struct message {
    struct event event;
    struct plane *plane;
    struct flight *flight; /* who waits for it; a reference */
    struct op *op;         /* a copy: the sender may be gone */
    uint64_t cause_id;
    bool twin; /* the second of two: its answer goes nowhere */
    bool late; /* its sender gave up long ago */
};

void plane_init(struct sim *sim, int index);
void plane_fini(struct plane *plane);
int64_t plane_clock_ms(const struct plane *plane);
void plane_arrived(struct sim *sim, struct event *ev); /* a message */
void plane_flush(struct plane *plane);
void plane_jump(struct plane *plane, int64_t by_ms);

/* ---- net.c: how a process reaches a plane; a store like any other ---- */

struct net {
    struct store base;
    struct process *process;
    struct plane *plane;
    struct list flights; /* asked, not answered */
    struct list arrived; /* ops with an answer, told in the next turn */
    struct task task;
    enum outage cut;
    bool dead;
};

/* One op that a process has in flight. Lives as long as anything refers to it. */
struct flight {
    struct link link;
    struct net *net;
    struct op *op; /* NULL: given up, answered, or its process is gone */
    struct timer timeout;
    unsigned refs;
    bool doubled; /* sent twice: a refusal says nothing about the other one */
};

struct net *net_open(struct process *process, struct plane *plane);
void net_break(
    struct net *net); /* the connection is lost: watches fail, answers do not arrive */
void net_kill(struct net *net); /* the process is dying: nothing goes out any more */
void flight_answer(struct flight *f, const struct op *answered);
void flight_put(struct flight *f);
void message_free(struct message *m);

/* ---- process.c ---- */

struct process {
    struct sim *sim;
    int index;
    bool up, paused, dying;
    unsigned incarnation;
    int64_t paused_ms; /* in total */
    int64_t paused_at_ms;
    struct loop loop;
    struct rng_seeded rng;
    struct store_env env;
    struct trace trace;
    struct net *net[PLANES];
    struct store *store;
    struct engine *engine;
    struct event turn, comeback;
    int64_t asks[IDENTS][FINGERPRINTS];  /* claims sent since the key was done, less arrivals */
    int64_t polls[IDENTS][FINGERPRINTS]; /* the same since anything about the key changed */
    unsigned pointless;                  /* renewals in a row of a lease that is zero long */
};

void process_start(struct process *p);
void process_crash(struct process *p);
void process_stop(struct process *p); /* gracefully; at the end of the run */
void process_pause(struct process *p);
void process_resume(struct process *p);
void process_kick(struct process *p); /* there is something to do now */
int64_t process_paused_ms(const struct process *p);

/* ---- client.c: callers and their work ---- */

/* One call, from its invocation to its answer. */
struct attempt {
    uint64_t id;
    enum verb verb;
    int ident, fingerprint;
    struct token token; /* of a claim: known when the store is asked */
    bool has_token, release_sent;
    struct blob *value;
    int64_t wait_ms, lease_ms, retain_ms;
    bool renew;
    uint64_t seq; /* when it was invoked */
    int64_t at_ms, paused_ms;
};

struct claim {
    int ident;
    struct token token;
    uint64_t fence;
    struct blob *value; /* as published, if it was */
    int64_t lease_ms;
    bool renew;
};

struct client {
    struct sim *sim;
    int index;
    struct process *process;
    struct rng_seeded rng;
    struct event step, cancel;
    struct call *call;
    struct attempt attempt;
    bool holds, heals, probe_must_work;
    int64_t hold_until_ms;
    struct claim held;
    struct claim old[OLD_CLAIMS];
    unsigned values;
};

void client_init(struct sim *sim, int index);
void client_fini(struct client *c);
void client_process_gone(struct client *c); /* crashed: its calls and claims with it */
void client_process_back(struct client *c);
struct client *client_of_call(struct process *p, const void *call);
bool client_probe(struct client *c, int ident,
                  int fingerprint); /* claim, to see what is said */

/* ---- history.c: is an answer true? ---- */

void history_answered(struct client *c, const struct err *err, const struct answer *out);
void history_asked(struct client *c, const struct op *op);     /* its op goes to the ledger */
void history_released(struct process *p, const struct op *op); /* a release does */
void history_lost(struct client *c, const struct token *token);

/* ---- pace.c: is everybody told in time, and nobody asked too often? ---- */

void pace_arrived(struct client *c); /* a claim was invoked */
void pace_cached(struct client *c);  /* and answered */
void pace_in_progress(struct client *c, const struct answer *out);
void pace_sent(struct process *p, int plane, const struct op *op);
void pace_changed(struct sim *sim, int ident); /* at either plane */
void pace_granted(struct plane *ledger, int ident, const struct mark *before);
void pace_published(struct sim *sim, int ident);

/* ---- faults.c ---- */

/* What may go wrong in this run, in per mille of messages or as a mean time between two. */
struct swarm {
    bool calm; /* nothing goes wrong at all: every promise about time holds */
    unsigned lost_request[PLANES], lost_answer[PLANES], twice[PLANES], late[PLANES];
    unsigned refused[PLANES];
    unsigned struck; /* crashes or pauses just when an answer arrives: between two steps */
    int64_t latency_ms[PLANES], timeout_ms[PLANES];
    int64_t nemesis_ms;
    unsigned kinds; /* of nemesis */
    int64_t lease_ms, think_ms, retain_ms, sweep_ms;
    unsigned other_fingerprint, forgets, odd_leases;
    bool silent_flush;
};

void swarm_init(struct sim *sim);
void faults_start(struct sim *sim);
void faults_heal(struct sim *sim);
bool chance(struct rng_seeded *rng, unsigned per_mille);
int64_t between(struct rng_seeded *rng, int64_t low, int64_t high);
void fault_happened(struct sim *sim, const char *what);
void fault_on_answer(struct process *p); /* perhaps; an answer has just arrived */

/* ---- the world ---- */

struct sim {
    uint64_t seed;
    struct sim_options options;
    int64_t now_ms;
    uint64_t seq;
    struct heap events;
    struct rng_seeded rng, net_rng;
    struct swarm swarm;
    struct plane planes[PLANES];
    struct process processes[PROCESSES_MAX];
    int process_count;
    struct client clients[CLIENTS_MAX];
    int client_count;
    int idents[IDENTS_USED_MAX];
    int ident_count;
    uint64_t attempts, submits, in_this_ms;   /* in_this_ms: events, to notice a circle */
    int64_t lease_max_ms, changed_ms[IDENTS]; /* changed: at either plane, the last time */
    struct event nemesis, repair[8];
    unsigned outages;                     /* that are going on */
    int64_t last_fault_ms, late_until_ms; /* late: the last request that is still on its way */
    bool healing, loose; /* loose: coord may serve what the ledger has ended; see history.c */
    bool planted;
    struct sim_result result;
};

#define START_MS INT64_C(1700000000000)

uint64_t sim_tick(struct sim *sim); /* a new moment, later than every other */
void sim_note(struct sim *sim, uint64_t a, uint64_t b, uint64_t c); /* into the hash */
void sim_say(struct sim *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void violation(struct sim *sim, const char *rule, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool quiet_since(const struct sim *sim, int64_t at_ms); /* nothing went wrong from then on */
bool plant(struct sim *sim, enum sim_plant which); /* true once, when it is the one to tell */

static inline struct plane *sim_ledger(struct sim *sim)
{
    return &sim->planes[LEDGER];
}

#endif
