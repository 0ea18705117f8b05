/* sim.h - the simulator: a fleet, two planes and every fault, on a clock that nobody waits for.
 *
 * One seed is one run, bit for bit: sim_run() with the same seed and options returns the same
 * hash of everything that happened. README.md says what is simulated and what is checked. */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

/* A lie told on purpose, to see that its checker notices: name, checker that must, what it does
 */
#define SIM_PLANT_LIST(X)                                                                      \
    X(OTHER_VALUE, "C1", "a cached answer reaches its caller with another value")              \
    X(FALSE_GRANT, "C2", "an in_progress answer reaches its caller as claimed")                \
    X(STOLEN_RELEASE, "I12", "a stale release is executed with the owner's token")             \
    X(LOST_RECORD, "C3", "the ledger loses a finished record")                                 \
    X(COORD_INVENTS, "C1", "coord holds an answer that the ledger never had")                  \
    X(STUCK_KEY, "C5", "a claim of nobody is never allowed to lapse")                          \
    X(DEAF_WAITERS, "C6", "wake-ups are dropped without breaking the connection")              \
    X(SEEN_BY_OTHERS, "C7", "a mismatch reaches its caller as in_progress")                    \
    X(BAD_ACCEPTED, "C9", "a call that was meant to be refused is valid")                      \
    X(EARLY_TAKEOVER, "C2", "the lease of a live owner is cut short behind its back")          \
    X(REUSED_FENCE, "I4", "the ledger forgets which fences it gave out")                       \
    X(DENIED_EFFECT, "S4", "an answer that counted reaches its caller as unavailable")         \
    X(FALSE_OK, "C3", "a refused publish reaches its caller as ok")                            \
    X(LEAKED_WAITER, "I14", "a waiter is counted that is not there")

enum sim_plant {
    PLANT_NONE,
#define SIM_PLANT_ENUM(name, rule, text) PLANT_##name,
    SIM_PLANT_LIST(SIM_PLANT_ENUM)
#undef SIM_PLANT_ENUM
        PLANTS
};

struct sim_options {
    bool verbose; /* print every event */
    enum sim_plant plant;
};

struct sim_totals {
    uint64_t calls, claimed, cached, takeovers, errors, ops, crashes, faults, events;
    int64_t virtual_ms;
};

struct sim_result {
    bool ok;
    char rule[8]; /* of the checker that complained: "C1" */
    char why[300];
    uint64_t hash;
    struct sim_totals totals;
};

struct sim_result sim_run(uint64_t seed, const struct sim_options *options);

#endif
