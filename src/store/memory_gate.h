/* memory_gate.h - the gates of a memory store, one per env; private to it.
 *
 * Guarantees: what core/gate says, by a clock that may go back: what was counted in a future that is
 * none any more counts as if it were now, so nothing is tripped for ever. Gates that nobody would
 * miss are dropped before more are made: memory follows the envs in use, not all that ever were. */
#ifndef STORE_MEMORY_GATE_H
#define STORE_MEMORY_GATE_H

#include "base/heap.h"
#include "base/map.h"
#include "store/run_op.h"

struct memory_gates {
    struct map by_env;
    struct heap by_idle; /* next to be of no use first */
};

int memory_gates_init(struct memory_gates *g, const uint64_t seed[2]); /* 0 or ERR_NOMEM */
void memory_gates_fini(struct memory_gates *g);
void memory_gates_clear(struct memory_gates *g);

/* 0 or ERR_NOMEM, and then nothing was counted. */
int memory_gates_ask(struct memory_gates *g, struct gate_ask *ask, int64_t now_ms);

#endif
