/* mutation.h - the replay cache of mutations, at coord: who has begun one, and what came of it.
 *
 *   BEGIN --claimed--> the caller's transaction --> COMPLETE: the response is kept for who asks again
 *     |                                        '--> ABORT: nothing happened, the next one may
 *     |--somebody is on it--> IN_PROGRESS, or waited for
 *     |--done--> CACHED; of another epoch than the asker's: dropped, and begun again
 *     '--coord is away--> CLAIMED and degraded: go on without
 *
 * It decides nothing: the marker in the user's own database does, and is written whatever is said
 * here. So what coord forgets costs time, and never a mutation that is applied twice.
 *
 * Guarantees:
 *   M1 Every call is finished exactly once.
 *   M2 A response is shown only to who asks for the same: user, request, method and fingerprint.
 *   M3 What was completed in another epoch of the database than the asker's is not shown to it.
 *   M4 A claim that nobody hears of is given back; one whose owner is gone lapses. */
#ifndef ENGINE_MUTATION_H
#define ENGINE_MUTATION_H

#include "engine/engine.h"

/* Checks the request before anything else happens (C9). The call is valid until `done` returns, which
 * is never called from inside engine_mutation(). */
int engine_mutation(struct engine *e, const struct mutation_args *args,
                    struct mutation_call **ret_call, struct err *reterr);
void mutation_call_cancel(struct mutation_call *c); /* `done` is still called */

/* For `done`. */
const struct err *mutation_call_error(
    const struct mutation_call *c); /* code 0: there is an answer */
const struct mutation_answer *mutation_call_answer(const struct mutation_call *c);
int64_t mutation_call_waited_ms(const struct mutation_call *c);
void mutation_call_unheard(
    struct mutation_call *c); /* its caller is gone: what it got is given back */

#endif
